//! What is not the same in every version of PostgreSQL that idgen builds with. Nothing else asks for the
//! version.

use std::ffi::CStr;

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
#[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
pub fn checkpointer_has_begun() -> bool {
    // SAFETY: ProcGlobal is set up before any backend, and this pointer in it changes once.
    unsafe { !(&raw const (*pg_sys::ProcGlobal).checkpointerLatch).read_volatile().is_null() }
}

/// Every release tells.
#[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
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
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
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
#[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
pub fn most_origins() -> (&'static str, usize) {
    // SAFETY: set before libraries are loaded, and constant from then on.
    ("max_replication_slots", unsafe { pg_sys::max_replication_slots } as usize)
}

/// The setting that bounds how many replication origins may have progress at once, and its value.
#[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
pub fn most_origins() -> (&'static str, usize) {
    // SAFETY: set before libraries are loaded, and constant from then on.
    ("max_active_replication_origins", unsafe { pg_sys::max_active_replication_origins } as usize)
}

/// A number for the LWLocks of idgen, whose name `pg_stat_activity` shows where somebody waits for one.
#[cfg(not(feature = "pg19"))]
pub fn new_tranche(_name: &'static CStr) -> i32 {
    // SAFETY: takes a number under a lock of PostgreSQL's own.
    unsafe { pg_sys::LWLockNewTrancheId() }
}

/// A number for the LWLocks of idgen, whose name `pg_stat_activity` shows where somebody waits for one.
#[cfg(feature = "pg19")]
pub fn new_tranche(name: &'static CStr) -> i32 {
    // SAFETY: PostgreSQL copies the name into shared memory.
    unsafe { pg_sys::LWLockNewTrancheId(name.as_ptr()) }
}

/// Gives this process the name of a tranche: before PostgreSQL 19 each process keeps the names for itself.
#[cfg(not(feature = "pg19"))]
pub fn name_tranche(tranche: i32, name: &'static CStr) {
    // SAFETY: the name is kept as it is, and lives as long as the process.
    unsafe { pg_sys::LWLockRegisterTranche(tranche, name.as_ptr()) }
}

/// Nothing to do: all processes have the name from shared memory.
#[cfg(feature = "pg19")]
pub fn name_tranche(_tranche: i32, _name: &'static CStr) {}

/// From which level on this process writes to the server log.
#[cfg(not(feature = "pg19"))]
pub fn log_level() -> *mut i32 {
    &raw mut pg_sys::log_min_messages
}

/// From which level on this process writes to the server log: every type of process has its own.
#[cfg(feature = "pg19")]
pub fn log_level() -> *mut i32 {
    // SAFETY: the array has all types of processes, and the first is that of a process that has not got one yet.
    unsafe { (&raw mut pg_sys::log_min_messages).cast::<i32>().add(pg_sys::MyBackendType as usize) }
}

/// Of a checkpoint: at once, and not spread over time.
#[cfg(not(feature = "pg19"))]
pub const CHECKPOINT_FAST: u32 = pg_sys::CHECKPOINT_IMMEDIATE;

/// Of a checkpoint: at once, and not spread over time.
#[cfg(feature = "pg19")]
pub const CHECKPOINT_FAST: u32 = pg_sys::CHECKPOINT_FAST;
