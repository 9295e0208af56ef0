use std::panic::{AssertUnwindSafe, catch_unwind};

use idgen_core::mark::{CLAIM_MS, Clocks, Written};
use idgen_core::mint::{Error, Patience, QUEUE_MS};
use idgen_core::renew::{clocks, load, renew_early, reserve, share_settled};
use idgen_core::server::{Point, Server, Slots, Wait};
use idgen_core::slot::Counters;
use idgen_ids::id::{IDS_PER_TICK, MAX_TICK};
use idgen_ids::{decode, min_id};

use crate::server::{NOW, Refused, Scripted, Step};
use crate::shard;

fn not_renewed<T>(waited_ms: u64) -> Result<T, Refused> {
    Err(Refused::Mint(Error::MarkNotRenewed { waited_ms }))
}

/// A server with synchronous standbys.
fn with_standbys(stored: u64, acknowledge_us: Option<u64>) -> Scripted {
    let server = Scripted::new(stored);
    server.standbys.set(true);
    server.acknowledge_us.set(acknowledge_us);
    server
}

/// Promise 1: written, on disk, acknowledged, published, in this order, and then the others are woken.
#[test]
fn the_steps_of_a_renewal_are_in_order() {
    let server = Scripted::new(0);
    server.id(0, shard(5)).unwrap();
    let until_flushed = [
        Step::At(Point::BeforeWal),
        Step::Write(NOW + 1000),
        Step::At(Point::AfterInsert),
        Step::Flush,
        Step::At(Point::AfterFlush),
    ];
    let published = [Step::At(Point::BeforePublish), Step::Publish(NOW + 1000), Step::Wake];
    assert_eq!(server.steps(), [&until_flushed[..], &published].concat());

    let server = with_standbys(0, Some(1400));
    server.id(0, shard(5)).unwrap();
    let acknowledged = [Step::At(Point::BeforeAcknowledge); 2];
    assert_eq!(server.steps(), [&until_flushed[..], &acknowledged, &published].concat());
    assert_eq!(server.sleeps(), [(500, Wait::Standby), (1000, Wait::Standby)]);
}

/// Guard: a process that is suspended between its readings of the two clocks sees neither a leap nor a step. In the
/// first renewal it would be the measure of all later ones.
#[test]
fn a_pause_between_two_clocks_is_no_leap() {
    for first in [true, false] {
        let server = Scripted::new(0);
        server.max_jump.set(Some(50));
        load(&server).unwrap();
        if !first {
            reserve(&server, NOW, NOW, &mut Patience::default()).unwrap();
            server.pass_us(1_000_000);
        }
        let now = server.tick();
        server.after_clock.borrow_mut().push_back(Box::new(|server| server.pass_us(150_000)));
        reserve(&server, now, now, &mut Patience::default()).unwrap();
        for _ in 0..3 {
            server.pass_us(1_200_000);
            assert!(server.id(0, shard(5)).is_ok(), "first: {first}");
        }
        let steps = server.with_mark(|mark| (mark.steps_back, mark.steps_forward));
        assert_eq!(steps, (0, 0), "first: {first}");
    }
}

/// Where every two readings are apart, those that are least apart count.
#[test]
fn the_closest_readings_count() {
    let server = Scripted::new(0);
    assert_eq!(clocks(&server), Ok(Clocks { now: NOW, boot_ms: 5000 }));
    for ms in [20, 9, 30, 40, 2, 50, 60, 70, 3, 80] {
        server.after_clock.borrow_mut().push_back(Box::new(move |server| server.pass_us(ms * 1000)));
    }
    let passed = 20 + 9 + 30 + 40;
    assert_eq!(clocks(&server), Ok(Clocks { now: NOW + passed, boot_ms: 5000 + passed }));
    assert!(server.after_clock.borrow().is_empty());
    // Both are truncated: they may seem 1 ms apart.
    for ms in [1, 100] {
        server.after_clock.borrow_mut().push_back(Box::new(move |server| server.pass_us(ms * 1000)));
    }
    let now = server.us() / 1000;
    assert_eq!(clocks(&server).unwrap().boot_ms, now);
    server.after_clock.take();
    server.step_clock(-100_000_000);
    assert_eq!(clocks(&server), Err(Refused::Clock));
}

