//! Another build of the library, another epoch, and an extension that is dropped and created.

use postgres::error::SqlState;
use postgres::{Client, NoTls, Row};

use super::{CUT, Fault, Refusals, Struck, always};
use crate::campaign::world::World;
use crate::moment::now;
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
    Fault {
        name: "extension dropped and created",
        weight: 1,
        can: |world| world.lasting.is_empty(),
        strike: recreate,
        allows: &[],
    },
];

const OTHER_EPOCH: Refusals = &["55000 the epoch of the high-water mark of ids differs"];
/// The ids that were minted by the earlier epoch are ahead of the clock by the later one.
const FOR_THE_CLOCK: Refusals = &["40001 the system clock is behind", "40001 shard", "22023 count"];

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

/// Drops the extension of a database beside that of the clients under a statement that mints, and creates it again.
fn recreate(world: &mut World) -> Struck {
    const SHARD: u16 = 940;
    let times = world.rng.usize(1..4);
    let since = now();
    world.primary.eventually(|client| {
        client.batch_execute("DROP DATABASE IF EXISTS beside")?;
        client.batch_execute("CREATE DATABASE beside")
    });
    let address = world.primary.target("beside");
    let [mut one, mut other] = [(); 2].map(|()| Client::connect(&address, NoTls).expect("a connection"));
    let mint = format!("SELECT snowflake_next_id({SHARD}) FROM generate_series(1, 500)");
    let mut ids = Vec::new();
    let mut take = |rows: Vec<Row>| ids.extend(rows.iter().map(|row| row.get::<_, i64>(0)));
    for _ in 0..times {
        one.batch_execute("CREATE EXTENSION idgen").expect("an extension");
        take(one.query(&mint, &[]).expect("ids"));
        let mut transaction = other.transaction().expect("a transaction");
        let portal = transaction.bind(&mint, &[]).expect("a statement");
        take(transaction.query_portal(&portal, 100).expect("ids"));
        one.batch_execute("DROP EXTENSION idgen").expect("no extension");
        take(transaction.query_portal(&portal, 0).expect("ids"));
        transaction.commit().expect("an end");
        let refused = other.query(&mint, &[]).expect_err("no function");
        assert_eq!(refused.code(), Some(&SqlState::UNDEFINED_FUNCTION), "{refused:?}");
    }
    drop((one, other));
    world.primary.eventually(|client| client.batch_execute("DROP DATABASE beside"));
    ids.sort_unstable();
    world.note_minted(&world.primary, since, (SHARD, 1), &ids);
    Struck::Done(format!("{times} times"))
}

fn stop(world: &World, how: &str) {
    // A fast shutdown that comes while PostgreSQL restarts after the death of a backend never ends: it waits for
    // the checkpointer of the recovery, and does not tell it.
    std::thread::sleep(std::time::Duration::from_millis(100));
    world.primary.reconnect();
    world.primary.stop(how);
}
