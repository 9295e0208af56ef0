//! The work of a client: statements in transactions.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use corosensei::Yielder;
use idgen_core::error::Error;
use idgen_core::horizon;
use idgen_core::host::Host as _;
use idgen_core::position::LayoutShard;
use idgen_core::{handover, mint};
use idgen_ids::Shard;
use idgen_ids::js::JsShard;

use crate::backend::{Backend, Interrupt, Interrupted, Process};
use crate::host::{Record, State};
use crate::judge::{Call, Kind};
use crate::plan::{MS, Place, Time, US};
use crate::world::Move;

#[derive(Clone, Copy, Debug)]
enum Statement {
    /// Requests ids, one call after the other, with a pause between them.
    Ids {
        shard: usize,
        count: u64,
        pause: Time,
    },
    Batch {
        shard: usize,
        count: u64,
    },
    Js {
        shard: usize,
        count: u64,
    },
    Advance {
        shard: usize,
        by_ms: i64,
    },
    Horizon,
    /// Raises the mark past a time that is this far ahead of the clock.
    Raise {
        by_ms: i64,
    },
    /// Makes the next step of the move.
    Move(Move),
}

/// The life of a backend.
pub fn live(backend: &Backend, yielder: &Yielder<(), Time>) {
    let process = Process { backend, yielder };
    loop {
        let think = backend.draw(|rng| rng.u64(..=backend.world.plan.think));
        process.doze(think);
        match backend.interrupt.take() {
            Some(Interrupt::Terminate) => return roll_back(backend),
            _ => reload(backend),
        }
        if backend.host().state.get() == State::Standby {
            // Most clients know which server is the primary.
            process.doze(5 * MS);
        }
        backend.remembered.set(backend.standbys());
        let statement = draw(backend);
        // Any other unwinding ends the backend.
        match catch_unwind(AssertUnwindSafe(|| run(&process, statement))) {
            Ok(true) => end_transaction(&process),
            Ok(false) => roll_back(backend),
            Err(reason) if reason.is::<Interrupted>() => {
                backend.unwinding.set(false);
                backend.world.trace(|| format!("{} is interrupted", backend));
                if backend.call.take().is_some() {
                    backend.call_ended();
                }
                roll_back(backend);
                if backend.interrupt.take() == Some(Interrupt::Terminate) {
                    return;
                }
            }
            Err(reason) => resume_unwind(reason),
        }
    }
}

/// Reads the configuration, if the backend has been told to.
fn reload(backend: &Backend) {
    let file = backend.host().file.borrow().clone();
    let version = backend.configuration.borrow().version;
    if file.version != version && backend.draw(|rng| rng.u8(..3) > 0) {
        // This is the effect of the settings' assign hooks.
        let same = {
            let before = &backend.configuration.borrow().settings;
            before.max_ahead_ms == file.settings.max_ahead_ms && before.max_lease == file.settings.max_lease
        };
        if !same || backend.configuration.borrow().allowed != file.allowed {
            backend.session.drop_lease();
        }
        backend.host().read(&file.settings);
        *backend.configuration.borrow_mut() = file.clone();
        let others = backend.host().backends.borrow();
        let mut others = others.iter().flatten();
        if others.all(|other| other.configuration.borrow().version == file.version) {
            backend.shared.mixed.set(false);
            // From now on, the order of ids across the backends is judged.
            backend.world.judge.promises.borrow_mut().set_back(backend.host, 0);
        }
    }
}

fn draw(backend: &Backend) -> Statement {
    let plan = &backend.world.plan;
    let step = backend.world.next_step(backend).map(Statement::Move);
    backend.draw(|rng| {
        if let Some(step) = step.filter(|_| rng.bool()) {
            return step;
        }
        if plan.raises && rng.u8(..48) == 0 {
            let ahead = plan.settings.max_ahead_ms.cast_signed();
            return Statement::Raise { by_ms: rng.i64(-2000..=ahead + 2) };
        }
        let shard = rng.usize(..plan.shards);
        if backend.index < plan.singles {
            return Statement::Ids { shard, count: 1000, pause: 10 * US };
        } else if plan.batches > 0 {
            return Statement::Batch { shard, count: plan.batches };
        }
        if plan.horizons && rng.u8(..if backend.index == 0 { 2 } else { 40 }) == 0 {
            return Statement::Horizon;
        }
        match rng.u8(..32) {
            0..8 => Statement::Ids { shard, count: 1, pause: 0 },
            8..20 => Statement::Ids { shard, count: rng.u64(1..=100), pause: 0 },
            20..22 => Statement::Ids { shard, count: rng.u64(1..=60), pause: rng.u64(US..=4 * MS) },
            22 => Statement::Ids { shard, count: rng.u64(1..=2000), pause: 0 },
            23..25 => Statement::Batch { shard, count: rng.u64(0..=64) },
            25 => Statement::Batch { shard, count: rng.u64(0..=5000) },
            26..29 => Statement::Js { shard, count: rng.u64(1..=20) },
            29 => {
                let ahead = plan.settings.max_ahead_ms.cast_signed();
                Statement::Advance { shard, by_ms: rng.i64(-20..=ahead + 2) }
            }
            _ => Statement::Ids { shard, count: 3, pause: 0 },
        }
    })
}

pub fn js_shard_of(index: usize) -> JsShard {
    JsShard::try_from(index as i32).unwrap()
}

pub fn shard_of(index: usize) -> Shard {
    Shard::try_from(index as i32).unwrap()
}

