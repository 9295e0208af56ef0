//! The faults that can strike a fleet.

mod builds;
mod clock;
mod crash;
mod disks;
mod ends;
mod failover;
mod moves;
mod network;
mod processes;
mod settings;
mod standbys;
mod subscribers;
mod transactions;

use std::thread;
use std::time::Duration;

use crate::campaign::fleet::Fleet;
use crate::server::{Build, Server};

pub type Heal = Box<dyn FnOnce(&mut Fleet)>;

pub enum Struck {
    /// The fault is over; the text describes it.
    Done(String),
    /// The fault lasts until the end of the round, which heals it in this way. Other faults may strike in the meantime.
    Lasting(String, Heal),
    /// The fault was not possible, for this reason.
    Skipped(&'static str),
}

/// The beginnings of the errors with which calls may be refused: the SQLSTATE and the reason, or "lost" if the
/// connection broke.
pub type Refusals = &'static [&'static str];

/// The server or the connection has ended.
pub const CUT: Refusals = &["lost", "57P01", "57P02", "57P03"];
/// The standbys of the primary, or its disk, do not respond.
pub const NOT_DURABLE: Refusals = &["40001 mark_not_durable"];
/// `idgen.allowed_shards` lacks the shard.
pub const NOT_ALLOWED: Refusals = &["55000 shard_not_allowed"];

/// The disk with the WAL fails: the backend that notices reports it, and the server ends.
pub const BAD_DISK: Refusals = &["58030", "53100"];

pub struct Fault {
    /// Its name in the tally.
    pub name: &'static str,
    pub weight: usize,
    /// Whether the fault can strike this fleet. The answer depends on nothing but the seed.
    pub can: fn(&Fleet) -> bool,
    pub strike: fn(&mut Fleet) -> Struck,
    /// The refusals that the fault explains until everything is healed and the primary and its standbys are back.
    /// Refusals because of the clock (behind, jumped, full shard) need not be listed, because the judge knows the
    /// settings of the clocks.
    pub allows: &'static [Refusals],
}

const fn fault(
    name: &'static str,
    weight: usize,
    can: fn(&Fleet) -> bool,
    strike: fn(&mut Fleet) -> Struck,
    allows: &'static [Refusals],
) -> Fault {
    Fault { name, weight, can, strike, allows }
}

const ALL: &[&[Fault]] = &[
    crash::FAULTS,
    clock::FAULTS,
    processes::FAULTS,
    network::FAULTS,
    standbys::FAULTS,
    failover::FAULTS,
    disks::FAULTS,
    settings::FAULTS,
    transactions::FAULTS,
    builds::FAULTS,
    ends::FAULTS,
    subscribers::FAULTS,
    moves::FAULTS,
];

/// Draws one of the faults that can strike, if there are any; one that matches the variable ONLY, if some do.
pub fn draw(fleet: &mut Fleet) -> Option<&'static Fault> {
    let mut can: Vec<_> = ALL.iter().copied().flatten().filter(|fault| (fault.can)(fleet)).collect();
    if let Ok(only) = std::env::var("ONLY")
        && can.iter().any(|fault| fault.name.contains(&only))
    {
        can.retain(|fault| fault.name.contains(&only));
    }
    if !fleet.only.is_empty() {
        can.retain(|fault| fleet.only.contains(&fault.name));
    }
    if can.is_empty() {
        return None;
    }
    let mut at = fleet.rng.usize(0..can.iter().map(|fault| fault.weight).sum());
    can.into_iter().find(|fault| {
        let here = at < fault.weight;
        at = at.saturating_sub(fault.weight);
        here
    })
}

/// Shuts a server down: "fast" or "immediate".
fn stop(server: &Server, how: &str) {
    // A fast shutdown while PostgreSQL restarts after the death of a backend never ends: it waits for the checkpointer
    // of the recovery without signaling it.
    thread::sleep(Duration::from_millis(100));
    server.reconnect();
    server.stop(how);
}

/// For faults that can strike every fleet, even during another fault.
fn always(_: &Fleet) -> bool {
    true
}

/// For faults that a lasting fault would hinder.
fn alone(fleet: &Fleet) -> bool {
    fleet.lasting.is_empty()
}

fn has_standby(fleet: &Fleet) -> bool {
    !fleet.standbys.is_empty()
}

fn is_synchronous(fleet: &Fleet) -> bool {
    fleet.names.is_some()
}

fn has_fault_points(fleet: &Fleet) -> bool {
    fleet.primary.build() == Build::Faults
}
