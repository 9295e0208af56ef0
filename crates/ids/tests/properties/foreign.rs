use std::collections::BTreeMap;

use idgen_ids::epoch::timestamp_since;
use idgen_ids::foreign::{Fields, ForeignLayout, LAYOUTS};
use idgen_ids::{Epoch, Parts, decode};
use proptest::prelude::*;

fn take_apart(id: i64, layout: &str) -> Fields {
    ForeignLayout::find(layout).unwrap().fields(id).unwrap()
}

fn unix_ms(id: i64, layout: &str) -> i64 {
    ForeignLayout::find(layout).unwrap().epoch.unwrap().unix_ms() + take_apart(id, layout).ms as i64
}

/// Ids that were published together with their parts.
#[test]
fn published_ids_decode_as_published() {
    let parts = |id, layout| {
        let Fields { shard, sequence, gene, .. } = take_apart(id, layout);
        (unix_ms(id, layout), shard, sequence, gene)
    };
    // The example of Instagram's article.
    let expected = (1_314_220_021_721 + 1_387_263_000, Some(1341), Some(905), None);
    assert_eq!(parts(11_637_205_501_278_089, "instagram"), expected);
    // A post whose "taken_at_timestamp" is 1512340310 (InstaPy/instapy-research, post_page_basic.md).
    assert_eq!(unix_ms(1_661_953_437_569_832_666, "instagram") / 1000, 1_512_340_310);
    // The tweet of Wikipedia's article "Snowflake ID".
    assert_eq!(parts(1_541_815_603_606_036_480, "twitter"), (1_656_432_460_105, Some(378), Some(0), None));
    // The example of Discord's reference: worker 1, process 0, increment 7.
    assert_eq!(parts(175_928_847_299_117_063, "discord"), (1_462_015_105_796, Some(1 << 5), Some(7), None));
    // The README of discord-snowflake (npm): worker 0, process 3.
    assert_eq!(parts(90_339_695_967_350_784, "discord"), (1_441_609_061_949, Some(3), Some(0), None));
    // The example of a status in Mastodon's documentation, with "created_at" 2019-12-08T03:48:33.901Z. A row gets its
    // time and its id within the same second.
    let (ms, shard, ..) = parts(103_270_115_826_048_975, "mastodon");
    assert_eq!((ms / 1000, shard), (1_575_776_913, None));
    // The documentation of pgEdge's get_epoch and to_timestamp. Its node and count come from a version with the other
    // order.
    assert_eq!(unix_ms(136_169_504_773_242_881, "pgedge"), 1_704_996_539_845);
    // The comment on decodeSnowflakeId in LeafMonitorController.java shows the parts of an id.
    let id = (1_567_733_700_834 - 1_288_834_974_657) << 22 | 39 << 12 | 3448;
    assert_eq!(parts(id, "leaf"), (1_567_733_700_834, Some(39), Some(3448), None));
    // sony/sonyflake, issue 33 of 2022-07-19: the time part of an id of that day.
    let day = |ms| ms / 86_400_000;
    assert_eq!(day(unix_ms(24_869_724_975 << 24, "sonyflake")), day(1_658_188_800_000));
    // DefaultUidGenerator.java: the range ends at 2024-11-20 21:24:16, in China's time.
    assert_eq!(unix_ms(i64::MAX, "baidu"), 1_732_109_056_000 - 1000);
}

/// The positions of the parts, for systems that publish no complete example.
#[test]
fn parts_lie_where_their_systems_put_them() {
    let ms_1_to_3 =
        |shard, sequence| Fields { ms: 1, shard: Some(shard), sequence: Some(sequence), gene: None };
    assert_eq!(take_apart(1 << 22 | 2 << 12 | 3, "pgedge"), ms_1_to_3(2, 3));
    assert_eq!(take_apart(1 << 24 | 3 << 16 | 2, "sonyflake"), Fields { ms: 10, ..ms_1_to_3(2, 3) });
    assert_eq!(take_apart(1 << 35 | 2 << 13 | 3, "baidu"), Fields { ms: 1000, ..ms_1_to_3(2, 3) });
    assert_eq!(take_apart(1 << 20 | 2 << 12 | 3, "js53"), Fields { ms: 1000, ..ms_1_to_3(2, 3) });
    assert_eq!(
        take_apart(1 << 22 | 2 << 16 | 3 << 4 | 4, "gene"),
        Fields { gene: Some(4), ..ms_1_to_3(2, 3) }
    );
}

