use std::collections::HashSet;

use idgen_core::batch;
use idgen_core::error::Error::{self, *};
use idgen_core::host::{Host, Wait};
use idgen_core::mark::Clocks;
use idgen_core::mint::at_once;
use idgen_core::position::{LayoutShard, Position};
use idgen_core::settings::QUEUE_MS;
use idgen_core::slot::Bounds;
use idgen_ids::id::{IDS_PER_TICK, MAX_TICK};
use idgen_ids::{Tick, decode, min_id};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::host::{Answer, NOW, SETTINGS, Scripted, not_renewed, refused};
use crate::{epoch_at, first_id, js_shard, js_tick, shard, tick_of};

/// The tick that the clock of [`Scripted::running`] shows.
const THEN: Tick = NOW + 1;

/// The single waits of calls for the clock, in microseconds.
fn slept(server: &Scripted) -> Vec<u64> {
    let sleeps = server.sleeps();
    assert!(sleeps.iter().all(|(_, wait)| *wait == Wait::Clock), "{sleeps:?}");
    sleeps.into_iter().map(|(us, _)| us).collect()
}

/// The answer to a call for an id whose shard is full.
fn full(max_ahead_ms: u64, waited_ms: u64) -> Answer<i64> {
    refused(ShardFull { shard: shard(5), max_ahead_ms, waited_ms })
}

/// The answer to a call for an id whose shard is ahead of the clock.
fn behind(by_ms: u64, max_ahead_ms: u64, waited_ms: u64) -> Answer<i64> {
    refused(ClockBehind { shard: shard(5), by_ms, max_ahead_ms, waited_ms })
}

#[derive(Clone, Debug)]
enum Call {
    Id(usize, i32),
    Batch(usize, u64),
    Js(usize),
    Advance(usize, u64),
    Pass(u64),
    StepClock(i64),
    EndTransaction(usize),
    Horizon,
    Standbys(bool),
    Crash(i64),
}

fn any_call() -> impl Strategy<Value = Call> {
    prop_oneof![
        20 => (0..3usize, 5..7i32).prop_map(|(who, of)| Call::Id(who, of)),
        4 => (0..3usize, 0..4000u64).prop_map(|(who, count)| Call::Batch(who, count)),
        4 => (0..3usize).prop_map(Call::Js),
        1 => (0..3usize, 0..1u64 << 24).prop_map(|(who, back)| Call::Advance(who, back)),
        6 => (0..3000u64).prop_map(Call::Pass),
        2 => (-40..40i64).prop_map(Call::StepClock),
        8 => (0..3usize).prop_map(Call::EndTransaction),
        4 => Just(Call::Horizon),
        1 => any::<bool>().prop_map(Call::Standbys),
        1 => (-40..40i64).prop_map(Call::Crash),
    ]
}

/// The errors that a call may return, however the clock and the standbys behave.
fn is_to_be_expected(error: Option<Error>) -> bool {
    matches!(
        error,
        Some(
            MarkNotRenewed { .. }
                | ClockBehind { .. }
                | ClockBehindMark { .. }
                | ShardFull { .. }
                | AdvanceTooFar { .. }
                | BatchTooLarge { .. }
                | BatchesBefore { .. }
        )
    )
}

