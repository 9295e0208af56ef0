//! The promises about ids, horizons and waiting.

use std::collections::BTreeMap;
use std::fmt;

use crate::order::Order;
use crate::promise::{Broken, Caller, Promise};
use crate::run::{Kind, Run, Slot};
use crate::seen::Seen;

/// The allowance for processes that are kept from running, in microseconds.
const SLACK_US: u64 = 300_000;

/// The order of a slot's ids across all sessions, in a call for plain ids. Ids for JavaScript are always in strict
/// order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sequence {
    /// `idgen.max_lease` is 1: ids are greater than those of all calls that have ended.
    Strict,
    /// Ids are greater than those of calls that ended in an earlier millisecond.
    Sorted,
    /// `idgen.max_ahead` differs between sessions: a run that its call has waited for may be below ids that another
    /// session was allowed to have at once.
    Mixed,
    /// The clock repeats a millisecond, in which its old leases are valid again.
    Relived,
}

/// A call under way for a slot, and the bounds of its ids. Times are in milliseconds since the epoch.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub by: Caller,
    pub slot: Slot,
    /// The first requested shard, and the number of shards.
    pub shards: (u16, u16),
    /// No id may be below this horizon.
    pub horizon: i64,
    /// No id may have a later time.
    pub latest: u64,
    /// How far ids may be ahead of the clock if the session has waited for them: it may have taken them before another
    /// session with a greater allowance passed over them.
    pub waited: Option<u64>,
    /// The least time that the clock has shown since the call began.
    pub earliest: u64,
    pub strict: bool,
    /// No position may be below this one.
    pub least: u64,
    pub passed: (u64, u64),
    /// The number of times that the server had lost ids when the call began.
    pub losses: u32,
}

/// The ids that a server may not know of when it takes over. Times are in milliseconds since the epoch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lost {
    /// The mark that the server has: it knows of everything before this.
    pub from_ms: u64,
    /// The greatest millisecond of the ids that were given. The clock of the server has passed it.
    pub to_ms: u64,
}

/// For each slot, the position after the session's last one.
pub type Session = BTreeMap<Slot, u64>;

#[derive(Default)]
struct Server {
    orders: Vec<Order>,
    horizon: Option<i64>,
    /// The mark was raised to this millisecond: all ids are of it or later.
    raised_ms: u64,
    /// The number of times that the server began without knowing of all ids, and the range of these the last time.
    lost: (u32, Lost),
    /// Whether another server took over from this one, and whether this one became a primary again.
    replaced: bool,
    came_back: bool,
}

/// Returns an entry of a list, which grows as needed.
fn entry<T: Default>(list: &mut Vec<T>, index: usize) -> &mut T {
    if list.len() <= index {
        list.resize_with(index + 1, T::default);
    }
    &mut list[index]
}

/// An id with its parts.
fn shown(slot: Slot, position: u64) -> String {
    let (id, ms) = (slot.id(position), slot.ms(position));
    format!("{id} ({:?} shard {}, {ms}.{})", slot.kind, slot.shard, position - slot.first_of(ms))
}

/// The counters of a judge.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub ids: u64,
    pub calls: u64,
    pub horizons: u64,
    /// The number of refusals, by their text.
    pub refusals: BTreeMap<String, u64>,
}

/// Everything given so far, and the broken promises.
#[derive(Default)]
pub struct Judge {
    /// The broken promises, until the caller takes them.
    pub broken: Vec<Broken>,
    pub counts: Counts,
    /// The latest millisecond of any id, since the epoch.
    pub latest_ms: u64,
    /// Ids of earlier milliseconds are forgotten.
    forgotten_ms: u64,
    seen: Vec<Seen>,
    servers: Vec<Server>,
    /// The takeovers without loss, as the old and the new server.
    takeovers: Vec<(usize, usize)>,
    moves: Vec<Move>,
}

/// A move of a shard: from this position on, the server has it, or has given it to another cluster.
struct Move {
    slot: Slot,
    from: u64,
    server: usize,
    has: bool,
}

