//! The queue of batches. Batches that share a shard by turns would all end late, or never. So they take their ids one
//! after the other, in the order in which they asked.
//!
//! The queue is what the backends publish, each its own batch. Nothing else remembers a batch, so whatever ends a
//! backend or its call leaves nothing behind.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::id::Shard;

/// The batch of a backend. It changes only under the lock of its shard's slot, except that it may be withdrawn at any
/// time. All zero if there is none.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Batch {
    /// The number of the shard, plus 1.
    of: AtomicU64,
    /// The place in the queue. The batches of a shard stand in this order.
    place: AtomicU64,
    /// How many ids it has still to take.
    left: AtomicU64,
}

impl Batch {
    /// No batch.
    #[must_use]
    pub const fn none() -> Batch {
        Batch { of: AtomicU64::new(0), place: AtomicU64::new(0), left: AtomicU64::new(0) }
    }

    /// Puts a batch of `count` ids at the end of the queue of a shard, whose lock the caller holds.
    pub fn join(&self, queue: &[Batch], shard: Shard, count: u64) {
        let last = places(queue, shard).map(|(place, _)| place).max().unwrap_or(0);
        self.place.store(last + 1, Ordering::Relaxed);
        self.left.store(count, Ordering::Relaxed);
        self.of.store(of(shard), Ordering::Relaxed);
    }

    /// How many ids the batches of its shard before this one have still to take. The caller holds the shard's lock.
    pub fn ahead(&self, queue: &[Batch], shard: Shard) -> u64 {
        let own = self.place.load(Ordering::Relaxed);
        places(queue, shard).filter(|(place, _)| *place < own).map(|(_, left)| left).sum()
    }

    /// Records that the batch has taken so many of its ids. The caller holds the shard's lock.
    pub fn took(&self, count: u64) {
        self.left.store(self.left.load(Ordering::Relaxed).saturating_sub(count), Ordering::Relaxed);
    }

    /// Records that so many of the ids that it has taken are lost. The caller holds the shard's lock.
    pub fn lost(&self, count: u64) {
        self.left.store(self.left.load(Ordering::Relaxed).saturating_add(count), Ordering::Relaxed);
    }

    /// Withdraws the batch.
    pub fn leave(&self) {
        if self.of.load(Ordering::Relaxed) != 0 {
            self.of.store(0, Ordering::Relaxed);
        }
    }
}

/// How many ids the batches of a shard have still to take. The caller holds the shard's lock.
pub fn left(queue: &[Batch], shard: Shard) -> u64 {
    places(queue, shard).map(|(_, left)| left).sum()
}

fn of(shard: Shard) -> u64 {
    shard.index() as u64 + 1
}

/// The places of a shard's batches, and how many ids each has still to take. A batch of another shard may change
/// meanwhile, but it does not become one of this shard without the lock.
fn places(queue: &[Batch], shard: Shard) -> impl Iterator<Item = (u64, u64)> + '_ {
    let of_shard = move |batch: &&Batch| batch.of.load(Ordering::Relaxed) == of(shard);
    let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
    queue.iter().filter(of_shard).map(move |batch| (load(&batch.place), load(&batch.left)))
}
