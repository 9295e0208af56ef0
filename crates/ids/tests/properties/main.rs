//! Properties of the crate, by subject: its promises for any input, and its behavior in edge cases. Each test names the
//! promise of docs/guarantees.md that it guards.
#![allow(clippy::unwrap_used)]

mod epoch;
mod foreign;
mod id;
mod js;
mod shard_set;
mod text;

use idgen_ids::{Sequence, Shard};

fn shard(number: i32) -> Shard {
    Shard::try_from(number).unwrap()
}

fn sequence(number: i32) -> Sequence {
    Sequence::try_from(number).unwrap()
}
