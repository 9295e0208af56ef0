-- The counters of a shard, and their reset.
-- A batch is one run: its last id is the last one handed out.
SELECT max(id) AS last, count(*) FROM snowflake_next_ids(700, 100) AS id \gset
SELECT :count AS minted, ids, leases, waits, waited_ms, last_id = :last AS last_id,
       stats_reset < now() AS stats_reset
FROM idgen_shard_stats WHERE shard = 700;
-- Of a lease that is not used up, last_id is the end.
SELECT count(snowflake_next_id(701)) FROM generate_series(1, 5000);
SELECT ids >= 5000 AS ids, leases < 5000 AS leases, last_id >= snowflake_last_id() AS last_id,
       shard_of(last_id)
FROM idgen_shard_stats WHERE shard = 701;
-- The rate is for the time from the reset to the reading, which lies between two readings of the clock.
SELECT clock_timestamp() AS before \gset
SELECT ids, ids_per_second AS rate, stats_reset AS since FROM idgen_shard_stats WHERE shard = 700 \gset
SELECT :rate <= :ids / extract(epoch FROM :'before'::timestamptz - :'since') AS not_too_high,
       :rate >= :ids / extract(epoch FROM clock_timestamp() - :'since') AS not_too_low;
-- The id that snowflake_advance goes past counts as the last id, although nothing was handed out.
SELECT snowflake_make_id(snowflake_time(:last) + interval '1 s', 702, 7) AS past \gset
SELECT snowflake_advance(702, :past) - :past AS advanced;
SELECT ids, leases, last_id = :past AS last_id FROM idgen_shard_stats WHERE shard = 702;

-- A reset resets the counters, and nothing else.
SELECT shards_in_use AS in_use FROM idgen_status \gset
SELECT clock_timestamp() AS before, last_id AS last FROM idgen_shard_stats WHERE shard = 700 \gset
SELECT snowflake_stats_reset() \gset
SELECT shard, ids, leases, waits, waited_ms, ids_per_second, last_id = :last AS last_id,
       stats_reset BETWEEN :'before' AND clock_timestamp() AS stats_reset
FROM idgen_shard_stats WHERE shard = 700;
SELECT sum(ids) AS ids, sum(leases) AS leases, sum(waits) AS waits, sum(waited_ms) AS waited_ms,
       count(DISTINCT stats_reset) AS resets, count(*) = :in_use AS shards
FROM idgen_shard_stats;
SELECT shards_in_use = :in_use AS shards_in_use FROM idgen_status;
SELECT id > :last AS greater FROM snowflake_next_id(700) AS id;
SELECT ids, leases, last_id > :last AS last_id, ids_per_second > 0 AS ids_per_second
FROM idgen_shard_stats WHERE shard = 700;
