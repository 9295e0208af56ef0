//! One run at a time on a server, and the sessions that an earlier run has left at work.

use std::time::Duration;

use super::plan::Plan;
use super::sides::{Place, Side};
use crate::connection::session::Session;
use crate::connection::waiting;
use crate::terminal::error::{Result, refused};

/// The sessions that hold the locks, as long as this program runs, however it ends.
///
/// A run may sleep, with its machine or at its question, while its sessions end and another run takes its turn. So each change
/// is made by a session that was there before the lock was seen to be held: the other run, once it has the lock, ends all
/// such sessions before it does anything.
pub struct Turn {
    source: Session,
    target: Option<Session>,
    /// The role that restores the schema.
    restorer: String,
}

impl Turn {
    /// Waits for its turn on the primaries of both sides. An undo needs no target.
    pub fn take(plan: &Plan<'_>) -> Result<Turn> {
        let source = lock(plan.source.primary())?;
        let target = plan.target.is_reached().then(|| lock(plan.target.primary())).transpose()?;
        let turn = Turn { source, target, restorer: plan.restorer.clone() };
        for side in [&plan.source, &plan.target].into_iter().filter(|side| side.is_reached()) {
            side.places.iter().try_for_each(|place| turn.end_others(side, place))?;
        }
        Ok(turn)
    }

    /// Takes the lock on the source again if the session that held it is gone.
    pub fn keep(&mut self, source: &Side<'_>) -> Result {
        if self.prove(source).is_err() {
            self.source = lock(source.primary())?;
        }
        Ok(())
    }

    /// Fails if the turn on a side is over.
    pub fn prove(&self, side: &Side<'_>) -> Result {
        let session = if side.role == "source" { Some(&self.source) } else { self.target.as_ref() };
        if session.is_some_and(|session| session.run("SELECT").is_ok()) {
            return Ok(());
        }
        refused(
            format!("the session that holds the lock of this move on the {} is gone", side.role),
            "Run the same command again.",
        )
    }

    /// A session for a change on a side.
    pub fn session(&self, side: &Side<'_>, place: &Place<'_>) -> Result<Session> {
        let session = place.session()?;
        self.prove(side)?;
        Ok(session)
    }

    /// Ends sessions of earlier runs, or of a part of this one that was given up, such as a restore that could still commit.
    /// Those of moves of other shards have no turn either: they could still write the whole list. Anybody may give a session
    /// such a name, so those of other roles do not count, nor those that begin later.
    pub fn end_others(&self, side: &Side<'_>, place: &Place<'_>) -> Result {
        let session = self.session(side, place)?;
        let began = session.value("SELECT clock_timestamp()", &[])?;
        let own = self.target.iter().chain([&self.source]).map(|session| session.pid().to_string());
        let own = own.collect::<Vec<_>>().join(",");
        let ask = || {
            let ended = session.query(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE backend_start < $2::timestamptz AND pid <> ALL ($3::integer[] || pg_backend_pid())
                   AND (usesysid IN (SELECT oid FROM pg_roles WHERE rolsuper)
                        AND starts_with(application_name, 'idgenctl move ')
                        OR usesysid IN (SELECT oid FROM pg_roles WHERE rolname = $4) AND application_name = $1)",
                &[&place.name, &began, &format!("{{{own}}}"), &self.restorer],
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
