\echo Use "CREATE EXTENSION idgen" to load this file. \quit

-- The whole SQL surface of idgen. C symbols once released are never dropped or changed.
-- Unqualified names below are resolved when the script runs, with this extension's schema and
-- pg_catalog in the search_path and nothing else.

-- Minting ---------------------------------------------------------------------------------------

CREATE FUNCTION snowflake_next_id(shard integer) RETURNS bigint
    AS 'MODULE_PATHNAME', 'snowflake_next_id_wrapper'
    LANGUAGE C VOLATILE PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_next_id(integer) IS
'Mints an id for a logical shard (0 to 8191): greater than every id of the shard that this session or, to the millisecond, any other has got before. Made for column defaults. Errors: 22004 null shard, 22023 shard out of range, 55000 shard not allowed here, clock behind or library not preloaded, 2200H range used up.';

CREATE FUNCTION snowflake_next_id() RETURNS bigint
    AS 'MODULE_PATHNAME', 'snowflake_next_id_of_session_wrapper'
    LANGUAGE C VOLATILE PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_next_id() IS
'Mints an id for the shard in the setting idgen.shard. Errors: 55000 where none is set, and those of snowflake_next_id(shard).';

CREATE FUNCTION snowflake_next_ids(shard integer, count integer) RETURNS SETOF bigint
    AS 'MODULE_PATHNAME', 'snowflake_next_ids_wrapper'
    LANGUAGE C VOLATILE PARALLEL SAFE ROWS 1000;
COMMENT ON FUNCTION snowflake_next_ids(integer, integer) IS
'Mints a batch of count ids (0 or more) for a logical shard, in increasing order, with one visit to shared memory. The whole batch is taken when the function is called; what the caller does not use is skipped. Errors: 22004 null argument, 22023 count negative or shard out of range, and those of snowflake_next_id(shard).';

CREATE FUNCTION snowflake_last_id() RETURNS bigint
    AS 'MODULE_PATHNAME', 'snowflake_last_id_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION snowflake_last_id() IS
'The last id that this session minted, of whatever shard, also where its transaction was rolled back; what lastval() is for sequences. Ids minted by parallel workers do not count, and DISCARD does not forget it. Error: 55000 before the first.';

CREATE FUNCTION snowflake_advance(shard integer, past bigint) RETURNS bigint
    AS 'MODULE_PATHNAME', 'snowflake_advance_wrapper'
    LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION snowflake_advance(integer, bigint) IS
'Makes the next id of a shard (0 to 8191) greater than an id given, durably before it returns: after the shard was moved here, or after a migration from another function. Returns the least id that can be next. The shard need not be in idgen.allowed_shards yet. Not for PUBLIC. Errors: 22004 null argument, 22023 shard out of range or id further after the system clock than idgen.max_ahead, 2200H id at the end of the range, and those of snowflake_next_id(shard) but for shards not allowed.';
REVOKE ALL ON FUNCTION snowflake_advance(integer, bigint) FROM PUBLIC;

-- Taking ids apart and building them --------------------------------------------------------------

CREATE FUNCTION snowflake_decode(id bigint, OUT created_at timestamptz, OUT shard integer, OUT sequence integer)
    AS 'MODULE_PATHNAME', 'snowflake_decode_wrapper'
    LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_decode(bigint) IS
'Takes an id apart: the millisecond it was minted in, its logical shard (0 to 8191) and its sequence number within that millisecond (0 to 1023). Every bigint decodes; the word is read as unsigned. Depends on idgen.epoch.';

CREATE FUNCTION shard_of(id bigint) RETURNS integer
    AS 'MODULE_PATHNAME', 'shard_of_wrapper'
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION shard_of(bigint) IS
'The logical shard in an id, 0 to 8191: (id >> 10) & 8191. For routers, indexes, CHECK constraints and partition keys.';

CREATE FUNCTION snowflake_make_id(ts timestamptz, shard integer, sequence integer) RETURNS bigint
    AS 'MODULE_PATHNAME', 'snowflake_make_id_wrapper'
    LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_make_id(timestamptz, integer, integer) IS
'Builds the id of a moment (cut to its millisecond), a shard (0 to 8191) and a sequence number (0 to 1023), for backfills. It is the caller''s to use no triple twice. Depends on idgen.epoch. Errors: 22008 moment outside the range of ids, 22023 shard or sequence out of range.';

