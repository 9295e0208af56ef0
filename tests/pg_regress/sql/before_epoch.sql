-- The clock is before the epoch, as on a machine whose clock lost its battery: the server runs, and mints
-- when the clock is right.
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
CREATE EXTENSION idgen;

-- The server has logged it at its start.
WITH log AS (
    SELECT * FROM regexp_split_to_table(pg_read_file('server.log'), '\n') WITH ORDINALITY AS log (line, n)
)
SELECT regexp_replace(line, '[0-9]{9,}', 'N') AS line
FROM log
WHERE line ~ '^(WARNING|DETAIL|HINT)' AND n < (SELECT min(n) FROM log WHERE line ~ 'ready to accept')
ORDER BY n;

\i `echo $PG_ABS_SRCDIR/refused.sql`
SELECT * FROM refusals('SELECT %s', 'snowflake_next_id(5)', '* FROM snowflake_next_ids(5, 10)') \gx
SELECT epoch, now_tick, ahead_ms, shards_in_use, ends_at, years_left, warning FROM idgen_status \gx
SELECT count(*) FROM idgen_shard_stats;

-- Functions that need no clock work.
SELECT * FROM snowflake_decode(11637205501278089);
SELECT shard_of(11637205501278089), snowflake_min_id('2100-01-01T00:00:00.001Z');
SELECT snowflake_min_id(now()), snowflake_max_id(now());
SELECT reason, sqlstate, refused FROM idgen_refusals WHERE refused > 0;
-- A check is no refused call. Nor can such a clock be accepted.
SELECT * FROM refusals('SELECT %s', 'snowflake_check()', 'snowflake_accept_clock()', 'snowflake_raise_mark(now())') \gx
SELECT reason, sqlstate, refused FROM idgen_refusals WHERE refused > 0;
DROP EXTENSION idgen;
