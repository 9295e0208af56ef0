//! The host in which ids are minted in tests. It may be wrong in the way that `idgen.mutation` names.

use std::cell::Cell;

use idgen_core::host::{Host, Point, Wait};
use idgen_core::mark::{Clocks, Progress};
use idgen_core::position::Position;
use idgen_core::shared::{Backend, Guarded, Shared, Slotted};
use idgen_core::slot::Slot;
use idgen_ids::{Shard, Tick};

use crate::clock;
use crate::error::Error;
use crate::host::{self, Postgres};
use crate::pg::local::Local;
use crate::pg::origin::{self, MARK_ORIGIN};
use crate::pg::shmem::LwLocks;
use crate::pg::standbys;
use crate::settings;
use crate::testing::mutation::{Mutation, is};

/// An origin other than that of the mark.
const WRONG_ORIGIN: u16 = MARK_ORIGIN - 1;

/// A host that is wrong in a known way.
#[derive(Clone, Copy)]
pub struct Mutant(Postgres);

/// As [`host::host`].
pub fn host() -> Result<Mutant, Error> {
    host::host().map(Mutant)
}

/// As [`host::host_at_hand`].
pub fn host_at_hand() -> Option<Mutant> {
    host::host_at_hand().map(Mutant)
}

/// The last reading of the clock, and how many more times it is reused.
static OLD_CLOCK: Local<Cell<(Tick, u32)>> = Local::new(Cell::new((0, 0)));
/// How many times in a row standbys had not acknowledged a mark.
static ASKED: Local<Cell<u32>> = Local::new(Cell::new(0));
static BEGAN_IN_RECOVERY: Local<Cell<bool>> = Local::new(Cell::new(false));

/// Methods that no mutation changes.
macro_rules! unchanged {
    ($($method:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)+) => {
        $(fn $method(&self, $($argument: $type),*) $(-> $result)? {
            self.0.$method($($argument),*)
        })+
    };
}

impl Host for Mutant {
    type Error = Error;
    type Locks = LwLocks;

    unchanged! {
        shared() -> &Shared<LwLocks>;
        backends() -> &[Backend];
        backend() -> Option<usize>;
        monotonic_us() -> u64;
        us_until(tick: Tick) -> Result<u64, Error>;
        wait_for_mark(ms: u64, done: impl FnOnce() -> bool);
        wake_waiting();
        check_for_interrupts();
        point(point: Point);
    }

    fn allows(&self, shard: Shard) -> bool {
        is(Mutation::AnyShard) || self.0.allows(shard)
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

    fn in_recovery(&self) -> bool {
        let in_recovery = self.0.in_recovery();
        if is(Mutation::LoadedInRecovery) && in_recovery {
            let stored = self.0.load_mark().map_or(0, Progress::mark);
            self.with_mark(|mark| mark.load(stored));
        }
        BEGAN_IN_RECOVERY.set(BEGAN_IN_RECOVERY.get() || in_recovery);
        in_recovery || is(Mutation::StaysInRecovery) && BEGAN_IN_RECOVERY.get()
    }

    fn load_mark(&self) -> Option<Progress> {
        if is(Mutation::NoFloor) {
            None
        } else if is(Mutation::OtherOrigin) {
            origin::progress(WRONG_ORIGIN)
        } else if is(Mutation::AnyEpoch) {
            let epoch = settings::epoch().ok()?;
            Some(Progress::new(self.0.load_mark()?.mark(), epoch))
        } else {
            self.0.load_mark()
        }
    }

    fn write_mark(&self, mark: Progress) -> u64 {
        if is(Mutation::NoWal) {
            origin::set_progress(MARK_ORIGIN, mark, false);
            return 0;
        }
        if is(Mutation::OtherOrigin) {
            return origin::set_progress(WRONG_ORIGIN, mark, true);
        }
        let lsn = self.0.write_mark(mark);
        if is(Mutation::PublishedFirst) {
            let clocks = Clocks { now: clock::now().unwrap_or(0), boot_ms: clock::boot_ms() };
            self.with_mark(|state| state.publish(mark.mark(), true, clocks, 0));
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

    fn floor(&self) -> Tick {
        if is(Mutation::NoRaisedFloor) { self.0.recovered() } else { self.0.floor() }
    }

    fn publish_floor(&self, tick: Tick) {
        if !is(Mutation::NoStart) {
            self.0.publish_floor(tick);
        }
    }

    fn with_slot<S: Slotted, T>(&self, shard: S, f: impl FnOnce(&mut Slot<S>) -> T) -> T {
        let locked = shard.slot(self.shared());
        if is(Mutation::NoLock) {
            let mut slot = locked.copy();
            let result = f(&mut slot);
            locked.change(|now| *now = slot);
            return result;
        }
        let now = clock::now().ok().filter(|_| is(Mutation::FollowsClock));
        let other_lease = || settings::current().is_ok_and(|settings| settings.max_lease != 64);
        let half = is(Mutation::LeaseBySetting) && other_lease();
        locked.change(|slot| {
            if let Some(now) = now
                && slot.next.tick() > now
            {
                slot.next = Position::first_of(now / S::UNIT_MS);
            }
            let before = *slot;
            let result = f(slot);
            let ids = slot.counters.ids - before.counters.ids;
            if half {
                let first = Position::first_of(0);
                slot.next = first.plus(slot.next.since(first) - ids.div_ceil(2));
            }
            if is(Mutation::NotClosed) {
                slot.closed = before.closed;
            }
            if is(Mutation::JsForgotten) && S::UNIT_MS > 1 && ids == 0 {
                *slot = before;
            }
            if is(Mutation::AdvanceForgotten) && ids == 0 {
                slot.next = before.next;
            }
            result
        })
    }
}
