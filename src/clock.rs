//! Reading the system clock, every time anew: an id may never be older than its call.

use nix::libc::{CLOCK_BOOTTIME, CLOCK_REALTIME};

use crate::error::Error;
use crate::layout::Tick;
use crate::pg;
use crate::reservation::Clocks;
use crate::settings;

/// CLOCK_REALTIME in microseconds since 1970.
pub fn unix_us() -> i64 {
    let (seconds, nanoseconds) = pg::clock(CLOCK_REALTIME);
    seconds * 1_000_000 + nanoseconds / 1000
}

/// The clock as a tick of `idgen.epoch`.
///
/// # Errors
/// 55000 for a clock before the epoch, or an epoch that the configuration file gives wrongly.
#[inline]
pub fn now() -> Result<Tick, Error> {
    // Nanoseconds are never negative, so this rounds down before 1970 too.
    let (seconds, nanoseconds) = pg::clock(CLOCK_REALTIME);
    let ms = seconds * 1000 + nanoseconds / 1_000_000;
    match u64::try_from(ms - settings::epoch_unix_ms()) {
        Ok(tick) => Ok(tick),
        Err(_) => Err(before_epoch(ms)),
    }
}

/// Time since boot in milliseconds, time in suspend included. Setting the clock does not move it.
pub fn boot_ms() -> u64 {
    let (seconds, nanoseconds) = pg::clock(CLOCK_BOOTTIME);
    seconds.unsigned_abs() * 1000 + nanoseconds.unsigned_abs() / 1_000_000
}

/// Both clocks.
///
/// # Errors
/// As [`now`].
pub fn both() -> Result<Clocks, Error> {
    Ok(Clocks { now: now()?, boot_ms: boot_ms() })
}

#[cold]
fn before_epoch(unix_ms: i64) -> Error {
    match settings::epoch() {
        Ok(epoch) => Error::ClockBeforeEpoch { by_ms: epoch.unix_ms().abs_diff(unix_ms) },
        Err(error) => error,
    }
}
