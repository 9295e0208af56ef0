use idgen_core::deadline::Deadline;
use idgen_core::error::Error::{self, *};
use idgen_core::host::{Host, Point, Wait};
use idgen_core::mark::renewal::{
    accept_clock, accept_epoch, awaited_ms, clocks, load, renew_early, reserve, share_settled,
};
use idgen_core::mark::{CLAIM_MS, Clocks, Progress};
use idgen_core::settings::QUEUE_MS;
use idgen_ids::Tick;
use idgen_ids::id::{MAX_STORED_TICK, MAX_TICK};

use crate::host::{Answer, Event, NOW, SETTINGS, Scripted, Step, not_renewed, refused};
use crate::{epoch_at, first_id, shard, tick_of};

fn deadline() -> Deadline {
    Deadline::new(&SETTINGS)
}

/// Calls [`reserve`] for a call that has not waited yet.
fn reserved(server: &Scripted, tick: Tick, wanted: Tick) -> Answer<()> {
    reserve(server, server.settings(), tick, wanted, &mut Deadline::new(server.settings()))
}

/// Calls [`share_settled`] for a call that has not waited yet.
fn shared(server: &Scripted) -> Answer<()> {
    share_settled(server, server.settings(), &mut Deadline::new(server.settings()))
}

fn loaded(server: &Scripted) -> Answer<bool> {
    load(server, server.settings())
}

fn at(step: Point) -> Step {
    Step::At(step)
}

/// Promise 1: a mark is written, on disk, acknowledged and published, in this order, and then waiting backends are
/// woken.
#[test]
fn the_steps_of_a_renewal_are_in_order() {
    for (standbys, polls) in [(false, vec![]), (true, vec![500, 1000])] {
        let server = Scripted::new(0).with_standbys(Some(1400));
        server.standbys.set(standbys);
        server.id(0, 5).unwrap();
        let written = [at(Point::BeforeWal), Step::Write(NOW + 1000), at(Point::AfterInsert)];
        let flushed = [Step::Flush, at(Point::AfterFlush)];
        let asked = vec![at(Point::BeforeAcknowledge); polls.len()];
        let published = [at(Point::BeforePublish), Step::Publish(NOW + 1000), Step::Wake];
        assert_eq!(server.steps(), [&written[..], &flushed, &asked, &published].concat());
        assert_eq!(server.sleeps(), polls.iter().map(|us| (*us, Wait::Standby)).collect::<Vec<_>>());
    }
}

/// Guard: a process that is suspended between its readings of the two clocks sees neither a jump nor a step. In the
/// first renewal, this would be the reference for all later ones.
#[test]
fn a_pause_between_two_clocks_is_no_jump() {
    for first in [true, false] {
        let server = Scripted::new(0).with(|settings| settings.max_clock_jump_ms = Some(50));
        loaded(&server).unwrap();
        if !first {
            reserved(&server, NOW, NOW).unwrap();
            server.pass_us(1_000_000);
        }
        let now = server.tick();
        server.after_clock.borrow_mut().push_back(Box::new(|server| server.pass_us(150_000)));
        reserved(&server, now, now).unwrap();
        for _ in 0..3 {
            server.pass_us(1_200_000);
            assert!(server.id(0, 5).is_ok(), "first: {first}");
        }
        let mark = server.mark();
        assert_eq!((mark.steps_back, mark.steps_forward), (0, 0), "first: {first}");
    }
}

/// If all readings are apart, the closest ones count.
#[test]
fn the_closest_readings_count() {
    let server = Scripted::new(0);
    let pause = |pauses: &[u64]| {
        let events = pauses.iter().map(|ms| {
            let us = ms * 1000;
            Box::new(move |server: &Scripted| server.pass_us(us)) as Event
        });
        server.after_clock.borrow_mut().extend(events);
    };
    assert_eq!(clocks(&server), Ok(Clocks { now: NOW, boot_ms: 5000 }));
    pause(&[20, 9, 30, 40, 2, 50, 60, 70, 2, 80]);
    let passed = 20 + 9 + 30 + 40;
    assert_eq!(clocks(&server), Ok(Clocks { now: NOW + passed, boot_ms: 5000 + passed }));
    assert!(server.after_clock.borrow().is_empty());
    // Both clocks are truncated: they may seem 1 ms apart.
    pause(&[1, 100]);
    let now = server.us() / 1000;
    assert_eq!(clocks(&server).unwrap().boot_ms, now);
    server.after_clock.take();
    server.step_clock(-100_000_000);
    assert_eq!(clocks(&server), Err(None));
}