#[test]
fn layouts_describe_themselves() {
    let bits: BTreeMap<_, _> =
        LAYOUTS.iter().map(|layout| (layout.name, (layout.bits(), layout.unit()))).collect();
    assert_eq!(bits.len(), LAYOUTS.len(), "names differ");
    assert!(LAYOUTS.iter().all(|layout| !layout.used_by.is_empty()));
    let described = |name: &str| (bits[name].0.as_str(), bits[name].1.as_str());
    assert_eq!(described("instagram"), ("41 time, 13 shard, 10 sequence", "1 ms"));
    assert_eq!(described("sonyflake"), ("39 time, 8 sequence, 16 shard", "10 ms"));
    assert_eq!(described("gene"), ("41 time, 6 shard, 12 sequence, 4 gene", "1 ms"));
    assert_eq!(described("baidu"), ("28 time, 22 shard, 13 sequence", "1 s"));
    assert!(ForeignLayout::find("Twitter").is_none() && ForeignLayout::find("").is_none());
    assert_eq!(ForeignLayout::find("js53").unwrap().max_id(), (1 << 52) - 1);
    assert_eq!(ForeignLayout::find("twitter").unwrap().max_id(), u64::MAX);
}

/// The greatest id of a layout is the last one that decodes. If only the sign bit is unused, it counts as time.
#[test]
fn the_greatest_id_of_a_layout_is_the_last() {
    for layout in LAYOUTS {
        let bits: u32 = layout.bits().split(|c: char| !c.is_ascii_digit()).flat_map(str::parse::<u32>).sum();
        let greatest = layout.max_id();
        assert_eq!(greatest, if bits >= 63 { u64::MAX } else { (1 << bits) - 1 }, "{}", layout.name);
        assert!(layout.fields(greatest.cast_signed()).is_some());
        assert!(greatest == u64::MAX || layout.fields((greatest + 1).cast_signed()).is_none());
    }
    // Layouts with 63 and with 64 bits.
    assert_eq!(
        take_apart(i64::MIN, "twitter"),
        Fields { ms: 1 << 41, shard: Some(0), sequence: Some(0), gene: None }
    );
    assert_eq!(take_apart(-1, "discord").ms, (1 << 42) - 1);
}

proptest! {
    /// Promise 5: every word decodes in every layout that has enough bits, to a time that PostgreSQL can represent with
    /// any epoch.
    #[test]
    fn any_word_is_taken_apart_or_refused(word in prop_oneof![any::<u64>(), 0..1u64 << 53]) {
        for layout in LAYOUTS {
            let fields = layout.fields(word.cast_signed());
            prop_assert_eq!(fields.is_some(), word <= layout.max_id());
            let Some(fields) = fields else { continue };
            prop_assert_eq!(fields.shard.is_some(), layout.shard.is_some());
            prop_assert!(fields.sequence.is_some());
            let numbers = [fields.shard, fields.sequence, fields.gene];
            prop_assert!(numbers.into_iter().flatten().all(|number| number >= 0));
            for unix_ms in [Epoch::MIN_UNIX_MS, Epoch::MAX_UNIX_MS] {
                let epoch = Epoch::from_unix_ms(unix_ms).unwrap();
                let at = fields.created_at(epoch);
                prop_assert_eq!(timestamp_since(epoch.timestamp(), fields.ms), Some(at));
            }
        }
    }

    /// idgen's own layout decodes the same with and without its name.
    #[test]
    fn the_own_layout_has_a_name(id: i64) {
        let Parts { tick, shard, sequence } = decode(id);
        let (shard, sequence) = (Some(shard.into()), Some(sequence.into()));
        let expected = Fields { ms: tick, shard, sequence, gene: None };
        prop_assert_eq!(take_apart(id, "idgen"), expected);
        prop_assert_eq!(take_apart(id, "instagram"), expected);
    }
}
