-- From the portable edition to the extension with one statement: CREATE EXTENSION idgen.
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';

-- The objects of the portable edition compared with those of the extension: only the differences.
CREATE SCHEMA portable;
\! ./install regression search_path=portable
CREATE TEMP TABLE portable_edition AS SELECT * FROM pg_proc WHERE pronamespace = 'portable'::regnamespace;
SET client_min_messages = warning;
DROP SCHEMA portable CASCADE;
DROP SCHEMA idgen_portable CASCADE;
RESET client_min_messages;
CREATE EXTENSION idgen;
CREATE TEMP VIEW extension AS
    SELECT p.*
    FROM pg_depend JOIN pg_proc AS p ON p.oid = objid
    WHERE classid = 'pg_proc'::regclass AND deptype = 'e'
      AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idgen');
SELECT p.proname AS lacking, pg_get_function_arguments(p.oid) AS arguments
FROM extension AS p WHERE NOT EXISTS (
    SELECT FROM portable_edition AS q
    WHERE (q.proname, q.proargtypes::text, q.proargnames, q.proargmodes, q.proallargtypes, q.prorettype,
           q.proretset, q.proisstrict, q.provolatile, q.pronargdefaults)
          IS NOT DISTINCT FROM
          (p.proname, p.proargtypes::text, p.proargnames, p.proargmodes, p.proallargtypes, p.prorettype,
           p.proretset, p.proisstrict, p.provolatile, p.pronargdefaults))
ORDER BY p.proname COLLATE "C", p.pronargs;
SELECT q.proname AS unknown, q.pronargs AS args FROM portable_edition AS q
WHERE NOT EXISTS (SELECT FROM extension AS p
                  WHERE p.proname = q.proname AND p.proargtypes::text = q.proargtypes::text)
ORDER BY q.proname COLLATE "C", q.pronargs;
-- A parallel plan cannot run functions that advance a register.
SELECT p.proname AS function, p.pronargs AS args, p.proparallel AS of_extension, q.proparallel AS portable
FROM extension AS p JOIN portable_edition AS q
     ON p.proname = q.proname AND p.proargtypes::text = q.proargtypes::text
WHERE p.proparallel <> q.proparallel
ORDER BY p.proname COLLATE "C", p.pronargs;
CREATE TEMP TABLE members AS
    SELECT pg_describe_object(classid, objid, 0) AS object FROM pg_depend
    WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
      AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idgen');
CREATE TEMP VIEW first_rights AS
    SELECT p.oid::regprocedure::text AS object, a.*
    FROM pg_depend AS d JOIN pg_proc AS p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
         LEFT JOIN pg_init_privs AS i ON i.classoid = d.classid AND i.objoid = p.oid,
         aclexplode(coalesce(initprivs, acldefault('f', proowner))) AS a
    WHERE deptype = 'e' AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idgen')
    UNION ALL
    SELECT c.oid::regclass::text, a.*
    FROM pg_class AS c JOIN pg_init_privs AS i ON classoid = 'pg_class'::regclass AND objoid = c.oid,
         aclexplode(initprivs) AS a
    WHERE relnamespace = 'public'::regnamespace;
CREATE TEMP TABLE first_rights_anew AS SELECT * FROM first_rights;
DROP VIEW extension;
DROP EXTENSION idgen;

-- A database that uses it everywhere, and whose owner is not a superuser. The server has the library.
CREATE ROLE regress_idgen_owner LOGIN;
CREATE ROLE regress_idgen_user;
GRANT CREATE ON DATABASE regression TO regress_idgen_owner;
GRANT CREATE ON SCHEMA public TO regress_idgen_owner;
\! PGUSER=regress_idgen_owner ./install regression
SET ROLE regress_idgen_owner;
GRANT EXECUTE ON FUNCTION snowflake_advance TO regress_idgen_user;
-- Privileges of every kind: on objects that keep their OID, and on objects that are recreated.
REVOKE ALL ON FUNCTION snowflake_next_id_js, idgen_columns, snowflake_assign_shard FROM PUBLIC;
GRANT EXECUTE ON FUNCTION snowflake_next_id_js, idgen_status() TO regress_idgen_user WITH GRANT OPTION;
GRANT EXECUTE ON FUNCTION idgen_columns, snowflake_layouts() TO regress_idgen_user;
REVOKE ALL ON FUNCTION idgen_status() FROM PUBLIC;
REVOKE ALL ON idgen_status, snowflake_layouts FROM PUBLIC;
GRANT SELECT ON idgen_status TO regress_idgen_user WITH GRANT OPTION;
GRANT SELECT (name, bits) ON snowflake_layouts TO regress_idgen_user;
-- One that the extension does not have, and one that fits a number better than its own.
CREATE FUNCTION of_mine() RETURNS text LANGUAGE sql SECURITY DEFINER RETURN current_user;
COMMENT ON FUNCTION of_mine() IS 'Whoever owns this is who it runs as. Portable edition.';
CREATE FUNCTION snowflake_time(id integer) RETURNS timestamptz LANGUAGE plpgsql AS
    $$ BEGIN RAISE 'the superuser calls what is mine'; END $$;
