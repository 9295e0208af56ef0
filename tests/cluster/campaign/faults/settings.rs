//! idgen's settings changed while statements run.

use promises::Event;

use super::{Fault, NOT_ALLOWED, Refusals, Struck, always, fault};
use crate::campaign::fleet::Fleet;
use crate::process::preloads;

pub const FAULTS: &[Fault] = &[
    fault("settings changed", 3, always, change, &[IMPATIENT]),
    fault("shards taken away and given back", 2, has_list, take_shards, &[NOT_ALLOWED]),
];

fn has_list(_: &Fleet) -> bool {
    preloads()
}

/// Calls may have less time than usual, and batches less room.
const IMPATIENT: Refusals = &["40001 ", "55000 clock_jumped", "22023 batch_too_large"];

/// Settings with values other than the fleet's, as SHOW prints them. Those of sessions come first.
const VALUES: &[(&str, &[&str])] = &[
    ("idgen.max_wait", &["0", "20ms", "10s"]),
    ("idgen.max_lease", &["1", "2", "1000"]),
    ("idgen.max_ahead", &["0", "1ms", "50ms", "500ms", "2s"]),
    ("idgen.reserve_ahead", &["10ms", "50ms", "3s"]),
    ("idgen.max_clock_jump", &["0", "1s", "2h"]),
];
const OF_SESSIONS: usize = 2;

/// Changes one setting on all servers until the round ends, so that it is in effect after a failover too.
fn change(fleet: &mut Fleet) -> Struck {
    let can = if preloads() { VALUES.len() } else { OF_SESSIONS };
    let (name, values) = VALUES[fleet.rng.usize(0..can)];
    let value = values[fleet.rng.usize(0..values.len())];
    let before: String = fleet
        .primary
        .eventually(|client| {
            // A session knows no defaults before it has the library.
            client.batch_execute("LOAD 'idgen'")?;
            client.query_one(&format!("SHOW {name}"), &[])
        })
        .get(0);
    if (name, value) == ("idgen.max_ahead", "2s") {
        fleet.events.write(&Event::MaxAhead { ms: 2000 });
    }
    set(fleet, name, value);
    let how = format!("{name} from {before} to {value}");
    // A server that joins the fleet later has a copy of the configuration.
    Struck::Lasting(how, Box::new(move |fleet: &mut Fleet| set(fleet, name, &before)))
}

/// Takes some or all of the clients' shards away. The shards from 900 on are for faults.
fn take_shards(fleet: &mut Fleet) -> Struck {
    const NAME: &str = "idgen.allowed_shards";
    let left = ["0-1,900-8191", "2,900-8191", "0,7-31,900-8191", "900-8191"][fleet.rng.usize(0..4)];
    set(fleet, NAME, left);
    let refused = "DO $$ BEGIN
                       PERFORM snowflake_next_id(3);
                       RAISE EXCEPTION 'shard 3 is not taken away';
                   EXCEPTION WHEN object_not_in_prerequisite_state THEN
                   END $$";
    fleet.primary.eventually(|client| client.batch_execute(refused));
    fleet.pause(0..700);
    set(fleet, NAME, "");
    Struck::Done(format!("{left} left"))
}

/// Sets a value on all servers, and waits until new statements of the primary have it.
fn set(fleet: &Fleet, name: &str, value: &str) {
    for server in fleet.servers() {
        server.configure(&[&format!("{name} = '{value}'")]);
        server.read_configuration();
    }
    let show = format!("SELECT current_setting('{name}') = '{value}' OR pg_sleep(0.005) IS NULL");
    while !fleet.primary.eventually(|client| client.query_one(&show, &[])).get::<_, bool>(0) {}
}
