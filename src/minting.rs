//! The host in which ids are minted: this server, or in tests one that may be wrong.

#[cfg(not(feature = "pg_test"))]
pub use crate::host::{host, host_at_hand};
#[cfg(feature = "pg_test")]
pub use crate::testing::mutant::{host, host_at_hand};
