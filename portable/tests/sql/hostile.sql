-- Others may be allowed to create objects in the schema of the portable edition, as every role may in "public" up to
-- PostgreSQL 14. Their objects are never called by others, nor become part of what others call: not when a
-- superuser runs the script, inside or outside a transaction, and not when ids are minted.
CREATE ROLE regress_idgen_attacker;
CREATE DATABASE regress_idgen_hostile;
\c regress_idgen_hostile
CREATE SCHEMA ids;
-- The names that the script calls, taken from its words.
CREATE TEMP TABLE words AS
    SELECT DISTINCT word[1] AS word
    FROM regexp_matches(pg_read_file('../idgen.sql'), '[a-z_][a-z0-9_]*|[-+*/<>=~!@#%^&|?]+', 'g') AS word;
-- The objects of the script. Existing ones of that name are refused: see "install".
\! ./install regress_idgen_hostile search_path=ids idgen.allowed_shards=0-5
CREATE TEMP TABLE surface AS
    SELECT format('ids.%I(%s)', proname, array_to_string(proargtypes::oid[]::regtype[], ',')) AS function, proname
    FROM pg_proc WHERE pronamespace = 'ids'::regnamespace;
GRANT SELECT ON words, surface TO regress_idgen_attacker;
SET client_min_messages = warning;
DROP SCHEMA ids, idgen_portable CASCADE;
RESET client_min_messages;
CREATE SCHEMA ids;

-- An operator or function whose argument types match better than those of pg_catalog is preferred, wherever in the
-- search_path it is. So the attacker creates every such operator and function.
GRANT CREATE, USAGE ON SCHEMA ids TO regress_idgen_attacker;
SET ROLE regress_idgen_attacker;
DO $$
DECLARE
    types CONSTANT regtype[] := '{oid, regclass, regproc, regprocedure, regnamespace, regrole, regtype, name,
        text, varchar, "char", smallint, integer, bigint, numeric, real, float8, boolean, timestamptz,
        timestamp, date, interval, bytea, bit, xid8, "name[]", "text[]", "bigint[]"}';
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
            SELECT DISTINCT proname, proargtypes::oid[] AS arguments
            FROM pg_proc
            WHERE pronamespace = 'pg_catalog'::regnamespace AND proname IN (SELECT word FROM words)
        ), variants AS (
            -- Another type in one place, or in all.
            SELECT format('ids.%I(%s)', proname,
                          (SELECT string_agg(CASE WHEN place IN (number, 0) THEN t
                                             ELSE argument::regtype END::text, ',' ORDER BY number)
                           FROM unnest(arguments) WITH ORDINALITY AS a (argument, number))) AS function
            FROM known, unnest(types) AS t, generate_series(0, cardinality(arguments)) AS place
            WHERE cardinality(arguments) BETWEEN 1 AND 4
        )
        SELECT function FROM variants WHERE function !~ 'any|internal|record|trigger|cstring'
        EXCEPT SELECT function FROM surface
    LOOP
        EXECUTE format('CREATE FUNCTION %s RETURNS boolean %s', item.function, trap);
    END LOOP;
END $$;
RESET ROLE;
SELECT count(*) > 2000 AS operators FROM pg_operator WHERE oprnamespace = 'ids'::regnamespace;
SELECT count(*) > 2000 AS functions FROM pg_proc WHERE pronamespace = 'ids'::regnamespace;
-- Types are found by the search_path: the attacker's come first where pg_catalog is named after their schema.
SET ROLE regress_idgen_attacker;
CREATE FUNCTION ids.trap(value pg_catalog.text) RETURNS boolean LANGUAGE plpgsql AS
    $$ BEGIN RAISE 'the attacker is called'; END $$;
CREATE DOMAIN ids.text AS pg_catalog.text CHECK (ids.trap(value));
CREATE DOMAIN ids.name AS pg_catalog.name CHECK (ids.trap(value::pg_catalog.text));
CREATE DOMAIN ids.record AS pg_catalog.text CHECK (ids.trap(value));
CREATE DOMAIN ids.regclass AS pg_catalog.regclass CHECK (ids.trap(value::pg_catalog.text));
CREATE DOMAIN ids.timestamptz AS pg_catalog.timestamptz CHECK (ids.trap(value::pg_catalog.text));
RESET ROLE;

