use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use idgen_core::batch;
use idgen_core::mark::{Clocks, Written};
use idgen_core::mint::{Error, QUEUE_MS};
use idgen_core::position::{LayoutShard, Position};
use idgen_core::server::{Server, Slots, Wait};
use idgen_core::slot::{Bounds, Counters, Slot};
use idgen_ids::id::{IDS_PER_TICK, MAX_TICK};
use idgen_ids::js::JsShard;
use idgen_ids::{Shard, Tick, decode, min_id};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::server::{FORBIDDEN, NOW, Refused, Scripted};
use crate::{js_shard, shard};

fn counters(server: &Scripted, of: Shard) -> Counters {
    server.slot(of).counters
}

fn refused<T>(error: Error) -> Result<T, Refused> {
    Err(Refused::Mint(error))
}

/// The first millisecond of a JavaScript-safe id's second.
fn js_tick(id: i64) -> Tick {
    (id >> 20) as Tick * 1000
}

/// A server that has renewed the mark once, and whose clock has advanced by a millisecond since.
fn running() -> Scripted {
    let server = Scripted::new(0);
    server.id(3, shard(9)).unwrap();
    server.end_transaction(3);
    server.pass_us(1000);
    server.steps();
    server
}

/// The tick that the clock of [`running`] shows.
const THEN: Tick = NOW + 1;

#[derive(Clone, Debug)]
enum Call {
    Id(usize),
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
        20 => (0..3usize).prop_map(Call::Id),
        4 => (0..3usize, 0..4000u64).prop_map(|(who, count)| Call::Batch(who, count)),
        4 => (0..3usize).prop_map(Call::Js),
        1 => (0..3usize, 0..1u64 << 24).prop_map(|(who, back)| Call::Advance(who, back)),
        6 => (0..3000u64).prop_map(Call::Pass),
        1 => (-40..40i64).prop_map(Call::StepClock),
        2 => (0..3usize).prop_map(Call::EndTransaction),
        2 => Just(Call::Horizon),
        1 => any::<bool>().prop_map(Call::Standbys),
        1 => (-40..40i64).prop_map(Call::Crash),
    ]
}

/// The errors that a call may have, however the clock and the standbys behave.
fn to_be_expected(refused: Refused) -> bool {
    use Error::*;
    let Refused::Mint(error) = refused else { return false };
    matches!(
        error,
        MarkNotRenewed { .. }
            | ClockBehind { .. }
            | ClockBehindMark { .. }
            | ShardFull { .. }
            | AdvanceTooFar { .. }
            | BatchTooLarge { .. }
            | BatchesBefore { .. }
    )
}

proptest! {
    /// Promises 1, 2, 3 and 6 for the path itself, across crashes, steps of the clock, and synchronous replication
    /// that comes and goes: no id occurs twice, those of a backend increase, none is before its call or too far
    /// after it, none lies below an earlier horizon, and the horizon never goes back. A refused call reports the
    /// clock or the mark.
    #[test]
    fn calls_keep_the_promises_whatever_the_server_meets(
        calls in vec(any_call(), 1..120), max_ahead in 0..8u64, reserve_ahead in 1..30u64, max_lease in 1..80u64,
        flush_us in 0..5000u64, acknowledge_us in prop_oneof![3 => (0..30_000u64).prop_map(Some), 1 => Just(None)],
    ) {
        let of = shard(5);
        let set = |server: &Scripted| {
            server.max_ahead.set(max_ahead);
            server.reserve_ahead.set(reserve_ahead);
            server.max_lease.set(max_lease);
            server.flush_us.set(flush_us);
            server.acknowledge_us.set(acknowledge_us);
        };
        let mut server = Scripted::new(0);
        set(&server);
        let (mut seen, mut seen_js) = (HashSet::new(), HashSet::new());
        let (mut last, mut horizon) = ([None; 3], 0);
        for call in calls {
            let began = server.tick();
            let (who, answer) = match call {
                Call::Id(who) => (who, server.id(who, of).map(|id| vec![id])),
                Call::Batch(who, count) => (who, server.ids(who, of, count)),
                Call::Js(who) => {
                    match server.js_id(who, js_shard(5)) {
                        Ok(id) => {
                            prop_assert!(seen_js.insert(id), "an id twice");
                            prop_assert!(js_tick(id) + 1000 > began);
                            prop_assert!(js_tick(id) <= server.tick() + max_ahead);
                        }
                        Err(refused) => prop_assert!(to_be_expected(refused), "{refused:?}"),
                    }
                    continue;
                }
                Call::Advance(who, back) => {
                    let past = min_id(began) - back as i64;
                    let next = server.advance(who, of, past);
                    prop_assert!(next.map_or_else(to_be_expected, |next| next > past), "{next:?}");
                    continue;
                }
                Call::Horizon => {
                    if let Ok(now) = server.horizon() {
                        prop_assert!(now >= horizon, "the horizon goes back");
                        horizon = now;
                    }
                    continue;
                }
                Call::Crash(ms) => {
                    server = server.crashed(began.saturating_add_signed(ms));
                    set(&server);
                    last = [None; 3];
                    continue;
                }
                Call::Pass(us) => {
                    server.pass_us(us);
                    continue;
                }
                Call::StepClock(ms) => {
                    server.step_clock(ms);
                    continue;
                }
                Call::EndTransaction(who) => {
                    server.end_transaction(who);
                    continue;
                }
                Call::Standbys(are_there) => {
                    server.standbys.set(are_there);
                    continue;
                }
            };
            prop_assert!(!server.claimed(), "a task that is not given up");
            prop_assert_eq!(batch::left(server.batches(), of, server.boot_ms()), 0, "a batch that does not leave");
            match answer {
                Ok(ids) => for id in ids {
                    let tick = decode(id).tick;
                    prop_assert!(seen.insert(id), "an id twice");
                    prop_assert!(began <= tick && tick <= server.tick() + max_ahead, "{began} {tick}");
                    prop_assert!(Some(id) > last[who], "a backend's ids must increase");
                    prop_assert!(id >= horizon, "an id below the horizon");
                    last[who] = Some(id);
                },
                Err(refused) => prop_assert!(to_be_expected(refused), "{refused:?}"),
            }
        }
    }
}

