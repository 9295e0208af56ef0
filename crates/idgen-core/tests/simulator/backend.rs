//! A backend, and the server as the program sees it. There is a step wherever another process could intervene.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::resume_unwind;
use std::rc::Rc;

use corosensei::Yielder;
use fastrand::Rng;
use idgen_core::error::Error;
use idgen_core::host::{Host as _, Point, Wait};
use idgen_core::mark::{MarkState, Progress};
use idgen_core::mint::Session;
use idgen_core::position::Position;
use idgen_core::settings::Settings;
use idgen_core::shared::{self, Guarded, SingleThread, Slotted, TxnFloor};
use idgen_core::slot::Slot;
use idgen_ids::{Shard, Tick};

use crate::host::{Configuration, Host, Record, Shared, State};
use crate::judge::{Call, Kind};
use crate::plan::{Broken, EPOCH, MS, Place, Time, US};
use crate::world::World;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    Cancel,
    Terminate,
}

/// The payload with which a cancel unwinds.
pub struct Interrupted;

/// The state of a backend over its whole life.
pub struct Backend {
    pub world: Rc<World>,
    pub host: usize,
    pub index: usize,
    pub shared: Rc<Shared>,
    pub session: Session,
    pub configuration: RefCell<Rc<Configuration>>,
    pub rng: RefCell<Rng>,
    /// The number of steps until another process intervenes.
    left: Cell<u64>,
    /// The backend has received SIGKILL: nothing that it still does has an effect.
    pub dead: Cell<bool>,
    /// The backend is being unwound.
    pub unwinding: Cell<bool>,
    pub interrupt: Cell<Option<Interrupt>>,
    /// The backend sleeps, and may be woken.
    pub sleeping: Cell<bool>,
    waiting: Cell<bool>,
    woken: Cell<bool>,
    /// The time that its call has waited for the clock.
    pub for_clock: Cell<Time>,
    /// The least `idgen.reserve_ahead` of a backend that may have written a mark during its call, in milliseconds.
    pub least_reserve_ms: Cell<u64>,
    /// The time until which SIGSTOP stops it.
    pub stopped: Cell<Time>,
    /// The number of its entry in the agenda.
    pub ticket: Cell<u64>,
    /// The call that it is making.
    pub call: Cell<Option<Call>>,
    /// The greatest and the last tick that the clock has shown to the call.
    pub read: Cell<Tick>,
    pub last_read: Cell<Tick>,
    /// The least id of its open transaction.
    pub least: Cell<Option<i64>>,
    /// The judge's state of the session.
    pub given: RefCell<promises::Session>,
    /// The beginning and the end of the runs that it took last, if it had to wait for them.
    pub queued: Cell<Option<(u64, u64)>>,
    /// The number of calls that have given it ids.
    pub served: Cell<u64>,
    /// Whether commits waited for standbys when it read its last limit.
    waits: Cell<bool>,
    /// Whether it closes a shard, or takes one over.
    pub closing: Cell<bool>,
    pub taking: Cell<bool>,
    /// For deliberate defects.
    pub remembered: Cell<bool>,
    reading: Cell<bool>,
    early_floor: Cell<Option<(Tick, Tick)>>,
    early_floors: Cell<Option<Tick>>,
    late_floor: Cell<Option<Tick>>,
    still: Cell<Option<(Tick, Time)>>,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host {} backend {}", self.host, self.index)
    }
}

impl Backend {
    pub fn new(world: &Rc<World>, host: &Host, index: usize, seed: u64) -> Rc<Backend> {
        host.read(&host.file.borrow().settings);
        Rc::new(Backend {
            world: world.clone(),
            host: host.index,
            index,
            shared: host.shared(),
            session: Session::fresh(),
            configuration: RefCell::new(host.file.borrow().clone()),
            rng: RefCell::new(Rng::with_seed(seed)),
            left: Cell::new(1),
            dead: Cell::default(),
            unwinding: Cell::default(),
            interrupt: Cell::default(),
            sleeping: Cell::default(),
            waiting: Cell::default(),
            woken: Cell::default(),
            for_clock: Cell::default(),
            least_reserve_ms: Cell::default(),
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
            closing: Cell::default(),
            taking: Cell::default(),
            remembered: Cell::default(),
            reading: Cell::default(),
            early_floor: Cell::default(),
            early_floors: Cell::default(),
            late_floor: Cell::default(),
            still: Cell::default(),
        })
    }

    pub fn host(&self) -> &Host {
        &self.world.hosts[self.host]
    }

    fn own(&self) -> &shared::Backend {
        &self.shared.backends[self.index]
    }

    /// Ends the backend's transaction, and withdraws what it has published.
    pub fn withdraw(&self) {
        self.own().transaction_ended();
        self.session.transaction_ended();
        self.late_floor.set(None);
    }

