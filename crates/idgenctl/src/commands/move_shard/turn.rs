//! One run at a time: the lock, the sessions of a run, and those that an earlier run has left at work.

use std::time::Duration;

use super::sides::{Place, Role, Side};
use super::{Move, say};
use crate::connection::session::Session;
use crate::terminal::error::{Error, Result};
use crate::terminal::signals;

/// Anybody may give a session the name of ours. Ours are those of superusers, except a restore by the owner.
pub const BY_SUPERUSER: &str = "usesysid IN (SELECT oid FROM pg_roles WHERE rolsuper)";

/// What the lock of a schema is made of.
const LOCK: &str = "hashtext('idgenctl move'), hashtext($1)";

impl Move<'_> {
    /// Takes the lock of the schema, in a session on the source that ends with this program, however that ends.
    pub fn take_lock(&self) -> Result {
        let source = self.source.primary();
        // If a firewall has cut it off, its session on the server still holds the lock.
        if let Some(lock) = self.lock.take() {
            let _ = source.query(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE pid = $1::integer AND application_name = $2",
                &[&lock.pid().to_string(), &source.name()],
            );
        }
        let lock = source.fresh()?;
        lock.run("SET lock_timeout = '5s'")?;
        if let Err(error) = lock.query(&format!("SELECT pg_advisory_lock({LOCK})"), &[&self.schema]) {
            if error.code() != "55P03" {
                return Err(error);
            }
            let holders = source.value(
                "SELECT coalesce(string_agg(pid::text, ', '), 'none') FROM pg_locks
                 WHERE locktype = 'advisory' AND granted AND objsubid = 2
                   AND classid::bigint = hashtext('idgenctl move')::bigint & 4294967295",
                &[],
            )?;
            return Err(Error::refused(
                format!("another run is at work on {}", self.schema),
                format!(
                    "On the source, it is pid {holders}. Wait until it has ended, or end it if nobody watches it."
                ),
            ));
        }
        lock.run("SET lock_timeout = 0")?;
        lock.set_patience(None);
        *self.lock.borrow_mut() = Some(lock);
        Ok(())
    }

    /// Keeps a session open on the target as long as the one with the lock, so that other moves see it.
    pub fn hold_target(&self) -> Result {
        *self.hold.borrow_mut() = Some(self.target.primary().fresh()?);
        Ok(())
    }

    /// Runs something in the session that holds the lock, so that a run that has lost it changes no name.
    pub fn in_lock<T>(&self, work: impl FnOnce(&Session) -> Result<T>) -> Result<T> {
        match self.lock.borrow().as_ref() {
            Some(lock) => work(lock).map_err(|error| match error {
                Error::Unreachable { .. } => Error::refused(
                    format!("the session that holds the lock of this move is gone: {error}"),
                    "Run the same command again.",
                ),
                error => error,
            }),
            None => Err(Error::refused("the lock of the move is gone", "Run the same command again.")),
        }
    }

    /// The process on the source that holds the lock.
    pub fn lock_pid(&self) -> String {
        self.lock.borrow().as_ref().map_or(0, Session::pid).to_string()
    }

    /// Refuses to work beside another move: both would read the same list, and each would write it without the change of
    /// the other.
    pub fn check_others(&self, sides: &[&Side<'_>]) -> Result {
        for side in sides {
            let place = side.primary();
            let others = place.value(
                &format!(
                    "SELECT string_agg(DISTINCT format('%s, in %s', application_name, datname), '; ') FROM pg_stat_activity
                     WHERE application_name LIKE 'idgenctl move %' AND application_name <> $1 AND {BY_SUPERUSER}"
                ),
                &[&place.name()],
            )?;
            if !others.is_empty() {
                return Err(Error::refused(
                    format!("another move is at work on {}: {others}", place.role),
                    "Wait until it has ended.",
                ));
            }
        }
        Ok(())
    }

    /// The processes of other sessions of this move; of ordinary roles, only those that began before a time.
    pub fn others_since(&self, role: Role, began: &str) -> Result<String> {
        let place = self.side(role).primary();
        let kept = match role {
            Role::Source => self.lock_pid(),
            Role::Target => self.hold.borrow().as_ref().map_or(0, Session::pid).to_string(),
        };
        place.value(
            &format!(
                "SELECT string_agg(pid::text, ', ') FROM pg_stat_activity
                 WHERE application_name = $1 AND ({BY_SUPERUSER} OR backend_start < $2::timestamptz)
                   AND pid NOT IN (pg_backend_pid(), $3::integer)"
            ),
            &[&place.name(), began, &kept],
        )
    }

    /// Ends sessions of an earlier run, or of a part of this one that was given up, such as a restore that could still
    /// commit. It does not wait for sessions of ordinary roles that begin later: somebody could begin one after the other.
    pub fn end_others(&self, role: Role) -> Result {
        let place = self.side(role).primary();
        let began = place.value("SELECT clock_timestamp()", &[])?;
        for attempt in 0..300 {
            let pids = self.others_since(role, &began)?;
            if pids.is_empty() {
                return Ok(());
            }
            if attempt == 0 {
                say(format!(
                    "ending sessions that are still at work for this move on {}: pid {pids}",
                    place.role
                ));
            }
            place.session()?.run(&format!(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid IN ({pids})"
            ))?;
            signals::pause(Duration::from_millis(100))?;
        }
        Err(Error::refused(
            format!("sessions of this move on {} do not end", place.role),
            "Look at pg_stat_activity for their application_name.",
        ))
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
            let cause = crate::connection::waiting::cause(&other, session.pid())?;
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
