//! The library of idgen on a server, which is asked directly: objects in databases may be altered by their owners.

use idgen_ids::id::Shard;
use serde::Deserialize;

use crate::connection::session::Session;
use crate::terminal::error::{Error, Result};

/// The contents of the read-only setting `idgen.state`, which also standbys and databases without the extension have.
/// Times are in milliseconds since 1970. What is not known is none.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct State {
    pub version: String,
    pub preloaded: bool,
    pub epoch_ms: Option<i64>,
    pub mark_ms: Option<i64>,
    /// The setting in effect; empty for all shards, and none if it lets the server mint for no shard.
    pub allowed_shards: Option<String>,
    pub closed_shards: Option<String>,
    pub max_ahead_ms: Option<i64>,
    /// Ids of both layouts since `since_ms`.
    pub ids: Option<i64>,
    pub since_ms: Option<i64>,
    /// Always false on a standby.
    pub mints: bool,
    pub warning: Option<Warning>,
    pub error: Option<Failure>,
}

/// The worst problem of a server, as in its view `idgen_status`.
#[derive(Debug, Clone, Deserialize)]
pub struct Warning {
    /// Stable across versions.
    pub code: String,
    /// `error` or `warning`.
    pub severity: String,
    pub message: String,
    pub hint: Option<String>,
}

/// Why part of the state is not known.
#[derive(Debug, Clone, Deserialize)]
pub struct Failure {
    pub sqlstate: String,
    pub message: String,
}

/// More than any list of shards takes. A longer one is from a hostile server, and would take long to read.
const MOST_BYTES: usize = 1 << 17;

/// The state of a server; none if its library is older than 0.2.
pub fn state(session: &Session) -> Result<Option<State>> {
    session.run("LOAD 'idgen'")?;
    // Every version of the library reserves its prefix, so no one else has defined this setting.
    let rows = session.run("SELECT current_setting('idgen.state', true)")?;
    let Some(text) = rows.row(0).text(0) else { return Ok(None) };
    let state = match text.len() {
        ..=MOST_BYTES => serde_json::from_str(&text).map(Some).map_err(|error| error.to_string()),
        bytes => Err(format!("it has {bytes} bytes")),
    };
    state.map_err(|why| {
        Error::refused(
            format!("{} has an idgen.state that is not valid: {why}", session.server()),
            "Use idgenctl of the version that the server has.",
        )
    })
}

/// Like [`state`], but an older library is an error.
pub fn needed_state(session: &Session) -> Result<State> {
    state(session)?.ok_or_else(|| {
        Error::refused(
            format!("{} has a library of idgen that is older than 0.2", session.server()),
            "Install the files of this version there, and restart the server.",
        )
    })
}

/// Functions of the library, which the session defines for itself. That takes a primary.
pub struct Library<'a>(&'a Session);

impl Library<'_> {
    /// The session must not be in a transaction.
    pub fn of(session: &Session) -> Result<Library<'_>> {
        needed_state(session).map(|_| Library(session))
    }

    /// Closes a shard, so that no session mints for it any more. Returns the first id that this server will not mint.
    pub fn close(&self, shard: Shard) -> Result<i64> {
        self.id("snowflake_close_shard", "integer", &number(shard))
    }

    /// Opens a shard, if it is closed.
    pub fn reopen(&self, shard: Shard) -> Result {
        self.call("snowflake_reopen_shard", "integer", "boolean", &number(shard)).map(drop)
    }

    /// Makes all later ids of a shard greater than one.
    pub fn advance(&self, shard: Shard, past: i64) -> Result<i64> {
        self.id("snowflake_advance", "integer, bigint", &format!("{}, {past}", number(shard)))
    }

    fn id(&self, function: &str, types: &str, arguments: &str) -> Result<i64> {
        let answer = self.call(function, types, "bigint", arguments)?.parse();
        answer
            .map_err(|_| Error::refused(format!("{} returned no id", self.0.server()), "Is that PostgreSQL?"))
    }

    /// Calls a function. Its effect on the library survives the rollback, as with a sequence, and its definition does
    /// not. session_replication_role keeps event triggers from firing, and max_wait overrides that of the database.
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
