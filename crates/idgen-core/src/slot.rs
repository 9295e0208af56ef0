//! A shard's step: which positions come next. Pure, so that it can be tested and model-checked.

use crate::id::{MAX_TICK, Tick};
use crate::position::{Grid, Position, Run};

/// What a shard remembers. It lives in shared memory behind the shard's lock, hence the plain
/// integers and the fixed order of fields; all zero at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Slot<S> {
    /// The first position not handed out yet.
    pub next: Position<S>,
    /// What has been counted.
    pub counters: Counters,
}

/// What a shard counts, from the start of the server or the last reset on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Counters {
    /// Positions handed out, those in leases that were dropped included.
    pub ids: u64,
    /// Runs handed out.
    pub leases: u64,
    /// Calls that had to wait for the clock or the durable mark.
    pub waits: u64,
    /// What those calls waited in all, in microseconds.
    pub waited_us: u64,
}

/// What a run may not cross. All but `now` come from the settings and from shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The system clock.
    pub now: Tick,
    /// No position before this tick is handed out.
    pub floor: Tick,
    /// How many ticks after `now` a position may lie.
    pub max_ahead: u64,
    /// How many ticks after that a run may lie whose taker waits until the clock has come so far. Those
    /// who wait for a full millisecond so queue up for the next ones, each for its own, and wake only
    /// when it is their turn.
    pub queue: u64,
    /// The exclusive end of the ticks that may be issued.
    pub limit: Tick,
}

/// Why a shard has nothing to give now. The slot is unchanged then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The next free position is in `tick`, more than `max_ahead` and the queue after the clock.
    Ahead {
        /// The first millisecond of the next free position's unit of time.
        tick: Tick,
    },
    /// The next free position is in `tick`, at or after the limit.
    Limit {
        /// The millisecond that a new limit must lie after.
        tick: Tick,
    },
    /// The 2^40 ms since the epoch are used up.
    Exhausted,
}

impl<S: Grid> Default for Slot<S> {
    fn default() -> Slot<S> {
        Slot { next: Position::FIRST, counters: Counters::default() }
    }
}

impl<S: Grid> Slot<S> {
    /// Takes up to `want` positions, at least one, and fewer only where a bound cuts the run.
    ///
    /// A busy slot goes on where it stopped. A slot that has been idle starts the clock's unit of time, a
    /// millisecond for most, and not always at sequence 0: `id % N` over ids of a quiet shard should find
    /// every bucket, so the start moves through the low 8 bits as ids are handed out.
    ///
    /// A run that lies more than `max_ahead` after the clock is of one unit of time, and not to be used
    /// before [`Run::due`].
    ///
    /// # Errors
    /// A [`Refusal`], with the slot unchanged.
    #[inline]
    pub fn take(&mut self, want: u64, bounds: &Bounds) -> Result<Run<S>, Refusal> {
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
        self.next = end;
        self.counters.ids += run.count();
        self.counters.leases += 1;
        Ok(run)
    }

    /// The position that the next run begins at; none where the range is used up.
    #[inline]
    fn start(&self, bounds: &Bounds) -> Option<Position<S>> {
        let earliest = (bounds.now / S::UNIT_MS).max(bounds.floor.div_ceil(S::UNIT_MS));
        let first = Position::first_of(earliest);
        let start = if first > self.next { first.plus(self.counters.ids & 255) } else { self.next };
        (earliest.max(start.unit()) <= MAX_TICK / S::UNIT_MS).then_some(start)
    }

    /// How many positions the shard has for one who waits up to `wait` milliseconds, while the clock goes on
    /// and nobody else asks. The limit does not count: it is raised for whoever needs it.
    pub fn room(&self, bounds: &Bounds, wait: u64) -> u64 {
        let last = (bounds.now + bounds.max_ahead + wait) / S::UNIT_MS;
        let end = Position::first_of(last.min(MAX_TICK / S::UNIT_MS) + 1);
        self.start(bounds).map_or(0, |start| end.since(start))
    }

    /// The position after which none has been handed out since the server started; none where the
    /// shard has not been used.
    pub fn last(&self) -> Option<Position<S>> {
        self.next.previous()
    }

    /// Begins the counters anew. No position depends on it but the sequence at which an idle
    /// millisecond starts, and that is as even from 0 on as from anywhere.
    pub fn reset_counters(&mut self) {
        self.counters = Counters::default();
    }
}
