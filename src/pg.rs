//! Raw PostgreSQL calls behind safe functions. With `shmem` and `compat` the only place with `unsafe`.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem;
use std::ops::Deref;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{self, Ordering};

use nix::libc;
use pgrx::callconv::{BoxRet, FcInfo};
use pgrx::datum::Datum;
use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting};
use pgrx::pg_sys::submodules::panic::pgrx_extern_c_guard;
use pgrx::pgrx_sql_entity_graph::metadata::{
    ArgumentError, ReturnsError, ReturnsRef, SqlMappingRef, SqlTranslatable, TypeOrigin,
};
use pgrx::{PgMemoryContexts, PgSqlErrorCode, PgTryBuilder, pg_sys};

use crate::compat::{STANDBYS_STATUS_HAS_BITS, Wait, checkpointer_has_begun, most_origins, wait_event};
use crate::epoch::Timestamptz;
use crate::error::{Error, or_raise};
use crate::layout::Tick;
use crate::origins::MARK_ORIGIN;

/// Whether the postmaster is loading `shared_preload_libraries`.
pub fn preloading() -> bool {
    // SAFETY: a plain flag of this single-threaded process.
    unsafe { pg_sys::process_shared_preload_libraries_in_progress }
}

/// Whether `shared_preload_libraries` names a library, in any of the forms that PostgreSQL takes. A file system
/// may be blind to the case of letters.
pub fn preloads(library: &str) -> bool {
    // SAFETY: the setting is a C string that is there before any library is loaded, or null; the server does
    // not change it while it runs.
    unsafe { names_library(&setting_text(pg_sys::shared_preload_libraries_string), library) }
}

/// Whether a list of libraries, as a setting of PostgreSQL writes it, names one.
pub fn names_library(list: &str, library: &str) -> bool {
    let Ok(list) = CString::new(list) else { return false };
    // SAFETY: PostgreSQL's own splitter cuts a copy up. What it has read is a list of C strings, also where it
    // found the text wrong and stopped.
    let files: Vec<String> = unsafe {
        let mut files = ptr::null_mut();
        pg_sys::SplitDirectoriesString(pg_sys::pstrdup(list.as_ptr()), b',' as c_char, &raw mut files);
        let files = pgrx::PgList::<c_char>::from_pg(files);
        files.iter_ptr().map(|file| setting_text(file).into_owned()).collect()
    };
    let stem = |file: &String| Some(Path::new(file).file_stem()?.to_str()?.to_ascii_lowercase());
    files.iter().any(|file| stem(file).as_deref() == Some(library))
}

/// Whether this is the postmaster and none of its children, which preload for themselves where they cannot
/// inherit.
pub fn in_postmaster() -> bool {
    // SAFETY: a plain flag of this single-threaded process.
    unsafe { !pg_sys::IsUnderPostmaster }
}

/// A variable of this process, as a static of C is. A `thread_local` in a library that is loaded at run
/// time would be found by a call of `__tls_get_addr` at every use, several on the way to an id.
pub struct Local<T>(T);

// SAFETY: a backend is one thread, and so is the postmaster.
unsafe impl<T> Sync for Local<T> {}

impl<T> Local<T> {
    /// A variable with its first value, which children of the postmaster inherit.
    pub const fn new(value: T) -> Local<T> {
        Local(value)
    }
}

impl<T> Deref for Local<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// The arguments of a call from SQL, by their place. A wrong type reads wrong bits, no more than that.
#[derive(Clone, Copy)]
pub struct Call(pg_sys::FunctionCallInfo);

impl Call {
    /// # Safety
    /// What PostgreSQL has handed to a function, which gives it to nobody that outlives the call.
    pub unsafe fn new(fcinfo: pg_sys::FunctionCallInfo) -> Call {
        Call(fcinfo)
    }

