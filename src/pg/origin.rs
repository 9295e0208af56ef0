//! The high-water mark as PostgreSQL keeps it: the progress of a replication origin without a name.

use std::ffi::CString;
use std::ptr;

use idgen_core::origins::{MARK_ORIGIN, Progress};
use pgrx::{PgSqlErrorCode, PgTryBuilder, pg_sys};

use crate::compat::{CHECKPOINT_FAST, most_origins};
use crate::error::Error;
use crate::pg::call::rows;

/// The stored high-water mark; none where none has ever been stored.
pub fn load_mark() -> Option<Progress> {
    // SAFETY: takes and releases locks of PostgreSQL's own.
    Progress::kept(unsafe { pg_sys::replorigin_get_progress(MARK_ORIGIN, false) })
}

/// Writes the mark to the WAL and to PostgreSQL's array of origins, which every checkpoint saves
/// and recovery restores. A mark below the stored one changes nothing. Returns how far the WAL must
/// be flushed for the mark to be durable.
///
/// Raises 53400 where no origin is free, after `refuse`, at once and not as a result: PostgreSQL's call then still
/// holds a lock, which only the abort of the transaction releases.
pub fn write_mark(mark: Progress, refuse: fn(Error) -> Error) -> u64 {
    PgTryBuilder::new(|| {
        // SAFETY: the origin number is ours alone, and the call takes no transaction id: it works
        // in read-only transactions and parallel workers.
        unsafe {
            pg_sys::replorigin_advance(MARK_ORIGIN, mark.to_keep(), 0, false, true);
            pg_sys::XactLastRecEnd
        }
    })
    .catch_when(PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED, move |_| {
        // Others have taken all.
        refuse(Error::NoOrigin { needed: most_origins().1 + 1 }).raise()
    })
    .execute()
}

/// How many replication origins have progress in this run of the server. Raises PostgreSQL's errors.
pub fn in_use() -> usize {
    let show = pg_sys::pg_show_replication_origin_status;
    // SAFETY: that function returns a set, and has this OID.
    unsafe { rows(show, pg_sys::F_PG_SHOW_REPLICATION_ORIGIN_STATUS.into(), |_| ()).len() }
}

unsafe extern "C-unwind" {
    // postmaster/bgwriter.h, which pgrx leaves out, and so the guard around it too.
    fn RequestCheckpoint(flags: i32);
}

/// `InvalidRepOriginId`, which PostgreSQL 19 calls `InvalidReplOriginId`.
const INVALID_ORIGIN: u16 = 0;

/// Has PostgreSQL forget the mark, here and, by the WAL, on standbys; whether there was one. To drop an origin
/// takes a name, so the mark gets one for the moment. The mark is gone at once, also where the transaction
/// rolls back. When this returns a checkpoint is behind it: no recovery of this server comes across it again.
///
/// Raises PostgreSQL's errors: 25006 in a transaction that may only read.
pub fn drop_mark() -> bool {
    // SAFETY: the row is formed by the description of the table that it goes into, of both its columns. The
    // table is locked against everybody who would change it until the transaction ends.
    unsafe {
        pg_sys::PreventCommandIfReadOnly(c"snowflake_remove_mark()".as_ptr());
        let table = pg_sys::table_open(
            pg_sys::ReplicationOriginRelationId,
            pg_sys::ExclusiveLock as pg_sys::LOCKMODE,
        );
        let there = load_mark().is_some();
        // Somebody may have given it a name by hand before.
        let mut name = ptr::null_mut();
        let named = pg_sys::replorigin_by_oid(MARK_ORIGIN, true, &mut name);
        if there && !named {
            // Another origin may have that name, but not all of these: there are fewer origins.
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
        there
    }
}

/// Waits until the WAL up to `lsn` is on disk.
pub fn flush_wal(lsn: u64) {
    // SAFETY: `lsn` is the end of a record that a backend of this run of the server has inserted.
    unsafe { pg_sys::XLogFlush(lsn) }
}

/// Has the WAL writer flush the WAL up to `lsn` in its next round, as it does for an asynchronous commit: within
/// two times `wal_writer_delay`, 200 ms by default.
pub fn flush_wal_soon(lsn: u64) {
    // SAFETY: as above.
    unsafe { pg_sys::XLogSetAsyncXactLSN(lsn) }
}

/// Whether the WAL up to `lsn` is on disk.
pub fn is_flushed(lsn: u64) -> bool {
    // SAFETY: recovery is over where a mark has been written. The timeline is not asked for.
    unsafe { pg_sys::GetFlushRecPtr(ptr::null_mut()) >= lsn }
}
