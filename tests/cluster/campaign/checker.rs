//! Shows the judge what clients were given and refused, one round after the other, and knows the clocks of the servers.
//! Between two rounds no call is under way.

use std::collections::{BTreeMap, HashMap};

use promises::{Answer as Given, Call, Caller, Judge, Rows};

use crate::campaign::journal::{Answer, Event, Record, ServerNumber};
use crate::moment::Moment;
use crate::server::ClockSet;

/// `idgen.epoch` and `idgen.max_ahead` if nobody has changed them, in milliseconds.
const EPOCH_UNIX_MS: i64 = 1_704_067_200_000;
const MAX_AHEAD_MS: i64 = 1000;
/// How far a mark may be ahead of the last id: `idgen.reserve_ahead` of the servers, the queue for a full shard, and
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

/// What has been counted.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub ids: u64,
    pub calls: u64,
    pub horizons: u64,
    pub refusals: BTreeMap<String, u64>,
}

/// What the checker remembers of earlier rounds.
#[derive(Default)]
pub struct Checker {
    pub counts: Counts,
    judge: Judge,
    rows: Rows,
    max_ahead_ms: Option<i64>,
    epoch_unix_ms: Option<i64>,
    clocks: HashMap<ServerNumber, Vec<ClockSet>>,
    /// The latest moment that an id was given for, since 1970 in milliseconds.
    latest_ms: i64,
}

/// A time in which faults lasted, and the refusals that they explain.
type Window<'a> = (u64, u64, &'a [String]);

impl Record {
    fn by(&self) -> Caller {
        let Record { server, session, called, answered, .. } = *self;
        Caller { server, session, begun_us: called.us, ended_us: answered.us }
    }
}

impl Checker {
    /// Checks what has been written since the last round, and returns what breaks a promise.
    pub fn round(&mut self, mut records: Vec<Record>, events: &[Event]) -> Vec<String> {
        records.sort_by_key(|record| (record.answered, record.session));
        let (windows, lost_until) = self.take_in(events);
        let lost = lost_until.is_some();
        let calls = self.calls(&records);
        self.judge.calls(&calls, lost);
        self.counts.calls += records.len() as u64;
        self.counts.ids = self.judge.ids;
        for record in &records {
            let by = record.by();
            match &record.answer {
                Answer::Ids(_) => {}
                Answer::Inserted(runs) => self.rows.inserted(runs),
                Answer::Committed(runs) => {
                    self.rows.inserted(runs);
                    self.rows.committed(runs, by);
                }
                Answer::Horizon { from, to, rows } => {
                    self.counts.horizons += 1;
                    self.rows.followed(&mut self.judge, by, [*from, *to], rows, lost);
                }
                Answer::Refused(why) => {
                    *self.counts.refusals.entry(why.clone()).or_default() += 1;
                    let for_the_clock = FOR_THE_CLOCK.iter().any(|begin| why.starts_with(begin));
                    let needed = for_the_clock && self.clock_is_behind(record);
                    let why = format!("{why}: {}", record.statement);
                    self.judge.refused(by, record.heard.us, &why, &windows, needed);
                }
            }
        }
        if let Some(until) = lost_until {
            self.rows.lost(until.us);
        }
        for event in events {
            if let Event::Rows { ids } = event {
                self.rows.found(&mut self.judge, ids);
            }
        }
        self.judge.broken.drain(..).map(|broken| broken.text).collect()
    }