    #[inline]
    fn argument(&self, place: usize) -> Option<pg_sys::Datum> {
        // SAFETY: fcinfo is valid as long as the call, and has nargs arguments behind its end.
        unsafe {
            let fcinfo = &*self.0;
            let arguments = fcinfo.args.as_slice(fcinfo.nargs as usize);
            arguments.get(place).filter(|argument| !argument.isnull).map(|argument| argument.value)
        }
    }

    /// An `integer`; none for null.
    #[inline]
    pub fn int4(&self, place: usize) -> Option<i32> {
        self.argument(place).map(|value| value.value() as i32)
    }

    /// A `bigint` or `timestamptz`; none for null.
    #[inline]
    pub fn int8(&self, place: usize) -> Option<i64> {
        self.argument(place).map(|value| value.value() as i64)
    }
}

unsafe extern "C-unwind" {
    // As pg_sys has it, without the guard around it: an error, which is that memory is out, goes straight to
    // PostgreSQL, past frames that have nothing to drop.
    fn palloc(size: usize) -> *mut c_void;
}

/// A column of a [`Call::row`]: passed by value and not null.
#[derive(Clone, Copy)]
pub enum Column {
    /// An `integer`.
    Int4(i32),
    /// A `bigint` or `timestamptz`.
    Int8(i64),
}

impl Call {
    /// The set that this call site has begun to return; null where it has not.
    #[inline]
    fn set<I>(&self) -> *mut I {
        // SAFETY: fn_extra of a function that returns a set is what begin_or_end_set() has made of it, for
        // as long as the set lasts.
        unsafe {
            let set = (*(*self.0).flinfo).fn_extra.cast::<pg_sys::FuncCallContext>().as_ref();
            set.map_or(ptr::null_mut(), |set| set.user_fctx.cast())
        }
    }

    #[inline]
    fn set_is_done(&self, done: pg_sys::ExprDoneCond::Type) {
        // SAFETY: init_MultiFuncCall() has found that resultinfo is there, and is this.
        unsafe { (*(*self.0).resultinfo.cast::<pg_sys::ReturnSetInfo>()).isDone = done }
    }

    /// The next value of a set that this call site has begun to return.
    #[inline]
    pub fn next_of_set<I: Iterator<Item = i64>>(&self) -> Option<pg_sys::Datum> {
        // SAFETY: a set is of the type its function began it with, and this is the only reference to it.
        let value = unsafe { self.set::<I>().as_mut() }?.next()?;
        self.set_is_done(pg_sys::ExprDoneCond::ExprMultipleResult);
        Some(value.into())
    }

    /// Begins to return a set, or ends it. Raises PostgreSQL's errors.
    pub fn begin_or_end_set<I: Iterator<Item = i64>, E>(
        &self,
        begin: impl FnOnce() -> Result<I, E>,
    ) -> Result<pg_sys::Datum, E> {
        // SAFETY: PostgreSQL passes a valid fcinfo. init_MultiFuncCall checks that a set may be returned,
        // and sees to it that fn_extra is cleared also where the caller does not read to the end.
        unsafe {
            if self.set::<I>().is_null() {
                let values = begin()?;
                let set = pg_sys::init_MultiFuncCall(self.0);
                let mut context = PgMemoryContexts::For((*set).multi_call_memory_ctx);
                (*set).user_fctx = context.leak_and_drop_on_delete(values).cast();
                if let Some(value) = self.next_of_set::<I>() {
                    return Ok(value);
                }
            }
            let set = (*(*self.0).flinfo).fn_extra.cast();
            pg_sys::end_MultiFuncCall(self.0, set);
            self.set_is_done(pg_sys::ExprDoneCond::ExprEndResult);
            (*self.0).isnull = true;
            Ok(pg_sys::Datum::null())
        }
    }
}

/// What a tuple without nulls has before its columns, in words of 8 bytes.
const TUPLE_HEADER: usize = (mem::offset_of!(pg_sys::HeapTupleHeaderData, t_bits)).div_ceil(8);

