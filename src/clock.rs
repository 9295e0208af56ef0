//! Reading the system clock, at every call, because an id may never be older than its call.

use idgen_ids::Tick;
use nix::libc::{CLOCK_BOOTTIME, CLOCK_MONOTONIC, CLOCK_REALTIME};

use crate::error::Error;
use crate::pg::backend::clock;
use crate::settings;

/// The clock as a tick of `idgen.epoch`.
///
/// # Errors
/// 55000 if the clock is before the epoch, or if the configured epoch was not accepted.
#[inline]
pub fn now() -> Result<Tick, Error> {
    // Nanoseconds are never negative, so this rounds down before 1970 too.
    let (seconds, nanoseconds) = clock(CLOCK_REALTIME);
    let ms = seconds * 1000 + nanoseconds / 1_000_000;
    match u64::try_from(ms - settings::epoch_unix_ms()) {
        Ok(tick) => Ok(tick),
        Err(_) => Err(before_epoch(ms)),
    }
}

#[cold]
fn before_epoch(unix_ms: i64) -> Error {
    match settings::epoch() {
        Ok(epoch) => Error::ClockBeforeEpoch { by_ms: epoch.unix_ms().abs_diff(unix_ms) },
        Err(error) => error,
    }
}

/// Microseconds until the clock shows a tick; 0 if it already does.
///
/// # Errors
/// 55000 if the configured epoch was not accepted.
pub fn us_until(tick: Tick) -> Result<u64, Error> {
    let (seconds, nanoseconds) = clock(CLOCK_REALTIME);
    let now_us = seconds * 1_000_000 + nanoseconds / 1000;
    let due_us = settings::epoch()?.unix_ms().saturating_add_unsigned(tick).saturating_mul(1000);
    Ok(due_us.saturating_sub(now_us).max(0).unsigned_abs())
}

/// Milliseconds since boot, including time in suspend. Setting the clock does not move them.
pub fn boot_ms() -> u64 {
    let (seconds, nanoseconds) = clock(CLOCK_BOOTTIME);
    seconds.unsigned_abs() * 1000 + nanoseconds.unsigned_abs() / 1_000_000
}

/// Microseconds since some moment, excluding time in suspend. Setting the clock does not move them.
pub fn monotonic_us() -> u64 {
    let (seconds, nanoseconds) = clock(CLOCK_MONOTONIC);
    seconds.unsigned_abs() * 1_000_000 + nanoseconds.unsigned_abs() / 1000
}
