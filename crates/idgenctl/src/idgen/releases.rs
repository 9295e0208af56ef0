//! What differs between releases of PostgreSQL, by their number, such as 150020.

/// The name of the setting that limits replication origins.
pub fn limit_of_origins(version: i32) -> &'static str {
    if version < 180_000 { "max_replication_slots" } else { "max_active_replication_origins" }
}