/// Standbys are polled soon at first, and then at longer and longer intervals.
#[test]
fn standbys_are_asked_more_and_more_seldom() {
    let server = Scripted::new(0).with_standbys(Some(70_000));
    server.id(0, 5).unwrap();
    let slept: Vec<u64> = server.sleeps().iter().map(|(us, _)| *us).collect();
    assert_eq!(slept, [500, 1000, 2000, 4000, 8000, 16_000, 20_000, 20_000]);
}

/// Promise 4: a call waits for the standbys exactly as long as `idgen.max_wait` says. Later calls wait for the mark
/// that is already written, and do not write another one.
#[test]
fn a_written_mark_is_awaited_and_not_written_again() {
    let new = |acknowledge_us| {
        Scripted::new(0).with_standbys(acknowledge_us).with(|settings| settings.max_wait_ms = 30)
    };
    let server = new(None);
    let start = server.us();
    for _ in 0..3 {
        assert_eq!(server.id(0, 5), not_renewed(30));
        assert!(!server.claimed());
    }
    assert_eq!(server.us() - start, 90_000);
    assert_eq!(server.counters(shard(5)), [0, 0, 3, 90_000]);
    server.acknowledge_us.set(Some(0));
    assert!(server.id(0, 5).is_ok());
    assert_eq!(server.written(), [NOW + 1000]);
    assert!(new(Some(29_999)).id(0, 5).is_ok(), "acknowledged at the last moment");
}

/// A limit published before synchronous replication began is no longer valid: the mark is written once more, because a
/// standby that already has it reports nothing.
#[test]
fn synchronous_replication_begins_with_a_mark_of_its_own() {
    let server = Scripted::new(0);
    let id = server.id(0, 5).unwrap();
    let server = server.with_standbys(Some(10_000));
    server.pass_us(1000);
    assert_eq!(server.id_at_once(0, 5), None);
    assert!(server.id(0, 5).unwrap() > id);
    assert_eq!(server.written(), [NOW + 1000, NOW + 1001]);
    // While no standby was configured, the limit was enough, and it is again after synchronous replication ends.
    server.acknowledge_us.set(None);
    server.pass_us(5000);
    assert!(server.id(0, 5).is_ok(), "acknowledged before");
    server.pass_us(800_000);
    server.id(0, 5).unwrap();
    server.after(7400, |server| server.standbys.set(false));
    let start = server.us();
    server.id(0, 5).unwrap();
    assert_eq!(server.us() - start, 7500, "polled after 500, 1000, 2000, and 4000 us");
}

/// At half of its window the mark is written, and calls do not wait for the disk: the WAL writer flushes it, and the
/// first call after that publishes it.
#[test]
fn no_call_waits_for_a_mark_that_is_renewed_at_half_of_its_window() {
    let server = Scripted::new(0);
    server.id(0, 5).unwrap();
    server.pass_us(499_000);
    server.id(0, 5).unwrap();
    assert_eq!(server.written(), [NOW + 1000]);
    server.pass_us(1000);
    server.steps();
    server.id(0, 5).unwrap();
    let written = [at(Point::BeforeWal), Step::Write(NOW + 1500), at(Point::AfterInsert)];
    assert_eq!(server.steps(), [&written[..], &[Step::FlushSoon, Step::Wake]].concat());
    server.pass_us(199_000);
    assert!(server.id_at_once(0, 5).is_some(), "while it is awaited calls are as quick as ever");
    server.pass_us(1000);
    assert_eq!(server.id_at_once(0, 5), None, "a call has to publish it");
    assert_eq!(server.limit(), NOW + 1000);
    server.id(0, 5).unwrap();
    assert_eq!(server.limit(), NOW + 1500);
    assert!(server.id_at_once(0, 5).is_some());
    assert_eq!(server.written(), [NOW + 1000, NOW + 1500]);
    assert_eq!(server.counters(shard(5))[2], 0);
}

