//! Compares what happens in a world with what docs/guarantees.md promises, and with nothing else.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use idgen_core::batch;
use idgen_core::error::Error;
use idgen_core::mark::MarkState;
use idgen_core::position::{LayoutShard, Position};
use idgen_core::settings::QUEUE_MS;
use idgen_ids::{Tick, decode};

use crate::backend::Backend;
use crate::client::{js_shard_of, shard_of};
use crate::host::{Host, State};
use crate::plan::{MS, Names, Plan, Time};
use crate::world::World;

/// Which promise is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    NoIdTwice,
    /// Ids of a session increase.
    SessionOrder,
    /// An id is greater than those of calls that ended in an earlier millisecond or in earlier runs, and than ids
    /// passed over.
    Order,
    Time,
    /// issued < limit <= durable, and <= acknowledged.
    Limit,
    /// Every id below a horizon is of a transaction that has ended, and none is minted there.
    Settled,
    /// The horizon never goes back.
    NeverBack,
    /// A call is refused for a reason that there is, and waits no longer than it may.
    Availability,
    /// No backend renews the mark while another one does.
    OneRenews,
}

#[derive(Clone, Debug)]
pub struct Failure {
    pub promise: Promise,
    pub at: Time,
    pub text: String,
}

/// The two kinds of ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Plain = 0,
    Js = 1,
}

impl Kind {
    /// The position of an id among those of its shard, and its first and last millisecond.
    pub fn place(self, id: i64) -> (u64, Tick, Tick) {
        match self {
            Kind::Plain => {
                let parts = decode(id);
                let sequence = u64::from(parts.sequence);
                (parts.tick << 10 | sequence, parts.tick, parts.tick)
            }
            Kind::Js => {
                let second = id.cast_unsigned() >> 20;
                (second << 12 | id.cast_unsigned() & 4095, second * 1000, second * 1000 + 999)
            }
        }
    }
}

/// A call on its way.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub kind: Kind,
    pub shard: usize,
    pub begun: Time,
    /// The least that the clock has shown since it began.
    pub least: Tick,
    /// The least place that its id may have.
    pub bound: u64,
    /// That which `snowflake_advance` has left, and how far ahead of the clock its caller was allowed.
    pub passed: (u64, u64),
    /// It gives no id, but passes over some.
    pub passes: bool,
}

/// Ids one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Run {
    of: Option<(Kind, usize)>,
    start: u64,
    end: u64,
}

/// In which order the ids of a shard have come out of a server.
#[derive(Clone, Debug, Default)]
pub struct Order {
    /// The least place that is left by earlier runs.
    pub least: u64,
    /// That which is left by `snowflake_advance` in this one, and how far ahead of the clock its caller was allowed.
    passed: (u64, u64),
    /// After the greatest place of all.
    pub next: u64,
    /// After the greatest place up to a millisecond, for each in which a call has ended since the clock was there last.
    steps: Vec<(Tick, u64)>,
}

impl Order {
    fn before(&self, tick: Tick) -> u64 {
        let earlier = self.steps.iter().rev().find(|(ended, _)| *ended < tick);
        earlier.map_or(0, |(_, next)| *next)
    }

    fn ended(&mut self, tick: Tick, next: u64) {
        self.next = self.next.max(next);
        match self.steps.last_mut() {
            Some((ended, greatest)) if *ended >= tick => *greatest = (*greatest).max(next),
            Some((_, greatest)) => {
                let next = next.max(*greatest);
                self.steps.push((tick, next));
            }
            None => self.steps.push((tick, next)),
        }
    }

    /// The clock was set to this.
    fn set_back(&mut self, tick: Tick) {
        while self.steps.pop_if(|(ended, _)| *ended >= tick).is_some() {}
    }

    /// The server restarts.
    pub fn begin(&mut self) {
        self.least = self.least.max(self.next).max(self.passed.0);
        self.passed = (0, 0);
        self.steps.clear();
    }

    /// The server restarts with less than it had, and with its clock past all ids minted.
    pub fn lose(&mut self, other: u64) {
        *self = Order { least: self.next.max(other), next: self.next, ..Order::default() };
    }

    /// Another server takes over.
    pub fn take_over(&mut self, other: &Order) {
        self.least = self.least.max(other.least).max(other.passed.0).max(other.next);
        self.begin();
    }
}

/// The orders of both kinds and all shards of a host.
pub type Orders = [Vec<Order>; 2];

