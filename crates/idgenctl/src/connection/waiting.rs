//! Waiting for a condition.

use std::time::{Duration, Instant};

use crate::terminal::error::{Error, Result};
use crate::terminal::{output, signals};

/// How long to wait silently.
pub const SAY_AFTER: Duration = Duration::from_secs(3);

/// Waits until something is so, or fails.
pub fn until_true(max: Duration, what: &str, hint: &str, mut ask: impl FnMut() -> Result<bool>) -> Result {
    let answer = until(max, what, || Ok(ask()?.then_some(())))?;
    answer.ok_or_else(|| Error::refused(format!("gave up waiting for {what}"), hint))
}

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
