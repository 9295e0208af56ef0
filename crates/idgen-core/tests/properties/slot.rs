use idgen_core::position::{LayoutShard, Position};
use idgen_core::slot::{Bounds, Counters, Refusal, Slot};
use idgen_ids::Shard;
use idgen_ids::id::{IDS_PER_TICK, MAX_TICK};
use idgen_ids::js::JsShard;
use proptest::collection::vec;
use proptest::prelude::*;

fn any_bounds() -> impl Strategy<Value = (u64, Bounds)> {
    // Clocks close together, so that they step in both directions across the slot's position, and
    // now and then the end of the range.
    let tick = prop_oneof![9 => 0..60u64, 1 => MAX_TICK - 3..MAX_TICK + 3];
    let limit = prop_oneof![0..80u64, Just(MAX_TICK + 1)];
    (1..3000u64, tick, 0..60u64, 0..20u64, 0..4u64, limit).prop_map(
        |(want, now, floor, max_ahead, queue, limit)| (want, Bounds { now, floor, max_ahead, queue, limit }),
    )
}

proptest! {
    /// Promises 1 and 3: positions strictly increase for any sequence of clocks, forward and back,
    /// and a run never crosses its bounds.
    #[test]
    fn runs_increase_and_stay_in_bounds(calls in vec(any_bounds(), 1..200)) {
        let mut slot = Slot::<Shard>::default();
        let mut end = Position::FIRST;
        for (want, bounds) in calls {
            let before = slot;
            match slot.take(want, &bounds) {
                Ok(run) => {
                    prop_assert!(run.start >= end, "a position twice");
                    prop_assert!(run.start < run.end && run.count() <= want);
                    end = run.end;
                    let (first, last) = (run.start.tick(), run.end.previous().unwrap().tick());
                    prop_assert!(first >= bounds.now && first >= bounds.floor);
                    if run.due(bounds.max_ahead) <= bounds.now {
                        prop_assert!(last <= bounds.now + bounds.max_ahead);
                    } else {
                        prop_assert!(first == last, "a run to wait for is of one millisecond");
                        prop_assert!(last <= bounds.now + bounds.max_ahead + bounds.queue);
                    }
                    prop_assert!(last < bounds.limit && last <= MAX_TICK);
                    prop_assert_eq!(slot.counters.ids, before.counters.ids + run.count());
                }
                Err(refusal) => {
                    prop_assert_eq!(slot, before, "a refusal must leave the slot alone");
                    match refusal {
                        Refusal::Ahead { tick } => {
                            prop_assert!(tick > bounds.now + bounds.max_ahead + bounds.queue);
                        }
                        Refusal::Limit { tick } => prop_assert!(tick >= bounds.limit),
                        Refusal::Exhausted => prop_assert!(
                            bounds.now.max(bounds.floor) > MAX_TICK || before.next.tick() > MAX_TICK
                        ),
                    }
                }
            }
        }
    }

    /// A bound cuts a run, it does not refuse it: nothing below a bound is wasted.
    #[test]
    fn a_run_is_as_long_as_its_bounds_allow(want in 1..5000u64, now in 100..200u64, max_ahead in 0..5u64) {
        let mut slot = Slot::<Shard>::default();
        let bounds = Bounds { now, floor: 0, max_ahead, queue: 0, limit: now + 3 };
        let room = (max_ahead + 1).min(3) * IDS_PER_TICK;
        prop_assert_eq!(slot.take(want, &bounds).unwrap().count(), want.min(room));
    }

    /// Promise 5: a batch is refused only if the shard cannot provide it. The room of a shard equals what a caller
    /// gets that takes everything until the wait is over.
    #[test]
    fn a_shard_gives_as_many_ids_as_it_has_room_for(
        before in vec(any_bounds(), 0..3), now in 0..5000u64, floor in 0..5000u64, max_ahead in 0..50u64,
        wait in 0..50u64,
    ) {
        fn check<G: LayoutShard>(before: &[(u64, Bounds)], bounds: Bounds, wait: u64) -> Result<(), TestCaseError> {
            let mut slot = Slot::<G>::default();
            for (want, bounds) in before {
                let _ = slot.take(*want, bounds);
            }
            let room = slot.room(&bounds, wait);
            let mut taken = 0;
            for now in bounds.now..=bounds.now + wait {
                taken += slot.take(u64::MAX, &Bounds { now, ..bounds }).map_or(0, |run| run.count());
            }
            prop_assert_eq!(room, taken);
            Ok(())
        }
        let bounds = Bounds { now, floor, max_ahead, queue: 0, limit: u64::MAX };
        check::<Shard>(&before, bounds, wait)?;
        check::<JsShard>(&before, bounds, wait)?;
    }
}

/// A busy slot continues where it stopped, even at the first position of the clock's millisecond. Only an idle one
/// begins elsewhere.
#[test]
fn a_busy_slot_goes_on_where_it_stopped() {
    let counters = Counters { ids: 256 + 5, ..Counters::default() };
    let start = |now| {
        let mut slot = Slot::<Shard> { next: Position::first_of(7), counters };
        slot.take(1, &Bounds { now, floor: 0, max_ahead: 3, queue: 0, limit: 100 }).unwrap().start
    };
    assert_eq!(start(6), Position::first_of(7));
    assert_eq!(start(7), Position::first_of(7));
    assert_eq!(start(8), Position::first_of(8).plus(5));
}

/// The room of a shard ends with its range.
#[test]
fn there_is_no_room_beyond_the_last_tick() {
    let bounds = Bounds { now: MAX_TICK, floor: 0, max_ahead: 5000, queue: 0, limit: MAX_TICK + 1 };
    assert_eq!(Slot::<Shard>::default().room(&bounds, 5000), IDS_PER_TICK);
    assert_eq!(Slot::<JsShard>::default().room(&bounds, 5000), 4096);
    let ended = Bounds { now: MAX_TICK + 1000, ..bounds };
    assert_eq!(Slot::<Shard>::default().room(&ended, 5000), 0);
    assert_eq!(Slot::<JsShard>::default().room(&ended, 5000), 0);
}

/// Promise 1: the range ends with its last position, and never wraps.
#[test]
fn the_last_tick_is_used_up_and_then_refused() {
    let mut slot = Slot::<Shard>::default();
    let bounds = Bounds { now: MAX_TICK, floor: 0, max_ahead: 1000, queue: 0, limit: MAX_TICK + 1 };
    assert_eq!(slot.take(5000, &bounds).unwrap().count(), IDS_PER_TICK);
    assert_eq!(slot.take(1, &bounds), Err(Refusal::Exhausted));
    assert_eq!(slot.take(1, &Bounds { now: u64::MAX >> 20, ..bounds }), Err(Refusal::Exhausted));
    assert_eq!(slot.take(1, &Bounds { now: 5, ..bounds }), Err(Refusal::Exhausted));
}
