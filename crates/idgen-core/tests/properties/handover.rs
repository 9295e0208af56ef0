use std::collections::HashSet;

use idgen_core::error::Error::{self, *};
use idgen_core::host::Host;
use idgen_core::shared::Slotted;
use idgen_ids::id::{IDS_PER_TICK, MAX_TICK};
use idgen_ids::{Tick, min_id};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::host::{Answer, NOW, SETTINGS, Scripted, not_renewed, refused};
use crate::{epoch_at, first_id, js_tick, shard, tick_of};

/// The tick that the clock of [`Scripted::running`] shows.
const THEN: Tick = NOW + 1;

/// A call for an id of the closed shard.
fn closed<T>() -> Answer<T> {
    refused(ShardClosed { shard: shard(5) })
}

#[derive(Clone, Debug)]
enum Call {
    Id(usize, usize),
    Batch(usize, usize, u64),
    Js(usize, usize),
    Move(usize, i64),
    Pass(u64),
    StepClock(usize, i64),
    Crash(usize, i64),
}

fn any_call() -> impl Strategy<Value = Call> {
    let side = || 0..2usize;
    let who = || 0..3usize;
    prop_oneof![
        12 => (side(), who()).prop_map(|(side, who)| Call::Id(side, who)),
        4 => (side(), who(), 0..4000u64).prop_map(|(side, who, count)| Call::Batch(side, who, count)),
        6 => (side(), who()).prop_map(|(side, who)| Call::Js(side, who)),
        4 => (who(), 0..2i64).prop_map(|(who, less)| Call::Move(who, less)),
        3 => (0..3000u64).prop_map(Call::Pass),
        1 => (0..2_000_000u64).prop_map(Call::Pass),
        2 => (side(), -2000..2000i64).prop_map(|(side, ms)| Call::StepClock(side, ms)),
        1 => (side(), -40..40i64).prop_map(|(side, ms)| Call::Crash(side, ms)),
    ]
}

