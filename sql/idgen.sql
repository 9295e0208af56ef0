-- All SQL objects of idgen. Released C symbols are never dropped or changed. In the install script,
-- takeover/before.sql comes first, which also sets the search_path, and takeover/after.sql comes last.

-- Minting ---------------------------------------------------------------------------------------

-- The planner replaces calls that mint by calls of these in the defaults of COPY, which would otherwise not insert in
-- batches: see src/pg/planner.rs. SQL cannot call them.
CREATE OR REPLACE FUNCTION @extschema@.idgen_next_id(shard integer, planned internal) RETURNS bigint
    AS 'MODULE_PATHNAME', 'snowflake_next_id_wrapper'
    LANGUAGE C STABLE PARALLEL RESTRICTED;
COMMENT ON FUNCTION @extschema@.idgen_next_id(integer, internal) IS
'Replaces snowflake_next_id(shard) in the defaults of COPY, which then inserts in batches. Only the planner can call it.';

CREATE OR REPLACE FUNCTION @extschema@.idgen_next_id(planned internal) RETURNS bigint
    AS 'MODULE_PATHNAME', 'snowflake_next_id_of_session_wrapper'
    LANGUAGE C STABLE PARALLEL RESTRICTED;
COMMENT ON FUNCTION @extschema@.idgen_next_id(internal) IS
'Replaces snowflake_next_id() in the defaults of COPY. Only the planner can call it.';

CREATE OR REPLACE FUNCTION @extschema@.idgen_next_id_js(shard integer, planned internal) RETURNS bigint
    AS 'MODULE_PATHNAME', 'snowflake_next_id_js_wrapper'
    LANGUAGE C STABLE PARALLEL RESTRICTED;
COMMENT ON FUNCTION @extschema@.idgen_next_id_js(integer, internal) IS
'Replaces snowflake_next_id_js(shard) in the defaults of COPY. Only the planner can call it.';

CREATE OR REPLACE FUNCTION @extschema@.idgen_simplify(request internal) RETURNS internal
    AS 'MODULE_PATHNAME', 'idgen_simplify_wrapper'
    LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION @extschema@.idgen_simplify(internal) IS
'Support function of snowflake_next_id and snowflake_next_id_js: replaces them by idgen_next_id and idgen_next_id_js in the defaults of COPY. Only the planner can call it.';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_next_id(shard integer) RETURNS bigint
    AS 'MODULE_PATHNAME', 'snowflake_next_id_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED SUPPORT @extschema@.idgen_simplify;
COMMENT ON FUNCTION @extschema@.snowflake_next_id(integer) IS
'Mints an id for a logical shard (0 to 8191). It is greater than every id of the shard that this session has obtained before and, to the millisecond, greater than those of all other sessions. Intended for column defaults. Errors: 22004 null shard, 22023 shard out of range, 40001 clock behind, shard out of ids for now or mark not durable within idgen.max_wait, 55000 shard not allowed on this server or library that has to be preloaded, 2200H range of ids used up.';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_next_id() RETURNS bigint
    AS 'MODULE_PATHNAME', 'snowflake_next_id_of_session_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED SUPPORT @extschema@.idgen_simplify;
COMMENT ON FUNCTION @extschema@.snowflake_next_id() IS
'Mints an id for the shard in the setting idgen.shard. Errors: 55000 if no shard is set, and those of snowflake_next_id(shard).';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_next_ids(shard integer, count integer) RETURNS SETOF bigint
    AS 'MODULE_PATHNAME', 'snowflake_next_ids_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 1000;
COMMENT ON FUNCTION @extschema@.snowflake_next_ids(integer, integer) IS
'Mints a batch of count ids (0 or more) for a logical shard, in increasing order, with a single visit to shared memory. The whole batch is allocated when the function is called; ids that the caller does not use are skipped. Errors: 22004 null argument, 22023 shard out of range, count negative or more ids than the shard can provide within idgen.max_ahead and idgen.max_wait, and those of snowflake_next_id(shard).';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_next_id_js(shard integer) RETURNS bigint
    AS 'MODULE_PATHNAME', 'snowflake_next_id_js_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED SUPPORT @extschema@.idgen_simplify;
COMMENT ON FUNCTION @extschema@.snowflake_next_id_js(integer) IS
'Mints an id below 2^53, which JavaScript represents exactly: 32 bits of seconds since idgen.epoch, 8 bits of logical shard (0 to 255) and 12 bits of sequence, hence at most 4096 ids per second for each shard. It is greater than every id that any session has obtained from this function for the shard before. Keep these ids in columns of their own: they are all smaller than those of snowflake_next_id. Decode them with snowflake_decode(id, ''js53''). Errors: 22004 null shard, 22023 shard out of range, and those of snowflake_next_id(shard).';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_last_id() RETURNS bigint
    AS 'MODULE_PATHNAME', 'snowflake_last_id_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION @extschema@.snowflake_last_id() IS
'Returns the last id that this session minted, for any shard and in either layout, even if the transaction was rolled back. It is to ids what lastval() is to sequences. DISCARD does not reset it. Error: 55000 if the session has not minted an id yet.';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_advance(shard integer, past bigint) RETURNS bigint
    AS 'MODULE_PATHNAME', 'snowflake_advance_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION @extschema@.snowflake_advance(integer, bigint) IS
'Makes the next id of a shard (0 to 8191) greater than the given id, and the next id of snowflake_next_id_js one of a later second. This is durable when the function returns. For use after a shard has been moved to this server, or after a migration from another function. Returns the smallest id that can be minted next. The shard need not be in idgen.allowed_shards yet, and may be closed. Not executable by PUBLIC. Errors: 22004 null argument, 22023 shard out of range or id further ahead of the system clock than idgen.max_ahead, 2200H id at the end of the range, and those of snowflake_next_id(shard) except for shards that are not allowed.';
REVOKE ALL ON FUNCTION @extschema@.snowflake_advance(integer, bigint) FROM PUBLIC;

CREATE OR REPLACE FUNCTION @extschema@.snowflake_safe_horizon() RETURNS bigint
    AS 'MODULE_PATHNAME', 'snowflake_safe_horizon_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION @extschema@.snowflake_safe_horizon() IS
'Every id of snowflake_next_id and snowflake_next_ids below the result, of any shard, belongs to a finished transaction, and no more ids will be minted below it: the safe upper bound when tailing a table of this cluster. Call it in a statement of its own, before the one that reads the table, because a statement sees only what was committed when it began. Ids must be minted by the transaction that inserts them, as a column default does. An open transaction that has minted an id holds the horizon back. The horizon never goes back, not even across restarts and failovers to a synchronous standby. Errors: 25001 in REPEATABLE READ or SERIALIZABLE, 25006 on a standby, 42501 without the privilege to list prepared transactions, 40001 while there are prepared transactions, or while the mark that the horizon rests on may be missing on synchronous standbys that are gone, 55000 if the clock is before the epoch or if the library has to be preloaded.';

-- Taking ids apart and building them --------------------------------------------------------------

-- A function is LEAKPROOF if it does nothing but return its result, whatever its argument and the state of the server.
-- Otherwise a condition on it could tell a role about rows that row-level security hides from it. So those that depend
-- on idgen.epoch are not: they fail while its value is one that was not accepted.

CREATE OR REPLACE FUNCTION @extschema@.snowflake_decode(
        id bigint, OUT created_at timestamptz, OUT shard integer, OUT sequence integer)
    AS 'MODULE_PATHNAME', 'snowflake_decode_wrapper'
    LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION @extschema@.snowflake_decode(bigint) IS
'Decodes an id into the millisecond in which it was minted, its logical shard (0 to 8191) and its sequence number within that millisecond (0 to 1023). Accepts every bigint, read as unsigned. Depends on idgen.epoch.';

CREATE OR REPLACE FUNCTION @extschema@.shard_of(id bigint) RETURNS integer
    AS 'MODULE_PATHNAME', 'shard_of_wrapper'
    LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
COMMENT ON FUNCTION @extschema@.shard_of(bigint) IS
'Returns the logical shard of an id, 0 to 8191: (id >> 10) & 8191. For routers, indexes, CHECK constraints and partition keys.';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_make_id(ts timestamptz, shard integer, sequence integer)
    RETURNS bigint
    AS 'MODULE_PATHNAME', 'snowflake_make_id_wrapper'
    LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION @extschema@.snowflake_make_id(timestamptz, integer, integer) IS
