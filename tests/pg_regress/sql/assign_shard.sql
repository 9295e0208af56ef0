-- The columns that mint, with their shards; and how a schema gets another shard.
\pset null -
\pset format unaligned
SET client_min_messages = warning;

-- Every kind of default. Columns named other_ do not mint, or not by a call that the catalog knows.
CREATE SCHEMA insta5;
SET search_path = insta5, public;
CREATE TABLE plain (
    id bigint PRIMARY KEY DEFAULT snowflake_next_id(5),
    body text DEFAULT 'snowflake_next_id(6)'
);
CREATE TABLE of_session (id bigint DEFAULT snowflake_next_id());
CREATE TABLE named (id bigint DEFAULT snowflake_next_id(shard => 5));
CREATE TABLE wrapped (
    as_text text DEFAULT snowflake_next_id(5)::text,
    as_numeric numeric DEFAULT snowflake_next_id(5),
    prefixed text DEFAULT 'public.snowflake_next_id(6) %s 100%% it''s: ' || snowflake_next_id(5),
    escaped text DEFAULT E'\\''public.snowflake_next_id(7)' || snowflake_next_id(5),
    twice text DEFAULT snowflake_next_id(5)::varchar || '-' || snowflake_next_id(5)::numeric
);
CREATE TABLE "Quoted ""one""" (
    "the id" bigint DEFAULT snowflake_next_id(5),
    "%1$s" bigint DEFAULT snowflake_next_id(5)
);
CREATE DOMAIN photo_id AS bigint DEFAULT snowflake_next_id(5) CHECK (value > 0);
CREATE DOMAIN narrow_photo_id AS photo_id;
CREATE TABLE of_domain (
    id photo_id, narrow narrow_photo_id, none photo_id DEFAULT NULL, own photo_id DEFAULT snowflake_next_id(4)
);
CREATE TABLE parent (id bigint DEFAULT snowflake_next_id(5), n integer);
CREATE TABLE child () INHERITS (parent);
CREATE TABLE child_without () INHERITS (parent);
ALTER TABLE ONLY child_without ALTER COLUMN id DROP DEFAULT;
CREATE TABLE partitioned (id bigint DEFAULT snowflake_next_id(5), n integer) PARTITION BY RANGE (n);
CREATE TABLE partition_1 PARTITION OF partitioned FOR VALUES FROM (0) TO (10);
CREATE TABLE partition_2 PARTITION OF partitioned FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (n);
CREATE TABLE partition_2a PARTITION OF partition_2 (id DEFAULT snowflake_next_id(6))
    FOR VALUES FROM (10) TO (15);
CREATE VIEW a_view AS SELECT * FROM plain;
ALTER VIEW a_view ALTER COLUMN id SET DEFAULT snowflake_next_id(5);
CREATE FOREIGN DATA WRAPPER nowhere;
CREATE SERVER nowhere FOREIGN DATA WRAPPER nowhere;
CREATE FOREIGN TABLE a_foreign_table (id bigint DEFAULT snowflake_next_id(5)) SERVER nowhere;
CREATE UNLOGGED TABLE an_unlogged_table (id bigint DEFAULT snowflake_next_id(5));
CREATE TEMP TABLE other_temporary (LIKE plain INCLUDING ALL, of_domain photo_id);
CREATE MATERIALIZED VIEW other_materialized AS SELECT * FROM of_domain;
CREATE FUNCTION wrapper() RETURNS bigint LANGUAGE sql RETURN snowflake_next_id(5);
CREATE TABLE other_wrapper (id bigint DEFAULT wrapper());
-- Another function of the same name, and ours with other arguments.
CREATE FUNCTION insta5.snowflake_next_id(shard integer) RETURNS bigint LANGUAGE sql RETURN 1;
CREATE FUNCTION public.snowflake_next_id(shard bigint) RETURNS bigint LANGUAGE sql RETURN 1;
CREATE TABLE other_function (
    id bigint DEFAULT insta5.snowflake_next_id(5),
    b bigint DEFAULT public.snowflake_next_id(5::bigint)
);
CREATE TABLE dropped (id bigint DEFAULT public.snowflake_next_id(5), n integer);
ALTER TABLE dropped DROP COLUMN id;
RESET search_path;

