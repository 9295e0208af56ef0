-- COPY of a million rows from psql into a table with an identity column, with a default of idgen, and with ids that are
-- fetched first and sent with the rows, as docs/cookbook.md says: then fetching and joining count too. Prints the seconds
-- of five rounds. `scripts/bench benches/copy.sql` runs this on a server of its own.
\if :{?round}
\else
    CREATE EXTENSION idgen;
    CREATE TABLE identity (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n integer);
    CREATE TABLE minted (id bigint PRIMARY KEY DEFAULT snowflake_next_id(5), n integer);
    CREATE TABLE taken (name text, round integer, sign integer, at timestamptz DEFAULT clock_timestamp());
    \copy (SELECT n FROM generate_series(1, 1000000) AS n) TO '.build/bench/rows'
    \set round 0
\endif
\o /dev/null
TRUNCATE identity, minted; CHECKPOINT; SELECT pg_sleep(1.5);
INSERT INTO taken VALUES ('identity', :round, -1);
\copy identity (n) FROM '.build/bench/rows'
INSERT INTO taken VALUES ('identity', :round, 1);
TRUNCATE identity, minted; CHECKPOINT; SELECT pg_sleep(1.5);
INSERT INTO taken VALUES ('idgen, the default', :round, -1);
\copy minted (n) FROM '.build/bench/rows'
INSERT INTO taken VALUES ('idgen, the default', :round, 1);
TRUNCATE identity, minted; CHECKPOINT; SELECT pg_sleep(1.5);
INSERT INTO taken VALUES ('idgen, ids sent', :round, -1);
\copy (SELECT snowflake_next_ids(5, 1000000)) TO '.build/bench/ids'
\! paste .build/bench/ids .build/bench/rows >.build/bench/load
\copy minted (id, n) FROM '.build/bench/load'
INSERT INTO taken VALUES ('idgen, ids sent', :round, 1);
\o
SELECT :round + 1 AS round, :round < 5 AS again \gset
\if :again
    \ir copy.sql
\else
    SELECT name, string_agg(round(seconds, 2)::text, ' ' ORDER BY seconds), count(*)
    FROM (SELECT name, sum(sign * extract(epoch FROM at)) AS seconds FROM taken WHERE round > 0 GROUP BY name, round) AS t
    GROUP BY name;
    \! rm .build/bench/ids .build/bench/rows .build/bench/load
\endif
