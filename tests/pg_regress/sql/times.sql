-- Between ids and moments: snowflake_time, snowflake_min_id, snowflake_max_id, snowflake_between.
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
\i `echo $PG_ABS_SRCDIR/refused.sql`

-- The bounds of a millisecond over all shards.
SELECT ts, lower, upper, upper - lower + 1 AS ids, snowflake_time(lower) AS time_of_lower,
       snowflake_time(upper) = snowflake_time(lower) AS same_time, shard_of(lower), shard_of(upper)
FROM (VALUES (timestamptz '2025-01-01T00:00:00Z'), ('2025-01-01T00:00:00.000999Z'),
             ('2025-01-01T00:00:00.001Z'), ('2026-07-08T09:10:11.121314Z'),
             ('2059-11-04T19:53:47.775999Z')) AS moments (ts),
     snowflake_min_id(ts) AS lower, snowflake_max_id(ts) AS upper
ORDER BY ts;

-- The open ends are the least and the greatest id there can be.
SELECT snowflake_min_id('-infinity'), snowflake_max_id('infinity');

-- The bounds of neighbouring milliseconds touch and do not overlap.
SELECT count(*) AS gaps
FROM generate_series(timestamptz '2025-01-01T00:00:00Z', '2025-01-01T00:00:01Z', '1 ms') AS ts
WHERE snowflake_max_id(ts) + 1 <> snowflake_min_id(ts + interval '1 ms');

-- No id lies before the epoch, so a range that begins there begins with the first id, and a range that ends there is
-- empty: at the microsecond before it, at the timestamps that clients send for none, and at the first timestamp
-- there is.
SELECT ts, snowflake_min_id(ts), snowflake_max_id(ts)
FROM (VALUES (timestamptz '-infinity'), ('4714-11-24 00:00:00Z BC'), ('0001-01-01Z'), ('1970-01-01Z'),
             ('2024-12-31T23:59:59.999999Z')) AS moments (ts)
ORDER BY ts;
-- Nor after the end of 2^40 ms. A range that ends there ends with the last id. But no bigint is so late that a
-- range that begins there would be empty, and no bound is made up.
SELECT ts, snowflake_max_id(ts)
FROM (VALUES (timestamptz '2059-11-04T19:53:47.776Z'), ('9999-12-31Z'), ('294276-12-31T23:59:59.999999Z'),
             ('infinity')) AS moments (ts)
ORDER BY ts;
SELECT * FROM refusals('SELECT snowflake_min_id(%L)', '2059-11-04T19:53:47.776Z', 'infinity') \gx

-- With an epoch argument, snowflake_time decodes ids of other generators, among them the original function.
SELECT snowflake_time(11637205501278089), snowflake_time(11637205501278089, '2025-01-01T00:00:00Z') AS same,
       snowflake_time(11637205501278089, '2011-08-24T21:07:01.721Z') AS instagram;
SELECT snowflake_time(id, '2025-01-01T00:00:00Z')
FROM (VALUES (1, 0::bigint), (2, 8388607), (3, 9223372036854775807),
             (4, (-9223372036854775808)::bigint), (5, -1)) AS ids (n, id)
ORDER BY n;
-- An epoch's microseconds are kept.
SELECT snowflake_time(8388608, '1969-12-31T23:59:59.999001Z');
-- The last moment that a timestamp holds, and the first that it does not; and no finite one at all.
SELECT snowflake_time(8388608, '294276-12-31T23:59:59.998999Z');
\set VERBOSITY sqlstate
SELECT snowflake_time(8388608, '294276-12-31T23:59:59.999Z');
SELECT snowflake_time(0, 'infinity');
SELECT snowflake_time(0, '-infinity');
\set VERBOSITY default
SELECT snowflake_time(-1, '4714-11-24 00:00:00+00 BC') AS earliest_epoch;

