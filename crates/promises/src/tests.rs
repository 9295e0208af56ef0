//! For each promise a history that breaks it, and one beside it that does not.

use super::*;

const SLOT: Slot = Slot { kind: Kind::Plain, shard: 7 };
const JS: Slot = Slot { kind: Kind::Js, shard: 7 };

/// Positions of a millisecond.
fn run(ms: u64, sequence: u64, count: u64) -> Run {
    Run { slot: SLOT, start: ms << 10 | sequence, count }
}

fn id(ms: u64, sequence: u64) -> i64 {
    SLOT.id(ms << 10 | sequence)
}

/// A session's call to server 1, between two milliseconds.
fn by(session: u64, from: u64, to: u64) -> Caller {
    Caller { server: 1, session, begun_us: from * 1000, ended_us: to * 1000 }
}

fn call(session: u64, from: u64, to: u64, answer: Answer) -> Call {
    let times = (from, to + 1000);
    let by = by(session, from, to);
    Call { by, ms: (from, to), times, shards: (SLOT.shard, 1), relived: false, answer }
}

fn ids(session: u64, from: u64, to: u64, runs: &[Run]) -> Call {
    call(session, from, to, Answer::Ids(runs.to_vec()))
}

fn on(server: usize, mut call: Call) -> Call {
    call.by.server = server;
    call
}

/// Asserts that only this is broken, in words that begin like this, since somebody looked last; or nothing.
#[track_caller]
fn assert_broken(judge: &mut Judge, expected: Option<(Promise, &str)>) {
    let broken = std::mem::take(&mut judge.broken);
    let found = broken.first().map(|broken| broken.promise);
    assert!(broken.len() <= 1 && found == expected.map(|(promise, _)| promise), "{broken:#?}");
    assert!(expected.is_none_or(|(_, words)| broken[0].text.starts_with(words)), "{broken:#?}");
}

/// The same of a round of calls.
#[track_caller]
fn assert_calls(calls: &[Call], expected: Option<(Promise, &str)>) {
    let mut judge = Judge::default();
    judge.calls(calls, false);
    assert_broken(&mut judge, expected);
}

const REPEATED: Option<(Promise, &str)> = Some((Promise::NoIdTwice, "repeated: "));
const DISORDER: Option<(Promise, &str)> = Some((Promise::Order, "out of order: "));

#[test]
fn calls_that_keep_all_promises_are_found_right() {
    let mut judge = Judge::default();
    // In the same millisecond leases need not be in order.
    judge.calls(
        &[
            ids(1, 10, 11, &[run(10, 0, 500), run(11, 0, 5)]),
            ids(2, 11, 12, &[run(11, 300, 4)]),
            ids(1, 11, 12, &[run(11, 100, 4)]),
            call(9, 35, 35, Answer::Horizon(id(32, 0))),
        ],
        false,
    );
    judge.calls(&[ids(2, 60, 60, &[run(60, 0, 1)])], false);
    assert_broken(&mut judge, None);
    assert_eq!((judge.ids, judge.latest_ms, judge.ids(Kind::Plain).count()), (514, 60, 514));
}

/// Promise 1: in any session, on any server, in any round. The message shows both calls.
#[test]
fn a_repeated_id_is_found() {
    let given = ids(1, 10, 20, &[run(12, 0, 8)]);
    for again in [run(12, 7, 1), run(12, 0, 1), run(11, 1020, 6), run(12, 3, 2), run(11, 1020, 100)] {
        let mut judge = Judge::default();
        judge.calls(std::slice::from_ref(&given), false);
        judge.calls(&[on(2, ids(2, 10, 20, &[again]))], false);
        let text = &judge.broken[0].text;
        assert!(text.contains("session 1 on server 1, 10000 to 20000 us, and again by session 2"), "{text}");
        assert_broken(&mut judge, REPEATED);
    }
    let others = on(2, ids(2, 10, 20, &[run(11, 1023, 1), run(12, 8, 1)]));
    assert_calls(&[given, others], None);
}

