-- A first load: in every shard 200 users with 10 photos each. The default mints the ids, for
-- many rows at once as well as for one. No created_at column is needed: the time is in the id.

DO $$
DECLARE
    shard integer;
BEGIN
    FOR shard IN 0..15 LOOP
        EXECUTE format($sql$

            INSERT INTO insta%1$s.users (name)
            SELECT 'user ' || n FROM generate_series(1, 200) AS n;

            INSERT INTO insta%1$s.photos (user_id, caption)
            SELECT id, 'photo ' || n FROM insta%1$s.users, generate_series(1, 10) AS n;

        $sql$, shard);
    END LOOP;
END
$$;
