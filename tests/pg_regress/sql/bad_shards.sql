-- The configuration file gives idgen.allowed_shards wrongly, and nothing else: it is not taken for "all".
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
CREATE EXTENSION idgen;

-- The server log has said so at the start, and the status view says it.
WITH log AS (
    SELECT * FROM regexp_split_to_table(pg_read_file('server.log'), '\n') WITH ORDINALITY AS log (line, n)
)
SELECT line
FROM log
WHERE line ~ '^(WARNING|DETAIL|HINT)' AND n < (SELECT min(n) FROM log WHERE line ~ 'ready to accept')
ORDER BY n;
SELECT epoch, now_tick > 0 AS now_tick, ahead_ms, shards_in_use, mark, allowed_shards, warning
FROM idgen_status;

SELECT snowflake_next_id(5);
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM snowflake_next_ids(5, 10);
\echo :LAST_ERROR_SQLSTATE
SET idgen.shard = 5;
SELECT snowflake_next_id();
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_check();
\echo :LAST_ERROR_SQLSTATE
-- The epoch is right: ids are taken apart.
SELECT * FROM snowflake_decode(11637205501278089);

-- A right list and a reload are enough.
ALTER SYSTEM SET idgen.allowed_shards = '0-9';
SELECT pg_reload_conf();
\c -
SELECT allowed_shards, warning FROM idgen_status;
SELECT shard_of(snowflake_next_id(5)), snowflake_check() > now() AS minting;
SELECT snowflake_next_id(10);
\echo :LAST_ERROR_SQLSTATE
SELECT reason, sqlstate FROM idgen_refusals WHERE refused > 0;
DROP EXTENSION idgen;