/// Promise 1, for callers that know no times: each id once, and in order in a session; and for a long load, with memory
/// for the last ids only.
#[test]
fn ids_without_times_are_judged() {
    let mut judge = Judge::default();
    judge.session(by(1, 0, 0), &[id(12, 0), id(12, 1), id(14, 0)], Kind::Plain);
    judge.session(by(2, 0, 0), &[id(13, 0)], Kind::Plain);
    assert_broken(&mut judge, None);
    judge.session(by(1, 0, 0), &[id(13, 1)], Kind::Plain);
    assert_broken(&mut judge, Some((Promise::SessionOrder, "out of order in a session")));
    judge.session(by(3, 0, 0), &[id(12, 1)], Kind::Plain);
    assert_broken(&mut judge, REPEATED);
    judge.forget(13);
    assert_eq!(judge.ids(Kind::Plain).collect::<Vec<_>>(), [id(13, 0), id(13, 1), id(14, 0)]);
    judge.session(by(4, 0, 0), &[id(12, 1000)], Kind::Plain);
    assert_broken(&mut judge, Some((Promise::Time, "before its period")));
}

/// "What is not promised": a server that knows less than was given repeats none if its clock has passed that when a
/// call begins. So the only call that may repeat an id is one that began before, on the standby, when its clock had not
/// passed that id.
#[test]
fn only_a_call_from_before_an_asynchronous_promotion_may_repeat_an_id() {
    let repeat = |before: bool, clock_ms, ms| {
        let mut judge = Judge::default();
        judge.calls(&[ids(1, 50, 54, &[run(56, 0, 8), run(57, 0, 8), run(59, 0, 8)])], false);
        let call = judge.begin(2, SLOT, clock_ms, clock_ms, Sequence::Sorted);
        judge.takes_over_with_loss(2, 1, 57);
        let after = judge.begin(2, SLOT, clock_ms, clock_ms, Sequence::Sorted);
        judge.take(run(ms, 7, 1), on(2, ids(2, 54, 58, &[])).by, Some(if before { &call } else { &after }));
        judge
    };
    assert_broken(&mut repeat(true, 54, 57), None);
    assert_broken(&mut repeat(true, 57, 57), None);
    // The call began afterwards, its clock had passed the ids, or the ids are later than what the server has lost.
    assert_broken(&mut repeat(false, 54, 57), REPEATED);
    assert_broken(&mut repeat(true, 58, 57), REPEATED);
    assert_broken(&mut repeat(true, 54, 59), REPEATED);
}

/// Promise 1: a server that is promoted begins above all that the other gave, and gives while it lives on.
#[test]
fn a_promoted_server_that_begins_below_is_found() {
    let calls = [on(2, ids(2, 10, 20, &[run(12, 0, 1)])), ids(1, 10, 20, &[run(13, 0, 1)])];
    let judged = |takeovers: &[(usize, usize)]| {
        let mut judge = Judge::default();
        takeovers.iter().for_each(|(to, from)| judge.takes_over(*to, *from));
        judge.calls(&calls, false);
        judge
    };
    assert_broken(&mut judged(&[(2, 1)]), Some((Promise::Takeover, "server 2 gave")));
    assert_broken(&mut judged(&[(2, 1), (1, 2)]), None);
    let mut judge = Judge::default();
    judge.takes_over_with_loss(2, 1, 0);
    judge.calls(&calls, true);
    assert_broken(&mut judge, None);
}

/// Promise 1 rests on a mark that is durable before an id below it is given.
#[test]
fn an_id_that_is_not_below_a_durable_limit_is_found() {
    let mut judge = Judge::default();
    judge.limit_raised(1, 20, 20);
    judge.limited(by(1, 0, 0), 19, 20);
    assert_broken(&mut judge, None);
    judge.limited(by(1, 0, 0), 20, 20);
    assert_broken(&mut judge, Some((Promise::Limit, "20 is not below the limit 20")));
    judge.limit_raised(1, 21, 20);
    assert_broken(&mut judge, Some((Promise::Limit, "server 1: limit 21, and 20 is durable")));
}

/// An id is of the shard, and of the kind, that was asked for.
#[test]
fn ids_of_another_shard_are_found() {
    let words = Some((Promise::Shard, "of another shard"));
    assert_calls(&[Call { shards: (8, 4), ..ids(1, 10, 20, &[run(12, 0, 1)]) }], words);
    assert_calls(&[Call { shards: (4, 4), ..ids(1, 10, 20, &[run(12, 0, 1)]) }], None);
    let mut judge = Judge::default();
    let open = judge.begin(1, SLOT, 10, 10, Sequence::Sorted);
    let js = Run { slot: JS, start: 1 << 12, count: 1 };
    judge.given(by(1, 10, 20), &mut Session::default(), &open, js, 2000, None);
    assert_broken(&mut judge, words);
}

