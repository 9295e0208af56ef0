//! Shared memory: the state of the protocol, which the core lays out, behind LWLocks; the counters of refused calls; and
//! a part for each backend. A server that preloads the library has it from its start. On other servers, from PostgreSQL
//! 17 on, the first session that needs it allocates it.
//!
//! ```text
//! offset in bytes
//!             The Segment, one for the server
//!         0  +------------------------------------------------------------------------------+
//!            | floor, recovered, limit, acknowledged, awaited; 8 bytes each                 |  read for every id
//!        64  +------------------------------------------------------------------------------+
//!            | lock, 16 bytes | MarkState: the state of renewals                            |
//!       256  +------------------------------------------------------------------------------+
//!            | lock, 16 bytes | next, 8 | ids, leases, waits, waited_us; 8 each | closed, 1 |  slot of shard 0
//!       320  +------------------------------------------------------------------------------+
//!            | ... 64 bytes for each of the 8192 shards                                     |
//!   524_544  +------------------------------------------------------------------------------+
//!            | ... the same for each of the 256 shards of JavaScript-safe ids               |
//!   540_928  +------------------------------------------------------------------------------+
//!            | allowed: for each of the 8192 shards, whether the list has it, 1 byte        |
//!   549_120  +------------------------------------------------------------------------------+
//!            | renewed: condition variable, on which backends wait for the mark, 12 bytes   |
//!   549_136  | counted_since, 8 bytes                                                       |
//!   549_144  | refusals: for each of the 19 reasons, a counter of 8 bytes                   |
//!   549_296  | stored_mark, 4 bytes                                                         |
//!   549_312  +------------------------------------------------------------------------------+
//!
//!             The array of Backend, one for each backend that the server allows
//!         0  +------------------------------------------------------------------------------+
//!            | txn_floor, 8 bytes | batch: of, place, left, looked_ms; 8 each               |
//!        40  +------------------------------------------------------------------------------+
//!
//!             Without a preload, both are in one piece of memory, whose header never changes
//!         0  +------------------------------------------------------------------------------+
//!            | layout, 4 bytes | version, 28 | epoch_unix_ms, 8                             |
//!        64  +------------------------------------------------------------------------------+
//!            | the Segment                                                                  |
//! 1_048_576  +------------------------------------------------------------------------------+
//!            | the array of Backend; room for 128 bytes each                                |
//!            +------------------------------------------------------------------------------+
//! ```

use std::cell::{Cell, UnsafeCell};
use std::ffi::{CStr, c_void};
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::{ptr, slice};

use idgen_core::host::Wait;
use idgen_core::mark::MarkState;
use idgen_core::shared::{Backend, Guarded, Locks, Shared, Slotted};
use idgen_core::slot::Slot;
use idgen_ids::Shard;
use idgen_ids::epoch::Timestamptz;
use idgen_ids::id::SHARDS;
use idgen_ids::js::{JS_SHARDS, JsShard};
use idgen_ids::shard_set::ShardSet;
use pgrx::pg_sys;

use super::backend;
use super::compat::{HAS_NAMED_SEGMENTS, name_tranche, named_segment, new_tranche, wait_event};
use super::local::Local;
use super::setting;
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
    /// Whether `idgen.allowed_shards` has each shard, as the postmaster has read it last. A backend reads the
    /// configuration only between two statements, so its own list may be hours old. The postmaster, which must take no
    /// lock, writes these when it reads the configuration, before it tells the backends to read it.
    allowed: [AtomicBool; SHARDS],
    renewed: UnsafeCell<pg_sys::ConditionVariable>,
    /// When the counters began.
    counted_since: AtomicI64,
    /// The number of calls refused for each [`Reason`].
    refusals: [AtomicU64; Reason::ALL.len()],
    /// What has been done with the stored mark since the server started: [`KEPT`], [`REMOVED`] or, initially, nothing.
    stored_mark: AtomicU32,
}

const KEPT: u32 = 1;
const REMOVED: u32 = 2;

/// The size of shared memory in bytes: 528 KiB for the slots, 8 KiB for the list of shards, and less than a KiB for the
/// rest.
const SIZE: usize = size_of::<Segment>();

