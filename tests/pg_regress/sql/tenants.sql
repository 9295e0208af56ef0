-- What a superuser runs over the schema of a hostile tenant runs nothing of the tenant's.
SET client_min_messages = warning;
\set SHOW_CONTEXT never
CREATE ROLE regress_idgen_mallory;
CREATE SCHEMA mallory AUTHORIZATION regress_idgen_mallory;
CREATE SCHEMA neighbor;
CREATE TABLE neighbor.photos (id bigint DEFAULT snowflake_next_id(7020));

-- A trap uses all rights of its caller.
SET ROLE regress_idgen_mallory;
CREATE FUNCTION mallory.trap() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
        ALTER ROLE regress_idgen_mallory SUPERUSER;
    END IF;
    RETURN true;
END $$;
CREATE DOMAIN mallory.domain AS text CHECK (mallory.trap());
CREATE DOMAIN mallory.id AS bigint CHECK (mallory.trap());
CREATE DOMAIN mallory.minting AS bigint DEFAULT snowflake_next_id(7001) CHECK (mallory.trap());
CREATE TYPE mallory.composite AS (member mallory.domain);
CREATE TYPE mallory.range AS RANGE (subtype = mallory.domain);
CREATE FUNCTION mallory.cast(bigint) RETURNS mallory.composite LANGUAGE plpgsql IMMUTABLE AS
    $$ BEGIN PERFORM mallory.trap(); RETURN ROW('x'); END $$;
CREATE CAST (bigint AS mallory.composite) WITH FUNCTION mallory.cast(bigint) AS ASSIGNMENT;
CREATE FUNCTION mallory.plus(bigint, integer) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS
    $$ BEGIN PERFORM mallory.trap(); RETURN $1; END $$;
CREATE OPERATOR mallory.|| (FUNCTION = mallory.plus, LEFTARG = bigint, RIGHTARG = integer);
CREATE FUNCTION mallory.snowflake_next_id(shard integer) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS
    $$ BEGIN PERFORM mallory.trap(); RETURN 1; END $$;
RESET ROLE;

CREATE FUNCTION attack(type text, expression text, OUT answer text, OUT stolen boolean) LANGUAGE plpgsql AS $$
BEGIN
    SET LOCAL ROLE regress_idgen_mallory;
    EXECUTE format('CREATE TABLE mallory.photos (id %s %s)', type, 'DEFAULT ' || expression);
    RESET ROLE;
    BEGIN
        answer := (SELECT count(*) FROM snowflake_assign_shard('mallory', 7007));
    EXCEPTION WHEN OTHERS THEN
        answer := sqlstate;
    END;
    SELECT rolsuper INTO stolen FROM pg_roles WHERE rolname = 'regress_idgen_mallory';
    ALTER ROLE regress_idgen_mallory NOSUPERUSER;
    DROP TABLE mallory.photos;
END $$;
-- What a parser would run is refused,
SELECT type, expression, attack.*
FROM (VALUES
    ('bigint', $$public.snowflake_next_id(7001) + cardinality('{x}'::mallory.domain[]) * 0$$),
    ('bigint', $$CASE WHEN '(x)'::mallory.composite IS NULL THEN 1 ELSE public.snowflake_next_id(7001) END$$),
    ('bigint', $$CASE WHEN isempty('[x,y]'::mallory.range) THEN 1 ELSE public.snowflake_next_id(7001) END$$),
    ('text', $$('x'::mallory.domain)::text || public.snowflake_next_id(7001)$$),
    ('mallory.domain[]', $$ARRAY['x', public.snowflake_next_id(7001)::text]$$),
    ('text', $$'{x}'::mallory.domain[] || public.snowflake_next_id(7001)::text$$),
    ('bigint', 'public.snowflake_next_id(7001) OPERATOR(mallory.||) 2'),
    ('bigint', 'public.snowflake_next_id(7001) + mallory.snowflake_next_id(7001)'),
    ('bigint', 'public.snowflake_next_id(mallory.trap()::integer)')) AS defaults (type, expression),
    attack(type, expression);
-- as is what could come out as something else, because PostgreSQL writes it as the session's settings have it,
SELECT type, expression, attack.*
FROM (VALUES
    ('float8', $$public.snowflake_next_id(7001) + '0.12345678901234568'::float8$$),
    ('text', $$public.snowflake_next_id(7001) || '2026-01-02 03:04:05+06'::timestamptz::text$$),
    ('text', $$public.snowflake_next_id(7001) || '1 day 2 hours'::interval::text$$),
    ('bytea', $$convert_to(public.snowflake_next_id(7001)::text || 'a', 'UTF8') || 'a'::bytea$$)) AS defaults (type, expression),
    attack(type, expression);
