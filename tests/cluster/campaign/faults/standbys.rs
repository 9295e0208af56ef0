//! Standbys that go and come back, follow one another, and are named in `synchronous_standby_names` or not.

use super::{Fault, NOT_DURABLE, Struck, fault, has_standby, is_synchronous};
use crate::campaign::fleet::Fleet;

pub const FAULTS: &[Fault] = &[
    fault("synchronous names changed", 2, has_standby, |fleet| Struck::Done(change(fleet)), &[NOT_DURABLE]),
    fault("synchronous names removed", 1, is_synchronous, remove, &[NOT_DURABLE]),
    fault("standby goes and comes back", 1, has_standby, leave, &[NOT_DURABLE]),
    fault("standby follows another one", 1, |fleet| fleet.standbys.len() > 1, cascade, &[NOT_DURABLE]),
];

fn leave(fleet: &mut Fleet) -> Struck {
    let one = fleet.rng.usize(0..fleet.standbys.len());
    fleet.standbys[one].server.stop("immediate");
    fleet.pause(0..800);
    fleet.standbys[one].server.up();
    Struck::Done("immediate shutdown".into())
}

/// Makes a standby receive its WAL from another standby for a while, to which alone it then acknowledges.
fn cascade(fleet: &mut Fleet) -> Struck {
    let one = fleet.rng.usize(0..fleet.standbys.len());
    let other = (one + 1) % fleet.standbys.len();
    let [one, other] = [&fleet.standbys[one], &fleet.standbys[other]];
    one.link.lead_to(&other.server);
    other.server.wait_until(&format!(
        "SELECT count(*) > 0 FROM pg_stat_replication WHERE application_name = '{}' AND state = 'streaming'",
        one.name
    ));
    one.link.lead_to(&fleet.primary);
    Struck::Done(format!("{} after {}", one.name, other.name))
}

/// Names other standbys, or the same ones in another form, while statements mint.
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
