-- Privileges. Objects of others that hide a name are in hostile.sql.
CREATE ROLE regress_idgen_user;
CREATE ROLE regress_idgen_watcher IN ROLE pg_monitor;
CREATE DATABASE regress_idgen_bare;
CREATE SCHEMA closed;
CREATE TABLE closed.photos (id bigint DEFAULT snowflake_next_id(500));
CREATE FUNCTION state_of(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
    RETURN 'allowed';
EXCEPTION WHEN OTHERS THEN
    RETURN sqlstate;
END $$;

-- Every role may mint, decode, and read the status.
SET ROLE regress_idgen_user;
SELECT shard_of(snowflake_next_id(500)), (SELECT count(*) FROM snowflake_next_ids(500, 3)) AS batch,
       snowflake_last_id() > 0 AS last_id;
SET idgen.shard = 501;
SELECT shard_of(snowflake_next_id());
RESET idgen.shard;
SELECT snowflake_decode(snowflake_next_id_js(50), 'js53') IS NULL AS js,
       snowflake_safe_horizon() > 0 AS horizon;
SELECT "table" FROM idgen_columns;
SELECT object FROM idgen_dependents;
SET idgen.max_wait = '1s';
SET idgen.max_lease = 10;
RESET idgen.max_wait;
RESET idgen.max_lease;
SELECT shard, sequence FROM snowflake_decode(11637205501278089);
SELECT shard, sequence FROM snowflake_decode(11637205501278089, 'instagram');
SELECT name FROM snowflake_layouts LIMIT 1;
SELECT snowflake_from_shortcode(snowflake_shortcode(1)), snowflake_from_text(snowflake_text(1)),
       snowflake_unscatter(snowflake_scatter(1));
SELECT shard_of(11637205501278089), snowflake_time(0) = snowflake_time(0, '2025-01-01T00:00:00Z') AS time,
       snowflake_min_id('2025-01-01T00:00:00Z'), snowflake_max_id('2025-01-01T00:00:00Z'),
       snowflake_between(0, '-infinity', 'infinity'), snowflake_make_id('2025-01-01T00:00:00Z', 1, 1);
SELECT warning FROM idgen_status;

-- The counters show the work of others: only pg_monitor may use the view and the function.
\set VERBOSITY terse
SELECT * FROM idgen_shard_stats;
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM idgen_shard_stats();
\echo :LAST_ERROR_SQLSTATE
-- Nor may anybody move a shard's ids on, or reset the counters.
SELECT snowflake_advance(500, 0);
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_stats_reset();
\echo :LAST_ERROR_SQLSTATE
-- Nor remove the mark.
SELECT snowflake_remove_mark();
\echo :LAST_ERROR_SQLSTATE
-- Nor accept the clock, nor make the server renew the mark without an id.
SELECT snowflake_accept_clock();
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_check();
\echo :LAST_ERROR_SQLSTATE
-- Nor give another shard to tables of others, wherever they are.
SELECT snowflake_assign_shard('closed', 5);
\echo :LAST_ERROR_SQLSTATE
-- Settings of the whole server are for superusers, and cannot be changed for a session, role or database.
ALTER SYSTEM SET idgen.allowed_shards = '1';
\echo :LAST_ERROR_SQLSTATE
SELECT name, refused.* FROM pg_settings, state_of(format('SET %s = %L', name, setting)) AS refused
WHERE name LIKE 'idgen.%' ORDER BY name;
SELECT name, refused.*
FROM pg_settings, state_of(format('ALTER ROLE CURRENT_USER SET %s = %L', name, setting)) AS refused
WHERE name LIKE 'idgen.%' ORDER BY name;
-- The extension itself is its owner's. It is trusted: to create it takes the right to create objects in the database.
-- What more there is to that is in trusted.sql.
\set VERBOSITY sqlstate
DROP EXTENSION idgen;
ALTER EXTENSION idgen UPDATE;
CREATE OR REPLACE FUNCTION shard_of(id bigint) RETURNS integer LANGUAGE sql IMMUTABLE STRICT RETURN 0;
ALTER FUNCTION shard_of(bigint) COST 1;
CREATE OR REPLACE VIEW idgen_status AS SELECT 1;
CREATE FUNCTION pg_temp.of_mine(integer) RETURNS bigint AS 'idgen', 'snowflake_advance_wrapper' LANGUAGE C;
\c regress_idgen_bare
SET ROLE regress_idgen_user;
\set VERBOSITY default
CREATE EXTENSION idgen;
RESET ROLE;
SELECT superuser, trusted, relocatable
FROM pg_available_extension_versions AS v JOIN pg_available_extensions AS e USING (name)
WHERE name = 'idgen' AND v.version = e.default_version;
\c regression
DROP DATABASE regress_idgen_bare;
DROP TABLE closed.photos;
DROP SCHEMA closed;
DROP FUNCTION state_of;
SET ROLE regress_idgen_watcher;
SELECT shard, ids > 0 AS ids FROM idgen_shard_stats WHERE shard IN (500, 501) ORDER BY shard;
SELECT count(*) > 0 AS rows FROM idgen_shard_stats();
SELECT snowflake_check() > now() AS minting;
-- To watch is not to move on or to reset; that takes a grant of its own.
\set VERBOSITY terse
SELECT snowflake_advance(500, 0);
SELECT snowflake_stats_reset();
\set VERBOSITY default
RESET ROLE;
GRANT EXECUTE ON FUNCTION snowflake_advance, snowflake_stats_reset TO regress_idgen_user;
SET ROLE regress_idgen_user;
SELECT shard_of(snowflake_advance(500, 0)) AS advanced;
SELECT snowflake_stats_reset();
RESET ROLE;
REVOKE EXECUTE ON FUNCTION snowflake_advance, snowflake_stats_reset FROM regress_idgen_user;

-- To remove the mark takes a superuser, whatever is granted, and a server that does not mint.
GRANT EXECUTE ON FUNCTION snowflake_remove_mark TO regress_idgen_user;
SET ROLE regress_idgen_user;
SELECT snowflake_remove_mark();
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
REVOKE EXECUTE ON FUNCTION snowflake_remove_mark FROM regress_idgen_user;
SELECT snowflake_remove_mark();
\echo :LAST_ERROR_SQLSTATE

-- So does another epoch.
GRANT EXECUTE ON FUNCTION snowflake_accept_epoch TO regress_idgen_user;
SET ROLE regress_idgen_user;
SELECT snowflake_accept_epoch(epoch) FROM idgen_status;
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
REVOKE EXECUTE ON FUNCTION snowflake_accept_epoch FROM regress_idgen_user;
SELECT snowflake_accept_epoch(epoch), snowflake_accept_epoch(NULL) FROM idgen_status;
SELECT snowflake_accept_epoch('infinity');
\echo :LAST_ERROR_SQLSTATE

-- And a clock that has leapt. This one has not.
GRANT EXECUTE ON FUNCTION snowflake_accept_clock TO regress_idgen_user;
SET ROLE regress_idgen_user;
SELECT snowflake_accept_clock();
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
REVOKE EXECUTE ON FUNCTION snowflake_accept_clock FROM regress_idgen_user;
SELECT snowflake_accept_clock() = '0' AS nothing_to_accept;


-- All grants there are, "-" being PUBLIC. A function without a list is everybody's to call.
SELECT objid::regprocedure AS function, acl.grantee::regrole::text, acl.privilege_type
FROM pg_depend JOIN pg_proc AS p ON p.oid = objid, aclexplode(proacl) AS acl
WHERE classid = 'pg_proc'::regclass AND deptype = 'e'
  AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idgen')
ORDER BY 1, 2, 3;
SELECT objid::regclass AS view, acl.grantee::regrole::text,
       string_agg(acl.privilege_type, ', ' ORDER BY acl.privilege_type) AS privileges
FROM pg_depend JOIN pg_class AS c ON c.oid = objid, aclexplode(relacl) AS acl
WHERE classid = 'pg_class'::regclass AND deptype = 'e' AND acl.grantee <> c.relowner
  AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idgen')
GROUP BY 1, 2 ORDER BY 1, 2;

-- The extension works in any schema, even one that is not in the search_path, and leaves nothing behind.
DROP EXTENSION idgen;
CREATE SCHEMA ids;
CREATE EXTENSION idgen SCHEMA ids;
SELECT ids.shard_of(ids.snowflake_next_id(502)),
       ids.snowflake_between(0, '2025-01-01T00:00:00Z', 'infinity') AS between;
SELECT shard, max_lease FROM ids.idgen_status;
SELECT shard FROM ids.idgen_shard_stats WHERE shard = 502;
DROP EXTENSION idgen;
SELECT count(*) AS left_behind FROM pg_proc WHERE pronamespace = 'ids'::regnamespace;
DROP SCHEMA ids;
CREATE EXTENSION idgen;

DROP ROLE regress_idgen_user, regress_idgen_watcher;