/// A first id and those after it come from one lease after the other, and none of them waits.
#[test]
fn ids_of_one_millisecond_come_from_leases() {
    let server = running();
    let ids: Vec<i64> = (0..127).map(|_| server.id_at_once(0, shard(5)).unwrap()).collect();
    let expected: Vec<i64> = (0..127).map(|q| min_id(THEN) | 5 << 10 | q).collect();
    assert_eq!(ids, expected);
    assert_eq!(counters(&server, shard(5)), Counters { ids: 127, leases: 7, waits: 0, waited_us: 0 });
    assert_eq!(server.session(0).last_id(), Some(ids[126]));
    // Another backend has its own state.
    assert_eq!(server.id_at_once(1, shard(5)), Some(ids[126] + 1));
}

/// A backend remembers its last id, whichever function minted it.
#[test]
fn the_last_id_is_that_of_the_last_call() {
    let server = running();
    assert_eq!(server.session(0).last_id(), None);
    let id = server.id_at_once(0, shard(5)).unwrap();
    assert_eq!(server.session(0).last_id(), Some(id));
    let batch = server.ids(0, shard(5), 10).unwrap();
    assert_eq!(server.session(0).last_id(), batch.last().copied());
    assert_eq!(server.ids(0, shard(5), 0), Ok(vec![]));
    assert_eq!(server.session(0).last_id(), batch.last().copied(), "no id, and so none to remember");
    let js = server.js_id(0, js_shard(5)).unwrap();
    assert_eq!(server.session(0).last_id(), Some(js));
    // With the mark due for renewal.
    server.pass_us(600_000);
    let id = server.id(0, shard(5)).unwrap();
    assert_eq!(server.session(0).last_id(), Some(id));
    assert_eq!(server.session(1).last_id(), None);
}

/// A dropped lease loses the rest of its run, and a call may request no more than the setting allows.
#[test]
fn a_dropped_lease_is_asked_for_anew() {
    let server = running();
    server.max_lease.set(2);
    let ids: Vec<i64> = (0..4).map(|_| server.id_at_once(0, shard(5)).unwrap()).collect();
    assert_eq!(counters(&server, shard(5)).leases, 3, "1, 2, 2");
    server.session(0).drop_lease();
    assert_eq!(server.id_at_once(0, shard(5)), Some(ids[3] + 2));
    assert_eq!(counters(&server, shard(5)).leases, 4);
}

/// The fast path mints nothing for a shard that is not allowed, with a clock before the epoch, and for a full
/// shard; the slow path reports the reason, or waits.
#[test]
fn what_is_in_the_way_is_left_to_the_other_path() {
    let server = running();
    assert_eq!(server.id_at_once(0, shard(FORBIDDEN)), None);
    assert_eq!(server.id(0, shard(FORBIDDEN)), Err(Refused::NotAllowed));
    assert_eq!(server.ids(0, shard(FORBIDDEN), 1), Err(Refused::NotAllowed));
    server.ids(0, shard(5), IDS_PER_TICK).unwrap();
    assert_eq!(server.id_at_once(0, shard(5)), None);
    assert_eq!(server.slot(shard(5)).counters.leases, 1);
    server.allowed.set(false);
    assert_eq!(server.js_id(0, js_shard(5)), Err(Refused::NotAllowed));
    assert_eq!(server.advance(0, shard(5), 0), Err(Refused::NotAllowed));
    server.allowed.set(true);
    server.step_clock(-10_000_000);
    assert_eq!(server.id_at_once(0, shard(5)), None);
    assert_eq!(server.id(0, shard(5)), Err(Refused::Clock));
}

/// If the mark is due for renewal, the fast path mints nothing, whether it is due by the clock or for a shard that
/// runs ahead of it.
#[test]
fn a_lease_is_left_to_the_other_path_where_the_mark_is_due() {
    let server = running();
    server.max_ahead.set(1000);
    server.pass_us(498_000);
    assert!(server.id_at_once(0, shard(5)).is_some(), "501 ms are left");
    server.ids(0, shard(6), IDS_PER_TICK).unwrap();
    assert_eq!(server.id_at_once(1, shard(6)), None, "that shard has 500");
    server.pass_us(1000);
    assert_eq!(server.id_at_once(1, shard(5)), None, "500 ms are left");
    assert_eq!(server.written(), [NOW + 1000]);
    server.id(1, shard(5)).unwrap();
    assert_eq!(server.written(), [NOW + 1000, NOW + 1500]);
    assert!(server.id_at_once(2, shard(5)).is_some());
}

/// Promise 4: a full shard is waited out up to the very next millisecond, and the wait is counted.
#[test]
fn a_full_shard_is_waited_out() {
    let server = running();
    server.pass_us(300);
    let batch = server.ids(0, shard(5), IDS_PER_TICK).unwrap();
    assert_eq!(batch, (0..1024).map(|q| min_id(THEN) | 5 << 10 | q).collect::<Vec<i64>>());
    assert_eq!(server.sleeps(), []);
    assert_eq!(server.id(1, shard(5)), Ok(min_id(THEN + 1) | 5 << 10));
    assert_eq!(server.sleeps(), [(700, Wait::Clock)]);
    assert_eq!(counters(&server, shard(5)), Counters { ids: 1025, leases: 2, waits: 1, waited_us: 700 });
    // A call that has waited holds a lease of the millisecond for which it waited.
    let again = server.id(1, shard(5)).unwrap();
    assert_eq!(again, min_id(THEN + 1) | 5 << 10 | 1);
    assert_eq!(counters(&server, shard(5)).ids, 1027, "twice as many as before");
}

/// The same if ids may be ahead of the clock: the wait ends as soon as they may.
#[test]
fn a_full_shard_is_waited_out_as_far_ahead_as_it_may_be() {
    let server = running();
    server.max_ahead.set(5);
    server.pass_us(300);
    server.ids(0, shard(5), 6 * IDS_PER_TICK).unwrap();
    assert_eq!(server.id(1, shard(5)), Ok(min_id(THEN + 6) | 5 << 10));
    assert_eq!(server.sleeps(), [(700, Wait::Clock)]);
}

