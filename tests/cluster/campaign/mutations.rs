//! Checks that the faults find errors of the program: `scripts/test mutations`. A server with `idgen.mutation` has one
//! known error, see src/testing/mutation.rs, and faults of one kind strike it until the judge reports the error.

use std::any::Any;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::thread;

use crate::campaign::fleet::Fleet;
use crate::campaign::tally::with_text;
use crate::process::{number_variable, servers_folder, top};

/// A fault, and an error that it has to reveal.
pub struct Pair {
    /// The fault, and the faults that it needs in addition.
    pub faults: Texts,
    pub mutation: &'static str,
    /// The beginnings that the judge's sentence may have.
    rules: Texts,
    pub standbys: usize,
}

type Texts = &'static [&'static str];

const fn pair(faults: Texts, mutation: &'static str, rules: Texts, standbys: usize) -> Pair {
    Pair { faults, mutation, rules, standbys }
}

/// The sentences about ids that are or could be repeated, because a server continues below earlier ids.
const AGAIN: &[&str] =
    &["repeated", "out of order", "server ", "the horizon went back", "below a horizon", "the row of"];
const REFUSED: &[&str] = &["a refusal that no promise allows", "the clients get no answers"];
const TOO_OLD: &[&str] = &["before its call"];
const BELOW: &[&str] = &["below a horizon", "the row of"];
const ELSEWHERE: &[&str] = &["of a shard that is elsewhere", "repeated"];
/// The panic of the fault itself.
const STAYS: &[&str] = &["a session from before the promotion mints after it"];
const NO_STANDBY: &[&str] = &["a standby refuses an id for another reason"];

/// This fault makes a restarted server begin below earlier ids.
const SET: &str = "clock set for long";
const FAILOVER: &str = "failover";
const REMOVED: &str = "synchronous names removed";

static PAIRS: &[Pair] = &[
    pair(&["kill of the postmaster"], "no-floor", AGAIN, 0),
    pair(&["immediate shutdown"], "no-wal", AGAIN, 0),
    pair(&["restart", SET], "no-floor", AGAIN, 0),
    pair(&["kill of a backend", SET], "no-wal", AGAIN, 0),
    pair(&["death of a renewing backend", SET], "no-wal", AGAIN, 0),
    pair(&["clock set and set back"], "follows-clock", AGAIN, 0),
    pair(&["clock set and set back"], "old-clock", TOO_OLD, 0),
    pair(&["clock set and set back"], "no-raised-floor", BELOW, 0),
    pair(&[SET], "follows-clock", AGAIN, 0),
    pair(&["shards taken away and given back"], "any-shard", &["never done"], 0),
    pair(&["settings changed"], "lease-by-setting", AGAIN, 0),
    pair(&["base backup restored"], "no-floor", AGAIN, 0),
    pair(&["subscriber that mints"], "any-shard", &["repeated"], 0),
    pair(&["shard moved away and back"], "not-closed", ELSEWHERE, 0),
    pair(&["shard moved away and back"], "js-forgotten", ELSEWHERE, 0),
    pair(&["epoch moved and moved back"], "any-epoch", &["ids by another epoch"], 0),
    pair(&["another build of the library"], "other-origin", AGAIN, 0),
    pair(&["crashes during recovery"], "no-wal", AGAIN, 0),
    pair(&["advance of shards"], "advance-forgotten", &["repeated", "out of order", "Some("], 0),
    pair(&["prepared transactions"], "no-prepared", &["a horizon beside prepared transactions"], 0),
    pair(&["kill of an auxiliary process", SET], "no-wal", AGAIN, 0),
    pair(&["death of a renewing backend"], "claim-forever", REFUSED, 0),
    pair(&["minting backend stopped"], "no-start", BELOW, 0),
    pair(&["minting backend stopped"], "old-clock", TOO_OLD, 0),
    pair(&["minting backend stopped"], "no-lock", AGAIN, 0),
    pair(&["renewing backend stopped"], "claim-forever", REFUSED, 0),
    pair(&["process stopped", "loss of power"], "no-flush", AGAIN, 0),
    pair(&["machine paused"], "follows-clock", AGAIN, 0),
    pair(&["loss of power"], "no-flush", AGAIN, 0),
    // Not "no-flush", because standbys receive only flushed WAL.
    pair(&["loss of power of all servers"], "no-wal", AGAIN, 1),
    pair(&["stall of a disk", "loss of power"], "published-first", AGAIN, 0),
    pair(&["slow disk", "loss of power"], "published-first", AGAIN, 0),
    pair(&["WAL not written", SET], "no-flush", AGAIN, 0),
    pair(&["WAL not flushed", SET], "no-wal", AGAIN, 0),
    pair(&["failover after synchronous names are set"], "standbys-of-statement", AGAIN, 1),
    pair(&[FAILOVER], "no-standbys", AGAIN, 1),
    pair(&["synchronous names changed", FAILOVER], "standbys-of-statement", AGAIN, 1),
    pair(&[REMOVED, "synchronous names changed", FAILOVER], "standbys-of-statement", AGAIN, 1),
    pair(&[FAILOVER], "loaded-in-recovery", NO_STANDBY, 1),
    pair(&[FAILOVER], "stays-in-recovery", STAYS, 1),
    pair(&["failover after synchronous names are set"], "stays-in-recovery", STAYS, 1),
    pair(&["asynchronous failover", REMOVED], "stays-in-recovery", STAYS, 1),
    pair(&["network cut", FAILOVER], "no-standbys", AGAIN, 2),
    pair(&["network cut"], "gives-up", REFUSED, 1),
    pair(&["standby goes and comes back"], "gives-up", REFUSED, 1),
    pair(&["process stopped"], "gives-up", REFUSED, 1),
];

