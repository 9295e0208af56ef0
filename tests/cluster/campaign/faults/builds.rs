//! Another build of the library, another epoch, and an extension that is dropped and created.

use postgres::error::SqlState;
use postgres::{Client, NoTls, Row};

use super::{CUT, Fault, Refusals, Struck, alone, always, fault, stop};
use crate::campaign::fleet::Fleet;
use crate::moment::now;
use crate::process::preloads;
use crate::server::{Build, Sql};

pub const FAULTS: &[Fault] = &[
    fault("another build of the library", 1, always, replace, &[CUT]),
    // Standbys must receive the change before one of them is promoted, or the epoch would have to be accepted once
    // more.
    fault("epoch moved and moved back", 1, has_epoch, move_epoch, &[CUT, OTHER_EPOCH, FOR_THE_CLOCK]),
    fault("extension dropped and created", 1, alone, recreate, &[]),
];

const OTHER_EPOCH: Refusals = &["55000 other_epoch"];
/// By the later epoch, the ids of the earlier one are ahead of the clock.
const FOR_THE_CLOCK: Refusals = &["40001 clock_behind", "40001 shard_full", "22023 batch_too_large"];

/// 2024-01-01, the epoch of fleets.
const EPOCH_UNIX_MS: i64 = 1_704_067_200_000;

fn has_epoch(fleet: &Fleet) -> bool {
    preloads() && alone(fleet)
}

/// Stops a server, and starts it with the other build: the release or the build for tests.
fn replace(fleet: &mut Fleet) -> Struck {
    let build = if fleet.primary.build() == Build::Release { Build::Faults } else { Build::Release };
    let how = if fleet.rng.bool() { "fast" } else { "immediate" };
    stop(&fleet.primary, how);
    fleet.primary.set_build(build);
    fleet.primary.up();
    Struck::Done(how.into())
}

/// Moves the epoch to an earlier time, which makes every tick greater, and then back.
fn move_epoch(fleet: &mut Fleet) -> Struck {
    let ms = [1, 40, 500, 1500][fleet.rng.usize(0..4)];
    let crashes = fleet.rng.bool();
    set_epoch(fleet, EPOCH_UNIX_MS - ms);
    fleet.primary.shift_ids(ms);
    accept(fleet);
    fleet.primary.eventually(|client| client.batch_execute("SELECT snowflake_next_id(920)"));
    if crashes {
        fleet.primary.kill_all();
        fleet.primary.up();
    }
    fleet.pause(0..500);
    set_epoch(fleet, EPOCH_UNIX_MS);
    fleet.primary.shift_ids(-ms);
    accept(fleet);
    Struck::Done(format!("{ms} ms earlier, {}", if crashes { "and a crash" } else { "and no crash" }))
}

/// Restarts the primary with another epoch than the mark's, with which it mints nothing.
fn set_epoch(fleet: &mut Fleet, unix_ms: i64) {
    stop(&fleet.primary, "fast");
    fleet.primary.configure(&[&format!("idgen.epoch = '{unix_ms}'")]);
    fleet.primary.up();
    let refused = fleet.primary.reconnect().query_one("SELECT snowflake_next_id(920)", &[]);
    assert!(refused.is_err(), "ids by another epoch");
}

fn accept(fleet: &Fleet) {
    let accept = "SELECT snowflake_accept_epoch(epoch) FROM idgen_status";
    fleet.primary.eventually(|client| client.batch_execute(accept));
}

/// Drops and creates the extension in a database without clients, while a statement mints there.
fn recreate(fleet: &mut Fleet) -> Struck {
    const SHARD: u16 = 940;
    let times = fleet.rng.usize(1..4);
    let since = now();
    fleet.primary.eventually(|client| {
        client.batch_execute("DROP DATABASE IF EXISTS beside")?;
        client.batch_execute("CREATE DATABASE beside")
    });
    let address = fleet.primary.target("beside");
    let [mut one, mut other] = [(); 2].map(|()| Client::connect(&address, NoTls).expect("a connection"));
    let mint = format!("SELECT snowflake_next_id({SHARD}) FROM generate_series(1, 500)");
    let mut ids = Vec::new();
    let mut take = |rows: Vec<Row>| ids.extend(rows.iter().map(|row| row.get::<_, i64>(0)));
    for _ in 0..times {
        one.run("CREATE EXTENSION idgen");
        take(one.query(&mint, &[]).expect("ids"));
        let mut transaction = other.transaction().expect("a transaction");
        let portal = transaction.bind(&mint, &[]).expect("a statement");
        take(transaction.query_portal(&portal, 100).expect("ids"));
        one.run("DROP EXTENSION idgen");
        take(transaction.query_portal(&portal, 0).expect("ids"));
        transaction.commit().expect("an end");
        assert_eq!(other.code(&mint), SqlState::UNDEFINED_FUNCTION.code());
    }
    drop((one, other));
    fleet.primary.eventually(|client| client.batch_execute("DROP DATABASE beside"));
    ids.sort_unstable();
    fleet.journals.note_minted(fleet.primary.number(), since, (SHARD, 1), &ids);
    Struck::Done(format!("{times} times"))
}
