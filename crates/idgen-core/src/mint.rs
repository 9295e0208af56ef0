//! The one path from a call to an id.

use std::cell::Cell;
use std::collections::VecDeque;

use idgen_ids::id::IDS_PER_TICK;
use idgen_ids::js::JsShard;
use idgen_ids::{Shard, Tick};

use crate::batch::{self, Batch};
use crate::deadline::{Deadline, LOOK_AGAIN_US};
use crate::error::Error;
use crate::host::{Host, Wait};
use crate::lease::Lease;
use crate::mark::{MOST_LATE_REACH_MS, renewal, runs_low};
use crate::position::{LayoutShard, Position, Run};
use crate::settings::{QUEUE_MS, Settings};
use crate::shared::Slotted;
use crate::slot::{Barred, Bounds, Refusal, Slot};

/// How many milliseconds of a shard a waiting batch takes in advance, so that none is lost if its process wakes late,
/// or between one batch and the next. Single calls may have to wait longer by as much.
const EARLY_MS: u64 = 16;

/// The state that a backend keeps between calls.
#[derive(Debug)]
pub struct Session {
    lease: Cell<Lease>,
    last_id: Cell<Option<i64>>,
    /// The published lower bound of this transaction's ticks; `Tick::MAX` until it mints.
    txn_floor: Cell<Tick>,
}

impl Session {
    /// The state of a backend that has not minted an id.
    #[must_use]
    pub const fn fresh() -> Session {
        Session { lease: Cell::new(Lease::NONE), last_id: Cell::new(None), txn_floor: Cell::new(Tick::MAX) }
    }

    /// Forgets the lease, so that the next call visits its shard.
    pub fn drop_lease(&self) {
        self.lease.set(Lease::NONE);
    }

    /// The last id; `None` before the first one.
    pub fn last_id(&self) -> Option<i64> {
        self.last_id.get()
    }

    /// Marks the transaction's ids as settled. Call it when its rows are visible to others, or gone, and what it has
    /// published has been withdrawn.
    pub fn transaction_ended(&self) {
        self.txn_floor.set(Tick::MAX);
    }

    /// Publishes a lower bound of this transaction's ids to readers of the horizon, before it reads the floor that
    /// bounds its next id: at its first id, and again if the clock has been set back since.
    #[inline]
    fn publish_floor(&self, host: &impl Host, now: Tick) {
        if now < self.txn_floor.get() {
            host.publish_floor(now);
            self.txn_floor.set(now);
        }
    }

    /// Records the id of a position as the last one.
    #[inline]
    fn minted<S: LayoutShard>(&self, position: Position<S>, shard: S) -> i64 {
        let id = shard.id(position);
        self.last_id.set(Some(id));
        id
    }
}

/// Mints one id without waiting: from the lease, or from a new lease if the shard can grant one at once. On `None`,
/// call [`next_id`]. `settings` is called only if a new lease is needed, and returns `None` if the shard may not be
/// minted for. This function does not panic, raise an error or wait.
#[inline]
pub fn at_once(
    host: &impl Host,
    session: &Session,
    shard: Shard,
    settings: impl FnOnce() -> Option<Settings>,
) -> Option<i64> {
    let now = host.now().ok()?;
    session.publish_floor(host, now);
    let mut lease = session.lease.get();
    let position = match lease.next(shard, now, host.floor()) {
        Some(position) => position,
        None => new_lease(&mut lease, host, shard, now, settings)?,
    };
    session.lease.set(lease);
    Some(session.minted(position, shard))
}

#[inline(never)]
fn new_lease(
    lease: &mut Lease,
    host: &impl Host,
    shard: Shard,
    now: Tick,
    settings: impl FnOnce() -> Option<Settings>,
) -> Option<Position<Shard>> {
    let settings = settings()?;
    let bounds = bounds::<Shard>(host, &settings, now, 0);
    let want = lease.want(shard, now, settings.max_lease);
    let margin = renewal::margin(&settings, renewal::is_awaited(host));
    let run = host.with_slot(shard, |slot| {
        // If the mark is due for renewal, leave that to the slow path. The shard may have run ahead of the clock.
        let due = runs_low(now.max(slot.next.tick()), bounds.limit, margin);
        if due { None } else { slot.take(want, host.allows(shard), &bounds).ok() }
    })?;
    Some(lease.grant(shard, now, run))
}

fn bounds<S: LayoutShard>(host: &impl Host, settings: &Settings, now: Tick, queue: u64) -> Bounds {
    // The limit is read first: see Published::limit.
    let limit = host.limit();
    Bounds { now, floor: floor::<S>(host), max_ahead: settings.max_ahead_ms, queue, limit }
}

fn floor<S: LayoutShard>(host: &impl Host) -> Tick {
    if S::FOLLOWED { host.floor() } else { host.recovered() }
}

