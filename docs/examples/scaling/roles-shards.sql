-- A shard for each role, and one for everybody else, with one definition of the table. In a database for which idgenctl
-- enable has run:
--     psql -d app -f roles-shards.sql
\set ON_ERROR_STOP on
\set AUTOCOMMIT on
SET search_path = pg_catalog, pg_temp;
CREATE ROLE ada LOGIN;
CREATE ROLE grace LOGIN;
SELECT format('ALTER DATABASE %1$I SET idgen.shard = 10;
               ALTER ROLE ada IN DATABASE %1$I SET idgen.shard = 11;
               ALTER ROLE grace IN DATABASE %1$I SET idgen.shard = 12', current_database()) \gexec
CREATE TABLE public.notes (id bigint PRIMARY KEY DEFAULT idgen.snowflake_next_id(), author name DEFAULT current_user);
GRANT SELECT, INSERT ON public.notes TO ada, grace;
