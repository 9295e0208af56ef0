//! The one path from a call to an id.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use crate::clock;
use crate::error::Error;
use crate::high_water;
use crate::layout::{MAX_TICK, Position, Shard, Tick, compose, position_after, tick_of};
use crate::lease::Lease;
use crate::pg;
use crate::settings;
use crate::shmem::{self, Shared};
use crate::slot::{Bounds, Refusal, Run};

thread_local! {
    // A backend is one thread; both are empty at fork.
    static LEASE: RefCell<Lease> = const { RefCell::new(Lease::NONE) };
    static LAST_ID: Cell<Option<i64>> = const { Cell::new(None) };
}

/// The longest sleep before a waiting call looks at the clock again: it may have been set right.
const LOOK_AGAIN_US: u64 = 50_000;

/// Mints one id.
///
/// # Errors
/// 55000 and 2200H as [`Error`] lists them.
#[inline]
pub fn next_id(shard: Shard) -> Result<i64, Error> {
    let shared = shmem::shared()?;
    let now = clock::now()?;
    let position = match LEASE.with_borrow_mut(|lease| lease.next(shard, now, shared.floor())) {
        Some(position) => position,
        None => renew(shared, shard, now)?,
    };
    let id = id_at(position, shard)?;
    LAST_ID.set(Some(id));
    Ok(id)
}

/// Mints `count` ids as a few runs, in order: one run and one lock acquisition where no bound is in
/// the way. All of them are taken before the first is returned.
///
/// # Errors
/// As [`next_id`]. Positions taken before the error are skipped.
pub fn next_ids(shard: Shard, count: u64) -> Result<Vec<Run>, Error> {
    // What the lease still holds comes before the batch, and ids of a backend must increase.
    drop_lease();
    let mut turn = Turn::new(shmem::shared()?, shard)?;
    let mut runs = Vec::new();
    let mut left = count;
    while left > 0 {
        let (_, run) = turn.take(clock::now()?, left)?;
        left -= run.count();
        runs.push(run);
    }
    if let Some(run) = runs.last() {
        LAST_ID.set(Some(id_at(run.end - 1, shard)?));
        high_water::renew_early(turn.shared, tick_of(run.end - 1), &mut turn.patience);
    }
    Ok(runs)
}

/// The id of a position that was minted for a shard.
///
/// # Errors
/// None for a minted position; the conversion is checked all the same.
pub fn id_at(position: Position, shard: Shard) -> Result<i64, Error> {
    compose(position, shard).map_err(|_| Error::Exhausted)
}

/// The last id of this session.
///
/// # Errors
/// 55000 before the first.
pub fn last_id() -> Result<i64, Error> {
    LAST_ID.get().ok_or(Error::NoLastId)
}

/// What keeps ids of every shard from being minted: the clock, or a setting given wrongly at start.
pub fn problem() -> Option<Error> {
    let check = || {
        settings::check_allowed_shards()?;
        if clock::now()? > MAX_TICK { Err(Error::Exhausted) } else { Ok(()) }
    };
    check().err()
}

/// Forgets the lease: the next call asks its shard.
pub fn drop_lease() {
    LEASE.set(Lease::NONE);
}

/// Makes the shard's next id greater than `past`, durably, and returns the least it can be.
///
/// # Errors
/// 22023 for an id too far in the future, 2200H for one at the end of the range, and those of
/// [`next_id`].
pub fn advance(shard: Shard, past: i64) -> Result<i64, Error> {
    let shared = shmem::shared()?;
    let position = position_after(past, shard).ok_or(Error::Exhausted)?;
    let tick = tick_of(position);
    drop_lease();
    let mut patience = Patience::default();
    // A server that starts again begins at the mark, so a mark above the position is what keeps it.
    // Below the floor, which is such a mark, there is nothing to do.
    loop {
        let (now, max_ahead_ms) = (clock::now()?, settings::max_ahead_ms());
        if tick > now.saturating_add(max_ahead_ms) {
            return Err(Error::AdvanceTooFar { by_ms: tick - now, max_ahead_ms });
        }
        if shared.limit() > tick || shared.floor() > tick {
            break;
        }
        high_water::reserve(shared, tick, &mut patience)?;
    }
    let next = shared.with_slot(shard, |slot| {
        slot.next = slot.next.max(position);
        slot.next
    });
    // Leases granted before may hold lower positions, and live as long as their millisecond.
    let granted = clock::now()?;
    while clock::now()? == granted {
        pg::sleep(100);
    }
    id_at(next, shard)
}

