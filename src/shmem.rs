//! Shared memory: the slots of all shards, each behind its own LWLock, and the state of the
//! high-water mark behind another. With `pg` and `compat` the only place with `unsafe`.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU64, Ordering, fence};
use std::{ptr, slice};

use pgrx::pg_sys;

use crate::compat::{Wait, wait_event};
use crate::epoch::Timestamptz;
use crate::error::Error;
use crate::js::JS_SHARDS;
use crate::layout::{SHARDS, Tick};
use crate::pg;
use crate::reservation::Reservation;
use crate::slot::{Grid, Slot};

/// A slot and its lock on one cache line: a visit writes this line and no other, and shards never
/// contend with each other.
#[repr(C, align(64))]
struct LockedSlot {
    lock: UnsafeCell<pg_sys::LWLock>,
    slot: UnsafeCell<Slot>,
}

const _: () = assert!(size_of::<LockedSlot>() == 64);

impl LockedSlot {
    /// Runs `f` on the slot under its lock. `f` must not sleep, flush, allocate or raise.
    #[inline]
    fn change<T>(&self, f: impl FnOnce(&mut Slot) -> T) -> T {
        let LockedSlot { lock, slot } = self;
        // SAFETY: the exclusive lock makes this the only reference to the slot.
        unsafe { locked(lock.get(), pg_sys::LWLockMode::LW_EXCLUSIVE, || f(&mut *slot.get())) }
    }
}

/// The state of the high-water mark. The first line is read at every id and written at a renewal;
/// the rest is touched at a renewal only.
#[repr(C, align(64))]
struct Mark {
    floor: AtomicU64,
    run_floor: AtomicU64,
    limit: AtomicU64,
    acknowledged: AtomicU64,
    /// When the counters of the slots began. It is here because there is room, and is seldom written.
    counted_since: AtomicI64,
    guarded: Guarded,
}

#[repr(C, align(64))]
struct Guarded {
    lock: UnsafeCell<pg_sys::LWLock>,
    reservation: UnsafeCell<Reservation>,
    renewed: UnsafeCell<pg_sys::ConditionVariable>,
}

/// All that idgen keeps in shared memory.
#[repr(C)]
pub struct Shared {
    mark: Mark,
    slots: [LockedSlot; SHARDS + JS_SHARDS],
}

/// Shared memory taken, in bytes: 528 KiB for the slots, and the mark.
pub const SIZE: usize = size_of::<Shared>();

/// A backend whose transaction has minted no id.
const NOT_STARTED: Tick = Tick::MAX;

static STARTS: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
static SHARED: AtomicPtr<Shared> = AtomicPtr::new(ptr::null_mut());
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
        pg_sys::RequestAddinShmemSpace(pg::most_backends() * size_of::<AtomicU64>());
    }
}

/// Runs in the postmaster, at start and again after every crash of a backend; nothing else runs
/// then, so the slots need no lock yet. Backends inherit the pointer at fork; where they cannot, they
/// run this too, and find what the postmaster has made.
#[pgrx::pg_guard]
unsafe extern "C-unwind" fn startup() {
    // SAFETY: called by PostgreSQL as its shmem_startup_hook. The memory is as large as asked for
    // and aligned to PG_CACHE_LINE_SIZE, which is at least the 64 bytes a LockedSlot wants.
    unsafe {
        if let Some(previous) = PREVIOUS_STARTUP_HOOK {
            previous();
        }
        let (mut found, mut starts_found) = (false, false);
        let shared: *mut Shared = pg_sys::ShmemInitStruct(c"idgen".as_ptr(), SIZE, &mut found).cast();
        let size = pg::most_backends() * size_of::<AtomicU64>();
        let starts: *mut AtomicU64 =
            pg_sys::ShmemInitStruct(c"idgen transactions".as_ptr(), size, &mut starts_found).cast();
        if !found {
            shared.write_bytes(0, 1);
            let tranche = pg_sys::LWLockNewTrancheId();
            (*shared).mark.counted_since.store(pg::timestamp(), Ordering::Relaxed);
            let guarded = &(*shared).mark.guarded;
            pg_sys::LWLockInitialize(guarded.lock.get(), tranche);
            pg_sys::ConditionVariableInit(guarded.renewed.get());
            for locked in &(*shared).slots {
                pg_sys::LWLockInitialize(locked.lock.get(), tranche);
            }
        }
        if !starts_found {
            for backend in 0..pg::most_backends() {
                starts.add(backend).write(AtomicU64::new(NOT_STARTED));
            }
        }
        // Each process keeps the names of tranches for itself.
        let tranche = (*(*shared).mark.guarded.lock.get()).tranche;
        pg_sys::LWLockRegisterTranche(tranche.into(), c"idgen".as_ptr());
        STARTS.store(starts, Ordering::Relaxed);
        SHARED.store(shared, Ordering::Relaxed);
    }
}

