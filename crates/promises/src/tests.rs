//! For each promise, histories that break it, next to others that do not.

use super::*;

/// 2026-01-01, counted from the servers' epoch. Histories begin then.
const BEGIN_MS: u64 = 63_158_400_000;
const BEGIN_UNIX_MS: i64 = 1_767_225_600_000;

/// The moment `ms` milliseconds after the beginning.
fn at(ms: u64) -> Moment {
    Moment { us: ms * 1000, unix_us: (BEGIN_UNIX_MS + ms as i64) * 1000 }
}

fn number(word: &str) -> u64 {
    word.parse().unwrap_or_else(|_| panic!("{word} is not a number"))
}

/// Two numbers separated by a sign.
fn pair(word: &str, sign: char) -> (u64, u64) {
    let (first, second) = word.split_once(sign).unwrap_or((word, "1"));
    (number(first), number(second))
}

/// `MS.SEQUENCE+COUNT`: ids of shard 7, one by default, in a millisecond after the beginning. With the prefix `js` they
/// are ids for JavaScript, and the unit is a second.
fn run(word: &str) -> Run {
    let (kind, rest) = word.strip_prefix("js").map_or((Kind::Plain, word), |rest| (Kind::Js, rest));
    let (ms, rest) = rest.split_once('.').unwrap_or_else(|| panic!("{word} is not an id"));
    let ((sequence, count), slot) = (pair(rest, '+'), Slot { kind, shard: 7 });
    Run { slot, start: slot.first_of(BEGIN_MS + number(ms) * kind.unit_ms()) + sequence, count }
}

fn runs(words: &[&str]) -> Vec<Run> {
    words.iter().map(|word| run(word)).collect()
}

fn ids(words: &[&str]) -> Vec<i64> {
    let id = |word: &&str| if *word == "all" { i64::MIN } else { run(word).ids().next().unwrap_or_default() };
    words.iter().map(id).collect()
}

/// `FROM-TO SESSION@SERVER ANSWER`. The answer is a list of ids, or begins with a word for its kind. Options come
/// before it: `heard:MS`, and `shards:FIRST+COUNT` for shards other than 7.
fn record(words: &[&str]) -> Record {
    let ((from, to), (session, server)) = (pair(words[0], '-'), pair(words[1], '@'));
    let (mut heard, mut shards, mut answer) = (from, (7, 1), &words[2..]);
    while let Some((option, value)) = answer[0].split_once(':') {
        match option {
            "heard" => heard = number(value),
            _ => shards = pair(value, '+'),
        }
        answer = &answer[1..];
    }
    Record {
        session,
        server: server as usize,
        statement: "SELECT".into(),
        shards: (shards.0 as u16, shards.1 as u16),
        heard: at(heard),
        called: at(from),
        answered: at(to),
        answer: match answer {
            ["inserts", rows @ ..] => Answer::Inserted(runs(rows)),
            ["commits", rows @ ..] => Answer::Committed(runs(rows)),
            ["saves", rows @ ..] => Answer::InsertedAndCommitted(runs(rows)),
            ["reads", from, to, rows @ ..] => {
                Answer::Horizon { from: ids(&[from])[0], to: ids(&[to])[0], rows: ids(rows) }
            }
            ["refused", why @ ..] => Answer::Refused(why.join(" ")),
            given => Answer::Ids(runs(given)),
        },
    }
}

