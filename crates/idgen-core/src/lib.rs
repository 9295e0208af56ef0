//! The protocol that mints each id of **idgen** only once. No PostgreSQL, no `unsafe`.
//!
//! It is for the extension, and may change with every version of it. What an application or a router needs is in the
//! crate [`idgen_ids`].
//!
//! | module | content |
//! |---|---|
//! | [`position`] | positions in time, and the layouts that are minted |
//! | [`slot`], [`lease`], [`batch`], [`mark`] | the state machines |
//! | [`shared`] | the words that processes share without a lock |
//! | [`server`] | what the protocol needs from a server: one trait |
//! | [`mint`], [`renew`], [`horizon`], [`check`] | the path to an id, the mark, the safe horizon, a probe |
//! | [`origins`] | the replication origin that keeps the mark, and the room that origins need |
//! | [`tree`] | the text in which PostgreSQL stores an expression |
#![forbid(unsafe_code)]

pub mod batch;
pub mod check;
pub mod horizon;
pub mod lease;
pub mod mark;
pub mod mint;
pub mod origins;
pub mod position;
pub mod renew;
pub mod server;
pub mod shared;
pub mod slot;
pub mod tree;
