//! A backend, and the server that the program finds it in. Wherever another process could come in there is a step.

use std::cell::{Cell, RefCell};
use std::panic::resume_unwind;
use std::rc::Rc;

use corosensei::Yielder;
use fastrand::Rng;
use idgen_core::batch::Batch;
use idgen_core::js::JsShard;
use idgen_core::mark::Mark;
use idgen_core::mint::{self, Kept, Session};
use idgen_core::server::{Point, Server, Slots, Wait};
use idgen_core::shared::Start;
use idgen_core::slot::Slot;
use idgen_core::{Shard, Tick};

use crate::host::{Configuration, Host, Record, Shared, State};
use crate::judge::Call;
use crate::plan::{Broken, MS, Place, Time, US};
use crate::world::World;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    Cancel,
    Terminate,
}

/// The payload with which a cancel unwinds.
pub struct Interrupted;

/// The state of a backend, from its start to its end.
pub struct Backend {
    pub world: Rc<World>,
    pub host: usize,
    pub index: usize,
    pub shared: Rc<Shared>,
    pub session: Session,
    pub configuration: RefCell<Rc<Configuration>>,
    pub rng: RefCell<Rng>,
    /// How many steps are left before another process comes in.
    left: Cell<u64>,
    /// SIGKILL has come: nothing that it still does has an effect.
    pub dead: Cell<bool>,
    /// It is being unwound.
    pub unwinding: Cell<bool>,
    pub interrupt: Cell<Option<Interrupt>>,
    /// It sleeps, and may be woken.
    pub sleeping: Cell<bool>,
    waiting: Cell<bool>,
    woken: Cell<bool>,
    /// Until when it is stopped by SIGSTOP.
    pub stopped: Cell<Time>,
    /// Which of the agenda's entries is its own.
    pub ticket: Cell<u64>,
    /// What it is doing.
    pub call: Cell<Option<Call>>,
    /// The greatest and the last that the clock has shown to the call.
    pub read: Cell<Tick>,
    pub last_read: Cell<Tick>,
    /// The least id of its open transaction.
    pub least: Cell<Option<i64>>,
    /// What the judge knows of the session.
    pub given: RefCell<promises::Session>,
    /// The beginning and the end of the runs that it took last, if it had to wait for them.
    pub queued: Cell<Option<(u64, u64)>>,
    /// How many calls have given it ids.
    pub served: Cell<u64>,
    /// Whether commits waited for standbys when it read its last limit.
    waits: Cell<bool>,
    /// For deliberate defects.
    pub remembered: Cell<bool>,
    reading: Cell<bool>,
    early_floor: Cell<Option<(Tick, Tick)>>,
    late_start: Cell<Option<Tick>>,
    still: Cell<Option<(Tick, Time)>>,
}

impl Backend {
    pub fn new(world: &Rc<World>, host: &Host, index: usize, seed: u64) -> Rc<Backend> {
        Rc::new(Backend {
            world: world.clone(),
            host: host.index,
            index,
            shared: host.shared(),
            session: Session::new(Kept::NOTHING),
            configuration: RefCell::new(host.file.borrow().clone()),
            rng: RefCell::new(Rng::with_seed(seed)),
            left: Cell::new(1),
            dead: Cell::default(),
            unwinding: Cell::default(),
            interrupt: Cell::default(),
            sleeping: Cell::default(),
            waiting: Cell::default(),
            woken: Cell::default(),
            stopped: Cell::default(),
            ticket: Cell::default(),
            call: Cell::default(),
            read: Cell::default(),
            last_read: Cell::default(),
            least: Cell::default(),
            given: RefCell::default(),
            queued: Cell::default(),
            served: Cell::default(),
            waits: Cell::default(),
            remembered: Cell::default(),
            reading: Cell::default(),
            early_floor: Cell::default(),
            late_start: Cell::default(),
            still: Cell::default(),
        })
    }

    pub fn host(&self) -> &Host {
        &self.world.hosts[self.host]
    }

    fn start(&self) -> &Start {
        &self.shared.starts[self.index]
    }

    /// The backend's transaction has ended, and others have been told.
    pub fn forget_start(&self) {
        self.start().clear();
        self.shared.batches[self.index].leave();
        self.session.transaction_ended();
        self.late_start.set(None);
    }

    /// A transaction whose start is to be published late.
    fn start_late(&self) {
        if let Some(tick) = self.late_start.take() {
            self.start().publish(tick);
        }
    }

