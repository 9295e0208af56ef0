-- A horizon over all nodes of Citus, for a reader that tails a distributed table: every row whose id is below what
--     CALL idgen_citus.safe_horizon_of_all_nodes();
-- returns is visible to statements that begin afterwards. Call it outside of a transaction, and read in the
-- next statement. Each node needs idgen.shard, for each mints an id. It refuses while a node is disabled, because Citus
-- does not ask that one. The clock of a node that you add must not be behind the last horizon. On the coordinator, and
-- on each other node on which you call it, as a superuser:
--     psql -d app -f citus-horizon.sql
\set ON_ERROR_STOP on
\set AUTOCOMMIT on
SET search_path = pg_catalog, pg_temp;
-- Citus would create the schema on the other nodes only if it is not there, where others may own one of that name.
SET citus.enable_ddl_propagation = off;
CREATE SCHEMA idgen_citus;
GRANT USAGE ON SCHEMA idgen_citus TO PUBLIC;
CREATE PROCEDURE idgen_citus.safe_horizon_of_all_nodes(INOUT horizon bigint DEFAULT NULL,
                                                       patience interval DEFAULT '10 s')
LANGUAGE plpgsql AS $$
DECLARE
    -- The caller's search_path holds until BEGIN, and that of the database in what is sent to the nodes. Others may
    -- have put objects there, so all names are qualified.
    until pg_catalog.timestamptz;
    places pg_catalog.jsonb;
    idgen pg_catalog.text;
    found pg_catalog.text;
    missing pg_catalog.text;
    horizons pg_catalog.jsonb;
    ends pg_catalog.jsonb;
    is_over boolean;
BEGIN
    -- It lasts until the next COMMIT: a procedure that has it as a setting of its own may not commit.
    SET LOCAL search_path = pg_catalog, pg_temp;
    until := clock_timestamp() + patience;
    horizons := '{}';
    -- Each node says where idgen is, and who could put objects of their own in the place of idgen's, if this is a
    -- superuser. If nobody could, only superusers can change that, so the calls below find idgen.
    SELECT jsonb_object_agg(nodeid, CASE WHEN success AND result <> '' THEN result::json END),
           string_agg(result, '; ') FILTER (WHERE NOT success)
    INTO places, missing
    FROM run_command_on_all_nodes($text$
        SELECT pg_catalog.json_build_object('schema', pg_catalog.quote_ident(nspname), 'others', (
                   SELECT pg_catalog.string_agg(rolname, ', ') FROM pg_catalog.pg_roles AS r
                   WHERE pg_catalog.current_setting('is_superuser') OPERATOR(pg_catalog.=) 'on' AND NOT rolsuper
                         AND r.oid OPERATOR(pg_catalog.<>) 'pg_database_owner'::pg_catalog.regrole
                         AND (pg_catalog.has_schema_privilege(r.oid, n.oid, 'CREATE')
                              OR pg_catalog.pg_has_role(r.oid, nspowner, 'MEMBER')
                              OR pg_catalog.pg_has_role(r.oid, extowner, 'MEMBER'))))
        FROM pg_catalog.pg_extension
             JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) extnamespace
        WHERE extname OPERATOR(pg_catalog.=) 'idgen'
    $text$);
    IF missing IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'serialization_failure',
            MESSAGE = 'the horizons of all nodes are not to be had', DETAIL = missing;
    END IF;
    SELECT string_agg(format('%s:%s', nodename, nodeport), ', ') INTO missing
    FROM pg_dist_node WHERE noderole = 'primary' AND NOT isactive;
    IF missing IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = 'cannot determine the horizon of all nodes while a node is disabled',
            DETAIL = format('Citus sends nothing to %s, where open transactions may have minted ids.', missing),
            HINT = 'Activate the node with citus_activate_node(). '
                   'If it is gone for good, stop its server and remove it with citus_remove_node().';
    END IF;
    SELECT string_agg(format('node %s: %s', key, value ->> 'others'), '; ') FILTER (WHERE value ->> 'others' <> ''),
           string_agg(format('node %s: %s', key, coalesce(value ->> 'schema', 'none')), '; '),
           CASE WHEN count(DISTINCT value ->> 'schema') = 1 AND bool_and(value ? 'schema')
                THEN min(value ->> 'schema') END
    INTO missing, found, idgen
    FROM jsonb_each(places);
    IF missing IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = 'roles that are not superusers may change extension "idgen" or its schema',
            DETAIL = format('A superuser who calls idgen there could call a function of theirs: %s.', missing),
            HINT = 'Call the procedure as a role that is not a superuser.';
    ELSIF idgen IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = 'extension "idgen" is not in one schema on all nodes',
            DETAIL = format('It is in these schemas: %s.', found),
            HINT = 'Create it on the nodes that lack it, in the schema that it has on the others.';
    END IF;

    -- A node that has not minted for a while would hold the others back.
    PERFORM FROM run_command_on_all_nodes(format('SELECT %s.snowflake_next_id()', idgen));
    COMMIT;
    SET LOCAL search_path = pg_catalog, pg_temp;
    -- What is minted on a node below its horizon is of a transaction that has ended there. A node refuses while
    -- it has prepared transactions, and is asked again, unless it has been disabled in the meantime.
    LOOP
        SELECT horizons || coalesce(jsonb_object_agg(node, result) FILTER (WHERE success), '{}'),
               string_agg(coalesce(result, format('node %s is disabled', node)), '; ')
                   FILTER (WHERE success IS NULL OR NOT success AND NOT horizons ? node),
               bool_or(success IS NULL) OR clock_timestamp() > until
        INTO horizons, missing, is_over
        FROM jsonb_object_keys(places) AS node
             LEFT JOIN run_command_on_all_nodes(format('SELECT %s.snowflake_safe_horizon()', idgen))
             ON nodeid::text = node;
        COMMIT;
        SET LOCAL search_path = pg_catalog, pg_temp;
        EXIT WHEN missing IS NULL;
        IF is_over THEN
            RAISE EXCEPTION USING ERRCODE = 'serialization_failure',
                MESSAGE = 'the horizons of all nodes are not to be had', DETAIL = missing;
        END IF;
    END LOOP;
    SELECT min(value::bigint) INTO horizon FROM jsonb_each_text(horizons);
    -- On the others such a transaction may be about to end, or wait for its COMMIT PREPARED: what began to write
    -- there before now has to end.
    SELECT jsonb_object_agg(nodeid, result) INTO ends
    FROM run_command_on_all_nodes('SELECT pg_catalog.pg_current_xact_id()');
    COMMIT;
    SET LOCAL search_path = pg_catalog, pg_temp;
    LOOP
        SELECT string_agg(CASE WHEN success THEN format('transaction %s of node %s', result, node)
                               ELSE coalesce(result, format('node %s is disabled', node)) END, '; ')
                   FILTER (WHERE success IS NOT TRUE OR result::numeric <= (ends ->> node)::numeric),
               bool_or(success IS NULL) OR clock_timestamp() > until
        INTO missing, is_over
        FROM jsonb_object_keys(places) AS node
             LEFT JOIN run_command_on_all_nodes('SELECT pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())')
             ON nodeid::text = node;
        COMMIT;
        SET LOCAL search_path = pg_catalog, pg_temp;
        EXIT WHEN missing IS NULL;
        IF is_over THEN
            RAISE EXCEPTION USING ERRCODE = 'serialization_failure',
                MESSAGE = 'transactions do not end', DETAIL = missing;
        END IF;
    END LOOP;
END
$$;
