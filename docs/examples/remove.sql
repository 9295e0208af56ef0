-- Drops the extension idgen from a database, and keeps all rows and values. Run it as a superuser:
--
--     psql -X -d app -f remove.sql
--
-- Everything is one transaction, so if anything fails, nothing is changed. The view idgen_dependents shows beforehand
-- what depends on idgen. Of that,
--
-- - what calls shard_of stays, such as partitioned tables and indexes, because shard_of becomes a function in SQL;
-- - defaults of columns and domains are dropped, so an INSERT must supply these ids from then on;
-- - stored generated columns become plain ones, which keep their values.
--
-- The script stops at anything else, such as a view: change or drop that first. Functions in PL/pgSQL, and those whose
-- SQL is a string, are not found: search their text for snowflake_ and shard_of.

\set ON_ERROR_STOP on
\set QUIET on
BEGIN;
SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL lock_timeout = '5s';
DO $$
DECLARE
    idgen CONSTANT text := (SELECT quote_ident(nspname) FROM pg_extension JOIN pg_namespace AS n ON n.oid = extnamespace
                            WHERE extname = 'idgen');
    others text;
    statement text;
BEGIN
    IF idgen IS NULL THEN
        RAISE 'database "%" does not have the extension idgen', current_database();
    END IF;
    -- Others could put objects of their own in the place of those of idgen that are used below.
    SELECT string_agg(quote_ident(rolname), ', ') INTO others
    FROM pg_roles AS r, pg_extension JOIN pg_namespace AS n ON n.oid = extnamespace
    WHERE extname = 'idgen' AND NOT pg_has_role(r.oid, session_user, 'MEMBER') AND r.oid <> 'pg_database_owner'::regrole
      AND (has_schema_privilege(r.oid, n.oid, 'CREATE') OR pg_has_role(r.oid, nspowner, 'MEMBER')
           OR pg_has_role(r.oid, extowner, 'MEMBER'));
    IF others IS NOT NULL THEN
        RAISE 'other roles may change the extension idgen or its schema'
            USING ERRCODE = 'insufficient_privilege', DETAIL = format('They are %s.', others),
                  HINT = 'Have the owner of the extension drop it.';
    END IF;

    -- Under its old OID, it serves everything that is partitioned, indexed or checked by it.
    EXECUTE format('ALTER EXTENSION idgen DROP FUNCTION %s.shard_of(bigint)', idgen);
    EXECUTE format('CREATE OR REPLACE FUNCTION %s.shard_of(id bigint) RETURNS integer
        LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN (id >> 10 & 8191)::integer', idgen);
    -- The columns of a table are shown only once the table itself no longer depends on idgen.
    FOR pass IN 1..3 LOOP
        FOR statement IN
            EXECUTE format('SELECT statement FROM %s.idgen_dependents WHERE statement IS NOT NULL', idgen)
        LOOP
            EXECUTE statement;
        END LOOP;
    END LOOP;
    EXECUTE format('SELECT string_agg(concat_ws('' '', kind, object), ''; '') FROM %s.idgen_dependents', idgen)
        INTO others;
    IF others IS NOT NULL THEN
        RAISE 'other objects still depend on idgen'
            USING ERRCODE = 'dependent_objects_still_exist', DETAIL = format('They are %s.', others),
                  HINT = 'Change or drop them, and run this script again. Never use CASCADE.';
    END IF;
    DROP EXTENSION idgen;
END
$$;
COMMIT;