'Builds an id from a timestamp (truncated to the millisecond), a shard (0 to 8191) and a sequence number (0 to 1023), for backfills. The caller must never use the same combination twice. Depends on idgen.epoch. Errors: 22008 timestamp outside the range of ids, 22023 shard or sequence out of range.';

-- Time ------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION @extschema@.snowflake_time(id bigint) RETURNS timestamptz
    AS 'MODULE_PATHNAME', 'snowflake_time_wrapper'
    LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION @extschema@.snowflake_time(bigint) IS
'Returns the millisecond in which an id was minted. Depends on idgen.epoch and is therefore STABLE; use snowflake_time(id, epoch) for indexes and generated columns.';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_time(id bigint, epoch timestamptz) RETURNS timestamptz
    AS 'MODULE_PATHNAME', 'snowflake_time_since_wrapper'
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION @extschema@.snowflake_time(bigint, timestamptz) IS
'Returns the millisecond in which an id was minted, counted from the given epoch instead of idgen.epoch: for indexes and generated columns. Error: 22008 if the epoch is infinite or the result out of range.';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_min_id(ts timestamptz) RETURNS bigint
    AS 'MODULE_PATHNAME', 'snowflake_min_id_wrapper'
    LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION @extschema@.snowflake_min_id(timestamptz) IS
'Returns the smallest id, over all shards, of the millisecond that a timestamp lies in: the inclusive lower bound of a range scan, or a partition bound. Before the epoch, and for ''-infinity'', that is the smallest id of all, 0. Depends on idgen.epoch. Error: 22008 after the end of the range, where no bigint is late enough.';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_max_id(ts timestamptz) RETURNS bigint
    AS 'MODULE_PATHNAME', 'snowflake_max_id_wrapper'
    LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION @extschema@.snowflake_max_id(timestamptz) IS
'Returns the greatest id, over all shards, of the millisecond that a timestamp lies in: the inclusive upper bound of a range scan. After the end of the range, and for ''infinity'', that is the greatest id of all, 2^63 - 1; before the epoch, and for ''-infinity'', it is -1, which is less than every id. Depends on idgen.epoch.';

-- A function body that is parsed here, not at run time, is safe from the search_path. SQL functions that are
-- neither STRICT nor SECURITY DEFINER are inlined, so that the planner sees the range.
CREATE OR REPLACE FUNCTION @extschema@.snowflake_between(id bigint, "from" timestamptz, upto timestamptz)
    RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN id >= @extschema@.snowflake_min_id("from") AND id <= @extschema@.snowflake_max_id(upto);
COMMENT ON FUNCTION @extschema@.snowflake_between(bigint, timestamptz, timestamptz) IS
'Tests whether an id was minted between the milliseconds of two timestamps, both included, as BETWEEN does. Inlined into the query, where it becomes an index range scan and prunes partitions. ''-infinity'' and ''infinity'' leave an end of the range open, and no id lies before the epoch. Error: that of snowflake_min_id.';

-- Ids of other systems --------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION @extschema@.snowflake_decode(
        id bigint, layout text,
        OUT created_at timestamptz, OUT shard integer, OUT sequence integer, OUT gene integer)
    AS 'MODULE_PATHNAME', 'snowflake_decode_layout_wrapper'
    LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION @extschema@.snowflake_decode(bigint, text) IS
'Decodes an id of another system according to a layout listed in the view snowflake_layouts. Returns the time at which the id was made, truncated to the layout''s unit; the shard, in the meaning that the layout gives it, null if it has none; the sequence number; and the gene, bits taken from another id, null in most layouts. The id is read as unsigned. Times of ids that count from another epoch than the layout''s are off by the difference. Depends on idgen.epoch for the layouts idgen and js53. Error: 22023 unknown layout, or an id with more bits than its layout has.';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_layouts(
        OUT name text, OUT bits text, OUT unit text, OUT epoch timestamptz, OUT shard text, OUT used_by text)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'snowflake_layouts_wrapper'
    LANGUAGE C STABLE PARALLEL SAFE ROWS 11;
COMMENT ON FUNCTION @extschema@.snowflake_layouts() IS 'Returns the rows of the view snowflake_layouts.';

CREATE VIEW @extschema@.snowflake_layouts AS SELECT * FROM @extschema@.snowflake_layouts();
COMMENT ON VIEW @extschema@.snowflake_layouts IS 'The layouts that snowflake_decode(id, layout) knows. Bits and epoch are the defaults of each system.';
COMMENT ON COLUMN @extschema@.snowflake_layouts.name IS 'Name of the layout, as passed to snowflake_decode.';
COMMENT ON COLUMN @extschema@.snowflake_layouts.bits IS 'The parts of an id and their widths, from the most significant bits down. If they add up to 63 bits, a set sign bit counts as time.';
COMMENT ON COLUMN @extschema@.snowflake_layouts.unit IS 'Unit of the time; can be cast to interval.';
COMMENT ON COLUMN @extschema@.snowflake_layouts.epoch IS 'The time that ids of this layout count from; for idgen and js53 the setting idgen.epoch, null if its configured value is invalid.';
COMMENT ON COLUMN @extschema@.snowflake_layouts.shard IS 'What snowflake_decode returns as the shard; null if the layout has none.';
COMMENT ON COLUMN @extschema@.snowflake_layouts.used_by IS 'The systems that make such ids.';
GRANT SELECT ON @extschema@.snowflake_layouts TO PUBLIC;

-- Other forms of an id --------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION @extschema@.snowflake_shortcode(id bigint) RETURNS text
    AS 'MODULE_PATHNAME', 'snowflake_shortcode_wrapper'
    LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
COMMENT ON FUNCTION @extschema@.snowflake_shortcode(bigint) IS
'Returns an id, read as unsigned, in the form that Instagram uses in links: a number in base64url, 1 to 11 of the characters A-Z a-z 0-9 - _ without leading zeros. Case matters. Short codes do not sort as their ids do; the results of snowflake_text do.';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_from_shortcode(code text) RETURNS bigint
    AS 'MODULE_PATHNAME', 'snowflake_from_shortcode_wrapper'
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION @extschema@.snowflake_from_shortcode(text) IS
'Returns the id of a short code; the inverse of snowflake_shortcode. Accepts only what that function returns. Error: 22P02 if the code is empty or too long, contains another character, has a leading zero or stands for more than 64 bits.';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_text(id bigint) RETURNS text
    AS 'MODULE_PATHNAME', 'snowflake_text_wrapper'
    LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
COMMENT ON FUNCTION @extschema@.snowflake_text(bigint) IS
'Returns an id as 13 characters that sort as the ids do, including negative ones: id + 2^63 in Crockford''s base 32, 0-9 and A-Z without I, L, O, U. The order is that of the bytes, so declare columns with COLLATE "C". For JSON, URLs and file names.';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_from_text(text text) RETURNS bigint
    AS 'MODULE_PATHNAME', 'snowflake_from_text_wrapper'
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION @extschema@.snowflake_from_text(text) IS
'Returns the id of such a text; the inverse of snowflake_text. Accepts only what that function returns, not even lower case. Error: 22P02 if the text does not have 13 characters, contains another character or stands for more than 64 bits.';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_scatter(id bigint) RETURNS bigint
    AS 'MODULE_PATHNAME', 'snowflake_scatter_wrapper'
    LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
COMMENT ON FUNCTION @extschema@.snowflake_scatter(bigint) IS
'Returns an id with its 64 bits reversed, which spreads neighboring ids over the whole range of bigint, half of them negative. For engines that shard by key range and would otherwise have a hot spot at its end. Not for keys in PostgreSQL, where it makes inserts expensive.';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_unscatter(id bigint) RETURNS bigint
    AS 'MODULE_PATHNAME', 'snowflake_unscatter_wrapper'
    LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
COMMENT ON FUNCTION @extschema@.snowflake_unscatter(bigint) IS 'Returns the id that snowflake_scatter turned into this number.';

-- Shards and the columns that mint for them --------------------------------------------------------

