//! Runs many worlds, on all processors, until one fails.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::judge::{Failure, Promise};
use crate::plan::{Broken, KINDS, NAMES, Plan};
use crate::shrink::shrink;
use crate::world::{Outcome, live_through};

/// The limits of a campaign; it ends at the first one reached.
#[derive(Clone, Debug, Default)]
pub struct Budget {
    pub seeds: Option<u64>,
    pub ids: Option<u64>,
    pub faults: Option<u64>,
    pub minutes: Option<u64>,
    pub progress: bool,
}

impl Budget {
    pub fn seeds(seeds: u64) -> Budget {
        Budget { seeds: Some(seeds), ..Budget::default() }
    }

    pub fn is_none(&self) -> bool {
        [self.seeds, self.ids, self.faults, self.minutes].iter().all(Option::is_none)
    }
}

/// The results of a campaign.
#[derive(Default)]
pub struct Tally {
    pub seeds: u64,
    pub ids: u64,
    calls: u64,
    refused: u64,
    horizons: u64,
    faults: [u64; KINDS],
    virtual_ns: u64,
    /// The least seed that failed, and its failure.
    pub failure: Option<(Plan, Failure)>,
}

/// A first seed of worlds that have not been tried before.
pub fn fresh_seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.as_millis() as u64
}

/// Runs one world after the other.
pub fn campaign(from: u64, broken: Option<Broken>, only: Option<Promise>, budget: &Budget) -> Tally {
    let next = AtomicU64::new(from);
    let tally = Mutex::new(Tally::default());
    let begin = Instant::now();
    let told = Mutex::new(begin);
    let work = || loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        let plan = Plan::draw(seed, broken);
        if tally.lock().unwrap().is_enough(budget, begin)
            || budget.seeds.is_some_and(|seeds| seed - from >= seeds)
        {
            return;
        }
        let outcome = live_through(&plan, only, false);
        let mut tally = tally.lock().unwrap();
        tally.add(plan, outcome);
        let mut told = told.lock().unwrap();
        if budget.progress && told.elapsed() > Duration::from_secs(10) {
            println!("{}", tally.line(begin));
            *told = Instant::now();
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let tally = tally.into_inner().unwrap();
    if broken.is_none() {
        println!("{}", tally.line(begin));
        if budget.progress {
            for (name, count) in NAMES.iter().zip(tally.faults) {
                println!("{count:>12}  {name}");
            }
        }
    }
    tally
}

impl Tally {
    fn add(&mut self, plan: Plan, outcome: Outcome) {
        self.seeds += 1;
        self.ids += outcome.ids;
        self.calls += outcome.calls;
        self.refused += outcome.refused;
        self.horizons += outcome.horizons;
        self.virtual_ns += outcome.time;
        for (sum, count) in self.faults.iter_mut().zip(outcome.faults) {
            *sum += count;
        }
        if let Some(failure) = outcome.failure
            && self.failure.as_ref().is_none_or(|(other, _)| plan.seed < other.seed)
        {
            self.failure = Some((plan, failure));
        }
    }

    fn faults(&self) -> u64 {
        self.faults.iter().sum()
    }

    fn is_enough(&self, budget: &Budget, begin: Instant) -> bool {
        self.failure.is_some()
            || budget.ids.is_some_and(|ids| self.ids >= ids)
            || budget.faults.is_some_and(|faults| self.faults() >= faults)
            || budget.minutes.is_some_and(|minutes| begin.elapsed() >= Duration::from_secs(60 * minutes))
    }

    fn line(&self, begin: Instant) -> String {
        format!(
            "{} worlds, {} faults, {} ids of {} calls, {} refused, {} horizons, {} s of virtual time in {} s",
            self.seeds,
            self.faults(),
            self.ids,
            self.calls,
            self.refused,
            self.horizons,
            self.virtual_ns / 1_000_000_000,
            begin.elapsed().as_secs()
        )
    }

    /// Fails if a world has failed, and reports the smallest world that fails.
    pub fn assert_holds(self) {
        let Some((plan, failure)) = self.failure else { return };
        println!("SEED={} breaks {:?}: {}", plan.seed, failure.promise, failure.text);
        let (small, failure) = shrink(&plan, failure, None);
        println!("shrunk to:\n{small}");
        let trace = live_through(&small, None, true).trace;
        for line in &trace[trace.len().saturating_sub(80)..] {
            println!("{line}");
        }
        panic!("SEED={}: {:?}: {}", small.seed, failure.promise, failure.text);
    }
}
