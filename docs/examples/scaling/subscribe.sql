-- The rows of another server. On the one that is to have them, once for each source:
--     psql -d app -v source=one -v conninfo='host=10.0.0.1 dbname=app user=replicator' -f subscribe.sql
-- Before PostgreSQL 16, the triggers of the table run with the rights of the superuser who has run this. Roles that own
-- the table, or may create a trigger on it, thereby have these rights.
\set ON_ERROR_STOP on
\set AUTOCOMMIT on
CREATE SUBSCRIPTION :"source" CONNECTION :'conninfo' PUBLICATION own_shards;
