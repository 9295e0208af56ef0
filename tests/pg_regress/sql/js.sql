-- Ids that JavaScript keeps exactly: 32 bits of seconds, 8 of shard, 12 of sequence.
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';

-- The first shard and the last one, and the second of the call.
SELECT date_trunc('second', clock_timestamp()) AS before \gset
CREATE TEMP TABLE minted AS
    SELECT n, snowflake_next_id_js(n) AS id FROM unnest(ARRAY[0, 1, 5, 254, 255]) AS n;
SELECT n, shard, id BETWEEN 1 AND (1::bigint << 53) - 1 AS exact,
       created_at BETWEEN :'before' AND clock_timestamp() + interval '1 s' AS in_time,
       id::double precision::bigint = id AS through_a_double
FROM minted, snowflake_decode(id, 'js53') ORDER BY n;
SELECT id = snowflake_last_id() AS last FROM snowflake_next_id_js(7) AS id;

-- More than a second has room for: in strict order, 4096 to a second, and not further ahead of the clock
-- than idgen.max_ahead, which is 1 s, for which the last ones wait.
SELECT date_trunc('second', clock_timestamp()) AS before \gset
CREATE TEMP TABLE burst AS
    SELECT n, snowflake_next_id_js(22) AS id, clock_timestamp() AS at FROM generate_series(1, 13000) AS n;
SELECT count(*) AS ids, count(DISTINCT id) AS different, count(DISTINCT shard) AS shards,
       min(created_at) >= :'before' AS not_older_than_the_call,
       bool_and(created_at <= at + interval '1 s') AS not_too_far_ahead
FROM burst, snowflake_decode(id, 'js53');
SELECT count(*) AS not_ascending
FROM (SELECT id <= lag(id) OVER (ORDER BY n) AS wrong FROM burst) AS pairs WHERE wrong;
SELECT max(count) <= 4096 AS at_most_4096, bool_or(count = 4096) AS all_of_a_second
FROM (SELECT count(*) FROM burst GROUP BY id >> 20) AS seconds;

-- A shard at its ceiling is refused after idgen.max_wait.
\i `echo $PG_ABS_SRCDIR/refused.sql`
SET idgen.max_wait = 0;
SELECT * FROM refused('SELECT snowflake_next_id_js(21) FROM generate_series(1, 13000)') \gx
RESET idgen.max_wait;
-- A shard that is null, or does not fit into 8 bits.
SELECT * FROM refusals('SELECT snowflake_next_id_js(%s)', 'NULL', '256', '-1');

-- As the default of a column, and there and back through a number of JSON.
CREATE TABLE notes (
    id bigint PRIMARY KEY DEFAULT snowflake_next_id_js(5) CHECK (id < 1::bigint << 53),
    body text
);
INSERT INTO notes (body) SELECT 'note ' || n FROM generate_series(1, 100) AS n;
SELECT count(*) FROM notes, json_array_elements_text((SELECT json_agg(id) FROM notes)) AS text
WHERE text::double precision = id;
SELECT "table", "column", shard, expression FROM idgen_columns WHERE "table" = 'notes';
DROP TABLE notes;