/// Standbys are polled soon at first, and then less and less often.
#[test]
fn standbys_are_asked_more_and_more_seldom() {
    let server = with_standbys(0, Some(70_000));
    server.id(0, shard(5)).unwrap();
    let slept: Vec<u64> = server.sleeps().iter().map(|(us, _)| *us).collect();
    assert_eq!(slept, [500, 1000, 2000, 4000, 8000, 16_000, 20_000, 20_000]);
}

/// Promise 4: a call waits for the standbys exactly as long as `idgen.max_wait` says. Later calls wait for the mark
/// that is already written, and do not write another one.
#[test]
fn a_written_mark_is_awaited_and_not_written_again() {
    let server = with_standbys(0, None);
    server.max_wait.set(30);
    let start = server.us();
    for _ in 0..3 {
        assert_eq!(server.id(0, shard(5)), not_renewed(30));
        assert!(!server.claimed());
    }
    assert_eq!(server.us() - start, 90_000);
    assert_eq!(server.written(), [NOW + 1000]);
    assert_eq!(
        server.slot(shard(5)).counters,
        Counters { waits: 3, waited_us: 90_000, ..Counters::default() }
    );
    server.acknowledge_us.set(Some(0));
    assert!(server.id(0, shard(5)).is_ok());
    assert_eq!(server.written(), [NOW + 1000]);

    // Acknowledged at the last moment.
    let server = with_standbys(0, Some(29_999));
    server.max_wait.set(30);
    assert!(server.id(0, shard(5)).is_ok());
}

/// A limit published before synchronous replication began is no longer valid: a mark is written once more, because
/// a standby that has the old one reports nothing.
#[test]
fn synchronous_replication_begins_with_a_mark_of_its_own() {
    let server = Scripted::new(0);
    let id = server.id(0, shard(5)).unwrap();
    server.standbys.set(true);
    server.acknowledge_us.set(Some(10_000));
    server.pass_us(1000);
    assert_eq!(server.id_at_once(0, shard(5)), None);
    assert!(server.id(0, shard(5)).unwrap() > id);
    assert_eq!(server.written(), [NOW + 1000, NOW + 1001]);
    // While no standby was configured it was enough, and it is again when synchronous replication ends.
    server.acknowledge_us.set(None);
    server.pass_us(5000);
    assert!(server.id(0, shard(5)).is_ok(), "acknowledged before");
    server.pass_us(800_000);
    server.id(0, shard(5)).unwrap();
    server.after(7400, |server| server.standbys.set(false));
    let start = server.us();
    server.id(0, shard(5)).unwrap();
    assert_eq!(server.us() - start, 7500, "looked at after 500, 1000, 2000, and 4000 us");
}

/// At half of its window the mark is written, and no call waits for the disk: the WAL writer flushes it, and the first
/// call that comes then publishes it.
#[test]
fn no_call_waits_for_a_mark_that_is_renewed_at_half_of_its_window() {
    let server = Scripted::new(0);
    server.id(0, shard(5)).unwrap();
    server.pass_us(499_000);
    server.id(0, shard(5)).unwrap();
    assert_eq!(server.written(), [NOW + 1000]);
    server.pass_us(1000);
    server.steps();
    server.id(0, shard(5)).unwrap();
    let written = [
        Step::At(Point::BeforeWal),
        Step::Write(NOW + 1500),
        Step::At(Point::AfterInsert),
        Step::FlushSoon,
        Step::Wake,
    ];
    assert_eq!(server.steps(), written);
    server.pass_us(199_000);
    assert!(server.id_at_once(0, shard(5)).is_some(), "while it is awaited calls are as quick as ever");
    server.pass_us(1000);
    assert_eq!(server.id_at_once(0, shard(5)), None, "somebody has to publish it");
    assert_eq!(server.limit(), NOW + 1000);
    server.id(0, shard(5)).unwrap();
    assert_eq!(server.limit(), NOW + 1500);
    assert!(server.id_at_once(0, shard(5)).is_some());
    assert_eq!(server.written(), [NOW + 1000, NOW + 1500]);
    assert_eq!(server.slot(shard(5)).counters.waits, 0);
}