/// If no other process flushes the mark, a call does so at a quarter of the window, before any call has to wait for it.
#[test]
fn a_mark_that_nobody_flushes_is_flushed_at_a_quarter_of_its_window() {
    let server = Scripted::new(0);
    server.flush_soon_us.set(None);
    server.flush_us.set(700);
    server.id(0, 5).unwrap();
    server.pass_us(500_000);
    server.id(0, 5).unwrap();
    server.pass_us(248_000);
    assert!(server.id_at_once(0, 5).is_some());
    assert_eq!(server.limit(), NOW + 1000);
    server.pass_us(1300);
    server.id(0, 5).unwrap();
    assert_eq!((server.limit(), server.us()), (NOW + 1500, 5_000_000 + 750_000 + 700));
    assert_eq!(server.written(), [NOW + 1000, NOW + 1500]);
}

/// A server with standbys whose mark was written just now, at half of the window of the last one. The standbys
/// acknowledge it after the given time.
fn renewed_early(acknowledge_us: Option<u64>) -> Scripted {
    let server = Scripted::new(0).with_standbys(Some(0));
    server.id(0, 5).unwrap();
    server.acknowledge_us.set(acknowledge_us);
    server.pass_us(500_000);
    server.id(0, 5).unwrap();
    server
}

/// The next call publishes a mark that standbys have. At a quarter of the window, a call waits for a mark that they do
/// not have. If that fails, the call that will need the mark reports it.
#[test]
fn standbys_are_waited_for_at_a_quarter_of_the_window() {
    let server = renewed_early(Some(230_000));
    server.pass_us(220_000);
    server.id(0, 5).unwrap();
    assert_eq!(server.limit(), NOW + 1000, "it is on this server's disk alone");
    server.pass_us(10_000);
    server.id(0, 5).unwrap();
    assert_eq!((server.limit(), server.us()), (NOW + 1500, 5_730_000));

    let server = renewed_early(None);
    server.pass_us(250_000);
    assert_eq!(server.us(), 5_750_000);
    assert_eq!(server.id(0, 5).map(tick_of), Ok(NOW + 750));
    assert_eq!(server.us(), 5_750_000 + 80_000, "as long as a call may wait");
    server.pass_us(170_000);
    assert_eq!(server.id(0, 5), not_renewed(80));
}

/// A standby that received a mark while it was not synchronous was not heard, and reports again only when it receives
/// something new.
#[test]
fn a_mark_that_was_not_heard_of_is_written_once_more() {
    let new = |stored, acknowledge_us, reserve, wait| {
        Scripted::new(stored)
            .with_standbys(acknowledge_us)
            .with(|settings| (settings.reserve_ahead_ms, settings.max_wait_ms) = (reserve, wait))
    };
    let server = new(0, Some(0), 2000, 3000);
    server.unheard.set(1);
    assert!(server.id(0, 5).is_ok());
    assert_eq!(server.written()[..2], [NOW + 2000; 2]);
    // The mark is not written at each poll: that would fill the WAL if the standby is gone.
    let server = new(0, None, 1000, 2900);
    assert_eq!(server.id(0, 5), not_renewed(2900));
    assert_eq!(server.written(), [NOW + 1000; 2]);
    // It is not written because the flush took long.
    let server = new(0, Some(2_505_000), 3000, 80);
    server.flush_us.set(2_500_000);
    assert!(server.id(0, 5).is_ok());
    assert_eq!(server.written().iter().filter(|mark| **mark == NOW + 3000).count(), 1);
    // Calls that may wait less than two seconds do it together, and so does a reader of the horizon.
    for max_wait in [1, 80] {
        let server = new(NOW, Some(0), 3000, max_wait);
        server.unheard.set(1);
        assert_eq!(server.id(0, 5), not_renewed(max_wait));
        server.pass_us(1_000_000);
        assert_eq!(server.id(0, 5), not_renewed(max_wait));
        server.pass_us(1_000_000 - 1000 * max_wait);
        assert_eq!(server.written().len(), 1);
        assert!(share_settled(&server, server.settings(), &mut deadline()).is_ok());
        assert!(server.id(0, 5).is_ok());
        assert_eq!(server.written()[..2], [NOW + 3000; 2]);
    }
}

