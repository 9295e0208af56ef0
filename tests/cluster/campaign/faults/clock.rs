//! Clocks that are set.

use super::{Fault, Struck, always};
use crate::campaign::world::World;

pub const FAULTS: &[Fault] =
    &[Fault { name: "clock set and set back", weight: 2, can: always, strike: step, allows: &[] }];

fn step(world: &mut World) -> Struck {
    let step = [-0.001, -0.02, -0.5, -1.5, -3600.0, 0.3, 1.5][world.rng.usize(0..7)];
    world.primary.set_clock(step);
    world.pause(50..600);
    world.primary.set_clock(0.0);
    Struck::Done(format!("{step:+} s"))
}
