//! The file in which a checkpoint saves the replication origins that have progress.

/// Path of the file in the data directory. PostgreSQL 15 to 19 write the same format. A server that does not allow
/// origins neither reads nor writes it.
pub const SAVED_IN: &str = "pg_logical/replorigin_checkpoint";

/// `REPLICATION_STATE_MAGIC` of `origin.c`.
const MAGIC: u32 = 0x1257_DADE;

/// The size of a `ReplicationStateOnDisk`: the number of the origin, padding, and the progress.
const STATE: usize = 16;

/// Reads the content of the file [`SAVED_IN`]: the number and the progress of each origin. `None` if it has another
/// format. Verifying the checksum is left to PostgreSQL.
pub fn saved(file: &[u8]) -> Option<Vec<(u16, u64)>> {
    let (states, _checksum) = file.strip_prefix(&MAGIC.to_ne_bytes())?.split_last_chunk::<4>()?;
    let (states, []) = states.as_chunks::<STATE>() else {
        return None;
    };
    let read = |[a, b, _, _, _, _, _, _, progress @ ..]: &[u8; STATE]| {
        (u16::from_ne_bytes([*a, *b]), u64::from_ne_bytes(*progress))
    };
    Some(states.iter().map(read).collect())
}
