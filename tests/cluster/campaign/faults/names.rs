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

/// Names other standbys, or the same ones in another way, under statements that go on minting.
pub fn change(world: &mut World) -> String {
    let before = world.names.clone();
    let removed = world.rng.bool();
    if removed && before.is_some() {
        world.make_asynchronous();
    }
    world.until_in_a_long_statement();
    world.pause(0..1000);
    let names = world.draw_names();
    let told = format!("{before:?}, {}{names:?}", if removed { "none, " } else { "" });
    world.make_synchronous(names);
    told
}

fn remove(world: &mut World) -> Struck {
    world.until_in_a_long_statement();
    world.pause(0..500);
    let told = format!("{:?}", world.names);
    world.make_asynchronous();
    world.pause(0..500);
    Struck::Done(told)
}
