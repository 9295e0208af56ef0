-- What an id costs: a call, and a bulk insert, against what PostgreSQL has itself and what idgen replaces.
-- scripts/measure runs this on a server of its own. It prints a Markdown table.
--
-- All subjects take turns in one session, for six rounds, of which the first only warms up. Printed is the
-- median of the other five, and in brackets the least and the greatest. A call's cost is that of a scan of a
-- million rows that calls it for each, less the median of the same scan without it. One shard keeps up
-- 1,024,000 ids a second, and a burst of a million may run ahead of the clock by idgen.max_ahead, 1 s. So
-- there is a pause before each.
\set ON_ERROR_STOP on
\pset format unaligned
\pset tuples_only on
SET jit = off;
SET max_parallel_workers_per_gather = 0;

-- The function of Instagram's article "Sharding & IDs at Instagram", for its shard 5.
CREATE SCHEMA insta5;
CREATE SEQUENCE insta5.table_id_seq;
CREATE FUNCTION insta5.next_id(OUT result bigint) LANGUAGE plpgsql AS $$
DECLARE
    our_epoch bigint := 1314220021721;
    seq_id bigint;
    now_millis bigint;
    shard_id int := 5;
BEGIN
    SELECT nextval('insta5.table_id_seq') % 1024 INTO seq_id;
    SELECT FLOOR(EXTRACT(EPOCH FROM clock_timestamp()) * 1000) INTO now_millis;
    result := (now_millis - our_epoch) << 23;
    result := result | (shard_id << 10);
    result := result | (seq_id);
END $$;

CREATE SEQUENCE numbers;
CREATE TABLE million AS SELECT n FROM generate_series(1, 1000000) AS n;
VACUUM ANALYZE million;
CREATE TABLE with_identity (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n integer);
CREATE TABLE with_snowflake (id bigint PRIMARY KEY DEFAULT snowflake_next_id(5), n integer);

CREATE UNLOGGED TABLE subject (number integer, name text, statement text);
INSERT INTO subject VALUES
    (0, 'scan', 'SELECT count(1) FROM million'),
    (1, 'snowflake', 'SELECT count(snowflake_next_id(5)) FROM million'),
    (2, 'nextval', 'SELECT count(nextval(''numbers'')) FROM million'),
    (3, 'instagram', 'SELECT count(insta5.next_id()) FROM million'),
    (4, 'into_identity', 'INSERT INTO with_identity (n) SELECT n FROM million'),
    (5, 'into_snowflake', 'INSERT INTO with_snowflake (n) SELECT n FROM million');

-- Runs a statement as a transaction of its own, and notes its time, the commit included, and its WAL.
CREATE UNLOGGED TABLE taken (name text, round integer, ms double precision, wal numeric);
CREATE PROCEDURE take(name text, round integer, statement text) LANGUAGE plpgsql AS $$
DECLARE
    place pg_lsn := pg_current_wal_insert_lsn();
    start timestamptz := clock_timestamp();
    ms double precision;
    wal numeric;
BEGIN
    EXECUTE statement;
    COMMIT;
    ms := extract(epoch FROM clock_timestamp() - start) * 1000;
    wal := pg_current_wal_insert_lsn() - place;
    INSERT INTO taken VALUES (name, round, ms, wal);
END $$;

-- Each round begins with another subject.
\o /dev/null
SELECT 'TRUNCATE with_identity, with_snowflake', 'CHECKPOINT', 'SELECT pg_sleep(1.2)',
       format('CALL take(%L, %s, %L)', name, round, statement)
FROM generate_series(0, 5) AS round, subject
ORDER BY round, (number + round) % 6
\gexec
\o

-- 1 ms for a million calls is 1 ns a call.
CREATE TEMP VIEW result AS
    SELECT name, percentile_cont(0.5) WITHIN GROUP (ORDER BY cost) AS ms, min(cost) AS least,
           max(cost) AS greatest, percentile_cont(0.5) WITHIN GROUP (ORDER BY wal::double precision) AS wal
    FROM taken JOIN subject USING (name),
         (SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY ms) AS of_scan
          FROM taken WHERE name = 'scan' AND round > 0) AS median,
         LATERAL (SELECT CASE WHEN number IN (1, 2, 3) THEN ms - of_scan ELSE ms END AS cost) AS less_the_scan
    WHERE round > 0
    GROUP BY name;

CREATE FUNCTION seconds(ms double precision) RETURNS numeric LANGUAGE sql RETURN round(ms::numeric / 1000, 2);
\echo '| what | time | WAL written for 1 M |'
\echo '|---|---|---|'
SELECT format('| %s | %s | %s |', label,
              CASE WHEN a_call THEN format('%s ns (%s to %s)', round(ms), round(least), round(greatest))
                   ELSE format('%s s (%s to %s)', seconds(ms), seconds(least), seconds(greatest)) END,
              CASE WHEN wal < 10000 THEN round(wal) || ' bytes'
                   ELSE round(wal::numeric / 1e6, 1) || ' MB' END)
FROM (VALUES (1, 'snowflake', true, '`snowflake_next_id(5)`, a call'),
             (2, 'nextval', true, '`nextval`, a call'),
             (3, 'instagram', true, 'Instagram''s PL/pgSQL function, a call'),
             (4, 'into_snowflake', false, '`INSERT` of 1 M rows, default `snowflake_next_id(5)`'),
             (5, 'into_identity', false, '`INSERT` of 1 M rows, identity column')
     ) AS line (n, name, a_call, label)
     JOIN result USING (name)
ORDER BY n;
SELECT format('| shared memory | %s bytes | |', to_char(size, 'FM999,999,999'))
FROM pg_shmem_allocations WHERE name = 'idgen';

\echo
SELECT format('The scan itself: %s ns a row (%s to %s).', round(ms), round(least), round(greatest))
FROM result WHERE name = 'scan';
SELECT format('idgen.max_ahead is %s, idgen.max_lease %s, idgen.reserve_ahead %s. Calls that waited for the '
              || 'clock: %s. Renewals of the mark: %s, %s ms each.', max_ahead, max_lease, reserve_ahead,
              waits, renewals, round((flush_ms / renewals)::numeric, 2))
FROM idgen_status JOIN idgen_shard_stats ON idgen_shard_stats.shard = 5;
