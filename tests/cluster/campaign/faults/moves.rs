//! A shard that moves to a server outside of the fleet, and back.

use promises::Event;

use super::crash::{downtime_step, start_at};
use super::processes::{go_on_after, stop_session};
use super::{CUT, Fault, Refusals, Struck, alone, fault};
use crate::campaign::fleet::Fleet;
use crate::campaign::sessions::Work;
use crate::moment::within_seconds;
use crate::server::Server;

pub const FAULTS: &[Fault] = &[
    // A restart would open the shard again.
    fault("shard moved away and back", 2, alone, move_away, &[CUT, CLOSED]),
];

/// The shard is closed on the client's server.
const CLOSED: Refusals = &["55000 shard"];

/// Closes a shard while sessions mint for it, one of which may be stopped at any point. Another server is advanced past
/// the bound, may crash, and mints. Then the shard comes back in the same way.
fn move_away(fleet: &mut Fleet) -> Struck {
    let shard = fleet.rng.u16(0..3);
    let steps = [-1.0, -0.4, 0.0, 0.0, 0.5];
    let (own_step, other_step) = (steps[fleet.rng.usize(0..5)], steps[fleet.rng.usize(0..5)]);
    let less = [0, 1].map(|_| fleet.rng.i64(0..2));
    let crash = fleet.rng.bool().then(|| downtime_step(fleet));
    let stop_ms = fleet.rng.bool().then(|| fleet.rng.u64(50..400));
    let other = fleet.start_another(&[]);
    let clients = fleet.start_apart(Work::MintOf(shard));
    clients.wait_for_answers(2);

    fleet.primary.set_clock(own_step);
    let stop =
        |ms| within_seconds(20, || stop_session(&fleet.primary, "moving")).map(|it| go_on_after(ms, it));
    let stopped = stop_ms.and_then(stop);
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

fn close(server: &Server, shard: u16) -> i64 {
    let sql = "SELECT snowflake_close_shard($1)";
    server.eventually(|client| client.query_one(sql, &[&i32::from(shard)])).get(0)
}

/// Advances the shard of a server, once its clock is near enough.
fn advance(server: &Server, shard: u16, past: i64) {
    let sql = "SELECT snowflake_advance($1, $2)";
    let next: i64 = server.eventually(|client| client.query_one(sql, &[&i32::from(shard), &past])).get(0);
    assert!(next > past, "{next} is said to be past {past}");
}
