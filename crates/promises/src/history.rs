//! A history: what clients were given and refused, and what became of their servers, as a journal keeps it.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::judge::Open;
use crate::{Broken, Caller, Judge, Rows, Run, Sequence, Session, Slot};

/// `idgen.epoch` and `idgen.max_ahead` if nobody has changed them, in milliseconds.
const EPOCH_UNIX_MS: i64 = 1_704_067_200_000;
const MAX_AHEAD_MS: i64 = 1000;
/// How far a mark may be ahead of the last id: `idgen.reserve_ahead` of the servers, the queue for a full shard, and
/// the ids of a statement that was never answered.
const MARK_AHEAD_MS: i64 = 500;
/// How far two readings of one clock may be apart, in milliseconds.
const SKEW_MS: i64 = 1;
/// The beginnings of refusals because of the clock; whether they are due depends on the time that it shows.
const FOR_THE_CLOCK: [&str; 4] = [
    "40001 the system clock is behind",
    "40001 shard",
    "22023 count",
    "55000 the high-water mark of ids lies in the future",
];

/// A moment, by a clock that nobody sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Moment {
    /// Microseconds since the first moment.
    pub us: u64,
    /// Microseconds since 1970: servers show theirs as so much more or less.
    pub unix_us: i64,
}

/// A setting of a server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockSet {
    /// Before that; the server may show the new clock from here on.
    pub from: Moment,
    /// After that; it shows the new clock from here on.
    pub to: Moment,
    /// How many milliseconds after the real one it is set.
    pub ahead_ms: i64,
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Ids, whatever becomes of the transaction.
    Ids(Vec<Run>),
    /// Ids of rows that a transaction has inserted, which has not ended.
    Inserted(Vec<Run>),
    /// A transaction has committed rows that it had inserted before.
    Committed(Vec<Run>),
    /// The call has inserted rows and committed them.
    InsertedAndCommitted(Vec<Run>),
    /// A horizon, and the rows from the one before up to it that were read afterwards.
    Horizon { from: i64, to: i64, rows: Vec<i64> },
    /// SQLSTATE and message; "lost" if the connection broke.
    Refused(String),
}

impl Answer {
    /// The ids that the call has minted, in the order in which they were given.
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
    /// The first of the shards that it mints for, and how many there are.
    pub shards: (u16, u16),
    /// When the connection was last heard of before the call.
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

/// What became of the servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A server's clock was set.
    Clock { server: usize, set: ClockSet },
    /// Faults struck, and all was healed again. They explain refusals that begin like this.
    Faults { from: Moment, to: Moment, struck: Vec<String>, allows: Vec<String> },
    /// A server took over from another, with all that was acknowledged or not.
    Succession { at: Moment, server: usize, from: usize, keeps_all: bool },
    /// `idgen.max_ahead` may be this from now on, in milliseconds.
    MaxAhead { ms: i64 },
    /// The epoch that servers count from, in milliseconds since 1970.
    Epoch { unix_ms: i64 },
    /// The ids of all rows, while nobody writes.
    Rows { ids: Vec<i64> },
}

/// What has been counted.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub ids: u64,
    pub calls: u64,
    pub horizons: u64,
    /// By their text.
    pub refusals: BTreeMap<String, u64>,
}

/// The time of faults, from and to, and how the refusals begin that they explain.
type Explained<'a> = (u64, u64, &'a [String]);

/// Judges a history, one round after the other. Between two rounds no call is under way.
#[derive(Default)]
pub struct History {
    /// What has been counted so far.
    pub counts: Counts,
    judge: Judge,
    rows: Rows,
    sessions: HashMap<u64, Session>,
    max_ahead_ms: Option<i64>,
    epoch_unix_ms: Option<i64>,
    clocks: HashMap<usize, Vec<ClockSet>>,
    /// The latest moment that an id was given for, since 1970 in milliseconds.
    latest_ms: i64,
}

impl History {
    /// Judges what has come since the last round, and returns what is broken.
    pub fn round(&mut self, mut records: Vec<Record>, events: &[Event]) -> Vec<Broken> {
        records.sort_by_key(|record| (record.answered, record.session));
        let (faults, lost_until) = self.take_in(events);
        self.replay(&records, lost_until.is_some());
        for record in &records {
            if let Answer::Refused(why) = &record.answer {
                *self.counts.refusals.entry(why.clone()).or_default() += 1;
                let for_the_clock = FOR_THE_CLOCK.iter().any(|begin| why.starts_with(begin));
                let needed = for_the_clock && self.clock_is_behind(record);
                let why = format!("{why}: {}", record.statement);
                self.judge.refused(record.by(), record.heard.us, &why, &faults, needed);
            }
        }
        self.judge.end_round(lost_until.is_some());
        if let Some(until) = lost_until {
            self.rows.lost(until.us);
        }
        for event in events {
            if let Event::Rows { ids } = event {
                self.rows.found(&mut self.judge, ids);
            }
        }
        self.counts.calls += records.len() as u64;
        self.counts.ids = self.judge.ids;
        std::mem::take(&mut self.judge.broken)
    }