/// Judges a history, whose steps are separated by bars: either events and records of a journal, or calls reported as
/// they happen, as by the simulator. `begin SERVER MS SEQUENCE EARLIEST` begins a call, and `given ID WAITED` ends it
/// in the same millisecond. `round` ends a round.
fn judged(history: &str) -> (History, Vec<String>) {
    let (mut judged, mut calls, mut found) = (History::default(), Vec::new(), Vec::new());
    let (mut records, mut events) = (Vec::new(), Vec::new());
    for step in history.split('|').chain(["round"]) {
        let words: Vec<&str> = step.split_whitespace().collect();
        let n = |at: usize| number(words[at]);
        let server = |at| Caller { server: n(at) as usize, ..Caller::default() };
        let (by, judge) = (Caller { server: 1, ..Caller::default() }, &mut judged.judge);
        match words[0] {
            "round" => found.extend(judged.round(std::mem::take(&mut records), &std::mem::take(&mut events))),
            "clock" => {
                let (from, to, ahead_ms) = (at(n(1)), at(n(2)), words[3].parse().expect("a number"));
                events.push(Event::Clock { server: 1, set: ClockSet { from, to, ahead_ms } });
            }
            "faults" => {
                let (struck, allows) = (Vec::new(), vec![words[3].into()]);
                events.push(Event::Faults { from: at(n(1)), to: at(n(2)), struck, allows });
            }
            "succession" => {
                let (server, from, keeps_all) = (n(2) as usize, n(3) as usize, words[4] == "kept");
                events.push(Event::Succession { at: at(n(1)), server, from, keeps_all });
            }
            "moved" => {
                let (shard, bound, has) = (7, ids(&words[1..2])[0], words[3] == "there");
                events.push(Event::Moved { shard, bound, server: n(2) as usize, has });
            }
            "raised" => judge.raised(n(1) as usize, BEGIN_MS + n(2)),
            "max_ahead" => events.push(Event::MaxAhead { ms: n(1) as i64 }),
            "epoch" => events.push(Event::Epoch { unix_ms: n(1) as i64 }),
            "rows" => events.push(Event::Rows { ids: ids(&words[1..]) }),
            "session" => judge.session(Caller { session: n(1), ..by }, &ids(&words[2..]), Kind::Plain),
            "forget" => judge.forget(BEGIN_MS + n(1)),
            "begin" => {
                let sequences = [Sequence::Strict, Sequence::Sorted, Sequence::Mixed, Sequence::Relived];
                let sequence = sequences.into_iter().find(|known| format!("{known:?}") == words[3]);
                let earliest = words.get(4).map_or(0, |ms| BEGIN_MS + number(ms));
                let slot = run("0.0").slot;
                let call = judge.begin(server(1), slot, n(2), earliest, sequence.expect("a sequence"));
                calls.push((call, n(2)));
            }
            "given" => {
                let (call, ms) = calls.pop().expect("a call");
                let call = Call { waited: words.get(2).map(|ms| number(ms)), ..call };
                let mut session = Session::default();
                judge.given(&mut session, &call, run(words[1]));
                judge.ended(&call, &session, ms);
            }
            "set_back" => judge.set_back(1, n(1)),
            "relive" => judge.relive(&mut calls[0].0, BEGIN_MS + n(1)),
            "restarted" => judge.restarted(1),
            "copied" => judge.copied(n(1) as usize),
            "takes_over" => {
                let ms = |at: usize| words.get(at).map(|ms| BEGIN_MS + number(ms));
                let lost = ms(3).map(|to_ms| Lost { from_ms: ms(4).unwrap_or_default(), to_ms });
                judge.takes_over(n(1) as usize, n(2) as usize, lost);
            }
            "passed" => judge.passed(by, ids(&words[1..2])[0], ids(&words[2..3])[0], n(3)),
            "limited" => judge.limited("ids", n(1), n(2), by),
            "waited" => judge.waited(Caller { ended_us: n(1) * 1000, ..by }, n(2) * 1000, n(3) * 1000),
            "horizon" => judge.horizon(by, ids(&words[1..2])[0], ids(&words[2..])),
            _ => records.push(record(&words)),
        }
    }
    (judged, found.iter().map(|Broken { promise, text }| format!("{promise:?}: {text}")).collect())
}

