-- Ids that JavaScript keeps exactly: their slots in shared memory, and the list of shards.

-- These ids have slots of their own: ids of the other kind for the same shard are neither slowed nor counted there.
CREATE TEMP TABLE burst AS
    SELECT snowflake_next_id_js(20) AS id FROM generate_series(1, 13000) AS n;
SELECT shard_of(snowflake_next_id(20)) AS shard, created_at <= clock_timestamp() AS not_ahead
FROM snowflake_decode(snowflake_next_id(20));
SELECT shard, layout, ids, leases = ids AS one_by_one, waits > 0 AS waits, waited_ms > 0 AS waited,
       last_id = (SELECT max(id) FROM burst) AS last_id
FROM idgen_shard_stats WHERE shard = 20 AND layout = 'js53';
SELECT shard, layout, ids < 100 AS ids, waits FROM idgen_shard_stats WHERE shard = 20 AND layout = 'idgen';
SELECT ahead_ms BETWEEN 0 AND 1000 AS ahead,
       mark_at > (SELECT max(created_at) FROM burst, snowflake_decode(id, 'js53')) AS below_the_mark,
       shards_in_use = (SELECT count(*) FROM idgen_shard_stats WHERE last_id IS NOT NULL) AS in_use
FROM idgen_status;

-- A shard that is not allowed here.
\i `echo $PG_ABS_SRCDIR/refused.sql`
ALTER SYSTEM SET idgen.allowed_shards = '5';
SELECT pg_reload_conf() \gset
\c -
SELECT * FROM refused('SELECT snowflake_next_id_js(6)') \gx
SELECT snowflake_next_id_js(5) > 0 AS allowed;
ALTER SYSTEM RESET idgen.allowed_shards;
SELECT pg_reload_conf() \gset
\c -
