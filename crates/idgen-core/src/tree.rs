//! The text that PostgreSQL stores an expression as (`pg_node_tree`).

use std::sync::LazyLock;

use memchr::memmem::Finder;

/// What comes before the bytes of a constant of four bytes, which is what an `integer` is.
const FOUR_BYTES: &str = ":constvalue 4 [ ";

static FINDER: LazyLock<Finder> = LazyLock::new(|| Finder::new(FOUR_BYTES));

/// Whether an expression has this number as a constant of type `integer`; or another constant of four bytes that are
/// the same. In the 8192 schemas of a database it finds those that could mint for a shard, many times as fast as
/// reading their defaults would.
///
/// PostgreSQL writes the bytes as they lie in memory, as a word or half of one, each as a number that may be negative
/// (`outDatum` in `outfuncs.c`).
///
/// ```
/// use idgen_core::tree::has_integer;
///
/// let tree = b"{CONST :consttype 23 :constvalue 4 [ -56 0 0 0 0 0 0 0 ]}";
/// # #[cfg(target_endian = "little")]
/// assert!(has_integer(tree, 200) && !has_integer(tree, 56));
/// ```
pub fn has_integer(tree: &[u8], number: i32) -> bool {
    FINDER.find_iter(tree).any(|place| {
        let rest = tree[place + FOUR_BYTES.len()..].split(|byte| *byte == b' ');
        let bytes = rest.map_while(|byte| str::from_utf8(byte).ok()?.parse::<i16>().ok());
        let bytes: Vec<u8> = bytes.map(|byte| byte.to_le_bytes()[0]).take(8).collect();
        let word = <[u8; 8]>::try_from(&bytes[..]).map(|word| i64::from_ne_bytes(word).cast_unsigned());
        let half = <[u8; 4]>::try_from(&bytes[..]).map(|half| u32::from_ne_bytes(half).into());
        word.or(half).is_ok_and(|constant| constant.to_le_bytes()[..4] == number.to_le_bytes())
    })
}
