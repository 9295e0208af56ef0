\echo Use "CREATE EXTENSION idgen" to load this file. \quit

-- Others may be allowed to create objects in the extension's schema, and an operator whose argument types match
-- better is preferred, wherever in the search_path it is. So the schema is not in the search_path; names are
-- qualified instead.
SET LOCAL search_path = pg_catalog, pg_temp;

-- The extension is trusted: a role that may create objects in the database may run CREATE EXTENSION, and then owns
-- the extension, while this script runs as the bootstrap superuser, who may do anything anywhere. So check first
-- what the role itself may do. This must come first, because before PostgreSQL 15.4 and 16.0 a schema name with a
-- quote would end the literals into which it is inserted, and the rest of the name would be executed. A snapshot
-- from before the schema or the role was created does not show them. So nothing is concluded from a missing row,
-- and everything else is checked with functions that read the catalog as it is now.
DO $$
DECLARE
    owner oid;
    target oid;
    name text;
BEGIN
    SELECT extowner, extnamespace INTO STRICT owner, target FROM pg_extension WHERE extname = 'idgen';
    -- Others may own the schema. This lock keeps them from renaming or dropping it until the end of this
    -- transaction: a statement below could otherwise find another schema of that name, and revoke privileges on its
    -- objects.
    PERFORM FROM pg_namespace WHERE oid = target FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '25001',
            MESSAGE = 'the schema of the extension was created after the snapshot of this transaction',
            DETAIL = 'CREATE EXTENSION idgen could not keep others from renaming it.',
            HINT = 'Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.';
    END IF;
    name := target::regnamespace;
    name := CASE WHEN left(name, 1) = '"' THEN substr(name, 2, length(name) - 2) ELSE name END;
    IF translate(name, '"$''' || chr(92), '') <> name THEN
        RAISE EXCEPTION USING ERRCODE = '22023',
            MESSAGE = format('the name of schema "%s" contains a quote, a dollar sign or a backslash', name),
            DETAIL = 'The scripts of idgen insert the name into literals.',
            HINT = 'Create the extension in another schema.';
    ELSIF has_schema_privilege(owner, target, 'CREATE') IS NOT TRUE THEN
        RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('permission denied for schema %s', name),
            DETAIL = format('Role "%s" may not create the objects of idgen in it.', pg_get_userbyid(owner)),
            HINT = 'Create the extension in another schema.';
    END IF;
END $$;

-- Takes over from the portable edition (portable/idgen.sql), if that is installed. after.sql completes the
-- takeover.

-- Its functions become members of the extension, and each is replaced below under its OID, so that defaults,
-- indexes and everything else that calls it stay as they are. Otherwise CREATE OR REPLACE acts as CREATE, because
-- PostgreSQL lets an extension replace only its own members. No function of the portable edition is called here,
-- because it may belong to an untrusted role. None is given to the superuser before it has the body of the
-- extension, because it may be SECURITY DEFINER.
DO $$
DECLARE
    -- The functions and views of the portable edition. Privileges on anything else that claims to be part of it are
    -- not restored.
    names CONSTANT name[] := '{
        idgen_columns, idgen_status, shard_of, snowflake_advance, snowflake_assign_shard, snowflake_between,
        snowflake_decode, snowflake_from_shortcode, snowflake_from_text, snowflake_last_id, snowflake_layouts,
        snowflake_make_id, snowflake_max_id, snowflake_min_id, snowflake_next_id, snowflake_next_id_js,
        snowflake_next_ids, snowflake_scatter, snowflake_shortcode, snowflake_text, snowflake_time,
        snowflake_unscatter}';
    minting CONSTANT text[] := ARRAY[
        '@extschema@.snowflake_next_id(integer)', '@extschema@.snowflake_next_id()',
        '@extschema@.snowflake_next_ids(integer, integer)', '@extschema@.snowflake_next_id_js(integer)'];
    portable oid;
    owner oid;
    stranger name;
    views regclass[];
    functions regprocedure[];
    view regclass;
    rights text[];
    dependents text;
    is_shut boolean := false;
    item record;
