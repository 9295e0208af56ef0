//! Closing the schema on the source, and waiting for commands that began before.

use std::env;
use std::time::{Duration, Instant};

use super::checks::PREPARED;
use super::sides::PATIENCE;
use super::{Move, own_comment, rename, say, set_comment};
use crate::connection::session::Session;
use crate::idgen::extension;
use crate::terminal::error::{Error, Result};
use crate::terminal::signals;

/// A time limit, which tests shorten.
fn limit(variable: &str, seconds: u64) -> Duration {
    let given = env::var(variable).ok().and_then(|text| text.parse().ok());
    Duration::from_secs(given.unwrap_or(seconds))
}

impl Move<'_> {
    /// The sessions that use the schema's tables in transactions older than so many milliseconds. An autovacuum gives way,
    /// unless it prevents a wraparound, and so is shown only with those of any age.
    fn blockers(&self, milliseconds: u32) -> Result<String> {
        self.source.primary().value(
            "SELECT string_agg(DISTINCT format('pid %s (%s, %s, in its transaction since %s)', a.pid,
                               coalesce(nullif(application_name, ''), backend_type), state, xact_start), ', ')
             FROM pg_locks AS l
                  JOIN pg_namespace AS n
                      ON n.oid = CASE l.locktype WHEN 'relation' THEN (SELECT relnamespace FROM pg_class AS c
                                                                       WHERE c.oid = l.relation)
                                                 WHEN 'object' THEN CASE l.classid WHEN 'pg_namespace'::regclass
                                                                                   THEN l.objid END END
                  JOIN pg_stat_activity AS a ON a.pid = l.pid
             WHERE n.nspname = $1 AND l.granted AND (backend_type <> 'autovacuum worker' OR $2::integer = 0)
               AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
               AND coalesce(xact_start < clock_timestamp() - $2::integer * interval '1 ms', true)",
            &[&self.schema, &milliseconds.to_string()],
        )
    }

    /// What may block the schema without a session that has a lock on its tables: prepared transactions, and those that
    /// have changed the schema itself, as by GRANT.
    fn hidden_blockers(&self) -> Result<String> {
        let source = self.source.primary();
        let prepared = source.value(PREPARED, &[&self.schema])?;
        if !prepared.is_empty() {
            return Ok(format!("prepared: {prepared}"));
        }
        let writers = source.value(
            "SELECT string_agg(format('pid %s (%s, %s)', pid, coalesce(nullif(application_name, ''), backend_type), state), ', ')
             FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND datname = current_database()",
            &[],
        )?;
        Ok(if writers.is_empty() { "none any more".into() } else { format!("one of {writers}") })
    }

    /// Gives the schema its other name, which keeps everybody out: no transaction uses the tables at that moment, and
    /// later ones do not find them. The dump carries the name along, and the last step removes it. Clients queue behind a
    /// lock request that has to wait, so no lock is requested while there is a transaction that will not end soon, and
    /// each try is short.
    pub fn close(&self) -> Result {
        let limit = limit("IDGENCTL_CLOSE_TIMEOUT", 60);
        let began = Instant::now();
        let mut said = Duration::ZERO;
        let mut tries = 0;
        loop {
            let mut who = self.blockers(1000)?;
            if who.is_empty() {
                // One order suits clients that insert a row into a table that refers to others, whose key is checked
                // afterwards; the other one suits clients that insert both.
                match self.try_to_close(if tries % 2 == 0 { "DESC" } else { "ASC" }) {
                    // lock_not_available, or a deadlock, which then fails here and not at the client.
                    Err(error) if matches!(error.code(), "55P03" | "40P01") => {}
                    result => return result,
                }
                tries += 1;
                who = self.blockers(0)?;
                if who.is_empty() {
                    who = self.hidden_blockers()?;
                }
            }
            if began.elapsed() > limit {
                return Err(Error::refused(
                    format!(
                        "the schema was in use for {} s without a break. Transactions in its tables: {who}",
                        limit.as_secs()
                    ),
                    "Try again when they have ended.",
                ));
            }
            if began.elapsed() > said + Duration::from_secs(5) {
                said = began.elapsed();
                say(format!("waiting for transactions in the schema: {who}"));
            }
            signals::pause(Duration::from_millis(200 + 100 * (tries * 3 % 5)))?;
        }
    }

    fn try_to_close(&self, order: &str) -> Result {
        // A session of its own: if it is cut off while its COMMIT waits for a standby, another run can end it.
        let session = self.source.primary().session()?;
        session.set_patience(None);
        let result = self.close_in(&session, order);
        if result.is_err() && !session.is_idle() {
            // One that still waits for an answer is ended by whoever undoes this.
            let _ = session.run("ROLLBACK");
        }
        session.set_patience(Some(PATIENCE));
        result
    }

    fn close_in(&self, session: &Session, order: &str) -> Result {
        session.run("BEGIN")?;
        session.run("SET LOCAL lock_timeout = '900ms'")?;
        // An autovacuum gives way after this time.
        session.run("SET LOCAL deadlock_timeout = '300ms'")?;
        let locks = session.query(
            &format!(
                "SELECT format('LOCK TABLE ONLY %I.%I IN ACCESS EXCLUSIVE MODE', nspname, relname)
                 FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace
                 WHERE nspname = $1 AND relkind IN ('r', 'p') ORDER BY c.oid {order}"
            ),
            &[&self.schema],
        )?;
        for lock in locks.iter() {
            session.run(&lock.string(0))?;
        }
        let is_ours = session.query(
            "SELECT obj_description(n.oid, 'pg_namespace') FROM pg_namespace AS n WHERE nspname = $1
             AND EXISTS (SELECT FROM pg_locks WHERE pid = $2::integer AND locktype = 'advisory' AND granted)",
            &[&self.schema, &self.lock_pid()],
        )?;
        let Some(row) = is_ours.iter().next() else {
            return Err(Error::refused(
                "the session that holds the lock of this move is gone, or the schema",
                "Run the same command again.",
            ));
        };
        let old = row.text(0);
        let rest = own_comment(old.as_deref()).map(|text| format!("\n{text}")).unwrap_or_default();
        let comment = format!("moves with shard {}{rest}", self.shard_text());
        session.run(&rename(&self.schema, &self.moving))?;
        // From here on, nobody knows whether it was closed if this program is interrupted.
        self.stage.set(super::Stage::Closed);
        session.run(&format!("{}; COMMIT", set_comment(&self.moving, Some(&comment)))).map(drop)
    }

    /// The databases whose commands cannot mint, because they have no idgen.
    pub fn databases_without_idgen(&self) -> Result<String> {
        let source = self.source.primary();
        let session = source.session()?;
        let others: Vec<String> = extension::databases(&session)?
            .into_iter()
            .filter(|database| matches!(extension::installation(source.server, database.clone()), Ok(None)))
            .collect();
        let json = serde_json::Value::from(others).to_string();
        source.value(
            "SELECT coalesce(array_agg(oid), '{}') FROM pg_database
             WHERE datname IN (SELECT json_array_elements_text($1::json))",
            &[&json],
        )
    }

    /// Waits until the commands running now have ended. A backend reads the configuration between two commands. Background
    /// workers, and sessions with track_activities off, may not show what they do: their transactions must have ended.
    pub fn wait_for_commands(&self, databases_without_idgen: &str, why: &str) -> Result {
        let limit = limit("IDGENCTL_COMMAND_TIMEOUT", 30);
        let source = self.source.primary();
        let began = source.value("SELECT extract(epoch FROM clock_timestamp())", &[])?;
        let open = source.value(
            "SELECT coalesce(array_agg(virtualtransaction), '{}') FROM pg_locks WHERE virtualxid = virtualtransaction",
            &[],
        )?;
        let start = Instant::now();
        let mut said = Duration::ZERO;
        loop {
            let pids = source.value(
                "SELECT string_agg(format('pid %s (%s in %s, since %s)', pid, coalesce(nullif(application_name, ''),
                                          backend_type), datname, coalesce(query_start, backend_start)), ', ')
                 FROM pg_stat_activity
                 WHERE CASE WHEN state LIKE 'idle%' THEN false
                            WHEN query_start IS NOT NULL THEN extract(epoch FROM query_start) < $1::numeric
                            ELSE pid IN (SELECT pid FROM pg_locks
                                         WHERE virtualxid = virtualtransaction
                                           AND virtualtransaction = ANY ($2::text[])) END
                   AND datid <> ALL ($3::oid[]) AND backend_type <> 'autovacuum worker'
                   AND pid NOT IN (SELECT pid FROM pg_stat_replication WHERE state <> 'startup')",
                &[&began, &open, databases_without_idgen],
            )?;
            if pids.is_empty() {
                return Ok(());
            }
            if start.elapsed() > limit {
                return Err(Error::refused(
                    format!("commands that began before {why} are still running: {pids}"),
                    "Try again when they have ended.",
                ));
            }
            if start.elapsed() > said + Duration::from_secs(5) {
                said = start.elapsed();
                say(format!("waiting for {pids}"));
            }
            signals::pause(Duration::from_millis(100))?;
        }
    }
}
