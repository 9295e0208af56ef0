-- A role may create objects in the extension's schema, or in one that comes before it in the search_path.
-- Nothing of it is ever called by others: not by CREATE EXTENSION, which a superuser runs, and not by a
-- function or a view afterwards.
CREATE ROLE regress_idgen_attacker;
CREATE DATABASE regress_idgen_hostile;
\c regress_idgen_hostile
CREATE SCHEMA ids;
CREATE EXTENSION idgen SCHEMA ids;
CREATE TEMP TABLE surface AS
    SELECT p.oid::regprocedure::text AS function, proname, proargtypes::oid[] AS arguments,
           format('ids.%I(%s) RETURNS %s', proname, pg_get_function_arguments(p.oid),
                  pg_get_function_result(p.oid)) AS declaration
    FROM pg_proc AS p JOIN pg_depend ON classid = 'pg_proc'::regclass AND objid = p.oid AND deptype = 'e'
    WHERE refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idgen');
CREATE TEMP TABLE view_names AS
    SELECT relname FROM pg_class WHERE relnamespace = 'ids'::regnamespace AND relkind = 'v';
GRANT SELECT ON surface, view_names TO regress_idgen_attacker;
-- The names that the script calls, taken from its words.
CREATE TEMP TABLE words AS
    SELECT DISTINCT word[1] AS word
    FROM pg_config, pg_extension,
         regexp_matches(pg_read_file(setting || '/extension/idgen--' || extversion || '.sql'),
                        '[a-z_][a-z0-9_]*|[-+*/<>=~!@#%^&|?]+', 'g') AS word
    WHERE name = 'SHAREDIR' AND extname = 'idgen';
GRANT SELECT ON words TO regress_idgen_attacker;
DROP EXTENSION idgen;

-- An operator or function whose argument types match better than those of pg_catalog is preferred, wherever in the
-- search_path it is. So the attacker creates every such operator and function.
GRANT CREATE, USAGE ON SCHEMA ids TO regress_idgen_attacker;
SET ROLE regress_idgen_attacker;
DO $$
DECLARE
    types CONSTANT regtype[] := '{oid, regclass, regproc, regprocedure, regnamespace, regrole, regtype, name,
        text, varchar, "char", smallint, integer, bigint, numeric, real, float8, boolean, timestamptz,
        timestamp, date, interval, "name[]", "text[]"}';
    item record;
    trap CONSTANT text := 'LANGUAGE plpgsql AS $trap$ BEGIN RAISE ''the attacker is called''; END $trap$';
BEGIN
    FOR item IN SELECT l, r FROM unnest(types) AS l, unnest(types) AS r LOOP
        EXECUTE format('CREATE FUNCTION ids.trap(%s, %s) RETURNS boolean %s', item.l, item.r, trap);
    END LOOP;
    FOR item IN
        SELECT word, l, r FROM words, unnest(types) AS l, unnest(types) AS r
        WHERE word IN (SELECT oprname FROM pg_operator WHERE oprkind = 'b') AND NOT EXISTS (
            SELECT FROM pg_operator WHERE (oprname, oprleft, oprright) = (word, l, r))
    LOOP
        EXECUTE format('CREATE OPERATOR ids.%s (FUNCTION = ids.trap, LEFTARG = %s, RIGHTARG = %s)',
                       item.word, item.l, item.r);
    END LOOP;
    FOR item IN
        WITH known AS (
            SELECT proname, proargtypes::oid[] AS arguments
            FROM pg_proc
            WHERE pronamespace = 'pg_catalog'::regnamespace AND proname IN (SELECT word FROM words)
            UNION SELECT proname, arguments FROM surface
        ), variants AS (
            -- Another type in one place, or in all.
            SELECT format('ids.%I(%s)', proname,
                          (SELECT string_agg(CASE WHEN place IN (number, 0) THEN t
                                             ELSE argument::regtype END::text, ',' ORDER BY number)
                           FROM unnest(arguments) WITH ORDINALITY AS a (argument, number))) AS function
            FROM known, unnest(types) AS t, generate_series(0, cardinality(arguments)) AS place
            WHERE cardinality(arguments) BETWEEN 1 AND 4
        )
        -- Not what the extension creates itself: that is refused, see below.
        SELECT function FROM variants WHERE function !~ 'any|internal|record|trigger|cstring'
        EXCEPT SELECT function FROM surface
    LOOP
        EXECUTE format('CREATE FUNCTION %s RETURNS boolean %s', item.function, trap);
    END LOOP;
