-- Privileges. Objects of others that hide a name are in hostile.sql.
CREATE ROLE regress_idgen_user;
CREATE ROLE regress_idgen_watcher IN ROLE pg_monitor;
CREATE DATABASE regress_idgen_bare;
CREATE SCHEMA closed;
CREATE TABLE closed.photos (id bigint DEFAULT snowflake_next_id(500));
\i `echo $PG_ABS_SRCDIR/refused.sql`

-- Every role may mint, decode, and read the status.
SET ROLE regress_idgen_user;
SELECT shard_of(snowflake_next_id(500)), (SELECT count(*) FROM snowflake_next_ids(500, 3)) AS batch,
       snowflake_last_id() > 0 AS last_id;
SET idgen.shard = 501;
SELECT shard_of(snowflake_next_id());
RESET idgen.shard;
SELECT snowflake_decode(snowflake_next_id_js(50), 'js53') IS NULL AS js,
       snowflake_safe_horizon() > 0 AS horizon;
SET idgen.max_wait = '1s';
SET idgen.max_lease = 10;
RESET idgen.max_wait;
RESET idgen.max_lease;
SELECT own.shard, own.sequence, named.shard, named.sequence
FROM snowflake_decode(11637205501278089) AS own, snowflake_decode(11637205501278089, 'instagram') AS named;
SELECT snowflake_from_shortcode(snowflake_shortcode(1)), snowflake_from_text(snowflake_text(1)),
       snowflake_unscatter(snowflake_scatter(1));
SELECT shard_of(11637205501278089), snowflake_time(0) = snowflake_time(0, '2025-01-01T00:00:00Z') AS time,
       snowflake_min_id('2025-01-01T00:00:00Z'), snowflake_max_id('2025-01-01T00:00:00Z'),
       snowflake_between(0, '-infinity', 'infinity'), snowflake_make_id('2025-01-01T00:00:00Z', 1, 1);
SELECT columns."table", dependents.object, layouts.name, status.warning
FROM idgen_columns AS columns, idgen_dependents AS dependents, idgen_status AS status, snowflake_layouts AS layouts
WHERE layouts.name = 'idgen';

SELECT cases, state, message FROM refusals('SELECT %s',
    -- The counters show the work of others: only pg_monitor may use the view and the function.
    '* FROM idgen_shard_stats', '* FROM idgen_shard_stats()',
    -- Nor may anybody move a shard's ids on, or reset the counters,
    'snowflake_advance(500, 0)', 'snowflake_stats_reset()',
    -- remove the mark, raise it, accept the clock, make the server renew the mark without an id,
    'snowflake_remove_mark()', 'snowflake_raise_mark(now())', 'snowflake_accept_clock()', 'snowflake_check()',
    -- close a shard, reopen it,
    'snowflake_close_shard(500)', 'snowflake_reopen_shard(500)',
    -- or give another shard to tables of others, wherever they are.
    $$snowflake_assign_shard('closed', 5)$$);
-- Settings of the whole server are for superusers, and cannot be changed for a session, role or database.
\set VERBOSITY terse
ALTER SYSTEM SET idgen.allowed_shards = '1';
\echo :LAST_ERROR_SQLSTATE
SELECT name, coalesce(session.state, 'allowed') AS session, coalesce(role.state, 'allowed') AS role
FROM pg_settings, refused(format('SET %s = %L', name, setting)) AS session,
     refused(format('ALTER ROLE CURRENT_USER SET %s = %L', name, setting)) AS role
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

-- To remove the mark or raise it, to accept another epoch or a clock that has jumped, and to close or reopen a shard takes
-- a superuser, whatever is granted.
GRANT EXECUTE ON FUNCTION snowflake_remove_mark, snowflake_accept_epoch, snowflake_accept_clock, snowflake_raise_mark,
    snowflake_close_shard, snowflake_reopen_shard TO regress_idgen_user;
SET ROLE regress_idgen_user;
SELECT * FROM refusals('SELECT snowflake_%s', 'remove_mark()', 'accept_epoch(epoch) FROM idgen_status',
    'accept_clock()', 'raise_mark(now())', 'close_shard(500)', 'reopen_shard(500)') \gx
RESET ROLE;
REVOKE EXECUTE ON FUNCTION snowflake_remove_mark, snowflake_accept_epoch, snowflake_accept_clock, snowflake_raise_mark,
    snowflake_close_shard, snowflake_reopen_shard FROM regress_idgen_user;
-- The mark is not removed while the server mints, and only the epoch in effect can be accepted. This clock has not jumped.
SELECT * FROM refusals('SELECT snowflake_%s', 'remove_mark()', 'accept_epoch(''infinity'')') \gx
SELECT snowflake_accept_epoch(epoch), snowflake_accept_epoch(NULL), snowflake_accept_clock() = '0' AS nothing_to_accept
FROM idgen_status;

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
