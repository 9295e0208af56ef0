//! The bits of an id that JavaScript keeps exactly, below 2^53: the layout `js53`.
//!
//! ```text
//! 51                              20 19     12 11           0
//! +---------------------------------+---------+-------------+
//! | second: 32 bits, from the epoch | shard: 8| sequence: 12|
//! +---------------------------------+---------+-------------+
//! ```
//!
//! Here a position is `second << 12 | sequence`. Slots of their own hand it out; the clock's bounds and the
//! high-water mark are those of the other ids, in milliseconds.
#![forbid(unsafe_code)]

use crate::layout::{OutOfRange, Position, SHARDS, Shard, checked};
use crate::slot::Grid;

/// Width of the second in an id. The last ones are never minted: the high-water mark ends before them.
pub const SECOND_BITS: u32 = 32;
/// Width of the shard in an id.
pub const SHARD_BITS: u32 = 8;
/// Number of shards: 256.
pub const JS_SHARDS: usize = 1 << SHARD_BITS;

/// A logical shard that such ids have room for, 0 to 255.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsShard(Shard);

impl JsShard {
    /// Every shard, in order.
    pub fn all() -> impl Iterator<Item = JsShard> {
        Shard::all().take(JS_SHARDS).map(JsShard)
    }
}

impl TryFrom<i32> for JsShard {
    type Error = OutOfRange;

    fn try_from(value: i32) -> Result<JsShard, OutOfRange> {
        checked("shard", value.into(), JS_SHARDS as u64 - 1)?;
        Shard::try_from(value).map(JsShard)
    }
}

impl From<JsShard> for Shard {
    fn from(shard: JsShard) -> Shard {
        shard.0
    }
}

impl Grid for JsShard {
    const UNIT_MS: u64 = 1000;
    const SEQUENCE_BITS: u32 = 12;
    const FIRST_SLOT: usize = SHARDS;
    // A floor within a second would put them off to the next one, each time that somebody asks.
    const FOLLOWED: bool = false;
}

/// Puts the shard into a position.
pub fn compose(position: Position, shard: JsShard) -> i64 {
    let (second, sequence) =
        (position >> JsShard::SEQUENCE_BITS, position & ((1 << JsShard::SEQUENCE_BITS) - 1));
    let place = second << SHARD_BITS | shard.0.index() as u64;
    (place << JsShard::SEQUENCE_BITS | sequence).cast_signed()
}
