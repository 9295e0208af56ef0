-- Takes over a logical shard from a PL/pgSQL function such as Instagram's, while clients keep working. Run it once
-- for each shard:
--
--     psql -d app -v function=insta5.next_id -v sequence=insta5.table_id_seq -v shard=5 -f from-plpgsql.sql
--
-- Before that, preload idgen with the epoch of the function, here Instagram's, restart, and create the extension:
--
--     shared_preload_libraries = 'idgen'
--     idgen.epoch = 1314220021721
--
-- Every id that idgen mints is greater than every id of the function. The function stays and returns ids of idgen, so
-- its callers need not change. A call that waits for the sequence at the moment of the change fails with 2200H (the
-- sequence is at its end) and must be tried again. Any forgotten copy of the function fails in the same way from then
-- on. The column defaults are then changed one by one, which makes them faster. If that is interrupted, run the script
-- again.
--
-- While calls wait, the script reads the greatest id in each table that has the function as default. Without an index
-- on the column, that takes as long as reading the table.
--
-- Before the script changes anything, it calls the function and checks that the call moved the sequence, that ids have
-- idgen's layout, the shard and the epoch, that nothing else needs the sequence, and that every role that inserts has
-- the privileges to mint with idgen. All other properties of the function stay: its owner and grants, SECURITY DEFINER,
-- SET, PARALLEL and the like.
--
-- The script calls the function with the rights of your session. So it refuses one that belongs to a role with fewer
-- rights, or is in the schema of one: connect as that role, after GRANT EXECUTE ON FUNCTION snowflake_advance, in
-- idgen's schema, to it. For the same reason it does not read the tables of such roles, nor tables of which row-level
-- security could hide rows. If any has the function as default, read the greatest id in each as its owner, and pass the
-- greatest of all with -v past=ID; it counts if the clock was set back. No policy hides a row from the owner in
--
--     BEGIN; ALTER TABLE insta5.users NO FORCE ROW LEVEL SECURITY; SELECT max(id) FROM insta5.users; ROLLBACK;
--
-- A function with arguments, such as next_id(table_name): create one without arguments for each table, make it the
-- default of the key, and take that over with the sequence of the table. Calls of the old function for that table then
-- fail with 2200H:
--
--     CREATE FUNCTION insta5.users_next_id() RETURNS bigint LANGUAGE plpgsql AS
--         $$ BEGIN RETURN insta5.next_id('users'); END $$;
--
-- A function with another layout, such as 22 bits below the time, 12 of them for the sequence, or nextval() % 2048:
-- idgen cannot continue it, but can mint greater ids. Old ids then stay as they are, and mean nothing to shard_of,
-- snowflake_time and all that is built on these (docs/coming-from.md). Replace such a function, and one without a
-- sequence, by hand:
--
--   1. Choose an idgen.epoch with which snowflake_min_id(now()) is greater than every old id.
--   2. Stop the clients.
--   3. SELECT idgen.snowflake_advance(5, 4242);    -- with the greatest old id; fails if new ones would not be greater
--   4. ALTER TABLE insta5.users ALTER id SET DEFAULT idgen.snowflake_next_id(5);    -- each table
--   5. Start the clients again. None may call the function any more, so drop it.

\set ON_ERROR_STOP on
\set AUTOCOMMIT on
\set QUIET on
SET search_path = pg_catalog;
SET client_min_messages = notice;
SET quote_all_identifiers = off;
SET row_security = off;
SELECT nspname AS idgen FROM pg_extension JOIN pg_namespace AS n ON n.oid = extnamespace
WHERE extname = 'idgen' \gset
\if :{?past} \else \set past '' \endif
SELECT set_config('migrate.function', regexp_replace(:'function', ' *[(] *[)] *$', ''), false),
       set_config('migrate.sequence', :'sequence', false), set_config('migrate.shard', :'shard', false),
       set_config('migrate.past', :'past', false), set_config('migrate.idgen', :'idgen', false) \g /dev/null