proptest! {
    /// Promises 1, 2, 3 and 6 for the path itself, across crashes, steps of the clock, and synchronous replication that
    /// begins and ends: no id occurs twice, the ids of a backend increase, none is before its call or too far after it,
    /// none lies below an earlier horizon, and the horizon neither goes back nor lies above an id of an open
    /// transaction. A refused call reports the clock or the mark.
    #[test]
    fn calls_keep_the_promises_whatever_the_server_meets(
        calls in vec(any_call(), 1..120), max_ahead in 0..8u64, reserve_ahead in 1..30u64, max_lease in 1..80u64,
        flush_us in 0..5000u64, acknowledge_us in prop_oneof![3 => (0..30_000u64).prop_map(Some), 1 => Just(None)],
    ) {
        let set = |server: Scripted| {
            server.flush_us.set(flush_us);
            server.acknowledge_us.set(acknowledge_us);
            server.with(|settings| {
                (settings.max_ahead_ms, settings.reserve_ahead_ms) = (max_ahead, reserve_ahead);
                settings.max_lease = max_lease;
            })
        };
        let mut server = set(Scripted::new(0));
        let (mut seen, mut seen_js) = (HashSet::new(), HashSet::new());
        let (mut last, mut horizon) = ([[None; 2]; 3], 0);
        // The least id of each backend's open transaction.
        let mut open = [i64::MAX; 3];
        for call in calls {
            let began = server.tick();
            let (who, answer) = match call {
                Call::Id(who, of) => (who, server.id(who, of).map(|id| vec![id])),
                Call::Batch(who, count) => (who, server.ids(who, 5, count)),
                Call::Js(who) => (who, server.js_id(who, 5).map(|id| {
                    assert!(seen_js.insert(id), "an id twice");
                    assert!(js_tick(id) + 1000 > began && js_tick(id) <= server.tick() + max_ahead);
                    vec![]
                })),
                Call::Advance(who, back) => {
                    let past = min_id(began) - back as i64;
                    (who, server.advance(who, 5, past).map(|next| {
                        assert!(next > past);
                        vec![]
                    }))
                }
                other => {
                    match other {
                        Call::Horizon => if let Ok(now) = server.horizon() {
                            prop_assert!(now >= horizon, "the horizon goes back");
                            prop_assert!(open.iter().all(|id| *id >= now), "{now} is above an id of {open:?}");
                            horizon = now;
                        },
                        Call::Crash(ms) => {
                            server = set(server.crashed(began.saturating_add_signed(ms)));
                            (last, open) = ([[None; 2]; 3], [i64::MAX; 3]);
                        }
                        Call::Pass(us) => server.pass_us(us),
                        Call::StepClock(ms) => server.step_clock(ms),
                        Call::EndTransaction(who) => {
                            server.end_transaction(who);
                            open[who] = i64::MAX;
                        }
                        Call::Standbys(are_there) => server.standbys.set(are_there),
                        _ => {}
                    }
                    continue;
                }
            };
            prop_assert!(!server.claimed(), "the claim was not given up");
            prop_assert_eq!(left(&server), 0, "a batch has not left");
            match answer {
                Ok(ids) => for id in ids {
                    let tick = tick_of(id);
                    prop_assert!(seen.insert(id), "an id twice");
                    prop_assert!(began <= tick && tick <= server.tick() + max_ahead, "{began} {tick}");
                    let last = &mut last[who][decode(id).shard.index() - 5];
                    prop_assert!(Some(id) > *last, "a backend's ids must increase");
                    prop_assert!(id >= horizon, "an id below the horizon");
                    *last = Some(id);
                    open[who] = open[who].min(id);
                },
                Err(error) => prop_assert!(is_to_be_expected(error), "{error:?}"),
            }
        }
    }
}

/// Ids of a backend come from one lease after the other, each twice as long as the last, and none of them waits. In the
/// next millisecond, and for another shard, a lease has one id again.
#[test]
fn ids_of_one_millisecond_come_from_leases() {
    let server = Scripted::running();
    assert_eq!(server.session(0).last_id(), None);
    let ids: Vec<i64> = (0..127).map(|_| server.id_at_once(0, 5).unwrap()).collect();
    assert_eq!(ids, (0..127).map(|q| first_id(THEN) + q).collect::<Vec<i64>>());
    assert_eq!(server.counters(shard(5)), [127, 7, 0, 0], "1 + 2 + 4 + 8 + 16 + 32 + 64");
    assert_eq!(server.session(0).last_id(), Some(ids[126]));
    assert_eq!(server.id_at_once(1, 5), Some(ids[126] + 1), "another backend has its own state");
    server.id_at_once(0, 6).unwrap();
    assert_eq!(server.counters(shard(6)), [1, 1, 0, 0]);
    server.id_at_once(0, 5).unwrap();
    assert_eq!(server.counters(shard(5))[..2], [129, 9]);
    server.pass_us(1000);
    server.id_at_once(0, 5).unwrap();
    assert_eq!(server.counters(shard(5))[..2], [130, 10]);
}

/// A backend remembers its last id, whichever function minted it.
#[test]
fn the_last_id_is_that_of_the_last_call() {
    let server = Scripted::running();
    let last = || server.session(0).last_id();
    let batch = server.ids(0, 5, 10).unwrap();
    assert_eq!(last(), batch.last().copied());
    assert_eq!(server.ids(0, 5, 0), Ok(vec![]));
    assert_eq!(last(), batch.last().copied(), "a batch of no ids has no last one");
    assert_eq!(server.js_id(0, 5).ok(), last());
    // The mark is due for renewal.
    server.pass_us(600_000);
    assert_eq!(server.id(0, 5).ok(), last());
    assert_eq!(server.session(1).last_id(), None);
}

/// Dropping a lease loses the rest of its run. A call requests no more than the setting allows.
#[test]
fn a_dropped_lease_is_asked_for_anew() {
    let server = Scripted::running().with(|settings| settings.max_lease = 2);
    let ids: Vec<i64> = (0..4).map(|_| server.id_at_once(0, 5).unwrap()).collect();
    assert_eq!(server.counters(shard(5))[1], 3, "1, 2, 2");
    server.session(0).drop_lease();
    assert_eq!(server.id_at_once(0, 5), Some(ids[3] + 2));
    assert_eq!(server.counters(shard(5))[1], 4);
}

/// The fast path mints nothing without settings, for a full shard, or with a clock before the epoch. The slow path
/// reports the reason, or waits. Only a new lease needs settings.
#[test]
fn what_is_in_the_way_is_left_to_the_other_path() {
    let server = Scripted::running();
    let not_allowed = || at_once(&server, server.session(0), shard(5), || None);
    assert_eq!(not_allowed(), None);
    for _ in 0..2 {
        server.id_at_once(0, 5).unwrap();
    }
    assert_eq!(not_allowed(), Some(first_id(THEN) + 2));
    server.ids(0, 6, IDS_PER_TICK).unwrap();
    assert_eq!(server.id_at_once(0, 6), None);
    assert_eq!(server.counters(shard(6))[1], 1);
    server.step_clock(-10_000_000);
    assert_eq!(server.id_at_once(0, 5), None);
    assert_eq!(server.id(0, 5), Err(None));
}

