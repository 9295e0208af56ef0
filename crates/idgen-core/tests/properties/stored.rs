use std::collections::HashSet;

use idgen_core::error::Error;
use idgen_core::mark::{MOST_LATE_REACH_MS, Progress, stored};
use idgen_core::settings::{QUEUE_MS, Settings};
use idgen_ids::Epoch;
use idgen_ids::id::MAX_TICK;
use proptest::prelude::*;

use crate::epoch_at;
use crate::host::{NOW, SETTINGS};

fn epoch() -> impl Strategy<Value = Epoch> {
    (Epoch::MIN_UNIX_MS..=Epoch::MAX_UNIX_MS).prop_map(epoch_at)
}

/// Promise 1: a mark of another epoch is recognized, for epochs that people confuse: some milliseconds, seconds, hours,
/// days or years apart, or midnights from 1970 to 2099.
#[test]
fn a_mark_of_another_epoch_is_known() {
    let default = SETTINGS.epoch;
    let mark = Progress::new(5, default);
    let day = 86_400_000;
    for unit in [1, 1000, 60_000, 3_600_000, day, 365 * day] {
        for times in (-60..=60).filter(|times| *times != 0) {
            assert!(!mark.is_of(epoch_at(default.unix_ms() + unit * times)), "{times} times {unit} ms");
        }
    }
    let midnights: HashSet<u64> =
        (0..47_482).map(|n| Progress::new(5, epoch_at(n * day)).to_keep()).collect();
    assert_eq!(midnights.len(), 47_482, "from 1970 to 2099");
}

/// Promise 9: the initial mark of a server without a preload leaves the choice of the epoch open, and is replaced by
/// any other mark.
#[test]
fn the_first_mark_is_below_all_others_and_of_any_epoch() {
    assert_eq!(Progress::kept(Progress::FIRST.to_keep()), Some(Progress::FIRST));
    for epoch in [Epoch::MIN_UNIX_MS, SETTINGS.epoch.unix_ms(), Epoch::MAX_UNIX_MS].map(epoch_at) {
        assert!(Progress::FIRST.to_keep() < Progress::new(0, epoch).to_keep());
        assert_eq!(stored::tick_of(Some(Progress::FIRST), epoch), Ok(1));
    }
}

proptest! {
    /// The origin's progress never goes back, so a later mark has to be greater progress, and a mark with any epoch
    /// greater than all that 0.1.0 has left.
    #[test]
    fn a_later_mark_is_greater_progress(a in 0..=MAX_TICK, more in 1..=MAX_TICK + 1, one in epoch(), other in epoch()) {
        let b = (a + more).min(MAX_TICK + 1);
        let [first, later] = [a, b].map(|mark| Progress::new(mark, one));
        prop_assert!(first.to_keep() < later.to_keep());
        prop_assert!(first.to_keep() < Progress::new(b, other).to_keep());
        prop_assert!(b < first.to_keep());
        prop_assert_eq!([first.mark(), later.mark()], [a, b]);
        prop_assert_eq!(Progress::kept(later.to_keep()), Some(later));
    }

    /// A mark is of its own epoch; a mark that 0.1.0 has left may be of any. Its tick can be read only with its epoch.
    #[test]
    fn a_mark_is_of_its_epoch(mark in 1..=MAX_TICK + 1, one in epoch(), other in epoch()) {
        let (new, old) = (Progress::new(mark, one), Progress::kept(mark).unwrap());
        prop_assert!(new.is_of(one) && old.is_of(one));
        prop_assert_eq!((old.mark(), Progress::kept(0)), (mark, None));
        prop_assert_eq!(stored::tick_of(Some(new), one), Ok(mark));
        prop_assert_eq!(stored::tick_of(Some(old), one), Ok(mark));
        let expected = if new.is_of(other) { Ok(mark) } else { Err(Error::OtherEpoch) };
        prop_assert_eq!(stored::tick_of(Some(new), other), expected);
    }
}

/// Promise 1: a mark is read as the release that has stored it meant it, and stored in a form that this release reads.
#[test]
fn marks_of_releases_keep_their_form() {
    let tick = 60_000_000_000;
    let default = epoch_at(1_735_689_600_000);
    assert_eq!(Progress::kept(tick).map(Progress::mark), Some(tick), "0.1.0");
    assert_eq!(Progress::new(tick, default).to_keep(), 0x837e_11d6_002d_6844, "0.2.0");
    assert_eq!(stored::tick_of(Progress::kept(0x837e_11d6_002d_6844), default), Ok(tick), "0.2.0");
}

/// A server that has never minted has no mark, whatever the epoch.
#[test]
fn no_mark_is_the_first_tick() {
    assert_eq!(stored::tick_of(None, SETTINGS.epoch), Ok(0));
}

/// A mark is too far ahead of the clock only if a server that has minted as far ahead as it may could not have left it,
/// including the queue of a full shard and a mark that was late.
#[test]
fn a_mark_that_no_server_leaves_is_too_far_ahead() {
    for (reserve_ahead_ms, reach) in [(1000, MOST_LATE_REACH_MS), (9000, 9000)] {
        let settings = Settings { max_ahead_ms: 50, reserve_ahead_ms, ..SETTINGS };
        let furthest = NOW + 50 + QUEUE_MS + reach;
        for stored in [0, NOW, furthest] {
            assert_eq!(stored::too_far_ahead(stored, NOW, &settings), None);
        }
        assert_eq!(stored::too_far_ahead(furthest + 1, NOW, &settings), Some(furthest + 1 - NOW));
    }
}
