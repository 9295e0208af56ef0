//! The state that processes share: what lies behind locks, and the words that are read without one.
//!
//! Two guarantees rest on the order in which these words are written and read: a process that sees a limit also sees
//! the floor that was written before it; and of a transaction that begins to mint and a reader that requests the
//! horizon, at least one sees the other.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use idgen_ids::id::{MAX_TICK, SHARDS};
use idgen_ids::js::{JS_SHARDS, JsShard};
use idgen_ids::{Shard, Tick};

use crate::batch::Batch;
use crate::mark::MarkState;
use crate::position::LayoutShard;
use crate::slot::Slot;

/// A value behind a lock of its own.
pub trait Guarded<T> {
    /// Runs `f` on the value, which nobody else reads or writes meanwhile. `f` must not sleep, flush, allocate or raise
    /// an error.
    fn change<R>(&self, f: impl FnOnce(&mut T) -> R) -> R;
    /// A copy of the value, which nobody writes meanwhile.
    fn copy(&self) -> T;
}

/// A kind of lock.
pub trait Locks {
    /// A value behind such a lock.
    type Of<T: Copy>: Guarded<T>;
    /// So many of these, or fewer in a simulation.
    type Many<T: Copy, const N: usize>: AsRef<[Self::Of<T>]>;
}

/// The lock of a simulation: it runs in a single thread, which does not switch to another backend during a change.
#[derive(Debug)]
pub struct SingleThread;

impl Locks for SingleThread {
    type Of<T: Copy> = Cell<T>;
    type Many<T: Copy, const N: usize> = Vec<Cell<T>>;
}

impl<T: Copy> Guarded<T> for Cell<T> {
    fn change<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let mut value = self.get();
        let result = f(&mut value);
        self.set(value);
        result
    }

    fn copy(&self) -> T {
        self.get()
    }
}

/// The state that all backends share. All zero at start.
#[repr(C)]
pub struct Shared<L: Locks> {
    /// The part of the mark that every call reads. It has a cache line of its own if the locks do.
    pub published: Published,
    /// The mark. Change it with [`Shared::with_mark`].
    pub mark: L::Of<MarkState>,
    slots: L::Many<Slot<Shard>, SHARDS>,
    js_slots: L::Many<Slot<JsShard>, JS_SHARDS>,
}

impl Shared<SingleThread> {
    /// The state for the first shards of both layouts.
    #[must_use]
    pub fn new(shards: usize, js_shards: usize) -> Shared<SingleThread> {
        Shared {
            published: Published::default(),
            mark: Cell::default(),
            slots: (0..shards).map(|_| Cell::default()).collect(),
            js_slots: (0..js_shards).map(|_| Cell::default()).collect(),
        }
    }
}

/// A shard that has a slot in the shared state.
pub trait Slotted: LayoutShard {
    /// Its slot.
    fn slot<L: Locks>(self, shared: &Shared<L>) -> &L::Of<Slot<Self>>;
}

impl Slotted for Shard {
    #[inline]
    fn slot<L: Locks>(self, shared: &Shared<L>) -> &L::Of<Slot<Shard>> {
        &shared.slots.as_ref()[self.index()]
    }
}

impl Slotted for JsShard {
    fn slot<L: Locks>(self, shared: &Shared<L>) -> &L::Of<Slot<JsShard>> {
        &shared.js_slots.as_ref()[Shard::from(self).index()]
    }
}

impl<L: Locks> Shared<L> {
    /// Runs `f` on the mark under its lock, and publishes the mark. `f` must not sleep, flush, allocate or raise an
    /// error. It runs on a copy first, and if it leaves that as it was, as most readers of the horizon do, nothing
    /// else is done.
    pub fn with_mark<T>(&self, f: impl Fn(&mut MarkState) -> T) -> T {
        let before = self.mark.copy();
        let mut copy = before;
        let result = f(&mut copy);
        if copy == before {
            return result;
        }
        // Before the lock, under which no error may be raised.
        debug_assert!(copy.floor() >= before.floor() && copy.recovered() >= before.recovered());
        debug_assert!([false, true].iter().all(|of| copy.limit(*of) >= before.limit(*of)));
        debug_assert!(copy.limit(true) <= copy.limit(false) && copy.limit(false) <= MAX_TICK + 1);
        debug_assert!((before.settled()..=copy.floor()).contains(&copy.settled()));
        self.mark.change(|mark| {
            let result = f(mark);
            self.published.publish(mark);
            result
        })
    }
}

