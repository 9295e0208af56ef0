-- DROP EXTENSION idgen CASCADE drops what idgen_dependents shows, and idgen can be removed without loss of data.
\pset null -
\pset format unaligned
SET client_min_messages = error;    -- what CASCADE tells, and that wal_level is too low for a publication

-- Every kind of object that can depend on a function, view or type of idgen, and what is dropped with each. Those
-- named stays_ are not dropped.
CREATE SCHEMA "My ""shop"".x";
SET search_path = "My ""shop"".x", public;
CREATE TABLE stays_plain (id bigint PRIMARY KEY DEFAULT snowflake_next_id(5), n integer);
CREATE TABLE "stays ""Quoted""" ("the id" bigint DEFAULT snowflake_next_id(5));
CREATE TABLE stays_reference (id bigint REFERENCES stays_plain);
CREATE DOMAIN photo_id AS bigint DEFAULT snowflake_next_id(5);
CREATE DOMAIN narrow_id AS photo_id CHECK (value > 0);
CREATE DOMAIN stays_checked AS bigint CHECK (shard_of(value) < 10);
CREATE DOMAIN of_layout AS snowflake_layouts;
CREATE DOMAIN of_shard AS integer DEFAULT shard_of(5) CHECK (shard_of(value) < 10);
CREATE TABLE stays_of_domain (id narrow_id UNIQUE, n integer UNIQUE, c stays_checked, many photo_id[]);
CREATE INDEX of_domain_n ON stays_of_domain (n) WHERE id > 5;
CREATE TABLE stays_refers (id narrow_id REFERENCES stays_of_domain (id), n integer);
CREATE TABLE stays_refers_n (n integer REFERENCES stays_of_domain (n));
CREATE TYPE stays_composite AS (a integer, b photo_id);
CREATE TABLE stays_of_composite (c stays_composite);
CREATE TABLE stays_typed OF stays_composite;
CREATE TABLE parted_by_domain (id photo_id, n integer) PARTITION BY RANGE (id);
CREATE TABLE parted_by_domain_1 PARTITION OF parted_by_domain FOR VALUES FROM (0) TO (10);
CREATE TABLE stays_row (n integer, r parted_by_domain, many parted_by_domain[]);
CREATE TABLE parted (id bigint DEFAULT snowflake_next_id(5), body text, s serial)
    PARTITION BY LIST (shard_of(id));
CREATE TABLE parted_5 PARTITION OF parted FOR VALUES IN (5);
CREATE TABLE parted_6 PARTITION OF parted FOR VALUES IN (6)
    PARTITION BY RANGE ((shard_of(id) + 1));
CREATE TABLE parted_6_a PARTITION OF parted_6 FOR VALUES FROM (0) TO (10);
CREATE INDEX ON parted (id);
CREATE VIEW over_parted AS SELECT id FROM parted;
CREATE FUNCTION rows_of_parted() RETURNS SETOF parted LANGUAGE sql AS 'SELECT * FROM parted';
CREATE TABLE hashed (n integer GENERATED ALWAYS AS IDENTITY, id bigint) PARTITION BY HASH (n, shard_of(id));
CREATE TABLE stays_other (
    id bigint, g integer GENERATED ALWAYS AS (shard_of(id)) STORED, n integer,
    CONSTRAINT a_check CHECK (shard_of(id) < 100),
    CONSTRAINT an_exclusion EXCLUDE USING btree ((shard_of(id)) WITH =)
);
CREATE INDEX other_g ON stays_other (g);
CREATE UNIQUE INDEX other_x ON stays_other (shard_of(id));
CREATE INDEX other_p ON stays_other (id) WHERE shard_of(id) = 5;
CREATE STATISTICS other_s ON (shard_of(id)), n FROM stays_other;
CREATE STATISTICS other_g_n ON g, n FROM stays_other;
CREATE POLICY a_policy ON stays_other USING (shard_of(id) = 5);
CREATE FUNCTION stays_trigger() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER a_trigger BEFORE INSERT ON stays_other FOR EACH ROW WHEN (shard_of(NEW.id) = 5)
    EXECUTE FUNCTION stays_trigger();
CREATE RULE a_rule AS ON INSERT TO stays_other WHERE shard_of(NEW.id) = 7 DO ALSO NOTHING;
CREATE PUBLICATION stays_publication FOR TABLE stays_other (id, n), stays_of_domain, parted;
CREATE TABLE stays_ranged (
    id bigint DEFAULT snowflake_next_id(5), n integer, CONSTRAINT a_check CHECK (shard_of(id) >= 0)
) PARTITION BY RANGE (n);
CREATE TABLE stays_ranged_1 PARTITION OF stays_ranged FOR VALUES FROM (0) TO (10);
CREATE TABLE stays_ranged_2 PARTITION OF stays_ranged FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (n);
CREATE TABLE stays_ranged_2a PARTITION OF stays_ranged_2 FOR VALUES FROM (10) TO (20);
CREATE INDEX ranged_shard ON stays_ranged (shard_of(id));
CREATE TRIGGER a_trigger BEFORE INSERT ON stays_ranged FOR EACH ROW WHEN (shard_of(NEW.id) = 5)
    EXECUTE FUNCTION stays_trigger();
