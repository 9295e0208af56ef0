//! A host in virtual time: a single process, in which nothing moves except what a test moves, and in which a sleep
//! sets the clocks forward by its length. [`Scripted::after`] defines beforehand what happens in the meantime.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use idgen_core::error::Error;
use idgen_core::host::{Host, Point, Wait};
use idgen_core::mark::{MarkState, Progress, Written};
use idgen_core::mint::{self, Session};
use idgen_core::position::LayoutShard;
use idgen_core::settings::Settings;
use idgen_core::shared::{Backend, Guarded, Shared, SingleThread, Slotted};
use idgen_core::slot::Slot;
use idgen_core::{check, handover, horizon};
use idgen_ids::{Shard, Tick};

use crate::{epoch_at, js_shard, shard};

/// The initial time of the clock.
pub const NOW: Tick = 1_000_000;
/// The settings if a test changes none: ids may not run ahead of the clock.
pub const SETTINGS: Settings = Settings {
    epoch: epoch_at(1_735_689_600_000),
    max_ahead_ms: 0,
    max_wait_ms: 80,
    max_lease: 64,
    reserve_ahead_ms: 1000,
    max_clock_jump_ms: None,
};
/// How many backends there are.
const BACKENDS: usize = 4;
/// The number of requests and sleeps after which a call counts as endless.
const TOO_OFTEN: usize = 10_000;

/// The answer to a call. Its error is `None` if the clock is before the epoch.
pub type Answer<T> = Result<T, Option<Error>>;

pub fn refused<T>(error: Error) -> Answer<T> {
    Err(Some(error))
}

pub fn not_renewed<T>(waited_ms: u64) -> Answer<T> {
    refused(Error::MarkNotRenewed { waited_ms })
}

/// A step of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    At(Point),
    Write(Tick),
    Flush,
    FlushSoon,
    Publish(Tick),
    Wake,
}

/// A mark in the WAL.
struct Record {
    progress: Progress,
    /// When it was written, in microseconds since boot.
    at_us: u64,
    /// Whether standbys were configured then. A standby that receives it reports so, only once.
    for_standbys: bool,
}

/// An event that happens at a certain time, or right after a certain step.
pub type Event = Box<dyn FnOnce(&Scripted)>;

/// The memory of the server. The settings are those of each backend.
struct Memory {
    settings: Settings,
    shared: Shared<SingleThread>,
    backends: [Backend; BACKENDS],
    sessions: [Session; BACKENDS],
}

impl Default for Memory {
    fn default() -> Memory {
        Memory {
            settings: SETTINGS,
            // Up to the first shard that has only one layout.
            shared: Shared::new(257, 256),
            backends: [const { Backend::idle() }; BACKENDS],
            sessions: [const { Session::fresh() }; BACKENDS],
        }
    }
}

/// The host. The test sets its settings and the events.
#[derive(Default)]
pub struct Scripted {
    memory: Memory,
    /// Microseconds since boot.
    us: Cell<u64>,
    /// The system clock, in microseconds since the epoch.
    clock_us: Cell<i64>,
    /// Whether synchronous standbys are configured.
    pub standbys: Cell<bool>,
    /// How long they take to acknowledge a record; `None` if they never do.
    pub acknowledge_us: Cell<Option<u64>>,
    /// How many records, from the first on, they have without having said so.
    pub unheard: Cell<usize>,
    /// How long a flush takes.
    pub flush_us: Cell<u64>,
    /// The time after which another process does a requested flush; `None` if nobody does.
    pub flush_soon_us: Cell<Option<u64>>,
    /// Whether the system clock stands still.
    pub stands: Cell<bool>,
    pub recovery: Cell<bool>,
    /// A shard for which the configuration does not let the server mint.
    pub taken: Cell<Option<Shard>>,
    pub prepared: Cell<usize>,
    /// An event right before a call reads what backends have published.
    pub before_backends: RefCell<Option<Event>>,
    /// An event right before a call visits a slot.
    pub before_slot: RefCell<Option<Event>>,
    /// The events right after each of the next readings of the clock.
    pub after_clock: RefCell<VecDeque<Event>>,
    /// How often somebody has asked for the time that cannot be set.
    pub monotonic_asked: Cell<usize>,
    /// Whether somebody has asked the backend to stop.
    cancelled: Cell<bool>,
    /// Whether a lock of the shared state is held.
    locked: Cell<bool>,
    /// The backend that runs.
    current: Cell<usize>,
    /// The mark with which the server has begun.
    stored: Option<Progress>,
    wal: RefCell<Vec<Record>>,
    /// How many of the records are on disk.
    flushed: Cell<usize>,
    steps: RefCell<Vec<Step>>,
    sleeps: RefCell<Vec<(u64, Wait)>>,
    events: RefCell<Vec<(u64, Event)>>,
    woken: Cell<bool>,
    asked: Cell<usize>,
}

