//! The settings that only the test build has.

use std::ffi::CString;

use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting};

use crate::pg::local::Local;
use crate::pg::setting::{self, IntSetting};
use crate::testing::mutation;

static OTHER_LAYOUT: Local<IntSetting> = Local::new(IntSetting::new(
    c"idgen.other_layout",
    0,
    0..=1,
    GucFlags::empty(),
    c"Sets by how much the layout of shared memory is another one, for tests.",
    c"",
));

static FAULT: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));

/// Defines them.
pub fn define() {
    setting::define_int(&OTHER_LAYOUT);
    GucRegistry::define_string_guc(
        c"idgen.fault",
        c"Sets where a backend dies or fails, for tests.",
        c"",
        &FAULT,
        GucContext::Suset,
        GucFlags::empty(),
    );
    mutation::define();
}

/// By how much this library takes the layout of shared memory for another one.
pub fn other_layout() -> u32 {
    OTHER_LAYOUT.get().unsigned_abs()
}

/// The point at which a backend dies or fails.
pub fn fault() -> String {
    FAULT.get().unwrap_or_default().to_string_lossy().into_owned()
}
