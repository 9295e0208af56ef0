-- Installing the portable edition: into which schema, with which epoch and which shards, and a second time.
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';

-- Without settings: into the schema that is first in the search_path, as CREATE EXTENSION does.
CREATE DATABASE plain;
\! ./install plain
\c plain
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
SELECT epoch, allowed_shards, max_ahead, max_wait, max_lease, shards_in_use, mark, warning FROM idgen_status;
SELECT shard_of(snowflake_next_id(0)), shard_of(snowflake_next_id(1023));
SELECT d.shard FROM snowflake_decode(snowflake_next_id_js(255), 'js53') AS d;
SELECT DISTINCT pronamespace::regnamespace AS "schema"
FROM pg_proc WHERE obj_description(oid, 'pg_proc') ~ 'Portable edition.$';

-- Nothing lacks a comment, no argument a name, and no PL/pgSQL function a search_path. (The helpers that the
-- planner inlines need none.)
SELECT pronamespace::regnamespace AS "schema", oid::regprocedure AS function
FROM pg_proc
WHERE pronamespace IN ('public'::regnamespace, 'idgen_portable'::regnamespace)
  AND (obj_description(oid, 'pg_proc') IS NULL OR pronargs > 0 AND '' = ANY (coalesce(proargnames, '{""}'))
       OR prolang <> (SELECT oid FROM pg_language WHERE lanname = 'sql')
          AND NOT coalesce(proconfig, '{}') @> '{"search_path=pg_catalog, pg_temp"}');
SELECT attname AS column_without_comment
FROM pg_attribute
WHERE attrelid = 'idgen_status'::regclass AND attnum > 0 AND col_description(attrelid, attnum) IS NULL;

