//! The one path from a call to an id.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::clock;
use crate::compat::Wait;
use crate::error::Error;
use crate::high_water;
use crate::js::{self, JsShard};
use crate::layout::{MAX_TICK, Position, Shard, Tick, compose, min_id, position_after, tick_of};
use crate::lease::Lease;
use crate::pg::{self, Local};
use crate::reservation::runs_low;
use crate::settings;
use crate::shmem::{self, Shared};
use crate::slot::{Bounds, Grid, Refusal, Run};

// Both are empty at fork.
static LEASE: Local<Cell<Lease>> = Local::new(Cell::new(Lease::NONE));
static LAST_ID: Local<Cell<Option<i64>>> = Local::new(Cell::new(None));

/// From which tick on this transaction's ids lie, as far as others know; above every tick before its first.
static STARTED: Local<Cell<Tick>> = Local::new(Cell::new(Tick::MAX));

/// The longest sleep before a waiting call looks at the clock again: it may have been set right.
const LOOK_AGAIN_US: u64 = 50_000;

/// How many milliseconds of a shard those who wait may have taken in advance: room for a thousand backends
/// with leases of 64. What a cancelled call leaves unused is lost, so there is an end to it.
pub const QUEUE_MS: u64 = 64;

/// Mints one id where nothing is in the way: from the lease, or from a new one that the shard has at
/// hand. None sends the caller to [`next_id`]. Nothing here panics, raises or waits.
#[inline]
pub fn at_once(shard: Shard) -> Option<i64> {
    let shared = shmem::shared().ok()?;
    let now = clock::now().ok()?;
    start(shared, now);
    let mut lease = LEASE.get();
    let position = match lease.next(shard, now, shared.floor()) {
        Some(position) => position,
        None => new_lease(&mut lease, shared, shard, now)?,
    };
    LEASE.set(lease);
    minted(position, shard).ok()
}

#[inline(never)]
fn new_lease(lease: &mut Lease, shared: &Shared, shard: Shard, now: Tick) -> Option<Position> {
    if !settings::allows(shard) {
        return None;
    }
    let bounds = bounds::<Shard>(shared, now, 0);
    let want = lease.want(shard, now, settings::max_lease());
    let reserve_ahead = settings::reserve_ahead_ms();
    let run = shared.with_slot(shard, |slot| {
        // Where the mark is due for renewal, the other path does that. A shard may have run ahead of the
        // clock.
        let due = runs_low(now.max(tick_of(slot.next)), bounds.limit, reserve_ahead);
        if due { None } else { slot.take::<Shard>(want, &bounds).ok() }
    })?;
    Some(lease.grant(shard, now, run))
}

/// Lets [`safe_horizon`] know of this transaction before the floor is read that bounds its next id: at its
/// first id, and again where the clock has been set back since.
#[inline]
fn start(shared: &Shared, now: Tick) {
    if now < STARTED.get() {
        shared.publish_start(now);
        STARTED.set(now);
    }
}

/// The ids of this transaction are settled: to be called when its rows are visible to others, or gone.
pub fn transaction_ended() {
    if let Ok(shared) = shmem::shared() {
        shared.clear_start();
    }
    STARTED.set(Tick::MAX);
}

/// The least id that may still become visible: every id below it is of a transaction that has ended.
///
/// # Errors
/// 25001 in a transaction that reads by one snapshot, 25006 in recovery, 55000 for a clock before the epoch,
/// while there are prepared transactions, for nothing remembers when they began to mint, and while synchronous
/// standbys may not have the mark that the horizon rests on.
pub fn safe_horizon() -> Result<i64, Error> {
    let shared = shmem::shared()?;
    if pg::one_snapshot() {
        return Err(Error::OneSnapshot);
    }
    high_water::share_settled(shared, &mut Patience::default())?;
    let now = clock::now()?;
    // From here on no call mints below; who did not see this floor has published its start before.
    let standbys = pg::standbys_must_acknowledge();
    let reached = shared.with_reservation(|r| r.raise_floor(now, standbys));
    let tick = reached.min(shared.oldest_start());
    // A transaction that was prepared since the start of it was looked at is among these.
    match pg::prepared_transactions() {
        0 => Ok(min_id(shared.with_reservation(|r| r.settle(tick)).min(MAX_TICK))),
        count => Err(Error::Prepared { count }),
    }
}

fn bounds<G: Grid>(shared: &Shared, now: Tick, queue: u64) -> Bounds {
    // The limit is read first: see Shared::limit.
    let limit = shared.limit();
    Bounds { now, floor: floor::<G>(shared), max_ahead: settings::max_ahead_ms(), queue, limit }
}

