//! Points at which tests make a backend die or fail. Nothing of it is in a release.

/// Does what the setting `idgen.fault` asks for at this point: "POINT kill", "POINT terminate" (as
/// pg_terminate_backend does) or "POINT error".
#[cfg(feature = "pg_test")]
pub fn point(name: &str) {
    use nix::sys::signal::{Signal, raise};

    let fault = crate::settings::fault();
    match fault.strip_prefix(name).map(str::trim) {
        Some("kill") => {
            let _ = raise(Signal::SIGKILL);
        }
        Some("terminate") => {
            let _ = raise(Signal::SIGTERM);
            crate::pg::sleep(1, crate::compat::Wait::Mark);
        }
        Some("error") => panic!("fault at {name}"),
        _ => {}
    }
}

/// Nothing.
#[cfg(not(feature = "pg_test"))]
#[inline(always)]
pub fn point(_name: &str) {}