CREATE TABLE stays_generated (
    id bigint DEFAULT snowflake_next_id(5), n integer, g text GENERATED ALWAYS AS (snowflake_text(id)) STORED
) PARTITION BY RANGE (n);
CREATE TABLE stays_generated_1 PARTITION OF stays_generated FOR VALUES FROM (0) TO (20);
CREATE TABLE stays_parent (
    id bigint DEFAULT snowflake_next_id(5), g integer GENERATED ALWAYS AS (shard_of(id)) STORED,
    CONSTRAINT a_check CHECK (shard_of(id) >= 0)
);
CREATE TABLE stays_child (m integer) INHERITS (stays_parent);
CREATE VIEW a_view AS SELECT id, shard_of(id) AS shard FROM stays_plain;
CREATE VIEW view_on_view AS SELECT * FROM a_view;
ALTER VIEW view_on_view ALTER id SET DEFAULT snowflake_next_id(5);
CREATE VIEW stays_view AS SELECT id FROM stays_plain;
ALTER VIEW stays_view ALTER id SET DEFAULT snowflake_next_id(5);
CREATE MATERIALIZED VIEW materialized AS SELECT * FROM view_on_view;
CREATE VIEW of_status AS SELECT mark, warning FROM idgen_status;
CREATE FUNCTION atomic() RETURNS bigint LANGUAGE sql RETURN snowflake_next_id(5);
CREATE TABLE stays_atomic (id bigint DEFAULT atomic());
CREATE FUNCTION of_default(a bigint DEFAULT snowflake_next_id(5)) RETURNS bigint LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION of_type(v idgen_status) RETURNS integer LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION of_two(bigint, bigint) RETURNS bigint LANGUAGE sql RETURN shard_of($1);
CREATE AGGREGATE of_aggregate (bigint) (SFUNC = of_two, STYPE = bigint);
CREATE OPERATOR @@@ (FUNCTION = shard_of, RIGHTARG = bigint);
CREATE CAST (idgen_status AS text) WITH INOUT;
CREATE FUNCTION of_extension() RETURNS integer LANGUAGE sql AS 'SELECT 1';
ALTER FUNCTION of_extension() DEPENDS ON EXTENSION idgen;
CREATE TRIGGER of_view INSTEAD OF INSERT ON idgen_status FOR EACH ROW EXECUTE FUNCTION stays_trigger();
CREATE FOREIGN DATA WRAPPER nowhere;
CREATE SERVER nowhere FOREIGN DATA WRAPPER nowhere;
CREATE FOREIGN TABLE stays_foreign (id bigint DEFAULT snowflake_next_id(5), d photo_id) SERVER nowhere;
CREATE TYPE photo_range AS RANGE (subtype = photo_id, multirange_type_name = photo_ranges);
CREATE TABLE stays_ranges (one photo_range, n integer, many photo_ranges);
CREATE TABLE stays_owner (id photo_id, n integer);
CREATE SEQUENCE owned OWNED BY stays_owner.id;
CREATE TABLE stays_default_of_owned (n integer DEFAULT nextval('owned'));
CREATE FUNCTION compare(bigint, bigint) RETURNS integer LANGUAGE sql IMMUTABLE
    RETURN shard_of($1) - shard_of($2);
CREATE OPERATOR CLASS by_shard FOR TYPE bigint USING btree AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 compare(bigint, bigint);
CREATE TABLE parted_by_class (id bigint) PARTITION BY RANGE (id by_shard);
CREATE TABLE stays_referred (n integer, id photo_id, UNIQUE (n, id)) PARTITION BY RANGE (n);
CREATE TABLE stays_referred_1 PARTITION OF stays_referred FOR VALUES FROM (0) TO (10);
CREATE TABLE stays_referring (n integer, id bigint, FOREIGN KEY (n, id) REFERENCES stays_referred (n, id))
    PARTITION BY RANGE (n);
CREATE TABLE stays_referring_1 PARTITION OF stays_referring FOR VALUES FROM (0) TO (10);
-- Objects that it cannot see.
CREATE FUNCTION stays_unseen() RETURNS bigint LANGUAGE sql AS 'SELECT snowflake_next_id(5)';
CREATE TABLE stays_unseen (id bigint DEFAULT stays_unseen());
INSERT INTO parted (body) SELECT 'a' FROM generate_series(1, 100);
INSERT INTO stays_of_domain (n) SELECT generate_series(1, 100);
INSERT INTO stays_ranged (n) SELECT generate_series(1, 19);
INSERT INTO stays_generated (n) SELECT generate_series(1, 19);
RESET search_path;

