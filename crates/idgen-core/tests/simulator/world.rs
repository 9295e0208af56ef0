//! A world: hosts in virtual time, the coming events, and their effects on the hosts.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};
use fastrand::Rng;
use idgen_ids::Tick;
use promises::Lost;

use crate::backend::{Backend, Interrupt};
use crate::client;
use crate::host::{Configuration, Guard, Host, Record, Shared, State, Wal};
use crate::judge::{Failure, Judge, Promise};
use crate::plan::{Event, Fault, KINDS, MS, Names, OTHER, Place, Plan, Time, US, Wake, Who};

/// An entry of the agenda.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    Backend { host: usize, index: usize, ticket: u64 },
    Spawn { host: usize, index: usize, life: u32 },
    Up { host: usize, primary: bool, life: u32 },
    Event(usize),
    GoOn { host: usize, since: Time, real: bool, boot: bool },
    Checkpointer { host: usize, life: u32 },
    Sender { host: usize, standby: usize, life: u32 },
    WalWriter { host: usize },
    FlushSoon { host: usize, life: u32, lsn: u64 },
    Stream { standby: usize },
    Arrive { standby: usize, link: u32, lsn: u64 },
    Flushed { standby: usize, link: u32, lsn: u64 },
    Ack { primary: usize, life: u32, standby: usize, lsn: u64 },
    Rejoin { host: usize },
    Heal,
    Healed { until: Time },
    End,
}

pub struct World {
    pub plan: Plan,
    pub now: Cell<Time>,
    pub hosts: Vec<Host>,
    pub judge: Judge,
    /// Whether an event waits for a backend.
    pub traps: Cell<bool>,
    armed: RefCell<Vec<usize>>,
    met: Cell<Option<(usize, usize)>>,
    agenda: RefCell<BinaryHeap<Reverse<(Time, u64, Item)>>>,
    entries: Cell<u64>,
    rng: RefCell<Rng>,
    /// The primary that clients should use.
    current: Cell<usize>,
    /// The generation of a standby's stream.
    links: Vec<Cell<u32>>,
    /// The last millisecond of ids that a failover or a backup has lost, as docs/guarantees.md says it may. As long as
    /// a server does not begin after it, its clock has to be past it.
    lost: Cell<Tick>,
    /// The stored mark with which each host took its role.
    begun_at: Vec<Cell<Tick>>,
    backup: RefCell<Option<Wal>>,
    names: Cell<u64>,
    /// The move that is under way, and the shards that are with the other server.
    moving: Cell<Option<Move>>,
    moved: RefCell<Vec<bool>>,
    /// The time at which the last move began or ended.
    moved_at: Cell<Time>,
    pub faults: RefCell<[u64; KINDS]>,
    pub hash: Cell<u64>,
    trace: Option<RefCell<Vec<String>>>,
}

/// The result of a world.
pub struct Outcome {
    pub failure: Option<Failure>,
    pub ids: u64,
    pub calls: u64,
    pub refused: u64,
    pub horizons: u64,
    pub faults: [u64; KINDS],
    pub hash: u64,
    pub time: Time,
    pub trace: Vec<String>,
}

/// A move of a shard from one cluster to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    pub shard: usize,
    /// Whether the shard leaves the other server, instead of going there.
    back: bool,
    /// Whether the list of shards of the cluster that has it is written only before a server of the cluster ends or is
    /// promoted, or the other one opens the shard. Otherwise it is written before the shard is closed.
    listed_late: bool,
    /// The bound, once the shard is closed.
    pub bound: Option<i64>,
    /// A backend is about to open the shard. No other may, because it could be delayed until after the next move.
    opening: bool,
}

type Life = Coroutine<(), Time, ()>;

/// A world and its backends.
struct Living {
    world: Rc<World>,
    lives: Vec<Vec<Option<Life>>>,
    stacks: Vec<DefaultStack>,
}

/// Runs a world and looks for any broken promise, or only for one. With `trace`, the result tells what happened.
pub fn live_through(plan: &Plan, only: Option<Promise>, trace: bool) -> Outcome {
    let world = Rc::new(World::new(plan.clone(), only, trace));
    let lives = (0..plan.servers()).map(|_| (0..plan.backends).map(|_| None).collect()).collect();
    let mut living = Living { world: world.clone(), lives, stacks: Vec::new() };
    living.run();
    for host in 0..plan.servers() {
        living.kill(host);
    }
    let judge = &world.judge;
    let counts = &judge.promises.borrow().counts;
    Outcome {
        failure: judge.failure.take(),
        ids: counts.ids,
        calls: counts.calls,
        refused: judge.refused.get(),
        horizons: counts.horizons,
        faults: *world.faults.borrow(),
        hash: world.hash.get() ^ world.now.get() ^ world.entries.get() << 20,
        time: world.now.get(),
        trace: world.trace.as_ref().map(|trace| trace.take()).unwrap_or_default(),
    }
}

