-- docs/reference.md names everything that the extension holds, as it is. What is missing there is shown.
SET standard_conforming_strings = on;    -- for the patterns of this test
\getenv srcdir PG_ABS_SRCDIR
\set reference :srcdir '/docs/reference.md'
\set design :srcdir '/docs/contributing/design.md'
\set first :srcdir '/install/idgen--0.1.0.sql'
-- A section is a heading and what follows it, up to the next one. Its chapter is the last heading of the second level.
CREATE TEMP TABLE sections AS
    SELECT split_part(section, E'\n', 1) AS heading, section,
           count(*) FILTER (WHERE section LIKE '## %') OVER (ORDER BY place) AS chapter
    FROM regexp_split_to_table(pg_read_file(:'reference'), '\n(?=#)') WITH ORDINALITY AS parts (section, place);
-- Each name in a heading has an entry there. With it belongs what the beginning of the chapter says.
CREATE TEMP TABLE entries AS
    SELECT heading, section, section || (SELECT section FROM sections AS c
                                         WHERE c.chapter = s.chapter AND c.heading LIKE '## %') AS said,
           found[1] AS name, place
    FROM sections AS s, regexp_matches(heading, '`([^`]+)`', 'g') WITH ORDINALITY AS names (found, place)
    WHERE heading LIKE '### `%';
CREATE TEMP VIEW ours AS
    SELECT classid, objid
    FROM pg_depend
    WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
      AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idgen');

-- Functions: a name with the arguments, then the result and the properties. The test surface shows all properties.
-- Functions behind a view, and internal ones, are on the page about the design.
CREATE FUNCTION pg_temp.short(types text) RETURNS text
    RETURN replace(replace(types, 'timestamp with time zone', 'timestamptz'), 'SETOF', 'setof');
CREATE TEMP VIEW functions AS
    SELECT p.oid, proname,
           format('%s(%s)', proname,
                  regexp_replace(pg_temp.short(pg_get_function_identity_arguments(p.oid)), '(^|, )OUT .*', '')) AS name,
           format('`%s`', pg_temp.short(pg_get_function_result(p.oid))) AS result,
           CASE provolatile::text || proisstrict
               WHEN 'ifalse' THEN ' Immutable.' WHEN 'itrue' THEN ' Immutable, strict.'
               WHEN 'sfalse' THEN ' Stable.' WHEN 'strue' THEN ' Stable, strict.' WHEN 'vtrue' THEN ' Strict.' ELSE ''
               END AS properties
    FROM pg_proc AS p JOIN ours ON classid = 'pg_proc'::regclass AND objid = p.oid;
SELECT count(*) > 15 AS functions FROM functions;
SELECT name AS function_missing FROM functions EXCEPT SELECT name FROM entries
EXCEPT SELECT found[1] FROM regexp_matches(pg_read_file(:'design'), '`(\w+\([^`]*\))`', 'g') AS found
ORDER BY 1;
-- Functions with a common heading return either the same type or, in their order, one type and another.
SELECT heading AS described_otherwise, should_be
FROM (SELECT heading, section,
             E'\n\n' || CASE WHEN count(*) = 1 THEN format('Returns %s.%s', min(result), properties)
                             WHEN min(result) = max(result) THEN format('Return %s.%s', min(result), properties)
                             ELSE format('Return %s.%s', string_agg(result, ' and ' ORDER BY place), properties) END
                 AS should_be
      FROM functions JOIN entries USING (name)
      GROUP BY heading, section, properties) AS described
WHERE NOT EXISTS (SELECT FROM unnest(ARRAY[E'\n', ' Since ', ' Not for ', ' For ']) AS next
                  WHERE strpos(section, should_be || next) > 0)
ORDER BY 1, 2;
-- The page names those that are leakproof, in an item of a list.
WITH named AS (
    SELECT found[1] AS proname
    FROM regexp_matches(substring(pg_read_file(:'reference') FROM '\n- ([^\n]* leakproof (\n  |[^\n])*)\. '),
                        '`(\w+)`', 'g') AS found)
SELECT proname AS leakproof_or_not, named.proname IS NOT NULL AS named
FROM named FULL JOIN (SELECT proname::text FROM functions JOIN pg_proc USING (oid, proname) WHERE proleakproof) AS p
     USING (proname)
WHERE named.proname IS NULL OR p.proname IS NULL;
-- Everything later than 0.1.0 says since which version it exists. A function behind a view is described there.
SELECT heading AS since_another_version
FROM functions AS f JOIN entries AS e ON e.name IN (f.name, proname)
WHERE (section ~ '\sSince\s\d+\.\d+\.\d+\.') = EXISTS (
    SELECT FROM regexp_matches(pg_temp.short(pg_read_file(:'first')), 'CREATE FUNCTION (\w+)\(\s*([^)]*)\)', 'g') AS old
    WHERE f.name = format('%s(%s)', old[1], regexp_replace(old[2], '(^|, )OUT .*', '')))
