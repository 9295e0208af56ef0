//! Two servers, what their backends do, and what may happen to them.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use idgen_core::mark::{Clocks, Mark};
use idgen_core::mint::{Kept, Session};
use idgen_core::slot::Slot;
use idgen_ids::{Shard, Tick, decode, shard_of};
use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::replay::{Call, Outcome, Request, step};

/// What may happen in a world, and how much of it.
#[derive(Clone, Debug)]
pub struct World {
    /// Renewals wait for the other server to have flushed the mark too.
    pub synchronous: bool,
    /// The first server begins without synchronous standbys, and gets one while it mints. Ids minted before that
    /// may be repeated, just as earlier commits may be lost.
    pub begins: bool,
    /// The second server may be promoted, with the first one alive or dead, and back again.
    pub failover: bool,
    /// The first server has already published this mark, which its standby has too; 0 if it begins without one.
    pub mark: Tick,
    /// Clocks show ticks below this one.
    pub ticks: Tick,
    /// Shards that are minted for, 1 or 2.
    pub shards: usize,
    /// Ids in a history. Calls that fail count as ids, or there would be no end of them.
    pub ids: usize,
    /// Readings of the horizon in a history.
    pub readings: usize,
    /// Crashes and promotions in a history.
    pub faults: usize,
    /// Sets of a clock in a history.
    pub clock_sets: usize,
    /// Calls stop where they publish a start and read the floor, too.
    pub fine: bool,
    /// Omissions of what the promises rest on.
    pub broken: Option<Broken>,
    pub max_ahead: u64,
    pub max_wait: u64,
    pub reserve_ahead: u64,
    pub max_lease: u64,
}

/// What may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A mark is published that is not on disk.
    NotFlushed,
    /// Backends know of synchronous replication what they knew before, as if each read its own configuration and
    /// were inside of a long statement.
    StandbysRemembered,
    /// They look when they publish only: a limit that is there stays good.
    LimitNotLookedAt,
    /// The reader of the horizon does not raise the floor before it looks at the transactions.
    FloorNotRaised,
    /// A transaction publishes its start after it has read the floor.
    StartPublishedLate,
    /// It does not publish its start again if the clock has been set back since.
    StartNotPublishedAnew,
    /// The reader relies on a floor that the standby may not have.
    FloorNotShared,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    Primary,
    Standby,
    Down,
}

/// The caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    Backend(usize),
    Reader,
}

/// A mark, compared without its measurements: no clock jumps too far in these worlds.
#[derive(Clone, Copy, Debug)]
pub struct Essence(pub Mark);

impl Essence {
    fn of(&self) -> impl Hash + PartialEq + use<> {
        let Essence(mark) = self;
        let written = [mark.written(false), mark.written(true)];
        (
            mark.loaded(),
            mark.floor(),
            mark.run_floor(),
            mark.settled(),
            mark.limit(false),
            mark.limit(true),
            written,
        )
    }
}

impl PartialEq for Essence {
    fn eq(&self, other: &Essence) -> bool {
        self.of() == other.of()
    }
}

impl Hash for Essence {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.of().hash(hasher);
    }
}

#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Backend {
    call: Option<Call>,
    kept: Kept,
    /// Its last id of each shard.
    last: [Option<i64>; 2],
    /// Whether commits waited for standbys when it read the limit of its lease.
    waited: bool,
    /// The ids of its open transaction, where there is a reader to look for them.
    open: Vec<i64>,
    /// It has committed, others see its rows, and nobody has been told yet.
    visible: bool,
}

const NEW: Backend = Backend {
    call: None,
    kept: Kept::NOTHING,
    last: [None; 2],
    waited: false,
    open: Vec::new(),
    visible: false,
};

#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Node {
    pub role: Role,
    pub clock: Tick,
    /// Synchronous standbys have to acknowledge commits, and marks.
    pub standbys: bool,
    /// The stored mark in memory, which a crash loses.
    pub written: Tick,
    /// The stored mark as recovery would find it.
    pub flushed: Tick,
    pub mark: Essence,
    pub slots: [Slot<Shard>; 2],
    pub starts: [Tick; 2],
    backends: [Backend; 2],
    reader: Option<Call>,
    /// The greatest tick issued by this run of the server.
    issued: Option<Tick>,
}

