-- Minting: order, shard, time, batches, transactions.

-- The first shard, the last one, and that of the session.
SELECT shard, shard_of(snowflake_next_id(shard)) = shard AS right_shard
FROM unnest(ARRAY[0, 1, 4096, 8191]) AS shard;
SET idgen.shard = 77;
SELECT shard_of(snowflake_next_id());
RESET idgen.shard;

-- Within a session the ids of a shard strictly increase, and no id is older than its call or further
-- ahead of the clock than idgen.max_ahead, which is 1 s.
DO $$
DECLARE
    previous bigint := 0;
    id bigint;
    before timestamptz;
BEGIN
    FOR n IN 1..3000 LOOP
        before := date_trunc('milliseconds', clock_timestamp());
        id := snowflake_next_id(100);
        ASSERT id > previous, format('%s after %s', id, previous);
        ASSERT shard_of(id) = 100;
        ASSERT snowflake_time(id) BETWEEN before AND clock_timestamp() + interval '1 s',
            format('%s is outside %s and %s', snowflake_time(id), before, clock_timestamp());
        previous := id;
    END LOOP;
END $$;

-- An id of a shard that has been quiet is of the very millisecond in which it was asked for.
DO $$
DECLARE
    id bigint;
    before timestamptz;
BEGIN
    FOR n IN 1..20 LOOP
        PERFORM pg_sleep(0.002);
        before := date_trunc('milliseconds', clock_timestamp());
        id := snowflake_next_id(99);
        ASSERT snowflake_time(id) BETWEEN before AND clock_timestamp(),
            format('%s is outside %s and %s', snowflake_time(id), before, clock_timestamp());
    END LOOP;
END $$;

-- Time and sequence in one number, without the shard: 1 more for each id of a shard.
CREATE FUNCTION pg_temp.position(id bigint) RETURNS bigint LANGUAGE sql
    RETURN ((id >> 23) << 10) | (id & 1023);

-- A burst beyond 1024 ids in a millisecond runs ahead, not by more than idgen.max_ahead.
SELECT date_trunc('milliseconds', clock_timestamp()) AS before \gset
CREATE TEMP TABLE burst AS
    SELECT n, id FROM snowflake_next_ids(101, 200000) WITH ORDINALITY AS batch (id, n);
SELECT count(*) AS ids, count(DISTINCT id) AS different, count(DISTINCT shard_of(id)) AS shards,
       min(snowflake_time(id)) >= :'before' AS not_older_than_the_call,
       max(snowflake_time(id)) <= clock_timestamp() + interval '1 s' AS not_too_far_ahead
FROM burst;
SELECT count(*) AS not_ascending
FROM (SELECT id <= lag(id) OVER (ORDER BY n) AS wrong FROM burst) AS pairs WHERE wrong;
-- This batch is one run: no id is left out between its first and its last.
SELECT pg_temp.position(max(id)) - pg_temp.position(min(id)) + 1 AS positions FROM burst;
SELECT ahead_ms BETWEEN 0 AND 1000 AS ahead FROM idgen_status;
DROP TABLE burst;

-- Single ids and batches have one order: each comes after what was minted before it.
DO $$
DECLARE
    previous bigint := 0;
    id bigint;
BEGIN
    FOR n IN 1..300 LOOP
        FOR m IN 1..n % 5 LOOP
            id := snowflake_next_id(101);
            ASSERT id > previous;
            previous := id;
        END LOOP;
        FOR id IN SELECT snowflake_next_ids(101, n % 70) LOOP
            ASSERT id > previous;
            previous := id;
        END LOOP;
    END LOOP;
END $$;

-- Shards that take turns, each in its own order: a backend leases from one shard at a time.
DO $$
DECLARE
    previous bigint[] := ARRAY[0, 0, 0];
    id bigint;
BEGIN
    FOR n IN 1..3000 LOOP
        id := snowflake_next_id(102 + n % 3);
        ASSERT shard_of(id) = 102 + n % 3 AND id > previous[1 + n % 3];
        previous[1 + n % 3] := id;
    END LOOP;
END $$;

