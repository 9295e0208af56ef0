-- The tables of a server that PgDog routes to by id. On each server, in a database for which idgenctl enable has run,
-- with the shards of its idgen.allowed_shards, of which idgen.shard is one:
--     psql -d app -v first=0 -v last=4095 -f pgdog-table.sql
\set ON_ERROR_STOP on
\set AUTOCOMMIT on
SET search_path = pg_catalog, pg_temp;
-- The checks keep rows out that PgDog sends to the wrong server, because it knows no id that SQL computes.
CREATE TABLE public.users (id bigint PRIMARY KEY DEFAULT idgen.snowflake_next_id()
                                     CHECK (idgen.shard_of(id) BETWEEN :first AND :last),
                           name text NOT NULL);
CREATE TABLE public.orders (id bigint PRIMARY KEY DEFAULT idgen.snowflake_next_id(),
                            user_id bigint NOT NULL REFERENCES public.users, what text NOT NULL);
