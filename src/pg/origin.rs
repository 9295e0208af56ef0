//! The high-water mark as PostgreSQL keeps it: the progress of a replication origin without a name.

use std::ffi::CString;
use std::ptr;

use idgen_core::mark::Progress;
use pgrx::{PgSqlErrorCode, PgTryBuilder, pg_sys};

use super::call::rows;
use super::compat::{CHECKPOINT_FAST, most_origins};
use crate::error::Error;

/// The replication origin whose progress is the high-water mark. It is the last number that a named origin could
/// get, and those are assigned from 1 upwards; PostgreSQL reserves 65535.
pub const MARK_ORIGIN: u16 = 65534;

/// The stored high-water mark; `None` if none has ever been stored.
pub fn load_mark() -> Option<Progress> {
    progress(MARK_ORIGIN)
}

/// The mark that an origin holds; `None` if the origin has no progress.
pub fn progress(origin: u16) -> Option<Progress> {
    // SAFETY: takes and releases PostgreSQL's own locks.
    Progress::kept(unsafe { pg_sys::replorigin_get_progress(origin, false) })
}

/// Advances an origin to a mark, with or without a WAL record, and returns the end of that record. Raises PostgreSQL's
/// errors.
pub fn set_progress(origin: u16, mark: Progress, wal: bool) -> u64 {
    // SAFETY: PostgreSQL's own function. It assigns no transaction id, so it works in read-only transactions and
    // parallel plans.
    unsafe {
        pg_sys::replorigin_advance(origin, mark.to_keep(), 0, false, wal);
        pg_sys::XactLastRecEnd
    }
}

/// Writes the mark to the WAL and to PostgreSQL's array of origins, which every checkpoint saves and recovery
/// restores. A mark below the stored one changes nothing. Returns the position to which the WAL must be flushed for
/// the mark to be durable.
///
/// If no origin is free, this calls `refuse` and raises 53400 at once, instead of returning it: PostgreSQL's
/// function then still holds a lock, which only the abort of the transaction releases.
pub fn write_mark(mark: Progress, refuse: fn(Error) -> Error) -> u64 {
    PgTryBuilder::new(|| set_progress(MARK_ORIGIN, mark, true))
        .catch_when(PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED, move |_| {
            // All origins are in use by others.
            refuse(Error::NoOrigin { needed: most_origins().1 + 1 }).raise()
        })
        .execute()
}

/// Runs `f` in only one session of the server at a time. The lock is the one that PostgreSQL takes to drop the origin
/// of the mark. Waiting for it can be canceled. Raises PostgreSQL's errors.
pub fn alone<T>(f: impl FnOnce() -> T) -> T {
    let (class, number) = (pg_sys::ReplicationOriginRelationId, u32::from(MARK_ORIGIN).into());
    let mode = pg_sys::ExclusiveLock as pg_sys::LOCKMODE;
    // SAFETY: after an error, the abort of the transaction releases the lock.
    unsafe {
        pg_sys::LockSharedObject(class, number, 0, mode);
        let result = f();
        pg_sys::UnlockSharedObject(class, number, 0, mode);
        result
    }
}

/// Whether the origin of the mark has a name, under which it could be moved or dropped.
pub fn mark_has_name() -> bool {
    let mut name = ptr::null_mut();
    // SAFETY: looks the number up in the catalog, and allocates the name in the current memory context.
    unsafe { pg_sys::replorigin_by_oid(MARK_ORIGIN, true, &mut name) }
}

/// The number of replication origins that have progress in this incarnation of the server. Raises PostgreSQL's errors.
///
/// PostgreSQL's function looks up the names of the origins while it holds the LWLock that the mark and its replay need,
/// and cannot be interrupted there. So the catalog is opened before: if another session has locked it, that wait can be
/// canceled.
pub fn in_use() -> usize {
    let show = pg_sys::pg_show_replication_origin_status;
    let share = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
    // SAFETY: the catalog and its index exist. That function returns a set, and has this OID.
    unsafe {
        let catalog = pg_sys::table_open(pg_sys::ReplicationOriginRelationId, share);
        let index = pg_sys::index_open(pg_sys::ReplicationOriginIdentIndex.into(), share);
        let count = rows(show, pg_sys::F_PG_SHOW_REPLICATION_ORIGIN_STATUS.into(), |_| ()).len();
        pg_sys::index_close(index, share);
        pg_sys::table_close(catalog, share);
        count
    }
}