impl World {
    fn new(plan: Plan, only: Option<Promise>, trace: bool) -> World {
        World {
            now: Cell::default(),
            hosts: (0..plan.servers()).map(|index| Host::new(index, &plan)).collect(),
            judge: Judge::new(&plan, only),
            traps: Cell::default(),
            armed: RefCell::default(),
            met: Cell::default(),
            agenda: RefCell::default(),
            entries: Cell::default(),
            rng: RefCell::new(Rng::with_seed(plan.schedule ^ 0x5eed)),
            current: Cell::default(),
            links: vec![Cell::default(); plan.servers()],
            lost: Cell::default(),
            begun_at: vec![Cell::default(); plan.servers()],
            backup: RefCell::default(),
            names: Cell::default(),
            moving: Cell::default(),
            moved: RefCell::new(vec![false; plan.shards]),
            moved_at: Cell::default(),
            faults: RefCell::new([0; KINDS]),
            hash: Cell::default(),
            trace: trace.then(RefCell::default),
            plan,
        }
    }

    pub fn trace(&self, text: impl FnOnce() -> String) {
        if let Some(trace) = &self.trace {
            let now = self.now.get();
            trace.borrow_mut().push(format!("{:>8}.{:03} ms  {}", now / MS, now % MS / US, text()));
        }
    }

    fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.rng.borrow_mut())
    }

    fn at(&self, time: Time, item: Item) {
        self.entries.set(self.entries.get() + 1);
        self.agenda.borrow_mut().push(Reverse((time, self.entries.get(), item)));
    }

    fn after(&self, time: Time, item: Item) {
        self.at(self.now.get() + time, item);
    }

    fn soon(&self, within: Time, item: Item) {
        let time = self.draw(|rng| rng.u64(..=within));
        self.after(time, item);
    }

    /// Lets the WAL writer flush up to `lsn` when it comes to that, in most cases soon.
    pub fn flush_soon(&self, host: &Host, lsn: u64) {
        let late = self.draw(|rng| if rng.u8(..4) == 0 { rng.u64(..200 * MS) } else { 0 });
        self.at(
            self.disk_done(host) + late,
            Item::FlushSoon { host: host.index, life: host.life.get(), lsn },
        );
    }

    /// The time at which the disk will have completed a request made now.
    pub fn disk_done(&self, host: &Host) -> Time {
        let disk = self.plan.disk;
        self.now.get().max(host.stalled.get()) + self.draw(|rng| rng.u64(disk / 2..=disk * 2))
    }

    fn network(&self, standby: &Host) -> Time {
        let network = self.plan.network;
        standby.slow.get() + self.draw(|rng| rng.u64(network / 2..=network * 2))
    }

    pub fn name_prepared(&self) -> u64 {
        self.names.set(self.names.get() + 1);
        self.names.get()
    }

    fn schedule(&self, backend: &Backend, time: Time) {
        backend.ticket.set(backend.ticket.get() + 1);
        let ticket = backend.ticket.get();
        self.at(time, Item::Backend { host: backend.host, index: backend.index, ticket });
    }

    /// Wakes a sleeping backend.
    pub fn wake(&self, backend: &Backend) {
        if backend.sleeping.get() {
            self.schedule(backend, self.now.get());
        }
    }

    /// Whether an event waits for a backend at this point.
    pub fn meet(&self, backend: &Backend, place: Place) -> bool {
        if backend.host != self.current.get() || self.met.get().is_some() {
            return false;
        }
        let mut armed = self.armed.borrow_mut();
        let Some(found) = armed.iter().position(|event| self.plan.events[*event].place == Some(place)) else {
            return false;
        };
        let event = armed.remove(found);
        self.traps.set(!armed.is_empty());
        self.met.set(Some((event, backend.index)));
        true
    }

    fn host(&self, who: Who) -> &Host {
        let Plan { hosts, other, .. } = self.plan;
        let place = (self.current.get() + who % hosts) % hosts;
        &self.hosts[if who == OTHER && other { hosts } else { place }]
    }

    /// The hosts of the cluster, or the other server.
    fn cluster(&self, other: bool) -> &[Host] {
        let (cluster, others) = self.hosts.split_at(self.plan.hosts);
        if other { others } else { cluster }
    }

    /// The next step of the move, if this backend can make it. Moves end once ids are lost.
    pub fn next_step(&self, backend: &Backend) -> Option<Move> {
        self.moving.get().filter(|moving| self.may_step(*moving, backend))
    }

    /// Whether this step of a move has not been made yet, by this backend or another one.
    fn may_step(&self, moving: Move, backend: &Backend) -> bool {
        let server = self.host(if moving.back == moving.bound.is_none() { OTHER } else { 0 });
        let there = backend.host == server.index && server.state.get() == State::Primary && !moving.opening;
        there && self.lost.get() == 0 && self.moving.get() == Some(moving)
    }

    /// Notes that a shard was closed. This does not count if a standby has been promoted meanwhile.
    pub fn closed(&self, backend: &Backend, moving: Move, bound: i64) {
        self.end(backend);
        self.trace(|| format!("{backend} has closed shard {}: {bound}", moving.shard));
        if self.may_step(moving, backend) {
            self.moving.set(Some(Move { bound: Some(bound), ..moving }));
        }
    }

    /// Notes that a server reports having advanced past the bound. Returns whether it may open the shard.
    pub fn taken_over(&self, backend: &Backend, moving: Move, is_past: bool) -> bool {
        self.end(backend);
        if !is_past {
            self.fail(Promise::Moved, || format!("{backend} is not past {:?}", moving.bound));
        }
        let counts = self.may_step(moving, backend);
        if counts && let Some(bound) = moving.bound {
            self.trace(|| format!("{backend} takes shard {} over", moving.shard));
            let (shard, other) = (moving.shard as u16, self.plan.hosts);
            self.judged(|judge| judge.moved(shard, bound, other, !moving.back));
            self.list_late();
            self.moving.set(Some(Move { opening: true, ..moving }));
        }
        counts
    }

    /// Notes that the shard is open on its new server.
    pub fn opened(&self, Move { shard, back, .. }: Move) {
        self.moved.borrow_mut()[shard] = !back;
        self.moved_at.set(self.now.get());
        self.list(!back, |allowed| allowed | 1 << shard);
        self.moving.set(None);
    }

    /// Takes a closed shard from the list of the servers that had it, if that has not been done yet.
    fn list_late(&self) {
        if let Some(Move { shard, back, bound: Some(_), .. }) = self.moving.get() {
            self.list(back, |allowed| allowed & !(1 << shard));
        }
    }

    /// Writes the list of shards of a cluster, except on a primary that lives on after another has taken over.
    fn list(&self, other: bool, change: impl Fn(u64) -> u64) {
        for host in self.cluster(other).iter().filter(|host| !host.cut_off.get()) {
            self.configure(host, |file| file.allowed = change(file.allowed));
        }
    }

    /// Whether a server that does not have a shard, or has not always had it since a moment, may refuse a call for it.
    pub fn is_away(&self, host: &Host, shard: usize, since: Time) -> bool {
        let moving = self.moving.get().is_some_and(|moving| moving.shard == shard);
        moving
            || host.cut_off.get()
            || self.moved_at.get() >= since
            || self.moved.borrow()[shard] != (host.index == self.plan.hosts)
    }

    /// Moves a clock by this much, but not back to where ids were lost.
    fn set_clock(&self, host: &Host, ns: i64) {
        let now = self.now.get();
        let (before, shown) = (host.clocks.real_ns(now), host.clocks.tick(now));
        host.clocks.step(ns.max(MS.cast_signed() * 100_000 - before));
        let tick = host.clocks.tick(now);
        if host.state.get() != State::Standby
            && self.begun_at[host.index].get() <= self.lost.get()
            && tick <= self.lost.get()
        {
            host.clocks.step((self.lost.get() + 1 - tick).cast_signed() * MS.cast_signed());
        }
        let moved = host.clocks.real_ns(now) - before;
        let shared = host.shared();
        if moved < 0 {
            shared.behind.set(true);
            shared.relived.set(shared.relived.get().max(shown));
            self.judge.clock_set(host, now);
        } else {
            shared.forward.set(shared.forward.get() + moved);
        }
        self.trace(|| format!("the clock of host {} is set by {} us", host.index, moved / 1000));
    }

    /// Gives a host another configuration file. Its processes read it one by one.
    fn configure(&self, host: &Host, change: impl FnOnce(&mut Configuration)) {
        let mut file = Configuration::clone(&host.file.borrow());
        change(&mut file);
        file.version += 1;
        if let Names::First(listed) | Names::Any(listed) = &mut file.names {
            listed.retain(|index| *index != host.index);
            if listed.is_empty() {
                file.names = Names::None;
            }
        }
        if file.settings.max_ahead_ms != host.file.borrow().settings.max_ahead_ms {
            host.shared().mixed.set(true);
        }
        let other = host.guard.borrow().as_ref().is_some_and(|guard| guard.names != file.names);
        if other {
            host.guard.take();
        }
        *host.file.borrow_mut() = Rc::new(file);
        let life = host.life.get();
        self.soon(5 * MS, Item::Checkpointer { host: host.index, life });
        for standby in 0..self.hosts.len() {
            self.soon(5 * MS, Item::Sender { host: host.index, standby, life });
        }
    }

    /// Notes for which standbys commits are certain to wait, once all processes have read that they have to.
    fn look_at_guard(&self, host: &Host) {
        let file = host.file.borrow();
        let all = host.shared().standbys.get().is_some()
            && host.checkpointer.borrow().version == file.version
            && host.senders.borrow().iter().all(|sender| sender.version == file.version);
        if !all || host.guard.borrow().as_ref().is_some_and(|guard| guard.names == file.names) {
            return;
        }
        let since = host.wal.borrow().inserted;
        let guard = (file.names != Names::None).then(|| Guard { names: file.names.clone(), since });
        if let Some(guard) = &guard {
            self.trace(|| format!("host {} waits for {:?} for certain", host.index, guard.names));
        }
        host.guard.replace(guard);
    }

    /// Notes that a standby has reported how far it has flushed.
    fn acknowledge(&self, primary: &Host, standby: usize, lsn: u64) {
        let mut flushed_by = primary.flushed_by.borrow_mut();
        flushed_by[standby] = flushed_by[standby].max(Some(lsn));
        let names = primary.senders.borrow()[standby].names.clone();
        let counts = match &names {
            Names::None => false,
            Names::First(listed) => {
                listed.iter().find(|index| flushed_by[**index].is_some()) == Some(&standby)
            }
            Names::Any(listed) => listed.contains(&standby),
        };
        let acknowledged = &primary.shared().acknowledged;
        if counts && flushed_by[standby] > Some(acknowledged.get()) {
            acknowledged.set(lsn);
        }
    }

    /// Makes the host that a standby follows forget it.
    fn unlink(&self, standby: &Host) {
        let link = &self.links[standby.index];
        link.set(link.get() + 1);
        if let Some(primary) = standby.follows.get() {
            self.hosts[primary].flushed_by.borrow_mut()[standby.index] = None;
        }
    }
}

