//! What a world can be struck by.

mod clock;
mod crash;
mod failover;

use crate::campaign::world::World;
use crate::server::Build;

/// Ends a fault that lasts.
pub type Heal = Box<dyn FnOnce(&mut World)>;

/// What became of a fault.
pub enum Struck {
    /// It is over; how it was.
    Done(String),
    /// It lasts until it is healed, at the end of the round; how it is. Others may strike meanwhile.
    Lasting(String, Heal),
    /// This machine cannot have it; why.
    Skipped(&'static str),
}

/// A kind of fault.
pub struct Fault {
    /// What the tally calls it.
    pub name: &'static str,
    /// How often it is drawn, beside the others.
    pub weight: usize,
    /// Whether it can strike this world. It may look at nothing but what follows from the seed.
    pub can: fn(&World) -> bool,
    /// Strikes.
    pub strike: fn(&mut World) -> Struck,
}

/// Every kind.
const ALL: &[&[Fault]] = &[crash::FAULTS, clock::FAULTS, failover::FAULTS];

/// Draws one of those that can strike.
pub fn draw(world: &mut World) -> &'static Fault {
    let can: Vec<_> = ALL.iter().copied().flatten().filter(|fault| (fault.can)(world)).collect();
    let mut at = world.rng.usize(0..can.iter().map(|fault| fault.weight).sum());
    can.iter()
        .find(|fault| {
            let here = at < fault.weight;
            at = at.saturating_sub(fault.weight);
            here
        })
        .expect("a fault that is drawn")
}

/// For faults that strike whatever the world is, and beside any that lasts.
fn always(_: &World) -> bool {
    true
}

fn has_standby(world: &World) -> bool {
    !world.standbys.is_empty()
}

fn has_fault_points(world: &World) -> bool {
    world.primary.build() == Build::Faults
}
