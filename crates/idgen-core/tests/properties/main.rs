//! Properties of the crate by subject: its promises for any input, and its behavior in edge cases. Each test names
//! the promise of docs/guarantees.md that it guards.
#![allow(clippy::unwrap_used)]

mod batch;
mod check;
mod horizon;
mod js;
mod lease;
mod mark;
mod mint;
mod origins;
mod position;
mod renew;
mod server;
mod shared;
mod slot;

use idgen_ids::js::JsShard;
use idgen_ids::{Sequence, Shard};

fn shard(number: i32) -> Shard {
    Shard::try_from(number).unwrap()
}

fn sequence(number: i32) -> Sequence {
    Sequence::try_from(number).unwrap()
}

fn js_shard(number: i32) -> JsShard {
    JsShard::try_from(number).unwrap()
}