/// If the mark is due for renewal, the fast path mints nothing, whether the mark is due because of the clock or because
/// of a shard that runs ahead of it.
#[test]
fn a_lease_is_left_to_the_other_path_where_the_mark_is_due() {
    let server = Scripted::running().with(|settings| settings.max_ahead_ms = 1000);
    server.pass_us(498_000);
    assert!(server.id_at_once(0, 5).is_some(), "501 ms are left");
    server.ids(0, 6, IDS_PER_TICK).unwrap();
    assert_eq!(server.id_at_once(1, 6), None, "that shard has 500");
    server.pass_us(1000);
    assert_eq!(server.id_at_once(1, 5), None, "500 ms are left");
    assert_eq!(server.written(), [NOW + 1000]);
    server.id(1, 5).unwrap();
    assert_eq!(server.written(), [NOW + 1000, NOW + 1500]);
    assert!(server.id_at_once(2, 5).is_some());
}

/// Promise 4: a call waits for a full shard only until the next millisecond, even if ids may be ahead of the clock, and
/// the wait is counted.
#[test]
fn a_full_shard_is_waited_out() {
    for ahead in [0, 5] {
        let server = Scripted::running().with(|settings| settings.max_ahead_ms = ahead);
        server.pass_us(300);
        let count = (ahead + 1) * IDS_PER_TICK;
        let batch = server.ids(0, 5, count).unwrap();
        assert_eq!((batch[0], batch[1023]), (first_id(THEN), first_id(THEN) + 1023));
        assert_eq!(slept(&server), []);
        assert_eq!(server.id(1, 5), Ok(first_id(THEN + ahead + 1)));
        assert_eq!(slept(&server), [700]);
        assert_eq!(server.counters(shard(5)), [count + 1, 2, 1, 700]);
        // A call that has waited holds a lease of the millisecond for which it waited.
        assert_eq!(server.id(1, 5), Ok(first_id(THEN + ahead + 1) + 1));
        assert_eq!(server.counters(shard(5))[0], count + 3, "twice as many as before");
    }
}

/// A lease from the slow path is like any other: it is valid until the end of the millisecond in which it was
/// requested, even if ids may be ahead of the clock.
#[test]
fn a_lease_lives_as_long_as_its_millisecond() {
    let server = Scripted::running().with(|settings| settings.max_ahead_ms = 10);
    server.id_at_once(0, 5).unwrap();
    // The mark is due now.
    let server = server.with(|settings| settings.reserve_ahead_ms = 5000);
    assert_eq!(server.id_at_once(0, 5), None);
    server.id(0, 5).unwrap();
    assert_eq!(server.counters(shard(5))[1], 2);
    server.id_at_once(0, 5).unwrap();
    assert_eq!(server.counters(shard(5))[1], 2, "two ids were asked for");
}

/// A waiting call takes no more in advance than it can wait for, and no more than the length of the queue. A cancel
/// shows this, because it loses what the call has taken.
#[test]
fn the_queue_is_as_long_as_the_wait_that_is_left() {
    let burnt = |max_wait, ahead: u64, cancel_us| {
        let server = Scripted::running().with(|settings| settings.max_wait_ms = max_wait);
        server.ids(3, 5, IDS_PER_TICK).unwrap();
        server.step_clock(1 - ahead as i64);
        server.cancel(cancel_us, || server.id(0, 5));
        server.counters(shard(5))[0] - IDS_PER_TICK
    };
    assert_eq!((burnt(10, 10, 1), burnt(10, 11, 1)), (1, 0));
    assert_eq!((burnt(1000, QUEUE_MS, 1), burnt(1000, QUEUE_MS + 1, 1)), (1, 0));
    // After 50 ms of waiting, 50 are left: the shard is 50 or 51 ms ahead by then.
    assert_eq!((burnt(100, 100, 50_001), burnt(100, 101, 50_001)), (1, 0));
}

/// A batch takes the rest of a millisecond and waits for the next ones, and counts as one wait.
#[test]
fn a_batch_waits_for_each_of_its_milliseconds() {
    let server = Scripted::running();
    let ids = server.ids(0, 5, 3 * IDS_PER_TICK).unwrap();
    assert_eq!((ids.len(), tick_of(ids[0]), tick_of(ids[3071])), (3072, THEN, THEN + 2));
    assert!(ids.is_sorted());
    assert_eq!(slept(&server), [1000, 1000]);
    assert_eq!(server.counters(shard(5)), [3072, 3, 1, 2000]);
}

