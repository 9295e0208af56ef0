-- snowflake_safe_horizon(): every id below it is settled.
CREATE EXTENSION idgen;
CREATE TABLE events (id bigint PRIMARY KEY DEFAULT snowflake_next_id(5), note text);
-- Before the first id of a cluster, there is no horizon.
SELECT snowflake_safe_horizon() >> 23 <= 1 AS at_the_start;

-- The clock passes an id that is committed, and so does the horizon.
INSERT INTO events (note) VALUES ('committed');
SELECT pg_sleep(0.01) \gset
SELECT snowflake_safe_horizon() > max(id) AS passes FROM events;

-- The call takes no transaction id, and writes no WAL for which a commit would have to wait.
BEGIN;
SELECT snowflake_safe_horizon() > 0 AS horizon, pg_current_xact_id_if_assigned() IS NULL AS no_transaction_id;
COMMIT;

-- A transaction that has minted holds the horizon back until it ends, also its own; other transactions do not.
BEGIN;
SELECT snowflake_safe_horizon() AS before_it \gset
INSERT INTO events (note) VALUES ('open') RETURNING id AS open \gset
SELECT pg_sleep(0.01) \gset
SELECT snowflake_safe_horizon() <= :open AS holds, snowflake_safe_horizon() >= :before_it AS never_goes_back;
-- A subtransaction that is rolled back takes nothing back: other ids of the transaction may be as old.
SAVEPOINT s;
INSERT INTO events (note) VALUES ('of a subtransaction');
ROLLBACK TO s;
SELECT snowflake_safe_horizon() <= :open AS holds;
COMMIT;
SELECT snowflake_safe_horizon() > :open AS passes;

-- An error ends the transaction too.
BEGIN;
INSERT INTO events (note) VALUES ('failed') RETURNING id AS failed \gset
SELECT 1 / 0;
ROLLBACK;
SELECT pg_sleep(0.01) \gset
SELECT snowflake_safe_horizon() > :failed AS passes;

-- No call mints below it, for whatever shard and by whatever function.
SELECT snowflake_safe_horizon() AS horizon \gset
SELECT snowflake_next_id(6) >= :horizon AS one, min(id) >= :horizon AS batch FROM snowflake_next_ids(7, 100) AS id;

-- A transaction that reads by one snapshot would miss rows below a horizon that is newer.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT snowflake_safe_horizon();
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT snowflake_safe_horizon();
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;

-- Nothing remembers when a prepared transaction minted its ids.
BEGIN;
INSERT INTO events (note) VALUES ('prepared') RETURNING id AS prepared \gset
PREPARE TRANSACTION 'p';
SELECT snowflake_safe_horizon();
\echo :LAST_ERROR_SQLSTATE
-- Functions of ordinary roles cannot hide prepared transactions from it.
CREATE SCHEMA evil;
CREATE FUNCTION evil.none(bigint) RETURNS bigint LANGUAGE sql AS 'SELECT $1';
CREATE AGGREGATE evil.count(*) (SFUNC = evil.none, STYPE = bigint, INITCOND = '0');
SET search_path = evil, pg_catalog, public;
SELECT count(*) AS planted FROM pg_prepared_xacts;
SELECT public.snowflake_safe_horizon();
DROP AGGREGATE evil.count(*);
CREATE FUNCTION evil.none(text) RETURNS text LANGUAGE sql AS 'SELECT $1';
CREATE AGGREGATE evil.count(*) (SFUNC = evil.none, STYPE = text, INITCOND = 'none');
SELECT count(*) AS planted FROM pg_prepared_xacts;
SELECT public.snowflake_safe_horizon();
RESET search_path;
-- A role that may not read them gets no answer. (From PostgreSQL 19 on there is a CONTEXT too.)
\set SHOW_CONTEXT never
REVOKE EXECUTE ON FUNCTION pg_prepared_xact() FROM PUBLIC;
CREATE ROLE regress_idgen_reader;
SET ROLE regress_idgen_reader;
SELECT snowflake_safe_horizon();
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
GRANT EXECUTE ON FUNCTION pg_prepared_xact() TO PUBLIC;
\set SHOW_CONTEXT errors
DROP ROLE regress_idgen_reader;
COMMIT PREPARED 'p';
SELECT pg_sleep(0.01) \gset
SELECT snowflake_safe_horizon() > :prepared AS passes;
SELECT reason, sqlstate FROM idgen_refusals WHERE refused > 0;
