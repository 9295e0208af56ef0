//! Clocks that are set.

use super::{Fault, NOT_DURABLE, Refusals, Struck, always, fault};
use crate::campaign::fleet::Fleet;

const FOR_LONG: &str = "clock set for long";

/// If its clock is set, a WAL sender takes the standby for silent, and ends the connection: `wal_sender_timeout`.
const ALLOWS: &[Refusals] = &[NOT_DURABLE];

pub const FAULTS: &[Fault] = &[
    fault("clock set and set back", 2, always, step, ALLOWS),
    fault(FOR_LONG, 1, |fleet| !fleet.lasts(FOR_LONG), set_for_long, ALLOWS),
];

fn step(fleet: &mut Fleet) -> Struck {
    let step = [-0.001, -0.02, -0.5, -1.5, -3600.0, 0.3, 1.5][fleet.rng.usize(0..7)];
    fleet.primary.set_clock(step);
    fleet.pause(50..600);
    fleet.primary.set_clock(0.0);
    Struck::Done(format!("{step:+} s"))
}

/// Leaves the clock set, so that other faults strike a server whose ids are ahead of its clock, by less than
/// `idgen.max_ahead`, so that calls succeed.
fn set_for_long(fleet: &mut Fleet) -> Struck {
    let step = [-0.8, -0.5, -0.2, 0.4][fleet.rng.usize(0..4)];
    fleet.primary.set_clock(step);
    // Another server may have become the primary by then.
    Struck::Lasting(format!("{step:+} s"), Box::new(|fleet| fleet.primary.set_clock(0.0)))
}
