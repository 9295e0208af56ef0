//! The errors of a call.

use idgen_ids::Shard;

/// The reason why a call returns no id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The batch has more ids than the shard can provide within the time that a call may wait.
    BatchTooLarge {
        /// The number of ids requested.
        count: u64,
        /// The most that the shard can provide now.
        most: u64,
    },
    /// The shard could provide the batch within that time, if it did not have to provide others first.
    BatchesBefore {
        /// The requested shard.
        shard: Shard,
        /// The number of ids requested.
        count: u64,
        /// The number of ids that the earlier batches still have to take.
        ahead: u64,
    },
    /// The configuration of this server no longer lets it mint for the shard.
    ShardNotAllowed {
        /// The requested shard.
        shard: Shard,
    },
    /// The shard is closed on this server.
    ShardClosed {
        /// The requested shard.
        shard: Shard,
    },
    /// The shard is as far ahead of the system clock as it may be, because of demand for more ids than it has.
    ShardFull {
        /// The requested shard.
        shard: Shard,
        /// The limit in `idgen.max_ahead`, in milliseconds.
        max_ahead_ms: u64,
        /// How long the call waited, in milliseconds.
        waited_ms: u64,
    },
    /// Ids of earlier incarnations of the server may lie too far ahead of the system clock, and waiting did not help.
    ClockBehindMark {
        /// How far the mark left by them is ahead of the clock, in milliseconds.
        by_ms: u64,
        /// The limit in `idgen.max_ahead`, in milliseconds.
        max_ahead_ms: u64,
        /// How long the call waited, in milliseconds.
        waited_ms: u64,
    },
    /// The next id would lie too far ahead of the system clock, which was set back or is behind the ids of this
    /// incarnation for another reason, and waiting did not help.
    ClockBehind {
        /// The requested shard.
        shard: Shard,
        /// How far the next id is ahead of the clock, in milliseconds.
        by_ms: u64,
        /// The limit in `idgen.max_ahead`, in milliseconds.
        max_ahead_ms: u64,
        /// How long the call waited, in milliseconds.
        waited_ms: u64,
    },
    /// The furthest id minted lies too far ahead of the clock, and waiting did not help.
    ClockBehindIds {
        /// How far the id is ahead of the clock, in milliseconds.
        by_ms: u64,
        /// The limit in `idgen.max_ahead`, in milliseconds.
        max_ahead_ms: u64,
        /// How long the call waited, in milliseconds.
        waited_ms: u64,
    },
    /// The system clock stands still, and waiting did not help.
    ClockStands {
        /// How long the call waited, in milliseconds.
        waited_ms: u64,
    },
    /// The system clock jumped forward by more than `idgen.max_clock_jump`.
    ClockJumped {
        /// How far, in milliseconds.
        by_ms: u64,
    },
    /// The high-water mark did not become durable in time.
    MarkNotRenewed {
        /// How long the call waited, in milliseconds.
        waited_ms: u64,
    },
    /// The server is in recovery.
    Recovery,
    /// The stored mark counts from another epoch.
    OtherEpoch,
    /// The horizon was requested while there are prepared transactions.
    Prepared {
        /// How many there are.
        count: usize,
    },
    /// The id to advance past lies in the future.
    AdvanceTooFar {
        /// How far the id is ahead of the clock, in milliseconds.
        by_ms: u64,
        /// The limit in `idgen.max_ahead`, in milliseconds.
        max_ahead_ms: u64,
    },
    /// The time to raise the mark past lies in the future.
    RaiseTooFar {
        /// How far the time is ahead of the clock, in milliseconds.
        by_ms: u64,
        /// The limit in `idgen.max_ahead`, in milliseconds.
        max_ahead_ms: u64,
    },
    /// The 2^40 ms since the epoch are used up.
    Exhausted,
}
