//! Servers and backends that die, also during recovery.

use std::thread;
use std::time::Duration;

use postgres::Client;

use super::disks::{draw, name, server};
use super::{CUT, Fault, NOT_DURABLE, Struck, always, fault, has_fault_points, stop};
use crate::campaign::fleet::Fleet;
use crate::moment::{is_reached, within_seconds};
use crate::server::{Server, Trouble};

pub const FAULTS: &[Fault] = &[
    fault("kill of the postmaster", 1, always, kill, &[CUT]),
    fault("immediate shutdown", 1, always, immediate, &[CUT]),
    fault("restart", 1, always, restart, &[CUT]),
    fault("kill of a backend", 1, always, kill_backend, &[CUT]),
    fault("death of a renewing backend", 2, has_fault_points, renewing, &[CUT]),
    fault("crashes during recovery", 2, always, die_recovering, &[CUT, NOT_DURABLE]),
];

fn kill(fleet: &mut Fleet) -> Struck {
    let step = downtime_step(fleet);
    fleet.primary.kill();
    start_at(&fleet.primary, step);
    Struck::Done(format!("clock {step:+} s"))
}

fn immediate(fleet: &mut Fleet) -> Struck {
    let step = downtime_step(fleet);
    fleet.primary.stop("immediate");
    start_at(&fleet.primary, step);
    Struck::Done(format!("clock {step:+} s"))
}

fn restart(fleet: &mut Fleet) -> Struck {
    stop(&fleet.primary, "fast");
    start_at(&fleet.primary, 0.0);
    Struck::Done("fast".into())
}

fn kill_backend(fleet: &mut Fleet) -> Struck {
    let mut client = fleet.primary.reconnect();
    let sql =
        "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
               ORDER BY state = 'active' DESC LIMIT 1";
    let killed = within_seconds(60, || {
        let pid = client.query(sql, &[]).expect("backends").first().map(|row| row.get(0))?;
        fleet.primary.signal_if_there("KILL", pid);
        Some(())
    });
    assert!(killed.is_some(), "there is no backend to kill");
    until_cut_off(&mut client);
    Struck::Done("an active one, where there is one".into())
}

/// Waits until the postmaster has noticed that a process has died, and ended all others.
fn until_cut_off(client: &mut Client) {
    let cut_off = within_seconds(60, || client.batch_execute("SELECT 1").err());
    assert!(cut_off.is_some(), "the server keeps running");
}

fn renewing(fleet: &mut Fleet) -> Struck {
    let point = ["before-wal", "after-insert", "after-flush", "before-publish"][fleet.rng.usize(0..4)];
    let how = ["kill", "terminate", "error"][fleet.rng.usize(0..3)];
    let mut witness = fleet.primary.reconnect();
    let mut client = fleet.primary.reconnect();
    client.batch_execute(&format!("SET idgen.fault = '{point} {how}'")).expect("a fault point");
    // The session that mints most often is the one that renews.
    let struck = within_seconds(60, || client.batch_execute("SELECT snowflake_next_id(900)").err());
    assert!(struck.is_some(), "the call never renews the mark");
    if how == "kill" {
        until_cut_off(&mut witness);
    }
    Struck::Done(format!("{how} {point}"))
}

/// By how much the clock is set while the server is down.
pub(super) fn downtime_step(fleet: &mut Fleet) -> f64 {
    [0.0, 0.0, -0.5, -2.0, -86400.0, 2.0][fleet.rng.usize(0..6)]
}

/// Starts a server with its clock set, and corrects the clock a moment later.
pub(super) fn start_at(server: &Server, step: f64) {
    server.set_clock(step);
    server.up();
    if step != 0.0 {
        thread::sleep(Duration::from_millis(300));
        server.set_clock(0.0);
    }
}

/// Kills the primary or a standby, and kills it again at flushes of its recovery.
fn die_recovering(fleet: &mut Fleet) -> Struck {
    let one = draw(fleet);
    let spared: Vec<_> = (0..fleet.rng.usize(0..3)).map(|_| fleet.rng.i32(0..6)).collect();
    let step = downtime_step(fleet);
    let server = server(fleet, one);
    server.kill_all();
    let died: Vec<_> = spared.iter().map(|spared| dies_recovering(server, *spared)).collect();
    // Recovery begins with a flush of the existing WAL.
    let before = server.struck();
    assert!(
        dies_recovering(server, 0) && server.struck() > before,
        "the server was not killed in its recovery"
    );
    start_at(server, if one.is_some() { 0.0 } else { step });
    let of = name(one);
    Struck::Done(format!("{of}, after {spared:?} flushes ({died:?}), clock {step:+} s"))
}

/// Starts a server, and kills it when it is about to flush after this many flushes. Returns whether that happened
/// before the server was up.
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
