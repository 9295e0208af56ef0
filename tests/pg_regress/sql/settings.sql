-- The settings: their properties, the values they refuse, and when they take effect.
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';

-- All settings and their defaults. The test server sets only the epoch.
SELECT name, vartype AS type, context, unit, min_val AS min, max_val AS max, boot_val AS "default"
FROM pg_settings WHERE name LIKE 'idgen.%' ORDER BY name COLLATE "C";
SELECT name FROM pg_settings WHERE name LIKE 'idgen.%' AND coalesce(short_desc, '') = '';
SHOW idgen.epoch;

-- The status view shows the values in effect.
SET idgen.shard = 12;
SET idgen.max_wait = '2min';
SET idgen.max_lease = 3;
SELECT epoch, ends_at, shard, allowed_shards, max_ahead, max_wait, max_lease, reserve_ahead, max_clock_jump,
       warning
FROM idgen_status;
RESET ALL;
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
SELECT shard, max_wait, max_lease FROM idgen_status;
SELECT count(*) AS rows,
       bool_and(abs(now_tick - 1000 * extract(epoch FROM clock_timestamp() - epoch)) < 60000) AS now_tick,
       bool_and(abs(years_left - extract(epoch FROM ends_at - now()) / 86400 / 365.25) < 0.01) AS years_left
FROM idgen_status;

-- Numbers out of range are refused, and the old value stays. (The messages are PostgreSQL's own and differ between
-- versions.)
\set VERBOSITY sqlstate
SET idgen.shard = 8192;
SET idgen.shard = -2;
SET idgen.shard = 'seven';
SET idgen.max_lease = 0;
SET idgen.max_lease = 1025;
SET idgen.max_wait = -1;
SET idgen.max_wait = '61min';
ALTER SYSTEM SET idgen.max_ahead = -1;
ALTER SYSTEM SET idgen.max_ahead = '3601s';
ALTER SYSTEM SET idgen.reserve_ahead = 9;
ALTER SYSTEM SET idgen.reserve_ahead = '3001ms';
ALTER SYSTEM SET idgen.max_clock_jump = -2;
ALTER SYSTEM SET idgen.max_clock_jump = '25d';
SELECT shard, max_ahead, max_wait, max_lease, reserve_ahead, max_clock_jump FROM idgen_status;

-- A session cannot change a setting of the whole server, and the epoch cannot change while the server runs.
SET idgen.max_ahead = '2s';
SET idgen.reserve_ahead = '2s';
SET idgen.max_clock_jump = -1;
SET idgen.allowed_shards = '1';
SET idgen.epoch = '2020-01-01T00:00:00Z';
ALTER DATABASE regression SET idgen.epoch = '2020-01-01T00:00:00Z';
ALTER ROLE postgres SET idgen.allowed_shards = '1';
ALTER ROLE postgres SET idgen.max_clock_jump = -1;

-- A misspelt name is refused, not stored and ignored.
SET idgen.shards = 5;
\set VERBOSITY default

-- An epoch that is neither RFC 3339 nor whole milliseconds is refused, with a DETAIL of the error and a HINT about
-- the correct form.
ALTER SYSTEM SET idgen.epoch = 'yesterday';
\echo :LAST_ERROR_SQLSTATE
ALTER SYSTEM SET idgen.epoch = '';
\echo :LAST_ERROR_SQLSTATE
ALTER SYSTEM SET idgen.epoch = '2025-01-01';
\echo :LAST_ERROR_SQLSTATE
-- Without a time zone it would mean something else on each server.
ALTER SYSTEM SET idgen.epoch = '2025-01-01T00:00:00';
\echo :LAST_ERROR_SQLSTATE
ALTER SYSTEM SET idgen.epoch = '2025-02-29T00:00:00Z';
\echo :LAST_ERROR_SQLSTATE
ALTER SYSTEM SET idgen.epoch = '2025-01-01T00:00:00.0005Z';
\echo :LAST_ERROR_SQLSTATE
ALTER SYSTEM SET idgen.epoch = '1735689600000.5';
\echo :LAST_ERROR_SQLSTATE
ALTER SYSTEM SET idgen.epoch = '253402300800000';
\echo :LAST_ERROR_SQLSTATE
ALTER SYSTEM SET idgen.epoch = '9223372036854775808';
ALTER SYSTEM SET idgen.epoch = '1735689600';
\echo :LAST_ERROR_SQLSTATE

-- These are valid. They take effect at the next start: the running server keeps its epoch.
ALTER SYSTEM SET idgen.epoch = '2025-01-01T00:00:00.123+05:30';
ALTER SYSTEM SET idgen.epoch = '-1';
ALTER SYSTEM SET idgen.epoch = '1314220021721';
SELECT pg_reload_conf() \gset
\c -
SHOW idgen.epoch;
SELECT name, pending_restart FROM pg_settings WHERE name = 'idgen.epoch';
ALTER SYSTEM RESET idgen.epoch;
SELECT pg_reload_conf() \gset

