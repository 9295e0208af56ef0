//! A model of `snowflake_safe_horizon`: two backends mint in transactions for two shards, a third one asks
//! for the horizon, and the clock jumps. It drives the real slot, lease and floor through every interleaving
//! of a small world.
//!
//! The steps between which another process can come are steps of the model. Memory is sequentially
//! consistent here, which the fences of shmem.rs see to.

use stateright::{Checker, Model, Property};

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
    ticks: Tick,
    mints: usize,
    readings: usize,
    clock_sets: usize,
}

const WORLD: World = World {
    raise: true,
    publish_first: true,
    publish_anew: true,
    ticks: 3,
    mints: 3,
    readings: 2,
    clock_sets: 2,
};

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
    horizon: Tick,
    minted_below: bool,
    mints: usize,
    readings: usize,
    clock_sets: usize,
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
}

fn shard(index: usize) -> Shard {
    Shard::try_from(index as i32).unwrap()
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
            let bounds = Bounds { now, floor, max_ahead: 10, queue: 0, limit: MAX_TICK };
            let want = backend.lease.want(shard(shard_of_call), now, 2);
            let run = state.slots[shard_of_call].take::<Shard>(want, &bounds).ok()?;
            state.slots[shard_of_call].leases = 0;
            Some(backend.lease.grant(shard(shard_of_call), now, run))
        });
        let tick = tick_of(position.expect("there is room"));
        state.minted_below |= tick < state.horizon;
        backend.open.push(tick);
        backend.step = Step::Idle;
    }

    fn read(&self, state: &mut State) {
        state.reader = match state.reader {
            Reader::Idle => Reader::Clock(state.clock),
            Reader::Clock(now) => {
                let mut raised = state.reservation;
                let least = raised.raise_floor(now);
                if self.raise {
                    state.reservation = raised;
                }
                Reader::Looking { next: 0, least }
            }
            Reader::Looking { next, least } if next < state.starts.len() => {
                Reader::Looking { next: next + 1, least: least.min(state.starts[next]) }
            }
            Reader::Looking { least, .. } => {
                state.horizon = state.reservation.settle(least);
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
        let backend = Backend { step: Step::Idle, lease: Lease::NONE, started: Tick::MAX, open: Vec::new() };
        let mut reservation = Reservation::default();
        reservation.load(0);
        reservation.publish(MAX_TICK, false, Clocks::default(), 0);
        vec![State {
            clock: 1,
            reservation,
            slots: [Slot::default(); 2],
            starts: [Tick::MAX; 2],
            backends: [backend.clone(), backend],
            reader: Reader::Idle,
            horizon: 0,
            minted_below: false,
            mints: 0,
            readings: 0,
            clock_sets: 0,
        }]
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
        if state.readings < self.readings {
            actions.push(Action::Read);
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
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<World>> {
        vec![
            Property::always("below the horizon all is settled", |_, state: &State| {
                let open = state.backends.iter().flat_map(|backend| &backend.open);
                !state.minted_below && open.min().is_none_or(|tick| *tick >= state.horizon)
            }),
            Property::sometimes("the horizon passes ids", |world: &World, state: &State| {
                state.mints == world.mints && state.horizon > 1
            }),
        ]
    }
}

fn holds(name: &str, world: World) -> bool {
    let checker = world.checker().threads(2).spawn_bfs().join();
    println!("{name}: {} states explored", checker.unique_state_count());
    checker.assert_any_discovery("the horizon passes ids");
    checker.discovery("below the horizon all is settled").is_none()
}

/// `snowflake_safe_horizon`: no id below it is of an open transaction, and none is minted there afterwards.
#[test]
fn below_the_horizon_all_is_settled() {
    assert!(holds("horizon", WORLD));
}

/// The model can fail: each step that the horizon rests on, left out, is found.
#[test]
fn each_step_to_the_horizon_counts() {
    assert!(!holds("floor not raised", World { raise: false, ..WORLD }));
    assert!(!holds("start published late", World { publish_first: false, ..WORLD }));
    assert!(!holds("start not published anew", World { publish_anew: false, ..WORLD }));
}
