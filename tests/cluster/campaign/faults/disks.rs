//! Disks that lose their power, fail, are full, or stall.

use std::thread;
use std::time::Duration;

use nix::errno::Errno;

use super::crash::{downtime_step, start_again};
use super::{BAD_DISK, CUT, Fault, NOT_DURABLE, Struck, always};
use crate::campaign::world::World;
use crate::server::{Server, Trouble};

pub const FAULTS: &[Fault] = &[
    Fault { name: "loss of power", weight: 2, can: always, strike: lose_power, allows: &[CUT] },
    Fault {
        name: "loss of power of all servers",
        weight: 1,
        can: always,
        strike: lose_all_power,
        allows: &[CUT, NOT_DURABLE],
    },
    Fault {
        name: "WAL not written",
        weight: 1,
        can: always,
        strike: not_written,
        allows: &[CUT, NOT_DURABLE, BAD_DISK],
    },
    Fault {
        name: "WAL not flushed",
        weight: 1,
        can: always,
        strike: not_flushed,
        allows: &[CUT, NOT_DURABLE, BAD_DISK],
    },
    Fault { name: "stall of a disk", weight: 1, can: always, strike: stall, allows: &[NOT_DURABLE] },
    Fault { name: "slow disk", weight: 1, can: always, strike: slow, allows: &[NOT_DURABLE] },
];

fn lose_power(world: &mut World) -> Struck {
    let step = downtime_step(world);
    stop_flushes(world, None);
    let lost = lost(&world.primary);
    start_again(world, step);
    if lost == 0 {
        return Struck::Skipped(ALL_FLUSHED);
    }
    Struck::Done(format!("{lost} bytes lost, clock {step:+} s"))
}

fn lose_all_power(world: &mut World) -> Struck {
    let step = downtime_step(world);
    let one = draw(world);
    stop_flushes(world, one);
    let lost = lost(server(world, one));
    for server in world.servers() {
        server.lose_power();
    }
    start_again(world, step);
    world.standbys.iter().for_each(|standby| standby.server.revive());
    if lost == 0 {
        return Struck::Skipped(ALL_FLUSHED);
    }
    Struck::Done(format!("{lost} bytes lost, clock {step:+} s"))
}

/// From now on, writes of a server get only to the cache of its disk. This lasts a moment, in which nobody may rely
/// on them.
fn stop_flushes(world: &mut World, one: Option<usize>) {
    until_struck(world, one, Trouble { stall_ms: 60_000, calls: i32::MAX, ..Trouble::default() });
    world.pause(0..300);
}

/// A flush that was under way before the disk had trouble may have been the last one.
const ALL_FLUSHED: &str = "all that was written had been flushed";

/// How many bytes a server's disk loses with its power.
fn lost(server: &Server) -> u64 {
    let lost = server.lose_power();
    // A new standby may have received nothing yet.
    assert!(server.follows() || server.has_written(), "the disk does not notice what is written");
    server.trouble(Trouble::default());
    lost
}

fn not_written(world: &mut World) -> Struck {
    let errno = [Errno::ENOSPC, Errno::EIO][world.rng.usize(0..2)];
    fail(world, Trouble { writes: Some(errno), ..Trouble::default() })
}

fn not_flushed(world: &mut World) -> Struck {
    fail(world, Trouble { flushes: Some(Errno::EIO), ..Trouble::default() })
}

/// A server whose disk fails gives up, and restarts at once or only after the disk is repaired.
fn fail(world: &mut World, trouble: Trouble) -> Struck {
    let calls = [1, 3, i32::MAX][world.rng.usize(0..3)];
    let one = draw(world);
    let trouble = Trouble { calls, ..trouble };
    until_struck(world, one, trouble);
    world.pause(0..700);
    let server = server(world, one);
    server.trouble(Trouble::default());
    server.revive();
    let errno = trouble.writes.or(trouble.flushes);
    Struck::Done(format!("{errno:?} at up to {calls} calls of {}", name(one)))
}

fn stall(world: &mut World) -> Struck {
    let stall_ms = [50, 200, 500, 1000, 2000][world.rng.usize(0..5)];
    let calls = world.rng.i32(1..4);
    let one = draw(world);
    until_struck(world, one, Trouble { stall_ms, calls, ..Trouble::default() });
    thread::sleep(Duration::from_millis(stall_ms as u64));
    server(world, one).trouble(Trouble::default());
    Struck::Done(format!("{stall_ms} ms at up to {calls} calls of {}", name(one)))
}

fn slow(world: &mut World) -> Struck {
    let stall_ms = [5, 20, 60][world.rng.usize(0..3)];
    until_struck(world, None, Trouble { stall_ms, calls: i32::MAX, ..Trouble::default() });
    let heal = |world: &mut World| {
        // Another server may have become the primary, and this one a standby, or be gone.
        world.servers().for_each(|server| server.trouble(Trouble::default()));
    };
    Struck::Lasting(format!("{stall_ms} ms at each flush"), Box::new(heal))
}

/// The primary, or a standby.
fn draw(world: &mut World) -> Option<usize> {
    world.rng.usize(0..=world.standbys.len()).checked_sub(1)
}

fn server(world: &World, one: Option<usize>) -> &Server {
    one.map_or(&world.primary, |standby| &world.standbys[standby].server)
}

fn name(one: Option<usize>) -> &'static str {
    if one.is_some() { "a standby" } else { "the primary" }
}

/// Gives a server's disk trouble, and waits until it is struck.
fn until_struck(world: &World, one: Option<usize>, trouble: Trouble) {
    let server = server(world, one);
    let before = server.struck();
    server.trouble(trouble);
    for _ in 0..600 {
        // A session whose commit waits for no disk, because all disks may be affected.
        let write = "SET synchronous_commit = off; SELECT pg_logical_emit_message(true, '', '')";
        if server.struck() > before {
            return;
        }
        if let Some(mut client) = world.primary.try_connect() {
            let _ = client.batch_execute(write);
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("the disk of {} is not struck", name(one));
}