/// Runs a statement, and returns whether it succeeds.
fn run(process: &Process, statement: Statement) -> bool {
    let backend = process.backend;
    let world = &backend.world;
    let settings = backend.settings();
    world.trace(|| format!("{}: {statement:?}", backend));
    match statement {
        Statement::Ids { shard, count, pause } => {
            for _ in 0..count {
                if !next_id(process, shard) {
                    return false;
                }
                if pause > 0 {
                    process.doze(pause);
                    process.check_for_interrupts();
                }
            }
            true
        }
        Statement::Batch { shard, .. } | Statement::Js { shard, .. } if !backend.allows(shard) => false,
        Statement::Batch { shard, count } => {
            world.begin(backend, Kind::Plain, shard);
            let shard = shard_of(shard);
            judged(backend, mint::next_ids(process, &settings, &backend.session, shard, count), |runs| {
                for run in &runs {
                    world.given(backend, shard.id(run.start), run.count());
                }
                if runs.is_empty() { backend.call.set(None) } else { world.ended(backend) }
            })
        }
        Statement::Js { shard, count } => (0..count).all(|_| {
            world.begin(backend, Kind::Js, shard);
            let shard = js_shard_of(shard);
            judged(backend, mint::next_id_js(process, &settings, &backend.session, shard), |id| {
                world.given(backend, id, 1);
                world.ended(backend);
            })
        }),
        Statement::Advance { shard, by_ms } => {
            begin_without_ids(backend, shard);
            let tick = backend.host().clocks.tick(world.now.get()).saturating_add_signed(by_ms);
            let sequence = backend.draw(|rng| rng.i64(0..1024));
            let past = tick.cast_signed() << 23 | (shard as i64) << 10 | sequence;
            let result = handover::advance(process, &settings, &backend.session, shard_of(shard), past);
            judged(backend, result, |next| world.advanced(backend, past, next))
        }
        Statement::Horizon => {
            world.begin(backend, Kind::Plain, 0);
            judged(backend, process.reading(|| horizon::safe_horizon(process, &settings)), |horizon| {
                world.horizon_given(backend, horizon);
            })
        }
        Statement::Raise { by_ms } => {
            begin_without_ids(backend, 0);
            let first = backend.host().clocks.tick(world.now.get()).saturating_add_signed(by_ms) + 1;
            judged(backend, handover::raise_mark(process, &settings, first), |next| {
                world.raised(backend, first, next);
            })
        }
        Statement::Move(moving) => {
            begin_without_ids(backend, moving.shard);
            let (of, session) = (shard_of(moving.shard), &backend.session);
            let Some(bound) = moving.bound else {
                backend.closing.set(true);
                let result = handover::close(process, &settings, session, of);
                backend.closing.set(false);
                return judged(backend, result, |bound| world.closed(backend, moving, bound));
            };
            backend.taking.set(true);
            let past = (bound - backend.draw(|rng| rng.i64(0..2))).max(0);
            let result = handover::advance(process, &settings, session, of, past);
            backend.taking.set(false);
            judged(backend, result, |next| {
                if world.taken_over(backend, moving, next > past) {
                    handover::reopen(process, of);
                    world.opened(moving);
                }
            })
        }
    }
}

/// Begins a call that returns no ids, but may pass over some.
fn begin_without_ids(backend: &Backend, shard: usize) {
    backend.closing.set(false);
    backend.taking.set(false);
    backend.world.begin(backend, Kind::Plain, shard);
    backend.call.set(backend.call.get().map(|call| Call { shards: (0, 0), ..call }));
}

/// Mints an id as the SQL function does, and returns whether there is one.
#[inline]
fn next_id(process: &Process, index: usize) -> bool {
    let backend = process.backend;
    let world = &backend.world;
    world.begin(backend, Kind::Plain, index);
    let (settings, shard, allowed) = (backend.settings(), shard_of(index), backend.allows(index));
    let id = match mint::at_once(process, &backend.session, shard, || allowed.then_some(settings)) {
        Some(id) => Ok(id),
        None if !allowed => {
            world.end(backend);
            return false;
        }
        None => mint::next_id(process, &settings, &backend.session, shard),
    };
    judged(backend, id, |id| {
        world.given(backend, id, 1);
        world.ended(backend);
    })
}

fn judged<T>(backend: &Backend, result: Result<T, Error>, give: impl FnOnce(T)) -> bool {
    match result {
        Ok(result) => {
            give(result);
            true
        }
        Err(error) => {
            backend.world.refuse(backend, error);
            false
        }
    }
}

/// Rolls the transaction back and tells others.
fn roll_back(backend: &Backend) {
    backend.least.set(None);
    backend.withdraw();
}

/// Commits the transaction in most cases, or leaves it open for the next statement.
fn end_transaction(process: &Process) {
    let backend = process.backend;
    let plan = &backend.world.plan;
    let (way, lazy) = backend.draw(|rng| (rng.u8(..16), rng.bool()));
    match way {
        0 | 1 => return,
        2 => return roll_back(backend),
        3 if plan.prepares => return prepare(process),
        _ => {}
    }
    if backend.least.get().is_some() {
        process.step(Place::Commit);
        if lazy {
            backend.host().wal.borrow_mut().insert(None);
        } else {
            process.log(None);
        }
        // The rows are visible, but others have not been told.
        backend.least.set(None);
        process.step(Place::Commit);
    }
    backend.withdraw();
}

fn prepare(process: &Process) {
    let backend = process.backend;
    let host = backend.host();
    if let Some(least) = backend.least.get() {
        process.step(Place::Prepare);
        let name = backend.world.name_prepared();
        process.log(Some(Record::Prepare(name, least)));
        host.prepared.borrow_mut().insert(name, least);
        backend.least.set(None);
        process.step(Place::Prepare);
    }
    backend.withdraw();
}