fn floor<G: Grid>(shared: &Shared) -> Tick {
    if G::FOLLOWED { shared.floor() } else { shared.run_floor() }
}

/// Remembers the id of a position as the session's last.
fn minted(position: Position, shard: Shard) -> Result<i64, Error> {
    let id = id_at(position, shard)?;
    LAST_ID.set(Some(id));
    Ok(id)
}

/// Mints one id from a new lease, and does what is in the way: waits, or renews the mark.
///
/// # Errors
/// 55000 and 2200H as [`Error`] lists them.
pub fn next_id(shard: Shard) -> Result<i64, Error> {
    let shared = shmem::shared()?;
    let now = clock::now()?;
    let mut turn = Turn::new(shared, shard)?;
    let mut lease = LEASE.get();
    let (granted, run) = turn.take(now, lease.want(shard, now, settings::max_lease()))?;
    let position = lease.grant(shard, granted, run);
    LEASE.set(lease);
    high_water::renew_early(shared, tick_of(run.end - 1), &mut turn.patience);
    minted(position, shard)
}

/// Mints `count` ids as a few runs, in order: one run and one lock acquisition where no bound is in
/// the way. All of them are taken before the first is returned.
///
/// # Errors
/// As [`next_id`], and 22023 for more ids than a call can wait for. Positions taken before another error are
/// skipped.
pub fn next_ids(shard: Shard, count: u64) -> Result<Vec<Run>, Error> {
    // What the lease still holds comes before the batch, and ids of a backend must increase.
    drop_lease();
    let mut turn = Turn::new(shmem::shared()?, shard)?;
    if count > 0 {
        turn.check_room(count)?;
    }
    let mut runs = Vec::new();
    let mut left = count;
    while left > 0 {
        let (_, run) = turn.take(clock::now()?, left)?;
        left -= run.count();
        runs.push(run);
    }
    if let Some(run) = runs.last() {
        minted(run.end - 1, shard)?;
        high_water::renew_early(turn.shared, tick_of(run.end - 1), &mut turn.patience);
    }
    Ok(runs)
}

/// Mints one id that JavaScript keeps exactly. Every call visits the shard's slot, so that the ids of a shard
/// are in strict order over all backends: for 4096 ids a second no lease pays.
///
/// # Errors
/// As [`next_id`].
pub fn next_id_js(shard: JsShard) -> Result<i64, Error> {
    let mut turn = Turn::new(shmem::shared()?, shard)?;
    let (now, run) = turn.take(clock::now()?, 1)?;
    high_water::renew_early(turn.shared, now.max(JsShard::tick_of(run.start)), &mut turn.patience);
    let id = js::compose(run.start, shard);
    LAST_ID.set(Some(id));
    Ok(id)
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

/// What keeps ids of every shard from being minted: the clock, or a setting given wrongly or not at all.
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
    settings::check_allowed_shards()?;
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
        high_water::reserve(shared, tick, tick, &mut patience)?;
    }
    let next = shared.with_slot(shard, |slot| {
        slot.next = slot.next.max(position);
        slot.next
    });
    // Leases granted before may hold lower positions, and live as long as their millisecond.
    let granted = clock::now()?;
    while clock::now()? == granted {
        pg::sleep(100, Wait::Clock);
    }
    id_at(next, shard)
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

    /// For how many milliseconds to come the call may queue.
    fn queue(&self) -> u64 {
        settings::max_wait_ms().saturating_sub(self.waited_ms()).min(QUEUE_MS)
    }

    /// How long the call has waited, in milliseconds.
    pub fn waited_ms(&self) -> u64 {
        self.0.map_or(0, |since| since.elapsed().as_millis() as u64)
    }
}

/// One call's turn at a shard. When it ends, in whatever way, a cancel included, what it waited is
/// added to the shard's counters.
struct Turn<G: Grid> {
    shared: &'static Shared,
    shard: G,
    patience: Patience,
    /// How often it had to ask for a new mark, up to two.
    renewals: u8,
}

impl<G: Grid> Turn<G> {
    fn new(shared: &'static Shared, shard: G) -> Result<Turn<G>, Error> {
        settings::check_allowed(shard.into())?;
        Ok(Turn { shared, shard, patience: Patience::default(), renewals: 0 })
    }

