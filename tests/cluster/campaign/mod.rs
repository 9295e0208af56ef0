//! All promises under faults drawn at random: `make faults ROUNDS=… MINUTES=… FLEETS=… SEED=… TALLY=…`. See
//! docs/contributing/campaign.md.
//!
//! A fleet is a primary, its standbys and their clients, and lasts for [`ROUNDS_OF_A_FLEET`] rounds. All random choices
//! follow from its seed, and none depends on the speed of the machine. So the seed replays the fleet, and fewer rounds
//! are the beginning of the same fleet. The journal is judged after each round, so that a failure takes few rounds.

mod faults;
mod journal;
mod mutations;
mod sessions;
mod tally;
mod fleet;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::process::{number_variable, preloads, servers_folder};
use fleet::Fleet;
use tally::{Page, Tally};

/// After this many rounds at most, a new fleet begins.
const ROUNDS_OF_A_FLEET: u64 = 20;
const PRINT_EVERY: Duration = Duration::from_secs(10);

struct Campaign {
    first: u64,
    rounds: u64,
    rounds_of_a_fleet: u64,
    until: Option<Instant>,
    /// The user has asked for the end, or a fleet has failed.
    stop: Arc<AtomicBool>,
    next: Mutex<u64>,
    tally: Mutex<Tally>,
}

#[test]
fn random_faults() {
    let minutes = number_variable("MINUTES");
    let at_once = number_variable("FLEETS").unwrap_or(4).max(1);
    let page = std::env::var("TALLY").ok().filter(|name| !name.is_empty()).map(|name| Page::open(&name));
    let rounds = number_variable("ROUNDS").unwrap_or(if minutes.is_some() { u64::MAX } else { 12 });
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The second signal ends the process at once.
        flag::register_conditional_shutdown(signal, 1, stop.clone()).expect("a signal");
        flag::register(signal, stop.clone()).expect("a signal");
    }
    let campaign = Campaign {
        first: number_variable("SEED").unwrap_or_else(|| fastrand::u64(..1 << 32)),
        rounds,
        rounds_of_a_fleet: rounds.div_ceil(at_once).min(ROUNDS_OF_A_FLEET),
        until: minutes.map(|minutes| Instant::now() + Duration::from_secs(60 * minutes)),
        stop,
        next: Mutex::new(0),
        tally: Mutex::new(Tally::default()),
    };
    println!("fleets from SEED={} on", campaign.first);
    let start = Instant::now();
    let ended = AtomicBool::new(false);
    let failed = thread::scope(|scope| {
        let printer = scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                thread::park_timeout(PRINT_EVERY);
                println!(
                    "{:?}: {}",
                    Duration::from_secs(start.elapsed().as_secs()),
                    campaign.tally().brief()
                );
            }
        });
        let fleets: Vec<_> = (0..at_once).map(|_| scope.spawn(|| campaign.run())).collect();
        let ends: Vec<_> = fleets.into_iter().map(|fleet| fleet.join()).collect();
        ended.store(true, Ordering::Relaxed);
        printer.thread().unpark();
        ends.into_iter().find_map(Result::err)
    });
    let mut tally = campaign.tally();
    tally.close(campaign.first, *campaign.next.lock().expect("next"), start.elapsed());
    println!("{tally}");
    if let Some(page) = page {
        page.add(tally);
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

    /// Runs fleets one after the other until there are no more rounds.
    fn run(&self) {
        while let Some(number) = self.next_fleet() {
            let rounds = self.rounds - number * self.rounds_of_a_fleet;
            self.run_fleet(self.first + number, rounds.min(self.rounds_of_a_fleet));
        }
    }

    fn next_fleet(&self) -> Option<u64> {
        let mut next = self.next.lock().expect("next");
        let is_more = !self.is_over() && *next * self.rounds_of_a_fleet < self.rounds;
        is_more.then(|| {
            *next += 1;
            *next - 1
        })
    }

    fn run_fleet(&self, seed: u64, rounds: u64) {
        let folder = servers_folder().join(format!("fleet-{}-{seed}", std::process::id()));
        let mut round = 1;
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let mut fleet = Fleet::new(seed, &folder, None);
            while round <= rounds && !self.is_over() {
                self.run_round(&mut fleet, seed);
                round += 1;
            }
            fleet.end();
        }));
        if let Err(failure) = ended {
            // Ctrl-C ends the programs of PostgreSQL too, which a fleet may be waiting for.
            let interrupted = self.stop.swap(true, Ordering::Relaxed);
            println!(
                "\nfleet {seed} {} in round {round}; the journal is {}, and the servers are beside it.\n\
                 To replay: {}make faults SEED={seed} ROUNDS={round} FLEETS=1\n",
                if interrupted { "was cut short" } else { "FAILED" },
                folder.display(),
                if preloads() { "" } else { "IDGEN_PRELOAD=no " }
            );
            if !interrupted {
                self.tally.lock().expect("tally").fail();
                resume_unwind(failure);
            }
        }
    }

    fn run_round(&self, fleet: &mut Fleet, seed: u64) {
        let before = fleet.history.judge.counts.clone();
        let (outcomes, found) = fleet.round();
        let mut tally = self.tally.lock().expect("tally");
        tally.add(&outcomes, &before, &fleet.history.judge.counts, found.len() as u64);
        drop(tally);
        let first = found[..found.len().min(10)].join("\n");
        assert!(found.is_empty(), "fleet {seed}: {} findings, the first:\n{first}", found.len());
    }
}