-- PostgreSQL doubles a backslash in a literal where standard_conforming_strings is off.
CREATE FUNCTION as_shown(expression text) RETURNS text LANGUAGE sql
    RETURN replace(expression, repeat(chr(92), 2), chr(92));
-- The search_path does not change the expression.
SELECT "table", "column", shard, as_shown(expression) AS expression FROM idgen_columns
WHERE schema IN ('insta5', pg_my_temp_schema()::regnamespace::text)
ORDER BY "table" COLLATE "C", "column" COLLATE "C";
SELECT md5(string_agg(c::text, ',' ORDER BY c::text)) AS columns FROM idgen_columns AS c \gset
SET search_path = insta5, public;
SELECT md5(string_agg(c::text, ',' ORDER BY c::text)) = :'columns' AS same FROM idgen_columns AS c;
RESET search_path;

-- All of them mint for shard 7 afterwards, and nothing else about them changes.
CREATE FUNCTION columns_of(schema text) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT format('%s.%s %s %s', "table", "column", coalesce(shard::text, '-'), expression)
    FROM idgen_columns WHERE schema = columns_of.schema ORDER BY "table" COLLATE "C", "column" COLLATE "C"
$$;
SELECT "table", "column", as_shown(old_default) AS old_default, as_shown(new_default) AS new_default
FROM snowflake_assign_shard('insta5', 7)
ORDER BY "table" COLLATE "C", "column" COLLATE "C";
SELECT count(*) AS columns, count(*) FILTER (WHERE shard = 7) AS of_shard_7
FROM idgen_columns WHERE schema = 'insta5';
-- A second call has nothing to do, and takes no lock.
BEGIN;
SELECT * FROM snowflake_assign_shard('insta5', 7);
SELECT count(*) FROM pg_locks
WHERE mode = 'AccessExclusiveLock' AND locktype = 'relation' AND pid = pg_backend_pid();
ROLLBACK;
-- The defaults work, and other defaults are as before.
INSERT INTO insta5.plain DEFAULT VALUES RETURNING shard_of(id), body;
INSERT INTO insta5.wrapped DEFAULT VALUES
RETURNING shard_of(as_text::bigint), shard_of(as_numeric::bigint),
          regexp_replace(prefixed, '[0-9]+$', '') AS prefixed, regexp_replace(escaped, '[0-9]+$', '') AS escaped,
          shard_of(split_part(twice, '-', 1)::bigint), shard_of(split_part(twice, '-', 2)::bigint);
INSERT INTO insta5.of_domain DEFAULT VALUES RETURNING shard_of(id), shard_of(narrow), none, shard_of(own);
INSERT INTO insta5.partitioned (n) VALUES (1) RETURNING shard_of(id);
INSERT INTO insta5.partition_2a (n) VALUES (12) RETURNING shard_of(id);
INSERT INTO insta5.child_without DEFAULT VALUES RETURNING id;
INSERT INTO insta5.child DEFAULT VALUES RETURNING shard_of(id);
INSERT INTO insta5.a_view DEFAULT VALUES RETURNING shard_of(id);
INSERT INTO insta5.other_wrapper DEFAULT VALUES RETURNING shard_of(id);
INSERT INTO insta5.other_function DEFAULT VALUES RETURNING id, b;

-- A rollback of the transaction undoes it.
BEGIN;
SELECT count(*) FROM snowflake_assign_shard('insta5', 8);
ROLLBACK;
SELECT count(*) AS of_shard_8 FROM idgen_columns WHERE shard = 8;

-- A shard of another schema is refused, unless it is to be shared.
CREATE SCHEMA "Insta 6";
CREATE TABLE "Insta 6"."Photos" (id bigint DEFAULT snowflake_next_id());
\i `echo $PG_ABS_SRCDIR/refused.sql`
\x
SELECT * FROM refused($$SELECT snowflake_assign_shard('"Insta 6"', 7)$$);
SELECT * FROM snowflake_assign_shard('"Insta 6"', 7, share => true);
SELECT * FROM refused($$SELECT snowflake_assign_shard('insta5', 7)$$);
SELECT * FROM snowflake_assign_shard('"Insta 6"', 6);