impl Judge {
    /// Notes a broken promise; the caller may have judged it.
    #[cold]
    pub fn fail(&mut self, promise: Promise, text: String) {
        self.broken.push(Broken { promise, text });
    }

    /// Reports ids that are outside of their bounds.
    #[cold]
    fn report(&mut self, promise: Promise, what: &str, run: Run, by: Caller, than: fmt::Arguments) {
        let [first, last] = [run.start, run.end() - 1].map(|position| shown(run.slot, position));
        self.fail(promise, format!("{what}: {first} to {last} of {by}, {than}"));
    }

    /// Reports ids below the position after another one.
    #[cold]
    fn report_order(&mut self, promise: Promise, what: &str, run: Run, by: Caller, least: u64) {
        let giver = entry(&mut self.seen, run.slot.index()).giver(least - 1);
        let giver = giver.map_or("a call that passed over it".into(), |giver| giver.to_string());
        let than = shown(run.slot, least - 1);
        self.report(promise, what, run, by, format_args!("below {than} of {giver}"));
    }

    fn server(&mut self, number: usize) -> &mut Server {
        entry(&mut self.servers, number)
    }

    fn order(&mut self, server: usize, slot: Slot) -> &mut Order {
        entry(&mut self.server(server).orders, slot.index())
    }

    /// The least position that a server may give for a slot, whatever its clock shows.
    fn floor(&mut self, server: usize, slot: Slot) -> u64 {
        let raised_ms = self.server(server).raised_ms;
        let raised = slot.first_of(raised_ms.next_multiple_of(slot.kind.unit_ms()));
        self.order(server, slot).earlier.max(raised)
    }

    /// Begins a call in a millisecond of its server's clock. Ids before `earliest` are too old.
    pub fn begin(&mut self, by: Caller, slot: Slot, ms: u64, earliest: u64, sequence: Sequence) -> Call {
        let strict = slot.kind == Kind::Js || sequence == Sequence::Strict;
        let floor = self.floor(by.server, slot);
        let server = self.server(by.server);
        let (horizon, losses) = (server.horizon.unwrap_or(i64::MIN), server.lost.0);
        let order = entry(&mut server.orders, slot.index());
        let (least, passed) = match sequence {
            _ if strict => (order.next, order.passed),
            Sequence::Relived => (0, (0, 0)),
            Sequence::Mixed => (0, order.passed),
            _ => (order.before(ms), order.passed),
        };
        let (shards, latest, least) = ((slot.shard, 1), u64::MAX, least.max(floor));
        Call { by, slot, shards, horizon, latest, waited: None, earliest, strict, least, passed, losses }
    }

    /// Checks the ids that a call has received.
    pub fn given(&mut self, session: &mut Session, call: &Call, run: Run) {
        let (by, slot, start, end) = (call.by, run.slot, run.start, run.end());
        let last_ms = slot.ms(end - 1);
        self.counts.ids += run.count;
        self.latest_ms = self.latest_ms.max(last_ms + slot.kind.unit_ms() - 1);
        let (first, count) = call.shards;
        if slot.kind != call.slot.kind || !(first..first + count).contains(&slot.shard) {
            let than = format_args!("not of the {count} from {first} on");
            self.report(Promise::Shard, "of another shard", run, by, than);
        }
        self.take(run, by, Some(call));
        if let Some(last) = session.insert(slot, end).filter(|last| start < *last) {
            self.report_order(Promise::SessionOrder, "out of order in a session", run, by, last);
        }
        let (passed, allowed) = call.passed;
        let passed = if call.waited.is_none_or(|ahead| ahead >= allowed) { passed } else { 0 };
        let least = call.least.max(passed);
        if start < least {
            self.report_order(Promise::Order, "out of order", run, by, least);
        }
        self.check_moves(run, by);
        if slot.ms(start) + slot.kind.unit_ms() <= call.earliest {
            self.report(Promise::Time, "before its call", run, by, format_args!("below {}", call.earliest));
        }
        if last_ms > call.latest {
            self.report(Promise::Time, "too far ahead", run, by, format_args!("above {}", call.latest));
        }
        if slot.kind == Kind::Plain && slot.id(start) < call.horizon {
            let than = format_args!("below {}", call.horizon);
            self.report(Promise::Settled, "below a horizon that was given before its call", run, by, than);
        }
    }

