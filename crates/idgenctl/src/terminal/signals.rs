//! Signals that tell the program to end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::terminal::error::{Error, Result};

static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
static IGNORE: AtomicBool = AtomicBool::new(false);

/// From now on, signals do not end the program: its work must be completed.
pub fn ignore_signals() {
    IGNORE.store(true, Ordering::Relaxed);
}

/// Fails after a signal, unless signals are ignored.
pub fn go_on() -> Result {
    let ends = INTERRUPTED.load(Ordering::Relaxed) && !IGNORE.load(Ordering::Relaxed);
    if ends { Err(Error::Interrupted) } else { Ok(()) }
}

/// Sleeps, until a signal at most.
pub fn pause(time: Duration) -> Result {
    let end = Instant::now() + time;
    while Instant::now() < end {
        go_on()?;
        thread::sleep(time.min(Duration::from_millis(50)));
    }
    go_on()
}

/// Lets signals be noticed by [`go_on`]. Until then, they end the program at once.
pub fn notice_signals() {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // If this fails, the signal ends the program at once.
        let _ = signal_hook::flag::register(signal, Arc::clone(&INTERRUPTED));
    }
}
