-- The clock of the ids, its guards and the settings in force; then the three busiest shards. There,
-- "ids" is what sessions took: they take short runs, and what one does not use in its millisecond is
-- skipped.

\x on
SELECT * FROM idgen_status;
\x off

SELECT * FROM idgen_shard_stats ORDER BY ids DESC LIMIT 3;