    /// Whether commits wait for standbys.
    pub fn standbys(&self) -> bool {
        let configured = || !self.configuration.borrow().names.listed().is_empty();
        self.shared.standbys.get().unwrap_or_else(configured)
    }

    /// Ends the call, as the server sees it.
    pub fn call_ended(&self) {
        self.start_late();
        self.early_floor.set(None);
    }

    pub fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.rng.borrow_mut())
    }
}

/// The server, to the backend that runs.
pub struct Process<'a> {
    pub backend: &'a Backend,
    pub yielder: &'a Yielder<(), Time>,
}

impl Process<'_> {
    fn broken(&self, broken: Broken) -> bool {
        self.backend.world.plan.broken == Some(broken)
    }

    /// A step ends here. Another process may intervene, and events that wait for this point happen.
    #[inline]
    pub fn step(&self, place: Place) {
        let Backend { world, left, unwinding, .. } = self.backend;
        if unwinding.get() {
            return;
        }
        world.now.set(world.now.get() + world.plan.step);
        let more = left.get().wrapping_sub(1);
        left.set(more);
        if more == 0 || world.traps.get() {
            self.stop_at(place);
        }
    }

    #[cold]
    fn stop_at(&self, place: Place) {
        let Backend { world, left, .. } = self.backend;
        if world.meet(self.backend, place) {
            self.suspend(world.now.get());
        } else if left.get() == 0 || left.get() > u64::MAX / 2 {
            let (stretch, lulls) = (world.plan.stretch, world.plan.lulls);
            let (next, rest) = self.backend.draw(|rng| {
                let rest = match rng.u16(..1000) {
                    drawn if drawn < lulls => rng.u64(..4 * MS),
                    990.. => rng.u64(..200 * US),
                    _ => 0,
                };
                (rng.u64(1..=2 * stretch - 1), rest)
            });
            left.set(next);
            world.trace(|| format!("{} at {place:?}", self.name()));
            self.suspend(world.now.get() + rest);
        }
    }

    pub fn name(&self) -> String {
        format!("host {} backend {}", self.backend.host, self.backend.index)
    }

    /// Others run until then, or until somebody wakes this one.
    pub fn suspend(&self, until: Time) {
        self.yielder.suspend(until);
    }

    /// Sleeps, and may be woken.
    pub fn doze(&self, time: Time) {
        let backend = self.backend;
        if backend.interrupt.get().is_none() {
            backend.sleeping.set(true);
            self.suspend(backend.world.now.get() + time);
            backend.sleeping.set(false);
        }
    }

    fn interrupts(&self) {
        let backend = self.backend;
        if backend.interrupt.get().is_some() && !backend.unwinding.get() {
            backend.unwinding.set(true);
            resume_unwind(Box::new(Interrupted));
        }
    }

    /// Puts a record into the WAL and waits until it is on disk.
    pub fn log(&self, record: Option<Record>) -> u64 {
        let lsn = self.backend.host().wal.borrow_mut().insert(record);
        self.flush(lsn);
        lsn
    }

    /// Asks for the horizon by `call`.
    pub fn reading<T>(&self, call: impl FnOnce() -> T) -> T {
        self.backend.reading.set(true);
        let result = call();
        self.backend.reading.set(false);
        result
    }
}

