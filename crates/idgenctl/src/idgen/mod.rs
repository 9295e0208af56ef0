//! idgen on a server and in its databases.

pub mod extension;
pub mod lists;
pub mod preload;
pub mod releases;
pub mod status;
