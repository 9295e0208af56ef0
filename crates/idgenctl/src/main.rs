//! idgenctl, the program for administrators of several servers with idgen.
//!
//! It only uses SQL that a person could run in psql. It connects as libpq does, changes nothing without consent, and
//! evaluates nothing that others than superusers have written. Each module uses only those above it.

mod cli;
mod terminal;

mod connection;

mod topology;

mod idgen;

mod commands;

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
