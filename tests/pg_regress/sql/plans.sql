-- The planner uses an index on shard_of, and prunes partitions by it.
CREATE TABLE orders (id bigint);
CREATE INDEX orders_shard ON orders (shard_of(id));
SET enable_seqscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT id FROM orders WHERE shard_of(id) = 1003;
RESET enable_seqscan;
RESET enable_bitmapscan;
DROP TABLE orders;

CREATE TABLE posts (id bigint NOT NULL, body text) PARTITION BY RANGE (shard_of(id));
CREATE TABLE posts_low PARTITION OF posts FOR VALUES FROM (0) TO (4096);
CREATE TABLE posts_high PARTITION OF posts FOR VALUES FROM (4096) TO (8192);
EXPLAIN (COSTS OFF) SELECT body FROM posts WHERE shard_of(id) = 5000;
-- PostgreSQL has no key over all of them, to which a foreign key could refer.
\set VERBOSITY sqlstate
ALTER TABLE posts ADD PRIMARY KEY (id);
\set VERBOSITY default
DROP TABLE posts;

-- Under row-level security the planner uses an index only for conditions that can tell nobody anything about rows of
-- others: for functions that are LEAKPROOF, and for a range of times, which becomes one of ids.
CREATE ROLE regress_idgen_tenant;
CREATE TABLE orders (id bigint PRIMARY KEY, tenant text);
CREATE INDEX orders_shard ON orders (shard_of(id));
CREATE INDEX orders_text ON orders (snowflake_text(id) COLLATE "C");
CREATE INDEX orders_shortcode ON orders (snowflake_shortcode(id) COLLATE "C");
CREATE INDEX orders_scattered ON orders (snowflake_scatter(id));
CREATE INDEX orders_unscattered ON orders (snowflake_unscatter(id));
ALTER TABLE orders ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON orders USING (tenant = 'a');
GRANT SELECT ON orders TO regress_idgen_tenant;
SET ROLE regress_idgen_tenant;
SET row_security = on;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT FROM orders WHERE shard_of(id) = 1003;
EXPLAIN (COSTS OFF) SELECT FROM orders WHERE snowflake_text(id) = '8000000000000' COLLATE "C";
EXPLAIN (COSTS OFF) SELECT FROM orders WHERE snowflake_shortcode(id) = 'B' COLLATE "C";
EXPLAIN (COSTS OFF) SELECT FROM orders WHERE snowflake_scatter(id) = 1;
EXPLAIN (COSTS OFF) SELECT FROM orders WHERE snowflake_unscatter(id) = 1;
PREPARE minted(timestamptz, timestamptz) AS SELECT FROM orders WHERE snowflake_between(id, $1, $2);
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE minted('2026-01-01Z', '2026-01-02Z');
RESET ALL;
RESET ROLE;
DROP TABLE orders;
DROP ROLE regress_idgen_tenant;