/// If nobody flushes it, a call does so at a quarter of the window, before any call has to wait for the mark.
#[test]
fn a_mark_that_nobody_flushes_is_flushed_at_a_quarter_of_its_window() {
    let server = Scripted::new(0);
    server.flush_soon_us.set(None);
    server.flush_us.set(700);
    server.id(0, shard(5)).unwrap();
    server.pass_us(500_000);
    server.id(0, shard(5)).unwrap();
    server.pass_us(248_000);
    assert!(server.id_at_once(0, shard(5)).is_some());
    assert_eq!(server.limit(), NOW + 1000);
    server.pass_us(1300);
    server.id(0, shard(5)).unwrap();
    assert_eq!((server.limit(), server.us()), (NOW + 1500, 5_000_000 + 750_000 + 700));
    assert_eq!(server.written(), [NOW + 1000, NOW + 1500]);
}

/// The same for standbys: a mark that they have is published by the next call, and at a quarter of the window a
/// call waits for one that they do not have. A failure then is left to the call that will need the mark.
#[test]
fn standbys_are_waited_for_at_a_quarter_of_the_window() {
    let server = with_standbys(0, Some(0));
    server.id(0, shard(5)).unwrap();
    server.acknowledge_us.set(Some(230_000));
    server.pass_us(500_000);
    server.id(0, shard(5)).unwrap();
    server.pass_us(220_000);
    server.id(0, shard(5)).unwrap();
    assert_eq!(server.limit(), NOW + 1000, "it is on this server's disk alone");
    server.pass_us(10_000);
    server.id(0, shard(5)).unwrap();
    assert_eq!((server.limit(), server.us()), (NOW + 1500, 5_730_000));

    let server = with_standbys(0, Some(0));
    server.id(0, shard(5)).unwrap();
    server.acknowledge_us.set(None);
    server.pass_us(500_000);
    server.id(0, shard(5)).unwrap();
    server.pass_us(250_000);
    assert_eq!(server.us(), 5_750_000);
    assert_eq!(server.id(0, shard(5)).map(|id| decode(id).tick), Ok(NOW + 750));
    assert_eq!(server.us(), 5_750_000 + 80_000, "as long as a call may wait");
    server.pass_us(170_000);
    assert_eq!(server.id(0, shard(5)), not_renewed(80));
}

