-- Without shared_preload_libraries, functions that need no shared memory work, and all others say what to do.
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';

SHOW shared_preload_libraries;
CREATE EXTENSION idgen;
\i `echo $PG_ABS_SRCDIR/refused.sql`

-- The pure functions work, by the epoch in the configuration file. The id is the one of Instagram's
-- article, and the epoch Instagram's.
SELECT * FROM snowflake_decode(11637205501278089);
SELECT shard_of(11637205501278089), snowflake_time(11637205501278089),
       snowflake_time(11637205501278089, '2025-01-01T00:00:00Z') AS since_2025;
SELECT snowflake_make_id('2011-09-09T22:28:04.721Z', 1341, 905) AS golden,
       snowflake_min_id('2011-08-24T21:07:01.721Z'), snowflake_max_id('2011-08-24T21:07:01.721Z'),
       snowflake_between(11637205501278089, '2011-09-09', '2011-09-10'),
       snowflake_min_id('2011-08-24T21:07:01.720Z') AS earlier, snowflake_max_id('2011-08-24T21:07:01.720Z') AS earlier;
SELECT own.created_at = named.created_at AS same, (SELECT count(*) FROM snowflake_layouts) AS layouts,
       snowflake_from_shortcode(snowflake_shortcode(1)), snowflake_from_text(snowflake_text(1)),
       snowflake_unscatter(snowflake_scatter(1))
FROM snowflake_decode(11637205501278089, 'idgen') AS own,
     snowflake_decode(11637205501278089, 'instagram') AS named;
SELECT snowflake_make_id('2011-08-24T21:07:01.720Z', 0, 0);
\echo :LAST_ERROR_SQLSTATE
SHOW idgen.epoch;

-- All that mints or watches needs the library from the start on, from PostgreSQL 17 on because of the epoch. Without a
-- shard that is said first, too.
\set VERBOSITY sqlstate
SELECT snowflake_next_id();
\set VERBOSITY default
SET idgen.shard = 5;
SELECT cases, state, left(message, 53) AS message, left(hint, 80) AS hint
FROM refusals('SELECT %s', 'snowflake_next_id(5)', 'snowflake_next_id()',
    '* FROM snowflake_next_ids(5, 10)', '* FROM snowflake_next_ids(5, 0)', 'snowflake_advance(5, 0)',
    '* FROM idgen_status', '* FROM idgen_shard_stats', 'snowflake_next_id_js(5)', 'snowflake_stats_reset()',
    'snowflake_check()', 'snowflake_accept_clock()', 'snowflake_close_shard(5)', 'snowflake_reopen_shard(5)',
    'snowflake_raise_mark(now())') \gx
-- Wrong arguments are said to be wrong first.
SELECT * FROM refusals('SELECT snowflake_next_id(%s)', '8192', 'NULL');
-- No id was minted, so there is no last one.
SELECT snowflake_last_id();
\echo :LAST_ERROR_SQLSTATE

-- But the mark is removed then and only then. Here no id was ever minted, and none is there.
SELECT snowflake_remove_mark() AS removed;
BEGIN READ ONLY;
SELECT snowflake_remove_mark() AS removed;
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;

-- A session decodes by the server's epoch, not by one of its own.
SET idgen.epoch = '2025-01-01T00:00:00Z';
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_time(0);

-- The views in a session in which nothing has loaded the library yet.
\c -
\set VERBOSITY sqlstate
SELECT * FROM idgen_status;
\set VERBOSITY default
\c -
\set VERBOSITY sqlstate
SELECT * FROM idgen_shard_stats;
\set VERBOSITY default

-- An ordinary role may create the extension here too, with the functions that work here.
CREATE ROLE regress_idgen_owner;
CREATE DATABASE regress_idgen_owned OWNER regress_idgen_owner;
\c regress_idgen_owned
SET ROLE regress_idgen_owner;
CREATE SCHEMA ids;
CREATE EXTENSION idgen SCHEMA ids;
SELECT ids.shard_of(11637205501278089), ids.snowflake_min_id('2011-08-24T21:07:01.721Z');
CREATE TABLE users (id bigint PRIMARY KEY DEFAULT ids.snowflake_next_id(5));
\set VERBOSITY sqlstate
INSERT INTO users DEFAULT VALUES;
\set VERBOSITY default
SELECT ids.snowflake_remove_mark();
\echo :LAST_ERROR_SQLSTATE
\c regression
DROP DATABASE regress_idgen_owned;
DROP ROLE regress_idgen_owner;

-- A value given before the library is loaded does not count either.
\c -
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
SET idgen.epoch = '2025-01-01T00:00:00Z';
SELECT snowflake_time(0);
SHOW idgen.epoch;
-- nor does one that is none at all.
\c -
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
SET idgen.epoch = 'yesterday';
SELECT snowflake_time(0);
SHOW idgen.epoch;

-- A value of the database hides the one of the configuration file from the library. Neither it nor the
-- default is taken for the epoch: nothing is decoded by a guess.
\c -
SELECT current_database() AS db \gset
ALTER DATABASE :"db" SET idgen.epoch = '2024-01-01T00:00:00Z';
\c -
SELECT snowflake_time(0);
SELECT shard_of(0);
\c -
ALTER DATABASE :"db" RESET idgen.epoch;
\c -
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
SELECT snowflake_time(0);

DROP EXTENSION idgen;
