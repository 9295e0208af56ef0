//! The server trait of the core, implemented on PostgreSQL.

use idgen_core::batch::Batch;
use idgen_core::epoch::Timestamptz;
use idgen_core::id::{MAX_STORED_TICK, MAX_TICK};
use idgen_core::js::JsShard;
use idgen_core::mark::Mark;
use idgen_core::mint::{self, MOST_LATE_REACH_MS, QUEUE_MS};
use idgen_core::origins::Progress;
use idgen_core::server::{Point, Server, Slots, Wait};
use idgen_core::slot::Slot;
use idgen_core::{Shard, Tick, renew};

use crate::clock;
use crate::error::{Error, Warning};
use crate::fault;
use crate::pg::shmem::{self, Shared};
use crate::pg::{backend, origin, standbys};
use crate::settings;

/// This server, with its shared memory.
#[derive(Clone, Copy)]
pub struct Postgres {
    shared: &'static Shared,
    /// Counts the refusal, or not: for [`origin::write_mark`], which raises its error itself.
    refuse: fn(Error) -> Error,
}

/// This server.
///
/// # Errors
/// 55000 if the library was not preloaded.
#[inline]
pub fn server() -> Result<Postgres, Error> {
    Ok(Postgres { shared: shmem::shared()?, refuse: counted })
}

/// This server, for calls that count as no refusal.
///
/// # Errors
/// As [`server`].
pub fn uncounted() -> Result<Postgres, Error> {
    Ok(Postgres { shared: shmem::shared()?, refuse: |error| error })
}

/// Counts a call that is refused with this error.
#[cold]
pub fn counted(error: Error) -> Error {
    if let (Some(reason), Ok(shared)) = (error.reason(), shmem::shared()) {
        shared.count_refusal(reason);
    }
    error
}

/// A problem that keeps ids of all shards from being minted above this stored mark: the clock, the mark, or a
/// setting that is invalid or missing.
pub fn problem(mark: Option<Progress>) -> Option<Warning> {
    let check = || {
        settings::check_allowed_shards()?;
        let now = clock::now()?;
        if now > MAX_TICK {
            return Err(mint::Error::Exhausted.into());
        }
        // A server that has minted as far ahead as it may leaves a mark this far ahead of the clock.
        let reach = settings::reserve_ahead_ms().max(MOST_LATE_REACH_MS);
        let usual = settings::max_ahead_ms() + QUEUE_MS + reach;
        let by_ms = known(mark)?.saturating_sub(now);
        if by_ms > usual { Err(Warning::MarkInFuture { by_ms }) } else { Ok(()) }
    };
    check().err()
}

/// The stored mark; 0 if none has ever been stored.
fn known(mark: Option<Progress>) -> Result<Tick, Error> {
    match mark {
        Some(progress) if !progress.is_of(settings::epoch()?) => Err(Error::OtherEpoch),
        progress => Ok(progress.map_or(0, Progress::mark)),
    }
}

/// Checks that the user may change the mark, and that this server can, for messages such as "must be superuser to ...".
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

