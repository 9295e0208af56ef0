//! A backend's lease: a short run of positions it hands out without touching shared memory.
#![forbid(unsafe_code)]

use crate::layout::{Position, Shard, Tick, tick_of};
use crate::slot::Run;

/// The positions a backend holds for one shard.
///
/// A lease lives only while the clock shows the very millisecond in which it was granted. That one
/// comparison keeps three promises. No id is older than its call, and none is further ahead of the
/// clock than it was when granted, also where the clock has stepped back since. And ids of different
/// backends are in order to the millisecond of their calls even where the shard runs ahead of the
/// clock: positions in a lease that outlived its millisecond would come after greater ones that
/// other backends have handed out meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    shard: Option<Shard>,
    granted: Tick,
    next: Position,
    end: Position,
    length: u64,
}

impl Lease {
    /// No lease: every call must ask the shard.
    pub const NONE: Lease = Lease { shard: None, granted: 0, next: 0, end: 0, length: 0 };

    /// The next position for `shard`, where the lease is still good: for this shard, granted in the
    /// millisecond `now`, not used up and not before the shared `floor`.
    #[inline]
    pub fn next(&mut self, shard: Shard, now: Tick, floor: Tick) -> Option<Position> {
        let good = self.shard == Some(shard)
            && self.granted == now
            && self.next < self.end
            && tick_of(self.next) >= floor;
        good.then(|| {
            let position = self.next;
            self.next += 1;
            position
        })
    }

    /// How many positions to ask the shard for: 1 for a backend that asks now and then, twice the
    /// last run for one that asks for the same shard in the same millisecond again, up to `max`.
    #[inline]
    pub fn want(&self, shard: Shard, now: Tick, max: u64) -> u64 {
        if self.shard == Some(shard) && self.granted == now { (self.length * 2).clamp(1, max) } else { 1 }
    }

    /// Replaces the lease by a run that the shard granted when the clock showed `now`, and hands
    /// out its first position.
    #[inline]
    pub fn grant(&mut self, shard: Shard, now: Tick, run: Run) -> Position {
        *self = Lease {
            shard: Some(shard),
            granted: now,
            next: run.start + 1,
            end: run.end,
            length: run.count(),
        };
        run.start
    }
}
