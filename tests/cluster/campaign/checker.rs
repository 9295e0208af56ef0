//! Whether what clients were given and refused is what idgen promises: docs/guarantees.md. It knows nothing of the
//! clients but what they have written down, and checks a world one round after the other. Between two rounds no call
//! is under way.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

use crate::campaign::journal::{Answer, Event, Record, Run, ServerNumber, Shard};
use crate::moment::Moment;
use crate::server::ClockSet;

/// `idgen.epoch` and `idgen.max_ahead` if nobody has changed them, in milliseconds.
const EPOCH_UNIX_MS: i64 = 1_704_067_200_000;
const MAX_AHEAD_MS: i64 = 1000;
/// How far a mark may be ahead of the last id: `idgen.reserve_ahead` of a world, the queue for a full shard, and
/// the ids of a statement that was never answered.
const MARK_AHEAD_MS: i64 = 500;
/// How far two readings of one clock may be apart, in milliseconds.
const SKEW_MS: i64 = 1;
/// The beginnings of messages of refusals because of the clock; whether they are due depends on the time that it
/// shows.
const FOR_THE_CLOCK: [&str; 4] = [
    "40001 the system clock is behind",
    "40001 shard",
    "22023 count",
    "55000 the high-water mark of ids lies in the future",
];
/// Refusals that a client may hear of long after they came about.
const BROKEN: [&str; 2] = ["lost", "57P"];

/// What has been counted.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub ids: u64,
    pub calls: u64,
    pub rows: u64,
    pub horizons: u64,
    pub refusals: BTreeMap<String, u64>,
}

/// What the checker remembers of earlier rounds.
#[derive(Default)]
pub struct Checker {
    pub counts: Counts,
    max_ahead_ms: Option<i64>,
    epoch_unix_ms: Option<i64>,
    clocks: HashMap<ServerNumber, Vec<ClockSet>>,
    /// The positions that were given, each run with its end and its call.
    taken: HashMap<Shard, BTreeMap<u64, (u64, Call)>>,
    /// The last id of a session.
    last: HashMap<(u64, Shard), (u64, Call)>,
    /// The first and the last position that a server has given.
    given: HashMap<(ServerNumber, Shard), (u64, u64)>,
    /// Which server took over from which, and whether with all data.
    successions: Vec<(ServerNumber, ServerNumber, bool)>,
    /// The time up to which acknowledged rows and horizons may be lost, because the server that took over lacks
    /// them. It lies in this round.
    lost_until: Option<Moment>,
    /// The greatest horizon that a server has answered.
    horizons: HashMap<ServerNumber, i64>,
    /// What one reader after the other has followed: up to where, since when, and the rows.
    followed: Option<(i64, i64)>,
    seen: HashSet<i64>,
    /// The rows that were answered as committed, and when.
    committed: BTreeMap<i64, Moment>,
    /// Ids of rows that clients know of, or that were found.
    rows: HashSet<i64>,
    /// The latest moment that an id was given for, since 1970 in milliseconds.
    latest_ms: i64,
    found: Vec<String>,
}

/// A call, as far as it is told of.
#[derive(Clone, Copy, Debug)]
struct Call {
    session: u64,
    server: ServerNumber,
    called: Moment,
    answered: Moment,
}

impl Call {
    fn of(record: &Record) -> Call {
        Call {
            session: record.session,
            server: record.server,
            called: record.called,
            answered: record.answered,
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Call { session, server, called, answered } = self;
        write!(f, "session {session} on server {server}, {} to {} us", called.us, answered.us)
    }
}

/// A run that a call was given, and whether its server's clock was set by nobody since the session's call before.
#[derive(Clone, Copy)]
struct Given {
    call: Call,
    steady: bool,
    run: Run,
}

/// A time in which faults lasted.
struct Window<'a> {
    from: Moment,
    to: Moment,
    allows: &'a [String],
}