-- Time ------------------------------------------------------------------------------------------

CREATE FUNCTION snowflake_time(id bigint) RETURNS timestamptz
    AS 'MODULE_PATHNAME', 'snowflake_time_wrapper'
    LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_time(bigint) IS
'The millisecond in which an id was minted. Depends on idgen.epoch, hence STABLE; for indexes and generated columns there is snowflake_time(id, epoch).';

CREATE FUNCTION snowflake_time(id bigint, epoch timestamptz) RETURNS timestamptz
    AS 'MODULE_PATHNAME', 'snowflake_time_since_wrapper'
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_time(bigint, timestamptz) IS
'The millisecond in which an id was minted, counted from the epoch given instead of idgen.epoch: for indexes and generated columns. Error: 22008 where the epoch is infinite or the result out of range.';

CREATE FUNCTION snowflake_min_id(ts timestamptz) RETURNS bigint
    AS 'MODULE_PATHNAME', 'snowflake_min_id_wrapper'
    LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_min_id(timestamptz) IS
'The least id of the millisecond of a moment, over all shards: the inclusive lower bound of a range scan, or a partition bound. ''-infinity'' gives the least id of all. Depends on idgen.epoch. Error: 22008 outside the range of ids.';

CREATE FUNCTION snowflake_max_id(ts timestamptz) RETURNS bigint
    AS 'MODULE_PATHNAME', 'snowflake_max_id_wrapper'
    LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowflake_max_id(timestamptz) IS
'The greatest id of the millisecond of a moment, over all shards: the inclusive upper bound of a range scan. ''infinity'' gives the greatest id of all. Depends on idgen.epoch. Error: 22008 outside the range of ids.';

-- A function body that is parsed here, not at run time, is safe from search_path; SQL functions that
-- are neither STRICT nor SECURITY DEFINER are inlined, so that the planner sees the range.
CREATE FUNCTION snowflake_between(id bigint, "from" timestamptz, upto timestamptz) RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN id >= snowflake_min_id("from") AND id <= snowflake_max_id(upto);
COMMENT ON FUNCTION snowflake_between(bigint, timestamptz, timestamptz) IS
'Whether an id was minted from the millisecond of one moment up to that of another, both included, as BETWEEN does. Inlined into the query, so that it becomes an index range scan and prunes partitions. ''-infinity'' and ''infinity'' leave an end open. Errors: those of snowflake_min_id and snowflake_max_id.';

-- Watching --------------------------------------------------------------------------------------

CREATE FUNCTION idgen_status(
        OUT epoch timestamptz, OUT now_tick bigint, OUT ahead_ms bigint, OUT shards_in_use integer,
        OUT mark bigint, OUT mark_at timestamptz, OUT mark_kept_in text, OUT window_left_ms bigint,
        OUT renewals bigint, OUT flush_ms double precision,
        OUT clock_steps_back bigint, OUT clock_steps_forward bigint,
        OUT ends_at timestamptz, OUT years_left double precision, OUT warning text)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'idgen_status_wrapper'
    LANGUAGE C VOLATILE PARALLEL SAFE ROWS 1;
COMMENT ON FUNCTION idgen_status() IS
'What the view idgen_status shows, without the settings. Error: 55000 where the library is not preloaded.';

CREATE VIEW idgen_status AS
    SELECT s.*,
           current_setting('idgen.shard')::integer AS shard,
           current_setting('idgen.allowed_shards') AS allowed_shards,
           current_setting('idgen.max_ahead') AS max_ahead,
           current_setting('idgen.max_wait') AS max_wait,
           current_setting('idgen.max_lease')::integer AS max_lease,
           current_setting('idgen.reserve_ahead') AS reserve_ahead,
           current_setting('idgen.max_clock_jump') AS max_clock_jump
    FROM idgen_status() AS s;
