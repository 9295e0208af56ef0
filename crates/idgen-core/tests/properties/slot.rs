use idgen_core::position::{LayoutShard, Position};
use idgen_core::slot::{Barred, Bounds, Counters, Refusal, Slot};
use idgen_ids::Shard;
use idgen_ids::id::MAX_TICK;
use idgen_ids::js::JsShard;
use proptest::collection::vec;
use proptest::prelude::*;

/// The number of positions to take, and bounds, on a scale that suits the layout. The clocks are close together, so
/// that they step in both directions across the slot's position, and now and then at the end of the range.
fn any_bounds(scale: u64) -> impl Strategy<Value = (u64, Bounds)> {
    let tick = prop_oneof![9 => 0..60 * scale, 1 => MAX_TICK - 20 * scale..MAX_TICK + 20 * scale];
    let limit = prop_oneof![0..80 * scale, MAX_TICK + 1..MAX_TICK + 40 * scale];
    (1..6000u64, tick, 0..60 * scale, 0..20 * scale, 0..64u64, limit).prop_map(
        |(want, now, floor, max_ahead, queue, limit)| (want, Bounds { now, floor, max_ahead, queue, limit }),
    )
}

/// Promises 1 and 3: positions strictly increase for any sequence of clocks, forward and back, and a run never crosses
/// its bounds. Its first unit of time is not before the clock's, and begins neither before the floor nor at the limit.
fn runs_increase_and_stay_in_bounds<S: LayoutShard>(calls: Vec<(u64, Bounds)>) -> Result<(), TestCaseError> {
    let mut slot = Slot::<S>::default();
    let mut end = Position::FIRST;
    for (want, bounds) in calls {
        let before = slot;
        let ahead = bounds.now + bounds.max_ahead;
        match slot.take(want, true, &bounds) {
            Ok(run) => {
                prop_assert!(run.start >= end, "a position twice");
                prop_assert!(run.start < run.end && run.count() <= want);
                end = run.end;
                let (first, last) = (run.start.tick(), run.end.previous().unwrap().tick());
                prop_assert!(first + S::UNIT_MS > bounds.now && first >= bounds.floor);
                prop_assert!(last < bounds.limit && last <= MAX_TICK);
                if run.due(bounds.max_ahead) <= bounds.now {
                    prop_assert!(last <= ahead);
                } else {
                    prop_assert!(first == last, "a run to wait for stays within one unit of time");
                    prop_assert!(last <= ahead + bounds.queue);
                }
                prop_assert_eq!(slot.counters.ids, before.counters.ids + run.count());
            }
            Err(refusal) => {
                prop_assert_eq!(slot, before, "a refusal must leave the slot alone");
                match refusal {
                    Refusal::Ahead { tick } => prop_assert!(tick > ahead + bounds.queue),
                    Refusal::Limit { tick } => prop_assert!(tick >= bounds.limit),
                    Refusal::Exhausted => {
                        let least = bounds.now.max(bounds.floor).max(before.next.tick());
                        prop_assert!(least + S::UNIT_MS > MAX_TICK + 1);
                    }
                    Refusal::Barred(why) => prop_assert!(false, "{why:?}"),
                }
            }
        }
    }
    Ok(())
}

/// Promise 5: a batch is refused only if the shard cannot provide it. The room of a shard equals the number of ids of a
/// caller that takes everything until its wait is over.
fn a_shard_gives_what_it_has_room_for<S: LayoutShard>(
    before: &[(u64, Bounds)],
    bounds: Bounds,
    wait: u64,
) -> Result<(), TestCaseError> {
    let mut slot = Slot::<S>::default();
    for (want, bounds) in before {
        let _ = slot.take(*want, true, bounds);
    }
    let room = slot.room(&bounds, wait);
    let ticks = bounds.now..=bounds.now + wait;
    let taken =
        ticks.filter_map(|now| Some(slot.take(u64::MAX, true, &Bounds { now, ..bounds }).ok()?.count()));
    prop_assert_eq!(room, taken.sum::<u64>());
    Ok(())
}

