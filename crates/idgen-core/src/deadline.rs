//! The time that a call may still wait.

use crate::host::Host;
use crate::settings::{QUEUE_MS, Settings};

/// The longest sleep before a waiting call reads the clock again, because the clock may have been corrected.
pub(crate) const LOOK_AGAIN_US: u64 = 50_000;

/// The remaining time that a call may wait, counted from its first wait. The flushes of two renewals do not count.
#[derive(Debug)]
pub struct Deadline {
    max_wait_ms: u64,
    since_us: Option<u64>,
    /// The number of renewals that the call has needed, counted up to three.
    renewals: u8,
}

impl Deadline {
    /// The deadline of a call that has not waited yet.
    #[must_use]
    pub fn new(settings: &Settings) -> Deadline {
        Deadline { max_wait_ms: settings.max_wait_ms, since_us: None, renewals: 0 }
    }

    /// How long the call may still wait, in microseconds; `None` once `idgen.max_wait` is over.
    pub fn left_us(&mut self, host: &impl Host) -> Option<u64> {
        let now = host.monotonic_us();
        let waited = now.saturating_sub(*self.since_us.get_or_insert(now));
        (self.max_wait_ms * 1000).checked_sub(waited).filter(|left| *left > 0)
    }

    /// Records that the call needs a renewal of the mark. One renewal is part of any call, and so is a second one if
    /// the first took long. A third counts as waiting, or a call might never end. Returns whether this one counts.
    pub(crate) fn renewal_counts(&mut self) -> bool {
        self.renewals = (self.renewals + 1).min(3);
        self.counts_flushes()
    }

    /// Whether flushes count.
    pub(crate) fn counts_flushes(&self) -> bool {
        self.renewals == 3
    }

    /// Runs `flush`, a flush of the mark or a wait for another backend's flush, whose time does not count.
    pub(crate) fn except<T>(&mut self, host: &impl Host, flush: impl FnOnce() -> T) -> T {
        let Some(since) = self.since_us.as_mut().filter(|_| self.renewals < 3) else { return flush() };
        let start = host.monotonic_us();
        let result = flush();
        *since += host.monotonic_us().saturating_sub(start);
        result
    }

    /// How many milliseconds of a shard the call may take in advance.
    pub(crate) fn queue(&self, host: &impl Host) -> u64 {
        self.max_wait_ms.saturating_sub(self.waited_us(host).unwrap_or(0) / 1000).min(QUEUE_MS)
    }

    /// How long the call has waited, in microseconds; `None` if it has not.
    pub(crate) fn waited_us(&self, host: &impl Host) -> Option<u64> {
        let since = self.since_us?;
        Some(host.monotonic_us().saturating_sub(since))
    }

    /// How long the call has waited, in milliseconds.
    pub fn waited_ms(&self, host: &impl Host) -> u64 {
        self.waited_us(host).unwrap_or(0) / 1000
    }
}
