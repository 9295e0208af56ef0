//! Locks on all tables of the schema.

use crate::connection::session::Session;
use crate::terminal::error::Result;

/// Locks the tables that exist, in the session's transaction and in the order of their OIDs, `ASC` or `DESC`.
pub fn lock_tables(session: &Session, schema: &str, mode: &str, order: &str) -> Result {
    let locks = session.query(
        &format!(
            "SELECT format('SET LOCAL ROLE %I; LOCK TABLE ONLY %I.%I IN {mode} MODE; SET LOCAL ROLE NONE',
                           pg_get_userbyid(relowner), nspname, relname)
             FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace
             WHERE nspname = $1 AND relkind IN ('r', 'p') ORDER BY c.oid {order}"
        ),
        &[schema],
    )?;
    // As its owner, who may have replaced a table by a view of a catalog: only superusers may lock that.
    locks.iter().try_for_each(|lock| session.run(&lock.string(0)).map(drop))
}
