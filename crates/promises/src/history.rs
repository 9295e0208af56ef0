//! A history: the ids and refusals that clients received, and the events of their servers, as recorded in a journal.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::judge::{Call, Judge, Lost, Sequence, Session};
use crate::promise::{Broken, Caller, Promise};
use crate::run::{Kind, Run, Slot};

/// The defaults of `idgen.epoch` and `idgen.max_ahead`, in milliseconds.
const EPOCH_UNIX_MS: i64 = 1_704_067_200_000;
const MAX_AHEAD_MS: i64 = 1000;
/// How far a mark may be ahead of the last id: `idgen.reserve_ahead` of the servers, the queue for a full shard, and
/// the ids of a statement that was never answered.
const MARK_AHEAD_MS: i64 = 500;
/// How far two readings of one clock may be apart, in milliseconds.
const SKEW_MS: i64 = 1;
/// The prefixes of refusals that a client may receive long after their cause.
const HEARD_LATE: [&str; 2] = ["lost", "57P"];
/// The prefixes of refusals because of the clock. Whether they are justified depends on the time that it shows.
const FOR_THE_CLOCK: [&str; 3] = ["40001 clock_behind", "40001 shard_full", "22023 batch_too_large"];

/// A moment, by a clock that cannot be set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Moment {
    /// Microseconds since the first moment.
    pub us: u64,
    /// Microseconds since 1970. The clocks of servers are ahead of this or behind it by a known offset.
    pub unix_us: i64,
}

/// A setting of a server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockSet {
    /// Before the clock was set. The server may show the new time from here on.
    pub from: Moment,
    /// After the clock was set. The server shows the new time from here on.
    pub to: Moment,
    /// The offset of the new time from the real one, in milliseconds.
    pub ahead_ms: i64,
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Ids; the outcome of the transaction does not matter.
    Ids(Vec<Run>),
    /// Ids of rows that an open transaction has inserted.
    Inserted(Vec<Run>),
    /// A transaction has committed rows that it had inserted before.
    Committed(Vec<Run>),
    /// The call has inserted rows and committed them.
    InsertedAndCommitted(Vec<Run>),
    /// A horizon `to`, and the rows between the previous horizon and this one, read after the horizon was given.
    Horizon { from: i64, to: i64, rows: Vec<i64> },
    /// The SQLSTATE and the reason; "lost" if the connection broke.
    Refused(String),
}

impl Answer {
    /// The ids that the call has minted, in the order in which the client received them.
    fn minted(&self) -> &[Run] {
        match self {
            Answer::Ids(runs) | Answer::Inserted(runs) | Answer::InsertedAndCommitted(runs) => runs,
            _ => &[],
        }
    }
}

/// An answered call of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub session: u64,
    pub server: usize,
    pub statement: String,
    /// The first shard that the call mints for, and the number of shards.
    pub shards: (u16, u16),
    /// The last sign of life of the connection before the call.
    pub heard: Moment,
    pub called: Moment,
    pub answered: Moment,
    pub answer: Answer,
}

impl Record {
    fn by(&self) -> Caller {
        let Record { server, session, called, answered, .. } = *self;
        Caller { server, session, begun_us: called.us, ended_us: answered.us }
    }
}

/// An event of the servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A server's clock was set.
    Clock { server: usize, set: ClockSet },
    /// Faults that struck and were healed. They explain refusals that begin with a text of `allows`.
    Faults { from: Moment, to: Moment, struck: Vec<String>, allows: Vec<String> },
    /// A server took over from another one; `keeps_all` says whether it has everything that was acknowledged.
    Succession { at: Moment, server: usize, from: usize, keeps_all: bool },
    /// A shard has moved to a server outside of the fleet, or back: see [`Judge::moved`].
    Moved { shard: u16, bound: i64, server: usize, has: bool },
    /// `idgen.max_ahead` may have this value from now on, in milliseconds.
    MaxAhead { ms: i64 },
    /// The epoch that servers count from, in milliseconds since 1970.
    Epoch { unix_ms: i64 },
    /// The ids of all rows, read while no client writes.
    Rows { ids: Vec<i64> },
}

/// Judges a history, one round after the other. No call is under way between two rounds.
#[derive(Default)]
pub struct History {
    pub judge: Judge,
    sessions: HashMap<u64, Session>,
    max_ahead_ms: i64,
    epoch_unix_ms: Option<i64>,
    clocks: HashMap<usize, Vec<ClockSet>>,
    /// The latest time of a minted id, in milliseconds since 1970.
    latest_ms: i64,
    /// The rows that clients know to be committed, and when they were told.
    committed: BTreeMap<i64, u64>,
    /// The rows that clients know of, and those found in the table.
    known: HashSet<i64>,
    /// The range that readers have followed from horizon to horizon; `read` has the rows in it.
    followed: Option<(i64, i64)>,
    read: HashSet<i64>,
}

