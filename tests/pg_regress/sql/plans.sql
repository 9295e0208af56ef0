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
DROP TABLE posts;
