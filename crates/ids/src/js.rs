//! The bits of an id below 2^53, which JavaScript represents exactly. This is the layout `js53`.
//!
//! ```text
//! 51                              20 19     12 11           0
//! +---------------------------------+---------+-------------+
//! | second: 32 bits, from the epoch | shard: 8| sequence: 12|
//! +---------------------------------+---------+-------------+
//! ```
//!
//! ```
//! use idgen_ids::foreign::ForeignLayout;
//! use idgen_ids::js::{JsShard, compose};
//!
//! let id = compose(1_387_263, JsShard::try_from(137).unwrap(), 905);
//! assert_eq!(id, 1_387_263 << 20 | 137 << 12 | 905);
//! let fields = ForeignLayout::find("js53").unwrap().fields(id).unwrap();
//! assert_eq!((fields.ms, fields.shard, fields.sequence), (1_387_263_000, Some(137), Some(905)));
//! ```

use crate::id::{OutOfRange, Shard, checked};

/// Width of the second in an id. The last seconds are never minted: the high-water mark ends before them.
pub const SECOND_BITS: u32 = 32;
/// Width of the shard in an id.
pub const SHARD_BITS: u32 = 8;
/// Width of the sequence in an id.
pub const SEQUENCE_BITS: u32 = 12;
/// Milliseconds in the unit of time.
pub const UNIT_MS: u64 = 1000;
/// Number of shards: 256.
pub const JS_SHARDS: usize = 1 << SHARD_BITS;

/// A logical shard that has such ids, 0 to 255.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
        checked("shard", value, JS_SHARDS as u16 - 1)?;
        Shard::try_from(value).map(JsShard)
    }
}

impl From<JsShard> for Shard {
    fn from(shard: JsShard) -> Shard {
        shard.0
    }
}

/// Builds an id. `second` has at most 32 bits, and `sequence` at most 12.
#[inline]
pub fn compose(second: u64, shard: JsShard, sequence: u64) -> i64 {
    debug_assert!(second >> SECOND_BITS == 0, "second {second}");
    debug_assert!(sequence >> SEQUENCE_BITS == 0, "sequence {sequence}");
    let place = second << SHARD_BITS | shard.0.index() as u64;
    (place << SEQUENCE_BITS | sequence).cast_signed()
}
