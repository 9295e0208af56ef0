//! A simulator: runs the program's own protocol, `mint`, `renew` and `horizon`, on hosts in virtual time. Clocks, WAL,
//! disks, network, standbys, configuration and processes are virtual. A seed determines what happens to them, and the
//! order in which backends run. Each backend is a coroutine that another process may interrupt wherever that is
//! possible in PostgreSQL. The results are checked against the promises of docs/guarantees.md.
//!
//! Worlds are random: hours of calls, hundreds of thousands of faults, and combinations of all of them. Some are
//! steered to places that other worlds seldom reach, where the order of steps matters.
//!
//! `make simulate` runs the simulator for MINUTES; SEED repeats one world. A world that fails is first shrunk, and then
//! reported.
#![allow(clippy::unwrap_used)]

mod backend;
mod campaign;
mod client;
mod host;
mod judge;
mod plan;
mod shrink;
mod world;

use campaign::{Budget, campaign};
use idgen_core::settings::Settings;
use judge::Promise;
use plan::{Broken, EPOCH, Event, Fault, MS, Names, Place, Plan, US};
use world::live_through;

/// Promises 1, 2, 3, 4 and 6, in the same worlds each time.
#[test]
fn drawn_worlds_keep_the_promises() {
    campaign(0, None, None, &Budget::seeds(500)).assert_holds();
}

/// The same in more worlds. `make simulate` tries new worlds.
#[test]
#[ignore = "takes a minute"]
fn more_worlds_keep_the_promises() {
    campaign(500, None, None, &Budget::seeds(4000)).assert_holds();
}

/// The same in worlds that are steered as if a step was left out: backends pause often, the horizon is read, and clocks
/// are set or servers restart all the time. Such clocks make marks late in ways that the judge of refusals does not
/// know.
#[test]
#[ignore = "takes a minute"]
fn steered_worlds_keep_the_promises() {
    let live = |broken| {
        for seed in 0..6000 {
            let plan = Plan { broken: None, ..Plan::draw(seed, Some(broken)) };
            let failure = live_through(&plan, None, false).failure;
            let failure = failure.filter(|failure| failure.promise != Promise::Availability);
            assert!(failure.is_none(), "{broken:?} {seed}: {failure:?}");
        }
    };
    std::thread::scope(|scope| {
        for broken in [Broken::StartsReadFirst, Broken::FloorReadFirst] {
            scope.spawn(move || live(broken));
        }
    });
}

/// The same for as long as requested.
#[test]
#[ignore = "takes as long as MINUTES says"]
fn simulate() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let budget = Budget {
        seeds: number("SEEDS"),
        ids: number("IDS"),
        faults: number("FAULTS"),
        minutes: number("MINUTES"),
        progress: true,
    };
    match number("SEED") {
        Some(seed) if budget.is_none() => {
            campaign(seed, None, None, &Budget { seeds: Some(1), ..budget }).assert_holds();
        }
        seed => {
            let from = seed.unwrap_or_else(campaign::fresh_seed);
            println!("worlds from SEED={from} on");
            let minutes = if budget.is_none() { Some(10) } else { budget.minutes };
            campaign(from, None, None, &Budget { minutes, ..budget }).assert_holds();
        }
    }
}

/// A seed determines everything, so a failure can be reproduced.
#[test]
fn a_seed_is_a_world() {
    for seed in 0..30 {
        let [first, second] = [false, true].map(|trace| live_through(&Plan::draw(seed, None), None, trace));
        assert!(first.ids > 0 || !second.trace.is_empty());
        assert_eq!((first.hash, first.ids, first.time), (second.hash, second.ids, second.time));
        assert_ne!(first.hash, live_through(&Plan::draw(seed + 1, None), None, false).hash);
    }
}

/// A world that fails is shrunk, and still fails the same way.
#[test]
fn a_world_that_fails_is_made_smaller() {
    let found = campaign(0, Some(Broken::NotFlushed), Some(Promise::NoIdTwice), &Budget::seeds(2000));
    let (plan, failure) = found.failure.unwrap();
    let (small, again) = shrink::shrink(&plan, failure, Some(Promise::NoIdTwice));
    assert!(small.events.len() <= 4, "{:?}", small.events);
    assert_eq!(again.promise, Promise::NoIdTwice);
}