fn ids(runs: &[Run]) -> impl Iterator<Item = i64> {
    runs.iter().flat_map(|run| run.ids())
}

impl History {
    /// Judges the records and events since the last round, and returns the broken promises.
    pub fn round(&mut self, mut records: Vec<Record>, events: &[Event]) -> Vec<Broken> {
        records.sort_by_key(|record| (record.answered, record.session));
        let lost_until = self.take_in(events);
        self.replay(&records, lost_until.is_some());
        for record in &records {
            if let Answer::Refused(why) = &record.answer {
                *self.judge.counts.refusals.entry(why.clone()).or_default() += 1;
                if !self.may_refuse(record, why, events) {
                    let (by, statement) = (record.by(), &record.statement);
                    let text = format!("a refusal that no promise allows: {why}: {statement} ({by})");
                    self.judge.fail(Promise::Availability, text);
                }
            }
        }
        self.judge.end_round(lost_until.is_some());
        if let Some(until) = lost_until {
            self.followed = None;
            self.committed.retain(|_, answered| *answered > until.us);
        }
        for event in events {
            if let Event::Rows { ids } = event {
                self.found(ids);
            }
        }
        self.judge.counts.calls += records.len() as u64;
        std::mem::take(&mut self.judge.broken)
    }

    /// Takes in the events of the servers. If a server took over that lacks acknowledged rows and horizons, returns the
    /// moment up to which they may be lost.
    fn take_in(&mut self, events: &[Event]) -> Option<Moment> {
        let mut lost_until = None;
        for event in events {
            match event {
                Event::Clock { server, set } => self.clocks.entry(*server).or_default().push(*set),
                Event::Succession { at, server, from, keeps_all } => {
                    // The clock excuses no call, because clients come only after the promotion.
                    self.judge.takes_over(*server, *from, (!keeps_all).then(Lost::default));
                    lost_until = if *keeps_all { lost_until } else { Some(*at) };
                }
                Event::Moved { shard, bound, server, has } => self.judge.moved(*shard, *bound, *server, *has),
                Event::MaxAhead { ms } => self.max_ahead_ms = self.max_ahead_ms.max(*ms),
                Event::Epoch { unix_ms } => self.epoch_unix_ms = Some(*unix_ms),
                Event::Faults { .. } | Event::Rows { .. } => {}
            }
        }
        lost_until
    }

    /// Begins and ends the calls in the order of their times. If a call begins at the moment when another one ends, it
    /// may have begun before that.
    fn replay(&mut self, records: &[Record], lost: bool) {
        let mut steps = Vec::with_capacity(2 * records.len());
        for (at, record) in records.iter().enumerate() {
            steps.extend([(record.called.us, false, at), (record.answered.us, true, at)]);
        }
        steps.sort_unstable();
        let epoch = self.epoch_unix_ms.unwrap_or(EPOCH_UNIX_MS);
        let mut called_before: HashMap<u64, Moment> = HashMap::new();
        let mut open: HashMap<usize, BTreeMap<Slot, Call>> = HashMap::new();
        for (_, ends, at) in steps {
            let record = &records[at];
            let &Record { server, session, shards, called, answered, .. } = record;
            if !ends {
                let (least, most) = self.ahead_ms(server, called, answered);
                // A lease from the session's last call for plain ids is valid again when its millisecond is repeated.
                let since = *called_before.get(&session).unwrap_or(&called);
                if record.answer.minted().iter().any(|run| run.slot.kind == Kind::Plain) {
                    called_before.insert(session, called);
                }
                let mut sets = self.clocks.get(&server).into_iter().flatten();
                let relived = sets.any(|set| set.to.us >= since.us && set.from.us <= answered.us);
                let sequence = if relived { Sequence::Relived } else { Sequence::Sorted };
                let ms = called.unix_us / 1000;
                let earliest = (ms + least - SKEW_MS - epoch).max(0) as u64;
                let max_ahead = self.max_ahead_ms.max(MAX_AHEAD_MS);
                let latest = answered.unix_us / 1000 + most + SKEW_MS + max_ahead - epoch;
                let begin = |run: &Run| {
                    let call = self.judge.begin(record.by(), run.slot, ms as u64, earliest, sequence);
                    let horizon = if lost { i64::MIN } else { call.horizon };
                    (run.slot, Call { shards, horizon, latest: latest.max(0) as u64, ..call })
                };
                open.insert(at, record.answer.minted().iter().map(begin).collect());
                continue;
            }
            let open = open.remove(&at).unwrap_or_default();
            let session = self.sessions.entry(session).or_default();
            for &run in record.answer.minted() {
                self.latest_ms = self.latest_ms.max(run.slot.ms(run.end() - 1) as i64 + epoch);
                self.judge.given(session, &open[&run.slot], run);
            }
            for call in open.values() {
                self.judge.ended(call, session, (answered.unix_us / 1000) as u64);
            }
            self.note_rows(record, lost);
        }
    }

