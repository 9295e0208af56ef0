use idgen_core::position::{LayoutShard, Position};
use idgen_ids::id::MAX_TICK;
use idgen_ids::js::compose;
use idgen_ids::{Parts, Shard, decode};
use proptest::prelude::*;

use crate::{js_shard, sequence, shard};

proptest! {
    /// The id of a position has its shard and the parts of the position.
    #[test]
    fn the_id_of_a_position_has_its_parts(tick in 0..=MAX_TICK, q in 0..1024i32, s in 0..8192i32) {
        let parts = Parts { tick, shard: shard(s), sequence: sequence(q) };
        prop_assert_eq!(decode(shard(s).id(Position::new(tick, sequence(q)))), parts);
    }

    /// JavaScript-safe ids sort like their positions.
    #[test]
    fn js_ids_are_in_the_order_of_their_positions(s in 0..256i32, one in 0..1u64 << 42, other in 0..1u64 << 42) {
        let (one, other) = (Position::FIRST.plus(one), Position::FIRST.plus(other));
        let id = |position| js_shard(s).id(position);
        prop_assert_eq!(one.cmp(&other), id(one).cmp(&id(other)));
        prop_assert_eq!(id(one), compose(one.unit(), js_shard(s), one.sequence()));
    }

    /// `snowflake_advance` passes an id by as little as the layout allows, whatever the id's shard.
    #[test]
    fn the_position_after_an_id_is_the_least_above_it(
        past in prop_oneof![any::<i64>(), Just(0), Just(i64::MAX), i64::MAX - (1 << 24)..i64::MAX], s in 0..8192i32,
    ) {
        match Position::after(past, shard(s)) {
            Some(position) => {
                prop_assert!(shard(s).id(position) > past);
                prop_assert!(position.previous().is_none_or(|before| shard(s).id(before) <= past));
            }
            None => {
                let end = Position::<Shard>::first_of(MAX_TICK + 1);
                prop_assert!(shard(s).id(end.previous().unwrap()) <= past);
            }
        }
    }
}

/// The same for cases that random ids rarely reach: the very first id, and ids of the shard itself.
#[test]
fn the_position_after_an_id_of_the_same_shard_is_the_next_one() {
    let position = |tick, q| Position::new(tick, sequence(q));
    assert_eq!(Position::after(0, shard(0)), Some(position(0, 1)));
    assert_eq!(Position::after(0, shard(1)), Some(Position::FIRST));
    let id = shard(5).id(position(7, 8));
    assert_eq!(Position::after(id, shard(5)), Some(position(7, 9)));
    assert_eq!(Position::after(id, shard(6)), Some(position(7, 0)));
    assert_eq!(Position::after(id, shard(4)), Some(position(8, 0)));
    assert_eq!(Position::after(shard(5).id(position(7, 1023)), shard(5)), Some(position(8, 0)));
    assert_eq!(Position::after(-1, shard(5)), Some(Position::FIRST));
    assert_eq!(Position::after(i64::MAX, shard(8191)), None);
    assert_eq!(Position::after(i64::MAX - 1, shard(8191)), Some(position(MAX_TICK, 1023)));
}
