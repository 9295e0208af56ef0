//! Synchronous standbys that are named, changed and removed while statements run.

use super::{Fault, NOT_DURABLE, Struck, has_standby, is_synchronous};
use crate::campaign::world::World;

pub const FAULTS: &[Fault] = &[
    Fault {
        name: "synchronous names changed",
        weight: 2,
        can: has_standby,
        strike: |world| Struck::Done(change(world)),
        allows: &[NOT_DURABLE],
    },
    Fault {
        name: "synchronous names removed",
        weight: 1,
        can: is_synchronous,
        strike: remove,
        allows: &[NOT_DURABLE],
    },
];

/// Names other standbys, or the same ones in another way, while statements continue to mint.
pub fn change(world: &mut World) -> String {
    let removed = world.rng.bool();
    let before = if removed { "none".into() } else { told(world) };
    if removed {
        world.make_asynchronous();
    }
    world.until_in_a_long_statement();
    world.pause(0..500);
    let names = world.draw_names();
    world.make_synchronous(names);
    format!("from {before} to {}", told(world))
}

fn remove(world: &mut World) -> Struck {
    world.until_in_a_long_statement();
    world.pause(0..500);
    let told = told(world);
    world.make_asynchronous();
    world.pause(0..500);
    Struck::Done(told)
}

fn told(world: &World) -> String {
    world.names.as_ref().map_or("none".into(), ToString::to_string)
}
