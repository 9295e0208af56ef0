-- What idgen needs of the nodes of Citus, side by side. Everything is in order if "wrong" is null in every row. On
-- any node, as a superuser, whenever a node was added or configured:
--     psql -d app -f citus-check.sql
WITH answers AS (
    SELECT format('%s:%s', nodename, nodeport) AS node, success, result
    FROM run_command_on_all_nodes($$
        SELECT json_build_object(
            'preloaded', preloaded,
            'epoch', CASE WHEN preloaded THEN (SELECT epoch FROM idgen_status) END,
            'warning', CASE WHEN preloaded THEN (SELECT warning FROM idgen_status) END,
            'in_use', CASE WHEN preloaded THEN (SELECT json_agg(DISTINCT shard) FROM idgen_shard_stats) END,
            'allowed_shards', current_setting('idgen.allowed_shards', true),
            'shard', current_setting('idgen.shard', true),
            'source', (SELECT source FROM pg_catalog.pg_settings WHERE name = 'idgen.shard'))
        FROM (SELECT count(*) = 1 AS preloaded
              FROM pg_catalog.pg_settings WHERE name = 'idgen.epoch' AND context = 'postmaster') AS here
    $$) JOIN pg_catalog.pg_dist_node USING (nodeid)
), nodes AS (
    SELECT node, result, answer.*
    FROM answers, LATERAL json_to_record(CASE WHEN success THEN result::json END) AS answer (
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
       CASE WHEN preloaded IS NULL THEN result
            WHEN NOT preloaded THEN 'idgen is not preloaded'
            WHEN warning IS NOT NULL THEN warning
            WHEN epoch <> (SELECT mode() WITHIN GROUP (ORDER BY epoch) FROM nodes) THEN 'another epoch than most'
            WHEN others IS NOT NULL THEN 'has shards that are also of ' || others
            WHEN source IN ('global', 'database', 'user', 'database user')
                THEN 'idgen.shard is set by ALTER DATABASE or ALTER ROLE: RESET it on the coordinator'
            WHEN shard >= 0 AND (node, shard) NOT IN (SELECT node, n FROM allowed)
                THEN 'idgen.shard is not in idgen.allowed_shards'
       END AS wrong
FROM nodes LEFT JOIN shared USING (node) ORDER BY node;