-- The catalog's dependencies say which defaults call a minting function. Only the text of such defaults is read, to
-- find the shard in it. With this search_path PostgreSQL writes the name of a function in only one way, so that a
-- name stands for one function. The text is read token by token, so that a literal that looks like a call is not
-- taken for one.
--
-- The template becomes part of a statement, perhaps of a superuser for tables of others. PostgreSQL's parser runs the
-- input function of the type of a literal, and with it the CHECK of a domain, even one inside an array or a row. So
-- nothing but calls, text and a few types of PostgreSQL is ever in a template. Constants of other types would also
-- depend on settings such as DateStyle.
CREATE OR REPLACE FUNCTION @extschema@.idgen_read_default(
        "default" pg_node_tree,
        OUT shard integer, OUT expression text, OUT template text, OUT max_shard integer)
    RETURNS record
    LANGUAGE plpgsql STABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp    -- there a name stands for one function, and a bare number is an integer
    AS $$
DECLARE
    next_id CONSTANT text := left('@extschema@.snowflake_next_id(integer)'::regprocedure::text, -length('(integer)'));
    next_id_js CONSTANT text :=
        left('@extschema@.snowflake_next_id_js(integer)'::regprocedure::text, -length('(integer)'));
    -- A token is a call of any function with a readable shard, from which the name and the shard are taken, or
    -- something else: a literal, a qualified name, or a single character. The longest match counts.
    token CONSTANT text :=
        '(((?:[A-Za-z0-9_$.]|"(?:[^"]|"")*")+)[(](?:(?:shard|"shard") => )?([0-9]*)[)]'
        '|''(?:[^'']|'''')*''|(?:[A-Za-z0-9_$.]|"(?:[^"]|"")*")+|.)';
    known CONSTANT text := '^(''.*|"?text"?|numeric|character|varying|[(): |])$';
    -- A constant of any type but these, which are short in print or as long as they are stored: boolean, "char", name,
    -- bigint, smallint, integer, text, oid, real, double precision, unknown, character, character varying, date, time,
    -- timestamp, timestamptz, interval, timetz, regclass and uuid.
    long CONSTANT text := 'consttype (?!(16|18|19|2[01356]|70[015]|104[23]|108[23]|1114|1184|1186|1266|2205|2950) )';
    readable boolean;
    writable boolean;
    least text;
    greatest text;
BEGIN
    -- PostgreSQL raises an error for an expression that is nested too deeply, and for one that is not a default. It
    -- prints a constant of a few bytes, such as a numeric or an array of rows, as hundreds of megabytes. So the owner
    -- of one table could make the view fail for everybody. To catch the error would take a subtransaction.
    IF octet_length("default"::text) > 10000 OR "default"::text ~ long THEN
        expression := '/* not read: it could be too long */';
        RETURN;
    ELSIF strpos("default"::text, '{VAR ') + strpos("default"::text, '{QUERY ') > 0 THEN
        expression := '/* not a default */';
        RETURN;
    END IF;
    -- A default has no columns. With the relation, PostgreSQL would wait for a session that has locked it.
    expression := pg_get_expr("default", 0);
    SELECT count(call) > 0 AND bool_and(call IS NOT NULL OR part[1] NOT IN (next_id, next_id_js)),
           count(call) > 0 AND bool_and(call IS NOT NULL OR part[1] ~ known),
           min(part[3]) FILTER (WHERE call IS NOT NULL),
           max(part[3]) FILTER (WHERE call IS NOT NULL),
           string_agg(replace(coalesce(call, part[1]), '%', '%%')
                      || CASE WHEN call IS NULL THEN '' ELSE '(%1$s)' END, '' ORDER BY place),
           min(CASE call WHEN next_id THEN 8191 WHEN next_id_js THEN 255 END)
    INTO readable, writable, least, greatest, template, max_shard
    FROM regexp_matches(expression, token, 'g') WITH ORDINALITY AS tokens (part, place)
         CROSS JOIN LATERAL (SELECT CASE WHEN part[2] IN (next_id, next_id_js) THEN part[2] END AS call) AS ours;
    IF readable AND least = greatest THEN
        shard := nullif(least, '')::integer;
    END IF;
    IF NOT writable THEN
        template := NULL;
    END IF;
END
$$;
COMMENT ON FUNCTION @extschema@.idgen_read_default(pg_node_tree) IS
'Reads one default for idgen_columns: the default of a column, as stored in pg_attrdef, or that of a domain, as stored in pg_type. Returns its text; the shard for which its calls of snowflake_next_id or snowflake_next_id_js mint, null if there is none or more than one; the text with %1$s in place of the shard, for format(), null if it is not of a form that snowflake_assign_shard changes; and the greatest shard that the calls allow. Of an expression that could be too long or is not a default, it returns only a comment in place of the text.';

CREATE OR REPLACE FUNCTION @extschema@.idgen_columns(
        OUT "schema" text, OUT "table" text, OUT "column" text, OUT shard integer, OUT expression text,
        OUT template text, OUT relation oid, OUT max_shard integer, OUT namespace oid)
    RETURNS SETOF record
    LANGUAGE sql STABLE PARALLEL SAFE ROWS 100    -- and no SET, so that conditions reach the catalog
BEGIN ATOMIC
    -- pg_class has the schema of a table too, but no index that begins with it. The LIMIT makes the planner check
    -- each default whether it mints: if the catalog was never analyzed, it would turn an EXISTS into a scan of
    -- everything.
    SELECT n.nspname::text, c.relname::text, a.attname::text, d.shard, d.expression, d.template, c.oid, d.max_shard,
           n.oid
    FROM pg_namespace AS n
         JOIN pg_depend AS place ON place.refclassid = 'pg_namespace'::regclass AND place.refobjid = n.oid
                                    AND place.classid = 'pg_class'::regclass AND place.objsubid = 0
         JOIN pg_class AS c ON c.oid = place.objid AND c.relpersistence <> 't'
         JOIN pg_attrdef AS own ON own.adrelid = c.oid
         JOIN pg_attribute AS a ON a.attrelid = own.adrelid AND a.attnum = own.adnum
         CROSS JOIN LATERAL @extschema@.idgen_read_default(own.adbin) AS d
    WHERE (
        SELECT true FROM pg_depend AS use
        WHERE use.classid = 'pg_attrdef'::regclass AND use.objid = own.oid AND use.refclassid = 'pg_proc'::regclass
          AND use.refobjid IN ('@extschema@.snowflake_next_id()'::regprocedure,
                               '@extschema@.snowflake_next_id(integer)'::regprocedure,
                               '@extschema@.snowflake_next_id_js(integer)'::regprocedure)
        LIMIT 1)
    UNION ALL
    -- A column without a default of its own uses that of its domain.
    SELECT n.nspname::text, c.relname::text, a.attname::text, d.shard, d.expression, d.template, c.oid, d.max_shard,
           n.oid
    FROM pg_namespace AS n
         JOIN pg_depend AS place ON place.refclassid = 'pg_namespace'::regclass AND place.refobjid = n.oid
                                    AND place.classid = 'pg_class'::regclass AND place.objsubid = 0
         JOIN pg_class AS c ON c.oid = place.objid AND c.relpersistence <> 't' AND c.relkind IN ('r', 'p', 'f', 'v')
         JOIN pg_attribute AS a ON a.attrelid = c.oid AND NOT a.atthasdef AND NOT a.attisdropped
         JOIN pg_type AS t ON t.oid = a.atttypid AND t.typdefaultbin IS NOT NULL
         CROSS JOIN LATERAL @extschema@.idgen_read_default(t.typdefaultbin) AS d
    WHERE (
        SELECT true FROM pg_depend AS use
        WHERE use.classid = 'pg_type'::regclass AND use.objid = t.oid AND use.refclassid = 'pg_proc'::regclass
          AND use.refobjid IN ('@extschema@.snowflake_next_id()'::regprocedure,
                               '@extschema@.snowflake_next_id(integer)'::regprocedure,
                               '@extschema@.snowflake_next_id_js(integer)'::regprocedure)
        LIMIT 1);
END;
COMMENT ON FUNCTION @extschema@.idgen_columns() IS
'Returns the rows of the view idgen_columns, with more columns: template is the default with %1$s in place of its shard, for format(), null if it is not of a form that snowflake_assign_shard changes; relation and namespace are the OIDs of the table and its schema, and a condition on them is found by an index; max_shard is the greatest shard that the calls allow.';

CREATE VIEW @extschema@.idgen_columns AS
    SELECT "schema", "table", "column", shard, expression FROM @extschema@.idgen_columns();
COMMENT ON VIEW @extschema@.idgen_columns IS 'All columns whose default calls snowflake_next_id or snowflake_next_id_js, with the shard it mints for: of the tables, partitions, inheritance children, foreign tables and views of this database, except temporary ones. Found by the dependencies in the catalog, so triggers, and defaults that call one of these functions by way of another one, are not shown.';
COMMENT ON COLUMN @extschema@.idgen_columns.schema IS 'Schema of the table.';
COMMENT ON COLUMN @extschema@.idgen_columns.table IS 'Name of the table, partition, child, foreign table or view.';
COMMENT ON COLUMN @extschema@.idgen_columns.column IS 'Name of the column.';
COMMENT ON COLUMN @extschema@.idgen_columns.shard IS 'Shard that the default mints for. Null for snowflake_next_id(), which uses the shard of the session, and if the shard is not a constant or there is more than one.';
COMMENT ON COLUMN @extschema@.idgen_columns.expression IS 'The default: that of the column or, if it has none, that of its domain. A comment in place of one of more than 10,000 bytes as stored, or with a constant of a type that could be long, such as numeric or an array.';
GRANT SELECT ON @extschema@.idgen_columns TO PUBLIC;

CREATE OR REPLACE FUNCTION @extschema@.idgen_allows(shard integer) RETURNS boolean
    AS 'MODULE_PATHNAME', 'idgen_allows_wrapper'
    LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION @extschema@.idgen_allows(integer) IS
'Tests whether idgen.allowed_shards lets this server mint for a shard. For finding columns of idgen_columns for which it may not.';

CREATE OR REPLACE FUNCTION @extschema@.idgen_has_integer(expression pg_node_tree, number integer) RETURNS boolean
    AS 'MODULE_PATHNAME', 'idgen_has_integer_wrapper'
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION @extschema@.idgen_has_integer(pg_node_tree, integer) IS
'Tests whether an expression of the catalog contains the number as a constant of type integer, or a constant with the same four bytes. For finding defaults that might mint for a shard, many times faster than idgen_columns can read them.';

CREATE OR REPLACE FUNCTION @extschema@.snowflake_assign_shard(
        "schema" regnamespace, shard integer, share boolean DEFAULT false)
    RETURNS TABLE ("table" text, "column" text, old_default text, new_default text)
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
    SET search_path = pg_catalog, pg_temp
    -- A generic plan serves a session that assigns thousands of schemas; the planner overestimates its cost.
    SET plan_cache_mode = force_generic_plan
    SET jit = off
    AS $$
#variable_conflict use_column
DECLARE
    target CONSTANT regnamespace := snowflake_assign_shard.schema;
    new_shard CONSTANT integer := snowflake_assign_shard.shard;
    target_name CONSTANT name := (SELECT nspname FROM pg_namespace WHERE oid = target);
    tables oid[];
    list text;
    relations oid[] := '{}';
    columns text[] := '{}';
    item record;
BEGIN
    IF target IS NULL OR new_shard IS NULL OR share IS NULL THEN
        RAISE EXCEPTION 'argument "%" must not be null',
                CASE WHEN target IS NULL THEN 'schema' WHEN new_shard IS NULL THEN 'shard' ELSE 'share' END
            USING ERRCODE = '22004', DETAIL = 'idgen does not accept null for this argument.',
                  HINT = 'Pass a value that is not null.';
    ELSIF new_shard NOT BETWEEN 0 AND 8191 THEN
        RAISE EXCEPTION 'shard % is out of range', new_shard
            USING ERRCODE = '22023', DETAIL = 'The shard of an id of idgen must be between 0 and 8191.',
                  HINT = 'Pass a shard in this range.';
    ELSIF target_name IS NULL THEN
        RAISE EXCEPTION 'schema with OID % does not exist', target::oid
            USING ERRCODE = '3F000', DETAIL = 'snowflake_assign_shard was given this OID.',
                  HINT = 'Give the schema by its name.';
    ELSIF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        RAISE EXCEPTION 'snowflake_assign_shard() must run in a READ COMMITTED transaction'
            USING ERRCODE = '25001',
                  DETAIL = 'An older snapshot would not show defaults and shards that others have changed since.',
                  HINT = 'Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.';
    END IF;

    -- Only one call at a time in a database, so that two calls that assign one shard to two schemas see each other,
    -- and two calls for one schema do not wait for each other's tables.
    PERFORM pg_advisory_xact_lock('pg_extension'::regclass::oid::integer, oid::integer)
    FROM pg_extension WHERE extname = 'idgen';

    -- The names below were written when the extension was created. If the schema was renamed since, others may own
    -- objects of these names. It could also be renamed while this call waits for a lock.
    IF to_regnamespace('@extschema@') IS DISTINCT FROM (SELECT extnamespace FROM pg_extension WHERE extname = 'idgen') THEN
        RAISE EXCEPTION 'the schema of the extension has been renamed'
            USING ERRCODE = '55000', DETAIL = 'The name of idgen''s schema was @extschema@ when the extension was created.',
                  HINT = 'Rename it back.';
    END IF;

    IF NOT share THEN
        -- Among thousands of tables, examine only those with the number in a default that mints. If it is in the
        -- default of a domain, any table may be concerned. An EXISTS would be evaluated for all of them at once.
        tables := ARRAY(
            SELECT d.adrelid FROM pg_attrdef AS d
            WHERE CASE WHEN @extschema@.idgen_has_integer(d.adbin, new_shard) THEN (
                SELECT true FROM pg_depend AS use JOIN pg_class AS c ON c.oid = d.adrelid AND c.relnamespace <> target
                WHERE use.classid = 'pg_attrdef'::regclass AND use.objid = d.oid
                  AND use.refclassid = 'pg_proc'::regclass
                  AND use.refobjid IN ('@extschema@.snowflake_next_id(integer)'::regprocedure,
                                       '@extschema@.snowflake_next_id_js(integer)'::regprocedure)
                LIMIT 1) END);
        IF EXISTS (SELECT FROM pg_type AS t
                   WHERE t.typtype = 'd' AND @extschema@.idgen_has_integer(t.typdefaultbin, new_shard)) THEN
            tables := ARRAY(SELECT c.oid FROM pg_class AS c);
        END IF;
        IF tables <> '{}' THEN
            SELECT string_agg(DISTINCT quote_ident(c.schema), ', ') INTO list
            FROM @extschema@.idgen_columns() AS c
            WHERE c.relation = ANY (tables) AND c.shard = new_shard AND c.namespace <> target;
        END IF;
        IF list IS NOT NULL THEN
            RAISE EXCEPTION 'shard % is in use by another schema', new_shard
                USING ERRCODE = '55006', DETAIL = format('Columns of these schemas mint for it with idgen: %s.', list),
                      HINT = 'Choose another shard or, if the schemas are to share it, pass share => true.';
        END IF;
    END IF;

    -- Take all locks first; after that, the defaults can be read and no longer change. Tables that refer to others
    -- are usually younger, and an INSERT locks them first. Views and foreign tables cannot be locked, and need not
    -- be.
    FOR item IN
        SELECT DISTINCT c.relation, c.table
        FROM @extschema@.idgen_columns() AS c JOIN pg_class AS k ON k.oid = c.relation
        WHERE c.namespace = target AND c.shard IS DISTINCT FROM new_shard AND k.relkind IN ('r', 'p')
        ORDER BY c.relation DESC
    LOOP
        EXECUTE format('LOCK TABLE ONLY %I.%I IN ACCESS EXCLUSIVE MODE', target_name, item.table);
    END LOOP;

    IF to_regnamespace('@extschema@') IS DISTINCT FROM (SELECT extnamespace FROM pg_extension WHERE extname = 'idgen') THEN
        RAISE EXCEPTION 'the schema of the extension has been renamed'
            USING ERRCODE = '55000', DETAIL = 'The name of idgen''s schema was @extschema@ when the extension was created.',
                  HINT = 'Rename it back.';
    END IF;

    SELECT count(*),
           string_agg(c.what, '; ' ORDER BY c.relation, c.column COLLATE "C") FILTER (WHERE c.other) AS other,
           min(format('%I.%I ALTER COLUMN %I', c.schema, c.table, c.column) COLLATE "C") FILTER (WHERE c.other) AS place,
           string_agg(c.what, '; ' ORDER BY c.relation, c.column COLLATE "C")
               FILTER (WHERE c.max_shard < new_shard) AS narrow
    INTO item
    FROM (SELECT *, format('%I.%I DEFAULT %s', "table", "column", expression) AS what,
                 template IS NULL AND shard IS DISTINCT FROM new_shard AS other
          FROM @extschema@.idgen_columns() WHERE namespace = target) AS c;
    IF item.other IS NOT NULL THEN
        RAISE EXCEPTION 'schema "%" has a default that cannot be rewritten', target_name
            USING ERRCODE = '0A000',
                  DETAIL = format('snowflake_assign_shard rewrites only calls with a number, alone, joined to text, or cast to '
                                  'text, varchar or numeric, because anything else could run code of others. These are '
                                  'not: %s.', item.other),
                  HINT = format('The owner of the table can give it the shard: ALTER TABLE ONLY %s SET DEFAULT.', item.place);
    ELSIF item.count = 0 THEN
        RAISE NOTICE 'schema "%" has no column whose default calls snowflake_next_id', target_name
            USING HINT = 'Calls in triggers, or by way of another function, are not detected.';
    ELSIF item.narrow IS NOT NULL THEN
        RAISE EXCEPTION 'shard % is out of range', new_shard
            USING ERRCODE = '22023',
                  DETAIL = format('The shard of an id of snowflake_next_id_js must be between 0 and 255. '
                                  'These defaults call it: %s.', item.narrow),
                  HINT = 'Choose a lower shard, or use snowflake_next_id for these columns.';
    END IF;

    FOR item IN
        SELECT c.relation, c.table, c.column, c.expression, format(c.template, new_shard) AS new_expression
        FROM @extschema@.idgen_columns() AS c
        WHERE c.namespace = target AND c.shard IS DISTINCT FROM new_shard
        ORDER BY c.relation, c.column COLLATE "C"
    LOOP
        EXECUTE format('ALTER TABLE ONLY %I.%I ALTER COLUMN %I SET DEFAULT %s',
                       target_name, item.table, item.column, item.new_expression);
        -- The statement names schemas, the table and the function. They could have been renamed before it locked them.
        -- Of the table's defaults only this one is printed: others may be nested too deeply.
        IF pg_get_expr((
               SELECT d.adbin
               FROM pg_attrdef AS d JOIN pg_attribute AS a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
               WHERE d.adrelid = item.relation AND a.attname = item.column AND EXISTS (
                   SELECT FROM pg_depend AS use
                        JOIN pg_depend AS own ON own.classid = 'pg_proc'::regclass AND own.objid = use.refobjid
                        JOIN pg_extension AS e ON e.oid = own.refobjid AND e.extname = 'idgen'
                   WHERE use.classid = 'pg_attrdef'::regclass AND use.objid = d.oid
                     AND use.refclassid = 'pg_proc'::regclass
                     AND own.refclassid = 'pg_extension'::regclass AND own.deptype = 'e')
               ), 0) IS DISTINCT FROM item.new_expression THEN
            RAISE EXCEPTION 'a table or schema was renamed concurrently'
                USING ERRCODE = '40001',
                      DETAIL = format('snowflake_assign_shard did not give column %I.%I its default.', item.table, item.column),
                      HINT = 'Try again.';
        END IF;
        relations := relations || item.relation;
        columns := columns || item.column;
        "table" := item.table;
        "column" := item.column;
        old_default := item.expression;
        new_default := item.new_expression;
        RETURN NEXT;
    END LOOP;

    -- Constraints that let no new row in are found by what the catalog says that they depend on. Nothing of them is
    -- evaluated or printed. Those that a partition or child inherits are named once, with the parent. Those of domains
    -- are looked up by their dependency: as most constraints are of no domain, the planner would read all of them.
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
    SELECT string_agg(DISTINCT format('%I of %s', conname, place) COLLATE "C", ', ') INTO list
    FROM checks
    WHERE (SELECT true FROM pg_depend AS use
           WHERE use.classid = 'pg_constraint'::regclass AND use.objid = checks.oid
             AND use.refclassid = 'pg_proc'::regclass
             AND use.refobjid = '@extschema@.shard_of(bigint)'::regprocedure
           LIMIT 1)
      AND NOT @extschema@.idgen_has_integer(conbin, new_shard);
    IF list IS NOT NULL THEN
        RAISE WARNING 'constraints may refuse ids of shard %', new_shard
            USING DETAIL = format('These call shard_of, and do not name the shard: %s.', list),
                  HINT = 'If they do, assign the previous shard again, and change them first, as docs/shards.md says.';
    END IF;
END
$$;
COMMENT ON FUNCTION @extschema@.snowflake_assign_shard(regnamespace, integer, boolean) IS
'Makes every default in a schema that calls snowflake_next_id or snowflake_next_id_js mint for a shard (0 to 8191; 0 to 255 if one calls the latter), all in the caller''s transaction, and returns the columns that it changed. The rest of such a default stays as it is; a column that takes its default from a domain gets one of its own. The caller must own the tables. Takes an ACCESS EXCLUSIVE lock on each table that it changes until the end of the transaction, so set lock_timeout. Warns of constraints, also of partitions and children, that call shard_of and do not name the shard, but not of partition keys or views. Errors: 22004 null argument, 22023 shard out of range, 25001 in REPEATABLE READ or SERIALIZABLE, 3F000 schema does not exist, 55006 shard in use by another schema of this database and share not given, 0A000 a default that is more than a call with a number, 40001 a table or schema renamed meanwhile, 42501 not the owner, 55000 schema of the extension renamed.';

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
    AS 'MODULE_PATHNAME', 'idgen_status_0_2_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 1;
COMMENT ON FUNCTION @extschema@.idgen_status() IS
'Returns the row of the view idgen_status, without the settings. Error: 55000 if the library has to be preloaded.';

CREATE VIEW @extschema@.idgen_status AS
    SELECT s.*,
           current_setting('idgen.shard')::integer AS shard,
           current_setting('idgen.allowed_shards') AS allowed_shards,
           current_setting('idgen.max_ahead') AS max_ahead,
           current_setting('idgen.max_wait') AS max_wait,
           current_setting('idgen.max_lease')::integer AS max_lease,
           current_setting('idgen.reserve_ahead') AS reserve_ahead,
           current_setting('idgen.max_clock_jump') AS max_clock_jump
    FROM @extschema@.idgen_status() AS s;
COMMENT ON VIEW @extschema@.idgen_status IS 'The clock of the ids, its safeguards, and the settings in effect: one row.';
COMMENT ON COLUMN @extschema@.idgen_status.epoch IS 'Setting idgen.epoch: the time of tick 0; null if its configured value is invalid.';
COMMENT ON COLUMN @extschema@.idgen_status.now_tick IS 'The system clock in milliseconds since the epoch; null if it is before the epoch.';
COMMENT ON COLUMN @extschema@.idgen_status.ahead_ms IS 'Milliseconds by which the furthest shard has run ahead of the system clock; 0 if none has. For ids of snowflake_next_id_js the beginning of their second counts.';
COMMENT ON COLUMN @extschema@.idgen_status.shards_in_use IS 'Number of shards for which ids were minted or snowflake_advance was called since the server started: the rows of idgen_shard_stats whose last_id is not null. A shard counts twice if both layouts are, as they are for shards up to 255 after snowflake_advance.';
COMMENT ON COLUMN @extschema@.idgen_status.mark IS 'The durable high-water mark: every id ever minted in this cluster is of an earlier tick. Null before the first id. On a standby, the mark as far as it has been replayed.';
COMMENT ON COLUMN @extschema@.idgen_status.mark_at IS 'The mark as a timestamp; null if it counts from another epoch.';
COMMENT ON COLUMN @extschema@.idgen_status.mark_kept_in IS 'Where PostgreSQL keeps the mark: WAL-logged, checkpointed and replicated.';
COMMENT ON COLUMN @extschema@.idgen_status.window_left_ms IS 'Milliseconds of ids that can be minted before the mark must be renewed; 0 before the first id since the server started, and on a standby.';
COMMENT ON COLUMN @extschema@.idgen_status.renewals IS 'Number of times the mark was renewed since the server started.';
COMMENT ON COLUMN @extschema@.idgen_status.flush_ms IS 'Total time, in milliseconds, from the writing of marks until they were durable, also on synchronous standbys. Of a mark that was found durable, at most 250 ms count.';
COMMENT ON COLUMN @extschema@.idgen_status.clock_steps_back IS 'Number of backward jumps of the system clock, of 10 ms or more, detected since the server started: when the mark is renewed, and when this view is read.';
COMMENT ON COLUMN @extschema@.idgen_status.clock_steps_forward IS 'Number of forward jumps of the system clock, of 10 ms or more, detected since the server started: when the mark is renewed, and when this view is read.';
COMMENT ON COLUMN @extschema@.idgen_status.ends_at IS 'The last millisecond in which ids can be minted: 2^40 - 1 milliseconds after the epoch. The next one would make them negative. Ids of snowflake_next_id_js can be minted until its second ends.';
COMMENT ON COLUMN @extschema@.idgen_status.years_left IS 'Years of 365.25 days until ends_at.';
COMMENT ON COLUMN @extschema@.idgen_status.warning IS 'The worst problem that may take the server down or keep ids from being minted, in this order: too few replication origins for the mark, a mark that has been removed since the server started, a configured value that was not accepted, no list of shards on a server that preloads Citus, a clock before the epoch, a mark that counts from another epoch or is too far ahead of the clock (on a standby, one that would keep it from minting after a promotion), a forward jump of the clock, standbys that do not acknowledge the mark, a clock behind the ids, a value in the configuration files that is not in effect, the end of the range within 5 years, or idgen.max_clock_jump left at -1. Null if there is none.';
COMMENT ON COLUMN @extschema@.idgen_status.warning_code IS 'A short word for the warning, for programs. It does not change when the text does.';
COMMENT ON COLUMN @extschema@.idgen_status.warning_hint IS 'What to do about the warning.';
COMMENT ON COLUMN @extschema@.idgen_status.mints IS 'Whether a call for an id of an allowed shard would succeed now, perhaps after waiting. False during recovery. A single shard may still have run out of ids, or be ahead of a clock that was set back.';
COMMENT ON COLUMN @extschema@.idgen_status.closed_shards IS 'Shards that snowflake_close_shard has closed on this server, as in idgen.allowed_shards; empty if there are none.';
COMMENT ON COLUMN @extschema@.idgen_status.shard IS 'Setting idgen.shard of this session; -1 means unset.';
COMMENT ON COLUMN @extschema@.idgen_status.allowed_shards IS 'Setting idgen.allowed_shards; empty means all shards, or none on a server that preloads Citus.';
COMMENT ON COLUMN @extschema@.idgen_status.max_ahead IS 'Setting idgen.max_ahead.';
COMMENT ON COLUMN @extschema@.idgen_status.max_wait IS 'Setting idgen.max_wait of this session.';
COMMENT ON COLUMN @extschema@.idgen_status.max_lease IS 'Setting idgen.max_lease of this session.';
COMMENT ON COLUMN @extschema@.idgen_status.reserve_ahead IS 'Setting idgen.reserve_ahead.';
COMMENT ON COLUMN @extschema@.idgen_status.max_clock_jump IS 'Setting idgen.max_clock_jump; -1 disables the check.';
GRANT SELECT ON @extschema@.idgen_status TO PUBLIC;

CREATE OR REPLACE FUNCTION @extschema@.idgen_shard_stats(
        OUT shard integer, OUT layout text, OUT ids bigint, OUT leases bigint, OUT waits bigint,
        OUT waited_ms double precision,
        OUT last_id bigint, OUT ids_per_second double precision, OUT stats_reset timestamptz,
        OUT closed boolean)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'idgen_shard_stats_0_2_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 100;
COMMENT ON FUNCTION @extschema@.idgen_shard_stats() IS
'Returns the rows of the view idgen_shard_stats. Error: 55000 if the library has to be preloaded.';

CREATE VIEW @extschema@.idgen_shard_stats AS SELECT * FROM @extschema@.idgen_shard_stats();
COMMENT ON VIEW @extschema@.idgen_shard_stats IS 'One row for each shard used or closed since the server started, in each layout, with counters that snowflake_stats_reset() resets. For members of pg_monitor.';
COMMENT ON COLUMN @extschema@.idgen_shard_stats.shard IS 'The logical shard.';
COMMENT ON COLUMN @extschema@.idgen_shard_stats.layout IS 'Layout of the ids: idgen, or js53 for those of snowflake_next_id_js, which have slots of their own.';
COMMENT ON COLUMN @extschema@.idgen_shard_stats.ids IS 'Ids handed to backends, including those of leases that were not used up in their millisecond.';
COMMENT ON COLUMN @extschema@.idgen_shard_stats.leases IS 'Runs of ids handed to backends, each by one visit to shared memory.';
COMMENT ON COLUMN @extschema@.idgen_shard_stats.waits IS 'Calls that had to wait, including those that failed or were canceled.';
COMMENT ON COLUMN @extschema@.idgen_shard_stats.waited_ms IS 'Total time that these calls waited, in milliseconds.';
COMMENT ON COLUMN @extschema@.idgen_shard_stats.last_id IS 'No id after this one has been handed to a backend since the server started: the end of the last lease, used or not, or what snowflake_advance went past. Null if calls have only waited so far. Not changed by a reset.';
COMMENT ON COLUMN @extschema@.idgen_shard_stats.ids_per_second IS 'The column ids divided by the seconds since stats_reset. Null if the clock has been set back to before that.';
COMMENT ON COLUMN @extschema@.idgen_shard_stats.stats_reset IS 'Time from which the counters count: the start of the server, also after a crash, or the last snowflake_stats_reset().';
COMMENT ON COLUMN @extschema@.idgen_shard_stats.closed IS 'Whether snowflake_close_shard has closed the shard on this server.';

REVOKE ALL ON FUNCTION @extschema@.idgen_shard_stats() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION @extschema@.idgen_shard_stats() TO pg_monitor;
GRANT SELECT ON @extschema@.idgen_shard_stats TO pg_monitor;

CREATE OR REPLACE FUNCTION @extschema@.idgen_refusals(
        OUT reason text, OUT sqlstate text, OUT refused bigint, OUT stats_reset timestamptz)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'idgen_refusals_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 19;
COMMENT ON FUNCTION @extschema@.idgen_refusals() IS
'Returns the rows of the view idgen_refusals. Error: 55000 if the library has to be preloaded.';

CREATE VIEW @extschema@.idgen_refusals AS SELECT * FROM @extschema@.idgen_refusals();
COMMENT ON VIEW @extschema@.idgen_refusals IS 'Calls that idgen has refused, one row for each reason: calls of the functions that mint, of snowflake_advance and of snowflake_safe_horizon. For members of pg_monitor.';
COMMENT ON COLUMN @extschema@.idgen_refusals.reason IS 'Why calls were refused; the reference lists the error for each reason.';
COMMENT ON COLUMN @extschema@.idgen_refusals.sqlstate IS 'SQLSTATE of the error.';
COMMENT ON COLUMN @extschema@.idgen_refusals.refused IS 'Calls that failed for this reason since stats_reset, even if the error was caught. Canceled calls are not counted.';
COMMENT ON COLUMN @extschema@.idgen_refusals.stats_reset IS 'Time from which the counters count: the start of the server, also after a crash, or the last snowflake_stats_reset().';

REVOKE ALL ON FUNCTION @extschema@.idgen_refusals() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION @extschema@.idgen_refusals() TO pg_monitor;
GRANT SELECT ON @extschema@.idgen_refusals TO pg_monitor;

CREATE OR REPLACE FUNCTION @extschema@.snowflake_stats_reset() RETURNS void
    AS 'MODULE_PATHNAME', 'snowflake_stats_reset_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION @extschema@.snowflake_stats_reset() IS
'Resets the counters ids, leases, waits and waited_ms of idgen_shard_stats, for all shards, and those of idgen_refusals. Not executable by PUBLIC. Error: 55000 if the library has to be preloaded.';
REVOKE ALL ON FUNCTION @extschema@.snowflake_stats_reset() FROM PUBLIC;

CREATE OR REPLACE FUNCTION @extschema@.snowflake_check() RETURNS timestamptz
    AS 'MODULE_PATHNAME', 'snowflake_check_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION @extschema@.snowflake_check() IS
'Checks whether this server mints ids, without minting one: does what snowflake_next_id does except for taking an id, and raises its error if the reason concerns more than one shard. Like a call for an id it may wait, and renews the mark if that is due. Returns the time up to which ids can be minted before the mark must be renewed. Refusals are not counted. For members of pg_monitor. Errors: 2200H range of ids used up, 25006 during recovery, 53400 no free replication origin, 55000 otherwise.';
REVOKE ALL ON FUNCTION @extschema@.snowflake_check() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION @extschema@.snowflake_check() TO pg_monitor;

-- What DROP EXTENSION idgen CASCADE drops besides the extension, found by the dependencies in the catalog as PostgreSQL
-- does: an object is dropped along with anything that it depends on, and an internal part of another object (of a
-- table, or of another extension) takes that object along.
CREATE OR REPLACE FUNCTION @extschema@.idgen_dependents(
        OUT kind text, OUT object text, OUT data text, OUT bytes bigint, OUT depends_on text, OUT statement text,
        OUT classid oid, OUT objid oid, OUT objsubid integer, OUT is_part boolean)
    RETURNS SETOF record
    LANGUAGE sql STABLE PARALLEL RESTRICTED ROWS 100
    SET search_path = pg_catalog, pg_temp
    SET enable_nestloop = off    -- the planner takes thousands of partitions for a few
    SET jit = off
BEGIN ATOMIC
    WITH RECURSIVE gone AS (
        SELECT tableoid AS classid, oid AS objid, 0 AS objsubid FROM pg_extension WHERE extname = 'idgen'
        UNION
        SELECT next.classid, next.objid, next.objsubid
        FROM gone AS g CROSS JOIN LATERAL (
            SELECT d.classid, d.objid, d.objsubid
            FROM pg_depend AS d
            WHERE d.refclassid = g.classid AND d.refobjid = g.objid AND g.objsubid IN (0, d.refobjsubid)
            UNION ALL
            SELECT d.refclassid, d.refobjid, d.refobjsubid
            FROM pg_depend AS d
            WHERE d.classid = g.classid AND d.objid = g.objid AND g.objsubid IN (0, d.objsubid)
              AND d.deptype IN ('i', 'e')
        ) AS next
    ),
    -- The extension, its members and their internal parts.
    own AS (
        SELECT tableoid AS classid, oid AS objid FROM pg_extension WHERE extname = 'idgen'
        UNION
        SELECT d.classid, d.objid
        FROM own AS o JOIN pg_depend AS d ON d.refclassid = o.classid AND d.refobjid = o.objid
        WHERE d.deptype IN ('i', 'e')
    ),
    -- A column is left out if its table is shown.
    dependents AS (
        SELECT g.classid, g.objid, g.objsubid, c.relkind,
               coalesce(g.objsubid = 0 AND c.relkind IN ('r', 'p', 'f', 'm'), false) AS is_table
        FROM gone AS g LEFT JOIN pg_class AS c ON g.classid = 'pg_class'::regclass AND c.oid = g.objid
        WHERE (g.classid, g.objid) NOT IN (SELECT o.classid, o.objid FROM own AS o)
          AND (g.objsubid = 0
               OR (g.classid, g.objid, 0) NOT IN (SELECT w.classid, w.objid, w.objsubid FROM gone AS w))
    ),
    -- Why they are dropped: what each of them depends on, in the extension or among themselves.
    reasons AS (
        SELECT f.classid, f.objid, f.objsubid, f.is_table, d.deptype,
               d.refclassid, d.refobjid, coalesce(t.objsubid, 0) AS refobjsubid, t.objid IS NULL AS is_own
        FROM dependents AS f
             JOIN pg_depend AS d ON d.classid = f.classid AND d.objid = f.objid AND f.objsubid IN (0, d.objsubid)
             LEFT JOIN dependents AS t ON t.classid = d.refclassid AND t.objid = d.refobjid
                                          AND t.objsubid IN (0, d.refobjsubid)
        WHERE (t.objid IS NOT NULL
               OR (d.refclassid, d.refobjid) IN (SELECT o.classid, o.objid FROM own AS o))
          AND (d.refclassid, d.refobjid) <> (f.classid, f.objid)
    ),
    -- Objects left out if the object that they are part of is shown: the row type of a table, its constraints, the
    -- index of a constraint, the expression of a generated column, the same index on each partition. Tables are
    -- always shown.
    parts AS (
        SELECT DISTINCT r.classid, r.objid, r.objsubid
        FROM reasons AS r
        WHERE NOT r.is_table AND NOT r.is_own
          AND (r.deptype IN ('i', 'e', 'P')
               OR r.deptype = 'a' AND (r.refobjsubid = 0 OR r.classid = 'pg_attrdef'::regclass))
    ),
    -- The reasons of an internal part count for the whole: a view depends on nothing, but its rule does.
    reasons_of_whole AS (
        SELECT coalesce(p.refclassid, r.classid) AS classid, coalesce(p.refobjid, r.objid) AS objid,
               coalesce(p.refobjsubid, r.objsubid) AS objsubid, r.refclassid, r.refobjid, r.refobjsubid
        FROM reasons AS r
             LEFT JOIN reasons AS p ON p.deptype = 'i' AND p.classid = r.classid AND p.objid = r.objid
                                       AND p.objsubid = r.objsubid
    ),
    why AS (
        SELECT r.classid, r.objid, r.objsubid,
               string_agg(DISTINCT i.identity COLLATE "C", ', ') AS identities,
               bool_or(r.refclassid = 'pg_proc'::regclass) AS by_function
        FROM reasons_of_whole AS r
             CROSS JOIN LATERAL pg_identify_object(r.refclassid, r.refobjid, r.refobjsubid) AS i
        WHERE (r.refclassid, r.refobjid, r.refobjsubid) <> (r.classid, r.objid, r.objsubid)
        GROUP BY r.classid, r.objid, r.objsubid
    )
    SELECT i.type, i.identity, l.data,
           CASE WHEN l.data IS NOT NULL AND d.relkind IN ('r', 'm') THEN pg_table_size(d.objid) END,
           w.identities,
           CASE WHEN t.typtype = 'd' AND w.by_function THEN format('ALTER DOMAIN %s DROP DEFAULT', i.identity)
                WHEN pg_is_other_temp_schema(n.oid) THEN NULL
                WHEN a.attgenerated = 's' AND a.attinhcount = 0 AND d.objsubid <> 0 AND w.by_function THEN
                    format('ALTER TABLE %I.%I ALTER COLUMN %I DROP EXPRESSION', n.nspname, c.relname, a.attname)
                WHEN e.oid IS NOT NULL AND a.attgenerated = '' AND w.by_function THEN
                    format('ALTER TABLE ONLY %I.%I ALTER COLUMN %I DROP DEFAULT', n.nspname, c.relname, a.attname)
           END,
           d.classid, d.objid, d.objsubid, p.objid IS NOT NULL
    FROM dependents AS d
         CROSS JOIN LATERAL pg_identify_object(d.classid, d.objid, d.objsubid) AS i
         LEFT JOIN parts AS p ON p.classid = d.classid AND p.objid = d.objid AND p.objsubid = d.objsubid
         LEFT JOIN why AS w ON w.classid = d.classid AND w.objid = d.objid AND w.objsubid = d.objsubid
         LEFT JOIN pg_type AS t ON d.classid = 'pg_type'::regclass AND t.oid = d.objid
         LEFT JOIN pg_attrdef AS e ON d.classid = 'pg_attrdef'::regclass AND e.oid = d.objid
         LEFT JOIN pg_attribute AS a
             ON a.attrelid = CASE WHEN d.relkind IS NULL THEN e.adrelid ELSE d.objid END
                AND a.attnum = CASE WHEN d.relkind IS NULL THEN e.adnum ELSE d.objsubid END
         LEFT JOIN pg_class AS c ON c.oid = a.attrelid
         LEFT JOIN pg_namespace AS n ON n.oid = c.relnamespace
         CROSS JOIN LATERAL (
             SELECT CASE WHEN d.objsubid = 0 AND d.relkind IN ('r', 'p', 'm') THEN 'rows'
                         WHEN d.objsubid <> 0 AND d.relkind IN ('r', 'p', 'c') AND a.attgenerated <> 'v'
                             THEN 'values'
                    END AS data
         ) AS l
    WHERE i.identity IS NOT NULL
    ORDER BY l.data COLLATE "C", i.type COLLATE "C", i.identity COLLATE "C";
END;
COMMENT ON FUNCTION @extschema@.idgen_dependents() IS
'Returns the rows of the view idgen_dependents and, with is_part set, the parts of the objects shown; also the address of each object in the catalogs, as in pg_depend.';

CREATE VIEW @extschema@.idgen_dependents AS
    SELECT kind, object, data, bytes, depends_on, statement FROM @extschema@.idgen_dependents() WHERE NOT is_part;
COMMENT ON VIEW @extschema@.idgen_dependents IS 'What DROP EXTENSION idgen CASCADE would drop from this database besides idgen, objects with data first; empty if DROP EXTENSION idgen drops nothing else. Found by the dependencies in the catalog, which do not cover functions in PL/pgSQL or functions whose SQL is a string, what calls them, or other databases. Parts of an object shown are left out, such as the indexes and constraints of a table, or the same index on each partition.';
COMMENT ON COLUMN @extschema@.idgen_dependents.kind IS 'Kind of the object as pg_identify_object reports it: table, table column, default value, index; a domain is a type.';
COMMENT ON COLUMN @extschema@.idgen_dependents.object IS 'Schema-qualified name of the object.';
COMMENT ON COLUMN @extschema@.idgen_dependents.data IS 'Data that would be lost and that no definition can restore: rows for all rows of a table, partition or materialized view, values for all values of a column. Null if there is none, as for a foreign table.';
COMMENT ON COLUMN @extschema@.idgen_dependents.bytes IS 'Size of the table, without its indexes; for a column, the size of its table. Null if there is no data, and for a partitioned table, whose partitions have it.';
COMMENT ON COLUMN @extschema@.idgen_dependents.depends_on IS 'Why it would be dropped: the objects on which it depends, of idgen or in this list.';
COMMENT ON COLUMN @extschema@.idgen_dependents.statement IS 'A statement that removes the dependency and keeps all data: for a default, a domain with a default, or a stored generated column. The column keeps its values and gets no new ones. Null if there is no simple statement, for a partition or child that inherits the dependency from its parent, and for temporary tables of other sessions.';
GRANT SELECT ON @extschema@.idgen_dependents TO PUBLIC;

CREATE OR REPLACE FUNCTION @extschema@.idgen_begin() RETURNS boolean
    AS 'MODULE_PATHNAME', 'idgen_begin_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.idgen_begin() IS
'Called by CREATE EXTENSION. On a server that mints without a preload, lets all sessions mint: writes a first high-water mark, which lies before all ids, if the session belongs to a superuser and there is room for the mark. Returns whether it has written one. Error: 55000 if the library has to be preloaded.';
REVOKE ALL ON FUNCTION @extschema@.idgen_begin() FROM PUBLIC;

CREATE OR REPLACE FUNCTION @extschema@.snowflake_remove_mark() RETURNS boolean
    AS 'MODULE_PATHNAME', 'snowflake_remove_mark_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.snowflake_remove_mark() IS
'Permanently removes the high-water mark from the cluster, including its standbys, and returns whether there was one: the last step before DROP EXTENSION idgen. Takes effect at once, even if the transaction is rolled back, and a checkpoint follows. Nothing is minted from then on until the server is restarted. If idgen is ever installed again, only the clock keeps ids from being repeated. For superusers only. Errors: 42501 not a superuser, 55000 mark written since the server started, 25006 during recovery or in a read-only transaction, 53400 no room for the mark, which PostgreSQL has therefore left on disk.';
REVOKE ALL ON FUNCTION @extschema@.snowflake_remove_mark() FROM PUBLIC;

CREATE OR REPLACE FUNCTION @extschema@.snowflake_accept_epoch(epoch timestamptz) RETURNS boolean
    AS 'MODULE_PATHNAME', 'snowflake_accept_epoch_wrapper'
    LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.snowflake_accept_epoch(timestamptz) IS
'Makes the ids of this cluster count from another epoch from now on: the given one, to which idgen.epoch must have been set before. Until it is accepted, no ids are minted. Returns whether there was anything to accept. Ids minted earlier then decode to wrong times, but none of them is repeated. For superusers only. Errors: 42501 not a superuser, 55000 library that has to be preloaded, configured idgen.epoch not accepted, or clock before the epoch, 22023 epoch differs from idgen.epoch, 25006 during recovery, 2200H clock past the range of ids or mark at its end.';
REVOKE ALL ON FUNCTION @extschema@.snowflake_accept_epoch(timestamptz) FROM PUBLIC;

CREATE OR REPLACE FUNCTION @extschema@.snowflake_accept_clock() RETURNS interval
    AS 'MODULE_PATHNAME', 'snowflake_accept_clock_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.snowflake_accept_clock() IS
'Accepts the system clock of this server as it is now, after a forward jump that has stopped minting. Returns how far it had jumped, or zero if it had not. The next jump is measured from here. Takes effect at once, even if the transaction is rolled back. For superusers only. Errors: 42501 not a superuser, 25006 during recovery, 55000 library that has to be preloaded, configured idgen.epoch not accepted, or clock before it, 2200H clock past the range of ids.';
REVOKE ALL ON FUNCTION @extschema@.snowflake_accept_clock() FROM PUBLIC;

CREATE OR REPLACE FUNCTION @extschema@.snowflake_close_shard(shard integer) RETURNS bigint
    AS 'MODULE_PATHNAME', 'snowflake_close_shard_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.snowflake_close_shard(integer) IS
'Closes a shard (0 to 8191) on this server, in both layouts: every call for it that visits shared memory from now on fails, whatever idgen.allowed_shards says, until snowflake_reopen_shard(shard) or a restart. Returns the first id that this server will never mint for the shard: every id that any session has obtained or can still obtain is smaller. A server on which snowflake_advance has gone past that id repeats none of them, and none of snowflake_next_id_js. Waits for no session. Takes effect at once, even if the transaction is rolled back. For superusers only. Errors: 22004 null shard, 22023 shard out of range, 42501 not a superuser, 25006 during recovery, 55000 library that has to be preloaded, configured idgen.epoch not accepted, or mark of another epoch or removed since the server started, 2200H no id left for another server.';
REVOKE ALL ON FUNCTION @extschema@.snowflake_close_shard(integer) FROM PUBLIC;

CREATE OR REPLACE FUNCTION @extschema@.snowflake_reopen_shard(shard integer) RETURNS boolean
    AS 'MODULE_PATHNAME', 'snowflake_reopen_shard_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.snowflake_reopen_shard(integer) IS
'Reopens a shard that snowflake_close_shard has closed on this server, and returns whether it was closed. If another server has minted for the shard meanwhile, close it there and call snowflake_advance here first. Takes effect at once, even if the transaction is rolled back. For superusers only. Errors: 22004 null shard, 22023 shard out of range, 42501 not a superuser, 25006 during recovery, 55000 library that has to be preloaded.';
REVOKE ALL ON FUNCTION @extschema@.snowflake_reopen_shard(integer) FROM PUBLIC;

CREATE OR REPLACE FUNCTION @extschema@.snowflake_raise_mark(past timestamptz) RETURNS timestamptz
    AS 'MODULE_PATHNAME', 'snowflake_raise_mark_wrapper'
    LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.snowflake_raise_mark(timestamptz) IS
'Makes the ids of all calls that begin afterwards later than the given time, for all shards of both layouts. This is durable when the function returns, also on a synchronous standby that is promoted. For a server that takes the place of another one: pass idgen_status.mark_at of that server. Returns the first time that an id can have now. Takes effect even if the transaction is rolled back. For superusers only. Errors: 22004 null time, 22023 time further ahead of the system clock than idgen.max_ahead, 42501 not a superuser, and those of snowflake_check().';
REVOKE ALL ON FUNCTION @extschema@.snowflake_raise_mark(timestamptz) FROM PUBLIC;

-- The first mark is written now, not with the first id. A server that needs a preload, but lacks it, raises its error
-- at the first call.
DO $$
DECLARE
    problem text;
    advice text;
BEGIN
    PERFORM @extschema@.idgen_begin();
    SELECT warning, warning_hint INTO problem, advice FROM @extschema@.idgen_status;
    IF problem IS NOT NULL THEN
        RAISE WARNING 'idgen: %', problem USING HINT = advice;
    END IF;
EXCEPTION WHEN object_not_in_prerequisite_state THEN
    NULL;
END
$$;
