//! The network between primary and standbys, cut and healed.

use std::thread;
use std::time::Duration;

use super::{Fault, NOT_DURABLE, Struck, has_standby};
use crate::campaign::world::World;
use crate::server::link::{Direction, Flow};

const CUT_NAME: &str = "network cut";

pub const FAULTS: &[Fault] = &[Fault {
    name: CUT_NAME,
    weight: 3,
    can: |world| has_standby(world) && !world.lasts(CUT_NAME),
    strike: cut,
    allows: &[NOT_DURABLE],
}];

/// The states of a network.
#[derive(Clone, Copy, Debug)]
enum Way {
    HoldsBoth,
    Holds(Direction),
    Late,
    /// Connections end, and none is taken.
    Breaks,
    /// Connections end, and are made again at once.
    Resets,
}

fn cut(world: &mut World) -> Struck {
    let way = [
        Way::HoldsBoth,
        Way::Holds(Direction::ToStandby),
        Way::Holds(Direction::ToPrimary),
        Way::Late,
        Way::Breaks,
        Way::Resets,
    ][world.rng.usize(0..6)];
    let one = world.rng.usize(0..world.standbys.len());
    let (all, loses, late_ms, ms) =
        (world.rng.bool(), world.rng.bool(), world.rng.u64(2..40), world.rng.u64(50..2000));
    let struck = if all { 0..world.standbys.len() } else { one..one + 1 };
    let links: Vec<_> = world.standbys[struck.clone()].iter().map(|standby| standby.link.clone()).collect();
    let names: Vec<_> = world.standbys[struck].iter().map(|standby| standby.name.as_str()).collect();
    let primary = &world.primary;
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
        // Nothing comes that could be answered.
        Way::HoldsBoth => Some(Direction::ToStandby),
        Way::Holds(direction) => Some(direction),
        Way::Late => Some(Direction::ToPrimary),
        Way::Breaks | Way::Resets => None,
    };
    if let Some(direction) = caught {
        // Data to send, with a commit that waits for no standby.
        primary.until_done(
            "SET synchronous_commit = local; SELECT pg_logical_emit_message(true, 'network', '')",
        );
        links.iter().for_each(|link| link.until_caught(direction));
    }
    let told = format!(
        "{way:?}, {}, {} of {}",
        if loses { "lost" } else { "late" },
        links.len(),
        world.standbys.len()
    );
    if let Way::Resets = way {
        let again = "state = 'streaming' AND pid NOT IN";
        primary.wait_until(&format!("SELECT count(*) = {} {names} AND {again} ({connections})", links.len()));
        return Struck::Done(told);
    }
    if let Way::Breaks = way {
        primary.wait_until(&format!("SELECT count(*) = 0 {names} AND pid IN ({connections})"));
    }
    // It heals by itself, because other faults may strike in the meantime and wait for the standbys.
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
