//! The host of the core, implemented on PostgreSQL, and other operations on the mark.

#[cfg(feature = "pg_test")]
use idgen_core::host::Point;
use idgen_core::host::{Host, Wait};
use idgen_core::mark::{Progress, renewal, stored};
use idgen_core::shared::{Backend, Shared};
use idgen_ids::epoch::Timestamptz;
use idgen_ids::id::MAX_TICK;
use idgen_ids::{Shard, Tick};

use crate::clock;
use crate::error::{Error, Warning};
use crate::memory;
use crate::pg::shmem::{self, LwLocks, Segment};
use crate::pg::{backend, origin, standbys};
use crate::settings;

/// This server, with its shared memory.
#[derive(Clone, Copy)]
pub struct Postgres {
    pub segment: &'static Segment,
    /// Counts a refusal, or does not: for [`origin::write_mark`], which raises its error itself.
    refuse: fn(Error) -> Error,
}

/// This server. Raises PostgreSQL's errors.
///
/// # Errors
/// 55000 if this session has no shared memory: see [`memory::segment`].
pub fn host() -> Result<Postgres, Error> {
    Ok(Postgres { segment: memory::segment()?, refuse: count_refusal })
}

/// This server, if this session already uses its memory. Raises no errors.
#[inline]
pub fn host_at_hand() -> Option<Postgres> {
    Some(Postgres { segment: shmem::at_hand()?, refuse: count_refusal })
}

/// Like [`host`], but refusals are not counted.
///
/// # Errors
/// As [`host`].
pub fn uncounted() -> Result<Postgres, Error> {
    Ok(Postgres { segment: memory::segment()?, refuse: |error| error })
}

/// Counts a call that is refused with this error, and returns the error. Raises PostgreSQL's errors.
#[cold]
pub fn count_refusal(error: Error) -> Error {
    if let Some(reason) = error.reason()
        && let Ok(segment) = memory::segment()
    {
        segment.count_refusal(reason);
    }
    error
}

/// Checks that ids can be minted above this stored mark, as far as that does not depend on the shard: the clock, the
/// mark, and the settings.
///
/// # Errors
/// The first obstacle found.
pub fn check_minting(stored: Option<Progress>) -> Result<(), Warning> {
    settings::check_allowed_shards()?;
    let now = clock::now()?;
    if now > MAX_TICK {
        return Err(idgen_core::error::Error::Exhausted.into());
    }
    let settings = settings::current()?;
    let stored = stored::tick_of(stored, settings.epoch)?;
    match stored::too_far_ahead(stored, now, &settings) {
        Some(by_ms) => Err(Warning::MarkInFuture { by_ms }),
        None => Ok(()),
    }
}

/// Checks that the user is a superuser and the server is not in recovery, for an action that messages name, such as
/// "must be superuser to ...".
///
/// # Errors
/// 42501 if the user is not a superuser; 25006 in recovery.
pub fn check_administrator(action: &'static str) -> Result<(), Error> {
    if !backend::superuser() {
        return Err(Error::NotSuperuser(action));
    }
    if backend::in_recovery() {
        return Err(Error::InRecovery(action));
    }
    Ok(())
}

/// Whether this session may write the first mark of the cluster. A preload is a decision for the whole cluster. Without
/// one, the owner of a single database could create the extension, mint, and so shut standbys down that have no room
/// for the mark.
pub fn may_write_first_mark() -> bool {
    shmem::preloaded() || backend::superuser_acts()
}

/// Logs that the first mark of the cluster is about to be written, if there may be standbys, which need room for it.
fn warn_of_first_mark() {
    let connected = standbys::connected();
    if connected > 0 {
        Warning::FirstMark { connected }.log(true);
    }
}