// The drawing at the top.
const _: () = {
    type Of<S> = Locked<Slot<S>>;
    assert!(offset_of!(Segment, shared) == 0 && offset_of!(Shared<LwLocks>, published) == 0);
    assert!(offset_of!(Shared<LwLocks>, mark) == 64);
    assert!(offset_of!(Shared<LwLocks>, mark) + size_of::<Locked<MarkState>>() == 256);
    assert!(size_of::<Of<Shard>>() == 64 && size_of::<Of<JsShard>>() == 64);
    assert!(offset_of!(Of<Shard>, lock) == 0 && offset_of!(Of<Shard>, value) == 16);
    assert!(offset_of!(Slot<Shard>, next) == 0 && offset_of!(Slot<Shard>, counters) == 8);
    assert!(offset_of!(Slot<Shard>, closed) == 40);
    assert!(SHARDS == 8192 && 256 + 64 * SHARDS == 524_544);
    assert!(JS_SHARDS == 256 && 524_544 + 64 * JS_SHARDS == 540_928);
    assert!(offset_of!(Segment, allowed) == 540_928 && 540_928 + SHARDS == 549_120);
    assert!(offset_of!(Segment, renewed) == 549_120 && size_of::<pg_sys::ConditionVariable>() == 12);
    assert!(offset_of!(Segment, counted_since) == 549_136 && offset_of!(Segment, refusals) == 549_144);
    assert!(Reason::ALL.len() == 19 && offset_of!(Segment, stored_mark) == 549_296 && SIZE == 549_312);
    assert!(
        offset_of!(Backend, txn_floor) == 0 && offset_of!(Backend, batch) == 8 && size_of::<Backend>() == 40
    );
    assert!(offset_of!(Header, layout) == 0 && offset_of!(Header, version) == 4);
    assert!(offset_of!(Header, epoch_unix_ms) == 32 && size_of::<Header>() == 40);
    assert!(offset_of!(Named, header) == 0 && offset_of!(Named, segment) == 64);
    assert!(ROOM == 1_048_576 && size_of::<Named>() <= ROOM);
    assert!(ROOM_EACH == 128 && size_of::<Backend>() <= ROOM_EACH);
};

const TRANCHE: &CStr = c"idgen";

/// The memory that this session may use: see [`at_hand`].
static SEGMENT: AtomicPtr<Segment> = AtomicPtr::new(ptr::null_mut());
/// The states of all backends, even if this session may not use the memory.
static BACKENDS: AtomicPtr<Backend> = AtomicPtr::new(ptr::null_mut());
static PRELOADED: AtomicBool = AtomicBool::new(false);
/// The list of shards as this process has read it. Without a preload there is none: every shard is allowed.
static mut LIST: fn() -> ShardSet = || ShardSet::ALL;
static mut PREVIOUS_REQUEST_HOOK: pg_sys::shmem_request_hook_type = None;
static mut PREVIOUS_STARTUP_HOOK: pg_sys::shmem_startup_hook_type = None;

/// Requests shared memory. Call it while the library is being preloaded. `list` returns the shards that the
/// configuration allows.
pub fn install_hooks(list: fn() -> ShardSet) {
    // SAFETY: the postmaster is single-threaded, and these variables are meant to be chained this way.
    unsafe {
        LIST = list;
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

/// Initializes shared memory that no other process can see yet.
///
/// # Safety
/// The pointers are aligned, and lead to a segment and to a state for each backend.
unsafe fn initialize(segment: *mut Segment, backends: *mut Backend) {
    // SAFETY: the caller's promise.
    unsafe {
        segment.write_bytes(0, 1);
        let tranche = new_tranche(TRANCHE);
        let Segment { shared, renewed, counted_since, .. } = &*segment;
        counted_since.store(backend::timestamp(), Ordering::Relaxed);
        (*segment).allow(&LIST());
        pg_sys::ConditionVariableInit(renewed.get());
        pg_sys::LWLockInitialize(shared.mark.lock.get(), tranche);
        Shard::all().for_each(|shard| pg_sys::LWLockInitialize(shard.slot(shared).lock.get(), tranche));
        JsShard::all().for_each(|shard| pg_sys::LWLockInitialize(shard.slot(shared).lock.get(), tranche));
        for number in 0..backend::most() {
            backends.add(number).write(Backend::idle());
        }
    }
}

/// Attaches this process to initialized shared memory.
///
/// # Safety
/// As [`initialize`], which has been called.
unsafe fn attach(segment: *mut Segment, backends: *mut Backend) {
    // SAFETY: the caller's promise.
    let tranche = unsafe { (*(*segment).shared.mark.lock.get()).tranche };
    name_tranche(tranche.into(), TRANCHE);
    BACKENDS.store(backends, Ordering::Relaxed);
}

/// Runs in the postmaster, at start and again after every crash of a backend. Nothing else runs at that time. Backends
/// inherit the pointer at fork; on platforms where they cannot, they run this too and find what the postmaster has
/// created.
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
        if !found || !backends_found {
            initialize(segment, backends);
        }
        attach(segment, backends);
        SEGMENT.store(segment, Ordering::Relaxed);
        PRELOADED.store(true, Ordering::Relaxed);
    }
}

