//! A backend's lease: a short run of positions that it hands out without touching shared memory.

use idgen_ids::{Shard, Tick};

use crate::position::{Position, Run};

/// The positions that a backend holds for one shard.
///
/// A lease is valid only while the clock shows the millisecond in which it was granted. This one comparison keeps three
/// promises. No id is older than its call. No id is further ahead of the clock than when it was granted, even if the
/// clock has stepped back since. And ids of different backends are in the order of their calls, to the millisecond,
/// even if the shard runs ahead of the clock: a lease that outlived its millisecond would hand out positions after
/// other backends had handed out greater ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    shard: Option<Shard>,
    granted: Tick,
    rest: Run<Shard>,
    length: u64,
}

impl Lease {
    /// No lease: every call must ask the shard.
    pub const NONE: Lease = Lease { shard: None, granted: 0, rest: Run::EMPTY, length: 0 };

    /// The next position for `shard`, if the lease is still valid: for this shard, granted in the millisecond `now`,
    /// not used up and not before the shared `floor`.
    #[inline]
    pub fn next(&mut self, shard: Shard, now: Tick, floor: Tick) -> Option<Position<Shard>> {
        let good = self.shard == Some(shard) && self.granted == now && self.rest.start.tick() >= floor;
        if good { self.rest.take_first() } else { None }
    }

    /// The number of positions to request from the shard: 1 for a backend that mints now and then, twice the last run
    /// for one that returns to the same shard within the same millisecond, up to `max`.
    #[inline]
    pub fn want(&self, shard: Shard, now: Tick, max: u64) -> u64 {
        if self.shard == Some(shard) && self.granted == now { (self.length * 2).clamp(1, max) } else { 1 }
    }

    /// Replaces the lease with a run that the shard granted when the clock showed `now`, and hands out its first
    /// position.
    #[inline]
    pub fn grant(&mut self, shard: Shard, now: Tick, run: Run<Shard>) -> Position<Shard> {
        debug_assert!(run.count() > 0 && run.start.tick() >= now, "{run:?} at {now}");
        *self = Lease {
            shard: Some(shard),
            granted: now,
            rest: Run { start: run.start.plus(1), end: run.end },
            length: run.count(),
        };
        run.start
    }
}
