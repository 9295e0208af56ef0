//! The state of renewals: which ticks may be issued, and what must happen before more may be.
//!
//! A mark is written to the WAL, flushed, and acknowledged by synchronous standbys before it is published as the limit.
//! Hence `issued < limit <= durable` at every moment, and a server that starts from the stored mark repeats nothing.
//! Synchronous standbys may be configured at any time, so a limit that they have not acknowledged is kept separately:
//! it ceases to be valid as soon as commits begin to wait. The caller does the writing. This module is only the state,
//! so that tests can take it through any order of steps.

use idgen_ids::Tick;
use idgen_ids::id::MAX_TICK;

use crate::settings::{QUEUE_MS, Settings};

/// How long a backend that renews the mark keeps others from doing the same, in milliseconds, unless it extends its
/// claim. Two renewals at once would be safe but wasteful. Because the claim expires, a backend that dies during a
/// renewal does not block others for good.
pub const CLAIM_MS: u64 = 100;

/// The smallest move of the clock that counts as a step, in milliseconds. A smaller difference may be the time
/// between two readings.
const STEP_MS: i64 = 10;

/// A mark that standbys have not acknowledged is written again after this time, in milliseconds. It is longer than a
/// slow standby takes to acknowledge, so that such a standby does not have one more flush to do before the next mark.
const WRITE_AGAIN_MS: u64 = 2000;

/// The system clock and the time since boot, read together. The latter cannot be set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Clocks {
    /// CLOCK_REALTIME as a tick.
    pub now: Tick,
    /// CLOCK_BOOTTIME in milliseconds.
    pub boot_ms: u64,
}

/// A mark that this incarnation of the server has written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Written {
    /// The mark: ticks below it may be issued once it is durable.
    pub tick: Tick,
    /// The end of its WAL record.
    pub lsn: u64,
    /// The time at which it was written, in microseconds from an arbitrary moment.
    pub at_us: u64,
}

/// The state of the mark, in shared memory behind a lock of its own. All zero at start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct MarkState {
    loaded: bool,
    renewed: bool,
    /// Whether standbys had to acknowledge marks when `written` was written.
    written_for_standbys: bool,
    /// The mark left by earlier incarnations of the server, or a later one to which it has been raised.
    recovered: Tick,
    limit: Tick,
    acknowledged: Tick,
    written: Written,
    /// The time of the last write or flush of a mark, in milliseconds since boot.
    sent_at_ms: u64,
    /// The time at which the first unacknowledged mark was written, in milliseconds since boot.
    awaited_since_ms: u64,
    raised: Tick,
    settled: Tick,
    claimed_until_ms: u64,
    /// The last reading of the clocks.
    last: Clocks,
    /// The reading at the renewal with the clock furthest ahead of the time since boot.
    furthest: Clocks,
    /// Number of renewals since the server started.
    pub renewals: u64,
    /// Total time from the writing of marks until they were durable, in microseconds.
    pub flush_us: u64,
    /// Number of backward steps of the clock detected.
    pub steps_back: u64,
    /// Number of forward steps of the clock detected.
    pub steps_forward: u64,
}

/// The task of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Write this mark.
    Write(Tick),
    /// Wait for this one. It has been written, but a renewal that failed or was canceled left it unpublished. If each
    /// call that fails wrote another mark, the WAL would fill up.
    Await(Written),
}

/// The reason why a mark may not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unplanned {
    /// The tick is below the floor, or too far ahead of the clock: it was chosen before the floor was known, or before
    /// the clock was set. A mark for it would poison everything after it. Ask the slot again.
    Stale,
    /// The system clock moved ahead of the time since boot by more than is allowed.
    Jump {
        /// How far, in milliseconds.
        by_ms: u64,
    },
}

impl MarkState {
    /// Whether the stored mark has been loaded.
    pub fn loaded(&self) -> bool {
        self.loaded
    }

    /// No tick before this one may be issued, because earlier incarnations of the server, or another server, may have
    /// issued it.
    pub fn recovered(&self) -> Tick {
        self.recovered
    }

    /// No tick before this one may be issued for ids covered by the horizon, because earlier incarnations may have
    /// issued it, or because a reader relies on it.
    pub fn floor(&self) -> Tick {
        self.recovered.max(self.raised)
    }

    /// The exclusive end of the ticks that may be issued; 0 until this incarnation's first renewal. If `standbys` have
    /// to acknowledge marks, it is the end of what they have acknowledged.
    pub fn limit(&self, standbys: bool) -> Tick {
        if standbys { self.acknowledged } else { self.limit }
    }