/// A lease from the slow path is as good as any: it lives until the end of the millisecond in which it was
/// requested, even if ids may be ahead of the clock.
#[test]
fn a_lease_lives_as_long_as_its_millisecond() {
    let server = running();
    server.max_ahead.set(10);
    server.id_at_once(0, shard(5)).unwrap();
    // The mark is due now.
    server.reserve_ahead.set(5000);
    assert_eq!(server.id_at_once(0, shard(5)), None);
    server.id(0, shard(5)).unwrap();
    assert_eq!(server.slot(shard(5)).counters.leases, 2);
    server.id_at_once(0, shard(5)).unwrap();
    assert_eq!(server.slot(shard(5)).counters.leases, 2, "two ids were asked for");
}

/// A waiting call takes no more in advance than it can wait for, and no more than the length of the queue. A
/// cancel, which loses it, shows how much others would have to do without.
#[test]
fn the_queue_is_as_long_as_the_wait_that_is_left() {
    let burnt = |max_wait, ahead: u64, cancel_us| {
        let server = running();
        server.ids(3, shard(5), IDS_PER_TICK).unwrap();
        server.step_clock(1 - ahead as i64);
        server.max_wait.set(max_wait);
        server.after(cancel_us, |server| server.cancelled.set(true));
        let call = catch_unwind(AssertUnwindSafe(|| server.id(0, shard(5))));
        assert!(call.is_err());
        counters(&server, shard(5)).ids - IDS_PER_TICK
    };
    assert_eq!((burnt(10, 10, 1), burnt(10, 11, 1)), (1, 0));
    assert_eq!((burnt(1000, QUEUE_MS, 1), burnt(1000, QUEUE_MS + 1, 1)), (1, 0));
    // After 50 ms of waiting 50 are left: the shard is 50 or 51 ms ahead then.
    assert_eq!((burnt(100, 100, 50_001), burnt(100, 101, 50_001)), (1, 0));
}

/// A batch takes the rest of a millisecond and waits for the next ones, and counts as one wait.
#[test]
fn a_batch_waits_for_each_of_its_milliseconds() {
    let server = running();
    let ids = server.ids(0, shard(5), 3 * IDS_PER_TICK).unwrap();
    assert_eq!(ids.len(), 3072);
    assert_eq!((decode(ids[0]).tick, decode(ids[3071]).tick), (THEN, THEN + 2));
    assert!(ids.is_sorted());
    assert_eq!(server.sleeps(), [(1000, Wait::Clock), (1000, Wait::Clock)]);
    assert_eq!(counters(&server, shard(5)), Counters { ids: 3072, leases: 3, waits: 1, waited_us: 2000 });
}

/// Calls that wait for a full shard take its next milliseconds in advance, each its own, and therefore wake once.
#[test]
fn those_who_wait_queue_for_milliseconds_of_their_own() {
    let server = running();
    server.ids(0, shard(5), IDS_PER_TICK).unwrap();
    // While one call waits for the next millisecond, another takes the rest of it, and a third the one after.
    server.after(100, |server| {
        let ids = server.ids(1, shard(5), 1023).unwrap();
        assert_eq!((decode(ids[0]).tick, decode(ids[1022]).tick), (THEN + 1, THEN + 1));
    });
    server.after(200, |server| {
        assert_eq!(decode(server.id(2, shard(5)).unwrap()).tick, THEN + 2);
    });
    let id = server.id(0, shard(5)).unwrap();
    assert_eq!(decode(id).tick, THEN + 1);
    assert_eq!(server.sleeps(), [(1000, Wait::Clock), (900, Wait::Clock), (1800, Wait::Clock)]);
}

/// A waiting call reads the clock now and then, because it may have been corrected.
#[test]
fn a_wait_ends_where_the_clock_is_set_right() {
    let server = running();
    server.id(0, shard(5)).unwrap();
    server.step_clock(-3000);
    server.max_wait.set(1000);
    server.after(120_000, |server| server.step_clock(3000));
    let id = server.id(0, shard(5)).unwrap();
    assert_eq!(decode(id).tick, THEN + 150, "looked at after 50, 100, and 150 ms");
    assert_eq!(server.sleeps(), [(50_000, Wait::Clock); 3]);
    assert_eq!(counters(&server, shard(5)).waited_us, 150_000);
}

/// Promise 4: a call waits for `idgen.max_wait`, no longer and no less, and then tells that the shard is full.
#[test]
fn a_full_shard_is_named_after_the_wait() {
    let server = running();
    server.ids(0, shard(5), IDS_PER_TICK).unwrap();
    // As calls that queue for it take it.
    server.step_clock(-(QUEUE_MS as i64));
    server.max_wait.set(7);
    let start = server.us();
    let full = |waited_ms| Error::ShardFull { shard: shard(5), max_ahead_ms: 0, waited_ms };
    assert_eq!(server.id(0, shard(5)), refused(full(7)));
    assert_eq!(server.us() - start, 7000);
    assert_eq!(server.sleeps(), [(7000, Wait::Clock)]);
    assert_eq!(counters(&server, shard(5)), Counters { ids: 1024, leases: 1, waits: 1, waited_us: 7000 });
    server.max_wait.set(0);
    assert_eq!(server.id(0, shard(5)), refused(full(0)));
    assert_eq!(counters(&server, shard(5)).waits, 2);
}

