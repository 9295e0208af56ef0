//! The judge of all tests: takes the calls of clients, and says which promise of docs/guarantees.md they break. It
//! knows nothing of the program, and of the servers only what it is told: their clocks, and which one takes over from
//! which.
//!
//! A test that sees calls begin and end reports both to [`Judge`] ([`Judge::begin`], [`Judge::given`],
//! [`Judge::ended`]), as the simulator does. A test that keeps a journal passes it to [`History`], as the campaign
//! does.
#![forbid(unsafe_code)]
#![allow(missing_docs)] // The tests are the only users, and most names say enough.

mod history;
mod judge;
mod order;
mod promise;
mod run;
mod seen;
#[cfg(test)]
mod tests;

pub use history::{Answer, ClockSet, Event, History, Moment, Record};
pub use judge::{Call, Counts, Judge, Lost, Sequence, Session};
pub use promise::{Broken, Caller, Promise};
pub use run::{Kind, Run, Slot};
