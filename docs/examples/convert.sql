-- Changes serial, identity and UUID keys into ids, by the steps of docs/coming-from.md:
--
--     psql -X -v ON_ERROR_STOP=1 -d app -f docs/examples/convert.sql
--
-- Needs the role that owns the tables, with CREATE on the database, and with BYPASSRLS where FORCE ROW LEVEL SECURITY
-- hides rows. It looks at tables of that role alone, so that nothing of another role is evaluated.
--
-- Leaves the schema idgen_convert, and changes no table. If it fails, it leaves nothing. It can be repeated, and keeps
-- the lists of a former run.

\set idgen_convert_stop :ON_ERROR_STOP
\set ON_ERROR_STOP on
BEGIN;
SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL client_min_messages = warning;    -- what exists is skipped
CREATE SCHEMA IF NOT EXISTS idgen_convert;
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_namespace
               WHERE nspname = 'idgen_convert' AND pg_get_userbyid(nspowner) <> current_user) THEN
        RAISE 'the schema idgen_convert belongs to another role'
            USING HINT = 'If that role no longer needs its lists, let it run DROP SCHEMA idgen_convert CASCADE.';
    END IF;
END
$$;

-- After SET ROLE, the functions of the tables' owner could go back to the role of the session.
CREATE OR REPLACE FUNCTION idgen_convert.refuse_assumed_role() RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT pg_has_role(current_user, session_user, 'MEMBER') THEN
        RAISE 'role "%" may not do all that the role of the session may', current_user
            USING HINT = 'Connect as that role, instead of SET ROLE.';
    END IF;
END
$$;
SELECT idgen_convert.refuse_assumed_role() \g /dev/null

-- Whole applications ----------------------------------------------------------------------------

-- The result of step 1. It is unlogged because FOR ALL TABLES would publish a logged table.
CREATE UNLOGGED TABLE IF NOT EXISTS idgen_convert.id_columns (
    "table"  regclass,
    "column" name,
    found_by text,
    is_id    boolean,    -- null until somebody decides
    PRIMARY KEY ("table", "column"));

-- A table with its partitions and children.
CREATE OR REPLACE FUNCTION idgen_convert.tree(relation oid) RETURNS SETOF oid LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE tree AS (SELECT $1 AS relid UNION SELECT inhrelid FROM pg_inherits JOIN tree ON inhparent = relid)
    SELECT relid FROM tree
$$;

-- Fails if a table, or a partition or child, is of a role without the rights of this one, whose functions would run.
CREATE OR REPLACE FUNCTION idgen_convert.refuse_others(relation regclass) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    other regclass;
BEGIN
    PERFORM idgen_convert.refuse_assumed_role();
    SELECT relid INTO other FROM idgen_convert.tree(relation) AS relid JOIN pg_class ON oid = relid
    WHERE NOT pg_has_role(relowner, current_user, 'MEMBER') LIMIT 1;
    IF FOUND THEN RAISE '% belongs to another role', other; END IF;
END
$$;

-- A query of a column in a table and in the partitions and children of this role. To plan one that reads those of
-- others would run their functions.
CREATE OR REPLACE FUNCTION idgen_convert.values_of("table" regclass, "column" name) RETURNS text LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(string_agg(format('SELECT %I FROM ONLY %s', $2, oid::regclass), ' UNION ALL '),
                    format('SELECT NULL::bigint AS %I WHERE false', $2))
    FROM idgen_convert.tree($1) AS relid JOIN pg_class ON oid = relid
    WHERE relkind = 'r' AND pg_get_userbyid(relowner) = current_user
$$;

-- The columns of this role's tables. If the default, which may be that of the domain, takes numbers from a sequence or
-- mints, the last column says by what.
CREATE OR REPLACE VIEW idgen_convert.columns AS
SELECT relnamespace AS namespace, attrelid, attnum, attname, atttypid, attidentity, attinhcount > 0 AS is_inherited,
       CASE WHEN attidentity <> '' OR expression LIKE '%nextval(%' THEN 'sequence'
            ELSE substring(expression FROM '(snowflake_next_id(_js)?)[(]') END AS numbers
FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid JOIN pg_type ON pg_type.oid = atttypid
         LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum,
     coalesce(pg_get_expr(adbin, adrelid), pg_get_expr(typdefaultbin, 0)) AS expression
WHERE pg_get_userbyid(relowner) = current_user AND attrelid >= 16384    -- not PostgreSQL's own
      AND relkind IN ('r', 'p') AND attnum > 0 AND attgenerated = '';

-- The integer columns of this role's tables, and others that take numbers from a sequence. Inherited columns follow
-- those of the parent, and are here only if they take numbers otherwise than these do.
CREATE OR REPLACE VIEW idgen_convert.integer_columns AS
SELECT namespace, attrelid::regclass AS "table", attname AS "column",
       CASE WHEN type IN ('smallint', 'integer') THEN 'bigint'
            WHEN type IN ('smallint[]', 'integer[]') THEN 'bigint[]' END AS becomes,
       CASE WHEN replace(type, '[]', '') NOT IN ('smallint', 'integer', 'bigint') THEN 'sequence'
            WHEN numbers IS NOT NULL AND (is_key OR numbers <> 'sequence' OR EXISTS (
                     SELECT FROM pg_constraint WHERE confrelid = attrelid AND attnum = ANY (confkey))) THEN 'key'
            WHEN is_reference THEN 'foreign key' WHEN is_key THEN 'key'
            WHEN attname ~ '(^|_)(id|ID)s?$|[a-z]I[dD]s?$' THEN 'name'
            WHEN numbers IS NOT NULL THEN 'sequence'
            WHEN attname ~* 'ids?$' THEN 'name' END AS found_by,    -- and some others, to which bigint does no harm
       numbers, type = 'bigint' AS fits, is_inherited
FROM idgen_convert.columns JOIN pg_type ON pg_type.oid = atttypid,
     format_type(CASE typbasetype WHEN 'bigint'::regtype THEN typbasetype ELSE atttypid END, NULL) AS type,
     LATERAL (SELECT coalesce(bool_or(contype = 'f'), false) AS is_reference,
                     coalesce(bool_or(contype = 'p' AND (cardinality(conkey) = 1 OR numbers IS NOT NULL)), false)
                         AS is_key
              FROM pg_constraint WHERE conrelid = attrelid AND attnum = ANY (conkey)) AS constraints
WHERE NOT EXISTS (SELECT FROM pg_depend
                  WHERE classid = 'pg_class'::regclass AND objid = attrelid AND deptype = 'e')
      AND (type IN ('smallint', 'integer', 'smallint[]', 'integer[]') OR numbers = 'sequence'
           OR type = 'bigint' AND (numbers IS NOT NULL OR is_key AND NOT is_reference))
      AND (NOT is_inherited OR numbers IS NOT NULL AND NOT EXISTS (
               SELECT FROM pg_inherits JOIN idgen_convert.columns AS parent ON parent.attrelid = inhparent
               WHERE inhrelid = columns.attrelid AND parent.attname = columns.attname
                     AND parent.numbers = columns.numbers));

-- The schemas that find_columns was given.
CREATE OR REPLACE VIEW idgen_convert.namespaces AS
SELECT DISTINCT relnamespace AS namespace FROM idgen_convert.id_columns JOIN pg_class ON pg_class.oid = "table";

