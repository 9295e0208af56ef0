use idgen_core::position::{LayoutShard, Position};
use idgen_core::slot::{Bounds, Refusal, Slot};
use idgen_ids::id::MAX_TICK;
use idgen_ids::js::{JsShard, compose};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::js_shard;

fn any_js_bounds() -> impl Strategy<Value = Bounds> {
    let tick = prop_oneof![9 => 0..9000u64, 1 => MAX_TICK - 3000..MAX_TICK + 3000];
    (tick, 0..9000u64, 0..3000u64, 0..64u64, prop_oneof![0..12_000u64, MAX_TICK + 1..MAX_TICK + 5000])
        .prop_map(|(now, floor, max_ahead, queue, limit)| Bounds { now, floor, max_ahead, queue, limit })
}

proptest! {
    /// Promises 1 and 3 in seconds: positions strictly increase for any sequence of clocks and bounds; the
    /// second is not before the clock's, and its first millisecond not before the floor, not at the limit,
    /// and not too far after the clock.
    #[test]
    fn js_positions_increase_and_stay_in_bounds(calls in vec((1..6000u64, any_js_bounds()), 1..200)) {
        let mut slot = Slot::<JsShard>::default();
        let mut end = Position::FIRST;
        for (want, bounds) in calls {
            let before = slot;
            let ahead = bounds.now + bounds.max_ahead;
            match slot.take(want, &bounds) {
                Ok(run) => {
                    prop_assert!(run.start >= end, "a position twice");
                    prop_assert!(run.start < run.end && run.count() <= want);
                    end = run.end;
                    let (first, last) = (run.start.tick(), run.end.previous().unwrap().tick());
                    prop_assert!(first + 1000 > bounds.now && first >= bounds.floor);
                    prop_assert!(last < bounds.limit && last <= MAX_TICK);
                    if run.due(bounds.max_ahead) <= bounds.now {
                        prop_assert!(last <= ahead);
                    } else {
                        prop_assert!(first == last && last <= ahead + bounds.queue);
                    }
                }
                Err(refusal) => {
                    prop_assert_eq!(slot, before, "a refusal must leave the slot alone");
                    match refusal {
                        Refusal::Ahead { tick } => prop_assert!(tick > ahead + bounds.queue),
                        Refusal::Limit { tick } => prop_assert!(tick >= bounds.limit),
                        Refusal::Exhausted => {
                            let next = before.next.tick();
                            prop_assert!(bounds.now.max(bounds.floor).max(next) > MAX_TICK - 1000);
                        }
                    }
                }
            }
        }
    }

    /// Promise 1 across a restart or failover: a run of the server that begins at a floor not below the limit
    /// of the one before repeats no second of it, wherever in a second both lie, and whatever the clock shows.
    #[test]
    fn no_js_second_is_on_both_sides_of_a_mark(
        limit in 1..9000u64, more in prop_oneof![Just(0), 0..2500u64], before in 0..9000u64, after in 0..9000u64,
    ) {
        let far = Bounds { now: before, floor: 0, max_ahead: 20_000, queue: 0, limit };
        let mut old = Slot::<JsShard>::default();
        // All that it may.
        let _ = old.take(1_000_000, &far);
        let next = Bounds { now: after, floor: limit + more, limit: MAX_TICK + 1, ..far };
        let new = Slot::<JsShard>::default().take(1, &next).unwrap();
        prop_assert!(Position::first_of(new.start.unit()) >= old.next, "{old:?} {new:?}");
    }

    /// The order of positions is that of their ids, and their parts are those of the layout.
    #[test]
    fn js_ids_are_in_the_order_of_their_positions(s in 0..256i32, one in 0..1u64 << 42, other in 0..1u64 << 42) {
        let (one, other) = (Position::FIRST.plus(one), Position::FIRST.plus(other));
        let id = |position| js_shard(s).id(position);
        prop_assert_eq!(one.cmp(&other), id(one).cmp(&id(other)));
        prop_assert_eq!(id(one), compose(one.unit(), js_shard(s), one.sequence()));
    }
}

/// The mark's range ends in the midst of a second: that one is handed out, and then no more.
#[test]
fn the_last_js_second_is_used_up_and_then_refused() {
    let mut slot = Slot::<JsShard>::default();
    let bounds = Bounds { now: MAX_TICK, floor: 0, max_ahead: 5000, queue: 0, limit: MAX_TICK + 1 };
    assert_eq!(slot.take(9000, &bounds).unwrap().count(), 4096);
    assert_eq!(slot.take(1, &bounds), Err(Refusal::Exhausted));
    assert_eq!(slot.take(1, &Bounds { now: 5, ..bounds }), Err(Refusal::Exhausted));
    let ended = Bounds { now: 0, floor: MAX_TICK + 1, ..bounds };
    assert_eq!(Slot::<JsShard>::default().take(1, &ended), Err(Refusal::Exhausted));
}