impl Living {
    fn run(&mut self) {
        let world = self.world.clone();
        let plan = &world.plan;
        for host in &world.hosts {
            world.configure(host, |_| {});
            let is_other = host.index == plan.hosts;
            world.after(0, Item::Up { host: host.index, primary: host.index == 0 || is_other, life: 0 });
            world.soon(5 * MS, Item::WalWriter { host: host.index });
            if host.index > 0 && !is_other {
                host.follows.set(Some(0));
            }
            world.soon(MS, Item::Stream { standby: host.index });
        }
        for (index, event) in plan.events.iter().enumerate() {
            world.at(event.at, Item::Event(index));
        }
        world.at(plan.end, if plan.heals { Item::Heal } else { Item::End });
        while world.judge.failure.borrow().is_none() {
            let Some(Reverse((time, _, item))) = world.agenda.borrow_mut().pop() else { break };
            world.now.set(world.now.get().max(time));
            if item == Item::End {
                break;
            }
            self.happen(item);
            while let Some((event, backend)) = world.met.take() {
                let Event { fault, .. } = &plan.events[event];
                self.strike(fault, Some(backend));
            }
        }
    }

    fn happen(&mut self, item: Item) {
        let world = self.world.clone();
        match item {
            Item::Backend { host, index, ticket } => self.resume(host, index, ticket),
            Item::Spawn { host, index, life } => {
                if world.hosts[host].life.get() == life {
                    self.spawn(host, index);
                }
            }
            Item::Up { host, primary, life } => {
                let host = &world.hosts[host];
                if host.life.get() == life {
                    self.start(host, if primary { State::Primary } else { State::Standby });
                }
            }
            Item::Event(index) => match &world.plan.events[index] {
                Event { place: Some(_), .. } => {
                    world.armed.borrow_mut().push(index);
                    world.traps.set(true);
                }
                Event { fault, .. } => self.strike(fault, None),
            },
            Item::GoOn { host, since, real, boot } => {
                if world.hosts[host].paused.get() == since {
                    self.go_on(&world.hosts[host], real, boot);
                }
            }
            Item::Checkpointer { host, life } => {
                let host = &world.hosts[host];
                if host.life.get() == life {
                    let file = host.file.borrow().clone();
                    host.shared().standbys.set(Some(file.names != Names::None));
                    *host.checkpointer.borrow_mut() = file;
                    world.look_at_guard(host);
                }
            }
            Item::Sender { host, standby, life } => {
                let host = &world.hosts[host];
                if host.life.get() == life {
                    host.senders.borrow_mut()[standby] = host.file.borrow().clone();
                    world.look_at_guard(host);
                }
            }
            Item::WalWriter { host: index } => {
                let host = &world.hosts[index];
                let now = world.now.get();
                if host.stalled.get() <= now && host.paused.get() <= now {
                    let inserted = host.wal.borrow().inserted;
                    host.wal.borrow_mut().flush(inserted);
                }
                world.soon(60 * MS, Item::WalWriter { host: index });
            }
            Item::FlushSoon { host: index, life, lsn } => {
                let host = &world.hosts[index];
                let until = host.stalled.get().max(host.paused.get());
                if host.life.get() == life && until > world.now.get() {
                    world.at(until, item);
                } else if host.life.get() == life {
                    host.wal.borrow_mut().flush(lsn);
                }
            }
            Item::Stream { standby } => self.stream(&world.hosts[standby]),
            Item::Arrive { standby, link, lsn } => {
                if world.links[standby].get() == link {
                    let host = &world.hosts[standby];
                    let done = world.disk_done(host).max(host.paused.get());
                    world.at(done, Item::Flushed { standby, link, lsn });
                }
            }
            Item::Flushed { standby, link, lsn } => self.flushed(standby, link, lsn),
            Item::Ack { primary, life, standby, lsn } => {
                let host = &world.hosts[primary];
                if host.life.get() == life && host.state.get() == State::Primary {
                    world.acknowledge(host, standby, lsn);
                }
            }
            Item::Rejoin { host } => self.rejoin(&world.hosts[host]),
            Item::Heal => self.heal(),
            Item::Healed { until } => {
                let current = &world.hosts[world.current.get()];
                let hungry = current
                    .backends
                    .borrow()
                    .iter()
                    .position(|backend| backend.as_ref().is_none_or(|backend| backend.served.get() == 0));
                match hungry {
                    Some(index) if until < world.now.get() => world.fail(Promise::Availability, || {
                        format!("host {} backend {index} has no id, though all is well", current.index)
                    }),
                    Some(_) => world.after(10 * MS, Item::Healed { until }),
                    None => world.after(0, Item::End),
                }
            }
            Item::End => {}
        }
    }

