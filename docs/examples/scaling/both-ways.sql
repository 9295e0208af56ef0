-- Every row of another server, and it has every row of this one: PostgreSQL 16 and later. On each of the two,
-- when the other has the publication; first on the one that has no rows yet, which copies those of the other:
--     psql -d app -c 'CREATE PUBLICATION everything FOR TABLE users'
--     psql -d app -v source=one -v conninfo='host=10.0.0.1 dbname=app' -v copy=true -f both-ways.sql
-- and then on the other, with copy=false. If it fails or is interrupted, drop the subscription, delete the rows that it
-- has copied, and start again.
\set ON_ERROR_STOP on
\set AUTOCOMMIT on
SET search_path = pg_catalog;
SET statement_timeout = 0;
SET default_transaction_isolation = 'read committed';    -- so that the loop below sees the copy end
-- Rows that the source has received from elsewhere are not sent, so nothing comes back.
CREATE SUBSCRIPTION :"source" CONNECTION :'conninfo' PUBLICATION everything
    WITH (origin = none, copy_data = :copy);
-- If the other followed before the copy is complete, it would get new rows of this server, and the copy would fail because
-- these are there already, again and again.
SET both_ways.source = :'source';
DO $$
DECLARE
    to_come bigint;
BEGIN
    LOOP
        SELECT count(*) FILTER (WHERE srsubstate <> 'r') INTO to_come
        FROM pg_subscription AS s JOIN pg_subscription_rel ON srsubid = s.oid JOIN pg_database AS d ON d.oid = subdbid
        WHERE datname = current_database() AND subname = current_setting('both_ways.source')::name
        HAVING count(*) > 0;
        IF to_come IS NULL THEN RAISE 'the subscription follows no table of the publication "everything"'; END IF;
        EXIT WHEN to_come = 0;
        PERFORM pg_sleep(0.1);
    END LOOP;
END $$;
