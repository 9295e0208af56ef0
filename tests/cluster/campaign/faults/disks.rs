//! Disks that lose power, fail, fill up or stall.

use std::thread;
use std::time::Duration;

use nix::errno::Errno;

use super::crash::{downtime_step, start_at};
use super::{BAD_DISK, CUT, Fault, NOT_DURABLE, Struck, always, fault};
use crate::campaign::fleet::Fleet;
use crate::moment::is_reached;
use crate::server::{Server, Trouble};

pub const FAULTS: &[Fault] = &[
    fault("loss of power", 2, always, lose_power, &[CUT]),
    fault("loss of power of all servers", 1, always, lose_all_power, &[CUT, NOT_DURABLE]),
    fault("WAL not written", 1, always, not_written, &[CUT, NOT_DURABLE, BAD_DISK]),
    fault("WAL not flushed", 1, always, not_flushed, &[CUT, NOT_DURABLE, BAD_DISK]),
    fault("stall of a disk", 1, always, stall, &[NOT_DURABLE]),
    fault("slow disk", 1, always, slow, &[NOT_DURABLE]),
];

fn lose_power(fleet: &mut Fleet) -> Struck {
    let step = downtime_step(fleet);
    stop_flushes(fleet, None);
    let lost = lost(&fleet.primary);
    start_at(&fleet.primary, step);
    if lost == 0 {
        return Struck::Skipped(ALL_FLUSHED);
    }
    Struck::Done(format!("{lost} bytes lost, clock {step:+} s"))
}

fn lose_all_power(fleet: &mut Fleet) -> Struck {
    let step = downtime_step(fleet);
    let one = draw(fleet);
    stop_flushes(fleet, one);
    let lost = lost(server(fleet, one));
    for server in fleet.servers() {
        server.lose_power();
    }
    start_at(&fleet.primary, step);
    fleet.standbys.iter().for_each(|standby| standby.server.revive());
    if lost == 0 {
        return Struck::Skipped(ALL_FLUSHED);
    }
    Struck::Done(format!("{lost} bytes lost, clock {step:+} s"))
}

/// Makes writes of a server reach only the cache of its disk for a moment. No client may rely on them.
fn stop_flushes(fleet: &mut Fleet, one: Option<usize>) {
    until_struck(fleet, one, Trouble { stall_ms: 60_000, calls: i32::MAX, ..Trouble::default() });
    fleet.pause(0..300);
}

/// The last flush may have begun before the disk had trouble.
const ALL_FLUSHED: &str = "all that was written had been flushed";

/// The number of bytes that a server's disk loses with its power.
fn lost(server: &Server) -> u64 {
    let lost = server.lose_power();
    // A new standby may have received nothing yet.
    assert!(server.follows() || server.has_written(), "the disk misses writes");
    server.trouble(Trouble::default());
    lost
}

fn not_written(fleet: &mut Fleet) -> Struck {
    let errno = [Errno::ENOSPC, Errno::EIO][fleet.rng.usize(0..2)];
    fail(fleet, Trouble { writes: Some(errno), ..Trouble::default() })
}

fn not_flushed(fleet: &mut Fleet) -> Struck {
    fail(fleet, Trouble { flushes: Some(Errno::EIO), ..Trouble::default() })
}

/// A server whose disk fails gives up, and restarts at once or only after the disk is repaired.
fn fail(fleet: &mut Fleet, trouble: Trouble) -> Struck {
    let calls = [1, 3, i32::MAX][fleet.rng.usize(0..3)];
    let one = draw(fleet);
    let trouble = Trouble { calls, ..trouble };
    until_struck(fleet, one, trouble);
    fleet.pause(0..700);
    let server = server(fleet, one);
    server.trouble(Trouble::default());
    server.revive();
    let errno = trouble.writes.or(trouble.flushes);
    Struck::Done(format!("{errno:?} at up to {calls} calls of {}", name(one)))
}

fn stall(fleet: &mut Fleet) -> Struck {
    let stall_ms = [50, 200, 500, 1000, 2000][fleet.rng.usize(0..5)];
    let calls = fleet.rng.i32(1..4);
    let one = draw(fleet);
    until_struck(fleet, one, Trouble { stall_ms, calls, ..Trouble::default() });
    thread::sleep(Duration::from_millis(stall_ms as u64));
    server(fleet, one).trouble(Trouble::default());
    Struck::Done(format!("{stall_ms} ms at up to {calls} calls of {}", name(one)))
}

fn slow(fleet: &mut Fleet) -> Struck {
    let stall_ms = [5, 20, 60][fleet.rng.usize(0..3)];
    until_struck(fleet, None, Trouble { stall_ms, calls: i32::MAX, ..Trouble::default() });
    let heal = |fleet: &mut Fleet| {
        // This server may have become a standby, or be gone.
        fleet.servers().for_each(|server| server.trouble(Trouble::default()));
    };
    Struck::Lasting(format!("{stall_ms} ms at each flush"), Box::new(heal))
}

pub(super) fn draw(fleet: &mut Fleet) -> Option<usize> {
    fleet.rng.usize(0..=fleet.standbys.len()).checked_sub(1)
}

pub(super) fn server(fleet: &Fleet, one: Option<usize>) -> &Server {
    one.map_or(&fleet.primary, |standby| &fleet.standbys[standby].server)
}

pub(super) fn name(one: Option<usize>) -> &'static str {
    if one.is_some() { "a standby" } else { "the primary" }
}

/// Gives a server's disk trouble, and waits until the server notices.
fn until_struck(fleet: &Fleet, one: Option<usize>, trouble: Trouble) {
    let server = server(fleet, one);
    let before = server.struck();
    server.trouble(trouble);
    // The commit waits for no disk, because all disks may have trouble.
    let write = "SET synchronous_commit = off; SELECT pg_logical_emit_message(true, '', '')";
    let is_struck = || {
        let _ = fleet.primary.try_connect().map(|mut client| client.batch_execute(write));
        server.struck() > before
    };
    assert!(is_reached(20, is_struck), "the disk of {} is not struck", name(one));
}