/// Promise 4: a mark that is written repeatedly is also flushed repeatedly, and only the first of these flushes does
/// not count.
#[test]
fn a_mark_that_is_written_again_does_not_prolong_a_wait() {
    let server = Scripted::new(0).with_standbys(None).with(|settings| settings.max_wait_ms = 10_000);
    server.flush_us.set(900_000);
    assert!(server.id(0, 5).is_err());
    assert!(server.written().len() > 3);
    assert!(server.us() <= 5_000_000 + 10_000_000 + 2 * 900_000, "{}", server.us());
}

/// Promise 4: a call is not refused for lack of a mark that exists.
#[test]
fn a_mark_that_is_there_takes_no_time() {
    let server = Scripted::new(0).with(|settings| settings.max_wait_ms = 0);
    server.id(0, 5).unwrap();
    let deadline = &mut Deadline::new(server.settings());
    for _ in 0..4 {
        assert_eq!(reserve(&server, server.settings(), NOW, NOW, deadline), Ok(()));
    }
    let end = server.limit();
    assert_eq!(reserve(&server, server.settings(), end, end, deadline), not_renewed(0), "not there");
    // The mark is acknowledged while it is flushed once more.
    let server = Scripted::new(0).with_standbys(None).with(|settings| settings.reserve_ahead_ms = 5000);
    assert_eq!(server.id(0, 5), not_renewed(80));
    server.pass_us(2_000_000);
    server.flush_us.set(500_000);
    server.after(600_000, |server| server.acknowledge_us.set(Some(0)));
    assert_eq!(server.id(0, 5).map(tick_of), Ok(server.tick()));
    assert_eq!(server.written()[..2], [NOW + 5000; 2]);
}

/// A call does not renew unnecessarily: neither if half of the window is left, nor if another backend is renewing.
#[test]
fn only_one_renews_early() {
    let server = Scripted::new(0);
    let early = |tick| renew_early(&server, server.settings(), tick, &mut deadline());
    server.id(0, 5).unwrap();
    server.steps();
    early(NOW + 499);
    assert_eq!(server.steps(), []);
    server.pass_us(500_000);
    server.claim();
    early(NOW + 500);
    assert_eq!(server.steps(), []);
    assert!(server.claimed(), "another backend has the claim");
    server.with_mark(|mark| mark.release());
    early(NOW + 500);
    assert_eq!(server.written(), [NOW + 1000, NOW + 1500]);
    // The limit has moved since the call read it.
    early(MAX_TICK);
    assert_eq!(server.written().len(), 2, "a tick that is too far after the clock");
}

/// Promise 4: a call that needs the mark while another one renews it waits to be woken, and does not renew again. The
/// flush of the other call does not count, like a flush of its own.
#[test]
fn those_who_need_the_mark_wait_for_the_one_who_renews_it() {
    let server = Scripted::new(0).with(|settings| settings.max_wait_ms = 0);
    loaded(&server).unwrap();
    server.claim();
    server.after(30_000, |server| {
        server.with_mark(|mark| mark.release());
        server.id(1, 6).unwrap();
    });
    assert_eq!(server.id(0, 5), Ok(first_id(NOW + 30)));
    assert_eq!(server.sleeps(), [(20_000, Wait::Mark), (10_000, Wait::Mark)]);
    assert_eq!(server.written().len(), 1);
    assert_eq!(server.counters(shard(5)), [1, 1, 0, 0]);

    // The same for a call that has already waited.
    let server = Scripted::new(0).with(|settings| settings.max_wait_ms = 10);
    loaded(&server).unwrap();
    let mut deadline = Deadline::new(server.settings());
    assert_eq!(deadline.left_us(&server), Some(10_000));
    server.pass_us(1000);
    server.claim();
    server.after(30_000, |server| server.with_mark(|mark| mark.release()));
    server.flush_us.set(50_000);
    reserve(&server, server.settings(), NOW, NOW, &mut deadline).unwrap();
    assert_eq!((server.us(), deadline.left_us(&server)), (5_000_000 + 1000 + 40_000 + 50_000, Some(9000)));
}

