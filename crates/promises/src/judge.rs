//! The promises about ids, horizons and waiting.

use std::collections::BTreeMap;
use std::fmt;

use crate::order::{Bound, Order};
use crate::seen::Seen;
use crate::{Broken, Caller, Kind, Promise, Run, Slot};

/// By how much calls may be late because of processes that others keep from running.
const SLACK_US: u64 = 300_000;
/// The beginnings of refusals that a client may hear of long after they came about.
const HEARD_LATE: [&str; 2] = ["lost", "57P"];

/// How ids of a slot are in order over all sessions, in a call of plain ids. Ids for JavaScript are in strict order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sequence {
    /// `idgen.max_lease` is 1: ids are greater than those of all calls that have ended.
    Strict,
    /// Ids are greater than those of calls that ended in an earlier millisecond.
    Sorted,
    /// `idgen.max_ahead` differs between sessions: a run that is waited for may be below ids that others were allowed
    /// to have at once.
    Mixed,
    /// The clock shows a millisecond again, in which leases of the first time are good once more.
    Relived,
}

/// A call under way for a slot, with what holds for its ids.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    pub slot: Slot,
    /// The first of the shards that were asked for, and how many there are.
    pub shards: (u16, u16),
    /// No id is below this horizon.
    pub horizon: i64,
    /// The least time that the clock has shown since the call began, in milliseconds since the epoch.
    earliest: u64,
    strict: bool,
    bound: Bound,
    passed: (u64, u64),
    /// How often the server had lost ids when the call began.
    losses: u32,
}

/// The last id of a session for each slot, and its call.
#[derive(Clone, Debug, Default)]
pub struct Session {
    last: BTreeMap<Slot, (u64, Caller)>,
}

#[derive(Default)]
struct State {
    order: Order,
    /// The first position and the one after the last that the server has given.
    given: Option<(u64, u64)>,
}

#[derive(Default)]
struct Server {
    states: [Vec<State>; 2],
    horizon: Option<i64>,
    /// How often the server began without knowing of all ids, and the greatest millisecond of these.
    lost: (u32, u64),
}

/// An entry of a list that grows as needed.
fn entry<T: Default>(list: &mut Vec<T>, index: usize) -> &mut T {
    if list.len() <= index {
        list.resize_with(index + 1, T::default);
    }
    &mut list[index]
}

impl Server {
    fn state(&mut self, slot: Slot) -> &mut State {
        entry(&mut self.states[slot.kind as usize], slot.shard.into())
    }

    fn orders(&mut self) -> impl Iterator<Item = &mut Order> {
        self.states.iter_mut().flatten().map(|state| &mut state.order)
    }
}

/// An id with its parts.
fn shown(slot: Slot, position: u64) -> String {
    let first = slot.first_of(slot.ms(position));
    let (id, ms) = (slot.id(position), slot.ms(position));
    format!("{id} ({:?} shard {}, {ms}.{})", slot.kind, slot.shard, position - first)
}

/// What was given so far, and what is broken.
#[derive(Default)]
pub struct Judge {
    /// What is broken, until somebody takes it.
    pub broken: Vec<Broken>,
    pub ids: u64,
    /// The last millisecond of all ids, since the epoch.
    pub latest_ms: u64,
    seen: [Vec<Seen>; 2],
    servers: Vec<Server>,
    /// Which server took over from which with all that was acknowledged: from, to.
    takeovers: Vec<(usize, usize, bool)>,
}

impl Judge {
    #[cold]
    fn fail(&mut self, promise: Promise, text: String) {
        self.broken.push(Broken { promise, text });
    }

    /// Reports ids that lie where they should not.
    #[cold]
    fn report(&mut self, promise: Promise, what: &str, run: Run, by: Caller, than: fmt::Arguments) {
        let [first, last] = [run.start, run.end() - 1].map(|position| shown(run.slot, position));
        self.fail(promise, format!("{what}: {first} to {last} of {by}, {than}"));
    }

    fn server(&mut self, number: usize) -> &mut Server {
        entry(&mut self.servers, number)
    }

    fn seen(&mut self, slot: Slot) -> &mut Seen {
        entry(&mut self.seen[slot.kind as usize], slot.shard.into())
    }