/// Calls that wait for a full shard each take a later millisecond in advance, and therefore wake only once.
#[test]
fn those_who_wait_queue_for_milliseconds_of_their_own() {
    let server = Scripted::running();
    server.ids(0, 5, IDS_PER_TICK).unwrap();
    // While one call waits for the next millisecond, another takes the rest of it, and a third takes the following one.
    server.after(100, |server| {
        let ids = server.ids(1, 5, 1023).unwrap();
        assert_eq!((tick_of(ids[0]), tick_of(ids[1022])), (THEN + 1, THEN + 1));
    });
    server.after(200, |server| assert_eq!(server.id(2, 5).map(tick_of), Ok(THEN + 2)));
    assert_eq!(server.id(0, 5).map(tick_of), Ok(THEN + 1));
    assert_eq!(slept(&server), [1000, 900, 1800]);
}

/// A waiting call reads the clock now and then, because it may have been corrected.
#[test]
fn a_wait_ends_where_the_clock_is_set_right() {
    let server = Scripted::running().with(|settings| settings.max_wait_ms = 1000);
    server.id(0, 5).unwrap();
    server.step_clock(-3000);
    server.after(120_000, |server| server.step_clock(3000));
    assert_eq!(server.id(0, 5).map(tick_of), Ok(THEN + 150), "looked at after 50, 100, and 150 ms");
    assert_eq!(slept(&server), [50_000; 3]);
    assert_eq!(server.counters(shard(5))[3], 150_000);
}

/// Promise 4: a call waits for exactly `idgen.max_wait`, and then reports that the shard is full.
#[test]
fn a_full_shard_is_named_after_the_wait() {
    let server = Scripted::running().with(|settings| settings.max_wait_ms = 7);
    server.ids(0, 5, IDS_PER_TICK).unwrap();
    // The shard is as far ahead as calls that queue take it.
    server.step_clock(-(QUEUE_MS as i64));
    let start = server.us();
    assert_eq!(server.id(0, 5), full(0, 7));
    assert_eq!((server.us() - start, slept(&server)), (7000, vec![7000]));
    assert_eq!(server.counters(shard(5)), [1024, 1, 1, 7000]);
    let server = server.with(|settings| settings.max_wait_ms = 0);
    assert_eq!(server.id(0, 5), full(0, 0));
    assert_eq!(server.counters(shard(5))[2], 2);
}

/// Calls take a full shard as far ahead as the queue goes. If a shard is further ahead, the cause is the clock, and the
/// call says so. With a unit of seconds, a shard may be further ahead.
#[test]
fn a_clock_set_back_and_a_full_shard_are_told_apart() {
    let running =
        || Scripted::running().with(|settings| (settings.max_ahead_ms, settings.max_wait_ms) = (5, 0));
    let server = running();
    server.ids(0, 5, 6 * IDS_PER_TICK).unwrap();
    server.set_clock(THEN + 6 - 5 - QUEUE_MS - 1);
    assert_eq!(server.id(0, 5), full(5, 0));
    server.step_clock(-1);
    assert_eq!(server.id(0, 5), behind(5 + QUEUE_MS + 2, 5, 0));
    let server = server.with(|settings| settings.max_wait_ms = 20);
    server.step_clock(-100);
    assert_eq!(server.id(0, 5), behind(5 + QUEUE_MS + 102 - 20, 5, 20));

    let server = running();
    for _ in 0..4096 {
        server.js_id(0, 5).unwrap();
    }
    server.set_clock(THEN / 1000 * 1000 + 1000 - 5 - QUEUE_MS - 1000);
    assert_eq!(server.js_id(0, 5), full(5, 0));
    server.step_clock(-1);
    assert_eq!(server.js_id(0, 5), behind(5 + QUEUE_MS + 1001, 5, 0));
}

/// Ids begin at the mark of earlier incarnations: a call waits until the clock is as close to it as ids may run ahead,
/// and reports what it waited for.
#[test]
fn an_incarnation_begins_at_the_mark_of_the_one_before() {
    for (ahead, waited_ms) in [(0, 60), (60, 0)] {
        let server = Scripted::new(NOW + 60).with(|settings| settings.max_ahead_ms = ahead);
        assert_eq!(server.id(0, 5), Ok(first_id(NOW + 60)));
        assert_eq!(server.tick(), NOW + waited_ms);
        assert_eq!(server.counters(shard(5))[3], waited_ms * 1000);
    }
    let behind = |by_ms| Some(ClockBehindMark { by_ms, max_ahead_ms: 10, waited_ms: 80 });
    let server = Scripted::new(NOW + 5000).with(|settings| settings.max_ahead_ms = 10);
    assert_eq!(server.id(0, 5), Err(behind(4920)));
    assert_eq!(server.ids(0, 5, 1_000_000), Err(behind(4840)), "a batch gets the same error");
    // A second that begins before the mark is not issued.
    assert_eq!(server.js_id(0, 5), Err(behind(4760)));
    let server = Scripted::new(NOW + 4001).with(|settings| settings.max_ahead_ms = 10);
    assert_eq!(server.js_id(0, 5), Err(behind(4920)));
}