-- A shard that is not a plain number is not guessed, and of what surrounds a call only little is written again. Nothing
-- is changed.
CREATE TABLE insta5.more (
    twice bigint DEFAULT greatest(snowflake_next_id(7), snowflake_next_id(7)),
    array_of bigint[] DEFAULT ARRAY[snowflake_next_id(7), 5],
    both_functions bigint DEFAULT insta5.snowflake_next_id(5) + public.snowflake_next_id(7)
);
CREATE TABLE insta5.by_setting (id bigint DEFAULT snowflake_next_id(current_setting('app.shard')::integer));
CREATE TABLE insta5.computed (id bigint DEFAULT coalesce(snowflake_next_id(5), snowflake_next_id(4 + 1)));
CREATE TABLE insta5.of_null (id bigint DEFAULT snowflake_next_id(NULL::integer));
CREATE TABLE insta5.negative (id bigint DEFAULT snowflake_next_id(-1));
SELECT * FROM refused($$SELECT snowflake_assign_shard('insta5', 8)$$);
SELECT "table", shard FROM idgen_columns WHERE schema = 'insta5' AND shard IS DISTINCT FROM 7
ORDER BY "table" COLLATE "C";
SELECT "column", shard FROM idgen_columns WHERE "table" = 'more' ORDER BY "column" COLLATE "C";
DROP TABLE insta5.more, insta5.by_setting, insta5.computed, insta5.of_null, insta5.negative;

-- Names and arguments may be quoted in a default, as this setting has it.
CREATE SCHEMA quoted;
CREATE TABLE quoted.users (
    id bigint DEFAULT snowflake_next_id(20),
    n bigint DEFAULT snowflake_next_id_js(shard => 20),
    note text DEFAULT 'it''s "public"."snowflake_next_id"(9) ' || snowflake_next_id(shard => 20)
);
SET quote_all_identifiers = on;
SELECT "column", shard, expression FROM idgen_columns WHERE schema = 'quoted' ORDER BY "column" COLLATE "C";
SELECT "column", new_default FROM snowflake_assign_shard('quoted', 21) ORDER BY "column" COLLATE "C";
RESET quote_all_identifiers;
SELECT "column", shard, expression FROM idgen_columns WHERE schema = 'quoted' ORDER BY "column" COLLATE "C";
-- With an older snapshot, it would undo changes of others, and could assign a shard twice.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT * FROM refused('SELECT snowflake_assign_shard(''quoted'', 22)');
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT * FROM refused('SELECT snowflake_assign_shard(''quoted'', 22)');
ROLLBACK;
DROP SCHEMA quoted CASCADE;

-- Ids that JavaScript keeps are minted for the shard too, and have room for no shard above 255.
CREATE SCHEMA js;
CREATE TABLE js.small (id bigint DEFAULT snowflake_next_id_js(10));
CREATE TABLE js.both_kinds (
    id bigint DEFAULT snowflake_next_id(10),
    n bigint DEFAULT snowflake_next_id_js(shard => 10)
);
CREATE TABLE js.large (id bigint DEFAULT snowflake_next_id(10));
SELECT * FROM columns_of('js');
SELECT * FROM refused($$SELECT snowflake_assign_shard('insta5', 10)$$);
SELECT * FROM refused($$SELECT snowflake_assign_shard('js', 256)$$);
SELECT "table", "column", new_default FROM snowflake_assign_shard('js', 255)
ORDER BY "table" COLLATE "C", "column" COLLATE "C";
DROP TABLE js.small, js.both_kinds;
SELECT new_default FROM snowflake_assign_shard('js', 256);
CREATE TABLE js.of_null (id bigint DEFAULT snowflake_next_id_js(NULL));
SELECT * FROM refused($$SELECT snowflake_assign_shard('js', 11)$$);
DROP SCHEMA js CASCADE;

