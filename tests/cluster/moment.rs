//! Moments, and waiting for a condition.

use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub use promises::Moment;

/// The current moment, by the system clock and by a monotonic one.
pub fn now() -> Moment {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let us = FIRST.get_or_init(Instant::now).elapsed().as_micros() as u64;
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    Moment { us, unix_us: unix.as_micros() as i64 }
}

/// Repeats `find` for at most this many seconds until it finds something.
pub fn within_seconds<T>(seconds: u64, mut find: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        let found = find();
        if found.is_some() || begun.elapsed() > Duration::from_secs(seconds) {
            return found;
        }
        thread::sleep((begun.elapsed() / 10).clamp(Duration::from_millis(2), Duration::from_millis(100)));
    }
}

/// Whether a condition becomes true within this many seconds.
pub fn is_reached(seconds: u64, mut condition: impl FnMut() -> bool) -> bool {
    within_seconds(seconds, || condition().then_some(())).is_some()
}
