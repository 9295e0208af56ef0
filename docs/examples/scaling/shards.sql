-- The shards of a server: their schemas, and what it may mint for. On each server, in a database for which idgenctl
-- enable has run, with its own numbers:
--     psql -d app -v first=1 -v last=2 -f shards.sql
\set ON_ERROR_STOP on
\set AUTOCOMMIT on
SET search_path = pg_catalog, pg_temp;
SELECT concat(:first, '-', :last) AS allowed \gset
ALTER SYSTEM SET idgen.allowed_shards = :'allowed';
SELECT pg_reload_conf();

-- The check keeps rows of other shards out. With the primary key it makes an id unique over all servers.
-- A router gets an id by reading the view.
SELECT format('CREATE SCHEMA shard%1$s
                   CREATE TABLE users (id bigint PRIMARY KEY DEFAULT idgen.snowflake_next_id(%1$s)
                                           CHECK (idgen.shard_of(id) = %1$s),
                                       name text NOT NULL)
                   CREATE VIEW new_id AS SELECT idgen.snowflake_next_id(%1$s) AS id', shard)
FROM generate_series(:first, :last) AS shard \gexec
