-- The registers of the portable edition: who may use them, and what of them is durable.
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
\! ./install regression idgen.allowed_shards=0-9
\i in/refused.sql

-- 55000: a shard without a register. snowflake_advance makes one.
SET idgen.shard = 301;
SELECT * FROM refusals('SELECT %s', 'snowflake_next_id(10)', '* FROM snowflake_next_ids(8191, 0)',
    'snowflake_next_id()', 'snowflake_next_id_js(10)');
-- A rollback removes a register that the transaction has created, and a new one would begin with the clock: if that
-- has been set back, ids minted in between would be repeated. So no id is minted before the register is committed,
-- in whatever part of the transaction it was created.
BEGIN;
SELECT shard_of(snowflake_advance(10, 0));
SELECT * FROM refusals('SELECT %s', 'snowflake_next_id(10)', '* FROM snowflake_next_ids(10, 2)',
    'snowflake_next_id_js(10)') \gx
SELECT shard_of(snowflake_next_id(5));
SAVEPOINT made;
SELECT shard_of(snowflake_advance(11, 0));
RELEASE made;
SELECT snowflake_next_id(11);
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
SELECT shard_of(snowflake_advance(10, 0)), snowflake_next_id(10);
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_next_id(10);
\echo :LAST_ERROR_SQLSTATE
-- Nor by the transaction that runs the script.
\! PGOPTIONS="-c idgen.allowed_shards=11" psql -X -q -1 -d regression -v SHOW_CONTEXT=never -f idgen.sql -c "SELECT snowflake_next_id(11)"
SELECT to_regclass('idgen_portable.shard_11') AS none;
-- If it is advanced before that, it begins there.
SELECT snowflake_max_id(snowflake_time(snowflake_next_id(5)) + interval '400 ms') AS past \gset
BEGIN;
SELECT shard_of(snowflake_advance(10, 0)), shard_of(snowflake_advance(10, :past)), shard_of(snowflake_advance(10, 0));
SELECT pg_sequence_last_value('idgen_portable.shard_10') IS NULL AS unused;
COMMIT;
SELECT snowflake_next_id(10) > :past AS greater, shard_of(snowflake_next_id(10));
SELECT d.shard FROM snowflake_decode(snowflake_next_id_js(10), 'js53') AS d;
-- It goes with its registers.
DROP SEQUENCE idgen_portable.shard_10, idgen_portable.js_10;
SELECT * FROM refusals('SELECT snowflake_next_%s(10)', 'id', 'id_js') \gx

-- The session's shard is text until it is used; an invalid one is refused then.
SELECT * FROM refusals($$SELECT snowflake_next_id() FROM set_config('idgen.shard', %L, false)$$,
    'seven', '8192', '', '-1');
RESET idgen.shard;
SET idgen.max_wait = 'long';
SELECT * FROM snowflake_next_ids(5, 3000000);
\echo :LAST_ERROR_SQLSTATE
RESET idgen.max_wait;

-- 25006 where a sequence cannot be advanced. On a standby there is a message of its own.
BEGIN READ ONLY;
SELECT snowflake_next_id(5);
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
-- No isolation level hides an id from another session, or from this one.
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT snowflake_next_id(5) AS a \gset
SELECT snowflake_next_id(5) > :a AS greater;
COMMIT;

-- No lock on a shard outlives the call, whatever becomes of it; a transaction holds the gate to its end.
BEGIN;
SELECT shard_of(snowflake_next_id(5));
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory';
SELECT relation::regclass, mode FROM pg_locks
WHERE relation IN ('idgen_portable.last_id'::regclass, 'idgen_portable.shard_5'::regclass) ORDER BY 1;
SAVEPOINT s;
SELECT snowflake_next_id(NULL);
ROLLBACK TO s;
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory';
COMMIT;
SET statement_timeout = '20ms';
SELECT count(*) FROM snowflake_next_ids(6, 3000000);
\echo :LAST_ERROR_SQLSTATE
RESET statement_timeout;
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory';

