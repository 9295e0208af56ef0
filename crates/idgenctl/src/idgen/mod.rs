//! idgen on a server and in its databases.

pub mod columns;
pub mod library;
pub mod preload;