-- Constraints that would refuse the new ids are named, and those of domains too, but not one that names the shard.
CREATE SCHEMA checked;
CREATE DOMAIN checked.base AS bigint CHECK (shard_of(value) = 30);
CREATE DOMAIN checked.key AS checked.base DEFAULT snowflake_next_id(30);
CREATE TABLE checked.users (
    id bigint DEFAULT snowflake_next_id(30) CONSTRAINT "of ""30""" CHECK (shard_of(id) = 30)
        CONSTRAINT wide CHECK (shard_of(id) IN (30, 230)),
    key checked.key,
    other bigint CHECK (shard_of(other) = 30),
    n integer CHECK (n > 0)
);
SELECT "column", new_default FROM snowflake_assign_shard('checked', 230) ORDER BY "column" COLLATE "C";
SELECT * FROM refused('INSERT INTO checked.users (n) VALUES (1)');
-- The shard before is named by them, and both shards may be.
SELECT "column", new_default FROM snowflake_assign_shard('checked', 30) ORDER BY "column" COLLATE "C";
ALTER TABLE checked.users DROP CONSTRAINT "of ""30""",
    ADD CONSTRAINT "of ""30""" CHECK (shard_of(id) IN (30, 230)) NOT VALID;
ALTER DOMAIN checked.base DROP CONSTRAINT base_check;
SELECT "column", new_default FROM snowflake_assign_shard('checked', 230) ORDER BY "column" COLLATE "C";
INSERT INTO checked.users (n) VALUES (1) RETURNING shard_of(id), shard_of(key);
-- So may those of partitions and children, wherever they are, whose columns have no default of their own.
CREATE SCHEMA elsewhere;
CREATE TABLE checked.events (id bigint DEFAULT snowflake_next_id(30), n integer,
    CONSTRAINT inherited CHECK (shard_of(id) = 30)) PARTITION BY RANGE (n);
CREATE TABLE elsewhere.events_1 (n integer, id bigint, CONSTRAINT own CHECK (shard_of(id) < 100));
ALTER TABLE elsewhere.events_1 ADD CONSTRAINT inherited CHECK (shard_of(id) = 30);
ALTER TABLE checked.events ATTACH PARTITION elsewhere.events_1 DEFAULT;
CREATE TABLE checked.logs (id bigint DEFAULT snowflake_next_id(30), n integer);
CREATE TABLE elsewhere.logs_1 (CONSTRAINT of_child CHECK (shard_of(id) = 30 AND n > 0)) INHERITS (checked.logs);
ALTER TABLE elsewhere.logs_1 ALTER COLUMN id DROP DEFAULT;
CREATE TABLE elsewhere.logs_2 (CONSTRAINT of_grandchild CHECK (shard_of(id) = 30)) INHERITS (elsewhere.logs_1);
SELECT "table", "column" FROM snowflake_assign_shard('checked', 230) ORDER BY "table" COLLATE "C";
DROP SCHEMA checked, elsewhere CASCADE;

