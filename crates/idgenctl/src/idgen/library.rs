//! The library of idgen on a server, which is asked directly: objects in databases may be altered by their owners.

use idgen_ids::id::Shard;
use idgen_ids::shard_set::ShardSet;
use serde::Deserialize;

use crate::connection::session::Session;
use crate::terminal::error::{Error, Result};

/// The contents of the read-only setting `idgen.state`, which also standbys and databases without the extension have.
/// Times are in milliseconds since 1970. What is not known is none.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct State {
    pub version: String,
    pub system_identifier: Option<String>,
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

impl State {
    pub fn shards(&self) -> Option<ShardSet> {
        ShardSet::parse(self.allowed_shards.as_ref()?).ok()
    }
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

/// The state of a server.
pub fn state(session: &Session) -> Result<State> {
    // A hostile primary may set dynamic_library_path on its standby, and replace functions there, but SHOW calls none.
    session.run("LOAD 'idgen'").or_else(|_| session.run("LOAD '$libdir/idgen'"))?;
    let other = |why: String| {
        let what = format!("the library of idgen on {} {why}", session.server());
        Error::refused(what, "Use idgenctl of its version, or install this one there, and restart it.")
    };
    // Every version of the library reserves its prefix, so no one else has defined this setting.
    match session.run("SHOW idgen.state") {
        Err(error) if error.code() == "42704" => Err(other("is older than 0.2".into())),
        shown => match shown?.row(0).string(0) {
            text if text.len() > MOST_BYTES => Err(other(format!("has a state of {} bytes", text.len()))),
            text => serde_json::from_str(&text).map_err(|why| other(format!("has an invalid state: {why}"))),
        },
    }
}

/// Closes a shard, so that no session mints for it any more. Returns the first id that this server will not mint.
pub fn close(session: &Session, shard: Shard) -> Result<i64> {
    id(session, "snowflake_close_shard", "integer", &i32::from(shard).to_string())
}

/// Opens a shard, if it is closed.
pub fn reopen(session: &Session, shard: Shard) -> Result {
    let shard = i32::from(shard).to_string();
    call(session, "snowflake_reopen_shard", "integer", "boolean", &shard).map(drop)
}

/// Makes all later ids of a shard greater than one.
pub fn advance(session: &Session, shard: Shard, past: i64) -> Result<i64> {
    id(session, "snowflake_advance", "integer, bigint", &format!("{}, {past}", i32::from(shard)))
}

fn id(session: &Session, function: &str, types: &str, arguments: &str) -> Result<i64> {
    let answer = call(session, function, types, "bigint", arguments)?.parse();
    answer.map_err(|_| Error::refused(format!("{} returned no id", session.server()), "Is that PostgreSQL?"))
}

/// Calls a function that a session on a primary, outside a transaction, defines for itself. Its effect survives the
/// rollback, as with a sequence. session_replication_role keeps event triggers from firing.
fn call(session: &Session, function: &str, types: &str, returns: &str, arguments: &str) -> Result<String> {
    let result = session.run(&format!(
        "BEGIN; SET LOCAL session_replication_role = replica; SET LOCAL idgen.max_wait = 5000;
         CREATE FUNCTION pg_temp.{function}({types}) RETURNS {returns} LANGUAGE c AS 'idgen', '{function}_wrapper';
         SET LOCAL session_replication_role = origin;
         SELECT pg_temp.{function}({arguments})"
    ));
    let undone = session.run("ROLLBACK");
    let answer = result?.row(0).string(0);
    undone.map(|_| answer)
}
