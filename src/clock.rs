//! Reading the system clock, every time anew: an id may never be older than its call.

use std::time::SystemTime;

use nix::time::{ClockId, clock_gettime};

use crate::error::Error;
use crate::layout::Tick;
use crate::reservation::Clocks;
use crate::settings;

/// CLOCK_REALTIME in microseconds since 1970.
pub fn unix_us() -> i64 {
    match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => after.as_micros() as i64,
        Err(before) => -(before.duration().as_micros() as i64),
    }
}

/// The clock as a tick of `idgen.epoch`.
///
/// # Errors
/// 55000 for a clock before the epoch, or an epoch that the configuration file gives wrongly.
#[inline]
pub fn now() -> Result<Tick, Error> {
    let ms = unix_us().div_euclid(1000);
    match u64::try_from(ms - settings::epoch_unix_ms()) {
        Ok(tick) => Ok(tick),
        Err(_) => Err(before_epoch(ms)),
    }
}

/// Time since boot in milliseconds, time in suspend included. Setting the clock does not move it.
pub fn boot_ms() -> u64 {
    // The call fails only for a clock that the system does not have, and Linux has this one.
    clock_gettime(ClockId::CLOCK_BOOTTIME)
        .map_or(0, |t| t.tv_sec().unsigned_abs() * 1000 + t.tv_nsec().unsigned_abs() / 1_000_000)
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
