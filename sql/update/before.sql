\echo Use "ALTER EXTENSION idgen UPDATE" to load this file. \quit

-- From 0.1.0. scripts/update-script puts what is new in sql/idgen.sql between this file and after.sql. The result is
-- what sql/idgen.sql creates; tests/cluster/upgrades.rs compares them. New functions are created, never replaced: if a
-- user has a function with the same name and arguments, the update fails and changes nothing. Functions of 0.1.0 that
-- column defaults and indexes call keep their OIDs. The search_path is set as in takeover/before.sql.
SET LOCAL search_path = pg_catalog, pg_temp;

DO $$
BEGIN
    -- Others may own the schema. This lock keeps them from renaming or dropping it until the end of this
    -- transaction: a statement below could otherwise find another schema of that name, and revoke privileges on its
    -- objects.
    PERFORM FROM pg_namespace WHERE oid = (SELECT extnamespace FROM pg_extension WHERE extname = 'idgen') FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '25001',
            MESSAGE = 'the schema of the extension was created after the snapshot of this transaction',
            DETAIL = 'The update of idgen could not keep others from renaming it.',
            HINT = 'Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.';
    ELSIF '@extschema@' <> (SELECT quote_ident(nspname) FROM pg_extension JOIN pg_namespace AS n ON n.oid = extnamespace
                         WHERE extname = 'idgen') THEN
        RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'the schema of the extension was renamed concurrently',
            DETAIL = 'The update of idgen changed nothing.',
            HINT = 'Try again.';
    END IF;
END $$;

-- These have other columns now. They keep their privileges, which after.sql copies, and make room for the new ones.
ALTER VIEW @extschema@.idgen_status RENAME TO idgen_status_of_0_1_0;
ALTER VIEW @extschema@.idgen_shard_stats RENAME TO idgen_shard_stats_of_0_1_0;
ALTER FUNCTION @extschema@.idgen_status() RENAME TO idgen_status_of_0_1_0;
ALTER FUNCTION @extschema@.idgen_shard_stats() RENAME TO idgen_shard_stats_of_0_1_0;

