-- Who may do what, and a search_path that is not to be trusted.
CREATE ROLE regress_idgen_user;
CREATE ROLE regress_idgen_watcher IN ROLE pg_monitor;

-- Anybody may mint, take apart and look at the status.
SET ROLE regress_idgen_user;
SELECT shard_of(snowflake_next_id(500)), (SELECT count(*) FROM snowflake_next_ids(500, 3)) AS batch,
       snowflake_last_id() > 0 AS last_id;
SET idgen.shard = 501;
SELECT shard_of(snowflake_next_id());
RESET idgen.shard;
SELECT shard, sequence FROM snowflake_decode(11637205501278089);
SELECT shard, sequence FROM snowflake_decode(11637205501278089, 'instagram');
SELECT name FROM snowflake_layouts LIMIT 1;
SELECT snowflake_from_shortcode(snowflake_shortcode(1)), snowflake_from_text(snowflake_text(1)),
       snowflake_unscatter(snowflake_scatter(1));
SELECT shard_of(11637205501278089), snowflake_time(0) = snowflake_time(0, '2025-01-01T00:00:00Z') AS time,
       snowflake_min_id('2025-01-01T00:00:00Z'), snowflake_max_id('2025-01-01T00:00:00Z'),
       snowflake_between(0, '-infinity', 'infinity'), snowflake_make_id('2025-01-01T00:00:00Z', 1, 1);
SELECT warning FROM idgen_status;

-- The counters tell about the work of others: for pg_monitor only, view and function.
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
-- What concerns the whole server is for superusers.
ALTER SYSTEM SET idgen.allowed_shards = '1';
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY default
SET ROLE regress_idgen_watcher;
SELECT shard, ids > 0 AS ids FROM idgen_shard_stats WHERE shard IN (500, 501) ORDER BY shard;
SELECT count(*) > 0 AS rows FROM idgen_shard_stats();
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

-- A schema put first, with functions and operators of the names that the extension uses itself. What
-- snowflake_between and the views do was settled when they were created.
CREATE SCHEMA hostile;
CREATE FUNCTION hostile.refuse(a bigint, b bigint) RETURNS boolean LANGUAGE plpgsql AS
    $$ BEGIN RAISE 'the search_path got in'; END $$;
CREATE OPERATOR hostile.>= (FUNCTION = hostile.refuse, LEFTARG = bigint, RIGHTARG = bigint);
CREATE OPERATOR hostile.<= (FUNCTION = hostile.refuse, LEFTARG = bigint, RIGHTARG = bigint);
CREATE FUNCTION hostile.snowflake_min_id(ts timestamptz) RETURNS bigint LANGUAGE plpgsql AS
    $$ BEGIN RAISE 'the search_path got in'; END $$;
CREATE FUNCTION hostile.snowflake_max_id(ts timestamptz) RETURNS bigint LANGUAGE plpgsql AS
    $$ BEGIN RAISE 'the search_path got in'; END $$;
CREATE FUNCTION hostile.current_setting(name text) RETURNS text LANGUAGE plpgsql AS
    $$ BEGIN RAISE 'the search_path got in'; END $$;
CREATE FUNCTION hostile.idgen_status() RETURNS integer LANGUAGE plpgsql AS
    $$ BEGIN RAISE 'the search_path got in'; END $$;
CREATE FUNCTION hostile.idgen_shard_stats() RETURNS integer LANGUAGE plpgsql AS
    $$ BEGIN RAISE 'the search_path got in'; END $$;
SET search_path = hostile, public, pg_catalog;
-- The trap works:
\set VERBOSITY terse
SELECT 1::bigint >= 0::bigint;
SELECT current_setting('idgen.shard');
\set VERBOSITY default
-- and nothing falls into it.
SELECT public.snowflake_between(0, '2025-01-01T00:00:00Z', 'infinity') AS between;
SELECT public.snowflake_between(n, '2025-01-01T00:00:00Z', 'infinity') AS between
FROM pg_catalog.generate_series(0, 1) AS n;
SELECT shard, max_lease, max_wait FROM public.idgen_status;
SELECT shard, last_id > 0 AS last_id FROM public.idgen_shard_stats WHERE shard = 500;
SELECT public.shard_of(public.snowflake_next_id(500));
RESET search_path;

-- The extension lives in whatever schema it is created in, also where the search_path does not lead
-- there, and leaves nothing behind.
DROP EXTENSION idgen;
CREATE SCHEMA ids;
SET search_path = hostile, pg_catalog;
CREATE EXTENSION idgen SCHEMA ids;
SELECT ids.shard_of(ids.snowflake_next_id(502)),
       ids.snowflake_between(0, '2025-01-01T00:00:00Z', 'infinity') AS between;
SELECT shard, max_lease FROM ids.idgen_status;
SELECT shard FROM ids.idgen_shard_stats WHERE shard = 502;
RESET search_path;
DROP EXTENSION idgen;
SELECT count(*) AS left_behind FROM pg_proc WHERE pronamespace = 'ids'::regnamespace;
DROP SCHEMA ids;
SET client_min_messages = warning;
DROP SCHEMA hostile CASCADE;
RESET client_min_messages;
CREATE EXTENSION idgen;

-- To create it takes a superuser: it is not trusted.
SELECT superuser, trusted, relocatable FROM pg_available_extension_versions WHERE name = 'idgen';

DROP ROLE regress_idgen_user, regress_idgen_watcher;