    /// Takes in what became of the servers: the times of faults with the refusals that they explain, and up to when
    /// acknowledged rows and horizons may be lost, because a server took over that lacks them.
    fn take_in<'a>(&mut self, events: &'a [Event]) -> (Vec<Explained<'a>>, Option<Moment>) {
        let (mut faults, mut lost_until) = (Vec::new(), None);
        for event in events {
            match event {
                Event::Clock { server, set } => self.clocks.entry(*server).or_default().push(*set),
                Event::Faults { from, to, allows, .. } => faults.push((from.us, to.us, &allows[..])),
                Event::Succession { server, from, keeps_all: true, .. } => {
                    self.judge.takes_over(*server, *from);
                }
                Event::Succession { at, server, from, .. } => {
                    // No call is excused for its reading of the clock: clients come only after the promotion.
                    self.judge.takes_over_with_loss(*server, *from, 0);
                    lost_until = Some(*at);
                }
                Event::MaxAhead { ms } => self.max_ahead_ms = Some(self.max_ahead_ms().max(*ms)),
                Event::Epoch { unix_ms } => self.epoch_unix_ms = Some(*unix_ms),
                Event::Rows { .. } => {}
            }
        }
        (faults, lost_until)
    }

    /// Lets calls begin and end in the order of their times. A call that begins when another one ends may have begun
    /// before.
    fn replay(&mut self, records: &[Record], lost: bool) {
        let mut steps = Vec::with_capacity(2 * records.len());
        for (at, record) in records.iter().enumerate() {
            steps.extend([(record.called.us, false, at), (record.answered.us, true, at)]);
        }
        steps.sort_unstable();
        let mut called_before: HashMap<u64, Moment> = HashMap::new();
        let mut open: HashMap<usize, BTreeMap<Slot, Open>> = HashMap::new();
        for (_, ends, at) in steps {
            let record = &records[at];
            let &Record { server, session, shards, called, answered, .. } = record;
            let (least, most) = self.ahead_ms(server, called, answered);
            let epoch = self.epoch_unix_ms();
            if !ends {
                // A lease that the session has from its call before is good in a millisecond that comes a second time.
                let since = called_before.insert(session, called).unwrap_or(called);
                let mut sets = self.clocks.get(&server).into_iter().flatten();
                let relived = sets.any(|set| set.to.us >= since.us && set.from.us <= answered.us);
                let sequence = if relived { Sequence::Relived } else { Sequence::Sorted };
                let ms = called.unix_us / 1000;
                let earliest = (ms + least - SKEW_MS - epoch).max(0) as u64;
                let begin = |run: &Run| {
                    let mut call = self.judge.begin(server, run.slot, ms as u64, earliest, sequence);
                    call.shards = shards;
                    if lost {
                        call.horizon = i64::MIN;
                    }
                    (run.slot, call)
                };
                open.insert(at, record.answer.minted().iter().map(begin).collect());
                continue;
            }
            let ms = answered.unix_us / 1000;
            let latest = ms + most + SKEW_MS + self.max_ahead_ms() - epoch;
            let by = record.by();
            let open = open.remove(&at).unwrap_or_default();
            let session = self.sessions.entry(session).or_default();
            for &run in record.answer.minted() {
                let last_ms = run.slot.ms(run.end() - 1) as i64 + epoch;
                self.latest_ms = self.latest_ms.max(last_ms);
                self.judge.given(by, session, &open[&run.slot], run, latest.max(0) as u64, None);
            }
            for slot in open.keys() {
                self.judge.ended(server, *slot, session, ms as u64);
            }
            match &record.answer {
                Answer::Inserted(runs) => self.rows.inserted(runs),
                Answer::Committed(runs) => self.rows.committed(runs, by),
                Answer::InsertedAndCommitted(runs) => {
                    self.rows.inserted(runs);
                    self.rows.committed(runs, by);
                }
                Answer::Horizon { from, to, rows } => {
                    self.counts.horizons += 1;
                    self.rows.followed(&mut self.judge, by, [*from, *to], rows, lost);
                    self.judge.raise_horizon(server, *to);
                }
                Answer::Ids(_) | Answer::Refused(_) => {}
            }
        }
    }

    fn max_ahead_ms(&self) -> i64 {
        self.max_ahead_ms.unwrap_or(MAX_AHEAD_MS)
    }

    fn epoch_unix_ms(&self) -> i64 {
        self.epoch_unix_ms.unwrap_or(EPOCH_UNIX_MS)
    }

    /// How far a server's clock may have been set between two moments: at least and at most, in milliseconds.
    fn ahead_ms(&self, server: usize, from: Moment, to: Moment) -> (i64, i64) {
        let sets = self.clocks.get(&server).map_or(&[][..], Vec::as_slice);
        let in_force = sets.iter().enumerate().filter_map(|(at, set)| {
            let until = sets.get(at + 1).map(|next| next.to.us);
            (set.from.us <= to.us && until.is_none_or(|until| until >= from.us)).then_some(set.ahead_ms)
        });
        (in_force.clone().min().unwrap_or(0), in_force.max().unwrap_or(0))
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

    /// Whether ids, or a mark, may be so far ahead of the clock during a call that the call has to wait.
    fn clock_is_behind(&self, record: &Record) -> bool {
        let (least, _) = self.ahead_ms(record.server, record.called, record.answered);
        let shown = record.answered.unix_us / 1000 + least;
        let reached = self.latest_ms.max(self.latest_shown_ms(record.answered)) + MARK_AHEAD_MS;
        let of_js = if record.statement.contains("_js") { 1000 } else { 0 };
        shown + MAX_AHEAD_MS < reached + of_js
    }
}
