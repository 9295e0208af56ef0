//! A model of two servers that mint for one shard. It drives the real slot, lease and reservation
//! through every interleaving of a small world and checks promise 1 in each state it reaches.
//!
//! The steps that a crash can fall between are steps of the model: read the clock and the bounds,
//! take, plan, write, flush, be acknowledged, publish. Clocks jump at will. Claims are left out: any
//! backend may renew at any time, which is more than they allow.
#![allow(clippy::unwrap_used)]

#[path = "model/horizon.rs"]
mod horizon;
#[path = "../src/layout.rs"]
#[allow(dead_code)]
mod layout;
#[path = "../src/lease.rs"]
mod lease;
#[path = "../src/reservation.rs"]
#[allow(dead_code)]
mod reservation;
#[path = "../src/slot.rs"]
#[allow(dead_code)]
mod slot;

use std::collections::{BTreeMap, BTreeSet};

use stateright::{Checker, HasDiscoveries, Model, Property};

use layout::{Position, Shard, Tick, tick_of};
use lease::Lease;
use reservation::{Clocks, Mark, Plan, Reservation, Rules};
use slot::{Bounds, Refusal, Run, Slot};

/// What may happen in a world, and how much of it.
#[derive(Clone, Debug)]
struct World {
    /// Renewals wait for the other server to have flushed the mark too.
    synchronous: bool,
    /// The first server begins without synchronous standbys, and is given one while it mints. What it has
    /// minted before that may come again, as its commits of before may be lost.
    begins: Option<Begins>,
    /// The new mark is flushed before it is published, as it should be.
    flush: bool,
    /// The second server may be promoted, with the first one alive or dead, and back again.
    failover: bool,
    /// Clocks show ticks below this one.
    ticks: Tick,
    /// Ids in a history.
    ids: usize,
    /// Crashes and promotions in a history.
    faults: usize,
    /// Sets of a clock in a history.
    clock_sets: usize,
    max_ahead: u64,
    queue: u64,
    reserve_ahead: u64,
    max_lease: u64,
}

/// What a backend knows of synchronous replication that begins under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begins {
    /// What commits know: it looks when it takes a run, and when it publishes.
    Looked,
    /// What it knew before, as if it read its own configuration and were inside of a long statement.
    Remembered,
    /// It looks when it publishes only: a limit that is there stays good.
    LookedOnce,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Role {
    Primary,
    Standby,
    Down,
}

