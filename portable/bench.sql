-- What an id of the portable edition costs, compared with nextval and with what it replaces. `scripts/bench
-- portable/bench.sql` runs this on a server of its own. It prints a Markdown table.
--
-- All subjects take turns in one session, for six rounds, of which the first only warms up. The table has the median of
-- the other five, and in brackets the least and the greatest. The cost of a call is the time of a scan of 100,000 rows
-- that calls it for each, less the median of the same scan without it. The cost of a batch is the time of its rows,
-- less the median of a series of the same length.
\set ON_ERROR_STOP on
BEGIN;
\ir idgen.sql
COMMIT;
\pset format unaligned
\pset tuples_only on
SET jit = off;
SET max_parallel_workers_per_gather = 0;

\ir ../benches/instagram.sql

CREATE SEQUENCE numbers;
CREATE TABLE numbered AS SELECT n FROM generate_series(1, 100000) AS n;
VACUUM ANALYZE numbered;
CREATE TABLE with_identity (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n integer);
CREATE TABLE with_snowflake (id bigint PRIMARY KEY DEFAULT snowflake_next_id(5), n integer);

CREATE UNLOGGED TABLE subject (number integer, name text, base text, statement text, label text);
INSERT INTO subject VALUES
    (0, 'scan', NULL, 'SELECT count(1) FROM numbered', NULL),
    (1, 'series', NULL, 'SELECT count(i) FROM generate_series(1, 100000) AS i', NULL),
    (2, 'nextval', 'scan', 'SELECT count(nextval(''numbers'')) FROM numbered', '`nextval`, a call'),
    (3, 'instagram', 'scan', 'SELECT count(insta5.next_id()) FROM numbered',
     'Instagram''s PL/pgSQL function, a call'),
    (4, 'snowflake', 'scan', 'SELECT count(snowflake_next_id(5)) FROM numbered',
     '`snowflake_next_id(5)` of the portable edition, a call'),
    (5, 'batch', 'series', 'SELECT count(i) FROM snowflake_next_ids(6, 100000) AS i',
     '`snowflake_next_ids(6, 100000)` of the portable edition, an id'),
    (6, 'into_identity', NULL, 'INSERT INTO with_identity (n) SELECT n FROM numbered',
     '`INSERT` of 100,000 rows, identity column, a row'),
    (7, 'into_snowflake', NULL, 'INSERT INTO with_snowflake (n) SELECT n FROM numbered',
     '`INSERT` of 100,000 rows, default `snowflake_next_id(5)`, a row'),
    (8, 'decode', 'scan', 'SELECT count(snowflake_time(n, ''2025-01-01T00:00:00Z'')) FROM numbered',
     '`snowflake_time(id, epoch)` of the portable edition, a call'),
    (9, 'shard', 'scan', 'SELECT count(shard_of(n)) FROM numbered',
     '`shard_of(id)` of the portable edition, a call');

-- Runs a statement as a transaction of its own, and notes its time, including the commit, and its WAL.
CREATE UNLOGGED TABLE taken (name text, round integer, ns double precision, wal numeric);
CREATE PROCEDURE take(name text, round integer, statement text) LANGUAGE plpgsql AS $$
DECLARE
    place pg_lsn := pg_current_wal_insert_lsn();
    start timestamptz := clock_timestamp();
    ns double precision;
    wal numeric;
BEGIN
    EXECUTE statement;
    COMMIT;
    ns := extract(epoch FROM clock_timestamp() - start) * 1e9 / 100000;
    wal := (pg_current_wal_insert_lsn() - place) / 100000;
    INSERT INTO taken VALUES (name, round, ns, wal);
END $$;

-- Each round begins with a different subject.
\o /dev/null
SELECT 'TRUNCATE with_identity, with_snowflake', 'CHECKPOINT',
       format('CALL take(%L, %s, %L)', name, round, statement)
FROM generate_series(0, 5) AS round, subject
ORDER BY round, (number + round) % 10
\gexec
\o

CREATE TEMP VIEW median AS
    SELECT name, percentile_cont(0.5) WITHIN GROUP (ORDER BY ns) AS ns
    FROM taken WHERE round > 0 GROUP BY name;
CREATE TEMP VIEW result AS
    SELECT number, label, subject.name, percentile_cont(0.5) WITHIN GROUP (ORDER BY cost) AS ns,
           min(cost) AS least, max(cost) AS greatest,
           percentile_cont(0.5) WITHIN GROUP (ORDER BY wal::double precision) AS wal
    FROM taken JOIN subject ON subject.name = taken.name LEFT JOIN median ON median.name = base,
         LATERAL (SELECT taken.ns - coalesce(median.ns, 0) AS cost) AS less
    WHERE round > 0
    GROUP BY number, label, subject.name;
\echo '| what | time | WAL |'
\echo '|---|---|---|'
SELECT format('| %s | %s ns (%s to %s) | %s bytes |', label, round(ns), round(least), round(greatest),
              round(wal))
FROM result WHERE label IS NOT NULL ORDER BY number;
\echo
SELECT format('A call costs %s times one of Instagram''s function and %s times nextval, an id of a batch %s '
              'times nextval.',
              round((snowflake.ns / instagram.ns)::numeric, 1), round((snowflake.ns / nextval.ns)::numeric),
              round((batch.ns / nextval.ns)::numeric, 1))
FROM result AS snowflake, result AS instagram, result AS nextval, result AS batch
WHERE (snowflake.name, instagram.name, nextval.name, batch.name)
      = ('snowflake', 'instagram', 'nextval', 'batch');
\echo
\setenv PGHOST :HOST
\setenv PGPORT :PORT
\setenv PGUSER :USER
\setenv PGDATABASE :DBNAME
\! portable/clients.sh