impl Checker {
    /// Checks what has been written since the last round; says what breaks a promise.
    pub fn round(&mut self, mut records: Vec<Record>, events: &[Event]) -> Vec<String> {
        records.sort_by_key(|record| (record.answered, record.session));
        let windows = self.take_in(events);
        self.refusals(&records, &windows);
        for record in &records {
            self.counts.calls += 1;
            match &record.answer {
                Answer::Ids(runs) | Answer::Inserted(runs) => self.ids(record, runs),
                // Rows of a transaction had their ids before it was committed.
                Answer::Committed(runs) if record.statement == "COMMIT" => self.commit(record, runs),
                Answer::Committed(runs) => {
                    self.ids(record, runs);
                    self.commit(record, runs);
                }
                Answer::Horizon { from, to, rows } => self.follow(record, *from, *to, rows),
                Answer::Refused(_) => {}
            }
        }
        self.order(&records);
        self.servers_in_order();
        if let Some(until) = self.lost_until.take() {
            self.horizons.clear();
            self.followed = None;
            self.committed.retain(|_, answered| *answered > until);
        }
        for event in events {
            if let Event::Rows { ids } = event {
                self.table(ids);
            }
        }
        std::mem::take(&mut self.found)
    }

    /// Takes in what became of the servers.
    fn take_in<'a>(&mut self, events: &'a [Event]) -> Vec<Window<'a>> {
        let mut windows = Vec::new();
        for event in events {
            match event {
                Event::Clock { server, set } => self.clocks.entry(*server).or_default().push(*set),
                Event::Faults { from, to, allows, .. } => {
                    windows.push(Window { from: *from, to: *to, allows });
                }
                Event::Succession { at, server, from, keeps_all } => {
                    self.successions.push((*from, *server, *keeps_all));
                    if *keeps_all {
                        let inherited = self.horizons.get(from).copied().unwrap_or(i64::MIN);
                        let horizon = self.horizons.entry(*server).or_insert(inherited);
                        *horizon = inherited.max(*horizon);
                    } else {
                        self.lost_until = Some(*at);
                    }
                }
                Event::MaxAhead { ms } => self.max_ahead_ms = Some(self.max_ahead_ms().max(*ms)),
                Event::Epoch { unix_ms } => self.epoch_unix_ms = Some(*unix_ms),
                Event::Rows { .. } => {}
            }
        }
        windows
    }

    fn max_ahead_ms(&self) -> i64 {
        self.max_ahead_ms.unwrap_or(MAX_AHEAD_MS)
    }

    fn epoch_unix_ms(&self) -> i64 {
        self.epoch_unix_ms.unwrap_or(EPOCH_UNIX_MS)
    }

    /// How far a server's clock may have been set between two moments: at least and at most, in milliseconds.
    fn ahead_ms(&self, server: ServerNumber, from: Moment, to: Moment) -> (i64, i64) {
        let sets = self.clocks.get(&server).map_or(&[][..], Vec::as_slice);
        let mut in_force: Vec<i64> = Vec::new();
        for (at, set) in sets.iter().enumerate() {
            let until = sets.get(at + 1).map(|next| next.to.us);
            if set.from.us <= to.us && until.is_none_or(|until| until >= from.us) {
                in_force.push(set.ahead_ms);
            }
        }
        let least = in_force.iter().min().copied().unwrap_or(0);
        (least, in_force.iter().max().copied().unwrap_or(0))
    }

    /// The latest time that any clock has shown until a moment, in milliseconds since 1970.
    fn latest_shown_ms(&self, until: Moment) -> i64 {
        let shown = self.clocks.values().flat_map(|sets| {
            sets.iter().enumerate().filter(|(_, set)| set.from.us <= until.us).map(|(at, set)| {
                let end = sets.get(at + 1).map_or(until, |next| next.to.min(until));
                end.unix_us / 1000 + set.ahead_ms
            })
        });
        shown.max().unwrap_or(until.unix_us / 1000)
    }

    fn refusals(&mut self, records: &[Record], windows: &[Window]) {
        for record in records {
            let Answer::Refused(why) = &record.answer else {
                for run in runs_of(record) {
                    self.latest_ms = self.latest_ms.max(run.ms(run.end() - 1) + self.epoch_unix_ms());
                }
                continue;
            };
            *self.counts.refusals.entry(why.clone()).or_default() += 1;
            let broken = BROKEN.iter().any(|begin| why.starts_with(begin));
            let since = if broken { record.heard } else { record.called };
            let explained = windows.iter().any(|window| {
                window.from.us <= record.answered.us
                    && window.to.us >= since.us
                    && window.allows.iter().any(|begin| why.starts_with(begin.as_str()))
            });
            let for_the_clock = FOR_THE_CLOCK.iter().any(|begin| why.starts_with(begin));
            if !(explained || for_the_clock && self.clock_is_behind(record)) {
                self.found.push(format!(
                    "a refusal that no promise allows: {why}: {} ({})",
                    record.statement,
                    Call::of(record)
                ));
            }
        }
    }

    /// Whether ids, or a mark, may be so far ahead of the clock during a call that the call has to wait.
    fn clock_is_behind(&self, record: &Record) -> bool {
        let (least, _) = self.ahead_ms(record.server, record.called, record.answered);
        let shown = record.answered.unix_us / 1000 + least;
        let reached = self.latest_ms.max(self.latest_shown_ms(record.answered)) + MARK_AHEAD_MS;
        let of_js = if record.statement.contains("_js") { 1000 } else { 0 };
        shown + MAX_AHEAD_MS < reached + of_js
    }

    /// Repeats, order in the session, time and shard.
    fn ids(&mut self, record: &Record, runs: &[Run]) {
        let call = Call::of(record);
        let (least, most) = self.ahead_ms(record.server, record.called, record.answered);
        let earliest = record.called.unix_us / 1000 + least - SKEW_MS - self.epoch_unix_ms();
        let latest =
            record.answered.unix_us / 1000 + most + SKEW_MS + self.max_ahead_ms() - self.epoch_unix_ms();
        for &run in runs {
            self.counts.ids += run.count;
            self.take(run, call);
            let last = self.last.insert((call.session, run.shard), (run.end(), call));
            if let Some((end, before)) = last
                && run.start < end
            {
                self.found.push(format!(
                    "out of order in a session: {} of {call} comes after {} of {before}",
                    run.id(run.start),
                    run.id(end - 1)
                ));
            }
            let unit = if run.shard.js { 1000 } else { 1 };
            if run.ms(run.start) + unit <= earliest {
                self.found.push(format!(
                    "before its call: {} is of {} ms, and its call began at {} ms: {call}",
                    run.id(run.start),
                    run.ms(run.start),
                    earliest + SKEW_MS
                ));
            }
            if run.ms(run.end() - 1) > latest {
                self.found.push(format!(
                    "too far ahead: {} is of {} ms, and {} ms is the most: {call}",
                    run.id(run.end() - 1),
                    run.ms(run.end() - 1),
                    latest - SKEW_MS
                ));
            }
            let (first, count) = record.shards;
            if !(first..first + count).contains(&run.shard.number) {
                self.found.push(format!(
                    "of another shard: {} is not of the {count} from {first} on: {call}",
                    run.id(run.start)
                ));
            }
        }
        if !matches!(record.answer, Answer::Ids(_)) {
            self.rows.extend(runs.iter().flat_map(|run| (run.start..run.end()).map(|at| run.id(at))));
        }
    }

    /// Notes that positions are given.
    fn take(&mut self, run: Run, call: Call) {
        let taken = self.taken.entry(run.shard).or_default();
        let before = taken.range(..run.end()).next_back();
        if let Some((&start, &(end, other))) = before
            && end > run.start
        {
            let (from, to) = (start.max(run.start), end.min(run.end()));
            self.found.push(format!(
                "repeated: {} ids of shard {} from {} to {}: once by {other}, and again by {call}",
                to - from,
                run.shard.number,
                run.id(from),
                run.id(to - 1)
            ));
        }
        taken.insert(run.start, (run.end(), call));
        let given = self.given.entry((call.server, run.shard)).or_insert((run.start, run.end()));
        *given = (given.0.min(run.start), given.1.max(run.end()));
    }

    fn commit(&mut self, record: &Record, runs: &[Run]) {
        let ids = runs.iter().flat_map(|run| (run.start..run.end()).map(|at| run.id(at)));
        self.committed.extend(ids.map(|id| (id, record.answered)));
    }

    /// A horizon never goes back.
    fn follow(&mut self, record: &Record, from: i64, to: i64, rows: &[i64]) {
        self.counts.horizons += 1;
        match &mut self.followed {
            Some((_, until)) if to < *until && self.lost_until.is_none() => {
                self.found.push(format!("the horizon went back from {until} to {to}: {}", Call::of(record)));
            }
            Some((_, until)) if *until == from => *until = to,
            _ => self.followed = Some((from.min(to), to)),
        }
        self.seen.extend(rows);
    }

    /// Order over sessions, and that no call mints below a horizon that was answered before.
    fn order(&mut self, records: &[Record]) {
        let mut sessions: HashMap<u64, Moment> = HashMap::new();
        let mut by_slot: HashMap<(ServerNumber, Shard), Vec<Given>> = HashMap::new();
        let mut by_call: Vec<&Record> = records.iter().collect();
        by_call.sort_by_key(|record| record.called);
        for record in by_call {
            let call = Call::of(record);
            // A lease that the session has from its call before is good in a millisecond that comes a second time.
            let since = sessions.insert(call.session, call.called).unwrap_or(call.called);
            let steady = !self.clocks.get(&call.server).is_some_and(|sets| {
                sets.iter().any(|set| set.to.us >= since.us && set.from.us <= call.answered.us)
            });
            for run in runs_of(record) {
                by_slot.entry((call.server, run.shard)).or_default().push(Given { call, steady, run: *run });
            }
        }
        for ((_, shard), calls) in by_slot {
            self.order_in_slot(shard, &calls);
        }
        if self.lost_until.is_none() {
            self.above_horizons(records);
        }
    }

    /// The calls of a round for a shard of a server, by their beginnings.
    fn order_in_slot(&mut self, shard: Shard, calls: &[Given]) {
        let mut ended: Vec<(Call, Run)> = calls.iter().map(|&Given { call, run, .. }| (call, run)).collect();
        ended.sort_by_key(|(call, _)| call.answered);
        let mut ended = ended.into_iter().peekable();
        let mut greatest: Option<(Call, Run)> = None;
        for &Given { call, steady, run } in calls {
            while let Some((before, run_before)) = ended.next_if(|(before, _)| {
                let earlier = before.answered.us < call.called.us;
                earlier && (shard.js || before.answered.unix_us / 1000 < call.called.unix_us / 1000)
            }) {
                if greatest.is_none_or(|(_, greatest)| run_before.end() > greatest.end()) {
                    greatest = Some((before, run_before));
                }
            }
            if let Some((before, greatest)) = greatest
                && (steady || shard.js)
                && run.start < greatest.end()
            {
                self.found.push(format!(
                    "out of order: {} of {call} is below {} of {before}",
                    run.id(run.start),
                    greatest.id(greatest.end() - 1)
                ));
            }
        }
    }

    fn above_horizons(&mut self, records: &[Record]) {
        let mut answered: Vec<&Record> =
            records.iter().filter(|record| matches!(record.answer, Answer::Horizon { .. })).collect();
        answered.sort_by_key(|record| record.answered);
        let mut answered = answered.into_iter().peekable();
        let mut calls: Vec<&Record> = records.iter().collect();
        calls.sort_by_key(|record| record.called);
        for record in calls {
            while let Some(before) = answered.next_if(|before| before.answered.us < record.called.us) {
                if let Answer::Horizon { to, .. } = before.answer {
                    let horizon = self.horizons.entry(before.server).or_insert(to);
                    *horizon = to.max(*horizon);
                }
            }
            let Some(&horizon) = self.horizons.get(&record.server) else { continue };
            for run in runs_of(record).iter().filter(|run| !run.shard.js) {
                if run.id(run.start) < horizon {
                    self.found.push(format!(
                        "below a horizon of {horizon} that was given before its call: {} of {}",
                        run.id(run.start),
                        Call::of(record)
                    ));
                }
            }
        }
        for before in answered {
            if let Answer::Horizon { to, .. } = before.answer {
                let horizon = self.horizons.entry(before.server).or_insert(to);
                *horizon = to.max(*horizon);
            }
        }
    }

    /// A promoted server began above all ids that the previous one has ever minted, even if that one lived on.
    fn servers_in_order(&mut self) {
        for &(from, to, keeps_all) in &self.successions {
            // A server that came back as a primary has ids of two times.
            let comes_back = |server| {
                let left = self.successions.iter().position(|(from, ..)| *from == server);
                let came = self.successions.iter().rposition(|(_, to, _)| *to == server);
                left.is_some_and(|left| came.is_some_and(|came| left < came))
            };
            if !keeps_all || comes_back(to) || comes_back(from) {
                continue;
            }
            for (&(server, shard), &(_, end)) in &self.given {
                let next = self.given.get(&(to, shard));
                if server == from
                    && let Some(&(first, _)) = next
                    && first < end
                {
                    let run = Run { shard, start: first, count: 1 };
                    self.found.push(format!(
                        "server {to} gave {}, and server {from}, from which it took over, up to {}",
                        run.id(first),
                        run.id(end - 1)
                    ));
                }
            }
        }
    }

    /// The content of the table at the end of a round.
    fn table(&mut self, ids: &[i64]) {
        let there: BTreeSet<i64> = ids.iter().copied().collect();
        self.counts.rows = ids.len() as u64;
        for (id, answered) in self.committed.iter().filter(|(id, _)| !there.contains(id)) {
            self.found.push(format!("the row of {id} was committed at {} us, and is not there", answered.us));
        }
        for &id in &there {
            if self.followed.is_some_and(|(from, to)| from <= id && id < to) && !self.seen.contains(&id) {
                self.found.push(format!("the row of {id}, below a horizon that a reader had, came later"));
            }
            // A row whose client never received the result.
            if self.rows.insert(id) {
                let run = Run::of(&[id], false)[0];
                let now = Moment::now();
                self.take(run, Call { session: u64::MAX, server: usize::MAX, called: now, answered: now });
            }
        }
    }
}