proptest! {
    /// Promises 1 and 2 over moves from one server to another and back: once the shard is closed on one server and
    /// advanced past the bound on the other, the ids of the other are greater than everything that the first has minted
    /// or still mints, in both layouts, whatever its sessions hold and do, and whatever the clocks show. Sessions that
    /// have not heard of the move go on calling, and get at most the rest of a lease.
    #[test]
    fn another_server_mints_after_everything_that_the_closed_one_can_mint(
        calls in vec(any_call(), 1..150), max_ahead in prop_oneof![0..8u64, 0..4000u64], reserve_ahead in 1..30u64,
        stored in 0..2 * NOW,
    ) {
        let set = |server: Scripted| server.with(|settings| {
            (settings.max_ahead_ms, settings.reserve_ahead_ms) = (max_ahead, reserve_ahead);
        });
        let mut servers = [set(Scripted::new(stored)), set(Scripted::new(0))];
        prop_assert!(servers[1].close(0, 5).is_ok());
        // The server that may mint, and the one that has the shard now, open or closed. A server that has crashed with
        // the shard closed goes by its list, which the move has already written, so that calls do not get through to
        // it.
        let (mut holder, mut at, mut heard) = (Some(0), 0, [false, true]);
        let mut bound = 0;
        let (mut seen, mut seen_js) = (HashSet::new(), HashSet::new());
        // The greatest id and the greatest JavaScript-safe id of each server.
        let (mut last, mut last_js) = ([-1; 2], [-1; 2]);
        for call in calls {
            let answer = match call {
                Call::Id(side, _) | Call::Batch(side, ..) | Call::Js(side, _) if heard[side] => continue,
                Call::Id(side, who) => (side, servers[side].id(who, 5).map(|id| vec![id])),
                Call::Batch(side, who, count) => (side, servers[side].ids(who, 5, count)),
                Call::Js(side, who) => {
                    match servers[side].js_id(who, 5) {
                        Ok(id) => {
                            prop_assert!(holder == Some(side) && seen_js.insert(id), "{id} of server {side}");
                            prop_assert!(id >> 20 > last_js[1 - side] >> 20 || last_js[1 - side] < 0);
                            last_js[side] = last_js[side].max(id);
                        }
                        Err(error) => prop_assert_eq!(
                            error == closed::<i64>().unwrap_err(), holder != Some(side), "{:?}", error
                        ),
                    }
                    continue;
                }
                Call::Move(who, less) => {
                    let (from, to) = (at, 1 - at);
                    let again = holder.is_none();
                    holder = None;
                    let now = servers[from].close(who, 5).unwrap();
                    prop_assert!(!again || now == bound || heard[from], "the bound stays: {now} {bound}");
                    bound = now;
                    if servers[to].advance(who, 5, bound - less).is_ok() {
                        servers[to].reopen(5);
                        (holder, at, heard[to]) = (Some(to), to, false);
                    }
                    continue;
                }
                Call::Pass(us) => {
                    servers.iter().for_each(|server| server.pass_us(us));
                    continue;
                }
                Call::StepClock(side, ms) => {
                    servers[side].step_clock(ms);
                    continue;
                }
                Call::Crash(side, ms) => {
                    servers[side] = set(servers[side].crashed(servers[side].tick().saturating_add_signed(ms)));
                    heard[side] = holder != Some(side);
                    continue;
                }
            };
            let (side, answer) = answer;
            match answer {
                Ok(ids) => for id in ids {
                    prop_assert!(seen.insert(id), "{id} twice");
                    if holder == Some(side) {
                        prop_assert!(id >= bound && id > last[1 - side], "{id} {bound} {last:?}");
                    } else {
                        prop_assert!(id < bound, "{id} of a lease, {bound}");
                    }
                    last[side] = last[side].max(id);
                },
                Err(error) => prop_assert_eq!(
                    error == closed::<i64>().unwrap_err(), holder != Some(side), "{:?}", error
                ),
            }
        }
    }
}

/// Every call is refused in both layouts, and calls for other shards are not.
fn shard_5_mints_nothing(server: &Scripted, reason: Error) {
    for backend in 0..3 {
        assert_eq!(server.id_at_once(backend, 5), None);
        assert_eq!(server.id(backend, 5), refused(reason));
        assert_eq!(server.ids(backend, 5, 1), refused(reason));
        assert_eq!(server.ids(backend, 5, 5000), refused(reason));
        assert_eq!(server.ids(backend, 5, 100_000_000), refused(reason), "not BatchTooLarge");
        assert_eq!(server.js_id(backend, 5), refused(reason));
        assert!(server.id(backend, 6).is_ok() && server.js_id(backend, 6).is_ok());
    }
}

/// The configuration no longer lets the server mint for shard 5.
fn take(server: &Scripted) {
    server.taken.set(Some(shard(5)));
}

/// A shard that is taken from the list of the server mints nothing, whatever a session has read and holds, except the
/// rest of a lease in its millisecond. Once the shard is given back, it continues where it was.
#[test]
fn a_shard_that_is_taken_from_the_list_mints_nothing() {
    let server = Scripted::running().with(|settings| settings.max_ahead_ms = 2000);
    let id = (0..2).map(|_| server.id(0, 5).unwrap()).max().unwrap();
    take(&server);
    assert_eq!(server.id(0, 5), Ok(id + 1));
    server.pass_us(1000);
    shard_5_mints_nothing(&server, ShardNotAllowed { shard: shard(5) });
    server.taken.set(None);
    assert!(server.id(0, 5).is_ok() && server.js_id(0, 5).is_ok());
}