    /// A call of a server begins in a millisecond of its clock; an id of an earlier one than `earliest` is too old.
    pub fn begin(&mut self, server: usize, slot: Slot, ms: u64, earliest: u64, sequence: Sequence) -> Open {
        let strict = slot.kind == Kind::Js || sequence == Sequence::Strict;
        let server = self.server(server);
        let (horizon, losses) = (server.horizon.unwrap_or(i64::MIN), server.lost.0);
        let Order { passed, next, earlier, .. } = server.state(slot).order;
        let (bound, passed) = match sequence {
            _ if strict => (next, passed),
            Sequence::Relived => (Bound::default(), (0, 0)),
            Sequence::Mixed => (Bound::default(), passed),
            _ => (server.state(slot).order.before(ms), passed),
        };
        Open {
            slot,
            shards: (slot.shard, 1),
            horizon,
            earliest,
            strict,
            bound: bound.max(earlier),
            passed,
            losses,
        }
    }

    /// A call has given ids, none later than `latest` in milliseconds since the epoch. `allowed_ahead` is how far they
    /// may be ahead of the clock if the session has waited for them, and may have taken them before others passed over
    /// them with a greater allowance.
    pub fn given(
        &mut self,
        by: Caller,
        session: &mut Session,
        call: &Open,
        run: Run,
        latest: u64,
        allowed_ahead: Option<u64>,
    ) {
        let (slot, start, end) = (run.slot, run.start, run.end());
        let last_ms = slot.ms(end - 1);
        self.ids += run.count;
        self.latest_ms = self.latest_ms.max(last_ms + slot.kind.unit_ms() - 1);
        let (first, count) = call.shards;
        if slot.kind != call.slot.kind || !(first..first + count).contains(&slot.shard) {
            let than = format_args!("not of the {count} from {first} on");
            self.report(Promise::Shard, "of another shard", run, by, than);
        }
        self.take(run, by, Some(call));
        if let Some((last, before)) = session.last.insert(slot, (end, by))
            && start < last
        {
            let than = format_args!("after {} of {before}", shown(slot, last - 1));
            self.report(Promise::SessionOrder, "out of order in a session", run, by, than);
        }
        let Bound { least, by: before } = call.bound;
        if start < least {
            let than = format_args!("below {} of {before}", shown(slot, least - 1));
            self.report(Promise::Order, "out of order", run, by, than);
        } else if start < call.passed.0 && allowed_ahead.is_none_or(|ahead| ahead >= call.passed.1) {
            let than = format_args!("below {}, which was passed over", shown(slot, call.passed.0 - 1));
            self.report(Promise::Order, "out of order", run, by, than);
        }
        if slot.ms(start) + slot.kind.unit_ms() <= call.earliest {
            self.report(Promise::Time, "before its call", run, by, format_args!("below {}", call.earliest));
        }
        if last_ms > latest {
            self.report(Promise::Time, "too far ahead", run, by, format_args!("above {latest}"));
        }
        if slot.kind == Kind::Plain && slot.id(start) < call.horizon {
            let than = format_args!("below {}", call.horizon);
            self.report(Promise::Settled, "below a horizon that was given before its call", run, by, than);
        }
    }

    /// Notes that positions were given, by a call if it is known.
    pub(crate) fn take(&mut self, run: Run, by: Caller, call: Option<&Open>) {
        let Run { slot, start, .. } = run;
        let end = run.end();
        let seen = self.seen(slot);
        let least = seen.least;
        let found = seen.add(start, end, by);
        if start < least {
            self.report(Promise::Time, "before its period", run, by, format_args!("below {least}"));
        }
        let mut excused = false;
        if let Some(call) = call {
            let server = self.server(by.server);
            let (losses, lost_ms) = server.lost;
            let given = &mut server.state(slot).given;
            let (first, last) = given.unwrap_or((start, end));
            *given = Some((first.min(start), last.max(end)));
            // A server that does not know of all ids repeats none in a call that begins when its clock has passed
            // them. A call that began on the standby may have read the clock before.
            excused = found.is_some_and(|(_, to, other)| {
                let early = call.losses < losses && call.earliest <= lost_ms;
                early && slot.ms(to - 1) <= lost_ms && other.server != by.server
            });
        }
        if let Some((from, to, other)) = found.filter(|_| !excused) {
            let run = Run { start: from, count: to - from, ..run };
            self.report(Promise::NoIdTwice, "repeated", run, by, format_args!("and before of {other}"));
        }
    }

