-- snowflake_advance: the next id of a shard is greater than the given id.
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';

-- 22004, 22023: wrong arguments.
\i `echo $PG_ABS_SRCDIR/refused.sql`
SELECT * FROM refusals('SELECT snowflake_advance(%s)', 'NULL, 0', '5, NULL', 'NULL, NULL', '8192, 0', '-1, 0');

-- Moments half a minute and two minutes from now: the former may be advanced past, with idgen.max_ahead
-- at 60 s, the latter may not.
SELECT date_trunc('milliseconds', clock_timestamp()) + interval '30 s' AS soon,
       date_trunc('milliseconds', clock_timestamp()) + interval '120 s' AS later \gset

-- 22023: the id is too far in the future, as an id of another layout or epoch seems to be.
\x
SELECT * FROM refused(format('SELECT snowflake_advance(5, %s)', snowflake_make_id(:'later', 5, 0)));
-- That something is in the future counts in the shard's own next id: after the last one of a millisecond
-- that is the next millisecond.
SELECT *
FROM refused(format('SELECT snowflake_advance(5, %s)', snowflake_min_id('2059-11-04T19:53:47.775Z')));
-- 2200H: no id of the shard is greater.
SELECT * FROM refused('SELECT snowflake_advance(8191, 9223372036854775807)');
\x
SELECT shard, (refused(format('SELECT snowflake_advance(%s, %s)', shard, past))).state
FROM (VALUES (0, 9223372036854775807), (8191, 9223372036854775807), (8190, 9223372036854774783),
             (8191, 9223372036854774783)) AS ends (shard, past)
ORDER BY shard, past;
-- No call that failed has changed the shard.
SELECT mark, shards_in_use FROM idgen_status;

-- Past an id of the shard: the result is the next position, and the very id that comes next.
SELECT snowflake_make_id(:'soon', 5, 7) AS past \gset
SELECT snowflake_advance(5, :past) AS next \gset
SELECT :next - :past AS step;
SELECT snowflake_next_id(5) - :next AS first;
SELECT snowflake_next_id(5) > :next AS second;
SELECT count(*) AS ids, bool_and(id > :next) AS greater, count(DISTINCT shard_of(id)) AS shards
FROM snowflake_next_ids(5, 3000) AS id;
-- It does not mint the id that it returns: the session's last id stays the same.
SELECT snowflake_next_id(6) AS id \gset
SELECT snowflake_advance(5, 0) > :id AS next, snowflake_last_id() = :id AS last_id;

-- It is durable: a server that starts again mints from the mark on, so that the mark is after the id.
SELECT mark > (:next >> 23) AS after_the_id, mark_at > :'soon' AS mark_at,
       mark_at <= timestamptz :'soon' + interval '5 s' AS not_by_much
FROM idgen_status;

-- It never goes back: past an id that is not the greatest it changes nothing.
SELECT snowflake_next_id(5) AS id \gset
SELECT snowflake_advance(5, :past) - :id AS next;
SELECT snowflake_advance(5, 0) - :id AS next;
SELECT snowflake_next_id(5) - :id AS next;
-- A second call has the same result.
SELECT snowflake_advance(5, :past) = snowflake_advance(5, :past) AS same;

-- Other shards mint as before, by the clock.
SELECT bool_and(snowflake_time(snowflake_next_id(shard)) < timestamptz :'soon' - interval '10 s')
       AS by_the_clock
FROM unnest(ARRAY[0, 4, 6, 8191]) AS shard;

-- Past an id of another shard: the least id of the own shard that is greater. A lower shard has none left
-- in that millisecond.
SELECT q.shard, d.shard = q.shard AS kept, d.created_at - :'soon' AS further, d.sequence,
       next > past AS greater, snowflake_next_id(q.shard) = next AS comes_next
FROM (VALUES (10), (12)) AS q (shard), snowflake_make_id(:'soon', 11, 1023) AS past,
     snowflake_advance(q.shard, past) AS next, snowflake_decode(next) AS d
ORDER BY q.shard;
-- After the last sequence number of a millisecond comes the next millisecond.
SELECT snowflake_advance(13, snowflake_make_id(:'soon', 13, 1023))
       = snowflake_make_id(timestamptz :'soon' + interval '1 ms', 13, 0) AS next_millisecond;

-- An id of the past, or a negative one of another generator: the shard goes by the clock, as before.
SELECT shard, past, next, snowflake_next_id(shard) > next AS greater
FROM (VALUES (20, -1), (21, (-9223372036854775808)::bigint), (22, 0), (23, 11637205501278089))
         AS q (shard, past),
     snowflake_advance(shard, past) AS next
ORDER BY shard;

-- Like minting, it is not part of the transaction.
SELECT snowflake_make_id(:'soon', 30, 0) AS past \gset
BEGIN;
SELECT snowflake_advance(30, :past) - :past AS step;
ROLLBACK;
SELECT snowflake_next_id(30) - :past AS step;

-- The intended use: the next id comes after all rows of a table that was copied from elsewhere.
CREATE TABLE moved (id bigint PRIMARY KEY DEFAULT snowflake_next_id(40));
INSERT INTO moved
SELECT snowflake_make_id(timestamptz :'soon' + n * interval '1 ms', 40, n)
FROM generate_series(0, 1000, 10) AS n;
SELECT snowflake_advance(40, max(id)) > max(id) AS advanced FROM moved;
INSERT INTO moved DEFAULT VALUES RETURNING id = (SELECT max(id) + 1 FROM moved) AS next;
DROP TABLE moved;
