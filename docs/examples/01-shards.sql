-- Sixteen logical shards, each a schema with the same tables, after Instagram's "Sharding & IDs at
-- Instagram". The schemas may all live in one database today and move to others later: the shard is
-- in every id, so an id alone says where its row is.
--
-- The numbers 0 to 8191 are available. Give each schema of all your databases a number of its own.

DO $$
DECLARE
    shard integer;
BEGIN
    FOR shard IN 0..15 LOOP
        EXECUTE format($sql$

            CREATE SCHEMA insta%1$s;

            CREATE TABLE insta%1$s.users (
                id         bigint PRIMARY KEY DEFAULT snowflake_next_id(%1$s),
                name       text NOT NULL
            );

            -- A photo lives in the shard of its user.
            CREATE TABLE insta%1$s.photos (
                id         bigint PRIMARY KEY DEFAULT snowflake_next_id(%1$s),
                user_id    bigint NOT NULL REFERENCES insta%1$s.users,
                caption    text NOT NULL
            );

            -- A like lives in the shard of its photo. The user may be of any shard, so that column
            -- has no foreign key.
            CREATE TABLE insta%1$s.likes (
                id         bigint PRIMARY KEY DEFAULT snowflake_next_id(%1$s),
                photo_id   bigint NOT NULL REFERENCES insta%1$s.photos,
                user_id    bigint NOT NULL,
                UNIQUE (photo_id, user_id)
            );

        $sql$, shard);
    END LOOP;
END
$$;