-- Says whether all values of a column are keys of one table.
CREATE OR REPLACE FUNCTION idgen_convert.holds_keys("table" regclass, "column" name) RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET row_security = off AS $$
DECLARE
    given text := format('(%s) AS t, unnest(ARRAY[t.%I]::bigint[]) AS given (n) WHERE given.n <> 0',
                         idgen_convert.values_of("table", "column"), "column");
    key record;
    found boolean;
BEGIN
    EXECUTE format('SELECT EXISTS (SELECT FROM %s)', given) INTO found;
    IF NOT found THEN RETURN 'no value'; END IF;
    FOR key IN SELECT i.* FROM idgen_convert.integer_columns AS i JOIN idgen_convert.namespaces USING (namespace)
               WHERE i.found_by = 'key' ORDER BY i."table"::text LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM %s AND NOT EXISTS (SELECT FROM (%s) AS k WHERE k.%I = given.n))',
                       given, idgen_convert.values_of(key."table", key."column"), key."column") INTO found;
        IF NOT found THEN RETURN 'keys of ' || key."table"; END IF;
    END LOOP;
    RETURN NULL;
END
$$;

-- Step 1. A repetition adds columns that are new, and keeps what is_id says of the others.
CREATE OR REPLACE FUNCTION idgen_convert.find_columns(VARIADIC schemas name[])
RETURNS SETOF idgen_convert.id_columns LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    spaces oid[] := ARRAY(SELECT oid FROM pg_namespace WHERE nspname = ANY (schemas));
    others text;
BEGIN
    PERFORM idgen_convert.refuse_assumed_role();
    IF cardinality(spaces) < cardinality(schemas) THEN
        RAISE 'of these schemas there are only: %', spaces::regnamespace[];
    END IF;
    SELECT string_agg(oid::regclass::text, ', ') INTO others
    FROM pg_class
    WHERE relnamespace = ANY (spaces) AND relkind IN ('r', 'p') AND pg_get_userbyid(relowner) <> current_user;
    IF others IS NOT NULL THEN
        RAISE WARNING 'left out, because they belong to other roles: %', others;
    END IF;
    DELETE FROM idgen_convert.id_columns AS c WHERE NOT EXISTS (
        SELECT FROM pg_attribute WHERE attrelid = c."table" AND attname = c."column" AND NOT attisdropped);
    INSERT INTO idgen_convert.id_columns
    SELECT i."table", i."column", i.found_by, CASE WHEN i.found_by <> 'sequence' THEN true END
    FROM idgen_convert.integer_columns AS i WHERE i.namespace = ANY (spaces) AND i.found_by IS NOT NULL
    ON CONFLICT DO NOTHING;
    INSERT INTO idgen_convert.id_columns
    SELECT h."table", h."column", h.holds, h.holds IS NOT NULL
    FROM (SELECT i."table", i."column", idgen_convert.holds_keys(i."table", i."column") AS holds
          FROM (SELECT * FROM idgen_convert.integer_columns AS n
                WHERE n.namespace = ANY (spaces) AND n.found_by IS NULL AND NOT EXISTS (
                    SELECT FROM idgen_convert.id_columns AS c WHERE c."table" = n."table" AND c."column" = n."column")
                OFFSET 0) AS i) AS h;    -- or holds_keys might be asked about any column
    RETURN QUERY SELECT c.* FROM idgen_convert.id_columns AS c JOIN pg_class ON oid = c."table"
                 WHERE relnamespace = ANY (spaces) ORDER BY c."table"::text, c."column";
END
$$;

-- The columns of text and JSON that contain a number of up to 10 digits which is a key.
CREATE OR REPLACE FUNCTION idgen_convert.texts_with_keys()
RETURNS TABLE ("table" regclass, "column" name, type text, texts bigint, example text) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET row_security = off AS $$
DECLARE
    is_key text;
    col record;
BEGIN
    PERFORM idgen_convert.refuse_assumed_role();
    SELECT string_agg(format('EXISTS (SELECT FROM (%s) AS k WHERE k.%I = given.n)',
                             idgen_convert.values_of(i."table", i."column"), i."column"), ' OR ') INTO is_key
    FROM idgen_convert.integer_columns AS i JOIN idgen_convert.namespaces USING (namespace) WHERE i.found_by = 'key';
    IF is_key IS NULL THEN RAISE 'no key is known: call find_columns first'; END IF;
    FOR col IN
        SELECT attrelid::regclass AS "table", attname, format_type(atttypid, atttypmod) AS type
        FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
                 JOIN idgen_convert.namespaces ON namespace = relnamespace
        WHERE pg_get_userbyid(relowner) = current_user AND relkind IN ('r', 'p') AND attnum > 0 AND attinhcount = 0
              AND format_type(atttypid, NULL) IN ('text', 'character varying', 'character', 'json', 'jsonb', 'xml',
                                                  'text[]', 'character varying[]')
        ORDER BY attrelid::regclass::text, attnum
    LOOP
        RETURN QUERY EXECUTE format(
            'SELECT %L::regclass, %L::name, %L, count(*), min(left(t.%I::text, 60)) FROM (%s) AS t
             WHERE EXISTS (SELECT FROM regexp_split_to_table(t.%I::text, ''[^0-9]+'') AS digits,
                                       CAST(CASE WHEN length(digits) BETWEEN 1 AND 10 THEN digits END AS bigint)
                                           AS given (n)
                           WHERE %s)
             HAVING count(*) > 0',
            col."table", col.attname, col.type, col.attname, idgen_convert.values_of(col."table", col.attname),
            col.attname, is_key);
    END LOOP;
END
$$;

-- What depends on a column, and whether ALTER ... TYPE refuses the column because of it.
CREATE OR REPLACE VIEW idgen_convert.built_on AS
SELECT DISTINCT attrelid::regclass AS "table", attname AS "column",
       pg_describe_object(classid, objid, objsubid) AS object,
       classid IN ('pg_rewrite'::regclass, 'pg_trigger'::regclass, 'pg_policy'::regclass, 'pg_proc'::regclass,
                   'pg_publication_rel'::regclass)
       OR classid = 'pg_attrdef'::regclass AND deptype = 'n'
       OR objid IN (SELECT oid FROM pg_class WHERE relkind = 'p') AS in_the_way
FROM pg_depend JOIN pg_attribute ON attrelid = refobjid AND attnum IN (refobjsubid, objsubid)
WHERE refclassid = 'pg_class'::regclass AND objid >= 16384;

-- Tables of other roles whose functions a change of type would run, because it reads partitions and children again, and
-- also the tables that foreign keys of the column connect.
CREATE OR REPLACE VIEW idgen_convert.tied_to_others AS
SELECT DISTINCT "table", "column", pg_describe_object('pg_class'::regclass, other, 0) || ', of another role' AS object
FROM idgen_convert.id_columns CROSS JOIN idgen_convert.tree("table") AS part
         JOIN pg_attribute ON attrelid = part AND attname = "column",
     LATERAL (SELECT part AS tied
              UNION SELECT unnest(ARRAY[conrelid, confrelid]) FROM pg_constraint
              WHERE contype = 'f' AND (conrelid = part AND attnum = ANY (conkey)
                                       OR confrelid = part AND attnum = ANY (confkey))) AS ties,
     idgen_convert.tree(tied) AS other JOIN pg_class ON pg_class.oid = other
WHERE NOT pg_has_role(relowner, current_user, 'MEMBER');

