//! The slot of a shard: which positions come next. It has no side effects, so that it can be tested alone.

use idgen_ids::Tick;
use idgen_ids::id::MAX_TICK;

use crate::position::{LayoutShard, Position, Run};

/// The state of a shard. It lives in shared memory behind the shard's lock, hence the plain integers and the fixed
/// order of fields. All zero at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Slot<S> {
    /// The first position not handed out yet.
    pub next: Position<S>,
    /// The counters of the shard.
    pub counters: Counters,
    /// Whether the shard is closed: see [`crate::handover::close`].
    pub closed: bool,
}

/// The counters of a shard, since the start of the server or the last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Counters {
    /// Positions handed out, including those in leases that were dropped.
    pub ids: u64,
    /// Runs handed out.
    pub leases: u64,
    /// Calls that had to wait for the clock or the durable mark.
    pub waits: u64,
    /// Total time that those calls waited, in microseconds.
    pub waited_us: u64,
}

/// The bounds that a run must not cross. All except `now` come from the settings and from shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The system clock.
    pub now: Tick,
    /// No position before this tick is handed out.
    pub floor: Tick,
    /// How many ticks a position may be ahead of `now`.
    pub max_ahead: u64,
    /// How many more ticks a run may be ahead if its caller waits for the clock to catch up. Callers that find a
    /// millisecond used up thus queue for the next ones, each for its own, and wake only when their turn comes.
    pub queue: u64,
    /// The exclusive end of the ticks that may be issued.
    pub limit: Tick,
}

/// The reason why a shard has no position to hand out now. The slot is then unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The next free position is in `tick`, which is ahead of the clock by more than `max_ahead` and the queue.
    Ahead {
        /// The first millisecond of the next free position's unit of time.
        tick: Tick,
    },
    /// The next free position is in `tick`, at or after the limit.
    Limit {
        /// The millisecond that a new limit must exceed.
        tick: Tick,
    },
    /// The 2^40 ms since the epoch are used up.
    Exhausted,
    /// The server may not mint for the shard.
    Barred(Barred),
}

/// Why a server may not mint for a shard, whatever the clock and the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Barred {
    /// Its configuration does not let it.
    NotAllowed,
    /// The shard is closed.
    Closed,
}

impl<S: LayoutShard> Default for Slot<S> {
    fn default() -> Slot<S> {
        Slot { next: Position::FIRST, counters: Counters::default(), closed: false }
    }
}

impl<S: LayoutShard> Slot<S> {
    /// Checks that the server may mint for the shard; `allowed` is what [`crate::host::Host::allows`] says.
    ///
    /// # Errors
    /// The reason why it may not.
    #[inline]
    pub fn check(&self, allowed: bool) -> Result<(), Barred> {
        if !allowed {
            Err(Barred::NotAllowed)
        } else if self.closed {
            Err(Barred::Closed)
        } else {
            Ok(())
        }
    }

    /// Takes up to `want` positions, but at least one. It takes fewer only if a bound cuts the run. `allowed` is as in
    /// [`Slot::check`].
    ///
    /// A busy slot continues where it stopped. A slot that has been idle begins at the clock's unit of time, for
    /// most ids a millisecond, but not always at sequence 0: `id % N` should hit every bucket even for the ids of a
    /// quiet shard, so the start moves up to [`LayoutShard::LAST_START`] as ids are handed out.
    ///
    /// A run that is more than `max_ahead` ahead of the clock stays within one unit of time, and must not be used
    /// before [`Run::due`].
    ///
    /// # Errors
    /// A [`Refusal`], with the slot unchanged.
    #[inline]
    pub fn take(&mut self, want: u64, allowed: bool, bounds: &Bounds) -> Result<Run<S>, Refusal> {
        self.check(allowed).map_err(Refusal::Barred)?;
        let start = self.start(bounds).ok_or(Refusal::Exhausted)?;
        let last = bounds.now + bounds.max_ahead;
        let tick = start.tick();
        if tick > last + bounds.queue {
            return Err(Refusal::Ahead { tick });
        }
        if tick >= bounds.limit {
            return Err(Refusal::Limit { tick });
        }
        let limit = bounds.limit.div_ceil(S::UNIT_MS);
        let end_unit = ((last / S::UNIT_MS).max(start.unit()).min(MAX_TICK / S::UNIT_MS) + 1).min(limit);
        let end = Position::first_of(end_unit).min(start.plus(want.max(1)));
        let run = Run { start, end };
        debug_assert!(start < end && end.previous().is_some_and(|last| last.tick() < bounds.limit));
        debug_assert!(start >= self.next && tick >= bounds.floor && tick + S::UNIT_MS > bounds.now);
        debug_assert!(end.previous().is_some_and(|end| end.tick() <= last.max(tick).min(MAX_TICK)));
        self.next = end;
        self.counters.ids += run.count();
        self.counters.leases += 1;
        Ok(run)
    }

    /// The position at which the next run begins; `None` if the range is used up.
    #[inline]
    fn start(&self, bounds: &Bounds) -> Option<Position<S>> {
        let earliest = (bounds.now / S::UNIT_MS).max(bounds.floor.div_ceil(S::UNIT_MS));
        let first = Position::first_of(earliest);
        // If ids may not run into the next unit of time, leave most of this one for a batch.
        let last = if bounds.max_ahead < S::UNIT_MS { S::LAST_START.min(255) } else { S::LAST_START };
        let start = if first > self.next { first.plus(self.counters.ids & last) } else { self.next };
        (earliest.max(start.unit()) <= MAX_TICK / S::UNIT_MS).then_some(start)
    }

    /// The number of positions that the shard can provide to a caller that waits up to `wait` milliseconds, if the
    /// clock advances and other callers take none. The limit does not count, because it is raised on demand.
    pub fn room(&self, bounds: &Bounds, wait: u64) -> u64 {
        let last = (bounds.now + bounds.max_ahead + wait) / S::UNIT_MS;
        let end = Position::first_of(last.min(MAX_TICK / S::UNIT_MS) + 1);
        self.start(bounds).map_or(0, |start| end.since(start))
    }

    /// The position before the next one to be handed out; `None` if the shard has not been used since the server
    /// started.
    pub fn last(&self) -> Option<Position<S>> {
        self.next.previous()
    }

    /// Resets the counters. The only effect is on the sequence at which an idle shard begins a millisecond, and
    /// counting from 0 spreads it as evenly as counting from any other number.
    pub fn reset_counters(&mut self) {
        self.counters = Counters::default();
    }
}
