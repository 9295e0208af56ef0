//! Raw PostgreSQL calls behind safe functions, by subject.

pub mod backend;
pub mod call;
pub mod origin;
pub mod setting;
pub mod standbys;
