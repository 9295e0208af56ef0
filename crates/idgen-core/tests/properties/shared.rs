use std::cell::Cell;
use std::sync::atomic::{Ordering, fence};

use idgen_core::mark::{Clocks, MarkState};
use idgen_core::shared::{Memory, Published, Word};

thread_local! {
    static STORES: Cell<usize> = const { Cell::new(0) };
}

/// A word that counts stores.
#[derive(Default)]
struct Counted(Cell<u64>);

impl Word for Counted {
    fn load(&self, _order: Ordering) -> u64 {
        self.0.get()
    }

    fn store(&self, value: u64, _order: Ordering) {
        STORES.set(STORES.get() + 1);
        self.0.set(value);
    }

    fn fetch_min(&self, value: u64, order: Ordering) {
        self.store(value.min(self.0.get()), order);
    }
}

#[derive(Default)]
struct Counting;

impl Memory for Counting {
    type Word = Counted;

    fn fence_after_txn_floor() {
        fence(Ordering::SeqCst);
    }

    fn fence_before_txn_floors() {
        fence(Ordering::SeqCst);
    }
}

/// What every call reads is written only if it changes.
#[test]
fn a_mark_that_says_nothing_new_is_not_published() {
    let published = Published::<Counting>::default();
    let mut mark = MarkState::default();
    let stores = |mark: &MarkState| {
        STORES.set(0);
        published.publish(mark);
        assert_eq!(published.limit(|| false), mark.limit(false));
        assert_eq!((published.floor(), published.recovered()), (mark.floor(), mark.recovered()));
        STORES.get() > 0
    };
    mark.load(7);
    assert!(stores(&mark) && !stores(&mark));
    mark.publish(12, false, Clocks::default(), 0);
    assert!(stores(&mark));
    assert!(mark.claim(5));
    mark.observe(Clocks { now: 9, boot_ms: 9 });
    mark.settle(7);
    assert!(!stores(&mark));
    mark.raise_floor(9, false);
    assert!(stores(&mark) && !stores(&mark));
}