    /// Publishes the floor of a transaction, if a defect delays that.
    fn publish_late(&self) {
        if let Some(tick) = self.late_floor.take() {
            self.own().txn_floor.publish(tick);
        }
    }

    /// The settings that the backend has read.
    pub fn settings(&self) -> Settings {
        self.configuration.borrow().settings
    }

    /// Whether its configuration lets it mint for a shard.
    pub fn allows(&self, shard: usize) -> bool {
        self.configuration.borrow().allowed >> shard & 1 == 1
    }

    /// Whether commits wait for standbys.
    pub fn standbys(&self) -> bool {
        let configured = || !self.configuration.borrow().names.listed().is_empty();
        self.shared.standbys.get().unwrap_or_else(configured)
    }

    /// Ends the call, from the server's point of view.
    pub fn call_ended(&self) {
        self.publish_late();
        self.early_floor.set(None);
    }

    pub fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.rng.borrow_mut())
    }
}

/// The server, as seen by the backend that runs.
pub struct Process<'a> {
    pub backend: &'a Backend,
    pub yielder: &'a Yielder<(), Time>,
}

impl Process<'_> {
    fn broken(&self, broken: Broken) -> bool {
        self.backend.world.plan.broken == Some(broken)
    }

    /// Ends a step. Another process may intervene, and events that wait for this point happen.
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
            world.trace(|| format!("{} at {place:?}", self.backend));
            self.suspend(world.now.get() + rest);
        }
    }

    /// Lets others run until a given time, or until one of them wakes this backend.
    pub fn suspend(&self, until: Time) {
        self.yielder.suspend(until);
    }

    /// Sleeps for a time, unless another process wakes it.
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

    /// Writes a record to the WAL and waits until it is on disk.
    pub fn log(&self, record: Option<Record>) -> u64 {
        let lsn = self.backend.host().wal.borrow_mut().insert(record);
        self.flush(lsn);
        lsn
    }

    /// Calls `call`, which asks for the horizon.
    pub fn reading<T>(&self, call: impl FnOnce() -> T) -> T {
        self.backend.reading.set(true);
        let result = call();
        self.backend.reading.set(false);
        result
    }
}

impl Process<'_> {
    /// Changes a slot for a move, with the defect of this world if it has one.
    fn move_wrongly<S: Slotted, T>(
        &self,
        shard: S,
        cell: &Cell<Slot<S>>,
        f: impl FnOnce(&mut Slot<S>) -> T,
    ) -> T {
        let Backend { world, host, closing, .. } = self.backend;
        let closing = closing.get();
        if !S::FOLLOWED && self.broken(if closing { Broken::JsNotClosed } else { Broken::JsNotAdvanced }) {
            return f(&mut cell.copy());
        }
        let mut slot = cell.copy();
        if S::FOLLOWED && closing && self.broken(Broken::LeaseOutlivesClosing) {
            let shard: Shard = shard.into();
            let shard = shard.index() as u16;
            let given =
                world.judged(|judge| judge.given_up_to(*host, promises::Slot { kind: Kind::Plain, shard }));
            slot.next = slot.next.min(Position::FIRST.plus(given));
        } else if !(closing && self.broken(Broken::BoundTakenFirst)) {
            return cell.change(f);
        }
        let result = f(&mut slot);
        self.suspend(world.now.get() + MS);
        cell.change(|now| now.closed = true);
        result
    }
}