/// Shared memory, if this session may use it: it was preloaded, or [`join`] has succeeded.
#[inline]
pub fn at_hand() -> Option<&'static Segment> {
    let segment = SEGMENT.load(Ordering::Relaxed);
    // SAFETY: if it is not null, the memory is prepared, and stays until the process ends.
    unsafe { segment.as_ref() }
}

/// Whether the server has preloaded the library.
pub fn preloaded() -> bool {
    PRELOADED.load(Ordering::Relaxed)
}

/// The state that this backend shares with the others, even if the session may not use the memory.
pub fn own_state() -> Option<&'static Backend> {
    let backends = BACKENDS.load(Ordering::Relaxed);
    let number = backend::number().filter(|number| !backends.is_null() && *number < backend::most())?;
    // SAFETY: they are prepared, and there is one for each backend.
    Some(unsafe { &*backends.add(number) })
}

/// The number of the layout of [`Named`]. Raise it with every change of the content, or of its meaning to the protocol,
/// that an older library in another session could not handle. `tests/lint` compares the definitions of the content with
/// this number.
pub const LAYOUT: u32 = 1;

/// The memory of a server that does not preload the library. Files may be replaced while the server runs, so two
/// versions of the library can meet here. Therefore the name and size of the memory, and the place and form of its
/// header, must never change.
#[repr(C)]
struct Named {
    header: Header,
    segment: Segment,
}

/// The values on which all users of the memory must agree, and the version of the library that has allocated it.
#[derive(Clone, Copy)]
#[repr(C)]
struct Header {
    layout: u32,
    version: [u8; 28],
    /// The epoch of all ids, in milliseconds since 1970.
    epoch_unix_ms: i64,
}

const NAME: &CStr = c"idgen";
/// Room for [`Named`], in bytes.
const ROOM: usize = 1 << 20;
/// Room for the state of each backend.
const ROOM_EACH: usize = 128;

/// The header of this library.
static OWN_HEADER: Local<Cell<Header>> =
    Local::new(Cell::new(Header { layout: 0, version: [0; 28], epoch_unix_ms: 0 }));

impl Header {
    fn own(layout: u32, epoch_unix_ms: i64) -> Header {
        let mut version = [0; 28];
        let text = env!("CARGO_PKG_VERSION").as_bytes();
        let length = text.len().min(version.len());
        version[..length].copy_from_slice(&text[..length]);
        Header { layout, version, epoch_unix_ms }
    }

    fn version(&self) -> String {
        String::from_utf8_lossy(&self.version).trim_end_matches('\0').to_owned()
    }
}

/// Splits memory of the registry into the segment and the states of the backends.
///
/// # Safety
/// `memory` has the size that [`made`] asks for.
unsafe fn parts(memory: *mut c_void) -> (*mut Segment, *mut Backend) {
    // SAFETY: the caller's promise. The registry aligns memory to pages.
    unsafe { (&raw mut (*memory.cast::<Named>()).segment, memory.byte_add(ROOM).cast()) }
}

/// Runs in the session that has allocated the memory, while others wait for it. The memory need not be zero.
unsafe fn initialize_named(memory: *mut c_void) {
    // SAFETY: the registry calls this with memory of the size that made() asks for.
    unsafe {
        let (segment, backends) = parts(memory);
        initialize(segment, backends);
        (&raw mut (*memory.cast::<Named>()).header).write(OWN_HEADER.get());
    }
}