/// A backend that died during a renewal blocks others only until its claim expires, whether they are at a limit or have
/// no limit yet. A live backend blocks them for as long as it waits for the standbys.
#[test]
fn a_claim_ends_by_itself_where_nobody_keeps_it() {
    for is_first in [true, false] {
        let server = Scripted::new(0).with(|settings| settings.max_wait_ms = 500);
        loaded(&server).unwrap();
        if !is_first {
            server.id(3, 9).unwrap();
            server.pass_us(1_000_000);
        }
        let start = server.us();
        server.claim();
        server.id(0, 5).unwrap();
        assert_eq!(server.sleeps(), [(20_000, Wait::Mark); 5]);
        assert_eq!(server.us() - start, CLAIM_MS * 1000);
    }
    let us = 2 * CLAIM_MS * 1000;
    let server = Scripted::new(0).with_standbys(Some(us)).with(|settings| settings.max_wait_ms = 500);
    server.after(us - 1, |server| assert!(server.claimed()));
    server.id(0, 5).unwrap();
    assert!(!server.claimed());
}

/// Promise 4: a call that waits for another backend counts what that backend waits for, as if it waited itself:
/// standbys count, the flush of their mark does not.
#[test]
fn a_wait_for_anothers_renewal_ends() {
    for is_first in [true, false] {
        let server = Scripted::new(0).with_standbys(Some(0)).with(|settings| settings.max_wait_ms = 30);
        loaded(&server).unwrap();
        if !is_first {
            server.id(3, 9).unwrap();
            server.pass_us(1_000_000);
        }
        server.acknowledge_us.set(None);
        server.claim();
        let written = server.write(NOW + 2000);
        server.after(45_000, move |server| server.flush(written.lsn));
        assert_eq!(server.id(0, 5), not_renewed(30));
        assert_eq!(server.sleeps(), [20_000, 20_000, 20_000, 30_000].map(|us| (us, Wait::Mark)));
        assert_eq!(server.written().last(), Some(&(NOW + 2000)));
    }
}

/// Promise 4: a call that waits for another backend's renewal ends, even if the claim is never given up.
#[test]
fn a_wait_for_a_claim_that_never_expires_ends() {
    let server = Scripted::new(0).with(|settings| settings.max_wait_ms = 30);
    loaded(&server).unwrap();
    server.claim();
    for ms in (50..1000).step_by(50) {
        server.after(ms * 1000, |server| server.with_mark(|mark| mark.keep_claim(server.boot_ms())));
    }
    let start = server.us();
    assert_eq!(server.id(0, 5), not_renewed(30));
    // The call polls every 20 ms, and its wait counts from when the claim has expired twice.
    assert_eq!(server.us() - start, (2 * CLAIM_MS + 20 + 30) * 1000);
}

/// A canceled renewal gives up the claim and wakes the others, and its mark is awaited by the next call.
#[test]
fn a_canceled_renewal_gives_its_task_up() {
    let server = Scripted::new(0).with_standbys(None);
    server.cancel(3000, || server.id(0, 5));
    assert!(!server.claimed());
    assert_eq!(server.steps().last(), Some(&Step::Wake));
    assert_eq!(server.counters(shard(5)), [0, 0, 1, 3500]);
    server.acknowledge_us.set(Some(0));
    assert!(server.id(0, 5).is_ok());
    assert_eq!(server.written().len(), 1);
}

/// The first reservation only loads the stored mark: the slot must see the new floor first.
#[test]
fn a_reservation_begins_at_the_stored_mark() {
    let server = Scripted::new(NOW + 5);
    // Ticks below the mark or the limit do not cause a renewal. The limit itself does.
    for (tick, wanted, marks) in [(0, 0, 0), (0, 0, 0), (5, 7, 1), (1006, 1006, 1), (1007, 1007, 1)] {
        assert_eq!(reserved(&server, NOW + tick, NOW + wanted), Ok(()));
        assert_eq!((server.written().len(), server.floor()), (marks, NOW + 5), "{tick}");
    }
    assert_eq!(server.written(), [NOW + 5 + 1000 + 2]);
}

/// A mark is written for ticks that calls in the queue of a full shard may get, and for none beyond.
#[test]
fn the_mark_follows_those_who_queue() {
    let server =
        Scripted::new(0).with(|settings| (settings.max_ahead_ms, settings.reserve_ahead_ms) = (10, 4));
    server.id(0, 5).unwrap();
    assert_eq!(server.written(), [NOW + 4]);
    let last = NOW + 10 + QUEUE_MS;
    reserved(&server, last + 1, last + 1).unwrap();
    assert_eq!(server.written(), [NOW + 4]);
    reserved(&server, last, last).unwrap();
    assert_eq!(server.written(), [NOW + 4, last + 4]);
}