/// Where each column begins and where the last one ends, counted from the tuple's beginning.
#[inline]
fn places<const COLUMNS: usize>(columns: &[Column; COLUMNS]) -> ([usize; COLUMNS], usize) {
    let mut end = TUPLE_HEADER * 8;
    let places = columns.each_ref().map(|column| {
        let size = match column {
            Column::Int4(_) => 4,
            Column::Int8(_) => 8,
        };
        let place = end.next_multiple_of(size);
        end = place + size;
        place
    });
    (places, end)
}

/// The type of the row that a function with OUT parameters returns, made in the current memory context and
/// fit for the type record. Panics where it has not that number of columns.
///
/// # Safety
/// `call` is what PostgreSQL has handed to the function.
unsafe fn row_type(call: pg_sys::FunctionCallInfo, columns: usize) -> pg_sys::TupleDesc {
    // SAFETY: the caller's promise.
    unsafe {
        let mut desc = ptr::null_mut();
        let class = pg_sys::get_call_result_type(call, ptr::null_mut(), &mut desc);
        assert_eq!(class, pg_sys::TypeFuncClass::TYPEFUNC_COMPOSITE);
        assert_eq!((*desc).natts as usize, columns);
        pg_sys::BlessTupleDesc(desc)
    }
}

impl Call {
    /// A row of the function's OUT parameters, which are those columns. None at the first call of a call
    /// site: [`Call::first_row`] does that.
    #[inline]
    pub fn row<const COLUMNS: usize>(&self, columns: [Column; COLUMNS]) -> Option<pg_sys::Datum> {
        // SAFETY: fn_extra is this function's own. first_row() alone sets it, to the header of a tuple that
        // it has found to be laid out like this. What palloc returns is aligned for every type.
        unsafe {
            let header = (*(*self.0).flinfo).fn_extra.cast::<[u64; TUPLE_HEADER]>().as_ref()?;
            let (places, length) = places(&columns);
            let tuple = palloc(length).cast::<u8>();
            tuple.cast::<[u64; TUPLE_HEADER]>().write(*header);
            for (column, place) in columns.into_iter().zip(places) {
                match column {
                    Column::Int4(value) => tuple.add(place).cast::<i32>().write(value),
                    Column::Int8(value) => tuple.add(place).cast::<i64>().write(value),
                }
            }
            Some(tuple.into())
        }
    }

    /// Has PostgreSQL form the row, and keeps its header for the next ones. Raises PostgreSQL's errors.
    pub fn first_row<const COLUMNS: usize>(&self, columns: [Column; COLUMNS]) -> pg_sys::Datum {
        // SAFETY: PostgreSQL passes a valid fcinfo whose flinfo lives in fn_mcxt, as must what fn_extra
        // points to.
        unsafe {
            let flinfo = (*self.0).flinfo;
            PgMemoryContexts::For((*flinfo).fn_mcxt).switch_to(|_| {
                let desc = row_type(self.0, COLUMNS);
                let mut values = columns.map(|column| match column {
                    Column::Int4(value) => value.into(),
                    Column::Int8(value) => value.into(),
                });
                let mut nulls = [false; COLUMNS];
                let tuple = pg_sys::heap_form_tuple(desc, values.as_mut_ptr(), nulls.as_mut_ptr());
                let (length, tuple) = ((*tuple).t_len as usize, (*tuple).t_data);
                assert_eq!(usize::from((*tuple).t_hoff), TUPLE_HEADER * 8);
                assert_eq!(length, places(&columns).1);
                (*flinfo).fn_extra = tuple.cast();
            });
        }
        self.row(columns).unwrap_or(pg_sys::Datum::null())
    }
}

