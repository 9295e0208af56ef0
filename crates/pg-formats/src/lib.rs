//! What idgen reads in PostgreSQL's own formats: the [file](origins) in which a checkpoint saves replication origins, and
//! the [text](tree) in which a catalog stores an expression.
//!
//! This is a crate of its own, so that the tests of pure functions need no PostgreSQL: those of the extension, a library
//! that PostgreSQL loads, run in a backend.
#![forbid(unsafe_code)]

pub mod origins;
pub mod tree;
