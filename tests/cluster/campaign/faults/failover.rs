//! Standbys that go and come, and take over.

use super::{CUT, Fault, NOT_DURABLE, Struck, has_standby};
use crate::campaign::world::{Names, World};

pub const FAULTS: &[Fault] = &[
    Fault {
        name: "standby goes and comes back",
        weight: 1,
        can: has_standby,
        strike: leave,
        allows: &[NOT_DURABLE],
    },
    Fault {
        name: "synchronous names taken away and set",
        weight: 1,
        can: is_synchronous,
        strike: switch_names,
        allows: &[NOT_DURABLE],
    },
    Fault {
        name: "failover after synchronous names are set",
        weight: 3,
        can: is_synchronous,
        strike: switch_and_fail_over,
        allows: &[CUT, NOT_DURABLE],
    },
    Fault {
        name: "failover",
        weight: 4,
        can: is_synchronous,
        strike: fail_over,
        allows: &[CUT, NOT_DURABLE],
    },
];

fn is_synchronous(world: &World) -> bool {
    world.names != Names::None
}

fn leave(world: &mut World) -> Struck {
    let one = world.rng.usize(0..world.standbys.len());
    world.standbys[one].server.stop("immediate");
    world.pause(0..800);
    world.standbys[one].server.up();
    Struck::Done("immediate shutdown".into())
}

/// Takes the names away and sets them again, each under statements that go on minting.
fn switch_names(world: &mut World) -> Struck {
    let names = world.names;
    // The server may be about to restart after the death of a backend.
    world.pause(300..301);
    world.primary.reconnect();
    world.make_asynchronous();
    world.until_in_a_long_statement();
    world.pause(0..1000);
    world.make_synchronous(names);
    Struck::Done(format!("{names:?} of {}", world.standbys.len()))
}

fn switch_and_fail_over(world: &mut World) -> Struck {
    switch_names(world);
    fail_over(world)
}

/// Promotes the first synchronous standby, and gives it a new one.
fn fail_over(world: &mut World) -> Struck {
    let standby = world.standbys.remove(0).server;
    let step = [0.0, -0.3, -1.0, 0.5][world.rng.usize(0..4)];
    let alive = world.rng.bool();
    standby.set_clock(step);
    if !alive {
        world.primary.kill();
    }
    standby.promote();
    standby.make_asynchronous();
    world.move_clients(&standby);
    // Alive, the old primary goes on within its window until it is shut off.
    if alive {
        world.start_beside(2, &standby);
    }
    world.pause(0..1500);
    // The others followed the old primary.
    let others = world.standbys.drain(..).count();
    drop(world.hand_over(standby, true));
    world.primary.set_clock(0.0);
    let names = std::mem::replace(&mut world.names, Names::None);
    (0..=others).for_each(|_| world.attach());
    world.make_synchronous(names);
    Struck::Done(format!("old primary {}, clock {step:+} s", if alive { "alive" } else { "dead" }))
}