/// A closed shard mints nothing. After it is reopened, it continues where it was.
#[test]
fn a_closed_shard_mints_nothing() {
    let server = Scripted::running().with(|settings| settings.max_ahead_ms = 2000);
    let id = server.id(0, 5).unwrap();
    let bound = server.close(1, 5).unwrap();
    assert_eq!(bound, id + 1);
    shard_5_mints_nothing(&server, ShardClosed { shard: shard(5) });
    assert_eq!(server.close(1, 5), Ok(bound), "closed twice");
    assert!(server.reopen(5));
    assert!(!server.reopen(5), "it is open");
    assert_eq!(server.id(0, 5), Ok(bound));
    assert!(server.js_id(0, 5).is_ok());
    // Shards above those of the JavaScript-safe ids have only one layout.
    let server = Scripted::running();
    assert!(server.close(0, 256).is_ok() && server.id(0, 256).is_err());
    assert!(server.reopen(256) && !server.reopen(256));
}

/// A lease that was taken before the shard was closed may be used up in its millisecond, below the bound, even if that
/// millisecond is repeated. The lease of the session that closes the shard is dropped.
#[test]
fn a_lease_that_outlives_the_closing_is_below_the_bound() {
    let server = Scripted::running();
    let lease = |backend| (0..2).map(|_| server.id(backend, 5).unwrap()).max().unwrap();
    let ids = [lease(0), lease(1)];
    let bound = server.close(1, 5).unwrap();
    assert_eq!(server.id(1, 5), closed());
    server.pass_us(1000);
    assert_eq!(server.id(0, 5), closed());
    server.step_clock(-1);
    assert_eq!(server.id(0, 5), Ok(ids[0] + 1));
    assert!(ids[0] + 1 < bound);
}

/// The bound covers the ids of earlier incarnations, even if this one has not read the mark yet, and whatever the clock
/// shows. Without a mark to begin at, nothing is closed.
#[test]
fn the_bound_covers_the_ids_of_earlier_incarnations() {
    for clock in [NOW - 5000, NOW, NOW + 5000] {
        let server = Scripted::new(NOW + 60);
        server.set_clock(clock);
        assert_eq!(server.close(0, 5), Ok(first_id(NOW + 60)));
        assert_eq!((server.written(), server.js_id(0, 5)), (vec![], closed()));
    }
    assert_eq!(Scripted::new(0).close(0, 5), Ok(first_id(0)), "there have been no ids");
    for error in [Recovery, OtherEpoch] {
        let epoch = if error == Recovery { SETTINGS.epoch } else { epoch_at(0) };
        let server = Scripted::new(NOW).with(|settings| settings.epoch = epoch);
        server.recovery.set(error == Recovery);
        assert_eq!(server.close(0, 5), refused(error));
        server.recovery.set(false);
        let server = server.with(|settings| settings.epoch = SETTINGS.epoch);
        assert!(server.id(0, 5).is_ok());
    }
    let server = Scripted::new(MAX_TICK + 1);
    assert_eq!(server.close(0, 5), refused(Exhausted));
    assert_eq!(server.id(0, 5), closed());
    assert!(Scripted::new(MAX_TICK).close(0, 5).is_ok(), "the last ids are left");
}

/// The bound covers the second of the last JavaScript-safe id: a server that is advanced past the id before the bound
/// begins in a later second, even if its clock is behind, or set back, or after a crash. A server that has minted later
/// ids stays where it is.
#[test]
fn the_bound_covers_javascript_safe_ids() {
    let server = Scripted::running().with(|settings| settings.max_ahead_ms = 3000);
    let ids: Vec<i64> = (0..2 * 4096 - 255).map(|_| server.js_id(0, 5).unwrap()).collect();
    let last = js_tick(*ids.last().unwrap());
    assert_eq!(last, NOW + 1000);
    let bound = server.close(0, 5).unwrap();
    assert_eq!(bound, first_id(last + 1));
    for less in [0, 1] {
        let ahead = |server: Scripted| server.with(|settings| settings.max_ahead_ms = 3000);
        let other = ahead(Scripted::running());
        assert!(other.advance(0, 5, bound - less).is_ok());
        let other = other.crashed(THEN - 500).with(|settings| settings.max_ahead_ms = 10_000);
        assert!(other.js_id(0, 5).map(js_tick).unwrap() > last);
        let other = ahead(Scripted::running());
        other.advance(0, 5, bound - less).unwrap();
        other.step_clock(-900);
        let next = other.js_id(0, 5).unwrap();
        assert_eq!(js_tick(next), last + 1000);
        other.advance(0, 5, bound - 5000).unwrap();
        assert_eq!(other.js_id(0, 5), Ok(next + 1));
    }
}