    /// Refuses a batch before a part of it is taken, if the shard cannot give it in the time that a call may
    /// wait, though nobody else asks meanwhile. A shard that has nothing to give in all of that time is left to
    /// [`Turn::take`], which knows why.
    fn check_room(&self, count: u64) -> Result<(), Error> {
        // A limit says that the stored mark was taken over. To ask would be to write the line of the mark, which
        // every call of every backend reads.
        if self.shared.limit() == 0 {
            high_water::load(self.shared)?;
        }
        let bounds = bounds::<G>(self.shared, clock::now()?, 0);
        let (slot, wait) = (self.shared.slot(self.shard), settings::max_wait_ms());
        // An eighth of the wait is left for sleeps that are longer than asked for.
        let most = slot.room::<G>(&bounds, wait / 8 * 7);
        if count > most && slot.room::<G>(&bounds, wait) > 0 {
            return Err(Error::BatchTooLarge { count, most });
        }
        Ok(())
    }

    /// Takes up to `want` positions, waiting where the shard is as far ahead of the clock as it may
    /// be, or the durable mark is reached. Returns them with what the clock showed when they were due.
    fn take(&mut self, mut now: Tick, want: u64) -> Result<(Tick, Run), Error> {
        loop {
            if G::FOLLOWED {
                start(self.shared, now);
            }
            let bounds = bounds::<G>(self.shared, now, self.patience.queue());
            let max_ahead = bounds.max_ahead;
            match self.shared.with_slot(self.shard, |slot| slot.take::<G>(want, &bounds)) {
                Ok(run) if run.due::<G>(max_ahead) <= now => return Ok((now, run)),
                Ok(run) => {
                    let tick = G::tick_of(run.start);
                    while now < run.due::<G>(max_ahead) {
                        self.wait(tick, now, max_ahead)?;
                        now = clock::now()?;
                    }
                    // Both may have moved meanwhile; the limit is lower where synchronous replication has begun.
                    let limit = self.shared.limit();
                    if (floor::<G>(self.shared)..limit).contains(&tick) {
                        return Ok((run.due::<G>(max_ahead), run));
                    }
                }
                Err(Refusal::Ahead { tick }) => self.wait(tick, now, max_ahead)?,
                // The slot has not seen the floor of this run yet.
                Err(Refusal::Limit { .. }) if high_water::load(self.shared)? => {}
                Err(Refusal::Limit { tick }) => {
                    // To renew the mark is part of every call, and once more where that took long. More is a wait.
                    if self.renewals == 2 {
                        high_water::time_left(&mut self.patience)?;
                    } else {
                        self.renewals += 1;
                    }
                    // At once as far as the batch goes, and not a window at a time.
                    let wanted = G::after(tick, want).min(now + max_ahead).max(tick);
                    high_water::reserve(self.shared, tick, wanted, &mut self.patience)?;
                    pg::check_for_interrupts();
                }
                Err(Refusal::Exhausted) => return Err(Error::Exhausted),
            }
            now = clock::now()?;
        }
    }

    /// Sleeps until the clock lets `tick` be issued, or a part of that.
    fn wait(&mut self, tick: Tick, now: Tick, max_ahead: u64) -> Result<(), Error> {
        let Some(left) = self.patience.left() else {
            return Err(self.too_far_ahead(tick, now, max_ahead));
        };
        let due_us =
            settings::epoch()?.unix_ms().saturating_add_unsigned(tick - max_ahead).saturating_mul(1000);
        let due_in = due_us.saturating_sub(clock::unix_us()).max(1).unsigned_abs();
        pg::sleep(due_in.min(left.as_micros() as u64).clamp(1, LOOK_AGAIN_US), Wait::Clock);
        Ok(())
    }
}

impl<G: Grid> Turn<G> {
    /// Why `tick`, the next one that the shard has, cannot be issued at `now`.
    fn too_far_ahead(&self, tick: Tick, now: Tick, max_ahead_ms: u64) -> Error {
        let (shard, waited_ms) = (self.shard.into().into(), self.patience.waited_ms());
        // None of a unit of time is issued that begins before the floor.
        let floor = self.shared.run_floor().next_multiple_of(G::UNIT_MS);
        if floor > now + max_ahead_ms {
            return Error::ClockBehindMark { by_ms: floor - now, max_ahead_ms, waited_ms };
        }
        // Calls take a shard as far as this, and no further while the clock goes on.
        if tick <= now + max_ahead_ms + QUEUE_MS + G::UNIT_MS {
            return Error::ShardFull { shard, max_ahead_ms, waited_ms };
        }
        Error::ClockBehind { shard, by_ms: tick - now, max_ahead_ms, waited_ms }
    }
}

impl<G: Grid> Drop for Turn<G> {
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
