//! Points at which tests make a backend die or fail.

use idgen_core::host::{Point, Wait};
use nix::sys::signal::{Signal, raise};

use crate::pg::backend;
use crate::testing::settings;

/// Does what the setting `idgen.fault` asks for at this point: "POINT kill", "POINT terminate" (as
/// pg_terminate_backend does), "POINT stop" until it is told to continue, or "POINT error".
pub fn point(point: Point) {
    let name = match point {
        Point::BeforeWal => "before-wal",
        Point::AfterInsert => "after-insert",
        Point::AfterFlush => "after-flush",
        Point::BeforeAcknowledge => "before-acknowledge",
        Point::BeforePublish => "before-publish",
    };
    let fault = settings::fault();
    match fault.strip_prefix(name).map(str::trim) {
        Some("kill") => {
            let _ = raise(Signal::SIGKILL);
        }
        Some("terminate") => {
            let _ = raise(Signal::SIGTERM);
            backend::sleep(1, Wait::Mark);
        }
        Some("stop") => {
            let _ = raise(Signal::SIGSTOP);
        }
        Some("error") => panic!("fault at {name}"),
        _ => {}
    }
}
