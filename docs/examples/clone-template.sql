-- Clones the tables of the schema template, with defaults, indexes, checks and foreign keys, into shard100 to shard163,
-- and gives each schema its shard; see docs/shards.md. Fill in the schema and the numbers. Run it as the owner of the
-- tables, outside a transaction. It commits after each schema, and skips those that exist.
DO $$
DECLARE
    template CONSTANT regnamespace := 'template';
    path CONSTANT text := current_setting('search_path');
    -- While the template is in the path, definitions name its tables without a schema.
    first CONSTANT text := set_config('search_path', concat(template, ', ', path), true);
    tables CONSTANT text[] := ARRAY(
        SELECT quote_ident(relname) FROM pg_catalog.pg_class
        WHERE relnamespace = template AND relkind = 'r' ORDER BY oid);
    keys CONSTANT text[] := ARRAY(
        SELECT concat('ALTER TABLE ', conrelid::regclass, ' ADD CONSTRAINT ', quote_ident(conname), ' ',
                      pg_get_constraintdef(oid))
        FROM pg_catalog.pg_constraint WHERE connamespace = template AND contype = 'f');
    -- The schema of the extension, which need not be in the search_path. The portable edition is found by that path.
    idgen CONSTANT text := (SELECT quote_ident(nspname) || '.' FROM pg_catalog.pg_extension AS e
                            JOIN pg_catalog.pg_namespace AS n ON n.oid = e.extnamespace WHERE extname = 'idgen');
    item text;
BEGIN
    FOR shard IN 100..163 LOOP
        CONTINUE WHEN to_regnamespace('shard' || shard) IS NOT NULL;
        EXECUTE 'CREATE SCHEMA shard' || shard;
        PERFORM set_config('search_path', concat('shard', shard, ', ', path), true);
        FOREACH item IN ARRAY tables LOOP
            EXECUTE concat('CREATE TABLE ', item, ' (LIKE ', template, '.', item, ' INCLUDING ALL)');
        END LOOP;
        FOREACH item IN ARRAY keys LOOP
            EXECUTE item;
        END LOOP;
        EXECUTE concat('SELECT ', idgen, 'snowflake_assign_shard($1, $2)') USING ('shard' || shard)::regnamespace, shard;
        COMMIT;
    END LOOP;
END
$$;