-- Run again, it keeps the epoch and the registers with their values, and adds shards.
SELECT snowflake_next_id(7) AS id \gset
SELECT pg_sequence_last_value('idgen_portable.shard_7') AS register \gset
\! ./install plain idgen.allowed_shards=1000-1030,8191
SELECT pg_sequence_last_value('idgen_portable.shard_7') = :register AS kept, snowflake_next_id(7) > :id AS greater;
SELECT epoch, allowed_shards, max_ahead FROM idgen_status;
\! ./install plain idgen.max_ahead=2s
SELECT allowed_shards, max_ahead FROM idgen_status;
\! ./install plain
SELECT allowed_shards, max_ahead FROM idgen_status;
-- It does not give back a revoked right to mint: a missing function gets the privileges of an existing one.
CREATE ROLE regress_idgen_lends;
CREATE ROLE regress_idgen_borrows;
DROP FUNCTION snowflake_next_ids, idgen_portable.mint_many;
\! ./install plain
SELECT oid::regprocedure AS function, proacl FROM pg_proc WHERE proname IN ('snowflake_next_ids', 'mint_many')
ORDER BY 1;
DROP FUNCTION snowflake_next_ids, idgen_portable.mint_many;
REVOKE ALL ON FUNCTION snowflake_next_id(integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION snowflake_next_id(integer) TO regress_idgen_lends WITH GRANT OPTION;
GRANT EXECUTE ON FUNCTION snowflake_next_id(integer) TO regress_idgen_borrows;
\! ./install plain
SELECT oid::regprocedure AS function, proacl FROM pg_proc WHERE proname IN ('snowflake_next_ids', 'mint_many')
ORDER BY 1;
SET client_min_messages = warning;
DROP FUNCTION snowflake_next_id(integer) CASCADE;
RESET client_min_messages;
REVOKE ALL ON FUNCTION snowflake_next_id() FROM PUBLIC;
\! ./install plain
SELECT proacl FROM pg_proc WHERE oid = 'snowflake_next_id(integer)'::regprocedure;
GRANT EXECUTE ON FUNCTION snowflake_next_id() TO PUBLIC;
REVOKE ALL ON FUNCTION snowflake_next_id(integer), snowflake_next_ids, idgen_portable.mint_many
FROM regress_idgen_lends, regress_idgen_borrows;
GRANT EXECUTE ON FUNCTION snowflake_next_id(integer), snowflake_next_ids, idgen_portable.mint_many TO PUBLIC;
DROP ROLE regress_idgen_lends, regress_idgen_borrows;
-- The epoch cannot change; the same value may be given again.
\! ./install plain idgen.epoch=1735689600000
\! ./install plain idgen.epoch=2020-01-01T00:00:00Z
-- It is one statement, so the search_path is as before, inside a transaction and outside.
\! psql -X -q -A -t -1 -v ON_ERROR_STOP=1 -d plain -f idgen.sql -c "SHOW search_path"
\! psql -X -q -A -t -v ON_ERROR_STOP=1 -d plain -f idgen.sql -c "SHOW search_path"
-- The same schema is accepted.
CREATE SCHEMA elsewhere;
\! ./install plain search_path=elsewhere
-- So is the same owner.
CREATE ROLE regress_idgen_other LOGIN;
GRANT CREATE ON SCHEMA public TO regress_idgen_other;
\! PGUSER=regress_idgen_other ./install plain

-- A schema of one's own, and settings: an epoch as an integer, one shard.
\c regression
CREATE DATABASE settled;
\c settled
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
CREATE SCHEMA ids;
\! ./install settled search_path=ids idgen.epoch=1314220021721 idgen.allowed_shards=5 idgen.max_ahead=1min
SELECT epoch, allowed_shards, max_ahead FROM ids.idgen_status;
-- The id of Instagram's article.
SELECT * FROM ids.snowflake_decode(11637205501278089);
SELECT ids.shard_of(ids.snowflake_next_id(5));
-- A session decodes by that epoch, not by its own setting, and runs no further ahead.
SET idgen.epoch = '2025-01-01T00:00:00Z';
SET idgen.max_ahead = '1h';
SELECT ids.snowflake_time(0);
SELECT max_ahead FROM ids.idgen_status;

-- Schemas that CREATE EXTENSION would not accept either, and no schema.
CREATE SCHEMA "a$$b";
\! ./install settled 'search_path="a$$b"'
\! ./install settled search_path=pg_catalog
\! ./install settled search_path=nowhere

-- Invalid values are refused before anything is created. The messages are those of the settings.
\c regression
CREATE DATABASE refused;
\! ./install refused idgen.epoch=yesterday
\! ./install refused idgen.epoch=2025-01-01
\! ./install refused idgen.epoch=2025-01-01T00:00:00
\! ./install refused idgen.epoch=2025-02-29T00:00:00Z
\! ./install refused idgen.epoch=2025-01-01T00:00:00.0005Z
\! ./install refused idgen.epoch=1735689600000.5
\! ./install refused idgen.epoch=253402300800000
\! ./install refused idgen.allowed_shards=0-8192
\! ./install refused idgen.allowed_shards=10-9
\! ./install refused idgen.allowed_shards=1,,2
\! ./install refused idgen.max_ahead=61min
\! ./install refused idgen.max_ahead=soon
-- It is one statement even if the client makes no transaction of it.
\! PGOPTIONS="-c idgen.allowed_shards=none" psql -X -q -v SHOW_CONTEXT=never -v VERBOSITY=terse -d refused -f idgen.sql 2>&1 | sed 's/^[^ ]* //'
\c refused
SELECT count(*) FROM pg_proc WHERE proname ~ 'snowflake';
SELECT count(*) FROM pg_namespace WHERE nspname = 'idgen_portable';
-- These are valid.
\! ./install refused idgen.epoch=2025-01-01T00:00:00.123+05:30 idgen.allowed_shards=0-9,5,5
SELECT idgen_portable.epoch_ms(), allowed_shards FROM idgen_status;

-- The 2^40 ms since the epoch are over: old ids are decoded, and none is minted.
\c regression
CREATE DATABASE ended;
\! ./install ended idgen.epoch=1980-01-01T00:00:00Z idgen.allowed_shards=5
\c ended
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
\i in/refused.sql
SELECT * FROM refusals('SELECT %s', 'snowflake_next_id(5)', '* FROM snowflake_next_ids(5, 10)',
    'snowflake_next_id_js(5)', 'snowflake_last_id()') \gx
SELECT epoch, now_tick > 1099511627775 AS now_is_later, ahead_ms, shards_in_use, ends_at, years_left, warning
FROM idgen_status;
SELECT * FROM snowflake_decode(9223372036854775807);
SELECT shard_of(9223372036854775807), snowflake_max_id('infinity'),
       snowflake_max_id('2014-11-03T19:53:47.775Z'), snowflake_max_id(now());

-- The clock is before the epoch.
\c regression
CREATE DATABASE before;
\! ./install before idgen.epoch=2100-01-01T02:00:00+02:00 idgen.allowed_shards=5
\c before
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
\i in/refused.sql
SELECT * FROM refusals('SELECT snowflake_%s', 'next_id(5)', 'next_ids(5, 10)', 'next_id_js(5)', 'advance(5, 0)') \gx
SELECT epoch, now_tick, ahead_ms, shards_in_use, ends_at, years_left, warning FROM idgen_status \gx
SELECT snowflake_min_id('2100-01-01T00:00:00.001Z'), snowflake_min_id(now()), snowflake_max_id(now());

-- Functions of other roles are not replaced, because those roles would still own them.
\c regression
CREATE DATABASE occupied;
\c occupied
GRANT CREATE ON SCHEMA public TO regress_idgen_other;
SET ROLE regress_idgen_other;
CREATE FUNCTION shard_of(id bigint) RETURNS integer LANGUAGE sql IMMUTABLE STRICT RETURN 1;
CREATE VIEW idgen_status AS SELECT 1 AS n;
RESET ROLE;
\! ./install occupied
SELECT count(*) FROM pg_namespace WHERE nspname = 'idgen_portable';

\c regression
DROP DATABASE occupied;
DROP DATABASE plain;
DROP DATABASE settled;
DROP DATABASE refused;
DROP DATABASE ended;
DROP DATABASE before;
DROP ROLE regress_idgen_other;
