-- The configuration file has an invalid idgen.allowed_shards and nothing else invalid: it does not mean "all".
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
CREATE EXTENSION idgen;
\i `echo $PG_ABS_SRCDIR/refused.sql`

-- The server has logged it at its start, and the status view shows it.
WITH log AS (
    SELECT * FROM regexp_split_to_table(pg_read_file('server.log'), '\n') WITH ORDINALITY AS log (line, n)
)
SELECT line
FROM log
WHERE line ~ '^(WARNING|DETAIL|HINT)' AND n < (SELECT min(n) FROM log WHERE line ~ 'ready to accept')
ORDER BY n;
SELECT epoch, now_tick > 0 AS now_tick, ahead_ms, shards_in_use, mark, allowed_shards, warning
FROM idgen_status;

SET idgen.shard = 5;
SELECT * FROM refusals('SELECT %s', 'snowflake_next_id(5)', '* FROM snowflake_next_ids(5, 10)',
    'snowflake_next_id()', 'snowflake_check()') \gx
-- The epoch is right: ids are decoded.
SELECT * FROM snowflake_decode(11637205501278089);

-- A valid list and a reload are enough.
ALTER SYSTEM SET idgen.allowed_shards = '0-9';
SELECT pg_reload_conf() \gset
\c -
SELECT allowed_shards, warning FROM idgen_status;
SELECT shard_of(snowflake_next_id(5)), snowflake_check() > now() AS minting;
SELECT snowflake_next_id(10);
\echo :LAST_ERROR_SQLSTATE
SELECT reason, sqlstate FROM idgen_refusals WHERE refused > 0;
DROP EXTENSION idgen;
