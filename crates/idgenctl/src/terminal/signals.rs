//! Signals that tell the program to end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::terminal::error::{Error, Result};

/// Whether the person has pressed Ctrl-C, or the program was told to end.
pub fn interrupted() -> bool {
    flag().load(Ordering::Relaxed)
}

/// From now on, signals no longer end the program: what it does must be done to the end.
pub fn ignore_signals() {
    IGNORE.store(true, Ordering::Relaxed);
}

static IGNORE: AtomicBool = AtomicBool::new(false);

/// Fails once the program was told to end, unless signals are ignored.
///
/// # Errors
/// That it was.
pub fn go_on() -> Result {
    if interrupted() && !IGNORE.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
}

/// Sleeps for so long.
///
/// # Errors
/// That the program was told to end meanwhile.
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

fn flag() -> &'static AtomicBool {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    FLAG.get_or_init(|| {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [
            signal_hook::consts::SIGINT,
            signal_hook::consts::SIGTERM,
            signal_hook::consts::SIGHUP,
            signal_hook::consts::SIGPIPE,
        ] {
            // Without it, the signal would end the program, as is usual.
            let _ = signal_hook::flag::register(signal, Arc::clone(&flag));
        }
        flag
    })
}

/// Begins to notice signals instead of ending by them.
pub fn notice_signals() {
    flag();
}