-- Bad input.
\x
SELECT * FROM refusals('SELECT snowflake_assign_shard(%s)', 'NULL, 5', '''insta5'', NULL', '''insta5'', 5, NULL',
                       '''insta5'', 8192', '''insta5'', -1', '''nowhere'', 5', '0::regnamespace, 5');
CREATE SCHEMA bare;
SET client_min_messages = notice;
SELECT * FROM snowflake_assign_shard('bare', 5);
SET client_min_messages = warning;

-- It has the rights of its caller. Every role may read the view.
CREATE ROLE regress_idgen_owner;
CREATE ROLE regress_idgen_other;
GRANT USAGE, CREATE ON SCHEMA bare TO regress_idgen_owner, regress_idgen_other;
SET ROLE regress_idgen_owner;
CREATE TABLE bare.mine (id bigint DEFAULT snowflake_next_id(100));
SET ROLE regress_idgen_other;
SELECT * FROM columns_of('bare');
SELECT state, message FROM refused($$SELECT snowflake_assign_shard('bare', 101)$$);
SET ROLE regress_idgen_owner;
SELECT * FROM snowflake_assign_shard('bare', 101);
RESET ROLE;
DROP TABLE bare.mine;

-- A schema put first, and a temporary one, with functions and operators of the names that are used inside.
CREATE SCHEMA hostile;
CREATE FUNCTION hostile.trap(a name, b name) RETURNS boolean LANGUAGE plpgsql AS
    $$ BEGIN RAISE 'the search_path got in'; END $$;
CREATE OPERATOR hostile.= (FUNCTION = hostile.trap, LEFTARG = name, RIGHTARG = name);
CREATE OPERATOR hostile.<> (FUNCTION = hostile.trap, LEFTARG = name, RIGHTARG = name);
CREATE FUNCTION hostile.quote_ident(text) RETURNS text LANGUAGE plpgsql AS
    $$ BEGIN RAISE 'the search_path got in'; END $$;
CREATE FUNCTION hostile.format(text, VARIADIC text[]) RETURNS text LANGUAGE plpgsql AS
    $$ BEGIN RAISE 'the search_path got in'; END $$;
CREATE FUNCTION hostile.pg_advisory_xact_lock(integer, integer) RETURNS void LANGUAGE plpgsql AS
    $$ BEGIN RAISE 'the search_path got in'; END $$;
CREATE FUNCTION hostile.snowflake_next_id(shard integer) RETURNS bigint LANGUAGE sql RETURN 1;
CREATE VIEW hostile.pg_namespace AS SELECT 1 / 0 AS oid;
CREATE TEMP TABLE pg_attrdef (oid oid, adrelid oid, adnum integer, adbin integer);
CREATE TEMP TABLE plain (id bigint);
SET search_path = hostile, pg_temp, public, pg_catalog;
\set VERBOSITY terse
SELECT 'a'::name = 'b'::name;
\set VERBOSITY default
SELECT public.shard_of(5);
SELECT pg_catalog.count(*) FROM public.snowflake_assign_shard('insta5', 9);
SELECT pg_catalog.count(*) FROM public.idgen_columns WHERE shard OPERATOR(pg_catalog.=) 9;
RESET search_path;
DROP TABLE pg_temp.pg_attrdef, pg_temp.plain;

-- The extension in a schema whose name needs quotes: its functions are found there.
DROP SCHEMA insta5, "Insta 6", bare, hostile CASCADE;
DROP FOREIGN DATA WRAPPER nowhere CASCADE;
DROP TABLE other_temporary;
DROP FUNCTION public.snowflake_next_id(bigint);
DROP EXTENSION idgen;
CREATE SCHEMA "My (integer)+%s";
CREATE EXTENSION idgen SCHEMA "My (integer)+%s";
CREATE SCHEMA insta5;
CREATE TABLE insta5.plain (id bigint DEFAULT "My (integer)+%s".snowflake_next_id(5));
SELECT "table", shard, expression FROM "My (integer)+%s".idgen_columns;
SELECT * FROM "My (integer)+%s".snowflake_assign_shard('insta5', 6);
SELECT "table", shard, expression FROM "My (integer)+%s".idgen_columns;
DROP SCHEMA insta5 CASCADE;
DROP EXTENSION idgen;
DROP SCHEMA "My (integer)+%s";
CREATE EXTENSION idgen;

DROP FUNCTION columns_of, as_shown;
DROP ROLE regress_idgen_owner, regress_idgen_other;

-- A view of a column whose domain mints does so too, whatever the default of the column in its table.
CREATE SCHEMA viewed;
CREATE DOMAIN viewed.d AS bigint DEFAULT snowflake_next_id(50);
CREATE TABLE viewed.t (id viewed.d DEFAULT 7, n integer);
CREATE VIEW viewed.v AS SELECT id, n FROM viewed.t;
INSERT INTO viewed.v (n) VALUES (1) RETURNING shard_of(id);
SELECT "table", "column", shard FROM idgen_columns WHERE schema = 'viewed';
SELECT * FROM snowflake_assign_shard('viewed', 51);
INSERT INTO viewed.v (n) VALUES (1) RETURNING shard_of(id);
SET client_min_messages = warning;
DROP SCHEMA viewed CASCADE;
RESET client_min_messages;
