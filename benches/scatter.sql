-- The cost of scattered ids as keys of plain PostgreSQL, compared with ids as they are minted: the figures in
-- docs/cookbook.md. `scripts/bench benches/scatter.sql` runs this on a server of its own. The tables take turns in ten
-- transactions each. A checkpoint precedes each transaction, because a server under load makes checkpoints too.
CREATE EXTENSION idgen;
CREATE TABLE as_minted (id bigint PRIMARY KEY DEFAULT snowflake_next_id(5), n integer);
CREATE TABLE scattered (id bigint PRIMARY KEY DEFAULT snowflake_scatter(snowflake_next_id(5)), n integer);
CREATE TABLE taken (name text, sign integer, at timestamptz DEFAULT clock_timestamp(),
                    place pg_lsn DEFAULT pg_current_wal_insert_lsn());
\o /dev/null
SELECT 'CHECKPOINT',
       format('INSERT INTO taken VALUES (%L, -1)', name),
       format('INSERT INTO %I (n) SELECT generate_series(1, 100000)', name),
       format('INSERT INTO taken VALUES (%L, 1)', name)
FROM generate_series(1, 10), unnest(ARRAY['as_minted', 'scattered']) AS name
\gexec
\o
SELECT name, round(sum(sign * extract(epoch FROM at)), 1) || ' s',
       round(sum(sign * (place - '0/0')) / 1e6) || ' MB of WAL'
FROM taken GROUP BY name;
