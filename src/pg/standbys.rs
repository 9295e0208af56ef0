//! Synchronous standbys: whether there are any, whether there are enough, and how much WAL they have acknowledged.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{self, Ordering};

use pgrx::pg_sys;

use super::call::rows;
use super::compat::{checkpointer_has_begun, standbys_status_has_bits};
use super::local::Local;
use super::setting::release;

/// Whether the WAL up to `lsn` is on disk at the synchronous standbys too, as `synchronous_standby_names` requires.
pub fn acknowledged(lsn: u64) -> bool {
    // SAFETY: WalSndCtl is set up before any backend. The position is an aligned 64-bit number that the WAL senders
    // only ever raise, whether or not a backend queues for it; with an old value the caller just asks again.
    unsafe {
        let flushed = &raw const (*pg_sys::WalSndCtl).lsn[pg_sys::SYNC_REP_WAIT_FLUSH as usize];
        flushed.read_volatile() >= lsn
    }
}

static STATUS_HAS_BITS: Local<Cell<bool>> = Local::new(Cell::new(true));

/// Determines how this minor release of PostgreSQL, which need not be the one that the library was built with,
/// represents the status of synchronous standbys. Call it when the library is loaded.
pub fn look_up_release() {
    STATUS_HAS_BITS.set(standbys_status_has_bits(release()));
}

/// The number of WAL receivers that are connected: standbys, and others such as a backup.
pub fn connected() -> usize {
    let senders = pg_sys::pg_stat_get_wal_senders;
    // SAFETY: that function returns a set, and has this OID.
    unsafe { rows(senders, pg_sys::F_PG_STAT_GET_WAL_SENDERS.into(), |_| ()).len() }
}

/// Whether a commit would wait for synchronous standbys now. A backend reads its configuration only between
/// statements. Commits therefore go by the status that the checkpointer puts into shared memory, and so do ids.
#[inline]
pub fn must_acknowledge() -> bool {
    // SAFETY: WalSndCtl is set up before any backend, and max_wal_senders with it. In all releases the status is
    // the byte after the positions, whatever its name and type in the headers of this one.
    let status = || unsafe { (&raw const (*pg_sys::WalSndCtl).lsn).add(1).cast::<u8>().read_volatile() };
    // SAFETY: set before any backend begins.
    if unsafe { pg_sys::max_wal_senders } == 0 {
        return false;
    }
    defined(status, STATUS_HAS_BITS.get()).unwrap_or_else(named_in_session)
}

/// Whether there are synchronous standbys, according to the configuration that this backend has read.
pub fn named_in_session() -> bool {
    // SAFETY: the setting, null or a C string.
    unsafe { !pg_sys::SyncRepStandbyNames.is_null() && *pg_sys::SyncRepStandbyNames != 0 }
}

/// The number of standbys that are streaming and the number that a commit needs, if there are too few, according to the
/// configuration that this backend has read. They are counted by the function by which WAL senders decide whether to
/// release a commit: a standby that is still catching up does not count.
pub fn too_few() -> Option<(usize, usize)> {
    let mut standbys = ptr::null_mut();
    // SAFETY: the configuration is null or what this backend has read. The function allocates the list in the
    // current memory context, and looks at each WAL sender under its own spinlock.
    let (streaming, needed) = unsafe {
        let config = pg_sys::SyncRepConfig.as_ref()?;
        (pg_sys::SyncRepGetCandidateStandbys(&mut standbys), config.num_sync)
    };
    (streaming < needed).then_some((streaming as usize, needed as usize))
}

/// Interprets the status of synchronous standbys; `None` until the checkpointer has read the setting.
#[inline]
pub fn defined(status: impl FnOnce() -> u8, has_bits: bool) -> Option<bool> {
    const INIT: u8 = 1;
    const DEFINED: u8 = 2;
    if has_bits {
        let status = status();
        return (status & INIT != 0).then_some(status & DEFINED != 0);
    }
    // Check first whether the checkpointer has begun: the status is set before that becomes visible.
    let begun = checkpointer_has_begun();
    atomic::fence(Ordering::Acquire);
    let is_defined = status() != 0;
    (begun || is_defined).then_some(is_defined)
}