/// Promise 4: calls that wait for the shard when it is closed, or taken from the list, are soon told so, and leave
/// nothing behind. They may wait for their millisecond, for a clock that was set back, for the mark, or in the queue of
/// batches.
#[test]
fn those_who_wait_for_a_shard_hear_that_it_is_closed() {
    those_who_wait_hear(ShardClosed { shard: shard(5) }, |server| assert!(server.close(3, 5).is_ok()));
    those_who_wait_hear(ShardNotAllowed { shard: shard(5) }, take);
}

fn those_who_wait_hear(reason: Error, bar: fn(&Scripted)) {
    let patient = || Scripted::running().with(|settings| settings.max_wait_ms = 60_000);
    let late = |server: &Scripted, since: u64| {
        assert_eq!(left(server), 0, "a batch has not left");
        assert!(!server.claimed(), "the claim was not given up");
        let is_closed = shard(5).slot(server.shared()).get().closed;
        assert_eq!(is_closed, reason == ShardClosed { shard: shard(5) });
        server.us() - since
    };
    // One batch in the queue, and one that is taking its ids.
    for taken in [0, 100_000] {
        let server = patient();
        join(&server, 3, if taken == 0 { 1000 } else { 0 });
        let start = server.us() + 120_000;
        server.after(120_000, bar);
        assert_eq!(server.ids(0, 5, 2000 * IDS_PER_TICK), refused(reason));
        server.backends()[3].batch.leave();
        assert!(late(&server, start) <= 50_000 + 17_000);
    }
    // In the queue while a mark is awaited, without which the earlier batches cannot be at work.
    let server = patient();
    join(&server, 3, 1000);
    server.write(NOW + 2000);
    let start = server.us() + 120_000;
    server.after(120_000, bar);
    assert_eq!(server.ids(0, 5, 2000 * IDS_PER_TICK), refused(reason));
    server.backends()[3].batch.leave();
    assert!(late(&server, start) <= 50_000);
    // The shard is ahead of a clock that was set back, by more than a call may queue for, or by less.
    for (back, is_js) in [(40_000, false), (20, false), (40_000, true)] {
        let server = patient();
        server.ids(2, 5, IDS_PER_TICK).unwrap();
        server.js_id(2, 5).unwrap();
        server.step_clock(-back);
        // The clock is set back further after the call has taken its run.
        server.after(10_000, |server| server.step_clock(-40_000));
        server.after(120_000, bar);
        let start = server.us() + 120_000;
        let answer = if is_js { server.js_id(0, 5) } else { server.id(0, 5) };
        assert_eq!(answer, refused(reason));
        assert!(late(&server, start) <= 50_000);
    }
    // The mark is awaited, and becomes durable.
    let server = patient().with_standbys(Some(200_000));
    server.after(100_000, bar);
    assert_eq!(server.id(0, 5), refused(reason));
    // A run that is due when its call looks again is handed out: it was taken before.
    let server = patient().with(|settings| settings.max_ahead_ms = 0);
    server.ids(2, 5, IDS_PER_TICK).unwrap();
    server.after(1, bar);
    assert!(server.id(0, 5).is_ok());
}

/// The number of ids that the batches of shard 5 still have to take.
fn left(server: &Scripted) -> u64 {
    idgen_core::batch::left(server.batches(), shard(5), server.boot_ms())
}