/// Where a backend is in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Idle,
    /// It has read the clock and the bounds, and holds no lock yet.
    Read {
        now: Tick,
        floor: Tick,
        limit: Tick,
    },
    /// It has a run, and waits until the clock has come so far.
    Queued {
        run: Run,
    },
    /// It has decided on a mark.
    Planned {
        mark: Tick,
    },
    /// The mark is in the WAL's buffers.
    Written {
        mark: Tick,
    },
    /// The mark is on this server's disk.
    Flushed {
        mark: Tick,
    },
    /// The mark is on the other server's disk too, where that is asked for.
    Acknowledged {
        mark: Tick,
        by_standby: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Backend {
    step: Step,
    lease: Lease,
    last: Option<Position>,
    /// Whether commits waited for standbys when it read the bounds.
    read_with: bool,
}

const NEW: Backend = Backend { step: Step::Idle, lease: Lease::NONE, last: None, read_with: false };

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Node {
    role: Role,
    clock: Tick,
    /// Synchronous standbys have to acknowledge commits, and marks.
    standbys: bool,
    /// The register in memory, which a crash loses.
    written: Tick,
    /// The register as recovery would find it.
    flushed: Tick,
    reservation: Reservation,
    slot: Slot,
    backends: [Backend; 2],
    /// The greatest tick issued by this run of the server.
    issued: Option<Tick>,
}

impl Node {
    fn start(role: Role, clock: Tick, flushed: Tick) -> Node {
        Node {
            role,
            clock,
            standbys: false,
            written: flushed,
            flushed,
            reservation: Reservation::default(),
            slot: Slot::default(),
            backends: [NEW; 2],
            issued: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    nodes: [Node; 2],
    /// Which server has issued a position, and whether no other may.
    issued: BTreeMap<Position, (usize, bool)>,
    repeated: bool,
    disordered: bool,
    faults: usize,
    clock_sets: usize,
    /// Runs that were waited for in vain; they count as ids, or there would be no end of them.
    given_up: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// The next step of a backend's call.
    Go(usize, usize),
    /// A backend ends: an error, a cancel, a disconnect.
    End(usize, usize),
    /// Somebody else flushes the WAL: a commit, the WAL writer, a checkpoint.
    FlushByOther(usize),
    /// The standby receives and flushes what the primary has flushed.
    Replicate,
    /// A server crashes (kill -9, power) and starts again as what it was.
    Crash(usize),
    /// A server is gone for good, or until it joins again.
    Stop(usize),
    /// A standby becomes primary, whatever the other one does.
    Promote(usize),
    /// A server starts again as standby of the other, with a copy of its data.
    Join(usize),
    /// A clock is set.
    Set(usize, Tick),
    /// The first server is given a synchronous standby.
    Begin,
}

fn shard() -> Shard {
    Shard::try_from(5).unwrap()
}

impl World {
    fn start(&self, role: Role, clock: Tick, flushed: Tick) -> Node {
        Node { standbys: self.synchronous, ..Node::start(role, clock, flushed) }
    }

    fn go(&self, state: &mut State, n: usize, b: usize) -> Option<()> {
        let standby = (state.nodes[1 - n].role == Role::Standby).then_some(state.nodes[1 - n].flushed);
        let node = &mut state.nodes[n];
        let backend = &mut node.backends[b];
        let mut minted = None;
        let standbys = match self.begins {
            Some(Begins::Remembered) => false,
            _ => node.standbys,
        };
        match backend.step {
            Step::Idle => {
                let (now, floor) = (node.clock, node.reservation.floor());
                minted = backend.lease.next(shard(), now, floor);
                if minted.is_none() {
                    backend.read_with = node.standbys;
                    let looks = standbys && self.begins != Some(Begins::LookedOnce);
                    backend.step = Step::Read { now, floor, limit: node.reservation.limit(looks) };
                }
            }
            Step::Read { now, floor, limit } => {
                let bounds = Bounds { now, floor, max_ahead: self.max_ahead, queue: self.queue, limit };
                match node.slot.take::<Shard>(backend.lease.want(shard(), now, self.max_lease), &bounds) {
                    Ok(run) => {
                        node.slot.leases = 0;
                        backend.step = if run.due::<Shard>(self.max_ahead) <= now {
                            minted = Some(backend.lease.grant(shard(), now, run));
                            Step::Idle
                        } else {
                            Step::Queued { run }
                        };
                    }
                    Err(Refusal::Limit { .. }) if !node.reservation.loaded() => {
                        node.reservation.load(node.written);
                        backend.step = Step::Idle;
                    }
                    Err(Refusal::Limit { tick }) => {
                        let clocks = Clocks { now: node.clock, boot_ms: 0 };
                        let rules = Rules {
                            max_ahead: self.max_ahead + self.queue,
                            reserve_ahead: self.reserve_ahead,
                            max_jump: None,
                            standbys,
                        };
                        backend.step = match node.reservation.plan(clocks, tick, rules) {
                            Ok(Plan::Write(mark)) => Step::Planned { mark },
                            Ok(Plan::Await(mark)) => Step::Written { mark: mark.tick },
                            Err(_) => Step::Idle,
                        };
                    }
                    Err(_) => backend.step = Step::Idle,
                }
            }
            Step::Queued { run } => {
                let due = run.due::<Shard>(self.max_ahead);
                if node.clock < due {
                    return None;
                }
                let (floor, limit) = (node.reservation.floor(), node.reservation.limit(standbys));
                if (floor..limit).contains(&tick_of(run.start)) {
                    minted = Some(backend.lease.grant(shard(), due, run));
                } else {
                    state.given_up += 1;
                }
                backend.step = Step::Idle;
            }
            Step::Planned { mark } => {
                node.written = node.written.max(mark);
                // A later record has a greater place in the WAL, which the register's value stands for here.
                node.reservation.wrote(Mark { tick: mark, lsn: 0 }, standbys);
                backend.step = Step::Written { mark };
            }
            Step::Written { mark } => {
                if self.flush {
                    node.flushed = node.flushed.max(node.written);
                }
                backend.step = Step::Flushed { mark };
            }
            Step::Flushed { mark } => {
                if standbys && standby.is_none_or(|flushed| flushed < mark) {
                    return None;
                }
                backend.step = Step::Acknowledged { mark, by_standby: standbys };
            }
            Step::Acknowledged { mark, by_standby } => {
                node.reservation.publish(mark, by_standby, Clocks::default(), 0);
                // Counters would only multiply the states.
                node.reservation.renewals = 0;
                backend.step = Step::Idle;
            }
        }
        if let Some(position) = minted {
            state.disordered |= backend.last >= Some(position);
            backend.last = Some(position);
            node.issued = node.issued.max(Some(tick_of(position)));
            // What the first server hands out once commits wait for its standby is nobody else's.
            let kept = self.begins.is_none() || n == 0 && backend.read_with;
            let before = state.issued.insert(position, (n, kept));
            state.repeated |= before.is_some_and(|(server, before)| server == n || kept || before);
        }
        Some(())
    }
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let other = if self.failover || self.synchronous { Role::Standby } else { Role::Down };
        vec![State {
            nodes: [self.start(Role::Primary, 1, 0), self.start(other, 1, 0)],
            issued: BTreeMap::new(),
            repeated: false,
            disordered: false,
            faults: 0,
            clock_sets: 0,
            given_up: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (n, node) in state.nodes.iter().enumerate() {
            let other = &state.nodes[1 - n];
            if node.role == Role::Primary {
                for b in 0..2 {
                    let room = state.issued.len() + state.given_up < self.ids;
                    if room || node.backends[b].step != Step::Idle {
                        actions.push(Action::Go(n, b));
                    }
                    if node.backends[b] != NEW {
                        actions.push(Action::End(n, b));
                    }
                }
                if node.flushed < node.written {
                    actions.push(Action::FlushByOther(n));
                }
                if other.role == Role::Standby && other.flushed < node.flushed {
                    actions.push(Action::Replicate);
                }
            }
            if state.faults < self.faults {
                if node.role == Role::Primary {
                    actions.push(Action::Crash(n));
                    if self.failover {
                        actions.push(Action::Stop(n));
                    }
                }
                if node.role == Role::Standby && self.failover {
                    actions.push(Action::Promote(n));
                }
            }
            if n == 0 && node.role == Role::Primary && self.begins.is_some() && !node.standbys {
                actions.push(Action::Begin);
            }
            // Where a promoted server is made a standby again, its ids are lost by the one who does that.
            let joins = self.failover && (self.begins.is_none() || n == 0);
            if node.role != Role::Standby && other.role == Role::Primary && joins {
                actions.push(Action::Join(n));
            }
            if node.role == Role::Primary && state.clock_sets < self.clock_sets {
                actions.extend((0..self.ticks).filter(|t| *t != node.clock).map(|t| Action::Set(n, t)));
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Go(n, b) => self.go(&mut next, n, b)?,
            Action::End(n, b) => {
                let backend = std::mem::replace(&mut next.nodes[n].backends[b], NEW);
                next.given_up += usize::from(matches!(backend.step, Step::Queued { .. }));
            }
            Action::FlushByOther(n) => next.nodes[n].flushed = next.nodes[n].written,
            Action::Replicate => {
                let flushed = next.nodes.iter().map(|node| node.flushed).max().unwrap();
                let standby = next.nodes.iter_mut().find(|node| node.role == Role::Standby).unwrap();
                (standby.flushed, standby.written) = (flushed, flushed);
            }
            Action::Crash(n) => {
                let Node { role, clock, flushed, .. } = next.nodes[n];
                let standbys = next.nodes[n].standbys;
                next.nodes[n] = Node { standbys, ..Node::start(role, clock, flushed) };
                next.faults += 1;
            }
            Action::Stop(n) => {
                let Node { clock, flushed, .. } = next.nodes[n];
                next.nodes[n] = self.start(Role::Down, clock, flushed);
                next.faults += 1;
            }
            Action::Promote(n) => {
                next.nodes[n].role = Role::Primary;
                next.faults += 1;
            }
            Action::Join(n) => {
                let flushed = next.nodes[1 - n].flushed;
                next.nodes[n] = self.start(Role::Standby, next.nodes[n].clock, flushed);
            }
            Action::Set(n, tick) => {
                next.nodes[n].clock = tick;
                next.clock_sets += 1;
            }
            Action::Begin => next.nodes[0].standbys = true,
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<World>> {
        vec![
            Property::always("no id twice", |_, state: &State| !state.repeated),
            Property::always("ids of a backend increase", |_, state: &State| !state.disordered),
            Property::always("issued < limit", |_, state: &State| {
                state
                    .nodes
                    .iter()
                    .all(|node| node.issued.is_none_or(|tick| tick < node.reservation.limit(false)))
            }),
            Property::always("limit <= durable", |_, state: &State| {
                state.nodes.iter().all(|node| node.reservation.limit(false) <= node.flushed)
            }),
            Property::always("limit <= acknowledged", |_, state: &State| {
                (0..2).all(|n| {
                    let [node, other] = [&state.nodes[n], &state.nodes[1 - n]];
                    other.role != Role::Standby
                        || !node.standbys
                        || node.reservation.limit(true) <= other.flushed
                })
            }),
            // The worlds are not empty: ids come out of them, also after what goes wrong.
            Property::sometimes("ids are minted", |world: &World, state: &State| {
                state.issued.len() >= world.ids && state.faults == world.faults
            }),
        ]
    }
}

/// One server that crashes and whose clock is set at will.
const ONE_SERVER: World = World {
    synchronous: false,
    begins: None,
    flush: true,
    failover: false,
    ticks: 4,
    ids: 3,
    faults: 2,
    clock_sets: 2,
    max_ahead: 1,
    queue: 0,
    reserve_ahead: 1,
    max_lease: 2,
};

/// The same with fewer faults, where backends queue for milliseconds that the clock has not reached.
const QUEUEING: World = World { queue: 1, max_ahead: 0, faults: 1, ..ONE_SERVER };

/// Two servers with synchronous replication; either may be promoted while the other lives.
const SYNCHRONOUS: World = World {
    synchronous: true,
    failover: true,
    faults: 2,
    ticks: 3,
    max_lease: 1,
    clock_sets: 1,
    ..ONE_SERVER
};

/// Synchronous replication begins while the first server mints; the second may be promoted, and the first lives
/// on. The clocks stand still: where they go on, two servers repeat less.
const BEGINNING: World = World {
    begins: Some(Begins::Looked),
    failover: true,
    faults: 1,
    ticks: 3,
    max_lease: 1,
    clock_sets: 0,
    ..ONE_SERVER
};

/// Explores a world; the names of the properties that do not hold.
fn explore(name: &str, world: World) -> Vec<&'static str> {
    // A repeated id is what the worlds are about; where there is none, all of the world is explored.
    let enough = HasDiscoveries::AnyOf(BTreeSet::from(["no id twice"]));
    let checker = world.checker().threads(2).finish_when(enough).spawn_bfs().join();
    println!("{name}: {} states explored", checker.unique_state_count());
    let failed = checker.discoveries().into_keys();
    let mut failed: Vec<_> = failed.filter(|name| *name != "ids are minted").collect();
    failed.sort_unstable();
    if failed.is_empty() {
        checker.assert_any_discovery("ids are minted");
    }
    failed
}

/// Promise 1 for a server alone: crashes, killed backends, clocks.
#[test]
fn one_server_repeats_nothing() {
    assert_eq!(explore("one server", ONE_SERVER), [] as [&str; 0]);
}

/// Promise 1 where backends queue: a run waited for is not used after a crash or a step of the clock.
#[test]
fn those_who_queue_repeat_nothing() {
    assert_eq!(explore("queueing", QUEUEING), [] as [&str; 0]);
}

/// Promise 1 with synchronous replication: failover and failback, the old primary alive or dead,
/// whatever the clocks show.
#[test]
fn synchronous_failover_repeats_nothing() {
    assert_eq!(explore("synchronous failover", SYNCHRONOUS), [] as [&str; 0]);
}

/// Promise 1: from the moment at which commits wait for a standby, so do ids, whatever backends and limits were
/// on their way: what is minted from then on, a promoted standby does not mint.
#[test]
fn ids_wait_for_standbys_as_soon_as_commits_do() {
    assert_eq!(explore("synchronous replication begins", BEGINNING), [] as [&str; 0]);
}

/// It takes both looks: a backend that goes by the configuration as it was when its call began, and a limit
/// that outlives the change, each repeat an id.
#[test]
fn ids_that_do_not_look_for_standbys_repeat() {
    for begins in [Begins::Remembered, Begins::LookedOnce] {
        let failed = explore(&format!("{begins:?}"), World { begins: Some(begins), ..BEGINNING });
        assert!(failed.contains(&"no id twice"), "{begins:?}: {failed:?}");
    }
}

/// What is not promised: with asynchronous replication a primary that lives on after the promotion
/// mints what the new one mints.
#[test]
fn asynchronous_failover_with_the_old_primary_alive_repeats() {
    let failed = explore("asynchronous failover", World { synchronous: false, ..SYNCHRONOUS });
    assert!(failed.contains(&"no id twice"), "{failed:?}");
}

/// The model can fail: without the flush it finds the repeated id.
#[test]
fn without_the_flush_a_crash_repeats() {
    let failed = explore("no flush", World { flush: false, ..ONE_SERVER });
    assert!(failed.contains(&"no id twice"), "{failed:?}");
}
