//! The one path from a call to an id.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use crate::clock;
use crate::error::Error;
use crate::layout::{MAX_TICK, Position, Shard, Tick, compose};
use crate::lease::Lease;
use crate::pg;
use crate::settings;
use crate::shmem::{self, Slots};
use crate::slot::{Bounds, Refusal, Run};

thread_local! {
    // A backend is one thread; both are empty at fork.
    static LEASE: RefCell<Lease> = const { RefCell::new(Lease::NONE) };
    static LAST_ID: Cell<Option<i64>> = const { Cell::new(None) };
}

/// No position before this tick is handed out.
const FLOOR: Tick = 0;

/// The longest sleep before a waiting call looks at the clock again: it may have been set right.
const LOOK_AGAIN_US: u64 = 50_000;

/// Mints one id.
///
/// # Errors
/// 55000 and 2200H as [`Error`] lists them.
#[inline]
pub fn next_id(shard: Shard) -> Result<i64, Error> {
    let now = clock::now()?;
    let position = match LEASE.with_borrow_mut(|lease| lease.next(shard, now, FLOOR)) {
        Some(position) => position,
        None => renew(shard, now)?,
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
    let mut turn = Turn::new(shard)?;
    let mut runs = Vec::new();
    let mut left = count;
    while left > 0 {
        let (_, run) = turn.take(clock::now()?, left)?;
        left -= run.count();
        runs.push(run);
    }
    if let Some(run) = runs.last() {
        LAST_ID.set(Some(id_at(run.end - 1, shard)?));
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

/// Forgets the lease: the next call asks its shard.
pub fn drop_lease() {
    LEASE.set(Lease::NONE);
}

#[cold]
#[inline(never)]
fn renew(shard: Shard, now: Tick) -> Result<Position, Error> {
    let mut turn = Turn::new(shard)?;
    let want = LEASE.with_borrow(|lease| lease.want(shard, now, settings::max_lease()));
    let (granted, run) = turn.take(now, want)?;
    Ok(LEASE.with_borrow_mut(|lease| lease.grant(shard, granted, run)))
}

/// One call's turn at a shard, with the time it has waited so far. When it ends, in whatever way, a
/// cancel included, the wait is added to the shard's counters.
struct Turn {
    slots: &'static Slots,
    shard: Shard,
    waiting_since: Option<Instant>,
}

impl Turn {
    fn new(shard: Shard) -> Result<Turn, Error> {
        settings::check_allowed(shard)?;
        Ok(Turn { slots: shmem::slots()?, shard, waiting_since: None })
    }

    /// Takes up to `want` positions, waiting where the shard is as far ahead of the clock as it may
    /// be. Returns them with what the clock showed.
    fn take(&mut self, mut now: Tick, want: u64) -> Result<(Tick, Run), Error> {
        loop {
            let max_ahead = settings::max_ahead_ms();
            let bounds = Bounds { now, floor: FLOOR, max_ahead, limit: MAX_TICK + 1 };
            match self.slots.with(self.shard, |slot| slot.take(want, &bounds)) {
                Ok(run) => return Ok((now, run)),
                Err(Refusal::Ahead { tick }) => self.wait(tick, now, max_ahead)?,
                Err(Refusal::Limit { .. } | Refusal::Exhausted) => return Err(Error::Exhausted),
            }
            now = clock::now()?;
        }
    }

    /// Sleeps until the clock lets `tick` be issued, or a part of that.
    fn wait(&mut self, tick: Tick, now: Tick, max_ahead: u64) -> Result<(), Error> {
        let waited = self.waiting_since.get_or_insert_with(Instant::now).elapsed();
        let max_wait = Duration::from_millis(settings::max_wait_ms());
        let Some(left) = max_wait.checked_sub(waited).filter(|left| !left.is_zero()) else {
            return Err(Error::ClockBehind {
                shard: self.shard.into(),
                by_ms: tick - now,
                max_ahead_ms: max_ahead,
                waited_ms: waited.as_millis() as u64,
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
        if let Some(since) = self.waiting_since {
            let us = since.elapsed().as_micros() as u64;
            self.slots.with(self.shard, |slot| {
                slot.waits += 1;
                slot.waited_us += us;
            });
        }
    }
}
