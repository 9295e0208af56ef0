//! One run at a time on a server, and the sessions that an earlier run has left at work.

use std::time::Duration;

use super::sides::{Place, Side};
use crate::connection::session::Session;
use crate::connection::waiting;
use crate::terminal::error::{Error, Result};

/// The catalog that a run locks, because all databases of a server share it: two moves at once would read the same list of
/// shards, and each would write it without the change of the other. No tenant may take this lock, and it keeps nobody
/// from anything but maintenance of that catalog.
const LOCKED: &str = "pg_catalog.pg_shseclabel";

/// The sessions that hold the locks, as long as this program runs, however it ends.
pub struct Turn {
    sessions: Vec<Session>,
}

impl Turn {
    /// Waits for its turn on the primaries of both sides. An undo needs no target.
    pub fn take(source: &Side<'_>, target: &Side<'_>) -> Result<Turn> {
        let mut sessions = vec![lock(source.primary())?];
        if target.is_reached() {
            sessions.push(lock(target.primary())?);
        }
        Ok(Turn { sessions })
    }

    /// Takes the lock on the source again if the session that held it is gone.
    pub fn keep(&mut self, place: &Place<'_>) -> Result {
        if self.prove(&*place.session()?).is_ok() {
            return Ok(());
        }
        self.sessions[0] = lock(place)?;
        Ok(())
    }

    /// The process on the source that holds the lock.
    pub fn pid(&self) -> u32 {
        self.sessions[0].pid()
    }

    /// In a transaction on the source: fails if the turn is over. The next run ends the sessions of this one before it does
    /// anything, so the transaction is committed only if there is none.
    pub fn prove(&self, session: &Session) -> Result {
        let is_held = session.query(
            "SELECT FROM pg_locks WHERE pid = $1::integer AND relation = 'pg_shseclabel'::regclass AND granted",
            &[&self.pid().to_string()],
        )?;
        if is_held.len() > 0 {
            return Ok(());
        }
        Err(Error::refused(
            "the session that holds the lock of this move is gone",
            "Run the same command again.",
        ))
    }

    /// Ends sessions of an earlier run, or of a part of this one that was given up, such as a restore that could still
    /// commit. It does not wait for sessions of this name that begin later: anybody could begin one after the other.
    pub fn end_others(&self, place: &Place<'_>) -> Result {
        let session = place.session()?;
        let began = session.value("SELECT clock_timestamp()", &[])?;
        let own = self.sessions.iter().map(|session| session.pid().to_string()).collect::<Vec<_>>().join(",");
        let found = "FROM pg_stat_activity WHERE application_name = $1 AND backend_start < $2::timestamptz
                     AND pid <> ALL ($3::integer[] || pg_backend_pid())";
        let parameters = [place.name.as_str(), &began, &format!("{{{own}}}")];
        let ask = || {
            let ended = session.query(&format!("SELECT pg_terminate_backend(pid) {found}"), &parameters)?;
            Ok((ended.len() == 0).then_some(()))
        };
        let what = format!("sessions that are still at work for this move on {} to end", place.role);
        waiting::until(Duration::from_secs(30), &what, ask)?.ok_or_else(|| {
            Error::refused(
                format!("sessions of this move on {} do not end", place.role),
                "Look at pg_stat_activity for their application_name.",
            )
        })
    }
}

fn lock(place: &Place<'_>) -> Result<Session> {
    let session = place.fresh()?;
    session.run("BEGIN; SET LOCAL lock_timeout = '5s'")?;
    match session.run(&format!("LOCK TABLE {LOCKED} IN SHARE UPDATE EXCLUSIVE MODE")) {
        Ok(_) => Ok(session),
        Err(error) if error.code() == "55P03" => {
            let holders = place.value(
                "SELECT string_agg(format('%s, pid %s, in %s', application_name, pid, datname), '; ')
                 FROM pg_locks JOIN pg_stat_activity USING (pid)
                 WHERE relation = 'pg_shseclabel'::regclass AND granted AND mode <> 'AccessShareLock'",
                &[],
            )?;
            Err(Error::refused(
                format!("another move is at work on {}: {holders}", place.role),
                "Wait until it has ended, or end that session if nobody watches it.",
            ))
        }
        Err(error) => Err(error),
    }
}

/// How a superuser's statements on a place see whether its commits wait for a standby that is down.
pub fn commit(place: &Place<'_>) -> Result {
    let session = place.fresh()?;
    session.set_patience(Some(Duration::from_secs(10)));
    match session.run("SELECT pg_logical_emit_message(true, 'idgenctl move', '')") {
        Ok(_) => Ok(()),
        Err(Error::NoAnswer { .. }) => {
            let other = place.session()?;
            let cause = waiting::cause(&other, session.pid())?;
            other.query("SELECT pg_terminate_backend($1::integer)", &[&session.pid().to_string()])?;
            Err(Error::refused(
                format!(
                    "a commit on {} did not end in 10 s. It waited for {}",
                    place.role,
                    cause.unwrap_or_else(|| "nothing that the server shows".into())
                ),
                "Start the standbys, or correct synchronous_standby_names.",
            ))
        }
        Err(error) => Err(error),
    }
}