/// A standby that got a mark while no standby was synchronous has said so to nobody, and says something only when
/// something new comes.
#[test]
fn a_mark_that_was_not_heard_of_is_written_once_more() {
    let server = with_standbys(0, Some(0));
    server.unheard.set(1);
    server.reserve_ahead.set(2000);
    server.max_wait.set(3000);
    assert!(server.id(0, shard(5)).is_ok());
    assert_eq!(server.written()[..2], [NOW + 2000; 2]);
    // Not for each look at it: it would fill the WAL where the standby is gone.
    let server = with_standbys(0, None);
    server.max_wait.set(2900);
    assert_eq!(server.id(0, shard(5)), not_renewed(2900));
    assert_eq!(server.written(), [NOW + 1000; 2]);
    // Nor because the flush took long.
    let server = with_standbys(0, Some(2_505_000));
    server.flush_us.set(2_500_000);
    server.reserve_ahead.set(3000);
    assert!(server.id(0, shard(5)).is_ok());
    assert_eq!(server.written().iter().filter(|mark| **mark == NOW + 3000).count(), 1);
    // Calls that may not wait as long as two seconds do it together, and so does a reader of the horizon.
    for max_wait in [1, 80] {
        let server = with_standbys(NOW, Some(0));
        server.unheard.set(1);
        server.reserve_ahead.set(3000);
        server.max_wait.set(max_wait);
        assert_eq!(server.id(0, shard(5)), not_renewed(max_wait));
        server.pass_us(1_000_000);
        assert_eq!(server.id(0, shard(5)), not_renewed(max_wait));
        server.pass_us(1_000_000 - 1000 * max_wait);
        assert_eq!(server.written().len(), 1);
        assert!(share_settled(&server, &mut Patience::default()).is_ok());
        assert!(server.id(0, shard(5)).is_ok());
        assert_eq!(server.written()[..2], [NOW + 3000; 2]);
    }
}

/// Promise 4: a mark that is written again and again is flushed as often, and only the first of these flushes is not
/// counted.
#[test]
fn a_mark_that_is_written_again_does_not_prolong_a_wait() {
    let server = with_standbys(0, None);
    server.flush_us.set(900_000);
    server.max_wait.set(10_000);
    assert!(server.id(0, shard(5)).is_err());
    assert!(server.written().len() > 3);
    assert!(server.us() <= 5_000_000 + 10_000_000 + 2 * 900_000, "{}", server.us());
}

/// Promise 4: no call is refused for want of a mark that is there.
#[test]
fn a_mark_that_is_there_takes_no_time() {
    let server = Scripted::new(0);
    server.max_wait.set(0);
    server.id(0, shard(5)).unwrap();
    let patience = &mut Patience::default();
    for _ in 0..4 {
        assert_eq!(reserve(&server, NOW, NOW, patience), Ok(()));
    }
    // Acknowledged while it is flushed once more.
    let server = with_standbys(0, None);
    server.reserve_ahead.set(5000);
    assert_eq!(server.id(0, shard(5)), not_renewed(80));
    server.pass_us(2_000_000);
    server.flush_us.set(500_000);
    server.after(600_000, |server| server.acknowledge_us.set(Some(0)));
    assert_eq!(server.id(0, shard(5)).map(|id| decode(id).tick), Ok(server.tick()));
    assert_eq!(server.written()[..2], [NOW + 5000; 2]);
}

/// A call does not renew if it need not: neither if half of the window is left, nor if another backend renews.
#[test]
fn only_one_renews_early() {
    let server = Scripted::new(0);
    server.id(0, shard(5)).unwrap();
    server.steps();
    let patience = &mut Patience::default();
    renew_early(&server, NOW + 499, patience);
    assert_eq!(server.steps(), []);
    server.pass_us(500_000);
    assert!(server.with_mark(|mark| mark.claim(server.boot_ms())));
    renew_early(&server, NOW + 500, patience);
    assert_eq!(server.steps(), []);
    assert!(server.claimed(), "the task is another one's");
    server.with_mark(|mark| mark.release());
    renew_early(&server, NOW + 500, patience);
    assert_eq!(server.written(), [NOW + 1000, NOW + 1500]);
    // The limit has moved since it was read.
    renew_early(&server, MAX_TICK, patience);
    assert_eq!(server.written().len(), 2, "a tick that is too far after the clock");
}

