//! The durable high-water mark: which ticks may be issued, and what must happen before more may.
//!
//! A mark is written to the WAL, flushed, and acknowledged by synchronous standbys before it is
//! published as the limit. Hence `issued < limit <= durable` at every moment, and a server that
//! starts from the stored mark repeats nothing. Synchronous standbys may be configured at any time, so a
//! limit that none has acknowledged is kept apart: it ends at the moment at which commits begin to wait.
//! The caller does the writing; this is the state it works on, kept apart so that every order of steps can
//! be model-checked.

use crate::id::{MAX_TICK, Tick};

/// How long a backend that renews the mark keeps the others from doing the same, in milliseconds,
/// unless it asks for more. Renewing twice at once is safe and merely wasteful; a limit in time
/// means that a backend which dies on the way leaves nothing stuck.
pub const CLAIM_MS: u64 = 100;

/// From which difference on a move of the clock counts as a step, in milliseconds; less may be the
/// time between two readings.
const STEP_MS: i64 = 10;

/// The system clock and the time since boot, read together. The latter cannot be set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Clocks {
    /// CLOCK_REALTIME as a tick.
    pub now: Tick,
    /// CLOCK_BOOTTIME in milliseconds.
    pub boot_ms: u64,
}

/// A mark that this run of the server has written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Written {
    /// The mark: ticks below it may be issued once it is durable.
    pub tick: Tick,
    /// Where its WAL record ends.
    pub lsn: u64,
}

/// The state of the mark, in shared memory behind a lock of its own. All zero at start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Mark {
    loaded: bool,
    renewed: bool,
    /// Whether standbys had to acknowledge marks when `written` was.
    written_for_standbys: bool,
    floor: Tick,
    limit: Tick,
    acknowledged: Tick,
    written: Written,
    raised: Tick,
    settled: Tick,
    claimed_until_ms: u64,
    /// What the clocks showed when they were last looked at.
    last: Clocks,
    /// The same for the renewal at which the clock was furthest ahead of the time since boot.
    furthest: Clocks,
    /// Renewals since the server started.
    pub renewals: u64,
    /// Time spent in writing, flushing and being acknowledged, in microseconds.
    pub flush_us: u64,
    /// Backward steps of the clock seen.
    pub steps_back: u64,
    /// Forward steps of the clock seen.
    pub steps_forward: u64,
}

/// The settings that a mark keeps to.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// How many ticks after the clock an id may lie.
    pub max_ahead: u64,
    /// How many ticks a mark reaches beyond the ids.
    pub reserve_ahead: u64,
    /// The forward leap of the clock, in milliseconds, that stops renewals; none stops them without.
    pub max_jump: Option<u64>,
    /// Whether synchronous standbys have to acknowledge a mark.
    pub standbys: bool,
}

/// What a renewal has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Write this mark.
    Write(Tick),
    /// Wait for this one: it is written, and a renewal that failed or was cancelled has left it
    /// unpublished. Writing another one for each call that fails would fill the WAL.
    Await(Written),
}

/// Why no mark is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unplanned {
    /// The tick is below the floor, or too far after the clock: it was chosen before the floor was
    /// known, or under a clock that has been set since. A mark for it would poison what comes after;
    /// the slot is to be asked again.
    Stale,
    /// The system clock ran ahead of the time since boot by more than is allowed.
    Leap {
        /// How far, in milliseconds.
        by_ms: u64,
    },
}

impl Mark {
    /// Whether the stored mark has been taken over.
    pub fn loaded(&self) -> bool {
        self.loaded
    }

    /// No tick before this one may be issued: earlier runs of the server may have.
    pub fn run_floor(&self) -> Tick {
        self.floor
    }

    /// No tick of those ids that can be followed may be issued before this one: earlier runs may have, or a
    /// reader relies on it.
    pub fn floor(&self) -> Tick {
        self.floor.max(self.raised)
    }

    /// The exclusive end of the ticks that may be issued; 0 until this run's first renewal. Where `standbys`
    /// have to acknowledge marks, it is the end of what they have acknowledged.
    pub fn limit(&self, standbys: bool) -> Tick {
        if standbys { self.acknowledged } else { self.limit }
    }

    /// Takes over the mark that earlier runs have left. Only the first call of a run counts: a later
    /// reading may already show a mark of this run, and a floor raised by attempts that failed would
    /// run away from the clock.
    pub fn load(&mut self, stored: Tick) {
        if !self.loaded {
            self.loaded = true;
            self.floor = stored;
            // What earlier runs have found settled lies below their limits, and so below this. All of their ids
            // do, and of their transactions none is open but those that were prepared, which are asked for.
            self.settled = stored;
        }
    }

    /// Lets no tick before the clock be issued any more, and returns up to which tick that is true. Not
    /// further than ids may have got, for the clock may be wrong: what is issued is below the limit, and
    /// what earlier runs have issued below the floor. Where `standbys` have to acknowledge marks, that is the
    /// limit that they have.
    pub fn raise_floor(&mut self, now: Tick, standbys: bool) -> Tick {
        let reached = now.min(self.limit(standbys).max(self.floor));
        self.raised = self.raised.max(reached);
        reached
    }

