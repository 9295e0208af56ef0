//! All promises under faults drawn at random: `make faults ROUNDS=… MINUTES=… WORLDS=… SEED=… TALLY=…`. See
//! docs/campaign.md.
//!
//! A world is a primary, its standbys and their clients, and lives for [`ROUNDS_OF_A_WORLD`] rounds. All random
//! choices follow from its seed, and none depends on the speed of the machine. So the seed replays the world, and
//! fewer rounds are the beginning of the same world. It is checked after each round, so that a failure takes as few
//! rounds as possible.

mod faults;
mod journal;
mod mutations;
mod sessions;
mod tally;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::process::{house, number_variable};
use tally::{Page, Tally};
use world::World;

/// After so many rounds, at most, a new world begins.
const ROUNDS_OF_A_WORLD: u64 = 20;
/// How often the state of a run is told.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// The state that the worlds of a run share.
struct Campaign {
    first: u64,
    rounds: u64,
    rounds_of_a_world: u64,
    until: Option<Instant>,
    /// Somebody has asked for the end, or a world has failed.
    stop: Arc<AtomicBool>,
    next: Mutex<u64>,
    tally: Mutex<Tally>,
}

#[test]
fn random_faults() {
    let minutes = number_variable("MINUTES");
    let at_once = number_variable("WORLDS").unwrap_or(4).max(1);
    let page = std::env::var("TALLY").ok().filter(|name| !name.is_empty()).map(|name| Page::open(&name));
    let rounds = number_variable("ROUNDS").unwrap_or(if minutes.is_some() { u64::MAX } else { 12 });
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The second time at once.
        flag::register_conditional_shutdown(signal, 1, stop.clone()).expect("a signal");
        flag::register(signal, stop.clone()).expect("a signal");
    }
    let campaign = Campaign {
        first: number_variable("SEED").unwrap_or_else(|| fastrand::u64(..1 << 32)),
        rounds,
        rounds_of_a_world: rounds.div_ceil(at_once).min(ROUNDS_OF_A_WORLD),
        until: minutes.map(|minutes| Instant::now() + Duration::from_secs(60 * minutes)),
        stop,
        next: Mutex::new(0),
        tally: Mutex::new(Tally::default()),
    };
    let start = Instant::now();
    let ended = AtomicBool::new(false);
    let failed = thread::scope(|scope| {
        let teller = scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                thread::park_timeout(TELL_EVERY);
                println!(
                    "{:?}: {}",
                    Duration::from_secs(start.elapsed().as_secs()),
                    campaign.tally().brief()
                );
            }
        });
        let worlds: Vec<_> = (0..at_once).map(|_| scope.spawn(|| campaign.live())).collect();
        let ends: Vec<_> = worlds.into_iter().map(|world| world.join()).collect();
        ended.store(true, Ordering::Relaxed);
        teller.thread().unpark();
        ends.into_iter().find_map(Result::err)
    });
    let mut tally = campaign.tally();
    tally.close(campaign.first, *campaign.next.lock().expect("next"), start.elapsed());
    println!("{tally}");
    if let Some(page) = page {
        page.add(&tally);
    }
    if let Some(failed) = failed {
        resume_unwind(failed);
    }
}

impl Campaign {
    fn tally(&self) -> Tally {
        self.tally.lock().expect("tally").clone()
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Lives one world after the other, as long as there are rounds.
    fn live(&self) {
        while let Some(number) = self.next_world() {
            let rounds = self.rounds - number * self.rounds_of_a_world;
            self.live_world(self.first + number, rounds.min(self.rounds_of_a_world));
        }
    }

    fn next_world(&self) -> Option<u64> {
        let mut next = self.next.lock().expect("next");
        let is_more = !self.is_over() && *next * self.rounds_of_a_world < self.rounds;
        is_more.then(|| {
            *next += 1;
            *next - 1
        })
    }

    /// Lives the first rounds of the world of a seed.
    fn live_world(&self, seed: u64, rounds: u64) {
        let folder = house().join(format!("world-{}-{seed}", std::process::id()));
        let mut round = 1;
        let lived = catch_unwind(AssertUnwindSafe(|| {
            let mut world = World::new(seed, &folder);
            while round <= rounds && !self.is_over() {
                self.live_round(&mut world, seed);
                round += 1;
            }
            world.end();
        }));
        if let Err(failure) = lived {
            // Ctrl-C ends the programs of PostgreSQL too, which a world may be waiting for.
            let interrupted = self.stop.swap(true, Ordering::Relaxed);
            let folder: PathBuf = folder;
            println!(
                "\nworld {seed} {} in round {round}; the journal is {}, and the servers are beside it.\n\
                 To replay: make faults SEED={seed} ROUNDS={round} WORLDS=1\n",
                if interrupted { "was cut short" } else { "FAILED" },
                folder.display()
            );
            if !interrupted {
                self.tally.lock().expect("tally").fail();
                resume_unwind(failure);
            }
        }
    }

    fn live_round(&self, world: &mut World, seed: u64) {
        let before = world.history.counts.clone();
        let (outcomes, found) = world.round();
        let mut tally = self.tally.lock().expect("tally");
        tally.add(&outcomes, &before, &world.history.counts, found.len() as u64);
        drop(tally);
        assert!(found.is_empty(), "world {seed}: {} findings, the first:\n{}", found.len(), first_of(&found));
    }
}

/// The first of the findings.
fn first_of(found: &[String]) -> String {
    found[..found.len().min(10)].join("\n")
}