-- Lists of shards: each entry is checked, and the first wrong one named.
ALTER SYSTEM SET idgen.allowed_shards = '0-8192';
\echo :LAST_ERROR_SQLSTATE
ALTER SYSTEM SET idgen.allowed_shards = '5, seven';
\echo :LAST_ERROR_SQLSTATE
ALTER SYSTEM SET idgen.allowed_shards = '10-9';
\echo :LAST_ERROR_SQLSTATE
ALTER SYSTEM SET idgen.allowed_shards = '1,,2';
\echo :LAST_ERROR_SQLSTATE
ALTER SYSTEM SET idgen.allowed_shards = '-5';
\echo :LAST_ERROR_SQLSTATE
ALTER SYSTEM SET idgen.allowed_shards = '1-2-3';
\echo :LAST_ERROR_SQLSTATE

-- An existing session obeys a reload, and may not continue with ids that it has leased.
SELECT count(*) FROM (SELECT snowflake_next_id(400) FROM generate_series(1, 1000)) AS busy;
ALTER SYSTEM SET idgen.allowed_shards = ' 0 - 9 , 8191,5,5 ';
SELECT pg_reload_conf() \gset
-- It does so between two statements, so wait in many short ones.
\set ECHO none
\o /dev/null
SELECT 'SELECT pg_sleep(0.01) WHERE current_setting(''idgen.allowed_shards'') = '''''
FROM generate_series(1, 1000) \gexec
\o
\set ECHO all
SELECT allowed_shards FROM idgen_status;
SELECT snowflake_next_id(400);
\echo :LAST_ERROR_SQLSTATE
SELECT shard, shard_of(snowflake_next_id(shard)) = shard AS minted
FROM unnest(ARRAY[0, 5, 9, 8191]) AS shard;

-- A shard is set for a session, for a database, for a role; each later one wins.
ALTER SYSTEM RESET idgen.allowed_shards;
ALTER DATABASE regression SET idgen.shard = 401;
SELECT pg_reload_conf() \gset
\c -
SELECT shard_of(snowflake_next_id());
ALTER ROLE postgres SET idgen.shard = 402;
\c -
SELECT shard_of(snowflake_next_id());
SET idgen.shard = 403;
SELECT shard_of(snowflake_next_id());
BEGIN;
SET LOCAL idgen.shard = 0;
SELECT shard_of(snowflake_next_id());
COMMIT;
SELECT shard_of(snowflake_next_id());
SET idgen.shard = -1;
SELECT snowflake_next_id();
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY sqlstate
ALTER ROLE postgres SET idgen.shard = 8192;
\set VERBOSITY default
ALTER ROLE postgres RESET idgen.shard;
ALTER DATABASE regression RESET idgen.shard;
\c -
SHOW idgen.shard;

-- A function may carry its shard.
CREATE FUNCTION next_user_id() RETURNS bigint LANGUAGE sql SET idgen.shard = 404
    RETURN snowflake_next_id();
SELECT shard_of(next_user_id());
SHOW idgen.shard;
DROP FUNCTION next_user_id;

-- idgen.max_ahead = 0: no id is later than the clock, not even in a burst.
ALTER SYSTEM SET idgen.max_ahead = 0;
SELECT pg_reload_conf() \gset
\c -
SELECT count(*) AS ids, count(DISTINCT id) AS different,
       count(*) FILTER (WHERE snowflake_time(id) > clock_timestamp()) AS later_than_the_clock
FROM snowflake_next_ids(405, 20000) AS id;
SELECT waits > 0 AND waited_ms >= 10 AS waited FROM idgen_shard_stats WHERE shard = 405;
ALTER SYSTEM RESET idgen.max_ahead;

-- How far the mark is written ahead, and how far the clock may jump, follow a reload too. Their ends, and
-- their units.
ALTER SYSTEM SET idgen.reserve_ahead = 10;
ALTER SYSTEM SET idgen.max_clock_jump = '10min';
SELECT pg_reload_conf() \gset
\c -
SELECT reserve_ahead, max_clock_jump FROM idgen_status;
SELECT count(*) AS ids, count(DISTINCT id) AS different FROM snowflake_next_ids(406, 100000) AS id;
ALTER SYSTEM SET idgen.reserve_ahead = '3s';
ALTER SYSTEM SET idgen.max_clock_jump = '24d';
SELECT pg_reload_conf() \gset
\c -
SELECT reserve_ahead, max_clock_jump FROM idgen_status;
-- A longer window is written from the next renewal on, which comes when the last one is used up.
SELECT pg_sleep(2.5) \gset
SELECT renewals AS renewals_before FROM idgen_status \gset
SELECT snowflake_next_id(406) AS id \gset
SELECT reserve_ahead, mark - (:id >> 23) BETWEEN 1500 AND 3000 AS by_three_seconds,
       renewals - :renewals_before AS renewals
FROM idgen_status;
ALTER SYSTEM SET idgen.max_clock_jump = -1;
SELECT pg_reload_conf() \gset
\c -
SELECT max_clock_jump FROM idgen_status;
ALTER SYSTEM RESET idgen.reserve_ahead;
ALTER SYSTEM RESET idgen.max_clock_jump;
SELECT pg_reload_conf() \gset
\c -
SELECT max_ahead, reserve_ahead, max_clock_jump FROM idgen_status;
SELECT count(*) AS left_behind FROM pg_file_settings WHERE sourcefile ~ 'postgresql.auto.conf';
