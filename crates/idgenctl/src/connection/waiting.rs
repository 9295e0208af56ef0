//! Waiting for a condition.

use std::time::{Duration, Instant};

use crate::terminal::error::Result;
use crate::terminal::{output, signals};

/// How long to wait silently.
pub const SAY_AFTER: Duration = Duration::from_secs(3);

/// Asks until there is an answer, or the time is up, and reports after a while what it waits for.
pub fn until<T>(max: Duration, what: &str, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<Option<T>> {
    let began = Instant::now();
    let mut has_said = false;
    loop {
        let waited = began.elapsed();
        match ask()? {
            None if waited < max => {}
            answer => return Ok(answer),
        }
        if waited > SAY_AFTER && !has_said {
            has_said = true;
            output::note(format!("waiting for {what}"));
        }
        signals::pause(Duration::from_millis(100))?;
    }
}
