//! The clocks of servers, compared with that of this machine, with the error that the way to them brings.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::connection::session::Session;
use crate::terminal::error::{Error, Result};

/// How often each clock is asked. The answer that took least time counts.
const TRIES: usize = 5;

/// A moment by the clock of this machine, from which its time is counted without its steps.
#[derive(Debug, Clone, Copy)]
pub struct Base {
    instant: Instant,
    clock_s: f64,
}

impl Base {
    /// This moment.
    pub fn now() -> Base {
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Base { instant: Instant::now(), clock_s: clock.as_secs_f64() }
    }

    fn time(self) -> f64 {
        self.clock_s + self.instant.elapsed().as_secs_f64()
    }
}

/// By how many seconds a clock is ahead of this machine's: no less, and no more.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ahead {
    pub least: f64,
    pub most: f64,
}

impl Ahead {
    /// The most likely value.
    pub fn middle(self) -> f64 {
        self.least.midpoint(self.most)
    }
}

/// Asks a server for its clock.
pub fn measure(session: &Session, base: Base) -> Result<Ahead> {
    let mut best = Ahead { least: f64::NEG_INFINITY, most: f64::INFINITY };
    for _ in 0..TRIES {
        let before = base.time();
        let text = session.value("SELECT extract(epoch FROM clock_timestamp())", &[])?;
        let after = base.time();
        let clock: f64 = text.parse().map_err(|_| {
            Error::refused(format!("{} shows no time: {text}", session.server()), "Is that PostgreSQL?")
        })?;
        let ahead = Ahead { least: clock - after, most: clock - before };
        if ahead.most - ahead.least < best.most - best.least {
            best = ahead;
        }
    }
    Ok(best)
}
