use std::collections::BTreeSet;

use idgen_ids::Shard;
use idgen_ids::shard_set::ShardSet;
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    /// Promise 5: a bad setting is refused and never causes a panic.
    #[test]
    fn any_text_is_read_or_refused(text in prop_oneof![any::<String>(), "[0-9+, -]{0,40}"]) {
        if let Ok(set) = ShardSet::parse(&text) {
            prop_assert!(Shard::all().any(|shard| set.contains(shard)), "a parsed set is never empty");
        }
    }

    /// `idgen.allowed_shards` means what it says.
    #[test]
    fn a_list_of_ranges_is_their_union(
        ranges in vec((0..8192usize, 0..300usize), 1..20),
        (with, without) in (0..8192i32, 0..8192i32),
    ) {
        let ranges: Vec<_> = ranges.into_iter().map(|(from, more)| from..=(from + more).min(8191)).collect();
        let text = ranges
            .iter()
            .map(|r| if r.start() == r.end() { r.start().to_string() } else { format!("{} - {}", r.start(), r.end()) })
            .collect::<Vec<_>>()
            .join(", ");
        let expected: BTreeSet<usize> = ranges.into_iter().flatten().collect();
        let set = ShardSet::parse(&text).unwrap();
        let found: BTreeSet<usize> = Shard::all().filter(|s| set.contains(*s)).map(Shard::index).collect();
        prop_assert_eq!(&found, &expected);
        prop_assert_eq!(ShardSet::parse(&set.to_string()), Ok(set), "{}", set);
        let [with, without] = [with, without].map(|number| Shard::try_from(number).unwrap());
        let changed = set.with(with).without(without);
        let expected: BTreeSet<usize> =
            expected.into_iter().chain([with.index()]).filter(|index| *index != without.index()).collect();
        let found: BTreeSet<usize> = Shard::all().filter(|s| changed.contains(*s)).map(Shard::index).collect();
        prop_assert_eq!(found, expected);
    }
}

/// The sentences that PostgreSQL shows as DETAIL when it refuses a setting.
#[test]
fn a_bad_list_is_told_in_a_sentence() {
    let why = |text| ShardSet::parse(text).unwrap_err();
    assert_eq!(why("1, 8192"), "\"8192\" is not a shard or range of shards between 0 and 8191.");
    assert_eq!(why("7 - 3"), "The range \"7 - 3\" ends before it begins.");
    // The excerpt is ASCII and bounded, whatever the encodings of the file and the client and the length of the entry.
    let long = format!("\u{fc}{}", "9".repeat(1000));
    let shown = format!("\\u{{fc}}{}...", "9".repeat(49));
    assert_eq!(why(&long), format!("\"{shown}\" is not a shard or range of shards between 0 and 8191."));
    let (long, shown) = (format!("9{}-1", " ".repeat(100)), format!("9{}...", " ".repeat(49)));
    assert_eq!(why(&long), format!("The range \"{shown}\" ends before it begins."));
}

#[test]
fn lists_of_shards_at_the_edges() {
    assert_eq!(ShardSet::parse(" "), Ok(ShardSet::ALL));
    assert_eq!(ShardSet::parse("0-8191"), Ok(ShardSet::ALL));
    assert_eq!(ShardSet::parse("5-5"), ShardSet::parse("5"));
    assert_eq!(ShardSet::ALL.to_string(), "0-8191");
    assert_eq!(ShardSet::parse("7,5-5, 0-1").unwrap().to_string(), "0-1,5,7");
    assert_eq!(ShardSet::NONE.to_string(), "");
    for text in ["8192", "-1", "5-", "7-3", "a", "1,,2", "1-2-3", "1;2", "99999999999999999999"] {
        assert!(ShardSet::parse(text).is_err(), "{text}");
    }
}