ORDER BY 1;
-- What PUBLIC may not call is said not to be for PUBLIC, or for whom it is.
SELECT f.name AS right_not_named
FROM functions AS f JOIN entries AS e ON e.name IN (f.name, proname)
WHERE NOT has_function_privilege('public', oid, 'EXECUTE')
  AND said !~ '[Nn]ot for PUBLIC|[Ff]or members of|For superusers'
ORDER BY 1;

-- Views: a heading, and each column in its section. The test surface shows that each has a comment.
SELECT count(*) > 25 AS columns
FROM ours JOIN pg_attribute ON classid = 'pg_class'::regclass AND attrelid = objid AND attnum > 0;
SELECT relname AS view, attname AS column_missing
FROM pg_class AS c JOIN ours ON classid = 'pg_class'::regclass AND objid = c.oid
     JOIN pg_attribute ON attrelid = c.oid AND attnum > 0
WHERE NOT EXISTS (
    SELECT FROM sections
    WHERE heading = format('### `%s`', relname) AND strpos(section, format('`%s`', attname)) > 0)
ORDER BY 1, attnum;

-- Settings: a row with the default, the range and how the setting is changed.
SELECT count(*) > 7 AS settings FROM pg_settings WHERE name LIKE 'idgen.%';
CREATE TEMP TABLE setting_rows AS
    SELECT row FROM sections, regexp_split_to_table(section, E'\n') AS row WHERE heading = '## Settings';
SELECT name AS setting_missing, should_be
FROM pg_settings,
     format('| `%s` | %s |%s | %s | ', name, coalesce('`' || nullif(boot_val, '') || '`', 'empty'),
            CASE WHEN min_val IS NOT NULL THEN format(' %s to %s%s', min_val, max_val, ' ' || unit) END,
            CASE context WHEN 'postmaster' THEN 'restart' WHEN 'sighup' THEN 'reload' WHEN 'user' THEN '`SET`' END)
        AS should_be
WHERE name LIKE 'idgen.%' AND NOT EXISTS (SELECT FROM setting_rows WHERE starts_with(row, should_be))
ORDER BY 1;

-- Errors: src/testing/pg_tests.rs compares those of the library.
CREATE TEMP TABLE items AS
    SELECT substr(item, 2, 5) AS state, regexp_replace(item, '\s+', ' ', 'g') AS item
    FROM sections, regexp_split_to_table(section, '\n- ') AS item
    WHERE chapter = (SELECT chapter FROM sections WHERE heading = '## Errors') AND item ~ '^`\w{5}` ';
-- Each SQLSTATE in a function's comment.
SELECT name AS function, said[1] AS sqlstate_missing
FROM functions,
     regexp_matches(obj_description(oid, 'pg_proc'), '\m(?=[0-9A-Z]*[0-9])[0-9A-Z]{5}\M', 'g') AS said
WHERE NOT EXISTS (SELECT FROM items WHERE state = said[1])
ORDER BY 1, 2;
-- Functions in PL/pgSQL raise theirs themselves, with an SQLSTATE.
CREATE TEMP TABLE raised AS
    SELECT found[1] AS message, found[3] AS state
    FROM pg_proc AS p JOIN functions USING (oid),
         regexp_matches(prosrc, 'EXCEPTION ''(([^'']|'''')*)''[^;]*ERRCODE = ''(\w{5})''', 'g') AS found;
SELECT p.proname AS raises_without_sqlstate
FROM pg_proc AS p JOIN functions USING (oid), regexp_split_to_table(prosrc, ';') AS statement
WHERE statement ~ 'RAISE EXCEPTION' AND statement !~ 'ERRCODE = ''\w{5}''';
-- Each counted error has the SQLSTATE that idgen_refusals shows, so 40001 and 55000 are distinguished here too.
SELECT reason AS reason_missing, sqlstate FROM idgen_refusals
WHERE NOT EXISTS (SELECT FROM items WHERE strpos(item, format('** (`%s`)', reason)) > 0)
   OR EXISTS (SELECT FROM items WHERE strpos(item, format('** (`%s`)', reason)) > 0 AND state <> sqlstate);
SELECT state AS sqlstate_missing, message AS message_missing FROM raised
WHERE NOT EXISTS (SELECT FROM items WHERE items.state = raised.state AND item LIKE '%**' || message || '**%')
ORDER BY 1, 2;
-- The page names nothing that the extension does not have.
SELECT name AS not_of_the_extension
FROM (SELECT name FROM entries UNION SELECT substring(row, '^\| `([^`]+)`') FROM setting_rows) AS named (name)
EXCEPT SELECT name FROM functions
EXCEPT SELECT relname FROM pg_class AS c JOIN ours ON objid = c.oid
EXCEPT SELECT name FROM pg_settings
EXCEPT SELECT 'idgen.state' WHERE current_setting('idgen.state') LIKE '{%'
EXCEPT SELECT NULL
ORDER BY 1;
DROP TABLE sections, entries, setting_rows, items, raised CASCADE;
DROP VIEW functions, ours;