    /// Notes that positions were given, by this call if it is known.
    pub(crate) fn take(&mut self, run: Run, by: Caller, call: Option<&Call>) {
        let Run { slot, start, .. } = run;
        let end = run.end();
        let before = entry(&mut self.seen, slot.index()).add(start, end, by);
        // A server that does not know of all ids must not repeat any in a call that begins after its clock has passed
        // them. A call that began on the standby may have read the clock before.
        let mut excused_ms = 0..0;
        if let Some(call) = call {
            let (losses, Lost { from_ms, to_ms }) = self.server(by.server).lost;
            if call.losses < losses && call.earliest <= to_ms {
                excused_ms = from_ms..to_ms + 1;
            }
            let given = &mut self.order(by.server, slot).given;
            *given = Some(given.map_or((start, end), |(first, last)| (first.min(start), last.max(end))));
        }
        let broken = |(from, to, other): &(u64, u64, Caller)| {
            let excused = [*from, to - 1].into_iter().all(|position| excused_ms.contains(&slot.ms(position)));
            other.server == by.server || !excused
        };
        if let Some((from, to, other)) = before.into_iter().find(broken) {
            let run = Run { start: from, count: to - from, ..run };
            self.report(Promise::NoIdTwice, "repeated", run, by, format_args!("and before of {other}"));
        }
    }

    /// Ends a call in a millisecond of its server's clock, with the ids of its session up to the last one.
    pub fn ended(&mut self, call: &Call, session: &Session, ms: u64) {
        if let Some(next) = session.get(&call.slot) {
            self.order(call.by.server, call.slot).ended(ms, *next);
        }
    }

    /// Notes that a call has passed over all ids up to `past`, and that the least next id is `next`. The call was
    /// allowed to be `ahead` of the clock.
    pub fn passed(&mut self, by: Caller, past: i64, next: i64, ahead: u64) {
        if next <= past {
            let text = format!("out of order: {next} comes after {past} was passed over: {by}");
            self.fail(Promise::Order, text);
        }
        let (slot, position) = Slot::of(past, Kind::Plain);
        let passed = &mut self.order(by.server, slot).passed;
        *passed = (*passed).max((position + 1, ahead));
    }

    /// Notes that a shard has moved to a server of another cluster, or from there if `has` is false. The old server
    /// closed it with `bound` as the first id that it will never mint; on the new one, calls have gone past the id
    /// before.
    pub fn moved(&mut self, shard: u16, bound: i64, server: usize, has: bool) {
        let (plain, first) = Slot::of(bound, Kind::Plain);
        let js = Slot { kind: Kind::Js, shard };
        let (before, last) = Slot::of((bound - 1).max(0), Kind::Plain);
        for (slot, from) in [(plain, first), (js, js.first_of(before.ms(last) + Kind::Js.unit_ms()))] {
            for other in (0..self.servers.len()).filter(|other| (*other == server) != has) {
                if let Some((_, end)) = self.order(other, slot).given.filter(|(_, end)| *end > from) {
                    let [end, from] = [end - 1, from].map(|position| shown(slot, position));
                    let text = format!("server {other} gave {end}, and closed the shard at {from}");
                    self.fail(Promise::Moved, text);
                }
            }
            self.moves.push(Move { slot, from, server, has });
        }
    }

    /// Checks that ids come from the server that has the shard at their position. A server that has lost ids goes by
    /// its clock.
    fn check_moves(&mut self, run: Run, by: Caller) {
        if self.server(by.server).lost.0 > 0 {
            return;
        }
        let latest = |position: u64| {
            let mut moves = self.moves.iter().rev().filter(|of| of.slot == run.slot);
            moves.find(|of| of.from <= position)
        };
        let mut wrong = [run.start, run.end() - 1].into_iter().filter_map(latest);
        if let Some(of) = wrong.find(|of| (by.server == of.server) != of.has) {
            let from = shown(run.slot, of.from);
            self.report(
                Promise::Moved,
                "of a shard that is elsewhere",
                run,
                by,
                format_args!("from {from} on"),
            );
        }
    }