    fn spawn(&mut self, host: usize, index: usize) {
        let world = self.world.clone();
        let host = &world.hosts[host];
        if host.state.get() == State::Down {
            return;
        }
        let seed = world.draw(|rng| rng.u64(..));
        let backend = Backend::new(&world, host, index, seed);
        let living = backend.clone();
        let stack = self.stacks.pop().unwrap_or_else(|| DefaultStack::new(256 << 10).unwrap());
        let life = Life::with_stack(stack, move |yielder, ()| client::live(&living, yielder));
        self.lives[host.index][index] = Some(life);
        host.backends.borrow_mut()[index] = Some(backend.clone());
        world.schedule(&backend, world.now.get());
    }

    fn resume(&mut self, host: usize, index: usize, ticket: u64) {
        let world = self.world.clone();
        let now = world.now.get();
        let Some(backend) = world.hosts[host].backends.borrow()[index].clone() else { return };
        if backend.ticket.get() != ticket {
            return;
        }
        let until = backend.stopped.get().max(world.hosts[host].paused.get());
        if until > now {
            world.schedule(&backend, until);
            return;
        }
        let Some(life) = &mut self.lives[host][index] else { return };
        match life.resume(()) {
            CoroutineResult::Yield(time) => world.schedule(&backend, time.max(world.now.get())),
            CoroutineResult::Return(()) => {
                self.end(host, index);
                let life = world.hosts[host].life.get();
                world.soon(2 * MS, Item::Spawn { host, index, life });
            }
        }
    }

    /// Ends a backend, wherever it is.
    fn end(&mut self, host: usize, index: usize) {
        if let Some(backend) = self.world.hosts[host].backends.borrow_mut()[index].take() {
            backend.dead.set(true);
            backend.unwinding.set(true);
        }
        if let Some(mut life) = self.lives[host][index].take() {
            life.force_unwind();
            self.stacks.push(life.into_stack());
        }
    }

    /// Ends all backends of a server at once.
    fn kill(&mut self, host: usize) {
        for index in 0..self.world.plan.backends {
            self.end(host, index);
        }
    }

    /// Stops the server. Recovery will find what is on disk, and perhaps more of the WAL.
    fn stop(&mut self, host: &Host) {
        self.world.list_late();
        self.kill(host.index);
        self.go_on(host, false, false);
        let mut wal = host.wal.borrow_mut();
        let kept = self.world.draw(|rng| rng.u64(wal.flushed..=wal.inserted));
        wal.recover(kept);
        host.state.set(State::Down);
        host.life.set(host.life.get() + 1);
        self.world.unlink(host);
        self.world.judge.clock_set(host, 0);
    }

    fn start(&mut self, host: &Host, state: State) {
        let world = self.world.clone();
        world.trace(|| format!("host {} starts as {state:?}", host.index));
        host.state.set(state);
        host.life.set(host.life.get() + 1);
        *host.shared.borrow_mut() = Shared::new(&world.plan);
        *host.prepared.borrow_mut() = host.wal.borrow().prepared();
        host.flushed_by.borrow_mut().fill(None);
        let file = host.file.borrow().clone();
        host.senders.borrow_mut().fill(file.clone());
        *host.checkpointer.borrow_mut() = file;
        world.judge.promises.borrow_mut().restarted(host.index);
        let life = host.life.get();
        world.soon(3 * MS, Item::Checkpointer { host: host.index, life });
        self.begin(host);
        for index in 0..world.plan.backends {
            world.soon(2 * MS, Item::Spawn { host: host.index, index, life });
        }
        for other in world.hosts.iter().filter(|other| other.follows.get() == Some(host.index)) {
            world.unlink(other);
        }
    }