-- A register holds the last position, and nothing can bring it beyond the range or below zero.
SELECT snowflake_next_id(5) AS id \gset
SELECT pg_sequence_last_value('idgen_portable.shard_5') = ((:id >> 23) << 10 | (:id & 1023)) AS position;
SELECT snowflake_next_id_js(5) AS js_id \gset
SELECT pg_sequence_last_value('idgen_portable.js_5') = ((:js_id >> 20) << 12 | (:js_id & 4095)) AS position;
SELECT setval('idgen_portable.shard_5', 1125899906842624);
\echo :LAST_ERROR_SQLSTATE
-- The end of the range, one id before.
SELECT setval('idgen_portable.shard_9', 1125899906842623);
SELECT snowflake_next_id(9);
\echo :LAST_ERROR_SQLSTATE

SELECT setval('idgen_portable.js_9', 4503599628288);
\echo :LAST_ERROR_SQLSTATE
SELECT setval('idgen_portable.js_9', 4503599628287);
SELECT snowflake_next_id_js(9);
\echo :LAST_ERROR_SQLSTATE
-- DISCARD SEQUENCES forgets the session's last id.
SELECT snowflake_last_id() = :js_id AS last;
DISCARD SEQUENCES;
SELECT snowflake_last_id();
\echo :LAST_ERROR_SQLSTATE

-- Any role may mint and decode ids and read the status; only the owner may use the registers.
CREATE ROLE regress_idgen_user;
SET ROLE regress_idgen_user;
SELECT shard_of(snowflake_next_id(5)), (SELECT count(*) FROM snowflake_next_ids(5, 3)) AS batch,
       snowflake_last_id() > 0 AS last_id;
SELECT d.shard FROM snowflake_decode(snowflake_next_id_js(5), 'js53') AS d;
SET idgen.shard = 7;
SELECT shard_of(snowflake_next_id());
RESET idgen.shard;
SELECT shard, sequence FROM snowflake_decode(11637205501278089);
SELECT shard_of(11637205501278089), snowflake_time(0) = snowflake_time(0, '2025-01-01T00:00:00Z') AS time,
       snowflake_min_id('2025-01-01T00:00:00Z'), snowflake_max_id('2025-01-01T00:00:00Z'),
       snowflake_between(0, '-infinity', 'infinity'), snowflake_make_id('2025-01-01T00:00:00Z', 1, 1);
SELECT shards_in_use, allowed_shards FROM idgen_status;
SELECT cases, state, message FROM refusals('%s', 'SELECT snowflake_advance(5, 0)',
    'SELECT idgen_portable.advance(5, 0)', 'SELECT idgen_portable.make_register(11)',
    $$SELECT setval('idgen_portable.shard_5', 1)$$, $$SELECT nextval('idgen_portable.shard_5')$$,
    'SELECT last_value FROM idgen_portable.shard_5', 'CREATE SEQUENCE idgen_portable.shard_12',
    'CREATE FUNCTION idgen_portable.epoch_ms() RETURNS bigint LANGUAGE sql RETURN 0') \gx
-- A helper that the calls of all roles run does not bring a register back, whatever its arguments are.
SELECT snowflake_next_id(5) AS id \gset
SELECT snowflake_next_id_js(5) AS js_id \gset
SELECT cases, message FROM refusals('SELECT idgen_portable.mint(%s)', '5, 0', '5, -100000, 0, true', '5, 2147483648',
    '5, 9223372036854775807', '5, 1, -1', '5, NULL', '5, 1, NULL', '5, 1, 0, NULL', 'NULL, 1', '-1, 1', '256, 1, 0, true');
SELECT idgen_portable.mint(5, 1, 9223372036854775807) > :id AS greater,
       idgen_portable.mint(5, 1, 9223372036854775807, true) > :js_id AS greater;
SELECT snowflake_next_id(5) > :id AS greater;
RESET ROLE;
GRANT EXECUTE ON FUNCTION snowflake_advance TO regress_idgen_user;
SET ROLE regress_idgen_user;
SELECT shard_of(snowflake_advance(5, 0)) AS advanced, shard_of(snowflake_advance(11, 0)) AS made;
RESET ROLE;
SELECT c.relowner::regrole FROM pg_class AS c WHERE c.oid = 'idgen_portable.shard_11'::regclass;

