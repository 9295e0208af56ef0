//! What moves leave in databases.

use serde::{Deserialize, Serialize};

use crate::connection::session::Session;
use crate::terminal::error::Result;

/// The beginning of the names of markers. A marker is an empty schema in the database of the source, from the beginning of a
/// move to its end. It belongs to a superuser, so no tenant can forge, change or drop it, whatever happens to the schema
/// that moves, to its name and to its comment.
const MARKER: &str = "idgenctl_move_";

/// A move that has begun and not ended: what the marker in the database of its source says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// The shard, which is in the name of the marker.
    #[serde(skip)]
    pub shard: u16,
    /// The schema, by the name that it had before.
    pub schema: String,
    /// The system identifier of the target.
    pub to: String,
    /// The role that restores the schema on the target.
    pub owner: String,
    /// Whether the target may mint.
    pub opened: bool,
}

impl Begun {
    /// The moves from the database of a session.
    pub fn all(session: &Session) -> Result<Vec<Begun>> {
        let rows = session.query(
            "SELECT substr(nspname, length($1) + 1), obj_description(n.oid, 'pg_namespace')
             FROM pg_namespace AS n JOIN pg_roles AS r ON r.oid = nspowner
             WHERE starts_with(nspname, $1) AND rolsuper ORDER BY nspname",
            &[MARKER],
        )?;
        let begun = rows.iter().filter_map(|row| {
            let begun: Begun = serde_json::from_str(&row.string(1)).ok()?;
            Some(Begun { shard: row.number(0)?, ..begun })
        });
        Ok(begun.collect())
    }

    /// The move of a schema from there.
    pub fn of(session: &Session, schema: &str) -> Result<Option<Begun>> {
        Ok(Begun::all(session)?.into_iter().find(|begun| begun.schema == schema))
    }

    /// The name of the marker, as SQL writes it.
    pub fn marker(&self) -> String {
        format!("{MARKER}{}", self.shard)
    }

    /// The statement that writes it down.
    pub fn write(&self) -> String {
        let text = serde_json::to_string(self).unwrap_or_default();
        format!("COMMENT ON SCHEMA {} IS {}", self.marker(), Session::literal(&text))
    }
}