CREATE TABLE users (
    id bigint PRIMARY KEY DEFAULT snowflake_next_id(5) CHECK (shard_of(id) = 5),
    created_at timestamptz GENERATED ALWAYS AS (snowflake_time(id, '2025-01-01T00:00:00Z')) STORED,
    name text
);
CREATE INDEX users_shard ON users (shard_of(id));
CREATE INDEX users_time ON users (snowflake_time(id, '2025-01-01T00:00:00Z'));
CREATE TABLE posts (id bigint DEFAULT snowflake_next_id()) PARTITION BY RANGE (shard_of(id));
CREATE TABLE posts_low PARTITION OF posts FOR VALUES FROM (0) TO (8);
CREATE TABLE labels (id bigint DEFAULT snowflake_next_id_js(7));
CREATE VIEW recent AS
    SELECT u.name, d.* FROM users AS u, snowflake_decode(u.id) AS d
    WHERE snowflake_between(u.id, now() - interval '1 hour', 'infinity');
CREATE FUNCTION add_user(name text) RETURNS bigint LANGUAGE sql
BEGIN ATOMIC
    INSERT INTO users (name) VALUES (name) RETURNING id;
END;
INSERT INTO users (name) SELECT 'user ' || n FROM generate_series(1, 1000) AS n;
SET idgen.shard = 6;
INSERT INTO posts VALUES (DEFAULT), (DEFAULT);
INSERT INTO labels VALUES (DEFAULT), (DEFAULT);
SELECT count(*) FROM recent;
RESET ROLE;
CREATE TABLE users_before AS SELECT * FROM users;
CREATE TABLE posts_before AS SELECT * FROM posts;
CREATE TABLE defaults_before AS
    SELECT oid, adrelid, pg_get_expr(adbin, adrelid) AS expression, adbin::text AS stored FROM pg_attrdef;
PREPARE mint AS SELECT snowflake_next_id(5) AS id;
EXECUTE mint \gset

-- The privileges granted, except those of the owner; and those in a dump, which compares them with the initial
-- privileges of an extension.
CREATE VIEW rights AS
    SELECT object, coalesce(rolname, 'PUBLIC') AS grantee, privilege_type, is_grantable
    FROM (SELECT p.oid::regprocedure::text, proowner, coalesce(proacl, acldefault('f', proowner))
          FROM pg_proc AS p WHERE pronamespace = 'public'::regnamespace
          UNION ALL
          SELECT oid::regclass::text, relowner, relacl
          FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'v'
          UNION ALL
          SELECT oid::regclass || '.' || attname, relowner, attacl
          FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
          WHERE relnamespace = 'public'::regnamespace AND relkind = 'v'
         ) AS objects (object, owner, acl),
         aclexplode(acl) AS a LEFT JOIN pg_roles AS r ON r.oid = a.grantee
    WHERE a.grantee <> owner AND object ~ '^(snowflake_|shard_of|idgen_)';
CREATE TABLE rights_before AS SELECT * FROM rights;

-- It is not taken over from a role that is not a superuser, not even from the owner of the database. Such a role
-- could change its objects at any moment, so the superuser takes them first, by the statement of the README.
SELECT 'ALTER DATABASE regression OWNER TO regress_idgen_owner' \gexec
\set VERBOSITY terse
CREATE EXTENSION idgen;
\echo :LAST_ERROR_SQLSTATE
CREATE DATABASE fresh;
\! ./install fresh
CREATE FUNCTION shard_of(id text) RETURNS text LANGUAGE sql SECURITY DEFINER RETURN current_user;
COMMENT ON FUNCTION shard_of(text) IS 'One more. Portable edition.';
\! psql -X -q -d regression -v SHOW_CONTEXT=never -v fresh=fresh -f take.sql 2>&1 | sed 's/^psql:take.sql:[0-9]*: //'
DROP FUNCTION shard_of(text);
\! psql -X -q -d regression -v SHOW_CONTEXT=never -v fresh=fresh -f take.sql 2>&1 | sed 's/^psql:take.sql:[0-9]*: //'
DROP DATABASE fresh;
-- not into another schema,
CREATE SCHEMA elsewhere;
CREATE EXTENSION idgen SCHEMA elsewhere;
\echo :LAST_ERROR_SQLSTATE
-- not by a snapshot that may lack a register,
BEGIN ISOLATION LEVEL REPEATABLE READ;
CREATE EXTENSION idgen;
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
-- not under objects that others have built on its views and on the functions that return tables,
\set VERBOSITY default
CREATE VIEW status_of_mine AS SELECT now_tick FROM idgen_status;
CREATE MATERIALIZED VIEW columns_of_mine AS SELECT * FROM idgen_columns();
CREATE VIEW shards_of_mine AS SELECT c."table", s.new_default
    FROM idgen_columns AS c, snowflake_assign_shard('public', 1) AS s;
