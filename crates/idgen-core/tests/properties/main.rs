//! Properties of the crate by subject: its promises for any input, and its behavior in edge cases. Each test names
//! the promise of docs/guarantees.md that it guards.
#![allow(clippy::unwrap_used)]

mod batch;
mod check;
mod handover;
mod horizon;
mod host;
mod lease;
mod mark;
mod mint;
mod position;
mod renewal;
mod shared;
mod slot;
mod stored;

use idgen_ids::js::JsShard;
use idgen_ids::{Epoch, Sequence, Shard, Tick, decode, min_id};

fn shard(number: i32) -> Shard {
    Shard::try_from(number).unwrap()
}

fn sequence(number: i32) -> Sequence {
    Sequence::try_from(number).unwrap()
}

fn js_shard(number: i32) -> JsShard {
    JsShard::try_from(number).unwrap()
}

const fn epoch_at(unix_ms: i64) -> Epoch {
    match Epoch::from_unix_ms(unix_ms) {
        Ok(epoch) => epoch,
        Err(_) => panic!("no epoch"),
    }
}

/// The first id of shard 5 in a millisecond.
fn first_id(tick: Tick) -> i64 {
    min_id(tick) | 5 << 10
}

/// The first millisecond of a JavaScript-safe id's second.
fn js_tick(id: i64) -> Tick {
    (id >> 20) as Tick * 1000
}

fn tick_of(id: i64) -> Tick {
    decode(id).tick
}
