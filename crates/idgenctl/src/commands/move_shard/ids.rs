//! Advances the target past the ids of the source.

use std::time::Duration;

use idgen_ids::id::min_id;

use super::plan::Plan;
use super::sides::Place;
use crate::connection::waiting;
use crate::idgen::library;
use crate::terminal::error::{Error, Result};

/// How long clients may wait for a clock that is behind, while the schema is closed; and before that, this program.
const CLIENTS_WAIT: Duration = Duration::from_secs(6);
const WE_WAIT: Duration = Duration::from_secs(60);

/// Advances the target past the present ids while clients still work, so that later only few are left. Fails if the
/// target's clock is so far behind that clients would have to wait.
pub fn rehearse(plan: &Plan<'_>) -> Result {
    let (source, target) = (plan.source.primary(), plan.target.primary());
    advance(plan, target, source, library::advance(&source.session()?, plan.shard, 0)?, WE_WAIT)?;
    plan.others.iter().try_for_each(|other| pass_other(plan, target, other))?;
    advance(plan, target, source, present(plan)?, CLIENTS_WAIT)
}

/// Makes a server's ids greater than those of one that may not mint, from which a hostile one may have got the shard.
pub fn pass_other(plan: &Plan<'_>, place: &Place<'_>, other: &Place<'_>) -> Result {
    let session = other.any_session()?;
    let has_minted = library::state(&session).is_ok_and(|state| state.mark_ms.is_some());
    if !has_minted || session.value("SELECT pg_is_in_recovery()", &[])? == "t" {
        return Ok(());
    }
    let bound = library::close(&session, plan.shard)?;
    library::reopen(&session, plan.shard)?;
    advance(plan, place, other, bound, WE_WAIT)
}

/// Makes the target's ids greater than the source's bound, and than present ids, which rows from elsewhere may have.
pub fn pass(plan: &Plan<'_>, bound: i64) -> Result {
    advance(plan, plan.target.primary(), plan.source.primary(), bound.max(present(plan)?), WE_WAIT / 2)
}

/// The least id of the present millisecond, by the source's clock.
fn present(plan: &Plan<'_>) -> Result<i64> {
    let session = plan.source.primary().session()?;
    let now = session.value("SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint", &[])?;
    let epoch = library::state(&session)?.epoch_ms.unwrap_or(0);
    let tick = now.parse::<i64>().unwrap_or(0).saturating_sub(epoch);
    Ok(min_id(u64::try_from(tick).unwrap_or(0)))
}

/// Advances a server past the ids of another, waiting for a clock that is behind.
fn advance(plan: &Plan<'_>, place: &Place<'_>, of: &Place<'_>, past: i64, limit: Duration) -> Result {
    let (session, mut why) = (place.session()?, String::new());
    let what = format!("the clock of {} to pass the ids of {}", place.role, of.role);
    let ask = || match library::advance(&session, plan.shard, past) {
        Err(error) if error.code() == "22023" => {
            why = error.to_string();
            Ok(None)
        }
        result => result.map(Some),
    };
    let next = waiting::until(limit, &what, ask)?;
    next.map(drop)
        .ok_or_else(|| Error::refused(format!("gave up waiting for {what}: {why}"), "Compare the clocks."))
}
