//! The one path from a call to an id.

use std::cell::Cell;
use std::collections::VecDeque;

use crate::batch::{self, Batch};
use crate::id::{IDS_PER_TICK, Shard, Tick};
use crate::js::JsShard;
use crate::lease::Lease;
use crate::mark::runs_low;
use crate::position::{Grid, Position, Run};
use crate::renew;
use crate::server::{Server, Slots, Wait};
use crate::slot::{Bounds, Refusal};

/// The longest sleep before a waiting call reads the clock again, which may have been corrected.
pub(crate) const LOOK_AGAIN_US: u64 = 50_000;

/// How far a mark reaches at most after one that was late, in milliseconds. The next run begins there, and has to mint
/// within the default of `idgen.max_wait`; and a suspended process must not write a mark hours ahead.
pub const MOST_LATE_REACH_MS: u64 = 4000;

/// How many milliseconds of a shard waiting calls may take in advance: enough for a thousand backends with leases
/// of 64. It is bounded because a canceled call loses what it has taken.
pub const QUEUE_MS: u64 = 64;

/// How many milliseconds of a shard a waiting batch takes in advance, so that none is lost if its process wakes late, or
/// between one batch and the next. Single calls may have to wait as much longer.
const EARLY_MS: u64 = 16;

/// Why there is no id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// A batch of more ids than the shard can provide within the time that a call may wait.
    BatchTooLarge {
        /// How many ids were asked for.
        count: u64,
        /// The most that the shard can provide now.
        most: u64,
    },
    /// A batch that the shard could provide within that time, if it had not to provide others before.
    BatchesBefore {
        /// The shard asked for.
        shard: Shard,
        /// How many ids were asked for.
        count: u64,
        /// How many ids the batches before have still to take.
        ahead: u64,
    },
    /// The shard is as far ahead of the system clock as it may be, because of demand for more ids than it has.
    ShardFull {
        /// The shard asked for.
        shard: Shard,
        /// What `idgen.max_ahead` allows, in milliseconds.
        max_ahead_ms: u64,
        /// How long the call waited, in milliseconds.
        waited_ms: u64,
    },
    /// Ids of earlier runs of the server may lie too far ahead of the system clock, and waiting did not help.
    ClockBehindMark {
        /// How far the mark left by those runs is ahead of the clock, in milliseconds.
        by_ms: u64,
        /// What `idgen.max_ahead` allows, in milliseconds.
        max_ahead_ms: u64,
        /// How long the call waited, in milliseconds.
        waited_ms: u64,
    },
    /// The next id would lie too far ahead of the system clock, which was set back or is behind the ids of this run
    /// for another reason, and waiting did not help.
    ClockBehind {
        /// The shard asked for.
        shard: Shard,
        /// How far the next id is ahead of the clock, in milliseconds.
        by_ms: u64,
        /// What `idgen.max_ahead` allows, in milliseconds.
        max_ahead_ms: u64,
        /// How long the call waited, in milliseconds.
        waited_ms: u64,
    },
    /// The furthest id minted lies too far ahead of the clock, and waiting did not help.
    ClockBehindIds {
        /// How far the id is ahead of the clock, in milliseconds.
        by_ms: u64,
        /// What `idgen.max_ahead` allows, in milliseconds.
        max_ahead_ms: u64,
        /// How long the call waited, in milliseconds.
        waited_ms: u64,
    },
    /// The system clock does not leave a millisecond, and waiting did not help.
    ClockStands {
        /// How long the call waited, in milliseconds.
        waited_ms: u64,
    },
    /// The system clock jumped forward by more than `idgen.max_clock_jump`.
    ClockLeapt {
        /// How far, in milliseconds.
        by_ms: u64,
    },
    /// The high-water mark did not become durable in time.
    MarkNotRenewed {
        /// How long the call waited, in milliseconds.
        waited_ms: u64,
    },
    /// The server is in recovery.
    Recovery,
    /// The horizon was requested while there are prepared transactions.
    Prepared {
        /// How many there are.
        count: usize,
    },
    /// The id to advance past lies in the future.
    AdvanceTooFar {
        /// How far the id is ahead of the clock, in milliseconds.
        by_ms: u64,
        /// What `idgen.max_ahead` allows, in milliseconds.
        max_ahead_ms: u64,
    },
    /// The 2^40 ms since the epoch are used up.
    Exhausted,
}