    /// Begins a run of a server at the stored mark.
    fn begin(&self, host: &Host) {
        let world = &self.world;
        world.begun_at[host.index].set(host.wal.borrow().stored);
        world.set_clock(host, 0);
        host.disturb(world.now.get() + 30 * MS);
    }

    fn stream(&self, standby: &Host) {
        let world = &self.world;
        let now = world.now.get();
        let index = standby.index;
        world.soon(world.plan.network + MS, Item::Stream { standby: index });
        let Some(primary) = standby.follows.get().map(|primary| &world.hosts[primary]) else { return };
        let there = |host: &Host, state| host.state.get() == state && host.paused.get() <= now;
        if !there(standby, State::Standby) || !there(primary, State::Primary) || primary.cut_off.get() {
            return;
        }
        let lsn = primary.wal.borrow().flushed;
        let link = world.links[index].get();
        if standby.data_cut.get() <= now && lsn > standby.wal.borrow().flushed {
            world.after(world.network(standby), Item::Arrive { standby: index, link, lsn });
        }
        self.tell(standby, primary);
    }

    /// Lets a standby report how far it has flushed.
    fn tell(&self, standby: &Host, primary: &Host) {
        let world = &self.world;
        if standby.acks_cut.get() <= world.now.get() {
            let (lsn, life) = (standby.wal.borrow().flushed, primary.life.get());
            let ack = Item::Ack { primary: primary.index, life, standby: standby.index, lsn };
            world.after(world.network(standby), ack);
        }
    }

    fn flushed(&self, standby: usize, link: u32, lsn: u64) {
        let world = &self.world;
        let host = &world.hosts[standby];
        let Some(primary) = host.follows.get().map(|primary| &world.hosts[primary]) else { return };
        if world.links[standby].get() != link || host.state.get() != State::Standby {
            return;
        }
        let until = host.stalled.get().max(host.paused.get());
        if until > world.now.get() {
            world.at(until, Item::Flushed { standby, link, lsn });
            return;
        }
        if lsn > host.wal.borrow().flushed {
            host.wal.borrow_mut().receive(&primary.wal.borrow(), lsn);
            world.trace(|| format!("host {standby} has the mark {}", host.wal.borrow().durable));
            self.tell(host, primary);
        }
    }

    fn go_on(&self, host: &Host, real: bool, boot: bool) {
        let world = &self.world;
        let before = host.clocks.real_ns(world.now.get());
        host.clocks.go_on(world.now.get(), real, boot);
        host.paused.set(0);
        if boot && !real {
            let forward = &host.shared().forward;
            forward.set(forward.get() + host.clocks.real_ns(world.now.get()) - before);
        }
    }

    /// Makes a host a standby of the primary, with a copy of its data.
    fn rejoin(&mut self, host: &Host) {
        let world = self.world.clone();
        let current = &world.hosts[world.current.get()];
        let follows = host.follows.get() == Some(current.index) && host.state.get() != State::Primary;
        if host.index == current.index || follows {
            return;
        }
        if current.state.get() != State::Primary || current.paused.get() > 0 || host.paused.get() > 0 {
            world.soon(5 * MS, Item::Rejoin { host: host.index });
            return;
        }
        self.stop(host);
        let mut wal = current.wal.borrow().clone();
        let flushed = wal.flushed;
        wal.cut(flushed);
        *host.wal.borrow_mut() = wal;
        host.cut_off.set(false);
        host.guard.take();
        host.follows.set(Some(current.index));
        let allowed = current.file.borrow().allowed;
        world.configure(host, |file| file.allowed = allowed);
        self.start(host, State::Standby);
        world.judge.promises.borrow_mut().copied(host.index);
    }

    fn strike(&mut self, fault: &Fault, victim: Option<usize>) {
        self.world.clone().trace(|| format!("FAULT {fault:?}"));
        if self.apply(fault, victim) {
            self.world.faults.borrow_mut()[fault.kind()] += 1;
        }
    }