-- Null in, null out.
SELECT snowflake_time(NULL), snowflake_time(NULL, now()), snowflake_time(1, NULL), snowflake_min_id(NULL),
       snowflake_max_id(NULL);

-- snowflake_between is BETWEEN on the milliseconds, both ends included.
CREATE TABLE events (id bigint PRIMARY KEY);
INSERT INTO events
    SELECT snowflake_make_id(ts, (n % 8192)::integer, (n % 1024)::integer)
    FROM generate_series(timestamptz '2025-01-01T00:00:00Z', '2025-01-31T23:59:00Z', '1 minute')
         WITH ORDINALITY AS t (ts, n);
ANALYZE events;
SELECT count(*) AS events,
       count(*) FILTER (WHERE snowflake_between(id, '2025-01-10', '2025-01-11')) AS a_day_and_a_minute,
       count(*) FILTER (WHERE snowflake_between(id, '2025-01-10T00:00:00.001', '2025-01-10T00:01:00')) AS one,
       count(*) FILTER (WHERE snowflake_between(id, '2025-01-11', '2025-01-10')) AS from_after_upto,
       count(*) FILTER (WHERE snowflake_between(id, '-infinity', '2025-01-01')) AS first,
       count(*) FILTER (WHERE snowflake_between(id, '2025-01-31T23:59:00', 'infinity')) AS last,
       count(*) FILTER (WHERE snowflake_between(id, '-infinity', 'infinity')) AS open
FROM events;
SELECT count(*) FILTER (WHERE snowflake_between(id, '1970-01-01', '2025-01-01')) AS from_before_the_epoch,
       count(*) FILTER (WHERE snowflake_between(id, '1970-01-01', '2024-12-31')) AS all_before_the_epoch,
       count(*) FILTER (WHERE snowflake_between(id, '2025-01-31T23:59:00', '9999-12-31')) AS upto_after_the_end,
       count(*) FILTER (WHERE id <= snowflake_max_id('1970-01-01')) AS upto_before_the_epoch,
       count(*) FILTER (WHERE id >= snowflake_min_id('1970-01-01')) AS since_before_the_epoch
FROM events;
-- A range type is open at its ends by nulls, or by infinities.
SELECT count(*) FILTER (WHERE snowflake_between(id, lower(r), upper(r))) AS infinite
FROM events, tstzrange('-infinity', 'infinity', '[]') AS r;
SELECT lower(r), count(*) FILTER (WHERE snowflake_between(id, coalesce(lower(r), '-infinity'), upper(r))) AS unbound
FROM events, tstzrange(NULL, '2025-01-01', '[]') AS r GROUP BY r;
SELECT count(*) AS differs
FROM events
WHERE snowflake_between(id, '2025-01-05T06:07:08.009', '2025-01-20T21:22:23.024')
      <> (snowflake_time(id) BETWEEN '2025-01-05T06:07:08.009' AND '2025-01-20T21:22:23.024');
-- With nulls the result is also that of BETWEEN.
SELECT snowflake_between(NULL, '2025-01-01', '2025-01-02') AS no_id,
       snowflake_between(0, NULL, '2025-01-02') AS no_from,
       snowflake_between(0, '2025-01-01', NULL) AS no_upto,
       snowflake_between(0, '2025-01-02', NULL) AS certainly_not;
SELECT snowflake_between(0, '2060-01-01', '2061-01-01');
\echo :LAST_ERROR_SQLSTATE
-- Ids of the second half of the 41 bits, which only other generators make, lie in no range of ours.
SELECT snowflake_between(-1, '-infinity', 'infinity') AS negative,
       snowflake_between(-1, '1970-01-01', '1970-01-02') AS before_the_epoch;

