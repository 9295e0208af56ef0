//! The commands.

mod accept;
mod carry;
mod check;
mod enable;
mod move_shard;
mod remove;
mod status;

use crate::cli::{Cli, Command};
use crate::error::Result;

/// Runs the command, and gives the exit code.
///
/// # Errors
/// Those of the command.
pub fn run(cli: &Cli) -> Result<u8> {
    match &cli.command {
        Command::Check => check::run(cli),
        Command::Enable(arguments) => enable::run(cli, arguments),
        Command::Status(arguments) => status::run(cli, arguments),
        Command::Move(arguments) => move_shard::run(cli, arguments),
        Command::Carry(arguments) => carry::run(cli, arguments),
        Command::AcceptClock(arguments) => accept::clock(cli, arguments),
        Command::AcceptEpoch(arguments) => accept::epoch(cli, arguments),
        Command::Remove(arguments) => remove::run(cli, arguments),
    }
}
