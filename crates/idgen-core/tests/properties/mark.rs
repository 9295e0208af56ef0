use idgen_core::mark::{Clocks, MarkState, Plan, Unplanned, Written, runs_low};
use idgen_core::settings::{QUEUE_MS, Settings};
use idgen_ids::Tick;
use idgen_ids::id::MAX_TICK;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::host::SETTINGS;

/// Settings that allow any tick of these tests.
const ANY: Settings = Settings { max_ahead_ms: u64::MAX >> 1, reserve_ahead_ms: 10, ..SETTINGS };

fn loaded(stored: Tick) -> MarkState {
    let mut mark = MarkState::default();
    mark.load(stored);
    mark
}

fn at(now: Tick, boot_ms: u64) -> Clocks {
    Clocks { now, boot_ms }
}

/// A mark that was renewed at these readings of the clocks, none of which counts as a jump.
fn renewed(max_jump: u64, readings: &[(Tick, u64)]) -> MarkState {
    let mut mark = loaded(0);
    for (now, boot_ms) in readings {
        let clocks = at(*now, *boot_ms);
        assert_eq!(mark.jump(clocks, Some(max_jump)), None, "{clocks:?}");
        mark.publish(1, false, clocks, 0);
    }
    mark
}

#[derive(Clone, Debug)]
enum Step {
    Load(u64),
    Plan(u64, u64, bool),
    Publish(bool),
}

proptest! {
    /// Promise 1: the limit only grows and is a planned mark, and every planned mark lets the tick that requested it be
    /// issued. The limit for standbys is no further than what they have. A written mark that is enough is not written
    /// again. The floor is the first mark loaded, whatever comes later.
    #[test]
    fn the_limit_only_grows_to_what_was_planned(
        first in 0..500u64,
        steps in vec(prop_oneof![
            (0..500u64).prop_map(Step::Load),
            (0..500u64, 0..500u64, any::<bool>()).prop_map(|(now, tick, lost)| Step::Plan(now, tick, lost)),
            any::<bool>().prop_map(Step::Publish),
        ], 1..60),
        reserve_ahead_ms in 1..50u64,
        max_ahead_ms in 0..300u64,
    ) {
        let settings = Settings { max_ahead_ms, reserve_ahead_ms, ..SETTINGS };
        let mut mark = MarkState::default();
        prop_assert!(!mark.loaded());
        mark.load(first);
        let (mut planned, mut all_written) = (Vec::new(), Vec::new());
        for step in steps {
            let before = mark;
            match step {
                Step::Load(stored) => mark.load(stored),
                Step::Plan(now, tick, standbys) => {
                    let furthest = now + max_ahead_ms + QUEUE_MS;
                    match mark.plan(at(now, 0), tick, tick, standbys, &settings) {
                        Ok(Plan::Write(new)) => {
                            prop_assert!(new > tick && new > now && new > first);
                            prop_assert!(new <= furthest + reserve_ahead_ms, "never further than ids may be");
                            let enough = tick.max(mark.limit(standbys));
                            prop_assert!(mark.written(standbys).tick <= enough, "needed");
                            let written = Written { tick: new, lsn: all_written.len() as u64, at_us: 0 };
                            mark.wrote(written, standbys, 0, false);
                            prop_assert!(mark.written(standbys).tick >= new);
                            all_written.push((written, standbys));
                            planned.push((new, now));
                        }
                        Ok(Plan::Await(written)) => {
                            let for_standbys = all_written.contains(&(written, true));
                            prop_assert!(for_standbys || !standbys && all_written.contains(&(written, false)));
                            prop_assert!(written.tick > tick && written.tick > mark.limit(standbys));
                            planned.push((written.tick, now));
                        }
                        Err(refusal) => {
                            prop_assert_eq!(refusal, Unplanned::Stale);
                            prop_assert!(tick < first || tick > furthest);
                        }
                    }
                }
                Step::Publish(acknowledged) => if let Some((new, now)) = planned.pop() {
                    mark.publish(new, acknowledged, at(now, 0), 7);
                    prop_assert_eq!(mark.limit(false), before.limit(false).max(new));
                    let raised = if acknowledged { new } else { 0 };
                    prop_assert_eq!(mark.limit(true), before.limit(true).max(raised));
                    prop_assert_eq!(mark.flush_us, before.flush_us + 7);
                },
            }
            prop_assert!(mark.limit(false) >= before.limit(false));
            prop_assert!(mark.limit(true) <= mark.limit(false));
            prop_assert!(mark.loaded() && mark.floor() == first);
        }
    }

    /// Guard: a jump beyond what is allowed is refused with its size, however the clock moved before. A backward step
    /// and time that really passed are not jumps.
    #[test]
    fn a_jump_is_measured_against_the_time_since_boot(
        step in prop_oneof![-100_000..100_000i64, -20..20i64], passed in 0..100_000u64,
        max_jump in prop_oneof![0..50_000u64, 0..20u64],
    ) {
        let plan = |mark: &MarkState, clocks, max_clock_jump_ms| {
            mark.plan(clocks, 0, 0, false, &Settings { max_clock_jump_ms, ..ANY })
        };
        let start = at(1_000_000, 5000);
        let mut mark = loaded(0);
        prop_assert!(plan(&mark, start, Some(0)).is_ok(), "the first renewal has no reference");
        mark.publish(1, false, start, 0);
        let later = at((start.now + passed).saturating_add_signed(step), start.boot_ms + passed);
        // Less than 10 ms may be the time between two readings.
        let jumped = step > max_jump as i64 && step >= 10;
        let refusal = plan(&mark, later, Some(max_jump)).err();
        prop_assert_eq!(refusal, jumped.then_some(Unplanned::Jump { by_ms: step.unsigned_abs() }));
        prop_assert!(plan(&mark, later, None).is_ok(), "any jump is allowed");
        mark.publish(2, false, later, 0);
        let expected = (u64::from(step <= -10), u64::from(step >= 10));
        prop_assert_eq!((mark.steps_back, mark.steps_forward), expected);
    }
}