/// Promise 2, in a session.
#[test]
fn disorder_in_a_session_is_found() {
    let words = Some((Promise::SessionOrder, "out of order in a session"));
    assert_calls(&[ids(1, 10, 20, &[run(12, 5, 1), run(12, 4, 1)])], words);
    assert_calls(&[ids(1, 10, 20, &[run(12, 5, 1)]), ids(1, 20, 21, &[run(20, 5, 1)])], None);
    assert_calls(&[ids(1, 12, 12, &[run(12, 5, 1)]), ids(1, 12, 12, &[run(12, 4, 1)])], words);
}

/// Promise 2, over sessions: to the millisecond, and not while the clock shows one a second time.
#[test]
fn disorder_over_sessions_is_found() {
    let mut calls = [ids(1, 10, 11, &[run(14, 0, 9)]), ids(2, 12, 12, &[run(13, 0, 1)])];
    assert_calls(&calls, DISORDER);
    assert_calls(&calls.clone().map(|call| on(call.by.session as usize, call)), None);
    assert_calls(&[calls[0].clone(), ids(2, 11, 12, &[run(13, 0, 1)])], None);
    calls[1].relived = true;
    assert_calls(&calls, None);
}

/// Promise 2: ids for JavaScript are in strict order, also if the clock is set.
#[test]
fn disorder_of_ids_for_javascript_is_found() {
    let js = |sequence: u64| [Run { slot: JS, start: 1 << 12 | sequence, count: 1 }];
    let mut calls = [ids(1, 1010, 1011, &js(4)), ids(2, 1011, 1012, &js(3))];
    assert_calls(&calls, None);
    calls[1].by.begun_us += 1;
    assert_calls(&calls, DISORDER);
    calls[1].relived = true;
    assert_calls(&calls, DISORDER);
}

/// A session's call to server 1 that begins and ends in a millisecond, told step by step.
fn step(judge: &mut Judge, session: u64, ms: u64, sequence: Sequence, run: Run) {
    let (mut state, by) = (Session::default(), by(session, ms, ms));
    let open = judge.begin(1, SLOT, ms, 0, sequence);
    judge.given(by, &mut state, &open, run, u64::MAX, None);
    judge.ended(1, SLOT, &state, ms);
}

/// Promise 2: with `idgen.max_lease = 1` ids are in strict order, and otherwise sessions with different values of
/// `idgen.max_ahead` are in no order.
#[test]
fn disorder_is_judged_by_the_settings() {
    for (sequence, ms, expected) in [
        (Sequence::Strict, 10, DISORDER),
        (Sequence::Sorted, 10, None),
        (Sequence::Sorted, 11, DISORDER),
        (Sequence::Mixed, 11, None),
    ] {
        let mut judge = Judge::default();
        step(&mut judge, 1, 10, Sequence::Sorted, run(10, 5, 1));
        step(&mut judge, 2, ms, sequence, run(10, 4, 1));
        assert_broken(&mut judge, expected);
    }
    let mut judge = Judge::default();
    step(&mut judge, 1, 10, Sequence::Sorted, run(10, 5, 1));
    judge.mixed_no_more(1);
    step(&mut judge, 2, 11, Sequence::Sorted, run(10, 4, 1));
    assert_broken(&mut judge, None);
}

/// Promise 2: a clock that was set back excuses calls in the milliseconds that come again, and none after a restart or
/// a failover with all data.
#[test]
fn disorder_after_the_clock_was_set_back_is_found() {
    let begun = || {
        let mut judge = Judge::default();
        step(&mut judge, 1, 10, Sequence::Sorted, run(10, 5, 1));
        judge
    };
    let mut judge = begun();
    judge.set_back(1, 8);
    step(&mut judge, 2, 9, Sequence::Sorted, run(10, 4, 1));
    assert_broken(&mut judge, None);
    let mut judge = begun();
    let mut open = judge.begin(1, SLOT, 11, 11, Sequence::Sorted);
    judge.relive(1, &mut open, 8);
    judge.given(by(2, 11, 11), &mut Session::default(), &open, run(9, 4, 1), 1000, None);
    assert_broken(&mut judge, None);
    let mut judge = begun();
    judge.restarted(1);
    step(&mut judge, 2, 10, Sequence::Relived, run(10, 4, 1));
    assert_broken(&mut judge, DISORDER);
    let mut judge = begun();
    judge.takes_over(2, 1);
    let open = judge.begin(2, SLOT, 10, 10, Sequence::Relived);
    judge.given(on(2, ids(2, 10, 10, &[])).by, &mut Session::default(), &open, run(10, 4, 1), 1000, None);
    assert_broken(&mut judge, DISORDER);
}