-- 1. The change, in one transaction.
BEGIN ISOLATION LEVEL READ COMMITTED;
DO $$
DECLARE
    -- Other functions of its name take arguments.
    function CONSTANT regproc := CASE WHEN current_setting('migrate.function') !~ '[)]$'
        THEN to_regprocedure(current_setting('migrate.function') || '()')::oid::regproc END;
    sequence CONSTANT regclass := current_setting('migrate.sequence');
    shard CONSTANT integer := current_setting('migrate.shard');
    idgen CONSTANT regnamespace := quote_ident(current_setting('migrate.idgen'));
    mint CONSTANT regprocedure := format('%s.snowflake_next_id(integer)', idgen);
    -- Roles that may not do all that this session may. The owner of a schema can put another object in the place of one.
    strangers CONSTANT oid[] := ARRAY(SELECT oid FROM pg_roles WHERE NOT pg_has_role(oid, session_user, 'MEMBER'));
    their_schemas CONSTANT oid[] := ARRAY(
        SELECT n.oid FROM pg_namespace AS n JOIN pg_database ON datname = current_database()
        WHERE CASE nspowner WHEN 'pg_database_owner'::regrole THEN datdba ELSE nspowner END = ANY (strangers));
    -- The second number differs from the first in the bits above the ten that the sequence has in an id of idgen, the
    -- third in those ten.
    numbers CONSTANT bigint[] := (
        SELECT ARRAY[start, least(start + (8191::bigint << 10), seqmax), least(start + 1, seqmax)]
        FROM pg_sequence CROSS JOIN LATERAL (SELECT least(greatest(seqmin, 0), seqmax) AS start) AS s
        WHERE seqrelid = sequence);
    old record;
    others text;
    path name[];
    used regclass[];
    lacking text;
    minting text;
    body text;
    unread text;
    definition text;
    id bigint;
    id_shard integer;
    shards integer[] := '{}';
    before timestamptz;
    after timestamptz;
    id_time timestamptz;
    is_of_now boolean;
    ahead interval;
    epoch timestamptz;
    shift integer;
    past bigint;
    item record;
