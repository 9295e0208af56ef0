//! Servers that die while they recover.

use std::thread;
use std::time::Duration;

use super::crash::{downtime_step, start_at};
use super::disks::{draw, name, server};
use super::{CUT, Fault, NOT_DURABLE, Struck, always, fault};
use crate::campaign::fleet::Fleet;
use crate::moment::is_reached;
use crate::server::{Server, Trouble};

pub const FAULTS: &[Fault] =
    &[fault("crashes during recovery", 2, always, die_recovering, &[CUT, NOT_DURABLE])];

/// Kills the primary or a standby, and kills it again at flushes of its recovery.
fn die_recovering(fleet: &mut Fleet) -> Struck {
    let one = draw(fleet);
    let spared: Vec<_> = (0..fleet.rng.usize(0..3)).map(|_| fleet.rng.i32(0..6)).collect();
    let step = downtime_step(fleet);
    let server = server(fleet, one);
    server.kill_all();
    let died: Vec<_> = spared.iter().map(|spared| dies_recovering(server, *spared)).collect();
    // Recovery begins with a flush of the WAL that it finds.
    let before = server.struck();
    assert!(dies_recovering(server, 0) && server.struck() > before, "it did not stop in its recovery");
    start_at(server, if one.is_some() { 0.0 } else { step });
    let of = name(one);
    Struck::Done(format!("{of}, after {spared:?} flushes ({died:?}), clock {step:+} s"))
}

/// Starts a server, and kills it when it has flushed this often and is about to flush again; returns whether it got
/// that far before it was up.
fn dies_recovering(server: &Server, spared: i32) -> bool {
    let before = server.struck();
    server.trouble(Trouble { stall_ms: 60_000, spared, calls: 1, ..Trouble::default() });
    server.begin_up();
    let died = loop {
        if server.struck() > before {
            break true;
        }
        if server.try_connect().is_some() {
            break false;
        }
        thread::sleep(Duration::from_millis(20));
        // The server may not start at once after a kill. One that is only slow to start must not meet a second one,
        // which would live on when the first is killed.
        if !is_reached(5, || server.running().is_some()) {
            server.begin_up();
        }
    };
    server.kill_all();
    server.trouble(Trouble::default());
    died
}
