//! Sessions of servers.

pub mod server;
pub mod session;
pub mod synchronous_names;
pub mod waiting;
