//! Properties of the crate: what PostgreSQL has written is read, and nothing else.
#![allow(clippy::unwrap_used)]

mod checkpoint;
mod tree;
