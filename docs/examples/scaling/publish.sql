-- What a server publishes for others: the rows of its own shards. On each source, with its own numbers:
--     psql -d app -v first=0 -v last=4095 -f publish.sql
\set ON_ERROR_STOP on
\set AUTOCOMMIT on
-- This is shard_of(id) in PostgreSQL's own operators: a filter takes no function of an extension.
CREATE PUBLICATION own_shards FOR TABLE users WHERE ((id >> 10) & 8191 BETWEEN :first AND :last);