impl Scripted {
    /// A server that begins with a stored mark, without standbys.
    pub fn new(stored: Tick) -> Scripted {
        Scripted::starting((stored > 0).then(|| Progress::new(stored, SETTINGS.epoch)))
    }

    /// A server that begins with what is stored, without standbys.
    pub fn starting(stored: Option<Progress>) -> Scripted {
        Scripted {
            us: Cell::new(5_000_000),
            clock_us: Cell::new(NOW as i64 * 1000),
            acknowledge_us: Cell::new(Some(0)),
            flush_soon_us: Cell::new(Some(200_000)),
            stored,
            ..Scripted::default()
        }
    }

    /// The settings of all backends.
    pub fn settings(&self) -> &Settings {
        &self.memory.settings
    }

    /// The same server with other settings.
    pub fn with(mut self, set: impl FnOnce(&mut Settings)) -> Scripted {
        set(&mut self.memory.settings);
        self
    }

    /// The same server with synchronous standbys, which take so long to acknowledge a record.
    pub fn with_standbys(self, acknowledge_us: Option<u64>) -> Scripted {
        self.standbys.set(true);
        self.acknowledge_us.set(acknowledge_us);
        self
    }

    /// A server that has renewed the mark once, and whose clock has advanced by a millisecond since.
    pub fn running() -> Scripted {
        let server = Scripted::new(0);
        server.id(3, 9).unwrap();
        server.end_transaction(3);
        server.pass_us(1000);
        server.steps();
        server
    }

    /// The server after a crash of this one: it has the data on disk, and its clock shows `now`.
    pub fn crashed(&self, now: Tick) -> Scripted {
        let next = Scripted::starting(self.on_disk()).with(|settings| *settings = *self.settings());
        next.set_clock(now);
        next
    }

    /// Sets the system clock to the beginning of a tick.
    pub fn set_clock(&self, tick: Tick) {
        self.clock_us.set(tick as i64 * 1000);
    }

    /// Sets the system clock by so many milliseconds.
    pub fn step_clock(&self, ms: i64) {
        self.clock_us.set(self.clock_us.get() + ms * 1000);
    }

    /// Schedules an event so many microseconds from now.
    pub fn after(&self, us: u64, event: impl FnOnce(&Scripted) + 'static) {
        self.events.borrow_mut().push((self.us.get() + us, Box::new(event)));
    }

    /// Lets time pass, with the events due in it.
    pub fn pass_us(&self, us: u64) {
        self.pass(us, || false);
    }

    /// Lets time pass until `done`.
    fn pass(&self, us: u64, done: impl Fn() -> bool) {
        assert!(!self.locked.get(), "time passes under a lock");
        let end = self.us.get() + us;
        while !done() {
            let mut events = self.events.borrow_mut();
            let next = events.iter().map(|(at, _)| *at).min().filter(|at| *at <= end);
            let passed = next.unwrap_or(end).saturating_sub(self.us.get());
            self.us.set(self.us.get() + passed);
            if !self.stands.get() {
                self.clock_us.set(self.clock_us.get() + passed as i64);
            }
            let Some(next) = next else { break };
            let place = events.iter().position(|(at, _)| *at == next).unwrap();
            let (_, event) = events.remove(place);
            drop(events);
            event(self);
        }
    }

    /// What the system clock shows.
    pub fn tick(&self) -> Tick {
        self.now().unwrap()
    }

    /// Microseconds since boot.
    pub fn us(&self) -> u64 {
        self.us.get()
    }

    /// Runs `f` as a backend.
    fn run_as<T>(&self, backend: usize, f: impl FnOnce(&Session) -> T) -> T {
        let before = self.current.replace(backend);
        self.asked.set(0);
        let result = f(&self.memory.sessions[backend]);
        self.current.set(before);
        result
    }

    /// Asks the backend to stop in so many microseconds, which ends the call.
    pub fn cancel<T>(&self, us: u64, call: impl FnOnce() -> T) {
        self.after(us, |server| server.cancelled.set(true));
        assert!(catch_unwind(AssertUnwindSafe(call)).is_err(), "not canceled");
    }

    /// An id for a backend, as the extension gives it.
    pub fn id(&self, backend: usize, of: i32) -> Answer<i64> {
        self.id_at_once(backend, of).map_or_else(
            || self.run_as(backend, |session| mint::next_id(self, self.settings(), session, shard(of))),
            Ok,
        )
    }

    /// An id that needs neither a wait nor a renewal, if there is one.
    pub fn id_at_once(&self, backend: usize, of: i32) -> Option<i64> {
        self.run_as(backend, |session| mint::at_once(self, session, shard(of), || Some(*self.settings())))
    }