/// Each line is a history, an arrow and the findings: the broken promise, and the beginning of the message.
#[track_caller]
fn assert_found(table: &str) {
    for line in table.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (history, expected) = line.split_once("=>").unwrap_or((line, ""));
        let (_, found) = judged(history);
        let expected: Vec<&str> =
            expected.split('&').map(str::trim).filter(|text| !text.is_empty()).collect();
        let right = found.iter().zip(&expected).all(|(found, expected)| found.starts_with(expected));
        assert!(right && found.len() == expected.len(), "{line}\nfinds {found:#?}");
    }
}

#[test]
fn a_history_that_keeps_all_promises_is_found_right() {
    // Leases need not be in order within a millisecond.
    let (history, found) = judged(
        "10-11 1@1 10.0+500 11.0+5 | 11-12 2@1 11.300+4 | 11-12 1@1 11.100+4 | 30-31 2@1 saves 30.0
         | 30-31 3@1 inserts 31.0 | 31-32 3@1 commits 31.0 | 35-35 9@1 reads all 32.0 30.0 31.0
         | faults 10 20 57P03 | 20-50 1@1 refused 57P03 the database system is starting up | rows 30.0 31.0 | round
         | 80-80 9@1 reads 32.0 80.0 | 90-91 1@1 90.0 | rows 30.0 31.0",
    );
    let Counts { ids, calls, horizons, refusals } = history.judge.counts;
    assert_eq!((found.len(), ids, calls, horizons, refusals.len()), (0, 516, 10, 2, 1));
}

#[test]
fn ids_are_read_as_runs() {
    let plain = runs(&["3.1022+3", "5.2", "5.1"]);
    let mut ids: Vec<i64> = plain.iter().flat_map(|run| run.ids()).collect();
    let other = Slot { shard: 8, ..plain[0].slot };
    ids.insert(1, other.id(plain[0].start));
    assert_eq!(ids[0], (BEGIN_MS as i64 + 3) << 23 | 7 << 10 | 1022);
    let others = [plain[0], Run { slot: other, count: 1, ..plain[0] }, plain[1], plain[2]];
    assert_eq!(Run::of(&ids, Kind::Plain), others);
    let js = run("js9.4095+2");
    let ids: Vec<i64> = js.ids().collect();
    assert_eq!(ids[1], (BEGIN_MS as i64 / 1000 + 10) << 20 | 7 << 12);
    assert_eq!((Run::of(&ids, Kind::Js), js.slot.ms(js.start)), (vec![js], BEGIN_MS + 9000));
}

