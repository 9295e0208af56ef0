//! Compares the clocks of servers with this machine's, allowing for the round trip.

use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::connection::session::Session;
use crate::terminal::error::{Error, Result};

/// How often each clock is read. The fastest answer counts.
const TRIES: usize = 5;

/// The time in seconds, measured from a single reading of this machine's clock, so that steps of the clock do not matter.
fn time() -> f64 {
    static BEGIN: LazyLock<(Instant, SystemTime)> = LazyLock::new(|| (Instant::now(), SystemTime::now()));
    let clock = BEGIN.1.duration_since(UNIX_EPOCH).unwrap_or_default();
    (clock + BEGIN.0.elapsed()).as_secs_f64()
}

/// Bounds on how far a clock is ahead of this machine's, in seconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ahead {
    pub least: f64,
    pub most: f64,
}

impl Ahead {
    pub fn middle(self) -> f64 {
        self.least.midpoint(self.most)
    }
}

pub fn measure(session: &Session) -> Result<Ahead> {
    let mut best = Ahead { least: f64::NEG_INFINITY, most: f64::INFINITY };
    for _ in 0..TRIES {
        let before = time();
        let text = session.value("SELECT extract(epoch FROM clock_timestamp())", &[])?;
        let after = time();
        let clock = text.parse().ok().filter(|clock: &f64| clock.is_finite()).ok_or_else(|| {
            Error::refused(format!("{} shows no time: {text}", session.server()), "Is that PostgreSQL?")
        })?;
        let ahead = Ahead { least: clock - after, most: clock - before };
        if ahead.most - ahead.least < best.most - best.least {
            best = ahead;
        }
    }
    Ok(best)
}
