//! Raw PostgreSQL calls behind safe functions. With `shmem` the only place with `unsafe`.

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;

use pgrx::callconv::{BoxRet, FcInfo};
use pgrx::datum::Datum;
use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting};
use pgrx::pg_sys::submodules::panic::pgrx_extern_c_guard;
use pgrx::pgrx_sql_entity_graph::metadata::{
    ArgumentError, ReturnsError, ReturnsRef, SqlMappingRef, SqlTranslatable, TypeOrigin,
};
use pgrx::{PgMemoryContexts, PgSqlErrorCode, PgTryBuilder, pg_sys};

use crate::epoch::Timestamptz;
use crate::error::{Error, or_raise};
use crate::layout::Tick;

/// Whether the postmaster is loading `shared_preload_libraries`.
pub fn preloading() -> bool {
    // SAFETY: a plain flag of this single-threaded process.
    unsafe { pg_sys::process_shared_preload_libraries_in_progress }
}

/// What is wrong with a text given for a setting.
pub struct Complaint {
    /// A sentence: what is wrong.
    pub detail: String,
    /// A sentence: what would be right.
    pub hint: &'static str,
}

/// A setting whose text has a form of its own.
pub trait TextSetting {
    /// Says what is wrong with a value; it is refused with 22023 then.
    fn check(text: &str) -> Result<(), Complaint>;
    /// Takes over a value that passed `check`.
    fn assign(text: &str);
}

/// Defines a setting whose values are checked and taken over by `S`.
pub fn define_text_setting<S: TextSetting>(
    name: &'static CStr,
    short: &'static CStr,
    long: &'static CStr,
    value: &'static GucSetting<Option<CString>>,
    context: GucContext,
) {
    // SAFETY: both hooks turn panics into PostgreSQL errors, as required.
    unsafe {
        GucRegistry::define_string_guc_with_hooks(
            name,
            short,
            long,
            value,
            context,
            GucFlags::default(),
            Some(check_text::<S>),
            Some(assign_text::<S>),
            None,
        );
    }
}

/// Reads a setting's value as PostgreSQL hands it to a hook. Bytes that are no UTF-8 are replaced:
/// no setting of ours takes them, so the check refuses the result.
///
/// # Safety
/// `value` is null or a C string that lives as long as the result.
unsafe fn setting_text<'a>(value: *const c_char) -> std::borrow::Cow<'a, str> {
    if value.is_null() {
        return "".into();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(value) }.to_string_lossy()
}

unsafe extern "C-unwind" fn check_text<S: TextSetting>(
    value: *mut *mut c_char,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: PostgreSQL passes a pointer to the new value. What GUC_check_errdetail() of C does is
    // to leave a string in ErrorContext in that variable.
    unsafe {
        pgrx_extern_c_guard(|| match S::check(&setting_text(*value)) {
            Ok(()) => true,
            Err(complaint) => {
                let context = PgMemoryContexts::ErrorContext;
                pg_sys::GUC_check_errdetail_string = context.pstrdup(&complaint.detail);
                pg_sys::GUC_check_errhint_string = context.pstrdup(complaint.hint);
                false
            }
        })
    }
}

unsafe extern "C-unwind" fn assign_text<S: TextSetting>(value: *const c_char, _extra: *mut c_void) {
    // SAFETY: PostgreSQL passes the value that check_text has accepted.
    unsafe { pgrx_extern_c_guard(|| S::assign(&setting_text(value))) }
}

/// Defines an integer setting after whose change a lease may break a promise: the backend drops it.
#[allow(clippy::too_many_arguments)]
pub fn define_lease_setting(
    name: &'static CStr,
    short: &'static CStr,
    long: &'static CStr,
    value: &'static GucSetting<i32>,
    min: i32,
    max: i32,
    context: GucContext,
    flags: GucFlags,
) {
    // SAFETY: the hook turns panics into PostgreSQL errors, as required.
    unsafe {
        GucRegistry::define_int_guc_with_hooks(
            name,
            short,
            long,
            value,
            min,
            max,
            context,
            flags,
            None,
            Some(drop_lease),
            None,
        );
    }
}