BEGIN
    -- Functions of idgen are qualified with their schema, which is not in the search_path: a role that may create
    -- objects in it could otherwise have its own operators called here.
    IF function IS NULL THEN
        SELECT string_agg(p.oid::regprocedure::text, ', ') INTO others
        FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = pronamespace
        WHERE ARRAY[nspname, proname]::text[] = parse_ident(current_setting('migrate.function'), false);
        IF others IS NULL THEN
            RAISE 'function %() does not exist', current_setting('migrate.function');
        END IF;
        RAISE 'function % takes arguments', current_setting('migrate.function')
            USING DETAIL = format('The script can take over a function without arguments. There is %s.', others),
                  HINT = 'Take over a function without arguments that calls it, as the head of from-plpgsql.sql says.';
    END IF;
    SELECT * INTO old FROM pg_proc WHERE oid = function;
    IF old.prorettype <> 'bigint'::regtype OR old.proretset OR old.prokind <> 'f' OR old.prosqlbody IS NOT NULL THEN
        RAISE 'function %() must have a body in quotes and return a single bigint', function;
    END IF;
    -- Others could put objects of their own in the place of those of idgen that are called below.
    SELECT string_agg(quote_ident(rolname), ', ') INTO others
    FROM pg_roles AS r, pg_extension JOIN pg_namespace AS n ON n.oid = extnamespace
    WHERE extname = 'idgen' AND r.oid = ANY (strangers) AND r.oid <> 'pg_database_owner'::regrole
      AND (has_schema_privilege(r.oid, n.oid, 'CREATE') OR pg_has_role(r.oid, nspowner, 'MEMBER')
           OR pg_has_role(r.oid, extowner, 'MEMBER'));
    IF others IS NOT NULL THEN
        RAISE 'roles that may not do all that you may can change schema % of idgen, or the extension', idgen
            USING DETAIL = format('The script could call what they have put in the place of idgen: %s.', others),
                  HINT = 'Run the script as one of them, if that owns the function too. Otherwise it needs idgen in a '
                         'schema in which only superusers may create objects: see docs/security.md.';
    END IF;

    -- A SECURITY DEFINER function calls idgen as its owner; the new defaults call it as the role that inserts.
    SELECT string_agg(DISTINCT quote_ident(rolname), ', ') INTO lacking
    FROM (SELECT r.oid, rolname, false AS by_name
          FROM pg_roles AS r, pg_depend JOIN pg_attrdef AS d ON classid = 'pg_attrdef'::regclass AND objid = d.oid
          WHERE refclassid = 'pg_proc'::regclass AND refobjid = function
            AND (has_table_privilege(r.oid, d.adrelid, 'INSERT') OR has_any_column_privilege(r.oid, d.adrelid, 'INSERT'))
          UNION ALL
          SELECT oid, rolname, true FROM pg_roles
          WHERE CASE WHEN old.prosecdef THEN oid = old.proowner
                     ELSE has_function_privilege(oid, function, 'EXECUTE')
                          AND has_schema_privilege(oid, old.pronamespace, 'USAGE') END) AS callers
    WHERE oid >= 16384    -- not PostgreSQL's predefined roles, which nobody inserts as
      AND (NOT has_function_privilege(oid, mint, 'EXECUTE')
           OR by_name AND NOT has_schema_privilege(oid, idgen, 'USAGE'));
    IF lacking IS NOT NULL THEN
        RAISE 'roles that call %, or insert rows with it as default, may not mint with idgen: %', function, lacking
            USING HINT = format('Grant them USAGE ON SCHEMA %1$s and EXECUTE ON FUNCTION %1$s.snowflake_next_id(integer), '
                                'or revoke the privileges that they do not need.', idgen);
    END IF;

    -- A second run only changes the defaults.
    body := format('BEGIN %s %s.snowflake_next_id(%s); END',
                   CASE WHEN old.proargmodes IS NULL THEN 'RETURN' ELSE '$1 :=' END, idgen, shard);
    minting := substring(old.prosrc FROM '[(]([0-9]+)[)]; END$');
    IF old.prosrc = body THEN
        RAISE NOTICE 'function % already mints ids with idgen', function;
        RETURN;
    ELSIF old.prosrc = replace(body, format('(%s);', shard), format('(%s);', minting)) THEN
        RAISE 'function % already mints ids with idgen, for shard %', function, minting
            USING DETAIL = format('The script was told to take over shard %s.', shard),
                  HINT = format('Pass -v shard=%s to change the defaults that still call the function.', minting);
    END IF;

    SELECT string_agg(what, ', ') INTO others
    FROM (SELECT format('function %s of %s', function, old.proowner::regrole)
          WHERE old.proowner = ANY (strangers)
          UNION ALL
          SELECT format('sequence %s of %s', sequence, relowner::regrole)
          FROM pg_class WHERE oid = sequence AND relowner = ANY (strangers)
          UNION ALL
          SELECT format('schema %s of %s', oid::regnamespace, nspowner::regrole) FROM pg_namespace
          WHERE oid = ANY (their_schemas)
            AND oid IN (old.pronamespace, (SELECT relnamespace FROM pg_class WHERE oid = sequence))) AS found (what);
    IF others IS NOT NULL THEN
        RAISE 'function %, sequence % or their schemas belong to a role that may not do all that you may',
                function, sequence
            USING DETAIL = format('The script would run with your rights what that role has written: %s.', others),
                  HINT = format('Connect as that role, after GRANT EXECUTE ON FUNCTION %s.snowflake_advance to it. '
                                'Revoke that afterwards.', idgen);
    END IF;
    -- By its own search_path, the function finds what others may have put in the place of PostgreSQL's operators. Only
    -- qualified functions are called while that path is set.
    SELECT substr(setting, 13) INTO others FROM unnest(old.proconfig) AS setting
    WHERE starts_with(setting, 'search_path=');
    PERFORM set_config('search_path', coalesce(others, 'pg_catalog'), true);
    path := pg_catalog.current_schemas(true);
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog', true);
    SELECT string_agg(DISTINCT format('%I in schema %I', rolname, nspname), ', ') INTO others
    FROM pg_namespace AS n, pg_roles AS r
    WHERE (nspname = ANY (path) OR old.prosecdef AND nspname = pg_get_userbyid(old.proowner))
      AND r.oid = ANY (strangers) AND r.oid <> 'pg_database_owner'::regrole
      AND has_schema_privilege(r.oid, n.oid, 'CREATE');
    IF others IS NOT NULL THEN
        RAISE 'roles that may not do all that you may can create objects in the search_path of function %', function
            USING DETAIL = format('The script could call what they have put there: %s.', others),
                  HINT = 'Take these schemas out of the path by ALTER FUNCTION ... SET search_path, or REVOKE CREATE ON '
                         'SCHEMA.';
    END IF;
    -- Of an identity column, the sequence depends on the column, and not the other way round.
    SELECT string_agg(CASE deptype WHEN 'i' THEN pg_describe_object(refclassid, refobjid, refobjsubid)
                                   ELSE pg_describe_object(classid, objid, objsubid) END, ', ') INTO others
    FROM pg_depend
    WHERE refclassid = 'pg_class'::regclass AND refobjid = sequence
          AND classid IN ('pg_attrdef'::regclass, 'pg_type'::regclass)
       OR classid = 'pg_class'::regclass AND objid = sequence AND deptype = 'i';
    IF others IS NOT NULL THEN
        RAISE 'not only % uses sequence %', function, sequence
            USING DETAIL = format('The script ends the sequence, and so would break: %s.', others),
                  HINT = 'Give each of them a sequence of its own first.';
    END IF;
    SELECT string_agg(DISTINCT d.adrelid::regclass::text, ', ') INTO unread
    FROM pg_depend JOIN pg_attrdef AS d ON classid = 'pg_attrdef'::regclass AND objid = d.oid
         JOIN pg_class AS c ON c.oid = d.adrelid
    WHERE refclassid = 'pg_proc'::regclass AND refobjid = function AND relkind IN ('r', 'f') AND relpersistence <> 't'
      AND (relowner = ANY (strangers) OR relnamespace = ANY (their_schemas) OR row_security_active(c.oid));
    IF unread IS NOT NULL AND current_setting('migrate.past') = '' THEN
        RAISE 'these tables belong to roles that may not do all that you may, or have row-level security: %', unread
            USING DETAIL = 'To read them could run code of these roles with your rights, by an index for example, or '
                           'could miss rows.',
                  HINT = 'Read the greatest id in each as its owner, as the head of from-plpgsql.sql says, and pass '
                         'the greatest of all with -v past=ID.';
    END IF;

    -- nextval keeps a lock on its sequence until the end of the transaction, so the locks of this session show which
    -- sequence the call used, whatever others do in the meantime. To read a sequence takes another lock.
    EXECUTE format('SELECT %s()', function) INTO id;
    SELECT array_agg(DISTINCT relation::regclass) INTO used
    FROM pg_locks JOIN pg_class AS c ON c.oid = relation
    WHERE pid = pg_backend_pid() AND locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted AND relkind = 'S'
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database());
    IF used IS NULL THEN
        RAISE '% uses no sequence, so ending % would not keep it from making ids', function, sequence
            USING HINT = 'Replace the function by hand, as the head of from-plpgsql.sql says.';
    ELSIF sequence <> ALL (used) THEN
        RAISE '% does not use sequence %', function, sequence
            USING HINT = format('It uses %s.', array_to_string(used, ', '));
    END IF;

    -- The function cannot make an id without its sequence, on which nextval keeps a lock until the end of the
    -- transaction. So once this lock is held, no transaction in which the function made an id is open, and no call
    -- can make another one. The waits are shorter than deadlock_timeout, so clients neither wait long nor see a
    -- deadlock.
    FOR try IN 1..50 LOOP
        BEGIN
            PERFORM set_config('lock_timeout', '900ms', true);
            EXECUTE format('ALTER SEQUENCE %s NO CYCLE', sequence);
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            IF try = 50 THEN RAISE; END IF;
            PERFORM pg_sleep(0.5);
        END;
    END LOOP;
    -- While nobody else can use the sequence, see what the function makes of these numbers. A rollback restores it.
    FOR place IN 1..3 LOOP
        BEGIN
            EXECUTE format('ALTER SEQUENCE %s RESTART WITH %s', sequence, numbers[place]);
            before := clock_timestamp();
            EXECUTE format('SELECT %s()', function) INTO id;
            after := clock_timestamp();
            RAISE SQLSTATE 'IDGEN';
        EXCEPTION WHEN SQLSTATE 'IDGEN' THEN
        END;
        EXECUTE format('SELECT %1$s.shard_of($1), %1$s.snowflake_time($1), %1$s.snowflake_time(0)', idgen)
        INTO id_shard, id_time, epoch USING id;
        shards := shards || id_shard;
    END LOOP;
    -- The time may be that of the call or of the transaction, rounded to a millisecond.
    is_of_now := id_time BETWEEN transaction_timestamp() - interval '1 ms' AND after + interval '1 ms';
    IF is_of_now IS NOT TRUE THEN
        SELECT bits INTO shift FROM generate_series(8, 40) AS bits
        WHERE bits <> 23 AND abs(extract(epoch FROM after - epoch) * 1000 - (id >> bits)) <= 60000;
    END IF;
    IF shift IS NOT NULL OR shards[1] <> shards[2] OR shards[1] <> shards[3] OR id & 1023 <> numbers[3] & 1023 THEN
        RAISE 'ids of % are not laid out as those of idgen', function
            USING DETAIL = concat(
                      'An id of idgen has a sequence number in its lowest 10 bits, a shard in 13, and then the time. ',
                      CASE WHEN shift IS NOT NULL THEN format('The function has %s bits below the time.', shift)
                           ELSE format('In ids of the function, the numbers %s of the sequence give the shards %s, '
                                       'and the last of them gives %s in the lowest 10 bits.',
                                       array_to_string(numbers, ', '), array_to_string(shards, ', '), id & 1023) END),
                  HINT = 'No epoch and no shard changes that. Replace it by hand: see the head of from-plpgsql.sql.';
    ELSIF is_of_now IS NOT TRUE THEN
        RAISE 'an id of % has time %, at %', function, id_time, after
            USING DETAIL = format('It counts from another time than idgen.epoch, %s, or not in milliseconds, or the '
                                  'clock was set back at this moment.', epoch),
                  HINT = 'Set idgen.epoch to the epoch of the function, and restart. If it has that already, run the '
                         'script again, or replace the function by hand, as the head of from-plpgsql.sql says.';
    ELSIF id_shard <> shard THEN
        RAISE 'an id of % has shard %', function, id_shard
            USING DETAIL = format('The script was told to take over shard %s.', shard),
                  HINT = 'Pass the function of that shard, or the shard of this function.';
    END IF;

    -- A call that waits in nextval would continue in the old function: make it fail. ALTER SEQUENCE writes the sequence
    -- into a new file. So a rollback restores the number before setval, and after a crash, even an unlogged sequence
    -- starts with the number after it.
    PERFORM setval(sequence, CASE WHEN seqincrement > 0 THEN seqmax ELSE seqmin END)
    FROM pg_sequence WHERE seqrelid = sequence;
    EXECUTE format('ALTER SEQUENCE %s NO CYCLE', sequence);

    -- A client may have got an id that is in no table yet. Its time is ahead of the clock by as much at most as that of
    -- the call above may have been. So ids continue after that, and after the greatest id in a table, in case the clock
    -- has been set back. A view would run what its owner likes, and so would a child or partition of another owner.
    ahead := greatest(id_time - before, interval '0') + interval '1 ms';
    EXECUTE format('SELECT %s.snowflake_max_id(clock_timestamp() + $1)', idgen) INTO past USING ahead;
    past := greatest(past, nullif(current_setting('migrate.past'), '')::bigint);
    FOR item IN
        SELECT DISTINCT d.adrelid::regclass AS relation, a.attname
        FROM pg_depend JOIN pg_attrdef AS d ON classid = 'pg_attrdef'::regclass AND objid = d.oid
             JOIN pg_attribute AS a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
             JOIN pg_class AS c ON c.oid = d.adrelid
        WHERE refclassid = 'pg_proc'::regclass AND refobjid = function AND atttypid = 'bigint'::regtype
          AND relkind IN ('r', 'f') AND relpersistence <> 't'
          AND relowner <> ALL (strangers) AND relnamespace <> ALL (their_schemas) AND NOT row_security_active(c.oid)
    LOOP
        EXECUTE format('SELECT greatest(max(%I), %s) FROM ONLY %s', item.attname, past, item.relation) INTO past;
    END LOOP;
    PERFORM pg_sleep_for(ahead + interval '1 ms');
    EXECUTE format('SELECT %s.snowflake_advance($1, $2)', idgen) USING shard, past;

    -- The function stays in PL/pgSQL, so that a statement that has begun with the old one can continue with it. Only
    -- the body changes. If the result is an OUT argument, $1 is its name too.
    definition := pg_get_functiondef(function);
    definition := left(definition, strpos(definition, chr(10) || 'AS $'));
    EXECUTE replace(definition, ' LANGUAGE sql', ' LANGUAGE plpgsql') || format('AS %L', body);
    EXECUTE format('SELECT id, %s.shard_of(id) FROM %s() AS id', idgen, function) INTO id, id_shard;
    IF id_shard <> shard OR id <= past THEN
        RAISE 'id % does not continue after %', id, past;
    END IF;
    RAISE NOTICE 'ids of shard % are minted by idgen from now on, and are greater than %', shard, past;
