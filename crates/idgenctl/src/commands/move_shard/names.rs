//! The names that the schema has during a move, and the empty schemas of this program.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::connection::session::Session;
use crate::terminal::error::Result;
use crate::terminal::output::note;

/// The statement that gives a schema a comment. An empty one is none.
pub fn set_comment(schema: &str, comment: &str) -> String {
    format!("COMMENT ON SCHEMA {} IS {}", Session::identifier(schema), Session::literal(comment))
}

/// The statement that renames a schema.
pub fn rename(from: &str, to: &str) -> String {
    format!("ALTER SCHEMA {} RENAME TO {}", Session::identifier(from), Session::identifier(to))
}

/// The comment of an empty schema that keeps a name.
const KEPT: &str = "idgenctl keeps the name of a schema that has moved";

/// The statements that take the name and the comment from an empty schema of this program. Everybody may create a temporary
/// view of its name, and it cannot be dropped as long as there is one.
fn set_aside(schema: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let aside = format!("idgenctl_left_{}", now.as_micros());
    format!("{}; {}", rename(schema, &aside), set_comment(&aside, ""))
}

/// Drops an empty schema of this program, or sets it aside.
pub fn discard(session: &Session, schema: &str) -> Result {
    session.run(&format!("DROP SCHEMA {}", Session::identifier(schema))).map(drop).or_else(|error| {
        note(format!("{error}. It is left as a schema whose name begins with idgenctl_left"));
        session.run(&set_aside(schema)).map(drop)
    })
}

/// The names of the schema.
pub struct Names {
    pub schema: String,
    pub moving: String,
    pub moved: String,
}

impl Names {
    pub fn has(&self, schema: &str) -> bool {
        [&self.schema, &self.moving, &self.moved].into_iter().any(|name| name == schema)
    }

    /// Which of them there are in a database, but for one that is only kept.
    pub fn on(&self, session: &Session) -> Result<Vec<String>> {
        let rows = session.query(
            "SELECT nspname FROM pg_namespace WHERE nspname IN ($1, $2, $3) ORDER BY nspname",
            &[&self.schema, &self.moving, &self.moved],
        )?;
        let is_kept = self.is_kept(session)?;
        Ok(rows.iter().map(|row| row.string(0)).filter(|name| !(is_kept && *name == self.schema)).collect())
    }

    /// Whether an empty schema of a superuser keeps the name in a database.
    pub fn is_kept(&self, session: &Session) -> Result<bool> {
        let rows = session.query(
            "SELECT FROM pg_namespace AS n JOIN pg_roles AS r ON r.oid = nspowner
             WHERE nspname = $1 AND rolsuper AND obj_description(n.oid, 'pg_namespace') = $2",
            &[&self.schema, KEPT],
        )?;
        Ok(rows.len() > 0)
    }

    /// Gives the schema, which is called `SCHEMA_moving`, its name again, in the transaction of a session.
    pub fn give_back(&self, session: &Session) -> Result {
        session.run("SAVEPOINT kept")?;
        let name = Session::identifier(&self.schema);
        if self.is_kept(session)? && session.run(&format!("DROP SCHEMA {name}")).is_err() {
            session.run(&format!("ROLLBACK TO kept; {}", set_aside(&self.schema)))?;
            note(
                "an empty schema is left whose name begins with idgenctl_left, because something depends on it",
            );
        }
        session.run(&rename(&self.moving, &self.schema)).map(drop)
    }

    /// Takes it away, and keeps it, in the transaction of a session. Nobody gets a right there but to find that it is empty,
    /// whatever the default privileges are.
    pub fn take(&self, session: &Session) -> Result {
        let (away, name) = (rename(&self.schema, &self.moving), Session::identifier(&self.schema));
        session.run(&format!("{away}; CREATE SCHEMA {name}; {}", set_comment(&self.schema, KEPT)))?;
        let given = session.query(
            "SELECT format('REVOKE ALL ON SCHEMA %I FROM %I', nspname, rolname)
             FROM pg_namespace, aclexplode(nspacl) AS given JOIN pg_roles AS r ON r.oid = grantee
             WHERE nspname = $1 AND grantee <> nspowner",
            &[&self.schema],
        )?;
        given.iter().try_for_each(|row| session.run(&row.string(0)).map(drop))?;
        let rights =
            format!("REVOKE ALL ON SCHEMA {name} FROM PUBLIC; GRANT USAGE ON SCHEMA {name} TO PUBLIC");
        session.run(&rights).map(drop)
    }
}

/// Which of the names there are, for messages.
pub fn shown(there: &[String]) -> String {
    if there.is_empty() { "none of the names".into() } else { there.join(" and ") }
}
