//! Whether PostgreSQL has room for the high-water mark beside the other replication origins, and the removal of the
//! mark.

use idgen_core::origins::{Origins, SAVED_IN};

use crate::compat::most_origins;
use crate::error::Error;
use crate::pg::{backend, origin};
use crate::shmem;

/// The replication origins that the last checkpoint saved, as far as they can be read: what the server begins
/// with. Files are named from the data directory, which processes of the server are in.
pub fn saved_origins() -> Origins {
    std::fs::read(SAVED_IN).ok().and_then(|file| Origins::saved(&file)).unwrap_or_default()
}

/// The replication origins of this run of the server. A server that is allowed none has left the saved ones
/// where they are. Raises PostgreSQL's errors.
pub fn origins() -> Origins {
    if most_origins().1 == 0 {
        return saved_origins();
    }
    // In this order a mark that comes meanwhile does not look like one too many.
    let in_use = origin::in_use();
    Origins { in_use, mark: origin::load_mark() }
}

/// Checks that there is room for the mark beside the other origins. Where there is not, a primary cannot mint,
/// and a server that replays the mark or has saved it goes down.
///
/// # Errors
/// 53400 where there is not.
pub fn check(origins: Origins) -> Result<(), Error> {
    let ((setting, room), needed) = (most_origins(), origins.needed());
    if needed > room { Err(Error::NoRoom { setting, room, needed }) } else { Ok(()) }
}

/// Removes the mark from the cluster for good; whether there was one.
///
/// # Errors
/// 42501 for who is no superuser, 25006 in recovery, 55000 where the library is preloaded: this run of the
/// server could go on to mint below a limit that nothing keeps. 53400 where PostgreSQL has left the mark on
/// disk, for lack of room: it would come back.
pub fn remove_mark() -> Result<bool, Error> {
    const ACTION: &str = "remove the mark of ids";
    if !backend::superuser() {
        return Err(Error::NotSuperuser(ACTION));
    }
    if backend::in_recovery() {
        return Err(Error::InRecovery(ACTION));
    }
    if shmem::shared().is_ok() {
        return Err(Error::StillPreloaded);
    }
    let origins = origins();
    if origins.mark.is_some() {
        check(origins)?;
    }
    Ok(origin::drop_mark())
}
