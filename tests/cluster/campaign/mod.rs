//! Promise 1 under faults drawn at random: `make faults ROUNDS=… WORLDS=… SEED=…`.
//!
//! A world is a primary, its standbys and their clients, and lives for [`ROUNDS_OF_A_WORLD`] rounds. Everything that
//! is drawn in it follows from its seed, and nothing that is drawn depends on how fast the machine is: so the seed
//! replays the world, and fewer rounds of it are the beginning of the same world.

mod faults;
mod world;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::clients::Ledger;
use crate::process::number_variable;
use world::World;

/// After so many rounds a new world begins.
const ROUNDS_OF_A_WORLD: u64 = 20;

#[test]
fn random_faults() {
    let rounds = number_variable("ROUNDS").unwrap_or(6);
    let at_once = number_variable("WORLDS").unwrap_or(2).max(1);
    let first = number_variable("SEED").unwrap_or_else(|| fastrand::u64(..1 << 32));
    let next = AtomicU64::new(0);
    let (faults, ids) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let left = rounds.saturating_sub(number * ROUNDS_OF_A_WORLD);
                    if left == 0 {
                        break;
                    }
                    let (struck, given) = live(first + number, left.min(ROUNDS_OF_A_WORLD));
                    faults.fetch_add(struck, Ordering::Relaxed);
                    ids.fetch_add(given, Ordering::Relaxed);
                }
            });
        }
    });
    println!("{rounds} rounds, {} faults, {} ids, seed {first}", faults.into_inner(), ids.into_inner());
}

/// Lives the first rounds of the world of a seed; how many faults it was struck by, and how many ids it gave.
fn live(seed: u64, rounds: u64) -> (u64, u64) {
    println!("to replay: make faults SEED={seed} ROUNDS={rounds} WORLDS=1");
    let mut ledger = Ledger::default();
    let mut world = World::new(seed);
    let mut faults = 0;
    for round in 1..=rounds {
        for fault in world.round(&mut ledger) {
            faults += 1;
            println!("world {seed}, round {round}/{rounds}, {} ids: {fault}", ledger.given());
        }
    }
    println!("calls refused or cut off: {:#?}", ledger.errors);
    (faults, ledger.given() as u64)
}
