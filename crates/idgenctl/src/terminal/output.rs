//! What the program shows: lines, tables and JSON; and the question before a change.

use std::io::{self, BufRead, IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use comfy_table::{Table, presets};
use nix::sys::termios::{FlushArg, tcflush};

use crate::cli::Cli;
use crate::terminal::error::{Error, Result};
use crate::terminal::signals;
pub use crate::terminal::text::{json, plain};

/// Shows what the program does, on standard error: standard output is for results.
pub fn note(text: impl AsRef<str>) {
    // Nobody may read it any more, and the program must go on all the same.
    let _ = writeln!(io::stderr(), "{}", plain(text.as_ref()));
}

/// Shows an error.
pub fn error(cli: &Cli, error: &Error) {
    if cli.json {
        let value = serde_json::json!({ "error": error.to_string(), "hint": error.hint() });
        let _ = writeln!(io::stdout(), "{}", json(&value));
    }
    note(format!("error: {error}"));
    if let Some(hint) = error.hint() {
        note(format!("hint: {hint}"));
    }
}

/// Prints a result on standard output.
pub fn print(text: impl AsRef<str>) -> Result {
    match writeln!(io::stdout(), "{}", text.as_ref()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Error::refused(
            format!("the output cannot be written: {error}"),
            "What was changed before stays as it is.",
        )),
        _ => Ok(()),
    }
}

/// A span of time.
pub fn span(seconds: f64) -> String {
    match seconds {
        s if s < 1.0 => format!("{:.0} ms", s * 1000.0),
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.1} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}

/// A table with these columns.
pub fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.iter().copied());
    table
}

/// Whether the person consents to a change, by `--yes` or on a terminal.
pub fn consent(cli: &Cli, question: &str) -> Result {
    if cli.yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Error::refused(
            "nothing is changed without consent, and there is no terminal to ask on",
            "Look at what would be done, and run the same command with --yes.",
        ));
    }
    // What was typed before the question is no answer to it.
    let _ = tcflush(io::stdin(), FlushArg::TCIFLUSH);
    let _ = write!(io::stderr(), "{} [y/N] ", plain(question));
    let _ = io::stderr().flush();
    // Reading goes on after a signal, so that Ctrl-C would not end it here.
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let mut answer = String::new();
        let _ = io::stdin().lock().read_line(&mut answer);
        let _ = tell.send(answer);
    });
    let answer = loop {
        match told.recv_timeout(Duration::from_millis(50)) {
            Ok(answer) => break answer,
            Err(RecvTimeoutError::Timeout) => signals::go_on()?,
            Err(RecvTimeoutError::Disconnected) => break String::new(),
        }
    };
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        Ok(())
    } else {
        Err(Error::refused("the answer was not y", "Nothing was changed."))
    }
}
