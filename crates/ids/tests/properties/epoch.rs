use idgen_ids::epoch::{BadEpoch, INFINITY, MINUS_INFINITY, Timestamptz, timestamp_since, utc};
use idgen_ids::id::{MAX_STORED_TICK, MAX_TICK};
use idgen_ids::{Epoch, Parts, decode, make_id, min_id};
use proptest::prelude::*;

use crate::{sequence, shard};

#[test]
fn epochs_are_read() {
    let ms = |text| Epoch::parse(text).map(Epoch::unix_ms);
    assert_eq!(ms("2025-01-01T00:00:00Z"), Ok(1_735_689_600_000));
    assert_eq!(ms("2025-01-01T01:00:00+01:00"), Ok(1_735_689_600_000));
    assert_eq!(ms("2011-08-24T21:07:01.721Z"), Ok(1_314_220_021_721));
    assert_eq!(ms(" 1314220021721 "), Ok(1_314_220_021_721));
    assert_eq!(ms("-1"), Ok(-1));
    assert_eq!(ms("1969-12-31T23:59:59.999Z"), Ok(-1));
    assert_eq!(ms("0001-01-01T00:00:00Z"), Ok(Epoch::MIN_UNIX_MS));
    assert_eq!(ms("9999-12-31T23:59:59.999Z"), Ok(Epoch::MAX_UNIX_MS));
    for text in ["", "yesterday", "2025-01-01", "2025-01-01T00:00:00", "2025-13-01T00:00:00Z", "1e9", "1.5"] {
        assert_eq!(ms(text), Err(BadEpoch::Form), "{text}");
    }
    assert_eq!(ms("2025-01-01T00:00:00.0001Z"), Err(BadEpoch::Fraction));
    for text in ["1735689600", "100000000", "9999999999"] {
        assert_eq!(ms(text), Err(BadEpoch::Seconds), "{text}");
    }
    assert_eq!((ms("99999999"), ms("10000000000"), ms("0")), (Ok(99_999_999), Ok(10_000_000_000), Ok(0)));
    assert_eq!(ms("1970-02-01T00:00:00Z"), Ok(31 * 86_400_000));
    for text in ["0000-12-31T23:59:59Z", "253402300800000", "-62135596800001", "99999999999999999999999"] {
        assert_eq!(ms(text), Err(BadEpoch::Range), "{text}");
    }
}

/// The times that PostgreSQL shows for these epochs; it counts from the year 2000.
#[test]
fn epochs_and_ticks_are_the_moments_that_postgresql_shows() {
    let epoch = |text| Epoch::parse(text).unwrap();
    assert_eq!(epoch("2000-01-01T00:00:00Z").timestamp(), 0);
    assert_eq!(epoch("2000-01-01T00:00:00.001Z").timestamp(), 1000);
    assert_eq!(epoch("1970-01-01T00:00:00Z").timestamp(), -946_684_800_000_000);
    let instagram = epoch("2011-08-24T21:07:01.721Z");
    assert_eq!(instagram.timestamp(), 367_535_221_721_000);
    assert_eq!(instagram.timestamp_of(1_387_263_000), 368_922_484_721_000);
    assert_eq!(instagram.tick_of(368_922_484_721_999), Some(1_387_263_000));
    // The first tick that does not fit into an id is capped at the last one that does.
    assert_eq!(instagram.timestamp_of(u64::MAX), instagram.timestamp_of(MAX_STORED_TICK));
    assert_eq!(instagram.unix_ms_of(u64::MAX), instagram.unix_ms_of(MAX_STORED_TICK));
    // PostgreSQL's range ends with the year 294276.
    assert_eq!(timestamp_since(9_223_371_331_199_999_000, 0), Some(9_223_371_331_199_999_000));
    assert_eq!(timestamp_since(9_223_371_331_199_999_000, 1), None);
    assert_eq!(timestamp_since(0, u64::MAX), None);
}

#[test]
fn moments_are_told_to_the_second() {
    assert_eq!(utc(1_735_689_600_999).as_deref(), Some("2025-01-01 00:00:00 UTC"));
    assert_eq!(utc(-1).as_deref(), Some("1969-12-31 23:59:59 UTC"));
    assert_eq!(utc(Epoch::MIN_UNIX_MS).as_deref(), Some("0001-01-01 00:00:00 UTC"));
    assert_eq!(utc(Epoch::MAX_UNIX_MS + 1), None);
}

/// The sentences that PostgreSQL shows as DETAIL when it refuses a setting.
#[test]
fn a_bad_epoch_is_told_in_a_sentence() {
    for (why, sentence) in [
        (BadEpoch::Form, "The value is neither an RFC 3339 time nor an integer."),
        (BadEpoch::Fraction, "The value has a part smaller than a millisecond."),
        (BadEpoch::Range, "The value is outside the years 1 to 9999."),
        (
            BadEpoch::Seconds,
            "The value seems to be in seconds: in milliseconds it would be a time in early 1970.",
        ),
    ] {
        assert_eq!(why.to_string(), sentence);
    }
}

