//! The servers given, and which of them form clusters.

pub mod clock;
pub mod cluster;
pub mod fleet;
