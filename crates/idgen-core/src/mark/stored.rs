//! The stored form of the high-water mark, and the rule of the epoch: a mark is valid only with the epoch with which it
//! was stored.

use idgen_ids::id::TICK_BITS;
use idgen_ids::{Epoch, Tick};

use crate::error::Error;
use crate::settings::{QUEUE_MS, Settings};

/// How far a mark may reach after one that was late, in milliseconds. The next incarnation of the server begins there,
/// and has to mint within the default of `idgen.max_wait`; and a process that was suspended must not write a mark hours
/// ahead.
pub const MOST_LATE_REACH_MS: u64 = 4000;

/// The mark as the progress of a replication origin, which PostgreSQL never moves back. Within one epoch, a later mark is
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

/// Set if the mark includes the check of its epoch.
const WITH_EPOCH: u64 = 1 << 63;
/// Width of the check in bits.
const CHECK_BITS: u32 = 63 - TICK_BITS;

/// A check that distinguishes epochs, by multiplicative hashing (Knuth, The Art of Computer Programming, 6.4): the
/// factor is 2^64 divided by the golden ratio, and the upper bits depend on the whole epoch. Two random epochs have
/// the same check in one case in four million.
fn check(epoch: Epoch) -> u64 {
    epoch.unix_ms().cast_unsigned().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - CHECK_BITS)
}

impl Progress {
    /// The least possible progress, in the form of 0.1.0: a mark of any epoch, below all ids. It says only that the
    /// cluster may have a mark.
    pub const FIRST: Progress = Progress(1);

    /// The progress for a mark of this epoch.
    ///
    /// # Panics
    /// With debug assertions, if the mark has more than 41 bits.
    #[must_use]
    pub fn new(mark: Tick, epoch: Epoch) -> Progress {
        debug_assert!(mark >> TICK_BITS == 0);
        Progress(WITH_EPOCH | mark << CHECK_BITS | check(epoch))
    }

    /// The progress that PostgreSQL has kept; `None` if it has not kept a mark.
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

/// The tick of a stored mark; 0 if none has ever been stored.
///
/// # Errors
/// [`Error::OtherEpoch`] for a mark that does not count from `epoch`.
pub fn tick_of(stored: Option<Progress>, epoch: Epoch) -> Result<Tick, Error> {
    match stored {
        Some(progress) if !progress.is_of(epoch) => Err(Error::OtherEpoch),
        progress => Ok(progress.map_or(0, Progress::mark)),
    }
}

/// How far a stored mark lies ahead of the clock, in milliseconds; `None` if a server that mints as far ahead as it may
/// could have left it there.
#[must_use]
pub fn too_far_ahead(stored: Tick, now: Tick, settings: &Settings) -> Option<u64> {
    let reach = settings.reserve_ahead_ms.max(MOST_LATE_REACH_MS);
    let by_ms = stored.saturating_sub(now);
    (by_ms > settings.max_ahead_ms + QUEUE_MS + reach).then_some(by_ms)
}
