//! A shard that moves to a server outside of the fleet, and back.

use std::thread;
use std::time::Duration;

use promises::Event;

use super::crash::{downtime_step, start_at};
use super::{CUT, Fault, Refusals, Struck, alone, fault};
use crate::campaign::fleet::{Fleet, settings};
use crate::campaign::sessions::Work;
use crate::moment::within_seconds;
use crate::server::Server;
use crate::server::processes::Process;

pub const FAULTS: &[Fault] = &[
    // A restart would open the shard again.
    fault("shard moved away and back", 2, alone, move_away, &[CUT, CLOSED]),
];

/// The shard is closed where the client is.
const CLOSED: Refusals = &["55000 shard"];

/// Closes a shard while sessions mint for it that have heard of nothing, one of which may be stopped anywhere. Another
/// server is advanced past the bound, may crash, and mints. Then the shard comes back in the same way.
fn move_away(fleet: &mut Fleet) -> Struck {
    let shard = fleet.rng.u16(0..3);
    let steps = [-1.0, -0.4, 0.0, 0.0, 0.5];
    let (own_step, other_step) = (steps[fleet.rng.usize(0..5)], steps[fleet.rng.usize(0..5)]);
    let less = [0, 1].map(|_| fleet.rng.i64(0..2));
    let crash = fleet.rng.bool().then(|| downtime_step(fleet));
    let stop_ms = fleet.rng.bool().then(|| fleet.rng.u64(50..400));
    let mutation: Option<String> = fleet.primary.answer("SELECT current_setting('idgen.mutation', true)");
    let mutation = mutation.map(|mutation| format!("idgen.mutation = '{mutation}'"));
    let lines: Vec<&str> = settings().iter().copied().chain(mutation.as_deref()).collect();
    let other = Server::start_build(fleet.primary.build(), &lines);
    let clients = fleet.start_apart(Work::MintOf(shard));
    clients.wait_for_answers(2);

    fleet.primary.set_clock(own_step);
    let stopped = stop_ms.and_then(|ms| stop_minting(&fleet.primary, ms));
    let bound = close(&fleet.primary, shard);
    fleet.events.write(&Event::Moved { shard, bound, server: other.number(), has: true });
    other.set_clock(other_step);
    advance(&other, shard, bound - less[0]);
    if let Some(step) = crash {
        other.kill_all();
        start_at(&other, step);
    }
    let others = fleet.start_on(&other, Work::MintOf(shard));
    others.wait_for_answers(4);
    fleet.pause(0..500);

    let bound = close(&other, shard);
    fleet.events.write(&Event::Moved { shard, bound, server: other.number(), has: false });
    advance(&fleet.primary, shard, bound - less[1]);
    fleet
        .primary
        .eventually(|client| client.query_one("SELECT snowflake_reopen_shard($1)", &[&i32::from(shard)]));
    clients.wait_for_answers(3);
    fleet.primary.set_clock(0.0);
    others.finish();
    clients.finish();
    if let Some(stopped) = stopped {
        stopped.join().expect("a process that goes on");
    }
    let crash = crash.map_or("no crash".into(), |step| format!("crash, clock {step:+} s"));
    Struck::Done(format!(
        "shard {shard}, clocks {own_step:+} s and {other_step:+} s, {crash}, stopped {stop_ms:?}"
    ))
}

/// Closes the shard of a server, and returns the bound.
fn close(server: &Server, shard: u16) -> i64 {
    let sql = "SELECT snowflake_close_shard($1)";
    server.eventually(|client| client.query_one(sql, &[&i32::from(shard)])).get(0)
}

/// Advances the shard of a server, once its clock has come near enough.
fn advance(server: &Server, shard: u16, past: i64) {
    let sql = "SELECT snowflake_advance($1, $2)";
    let next: i64 = server.eventually(|client| client.query_one(sql, &[&i32::from(shard), &past])).get(0);
    assert!(next > past, "{next} is said to be past {past}");
}

/// Stops a session that mints for the shard for a while, wherever it is. It may hold the lock that others need.
fn stop_minting(server: &Server, ms: u64) -> Option<thread::JoinHandle<()>> {
    let minting = "SELECT coalesce(array_agg(pid), '{}') FROM pg_stat_activity
                   WHERE state = 'active' AND query LIKE '%moving%' AND pid <> pg_backend_pid()";
    let process = within_seconds(20, || {
        let minting = server.answer::<Vec<i32>>(minting).into_iter().filter_map(Process::find);
        minting.into_iter().find(Process::stop)
    })?;
    Some(thread::spawn(move || {
        thread::sleep(Duration::from_millis(ms));
        process.go_on();
    }))
}
