//! A server in virtual time: a single process, in which nothing moves except what a test moves, and in which a
//! sleep sets the clocks forward by its length. [`Scripted::after`] defines beforehand what happens in the
//! meantime.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::panic::resume_unwind;

use idgen_core::batch::Batch;
use idgen_core::js::JsShard;
use idgen_core::mark::Mark;
use idgen_core::mint::{self, Error, Session};
use idgen_core::position::Grid;
use idgen_core::server::{Point, Server, Slots, Wait};
use idgen_core::shared::{Published, Start};
use idgen_core::slot::Slot;
use idgen_core::{Shard, Tick, check, horizon};

use crate::shard;

/// The initial time of the clock.
pub const NOW: Tick = 1_000_000;
/// The one shard that the server may not mint for.
pub const FORBIDDEN: i32 = 8000;
/// How many backends there are.
const BACKENDS: usize = 4;
/// The number of requests and sleeps after which a call counts as endless.
const TOO_OFTEN: usize = 10_000;

/// Why there is no id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    Mint(Error),
    /// The clock is before the epoch.
    Clock,
    NotAllowed,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused::Mint(error)
    }
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
    mark: Tick,
    /// When it was written, in microseconds since boot.
    at_us: u64,
    /// Whether standbys were configured then. A standby that receives it reports so, only once.
    for_standbys: bool,
}

/// What happens while somebody sleeps.
pub type Event = Box<dyn FnOnce(&Scripted)>;

/// The server. The test sets its settings and the events.
pub struct Scripted {
    /// Microseconds since boot.
    us: Cell<u64>,
    /// The system clock, in microseconds since the epoch.
    clock_us: Cell<i64>,
    pub max_ahead: Cell<u64>,
    pub max_wait: Cell<u64>,
    pub max_lease: Cell<u64>,
    pub reserve_ahead: Cell<u64>,
    pub max_jump: Cell<Option<u64>>,
    /// Whether the server may mint at all.
    pub allowed: Cell<bool>,
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
    pub prepared: Cell<usize>,
    /// An event right before a reader reads the starts of transactions.
    pub before_starts: RefCell<Option<Event>>,
    /// What happens right before a call visits a slot.
    pub before_slot: RefCell<Option<Event>>,
    /// What happens right after somebody has read the clock, each time.
    pub after_clock: RefCell<VecDeque<Event>>,
    /// How often somebody has asked for the time that cannot be set.
    pub monotonic_asked: Cell<usize>,
    /// Whether somebody has asked the backend to stop.
    pub cancelled: Cell<bool>,
    mark: RefCell<Mark>,
    published: Published,
    slots: RefCell<BTreeMap<Shard, Slot<Shard>>>,
    js_slots: RefCell<BTreeMap<JsShard, Slot<JsShard>>>,
    sessions: [Session; BACKENDS],
    starts: [Start; BACKENDS],
    batches: [Batch; BACKENDS],
    /// The backend that runs.
    current: Cell<usize>,
    /// The mark that the server has begun with.
    stored: Tick,
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
    /// A server that begins with a stored mark, without standbys; ids may not run ahead of its clock.
    pub fn new(stored: Tick) -> Scripted {
        Scripted {
            us: Cell::new(5_000_000),
            clock_us: Cell::new(NOW as i64 * 1000),
            max_ahead: Cell::new(0),
            max_wait: Cell::new(80),
            max_lease: Cell::new(64),
            reserve_ahead: Cell::new(1000),
            max_jump: Cell::new(None),
            allowed: Cell::new(true),
            standbys: Cell::new(false),
            acknowledge_us: Cell::new(Some(0)),
            unheard: Cell::new(0),
            flush_us: Cell::new(0),
            flush_soon_us: Cell::new(Some(200_000)),
            stands: Cell::new(false),
            recovery: Cell::new(false),
            prepared: Cell::new(0),
            before_starts: RefCell::default(),
            before_slot: RefCell::default(),
            after_clock: RefCell::default(),
            monotonic_asked: Cell::new(0),
            cancelled: Cell::new(false),
            mark: RefCell::default(),
            published: Published::default(),
            slots: RefCell::default(),
            js_slots: RefCell::default(),
            sessions: [const { Session::fresh() }; BACKENDS],
            starts: [const { Start::none() }; BACKENDS],
            batches: [const { Batch::none() }; BACKENDS],
            current: Cell::new(0),
            stored,
            wal: RefCell::default(),
            flushed: Cell::new(0),
            steps: RefCell::default(),
            sleeps: RefCell::default(),
            events: RefCell::default(),
            woken: Cell::new(false),
            asked: Cell::new(0),
        }
    }

