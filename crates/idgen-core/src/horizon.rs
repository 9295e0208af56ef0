//! Below which id all is settled.

use crate::id::{MAX_TICK, min_id};
use crate::mint::{Error, Patience};
use crate::renew;
use crate::server::Server;

/// The least id that may still become visible: every id below it is of a transaction that has ended. The caller
/// reads what it reads by a snapshot taken afterwards.
///
/// # Errors
/// [`Error::Recovery`]; [`Error::Prepared`], for nothing remembers when a prepared transaction began to mint;
/// [`Error::MarkNotRenewed`] while synchronous standbys may not have the mark that the horizon rests on; and the
/// server's.
pub fn safe_horizon<V: Server>(server: &V) -> Result<i64, V::Error> {
    renew::share_settled(server, &mut Patience::default())?;
    let now = server.now()?;
    // From here on no call mints below; who did not see this floor has published its start before.
    let standbys = server.standbys_must_acknowledge();
    let reached = server.with_mark(|mark| mark.raise_floor(now, standbys));
    let tick = reached.min(server.oldest_start());
    // A transaction that was prepared since the start of it was looked at is among these.
    match server.prepared_transactions() {
        0 => Ok(min_id(server.with_mark(|mark| mark.settle(tick)).min(MAX_TICK))),
        count => Err(Error::Prepared { count }.into()),
    }
}
