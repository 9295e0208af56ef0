//! What the core asks of a server, on PostgreSQL.

use idgen_core::id::MAX_TICK;
use idgen_core::js::JsShard;
use idgen_core::mark::Mark;
use idgen_core::mint;
use idgen_core::server::{Point, Server, Slots, Wait};
use idgen_core::slot::Slot;
use idgen_core::{Shard, Tick};

use crate::clock;
use crate::error::Error;
use crate::fault;
use crate::pg::{backend, origin, standbys};
use crate::settings;
use crate::shmem::{self, Shared};

/// This server, with its shared memory.
#[derive(Clone, Copy)]
pub struct Postgres(&'static Shared);

/// This server.
///
/// # Errors
/// 55000 where the library was not preloaded.
#[inline]
pub fn server() -> Result<Postgres, Error> {
    Ok(Postgres(shmem::shared()?))
}

/// What keeps ids of every shard from being minted: the clock, or a setting given wrongly or not at all.
pub fn problem() -> Option<Error> {
    let check = || {
        settings::check_allowed_shards()?;
        if clock::now()? > MAX_TICK { Err(mint::Error::Exhausted.into()) } else { Ok(()) }
    };
    check().err()
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

    fn with_mark<T>(&self, f: impl FnOnce(&mut Mark) -> T) -> T {
        self.0.with_mark(f)
    }

    #[inline]
    fn floor(&self) -> Tick {
        self.0.published().floor()
    }

    fn run_floor(&self) -> Tick {
        self.0.published().run_floor()
    }

    // The line of PostgreSQL's that this may read is written only while synchronous replication is on, when limits
    // are acknowledged, and so stays in the cache of every processor.
    #[inline]
    fn limit(&self) -> Tick {
        self.0.published().limit(standbys::must_acknowledge)
    }

    fn publish_start(&self, tick: Tick) {
        self.0.publish_start(tick);
    }

    fn oldest_start(&self) -> Tick {
        self.0.oldest_start()
    }

    fn in_recovery(&self) -> bool {
        backend::in_recovery()
    }

    fn load_mark(&self) -> Tick {
        origin::load_mark()
    }

    fn write_mark(&self, mark: Tick) -> u64 {
        origin::write_mark(mark)
    }

    fn flush(&self, lsn: u64) {
        origin::flush_wal(lsn);
    }

    fn standbys_must_acknowledge(&self) -> bool {
        standbys::must_acknowledge()
    }

    // A backend asks itself, instead of SyncRepWaitForLSN, because that would swallow a cancel with a warning and
    // look to the session's synchronous_commit; the mark is everybody's.
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
        self.0.wait_for_mark(ms, done);
    }

    fn wake_waiting(&self) {
        self.0.wake_waiting();
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
        self.0.slots[shard.index()].change(f)
    }

    fn slot(&self, shard: Shard) -> Slot<Shard> {
        self.0.slots[shard.index()].copy()
    }
}

impl Slots<JsShard> for Postgres {
    #[inline]
    fn with_slot<T>(&self, shard: JsShard, f: impl FnOnce(&mut Slot<JsShard>) -> T) -> T {
        self.0.js_slots[Shard::from(shard).index()].change(f)
    }

    fn slot(&self, shard: JsShard) -> Slot<JsShard> {
        self.0.js_slots[Shard::from(shard).index()].copy()
    }
}
