//! The server that mints ids. In the build for tests, it may be wrong in a known way that `idgen.mutation` names.

#[cfg(not(feature = "pg_test"))]
pub use crate::server::server;
#[cfg(not(feature = "pg_test"))]
pub use idgen_core::mint::{advance, next_id};
#[cfg(feature = "pg_test")]
pub use mutated::{advance, next_id, server};

#[cfg(feature = "pg_test")]
mod mutated {
    use std::cell::Cell;

    use idgen_core::batch::Batch;
    use idgen_core::mark::{Clocks, Mark};
    use idgen_core::mint::{self, Session};
    use idgen_core::origins::Progress;
    use idgen_core::position::{Grid, Position};
    use idgen_core::server::{Point, Server, Slots, Wait};
    use idgen_core::slot::Slot;
    use idgen_core::{Shard, Tick};

    use crate::clock;
    use crate::error::Error;
    use crate::mutation::{Mutation, is};
    use crate::pg::backend::Local;
    use crate::pg::shmem;
    use crate::pg::{origin, standbys};
    use crate::server::{self, Postgres};
    use crate::settings;

    /// A server that is wrong in a known way.
    #[derive(Clone, Copy)]
    pub struct Mutant(Postgres);

    /// This server.
    ///
    /// # Errors
    /// 55000 if the library was not preloaded.
    pub fn server() -> Result<Mutant, Error> {
        server::server().map(Mutant)
    }

    /// [`mint::next_id`].
    pub fn next_id(server: &Mutant, session: &Session, shard: Shard) -> Result<i64, Error> {
        let next = Shard::try_from(i32::from(shard) + 1).ok().filter(|_| is(Mutation::OtherShard));
        mint::next_id(server, session, next.unwrap_or(shard))
    }

    /// [`mint::advance`].
    pub fn advance(server: &Mutant, session: &Session, shard: Shard, past: i64) -> Result<i64, Error> {
        match Position::after(past, shard).filter(|_| is(Mutation::AdvanceForgotten)) {
            Some(position) => Ok(server.with_slot(shard, |slot: &mut Slot<Shard>| {
                slot.next = slot.next.max(position);
                shard.id(slot.next)
            })),
            None => mint::advance(server, session, shard, past),
        }
    }

    /// Methods that no mutation changes.
    macro_rules! unchanged {
        ($($method:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)+) => {
            $(fn $method(&self, $($argument: $type),*) $(-> $result)? {
                self.0.$method($($argument),*)
            })+
        };
    }

    impl Server for Mutant {
        type Error = Error;

        unchanged! {
            monotonic_us() -> u64;
            us_until(tick: Tick) -> Result<u64, Error>;
            check_any_allowed() -> Result<(), Error>;
            max_lease() -> u64;
            max_clock_jump_ms() -> Option<u64>;
            reserve_ahead_ms() -> u64;
            run_floor() -> Tick;
            awaited() -> u64;
            oldest_start() -> Tick;
            batches() -> &[Batch];
            own_batch() -> Option<&Batch>;
            wake_waiting();
            check_for_interrupts();
            point(point: Point);
        }

        fn now(&self) -> Result<Tick, Error> {
            if !is(Mutation::OldClock) {
                return self.0.now();
            }
            let (now, left) = OLD_CLOCK.get();
            if left > 0 {
                OLD_CLOCK.set((now, left - 1));
                return Ok(now);
            }
            let now = self.0.now()?;
            OLD_CLOCK.set((now, 63));
            Ok(now)
        }

        fn boot_ms(&self) -> u64 {
            if is(Mutation::ClaimForever) { 0 } else { self.0.boot_ms() }
        }

        fn allows(&self, shard: Shard) -> bool {
            is(Mutation::AnyShard) || self.0.allows(shard)
        }

        fn check_allowed(&self, shard: Shard) -> Result<(), Error> {
            if is(Mutation::AnyShard) { Ok(()) } else { self.0.check_allowed(shard) }
        }

        fn max_ahead_ms(&self) -> u64 {
            if is(Mutation::FarAhead) {
                return 7_200_000;
            }
            self.0.max_ahead_ms()
        }

        fn max_wait_ms(&self) -> u64 {
            if is(Mutation::NoWait) { 0 } else { self.0.max_wait_ms() }
        }

        fn with_mark<T>(&self, f: impl Fn(&mut Mark) -> T) -> T {
            self.0.with_mark(f)
        }

        fn floor(&self) -> Tick {
            if is(Mutation::NoRaisedFloor) { self.0.run_floor() } else { self.0.floor() }
        }

        fn limit(&self) -> Tick {
            let must_acknowledge = self.standbys_must_acknowledge();
            shmem::shared().map_or(0, |shared| shared.published().limit(|| must_acknowledge))
        }

        fn publish_start(&self, tick: Tick) {
            if !is(Mutation::NoStart) {
                self.0.publish_start(tick);
            }
        }