/// Makes the stored mark count from `idgen.epoch`, which must equal `epoch`. Returns whether the mark counted from
/// another epoch before.
///
/// # Errors
/// 42501 if the user is not a superuser; 25006 in recovery; 55000 if there is no shared memory or no epoch, or if
/// the clock is before it; 22023 for another epoch; 2200H if the clock is past the range of ids or the mark at its end.
pub fn accept_epoch(epoch: Timestamptz) -> Result<bool, Error> {
    check_administrator("accept another epoch")?;
    let host = host()?;
    let ours = settings::epoch()?;
    if ours.timestamp() != epoch {
        return Err(Error::NotTheEpoch);
    }
    renewal::accept_epoch(&host, ours)
}

/// Accepts the system clock as it is, if it has jumped forward. Returns how far, in milliseconds; 0 if it has not.
///
/// # Errors
/// 42501 if the user is not a superuser; 25006 in recovery; 55000 if there is no shared memory or no epoch, or if the clock
/// is before it; 2200H if the clock is past the range of ids.
pub fn accept_clock() -> Result<u64, Error> {
    check_administrator("accept the system clock")?;
    renewal::accept_clock(&host()?)
}

impl Host for Postgres {
    type Error = Error;
    type Locks = LwLocks;

    #[inline]
    fn shared(&self) -> &Shared<LwLocks> {
        &self.segment.shared
    }

    fn backends(&self) -> &[Backend] {
        self.segment.backends()
    }

    fn backend(&self) -> Option<usize> {
        backend::number()
    }

    // The cache lines that this reads are written only when the configuration is read.
    #[inline]
    fn allows(&self, shard: Shard) -> bool {
        self.segment.allows(shard)
    }

    #[inline]
    fn now(&self) -> Result<Tick, Error> {
        clock::now()
    }

    fn boot_ms(&self) -> u64 {
        clock::boot_ms()
    }

    fn monotonic_us(&self) -> u64 {
        clock::monotonic_us()
    }

    fn us_until(&self, tick: Tick) -> Result<u64, Error> {
        clock::us_until(tick)
    }

    fn in_recovery(&self) -> bool {
        backend::in_recovery()
    }

    fn load_mark(&self) -> Option<Progress> {
        origin::load_mark()
    }

    fn write_mark(&self, mark: Progress) -> u64 {
        let first = origin::load_mark().is_none();
        if first && !may_write_first_mark() {
            (self.refuse)(Error::FirstMark).raise();
        }
        self.segment.keep_mark().unwrap_or_else(|removed| (self.refuse)(removed).raise());
        if first {
            warn_of_first_mark();
        }
        origin::write_mark(mark, self.refuse)
    }

    fn flush(&self, lsn: u64) {
        origin::flush_wal(lsn);
    }

    fn flush_soon(&self, lsn: u64) {
        origin::flush_wal_soon(lsn);
    }

    fn flushed(&self, lsn: u64) -> bool {
        origin::is_flushed(lsn)
    }

    // The cache line of PostgreSQL that this reads is written only while synchronous replication is on, when limits are
    // acknowledged. So it stays in the cache of every processor.
    fn standbys_must_acknowledge(&self) -> bool {
        standbys::must_acknowledge()
    }

    // A backend checks this itself instead of calling SyncRepWaitForLSN, which would turn a cancel into a warning
    // and obey the session's synchronous_commit, although the mark concerns all sessions.
    fn acknowledged(&self, lsn: u64) -> bool {
        standbys::acknowledged(lsn)
    }

    fn prepared_transactions(&self) -> usize {
        backend::prepared_transactions()
    }

    fn sleep(&self, us: u64, wait: Wait) {
        backend::sleep(us, wait);
    }

    fn wait_for_mark(&self, ms: u64, done: impl FnOnce() -> bool) {
        self.segment.wait_for_mark(ms, done);
    }

    fn wake_waiting(&self) {
        self.segment.wake_waiting();
    }

    fn check_for_interrupts(&self) {
        backend::check_for_interrupts();
    }

    #[cfg(feature = "pg_test")]
    fn point(&self, point: Point) {
        crate::testing::fault::point(point);
    }
}