CREATE FUNCTION layouts_of_mine(snowflake_layouts) RETURNS text LANGUAGE sql RETURN 'layout';
CREATE EXTENSION idgen;
\echo :LAST_ERROR_SQLSTATE
DROP FUNCTION layouts_of_mine;
DROP MATERIALIZED VIEW columns_of_mine;
DROP VIEW status_of_mine, shards_of_mine;
-- not past a renamed register,
ALTER SEQUENCE idgen_portable.shard_5 RENAME TO shard_five;
CREATE EXTENSION idgen;
\echo :LAST_ERROR_SQLSTATE
ALTER SEQUENCE idgen_portable.shard_five RENAME TO shard_5;
-- not with another epoch,
CREATE OR REPLACE FUNCTION idgen_portable.epoch_ms() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE
    RETURN bigint '1314220021721';
CREATE EXTENSION idgen;
\echo :LAST_ERROR_SQLSTATE
CREATE OR REPLACE FUNCTION idgen_portable.epoch_ms() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE
    RETURN bigint '1735689600000';
-- and not while a register is further ahead of the clock than idgen.max_ahead, here by an hour.
SELECT setval('idgen_portable.shard_7', ((now_tick + 3600000) << 10)) > 0 AS ahead FROM idgen_status;
\set VERBOSITY sqlstate
CREATE EXTENSION idgen;
\set VERBOSITY default
SELECT setval('idgen_portable.shard_7', ((now_tick + 500) << 10)) AS ahead FROM idgen_status \gset
-- Nor if a register in the future was advanced when it was created, and has minted nothing.
DO $$
BEGIN
    EXECUTE (SELECT format('ALTER SEQUENCE idgen_portable.shard_9 START %s', (now_tick + 3600000) << 10)
             FROM idgen_status);
END $$;
\set VERBOSITY sqlstate
CREATE EXTENSION idgen;
\set VERBOSITY default
ALTER SEQUENCE idgen_portable.shard_9 START 0;
-- Nor while a second of ids for JavaScript is.
SELECT setval('idgen_portable.js_7', ((now_tick / 1000 + 3600) << 12)) > 0 AS ahead FROM idgen_status;
\set VERBOSITY sqlstate
CREATE EXTENSION idgen;
\set VERBOSITY default
-- All the while nothing has changed.
SELECT snowflake_next_id(5) AS next \gset
SELECT :next > :id AS greater;

