//! Room for the replication origin of the high-water mark, the first mark, and its removal. A server does not start if
//! it has saved more origins than it has room for, and recovery ends at the first one too many.

use idgen_core::host::Host;
use idgen_core::mark::Progress;
use pg_formats::origins::{SAVED_IN, saved};

use crate::error::Error;
use crate::host::{check_administrator, may_write_first_mark, uncounted};
use crate::memory;
use crate::pg::backend;
use crate::pg::compat::most_origins;
use crate::pg::origin::{self, MARK_ORIGIN};
use crate::pg::shmem::{self, Segment};

/// The origins that have progress. An origin that only has a name takes no room yet.
#[derive(Clone, Copy)]
pub struct Origins {
    /// The number of these origins.
    in_use: usize,
    /// The mark, if it is one of them.
    pub mark: Option<Progress>,
}

/// The replication origins that the last checkpoint saved, as far as they can be read. The server starts with
/// these. The path is relative to the data directory, which is the working directory of the server's processes.
pub fn saved_origins() -> Origins {
    let saved = std::fs::read(SAVED_IN).ok().and_then(|file| saved(&file)).unwrap_or_default();
    let mark = saved.iter().find(|(origin, _)| *origin == MARK_ORIGIN);
    Origins { in_use: saved.len(), mark: mark.and_then(|(_, progress)| Progress::kept(*progress)) }
}

/// The replication origins of this incarnation of the server. A server that allows none leaves the saved ones on disk.
/// Raises PostgreSQL's errors.
pub fn origins() -> Origins {
    if most_origins().1 == 0 {
        return saved_origins();
    }
    // In this order, a mark that arrives in between does not count as an additional origin.
    let in_use = origin::in_use();
    Origins { in_use, mark: origin::load_mark() }
}

/// Checks that there is room for the mark besides the other origins. Without it, a primary cannot mint, and a
/// server that replays the mark or has saved it goes down.
///
/// # Errors
/// 53400 if there is no room.
pub fn check(origins: Origins) -> Result<(), Error> {
    let (setting, room) = most_origins();
    let needed = origins.in_use + usize::from(origins.mark.is_none());
    if needed > room { Err(Error::NoRoom { setting, room, needed }) } else { Ok(()) }
}

/// Lets all sessions mint on a server without a preload: writes the least mark, which counts from any epoch, if the
/// cluster has none, this session may write the first one, and there is room for it. Returns whether it was written.
/// Raises PostgreSQL's errors.
///
/// # Errors
/// 55000 if this session has no shared memory.
pub fn begin() -> Result<bool, Error> {
    let host = uncounted()?;
    let origins = origins();
    let begins = !shmem::preloaded()
        && may_write_first_mark()
        && origins.mark.is_none()
        && check(origins).is_ok()
        && !host.in_recovery()
        && !host.segment.mark_removed();
    if begins {
        host.write_mark(Progress::FIRST);
    }
    Ok(begins)
}

/// Permanently removes the mark from the cluster. Returns whether there was one.
///
/// # Errors
/// 42501 if the user is not a superuser; 25006 in recovery; 55000 if this incarnation of the server has written the
/// mark, because it could continue to mint below a limit that is no longer stored; 53400 if PostgreSQL has left the mark
/// on disk for lack of room, from where it would come back.
pub fn remove_mark() -> Result<bool, Error> {
    check_administrator("remove the high-water mark")?;
    let origins = origins();
    if origins.mark.is_some() {
        check(origins)?;
    }
    backend::prevent_if_read_only(c"snowflake_remove_mark()");
    let memory = memory::of_anybody()?;
    origin::drop_mark(|| memory.map_or(Ok(()), Segment::give_up_mark))
}
