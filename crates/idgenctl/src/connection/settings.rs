//! The settings that every session needs, whatever a role, a database or a connection string has. They are in the startup
//! packet, which counts more than those: otherwise they could end or blind a session before its first statement. PostgreSQL's
//! own programs get the same.

/// With these, a session finds no object but PostgreSQL's and its own, runs nothing of others, waits for ever on no limit of
/// somebody else, and writes and reads as this program expects it.
const EVERYWHERE: [&str; 31] = [
    "role=none",
    "search_path=pg_catalog,pg_temp",
    "local_preload_libraries=",
    "client_min_messages=error",
    "exit_on_error=off",
    "statement_timeout=0",
    "lock_timeout=0",
    "idle_session_timeout=0",
    "idle_in_transaction_session_timeout=0",
    "tcp_user_timeout=0",
    "default_transaction_isolation=read\\ committed",
    "default_transaction_read_only=off",
    "default_transaction_deferrable=off",
    "synchronous_commit=on",
    "row_security=off",
    "check_function_bodies=on",
    "standard_conforming_strings=on",
    "backslash_quote=safe_encoding",
    "transform_null_equals=off",
    "quote_all_identifiers=off",
    "array_nulls=on",
    "bytea_output=hex",
    "datestyle=ISO",
    "intervalstyle=postgres",
    "timezone=UTC",
    "extra_float_digits=1",
    "max_parallel_workers_per_gather=0",
    "jit=off",
    "default_tablespace=",
    "temp_tablespaces=",
    "default_table_access_method=heap",
];

/// Those that only superusers may set.
const OF_SUPERUSERS: [&str; 4] =
    ["lc_messages=C", "session_preload_libraries=", "session_replication_role=origin", "track_activities=on"];

/// The options of libpq with these settings, for a release of PostgreSQL such as 150020. Older ones refuse what they
/// do not know.
pub fn options(version: i32, is_superuser: bool) -> String {
    let is_new = version >= 170_000;
    let lists: [(&[&str], bool); 4] = [
        (&EVERYWHERE, true),
        (&["transaction_timeout=0"], is_new),
        (&OF_SUPERUSERS, is_superuser),
        (&["event_triggers=off"], is_superuser && is_new),
    ];
    let settings = lists.iter().filter(|(_, counts)| *counts).flat_map(|(settings, _)| *settings);
    settings.map(|setting| format!(" -c {setting}")).collect()
}