-- Batches of no id and of one id; each call of the function mints.
SELECT n, (SELECT count(*) FROM snowflake_next_ids(105, n)) AS ids FROM generate_series(0, 1) AS n;
SELECT count(*), count(DISTINCT id) FROM generate_series(1, 10) AS n, snowflake_next_ids(105, n) AS id;
SELECT count(*), count(DISTINCT id)
FROM (SELECT snowflake_next_ids(105, 10) AS id FROM generate_series(1, 10)) AS batches;
-- Ids of a batch that are not read are skipped: no later call returns them.
SELECT max(id) AS fifth FROM (SELECT snowflake_next_ids(105, 1000) AS id LIMIT 5) AS s \gset
SELECT pg_temp.position(snowflake_next_id(105)) - pg_temp.position(:fifth) >= 996 AS after_the_batch;

-- Each call in a statement mints: the planner may not fold them into one.
SELECT count(DISTINCT id) FROM (SELECT snowflake_next_id(106) AS id FROM generate_series(1, 1000)) AS s;
SELECT a < b AS in_order FROM (SELECT snowflake_next_id(106) AS a, snowflake_next_id(106) AS b) AS pair;

-- snowflake_last_id is the last id of this session, of any shard, from single calls and from batches.
\c -
SELECT snowflake_last_id();
\echo :LAST_ERROR_SQLSTATE
SELECT count(*) FROM snowflake_next_ids(110, 0);
SELECT snowflake_last_id();
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_next_id(110) AS id \gset
SELECT snowflake_last_id() = :id AS last;
SELECT snowflake_next_id(111) AS id \gset
SELECT snowflake_last_id() = :id AS last, snowflake_last_id() = :id AS still;
SELECT max(id) AS id FROM snowflake_next_ids(110, 3000) AS id \gset
SELECT snowflake_last_id() = :id AS last;
-- A call that fails leaves it as it was.
SELECT snowflake_next_id(9000);
SELECT snowflake_last_id() = :id AS last;

-- Ids are not part of the transaction: rolled back, they stay used, as a sequence's numbers do.
BEGIN;
SELECT snowflake_next_id(120) AS a \gset
SAVEPOINT s;
SELECT snowflake_next_id(120) AS b \gset
ROLLBACK TO s;
SELECT snowflake_last_id() = :b AS last;
SELECT snowflake_next_id(120) AS c \gset
SELECT 1 / 0;
ROLLBACK;
SELECT snowflake_last_id() = :c AS last;
SELECT snowflake_next_id(120) AS d \gset
SELECT :a < :b AND :b < :c AND :c < :d AS increasing;
DO $$
DECLARE
    previous bigint := 0;
    id bigint;
BEGIN
    FOR n IN 1..1000 LOOP
        BEGIN
            id := snowflake_next_id(121);
            ASSERT id > previous;
            previous := id;
            RAISE division_by_zero;
        EXCEPTION WHEN division_by_zero THEN
        END;
    END LOOP;
END $$;

-- By prepared statements, also with one plan for every shard.
PREPARE mint (integer) AS SELECT shard_of(snowflake_next_id($1));
SET plan_cache_mode = force_generic_plan;
EXECUTE mint (123);
EXECUTE mint (124);
EXECUTE mint (NULL);
\echo :LAST_ERROR_SQLSTATE
RESET plan_cache_mode;
DEALLOCATE mint;

-- By a cursor: an id is minted when its row is fetched.
BEGIN;
DECLARE ids NO SCROLL CURSOR FOR SELECT snowflake_next_id(125) AS id FROM generate_series(1, 4);
FETCH 1 FROM ids \gset first_
SELECT snowflake_next_id(125) AS between_id \gset
FETCH 1 FROM ids \gset second_
SELECT :first_id < :between_id AND :between_id < :second_id AS in_order_of_fetching;
COMMIT;

-- A shard that mints now and then starts its milliseconds at varying sequence numbers, so that the remainder of an
-- id hits every bucket.
SELECT count(DISTINCT id % 16) AS of_16, count(DISTINCT id & 1023) > 16 AS sequence_moves
FROM (SELECT snowflake_next_id(130) AS id, pg_sleep(0.002) FROM generate_series(1, 40)) AS quiet;
