-- Every error of a running server: SQLSTATE, message, DETAIL and HINT. A user never sees XX000.
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';

-- 22004: null where a value must be given. A null shard is never taken for shard 0 or for none.
SELECT snowflake_next_id(NULL);
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM snowflake_next_ids(NULL, 1);
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM snowflake_next_ids(1, NULL);
\echo :LAST_ERROR_SQLSTATE

-- 22023: an argument out of range. It is not masked into another shard.
SELECT snowflake_next_id(8192);
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_next_id(-1);
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM snowflake_next_ids(2147483647, 1);
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM snowflake_next_ids(1, -1);
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_make_id('2025-01-01T00:00:00Z', 0, 1024);
\echo :LAST_ERROR_SQLSTATE

-- 22008: a moment that no id can have.
SELECT snowflake_make_id('2024-12-31T23:59:59.999Z', 0, 0);
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_min_id('infinity');
\echo :LAST_ERROR_SQLSTATE
-- With an epoch argument, the result may be a time that PostgreSQL cannot represent.
SELECT snowflake_time(8388608, '294276-12-31T23:59:59.999Z');
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_time(0, '-infinity');
\echo :LAST_ERROR_SQLSTATE

-- 55000: no shard for the session, and no id yet.
SELECT snowflake_next_id();
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_last_id();
\echo :LAST_ERROR_SQLSTATE

-- 22023: more ids than the shard can give, at once or in the time that a call may wait. The batch needs two
-- seconds of ids, idgen.max_ahead is one. The call does not wait, and takes no ids.
\i `echo $PG_ABS_SRCDIR/refused.sql`
\x
SET idgen.max_wait = 0;
SELECT * FROM refused('SELECT snowflake_next_ids(200, 2000000)');
SET idgen.max_wait = '100ms';
SELECT * FROM refused('SELECT snowflake_next_ids(201, 2000000)');
\x
-- The error changes neither the session nor other shards.
SELECT shard_of(snowflake_next_id(202));
-- A wait ends when it is cancelled, here by a timeout.
SET idgen.max_wait = '10s';
SET statement_timeout = '50ms';
SELECT count(*) FROM snowflake_next_ids(203, 5000000);
\echo :LAST_ERROR_SQLSTATE
RESET statement_timeout;
-- A wait that is short enough ends with ids.
SELECT count(*) AS ids, max(snowflake_time(id)) <= clock_timestamp() + interval '1 s' AS not_too_far_ahead
FROM snowflake_next_ids(204, 1100000) AS id;
RESET idgen.max_wait;

-- Arguments at all their ends, in every function: each call gives a result or one of the SQLSTATEs that
-- the documentation lists.
CREATE TEMP TABLE integers AS
    SELECT * FROM unnest(ARRAY['-2147483648', '-1', '0', '1', '1023', '1024', '8191', '8192',
        '2147483647', 'NULL']) AS i;
CREATE TEMP TABLE bigints AS
    SELECT * FROM unnest(ARRAY['-9223372036854775808', '-1', '0', '1', '9223372036854775807', 'NULL']) AS b;
CREATE TEMP TABLE moments AS
    SELECT * FROM unnest(ARRAY['''-infinity''', '''infinity''', '''4714-11-24 00:00:00+00 BC''',
        '''294276-12-31T23:59:59.999999Z''', '''1970-01-01T00:00:00Z''', '''2025-01-01T00:00:00Z''',
        '''2059-11-04T19:53:47.775999Z''', '''2059-11-04T19:53:47.776Z''', 'NULL']) AS t;
WITH calls (function, arguments) AS (
    SELECT f, i FROM integers, unnest(ARRAY['snowflake_next_id', 'snowflake_next_id_js']) AS f
    UNION ALL SELECT 'snowflake_next_ids', concat_ws(',', a.i, b.i)
              FROM integers AS a, integers AS b WHERE b.i <> '2147483647'
    UNION ALL SELECT 'snowflake_advance', concat_ws(',', i, b) FROM integers, bigints
    UNION ALL SELECT f, b FROM bigints, unnest(ARRAY['shard_of', 'snowflake_decode', 'snowflake_time']) AS f
    UNION ALL SELECT 'snowflake_time', concat_ws(',', b, t) FROM bigints, moments
    UNION ALL SELECT f, t FROM moments, unnest(ARRAY['snowflake_min_id', 'snowflake_max_id']) AS f
    UNION ALL SELECT 'snowflake_between', concat_ws(',', b, t.t, u.t)
              FROM bigints, moments AS t, moments AS u
    UNION ALL SELECT 'snowflake_make_id', concat_ws(',', t, a.i, b.i)
              FROM moments, integers AS a, integers AS b
)
SELECT function, count(*) AS calls, string_agg(DISTINCT coalesce(r.state, 'none'), ', ') AS errors
FROM calls, refused(format('SELECT count(s) FROM (SELECT %s(%s) AS s) AS call', function, arguments)) AS r
GROUP BY function ORDER BY function COLLATE "C";
-- The greatest batch that a call can ask for is more than any wait provides.
SET idgen.max_wait = 0;
SELECT state FROM refused('SELECT snowflake_next_ids(205, 2147483647)');