    /// The server after a crash of this one: it has the data on disk, and its clock shows `now`.
    pub fn crashed(&self, now: Tick) -> Scripted {
        let next = Scripted::new(self.durable());
        next.max_ahead.set(self.max_ahead.get());
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

    /// Sees to it that something happens so many microseconds from now.
    pub fn after(&self, us: u64, event: impl FnOnce(&Scripted) + 'static) {
        self.events.borrow_mut().push((self.us.get() + us, Box::new(event)));
    }

    /// Lets time pass, with the events due in it.
    pub fn pass_us(&self, us: u64) {
        self.pass(us, || false);
    }

    /// Lets time pass until `done`.
    fn pass(&self, us: u64, done: impl Fn() -> bool) {
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

    /// Counts requests, to detect an endless call.
    fn asked(&self) {
        self.asked.set(self.asked.get() + 1);
        assert!(self.asked.get() != TOO_OFTEN, "asked without end");
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
        let result = f(&self.sessions[backend]);
        self.current.set(before);
        result
    }

    /// An id for a backend, as the extension gives it.
    pub fn id(&self, backend: usize, shard: Shard) -> Result<i64, Refused> {
        self.run_as(backend, |session| {
            mint::at_once(self, session, shard).map_or_else(|| mint::next_id(self, session, shard), Ok)
        })
    }

    /// An id that needs neither a wait nor a renewal, if there is one.
    pub fn id_at_once(&self, backend: usize, shard: Shard) -> Option<i64> {
        self.run_as(backend, |session| mint::at_once(self, session, shard))
    }

    /// A batch for a backend.
    pub fn ids(&self, backend: usize, shard: Shard, count: u64) -> Result<Vec<i64>, Refused> {
        let runs = self.run_as(backend, |session| mint::next_ids(self, session, shard, count))?;
        let ids = runs
            .into_iter()
            .flat_map(|mut run| std::iter::from_fn(move || Some(shard.id(run.take_first()?))));
        // A run that has no end would fill the memory.
        Ok(ids.take(count as usize + 1).collect())
    }

    /// A JavaScript-safe id for a backend.
    pub fn js_id(&self, backend: usize, shard: JsShard) -> Result<i64, Refused> {
        self.run_as(backend, |session| mint::next_id_js(self, session, shard))
    }

    /// Advances a shard past an id.
    pub fn advance(&self, backend: usize, shard: Shard, past: i64) -> Result<i64, Refused> {
        self.run_as(backend, |session| mint::advance(self, session, shard, past))
    }

    /// The horizon.
    pub fn horizon(&self) -> Result<i64, Refused> {
        horizon::safe_horizon(self)
    }

    /// Whether ids can be minted, as far as the ids of all shards are known.
    pub fn check(&self, furthest: Tick) -> Result<Tick, Refused> {
        self.asked.set(0);
        check::check(self, furthest)
    }

    /// The state of a backend.
    pub fn session(&self, backend: usize) -> &Session {
        &self.sessions[backend]
    }

    /// Ends the transaction of a backend.
    pub fn end_transaction(&self, backend: usize) {
        self.starts[backend].clear();
        self.sessions[backend].transaction_ended();
    }

    /// Whether some backend has the task of renewing the mark.
    pub fn claimed(&self) -> bool {
        let mut copy = *self.mark.borrow();
        !copy.claim(self.boot_ms())
    }

    /// The marks written so far.
    pub fn written(&self) -> Vec<Tick> {
        self.wal.borrow().iter().map(|record| record.mark).collect()
    }

    /// The mark that is on disk.
    pub fn durable(&self) -> Tick {
        let on_disk = self.wal.borrow().iter().take(self.flushed.get()).map(|record| record.mark).max();
        self.stored.max(on_disk.unwrap_or(0))
    }

    /// The steps of renewals so far, which are forgotten then.
    pub fn steps(&self) -> Vec<Step> {
        self.steps.take()
    }

    /// What calls have slept so far, in microseconds and for what; it is forgotten then.
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

    /// A cancel, as it reaches a backend that sleeps.
    fn end_if_cancelled(&self) {
        if self.cancelled.take() {
            resume_unwind(Box::new("cancelled"));
        }
    }
}

impl Server for Scripted {
    type Error = Refused;

    fn now(&self) -> Result<Tick, Refused> {
        self.asked();
        let read = self.clock_us.get();
        let event = self.after_clock.borrow_mut().pop_front();
        if let Some(event) = event {
            event(self);
        }
        u64::try_from(read).map(|us| us / 1000).map_err(|_| Refused::Clock)
    }

    fn boot_ms(&self) -> u64 {
        self.us.get() / 1000
    }

    fn monotonic_us(&self) -> u64 {
        self.monotonic_asked.set(self.monotonic_asked.get() + 1);
        self.us.get()
    }

    fn us_until(&self, tick: Tick) -> Result<u64, Refused> {
        Ok((tick as i64 * 1000 - self.clock_us.get()).max(0).unsigned_abs())
    }

    fn allows(&self, asked: Shard) -> bool {
        self.check_allowed(asked).is_ok()
    }

    fn check_allowed(&self, asked: Shard) -> Result<(), Refused> {
        self.check_any_allowed()?;
        if asked == shard(FORBIDDEN) { Err(Refused::NotAllowed) } else { Ok(()) }
    }

    fn check_any_allowed(&self) -> Result<(), Refused> {
        if self.allowed.get() { Ok(()) } else { Err(Refused::NotAllowed) }
    }

    fn max_ahead_ms(&self) -> u64 {
        self.max_ahead.get()
    }

    fn max_wait_ms(&self) -> u64 {
        self.max_wait.get()
    }

    fn max_lease(&self) -> u64 {
        self.max_lease.get()
    }

    fn reserve_ahead_ms(&self) -> u64 {
        self.reserve_ahead.get()
    }

    fn max_clock_jump_ms(&self) -> Option<u64> {
        self.max_jump.get()
    }

    fn with_mark<T>(&self, f: impl Fn(&mut Mark) -> T) -> T {
        self.asked();
        let mut mark = self.mark.borrow_mut();
        let before = mark.limit(false);
        let result = f(&mut mark);
        assert!(mark.limit(false) <= self.durable(), "a limit that is not on disk");
        if mark.limit(false) != before {
            self.note(Step::Publish(mark.limit(false)));
        }
        self.published.publish(&mark);
        result
    }

    fn floor(&self) -> Tick {
        self.published.floor()
    }

    fn run_floor(&self) -> Tick {
        self.published.run_floor()
    }

    fn limit(&self) -> Tick {
        self.published.limit(|| self.standbys.get())
    }

    fn awaited(&self) -> u64 {
        self.published.awaited()
    }

    fn publish_start(&self, tick: Tick) {
        self.starts[self.current.get()].publish(tick);
    }

    fn oldest_start(&self) -> Tick {
        if let Some(event) = self.before_starts.take() {
            event(self);
        }
        Start::oldest(&self.starts)
    }

    fn batches(&self) -> &[Batch] {
        &self.batches
    }

    fn own_batch(&self) -> Option<&Batch> {
        self.batches.get(self.current.get())
    }

    fn in_recovery(&self) -> bool {
        self.recovery.get()
    }

    fn load_mark(&self) -> Result<Tick, Self::Error> {
        Ok(self.written().into_iter().fold(self.stored, Tick::max))
    }

    fn write_mark(&self, mark: Tick) -> u64 {
        let mut wal = self.wal.borrow_mut();
        wal.push(Record { mark, at_us: self.us.get(), for_standbys: self.standbys.get() });
        self.note(Step::Write(mark));
        wal.len() as u64
    }

    fn flush(&self, lsn: u64) {
        assert!(self.mark.try_borrow_mut().is_ok(), "a flush under the lock of the mark");
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
        self.end_if_cancelled();
    }

    fn wait_for_mark(&self, ms: u64, done: impl FnOnce() -> bool) {
        if !done() {
            self.woken.set(false);
            let start = self.us.get();
            self.pass(ms * 1000, || self.woken.get());
            self.slept(self.us.get() - start, Wait::Mark);
        }
        self.end_if_cancelled();
    }

    fn wake_waiting(&self) {
        self.woken.set(true);
        self.note(Step::Wake);
    }

    fn check_for_interrupts(&self) {
        self.end_if_cancelled();
    }

    fn point(&self, point: Point) {
        self.note(Step::At(point));
    }
}

impl Slots<Shard> for Scripted {
    fn with_slot<T>(&self, shard: Shard, f: impl FnOnce(&mut Slot<Shard>) -> T) -> T {
        self.asked();
        if let Some(event) = self.before_slot.take() {
            event(self);
        }
        f(self.slots.borrow_mut().entry(shard).or_default())
    }

    fn slot(&self, shard: Shard) -> Slot<Shard> {
        self.slots.borrow().get(&shard).copied().unwrap_or_default()
    }
}

impl Slots<JsShard> for Scripted {
    fn with_slot<T>(&self, shard: JsShard, f: impl FnOnce(&mut Slot<JsShard>) -> T) -> T {
        self.asked();
        f(self.js_slots.borrow_mut().entry(shard).or_default())
    }

    fn slot(&self, shard: JsShard) -> Slot<JsShard> {
        self.js_slots.borrow().get(&shard).copied().unwrap_or_default()
    }
}
