//! A model of two servers. It drives the very code that runs in PostgreSQL, `mint`, `renew` and `horizon`, through
//! every interleaving of a small world, and checks the promises in each state that it reaches.
//!
//! The steps between which a crash can happen are steps of the model: a call continues until it visits a slot,
//! reaches one of the points of a renewal, or sleeps. Clocks jump at will. Claims are left out: any backend may
//! renew at any time, which is more than they allow. Memory is sequentially consistent here; `loom.rs` tests what
//! that requires.
//!
//! Worlds that take longer than a few seconds are ignored unless they are asked for, as `scripts/test core` does.
#![allow(clippy::unwrap_used)]

mod horizon;
mod minting;
mod replay;
mod world;