/// The state that a backend keeps between calls.
#[derive(Debug)]
pub struct Session {
    lease: Cell<Lease>,
    last_id: Cell<Option<i64>>,
    /// Published lower bound of this transaction's ticks; `Tick::MAX` until it mints.
    started: Cell<Tick>,
}

impl Session {
    /// The session of a backend that has not minted an id.
    #[must_use]
    pub const fn fresh() -> Session {
        Session { lease: Cell::new(Lease::NONE), last_id: Cell::new(None), started: Cell::new(Tick::MAX) }
    }

    /// Forgets the lease, so that the next call visits its shard.
    pub fn drop_lease(&self) {
        self.lease.set(Lease::NONE);
    }

    /// The last id; `None` before the first one.
    pub fn last_id(&self) -> Option<i64> {
        self.last_id.get()
    }

    /// Marks the transaction's ids as settled. Call it when its rows are visible to others, or gone, and the
    /// published start has been withdrawn.
    pub fn transaction_ended(&self) {
        self.started.set(Tick::MAX);
    }

    /// Publishes the start of this transaction to readers of the horizon, before the floor that bounds its next id
    /// is read: at its first id, and again if the clock has been set back since.
    #[inline]
    fn start(&self, server: &impl Server, now: Tick) {
        if now < self.started.get() {
            server.publish_start(now);
            self.started.set(now);
        }
    }

    /// Records the id of a position as the last one.
    #[inline]
    fn minted<S: Grid>(&self, position: Position<S>, shard: S) -> i64 {
        let id = shard.id(position);
        self.last_id.set(Some(id));
        id
    }
}

/// Mints one id without waiting: from the lease, or from a new lease if the shard can grant one at once. On `None`,
/// call [`next_id`]. Nothing here panics, raises an error or waits.
#[inline]
pub fn at_once(server: &impl Slots<Shard>, session: &Session, shard: Shard) -> Option<i64> {
    let now = server.now().ok()?;
    session.start(server, now);
    let mut lease = session.lease.get();
    let position = match lease.next(shard, now, server.floor()) {
        Some(position) => position,
        None => new_lease(&mut lease, server, shard, now)?,
    };
    session.lease.set(lease);
    Some(session.minted(position, shard))
}

#[inline(never)]
fn new_lease(
    lease: &mut Lease,
    server: &impl Slots<Shard>,
    shard: Shard,
    now: Tick,
) -> Option<Position<Shard>> {
    if !server.allows(shard) {
        return None;
    }
    let bounds = bounds::<Shard>(server, now, 0);
    let want = lease.want(shard, now, server.max_lease());
    let margin = renew::margin(server, renew::is_awaited(server));
    let run = server.with_slot(shard, |slot| {
        // If the mark is due for renewal, leave that to the slow path. A shard may have run ahead of the clock.
        let due = runs_low(now.max(slot.next.tick()), bounds.limit, margin);
        if due { None } else { slot.take(want, &bounds).ok() }
    })?;
    Some(lease.grant(shard, now, run))
}

fn bounds<S: Grid>(server: &impl Server, now: Tick, queue: u64) -> Bounds {
    // The limit is read first: see Published::limit.
    let limit = server.limit();
    Bounds { now, floor: floor::<S>(server), max_ahead: server.max_ahead_ms(), queue, limit }
}

fn floor<S: Grid>(server: &impl Server) -> Tick {
    if S::FOLLOWED { server.floor() } else { server.run_floor() }
}

/// Mints one id from a new lease; waits or renews the mark first if necessary.
///
/// # Errors
/// An [`Error`], or one of the server's.
pub fn next_id<V: Slots<Shard>>(server: &V, session: &Session, shard: Shard) -> Result<i64, V::Error> {
    let now = server.now()?;
    let mut turn = Turn::new(server, session, shard)?;
    let mut lease = session.lease.get();
    let (granted, run) = turn.take(now, lease.want(shard, now, server.max_lease()))?;
    let position = lease.grant(shard, granted, run);
    session.lease.set(lease);
    renew::renew_early(server, last_tick(run), &mut turn.patience);
    Ok(session.minted(position, shard))
}