-- Step 2.
CREATE OR REPLACE VIEW idgen_convert.in_the_way AS
SELECT "table", "column", object
FROM (SELECT "table", "column", object FROM idgen_convert.built_on WHERE in_the_way
      UNION ALL TABLE idgen_convert.tied_to_others) AS found JOIN idgen_convert.id_columns USING ("table", "column")
     JOIN idgen_convert.integer_columns USING ("table", "column")
WHERE is_id AND becomes IS NOT NULL;

-- Statements on a table as one query, and so as one transaction. Its lock_timeout, times the number of tables that it
-- may lock, is below the server's deadlock_timeout. Expressions of the table that are parsed again find no operator
-- that another role has made.
CREATE OR REPLACE FUNCTION idgen_convert.patiently("table" regclass, statements text) RETURNS text LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    WITH tree AS (
        SELECT idgen_convert.tree($1) AS relid
    ), locked AS (
        SELECT relid FROM tree
        UNION SELECT confrelid FROM pg_constraint JOIN tree ON conrelid = relid WHERE contype = 'f'
        UNION SELECT conrelid FROM pg_constraint JOIN tree ON confrelid = relid WHERE contype = 'f'
    )
    SELECT format('SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL lock_timeout = %s; %s',
                  greatest(1, least(200, reset_val::integer * 9 / 10 / (SELECT count(*) FROM locked))), $2)
    FROM pg_settings WHERE name = 'deadlock_timeout'
$$;

-- Step 3, without the tables that are tied to those of others. A change of type deletes statistics.
CREATE OR REPLACE FUNCTION idgen_convert.change_types() RETURNS SETOF text LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT idgen_convert.patiently("table", format('ALTER TABLE %s %s; ANALYZE %1$s', "table",
                                                   string_agg(format('ALTER %I TYPE %s', "column", becomes), ', ')))
    FROM idgen_convert.id_columns JOIN idgen_convert.integer_columns USING ("table", "column")
    WHERE is_id AND becomes IS NOT NULL AND NOT is_inherited
          AND "table" NOT IN (SELECT "table" FROM idgen_convert.tied_to_others)
    GROUP BY "table" ORDER BY "table"::text
$$;

-- The schema of idgen.
CREATE OR REPLACE FUNCTION idgen_convert.schema_of_idgen() RETURNS name LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    schema name;
BEGIN
    SELECT nspname INTO schema
    FROM pg_extension JOIN pg_namespace ON pg_namespace.oid = extnamespace WHERE extname = 'idgen';
    IF schema IS NULL THEN RAISE 'this database is without idgen: CREATE EXTENSION idgen'; END IF;
    RETURN schema;
END
$$;

-- A default that mints, by a function of idgen in whichever schema this is, after a trial.
CREATE OR REPLACE FUNCTION idgen_convert.minting(shard integer, minter name) RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    call text := format('%I.%I(%s)', idgen_convert.schema_of_idgen(), minter, shard);
BEGIN
    IF shard IS NULL AND coalesce(current_setting('idgen.shard', true), '-1') = '-1' THEN
        RAISE WARNING 'idgen.shard is not set in this session: set it for all roles that insert';
    ELSE
        EXECUTE 'SELECT ' || call;
    END IF;
    RETURN call;
END
$$;

-- Parts of steps 5 and 6. Fails if a column is too narrow for the keys that it holds, or if it has numbers that are not
-- below the ids which it gets by its default, or by that of step 5 from the given function.
CREATE OR REPLACE FUNCTION idgen_convert.check_columns(new_minter name) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET row_security = off AS $$
DECLARE
    list text;
    col record;
    part record;
    last bigint;
    next bigint;
    too_great text[] := '{}';
    unread text[] := '{}';
BEGIN
    PERFORM idgen_convert.refuse_assumed_role();
    IF NOT EXISTS (SELECT FROM idgen_convert.namespaces) THEN
        RAISE 'id_columns is empty, or its tables are gone'
            USING HINT = 'A crash of the server empties an unlogged table: begin with step 1 again. If the tables '
                         'belong to another role, connect as that role.';
    END IF;
    SELECT string_agg(format('%s.%I', "table", "column"), ', ') INTO list
    FROM idgen_convert.integer_columns AS i JOIN idgen_convert.namespaces USING (namespace)
         LEFT JOIN idgen_convert.id_columns AS c USING ("table", "column")
    WHERE i.found_by = 'sequence' AND is_id IS NULL;
    IF list IS NOT NULL THEN
        RAISE 'it is undecided whether these columns, which take numbers from sequences, hold ids: %', list
            USING HINT = 'Call find_columns. Then set is_id in id_columns: to true if idgen should mint for them, '
                         'or to false if they should stay as they are.';
    END IF;
    SELECT string_agg(format('%s.%I', "table", "column"), ', ' ORDER BY "table"::text, "column") INTO list
    FROM (SELECT "table", "column"
          FROM (SELECT i.* FROM idgen_convert.integer_columns AS i JOIN idgen_convert.namespaces USING (namespace)
                OFFSET 0) AS i    -- or holds_keys might be asked about any column
               LEFT JOIN idgen_convert.id_columns AS c USING ("table", "column")
          WHERE NOT fits AND coalesce(is_id, i.found_by IS NOT NULL
                                             OR idgen_convert.holds_keys("table", "column") LIKE 'keys of %')
          UNION    -- foreign keys, also of domains, other roles or schemas that were not named
          SELECT conrelid, own.attname
          FROM pg_constraint, unnest(conkey, confkey) AS k (own_number, its_number),
               pg_attribute AS own JOIN pg_type ON pg_type.oid = own.atttypid,
               pg_attribute AS its JOIN idgen_convert.id_columns ON "table" = its.attrelid AND "column" = its.attname
          WHERE contype = 'f' AND own.attrelid = conrelid AND own.attnum = own_number AND its.attrelid = confrelid
                AND its.attnum = its_number AND is_id AND typlen IN (2, 4)) AS narrow;
    IF list IS NOT NULL THEN
        RAISE 'these columns hold keys, and new ids do not fit into them: %', list
            USING HINT = 'Change their types to bigint. For one that is no foreign key and holds no ids, set is_id to '
                         'false in id_columns.';
    END IF;
    FOR col IN
        SELECT "table", "column", minter, numbers <> 'sequence' AS mints
        FROM idgen_convert.integer_columns JOIN idgen_convert.namespaces USING (namespace)
                 LEFT JOIN idgen_convert.id_columns USING ("table", "column"),
             CAST(CASE numbers WHEN 'sequence' THEN new_minter ELSE numbers END AS text) AS minter
        WHERE is_id IS NOT FALSE AND minter IS NOT NULL
    LOOP
        FOR part IN
            SELECT oid::regclass AS name, relkind = 'r' AND pg_get_userbyid(relowner) = current_user AS is_readable
            FROM idgen_convert.tree(col."table") AS relid JOIN pg_class ON oid = relid WHERE relkind <> 'p'
        LOOP
            IF NOT part.is_readable THEN
                unread := unread || part.name::text;
                CONTINUE;
            END IF;
            EXECUTE format('SELECT max(%I) FROM ONLY %s', col."column", part.name) INTO last;
            -- Only now, because clients mint during the reading, and ahead of the clock.
            EXECUTE format(
                'SELECT %I.snowflake_min_id(clock_timestamp() + CASE WHEN $1 THEN
                            interval ''1 s'' + CAST(current_setting(''idgen.max_ahead'') AS interval) ELSE ''0'' END)',
                idgen_convert.schema_of_idgen()) INTO next USING col.mints;
            IF col.minter = 'snowflake_next_id_js' THEN
                next := (next >> 23) / 1000 << 20;
            END IF;
            IF last >= next THEN
                too_great := too_great || format('%s.%I (%s, and new ids begin at about %s)', part.name, col."column",
                                                 last, next);
            END IF;
        END LOOP;
    END LOOP;
    IF unread <> '{}' THEN
        RAISE WARNING 'not read, because they are foreign tables or belong to other roles: %',
            array_to_string(unread, ', ');
    END IF;
    IF too_great <> '{}' THEN
        RAISE 'these columns have numbers that new ids could repeat: %', array_to_string(too_great, ', ')
            USING HINT = 'See "Keys that are snowflakes already" in docs/coming-from.md, or set is_id to false in '
                         'id_columns if the column should stay as it is.';
    END IF;
