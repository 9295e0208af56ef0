//! Closing the schema and the shard on the source, in one moment.
//!
//! A transaction holds the locks of all tables and has renamed the schema; the list without the shard is in the
//! configuration; then the core closes the shard, and the transaction commits. Clients that come in between wait for a lock
//! for that moment, and then find no schema of the old name.
//!
//! Why no id is repeated, whatever a session has got before: from the call that closes the shard on, no call of any session
//! mints for it, whatever its configuration, its transaction or its database, until a restart, which reads the list. Each
//! id minted before that is below the bound that the call returns, and the target begins above the bound. An id that a
//! session has got and not inserted yet is in no row: its transaction has no lock, its INSERT fails, and if the client
//! inserts the id on the target, it is below all that are minted there. If the transaction has a lock, the schema is not
//! closed before it ends, so its rows are in the copy.

use std::env;
use std::time::Duration;

use super::plan::Plan;
use super::run::Run;
use super::turn::Turn;
use super::{checks, lists};
use crate::connection::waiting;
use crate::idgen::library::Library;
use crate::terminal::error::{Result, refused};
use crate::terminal::signals;

/// Closes both, and gives the first id that the source will never mint. Clients queue behind a lock request that has to
/// wait, so no lock is requested while there is a transaction that will not end soon, and each try is short.
pub fn close(run: &mut Run<'_>) -> Result<i64> {
    let plan = run.plan;
    // Tests shorten it.
    let limit = env::var("IDGENCTL_CLOSE_TIMEOUT").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let mut tries = 0;
    let ask = || {
        if !blockers(plan, 1000)?.is_empty() {
            return Ok(None);
        }
        if tries == 0 {
            run.begin()?;
            // The standbys mint nothing meanwhile. A program may take long to set the list of the primary, and others
            // would queue behind the locks for so long.
            let without = lists::without(plan, &lists::of(plan.source.primary())?)?;
            lists::tell_program(plan, &run.turn, &plan.source, &without)?;
            let first = usize::from(plan.arguments.set_list.is_none());
            let set = |place| lists::set(plan, &run.turn, &plan.source, place, &without);
            plan.source.places[first..].iter().try_for_each(set)?;
        }
        tries += 1;
        // One order suits clients that insert a row into a table that refers to others, whose key is checked
        // afterwards; the other one suits clients that insert both.
        match try_to_close(plan, &run.turn, if tries % 2 == 1 { "DESC" } else { "ASC" }) {
            // lock_not_available, or a deadlock, which then fails here and not at the client.
            Err(error) if matches!(error.code(), "55P03" | "40P01") => {
                signals::pause(Duration::from_millis(100 * (1 + tries * 3 % 5)))?;
                Ok(None)
            }
            result => result,
        }
    };
    let bound = waiting::until(Duration::from_secs(limit), "transactions in the schema to end", ask)?;
    if let Some(bound) = bound {
        return Ok(bound);
    }
    let who = blockers(plan, 0)?;
    refused(
        format!("the schema was in use for {limit} s without a break. Transactions in its tables: {who}"),
        "Try again when they have ended.",
    )
}

/// The transactions, older than so many milliseconds, that use the schema's tables or change the schema itself. An
/// autovacuum gives way, unless it prevents a wraparound, and so is shown only with those of any age. Of a session that
/// shows no time, only one that hides what it does counts as old: the others have ended their transactions since they had
/// the lock.
pub fn blockers(plan: &Plan<'_>, milliseconds: u32) -> Result<String> {
    plan.source.primary().value(
        "WITH used AS (
             SELECT l.pid, l.virtualtransaction FROM pg_locks AS l
                  JOIN pg_namespace AS n
                      ON n.oid = CASE l.locktype WHEN 'relation' THEN (SELECT relnamespace FROM pg_class AS c
                                                                       WHERE c.oid = l.relation)
                                                 WHEN 'object' THEN CASE l.classid WHEN 'pg_namespace'::regclass
                                                                                   THEN l.objid END END
             WHERE n.nspname = $1 AND l.granted
               AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()))
         SELECT string_agg(who, ', ')
         FROM (SELECT format('pid %s (%s, %s, in its transaction since %s)', pid,
                             coalesce(nullif(application_name, ''), backend_type), state, xact_start)
               FROM pg_stat_activity
               WHERE pid IN (SELECT pid FROM used)
                 AND ($2 = '0' OR backend_type <> 'autovacuum worker'
                                  AND coalesce(xact_start < clock_timestamp() - $2::integer * interval '1 ms',
                                               state = 'disabled', true))
               UNION ALL
               SELECT DISTINCT format('prepared: %L', gid)
               FROM used JOIN pg_locks AS own USING (virtualtransaction) JOIN pg_prepared_xacts ON transaction = transactionid
               WHERE used.pid IS NULL) AS found (who)",
        &[&plan.names.schema, &milliseconds.to_string()],
    )
}

/// None if somebody has created a table meanwhile.
fn try_to_close(plan: &Plan<'_>, turn: &Turn, order: &str) -> Result<Option<i64>> {
    let source = plan.source.primary();
    let session = source.session()?;
    session.set_patience(None);
    // An autovacuum gives way after the deadlock_timeout.
    session.run("BEGIN; SET LOCAL lock_timeout = '900ms'; SET LOCAL deadlock_timeout = '300ms'")?;
    let locks = session.query(
        &format!(
            "SELECT format('SET LOCAL ROLE %I; LOCK TABLE ONLY %I.%I IN ACCESS EXCLUSIVE MODE; SET LOCAL ROLE NONE',
                           pg_get_userbyid(relowner), nspname, relname)
             FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace
             WHERE nspname = $1 AND relkind IN ('r', 'p') ORDER BY c.oid {order}"
        ),
        &[&plan.names.schema],
    )?;
    // Their owner may have put a view of some catalog in the place of a table meanwhile, which only superusers may lock.
    for lock in locks.iter() {
        session.run(&lock.string(0))?;
    }
    // Somebody may have tied it since the checks, and cannot any more.
    checks::ties(plan, &session)?;
    plan.names.take(&session)?;
    // Whoever has created one since they were listed has committed: the renaming has waited for that.
    let unlocked = session.query(
        "SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace
         WHERE nspname = $1 AND relkind IN ('r', 'p') AND c.oid NOT IN (
             SELECT relation FROM pg_locks
             WHERE pid = pg_backend_pid() AND locktype = 'relation' AND mode = 'AccessExclusiveLock' AND granted)",
        &[&plan.names.moving],
    )?;
    if unlocked.len() > 0 {
        return Ok(None);
    }
    turn.prove(&plan.source)?;
    if plan.arguments.set_list.is_none() {
        lists::set(plan, turn, &plan.source, source, &lists::without(plan, &lists::of(source)?)?)?;
    }
    let bound = Library::of(&turn.session(&plan.source, source)?)?.close(plan.shard)?;
    session.run("COMMIT")?;
    Ok(Some(bound))
}
