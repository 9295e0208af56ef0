//! A model of `snowflake_safe_horizon`: two backends mint in transactions for two shards, a third one asks
//! for the horizon, and the clock jumps. It drives the real slot, lease and floor through every interleaving
//! of a small world. The server may crash and start again, or its synchronous standby take over, between any
//! two steps.
//!
//! The steps between which another process can come are steps of the model. Memory is sequentially
//! consistent here, which the fences of shmem.rs see to.

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::layout::{MAX_TICK, Shard, Tick, tick_of};
use crate::lease::Lease;
use crate::reservation::{Clocks, Reservation};
use crate::slot::{Bounds, Slot};

/// What is done, as it should be, and how much of it.
#[derive(Clone, Debug)]
struct World {
    /// The reader raises the floor before it looks at the transactions.
    raise: bool,
    /// A transaction publishes its start before it reads the floor.
    publish_first: bool,
    /// It publishes anew where the clock has been set back since.
    publish_anew: bool,
    /// A run of the server begins with everything below its floor settled.
    settled_below_floor: bool,
    /// The standby has the floor before the reader relies on it.
    share_floor: bool,
    ticks: Tick,
    mints: usize,
    readings: usize,
    clock_sets: usize,
    /// How often the mark is written anew. Without, the limit never ends and there is no way back from a crash.
    renewals: usize,
    /// Crashes and failovers.
    faults: usize,
}

const WORLD: World = World {
    raise: true,
    publish_first: true,
    publish_anew: true,
    settled_below_floor: true,
    share_floor: true,
    ticks: 3,
    mints: 3,
    readings: 2,
    clock_sets: 2,
    renewals: 0,
    faults: 0,
};

/// The same over the end of a run, by a crash or a failover.
const RUNS: World = World { mints: 2, clock_sets: 1, renewals: 2, faults: 1, ..WORLD };

/// The same with fewer ids over several runs.
const MORE_RUNS: World = World { mints: 1, faults: 2, ..RUNS };

/// How many ticks a new mark lies after the one before.
const RESERVE: Tick = 2;

/// Where a backend is in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Idle,
    Clock {
        shard: usize,
        now: Tick,
    },
    Published {
        shard: usize,
        now: Tick,
    },
    Floor {
        shard: usize,
        now: Tick,
        floor: Tick,
    },
    /// It has committed, and others see its rows.
    Visible,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Backend {
    step: Step,
    lease: Lease,
    /// What the backend remembers to have published.
    started: Tick,
    /// The ticks of the ids of its open transaction.
    open: Vec<Tick>,
}

const NEW: Backend = Backend { step: Step::Idle, lease: Lease::NONE, started: Tick::MAX, open: Vec::new() };

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Reader {
    Idle,
    Clock(Tick),
    Looking { next: usize, least: Tick },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    clock: Tick,
    reservation: Reservation,
    slots: [Slot; 2],
    starts: [Tick; 2],
    backends: [Backend; 2],
    reader: Reader,
    /// The mark as a restart would find it.
    stored: Tick,
    /// The mark as a standby that takes over would find it.
    acknowledged: Tick,
    /// What this run has found settled, where it does not begin at the floor.
    settled: Tick,
    /// The greatest horizon that a reader was ever given.
    horizon: Tick,
    gone_back: bool,
    minted_below: bool,
    mints: usize,
    readings: usize,
    clock_sets: usize,
    renewals: usize,
    faults: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// A call begins, for a shard.
    Call(usize, usize),
    Go(usize),
    /// The transaction commits or rolls back.
    End(usize),
    Read,
    Set(Tick),
    /// A greater mark is written and flushed.
    Write,
    /// The standby has flushed what the primary has.
    Acknowledge,
    /// The mark is published.
    Publish,
    /// The server crashes, and starts again.
    Crash,
    /// The server is gone, and its standby takes over. It has one of its own, which has what it has.
    FailOver,
}

fn shard(index: usize) -> Shard {
    Shard::try_from(index as i32).unwrap()
}

