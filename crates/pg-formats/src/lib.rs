//! PostgreSQL's own formats that idgen reads: the [file](origins) in which a checkpoint saves replication origins, the
//! [text](tree) in which a catalog stores an expression, and settings that are [lists].
//!
//! This is a crate of its own so that the tests of pure functions do not need PostgreSQL. Those of the extension do,
//! because it is a library that PostgreSQL loads.
#![forbid(unsafe_code)]

pub mod lists;
pub mod origins;
pub mod tree;
