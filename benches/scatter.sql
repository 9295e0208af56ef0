-- What scattered ids cost as a key of plain PostgreSQL, against ids as they are minted. `scripts/bench
-- benches/scatter.sql` runs this on a server of its own. It prints a Markdown table: medians of three rounds.
--
-- Both tables take turns. A round fills one with a million rows, in ten transactions with a checkpoint
-- before each, as a server under load makes now and then. After one more checkpoint a thousand rows follow:
-- the pages they dirty are logged as a whole, and written by the next checkpoint.
\set ON_ERROR_STOP on
\pset format unaligned
\pset tuples_only on

CREATE EXTENSION idgen;
CREATE TABLE as_minted (id bigint PRIMARY KEY DEFAULT snowflake_next_id(5), n integer);
CREATE TABLE scattered (id bigint PRIMARY KEY DEFAULT snowflake_scatter(snowflake_next_id(5)), n integer);

CREATE UNLOGGED TABLE taken (name text, s double precision, wal numeric, index_size bigint, pages bigint);
CREATE PROCEDURE fill(name text) LANGUAGE plpgsql AS $$
DECLARE
    s double precision := 0;
    wal numeric := 0;
    start timestamptz;
    place pg_lsn;
    plan json;
BEGIN
    EXECUTE format('TRUNCATE %I', name);
    COMMIT;
    FOR part IN 1..10 LOOP
        EXECUTE 'CHECKPOINT';
        place := pg_current_wal_insert_lsn();
        start := clock_timestamp();
        EXECUTE format('INSERT INTO %I (n) SELECT generate_series(1, 100000)', name);
        COMMIT;
        s := s + extract(epoch FROM clock_timestamp() - start);
        wal := wal + (pg_current_wal_insert_lsn() - place);
    END LOOP;
    EXECUTE 'CHECKPOINT';
    EXECUTE format('EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) '
                   'INSERT INTO %I (n) SELECT generate_series(1, 1000)', name) INTO plan;
    INSERT INTO taken VALUES (name, s, wal, pg_relation_size(name || '_pkey'),
                              (plan->0->'Plan'->>'Shared Dirtied Blocks')::bigint);
    COMMIT;
END $$;

\o /dev/null
SELECT format('CALL fill(%L)', name)
FROM generate_series(1, 3) AS round, unnest(ARRAY['as_minted', 'scattered']) AS name
ORDER BY round, name
\gexec
\o

CREATE FUNCTION pg_temp.median(float8[]) RETURNS numeric LANGUAGE sql
    RETURN (SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY v)::numeric FROM unnest($1) AS v);
CREATE TEMP VIEW result AS
    SELECT name, pg_temp.median(array_agg(s)) AS s, pg_temp.median(array_agg(wal::float8)) AS wal,
           pg_temp.median(array_agg(index_size::float8)) AS index_size,
           pg_temp.median(array_agg(pages::float8)) AS pages
    FROM taken GROUP BY name;
\echo '| a primary key of 1 M rows | as minted | scattered |'
\echo '|---|---|---|'
SELECT format('| %s | %s | %s |', what, a, b)
FROM result AS m, result AS s,
     LATERAL (VALUES (1, 'time to insert', round(m.s, 1) || ' s', round(s.s, 1) || ' s'),
                     (2, 'WAL written', round(m.wal / 1e6) || ' MB', round(s.wal / 1e6) || ' MB'),
                     (3, 'size of the index', round(m.index_size / 1e6, 1) || ' MB',
                      round(s.index_size / 1e6, 1) || ' MB'),
                     (4, 'pages dirtied by the next 1000 rows', round(m.pages)::text, round(s.pages)::text)
             ) AS line (n, what, a, b)
WHERE m.name = 'as_minted' AND s.name = 'scattered'
ORDER BY n;
