//! What superusers own: new schemas, and the marker of a move, which outlives a run of the program.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::connection::session::Session;
use crate::terminal::error::Result;

/// The prefix of markers. A marker is a setting of all roles on the source and the target, from the beginning of a move to
/// its end: every database shows it, and tenants, who may change the schema that moves, can neither forge nor remove it.
const MARKER: &str = "idgenctl.move_";

/// Statements that create a schema in which other roles only get USAGE, whatever the default privileges are.
pub fn new_schema(session: &Session, schema: &str) -> Result<String> {
    let name = Session::identifier(schema);
    let others = session.value(
        "SELECT concat_ws(', ', 'PUBLIC', string_agg(DISTINCT quote_ident(rolname), ', '))
         FROM pg_default_acl, aclexplode(defaclacl) JOIN pg_roles AS r ON r.oid = grantee
         WHERE defaclrole = (SELECT oid FROM pg_roles WHERE rolname = current_user)
           AND defaclobjtype = 'n' AND grantee <> defaclrole",
        &[],
    )?;
    let revoke = format!("REVOKE ALL ON SCHEMA {name} FROM {others}");
    Ok(format!("CREATE SCHEMA {name}; {revoke}; GRANT USAGE ON SCHEMA {name} TO PUBLIC"))
}

/// The empty schemas of superusers that keep the name of a schema in a session's database, with their comments.
pub fn kept(session: &Session) -> Result<HashMap<String, String>> {
    let rows = session.query(
        "SELECT nspname, comment FROM pg_namespace AS n JOIN pg_roles AS r ON r.oid = nspowner
              CROSS JOIN obj_description(n.oid, 'pg_namespace') AS comment
         WHERE rolsuper AND starts_with(comment, 'idgenctl move ')",
        &[],
    )?;
    Ok(rows.iter().map(|row| (row.string(0), row.string(1))).collect())
}

/// A move that has begun and not ended, as its marker describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// Part of the marker's name.
    #[serde(skip)]
    pub shard: u16,
    /// The schema's name before the move.
    pub schema: String,
    /// The system identifiers of the source and the target, each with the OID of its database.
    pub from: String,
    pub to: String,
    /// The role that restores the schema on the target.
    pub owner: String,
    /// Whether the target may mint.
    pub opened: bool,
    /// Whether this is the marker on the target.
    pub on_target: bool,
    /// A random number for each of both: no other server knows it before the server has the marker.
    pub token: u64,
}

impl Begun {
    /// The moves from a session's server, and to it.
    pub fn all(session: &Session) -> Result<Vec<Begun>> {
        let rows = session.query(
            "SELECT substring(entry FROM '^[a-z._]+([0-9]+)='), substring(entry FROM '=(.*)')
             FROM pg_db_role_setting CROSS JOIN unnest(setconfig) AS entry
             WHERE setdatabase = 0 AND setrole = 0 AND octet_length(entry) < 1000 AND starts_with(entry, $1) ORDER BY entry",
            &[MARKER],
        )?;
        // A hostile server sends longer ones.
        let begun = rows.iter().filter(|row| row.string(1).len() < 1000).filter_map(|row| {
            let begun: Begun = serde_json::from_str(&row.string(1)).ok()?;
            Some(Begun { shard: row.number(0)?, ..begun })
        });
        Ok(begun.collect())
    }

    /// The marker, of this side, of the move of a schema from a database, as `from` names it.
    pub fn of(session: &Session, schema: &str, from: &str, on_target: bool) -> Result<Option<Begun>> {
        let mut all = Begun::all(session)?.into_iter();
        Ok(all.find(|it| it.on_target == on_target && it.schema == schema && it.from == from))
    }

    /// The statement that sets the marker, and that which removes it.
    pub fn write(&self) -> String {
        let text = serde_json::to_string(self).unwrap_or_default();
        format!("ALTER ROLE ALL SET {MARKER}{} = {}", self.shard, Session::literal(&text))
    }

    pub fn remove(&self) -> String {
        format!("ALTER ROLE ALL RESET {MARKER}{}", self.shard)
    }
}