/// The millisecond in which a run ends.
fn last_tick<S: Grid>(run: Run<S>) -> Tick {
    run.end.previous().map_or(0, Position::tick)
}

/// Mints `count` ids as a few runs, in order. Unless a bound is reached, that is one run and one acquisition of the
/// lock. All ids are taken before the first is returned.
///
/// # Errors
/// As [`next_id`], and [`Error::BatchTooLarge`]. Positions taken before another error are skipped.
pub fn next_ids<V: Slots<Shard>>(
    server: &V,
    session: &Session,
    shard: Shard,
    count: u64,
) -> Result<Vec<Run<Shard>>, V::Error> {
    // The remaining ids of the lease are smaller than those of the batch, and the ids of a backend must increase.
    session.drop_lease();
    let mut turn = Turn::new(server, session, shard)?;
    if count > 0 {
        turn.admit(count)?;
    }
    let mut runs = Vec::new();
    let mut left = count;
    while left > 0 {
        let (_, run) = turn.take(server.now()?, left)?;
        left -= run.count();
        runs.push(run);
    }
    if let Some(run) = runs.last()
        && let Some(last) = run.end.previous()
    {
        session.minted(last, shard);
        renew::renew_early(server, last.tick(), &mut turn.patience);
    }
    Ok(runs)
}

/// Mints one id that JavaScript represents exactly. Every call visits the shard's slot, so the ids of a shard are
/// in strict order across all backends. At 4096 ids per second, leases would not pay off.
///
/// # Errors
/// As [`next_id`].
pub fn next_id_js<V: Slots<JsShard>>(server: &V, session: &Session, shard: JsShard) -> Result<i64, V::Error> {
    let mut turn = Turn::new(server, session, shard)?;
    let (now, run) = turn.take(server.now()?, 1)?;
    renew::renew_early(server, now.max(run.start.tick()), &mut turn.patience);
    Ok(session.minted(run.start, shard))
}

/// Makes the shard's next id greater than `past`, durably, and returns the smallest id that can come next.
///
/// # Errors
/// [`Error::AdvanceTooFar`], [`Error::Exhausted`] for an id at the end of the range, and those of [`next_id`].
pub fn advance<V: Slots<Shard>>(
    server: &V,
    session: &Session,
    shard: Shard,
    past: i64,
) -> Result<i64, V::Error> {
    server.check_any_allowed()?;
    let position = Position::after(past, shard).ok_or(Error::Exhausted)?;
    let tick = position.tick();
    session.drop_lease();
    let mut patience = Patience::default();
    // A server begins at the mark when it restarts, so a mark above the position makes the advance durable. Below
    // the floor, which is such a mark, there is nothing to do.
    loop {
        let (now, max_ahead_ms) = (server.now()?, server.max_ahead_ms());
        if tick > now.saturating_add(max_ahead_ms) {
            return Err(Error::AdvanceTooFar { by_ms: tick - now, max_ahead_ms }.into());
        }
        if server.limit() > tick {
            break;
        }
        if server.run_floor() > tick {
            // The floor may be durable on this server only, and a standby that is promoted would begin below it.
            renew::share_settled(server, &mut patience)?;
            break;
        }
        renew::reserve(server, tick, tick, &mut patience)?;
    }
    let next = server.with_slot(shard, |slot| {
        slot.next = slot.next.max(position);
        slot.next
    });
    // Leases granted earlier may hold lower positions, and live until the end of their millisecond.
    let (granted, since) = (server.now()?, server.monotonic_us());
    while server.now()? == granted {
        // The rest of the millisecond is part of any call.
        let stands = server.monotonic_us().saturating_sub(since) > 2000;
        if stands && patience.left_us(server).is_none() {
            return Err(Error::ClockStands { waited_ms: patience.waited_ms(server) }.into());
        }
        server.sleep(100, Wait::Clock);
    }
    Ok(shard.id(next))
}