-- A schema put first, with functions, operators and types of the names that the bodies use.
CREATE SCHEMA hostile;
CREATE FUNCTION hostile.refuse(a bigint, b bigint) RETURNS boolean LANGUAGE plpgsql AS
    $$ BEGIN RAISE 'the search_path got in'; END $$;
CREATE FUNCTION hostile.refuse(a bigint, b integer) RETURNS bigint LANGUAGE plpgsql AS
    $$ BEGIN RAISE 'the search_path got in'; END $$;
CREATE OPERATOR hostile.>= (FUNCTION = hostile.refuse, LEFTARG = bigint, RIGHTARG = bigint);
CREATE OPERATOR hostile.<= (FUNCTION = hostile.refuse, LEFTARG = bigint, RIGHTARG = bigint);
CREATE OPERATOR hostile.> (FUNCTION = hostile.refuse, LEFTARG = bigint, RIGHTARG = bigint);
CREATE OPERATOR hostile.>> (FUNCTION = hostile.refuse, LEFTARG = bigint, RIGHTARG = integer);
CREATE OPERATOR hostile.<< (FUNCTION = hostile.refuse, LEFTARG = bigint, RIGHTARG = integer);
CREATE FUNCTION hostile.setval(register regclass, value bigint) RETURNS bigint LANGUAGE plpgsql AS
    $$ BEGIN RAISE 'the search_path got in'; END $$;
CREATE FUNCTION hostile.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS
    $$ BEGIN RAISE 'the search_path got in'; END $$;
CREATE FUNCTION hostile.to_regclass(name text) RETURNS regclass LANGUAGE plpgsql AS
    $$ BEGIN RAISE 'the search_path got in'; END $$;
CREATE FUNCTION hostile.snowflake_min_id(ts timestamptz) RETURNS bigint LANGUAGE plpgsql AS
    $$ BEGIN RAISE 'the search_path got in'; END $$;
CREATE DOMAIN hostile.regclass AS integer;
SET search_path = hostile, public, pg_catalog;
-- The trap works:
\set VERBOSITY terse
SELECT 1::bigint >= 0::bigint;
SELECT 1::bigint >> 0;
\set VERBOSITY default
-- and nothing falls into it.
SELECT public.shard_of(public.snowflake_next_id(5)), public.shard_of(public.snowflake_advance(5, 0)),
       public.snowflake_last_id() IS NULL AS last_id;
SELECT pg_catalog.count(*) FROM public.snowflake_next_ids(5, 10);
SELECT shard FROM public.snowflake_decode(public.snowflake_next_id_js(5), 'js53');
SELECT shard, sequence FROM public.snowflake_decode(11637205501278089);
SELECT public.snowflake_between(n, '2025-01-01T00:00:00Z', 'infinity') AS between
FROM pg_catalog.generate_series(0, 1) AS n;
SELECT public.snowflake_make_id('2025-01-01T00:00:01Z', 2, 3), public.snowflake_max_id('2025-01-01T00:00:00Z'),
       public.snowflake_time(0, '2025-01-01T00:00:00Z') OPERATOR(pg_catalog.=) public.snowflake_time(0) AS time;
SELECT allowed_shards FROM public.idgen_status;
RESET search_path;

SET client_min_messages = warning;
DROP SCHEMA hostile CASCADE;
DROP OWNED BY regress_idgen_user;
DROP ROLE regress_idgen_user;

-- A dump brings everything along, and the registers as they are.
RESET client_min_messages;
CREATE DATABASE copy;
SELECT setval('idgen_portable.shard_8', ((now_tick + 900) << 10)) AS last FROM idgen_status \gset
\! pg_dump regression | psql -X -q -v ON_ERROR_STOP=1 -d copy >/dev/null
\c copy
SELECT pg_sequence_last_value('idgen_portable.shard_8') = :last AS same, allowed_shards FROM idgen_status;
SELECT pg_sequence_last_value('idgen_portable.js_5') >= (:js_id >> 20) << 12 AS of_js,
       snowflake_next_id_js(5) > :js_id AS greater;
SELECT shard_of(snowflake_next_id(8)), pg_sequence_last_value('idgen_portable.shard_8') > :last AS greater;
\! ./install copy
SELECT shard_of(snowflake_next_id(11));
\c regression
DROP DATABASE copy;
