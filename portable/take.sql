-- Gives the portable edition to the superuser who runs this, so that CREATE EXTENSION idgen can take it over. Its
-- functions and views are first compared with those of another database, in which the superuser has just run
-- idgen.sql:
--     createdb fresh && psql -d fresh -v ON_ERROR_STOP=1 -f portable/idgen.sql &&
--     psql -d app -v fresh=fresh -f portable/take.sql
-- This matters because some functions run as their owner, and the previous owner may have changed them or added
-- more. Use it only for a role that you trust: it does not protect against a role that attacks while it runs.
\set ON_ERROR_STOP on
\set AUTOCOMMIT on
SET search_path = pg_catalog, pg_temp;
SET client_min_messages = warning;

-- The objects of the edition and their definitions, except for the epoch, which is chosen at installation.
SELECT $query$
    SELECT CASE prokind WHEN 'p' THEN 'PROCEDURE' ELSE 'FUNCTION' END AS kind, oid::regprocedure::text AS name,
           CASE oid::regprocedure::text WHEN 'idgen_portable.epoch_ms()'
               THEN regexp_replace(pg_get_functiondef(oid), '''-?[0-9]+''', '')
               ELSE pg_get_functiondef(oid) END AS definition
    FROM pg_proc
    WHERE pronamespace = 'idgen_portable'::regnamespace
       OR obj_description(oid, 'pg_proc') LIKE '% Portable edition.' AND proname ~ '^(snowflake_|shard_of|idgen_)'
    UNION ALL
    SELECT CASE relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, oid::regclass::text, 
           concat(relkind, relhastriggers, (SELECT string_agg(pg_get_ruledef(r.oid), ' ' ORDER BY rulename)
                                            FROM pg_rewrite AS r WHERE ev_class = pg_class.oid))
    FROM pg_class
    WHERE relkind NOT IN ('S', 'i') AND relnamespace = 'idgen_portable'::regnamespace
       OR obj_description(oid, 'pg_class') LIKE '% Portable edition.' AND relname ~ '^(snowflake_|idgen_)'
    OFFSET 0    -- or a condition on what it gives would be asked of every function there is
$query$ AS parts \gset
-- A plain name of a database could say which server to connect to.
SELECT max(target) FILTER (WHERE place = 'app') AS app, max(target) FILTER (WHERE place = 'fresh') AS fresh
FROM (VALUES ('app', :'DBNAME'), ('fresh', :'fresh')) AS databases (place, name),
     concat('dbname=''', replace(replace(name, chr(92), repeat(chr(92), 2)), '''', concat(chr(92), '''')), '''') AS target \gset
\connect -reuse-previous=on :fresh
SET ROLE NONE;
SET search_path = pg_catalog, pg_temp;
SELECT json_object_agg(name, definition) AS ours FROM (:parts) AS parts \gset
\connect -reuse-previous=on :app
SET ROLE NONE;
SET search_path = pg_catalog, pg_temp;
SET client_min_messages = warning;

-- Only objects that the other database also has change their owner. In the end, all objects must exist in both
-- databases with the same definitions.
BEGIN ISOLATION LEVEL READ COMMITTED;
ALTER SCHEMA idgen_portable OWNER TO CURRENT_USER;
SELECT format('ALTER %s %s OWNER TO CURRENT_USER', kind, name) FROM (:parts) AS parts
WHERE name IN (SELECT json_object_keys(:'ours'::json)) \gexec
SELECT count(*) > 0 AS differ, string_agg(name, ', ' ORDER BY name) AS which
FROM (:parts) AS parts FULL JOIN json_each_text(:'ours'::json) AS other (name, ours) USING (name)
WHERE definition IS DISTINCT FROM ours \gset
\if :differ
    SELECT set_config('idgen_portable.differ', :'which', true) \g /dev/null
    DO $$
    BEGIN
        RAISE 'functions or views differ from those of the portable edition'
            USING DETAIL = format('These differ from the other database, or are in one of the two only: %s. Nothing is changed.',
                                  current_setting('idgen_portable.differ')),
                  HINT = 'Drop what is not part of the edition, or run idgen.sql as the owner, in the same schema.';
    END $$;
\endif
COMMIT;
SELECT format('ALTER SEQUENCE %s OWNER TO CURRENT_USER', oid::regclass)
FROM pg_class WHERE relkind = 'S' AND relnamespace = 'idgen_portable'::regnamespace \gexec