pub struct Judge {
    /// The ids minted, of both kinds and all shards, as runs with their beginnings and ends.
    seen: [Vec<RefCell<BTreeMap<u64, u64>>>; 2],
    pub orders: Vec<RefCell<Orders>>,
    /// The last millisecond that an id was given of.
    pub issued: Cell<Tick>,
    pub ids: Cell<u64>,
    pub calls: Cell<u64>,
    pub refused: Cell<u64>,
    pub horizons: Cell<u64>,
    /// Whether there are no leases, so that ids are in strict order.
    strict: bool,
    /// The violations to look for; all of them if empty.
    only: Option<Promise>,
    pub failure: RefCell<Option<Failure>>,
}

impl Judge {
    pub fn new(plan: &Plan, only: Option<Promise>) -> Judge {
        let maps = || (0..plan.shards).map(|_| RefCell::default()).collect();
        let orders =
            || RefCell::new([vec![Order::default(); plan.shards], vec![Order::default(); plan.shards]]);
        Judge {
            seen: [maps(), maps()],
            orders: (0..plan.hosts).map(|_| orders()).collect(),
            issued: Cell::default(),
            ids: Cell::default(),
            calls: Cell::default(),
            refused: Cell::default(),
            horizons: Cell::default(),
            strict: plan.settings.max_lease == 1,
            only,
            failure: RefCell::default(),
        }
    }

    /// The order of ids across the backends of a host is checked from now on.
    pub fn forget_order(&self, host: &Host) {
        for order in self.orders[host.index].borrow_mut().iter_mut().flatten() {
            order.steps.clear();
        }
    }