/// If the clock is behind both, a call for a shard with ids of this incarnation waits for those: after a restart, calls
/// for all other shards would have to wait as long.
#[test]
fn a_used_shard_is_said_to_wait_for_its_own_ids() {
    let server = Scripted::new(NOW).with(|settings| settings.max_wait_ms = 0);
    server.id(0, 5).unwrap();
    server.step_clock(60_000);
    let tick = server.id(0, 5).map(tick_of).unwrap();
    server.set_clock(NOW - 8000);
    assert_eq!(server.id(0, 5), behind(tick - (NOW - 8000), 0, 0));
    assert_eq!(server.id(0, 6), refused(ClockBehindMark { by_ms: 8000, max_ahead_ms: 0, waited_ms: 0 }));
}

/// If the mark is only as far ahead as ids may be, the clock is not behind it.
#[test]
fn a_full_shard_at_the_mark_is_full() {
    let server =
        Scripted::new(NOW + 10).with(|settings| (settings.max_ahead_ms, settings.max_wait_ms) = (10, 0));
    server.ids(0, 5, IDS_PER_TICK).unwrap();
    assert_eq!(server.id(0, 5), full(10, 0));
}

/// The number of ids that the batches of shard 5 still have to take.
fn left(server: &Scripted) -> u64 {
    batch::left(server.batches(), shard(5), server.boot_ms())
}

/// Adds a batch of another backend, with `ticks` milliseconds of ids still to take.
fn join(server: &Scripted, backend: usize, ticks: u64) {
    let batch = &server.backends()[backend].batch;
    batch.join(server.batches(), shard(5), ticks * IDS_PER_TICK, server.boot_ms());
}

/// Makes this batch take a millisecond of ids each millisecond.
fn drain(server: &Scripted, backend: usize, ticks: u64) {
    join(server, backend, ticks);
    for ms in 1..=ticks {
        server.after(ms * 1000, move |server| server.backends()[backend].batch.took(IDS_PER_TICK));
    }
}

/// Takes a batch, and returns how many milliseconds of ids it contains.
fn take(server: &Scripted, ticks: u64) -> Answer<u64> {
    server.ids(0, 5, ticks * IDS_PER_TICK).map(|ids| ids.len() as u64 / IDS_PER_TICK)
}

/// Promise 4: a batch that cannot be provided within seven eighths of the time that a call may wait is refused before
/// any of it is taken, even before the first renewal of an incarnation, which begins at the mark of the one before.
#[test]
fn a_batch_that_cannot_be_had_takes_nothing() {
    let too_large = |count, most| Some(BatchTooLarge { count, most: most * IDS_PER_TICK });
    let server = Scripted::running();
    let count = 71 * IDS_PER_TICK + 1;
    assert_eq!(server.ids(0, 5, count), Err(too_large(count, 71)));
    assert_eq!(server.counters(shard(5)), [0; 4]);
    assert_eq!((take(&server, 71), server.tick()), (Ok(71), THEN + 70));
    assert_eq!(take(&Scripted::new(NOW + 60), 12), Err(too_large(12 * IDS_PER_TICK, 11)));
    // There is room only in the last eighth of the wait: a single id is not a large batch.
    let server = Scripted::new(NOW + 75);
    assert_eq!(take(&server, 7), Err(too_large(7 * IDS_PER_TICK, 6)));
    assert_eq!(server.ids(0, 5, 1).map(|ids| ids.len()), Ok(1));
}

/// Promise 4: a batch that cannot be provided in time after the earlier ones is refused at once. A batch of one
/// millisecond does not queue, nor does a batch of another shard.
#[test]
fn a_batch_behind_others_that_cannot_be_had_takes_nothing() {
    let server = Scripted::running();
    let behind = |count, ahead| {
        let error = BatchesBefore { shard: shard(5), count, ahead: ahead * IDS_PER_TICK };
        assert_eq!(server.ids(0, 5, count), refused(error));
    };
    join(&server, 2, 30);
    join(&server, 3, 20);
    behind(21 * IDS_PER_TICK + 1, 50);
    let (count, most) = (71 * IDS_PER_TICK + 1, 71 * IDS_PER_TICK);
    assert_eq!(server.ids(0, 5, count), refused(BatchTooLarge { count, most }));
    assert_eq!(server.counters(shard(5)), [0; 4]);
    assert_eq!(left(&server), 50 * IDS_PER_TICK, "it has not joined");
    join(&server, 2, 1000);
    behind(IDS_PER_TICK + 1, 1020);
    assert_eq!(take(&server, 1), Ok(1));
    assert_eq!(server.ids(0, 6, 5 * IDS_PER_TICK).map(|ids| ids.len()), Ok(5120));
}

