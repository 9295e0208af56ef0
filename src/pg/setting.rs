//! Settings, as PostgreSQL's GUC has them.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::path::Path;
use std::ptr;

use pgrx::guc::{GucCheckError, GucContext, GucFlags, GucRegistry, GucSetting};
use pgrx::pg_sys::submodules::panic::pgrx_extern_c_guard;
use pgrx::{FromDatum, PgMemoryContexts, pg_sys};

use super::backend::Local;
use super::call::rows;
use crate::compat::log_level;

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
    // SAFETY: PostgreSQL passes a pointer to the new value, and calls this as a check hook.
    unsafe {
        pgrx_extern_c_guard(|| match S::check(&setting_text(*value)) {
            Ok(()) => true,
            Err(complaint) => {
                // Where C leaves them too: at each reload the current context may be one that is never emptied.
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
    /// What is called after each change of it.
    pub changed: Option<AssignHook>,
}

/// A function that PostgreSQL calls with a setting's new value: see [`on_change`].
pub type AssignHook = unsafe extern "C-unwind" fn(i32, *mut c_void);

/// Something to do after a setting's change. It is a type, because PostgreSQL hands nothing to a hook but the value.
pub trait Changed {
    /// Does it.
    fn changed();
}

/// The hook that does it.
///
/// # Safety
/// PostgreSQL calls it.
pub unsafe extern "C-unwind" fn on_change<C: Changed>(_value: i32, _extra: *mut c_void) {
    // SAFETY: called by PostgreSQL at the top of an extern "C-unwind" function.
    unsafe { pgrx_extern_c_guard(C::changed) }
}

/// Defines an integer setting.
pub fn define_int(setting: IntSetting) {
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
            setting.changed,
            None,
        );
    }
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

/// The settings of a prefix to which the configuration files give a value that is not taken, as they are now. Raises
/// PostgreSQL's errors.
pub fn not_taken(prefix: &str) -> impl Iterator<Item = String> {
    const NAME: usize = 3;
    const ERROR: usize = 6;
    // SAFETY: that function returns a set, and has this OID. Both columns are text, in whatever encoding.
    let entries = unsafe {
        let _quiet = Quiet::begin();
        rows(pg_sys::show_all_file_settings, pg_sys::F_PG_SHOW_ALL_FILE_SETTINGS.into(), |slot| {
            let (values, nulls) = ((*slot).tts_values, (*slot).tts_isnull);
            let name: &[u8] = FromDatum::from_datum(*values.add(NAME), *nulls.add(NAME)).unwrap_or_default();
            (String::from_utf8_lossy(name).to_ascii_lowercase(), !*nulls.add(ERROR))
        })
    };
    // Of several entries for one setting the last one counts.
    let last: BTreeMap<String, bool> =
        entries.into_iter().filter(|(name, _)| name.starts_with(prefix)).collect();
    last.into_iter().filter(|(_, refused)| *refused).map(|(name, _)| name)
}

/// While it lives, nothing below FATAL goes to the server log: PostgreSQL writes a line for each file that the
/// configuration names and may be missing, whoever reads it.
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

/// Makes PostgreSQL refuse unknown settings that begin with `idgen.`.
pub fn reserve_prefix() {
    // SAFETY: PostgreSQL copies the string.
    unsafe { pg_sys::MarkGUCPrefixReserved(c"idgen".as_ptr()) }
}
