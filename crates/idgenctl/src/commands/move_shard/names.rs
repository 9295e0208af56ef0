//! The schema's names during a move, and the empty schemas that the move creates.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::commands::marker::{self, Begun, new_schema};
use crate::connection::session::Session;
use crate::terminal::error::{Result, refused};
use crate::terminal::output::note;

/// A statement that sets a schema's comment. An empty one removes it.
pub fn set_comment(schema: &str, comment: &str) -> String {
    format!("COMMENT ON SCHEMA {} IS {}", Session::identifier(schema), Session::literal(comment))
}

pub fn rename(from: &str, to: &str) -> String {
    format!("ALTER SCHEMA {} RENAME TO {}", Session::identifier(from), Session::identifier(to))
}

/// The names before, during and after a move.
#[derive(Default)]
pub struct Names {
    pub schema: String,
    pub moving: String,
    pub moved: String,
    /// The system identifier of the source, and the OID of its database.
    pub from: String,
    /// Those of the markers of the source and the target.
    pub tokens: [u64; 2],
    /// The comment of the copy and of kept names, and the application_name of sessions. Its third word is the shard.
    pub mark: String,
}

impl Names {
    /// Those that exist in a database, except one that is only kept.
    pub fn on(&self, session: &Session) -> Result<Vec<String>> {
        let rows = session.query(
            "SELECT nspname FROM pg_namespace WHERE nspname IN ($1, $2, $3) ORDER BY nspname",
            &[&self.schema, &self.moving, &self.moved],
        )?;
        let is_kept = self.kept(session)?.is_some();
        Ok(rows.iter().map(|row| row.string(0)).filter(|name| !(is_kept && *name == self.schema)).collect())
    }

    /// The comment of the empty schema of a superuser that keeps the name in a database.
    pub fn kept(&self, session: &Session) -> Result<Option<String>> {
        Ok(marker::kept(session)?.remove(&self.schema))
    }

    /// Whether this move is at work on the target, or has broken off there.
    pub fn is_reserved(&self, session: &Session) -> Result<bool> {
        Ok(self.kept(session)?.as_ref() == Some(&self.mark))
    }

    /// Drops the empty schema that keeps the name, in the session's transaction, or sets it aside if something uses it.
    pub fn release(&self, session: &Session) -> Result {
        let name = Session::identifier(&self.schema);
        match session.run(&format!("SET LOCAL lock_timeout = '10s'; SAVEPOINT kept; DROP SCHEMA {name}")) {
            Err(error) if error.code() == "2BP01" => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let aside = format!("idgenctl_left_{}", now.as_micros());
                note(format!("schema {aside} remains: something depends on it, or is in it"));
                let rename = rename(&self.schema, &aside);
                session.run(&format!("ROLLBACK TO kept; {rename}; {}", set_comment(&aside, ""))).map(drop)
            }
            released => released.map(drop),
        }
    }

    /// Gives the closed schema or its copy, which `owner` has restored, the name again, in the session's transaction.
    pub fn give_back(&self, session: &Session, owner: &str) -> Result {
        let kept = self.kept(session)?;
        if kept.is_some() {
            self.release(session)?;
        }
        self.rename_closed(session, &self.schema, kept, owner)
    }

    /// Renames it, in the session's transaction. Its owner may have renamed it, and another role may have taken the name,
    /// but not the OID with which the comment `kept` on the source ends, nor a role of `owner`.
    pub fn rename_closed(&self, session: &Session, name: &str, kept: Option<String>, owner: &str) -> Result {
        session.run(&rename(&self.moving, name))?;
        let oid = kept.as_ref().and_then(|kept| kept.split(' ').nth(5)).unwrap_or_default();
        let sql = "SELECT $2 IN ('', n.oid::text) AND ($3 = '' OR EXISTS (
                       SELECT FROM pg_roles AS r WHERE rolname = $3 AND pg_has_role(r.oid, nspowner, 'MEMBER')))
                   FROM pg_namespace AS n WHERE nspname = $1";
        if session.value(sql, &[name, oid, owner])? == "t" {
            return Ok(());
        }
        let (moving, server) = (&self.moving, session.server());
        let what = format!("{moving} on {server} is not the schema that moves, but of another role");
        refused(what, "Give both their names back, and run --undo or, if the target may mint, --finish.")
    }

    /// Renames the schema so that clients no longer find it, and keeps its name, in the session's transaction.
    pub fn take(&self, session: &Session) -> Result {
        let oid = session.value("SELECT quote_ident($1)::regnamespace::oid", &[&self.schema])?;
        let (away, kept) = (rename(&self.schema, &self.moving), new_schema(session, &self.schema)?);
        let mark = set_comment(&self.schema, &format!("{} {oid}", self.mark));
        session.run(&format!("{away}; {kept}; {mark}")).map(drop)
    }
}

/// A hint for when the schema is gone while a move is not over: its owner can rename or drop it at any time.
pub fn look_for(moving: &str, begun: &Begun) -> String {
    format!(
        "If its owner has renamed the schema there, rename it to {moving}, and run the same command with --undo. If it is \
         gone, run on both servers: {}; DROP SCHEMA {}; then the target has the shard, or no server.",
        begun.remove(),
        Session::identifier(&begun.schema)
    )
}

pub fn shown(there: &[String]) -> String {
    if there.is_empty() { "none of the names".into() } else { there.join(" and ") }
}
