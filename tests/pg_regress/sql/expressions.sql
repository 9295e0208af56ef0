-- The function that reads a default raises no error for any other expression in the catalog.
CREATE TABLE wide (a integer, b integer, c text, d text, e integer CHECK (e > a), f integer GENERATED ALWAYS AS (e + 1) STORED);
CREATE INDEX ON wide (lower(d)) WHERE c IS NOT NULL;
CREATE STATISTICS wide_statistics ON (a + e), (b + e) FROM wide;
CREATE POLICY own ON wide USING (a IN (SELECT e FROM wide));
CREATE VIEW wide_view AS SELECT * FROM wide;
CREATE FUNCTION body() RETURNS integer LANGUAGE sql RETURN 5;
CREATE FUNCTION preset(a integer DEFAULT 5, b text DEFAULT 'x') RETURNS integer LANGUAGE sql RETURN a;
CREATE TABLE narrow (n integer) PARTITION BY RANGE ((n + 1));
CREATE TABLE narrow_1 PARTITION OF narrow FOR VALUES FROM (0) TO (10);
CREATE FUNCTION internal_errors(OUT expressions bigint, OUT failed text) LANGUAGE plpgsql AS $$
DECLARE
    item record;
    tree pg_node_tree;
BEGIN
    expressions := 0;
    failed := '';
    FOR item IN SELECT attrelid::regclass AS catalog, attname FROM pg_attribute JOIN pg_class AS c ON c.oid = attrelid
                WHERE atttypid = 'pg_node_tree'::regtype AND relkind = 'r' AND relnamespace = 'pg_catalog'::regnamespace
    LOOP
        FOR tree IN EXECUTE format('SELECT %I FROM %s WHERE %1$I IS NOT NULL', item.attname, item.catalog) LOOP
            expressions := expressions + 1;
            BEGIN
                PERFORM idgen_read_default(tree);
            EXCEPTION WHEN OTHERS THEN
                IF strpos(failed, sqlstate) = 0 THEN failed := concat(failed, ' ', sqlstate); END IF;
            END;
        END LOOP;
    END LOOP;
END $$;
SELECT expressions > 100 AS expressions, failed FROM internal_errors();
DROP FUNCTION internal_errors, body, preset;
DROP VIEW wide_view;
DROP TABLE wide, narrow;
