-- A procedure that runs a statement in each schema shard0, shard1, ..., for which a query says that it is not done yet. In
-- both, {schema} stands for the schema. Call it again for the schemas that it reports as in use; see docs/shards.md.
CREATE PROCEDURE on_each_shard(statement text, done text) LANGUAGE plpgsql AS $$
DECLARE
    callers_path pg_catalog.text;
    schema pg_catalog.name;
    asking pg_catalog.text;
    changing pg_catalog.text;
    is_done boolean;
    changed integer := 0;
    in_use pg_catalog.name[] := '{}';
BEGIN
    callers_path := pg_catalog.current_setting('search_path');
    SET LOCAL search_path = pg_catalog, pg_temp;    -- up to COMMIT: a procedure with the setting may not commit
    FOR schema IN SELECT nspname FROM pg_namespace WHERE nspname ~ '^shard[0-9]+$' ORDER BY oid LOOP
        asking := 'SELECT EXISTS (' || replace(done, '{schema}', schema) || ')';
        changing := replace(statement, '{schema}', schema);
        PERFORM set_config('search_path', callers_path, true);
        EXECUTE asking INTO is_done;
        SET LOCAL search_path = pg_catalog, pg_temp;
        CONTINUE WHEN is_done;
        BEGIN
            SET LOCAL lock_timeout = '900ms';    -- below deadlock_timeout
            PERFORM set_config('search_path', callers_path, true);
            EXECUTE changing;
            SET LOCAL search_path = pg_catalog, pg_temp;
            changed := changed + 1;
        EXCEPTION WHEN lock_not_available THEN
            in_use := in_use || schema;
        END;
        COMMIT;
        SET LOCAL search_path = pg_catalog, pg_temp;
    END LOOP;
    RAISE NOTICE USING MESSAGE = concat(changed, ' schemas changed, in use: ', in_use);
END
$$;
