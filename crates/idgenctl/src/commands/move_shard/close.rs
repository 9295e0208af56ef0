//! Closes the schema and the shard on the source at the same moment: a transaction locks all tables and renames the
//! schema, and the configuration gets the list without the shard. Then the core closes the shard, and the transaction
//! commits. Clients wait for a lock, and then the old name is gone. The design says why no id repeats.

use std::env;
use std::time::{Duration, Instant};

use idgen_ids::shard_set::ShardSet;

use super::copy::lock_tables;
use super::plan::Plan;
use super::run::{Run, Stage, Turn};
use super::{checks, lists};
use crate::connection::waiting;
use crate::idgen::library;
use crate::terminal::error::{Result, refused};
use crate::terminal::signals;

/// Closes both, and returns the first id that the source will never mint. Clients queue behind a lock request that has
/// to wait, so attempts are short, and made only when no old transaction uses the schema.
pub fn close(run: &mut Run<'_>) -> Result<i64> {
    let plan = run.plan;
    let limit = env::var("IDGENCTL_CLOSE_TIMEOUT").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let mut tries = 0;
    let ask = || {
        if !blockers(plan, 1000)?.is_empty() {
            return Ok(None);
        }
        if tries == 0 {
            run.stage = Stage::Begun;
            run.begin()?;
            if plan.arguments.set_list.is_some() {
                // A program may take long, and clients would queue behind the locks.
                lists::set_primary(plan, &run.turn, &plan.source, ShardSet::without)?;
            }
        }
        tries += 1;
        // Clients that insert a referencing row alone lock its table first, and the referenced one for the check of the
        // key. Those that insert both rows lock in the other order.
        match try_to_close(plan, &run.turn, if tries % 2 == 1 { "DESC" } else { "ASC" }) {
            // lock_not_available, or a deadlock, which fails here and not in the client, or a table that was just dropped.
            Err(error) if matches!(error.code(), "55P03" | "40P01" | "42P01") => {
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
    let what = format!("the schema was in use for {limit} s without a break. Transactions in it:");
    refused(format!("{what} {}", blockers(plan, 0)?), "Try again when they have ended.")
}

/// The transactions of at least this age that use the schema's tables, or change the schema. Autovacuum workers give
/// way unless they prevent wraparound, so they only count with age 0. A session that shows no start time has ended its
/// transaction since it held the lock, unless it hides its activity.
pub fn blockers(plan: &Plan<'_>, milliseconds: u32) -> Result<String> {
    let rights =
        RIGHTS.map(|(catalog, of)| format!(" UNION ALL SELECT c.xmax FROM {catalog} AS c WHERE {of}"));
    let sql = format!(
        "WITH used AS (
             SELECT l.pid, l.virtualtransaction FROM pg_locks AS l
                  JOIN pg_namespace AS n
                      ON n.oid = CASE l.locktype WHEN 'relation' THEN (SELECT relnamespace FROM pg_class AS c
                                                                       WHERE c.oid = l.relation)
                                                 WHEN 'object' THEN CASE l.classid
                                                     WHEN 'pg_namespace'::regclass THEN l.objid
                                                     WHEN 'pg_type'::regclass THEN (SELECT typnamespace FROM pg_type AS t
                                                                                    WHERE t.oid = l.objid) END END
             WHERE n.nspname = $1 AND l.granted
               AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
             UNION ALL
             -- They change its rights, or those of its objects.
             SELECT l.pid, l.virtualtransaction
             FROM pg_namespace AS n JOIN pg_locks AS l ON locktype = 'transactionid'
             WHERE n.nspname = $1 AND l.granted AND transactionid IN (SELECT n.xmax {}))
         SELECT string_agg(who, ', ')
         FROM (SELECT format('pid %s (%s, in its transaction since %s)', pid,
                             concat_ws(', ', coalesce(quote_literal(nullif(application_name, '')), backend_type),
                                       quote_ident(usename), state), xact_start)
               FROM pg_stat_activity
               WHERE pid IN (SELECT pid FROM used)
                 AND ($2 = '0' OR backend_type <> 'autovacuum worker'
                                  AND coalesce(xact_start < clock_timestamp() - $2::integer * interval '1 ms',
                                               state = 'disabled', true))
               UNION ALL
               SELECT DISTINCT format('prepared: %L of %I', gid, owner)
               FROM used JOIN pg_locks AS own USING (virtualtransaction) JOIN pg_prepared_xacts ON transaction = transactionid
               WHERE used.pid IS NULL) AS found (who)",
        rights.concat()
    );
    plan.source.primary().value(&sql, &[&plan.names.schema, &milliseconds.to_string()])
}

/// Catalogs in which a GRANT or REVOKE changes a row of an object in a schema `n`. It locks nothing else.
const RIGHTS: [(&str, &str); 5] = [
    ("pg_class", "relnamespace = n.oid"),
    ("pg_attribute", "attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = n.oid)"),
    ("pg_proc", "pronamespace = n.oid"),
    ("pg_type", "typnamespace = n.oid"),
    ("pg_default_acl", "defaclnamespace = n.oid"),
];

/// One attempt; none if a table was created in the meantime.
fn try_to_close(plan: &Plan<'_>, turn: &Turn, order: &str) -> Result<Option<i64>> {
    let source = plan.source.primary();
    let session = source.session()?;
    session.set_patience(None);
    // Autovacuum gives way after deadlock_timeout.
    session.run("BEGIN; SET LOCAL lock_timeout = '900ms'; SET LOCAL deadlock_timeout = '300ms'")?;
    lock_tables(&session, &plan.names.schema, "ACCESS EXCLUSIVE", order)?;
    // A tie may have been added since the checks. Now that is no longer possible.
    checks::ties(&session, &plan.names.schema)?;
    plan.names.take(&session)?;
    // A REVOKE would be lost if it committed after the copy's snapshot.
    for (catalog, of) in RIGHTS {
        let rows = format!("SELECT FROM {catalog} AS c JOIN pg_namespace AS n ON {of} WHERE nspname = $1");
        session.query(&format!("{rows} FOR SHARE OF c NOWAIT"), &[&plan.names.moving])?;
    }
    // Transactions that have created tables since the listing have committed, because the renaming waited for them.
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
    // Others may use a sequence, or add a value to an enum. Those that wait for our locks fail, and do not count.
    let in_the_way = "
        SELECT FROM pg_locks AS l JOIN pg_namespace AS n
               ON n.oid IN ((SELECT relnamespace FROM pg_class AS c WHERE c.oid = l.relation AND relkind = 'S'),
                            (SELECT typnamespace FROM pg_type AS t WHERE t.oid = objid AND classid = 'pg_type'::regclass))
        WHERE nspname = $1 AND granted AND mode <> 'AccessShareLock' AND pid IS DISTINCT FROM pg_backend_pid()
          AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND NOT coalesce(pg_backend_pid() = ANY (pg_blocking_pids(pid)), false)";
    // A client may be between its nextval and its INSERT.
    let until = Instant::now() + Duration::from_millis(900);
    while session.query(in_the_way, &[&plan.names.moving])?.len() > 0 {
        if Instant::now() > until {
            return Ok(None);
        }
        signals::pause(Duration::from_millis(10))?;
    }
    turn.prove(&plan.source)?;
    if plan.arguments.set_list.is_none() {
        lists::set_primary(plan, turn, &plan.source, ShardSet::without)?;
    }
    let bound = library::close(&turn.session(&plan.source, source)?, plan.shard)?;
    session.run("COMMIT")?;
    Ok(Some(bound))
}
