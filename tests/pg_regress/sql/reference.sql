-- docs/reference.md names everything that the extension holds, as it is. What is missing there is shown.
SET standard_conforming_strings = on;    -- for the patterns of this test
\getenv srcdir PG_ABS_SRCDIR
\set reference :srcdir '/docs/reference.md'
\set first :srcdir '/install/idgen--0.1.0.sql'
-- A section is a heading and what follows it, up to the next one.
CREATE TEMP TABLE sections AS
    SELECT split_part(section, E'\n', 1) AS heading, section
    FROM regexp_split_to_table(pg_read_file(:'reference'), '\n(?=#)') AS section;
-- Each name in a heading has an entry there. Functions behind a view, and internal ones, have theirs in a sentence.
CREATE TEMP TABLE entries AS
    SELECT heading, section, found[1] AS name, place, false AS in_sentence
    FROM sections, regexp_matches(heading, '`([^`]+)`', 'g') WITH ORDINALITY AS names (found, place)
    WHERE heading LIKE '### `%'
    UNION ALL
    SELECT heading, section, found[1], place, true
    FROM sections,
         regexp_matches(section, '`(\w+\([^`]*\))`,?\sreturns\s', 'g') WITH ORDINALITY AS names (found, place);
CREATE TEMP VIEW ours AS
    SELECT classid, objid
    FROM pg_depend
    WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
      AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idgen');

-- Functions: a name with the arguments, then the result and the properties.
CREATE FUNCTION pg_temp.short(types text) RETURNS text
    RETURN replace(replace(types, 'timestamp with time zone', 'timestamptz'), 'SETOF', 'setof');
CREATE TEMP VIEW functions AS
    SELECT p.oid,
           format('%s(%s)', proname,
                  regexp_replace(pg_temp.short(pg_get_function_identity_arguments(p.oid)), '(^|, )OUT .*', '')) AS name,
           format('`%s`', pg_temp.short(pg_get_function_result(p.oid))) AS result,
           format('%s%s, parallel %s',
                  CASE provolatile WHEN 'i' THEN 'Immutable' WHEN 's' THEN 'Stable' ELSE 'Volatile' END,
                  CASE WHEN proisstrict THEN ', strict' ELSE '' END,
                  CASE proparallel WHEN 's' THEN 'safe' WHEN 'r' THEN 'restricted' ELSE 'unsafe' END)
               AS properties
    FROM pg_proc AS p JOIN ours ON classid = 'pg_proc'::regclass AND objid = p.oid;
SELECT count(*) > 15 AS functions FROM functions;
SELECT name AS function_missing FROM functions EXCEPT SELECT name FROM entries ORDER BY 1;
-- Functions with a common heading return either the same type or, in their order, one type and another.
SELECT heading AS described_otherwise, should_be
FROM (SELECT heading, section,
             CASE WHEN count(*) = 1 THEN format(E'\n\nReturns %s. %s.', min(result), properties)
                  WHEN min(result) = max(result) THEN format(E'\n\nReturn %s. %s.', min(result), properties)
                  ELSE format(E'\n\nReturn %s. %s.', string_agg(result, ' and ' ORDER BY place), properties) END
                 AS should_be
      FROM functions JOIN entries USING (name)
      WHERE NOT in_sentence
      GROUP BY heading, section, properties
      UNION ALL
      SELECT heading, replace(section, E'\n', ' '),
             format('`%s`%s returns %s (%s)', name, CASE WHEN heading LIKE '### `%' THEN ',' END,
                    result, lower(properties))
      FROM functions JOIN entries USING (name)
      WHERE in_sentence) AS described
WHERE strpos(section, should_be) = 0
ORDER BY 1, 2;
-- Everything later than 0.1.0 says since which version it exists.
SELECT heading AS since_another_version
FROM functions JOIN entries USING (name)
WHERE (section ~ '\sSince \d+\.\d+\.\d+\.') = EXISTS (
    SELECT FROM regexp_matches(pg_temp.short(pg_read_file(:'first')), 'CREATE FUNCTION (\w+)\(\s*([^)]*)\)', 'g') AS old
    WHERE name = format('%s(%s)', old[1], regexp_replace(old[2], '(^|, )OUT .*', '')))
