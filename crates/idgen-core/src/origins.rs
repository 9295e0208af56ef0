//! PostgreSQL's replication origins, one of which keeps the high-water mark, and how many a server must have
//! room for. It does not start with less than it has saved, and recovery ends where it meets one too many.

/// The replication origin whose progress is the high-water mark. It is the last number that a named
/// origin could get, and those are given out from 1 upwards; 65535 is reserved by PostgreSQL.
pub const MARK_ORIGIN: u16 = 65534;

/// Where every checkpoint saves the origins, in the data directory; PostgreSQL 15 to 18 write one format. A
/// server that is allowed no origin neither reads nor writes it.
pub const SAVED_IN: &str = "pg_logical/replorigin_checkpoint";

/// `REPLICATION_STATE_MAGIC` of `origin.c`.
const MAGIC: u32 = 0x1257_DADE;

/// The size of a `ReplicationStateOnDisk`: the number, padding, and the progress.
const STATE: usize = 16;

/// The origins that have progress. What has a name only takes no room yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    /// How many there are.
    pub in_use: usize,
    /// Whether the mark is one of them.
    pub with_mark: bool,
}

impl Origins {
    /// What the file [`SAVED_IN`] holds; none where this is no such file. Its checksum is PostgreSQL's affair.
    pub fn saved(file: &[u8]) -> Option<Origins> {
        let (states, _checksum) = file.strip_prefix(&MAGIC.to_ne_bytes())?.split_last_chunk::<4>()?;
        let (states, []) = states.as_chunks::<STATE>() else {
            return None;
        };
        let with_mark = states.iter().any(|state| state.starts_with(&MARK_ORIGIN.to_ne_bytes()));
        Some(Origins { in_use: states.len(), with_mark })
    }

    /// How many the server must have room for, so that the mark has a place too.
    pub fn needed(self) -> usize {
        self.in_use + usize::from(!self.with_mark)
    }
}
