//! The ids of **idgen**: their bits, and the protocol that mints each id only once. No PostgreSQL, no `unsafe`.
//!
//! An application that decodes ids, or a router, needs only the items at the top of the crate: [`shard_of`],
//! [`decode`], [`Epoch`], [`text`] and [`foreign`].
//!
//! ```
//! use idgen_core::{Epoch, decode, shard_of, text};
//!
//! let id = 11_637_205_501_278_089;
//! assert_eq!(i32::from(shard_of(id)), 1341);
//! assert_eq!(text::shortcode(id), "pV_oMFPeJ");
//!
//! let epoch = Epoch::parse("2011-08-24T21:07:01.721Z").unwrap();
//! assert_eq!(epoch.unix_ms_of(decode(id).tick), 1_315_607_284_721);    // 2011-09-09 22:28:04.721 UTC
//! ```
//!
//! The rest is for the extension, and may change with every version of it.
//!
//! | module | content |
//! |---|---|
//! | [`id`], [`position`], [`epoch`], [`shard_set`] | the bits, positions in time, the epoch, lists of shards |
//! | [`foreign`], [`text`], [`js`] | other systems' ids, texts, JavaScript-safe ids |
//! | [`slot`], [`lease`], [`batch`], [`mark`] | the state machines |
//! | [`shared`] | the words that processes share without a lock |
//! | [`server`] | what the protocol needs from a server: one trait |
//! | [`mint`], [`renew`], [`horizon`], [`check`] | the path to an id, the mark, the safe horizon, a probe |
//! | [`origins`] | the mark as a replication origin keeps it |
#![forbid(unsafe_code)]

pub mod batch;
pub mod check;
pub mod epoch;
pub mod foreign;
pub mod horizon;
pub mod id;
pub mod js;
pub mod lease;
pub mod mark;
pub mod mint;
pub mod origins;
pub mod position;
pub mod renew;
pub mod server;
pub mod shard_set;
pub mod shared;
pub mod slot;
pub mod text;

pub use epoch::Epoch;
pub use id::{OutOfRange, Parts, Sequence, Shard, Tick, decode, make_id, max_id, min_id, shard_of};
