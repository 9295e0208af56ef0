//! The form in which a replication origin keeps the high-water mark.

use crate::epoch::Epoch;
use crate::id::{TICK_BITS, Tick};

/// The mark as the progress of its origin, which PostgreSQL never moves back. Within one epoch, a later mark is
/// greater progress:
///
/// ```text
/// 63  62                                  22 21               0
/// +--+--------------------------------------+-----------------+
/// |1 | mark: 41 bits, ms since idgen.epoch  | check: 22 bits  |
/// +--+--------------------------------------+-----------------+
/// ```
///
/// In 0.1.0 it was only the mark, with bit 63 clear, and therefore less than any progress of this format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress(u64);

/// Set if the mark has the check of its epoch.
const WITH_EPOCH: u64 = 1 << 63;
/// Width of that check in bits.
const CHECK_BITS: u32 = 63 - TICK_BITS;

/// A check that distinguishes epochs, by multiplicative hashing (Knuth, The Art of Computer Programming, 6.4): the
/// factor is 2^64 divided by the golden ratio, and the upper bits depend on the whole epoch. Two random epochs have
/// the same check in one case in four million.
fn check(epoch: Epoch) -> u64 {
    epoch.unix_ms().cast_unsigned().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - CHECK_BITS)
}

impl Progress {
    /// The progress for a mark of this epoch.
    ///
    /// # Panics
    /// With debug assertions, if the mark has more than 41 bits.
    #[must_use]
    pub fn new(mark: Tick, epoch: Epoch) -> Progress {
        debug_assert!(mark >> TICK_BITS == 0);
        Progress(WITH_EPOCH | mark << CHECK_BITS | check(epoch))
    }

    /// The progress that PostgreSQL has kept; `None` if it keeps no mark.
    #[must_use]
    pub const fn kept(progress: u64) -> Option<Progress> {
        if progress == 0 { None } else { Some(Progress(progress)) }
    }

    /// The value for PostgreSQL to keep.
    #[must_use]
    pub const fn to_keep(self) -> u64 {
        self.0
    }

    /// The mark.
    #[must_use]
    pub const fn mark(self) -> Tick {
        if self.0 & WITH_EPOCH == 0 { self.0 } else { (self.0 & !WITH_EPOCH) >> CHECK_BITS }
    }

    /// Whether the mark counts from this epoch, or may do so because its epoch is unknown.
    #[must_use]
    pub fn is_of(self, epoch: Epoch) -> bool {
        self.0 & WITH_EPOCH == 0 || self.0 & ((1 << CHECK_BITS) - 1) == check(epoch)
    }
}
