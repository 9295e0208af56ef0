//! The commands.

mod check;
mod enable;
mod move_shard;
mod words;

use std::process;
use std::thread;
use std::time::Duration;

use crate::cli::{Cli, Command};
use crate::terminal::error::Result;
use crate::terminal::signals::{interrupted, notice_signals};

/// Runs the command, and gives the exit code.
///
/// # Errors
/// Those of the command.
pub fn run(cli: &Cli) -> Result<u8> {
    match &cli.command {
        Command::Check(arguments) => check::run(cli, arguments),
        Command::Enable(arguments) => enable::run(cli, arguments),
        Command::Move(arguments) => move_shard::run(cli, arguments),
    }
}

/// Lets Ctrl-C end a command that changes nothing, with this exit code, even while libpq connects to a server that does not
/// answer: nothing else interrupts that.
fn end_by_signals(code: i32) {
    notice_signals();
    thread::spawn(move || {
        while !interrupted() {
            thread::sleep(Duration::from_millis(50));
        }
        // Usually the command notices, and ends by itself.
        thread::sleep(Duration::from_secs(1));
        process::exit(code);
    });
}