    /// Makes a fault happen, to the backend that it waited for if there is one. Returns whether there was a target.
    fn apply(&mut self, fault: &Fault, victim: Option<usize>) -> bool {
        let world = self.world.clone();
        let now = world.now.get();
        let host_of = |who: Who| world.host(if victim.is_some() { 0 } else { who });
        let backend_of = |who: Who, backend: usize| {
            host_of(who).backends.borrow()[victim.unwrap_or(backend) % world.plan.backends].clone()
        };
        match fault {
            Fault::Crash { who, down, clock } => self.fall(host_of(*who), *down, *clock, false),
            Fault::Restart { who, down, clock } => self.fall(host_of(*who), *down, *clock, true),
            Fault::Kill { who, down, .. } => self.fall(host_of(*who), *down / 4, None, false),
            Fault::Terminate { who, backend } | Fault::Cancel { who, backend } => {
                let Some(backend) = backend_of(*who, *backend) else { return false };
                backend.interrupt.set(Some(match fault {
                    Fault::Cancel { .. } => Interrupt::Cancel,
                    _ => Interrupt::Terminate,
                }));
                world.wake(&backend);
                true
            }
            Fault::Stop { who, backend, time } => {
                let Some(backend) = backend_of(*who, *backend) else { return false };
                backend.stopped.set(now + time);
                backend.host().disturb(now + time);
                true
            }
            Fault::Pause { who, time, wake } => {
                let host = host_of(*who);
                if host.state.get() == State::Down || host.paused.get() > 0 {
                    return false;
                }
                host.paused.set(now + time);
                host.clocks.stop(now);
                let (real, boot) = match wake {
                    Wake::Suspended => (false, false),
                    Wake::Set => (false, true),
                    Wake::Behind => (true, true),
                };
                world.after(*time, Item::GoOn { host: host.index, since: now + time, real, boot });
                host.disturb(now + time + 30 * MS);
                true
            }
            Fault::Clock { who, ms } => self.clock(host_of(*who), ms * MS.cast_signed()),
            Fault::ClockRight { who } => {
                let host = host_of(*who);
                self.clock(host, host.clocks.error_ns(now))
            }
            Fault::Names(names) => {
                let host = world.host(0);
                world.configure(host, |file| file.names = names.clone());
                host.disturb(now + 30 * MS);
                true
            }
            Fault::Settings { who, settings } => {
                let host = host_of(*who);
                world.configure(host, |file| file.settings = *settings);
                host.shared().behind.set(true);
                true
            }
            Fault::Cut { who, data, acks, time } => {
                let host = world.host(*who);
                if host.state.get() != State::Standby {
                    return false;
                }
                for (cut, is_cut) in [(&host.data_cut, data), (&host.acks_cut, acks)] {
                    if *is_cut {
                        cut.set(now + time);
                    }
                }
                host.disturb(now + time + 30 * MS);
                true
            }
            Fault::Slow { who, delay } => {
                world.host(*who).slow.set(*delay);
                true
            }
            Fault::Stall { who, time } => {
                let host = host_of(*who);
                host.stalled.set(now + time);
                host.disturb(now + time + 30 * MS);
                true
            }
            Fault::Promote { who, alive, back, clock } => {
                self.promote(world.host(*who), *alive, *back, *clock)
            }
            Fault::Backup => {
                let mut wal = world.host(0).wal.borrow().clone();
                let flushed = wal.flushed;
                wal.cut(flushed);
                *world.backup.borrow_mut() = Some(wal);
                true
            }
            Fault::Restore { down, clock } => self.restore(*down, *clock),
            Fault::Finish => self.finish(world.host(0)),
            Fault::Move { shard, listed_late } => self.begin_move(*shard % world.plan.shards, *listed_late),
        }
    }

    /// Begins to take a shard from the servers that have it. Their sessions read the change of the list one by one.
    fn begin_move(&self, shard: usize, listed_late: bool) -> bool {
        let world = &self.world;
        if world.moving.get().is_some() || world.lost.get() > 0 || !world.plan.other {
            return false;
        }
        let back = world.moved.borrow()[shard];
        world.moving.set(Some(Move { shard, back, listed_late, bound: None, opening: false }));
        world.moved_at.set(world.now.get());
        if !listed_late {
            world.list(back, |allowed| allowed & !(1 << shard));
        }
        true
    }

    fn clock(&self, host: &Host, ns: i64) -> bool {
        if host.paused.get() > 0 {
            return false;
        }
        self.world.set_clock(host, ns);
        true
    }

    /// Stops a server, and restarts it in the same role.
    fn fall(&mut self, host: &Host, down: Time, clock: Option<i64>, in_order: bool) -> bool {
        let world = self.world.clone();
        let primary = match host.state.get() {
            State::Down => return false,
            state => state == State::Primary,
        };
        if in_order {
            let inserted = host.wal.borrow().inserted;
            host.wal.borrow_mut().flush(inserted);
        }
        self.stop(host);
        if let Some(ms) = clock {
            world.set_clock(host, ms * MS.cast_signed());
        }
        world.after(down, Item::Up { host: host.index, primary, life: host.life.get() });
        host.disturb(world.now.get() + down + 30 * MS);
        true
    }