/// What is in shared memory.
///
/// # Errors
/// 55000 where the library was not preloaded.
pub fn shared() -> Result<&'static Shared, Error> {
    let shared = SHARED.load(Ordering::Relaxed);
    // SAFETY: not null means that startup() has filled it in, and shared memory outlives the process.
    unsafe { shared.as_ref() }.ok_or(Error::NotPreloaded)
}

unsafe extern "C-unwind" {
    // As pg_sys has them, without the sigsetjmp that pgrx puts around calls of C: half the cost of the
    // pair. It would turn a PostgreSQL error into a panic, and these raise none but for a backend that
    // holds 200 LWLocks; this one holds none here.
    fn LWLockAcquire(lock: *mut pg_sys::LWLock, mode: pg_sys::LWLockMode::Type) -> bool;
    fn LWLockRelease(lock: *mut pg_sys::LWLock);
}

/// Runs `f` while holding an LWLock, which also holds interrupts off. Should `f` panic, the abort of
/// the transaction releases the lock.
///
/// # Safety
/// `lock` is an initialised LWLock.
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
    #[inline]
    fn locked_slot<G: Grid>(&self, shard: G) -> &LockedSlot {
        &self.slots[G::FIRST_SLOT + shard.into().index()]
    }

    /// Runs `f` on a shard's slot under its lock. `f` must not sleep, flush, allocate or raise.
    #[inline]
    pub fn with_slot<G: Grid, T>(&self, shard: G, f: impl FnOnce(&mut Slot) -> T) -> T {
        self.locked_slot(shard).change(f)
    }

    /// A copy of a shard's slot.
    pub fn slot<G: Grid>(&self, shard: G) -> Slot {
        let LockedSlot { lock, slot } = self.locked_slot(shard);
        // SAFETY: the shared lock keeps writers out.
        unsafe { locked(lock.get(), pg_sys::LWLockMode::LW_SHARED, || *slot.get()) }
    }

    /// Runs `f` on the state of the high-water mark under its lock, and publishes its floor and
    /// limit. `f` must not sleep, flush, allocate or raise.
    pub fn with_reservation<T>(&self, f: impl FnOnce(&mut Reservation) -> T) -> T {
        let Mark { floor, run_floor, limit, acknowledged, guarded, .. } = &self.mark;
        // SAFETY: the exclusive lock makes this the only reference to the state.
        unsafe {
            locked(guarded.lock.get(), pg_sys::LWLockMode::LW_EXCLUSIVE, || {
                let reservation = &mut *guarded.reservation.get();
                let result = f(reservation);
                // The floor first: whoever sees the first limit of this run must see the floor too.
                floor.store(reservation.floor(), Ordering::Relaxed);
                run_floor.store(reservation.run_floor(), Ordering::Relaxed);
                acknowledged.store(reservation.limit(true), Ordering::Relaxed);
                limit.store(reservation.limit(false), Ordering::Release);
                result
            })
        }
    }

    /// No tick before this one may be issued.
    #[inline]
    pub fn floor(&self) -> Tick {
        self.mark.floor.load(Ordering::Relaxed)
    }

    /// No tick before this one may be issued, of ids that nobody follows.
    pub fn run_floor(&self) -> Tick {
        self.mark.run_floor.load(Ordering::Relaxed)
    }

    /// The exclusive end of the ticks that may be issued. Read it before [`Shared::floor`]. A limit
    /// read a while ago is a lower one, and so still true.
    ///
    /// Where standbys have not acknowledged it, this looks whether they have to: synchronous replication may
    /// have begun since it was published. That line of PostgreSQL's is written only while it is on, when
    /// limits are acknowledged, and so stays in the cache of every processor.
    #[inline]
    pub fn limit(&self) -> Tick {
        let limit = self.mark.limit.load(Ordering::Acquire);
        let acknowledged = self.mark.acknowledged.load(Ordering::Relaxed);
        if limit > acknowledged && pg::standbys_must_acknowledge() { acknowledged } else { limit }
    }

    /// When the counters of the slots began: at the start of the server, or the last reset.
    pub fn counted_since(&self) -> Timestamptz {
        self.mark.counted_since.load(Ordering::Relaxed)
    }

    /// Begins the counters of all slots anew.
    pub fn reset_counters(&self) {
        self.mark.counted_since.store(pg::timestamp(), Ordering::Relaxed);
        for slot in &self.slots {
            slot.change(Slot::reset_counters);
        }
    }

    /// From which tick on the ids of each backend's open transaction lie.
    fn starts(&self) -> &'static [AtomicU64] {
        // SAFETY: startup() has filled them in, and shared memory outlives the process.
        unsafe { slice::from_raw_parts(STARTS.load(Ordering::Relaxed), pg::most_backends()) }
    }

    /// Publishes that the open transaction mints ids of `tick` or later. The floor that bounds them is to be
    /// read afterwards: of this and [`Shared::oldest_start`] after a raise of the floor, at least one sees
    /// what the other has written.
    pub fn publish_start(&self, tick: Tick) {
        if let Some(start) = pg::transaction_owner().and_then(|owner| self.starts().get(owner)) {
            start.fetch_min(tick, Ordering::SeqCst);
            fence(Ordering::SeqCst);
        }
    }

    /// Takes back what this backend's transaction, parallel workers included, has published. A worker runs
    /// small transactions of its own when it starts, which say nothing of its leader's.
    pub fn clear_start(&self) {
        if let Some(start) = pg::backend().and_then(|owner| self.starts().get(owner))
            && start.load(Ordering::Relaxed) != NOT_STARTED
        {
            start.store(NOT_STARTED, Ordering::Release);
        }
    }

    /// The tick from which on the ids of all open transactions lie.
    pub fn oldest_start(&self) -> Tick {
        fence(Ordering::SeqCst);
        let starts = self.starts().iter().map(|start| start.load(Ordering::SeqCst));
        starts.min().unwrap_or(NOT_STARTED)
    }

    /// Wakes those that wait for the mark to be renewed.
    pub fn wake_waiting(&self) {
        // SAFETY: initialised in startup().
        unsafe { pg_sys::ConditionVariableBroadcast(self.mark.guarded.renewed.get()) }
    }

    /// Sleeps until `done`, a [`Shared::wake_waiting`], or `ms` milliseconds. Raises what a cancel,
    /// statement_timeout or the server's end asks for.
    pub fn wait_for_mark(&self, ms: u64, done: impl FnOnce() -> bool) {
        let renewed = self.mark.guarded.renewed.get();
        let event = wait_event(Wait::Mark);
        // SAFETY: initialised in startup(). To prepare before looking at `done` is what makes sure
        // that no wake-up is missed; after an error the abort of the transaction cancels the sleep.
        unsafe {
            pg_sys::ConditionVariablePrepareToSleep(renewed);
            if !done() {
                pg_sys::ConditionVariableTimedSleep(renewed, ms as i64, event);
            }
            pg_sys::ConditionVariableCancelSleep();
        }
    }
}
