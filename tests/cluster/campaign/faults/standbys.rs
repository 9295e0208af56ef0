//! Standbys that go and come back, and follow one another.

use super::{Fault, NOT_DURABLE, Struck, has_standby};
use crate::campaign::world::World;

pub const FAULTS: &[Fault] = &[
    Fault {
        name: "standby goes and comes back",
        weight: 1,
        can: has_standby,
        strike: leave,
        allows: &[NOT_DURABLE],
    },
    Fault {
        name: "standby follows another one",
        weight: 1,
        can: |world| world.standbys.len() > 1,
        strike: cascade,
        allows: &[NOT_DURABLE],
    },
];

fn leave(world: &mut World) -> Struck {
    let one = world.rng.usize(0..world.standbys.len());
    world.standbys[one].server.stop("immediate");
    world.pause(0..800);
    world.standbys[one].server.up();
    Struck::Done("immediate shutdown".into())
}

/// Makes a standby receive its WAL from another standby for a while, and acknowledge only to that one.
fn cascade(world: &mut World) -> Struck {
    let one = world.rng.usize(0..world.standbys.len());
    let other = (one + 1) % world.standbys.len();
    let [one, other] = [&world.standbys[one], &world.standbys[other]];
    one.link.lead_to(&other.server);
    other.server.wait_until(&format!(
        "SELECT count(*) > 0 FROM pg_stat_replication WHERE application_name = '{}' AND state = 'streaming'",
        one.name
    ));
    one.link.lead_to(&world.primary);
    Struck::Done(format!("{} after {}", one.name, other.name))
}
