//! The safe horizon: the id below which every id is settled.

use idgen_ids::id::{MAX_TICK, min_id};

use crate::mint::{Error, Patience};
use crate::renew;
use crate::server::Server;

/// The least id that may still become visible. Every id below it belongs to a transaction that has ended. The
/// caller must read with a snapshot taken afterwards.
///
/// # Errors
/// [`Error::Recovery`]; [`Error::Prepared`], because there is no record of when a prepared transaction began to
/// mint; [`Error::MarkNotRenewed`] while the mark on which the horizon rests may be missing on synchronous
/// standbys; and those of the server.
pub fn safe_horizon<V: Server>(server: &V) -> Result<i64, V::Error> {
    renew::share_settled(server, &mut Patience::default())?;
    let now = server.now()?;
    // From here on no call mints below the floor. A transaction that did not see this floor has published its start
    // before.
    let standbys = server.standbys_must_acknowledge();
    let reached = server.with_mark(|mark| mark.raise_floor(now, standbys));
    let tick = reached.min(server.oldest_start());
    // This includes transactions that were prepared after their start was read.
    match server.prepared_transactions() {
        0 => Ok(min_id(server.with_mark(|mark| mark.settle(tick)).min(MAX_TICK))),
        count => Err(Error::Prepared { count }.into()),
    }
}
