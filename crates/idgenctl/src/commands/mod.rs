//! The commands.

mod check;
mod enable;
mod move_shard;
mod marker;

use crate::cli::{Cli, Command};
use crate::terminal::error::Result;

/// Runs the command, and returns the exit code.
pub fn run(cli: &Cli) -> Result<u8> {
    match &cli.command {
        Command::Check(arguments) => check::run(cli, arguments),
        Command::Enable { database } => enable::run(cli, database),
        Command::Move(arguments) => move_shard::run(cli, arguments),
    }
}
