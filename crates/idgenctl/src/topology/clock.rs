//! Compares the clocks of servers with this machine's, allowing for the round trip.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::connection::session::Session;
use crate::terminal::error::Result;

/// Bounds on how far a clock is ahead of this machine's, in seconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ahead {
    pub least: f64,
    pub most: f64,
}

pub fn measure(session: &Session) -> Result<Ahead> {
    let mut best = Ahead { least: f64::NEG_INFINITY, most: f64::INFINITY };
    for _ in 0..5 {
        let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let began = Instant::now();
        let text = session.value("SELECT extract(epoch FROM clock_timestamp())", &[])?;
        let after = before + began.elapsed().as_secs_f64();
        let clock = text.parse().ok().filter(|clock: &f64| clock.is_finite()).unwrap_or(0.0);
        let ahead = Ahead { least: clock - after, most: clock - before };
        if ahead.most - ahead.least < best.most - best.least {
            best = ahead;
        }
    }
    Ok(best)
}