END
$$;
COMMIT;

-- 2. The defaults, each in a transaction of its own. One that does more than call the function is not changed.
DO $$
DECLARE
    function CONSTANT regproc := to_regprocedure(current_setting('migrate.function') || '()')::oid::regproc;
    mint CONSTANT text := format('%I.snowflake_next_id(%s)', current_setting('migrate.idgen'),
                                 current_setting('migrate.shard')::integer);
    item record;
BEGIN
    FOR item IN
        SELECT DISTINCT d.adrelid::regclass AS relation, a.attname,
               CASE WHEN octet_length(d.adbin::text) <= 10000 THEN pg_get_expr(d.adbin, 0)
                    ELSE '(too long to be printed)' END AS expression
        FROM pg_depend JOIN pg_attrdef AS d ON classid = 'pg_attrdef'::regclass AND objid = d.oid
             JOIN pg_attribute AS a ON a.attrelid = d.adrelid AND a.attnum = d.adnum AND attgenerated = ''
             JOIN pg_class AS c ON c.oid = d.adrelid AND relpersistence <> 't'
        WHERE refclassid = 'pg_proc'::regclass AND refobjid = function
    LOOP
        IF item.expression <> function || '()' THEN
            RAISE NOTICE 'not changed: %.% DEFAULT %', item.relation, item.attname, item.expression;
            CONTINUE;
        END IF;
        FOR try IN 1..50 LOOP
            BEGIN
                PERFORM set_config('lock_timeout', '900ms', true);
                EXECUTE format('ALTER TABLE ONLY %s ALTER COLUMN %I SET DEFAULT %s',
                               item.relation, item.attname, mint);
                EXIT;
            EXCEPTION WHEN lock_not_available THEN
                IF try = 50 THEN RAISE; END IF;
                PERFORM pg_sleep(0.5);
            END;
        END LOOP;
        COMMIT;
    END LOOP;
END
$$;

\unset QUIET
SELECT * FROM :"idgen".idgen_columns WHERE shard = :'shard' ORDER BY "schema", "table", "column";