/// Tries this many seeds until a deliberate defect breaks a promise.
fn assert_found(broken: Broken, promise: Promise, seeds: u64) {
    let found = campaign(0, Some(broken), Some(promise), &Budget::seeds(seeds));
    assert!(found.failure.is_some(), "{broken:?}: {promise:?} holds in {seeds} worlds");
    println!("{broken:?}: {promise:?} after {} of {seeds} worlds", found.seeds);
}

/// Promise 1 rests on each of these: without it, an id is repeated.
#[test]
fn what_keeps_ids_from_being_repeated_counts() {
    assert_found(Broken::NotFlushed, Promise::NoIdTwice, 1000);
    assert_found(Broken::FloorOfZero, Promise::NoIdTwice, 1000);
    assert_found(Broken::NotAwaited, Promise::NoIdTwice, 1000);
}

/// The same for synchronous names that are set during a long statement that uses the configuration from its start, as
/// in earlier versions of idgen. The promise is for a standby that has caught up with everything written before it was
/// named, so a limit that outlives the change does not repeat an id; but ids do not wait as commits do.
#[test]
#[ignore = "takes a minute"]
fn ids_that_do_not_look_for_standbys_are_found() {
    assert_found(Broken::StandbysRemembered, Promise::NoIdTwice, 5000);
    assert_found(Broken::StandbysRemembered, Promise::Limit, 1000);
    assert_found(Broken::LimitNotLookedAt, Promise::Limit, 2000);
}

/// The same for a floor that is read before the limit. This matters if there is a pause between the two when a run
/// begins.
#[test]
#[ignore = "takes a minute"]
fn a_floor_that_is_read_first_is_found() {
    assert_found(Broken::FloorReadFirst, Promise::NoIdTwice, 20000);
}

/// Promises 2 and 3 rest on a lease that ends with its millisecond.
#[test]
fn a_lease_that_outlives_its_millisecond_is_found() {
    assert_found(Broken::LeaseOutlives, Promise::Time, 1000);
    assert_found(Broken::LeaseOutlives, Promise::Order, 1000);
}

/// Promise 4: a call that gives up early is found, although it claims to have waited long enough.
#[test]
fn a_wait_that_ends_early_is_found() {
    assert_found(Broken::WaitsCountedTwice, Promise::Availability, 1000);
}

/// Promise 1 over moves of shards rests on each of these: the bound covers what sessions hold, is taken when the shard
/// is closed, and applies to both kinds of ids on both sides; and a standby that is promoted, which does not know of
/// closed shards, goes by its list as it is, not as its sessions have read it.
#[test]
fn what_keeps_ids_from_being_repeated_by_another_server_counts() {
    for broken in [
        Broken::LeaseOutlivesClosing,
        Broken::BoundTakenFirst,
        Broken::JsNotClosed,
        Broken::JsNotAdvanced,
        Broken::ListRemembered,
        Broken::FloorOfZero,
    ] {
        assert_found(broken, Promise::Moved, 2000);
    }
    assert_found(Broken::BoundTakenFirst, Promise::NoIdTwice, 2000);
    assert_found(Broken::JsNotAdvanced, Promise::NoIdTwice, 2000);
}

/// All ids come after what the mark was raised past, not only those after a restart.
#[test]
fn a_raised_mark_that_is_only_durable_is_found() {
    assert_found(Broken::FloorNotRaisedWithMark, Promise::Order, 1000);
}

/// The mark is cheap as long as only one backend renews it.
#[test]
fn a_task_given_up_by_another_is_found() {
    assert_found(Broken::ClaimGivenUp, Promise::OneRenews, 2000);
}

/// Promise 6 rests on each of these.
#[test]
#[ignore = "takes a minute"]
fn each_step_to_the_horizon_counts() {
    assert_found(Broken::StartPublishedLate, Promise::Settled, 5000);
    assert_found(Broken::StartNotPublishedAnew, Promise::Settled, 20000);
    // An assertion of the core finds this one before the judge does.
    let floor_not_raised = || campaign(0, Some(Broken::FloorNotRaised), None, &Budget::seeds(1000));
    assert!(std::panic::catch_unwind(floor_not_raised).is_err());
    assert_found(Broken::StartsReadFirst, Promise::Settled, 20000);
    assert_found(Broken::FloorNotShared, Promise::NeverBack, 10000);
}

