use idgen_ids::id::{MAX_STORED_TICK, MAX_TICK};
use idgen_ids::{OutOfRange, Parts, Sequence, Shard, decode, max_id, min_id, shard_of};
use proptest::prelude::*;

use crate::{sequence, shard};

/// Promise: the ids are Instagram's, bit for bit. The test vector is from its article.
#[test]
fn golden_vector() {
    let id = Parts { tick: 1_387_263_000, shard: shard(1341), sequence: Sequence::wrapping(5001) }.id();
    assert_eq!(id, 11_637_205_501_278_089);
    assert_eq!(decode(id).sequence, sequence(905));
    assert_eq!(shard_of(id), shard(1341));
}

proptest! {
    /// Promise 5: every word decodes into parts that make the same word again.
    #[test]
    fn id_undoes_decode(word: i64) {
        prop_assert_eq!(decode(word).id(), word);
        prop_assert_eq!(shard_of(word), decode(word).shard);
    }

    /// Promise 5: decoding returns the parts that an id was built from.
    #[test]
    fn decode_undoes_id(tick in 0..=MAX_STORED_TICK, s in 0..8192i32, q in 0..1024i32) {
        let parts = Parts { tick, shard: shard(s), sequence: sequence(q) };
        prop_assert_eq!(decode(parts.id()), parts);
        prop_assert_eq!(parts.id() < 0, tick > MAX_TICK);
    }

    /// Promise 5: a part that is out of range is refused, not truncated.
    #[test]
    fn parts_out_of_range_are_refused(number in prop_oneof![any::<i32>(), -9000..9000i32]) {
        let refusal = |part, max| OutOfRange { part, value: number, max };
        if (0..8192).contains(&number) {
            prop_assert_eq!(Shard::try_from(number).map(i32::from), Ok(number));
        } else {
            prop_assert_eq!(Shard::try_from(number), Err(refusal("shard", 8191)));
        }
        if (0..1024).contains(&number) {
            prop_assert_eq!(Sequence::try_from(number).map(i32::from), Ok(number));
            prop_assert_eq!(Sequence::try_from(number).map(u64::from), Ok(number as u64));
        } else {
            prop_assert_eq!(Sequence::try_from(number), Err(refusal("sequence", 1023)));
        }
    }

    /// A range scan over a time finds all of its ids and no others.
    #[test]
    fn min_and_max_id_enclose_their_millisecond(tick in 0..=MAX_TICK, s in 0..8192i32, q in 0..1024i32) {
        let id = Parts { tick, shard: shard(s), sequence: sequence(q) }.id();
        prop_assert!(min_id(tick) <= id && id <= max_id(tick));
        prop_assert_eq!(decode(min_id(tick)).tick, tick);
        prop_assert_eq!(decode(max_id(tick)).tick, tick);
        if tick < MAX_TICK {
            prop_assert_eq!(min_id(tick + 1), max_id(tick) + 1);
        }
    }
}

#[test]
fn parts_at_the_edges() {
    for (number, fits) in [(-1, false), (0, true), (8191, true), (8192, false)] {
        assert_eq!(Shard::try_from(number).is_ok(), fits);
    }
    for (number, fits) in [(-1, false), (0, true), (1023, true), (1024, false)] {
        assert_eq!(Sequence::try_from(number).is_ok(), fits);
    }
    assert_eq!(max_id(MAX_TICK), i64::MAX);
    // Read as unsigned, the greatest id is the last id of the greatest tick that fits.
    let last = Parts { tick: MAX_STORED_TICK, shard: shard(8191), sequence: sequence(1023) };
    assert_eq!((decode(-1), last.id()), (last, -1));
    assert_eq!(Shard::all().count(), 8192);
    assert_eq!(Shard::all().last().unwrap().index(), 8191);
    let refusal = Shard::try_from(8192).unwrap_err();
    assert_eq!(refusal.to_string(), "shard 8192 is not between 0 and 8191");
}
