//! A host: its clocks, its disk with the WAL, and the shared memory of the server that runs there.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use idgen_core::settings::Settings;
use idgen_core::shared::{Guarded, SingleThread, Slotted};
use idgen_core::slot::Slot;
use idgen_ids::Tick;

use crate::backend::Backend;
use crate::plan::{MS, Names, Plan, Time};

/// The time of the clocks when a world begins.
const BEGIN: i64 = 5_000_000 * MS as i64;

/// The clocks of a host.
pub struct Clocks {
    drift_ppm: i64,
    /// By how much CLOCK_REALTIME is ahead of virtual time, in nanoseconds, without drift. The other clocks are behind
    /// it.
    real: Cell<i64>,
    boot: Cell<u64>,
    monotonic: Cell<u64>,
    /// The time since which the clocks have stood still.
    stopped: Cell<Option<Time>>,
}

impl Clocks {
    fn new(drift_ppm: i64) -> Clocks {
        Clocks {
            drift_ppm,
            real: Cell::new(BEGIN),
            boot: Cell::default(),
            monotonic: Cell::default(),
            stopped: Cell::default(),
        }
    }

    pub fn real_ns(&self, now: Time) -> i64 {
        let now = self.stopped.get().unwrap_or(now).cast_signed();
        now + now * self.drift_ppm / 1_000_000 + self.real.get()
    }

    pub fn tick(&self, now: Time) -> Tick {
        (self.real_ns(now) / MS.cast_signed()).cast_unsigned()
    }

    pub fn boot_ms(&self, now: Time) -> u64 {
        (now - self.boot.get()) / MS
    }

    pub fn monotonic_us(&self, now: Time) -> u64 {
        (now - self.monotonic.get()) / 1000
    }

    /// Sets the system clock by this much.
    pub fn step(&self, ns: i64) {
        self.real.set(self.real.get() + ns);
    }

    /// By how much the clock would have to be set to be right.
    pub fn error_ns(&self, now: Time) -> i64 {
        BEGIN + now.cast_signed() - self.real_ns(now)
    }

    pub fn stop(&self, now: Time) {
        self.stopped.set(Some(now));
    }