unsafe extern "C-unwind" fn drop_lease(_value: i32, _extra: *mut c_void) {
    // SAFETY: called by PostgreSQL at the top of an extern "C-unwind" function.
    unsafe { pgrx_extern_c_guard(crate::mint::drop_lease) }
}

/// The value that the configuration gives for a setting not defined yet, whatever the session has SET
/// it to.
pub fn configured(name: &CStr) -> Option<String> {
    // SAFETY: GetConfigOptionResetString raises for an unknown name, hence the question before it. A
    // null result means there is none; otherwise the string is copied at once.
    unsafe {
        if pg_sys::GetConfigOption(name.as_ptr(), true, false).is_null() {
            return None;
        }
        let value = pg_sys::GetConfigOptionResetString(name.as_ptr());
        (!value.is_null()).then(|| setting_text(value).into_owned())
    }
}

/// Makes PostgreSQL refuse unknown settings that begin with `idgen.`.
pub fn reserve_setting_prefix() {
    // SAFETY: PostgreSQL copies the string.
    unsafe { pg_sys::MarkGUCPrefixReserved(c"idgen".as_ptr()) }
}

/// Sleeps up to `us` microseconds; a signal or a set latch may end it early. Raises what a cancel,
/// statement_timeout or the server's end asks for.
pub fn sleep(us: u64) {
    // The latch counts whole milliseconds; what is left below two is slept by the microsecond.
    const LATCH_FROM_US: u64 = 2000;
    // SAFETY: MyLatch is this backend's own latch. No lock is held here.
    unsafe {
        if us < LATCH_FROM_US {
            pg_sys::pg_usleep(us as i64);
        } else {
            let events = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
            pg_sys::WaitLatch(pg_sys::MyLatch, events as i32, (us / 1000) as i64, wait_event());
            pg_sys::ResetLatch(pg_sys::MyLatch);
        }
    }
    pgrx::check_for_interrupts!();
}

/// What `pg_stat_activity` shows of a backend that waits: wait event `idgen` of type Extension, or
/// merely `Extension` before PostgreSQL 17, which has no names for it.
#[cfg(any(feature = "pg15", feature = "pg16"))]
pub fn wait_event() -> u32 {
    pg_sys::PG_WAIT_EXTENSION
}

/// What `pg_stat_activity` shows of a backend that waits: wait event `idgen` of type Extension.
#[cfg(any(feature = "pg17", feature = "pg18"))]
pub fn wait_event() -> u32 {
    thread_local! {
        static EVENT: std::cell::OnceCell<u32> = const { std::cell::OnceCell::new() };
    }
    // SAFETY: takes a name and gives the number that all backends share for it.
    EVENT.with(|event| *event.get_or_init(|| unsafe { pg_sys::WaitEventExtensionNew(c"idgen".as_ptr()) }))
}

/// The replication origin whose progress is the high-water mark. It is the last number that a named
/// origin could get, and those are given out from 1 upwards; 65535 is reserved by PostgreSQL.
pub const MARK_ORIGIN: pg_sys::RepOriginId = 65534;

/// The system clock as PostgreSQL writes it.
pub fn timestamp() -> Timestamptz {
    // SAFETY: reads the clock.
    unsafe { pg_sys::GetCurrentTimestamp() }
}

/// Whether the server is in recovery: a standby, or one that is starting after a crash.
pub fn in_recovery() -> bool {
    // SAFETY: reads shared memory of PostgreSQL's own.
    unsafe { pg_sys::RecoveryInProgress() }
}

/// The stored high-water mark; 0 where none has ever been stored.
pub fn load_mark() -> Tick {
    // SAFETY: takes and releases locks of PostgreSQL's own.
    unsafe { pg_sys::replorigin_get_progress(MARK_ORIGIN, false) }
}

