//! idgen on a server and in its databases.

pub mod columns;
pub mod extension;
pub mod library;
pub mod lists;
pub mod preload;
pub mod releases;
pub mod status;