        fn in_recovery(&self) -> bool {
            let in_recovery = self.0.in_recovery();
            if is(Mutation::LoadedInRecovery)
                && in_recovery
                && let Ok(stored) = self.0.load_mark()
            {
                self.with_mark(|mark| mark.load(stored));
            }
            BEGAN_IN_RECOVERY.set(BEGAN_IN_RECOVERY.get() || in_recovery);
            in_recovery || is(Mutation::StaysInRecovery) && BEGAN_IN_RECOVERY.get()
        }

        fn load_mark(&self) -> Result<Tick, Error> {
            let mark = |kept: Option<Progress>| kept.map_or(0, Progress::mark);
            if is(Mutation::NoFloor) {
                Ok(0)
            } else if is(Mutation::AnyEpoch) {
                Ok(mark(origin::load_mark()))
            } else if is(Mutation::OtherOrigin) {
                Ok(mark(origin::load_wrongly()))
            } else {
                self.0.load_mark()
            }
        }

        fn write_mark(&self, mark: Tick) -> u64 {
            let epoch = settings::epoch().unwrap_or_else(|error| error.raise());
            if is(Mutation::NoWal) {
                return origin::write_without_wal(Progress::new(mark, epoch));
            }
            if is(Mutation::OtherOrigin) {
                return origin::write_wrongly(Progress::new(mark, epoch));
            }
            let lsn = self.0.write_mark(mark);
            if is(Mutation::PublishedFirst)
                && let Ok(now) = self.now()
            {
                let clocks = Clocks { now, boot_ms: self.boot_ms() };
                self.with_mark(|state| state.publish(mark, true, clocks, 0));
            }
            lsn
        }

        fn flush(&self, lsn: u64) {
            if !is(Mutation::NoFlush) {
                self.0.flush(lsn);
            }
        }

        fn flush_soon(&self, lsn: u64) {
            if !is(Mutation::NoFlush) {
                self.0.flush_soon(lsn);
            }
        }

        fn flushed(&self, lsn: u64) -> bool {
            is(Mutation::NoFlush) || self.0.flushed(lsn)
        }

        fn standbys_must_acknowledge(&self) -> bool {
            if is(Mutation::NoStandbys) {
                false
            } else if is(Mutation::StandbysOfStatement) {
                standbys::named_in_session()
            } else {
                self.0.standbys_must_acknowledge()
            }
        }

        fn acknowledged(&self, lsn: u64) -> bool {
            if is(Mutation::GivesUp) {
                // A third of a second, as often as a renewal asks.
                let has = ASKED.get() < 20 && self.0.acknowledged(lsn);
                ASKED.set(if has { 0 } else { ASKED.get() + 1 });
                has
            } else {
                self.0.acknowledged(lsn)
            }
        }

        fn prepared_transactions(&self) -> usize {
            if is(Mutation::NoPrepared) { 0 } else { self.0.prepared_transactions() }
        }

        fn sleep(&self, us: u64, wait: Wait) {
            // Otherwise a call that waits for the clock would never see it advance.
            OLD_CLOCK.set((0, 0));
            self.0.sleep(us, wait);
        }

        fn wait_for_mark(&self, ms: u64, done: impl FnOnce() -> bool) {
            self.0.wait_for_mark(ms, done);
        }
    }

    /// The last reading of the clock, and how many more times it is reused.
    static OLD_CLOCK: Local<Cell<(Tick, u32)>> = Local::new(Cell::new((0, 0)));
    /// How often standbys were asked in vain.
    static ASKED: Local<Cell<u32>> = Local::new(Cell::new(0));
    static BEGAN_IN_RECOVERY: Local<Cell<bool>> = Local::new(Cell::new(false));

    impl<S: Grid> Slots<S> for Mutant
    where
        Postgres: Slots<S>,
    {
        fn with_slot<T>(&self, shard: S, f: impl FnOnce(&mut Slot<S>) -> T) -> T {
            if is(Mutation::NoLock) {
                let mut slot = self.slot(shard);
                let result = f(&mut slot);
                self.0.with_slot(shard, |now| *now = slot);
                return result;
            }
            let now = clock::now().ok().filter(|_| is(Mutation::FollowsClock));
            self.0.with_slot(shard, |slot| {
                if let Some(now) = now
                    && slot.next.tick() > now
                {
                    slot.next = Position::first_of(now / S::UNIT_MS);
                }
                let before = slot.counters.ids;
                let result = f(slot);
                if is(Mutation::LeaseBySetting) && self.max_lease() != 64 {
                    let first = Position::first_of(0);
                    let beyond = (slot.counters.ids - before).div_ceil(2);
                    slot.next = first.plus(slot.next.since(first) - beyond);
                }
                result
            })
        }

        fn slot(&self, shard: S) -> Slot<S> {
            self.0.slot(shard)
        }
    }
}