/// A batch lets earlier batches pass, and takes nothing before they are about to end.
#[test]
fn batches_take_their_ids_in_the_order_in_which_they_asked() {
    let server = Scripted::running().with(|settings| settings.max_wait_ms = 400);
    server.ids(3, 5, IDS_PER_TICK).unwrap();
    join(&server, 2, 10);
    // The earlier batch takes a millisecond of ids at a time.
    for ms in 0..10 {
        server.after(ms * 1000, move |server| {
            let (now, limit) = (server.tick(), server.limit());
            let bounds = Bounds { now, floor: 0, max_ahead: 0, queue: QUEUE_MS, limit };
            server.with_slot(shard(5), |slot| slot.take(IDS_PER_TICK, true, &bounds)).unwrap();
            server.backends()[2].batch.took(IDS_PER_TICK);
            assert_eq!(server.counters(shard(5))[0], (ms + 2) * IDS_PER_TICK, "no other call takes any");
        });
    }
    assert!(server.ids(0, 5, 3 * IDS_PER_TICK).unwrap().is_sorted());
    assert_eq!(slept(&server)[0], 10_000, "until nothing is left");
    assert_eq!(server.counters(shard(5))[0], 14 * IDS_PER_TICK);
}

/// A batch joins the queue at once, and leaves it however it ends. A batch that loses what it has taken takes it again.
/// A batch for which the shard has nothing within the whole wait does not join the queue.
#[test]
fn the_queue_counts_what_a_batch_is_still_to_take() {
    let expect = |server: &Scripted, us, ticks| {
        server.after(us, move |server| assert_eq!(left(server), ticks * IDS_PER_TICK, "after {us} us"));
    };
    let server = Scripted::running();
    // Of 40 milliseconds, one is taken, and 16 are taken in advance.
    expect(&server, 1, 23);
    take(&server, 40).unwrap();
    assert_eq!(left(&server), 0);
    server.cancel(1500, || take(&server, 9));
    assert_eq!(left(&server), 0);
    server.after(10, |server| server.step_clock(-1_000));
    assert!(take(&server, 9).is_err());
    assert_eq!(left(&server), 0);

    let server = Scripted::running().with(|settings| settings.max_wait_ms = 400);
    server.acknowledge_us.set(Some(30_000));
    // The limit is void until the standbys have a mark.
    server.after(100, |server| server.standbys.set(true));
    expect(&server, 500, 23);
    expect(&server, 20_000, 39);
    assert_eq!(take(&server, 40), Ok(40));

    let server = Scripted::new(NOW + 5000);
    expect(&server, 10_000, 0);
    assert!(take(&server, 1000).is_err());
    assert!(server.us() > 5_010_000);
}

/// A backend that was stopped, or is not allowed to wait, does not keep later batches from ids that are there, not even
/// if ids may not run ahead of the clock, so that unused ids do not pile up.
#[test]
fn a_batch_goes_on_where_those_before_are_not_at_work() {
    for (max_wait, sleeps) in [(80, vec![50_000]), (0, vec![])] {
        let server = Scripted::running()
            .with(|settings| (settings.max_ahead_ms, settings.max_wait_ms) = (1000, max_wait));
        join(&server, 3, 500);
        assert_eq!(take(&server, 100), Ok(100));
        assert_eq!(slept(&server), sleeps);
    }
    let server = Scripted::running().with(|settings| settings.max_wait_ms = 400);
    join(&server, 3, 20);
    assert_eq!(take(&server, 50), Ok(50));
    assert_eq!(slept(&server)[..4], [20_000, 20_000, 20_000, 1000]);
}

/// While the earlier batches take all ids that there are, a batch waits, and is counted until it ends.
#[test]
fn a_batch_waits_for_those_at_work() {
    for (max_wait, ticks) in [(400, 200), (5000, 1100)] {
        let server = Scripted::running().with(|settings| settings.max_wait_ms = max_wait);
        drain(&server, 3, ticks);
        server.after(ticks * 1000 - 49_500, |server| assert_eq!(left(server) % (50 * IDS_PER_TICK), 5120));
        assert_eq!(take(&server, 5), Ok(5));
        assert_eq!(server.tick(), THEN + ticks + 4);
    }
}

/// A batch whose process has been stopped for a second does not cause others to be refused. A batch that waits is at
/// work.
#[test]
fn a_batch_is_not_refused_because_of_one_that_is_stopped() {
    let server = Scripted::running().with(|settings| settings.max_wait_ms = 5000);
    let count = 1200 * IDS_PER_TICK;
    for ms in [500, 1050] {
        server.after(ms * 1000, move |server| assert!((1..count).contains(&left(server)), "after {ms} ms"));
    }
    assert_eq!(take(&server, 1200), Ok(1200));
    join(&server, 3, 4000);
    server.pass_us(1_000_000);
    let ahead = 4000 * IDS_PER_TICK;
    assert_eq!(take(&server, 1200), refused(BatchesBefore { shard: shard(5), count, ahead }));
    server.pass_us(1000);
    assert_eq!(take(&server, 1200), Ok(1200));
}

