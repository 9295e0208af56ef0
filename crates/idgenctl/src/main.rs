//! idgenctl, a program for administrators who run idgen on several servers.
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
use nix::sys::resource::{Resource, setrlimit};

fn main() -> ExitCode {
    // A hostile server may send data without end, also to pg_dump and psql, which inherit the limit.
    let _ = setrlimit(Resource::RLIMIT_DATA, 4 << 30, 4 << 30);
    let cli = cli::Cli::parse();
    match commands::run(&cli) {
        Ok(code) => code.into(),
        Err(error) => {
            terminal::output::error(&cli, &error);
            error.exit_code().into()
        }
    }
}