#[test]
fn a_repeated_id_is_found() {
    assert_found(
        "# In any session, on any server, in any round.
         10-20 1@1 12.0+8 14.0+8 | round | 10-20 2@2 12.7 => NoIdTwice: repeated
         10-20 1@1 12.0+8 14.0+8 | round | 10-20 2@2 12.0 => NoIdTwice: repeated
         10-20 1@1 12.0+8 14.0+8 | round | 10-20 2@2 11.1020+6 => NoIdTwice: repeated
         10-20 1@1 12.0+8 14.0+8 | round | 10-20 2@2 12.3+2 => NoIdTwice: repeated
         10-20 1@1 12.0+8 14.0+8 | round | 10-20 2@2 11.1020+4000 => NoIdTwice: repeated
         10-20 1@1 12.0+8 14.0+8 | 10-20 2@2 11.1023 12.8
         # A row whose client never had an answer may not have the id of another call.
         10-20 1@1 12.0+8 | rows 12.3 => NoIdTwice: repeated
         10-20 1@1 saves 12.3 | rows 12.3
         # Callers that know no times: each id once, and in order in a session. What is forgotten is given no more.
         session 1 12.0 12.1 14.0 | session 2 13.0
         session 1 15.1 15.0 => SessionOrder: out of order in a session
         session 1 12.0 12.1 14.0 | session 2 12.1 => NoIdTwice: repeated
         session 1 12.0 | forget 14 | session 2 13.1 => Time: before its call
         # A server that knows less than was given repeats no id in a call that begins when its clock has passed that id.
         # So the only call that may repeat one has read the clock before, on the standby.
         session 1 57.0 57.1 59.0 | begin 2 54 Sorted 54 | takes_over 2 1 57 | given 57.0
         session 1 57.0 57.1 59.0 | begin 2 57 Sorted 57 | takes_over 2 1 57 | given 57.0
         session 1 57.0 57.1 59.0 | takes_over 2 1 57 | begin 2 54 Sorted 54 | given 57.0 => NoIdTwice
         session 1 57.0 57.1 59.0 | begin 2 58 Sorted 58 | takes_over 2 1 57 | given 57.0 => NoIdTwice & Time
         # It has the mark of that id.
         session 1 57.0 57.1 59.0 | begin 2 54 Sorted 54 | takes_over 2 1 57 58 | given 57.0 => NoIdTwice
         # This id is later than what the server has lost.
         session 1 57.0 57.1 59.0 | begin 2 54 Sorted 54 | takes_over 2 1 57 | given 59.0 => NoIdTwice
         # The server itself gives no id twice.
         session 1 57.0 | begin 2 54 Sorted | begin 2 54 Sorted | takes_over 2 1 57 | given 57.0 | given 57.0 => NoIdTwice",
    );
    let (_, found) = judged("10-20 1@1 12.0+8 | round | 10-20 2@2 12.7");
    let text = "of session 2 on server 2, 10000 to 20000 us, and before of session 1 on server 1, 10000";
    assert!(found[0].contains(text), "{found:?}");
    let (history, _) = judged("session 1 12.0 14.0 | session 2 15.0 15.1 | forget 14");
    assert_eq!(history.judge.ids(Kind::Plain).collect::<Vec<_>>(), ids(&["14.0", "15.0", "15.1"]));
}

/// A promoted server begins above all ids that the old one gave, and above those that it gives while it lives on. An
/// id, or a limit, is below what is durable.
#[test]
fn a_server_that_begins_below_another_and_an_id_above_the_limit_are_found() {
    assert_found(
        "10-20 2@2 12.0 | 10-20 1@1 13.0 | succession 9 2 1 kept => Takeover: server 2 gave
         10-20 2@2 12.0 | 10-20 1@1 13.0 | succession 9 2 1 lost
         10-20 2@2 12.0 | 10-20 1@1 13.0 | succession 9 2 1 kept | succession 30 1 2 kept
         limited 20 20
         limited 21 20 => Limit: ids up to 21, and 20 is durable",
    );
}

/// A shard that is moved to another server and back is minted there from the bound of the first move up to that of the
/// second, and nowhere else; ids for JavaScript from the second after that of the id before the bound.
#[test]
fn ids_of_a_shard_that_is_elsewhere_are_found() {
    assert_found(
        "10-50 1@1 12.0+8 | 10-50 2@2 20.5 31.0 | 10-50 3@1 41.0 | moved 20.5 2 there | moved 40.0 2 back
         10-50 1@1 20.4+2 | moved 20.5 2 there => Moved: of a shard that is elsewhere
         10-50 1@1 20.4+2 | round | moved 20.5 2 there => Moved: server 1 gave
         10-50 1@1 20.3+2 | round | moved 20.5 2 there | 10-50 3@1 30.0 => Moved: of a shard that is elsewhere
         10-50 2@2 40.0 | moved 20.5 2 there | moved 40.0 2 back => Moved: of a shard that is elsewhere
         10-50 1@1 39.1023 | moved 20.5 2 there | moved 40.0 2 back => Moved: of a shard that is elsewhere
         # A server that has lost ids is not held to a bound that it does not know of.
         50-60 1@1 50.0 | takes_over 1 1 49 | moved 20.5 2 there
         5000-5010 2@2 js5.0 | 4000-4100 1@1 js4.9 | moved 4999.0 2 there
         4999-5010 1@1 js4.10 | moved 4999.0 2 there
         4999-5010 1@1 js5.10 | moved 4999.0 2 there => Moved: of a shard that is elsewhere
         4999-6010 2@2 js5.10 | moved 4999.0 2 there | moved 6000.0 2 back
         4999-6010 2@2 js6.10 | moved 4999.0 2 there | moved 5999.0 2 back => Moved: of a shard that is elsewhere",
    );
}

