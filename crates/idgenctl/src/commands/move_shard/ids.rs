//! Advances the target past the ids of the source.

use std::time::Duration;

use idgen_ids::id::min_id;

use super::plan::Plan;
use super::sides::Place;
use crate::connection::waiting;
use crate::idgen::library;
use crate::terminal::error::Result;

/// How long clients may wait for a clock that is behind, while the schema is closed; and before that, this program.
const CLIENTS_WAIT: Duration = Duration::from_secs(6);
pub const WE_WAIT: Duration = Duration::from_secs(60);

/// Advances the target past the present ids while clients still work, so that later only few are left. Fails if the
/// target's clock is so far behind that clients would have to wait.
pub fn rehearse(plan: &Plan<'_>) -> Result {
    let session = plan.source.primary().session()?;
    let mut next = library::advance(&session, plan.shard, 0)?;
    // A hostile source may have got the shard from one of these, and hide how far its ids went.
    for place in &plan.others {
        let session = place.any_session()?;
        let has_minted = library::state(&session).is_ok_and(|state| state.mark_ms.is_some());
        if has_minted && session.value("SELECT pg_is_in_recovery()", &[])? == "f" {
            next = next.max(library::close(&session, plan.shard)?);
            library::reopen(&session, plan.shard)?;
        }
    }
    advance(plan, plan.target.primary(), next, WE_WAIT)?;
    advance(plan, plan.target.primary(), present(plan)?, CLIENTS_WAIT)
}

/// Makes the target's ids greater than the source's bound, and than present ids, which rows from elsewhere may have.
pub fn pass(plan: &Plan<'_>, bound: i64) -> Result {
    advance(plan, plan.target.primary(), bound.max(present(plan)?), WE_WAIT / 2)
}

/// The least id of the present millisecond, by the source's clock.
fn present(plan: &Plan<'_>) -> Result<i64> {
    let session = plan.source.primary().session()?;
    let now = session.value("SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint", &[])?;
    let epoch = library::state(&session)?.epoch_ms.unwrap_or(0);
    let tick = now.parse::<i64>().unwrap_or(0).saturating_sub(epoch);
    Ok(min_id(u64::try_from(tick).unwrap_or(0)))
}

/// Advances a server, waiting for a clock that is behind.
pub fn advance(plan: &Plan<'_>, place: &Place<'_>, past: i64, limit: Duration) -> Result {
    let session = place.session()?;
    let mut refusal = None;
    let what = format!("the clock of {} to pass the ids of the other", place.role);
    let ask = || match library::advance(&session, plan.shard, past) {
        Err(error) if error.code() == "22023" => {
            refusal = Some(error);
            Ok(None)
        }
        result => result.map(Some),
    };
    waiting::until(limit, &what, ask)?.map_or_else(|| refusal.map_or(Ok(()), Err), |_| Ok(()))
}
