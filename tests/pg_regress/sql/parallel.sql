-- Read-only transactions and parallel plans.

-- In read-only transactions ids are minted, and advanced past, as in any other.
BEGIN READ ONLY;
SELECT shard_of(snowflake_next_id(122)), (SELECT count(*) FROM snowflake_next_ids(122, 3));
SELECT shard_of(snowflake_advance(122, 0)) AS advanced;
ROLLBACK;

-- A parallel plan scans and sorts in workers, but the leader mints: ids follow the order of the query.
CREATE TABLE many AS SELECT (n * 7919) % 50000 AS n FROM generate_series(1, 50000) AS n;
ANALYZE many;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET idgen.shard = 126;
SET parallel_leader_participation = off;    -- of the scan
EXPLAIN (COSTS OFF) CREATE TABLE ordered AS SELECT snowflake_next_id(126) AS id, n FROM many WHERE n > 10 ORDER BY n;
CREATE TABLE ordered AS SELECT snowflake_next_id(126) AS id, n FROM many WHERE n > 10 ORDER BY n;
CREATE TABLE ordered_of_session AS SELECT snowflake_next_id() AS id, n FROM many WHERE n > 10 ORDER BY n;
CREATE TABLE ordered_js AS SELECT snowflake_next_id_js(126) AS id, n FROM many WHERE n <= 4000 ORDER BY n;
SELECT tableoid::regclass AS "table", count(*) AS ids, count(DISTINCT id) AS different,
       count(*) FILTER (WHERE id < previous) AS out_of_order
FROM (SELECT tableoid, id, lag(id) OVER (PARTITION BY tableoid ORDER BY n) AS previous
      FROM (SELECT tableoid, * FROM ordered UNION ALL SELECT tableoid, * FROM ordered_of_session
            UNION ALL SELECT tableoid, * FROM ordered_js) AS all_of_them) AS with_previous
GROUP BY tableoid ORDER BY tableoid;
DROP TABLE ordered, ordered_of_session, ordered_js;

-- A worker mints nothing, and the call fails there as nextval() does: also for a function that lies about itself.
CREATE FUNCTION wrapped(call text) RETURNS bigint LANGUAGE plpgsql PARALLEL SAFE AS $$
DECLARE
    result bigint;
BEGIN
    EXECUTE 'SELECT ' || call INTO result;
    RETURN result;
END $$;
CREATE SEQUENCE numbers;
SELECT set_config(name, 'on', false)
FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query') \gset
\set SHOW_CONTEXT never
SELECT wrapped('nextval(''numbers'')');
\echo :LAST_ERROR_SQLSTATE
SELECT wrapped('snowflake_next_id(126)');
\echo :LAST_ERROR_SQLSTATE
SELECT wrapped('snowflake_next_id()');
SELECT wrapped('snowflake_next_ids(126, 3)');
SELECT wrapped('snowflake_next_id_js(126)');
SELECT wrapped('snowflake_safe_horizon()');
\set SHOW_CONTEXT errors
SELECT shard_of(snowflake_next_id(126)) AS leader;
RESET ALL;
DROP SEQUENCE numbers;
DROP FUNCTION wrapped;
DROP TABLE many;