/// Calls take a full shard as far as the queue goes. A shard that is further ahead is due to the clock, and the
/// call says so.
#[test]
fn a_clock_set_back_and_a_full_shard_are_told_apart() {
    let server = running();
    server.max_wait.set(0);
    server.max_ahead.set(5);
    server.ids(0, shard(5), 6 * IDS_PER_TICK).unwrap();
    let next = THEN + 6;
    server.set_clock(next - 5 - QUEUE_MS - 1);
    assert_eq!(
        server.id(0, shard(5)),
        refused(Error::ShardFull { shard: shard(5), max_ahead_ms: 5, waited_ms: 0 })
    );
    server.step_clock(-1);
    let behind = |by_ms, waited_ms| Error::ClockBehind { shard: shard(5), by_ms, max_ahead_ms: 5, waited_ms };
    assert_eq!(server.id(0, shard(5)), refused(behind(5 + QUEUE_MS + 2, 0)));
    server.max_wait.set(20);
    server.step_clock(-100);
    assert_eq!(server.id(0, shard(5)), refused(behind(5 + QUEUE_MS + 102 - 20, 20)));
    // In seconds a shard may be further ahead.
    let js_behind = |by_ms| Error::ClockBehind { shard: shard(5), by_ms, max_ahead_ms: 5, waited_ms: 0 };
    let server = running();
    server.max_wait.set(0);
    server.max_ahead.set(5);
    for _ in 0..4096 {
        server.js_id(0, js_shard(5)).unwrap();
    }
    let next = THEN / 1000 * 1000 + 1000;
    server.set_clock(next - 5 - QUEUE_MS - 1000);
    let full = Error::ShardFull { shard: shard(5), max_ahead_ms: 5, waited_ms: 0 };
    assert_eq!(server.js_id(0, js_shard(5)), refused(full));
    server.step_clock(-1);
    assert_eq!(server.js_id(0, js_shard(5)), refused(js_behind(5 + QUEUE_MS + 1001)));
}

/// Ids begin at the mark of earlier runs: a call waits for the clock to reach it, and reports what it waited for.
#[test]
fn a_run_begins_at_the_mark_of_the_one_before() {
    let server = Scripted::new(NOW + 60);
    assert_eq!(server.id(0, shard(5)), Ok(min_id(NOW + 60) | 5 << 10));
    assert_eq!(server.tick(), NOW + 60);
    assert_eq!(counters(&server, shard(5)).waited_us, 60_000);

    let server = Scripted::new(NOW + 60);
    server.max_ahead.set(60);
    assert_eq!(server.id(0, shard(5)), Ok(min_id(NOW + 60) | 5 << 10));
    assert_eq!(server.tick(), NOW, "as far ahead as it may be");
    assert_eq!(counters(&server, shard(5)).waits, 0);

    let server = Scripted::new(NOW + 5000);
    server.max_ahead.set(10);
    let behind = |by_ms| Error::ClockBehindMark { by_ms, max_ahead_ms: 10, waited_ms: 80 };
    assert_eq!(server.id(0, shard(5)), refused(behind(4920)));
    assert_eq!(server.ids(0, shard(5), 1_000_000), refused(behind(4840)), "a batch is told the same");
    // No second is issued that begins before the mark.
    assert_eq!(server.js_id(0, js_shard(5)), refused(behind(4760)));
    let server = Scripted::new(NOW + 4001);
    server.max_ahead.set(10);
    assert_eq!(server.js_id(0, js_shard(5)), refused(behind(4920)));
}

/// If the clock is behind both, a shard with ids of this run waits for those: after a restart every other shard
/// would have to wait as long.
#[test]
fn a_shard_of_this_run_is_said_to_wait_for_its_own_ids() {
    let server = Scripted::new(NOW);
    server.max_wait.set(0);
    server.id(0, shard(5)).unwrap();
    server.step_clock(60_000);
    server.id(0, shard(5)).unwrap();
    server.set_clock(NOW - 8000);
    let max_ahead_ms = server.max_ahead.get();
    let id = server.id(0, shard(5));
    let Err(error) = &id else { panic!("{id:?}") };
    let own = |by_ms| Error::ClockBehind { shard: shard(5), by_ms, max_ahead_ms, waited_ms: 0 };
    assert!((68_000..68_010).any(|by_ms| id == refused(own(by_ms))), "{error:?}");
    let mark = Error::ClockBehindMark { by_ms: 8000, max_ahead_ms, waited_ms: 0 };
    assert_eq!(server.id(0, shard(6)), refused(mark));
}

/// If the mark is only as far ahead as ids may be, the clock is not behind it.
#[test]
fn a_full_shard_at_the_mark_is_full() {
    let server = Scripted::new(NOW + 10);
    server.max_ahead.set(10);
    server.max_wait.set(0);
    server.ids(0, shard(5), IDS_PER_TICK).unwrap();
    assert_eq!(
        server.id(0, shard(5)),
        refused(Error::ShardFull { shard: shard(5), max_ahead_ms: 10, waited_ms: 0 })
    );
}

/// Promise 4: a batch that cannot be had in the time that a call may wait, an eighth less, is refused before anything
/// is taken.
#[test]
fn a_batch_that_cannot_be_had_takes_nothing() {
    let server = running();
    let most = 71 * IDS_PER_TICK;
    let too_large = Error::BatchTooLarge { count: most + 1, most };
    assert_eq!(server.ids(0, shard(5), most + 1), refused(too_large));
    assert_eq!(server.slot(shard(5)).counters, Counters::default());
    assert_eq!(server.ids(0, shard(5), most).map(|ids| ids.len()), Ok(most as usize));
    assert_eq!(server.tick(), THEN + 70);
    // The same before the first renewal of a run, which begins at the mark of the one before.
    let server = Scripted::new(NOW + 60);
    let too_large = Error::BatchTooLarge { count: 12 * IDS_PER_TICK, most: 11 * IDS_PER_TICK };
    assert_eq!(server.ids(0, shard(5), 12 * IDS_PER_TICK), refused(too_large));
    // There is room only in the last eighth of the wait: a single id is not a large batch.
    let server = Scripted::new(NOW + 75);
    let too_large = Error::BatchTooLarge { count: 7 * IDS_PER_TICK, most: 6 * IDS_PER_TICK };
    assert_eq!(server.ids(0, shard(5), 7 * IDS_PER_TICK), refused(too_large));
    assert_eq!(server.ids(0, shard(5), 1).map(|ids| ids.len()), Ok(1));
}

/// A batch of another backend that is on its way, with so many ids still to take.
fn join(server: &Scripted, backend: usize, count: u64) {
    server.batches()[backend].join(server.batches(), shard(5), count, server.boot_ms());
}

