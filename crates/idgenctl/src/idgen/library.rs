//! The library of idgen on a server. It is asked itself: what the objects of a database say, their owners may have written.

use idgen_ids::id::Shard;
use serde::Deserialize;

use crate::connection::session::Session;
use crate::terminal::error::{Error, Result};

/// What the read-only setting `idgen.state` shows: on standbys too, and in databases without the extension. Times are in
/// milliseconds since 1970. What cannot be told is none.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct State {
    pub version: String,
    pub preloaded: bool,
    pub epoch_ms: Option<i64>,
    pub mark_ms: Option<i64>,
    /// As the configuration in effect has it; empty for all shards.
    pub allowed_shards: Option<String>,
    pub closed_shards: Option<String>,
    pub max_ahead_ms: Option<i64>,
    /// Ids of both layouts since `since_ms`.
    pub ids: Option<i64>,
    pub since_ms: Option<i64>,
    /// Whether the server mints. A standby never does.
    pub mints: bool,
    pub warning: Option<Warning>,
    /// Why something cannot be told.
    pub error: Option<Failure>,
}

/// The worst problem of a server, as its view `idgen_status` has it.
#[derive(Debug, Clone, Deserialize)]
pub struct Warning {
    /// A word that never changes.
    pub code: String,
    /// `error` or `warning`.
    pub severity: String,
    pub message: String,
    pub hint: Option<String>,
}

/// Why the library cannot tell its state.
#[derive(Debug, Clone, Deserialize)]
pub struct Failure {
    pub sqlstate: String,
    pub message: String,
}

/// The state of a server. None if its library is of an older version.
pub fn state(session: &Session) -> Result<Option<State>> {
    session.run("LOAD 'idgen'")?;
    // A library of any version reserves its prefix: nobody else has defined a setting of this name.
    let rows = session.run("SELECT current_setting('idgen.state', true)")?;
    let Some(text) = rows.row(0).text(0) else { return Ok(None) };
    serde_json::from_str(&text).map(Some).map_err(|error| {
        Error::refused(
            format!("{} shows no valid idgen.state: {error}", session.server()),
            "Use an idgenctl of the version that the server has.",
        )
    })
}

/// The state of a server that must have a library of this version.
pub fn needed_state(session: &Session) -> Result<State> {
    state(session)?.ok_or_else(|| {
        Error::refused(
            format!("{} has a library of idgen that is older than 0.2", session.server()),
            "Install the files of this version there, and restart the server.",
        )
    })
}

/// Functions of the library, which the session defines for itself. Only primaries can do that.
pub struct Library<'a>(&'a Session);

impl Library<'_> {
    /// The library, by a session that is in no transaction.
    pub fn of(session: &Session) -> Result<Library<'_>> {
        needed_state(session).map(|_| Library(session))
    }

    /// Closes a shard: no session mints for it any more. Gives the first id that this server will not mint for it.
    pub fn close(&self, shard: Shard) -> Result<i64> {
        self.id("snowflake_close_shard", "integer", &number(shard))
    }

    /// Opens a shard, if it was closed.
    pub fn reopen(&self, shard: Shard) -> Result {
        self.call("snowflake_reopen_shard", "integer", "boolean", &number(shard)).map(drop)
    }

    /// Makes all later ids of a shard greater than one.
    pub fn advance(&self, shard: Shard, past: i64) -> Result<i64> {
        self.id("snowflake_advance", "integer, bigint", &format!("{}, {past}", number(shard)))
    }

    fn id(&self, function: &str, types: &str, arguments: &str) -> Result<i64> {
        let answer = self.call(function, types, "bigint", arguments)?;
        let what = format!("{} has given no id: \"{answer}\"", self.0.server());
        answer.parse().map_err(|_| Error::refused(what, "Is that PostgreSQL?"))
    }

    /// Calls a function. What it does to the library stays when the transaction is rolled back, as with a sequence, and
    /// nothing is left of its definition. Others cannot create objects in this `pg_temp`. The setting of replicas keeps
    /// event triggers from seeing the definition, and the owner of the database decides nothing about the wait.
    fn call(&self, function: &str, types: &str, returns: &str, arguments: &str) -> Result<String> {
        let result = self.0.run(&format!(
            "BEGIN; SET LOCAL session_replication_role = replica; SET LOCAL idgen.max_wait = 5000;
             CREATE FUNCTION pg_temp.{function}({types}) RETURNS {returns} LANGUAGE c AS 'idgen', '{function}_wrapper';
             SET LOCAL session_replication_role = origin;
             SELECT pg_temp.{function}({arguments})"
        ));
        let undone = self.0.run("ROLLBACK");
        let answer = result?.row(0).string(0);
        undone.map(|_| answer)
    }
}

fn number(shard: Shard) -> String {
    i32::from(shard).to_string()
}