END
$$;

-- Step 6.
CREATE OR REPLACE FUNCTION idgen_convert.check_id_columns() RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    list text;
BEGIN
    PERFORM idgen_convert.check_columns(NULL);
    SELECT string_agg(format('%s.%I', "table", "column"), ', ') INTO list
    FROM idgen_convert.integer_columns JOIN idgen_convert.namespaces USING (namespace)
         LEFT JOIN idgen_convert.id_columns USING ("table", "column")
    WHERE numbers = 'sequence' AND is_id IS NOT FALSE;
    IF list IS NOT NULL THEN
        RAISE 'these columns still take numbers from sequences: %', list
            USING HINT = 'Repeat all steps, or set is_id to false in id_columns.';
    END IF;
    RETURN true;
END
$$;

-- The sequences that columns own, and what needs them: objects that depend on them, and defaults with their names in a
-- text, which PostgreSQL does not notice. Functions, rules and programs cannot be searched. pgEdge's
-- convert_sequence_to_snowflake takes away the mark of an identity; the sequence is still a part of the column, and
-- pg_dump writes what PostgreSQL refuses. A superuser can end this:
--
--     UPDATE pg_depend SET deptype = 'a'
--     WHERE classid = 'pg_class'::regclass AND objid = 'orders_id_seq'::regclass AND deptype = 'i';
CREATE OR REPLACE VIEW idgen_convert.owned_sequences AS
WITH default_values (classid, objid, owner, value) AS (
    SELECT pg_attrdef.tableoid, pg_attrdef.oid, relowner, adbin
    FROM pg_attrdef JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum JOIN pg_class ON pg_class.oid = adrelid
    WHERE attgenerated = ''
    UNION ALL SELECT tableoid, oid, typowner, typdefaultbin FROM pg_type WHERE typdefaultbin IS NOT NULL
), texts AS MATERIALIZED (    -- of other roles, without those that would be gigabytes
    SELECT classid, objid, translate(lower(text), '"''' || chr(92), '') AS text
    FROM default_values, CAST(CASE WHEN octet_length(value::text) <= 10000 OR pg_get_userbyid(owner) = current_user
                                   THEN pg_get_expr(value, 0) END AS text) AS expression,
         regexp_replace(expression, '''([^'']|'''')*''::regclass', '', 'g') AS text
    WHERE text LIKE '%''%'
)
SELECT attrelid::regclass AS "table", attname AS "column", numbers, objid::regclass AS sequence,
       deptype = 'i' AS is_part,
       (SELECT string_agg(pg_describe_object(users.classid, users.objid, users.objsubid), ', ')
        FROM (SELECT d.classid, d.objid, d.objsubid FROM pg_depend AS d
              WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = pg_class.oid AND d.deptype = 'n'
              UNION SELECT t.classid, t.objid, 0
              FROM texts AS t, pg_class AS own, translate(lower(pg_class.relname), '"''' || chr(92), '') AS sequence,
                   translate(lower(own.relname), '"''' || chr(92), '') AS "table"
              WHERE own.oid = attrelid
                AND (strpos(t.text, sequence) > 0
                     OR strpos(t.text, 'pg_get_serial_sequence') > 0 AND strpos(t.text, "table") > 0)) AS users) AS needed_by
FROM idgen_convert.columns JOIN pg_depend ON refobjid = attrelid AND refobjsubid = attnum
     JOIN pg_class ON pg_class.oid = objid
WHERE classid = 'pg_class'::regclass AND refclassid = 'pg_class'::regclass AND deptype IN ('a', 'i') AND relkind = 'S';

-- Step 5. Without a shard, the default mints for idgen.shard. The sequence of an identity ends with it; others stay.
CREATE OR REPLACE FUNCTION idgen_convert.set_defaults(shard integer DEFAULT NULL,
                                                      minter name DEFAULT 'snowflake_next_id')
RETURNS SETOF text LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    col record;
    needed text[] := '{}';
    called text[] := '{}';
    new_default text;
BEGIN
    PERFORM idgen_convert.check_columns(minter);
    new_default := idgen_convert.minting(shard, minter);
    FOR col IN
        WITH owned AS MATERIALIZED (TABLE idgen_convert.owned_sequences)
        SELECT i."table", i."column", i.numbers, o.sequence, o.needed_by, attidentity <> '' AS is_identity
        FROM idgen_convert.id_columns AS c JOIN idgen_convert.integer_columns AS i USING ("table", "column")
             JOIN pg_attribute ON attrelid = c."table" AND attname = c."column"
             LEFT JOIN owned AS o
                 ON o.sequence = pg_get_serial_sequence(c."table"::text, c."column"::text)::regclass
        WHERE is_id AND (i.numbers = 'sequence' OR i.numbers IS NULL AND NOT atthasdef AND o.sequence IS NOT NULL)
        ORDER BY c."table"::text
    LOOP
        IF col.numbers IS NULL THEN
            called := called || format('%s.%I (%s)', col."table", col."column", col.sequence);
        ELSIF col.is_identity AND col.needed_by IS NOT NULL THEN
            needed := needed || format('%s.%I (needed by %s)', col."table", col."column", col.needed_by);
        ELSE
            RETURN NEXT idgen_convert.patiently(col."table", format(
                'ALTER TABLE %s %s ALTER %I SET DEFAULT %s', col."table",
                CASE WHEN col.is_identity THEN format('ALTER %I DROP IDENTITY,', col."column") END, col."column",
                new_default));
        END IF;
    END LOOP;
    IF needed <> '{}' THEN
        RAISE 'the sequences of these identities would end with them, but others need them: %',
            array_to_string(needed, ', ')
            USING HINT = 'Let these do without the sequence first.';
    END IF;
    IF called <> '{}' THEN
        RAISE WARNING 'left as they are, because they have no default, and programs may call their sequences: %',
            array_to_string(called, ', ');
    END IF;
END
$$;

-- The end of step 6: drops the sequences that columns own which mint now.
CREATE OR REPLACE FUNCTION idgen_convert.drop_sequences() RETURNS SETOF text LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    owned record;
BEGIN
    FOR owned IN SELECT o.* FROM idgen_convert.owned_sequences AS o
                              JOIN idgen_convert.id_columns USING ("table", "column")
                 WHERE is_id AND numbers <> 'sequence' AND NOT is_part LOOP
        IF owned.needed_by IS NULL THEN
            RETURN NEXT idgen_convert.patiently(owned."table", format('DROP SEQUENCE %s', owned.sequence));
        ELSE
            RAISE WARNING '% is not dropped (needed by %)', owned.sequence, owned.needed_by;
        END IF;
    END LOOP;