    /// A batch for a backend.
    pub fn ids(&self, backend: usize, of: i32, count: u64) -> Answer<Vec<i64>> {
        let of = shard(of);
        let runs =
            self.run_as(backend, |session| mint::next_ids(self, self.settings(), session, of, count))?;
        let ids =
            runs.into_iter().flat_map(|mut run| std::iter::from_fn(move || Some(of.id(run.take_first()?))));
        // A run that has no end would fill the memory.
        Ok(ids.take(count as usize + 1).collect())
    }

    /// A JavaScript-safe id for a backend.
    pub fn js_id(&self, backend: usize, of: i32) -> Answer<i64> {
        self.run_as(backend, |session| mint::next_id_js(self, self.settings(), session, js_shard(of)))
    }

    /// Advances a shard past an id.
    pub fn advance(&self, backend: usize, of: i32, past: i64) -> Answer<i64> {
        self.run_as(backend, |session| handover::advance(self, self.settings(), session, shard(of), past))
    }

    /// Closes a shard.
    pub fn close(&self, backend: usize, of: i32) -> Answer<i64> {
        self.run_as(backend, |session| handover::close(self, self.settings(), session, shard(of)))
    }

    /// Reopens a shard.
    pub fn reopen(&self, of: i32) -> bool {
        handover::reopen(self, shard(of))
    }

    /// Raises the mark so that ids begin at a tick.
    pub fn raise_mark(&self, first: Tick) -> Answer<Tick> {
        self.asked.set(0);
        handover::raise_mark(self, self.settings(), first)
    }

    /// The horizon.
    pub fn horizon(&self) -> Answer<i64> {
        horizon::safe_horizon(self, self.settings())
    }

    /// Whether ids can be minted, as far as the ids of all shards are known.
    pub fn check(&self, furthest: Tick) -> Answer<Tick> {
        self.asked.set(0);
        check::check(self, self.settings(), furthest)
    }

    /// The state of a backend.
    pub fn session(&self, backend: usize) -> &Session {
        &self.memory.sessions[backend]
    }

    /// Ends the transaction of a backend.
    pub fn end_transaction(&self, backend: usize) {
        self.memory.backends[backend].transaction_ended();
        self.memory.sessions[backend].transaction_ended();
    }

    /// A copy of the mark.
    pub fn mark(&self) -> MarkState {
        self.memory.shared.mark.copy()
    }

    /// The counters of a shard: ids, leases, waits, and the time waited in microseconds.
    pub fn counters(&self, of: impl Slotted) -> [u64; 4] {
        let counters = of.slot(&self.memory.shared).copy().counters;
        [counters.ids, counters.leases, counters.waits, counters.waited_us]
    }

    /// Gives another backend the task of renewing the mark.
    pub fn claim(&self) {
        assert!(self.with_mark(|mark| mark.claim(self.boot_ms())));
    }

    /// Whether some backend has the task of renewing the mark.
    pub fn claimed(&self) -> bool {
        !self.mark().claim(self.boot_ms())
    }

    /// Writes a mark as another backend that renews it.
    pub fn write(&self, tick: Tick) -> Written {
        let lsn = self.write_mark(Progress::new(tick, self.settings().epoch));
        let written = Written { tick, lsn, at_us: self.us() };
        self.with_mark(|mark| mark.wrote(written, self.standbys.get(), self.boot_ms(), false));
        written
    }

    /// The marks written so far.
    pub fn written(&self) -> Vec<Tick> {
        self.wal.borrow().iter().map(|record| record.progress.mark()).collect()
    }

    /// The greatest progress among the first records and what was stored before.
    fn progress(&self, records: usize) -> Option<Progress> {
        let wal = self.wal.borrow();
        let written = wal.iter().take(records).map(|record| record.progress);
        written.chain(self.stored).max_by_key(|progress| progress.to_keep())
    }

    /// The mark that is on disk.
    pub fn on_disk(&self) -> Option<Progress> {
        self.progress(self.flushed.get())
    }

    /// The steps of renewals since the last call of this method.
    pub fn steps(&self) -> Vec<Step> {
        self.steps.take()
    }

    /// How long calls have slept, in microseconds, and for what, since the last call of this method.
    pub fn sleeps(&self) -> Vec<(u64, Wait)> {
        self.sleeps.take()
    }

    fn note(&self, step: Step) {
        self.steps.borrow_mut().push(step);
    }

    fn slept(&self, us: u64, wait: Wait) {
        let mut sleeps = self.sleeps.borrow_mut();
        sleeps.push((us, wait));
        assert!(sleeps.len() != TOO_OFTEN, "sleeps without end");
    }

    /// Counts requests, to detect an endless call.
    fn asked(&self) {
        self.asked.set(self.asked.get() + 1);
        assert!(self.asked.get() != TOO_OFTEN, "asked without end");
    }

