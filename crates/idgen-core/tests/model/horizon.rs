//! `snowflake_safe_horizon`: below it all is settled, and it never goes back.

use crate::world::{Broken, NEVER_BACK, SETTLED, World, explore};

/// Two backends mint in transactions for two shards, a third one asks for the horizon, and the clock jumps.
const ONE_RUN: World = World {
    synchronous: false,
    begins: false,
    failover: false,
    mark: 9,
    ticks: 3,
    shards: 2,
    ids: 2,
    readings: 1,
    faults: 0,
    clock_sets: 1,
    fine: true,
    broken: None,
    max_ahead: 4,
    max_wait: 0,
    reserve_ahead: 2,
    max_lease: 2,
};

/// The same across a crash, or a failover to a synchronous standby.
const RUNS: World = World {
    synchronous: true,
    failover: true,
    mark: 2,
    shards: 1,
    ids: 1,
    readings: 2,
    faults: 1,
    clock_sets: 0,
    fine: false,
    ..ONE_RUN
};

fn failed(name: &str, world: World) -> Vec<&'static str> {
    explore(name, world, &[SETTLED, NEVER_BACK])
}

/// No id below the horizon is of an open transaction, and none is minted there afterwards.
#[test]
fn below_the_horizon_all_is_settled() {
    assert_eq!(failed("horizon", ONE_RUN), [] as [&str; 0]);
}

/// The same with the clock set twice and the horizon read twice.
#[test]
#[ignore = "takes minutes"]
fn the_horizon_holds_and_never_goes_back() {
    assert_eq!(
        failed("horizon, more readings", World { readings: 2, clock_sets: 2, ..ONE_RUN }),
        [] as [&str; 0]
    );
}

/// The same across crashes and failovers to a synchronous standby, and it never goes back.
#[test]
#[ignore = "takes minutes"]
fn the_horizon_holds_over_runs_of_the_server() {
    assert_eq!(failed("horizon over runs", RUNS), [] as [&str; 0]);
    assert_eq!(failed("horizon over runs, more ids", World { ids: 2, readings: 1, ..RUNS }), [] as [&str; 0]);
}

/// The model can fail: each step that the horizon rests on, left out, is found.
#[test]
fn each_step_to_the_horizon_counts() {
    for (broken, world) in [
        (Broken::FloorNotRaised, ONE_RUN),
        (Broken::StartPublishedLate, ONE_RUN),
        (Broken::StartNotPublishedAnew, World { clock_sets: 2, ..ONE_RUN }),
        (Broken::FloorNotShared, RUNS),
    ] {
        assert_ne!(failed(&format!("{broken:?}"), World { broken: Some(broken), ..world }), [] as [&str; 0]);
    }
}
