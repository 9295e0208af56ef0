//! PostgreSQL's replication origins, one of which keeps the high-water mark; its form there; and how many a server
//! must have room for. It does not start with less than it has saved, and recovery ends where it meets one too many.

use crate::epoch::Epoch;
use crate::id::{TICK_BITS, Tick};

/// The replication origin whose progress is the high-water mark. It is the last number that a named
/// origin could get, and those are given out from 1 upwards; 65535 is reserved by PostgreSQL.
pub const MARK_ORIGIN: u16 = 65534;

/// Where every checkpoint saves the origins, in the data directory; PostgreSQL 15 to 19 write one format. A
/// server that is allowed no origin neither reads nor writes it.
pub const SAVED_IN: &str = "pg_logical/replorigin_checkpoint";

/// `REPLICATION_STATE_MAGIC` of `origin.c`.
const MAGIC: u32 = 0x1257_DADE;

/// The size of a `ReplicationStateOnDisk`: the number, padding, and the progress.
const STATE: usize = 16;

/// The mark as the progress of its origin, which PostgreSQL never moves back. Of one epoch a later mark is greater
/// progress:
///
/// ```text
/// 63  62                                  22 21               0
/// +--+--------------------------------------+-----------------+
/// |1 | mark: 41 bits, ms since idgen.epoch  | check: 22 bits  |
/// +--+--------------------------------------+-----------------+
/// ```
///
/// Until 0.1.0 it was the mark alone, so with bit 63 clear, and less than any progress of now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress(u64);

/// Set where the mark has the check of its epoch.
const WITH_EPOCH: u64 = 1 << 63;
/// Width of that check.
const CHECK_BITS: u32 = 63 - TICK_BITS;

/// What tells one epoch from another, by multiplicative hashing (Knuth, The Art of Computer Programming, 6.4): the
/// factor is 2^64 divided by the golden ratio, and the upper bits depend on all of the epoch. Of two epochs taken
/// at random one in four million pairs is not told apart.
fn check(epoch: Epoch) -> u64 {
    epoch.unix_ms().cast_unsigned().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - CHECK_BITS)
}

impl Progress {
    /// That of a mark of this epoch.
    ///
    /// # Panics
    /// Where debug assertions are on, for a mark of more than 41 bits.
    #[must_use]
    pub fn new(mark: Tick, epoch: Epoch) -> Progress {
        debug_assert!(mark >> TICK_BITS == 0);
        Progress(WITH_EPOCH | mark << CHECK_BITS | check(epoch))
    }

    /// What PostgreSQL has kept; none where it keeps no mark.
    #[must_use]
    pub const fn kept(progress: u64) -> Option<Progress> {
        if progress == 0 { None } else { Some(Progress(progress)) }
    }

    /// For PostgreSQL to keep.
    #[must_use]
    pub const fn to_keep(self) -> u64 {
        self.0
    }

    /// The mark.
    #[must_use]
    pub const fn mark(self) -> Tick {
        if self.0 & WITH_EPOCH == 0 { self.0 } else { (self.0 & !WITH_EPOCH) >> CHECK_BITS }
    }

    /// Whether the mark counts from this epoch, or may, because nothing is known of its epoch.
    #[must_use]
    pub fn is_of(self, epoch: Epoch) -> bool {
        self.0 & WITH_EPOCH == 0 || self.0 & ((1 << CHECK_BITS) - 1) == check(epoch)
    }
}

/// The origins that have progress. What has a name only takes no room yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    /// How many there are.
    pub in_use: usize,
    /// The mark, where it is one of them.
    pub mark: Option<Progress>,
}

impl Origins {
    /// What the file [`SAVED_IN`] holds; none where this is no such file. Its checksum is PostgreSQL's affair.
    pub fn saved(file: &[u8]) -> Option<Origins> {
        let (states, _checksum) = file.strip_prefix(&MAGIC.to_ne_bytes())?.split_last_chunk::<4>()?;
        let (states, []) = states.as_chunks::<STATE>() else {
            return None;
        };
        let mark = states.iter().find(|state| state.starts_with(&MARK_ORIGIN.to_ne_bytes()));
        let progress = mark.and_then(|state| state.last_chunk()).map_or(0, |last| u64::from_ne_bytes(*last));
        Some(Origins { in_use: states.len(), mark: Progress::kept(progress) })
    }

    /// How many the server must have room for, so that the mark has a place too.
    pub fn needed(self) -> usize {
        self.in_use + usize::from(self.mark.is_none())
    }
}