impl Server for Process<'_> {
    type Error = mint::Error;

    #[inline]
    fn now(&self) -> Result<Tick, mint::Error> {
        self.step(Place::Clock);
        let backend = self.backend;
        let now = backend.world.now.get();
        let tick = backend.host().clocks.tick(now);
        if self.broken(Broken::LeaseOutlives) {
            match backend.still.get() {
                Some((tick, until)) if now < until => return Ok(tick),
                _ => backend.still.set(Some((tick, now + 2 * MS))),
            }
        }
        if tick > backend.read.get() {
            backend.read.set(tick);
        }
        backend.last_read.set(tick);
        Ok(tick)
    }

    fn boot_ms(&self) -> u64 {
        self.step(Place::Boot);
        self.backend.host().clocks.boot_ms(self.backend.world.now.get())
    }

    fn monotonic_us(&self) -> u64 {
        self.backend.host().clocks.monotonic_us(self.backend.world.now.get())
    }

    fn us_until(&self, tick: Tick) -> Result<u64, mint::Error> {
        self.step(Place::Clock);
        let now = self.backend.host().clocks.real_ns(self.backend.world.now.get()) / 1000;
        Ok((tick * 1000).cast_signed().saturating_sub(now).max(0).cast_unsigned())
    }

    fn allows(&self, _shard: Shard) -> bool {
        true
    }

    fn check_allowed(&self, _shard: Shard) -> Result<(), mint::Error> {
        Ok(())
    }

    fn check_any_allowed(&self) -> Result<(), mint::Error> {
        Ok(())
    }

    fn max_ahead_ms(&self) -> u64 {
        self.backend.configuration.borrow().settings.max_ahead
    }

    fn max_wait_ms(&self) -> u64 {
        self.backend.configuration.borrow().settings.max_wait
    }

    fn max_lease(&self) -> u64 {
        self.backend.configuration.borrow().settings.max_lease
    }

    fn reserve_ahead_ms(&self) -> u64 {
        self.backend.configuration.borrow().settings.reserve_ahead
    }

    fn max_clock_jump_ms(&self) -> Option<u64> {
        self.backend.configuration.borrow().settings.max_clock_jump
    }

    fn with_mark<T>(&self, f: impl Fn(&mut Mark) -> T) -> T {
        self.step(Place::Mark);
        let backend = self.backend;
        if backend.dead.get() {
            return f(&mut Mark::default());
        }
        let before = backend.shared.mark.get();
        let mut mark = before;
        let result = f(&mut mark);
        if self.broken(Broken::ClaimGivenUp) && mark == before {
            mark.release();
        }
        if !(self.broken(Broken::FloorNotRaised) && backend.reading.get()) {
            backend.shared.mark.set(mark);
            backend.shared.published.publish(&mark);
            backend.world.mark_changed(backend, &before, &mark);
        }
        result
    }

    #[inline]
    fn floor(&self) -> Tick {
        if let Some((floor, _)) = self.backend.early_floor.take() {
            return floor;
        }
        self.step(Place::Floor);
        self.backend.shared.published.floor()
    }

    fn run_floor(&self) -> Tick {
        if let Some((_, floor)) = self.backend.early_floor.take() {
            return floor;
        }
        self.step(Place::Floor);
        self.backend.shared.published.run_floor()
    }

    fn limit(&self) -> Tick {
        let published = &self.backend.shared.published;
        if self.broken(Broken::FloorReadFirst) {
            self.backend.early_floor.set(Some((published.floor(), published.run_floor())));
        }
        self.step(Place::Limit);
        let limit = published.limit(|| {
            self.step(Place::Flag);
            !self.broken(Broken::LimitNotLookedAt) && self.standbys_must_acknowledge()
        });
        self.backend.waits.set(self.backend.standbys());
        limit
    }

    fn awaited(&self) -> u64 {
        self.step(Place::Limit);
        self.backend.shared.published.awaited()
    }

    fn publish_start(&self, tick: Tick) {
        if self.broken(Broken::StartPublishedLate) {
            self.backend.late_start.set(Some(tick));
            return;
        }
        let first = self.backend.session.last_id().is_none_or(|_| self.backend.least.get().is_none());
        if first || !self.broken(Broken::StartNotPublishedAnew) {
            self.backend.start().publish(tick);
        }
        self.step(Place::Start);
    }

    fn oldest_start(&self) -> Tick {
        Start::oldest(self.backend.shared.starts.iter().inspect(|_| self.step(Place::Starts)))
    }

    fn batches(&self) -> &[Batch] {
        if self.broken(Broken::BatchesCompete) { &[] } else { &self.backend.shared.batches }
    }

    fn own_batch(&self) -> Option<&Batch> {
        self.backend.shared.batches.get(self.backend.index)
    }

    fn in_recovery(&self) -> bool {
        self.backend.host().state.get() != State::Primary
    }

    fn load_mark(&self) -> Result<Tick, mint::Error> {
        self.step(Place::Load);
        let stored = self.backend.host().wal.borrow().stored;
        Ok(if self.broken(Broken::FloorOfZero) { 0 } else { stored })
    }

    fn write_mark(&self, mark: Tick) -> u64 {
        self.step(Place::Write);
        let shared = &self.backend.shared;
        shared.marks.set(shared.marks.get() + 1);
        self.backend.world.trace(|| format!("{} writes the mark {mark}", self.name()));
        self.backend.host().wal.borrow_mut().insert(Some(Record::Mark(mark)))
    }

    fn flush(&self, lsn: u64) {
        let backend = self.backend;
        let (world, host) = (&backend.world, backend.host());
        if self.broken(Broken::NotFlushed) || backend.unwinding.get() {
            return;
        }
        self.step(Place::Flush);
        while host.wal.borrow().flushed < lsn {
            let target = host.wal.borrow().inserted;
            self.suspend(world.disk_done(host));
            while host.stalled.get() > world.now.get() {
                self.suspend(host.stalled.get());
            }
            host.wal.borrow_mut().flush(target);
        }
    }

    fn flush_soon(&self, lsn: u64) {
        self.step(Place::Flush);
        self.backend.world.flush_soon(self.backend.host(), lsn);
    }

    fn flushed(&self, lsn: u64) -> bool {
        self.step(Place::Flush);
        self.broken(Broken::NotFlushed) || self.backend.host().wal.borrow().flushed >= lsn
    }

    fn standbys_must_acknowledge(&self) -> bool {
        let backend = self.backend;
        if self.broken(Broken::StandbysRemembered) {
            return backend.remembered.get();
        }
        !(self.broken(Broken::FloorNotShared) && backend.reading.get()) && backend.standbys()
    }

    fn acknowledged(&self, lsn: u64) -> bool {
        self.step(Place::Acknowledge);
        self.broken(Broken::NotAwaited) || self.backend.shared.acknowledged.get() >= lsn
    }

    fn prepared_transactions(&self) -> usize {
        self.step(Place::Ask);
        self.backend.host().prepared.borrow().len()
    }

    fn sleep(&self, us: u64, _wait: Wait) {
        self.step(Place::Sleep);
        let late = self.backend.draw(|rng| rng.u64(..100 * US));
        self.doze(us * US + late);
        self.interrupts();
    }

    fn wait_for_mark(&self, ms: u64, done: impl FnOnce() -> bool) {
        let backend = self.backend;
        backend.waiting.set(true);
        backend.woken.set(false);
        if !done() && !backend.woken.get() {
            self.doze(ms * MS);
        }
        backend.waiting.set(false);
        self.interrupts();
    }

    fn wake_waiting(&self) {
        if self.backend.dead.get() {
            return;
        }
        for other in self.backend.host().backends.borrow().iter().flatten() {
            if other.waiting.get() {
                other.woken.set(true);
                self.backend.world.wake(other);
            }
        }
    }

    fn check_for_interrupts(&self) {
        self.step(Place::Sleep);
        self.interrupts();
    }

    fn point(&self, point: Point) {
        self.step(match point {
            Point::BeforeWal => Place::BeforeWal,
            Point::AfterInsert => Place::AfterInsert,
            Point::AfterFlush => Place::AfterFlush,
            Point::BeforeAcknowledge => Place::BeforeAcknowledge,
            Point::BeforePublish => Place::BeforePublish,
        });
        // An error.
        self.interrupts();
    }
}