impl State {
    /// Publishes the stored mark.
    fn publish(&mut self) {
        self.reservation.publish(self.stored, true, Clocks::default(), 0);
        // Counters would only multiply the states.
        self.reservation.renewals = 0;
    }

    /// A run of the server begins with the stored mark; open transactions are gone.
    fn start(&mut self) {
        self.faults += 1;
        self.reservation = Reservation::default();
        self.reservation.load(self.stored);
        (self.slots, self.starts, self.backends) = ([Slot::default(); 2], [Tick::MAX; 2], [NEW; 2]);
        (self.reader, self.settled) = (Reader::Idle, 0);
    }
}

impl World {
    fn go(&self, state: &mut State, b: usize) {
        let backend = &mut state.backends[b];
        let publish = |backend: &mut Backend, start: &mut Tick, now: Tick| {
            if now < backend.started && (self.publish_anew || backend.started == Tick::MAX) {
                backend.started = now;
                *start = now.min(*start);
            }
        };
        let (shard_of_call, now, floor) = match backend.step {
            Step::Clock { shard, now } => {
                if self.publish_first {
                    publish(backend, &mut state.starts[b], now);
                }
                backend.step = Step::Published { shard, now };
                return;
            }
            Step::Published { shard, now } => {
                backend.step = Step::Floor { shard, now, floor: state.reservation.floor() };
                return;
            }
            Step::Visible => {
                state.starts[b] = Tick::MAX;
                (backend.started, backend.step) = (Tick::MAX, Step::Idle);
                return;
            }
            Step::Floor { shard, now, floor } => (shard, now, floor),
            Step::Idle => return,
        };
        publish(backend, &mut state.starts[b], now);
        let position = backend.lease.next(shard(shard_of_call), now, floor).or_else(|| {
            let bounds = Bounds { now, floor, max_ahead: 10, queue: 0, limit: state.reservation.limit(true) };
            let want = backend.lease.want(shard(shard_of_call), now, 2);
            let run = state.slots[shard_of_call].take::<Shard>(want, &bounds).ok()?;
            state.slots[shard_of_call].leases = 0;
            Some(backend.lease.grant(shard(shard_of_call), now, run))
        });
        backend.step = Step::Idle;
        // There is none while the mark is not renewed.
        if let Some(tick) = position.map(tick_of) {
            state.minted_below |= tick < state.horizon;
            backend.open.push(tick);
        }
    }