    /// Runs `f` under a lock of the shared state.
    fn locked<T>(&self, f: impl FnOnce(&Shared<SingleThread>) -> T) -> T {
        self.asked();
        assert!(!self.locked.replace(true), "a lock under another one");
        let result = f(&self.memory.shared);
        self.locked.set(false);
        result
    }
}

impl Host for Scripted {
    type Error = Option<Error>;
    type Locks = SingleThread;

    fn shared(&self) -> &Shared<SingleThread> {
        &self.memory.shared
    }

    fn backends(&self) -> &[Backend] {
        if let Some(event) = self.before_backends.take() {
            event(self);
        }
        &self.memory.backends
    }

    fn backend(&self) -> Option<usize> {
        Some(self.current.get())
    }

    fn allows(&self, shard: Shard) -> bool {
        assert!(self.locked.get(), "asked without the lock");
        self.taken.get() != Some(shard)
    }

    fn now(&self) -> Answer<Tick> {
        self.asked();
        let read = self.clock_us.get();
        let event = self.after_clock.borrow_mut().pop_front();
        if let Some(event) = event {
            event(self);
        }
        u64::try_from(read).map(|us| us / 1000).map_err(|_| None)
    }

    fn boot_ms(&self) -> u64 {
        self.us.get() / 1000
    }

    fn monotonic_us(&self) -> u64 {
        self.monotonic_asked.set(self.monotonic_asked.get() + 1);
        self.us.get()
    }

    fn us_until(&self, tick: Tick) -> Answer<u64> {
        Ok((tick as i64 * 1000 - self.clock_us.get()).max(0).unsigned_abs())
    }

    fn in_recovery(&self) -> bool {
        self.recovery.get()
    }

    fn load_mark(&self) -> Option<Progress> {
        self.progress(usize::MAX)
    }

    fn write_mark(&self, progress: Progress) -> u64 {
        let mut wal = self.wal.borrow_mut();
        wal.push(Record { progress, at_us: self.us.get(), for_standbys: self.standbys.get() });
        self.note(Step::Write(progress.mark()));
        wal.len() as u64
    }

    fn flush(&self, lsn: u64) {
        self.pass_us(self.flush_us.get());
        self.flushed.set(self.flushed.get().max(lsn as usize));
        self.note(Step::Flush);
    }

    fn flush_soon(&self, lsn: u64) {
        if let Some(us) = self.flush_soon_us.get() {
            self.after(us, move |server| server.flushed.set(server.flushed.get().max(lsn as usize)));
        }
        self.note(Step::FlushSoon);
    }

    fn flushed(&self, lsn: u64) -> bool {
        self.flushed.get() >= lsn as usize
    }

    fn standbys_must_acknowledge(&self) -> bool {
        self.standbys.get()
    }

    fn acknowledged(&self, lsn: u64) -> bool {
        let is_due = |record: &Record| {
            let due = self.acknowledge_us.get().map(|us| record.at_us + us);
            record.for_standbys && due.is_some_and(|due| due <= self.us.get())
        };
        let from = self.unheard.get().max(lsn as usize - 1);
        self.wal.borrow().iter().skip(from).any(is_due)
    }

    fn prepared_transactions(&self) -> usize {
        self.prepared.get()
    }

    fn sleep(&self, us: u64, wait: Wait) {
        assert!(us > 0, "a sleep of nothing");
        self.slept(us, wait);
        self.pass_us(us);
        self.check_for_interrupts();
    }

    fn wait_for_mark(&self, ms: u64, done: impl FnOnce() -> bool) {
        if !done() {
            self.woken.set(false);
            let start = self.us.get();
            self.pass(ms * 1000, || self.woken.get());
            self.slept(self.us.get() - start, Wait::Mark);
        }
        self.check_for_interrupts();
    }

    fn wake_waiting(&self) {
        self.woken.set(true);
        self.note(Step::Wake);
    }

    fn check_for_interrupts(&self) {
        if self.cancelled.take() {
            resume_unwind(Box::new("canceled"));
        }
    }

    fn point(&self, point: Point) {
        self.note(Step::At(point));
    }

    fn with_mark<T>(&self, f: impl Fn(&mut MarkState) -> T) -> T {
        let before = self.mark().limit(false);
        let result = self.locked(|shared| shared.with_mark(f));
        let limit = self.mark().limit(false);
        assert!(limit <= self.on_disk().map_or(0, Progress::mark), "a limit that is not on disk");
        if limit != before {
            self.note(Step::Publish(limit));
        }
        result
    }

    fn with_slot<S: Slotted, T>(&self, shard: S, f: impl FnOnce(&mut Slot<S>) -> T) -> T {
        if let Some(event) = self.before_slot.take() {
            event(self);
        }
        self.locked(|shared| shard.slot(shared).change(f))
    }
}