    /// Up to which tick every id has been found settled.
    pub fn settled(&self) -> Tick {
        self.settled
    }

    /// Notes that every id before `tick` is settled, and returns the greatest such tick ever found: what is
    /// settled stays so.
    pub fn settle(&mut self, tick: Tick) -> Tick {
        self.settled = self.settled.max(tick);
        self.settled
    }

    /// Takes the task of renewing, where nobody else has it.
    pub fn claim(&mut self, boot_ms: u64) -> bool {
        let free = boot_ms >= self.claimed_until_ms;
        if free {
            self.keep_claim(boot_ms);
        }
        free
    }

    /// Keeps the task for another [`CLAIM_MS`].
    pub fn keep_claim(&mut self, boot_ms: u64) {
        self.claimed_until_ms = boot_ms + CLAIM_MS;
    }

    /// Gives the task up.
    pub fn release(&mut self) {
        self.claimed_until_ms = 0;
    }

    /// The mark to write so that `tick` may be issued and `reserve_ahead` ticks after it, or the one written
    /// already that is enough for `tick`.
    ///
    /// # Errors
    /// A stale tick, or a leap of the clock by more than `max_jump`: a mark raised by a broken clock
    /// could not be lowered again. The leap is measured from the renewal at which the clock was
    /// furthest ahead, so that a clock which was set back may be set right again.
    pub fn plan(&self, clocks: Clocks, tick: Tick, rules: Rules) -> Result<Plan, Unplanned> {
        if tick < self.floor || tick > clocks.now + rules.max_ahead {
            return Err(Unplanned::Stale);
        }
        if let Some(by_ms) = self.leap(clocks, rules.max_jump) {
            return Err(Unplanned::Leap { by_ms });
        }
        let written = self.written(rules.standbys);
        Ok(if written.tick > tick.max(self.limit(rules.standbys)) {
            Plan::Await(written)
        } else {
            Plan::Write((clocks.now.max(tick) + rules.reserve_ahead).min(MAX_TICK + 1))
        })
    }

    /// How far the clock has leapt forward, in milliseconds, where that is more than `max_jump`.
    pub fn leap(&self, clocks: Clocks, max_jump: Option<u64>) -> Option<u64> {
        let by_ms = u64::try_from(self.step_ms(self.furthest, clocks)).ok()?;
        (by_ms > max_jump? && by_ms >= STEP_MS.unsigned_abs()).then_some(by_ms)
    }

    /// The last mark that this run has written and that is worth waiting for; 0 where there is none. Where
    /// `standbys` have to acknowledge it, one of before is none: a standby that has it already tells so only when
    /// it gets something new.
    pub fn written(&self, standbys: bool) -> Written {
        if standbys && !self.written_for_standbys { Written::default() } else { self.written }
    }

    /// Where the record of a mark ends that this run has written and not published yet; 0 where there is none.
    pub fn awaited(&self) -> u64 {
        if self.written.tick > self.limit(self.written_for_standbys) { self.written.lsn } else { 0 }
    }

    /// Notes a mark that has been written, and whether `standbys` had to acknowledge it then.
    pub fn wrote(&mut self, mark: Written, standbys: bool) {
        if mark.tick > self.written(standbys).tick {
            (self.written, self.written_for_standbys) = (mark, standbys);
        }
    }

    /// Lets ticks below `mark` be issued. The mark is durable before this is called. If it is not
    /// `acknowledged` by synchronous standbys, its ticks may be issued only while none are configured.
    pub fn publish(&mut self, mark: Tick, acknowledged: bool, clocks: Clocks, flush_us: u64) {
        self.look(clocks);
        if !self.renewed || self.step_ms(self.furthest, clocks) > 0 {
            self.furthest = clocks;
        }
        self.renewed = true;
        self.limit = self.limit.max(mark);
        if acknowledged {
            self.acknowledged = self.acknowledged.max(mark);
        }
        self.renewals += 1;
        self.flush_us += flush_us;
    }

    /// Counts a step of the clock since the last look at it, where there was a renewal before. A reading that is
    /// older than that one, because others have looked meanwhile, says nothing.
    pub fn look(&mut self, clocks: Clocks) {
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

    /// How far the clock was set between two readings; 0 before the first renewal.
    fn step_ms(&self, then: Clocks, now: Clocks) -> i64 {
        if !self.renewed {
            return 0;
        }
        let clock = now.now.wrapping_sub(then.now).cast_signed();
        let boot = now.boot_ms.saturating_sub(then.boot_ms).cast_signed();
        clock.saturating_sub(boot)
    }
}

/// Whether no more than `margin` ticks are left after `tick`: time to renew, while ids go on.
#[inline]
pub fn runs_low(tick: Tick, limit: Tick, margin: u64) -> bool {
    limit.saturating_sub(tick) <= margin && limit <= MAX_TICK
}
