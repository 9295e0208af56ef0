//! Another build of the library, and another epoch.

use super::{CUT, Fault, Refusals, Struck, always};
use crate::campaign::world::World;
use crate::server::Build;

pub const FAULTS: &[Fault] = &[
    Fault { name: "another build of the library", weight: 1, can: always, strike: replace, allows: &[CUT] },
    Fault {
        name: "epoch moved and moved back",
        weight: 1,
        // The standbys must receive it before one of them is promoted, or the epoch would have to be accepted once
        // more.
        can: |world| world.lasting.is_empty(),
        strike: move_epoch,
        allows: &[CUT, OTHER_EPOCH, FOR_THE_CLOCK],
    },
];

const OTHER_EPOCH: Refusals = &["55000 the epoch of the high-water mark of ids differs"];
/// The ids that were minted by the earlier epoch are ahead of the clock by the later one.
const FOR_THE_CLOCK: Refusals = &["55000 the system clock is behind", "55000 shard", "22023 count"];

/// 2024-01-01, the epoch of worlds.
const EPOCH_UNIX_MS: i64 = 1_704_067_200_000;

/// Stops a server, and starts it with the other one of the release and the build for tests.
fn replace(world: &mut World) -> Struck {
    let build = if world.primary.build() == Build::Release { Build::Faults } else { Build::Release };
    let how = if world.rng.bool() { "fast" } else { "immediate" };
    stop(world, how);
    world.primary.set_build(build);
    world.primary.up();
    Struck::Done(how.into())
}

/// Moves the epoch earlier, which makes every tick greater, and back.
fn move_epoch(world: &mut World) -> Struck {
    let ms = [1, 40, 500, 1500][world.rng.usize(0..4)];
    let crashes = world.rng.bool();
    set_epoch(world, EPOCH_UNIX_MS - ms);
    world.primary.shift_ids(ms);
    accept(world);
    world.primary.eventually(|client| client.batch_execute("SELECT snowflake_next_id(920)"));
    if crashes {
        world.primary.kill_all();
        world.primary.up();
    }
    world.pause(0..500);
    set_epoch(world, EPOCH_UNIX_MS);
    world.primary.shift_ids(-ms);
    accept(world);
    Struck::Done(format!("{ms} ms earlier, {}", if crashes { "and a crash" } else { "and no crash" }))
}

/// Restarts the primary with an epoch that is not the mark's, by which nothing is minted.
fn set_epoch(world: &mut World, unix_ms: i64) {
    stop(world, "fast");
    world.primary.configure(&[&format!("idgen.epoch = '{unix_ms}'")]);
    world.primary.up();
    let refused = world.primary.reconnect().query_one("SELECT snowflake_next_id(920)", &[]);
    assert!(refused.is_err(), "ids by another epoch");
}

fn accept(world: &World) {
    let accept = "SELECT snowflake_accept_epoch(epoch) FROM idgen_status";
    world.primary.eventually(|client| client.batch_execute(accept));
}

fn stop(world: &World, how: &str) {
    // A fast shutdown that comes while PostgreSQL restarts after the death of a backend never ends: it waits for
    // the checkpointer of the recovery, and does not tell it.
    std::thread::sleep(std::time::Duration::from_millis(100));
    world.primary.reconnect();
    world.primary.stop(how);
}
