//! Reading the system clock, every time anew: an id may never be older than its call.

use std::time::SystemTime;

use pgrx::PgLogLevel;

use crate::error::Error;
use crate::layout::{MAX_TICK, Tick};
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

#[cold]
fn before_epoch(unix_ms: i64) -> Error {
    match settings::epoch() {
        Ok(epoch) => Error::ClockBeforeEpoch { by_ms: epoch.unix_ms().abs_diff(unix_ms) },
        Err(error) => error,
    }
}

/// Says in the server log what will keep ids from being minted. The server starts all the same: a
/// database must not be kept down by a clock.
pub fn warn_if_unusable() {
    let problem = match now() {
        Ok(tick) if tick <= MAX_TICK => return,
        Ok(_) => Error::Exhausted,
        Err(error) => error,
    };
    problem.log(PgLogLevel::WARNING);
}