    /// A call has ended in a millisecond of its server's clock, with the ids of its session up to the last one.
    pub fn ended(&mut self, server: usize, slot: Slot, session: &Session, ms: u64) {
        if let Some((least, by)) = session.last.get(&slot).copied() {
            self.server(server).state(slot).order.ended(ms, Bound { least, by });
        }
    }

    /// A call has passed over all ids up to one, and says which is the least that comes next. Its session was allowed
    /// to be so far ahead of the clock.
    pub fn passed(&mut self, by: Caller, past: i64, next: i64, ahead: u64) {
        if next <= past {
            self.fail(
                Promise::Order,
                format!("out of order: {next} comes after {past} was passed over: {by}"),
            );
        }
        let (slot, position) = Slot::of(past, Kind::Plain);
        let order = &mut self.server(by.server).state(slot).order;
        order.passed = order.passed.max((position + 1, ahead));
    }

    /// A horizon was given, while transactions are open that have minted these ids.
    pub fn horizon(&mut self, by: Caller, horizon: i64, open: impl IntoIterator<Item = i64>) {
        let last = self.server(by.server).horizon;
        if let Some(last) = last.filter(|last| horizon < *last) {
            self.fail(Promise::NeverBack, format!("the horizon went back from {last} to {horizon}: {by}"));
        }
        self.raise_horizon(by.server, horizon);
        for id in open.into_iter().filter(|id| *id < horizon) {
            let text = format!("below a horizon of {horizon} is {id} of an open transaction: {by}");
            self.fail(Promise::Settled, text);
        }
    }

    /// No call that begins from now on mints below this horizon.
    pub(crate) fn raise_horizon(&mut self, server: usize, horizon: i64) {
        let server = self.server(server);
        server.horizon = server.horizon.max(Some(horizon));
    }

    /// The horizon below which a server mints no id.
    pub fn horizon_of(&mut self, server: usize) -> i64 {
        self.server(server).horizon.unwrap_or(i64::MIN)
    }

    /// Ids up to a millisecond were given, or taken, by a call that found this limit.
    pub fn limited(&mut self, by: Caller, last_ms: u64, limit: u64) {
        if last_ms >= limit {
            self.fail(Promise::Limit, format!("{last_ms} is not below the limit {limit}: {by}"));
        }
    }

    /// A limit was raised, and this much is on the disks that it has to be on.
    pub fn limit_raised(&mut self, server: usize, limit: u64, durable: u64) {
        if limit > durable {
            self.fail(Promise::Limit, format!("server {server}: limit {limit}, and {durable} is durable"));
        }
    }

    /// A mark was written without need, because another backend was about to write it.
    pub fn renewed_again(&mut self, by: Caller) {
        self.fail(Promise::OneRenews, format!("renewed once more: {by}"));
    }

    /// A call may wait for so long, and nothing has been wrong for a time.
    pub fn waited(&mut self, by: Caller, max_wait_us: u64, calm_us: u64) {
        let took = by.ended_us - by.begun_us;
        if took > max_wait_us + SLACK_US && calm_us > took + SLACK_US {
            self.fail(Promise::Availability, format!("a call that waits for too long: {took} us: {by}"));
        }
    }

    /// A call was refused. Its connection was last heard of at `heard_us`. A fault explains refusals of its time: from,
    /// to, and how they begin; `needed` says whether there is another reason.
    pub fn refused<S: AsRef<str>>(
        &mut self,
        by: Caller,
        heard_us: u64,
        why: &str,
        faults: &[(u64, u64, &[S])],
        needed: bool,
    ) {
        let heard_late = HEARD_LATE.iter().any(|begin| why.starts_with(begin));
        let since = if heard_late { heard_us } else { by.begun_us };
        let explained = faults.iter().any(|(from, to, allowed)| {
            *from <= by.ended_us
                && *to >= since
                && allowed.iter().any(|begin| why.starts_with(begin.as_ref()))
        });
        if !explained && !needed {
            self.fail(Promise::Availability, format!("a refusal that no promise allows: {why} ({by})"));
        }
    }

    /// A server's clock was set back to a millisecond. With 0, ids are in no order with those of earlier calls, as after
    /// a change of `idgen.max_ahead`.
    pub fn set_back(&mut self, server: usize, ms: u64) {
        self.server(server).orders().for_each(|order| order.set_back(ms));
    }