    /// Notes that all ids of calls that begin from now on are of this millisecond or later.
    pub fn raised(&mut self, server: usize, ms: u64) {
        let raised_ms = &mut self.server(server).raised_ms;
        *raised_ms = ms.max(*raised_ms);
    }

    /// The position after the last one that a server has given for a slot.
    pub fn given_up_to(&mut self, server: usize, slot: Slot) -> u64 {
        self.order(server, slot).given.map_or(0, |(_, last)| last)
    }

    /// Checks a horizon, with the ids that open transactions have minted.
    pub fn horizon(&mut self, by: Caller, horizon: i64, open: impl IntoIterator<Item = i64>) {
        let last = self.horizon_of(by.server);
        if horizon < last {
            self.fail(Promise::NeverBack, format!("the horizon went back from {last} to {horizon}: {by}"));
        }
        self.raise_horizon(by.server, horizon);
        for id in open.into_iter().filter(|id| *id < horizon) {
            let text = format!("below a horizon of {horizon} is {id} of an open transaction: {by}");
            self.fail(Promise::Settled, text);
        }
    }

    /// Notes that calls that begin from now on mint no id below this horizon.
    pub(crate) fn raise_horizon(&mut self, server: usize, horizon: i64) {
        self.counts.horizons += 1;
        let last = &mut self.server(server).horizon;
        *last = (*last).max(Some(horizon));
    }

    /// The horizon below which a server mints no id.
    pub fn horizon_of(&mut self, server: usize) -> i64 {
        self.server(server).horizon.unwrap_or(i64::MIN)
    }

    /// Checks that the ids of a call, or a limit, end at or below what is durable.
    pub fn limited(&mut self, what: &str, end_ms: u64, durable: u64, by: Caller) {
        if end_ms > durable {
            self.fail(Promise::Limit, format!("{what} up to {end_ms}, and {durable} is durable: {by}"));
        }
    }

    /// Checks that a call has waited no longer than `max_wait_us`, if nothing was wrong for the last `calm_us`.
    pub fn waited(&mut self, by: Caller, max_wait_us: u64, calm_us: u64) {
        let took = by.ended_us - by.begun_us;
        if took > max_wait_us + SLACK_US && calm_us > took + SLACK_US {
            self.fail(Promise::Availability, format!("a call that waits for too long: {took} us: {by}"));
        }
    }

    /// Notes that a server's clock was set back to a millisecond. With 0, ids have no order with those of earlier
    /// calls, as after a change of `idgen.max_ahead`.
    pub fn set_back(&mut self, server: usize, ms: u64) {
        self.server(server).orders.iter_mut().for_each(|order| order.set_back(ms));
    }

    /// Notes that the clock was set back to `ms` during a call, which may have a lease of a repeated millisecond.
    pub fn relive(&mut self, call: &mut Call, ms: u64) {
        call.earliest = call.earliest.min(ms);
        if !call.strict {
            call.least = call.least.min(self.floor(call.by.server, call.slot));
            call.passed = (0, 0);
        }
    }

    /// Begins the next incarnation of a server that has lost nothing.
    pub fn restarted(&mut self, server: usize) {
        self.restart(server, server, |_, order| order.left());
    }

    /// Makes a server a copy of another one. A copy has not passed over anything itself.
    pub fn copied(&mut self, server: usize) {
        let server = self.server(server);
        server.orders.iter_mut().for_each(|order| order.restart(0));
        server.raised_ms = 0;
    }