    fn read(&self, state: &mut State) {
        state.reader = match state.reader {
            Reader::Idle => Reader::Clock(state.clock),
            Reader::Clock(now) => {
                let mut raised = state.reservation;
                let least = raised.raise_floor(now, true);
                if self.raise {
                    state.reservation = raised;
                }
                Reader::Looking { next: 0, least }
            }
            Reader::Looking { next, least } if next < state.starts.len() => {
                Reader::Looking { next: next + 1, least: least.min(state.starts[next]) }
            }
            Reader::Looking { least, .. } => {
                state.settled = state.settled.max(least);
                let found = state.reservation.settle(least);
                let found = if self.settled_below_floor { found } else { state.settled };
                state.gone_back |= found < state.horizon;
                state.horizon = state.horizon.max(found);
                state.readings += 1;
                Reader::Idle
            }
        };
    }
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut state = State {
            clock: 1,
            reservation: Reservation::default(),
            slots: [Slot::default(); 2],
            starts: [Tick::MAX; 2],
            backends: [NEW; 2],
            reader: Reader::Idle,
            stored: if self.renewals > 0 { RESERVE } else { MAX_TICK },
            acknowledged: 0,
            settled: 0,
            horizon: 0,
            gone_back: false,
            minted_below: false,
            mints: 0,
            readings: 0,
            clock_sets: 0,
            renewals: 0,
            faults: 0,
        };
        state.reservation.load(0);
        state.acknowledged = state.stored;
        state.publish();
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (b, backend) in state.backends.iter().enumerate() {
            if backend.step != Step::Idle {
                actions.push(Action::Go(b));
            } else {
                if state.mints < self.mints {
                    actions.extend([Action::Call(b, 0), Action::Call(b, 1)]);
                }
                if !backend.open.is_empty() {
                    actions.push(Action::End(b));
                }
            }
        }
        // A server whose standby may not have the floor keeps the reader waiting.
        let shared = state.reservation.run_floor() <= state.acknowledged || !self.share_floor;
        if state.readings < self.readings && (shared || state.reader != Reader::Idle) {
            actions.push(Action::Read);
        }
        if state.renewals < self.renewals {
            actions.push(Action::Write);
        }
        if state.acknowledged < state.stored {
            actions.push(Action::Acknowledge);
        } else if state.reservation.limit(true) < state.stored && state.reservation.run_floor() < state.stored
        {
            actions.push(Action::Publish);
        }
        if state.faults < self.faults {
            actions.extend([Action::Crash, Action::FailOver]);
        }
        if state.clock_sets < self.clock_sets {
            actions.extend((0..self.ticks).filter(|tick| *tick != state.clock).map(Action::Set));
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Call(b, shard) => {
                next.mints += 1;
                next.backends[b].step = Step::Clock { shard, now: next.clock };
            }
            Action::Go(b) => self.go(&mut next, b),
            Action::End(b) => {
                next.backends[b].open.clear();
                next.backends[b].step = Step::Visible;
            }
            Action::Read => self.read(&mut next),
            Action::Set(tick) => {
                next.clock = tick;
                next.clock_sets += 1;
            }
            Action::Write => {
                next.stored += RESERVE;
                next.renewals += 1;
            }
            Action::Acknowledge => next.acknowledged = next.stored,
            Action::Publish => next.publish(),
            Action::Crash => next.start(),
            Action::FailOver => {
                next.stored = next.acknowledged;
                next.start();
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<World>> {
        vec![
            Property::always(SETTLED, |_, state: &State| {
                let open = state.backends.iter().flat_map(|backend| &backend.open);
                !state.minted_below && open.min().is_none_or(|tick| *tick >= state.horizon)
            }),
            Property::always(NEVER_BACK, |_, state: &State| !state.gone_back),
            Property::sometimes(PASSES, |world: &World, state: &State| {
                state.mints == world.mints && state.faults == world.faults && state.horizon > 1
            }),
        ]
    }
}

const SETTLED: &str = "below the horizon all is settled";
const NEVER_BACK: &str = "the horizon never goes back";
const PASSES: &str = "the horizon passes ids";

/// Explores a world, up to the first property that does not hold; its name.
fn explore(name: &str, world: World) -> Option<&'static str> {
    let enough = HasDiscoveries::AnyOf([SETTLED, NEVER_BACK].into());
    let checker = world.checker().threads(2).finish_when(enough).spawn_bfs().join();
    println!("{name}: {} states explored", checker.unique_state_count());
    let failed = checker.discoveries().into_keys().find(|name| *name != PASSES);
    if failed.is_none() {
        checker.assert_any_discovery(PASSES);
    }
    failed
}

/// `snowflake_safe_horizon`: no id below it is of an open transaction, and none is minted there afterwards.
#[test]
fn below_the_horizon_all_is_settled() {
    assert_eq!(explore("horizon", WORLD), None);
}

/// The same over crashes and failovers to a synchronous standby, and it never goes back.
#[test]
fn the_horizon_holds_over_runs_of_the_server() {
    assert_eq!(explore("horizon over runs", RUNS), None);
    assert_eq!(explore("horizon over more runs", MORE_RUNS), None);
}

/// The model can fail: each step that the horizon rests on, left out, is found.
#[test]
fn each_step_to_the_horizon_counts() {
    let fails = |name: &str, world: World| assert_ne!(explore(name, world), None);
    fails("floor not raised", World { raise: false, ..WORLD });
    fails("start published late", World { publish_first: false, ..WORLD });
    fails("start not published anew", World { publish_anew: false, ..WORLD });
    fails("settled forgotten", World { settled_below_floor: false, ..MORE_RUNS });
    fails("floor not shared", World { share_floor: false, ..MORE_RUNS });
}
