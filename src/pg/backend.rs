//! This process: its kind, its waits, its transactions, and the clocks.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::panic::AssertUnwindSafe;
use std::ptr;

use idgen_core::host::Wait;
use idgen_ids::epoch::Timestamptz;
use nix::libc;
use pgrx::pg_sys::panic::CaughtError;
use pgrx::{PgSqlErrorCode, PgTryBuilder, pg_sys};

use super::compat::wait_event;
use super::local::Local;

/// Whether the postmaster is loading `shared_preload_libraries`.
pub fn preloading() -> bool {
    // SAFETY: a plain flag of this single-threaded process.
    unsafe { pg_sys::process_shared_preload_libraries_in_progress }
}

/// Whether this is the postmaster and not one of its children, which preload libraries themselves on platforms
/// where they cannot inherit them.
pub fn in_postmaster() -> bool {
    // SAFETY: a plain flag of this single-threaded process.
    unsafe { !pg_sys::IsUnderPostmaster }
}

/// Reads a clock of the system: seconds, and nanoseconds within the second. The safe wrapper of the crate nix would
/// add a fifth to the cost of reading the clock.
#[inline]
pub fn clock(clock: libc::clockid_t) -> (i64, i64) {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills in the struct. It fails only for a clock that does not exist on the system.
    unsafe { libc::clock_gettime(clock, &mut time) };
    (time.tv_sec, time.tv_nsec)
}

/// Sleeps for up to `us` microseconds; a signal or a set latch may end the sleep early. Raises the error of a
/// cancel, of statement_timeout or of a shutdown.
pub fn sleep(us: u64, wait: Wait) {
    // The latch counts whole milliseconds; less than two are slept in microseconds.
    const LATCH_FROM_US: u64 = 2000;
    // SAFETY: MyLatch is this backend's own latch. No lock is held here.
    unsafe {
        if us < LATCH_FROM_US {
            pg_sys::pg_usleep(us as i64);
        } else {
            let events = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
            pg_sys::WaitLatch(pg_sys::MyLatch, events as i32, (us / 1000) as i64, wait_event(wait));
            pg_sys::ResetLatch(pg_sys::MyLatch);
        }
    }
    check_for_interrupts();
}

/// Raises the error of a cancel, of statement_timeout or of a shutdown, if there is one.
pub fn check_for_interrupts() {
    pgrx::check_for_interrupts!();
}

/// The maximum number of backends.
pub fn most() -> usize {
    // SAFETY: set before shared memory is requested, and constant afterwards.
    unsafe { pg_sys::MaxBackends as usize }
}

/// The number of this backend, below [`most`]; `None` in processes that are not backends.
pub fn number() -> Option<usize> {
    // SAFETY: MyProc is null or this process's entry in the array of all.
    unsafe {
        let own = pg_sys::MyProc;
        (!own.is_null()).then(|| own.offset_from_unsigned((*pg_sys::ProcGlobal).allProcs))
    }
}

/// Whether this is a parallel worker.
#[inline]
pub fn in_parallel_worker() -> bool {
    // SAFETY: a plain variable of this process.
    unsafe { pg_sys::ParallelWorkerNumber >= 0 }
}

static TRANSACTION_ENDED: Local<Cell<fn()>> = Local::new(Cell::new(|| ()));

/// Arranges for `ended` to be called at the end of every transaction, when its rows are visible or gone. Call it
/// when the library is loaded; children inherit it. `ended` must not raise an error.
pub fn watch_transactions(ended: fn()) {
    TRANSACTION_ENDED.set(ended);
    // SAFETY: the callback does not raise an error.
    unsafe { pg_sys::RegisterResourceReleaseCallback(Some(resources_released), ptr::null_mut()) }
}

/// Resources are released after the transaction callbacks of all libraries, whatever the order in which these are
/// loaded. Some libraries commit on another server only in their callback. By then a prepared transaction is
/// counted by [`prepared_transactions`], and no other session can end it yet.
unsafe extern "C-unwind" fn resources_released(
    phase: pg_sys::ResourceReleasePhase::Type,
    _is_commit: bool,
    is_top_level: bool,
    _arg: *mut c_void,
) {
    use pg_sys::ResourceReleasePhase::RESOURCE_RELEASE_AFTER_LOCKS;
    // PostgreSQL calls this for portals too, and outside of transactions for the resources of a base backup or of a
    // process that is not a backend. CurrentResourceOwner is the owner whose resources are released.
    // SAFETY: plain variables of this process.
    let of_transaction = unsafe { pg_sys::CurrentResourceOwner == pg_sys::TopTransactionResourceOwner };
    if phase == RESOURCE_RELEASE_AFTER_LOCKS && is_top_level && of_transaction {
        TRANSACTION_ENDED.get()();
    }
}

/// Whether this is a session of a database with an open transaction that has not failed, so that catalogs can be read.
pub fn reads_catalogs() -> bool {
    // SAFETY: plain variables of this process.
    unsafe { pg_sys::IsTransactionState() && pg_sys::MyDatabaseId != pg_sys::InvalidOid }
}

