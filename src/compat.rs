//! What is not the same in every version of PostgreSQL that idgen builds with. Nothing else asks for the
//! version.

use idgen_core::server::Wait;
use pgrx::pg_sys;

/// The first minor release, as `server_version_num` counts, in which the status of synchronous standbys in
/// shared memory consists of the bits SYNC_STANDBY_INIT and SYNC_STANDBY_DEFINED. Before it, in the same
/// place, is a `bool`: whether they are defined. It came with "Fix race condition in handling of
/// synchronous_standby_names immediately after startup" in the release notes of 15.13, 16.9 and 17.5.
pub const STANDBYS_STATUS_HAS_BITS: i32 = if cfg!(feature = "pg15") {
    15_00_13
} else if cfg!(feature = "pg16") {
    16_00_09
} else {
    17_00_05
};

/// Whether the checkpointer has set the status of synchronous standbys, for the releases whose status does
/// not tell: it does so before it publishes its latch.
#[cfg(not(feature = "pg18"))]
pub fn checkpointer_has_begun() -> bool {
    // SAFETY: ProcGlobal is set up before any backend, and this pointer in it changes once.
    unsafe { !(&raw const (*pg_sys::ProcGlobal).checkpointerLatch).read_volatile().is_null() }
}

/// Every release tells.
#[cfg(feature = "pg18")]
pub fn checkpointer_has_begun() -> bool {
    true
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
