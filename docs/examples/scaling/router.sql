-- One table over the shards of many servers. On the router, once for each server, and again for a shard that
-- has moved to another one:
--     psql -d app -v server=one -v host=10.0.0.1 -v dbname=app -v user=app -v first=1 -v last=2 -f router.sql
-- A password goes into the user mapping: ALTER USER MAPPING ... OPTIONS (ADD password '...').
\set ON_ERROR_STOP on
\set AUTOCOMMIT on
SET search_path = pg_catalog, pg_temp;
-- The router does not preload idgen, and has idgen.epoch in its postgresql.conf: it can read an id, but mints none.
-- It is in the schema that it has on the servers, which evaluate shard_of under that name.
CREATE SCHEMA IF NOT EXISTS idgen;
CREATE EXTENSION IF NOT EXISTS idgen SCHEMA idgen;
CREATE EXTENSION IF NOT EXISTS postgres_fdw SCHEMA public;
CREATE TABLE IF NOT EXISTS public.users (id bigint NOT NULL, name text NOT NULL)
    PARTITION BY LIST (idgen.shard_of(id));

-- With "extensions", shard_of is evaluated on the server, not here.
CREATE SERVER IF NOT EXISTS :"server" FOREIGN DATA WRAPPER postgres_fdw
    OPTIONS (host :'host', dbname :'dbname', extensions 'idgen', async_capable 'true');
CREATE USER MAPPING IF NOT EXISTS FOR CURRENT_USER SERVER :"server" OPTIONS (user :'user');

-- psql sends each row as a transaction of its own, so thousands of shards need no more locks than one.
SELECT format('DROP FOREIGN TABLE IF EXISTS public.users_%1$s, public.new_id_%1$s;
               CREATE FOREIGN TABLE public.users_%1$s PARTITION OF public.users FOR VALUES IN (%1$s)
                   SERVER %2$I OPTIONS (schema_name ''shard%1$s'', table_name ''users'');
               CREATE FOREIGN TABLE public.new_id_%1$s (id bigint)
                   SERVER %2$I OPTIONS (schema_name ''shard%1$s'', table_name ''new_id'')', shard, :'server')
FROM generate_series(:first, :last) AS shard \gexec
