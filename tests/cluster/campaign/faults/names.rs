//! Synchronous standbys that are named, changed and removed while statements run.

use super::{Fault, NOT_DURABLE, Struck, has_standby, is_synchronous};
use crate::campaign::fleet::Fleet;

pub const FAULTS: &[Fault] = &[
    Fault {
        name: "synchronous names changed",
        weight: 2,
        can: has_standby,
        strike: |fleet| Struck::Done(change(fleet)),
        allows: &[NOT_DURABLE],
    },
    Fault {
        name: "synchronous names removed",
        weight: 1,
        can: is_synchronous,
        strike: remove,
        allows: &[NOT_DURABLE],
    },
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