/// Promise 4: a batch that could not be had in time behind those before is refused at once. One of a single millisecond
/// does not queue, nor does one of another shard.
#[test]
fn a_batch_behind_others_that_cannot_be_had_takes_nothing() {
    let server = running();
    join(&server, 2, 30 * IDS_PER_TICK);
    join(&server, 3, 20 * IDS_PER_TICK);
    let count = 21 * IDS_PER_TICK + 1;
    let behind = Error::BatchesBefore { shard: shard(5), count, ahead: 50 * IDS_PER_TICK };
    assert_eq!(server.ids(0, shard(5), count), refused(behind));
    let (count, most) = (71 * IDS_PER_TICK + 1, 71 * IDS_PER_TICK);
    assert_eq!(server.ids(0, shard(5), count), refused(Error::BatchTooLarge { count, most }));
    assert_eq!(server.slot(shard(5)).counters, Counters::default());
    assert_eq!(
        batch::left(server.batches(), shard(5), server.boot_ms()),
        50 * IDS_PER_TICK,
        "it has not joined"
    );
    join(&server, 2, 1000 * IDS_PER_TICK);
    let count = IDS_PER_TICK + 1;
    let behind = Error::BatchesBefore { shard: shard(5), count, ahead: 1020 * IDS_PER_TICK };
    assert_eq!(server.ids(0, shard(5), count), refused(behind));
    assert_eq!(server.ids(0, shard(5), IDS_PER_TICK).map(|ids| ids.len()), Ok(1024));
    assert_eq!(server.ids(0, shard(6), 5 * IDS_PER_TICK).map(|ids| ids.len()), Ok(5120));
}

/// A batch lets those before pass, and takes nothing before they are about to end.
#[test]
fn batches_take_their_ids_in_the_order_in_which_they_asked() {
    let server = running();
    server.ids(3, shard(5), IDS_PER_TICK).unwrap();
    join(&server, 2, 10 * IDS_PER_TICK);
    // As the batch before would do it, a millisecond at a time.
    for ms in 0..10 {
        server.after(ms * 1000, move |server| {
            let bounds =
                Bounds { now: server.tick(), floor: 0, max_ahead: 0, queue: QUEUE_MS, limit: server.limit() };
            server.with_slot(shard(5), |slot: &mut Slot<Shard>| slot.take(IDS_PER_TICK, &bounds)).unwrap();
            server.batches()[2].took(IDS_PER_TICK);
            assert_eq!(counters(server, shard(5)).ids, (ms + 2) * IDS_PER_TICK, "nobody else takes any");
        });
    }
    server.max_wait.set(400);
    let ids = server.ids(0, shard(5), 3 * IDS_PER_TICK).unwrap();
    assert_eq!(server.sleeps()[0], (10_000, Wait::Clock), "until nothing is left");
    assert!(ids.is_sorted());
    assert_eq!(counters(&server, shard(5)).ids, 14 * IDS_PER_TICK);
}

/// A batch joins the queue at once, and leaves it however it ends.
#[test]
fn a_batch_leaves_the_queue_however_it_ends() {
    let left = |server: &Scripted| batch::left(server.batches(), shard(5), server.boot_ms());
    let server = running();
    // One of 40 milliseconds is taken, and 16 in advance.
    server.after(1, move |server| assert_eq!(left(server), 23 * IDS_PER_TICK));
    server.ids(0, shard(5), 40 * IDS_PER_TICK).unwrap();
    assert_eq!(left(&server), 0);
    server.after(1500, |server| server.cancelled.set(true));
    assert!(catch_unwind(AssertUnwindSafe(|| server.ids(0, shard(5), 9 * IDS_PER_TICK))).is_err());
    assert_eq!(left(&server), 0);
    server.after(10, |server| server.step_clock(-1_000));
    assert!(server.ids(0, shard(5), 9 * IDS_PER_TICK).is_err());
    assert_eq!(left(&server), 0);
}

/// A backend that was stopped, or one that is not allowed to wait, keeps no batch behind it from ids that lie there.
#[test]
fn a_batch_goes_on_where_those_before_are_not_at_work() {
    let server = running();
    server.max_ahead.set(1000);
    join(&server, 3, 500 * IDS_PER_TICK);
    assert_eq!(server.ids(0, shard(5), 100 * IDS_PER_TICK).map(|ids| ids.len()), Ok(102_400));
    assert_eq!(server.sleeps(), [(50_000, Wait::Clock)], "looked at twice");
    let server = running();
    server.max_ahead.set(1000);
    server.max_wait.set(0);
    join(&server, 3, 500 * IDS_PER_TICK);
    assert_eq!(server.ids(0, shard(5), 100 * IDS_PER_TICK).map(|ids| ids.len()), Ok(102_400));
    assert_eq!(server.sleeps(), []);
}

/// The same where ids may not run ahead, so that none gather while nobody takes them.
#[test]
fn a_batch_goes_on_without_ids_that_gather() {
    let server = running();
    server.max_wait.set(400);
    join(&server, 3, 20 * IDS_PER_TICK);
    assert_eq!(server.ids(0, shard(5), 50 * IDS_PER_TICK).map(|ids| ids.len()), Ok(51_200));
    assert_eq!(server.sleeps()[..4], [20_000, 20_000, 20_000, 1000].map(|us| (us, Wait::Clock)));
    // Not while others take what there is.
    let server = running();
    server.max_wait.set(400);
    join(&server, 3, 200 * IDS_PER_TICK);
    for ms in 1..=200 {
        server.after(ms * 1000, |server| server.batches()[3].took(IDS_PER_TICK));
    }
    server.ids(0, shard(5), 5 * IDS_PER_TICK).unwrap();
    assert_eq!(server.tick(), THEN + 204);
    // It counts as long as it waits.
    let server = running();
    server.max_wait.set(5000);
    join(&server, 3, 1100 * IDS_PER_TICK);
    for ms in 1..=1100 {
        server.after(ms * 1000, |server| server.batches()[3].took(IDS_PER_TICK));
    }
    server.after(1_050_500, |server| {
        assert_eq!(batch::left(server.batches(), shard(5), server.boot_ms()), 5 * IDS_PER_TICK);
    });
    server.ids(0, shard(5), 5 * IDS_PER_TICK).unwrap();
}