unsafe extern "C-unwind" {
    // From postmaster/bgwriter.h, which pgrx does not include, so there is no guard around it either.
    fn RequestCheckpoint(flags: i32);
}

/// `InvalidRepOriginId`, which PostgreSQL 19 calls `InvalidReplOriginId`.
const INVALID_ORIGIN: u16 = 0;

/// Makes PostgreSQL forget the mark, on this server and, through the WAL, on its standbys. Returns whether there
/// was one. An origin can only be dropped by name, so the mark gets one temporarily. The mark is gone at once, even
/// if the transaction rolls back. A checkpoint has been completed when this returns, so no recovery of this server
/// will find the mark again. `give_up` is called after the last wait, before anything is changed. Raises PostgreSQL's
/// errors.
///
/// # Errors
/// The error of `give_up`.
pub fn drop_mark(give_up: impl FnOnce() -> Result<(), Error>) -> Result<bool, Error> {
    // SAFETY: the row is formed with the descriptor of the table that it is inserted into, and has both columns.
    // The table is locked against changes until the transaction ends.
    unsafe {
        let table = pg_sys::table_open(
            pg_sys::ReplicationOriginRelationId,
            pg_sys::ExclusiveLock as pg_sys::LOCKMODE,
        );
        let there = load_mark().is_some();
        // It may have been given a name by hand.
        let mut name = ptr::null_mut();
        let named = pg_sys::replorigin_by_oid(MARK_ORIGIN, true, &mut name);
        give_up()?;
        if there && !named {
            // Another origin may have one of these names, but there are too few origins to have all of them.
            let names = (0..=u32::from(MARK_ORIGIN)).map(|n| CString::new(format!("idgen_mark_{n}")));
            let free = |name: &CString| pg_sys::replorigin_by_name(name.as_ptr(), true) == INVALID_ORIGIN;
            let free = names.flatten().find(|name| free(name)).expect("a free name");
            name = pg_sys::pstrdup(free.as_ptr());
            let mut values =
                [pg_sys::Oid::from(u32::from(MARK_ORIGIN)).into(), pg_sys::cstring_to_text(name).into()];
            let mut nulls = [false; 2];
            let row = pg_sys::heap_form_tuple((*table).rd_att, values.as_mut_ptr(), nulls.as_mut_ptr());
            pg_sys::CatalogTupleInsert(table, row);
            pg_sys::CommandCounterIncrement();
        }
        if there || named {
            pg_sys::replorigin_drop_by_name(name, false, true);
        }
        pg_sys::table_close(table, pg_sys::NoLock as pg_sys::LOCKMODE);
        let flags = CHECKPOINT_FAST | pg_sys::CHECKPOINT_FORCE | pg_sys::CHECKPOINT_WAIT;
        pg_sys::ffi::pg_guard_ffi_boundary(|| RequestCheckpoint(flags as i32));
        Ok(there)
    }
}

/// Waits until the WAL up to `lsn` is on disk.
pub fn flush_wal(lsn: u64) {
    // SAFETY: `lsn` is the end of a record that a backend of this incarnation of the server has inserted.
    unsafe { pg_sys::XLogFlush(lsn) }
}

/// Makes the WAL writer flush the WAL up to `lsn` in its next round, as for an asynchronous commit: within twice
/// `wal_writer_delay`, 200 ms by default.
pub fn flush_wal_soon(lsn: u64) {
    // SAFETY: as above.
    unsafe { pg_sys::XLogSetAsyncXactLSN(lsn) }
}

/// Whether the WAL up to `lsn` is on disk.
pub fn is_flushed(lsn: u64) -> bool {
    // SAFETY: recovery is over if a mark has been written. The timeline is not requested.
    unsafe { pg_sys::GetFlushRecPtr(ptr::null_mut()) >= lsn }
}
