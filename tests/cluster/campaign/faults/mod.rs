//! The faults that can strike a world.

mod builds;
mod clock;
mod crash;
mod disks;
mod ends;
mod failover;
mod names;
mod network;
mod processes;
mod recovery;
mod settings;
mod standbys;
mod subscribers;
mod transactions;

use crate::campaign::world::World;
use crate::server::Build;

/// Ends a fault that lasts.
pub type Heal = Box<dyn FnOnce(&mut World)>;

/// What became of a fault.
pub enum Struck {
    /// It is over; how it was.
    Done(String),
    /// It lasts until it is healed, at the end of the round, in the given way. Others may strike in the meantime.
    Lasting(String, Heal),
    /// This machine cannot have it; why.
    Skipped(&'static str),
}

/// The beginnings of the errors with which calls may be refused: the SQLSTATE and the message, or "lost" if the
/// connection broke.
pub type Refusals = &'static [&'static str];

/// The server, or the connection, went away.
pub const CUT: Refusals = &["lost", "57P01", "57P02", "57P03"];
/// The standbys of the primary, or its disk, do not respond.
pub const NOT_DURABLE: Refusals = &["40001 the high-water mark of ids could not be made durable in time"];
/// `idgen.allowed_shards` is without the shard.
pub const NOT_ALLOWED: Refusals = &["55000 this server may not mint ids for shard"];

/// The disk with the WAL fails: the backend that notices reports it, and the server ends.
pub const BAD_DISK: Refusals = &["58030 could not", "53100 could not"];

/// A kind of fault.
pub struct Fault {
    /// Its name in the tally.
    pub name: &'static str,
    /// Its weight relative to the others.
    pub weight: usize,
    /// Whether it can strike this world. It may look at nothing but what follows from the seed.
    pub can: fn(&World) -> bool,
    /// Strikes.
    pub strike: fn(&mut World) -> Struck,
    /// The refusals that it explains while it lasts, until everything is healed and the primary and its standbys
    /// are back. Those because of the clock (behind, jumped, full shard) need not be named: the checker knows from
    /// the settings of the clocks when they are due.
    pub allows: &'static [Refusals],
}

/// Every kind.
const ALL: &[&[Fault]] = &[
    crash::FAULTS,
    clock::FAULTS,
    processes::FAULTS,
    network::FAULTS,
    names::FAULTS,
    standbys::FAULTS,
    failover::FAULTS,
    disks::FAULTS,
    settings::FAULTS,
    transactions::FAULTS,
    recovery::FAULTS,
    builds::FAULTS,
    ends::FAULTS,
    subscribers::FAULTS,
];

/// Chooses one of those that can strike, if any; if some match the variable ONLY, one of those.
pub fn draw(world: &mut World) -> Option<&'static Fault> {
    let mut can: Vec<_> = ALL.iter().copied().flatten().filter(|fault| (fault.can)(world)).collect();
    if let Ok(only) = std::env::var("ONLY")
        && can.iter().any(|fault| fault.name.contains(&only))
    {
        can.retain(|fault| fault.name.contains(&only));
    }
    if !world.only.is_empty() {
        can.retain(|fault| world.only.contains(&fault.name));
    }
    if can.is_empty() {
        return None;
    }
    let mut at = world.rng.usize(0..can.iter().map(|fault| fault.weight).sum());
    can.into_iter().find(|fault| {
        let here = at < fault.weight;
        at = at.saturating_sub(fault.weight);
        here
    })
}

/// For faults that can strike any world, even during another fault.
fn always(_: &World) -> bool {
    true
}

fn has_standby(world: &World) -> bool {
    !world.standbys.is_empty()
}

fn is_synchronous(world: &World) -> bool {
    world.names.is_some()
}

fn has_fault_points(world: &World) -> bool {
    world.primary.build() == Build::Faults
}
