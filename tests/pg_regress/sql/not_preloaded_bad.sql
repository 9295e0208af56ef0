-- Without shared_preload_libraries, and with an invalid epoch in the configuration file: nothing is decoded with a
-- guessed epoch, nor with that of a session.
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
CREATE EXTENSION idgen;
\i `echo $PG_ABS_SRCDIR/refused.sql`
SELECT snowflake_time(0);
\echo :LAST_ERROR_SQLSTATE

-- A value given before the library is loaded does not count, be it a good one.
\c -
SET idgen.epoch = '2025-01-01T00:00:00Z';
SELECT snowflake_time(0);
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM refusals('SELECT %s', '* FROM snowflake_decode(0)', 'snowflake_min_id(now())') \gx
-- Functions that count from another epoch, or from none, work.
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
SELECT shard_of(11637205501278089), snowflake_time(0, '2025-01-01T00:00:00Z');

-- Minting says first that it needs the library from the start on.
\set VERBOSITY sqlstate
SELECT snowflake_next_id(5);
\set VERBOSITY default
DROP EXTENSION idgen;
