//! PostgreSQL's replication origins, one of which keeps the high-water mark: the format of the mark, and how many
//! origins a server must have room for. A server does not start with room for fewer origins than it has saved, and
//! recovery ends when it comes to one too many.

use idgen_ids::epoch::Epoch;
use idgen_ids::id::{TICK_BITS, Tick};

/// The replication origin whose progress is the high-water mark. It is the last number that a named origin could
/// get, and those are assigned from 1 upwards; PostgreSQL reserves 65535.
pub const MARK_ORIGIN: u16 = 65534;

/// The file in the data directory to which every checkpoint saves the origins; PostgreSQL 15 to 19 write the same
/// format. A server that allows no origins neither reads nor writes it.
pub const SAVED_IN: &str = "pg_logical/replorigin_checkpoint";

/// `REPLICATION_STATE_MAGIC` of `origin.c`.
const MAGIC: u32 = 0x1257_DADE;

/// The size of a `ReplicationStateOnDisk`: the number of the origin, padding, and the progress.
const STATE: usize = 16;

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

/// The origins that have progress. An origin that only has a name takes no room yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    /// The number of these origins.
    pub in_use: usize,
    /// The mark, if it is one of them.
    pub mark: Option<Progress>,
}

impl Origins {
    /// Reads the content of the file [`SAVED_IN`]; `None` if it is not such a file. The checksum is left to
    /// PostgreSQL.
    pub fn saved(file: &[u8]) -> Option<Origins> {
        let (states, _checksum) = file.strip_prefix(&MAGIC.to_ne_bytes())?.split_last_chunk::<4>()?;
        let (states, []) = states.as_chunks::<STATE>() else {
            return None;
        };
        let mark = states.iter().find(|state| state.starts_with(&MARK_ORIGIN.to_ne_bytes()));
        let progress = mark.and_then(|state| state.last_chunk()).map_or(0, |last| u64::from_ne_bytes(*last));
        Some(Origins { in_use: states.len(), mark: Progress::kept(progress) })
    }

    /// The number of origins for which the server must have room, including the mark.
    pub fn needed(self) -> usize {
        self.in_use + usize::from(self.mark.is_none())
    }
}