/// The remaining time that a call may wait, counted from its first wait. The flushes of two renewals do not count.
#[derive(Debug, Default)]
pub struct Patience {
    since_us: Option<u64>,
    /// How many renewals the call has needed, counted up to three.
    renewals: u8,
}

impl Patience {
    /// How long the call may still wait, in microseconds; `None` once `idgen.max_wait` is over.
    pub fn left_us(&mut self, server: &impl Server) -> Option<u64> {
        let now = server.monotonic_us();
        let waited = now.saturating_sub(*self.since_us.get_or_insert(now));
        (server.max_wait_ms() * 1000).checked_sub(waited).filter(|left| *left > 0)
    }

    /// Records that the call needs a renewal of the mark. That is part of any call, and so is a second one if the first
    /// took long. More than that counts as waiting, or a call might never end. Returns whether it does.
    pub(crate) fn renewal_counts(&mut self) -> bool {
        self.renewals = (self.renewals + 1).min(3);
        self.counts_flushes()
    }

    /// Whether flushes count.
    pub(crate) fn counts_flushes(&self) -> bool {
        self.renewals == 3
    }

    /// Runs `flush`, a flush of the mark or a wait for another backend's, whose time does not count.
    pub(crate) fn except<T>(&mut self, server: &impl Server, flush: impl FnOnce() -> T) -> T {
        let Some(since) = self.since_us.as_mut().filter(|_| self.renewals < 3) else { return flush() };
        let start = server.monotonic_us();
        let result = flush();
        *since += server.monotonic_us().saturating_sub(start);
        result
    }

    /// How many milliseconds in advance the call may queue.
    fn queue(&self, server: &impl Server) -> u64 {
        server.max_wait_ms().saturating_sub(self.waited_us(server).unwrap_or(0) / 1000).min(QUEUE_MS)
    }

    /// How long the call has waited, in microseconds; `None` if it has not.
    fn waited_us(&self, server: &impl Server) -> Option<u64> {
        let since = self.since_us?;
        Some(server.monotonic_us().saturating_sub(since))
    }

    /// How long the call has waited, in milliseconds.
    pub fn waited_ms(&self, server: &impl Server) -> u64 {
        self.waited_us(server).unwrap_or(0) / 1000
    }
}

/// One call's turn at a shard. However it ends, by a cancel for example, the time waited is added to the shard's
/// counters.
struct Turn<'a, S: Grid, V: Slots<S>> {
    server: &'a V,
    session: &'a Session,
    shard: S,
    patience: Patience,
    /// How long the last request for a new mark took, in milliseconds.
    renewal_ms: u64,
    /// Its batch, if it has one in the queue.
    batch: Option<&'a Batch>,
    /// What the batch has taken in advance.
    early: VecDeque<Run<S>>,
}

