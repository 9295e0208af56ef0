-- What idgen needs of the nodes of Citus, side by side. Everything is in order if "wrong" is null in every row. On
-- any node, as a superuser or a member of pg_monitor, whenever a node was added or configured:
--     psql -d app -f citus-check.sql
\set ON_ERROR_STOP on
SET search_path = pg_catalog, pg_temp;
WITH members AS (
    SELECT nodeid, nodename, nodeport, format('%s:%s', nodename, nodeport) AS node, isactive
    FROM pg_dist_node WHERE noderole = 'primary'
), places AS (
    -- Where idgen is on each node, and who could put objects of their own in the place of idgen's, if this is a
    -- superuser. On the nodes the search_path is that of the database, so all names in what is sent there are
    -- qualified.
    SELECT nodeid, success, result, place.*
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
    $text$), LATERAL json_to_record(CASE WHEN success AND result <> '' THEN result::json ELSE '{}' END) AS place (
        schema text, others text)
), asked AS (
    SELECT array_agg(nodename) AS names, array_agg(nodeport) AS ports, array_agg(format($text$
        SELECT pg_catalog.json_build_object(
            'preloaded', preloaded,
            'epoch', CASE WHEN preloaded THEN (SELECT epoch FROM %1$s.idgen_status) END,
            'warning', CASE WHEN preloaded THEN (SELECT warning FROM %1$s.idgen_status) END,
            'in_use', CASE WHEN preloaded
                           THEN (SELECT pg_catalog.json_agg(DISTINCT shard) FROM %1$s.idgen_shard_stats) END,
            'allowed_shards', pg_catalog.current_setting('idgen.allowed_shards', true),
            'shard', pg_catalog.current_setting('idgen.shard', true),
            'source', (SELECT source FROM pg_catalog.pg_settings WHERE name OPERATOR(pg_catalog.=) 'idgen.shard'))
        FROM (SELECT pg_catalog.count(*) OPERATOR(pg_catalog.=) 1 AS preloaded
              FROM pg_catalog.pg_settings
              WHERE name OPERATOR(pg_catalog.=) 'idgen.epoch' AND context OPERATOR(pg_catalog.=) 'postmaster') AS here
    $text$, schema)) AS texts
    FROM places JOIN members USING (nodeid) WHERE schema IS NOT NULL AND others IS NULL
), answers AS (
    SELECT members.*, places.schema, places.others, coalesce(answer.success, places.success) AS success,
           coalesce(answer.result, places.result) AS result
    FROM members LEFT JOIN places USING (nodeid)
         LEFT JOIN (asked CROSS JOIN master_run_on_worker(names, ports, texts, true) AS answer)
         ON node_name = nodename AND node_port = nodeport
), nodes AS (
    SELECT node, isactive, schema, others, result, answer.*
    FROM answers, LATERAL json_to_record(CASE WHEN success AND result <> '' THEN result::json ELSE '{}' END) AS answer (
        preloaded boolean, epoch timestamptz, allowed_shards text, shard integer, source text, in_use integer[],
        warning text)
), entries AS (
    SELECT node, regexp_match(entry, '([0-9]+)(?:[^0-9]+([0-9]+))?') AS bounds
    FROM nodes, string_to_table(allowed_shards, ',') AS entry
), allowed AS (
    SELECT node, n
    FROM entries, generate_series(bounds[1]::integer, coalesce(bounds[2], bounds[1])::integer) AS n
), taken AS (
    SELECT node, n FROM allowed UNION SELECT node, unnest(in_use) FROM nodes
), shared AS (
    SELECT one.node, string_agg(DISTINCT two.node, ', ') AS others
    FROM taken AS one JOIN taken AS two ON one.n = two.n AND one.node <> two.node GROUP BY one.node
)
SELECT node, preloaded, epoch, allowed_shards, shard, source, in_use,
       CASE WHEN NOT isactive
                THEN 'is disabled: Citus does not ask it, and there is no horizon of all nodes until it is activated'
            WHEN nodes.others IS NOT NULL
                THEN 'has roles that are not superusers and may change extension "idgen" or its schema: '
                     || nodes.others || '; run this as a member of pg_monitor who is no superuser'
            WHEN result = '' THEN 'has no extension "idgen"'
            WHEN preloaded IS NULL THEN result
            WHEN NOT preloaded THEN 'idgen is not preloaded'
            WHEN warning IS NOT NULL THEN warning
            WHEN epoch <> (SELECT mode() WITHIN GROUP (ORDER BY epoch) FROM nodes) THEN 'another epoch than most'
            WHEN shared.others IS NOT NULL THEN 'has shards that are also of ' || shared.others
            WHEN source IN ('global', 'database', 'user', 'database user')
                THEN 'idgen.shard is set by ALTER DATABASE or ALTER ROLE: RESET it on the coordinator'
            WHEN shard >= 0 AND (node, shard) NOT IN (SELECT node, n FROM allowed)
                THEN 'idgen.shard is not in idgen.allowed_shards'
       END AS wrong
FROM nodes LEFT JOIN shared USING (node) ORDER BY node;
