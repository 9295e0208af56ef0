//! Shared memory: the state of the protocol, which the core lays out, behind LWLocks; the counters of refused calls;
//! and the part of each backend.

use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU64, Ordering};
use std::{ptr, slice};

use idgen_core::host::Wait;
use idgen_core::shared::{Backend, Guarded, Locks, Shared, Slotted};
use idgen_core::slot::Slot;
use idgen_ids::Shard;
use idgen_ids::epoch::Timestamptz;
use idgen_ids::js::JsShard;
use pgrx::pg_sys;

use super::backend;
use super::compat::{name_tranche, new_tranche, wait_event};
use crate::error::{Error, Reason};

/// PostgreSQL's LWLocks.
pub struct LwLocks;

impl Locks for LwLocks {
    type Of<T: Copy> = Locked<T>;
    type Many<T: Copy, const N: usize> = [Locked<T>; N];
}

/// A value and its lock. A slot and its lock are on one cache line: a visit writes only this line, and shards never
/// contend with each other.
#[repr(C, align(64))]
pub struct Locked<T> {
    lock: UnsafeCell<pg_sys::LWLock>,
    value: UnsafeCell<T>,
}

const _: () = assert!(size_of::<Locked<Slot<Shard>>>() == 64 && size_of::<Locked<Slot<JsShard>>>() == 64);

impl<T: Copy> Guarded<T> for Locked<T> {
    #[inline]
    fn change<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let Locked { lock, value } = self;
        // SAFETY: the exclusive lock makes this the only reference to the value.
        unsafe { locked(lock.get(), pg_sys::LWLockMode::LW_EXCLUSIVE, || f(&mut *value.get())) }
    }

    fn copy(&self) -> T {
        let Locked { lock, value } = self;
        // SAFETY: the shared lock keeps writers out.
        unsafe { locked(lock.get(), pg_sys::LWLockMode::LW_SHARED, || *value.get()) }
    }
}

/// Everything that idgen keeps in shared memory, except for what belongs to a backend. Initially all zero.
#[repr(C)]
pub struct Segment {
    /// The state on which the protocol works. Its first cache line is read for every id, and written at a renewal.
    pub shared: Shared<LwLocks>,
    renewed: UnsafeCell<pg_sys::ConditionVariable>,
    /// When the counters began.
    counted_since: AtomicI64,
    /// The number of calls refused for each [`Reason`].
    refusals: [AtomicU64; Reason::ALL.len()],
}

/// The size of shared memory in bytes: 528 KiB for the slots, and less than a KiB for the rest.
const SIZE: usize = size_of::<Segment>();

const TRANCHE: &CStr = c"idgen";

static BACKENDS: AtomicPtr<Backend> = AtomicPtr::new(ptr::null_mut());
static SEGMENT: AtomicPtr<Segment> = AtomicPtr::new(ptr::null_mut());
static mut PREVIOUS_REQUEST_HOOK: pg_sys::shmem_request_hook_type = None;
static mut PREVIOUS_STARTUP_HOOK: pg_sys::shmem_startup_hook_type = None;

/// Requests shared memory. Call it while the library is being preloaded.
pub fn install_hooks() {
    // SAFETY: the postmaster is single-threaded, and these variables are meant to be chained this way.
    unsafe {
        PREVIOUS_REQUEST_HOOK = pg_sys::shmem_request_hook;
        pg_sys::shmem_request_hook = Some(request);
        PREVIOUS_STARTUP_HOOK = pg_sys::shmem_startup_hook;
        pg_sys::shmem_startup_hook = Some(startup);
    }
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn request() {
    // SAFETY: called by PostgreSQL as its shmem_request_hook.
    unsafe {
        if let Some(previous) = PREVIOUS_REQUEST_HOOK {
            previous();
        }
        pg_sys::RequestAddinShmemSpace(SIZE);
        pg_sys::RequestAddinShmemSpace(backend::most() * size_of::<Backend>());
    }
}

/// Runs in the postmaster, at start and again after every crash of a backend. Nothing else runs at that time, so
/// the slots need no lock yet. Backends inherit the pointer at fork; on platforms where they cannot, they run this
/// too and find what the postmaster has created.
#[pgrx::pg_guard]
unsafe extern "C-unwind" fn startup() {
    // SAFETY: called by PostgreSQL as its shmem_startup_hook. The memory is as large as requested and aligned to
    // PG_CACHE_LINE_SIZE, which is at least the 64 bytes that a Locked value requires.
    unsafe {
        if let Some(previous) = PREVIOUS_STARTUP_HOOK {
            previous();
        }
        let (mut found, mut backends_found) = (false, false);
        let segment: *mut Segment = pg_sys::ShmemInitStruct(c"idgen".as_ptr(), SIZE, &mut found).cast();
        let size = backend::most() * size_of::<Backend>();
        let backends: *mut Backend =
            pg_sys::ShmemInitStruct(c"idgen backends".as_ptr(), size, &mut backends_found).cast();
        if !found {
            segment.write_bytes(0, 1);
            let tranche = new_tranche(TRANCHE);
            let Segment { shared, renewed, counted_since, .. } = &*segment;
            counted_since.store(backend::timestamp(), Ordering::Relaxed);
            pg_sys::ConditionVariableInit(renewed.get());
            pg_sys::LWLockInitialize(shared.mark.lock.get(), tranche);
            Shard::all().for_each(|shard| pg_sys::LWLockInitialize(shard.slot(shared).lock.get(), tranche));
            JsShard::all().for_each(|shard| pg_sys::LWLockInitialize(shard.slot(shared).lock.get(), tranche));
        }
        if !backends_found {
            for number in 0..backend::most() {
                backends.add(number).write(Backend::idle());
            }
        }
        name_tranche((*(*segment).shared.mark.lock.get()).tranche.into(), TRANCHE);
        BACKENDS.store(backends, Ordering::Relaxed);
        SEGMENT.store(segment, Ordering::Relaxed);
    }
}

/// The content of shared memory.
///
/// # Errors
/// 55000 if the library was not preloaded.
#[inline]
pub fn segment() -> Result<&'static Segment, Error> {
    let segment = SEGMENT.load(Ordering::Relaxed);
    // SAFETY: if it is not null, startup() has initialized it, and shared memory outlives the process.
    unsafe { segment.as_ref() }.ok_or(Error::NotPreloaded)
}