/// The number of rounds in which a fault must find the error.
const MOST_ROUNDS: u64 = 60;
/// After this many rounds a new fleet begins, because a fleet that has gone wrong may not recover.
const ROUNDS_OF_A_FLEET: u64 = 6;

struct Found {
    seed: u64,
    round: u64,
    after: u64,
    finding: String,
}

#[test]
#[ignore = "half an hour: scripts/test mutations"]
fn every_fault_finds_a_program_that_is_wrong() {
    let [mutation, fault] = ["MUTATION", "FAULT"].map(|name| std::env::var(name).unwrap_or_default());
    let pairs =
        PAIRS.iter().filter(|pair| pair.mutation.contains(&mutation) && pair.faults[0].contains(&fault));
    let first = number_variable("SEED").unwrap_or_else(|| fastrand::u64(..1 << 32));
    let (left, found) = (Mutex::new(pairs), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..number_variable("FLEETS").unwrap_or(3).max(1) {
            scope.spawn(|| {
                loop {
                    let next = left.lock().expect("pairs").next();
                    let Some(pair) = next else { break };
                    let result = hunt(pair, first);
                    println!("{}", report(pair, result.as_ref()));
                    let mut found = found.lock().expect("found");
                    found.push((pair, result));
                    // The table has the order of the list of pairs.
                    found.sort_by_key(|(pair, _)| PAIRS.iter().position(|other| std::ptr::eq(other, *pair)));
                    if let Ok(page) = std::env::var("PAGE") {
                        write_table(&top().join(page), &found);
                    }
                }
            });
        }
    });
    let found = found.into_inner().expect("found");
    let missed: Vec<_> =
        found.iter().filter(|(_, found)| found.is_none()).map(|(pair, _)| pair.mutation).collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

/// Runs fleets of a wrong program, from this seed on, until the judge finds the expected violation.
fn hunt(pair: &'static Pair, first: u64) -> Option<Found> {
    let mut rounds = 0;
    for seed in first.. {
        if rounds >= MOST_ROUNDS {
            break;
        }
        let folder = servers_folder().join(format!(
            "mutant-{}-{}-{seed}",
            std::process::id(),
            pair as *const Pair as usize
        ));
        let mut fleet = Fleet::new(seed, &folder, Some(pair));
        for round in 1..=ROUNDS_OF_A_FLEET.min(MOST_ROUNDS - rounds) {
            rounds += 1;
            // A fault may notice the error itself, or fail because of it.
            let ended = catch_unwind(AssertUnwindSafe(|| fleet.round().1));
            let findings = ended.unwrap_or_else(|failure| vec![message_of(&*failure)]);
            let finding = findings.iter().find(|finding| pair.finds(finding));
            if let Some(finding) = finding.cloned() {
                let _ = fs::remove_dir_all(&folder);
                return Some(Found { seed, round, after: rounds, finding });
            }
            if !findings.is_empty() {
                println!("{} by {}: only {}", pair.mutation, pair.faults[0], findings[0]);
                break;
            }
        }
        drop(fleet);
        let _ = fs::remove_dir_all(&folder);
    }
    None
}

fn message_of(failure: &(dyn Any + Send)) -> String {
    let text = failure.downcast_ref::<String>().cloned();
    text.or_else(|| failure.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

const MARKS: [&str; 2] = ["<!-- `make mutations` writes from here -->\n", "<!-- to here: mutations -->\n"];

fn write_table(page: &Path, found: &[(&Pair, Option<Found>)]) {
    let mut table = "| fault | mutation | rounds |\n|---|---|---|\n".to_owned();
    for (pair, found) in found {
        table += &format!("{}\n", row(pair, found.as_ref()));
    }
    let text = fs::read_to_string(page).expect("the page");
    fs::write(page, with_text(&text, MARKS, &table)).expect("the page");
}

fn row(pair: &Pair, found: Option<&Found>) -> String {
    let rounds = found.map_or_else(|| format!("not in {MOST_ROUNDS}"), |found| found.after.to_string());
    format!("| {} | `{}` | {rounds} |", pair.faults.join(", "), pair.mutation)
}

/// The row with what the table leaves out: the seed and round that replay it, and the judge's sentence.
fn report(pair: &Pair, found: Option<&Found>) -> String {
    let what = format!("{} by {}:", pair.mutation, pair.faults.join(", "));
    match found {
        Some(Found { seed, round, after, finding }) => {
            // The evidence follows a colon, and a fault may show the server's log below.
            let sentence = finding.lines().next().unwrap_or_default().split(": ").next().unwrap_or_default();
            let sentence: String = sentence.chars().take(100).collect();
            format!("{what} after {after} rounds, in round {round} of seed {seed}: {sentence}")
        }
        None => format!("{what} not in {MOST_ROUNDS} rounds"),
    }
}

impl Pair {
    fn finds(&self, finding: &str) -> bool {
        self.rules.iter().any(|rule| finding.starts_with(rule))
    }
}