/// A mark that is flushed at once, by the commit of another backend, is published by the call that has written it.
#[test]
fn a_mark_that_is_flushed_at_once_is_published() {
    let server = Scripted::new(0);
    server.id(0, 5).unwrap();
    server.pass_us(500_000);
    let next = server.written().len() + 1;
    server.flush(next as u64);
    server.id(0, 5).unwrap();
    assert_eq!(server.limit(), NOW + 1500);
}

/// The time of a mark counts from its writing, whichever call publishes it, and even if one has given up waiting for
/// it. Time without any calls, in which none could find it durable, is limited.
#[test]
fn the_time_of_a_mark_begins_with_its_writing() {
    for (idle_us, counted) in [(0, 230_000), (240_000, 250_000), (600_000, 250_000)] {
        let server = renewed_early(Some(230_000));
        assert_eq!(server.mark().flush_us, 0);
        server.pass_us(230_000 + idle_us);
        server.id(0, 5).unwrap();
        assert_eq!((server.limit(), server.mark().flush_us), (NOW + 1500, counted));
    }
    let server = Scripted::new(0).with_standbys(None).with(|settings| settings.max_wait_ms = 30);
    assert_eq!(server.id(0, 5), not_renewed(30));
    server.pass_us(500_000);
    server.after(10_000, |server| server.acknowledge_us.set(Some(0)));
    server.id(0, 5).unwrap();
    assert!((540_000..560_000).contains(&server.mark().flush_us), "{}", server.mark().flush_us);
}

/// The horizon rests on what standbys have: the mark of earlier incarnations is written once more for them, and all
/// readers wait for that one.
#[test]
fn the_mark_that_the_horizon_rests_on_is_shared() {
    let server = Scripted::new(NOW);
    assert_eq!(shared(&server), Ok(()));
    assert_eq!(server.written(), [], "no standby to share it with");

    let server = server.crashed(NOW).with_standbys(None);
    for _ in 0..2 {
        assert_eq!(shared(&server), not_renewed(80));
        assert_eq!(server.written(), [NOW], "once");
    }
    assert_eq!(server.steps().iter().filter(|step| **step == Step::Flush).count(), 2);
    server.acknowledge_us.set(Some(0));
    assert_eq!(shared(&server), Ok(()));
    assert_eq!(server.written(), [NOW]);
    // A mark that they have is enough.
    server.id(0, 5).unwrap();
    server.acknowledge_us.set(None);
    assert_eq!(shared(&server), Ok(()));
    assert_eq!(server.written(), [NOW, NOW + 160 + 1000]);

    // A cluster that has never minted has nothing settled.
    let server = Scripted::new(0).with_standbys(None);
    assert_eq!(shared(&server), Ok(()));
    assert_eq!(server.written(), []);

    // If a mark that reaches as far is already on its way, readers wait for that one.
    let server = Scripted::new(NOW).with_standbys(None);
    assert_eq!(server.id(0, 5), not_renewed(80));
    assert_eq!(shared(&server), not_renewed(80));
    assert_eq!(server.written(), [NOW + 1000]);

    let server = Scripted::new(NOW).with_standbys(None);
    server.recovery.set(true);
    assert_eq!(shared(&server), refused(Recovery));
}

/// The time for which unacknowledged marks are awaited counts from the first of them: under load a new one is written
/// every second. Once one has been acknowledged, the time begins anew.
#[test]
fn marks_are_awaited_since_the_first_of_them() {
    let server = Scripted::new(0);
    let awaited = |server: &Scripted| awaited_ms(server, &server.mark());
    assert_eq!(awaited(&server), None, "nothing is written");
    server.id(0, 5).unwrap();
    let server = server.with_standbys(None);
    assert_eq!(awaited(&server), None, "it was published before standbys had to acknowledge it");
    assert_eq!(server.id(0, 5), not_renewed(80));
    assert_eq!(awaited(&server), Some(80));
    server.pass_us(1_200_000);
    assert_eq!(server.id(0, 5), not_renewed(80));
    assert_eq!((server.written().len(), awaited(&server)), (3, Some(80 + 1200 + 80)));
    server.standbys.set(false);
    assert_eq!(awaited(&server), None, "no standby has to acknowledge it");
    server.standbys.set(true);
    assert_eq!(awaited(&server), Some(80 + 1200 + 80));
    server.acknowledge_us.set(Some(0));
    assert_eq!(awaited(&server), None, "acknowledged, and not published yet");
    server.id(0, 5).unwrap();
    server.acknowledge_us.set(None);
    assert_eq!(awaited(&server), None);
    server.pass_us(700_000);
    server.id(0, 5).unwrap();
    server.pass_us(3000);
    assert_eq!((server.written().len(), awaited(&server)), (4, Some(3)));
}