END
$$;

-- In batches ------------------------------------------------------------------------------------

-- The columns that replace others: what fills them in old rows, and the part of a trigger that fills them in new ones.
-- A new key has no trigger, but a default that mints for this shard since that time.
CREATE TABLE IF NOT EXISTS idgen_convert.new_columns (
    "table"    regclass,
    "column"   name,
    new_column name NOT NULL,
    source     text NOT NULL,
    triggered  text,
    looks_up   boolean NOT NULL,
    shard      integer,
    since      timestamptz,
    PRIMARY KEY ("table", "column"));

-- Adds a column to its table, with its default or trigger.
CREATE OR REPLACE FUNCTION idgen_convert.add_column(added idgen_convert.new_columns) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' AS $$
DECLARE
    keeps CONSTANT name := 'keep_' || added."table"::oid;
    body text;
    definer text;
BEGIN
    PERFORM idgen_convert.refuse_others(added."table");
    DELETE FROM idgen_convert.new_columns AS n WHERE NOT EXISTS (    -- given up
        SELECT FROM pg_attribute WHERE attrelid = n."table" AND attname = n.new_column);
    -- A column comes with its row, for its own table or one that this inherits from. Others are the application's.
    IF EXISTS (SELECT FROM pg_attribute WHERE attrelid = added."table" AND attname = added.new_column)
       AND NOT EXISTS (
           WITH RECURSIVE above AS (
               SELECT added."table"::oid AS relid UNION SELECT inhparent FROM pg_inherits JOIN above ON inhrelid = relid)
           SELECT FROM idgen_convert.new_columns AS n JOIN above ON n."table" = relid
           WHERE n."column" = added."column") THEN
        RAISE '% has a column % already', added."table", added.new_column;
    END IF;
    INSERT INTO idgen_convert.new_columns AS n VALUES (added.*)
    ON CONFLICT ("table", "column") DO UPDATE
    SET source = excluded.source, triggered = excluded.triggered, looks_up = excluded.looks_up, shard = excluded.shard,
        since = least(n.since, excluded.since);
    EXECUTE format('ALTER TABLE %s ADD COLUMN IF NOT EXISTS %I bigint', added."table", added.new_column);
    IF added.shard IS NOT NULL THEN    -- as a part of ADD COLUMN, the default would fill old rows
        EXECUTE format('ALTER TABLE %s ALTER %I SET DEFAULT %s', added."table", added.new_column,
                       idgen_convert.minting(added.shard, 'snowflake_next_id'));
        RETURN;
    END IF;
    -- Clients may not be allowed to read the table in which it looks a key up.
    SELECT string_agg(n.triggered, E'\n' ORDER BY n."column"),
           CASE WHEN bool_or(n.looks_up) THEN 'SECURITY DEFINER SET search_path = pg_catalog, pg_temp' ELSE '' END
    INTO body, definer
    FROM idgen_convert.new_columns AS n WHERE n."table" = added."table" AND n.triggered IS NOT NULL;
    EXECUTE format('CREATE OR REPLACE FUNCTION idgen_convert.%I() RETURNS trigger LANGUAGE plpgsql %s AS %L', keeps,
                   definer, format(E'BEGIN\n%s\nRETURN NEW;\nEND', body));
    EXECUTE format('REVOKE ALL ON FUNCTION idgen_convert.%I() FROM PUBLIC', keeps);
    IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = added."table" AND tgname = 'zz_idgen_convert') THEN
        EXECUTE format('CREATE TRIGGER zz_idgen_convert BEFORE INSERT OR UPDATE ON %s
                            FOR EACH ROW EXECUTE FUNCTION idgen_convert.%I()', added."table", keeps);
    END IF;
END
$$;

-- Adds a column new_COLUMN, which has the value of COLUMN.
CREATE OR REPLACE FUNCTION idgen_convert.copy_column("table" regclass, "column" name) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid
               WHERE attrelid = "table" AND attname = "column" AND (attgenerated <> '' OR typtype = 'd')) THEN
        RAISE 'column % of % is generated, or of a domain, which a copy would not keep', "column", "table";
    END IF;
    PERFORM idgen_convert.add_column(ROW(
        "table", "column", 'new_' || "column", format('t.%I', "column"),
        format('NEW.%I := NEW.%I;', 'new_' || "column", "column"), false, NULL, NULL)::idgen_convert.new_columns);
END
$$;

-- Adds a column new_KEY, whose default mints. Old rows get the ids of make_ids.
CREATE OR REPLACE FUNCTION idgen_convert.add_key("table" regclass, key name, shard integer) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF shard IS NULL THEN RAISE 'name the shard of the new ids'; END IF;
    PERFORM idgen_convert.add_column(ROW(
        "table", key, 'new_' || key,
        format('(SELECT i.new_id FROM idgen_convert.%I AS i WHERE i.key OPERATOR(pg_catalog.=) t.%I)', 'ids_' || "table"::oid, key),
        NULL, false, shard, now())::idgen_convert.new_columns);
END
$$;