/// Promise 4: a call that needs the mark while another one renews it waits to be woken, and does not renew again. Like
/// its own flush, that of the other one does not count.
#[test]
fn those_who_need_the_mark_wait_for_the_one_who_renews_it() {
    let server = Scripted::new(0);
    server.max_wait.set(0);
    load(&server).unwrap();
    assert!(server.with_mark(|mark| mark.claim(server.boot_ms())));
    server.after(30_000, |server| {
        server.with_mark(|mark| mark.release());
        server.id(1, shard(6)).unwrap();
    });
    let id = server.id(0, shard(5)).unwrap();
    assert_eq!(decode(id).tick, NOW + 30);
    assert_eq!(server.sleeps(), [(20_000, Wait::Mark), (10_000, Wait::Mark)]);
    assert_eq!(server.written().len(), 1);
    assert_eq!(server.slot(shard(5)).counters, Counters { ids: 1, leases: 1, waits: 0, waited_us: 0 });
}

/// The same for a call that has waited before.
#[test]
fn a_flush_does_not_count_after_a_wait_either() {
    let server = Scripted::new(0);
    server.max_wait.set(10);
    load(&server).unwrap();
    let mut patience = Patience::default();
    assert_eq!(patience.left_us(&server), Some(10_000));
    server.pass_us(1000);
    assert!(server.with_mark(|mark| mark.claim(server.boot_ms())));
    server.after(30_000, |server| server.with_mark(|mark| mark.release()));
    server.flush_us.set(50_000);
    reserve(&server, NOW, NOW, &mut patience).unwrap();
    assert_eq!((server.us(), patience.left_us(&server)), (5_000_000 + 1000 + 40_000 + 50_000, Some(9000)));
}

/// A backend that died during a renewal keeps others off until its claim expires; a live one keeps them off for as
/// long as it waits for the standbys.
#[test]
fn a_claim_ends_by_itself_where_nobody_keeps_it() {
    let server = Scripted::new(0);
    server.max_wait.set(500);
    load(&server).unwrap();
    assert!(server.with_mark(|mark| mark.claim(server.boot_ms())));
    server.id(0, shard(5)).unwrap();
    assert_eq!(server.sleeps(), [(20_000, Wait::Mark); 5]);
    assert_eq!(server.us() - 5_000_000, CLAIM_MS * 1000);

    let server = with_standbys(0, Some(2 * CLAIM_MS * 1000));
    server.max_wait.set(500);
    server.after(2 * CLAIM_MS * 1000 - 1, |server| assert!(server.claimed()));
    server.id(0, shard(5)).unwrap();
    assert!(!server.claimed());
}

/// A limit at the tick itself does not let it be issued: a call that needs the mark waits then too.
#[test]
fn a_limit_that_is_reached_is_waited_for() {
    let server = Scripted::new(0);
    server.id(3, shard(9)).unwrap();
    server.pass_us(1_000_000);
    assert!(server.with_mark(|mark| mark.claim(server.boot_ms())));
    assert!(server.id(0, shard(5)).is_ok());
    assert_eq!(server.sleeps(), [(20_000, Wait::Mark); 5]);
}

/// Promise 4: what another backend waits for counts as if the call waited for it itself: standbys do, their mark's
/// flush does not.
#[test]
fn a_wait_for_anothers_renewal_ends() {
    let server = with_standbys(0, None);
    server.max_wait.set(30);
    load(&server).unwrap();
    assert!(server.with_mark(|mark| mark.claim(server.boot_ms())));
    let written = Written { tick: NOW + 1000, lsn: server.write_mark(NOW + 1000), at_us: 0 };
    server.with_mark(|mark| mark.wrote(written, true, server.boot_ms()));
    server.after(45_000, move |server| server.flush(written.lsn));
    assert_eq!(server.id(0, shard(5)), not_renewed(30));
    assert_eq!(server.sleeps(), [20_000, 20_000, 20_000, 30_000].map(|us| (us, Wait::Mark)));
    assert_eq!(server.written(), [NOW + 1000]);
}

