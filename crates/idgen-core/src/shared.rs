//! The words that processes share without a lock, and the order in which they are written and read. Two guarantees
//! rest on that order: a process that sees a limit also sees the floor that was written before it; and of a
//! transaction that begins to mint and a reader that requests the horizon, at least one sees the other.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use idgen_ids::id::Tick;

use crate::mark::Mark;

/// A word of shared memory.
pub trait Word {
    /// Reads it.
    fn load(&self, order: Ordering) -> u64;
    /// Writes it.
    fn store(&self, value: u64, order: Ordering);
    /// Writes the lesser of its value and `value`.
    fn fetch_min(&self, value: u64, order: Ordering);
}

/// Memory that processes share, with the orderings that the guarantees need. Tests substitute a memory that tries
/// every order that the processor may choose, and omit one of these orderings at a time.
pub trait Memory {
    /// The type of its words.
    type Word: Word;
    /// Ordering for writing a limit: after the floor.
    const LIMIT_WRITTEN: Ordering = Ordering::Release;
    /// Ordering for reading a limit: before the floor.
    const LIMIT_READ: Ordering = Ordering::Acquire;
    /// Ordering for withdrawing the start of a transaction: after its rows have become visible.
    const START_CLEARED: Ordering = Ordering::Release;
    /// Ordering for reading a start: before the reader looks at rows.
    const START_READ: Ordering = Ordering::Acquire;

    /// The fence between publishing a transaction's start and reading the floor.
    fn fence_after_start();
    /// The fence between raising the floor and reading all starts.
    fn fence_before_starts();
}

/// The memory of the machine.
#[derive(Debug, Default)]
pub struct Real;

impl Memory for Real {
    type Word = AtomicU64;

    #[inline]
    fn fence_after_start() {
        fence(Ordering::SeqCst);
    }

    #[inline]
    fn fence_before_starts() {
        fence(Ordering::SeqCst);
    }
}

impl Word for AtomicU64 {
    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        AtomicU64::load(self, order)
    }

    #[inline]
    fn store(&self, value: u64, order: Ordering) {
        AtomicU64::store(self, value, order);
    }

    #[inline]
    fn fetch_min(&self, value: u64, order: Ordering) {
        AtomicU64::fetch_min(self, value, order);
    }
}

/// The part of the [`Mark`] that every call reads. All zero at start.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Published<M: Memory = Real> {
    floor: M::Word,
    run_floor: M::Word,
    limit: M::Word,
    acknowledged: M::Word,
    awaited: M::Word,
}

impl<M: Memory> Published<M> {
    /// Publishes a mark. Only one process at a time does so, under the lock of the mark.
    pub fn publish(&self, mark: &Mark) {
        let words = [
            (&self.floor, mark.floor()),
            (&self.run_floor, mark.run_floor()),
            (&self.acknowledged, mark.limit(true)),
            (&self.awaited, mark.awaited()),
            (&self.limit, mark.limit(false)),
        ];
        // A store takes the line away from every call.
        if words.iter().all(|(word, value)| word.load(Ordering::Relaxed) == *value) {
            return;
        }
        // The floor first: a process that sees the first limit of this run must see the floor too.
        let [before @ .., (limit, value)] = words;
        for (word, value) in before {
            word.store(value, Ordering::Relaxed);
        }
        limit.store(value, M::LIMIT_WRITTEN);
    }

    /// [`Mark::floor`].
    #[inline]
    pub fn floor(&self) -> Tick {
        self.floor.load(Ordering::Relaxed)
    }

    /// [`Mark::run_floor`].
    #[inline]
    pub fn run_floor(&self) -> Tick {
        self.run_floor.load(Ordering::Relaxed)
    }

    /// [`Mark::awaited`]. It only says when to look at the mark again, so it may be out of date.
    #[inline]
    pub fn awaited(&self) -> u64 {
        self.awaited.load(Ordering::Relaxed)
    }

    /// The exclusive end of the ticks that may be issued. Read it before the floor. A limit that is out of date is
    /// lower than the current one, and thus still valid.
    ///
    /// If standbys have not acknowledged the limit, this asks whether they have to, because synchronous replication
    /// may have begun since it was published.
    #[inline]
    pub fn limit(&self, standbys_must_acknowledge: impl FnOnce() -> bool) -> Tick {
        let limit = self.limit.load(M::LIMIT_READ);
        let acknowledged = self.acknowledged.load(Ordering::Relaxed);
        if limit > acknowledged && standbys_must_acknowledge() { acknowledged } else { limit }
    }
}

/// Lower bound of the ticks of the ids of a backend's open transaction.
#[derive(Debug)]
#[repr(transparent)]
pub struct Start<M: Memory = Real>(M::Word);

/// The value for a backend whose transaction has minted no id.
const NOT_STARTED: Tick = Tick::MAX;

impl Start {
    /// The start of a backend whose transaction has minted no id.
    #[must_use]
    pub const fn none() -> Start {
        Start(AtomicU64::new(NOT_STARTED))
    }
}

impl<M: Memory> Start<M> {
    /// A start in a word, which must hold `u64::MAX` until the transaction mints an id.
    pub const fn new(word: M::Word) -> Start<M> {
        Start(word)
    }

    /// Publishes that the open transaction mints ids of `tick` or later. Read the floor that bounds them
    /// afterwards: of this call and a [`Start::oldest`] that follows a raise of the floor, at least one sees what
    /// the other has written.
    pub fn publish(&self, tick: Tick) {
        self.0.fetch_min(tick, Ordering::Relaxed);
        M::fence_after_start();
    }

    /// Withdraws the start that the transaction has published.
    pub fn clear(&self) {
        if self.0.load(Ordering::Relaxed) != NOT_STARTED {
            self.0.store(NOT_STARTED, M::START_CLEARED);
        }
    }

    /// Lower bound of the ticks of the ids of all open transactions.
    pub fn oldest<'a>(starts: impl IntoIterator<Item = &'a Start<M>>) -> Tick
    where
        M: 'a,
    {
        M::fence_before_starts();
        starts.into_iter().map(|start| start.0.load(M::START_READ)).min().unwrap_or(NOT_STARTED)
    }
}
