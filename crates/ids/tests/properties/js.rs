use idgen_ids::Shard;
use idgen_ids::foreign::ForeignLayout;
use idgen_ids::js::{JsShard, compose};
use proptest::prelude::*;

fn js_shard(number: i32) -> JsShard {
    JsShard::try_from(number).unwrap()
}

proptest! {
    /// Ids are below 2^53, decode by the layout js53, and sort by second and sequence.
    #[test]
    fn js_ids_are_exact_in_javascript(
        second in 0..1u64 << 32, s in 0..256i32, q in 0..4096u64, other in (0..1u64 << 32, 0..4096u64),
    ) {
        let id = compose(second, js_shard(s), q);
        prop_assert!((0..1 << 53).contains(&id) && (id as f64) as i64 == id);
        let fields = ForeignLayout::find("js53").unwrap().fields(id).unwrap();
        prop_assert_eq!(fields.ms, second * 1000);
        prop_assert_eq!((fields.shard, fields.sequence, fields.gene), (Some(s), Some(q as i32), None));
        prop_assert_eq!((second, q).cmp(&other), id.cmp(&compose(other.0, js_shard(s), other.1)));
    }
}

#[test]
fn js_shards_are_those_below_256() {
    for (number, fits) in [(-1, false), (0, true), (255, true), (256, false), (i32::MAX, false)] {
        assert_eq!(JsShard::try_from(number).is_ok(), fits);
    }
    let all: Vec<i32> = JsShard::all().map(|shard| Shard::from(shard).into()).collect();
    assert_eq!(all, (0..256).collect::<Vec<i32>>());
}