impl Node {
    fn start(role: Role, clock: Tick, flushed: Tick, standbys: bool) -> Node {
        Node {
            role,
            clock,
            standbys,
            written: flushed,
            flushed,
            mark: Essence(Mark::default()),
            slots: [Slot::default(); 2],
            starts: [Tick::MAX; 2],
            backends: [NEW; 2],
            reader: None,
            issued: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Hash)]
pub struct State {
    nodes: [Node; 2],
    /// Which server has issued an id, and whether no other may.
    issued: BTreeMap<i64, (usize, bool)>,
    repeated: bool,
    disordered: bool,
    /// The greatest horizon that a reader was ever given.
    horizon: i64,
    gone_back: bool,
    minted_below: bool,
    calls: usize,
    readings: usize,
    faults: usize,
    clock_sets: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A backend calls for an id of a shard.
    Call(usize, usize, usize),
    /// The next step of a backend's call.
    Go(usize, usize),
    /// A backend ends: an error, a cancel, a disconnect.
    End(usize, usize),
    /// A transaction commits or rolls back: its rows are seen, or gone.
    Commit(usize, usize),
    /// Others are told that it has.
    Tell(usize, usize),
    /// A reader asks for the horizon.
    Read(usize),
    /// The next step of that backend.
    GoRead(usize),
    /// Somebody else flushes the WAL: a commit, the WAL writer, a checkpoint.
    FlushByOther(usize),
    /// The standby receives and flushes what the primary has flushed.
    Replicate,
    /// A server crashes (kill -9, power) and restarts in the same role.
    Crash(usize),
    /// A server is gone for good, or until it joins again.
    Stop(usize),
    /// A standby becomes primary, whatever the other server does.
    Promote(usize),
    /// A server restarts as a standby of the other one, with a copy of its data.
    Join(usize),
    /// A clock is set.
    Set(usize, Tick),
    /// The first server is given a synchronous standby.
    Begin,
}

impl World {
    fn go(&self, state: &mut State, n: usize, b: usize) -> Option<()> {
        let standby = (state.nodes[1 - n].role == Role::Standby).then_some(state.nodes[1 - n].flushed);
        let node = &mut state.nodes[n];
        let mut call = node.backends[b].call.take()?;
        let session = Session::new(node.backends[b].kept);
        match step(self, node, standby, Party::Backend(b), &mut call, &session) {
            Outcome::Blocked => return None,
            Outcome::Stopped => node.backends[b].call = Some(call),
            Outcome::Ended(result, waited) => {
                let backend = &mut node.backends[b];
                backend.kept = session.kept();
                let Ok(id) = result else { return Some(()) };
                backend.waited = waited.unwrap_or(backend.waited);
                let last = backend.last[shard_of(id).index()].replace(id);
                state.disordered |= last >= Some(id);
                if self.readings > 0 {
                    backend.open.push(id);
                    state.minted_below |= id < state.horizon;
                }
                node.issued = node.issued.max(Some(decode(id).tick));
                // Ids that the first server hands out once commits wait for its standby are not repeated by anyone.
                let kept = !self.begins || n == 0 && backend.waited;
                let before = state.issued.insert(id, (n, kept));
                state.repeated |= before.is_some_and(|(server, before)| server == n || kept || before);
            }
        }
        Some(())
    }

    fn go_read(&self, state: &mut State, n: usize) -> Option<()> {
        let standby = (state.nodes[1 - n].role == Role::Standby).then_some(state.nodes[1 - n].flushed);
        let node = &mut state.nodes[n];
        let mut call = node.reader.take()?;
        match step(self, node, standby, Party::Reader, &mut call, &Session::new(Kept::NOTHING)) {
            Outcome::Blocked => return None,
            Outcome::Stopped => node.reader = Some(call),
            Outcome::Ended(Ok(horizon), _) => {
                state.gone_back |= horizon < state.horizon;
                state.horizon = state.horizon.max(horizon);
            }
            Outcome::Ended(Err(_), _) => {}
        }
        Some(())
    }

