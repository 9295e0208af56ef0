//! One run at a time on a server, and the sessions that an earlier run has left at work.

use std::time::Duration;

use super::Plan;
use super::checks::refused;
use super::sides::Place;
use crate::connection::session::Session;
use crate::connection::waiting;
use crate::terminal::error::Result;

/// The sessions that hold the locks, as long as this program runs, however it ends.
pub struct Turn {
    sessions: Vec<Session>,
    /// The role that restores the schema; empty if that is a superuser.
    owner: String,
}

impl Turn {
    /// Waits for its turn on the primaries of both sides. An undo needs no target.
    pub fn take(plan: &Plan<'_>) -> Result<Turn> {
        let mut sessions = vec![lock(plan.source.primary())?];
        if plan.target.is_reached() {
            sessions.push(lock(plan.target.primary())?);
        }
        Ok(Turn { sessions, owner: plan.owner_role()? })
    }

    /// Takes the lock on the source again if the session that held it is gone.
    pub fn keep(&mut self, place: &Place<'_>) -> Result {
        if self.prove(&place.session()?).is_err() {
            self.sessions[0] = lock(place)?;
        }
        Ok(())
    }

    /// In a transaction on the source: fails if the turn is over. The next run ends the sessions of this one before it does
    /// anything, so the transaction is committed only if there is none.
    pub fn prove(&self, session: &Session) -> Result {
        let is_held = session.query(
            "SELECT FROM pg_locks WHERE pid = $1::integer AND relation = 'pg_shseclabel'::regclass AND granted",
            &[&self.sessions[0].pid().to_string()],
        )?;
        if is_held.len() > 0 {
            return Ok(());
        }
        refused("the session that holds the lock of this move is gone", "Run the same command again.")
    }

    /// Ends sessions of an earlier run, or of a part of this one that was given up, such as a restore that could still
    /// commit. Anybody may give a session this name, so those of other roles do not count, nor those that begin later.
    pub fn end_others(&self, place: &Place<'_>) -> Result {
        let session = place.session()?;
        let began = session.value("SELECT clock_timestamp()", &[])?;
        let own = self.sessions.iter().map(|session| session.pid().to_string()).collect::<Vec<_>>().join(",");
        let ask = || {
            let ended = session.query(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE application_name = $1 AND backend_start < $2::timestamptz
                   AND pid <> ALL ($3::integer[] || pg_backend_pid())
                   AND usesysid IN (SELECT oid FROM pg_roles WHERE rolsuper OR rolname = $4)",
                &[&place.name, &began, &format!("{{{own}}}"), &self.owner],
            )?;
            Ok((ended.len() == 0).then_some(()))
        };
        let what = format!("sessions that are still at work for this move on {} to end", place.role);
        if waiting::until(Duration::from_secs(30), &what, ask)?.is_some() {
            return Ok(());
        }
        refused(
            format!("sessions of this move on {} do not end", place.role),
            "Look at pg_stat_activity for their application_name.",
        )
    }
}

/// Locks a catalog, because all databases of a server share it: two moves at once would read the same list of shards, and
/// each would write it without the change of the other. No tenant may take this lock, and it keeps nobody from anything but
/// maintenance of that catalog.
fn lock(place: &Place<'_>) -> Result<Session> {
    let session = place.session()?;
    let lock = "LOCK TABLE pg_catalog.pg_shseclabel IN SHARE UPDATE EXCLUSIVE MODE";
    match session.run(&format!("BEGIN; SET LOCAL lock_timeout = '5s'; {lock}")) {
        Err(error) if error.code() == "55P03" => refused(
            format!("another move is at work on {}", place.role),
            "Wait until it has ended, or end the session that this one waits for, if nobody watches it.",
        ),
        result => result.map(|_| session),
    }
}
