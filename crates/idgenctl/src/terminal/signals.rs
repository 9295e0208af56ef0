//! Signals that tell the program to end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Once};
use std::thread;
use std::time::{Duration, Instant};

use crate::terminal::error::{Error, Result};

/// Set by signals, once they are noticed.
static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

static IGNORE: AtomicBool = AtomicBool::new(false);

/// Whether the person has pressed Ctrl-C, or the program was told to end.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// From now on, signals no longer end the program: what it does must be done to the end.
pub fn ignore_signals() {
    IGNORE.store(true, Ordering::Relaxed);
}

/// Fails once the program was told to end, unless signals are ignored.
pub fn go_on() -> Result {
    if interrupted() && !IGNORE.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
}

/// Sleeps for so long.
pub fn pause(time: Duration) -> Result {
    let end = Instant::now() + time;
    loop {
        go_on()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(Duration::from_millis(50)));
    }
}

/// Begins to notice signals instead of ending by them, as is usual.
pub fn notice_signals() {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM};
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGPIPE] {
            // Without it, the signal would end the program.
            let _ = signal_hook::flag::register(signal, Arc::clone(&INTERRUPTED));
        }
    });
}
