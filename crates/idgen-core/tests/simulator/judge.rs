//! Reports what happens in a world to the judge, and knows when the protocol may refuse a call.

use std::cell::{Cell, RefCell};

use idgen_core::batch;
use idgen_core::error::Error;
use idgen_core::mark::MarkState;
use idgen_core::position::{LayoutShard, Position};
use idgen_core::settings::QUEUE_MS;
use idgen_ids::{Shard, Tick};
use promises::{Broken, Caller, Run, Sequence, Slot};
pub use promises::{Call, Kind, Promise};

use crate::backend::Backend;
use crate::client::{js_shard_of, shard_of};
use crate::host::{Host, State};
use crate::plan::{MS, Names, Plan, Time, US};
use crate::world::World;

#[derive(Clone, Debug)]
pub struct Failure {
    pub promise: Promise,
    pub at: Time,
    pub text: String,
}

#[derive(Default)]
pub struct Judge {
    pub promises: RefCell<promises::Judge>,
    pub refused: Cell<u64>,
    /// Whether there are no leases, so that ids are in strict order.
    strict: bool,
    /// The promise to judge; `None` for all of them.
    only: Option<Promise>,
    pub failure: RefCell<Option<Failure>>,
}

impl Judge {
    pub fn new(plan: &Plan, only: Option<Promise>) -> Judge {
        Judge { strict: plan.settings.max_lease == 1, only, ..Judge::default() }
    }

    /// Reports that a host's clock was set back.
    pub fn clock_set(&self, host: &Host, now: Time) {
        let tick = host.clocks.tick(now);
        let mut promises = self.promises.borrow_mut();
        promises.set_back(host.index, tick);
        for backend in host.backends.borrow().iter().flatten() {
            if let Some(mut call) = backend.call.get() {
                promises.relive(&mut call, tick);
                backend.call.set(Some(call));
            }
        }
    }
}

impl World {
    #[cold]
    pub fn fail(&self, promise: Promise, text: impl FnOnce() -> String) {
        let mut failure = self.judge.failure.borrow_mut();
        if failure.is_none() && self.judge.only.is_none_or(|only| only == promise) {
            *failure = Some(Failure { promise, at: self.now.get(), text: text() });
        }
    }

    /// Calls the judge, and records what it finds broken.
    #[inline]
    pub fn judged<T>(&self, ask: impl FnOnce(&mut promises::Judge) -> T) -> T {
        let mut promises = self.judge.promises.borrow_mut();
        let answer = ask(&mut promises);
        if !promises.broken.is_empty() {
            for Broken { promise, text } in promises.broken.drain(..) {
                self.fail(promise, || text);
            }
        }
        answer
    }

    /// The backend as a caller, at the current time.
    fn caller(&self, backend: &Backend) -> Caller {
        let now_us = self.now.get() / US;
        Caller { server: backend.host, session: backend.index as u64, begun_us: now_us, ended_us: now_us }
    }

    /// Begins a call.
    #[inline]
    pub fn begin(&self, backend: &Backend, kind: Kind, shard: usize) {
        let tick = backend.host().clocks.tick(self.now.get());
        let sequence = match () {
            () if self.judge.strict => Sequence::Strict,
            () if tick <= backend.shared.relived.get() => Sequence::Relived,
            () if backend.shared.mixed.get() => Sequence::Mixed,
            () => Sequence::Sorted,
        };
        self.trace(|| format!("{backend} begins, {kind:?} {shard}, clock {tick}"));
        let (by, slot) = (self.caller(backend), Slot { kind, shard: shard as u16 });
        backend.call.set(Some(self.judged(|judge| {
            judge.counts.calls += 1;
            judge.begin(by, slot, tick, tick, sequence)
        })));
        backend.read.set(0);
        backend.for_clock.set(0);
        let all = backend.host().backends.borrow();
        let least = all.iter().flatten().map(|each| each.settings().reserve_ahead_ms).min();
        backend.least_reserve_ms.set(least.unwrap_or(u64::MAX).min(backend.settings().reserve_ahead_ms));
    }

    /// Takes the call, which has ended, with its time.
    #[inline]
    pub fn end(&self, backend: &Backend) -> Option<Call> {
        let mut call = backend.call.take()?;
        call.by.ended_us = self.now.get() / US;
        let wait_us = backend.configuration.borrow().settings.max_wait_ms * MS / US;
        if call.by.ended_us - call.by.begun_us > wait_us {
            let calm_us = self.calm_for(backend.host()) / US;
            self.judged(|judge| judge.waited(call.by, wait_us, calm_us));
        }
        backend.call_ended();
        Some(call)
    }