ORDER BY 1;
-- Each SQLSTATE in a function's comment.
SELECT name AS function, state[1] AS sqlstate_missing
FROM functions JOIN entries USING (name),
     regexp_matches(obj_description(oid, 'pg_proc'), '\m(?=[0-9A-Z]*[0-9])[0-9A-Z]{5}\M', 'g') AS state
WHERE strpos(section, state[1]) = 0
ORDER BY 1, 2;
-- What PUBLIC may not call is said not to be for PUBLIC, or for whom it is.
SELECT name AS right_not_named
FROM functions JOIN entries USING (name)
WHERE NOT has_function_privilege('public', oid, 'EXECUTE') AND section !~ 'Not for PUBLIC|For members of'
ORDER BY 1;

-- Views: a heading, and for each column a row with its type, which several columns may share.
SELECT count(*) > 25 AS columns
FROM ours JOIN pg_attribute ON classid = 'pg_class'::regclass AND attrelid = objid AND attnum > 0;
SELECT relname AS view, attname AS column_missing
FROM pg_class AS c JOIN ours ON classid = 'pg_class'::regclass AND objid = c.oid
     JOIN pg_attribute ON attrelid = c.oid AND attnum > 0
WHERE NOT EXISTS (
    SELECT FROM sections
    WHERE heading = format('### `%s`', relname)
      AND section ~ format('\n\| (`\w+`, )*`%s`(, `\w+`)* \| `%s` \| ', attname,
                           pg_temp.short(format_type(atttypid, atttypmod))))
ORDER BY 1, attnum;

-- Settings: a heading, then type, default, range and context.
SELECT count(*) > 7 AS settings FROM pg_settings WHERE name LIKE 'idgen.%';
SELECT name AS setting_missing, should_be
FROM pg_settings,
     format('`%s`%s, default %s%s, *%s*.', vartype, ' in ' || unit,
            coalesce('`' || nullif(boot_val, '') || '`', 'empty'),
            CASE WHEN min_val IS NOT NULL THEN format(', from %s to %s', min_val, max_val) END, context)
        AS should_be
WHERE name LIKE 'idgen.%' AND NOT EXISTS (
    SELECT FROM sections
    WHERE heading = format('### `%s`', name) AND strpos(section, E'\n\n' || should_be || E'\n') > 0)
ORDER BY 1;

-- Errors: src/pg_tests.rs compares those of the library.
CREATE TEMP TABLE rows AS
    SELECT row FROM sections, regexp_split_to_table(section, E'\n') AS row WHERE heading = '## Errors';
-- Functions in PL/pgSQL raise theirs themselves, with an SQLSTATE.
CREATE TEMP TABLE raised AS
    SELECT found[1] AS message, found[3] AS state
    FROM pg_proc AS p JOIN functions USING (oid),
         regexp_matches(prosrc, 'EXCEPTION ''(([^'']|'''')*)''[^;]*ERRCODE = ''(\w{5})''', 'g') AS found;
SELECT proname AS raises_without_sqlstate
FROM pg_proc AS p JOIN functions USING (oid), regexp_split_to_table(prosrc, ';') AS statement
WHERE statement ~ 'RAISE EXCEPTION' AND statement !~ 'ERRCODE = ''\w{5}''';
-- Each counted error has the SQLSTATE that idgen_refusals shows, so 40001 and 55000 are distinguished here too.
SELECT reason AS reason_missing, sqlstate FROM idgen_refusals
WHERE NOT EXISTS (SELECT FROM rows WHERE row LIKE '%| `' || reason || '` |%')
   OR EXISTS (SELECT FROM rows WHERE row LIKE '%| `' || reason || '` |%' AND row NOT LIKE '| `' || sqlstate || '` |%');
SELECT state AS sqlstate_missing, message AS message_missing FROM raised
WHERE NOT EXISTS (SELECT FROM rows WHERE row LIKE '| `' || state || '` | ' || message || ' |%')
ORDER BY 1, 2;
-- The page names nothing that the extension does not have.
SELECT name AS not_of_the_extension FROM entries
EXCEPT SELECT name FROM functions
EXCEPT SELECT relname FROM pg_class AS c JOIN ours ON objid = c.oid
EXCEPT SELECT name FROM pg_settings
ORDER BY 1;
DROP TABLE sections, entries, rows, raised CASCADE;
DROP VIEW functions, ours;
