//! The network between primary and standbys, cut and healed.

use std::thread;
use std::time::Duration;

use super::{Fault, NOT_DURABLE, Struck, fault, has_standby};
use crate::campaign::fleet::Fleet;
use crate::server::link::{Direction, Flow};

const CUT_NAME: &str = "network cut";

pub const FAULTS: &[Fault] =
    &[fault(CUT_NAME, 3, |fleet| has_standby(fleet) && !fleet.lasts(CUT_NAME), cut, &[NOT_DURABLE])];

#[derive(Clone, Copy, Debug)]
enum Way {
    HoldsBoth,
    Holds(Direction),
    Late,
    /// Connections end, and new ones are refused.
    Breaks,
    /// Connections end, and new ones succeed at once.
    Resets,
}

fn cut(fleet: &mut Fleet) -> Struck {
    let way = [
        Way::HoldsBoth,
        Way::Holds(Direction::ToStandby),
        Way::Holds(Direction::ToPrimary),
        Way::Late,
        Way::Breaks,
        Way::Resets,
    ][fleet.rng.usize(0..6)];
    let one = fleet.rng.usize(0..fleet.standbys.len());
    let (all, loses, late_ms, ms) =
        (fleet.rng.bool(), fleet.rng.bool(), fleet.rng.u64(2..40), fleet.rng.u64(50..2000));
    let struck = if all { 0..fleet.standbys.len() } else { one..one + 1 };
    let links: Vec<_> = fleet.standbys[struck.clone()].iter().map(|standby| standby.link.clone()).collect();
    let names: Vec<_> = fleet.standbys[struck].iter().map(|standby| standby.name.as_str()).collect();
    let primary = &fleet.primary;
    let names = format!("FROM pg_stat_replication WHERE application_name IN ('{}')", names.join("', '"));
    primary.wait_until(&format!("SELECT count(*) = {} {names} AND state = 'streaming'", links.len()));
    let connections: String = primary.answer(&format!("SELECT string_agg(pid::text, ', ') {names}"));

    for link in &links {
        match way {
            Way::HoldsBoth => DIRECTIONS.iter().for_each(|direction| link.set_flow(*direction, Flow::Held)),
            Way::Holds(direction) => link.set_flow(direction, Flow::Held),
            Way::Late => {
                let late = Flow::Late(Duration::from_millis(late_ms));
                DIRECTIONS.iter().for_each(|direction| link.set_flow(*direction, late));
            }
            Way::Breaks => link.set_broken(true),
            Way::Resets => link.lose(),
        }
    }
    let caught = match way {
        // The standby receives nothing that it could answer.
        Way::HoldsBoth => Some(Direction::ToStandby),
        Way::Holds(direction) => Some(direction),
        Way::Late => Some(Direction::ToPrimary),
        Way::Breaks | Way::Resets => None,
    };
    if let Some(direction) = caught {
        // This commit, which waits for no standby, is data to send.
        primary.until_done(
            "SET synchronous_commit = local; SELECT pg_logical_emit_message(true, 'network', '')",
        );
        links.iter().for_each(|link| link.until_caught(direction));
    }
    let told = format!(
        "{way:?}, {}, {} of {}",
        if loses { "lost" } else { "late" },
        links.len(),
        fleet.standbys.len()
    );
    if let Way::Resets = way {
        let again = "state = 'streaming' AND pid NOT IN";
        primary.wait_until(&format!("SELECT count(*) = {} {names} AND {again} ({connections})", links.len()));
        return Struck::Done(told);
    }
    if let Way::Breaks = way {
        primary.wait_until(&format!("SELECT count(*) = 0 {names} AND pid IN ({connections})"));
    }
    // The network heals by itself, because other faults may strike in the meantime and wait for the standbys.
    let healing = thread::spawn(move || {
        thread::sleep(Duration::from_millis(ms));
        for link in &links {
            if loses {
                link.lose();
            }
            DIRECTIONS.iter().for_each(|direction| link.set_flow(*direction, Flow::Passes));
            link.set_broken(false);
        }
    });
    Struck::Lasting(format!("{told}, {ms} ms"), Box::new(|_| healing.join().expect("a network that heals")))
}

const DIRECTIONS: [Direction; 2] = [Direction::ToStandby, Direction::ToPrimary];