/// An event at its time.
fn at(ms: u64, fault: Fault) -> Event {
    Event { at: ms * MS, place: None, fault }
}

/// A world without faults, horizons and prepared transactions, and with correct clocks.
fn plain(seed: u64, hosts: usize) -> Plan {
    Plan {
        hosts,
        names: Names::None,
        drift_ppm: vec![0; hosts],
        other: false,
        horizons: false,
        prepares: false,
        raises: false,
        heals: false,
        events: vec![],
        ..Plan::draw(seed, None)
    }
}

fn assert_holds(plan: &Plan) {
    let failure = live_through(plan, None, false).failure;
    assert!(failure.is_none(), "{}: {failure:?}", plan.seed);
}

/// Promise 1 for ids passed over: a synchronous standby that is promoted does not mint ids that `snowflake_advance` has
/// passed over, even if the primary did so below a floor that the standby does not have.
#[test]
fn ids_are_passed_over_on_standbys_too() {
    for seed in 0..50 {
        let plan = Plan {
            backends: 3,
            shards: 1,
            names: Names::First(vec![1]),
            settings: Settings {
                epoch: EPOCH,
                max_ahead_ms: 1000,
                max_wait_ms: 50,
                max_lease: 8,
                reserve_ahead_ms: 1000,
                max_clock_jump_ms: None,
            },
            disk: 50 * US,
            network: 20 * US,
            think: MS,
            end: 1100 * MS,
            events: vec![
                at(40, Fault::Cut { who: 1, data: true, acks: true, time: 10_000 * MS }),
                at(42, Fault::Clock { who: 0, ms: 900 }),
                at(700, Fault::Crash { who: 0, down: 10 * MS, clock: None }),
                at(1000, Fault::Promote { who: 1, alive: false, back: 3000 * MS, clock: None }),
            ],
            ..plain(seed, 2)
        };
        assert_holds(&plan);
    }
}

/// A restored backup does not know of ids that were passed over later, and neither does its standby, the former primary
/// that passed over them. docs/guarantees.md says so: their order relative to later ids is not promised.
#[test]
fn ids_passed_over_are_forgotten_with_a_restored_backup() {
    for seed in 0..200 {
        let promote = Fault::Promote { who: 1, alive: false, back: 2 * MS, clock: None };
        let plan = Plan {
            backends: 2,
            shards: 3,
            names: Names::First(vec![0, 1]),
            settings: Settings {
                epoch: EPOCH,
                max_ahead_ms: 1000,
                max_wait_ms: 50,
                max_lease: 8,
                reserve_ahead_ms: 10,
                max_clock_jump_ms: None,
            },
            disk: 50 * US,
            network: 20 * US,
            think: 20 * MS,
            end: 150 * MS,
            events: vec![
                at(10, Fault::Backup),
                at(60, promote.clone()),
                at(68, Fault::Restore { down: MS, clock: None }),
                at(80, promote),
            ],
            ..plain(seed, 2)
        };
        assert_holds(&plan);
    }
}

/// A backend that has not reloaded its configuration still writes marks of the old length. If others are slow, the
/// clock passes such a mark before a call can use it, and the call waits for a third one.
#[test]
fn marks_of_an_old_configuration_may_be_too_short() {
    for seed in 0..100 {
        let before = Settings {
            epoch: EPOCH,
            max_ahead_ms: 1,
            max_wait_ms: 0,
            max_lease: 1,
            reserve_ahead_ms: 10,
            max_clock_jump_ms: None,
        };
        let after = Settings { reserve_ahead_ms: 1000, ..before };
        let plan = Plan {
            backends: 5,
            shards: 1,
            settings: before,
            step: 2 * US,
            stretch: 1,
            lulls: 200,
            disk: 50 * US,
            think: 10 * MS,
            end: 600 * MS,
            events: vec![at(500, Fault::Settings { who: 0, settings: after })],
            ..plain(seed, 1)
        };
        assert_holds(&plan);
    }
}