    /// Lets the clocks continue. Clocks that stood still are behind by that time.
    pub fn go_on(&self, now: Time, real: bool, boot: bool) {
        let stood = self.real_ns(now);
        let Some(since) = self.stopped.take() else { return };
        let time = now - since;
        self.monotonic.set(self.monotonic.get() + time);
        if real {
            self.step(stood - self.real_ns(now));
        }
        if boot {
            self.boot.set(self.boot.get() + time);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    Mark(Tick),
    /// A transaction with this least id was prepared.
    Prepare(u64, i64),
    Finish(u64),
}

/// The WAL, in memory and on disk.
#[derive(Clone, Default)]
pub struct Wal {
    records: Vec<(u64, Record)>,
    pub inserted: u64,
    pub flushed: u64,
    /// The stored mark, in memory and on disk.
    pub stored: Tick,
    pub durable: Tick,
    /// How many of the records are on disk.
    on_disk: usize,
}

impl Wal {
    pub fn insert(&mut self, record: Option<Record>) -> u64 {
        self.inserted += 1;
        if let Some(record) = record {
            self.records.push((self.inserted, record));
        }
        if let Some(Record::Mark(mark)) = record {
            self.stored = self.stored.max(mark);
        }
        self.inserted
    }

    pub fn flush(&mut self, lsn: u64) {
        self.flushed = self.flushed.max(lsn.min(self.inserted));
        while let Some((_, record)) = self.records.get(self.on_disk).filter(|(end, _)| *end <= self.flushed) {
            if let Record::Mark(mark) = record {
                self.durable = self.durable.max(*mark);
            }
            self.on_disk += 1;
        }
    }

    /// Recovers what a crash has left, up to `lsn`.
    pub fn recover(&mut self, lsn: u64) {
        self.inserted = lsn.clamp(self.flushed, self.inserted);
        self.records.retain(|(end, _)| *end <= self.inserted);
        self.flush(self.inserted);
        self.stored = self.durable;
    }

    /// Keeps only the content of a copy of the disk.
    pub fn cut(&mut self, lsn: u64) {
        self.inserted = lsn;
        self.recover(lsn);
    }

    /// Receives the WAL on another disk, up to `lsn`.
    pub fn receive(&mut self, from: &Wal, lsn: u64) {
        let begin = from.records.partition_point(|(end, _)| *end <= self.inserted);
        self.records.extend(from.records[begin..].iter().take_while(|(end, _)| *end <= lsn));
        self.inserted = self.inserted.max(lsn);
        self.flush(lsn);
        self.stored = self.durable;
    }

    /// The prepared transactions, with their least ids.
    pub fn prepared(&self) -> BTreeMap<u64, i64> {
        let mut prepared = BTreeMap::new();
        for (_, record) in &self.records {
            match record {
                Record::Prepare(name, least) => _ = prepared.insert(*name, *least),
                Record::Finish(name) => _ = prepared.remove(name),
                Record::Mark(_) => {}
            }
        }
        prepared
    }
}

/// The state that the processes of a server share while it runs, and what the simulator knows of it.
pub struct Shared {
    pub state: idgen_core::shared::Shared<SingleThread>,
    pub backends: Vec<idgen_core::shared::Backend>,
    /// Whether commits wait for synchronous standbys, once the checkpointer has read the setting.
    pub standbys: Cell<Option<bool>>,
    /// How far synchronous standbys have flushed the WAL.
    pub acknowledged: Cell<u64>,
    /// The number of marks that this incarnation has written.
    pub marks: Cell<u64>,
    /// Whether, in this incarnation, the clock was set back or stood still, or ids were once allowed further ahead of
    /// it.
    pub behind: Cell<bool>,
    /// The tick up to which milliseconds are repeated because the clock was set back in this incarnation.
    pub relived: Cell<Tick>,
    /// Whether backends may have different settings of `idgen.max_ahead`.
    pub mixed: Cell<bool>,
    /// The furthest that the clock was set forward in this incarnation, in nanoseconds.
    pub forward: Cell<i64>,
}

impl Shared {
    pub fn new(plan: &Plan) -> Rc<Shared> {
        Rc::new(Shared {
            state: idgen_core::shared::Shared::new(plan.shards, plan.shards),
            backends: (0..plan.backends).map(|_| idgen_core::shared::Backend::idle()).collect(),
            standbys: Cell::default(),
            acknowledged: Cell::default(),
            marks: Cell::default(),
            behind: Cell::default(),
            relived: Cell::default(),
            mixed: Cell::default(),
            forward: Cell::default(),
        })
    }

    pub fn slot<S: Slotted>(&self, shard: S) -> Slot<S> {
        shard.slot(&self.state).copy()
    }
}

/// A configuration file.
#[derive(Clone, Debug)]
pub struct Configuration {
    pub settings: Settings,
    /// `idgen.allowed_shards`, a bit for each.
    pub allowed: u64,
    pub names: Names,
    pub version: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Down,
    Standby,
    Primary,
}

/// The standbys for which commits are certain to wait, because all processes of the server know it.
#[derive(Clone, Debug)]
pub struct Guard {
    pub names: Names,
    /// The end of the WAL at that time.
    pub since: u64,
}

pub struct Host {
    pub index: usize,
    pub clocks: Clocks,
    pub wal: RefCell<Wal>,
    pub state: Cell<State>,
    /// Counts the starts of the server.
    pub life: Cell<u32>,
    pub shared: RefCell<Rc<Shared>>,
    pub backends: RefCell<Vec<Option<Rc<Backend>>>>,
    pub file: RefCell<Rc<Configuration>>,
    pub prepared: RefCell<BTreeMap<u64, i64>>,
    /// The host that a standby follows.
    pub follows: Cell<Option<usize>>,
    /// The configurations that its WAL senders have read, one for each standby, and whether the checkpointer has read
    /// the current one.
    pub senders: RefCell<Vec<Rc<Configuration>>>,
    pub checkpointer: RefCell<Rc<Configuration>>,
    /// How far each standby is known to have flushed the WAL, since the last start.
    pub flushed_by: RefCell<Vec<Option<u64>>>,
    pub guard: RefCell<Option<Guard>>,
    /// Whether it is a primary whose standbys were taken away, one of which was promoted.
    pub cut_off: Cell<bool>,
    /// The network between a standby and the host that it follows: how long each direction is cut, and how slow it is.
    pub data_cut: Cell<Time>,
    pub acks_cut: Cell<Time>,
    pub slow: Cell<Time>,
    pub stalled: Cell<Time>,
    pub paused: Cell<Time>,
    /// The time, past or future, since when nothing is wrong with the host.
    pub calm: Cell<Time>,
}

impl Host {
    pub fn new(index: usize, plan: &Plan) -> Host {
        let configuration = Rc::new(Configuration {
            settings: plan.settings,
            allowed: if index < plan.hosts { u64::MAX } else { 0 },
            names: if index < plan.hosts { plan.names.clone() } else { Names::None },
            version: 0,
        });
        Host {
            index,
            clocks: Clocks::new(plan.drift_ppm[index]),
            wal: RefCell::default(),
            state: Cell::new(State::Down),
            life: Cell::default(),
            shared: RefCell::new(Shared::new(plan)),
            backends: RefCell::new(vec![None; plan.backends]),
            file: RefCell::new(configuration.clone()),
            prepared: RefCell::default(),
            follows: Cell::default(),
            senders: RefCell::new(vec![configuration.clone(); plan.servers()]),
            checkpointer: RefCell::new(configuration),
            flushed_by: RefCell::new(vec![None; plan.servers()]),
            guard: RefCell::default(),
            cut_off: Cell::default(),
            data_cut: Cell::default(),
            acks_cut: Cell::default(),
            slow: Cell::default(),
            stalled: Cell::default(),
            paused: Cell::default(),
            calm: Cell::default(),
        }
    }

    pub fn shared(&self) -> Rc<Shared> {
        self.shared.borrow().clone()
    }

    /// Notes that a backend reads these settings.
    pub fn read(&self, settings: &Settings) {
        for backend in self.backends.borrow().iter().flatten() {
            let least = &backend.least_reserve_ms;
            least.set(least.get().min(settings.reserve_ahead_ms));
        }
    }

    /// Notes that something is wrong until a given time.
    pub fn disturb(&self, until: Time) {
        self.calm.set(self.calm.get().max(until));
    }
}
