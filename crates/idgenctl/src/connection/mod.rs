//! Sessions on servers.

mod connecting;
pub mod server;
pub mod session;
pub mod settings;
pub mod waiting;