    /// Whether docs/guarantees.md promises that no id is lost when this standby takes over: commits wait for it, or for
    /// others that have no more than it has, and it has caught up with what existed when that began.
    fn is_synchronous(&self, primary: &Host, standby: &Host) -> bool {
        let has = |index: usize| self.world.hosts[index].wal.borrow().flushed;
        primary.guard.borrow().as_ref().is_some_and(|guard| {
            let listed = guard.names.listed();
            listed.contains(&standby.index)
                && has(standby.index) >= guard.since
                && listed.iter().all(|other| {
                    self.world.hosts[*other].follows.get() == Some(primary.index)
                        && has(*other) <= has(standby.index)
                })
        })
    }

    fn promote(&mut self, standby: &Host, alive: bool, back: Time, clock: Option<i64>) -> bool {
        let world = self.world.clone();
        let primary = world.host(0);
        let follows = standby.follows.get() == Some(primary.index);
        if standby.state.get() != State::Standby || !follows || standby.paused.get() > 0 {
            return false;
        }
        let synchronous = self.is_synchronous(primary, standby);
        if !synchronous && world.hosts.iter().any(|host| host.cut_off.get()) {
            return false;
        }
        world.list_late();
        if let Some(ms) = clock {
            world.set_clock(standby, ms * MS.cast_signed());
        }
        let alive = alive && synchronous && primary.state.get() == State::Primary;
        world.trace(|| {
            let how = if synchronous { "synchronous" } else { "asynchronous" };
            let old = if alive { "lives on" } else { "is dead" };
            let mark = standby.wal.borrow().durable;
            format!(
                "host {} is promoted, {how}, at the mark {mark}; host {} {old}",
                standby.index, primary.index
            )
        });
        if alive {
            primary.cut_off.set(true);
            primary.disturb(Time::MAX);
        } else {
            self.stop(primary);
        }
        for other in world.cluster(false) {
            if other.follows.get() == Some(primary.index) {
                world.unlink(other);
                other.follows.set(None);
            }
            let wait = if other.index == primary.index { back } else { back / 8 };
            world.after(wait, Item::Rejoin { host: other.index });
        }
        if synchronous {
            world.judge.promises.borrow_mut().takes_over(standby.index, primary.index, None);
        } else {
            self.lose(standby, primary);
        }
        standby.state.set(State::Primary);
        *standby.prepared.borrow_mut() = standby.wal.borrow().prepared();
        standby.guard.take();
        world.current.set(standby.index);
        self.begin(standby);
        world.look_at_guard(standby);
        true
    }

    /// Begins a server that may know less than was issued. Its clock has to have passed that.
    fn lose(&self, host: &Host, from: &Host) {
        let world = &self.world;
        let mut promises = world.judge.promises.borrow_mut();
        let (mark, issued) = (host.wal.borrow().durable, promises.latest_ms);
        promises.takes_over(host.index, from.index, Some(Lost { from_ms: mark, to_ms: issued }));
        if issued >= mark {
            world.lost.set(world.lost.get().max(issued));
        }
        for other in world.cluster(true) {
            world.set_clock(other, 0);
        }
    }

    fn restore(&mut self, down: Time, clock: Option<i64>) -> bool {
        let world = self.world.clone();
        let host = world.host(0);
        if host.state.get() == State::Down || world.hosts.iter().any(|host| host.cut_off.get()) {
            return false;
        }
        let Some(backup) = world.backup.borrow().clone() else { return false };
        self.fall(host, down, clock, false);
        *host.wal.borrow_mut() = backup;
        host.guard.take();
        self.lose(host, host);
        for other in world.cluster(false).iter().filter(|other| other.index != host.index) {
            world.unlink(other);
            other.follows.set(None);
            world.after(down, Item::Rejoin { host: other.index });
        }
        true
    }

    /// Commits a prepared transaction.
    fn finish(&self, host: &Host) -> bool {
        if host.state.get() != State::Primary {
            return false;
        }
        let Some(name) = host.prepared.borrow().keys().next().copied() else { return false };
        let lsn = host.wal.borrow_mut().insert(Some(Record::Finish(name)));
        host.wal.borrow_mut().flush(lsn);
        host.prepared.borrow_mut().remove(&name);
        true
    }

    /// Repairs everything, after which every backend must get ids.
    fn heal(&mut self) {
        let world = self.world.clone();
        let now = world.now.get();
        world.traps.set(false);
        world.armed.borrow_mut().clear();
        for host in &world.hosts {
            self.go_on(host, false, false);
            for until in [&host.data_cut, &host.acks_cut, &host.slow, &host.stalled] {
                until.set(0);
            }
        }
        let current = world.host(0);
        while self.finish(current) {}
        if current.state.get() != State::Down {
            self.stop(current);
        }
        let mark = current.wal.borrow().stored;
        let tick = current.clocks.tick(now);
        world.set_clock(current, (mark.saturating_sub(tick) * MS).cast_signed());
        self.start(current, State::Primary);
        for host in &world.hosts {
            host.calm.set(now);
            if host.index != current.index {
                self.rejoin(host);
            }
        }
        world.after(10 * MS, Item::Healed { until: now + 6000 * MS });
    }
}
