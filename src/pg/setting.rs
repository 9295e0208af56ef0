//! Settings, by PostgreSQL's GUC mechanism.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ops::RangeInclusive;
use std::path::Path;
use std::ptr;

use pgrx::guc::{GucCheckError, GucContext, GucFlags, GucRegistry, GucSetting};
use pgrx::pg_sys::submodules::panic::pgrx_extern_c_guard;
use pgrx::{FromDatum, PgMemoryContexts, pg_sys};

use super::call::rows;
use super::compat::{self, log_level};
use super::local::Local;

/// Whether `shared_preload_libraries` names a library, in any form that PostgreSQL accepts. Case is ignored,
/// because the file system may ignore it too.
pub fn preloads(library: &str) -> bool {
    // SAFETY: the setting is a C string set before any library is loaded, or null; it does not change while the
    // server runs.
    unsafe { names_library(&setting_text(pg_sys::shared_preload_libraries_string), library) }
}

/// Whether a list of libraries, in the form of PostgreSQL's settings, names a library.
pub fn names_library(list: &str, library: &str) -> bool {
    let Ok(list) = CString::new(list) else { return false };
    // SAFETY: PostgreSQL's own function splits a copy. Its result is a list of C strings, even if it found an error
    // in the text and stopped.
    let files: Vec<String> = unsafe {
        let mut files = ptr::null_mut();
        pg_sys::SplitDirectoriesString(pg_sys::pstrdup(list.as_ptr()), b',' as c_char, &raw mut files);
        let files = pgrx::PgList::<c_char>::from_pg(files);
        files.iter_ptr().map(|file| setting_text(file).into_owned()).collect()
    };
    let stem = |file: &String| Some(Path::new(file).file_stem()?.to_str()?.to_ascii_lowercase());
    files.iter().any(|file| stem(file).as_deref() == Some(library))
}

/// Why the value of a setting is refused.
pub struct Complaint {
    /// The DETAIL: what is wrong.
    pub detail: String,
    /// The HINT: what would be right.
    pub hint: &'static str,
}

/// A setting whose text has a format of its own.
pub trait TextSetting {
    /// Checks a value. One with a complaint is refused with 22023.
    fn check(text: &str) -> Result<(), Complaint>;
    /// Applies a value that has passed `check`.
    fn assign(text: &str);
}

/// Defines a setting whose values are checked and applied by `S`.
pub fn define_text<S: TextSetting>(
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

/// Reads a setting's value as PostgreSQL passes it to a hook. Invalid UTF-8 is replaced; no setting of idgen
/// accepts it, so the check refuses the result.
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
    // SAFETY: PostgreSQL passes a pointer to the new value, and calls this as a check hook.
    unsafe {
        pgrx_extern_c_guard(|| match S::check(&setting_text(*value)) {
            Ok(()) => true,
            Err(complaint) => {
                // C code leaves them in this context too: at a reload, the current context may be one that is never
                // reset.
                PgMemoryContexts::ErrorContext.switch_to(|_| {
                    GucCheckError::default().with_detail(complaint.detail).with_hint(complaint.hint).apply();
                });
                false
            }
        })
    }
}

unsafe extern "C-unwind" fn assign_text<S: TextSetting>(value: *const c_char, _extra: *mut c_void) {
    // SAFETY: PostgreSQL passes the value that check_text has accepted.
    unsafe { pgrx_extern_c_guard(|| S::assign(&setting_text(value))) }
}

/// An integer setting. PostgreSQL writes its value directly to `value`, so that reading it costs nothing; pgrx's own
/// settings look up the thread first.
pub struct IntSetting {
    /// Its name.
    pub name: &'static CStr,
    /// Initially the default.
    value: Cell<i32>,
    range: RangeInclusive<i32>,
    unit: GucFlags,
    short: &'static CStr,
    long: &'static CStr,
    context: pg_sys::GucContext::Type,
    changed: Option<AssignHook>,
}

impl IntSetting {
    /// A setting that each session can change, by its name, default, range, unit, and short and long description.
    pub const fn new(
        name: &'static CStr,
        default: i32,
        range: RangeInclusive<i32>,
        unit: GucFlags,
        short: &'static CStr,
        long: &'static CStr,
    ) -> IntSetting {
        let (value, context) = (Cell::new(default), pg_sys::GucContext::PGC_USERSET);
        IntSetting { name, value, range, unit, short, long, context, changed: None }
    }

