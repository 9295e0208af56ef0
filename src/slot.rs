//! A shard's step: which positions come next. Pure, so that it can be tested and model-checked.
#![forbid(unsafe_code)]

use crate::layout::{MAX_TICK, Position, SEQUENCE_BITS, Shard, Tick};

/// A shard of one of the layouts that are minted: how its positions count time, and where its slot is.
///
/// The clock, the floor and the limit are in milliseconds for all of them. A unit of time may be handed out
/// where its first millisecond may, and none of it where that lies before the floor: so what one run of the
/// server hands out below its limit, no later one does, which begins at a floor not below that limit.
pub trait Grid: Copy + Into<Shard> {
    /// The unit of time in milliseconds.
    const UNIT_MS: u64;
    /// Width of the sequence in a position.
    const SEQUENCE_BITS: u32;
    /// Where the slots of these shards begin among those of all.
    const FIRST_SLOT: usize;
    /// Whether `snowflake_safe_horizon` speaks of these ids, and so its floor bounds them.
    const FOLLOWED: bool;

    /// The first position of a unit of time.
    fn first_position(unit: u64) -> Position {
        unit << Self::SEQUENCE_BITS
    }

    /// The unit of time that a position belongs to.
    fn unit_of(position: Position) -> u64 {
        position >> Self::SEQUENCE_BITS
    }

    /// The first millisecond of that.
    fn tick_of(position: Position) -> Tick {
        Self::unit_of(position) * Self::UNIT_MS
    }

    /// The first millisecond of the unit of time in which a run of `count` positions ends that begins at the
    /// unit of `tick`.
    fn after(tick: Tick, count: u64) -> Tick {
        Self::tick_of(Self::first_position(tick / Self::UNIT_MS).saturating_add(count))
    }
}

impl Grid for Shard {
    const UNIT_MS: u64 = 1;
    const SEQUENCE_BITS: u32 = SEQUENCE_BITS;
    const FIRST_SLOT: usize = 0;
    const FOLLOWED: bool = true;
}

/// What a shard remembers. It lives in shared memory behind the shard's lock, hence the plain
/// integers and the fixed order of fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Slot {
    /// The first position not handed out yet.
    pub next: Position,
    /// Positions handed out since the counters began, those in leases that were dropped included.
    pub ids: u64,
    /// Runs handed out since the counters began.
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

/// Positions from `start` up to, not including, `end`; never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// The first position of the run.
    pub start: Position,
    /// The first position after the run.
    pub end: Position,
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

impl Slot {
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
    pub fn take<G: Grid>(&mut self, want: u64, bounds: &Bounds) -> Result<Run, Refusal> {
        let start = self.start::<G>(bounds).ok_or(Refusal::Exhausted)?;
        let unit = G::unit_of(start);
        let last = bounds.now + bounds.max_ahead;
        let tick = G::tick_of(start);
        if tick > last + bounds.queue {
            return Err(Refusal::Ahead { tick });
        }
        if tick >= bounds.limit {
            return Err(Refusal::Limit { tick });
        }
        let limit = bounds.limit.div_ceil(G::UNIT_MS);
        let bound =
            G::first_position(((last / G::UNIT_MS).max(unit).min(MAX_TICK / G::UNIT_MS) + 1).min(limit));
        let end = bound.min(start.saturating_add(want.max(1)));
        self.next = end;
        self.ids += end - start;
        self.leases += 1;
        Ok(Run { start, end })
    }

    /// The position that the next run begins at; none where the range is used up.
    #[inline]
    fn start<G: Grid>(&self, bounds: &Bounds) -> Option<Position> {
        let earliest = (bounds.now / G::UNIT_MS).max(bounds.floor.div_ceil(G::UNIT_MS));
        let start = if G::first_position(earliest) > self.next {
            G::first_position(earliest) | (self.ids & 255)
        } else {
            self.next
        };
        (earliest.max(G::unit_of(start)) <= MAX_TICK / G::UNIT_MS).then_some(start)
    }

    /// How many positions the shard has for one who waits up to `wait` milliseconds, while the clock goes on
    /// and nobody else asks. The limit does not count: it is raised for whoever needs it.
    pub fn room<G: Grid>(&self, bounds: &Bounds, wait: u64) -> u64 {
        let last = (bounds.now + bounds.max_ahead + wait) / G::UNIT_MS;
        let end = G::first_position(last.min(MAX_TICK / G::UNIT_MS) + 1);
        self.start::<G>(bounds).map_or(0, |start| end.saturating_sub(start))
    }

    /// The position after which none has been handed out since the server started; none where the
    /// shard has not been used.
    pub fn last(&self) -> Option<Position> {
        self.next.checked_sub(1)
    }

    /// Begins the counters anew. No position depends on it but the sequence at which an idle
    /// millisecond starts, and that is as even from 0 on as from anywhere.
    pub fn reset_counters(&mut self) {
        (self.ids, self.leases, self.waits, self.waited_us) = (0, 0, 0, 0);
    }
}

impl Run {
    /// How many positions the run holds; at least 1.
    pub fn count(&self) -> u64 {
        self.end - self.start
    }

    /// What the clock must show for the run to be used.
    pub fn due<G: Grid>(&self, max_ahead: u64) -> Tick {
        G::tick_of(self.start).saturating_sub(max_ahead)
    }
}
