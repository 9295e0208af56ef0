-- The surface is an API: every addition, change or removal shows here, and has to be intended.

-- Every object the extension owns. From PostgreSQL 17 on these include the types of a view's rows.
CREATE TEMP VIEW ours AS
    SELECT classid, objid
    FROM pg_depend
    WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e' AND classid <> 'pg_type'::regclass
      AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idgen');
SELECT pg_describe_object(classid, objid, 0) AS object
FROM ours
ORDER BY pg_describe_object(classid, objid, 0) COLLATE "C";

-- Its functions and views.
CREATE TEMP VIEW our_functions AS
    SELECT p.* FROM pg_proc AS p JOIN ours ON classid = 'pg_proc'::regclass AND objid = p.oid;
CREATE TEMP VIEW our_views AS
    SELECT c.oid, c.relname, c.relkind
    FROM pg_class AS c JOIN ours ON classid = 'pg_class'::regclass AND objid = c.oid;

-- Argument names are part of it: shard => 5.
\pset format unaligned
SELECT proname AS function, pg_get_function_arguments(oid) AS arguments, pg_get_function_result(oid) AS result
FROM our_functions
ORDER BY proname COLLATE "C", pronargs;
\pset format aligned

-- Properties for the planner. Minting is VOLATILE and accepts nulls in order to refuse them; decoding is STRICT,
-- and IMMUTABLE if it does not depend on a setting. A function is LEAKPROOF if no id and no state of the server makes
-- it fail.
SELECT proname AS function, pronargs AS args, l.lanname AS language, provolatile AS volatile,
       proparallel AS parallel, proisstrict AS strict, prosecdef AS definer, proleakproof AS leakproof, prorows AS rows
FROM our_functions JOIN pg_language AS l ON l.oid = prolang
ORDER BY proname COLLATE "C", pronargs;

-- The views and their columns, in order.
SELECT relname AS view, relkind AS kind, attname AS "column", format_type(atttypid, atttypmod) AS type
FROM our_views JOIN pg_attribute ON attrelid = oid AND attnum > 0 AND NOT attisdropped
ORDER BY relname COLLATE "C", attnum;

-- No column has the type name, because some clients cannot read it.
SELECT relname || '.' || attname AS shown_as_name
FROM our_views JOIN pg_attribute ON attrelid = oid
WHERE atttypid = 'name'::regtype
UNION ALL
SELECT oid::regprocedure::text FROM our_functions
WHERE 'name'::regtype IN (SELECT unnest(proallargtypes)) OR prorettype = 'name'::regtype;

-- Nothing lacks a comment, and no argument a name.
SELECT pg_describe_object(classid, objid, 0) AS object_without_comment
FROM ours
WHERE obj_description(objid, classid::regclass::name) IS NULL;

SELECT relname AS view, attname AS column_without_comment
FROM our_views JOIN pg_attribute ON attrelid = oid AND attnum > 0 AND NOT attisdropped
WHERE col_description(oid, attnum) IS NULL;

SELECT proname AS function_with_unnamed_argument
FROM our_functions
WHERE pronargs > 0 AND (proargnames IS NULL OR '' = ANY (proargnames));

-- Functions that may fail name their SQLSTATEs.
SELECT proname AS function_that_names_no_error
FROM our_functions
WHERE provolatile = 'v' AND obj_description(oid, 'pg_proc') !~ 'Errors?: ';

SELECT obj_description(oid, 'pg_extension') AS extension FROM pg_extension WHERE extname = 'idgen';

-- Called by name, as an application does that outlives a new argument.
SELECT (SELECT count(*) FROM snowflake_next_ids(shard => 5, count => 3)) AS batch,
       snowflake_next_id(shard => 5) > 0 AS minted, snowflake_next_id_js(shard => 5) > 0 AS minted_js,
       snowflake_make_id(ts => '2025-01-01T00:00:01Z', shard => 2, sequence => 3) AS id,
       snowflake_between(id => 0, "from" => '-infinity', upto => 'infinity') AS between,
       shard_of(snowflake_advance(shard => 6, past => 0)) AS shard,
       (snowflake_decode(id => 7, layout => 'twitter')).sequence,
       snowflake_from_shortcode(code => snowflake_shortcode(id => 1)) AS from_shortcode,
       snowflake_from_text(text => snowflake_text(id => 1)) AS from_text,
       snowflake_unscatter(id => snowflake_scatter(id => 1)) AS unscattered;

DROP VIEW our_functions, our_views, ours;
