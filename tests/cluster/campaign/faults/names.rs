//! Synchronous standbys that are named, changed and removed while statements run.

use super::{Fault, NOT_DURABLE, Struck, fault, has_standby, is_synchronous};
use crate::campaign::fleet::Fleet;

pub const FAULTS: &[Fault] = &[
    fault("synchronous names changed", 2, has_standby, |fleet| Struck::Done(change(fleet)), &[NOT_DURABLE]),
    fault("synchronous names removed", 1, is_synchronous, remove, &[NOT_DURABLE]),
];

/// Names other standbys, or the same ones in another way, while statements continue to mint.
pub fn change(fleet: &mut Fleet) -> String {
    let removed = fleet.rng.bool();
    let before = if removed { "none".into() } else { told(fleet) };
    if removed {
        fleet.make_asynchronous();
    }
    fleet.until_in_a_long_statement();
    fleet.pause(0..500);
    let names = fleet.draw_names();
    fleet.make_synchronous(names);
    format!("from {before} to {}", told(fleet))
}

fn remove(fleet: &mut Fleet) -> Struck {
    fleet.until_in_a_long_statement();
    fleet.pause(0..500);
    let told = told(fleet);
    fleet.make_asynchronous();
    fleet.pause(0..500);
    Struck::Done(told)
}

fn told(fleet: &Fleet) -> String {
    fleet.names.as_ref().map_or("none".into(), ToString::to_string)
}
