-- Ends a move whose target is lost for good: the source gets its schema and the shard back. Run it there as a superuser:
--
--     psql -X -d app -v schema=insta5 -v shard=5 -f undo-move.sql
--
-- Before that, see that no server has the shard in its list, and put it into the list of the source and its standbys. The
-- rows are those of before the move: what the target has accepted since it was opened is lost with it.
--
-- Everything but the last step is one transaction, so if anything fails, nothing is changed. The last one opens the shard:
-- if only that fails, run SELECT snowflake_reopen_shard(5) in a database of your own.

\set ON_ERROR_STOP on
\set QUIET on
BEGIN;
SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL lock_timeout = '5s';
SELECT set_config('idgenctl.schema', :'schema', true), set_config('idgenctl.shard', :'shard', true) \g /dev/null
DO $$
DECLARE
    schema CONSTANT name := current_setting('idgenctl.schema');
    shard CONSTANT integer := current_setting('idgenctl.shard');
    moves record;
BEGIN
    -- An empty schema of a superuser keeps the name. Its comment ends with the OID of the schema that moves, whose name
    -- others may have given to another one.
    SELECT n.oid, n.nspname INTO moves
    FROM pg_namespace AS kept JOIN pg_roles AS r ON r.oid = kept.nspowner
         CROSS JOIN obj_description(kept.oid, 'pg_namespace') AS comment
         JOIN pg_namespace AS n ON n.oid::text = split_part(comment, ' ', 6)
    WHERE kept.nspname = schema AND rolsuper AND starts_with(comment, format('idgenctl move %s of ', shard));
    IF moves.oid IS NULL THEN
        RAISE 'no move of shard % has closed schema "%" here', shard, schema
            USING HINT = 'Check the database, the name and the shard.';
    END IF;
    -- Others may have created an extension in it.
    BEGIN
        EXECUTE format('DROP SCHEMA %I', schema);
    EXCEPTION WHEN dependent_objects_still_exist THEN
        EXECUTE format('COMMENT ON SCHEMA %I IS NULL', schema);
        EXECUTE format('ALTER SCHEMA %I RENAME TO idgenctl_left_%s', schema, moves.oid);
    END;
    EXECUTE format('ALTER SCHEMA %I RENAME TO %I', moves.nspname, schema);
    EXECUTE format('ALTER ROLE ALL RESET idgenctl.move_%s', shard);
    IF moves.oid <> quote_ident(schema)::regnamespace THEN
        RAISE 'another schema has taken the name';
    END IF;
END $$;
COMMIT;

-- The library is called directly: others may have put a function of their own in the place of the extension's.
BEGIN;
SET LOCAL search_path = pg_catalog, pg_temp;
CREATE FUNCTION pg_temp.reopen(shard integer) RETURNS boolean LANGUAGE c AS 'idgen', 'snowflake_reopen_shard_wrapper';
SELECT pg_temp.reopen(:'shard') \g /dev/null
ROLLBACK;
\echo The source has the schema. See idgenctl check.
