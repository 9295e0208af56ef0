-- Schemas over the nodes of Citus, each on one of them. On the coordinator; every node has
-- shared_preload_libraries = 'citus,idgen', the extension citus, and its own idgen.shard and allowed_shards:
--     psql -d app -v coordinator=10.0.0.1 -v worker=10.0.0.2 -f citus.sql
\set ON_ERROR_STOP on
SELECT citus_set_coordinator_host(:'coordinator', 5432);
SELECT citus_add_node(:'worker', 5432);
-- Citus takes it to the other nodes.
CREATE EXTENSION IF NOT EXISTS idgen;
SET citus.enable_schema_based_sharding = on;

-- Written by way of the coordinator only: the shard of the schema.
CREATE SCHEMA insta5;
CREATE TABLE insta5.users (id bigint PRIMARY KEY DEFAULT snowflake_next_id(5), name text NOT NULL);

-- Written by way of any node: the shard of the node that took the statement.
CREATE SCHEMA insta6;
CREATE TABLE insta6.users (id bigint PRIMARY KEY DEFAULT snowflake_next_id(), name text NOT NULL);
