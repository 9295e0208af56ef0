//! PostgreSQL's replication origins, one of which keeps the high-water mark, and how many
//! origins a server must have room for. A server does not start with room for fewer origins than it has saved, and
//! recovery ends when it comes to one too many.

use crate::mark::Progress;

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
