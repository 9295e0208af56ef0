//! The differences between the versions of PostgreSQL that idgen builds with. No other module depends on the
//! version.

#[cfg(not(any(feature = "pg15", feature = "pg16")))]
use std::cell::Cell;
use std::ffi::{CStr, c_void};

use idgen_core::host::Wait;
use pgrx::pg_sys;

#[cfg(not(any(feature = "pg15", feature = "pg16")))]
use super::local::Local;

/// Whether the status of synchronous standbys in shared memory consists of the bits SYNC_STANDBY_INIT and
/// SYNC_STANDBY_DEFINED in this release, a number as in `server_version_num`. Earlier releases have a `bool` in the
/// same place: whether standbys are defined. The change came with "Fix race condition in handling of
/// synchronous_standby_names immediately after startup" in the release notes of 15.13, 16.9 and 17.5.
pub const fn standbys_status_has_bits(release: i32) -> bool {
    let first = match release / 1_00_00 {
        15 => 15_00_13,
        16 => 16_00_09,
        _ => 17_00_05,
    };
    release >= first
}

/// Whether the checkpointer has set the status of synchronous standbys, for releases whose status does not show it.
/// The checkpointer sets the status before it publishes its latch.
#[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
pub fn checkpointer_has_begun() -> bool {
    // SAFETY: ProcGlobal is set up before any backend, and this pointer in it changes once.
    unsafe { !(&raw const (*pg_sys::ProcGlobal).checkpointerLatch).read_volatile().is_null() }
}

/// Always true: in these versions, the status itself shows it.
#[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
pub fn checkpointer_has_begun() -> bool {
    true
}

/// Whether the current user may call a function.
#[cfg(feature = "pg15")]
pub fn may_execute(function: pg_sys::Oid) -> bool {
    // SAFETY: reads the catalog.
    let found = unsafe { pg_sys::pg_proc_aclcheck(function, pg_sys::GetUserId(), pg_sys::ACL_EXECUTE) };
    found == pg_sys::AclResult::ACLCHECK_OK
}

/// Whether the current user may call a function.
#[cfg(not(feature = "pg15"))]
pub fn may_execute(function: pg_sys::Oid) -> bool {
    let (class, right) = (pg_sys::ProcedureRelationId, pg_sys::ACL_EXECUTE.into());
    // SAFETY: reads the catalog.
    let found = unsafe { pg_sys::object_aclcheck(class, function, pg_sys::GetUserId(), right) };
    found == pg_sys::AclResult::ACLCHECK_OK
}

/// The wait event, of type Extension, that `pg_stat_activity` shows. Before PostgreSQL 17 those of all
/// extensions are called `Extension`.
#[cfg(any(feature = "pg15", feature = "pg16"))]
pub fn wait_event(_wait: Wait) -> u32 {
    pg_sys::PG_WAIT_EXTENSION
}

/// The wait event, of type Extension, that `pg_stat_activity` shows. Takes an LWLock, which is negligible compared
/// with the sleep that follows, and raises PostgreSQL's errors.
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

/// The setting that limits how many replication origins can have progress, and its value.
#[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
pub fn most_origins() -> (&'static str, usize) {
    // SAFETY: set before libraries are loaded, and constant afterwards.
    ("max_replication_slots", unsafe { pg_sys::max_replication_slots } as usize)
}

/// The setting that limits how many replication origins can have progress, and its value.
#[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
pub fn most_origins() -> (&'static str, usize) {
    // SAFETY: set before libraries are loaded, and constant afterwards.
    ("max_active_replication_origins", unsafe { pg_sys::max_active_replication_origins } as usize)
}

/// A tranche for the LWLocks of idgen, whose name `pg_stat_activity` shows while a backend waits for one.
#[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17", feature = "pg18"))]
pub fn new_tranche(_name: &'static CStr) -> i32 {
    // SAFETY: takes a number under PostgreSQL's own lock.
    unsafe { pg_sys::LWLockNewTrancheId() }
}

/// A tranche for the LWLocks of idgen, whose name `pg_stat_activity` shows while a backend waits for one.
#[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17", feature = "pg18")))]
pub fn new_tranche(name: &'static CStr) -> i32 {
    // SAFETY: PostgreSQL copies the name into shared memory.
    unsafe { pg_sys::LWLockNewTrancheId(name.as_ptr()) }
}

/// Registers the name of a tranche in this process: before PostgreSQL 19, each process has names of its own.
#[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17", feature = "pg18"))]
pub fn name_tranche(tranche: i32, name: &'static CStr) {
    // SAFETY: PostgreSQL keeps the pointer to the name, which lives as long as the process.
    unsafe { pg_sys::LWLockRegisterTranche(tranche, name.as_ptr()) }
}