    /// A host's clock was set.
    pub fn clock_set(&self, host: &Host, now: Time) {
        let tick = host.clocks.tick(now);
        let mut orders = self.orders[host.index].borrow_mut();
        for order in orders.iter_mut().flatten() {
            order.set_back(tick);
        }
        for backend in host.backends.borrow().iter().flatten() {
            if let Some(call) = backend.call.get() {
                // It may have a lease of a millisecond that comes once more.
                let strict = call.kind == Kind::Js || self.strict;
                let least = orders[call.kind as usize][call.shard].least;
                let (bound, passed) = if strict { (call.bound, call.passed) } else { (least, (0, 0)) };
                backend.call.set(Some(Call { least: call.least.min(tick), bound, passed, ..call }));
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

    /// Notes the run of ids that a backend was given last.
    pub fn note(&self, backend: &Backend) {
        let Run { of: Some((kind, shard)), start, end } = backend.run.take() else { return };
        let mut seen = self.judge.seen[kind as usize][shard].borrow_mut();
        let before = seen.range(..=start).next_back().map(|(start, end)| (*start, *end));
        let after = seen.range(start..).next().map(|(start, end)| (*start, *end));
        let overlap = before.filter(|run| run.1 > start).or(after.filter(|run| run.0 < end));
        if let Some((from, to)) = overlap {
            self.fail(Promise::NoIdTwice, || {
                let at = if kind == Kind::Plain { 10 } else { 12 };
                format!(
                    "{kind:?} shard {shard}: {}.{} to {}.{} of host {} backend {} was given before ({}.{} to {}.{})",
                    start >> at,
                    start & ((1 << at) - 1),
                    end >> at,
                    end & ((1 << at) - 1),
                    backend.host,
                    backend.index,
                    from >> at,
                    from & ((1 << at) - 1),
                    to >> at,
                    to & ((1 << at) - 1),
                )
            });
        }
        let joined = match after {
            Some((from, to)) if from == end => {
                seen.remove(&from);
                to
            }
            _ => end,
        };
        match before {
            Some((from, to)) if to == start => seen.insert(from, joined),
            _ => seen.insert(start, joined),
        };
    }

    /// A call begins.
    #[inline]
    pub fn begin(&self, backend: &Backend, kind: Kind, shard: usize) {
        let now = self.now.get();
        let tick = backend.host().clocks.tick(now);
        let orders = self.judge.orders[backend.host].borrow();
        let order = &orders[kind as usize][shard];
        let strict = kind == Kind::Js || self.judge.strict;
        let (before, passed) = match () {
            () if strict => (order.next, order.passed),
            // A lease is good again in a millisecond that comes once more.
            () if tick <= backend.shared.relived.get() => (0, (0, 0)),
            // A run that was waited for may lie before ids that others were allowed to have at once.
            () if backend.shared.mixed.get() => (0, order.passed),
            () => (order.before(tick), order.passed),
        };
        self.trace(|| {
            format!("host {} backend {} begins, {kind:?} {shard}, clock {tick}", backend.host, backend.index)
        });
        let bound = before.max(order.least);
        let call = Call { kind, shard, begun: now, least: tick, bound, passed, passes: false };
        backend.call.set(Some(call));
        backend.read.set(0);
        self.judge.calls.set(self.judge.calls.get() + 1);
    }

    /// A call has given so many ids from this one on.
    #[inline]
    pub fn given(&self, backend: &Backend, first: i64, count: u64) {
        let Some(call) = backend.call.get() else { return };
        let Call { kind, shard, .. } = call;
        let (start, tick, _) = kind.place(first);
        let end = start + count;
        let (_, last_tick, last_ms) = if count == 1 { kind.place(first) } else { place_of(kind, end - 1) };
        let judge = &self.judge;
        self.trace(|| {
            let of = format!("host {} backend {}: {kind:?} shard {shard}", backend.host, backend.index);
            format!("{of} id {tick}.{} and {} more", start & 1023, count - 1)
        });
        judge.ids.set(judge.ids.get() + count);
        let fail = |promise, what: &str, bound: u64| {
            self.fail(promise, || {
                format!(
                    "host {} backend {}: {kind:?} id {tick}.{} of shard {shard}: {what} {bound}; {call:?}",
                    backend.host,
                    backend.index,
                    start & 1023
                )
            });
        };
        let own = &backend.last[kind as usize][shard];
        if start < own.get() {
            fail(Promise::SessionOrder, "not after that of before, at place", own.get());
        }
        own.set(end);
        if start < call.bound {
            fail(Promise::Order, "not after place", call.bound);
        }
        let (passed, ahead) = call.passed;
        // A backend that was allowed to pass over more at once may have done so while this one waited for its run.
        let queued = backend.queued.get().is_some_and(|(from, to)| (from..to).contains(&start))
            && backend.configuration.borrow().settings.max_ahead_ms < ahead;
        if start < passed && !queued {
            fail(Promise::Order, "not after what was passed over, up to place", passed);
        }
        let unit = if kind == Kind::Js { 1000 } else { 1 };
        if tick < call.least / unit * unit {
            fail(Promise::Time, "before its call, which began at", call.least);
        }
        let latest = backend.read.get() + backend.configuration.borrow().settings.max_ahead_ms;
        if last_tick > latest {
            fail(Promise::Time, "too far ahead: not after", latest);
        }
        let limit = backend.shared.state.mark.get().limit(false);
        if last_tick >= limit {
            fail(Promise::Limit, "not below the limit", limit);
        }
        if kind == Kind::Plain {
            if first < backend.host().horizon.get() {
                fail(Promise::Settled, "below the horizon", decode(backend.host().horizon.get()).tick);
            }
            if backend.least.get().is_none_or(|least| first < least) {
                backend.least.set(Some(first));
            }
        }
        judge.issued.set(judge.issued.get().max(last_ms));
        let run = backend.run.get();
        if run.of == Some((kind, shard)) && run.end == start {
            backend.run.set(Run { end, ..run });
        } else {
            self.note(backend);
            backend.run.set(Run { of: Some((kind, shard)), start, end });
        }
        self.hash.set((self.hash.get() ^ first.cast_unsigned()).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }

    /// A run was taken; the backend waits for it if it is further ahead of the clock than allowed.
    pub fn queued<S: LayoutShard>(&self, backend: &Backend, end: Position<S>, count: u64) {
        if backend.call.get().is_none_or(|call| call.kind == Kind::Js) {
            return;
        }
        let end = end.since(Position::FIRST);
        let start = Position::<S>::FIRST.plus(end - count).tick();
        let waits = start > backend.last_read.get() + backend.configuration.borrow().settings.max_ahead_ms;
        // A batch takes several runs in advance.
        let from = backend.queued.get().map_or(end - count, |(from, _)| from);
        backend.queued.set(waits.then_some((from, end)));
    }

    /// A run up to this end was taken, below a limit that was read while commits waited for standbys.
    pub fn taken<S: LayoutShard>(&self, backend: &Backend, end: Position<S>) {
        let (limit, last) =
            (backend.shared.state.mark.get().limit(true), end.previous().map_or(0, Position::tick));
        let passes = backend.call.get().is_some_and(|call| call.passes);
        if last >= limit && !passes {
            self.fail(Promise::Limit, || {
                format!(
                    "host {} backend {}: {last} is taken, limit of standbys {limit}",
                    backend.host, backend.index
                )
            });
        }
    }

    /// A call has ended with its ids, up to the last of its session.
    #[inline]
    pub fn ended(&self, backend: &Backend) {
        let Some(call) = backend.call.take() else { return };
        let tick = backend.host().clocks.tick(self.now.get());
        backend.served.set(backend.served.get() + 1);
        let next = backend.last[call.kind as usize][call.shard].get();
        self.judge.orders[backend.host].borrow_mut()[call.kind as usize][call.shard].ended(tick, next);
        self.took(backend, &call);
        backend.call_ended();
    }

    /// A call has passed over all ids up to one.
    pub fn advanced(&self, backend: &Backend, past: i64, next: i64) {
        let Some(call) = backend.call.take() else { return };
        let (place, tick, _) = Kind::Plain.place(past);
        if next <= past {
            self.fail(Promise::Order, || format!("advanced past {past}, next is {next}"));
        }
        let order = &mut self.judge.orders[backend.host].borrow_mut()[0][call.shard];
        order.passed = order.passed.max((place + 1, backend.configuration.borrow().settings.max_ahead_ms));
        self.trace(|| format!("host {} backend {} passes over {tick}", backend.host, backend.index));
        self.took(backend, &call);
        backend.call_ended();
    }

    /// A horizon is given.
    pub fn horizon_given(&self, backend: &Backend, horizon: i64) {
        let host = backend.host();
        let name =
            || format!("host {} backend {}: horizon {}", host.index, backend.index, decode(horizon).tick);
        self.trace(name);
        self.judge.horizons.set(self.judge.horizons.get() + 1);
        if horizon < host.horizon.get() {
            self.fail(Promise::NeverBack, || {
                format!("{}, after {}", name(), decode(host.horizon.get()).tick)
            });
        }
        host.horizon.set(host.horizon.get().max(horizon));
        for other in host.backends.borrow().iter().flatten() {
            if let Some(least) = other.least.get().filter(|least| *least < horizon) {
                self.fail(Promise::Settled, || {
                    format!("{}: open is {} of backend {}", name(), decode(least).tick, other.index)
                });
            }
        }
        for least in host.prepared.borrow().values().filter(|least| **least < horizon) {
            self.fail(Promise::Settled, || format!("{}: prepared is {}", name(), decode(*least).tick));
        }
        if let Some(call) = backend.call.take() {
            self.took(backend, &call);
        }
        backend.call_ended();
    }

    /// The mark was visited.
    pub fn mark_changed(&self, backend: &Backend, before: &MarkState, after: &MarkState) {
        let host = backend.host();
        let moved = [false, true].map(|standbys| after.limit(standbys) > before.limit(standbys));
        let durable = host.wal.borrow().durable;
        if moved[0] && after.limit(false) > durable {
            self.fail(Promise::Limit, || {
                format!("host {}: limit {} is not durable, {durable} is", host.index, after.limit(false))
            });
        }
        if moved[1] {
            let mut others = self.hosts.iter().filter(|other| other.index != host.index);
            if !others.any(|other| other.wal.borrow().durable >= after.limit(true)) {
                self.fail(Promise::Limit, || {
                    format!("host {}: limit {} is at no standby", host.index, after.limit(true))
                });
            }
        }
        if moved != [false; 2] {
            self.trace(|| {
                let limits = [false, true].map(|standbys| after.limit(standbys));
                format!("host {} backend {}: limits {limits:?}", host.index, backend.index)
            });
        }
        let calm = self.calm_for(host) > 300 * MS;
        if after.renewals > before.renewals && moved == [false; 2] && calm {
            self.fail(Promise::OneRenews, || {
                format!("host {}: backend {} renews once more", host.index, backend.index)
            });
        }
    }

    /// How long a host, and what it waits for, has been in order.
    pub fn calm_for(&self, host: &Host) -> Time {
        let since = self.hosts.iter().map(|host| host.calm.get()).max().unwrap_or(0);
        if host.cut_off.get() { 0 } else { self.now.get().saturating_sub(since) }
    }

    /// A call took its time.
    fn took(&self, backend: &Backend, call: &Call) {
        let took = self.now.get() - call.begun;
        let wait = backend.configuration.borrow().settings.max_wait_ms * MS;
        if took > wait + 300 * MS && self.calm_for(backend.host()) > took + 300 * MS {
            self.fail(Promise::Availability, || {
                format!("host {} backend {}: {call:?} took {} ms", backend.host, backend.index, took / MS)
            });
        }
    }

    /// A call is refused.
    pub fn refuse(&self, backend: &Backend, error: Error) {
        let Some(call) = backend.call.take() else { return };
        backend.call_ended();
        self.judge.refused.set(self.judge.refused.get() + 1);
        self.trace(|| format!("host {} backend {} is refused: {error:?}", backend.host, backend.index));
        self.took(backend, &call);
        if !self.may_refuse(backend, &call, error) {
            self.fail(Promise::Availability, || {
                format!(
                    "host {} backend {}: {error:?} without need; {call:?}, slot {:?}, settings {:?}",
                    backend.host,
                    backend.index,
                    backend.shared.slot(shard_of(call.shard)),
                    backend.configuration.borrow().settings
                )
            });
        }
    }

    /// Whether the refusal has a reason.
    fn may_refuse(&self, backend: &Backend, call: &Call, error: Error) -> bool {
        let host = backend.host();
        let settings = backend.configuration.borrow().settings;
        let (unit, slot) = match call.kind {
            Kind::Plain => (1, backend.shared.slot(shard_of(call.shard)).next.tick()),
            Kind::Js => (1000, backend.shared.slot(js_shard_of(call.shard)).next.tick()),
        };
        let mark = backend.shared.state.mark.get();
        let next = slot.max(mark.floor());
        let reach = backend.last_read.get() + settings.max_ahead_ms;
        let behind = backend.shared.behind.get();
        match error {
            Error::BatchTooLarge { count, .. } | Error::BatchesBefore { count, .. } => {
                // The time that the clock reaches within most of the wait, from an unknown point within the
                // millisecond.
                let from = backend.shared.slot(shard_of(call.shard)).next.since(Position::FIRST);
                let first = (backend.last_read.get().max(mark.floor()) << 10).max(from) + 255;
                let end = (reach + settings.max_wait_ms / 8 * 7 + 1) << 10;
                let ahead = if let Error::BatchesBefore { shard, .. } = error {
                    batch::left(
                        backend.shared.backends.iter().map(|backend| &backend.batch),
                        shard,
                        host.clocks.boot_ms(self.now.get()),
                    )
                } else {
                    0
                };
                first + ahead + count > end
            }
            // Batches alone leave nobody without: what cannot be had is refused at once.
            Error::ShardFull { waited_ms, .. } => {
                next + unit > reach && waited_ms >= settings.max_wait_ms && self.plan.batches == 0
            }
            Error::ClockBehindMark { waited_ms, .. } => {
                let floor = mark.recovered().next_multiple_of(unit);
                floor > reach && waited_ms >= settings.max_wait_ms
            }
            Error::ClockBehind { waited_ms, .. } => {
                behind && next + unit > reach + QUEUE_MS && waited_ms >= settings.max_wait_ms
            }
            Error::ClockLeapt { by_ms } => {
                // Both clocks are truncated, and may be read 1 ms apart.
                let set = backend.shared.forward.get() / MS.cast_signed() + 3;
                settings.max_clock_jump_ms.is_some_and(|jump| by_ms > jump) && by_ms.cast_signed() <= set
            }
            Error::MarkNotRenewed { waited_ms } => {
                let took = self.now.get() - call.begun;
                let calm = self.calm_for(host) > took + 300 * MS;
                let names = host.file.borrow().names != Names::None;
                // Two renewals whose windows end before the call comes to use them are no wait, a third one is. The
                // first mark may be older than the call, the second is not.
                let dawdles = self.plan.lulls > 0 && took > settings.reserve_ahead_ms * MS;
                waited_ms >= settings.max_wait_ms
                    // On a disk in order, a flush is no reason.
                    && (settings.max_wait_ms < 300 && (names || dawdles) || !calm || self.waits_for_nobody(host))
            }
            Error::ClockStands { waited_ms } => behind && waited_ms >= settings.max_wait_ms,
            Error::Recovery => host.state.get() == State::Standby || self.calm_for(host) < 50 * MS,
            Error::Prepared { .. } => self.plan.prepares,
            // The caller knows.
            Error::AdvanceTooFar { .. } => true,
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

fn place_of(kind: Kind, place: u64) -> (u64, Tick, Tick) {
    match kind {
        Kind::Plain => (place, place >> 10, place >> 10),
        Kind::Js => (place, (place >> 12) * 1000, (place >> 12) * 1000 + 999),
    }
}