END $$;
RESET ROLE;
SELECT count(*) > 2000 AS operators FROM pg_operator WHERE oprnamespace = 'ids'::regnamespace;
SELECT count(*) > 2000 AS functions FROM pg_proc WHERE pronamespace = 'ids'::regnamespace;

-- Temporary tables and types hide those of the catalog, because pg_temp is first.
CREATE TEMP TABLE pg_class (oid oid, relname name);
CREATE TEMP TABLE pg_proc (oid oid, proname name);
CREATE TEMP TABLE pg_namespace (oid oid, nspname name);
CREATE TEMP TABLE pg_depend (objid oid);
CREATE TEMP TABLE pg_attrdef (oid oid);
CREATE TEMP TABLE idgen_columns (shard text);
CREATE DOMAIN pg_temp.timestamptz AS text;
SET search_path = pg_temp, ids, pg_catalog;
-- The trap works:
\set VERBOSITY terse
SELECT 0::oid = 0::regclass;
SELECT quote_ident('a'::name);
SELECT count(*) FROM pg_proc;
\set VERBOSITY default
-- and nothing falls into it,
CREATE EXTENSION idgen SCHEMA ids;
-- nor has anything kept what belongs to the attacker,
RESET search_path;
ANALYZE;
CREATE TEMP VIEW kept AS
WITH members AS (
    SELECT classid, objid FROM pg_catalog.pg_depend
    WHERE deptype = 'e' AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idgen')
    UNION ALL SELECT 'pg_rewrite'::regclass, oid FROM pg_rewrite
)
SELECT pg_describe_object(classid, objid, 0) AS object, pg_describe_object(refclassid, refobjid, 0) AS uses
FROM members JOIN pg_catalog.pg_depend USING (classid, objid)
WHERE deptype <> 'e' AND (refclassid, refobjid) IN (SELECT classid, objid FROM pg_shdepend
                                 WHERE deptype = 'o' AND refobjid = (
                                     SELECT oid FROM pg_roles WHERE rolname = 'regress_idgen_attacker'));
TABLE kept;
-- nor does anything call it afterwards.
CREATE TABLE ids.users (
    id bigint DEFAULT ids.snowflake_next_id(5),
    js bigint DEFAULT ids.snowflake_next_id_js(5)
);
SET search_path = pg_temp, ids, pg_catalog;
INSERT INTO ids.users VALUES (DEFAULT, DEFAULT);
SELECT ids.snowflake_between(id, timestamp with time zone '-infinity', now()) AS between FROM ids.users;
SELECT "table", "column", shard FROM ids.idgen_columns ORDER BY "column" COLLATE "C";
SELECT "table", "column", new_default FROM ids.snowflake_assign_shard('ids', 6) ORDER BY "column" COLLATE "C";
SELECT object, statement FROM ids.idgen_dependents;
SELECT shard, max_lease, warning FROM ids.idgen_status;
SELECT shard, layout FROM ids.idgen_shard_stats WHERE shard = 5 ORDER BY layout COLLATE "C";
SELECT name FROM ids.snowflake_layouts LIMIT 1;
RESET search_path;
DROP TABLE ids.users;
DROP EXTENSION idgen;
-- The same holds if the attacker creates the schema, and a superuser runs the script.
GRANT CREATE ON DATABASE regress_idgen_hostile TO regress_idgen_attacker;
SET ROLE regress_idgen_attacker;
SET search_path = pg_temp, ids, pg_catalog;
CREATE EXTENSION idgen SCHEMA ids;
RESET search_path;
RESET ROLE;
TABLE kept;
SELECT ids.snowflake_between(bigint '0', timestamp with time zone '-infinity', now()) AS between;
SET ROLE regress_idgen_attacker;
DROP EXTENSION idgen;
RESET ROLE;
-- So it is with a released version that is updated.
CREATE EXTENSION idgen SCHEMA ids VERSION '0.1.0';
ALTER EXTENSION idgen UPDATE;
TABLE kept;
SELECT "table" FROM ids.idgen_columns;
DROP EXTENSION idgen;

