//! Positions: time and sequence in one number, in the unit of time of their layout.

use std::fmt::Debug;
use std::marker::PhantomData;

use idgen_ids::id::{
    IDS_PER_TICK, MAX_STORED_TICK, MAX_TICK, Parts, SEQUENCE_BITS, Sequence, Shard, Tick, decode,
};
use idgen_ids::js::{self, JsShard};

/// A shard of a layout that is minted. It determines how its positions count time.
///
/// The clock, the floor and the limit are in milliseconds for all layouts. A unit of time may be handed out if its
/// first millisecond may, and no part of it if that millisecond lies before the floor. So a unit that one incarnation
/// of the server hands out below its limit is not handed out by a later one, whose floor is not below that limit.
pub trait LayoutShard: Copy + Debug + Ord + Into<Shard> {
    /// The unit of time in milliseconds.
    const UNIT_MS: u64;
    /// Width of the sequence in a position, in bits.
    const SEQUENCE_BITS: u32;
    /// The greatest sequence at which an idle shard begins a unit of time; one less than a power of two.
    const LAST_START: u64;
    /// Whether `snowflake_safe_horizon` covers these ids, so that its floor bounds them.
    const FOLLOWED: bool;

    /// The id of a position in this shard.
    fn id(self, position: Position<Self>) -> i64;
}

impl LayoutShard for Shard {
    const UNIT_MS: u64 = 1;
    const SEQUENCE_BITS: u32 = SEQUENCE_BITS;
    // All sequences, because PostgreSQL hashes a bigint by the XOR of its halves, in which the sequence meets the bits
    // of the time from 2^9 ms on. If a bulk load used only the lower sequences, more of its ids would have the same
    // hash, and hash joins and hash aggregates would take longer.
    const LAST_START: u64 = IDS_PER_TICK - 1;
    const FOLLOWED: bool = true;

    #[inline]
    fn id(self, position: Position<Shard>) -> i64 {
        Parts { tick: position.unit(), shard: self, sequence: Sequence::wrapping(position.sequence()) }.id()
    }
}

/// These positions have slots of their own. The clock and the high-water mark bound them in milliseconds, like other
/// ids.
impl LayoutShard for JsShard {
    const UNIT_MS: u64 = js::UNIT_MS;
    const SEQUENCE_BITS: u32 = js::SEQUENCE_BITS;
    // This is a small part, so that an idle shard has most of a second's ids at once.
    const LAST_START: u64 = 255;
    // A floor within a second would move them to the next second, each time that the horizon is requested.
    const FOLLOWED: bool = false;

    fn id(self, position: Position<JsShard>) -> i64 {
        js::compose(position.unit(), self, position.sequence())
    }
}

/// `unit of time << sequence bits | sequence`. Time and sequence are contiguous, so that a run of ids can cross a unit
/// of time by plain addition. [`LayoutShard::id`] inserts the shard between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Position<S>(u64, PhantomData<S>);

impl<S: LayoutShard> Position<S> {
    /// The first position of all.
    pub const FIRST: Position<S> = Position(0, PhantomData);

    /// The number of positions from `earlier` up to this one; 0 if `earlier` is not earlier.
    pub fn since(self, earlier: Position<S>) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The position `count` after this one, or the last possible one.
    #[must_use]
    pub fn plus(self, count: u64) -> Position<S> {
        Position(self.0.saturating_add(count), PhantomData)
    }

    /// The position before this one; `None` for the first.
    #[must_use]
    pub fn previous(self) -> Option<Position<S>> {
        self.0.checked_sub(1).map(|word| Position(word, PhantomData))
    }

    /// The first position of a unit of time. `unit` must fit into the bits that the sequence leaves.
    #[inline]
    pub fn first_of(unit: u64) -> Position<S> {
        Position(unit << S::SEQUENCE_BITS, PhantomData)
    }

    /// The unit of time that the position belongs to.
    #[inline]
    pub fn unit(self) -> u64 {
        self.0 >> S::SEQUENCE_BITS
    }

    /// The position's sequence number within the unit of time.
    #[inline]
    pub fn sequence(self) -> u64 {
        self.0 & ((1 << S::SEQUENCE_BITS) - 1)
    }

    /// The first millisecond of its unit of time.
    #[inline]
    pub fn tick(self) -> Tick {
        self.unit() * S::UNIT_MS
    }
}

impl Position<Shard> {
    /// The position of a sequence number in a millisecond. `tick` is at most [`MAX_STORED_TICK`], as is every tick that
    /// comes from an id or an [`idgen_ids::Epoch`].
    #[inline]
    pub fn new(tick: Tick, sequence: Sequence) -> Position<Shard> {
        debug_assert!(tick <= MAX_STORED_TICK, "tick {tick}");
        Position::first_of(tick).plus(sequence.into())
    }

    /// The least position at which a shard's id is greater than `id`, whatever the shard of `id`; `None` if there is no
    /// such position. Every position is after a negative id.
    pub fn after(id: i64, shard: Shard) -> Option<Position<Shard>> {
        if id < 0 {
            return Some(Position::FIRST);
        }
        let Parts { tick, shard: other, sequence } = decode(id);
        let after = match shard.cmp(&other) {
            std::cmp::Ordering::Greater => Position::first_of(tick),
            std::cmp::Ordering::Equal => Position::new(tick, sequence).plus(1),
            std::cmp::Ordering::Less => Position::first_of(tick).plus(IDS_PER_TICK),
        };
        (after.tick() <= MAX_TICK).then_some(after)
    }
}

/// Positions from `start` up to, not including, `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run<S> {
    /// The first position of the run.
    pub start: Position<S>,
    /// The first position after the run.
    pub end: Position<S>,
}

impl<S: LayoutShard> Run<S> {
    /// The empty run.
    pub const EMPTY: Run<S> = Run { start: Position::FIRST, end: Position::FIRST };

    /// The number of positions in the run.
    pub fn count(&self) -> u64 {
        self.end.since(self.start)
    }

    /// Removes and returns the first position; `None` if the run is used up.
    #[inline]
    pub fn take_first(&mut self) -> Option<Position<S>> {
        let first = self.start;
        (first.0 < self.end.0).then(|| {
            self.start = Position(first.0 + 1, PhantomData);
            first
        })
    }

    /// The tick that the clock must show for the run to be used, if ids may be `max_ahead` ticks ahead of it.
    #[inline]
    pub fn due(&self, max_ahead: u64) -> Tick {
        self.start.tick().saturating_sub(max_ahead)
    }
}