/// Promise 4: for a batch that waits for earlier ones, two flushes of the mark for which those wait do not count.
#[test]
fn a_batch_does_not_count_the_flush_that_those_before_wait_for() {
    for marks in 1..=3 {
        let server = Scripted::running().with(|settings| settings.max_wait_ms = 200);
        server.pass_us(999_000);
        join(&server, 2, 10);
        assert!(server.with_mark(|mark| mark.claim(server.boot_ms() + 10_000)));
        for mark in 0..marks {
            server.after(mark * 300_000, move |server| {
                server.write(NOW + 2000 + mark);
            });
        }
        server.after(marks * 300_000, |server| {
            server.flush(server.awaited());
            let clocks = Clocks { now: server.tick(), boot_ms: server.boot_ms() };
            server.with_mark(|mark| mark.publish(NOW + 2000, false, clocks, 0));
            server.backends()[2].batch.leave();
        });
        let taken = take(&server, 3);
        if marks == 3 {
            assert!(taken.is_err(), "three flushes are a wait");
        } else {
            assert!(taken.is_ok() && server.us() - 6_000_000 > marks * 300_000, "{marks}: {taken:?}");
            assert!(!slept(&server).is_empty());
        }
    }
}

/// While the shard has no ids at all, a batch waits for its turn. This counts as waiting, even if a mark is being
/// flushed.
#[test]
fn a_batch_counts_the_time_in_which_there_is_nothing_to_take() {
    let server = Scripted::running().with(|settings| settings.max_wait_ms = 400);
    server.ids(3, 5, IDS_PER_TICK).unwrap();
    server.step_clock(-100);
    join(&server, 2, 10);
    let written = server.write(NOW + 2000);
    server.after(40_000, move |server| server.flush(written.lsn));
    let start = server.us();
    assert_eq!(take(&server, 3), Ok(3));
    assert_eq!(server.counters(shard(5))[3], server.us() - start);
    assert_eq!(
        slept(&server)[..16],
        [10_000; 16],
        "there are ids after 101 ms, and no call takes them for 50"
    );
}

/// A jump of the clock stops minting if the setting says so, and is accepted otherwise.
#[test]
fn a_jump_of_the_clock_is_refused_or_accepted() {
    let server = Scripted::running().with(|settings| settings.max_clock_jump_ms = Some(60_000));
    server.step_clock(60_001);
    let jumped = refused(ClockJumped { by_ms: 60_001 });
    assert_eq!(server.id(0, 5), jumped);
    assert_eq!(server.js_id(0, 5), jumped);
    assert_eq!(server.written(), [NOW + 1000], "nothing is written");
    server.step_clock(-1);
    assert!(server.id(0, 5).is_ok(), "as far as is allowed");
    server.step_clock(1_000_000);
    assert!(server.id(1, 5).is_err());
    let server = server.with(|settings| settings.max_clock_jump_ms = None);
    assert!(server.id(1, 5).is_ok());
}

/// No id is minted in recovery, because the mark may still move, or above a mark of another epoch.
#[test]
fn nothing_is_minted_without_a_mark_to_begin_at() {
    for error in [Recovery, OtherEpoch] {
        let epoch = if error == Recovery { SETTINGS.epoch } else { epoch_at(0) };
        let server = Scripted::new(5).with(|settings| settings.epoch = epoch);
        server.recovery.set(error == Recovery);
        assert_eq!(server.id(0, 5), refused(error));
        assert_eq!(server.ids(0, 5, 10), refused(error));
        assert_eq!(server.js_id(0, 5), refused(error));
        assert_eq!(server.ids(0, 5, 0), Ok(vec![]), "nothing is asked for");
        assert_eq!(server.advance(0, 5, 1 << 33), refused(error));
        server.recovery.set(false);
        let server = server.with(|settings| settings.epoch = SETTINGS.epoch);
        assert!(server.id(0, 5).is_ok());
    }
}

/// Minting ends with the last millisecond.
#[test]
fn the_last_ids_are_minted_and_then_no_more() {
    let server = Scripted::new(0);
    server.set_clock(MAX_TICK);
    let ids = server.ids(0, 9, IDS_PER_TICK).unwrap();
    assert_eq!(ids.last(), Some(&(min_id(MAX_TICK) | 9 << 10 | 1023)));
    assert_eq!(server.id(0, 9), refused(Exhausted));
    assert_eq!(server.advance(0, 9, i64::MAX), refused(Exhausted));
    assert_eq!(server.written(), [MAX_TICK + 1], "the mark ends there too");
}

/// A server whose mark reaches only 10 ms ahead, and takes 50 ms to become durable.
fn slow_disk(max_wait_ms: u64) -> Scripted {
    let server = Scripted::new(0)
        .with(|settings| (settings.reserve_ahead_ms, settings.max_wait_ms) = (10, max_wait_ms));
    server.flush_us.set(50_000);
    server
}

/// If a renewal takes longer than its window lasts, the call renews once more; a third renewal counts as waiting.
#[test]
fn more_than_two_renewals_are_a_wait() {
    let server = slow_disk(40);
    // The wait begins after the second renewal. The clock is set meanwhile: otherwise the second would be enough.
    server.after(60_000, |server| server.step_clock(500));
    server.after(110_000, |server| server.step_clock(1000));
    assert_eq!(server.id(0, 5), not_renewed(50));
    assert_eq!(server.written().len(), 3);
    assert_eq!(server.counters(shard(5)), [0, 0, 1, 50_000]);
    server.after(20_000, |server| server.flush_us.set(0));
    assert!(server.id(0, 5).is_ok());
    assert_eq!(server.counters(shard(5))[2], 1, "two renewals are none");
}

