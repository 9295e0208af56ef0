-- Gives every key of a schema that is declared as identity or serial a default that mints, and removes its sequence;
-- see docs/cookbook.md. Fill in the schema and the shard. Run it as the owner of the tables, by psql or in a migration,
-- before the first row is inserted, and again after each migration. Each table is locked (ACCESS EXCLUSIVE) until the
-- transaction ends. A key is skipped that is an integer, has another default, or has a sequence that is used elsewhere.
DO $$
DECLARE
    schema CONSTANT regnamespace := 'shop';
    shard CONSTANT integer := 5;
    -- The schema of the extension, which need not be in the search_path. The portable edition is found by that path.
    idgen CONSTANT text := (SELECT quote_ident(nspname) || '.' FROM pg_catalog.pg_extension AS e
                            JOIN pg_catalog.pg_namespace AS n ON n.oid = e.extnamespace WHERE extname = 'idgen');
    item record;
BEGIN
    FOR item IN
        SELECT c.oid::regclass AS name, quote_ident(a.attname) AS key, a.attidentity <> '' AS is_identity,
               pg_get_serial_sequence(c.oid::regclass::text, a.attname) AS sequence
        FROM pg_catalog.pg_class AS c
             JOIN pg_catalog.pg_index AS i ON i.indrelid = c.oid AND i.indisprimary
             JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey)
             LEFT JOIN pg_catalog.pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum
        WHERE c.relnamespace = schema AND NOT c.relispartition AND a.atttypid = 'bigint'::regtype
          AND pg_get_serial_sequence(c.oid::regclass::text, a.attname) IS NOT NULL
          -- Nothing uses the sequence but the default, which partitions share, or for an identity nothing at all.
          AND array_remove(ARRAY[d.oid], NULL) = ARRAY(
              SELECT objid FROM pg_catalog.pg_depend
              WHERE refclassid = 'pg_class'::regclass AND deptype = 'n'
                AND refobjid = pg_get_serial_sequence(c.oid::regclass::text, a.attname)::regclass
                AND (objid = d.oid
                     OR objid NOT IN (SELECT oid FROM pg_catalog.pg_attrdef
                                      WHERE adrelid IN (SELECT inhrelid FROM pg_catalog.pg_inherits))))
        ORDER BY c.oid
    LOOP
        EXECUTE concat('ALTER TABLE ', item.name,
                       CASE WHEN item.is_identity THEN concat(' ALTER ', item.key, ' DROP IDENTITY,') END,
                       ' ALTER ', item.key, ' SET DEFAULT ', idgen, 'snowflake_next_id(', shard, ')');
        IF NOT item.is_identity THEN
            EXECUTE concat('DROP SEQUENCE ', item.sequence);
        END IF;
    END LOOP;
END
$$;