/// Writes the mark to the WAL and to PostgreSQL's register of origins, which every checkpoint saves
/// and recovery restores. A mark below the stored one changes nothing. Returns how far the WAL must
/// be flushed for the mark to be durable.
///
/// Raises 53400 where no register is free, at once and not as a result: PostgreSQL's call then still
/// holds a lock, which only the abort of the transaction releases.
pub fn write_mark(mark: Tick) -> u64 {
    PgTryBuilder::new(|| {
        // SAFETY: the origin number is ours alone, and the call takes no transaction id: it works
        // in read-only transactions and parallel workers.
        unsafe {
            pg_sys::replorigin_advance(MARK_ORIGIN, mark, 0, false, true);
            pg_sys::XactLastRecEnd
        }
    })
    .catch_when(PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED, |_| or_raise(Err(Error::NoRegister)))
    .execute()
}

/// Waits until the WAL up to `lsn` is on disk.
pub fn flush_wal(lsn: u64) {
    // SAFETY: `lsn` is the end of a record that this backend has inserted.
    unsafe { pg_sys::XLogFlush(lsn) }
}

/// Whether the WAL up to `lsn` is on disk at the synchronous standbys too, as
/// `synchronous_standby_names` asks; always where it names none.
pub fn acknowledged(lsn: u64) -> bool {
    // SAFETY: WalSndCtl is set up before any backend. The position is an aligned 64-bit number that
    // the WAL senders only ever raise, whether or not a backend queues for it; an old value of it
    // means to ask again.
    unsafe {
        let names = pg_sys::SyncRepStandbyNames;
        if pg_sys::max_wal_senders == 0 || names.is_null() || *names == 0 {
            return true;
        }
        let flushed = &raw const (*pg_sys::WalSndCtl).lsn[pg_sys::SYNC_REP_WAIT_FLUSH as usize];
        flushed.read_volatile() >= lsn
    }
}

/// The row of a function with OUT parameters, all of them passed by value and not null.
pub struct Row<const COLUMNS: usize>(pub [pg_sys::Datum; COLUMNS]);

// SAFETY: the result is a row of the type that the function is declared to return. PostgreSQL passes
// a valid fcinfo whose flinfo lives in fn_mcxt. The row's description is looked up once for each
// call site and kept there; BlessTupleDesc makes it fit for the type record.
unsafe impl<const COLUMNS: usize> BoxRet for Row<COLUMNS> {
    unsafe fn box_into<'fcx>(mut self, fcinfo: &mut FcInfo<'fcx>) -> Datum<'fcx> {
        // SAFETY: as above. The number of columns is checked before the values are read.
        unsafe {
            let call = fcinfo.as_mut_ptr();
            let flinfo = (*call).flinfo;
            if (*flinfo).fn_extra.is_null() {
                PgMemoryContexts::For((*flinfo).fn_mcxt).switch_to(|_| {
                    let mut desc = ptr::null_mut();
                    let class = pg_sys::get_call_result_type(call, ptr::null_mut(), &mut desc);
                    assert_eq!(class, pg_sys::TypeFuncClass::TYPEFUNC_COMPOSITE);
                    let desc = pg_sys::CreateTupleDescCopy(desc);
                    assert_eq!((*desc).natts as usize, COLUMNS);
                    (*flinfo).fn_extra = pg_sys::BlessTupleDesc(desc).cast();
                });
            }
            let mut nulls = [false; COLUMNS];
            let tuple =
                pg_sys::heap_form_tuple((*flinfo).fn_extra.cast(), self.0.as_mut_ptr(), nulls.as_mut_ptr());
            fcinfo.return_raw_datum(pg_sys::HeapTupleHeaderGetDatum((*tuple).t_data))
        }
    }
}

// SAFETY: sql/idgen.sql writes the declaration by hand; this only lets the macro name the type.
unsafe impl<const COLUMNS: usize> SqlTranslatable for Row<COLUMNS> {
    const TYPE_IDENT: &'static str = "idgen::pg::Row";
    const TYPE_ORIGIN: TypeOrigin = TypeOrigin::External;
    const ARGUMENT_SQL: Result<SqlMappingRef, ArgumentError> = Ok(SqlMappingRef::Skip);
    const RETURN_SQL: Result<ReturnsRef, ReturnsError> = Ok(ReturnsRef::One(SqlMappingRef::Skip));
}
