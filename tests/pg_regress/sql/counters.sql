-- idgen_shard_stats: the counters of each shard.

-- Ids are counted, and the runs they came in. A shard that mints rarely leases one id at a
-- time; a busy shard leases many, unless idgen.max_lease forbids that.
SELECT count(*) FROM (SELECT snowflake_next_id(131), pg_sleep(0.002) FROM generate_series(1, 5)) AS quiet;
SELECT count(*) FROM snowflake_next_ids(131, 100);
SELECT count(*) FROM (SELECT snowflake_next_id(132) FROM generate_series(1, 20000)) AS busy;
SET idgen.max_lease = 1;
SELECT count(*) FROM (SELECT snowflake_next_id(133) FROM generate_series(1, 20000)) AS strict;
RESET idgen.max_lease;
SELECT shard, ids, leases, waits, waited_ms FROM idgen_shard_stats WHERE shard IN (131, 133) ORDER BY shard;
SELECT ids >= 20000 AS ids, leases < 15000 AS leases FROM idgen_shard_stats WHERE shard = 132;
-- A shard that has minted nothing has no row.
SELECT count(*) FROM idgen_shard_stats WHERE shard = 8000;
SELECT shards_in_use = (SELECT count(*) FROM idgen_shard_stats) AS counted FROM idgen_status;

-- Calls that wait are counted, with the time that they waited: calls that fail,
SET idgen.max_wait = 0;
\set VERBOSITY sqlstate
SELECT count(snowflake_next_id_js(140)) FROM generate_series(1, 13000);
SET idgen.max_wait = '100ms';
SELECT count(snowflake_next_id_js(141)) FROM generate_series(1, 26000);
SELECT shard, waits > 0 AS waits, waited_ms >= 100 AS waited_100_ms
FROM idgen_shard_stats WHERE shard IN (140, 141) ORDER BY shard;
-- calls that are canceled, here by a timeout,
SET idgen.max_wait = '10s';
SET statement_timeout = '50ms';
SELECT count(*) FROM snowflake_next_ids(142, 5000000);
RESET statement_timeout;
\set VERBOSITY default
SELECT shard, waits, waited_ms > 0 AS waited FROM idgen_shard_stats WHERE shard = 142;
-- and calls that return ids.
SELECT count(*) AS ids FROM snowflake_next_ids(143, 1100000) AS id;
SELECT shard, ids, waits, waited_ms > 0 AS waited FROM idgen_shard_stats WHERE shard = 143;