/// Defines the entry of a function that is called for every row. `#[pg_extern]` costs such a call as
/// much as minting itself: it switches memory contexts and carries the result through several hands. Here
/// `$fast` answers without ever panicking, or gives none and `$slow` does it under pgrx's guard.
macro_rules! hot_entry {
    ($symbol:ident, $fast:expr, $slow:expr) => {
        #[allow(unsafe_code)]
        const _: () = {
            #[unsafe(export_name = concat!("pg_finfo_", stringify!($symbol)))]
            extern "C" fn finfo() -> &'static pgrx::pg_sys::Pg_finfo_record {
                &pgrx::pg_sys::Pg_finfo_record { api_version: 1 }
            }

            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $symbol(
                fcinfo: pgrx::pg_sys::FunctionCallInfo,
            ) -> pgrx::pg_sys::Datum {
                // SAFETY: PostgreSQL calls this; what panics below does so inside the guard.
                unsafe {
                    let call = $crate::pg::Call::new(fcinfo);
                    match $fast(call) {
                        Some(value) => value.into(),
                        None => pgrx::pg_sys::submodules::panic::pgrx_extern_c_guard(|| {
                            $crate::error::or_raise($slow(call)).into()
                        }),
                    }
                }
            }
        };
    };
}
pub(crate) use hot_entry;

