-- What a schema costs does not grow with the number of schemas, but for one pass over all defaults: counted in pages,
-- which are the same on any machine.
CREATE PROCEDURE make(first integer, last integer) LANGUAGE plpgsql AS $$
BEGIN
    FOR n IN first .. last LOOP
        EXECUTE format(
            'CREATE SCHEMA scale%1$s;
             CREATE TABLE scale%1$s.users (id bigint PRIMARY KEY DEFAULT snowflake_next_id(%1$s), name text);
             CREATE TABLE scale%1$s.photos (id bigint PRIMARY KEY DEFAULT snowflake_next_id(%1$s), name text);
             CREATE TABLE scale%1$s.likes (id bigint PRIMARY KEY DEFAULT snowflake_next_id(%1$s), n integer DEFAULT 5)', n);
        COMMIT;
    END LOOP;
END $$;
-- Pages that a statement visits, once the caches of this session have what it needs.
CREATE FUNCTION pages(statement text) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    plan json;
BEGIN
    FOR try IN 1 .. 3 LOOP
        EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, SUMMARY OFF, FORMAT JSON) ' || statement INTO plan;
    END LOOP;
    RETURN (plan -> 0 -> 'Plan' ->> 'Shared Hit Blocks')::integer
         + (plan -> 0 -> 'Plan' ->> 'Shared Read Blocks')::integer;
END $$;
CREATE TABLE counted (schemas integer, statement text, pages integer);
-- The pages of one pass over some catalogs. snowflake_assign_shard passes over all defaults, and all types, for a domain
-- may have a default. The view has names of type text, and a condition on the schema's passes over the names of all
-- schemas, for a column's own default and for that of its domain.
CREATE FUNCTION of_one_pass(catalogs regclass[]) RETURNS integer LANGUAGE sql AS
    'SELECT coalesce(sum(pg_relation_size(c) / current_setting(''block_size'')::integer), 0)::integer
     FROM unnest(catalogs) AS c';
CREATE PROCEDURE count_pages(schemas integer) LANGUAGE sql AS $$
    INSERT INTO counted
    SELECT schemas, statement, pages(statement) - of_one_pass(catalogs)
    FROM (VALUES
        ('SELECT * FROM idgen_columns WHERE schema = ''scale5''', '{pg_namespace, pg_namespace}'::regclass[]),
        ('SELECT * FROM idgen_columns WHERE schema = ''scale5'' AND "table" = ''users''',
         '{pg_namespace, pg_namespace}'),
        ('SELECT * FROM idgen_columns() WHERE namespace = ''scale5''::regnamespace', '{}'),
        ('SELECT * FROM idgen_columns() WHERE relation = ''only_here''::regclass', '{}'),
        ('SELECT * FROM snowflake_assign_shard(''scale5'', 5)', '{pg_attrdef, pg_type}')
    ) AS statements (statement, catalogs)
$$;
CREATE TABLE only_here (id bigint DEFAULT snowflake_next_id(8000));
CALL make(1, 20);
VACUUM ANALYZE;
CALL count_pages(20);
CALL make(21, 200);
VACUUM ANALYZE;
CALL count_pages(200);
-- Ten times the schemas: a quarter and 8 more pages for taller indexes and wider tables of the catalog, and a few for each of
-- the 180 defaults that have a 5 as well and do not mint.
SELECT statement, few.pages > 0 AS counted,
       many.pages <= few.pages * 1.25 + 8 + CASE WHEN statement LIKE '%assign%' THEN 5 * 180 ELSE 0 END AS holds
FROM counted AS few JOIN counted AS many USING (statement)
WHERE few.schemas = 20 AND many.schemas = 200 ORDER BY statement COLLATE "C";