#[cold]
#[inline(never)]
fn renew(shared: &'static Shared, shard: Shard, now: Tick) -> Result<Position, Error> {
    let mut turn = Turn::new(shared, shard)?;
    let want = LEASE.with_borrow(|lease| lease.want(shard, now, settings::max_lease()));
    let (granted, run) = turn.take(now, want)?;
    let position = LEASE.with_borrow_mut(|lease| lease.grant(shard, granted, run));
    high_water::renew_early(shared, tick_of(run.end - 1), &mut turn.patience);
    Ok(position)
}

/// What is left of the time that a call may wait. It counts from the first wait on.
#[derive(Default)]
pub struct Patience(Option<Instant>);

impl Patience {
    /// How long the call may still wait; nothing once `idgen.max_wait` is over.
    pub fn left(&mut self) -> Option<Duration> {
        let waited = self.0.get_or_insert_with(Instant::now).elapsed();
        let max_wait = Duration::from_millis(settings::max_wait_ms());
        max_wait.checked_sub(waited).filter(|left| !left.is_zero())
    }

    /// How long the call has waited, in milliseconds.
    pub fn waited_ms(&self) -> u64 {
        self.0.map_or(0, |since| since.elapsed().as_millis() as u64)
    }
}

/// One call's turn at a shard. When it ends, in whatever way, a cancel included, what it waited is
/// added to the shard's counters.
struct Turn {
    shared: &'static Shared,
    shard: Shard,
    patience: Patience,
}

impl Turn {
    fn new(shared: &'static Shared, shard: Shard) -> Result<Turn, Error> {
        settings::check_allowed(shard)?;
        Ok(Turn { shared, shard, patience: Patience::default() })
    }

    /// Takes up to `want` positions, waiting where the shard is as far ahead of the clock as it may
    /// be, or the durable mark is reached. Returns them with what the clock showed.
    fn take(&mut self, mut now: Tick, want: u64) -> Result<(Tick, Run), Error> {
        loop {
            let max_ahead = settings::max_ahead_ms();
            // The limit is read first: see Shared::limit.
            let limit = self.shared.limit();
            let bounds = Bounds { now, floor: self.shared.floor(), max_ahead, limit };
            match self.shared.with_slot(self.shard, |slot| slot.take(want, &bounds)) {
                Ok(run) => return Ok((now, run)),
                Err(Refusal::Ahead { tick }) => self.wait(tick, now, max_ahead)?,
                Err(Refusal::Limit { tick }) => high_water::reserve(self.shared, tick, &mut self.patience)?,
                Err(Refusal::Exhausted) => return Err(Error::Exhausted),
            }
            now = clock::now()?;
        }
    }

    /// Sleeps until the clock lets `tick` be issued, or a part of that.
    fn wait(&mut self, tick: Tick, now: Tick, max_ahead: u64) -> Result<(), Error> {
        let Some(left) = self.patience.left() else {
            return Err(Error::ClockBehind {
                shard: self.shard.into(),
                by_ms: tick - now,
                max_ahead_ms: max_ahead,
                waited_ms: self.patience.waited_ms(),
            });
        };
        let due_us =
            settings::epoch()?.unix_ms().saturating_add_unsigned(tick - max_ahead).saturating_mul(1000);
        let due_in = due_us.saturating_sub(clock::unix_us()).max(1).unsigned_abs();
        pg::sleep(due_in.min(left.as_micros() as u64).clamp(1, LOOK_AGAIN_US));
        Ok(())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(since) = self.patience.0 {
            let us = since.elapsed().as_micros() as u64;
            self.shared.with_slot(self.shard, |slot| {
                slot.waits += 1;
                slot.waited_us += us;
            });
        }
    }
}