/// Ids of calls that begin after the mark was raised are later, even if the clock is set back, and after a restart. A
/// server that takes over without loss has that mark.
#[test]
fn ids_below_a_raised_mark_are_found() {
    assert_found(
        "begin 1 10 Relived | raised 1 20 | given 19.1023 | begin 1 10 Relived | given 20.0
         raised 1 20 | begin 1 10 Relived | given 19.1023 => Order: out of order
         raised 1 20 | raised 1 15 | restarted | begin 1 10 Relived | given 19.1023 => Order: out of order
         raised 1 20 | begin 1 25 Sorted | set_back 10 | relive 10 | given 19.1023 => Order: out of order
         raised 1 20 | takes_over 2 1 | begin 2 10 Relived | given 19.1023 => Order: out of order
         raised 1 20 | takes_over 2 1 15 12 | begin 2 16 Relived | given 19.1023
         raised 2 20 | copied 2 | begin 2 16 Relived | given 19.1023",
    );
}

/// An id is of the requested shard and kind.
#[test]
fn ids_of_another_shard_are_found() {
    assert_found(
        "10-20 1@1 shards:8+4 12.0 => Shard: of another shard
         10-20 1@1 shards:4+4 12.0
         10-20 1@1 shards:3+4 12.0 => Shard: of another shard
         begin 1 10 Sorted | given js12.0 => Shard: of another shard",
    );
}