-- The one statement. The next second of ids for JavaScript is used up already.
SELECT setval('idgen_portable.js_7', (now_tick / 1000 + 1) << 12 | 4095) AS js_ahead FROM idgen_status \gset
-- An older version of the portable edition lacks a function that mints, and a role may not mint.
DROP FUNCTION snowflake_next_ids;
REVOKE ALL ON FUNCTION snowflake_next_id(integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION snowflake_next_id(integer) TO regress_idgen_user WITH GRANT OPTION;
DROP TABLE rights_before;
CREATE TABLE rights_before AS SELECT * FROM rights;
CREATE EXTENSION idgen;

-- No id and no default has changed, and the stored form of each default is the same to the byte.
SELECT count(*) AS differ FROM (TABLE users EXCEPT TABLE users_before) AS changed;
SELECT count(*) AS differ FROM (TABLE posts EXCEPT TABLE posts_before) AS changed;
SELECT count(*) AS defaults, count(*) FILTER (WHERE stored = adbin::text) AS same,
       count(*) FILTER (WHERE expression = pg_get_expr(adbin, d.adrelid)) AS same_text
FROM defaults_before JOIN pg_attrdef AS d USING (oid);
\d users
-- All of it belongs to the extension now: the same objects as after a new CREATE EXTENSION, in C where it uses C.
SELECT object, 'is lacking' AS what FROM members
EXCEPT SELECT pg_describe_object(classid, objid, 0), 'is lacking' FROM pg_depend
       WHERE deptype = 'e' AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idgen')
UNION ALL
(SELECT pg_describe_object(classid, objid, 0), 'is too much' FROM pg_depend
 WHERE deptype = 'e' AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idgen')
 EXCEPT SELECT object, 'is too much' FROM members);
SELECT l.lanname AS language, p.proowner::regrole AS owner, count(*) > 1 AS functions
FROM pg_depend AS d JOIN pg_proc AS p ON p.oid = d.objid JOIN pg_language AS l ON l.oid = p.prolang
WHERE d.deptype = 'e' AND d.classid = 'pg_proc'::regclass
  AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idgen')
GROUP BY 1, 2 ORDER BY 1;
-- Functions that the extension does not have keep their owner; otherwise they would run as the superuser.
SELECT of_mine();
SELECT oid::regprocedure AS calls_itself_portable, proowner::regrole AS owner FROM pg_proc
WHERE obj_description(oid, 'pg_proc') LIKE '% Portable edition.' ORDER BY proname COLLATE "C", pronargs;

-- Every shard continues after its register, even those ahead of the clock.
INSERT INTO users (name) VALUES ('next') RETURNING id > :next AS greater, shard_of(id);
EXECUTE mint \gset
SELECT :id > :next AS greater;
SELECT (snowflake_next_id(7) >> 23 << 10) > :ahead - 1024 AS after_the_register;
SELECT id >> 20 > :js_ahead >> 12 AS after_the_register, d.shard
FROM snowflake_next_id_js(7) AS id, snowflake_decode(id, 'js53') AS d;
INSERT INTO labels VALUES (DEFAULT) RETURNING id >> 20 > :js_ahead >> 12 AS after_the_register;
SELECT shard_of(add_user('ada'));
SELECT snowflake_last_id() = max(id) AS last_id FROM users;
INSERT INTO posts VALUES (DEFAULT);
SELECT count(*), min(shard), max(shard) FROM recent;
SET ROLE regress_idgen_user;
SELECT shard_of(snowflake_advance(5, 0)) AS still_granted;
RESET ROLE;

-- Privileges are as they were, and the initial privileges, which a dump leaves out, are those of a new extension.
TABLE rights_before EXCEPT TABLE rights;
SELECT * FROM rights WHERE object IN (SELECT object FROM rights_before) EXCEPT TABLE rights_before;
-- The function that was missing has those of snowflake_next_id(integer).
SELECT * FROM rights WHERE object IN ('snowflake_next_id(integer)', 'snowflake_next_ids(integer,integer)')
ORDER BY object;
TABLE first_rights EXCEPT TABLE first_rights_anew;
TABLE first_rights_anew EXCEPT TABLE first_rights;

-- Nor does the extension remember privileges of the former owner, who could otherwise not be dropped.
SELECT objoid::regprocedure AS names_the_former_owner FROM pg_init_privs, aclexplode(initprivs) AS acl
WHERE classoid = 'pg_proc'::regclass AND 'regress_idgen_owner'::regrole IN (grantor, grantee);

-- The rest of the portable edition can be dropped.
SELECT snowflake_next_id(5) < idgen_portable.mint(5, 1) AS leads_there;
SELECT snowflake_next_id_js(5) < idgen_portable.mint(5, 1, js => true) AS leads_there;
SET client_min_messages = warning;
DROP SCHEMA idgen_portable CASCADE;
SELECT shard_of(snowflake_next_id(5));
-- The portable edition is not installed over the extension.
\! ./install regression
-- A dump brings the rights along.
CREATE DATABASE copy;
\! pg_dump regression | psql -X -q -v ON_ERROR_STOP=1 -d copy >/dev/null
\c copy
TABLE rights_before EXCEPT TABLE rights;
SELECT * FROM rights WHERE object IN (SELECT object FROM rights_before) EXCEPT TABLE rights_before;
SELECT * FROM rights WHERE object = 'snowflake_next_ids(integer,integer)';
\c regression
SET client_min_messages = warning;
-- Nor does a right to mint come back with snowflake_next_id(integer), if that itself is missing.
CREATE DATABASE lacking;
\! ./install lacking
\c lacking
SET client_min_messages = warning;
DROP FUNCTION snowflake_next_id(integer) CASCADE;
DROP FUNCTION snowflake_next_ids(integer, integer);
REVOKE ALL ON FUNCTION snowflake_next_id() FROM PUBLIC;
CREATE EXTENSION idgen;
SELECT oid::regprocedure AS function, proacl FROM pg_proc
WHERE pronamespace = 'public'::regnamespace AND proname ~ '^snowflake_next_id' ORDER BY 1;
\c regression
SET client_min_messages = warning;
DROP DATABASE copy;
DROP DATABASE lacking;
DROP VIEW rights;
DROP TABLE rights_before, users_before, posts_before, defaults_before;
ALTER DATABASE regression OWNER TO postgres;
DROP TABLE users, posts, labels CASCADE;
DROP OWNED BY regress_idgen_owner, regress_idgen_user;
DROP ROLE regress_idgen_owner, regress_idgen_user;
