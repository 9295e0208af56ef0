//! A server that subscribes to the rows of the primary, and mints as well.

use super::crash::{downtime_step, start_at};
use super::{CUT, Fault, NOT_ALLOWED, Struck, alone, fault};
use crate::campaign::fleet::Fleet;
use crate::campaign::sessions::{SHARDS_APART, Work};
use crate::moment::now;
use crate::process::preloads;
use crate::server::Server;

pub const FAULTS: &[Fault] = &[
    // Other lasting faults may prevent the creation of a slot, or lose the slot.
    fault("subscriber that mints", 1, alone, subscribe, &[CUT, NOT_ALLOWED]),
];

/// There is room for just the origins of the mark, of a subscription and of the copy of a table.
const SETTINGS: &[&str] = &["max_replication_slots = 3", "jit = off"];

/// A server receives the rows of the primary, and gives each an id of a shard of its own: in the worker that copies
/// the table, and in the one that applies later changes. It may crash, and may subscribe again.
fn subscribe(fleet: &mut Fleet) -> Struck {
    let end = ["lives on", "is killed", "is shut down at once"][fleet.rng.usize(0..3)];
    let (step, anew) = (downtime_step(fleet), fleet.rng.bool());
    let since = now();
    let subscriber = start(fleet);
    let client = fleet.start_on(&subscriber, Work::MintApart);
    fleet.primary.eventually(|client| {
        client.batch_execute(
            "DROP PUBLICATION IF EXISTS published; CREATE PUBLICATION published FOR TABLE rows",
        )
    });
    create(&subscriber, &fleet.primary, true);
    receive(&subscriber, &fleet.primary);
    if end != "lives on" {
        // PostgreSQL drops the slot of a copy before the end of the copy is on disk. After a crash in between, it asks
        // for that slot forever.
        until_copied(&subscriber);
        subscriber.until_done("CHECKPOINT");
        receive(&subscriber, &fleet.primary);
        match end {
            "is killed" => subscriber.kill_all(),
            _ => subscriber.stop("immediate"),
        }
        start_at(&subscriber, step);
        receive(&subscriber, &fleet.primary);
    }
    leave(&subscriber);
    if anew {
        create(&subscriber, &fleet.primary, false);
        receive(&subscriber, &fleet.primary);
        leave(&subscriber);
    }
    client.wait_for_answers(3);
    client.finish();
    fleet.primary.eventually(|client| client.batch_execute("DROP PUBLICATION published"));
    let slots: i64 = fleet.primary.answer("SELECT count(*) FROM pg_replication_slots");
    assert_eq!(slots, 0, "slots of a subscription that was dropped");
    let ids: Vec<i64> = subscriber.answer("SELECT array_agg(own ORDER BY own) FROM rows");
    fleet.journals.note_minted(subscriber.number(), since, SHARDS_APART, &ids);
    let anew = if anew { ", and anew" } else { "" };
    Struck::Done(format!("it {end}, clock {step:+} s{anew}"))
}

/// A server of the same program that may mint for no shard of the primary's clients, if it preloads idgen.
fn start(fleet: &Fleet) -> Server {
    let (first, count) = SHARDS_APART;
    let list = format!("idgen.allowed_shards = '{first}-{}'", first + count - 1);
    let list = preloads().then_some(list.as_str());
    let subscriber = fleet.start_another(&SETTINGS.iter().copied().chain(list).collect::<Vec<_>>());
    // A column that the publisher lacks gets its default.
    let table = format!(
        "CREATE TABLE rows (id bigint PRIMARY KEY, own bigint UNIQUE NOT NULL DEFAULT snowflake_next_id({first}))"
    );
    subscriber.run(&table);
    subscriber
}

/// Subscribes to the rows, with or without the existing ones.
fn create(subscriber: &Server, primary: &Server, copy: bool) {
    let sql = format!(
        "CREATE SUBSCRIPTION subscribed CONNECTION '{}' PUBLICATION published WITH (copy_data = {copy})",
        primary.target("postgres")
    );
    subscriber.run(&sql);
}

/// Waits until a new row of the primary has arrived.
fn receive(subscriber: &Server, primary: &Server) {
    let sql = "INSERT INTO rows DEFAULT VALUES RETURNING id";
    let id: i64 = primary.eventually(|client| client.query_one(sql, &[])).get(0);
    subscriber.wait_until(&format!("SELECT count(*) = 1 FROM rows WHERE id = {id} AND own IS NOT NULL"));
}

fn until_copied(subscriber: &Server) {
    subscriber.wait_until("SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel");
}

/// Drops the subscription and its origins, but not the mark's.
fn leave(subscriber: &Server) {
    until_copied(subscriber);
    subscriber.run("DROP SUBSCRIPTION subscribed");
    let is_alone = "SELECT mark IS NOT NULL AND (SELECT count(*) FROM pg_replication_origin_status) = 1 FROM idgen_status";
    assert!(subscriber.answer::<bool>(is_alone), "the mark has not the only origin");
}