#[test]
fn disorder_is_found() {
    assert_found(
        "# In a session.
         10-20 1@1 12.5 12.4 => SessionOrder: out of order in a session
         10-20 1@1 12.5 | 20-21 1@1 20.5
         12-12 1@1 12.5 | 12-12 1@1 12.4 => SessionOrder: out of order in a session
         # Over sessions: to the millisecond, and not while the clock shows one a second time.
         10-11 1@1 14.0+9 | 12-12 2@1 13.0 => Order: out of order
         10-11 1@1 14.0+9 | 12-12 2@2 13.0
         10-11 1@1 14.0+9 | 11-12 2@1 13.0
         10-11 1@1 14.0+9 | 12-12 2@1 13.0 | clock 0 1 0 | clock 12 12 -5
         10-10 1@1 10.0+2 | 11-11 2@1 11.0 | 15-15 1@1 10.2 | clock 0 1 0 | clock 12 12 -5
         10-10 1@1 10.0+2 | 11-11 2@1 11.0 | 13-13 1@1 js0.9 | 15-15 1@1 10.2 | clock 0 1 0 | clock 12 12 -5
         10-10 1@1 10.0+2 | 11-11 2@1 11.0 | 13-13 3@1 js0.9 | 15-15 3@1 10.2 | clock 0 1 0 | clock 12 12 -5 => Order
         # Ids for JavaScript are in strict order, also when the clock is set.
         10-11 1@1 js0.4 | 11-12 2@1 js0.3
         10-11 1@1 js0.4 | 12-12 2@1 js0.3 => Order: out of order
         10-11 1@1 js0.4 | 12-12 2@1 js0.3 | clock 0 1 0 | clock 12 12 -5 => Order: out of order
         # All are with `idgen.max_lease = 1`, and none with different values of `idgen.max_ahead`.
         begin 1 10 Sorted | given 10.5 | begin 1 10 Strict | given 10.4 => Order: out of order
         begin 1 10 Sorted | given 10.5 | begin 1 10 Sorted | given 10.4
         begin 1 10 Sorted | given 10.5 | begin 1 11 Sorted | given 10.4 => Order: out of order
         begin 1 10 Sorted | given 10.5 | begin 1 11 Mixed | given 10.4
         # A clock that was set back excuses calls in the milliseconds that come again.
         begin 1 10 Sorted | given 10.5 | set_back 0 | begin 1 11 Sorted | given 10.4
         begin 1 10 Sorted | given 10.5 | set_back 8 | begin 1 9 Sorted | given 10.4
         begin 1 10 Sorted | given 10.5 | begin 1 11 Sorted 11 | relive 8 | given 9.4
         # It does not after a restart or a takeover.
         begin 1 10 Sorted | given 10.5 | restarted | begin 1 10 Relived | given 10.4 => Order
         begin 1 10 Sorted | given 10.5 | takes_over 2 1 | begin 2 10 Relived | given 10.4 => Order & Takeover
         begin 1 10 Sorted | given 10.5 | takes_over 2 1 0 | begin 2 10 Relived | given 10.4 => Order
         # An id is greater than those passed over, unless its session has waited for it and another one was allowed to
         # pass over more at once.
         passed 12.5 12.6 100 | begin 1 10 Sorted | given 12.6
         passed 12.5 12.6 100 | begin 1 10 Sorted | given 12.5 => Order: out of order
         passed 12.5 12.6 100 | begin 1 10 Sorted | given 12.5 20
         passed 12.5 12.6 100 | begin 1 10 Sorted | given 12.5 100 => Order: out of order
         passed 12.5 12.5 100 => Order: out of order
         # A server that takes over goes by what the other one knows. That forgets what was passed over if it goes on from a
         # backup, but not what its mark covers; ids that were given count in any case.
         passed 12.5 12.6 100 | takes_over 2 1 | takes_over 1 2 | begin 1 10 Sorted | given 12.5 => Order
         passed 12.5 12.6 100 | takes_over 2 1 | takes_over 2 2 10 | takes_over 1 2 | begin 1 10 Sorted | given 12.5
         passed 12.5 12.6 100 | takes_over 2 1 10 12 | begin 2 10 Sorted | given 12.5
         passed 12.5 12.6 100 | takes_over 2 1 10 13 | begin 2 10 Sorted | given 12.5 => Order: out of order
         begin 1 10 Sorted | given 12.5 | takes_over 2 1 12 | takes_over 1 2 | begin 1 10 Relived | given 12.4 => Order
         passed 12.5 12.6 100 | takes_over 2 1 10 | copied 1 | begin 1 10 Sorted | takes_over 1 2 10 | given 12.5
         # A call that began on a standby goes by what that one knew, also if its clock is set back.
         begin 1 10 Sorted 10 | given 11.5 | begin 2 10 Sorted 10 | takes_over 2 1 11 | relive 9 | given 11.4",
    );
}

#[test]
fn ids_of_another_time_are_found() {
    assert_found(
        "100-110 1@1 98.0 => Time: before its call
         100-110 1@1 99.0
         100-110 1@1 1112.0 => Time: too far ahead
         100-110 1@1 1111.0
         100-110 1@1 2111.0 | max_ahead 2000
         100-110 1@1 1000.0 | epoch 1704067201000 => Time: too far ahead
         # Back from a moment in the call on.
         100-110 1@1 50.0 | clock 0 1 0 | clock 105 106 -50
         107-110 1@1 1062.0 | clock 0 1 0 | clock 105 106 -50 => Time: too far ahead
         100-104 1@1 50.0 | clock 0 1 0 | clock 105 106 -50 => Time: before its call
         2500-2500 1@1 js2.0
         2500-2500 1@1 js1.0 => Time: before its call",
    );
}

