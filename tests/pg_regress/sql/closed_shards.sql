-- snowflake_close_shard, snowflake_reopen_shard and snowflake_raise_mark: how shards go to another server.
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
-- 22004, 22023: wrong arguments.
\i `echo $PG_ABS_SRCDIR/refused.sql`
SELECT * FROM refusals('SELECT snowflake_%s', 'close_shard(NULL)', 'reopen_shard(NULL)', 'raise_mark(NULL)',
                       'close_shard(8192)', 'reopen_shard(8192)', 'close_shard(-1)');
-- Every id so far is below the bound, and a second call returns it again.
SELECT snowflake_next_id_js(61) AS js, snowflake_next_id(61) AS id \gset
SELECT snowflake_close_shard(61) AS bound \gset
SELECT :bound > :id AS after_the_id, shard_of(:bound) AS shard, snowflake_close_shard(61) = :bound AS again;
-- 55000: every call for the shard is refused, of both layouts, and in other sessions, and none for another shard.
CREATE TABLE closed (id bigint DEFAULT snowflake_next_id(61));
SELECT * FROM refusals('SELECT %s', 'snowflake_next_id(61)', 'count(id) FROM snowflake_next_ids(61, 1) AS id',
                       'count(id) FROM snowflake_next_ids(61, 5000) AS id', 'snowflake_next_id_js(61)') \gx
\c -
SET idgen.shard = 61;
\set VERBOSITY sqlstate
INSERT INTO closed DEFAULT VALUES;
SELECT snowflake_next_id();
SELECT snowflake_next_id_js(61);
\set VERBOSITY default
SELECT snowflake_next_id(60) > 0 AS id, snowflake_next_id_js(60) > 0 AS js;
SELECT refused FROM idgen_refusals WHERE reason = 'shard_closed';
-- Not part of the transaction.
BEGIN;
SELECT shard_of(snowflake_close_shard(8191)) AS shard, shard_of(snowflake_close_shard(62)) AS other;
ROLLBACK;
SELECT shard, layout, ids, closed FROM idgen_shard_stats ORDER BY shard, layout;
SELECT count(*) FROM idgen_shard_stats WHERE snowflake_reopen_shard(shard) AND shard > 61;
SELECT shard, layout, ids, closed FROM idgen_shard_stats WHERE shard <> 60 ORDER BY shard, layout;
-- A closed shard can be advanced, and goes on from there once it is reopened.
SELECT snowflake_advance(61, :bound + 100) - :bound AS step, snowflake_close_shard(61) > :bound + 100 AS bound;
SELECT (refused('SELECT snowflake_next_id(61)')).state;
SELECT snowflake_reopen_shard(61), snowflake_reopen_shard(61) AS again, snowflake_reopen_shard(8190) AS never_closed;
SELECT snowflake_next_id(61) > :bound + 100 AS id, snowflake_next_id_js(61) > :js AS js;

-- snowflake_advance goes past the second of the id for the ids of snowflake_next_id_js too.
SELECT date_trunc('second', clock_timestamp()) + interval '30.5 s' AS soon \gset
SELECT snowflake_advance(63, snowflake_max_id(:'soon')) > snowflake_max_id(:'soon') AS advanced;
SELECT created_at - :'soon' AS later, sequence FROM snowflake_decode(snowflake_next_id_js(63), 'js53');
-- So a server that has gone past the id before the bound repeats none of these ids.
SELECT snowflake_next_id_js(63) AS js, snowflake_close_shard(63) AS bound \gset
SELECT snowflake_advance(64, :bound - 1) > 0 AS advanced, snowflake_advance(65, :bound) > 0 AS advanced_further;
SELECT s.shard, created_at - (snowflake_decode(:js, 'js53')).created_at AS later
FROM (VALUES (64), (65)) AS s (shard), snowflake_decode(snowflake_next_id_js(s.shard), 'js53');
-- An id of the past changes nothing.
SELECT snowflake_advance(66, 0) > 0 AS advanced;
SELECT snowflake_next_id_js(66) < :js AS by_the_clock;

-- 22023: a mark that is further ahead than ids may be.
SELECT * FROM refusals('SELECT snowflake_raise_mark(%s)', 'clock_timestamp() + interval ''2 min''', '''infinity''') \gx
SELECT mark_at < clock_timestamp() + interval '1 min' AS not_raised FROM idgen_status;
-- A time that is past is no reason to wait or to refuse: ids have the time of now.
SELECT snowflake_raise_mark('-infinity') >= date_trunc('milliseconds', now()) AS now,
       snowflake_raise_mark('2025-01-01T00:00:00Z') >= date_trunc('milliseconds', now()) AS this_too;
-- All ids of all shards are later than the time, in both layouts, and the mark is.
SELECT snowflake_next_id(70) > 0 AS lease, snowflake_next_id(70) > 0 AS rest;
SELECT date_trunc('second', clock_timestamp()) + interval '40 s' AS past \gset
SELECT snowflake_raise_mark(:'past') - :'past' AS later, snowflake_raise_mark(:'past') - :'past' AS again;
SELECT snowflake_time(snowflake_next_id(shard)) - :'past' AS later FROM (VALUES (0), (70), (8191)) AS s (shard);
SELECT created_at - :'past' AS later FROM snowflake_decode(snowflake_next_id_js(70), 'js53');
SELECT mark_at > :'past' AS mark, warning FROM idgen_status;
-- The time between two milliseconds is one that ids do not have.
SELECT snowflake_raise_mark(timestamptz :'past' + interval '1000.3 ms') - :'past' AS later;