/// Checks that this server has shared memory for idgen, or that a session can allocate it.
///
/// # Errors
/// 55000 if neither is the case.
pub fn available() -> Result<(), Error> {
    match HAS_NAMED_SEGMENTS {
        _ if at_hand().is_some() => Ok(()),
        None => Err(Error::NotPreloaded),
        Some(since) if setting::release() < since => Err(Error::OldRelease),
        Some(_) => Ok(()),
    }
}

/// Returns the shared memory, allocating it if necessary, and whether this call has done so. It does not check whether
/// this session may use the memory, which has this layout, and in which all ids count from `epoch_unix_ms`. Raises
/// PostgreSQL's errors, after which the next call tries again.
///
/// # Errors
/// 55000 if the server cannot allocate it, or if a library with another layout or epoch has allocated it.
pub fn made(layout: u32, epoch_unix_ms: i64) -> Result<(&'static Segment, bool), Error> {
    if let Some(segment) = at_hand() {
        return Ok((segment, false));
    }
    available()?;
    let own = Header::own(layout, epoch_unix_ms);
    OWN_HEADER.set(own);
    // SAFETY: initialize_named() keeps to the size, which holds all parts.
    unsafe {
        let size = ROOM + ROOM_EACH * backend::most();
        let (memory, made) = named_segment(NAME, size, initialize_named);
        let header = (*memory.cast::<Named>()).header;
        if (header.layout, header.epoch_unix_ms) != (own.layout, own.epoch_unix_ms) {
            return Err(Error::OtherLibrary { version: header.version(), own: own.version() });
        }
        let (segment, backends) = parts(memory);
        attach(segment, backends);
        Ok((&*segment, made))
    }
}

/// Lets this session use the memory that [`made`] has returned.
pub fn join(segment: &'static Segment) {
    SEGMENT.store(ptr::from_ref(segment).cast_mut(), Ordering::Relaxed);
}

/// Keeps this session from using the memory until it joins again. Has no effect on a server that preloads the library.
pub fn leave() {
    if !preloaded() {
        SEGMENT.store(ptr::null_mut(), Ordering::Relaxed);
    }
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
    /// Whether the list of the server has a shard.
    #[inline]
    pub fn allows(&self, shard: Shard) -> bool {
        self.allowed[shard.index()].load(Ordering::Relaxed)
    }

    /// The list of the server.
    pub fn list(&self) -> ShardSet {
        Shard::all().filter(|shard| self.allows(*shard)).fold(ShardSet::NONE, ShardSet::with)
    }

    /// Writes the list of the server. Only one process at a time does so: the postmaster.
    pub fn allow(&self, list: &ShardSet) {
        for (shard, allowed) in Shard::all().zip(&self.allowed) {
            allowed.store(list.contains(shard), Ordering::Relaxed);
        }
    }

    /// When the counters began: at the start of the server, or the last reset.
    pub fn counted_since(&self) -> Timestamptz {
        self.counted_since.load(Ordering::Relaxed)
    }

    /// Counts a refused call.
    pub fn count_refusal(&self, reason: Reason) {
        self.refusals[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The number of calls refused for a reason.
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

    /// Reserves the stored mark for this incarnation of the server, which is about to write it.
    ///
    /// # Errors
    /// 55000 if it has been removed.
    pub fn keep_mark(&self) -> Result<(), Error> {
        match self.first_use_of_mark(KEPT) {
            REMOVED => Err(Error::MarkRemoved),
            _ => Ok(()),
        }
    }

    /// Reserves the stored mark for its removal. Until the server is restarted, it can no longer be written.
    ///
    /// # Errors
    /// 55000 if it has been written since the server started.
    pub fn give_up_mark(&self) -> Result<(), Error> {
        match self.first_use_of_mark(REMOVED) {
            KEPT => Err(Error::MarkInUse),
            _ => Ok(()),
        }
    }

    /// Whether the removal of the stored mark has begun since the server started.
    pub fn mark_removed(&self) -> bool {
        self.stored_mark.load(Ordering::Relaxed) == REMOVED
    }

    /// Sets the use of the stored mark unless it has been set before, and returns what it is now.
    fn first_use_of_mark(&self, to: u32) -> u32 {
        match self.stored_mark.compare_exchange(0, to, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => to,
            Err(before) => before,
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
