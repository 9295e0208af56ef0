//! The protocol with which **idgen** mints each id only once. It contains no PostgreSQL and no `unsafe`.
//!
//! It is for the extension, and may change with every version of it. The crate [`idgen_ids`] has what an application or
//! a router needs.
//!
//! | module | content; each uses only those above it |
//! |---|---|
//! | [`settings`], [`error`] | the settings of a call, and why it fails |
//! | [`position`] | positions in time, and the layouts that are minted |
//! | [`slot`], [`lease`], [`batch`], [`mark`] | the state machines, and the stored form of the mark |
//! | [`shared`] | the state that processes share, over a small trait for locks |
//! | [`host`] | the effects that the protocol needs: clock, WAL, standbys, sleep, interrupts |
//! | [`deadline`] | how long a call may still wait |
//! | [`mark::renewal`] | the steps that keep the mark ahead of the ids |
//! | [`mint`], [`handover`] | the path to an id; how a shard, or all of them, go from one server to another |
//! | [`horizon`], [`check`] | the safe horizon, a probe |
#![forbid(unsafe_code)]

pub mod batch;
pub mod check;
pub mod deadline;
pub mod error;
pub mod handover;
pub mod horizon;
pub mod host;
pub mod lease;
pub mod mark;
pub mod mint;
pub mod position;
pub mod settings;
pub mod shared;
pub mod slot;
