//! Shared memory: the slots of all shards, each with its own LWLock; the state of the high-water mark, with another
//! LWLock; and of each backend, the start of its transaction and its batch.

use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU64, Ordering};
use std::{ptr, slice};

use idgen_core::batch::Batch;
use idgen_core::epoch::Timestamptz;
use idgen_core::id::SHARDS;
use idgen_core::js::{JS_SHARDS, JsShard};
use idgen_core::mark::Mark;
use idgen_core::position::Grid;
use idgen_core::server::Wait;
use idgen_core::shared::{Published, Start};
use idgen_core::slot::Slot;
use idgen_core::{Shard, Tick};
use pgrx::pg_sys;

use super::backend;
use super::compat::{name_tranche, new_tranche, wait_event};
use crate::error::{Error, Reason};

/// A slot and its lock on one cache line. A visit writes only this line, and shards never contend with each other.
#[repr(C, align(64))]
pub struct LockedSlot<S> {
    lock: UnsafeCell<pg_sys::LWLock>,
    slot: UnsafeCell<Slot<S>>,
}

const _: () = assert!(size_of::<LockedSlot<Shard>>() == 64 && size_of::<LockedSlot<JsShard>>() == 64);

impl<S: Grid> LockedSlot<S> {
    /// Runs `f` on the slot under its lock. `f` must not sleep, flush, allocate or raise an error.
    #[inline]
    pub fn change<T>(&self, f: impl FnOnce(&mut Slot<S>) -> T) -> T {
        let LockedSlot { lock, slot } = self;
        // SAFETY: the exclusive lock makes this the only reference to the slot.
        unsafe { locked(lock.get(), pg_sys::LWLockMode::LW_EXCLUSIVE, || f(&mut *slot.get())) }
    }

    /// A copy of the slot.
    pub fn copy(&self) -> Slot<S> {
        let LockedSlot { lock, slot } = self;
        // SAFETY: the shared lock keeps writers out.
        unsafe { locked(lock.get(), pg_sys::LWLockMode::LW_SHARED, || *slot.get()) }
    }
}

/// The state of the high-water mark. The first cache line is read for every id and written at a renewal; the rest
/// is accessed only at a renewal.
#[repr(C, align(64))]
struct SharedMark {
    published: Published,
    /// When the counters began. It is here because there is room on the line, and it is rarely written.
    counted_since: AtomicI64,
    /// The time since which a mark has been awaited, if one is, in milliseconds since boot. It is here for the same
    /// reason.
    awaited_since_ms: AtomicU64,
    guarded: Guarded,
}

#[repr(C, align(64))]
struct Guarded {
    lock: UnsafeCell<pg_sys::LWLock>,
    mark: UnsafeCell<Mark>,
    renewed: UnsafeCell<pg_sys::ConditionVariable>,
}

/// The number of calls refused for each [`Reason`].
#[repr(C, align(64))]
struct Refusals([AtomicU64; Reason::ALL.len()]);

/// Everything that idgen keeps in shared memory, except for what belongs to a backend. Initially all zero.
#[repr(C)]
pub struct Shared {
    mark: SharedMark,
    /// A slot for each shard.
    pub slots: [LockedSlot<Shard>; SHARDS],
    /// A slot for each shard of JavaScript-safe ids.
    pub js_slots: [LockedSlot<JsShard>; JS_SHARDS],
    refusals: Refusals,
}

/// The size of shared memory in bytes: 528 KiB for the slots, 256 bytes for the mark, and 192 for refused calls.
const SIZE: usize = size_of::<Shared>();

const TRANCHE: &CStr = c"idgen";

static STARTS: AtomicPtr<Start> = AtomicPtr::new(ptr::null_mut());
static BATCHES: AtomicPtr<Batch> = AtomicPtr::new(ptr::null_mut());
static SHARED: AtomicPtr<Shared> = AtomicPtr::new(ptr::null_mut());
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
        pg_sys::RequestAddinShmemSpace(backend::most() * size_of::<Start>());
        pg_sys::RequestAddinShmemSpace(backend::most() * size_of::<Batch>());
    }
}

/// Runs in the postmaster, at start and again after every crash of a backend. Nothing else runs at that time, so
/// the slots need no lock yet. Backends inherit the pointer at fork; on platforms where they cannot, they run this
/// too and find what the postmaster has created.
#[pgrx::pg_guard]
unsafe extern "C-unwind" fn startup() {
    // SAFETY: called by PostgreSQL as its shmem_startup_hook. The memory is as large as requested and aligned to
    // PG_CACHE_LINE_SIZE, which is at least the 64 bytes that a LockedSlot requires.
    unsafe {
        if let Some(previous) = PREVIOUS_STARTUP_HOOK {
            previous();
        }
        let (mut found, mut starts_found, mut batches_found) = (false, false, false);
        let shared: *mut Shared = pg_sys::ShmemInitStruct(c"idgen".as_ptr(), SIZE, &mut found).cast();
        let size = backend::most() * size_of::<Start>();
        let starts: *mut Start =
            pg_sys::ShmemInitStruct(c"idgen transactions".as_ptr(), size, &mut starts_found).cast();
        let size = backend::most() * size_of::<Batch>();
        let batches: *mut Batch =
            pg_sys::ShmemInitStruct(c"idgen batches".as_ptr(), size, &mut batches_found).cast();
        if !found {
            shared.write_bytes(0, 1);
            let tranche = new_tranche(TRANCHE);
            (*shared).mark.counted_since.store(backend::timestamp(), Ordering::Relaxed);
            let guarded = &(*shared).mark.guarded;
            pg_sys::LWLockInitialize(guarded.lock.get(), tranche);
            pg_sys::ConditionVariableInit(guarded.renewed.get());
            for locked in &(*shared).slots {
                pg_sys::LWLockInitialize(locked.lock.get(), tranche);
            }
            for locked in &(*shared).js_slots {
                pg_sys::LWLockInitialize(locked.lock.get(), tranche);
            }
        }
        if !starts_found {
            for number in 0..backend::most() {
                starts.add(number).write(Start::none());
            }
        }
        if !batches_found {
            batches.write_bytes(0, backend::most());
        }
        name_tranche((*(*shared).mark.guarded.lock.get()).tranche.into(), TRANCHE);
        STARTS.store(starts, Ordering::Relaxed);
        BATCHES.store(batches, Ordering::Relaxed);
        SHARED.store(shared, Ordering::Relaxed);
    }
}