/// Adds a batch of another backend, with `ticks` milliseconds of ids still to take.
fn join(server: &Scripted, backend: usize, ticks: u64) {
    let batch = &server.backends()[backend].batch;
    batch.join(server.batches(), shard(5), ticks * IDS_PER_TICK, server.boot_ms());
}

/// A closed shard can be advanced, so that it can be made ready before it is opened. The bound follows.
#[test]
fn a_closed_shard_is_advanced() {
    let server = Scripted::running().with(|settings| settings.max_ahead_ms = 50);
    let bound = server.close(0, 5).unwrap();
    assert!(bound < first_id(THEN + 20));
    assert_eq!(server.advance(0, 5, first_id(THEN + 20)), Ok(first_id(THEN + 20) + 1));
    assert_eq!(server.id(0, 5), closed());
    assert!(server.close(0, 5).unwrap() > first_id(THEN + 20));
    server.reopen(5);
    assert!(server.id(0, 5).unwrap() > first_id(THEN + 20));
}

/// Calls that begin after the mark was raised mint later ids, in both layouts and for all shards, even from a lease,
/// after the clock is set back, and after a crash. The result is the first time of an id.
#[test]
fn all_ids_come_after_what_the_mark_was_raised_past() {
    for first in [THEN + 1, THEN + 20, THEN + 999, THEN + 1000] {
        let ahead = |server: Scripted| server.with(|settings| settings.max_ahead_ms = 3000);
        let server = ahead(Scripted::running());
        for of in [5, 6] {
            server.id(0, of).unwrap();
            server.id(0, of).unwrap();
        }
        server.js_id(0, 5).unwrap();
        assert_eq!(server.raise_mark(first), Ok(first));
        assert!(server.on_disk().unwrap().mark() >= first);
        assert_eq!(server.written().len(), if first > NOW + 1000 { 2 } else { 1 });
        let check = |server: &Scripted| {
            for of in 0..10 {
                assert!(server.id(0, of).unwrap() >= min_id(first));
                assert!(server.js_id(0, of).map(js_tick).unwrap() >= first);
            }
        };
        check(&server);
        server.step_clock(-900);
        check(&server);
        check(&ahead(server.crashed(THEN)));
    }
}

/// A time that has already passed is not refused, and does not cause a wait: the result says where ids begin now. But
/// the floor moves there, because the clock may be set back.
#[test]
fn the_mark_is_raised_past_a_time_that_is_past() {
    for first in [0, 1, THEN - 500, THEN] {
        let server = Scripted::running().with(|settings| settings.max_ahead_ms = 2000);
        assert_eq!(server.raise_mark(first), Ok(THEN));
        assert_eq!(server.recovered(), first);
        server.step_clock(-1000);
        assert!(server.id(0, 6).map(tick_of).unwrap() >= first.max(THEN - 1000));
    }
    // Below the mark of earlier incarnations there is nothing to do; above it, a mark is written.
    let server = Scripted::new(NOW + 60);
    assert_eq!(server.raise_mark(NOW - 5), Ok(NOW + 60));
    assert_eq!(server.written(), []);
    let server = Scripted::new(NOW - 60);
    assert_eq!(server.raise_mark(NOW - 5), Ok(NOW));
    assert_eq!(server.written(), [NOW + 1000]);
}

