//! What minting needs from the server in which it runs: PostgreSQL, or a simulation of it.

use crate::batch::Batch;
use crate::id::{Shard, Tick};
use crate::mark::Mark;
use crate::mint::Error;
use crate::position::Grid;
use crate::slot::Slot;

/// What a call is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// The clock, because the ids of the shard may not be further ahead of it.
    Clock,
    /// The high-water mark, which another backend is renewing.
    Mark,
    /// Synchronous standbys, which have to acknowledge the mark.
    Standby,
}

/// A point between two steps of a renewal, where a crash must do no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// What the protocol needs from the server. Methods that wait, and [`Server::check_for_interrupts`], may unwind
/// instead of returning, for example when the query is canceled.
pub trait Server {
    /// The server's own errors, and those of [`Error`].
    type Error: From<Error>;

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
    /// As [`Server::now`].
    fn us_until(&self, tick: Tick) -> Result<u64, Self::Error>;

    /// Whether this server may mint for a shard.
    fn allows(&self, shard: Shard) -> bool;
    /// Checks that this server may mint for a shard, and reports the reason if not.
    ///
    /// # Errors
    /// The reason, if it may not.
    fn check_allowed(&self, shard: Shard) -> Result<(), Self::Error>;
    /// Checks that this server may mint at all.
    ///
    /// # Errors
    /// The reason, if it may not.
    fn check_any_allowed(&self) -> Result<(), Self::Error>;
    /// `idgen.max_ahead`: how many milliseconds ids may run ahead of the clock.
    fn max_ahead_ms(&self) -> u64;
    /// `idgen.max_wait`: how many milliseconds a call may wait.
    fn max_wait_ms(&self) -> u64;
    /// `idgen.max_lease`: the longest lease.
    fn max_lease(&self) -> u64;
    /// `idgen.reserve_ahead`: how many milliseconds ahead of the ids the durable mark is written.
    fn reserve_ahead_ms(&self) -> u64;
    /// `idgen.max_clock_jump`: the forward jump of the clock, in milliseconds, that stops minting; `None` allows
    /// any.
    fn max_clock_jump_ms(&self) -> Option<u64>;

    /// Runs `f` on the state of the mark under its lock, and publishes the mark. `f` must not sleep, flush,
    /// allocate or raise an error. It may run twice, the first time on a copy.
    fn with_mark<T>(&self, f: impl Fn(&mut Mark) -> T) -> T;
    /// [`crate::shared::Published::floor`].
    fn floor(&self) -> Tick;
    /// [`crate::shared::Published::run_floor`].
    fn run_floor(&self) -> Tick;
    /// [`crate::shared::Published::limit`].
    fn limit(&self) -> Tick;
    /// [`crate::shared::Published::awaited`].
    fn awaited(&self) -> u64;
    /// [`crate::shared::Start::publish`], for the backend to which the open transaction belongs.
    fn publish_start(&self, tick: Tick);
    /// [`crate::shared::Start::oldest`].
    fn oldest_start(&self) -> Tick;
    /// The batches of all backends.
    fn batches(&self) -> &[Batch];
    /// The one of these that belongs to this backend; `None` if there is no room for it.
    fn own_batch(&self) -> Option<&Batch>;

    /// Whether the server is in recovery.
    fn in_recovery(&self) -> bool;
    /// The stored mark; 0 if none has ever been stored.
    ///
    /// # Errors
    /// A mark of another epoch.
    fn load_mark(&self) -> Result<Tick, Self::Error>;
    /// Writes a mark to the WAL. A mark below the stored one changes nothing. Returns the position to which the WAL
    /// must be flushed for it to be durable.
    fn write_mark(&self, mark: Tick) -> u64;
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
    /// Sleeps until `done` is true, until [`Server::wake_waiting`], or for `ms` milliseconds.
    fn wait_for_mark(&self, ms: u64, done: impl FnOnce() -> bool);
    /// Wakes the backends that wait for the mark.
    fn wake_waiting(&self);
    /// Unwinds if the backend has been asked to stop.
    fn check_for_interrupts(&self);
    /// A point at which tests make a backend die or fail.
    fn point(&self, point: Point);
}

/// The slots of the shards of one layout.
pub trait Slots<S: Grid>: Server {
    /// Runs `f` on a shard's slot under its lock. `f` must not sleep, flush, allocate or raise an error.
    fn with_slot<T>(&self, shard: S, f: impl FnOnce(&mut Slot<S>) -> T) -> T;
    /// A copy of a shard's slot.
    fn slot(&self, shard: S) -> Slot<S>;
}
