-- Refused calls are counted by their reason, whatever becomes of the error.
SELECT snowflake_stats_reset() \gset
\set VERBOSITY sqlstate
SELECT snowflake_next_id();
SELECT snowflake_next_id(NULL);
SELECT snowflake_next_ids(1, NULL);
SELECT snowflake_next_id_js(NULL);
SELECT snowflake_advance(1, NULL);
SELECT snowflake_next_id(8192);
SELECT snowflake_next_id_js(256);
SELECT snowflake_next_ids(1, -1);
SELECT snowflake_advance(1, snowflake_max_id(now() + '1 year'));
SELECT snowflake_next_ids(1, 2147483647);
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT snowflake_safe_horizon();
ROLLBACK;
-- 4096 in a second, and no call waits.
SET idgen.max_wait = 0;
SELECT count(snowflake_next_id_js(240)) FROM generate_series(1, 100000);
DO $$
BEGIN
    PERFORM snowflake_next_id_js(-1);
EXCEPTION WHEN invalid_parameter_value THEN
    NULL;
END $$;
-- Calls canceled while they wait do not count as refused. Nor do invalid arguments of functions that decode, or
-- invalid settings.
SET idgen.max_wait = '1h';
SET statement_timeout = '300ms';
SELECT count(snowflake_next_id_js(240)) FROM generate_series(1, 100000);
RESET statement_timeout;
RESET idgen.max_wait;
SELECT snowflake_from_text('x');
SET idgen.shard = -2;
\set VERBOSITY default
SELECT reason, sqlstate, refused, stats_reset = (SELECT stats_reset FROM idgen_shard_stats LIMIT 1) AS stats_reset
FROM idgen_refusals;
SELECT snowflake_stats_reset() \gset
SELECT reason FROM idgen_refusals WHERE refused > 0;
