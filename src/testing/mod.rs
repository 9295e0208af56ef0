//! What only the test build has: a host that can be wrong, points at which a backend dies, and tests inside a backend.
//! A release contains none of this.

#[cfg(feature = "pg_test")]
pub mod fault;
#[cfg(feature = "pg_test")]
pub mod mutant;
#[cfg(feature = "pg_test")]
pub mod mutation;
#[cfg(feature = "pg_test")]
pub mod settings;
mod pg_tests;
