//! idgenctl, the program for whoever runs several servers with idgen.
//!
//! It only uses SQL that a person could run in psql. It connects as libpq does, changes nothing without consent, and
//! evaluates nothing that others than superusers have written.
#![forbid(unsafe_code)]

mod cli;
mod clock;
mod cluster;
mod commands;
mod error;
mod extension;
mod fleet;
mod lists;
mod output;
mod preload;
mod releases;
mod server;
mod session;
mod status;
mod steps;
mod synchronous_names;
mod waiting;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    match commands::run(&cli) {
        Ok(code) => code.into(),
        Err(error) => {
            output::error(&cli, &error);
            error.exit_code().into()
        }
    }
}
