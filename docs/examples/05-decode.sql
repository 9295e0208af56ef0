-- The three newest photos of shard 5: when each was made, where it lives, and its number within that
-- millisecond.

SELECT id, d.*
FROM insta5.photos, snowflake_decode(id) AS d
ORDER BY id DESC
LIMIT 3;
