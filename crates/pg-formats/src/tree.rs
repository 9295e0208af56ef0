//! The text in which PostgreSQL stores an expression (`pg_node_tree`).

use memchr::memchr_iter;

/// The text before the bracket and the bytes of a four-byte constant, such as an `integer`.
const FOUR_BYTES: &[u8] = b":constvalue 4 ";

/// Whether an expression contains this number as a constant of type `integer`, or another constant with the same
/// four bytes. Among the 8192 schemas of a database, this finds those that might mint for a shard many times faster
/// than reading their defaults would.
///
/// PostgreSQL writes the bytes of a whole or half word in memory order, each as a number that may be negative
/// (`outDatum` in `outfuncs.c`).
///
/// ```
/// use pg_formats::tree::has_integer;
///
/// let tree = b"{CONST :consttype 23 :constvalue 4 [ -56 0 0 0 0 0 0 0 ]}";
/// # #[cfg(target_endian = "little")]
/// assert!(has_integer(tree, 200) && !has_integer(tree, 56));
/// ```
pub fn has_integer(tree: &[u8], number: i32) -> bool {
    // Brackets are rare, which is why this is fast.
    memchr_iter(b'[', tree).any(|place| {
        let (before, after) = tree.split_at(place);
        before.ends_with(FOUR_BYTES)
            && constant(after).is_some_and(|constant| constant.to_le_bytes()[..4] == number.to_le_bytes())
    })
}

/// The number whose bytes follow a bracket.
fn constant(text: &[u8]) -> Option<u64> {
    let written = text.split(|byte| *byte == b' ').skip(1);
    let read = |byte| str::from_utf8(byte).ok()?.parse::<i16>().ok();
    let mut bytes = [0; 8];
    let mut count = 0;
    for (place, byte) in bytes.iter_mut().zip(written.map_while(read)) {
        *place = byte.to_le_bytes()[0];
        count += 1;
    }
    match count {
        8 => Some(u64::from_ne_bytes(bytes)),
        4 => bytes.first_chunk().map(|half| u32::from_ne_bytes(*half).into()),
        _ => None,
    }
}