impl<'a, S: Grid, V: Slots<S>> Turn<'a, S, V> {
    fn new(server: &'a V, session: &'a Session, shard: S) -> Result<Turn<'a, S, V>, V::Error> {
        server.check_allowed(shard.into())?;
        Ok(Turn {
            server,
            session,
            shard,
            patience: Patience::default(),
            renewal_ms: 0,
            batch: None,
            early: VecDeque::new(),
        })
    }

    /// Takes up to `want` positions, waiting if the shard is as far ahead of the clock as it may be, or if the
    /// durable mark is reached. Returns them with the tick at which they were due.
    fn take(&mut self, mut now: Tick, want: u64) -> Result<(Tick, Run<S>), V::Error> {
        loop {
            if S::FOLLOWED {
                self.session.start(self.server, now);
            }
            let bounds = bounds::<S>(self.server, now, self.patience.queue(self.server));
            let max_ahead = bounds.max_ahead;
            let early = self.early.pop_front();
            match early.map_or_else(|| self.visit(want, &bounds), Ok) {
                Ok(run) if early.is_none() && run.due(max_ahead) <= now => return Ok((now, run)),
                Ok(run) => {
                    self.take_early(want - run.count(), &bounds);
                    let tick = run.start.tick();
                    while now < run.due(max_ahead) {
                        self.wait(tick, max_ahead)?;
                        now = self.server.now()?;
                    }
                    // Both may have moved in the meantime; the limit is lower if synchronous replication has begun.
                    let limit = self.server.limit();
                    if (floor::<S>(self.server)..limit).contains(&tick) {
                        return Ok((run.due(max_ahead), run));
                    }
                    if let Some(batch) = self.batch {
                        self.server.with_slot(self.shard, |_| batch.lost(run.count()));
                    }
                }
                Err(Refusal::Ahead { tick }) => self.wait(tick, max_ahead)?,
                // The slot has not seen the floor of this run yet.
                Err(Refusal::Limit { .. }) if renew::load(self.server)? => {}
                Err(Refusal::Limit { tick }) => {
                    // Reserve as far as the batch reaches at once, not one window at a time. If a mark took longer to
                    // become durable than it reaches ahead, the clock has passed it: the next one reaches beyond
                    // that time.
                    let end = Position::<S>::first_of(tick / S::UNIT_MS).plus(want);
                    let reserve_ahead = self.server.reserve_ahead_ms();
                    let late_ms = if self.renewal_ms < reserve_ahead {
                        0
                    } else {
                        (2 * self.renewal_ms).min(MOST_LATE_REACH_MS.saturating_sub(reserve_ahead))
                    };
                    let wanted = end.tick().min(now + max_ahead).max(tick) + late_ms;
                    let start = self.server.monotonic_us();
                    renew::reserve(self.server, tick, wanted, &mut self.patience)?;
                    self.renewal_ms = self.server.monotonic_us().saturating_sub(start) / 1000;
                    self.server.check_for_interrupts();
                }
                Err(Refusal::Exhausted) => return Err(Error::Exhausted.into()),
            }
            now = self.server.now()?;
        }
    }

    /// Takes up to `want` positions from the slot.
    fn visit(&self, want: u64, bounds: &Bounds) -> Result<Run<S>, Refusal> {
        let boot_ms = self.batch.map_or(0, |_| self.server.boot_ms());
        self.server.with_slot(self.shard, |slot| {
            if let Some(batch) = self.batch {
                batch.looks(boot_ms);
            }
            let run = slot.take(want, bounds)?;
            if let Some(batch) = self.batch {
                batch.took(run.count());
            }
            Ok(run)
        })
    }

    /// Takes up to `want` positions after those that a batch waits for.
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

    /// Sleeps until the clock lets `tick` be issued, or for a part of that time.
    fn wait(&mut self, tick: Tick, max_ahead: u64) -> Result<(), V::Error> {
        let Some(left_us) = self.patience.left_us(self.server) else {
            // The process may have been suspended since it read the clock.
            let now = self.server.now()?;
            return if tick > now + max_ahead {
                Err(self.too_far_ahead(tick, now, max_ahead).into())
            } else {
                Ok(())
            };
        };
        let due_in = self.server.us_until(tick - max_ahead)?;
        self.server.sleep(due_in.min(left_us).clamp(1, LOOK_AGAIN_US), Wait::Clock);
        Ok(())
    }

    /// The reason why `tick`, the next one of the shard, cannot be issued at `now`.
    fn too_far_ahead(&self, tick: Tick, now: Tick, max_ahead_ms: u64) -> Error {
        let (shard, waited_ms) = (self.shard.into(), self.patience.waited_ms(self.server));
        // No unit of time that begins before the floor is issued. If the shard has ids of this run, the wait is for
        // those.
        let floor = self.server.run_floor().next_multiple_of(S::UNIT_MS);
        if floor >= tick {
            return Error::ClockBehindMark { by_ms: floor - now, max_ahead_ms, waited_ms };
        }
        // Calls take a shard this far, and no further as long as the clock advances.
        if tick <= now + max_ahead_ms + QUEUE_MS + S::UNIT_MS {
            return Error::ShardFull { shard, max_ahead_ms, waited_ms };
        }
        Error::ClockBehind { shard, by_ms: tick - now, max_ahead_ms, waited_ms }
    }
}

