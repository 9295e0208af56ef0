//! The protocol of the shared words, in every interleaving and every order of memory that loom knows. Also shows that
//! no ordering or fence can be left out.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::Ordering;

use idgen_core::mark::{Clocks, MarkState};
use idgen_core::shared::{Memory, Published, TxnFloor, Word};
use loom::sync::atomic::{AtomicU64, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// A word that loom watches.
#[derive(Debug, Default)]
struct Watched(AtomicU64);

impl Word for Watched {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }

    fn fetch_min(&self, value: u64, order: Ordering) {
        self.0.fetch_min(value, order);
    }
}

/// A memory of such words, without the named orderings.
macro_rules! memory {
    ($name:ident $(, $order:ident = $weaker:expr)* ; $after_txn_floor:expr, $before_txn_floors:expr) => {
        #[derive(Debug, Default)]
        struct $name;

        impl Memory for $name {
            type Word = Watched;
            $(const $order: Ordering = $weaker;)*

            fn fence_after_txn_floor() {
                if $after_txn_floor {
                    fence(Ordering::SeqCst);
                }
            }

            fn fence_before_txn_floors() {
                if $before_txn_floors {
                    fence(Ordering::SeqCst);
                }
            }
        }
    };
}

memory!(Whole; true, true);
memory!(LimitWrittenRelaxed, LIMIT_WRITTEN = Ordering::Relaxed; true, true);
memory!(LimitReadRelaxed, LIMIT_READ = Ordering::Relaxed; true, true);
memory!(TxnFloorClearedRelaxed, TXN_FLOOR_CLEARED = Ordering::Relaxed; true, true);
memory!(TxnFloorReadRelaxed, TXN_FLOOR_READ = Ordering::Relaxed; true, true);
memory!(NoFenceAfterTxnFloor; false, true);
memory!(NoFenceBeforeTxnFloors; true, false);

/// Tries every interleaving, and returns whether none fails. An error of loom itself is not a result.
fn holds(f: impl Fn() + Sync + Send + 'static) -> bool {
    let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| loom::model(f))) else {
        return true;
    };
    let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(text.contains(BROKEN), "{text}");
    false
}

const BROKEN: &str = "the promise is broken";

/// An incarnation of the server begins: a backend that sees its first limit also sees the floor at which it begins.
fn limit_and_floor<M: Memory<Word = Watched> + Default + Send + Sync + 'static>() {
    const FLOOR: u64 = 7;
    let published = Arc::new(Published::<M>::default());
    let renewing = {
        let published = published.clone();
        thread::spawn(move || {
            let mut mark = MarkState::default();
            mark.load(FLOOR);
            published.publish(&mark);
            mark.publish(FLOOR + 5, true, Clocks::default(), 0);
            published.publish(&mark);
        })
    };
    if published.limit(|| false) > 0 {
        assert_eq!(published.floor(), FLOOR, "{BROKEN}");
    }
    renewing.join().unwrap();
}

/// A transaction mints and commits while a reader asks for the horizon: ids minted below the horizon are visible to the
/// reader.
fn txn_floor_and_horizon<M: Memory<Word = Watched> + Default + Send + Sync + 'static>() {
    const CLOCK_OF_MINTER: u64 = 3;
    const CLOCK_OF_READER: u64 = 5;
    const NONE: u64 = u64::MAX;
    let published = Arc::new(Published::<M>::default());
    let txn_floor = Arc::new(TxnFloor::<M>::new(Watched(AtomicU64::new(NONE))));
    // The tick of a committed row; 0 if there is none.
    let row = Arc::new(AtomicU64::new(0));
    let minting = {
        let (published, txn_floor, row) = (published.clone(), txn_floor.clone(), row.clone());
        thread::spawn(move || {
            txn_floor.publish(CLOCK_OF_MINTER);
            let tick = CLOCK_OF_MINTER.max(published.floor());
            row.store(tick, Ordering::Relaxed);
            txn_floor.clear();
            tick
        })
    };
    let mut mark = MarkState::default();
    mark.load(0);
    mark.publish(9, true, Clocks::default(), 0);
    let reached = mark.raise_floor(CLOCK_OF_READER, false);
    published.publish(&mark);
    let horizon = reached.min(TxnFloor::oldest([&*txn_floor]));
    let seen = row.load(Ordering::Relaxed);
    let minted = minting.join().unwrap();
    assert!(minted >= horizon || seen == minted, "{BROKEN}: {minted} is below {horizon}, and not seen");
}

/// The same for a reader that finds the floor already raised by another reader, and writes nothing.
fn txn_floor_and_second_horizon<M: Memory<Word = Watched> + Default + Send + Sync + 'static>() {
    const CLOCK_OF_MINTER: u64 = 3;
    const CLOCK_OF_READERS: u64 = 5;
    let mut mark = MarkState::default();
    mark.load(0);
    mark.publish(9, true, Clocks::default(), 0);
    let mark = Arc::new(Mutex::new(mark));
    let published = Arc::new(Published::<M>::default());
    let txn_floor = Arc::new(TxnFloor::<M>::new(Watched(AtomicU64::new(u64::MAX))));
    let minting = {
        let (published, txn_floor) = (published.clone(), txn_floor.clone());
        thread::spawn(move || {
            txn_floor.publish(CLOCK_OF_MINTER);
            CLOCK_OF_MINTER.max(published.floor())
        })
    };
    let first = {
        let (published, mark) = (published.clone(), mark.clone());
        thread::spawn(move || {
            let mut mark = mark.lock().unwrap();
            mark.raise_floor(CLOCK_OF_READERS, false);
            published.publish(&mark);
        })
    };
    let before = *mark.lock().unwrap();
    let mut copy = before;
    let reached = copy.raise_floor(CLOCK_OF_READERS, false);
    let horizon = reached.min(TxnFloor::oldest([&*txn_floor]));
    let minted = minting.join().unwrap();
    first.join().unwrap();
    if copy == before {
        assert!(minted >= horizon, "{BROKEN}: {minted} is below {horizon}");
    }
}

/// Promise 1: no incarnation of the server mints an id that the previous one has minted.
#[test]
fn who_sees_a_limit_sees_its_floor() {
    assert!(holds(limit_and_floor::<Whole>));
}

/// All ids below the horizon are settled.
#[test]
fn one_of_the_floors_is_seen() {
    assert!(holds(txn_floor_and_horizon::<Whole>));
    assert!(holds(txn_floor_and_second_horizon::<Whole>));
}

/// Each ordering and fence is needed: without it, one of the two promises does not hold.
#[test]
fn each_order_counts() {
    assert!(!holds(limit_and_floor::<LimitWrittenRelaxed>));
    assert!(!holds(limit_and_floor::<LimitReadRelaxed>));
    assert!(!holds(txn_floor_and_horizon::<TxnFloorClearedRelaxed>));
    assert!(!holds(txn_floor_and_horizon::<TxnFloorReadRelaxed>));
    assert!(!holds(txn_floor_and_horizon::<NoFenceAfterTxnFloor>));
    assert!(!holds(txn_floor_and_horizon::<NoFenceBeforeTxnFloors>));
    assert!(!holds(txn_floor_and_second_horizon::<NoFenceAfterTxnFloor>));
    assert!(!holds(txn_floor_and_second_horizon::<NoFenceBeforeTxnFloors>));
}
