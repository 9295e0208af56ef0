-- A horizon over all nodes of Citus, for a reader that tails a distributed table: every row whose id is below what
--     CALL safe_horizon_of_all_nodes();
-- returns is visible to statements that begin afterwards. Call it outside of a transaction, and read in the
-- next statement. Each node needs idgen.shard, for each mints an id.
CREATE PROCEDURE safe_horizon_of_all_nodes(INOUT horizon bigint DEFAULT NULL, patience interval DEFAULT '10 s')
LANGUAGE plpgsql AS $$
DECLARE
    until CONSTANT timestamptz := clock_timestamp() + patience;
    horizons jsonb := '{}';
    ends jsonb;
    missing text;
BEGIN
    -- A node that has not minted for a while would hold the others back.
    PERFORM FROM run_command_on_all_nodes('SELECT snowflake_next_id()');
    COMMIT;
    -- What is minted on a node below its horizon is of a transaction that has ended there. A node refuses while
    -- it has prepared transactions, and is asked again.
    LOOP
        SELECT horizons || coalesce(jsonb_object_agg(nodeid, result) FILTER (WHERE success), '{}'),
               string_agg(result, '; ') FILTER (WHERE NOT success AND NOT horizons ? nodeid::text)
        INTO horizons, missing
        FROM run_command_on_all_nodes('SELECT snowflake_safe_horizon()');
        COMMIT;
        EXIT WHEN missing IS NULL;
        IF clock_timestamp() > until THEN
            RAISE EXCEPTION USING ERRCODE = 'serialization_failure',
                MESSAGE = 'the horizons of all nodes are not to be had', DETAIL = missing;
        END IF;
    END LOOP;
    SELECT min(value::bigint) INTO horizon FROM jsonb_each_text(horizons);
    -- On the others such a transaction may be about to end, or wait for its COMMIT PREPARED: what began to write
    -- there before now has to end.
    SELECT jsonb_object_agg(nodeid, result) INTO ends
    FROM run_command_on_all_nodes('SELECT pg_current_xact_id()');
    COMMIT;
    LOOP
        SELECT string_agg(format('transaction %s of node %s', result, nodeid), '; ')
                   FILTER (WHERE NOT success OR result::numeric <= (ends ->> nodeid::text)::numeric)
        INTO missing
        FROM run_command_on_all_nodes('SELECT pg_snapshot_xmin(pg_current_snapshot())');
        COMMIT;
        EXIT WHEN missing IS NULL;
        IF clock_timestamp() > until THEN
            RAISE EXCEPTION USING ERRCODE = 'serialization_failure',
                MESSAGE = 'transactions do not end', DETAIL = missing;
        END IF;
    END LOOP;
END
$$;
