//! The settings that govern minting, as a value that a call reads once.

use idgen_ids::Epoch;

/// How many milliseconds of a shard waiting calls may take in advance: enough for a thousand backends with leases of
/// 64. It is bounded because a canceled call loses what it has taken.
pub const QUEUE_MS: u64 = 64;

/// The settings of a call. They do not change while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `idgen.epoch`: the epoch from which the stored mark has to count.
    pub epoch: Epoch,
    /// `idgen.max_ahead`: how many milliseconds ids may run ahead of the clock.
    pub max_ahead_ms: u64,
    /// `idgen.max_wait`: how many milliseconds a call may wait.
    pub max_wait_ms: u64,
    /// `idgen.max_lease`: the longest lease.
    pub max_lease: u64,
    /// `idgen.reserve_ahead`: how many milliseconds ahead of the ids the durable mark is written.
    pub reserve_ahead_ms: u64,
    /// `idgen.max_clock_jump`: the forward jump of the clock, in milliseconds, that stops minting; `None` allows
    /// any.
    pub max_clock_jump_ms: Option<u64>,
}