COMMENT ON VIEW idgen_status IS 'The clock of the ids and its guards, and the settings in force: one row.';
COMMENT ON COLUMN idgen_status.epoch IS 'Setting idgen.epoch: the moment of tick 0; null where the configuration gave it wrongly.';
COMMENT ON COLUMN idgen_status.now_tick IS 'The system clock in milliseconds since the epoch; null where it is before the epoch.';
COMMENT ON COLUMN idgen_status.ahead_ms IS 'How many milliseconds the furthest shard has run ahead of the system clock; 0 where none has.';
COMMENT ON COLUMN idgen_status.shards_in_use IS 'Shards that ids were minted for since the server started.';
COMMENT ON COLUMN idgen_status.mark IS 'The durable high-water mark: every id ever minted in this cluster is of an earlier tick. Null before the first id. On a standby, as far as it has replayed.';
COMMENT ON COLUMN idgen_status.mark_at IS 'The mark as a time.';
COMMENT ON COLUMN idgen_status.mark_kept_in IS 'Where PostgreSQL keeps the mark: WAL-logged, checkpointed and replicated.';
COMMENT ON COLUMN idgen_status.window_left_ms IS 'Milliseconds of ids that may be minted before the mark must be renewed; 0 before this run''s first id, and on a standby.';
COMMENT ON COLUMN idgen_status.renewals IS 'Renewals of the mark since the server started.';
COMMENT ON COLUMN idgen_status.flush_ms IS 'Milliseconds spent in all in writing and flushing the mark and having it acknowledged by synchronous standbys.';
COMMENT ON COLUMN idgen_status.clock_steps_back IS 'Backward steps of the system clock, of 10 ms or more, seen at renewals since the server started.';
COMMENT ON COLUMN idgen_status.clock_steps_forward IS 'Forward steps of the system clock, of 10 ms or more, seen at renewals since the server started.';
COMMENT ON COLUMN idgen_status.ends_at IS 'The last millisecond that ids can be minted in: 2^40 - 1 after the epoch. The next one would make them negative.';
COMMENT ON COLUMN idgen_status.years_left IS 'Years of 365.25 days until then.';
COMMENT ON COLUMN idgen_status.warning IS 'A setting that was not taken, a clock before the epoch or too far behind the ids, or the end of the range within 5 years; null otherwise.';
COMMENT ON COLUMN idgen_status.shard IS 'Setting idgen.shard of this session; -1 is unset.';
COMMENT ON COLUMN idgen_status.allowed_shards IS 'Setting idgen.allowed_shards; empty is all.';
COMMENT ON COLUMN idgen_status.max_ahead IS 'Setting idgen.max_ahead.';
COMMENT ON COLUMN idgen_status.max_wait IS 'Setting idgen.max_wait of this session.';
COMMENT ON COLUMN idgen_status.max_lease IS 'Setting idgen.max_lease of this session.';
COMMENT ON COLUMN idgen_status.reserve_ahead IS 'Setting idgen.reserve_ahead.';
COMMENT ON COLUMN idgen_status.max_clock_jump IS 'Setting idgen.max_clock_jump; -1 allows any leap.';
GRANT SELECT ON idgen_status TO PUBLIC;

CREATE FUNCTION idgen_shard_stats(
        OUT shard integer, OUT ids bigint, OUT leases bigint, OUT waits bigint,
        OUT waited_ms double precision)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME', 'idgen_shard_stats_wrapper'
    LANGUAGE C VOLATILE PARALLEL SAFE ROWS 100;
COMMENT ON FUNCTION idgen_shard_stats() IS
'What the view idgen_shard_stats shows. Error: 55000 where the library is not preloaded.';

CREATE VIEW idgen_shard_stats AS SELECT * FROM idgen_shard_stats();
COMMENT ON VIEW idgen_shard_stats IS 'Counters of every shard used since the server started. For members of pg_monitor.';
COMMENT ON COLUMN idgen_shard_stats.shard IS 'The logical shard.';
COMMENT ON COLUMN idgen_shard_stats.ids IS 'Ids handed to backends, those of leases included that were not used up in their millisecond.';
COMMENT ON COLUMN idgen_shard_stats.leases IS 'Runs of ids handed to backends: visits to shared memory.';
COMMENT ON COLUMN idgen_shard_stats.waits IS 'Calls that had to wait, those that failed or were cancelled included.';
COMMENT ON COLUMN idgen_shard_stats.waited_ms IS 'What these calls waited in all, in milliseconds.';

REVOKE ALL ON FUNCTION idgen_shard_stats() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION idgen_shard_stats() TO pg_monitor;
GRANT SELECT ON idgen_shard_stats TO pg_monitor;
