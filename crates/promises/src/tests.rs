//! For each promise a history that breaks it, and one beside it that does not.

use super::*;

/// 2026-01-01 by the epoch that servers have: histories begin then.
const BEGIN_MS: u64 = 63_158_400_000;
const BEGIN_UNIX_MS: i64 = 1_767_225_600_000;
const SLOT: Slot = Slot { kind: Kind::Plain, shard: 7 };
const JS: Slot = Slot { kind: Kind::Js, shard: 7 };

type Expected = Option<(Promise, &'static str)>;
const REPEATED: Expected = Some((Promise::NoIdTwice, "repeated: "));
const DISORDER: Expected = Some((Promise::Order, "out of order: "));
const EARLY: Expected = Some((Promise::Time, "before its call"));
const AHEAD: Expected = Some((Promise::Time, "too far ahead"));
const BELOW: Expected = Some((Promise::Settled, "below a horizon"));
const BACK: Expected = Some((Promise::NeverBack, "the horizon went back"));
const ROW: Expected = Some((Promise::Kept, "the row of"));
const REFUSED: Expected = Some((Promise::Availability, "a refusal that no promise allows"));

/// So many milliseconds after the beginning.
fn at(ms: u64) -> Moment {
    Moment { us: ms * 1000, unix_us: (BEGIN_UNIX_MS + ms as i64) * 1000 }
}

/// Positions of a millisecond after the beginning.
fn run(ms: u64, sequence: u64, count: u64) -> Run {
    Run { slot: SLOT, start: (BEGIN_MS + ms) << 10 | sequence, count }
}

fn id(ms: u64, sequence: u64) -> i64 {
    SLOT.id(run(ms, sequence, 1).start)
}

/// The result of a session of server 1, with the times of its beginning and end.
fn record(session: u64, from: u64, to: u64, answer: Answer) -> Record {
    Record {
        session,
        server: 1,
        statement: "SELECT".into(),
        shards: (SLOT.shard, 1),
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

fn on(server: usize, record: Record) -> Record {
    Record { server, ..record }
}

fn clock(from: u64, to: u64, ahead_ms: i64) -> Event {
    Event::Clock { server: 1, set: ClockSet { from: at(from), to: at(to), ahead_ms } }
}

fn takes_over(ms: u64, server: usize, from: usize, keeps_all: bool) -> Event {
    Event::Succession { at: at(ms), server, from, keeps_all }
}

fn rows(ids: &[i64]) -> Event {
    Event::Rows { ids: ids.to_vec() }
}

fn faults(allows: &str) -> Event {
    Event::Faults { from: at(10), to: at(20), struck: Vec::new(), allows: vec![allows.into()] }
}

/// Asserts that this alone is broken, in words that begin like this; or nothing.
#[track_caller]
fn assert_broken(broken: &[Broken], expected: Expected) {
    let found = broken.first().map(|broken| broken.promise);
    assert!(broken.len() <= 1 && found == expected.map(|(promise, _)| promise), "{broken:#?}");
    assert!(expected.is_none_or(|(_, words)| broken[0].text.starts_with(words)), "{broken:#?}");
}

/// The same of a history of one round.
#[track_caller]
fn assert_found(records: &[Record], events: &[Event], expected: Expected) {
    assert_broken(&History::default().round(records.to_vec(), events), expected);
}

/// The same of what a judge has found since it was asked last.
#[track_caller]
fn assert_judged(judge: &mut Judge, expected: Expected) {
    assert_broken(&std::mem::take(&mut judge.broken), expected);
}

#[test]
fn a_history_that_keeps_all_promises_is_found_right() {
    let mut history = History::default();
    let kept = [rows(&[id(30, 0), id(31, 0)]), faults("57P03")];
    let records = vec![
        ids(1, 10, 11, &[run(10, 0, 500), run(11, 0, 5)]),
        // In the same millisecond leases need not be in order.
        ids(2, 11, 12, &[run(11, 300, 4)]),
        ids(1, 11, 12, &[run(11, 100, 4)]),
        record(2, 30, 31, Answer::InsertedAndCommitted(vec![run(30, 0, 1)])),
        record(3, 30, 31, Answer::Inserted(vec![run(31, 0, 1)])),
        record(3, 31, 32, Answer::Committed(vec![run(31, 0, 1)])),
        horizon(35, i64::MIN, id(32, 0), &[id(30, 0), id(31, 0)]),
        refused(20, 50, "57P03 the database system is starting up"),
    ];
    assert_broken(&history.round(records, &kept), None);
    let records = vec![horizon(80, id(32, 0), id(80, 0), &[]), ids(1, 90, 91, &[run(90, 0, 1)])];
    assert_broken(&history.round(records, &kept), None);
    let Counts { ids, calls, horizons, refusals } = history.judge.counts;
    assert_eq!((ids, calls, horizons, refusals.len()), (516, 10, 2, 1));
}

/// Promise 1: in any session, on any server, in any round. The message shows both calls.
#[test]
fn a_repeated_id_is_found() {
    let given = ids(1, 10, 20, &[run(12, 0, 8), run(14, 0, 8)]);
    for again in [run(12, 7, 1), run(12, 0, 1), run(11, 1020, 6), run(12, 3, 2), run(11, 1020, 4000)] {
        let mut history = History::default();
        assert_broken(&history.round(vec![given.clone()], &[]), None);
        let found = history.round(vec![on(2, ids(2, 10, 20, &[again]))], &[]);
        assert_broken(&found, REPEATED);
        let text = &found[0].text;
        assert!(
            text.contains("of session 2 on server 2, 10000 to 20000 us, and before of session 1"),
            "{text}"
        );
    }
    let others = on(2, ids(2, 10, 20, &[run(11, 1023, 1), run(12, 8, 1)]));
    assert_found(&[given, others], &[], None);
}

/// Promise 1: a row whose client never had an answer may not have the id of another call.
#[test]
fn a_row_with_the_id_of_another_call_is_found() {
    let there = [rows(&[id(12, 3)])];
    assert_found(&[ids(1, 10, 20, &[run(12, 0, 8)])], &there, REPEATED);
    assert_found(&[record(1, 10, 20, Answer::InsertedAndCommitted(vec![run(12, 3, 1)]))], &there, None);
}

/// Promise 1, for callers that know no times: each id once, and in order in a session. What is forgotten is given no
/// more.
#[test]
fn ids_without_times_are_judged() {
    let by = |session| Caller { session, ..Caller::default() };
    let mut judge = Judge::default();
    judge.session(by(1), &[id(12, 0), id(12, 1), id(14, 0)], Kind::Plain);
    judge.session(by(2), &[id(13, 0)], Kind::Plain);
    assert_judged(&mut judge, None);
    judge.session(by(3), &[id(15, 1), id(15, 0)], Kind::Plain);
    assert_judged(&mut judge, Some((Promise::SessionOrder, "out of order in a session")));
    judge.session(by(4), &[id(12, 1)], Kind::Plain);
    assert_judged(&mut judge, REPEATED);
    judge.forget(BEGIN_MS + 14);
    assert_eq!(judge.ids(Kind::Plain).collect::<Vec<_>>(), [id(14, 0), id(15, 0), id(15, 1)]);
    judge.session(by(5), &[id(13, 1)], Kind::Plain);
    assert_judged(&mut judge, Some((Promise::Time, "before its call")));
}

/// "What is not promised": a server that knows less than was given repeats no id in a call that begins when its clock
/// has passed that id. So the only call that may repeat one has read the clock before, on the standby.
#[test]
fn only_a_call_from_before_an_asynchronous_promotion_may_repeat_an_id() {
    for (before, clock_ms, ms, expected) in [
        (true, 54, 57, None),
        (true, 57, 57, None),
        (false, 54, 57, REPEATED),
        (true, 58, 57, REPEATED),
        // This id is later than what the server has lost.
        (true, 54, 59, REPEATED),
    ] {
        let mut judge = Judge::default();
        judge.session(
            Caller { server: 1, ..Caller::default() },
            &[id(57, 0), id(57, 1), id(59, 0)],
            Kind::Plain,
        );
        let begin = |judge: &mut Judge| {
            judge.begin(
                Caller { server: 2, ..Caller::default() },
                SLOT,
                clock_ms,
                BEGIN_MS + clock_ms,
                Sequence::Sorted,
            )
        };
        let early = begin(&mut judge);
        judge.takes_over(2, 1, Some(BEGIN_MS + 57));
        let call = if before { early } else { begin(&mut judge) };
        let by = Caller { server: 2, ..Caller::default() };
        judge.take(run(ms, 0, 1), by, Some(&call));
        assert_judged(&mut judge, expected);
        // The server itself gives no id twice.
        judge.take(run(ms, 0, 1), by, Some(&call));
        assert_judged(&mut judge, REPEATED);
    }
}

/// Promise 1: a server that is promoted begins above all that the other gave, and gives while it lives on.
#[test]
fn a_promoted_server_that_begins_below_is_found() {
    let calls = [on(2, ids(2, 10, 20, &[run(12, 0, 1)])), ids(1, 10, 20, &[run(13, 0, 1)])];
    let words = Some((Promise::Takeover, "server 2 gave"));
    assert_found(&calls, &[takes_over(9, 2, 1, true)], words);
    assert_found(&calls, &[takes_over(9, 2, 1, false)], None);
    assert_found(&calls, &[takes_over(9, 2, 1, true), takes_over(30, 1, 2, true)], None);
}

/// Promise 1 rests on a mark that is durable before an id below it is given.
#[test]
fn an_id_that_is_not_below_a_durable_limit_is_found() {
    let mut judge = Judge::default();
    judge.limited("ids", 20, 20, Caller::default());
    assert_judged(&mut judge, None);
    judge.limited("ids", 21, 20, Caller::default());
    assert_judged(&mut judge, Some((Promise::Limit, "ids up to 21, and 20 is durable")));
}

/// An id is of the shard, and of the kind, that was asked for.
#[test]
fn ids_of_another_shard_are_found() {
    let words = Some((Promise::Shard, "of another shard"));
    for (first, expected) in [(8, words), (4, None), (3, words)] {
        let call = Record { shards: (first, 4), ..ids(1, 10, 20, &[run(12, 0, 1)]) };
        assert_found(&[call], &[], expected);
    }
    let mut judge = Judge::default();
    let call = judge.begin(Caller::default(), SLOT, 10, 10, Sequence::Sorted);
    let js = Run { slot: JS, start: 1 << 12, count: 1 };
    judge.given(&mut Session::default(), &call, js);
    assert_judged(&mut judge, words);
}

/// Promise 2, in a session.
#[test]
fn disorder_in_a_session_is_found() {
    let words = Some((Promise::SessionOrder, "out of order in a session"));
    assert_found(&[ids(1, 10, 20, &[run(12, 5, 1), run(12, 4, 1)])], &[], words);
    assert_found(&[ids(1, 10, 20, &[run(12, 5, 1)]), ids(1, 20, 21, &[run(20, 5, 1)])], &[], None);
    assert_found(&[ids(1, 12, 12, &[run(12, 5, 1)]), ids(1, 12, 12, &[run(12, 4, 1)])], &[], words);
}

/// Promise 2, over sessions: to the millisecond, and not while the clock shows one a second time.
#[test]
fn disorder_over_sessions_is_found() {
    let calls = [ids(1, 10, 11, &[run(14, 0, 9)]), ids(2, 12, 12, &[run(13, 0, 1)])];
    assert_found(&calls, &[], DISORDER);
    assert_found(&calls.clone().map(|call| on(call.session as usize, call)), &[], None);
    assert_found(&[calls[0].clone(), ids(2, 11, 12, &[run(13, 0, 1)])], &[], None);
    assert_found(&calls, &[clock(0, 1, 0), clock(12, 12, -5)], None);
}

/// Promise 2: ids for JavaScript are in strict order, also when the clock is set.
#[test]
fn disorder_of_ids_for_javascript_is_found() {
    let js = |sequence| [Run { slot: JS, start: (BEGIN_MS / 1000) << 12 | sequence, count: 1 }];
    let mut calls = [ids(1, 10, 11, &js(4)), ids(2, 11, 12, &js(3))];
    assert_found(&calls, &[], None);
    calls[1].called.us += 1;
    assert_found(&calls, &[], DISORDER);
    assert_found(&calls, &[clock(0, 1, 0), clock(12, 12, -5)], DISORDER);
}

/// An id of a session of its own, in a call that begins and ends in a millisecond.
fn give(judge: &mut Judge, server: usize, ms: u64, sequence: Sequence, run: Run) {
    let mut session = Session::default();
    let call = judge.begin(Caller { server, ..Caller::default() }, SLOT, ms, 0, sequence);
    judge.given(&mut session, &call, run);
    judge.ended(&call, &session, ms);
}

/// Promise 2, step by step: with `idgen.max_lease = 1` ids are in strict order, and sessions with different values of
/// `idgen.max_ahead` are in no order. A clock that was set back excuses calls in the milliseconds that come again, but
/// not after a restart or a failover with all data.
#[test]
fn disorder_is_judged_by_settings_and_restarts() {
    type Change = fn(&mut Judge);
    const NOTHING: Change = |_| {};
    const CASES: [(Change, usize, u64, Sequence, Expected); 9] = [
        (NOTHING, 1, 10, Sequence::Strict, DISORDER),
        (NOTHING, 1, 10, Sequence::Sorted, None),
        (NOTHING, 1, 11, Sequence::Sorted, DISORDER),
        (NOTHING, 1, 11, Sequence::Mixed, None),
        (|judge| judge.set_back(1, 0), 1, 11, Sequence::Sorted, None),
        (|judge| judge.set_back(1, 8), 1, 9, Sequence::Sorted, None),
        (|judge| judge.restarted(1), 1, 10, Sequence::Relived, DISORDER),
        (|judge| judge.takes_over(2, 1, None), 2, 10, Sequence::Relived, DISORDER),
        (|judge| judge.takes_over(2, 1, Some(0)), 2, 10, Sequence::Relived, DISORDER),
    ];
    for (change, server, ms, sequence, expected) in CASES {
        let mut judge = Judge::default();
        give(&mut judge, 1, 10, Sequence::Sorted, run(10, 5, 1));
        change(&mut judge);
        give(&mut judge, server, ms, sequence, run(10, 4, 1));
        assert_judged(&mut judge, expected);
    }
    let mut judge = Judge::default();
    give(&mut judge, 1, 10, Sequence::Sorted, run(10, 5, 1));
    let mut call =
        judge.begin(Caller { server: 1, ..Caller::default() }, SLOT, 11, BEGIN_MS + 11, Sequence::Sorted);
    judge.relive(&mut call, BEGIN_MS + 8);
    judge.given(&mut Session::default(), &call, run(9, 4, 1));
    assert_judged(&mut judge, None);
}

/// Promise 2: an id is greater than those passed over, unless its session has waited for it and another one was allowed
/// to pass over more at once.
#[test]
fn an_id_that_was_passed_over_is_found() {
    let by = Caller { server: 1, ..Caller::default() };
    let given = |sequence, ahead, expected| {
        let mut judge = Judge::default();
        judge.passed(by, id(12, 5), id(12, 6), 100);
        let mut call = judge.begin(by, SLOT, 10, 0, Sequence::Sorted);
        call.waited = ahead;
        judge.given(&mut Session::default(), &call, run(12, sequence, 1));
        assert_judged(&mut judge, expected);
    };
    given(6, None, None);
    given(5, None, DISORDER);
    given(5, Some(20), None);
    given(5, Some(100), DISORDER);
    let mut judge = Judge::default();
    judge.passed(by, id(12, 5), id(12, 5), 100);
    assert_judged(&mut judge, DISORDER);
}

/// Promise 3, by the clocks as set.
#[test]
fn ids_of_another_time_are_found() {
    let id_of = |from, to, ms| [ids(1, from, to, &[run(ms, 0, 1)])];
    assert_found(&id_of(100, 110, 98), &[], EARLY);
    assert_found(&id_of(100, 110, 99), &[], None);
    assert_found(&id_of(100, 110, 1112), &[], AHEAD);
    assert_found(&id_of(100, 110, 1111), &[], None);
    assert_found(&id_of(100, 110, 2111), &[Event::MaxAhead { ms: 2000 }], None);
    assert_found(&id_of(100, 110, 1000), &[Event::Epoch { unix_ms: 1_704_067_201_000 }], AHEAD);
    // Back from a moment in the call on.
    let back = [clock(0, 1, 0), clock(105, 106, -50)];
    assert_found(&id_of(100, 110, 50), &back, None);
    assert_found(&id_of(107, 110, 1062), &back, AHEAD);
    assert_found(&id_of(100, 104, 50), &back, EARLY);
    let js =
        |second| [ids(1, 2500, 2500, &[Run { slot: JS, start: (BEGIN_MS / 1000 + second) << 12, count: 1 }])];
    assert_found(&js(2), &[], None);
    assert_found(&js(1), &[], EARLY);
}

/// Promise 4: a refusal is explained by a fault of its time, and by nothing else.
#[test]
fn a_refusal_without_need_is_found() {
    assert_found(&[refused(15, 25, "57P03 no")], &[faults("57P03")], None);
    assert_found(&[refused(15, 25, "57P03 no")], &[faults("lost")], REFUSED);
    assert_found(&[refused(21, 25, "57P03 no")], &[faults("55000")], REFUSED);
    assert_found(&[refused(21, 25, "55000 no")], &[faults("55000")], REFUSED);
    // The connection broke before, and the client was asleep.
    assert_found(&[Record { heard: at(19), ..refused(21, 25, "lost") }], &[faults("lost")], None);
    assert_found(&[Record { heard: at(19), ..refused(21, 25, "55000 no") }], &[faults("55000")], REFUSED);
}

/// Promise 4: a clock that is behind explains the refusals that it brings about, as long as it is.
#[test]
fn a_refusal_for_a_clock_that_is_right_is_found() {
    let why = "40001 the system clock is behind the ids of shard";
    assert_found(&[refused(5_000, 6_000, why)], &[clock(0, 1, 0)], REFUSED);
    let back = [clock(0, 1, 0), clock(100, 101, -3000), clock(200, 201, 0)];
    assert_found(&[refused(150, 160, why)], &back, None);
    assert_found(&[refused(150, 160, "40001 the high-water mark")], &back, REFUSED);
    assert_found(&[refused(5_000, 6_000, why)], &back, REFUSED);
    let forth = [clock(0, 1, 0), clock(100, 101, 3000), clock(200, 201, 0)];
    assert_found(&[refused(300, 400, why)], &forth, None);
    assert_found(&[refused(6_000, 6_100, why)], &forth, REFUSED);
}

/// Promise 4: a call waits no longer than it may unless something was wrong, and one backend renews the mark.
#[test]
fn a_wait_and_a_renewal_without_need_are_found() {
    let too_long = Some((Promise::Availability, "a call that waits for too long"));
    for (ms, calm_ms, expected) in [(350, 10_000, None), (351, 10_000, too_long), (351, 600, None)] {
        let mut judge = Judge::default();
        judge.waited(Caller { ended_us: ms * 1000, ..Caller::default() }, 50_000, calm_ms * 1000);
        assert_judged(&mut judge, expected);
    }
    let mut judge = Judge::default();
    judge.renewed_again(Caller::default());
    assert_judged(&mut judge, Some((Promise::OneRenews, "renewed once more")));
}

/// Promise 6: no call mints below a horizon that was answered before it began, here or on a server that took over.
#[test]
fn an_id_below_a_horizon_is_found() {
    let horizon = |at| horizon(at, i64::MIN, id(12, 0), &[]);
    let late = ids(1, 11, 20, &[run(11, 0, 1)]);
    assert_found(&[horizon(10), late.clone()], &[], BELOW);
    assert_found(&[horizon(11), late.clone()], &[], None);
    for (keeps_all, expected) in [(true, BELOW), (false, None)] {
        let mut history = History::default();
        history.round(vec![horizon(10)], &[]);
        let events = [takes_over(10, 2, 1, keeps_all)];
        assert_broken(&history.round(vec![on(2, late.clone())], &events), expected);
    }
}

/// Promise 6: every id below a horizon is of a transaction that has ended.
#[test]
fn a_horizon_above_an_open_transaction_is_found() {
    let mut judge = Judge::default();
    judge.horizon(Caller::default(), id(12, 0), [id(12, 0), id(13, 0)]);
    assert_judged(&mut judge, None);
    judge.horizon(Caller::default(), id(12, 1), [id(12, 0), id(13, 0)]);
    assert_judged(&mut judge, BELOW);
    assert_eq!(judge.horizon_of(0), id(12, 1));
    judge.horizon(Caller::default(), id(12, 0), []);
    assert_judged(&mut judge, BACK);
}

/// Promise 6: the horizon never goes back, unless it was lost with what was acknowledged.
#[test]
fn a_horizon_that_goes_back_is_found() {
    let calls = [horizon(15, i64::MIN, id(13, 0), &[]), on(2, horizon(16, id(13, 0), id(12, 0), &[]))];
    assert_found(&calls, &[takes_over(15, 2, 1, true)], BACK);
    assert_found(&calls, &[takes_over(16, 2, 1, false)], None);
}

/// Promise 6: no row comes later below a horizon that a reader had.
#[test]
fn a_row_that_comes_below_a_horizon_is_found() {
    let inserted = record(1, 10, 20, Answer::InsertedAndCommitted(vec![run(12, 0, 1)]));
    let late = Some((Promise::Settled, "the row of"));
    let (to, there) = (id(13, 0), [rows(&[id(12, 0)])]);
    assert_found(&[inserted.clone(), horizon(15, i64::MIN, to, &[])], &there, late);
    assert_found(&[inserted.clone(), horizon(15, i64::MIN, to, &[id(12, 0)])], &there, None);
    assert_found(&[inserted, horizon(15, to, id(14, 0), &[])], &there, None);
}

/// A row that was answered as committed exists, unless it was lost with an asynchronous standby.
#[test]
fn a_row_that_is_lost_is_found() {
    let committed = [record(1, 10, 20, Answer::Committed(vec![run(12, 0, 1)]))];
    assert_found(&committed, &[rows(&[])], ROW);
    assert_found(&committed, &[takes_over(21, 2, 1, true), rows(&[])], ROW);
    assert_found(&committed, &[takes_over(19, 2, 1, false), rows(&[])], ROW);
    assert_found(&committed, &[takes_over(21, 2, 1, false), rows(&[])], None);
}
