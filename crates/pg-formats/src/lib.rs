//! PostgreSQL's own formats that idgen reads: the [file](origins) in which a checkpoint saves replication origins, and
//! the [text](tree) in which a catalog stores an expression.
//!
//! This is a crate of its own so that the tests of pure functions do not need PostgreSQL. Those of the extension do,
//! because it is a library that PostgreSQL loads.
#![forbid(unsafe_code)]

pub mod origins;
pub mod tree;
