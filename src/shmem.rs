//! The slots of all shards in shared memory, each behind its own LWLock. With `pg` the only place
//! with `unsafe`.

use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use pgrx::pg_sys;

use crate::error::Error;
use crate::layout::{SHARDS, Shard};
use crate::slot::Slot;

/// A slot and its lock on one cache line: a call touches this line and no other, and shards never
/// contend with each other.
#[repr(C, align(64))]
struct LockedSlot {
    lock: UnsafeCell<pg_sys::LWLock>,
    slot: UnsafeCell<Slot>,
}

const _: () = assert!(size_of::<LockedSlot>() == 64);

/// The slots of all shards.
pub struct Slots([LockedSlot; SHARDS]);

/// Shared memory taken, in bytes: 512 KiB.
pub const SIZE: usize = size_of::<Slots>();

static SLOTS: AtomicPtr<Slots> = AtomicPtr::new(ptr::null_mut());
static mut PREVIOUS_REQUEST_HOOK: pg_sys::shmem_request_hook_type = None;
static mut PREVIOUS_STARTUP_HOOK: pg_sys::shmem_startup_hook_type = None;

/// Asks for shared memory; to be called while the library is being preloaded.
pub fn install_hooks() {
    // SAFETY: the postmaster is one thread, and these variables are there to be chained this way.
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
    }
}

/// Runs in the postmaster, at start and again after every crash of a backend; nothing else runs
/// then, so the slots need no lock yet. Backends inherit the pointer at fork.
#[pgrx::pg_guard]
unsafe extern "C-unwind" fn startup() {
    // SAFETY: called by PostgreSQL as its shmem_startup_hook. The memory is as large as asked for
    // and aligned to PG_CACHE_LINE_SIZE, which is at least the 64 bytes a LockedSlot wants.
    unsafe {
        if let Some(previous) = PREVIOUS_STARTUP_HOOK {
            previous();
        }
        let mut found = false;
        let slots: *mut Slots = pg_sys::ShmemInitStruct(c"idgen".as_ptr(), SIZE, &mut found).cast();
        let tranche = pg_sys::LWLockNewTrancheId();
        pg_sys::LWLockRegisterTranche(tranche, c"idgen".as_ptr());
        for index in 0..SHARDS {
            let locked = (&raw mut (*slots).0[index]).cast::<LockedSlot>();
            pg_sys::LWLockInitialize((&raw mut (*locked).lock).cast(), tranche);
            (&raw mut (*locked).slot).cast::<Slot>().write(Slot::default());
        }
        SLOTS.store(slots, Ordering::Relaxed);
    }
}

/// The slots.
///
/// # Errors
/// 55000 where the library was not preloaded.
pub fn slots() -> Result<&'static Slots, Error> {
    let slots = SLOTS.load(Ordering::Relaxed);
    // SAFETY: not null means that startup() has filled it in, and shared memory outlives the process.
    unsafe { slots.as_ref() }.ok_or(Error::NotPreloaded)
}

impl Slots {
    /// Runs `f` on a shard's slot under its lock. `f` must not sleep, flush, allocate or raise.
    pub fn with<T>(&self, shard: Shard, f: impl FnOnce(&mut Slot) -> T) -> T {
        let locked = &self.0[shard.index()];
        // SAFETY: the exclusive lock makes this the only reference to the slot. LWLockAcquire holds
        // interrupts off until the release; should `f` panic, the abort of the transaction releases.
        unsafe {
            pg_sys::LWLockAcquire(locked.lock.get(), pg_sys::LWLockMode::LW_EXCLUSIVE);
            let result = f(&mut *locked.slot.get());
            pg_sys::LWLockRelease(locked.lock.get());
            result
        }
    }

    /// A copy of a shard's slot.
    pub fn read(&self, shard: Shard) -> Slot {
        let locked = &self.0[shard.index()];
        // SAFETY: the shared lock keeps writers out.
        unsafe {
            pg_sys::LWLockAcquire(locked.lock.get(), pg_sys::LWLockMode::LW_SHARED);
            let slot = *locked.slot.get();
            pg_sys::LWLockRelease(locked.lock.get());
            slot
        }
    }
}