    /// Takes in what became of the servers: the times of faults, and up to when acknowledged rows and horizons may be
    /// lost, because a server took over that lacks them.
    fn take_in<'a>(&mut self, events: &'a [Event]) -> (Vec<Window<'a>>, Option<Moment>) {
        let (mut windows, mut lost_until) = (Vec::new(), None);
        for event in events {
            match event {
                Event::Clock { server, set } => self.clocks.entry(*server).or_default().push(*set),
                Event::Faults { from, to, allows, .. } => windows.push((from.us, to.us, &allows[..])),
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
        (windows, lost_until)
    }

    /// The calls of a round, as the judge takes them.
    fn calls(&mut self, records: &[Record]) -> Vec<Call> {
        let mut by_call: Vec<&Record> = records.iter().collect();
        by_call.sort_by_key(|record| record.called);
        let mut sessions: HashMap<u64, Moment> = HashMap::new();
        let mut calls = Vec::with_capacity(records.len());
        for record in by_call {
            let &Record { server, session, shards, called, answered, .. } = record;
            let answer = match &record.answer {
                // Rows of a transaction had their ids before it was committed.
                Answer::Committed(_) if record.statement == "COMMIT" => Given::Nothing,
                Answer::Ids(runs) | Answer::Inserted(runs) | Answer::Committed(runs) => {
                    let last = runs.iter().map(|run| run.slot.ms(run.end() - 1)).max().unwrap_or(0);
                    self.latest_ms = self.latest_ms.max(last as i64 + self.epoch_unix_ms());
                    Given::Ids(runs.clone())
                }
                Answer::Horizon { to, .. } => Given::Horizon(*to),
                Answer::Refused(_) => Given::Nothing,
            };
            // A lease that the session has from its call before is good in a millisecond that comes a second time.
            let since = sessions.insert(session, called).unwrap_or(called);
            let mut sets = self.clocks.get(&server).into_iter().flatten();
            let relived = sets.any(|set| set.to.us >= since.us && set.from.us <= answered.us);
            let (least, most) = self.ahead_ms(server, called, answered);
            let [begun, ended] = [called, answered].map(|moment| moment.unix_us / 1000);
            let earliest = begun + least - SKEW_MS - self.epoch_unix_ms();
            let latest = ended + most + SKEW_MS + self.max_ahead_ms() - self.epoch_unix_ms();
            calls.push(Call {
                by: record.by(),
                ms: (begun as u64, ended as u64),
                times: (earliest.max(0) as u64, latest.max(0) as u64),
                shards,
                relived,
                answer,
            });
        }
        calls
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

    /// Whether ids, or a mark, may be so far ahead of the clock during a call that the call has to wait.
    fn clock_is_behind(&self, record: &Record) -> bool {
        let (least, _) = self.ahead_ms(record.server, record.called, record.answered);
        let shown = record.answered.unix_us / 1000 + least;
        let reached = self.latest_ms.max(self.latest_shown_ms(record.answered)) + MARK_AHEAD_MS;
        let of_js = if record.statement.contains("_js") { 1000 } else { 0 };
        shown + MAX_AHEAD_MS < reached + of_js
    }
}

#[cfg(test)]
mod tests {
    use promises::{Kind, Run, Slot};

    use super::*;

    /// 2026-01-01, as milliseconds since 1970, at which the journals below begin.
    const BEGIN_MS: i64 = 1_767_225_600_000;
    const SHARD: Slot = Slot { kind: Kind::Plain, shard: 7 };

    /// So many milliseconds after the beginning.
    fn at(ms: u64) -> Moment {
        Moment { us: ms * 1000, unix_us: (BEGIN_MS + ms as i64) * 1000 }
    }

    /// Positions of a millisecond after the beginning.
    fn run(ms: i64, sequence: u64, count: u64) -> Run {
        Run { slot: SHARD, start: ((BEGIN_MS + ms - EPOCH_UNIX_MS) as u64) << 10 | sequence, count }
    }

    fn id(ms: i64) -> i64 {
        SHARD.id(run(ms, 0, 1).start)
    }

    /// The result of a session of server 1, with the times of its beginning and end.
    fn record(session: u64, from: u64, to: u64, answer: Answer) -> Record {
        Record {
            session,
            server: 1,
            statement: "SELECT".into(),
            shards: (SHARD.shard, 1),
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

    fn clock(from: u64, to: u64, ahead_ms: i64) -> Event {
        Event::Clock { server: 1, set: ClockSet { from: at(from), to: at(to), ahead_ms } }
    }

    fn succession(ms: u64, keeps_all: bool) -> Event {
        Event::Succession { at: at(ms), server: 2, from: 1, keeps_all }
    }

    /// Asserts that a round of new servers breaks one promise, in these words, or none.
    #[track_caller]
    fn assert_found(records: Vec<Record>, events: &[Event], words: Option<&str>) {
        let found = Checker::default().round(records, events);
        assert_eq!(found.len(), usize::from(words.is_some()), "{found:#?}");
        assert!(words.is_none_or(|words| found[0].starts_with(words)), "{found:#?}");
    }

    /// A journal in which all promises are kept, over two rounds, has no findings.
    #[test]
    fn what_is_promised_is_found_right() {
        let mut checker = Checker::default();
        let committed = record(2, 30, 31, Answer::Committed(vec![run(30, 0, 1)]));
        let inserted = record(3, 30, 31, Answer::Inserted(vec![run(31, 0, 1)]));
        let commit = record(3, 31, 32, Answer::Committed(vec![run(31, 0, 1)]));
        let records = vec![
            ids(1, 10, 11, &[run(10, 0, 500), run(11, 0, 5)]),
            committed,
            inserted,
            Record { statement: "COMMIT".into(), ..commit },
            horizon(35, i64::MIN, id(32), &[id(30), id(31)]),
            refused(40, 50, "57P03 the database system is starting up"),
        ];
        let faults = Event::Faults {
            from: at(38),
            to: at(45),
            struck: Vec::new(),
            allows: vec!["57P03".into(), "lost".into()],
        };
        let events = [faults, Event::Rows { ids: vec![id(30), id(31)] }];
        assert_eq!(checker.round(records, &events), [""; 0]);
        assert_eq!((checker.counts.ids, checker.counts.refusals.len()), (507, 1));
        // The connection broke in the round before, and the client was asleep.
        let lost = Record { heard: at(42), ..refused(70, 70, "lost") };
        let records = vec![lost, horizon(80, id(32), id(80), &[])];
        assert_eq!(checker.round(records, &events), [""; 0]);
    }

    /// The events of a round say what the servers may have lost.
    #[test]
    fn what_servers_lose_is_known() {
        let committed = || record(1, 10, 20, Answer::Committed(vec![run(12, 0, 1)]));
        let rows = Event::Rows { ids: Vec::new() };
        assert_found(vec![committed()], &[succession(21, true), rows.clone()], Some("the row of"));
        assert_found(vec![committed()], &[succession(19, false), rows.clone()], Some("the row of"));
        assert_found(vec![committed()], &[succession(21, false), rows], None);
        let horizons = || vec![horizon(15, i64::MIN, id(13), &[]), horizon(16, id(13), id(12), &[])];
        assert_found(horizons(), &[succession(15, true)], Some("the horizon went back"));
        assert_found(horizons(), &[succession(16, false)], None);
        let other = Record { server: 2, ..ids(2, 10, 20, &[run(12, 0, 1)]) };
        let both = || vec![other.clone(), ids(1, 10, 20, &[run(13, 0, 1)])];
        assert_found(both(), &[succession(9, true)], Some("server 2 gave"));
        assert_found(both(), &[succession(9, false)], None);
    }

    /// Promises 2 and 3, by the clocks as set.
    #[test]
    fn clocks_that_are_set_are_known() {
        assert_found(vec![ids(1, 100, 110, &[run(98, 0, 1)])], &[], Some("before its call"));
        assert_found(vec![ids(1, 100, 110, &[run(99, 0, 1)])], &[], None);
        assert_found(vec![ids(1, 100, 110, &[run(1112, 0, 1)])], &[], Some("too far ahead"));
        assert_found(vec![ids(1, 100, 110, &[run(1111, 0, 1)])], &[], None);
        // Back from a moment in the call on.
        let back = [clock(0, 1, 0), clock(105, 106, -50)];
        assert_found(vec![ids(1, 100, 110, &[run(50, 0, 1)])], &back, None);
        assert_found(vec![ids(1, 107, 110, &[run(1062, 0, 1)])], &back, Some("too far ahead"));
        assert_found(vec![ids(1, 100, 104, &[run(50, 0, 1)])], &back, Some("before its call"));
        let calls = || vec![ids(1, 10, 11, &[run(14, 0, 9)]), ids(2, 12, 12, &[run(13, 0, 1)])];
        assert_found(calls(), &[], Some("out of order: "));
        assert_found(calls(), &[clock(0, 1, 0), clock(12, 12, -5)], None);
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