    /// Loads the mark left by earlier incarnations. Only the first call has an effect: a later reading may already be
    /// a mark of this incarnation, and a floor raised by failed attempts would run away from the clock.
    pub fn load(&mut self, stored: Tick) {
        if !self.loaded {
            self.loaded = true;
            self.recovered = stored;
            // All ids of earlier incarnations, and everything that they found settled, lie below their limits and
            // therefore below this mark. None of their transactions is still open, except prepared ones, for which
            // there is a separate check.
            self.settled = stored;
        }
    }

    /// Forbids all ticks before `tick`, which must be durable as a mark, as if an earlier incarnation had issued them.
    pub fn raise(&mut self, tick: Tick) {
        debug_assert!(self.loaded && tick <= self.limit.max(self.recovered), "{tick} is not durable");
        self.recovered = self.recovered.max(tick);
    }

    /// Forbids all ticks before the clock, and returns the tick below which none will be issued. It goes no further
    /// than ids may have got, because the clock may be wrong: ids of this incarnation are below the limit, and ids of
    /// earlier ones below the recovered mark. If `standbys` have to acknowledge marks, the limit is what they have
    /// acknowledged.
    pub fn raise_floor(&mut self, now: Tick, standbys: bool) -> Tick {
        let reached = now.min(self.limit(standbys).max(self.recovered));
        self.raised = self.raised.max(reached);
        debug_assert!(self.raised <= self.limit.max(self.recovered), "a floor above all ids");
        reached
    }

    /// The tick below which every id is known to be settled.
    pub fn settled(&self) -> Tick {
        self.settled
    }

    /// Records that every id before `tick` is settled, and returns the greatest such tick so far, because settled
    /// ids stay settled.
    pub fn settle(&mut self, tick: Tick) -> Tick {
        self.settled = self.settled.max(tick);
        debug_assert!(self.settled <= self.floor(), "ids below {} may still be issued", self.settled);
        self.settled
    }

    /// Claims the renewal of the mark, unless another backend holds it.
    pub fn claim(&mut self, boot_ms: u64) -> bool {
        let free = boot_ms >= self.claimed_until_ms;
        if free {
            self.keep_claim(boot_ms);
        }
        free
    }

    /// Extends the claim by another [`CLAIM_MS`].
    pub fn keep_claim(&mut self, boot_ms: u64) {
        self.claimed_until_ms = boot_ms + CLAIM_MS;
    }

    /// Gives up the claim.
    pub fn release(&mut self) {
        self.claimed_until_ms = 0;
    }

    /// The mark to write so that the ticks up to `wanted`, and those of `idgen.reserve_ahead` after it, may be issued,
    /// or the mark already written if it is enough for `tick`: `wanted` makes a mark reach further, but does not cause
    /// one to be written while another is awaited. `standbys` says whether they have to acknowledge it.
    ///
    /// # Errors
    /// A stale tick, or a jump of the clock by more than `idgen.max_clock_jump`: a mark raised by a broken clock could
    /// not be lowered again. The jump is measured from the renewal at which the clock was furthest ahead, so that a
    /// clock that was set back may be corrected.
    pub fn plan(
        &self,
        clocks: Clocks,
        tick: Tick,
        wanted: Tick,
        standbys: bool,
        settings: &Settings,
    ) -> Result<Plan, Unplanned> {
        // Calls that queue for a full shard may be that much further ahead.
        if tick < self.recovered || tick > clocks.now + settings.max_ahead_ms + QUEUE_MS {
            return Err(Unplanned::Stale);
        }
        if let Some(by_ms) = self.jump(clocks, settings.max_clock_jump_ms) {
            return Err(Unplanned::Jump { by_ms });
        }
        let written = self.written(standbys);
        Ok(if written.tick > tick.max(self.limit(standbys)) {
            Plan::Await(written)
        } else {
            let end = clocks.now.max(tick) + settings.reserve_ahead_ms + (wanted - tick);
            debug_assert!(end > tick, "a mark at {end} does not cover {tick}");
            Plan::Write(end.min(MAX_TICK + 1))
        })
    }

    /// How far the clock has jumped forward, in milliseconds; `None` if no further than `max_jump`.
    pub fn jump(&self, clocks: Clocks, max_jump: Option<u64>) -> Option<u64> {
        let by_ms = u64::try_from(self.step_ms(self.furthest, clocks)).ok()?;
        (by_ms > max_jump? && by_ms >= STEP_MS.unsigned_abs()).then_some(by_ms)
    }

