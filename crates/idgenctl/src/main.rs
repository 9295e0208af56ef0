//! idgenctl, the program for administrators of several servers with idgen.
//!
//! It only uses SQL that a person could run in psql. It connects as libpq does, changes nothing without consent, and
//! evaluates nothing that others than superusers have written.
//!
//! The modules from top to bottom; none uses one above it.

mod commands;
mod idgen;
mod topology;
mod connection;
mod terminal;
mod cli;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    match commands::run(&cli) {
        Ok(code) => code.into(),
        Err(error) => {
            terminal::output::error(&cli, &error);
            error.exit_code().into()
        }
    }
}