-- Makes a table of ids for the rows that have none, in the order of their times, which are an expression. A row without
-- a time, or with a later one, counts as created by that interval before add_key. A shard has 1024 positions in each
-- millisecond; rows that do not fit take the next.
CREATE OR REPLACE FUNCTION idgen_convert.make_ids("table" regclass, "time" text, before interval DEFAULT '1 s',
                                                  OUT rows bigint, OUT most_off interval, OUT none_is_repeated boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET row_security = off AS $$
DECLARE
    key record;
    idgen name := idgen_convert.schema_of_idgen();
    kind regtype;
    taken boolean;
BEGIN
    PERFORM idgen_convert.refuse_assumed_role();
    SELECT n.*, 'ids_' || n."table"::oid AS ids INTO key
    FROM idgen_convert.new_columns AS n WHERE n."table" = make_ids."table" AND n.shard IS NOT NULL;
    IF NOT FOUND THEN RAISE '% has no new key: call add_key first', "table"; END IF;
    EXECUTE format('SELECT pg_typeof(%s) FROM (VALUES (1)) AS one LEFT JOIN %s AS t ON false', "time", "table")
    INTO kind;
    IF kind <> 'timestamptz'::regtype THEN
        RAISE '% is a %, and not a timestamp with time zone', "time", kind
            USING HINT = 'Name the zone, as in: created_on AT TIME ZONE ''UTC''';
    END IF;
    IF to_regclass(format('idgen_convert.%I', key.ids)) IS NOT NULL THEN
        EXECUTE format('SELECT EXISTS (SELECT FROM %s AS t JOIN idgen_convert.%I AS i ON i.key = t.%I
                                       WHERE i.new_id = t.%I)',
                       "table", key.ids, key."column", key.new_column) INTO taken;
        IF taken THEN RAISE 'rows of % have their ids already', "table"; END IF;
        EXECUTE format('DROP TABLE idgen_convert.%I', key.ids);
    END IF;
    EXECUTE format($sql$
        CREATE TABLE idgen_convert.%2$I AS
        SELECT key, time, %1$I.snowflake_make_id(%1$I.snowflake_time(position >> 10 << 23), %3$s,
                                                 (position & 1023)::integer) AS new_id
        FROM (SELECT key, time,
                     n + max((%1$I.snowflake_min_id(time) >> 23 << 10) - n) OVER (ORDER BY n) AS position
              FROM (SELECT t.%4$I AS key, greatest(least(%5$s, %6$L), %1$I.snowflake_time(0)) AS time,
                           row_number() OVER (ORDER BY %5$s, t.%4$I) AS n
                    FROM %7$s AS t WHERE t.%8$I IS NULL) AS numbered) AS positions$sql$,
        idgen, key.ids, key.shard, key."column", "time", key.since - before, "table", key.new_column);
    EXECUTE format('ALTER TABLE idgen_convert.%I ADD PRIMARY KEY (key)', key.ids);
    EXECUTE format('ANALYZE idgen_convert.%I', key.ids);
    EXECUTE format('SELECT count(*), max(%1$I.snowflake_time(new_id) - time),
                           coalesce(max(new_id) < %1$I.snowflake_min_id(%3$L::timestamptz), true)
                    FROM idgen_convert.%2$I', idgen, key.ids, key.since) INTO rows, most_off, none_is_repeated;
END
$$;

-- Adds a column new_COLUMN, which refers to the new key of a table as COLUMN does to the old one.
CREATE OR REPLACE FUNCTION idgen_convert.follow_key("table" regclass, "column" name, of regclass) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    key record;
BEGIN
    SELECT n.* INTO key FROM idgen_convert.new_columns AS n WHERE n."table" = of AND n.shard IS NOT NULL;
    IF NOT FOUND THEN RAISE '% has no new key: call add_key first', of; END IF;
    -- Its creation has waited for every transaction that could still see a row without the new key.
    IF NOT EXISTS (SELECT FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attname = key.new_column
                   WHERE indrelid = of AND indisunique AND indisvalid AND indpred IS NULL
                         AND indkey::text = attnum::text) THEN
        RAISE 'create a unique index on the column % of % first', key.new_column, of;
    END IF;
    PERFORM idgen_convert.add_column(ROW(
        "table", "column", 'new_' || "column",
        format('(SELECT k.%I FROM %s AS k WHERE k.%I OPERATOR(pg_catalog.=) t.%I)', key.new_column, of, key."column", "column"),
        format($body$
            IF tg_op = 'UPDATE' AND OLD.%1$I IS NOT NULL AND NEW.%1$I IS NULL THEN
                NEW.%2$I := NULL;    -- by ON DELETE SET NULL of the new column, if that comes first
            END IF;
            NEW.%1$I := NULL;
            IF NEW.%2$I IS NOT NULL THEN
                SELECT k.%3$I INTO NEW.%1$I FROM %4$s AS k WHERE k.%5$I = NEW.%2$I;
            END IF;$body$ || CASE WHEN "table" = of THEN $body$
            IF NEW.%2$I = NEW.%5$I THEN    -- a row that refers to itself, and is not there yet
                NEW.%1$I := NEW.%3$I;
            END IF;$body$ ELSE '' END,
            'new_' || "column", "column", key.new_column, of, key."column"),
        true, NULL, NULL)::idgen_convert.new_columns);
END
$$;

-- Fills the new columns of old rows, at most 1000 in a transaction. It skips rows that a client has locked and comes
-- back to them, so it waits for no client. A row that clients lock without a pause has to wait until they make one.
CREATE OR REPLACE PROCEDURE idgen_convert.fill(relation regclass) LANGUAGE plpgsql AS $$
DECLARE
    callers_path pg_catalog.text;
    assignments pg_catalog.text;
    unfilled pg_catalog.text;
    parts pg_catalog.regclass[];
    part pg_catalog.regclass;
    hidden pg_catalog.text;
    blocks bigint;
    ahead bigint;
    block bigint;
    skipped bigint[];
    place pg_catalog.text;
    picked pg_catalog.tid[];
    filling pg_catalog.text;
    changed bigint;
    unchanged bigint;
    some_left boolean;
BEGIN
    callers_path := pg_catalog.current_setting('search_path');
    SET LOCAL search_path = pg_catalog, pg_temp;    -- up to COMMIT: a procedure with the setting may not commit
    SELECT string_agg(format('%I = coalesce(t.%1$I, %s)', new_column, source), ', '),
           string_agg(format('t.%I IS NOT NULL AND t.%I IS NULL', "column", new_column), ' OR ')
    INTO assignments, unfilled FROM idgen_convert.new_columns WHERE "table" = relation;
    IF unfilled IS NULL THEN RAISE '% has no new columns', relation; END IF;
    PERFORM idgen_convert.refuse_others(relation);
    LOOP
        SELECT coalesce(array_agg(relid) FILTER (WHERE isleaf), ARRAY[relation]) INTO parts
        FROM pg_partition_tree(relation);
        SELECT string_agg(oid::regclass::text, ', ') INTO hidden
        FROM pg_class WHERE oid = ANY (parts || relation) AND (relkind = 'f' OR row_security_active(oid));
        IF hidden IS NOT NULL THEN
            RAISE 'row security or another server may hide rows of %', hidden
                USING HINT = 'Fill as a role with BYPASSRLS, and detach foreign partitions.';
        END IF;
        FOREACH part IN ARRAY parts LOOP
            blocks := pg_relation_size(part) / current_setting('block_size')::bigint;
            ahead := 0;
            skipped := '{}';
            WHILE ahead < blocks OR cardinality(skipped) > 0 LOOP
                IF ahead < blocks THEN
                    block := ahead;
                    ahead := ahead + 256;
                ELSE
                    PERFORM pg_sleep(0.1);
                    block := skipped[1];
                    skipped := skipped[2:];
                END IF;
                place := format('t.ctid >= ''(%s,0)'' AND t.ctid < ''(%s,0)''', block, block + 256);
                LOOP
                    -- Of a row that a client has just changed, the lock picks the new version, which the next statement
                    -- sees, but not this one.
                    EXECUTE format(
                        'SELECT array_agg(ctid)
                         FROM (SELECT ctid FROM ONLY %s AS t WHERE %s AND (%s)
                               LIMIT 1000 FOR NO KEY UPDATE SKIP LOCKED) AS free',
                        part, place, unfilled) INTO picked;
                    EXIT WHEN picked IS NULL;
                    filling := format(
                        'WITH batch AS (
                             UPDATE ONLY %s AS t SET %s WHERE ctid OPERATOR(pg_catalog.=) ANY ($1)
                             RETURNING (%s) AS still)
                         SELECT pg_catalog.count(*), pg_catalog.count(*) FILTER (WHERE still) FROM batch',
                        part, assignments, unfilled);
                    PERFORM set_config('search_path', callers_path, true);    -- which triggers may need
                    EXECUTE filling INTO changed, unchanged USING picked;
                    SET CONSTRAINTS ALL IMMEDIATE;
                    SET LOCAL search_path = pg_catalog, pg_temp;
                    IF unchanged > 0 THEN
                        RAISE '% rows of % are not filled by: %', unchanged, part, assignments;
                    END IF;
                    IF changed < cardinality(picked) THEN
                        RAISE 'a trigger or rule keeps % rows of % from being filled',
                            cardinality(picked) - changed, part;
                    END IF;
                    COMMIT;
                    SET LOCAL search_path = pg_catalog, pg_temp;
                END LOOP;
                EXECUTE format('SELECT EXISTS (SELECT FROM ONLY %s AS t WHERE %s AND (%s))', part, place, unfilled)
                INTO some_left;
                IF some_left THEN skipped := skipped || block; END IF;
                COMMIT;
                SET LOCAL search_path = pg_catalog, pg_temp;
            END LOOP;
        END LOOP;
        -- An UPDATE by a client may have moved a row that was not filled to a block or a partition that was read before.
        EXECUTE format('SELECT EXISTS (SELECT FROM %s %s AS t WHERE %s)',
                       CASE WHEN parts = ARRAY[relation] THEN 'ONLY' END, relation, unfilled) INTO some_left;
        COMMIT;
        SET LOCAL search_path = pg_catalog, pg_temp;
        EXIT WHEN NOT some_left;
    END LOOP;