unsafe extern "C-unwind" {
    // As in pg_sys, but without the sigsetjmp that pgrx puts around calls of C, which is half the cost of the pair.
    // It would turn a PostgreSQL error into a panic, but these functions raise an error only in a backend that
    // holds 200 LWLocks, and this one holds none here.
    fn LWLockAcquire(lock: *mut pg_sys::LWLock, mode: pg_sys::LWLockMode::Type) -> bool;
    fn LWLockRelease(lock: *mut pg_sys::LWLock);
}

/// Runs `f` while holding an LWLock, which also holds off interrupts. If `f` panics, the abort of the transaction
/// releases the lock.
///
/// # Safety
/// `lock` is an initialized LWLock.
unsafe fn locked<T>(lock: *mut pg_sys::LWLock, mode: pg_sys::LWLockMode::Type, f: impl FnOnce() -> T) -> T {
    // SAFETY: the caller's promise.
    unsafe {
        LWLockAcquire(lock, mode);
        let result = f();
        LWLockRelease(lock);
        result
    }
}

impl Segment {
    /// When the counters began: at the start of the server, or the last reset.
    pub fn counted_since(&self) -> Timestamptz {
        self.counted_since.load(Ordering::Relaxed)
    }

    /// Counts a refused call.
    pub fn count_refusal(&self, reason: Reason) {
        self.refusals[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The number of calls refused for that reason.
    pub fn refused(&self, reason: Reason) -> u64 {
        self.refusals[reason as usize].load(Ordering::Relaxed)
    }

    /// Resets the counters of all slots, and those of refused calls.
    pub fn reset_counters(&self) {
        self.counted_since.store(backend::timestamp(), Ordering::Relaxed);
        Shard::all().for_each(|shard| shard.slot(&self.shared).change(Slot::reset_counters));
        JsShard::all().for_each(|shard| shard.slot(&self.shared).change(Slot::reset_counters));
        for refused in &self.refusals {
            refused.store(0, Ordering::Relaxed);
        }
    }

    /// The state that each backend shares with the others.
    pub fn backends(&self) -> &'static [Backend] {
        // SAFETY: startup() has initialized them, and shared memory outlives the process.
        unsafe { slice::from_raw_parts(BACKENDS.load(Ordering::Relaxed), backend::most()) }
    }

    /// Wakes the backends that wait for the mark to be renewed.
    pub fn wake_waiting(&self) {
        // SAFETY: initialized in startup().
        unsafe { pg_sys::ConditionVariableBroadcast(self.renewed.get()) }
    }

    /// Sleeps until `done` is true, until [`Segment::wake_waiting`], or for `ms` milliseconds. Raises the error of a
    /// cancel, of statement_timeout or of a shutdown.
    pub fn wait_for_mark(&self, ms: u64, done: impl FnOnce() -> bool) {
        let renewed = self.renewed.get();
        let event = wait_event(Wait::Mark);
        // SAFETY: initialized in startup(). Preparing before evaluating `done` ensures that no wake-up is missed.
        // After an error, the abort of the transaction cancels the sleep.
        unsafe {
            pg_sys::ConditionVariablePrepareToSleep(renewed);
            if !done() {
                pg_sys::ConditionVariableTimedSleep(renewed, ms as i64, event);
            }
            pg_sys::ConditionVariableCancelSleep();
        }
    }
}
