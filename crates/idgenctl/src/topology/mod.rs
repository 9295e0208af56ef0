//! Which servers there are, and which of them are a cluster.

pub mod clock;
pub mod cluster;
pub mod fleet;
