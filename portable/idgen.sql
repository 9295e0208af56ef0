-- idgen, the portable edition: the same functions in plain SQL and PL/pgSQL, for servers on which extensions cannot
-- be installed. PostgreSQL 14 or later. The README.md in this folder says what it promises and what it does not.
--
--   psql -d mydb -v ON_ERROR_STOP=1 -f idgen.sql
--
-- The functions are created in the current schema, and their helpers and registers in the schema idgen_portable.
-- Three settings are read only by this script, and by nothing later: idgen.epoch, idgen.max_ahead and
-- idgen.allowed_shards, which lists the shards to create registers for, by default 0-1023. If it is run again, the
-- script replaces the functions, and leaves the epoch and the registers as they are.
--
-- The script is a single statement, so that either all of it is done or nothing, and so that names are looked up
-- only in pg_catalog, whether or not it runs in a transaction; all other names are qualified. Others may be allowed
-- to create objects in the current schema, and an operator or a function of theirs whose argument types match
-- better would otherwise be called by the script, or become part of what it creates. For the same reason every
-- function body is either parsed here (the SQL functions) or has a search_path of its own (the PL/pgSQL functions).
--
-- Migration tools can run it as it is. Some take a colon and a word, a question mark or a percent sign for the
-- place of a parameter, wherever it occurs, so the script contains none, not even in comments. Nor does it contain
-- a backslash, whose meaning depends on standard_conforming_strings.
DO $idgen$
DECLARE
    path CONSTANT pg_catalog.text := pg_catalog.current_setting('search_path');
    home CONSTANT pg_catalog.name := pg_catalog.current_schema();
    owner pg_catalog.name;
    others pg_catalog.text;
    state pg_catalog.text;
    message pg_catalog.text;
    detail pg_catalog.text;
    hint pg_catalog.text;
BEGIN
SET LOCAL search_path = pg_catalog, pg_temp;

-- Existing objects --------------------------------------------------------------------------------

IF current_setting('server_version_num')::integer < 140000 THEN
    RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = 'idgen needs PostgreSQL 14 or later',
        DETAIL = concat('This server is PostgreSQL ', current_setting('server_version'), '.'),
        HINT = 'Upgrade the server.';
ELSIF home IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = '3F000', MESSAGE = 'no schema has been selected to create functions in',
        DETAIL = 'The functions of idgen are created in the current schema.',
        HINT = 'Run this script with an existing schema first in the search_path.';
ELSIF starts_with(home, 'pg_') THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = concat('cannot create functions in schema "', home, '"'),
        DETAIL = 'Schemas of PostgreSQL are not for the functions of idgen.',
        HINT = 'Run this script with another schema first in the search_path.';
ELSIF translate(home, '"$''' || chr(92), '') <> home THEN
    -- CREATE EXTENSION checks this, too.
    RAISE EXCEPTION USING ERRCODE = '22023',
        MESSAGE = concat('the name of schema "', home, '" contains a quote, a dollar sign or a backslash'),
        DETAIL = 'The script of idgen inserts the name into literals.',
        HINT = 'Run this script with another schema first in the search_path.';
ELSIF EXISTS (SELECT FROM pg_extension WHERE extname = 'idgen') THEN
    RAISE EXCEPTION USING ERRCODE = '55000',
        MESSAGE = 'the extension idgen is installed in this database',
        DETAIL = 'It does all that the portable edition does.',
        HINT = 'Use the extension.';
ELSIF to_regclass('idgen_portable.moved') IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '55000',
        MESSAGE = 'the extension idgen has since minted ids in this database',
        DETAIL = 'The registers of the portable edition do not know of them.',
        HINT = 'Use DROP SCHEMA idgen_portable CASCADE, run this script, and call snowflake_advance for each shard.';
END IF;
owner := (SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = 'idgen_portable');
IF owner <> current_user THEN
    RAISE EXCEPTION USING ERRCODE = '42501',
        MESSAGE = concat('schema "idgen_portable" belongs to role "', owner, '"'),
        DETAIL = 'Its owner could change what this script creates in it.',
        HINT = 'Run this script as that role, or drop the schema.';
END IF;
DECLARE
    elsewhere CONSTANT pg_catalog.name := (
        SELECT nspname FROM pg_proc JOIN pg_namespace AS n ON n.oid = pronamespace
        WHERE proname = 'shard_of' AND obj_description(pg_proc.oid, 'pg_proc') ~ ' Portable edition[.]$'
          AND pg_get_userbyid(proowner) = current_user AND nspname <> home
        LIMIT 1);
BEGIN
    IF elsewhere IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = concat('idgen is in schema "', elsewhere, '"'),
            DETAIL = 'Run again, this script replaces the functions there.',
            HINT = 'Run this script with that schema first in the search_path.';
    END IF;
END;

-- A replaced object keeps its owner, who could then make it do anything. This is checked twice, because others may
-- create objects in the meantime.
FOR pass IN 1..2 LOOP
others := (
    SELECT string_agg(object, ', ' ORDER BY object COLLATE "C")
    FROM (SELECT oid::regprocedure::text AS object, pronamespace AS namespace, proname AS name,
                 proowner AS owner FROM pg_proc
          UNION ALL SELECT oid::regclass::text, relnamespace, relname, relowner FROM pg_class) AS objects
    WHERE (namespace = to_regnamespace(quote_ident(home)) AND name::text ~ '^(snowflake_|idgen_|shard_of$)'
           OR namespace = to_regnamespace('idgen_portable'))
      AND pg_get_userbyid(objects.owner) <> current_user);
IF others IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '42501',
        MESSAGE = 'objects with names of the portable edition belong to other roles',
        DETAIL = concat('idgen would replace these: ', others, '.'),
        HINT = 'Drop them, or run this script with a schema of your own first in the search_path.';
ELSIF pass = 2 THEN
    EXIT;
END IF;