/// Reads a clock of the system: seconds, and nanoseconds of the second. The crate nix has a safe call for
/// it, which costs a fifth of reading the clock.
#[inline]
pub fn clock(clock: libc::clockid_t) -> (i64, i64) {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills in the struct. It fails only for a clock that the system does not have.
    unsafe { libc::clock_gettime(clock, &mut time) };
    (time.tv_sec, time.tv_nsec)
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

/// An integer setting. PostgreSQL writes its value straight to the variable, so that reading it costs
/// nothing; pgrx's own looks up the thread first.
pub struct IntSetting {
    /// Its name.
    pub name: &'static CStr,
    /// A sentence: what it is.
    pub short: &'static CStr,
    /// More sentences.
    pub long: &'static CStr,
    /// Where the value is kept; it holds the default.
    pub value: &'static Local<Cell<i32>>,
    /// The least value allowed.
    pub min: i32,
    /// The greatest value allowed.
    pub max: i32,
    /// Who may change it, and when.
    pub context: GucContext,
    /// Its unit.
    pub flags: GucFlags,
    /// After a change a lease may break a promise, and the backend drops it.
    pub drops_lease: bool,
}

/// Defines an integer setting.
pub fn define_int_setting(setting: IntSetting) {
    // SAFETY: the strings and the variable live as long as the process, and the hook turns panics into
    // PostgreSQL errors.
    unsafe {
        pg_sys::DefineCustomIntVariable(
            setting.name.as_ptr(),
            setting.short.as_ptr(),
            setting.long.as_ptr(),
            setting.value.as_ptr(),
            setting.value.get(),
            setting.min,
            setting.max,
            setting.context as pg_sys::GucContext::Type,
            setting.flags.bits(),
            None,
            if setting.drops_lease { Some(drop_lease) } else { None },
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
pub fn sleep(us: u64, wait: Wait) {
    // The latch counts whole milliseconds; what is left below two is slept by the microsecond.
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

/// Raises what a cancel, statement_timeout or the server's end asks for.
pub fn check_for_interrupts() {
    pgrx::check_for_interrupts!();
}

/// How many backends there can be at once.
pub fn most_backends() -> usize {
    // SAFETY: set before shared memory is asked for, and constant from then on.
    unsafe { pg_sys::MaxBackends as usize }
}

/// The number of this backend, below [`most_backends`]; none in processes that are no backends.
pub fn backend() -> Option<usize> {
    // SAFETY: MyProc is null or this process's entry in the array of all.
    unsafe { number_of(pg_sys::MyProc) }
}

/// The number of the backend that the open transaction belongs to: this one or, in a parallel worker, its
/// leader.
pub fn transaction_owner() -> Option<usize> {
    // SAFETY: as in backend(); a leader is in the array too.
    unsafe {
        let leader = pg_sys::MyProc.as_ref()?.lockGroupLeader;
        number_of(if leader.is_null() { pg_sys::MyProc } else { leader })
    }
}

/// # Safety
/// `process` is null or an entry in PostgreSQL's array of all processes.
unsafe fn number_of(process: *mut pg_sys::PGPROC) -> Option<usize> {
    // SAFETY: the caller's promise.
    unsafe { (!process.is_null()).then(|| process.offset_from_unsigned((*pg_sys::ProcGlobal).allProcs)) }
}

/// Has [`crate::mint::transaction_ended`] called at the end of every transaction, when its rows are visible
/// or gone. To be called while the library is being preloaded: children inherit it.
pub fn watch_transactions() {
    // SAFETY: the callback does not raise.
    unsafe { pg_sys::RegisterResourceReleaseCallback(Some(resources_released), ptr::null_mut()) }
}

/// The release of resources comes after the transaction callbacks of all libraries, in whichever order they
/// are loaded. Some commit on another server only in theirs. A prepared transaction is among those that
/// [`prepared_transactions`] counts by then, and nobody else can end it yet.
unsafe extern "C-unwind" fn resources_released(
    phase: pg_sys::ResourceReleasePhase::Type,
    _is_commit: bool,
    is_top_level: bool,
    _arg: *mut c_void,
) {
    use pg_sys::ResourceReleasePhase::RESOURCE_RELEASE_AFTER_LOCKS;
    // PostgreSQL calls it for portals too, and outside of transactions for the resources of a base backup or of
    // a process that is no backend. It names the owner whose resources are released in CurrentResourceOwner.
    // SAFETY: plain variables of this process.
    let of_transaction = unsafe { pg_sys::CurrentResourceOwner == pg_sys::TopTransactionResourceOwner };
    if phase == RESOURCE_RELEASE_AFTER_LOCKS && is_top_level && of_transaction {
        crate::mint::transaction_ended();
    }
}

/// Whether the whole transaction reads by one snapshot, that of its first statement.
pub fn one_snapshot() -> bool {
    // SAFETY: a plain variable of this process.
    unsafe { pg_sys::XactIsoLevel >= pg_sys::XACT_REPEATABLE_READ as i32 }
}

unsafe extern "C" {
    /// `max_prepared_transactions`, which pgrx does not have.
    static max_prepared_xacts: c_int;
}

/// How many prepared transactions there are in the cluster. Raises PostgreSQL's errors, and never answers where
/// it cannot know: none is what a reader relies on.
pub fn prepared_transactions() -> usize {
    // SAFETY: set at the start of the server, and constant from then on.
    if unsafe { max_prepared_xacts } == 0 {
        return 0;
    }
    // Nothing in it can be anybody's but PostgreSQL's own, whatever the caller's search_path.
    let query = "SELECT FROM pg_catalog.pg_prepared_xact()";
    pgrx::Spi::connect(|client| client.select(query, None, &[]).expect("a list").len())
}

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
    .catch_when(PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED, |_| {
        // Others have taken all.
        or_raise(Err(Error::NoRegister { needed: most_origins().1 + 1 }))
    })
    .execute()
}

/// How many replication origins have progress in this run of the server. Raises PostgreSQL's errors.
pub fn origins_in_use() -> usize {
    // SAFETY: PostgreSQL's function is called as the executor does it, for all of its rows at once. They are
    // in a tuplestore of its own making, in the memory of `context`. The call's three parts outlive it.
    unsafe {
        let context = pg_sys::CreateStandaloneExprContext();
        let mut function = pg_sys::FmgrInfo::default();
        pg_sys::fmgr_info(pg_sys::F_PG_SHOW_REPLICATION_ORIGIN_STATUS.into(), &mut function);
        let mut rows = pg_sys::ReturnSetInfo {
            type_: pg_sys::NodeTag::T_ReturnSetInfo,
            econtext: context,
            allowedModes: pg_sys::SetFunctionReturnMode::SFRM_Materialize as i32,
            ..Default::default()
        };
        let mut call = pg_sys::FunctionCallInfoBaseData {
            flinfo: &mut function,
            resultinfo: (&raw mut rows).cast(),
            ..Default::default()
        };
        pg_sys::pg_show_replication_origin_status(&mut call);
        let count = pg_sys::tuplestore_tuple_count(rows.setResult);
        pg_sys::tuplestore_end(rows.setResult);
        pg_sys::FreeExprContext(context, true);
        count as usize
    }
}

/// Whether the current user is a superuser.
pub fn superuser() -> bool {
    // SAFETY: reads the catalog.
    unsafe { pg_sys::superuser() }
}

unsafe extern "C-unwind" {
    // postmaster/bgwriter.h, which pgrx leaves out, and so the guard around it too.
    fn RequestCheckpoint(flags: i32);
}

const INVALID_ORIGIN: pg_sys::RepOriginId = pg_sys::InvalidRepOriginId as pg_sys::RepOriginId;

/// Has PostgreSQL forget the mark, here and, by the WAL, on standbys; whether there was one. To drop an origin
/// takes a name, so the mark gets one for the moment. The mark is gone at once, also where the transaction
/// rolls back. When this returns a checkpoint is behind it: no recovery of this server comes across it again.
///
/// Raises PostgreSQL's errors: 25006 in a transaction that may only read.
pub fn drop_mark() -> bool {
    // SAFETY: the row is formed by the description of the table that it goes into, of both its columns. The
    // table is locked against everybody who would change it until the transaction ends.
    unsafe {
        pg_sys::PreventCommandIfReadOnly(c"snowflake_remove_mark()".as_ptr());
        let table = pg_sys::table_open(
            pg_sys::ReplicationOriginRelationId,
            pg_sys::ExclusiveLock as pg_sys::LOCKMODE,
        );
        let there = load_mark() > 0;
        // Somebody may have given it a name by hand before.
        let mut name = ptr::null_mut();
        let named = pg_sys::replorigin_by_oid(MARK_ORIGIN, true, &mut name);
        if there && !named {
            // Another origin may have that name, but not all of these: there are fewer origins.
            let names = (0..=u32::from(MARK_ORIGIN)).map(|n| CString::new(format!("idgen_mark_{n}")));
            let free = |name: &CString| pg_sys::replorigin_by_name(name.as_ptr(), true) == INVALID_ORIGIN;
            let free = names.flatten().find(|name| free(name)).expect("a free name");
            name = pg_sys::pstrdup(free.as_ptr());
            let mut values =
                [pg_sys::Oid::from(u32::from(MARK_ORIGIN)).into(), pg_sys::cstring_to_text(name).into()];
            let mut nulls = [false; 2];
            let row = pg_sys::heap_form_tuple((*table).rd_att, values.as_mut_ptr(), nulls.as_mut_ptr());
            pg_sys::CatalogTupleInsert(table, row);
            pg_sys::CommandCounterIncrement();
        }
        if there || named {
            pg_sys::replorigin_drop_by_name(name, false, true);
        }
        pg_sys::table_close(table, pg_sys::NoLock as pg_sys::LOCKMODE);
        let flags = pg_sys::CHECKPOINT_IMMEDIATE | pg_sys::CHECKPOINT_FORCE | pg_sys::CHECKPOINT_WAIT;
        pg_sys::ffi::pg_guard_ffi_boundary(|| RequestCheckpoint(flags as i32));
        there
    }
}

/// Waits until the WAL up to `lsn` is on disk.
pub fn flush_wal(lsn: u64) {
    // SAFETY: `lsn` is the end of a record that a backend of this run of the server has inserted.
    unsafe { pg_sys::XLogFlush(lsn) }
}

/// Whether the WAL up to `lsn` is on disk at the synchronous standbys too, as `synchronous_standby_names` asks.
pub fn acknowledged(lsn: u64) -> bool {
    // SAFETY: WalSndCtl is set up before any backend. The position is an aligned 64-bit number that
    // the WAL senders only ever raise, whether or not a backend queues for it; an old value of it
    // means to ask again.
    unsafe {
        let flushed = &raw const (*pg_sys::WalSndCtl).lsn[pg_sys::SYNC_REP_WAIT_FLUSH as usize];
        flushed.read_volatile() >= lsn
    }
}

static STATUS_HAS_BITS: Local<Cell<bool>> = Local::new(Cell::new(true));

/// Finds out what this minor release of PostgreSQL, which need not be the one that the library was built
/// with, means by the status of synchronous standbys. To be called while the library is being preloaded:
/// children inherit it.
pub fn look_up_release() {
    let release = configured(c"server_version_num").and_then(|number| number.parse().ok());
    STATUS_HAS_BITS.set(release.is_none_or(|number: i32| number >= STANDBYS_STATUS_HAS_BITS));
}

/// Whether a commit would wait for synchronous standbys now. A backend reads its configuration between
/// statements only, so commits go by what the checkpointer has read and put into shared memory, and so do ids.
#[inline]
pub fn standbys_must_acknowledge() -> bool {
    // SAFETY: WalSndCtl is set up before any backend, and max_wal_senders with it. The status is the byte
    // after the positions in all releases, whatever its name and type in the headers of this one.
    let status = || unsafe { (&raw const (*pg_sys::WalSndCtl).lsn).add(1).cast::<u8>().read_volatile() };
    // SAFETY: set before any backend begins.
    if unsafe { pg_sys::max_wal_senders } == 0 {
        return false;
    }
    standbys_defined(status, STATUS_HAS_BITS.get()).unwrap_or_else(|| {
        // SAFETY: the setting as this backend has read it, null or a C string.
        unsafe { !pg_sys::SyncRepStandbyNames.is_null() && *pg_sys::SyncRepStandbyNames != 0 }
    })
}

/// What the status of synchronous standbys says; nothing until the checkpointer has looked at the setting.
#[inline]
pub fn standbys_defined(status: impl FnOnce() -> u8, has_bits: bool) -> Option<bool> {
    const INIT: u8 = 1;
    const DEFINED: u8 = 2;
    if has_bits {
        let status = status();
        return (status & INIT != 0).then_some(status & DEFINED != 0);
    }
    // First whether it has begun: the status is set before that can be seen.
    let begun = checkpointer_has_begun();
    atomic::fence(Ordering::Acquire);
    let defined = status() != 0;
    (begun || defined).then_some(defined)
}

/// The row of a function with OUT parameters, all of them passed by value; none is null.
pub struct Row<const COLUMNS: usize>(pub [Option<pg_sys::Datum>; COLUMNS]);

// SAFETY: the result is a row of the type that the function is declared to return. PostgreSQL passes
// a valid fcinfo whose flinfo lives in fn_mcxt. The row's description is looked up once for each
// call site and kept there.
unsafe impl<const COLUMNS: usize> BoxRet for Row<COLUMNS> {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> Datum<'fcx> {
        // SAFETY: as above. The number of columns is checked before the values are read.
        unsafe {
            let call = fcinfo.as_mut_ptr();
            let flinfo = (*call).flinfo;
            if (*flinfo).fn_extra.is_null() {
                PgMemoryContexts::For((*flinfo).fn_mcxt)
                    .switch_to(|_| (*flinfo).fn_extra = row_type(call, COLUMNS).cast());
            }
            let mut nulls = self.0.map(|value| value.is_none());
            let mut values = self.0.map(|value| value.unwrap_or(pg_sys::Datum::null()));
            let tuple =
                pg_sys::heap_form_tuple((*flinfo).fn_extra.cast(), values.as_mut_ptr(), nulls.as_mut_ptr());
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
