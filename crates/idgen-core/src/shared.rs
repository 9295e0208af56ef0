//! The words that processes share without a lock, and the order in which they are written and read. Two promises
//! stand on it: whoever sees a limit sees the floor that came before it, and of a transaction that begins to mint
//! and a reader that asks for the horizon at least one sees the other.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::id::Tick;
use crate::mark::Mark;

/// A word of shared memory.
pub trait Word {
    /// Reads it.
    fn load(&self, order: Ordering) -> u64;
    /// Writes it.
    fn store(&self, value: u64, order: Ordering);
    /// Writes the lesser of what it holds and `value`.
    fn fetch_min(&self, value: u64, order: Ordering);
}

/// Memory that processes share, with the orders that the promises need. Tests put another in its place, which tries
/// every order that the processor may choose, and leave out one of these at a time.
pub trait Memory {
    /// Its words.
    type Word: Word;
    /// How a limit is written: after the floor.
    const LIMIT_WRITTEN: Ordering = Ordering::Release;
    /// How a limit is read: before the floor.
    const LIMIT_READ: Ordering = Ordering::Acquire;
    /// How a transaction takes back its start: after its rows have become visible.
    const START_CLEARED: Ordering = Ordering::Release;
    /// How a reader looks at a start: before it looks at rows.
    const START_READ: Ordering = Ordering::Acquire;

    /// Stands between a transaction's start and its look at the floor.
    fn fence_after_start();
    /// Stands between the raised floor and the look at all starts.
    fn fence_before_starts();
}

/// The memory that there is.
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

/// What every call reads of the [`Mark`]. All zero at start.
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
    /// Publishes a mark. One process at a time does that, under the lock of the mark.
    pub fn publish(&self, mark: &Mark) {
        // The floor first: whoever sees the first limit of this run must see the floor too.
        self.floor.store(mark.floor(), Ordering::Relaxed);
        self.run_floor.store(mark.run_floor(), Ordering::Relaxed);
        self.acknowledged.store(mark.limit(true), Ordering::Relaxed);
        self.awaited.store(mark.awaited(), Ordering::Relaxed);
        self.limit.store(mark.limit(false), M::LIMIT_WRITTEN);
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

    /// [`Mark::awaited`]. It says only when to look at the mark again, so it may be that of a while ago.
    #[inline]
    pub fn awaited(&self) -> u64 {
        self.awaited.load(Ordering::Relaxed)
    }

    /// The exclusive end of the ticks that may be issued. Read it before the floor. A limit read a while ago is a
    /// lower one, and so still true.
    ///
    /// Where standbys have not acknowledged it, this asks whether they have to: synchronous replication may have
    /// begun since it was published.
    #[inline]
    pub fn limit(&self, standbys_must_acknowledge: impl FnOnce() -> bool) -> Tick {
        let limit = self.limit.load(M::LIMIT_READ);
        let acknowledged = self.acknowledged.load(Ordering::Relaxed);
        if limit > acknowledged && standbys_must_acknowledge() { acknowledged } else { limit }
    }
}

/// From which tick on the ids of a backend's open transaction lie.
#[derive(Debug)]
#[repr(transparent)]
pub struct Start<M: Memory = Real>(M::Word);

/// A backend whose transaction has minted no id.
const NOT_STARTED: Tick = Tick::MAX;

impl Start {
    /// That of a backend whose transaction has minted no id.
    #[must_use]
    pub const fn none() -> Start {
        Start(AtomicU64::new(NOT_STARTED))
    }
}

impl<M: Memory> Start<M> {
    /// A start in a word that holds `u64::MAX`, as long as the transaction has minted no id.
    pub const fn new(word: M::Word) -> Start<M> {
        Start(word)
    }

    /// Publishes that the open transaction mints ids of `tick` or later. The floor that bounds them is to be
    /// read afterwards: of this and [`Start::oldest`] after a raise of the floor, at least one sees
    /// what the other has written.
    pub fn publish(&self, tick: Tick) {
        self.0.fetch_min(tick, Ordering::Relaxed);
        M::fence_after_start();
    }

    /// Takes back what the transaction has published.
    pub fn clear(&self) {
        if self.0.load(Ordering::Relaxed) != NOT_STARTED {
            self.0.store(NOT_STARTED, M::START_CLEARED);
        }
    }

    /// The tick from which on the ids of all open transactions lie.
    pub fn oldest<'a>(starts: impl IntoIterator<Item = &'a Start<M>>) -> Tick
    where
        M: 'a,
    {
        M::fence_before_starts();
        starts.into_iter().map(|start| start.0.load(M::START_READ)).min().unwrap_or(NOT_STARTED)
    }
}