    /// Accepts that the clock is ahead, so that the next jump is measured from here. Returns how far it has jumped, in
    /// milliseconds; 0 if it has not.
    pub fn accept(&mut self, clocks: Clocks) -> u64 {
        let by_ms = self.jump(clocks, Some(0)).unwrap_or(0);
        if by_ms > 0 {
            self.observe(clocks);
            self.furthest = clocks;
        }
        by_ms
    }

    /// The last mark that this incarnation has written and that is worth waiting for; 0 if there is none. If `standbys`
    /// have to acknowledge it, a mark from before that does not count: a standby that already has it reports so only
    /// when it receives something new.
    pub fn written(&self, standbys: bool) -> Written {
        if standbys && !self.written_for_standbys { Written::default() } else { self.written }
    }

    /// The end of the WAL record of a mark that this incarnation has written but not yet published; 0 if there is none.
    pub fn awaited(&self) -> u64 {
        if self.written.tick > self.limit(self.written_for_standbys) { self.written.lsn } else { 0 }
    }

    /// Records a mark that has been written, at what time, and whether `standbys` had to acknowledge it then. If
    /// another mark was already `awaited`, the time since then is kept: under load a new mark is written every second.
    pub fn wrote(&mut self, mark: Written, standbys: bool, boot_ms: u64, awaited: bool) {
        self.sent(boot_ms);
        if !awaited {
            self.awaited_since_ms = boot_ms;
        }
        if mark.tick > self.written(standbys).tick {
            (self.written, self.written_for_standbys) = (mark, standbys);
        }
    }

    /// The time since which marks have been awaited, if the last one is still awaited, in milliseconds since boot.
    pub fn awaited_since_ms(&self) -> u64 {
        self.awaited_since_ms
    }

    /// Records that a mark was sent to standbys. They receive it when it has been flushed.
    pub fn sent(&mut self, boot_ms: u64) {
        self.sent_at_ms = boot_ms;
    }

    /// Whether the caller, which waits for standbys to acknowledge the last mark, must write it again. A standby that
    /// received it before it was synchronous was not heard, and does not report again until it receives something new
    /// or `wal_receiver_status_interval` has passed. The answer is true for one caller every two seconds, however long
    /// calls wait and however many there are.
    pub fn write_again(&mut self, boot_ms: u64) -> bool {
        let due = boot_ms.saturating_sub(self.sent_at_ms) >= WRITE_AGAIN_MS;
        if due {
            self.sent(boot_ms);
        }
        due
    }

    /// Lets ticks below `mark` be issued. The mark must be durable before this is called. If synchronous standbys
    /// have not `acknowledged` it, its ticks may be issued only while none are configured.
    pub fn publish(&mut self, mark: Tick, acknowledged: bool, clocks: Clocks, flush_us: u64) {
        self.observe(clocks);
        if !self.renewed || self.step_ms(self.furthest, clocks) > 0 {
            self.furthest = clocks;
        }
        self.renewed = true;
        debug_assert!(self.loaded, "a limit without the mark of earlier incarnations");
        self.limit = self.limit.max(mark);
        if acknowledged {
            self.acknowledged = self.acknowledged.max(mark);
        }
        debug_assert!(self.recovered <= self.limit, "a limit below the mark of earlier incarnations");
        debug_assert!(self.acknowledged <= self.limit);
        self.renewals += 1;
        self.flush_us += flush_us;
    }

    /// Counts a step of the clock since the last reading, once there has been a renewal. A reading older than the
    /// last one, because others have read the clocks in the meantime, is ignored.
    pub fn observe(&mut self, clocks: Clocks) {
        if clocks.boot_ms < self.last.boot_ms {
            return;
        }
        match self.step_ms(self.last, clocks) {
            step if step <= -STEP_MS => self.steps_back += 1,
            step if step >= STEP_MS => self.steps_forward += 1,
            _ => {}
        }
        self.last = clocks;
    }

    /// The amount by which the clock was set between two readings; 0 before the first renewal.
    fn step_ms(&self, then: Clocks, now: Clocks) -> i64 {
        if !self.renewed {
            return 0;
        }
        let clock = now.now.wrapping_sub(then.now).cast_signed();
        let boot = now.boot_ms.saturating_sub(then.boot_ms).cast_signed();
        clock.saturating_sub(boot)
    }
}

/// Whether no more than `margin` ticks are left after `tick`, so that the mark should be renewed while ids are
/// still available.
#[inline]
pub fn runs_low(tick: Tick, limit: Tick, margin: u64) -> bool {
    limit.saturating_sub(tick) <= margin && limit <= MAX_TICK
}