/// A renewal that is cancelled gives the task up and wakes the others, and its mark is awaited by the next call.
#[test]
fn a_cancelled_renewal_gives_its_task_up() {
    let server = with_standbys(0, None);
    server.after(3000, |server| server.cancelled.set(true));
    let call = catch_unwind(AssertUnwindSafe(|| server.id(0, shard(5))));
    assert!(call.is_err());
    assert!(!server.claimed());
    assert_eq!(server.steps().last(), Some(&Step::Wake));
    let slot = server.slot(shard(5));
    assert_eq!((slot.counters.waits, slot.counters.waited_us), (1, 3500));
    server.acknowledge_us.set(Some(0));
    assert!(server.id(0, shard(5)).is_ok());
    assert_eq!(server.written().len(), 1);
}

/// The stored mark is taken over once in a run, and not in recovery.
#[test]
fn the_stored_mark_is_taken_over_once() {
    let server = Scripted::new(NOW + 5);
    server.recovery.set(true);
    assert_eq!(load(&server), Err(Refused::Mint(Error::Recovery)));
    server.recovery.set(false);
    assert_eq!(load(&server), Ok(true));
    assert_eq!((server.floor(), server.run_floor(), server.limit()), (NOW + 5, NOW + 5, 0));
    server.write_mark(NOW + 50);
    server.recovery.set(true);
    assert_eq!(load(&server), Ok(false), "it is there, whatever happens now");
    assert_eq!(server.run_floor(), NOW + 5);
}

/// A reservation takes over the stored mark and no more: the slot must see the new floor first.
#[test]
fn a_reservation_begins_at_the_stored_mark() {
    let server = Scripted::new(NOW + 5);
    let patience = &mut Patience::default();
    assert_eq!(reserve(&server, NOW, NOW, patience), Ok(()));
    assert_eq!((server.written(), server.floor()), (vec![], NOW + 5));
    // A tick of before is none to renew the mark for.
    assert_eq!(reserve(&server, NOW, NOW, patience), Ok(()));
    assert_eq!(server.written(), []);
    assert_eq!(reserve(&server, NOW + 5, NOW + 7, patience), Ok(()));
    assert_eq!(server.written(), [NOW + 5 + 1000 + 2]);
    // Ticks below the limit are not reserved again; the limit itself is not covered.
    assert_eq!(reserve(&server, NOW + 1006, NOW + 1006, patience), Ok(()));
    assert_eq!(server.written().len(), 1);
}

/// A mark is written for ticks that calls in the queue of a full shard may have, and for none beyond.
#[test]
fn the_mark_follows_those_who_queue() {
    let server = Scripted::new(0);
    let patience = &mut Patience::default();
    server.max_ahead.set(10);
    server.reserve_ahead.set(4);
    server.id(0, shard(5)).unwrap();
    assert_eq!(server.written(), [NOW + 4]);
    reserve(&server, NOW + 10 + QUEUE_MS + 1, NOW + 10 + QUEUE_MS + 1, patience).unwrap();
    assert_eq!(server.written(), [NOW + 4]);
    reserve(&server, NOW + 10 + QUEUE_MS, NOW + 10 + QUEUE_MS, patience).unwrap();
    assert_eq!(server.written(), [NOW + 4, NOW + 10 + QUEUE_MS + 4]);
}

/// Renewals and their time are counted.
#[test]
fn renewals_are_counted_with_their_time() {
    let server = with_standbys(0, Some(2000));
    server.flush_us.set(700);
    server.id(0, shard(5)).unwrap();
    let (renewals, flush_us) = server.with_mark(|mark| (mark.renewals, mark.flush_us));
    // Written at 0, on disk at 700, asked at 700, 1200 and 2200.
    assert_eq!((renewals, flush_us), (1, 2200));
    server.standbys.set(false);
    server.pass_us(1_200_000);
    server.id(0, shard(5)).unwrap();
    let (renewals, flush_us) = server.with_mark(|mark| (mark.renewals, mark.flush_us));
    assert_eq!((renewals, flush_us), (2, 2900));
}