/// The mark cannot be raised further ahead of the clock than ids may be, or on a server that cannot write a mark.
#[test]
fn the_mark_is_not_raised_too_far() {
    let server = Scripted::running().with(|settings| settings.max_ahead_ms = 50);
    assert_eq!(server.raise_mark(THEN + 51), Ok(THEN + 51));
    let too_far = |by_ms| refused(RaiseTooFar { by_ms, max_ahead_ms: 50 });
    assert_eq!(server.raise_mark(THEN + 52), too_far(51));
    assert_eq!(server.raise_mark(u64::MAX >> 1), too_far((u64::MAX >> 1) - 1 - THEN));
    assert_eq!(server.recovered(), THEN + 51);
    server.recovery.set(true);
    assert_eq!(Scripted::new(0).raise_mark(NOW), Ok(NOW));
    let server = Scripted::new(0);
    server.recovery.set(true);
    assert_eq!(server.raise_mark(NOW), refused::<Tick>(Recovery));
    let server = Scripted::running().with(|settings| settings.max_clock_jump_ms = Some(60_000));
    server.step_clock(70_000);
    assert_eq!(server.raise_mark(NOW + 70_000), refused(ClockJumped { by_ms: 70_000 }));
    let server = Scripted::new(0).with(|settings| settings.max_ahead_ms = 50);
    server.set_clock(MAX_TICK);
    assert_eq!(server.raise_mark(MAX_TICK + 2), refused(Exhausted));
    assert!(server.id(0, 5).is_ok());
    assert!(server.raise_mark(MAX_TICK + 1).is_ok());
    assert_eq!(server.id(0, 5), refused(Exhausted));
}

/// The mark is raised on synchronous standbys too. A mark that was raised without them does not move the horizon beyond
/// what they have.
#[test]
fn a_raised_mark_is_on_standbys() {
    let server = Scripted::running().with(|settings| settings.max_ahead_ms = 2000).with_standbys(None);
    assert_eq!(server.raise_mark(THEN + 20), not_renewed(80));
    assert_eq!(server.raise_mark(THEN - 20), not_renewed(80), "even a time that is past");
    server.acknowledge_us.set(Some(0));
    let first = server.tick() + 20;
    assert_eq!(server.raise_mark(first), Ok(first));
    assert!(server.limit() >= first);
    // Below the mark of earlier incarnations, which the standbys may not have.
    let server = Scripted::new(NOW + 60).with_standbys(None);
    assert_eq!(server.raise_mark(NOW), not_renewed(80));

    let server = Scripted::running().with(|settings| settings.max_ahead_ms = 2000);
    assert_eq!(server.raise_mark(THEN + 20), Ok(THEN + 20));
    let server = server.with_standbys(None);
    server.pass_us(30_000);
    assert_eq!(server.horizon(), not_renewed(80));
    server.acknowledge_us.set(Some(0));
    assert_eq!(server.horizon().map(tick_of), Ok(THEN + 20));
}

/// Promise 6: raising the mark settles nothing. The horizon stays below the ids of transactions that began before.
#[test]
fn a_raised_mark_does_not_move_the_horizon() {
    let server = Scripted::running().with(|settings| settings.max_ahead_ms = 2000);
    let id = server.id(0, 5).unwrap();
    server.raise_mark(THEN + 500).unwrap();
    server.pass_us(5000);
    assert_eq!(server.horizon(), Ok(min_id(tick_of(id))));
    server.end_transaction(0);
    assert_eq!(server.horizon(), Ok(min_id(THEN + 5)), "not beyond the clock");
    // A renewal that began before may be published afterwards.
    let server = Scripted::running().with(|settings| settings.max_ahead_ms = 3000);
    server.pass_us(999_000);
    let first = server.tick() + 2000;
    server.flush_us.set(5000);
    server.after(1000, move |server| {
        server.flush_us.set(0);
        assert_eq!(server.raise_mark(first), Ok(first));
    });
    assert!(server.id(0, 5).is_ok(), "it began before");
    assert!(server.id(0, 5).unwrap() >= min_id(first));
}