/// Promise 2: an id is greater than those passed over, unless its session has waited for it and another one was allowed
/// to pass over more at once.
#[test]
fn an_id_that_was_passed_over_is_found() {
    let mut judge = Judge::default();
    let given = |judge: &mut Judge, session, run, ahead| {
        let open = judge.begin(1, SLOT, 10, 10, Sequence::Sorted);
        judge.given(by(session, 10, 10), &mut Session::default(), &open, run, 1000, ahead);
    };
    judge.passed(by(1, 9, 10), id(12, 5), id(12, 6), 100);
    given(&mut judge, 1, run(12, 6, 1), None);
    given(&mut judge, 2, run(12, 5, 1), Some(20));
    assert_broken(&mut judge, None);
    given(&mut judge, 3, run(12, 4, 1), Some(100));
    assert_broken(&mut judge, DISORDER);
    given(&mut judge, 4, run(12, 3, 1), None);
    assert_broken(&mut judge, DISORDER);
    judge.passed(by(1, 9, 10), id(12, 5), id(12, 5), 100);
    assert_broken(&mut judge, DISORDER);
}

/// Promise 3.
#[test]
fn ids_of_another_time_are_found() {
    assert_calls(&[ids(1, 100, 110, &[run(99, 0, 1)])], Some((Promise::Time, "before its call")));
    assert_calls(&[ids(1, 100, 110, &[run(100, 0, 1)])], None);
    assert_calls(&[ids(1, 100, 110, &[run(1111, 0, 1)])], Some((Promise::Time, "too far ahead")));
    assert_calls(&[ids(1, 100, 110, &[run(1110, 0, 1)])], None);
    let js = |second: u64| Call {
        ms: (2500, 2500),
        ..ids(1, 2500, 2500, &[Run { slot: JS, start: second << 12, count: 1 }])
    };
    assert_calls(&[js(2)], None);
    assert_calls(&[js(1)], Some((Promise::Time, "before its call")));
}

/// Promise 4: a refusal is explained by a fault of its time, or by something else that the caller knows of.
#[test]
fn a_refusal_without_need_is_found() {
    let refused = |from, to, heard: u64, why: &str, allowed: &str, needed| {
        let mut judge = Judge::default();
        judge.refused(by(1, from, to), heard * 1000, why, &[(10_000, 20_000, &[allowed])], needed);
        judge
    };
    let words = Some((Promise::Availability, "a refusal that no promise allows"));
    assert_broken(&mut refused(15, 25, 15, "57P03 no", "57P03", false), None);
    assert_broken(&mut refused(15, 25, 15, "57P03 no", "lost", false), words);
    assert_broken(&mut refused(15, 25, 15, "57P03 no", "lost", true), None);
    assert_broken(&mut refused(21, 25, 21, "55000 no", "55000", false), words);
    // The connection broke before, and the client was asleep.
    assert_broken(&mut refused(21, 25, 19, "lost", "lost", false), None);
    assert_broken(&mut refused(21, 25, 19, "55000 no", "55000", false), words);
}

/// Promise 4: a call waits no longer than it may, unless something was wrong.
#[test]
fn a_call_that_waits_for_too_long_is_found() {
    let waited = |ms, calm_ms: u64| {
        let mut judge = Judge::default();
        judge.waited(by(1, 0, ms), 50_000, calm_ms * 1000);
        judge
    };
    assert_broken(&mut waited(350, 10_000), None);
    assert_broken(&mut waited(351, 10_000), Some((Promise::Availability, "a call that waits for too long")));
    assert_broken(&mut waited(351, 600), None);
}

/// Promise 4: one backend renews the mark.
#[test]
fn a_mark_that_is_renewed_twice_is_found() {
    let mut judge = Judge::default();
    judge.renewed_again(by(1, 0, 1));
    assert_broken(&mut judge, Some((Promise::OneRenews, "renewed once more")));
}

