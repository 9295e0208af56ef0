//! A set of shards, in the syntax of the setting `idgen.allowed_shards`: `0-4095,5000`.

use std::fmt;

use crate::id::{SHARDS, Shard};
use crate::text::excerpt;

/// A set of logical shards.
///
/// ```
/// use idgen_ids::shard_set::ShardSet;
/// use idgen_ids::shard_of;
///
/// // Whether the server that mints for these shards has minted an id.
/// let allowed = ShardSet::parse("0-4095, 5000").unwrap();
/// assert!(allowed.contains(shard_of(11_637_205_501_278_089)));
///
/// assert!(ShardSet::parse("8192").is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardSet([u64; SHARDS / 64]);

impl ShardSet {
    /// All 8192 shards.
    pub const ALL: ShardSet = ShardSet([u64::MAX; SHARDS / 64]);
    /// The empty set. It cannot be written as a list.
    pub const NONE: ShardSet = ShardSet([0; SHARDS / 64]);

    /// Parses a comma-separated list of shards and ranges of shards. An empty list means all shards.
    ///
    /// # Errors
    /// A sentence that says which entry is wrong, and why.
    pub fn parse(text: &str) -> Result<ShardSet, String> {
        if text.trim().is_empty() {
            return Ok(ShardSet::ALL);
        }
        let mut set = ShardSet::NONE;
        for entry in text.split(',').map(str::trim) {
            let (first, last) = match entry.split_once('-') {
                Some((first, last)) => (shard(first, entry)?, shard(last, entry)?),
                None => (shard(entry, entry)?, shard(entry, entry)?),
            };
            if first > last {
                return Err(format!("The range \"{}\" ends before it begins.", excerpt(entry)));
            }
            for index in first..=last {
                set.0[index / 64] |= 1 << (index % 64);
            }
        }
        Ok(set)
    }

    /// Whether the set contains `shard`.
    pub fn contains(&self, shard: Shard) -> bool {
        let index = shard.index();
        self.0[index / 64] >> (index % 64) & 1 == 1
    }

    /// The set with `shard` added.
    #[must_use]
    pub fn with(mut self, shard: Shard) -> ShardSet {
        self.0[shard.index() / 64] |= 1 << (shard.index() % 64);
        self
    }

    /// The set with `shard` removed.
    #[must_use]
    pub fn without(mut self, shard: Shard) -> ShardSet {
        self.0[shard.index() / 64] &= !(1 << (shard.index() % 64));
        self
    }
}

/// The list in its shortest form, which [`ShardSet::parse`] can read: `0-4095,5000`. The empty set is shown as an empty
/// string, which would be read as all shards.
///
/// ```
/// use idgen_ids::shard_set::ShardSet;
///
/// assert_eq!(ShardSet::parse("7, 5,3-4").unwrap().to_string(), "3-5,7");
/// ```
impl fmt::Display for ShardSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shards = Shard::all().filter(|shard| self.contains(*shard)).map(Shard::index).peekable();
        let mut comma = "";
        while let Some(first) = shards.next() {
            let mut last = first;
            while let Some(next) = shards.next_if_eq(&(last + 1)) {
                last = next;
            }
            write!(f, "{comma}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            comma = ",";
        }
        Ok(())
    }
}

fn shard(text: &str, entry: &str) -> Result<usize, String> {
    text.trim().parse::<usize>().ok().filter(|index| *index < SHARDS).ok_or_else(|| {
        format!("\"{}\" is not a shard or range of shards between 0 and {}.", excerpt(entry), SHARDS - 1)
    })
}