impl Slots<Shard> for Process<'_> {
    #[inline]
    fn with_slot<T>(&self, shard: Shard, f: impl FnOnce(&mut Slot<Shard>) -> T) -> T {
        self.step(Place::Slot);
        self.change(&self.backend.shared.slots[shard.index()], f)
    }

    fn slot(&self, shard: Shard) -> Slot<Shard> {
        self.step(Place::Slot);
        self.backend.shared.slots[shard.index()].get()
    }
}

impl Slots<JsShard> for Process<'_> {
    fn with_slot<T>(&self, shard: JsShard, f: impl FnOnce(&mut Slot<JsShard>) -> T) -> T {
        self.step(Place::Slot);
        self.change(&self.backend.shared.js_slots[Shard::from(shard).index()], f)
    }

    fn slot(&self, shard: JsShard) -> Slot<JsShard> {
        self.step(Place::Slot);
        self.backend.shared.js_slots[Shard::from(shard).index()].get()
    }
}

impl Process<'_> {
    #[inline]
    fn change<S: Copy + idgen_core::position::Grid, T>(
        &self,
        cell: &Cell<Slot<S>>,
        f: impl FnOnce(&mut Slot<S>) -> T,
    ) -> T {
        if self.backend.dead.get() {
            return f(&mut Slot::default());
        }
        let mut slot = cell.get();
        let (before, ids) = (slot.next, slot.counters.ids);
        let result = f(&mut slot);
        cell.set(slot);
        if slot.counters.ids > ids {
            self.backend.world.queued(self.backend, slot.next, slot.counters.ids - ids);
        }
        if self.backend.waits.get() && slot.next > before {
            self.backend.world.taken(self.backend, slot.next);
        }
        self.backend.start_late();
        result
    }
}