/// Promise 1: `snowflake_accept_epoch` durably keeps the tick of the mark, or increases it by one because progress
/// moves only forward. A mark that is already of the epoch, or of an unknown one, does not change.
#[test]
fn a_mark_is_moved_to_another_epoch() {
    let other = epoch_at(1_000_000_000_000);
    let kept = [None, Some(Progress::new(NOW, other)), Progress::kept(NOW)];
    for stored in kept {
        let server = Scripted::starting(stored);
        assert_eq!(accept_epoch(&server, other), Ok(false));
        assert_eq!((server.steps(), server.on_disk()), (vec![], stored));
    }
    for (mark, from, to) in [(NOW, SETTINGS.epoch, other), (NOW, other, SETTINGS.epoch)] {
        let server = Scripted::starting(Some(Progress::new(mark, from)));
        assert_eq!(accept_epoch(&server, to), Ok(true));
        assert_eq!(server.on_disk(), Some(Progress::new(mark + 1, to)));
        assert_eq!(accept_epoch(&server, to), Ok(false), "it has been");
        for (epoch, answer) in [(from, refused(OtherEpoch)), (to, Ok(true))] {
            let server = server.crashed(NOW).with(|settings| settings.epoch = epoch);
            assert_eq!(loaded(&server), answer);
            assert_eq!(server.recovered(), if answer.is_ok() { mark + 1 } else { 0 });
        }
    }
    for (mark, answer) in
        [(MAX_TICK - 1, Ok(true)), (MAX_TICK, refused(Exhausted)), (MAX_STORED_TICK, refused(Exhausted))]
    {
        let server = Scripted::starting(Some(Progress::new(mark, other)));
        assert_eq!(accept_epoch(&server, SETTINGS.epoch), answer);
    }
    // An epoch is refused if the clock cannot be counted from it.
    for (clock, answer) in [(MAX_TICK, Ok(true)), (MAX_TICK + 1, refused(Exhausted))] {
        let server = Scripted::starting(Some(Progress::new(NOW, other)));
        server.set_clock(clock);
        assert_eq!(accept_epoch(&server, SETTINGS.epoch), answer);
        assert_eq!(server.written().len(), usize::from(answer.is_ok()));
    }
    let server = Scripted::starting(Some(Progress::new(NOW, other)));
    server.step_clock(-(NOW as i64) - 1);
    assert_eq!(accept_epoch(&server, SETTINGS.epoch), Err(None));
}

/// `snowflake_accept_clock` ends the refusal of a clock that has jumped, within the range of ids.
#[test]
fn a_clock_that_has_jumped_is_accepted() {
    let server = Scripted::new(0).with(|settings| settings.max_clock_jump_ms = Some(50));
    assert_eq!(accept_clock(&server), Ok(0), "nothing to measure from");
    server.id(0, 5).unwrap();
    server.pass_us(2_000_000);
    assert_eq!(accept_clock(&server), Ok(0), "it has not");
    server.step_clock(3000);
    assert_eq!(server.id(0, 5), refused(Error::ClockJumped { by_ms: 3000 }));
    assert_eq!(accept_clock(&server), Ok(3000));
    assert!(server.id(0, 5).is_ok());
    server.set_clock(MAX_TICK + 1);
    assert_eq!(accept_clock(&server), refused(Exhausted));
    server.set_clock(MAX_TICK);
    assert!(accept_clock(&server).is_ok_and(|by_ms| by_ms > 0), "the last millisecond");
    server.step_clock(-(MAX_TICK as i64) - 1);
    assert_eq!(accept_clock(&server), Err(None));
}