/// Mints one id from a new lease; waits or renews the mark first if necessary.
///
/// # Errors
/// An [`Error`], or one of the host's.
pub fn next_id<H: Host>(
    host: &H,
    settings: &Settings,
    session: &Session,
    shard: Shard,
) -> Result<i64, H::Error> {
    let now = host.now()?;
    let mut turn = Turn::new(host, settings, session, shard);
    let mut lease = session.lease.get();
    let (granted, run) = turn.take(now, lease.want(shard, now, settings.max_lease))?;
    let position = lease.grant(shard, granted, run);
    session.lease.set(lease);
    renewal::renew_early(host, settings, last_tick(run), &mut turn.deadline);
    Ok(session.minted(position, shard))
}

/// The millisecond in which a run ends.
fn last_tick<S: LayoutShard>(run: Run<S>) -> Tick {
    run.end.previous().map_or(0, Position::tick)
}

/// Mints `count` ids as a few runs, in order. Unless a bound is reached, that is one run and one acquisition of the
/// lock. All ids are taken before the first is returned.
///
/// # Errors
/// As [`next_id`], and [`Error::BatchTooLarge`]. Positions taken before another error are skipped.
pub fn next_ids<H: Host>(
    host: &H,
    settings: &Settings,
    session: &Session,
    shard: Shard,
    count: u64,
) -> Result<Vec<Run<Shard>>, H::Error> {
    // The remaining ids of the lease are smaller than those of the batch, and the ids of a backend must increase.
    session.drop_lease();
    let mut turn = Turn::new(host, settings, session, shard);
    if count > 0 {
        turn.admit(count)?;
    }
    let mut runs = Vec::new();
    let mut left = count;
    while left > 0 {
        let (_, run) = turn.take(host.now()?, left)?;
        left -= run.count();
        runs.push(run);
    }
    if let Some(run) = runs.last()
        && let Some(last) = run.end.previous()
    {
        session.minted(last, shard);
        renewal::renew_early(host, settings, last.tick(), &mut turn.deadline);
    }
    Ok(runs)
}

/// Mints one id that JavaScript represents exactly. Every call visits the shard's slot, so the ids of a shard are
/// in strict order across all backends. At 4096 ids per second, leases would not pay off.
///
/// # Errors
/// As [`next_id`].
pub fn next_id_js<H: Host>(
    host: &H,
    settings: &Settings,
    session: &Session,
    shard: JsShard,
) -> Result<i64, H::Error> {
    let mut turn = Turn::new(host, settings, session, shard);
    let (now, run) = turn.take(host.now()?, 1)?;
    renewal::renew_early(host, settings, now.max(run.start.tick()), &mut turn.deadline);
    Ok(session.minted(run.start, shard))
}

/// One call's turn at a shard. However the turn ends, for example by a cancel, the time waited is added to the shard's
/// counters.
struct Turn<'a, S: Slotted, H: Host> {
    host: &'a H,
    settings: &'a Settings,
    session: &'a Session,
    shard: S,
    deadline: Deadline,
    /// How long the last request for a new mark took, in milliseconds.
    renewal_ms: u64,
    /// The call's batch, if it has one in the queue.
    batch: Option<&'a Batch>,
    /// The runs that the batch has taken in advance.
    early: VecDeque<Run<S>>,
}

