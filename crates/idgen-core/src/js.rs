//! The bits of an id below 2^53, which JavaScript represents exactly: the layout `js53`.
//!
//! ```text
//! 51                              20 19     12 11           0
//! +---------------------------------+---------+-------------+
//! | second: 32 bits, from the epoch | shard: 8| sequence: 12|
//! +---------------------------------+---------+-------------+
//! ```
//!
//! Positions of this layout count seconds, and are handed out by separate slots. The bounds of the clock and the
//! high-water mark are those of the other ids, in milliseconds.
//!
//! ```
//! use idgen_core::foreign::Layout;
//!
//! let id = 1_387_263 << 20 | 137 << 12 | 905;
//! let fields = Layout::find("js53").unwrap().fields(id).unwrap();
//! assert_eq!((fields.ms, fields.shard, fields.sequence), (1_387_263_000, Some(137), Some(905)));
//! ```

use crate::id::{OutOfRange, Shard, checked};
use crate::position::{Grid, Position};

/// Width of the second in an id. The last seconds are never minted, because the high-water mark ends before them.
pub const SECOND_BITS: u32 = 32;
/// Width of the shard in an id.
pub const SHARD_BITS: u32 = 8;
/// Number of shards: 256.
pub const JS_SHARDS: usize = 1 << SHARD_BITS;

/// A logical shard for which there are such ids, 0 to 255.
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

impl Grid for JsShard {
    const UNIT_MS: u64 = 1000;
    const SEQUENCE_BITS: u32 = 12;
    // A floor within a second would move them to the next second, each time that the horizon is requested.
    const FOLLOWED: bool = false;

    fn id(self, position: Position<JsShard>) -> i64 {
        let place = position.unit() << SHARD_BITS | self.0.index() as u64;
        (place << JsShard::SEQUENCE_BITS | position.sequence()).cast_signed()
    }
}