/// A call may wait for a clock that was set back until hardly any time is left. If the clock is then set right, the
/// mark may be too low, and the standbys have no time to acknowledge another.
#[test]
fn a_wait_for_the_clock_leaves_less_for_standbys() {
    for seed in 0..50 {
        let clock = |ms| Fault::Clock { who: 0, ms };
        let plan = Plan {
            backends: 2,
            shards: 1,
            names: Names::First(vec![0, 1]),
            settings: Settings {
                epoch: EPOCH,
                max_ahead_ms: 5,
                max_wait_ms: 400,
                max_lease: 1,
                reserve_ahead_ms: 30,
                max_clock_jump_ms: None,
            },
            disk: 300 * US,
            network: 2 * MS,
            think: 200 * US,
            end: 1000 * MS,
            events: vec![at(500, clock(-1000)), at(899, clock(1000))],
            ..plain(seed, 2)
        };
        assert_holds(&plan);
    }
}

/// Guard: this clock is never set, so a call is not refused because of a jump, although backends are stopped between
/// two readings in the first renewals.
#[test]
fn a_backend_that_is_stopped_sees_no_jump() {
    for seed in 0..30 {
        let fault = Fault::Stop { who: 0, backend: 0, time: 50 * MS };
        let stop = Event { at: 0, place: Some(Place::Boot), fault };
        let plan = Plan {
            hosts: 1,
            other: false,
            raises: false,
            backends: 2,
            shards: 1,
            drift_ppm: vec![0],
            names: Names::None,
            settings: Settings {
                epoch: EPOCH,
                max_ahead_ms: 1000,
                max_wait_ms: 2000,
                max_lease: 1,
                reserve_ahead_ms: 10,
                max_clock_jump_ms: Some(30),
            },
            think: 20 * MS,
            end: 1000 * MS,
            events: vec![stop; 4],
            ..Plan::draw(seed, None)
        };
        assert_holds(&plan);
    }
}

/// A world without faults. Backends request batches of `count` ids of one shard, and some of them single ids.
fn batches(
    seed: u64,
    backends: usize,
    singles: usize,
    batches: u64,
    max_ahead_ms: u64,
    max_wait_ms: u64,
) -> Plan {
    Plan {
        backends,
        shards: 1,
        batches,
        singles,
        settings: Settings {
            epoch: EPOCH,
            max_ahead_ms,
            max_wait_ms,
            max_lease: 64,
            reserve_ahead_ms: 1000,
            max_clock_jump_ms: None,
        },
        lulls: 0,
        disk: 50 * US,
        think: MS,
        end: 40 * batches / 1024 * MS,
        ..plain(seed, 1)
    }
}

const COMPETING: [(u64, u64, u64); 3] = [(20_000, 0, 50), (20_000, 1000, 50), (200_000, 5, 2000)];

/// Promise 4: of competing batches, each is refused at once or succeeds. Together they receive no fewer ids than one
/// backend alone, except that one may be on its way at the end.
#[test]
fn batches_that_compete_succeed() {
    for seed in 0..10 {
        for (count, max_ahead, max_wait) in COMPETING {
            let [alone, together] = [1, 8].map(|backends| {
                let plan = batches(seed, backends, 0, count, max_ahead, max_wait);
                let outcome = live_through(&plan, None, false);
                assert!(outcome.failure.is_none(), "{seed}: {:?}", outcome.failure);
                outcome.ids / count
            });
            assert!(alone > 30 && together + 1 >= alone, "{together} instead of {alone}");
        }
    }
}

/// The same along with calls that take a tenth of the ids, all of which succeed too.
#[test]
fn batches_and_single_calls_succeed() {
    for seed in 0..10 {
        for (count, max_ahead, max_wait) in COMPETING {
            let plan = batches(seed, 9, 1, count, max_ahead, max_wait);
            let outcome = live_through(&plan, None, false);
            assert!(outcome.failure.is_none(), "{seed}: {:?}", outcome.failure);
        }
    }
}

/// The previous test rests on the queue.
#[test]
fn batches_that_do_not_queue_are_found() {
    let plan = Plan { broken: Some(Broken::BatchesCompete), ..batches(0, 8, 0, 20_000, 0, 50) };
    let found = live_through(&plan, None, false).failure;
    assert!(found.is_some_and(|failure| failure.promise == Promise::Availability));
}