impl<'a, S: Slotted, H: Host> Turn<'a, S, H> {
    fn new(host: &'a H, settings: &'a Settings, session: &'a Session, shard: S) -> Turn<'a, S, H> {
        Turn {
            host,
            settings,
            session,
            shard,
            deadline: Deadline::new(settings),
            renewal_ms: 0,
            batch: None,
            early: VecDeque::new(),
        }
    }

    /// Takes up to `want` positions, waiting if the shard is as far ahead of the clock as it may be, or if the
    /// durable mark is reached. Returns them with the tick at which they were due.
    fn take(&mut self, mut now: Tick, want: u64) -> Result<(Tick, Run<S>), H::Error> {
        loop {
            if S::FOLLOWED {
                self.session.publish_floor(self.host, now);
            }
            let bounds = bounds::<S>(self.host, self.settings, now, self.deadline.queue(self.host));
            let max_ahead = bounds.max_ahead;
            let early = self.early.pop_front();
            match early.map_or_else(|| self.visit(want, &bounds), Ok) {
                Ok(run) if early.is_none() && run.due(max_ahead) <= now => return Ok((now, run)),
                Ok(run) => {
                    self.take_early(want - run.count(), &bounds);
                    let tick = run.start.tick();
                    while now < run.due(max_ahead) {
                        self.wait(tick, max_ahead)?;
                        now = self.host.now()?;
                        // The run may be due in the far future, if the clock has been set back.
                        if now < run.due(max_ahead) {
                            self.host.with_slot(self.shard, |slot| self.check(slot))?;
                        }
                    }
                    // Both may have moved in the meantime; the limit is lower if synchronous replication has begun.
                    let limit = self.host.limit();
                    if (floor::<S>(self.host)..limit).contains(&tick) {
                        return Ok((run.due(max_ahead), run));
                    }
                    if let Some(batch) = self.batch {
                        self.host.with_slot(self.shard, |_| batch.lost(run.count()));
                    }
                }
                Err(Refusal::Ahead { tick }) => self.wait(tick, max_ahead)?,
                // The slot has not seen the recovered mark yet.
                Err(Refusal::Limit { .. }) if renewal::load(self.host, self.settings)? => {}
                Err(Refusal::Limit { tick }) => {
                    // Reserve as far as the batch reaches at once, not one window at a time. If a mark took longer to
                    // become durable than it reaches ahead, the clock has already passed it, so the next one reaches
                    // beyond that time.
                    let end = Position::<S>::first_of(tick / S::UNIT_MS).plus(want);
                    let reserve_ahead = self.settings.reserve_ahead_ms;
                    let late_ms = if self.renewal_ms < reserve_ahead {
                        0
                    } else {
                        (2 * self.renewal_ms).min(MOST_LATE_REACH_MS.saturating_sub(reserve_ahead))
                    };
                    let wanted = end.tick().min(now + max_ahead).max(tick) + late_ms;
                    let start = self.host.monotonic_us();
                    renewal::reserve(self.host, self.settings, tick, wanted, &mut self.deadline)?;
                    self.renewal_ms = self.host.monotonic_us().saturating_sub(start) / 1000;
                    self.host.check_for_interrupts();
                }
                Err(Refusal::Exhausted) => return Err(Error::Exhausted.into()),
                Err(Refusal::Barred(why)) => return Err(self.barred(why).into()),
            }
            now = self.host.now()?;
        }
    }

    /// Takes up to `want` positions from the slot.
    fn visit(&self, want: u64, bounds: &Bounds) -> Result<Run<S>, Refusal> {
        let boot_ms = self.batch.map_or(0, |_| self.host.boot_ms());
        self.host.with_slot(self.shard, |slot| {
            if let Some(batch) = self.batch {
                batch.looks(boot_ms);
            }
            let run = slot.take(want, self.host.allows(self.shard.into()), bounds)?;
            if let Some(batch) = self.batch {
                batch.took(run.count());
            }
            Ok(run)
        })
    }

    /// Takes up to `want` positions after those for which a batch waits.
    fn take_early(&mut self, want: u64, bounds: &Bounds) {
        let bounds = Bounds { queue: bounds.queue.min(EARLY_MS), ..*bounds };
        let mut left = want - self.early.iter().map(Run::count).sum::<u64>();
        while self.batch.is_some()
            && left > 0
            && let Ok(run) = self.visit(left, &bounds)
        {
            left -= run.count();
            self.early.push_back(run);
        }
    }

    /// Sleeps until the clock lets `tick` be issued, or for part of that time.
    fn wait(&mut self, tick: Tick, max_ahead: u64) -> Result<(), H::Error> {
        let Some(left_us) = self.deadline.left_us(self.host) else {
            // The process may have been suspended since it read the clock.
            let now = self.host.now()?;
            return if tick > now + max_ahead {
                Err(self.too_far_ahead(tick, now, max_ahead).into())
            } else {
                Ok(())
            };
        };
        let due_in = self.host.us_until(tick - max_ahead)?;
        self.host.sleep(due_in.min(left_us).clamp(1, LOOK_AGAIN_US), Wait::Clock);
        Ok(())
    }

    /// Checks, under the lock of the slot, that the server may still mint for the shard.
    fn check(&self, slot: &Slot<S>) -> Result<(), Error> {
        slot.check(self.host.allows(self.shard.into())).map_err(|why| self.barred(why))
    }

    fn barred(&self, why: Barred) -> Error {
        let shard = self.shard.into();
        match why {
            Barred::NotAllowed => Error::ShardNotAllowed { shard },
            Barred::Closed => Error::ShardClosed { shard },
        }
    }

    /// The reason why `tick`, the next one of the shard, cannot be issued at `now`.
    fn too_far_ahead(&self, tick: Tick, now: Tick, max_ahead_ms: u64) -> Error {
        let (shard, waited_ms) = (self.shard.into(), self.deadline.waited_ms(self.host));
        // No unit of time is issued that begins before the floor. If the shard has ids of this incarnation, the call
        // waits for those.
        let floor = self.host.recovered().next_multiple_of(S::UNIT_MS);
        if floor >= tick {
            return Error::ClockBehindMark { by_ms: floor - now, max_ahead_ms, waited_ms };
        }
        // While the clock advances, calls take a shard this far and no further.
        if tick <= now + max_ahead_ms + QUEUE_MS + S::UNIT_MS {
            return Error::ShardFull { shard, max_ahead_ms, waited_ms };
        }
        Error::ClockBehind { shard, by_ms: tick - now, max_ahead_ms, waited_ms }
    }
}

impl<'a, H: Host> Turn<'a, Shard, H> {
    /// Refuses a batch before any of it is taken if the shard could not provide it within the time that a call may
    /// wait, after the earlier batches and without other callers. If the shard has nothing to provide in that time,
    /// [`Turn::take`] reports the reason.
    ///
    /// Otherwise the batch joins the queue, unless it has no more ids than a millisecond: then it competes like a
    /// single call.
    fn admit(&mut self, count: u64) -> Result<(), H::Error> {
        let (host, settings, shard) = (self.host, self.settings, self.shard);
        // A limit implies that the stored mark has been loaded. Asking the mark itself would take its lock.
        if host.limit() == 0 {
            renewal::load(host, settings)?;
        }
        let bounds = bounds::<Shard>(host, settings, host.now()?, 0);
        let wait = settings.max_wait_ms;
        let batch = host.own().map(|own| &own.batch).filter(|_| count > IDS_PER_TICK);
        let boot_ms = batch.map_or(0, |_| host.boot_ms());
        let (batch, ahead) = host.with_slot(shard, |slot| {
            self.check(slot)?;
            let ahead = batch.map_or(0, |_| batch::left(host.batches(), shard, boot_ms));
            // Leave an eighth of the wait for single calls and for sleeps that take longer than requested, unless the
            // shard has nothing before that.
            let room =
                [wait * 7 / 8, wait].map(|wait| slot.room(&bounds, wait)).into_iter().find(|room| *room > 0);
            match room {
                Some(most) if count > most => return Err(Error::BatchTooLarge { count, most }),
                Some(room) if count > room.saturating_sub(ahead) => {
                    return Err(Error::BatchesBefore { shard, count, ahead });
                }
                _ => {}
            }
            // A batch for which there are no ids does not keep others from joining.
            let batch = batch.filter(|_| room.is_some());
            if let Some(batch) = batch {
                batch.join(host.batches(), shard, count, boot_ms);
            }
            Ok((batch, ahead))
        })?;
        self.batch = batch;
        if ahead > 0 { self.let_pass() } else { Ok(()) }
    }

