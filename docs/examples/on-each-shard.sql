-- A procedure that runs a statement in each schema shard0, shard1, ..., for which a query says that it is not done yet. In
-- both, {schema} stands for the schema. Call it again for the schemas that it reports as in use; see docs/shards.md.
CREATE PROCEDURE on_each_shard(statement text, done text) LANGUAGE plpgsql AS $$
DECLARE
    schema name;
    is_done boolean;
    changed integer := 0;
    in_use name[] := '{}';
BEGIN
    FOR schema IN SELECT nspname FROM pg_catalog.pg_namespace WHERE nspname ~ '^shard[0-9]+$' ORDER BY oid LOOP
        EXECUTE 'SELECT EXISTS (' || replace(done, '{schema}', schema) || ')' INTO is_done;
        CONTINUE WHEN is_done;
        BEGIN
            SET LOCAL lock_timeout = '900ms';    -- below deadlock_timeout
            EXECUTE replace(statement, '{schema}', schema);
            changed := changed + 1;
        EXCEPTION WHEN lock_not_available THEN
            in_use := in_use || schema;
        END;
        COMMIT;
    END LOOP;
    RAISE NOTICE USING MESSAGE = concat(changed, ' schemas changed, in use: ', in_use);
END
$$;