/// A step is counted once, by the first backend that reads the clocks, and not by a reading older than the last one: a
/// renewal reads the clocks before it waits for the disk.
#[test]
fn steps_are_counted_by_whoever_looks() {
    let mut mark = loaded(0);
    let mut steps = |reading: Clocks, renews| {
        if renews {
            mark.publish(1, false, reading, 0)
        } else {
            mark.observe(reading)
        }
        (mark.steps_back, mark.steps_forward)
    };
    for (now, boot_ms, renews, expected, why) in [
        (5000, 5000, false, (0, 0), "no renewal to measure from"),
        (90_000, 5000, false, (0, 0), "nor yet"),
        (100_000, 5000, true, (0, 0), "this is the first"),
        (100_300, 5300, false, (0, 0), "the clock has gone on"),
        (100_010, 5010, true, (0, 0), "an old reading"),
        (99_500, 5400, false, (1, 0), "set back"),
        (99_600, 5500, false, (1, 0), "counted"),
        (101_600, 5500, true, (1, 1), "set forward"),
    ] {
        assert_eq!(steps(at(now, boot_ms), renews), expected, "{why}");
    }
}

/// A tick that was read from a wrong clock must not become the mark, which could not be lowered.
///
/// A server starts with a clock behind the mark, and two calls race for the first renewal. The call that has not seen
/// the floor must not renew, or this clock would be the reference for jumps. Found by `make faults SEED=20261121`: with
/// the clock right again, every call failed. In another case, a clock jumps, and is corrected before the renewal reads
/// it again.
#[test]
fn no_mark_for_a_tick_of_a_clock_that_was_wrong() {
    const DAY_MS: u64 = 86_400_000;
    let plan = |mark: &MarkState, clocks, tick, max_ahead_ms| {
        let settings = Settings { max_ahead_ms, max_clock_jump_ms: Some(50), ..SETTINGS };
        mark.plan(clocks, tick, tick, false, &settings)
    };
    let mark = loaded(10 * DAY_MS);
    assert_eq!(plan(&mark, at(9 * DAY_MS, 1000), 9 * DAY_MS, DAY_MS), Err(Unplanned::Stale));
    let right = 10 * DAY_MS + 5;
    assert_eq!(plan(&mark, at(right, 2000), right, DAY_MS), Ok(Plan::Write(right + 1000)));

    let mark = renewed(50, &[(1_000_000, 1000)]);
    let right = at(1_000_000, 1000);
    assert_eq!(plan(&mark, right, 900_000_000, 1000), Err(Unplanned::Stale));
    assert_eq!(plan(&mark, right, 1_001_000, 1000), Ok(Plan::Write(1_002_000)));
}

