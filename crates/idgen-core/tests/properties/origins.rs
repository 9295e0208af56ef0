use idgen_core::mark::Progress;
use idgen_core::origins::{MARK_ORIGIN, Origins};
use proptest::collection::vec;
use proptest::prelude::*;

const PROGRESS: u64 = 0x000F_00BA;

/// What PostgreSQL's CheckPointReplicationOrigin() writes for these origins.
fn saved(origins: &[u16]) -> Vec<u8> {
    let mut file = 0x1257_DADE_u32.to_ne_bytes().to_vec();
    for origin in origins {
        file.extend(origin.to_ne_bytes());
        file.extend([0; 6]);
        file.extend(PROGRESS.to_ne_bytes());
    }
    file.extend([0x12, 0x34, 0x56, 0x78]); // the checksum
    file
}

proptest! {
    /// A server learns from its last checkpoint how many origins it needs room for; if the file is truncated or
    /// something else, it does not guess.
    #[test]
    fn saved_origins_are_counted(mut origins in vec(1..MARK_ORIGIN, 0..20), mark: bool, place: usize) {
        if mark {
            origins.insert(place % (origins.len() + 1), MARK_ORIGIN);
        }
        let file = saved(&origins);
        let counted = Origins::saved(&file).unwrap();
        prop_assert_eq!(counted, Origins { in_use: origins.len(), mark: Progress::kept(if mark { PROGRESS } else { 0 }) });
        prop_assert_eq!(counted.needed(), origins.len() + usize::from(!mark));
        prop_assert_eq!(Origins::saved(&file[1..]), None);
        let cut = place % file.len();
        let whole_states = cut >= 8 && (cut - 8).is_multiple_of(16);
        prop_assert_eq!(Origins::saved(&file[..cut]).is_some(), whole_states);
    }

    #[test]
    fn any_file_of_saved_origins_is_read_or_refused(bytes: Vec<u8>, states in vec(any::<u8>(), 0..100)) {
        Origins::saved(&bytes);
        let file = [&saved(&[])[..4], &states].concat();
        prop_assert_eq!(Origins::saved(&file).is_some(), states.len() % 16 == 4);
    }
}