impl idgen_core::host::Host for Process<'_> {
    type Error = Error;
    type Locks = SingleThread;

    fn shared(&self) -> &shared::Shared<SingleThread> {
        &self.backend.shared.state
    }

    fn backends(&self) -> &[shared::Backend] {
        &self.backend.shared.backends
    }

    fn backend(&self) -> Option<usize> {
        // A batch that is in no queue competes.
        Some(self.backend.index).filter(|_| !self.broken(Broken::BatchesCompete))
    }

    #[inline]
    fn allows(&self, shard: Shard) -> bool {
        let backend = self.backend;
        let allowed = || backend.host().file.borrow().allowed >> shard.index() & 1 == 1;
        self.broken(Broken::ListRemembered) || allowed()
    }

    #[inline]
    fn now(&self) -> Result<Tick, Error> {
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
        let us = self.backend.host().clocks.monotonic_us(self.backend.world.now.get());
        if self.broken(Broken::WaitsCountedTwice) { 2 * us } else { us }
    }

    fn us_until(&self, tick: Tick) -> Result<u64, Error> {
        self.step(Place::Clock);
        let now = self.backend.host().clocks.real_ns(self.backend.world.now.get()) / 1000;
        Ok((tick * 1000).cast_signed().saturating_sub(now).max(0).cast_unsigned())
    }

    fn with_mark<T>(&self, f: impl Fn(&mut MarkState) -> T) -> T {
        if self.broken(Broken::StartsReadFirst) && self.backend.reading.get() {
            let floors = self.backends().iter().map(|backend| &backend.txn_floor);
            self.backend.early_floors.set(Some(TxnFloor::oldest(floors)));
        }
        self.step(Place::Mark);
        let Backend { world, shared, dead, reading, .. } = self.backend;
        let state = &shared.state;
        let before = state.mark.copy();
        if dead.get() || self.broken(Broken::FloorNotRaised) && reading.get() {
            return f(&mut before.clone());
        }
        if self.broken(Broken::FloorNotRaisedWithMark) && before.loaded() {
            let mut copy = before;
            let result = f(&mut copy);
            if copy.recovered() > before.recovered() {
                return result;
            }
        }
        let result = state.with_mark(f);
        if self.broken(Broken::ClaimGivenUp) && state.mark.copy() == before {
            state.with_mark(MarkState::release);
        }
        world.mark_changed(self.backend, &before, &state.mark.copy());
        result
    }

    #[inline]
    fn floor(&self) -> Tick {
        if let Some((floor, _)) = self.backend.early_floor.take() {
            return floor;
        }
        self.step(Place::Floor);
        self.shared().published.floor()
    }

    fn recovered(&self) -> Tick {
        if let Some((_, floor)) = self.backend.early_floor.take() {
            return floor;
        }
        self.step(Place::Floor);
        self.shared().published.recovered()
    }

    fn limit(&self) -> Tick {
        let published = &self.shared().published;
        if self.broken(Broken::FloorReadFirst) {
            self.backend.early_floor.set(Some((published.floor(), published.recovered())));
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
        self.shared().published.awaited()
    }

    fn publish_floor(&self, tick: Tick) {
        if self.broken(Broken::StartPublishedLate) {
            self.backend.late_floor.set(Some(tick));
            return;
        }
        self.step(Place::Start);
        let first = self.backend.session.last_id().is_none_or(|_| self.backend.least.get().is_none());
        if first || !self.broken(Broken::StartNotPublishedAnew) {
            self.backend.own().txn_floor.publish(tick);
        }
    }

    fn oldest_floor(&self) -> Tick {
        if let Some(oldest) = self.backend.early_floors.take() {
            return oldest;
        }
        let backends = self.backends().iter().inspect(|_| self.step(Place::Starts));
        TxnFloor::oldest(backends.map(|backend| &backend.txn_floor))
    }

    fn in_recovery(&self) -> bool {
        self.backend.host().state.get() != State::Primary
    }

    fn load_mark(&self) -> Option<Progress> {
        self.step(Place::Load);
        let stored = self.backend.host().wal.borrow().stored;
        let stored = Some(stored).filter(|stored| *stored > 0 && !self.broken(Broken::FloorOfZero));
        stored.map(|stored| Progress::new(stored, EPOCH))
    }

    fn write_mark(&self, mark: Progress) -> u64 {
        self.step(Place::Write);
        let mark = mark.mark();
        let shared = &self.backend.shared;
        shared.marks.set(shared.marks.get() + 1);
        self.backend.world.trace(|| format!("{} writes the mark {mark}", self.backend));
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

    fn sleep(&self, us: u64, wait: Wait) {
        self.step(Place::Sleep);
        let Backend { world, for_clock, .. } = self.backend;
        let since = world.now.get();
        let late = self.backend.draw(|rng| rng.u64(..100 * US));
        self.doze(us * US + late);
        if wait == Wait::Clock {
            // A call reads the clock again after 50 ms. Time that it oversleeps is not a wait for the clock.
            for_clock.set(for_clock.get() + (world.now.get() - since).min(51 * MS));
        }
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

    #[inline]
    fn with_slot<S: Slotted, T>(&self, shard: S, f: impl FnOnce(&mut Slot<S>) -> T) -> T {
        self.step(Place::Slot);
        let Backend { world, waits, dead, .. } = self.backend;
        let cell = shard.slot(self.shared());
        if dead.get() {
            return f(&mut cell.copy());
        }
        let before = cell.copy();
        let result = if self.backend.closing.get() || self.backend.taking.get() {
            self.move_wrongly(shard, cell, f)
        } else {
            cell.change(f)
        };
        let slot = cell.copy();
        if slot.counters.ids > before.counters.ids {
            world.queued(self.backend, slot.next, slot.counters.ids - before.counters.ids);
        }
        if waits.get() && slot.next > before.next {
            world.taken(self.backend, slot.next);
        }
        self.backend.publish_late();
        result
    }
}