/// The ids that a call has minted.
fn runs_of(record: &Record) -> &[Run] {
    match &record.answer {
        Answer::Ids(runs) | Answer::Inserted(runs) => runs,
        Answer::Committed(runs) if record.statement != "COMMIT" => runs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-01-01, as milliseconds since 1970, at which the journals below begin.
    const BEGIN_MS: i64 = 1_767_225_600_000;
    const SHARD: Shard = Shard { js: false, number: 7 };

    /// So many milliseconds after the beginning.
    fn at(ms: u64) -> Moment {
        Moment { us: ms * 1000, unix_us: (BEGIN_MS + ms as i64) * 1000 }
    }

    /// Positions of a millisecond after the beginning.
    fn run(ms: i64, sequence: u64, count: u64) -> Run {
        Run { shard: SHARD, start: ((BEGIN_MS + ms - EPOCH_UNIX_MS) as u64) << 10 | sequence, count }
    }

    fn id(ms: i64, sequence: u64) -> i64 {
        let run = run(ms, sequence, 1);
        run.id(run.start)
    }

    /// The result of a session of server 1, with the times of its beginning and end.
    fn record(session: u64, from: u64, to: u64, answer: Answer) -> Record {
        Record {
            session,
            server: 1,
            statement: "SELECT".into(),
            shards: (SHARD.number, 1),
            heard: at(from),
            called: at(from),
            answered: at(to),
            answer,
        }
    }

    fn ids(session: u64, from: u64, to: u64, runs: &[Run]) -> Record {
        record(session, from, to, Answer::Ids(runs.to_vec()))
    }

    fn refused(from: u64, to: u64, why: &str) -> Record {
        record(1, from, to, Answer::Refused(why.into()))
    }

    fn horizon(at: u64, from: i64, to: i64, rows: &[i64]) -> Record {
        record(9, at, at, Answer::Horizon { from, to, rows: rows.to_vec() })
    }

    fn on(server: ServerNumber, record: Record) -> Record {
        Record { server, ..record }
    }

    fn clock(from: u64, to: u64, ahead_ms: i64) -> Event {
        Event::Clock { server: 1, set: ClockSet { from: at(from), to: at(to), ahead_ms } }
    }

    fn succession(ms: u64, keeps_all: bool) -> Event {
        Event::Succession { at: at(ms), server: 2, from: 1, keeps_all }
    }

    /// Asserts that a round of a new world breaks one promise, in these words, or none.
    fn assert_found(records: Vec<Record>, events: &[Event], words: Option<&str>) {
        let found = Checker::default().round(records, events);
        match words {
            None => assert_eq!(found, [""; 0]),
            Some(words) => {
                assert_eq!(found.len(), 1, "{found:#?}");
                assert!(found[0].starts_with(words), "{found:#?}");
            }
        }
    }

    /// The checker has its own implementation of the layout in docs/reference.md.
    #[test]
    fn ids_are_read_as_runs() {
        let js = |second: i64, sequence: i64| second << 20 | 5 << 12 | sequence;
        let of = |number, start, count| Run { shard: Shard { js: false, number }, start, count };
        let id = |ms: i64, shard: i64, sequence: i64| ms << 23 | shard << 10 | sequence;
        let ids = [id(3, 1, 1022), id(3, 2, 0), id(3, 1, 1023), id(4, 1, 0), id(4, 1, 2), id(4, 1, 1)];
        let runs =
            [of(1, 3 << 10 | 1022, 3), of(2, 3 << 10, 1), of(1, 4 << 10 | 2, 1), of(1, 4 << 10 | 1, 1)];
        assert_eq!(Run::of(&ids, false), runs);
        assert_eq!(runs[0].id(runs[0].end() - 1), ids[3]);
        let run = Run::of(&[js(9, 4095), js(10, 0)], true)[0];
        assert_eq!((run.shard.number, run.count, run.ms(run.start)), (5, 2, 9000));
        assert_eq!(run.id(run.end() - 1), js(10, 0));
    }

    /// A journal in which all promises are kept, over two rounds, has no findings.
    #[test]
    fn what_is_promised_is_found_right() {
        let mut checker = Checker::default();
        let committed = record(2, 30, 31, Answer::Committed(vec![run(30, 0, 1)]));
        let records = vec![
            ids(1, 10, 11, &[run(10, 0, 500), run(11, 0, 5)]),
            // In the same millisecond leases need not be in order.
            ids(2, 11, 12, &[run(11, 300, 4)]),
            ids(1, 11, 12, &[run(11, 100, 4)]),
            committed,
            horizon(35, i64::MIN, id(32, 0), &[id(30, 0)]),
            refused(40, 50, "57P03 the database system is starting up"),
            ids(1, 60, 60, &[run(60, 0, 1)]),
        ];
        let events = [
            Event::Faults {
                from: at(38),
                to: at(45),
                struck: Vec::new(),
                allows: vec!["57P03".into(), "lost".into()],
            },
            Event::Rows { ids: vec![id(30, 0)] },
        ];
        assert_eq!(checker.round(records, &events), [""; 0]);
        assert_eq!((checker.counts.ids, checker.counts.refusals.len()), (515, 1));
        let records = vec![
            // The connection broke in the round before, and the client was asleep.
            Record { heard: at(42), ..refused(70, 70, "lost") },
            horizon(80, id(32, 0), id(80, 0), &[]),
        ];
        assert_eq!(
            checker.round(records, &[Event::Rows { ids: vec![id(30, 0)] }, events[0].clone()]),
            [""; 0]
        );
    }

    /// Promise 1: an id is minted only once, in any session and any round.
    #[test]
    fn a_repeated_id_is_found() {
        let given = ids(1, 10, 20, &[run(12, 0, 8)]);
        for again in [run(12, 7, 1), run(12, 0, 1), run(11, 1020, 6), run(12, 3, 2), run(11, 1020, 100)] {
            let mut checker = Checker::default();
            assert_eq!(checker.round(vec![given.clone()], &[]), [""; 0]);
            let found = checker.round(vec![on(2, ids(2, 10, 20, &[again]))], &[]);
            assert_eq!(found.len(), 1, "{found:#?}");
            assert!(found[0].starts_with("repeated: "), "{found:#?}");
        }
        assert_found(
            vec![given.clone(), on(2, ids(2, 10, 20, &[run(11, 1023, 1), run(12, 8, 1)]))],
            &[],
            None,
        );
    }

    /// Promise 1: even if no client was told of the row with the id.
    #[test]
    fn a_row_with_the_id_of_another_call_is_found() {
        let rows = [Event::Rows { ids: vec![id(12, 3)] }];
        assert_found(vec![ids(1, 10, 20, &[run(12, 0, 8)])], &rows, Some("repeated: "));
        assert_found(vec![record(1, 10, 20, Answer::Committed(vec![run(12, 3, 1)]))], &rows, None);
    }

    /// Promise 2, in a session.
    #[test]
    fn disorder_in_a_session_is_found() {
        let words = Some("out of order in a session");
        assert_found(vec![ids(1, 10, 20, &[run(12, 5, 1), run(12, 4, 1)])], &[], words);
        let calls = |session| vec![ids(1, 10, 20, &[run(12, 5, 1)]), ids(session, 20, 21, &[run(20, 5, 1)])];
        assert_found(calls(1), &[], None);
        let back = vec![ids(1, 12, 12, &[run(12, 5, 1)]), ids(1, 12, 12, &[run(12, 4, 1)])];
        assert_found(back, &[], words);
    }

    /// Promise 2, over sessions: to the millisecond, and not while the clock shows one a second time.
    #[test]
    fn disorder_over_sessions_is_found() {
        let calls = vec![ids(1, 10, 11, &[run(14, 0, 9)]), ids(2, 12, 12, &[run(13, 0, 1)])];
        assert_found(calls.clone(), &[], Some("out of order: "));
        let elsewhere = calls.iter().map(|call| on(call.session as usize, call.clone())).collect();
        assert_found(elsewhere, &[], None);
        let together = vec![ids(1, 10, 11, &[run(14, 0, 9)]), ids(2, 11, 12, &[run(13, 0, 1)])];
        assert_found(together, &[], None);
        let set = [clock(0, 1, 0), clock(12, 12, -5)];
        assert_found(calls, &set, None);
    }

    /// Promise 2: ids for JavaScript are in strict order.
    #[test]
    fn disorder_of_ids_for_javascript_is_found() {
        let second = ((BEGIN_MS - EPOCH_UNIX_MS) / 1000) as u64;
        let run =
            |sequence| Run { shard: Shard { js: true, number: 7 }, start: second << 12 | sequence, count: 1 };
        let mut calls = vec![ids(1, 10, 11, &[run(4)]), ids(2, 11, 12, &[run(3)])];
        assert_found(calls.clone(), &[], None);
        calls[1].called.us += 1;
        assert_found(calls, &[], Some("out of order: "));
    }

    /// Promise 3, by the clocks as set.
    #[test]
    fn ids_of_another_time_are_found() {
        assert_found(vec![ids(1, 100, 110, &[run(98, 0, 1)])], &[], Some("before its call"));
        assert_found(vec![ids(1, 100, 110, &[run(99, 0, 1)])], &[], None);
        assert_found(vec![ids(1, 100, 110, &[run(1112, 0, 1)])], &[], Some("too far ahead"));
        assert_found(vec![ids(1, 100, 110, &[run(1111, 0, 1)])], &[], None);
        // Back from a moment in the call on.
        let back = [clock(0, 1, 0), clock(105, 106, -50)];
        assert_found(vec![ids(1, 100, 110, &[run(50, 0, 1)])], &back, None);
        assert_found(vec![ids(1, 107, 110, &[run(1062, 0, 1)])], &back, Some("too far ahead"));
        assert_found(vec![ids(1, 100, 104, &[run(50, 0, 1)])], &back, Some("before its call"));
    }

    /// An id is of the shard that was asked for.
    #[test]
    fn ids_of_another_shard_are_found() {
        let call = Record { shards: (8, 4), ..ids(1, 10, 20, &[run(12, 0, 1)]) };
        assert_found(vec![call], &[], Some("of another shard"));
    }

    /// Promise 1: a server that is promoted begins above all that the other gave, and gives while it lives on.
    #[test]
    fn a_promoted_server_that_begins_below_is_found() {
        let calls = vec![on(2, ids(2, 10, 20, &[run(12, 0, 1)])), ids(1, 10, 20, &[run(13, 0, 1)])];
        assert_found(calls.clone(), &[succession(9, true)], Some("server 2 gave"));
        assert_found(calls.clone(), &[succession(9, false)], None);
        let back = Event::Succession { at: at(30), server: 1, from: 2, keeps_all: true };
        assert_found(calls, &[succession(9, true), back], None);
    }

    /// Promise 6: no call mints below a horizon that was answered before it began.
    #[test]
    fn an_id_below_a_horizon_is_found() {
        let calls = |horizon_at| {
            vec![horizon(horizon_at, i64::MIN, id(12, 0), &[]), ids(1, 11, 20, &[run(11, 0, 1)])]
        };
        assert_found(calls(10), &[], Some("below a horizon"));
        assert_found(calls(11), &[], None);
    }

    /// Promise 6: no row comes later below a horizon.
    #[test]
    fn a_row_that_comes_below_a_horizon_is_found() {
        let committed = record(1, 10, 20, Answer::Committed(vec![run(12, 0, 1)]));
        let rows = [Event::Rows { ids: vec![id(12, 0)] }];
        let words = Some("the row of");
        let to = id(13, 0);
        assert_found(vec![committed.clone(), horizon(15, i64::MIN, to, &[])], &rows, words);
        assert_found(vec![committed.clone(), horizon(15, i64::MIN, to, &[id(12, 0)])], &rows, None);
        assert_found(vec![committed, horizon(15, to, id(14, 0), &[])], &rows, None);
    }

    /// Promise 6: the horizon never goes back, unless it was lost with what was acknowledged.
    #[test]
    fn a_horizon_that_goes_back_is_found() {
        let calls =
            || vec![horizon(15, i64::MIN, id(13, 0), &[]), on(2, horizon(16, id(13, 0), id(12, 0), &[]))];
        assert_found(calls(), &[succession(15, true)], Some("the horizon went back"));
        assert_found(calls(), &[succession(16, false)], None);
    }

    /// Rows acknowledged as committed exist, unless they were lost with an asynchronous standby.
    #[test]
    fn a_row_that_is_lost_is_found() {
        let committed = || vec![record(1, 10, 20, Answer::Committed(vec![run(12, 0, 1)]))];
        let rows = Event::Rows { ids: Vec::new() };
        assert_found(committed(), std::slice::from_ref(&rows), Some("the row of"));
        assert_found(committed(), &[succession(21, true), rows.clone()], Some("the row of"));
        assert_found(committed(), &[succession(21, false), rows], None);
    }

    /// A refusal is explained by a fault of its time, and by nothing else.
    #[test]
    fn a_refusal_without_need_is_found() {
        let words = Some("a refusal that no promise allows");
        let faults = |allows: &str| {
            [Event::Faults { from: at(10), to: at(20), struck: Vec::new(), allows: vec![allows.into()] }]
        };
        assert_found(vec![refused(15, 25, "57P03 no")], &faults("57P03"), None);
        assert_found(vec![refused(15, 25, "57P03 no")], &faults("lost"), words);
        assert_found(vec![refused(21, 25, "57P03 no")], &faults("55000"), words);
        assert_found(vec![refused(21, 25, "55000 no")], &faults("55000"), words);
        assert_found(vec![Record { heard: at(19), ..refused(21, 25, "lost") }], &faults("lost"), None);
        assert_found(vec![Record { heard: at(19), ..refused(21, 25, "55000 no") }], &faults("55000"), words);
    }

    /// A clock that is behind explains the refusals that it brings about, as long as it is.
    #[test]
    fn a_refusal_for_a_clock_that_is_right_is_found() {
        let words = Some("a refusal that no promise allows");
        let why = "40001 the system clock is behind the ids of shard";
        assert_found(vec![refused(5_000, 6_000, why)], &[clock(0, 1, 0)], words);
        let back = [clock(0, 1, 0), clock(100, 101, -3000), clock(200, 201, 0)];
        assert_found(vec![refused(150, 160, why)], &back, None);
        assert_found(vec![refused(150, 160, "40001 the high-water mark")], &back, words);
        assert_found(vec![refused(5_000, 6_000, why)], &back, words);
        let forth = [clock(0, 1, 0), clock(100, 101, 3000), clock(200, 201, 0)];
        assert_found(vec![refused(300, 400, why)], &forth, None);
        assert_found(vec![refused(6_000, 6_100, why)], &forth, words);
    }
}
