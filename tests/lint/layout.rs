//! The layout of shared memory has a number, by which two versions of the library that use the same segment know
//! whether they may share it. The definitions of each layout are recorded here with its number, so that none changes
//! without it.

use crate::{read, regex};

/// The number `LAYOUT` of `src/pg/shmem.rs`, the hash of the definitions, and the first version that has them. Once this
/// is released, its line stays as it is, and a change takes the next number and a new line.
const RECORDED: [(&str, u64, &str); 1] = [("1", 0x3eae_b9e7_bd09_2364, "0.2.0")];

/// The definitions of everything in shared memory, and of the meaning of its numbers, by the beginnings of their lines.
const DEFINITIONS: [(&str, &str); 7] = [
    (
        "src/pg/shmem.rs",
        "pub struct Locked<|pub struct Segment |struct Named |struct Header |const NAME:|const ROOM:|const ROOM_EACH:|\
         const KEPT:|const REMOVED:",
    ),
    ("src/error.rs", r"reasons! \{"),
    (
        "crates/idgen-core/src/shared.rs",
        "pub struct Shared<|pub struct Backend |pub struct Published<|pub struct TxnFloor<|const NONE:",
    ),
    ("crates/idgen-core/src/mark/state.rs", "pub struct MarkState |pub struct Written |pub struct Clocks "),
    ("crates/idgen-core/src/slot.rs", "pub struct Slot<|pub struct Counters "),
    ("crates/idgen-core/src/batch.rs", "pub struct Batch "),
    ("crates/idgen-core/src/position.rs", "pub struct Position<"),
];

/// A definition that begins a line of the source, without comments and blanks.
fn definition(path: &str, source: &str, begin: &str) -> String {
    let whole = regex(&format!(r"(?m)^{begin}(?:.*;$|(?s:.*?)^\}}$)")).find(source);
    let code = whole.unwrap_or_else(|| panic!("{path} has no {begin}")).as_str();
    regex(r"//.*|\s").replace_all(code, "").into_owned()
}

/// The number of the layout, and the hash of the definitions.
fn layout(read: impl Fn(&str) -> String) -> (String, u64) {
    let texts = DEFINITIONS.iter().flat_map(|(path, begins)| {
        let source = read(path);
        begins.split('|').map(|begin| definition(path, &source, begin)).collect::<Vec<_>>()
    });
    // FNV-1a with 64 bits, which is the same in every version of Rust.
    let sum = |sum: u64, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let sum = texts.collect::<String>().bytes().fold(0xcbf2_9ce4_8422_2325, sum);
    let number = definition("src/pg/shmem.rs", &read("src/pg/shmem.rs"), "pub const LAYOUT: u32 = ");
    (number.trim_end_matches(';').rsplit('=').next().unwrap_or_default().to_owned(), sum)
}

#[test]
fn the_layout_of_shared_memory_has_its_number() {
    let (number, sum) = layout(read);
    let recorded = RECORDED.last().map(|(number, sum, _)| ((*number).to_owned(), *sum));
    assert_eq!(
        Some((number.clone(), sum)),
        recorded,
        "what shared memory contains has changed, or its number: if the last line of RECORDED is of a release, raise LAYOUT \
         in src/pg/shmem.rs and add a line; otherwise, correct that line to {number:?}, {sum:#018x}"
    );
    let numbers: Vec<String> = RECORDED.iter().map(|(number, ..)| (*number).to_owned()).collect();
    let expected: Vec<String> = (1..=RECORDED.len()).map(|number| number.to_string()).collect();
    assert_eq!(numbers, expected, "each layout has a number of its own");
}
