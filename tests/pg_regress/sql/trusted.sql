-- An ordinary role may create the extension where it may create objects. The script then runs as a superuser,
-- whatever the role has prepared, and its objects belong to the superuser: the role owns the extension and nothing
-- in it.
CREATE ROLE regress_idgen_owner;
CREATE ROLE regress_idgen_user;
CREATE DATABASE regress_idgen_trusted;
-- Every object of the extension with its rights, as one text.
CREATE FUNCTION rights() RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(object || ' ' || coalesce(rights, '-'), ',' ORDER BY object COLLATE "C")
    FROM (SELECT replace(pg_describe_object(classid, objid, 0), 'ids.', '') AS object,
                 replace(coalesce(proacl, relacl)::text, pg_get_userbyid(coalesce(proowner, relowner)), 'owner') AS rights
          FROM pg_depend LEFT JOIN pg_proc AS p ON classid = 'pg_proc'::regclass AND p.oid = objid
               LEFT JOIN pg_class AS c ON classid = 'pg_class'::regclass AND c.oid = objid
          WHERE deptype = 'e' AND classid <> 'pg_type'::regclass
            AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idgen')) AS objects
$$;
SELECT rights() AS by_superuser, pg_get_functiondef('rights'::regproc) AS function \gset
DROP FUNCTION rights;
\c regress_idgen_trusted
:function;
\i `echo $PG_ABS_SRCDIR/refused.sql`
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
CREATE SCHEMA ids AUTHORIZATION regress_idgen_owner;

-- This requires the privilege to create objects in the database and in the schema, and a schema whose name ends no
-- literal.
\set VERBOSITY terse
\set SHOW_CONTEXT never
SET ROLE regress_idgen_owner;
CREATE EXTENSION idgen SCHEMA ids;
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
GRANT CREATE ON DATABASE regress_idgen_trusted TO regress_idgen_owner;
SET ROLE regress_idgen_owner;
CREATE EXTENSION idgen SCHEMA public;
\echo :LAST_ERROR_SQLSTATE
CREATE EXTENSION idgen SCHEMA pg_catalog;
\echo :LAST_ERROR_SQLSTATE
CREATE SCHEMA "a'; SELECT";
SELECT state IS NOT NULL AS refused FROM refused('CREATE EXTENSION idgen SCHEMA "a''; SELECT"');
-- The script of 0.1.0 found names by the schema. If it is still installed, ordinary roles may not use it.
CREATE EXTENSION idgen VERSION '0.1.0' SCHEMA ids;
\echo :LAST_ERROR_SQLSTATE

-- The portable edition is not taken over from an ordinary role, in whatever state it is.
CREATE SCHEMA idgen_portable;
CREATE SEQUENCE idgen_portable.last_id;
CREATE EXTENSION idgen SCHEMA ids;
\echo :LAST_ERROR_SQLSTATE
ALTER SEQUENCE idgen_portable.last_id RENAME TO moved;
CREATE EXTENSION idgen SCHEMA ids;
\echo :LAST_ERROR_SQLSTATE
-- Nor if it appears while the script runs, here by an event trigger, and without one by another session.
DROP SEQUENCE idgen_portable.moved;
CREATE FUNCTION idgen_portable.mint(
    shard integer, want bigint, waited_ms bigint DEFAULT 0, js boolean DEFAULT false)
    RETURNS bigint LANGUAGE sql SECURITY DEFINER AS 'SELECT 1';
RESET ROLE;
CREATE FUNCTION come_between() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
    IF to_regclass('idgen_portable.moved') IS NULL THEN
        CREATE SEQUENCE idgen_portable.moved;
        ALTER SEQUENCE idgen_portable.moved OWNER TO regress_idgen_owner;
    END IF;
END $$;
CREATE EVENT TRIGGER come_between ON ddl_command_end WHEN TAG IN ('CREATE VIEW') EXECUTE FUNCTION come_between();
SET ROLE regress_idgen_owner;
CREATE EXTENSION idgen SCHEMA ids;
SELECT to_regclass('idgen_portable.moved') IS NOT NULL AS has_come, pg_get_userbyid(proowner) AS owner, prosrc
FROM pg_proc WHERE proname = 'mint';
DROP EXTENSION idgen;
-- Nor from a superuser, who would have been asked before.
RESET ROLE;
CREATE EXTENSION idgen SCHEMA ids;
SELECT to_regclass('idgen_portable.moved') IS NOT NULL AS has_come, pg_get_userbyid(proowner) AS owner, prosrc
FROM pg_proc WHERE proname = 'mint';
DROP EXTENSION idgen;
DROP EVENT TRIGGER come_between;
SET client_min_messages = warning;
DROP SCHEMA idgen_portable CASCADE;
RESET client_min_messages;

-- Default privileges of the role change nothing: all is the superuser's, with the rights that it has there.
SET ROLE regress_idgen_owner;
ALTER DEFAULT PRIVILEGES GRANT ALL ON FUNCTIONS TO regress_idgen_owner;
ALTER DEFAULT PRIVILEGES IN SCHEMA ids GRANT ALL ON FUNCTIONS TO regress_idgen_owner;
ALTER DEFAULT PRIVILEGES IN SCHEMA ids GRANT ALL ON TABLES TO regress_idgen_owner;
CREATE EXTENSION idgen SCHEMA ids;
GRANT USAGE ON SCHEMA ids TO regress_idgen_user;
SELECT pg_get_userbyid(extowner) AS owner FROM pg_extension WHERE extname = 'idgen';
SELECT length(rights()) > 1000 AS all_of_it, rights() = :'by_superuser' AS same_rights;
SELECT count(*) AS of_the_role
FROM pg_depend JOIN pg_shdepend AS o USING (classid, objid)
WHERE pg_depend.deptype = 'e' AND o.refobjid = 'regress_idgen_owner'::regrole;

-- It works, for its owner and for others.
CREATE TABLE ids.users (id bigint PRIMARY KEY DEFAULT ids.snowflake_next_id(510), name text);
INSERT INTO ids.users (name) VALUES ('a');
SELECT "table", shard FROM ids.idgen_columns;
SELECT "table", new_default FROM ids.snowflake_assign_shard('ids', 511);
SET ROLE regress_idgen_user;
SELECT ids.shard_of(ids.snowflake_next_id(510));
SELECT (SELECT count(*) FROM ids.idgen_status) AS status, (SELECT count(*) FROM ids.idgen_columns) AS columns,
       (SELECT count(*) > 5 FROM ids.snowflake_layouts) AS layouts,
       (SELECT count(*) > 0 FROM ids.idgen_dependents) AS dependents;

-- The owner of the extension and its schema may do what everybody may, and nothing that requires a superuser or a
-- grant. It cannot change, take over or replace members of the extension.
SET ROLE regress_idgen_owner;
SELECT state, statement
FROM unnest(string_to_array($$SELECT ids.snowflake_advance(510, 0)
SELECT ids.snowflake_stats_reset()
SELECT ids.snowflake_remove_mark()
SELECT ids.snowflake_accept_epoch(now())
SELECT ids.snowflake_accept_clock()
SELECT ids.snowflake_check()
SELECT * FROM ids.idgen_shard_stats
SELECT * FROM ids.idgen_shard_stats()
SELECT * FROM ids.idgen_refusals
GRANT pg_monitor TO regress_idgen_owner
REVOKE EXECUTE ON FUNCTION ids.snowflake_advance FROM PUBLIC
ALTER FUNCTION ids.snowflake_advance OWNER TO regress_idgen_owner
ALTER FUNCTION ids.snowflake_advance SECURITY DEFINER
ALTER FUNCTION ids.snowflake_advance RENAME TO other
ALTER FUNCTION ids.snowflake_advance SET SCHEMA public
ALTER FUNCTION ids.snowflake_assign_shard RESET search_path
CREATE OR REPLACE FUNCTION ids.shard_of(id bigint) RETURNS integer LANGUAGE sql RETURN 1
CREATE OR REPLACE VIEW ids.idgen_status AS SELECT 1
CREATE RULE other AS ON INSERT TO ids.idgen_columns DO INSTEAD NOTHING
ALTER VIEW ids.idgen_status OWNER TO regress_idgen_owner
COMMENT ON FUNCTION ids.shard_of(bigint) IS 'other'
DROP FUNCTION ids.snowflake_advance
DROP VIEW ids.idgen_status
ALTER EXTENSION idgen DROP FUNCTION ids.snowflake_advance
ALTER EXTENSION idgen DROP VIEW ids.idgen_status
ALTER EXTENSION idgen SET SCHEMA public
ALTER EXTENSION idgen UPDATE TO '0.1.0'
SET idgen.allowed_shards = '1'
ALTER DATABASE regress_idgen_trusted SET idgen.max_ahead = '1h'
CREATE FUNCTION ids.of_mine(integer) RETURNS bigint AS 'idgen', 'snowflake_advance_wrapper' LANGUAGE C$$, chr(10)))
     WITH ORDINALITY AS statements (statement, n), refused(statement)
ORDER BY n;
-- These do nothing, and say so.
GRANT EXECUTE ON FUNCTION ids.snowflake_advance TO regress_idgen_owner;
GRANT SELECT ON ids.idgen_shard_stats TO regress_idgen_owner;
SELECT rights() = :'by_superuser' AS same_rights;

-- The extension is updated and dropped by its owner, and by no other ordinary role.
ALTER EXTENSION idgen UPDATE;
SET ROLE regress_idgen_user;
ALTER EXTENSION idgen UPDATE;
\echo :LAST_ERROR_SQLSTATE
DROP EXTENSION idgen;
\echo :LAST_ERROR_SQLSTATE
SET ROLE regress_idgen_owner;
DROP TABLE ids.users;
DROP EXTENSION idgen;
RESET ROLE;
-- In a database made of a template that has the extension, a migration that creates it finds it there, and it is the
-- superuser's.
CREATE SCHEMA idgen;
GRANT USAGE ON SCHEMA idgen TO PUBLIC;
CREATE EXTENSION idgen SCHEMA idgen;
-- If a superuser renames that schema, no object that others create under its old name is called.
ALTER SCHEMA idgen RENAME TO moved;
SET ROLE regress_idgen_owner;
CREATE SCHEMA idgen;
CREATE FUNCTION idgen.idgen_has_integer(pg_node_tree, integer) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RAISE 'called as %', current_user;
END $$;
RESET ROLE;
SELECT moved.snowflake_assign_shard('ids', 5);
\echo :LAST_ERROR_SQLSTATE
SET ROLE regress_idgen_owner;
DROP FUNCTION idgen.idgen_has_integer;
DROP SCHEMA idgen;
RESET ROLE;
ALTER SCHEMA moved RENAME TO idgen;
\c regression
CREATE DATABASE regress_idgen_test TEMPLATE regress_idgen_trusted OWNER regress_idgen_owner;
\c regress_idgen_test
SET ROLE regress_idgen_owner;
CREATE SCHEMA IF NOT EXISTS idgen;
CREATE EXTENSION IF NOT EXISTS idgen SCHEMA idgen;
CREATE TABLE ids.users (id bigint PRIMARY KEY DEFAULT idgen.snowflake_next_id(510));
INSERT INTO ids.users DEFAULT VALUES RETURNING idgen.shard_of(id);
DROP EXTENSION idgen CASCADE;
\echo :LAST_ERROR_SQLSTATE
\c regression
DROP DATABASE regress_idgen_test;
DROP DATABASE regress_idgen_trusted;
DROP ROLE regress_idgen_owner, regress_idgen_user;
