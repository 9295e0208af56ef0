-- Rows per shard.

SELECT shard,
       count(*) FILTER (WHERE kind = 'users')  AS users,
       count(*) FILTER (WHERE kind = 'photos') AS photos,
       count(*) FILTER (WHERE kind = 'likes')  AS likes,
       count(*)                                AS rows
FROM every_row
GROUP BY shard
ORDER BY shard;

-- Over all schemas: does an id occur twice, or carry another shard than that of its schema?

SELECT count(*)                                       AS ids,
       count(DISTINCT id)                             AS different,
       count(*) - count(DISTINCT id)                  AS repeated,
       count(*) FILTER (WHERE shard_of(id) <> shard)  AS wrong_shard
FROM every_row;

-- The same as a check that fails.

DO $$
DECLARE
    repeated bigint;
    wrong bigint;
    used bigint;
BEGIN
    SELECT count(*) - count(DISTINCT id), count(*) FILTER (WHERE shard_of(id) IS DISTINCT FROM shard),
           count(DISTINCT shard)
    INTO repeated, wrong, used
    FROM every_row;

    IF repeated > 0 THEN
        RAISE EXCEPTION '% ids are there more than once', repeated;
    ELSIF wrong > 0 THEN
        RAISE EXCEPTION '% ids carry the wrong shard', wrong;
    ELSIF used <> 16 THEN
        RAISE EXCEPTION 'only % of 16 shards have rows', used;
    END IF;
END
$$;