    /// Makes it a setting of the server, which only the configuration files change, with an action after each change.
    pub const fn of_server<C: Changed>(self) -> IntSetting {
        IntSetting { context: pg_sys::GucContext::PGC_SIGHUP, ..self.on_change::<C>() }
    }

    /// Gives it an action after each change.
    pub const fn on_change<C: Changed>(self) -> IntSetting {
        IntSetting { changed: Some(changed::<C>), ..self }
    }

    /// Whether all sessions have the same value.
    pub fn is_of_server(&self) -> bool {
        self.context == pg_sys::GucContext::PGC_SIGHUP
    }

    /// Its value.
    #[inline]
    pub fn get(&self) -> i32 {
        self.value.get()
    }
}

/// A function that PostgreSQL calls with a setting's new value.
type AssignHook = unsafe extern "C-unwind" fn(i32, *mut c_void);

/// An action after a change of a setting. It is a type, because PostgreSQL passes nothing but the value to a hook.
pub trait Changed {
    /// Runs the action.
    fn changed();
}

unsafe extern "C-unwind" fn changed<C: Changed>(_value: i32, _extra: *mut c_void) {
    // SAFETY: called by PostgreSQL at the top of an extern "C-unwind" function.
    unsafe { pgrx_extern_c_guard(C::changed) }
}

/// Defines an integer setting.
pub fn define_int(setting: &'static IntSetting) {
    // SAFETY: the strings and the variable live as long as the process, and the hook turns panics into
    // PostgreSQL errors.
    unsafe {
        pg_sys::DefineCustomIntVariable(
            setting.name.as_ptr(),
            setting.short.as_ptr(),
            setting.long.as_ptr(),
            setting.value.as_ptr(),
            setting.get(),
            *setting.range.start(),
            *setting.range.end(),
            setting.context,
            setting.unit.bits(),
            None,
            setting.changed,
            None,
        );
    }
}

/// The text of a read-only setting. It is a type, because PostgreSQL passes nothing to a hook.
pub trait Shown {
    /// The text, whatever the state of the session.
    fn shown() -> String;
}

unsafe extern "C-unwind" fn show<S: Shown>() -> *const c_char {
    // The caller copies the text at once.
    static TEXT: Local<RefCell<Option<CString>>> = Local::new(RefCell::new(None));
    // SAFETY: called by PostgreSQL at the top of an extern "C-unwind" function.
    unsafe {
        pgrx_extern_c_guard(|| {
            let text = CString::new(S::shown()).unwrap_or_default();
            TEXT.borrow_mut().insert(text).as_ptr()
        })
    }
}

/// Defines a read-only setting that only members of `pg_read_all_settings` can read. A value that it was given before
/// is refused. `pg_settings` does not show it, although PostgreSQL 15 calls the hook for that view, and discards the
/// result.
pub fn define_shown<S: Shown>(name: &'static CStr, short: &'static CStr, long: &'static CStr) {
    static VALUE: Local<Cell<*mut c_char>> = Local::new(Cell::new(ptr::null_mut()));
    let flags = pg_sys::GUC_SUPERUSER_ONLY
        | pg_sys::GUC_NO_SHOW_ALL
        | pg_sys::GUC_NOT_IN_SAMPLE
        | pg_sys::GUC_DISALLOW_IN_FILE;
    // SAFETY: the strings and the variable live as long as the process, and the hook turns panics into PostgreSQL
    // errors.
    unsafe {
        pg_sys::DefineCustomStringVariable(
            name.as_ptr(),
            short.as_ptr(),
            long.as_ptr(),
            VALUE.as_ptr(),
            ptr::null(),
            pg_sys::GucContext::PGC_INTERNAL,
            flags as i32,
            None,
            None,
            Some(show::<S>),
        );
    }
}

/// The configured value of a setting that is not defined yet, whatever the session has SET it to.
pub fn configured(name: &CStr) -> Option<String> {
    // SAFETY: GetConfigOptionResetString raises an error for an unknown name, hence the check before it. A null
    // result means that there is no value; otherwise the string is copied at once.
    unsafe {
        if pg_sys::GetConfigOption(name.as_ptr(), true, false).is_null() {
            return None;
        }
        let value = pg_sys::GetConfigOptionResetString(name.as_ptr());
        (!value.is_null()).then(|| setting_text(value).into_owned())
    }
}

