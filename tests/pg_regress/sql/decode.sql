-- Decoding ids and making them: shard_of, snowflake_decode, snowflake_make_id.
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
\i `echo $PG_ABS_SRCDIR/refused.sql`

-- The example in Instagram's article: tick 1387263000, shard 1341, sequence 5001 % 1024.
SELECT snowflake_make_id(timestamptz '2025-01-01T00:00:00Z' + 1387263000 * interval '1 ms', 1341, 5001 % 1024)
    AS golden;
SELECT * FROM snowflake_decode(11637205501278089);
SELECT shard_of(11637205501278089);

-- Each field at both its ends, all other bits 0 or all other bits 1. Every bigint decodes: the word is
-- read as unsigned, so that the sign is the 41st bit of the tick, as in ids of the original function.
SELECT id, created_at, shard, sequence, shard_of(id)
FROM (VALUES (1, 0::bigint), (2, 1023), (3, 1024), (4, 8388607), (5, 8388608),
             (6, 9223372036854775807), (7, 9223372036846387200), (8, 9223372036854774784),
             (9, (-9223372036854775808)::bigint), (10, -1), (11, -8388608), (12, -1024)) AS ids (n, id),
     snowflake_decode(id)
ORDER BY n;

-- Null in, null out.
SELECT shard_of(NULL), snowflake_decode(NULL) IS NULL AS decode, snowflake_make_id(NULL, 1, 1) AS no_ts,
       snowflake_make_id('2025-01-01T00:00:00Z', NULL, 1) AS no_shard,
       snowflake_make_id('2025-01-01T00:00:00Z', 1, NULL) AS no_sequence;

-- 20,000 words over all 64 bits, compared with the arithmetic; and back for those that can be minted.
CREATE TEMP TABLE words AS
    SELECT hashint8extended(n, 0) AS id FROM generate_series(1, 20000) AS n;
SELECT count(*) AS words, count(*) FILTER (WHERE id < 0) BETWEEN 9000 AND 11000 AS half_negative,
       count(*) FILTER (WHERE created_at <> timestamptz '2025-01-01T00:00:00Z'
                                 + ((id >> 23) & ((1::bigint << 41) - 1)) * interval '1 ms') AS wrong_time,
       count(*) FILTER (WHERE shard <> ((id >> 10) & 8191)) AS wrong_shard,
       count(*) FILTER (WHERE shard <> shard_of(id)) AS wrong_shard_of,
       count(*) FILTER (WHERE sequence <> (id & 1023)) AS wrong_sequence,
       count(*) FILTER (WHERE created_at <> snowflake_time(id)) AS wrong_snowflake_time
FROM words, snowflake_decode(id);
SELECT count(*) > 9000 AS enough,
       count(*) FILTER (WHERE snowflake_make_id(created_at, shard, sequence) <> id) AS lost
FROM words, snowflake_decode(id)
WHERE id >= 0;
DROP TABLE words;

-- A moment is cut to its millisecond, never rounded; the first and the last that an id can have.
SELECT ts, id, created_at
FROM (VALUES (timestamptz '2025-01-01T00:00:00Z'), ('2025-01-01T00:00:00.000999Z'),
             ('2025-01-01T00:00:00.001Z'), ('2025-01-01T00:00:00.001999Z'),
             ('2059-11-04T19:53:47.775Z'), ('2059-11-04T19:53:47.775999Z')) AS moments (ts),
     snowflake_make_id(ts, 8191, 1023) AS id, snowflake_decode(id)
ORDER BY ts;

-- A microsecond further, on either side, no id exists: the function raises an error and returns no wrong id.
SELECT * FROM refusals('SELECT snowflake_make_id(%L, 0, 0)', '2024-12-31T23:59:59.999999Z',
    '2059-11-04T19:53:47.776Z', 'infinity', '-infinity', '4714-11-24 00:00:00+00 BC') \gx

-- Shard and sequence are checked, not masked.
SELECT * FROM refusals($$SELECT snowflake_make_id('2025-01-01T00:00:00Z', %s)$$, '8192, 0', '-1, 0', '0, 1024',
    '0, -2147483648');

-- The time zone of the session changes how a moment is written, but not the moment.
SELECT snowflake_make_id('2025-06-01T12:00:00Z', 5, 6) AS id \gset
SET timezone = 'Asia/Kolkata';
SELECT created_at, created_at = timestamptz '2025-06-01T12:00:00Z' AS same FROM snowflake_decode(:id);
SELECT snowflake_make_id('2025-06-01T17:30:00+05:30', 5, 6) = :id AS same;
