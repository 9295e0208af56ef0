//! The bits of an id, and nothing else.
//!
//! ```text
//! 63                                   23 22           10 9         0
//! +--------------------------------------+---------------+-----------+
//! | tick: 41 bits, ms since idgen.epoch  | shard: 13     | seq: 10   |
//! +--------------------------------------+---------------+-----------+
//! ```
//!
//! The layout is the one of Instagram's article "Sharding & IDs at Instagram" (2012).
#![forbid(unsafe_code)]

use std::fmt;

/// Milliseconds since `idgen.epoch`; 41 bits of an id.
pub type Tick = u64;

/// `tick << 10 | sequence`: time and sequence are contiguous in it, so that a run of ids which
/// crosses a millisecond is plain addition. The shard is put in between by [`compose`].
pub type Position = u64;

/// Width of the tick in an id.
pub const TICK_BITS: u32 = 41;
/// Width of the shard in an id.
pub const SHARD_BITS: u32 = 13;
/// Width of the sequence in an id.
pub const SEQUENCE_BITS: u32 = 10;

/// Number of logical shards: 8192.
pub const SHARDS: usize = 1 << SHARD_BITS;
/// Ids of one shard in one millisecond: 1024.
pub const IDS_PER_TICK: u64 = 1 << SEQUENCE_BITS;
/// The greatest tick that fits the 41 bits. Decoding accepts it; minting stops at [`MAX_TICK`].
pub const MAX_STORED_TICK: Tick = (1 << TICK_BITS) - 1;
/// The last tick minted: the 41st bit of the tick is the sign of a `bigint`, so a later one would
/// be negative and sort before every other id. It lasts 2^40 ms, 34.8 years from the epoch.
pub const MAX_TICK: Tick = (1 << (TICK_BITS - 1)) - 1;

/// A part of an id outside its range, as the caller gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange {
    /// Which part: "tick", "shard" or "sequence".
    pub part: &'static str,
    /// What was given.
    pub value: i128,
    /// The greatest value allowed; the least is 0.
    pub max: u64,
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} is not between 0 and {}", self.part, self.value, self.max)
    }
}

/// A value that is between 0 and `max`.
///
/// # Errors
/// Any other.
pub fn checked(part: &'static str, value: i128, max: u64) -> Result<u64, OutOfRange> {
    u64::try_from(value).ok().filter(|v| *v <= max).ok_or(OutOfRange { part, value, max })
}

/// A logical shard, 0 to 8191.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shard(u16);

impl Shard {
    /// The shard as an index into arrays of [`SHARDS`] entries.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Every shard, in order.
    pub fn all() -> impl Iterator<Item = Shard> {
        (0..SHARDS as u16).map(Shard)
    }
}

impl TryFrom<i32> for Shard {
    type Error = OutOfRange;

    fn try_from(value: i32) -> Result<Shard, OutOfRange> {
        checked("shard", value.into(), SHARDS as u64 - 1).map(|v| Shard(v as u16))
    }
}

impl From<Shard> for i32 {
    fn from(shard: Shard) -> i32 {
        shard.0.into()
    }
}

/// A sequence number within a millisecond, 0 to 1023.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence(u16);

impl TryFrom<i32> for Sequence {
    type Error = OutOfRange;

    fn try_from(value: i32) -> Result<Sequence, OutOfRange> {
        checked("sequence", value.into(), IDS_PER_TICK - 1).map(|v| Sequence(v as u16))
    }
}

impl From<Sequence> for i32 {
    fn from(sequence: Sequence) -> i32 {
        sequence.0.into()
    }
}

/// The three parts of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Milliseconds since the epoch, all 41 bits.
    pub tick: Tick,
    /// The logical shard.
    pub shard: Shard,
    /// The sequence number within the millisecond.
    pub sequence: Sequence,
}

/// The first position of a millisecond.
///
/// `tick` is at most 2^54 - 1, which every clock a machine can show keeps below.
pub fn first_position(tick: Tick) -> Position {
    tick << SEQUENCE_BITS
}

/// The millisecond a position belongs to.
pub fn tick_of(position: Position) -> Tick {
    position >> SEQUENCE_BITS
}

/// Puts the shard into a position. All 41 bits of the tick are taken, so that ids of the original
/// PL/pgSQL function can be built too; an id whose tick is above [`MAX_TICK`] is negative.
///
/// # Errors
/// A tick above [`MAX_STORED_TICK`].
pub fn compose(position: Position, shard: Shard) -> Result<i64, OutOfRange> {
    let tick = checked("tick", tick_of(position).into(), MAX_STORED_TICK)?;
    let sequence = position & (IDS_PER_TICK - 1);
    let word = tick << (SHARD_BITS + SEQUENCE_BITS) | u64::from(shard.0) << SEQUENCE_BITS | sequence;
    Ok(word.cast_signed())
}

/// Takes an id apart. Every `bigint` is an id: the word is read as unsigned.
pub fn decompose(id: i64) -> Parts {
    let word = id.cast_unsigned();
    let low_bits = |width: u32, shift: u32| (word >> shift & ((1 << width) - 1)) as u16;
    Parts {
        tick: word >> (SHARD_BITS + SEQUENCE_BITS),
        shard: Shard(low_bits(SHARD_BITS, SEQUENCE_BITS)),
        sequence: Sequence(low_bits(SEQUENCE_BITS, 0)),
    }
}

/// The position of a tick and a sequence number.
pub fn position(tick: Tick, sequence: Sequence) -> Position {
    first_position(tick) | u64::from(sequence.0)
}

/// The least id of a millisecond, over all shards. `tick` is at most [`MAX_TICK`].
pub fn min_id(tick: Tick) -> i64 {
    (tick << (SHARD_BITS + SEQUENCE_BITS)).cast_signed()
}

/// The greatest id of a millisecond, over all shards. `tick` is at most [`MAX_TICK`].
pub fn max_id(tick: Tick) -> i64 {
    min_id(tick) | ((1 << (SHARD_BITS + SEQUENCE_BITS)) - 1)
}

/// The least position at which a shard's id is greater than `id`, whatever shard `id` is of; none
/// where there is no such position. Every position is after a negative id.
pub fn position_after(id: i64, shard: Shard) -> Option<Position> {
    if id < 0 {
        return Some(0);
    }
    let Parts { tick, shard: other, sequence } = decompose(id);
    let first = first_position(tick);
    let after = match shard.0.cmp(&other.0) {
        std::cmp::Ordering::Greater => first,
        std::cmp::Ordering::Equal => (first | u64::from(sequence.0)) + 1,
        std::cmp::Ordering::Less => first + IDS_PER_TICK,
    };
    (tick_of(after) <= MAX_TICK).then_some(after)
}
