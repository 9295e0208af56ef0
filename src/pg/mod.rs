//! PostgreSQL behind safe functions, by subject. No other module contains `unsafe`.

pub mod backend;
pub mod call;
pub mod compat;
pub mod local;
pub mod origin;
pub mod planner;
pub mod setting;
pub mod shmem;
pub mod standbys;