/// The release of PostgreSQL that runs, as `server_version_num` counts. The library may have been built with another
/// minor release.
pub fn release() -> i32 {
    let number = configured(c"server_version_num").and_then(|number| number.parse().ok());
    number.unwrap_or(pg_sys::PG_VERSION_NUM as i32)
}

/// The source of a setting's value or, if that is the default, of the value after a RESET, as a phrase for messages;
/// `None` if both are the default, and before PostgreSQL 17. The setting need not be defined yet.
pub fn given(name: &CStr) -> Option<&'static str> {
    use pg_sys::GucSource::{
        PGC_S_ARGV, PGC_S_CLIENT, PGC_S_DATABASE, PGC_S_DATABASE_USER, PGC_S_DEFAULT, PGC_S_FILE,
        PGC_S_GLOBAL, PGC_S_USER,
    };
    let source = compat::sources(name)?.into_iter().rev().find(|source| *source != PGC_S_DEFAULT)?;
    Some(match source {
        PGC_S_FILE => "in the configuration files",
        PGC_S_ARGV => "on the command line of the server",
        PGC_S_GLOBAL | PGC_S_DATABASE | PGC_S_USER | PGC_S_DATABASE_USER => "for the database or the role",
        PGC_S_CLIENT => "by the client when it connected",
        _ => "in the session",
    })
}

/// The settings with a prefix for which the configuration files currently contain a value that is not in effect.
/// Raises PostgreSQL's errors.
pub fn not_taken(prefix: &str) -> impl Iterator<Item = String> {
    const NAME: usize = 3;
    const ERROR: usize = 6;
    // SAFETY: the function returns a set, and has this OID. The name is text in any encoding.
    let entries = unsafe {
        let _quiet = Quiet::begin();
        rows(pg_sys::show_all_file_settings, pg_sys::F_PG_SHOW_ALL_FILE_SETTINGS.into(), |slot| {
            let (values, nulls) = ((*slot).tts_values, (*slot).tts_isnull);
            let name: &[u8] = FromDatum::from_datum(*values.add(NAME), *nulls.add(NAME)).unwrap_or_default();
            (String::from_utf8_lossy(name).to_ascii_lowercase(), !*nulls.add(ERROR))
        })
    };
    // If a setting has several entries, the last one counts.
    let last: BTreeMap<String, bool> =
        entries.into_iter().filter(|(name, _)| name.starts_with(prefix)).collect();
    last.into_iter().filter(|(_, refused)| *refused).map(|(name, _)| name)
}

/// While this lives, nothing below FATAL goes to the server log: PostgreSQL would log a line for each optional file
/// that the configuration names and that is missing, at every read.
struct Quiet(i32);

impl Quiet {
    fn begin() -> Quiet {
        // SAFETY: a plain variable of this process.
        unsafe { Quiet(log_level().replace(pg_sys::FATAL as i32)) }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { log_level().write(self.0) }
    }
}

/// Runs `define`, which should not raise an error. It defines settings, and PostgreSQL warns of values that it cannot
/// take over. A warning to the client would become an error if the client's encoding lacked a character of it, or if
/// the statement was canceled at that moment, so warnings go to the server log only, and a cancel waits.
pub fn without_errors(define: impl FnOnce()) {
    struct Level(i32);
    impl Drop for Level {
        fn drop(&mut self) {
            // SAFETY: a plain variable of this process.
            unsafe { pg_sys::client_min_messages = self.0 }
        }
    }
    // SAFETY: plain variables of this process, the second one as HOLD_INTERRUPTS() changes it. An error would reset it.
    unsafe {
        let _level = Level((&raw mut pg_sys::client_min_messages).replace(pg_sys::PGERROR as i32));
        pg_sys::InterruptHoldoffCount += 1;
        define();
        pg_sys::InterruptHoldoffCount -= 1;
    }
}

/// Makes PostgreSQL refuse unknown settings that begin with `idgen.`.
pub fn reserve_prefix() {
    // SAFETY: PostgreSQL copies the string.
    unsafe { pg_sys::MarkGUCPrefixReserved(c"idgen".as_ptr()) }
}
