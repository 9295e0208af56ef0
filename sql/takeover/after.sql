-- Continues where the portable edition stopped, if before.sql found one.

DO $$
DECLARE
    epoch timestamptz;
    epoch_ms text;
    portable_ms CONSTANT text := coalesce(
        substring(pg_get_function_sqlbody(to_regproc('idgen_portable.epoch_ms')) FROM $re$'(-?[0-9]+)'$re$),
        'unknown');
    unknown text;
    last_second timestamptz;
    initial jsonb;
    statement text;
    item record;
BEGIN
    IF current_setting('idgen_portable.rights') = '' THEN
        RETURN;
    END IF;
    epoch := @extschema@.snowflake_time(bigint '0');
    epoch_ms := (extract(epoch FROM epoch) * 1000)::bigint;
    IF epoch_ms <> portable_ms THEN
        RAISE EXCEPTION USING ERRCODE = '55000',
            MESSAGE = '"idgen.epoch" is not the epoch of the portable edition',
            DETAIL = format('It is %s ms after 1970, and that of the portable edition is %s.',
                            epoch_ms, portable_ms),
            HINT = format('Set idgen.epoch to %s in the configuration file and restart the server.',
                          portable_ms);
    END IF;
    -- No register may be missed: its ids would be repeated.
    SELECT string_agg(quote_ident(relname), ', ' ORDER BY relname COLLATE "C") INTO unknown
    FROM pg_class
    WHERE relnamespace = to_regnamespace('idgen_portable') AND relkind = 'S' AND relname <> 'moved'
      AND relname !~ '^(shard|js)_[0-9]+$';
    IF unknown IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = '55000',
            MESSAGE = 'schema "idgen_portable" has sequences that are not registers',
            DETAIL = 'They are: ' || unknown || '. The register of a shard is shard_N, or js_N.',
            HINT = 'Give them back their previous names, or drop them if they have never been registers.';
    END IF;
    FOR item IN
        -- A register that was advanced when it was created, and has minted nothing yet, begins at its start value.
        SELECT substr(relname, 7)::integer AS shard,
               coalesce(pg_sequence_last_value(seqrelid), nullif(seqstart, 0) - 1) AS last
        FROM pg_class JOIN pg_sequence ON seqrelid = oid
        WHERE relnamespace = to_regnamespace('idgen_portable') AND relname ~ '^shard_'
    LOOP
        IF item.last IS NOT NULL THEN
            PERFORM @extschema@.snowflake_advance(
                item.shard, (item.last >> 10 << 23) | (item.shard << 10) | (item.last & 1023));
        END IF;
    END LOOP;
    -- Ids of snowflake_next_id_js begin with the second of the clock, so wait until the last second of each
    -- register is over.
    SELECT epoch + max(pg_sequence_last_value(oid) >> 12) * interval '1 s' INTO last_second
    FROM pg_class
    WHERE relnamespace = to_regnamespace('idgen_portable') AND relkind = 'S' AND relname ~ '^js_';
    WHILE clock_timestamp() < last_second + interval '1 s' LOOP
        IF last_second > clock_timestamp() + current_setting('idgen.max_ahead')::interval THEN
            RAISE EXCEPTION USING ERRCODE = '22023',
                MESSAGE = 'the last id of snowflake_next_id_js lies in the future',
                DETAIL = format('It is %s ms ahead of the system clock; "idgen.max_ahead" allows %s.',
                                ceil(extract(epoch FROM last_second - clock_timestamp()) * 1000),
                                current_setting('idgen.max_ahead')),
                HINT = 'Check the system clock, or try again when it has passed that id.';
        END IF;
        -- Only briefly, because the clock may be corrected in the meantime.
        PERFORM pg_sleep_until(least(last_second + interval '1 s', clock_timestamp() + interval '50 ms'));
    END LOOP;
    -- Functions that this version of the extension does not have stay as they were, with their owners. All others
    -- have been replaced.
    FOR item IN
        SELECT p.oid::regprocedure AS name,
               obj_description(p.oid, 'pg_proc') LIKE '% Portable edition.' AS is_left
        FROM pg_proc AS p
             JOIN pg_depend ON classid = 'pg_proc'::regclass AND objid = p.oid AND deptype = 'e'
             JOIN pg_extension AS e ON refclassid = 'pg_extension'::regclass AND refobjid = e.oid
        WHERE e.extname = 'idgen'
    LOOP
        -- PostgreSQL keeps the privileges that a member has when it is added. Added with its new owner, it does not
        -- mention the former owner, who could otherwise not be dropped from PostgreSQL 17 on.
        EXECUTE format('ALTER EXTENSION idgen DROP FUNCTION %s', item.name);
        IF NOT item.is_left THEN
            EXECUTE format('ALTER FUNCTION %s OWNER TO CURRENT_USER', item.name);
            EXECUTE format('ALTER EXTENSION idgen ADD FUNCTION %s', item.name);
        END IF;
    END LOOP;
    -- Grant and revoke again what was granted and revoked. PostgreSQL records privileges granted by an extension
    -- script as initial ones, which a dump leaves to CREATE EXTENSION. These are not initial, so restore that
    -- catalog.
    SELECT coalesce(jsonb_object_agg(concat_ws(' ', classoid, objoid, objsubid), initprivs::text), '{}')
    INTO initial
    FROM pg_init_privs;
    FOR statement IN SELECT json_array_elements_text(current_setting('idgen_portable.rights')::json) LOOP
        EXECUTE statement;
    END LOOP;
    -- Only for the members of this extension: another session may be creating another extension.
    UPDATE pg_init_privs SET initprivs = (initial->>concat_ws(' ', classoid, objoid, objsubid))::aclitem[]
    WHERE initprivs::text <> initial->>concat_ws(' ', classoid, objoid, objsubid)
      AND (classoid, objoid) IN (
          SELECT classid, objid
          FROM pg_depend JOIN pg_extension AS e ON refclassid = 'pg_extension'::regclass AND refobjid = e.oid
          WHERE deptype = 'e' AND e.extname = 'idgen');
    DELETE FROM pg_init_privs
    WHERE NOT initial ? concat_ws(' ', classoid, objoid, objsubid)
      AND (classoid, objoid) IN (
          SELECT classid, objid
          FROM pg_depend JOIN pg_extension AS e ON refclassid = 'pg_extension'::regclass AND refobjid = e.oid
          WHERE deptype = 'e' AND e.extname = 'idgen');
    -- From PostgreSQL 17 on, a role cannot be dropped while an initial privilege mentions it.
    DELETE FROM pg_shdepend AS d
    WHERE deptype = 'i' AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND NOT EXISTS (SELECT FROM pg_init_privs AS i, aclexplode(initprivs) AS acl
                      WHERE (classoid, objoid, i.objsubid) = (d.classid, d.objid, d.objsubid)
                        AND d.refobjid IN (grantor, grantee));
    -- Running statements still call these functions, by plans made earlier. Once they have ended, the schema
    -- idgen_portable can be dropped.
    FOR item IN
        SELECT *
        FROM (VALUES ('mint(shard integer, want bigint, waited_ms bigint DEFAULT 0, '
                      'js boolean DEFAULT false) RETURNS bigint',
                      'mint(integer, bigint, bigint, boolean)',
                      'RETURN CASE WHEN js THEN @extschema@.snowflake_next_id_js(shard) '
                      'ELSE @extschema@.snowflake_next_id(shard) END'),
                     ('mint_many(shard integer, count integer) RETURNS SETOF bigint',
                      'mint_many(integer, integer)',
                      'RETURN QUERY SELECT @extschema@.snowflake_next_ids(shard, count)'),
                     ('advance(shard integer, past bigint) RETURNS bigint',
                      'advance(integer, bigint)', 'RETURN @extschema@.snowflake_advance(shard, past)')
             ) AS helper (declaration, name, body)
    LOOP
        EXECUTE format('ALTER FUNCTION idgen_portable.%s OWNER TO CURRENT_USER', item.name);
        EXECUTE format('ALTER EXTENSION idgen ADD FUNCTION idgen_portable.%s', item.name);
        EXECUTE format('CREATE OR REPLACE FUNCTION idgen_portable.%s LANGUAGE plpgsql AS %L',
                       item.declaration, 'BEGIN ' || item.body || '; END');
        EXECUTE format('ALTER EXTENSION idgen DROP FUNCTION idgen_portable.%s', item.name);
    END LOOP;
END $$;