-- It is inlined and becomes a range of the primary key's index.
SET enable_seqscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT id FROM events WHERE snowflake_between(id, '2025-01-10', '2025-01-11');
SELECT count(*) FROM events WHERE snowflake_between(id, '2025-01-10', '2025-01-11');
EXPLAIN (COSTS OFF)
SELECT id FROM events WHERE snowflake_between(id, now() - interval '1 hour', 'infinity');
-- Also with parameters and a plan made before their values are known.
SET plan_cache_mode = force_generic_plan;
PREPARE span (timestamptz, timestamptz) AS
    SELECT count(*) FROM events WHERE snowflake_between(id, $1, $2);
EXPLAIN (COSTS OFF) EXECUTE span ('2025-01-10', '2025-01-11');
EXECUTE span ('2025-01-10', '2025-01-11');
EXECUTE span ('1970-01-01', '2025-01-01');
-- A range that begins after the end is refused, unless the other bound is null, so that no row can be in it: then
-- PostgreSQL need not compute this one.
EXECUTE span ('2060-01-01', '2025-01-01');
\echo :LAST_ERROR_SQLSTATE
DEALLOCATE span;
SELECT count(*) FROM events WHERE snowflake_between(id, '2060-01-01', '-infinity');
\echo :LAST_ERROR_SQLSTATE
SELECT count(*) FROM events WHERE snowflake_between(id, '2060-01-01', NULL);
RESET plan_cache_mode;
EXPLAIN (COSTS OFF)
SELECT id FROM events WHERE snowflake_between(id, '1970-01-01', '1999-12-31');
RESET enable_seqscan;
RESET enable_bitmapscan;
DROP TABLE events;

-- Partitions by time: the bounds are computed once, and a range of time visits only those it needs.
CREATE TABLE measured (id bigint PRIMARY KEY, value integer) PARTITION BY RANGE (id);
CREATE TABLE measured_01 PARTITION OF measured
    FOR VALUES FROM (snowflake_min_id('2025-01-01')) TO (snowflake_min_id('2025-02-01'));
CREATE TABLE measured_02 PARTITION OF measured
    FOR VALUES FROM (snowflake_min_id('2025-02-01')) TO (snowflake_min_id('2025-03-01'));
CREATE TABLE measured_03 PARTITION OF measured
    FOR VALUES FROM (snowflake_min_id('2025-03-01')) TO (snowflake_min_id('2025-04-01'));
INSERT INTO measured
    SELECT snowflake_make_id(ts, 7, 0), 1
    FROM generate_series(timestamptz '2025-01-01', '2025-03-31T23:00:00', '1 hour') AS ts;
SELECT tableoid::regclass AS partition, count(*), min(snowflake_time(id)), max(snowflake_time(id))
FROM measured GROUP BY tableoid ORDER BY 1;
SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE relname = 'measured_02';
SET enable_indexscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF)
SELECT value FROM measured WHERE snowflake_between(id, '2025-02-03', '2025-02-04') AND value > 0;
EXPLAIN (COSTS OFF)
SELECT value FROM measured WHERE snowflake_between(id, '2025-02-27', 'infinity') AND value > 0;
-- With parameters too, in a plan made before they are known.
SET plan_cache_mode = force_generic_plan;
PREPARE span (timestamptz, timestamptz) AS
    SELECT value FROM measured WHERE snowflake_between(id, $1, $2) AND value > 0;
EXPLAIN (COSTS OFF) EXECUTE span ('2025-02-03', '2025-02-04');
EXECUTE span ('2060-01-01', '2025-01-01');
\echo :LAST_ERROR_SQLSTATE
DEALLOCATE span;
RESET plan_cache_mode;
-- Plain numbers are known to the planner: the plan has no other partition.
SELECT snowflake_min_id('2025-02-03') AS "from", snowflake_max_id('2025-02-04') AS upto \gset
EXPLAIN (COSTS OFF) SELECT value FROM measured WHERE id BETWEEN :from AND :upto AND value > 0;
RESET enable_indexscan;
RESET enable_bitmapscan;
SELECT count(*) FROM measured WHERE snowflake_between(id, '2025-02-03', '2025-02-03T23:59:59.999');
DROP TABLE measured;