/// A batch of a process that was stopped for a second is no reason to refuse others. One that waits is at work.
#[test]
fn a_batch_is_not_refused_because_of_one_that_is_stopped() {
    let server = running();
    server.max_wait.set(5000);
    let count = 1200 * IDS_PER_TICK;
    for ms in [500, 1050] {
        server.after(ms * 1000, move |server| {
            let ahead = batch::left(server.batches(), shard(5), server.boot_ms());
            assert!(ahead > 0 && ahead < count, "{ms}: {ahead}");
        });
    }
    server.ids(0, shard(5), count).unwrap();
    join(&server, 3, 4000 * IDS_PER_TICK);
    server.pass_us(1_000_000);
    let ahead = 4000 * IDS_PER_TICK;
    assert_eq!(
        server.ids(0, shard(5), count),
        refused(Error::BatchesBefore { shard: shard(5), count, ahead })
    );
    server.pass_us(1000);
    assert_eq!(server.ids(0, shard(5), count).map(|ids| ids.len()), Ok(count as usize));
}

/// Promise 4: a batch that waits for those before it does not count two flushes of the mark that those wait for.
#[test]
fn a_batch_does_not_count_the_flush_that_those_before_wait_for() {
    let wait = |marks: u64| {
        let server = running();
        server.max_wait.set(200);
        server.pass_us(999_000);
        join(&server, 2, 10 * IDS_PER_TICK);
        assert!(server.with_mark(|mark| mark.claim(server.boot_ms() + 10_000)));
        for mark in 0..marks {
            server.after(mark * 300_000, move |server| {
                let tick = NOW + 2000 + mark;
                let written = Written { tick, lsn: server.write_mark(tick), at_us: server.us() };
                server.with_mark(|mark| mark.wrote(written, false, server.boot_ms()));
            });
        }
        server.after(marks * 300_000, |server| {
            server.flush(server.awaited());
            let clocks = Clocks { now: server.tick(), boot_ms: server.boot_ms() };
            server.with_mark(|mark| mark.publish(NOW + 2000, false, clocks, 0));
            server.batches()[2].leave();
        });
        let ids = server.ids(0, shard(5), 3 * IDS_PER_TICK);
        assert!(marks == 3 || server.sleeps().iter().all(|(_, wait)| *wait == Wait::Clock), "it goes on");
        ids.map(|_| server.us() - 6_000_000)
    };
    assert!(wait(1).is_ok_and(|us| us > 300_000), "{:?}", wait(1));
    assert!(wait(2).is_ok_and(|us| us > 600_000), "{:?}", wait(2));
    assert!(wait(3).is_err(), "{:?}", wait(3));
}

/// A batch for which there is nothing within the whole wait has no place in the queue, and one that loses what it has
/// taken takes it once more.
#[test]
fn the_queue_counts_what_a_batch_is_still_to_take() {
    let left = |server: &Scripted| batch::left(server.batches(), shard(5), server.boot_ms());
    let server = Scripted::new(NOW + 5000);
    server.after(10_000, move |server| assert_eq!(left(server), 0));
    assert!(server.ids(0, shard(5), 1_000_000).is_err());
    assert!(server.us() > 5_010_000);

    let server = running();
    server.max_wait.set(400);
    // The limit is void until the standbys have a mark.
    server.after(100, |server| server.standbys.set(true));
    server.acknowledge_us.set(Some(30_000));
    server.after(500, move |server| assert_eq!(left(server), 23 * IDS_PER_TICK));
    server.after(20_000, move |server| assert_eq!(left(server), 39 * IDS_PER_TICK));
    assert_eq!(server.ids(0, shard(5), 40 * IDS_PER_TICK).map(|ids| ids.len()), Ok(40_960));
}

/// A jump of the clock stops minting if the setting says so, and is accepted otherwise.
#[test]
fn a_leap_of_the_clock_is_refused_or_accepted() {
    let server = running();
    server.max_jump.set(Some(60_000));
    server.step_clock(60_001);
    let leapt = refused(Error::ClockLeapt { by_ms: 60_001 });
    assert_eq!(server.id(0, shard(5)), leapt);
    assert_eq!(server.js_id(0, js_shard(5)).map(drop), leapt.map(drop));
    assert_eq!(server.written(), [NOW + 1000], "nothing is written");
    server.step_clock(-1);
    assert!(server.id(0, shard(5)).is_ok(), "as far as is allowed");
    server.step_clock(1_000_000);
    assert!(server.id(1, shard(5)).is_err());
    server.max_jump.set(None);
    assert!(server.id(1, shard(5)).is_ok());
}

/// In recovery nothing is minted: the mark may still move.
#[test]
fn nothing_is_minted_in_recovery() {
    let server = Scripted::new(0);
    server.recovery.set(true);
    assert_eq!(server.id(0, shard(5)), refused(Error::Recovery));
    assert_eq!(server.ids(0, shard(5), 10).map(drop), refused(Error::Recovery));
    assert_eq!(server.js_id(0, js_shard(5)), refused(Error::Recovery));
    assert_eq!(server.ids(0, shard(5), 0), Ok(vec![]), "nothing is asked for");
    assert_eq!(server.advance(0, shard(5), 1 << 33), refused(Error::Recovery));
    server.recovery.set(false);
    assert!(server.id(0, shard(5)).is_ok());
}

/// Ids end with the last millisecond.
#[test]
fn the_last_ids_are_minted_and_then_no_more() {
    let server = Scripted::new(0);
    server.set_clock(MAX_TICK);
    let ids = server.ids(0, shard(8191), IDS_PER_TICK).unwrap();
    assert_eq!(ids.last(), Some(&i64::MAX));
    assert_eq!(server.id(0, shard(8191)), refused(Error::Exhausted));
    assert_eq!(server.advance(0, shard(8191), i64::MAX), refused(Error::Exhausted));
    assert_eq!(server.written(), [MAX_TICK + 1], "the mark ends there too");
}

