//! Tests on real throw-away servers, for everything that takes several backends, signals or restarts. `make test` runs
//! them. docs/guarantees.md lists the promises that they name.
#![allow(clippy::unwrap_used)]

mod alerts;
mod campaign;
mod check;
mod clients;
mod clocks;
mod coming_from;
mod companions;
mod counters;
mod crashes;
mod enable;
mod fleet;
mod fuzz;
mod horizon;
mod install;
mod kubernetes;
mod minting;
mod moment;
mod moves;
mod not_preloaded;
mod operations;
mod origins;
mod pooling;
mod portable;
mod process;
mod runbook;
mod scaling;
mod server;
mod settings;
mod shards;
mod soak;
mod standbys;
mod state;
mod upgrades;
mod waiting;