proptest! {
    /// A built id has the time that was given, truncated to the millisecond, and the parts that were given. An id
    /// cannot be built for a time for which none is minted.
    #[test]
    fn an_id_is_made_of_a_moment_and_parts(
        ms in Epoch::MIN_UNIX_MS..=Epoch::MAX_UNIX_MS, tick in 0..=MAX_TICK, us in 0..1000i64, s in 0..8192i32,
        q in 0..1024i32,
    ) {
        let epoch = Epoch::from_unix_ms(ms).unwrap();
        let id = make_id(epoch, epoch.timestamp_of(tick) + us, shard(s), sequence(q));
        prop_assert_eq!(id.map(decode), Some(Parts { tick, shard: shard(s), sequence: sequence(q) }));
        for no_moment in [epoch.timestamp() - 1 - us, epoch.timestamp_of(MAX_TICK) + 1000 + us] {
            prop_assert_eq!(make_id(epoch, no_moment, shard(s), sequence(q)), None);
        }
    }

    /// Promise 5: a bad setting is refused and never causes a panic.
    #[test]
    fn any_text_is_read_or_refused(
        text in prop_oneof![
            any::<String>(),
            "[0-9TtZz:+. -]{0,40}",
            "[+-]?[0-9]{0,40}",
            "[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{0,12})?([Zz]|[+-][0-9]{2}:[0-9]{2})",
        ],
    ) {
        if let Ok(epoch) = Epoch::parse(&text) {
            let again = Epoch::parse(&epoch.unix_ms().to_string());
            prop_assert!(again == Ok(epoch) || again == Err(BadEpoch::Seconds));
        }
    }

    /// Timestamps and ticks are inverse over the whole range, at every epoch that can be set.
    #[test]
    fn ticks_and_timestamps_are_inverse(
        ms in Epoch::MIN_UNIX_MS..=Epoch::MAX_UNIX_MS, tick in 0..=MAX_TICK, us in 0..1000i64,
    ) {
        let epoch = Epoch::from_unix_ms(ms).unwrap();
        let at = epoch.timestamp_of(tick);
        prop_assert_eq!(epoch.tick_of(at + us), Some(tick), "truncated to its millisecond");
        prop_assert_eq!(epoch.unix_ms_of(tick), ms + tick as i64);
        prop_assert_eq!(timestamp_since(epoch.timestamp(), tick), Some(at));
        prop_assert_eq!(epoch.tick_of(epoch.timestamp() - 1 - us), None);
        prop_assert_eq!(epoch.tick_of(epoch.timestamp_of(MAX_TICK) + 1000 + us), None);
    }

    /// The bounds of a time range are exact for every timestamp, including the infinities and those before the epoch
    /// and after the end of the range: an id is within the bounds if and only if its millisecond is in the range. The
    /// lower bound is missing only if the timestamp is later than that of every bigint.
    #[test]
    fn the_bounds_of_a_range_are_exact(
        ms in Epoch::MIN_UNIX_MS..=Epoch::MAX_UNIX_MS,
        tick in prop_oneof![0..=MAX_TICK, Just(0), Just(MAX_TICK)],
        low_bits in prop_oneof![0..1i64 << 23, Just(0), Just((1 << 23) - 1)],
        any_timestamp in prop_oneof![any::<Timestamptz>(), Just(MINUS_INFINITY), Just(INFINITY)],
        near in prop_oneof![-3_000_000..3_000_000i64, -2000..2000i64, Just(0), Just(999), Just(1000)],
        anchor in 0..3usize,
    ) {
        let epoch = Epoch::from_unix_ms(ms).unwrap();
        let id = min_id(tick) | low_bits;
        let at = epoch.timestamp_of(tick);
        for timestamp in [any_timestamp, [at, epoch.timestamp(), epoch.timestamp_of(MAX_TICK)][anchor] + near] {
            // An upper bound covers the milliseconds that have begun by then, a lower bound those that have not ended.
            prop_assert_eq!(id <= epoch.max_id_of(timestamp), at <= timestamp);
            match epoch.min_id_of(timestamp) {
                Some(bound) => prop_assert_eq!(id >= bound, at + 999 >= timestamp),
                None => prop_assert!(epoch.timestamp_of(MAX_TICK) + 999 < timestamp),
            }
        }
    }

    /// The conversion does not overflow for any timestamp.
    #[test]
    fn any_timestamp_is_converted_or_refused(timestamp: i64, tick in 0..=MAX_STORED_TICK) {
        for ms in [Epoch::MIN_UNIX_MS, 0, Epoch::MAX_UNIX_MS] {
            let epoch = Epoch::from_unix_ms(ms).unwrap();
            prop_assert!(epoch.tick_of(timestamp).is_none_or(|tick| tick <= MAX_TICK));
        }
        prop_assert!(timestamp_since(timestamp, tick).is_none_or(|t| t >= timestamp));
    }
}

#[test]
fn infinities_are_no_epoch() {
    assert_eq!(timestamp_since(INFINITY, 0), None);
    assert_eq!(timestamp_since(MINUS_INFINITY, 0), None);
    for at in [INFINITY, MINUS_INFINITY] {
        assert_eq!(Epoch::from_unix_ms(0).unwrap().tick_of(at), None);
    }
}