-- and the rest runs nothing, whatever the type of the column is.
SELECT type, expression, attack.*
FROM (VALUES
    ('mallory.id', 'public.snowflake_next_id(7001)'),
    ('mallory.minting', NULL),
    ('mallory.composite', 'public.snowflake_next_id(7001)'),
    ('mallory.domain', $$'id-' || public.snowflake_next_id(7001)$$)) AS defaults (type, expression),
    attack(type, expression);

-- What is refused can be given the shard by its owner; then the rest of the schema gets it.
SET ROLE regress_idgen_mallory;
CREATE TABLE mallory."The Photos" (
    id bigint DEFAULT public.snowflake_next_id(7001), "the n" bigint DEFAULT abs(public.snowflake_next_id(7001))
);
RESET ROLE;
SELECT snowflake_assign_shard('mallory', 7007);
ALTER TABLE ONLY mallory."The Photos" ALTER COLUMN "the n" SET DEFAULT abs(public.snowflake_next_id(7007));
SELECT * FROM snowflake_assign_shard('mallory', 7007);
DROP TABLE mallory."The Photos";

-- A default that PostgreSQL cannot print, or only slowly, is shown as a comment, and blocks nobody.
SET ROLE regress_idgen_mallory;
CREATE TABLE mallory.photos (nested bigint, expanded bigint, long text DEFAULT repeat('x', 3) || public.snowflake_next_id(7001));
DO $$
BEGIN
    FOR depth IN REVERSE 5000 .. 1000 BY 500 LOOP
        BEGIN
            EXECUTE format('ALTER TABLE mallory.photos ALTER nested SET DEFAULT %s public.snowflake_next_id(7001) %s',
                           repeat('abs(', depth), repeat(')', depth));
            EXIT;
        EXCEPTION WHEN OTHERS THEN
        END;
    END LOOP;
    EXECUTE format('ALTER TABLE mallory.photos ALTER long SET DEFAULT %L || public.snowflake_next_id(7001)', repeat('x', 100000));
    -- A few bytes, of which PostgreSQL prints a hundred thousand digits.
    EXECUTE format('ALTER TABLE mallory.photos ALTER expanded
                    SET DEFAULT public.snowflake_next_id(array_length(%L::numeric[], 1))', '{1e131071}');
END $$;
RESET ROLE;
SELECT "column", shard, expression FROM idgen_columns WHERE schema = 'mallory' ORDER BY "column" COLLATE "C";
SELECT * FROM snowflake_assign_shard('neighbor', 7021);
\set VERBOSITY sqlstate
SELECT * FROM snowflake_assign_shard('mallory', 7007);
\set VERBOSITY default
DROP TABLE mallory.photos;

-- What the rule of CONTRIBUTING.md relies on: to plan a query evaluates the constant parts of an index, and COPY does not
-- plan one.
SET ROLE regress_idgen_mallory;
CREATE FUNCTION mallory.constant() RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN mallory.trap(); END $$;
CREATE TABLE mallory.indexed (
    id bigint DEFAULT public.snowflake_next_id(7007), CHECK (mallory.trap() OR id > 0), deep bigint,
    CONSTRAINT "%s "" of 7007" CHECK (mallory.trap() AND public.shard_of(id) = 7007),
    generated bigint GENERATED ALWAYS AS (id + mallory.constant()::integer) STORED
);
DO $$ BEGIN
    EXECUTE format('ALTER TABLE mallory.indexed ALTER deep SET DEFAULT %s 5 %s', repeat('abs(', 1000), repeat(')', 1000));
END $$;
CREATE INDEX ON mallory.indexed (mallory.constant());
RESET ROLE;
COPY mallory.indexed (id) TO STDOUT;
SELECT snowflake_assign_shard('mallory', 7008);
SELECT rolsuper FROM pg_roles WHERE rolname = 'regress_idgen_mallory';
SELECT max(id) FROM mallory.indexed;
SELECT rolsuper FROM pg_roles WHERE rolname = 'regress_idgen_mallory';

DROP FUNCTION attack;
DROP SCHEMA mallory, neighbor CASCADE;
DROP ROLE regress_idgen_mallory;
RESET client_min_messages;
