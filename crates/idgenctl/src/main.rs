//! idgenctl, a program for administrators who run idgen on several servers.
//!
//! The modules from top to bottom; none uses one above it.

mod commands;
mod topology;
mod idgen;
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
