-- What scattered ids cost as a key of plain PostgreSQL, compared with ids as they are minted: the figures in
-- docs/cookbook.md. `scripts/bench benches/scatter.sql` runs this on a server of its own. It prints medians of three
-- rounds, in which the tables take turns. A round inserts a million rows in ten transactions, each after a
-- checkpoint, because a server under load makes checkpoints too.
\set ON_ERROR_STOP on
CREATE EXTENSION idgen;
CREATE TABLE as_minted (id bigint PRIMARY KEY DEFAULT snowflake_next_id(5), n integer);
CREATE TABLE scattered (id bigint PRIMARY KEY DEFAULT snowflake_scatter(snowflake_next_id(5)), n integer);
CREATE TABLE taken (name text, round integer, s float8, mb float8);

CREATE PROCEDURE fill(name text, round integer) LANGUAGE plpgsql AS $$
DECLARE
    place pg_lsn := pg_current_wal_insert_lsn();
    start timestamptz := clock_timestamp();
BEGIN
    EXECUTE format('INSERT INTO %I (n) SELECT generate_series(1, 100000)', name);
    COMMIT;
    INSERT INTO taken VALUES (name, round, extract(epoch FROM clock_timestamp() - start),
                              (pg_current_wal_insert_lsn() - place) / 1e6);
END $$;

\o /dev/null
SELECT CASE part WHEN 0 THEN format('TRUNCATE %I', name) ELSE 'CHECKPOINT' END,
       CASE WHEN part > 0 THEN format('CALL fill(%L, %s)', name, round) END
FROM generate_series(1, 3) AS round, unnest(ARRAY['as_minted', 'scattered']) AS name, generate_series(0, 10) AS part
ORDER BY round, name, part
\gexec
\o
SELECT name, round(percentile_cont(0.5) WITHIN GROUP (ORDER BY s)::numeric, 1) || ' s',
       round(percentile_cont(0.5) WITHIN GROUP (ORDER BY mb)) || ' MB of WAL'
FROM (SELECT name, sum(s) AS s, sum(mb) AS mb FROM taken GROUP BY name, round) AS rounds GROUP BY name;