/// A clock that was set back may be set right again, whatever was renewed in between. The next jump is measured from
/// one that was accepted: small jumps do not add up to one that is refused, and neither do jumps that were undone in
/// between.
#[test]
fn a_jump_is_measured_from_where_the_clock_was_furthest() {
    let mark = renewed(50, &[(1_000_000, 0), (400_000, 100)]);
    assert_eq!(mark.jump(at(1_000_200, 200), Some(50)), None);
    assert_eq!(mark.jump(at(1_000_300, 200), Some(50)), Some(100));
    // Both clocks are truncated to milliseconds. A steady clock may therefore seem to gain one, which is not a jump.
    assert_eq!(mark.jump(at(1_000_201, 200), Some(0)), None);

    let by = [(0, 0), (40, 100), (80, 200), (75, 300), (120, 400)];
    let mark = renewed(40, &by.map(|(jumped, boot_ms)| (1_000_000 + boot_ms + jumped, boot_ms)));
    assert_eq!(mark.jump(at(1_000_661, 500), Some(40)), Some(41));
}

/// A jump is accepted once, from where the clock is: this accepts neither the next jump nor one of a clock that was set
/// back since, unless that clock only returns to where it was.
#[test]
fn a_jump_is_accepted_once() {
    assert_eq!(loaded(0).accept(at(9_000_000, 0)), 0, "no renewal to measure from");
    let mut mark = renewed(60, &[(1_000_000, 0)]);
    assert_eq!(mark.accept(at(1_000_109, 100)), 0, "the time between two readings");
    assert_eq!(mark.accept(at(400_000, 100)), 0, "set back");
    assert_eq!(mark.jump(at(1_000_161, 100), Some(60)), Some(61));
    let before = mark.limit(false);
    assert_eq!(mark.accept(at(3_000_200, 200)), 2_000_000);
    assert_eq!(mark.accept(at(3_000_200, 200)), 0, "it has been");
    assert_eq!((mark.limit(false), mark.renewals, mark.steps_forward), (before, 1, 1));
    assert_eq!(mark.jump(at(3_000_300, 300), Some(60)), None);
    assert_eq!(mark.jump(at(3_000_361, 300), Some(60)), Some(61));
    mark.publish(2, false, at(400_000, 400), 0);
    assert_eq!(mark.jump(at(3_000_500, 500), Some(60)), None);
}

/// Of several written marks, the furthest is the one to wait for. If two backends have written the same mark, it is the
/// first record in the WAL.
#[test]
fn the_furthest_mark_is_awaited_from_where_it_is_written_first() {
    let mut mark = MarkState::default();
    for (tick, lsn, awaited) in [(110, 7, 7), (110, 9, 7), (105, 10, 7), (111, 12, 12)] {
        mark.wrote(Written { tick, lsn, at_us: 0 }, false, 0, false);
        assert_eq!(mark.written(false).lsn, awaited);
    }
}

/// The mark is renewed at half of the window, and not beyond the end of the range.
#[test]
fn the_window_runs_low_at_its_margin() {
    assert!(!runs_low(100, 601, 500) && runs_low(100, 600, 500) && runs_low(900, 600, 500));
    assert!(!runs_low(MAX_TICK, MAX_TICK + 1, 1000));
    let plan = loaded(0).plan(at(MAX_TICK, 0), MAX_TICK, MAX_TICK, false, &ANY);
    assert_eq!(plan, Ok(Plan::Write(MAX_TICK + 1)));
}

/// The tests run with the assertions of the crate.
#[test]
#[should_panic(expected = "a limit below the mark of earlier incarnations")]
fn a_limit_below_the_recovered_mark_is_a_defect() {
    loaded(7).publish(6, false, at(0, 0), 0);
}
