-- idgen.allowed_shards: this server mints for no shard that it does not name.
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
\i `echo $PG_ABS_SRCDIR/refused.sql`

-- A session started after a reload sees the new configuration.
ALTER SYSTEM SET idgen.allowed_shards = '0-9, 300';
SELECT pg_reload_conf() \gset
\c -
-- An empty batch is refused too.
SET idgen.shard = 301;
SELECT * FROM refusals('SELECT %s', 'snowflake_next_id(10)', '* FROM snowflake_next_ids(8191, 1)',
    '* FROM snowflake_next_ids(8191, 0)', 'snowflake_next_id()') \gx
RESET idgen.shard;
SELECT shard_of(snowflake_next_id(9)), shard_of(snowflake_next_id(300));
-- The view shows a column whose default is of another shard, or of no shard, before an INSERT fails.
CREATE TABLE regress_idgen_here (a bigint DEFAULT snowflake_next_id(9), b bigint DEFAULT snowflake_next_id_js(10),
                                 c bigint DEFAULT snowflake_next_id(9000), d bigint DEFAULT snowflake_next_id());
SELECT "table", "column", shard FROM idgen_columns WHERE NOT idgen_allows(shard) ORDER BY "column";
DROP TABLE regress_idgen_here;
-- Ids of other shards are decoded and built as usual.
SELECT shard_of(snowflake_make_id('2025-01-01T00:00:00Z', 8191, 0));
ALTER SYSTEM RESET idgen.allowed_shards;
SELECT pg_reload_conf() \gset
\c -
SELECT shard_of(snowflake_next_id(10));
