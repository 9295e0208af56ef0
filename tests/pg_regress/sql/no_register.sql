-- Nowhere to keep the high-water mark in: the server runs, ids are taken apart, and none is minted, for
-- none could be kept from being repeated.
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
CREATE EXTENSION idgen;
\i `echo $PG_ABS_SRCDIR/refused.sql`
DO $$
BEGIN
    FOR n IN 1..coalesce(current_setting('max_active_replication_origins', true),    -- from PostgreSQL 18
                         current_setting('max_replication_slots'))::integer LOOP
        PERFORM pg_replication_origin_create('other ' || n);
        PERFORM pg_replication_origin_advance('other ' || n, '0/1');
    END LOOP;
END $$;

SELECT snowflake_next_id(5);
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM refusals('SELECT %s', '* FROM snowflake_next_ids(5, 10)', 'snowflake_advance(5, 0)',
    'snowflake_last_id()') \gx
-- A check says so too, and is no refused call.
SELECT refused AS refused_before FROM idgen_refusals WHERE reason = 'no_origin' \gset
SELECT state, message FROM refused('SELECT snowflake_check()');
SELECT refused - :refused_before AS counted FROM idgen_refusals WHERE reason = 'no_origin';
-- A batch of none needs no mark.
SELECT count(*) FROM snowflake_next_ids(5, 0);

-- The failed calls have left no lock: the same session, in one transaction, and another session continue.
BEGIN;
DO $$
BEGIN
    FOR n IN 1..20 LOOP
        BEGIN
            PERFORM snowflake_next_id(n);
            RAISE 'an id was minted';
        EXCEPTION WHEN configuration_limit_exceeded THEN
        END;
    END LOOP;
END $$;
SELECT count(*) FROM pg_replication_origin_status WHERE local_id = 65534;
COMMIT;
\c -
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
SET statement_timeout = '10s';
SELECT snowflake_next_id(5);
\echo :LAST_ERROR_SQLSTATE
SELECT shards_in_use, mark, mark_at, mark_kept_in, window_left_ms, renewals FROM idgen_status;

-- The status says it, with the number to set, as long as it is so. The setting has another name from
-- PostgreSQL 18 on.
SELECT regexp_replace(warning, '^"[a-z_]+"', 'The setting') AS warning FROM idgen_status;
SELECT pg_replication_origin_drop('other 3') \gset
SELECT warning FROM idgen_status;
SELECT pg_replication_origin_create('other 3') \gset
SELECT warning AS a_name_takes_no_room_yet FROM idgen_status;
SELECT pg_replication_origin_advance('other 3', '0/1') \gset
SELECT regexp_replace(warning, '^"[a-z_]+"', 'The setting') AS warning FROM idgen_status;
-- A role without any other privilege may read it.
CREATE ROLE regress_idgen_nobody;
SET ROLE regress_idgen_nobody;
SELECT regexp_replace(warning, '^"[a-z_]+"', 'The setting') AS warning FROM idgen_status;
RESET ROLE;
DROP ROLE regress_idgen_nobody;

-- Functions that do not mint work.
SELECT * FROM snowflake_decode(11637205501278089);
SELECT shard_of(11637205501278089), snowflake_min_id('2025-01-01T00:00:00.001Z'),
       snowflake_between(0, '2025-01-01T00:00:00Z', 'infinity'),
       snowflake_make_id('2025-01-01T00:00:00.001Z', 2, 3);
SELECT reason, sqlstate FROM idgen_refusals WHERE refused > 0;
DROP EXTENSION idgen;