/// Whether the user may read all settings.
pub fn reads_settings() -> bool {
    // SAFETY: in a transaction, looks the user's roles up in the catalog.
    unsafe { pg_sys::has_privs_of_role(pg_sys::GetUserId(), pg_sys::ROLE_PG_READ_ALL_SETTINGS.into()) }
}

/// Runs `f`, which only reads, in a subtransaction that is rolled back, so that it leaves neither an error nor memory
/// behind. It waits only briefly for tables that are locked. Call it only where [`reads_catalogs`].
///
/// # Errors
/// The SQLSTATE and the message of any error of PostgreSQL, or panic, except for a cancel, which is raised.
pub fn attempt<T>(f: impl FnOnce() -> T) -> Result<T, (PgSqlErrorCode, String)> {
    // SAFETY: plain variables of this process, and functions that PostgreSQL's own procedural languages use like this.
    unsafe {
        let (context, owner) = (pg_sys::CurrentMemoryContext, pg_sys::CurrentResourceOwner);
        let level = pg_sys::GetCurrentTransactionNestLevel();
        let result = PgTryBuilder::new(AssertUnwindSafe(|| {
            // In parallel mode some versions refuse to begin it.
            pg_sys::BeginInternalSubTransaction(ptr::null());
            pg_sys::set_config_option(
                c"lock_timeout".as_ptr(),
                c"10ms".as_ptr(),
                pg_sys::GucContext::PGC_USERSET,
                pg_sys::GucSource::PGC_S_SESSION,
                pg_sys::GucAction::GUC_ACTION_LOCAL,
                true,
                0,
                false,
            );
            Ok(f())
        }))
        .catch_others(|error| Err(Box::new(error)))
        .execute();
        pg_sys::CurrentMemoryContext = context;
        if pg_sys::GetCurrentTransactionNestLevel() > level {
            pg_sys::RollbackAndReleaseCurrentSubTransaction();
        }
        pg_sys::CurrentMemoryContext = context;
        pg_sys::CurrentResourceOwner = owner;
        let (CaughtError::PostgresError(report)
        | CaughtError::ErrorReport(report)
        | CaughtError::RustPanic { ereport: report, .. }) = match result {
            Ok(result) => return Ok(result),
            Err(error) => *error,
        };
        if report.sql_error_code() == PgSqlErrorCode::ERRCODE_QUERY_CANCELED {
            CaughtError::ErrorReport(report).rethrow();
        }
        Err((report.sql_error_code(), report.message().into()))
    }
}

/// Whether the whole transaction uses a single snapshot, that of its first statement.
pub fn one_snapshot() -> bool {
    // SAFETY: a plain variable of this process.
    unsafe { pg_sys::XactIsoLevel >= pg_sys::XACT_REPEATABLE_READ as i32 }
}

unsafe extern "C" {
    /// `max_prepared_transactions`, which pgrx does not declare.
    static max_prepared_xacts: c_int;
}

/// The number of prepared transactions in the cluster. Raises PostgreSQL's errors, so that it never returns 0
/// without knowing: readers rely on there being none.
pub fn prepared_transactions() -> usize {
    // SAFETY: set at the start of the server, and constant afterwards.
    if unsafe { max_prepared_xacts } == 0 {
        return 0;
    }
    // Everything in the query is PostgreSQL's own, whatever the caller's search_path.
    let query = "SELECT FROM pg_catalog.pg_prepared_xact()";
    pgrx::Spi::connect(|client| client.select(query, None, &[]).expect("a list").len())
}

/// The system clock as a PostgreSQL timestamp.
pub fn timestamp() -> Timestamptz {
    // SAFETY: reads the clock.
    unsafe { pg_sys::GetCurrentTimestamp() }
}

/// The system identifier, which initdb assigns.
pub fn system_identifier() -> u64 {
    // SAFETY: reads shared memory that does not change after the start.
    unsafe { pg_sys::GetSystemIdentifier() }
}

/// Whether the server is in recovery: a standby, or one that is starting after a crash.
pub fn in_recovery() -> bool {
    // SAFETY: reads PostgreSQL's own shared memory.
    unsafe { pg_sys::RecoveryInProgress() }
}

/// Whether the current user is a superuser.
pub fn superuser() -> bool {
    // SAFETY: reads the catalog.
    unsafe { pg_sys::superuser() }
}

/// Whether this is the session of a superuser, in its own role or one set by SET ROLE, and does not run code of another
/// role. The current role is not enough: the script of a trusted extension and SECURITY DEFINER functions run as a
/// superuser in sessions of others. Nor is that of the session: autovacuum calls the functions of index expressions as
/// the owner of the table, and so does the action of a foreign key. PostgreSQL marks both by the last two.
pub fn superuser_acts() -> bool {
    // SAFETY: reads the catalog, and variables of this process.
    unsafe {
        pg_sys::superuser_arg(pg_sys::GetSessionUserId())
            && pg_sys::GetUserId() == pg_sys::GetOuterUserId()
            && !pg_sys::InLocalUserIdChange()
            && !pg_sys::InSecurityRestrictedOperation()
    }
}

/// Raises 25006 in a read-only transaction, for a command with this name.
pub fn prevent_if_read_only(command: &CStr) {
    // SAFETY: a C string.
    unsafe { pg_sys::PreventCommandIfReadOnly(command.as_ptr()) }
}
