use pg_formats::origins::saved;
use proptest::collection::vec;
use proptest::prelude::*;

/// The file that PostgreSQL's CheckPointReplicationOrigin() writes for these origins.
fn written(origins: &[(u16, u64)]) -> Vec<u8> {
    let mut file = 0x1257_DADE_u32.to_ne_bytes().to_vec();
    for (origin, progress) in origins {
        file.extend(origin.to_ne_bytes());
        file.extend([0; 6]);
        file.extend(progress.to_ne_bytes());
    }
    file.extend([0x12, 0x34, 0x56, 0x78]); // the checksum
    file
}

proptest! {
    /// A server learns from its last checkpoint for how many origins it needs room. If the file is truncated or has
    /// another format, it does not guess.
    #[test]
    fn saved_origins_are_read(origins in vec(any::<(u16, u64)>(), 0..20), place: usize) {
        let file = written(&origins);
        prop_assert_eq!(saved(&file[1..]), None);
        let cut = place % file.len();
        let whole_states = cut >= 8 && (cut - 8).is_multiple_of(16);
        prop_assert_eq!(saved(&file[..cut]).is_some(), whole_states);
        prop_assert_eq!(saved(&file), Some(origins));
    }

    #[test]
    fn any_file_of_saved_origins_is_read_or_refused(bytes: Vec<u8>, states in vec(any::<u8>(), 0..100)) {
        saved(&bytes);
        let file = [&written(&[])[..4], &states].concat();
        prop_assert_eq!(saved(&file).is_some(), states.len() % 16 == 4);
    }
}
