-- Tables over the nodes of Citus. On every node, first, in its postgresql.conf, with numbers of its own:
--     shared_preload_libraries = 'citus,idgen'
--     idgen.allowed_shards = '100-199'
--     idgen.shard = 100
--     citus.local_hostname = '10.0.0.2'
-- and CREATE EXTENSION citus in the database. All nodes have one idgen.epoch, and listen on one port. By
-- citus.local_hostname a node reaches itself, which moves need: "localhost" fails where PostgreSQL does not listen
-- on it.
-- Then run idgenctl enable on the coordinator, this file, and citus-check.sql after it:
--     psql -d app -v coordinator=10.0.0.1 -v workers='10.0.0.2 10.0.0.3' -f citus.sql
-- When you add a node later, run SELECT replicate_reference_tables() after citus_add_node, and citus-check.sql. A
-- schema cannot move to a node without the reference tables.
-- Citus 13.2.2 and the headers of PostgreSQL 15.20 both define have_createdb_privilege: to build it, delete that in
-- Citus's pg_version_compat.h.
-- To add a column of ids to a reference table ref with the key k, whose copies must be equal, add it without a default.
-- Insert the keys into another reference table, fill, whose column id mints by default. Then
--     UPDATE ref SET id = fill.id FROM fill WHERE fill.k = ref.k
\set ON_ERROR_STOP on
\set AUTOCOMMIT on
SET search_path = pg_catalog, pg_temp;
SELECT citus_set_coordinator_host(:'coordinator');
SELECT format('SELECT citus_add_node(%L, %s)', worker, current_setting('port'))
FROM string_to_table(:'workers', ' ') AS worker \gexec
-- Citus creates idgen on the other nodes, including those that are added later.

-- Rows on all nodes. The number in an id is that of the node that minted it.
CREATE TABLE public.events (tenant bigint, id bigint DEFAULT idgen.snowflake_next_id(), what text,
                            PRIMARY KEY (tenant, id));
SELECT create_distributed_table('public.events', 'tenant');

-- A schema on one node, which Citus can move. The number is again that of the minting node.
SET citus.enable_schema_based_sharding = on;
CREATE SCHEMA insta6;
CREATE TABLE insta6.users (id bigint PRIMARY KEY DEFAULT idgen.snowflake_next_id(), name text NOT NULL);

-- A schema with a number that stays with it, of the coordinator's list. Write it by way of the coordinator,
-- with VALUES and COPY: an id that Citus has a worker mint is refused with 55000.
CREATE SCHEMA insta5;
CREATE TABLE insta5.users (id bigint PRIMARY KEY DEFAULT idgen.snowflake_next_id(5), name text NOT NULL);
