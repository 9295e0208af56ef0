//! The bits of an id, in the layout of Instagram's article "Sharding & IDs at Instagram" (2012).

use std::fmt;

/// Milliseconds since `idgen.epoch`; 41 bits of an id.
pub type Tick = u64;

/// Width of the tick in an id.
pub const TICK_BITS: u32 = 41;
/// Width of the shard in an id.
pub const SHARD_BITS: u32 = 13;
/// Width of the sequence in an id.
pub const SEQUENCE_BITS: u32 = 10;
const _: () = assert!(TICK_BITS + SHARD_BITS + SEQUENCE_BITS == i64::BITS);

/// Number of logical shards: 8192.
pub const SHARDS: usize = 1 << SHARD_BITS;
/// Ids of one shard in one millisecond: 1024.
pub const IDS_PER_TICK: u64 = 1 << SEQUENCE_BITS;
/// The greatest tick that fits into 41 bits. It can be decoded, but minting stops at [`MAX_TICK`].
pub const MAX_STORED_TICK: Tick = (1 << TICK_BITS) - 1;
/// The last tick for which ids are minted, 2^40 ms or 34.8 years after the epoch. The 41st bit of the tick is the
/// sign of a `bigint`, so ids of a later tick would be negative and sort before every other id.
pub const MAX_TICK: Tick = (1 << (TICK_BITS - 1)) - 1;

/// An out-of-range part of an id, as given by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange {
    /// The name of the part: "shard" or "sequence".
    pub part: &'static str,
    /// The value given.
    pub value: i32,
    /// The greatest value allowed; the least is 0.
    pub max: u16,
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} is not between 0 and {}", self.part, self.value, self.max)
    }
}

impl std::error::Error for OutOfRange {}

/// Checks that a value is between 0 and `max`.
pub(crate) fn checked(part: &'static str, value: i32, max: u16) -> Result<u16, OutOfRange> {
    u16::try_from(value).ok().filter(|v| *v <= max).ok_or(OutOfRange { part, value, max })
}

/// A logical shard, 0 to 8191.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
        checked("shard", value, SHARDS as u16 - 1).map(Shard)
    }
}

impl From<Shard> for i32 {
    fn from(shard: Shard) -> i32 {
        shard.0.into()
    }
}

/// A sequence number within a millisecond, 0 to 1023.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(u16);

impl Sequence {
    /// Takes the low 10 bits of a number, as Instagram's function does with a value of a PostgreSQL sequence.
    #[inline]
    pub fn wrapping(number: u64) -> Sequence {
        Sequence((number % IDS_PER_TICK) as u16)
    }
}

impl TryFrom<i32> for Sequence {
    type Error = OutOfRange;

    fn try_from(value: i32) -> Result<Sequence, OutOfRange> {
        checked("sequence", value, IDS_PER_TICK as u16 - 1).map(Sequence)
    }
}

impl From<Sequence> for i32 {
    fn from(sequence: Sequence) -> i32 {
        sequence.0.into()
    }
}

impl From<Sequence> for u64 {
    fn from(sequence: Sequence) -> u64 {
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

impl Parts {
    /// The id of these parts. `tick` is at most [`MAX_STORED_TICK`].
    ///
    /// ```
    /// use idgen_ids::decode;
    ///
    /// assert_eq!(decode(11_637_205_501_278_089).id(), 11_637_205_501_278_089);
    /// ```
    #[inline]
    pub fn id(self) -> i64 {
        let Parts { tick, shard, sequence } = self;
        debug_assert!(tick <= MAX_STORED_TICK, "tick {tick}");
        let word = tick << (SHARD_BITS + SEQUENCE_BITS)
            | u64::from(shard.0) << SEQUENCE_BITS
            | u64::from(sequence.0);
        word.cast_signed()
    }
}

/// Decodes an id. Every `bigint` is an id: it is read as unsigned, so that the negative ids that the original PL/pgSQL
/// function makes after its first 34.8 years decode too. Ids of `snowflake_next_id_js` have another layout: see
/// [`crate::foreign`].
///
/// ```
/// use idgen_ids::{Epoch, decode};
///
/// // The id of the example in Instagram's article.
/// let parts = decode(11_637_205_501_278_089);
/// assert_eq!((parts.tick, i32::from(parts.shard), i32::from(parts.sequence)), (1_387_263_000, 1341, 905));
///
/// let epoch = Epoch::parse("2011-08-24T21:07:01.721Z").unwrap();
/// assert_eq!(epoch.unix_ms_of(parts.tick), 1_315_607_284_721);
/// ```
#[inline]
pub fn decode(id: i64) -> Parts {
    let word = id.cast_unsigned();
    Parts {
        tick: word >> (SHARD_BITS + SEQUENCE_BITS),
        shard: Shard((word >> SEQUENCE_BITS) as u16 % SHARDS as u16),
        sequence: Sequence::wrapping(word),
    }
}

/// The shard of an id. An application can route by it.
///
/// ```
/// assert_eq!(i32::from(idgen_ids::shard_of(11_637_205_501_278_089)), 1341);
/// ```
#[inline]
pub fn shard_of(id: i64) -> Shard {
    decode(id).shard
}

/// The least id of a millisecond, over all shards. `tick` is at most [`MAX_TICK`].
///
/// ```
/// use idgen_ids::{decode, max_id, min_id};
///
/// let (id, tick) = (11_637_205_501_278_089, 1_387_263_000);
/// assert!(min_id(tick) <= id && id <= max_id(tick));
/// assert_eq!(decode(max_id(tick)).tick, tick);
/// ```
pub fn min_id(tick: Tick) -> i64 {
    debug_assert!(tick <= MAX_TICK, "tick {tick}");
    (tick << (SHARD_BITS + SEQUENCE_BITS)).cast_signed()
}

/// The greatest id of a millisecond, over all shards. `tick` is at most [`MAX_TICK`].
pub fn max_id(tick: Tick) -> i64 {
    min_id(tick) | ((1 << (SHARD_BITS + SEQUENCE_BITS)) - 1)
}