    /// Sleeps while the earlier batches take their ids. If they take none for a while although the shard has some and
    /// no mark is awaited, their backends are not at work, for example because a process was stopped, and this batch
    /// goes on. It also goes on when it may wait no longer, because it may not have to.
    fn let_pass(&mut self) -> Result<(), H::Error> {
        let host = self.host;
        let Some(batch) = self.batch else { return Ok(()) };
        // The ids that they had left when the shard was first seen to have some, and the time of that.
        let mut lie: Option<(u64, u64)> = None;
        let mut flush = 0;
        loop {
            let bounds = bounds::<Shard>(host, self.settings, host.now()?, 0);
            let boot_ms = host.boot_ms();
            let (ahead, room) = host.with_slot(self.shard, |slot| {
                batch.looks(boot_ms);
                self.check(slot)?;
                Ok::<_, Error>((batch.ahead(host.batches(), self.shard), slot.room(&bounds, 0)))
            })?;
            let now_us = host.monotonic_us();
            let lies = room > 0 && !renewal::is_awaited(host);
            lie = lies.then(|| lie.filter(|(left, _)| *left == ahead).unwrap_or((ahead, now_us)));
            if ahead == 0 || lie.is_some_and(|(_, since_us)| now_us - since_us >= LOOK_AGAIN_US) {
                return Ok(());
            }
            let Some(left_us) = self.deadline.left_us(host) else { return Ok(()) };
            let us = (ahead * 1000 / IDS_PER_TICK).clamp(1000, LOOK_AGAIN_US).min(left_us);
            let awaited = host.awaited();
            if room > 0 && !host.flushed(awaited) {
                // The earlier batches wait for a flush of the mark, which counts as if this batch waited for it itself.
                if flush != awaited {
                    flush = awaited;
                    self.deadline.renewal_counts();
                }
                self.deadline.except(host, || host.sleep(us, Wait::Clock));
            } else {
                host.sleep(us, Wait::Clock);
            }
        }
    }
}

impl<S: Slotted, H: Host> Drop for Turn<'_, S, H> {
    fn drop(&mut self) {
        if let Some(batch) = self.batch {
            batch.leave();
        }
        if let Some(us) = self.deadline.waited_us(self.host) {
            self.host.with_slot(self.shard, |slot| {
                slot.counters.waits += 1;
                slot.counters.waited_us += us;
            });
        }
    }
}
