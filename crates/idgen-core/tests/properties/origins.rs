use std::collections::HashSet;

use idgen_core::Epoch;
use idgen_core::id::MAX_TICK;
use idgen_core::origins::Progress;
use proptest::prelude::*;

fn epoch_at(ms: i64) -> Epoch {
    Epoch::from_unix_ms(ms).unwrap()
}

fn epoch() -> impl Strategy<Value = Epoch> {
    (Epoch::MIN_UNIX_MS..=Epoch::MAX_UNIX_MS).prop_map(epoch_at)
}

/// Promise 1: a mark of another epoch is recognized, for epochs that people confuse: some milliseconds, seconds,
/// hours, days or years apart, or any midnight of these times.
#[test]
fn a_mark_of_another_epoch_is_known() {
    let default = epoch_at(1_735_689_600_000);
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

proptest! {
    /// The origin's progress never goes back, so a later mark has to be greater progress, and one of any epoch
    /// greater than each that 0.1.0 has left.
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

    /// A mark is of its own epoch, and one that 0.1.0 has left may be of any.
    #[test]
    fn a_mark_is_of_its_epoch(mark in 1..=MAX_TICK + 1, epoch in epoch()) {
        prop_assert!(Progress::new(mark, epoch).is_of(epoch));
        let old = Progress::kept(mark).unwrap();
        prop_assert!(old.is_of(epoch));
        prop_assert_eq!(old.mark(), mark);
        prop_assert_eq!(Progress::kept(0), None);
    }
}