BEGIN
    IF '@extschema@' <> (SELECT quote_ident(nspname) FROM pg_extension JOIN pg_namespace AS n ON n.oid = extnamespace
                         WHERE extname = 'idgen') THEN
        RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'the schema of the extension was renamed concurrently',
            DETAIL = 'CREATE EXTENSION idgen changed nothing.',
            HINT = 'Try again.';
    END IF;
    -- Overwrite any earlier content, because the content is executed at the end. Empty means that
    -- nothing is taken over, whatever others create in the meantime.
    PERFORM set_config('idgen_portable.rights', '', true);
    IF coalesce(to_regclass('idgen_portable.last_id'), to_regclass('idgen_portable.moved')) IS NULL THEN
        RETURN;
    ELSIF NOT EXISTS (SELECT FROM pg_extension JOIN pg_roles AS r ON r.oid = extowner
                      WHERE extname = 'idgen' AND rolsuper) THEN
        -- The superuser would otherwise handle objects made by an ordinary role.
        RAISE EXCEPTION USING ERRCODE = '42501',
            MESSAGE = 'must be superuser to take over the portable edition of idgen',
            DETAIL = 'The extension gives the functions of that edition to a superuser.',
            HINT = 'Have a superuser run CREATE EXTENSION idgen.';
    ELSIF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        RAISE EXCEPTION USING ERRCODE = '25001',
            MESSAGE = 'the portable edition of idgen can be taken over only in a READ COMMITTED transaction',
            DETAIL = 'An older snapshot might not show all of its objects.',
            HINT = 'Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.';
    END IF;
    -- The owner of the schema, of a function or of a view could change it at any moment, while this script refers
    -- to them by name and gives them to the superuser. So all of them must already belong to superusers.
    SELECT oid, nspowner INTO portable, owner FROM pg_namespace WHERE nspname = 'idgen_portable' FOR UPDATE;
    SELECT pg_get_userbyid(makers.owner) INTO stranger
    FROM (SELECT owner
          UNION ALL SELECT proowner FROM pg_proc WHERE pronamespace = portable
          UNION ALL SELECT relowner FROM pg_class WHERE relnamespace = portable
          UNION ALL SELECT grantee FROM pg_namespace AS n, aclexplode(nspacl)
                    WHERE n.oid = portable AND privilege_type = 'CREATE'
          UNION ALL SELECT proowner FROM pg_proc AS p
                    WHERE pronamespace = '@extschema@'::regnamespace AND proname = ANY (names)
                      AND obj_description(p.oid, 'pg_proc') LIKE '% Portable edition.'
          UNION ALL SELECT relowner FROM pg_class AS c
                    WHERE relnamespace = '@extschema@'::regnamespace AND relname = ANY (names)
                      AND obj_description(c.oid, 'pg_class') LIKE '% Portable edition.') AS makers (owner)
    WHERE NOT EXISTS (SELECT FROM pg_roles AS r WHERE r.oid = makers.owner AND rolsuper)
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '42501',
            MESSAGE = format('the portable edition of idgen belongs to role "%s"', stranger),
            DETAIL = 'It can be taken over only if its schema, all objects in the schema, and its functions and views belong to superusers.',
            HINT = format('If you would trust role "%s" with the rights of a superuser, run take.sql of the portable '
                          'edition. Otherwise restore its tables into a database that has the extension.', stranger);
    END IF;
    views := ARRAY(
        SELECT c.oid FROM pg_class AS c
        WHERE c.relnamespace = '@extschema@'::regnamespace AND c.relowner = owner AND c.relkind = 'v'
          AND c.relname = ANY (names)
          AND obj_description(c.oid, 'pg_class') LIKE '% Portable edition.');
    functions := ARRAY(
        SELECT p.oid FROM pg_proc AS p
        WHERE p.proowner = owner AND p.proname = ANY (names)
          AND obj_description(p.oid, 'pg_proc') LIKE '% Portable edition.');
    IF to_regclass('idgen_portable.last_id') IS NULL THEN
        PERFORM set_config('idgen_portable.rights', '[]', true);
        RETURN;    -- taken over before
    END IF;

    FOR item IN
        SELECT pronamespace::regnamespace AS "schema"
        FROM pg_proc WHERE oid = ANY (functions) AND pronamespace <> '@extschema@'::regnamespace
    LOOP
        RAISE EXCEPTION USING ERRCODE = '55000',
            MESSAGE = format('the portable edition of idgen is in schema %s', item.schema),
            DETAIL = 'The extension replaces its functions in place.',
            HINT = format('Use CREATE EXTENSION idgen SCHEMA %s.', item.schema);
    END LOOP;
    -- The extension recreates what is dropped below; objects of others that depend on it are left for them to drop.
    -- The row type of a view counts, and whatever reads from a view depends on its rule.
    WITH dropped AS (
        SELECT 'pg_class'::regclass AS classid, oid AS objid, reltype FROM pg_class WHERE oid = ANY (views)
        UNION ALL
        SELECT 'pg_proc'::regclass, oid, NULL FROM pg_proc
        WHERE oid = ANY (functions) AND proretset AND prorettype = 'record'::regtype
    ), goes AS (
        SELECT classid, objid FROM dropped
        UNION ALL SELECT 'pg_rewrite'::regclass, r.oid FROM dropped JOIN pg_rewrite AS r ON ev_class = objid
        UNION ALL SELECT 'pg_type'::regclass, t.oid FROM dropped JOIN pg_type AS t ON reltype IN (t.oid, typelem)
    )
    SELECT string_agg(DISTINCT CASE WHEN r.oid IS NULL THEN pg_describe_object(d.classid, d.objid, d.objsubid)
                                    ELSE pg_describe_object('pg_class'::regclass, r.ev_class, 0) END, ', ')
    INTO dependents
    FROM goes JOIN pg_depend AS d ON (d.refclassid, d.refobjid) = (goes.classid, goes.objid)
         LEFT JOIN pg_rewrite AS r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
    WHERE (d.classid, d.objid) NOT IN (SELECT classid, objid FROM goes);
    IF dependents IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = '2BP01',
            MESSAGE = 'other objects depend on views and functions of idgen that must be recreated',
            DETAIL = 'They are: ' || dependents || '.',
            HINT = 'Drop them, and create them again after CREATE EXTENSION.';
    END IF;

    -- Every transaction that mints holds a lock on this sequence. This waits for running transactions; later ones
    -- wait for this transaction, and then find the sequence renamed and without a value. A transaction that has
    -- read a view holds a lock on the view. A transaction may read and then mint, or mint and then read, so this
    -- never waits for one of these locks while it holds another.
    LOOP
        BEGIN
            ALTER SEQUENCE idgen_portable.last_id RENAME TO moved;
            is_shut := true;
            FOREACH view IN ARRAY views LOOP
                EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE NOWAIT', view);
            END LOOP;
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            IF NOT is_shut THEN    -- lock_timeout
                RAISE;
            END IF;
            is_shut := false;
        END;
        BEGIN
            EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', view);
            RAISE SQLSTATE 'IDGEN';
        EXCEPTION WHEN SQLSTATE 'IDGEN' THEN
        END;
    END LOOP;
    ALTER SEQUENCE idgen_portable.moved RESTART;

    -- Privileges are revoked here and granted again at the end: to pg_dump, privileges that an object has when it
    -- becomes a member belong to the extension, and it would leave them out. Those of the owner pass to the new
    -- owner.
    WITH taken AS (
        SELECT 'TABLE' AS kind, oid::regclass::text AS name, '' AS columns, relacl AS acl
        FROM pg_class WHERE oid = ANY (views)
        UNION ALL
        SELECT 'TABLE', attrelid::regclass::text, format(' (%I)', attname), attacl
        FROM pg_attribute WHERE attrelid = ANY (views)
        UNION ALL
        SELECT 'FUNCTION', oid::regprocedure::text, '', proacl FROM pg_proc WHERE oid = ANY (functions)
        UNION ALL
        -- A function that mints and is not there, as in an older version of the portable edition, gets the privileges
        -- of one that is: a role from which the right to mint was revoked does not get it back.
        SELECT 'FUNCTION', lacking.name, '', proacl
        FROM pg_proc, unnest(minting) AS lacking (name)
        WHERE oid = (SELECT to_regprocedure(there.name)
                     FROM unnest(minting || 'idgen_portable.mint(integer, bigint, bigint, boolean)'::text)
                          WITH ORDINALITY AS there (name, place)
                     WHERE to_regprocedure(there.name) IS NOT NULL ORDER BY place LIMIT 1)
          AND to_regprocedure(lacking.name) IS NULL
    ), statements AS (
        SELECT format('REVOKE ALL ON %s %s FROM PUBLIC', kind, name) AS statement
        FROM taken WHERE acl IS NOT NULL AND columns = ''
        UNION ALL
        SELECT format('GRANT %s%s ON %s %s TO %s%s', privilege_type, columns, kind, name,
                      CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END,
                      CASE WHEN is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
        FROM taken, aclexplode(acl) WHERE grantee <> owner
    )
    SELECT array_agg(statement ORDER BY statement COLLATE "C" DESC) INTO rights FROM statements;    -- REVOKE first
    PERFORM set_config('idgen_portable.rights', coalesce(to_json(rights)::text, '[]'), true);

    FOREACH view IN ARRAY views LOOP
        EXECUTE format('DROP VIEW %s', view);
    END LOOP;
    FOR item IN
        SELECT oid::regprocedure AS name, proretset AND prorettype = 'record'::regtype AS is_a_table,
               ARRAY(SELECT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END
                     FROM aclexplode(proacl) WHERE grantee <> owner) AS grantees,
               proacl IS NOT NULL AS has_rights
        FROM pg_proc WHERE oid = ANY (functions)
    LOOP
        -- The extension may return a table with other columns, for which a function cannot be replaced. No default
        -- calls such a function.
        IF item.is_a_table THEN
            EXECUTE format('DROP FUNCTION %s', item.name);
        ELSE
            IF cardinality(item.grantees) > 0 THEN
                EXECUTE format('REVOKE ALL ON FUNCTION %s FROM %s CASCADE', item.name,
                               array_to_string(item.grantees, ', '));
            END IF;
            IF item.has_rights THEN
                EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO PUBLIC', item.name);
            END IF;
            EXECUTE format('ALTER EXTENSION idgen ADD FUNCTION %s', item.name);
            -- The owner of the schema, perhaps another role, may drop the function and create another one of
            -- its name while this script waits for others. From here on this transaction holds a lock on it. Check
            -- it again, because after.sql relies on its comment.
            IF NOT EXISTS (SELECT FROM pg_proc AS p
                           WHERE p.oid = item.name AND p.proowner = owner AND p.proname = ANY (names)
                             AND obj_description(p.oid, 'pg_proc') LIKE '% Portable edition.'
                             AND EXISTS (SELECT FROM pg_depend AS d
                                         WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND deptype = 'e')) THEN
                RAISE EXCEPTION USING ERRCODE = '40001',
                    MESSAGE = format('function %s was changed concurrently', item.name),
                    DETAIL = 'CREATE EXTENSION idgen changed nothing.', HINT = 'Try again.';
            END IF;
        END IF;
    END LOOP;
END $$;
