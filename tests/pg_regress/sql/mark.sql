-- The durable high-water mark: when it is written, where it is kept, and its cost.
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
CREATE EXTENSION idgen;

-- Nothing is written before the first id: not at the start, and not by functions that do not mint.
SELECT snowflake_next_id(9000);
SELECT count(*) FROM snowflake_next_ids(5, 0);
SELECT mark, mark_at, mark_kept_in, window_left_ms, renewals, flush_ms, clock_steps_back, clock_steps_forward
FROM idgen_status;
SELECT count(*) FROM pg_replication_origin_status WHERE remote_lsn > '0/1';    -- without a preload, that of CREATE EXTENSION

-- The first id writes it, once, idgen.reserve_ahead (1 s) after the clock. It is the first millisecond that
-- no id may be of: all ids are before it.
SELECT snowflake_next_id(5) AS id \gset
SELECT mark > (:id >> 23) AS after_the_id,
       mark - (:id >> 23) BETWEEN 500 AND 1000 AS by_a_second,
       mark_at = epoch + mark * interval '1 ms' AS mark_at,
       window_left_ms BETWEEN 1 AND 1000 AS window_left, window_left_ms <= mark - now_tick AS until_the_mark,
       renewals, flush_ms > 0 AS flush_ms, clock_steps_back, clock_steps_forward
FROM idgen_status;
-- More ids of that half second write nothing, of whatever shard: it is one mark for all. (A slow machine
-- may see the half second end.)
SELECT count(snowflake_next_id(n)) FROM generate_series(0, 8191) AS n;
SELECT shards_in_use, renewals <= 2 AS renewals FROM idgen_status;

-- It is the progress of a replication origin that has no name: bit 63, the mark, and 22 bits of the epoch.
SELECT local_id, external_id, div(remote_lsn - '80000000/0', 4194304) = mark AS mark, local_lsn = '0/0' AS no_local
FROM pg_replication_origin_status, idgen_status;
SELECT count(*) AS named FROM pg_replication_origin;

-- Once the window is used up the next id renews it: also in a transaction that may only read, which gets no
-- transaction number by that. A server that mints nothing writes nothing meanwhile.
SELECT mark AS mark_before, renewals AS renewals_before FROM idgen_status \gset
SELECT pg_sleep(1.2) \gset
SELECT window_left_ms, mark = :mark_before AS same, renewals - :renewals_before AS renewals FROM idgen_status;
BEGIN READ ONLY;
SELECT shard_of(snowflake_next_id(5));
SELECT pg_current_xact_id_if_assigned() IS NULL AS none_assigned;
SELECT window_left_ms > 0 AS window_left, mark > :mark_before AS mark, renewals - :renewals_before AS renewals
FROM idgen_status;
ROLLBACK;
-- The rollback takes nothing back.
SELECT mark > :mark_before AS mark, div(remote_lsn - '80000000/0', 4194304) = mark AS kept, renewals - :renewals_before AS renewals
FROM pg_replication_origin_status, idgen_status;

-- A check renews it as a call for an id does, and mints none.
SELECT pg_sleep(1.2) \gset
SELECT mark AS mark_before, renewals AS renewals_before FROM idgen_status \gset
SELECT sum(ids) AS ids_before FROM idgen_shard_stats \gset
BEGIN READ ONLY;
SELECT snowflake_check() AS until \gset
ROLLBACK;
SELECT mark_at = :'until' AS until_the_mark, mark > :mark_before AS mark, renewals - :renewals_before AS renewals,
       (SELECT sum(ids) FROM idgen_shard_stats) - :ids_before AS ids
FROM idgen_status;

-- In a parallel plan, the leader renews it.
CREATE TABLE scanned AS SELECT generate_series(1, 10000) AS n;
ANALYZE scanned;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SELECT pg_sleep(1.2) \gset
SELECT renewals AS renewals_before FROM idgen_status \gset
EXPLAIN (COSTS OFF) SELECT shard_of(snowflake_next_id(n)) FROM scanned WHERE n = 5;
SELECT shard_of(snowflake_next_id(n)) FROM scanned WHERE n = 5;
SELECT renewals - :renewals_before AS renewals FROM idgen_status;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;
DROP TABLE scanned;

-- A batch may be longer than the window, which is renewed on its way.
SELECT renewals AS renewals_before FROM idgen_status \gset
SELECT count(*) AS ids, count(DISTINCT id) AS different, max(id) >> 23 AS last_tick
FROM snowflake_next_ids(6, 1500000) AS id \gset
SELECT :ids AS ids, :different AS different, mark > :last_tick AS after_the_ids,
       renewals - :renewals_before BETWEEN 1 AND 6 AS renewals
FROM idgen_status;

-- The cost: a million single ids write less than 10 kB of WAL, including what the server itself writes in the
-- meantime. A sequence writes more than ten times as much for a tenth of the numbers.
CREATE SEQUENCE numbers;
SELECT pg_sleep(1.2) \gset
SELECT pg_current_wal_insert_lsn() AS before, renewals AS renewals_before FROM idgen_status \gset
SELECT count(snowflake_next_id(5)) FROM generate_series(1, 1000000);
SELECT pg_current_wal_insert_lsn() - :'before' AS bytes \gset
SELECT :bytes > 0 AS some, :bytes < 10000 AS below_10_kb,
       renewals - :renewals_before BETWEEN 1 AND 4 AS renewals
FROM idgen_status;
SELECT pg_current_wal_insert_lsn() AS before \gset
SELECT count(nextval('numbers')) FROM generate_series(1, 100000);
SELECT pg_current_wal_insert_lsn() - :'before' > 10 * :bytes AS ten_times_more;
DROP SEQUENCE numbers;

-- snowflake_advance renews it where it is not after the id given; and where it fails, it does not.
SELECT snowflake_max_id(clock_timestamp() + interval '900 ms') AS past \gset
SELECT snowflake_advance(5, :past) > :past AS advanced;
SELECT mark > (:past >> 23) AS after_the_id, div(remote_lsn - '80000000/0', 4194304) = mark AS kept
FROM pg_replication_origin_status, idgen_status;
SELECT mark AS mark_before, renewals AS renewals_before FROM idgen_status \gset
\set VERBOSITY sqlstate
SELECT snowflake_advance(5, snowflake_max_id(clock_timestamp() + interval '1 hour'));
\set VERBOSITY default
SELECT mark = :mark_before AS same, renewals - :renewals_before AS renewals FROM idgen_status;

-- Other origins keep their progress.
SELECT pg_replication_origin_create('regress_idgen_origin') AS origin \gset
SELECT :origin < 65534 AS another;
SELECT pg_replication_origin_advance('regress_idgen_origin', '0/ABCD') \gset
SELECT shard_of(snowflake_next_id(5));
SELECT local_id = 65534 AS ours, external_id, remote_lsn = '0/ABCD' AS as_set
FROM pg_replication_origin_status ORDER BY ours DESC;
SELECT pg_replication_origin_drop('regress_idgen_origin') \gset
SELECT div(remote_lsn - '80000000/0', 4194304) = mark AS mark FROM pg_replication_origin_status, idgen_status;

-- The extension goes, the mark stays: it is the cluster's. Created anew it goes on from there.
SELECT mark AS mark_before FROM idgen_status \gset
DROP EXTENSION idgen;
SELECT local_id, div(remote_lsn - '80000000/0', 4194304) = :mark_before AS same FROM pg_replication_origin_status;
CREATE EXTENSION idgen;
SELECT mark = :mark_before AS same FROM idgen_status;
DROP EXTENSION idgen;
