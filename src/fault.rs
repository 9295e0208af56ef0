//! Points at which tests make a backend die or fail. A release contains none of this.

use idgen_core::host::Point;

/// Does what the setting `idgen.fault` asks for at this point: "POINT kill", "POINT terminate" (as
/// pg_terminate_backend does), "POINT stop" until it is told to continue, or "POINT error".
#[cfg(feature = "pg_test")]
pub fn point(point: Point) {
    use idgen_core::host::Wait;
    use nix::sys::signal::{Signal, raise};

    let name = match point {
        Point::BeforeWal => "before-wal",
        Point::AfterInsert => "after-insert",
        Point::AfterFlush => "after-flush",
        Point::BeforeAcknowledge => "before-acknowledge",
        Point::BeforePublish => "before-publish",
    };
    let fault = crate::settings::fault();
    match fault.strip_prefix(name).map(str::trim) {
        Some("kill") => {
            let _ = raise(Signal::SIGKILL);
        }
        Some("terminate") => {
            let _ = raise(Signal::SIGTERM);
            crate::pg::backend::sleep(1, Wait::Mark);
        }
        Some("stop") => {
            let _ = raise(Signal::SIGSTOP);
        }
        Some("error") => panic!("fault at {name}"),
        _ => {}
    }
}

/// Does nothing.
#[cfg(not(feature = "pg_test"))]
#[inline(always)]
pub fn point(_point: Point) {}
