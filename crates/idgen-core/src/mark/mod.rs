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
pub use stored::Progress;

/// How far a mark may reach after one that was late, in milliseconds. The next incarnation of the server begins there,
/// and has to mint within the default of `idgen.max_wait`; and a process that was suspended must not write a mark hours
/// ahead.
pub const MOST_LATE_REACH_MS: u64 = 4000;