/// A renewal that takes longer than its window lasts is tried once more as a part of the call, and then as a wait.
#[test]
fn more_than_two_renewals_are_a_wait() {
    let server = Scripted::new(0);
    server.reserve_ahead.set(10);
    server.flush_us.set(50_000);
    server.max_wait.set(40);
    // The wait begins after the second, and the clock is set meanwhile: else the second would be enough.
    server.after(60_000, |server| server.step_clock(500));
    server.after(110_000, |server| server.step_clock(1000));
    assert_eq!(server.id(0, shard(5)), refused(Error::MarkNotRenewed { waited_ms: 50 }));
    assert_eq!(server.written().len(), 3);
    assert_eq!(counters(&server, shard(5)), Counters { waits: 1, waited_us: 50_000, ..Counters::default() });
    server.after(20_000, |server| server.flush_us.set(0));
    assert!(server.id(0, shard(5)).is_ok());
    assert_eq!(counters(&server, shard(5)).waits, 1, "two renewals are none");
}

/// A mark that takes longer to become durable than it reaches ahead, as with a standby far away, is followed by one that
/// reaches further.
#[test]
fn a_mark_that_is_late_is_followed_by_one_that_reaches_further() {
    let server = Scripted::new(0);
    server.reserve_ahead.set(10);
    server.flush_us.set(50_000);
    server.max_wait.set(0);
    assert!(server.id(0, shard(5)).is_ok());
    assert_eq!(server.written(), [NOW + 10, NOW + 50 + 10 + 2 * 50]);
    // Not by all the time that a process was suspended.
    let server = Scripted::new(0);
    server.reserve_ahead.set(10);
    server.flush_us.set(3_600_000_000);
    server.max_wait.set(0);
    assert!(server.id(0, shard(5)).is_err());
    assert_eq!(server.written(), [NOW + 10, NOW + 3_600_000 + 4000]);
}

/// A batch that waits for the clock, and not for the disk, reserves no more than others do.
#[test]
fn a_wait_for_the_clock_does_not_make_a_mark_reach_further() {
    let server = Scripted::new(0);
    server.max_ahead.set(100);
    server.max_wait.set(2000);
    server.reserve_ahead.set(50);
    server.ids(0, shard(5), 1000 * IDS_PER_TICK).unwrap();
    let last = *server.written().last().unwrap();
    assert!(last <= idgen_core::server::Server::now(&server).unwrap() + 100 + 50, "{last}");
}

/// A batch renews the mark once, as far as it goes.
#[test]
fn a_batch_renews_the_mark_once() {
    let server = Scripted::new(0);
    server.max_ahead.set(1000);
    server.reserve_ahead.set(10);
    assert_eq!(server.ids(0, shard(5), 100 * IDS_PER_TICK).map(|ids| ids.len()), Ok(102_400));
    assert_eq!(server.written(), [NOW + 110]);
    assert_eq!(counters(&server, shard(5)).leases, 1);
    // Not further than ids may lie ahead of the clock, though.
    let server = Scripted::new(0);
    server.max_ahead.set(20);
    server.reserve_ahead.set(50);
    server.ids(0, shard(5), 50 * IDS_PER_TICK).unwrap();
    assert_eq!(server.written()[0], NOW + 20 + 50);
}

/// A batch, as a single id, renews the mark at half of the window after its last id.
#[test]
fn the_mark_is_renewed_early_after_the_last_id() {
    for (count, renewed) in [(1024 * 500, false), (1024 * 500 + 1, true)] {
        let server = Scripted::new(0);
        server.max_ahead.set(1000);
        server.id(3, shard(9)).unwrap();
        server.ids(0, shard(5), count).unwrap();
        assert_eq!(server.written().len(), if renewed { 2 } else { 1 }, "{count}");
    }
    for (after_ms, renewed) in [(499, false), (500, true)] {
        let server = Scripted::new(0);
        server.id(3, shard(9)).unwrap();
        server.pass_us(after_ms * 1000);
        server.js_id(0, js_shard(5)).unwrap();
        assert_eq!(server.written().len(), if renewed { 2 } else { 1 }, "{after_ms}");
    }
    // A second that is ahead of the clock counts, not only the clock.
    let server = Scripted::new(0);
    server.max_ahead.set(1000);
    server.reserve_ahead.set(3000);
    for _ in 0..4096 {
        server.js_id(0, js_shard(5)).unwrap();
    }
    assert_eq!(server.written(), [NOW + 3000]);
    server.pass_us(600_000);
    assert_eq!(js_tick(server.js_id(0, js_shard(5)).unwrap()), NOW + 1000);
    assert_eq!(server.written(), [NOW + 3000]);
    server.reserve_ahead.set(4000);
    server.js_id(0, js_shard(5)).unwrap();
    assert_eq!(server.written(), [NOW + 3000, NOW + 5000]);
}

/// A canceled wait is counted, and what it had taken in advance is skipped.
#[test]
fn a_cancelled_wait_is_counted() {
    let server = running();
    server.ids(0, shard(5), IDS_PER_TICK).unwrap();
    server.after(400, |server| server.cancelled.set(true));
    let call = catch_unwind(AssertUnwindSafe(|| server.id(1, shard(5))));
    assert!(call.is_err());
    assert_eq!(counters(&server, shard(5)), Counters { ids: 1025, leases: 2, waits: 1, waited_us: 1000 });
    assert_eq!(server.id(1, shard(5)), Ok(min_id(THEN + 1) | 5 << 10 | 1));
}

/// The accounting of waits costs nothing if a call does not wait.
#[test]
fn who_does_not_wait_reads_no_other_clock() {
    let server = running();
    let before = server.monotonic_asked.get();
    server.js_id(0, js_shard(5)).unwrap();
    server.ids(0, shard(5), 10).unwrap();
    assert_eq!(server.monotonic_asked.get(), before);
}