/// The state that a backend shares with the others.
#[derive(Debug)]
#[repr(C)]
pub struct Backend {
    /// For readers of the horizon.
    pub txn_floor: TxnFloor,
    /// For other batches.
    pub batch: Batch,
}

impl Backend {
    /// The state of a backend that has done nothing.
    #[must_use]
    pub const fn idle() -> Backend {
        Backend { txn_floor: TxnFloor::none(), batch: Batch::none() }
    }

    /// Withdraws what the backend has published for its transaction.
    pub fn transaction_ended(&self) {
        self.txn_floor.clear();
        // A backend that is terminated while its batch waits does not come back to withdraw it.
        self.batch.leave();
    }
}

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
    /// Ordering for withdrawing the floor of a transaction: after its rows have become visible.
    const TXN_FLOOR_CLEARED: Ordering = Ordering::Release;
    /// Ordering for reading the floor of a transaction: before the reader looks at rows.
    const TXN_FLOOR_READ: Ordering = Ordering::Acquire;

    /// The fence between publishing a transaction's floor and reading the floor of all ids.
    fn fence_after_txn_floor();
    /// The fence between raising the floor of all ids and reading those of the transactions.
    fn fence_before_txn_floors();
}

/// The memory of the machine.
#[derive(Debug, Default)]
pub struct Real;

impl Memory for Real {
    type Word = AtomicU64;

    #[inline]
    fn fence_after_txn_floor() {
        fence(Ordering::SeqCst);
    }

    #[inline]
    fn fence_before_txn_floors() {
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

/// The part of the [`MarkState`] that every call reads. All zero at start.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Published<M: Memory = Real> {
    floor: M::Word,
    recovered: M::Word,
    limit: M::Word,
    acknowledged: M::Word,
    awaited: M::Word,
}

impl<M: Memory> Published<M> {
    /// Publishes a mark. Only one process at a time does so, under the lock of the mark.
    pub fn publish(&self, mark: &MarkState) {
        let words = [
            (&self.floor, mark.floor()),
            (&self.recovered, mark.recovered()),
            (&self.acknowledged, mark.limit(true)),
            (&self.awaited, mark.awaited()),
            (&self.limit, mark.limit(false)),
        ];
        // A store takes the line away from every call.
        if words.iter().all(|(word, value)| word.load(Ordering::Relaxed) == *value) {
            return;
        }
        // The floor first: a process that sees the first limit of this incarnation must see the floor too.
        let [before @ .., (limit, value)] = words;
        for (word, value) in before {
            word.store(value, Ordering::Relaxed);
        }
        limit.store(value, M::LIMIT_WRITTEN);
    }

    /// [`MarkState::floor`].
    #[inline]
    pub fn floor(&self) -> Tick {
        self.floor.load(Ordering::Relaxed)
    }

    /// [`MarkState::recovered`].
    #[inline]
    pub fn recovered(&self) -> Tick {
        self.recovered.load(Ordering::Relaxed)
    }

    /// [`MarkState::awaited`]. It only says when to look at the mark again, so it may be out of date.
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
pub struct TxnFloor<M: Memory = Real>(M::Word);

/// The value for a backend whose transaction has minted no id.
const NONE: Tick = Tick::MAX;

impl TxnFloor {
    /// The floor of a transaction that has minted no id.
    #[must_use]
    pub const fn none() -> TxnFloor {
        TxnFloor(AtomicU64::new(NONE))
    }
}

impl<M: Memory> TxnFloor<M> {
    /// A floor in a word, which must hold `u64::MAX` until the transaction mints an id.
    pub const fn new(word: M::Word) -> TxnFloor<M> {
        TxnFloor(word)
    }

    /// Publishes that the open transaction mints ids of `tick` or later. Read the floor of all ids afterwards: of this
    /// call and a [`TxnFloor::oldest`] that follows a raise of the floor of all ids, at least one sees what the other
    /// has written.
    pub fn publish(&self, tick: Tick) {
        self.0.fetch_min(tick, Ordering::Relaxed);
        M::fence_after_txn_floor();
    }

    /// Withdraws what the transaction has published.
    pub fn clear(&self) {
        if self.0.load(Ordering::Relaxed) != NONE {
            self.0.store(NONE, M::TXN_FLOOR_CLEARED);
        }
    }

    /// Lower bound of the ticks of the ids of all open transactions.
    pub fn oldest<'a>(floors: impl IntoIterator<Item = &'a TxnFloor<M>>) -> Tick
    where
        M: 'a,
    {
        M::fence_before_txn_floors();
        floors.into_iter().map(|floor| floor.0.load(M::TXN_FLOOR_READ)).min().unwrap_or(NONE)
    }
}
