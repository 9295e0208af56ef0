-- The configuration file has invalid settings: the server runs, and no id is minted by a guess.
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
CREATE EXTENSION idgen;

-- The server has logged it at its start.
WITH log AS (
    SELECT * FROM regexp_split_to_table(pg_read_file('server.log'), '\n') WITH ORDINALITY AS log (line, n)
)
SELECT line
FROM log
WHERE line ~ '^(WARNING|DETAIL|HINT)' AND n < (SELECT min(n) FROM log WHERE line ~ 'ready to accept')
ORDER BY n;

SELECT snowflake_next_id(5);
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_check();
\echo :LAST_ERROR_SQLSTATE
SELECT epoch, now_tick, ahead_ms, shards_in_use, ends_at, years_left, warning FROM idgen_status;

-- Nothing that depends on the epoch is guessed; everything else works.
SELECT * FROM snowflake_decode(11637205501278089);
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_time(11637205501278089);
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_min_id('2025-01-01T00:00:00Z');
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_make_id('2025-01-01T00:00:00Z', 1, 1);
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM snowflake_decode(11637205501278089, 'idgen');
\echo :LAST_ERROR_SQLSTATE
SELECT shard_of(11637205501278089), snowflake_time(11637205501278089, '2025-01-01T00:00:00Z');
SELECT * FROM snowflake_decode(11637205501278089, 'instagram');
SELECT name, epoch FROM snowflake_layouts WHERE epoch IS NULL;

-- The list of shards does not mean "all" either.
SELECT * FROM snowflake_next_ids(5, 10);
\echo :LAST_ERROR_SQLSTATE

-- Once the list is right, only the epoch is reported.
ALTER SYSTEM SET idgen.allowed_shards = '0-9';
SELECT pg_reload_conf();
\c -
SELECT * FROM snowflake_next_ids(5, 10);
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM snowflake_next_ids(10, 10);
\echo :LAST_ERROR_SQLSTATE
SELECT reason, sqlstate FROM idgen_refusals WHERE refused > 0;
DROP EXTENSION idgen;
