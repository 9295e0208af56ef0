use idgen_core::mint::Error;
use idgen_ids::id::MAX_TICK;
use idgen_ids::{decode, min_id};

use crate::server::{NOW, Refused, Scripted};
use crate::{js_shard, shard};

/// A server that was renewed once, with no transaction open.
fn running() -> Scripted {
    let server = Scripted::new(0);
    server.id(3, shard(9)).unwrap();
    server.end_transaction(3);
    server
}

/// Promise 6: the horizon is that of the clock if no open transaction has minted, and otherwise lies below every id
/// of those that have.
#[test]
fn the_horizon_lies_below_open_transactions() {
    let server = running();
    server.pass_us(10_000);
    let early = server.id(0, shard(5)).unwrap();
    server.pass_us(10_000);
    server.id(1, shard(6)).unwrap();
    server.pass_us(10_000);
    assert_eq!(server.horizon(), Ok(min_id(NOW + 10)));
    assert!(server.horizon().unwrap() <= early);
    server.end_transaction(0);
    assert_eq!(server.horizon(), Ok(min_id(NOW + 20)));
    // A transaction continues with later ids, but counts from its first one.
    server.pass_us(10_000);
    server.id(1, shard(6)).unwrap();
    assert_eq!(server.horizon(), Ok(min_id(NOW + 20)));
    server.end_transaction(1);
    assert_eq!(server.horizon(), Ok(min_id(NOW + 40)));
    // A new transaction counts from its own first id.
    server.pass_us(1000);
    server.id(1, shard(6)).unwrap();
    server.pass_us(1000);
    assert_eq!(server.horizon(), Ok(min_id(NOW + 41)));
}

/// A batch, as a single id, is known of before it is taken; a JavaScript-safe id is none that the horizon speaks of.
#[test]
fn the_horizon_speaks_of_ids_and_batches() {
    let server = running();
    server.pass_us(10_000);
    server.js_id(0, js_shard(5)).unwrap();
    server.pass_us(10_000);
    assert_eq!(server.horizon(), Ok(min_id(NOW + 20)));
    let ids = server.ids(1, shard(5), 10).unwrap();
    server.pass_us(10_000);
    assert_eq!(server.horizon(), Ok(min_id(NOW + 20)));
    assert!(ids[0] >= min_id(NOW + 20));
    // The mark is due: the id comes by the other path.
    server.end_transaction(1);
    server.pass_us(600_000);
    let id = server.id(1, shard(6)).unwrap();
    server.pass_us(1000);
    assert_eq!(server.horizon(), Ok(min_id(decode(id).tick)));
}

/// If the clock is set back within a transaction, its start is published again.
#[test]
fn a_clock_set_back_moves_the_start_of_a_transaction() {
    let server = running();
    server.max_ahead.set(50);
    server.pass_us(30_000);
    server.id(0, shard(5)).unwrap();
    server.step_clock(-10);
    let id = server.id(0, shard(6)).unwrap();
    assert_eq!(decode(id).tick, NOW + 20);
    server.pass_us(30_000);
    assert_eq!(server.horizon(), Ok(min_id(NOW + 20)));
}

/// Promise 6: settled ids stay settled. No id is minted below a horizon that was returned, neither from a lease nor
/// under a clock that was set back, and the horizon itself does not go back.
#[test]
fn nothing_is_minted_below_the_horizon() {
    let server = running();
    server.max_ahead.set(50);
    server.pass_us(30_000);
    for _ in 0..2 {
        server.id(0, shard(5)).unwrap();
    }
    server.end_transaction(0);
    let horizon = server.horizon().unwrap();
    assert_eq!(horizon, min_id(NOW + 30));
    server.step_clock(-10);
    assert_eq!(server.horizon(), Ok(horizon));
    assert!(server.id(0, shard(5)).unwrap() >= horizon);
    let other = server.id(1, shard(7)).unwrap();
    assert!(other >= horizon && server.tick() < decode(other).tick);
    assert_eq!(server.horizon(), Ok(horizon), "the clock and the transactions lie below it");
    // A second that has begun before may still be handed out.
    assert!(server.js_id(2, js_shard(5)).is_ok_and(|id| (id >> 20) as u64 * 1000 == NOW));
    let crashed = server.crashed(NOW - 500);
    assert!(crashed.horizon().unwrap() >= horizon);
}

/// The horizon is not further than ids may have got, whatever the clock shows: of a run that begins it is the mark of
/// the one before.
#[test]
fn the_horizon_ends_where_ids_do() {
    let server = Scripted::new(NOW - 20);
    assert_eq!(server.horizon(), Ok(min_id(NOW - 20)));
    let server = Scripted::new(NOW + 20);
    assert_eq!(server.horizon(), Ok(min_id(NOW + 20)), "settled before");
    let server = running();
    server.step_clock(1_000_000);
    assert_eq!(server.horizon(), Ok(min_id(NOW + 1000)));
    // The last millisecond is a part of the range that has no end of its own.
    let server = Scripted::new(0);
    server.set_clock(MAX_TICK);
    server.id(0, shard(5)).unwrap();
    server.end_transaction(0);
    server.step_clock(10);
    assert_eq!(server.horizon(), Ok(min_id(MAX_TICK)));
}

/// If the horizon cannot be known, there is an error and no result.
#[test]
fn the_horizon_is_refused_where_it_cannot_be_known() {
    let server = running();
    server.prepared.set(2);
    assert_eq!(server.horizon(), Err(Refused::Mint(Error::Prepared { count: 2 })));
    server.prepared.set(0);
    assert_eq!(server.horizon(), Ok(min_id(NOW)));
    server.step_clock(-100_000_000);
    assert_eq!(server.horizon(), Err(Refused::Clock));
    let server = Scripted::new(NOW);
    server.recovery.set(true);
    assert_eq!(server.horizon(), Err(Refused::Mint(Error::Recovery)));
}

/// A transaction that is prepared while a reader looks is either open to it or prepared.
#[test]
fn a_transaction_that_is_prepared_meanwhile_is_seen() {
    let server = running();
    server.id(0, shard(5)).unwrap();
    server.pass_us(10_000);
    *server.before_starts.borrow_mut() = Some(Box::new(|server| {
        server.end_transaction(0);
        server.prepared.set(1);
    }));
    assert_eq!(server.horizon(), Err(Refused::Mint(Error::Prepared { count: 1 })));
}

/// Promise 6 across a failover: the horizon goes no further than the marks that standbys have.
#[test]
fn the_horizon_waits_for_standbys() {
    let server = running();
    server.pass_us(10_000);
    assert_eq!(server.horizon(), Ok(min_id(NOW + 10)));
    // Returned before the standbys existed: they must have the mark on which it rests.
    server.standbys.set(true);
    server.acknowledge_us.set(None);
    server.pass_us(10_000);
    let error = Error::MarkNotRenewed { waited_ms: 80 };
    assert_eq!(server.horizon(), Err(Refused::Mint(error)));
    assert_eq!(server.written(), [NOW + 1000, NOW + 10]);
    server.acknowledge_us.set(Some(0));
    assert_eq!(server.horizon(), Ok(min_id(NOW + 10)), "no further than that");
    server.id(0, shard(5)).unwrap();
    server.end_transaction(0);
    assert_eq!(server.horizon(), Ok(min_id(server.tick())));
}
