-- Without shared_preload_libraries, and the configuration file gives the epoch wrongly: nothing is decoded
-- by a guess, nor by what a session says.
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
CREATE EXTENSION idgen;
SELECT snowflake_time(0);
\echo :LAST_ERROR_SQLSTATE

-- A value given before the library is loaded does not count, be it a good one.
\c -
SET idgen.epoch = '2025-01-01T00:00:00Z';
SELECT snowflake_time(0);
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM snowflake_decode(0);
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_min_id(now());
\echo :LAST_ERROR_SQLSTATE
-- What counts from another epoch, or from none, works.
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
SELECT shard_of(11637205501278089), snowflake_time(0, '2025-01-01T00:00:00Z');

-- Minting says first that it needs the library from the start on.
SELECT snowflake_next_id(5);
\echo :LAST_ERROR_SQLSTATE
DROP EXTENSION idgen;
