//! The shared memory of idgen, and whether this session may use it. A server that preloads the library has checked its
//! settings at the start, and all sessions have the same. On any other, a session may only use the memory with the
//! defaults of the settings that belong to the server.

use std::cell::Cell;

use crate::error::Error;
use crate::pg::backend;
use crate::pg::local::Local;
use crate::pg::shmem::{self, Segment};
use crate::settings;
#[cfg(feature = "pg_test")]
use crate::testing::settings::other_layout;

static WHEN_ALLOCATED: Local<Cell<fn()>> = Local::new(Cell::new(|| ()));

/// Arranges for `log` to be called after this session has allocated the memory. With a preload, the server logs at its
/// start what keeps ids from being minted. `log` may raise an error.
pub fn when_allocated(log: fn()) {
    WHEN_ALLOCATED.set(log);
}

/// The shared memory, for a session that may use it. Raises PostgreSQL's errors.
///
/// # Errors
/// 55000 if the server has none and cannot allocate it, or if this session may not use it; 25000 in a parallel worker.
pub fn segment() -> Result<&'static Segment, Error> {
    if backend::in_parallel_worker() {
        return Err(Error::ParallelWorker);
    }
    shmem::at_hand().map_or_else(join, Ok)
}

#[cold]
fn join() -> Result<&'static Segment, Error> {
    shmem::available()?;
    settings::check_defaults()?;
    let segment = made()?;
    shmem::join(segment);
    Ok(segment)
}

/// The shared memory, even if this session may not use it; `None` if the server has none, so that no session mints.
/// Raises PostgreSQL's errors.
///
/// # Errors
/// 55000 if another version of the library has allocated it.
pub fn of_anybody() -> Result<Option<&'static Segment>, Error> {
    if shmem::available().is_err() { Ok(None) } else { made().map(Some) }
}

fn made() -> Result<&'static Segment, Error> {
    let (segment, allocated) = shmem::made(layout(), settings::default_epoch().unix_ms())?;
    if allocated {
        WHEN_ALLOCATED.get()();
    }
    Ok(segment)
}

/// The layout of shared memory. Tests may take this library for another one.
fn layout() -> u32 {
    #[cfg(feature = "pg_test")]
    return shmem::LAYOUT + other_layout();
    #[cfg(not(feature = "pg_test"))]
    shmem::LAYOUT
}
