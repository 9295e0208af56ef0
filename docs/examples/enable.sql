-- Prepares a server, and one of its databases, for idgen. Once the files of idgen are installed, run it as a superuser:
--
--     psql -d mydb -f enable.sql
--
-- Then restart the server. This creates the extension in a schema of its own, appends that to the search_path of the
-- database, and adds idgen to the libraries that the server preloads. What is there already stays, so it may be run
-- again, and after the restart it shows the state of the server. On a standby it only adds the library. From PostgreSQL
-- 17.8 and 18.2 on, ids are minted before the restart too, with the default settings.

\set ON_ERROR_STOP on
\set AUTOCOMMIT on
\set QUIET on
\set SHOW_CONTEXT never
\pset tuples_only on
SET search_path = pg_catalog;    -- otherwise functions and operators of whoever owns the database could be called
SET ROLE NONE;                   -- the database may have another role set

-- A server does not start if it is to preload a library that it cannot load.
DO $$
BEGIN
    LOAD 'idgen';
EXCEPTION WHEN OTHERS THEN
    RAISE 'this server cannot load the library of idgen' USING
        DETAIL = format('In "%s": %s.', (SELECT setting FROM pg_config WHERE name = 'PKGLIBDIR'), sqlerrm),
        HINT = format('Nothing was changed. Install idgen for this server (PG_CONFIG=%s/pg_config), and try again.',
                      (SELECT setting FROM pg_config WHERE name = 'BINDIR'));
END $$;

-- The list as the next start reads it. It has the form of an array: with commas, and quotes where needed.
SELECT source = 'command line' AS is_fixed, NOT 'idgen' = ANY (libraries) AS is_new, libraries
FROM pg_settings, LATERAL (SELECT format('{%s}', CASE source WHEN 'command line' THEN setting ELSE
    (SELECT f.setting FROM pg_file_settings AS f WHERE lower(f.name) = pg_settings.name ORDER BY seqno DESC LIMIT 1)
    END)::text[]) AS next (libraries)
WHERE name = 'shared_preload_libraries' \gset
SELECT :'is_new' AND :'is_fixed' AS is_out_of_reach \gset
\if :is_out_of_reach
    DO $$
    BEGIN
        RAISE 'the command line of the server sets "shared_preload_libraries"' USING
            HINT = 'Nothing was changed. Add idgen to the list there, restart the server, and try again.';
    END $$;
\endif

-- In a schema that others may change, an administrator could find an object of theirs in the place of one of idgen's.
DO $$
DECLARE
    theirs regnamespace;
BEGIN
    SELECT n.oid INTO theirs
    FROM pg_namespace AS n LEFT JOIN pg_extension ON extnamespace = n.oid AND extname = 'idgen'
    WHERE (nspname = 'idgen' OR extname IS NOT NULL) AND EXISTS (
        SELECT FROM pg_roles AS r WHERE NOT rolsuper AND r.oid <> 'pg_database_owner'::regrole
            AND (has_schema_privilege(r.oid, n.oid, 'CREATE') OR pg_has_role(r.oid, nspowner, 'MEMBER')
                 OR pg_has_role(r.oid, extowner, 'MEMBER')));
    IF FOUND THEN
        RAISE 'roles that are not superusers may change schema %, or the extension in it', theirs USING
            DETAIL = 'The functions and views of idgen that a superuser calls there could be replaced by theirs.',
            HINT = 'Nothing was changed. Have a superuser own both (REASSIGN OWNED), and revoke CREATE on the schema.';
    END IF;
END $$;

SELECT NOT pg_is_in_recovery() AS is_primary,
       NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'idgen') AS lacks_extension,
       NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'idgen') AS lacks_own_schema \gset
\if :is_primary
    \if :lacks_extension
        BEGIN;
        \if :lacks_own_schema
            CREATE SCHEMA idgen;
        \endif
        GRANT USAGE ON SCHEMA idgen TO PUBLIC;
        CREATE EXTENSION idgen SCHEMA idgen;
        COMMIT;
    \endif

    SELECT quote_ident(nspname) AS schema, d.oid AS database
    FROM pg_database AS d, pg_extension JOIN pg_namespace AS n ON n.oid = extnamespace
    WHERE datname = current_database() AND extname = 'idgen' \gset
    -- The path of new sessions: that of the database, of all databases, or of the server.
    SELECT concat_ws(', ', nullif(path, ''), :'schema') AS path,
           NOT :'schema' = ANY (regexp_split_to_array(path, ' *, *')) AS lacks_schema
    FROM coalesce(
        (SELECT substr(setting, 13) FROM pg_db_role_setting, unnest(setconfig) AS setting
         WHERE setdatabase IN (0, :database) AND setrole = 0 AND starts_with(setting, 'search_path=')
         ORDER BY setdatabase DESC LIMIT 1),
        (SELECT setting FROM pg_file_settings WHERE lower(name) = 'search_path' ORDER BY seqno DESC LIMIT 1),
        (SELECT boot_val FROM pg_settings WHERE name = 'search_path')) AS path \gset
    \if :lacks_schema
        -- The text of the path is taken as it is. Only this statement runs with that path.
        SELECT set_config('search_path', :'path', false) \g /dev/null
        ALTER DATABASE :"DBNAME" SET search_path FROM CURRENT;
        SET search_path = pg_catalog;
    \endif
    SELECT format('The role %s has a search_path of its own, %s: append %s to it.', setrole::regrole, path, :'schema')
    FROM pg_db_role_setting, unnest(setconfig) AS setting, substr(setting, 13) AS path
    WHERE setdatabase IN (0, :database) AND setrole <> 0 AND starts_with(setting, 'search_path=')
        AND NOT :'schema' = ANY (regexp_split_to_array(path, ' *, *'));
\endif

-- Last, when all else has succeeded.
\if :is_new
    SELECT 'ALTER SYSTEM SET shared_preload_libraries = ' || string_agg(quote_literal(library), ', ')
    FROM unnest(:'libraries' || '{idgen}'::text[]) AS library \gexec
\endif
SELECT NOT 'idgen' = ANY (format('{%s}', current_setting('shared_preload_libraries'))::text[]) AS needs_restart,
       EXISTS (SELECT FROM pg_extension JOIN pg_roles AS r ON r.oid = extowner
               WHERE extname = 'idgen' AND rolsuper) AS has_extension,
       :'is_primary' AND (:SERVER_VERSION_NUM BETWEEN 170008 AND 179999 OR :SERVER_VERSION_NUM >= 180002)
           AS mints_before \gset
\if :needs_restart
    \echo Now restart the server.
    \if :mints_before
        \echo Until then, ids are minted as long as idgen has its default settings. Production needs the restart.
    \endif
\elif :has_extension
    SELECT nspname AS schema FROM pg_extension JOIN pg_namespace AS n ON n.oid = extnamespace WHERE extname = 'idgen' \gset
    \pset tuples_only off
    SELECT * FROM :"schema".idgen_status \gx
\endif
