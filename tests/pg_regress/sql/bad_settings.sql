-- The configuration file has invalid settings: the server runs, and no id is minted by a guess.
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

SELECT * FROM refusals('SELECT %s', 'snowflake_next_id(5)', 'snowflake_check()') \gx
SELECT epoch, now_tick, ahead_ms, shards_in_use, ends_at, years_left, warning FROM idgen_status;

-- Nothing that depends on the epoch is guessed; everything else works.
SELECT * FROM refusals('SELECT %s', '* FROM snowflake_decode(11637205501278089)',
    'snowflake_time(11637205501278089)', 'snowflake_min_id(now())', 'snowflake_make_id(now(), 1, 1)',
    '* FROM snowflake_decode(11637205501278089, ''idgen'')') \gx
SELECT shard_of(11637205501278089), snowflake_time(11637205501278089, '2025-01-01T00:00:00Z');
SELECT * FROM snowflake_decode(11637205501278089, 'instagram');
SELECT name, epoch FROM snowflake_layouts WHERE epoch IS NULL;

-- The list of shards does not mean "all" either.
SELECT * FROM snowflake_next_ids(5, 10);
\echo :LAST_ERROR_SQLSTATE

-- Once the list is right, only the epoch is reported.
ALTER SYSTEM SET idgen.allowed_shards = '0-9';
SELECT pg_reload_conf() \gset
\c -
SELECT * FROM refusals('SELECT * FROM snowflake_next_ids(%s)', '5, 10', '10, 10') \gx
SELECT reason, sqlstate FROM idgen_refusals WHERE refused > 0;
DROP EXTENSION idgen;
