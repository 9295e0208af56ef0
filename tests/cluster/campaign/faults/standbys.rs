//! Standbys that go and come back, and follow one another.

use super::{Fault, NOT_DURABLE, Struck, fault, has_standby};
use crate::campaign::fleet::Fleet;

pub const FAULTS: &[Fault] = &[
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

/// Makes a standby receive its WAL from another standby for a while, and acknowledge only to that one.
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
