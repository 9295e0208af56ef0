//! idgenctl, a program for administrators who run idgen on several servers.
//!
//! It uses only SQL that could be typed into psql. It connects as libpq does, changes nothing without consent, and
//! never evaluates anything written by a role that is not a superuser.
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
