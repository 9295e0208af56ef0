//! The settings that every session needs, whatever a role, a database or a connection string has. They are in the startup
//! packet, which counts more than those: otherwise they could end or blind a session before its first statement. PostgreSQL's
//! own programs get the same.

/// With these, a session finds no object but PostgreSQL's and its own, runs nothing of others, waits for ever on no limit of
/// somebody else, and writes and reads as this program expects it.
const EVERYWHERE: &str = "-c role=none -c search_path=pg_catalog,pg_temp -c local_preload_libraries=
    -c client_min_messages=error -c exit_on_error=off
    -c statement_timeout=0 -c lock_timeout=0 -c idle_session_timeout=0 -c idle_in_transaction_session_timeout=0
    -c tcp_user_timeout=0 -c default_transaction_isolation=read\\ committed -c default_transaction_read_only=off
    -c default_transaction_deferrable=off -c synchronous_commit=on -c row_security=off -c check_function_bodies=on
    -c standard_conforming_strings=on -c backslash_quote=safe_encoding -c transform_null_equals=off
    -c quote_all_identifiers=off -c array_nulls=on -c bytea_output=hex -c datestyle=ISO -c intervalstyle=postgres
    -c timezone=UTC -c extra_float_digits=1 -c max_parallel_workers_per_gather=0 -c jit=off
    -c default_tablespace= -c temp_tablespaces= -c default_table_access_method=heap";

/// Those that only superusers may set.
const OF_SUPERUSERS: &str =
    "-c lc_messages=C -c session_preload_libraries= -c session_replication_role=origin
    -c track_activities=on";

/// The options of libpq with these settings, for a release of PostgreSQL such as 150020. Older ones refuse what they
/// do not know.
pub fn options(version: i32, is_superuser: bool) -> String {
    let is_new = version >= 170_000;
    let lists = [
        (EVERYWHERE, true),
        ("-c transaction_timeout=0", is_new),
        (OF_SUPERUSERS, is_superuser),
        ("-c event_triggers=off", is_superuser && is_new),
    ];
    lists.iter().filter(|(_, counts)| *counts).map(|(list, _)| format!(" {list}")).collect()
}