/// Promise 6: no call mints below a horizon that was answered before it began, here or on a server that took over.
#[test]
fn an_id_below_a_horizon_is_found() {
    let horizon = |at| call(9, at, at, Answer::Horizon(id(12, 0)));
    let late = ids(1, 11, 20, &[run(11, 0, 1)]);
    let words = Some((Promise::Settled, "below a horizon"));
    assert_calls(&[horizon(10), late.clone()], words);
    assert_calls(&[horizon(11), late.clone()], None);
    let mut judge = Judge::default();
    judge.calls(&[horizon(10)], false);
    judge.takes_over(2, 1);
    judge.calls(&[on(2, late.clone())], true);
    assert_broken(&mut judge, None);
    judge.calls(&[horizon(10)], false);
    judge.takes_over(2, 1);
    judge.calls(&[on(2, ids(2, 11, 20, &[run(11, 7, 1)]))], false);
    assert_broken(&mut judge, words);
}

/// Promise 6: every id below a horizon is of a transaction that has ended.
#[test]
fn a_horizon_above_an_open_transaction_is_found() {
    let mut judge = Judge::default();
    judge.horizon(by(9, 10, 10), id(12, 0), [id(12, 0), id(13, 0)]);
    assert_broken(&mut judge, None);
    judge.horizon(by(9, 11, 11), id(12, 1), [id(12, 0), id(13, 0)]);
    assert_broken(&mut judge, Some((Promise::Settled, "below a horizon")));
    assert_eq!(judge.horizon_of(1), id(12, 1));
}

/// Promise 6: the horizon never goes back, unless it was lost with what was acknowledged.
#[test]
fn a_horizon_that_goes_back_is_found() {
    let words = Some((Promise::NeverBack, "the horizon went back"));
    for (lost, expected) in [(false, words), (true, None)] {
        let (mut judge, mut rows) = (Judge::default(), Rows::default());
        rows.followed(&mut judge, by(9, 15, 15), [i64::MIN, id(13, 0)], &[], lost);
        rows.followed(&mut judge, by(9, 16, 16), [id(13, 0), id(12, 0)], &[], lost);
        assert_broken(&mut judge, expected);
        let mut judge = Judge::default();
        judge.horizon(by(9, 15, 15), id(13, 0), []);
        if lost {
            judge.takes_over_with_loss(2, 1, 0)
        } else {
            judge.takes_over(2, 1)
        }
        judge.horizon(Caller { server: 2, ..by(9, 16, 16) }, id(12, 0), []);
        assert_broken(&mut judge, expected);
    }
}

/// Promise 6: no row comes later below a horizon that a reader had.
#[test]
fn a_row_that_comes_below_a_horizon_is_found() {
    for (from, to, read, expected) in [
        (i64::MIN, id(13, 0), vec![], Some((Promise::Settled, "the row of"))),
        (i64::MIN, id(13, 0), vec![id(12, 0)], None),
        (id(13, 0), id(14, 0), vec![], None),
    ] {
        let (mut judge, mut rows) = (Judge::default(), Rows::default());
        rows.inserted(&[run(12, 0, 1)]);
        rows.followed(&mut judge, by(9, 15, 15), [from, to], &read, false);
        rows.found(&mut judge, &[id(12, 0)]);
        assert_broken(&mut judge, expected);
    }
}

/// A row that was answered as committed exists, unless it was lost with an asynchronous standby.
#[test]
fn a_row_that_is_lost_is_found() {
    for (lost_us, expected) in [
        (0, Some((Promise::Kept, "the row of"))),
        (19_999, Some((Promise::Kept, "the row of"))),
        (20_000, None),
    ] {
        let (mut judge, mut rows) = (Judge::default(), Rows::default());
        rows.committed(&[run(12, 0, 1)], by(1, 10, 20));
        rows.lost(lost_us);
        rows.found(&mut judge, &[]);
        assert_broken(&mut judge, expected);
    }
}

/// Promise 1: a row whose client never had an answer may not have the id of another call.
#[test]
fn a_row_with_the_id_of_another_call_is_found() {
    for (inserted, expected) in [(false, REPEATED), (true, None)] {
        let (mut judge, mut rows) = (Judge::default(), Rows::default());
        judge.calls(&[ids(1, 10, 20, &[run(12, 0, 8)])], false);
        if inserted {
            rows.inserted(&[run(12, 0, 8)]);
        }
        rows.found(&mut judge, &[id(12, 3)]);
        assert_broken(&mut judge, expected);
    }
}
