//! The layout of shared memory has a number, by which two versions of the library that use the same segment know
//! whether they may share it. The definitions of the layout are recorded here with this number, so that none changes
//! without it.

use crate::read;

/// The number `LAYOUT` of `src/pg/shmem.rs`, and the hash of the definitions.
const RECORDED: (u32, u64) = (1, 0x9717_69bb_a0d4_210b);

/// The definitions of everything in shared memory, and of the meaning of its numbers.
const DEFINITIONS: [(&str, &[&str]); 7] = [
    (
        "src/pg/shmem.rs",
        &[
            "pub struct Locked<",
            "pub struct Segment ",
            "struct Named ",
            "struct Header ",
            "const NAME:",
            "const ROOM:",
            "const ROOM_EACH:",
            "const KEPT:",
            "const REMOVED:",
        ],
    ),
    ("src/error.rs", &["reasons! {"]),
    (
        "crates/idgen-core/src/shared.rs",
        &[
            "pub struct Shared<",
            "pub struct Backend ",
            "pub struct Published<",
            "pub struct TxnFloor<",
            "const NONE:",
        ],
    ),
    (
        "crates/idgen-core/src/mark/state.rs",
        &["pub struct MarkState ", "pub struct Written ", "pub struct Clocks "],
    ),
    ("crates/idgen-core/src/slot.rs", &["pub struct Slot<", "pub struct Counters "]),
    ("crates/idgen-core/src/batch.rs", &["pub struct Batch "]),
    ("crates/idgen-core/src/position.rs", &["pub struct Position<"]),
];

/// Extracts a definition that begins a line of the source, without comments and blanks.
fn definition(source: &str, begin: &str) -> Option<String> {
    let rest = &source[source.find(&format!("\n{begin}"))? + 1..];
    let first = rest.lines().next()?;
    let lines = rest.lines().enumerate();
    let end = if first.ends_with(';') { 0 } else { lines.clone().find(|(_, line)| *line == "}")?.0 };
    let code = lines.take(end + 1).map(|(_, line)| line.split("//").next().unwrap_or_default());
    Some(code.flat_map(str::split_whitespace).collect())
}

/// Computes FNV-1a with 64 bits, which is the same in every version of Rust.
fn sum(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn recorded(read: impl Fn(&str) -> String) -> (u32, u64) {
    let texts = DEFINITIONS.iter().flat_map(|(path, begins)| {
        let source = read(path);
        let found =
            |begin: &&str| definition(&source, begin).unwrap_or_else(|| panic!("{path} has no {begin}"));
        begins.iter().map(found).collect::<Vec<_>>()
    });
    let sum = sum(&texts.collect::<String>());
    let number = definition(&read("src/pg/shmem.rs"), "pub const LAYOUT:").and_then(|text| {
        text.trim_end_matches(';').rsplit('=').next().and_then(|number| number.parse().ok())
    });
    (number.expect("a number"), sum)
}

#[test]
fn the_layout_of_shared_memory_has_its_number() {
    let (number, sum) = recorded(read);
    assert_eq!(
        (number, sum),
        RECORDED,
        "what shared memory contains has changed, or its number: raise LAYOUT in src/pg/shmem.rs unless it has been raised \
         since the last release, and record ({number}, {sum:#018x})"
    );
}

#[test]
fn a_changed_layout_is_found() {
    let changed = |path: &'static str, from: &'static str, to: &'static str| {
        recorded(|other| {
            let source = read(other);
            assert!(other != path || source.contains(from), "{from}");
            if other == path { source.replacen(from, to, 1) } else { source }
        })
    };
    let same = recorded(read);
    assert_eq!(changed("crates/idgen-core/src/slot.rs", "/// Runs handed out.", "/// Other words."), same);
    for (path, from, to) in [
        ("crates/idgen-core/src/slot.rs", "pub leases: u64,", "pub leases: u32,"),
        ("crates/idgen-core/src/mark/state.rs", "    renewed: bool,\n", ""),
        ("crates/idgen-core/src/batch.rs", "place: AtomicU64,", "position: AtomicU64,"),
        ("src/error.rs", "    BatchTooLarge \"batch_too_large\" ERRCODE_INVALID_PARAMETER_VALUE;\n", ""),
        ("src/pg/shmem.rs", "const ROOM: usize = 1 << 20;", "const ROOM: usize = 1 << 21;"),
        ("src/pg/shmem.rs", "pub const LAYOUT: u32 = 1;", "pub const LAYOUT: u32 = 2;"),
    ] {
        assert_ne!(changed(path, from, to), same, "{from}");
    }
}