/// The content of shared memory.
///
/// # Errors
/// 55000 if the library was not preloaded.
pub fn shared() -> Result<&'static Shared, Error> {
    let shared = SHARED.load(Ordering::Relaxed);
    // SAFETY: if it is not null, startup() has initialized it, and shared memory outlives the process.
    unsafe { shared.as_ref() }.ok_or(Error::NotPreloaded)
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

impl Shared {
    /// Runs `f` on the state of the high-water mark under its lock, and publishes it. `f` must not sleep, flush,
    /// allocate or raise an error. It runs on a copy under the shared lock first, and if it leaves that as it was, as
    /// most readers of the horizon do, nothing else is done.
    pub fn with_mark<T>(&self, f: impl Fn(&mut Mark) -> T) -> T {
        let SharedMark { published, guarded, .. } = &self.mark;
        // SAFETY: the shared lock keeps writers out, and the exclusive lock makes this the only reference to the state.
        unsafe {
            let before = locked(guarded.lock.get(), pg_sys::LWLockMode::LW_SHARED, || *guarded.mark.get());
            let mut copy = before;
            let result = f(&mut copy);
            if copy == before {
                return result;
            }
            locked(guarded.lock.get(), pg_sys::LWLockMode::LW_EXCLUSIVE, || {
                let mark = &mut *guarded.mark.get();
                let result = f(mark);
                published.publish(mark);
                result
            })
        }
    }

    /// The published part of the mark.
    #[inline]
    pub fn published(&self) -> &Published {
        &self.mark.published
    }

    /// When the counters began: at the start of the server, or the last reset.
    pub fn counted_since(&self) -> Timestamptz {
        self.mark.counted_since.load(Ordering::Relaxed)
    }

    /// Records that a mark is being written now, in milliseconds since boot, and that none was awaited.
    pub fn await_from(&self, boot_ms: u64) {
        self.mark.awaited_since_ms.store(boot_ms, Ordering::Relaxed);
    }

    /// The time recorded by [`Shared::await_from`].
    pub fn awaited_since(&self) -> u64 {
        self.mark.awaited_since_ms.load(Ordering::Relaxed)
    }

    /// Counts a refused call.
    pub fn count_refusal(&self, reason: Reason) {
        self.refusals.0[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The number of calls refused for that reason.
    pub fn refused(&self, reason: Reason) -> u64 {
        self.refusals.0[reason as usize].load(Ordering::Relaxed)
    }

    /// Resets the counters of all slots, and those of refused calls.
    pub fn reset_counters(&self) {
        self.mark.counted_since.store(backend::timestamp(), Ordering::Relaxed);
        for slot in &self.slots {
            slot.change(Slot::reset_counters);
        }
        for slot in &self.js_slots {
            slot.change(Slot::reset_counters);
        }
        for refused in &self.refusals.0 {
            refused.store(0, Ordering::Relaxed);
        }
    }

    /// The starts of the open transactions of all backends.
    fn starts(&self) -> &'static [Start] {
        // SAFETY: startup() has initialized them, and shared memory outlives the process.
        unsafe { slice::from_raw_parts(STARTS.load(Ordering::Relaxed), backend::most()) }
    }

    /// Publishes that the open transaction mints ids of `tick` or later.
    pub fn publish_start(&self, tick: Tick) {
        if let Some(start) = backend::transaction_owner().and_then(|owner| self.starts().get(owner)) {
            start.publish(tick);
        }
    }

    /// Withdraws what this backend's transaction, including its parallel workers, has published. A parallel worker
    /// runs small transactions of its own when it starts; their end says nothing about the transaction of its
    /// leader.
    pub fn clear_start(&self) {
        if let Some(start) = backend::number().and_then(|owner| self.starts().get(owner)) {
            start.clear();
        }
    }

    /// Lower bound of the ticks of the ids of all open transactions.
    pub fn oldest_start(&self) -> Tick {
        Start::oldest(self.starts())
    }

    /// The batches of all backends.
    pub fn batches(&self) -> &'static [Batch] {
        // SAFETY: as in starts().
        unsafe { slice::from_raw_parts(BATCHES.load(Ordering::Relaxed), backend::most()) }
    }

    /// The batch of this backend.
    pub fn own_batch(&self) -> Option<&'static Batch> {
        self.batches().get(backend::number()?)
    }

    /// Wakes the backends that wait for the mark to be renewed.
    pub fn wake_waiting(&self) {
        // SAFETY: initialized in startup().
        unsafe { pg_sys::ConditionVariableBroadcast(self.mark.guarded.renewed.get()) }
    }

    /// Sleeps until `done` is true, until [`Shared::wake_waiting`], or for `ms` milliseconds. Raises the error of a
    /// cancel, of statement_timeout or of a shutdown.
    pub fn wait_for_mark(&self, ms: u64, done: impl FnOnce() -> bool) {
        let renewed = self.mark.guarded.renewed.get();
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