    /// Notes the rows that a client has inserted, committed or not; those that it was told are committed; and those
    /// that it has read between one horizon and the next. If a server may have lost horizons meanwhile, the next one
    /// may be lower.
    fn note_rows(&mut self, record: &Record, lost: bool) {
        use Answer::{Committed, Horizon, Inserted, InsertedAndCommitted};
        if let Inserted(runs) | InsertedAndCommitted(runs) = &record.answer {
            self.known.extend(ids(runs));
        }
        if let Committed(runs) | InsertedAndCommitted(runs) = &record.answer {
            self.committed.extend(ids(runs).map(|id| (id, record.answered.us)));
        }
        if let Horizon { from, to, rows } = &record.answer {
            self.read.extend(rows);
            self.judge.raise_horizon(record.server, *to);
            match &mut self.followed {
                Some((_, until)) if to < until && !lost => {
                    let text = format!("the horizon went back from {until} to {to}: {}", record.by());
                    self.judge.fail(Promise::NeverBack, text);
                }
                Some((_, until)) if until == from => *until = *to,
                followed => *followed = Some((*from.min(to), *to)),
            }
        }
    }

    /// Compares the rows of the table, read while no client writes, with what clients know.
    fn found(&mut self, ids: &[i64]) {
        let there: HashSet<i64> = ids.iter().copied().collect();
        for (id, answered) in self.committed.iter().filter(|(id, _)| !there.contains(id)) {
            let text = format!("the row of {id} was committed at {answered} us, and is not there");
            self.judge.fail(Promise::Kept, text);
        }
        for &id in ids {
            if self.followed.is_some_and(|(from, to)| from <= id && id < to) && !self.read.contains(&id) {
                let text = format!("the row of {id}, below a horizon that a reader had, came later");
                self.judge.fail(Promise::Settled, text);
            }
            // A row whose client never received the result.
            if self.known.insert(id) {
                let by = Caller { session: Caller::UNKNOWN, ..Caller::default() };
                self.judge.take(Run::from(id, Kind::Plain, 1), by, None);
            }
        }
    }

    /// The settings of a server's clock, each with the last moment at which it may be in force.
    fn clock(&self, server: usize) -> impl Iterator<Item = (&ClockSet, Option<Moment>)> + Clone {
        let sets = self.clocks.get(&server).map_or(&[][..], Vec::as_slice);
        sets.iter().enumerate().map(|(at, set)| (set, sets.get(at + 1).map(|next| next.to)))
    }

    /// The least and the greatest offset of a server's clock between two moments, in milliseconds.
    fn ahead_ms(&self, server: usize, from: Moment, to: Moment) -> (i64, i64) {
        let in_force = self
            .clock(server)
            .filter(|(set, until)| set.from.us <= to.us && until.is_none_or(|until| until.us >= from.us));
        let ahead = in_force.map(|(set, _)| set.ahead_ms);
        (ahead.clone().min().unwrap_or(0), ahead.max().unwrap_or(0))
    }

    /// The latest time that any clock has shown up to a moment, in milliseconds since 1970.
    fn latest_shown_ms(&self, now: Moment) -> i64 {
        let sets = self.clocks.keys().flat_map(|server| self.clock(*server));
        let shown = sets
            .filter(|(set, _)| set.from.us <= now.us)
            .map(|(set, until)| until.map_or(now, |until| until.min(now)).unix_us / 1000 + set.ahead_ms);
        shown.max().unwrap_or(now.unix_us / 1000)
    }

    /// Whether a refusal is explained by faults at that time, or by ids or a mark so far ahead of the clock that the
    /// call may have had to wait.
    fn may_refuse(&self, record: &Record, why: &str, events: &[Event]) -> bool {
        let begins = |begin: &&str| why.starts_with(*begin);
        let heard_late = HEARD_LATE.iter().any(begins);
        let since = if heard_late { record.heard } else { record.called };
        let explained = events.iter().any(|event| match event {
            Event::Faults { from, to, allows, .. } => {
                let meets = from.us <= record.answered.us && to.us >= since.us;
                meets && allows.iter().any(|begin| why.starts_with(begin))
            }
            _ => false,
        });
        let (least, _) = self.ahead_ms(record.server, record.called, record.answered);
        let shown = record.answered.unix_us / 1000 + least;
        let reached = self.latest_ms.max(self.latest_shown_ms(record.answered)) + MARK_AHEAD_MS;
        let of_js = if record.statement.contains("_js") { 1000 } else { 0 };
        explained || FOR_THE_CLOCK.iter().any(begins) && shown + MAX_AHEAD_MS < reached + of_js
    }
}