-- The trap works:
SET search_path = ids;
\set VERBOSITY terse
SELECT 1::bigint & 1;
SELECT format('%s'::text, 1::bigint);
\set VERBOSITY default
RESET search_path;
-- and nothing falls into it, in one transaction, outside of one, and when it is run again.
\! ./install regress_idgen_hostile "search_path=ids,pg_catalog" idgen.allowed_shards=0-9 idgen.max_ahead=1s
\! PGOPTIONS="-c search_path=ids,pg_catalog" psql -X -q -v ON_ERROR_STOP=1 -d regress_idgen_hostile -f idgen.sql
\! PGOPTIONS="-c search_path=ids" psql -X -q -1 -A -t -v ON_ERROR_STOP=1 -d regress_idgen_hostile -f idgen.sql -c "SHOW search_path"
\! PGOPTIONS="-c search_path=ids" psql -X -q -A -t -v ON_ERROR_STOP=1 -d regress_idgen_hostile -f idgen.sql -c "SHOW search_path"
-- No object of the script refers to one of the attacker,
SELECT pg_describe_object(classid, objid, 0) AS object, pg_describe_object(refclassid, refobjid, 0) AS uses
FROM pg_depend
WHERE (refclassid, refobjid) IN (SELECT classid, objid FROM pg_shdepend
                                 WHERE deptype = 'o' AND refobjid = 'regress_idgen_attacker'::regrole)
  AND (classid, objid) NOT IN (SELECT classid, objid FROM pg_shdepend
                               WHERE deptype = 'o' AND refobjid = 'regress_idgen_attacker'::regrole)
  AND classid IN ('pg_proc'::regclass, 'pg_rewrite'::regclass, 'pg_class'::regclass)
  AND (classid <> 'pg_proc'::regclass OR objid NOT IN (
      SELECT oid FROM pg_proc WHERE proowner = 'regress_idgen_attacker'::regrole));
-- nor does anything call it, whatever the path.
CREATE TABLE ids.users (
    id bigint DEFAULT ids.snowflake_next_id(5),
    js bigint DEFAULT ids.snowflake_next_id_js(5)
);
SET search_path = pg_temp, ids, pg_catalog;
INSERT INTO ids.users VALUES (DEFAULT, DEFAULT);
SET idgen.shard = 6;
SELECT ids.shard_of(ids.snowflake_next_id()), ids.shard_of(ids.snowflake_advance(9, bigint '0'));
SELECT ids.shard_of(id) FROM ids.snowflake_next_ids(5, 2) AS id;
SELECT ids.snowflake_last_id() IS NULL AS none;
SELECT d.shard, d.sequence IS NULL AS none FROM ids.users, ids.snowflake_decode(id) AS d;
SELECT d.shard FROM ids.users, ids.snowflake_decode(js, 'js53'::pg_catalog.text) AS d;
SELECT ids.snowflake_between(id, timestamp with time zone '-infinity', timestamp with time zone 'infinity') AS between
FROM ids.users;
SELECT ids.snowflake_time(bigint '0') IS NULL AS none,
       ids.snowflake_time(bigint '0', timestamp with time zone '2025-01-01Z') IS NULL AS none,
       ids.snowflake_min_id(timestamp with time zone '2025-01-01Z') AS least,
       ids.snowflake_max_id(timestamp with time zone '2025-01-01Z') AS greatest,
       ids.snowflake_make_id(timestamp with time zone '2025-01-01Z', 5, 6) AS made;
SELECT ids.snowflake_shortcode(bigint '11637205501278089') AS code,
       ids.snowflake_from_shortcode('KVgCzJFOeJ'::pg_catalog.text) AS from_code,
       ids.snowflake_text(bigint '5') AS text, ids.snowflake_from_text('8000000000005'::pg_catalog.text) AS from_text,
       ids.snowflake_scatter(bigint '1') AS scattered, ids.snowflake_unscatter(bigint '4611686018427387904') AS back;
SELECT "table", "column", shard FROM ids.idgen_columns ORDER BY "column" COLLATE "C";
SELECT "table", "column", new_default FROM ids.snowflake_assign_shard('ids', 6) ORDER BY "column" COLLATE "C";
SELECT shard, allowed_shards, max_ahead, warning FROM ids.idgen_status;
SELECT name FROM ids.snowflake_layouts LIMIT 1;
-- Errors are raised by the script's own functions too.
\set VERBOSITY terse
SELECT ids.snowflake_next_id(NULL::integer);
SELECT ids.snowflake_next_id(10);
SELECT ids.snowflake_next_id(8192);
SELECT ids.snowflake_decode(bigint '1', 'none'::pg_catalog.text);
SELECT ids.snowflake_from_text('none'::pg_catalog.text);
SELECT ids.snowflake_make_id(timestamp with time zone '1970-01-01Z', 5, 0);
\set VERBOSITY default
RESET search_path;

-- A function of the attacker in the schema of the helpers is not replaced, because the attacker would still own it.
GRANT CREATE ON SCHEMA idgen_portable TO regress_idgen_attacker;
SET ROLE regress_idgen_attacker;
CREATE FUNCTION idgen_portable.milliseconds(name pg_catalog.text) RETURNS bigint LANGUAGE sql RETURN 0;
RESET ROLE;
\! ./install regress_idgen_hostile search_path=ids

\c regression
DROP DATABASE regress_idgen_hostile;
DROP ROLE regress_idgen_attacker;
