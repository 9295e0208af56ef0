#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

// Each module uses only those above it.
pub mod id;
pub mod epoch;
pub mod text;
pub mod shard_set;
pub mod js;
pub mod foreign;

pub use epoch::{Epoch, make_id};
pub use id::{OutOfRange, Parts, Sequence, Shard, Tick, decode, max_id, min_id, shard_of};