impl<'a, V: Slots<Shard>> Turn<'a, Shard, V> {
    /// Refuses a batch before any of it is taken if the shard could not provide it within the time that a call may
    /// wait, after the batches before it and without other callers. If the shard has nothing to provide in that time,
    /// [`Turn::take`] reports the reason.
    ///
    /// Otherwise the batch joins the queue, unless it has no more ids than a millisecond: then it competes like a
    /// single call.
    fn admit(&mut self, count: u64) -> Result<(), V::Error> {
        let (server, shard) = (self.server, self.shard);
        // A limit implies that the stored mark has been loaded. Asking the mark itself would take its lock.
        if server.limit() == 0 {
            renew::load(server)?;
        }
        let bounds = bounds::<Shard>(server, server.now()?, 0);
        let wait = server.max_wait_ms();
        let batch = server.own_batch().filter(|_| count > IDS_PER_TICK);
        let boot_ms = batch.map_or(0, |_| server.boot_ms());
        let (batch, ahead) = server.with_slot(shard, |slot| {
            let queue = server.batches();
            let ahead = batch.map_or(0, |_| batch::left(queue, shard, boot_ms));
            // Leave an eighth of the wait for single calls and for sleeps that take longer than requested, unless the
            // shard has nothing before that.
            let room =
                [wait / 8 * 7, wait].map(|wait| slot.room(&bounds, wait)).into_iter().find(|room| *room > 0);
            match room {
                Some(most) if count > most => return Err(Error::BatchTooLarge { count, most }),
                Some(room) if count > room.saturating_sub(ahead) => {
                    return Err(Error::BatchesBefore { shard, count, ahead });
                }
                _ => {}
            }
            // A batch for which there is nothing keeps no others from joining.
            let batch = batch.filter(|_| room.is_some());
            if let Some(batch) = batch {
                batch.join(queue, shard, count, boot_ms);
            }
            Ok((batch, ahead))
        })?;
        self.batch = batch;
        if ahead > 0 { self.let_pass() } else { Ok(()) }
    }

    /// Sleeps while the batches before this one take their ids. If they take none for a while although the shard has
    /// some and no mark is awaited, nobody is at work there, for example because a process was stopped, and the batch
    /// goes on. It also does when it may wait no longer, because it may not have to.
    fn let_pass(&mut self) -> Result<(), V::Error> {
        let server = self.server;
        let Some(batch) = self.batch else { return Ok(()) };
        // How many ids they had left when the shard's were first found to lie there, and when that was.
        let mut lie: Option<(u64, u64)> = None;
        let mut flush = 0;
        loop {
            let bounds = bounds::<Shard>(server, server.now()?, 0);
            let boot_ms = server.boot_ms();
            let (ahead, room) = server.with_slot(self.shard, |slot| {
                batch.looks(boot_ms);
                (batch.ahead(server.batches(), self.shard), slot.room(&bounds, 0))
            });
            let now_us = server.monotonic_us();
            let lies = room > 0 && !renew::is_awaited(server);
            lie = lies.then(|| lie.filter(|(left, _)| *left == ahead).unwrap_or((ahead, now_us)));
            if ahead == 0 || lie.is_some_and(|(_, since_us)| now_us - since_us >= LOOK_AGAIN_US) {
                return Ok(());
            }
            let Some(left_us) = self.patience.left_us(server) else { return Ok(()) };
            let us = (ahead * 1000 / IDS_PER_TICK).clamp(1000, LOOK_AGAIN_US).min(left_us);
            let awaited = server.awaited();
            if room > 0 && !server.flushed(awaited) {
                // They wait for a flush of the mark, which counts as if this batch waited for it itself.
                if flush != awaited {
                    flush = awaited;
                    self.patience.renewal_counts();
                }
                self.patience.except(server, || server.sleep(us, Wait::Clock));
            } else {
                server.sleep(us, Wait::Clock);
            }
        }
    }
}

impl<S: Grid, V: Slots<S>> Drop for Turn<'_, S, V> {
    fn drop(&mut self) {
        if let Some(batch) = self.batch {
            batch.leave();
        }
        if let Some(us) = self.patience.waited_us(self.server) {
            self.server.with_slot(self.shard, |slot| {
                slot.counters.waits += 1;
                slot.counters.waited_us += us;
            });
        }
    }
}