/// If a mark takes longer to become durable than it reaches ahead, as with a remote standby, the next one reaches
/// further, but does not include all the time during which a process was suspended.
#[test]
fn a_mark_that_is_late_is_followed_by_one_that_reaches_further() {
    for (ms, further) in [(10, 2 * 10), (50, 2 * 50), (3_600_000, 4000 - 10)] {
        let server = slow_disk(0);
        server.flush_us.set(ms * 1000);
        assert_eq!(server.id(0, 5).is_ok(), ms < 100);
        assert_eq!(server.written(), [NOW + 10, NOW + ms + 10 + further]);
    }
}

/// A batch renews the mark once, as far as the batch reaches, but no further than ids may lie ahead of the clock. A
/// batch that waits for the clock, and not for the disk, reserves no more than other calls.
#[test]
fn a_batch_renews_the_mark_as_far_as_it_goes() {
    for (ahead, reserve, ticks, first) in [(1000, 10, 100, 110), (20, 50, 50, 70), (100, 50, 1000, 150)] {
        let server = Scripted::new(0).with(|settings| {
            (settings.max_ahead_ms, settings.reserve_ahead_ms, settings.max_wait_ms) = (ahead, reserve, 2000);
        });
        server.flush_us.set(5000);
        assert_eq!(take(&server, ticks), Ok(ticks));
        let written = server.written();
        assert_eq!(written[0], NOW + first);
        assert!(written.iter().all(|mark| *mark <= server.tick() + ahead + reserve), "{written:?}");
        assert!(ahead < 1000 || written.len() == 1 && server.counters(shard(5))[1] == 1);
    }
}

/// A batch, like a single id, renews the mark at half of the window after its last id.
#[test]
fn the_mark_is_renewed_early_after_the_last_id() {
    for (count, after_ms, marks) in [(512_000, 0, 1), (512_001, 0, 2), (0, 499, 1), (0, 500, 2)] {
        let server = Scripted::new(0).with(|settings| settings.max_ahead_ms = 1000);
        server.id(3, 9).unwrap();
        server.ids(0, 5, count).unwrap();
        server.pass_us(after_ms * 1000);
        if count == 0 {
            server.js_id(0, 5).unwrap();
        }
        assert_eq!(server.written().len(), marks, "{count} ids, after {after_ms} ms");
    }
    // A second that is ahead of the clock counts, not only the clock.
    let server =
        Scripted::new(0).with(|settings| (settings.max_ahead_ms, settings.reserve_ahead_ms) = (1000, 3000));
    for _ in 0..4096 {
        server.js_id(0, 5).unwrap();
    }
    assert_eq!(server.written(), [NOW + 3000]);
    server.pass_us(600_000);
    assert_eq!(server.js_id(0, 5).map(js_tick), Ok(NOW + 1000));
    assert_eq!(server.written(), [NOW + 3000]);
    let server = server.with(|settings| settings.reserve_ahead_ms = 4000);
    server.js_id(0, 5).unwrap();
    assert_eq!(server.written(), [NOW + 3000, NOW + 5000]);
}

/// A call that does not wait pays nothing for the accounting of waits.
#[test]
fn who_does_not_wait_reads_no_other_clock() {
    let server = Scripted::running().with(|settings| settings.max_ahead_ms = 5);
    let before = server.monotonic_asked.get();
    server.js_id(0, 5).unwrap();
    server.ids(0, 5, 2 * IDS_PER_TICK).unwrap();
    assert_eq!(server.monotonic_asked.get(), before);
}

/// JavaScript-safe ids increase across all backends, fill a second, and continue in the next one.
#[test]
fn js_ids_fill_their_second() {
    let server = Scripted::running().with(|settings| settings.max_wait_ms = 2000);
    server.pass_us(100_000);
    let second = THEN / 1000 * 1000;
    let ids: Vec<i64> = (0..4097).map(|n| server.js_id(n % 3, 5).unwrap()).collect();
    let first = js_shard(5).id(Position::first_of(second / 1000));
    assert_eq!(ids[..4096], (first..first + 4096).collect::<Vec<i64>>());
    assert_eq!((js_tick(ids[4096]), server.tick()), (second + 1000, second + 1000));
    assert_eq!(server.counters(js_shard(5)), [4097, 4097, 1, 899_000]);
}

/// Promise 4: a process that was suspended after it read the clock is not refused because of that reading.
#[test]
fn a_call_is_not_refused_for_an_old_reading_of_the_clock() {
    let server = Scripted::new(0).with(|settings| (settings.max_ahead_ms, settings.max_wait_ms) = (5, 0));
    while server.id(0, 5).is_ok() {}
    assert_eq!(server.id(0, 5), full(5, 0));
    // The first visit is that of the fast path, which gives up.
    *server.before_slot.borrow_mut() = Some(Box::new(|server| {
        *server.before_slot.borrow_mut() = Some(Box::new(|server| server.pass_us(1000)));
    }));
    assert_eq!(server.id(0, 5).map(tick_of), Ok(NOW + 6));
}
