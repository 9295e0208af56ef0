-- The 2^40 ms since the epoch are over: the server runs, old ids are decoded, and none is minted. The next one
-- would be negative, and sort before all others.
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
CREATE EXTENSION idgen;
\i `echo $PG_ABS_SRCDIR/refused.sql`

-- The server has logged it at its start.
WITH log AS (
    SELECT * FROM regexp_split_to_table(pg_read_file('server.log'), '\n') WITH ORDINALITY AS log (line, n)
)
SELECT line
FROM log
WHERE line ~ '^(WARNING|DETAIL|HINT)' AND n < (SELECT min(n) FROM log WHERE line ~ 'ready to accept')
ORDER BY n;

SET idgen.shard = 5;
SELECT * FROM refusals('SELECT %s', 'snowflake_next_id(5)', '* FROM snowflake_next_ids(5, 10)',
    'snowflake_next_id_js(5)', 'snowflake_next_id()', 'snowflake_last_id()') \gx
SELECT epoch, now_tick > 1099511627775 AS now_is_later, ahead_ms, shards_in_use, ends_at, years_left, warning
FROM idgen_status;
SELECT count(*) FROM idgen_shard_stats;

-- Earlier ids are decoded, and so are ids that another generator made later.
SELECT d.* FROM unnest(ARRAY[9223372036854775807, -9223372036854775808]) AS id, snowflake_decode(id) AS d;
SELECT shard_of(9223372036854775807), snowflake_max_id('infinity'),
       snowflake_max_id('2014-11-03T19:53:47.775Z'), snowflake_max_id(now()) AS max_id_of_now,
       snowflake_between(9223372036854775807, '2014-11-01', 'infinity');
SELECT snowflake_min_id(now());
\echo :LAST_ERROR_SQLSTATE
SELECT reason, sqlstate, refused FROM idgen_refusals WHERE refused > 0;
-- A check is no refused call. Nor can such a clock be accepted.
SELECT * FROM refusals('SELECT %s', 'snowflake_check()', 'snowflake_accept_clock()', 'snowflake_raise_mark(now())') \gx
SELECT reason, sqlstate, refused FROM idgen_refusals WHERE refused > 0;
DROP EXTENSION idgen;