#[test]
fn a_refusal_and_a_wait_without_need_are_found() {
    assert_found(
        "# A refusal is explained by a fault of its time, and by nothing else.
         15-25 1@1 refused 57P03 no | faults 10 20 57P03
         15-25 1@1 refused 57P03 no | faults 10 20 lost => Availability: a refusal that no promise allows
         21-25 1@1 refused 57P03 no | faults 10 20 55000 => Availability: a refusal that no promise allows
         21-25 1@1 refused 55000 no | faults 10 20 55000 => Availability: a refusal that no promise allows
         # The connection broke before, and the client was asleep.
         21-25 1@1 heard:19 refused lost | faults 10 20 lost
         21-25 1@1 heard:19 refused 55000 no | faults 10 20 55000 => Availability: a refusal that no promise allows
         # A clock that is behind explains the refusals that it brings about, as long as it is.
         5000-6000 1@1 refused 40001 clock_behind | clock 0 1 0 => Availability: a refusal
         150-160 1@1 refused 40001 clock_behind | clock 0 1 0 | clock 100 101 -3000 | clock 200 201 0
         150-160 1@1 refused 40001 mark_not_durable | clock 0 1 0 | clock 100 101 -3000 => Availability: a refusal
         5000-6000 1@1 refused 40001 shard_full | clock 0 1 0 | clock 100 101 -3000 | clock 200 201 0 => Availability
         300-400 1@1 refused 40001 clock_behind | clock 0 1 0 | clock 100 101 3000 | clock 200 201 0
         6000-6100 1@1 refused 40001 shard_full | clock 0 1 0 | clock 100 101 3000 | clock 200 201 0 => Availability
         # A call waits no longer than it may unless something was wrong.
         waited 350 50 10000
         waited 351 50 10000 => Availability: a call that waits for too long
         waited 351 50 600",
    );
}

#[test]
fn a_horizon_that_does_not_hold_is_found() {
    assert_found(
        "# No call mints below a horizon that was answered before it began, here or on a server that took over.
         10-10 9@1 reads all 12.0 | 11-20 1@1 11.0 => Settled: below a horizon
         11-11 9@1 reads all 12.0 | 11-20 1@1 11.0
         10-10 9@1 reads all 12.0 | round | 11-20 1@2 11.0 | succession 10 2 1 kept => Settled: below a horizon
         10-10 9@1 reads all 12.0 | round | 11-20 1@2 11.0 | succession 10 2 1 lost
         # Every id below a horizon is of a transaction that has ended.
         horizon 12.0 12.0 13.0
         horizon 12.1 12.0 13.0 => Settled: below a horizon
         # The horizon never goes back, unless it was lost with what was acknowledged.
         horizon 12.1 | horizon 12.0 => NeverBack: the horizon went back
         15-15 9@1 reads all 13.0 | 16-16 9@2 reads 13.0 12.0 | succession 15 2 1 kept => NeverBack: the horizon went back
         15-15 9@1 reads all 13.0 | 16-16 9@2 reads 13.0 12.0 | succession 16 2 1 lost
         horizon 13.0 | takes_over 1 1 0 13 | horizon 12.0
         horizon 13.0 | takes_over 1 1 0 14 | horizon 12.0 => NeverBack: the horizon went back
         # A copy of a restored backup knows of no later horizon, even if it has given one before.
         horizon 13.0 | takes_over 2 1 | takes_over 2 2 0 | takes_over 1 2 | horizon 12.0
         # No row comes later below a horizon that a reader had.
         10-20 1@1 saves 12.0 | 15-15 9@1 reads all 13.0 | rows 12.0 => Settled: the row of
         10-20 1@1 saves 12.0 | 15-15 9@1 reads all 13.0 12.0 | rows 12.0
         10-20 1@1 saves 12.0 | 15-15 9@1 reads 13.0 14.0 | rows 12.0",
    );
}

/// A row that was reported as committed exists, unless it was lost with an asynchronous standby.
#[test]
fn a_row_that_is_lost_is_found() {
    assert_found(
        "10-20 1@1 commits 12.0 | rows => Kept: the row of
         10-20 1@1 commits 12.0 | succession 21 2 1 kept | rows => Kept: the row of
         10-20 1@1 commits 12.0 | succession 19 2 1 lost | rows => Kept: the row of
         10-20 1@1 commits 12.0 | succession 21 2 1 lost | rows",
    );
}