    /// Makes a server take over from another one, or go on from a backup; `lost` says which ids it may not know of.
    pub fn takes_over(&mut self, to: usize, from: usize, lost: Option<Lost>) {
        let Server { horizon, raised_ms, .. } = *self.server(from);
        let server = self.server(to);
        server.came_back |= server.replaced;
        server.raised_ms = raised_ms.min(lost.map_or(u64::MAX, |lost| lost.from_ms));
        if let Some(lost) = lost {
            let known = |slot: Slot| slot.first_of(lost.from_ms);
            let slot = Slot::at(0);
            server.horizon = horizon.filter(|horizon| *horizon <= slot.id(known(slot)));
            server.lost = (server.lost.0 + 1, lost);
            self.restart(to, from, |slot, order| order.left().min(known(slot)).max(order.next));
        } else {
            server.horizon = horizon;
            self.takeovers.push((from, to));
            self.restart(to, from, |_, order| order.left());
        }
        self.server(from).replaced = true;
    }

    /// Begins a server above everything left by the server whose data it has, and above the ids that it gave itself.
    /// Ids that it had passed over are forgotten if the other server has forgotten them.
    fn restart(&mut self, to: usize, from: usize, left: impl Fn(Slot, &Order) -> u64) {
        for slot in (0..self.server(from).orders.len().max(self.server(to).orders.len())).map(Slot::at) {
            let left = left(slot, self.order(from, slot));
            let order = self.order(to, slot);
            order.restart(left.max(order.next));
        }
    }

    /// Checks that each server that took over began above all ids of the old one, even if that one lives on.
    fn check_takeovers(&mut self) {
        for (from, to) in self.takeovers.clone() {
            // A server that came back as a primary has ids from two periods.
            if self.server(from).came_back || self.server(to).came_back {
                continue;
            }
            for slot in (0..self.server(from).orders.len()).map(Slot::at) {
                let [old, new] = [from, to].map(|server| self.order(server, slot).given);
                if let (Some((_, last)), Some((first, _))) = (old, new)
                    && first < last
                {
                    let (first, last) = (shown(slot, first), shown(slot, last - 1));
                    let text = format!(
                        "server {to} gave {first}, and server {from}, from which it took over, up to {last}"
                    );
                    self.fail(Promise::Takeover, text);
                }
            }
        }
    }

    /// Ends a round, when no call is under way. `lost` says that a server took over that may not know of earlier
    /// horizons.
    pub(crate) fn end_round(&mut self, lost: bool) {
        self.check_takeovers();
        for server in &mut self.servers {
            for order in &mut server.orders {
                *order = Order { given: order.given, ..Order::default() };
            }
            if lost {
                server.horizon = None;
            }
        }
    }

    /// Checks the ids of a new session, whose times are not known.
    pub fn session(&mut self, by: Caller, ids: &[i64], kind: Kind) {
        let mut session = Session::default();
        for run in Run::of(ids, kind) {
            let call = self.begin(by, run.slot, 0, self.forgotten_ms, Sequence::Relived);
            self.given(&mut session, &call, run);
        }
    }

    /// Forgets the ids before a millisecond that every clock has passed: they cannot be given again.
    pub fn forget(&mut self, ms: u64) {
        self.forgotten_ms = ms;
        for (index, seen) in self.seen.iter_mut().enumerate() {
            seen.forget(Slot::at(index).first_of(ms));
        }
    }

    /// The ids that were given.
    pub fn ids(&self, kind: Kind) -> impl Iterator<Item = i64> {
        let slots = self.seen.iter().enumerate().map(|(index, seen)| (Slot::at(index), seen));
        let slots = slots.filter(move |(slot, _)| slot.kind == kind);
        slots.flat_map(|(slot, seen)| seen.positions().map(move |position| slot.id(position)))
    }

    /// Fails the test if a promise is broken, with the first ten findings.
    ///
    /// # Panics
    /// If a promise is broken.
    pub fn assert_kept(&self) {
        let texts: Vec<&str> = self.broken.iter().take(10).map(|broken| broken.text.as_str()).collect();
        assert!(texts.is_empty(), "{} findings, the first:\n{}", self.broken.len(), texts.join("\n"));
    }
}