/// JavaScript-safe ids increase across all backends, fill a second, and continue in the next one.
#[test]
fn js_ids_fill_their_second() {
    let server = running();
    server.max_wait.set(2000);
    server.pass_us(100_000);
    let second = THEN / 1000 * 1000;
    let ids: Vec<i64> = (0..4097).map(|n| server.js_id(n % 3, js_shard(5)).unwrap()).collect();
    let first = js_shard(5).id(Position::first_of(second / 1000));
    assert_eq!(ids[..4096], (first..first + 4096).collect::<Vec<i64>>());
    assert_eq!(js_tick(ids[4096]), second + 1000);
    assert_eq!(server.tick(), second + 1000);
    let counters = Slots::<JsShard>::slot(&server, js_shard(5)).counters;
    assert_eq!(counters, Counters { ids: 4097, leases: 4097, waits: 1, waited_us: 899_000 });
}

/// `snowflake_advance` makes the next id of every backend greater, at once and over a crash.
#[test]
fn a_shard_is_advanced_past_an_id() {
    let server = running();
    server.max_ahead.set(50);
    server.max_lease.set(4);
    let lease: Vec<i64> = (0..2).map(|_| server.id(1, shard(5)).unwrap()).collect();
    let past = min_id(THEN + 20) | 7 << 10 | 3;
    let next = server.advance(0, shard(5), past).unwrap();
    assert_eq!(next, min_id(THEN + 21) | 5 << 10);
    assert_eq!(server.tick(), THEN + 1, "leases of the old millisecond have ended");
    assert_eq!(server.id(1, shard(5)), Ok(next), "a lease that held {lease:?}");
    assert_eq!(server.written(), [NOW + 1000], "the mark lies above it already");
    let crashed = server.crashed(THEN);
    crashed.max_wait.set(2000);
    assert!(crashed.id(0, shard(5)).unwrap() > past);

    // Advancing to less than the current position changes nothing, and returns the next id.
    assert_eq!(server.advance(0, shard(5), lease[0]), Ok(next + 1));
    assert_eq!(server.advance(0, shard(5), -1), Ok(next + 1));
    assert_eq!(server.slot(shard(5)).counters.ids, 4);
}

/// An advance keeps its own backend's lease from being used up.
#[test]
fn an_advance_drops_the_lease() {
    let server = running();
    server.max_ahead.set(50);
    for _ in 0..2 {
        server.id(0, shard(5)).unwrap();
    }
    let next = server.advance(0, shard(5), min_id(THEN)).unwrap();
    server.step_clock(-1);
    assert!(server.id(0, shard(5)).unwrap() >= next);
}

/// If the mark is not above the id yet, it is written before the shard is advanced.
#[test]
fn an_advance_is_durable() {
    let server = running();
    server.max_ahead.set(5000);
    let past = min_id(NOW + 1000) - 1;
    server.advance(0, shard(5), past).unwrap();
    assert_eq!(server.written(), [NOW + 1000, NOW + 2000], "the limit is no tick to issue");
    let past = min_id(NOW + 4000);
    let next = server.advance(0, shard(5), past).unwrap();
    assert!(server.durable() > decode(next).tick);
    // At the mark of earlier runs nothing has to be written.
    let server = Scripted::new(NOW + 1000);
    server.max_ahead.set(5000);
    server.id(3, shard(9)).unwrap();
    let before = server.written();
    server.advance(0, shard(5), min_id(NOW + 999)).unwrap();
    assert_eq!(server.written(), before);
}

/// At the very start of a run, an advance below the stored mark needs no renewal; one beyond it does.
#[test]
fn an_advance_below_the_stored_mark_writes_nothing() {
    let server = Scripted::new(NOW);
    assert_eq!(server.advance(0, shard(5), min_id(NOW - 1)), Ok(min_id(NOW - 1) | 5 << 10));
    assert_eq!(server.written(), []);
    assert_eq!(
        server.id(0, shard(5)).map(|id| decode(id).tick),
        Ok(server.tick()),
        "the mark rules all the same"
    );
    let server = Scripted::new(NOW);
    server.advance(0, shard(5), min_id(NOW)).unwrap();
    assert_eq!(server.written(), [NOW + 1000]);
}

/// A shard cannot be advanced past an id that is further in the future than ids may be.
#[test]
fn an_advance_too_far_is_refused() {
    let server = running();
    server.max_ahead.set(50);
    let past = |tick| min_id(tick) | 5 << 10;
    assert_eq!(server.advance(0, shard(5), past(THEN + 50)), Ok(past(THEN + 50) + 1));
    server.set_clock(THEN);
    let too_far = Error::AdvanceTooFar { by_ms: 51, max_ahead_ms: 50 };
    assert_eq!(server.advance(0, shard(5), past(THEN + 51)), refused(too_far));
}

/// Promise 4: if the clock stands still, an advance waits for as long as a call may, and no longer. What it has done
/// stays.
#[test]
fn an_advance_does_not_wait_without_end() {
    let server = running();
    server.max_ahead.set(50);
    server.stands.set(true);
    let past = min_id(THEN + 20);
    assert_eq!(server.advance(0, shard(5), past), refused(Error::ClockStands { waited_ms: 80 }));
    server.after(50_000, |server| server.stands.set(false));
    assert_eq!(server.advance(0, shard(5), past), Ok(past | 5 << 10));
    // The rest of a millisecond is no wait.
    server.max_wait.set(0);
    assert!(server.advance(0, shard(5), past).is_ok());
}

/// Promise 4: a process that was suspended after it had read the clock is not refused because of that reading.
#[test]
fn a_call_is_not_refused_for_an_old_reading_of_the_clock() {
    let server = Scripted::new(0);
    server.max_wait.set(0);
    while server.id(0, shard(5)).is_ok() {}
    assert!(matches!(server.id(0, shard(5)), Err(Refused::Mint(Error::ShardFull { .. }))));
    // The first visit is that of the fast path, which gives up.
    *server.before_slot.borrow_mut() = Some(Box::new(|server| {
        *server.before_slot.borrow_mut() = Some(Box::new(|server| server.pass_us(1000)));
    }));
    assert_eq!(server.id(0, shard(5)).map(|id| decode(id).tick), Ok(NOW + 1));
}