END
$$;

-- The columns of a constraint after the switch.
CREATE OR REPLACE FUNCTION idgen_convert.new_names(relation regclass, numbers smallint[]) RETURNS name[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT array_agg(coalesce(n.new_column, attname) ORDER BY place)
    FROM unnest($2) WITH ORDINALITY AS k (number, place) JOIN pg_attribute ON attrelid = $1 AND attnum = number
         LEFT JOIN idgen_convert.new_columns AS n ON n."table" = $1 AND n."column" = attname
$$;

CREATE OR REPLACE FUNCTION idgen_convert.listed(names name[]) RETURNS text LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT string_agg(quote_ident(n), ', ' ORDER BY place) FROM unnest($1) WITH ORDINALITY AS names (n, place)
$$;

-- The constraints of a table in which there is a column that is replaced.
CREATE OR REPLACE FUNCTION idgen_convert.replaced(relation regclass, types "char"[]) RETURNS SETOF pg_constraint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM pg_constraint
    WHERE conrelid = $1 AND contype = ANY ($2) AND EXISTS (
        SELECT FROM idgen_convert.new_columns JOIN pg_attribute ON attrelid = "table" AND attname = "column"
        WHERE "table" = $1 AND attnum = ANY (conkey))
$$;

-- Creates unique indexes for the primary keys and unique constraints of the new columns, called new_NAME, and for an
-- old key that ids replace. What an interruption has left is dropped.
CREATE OR REPLACE FUNCTION idgen_convert.indexes(VARIADIC relations regclass[]) RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH wanted (relation, name, columns, more) AS (
        SELECT r, ('new_' || conname)::name, idgen_convert.new_names(r, conkey),
               concat(' INCLUDE (' || idgen_convert.listed(idgen_convert.new_names(
                                          r, (indkey::smallint[])[indnkeyatts:])) || ')',
                      CASE WHEN indnullsnotdistinct THEN ' NULLS NOT DISTINCT' END)
        FROM unnest($1) AS r, idgen_convert.replaced(r, '{p,u}') JOIN pg_index ON indexrelid = conindid
        UNION ALL
        SELECT "table", (relname || '_old_' || "column")::name, ARRAY["column"], ''
        FROM idgen_convert.new_columns JOIN pg_class ON oid = "table" WHERE "table" = ANY ($1) AND shard IS NOT NULL
    ), found AS (
        SELECT wanted.*, indisvalid, indexrelid::regclass AS index
        FROM wanted LEFT JOIN (pg_index JOIN pg_class ON oid = indexrelid) ON indrelid = relation AND relname = name
    )
    SELECT statement
    FROM found, LATERAL (VALUES (1, 'DROP INDEX CONCURRENTLY ' || index),
                                (2, format('CREATE UNIQUE INDEX CONCURRENTLY %I ON %s (%s)%s', name, relation,
                                           idgen_convert.listed(columns), more))) AS s (place, statement)
    WHERE indisvalid IS NOT TRUE AND statement IS NOT NULL
    ORDER BY array_position($1, relation), name, place
$$;

-- Adds constraints, not valid yet: that the new columns are filled, because of which SET NOT NULL need not read the
-- table, and new_NAME for each foreign key NAME.
CREATE OR REPLACE FUNCTION idgen_convert.add_constraints(relation regclass) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' AS $$
DECLARE
    col record;
    con record;
    other regclass;
BEGIN
    -- Clients, too, begin with the table to which others refer.
    FOR other IN SELECT DISTINCT confrelid FROM idgen_convert.replaced(relation, '{f}') WHERE confrelid <> relation LOOP
        PERFORM idgen_convert.refuse_others(other);    -- the validation reads it
        EXECUTE format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', other);
    END LOOP;
    FOR col IN
        SELECT n.*, attnotnull, n.triggered IS NOT NULL AND NOT n.looks_up AS same
        FROM idgen_convert.new_columns AS n JOIN pg_attribute ON attrelid = n."table" AND attname = n."column"
        WHERE n."table" = relation AND NOT EXISTS (
            SELECT FROM pg_constraint WHERE conrelid = relation AND conname = (n.new_column || '_filled')::name)
    LOOP
        EXECUTE format('ALTER TABLE %s ADD CONSTRAINT %I CHECK (', relation, (col.new_column || '_filled')::name) ||
            format(CASE WHEN col.attnotnull AND col.same THEN '%1$I IS NOT NULL AND %1$I = %2$I'
                        WHEN col.attnotnull THEN '%1$I IS NOT NULL'
                        WHEN col.same THEN '%1$I IS NOT DISTINCT FROM %2$I'
                        ELSE '(%1$I IS NULL) = (%2$I IS NULL)' END, col.new_column, col."column") || ') NOT VALID';
    END LOOP;
    FOR con IN
        SELECT c.*, ('new_' || c.conname)::name AS new_name
        FROM idgen_convert.replaced(relation, '{f}') AS c
        WHERE NOT EXISTS (
            SELECT FROM pg_constraint AS o WHERE o.conrelid = relation AND o.conname = ('new_' || c.conname)::name)
    LOOP
        EXECUTE format(
            'ALTER TABLE %s ADD CONSTRAINT %I FOREIGN KEY (%s) REFERENCES %s (%s)%s
                 ON UPDATE %s ON DELETE %s%s%s NOT VALID',
            relation, con.new_name, idgen_convert.listed(idgen_convert.new_names(relation, con.conkey)),
            con.confrelid::regclass, idgen_convert.listed(idgen_convert.new_names(con.confrelid, con.confkey)),
            CASE con.confmatchtype WHEN 'f' THEN ' MATCH FULL' ELSE '' END,
            idgen_convert.action(con.confupdtype), idgen_convert.action(con.confdeltype),
            ' (' || idgen_convert.listed(idgen_convert.new_names(relation, con.confdelsetcols)) || ')',
            CASE WHEN con.condeferred THEN ' DEFERRABLE INITIALLY DEFERRED'
                 WHEN con.condeferrable THEN ' DEFERRABLE' ELSE '' END);
    END LOOP;
END
$$;

-- What a foreign key does, by its letter in pg_constraint.
CREATE OR REPLACE FUNCTION idgen_convert.action(letter "char") RETURNS text LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE $1 WHEN 'a' THEN 'NO ACTION' WHEN 'r' THEN 'RESTRICT' WHEN 'c' THEN 'CASCADE' WHEN 'n' THEN 'SET NULL'
                   WHEN 'd' THEN 'SET DEFAULT' END
$$;

-- Reads the tables for the constraints that are not valid yet.
CREATE OR REPLACE FUNCTION idgen_convert.validations(VARIADIC relations regclass[]) RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('ALTER TABLE %s VALIDATE CONSTRAINT %I', conrelid::regclass, conname)
    FROM pg_constraint WHERE conrelid = ANY ($1) AND NOT convalidated AND conname LIKE 'new\_%'
    ORDER BY array_position($1, conrelid::regclass), oid
$$;

-- Puts the new columns in place of the old ones, in the transaction of its caller. Defaults, primary keys, unique
-- constraints and foreign keys pass over to them. An old key that ids replace stays, as old_KEY.
CREATE OR REPLACE FUNCTION idgen_convert.switch(VARIADIC relations regclass[]) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' SET client_min_messages = warning AS $$
DECLARE
    relation regclass;
    col record;
    con record;
    index name;
    sequence text;
    others text;
    before text[] := '{}';
    after text[] := '{}';
    command text;
BEGIN
    EXECUTE 'LOCK TABLE ' || array_to_string(relations, ', ') || ' IN ACCESS EXCLUSIVE MODE';
    FOREACH relation IN ARRAY relations LOOP
        FOR con IN SELECT c.*, ('new_' || c.conname)::name AS new_name
                   FROM idgen_convert.replaced(relation, '{f,p,u}') AS c ORDER BY contype LOOP
            IF con.contype = 'f' THEN
                IF NOT EXISTS (SELECT FROM pg_constraint
                               WHERE conrelid = relation AND conname = con.new_name AND convalidated) THEN
                    RAISE 'the constraint % of % is not there, or not validated', con.new_name, relation;
                END IF;
                before := format('ALTER TABLE %s DROP CONSTRAINT %I', relation, con.conname) || before;
                after := after ||
                    format('ALTER TABLE %s RENAME CONSTRAINT %I TO %I', relation, con.new_name, con.conname);
            ELSE
                SELECT relname INTO index
                FROM pg_index AS i JOIN pg_class ON pg_class.oid = i.indexrelid
                         JOIN pg_index AS o ON o.indexrelid = con.conindid
                WHERE i.indrelid = relation AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
                      AND i.indexprs IS NULL AND i.indnkeyatts = o.indnkeyatts
                      AND i.indnullsnotdistinct = o.indnullsnotdistinct
                      AND idgen_convert.new_names(relation, o.indkey::smallint[]) = ARRAY(
                          SELECT attname FROM unnest(i.indkey::smallint[]) WITH ORDINALITY AS k (number, place)
                                   JOIN pg_attribute ON attrelid = relation AND attnum = number
                          ORDER BY place);
                IF NOT FOUND THEN
                    RAISE 'there is no unique index on % (%)', relation,
                        idgen_convert.listed(idgen_convert.new_names(relation, con.conkey));
                END IF;
                before := before || format('ALTER TABLE %s DROP CONSTRAINT IF EXISTS %I', relation, con.conname);
                after := format('ALTER TABLE %s ADD CONSTRAINT %I %s USING INDEX %I%s', relation, con.conname,
                                CASE con.contype WHEN 'p' THEN 'PRIMARY KEY' ELSE 'UNIQUE' END, index,
                                CASE WHEN con.condeferred THEN ' DEFERRABLE INITIALLY DEFERRED'
                                     WHEN con.condeferrable THEN ' DEFERRABLE' ELSE '' END) || after;
            END IF;
        END LOOP;
        before := before || format('DROP TRIGGER IF EXISTS zz_idgen_convert ON %s', relation)
                         || format('DROP FUNCTION IF EXISTS idgen_convert.%I()', 'keep_' || relation::oid);
        FOR col IN
            SELECT n.*, attnotnull, attidentity, attinhcount, pg_get_expr(adbin, adrelid) AS value, convalidated
            FROM idgen_convert.new_columns AS n JOIN pg_attribute ON attrelid = n."table" AND attname = n."column"
                     LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
                     LEFT JOIN pg_constraint ON conrelid = n."table" AND conname = (n.new_column || '_filled')::name
            WHERE n."table" = relation
        LOOP
            IF col.convalidated IS NOT TRUE THEN
                RAISE 'the constraint %_filled of % is not there, or not validated', col.new_column, relation;
            END IF;
            CONTINUE WHEN col.attinhcount > 0;    -- it follows the column of the parent
            IF col.attnotnull THEN    -- first, for DROP COLUMN also drops the constraint that says so
                EXECUTE format('ALTER TABLE %s ALTER %I SET NOT NULL', relation, col.new_column);
            END IF;
            sequence := pg_get_serial_sequence(relation::text, col."column"::text);
            IF col.shard IS NOT NULL THEN
                before := before
                    || format('ALTER TABLE %s RENAME %I TO %I', relation, col."column", 'old_' || col."column");
                IF col.value IS NULL AND col.attidentity = '' THEN    -- no program fills it any longer
                    before := before
                        || format('ALTER TABLE %s ALTER %I DROP NOT NULL', relation, 'old_' || col."column");
                END IF;
            ELSE
                IF col.attidentity <> '' THEN
                    SELECT needed_by INTO others
                    FROM idgen_convert.owned_sequences AS o
                    WHERE o.sequence = pg_get_serial_sequence(relation::text, col."column"::text)::regclass;
                    IF others IS NOT NULL THEN
                        RAISE 'the sequence % ends with its column, but others need it: %', sequence, others
                            USING HINT = 'Let these do without the sequence first.';
                    END IF;
                    SELECT format('ALTER TABLE %s ALTER %I ADD GENERATED BY DEFAULT AS IDENTITY (
                                       INCREMENT %s START %s CACHE %s %s)', relation, col.new_column, seqincrement,
                                  seqstart, seqcache, CASE WHEN seqcycle THEN 'CYCLE' END) INTO command
                    FROM pg_sequence WHERE seqrelid = sequence::regclass;
                    EXECUTE command;
                    EXECUTE format('SELECT setval(%L, last_value, is_called) FROM %s',
                                   pg_get_serial_sequence(relation::text, col.new_column::text), sequence);
                ELSIF col.value IS NOT NULL THEN
                    EXECUTE format('ALTER TABLE %s ALTER %I SET DEFAULT %s', relation, col.new_column, col.value);
                    IF sequence IS NOT NULL THEN
                        EXECUTE format('ALTER SEQUENCE %s OWNED BY %s.%I', sequence, relation, col.new_column);
                    END IF;
                END IF;
                before := before || format('ALTER TABLE %s DROP COLUMN %I', relation, col."column");
            END IF;
            before := before
                || format('ALTER TABLE %s DROP CONSTRAINT IF EXISTS %I', relation, (col.new_column || '_filled')::name)
                || format('ALTER TABLE %s RENAME %I TO %I', relation, col.new_column, col."column");
        END LOOP;
    END LOOP;
    FOREACH command IN ARRAY before || after LOOP
        EXECUTE command;
    END LOOP;
    DELETE FROM idgen_convert.new_columns WHERE "table" = ANY (relations);
END
$$;

-- Counts rows whose new columns do not follow the old ones, because no trigger fires under
-- session_replication_role = replica.
CREATE OR REPLACE FUNCTION idgen_convert.wrong_rows(relation regclass) RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET row_security = off AS $$
DECLARE
    condition text;
    wrong bigint;
BEGIN
    PERFORM idgen_convert.refuse_assumed_role();
    SELECT string_agg(format('t.%I IS DISTINCT FROM %s', new_column, source), ' OR ') INTO condition
    FROM idgen_convert.new_columns WHERE "table" = relation AND triggered IS NOT NULL;
    EXECUTE format('SELECT count(*) FROM %s AS t WHERE %s', relation, coalesce(condition, 'false')) INTO wrong;
    RETURN wrong;
END
$$;

COMMIT;
\set ON_ERROR_STOP :idgen_convert_stop

-- To remove all of this: DROP SCHEMA idgen_convert CASCADE;
