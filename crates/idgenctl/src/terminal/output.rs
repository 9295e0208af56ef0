//! Output of the program, and the question before a change.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::termios::{FlushArg, tcflush};

use crate::cli::{Cli, Command};
use crate::terminal::error::{Error, Result, refused};
use crate::terminal::signals;
pub use crate::terminal::text::{json, plain, span};

/// Writes a line to standard error: standard output is for results.
pub fn note(text: impl AsRef<str>) {
    // The reader may be gone, and the program must go on all the same.
    let _ = writeln!(io::stderr(), "{}", plain(text.as_ref()));
}

pub fn error(cli: &Cli, error: &Error) {
    if matches!(&cli.command, Command::Check(check) if check.json) {
        let value = serde_json::json!({ "error": error.to_string(), "hint": error.hint() });
        let _ = writeln!(io::stdout(), "{}", json(&value));
    }
    note(format!("error: {error}"));
    if let Some(hint) = error.hint() {
        note(format!("hint: {hint}"));
    }
}

pub fn print(text: impl AsRef<str>) -> Result {
    match writeln!(io::stdout(), "{}", text.as_ref()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            refused(format!("cannot write the output: {error}"), "What was changed before stays as it is.")
        }
        _ => Ok(()),
    }
}

/// Asks for consent to a change, unless `--yes` gives it.
pub fn consent(cli: &Cli, question: &str) -> Result {
    if cli.yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return refused(
            "nothing is changed without consent, and there is no terminal to ask on",
            "Look at what would be done, and run the same command with --yes.",
        );
    }
    // What was typed before the question does not answer it.
    let _ = tcflush(io::stdin(), FlushArg::TCIFLUSH);
    let _ = write!(io::stderr(), "{} [y/N] ", plain(question));
    let _ = io::stderr().flush();
    // A read would go on after a signal, so Ctrl-C would not end it.
    let input = io::stdin();
    while !poll(&mut [PollFd::new(input.as_fd(), PollFlags::POLLIN)], 50_u8).is_ok_and(|ready| ready > 0) {
        signals::go_on()?;
    }
    let mut answer = String::new();
    let _ = input.read_line(&mut answer);
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => refused("the answer was not y", "Nothing was changed."),
    }
}
