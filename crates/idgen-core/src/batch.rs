//! The queue of batches. If batches took turns at a shard, all of them would end late, or never. So they take their ids
//! one after the other, in the order in which they asked.
//!
//! The queue consists of the batches that the backends publish, one each. A batch is not recorded anywhere else, so
//! nothing is left behind when a backend or its call ends, in whatever way.

use std::sync::atomic::{AtomicU64, Ordering};

use idgen_ids::Shard;

/// If the owner of a batch has not looked for this time, in milliseconds, the batch no longer causes others to be
/// refused: the owner may be stopped.
const AT_WORK_MS: u64 = 1000;

/// The batch of a backend, all zero if it has none. It changes only under the lock of its shard's slot, except that it
/// may be withdrawn at any time.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Batch {
    /// The number of the shard, plus 1.
    of: AtomicU64,
    /// The place in the queue. The batches of a shard stand in this order.
    place: AtomicU64,
    /// The number of ids that it still has to take.
    left: AtomicU64,
    /// When its owner last looked, in milliseconds since boot.
    looked_ms: AtomicU64,
}

impl Batch {
    /// Makes an entry without a batch.
    #[must_use]
    pub const fn none() -> Batch {
        Batch {
            of: AtomicU64::new(0),
            place: AtomicU64::new(0),
            left: AtomicU64::new(0),
            looked_ms: AtomicU64::new(0),
        }
    }

    /// Puts a batch of `count` ids at the end of a shard's queue. The caller holds the shard's lock.
    pub fn join<'a>(&self, queue: impl Iterator<Item = &'a Batch>, shard: Shard, count: u64, boot_ms: u64) {
        let last = of_shard(queue, shard).map(|batch| batch.place.load(Ordering::Relaxed)).max().unwrap_or(0);
        self.place.store(last + 1, Ordering::Relaxed);
        self.left.store(count, Ordering::Relaxed);
        self.looks(boot_ms);
        self.of.store(of(shard), Ordering::Relaxed);
    }

    /// The number of ids that earlier batches of its shard still have to take. The caller holds the shard's lock.
    pub fn ahead<'a>(&self, queue: impl Iterator<Item = &'a Batch>, shard: Shard) -> u64 {
        let own = self.place.load(Ordering::Relaxed);
        let before = of_shard(queue, shard).filter(|batch| batch.place.load(Ordering::Relaxed) < own);
        before.map(|batch| batch.left.load(Ordering::Relaxed)).sum()
    }

    /// Records that its owner is at work. The caller holds the shard's lock.
    pub fn looks(&self, boot_ms: u64) {
        self.looked_ms.store(boot_ms, Ordering::Relaxed);
    }

    /// Records that the batch has taken `count` of its ids. The caller holds the shard's lock.
    pub fn took(&self, count: u64) {
        self.left.store(self.left.load(Ordering::Relaxed).saturating_sub(count), Ordering::Relaxed);
    }

    /// Records that `count` of the ids that the batch had taken are lost. The caller holds the shard's lock.
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

/// The number of ids that batches of a shard still have to take, if their owners are at work. The caller holds the
/// shard's lock.
pub fn left<'a>(queue: impl Iterator<Item = &'a Batch>, shard: Shard, boot_ms: u64) -> u64 {
    let looked_ms = |batch: &&Batch| batch.looked_ms.load(Ordering::Relaxed);
    let at_work =
        of_shard(queue, shard).filter(|batch| boot_ms.saturating_sub(looked_ms(batch)) <= AT_WORK_MS);
    at_work.map(|batch| batch.left.load(Ordering::Relaxed)).sum()
}

fn of(shard: Shard) -> u64 {
    shard.index() as u64 + 1
}

/// The batches of a shard. A batch of another shard may change meanwhile, but cannot become one of this shard without
/// the lock.
fn of_shard<'a>(queue: impl Iterator<Item = &'a Batch>, shard: Shard) -> impl Iterator<Item = &'a Batch> {
    queue.filter(move |batch| batch.of.load(Ordering::Relaxed) == of(shard))
}
