-- Where a sequence cannot go: read-only transactions and parallel workers.

-- In read-only transactions ids are minted, and advanced past, as in any other.
BEGIN READ ONLY;
SELECT shard_of(snowflake_next_id(122)), (SELECT count(*) FROM snowflake_next_ids(122, 3));
SELECT shard_of(snowflake_advance(122, 0)) AS advanced;
ROLLBACK;

-- Parallel workers mint too, and no two of them, nor the leader, mint the same id.
CREATE TABLE many AS SELECT n FROM generate_series(1, 50000) AS n;
ANALYZE many;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
EXPLAIN (COSTS OFF) SELECT snowflake_next_id(126) FROM many;
SELECT count(*) AS ids, count(DISTINCT id) AS different
FROM (SELECT snowflake_next_id(126) AS id FROM many OFFSET 0) AS s;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;
DROP TABLE many;