-- An existing object with a name of the extension is refused, and not replaced: the attacker would still own it,
-- and could make it do anything.
CREATE FUNCTION state_of(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
    RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
    RETURN sqlstate;
END $$;
-- A function with an argument of type internal cannot be the attacker's.
SET ROLE regress_idgen_attacker;
\set VERBOSITY sqlstate
CREATE FUNCTION ids.idgen_next_id(integer, internal) RETURNS bigint LANGUAGE plpgsql AS 'BEGIN END';
CREATE FUNCTION ids.idgen_next_id(integer, internal) RETURNS bigint LANGUAGE sql RETURN 1;
CREATE FUNCTION ids.idgen_next_id(integer, internal) RETURNS bigint AS 'idgen', 'shard_of_wrapper' LANGUAGE C;
\set VERBOSITY default
RESET ROLE;
DELETE FROM surface WHERE 'internal'::regtype = ANY (arguments);
CREATE FUNCTION with_one_of_the_attacker(made text, dropped text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    state text;
BEGIN
    SET LOCAL ROLE regress_idgen_attacker;
    EXECUTE made;
    RESET ROLE;
    state := public.state_of('CREATE EXTENSION idgen SCHEMA ids');
    EXECUTE dropped;
    RETURN state;
END $$;
SELECT count(*) > 20 AS functions, array_agg(DISTINCT state) AS states
FROM surface, with_one_of_the_attacker(
    format('CREATE FUNCTION %s LANGUAGE plpgsql AS %L', declaration, 'BEGIN END'),
    format('DROP FUNCTION %s', function)) AS state;
SELECT count(*) > 3 AS views, array_agg(DISTINCT state) AS states
FROM view_names, with_one_of_the_attacker(
    format('CREATE VIEW ids.%I AS SELECT 1', relname), format('DROP VIEW ids.%I', relname)) AS state;
SET client_min_messages = warning;
-- A function with one argument more, which a call need not give, is not called in place of the extension's: PostgreSQL
-- refuses to choose.
SELECT count(*) > 20 AS functions, array_agg(DISTINCT state) AS states
FROM surface,
     concat_ws(', ', nullif(array_to_string(arguments::regtype[], ', '), ''), 'point') AS more,
     with_one_of_the_attacker(
         format('CREATE FUNCTION ids.%I(%s DEFAULT NULL) RETURNS boolean LANGUAGE plpgsql AS %L', proname, more,
                'BEGIN RAISE ''the attacker is called''; END'),
         format('DROP EXTENSION IF EXISTS idgen; DROP FUNCTION ids.%I(%s)', proname, more)) AS state;
RESET client_min_messages;

-- Nor is what calls itself the portable edition taken over from just anybody, in whatever state it is.
-- (PostgreSQL 18 shows more of the context.)
\set SHOW_CONTEXT never
SET ROLE regress_idgen_attacker;
CREATE SCHEMA idgen_portable;
CREATE SEQUENCE idgen_portable.last_id;
RESET ROLE;
CREATE EXTENSION idgen SCHEMA ids;
\echo :LAST_ERROR_SQLSTATE
SET ROLE regress_idgen_attacker;
ALTER SEQUENCE idgen_portable.last_id RENAME TO moved;
CREATE FUNCTION idgen_portable.epoch_ms() RETURNS bigint LANGUAGE sql RETURN bigint '1735689600000';
CREATE FUNCTION idgen_portable.mint(
    shard integer, want bigint, waited_ms bigint DEFAULT 0, js boolean DEFAULT false)
    RETURNS bigint LANGUAGE sql RETURN 1;
CREATE FUNCTION idgen_portable.mint_many(shard integer, count integer) RETURNS SETOF bigint LANGUAGE sql
    AS 'SELECT 1';
CREATE FUNCTION idgen_portable.advance(shard integer, past bigint) RETURNS bigint LANGUAGE sql RETURN 1;
RESET ROLE;
CREATE EXTENSION idgen SCHEMA ids;
\echo :LAST_ERROR_SQLSTATE

\c regression
DROP DATABASE regress_idgen_hostile;
DROP ROLE regress_idgen_attacker;
