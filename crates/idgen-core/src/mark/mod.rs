//! The durable high-water mark, which separates what has been issued from what may be issued after a crash.
//!
//! | module | content |
//! |---|---|
//! | [`state`] | the state of renewals, as a state machine without effects |
//! | [`stored`] | the form in which the mark is stored, with the rule of the epoch |
//! | [`renewal`] | the steps around the state, in the order that the guarantee requires |

pub mod renewal;
pub mod state;
pub mod stored;

pub use state::{CLAIM_MS, Clocks, MarkState, Plan, Unplanned, Written, runs_low};
pub use stored::{MOST_LATE_REACH_MS, Progress};
