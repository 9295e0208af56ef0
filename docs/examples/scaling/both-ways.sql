-- Every row of another server, and it has every row of this one: PostgreSQL 16 and later. On each of the two,
-- when the other has the publication; first on the one that has no rows yet, which copies those of the other:
--     psql -d app -c 'CREATE PUBLICATION everything FOR TABLE users'
--     psql -d app -v source=one -v conninfo='host=10.0.0.1 dbname=app' -v copy=true -f both-ways.sql
-- and then on the other, with copy=false.
\set ON_ERROR_STOP on
\set AUTOCOMMIT on
-- Rows that the source has received from elsewhere are not sent, so nothing comes back.
CREATE SUBSCRIPTION :"source" CONNECTION :'conninfo' PUBLICATION everything
    WITH (origin = none, copy_data = :copy);
-- If the other followed before the copy is complete, it would get new rows of this server, and the copy would fail because
-- these are there already, again and again.
SET search_path = pg_catalog;
SET both_ways.source = :'source';
DO $$ BEGIN
    WHILE EXISTS (SELECT FROM pg_subscription AS s JOIN pg_subscription_rel ON srsubid = s.oid
                  WHERE subname = current_setting('both_ways.source') AND srsubstate <> 'r') LOOP
        PERFORM pg_sleep(0.1);
    END LOOP;
END $$;
