//! Properties of the crate: it reads what PostgreSQL has written, and nothing else.
#![allow(clippy::unwrap_used)]

mod checkpoint;
mod lists;
mod tree;