    /// The clock was set back to this during a call, which may have a lease of a millisecond that comes again.
    pub fn relive(&mut self, server: usize, call: &mut Open, ms: u64) {
        call.earliest = call.earliest.min(ms);
        if !call.strict {
            call.bound = self.server(server).state(call.slot).order.earlier;
            call.passed = (0, 0);
        }
    }

    /// A server begins its next incarnation with all that it had.
    pub fn restarted(&mut self, server: usize) {
        self.server(server).orders().for_each(Order::begin);
    }

    /// A server takes over from another with all that was acknowledged.
    pub fn takes_over(&mut self, to: usize, from: usize) {
        self.takeovers.push((from, to, true));
        let horizon = self.server(from).horizon;
        let server = self.server(to);
        server.horizon = server.horizon.max(horizon);
        self.inherit(to, from, Order::take_over);
    }

    /// A server takes over from another, or goes on from a backup, without all that was acknowledged. The greatest
    /// millisecond of the ids that were given is `lost_ms`, and its clock has passed that.
    pub fn takes_over_with_loss(&mut self, to: usize, from: usize, lost_ms: u64) {
        self.takeovers.push((from, to, false));
        let server = self.server(to);
        server.horizon = None;
        server.lost = (server.lost.0 + 1, lost_ms);
        self.inherit(to, from, |order, other| order.lose(other.next));
    }

    fn inherit(&mut self, to: usize, from: usize, inherit: impl Fn(&mut Order, &Order)) {
        for kind in 0..2 {
            let [old, new] = [from, to].map(|server| self.server(server).states[kind].len());
            for shard in 0..old.max(new) {
                let order = entry(&mut self.server(from).states[kind], shard).order.clone();
                inherit(&mut entry(&mut self.server(to).states[kind], shard).order, &order);
            }
        }
    }

    /// A server that took over began above all ids of the one before, even if that one lives on.
    fn check_takeovers(&mut self) {
        for at in 0..self.takeovers.len() {
            let (from, to, keeps_all) = self.takeovers[at];
            // A server that came back as a primary has ids of two times.
            let comes_back = |server| {
                let left = self.takeovers.iter().position(|(from, ..)| *from == server);
                let came = self.takeovers.iter().rposition(|(_, to, _)| *to == server);
                left.is_some_and(|left| came.is_some_and(|came| left < came))
            };
            if !keeps_all || comes_back(to) || comes_back(from) {
                continue;
            }
            for kind in [Kind::Plain, Kind::Js] {
                for shard in 0..self.server(from).states[kind as usize].len() {
                    let slot = Slot { kind, shard: shard as u16 };
                    let [old, new] = [from, to].map(|server| self.server(server).state(slot).given);
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
    }

    /// No call is under way. `lost` says that a server took over that may not know of horizons that were given.
    pub(crate) fn end_round(&mut self, lost: bool) {
        self.check_takeovers();
        for server in &mut self.servers {
            server.orders().for_each(|order| *order = Order::default());
            if lost {
                server.horizon = None;
            }
        }
    }

    /// A session was given these ids and none before, and nobody knows when.
    pub fn session(&mut self, by: Caller, ids: &[i64], kind: Kind) {
        let mut session = Session::default();
        for run in Run::of(ids, kind) {
            let call = self.begin(by.server, run.slot, 0, 0, Sequence::Relived);
            self.given(by, &mut session, &call, run, u64::MAX, None);
        }
    }

    /// Forgets all ids of times before a millisecond that every clock has passed. They can be given no more.
    pub fn forget(&mut self, ms: u64) {
        for kind in [Kind::Plain, Kind::Js] {
            let slot = Slot { kind, shard: 0 };
            self.seen[kind as usize].iter_mut().for_each(|seen| seen.forget(slot.first_of(ms)));
        }
    }

    /// The ids that were given.
    pub fn ids(&self, kind: Kind) -> impl Iterator<Item = i64> {
        self.seen[kind as usize].iter().enumerate().flat_map(move |(shard, seen)| {
            let slot = Slot { kind, shard: shard as u16 };
            seen.runs().flat_map(move |(start, end)| (start..end).map(move |position| slot.id(position)))
        })
    }

    /// The first promise that is broken stops a test.
    ///
    /// # Panics
    /// Where one is broken.
    pub fn assert_kept(&self) {
        let texts: Vec<&str> = self.broken.iter().take(10).map(|broken| broken.text.as_str()).collect();
        assert!(texts.is_empty(), "{} findings, the first:\n{}", self.broken.len(), texts.join("\n"));
    }
}
