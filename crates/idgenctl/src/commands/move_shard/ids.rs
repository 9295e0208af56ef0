//! Advancing the target past the ids of the source.

use std::time::Duration;

use idgen_ids::id::min_id;

use super::sides::Place;
use super::{Plan, say};
use crate::connection::session::Session;
use crate::connection::waiting;
use crate::idgen::columns;
use crate::idgen::library::{self, Library};
use crate::terminal::error::{Error, Result};

/// For no longer than this, clients wait for a clock that is behind while the schema is closed, in milliseconds; and before
/// that, the program.
const CLIENTS_WAIT: i64 = 6_000;
const WE_WAIT: Duration = Duration::from_secs(60);

/// The greatest id in the rows of the schema: ids from elsewhere may be greater than all that the source has minted.
fn greatest(plan: &Plan<'_>, place: &Place<'_>) -> Result<i64> {
    let session = place.fresh()?;
    let mut columns = columns::minting(&session)?;
    columns.retain(|column| plan.names.has(&column.schema));
    Ok(columns::greatest_id(&session, &columns)?.unwrap_or(0))
}

/// What a server's clock shows, in milliseconds since the epoch, and how far its ids may be ahead of it.
fn clock(session: &Session) -> Result<(i64, i64)> {
    let state = library::state(session)?;
    let now = session.value("SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint", &[])?;
    let known = state.and_then(|state| state.epoch_ms.zip(state.max_ahead_ms)).zip(now.parse::<i64>().ok());
    match known {
        Some(((epoch, ahead), now)) => Ok((now - epoch, ahead)),
        None => Err(Error::refused(
            format!("{} does not show its epoch", session.server()),
            "Run idgenctl check.",
        )),
    }
}

/// Advances the target past the ids that there are by now, while clients still work: later, only the ids that they mint
/// meanwhile are left. Refuses a target whose clock is so far behind that clients would have to wait.
pub fn rehearse(plan: &Plan<'_>) -> Result {
    let (source, target) = (plan.source.primary(), plan.target.primary());
    let rows = greatest(plan, source)?;
    let (now, _) = clock(&*source.session()?)?;
    let (there, ahead) = clock(&*target.session()?)?;
    let by = now - there - ahead;
    if by > CLIENTS_WAIT {
        return Err(Error::refused(
            format!(
                "the clock of the target is too far behind that of the source: clients would wait {by} ms"
            ),
            "Set the clocks.",
        ));
    }
    let past = rows.max(min_id(u64::try_from(now).unwrap_or(0)));
    advance(plan, past, WE_WAIT)
}

/// Makes ids of the target greater than the bound of the source, and than the ids in the rows that have been copied.
pub fn pass(plan: &Plan<'_>, bound: i64) -> Result {
    let past = bound.max(greatest(plan, plan.target.primary())?);
    say(format!("advancing the shard on the target past {past}"));
    advance(plan, past, WE_WAIT / 2)
}

/// A clock that is behind needs a moment to catch up.
fn advance(plan: &Plan<'_>, past: i64, limit: Duration) -> Result {
    let session = plan.target.primary().fresh()?;
    let mut refusal = None;
    let what = "the clock of the target to pass the ids of the source";
    let ask = || match Library::of(&session)?.advance(plan.shard, past) {
        Err(error) if error.code() == "22023" => {
            refusal = Some(error);
            Ok(None)
        }
        result => result.map(Some),
    };
    let advanced = waiting::until(limit, what, ask)?;
    match (advanced, refusal) {
        (None, Some(error)) => Err(error),
        _ => Ok(()),
    }
}
