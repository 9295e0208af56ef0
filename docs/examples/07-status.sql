-- The clock of the ids, its safeguards and the settings in effect; then the three busiest shards. There,
-- "ids" counts what sessions took: they take short runs, and skip what they do not use within the
-- millisecond.

\x on
SELECT * FROM idgen_status;
\x off

SELECT * FROM idgen_shard_stats ORDER BY ids DESC LIMIT 3;