proptest! {
    #[test]
    fn runs_of_each_layout_increase_and_stay_in_bounds(
        calls in vec(any_bounds(1), 1..200), js_calls in vec(any_bounds(150), 1..200),
    ) {
        runs_increase_and_stay_in_bounds::<Shard>(calls)?;
        runs_increase_and_stay_in_bounds::<JsShard>(js_calls)?;
    }

    #[test]
    fn a_shard_of_each_layout_gives_what_it_has_room_for(
        before in vec(any_bounds(1), 0..3), now in 0..5000u64, floor in 0..5000u64, max_ahead in 0..50u64,
        wait in 0..50u64,
    ) {
        let bounds = Bounds { now, floor, max_ahead, queue: 0, limit: u64::MAX };
        a_shard_gives_what_it_has_room_for::<Shard>(&before, bounds, wait)?;
        a_shard_gives_what_it_has_room_for::<JsShard>(&before, bounds, wait)?;
    }

    /// Promise 1: nothing is taken from a slot that is closed, or whose shard is not allowed, whatever the bounds, so that
    /// its next position bounds everything that it has given. Once it is reopened, it continues from there.
    #[test]
    fn a_barred_slot_gives_nothing(
        before in vec(any_bounds(1), 0..50), barred in vec(any_bounds(1), 0..50), after in vec(any_bounds(1), 0..50),
        why in prop_oneof![Just(Barred::Closed), Just(Barred::NotAllowed)],
    ) {
        let mut slot = Slot::<Shard>::default();
        let given = before.iter().filter_map(|(want, bounds)| slot.take(*want, true, bounds).ok()).last();
        slot.closed = why == Barred::Closed;
        let bound = slot.next;
        prop_assert!(given.is_none_or(|run| run.end == bound));
        for (want, bounds) in &barred {
            prop_assert_eq!(slot.take(*want, slot.closed, bounds), Err(Refusal::Barred(why)));
        }
        prop_assert_eq!(slot.next, bound);
        slot.closed = false;
        for run in after.iter().filter_map(|(want, bounds)| slot.take(*want, true, bounds).ok()) {
            prop_assert!(run.start >= bound);
        }
    }

    /// A bound shortens a run but does not refuse it: positions below the bound are not wasted.
    #[test]
    fn a_run_is_as_long_as_its_bounds_allow(want in 1..5000u64, now in 100..200u64, max_ahead in 0..5u64) {
        let mut slot = Slot::<Shard>::default();
        let bounds = Bounds { now, floor: 0, max_ahead, queue: 0, limit: now + 3 };
        let room = (max_ahead + 1).min(3) * 1024;
        prop_assert_eq!(slot.take(want, true, &bounds).unwrap().count(), want.min(room));
    }
}

/// A busy slot continues where it stopped, even at the first position of the clock's millisecond. Only an idle slot
/// begins elsewhere.
#[test]
fn a_busy_slot_goes_on_where_it_stopped() {
    let counters = Counters { ids: 1024 + 5, ..Counters::default() };
    for (now, start) in
        [(6, Position::first_of(7)), (7, Position::first_of(7)), (8, Position::first_of(8).plus(5))]
    {
        let mut slot = Slot::<Shard> { next: Position::first_of(7), counters, closed: false };
        let bounds = Bounds { now, floor: 0, max_ahead: 3, queue: 0, limit: 100 };
        assert_eq!(slot.take(1, true, &bounds).unwrap().start, start);
    }
}

/// Promise 4: an idle shard whose ids may not run ahead of the clock has three quarters of a millisecond at once,
/// however many ids it has minted before. It would otherwise refuse a batch again and again, because a refusal changes
/// nothing.
#[test]
fn an_idle_slot_that_may_not_run_ahead_has_most_of_its_millisecond() {
    for ids in 0..2048 {
        let counters = Counters { ids, ..Counters::default() };
        let mut slot = Slot::<Shard> { next: Position::first_of(7), counters, closed: false };
        let bounds = Bounds { now: 9, floor: 0, max_ahead: 0, queue: 0, limit: 100 };
        assert!(slot.room(&bounds, 0) >= 769, "{ids}");
        assert_eq!(slot.take(769, true, &bounds).unwrap().count(), 769, "{ids}");
    }
}

/// Promise 1: the range ends with its last position, and never wraps, although it ends in the middle of a second. The
/// room of a shard ends with it.
#[test]
fn the_last_unit_is_used_up_and_then_refused() {
    fn check<S: LayoutShard>(count: u64) {
        let bounds = Bounds { now: MAX_TICK, floor: 0, max_ahead: 5000, queue: 0, limit: MAX_TICK + 1 };
        let mut slot = Slot::<S>::default();
        assert_eq!(slot.room(&bounds, 5000), count);
        assert_eq!(slot.take(9000, true, &bounds).unwrap().count(), count);
        for now in [5, MAX_TICK, u64::MAX >> 20] {
            assert_eq!(slot.take(1, true, &Bounds { now, ..bounds }), Err(Refusal::Exhausted));
        }
        let mut slot = Slot::<S>::default();
        assert_eq!(
            slot.take(1, true, &Bounds { now: 0, floor: MAX_TICK + 1, ..bounds }),
            Err(Refusal::Exhausted)
        );
        assert_eq!(slot.room(&Bounds { now: MAX_TICK + 1000, ..bounds }, 5000), 0);
    }
    check::<Shard>(1024);
    check::<JsShard>(4096);
}
