-- One view over all shards and tables: CREATE VIEW every_row AS
--     SELECT 0 AS shard, 'users' AS kind, id FROM insta0.users UNION ALL
--     SELECT 0 AS shard, 'photos' AS kind, id FROM insta0.photos UNION ALL ...

DO $$
BEGIN
    EXECUTE (
        SELECT 'CREATE OR REPLACE VIEW every_row AS '
            || string_agg(
                   format('SELECT %1$s AS shard, %2$L AS kind, id FROM insta%1$s.%2$I', shard, kind),
                   ' UNION ALL ')
        FROM generate_series(0, 15) AS shard,
             unnest(ARRAY['users', 'photos', 'likes']) AS kind
    );
END
$$;
