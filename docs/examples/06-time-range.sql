-- The photos of the last 200 ms before the newest. There is no index on a time: the planner sees a
-- range of ids, and scans the primary key.

ANALYZE insta5.photos;

SELECT snowflake_time(max(id)) AS newest FROM insta5.photos \gset

SELECT count(*), min(snowflake_time(id)) AS first, max(snowflake_time(id)) AS last
FROM insta5.photos
WHERE snowflake_between(id, :'newest'::timestamptz - interval '200 ms', :'newest');

\pset format unaligned
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF)
SELECT *
FROM insta5.photos
WHERE snowflake_between(id, :'newest'::timestamptz - interval '200 ms', :'newest');