/// Makes the stored mark count from `idgen.epoch`, which must equal `epoch`. Returns whether the mark counted from
/// another epoch before. The mark stays the same tick, so no id is repeated, whichever way the epoch has moved.
///
/// # Errors
/// 42501 if the user is not a superuser; 25006 in recovery; 55000 if the library was not preloaded or has no epoch;
/// 22023 for another epoch; 2200H if the mark is the last possible one.
pub fn accept_epoch(epoch: Timestamptz) -> Result<bool, Error> {
    check_administrator("accept another epoch")?;
    shmem::shared()?;
    let ours = settings::epoch()?;
    if ours.timestamp() != epoch {
        return Err(Error::NotTheEpoch);
    }
    match origin::load_mark() {
        Some(progress) if !progress.is_of(ours) => {
            // PostgreSQL only moves it forward, and the check of the new epoch may be less than that of the old
            // one.
            let mark = progress.mark() + 1;
            if mark > MAX_STORED_TICK {
                return Err(mint::Error::Exhausted.into());
            }
            origin::flush_wal(origin::write_mark(Progress::new(mark, ours), counted));
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// Accepts the system clock as it is, if it has leapt forward. Returns how far, in milliseconds; 0 if it has not.
///
/// # Errors
/// 42501 if the user is not a superuser; 25006 in recovery; 55000 if the library was not preloaded or has no epoch, or
/// if the clock is before it; 2200H if the clock is past the range of ids.
pub fn accept_clock() -> Result<u64, Error> {
    check_administrator("accept the system clock")?;
    let server = server()?;
    let clocks = renew::clocks(&server)?;
    if clocks.now > MAX_TICK {
        return Err(mint::Error::Exhausted.into());
    }
    Ok(server.with_mark(|mark| mark.accept(clocks)))
}

impl Postgres {
    /// How long a written mark has been waiting for the acknowledgment of standbys, in milliseconds; `None` if none
    /// is waiting.
    pub fn awaited_ms(self, state: &Mark) -> Option<u64> {
        self.awaits(state).then(|| clock::boot_ms().saturating_sub(self.shared.awaited_since()))
    }

    fn awaits(self, state: &Mark) -> bool {
        let standbys = self.standbys_must_acknowledge();
        let (limit, written) = (state.limit(standbys), state.written(standbys));
        standbys && limit < written.tick && !self.acknowledged(written.lsn)
    }
}

impl Server for Postgres {
    type Error = Error;

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

    #[inline]
    fn allows(&self, shard: Shard) -> bool {
        settings::allows(shard)
    }

    fn check_allowed(&self, shard: Shard) -> Result<(), Error> {
        settings::check_allowed(shard)
    }

    fn check_any_allowed(&self) -> Result<(), Error> {
        settings::check_allowed_shards()
    }

    #[inline]
    fn max_ahead_ms(&self) -> u64 {
        settings::max_ahead_ms()
    }

    fn max_wait_ms(&self) -> u64 {
        settings::max_wait_ms()
    }

    #[inline]
    fn max_lease(&self) -> u64 {
        settings::max_lease()
    }

    #[inline]
    fn reserve_ahead_ms(&self) -> u64 {
        settings::reserve_ahead_ms()
    }

    fn max_clock_jump_ms(&self) -> Option<u64> {
        settings::max_clock_jump_ms()
    }

    fn with_mark<T>(&self, f: impl Fn(&mut Mark) -> T) -> T {
        self.shared.with_mark(f)
    }

    #[inline]
    fn floor(&self) -> Tick {
        self.shared.published().floor()
    }

    fn run_floor(&self) -> Tick {
        self.shared.published().run_floor()
    }

    // The cache line of PostgreSQL that this may read is written only while synchronous replication is on, when
    // limits are acknowledged. So it stays in the cache of every processor.
    #[inline]
    fn limit(&self) -> Tick {
        self.shared.published().limit(standbys::must_acknowledge)
    }

    #[inline]
    fn awaited(&self) -> u64 {
        self.shared.published().awaited()
    }

    fn publish_start(&self, tick: Tick) {
        self.shared.publish_start(tick);
    }

    fn oldest_start(&self) -> Tick {
        self.shared.oldest_start()
    }

    fn batches(&self) -> &[Batch] {
        self.shared.batches()
    }

    fn own_batch(&self) -> Option<&Batch> {
        self.shared.own_batch()
    }

    fn in_recovery(&self) -> bool {
        backend::in_recovery()
    }

    fn load_mark(&self) -> Result<Tick, Error> {
        known(origin::load_mark())
    }

    fn write_mark(&self, mark: Tick) -> u64 {
        // Without an epoch there is no clock either, and therefore nothing to write.
        let epoch = settings::epoch().unwrap_or_else(|error| error.raise());
        // If a mark is already awaited, its time stays: under load a new mark is written every second.
        if !self.awaits(&self.with_mark(|mark| *mark)) {
            self.shared.await_from(clock::boot_ms());
        }
        origin::write_mark(Progress::new(mark, epoch), self.refuse)
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
        self.shared.wait_for_mark(ms, done);
    }

    fn wake_waiting(&self) {
        self.shared.wake_waiting();
    }

    fn check_for_interrupts(&self) {
        backend::check_for_interrupts();
    }

    #[inline]
    fn point(&self, point: Point) {
        fault::point(point);
    }
}

impl Slots<Shard> for Postgres {
    #[inline]
    fn with_slot<T>(&self, shard: Shard, f: impl FnOnce(&mut Slot<Shard>) -> T) -> T {
        self.shared.slots[shard.index()].change(f)
    }

    fn slot(&self, shard: Shard) -> Slot<Shard> {
        self.shared.slots[shard.index()].copy()
    }
}

impl Slots<JsShard> for Postgres {
    #[inline]
    fn with_slot<T>(&self, shard: JsShard, f: impl FnOnce(&mut Slot<JsShard>) -> T) -> T {
        self.shared.js_slots[Shard::from(shard).index()].change(f)
    }

    fn slot(&self, shard: JsShard) -> Slot<JsShard> {
        self.shared.js_slots[Shard::from(shard).index()].copy()
    }
}
