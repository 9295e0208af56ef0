use idgen_core::error::Error;
use idgen_core::host::{Host, Wait};
use idgen_core::mark::{Clocks, renewal};
use idgen_core::settings::QUEUE_MS;
use idgen_ids::Tick;
use idgen_ids::id::MAX_TICK;

use crate::host::{Answer, Event, NOW, Scripted, not_renewed, refused};
use crate::shard;

fn behind(by_ms: u64, max_ahead_ms: u64, waited_ms: u64) -> Answer<Tick> {
    refused(Error::ClockBehindIds { by_ms, max_ahead_ms, waited_ms })
}

/// A check renews the mark if a call for an id would, and takes no id.
#[test]
fn a_check_renews_the_mark_and_mints_nothing() {
    let server = Scripted::new(NOW - 5);
    for (ms, limit, marks, why) in [
        (0, 1000, 1, "the first"),
        (400, 1000, 1, "it is enough"),
        (100, 1000, 2, "the next mark is on its way"),
        (600, 1500, 3, "it was, and so is the one after"),
        (10_000, 12_100, 4, "the mark was used up"),
        (1000, 13_100, 5, "no id is of the limit"),
    ] {
        server.pass_us(ms * 1000);
        assert_eq!(server.check(0), Ok(NOW + limit), "{why}");
        assert_eq!(server.written().len(), marks, "{why}");
    }
    assert_eq!(server.written()[..2], [NOW + 1000, NOW + 1500]);
    assert_eq!(server.counters(shard(5)), [0; 4]);
    assert_eq!(server.oldest_floor(), u64::MAX, "no reader of the horizon waits for it");
    assert_eq!(server.sleeps(), []);
}

/// A check fails if every call for an id fails, with the same error, and after the same wait.
#[test]
fn a_check_fails_as_a_call_for_an_id_does() {
    type Trouble = fn(&Scripted);
    let no_acknowledgment: Trouble = |server| {
        server.standbys.set(true);
        server.acknowledge_us.set(None);
    };
    let troubles: [(&str, Trouble); 7] = [
        ("the clock before the epoch", |server| server.step_clock(-100_000_000)),
        ("recovery", |server| server.recovery.set(true)),
        ("the end of the range", |server| server.set_clock(MAX_TICK + 1)),
        ("standbys", no_acknowledgment),
        ("another one that waits for standbys", |server| {
            server.standbys.set(true);
            server.acknowledge_us.set(None);
            renewal::load(server, server.settings()).unwrap();
            assert!(server.with_mark(|mark| mark.claim(3_600_000)));
            server.flush(server.write(NOW + 1000).lsn);
        }),
        ("a jump", |server| {
            server.with_mark(|mark| {
                mark.load(0);
                mark.publish(0, false, Clocks { now: NOW - 1000, boot_ms: 5000 }, 0);
            });
        }),
        ("the clock behind the mark", |server| server.set_clock(NOW - 500)),
    ];
    for (name, trouble) in troubles {
        let [called, checked] = [false, true].map(|check| {
            let server = Scripted::new(NOW - 5).with(|settings| settings.max_clock_jump_ms = Some(500));
            trouble(&server);
            let start = server.us();
            let result = if check { server.check(0).map(drop) } else { server.id(0, 5).map(drop) };
            (result, server.us() - start)
        });
        assert!(called.0.is_err(), "{name}");
        assert_eq!(called, checked, "{name}");
    }
}

/// After the clock was set back, a check fails for the shards in use, although another shard might mint: because of a
/// floor that a reader of the horizon has raised, or because of the furthest id.
#[test]
fn a_check_fails_while_the_clock_is_behind_the_ids() {
    let server = Scripted::new(0).with(|settings| settings.max_ahead_ms = 10);
    server.id(0, 5).unwrap();
    server.end_transaction(0);
    server.step_clock(-500);
    assert_eq!(server.check(NOW), behind(500 - 80 - QUEUE_MS, 10, 80));
    assert_eq!(server.sleeps(), [(50_000, Wait::Clock), (30_000, Wait::Clock)]);
    assert!(server.check(0).is_ok());
    server.step_clock(420);
    server.horizon().unwrap();
    server.step_clock(-500);
    assert_eq!(server.check(0), behind(500 - 80, 10, 80));
    // The check waits no longer than it has to.
    server.step_clock(340);
    server.sleeps();
    assert!(server.check(0).is_ok());
    assert_eq!(server.sleeps(), [(50_000, Wait::Clock), (20_000, Wait::Clock)]);
    // Calls that queue for a full shard go this far ahead.
    assert!(server.check(server.tick() + 10 + QUEUE_MS).is_ok());
    assert_eq!(server.sleeps(), []);
}

/// A check that may not wait still renews the mark, and uses the clock as it is when the wait is over.
#[test]
fn a_check_that_may_not_wait_does_what_it_can() {
    let server = |stored| {
        Scripted::new(stored).with(|settings| (settings.max_ahead_ms, settings.max_wait_ms) = (10, 0))
    };
    let running = server(NOW - 5);
    assert_eq!(running.check(0), Ok(NOW + 1000));
    let furthest = running.tick() + 15 + QUEUE_MS;
    assert_eq!(running.check(furthest), behind(15, 10, 0));
    running.after_clock.borrow_mut().push_back(Box::new(|server| server.pass_us(5000)));
    assert!(running.check(furthest).is_ok());
    let at_mark = server(NOW + 10);
    assert!(at_mark.check(0).is_ok());
    assert_eq!(at_mark.check(NOW + 11 + QUEUE_MS), behind(11, 10, 0), "the mark is not in the way");
    let error = Error::ClockBehindMark { by_ms: 11, max_ahead_ms: 10, waited_ms: 0 };
    assert_eq!(server(NOW + 11).check(0), refused(error));
    let server = Scripted::new(0);
    server.set_clock(MAX_TICK);
    assert_eq!(server.check(0), Ok(MAX_TICK + 1), "the last one");
}

/// A check ends although the clock is set back whenever it would renew the mark: the third reading begins a wait.
#[test]
fn a_check_ends_under_a_clock_that_does_not_rest() {
    let server = Scripted::new(0);
    server.with_mark(|mark| mark.load(0));
    for _ in 0..10 {
        let events: [Event; 2] = [
            Box::new(|server| {
                server.step_clock(-10_000);
                server.pass_us(30_000);
            }),
            Box::new(|server| server.step_clock(10_000)),
        ];
        server.after_clock.borrow_mut().extend(events);
    }
    let end = server.us() + 6 * 30_000;
    assert_eq!(server.check(0), not_renewed(90));
    assert_eq!((server.us(), server.written()), (end, vec![]));
}
