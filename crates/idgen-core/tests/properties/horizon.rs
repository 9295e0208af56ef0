use idgen_core::error::Error;
use idgen_ids::id::MAX_TICK;
use idgen_ids::{Tick, min_id};

use crate::host::{Answer, NOW, Scripted, not_renewed, refused};
use crate::tick_of;

/// A server that was renewed once, with no transaction open.
fn running() -> Scripted {
    let server = Scripted::new(0);
    server.id(3, 9).unwrap();
    server.end_transaction(3);
    server
}

/// The tick of the horizon.
fn horizon(server: &Scripted) -> Answer<Tick> {
    let horizon = server.horizon()?;
    assert_eq!(horizon, min_id(tick_of(horizon)), "the first id of its millisecond");
    Ok(tick_of(horizon))
}

/// A batch, as a single id, is known of before it is taken; the horizon does not cover JavaScript-safe ids.
#[test]
fn the_horizon_covers_ids_and_batches() {
    let server = running();
    server.pass_us(10_000);
    server.js_id(0, 5).unwrap();
    server.pass_us(10_000);
    assert_eq!(horizon(&server), Ok(NOW + 20));
    let ids = server.ids(1, 5, 10).unwrap();
    server.pass_us(10_000);
    assert_eq!(horizon(&server), Ok(NOW + 20));
    assert!(ids[0] >= min_id(NOW + 20));
    // The mark is due: the id comes by the other path.
    server.end_transaction(1);
    server.pass_us(600_000);
    let id = server.id(1, 6).unwrap();
    server.pass_us(1000);
    assert_eq!(horizon(&server), Ok(tick_of(id)));
    // A second that has begun before the horizon may still be handed out.
    assert!(server.js_id(0, 5).is_ok_and(|id| (id >> 20) as u64 * 1000 < tick_of(server.horizon().unwrap())));
}

/// If the clock is set back within a transaction, its floor is published again.
#[test]
fn a_clock_set_back_moves_the_floor_of_a_transaction() {
    let server = running().with(|settings| settings.max_ahead_ms = 50);
    server.pass_us(30_000);
    server.id(0, 5).unwrap();
    server.step_clock(-10);
    assert_eq!(server.id(0, 6).map(tick_of), Ok(NOW + 20));
    server.pass_us(30_000);
    assert_eq!(horizon(&server), Ok(NOW + 20));
}

/// The horizon is not further than ids may have got, whatever the clock shows: at the beginning of an incarnation it is
/// the mark of the one before.
#[test]
fn the_horizon_ends_where_ids_do() {
    assert_eq!(horizon(&Scripted::new(NOW - 20)), Ok(NOW - 20));
    assert_eq!(horizon(&Scripted::new(NOW + 20)), Ok(NOW + 20), "settled before");
    let server = running();
    server.step_clock(1_000_000);
    assert_eq!(horizon(&server), Ok(NOW + 1000));
    // The last millisecond is a part of the range that has no end of its own.
    let server = Scripted::new(0);
    server.set_clock(MAX_TICK);
    server.id(0, 5).unwrap();
    server.end_transaction(0);
    server.step_clock(10);
    assert_eq!(horizon(&server), Ok(MAX_TICK));
}

/// If the horizon cannot be known, there is an error and no result. A transaction that is prepared while a reader looks
/// is either open to it or prepared.
#[test]
fn the_horizon_is_refused_where_it_cannot_be_known() {
    let server = running();
    server.prepared.set(2);
    assert_eq!(horizon(&server), refused(Error::Prepared { count: 2 }));
    server.prepared.set(0);
    assert_eq!(horizon(&server), Ok(NOW));
    server.id(0, 5).unwrap();
    server.pass_us(10_000);
    *server.before_backends.borrow_mut() = Some(Box::new(|server| {
        server.end_transaction(0);
        server.prepared.set(1);
    }));
    assert_eq!(horizon(&server), refused(Error::Prepared { count: 1 }));
    server.step_clock(-100_000_000);
    assert_eq!(horizon(&server), Err(None));
    let server = Scripted::new(NOW);
    server.recovery.set(true);
    assert_eq!(horizon(&server), refused(Error::Recovery));
}

/// Promise 6 across a failover: the horizon goes no further than the marks that standbys have.
#[test]
fn the_horizon_waits_for_standbys() {
    let server = running();
    server.pass_us(10_000);
    assert_eq!(horizon(&server), Ok(NOW + 10));
    // Returned before the standbys existed: they must have the mark on which it rests.
    let server = server.with_standbys(None);
    server.pass_us(10_000);
    assert_eq!(horizon(&server), not_renewed(80));
    assert_eq!(server.written(), [NOW + 1000, NOW + 10]);
    server.acknowledge_us.set(Some(0));
    assert_eq!(horizon(&server), Ok(NOW + 10), "no further than that");
    server.id(0, 5).unwrap();
    server.end_transaction(0);
    assert_eq!(horizon(&server), Ok(server.tick()));
}