/// Does nothing: all processes have the name from shared memory.
#[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17", feature = "pg18")))]
pub fn name_tranche(_tranche: i32, _name: &'static CStr) {}

/// The level from which this process writes to the server log.
#[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17", feature = "pg18"))]
pub fn log_level() -> *mut i32 {
    &raw mut pg_sys::log_min_messages
}

/// The level from which this process writes to the server log; every type of process has its own.
#[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17", feature = "pg18")))]
pub fn log_level() -> *mut i32 {
    // SAFETY: the array covers all types of processes; the first one is for a process that has no type yet.
    unsafe { (&raw mut pg_sys::log_min_messages).cast::<i32>().add(pg_sys::MyBackendType as usize) }
}

/// The flag for a checkpoint at once, not spread over time.
#[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17", feature = "pg18"))]
pub const CHECKPOINT_FAST: u32 = pg_sys::CHECKPOINT_IMMEDIATE;

/// The flag for a checkpoint at once, not spread over time.
#[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17", feature = "pg18")))]
pub const CHECKPOINT_FAST: u32 = pg_sys::CHECKPOINT_FAST;

/// The first minor release, as `server_version_num` counts, in which an extension can allocate shared memory while the
/// server runs, and try again after a failure. `None` if there is none. From "Allow retrying initialization of a DSM
/// registry entry" in the release notes of 17.8 and 18.2.
pub const HAS_NAMED_SEGMENTS: Option<i32> = if cfg!(any(feature = "pg15", feature = "pg16")) {
    None
} else if cfg!(feature = "pg17") {
    Some(17_00_08)
} else if cfg!(feature = "pg18") {
    Some(18_00_02)
} else {
    Some(19_00_00)
};

/// The sources of a setting's value and of the value that RESET would restore: [`pg_sys::GucSource`].
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
pub fn sources(setting: &CStr) -> Option<[pg_sys::GucSource::Type; 2]> {
    // SAFETY: PostgreSQL's entry of the setting, or null if there is none; this call neither makes one nor complains.
    let entry = unsafe { pg_sys::find_option(setting.as_ptr(), false, true, 0).as_ref() }?;
    Some([entry.source, entry.reset_source])
}

/// Not needed before PostgreSQL 17, where idgen always needs a preload.
#[cfg(any(feature = "pg15", feature = "pg16"))]
pub fn sources(_setting: &CStr) -> Option<[pg_sys::GucSource::Type; 2]> {
    None
}

#[cfg(not(any(feature = "pg15", feature = "pg16")))]
static INITIALIZE: Local<Cell<unsafe fn(*mut c_void)>> = Local::new(Cell::new(|_| ()));

/// Returns the shared memory with this name and size, and whether this call has allocated it. If so, `initialize` has
/// prepared it before any other process could see it. It stays mapped until the process ends. Raises PostgreSQL's
/// errors.
///
/// # Safety
/// `initialize` writes to no more than `size` bytes.
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
pub unsafe fn named_segment(
    name: &CStr,
    size: usize,
    initialize: unsafe fn(*mut c_void),
) -> (*mut c_void, bool) {
    #[cfg(any(feature = "pg17", feature = "pg18"))]
    #[pgrx::pg_guard]
    unsafe extern "C-unwind" fn begin(memory: *mut c_void) {
        // SAFETY: the promise of named_segment()'s caller.
        unsafe { INITIALIZE.get()(memory) }
    }
    #[cfg(not(any(feature = "pg17", feature = "pg18")))]
    #[pgrx::pg_guard]
    unsafe extern "C-unwind" fn begin(memory: *mut c_void, _arg: *mut c_void) {
        // SAFETY: the promise of named_segment()'s caller.
        unsafe { INITIALIZE.get()(memory) }
    }
    INITIALIZE.set(initialize);
    let mut found = false;
    // SAFETY: PostgreSQL calls `begin` with memory of this size.
    let memory = unsafe {
        #[cfg(any(feature = "pg17", feature = "pg18"))]
        let memory = pg_sys::GetNamedDSMSegment(name.as_ptr(), size, Some(begin), &mut found);
        #[cfg(not(any(feature = "pg17", feature = "pg18")))]
        let memory =
            pg_sys::GetNamedDSMSegment(name.as_ptr(), size, Some(begin), &mut found, std::ptr::null_mut());
        memory
    };
    (memory, !found)
}

/// Not called before PostgreSQL 17: see [`HAS_NAMED_SEGMENTS`].
///
/// # Safety
/// None is required.
#[cfg(any(feature = "pg15", feature = "pg16"))]
pub unsafe fn named_segment(
    _name: &CStr,
    _size: usize,
    _initialize: unsafe fn(*mut c_void),
) -> (*mut c_void, bool) {
    unreachable!("PostgreSQL has no named segments")
}