    /// Reports that a call has received `count` ids from this one on.
    #[inline]
    pub fn given(&self, backend: &Backend, first: i64, count: u64) {
        let Some(mut call) = backend.call.get() else { return };
        let run = Run::from(first, call.slot.kind, count);
        self.trace(|| format!("{backend}: {run:?}, from {} ms", run.slot.ms(run.start)));
        let max_ahead = backend.configuration.borrow().settings.max_ahead_ms;
        // Another backend that was allowed to be further ahead may have passed over the run while this one waited for
        // it.
        let waited = backend.queued.get().is_some_and(|(from, to)| (from..to).contains(&run.start));
        call.by.ended_us = self.now.get() / US;
        (call.latest, call.waited) = (backend.read.get() + max_ahead, waited.then_some(max_ahead));
        self.judged(|judge| {
            call.horizon = judge.horizon_of(backend.host);
            judge.given(&mut backend.given.borrow_mut(), &call, run);
            let limit = backend.shared.state.mark.get().limit(false);
            judge.limited("ids", run.slot.ms(run.end() - 1) + 1, limit, call.by);
        });
        if run.slot.kind == Kind::Plain && backend.least.get().is_none_or(|least| first < least) {
            backend.least.set(Some(first));
        }
        self.hash.set((self.hash.get() ^ first.cast_unsigned()).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }

    /// Notes a run that was taken. The backend waits for it if it is further ahead of the clock than allowed.
    pub fn queued<S: LayoutShard>(&self, backend: &Backend, end: Position<S>, count: u64) {
        if backend.call.get().is_none_or(|call| call.slot.kind == Kind::Js) {
            return;
        }
        let end = end.since(Position::FIRST);
        let start = Position::<S>::FIRST.plus(end - count).tick();
        let waits = start > backend.last_read.get() + backend.settings().max_ahead_ms;
        // A batch takes several runs in advance.
        let from = backend.queued.get().map_or(end - count, |(from, _)| from);
        backend.queued.set(waits.then_some((from, end)));
    }

    /// Checks a run up to this end that was taken below a limit that was read while commits waited for standbys.
    pub fn taken<S: LayoutShard>(&self, backend: &Backend, end: Position<S>) {
        if backend.call.get().is_none_or(|call| call.shards.1 > 0) {
            let limit = backend.shared.state.mark.get().limit(true);
            let last = end.previous().map_or(0, Position::tick);
            self.judged(|judge| judge.limited("ids", last + 1, limit, self.caller(backend)));
        }
    }

    /// Reports that a call has ended, with its ids up to the last one of its session.
    #[inline]
    pub fn ended(&self, backend: &Backend) {
        let Some(call) = self.end(backend) else { return };
        let tick = backend.host().clocks.tick(self.now.get());
        backend.served.set(backend.served.get() + 1);
        self.judged(|judge| judge.ended(&call, &backend.given.borrow(), tick));
    }

    /// Reports that a call has passed over all ids up to one.
    pub fn advanced(&self, backend: &Backend, past: i64, next: i64) {
        let Some(call) = self.end(backend) else { return };
        self.trace(|| format!("{backend} passes over {past}"));
        self.judged(|judge| judge.passed(call.by, past, next, backend.settings().max_ahead_ms));
    }

    /// Reports that the mark was raised so that ids begin at a tick, and that `next` is the first that they can have.
    pub fn raised(&self, backend: &Backend, first: Tick, next: Tick) {
        let Some(call) = self.end(backend) else { return };
        self.trace(|| format!("{backend} raises the mark to {first}"));
        if next < first {
            self.fail(Promise::Order, || format!("{next} comes after {first}: {}", call.by));
        }
        self.judged(|judge| judge.raised(backend.host, first));
    }

    /// Reports a horizon.
    pub fn horizon_given(&self, backend: &Backend, horizon: i64) {
        let Some(call) = self.end(backend) else { return };
        let host = backend.host();
        self.trace(|| format!("{backend}: horizon {horizon}"));
        let (backends, prepared) = (host.backends.borrow(), host.prepared.borrow());
        let open = backends.iter().flatten().filter_map(|other| other.least.get());
        self.judged(|judge| judge.horizon(call.by, horizon, open.chain(prepared.values().copied())));
    }

    /// Checks a change of the mark.
    pub fn mark_changed(&self, backend: &Backend, before: &MarkState, after: &MarkState) {
        let host = backend.host();
        let durable = |host: &Host| host.wal.borrow().durable;
        let others = self.hosts[..self.plan.hosts].iter().filter(|other| other.index != host.index);
        let limits = [(false, durable(host)), (true, others.map(durable).max().unwrap_or(0))];
        let mut raised = false;
        for (standbys, durable) in limits {
            let limit = after.limit(standbys);
            if limit > before.limit(standbys) {
                raised = true;
                self.trace(|| format!("{backend}: limit {limit}"));
                self.judged(|judge| judge.limited("a limit", limit, durable, self.caller(backend)));
            }
        }
        if !raised && after.renewals > before.renewals && self.calm_for(host) > 300 * MS {
            self.fail(Promise::OneRenews, || format!("renewed once more: {}", self.caller(backend)));
        }
    }

    /// How long a host and the network that it needs have been in order.
    pub fn calm_for(&self, host: &Host) -> Time {
        let since = self.hosts.iter().map(|host| host.calm.get()).max().unwrap_or(0);
        if host.cut_off.get() { 0 } else { self.now.get().saturating_sub(since) }
    }

    /// Judges a refused call.
    pub fn refuse(&self, backend: &Backend, error: Error) {
        let Some(call) = self.end(backend) else { return };
        self.judge.refused.set(self.judge.refused.get() + 1);
        self.trace(|| format!("{backend} is refused: {error:?}"));
        if !self.may_refuse(backend, &call, error) {
            let slot = backend.shared.slot(shard_of(call.slot.shard.into()));
            self.fail(Promise::Availability, || {
                format!("refused: {error:?}; {call:?}, slot {slot:?}, {:?}", backend.settings())
            });
        }
    }

    /// Whether there is a reason for the refusal.
    fn may_refuse(&self, backend: &Backend, call: &Call, error: Error) -> bool {
        let host = backend.host();
        let settings = backend.settings();
        let (shard, unit) = (call.slot.shard.into(), call.slot.kind.unit_ms());
        let plain = backend.shared.slot(shard_of(shard)).next;
        let slot = match call.slot.kind {
            Kind::Plain => plain.tick(),
            Kind::Js => backend.shared.slot(js_shard_of(shard)).next.tick(),
        };
        let mark = backend.shared.state.mark.get();
        let next = slot.max(mark.floor());
        let reach = backend.last_read.get() + settings.max_ahead_ms;
        let behind = backend.shared.behind.get();
        let took = self.now.get() - call.by.begun_us * US;
        let waited_long = |waited_ms: u64| waited_ms.min((took + US) / MS) >= settings.max_wait_ms;
        match error {
            Error::BatchTooLarge { count, .. } | Error::BatchesBefore { count, .. } => {
                // The time that the clock reaches within most of the wait, from an unknown point within the
                // millisecond.
                let now = backend.last_read.get().max(mark.floor());
                let first = (now << 10).max(plain.since(Position::FIRST)) + Shard::LAST_START;
                let end = (reach + settings.max_wait_ms * 7 / 8 + 1) << 10;
                let batches = backend.shared.backends.iter().map(|own| &own.batch);
                let ahead = match error {
                    Error::BatchesBefore { shard, .. } => {
                        batch::left(batches, shard, host.clocks.boot_ms(self.now.get()))
                    }
                    _ => 0,
                };
                first + ahead + count > end
            }
            // Batches alone do not leave others without ids: a batch that cannot be provided is refused at once.
            Error::ShardFull { waited_ms, .. } => {
                next + unit > reach && waited_long(waited_ms) && self.plan.batches == 0
            }
            Error::ClockBehindMark { waited_ms, .. } => {
                let floor = mark.recovered().next_multiple_of(unit);
                floor > reach && waited_long(waited_ms)
            }
            Error::ClockBehind { waited_ms, .. } => {
                behind && next + unit > reach + QUEUE_MS && waited_long(waited_ms)
            }
            Error::ClockJumped { by_ms } => {
                // Both clocks are truncated, and may be read 1 ms apart.
                let set = backend.shared.forward.get() / MS.cast_signed() + 3;
                settings.max_clock_jump_ms.is_some_and(|jump| by_ms > jump) && by_ms.cast_signed() <= set
            }
            Error::MarkNotRenewed { waited_ms } => {
                let calm = self.calm_for(host) > took + 300 * MS;
                let names = host.file.borrow().names != Names::None;
                // Two renewals whose windows end before the call can use them do not count as a wait; a third one does.
                // The first mark may be older than the call, the second is not.
                let dawdles = self.plan.lulls > 0 && took > backend.least_reserve_ms.get() * MS;
                // The part of the wait that is left after waiting for the clock.
                let left_ms = settings.max_wait_ms.saturating_sub(backend.for_clock.get() / MS);
                waited_long(waited_ms)
                    // A flush is not a reason if the disk is in order.
                    && (left_ms < 300 && (names || dawdles) || !calm || self.waits_for_nobody(host))
            }
            Error::ClockStands { waited_ms } => behind && waited_long(waited_ms),
            Error::Recovery => host.state.get() == State::Standby || self.calm_for(host) < 50 * MS,
            Error::Prepared { .. } => self.plan.prepares,
            // The caller knows the reason.
            Error::AdvanceTooFar { .. } | Error::RaiseTooFar { .. } => true,
            Error::ShardNotAllowed { .. } => self.is_away(host, shard, call.by.begun_us * US),
            // A backend that was stopped may close the shard long after the move.
            Error::ShardClosed { .. } => {
                let closed = [
                    backend.shared.slot(shard_of(shard)).closed,
                    backend.shared.slot(js_shard_of(shard)).closed,
                ];
                closed.contains(&true) || self.is_away(host, shard, call.by.begun_us * US)
            }
            Error::ClockBehindIds { .. } => false,
            Error::Exhausted | Error::OtherEpoch => false,
        }
    }

    /// Whether a commit would wait for standbys none of which exists.
    fn waits_for_nobody(&self, host: &Host) -> bool {
        let names = host.file.borrow().names.clone();
        let there = |index: usize| {
            let other = &self.hosts[index];
            other.state.get() == State::Standby && other.follows.get() == Some(host.index)
        };
        !names.listed().is_empty() && !names.listed().iter().any(|index| there(*index))
    }
}