    fn start(&self, state: &mut State, n: usize, role: Role, flushed: Tick) {
        let Node { clock, standbys, .. } = state.nodes[n];
        state.nodes[n] = Node::start(role, clock, flushed, standbys || self.synchronous);
    }
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let other = if self.failover || self.synchronous { Role::Standby } else { Role::Down };
        let mut nodes = [Role::Primary, other].map(|role| Node::start(role, 1, self.mark, self.synchronous));
        if self.mark > 0 {
            let Essence(mark) = &mut nodes[0].mark;
            mark.load(0);
            mark.publish(self.mark, true, Clocks::default(), 0);
            mark.renewals = 0;
        }
        vec![State {
            nodes,
            issued: BTreeMap::new(),
            repeated: false,
            disordered: false,
            horizon: i64::MIN,
            gone_back: false,
            minted_below: false,
            calls: 0,
            readings: 0,
            faults: 0,
            clock_sets: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (n, node) in state.nodes.iter().enumerate() {
            let other = &state.nodes[1 - n];
            if node.role == Role::Primary {
                for (b, backend) in node.backends.iter().enumerate() {
                    if backend.call.is_some() {
                        actions.push(Action::Go(n, b));
                    } else if backend.visible {
                        actions.push(Action::Tell(n, b));
                    } else {
                        if state.calls < self.ids {
                            actions.extend((0..self.shards).map(|shard| Action::Call(n, b, shard)));
                        }
                        if !backend.open.is_empty() {
                            actions.push(Action::Commit(n, b));
                        }
                    }
                    // A transaction that ends in the midst of a call has minted nothing by it.
                    if *backend != NEW && self.readings == 0 {
                        actions.push(Action::End(n, b));
                    }
                }
                if node.reader.is_some() {
                    actions.push(Action::GoRead(n));
                } else if state.readings < self.readings {
                    actions.push(Action::Read(n));
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
            if n == 0 && node.role == Role::Primary && self.begins && !node.standbys {
                actions.push(Action::Begin);
            }
            // If a promoted server is made a standby again, its ids are lost deliberately.
            let joins = self.failover && (!self.begins || n == 0);
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
        let call = |request| Some(Call { request, answers: Vec::new() });
        match action {
            Action::Call(n, b, shard) => {
                next.calls += 1;
                next.nodes[n].backends[b].call = call(Request::Id(shard));
                self.go(&mut next, n, b)?;
            }
            Action::Go(n, b) => self.go(&mut next, n, b)?,
            Action::End(n, b) => next.nodes[n].backends[b] = NEW,
            Action::Commit(n, b) => {
                next.nodes[n].backends[b].open.clear();
                next.nodes[n].backends[b].visible = true;
            }
            Action::Tell(n, b) => {
                let backend = &mut next.nodes[n].backends[b];
                let session = Session::new(backend.kept);
                session.transaction_ended();
                (backend.kept, backend.visible) = (session.kept(), false);
                next.nodes[n].starts[b] = Tick::MAX;
            }
            Action::Read(n) => {
                next.readings += 1;
                next.nodes[n].reader = call(Request::Horizon);
                self.go_read(&mut next, n)?;
            }
            Action::GoRead(n) => self.go_read(&mut next, n)?,
            Action::FlushByOther(n) => next.nodes[n].flushed = next.nodes[n].written,
            Action::Replicate => {
                let flushed = next.nodes.iter().map(|node| node.flushed).max().unwrap();
                let standby = next.nodes.iter_mut().find(|node| node.role == Role::Standby).unwrap();
                (standby.flushed, standby.written) = (flushed, flushed);
            }
            Action::Crash(n) => {
                let Node { role, flushed, .. } = next.nodes[n];
                self.start(&mut next, n, role, flushed);
                next.faults += 1;
            }
            Action::Stop(n) => {
                let flushed = next.nodes[n].flushed;
                self.start(&mut next, n, Role::Down, flushed);
                next.faults += 1;
            }
            Action::Promote(n) => {
                next.nodes[n].role = Role::Primary;
                next.faults += 1;
            }
            Action::Join(n) => {
                let flushed = next.nodes[1 - n].flushed;
                self.start(&mut next, n, Role::Standby, flushed);
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
            Property::always(NO_ID_TWICE, |_, state: &State| !state.repeated),
            Property::always("ids of a backend and a shard increase", |_, state: &State| !state.disordered),
            Property::always("issued < limit", |_, state: &State| {
                state.nodes.iter().all(|node| node.issued.is_none_or(|tick| tick < node.mark.0.limit(false)))
            }),
            Property::always("limit <= durable", |_, state: &State| {
                state.nodes.iter().all(|node| node.mark.0.limit(false) <= node.flushed)
            }),
            Property::always("limit <= acknowledged", |_, state: &State| {
                (0..2).all(|n| {
                    let [node, other] = [&state.nodes[n], &state.nodes[1 - n]];
                    other.role != Role::Standby || !node.standbys || node.mark.0.limit(true) <= other.flushed
                })
            }),
            Property::always(SETTLED, |_, state: &State| {
                let open =
                    state.nodes.iter().flat_map(|node| &node.backends).flat_map(|backend| &backend.open);
                !state.minted_below && open.min().is_none_or(|id| *id >= state.horizon)
            }),
            Property::always(NEVER_BACK, |_, state: &State| !state.gone_back),
            // The worlds are not empty: ids come out of them, also after what goes wrong, and horizons above some.
            Property::sometimes(ALIVE, |world: &World, state: &State| {
                let passed = state.issued.keys().next().is_some_and(|id| *id < state.horizon);
                state.issued.len() >= world.ids
                    && state.faults == world.faults
                    && (passed || world.readings == 0)
            }),
        ]
    }
}

pub const NO_ID_TWICE: &str = "no id twice";
pub const SETTLED: &str = "below the horizon all is settled";
pub const NEVER_BACK: &str = "the horizon never goes back";
const ALIVE: &str = "ids are minted";

/// Explores a world, up to the first property that does not hold and `enough` of those that are searched for;
/// returns the names of those that do not hold.
pub fn explore(name: &str, world: World, enough: &[&'static str]) -> Vec<&'static str> {
    let enough = HasDiscoveries::AnyOf(enough.iter().copied().collect());
    let checker = world.checker().threads(2).finish_when(enough).spawn_bfs().join();
    println!("{name}: {} states explored", checker.unique_state_count());
    let mut failed: Vec<_> = checker.discoveries().into_keys().filter(|name| *name != ALIVE).collect();
    failed.sort_unstable();
    if failed.is_empty() {
        checker.assert_any_discovery(ALIVE);
    }
    failed
}