BEGIN
EXECUTE replace($script$
DO $$
BEGIN
    -- IF NOT EXISTS would accept a schema that another role has created since the check.
    IF to_regnamespace('idgen_portable') IS NULL THEN
        CREATE SCHEMA idgen_portable;
    END IF;
END $$;
COMMENT ON SCHEMA idgen_portable IS
'Helpers and registers of idgen''s portable edition. Do not call or change anything in it by hand, except to drop the sequences shard_N and js_N so that no ids are minted for shard N here.';
-- All roles run the function bodies; only the owner touches a sequence.
GRANT USAGE ON SCHEMA idgen_portable TO PUBLIC;
-- The minting functions that already exist. The first of them is the model for those that are missing.
DO $$
BEGIN
    PERFORM set_config('idgen_portable.minting', concat_ws(
        ',', to_regprocedure('@extschema@.snowflake_next_id(integer)')::oid,
        to_regprocedure('@extschema@.snowflake_next_id()')::oid,
        to_regprocedure('@extschema@.snowflake_next_ids(integer, integer)')::oid,
        to_regprocedure('@extschema@.snowflake_next_id_js(integer)')::oid,
        to_regprocedure('idgen_portable.mint(integer, bigint, bigint, boolean)')::oid,
        to_regprocedure('idgen_portable.mint_many(integer, integer)')::oid), true);
END $$;

-- Settings ----------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION idgen_portable.blank(value text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN translate(value, chr(9) || chr(10) || chr(11) || chr(12) || chr(13), '     ');
COMMENT ON FUNCTION idgen_portable.blank(text) IS 'Replaces every kind of white space in a text by blanks.';

CREATE OR REPLACE FUNCTION idgen_portable.milliseconds(
        name text, least_ms bigint, greatest_ms bigint, fallback bigint)
    RETURNS bigint LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    value text := current_setting(name, true);
    parts text[] := regexp_match(
        idgen_portable.blank(value), '^ *([0-9]+([.][0-9]+){0,1}) *(us|ms|s|min|h|d){0,1} *$');
    ms numeric;
BEGIN
    IF coalesce(value, '') = '' THEN
        RETURN fallback;
    END IF;
    ms := round(parts[1]::numeric * CASE coalesce(parts[3], 'ms') WHEN 'us' THEN 0.001 WHEN 'ms' THEN 1
        WHEN 's' THEN 1000 WHEN 'min' THEN 60000 WHEN 'h' THEN 3600000 ELSE 86400000 END);
    IF ms BETWEEN least_ms AND greatest_ms THEN
        RETURN ms;
    END IF;
    RAISE EXCEPTION USING ERRCODE = '22023',
        MESSAGE = concat('invalid value for parameter "', name, '": "', value, '"'),
        DETAIL = 'The value is not a time that idgen accepts.',
        HINT = concat('Give a time between ', least_ms, ' and ', greatest_ms, ' ms. Valid units are "us", '
                      '"ms", "s", "min", "h", and "d".');
END $$;
COMMENT ON FUNCTION idgen_portable.milliseconds(text, bigint, bigint, bigint) IS
'Reads a setting as PostgreSQL reads times, in milliseconds.';

-- The epoch and idgen.max_ahead are constants in functions of their own, because any session could change a
-- setting.
DO $$
DECLARE
    value text := btrim(idgen_portable.blank(current_setting('idgen.epoch', true)));
    ms numeric;
    problem text;
BEGIN
    IF coalesce(value, '') = '' THEN
        IF to_regproc('idgen_portable.epoch_ms') IS NOT NULL THEN
            RETURN;
        END IF;
        value := '2025-01-01T00:00:00Z';
    END IF;
    IF value ~ '^[+-]{0,1}[0-9]+$' THEN
        ms := value;
    ELSIF value ~* ('^[0-9]{4}-[0-9]{2}-[0-9]{2}[t ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+){0,1}'
                    '(z|[+-][0-9]{2}:[0-9]{2})$') THEN
        BEGIN
            ms := extract(epoch FROM date_trunc('milliseconds', value::timestamptz)) * 1000;
        EXCEPTION WHEN datetime_field_overflow OR invalid_datetime_format THEN
        END;
        IF value ~ '[.][0-9]{3}[0-9]*[1-9]' THEN
            problem := 'The value has a part smaller than a millisecond.';
        END IF;
    END IF;
    IF ms IS NULL THEN
        problem := 'The value is neither an RFC 3339 time nor an integer.';
    ELSIF ms NOT BETWEEN -62135596800000 AND 253402300799999 THEN
        problem := 'The value is outside the years 1 to 9999.';
    END IF;
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22023',
            MESSAGE = concat('invalid value for parameter "idgen.epoch": "', value, '"'), DETAIL = problem,
            HINT = 'Write a time such as "2025-01-01T00:00:00Z", or whole milliseconds since 1970 such as '
                   '1735689600000.';
    END IF;
    IF to_regproc('idgen_portable.epoch_ms') IS NULL THEN
        EXECUTE concat('CREATE FUNCTION idgen_portable.epoch_ms() RETURNS bigint LANGUAGE sql STABLE PARALLEL '
                       'SAFE RETURN bigint ', quote_literal(ms::bigint));
        COMMENT ON FUNCTION idgen_portable.epoch_ms() IS
            'The time of tick 0 in milliseconds since 1970. Never change it: existing ids would decode to wrong times, and might be minted again.';
    ELSIF idgen_portable.epoch_ms() <> ms THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = 'the epoch cannot be changed',
            DETAIL = concat('It is ', idgen_portable.epoch_ms(), ' ms after 1970; "idgen.epoch" is ', value,
                            '.'),
            HINT = 'Use RESET idgen.epoch.';
    END IF;
END $$;

DO $$
BEGIN
    IF to_regproc('idgen_portable.max_ahead_ms') IS NULL
            OR coalesce(current_setting('idgen.max_ahead', true), '') <> '' THEN
        EXECUTE concat('CREATE OR REPLACE FUNCTION idgen_portable.max_ahead_ms() RETURNS bigint LANGUAGE sql '
                       'STABLE PARALLEL SAFE RETURN bigint ',
                       quote_literal(idgen_portable.milliseconds('idgen.max_ahead', 0, 3600000, 1000)));
    END IF;
END $$;
COMMENT ON FUNCTION idgen_portable.max_ahead_ms() IS
'How far ids may run ahead of the system clock, in milliseconds.';

CREATE OR REPLACE FUNCTION idgen_portable.epoch() RETURNS timestamptz
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN timestamptz '1970-01-01T00:00:00Z' + idgen_portable.epoch_ms() * interval '1 ms';
COMMENT ON FUNCTION idgen_portable.epoch() IS 'The time of tick 0.';

-- Errors that more than one function raises -------------------------------------------------------

CREATE OR REPLACE FUNCTION idgen_portable.refuse_null(argument text) RETURNS void
    LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = concat('argument "', argument, '" must not be null'),
        DETAIL = 'idgen does not accept null for this argument.',
        HINT = CASE argument WHEN 'shard' THEN 'Pass a shard, or call snowflake_next_id() without an '
                                               'argument, which uses "idgen.shard".'
                             ELSE 'Pass a value that is not null.' END;
END $$;
COMMENT ON FUNCTION idgen_portable.refuse_null(text) IS 'Raises 22004.';

CREATE OR REPLACE FUNCTION idgen_portable.refuse_part(part text, value integer, greatest_value integer)
    RETURNS void LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = concat(part, ' ', value, ' is out of range'),
        DETAIL = concat('The ', part, ' of an id of idgen must be between 0 and ', greatest_value, '.'),
        HINT = concat('Pass a ', part, ' in this range.');
END $$;
COMMENT ON FUNCTION idgen_portable.refuse_part(text, integer, integer) IS 'Raises 22023.';

CREATE OR REPLACE FUNCTION idgen_portable.refuse_clock(tick bigint) RETURNS void
    LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF tick < 0 THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = 'the system clock is before "idgen.epoch"',
            DETAIL = concat('The clock is ', -tick, ' ms before the epoch.'),
            HINT = 'Check the system clock and the setting.';
    END IF;
    RAISE EXCEPTION USING ERRCODE = '2200H', MESSAGE = 'the range of ids is used up',
        DETAIL = 'Ids of all 8192 shards cover the 2^40 milliseconds (34.8 years) that begin at '
                 '"idgen.epoch".',
        HINT = 'Check the system clock and "idgen.epoch". At the true end, only a later epoch with new keys helps.';
END $$;
COMMENT ON FUNCTION idgen_portable.refuse_clock(bigint) IS
'Raises 55000 for a tick before the epoch, and 2200H for any other.';

CREATE OR REPLACE FUNCTION idgen_portable.shards(prefix text DEFAULT 'shard_') RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT coalesce(string_agg(run, ',' ORDER BY first), '')
    FROM (SELECT min(shard) AS first, concat_ws('-', min(shard), nullif(max(shard), min(shard))) AS run
          FROM (SELECT shard, shard - row_number() OVER (ORDER BY shard) AS island
                FROM (SELECT substr(relname, length(prefix) + 1)::integer AS shard
                      FROM pg_class
                      WHERE relnamespace = 'idgen_portable'::regnamespace AND relkind = 'S'
                        AND relname ~ ('^' || prefix || '[0-9]+$')) AS registers) AS numbered
          GROUP BY island) AS runs;
END;
COMMENT ON FUNCTION idgen_portable.shards(text) IS
'The shards that have a register here whose name begins with the prefix, such as 0-1023,5000.';

CREATE OR REPLACE FUNCTION idgen_portable.check_shard(shard integer, greatest_shard integer DEFAULT 8191)
    RETURNS void LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF shard IS NULL THEN
        PERFORM idgen_portable.refuse_null('shard');
    ELSIF shard NOT BETWEEN 0 AND greatest_shard THEN
        PERFORM idgen_portable.refuse_part('shard', shard, greatest_shard);
    END IF;
END $$;
COMMENT ON FUNCTION idgen_portable.check_shard(integer, integer) IS
'Raises 22004 for null, and 22023 outside 0 to the greatest shard.';

-- Registers ---------------------------------------------------------------------------------------

-- A register is a sequence, because its value is WAL-logged, replicated, dumped, and not transactional. It holds the
-- last position of its shard that was handed out, tick << 10 | sequence; js_N, for the ids that JavaScript represents
-- exactly, holds second << 12 | sequence. Its bounds are those of a position, so that no id can be negative, or greater
-- than JavaScript can represent, whatever else goes wrong.
CREATE OR REPLACE FUNCTION idgen_portable.make_register(shard integer) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET client_min_messages = warning AS $$
BEGIN
    EXECUTE concat('CREATE SEQUENCE IF NOT EXISTS idgen_portable.shard_', shard, ' MINVALUE 0 MAXVALUE '
                   '1125899906842623 START 0');
    IF shard <= 255 THEN
        EXECUTE concat('CREATE SEQUENCE IF NOT EXISTS idgen_portable.js_', shard, ' MINVALUE 0 MAXVALUE '
                       '4503599628287 START 0');
    END IF;
END $$;
COMMENT ON FUNCTION idgen_portable.make_register(integer) IS
'Creates the register of a shard and, up to shard 255, that of its ids for JavaScript, if missing.';
REVOKE ALL ON FUNCTION idgen_portable.make_register(integer) FROM PUBLIC;

-- The row of a sequence has the number of the transaction or subtransaction that created it. Until that has ended, only
-- the transaction itself sees the row, and its own number is less than those of its subtransactions.
CREATE OR REPLACE FUNCTION idgen_portable.is_uncommitted(register regclass) RETURNS boolean
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    this bigint := pg_current_xact_id_if_assigned();
    younger bigint := (SELECT (xmin::text::bigint - this) & 4294967295 FROM pg_sequence
                       WHERE seqrelid = register);
BEGIN
    RETURN coalesce(younger < 2147483648
                    AND pg_xact_status((this + younger)::text::xid8) = 'in progress', false);
EXCEPTION WHEN invalid_parameter_value THEN
    RETURN false;    -- The number is so old that it looks like a future one.
END $$;
COMMENT ON FUNCTION idgen_portable.is_uncommitted(regclass) IS
'Whether a register was created by the current transaction. A rollback would remove it, and its ids would be minted again.';

DO $$
DECLARE
    list text := current_setting('idgen.allowed_shards', true);
    entry text;
    ends text[];
BEGIN
    -- The last id of each session, for currval(). Its value means nothing to others and need not be logged. The
    -- sequence is also the gate to all shards, because a transaction that mints holds a lock on it, as on any sequence
    -- that it uses, until it ends. A takeover by the extension waits for these locks.
    IF to_regclass('idgen_portable.last_id') IS NULL THEN
        EXECUTE concat('CREATE ',
                       CASE WHEN current_setting('server_version_num')::integer >= 150000 THEN 'UNLOGGED' END,
                       ' SEQUENCE idgen_portable.last_id MINVALUE 0 START 0');
        PERFORM setval('idgen_portable.last_id', 0);
        list := coalesce(nullif(btrim(list), ''), '0-1023');
    END IF;
    FOREACH entry IN ARRAY string_to_array(coalesce(btrim(list), ''), ',') LOOP
        entry := btrim(entry);
        ends := regexp_match(idgen_portable.blank(entry),
                             '^[+]{0,1}([0-9]{1,9}) *(- *[+]{0,1}([0-9]{1,9})){0,1}$');
        IF ends IS NULL OR greatest(ends[1]::integer, ends[3]::integer) > 8191 THEN
            RAISE EXCEPTION USING ERRCODE = '22023',
                MESSAGE = concat('invalid value for parameter "idgen.allowed_shards": "', list, '"'),
                DETAIL = concat('"', entry, '" is not a shard or range of shards between 0 and 8191.'),
                HINT = 'Write shards and ranges separated by commas, such as "0-4095,5000".';
        ELSIF ends[3]::integer < ends[1]::integer THEN
            RAISE EXCEPTION USING ERRCODE = '22023',
                MESSAGE = concat('invalid value for parameter "idgen.allowed_shards": "', list, '"'),
                DETAIL = concat('The range "', entry, '" ends before it begins.'),
                HINT = 'Write shards and ranges separated by commas, such as "0-4095,5000".';
        END IF;
        PERFORM idgen_portable.make_register(shard)
        FROM generate_series(ends[1]::integer, coalesce(ends[3], ends[1])::integer) AS shard;
    END LOOP;
END $$;
COMMENT ON SEQUENCE idgen_portable.last_id IS
'Holds the last id of the session, for snowflake_last_id(), and is the gate on which every minting transaction holds a lock.';

-- Minting -----------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION idgen_portable.id_at("position" bigint, shard integer, js boolean DEFAULT false)
    RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN js THEN (("position" >> 12) << 20) | (shard << 12) | ("position" & 4095)
                ELSE (("position" >> 10) << 23) | (shard << 10) | ("position" & 1023) END;
COMMENT ON FUNCTION idgen_portable.id_at(bigint, integer, boolean) IS
'The id at a position of a shard, or at one of its positions for JavaScript.';

CREATE OR REPLACE FUNCTION idgen_portable.has_moved() RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN to_regclass('idgen_portable.moved') IS NOT NULL;
COMMENT ON FUNCTION idgen_portable.has_moved() IS
'Whether the extension has taken over, which renames the sequence last_id. Looked up by name, because a snapshot from before the takeover would not show it.';

CREATE OR REPLACE FUNCTION idgen_portable.refuse_shard(shard integer, js boolean) RETURNS void
    LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM idgen_portable.check_shard(shard, CASE WHEN js THEN 255 ELSE 8191 END);
    RAISE EXCEPTION USING ERRCODE = '55000',
        MESSAGE = concat('this server may not mint ids for shard ', shard),
        DETAIL = concat('"idgen.allowed_shards" is "',
                        idgen_portable.shards(CASE WHEN js THEN 'js_' ELSE 'shard_' END), '".'),
        HINT = concat('Connect to the server that holds the shard; or, once no other server mints for it, have '
                      'the owner call snowflake_advance(', shard, ', ID) with its greatest id, or 0.');
END $$;
COMMENT ON FUNCTION idgen_portable.refuse_shard(integer, boolean) IS
'Raises 55000 for a shard that has no register, or the error for an invalid shard.';

CREATE OR REPLACE FUNCTION idgen_portable.refuse_uncommitted(shard integer) RETURNS void
    LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = '55000',
        MESSAGE = concat('the register of shard ', shard, ' was created by this transaction'),
        DETAIL = 'If the transaction is rolled back, the register is gone, and idgen would mint its ids again.',
        HINT = 'Commit the transaction first.';
END $$;
COMMENT ON FUNCTION idgen_portable.refuse_uncommitted(integer) IS 'Raises 55000.';

CREATE OR REPLACE FUNCTION idgen_portable.refuse_call(want bigint, waited_ms bigint, js boolean) RETURNS void
    LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    lacking text := CASE WHEN want IS NULL THEN 'want' WHEN waited_ms IS NULL THEN 'waited_ms'
                         WHEN js IS NULL THEN 'js' END;
BEGIN
    IF lacking IS NOT NULL THEN
        PERFORM idgen_portable.refuse_null(lacking);
    END IF;
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'an argument of idgen_portable.mint is out of range',
        DETAIL = concat('The number of ids must be between 1 and 2147483647 and is ', want, '; the time waited '
                        'must not be negative and is ', waited_ms, ' ms.'),
        HINT = 'Call snowflake_next_id or snowflake_next_ids.';
END $$;
COMMENT ON FUNCTION idgen_portable.refuse_call(bigint, bigint, boolean) IS
'Raises 22004 or 22023 for arguments that idgen_portable.mint does not accept.';

-- The only path to an id. It reads the register and advances it, while an advisory lock on the shard keeps others away.
-- setval is not transactional, so positions that were taken stay taken. The lock is a transaction-level lock, taken in
-- a block that is then rolled back, which releases it at once; so does every error and every cancel, at any point. (A
-- cancel at the wrong moment would leave a session-level lock behind, and block the shard.)
CREATE OR REPLACE FUNCTION idgen_portable.mint(
        shard integer, want bigint, waited_ms bigint DEFAULT 0, js boolean DEFAULT false)
    RETURNS bigint
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    prefix CONSTANT text := CASE WHEN js THEN 'js_' ELSE 'shard_' END;
    unit_ms CONSTANT integer := CASE WHEN js THEN 1000 ELSE 1 END;
    bits CONSTANT integer := CASE WHEN js THEN 12 ELSE 10 END;    -- of the sequence
    register regclass;
    locked boolean;
    tick bigint;         -- the clock
    greatest_tick bigint;
    start bigint;        -- the first position
    stop bigint;         -- the last one, once the register says so
    id bigint;
    max_wait_ms bigint;
    pause_ms bigint;
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION USING ERRCODE = '25006', MESSAGE = 'cannot mint ids during recovery',
            DETAIL = 'idgen mints on a primary only, because a server in recovery cannot advance a register.',
            HINT = 'Connect to the primary.';
    ELSIF (want BETWEEN 1 AND 2147483647 AND waited_ms >= 0 AND js IS NOT NULL) IS NOT TRUE THEN
        PERFORM idgen_portable.refuse_call(want, waited_ms, js);    -- All roles may call this.
    END IF;
    -- This is the gate. Null means that it was closed, or that the server crashed.
    IF pg_sequence_last_value('idgen_portable.last_id') IS NULL AND idgen_portable.has_moved() THEN
        EXECUTE 'SELECT idgen_portable.mint($1, $2, $3, $4)' INTO id USING shard, want, waited_ms, js;
        RETURN id;
    END IF;
    register := to_regclass('idgen_portable.' || prefix || shard);
    IF register IS NULL THEN
        PERFORM idgen_portable.refuse_shard(shard, js);
    END IF;
    LOOP
        BEGIN
            -- The lock is visible in pg_locks, where 1768187749 is "idge" in ASCII, and 1768187754 is "idgj".
            locked := pg_advisory_xact_lock(CASE WHEN js THEN 1768187754 ELSE 1768187749 END, shard) IS NULL;
            tick := floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - idgen_portable.epoch_ms();
            greatest_tick := least(tick + idgen_portable.max_ahead_ms(), 1099511627775);
            start := pg_sequence_last_value(register) + 1;
            IF start IS NULL THEN    -- the first of all
                IF idgen_portable.is_uncommitted(register) THEN
                    PERFORM idgen_portable.refuse_uncommitted(shard);
                END IF;
                start := (pg_sequence_parameters(register)).start_value;
            END IF;
            IF tick / unit_ms << bits > start THEN
                -- A quiet shard does not begin every millisecond at sequence 0, so that id modulo N hits all
                -- buckets.
                start := (tick / unit_ms << bits) | (start & 255);
            END IF;
            IF tick >= 0 AND (start >> bits) * unit_ms <= greatest_tick THEN
                stop := setval(register, least(start + want - 1, ((greatest_tick / unit_ms + 1) << bits) - 1));
            END IF;
            RAISE SQLSTATE 'IDGEN';
        EXCEPTION WHEN SQLSTATE 'IDGEN' THEN
        END;
        IF stop IS NOT NULL THEN
            id := setval('idgen_portable.last_id', idgen_portable.id_at(stop, shard, js));
            RETURN idgen_portable.id_at(start, shard, js);
        ELSIF tick NOT BETWEEN 0 AND 1099511627775 OR (start >> bits) * unit_ms > 1099511627775 THEN
            PERFORM idgen_portable.refuse_clock(tick);
        END IF;
        -- Wait without the lock, and only briefly, because the clock may be corrected in the meantime.
        max_wait_ms := idgen_portable.milliseconds('idgen.max_wait', 0, 3600000, 5000);
        IF waited_ms >= max_wait_ms THEN
            IF (start >> bits) * unit_ms <= tick + idgen_portable.max_ahead_ms() + unit_ms THEN
                RAISE EXCEPTION USING ERRCODE = '40001',
                    MESSAGE = concat('shard ', shard, ' has run out of ids for now'),
                    DETAIL = concat('Its ids are as far ahead of the clock as "idgen.max_ahead" (',
                                    idgen_portable.max_ahead_ms(), ' ms) allows. A shard has 1024 ids per '
                                    'millisecond (4096 per second for snowflake_next_id_js). The call waited ',
                                    waited_ms, ' ms.'),
                    HINT = 'Spread the load over more shards, ask for fewer ids, or raise "idgen.max_wait".';
            END IF;
            RAISE EXCEPTION USING ERRCODE = '40001',
                MESSAGE = concat('the system clock is behind the ids of shard ', shard),
                DETAIL = concat('The next id is ', (start >> bits) * unit_ms - tick, ' ms ahead of the clock; '
                                '"idgen.max_ahead" allows ', idgen_portable.max_ahead_ms(), ' ms. The call '
                                'waited ', waited_ms, ' ms.'),
                HINT = 'If the clock was set back, check its synchronization. Minting resumes once the clock has '
                       'caught up, which takes longer if "idgen.max_ahead" was lowered.';
        END IF;
        pause_ms := least(((start + want - 1) >> bits) * unit_ms - greatest_tick,
                          max_wait_ms - waited_ms, 50);
        PERFORM pg_sleep(pause_ms / 1000.0);
        waited_ms := waited_ms + pause_ms;
    END LOOP;
END $$;
COMMENT ON FUNCTION idgen_portable.mint(integer, bigint, bigint, boolean) IS
'Takes a run of up to want positions of a shard, or of its positions for JavaScript, and returns the id of the first one; the id of the last one becomes the session''s last id. waited_ms counts toward the time that the call may wait.';

CREATE OR REPLACE FUNCTION idgen_portable.session_shard() RETURNS integer
    LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    value text := current_setting('idgen.shard', true);
BEGIN
    IF coalesce(value, '') IN ('', '-1') THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = 'no shard is set for this session',
            DETAIL = 'snowflake_next_id() without an argument mints for the shard in "idgen.shard".',
            HINT = 'Set "idgen.shard" with SET, ALTER DATABASE or ALTER ROLE, or call snowflake_next_id(shard).';
    ELSIF idgen_portable.blank(value) !~ '^ *-{0,1}[0-9]{1,9} *$' THEN
        RAISE EXCEPTION USING ERRCODE = '22023',
            MESSAGE = concat('invalid value for parameter "idgen.shard": "', value, '"'),
            DETAIL = 'The value is not an integer.',
            HINT = 'Give a shard between 0 and 8191.';
    END IF;
    RETURN value;
END $$;
COMMENT ON FUNCTION idgen_portable.session_shard() IS 'The setting idgen.shard.';

-- The minting functions are inlined into the statement that calls them, so that it runs the helper. A statement that is
-- running while the extension takes over can therefore continue, because the helper still exists.
CREATE OR REPLACE FUNCTION @extschema@.snowflake_next_id(shard integer) RETURNS bigint
    LANGUAGE sql VOLATILE PARALLEL UNSAFE
    RETURN idgen_portable.mint(shard, 1);
COMMENT ON FUNCTION @extschema@.snowflake_next_id(integer) IS
'Mints an id for a logical shard (0 to 8191). It is greater than every id of the shard that this database has minted before. Intended for column defaults. Errors: 22004 null shard, 22023 shard out of range, 25006 on a standby or in a read-only transaction, 40001 clock behind or shard out of ids for now, 55000 shard not allowed on this server, 2200H range of ids used up. Portable edition.';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_next_id() RETURNS bigint
    LANGUAGE sql VOLATILE PARALLEL UNSAFE
    RETURN idgen_portable.mint(idgen_portable.session_shard(), 1);
COMMENT ON FUNCTION @extschema@.snowflake_next_id() IS
'Mints an id for the shard in the setting idgen.shard. Errors: 55000 if no shard is set, and those of snowflake_next_id(shard). Portable edition.';

CREATE OR REPLACE FUNCTION idgen_portable.mint_many(shard integer, count integer) RETURNS SETOF bigint
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 1000 SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    starts bigint[] := '{}';
    stops bigint[] := '{}';
    want bigint := count;
    id bigint;
    since timestamptz;
    register CONSTANT regclass := to_regclass('idgen_portable.shard_' || shard);
    tick bigint;        -- the clock
    earliest bigint;    -- the first position
    max_wait_ms bigint;
    limit_tick bigint;
    most bigint;
BEGIN
    PERFORM idgen_portable.check_shard(shard);
    IF want IS NULL THEN
        PERFORM idgen_portable.refuse_null('count');
    ELSIF want < 0 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = concat('count ', want, ' is negative'),
            DETAIL = 'snowflake_next_ids cannot mint fewer than 0 ids.',
            HINT = 'Ask for 0 or more ids.';
    END IF;
    IF NOT pg_is_in_recovery() AND pg_sequence_last_value('idgen_portable.last_id') IS NULL
            AND idgen_portable.has_moved() THEN
        RETURN QUERY EXECUTE 'SELECT idgen_portable.mint_many($1, $2)' USING shard, count;
        RETURN;
    ELSIF register IS NULL THEN
        IF want = 0 THEN
            PERFORM idgen_portable.refuse_shard(shard, false);
        END IF;
    ELSE
        -- A batch that the shard cannot provide within the time that a call may wait is refused before any of it is
        -- taken. An eighth of the wait is left for sleeps that take longer than requested.
        tick := floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - idgen_portable.epoch_ms();
        earliest := coalesce(pg_sequence_last_value(register) + 1, (pg_sequence_parameters(register)).start_value);
        IF tick << 10 > earliest THEN
            earliest := (tick << 10) | (earliest & 255);
        END IF;
        max_wait_ms := idgen_portable.milliseconds('idgen.max_wait', 0, 3600000, 5000);
        limit_tick := tick + idgen_portable.max_ahead_ms() + max_wait_ms * 7 / 8;
        most := greatest(((least(limit_tick, 1099511627775) + 1) << 10) - earliest, 0);
        -- If the shard has nothing to provide in all of that time, mint() reports the reason.
        IF tick >= 0 AND want > most AND NOT pg_is_in_recovery()
                AND earliest >> 10 <= least(limit_tick + max_wait_ms - max_wait_ms * 7 / 8, 1099511627775) THEN
            RAISE EXCEPTION USING ERRCODE = '22023',
                MESSAGE = concat('count ', count, ' is more ids than one call can mint'),
                DETAIL = concat('This shard can provide at most ', most, ' now, as far as "idgen.max_ahead" lets '
                                'it run ahead of the clock and "idgen.max_wait" lets a call wait. No id was '
                                'minted.'),
                HINT = 'Ask for fewer ids at once, use several shards, or raise "idgen.max_wait".';
        END IF;
    END IF;
    WHILE want > 0 LOOP
        -- After the first run, all time is spent waiting for the clock.
        id := idgen_portable.mint(
            shard, want, greatest(extract(epoch FROM clock_timestamp() - since) * 1000, 0)::bigint);
        since := coalesce(since, clock_timestamp());
        starts := starts || ((id >> 23 << 10) | (id & 1023));
        id := currval('idgen_portable.last_id');
        stops := stops || ((id >> 23 << 10) | (id & 1023));
        want := want - (stops[cardinality(stops)] - starts[cardinality(starts)] + 1);
    END LOOP;
    RETURN QUERY SELECT idgen_portable.id_at(p, shard)
                 FROM unnest(starts, stops) WITH ORDINALITY AS run (start, stop, number),
                      generate_series(start, stop) AS p
                 ORDER BY number, p;
END $$;
COMMENT ON FUNCTION idgen_portable.mint_many(integer, integer) IS 'The ids of a batch.';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_next_ids(shard integer, count integer) RETURNS SETOF bigint
    LANGUAGE sql VOLATILE PARALLEL UNSAFE ROWS 1000
BEGIN ATOMIC
    SELECT idgen_portable.mint_many(shard, count);
END;
COMMENT ON FUNCTION @extschema@.snowflake_next_ids(integer, integer) IS
'Mints a batch of count ids (0 or more) for a logical shard, in increasing order, with one lock and one advance of its register. The whole batch is allocated when the function is called; ids that the caller does not use are skipped. Errors: 22004 null argument, 22023 shard out of range, count negative or more ids than the shard can provide within idgen.max_ahead and idgen.max_wait, and those of snowflake_next_id(shard). Portable edition.';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_next_id_js(shard integer) RETURNS bigint
    LANGUAGE sql VOLATILE PARALLEL UNSAFE
    RETURN idgen_portable.mint(shard, 1, js => true);
COMMENT ON FUNCTION @extschema@.snowflake_next_id_js(integer) IS
'Mints an id below 2^53, which JavaScript represents exactly: 32 bits of seconds since the epoch, 8 bits of logical shard (0 to 255) and 12 bits of sequence, hence at most 4096 ids per second for each shard. It is greater than every id of this function and the shard that this database has minted before. Keep these ids in columns of their own: they are all smaller than those of snowflake_next_id. Decode them with snowflake_decode(id, ''js53''). Errors: 22004 null shard, 22023 shard out of range, and those of snowflake_next_id(shard). Portable edition.';

-- If an older version of this script was installed, or a function was dropped, a new minting function gets the
-- privileges of an existing one. Otherwise roles from which the right to mint was revoked would get it back.
DO $$
DECLARE
    had CONSTANT oid[] := string_to_array(current_setting('idgen_portable.minting'), ',')::oid[];
    statement text;
BEGIN
    FOR statement IN
        WITH added AS (
            SELECT p.oid::regprocedure AS name, model.proacl, model.proowner
            FROM pg_proc AS p
                 JOIN pg_proc AS model ON model.oid = had[1] AND model.proacl IS NOT NULL
            WHERE p.oid IN ('@extschema@.snowflake_next_id(integer)'::regprocedure,
                            '@extschema@.snowflake_next_id()'::regprocedure,
                            '@extschema@.snowflake_next_ids(integer, integer)'::regprocedure,
                            '@extschema@.snowflake_next_id_js(integer)'::regprocedure,
                            'idgen_portable.mint(integer, bigint, bigint, boolean)'::regprocedure,
                            'idgen_portable.mint_many(integer, integer)'::regprocedure)
              AND p.oid <> ALL (had)
        )
        SELECT sql
        FROM (SELECT concat('REVOKE ALL ON FUNCTION ', name, ' FROM PUBLIC') FROM added
              UNION ALL
              SELECT concat('GRANT EXECUTE ON FUNCTION ', name, ' TO ',
                            CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END,
                            CASE WHEN is_grantable THEN ' WITH GRANT OPTION' END)
              FROM added, aclexplode(proacl) WHERE grantee <> proowner) AS statements (sql)
        ORDER BY sql COLLATE "C" DESC    -- REVOKE first
    LOOP
        EXECUTE statement;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION @extschema@.snowflake_last_id() RETURNS bigint
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN currval('idgen_portable.last_id');
EXCEPTION WHEN object_not_in_prerequisite_state THEN
    RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = 'no id has been minted in this session yet',
        DETAIL = 'snowflake_last_id() returns the last id that this session itself has minted.',
        HINT = 'Call snowflake_next_id first.';
END $$;
COMMENT ON FUNCTION @extschema@.snowflake_last_id() IS
'Returns the last id that this session minted, for any shard and in either layout, even if the transaction was rolled back. It is to ids what lastval() is to sequences. DISCARD SEQUENCES resets it. Error: 55000 if the session has not minted an id yet. Portable edition.';

CREATE OR REPLACE FUNCTION idgen_portable.advance(shard integer, past bigint) RETURNS bigint
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    register regclass;
    tick bigint;
    next bigint;    -- the least position at which the shard's id is greater than past
    id bigint;
BEGIN
    PERFORM idgen_portable.check_shard(shard);
    IF past IS NULL THEN
        PERFORM idgen_portable.refuse_null('past');
    END IF;
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION USING ERRCODE = '25006', MESSAGE = 'cannot mint ids during recovery',
            DETAIL = 'idgen mints on a primary only, because a server in recovery cannot advance a register.',
            HINT = 'Connect to the primary.';
    ELSIF pg_sequence_last_value('idgen_portable.last_id') IS NULL AND idgen_portable.has_moved() THEN
        EXECUTE 'SELECT idgen_portable.advance($1, $2)' INTO id USING shard, past;
        RETURN id;
    END IF;
    next := CASE WHEN past < 0 THEN 0
                 WHEN shard > (past >> 10 & 8191) THEN past >> 23 << 10
                 WHEN shard = (past >> 10 & 8191) THEN ((past >> 23 << 10) | (past & 1023)) + 1
                 ELSE ((past >> 23) + 1) << 10 END;
    tick := floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - idgen_portable.epoch_ms();
    IF next >> 10 > 1099511627775 OR tick < 0 THEN
        PERFORM idgen_portable.refuse_clock(tick);
    ELSIF next >> 10 > tick + idgen_portable.max_ahead_ms() THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'the id to advance past lies in the future',
            DETAIL = concat('It is ', (next >> 10) - tick, ' ms ahead of the system clock; "idgen.max_ahead" '
                            'allows ', idgen_portable.max_ahead_ms(), ' ms.'),
            HINT = 'Check the system clock, and that the id has this layout and epoch.';
    END IF;
    IF to_regclass('idgen_portable.shard_' || shard) IS NULL
            OR shard <= 255 AND to_regclass('idgen_portable.js_' || shard) IS NULL THEN
        -- If two transactions create the same register, the second one waits until the first one ends.
        PERFORM pg_advisory_xact_lock(1768187749, shard);
        PERFORM idgen_portable.make_register(shard);
    END IF;
    register := to_regclass('idgen_portable.shard_' || shard);
    IF idgen_portable.is_uncommitted(register) THEN
        -- The register has minted nothing, and cannot until the transaction commits.
        next := greatest(next, (pg_sequence_parameters(register)).start_value);
        EXECUTE concat('ALTER SEQUENCE ', register, ' START ', next);
        RETURN idgen_portable.id_at(next, shard);
    END IF;
    BEGIN
        PERFORM pg_advisory_xact_lock(1768187749, shard);
        next := greatest(next, coalesce(pg_sequence_last_value(register) + 1,
                                        (pg_sequence_parameters(register)).start_value));
        IF next > 0 THEN
            PERFORM setval(register, next - 1);
        END IF;
        RAISE SQLSTATE 'IDGEN';
    EXCEPTION WHEN SQLSTATE 'IDGEN' THEN
    END;
    RETURN idgen_portable.id_at(next, shard);
END $$;
COMMENT ON FUNCTION idgen_portable.advance(integer, bigint) IS 'Implements snowflake_advance.';
REVOKE ALL ON FUNCTION idgen_portable.advance(integer, bigint) FROM PUBLIC;

CREATE OR REPLACE FUNCTION @extschema@.snowflake_advance(shard integer, past bigint) RETURNS bigint
    LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    RETURN idgen_portable.advance(shard, past);
COMMENT ON FUNCTION @extschema@.snowflake_advance(integer, bigint) IS
'Makes the next id of a shard (0 to 8191) greater than the given id, as soon as it returns, and durably once the transaction has been committed. For use after a shard has been moved to this server, or after a migration from another function. Returns the smallest id that can be minted next. Creates the register of a shard that has none here; the transaction must commit before ids are minted for it. Does not move ids of snowflake_next_id_js. Not executable by PUBLIC. Errors: 22004 null argument, 22023 shard out of range or id further ahead of the system clock than idgen.max_ahead, 2200H id at the end of the range, and those of snowflake_next_id(shard) except for shards that are not allowed. Portable edition.';
REVOKE ALL ON FUNCTION @extschema@.snowflake_advance(integer, bigint) FROM PUBLIC;

-- Taking ids apart and building them --------------------------------------------------------------

CREATE OR REPLACE FUNCTION @extschema@.snowflake_decode(
        id bigint, OUT created_at timestamptz, OUT shard integer, OUT sequence integer)
    LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    created_at := idgen_portable.epoch() + (id >> 23 & 2199023255551) * interval '1 ms';
    shard := id >> 10 & 8191;
    sequence := id & 1023;
END $$;
COMMENT ON FUNCTION @extschema@.snowflake_decode(bigint) IS
'Decodes an id into the millisecond in which it was minted, its logical shard (0 to 8191) and its sequence number within that millisecond (0 to 1023). Accepts every bigint, read as unsigned. Depends on the epoch. Portable edition.';

CREATE OR REPLACE FUNCTION @extschema@.shard_of(id bigint) RETURNS integer
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN (id >> 10 & 8191)::integer;
COMMENT ON FUNCTION @extschema@.shard_of(bigint) IS
'Returns the logical shard of an id, 0 to 8191: (id >> 10) & 8191. For routers, indexes, CHECK constraints and partition keys. Portable edition.';

CREATE OR REPLACE FUNCTION idgen_portable.tick_of(ts timestamptz) RETURNS bigint
    LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- A numeric can represent the infinities.
    tick numeric := floor(extract(epoch FROM ts) * 1000) - idgen_portable.epoch_ms();
BEGIN
    IF tick BETWEEN 0 AND 1099511627775 THEN
        RETURN tick;
    END IF;
    RAISE EXCEPTION USING ERRCODE = '22008', MESSAGE = 'timestamp is outside the range of ids',
        DETAIL = 'Ids cover the 2^40 milliseconds (34.8 years) that begin at "idgen.epoch".',
        HINT = 'The columns epoch and ends_at of the view idgen_status show the range.';
END $$;
COMMENT ON FUNCTION idgen_portable.tick_of(timestamptz) IS 'The millisecond that a timestamp lies in, 0 to 2^40 - 1. Error: 22008.';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_make_id(ts timestamptz, shard integer, sequence integer)
    RETURNS bigint LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM idgen_portable.check_shard(shard);
    IF sequence NOT BETWEEN 0 AND 1023 THEN
        PERFORM idgen_portable.refuse_part('sequence', sequence, 1023);
    END IF;
    RETURN idgen_portable.id_at(idgen_portable.tick_of(ts) << 10 | sequence, shard);
END $$;
COMMENT ON FUNCTION @extschema@.snowflake_make_id(timestamptz, integer, integer) IS
'Builds an id from a timestamp (truncated to the millisecond), a shard (0 to 8191) and a sequence number (0 to 1023), for backfills. The caller must never use the same combination twice. Depends on the epoch. Errors: 22008 timestamp outside the range of ids, 22023 shard or sequence out of range. Portable edition.';

-- Time ------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION @extschema@.snowflake_time(id bigint) RETURNS timestamptz
    LANGUAGE sql STABLE STRICT PARALLEL SAFE
    RETURN idgen_portable.epoch() + (id >> 23 & 2199023255551) * interval '1 ms';
COMMENT ON FUNCTION @extschema@.snowflake_time(bigint) IS
'Returns the millisecond in which an id was minted. Depends on the epoch and is therefore STABLE; use snowflake_time(id, epoch) for indexes and generated columns. Portable edition.';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_time(id bigint, epoch timestamptz) RETURNS timestamptz
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    since interval := (id >> 23 & 2199023255551) * interval '1 ms';
BEGIN
    IF isfinite(epoch) AND epoch <= timestamptz '294276-12-31T23:59:59.999999Z' - since THEN
        RETURN epoch + since;
    END IF;
    RAISE EXCEPTION USING ERRCODE = '22008', MESSAGE = 'timestamp out of range',
        DETAIL = 'Counted from the epoch given to snowflake_time, the id has no time that PostgreSQL can represent.',
        HINT = 'Pass the finite timestamp from which the milliseconds of the id are counted.';
END $$;
COMMENT ON FUNCTION @extschema@.snowflake_time(bigint, timestamptz) IS
'Returns the millisecond in which an id was minted, counted from the given epoch: for indexes and generated columns. Error: 22008 if the epoch is infinite or the result out of range. Portable edition.';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_min_id(ts timestamptz) RETURNS bigint
    LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN CASE WHEN ts < idgen_portable.epoch() THEN 0 ELSE idgen_portable.tick_of(ts) << 23 END;
END $$;
COMMENT ON FUNCTION @extschema@.snowflake_min_id(timestamptz) IS
'Returns the smallest id, over all shards, of the millisecond that a timestamp lies in: the inclusive lower bound of a range scan, or a partition bound. Before the epoch, and for ''-infinity'', that is the smallest id of all, 0. Depends on the epoch. Error: 22008 after the end of the range, where no bigint is late enough. Portable edition.';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_max_id(ts timestamptz) RETURNS bigint
    LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN CASE WHEN ts < idgen_portable.epoch() THEN -1
                WHEN ts >= idgen_portable.epoch() + 1099511627776 * interval '1 ms' THEN 9223372036854775807
                ELSE idgen_portable.tick_of(ts) << 23 | 8388607 END;
END $$;
COMMENT ON FUNCTION @extschema@.snowflake_max_id(timestamptz) IS
'Returns the greatest id, over all shards, of the millisecond that a timestamp lies in: the inclusive upper bound of a range scan. After the end of the range, and for ''infinity'', that is the greatest id of all, 2^63 - 1; before the epoch, and for ''-infinity'', it is -1, which is less than every id. Depends on the epoch. Portable edition.';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_between(id bigint, "from" timestamptz, upto timestamptz)
    RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
    RETURN id >= @extschema@.snowflake_min_id("from") AND id <= @extschema@.snowflake_max_id(upto);
COMMENT ON FUNCTION @extschema@.snowflake_between(bigint, timestamptz, timestamptz) IS
'Tests whether an id was minted between the milliseconds of two timestamps, both included, as BETWEEN does. Inlined into the query, where it becomes an index range scan and prunes partitions. ''-infinity'' and ''infinity'' leave an end of the range open, and no id lies before the epoch. Error: that of snowflake_min_id. Portable edition.';

-- Ids of other systems --------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION idgen_portable.excerpt(value text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT coalesce(string_agg(CASE WHEN c IN ('''', '"', chr(92)) THEN chr(92) || c
                                    WHEN ascii(c) BETWEEN 32 AND 126 THEN c
                                    ELSE chr(92) || CASE ascii(c) WHEN 9 THEN 't' WHEN 10 THEN 'n'
                                                    WHEN 13 THEN 'r' ELSE 'u{' || to_hex(ascii(c)) || '}' END
                                    END, '' ORDER BY n), '')
           || CASE WHEN length(value) > 50 THEN '...' ELSE '' END
    FROM regexp_split_to_table(left(value, 50), '') WITH ORDINALITY AS t (c, n)
    WHERE c <> '';
END;
COMMENT ON FUNCTION idgen_portable.excerpt(text) IS
'The beginning of a text given by the user, in ASCII, for messages.';

CREATE OR REPLACE FUNCTION idgen_portable.layouts(
        OUT name text, OUT bits text, OUT unit text, OUT epoch timestamptz, OUT shard text, OUT used_by text)
    RETURNS SETOF record
    LANGUAGE sql STABLE PARALLEL SAFE ROWS 11
BEGIN ATOMIC
    SELECT l.name, l.bits, l.unit,
           coalesce(timestamptz '1970-01-01T00:00:00Z' + l.epoch_ms * interval '1 ms',
                    idgen_portable.epoch()),
           l.shard, l.used_by
    FROM (VALUES
        ('idgen', '41 time, 13 shard, 10 sequence', '1 ms', NULL,
         'logical shard', 'this database: snowflake_next_id'),
        ('js53', '32 time, 8 shard, 12 sequence', '1 s', NULL,
         'logical shard', 'this database: snowflake_next_id_js'),
        ('instagram', '41 time, 13 shard, 10 sequence', '1 ms', 1314220021721,
         'logical shard', 'Instagram'),
        ('twitter', '41 time, 10 shard, 12 sequence', '1 ms', 1288834974657,
         'machine: data center in the upper 5 bits, worker in the lower 5',
         'Twitter, now X; many libraries by default'),
        ('discord', '42 time, 10 shard, 12 sequence', '1 ms', 1420070400000,
         'worker in the upper 5 bits, process in the lower 5', 'Discord'),
        ('mastodon', '48 time, 16 sequence', '1 ms', 0,
         NULL, 'Mastodon; its sequence starts at a hash of table and time'),
        ('sonyflake', '39 time, 8 sequence, 16 shard', '10 ms', 1409529600000,
         'machine: the lower 16 bits of its private IPv4 address by default',
         'Sonyflake, with its default start time'),
        ('pgedge', '41 time, 10 shard, 12 sequence', '1 ms', 1672531200000,
         'node: snowflake.node', 'pgEdge''s extension snowflake from version 1.2 on'),
        ('leaf', '41 time, 10 shard, 12 sequence', '1 ms', 1288834974657,
         'worker', 'Meituan Leaf in snowflake mode, with its default epoch'),
        ('baidu', '28 time, 22 shard, 13 sequence', '1 s', 1463673600000,
         'worker: another one after each start', 'Baidu uid-generator, with its default bits and epoch'),
        ('gene', '41 time, 6 shard, 12 sequence, 4 gene', '1 ms', 1288834974657,
         'worker', 'order numbers that end in 4 bits of the user''s id, counting from Twitter''s epoch')
    ) AS l (name, bits, unit, epoch_ms, shard, used_by);
END;
COMMENT ON FUNCTION idgen_portable.layouts() IS 'The known layouts.';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_layouts(
        OUT name text, OUT bits text, OUT unit text, OUT epoch timestamptz, OUT shard text, OUT used_by text)
    RETURNS SETOF record
    LANGUAGE sql STABLE PARALLEL SAFE ROWS 11
BEGIN ATOMIC
    SELECT * FROM idgen_portable.layouts();
END;
COMMENT ON FUNCTION @extschema@.snowflake_layouts() IS 'Returns the rows of the view snowflake_layouts. Portable edition.';

CREATE OR REPLACE VIEW @extschema@.snowflake_layouts AS SELECT * FROM @extschema@.snowflake_layouts();
COMMENT ON VIEW @extschema@.snowflake_layouts IS 'The layouts that snowflake_decode(id, layout) knows. Bits and epoch are the defaults of each system. Portable edition.';
COMMENT ON COLUMN @extschema@.snowflake_layouts.name IS 'Name of the layout, as passed to snowflake_decode.';
COMMENT ON COLUMN @extschema@.snowflake_layouts.bits IS 'The parts of an id and their widths, from the most significant bits down. If they add up to 63 bits, a set sign bit counts as time.';
COMMENT ON COLUMN @extschema@.snowflake_layouts.unit IS 'Unit of the time; can be cast to interval.';
COMMENT ON COLUMN @extschema@.snowflake_layouts.epoch IS 'The time that ids of this layout count from; for idgen and js53 the epoch of this database.';
COMMENT ON COLUMN @extschema@.snowflake_layouts.shard IS 'What snowflake_decode returns as the shard; null if the layout has none.';
COMMENT ON COLUMN @extschema@.snowflake_layouts.used_by IS 'The systems that make such ids.';
GRANT SELECT ON @extschema@.snowflake_layouts TO PUBLIC;

CREATE OR REPLACE FUNCTION idgen_portable.layout(
        wanted text, OUT bits text, OUT unit interval, OUT epoch timestamptz, OUT names text)
    LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT min(l.bits) FILTER (WHERE l.name = wanted), min(l.unit::interval) FILTER (WHERE l.name = wanted),
           min(l.epoch) FILTER (WHERE l.name = wanted), string_agg(l.name, ', ' ORDER BY l.place)
    FROM idgen_portable.layouts() WITH ORDINALITY AS l (name, bits, unit, epoch, shard, used_by, place);
END;
COMMENT ON FUNCTION idgen_portable.layout(text) IS 'A layout by its name, and the names of all layouts.';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_decode(
        id bigint, layout text,
        OUT created_at timestamptz, OUT shard integer, OUT sequence integer, OUT gene integer)
    LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l record;
    part record;
    shift integer := 0;
    value bigint;
BEGIN
    SELECT * INTO l FROM idgen_portable.layout(layout);
    IF l.bits IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22023',
            MESSAGE = concat('layout "', idgen_portable.excerpt(layout), '" does not exist'),
            DETAIL = concat('The layouts of snowflake_decode are ', l.names, '.'),
            HINT = 'The view snowflake_layouts describes them.';
    END IF;
    -- Decode from the lowest bits up; the rest is the time.
    FOR part IN
        SELECT field[1]::integer AS width, field[2] AS name
        FROM regexp_matches(l.bits, '([0-9]+) ([a-z]+)', 'g') WITH ORDINALITY AS fields (field, place)
        ORDER BY place DESC
    LOOP
        value := (id >> shift) & ((1::bigint << part.width) - 1);
        CASE part.name
            WHEN 'shard' THEN shard := value;
            WHEN 'sequence' THEN sequence := value;
            WHEN 'gene' THEN gene := value;
            ELSE
                -- If only the sign bit is left over, it counts as time.
                IF part.width + shift < 63 AND id >> (part.width + shift) <> 0 THEN
                    RAISE EXCEPTION USING ERRCODE = '22023',
                        MESSAGE = concat('id ', id, ' is out of range for layout "', layout, '"'),
                        DETAIL = concat('snowflake_decode accepts ids between 0 and ',
                                        (1::bigint << (part.width + shift)) - 1, ' for this layout.'),
                        HINT = 'The view snowflake_layouts describes the layouts.';
                END IF;
                value := (id >> shift) & ((1::bigint << (64 - shift)) - 1);
        END CASE;
        shift := shift + part.width;
    END LOOP;
    -- Compute this in two steps, because a product with an interval is computed in floating point.
    value := value * (extract(epoch FROM l.unit) * 1000)::bigint;
    created_at := l.epoch + (value / 1000) * interval '1 s' + mod(value, 1000) * interval '1 ms';
END $$;
COMMENT ON FUNCTION @extschema@.snowflake_decode(bigint, text) IS
'Decodes an id of another system according to a layout listed in the view snowflake_layouts. Returns the time at which the id was made, truncated to the layout''s unit; the shard, in the meaning that the layout gives it, null if it has none; the sequence number; and the gene, bits taken from another id, null in most layouts. The id is read as unsigned. Times of ids that count from another epoch than the layout''s are off by the difference. Depends on the epoch for the layouts idgen and js53. Error: 22023 unknown layout, or an id with more bits than its layout has. Portable edition.';

-- Other forms of an id --------------------------------------------------------------------------

-- Nine bytes are twelve digits; the first digit comes from the added byte.
CREATE OR REPLACE FUNCTION @extschema@.snowflake_shortcode(id bigint) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN coalesce(nullif(ltrim(translate(encode(decode('00', 'hex') || int8send(id), 'base64'), '+/', '-_'),
                                 'A'), ''), 'A');
COMMENT ON FUNCTION @extschema@.snowflake_shortcode(bigint) IS
'Returns an id, read as unsigned, in the form that Instagram uses in links: a number in base64url, 1 to 11 of the characters A-Z a-z 0-9 - _ without leading zeros. Case matters. Short codes do not sort as their ids do; the results of snowflake_text do. Portable edition.';

CREATE OR REPLACE FUNCTION idgen_portable.read_digits(
        value text, digits text, least_length integer, greatest_length integer,
        OUT number numeric, OUT problem text)
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    digit integer;
BEGIN
    IF length(value) NOT BETWEEN least_length AND greatest_length THEN
        problem := concat('Its length in characters is ', length(value), '.');
        RETURN;
    END IF;
    number := 0;
    FOR place IN 1..length(value) LOOP
        digit := strpos(digits, substr(value, place, 1) COLLATE "C");
        IF digit = 0 THEN
            problem := concat('The character "', idgen_portable.excerpt(substr(value, place, 1)),
                              '" at position ', place, ' is not one of its digits.');
            RETURN;
        END IF;
        number := number * length(digits) + digit - 1;
    END LOOP;
    IF number >= 18446744073709551616 THEN
        problem := 'It stands for a number of more than 64 bits.';
    END IF;
END $$;
COMMENT ON FUNCTION idgen_portable.read_digits(text, text, integer, integer) IS
'The number that a string of digits stands for, or what is wrong with it.';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_from_shortcode(code text) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    read record;
BEGIN
    SELECT * INTO read
    FROM idgen_portable.read_digits(
        code, 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_', 1, 11);
    IF read.problem IS NULL AND code ~ '^A.' THEN
        read.problem := 'It begins with "A", a leading zero.';
    END IF;
    IF read.problem IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22P02',
            MESSAGE = concat('invalid short code: "', idgen_portable.excerpt(code), '"'),
            DETAIL = concat('snowflake_from_shortcode cannot read it. ', read.problem),
            HINT = 'A short code has 1 to 11 of the characters A-Z, a-z, 0-9, "-" and "_". A private post has '
                   'a longer code; drop its last 28 characters, which are not part of the id.';
    END IF;
    RETURN read.number - CASE WHEN read.number > 9223372036854775807 THEN 18446744073709551616 ELSE 0 END;
END $$;
COMMENT ON FUNCTION @extschema@.snowflake_from_shortcode(text) IS
'Returns the id of a short code; the inverse of snowflake_shortcode. Accepts only what that function returns. Error: 22P02 if the code is empty or too long, contains another character, has a leading zero or stands for more than 64 bits. Portable edition.';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_text(id bigint) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    digits CONSTANT text := '0123456789ABCDEFGHJKMNPQRSTVWXYZ';
    -- These are the highest four bits. The sign is flipped so that negative ids come first.
    value text := substr(digits, (((id >> 60) & 15) # 8)::integer + 1, 1);
BEGIN
    FOR place IN REVERSE 11..0 LOOP
        value := value || substr(digits, ((id >> (place * 5)) & 31)::integer + 1, 1);
    END LOOP;
    RETURN value;
END $$;
COMMENT ON FUNCTION @extschema@.snowflake_text(bigint) IS
'Returns an id as 13 characters that sort as the ids do, including negative ones: id + 2^63 in Crockford''s base 32, 0-9 and A-Z without I, L, O, U. The order is that of the bytes, so declare columns with COLLATE "C". For JSON, URLs and file names. Portable edition.';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_from_text(text text) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    read record;
BEGIN
    SELECT * INTO read FROM idgen_portable.read_digits($1, '0123456789ABCDEFGHJKMNPQRSTVWXYZ', 13, 13);
    IF read.problem IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22P02',
            MESSAGE = concat('invalid id text: "', idgen_portable.excerpt($1), '"'),
            DETAIL = concat('snowflake_from_text cannot read it. ', read.problem),
            HINT = 'An id text has 13 of the characters 0-9 and A-Z without I, L, O and U. Lower case is not accepted: '
                   'use upper().';
    END IF;
    RETURN read.number - 9223372036854775808;
END $$;
COMMENT ON FUNCTION @extschema@.snowflake_from_text(text) IS
'Returns the id of such a text; the inverse of snowflake_text. Accepts only what that function returns, not even lower case. Error: 22P02 if the text does not have 13 characters, contains another character or stands for more than 64 bits. Portable edition.';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_scatter(id bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN reverse(id::bit(64)::text)::bit(64)::bigint;
COMMENT ON FUNCTION @extschema@.snowflake_scatter(bigint) IS
'Returns an id with its 64 bits reversed, which spreads neighboring ids over the whole range of bigint, half of them negative. For engines that shard by key range and would otherwise have a hot spot at its end. Not for keys in PostgreSQL, where it makes inserts expensive. Portable edition.';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_unscatter(id bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN reverse(id::bit(64)::text)::bit(64)::bigint;
COMMENT ON FUNCTION @extschema@.snowflake_unscatter(bigint) IS
'Returns the id that snowflake_scatter turned into this number. Portable edition.';

-- Shards and the columns that mint for them --------------------------------------------------------

-- Earlier versions of this script returned columns of type name, and a function with other result types cannot be
-- replaced.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_proc WHERE oid = to_regprocedure('@extschema@.idgen_columns()')
                                     AND 'name'::regtype = ANY (proallargtypes)) THEN
        DROP VIEW @extschema@.idgen_columns;
        DROP FUNCTION @extschema@.idgen_columns(), idgen_portable.columns(),
            @extschema@.snowflake_assign_shard(regnamespace, integer, boolean);
    END IF;
END $$;

-- The catalog's dependencies show which defaults call a minting function. Only the text of such defaults is read, to
-- find the shard in it. With this search_path, PostgreSQL writes the name of a function in only one way, so that a name
-- stands for one function. The text is read token by token, so that a literal that looks like a call is not mistaken
-- for one.
--
-- The template becomes part of a statement, perhaps a superuser's for tables of others. PostgreSQL's parser runs the
-- input function of the type of a literal, and with it the CHECK of a domain, even one inside an array or a row. So a
-- template only ever contains calls, text and a few types of PostgreSQL. Constants of other types would also depend on
-- settings such as DateStyle.
CREATE OR REPLACE FUNCTION idgen_portable.columns(
        OUT "schema" text, OUT "table" text, OUT "column" text, OUT shard integer, OUT expression text,
        OUT template text, OUT relation oid, OUT max_shard integer, OUT namespace oid)
    RETURNS SETOF record
    LANGUAGE sql STABLE PARALLEL SAFE ROWS 100
    SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    WITH minting AS (
        SELECT p.oid, quote_ident(n.nspname) || '.' || quote_ident(p.proname) AS name,
               CASE WHEN p.oid = '@extschema@.snowflake_next_id_js(integer)'::regprocedure THEN 255
                    ELSE 8191 END AS max_shard
        FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
        WHERE p.oid IN ('@extschema@.snowflake_next_id()'::regprocedure,
                        '@extschema@.snowflake_next_id(integer)'::regprocedure,
                        '@extschema@.snowflake_next_id_js(integer)'::regprocedure)
    ),
    -- A token is either a call of any function with a readable shard, from which the name and the shard are taken, or
    -- something else, such as a literal, a qualified name, or a single character. The longest match counts.
    grammar AS (
        SELECT array_agg(DISTINCT name) AS names,
               '((([A-Za-z0-9_$.]|"[^"]*")+)[(]((shard|"shard") => ){0,1}([0-9]*)[)]'
               '|(''[^'']*'')+|([A-Za-z0-9_$.]|"[^"]*")+|.)' AS token,
               '^(''.*|text|"text"|numeric|character|varying|[(): |])$' AS known,
               chr(37) AS percent
        FROM minting
    ),
    -- A column without a default of its own uses that of its domain.
    stored AS (
        SELECT DISTINCT ON (d.adrelid, d.adnum) d.adrelid AS relation, d.adnum AS number, d.adbin AS tree
        FROM minting JOIN pg_depend AS use
                 ON use.refclassid = 'pg_proc'::regclass AND use.refobjid = minting.oid
             JOIN pg_attrdef AS d ON use.classid = 'pg_attrdef'::regclass AND use.objid = d.oid
        UNION ALL
        SELECT DISTINCT ON (a.attrelid, a.attnum) a.attrelid, a.attnum, t.typdefaultbin
        FROM minting JOIN pg_depend AS use
                 ON use.refclassid = 'pg_proc'::regclass AND use.refobjid = minting.oid
             JOIN pg_type AS t ON use.classid = 'pg_type'::regclass AND use.objid = t.oid
             JOIN pg_attribute AS a ON a.atttypid = t.oid AND NOT a.atthasdef AND NOT a.attisdropped
             JOIN pg_class AS c ON c.oid = a.attrelid AND c.relkind IN ('r', 'p', 'f', 'v')
    ),
    -- PostgreSQL raises an error for an expression that is nested too deeply, and prints a constant of a few bytes,
    -- such as a numeric or an array of rows, as hundreds of megabytes. So the owner of one table could keep all others
    -- from reading the view. A default has no columns; given its relation, PostgreSQL would wait for any session that
    -- has locked it.
    defaults AS (
        SELECT relation, number,
               CASE WHEN octet_length(tree::text) <= 10000
                         AND NOT EXISTS (
                             SELECT FROM regexp_matches(tree::text, 'consttype ([0-9]+)', 'g') AS constant (type)
                             WHERE type[1]::oid <> ALL ('{boolean,"char",name,bigint,smallint,integer,text,oid,real,double precision,unknown,character,character varying,date,time,timestamp,timestamptz,interval,timetz,regclass,uuid}'::regtype[]::oid[]))
                    THEN pg_get_expr(tree, 0)
                    ELSE '/* not read: it could be too long */' END AS expression
        FROM stored
    )
    SELECT n.nspname::text, c.relname::text, a.attname::text,
           CASE WHEN read.all_of_it AND read.least = read.greatest THEN nullif(read.least, '')::integer END,
           d.expression,
           CASE WHEN read.writable THEN read.template END,
           c.oid,
           read.max_shard,
           n.oid
    FROM defaults AS d
         JOIN pg_class AS c ON c.oid = d.relation AND c.relpersistence <> 't'
         JOIN pg_namespace AS n ON n.oid = c.relnamespace
         JOIN pg_attribute AS a ON a.attrelid = d.relation AND a.attnum = d.number
         CROSS JOIN grammar
         CROSS JOIN LATERAL (
             SELECT count(call) > 0 AND count(*) FILTER (WHERE part[1] = ANY (names)) = 0 AS all_of_it,
                    count(call) > 0 AND bool_and(call IS NOT NULL OR part[1] ~ known) AS writable,
                    min(part[6]) FILTER (WHERE call IS NOT NULL) AS least,
                    max(part[6]) FILTER (WHERE call IS NOT NULL) AS greatest,
                    string_agg(replace(coalesce(call, part[1]), percent, percent || percent)
                               || CASE WHEN call IS NULL THEN '' ELSE '(' || percent || '1$s)' END, ''
                               ORDER BY place)
                    AS template,
                    min((SELECT min(max_shard) FROM minting WHERE name = call)) AS max_shard
             FROM regexp_matches(d.expression, grammar.token, 'g') WITH ORDINALITY AS tokens (part, place)
                  CROSS JOIN LATERAL (SELECT CASE WHEN part[2] = ANY (names) THEN part[2] END AS call) AS ours
         ) AS read;
END;
COMMENT ON FUNCTION idgen_portable.columns() IS
'Returns the rows of the view idgen_columns, with more columns: template is the default with a placeholder for its shard, for format(), null if it is not of a form that snowflake_assign_shard changes; relation and namespace are the OIDs of the table and its schema, and a condition on them is found by an index; max_shard is the greatest shard that the calls allow.';

CREATE OR REPLACE FUNCTION @extschema@.idgen_columns(
        OUT "schema" text, OUT "table" text, OUT "column" text, OUT shard integer, OUT expression text,
        OUT template text, OUT relation oid, OUT max_shard integer, OUT namespace oid)
    RETURNS SETOF record
    LANGUAGE sql STABLE PARALLEL SAFE ROWS 100
BEGIN ATOMIC
    SELECT * FROM idgen_portable.columns();
END;
COMMENT ON FUNCTION @extschema@.idgen_columns() IS
'Returns the rows of the view idgen_columns, with more columns: template is the default with a placeholder for its shard, for format(), null if it is not of a form that snowflake_assign_shard changes; relation and namespace are the OIDs of the table and its schema, and a condition on them is found by an index; max_shard is the greatest shard that the calls allow. Portable edition.';

CREATE OR REPLACE VIEW @extschema@.idgen_columns AS
    SELECT "schema", "table", "column", shard, expression FROM @extschema@.idgen_columns();
COMMENT ON VIEW @extschema@.idgen_columns IS 'All columns whose default calls snowflake_next_id or snowflake_next_id_js, with the shard it mints for: of the tables, partitions, inheritance children, foreign tables and views of this database, except temporary ones. Found by the dependencies in the catalog, so triggers, and defaults that call one of these functions by way of another one, are not shown. Portable edition.';
COMMENT ON COLUMN @extschema@.idgen_columns.schema IS 'Schema of the table.';
COMMENT ON COLUMN @extschema@.idgen_columns.table IS 'Name of the table, partition, child, foreign table or view.';
COMMENT ON COLUMN @extschema@.idgen_columns.column IS 'Name of the column.';
COMMENT ON COLUMN @extschema@.idgen_columns.shard IS 'Shard that the default mints for. Null for snowflake_next_id(), which uses the shard of the session, and if the shard is not a constant or there is more than one.';
COMMENT ON COLUMN @extschema@.idgen_columns.expression IS 'The default: that of the column or, if it has none, that of its domain. A comment in place of one of more than 10,000 bytes as stored, or with a constant of a type that could be long, such as numeric or an array.';
GRANT SELECT ON @extschema@.idgen_columns TO PUBLIC;

CREATE OR REPLACE FUNCTION @extschema@.snowflake_assign_shard(
        "schema" regnamespace, shard integer, share boolean DEFAULT false)
    RETURNS TABLE ("table" text, "column" text, old_default text, new_default text)
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
    SET search_path = pg_catalog, pg_temp
    AS $$
#variable_conflict use_column
DECLARE
    target CONSTANT regnamespace := snowflake_assign_shard.schema;
    new_shard CONSTANT integer := snowflake_assign_shard.shard;
    target_name CONSTANT name := (SELECT nspname FROM pg_namespace WHERE oid = target);
    found_columns bigint;
    list text;
    place text;
    relations oid[] := '{}';
    columns text[] := '{}';
    item record;
BEGIN
    IF target IS NULL OR new_shard IS NULL OR share IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22004',
            MESSAGE = concat('argument "', CASE WHEN target IS NULL THEN 'schema'
                                                WHEN new_shard IS NULL THEN 'shard' ELSE 'share' END,
                             '" must not be null'),
            DETAIL = 'idgen does not accept null for this argument.',
            HINT = 'Pass a value that is not null.';
    ELSIF new_shard NOT BETWEEN 0 AND 8191 THEN
        PERFORM idgen_portable.refuse_part('shard', new_shard, 8191);
    ELSIF target_name IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '3F000',
            MESSAGE = concat('schema with OID ', target::oid, ' does not exist'),
            DETAIL = 'snowflake_assign_shard was given this OID.',
            HINT = 'Give the schema by its name.';
    ELSIF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        RAISE EXCEPTION 'snowflake_assign_shard() must run in a READ COMMITTED transaction'
            USING ERRCODE = '25001',
                  DETAIL = 'An older snapshot would not show defaults and shards that others have changed since.',
                  HINT = 'Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.';
    END IF;

    -- Allow only one call at a time in a database, so that two calls that assign one shard to two schemas see each
    -- other, and two calls for one schema do not wait for each other's tables.
    PERFORM pg_advisory_xact_lock(
        'pg_proc'::regclass::oid::integer, 'idgen_portable.columns()'::regprocedure::oid::integer);

    IF NOT share THEN
        SELECT string_agg(DISTINCT quote_ident(c.schema), ', ') INTO list
        FROM idgen_portable.columns() AS c
        WHERE c.shard = new_shard AND c.namespace <> target;
        IF list IS NOT NULL THEN
            RAISE EXCEPTION USING ERRCODE = '55006',
                MESSAGE = concat('shard ', new_shard, ' is in use by another schema'),
                DETAIL = concat('Columns of these schemas mint for it with idgen: ', list, '.'),
                HINT = 'Choose another shard or, if the schemas are to share it, pass share => true.';
        END IF;
    END IF;

    -- Take all locks first; after that, the defaults can be read and no longer change. Tables that refer to others
    -- are usually younger, and an INSERT locks them first. Views and foreign tables cannot be locked, and need not
    -- be.
    FOR item IN
        SELECT DISTINCT c.relation, c.table
        FROM idgen_portable.columns() AS c JOIN pg_class AS k ON k.oid = c.relation
        WHERE c.namespace = target AND c.shard IS DISTINCT FROM new_shard AND k.relkind IN ('r', 'p')
        ORDER BY c.relation DESC
    LOOP
        EXECUTE concat('LOCK TABLE ONLY ', quote_ident(target_name), '.', quote_ident(item.table),
                       ' IN ACCESS EXCLUSIVE MODE');
    END LOOP;

    SELECT count(*),
           string_agg(concat(quote_ident(c.table), '.', quote_ident(c.column), ' DEFAULT ', c.expression), '; '
                      ORDER BY c.relation, c.column COLLATE "C") FILTER (WHERE other),
           min(concat(quote_ident(c.schema), '.', quote_ident(c.table), ' ALTER COLUMN ', quote_ident(c.column))
               COLLATE "C") FILTER (WHERE other)
    INTO found_columns, list, place
    FROM idgen_portable.columns() AS c
         CROSS JOIN LATERAL (SELECT c.template IS NULL AND c.shard IS DISTINCT FROM new_shard AS other) AS o
    WHERE c.namespace = target;
    IF list IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = '0A000',
            MESSAGE = concat('schema "', target_name, '" has a default that cannot be rewritten'),
            DETAIL = concat('snowflake_assign_shard rewrites only calls with a number, alone, joined to text, or cast to '
                            'text, varchar or numeric, because anything else could run code of others. These are '
                            'not: ', list, '.'),
            HINT = concat('The owner of the table can give it the shard: ALTER TABLE ONLY ', place, ' SET DEFAULT.');
    ELSIF found_columns = 0 THEN
        RAISE NOTICE USING
            MESSAGE = concat('schema "', target_name, '" has no column whose default calls snowflake_next_id'),
            HINT = 'Calls in triggers, or by way of another function, are not detected.';
    END IF;
    SELECT string_agg(concat(quote_ident(c.table), '.', quote_ident(c.column), ' DEFAULT ', c.expression), '; '
                      ORDER BY c.relation, c.column COLLATE "C")
    INTO list
    FROM idgen_portable.columns() AS c
    WHERE c.namespace = target AND new_shard > c.max_shard;
    IF list IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22023',
            MESSAGE = concat('shard ', new_shard, ' is out of range'),
            DETAIL = concat('The shard of an id of snowflake_next_id_js must be between 0 and 255. These '
                            'defaults call it: ', list, '.'),
            HINT = 'Choose a lower shard, or use snowflake_next_id for these columns.';
    END IF;

    FOR item IN
        SELECT c.relation, c.table, c.column, c.expression, format(c.template, new_shard) AS new_expression
        FROM idgen_portable.columns() AS c
        WHERE c.namespace = target AND c.shard IS DISTINCT FROM new_shard
        ORDER BY c.relation, c.column COLLATE "C"
    LOOP
        EXECUTE concat('ALTER TABLE ONLY ', quote_ident(target_name), '.', quote_ident(item.table),
                       ' ALTER COLUMN ', quote_ident(item.column), ' SET DEFAULT ', item.new_expression);
        relations := relations || item.relation;
        columns := columns || item.column;
        "table" := item.table;
        "column" := item.column;
        old_default := item.expression;
        new_default := item.new_expression;
        RETURN NEXT;
    END LOOP;

    -- Constraints that admit no new row are found by their dependencies in the catalog. Nothing of them is evaluated or
    -- printed. A constraint that a partition or child inherits is named once, with the parent. Constraints of domains
    -- are looked up by their dependency, because most constraints are not of a domain, and the planner would read all
    -- of them. The bytes of an integer are stored as numbers, which some processors take as negative.
    WITH RECURSIVE heirs (relation, name) AS (
        SELECT c.relation, c.name FROM unnest(relations, columns) AS c (relation, name)
        UNION SELECT i.inhrelid, heirs.name FROM heirs JOIN pg_inherits AS i ON i.inhparent = heirs.relation
    ), changed AS (
        SELECT a.attrelid, a.attnum, a.atttypid
        FROM heirs JOIN pg_attribute AS a ON a.attrelid = heirs.relation AND a.attname = heirs.name
    ), types (type) AS (
        SELECT atttypid FROM changed
        UNION SELECT t.typbasetype FROM types JOIN pg_type AS t ON t.oid = types.type AND t.typtype = 'd'
    ), checks AS (
        SELECT k.oid, k.conname, k.conbin, k.conrelid::regclass::text AS place
        FROM changed JOIN pg_constraint AS k ON k.conrelid = attrelid AND k.contype = 'c' AND attnum = ANY (k.conkey)
        WHERE k.coninhcount = 0 OR attrelid = ANY (relations)
        UNION ALL
        SELECT k.oid, k.conname, k.conbin, k.contypid::regtype::text
        FROM types JOIN pg_depend AS part ON part.refclassid = 'pg_type'::regclass AND part.refobjid = types.type
                                             AND part.classid = 'pg_constraint'::regclass
             JOIN pg_constraint AS k ON k.oid = part.objid AND k.contypid = types.type
    )
    SELECT string_agg(DISTINCT concat(quote_ident(conname), ' of ', checks.place) COLLATE "C", ', ') INTO list
    FROM checks
    WHERE (SELECT true FROM pg_depend AS use
           WHERE use.classid = 'pg_constraint'::regclass AND use.objid = checks.oid
             AND use.refclassid = 'pg_proc'::regclass
             AND use.refobjid = '@extschema@.shard_of(bigint)'::regprocedure
           LIMIT 1)
      AND NOT EXISTS (SELECT FROM (VALUES (0), (256)) AS sign (less)
                      WHERE strpos(conbin::text, concat('constvalue 4 [ ', (new_shard & 255) - less, ' ', new_shard >> 8,
                                                        ' 0 0 ')) > 0);
    IF list IS NOT NULL THEN
        RAISE WARNING USING MESSAGE = concat('constraints may refuse ids of shard ', new_shard),
            DETAIL = concat('These call shard_of, and do not name the shard: ', list, '.'),
            HINT = 'If they do, assign the previous shard again, and change them first, as docs/shards.md says.';
    END IF;
END
$$;
COMMENT ON FUNCTION @extschema@.snowflake_assign_shard(regnamespace, integer, boolean) IS
'Makes every default in a schema that calls snowflake_next_id or snowflake_next_id_js mint for a shard (0 to 8191; 0 to 255 if one calls the latter), all in the caller''s transaction, and returns the columns that it changed. The rest of such a default stays as it is; a column that takes its default from a domain gets one of its own. The caller must own the tables. Takes an ACCESS EXCLUSIVE lock on each table that it changes until the end of the transaction, so set lock_timeout. Warns of constraints, also of partitions and children, that call shard_of and do not name the shard, but not of partition keys or views. Errors: 22004 null argument, 22023 shard out of range, 25001 in REPEATABLE READ or SERIALIZABLE, 3F000 schema does not exist, 55006 shard in use by another schema of this database and share not given, 0A000 a default that is more than a call with a number, 42501 not the owner. Portable edition.';

-- Watching --------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION @extschema@.idgen_status(
        OUT epoch timestamptz, OUT now_tick bigint, OUT ahead_ms bigint, OUT shards_in_use integer,
        OUT mark bigint, OUT mark_at timestamptz, OUT mark_kept_in text, OUT window_left_ms bigint,
        OUT renewals bigint, OUT flush_ms double precision,
        OUT clock_steps_back bigint, OUT clock_steps_forward bigint,
        OUT ends_at timestamptz, OUT years_left double precision,
        OUT warning text, OUT warning_code text, OUT warning_hint text, OUT mints boolean,
        OUT closed_shards text)
    RETURNS SETOF record
    LANGUAGE plpgsql VOLATILE PARALLEL SAFE ROWS 1 SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    tick bigint := floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - idgen_portable.epoch_ms();
BEGIN
    SELECT max(CASE WHEN relname ~ '^js' THEN (last >> 12) * 1000 ELSE last >> 10 END) + 1, count(last)
    INTO mark, shards_in_use
    FROM (SELECT relname, pg_sequence_last_value(oid) AS last
          FROM pg_class
          WHERE relnamespace = 'idgen_portable'::regnamespace AND relkind = 'S'
            AND relname ~ '^(shard|js)_[0-9]+$') AS registers;
    epoch := idgen_portable.epoch();
    mark_at := epoch + mark * interval '1 ms';
    mark_kept_in := 'sequences of schema idgen_portable';
    ends_at := epoch + 1099511627775 * interval '1 ms';
    IF tick >= 0 THEN
        now_tick := tick;
        ahead_ms := greatest(mark - 1 - tick, 0);
        years_left := greatest(1099511627775 - tick, 0) / 31557600000.0;
    END IF;
    warning_code := CASE WHEN tick < 0 THEN 'clock-before-epoch'
                         WHEN tick > 1099511627775 THEN 'range-used-up'
                         WHEN ahead_ms > idgen_portable.max_ahead_ms() THEN 'clock-behind'
                         WHEN years_left < 5 THEN 'range-ends' END;
    SELECT texts.text, texts.hint INTO warning, warning_hint
    FROM (VALUES
        ('clock-before-epoch', 'the system clock is before "idgen.epoch"', 'Check the system clock.'),
        ('range-used-up', 'the range of ids is used up',
         'Check the system clock. At the true end, only a later epoch with new keys helps.'),
        ('clock-behind', 'the system clock is behind the ids already minted',
         'If the clock was set back, check its synchronization.'),
        ('range-ends', concat('the range of ids ends in ', round(years_left::numeric, 1), ' years'),
         'Plan for a later epoch and new keys.')) AS texts (code, text, hint)
    WHERE texts.code = warning_code;
    closed_shards := '';
    mints := tick BETWEEN 0 AND 1099511627775 AND NOT pg_is_in_recovery();
    RETURN NEXT;
END $$;
COMMENT ON FUNCTION @extschema@.idgen_status() IS
'Returns the row of the view idgen_status, without the settings. Errors: none. Portable edition.';

CREATE OR REPLACE VIEW @extschema@.idgen_status AS
    SELECT s.*,
           CASE WHEN current_setting('idgen.shard', true) ~ '^[0-9]{1,9}$'
                THEN current_setting('idgen.shard', true)::integer ELSE -1 END AS shard,
           idgen_portable.shards() AS allowed_shards,
           idgen_portable.max_ahead_ms() || 'ms' AS max_ahead,
           idgen_portable.milliseconds('idgen.max_wait', 0, 3600000, 5000) || 'ms' AS max_wait,
           1 AS max_lease,
           NULL::text AS reserve_ahead,
           NULL::text AS max_clock_jump
    FROM @extschema@.idgen_status() AS s;
COMMENT ON VIEW @extschema@.idgen_status IS 'The clock of the ids, its safeguards, and the settings in effect: one row. Portable edition.';
COMMENT ON COLUMN @extschema@.idgen_status.epoch IS 'The time of tick 0.';
COMMENT ON COLUMN @extschema@.idgen_status.now_tick IS 'The system clock in milliseconds since the epoch; null if it is before the epoch.';
COMMENT ON COLUMN @extschema@.idgen_status.ahead_ms IS 'Milliseconds by which the furthest shard has run ahead of the system clock; 0 if none has. For ids of snowflake_next_id_js the beginning of their second counts.';
COMMENT ON COLUMN @extschema@.idgen_status.shards_in_use IS 'Number of shards for which ids were ever minted here. A shard with ids of both layouts counts twice.';
COMMENT ON COLUMN @extschema@.idgen_status.mark IS 'Every id ever minted in this database is of an earlier tick. Null before the first id.';
COMMENT ON COLUMN @extschema@.idgen_status.mark_at IS 'The mark as a timestamp.';
COMMENT ON COLUMN @extschema@.idgen_status.mark_kept_in IS 'Where the mark is kept: a register for each shard.';
COMMENT ON COLUMN @extschema@.idgen_status.window_left_ms IS 'Null: the portable edition reserves nothing.';
COMMENT ON COLUMN @extschema@.idgen_status.renewals IS 'Null: the portable edition reserves nothing.';
COMMENT ON COLUMN @extschema@.idgen_status.flush_ms IS 'Null: registers are flushed with the transactions that mint.';
COMMENT ON COLUMN @extschema@.idgen_status.clock_steps_back IS 'Null: the portable edition does not watch the clock.';
COMMENT ON COLUMN @extschema@.idgen_status.clock_steps_forward IS 'Null: the portable edition does not watch the clock.';
COMMENT ON COLUMN @extschema@.idgen_status.ends_at IS 'The last millisecond in which ids can be minted: 2^40 - 1 milliseconds after the epoch. The next one would make them negative.';
COMMENT ON COLUMN @extschema@.idgen_status.years_left IS 'Years of 365.25 days until ends_at.';
COMMENT ON COLUMN @extschema@.idgen_status.warning IS 'A clock before the epoch or too far behind the ids, or the end of the range within 5 years; null otherwise.';
COMMENT ON COLUMN @extschema@.idgen_status.warning_code IS 'A short word for the warning, for programs. It does not change when the text does.';
COMMENT ON COLUMN @extschema@.idgen_status.warning_hint IS 'What to do about the warning.';
COMMENT ON COLUMN @extschema@.idgen_status.mints IS 'Whether a call for an id would be served now, perhaps after waiting. False during recovery. A single shard may still have run out of ids, or be ahead of a clock that was set back.';
COMMENT ON COLUMN @extschema@.idgen_status.closed_shards IS 'Always empty: the portable edition closes no shards.';
COMMENT ON COLUMN @extschema@.idgen_status.shard IS 'Setting idgen.shard of this session; -1 means unset.';
COMMENT ON COLUMN @extschema@.idgen_status.allowed_shards IS 'The shards that have a register here.';
COMMENT ON COLUMN @extschema@.idgen_status.max_ahead IS 'Value of idgen.max_ahead when the script was run.';
COMMENT ON COLUMN @extschema@.idgen_status.max_wait IS 'Setting idgen.max_wait of this session.';
COMMENT ON COLUMN @extschema@.idgen_status.max_lease IS '1: every id is taken from its register, and ids are in strict order.';
COMMENT ON COLUMN @extschema@.idgen_status.reserve_ahead IS 'Null: the portable edition reserves nothing.';
COMMENT ON COLUMN @extschema@.idgen_status.max_clock_jump IS 'Null: the portable edition does not watch the clock.';
GRANT SELECT ON @extschema@.idgen_status TO PUBLIC;
$script$, '@extschema@', quote_ident(home));
EXCEPTION WHEN OTHERS THEN
    -- Raise the same error without its context, which would be the whole script.
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
        hint = PG_EXCEPTION_HINT;
    detail := coalesce(nullif(detail, ''), 'Nothing has been changed.');
    IF hint = '' THEN
        RAISE EXCEPTION USING ERRCODE = state, MESSAGE = message, DETAIL = detail;
    END IF;
    RAISE EXCEPTION USING ERRCODE = state, MESSAGE = message, DETAIL = detail, HINT = hint;
END;
END LOOP;
PERFORM set_config('search_path', path, true);
END $idgen$;
