//! What is not the same in every version of PostgreSQL that idgen builds with. Nothing else asks for the
//! version.

use pgrx::pg_sys;

/// What a backend waits for.
#[derive(Clone, Copy)]
pub enum Wait {
    /// The clock, which the ids of the shard may not be further ahead of.
    Clock,
    /// The high-water mark, which another backend renews.
    Mark,
    /// Synchronous standbys, which have to acknowledge the mark.
    Standby,
}

/// The wait event, of type Extension, that `pg_stat_activity` shows. Before PostgreSQL 17 those of all
/// extensions are called `Extension`.
#[cfg(any(feature = "pg15", feature = "pg16"))]
pub fn wait_event(_wait: Wait) -> u32 {
    pg_sys::PG_WAIT_EXTENSION
}

/// The wait event, of type Extension, that `pg_stat_activity` shows. Takes an LWLock, which is little beside the
/// sleep that follows, and raises PostgreSQL's errors.
#[cfg(any(feature = "pg17", feature = "pg18"))]
pub fn wait_event(wait: Wait) -> u32 {
    let name = match wait {
        Wait::Clock => c"IdgenClock",
        Wait::Mark => c"IdgenMark",
        Wait::Standby => c"IdgenStandby",
    };
    // SAFETY: PostgreSQL copies the name. The number of a name is the same for all backends.
    unsafe { pg_sys::WaitEventExtensionNew(name.as_ptr()) }
}

/// The setting that bounds how many replication origins may have progress at once, and its value.
#[cfg(not(feature = "pg18"))]
pub fn most_origins() -> (&'static str, usize) {
    // SAFETY: set before libraries are loaded, and constant from then on.
    ("max_replication_slots", unsafe { pg_sys::max_replication_slots } as usize)
}

/// The setting that bounds how many replication origins may have progress at once, and its value.
#[cfg(feature = "pg18")]
pub fn most_origins() -> (&'static str, usize) {
    // SAFETY: set before libraries are loaded, and constant from then on.
    ("max_active_replication_origins", unsafe { pg_sys::max_active_replication_origins } as usize)
}
