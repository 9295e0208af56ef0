-- docs/reference.md names everything that the extension holds, as it is. What is missing there is shown.
SET standard_conforming_strings = on;    -- for the patterns of this test
\getenv srcdir PG_ABS_SRCDIR
\set reference :srcdir '/docs/reference.md'
\set errors :srcdir '/src/error.rs'
-- A section is a heading and what follows it, up to the next one.
CREATE TEMP TABLE sections AS
    SELECT split_part(section, E'\n', 1) AS heading, section
    FROM regexp_split_to_table(pg_read_file(:'reference'), '\n(?=#)') AS section;
CREATE TEMP VIEW ours AS
    SELECT classid, objid
    FROM pg_depend
    WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
      AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idgen');

-- Functions: a heading with the arguments, then the result and the properties.
CREATE FUNCTION pg_temp.short(types text) RETURNS text
    RETURN replace(replace(types, 'timestamp with time zone', 'timestamptz'), 'SETOF', 'setof');
CREATE TEMP VIEW functions AS
    SELECT p.oid,
           format('### `%s(%s)`', proname,
                  regexp_replace(pg_temp.short(pg_get_function_identity_arguments(p.oid)),
                                 '(^|, )OUT .*', '')) AS heading,
           format('Returns `%s`. %s%s, parallel %s.', pg_temp.short(pg_get_function_result(p.oid)),
                  CASE provolatile WHEN 'i' THEN 'Immutable' WHEN 's' THEN 'Stable' ELSE 'Volatile' END,
                  CASE WHEN proisstrict THEN ', strict' ELSE '' END,
                  CASE proparallel WHEN 's' THEN 'safe' WHEN 'r' THEN 'restricted' ELSE 'unsafe' END)
               AS properties
    FROM pg_proc AS p JOIN ours ON classid = 'pg_proc'::regclass AND objid = p.oid;
SELECT count(*) > 15 AS functions FROM functions;
SELECT heading AS function_missing FROM functions EXCEPT SELECT heading FROM sections ORDER BY 1;
SELECT heading AS function_described_otherwise, properties AS should_be
FROM functions JOIN sections USING (heading)
WHERE strpos(section, E'\n\n' || properties) = 0 OR section !~ '\sSince \d+\.\d+\.\d+\.'
ORDER BY 1;
-- Each SQLSTATE in a function's comment.
SELECT heading AS function, state[1] AS sqlstate_missing
FROM functions JOIN sections USING (heading),
     regexp_matches(obj_description(oid, 'pg_proc'), '\m(?=[0-9A-Z]*[0-9])[0-9A-Z]{5}\M', 'g') AS state
WHERE strpos(section, state[1]) = 0
ORDER BY 1, 2;
-- What PUBLIC may not call is said not to be for PUBLIC, or for whom it is.
SELECT heading AS right_not_named
FROM functions JOIN sections USING (heading)
WHERE NOT has_function_privilege('public', oid, 'EXECUTE') AND section !~ 'Not for PUBLIC|For members of'
ORDER BY 1;

-- Views: a heading, and a row for each column with its type.
SELECT count(*) > 25 AS columns
FROM ours JOIN pg_attribute ON classid = 'pg_class'::regclass AND attrelid = objid AND attnum > 0;
SELECT relname AS view, attname AS column_missing
FROM pg_class AS c JOIN ours ON classid = 'pg_class'::regclass AND objid = c.oid
     JOIN pg_attribute ON attrelid = c.oid AND attnum > 0
WHERE NOT EXISTS (
    SELECT FROM sections
    WHERE heading = format('### `%s`', relname)
      AND strpos(section, format(E'\n| `%s` | `%s` | ', attname,
                                  pg_temp.short(format_type(atttypid, atttypmod)))) > 0)
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

-- Errors: src/error.rs begins the comment of each with its SQLSTATE, and has one message for each.
CREATE TEMP TABLE rows AS
    SELECT row FROM sections, regexp_split_to_table(section, E'\n') AS row WHERE heading = '## Errors';
CREATE TEMP TABLE states AS
    SELECT state[1] FROM regexp_matches(pg_read_file(:'errors'), '\n    /// ([0-9A-Z]{5}): ', 'g') AS state;
CREATE TEMP TABLE messages AS
    SELECT replace(found[3], '\"', '"') AS message
    FROM regexp_matches(pg_read_file(:'errors'),
                        '(Code::ERRCODE_\w+|object_state),\s+(format!\()?"((\\"|[^"])*)"', 'g') AS found;
SELECT (SELECT count(*) FROM states) > 17 AS errors,
       (SELECT count(*) FROM states) = (SELECT count(*) FROM messages) AS with_one_message_each;
-- Functions in PL/pgSQL raise theirs themselves, with an SQLSTATE.
CREATE TEMP TABLE raised AS
    SELECT found[1] AS message, found[3] AS state
    FROM pg_proc AS p JOIN functions USING (oid),
         regexp_matches(prosrc, 'EXCEPTION ''(([^'']|'''')*)''[^;]*ERRCODE = ''(\w{5})''', 'g') AS found;
SELECT proname AS raises_without_sqlstate
FROM pg_proc AS p JOIN functions USING (oid), regexp_split_to_table(prosrc, ';') AS statement
WHERE statement ~ 'RAISE EXCEPTION' AND statement !~ 'ERRCODE = ''\w{5}''';
INSERT INTO messages SELECT message FROM raised;
INSERT INTO states SELECT state FROM raised;
SELECT state AS sqlstate_missing FROM (SELECT DISTINCT state FROM states) AS s
WHERE NOT EXISTS (SELECT FROM rows WHERE row LIKE '| `' || state || '` |%')
ORDER BY 1;
SELECT message AS message_missing
FROM messages
WHERE NOT EXISTS (
    SELECT FROM rows WHERE row LIKE '| `_____` | ' || regexp_replace(message, '\{[^}]*\}', '%', 'g') || ' |%')
ORDER BY 1;
-- Nothing is there that the extension does not have.
SELECT heading AS not_of_the_extension FROM sections WHERE heading LIKE '### `%'
EXCEPT SELECT heading FROM functions
EXCEPT SELECT format('### `%s`', relname) FROM pg_class AS c JOIN ours ON objid = c.oid
EXCEPT SELECT format('### `%s`', name) FROM pg_settings
ORDER BY 1;
DROP TABLE sections, rows, states, messages, raised CASCADE;
DROP VIEW functions, ours;
