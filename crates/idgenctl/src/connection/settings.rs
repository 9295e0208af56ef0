//! Settings of every session and of the PostgreSQL programs that are run. The startup packet contains them, because it
//! overrides settings of the role and the database, which could end or blind a session before its first statement.

/// With these, a session sees only its own objects and those of PostgreSQL, runs no code of others, obeys no timeout
/// that others set, and writes and reads money in the same format. The server notices when the client has been killed.
const EVERYWHERE: &str = "-c role=none -c search_path=pg_catalog,pg_temp -c local_preload_libraries=
    -c client_min_messages=error -c exit_on_error=off
    -c statement_timeout=0 -c lock_timeout=0 -c idle_session_timeout=0 -c idle_in_transaction_session_timeout=0
    -c tcp_user_timeout=0 -c default_transaction_isolation=read\\ committed -c default_transaction_read_only=off
    -c default_transaction_deferrable=off -c synchronous_commit=on -c row_security=off -c check_function_bodies=on
    -c standard_conforming_strings=on -c backslash_quote=safe_encoding -c transform_null_equals=off
    -c quote_all_identifiers=off -c array_nulls=on -c max_parallel_workers_per_gather=0 -c jit=off
    -c lc_monetary=C -c client_connection_check_interval=1000
    -c default_tablespace= -c temp_tablespaces= -c default_table_access_method=heap";

/// The formats of this program's own sessions. pg_dump sets its own, and what is restored must see those of the database.
const OF_SESSIONS: &str = "-c bytea_output=hex -c datestyle=ISO -c intervalstyle=postgres -c timezone=UTC
    -c extra_float_digits=1";

/// Settings that only superusers may set.
const OF_SUPERUSERS: &str = "-c lc_messages=C -c session_preload_libraries= -c track_activities=on
    -c session_replication_role=origin";

/// These settings as options of libpq, for a version such as 150020: PostgreSQL rejects settings it does not know.
pub fn options(version: i32, is_superuser: bool, is_program: bool) -> String {
    let is_new = version >= 170_000;
    let lists = [
        (EVERYWHERE, true),
        (OF_SESSIONS, !is_program),
        ("-c transaction_timeout=0", is_new),
        (OF_SUPERUSERS, is_superuser),
        ("-c event_triggers=off", is_superuser && is_new),
    ];
    lists.iter().filter(|(_, counts)| *counts).map(|(list, _)| format!(" {list}")).collect()
}
