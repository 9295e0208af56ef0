//! What minting needs from the host in which it runs: PostgreSQL, or a simulation of it.

use idgen_ids::{Shard, Tick};

use crate::batch::Batch;
use crate::error::Error;
use crate::mark::{MarkState, Progress};
use crate::shared::{Backend, Guarded, Locks, Shared, Slotted, TxnFloor};
use crate::slot::Slot;

/// What a call is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The clock, because the ids of the shard may not be further ahead of it.
    Clock,
    /// The high-water mark, which another backend is renewing.
    Mark,
    /// Synchronous standbys, which have to acknowledge the mark.
    Standby,
}

/// A point between two steps of a renewal, where a crash must do no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// The mark has been decided.
    BeforeWal,
    /// The mark is in the WAL's buffers.
    AfterInsert,
    /// The mark is on this server's disk.
    AfterFlush,
    /// The standbys have been asked, and have not acknowledged it yet.
    BeforeAcknowledge,
    /// The mark is durable.
    BeforePublish,
}

/// The effects of a backend on the world outside of idgen's own memory. Methods that wait, and
/// [`Host::check_for_interrupts`], may unwind instead of returning, for example when the query is canceled.
///
/// The methods with a body are the ways to the shared state. Only a host that is to be interrupted there, or to be
/// wrong, for a test, writes them anew.
pub trait Host {
    /// The host's own errors, and those of [`Error`].
    type Error: From<Error>;
    /// The locks of its shared memory.
    type Locks: Locks;

    /// The state that all backends share.
    fn shared(&self) -> &Shared<Self::Locks>;
    /// The state that each backend shares with the others.
    fn backends(&self) -> &[Backend];
    /// The place of this backend among them; `None` if there is no room for it.
    fn backend(&self) -> Option<usize>;

    /// Whether the configuration of the server lets it mint for a shard: not when the session last read it, but now. The
    /// caller holds the lock of the shard's slot, so that no run is taken after the answer has become false.
    fn allows(&self, shard: Shard) -> bool;

    /// The system clock as a tick, read at each call.
    ///
    /// # Errors
    /// A clock before the epoch, or no epoch.
    fn now(&self) -> Result<Tick, Self::Error>;
    /// Milliseconds since boot. Setting the clock does not move them.
    fn boot_ms(&self) -> u64;
    /// Microseconds since some moment. Setting the clock does not move them.
    fn monotonic_us(&self) -> u64;
    /// Microseconds until the system clock shows a tick; 0 if it already does.
    ///
    /// # Errors
    /// As [`Host::now`].
    fn us_until(&self, tick: Tick) -> Result<u64, Self::Error>;

    /// Whether the server is in recovery.
    fn in_recovery(&self) -> bool;
    /// The stored mark; `None` if none has ever been stored.
    fn load_mark(&self) -> Option<Progress>;
    /// Writes a mark to the WAL. A mark below the stored one changes nothing. Returns the position to which the WAL
    /// must be flushed for it to be durable.
    fn write_mark(&self, mark: Progress) -> u64;
    /// Waits until the WAL is on disk up to `lsn`.
    fn flush(&self, lsn: u64);
    /// Has another process flush the WAL up to `lsn` soon, without waiting for it.
    fn flush_soon(&self, lsn: u64);
    /// Whether the WAL is on disk up to `lsn`. Neither raises an error nor waits.
    fn flushed(&self, lsn: u64) -> bool;
    /// Whether a commit would wait for synchronous standbys now.
    fn standbys_must_acknowledge(&self) -> bool;
    /// Whether these standbys have acknowledged the WAL up to `lsn`.
    fn acknowledged(&self, lsn: u64) -> bool;
    /// The number of prepared transactions.
    fn prepared_transactions(&self) -> usize;

    /// Sleeps for up to `us` microseconds.
    fn sleep(&self, us: u64, wait: Wait);
    /// Sleeps until `done` is true, until [`Host::wake_waiting`], or for `ms` milliseconds.
    fn wait_for_mark(&self, ms: u64, done: impl FnOnce() -> bool);
    /// Wakes the backends that wait for the mark.
    fn wake_waiting(&self);
    /// Unwinds if the backend has been asked to stop.
    fn check_for_interrupts(&self);
    /// A point at which tests make a backend die or fail.
    fn point(&self, _point: Point) {}

    /// [`Shared::with_mark`].
    fn with_mark<T>(&self, f: impl Fn(&mut MarkState) -> T) -> T {
        self.shared().with_mark(f)
    }

    /// Runs `f` on a shard's slot under its lock. `f` must not sleep, flush, allocate or raise an error.
    #[inline]
    fn with_slot<S: Slotted, T>(&self, shard: S, f: impl FnOnce(&mut Slot<S>) -> T) -> T {
        shard.slot(self.shared()).change(f)
    }

    /// [`crate::shared::Published::floor`].
    #[inline]
    fn floor(&self) -> Tick {
        self.shared().published.floor()
    }

    /// [`crate::shared::Published::recovered`].
    fn recovered(&self) -> Tick {
        self.shared().published.recovered()
    }

    /// [`crate::shared::Published::limit`].
    #[inline]
    fn limit(&self) -> Tick {
        self.shared().published.limit(|| self.standbys_must_acknowledge())
    }

    /// [`crate::shared::Published::awaited`].
    #[inline]
    fn awaited(&self) -> u64 {
        self.shared().published.awaited()
    }

    /// [`TxnFloor::publish`], for the open transaction.
    fn publish_floor(&self, tick: Tick) {
        if let Some(own) = self.own() {
            own.txn_floor.publish(tick);
        }
    }

    /// [`TxnFloor::oldest`], of all open transactions.
    fn oldest_floor(&self) -> Tick {
        TxnFloor::oldest(self.backends().iter().map(|backend| &backend.txn_floor))
    }

    /// The batches of all backends.
    fn batches(&self) -> impl Iterator<Item = &Batch> {
        self.backends().iter().map(|backend| &backend.batch)
    }

    /// The part of the shared state that belongs to this backend; `None` if there is no room for it.
    fn own(&self) -> Option<&Backend> {
        self.backends().get(self.backend()?)
    }
}
