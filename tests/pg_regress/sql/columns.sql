-- In tables: defaults, generated columns, indexes, checks, partitions by shard.
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';

-- A column default mints an id for every row, in the order of the rows, with every command that inserts rows.
CREATE TABLE users (
    id bigint PRIMARY KEY DEFAULT snowflake_next_id(1000) CHECK (shard_of(id) = 1000),
    name text NOT NULL,
    created_at timestamptz GENERATED ALWAYS AS (snowflake_time(id, '2025-01-01T00:00:00Z')) STORED
);
INSERT INTO users (name) VALUES ('ada'), ('brian'), ('carol');
INSERT INTO users (name) SELECT 'user ' || n FROM generate_series(1, 5000) AS n;
COPY users (name) FROM stdin;
dave
erin
\.
INSERT INTO users (name) VALUES ('frank') RETURNING id AS returned \gset
SELECT :returned = snowflake_last_id() AS last_id, :returned = max(id) AS greatest FROM users;
SELECT count(*) AS rows, count(DISTINCT id) AS ids, min(shard_of(id)) AS shard, max(shard_of(id)) AS shard,
       bool_and(created_at = snowflake_time(id)) AS generated
FROM users;
SELECT count(*) AS out_of_order
FROM (SELECT id <= lag(id) OVER (ORDER BY ctid) AS wrong FROM users) AS rows WHERE wrong;
SELECT array_agg(name ORDER BY id) FROM users WHERE name !~ '^user ';

-- The check refuses a row of another shard, for which shard_of must be IMMUTABLE.
\set VERBOSITY sqlstate
INSERT INTO users (id, name) VALUES (snowflake_next_id(1001), 'of another shard');
\set VERBOSITY default

-- Each existing row gets an id when the column is added.
CREATE TABLE orders AS SELECT n FROM generate_series(1, 1000) AS n;
ALTER TABLE orders ADD COLUMN id bigint DEFAULT snowflake_next_id(1002);
SELECT count(*) AS rows, count(DISTINCT id) AS ids FROM orders;

-- With a shard for the session one default serves every shard.
ALTER TABLE orders ALTER COLUMN id SET DEFAULT snowflake_next_id();
INSERT INTO orders (n) VALUES (1001);
\echo :LAST_ERROR_SQLSTATE
SET idgen.shard = 1003;
INSERT INTO orders (n) VALUES (1001);
SET idgen.shard = 1004;
INSERT INTO orders (n) VALUES (1002);
RESET idgen.shard;
SELECT n, shard_of(id) FROM orders WHERE n > 1000 ORDER BY n;

-- Indexes on parts of an id: shard_of, and snowflake_time with an epoch.
CREATE INDEX orders_shard ON orders (shard_of(id));
CREATE INDEX orders_time ON orders (snowflake_time(id, '2025-01-01T00:00:00Z'));
SET enable_seqscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF)
SELECT n FROM orders WHERE snowflake_time(id, '2025-01-01T00:00:00Z') > '2025-06-01T00:00:00Z';
SELECT n FROM orders WHERE shard_of(id) = 1003;
RESET enable_seqscan;
RESET enable_bitmapscan;

-- Functions that depend on a setting are refused where PostgreSQL stores results.
\set VERBOSITY sqlstate
CREATE INDEX ON orders (snowflake_time(id));
ALTER TABLE orders ADD COLUMN at timestamptz GENERATED ALWAYS AS (snowflake_time(id)) STORED;
\set VERBOSITY default
DROP TABLE users, orders;

-- One partition for some shards: rows go to the partition of their id.
CREATE TABLE posts (id bigint NOT NULL, body text) PARTITION BY RANGE (shard_of(id));
CREATE TABLE posts_low PARTITION OF posts FOR VALUES FROM (0) TO (4096);
CREATE TABLE posts_high PARTITION OF posts FOR VALUES FROM (4096) TO (8192);
INSERT INTO posts SELECT snowflake_next_id(shard), 'text' FROM unnest(ARRAY[0, 4095, 4096, 8191]) AS shard;
SELECT tableoid::regclass AS partition, shard_of(id) FROM posts ORDER BY 2;
DROP TABLE posts;