-- The search_path does not change the names, and every role may read them.
SELECT kind, object, data, bytes > 0 AS bytes, depends_on FROM idgen_dependents;
SELECT md5(string_agg(d::text, ',' ORDER BY d::text)) AS list FROM idgen_dependents AS d \gset
SET search_path = "My ""shop"".x";
SELECT md5(string_agg(d::text, ',' ORDER BY d::text)) = :'list' AS same FROM public.idgen_dependents AS d;
RESET search_path;
CREATE ROLE regress_idgen_user;
SET ROLE regress_idgen_user;
SELECT md5(string_agg(d::text, ',' ORDER BY d::text)) = :'list' AS same FROM idgen_dependents AS d;
RESET ROLE;

-- Everything in this database, from its catalogs.
CREATE FUNCTION pg_temp.objects() RETURNS TABLE (classid oid, objid oid, objsubid integer)
LANGUAGE plpgsql AS $$
DECLARE
    catalog regclass;
BEGIN
    FOR catalog IN
        SELECT attrelid FROM pg_attribute JOIN pg_class AS c ON c.oid = attrelid
        WHERE attname = 'oid' AND relnamespace = 'pg_catalog'::regnamespace AND relkind = 'r'
          AND NOT relisshared
    LOOP
        RETURN QUERY EXECUTE format('SELECT tableoid, oid, 0 FROM %s', catalog);
    END LOOP;
    RETURN QUERY SELECT 'pg_class'::regclass::oid, attrelid, attnum::integer
                 FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped;
END $$;
-- The members of the extension, which are dropped in any case.
CREATE TEMP VIEW own AS
    WITH RECURSIVE own AS (
        SELECT tableoid AS classid, oid AS objid FROM pg_extension WHERE extname = 'idgen'
        UNION SELECT d.classid, d.objid FROM own AS o JOIN pg_depend AS d
            ON (d.refclassid, d.refobjid) = (o.classid, o.objid) AND d.deptype IN ('e', 'i'))
    SELECT * FROM own;

-- Exactly the objects that the view has shown are gone.
BEGIN;
CREATE TEMP TABLE before AS
    SELECT *, pg_describe_object(classid, objid, objsubid) AS name, (classid, objid) IN (TABLE own) AS own
    FROM pg_temp.objects();
CREATE TEMP TABLE said AS SELECT * FROM idgen_dependents();
DROP EXTENSION idgen CASCADE;
CREATE TEMP TABLE gone AS
    SELECT before.* FROM before LEFT JOIN pg_temp.objects() AS o USING (classid, objid, objsubid)
    WHERE o.objid IS NULL;
SELECT count(*) > 350 AS gone FROM gone;
SELECT name AS gone_and_not_said FROM gone AS g
WHERE NOT own AND NOT EXISTS (
    SELECT FROM said AS s WHERE (s.classid, s.objid) = (g.classid, g.objid) AND s.objsubid IN (0, g.objsubid));
SELECT kind, object AS said_and_not_gone FROM said AS s
WHERE NOT EXISTS (SELECT FROM gone AS g WHERE (g.classid, g.objid, g.objsubid) = (s.classid, s.objid, s.objsubid));
-- Nothing with data is left to be guessed.
SELECT kind, object AS data_not_shown FROM said WHERE data IS NOT NULL AND is_part;
ROLLBACK;

-- Removal without loss, as in the runbook. First the partition keys of tables:
BEGIN;
ALTER EXTENSION idgen DROP FUNCTION shard_of(bigint);
CREATE OR REPLACE FUNCTION shard_of(id bigint) RETURNS integer
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN (id >> 10 & 8191)::integer;
-- then the objects with a statement,
SELECT statement FROM idgen_dependents WHERE statement IS NOT NULL;
SELECT statement FROM idgen_dependents WHERE statement IS NOT NULL \gexec
-- and the rest has no data.
SELECT kind, object, data, statement FROM idgen_dependents;
SET search_path = "My ""shop"".x", public;
DROP FUNCTION of_default, of_type;
DROP FUNCTION atomic;
DROP VIEW of_status;
DROP DOMAIN of_layout;
DROP CAST (idgen_status AS text);
RESET search_path;
-- Then DROP EXTENSION drops only what is meant to be dropped with it,
SELECT kind, object FROM idgen_dependents;
DROP EXTENSION idgen;
-- and every row has its values.
SET search_path = "My ""shop"".x";
SELECT count(*), count(DISTINCT tableoid) AS partitions FROM parted;
SELECT count(id) AS ids FROM stays_of_domain;
SELECT count(*) FILTER (WHERE public.shard_of(id) = 5) AS of_shard_5 FROM stays_ranged;
SELECT count(g) AS generated FROM stays_generated;
INSERT INTO parted (id) VALUES (5 << 10);
SELECT count(*) FROM parted_5 WHERE public.shard_of(id) = 5;
INSERT INTO stays_ranged (id, n) VALUES (5 << 10, 5);
RESET search_path;
ROLLBACK;

DROP VIEW own;
DROP ROLE regress_idgen_user;
DROP TRIGGER of_view ON idgen_status;
DROP CAST (idgen_status AS text);
DROP PUBLICATION stays_publication;
DROP SCHEMA "My ""shop"".x" CASCADE;
DROP FOREIGN DATA WRAPPER nowhere CASCADE;
-- Nothing depends on it.
SELECT count(*) FROM idgen_dependents;
