use idgen_core::mark::{Clocks, Written};
use idgen_core::mint::{Error, QUEUE_MS};
use idgen_core::renew::load;
use idgen_core::server::{Server, Slots, Wait};
use idgen_core::slot::Slot;
use idgen_ids::id::MAX_TICK;

use crate::server::{Event, NOW, Refused, Scripted};
use crate::shard;

/// It renews the mark if a call for an id would, and takes no id.
#[test]
fn a_check_renews_the_mark_and_mints_nothing() {
    let server = Scripted::new(NOW - 5);
    assert_eq!(server.check(0), Ok(NOW + 1000));
    assert_eq!(server.written(), [NOW + 1000]);
    server.pass_us(400_000);
    assert_eq!(server.check(0), Ok(NOW + 1000));
    assert_eq!(server.written().len(), 1);
    server.pass_us(100_000);
    assert_eq!(server.check(0), Ok(NOW + 1000), "the next mark is on its way");
    assert_eq!(server.written(), [NOW + 1000, NOW + 1500]);
    server.pass_us(600_000);
    assert_eq!(server.check(0), Ok(NOW + 1500), "it was");
    server.pass_us(10_000_000);
    assert_eq!(server.check(0), Ok(NOW + 11_100 + 1000));
    assert_eq!(server.slot(shard(5)), Slot::default());
    assert_eq!(server.oldest_start(), u64::MAX, "no reader of the horizon waits for it");
    assert_eq!(server.sleeps(), []);
    server.pass_us(1_000_000);
    assert_eq!(server.check(0), Ok(NOW + 12_100 + 1000), "no id is of the limit");
}

/// It fails where every call for an id fails, by the same error, and after the same wait.
#[test]
fn a_check_fails_as_a_call_for_an_id_does() {
    type Trouble = fn(&Scripted);
    let troubles: [(&str, Trouble); 8] = [
        ("settings", |server| server.allowed.set(false)),
        ("the clock before the epoch", |server| server.step_clock(-100_000_000)),
        ("recovery", |server| server.recovery.set(true)),
        ("the end of the range", |server| server.set_clock(MAX_TICK + 1)),
        ("standbys", |server| {
            server.standbys.set(true);
            server.acknowledge_us.set(None);
        }),
        ("another one that waits for standbys", |server| {
            server.standbys.set(true);
            server.acknowledge_us.set(None);
            load(server).unwrap();
            let forever = server.boot_ms() + 3_600_000;
            let written = Written { tick: NOW + 1000, lsn: server.write_mark(NOW + 1000), at_us: 0 };
            server.flush(written.lsn);
            server.with_mark(|mark| {
                assert!(mark.claim(forever));
                mark.wrote(written, true, forever);
            });
        }),
        ("a leap", |server| {
            server.max_jump.set(Some(500));
            server.with_mark(|mark| mark.publish(0, false, Clocks { now: NOW - 1000, boot_ms: 5000 }, 0));
        }),
        ("the clock behind the mark", |server| server.set_clock(NOW - 500)),
    ];
    for (name, trouble) in troubles {
        let [called, checked] = [false, true].map(|check| {
            let server = Scripted::new(NOW - 5);
            trouble(&server);
            let start = server.us();
            let result = if check { server.check(0).map(|_| 0) } else { server.id(0, shard(5)) };
            (result, server.us() - start)
        });
        assert!(called.0.is_err(), "{name}");
        assert_eq!(called, checked, "{name}");
    }
}

/// Where the clock was set back it fails for the shards in use, although another shard might mint: by a floor that a
/// reader of the horizon has raised, or by the furthest id.
#[test]
fn a_check_fails_while_the_clock_is_behind_the_ids() {
    let behind = |by_ms| {
        let error = Error::ClockBehindIds { by_ms, max_ahead_ms: 10, waited_ms: 80 };
        Err(Refused::Mint(error))
    };
    let server = Scripted::new(0);
    server.max_ahead.set(10);
    server.id(0, shard(5)).unwrap();
    server.end_transaction(0);
    server.step_clock(-500);
    assert_eq!(server.check(NOW), behind(500 - 80 - QUEUE_MS));
    assert_eq!(server.sleeps(), [(50_000, Wait::Clock), (30_000, Wait::Clock)]);
    assert!(server.check(0).is_ok());
    server.step_clock(420);
    server.horizon().unwrap();
    server.step_clock(-500);
    assert_eq!(server.check(0), behind(500 - 80));
    // It waits no longer than it has to.
    server.step_clock(340);
    server.sleeps();
    assert!(server.check(0).is_ok());
    assert_eq!(server.sleeps(), [(50_000, Wait::Clock), (20_000, Wait::Clock)]);
    // As far ahead as calls go that queue for a full shard.
    assert!(server.check(server.tick() + 10 + QUEUE_MS).is_ok());
    assert_eq!(server.sleeps(), []);
}

/// A call that does not wait renews the mark nevertheless, and goes by the clock as it is when the wait is over.
#[test]
fn a_check_without_patience_does_what_it_can() {
    let server = Scripted::new(NOW - 5);
    server.max_wait.set(0);
    assert_eq!(server.check(0), Ok(NOW + 1000));
    let ahead = |ms| server.check(server.tick() + ms + QUEUE_MS);
    let error = Error::ClockBehindIds { by_ms: 5, max_ahead_ms: 0, waited_ms: 0 };
    assert_eq!(ahead(5), Err(Refused::Mint(error)));
    let behind = server.tick() + 5 + QUEUE_MS;
    server.after_clock.borrow_mut().push_back(Box::new(|server| server.pass_us(5000)));
    assert!(server.check(behind).is_ok());
    let server = Scripted::new(NOW + 10);
    server.max_wait.set(0);
    server.max_ahead.set(10);
    let error = Error::ClockBehindIds { by_ms: 11, max_ahead_ms: 10, waited_ms: 0 };
    assert_eq!(server.check(NOW + 11 + QUEUE_MS), Err(Refused::Mint(error)), "the mark is no trouble");
    let server = Scripted::new(0);
    server.set_clock(MAX_TICK);
    assert_eq!(server.check(0), Ok(MAX_TICK + 1), "the last one");
}

/// It ends although the clock is set back whenever it would renew the mark: the third look begins to wait.
#[test]
fn a_check_ends_under_a_clock_that_does_not_rest() {
    let server = Scripted::new(0);
    server.max_jump.set(None);
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
    let error = Error::MarkNotRenewed { waited_ms: 90 };
    assert_eq!(server.check(0), Err(Refused::Mint(error)));
    assert_eq!((server.us(), server.written()), (end, vec![]));
}
