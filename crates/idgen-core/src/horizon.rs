//! The safe horizon: the id below which every id is settled.

use idgen_ids::id::{MAX_TICK, min_id};

use crate::deadline::Deadline;
use crate::error::Error;
use crate::host::Host;
use crate::mark::renewal;
use crate::settings::Settings;

/// The least id that may still become visible. Every id below it belongs to a transaction that has ended. The
/// caller must read with a snapshot taken afterwards.
///
/// # Errors
/// [`Error::Recovery`]; [`Error::Prepared`], because there is no record of when a prepared transaction began to
/// mint; [`Error::MarkNotRenewed`] while the mark on which the horizon rests may be missing on synchronous
/// standbys; and those of the host.
pub fn safe_horizon<H: Host>(host: &H, settings: &Settings) -> Result<i64, H::Error> {
    renewal::share_settled(host, settings, &mut Deadline::new(settings))?;
    let now = host.now()?;
    // From here on no call mints below the floor. A transaction that did not see this floor has published its own
    // before.
    let standbys = host.standbys_must_acknowledge();
    let reached = host.with_mark(|mark| mark.raise_floor(now, standbys));
    let tick = reached.min(host.oldest_floor());
    // This includes transactions that were prepared after their floor was read.
    match host.prepared_transactions() {
        0 => Ok(min_id(host.with_mark(|mark| mark.settle(tick)).min(MAX_TICK))),
        count => Err(Error::Prepared { count }.into()),
    }
}
