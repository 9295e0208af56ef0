//! The SQL entry points, by topic. `sql/idgen.sql` declares them; a released symbol is never dropped.
#![allow(
    clippy::result_large_err,
    reason = "pgrx takes an ErrorReport by value; it is made once, for an error"
)]

mod decode;
mod forms;
mod generate;
mod handover;
mod layouts;
mod shards;
mod status;
mod times;
mod versions;