/// `snowflake_advance` makes the next id of every backend greater, at once and across a crash.
#[test]
fn a_shard_is_advanced_past_an_id() {
    let server = Scripted::running().with(|settings| (settings.max_ahead_ms, settings.max_lease) = (50, 4));
    let lease: Vec<i64> = (0..2).map(|_| server.id(1, 5).unwrap()).collect();
    let past = min_id(THEN + 20) | 7 << 10 | 3;
    let next = first_id(THEN + 21);
    assert_eq!(server.advance(0, 5, past), Ok(next));
    assert_eq!(server.tick(), THEN + 1, "leases of the old millisecond have ended");
    assert_eq!(server.id(1, 5), Ok(next), "a lease that held {lease:?}");
    assert_eq!(server.written(), [NOW + 1000], "the mark lies above it already");
    let crashed = server.crashed(THEN).with(|settings| settings.max_wait_ms = 2000);
    assert!(crashed.id(0, 5).unwrap() > past);

    // Advancing to less than the current position changes nothing, and returns the next id.
    assert_eq!(server.advance(0, 5, lease[0]), Ok(next + 1));
    assert_eq!(server.advance(0, 5, -1), Ok(next + 1));
    assert_eq!(server.counters(shard(5))[0], 4);

    // The lease of the backend that advances the shard is not used up.
    let server = Scripted::running().with(|settings| settings.max_ahead_ms = 50);
    for _ in 0..2 {
        server.id(0, 5).unwrap();
    }
    let next = server.advance(0, 5, min_id(THEN)).unwrap();
    server.step_clock(-1);
    assert!(server.id(0, 5).unwrap() >= next);
}

/// If the mark is not above the id yet, it is written before the shard is advanced: the limit itself may not be issued.
/// Below the mark of earlier incarnations, nothing has to be written.
#[test]
fn an_advance_is_durable() {
    let ahead = |server: Scripted| server.with(|settings| settings.max_ahead_ms = 5000);
    let server = ahead(Scripted::running());
    server.advance(0, 5, min_id(NOW + 1000) - 1).unwrap();
    assert_eq!(server.written(), [NOW + 1000, NOW + 2000]);
    let next = server.advance(0, 5, min_id(NOW + 4000)).unwrap();
    assert!(server.on_disk().unwrap().mark() > tick_of(next));

    let server = ahead(Scripted::new(NOW + 1000));
    server.id(3, 9).unwrap();
    server.advance(0, 5, min_id(NOW + 999)).unwrap();
    assert_eq!(server.written().len(), 1);
    // The same at the very start.
    let server = Scripted::new(NOW);
    assert_eq!(server.advance(0, 5, min_id(NOW - 1)), Ok(first_id(NOW - 1)));
    assert_eq!(server.written(), []);
    assert_eq!(server.id(0, 5).map(tick_of), Ok(server.tick()), "the mark applies nevertheless");
    let server = Scripted::new(NOW);
    server.advance(0, 5, min_id(NOW)).unwrap();
    assert_eq!(server.written(), [NOW + 1000]);
}

/// A shard cannot be advanced past an id that is further in the future than ids may be.
#[test]
fn an_advance_too_far_is_refused() {
    let server = Scripted::running().with(|settings| settings.max_ahead_ms = 50);
    let past = |tick| first_id(tick);
    assert_eq!(server.advance(0, 5, past(THEN + 50)), Ok(past(THEN + 50) + 1));
    server.set_clock(THEN);
    let too_far = refused(AdvanceTooFar { by_ms: 51, max_ahead_ms: 50 });
    assert_eq!(server.advance(0, 5, past(THEN + 51)), too_far);
}

/// Promise 4: if the clock stands still, an advance waits for as long as a call may, and no longer. Its effect remains.
/// The rest of a millisecond does not count as a wait.
#[test]
fn an_advance_does_not_wait_without_end() {
    let server = Scripted::running().with(|settings| settings.max_ahead_ms = 50);
    server.stands.set(true);
    let past = min_id(THEN + 20);
    let start = server.us();
    assert_eq!(server.advance(0, 5, past), refused(ClockStands { waited_ms: 80 }));
    assert_eq!(server.us() - start, 2100 + 80_000);
    server.after(50_000, |server| server.stands.set(false));
    assert_eq!(server.advance(0, 5, past), Ok(first_id(THEN + 20)));
    let server = server.with(|settings| settings.max_wait_ms = 0);
    assert!(server.advance(0, 5, past).is_ok());
}
