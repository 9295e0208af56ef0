//! Signals that tell the program to end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;

use crate::terminal::error::{Error, Result};

/// Set by signals, once they are noticed.
static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

static IGNORE: AtomicBool = AtomicBool::new(false);

/// From now on, signals no longer end the program: what it does must be done to the end.
pub fn ignore_signals() {
    IGNORE.store(true, Ordering::Relaxed);
}

/// Fails once the program was told to end, unless signals are ignored.
pub fn go_on() -> Result {
    let ends = INTERRUPTED.load(Ordering::Relaxed) && !IGNORE.load(Ordering::Relaxed);
    if ends { Err(Error::Interrupted) } else { Ok(()) }
}

/// Sleeps for so long.
pub fn pause(time: Duration) -> Result {
    let mut left = time;
    while !left.is_zero() {
        go_on()?;
        let part = left.min(Duration::from_millis(50));
        thread::sleep(part);
        left -= part;
    }
    go_on()
}

/// Begins to notice signals instead of ending by them, as is usual.
pub fn notice_signals() {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM};
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGPIPE] {
        // Without it, the signal would end the program.
        let _ = signal_hook::flag::register(signal, Arc::clone(&INTERRUPTED));
    }
}