/// A mark that others make durable counts from its writing, whoever publishes it, and so does one that a call has given
/// up waiting for. Time in which nobody looked, because there was no call, does not count as long as that.
#[test]
fn the_time_of_a_mark_begins_with_its_writing() {
    let flush_us = |server: &Scripted| server.with_mark(|mark| mark.flush_us);
    for (idle_us, counted) in [(0, 230_000), (240_000, 250_000)] {
        let server = with_standbys(0, Some(0));
        server.id(0, shard(5)).unwrap();
        assert_eq!(flush_us(&server), 0);
        server.acknowledge_us.set(Some(230_000));
        server.pass_us(500_000);
        server.id(0, shard(5)).unwrap();
        server.pass_us(230_000 + idle_us);
        server.id(0, shard(5)).unwrap();
        assert_eq!((server.limit(), flush_us(&server)), (NOW + 1500, counted));
    }
    let server = with_standbys(0, None);
    server.max_wait.set(30);
    assert_eq!(server.id(0, shard(5)), not_renewed(30));
    server.pass_us(500_000);
    server.after(10_000, |server| server.acknowledge_us.set(Some(0)));
    server.id(0, shard(5)).unwrap();
    assert!((540_000..560_000).contains(&flush_us(&server)), "{}", flush_us(&server));
}

/// The horizon rests on what standbys have: the mark of earlier runs is written once more for them, and all readers
/// wait for that one.
#[test]
fn the_mark_that_the_horizon_rests_on_is_shared() {
    let server = Scripted::new(NOW);
    assert_eq!(share_settled(&server, &mut Patience::default()), Ok(()));
    assert_eq!(server.written(), [], "nobody to share it with");

    let server = with_standbys(NOW, None);
    for _ in 0..2 {
        assert_eq!(share_settled(&server, &mut Patience::default()), not_renewed(80));
        assert_eq!(server.written(), [NOW], "once");
    }
    assert_eq!(server.steps().iter().filter(|step| **step == Step::Flush).count(), 2);
    server.acknowledge_us.set(Some(0));
    assert_eq!(share_settled(&server, &mut Patience::default()), Ok(()));
    assert_eq!(server.written(), [NOW]);
    // A mark that they have is enough.
    server.id(0, shard(5)).unwrap();
    server.acknowledge_us.set(None);
    assert_eq!(share_settled(&server, &mut Patience::default()), Ok(()));
    assert_eq!(server.written(), [NOW, NOW + 160 + 1000]);

    // Nothing is settled in a cluster that has never minted.
    let server = with_standbys(0, None);
    assert_eq!(share_settled(&server, &mut Patience::default()), Ok(()));
    assert_eq!(server.written(), []);

    // If a mark that reaches as far is already on its way, readers wait for that one.
    let server = with_standbys(NOW, None);
    assert_eq!(server.id(0, shard(5)), not_renewed(80));
    assert_eq!(share_settled(&server, &mut Patience::default()), not_renewed(80));
    assert_eq!(server.written(), [NOW + 1000]);

    let server = with_standbys(NOW, None);
    server.recovery.set(true);
    assert_eq!(share_settled(&server, &mut Patience::default()), Err(Refused::Mint(Error::Recovery)));
}

/// A batch takes the rest of the window, and the mark is renewed for the remaining ids.
#[test]
fn a_run_ends_at_the_limit() {
    let server = Scripted::new(0);
    server.max_ahead.set(100);
    server.reserve_ahead.set(4);
    server.id(3, shard(9)).unwrap();
    let ids = server.ids(0, shard(5), 10 * IDS_PER_TICK).unwrap();
    assert_eq!(ids.len(), 10_240);
    assert_eq!(ids.last(), Some(&(min_id(NOW + 9) | 5 << 10 | 1023)));
    // The rest of 6 milliseconds and the window after it.
    assert_eq!(server.written(), [NOW + 4, NOW + 4 + 6 + 4]);
    assert_eq!(server.slot(shard(5)).counters.leases, 2);
}
