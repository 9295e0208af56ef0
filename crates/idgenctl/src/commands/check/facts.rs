//! What the check knows about servers, as plain data, so that tests of the rules need no server.

use std::cell::OnceCell;

use idgen_ids::shard_set::ShardSet;

use crate::idgen::columns::Column;
use crate::idgen::library::State;
use crate::idgen::preload::Keeper;
use crate::topology::clock::Ahead;

#[derive(Default)]
pub struct Facts {
    pub name: String,
    pub system: String,
    pub timeline: u32,
    /// Unique to a running server.
    pub identity: String,
    pub is_standby: bool,
    /// PostgreSQL's version, such as 150020.
    pub version: i32,
    pub keeper: Keeper,
    pub clock: Ahead,
    pub state: Option<State>,
    /// Why there is no state.
    pub stateless: String,
    /// Whether the running server has preloaded idgen, and whether the next start will.
    pub preloads: [bool; 2],
    pub fsync_off: bool,
    /// How far the mark is ahead of the server's clock.
    pub mark_ahead_s: Option<f64>,
    pub ids_per_second: Option<f64>,
    /// The number of old prepared transactions, and the age of the oldest in seconds.
    pub prepared: Option<(u64, f64)>,
    /// `synchronous_standby_names`.
    pub synchronous: String,
    pub receivers: Vec<Receiver>,
    pub port: u32,
    /// The name under which the server receives WAL, or would as a standby, and the sender's port.
    pub known_as: String,
    pub sender_port: Option<u32>,
    pub shards_set: Vec<ShardSetting>,
    pub databases: Vec<Database>,
    /// See [`Facts::shards`].
    pub shards: OnceCell<Option<ShardSet>>,
}

/// A standby, or another program that receives WAL.
#[derive(Default)]
pub struct Receiver {
    pub name: String,
    pub address: String,
    /// Whether it reports that it replays, and that it flushes. Standbys may be set to report nothing.
    pub is_standby: bool,
    pub flushes: bool,
}

/// A setting of `idgen.shard`. An empty name stands for all.
pub struct ShardSetting {
    pub database: String,
    pub role: String,
    /// As it was written.
    pub shard: String,
}

/// A database, with its contents unless it cannot be examined.
#[derive(Debug, Default)]
pub struct Database {
    pub name: String,
    pub not_seen: Option<String>,
    /// The version of the extension.
    pub extension: Option<String>,
    pub columns: Vec<Column>,
    /// The shards that the portable edition mints for there; none if it does not.
    pub portable: Option<ShardSet>,
    /// Schemas whose move from here has begun and not ended.
    pub moving: Vec<String>,
}

impl Facts {
    /// The shards that the server may mint for.
    pub fn shards(&self) -> Option<ShardSet> {
        let parse = || ShardSet::parse(self.state.as_ref()?.allowed_shards.as_ref()?).ok();
        // A hostile server may send a list that takes long to parse.
        *self.shards.get_or_init(parse)
    }

    /// What was not seen counts: a tenant may close a database.
    pub fn has_idgen(&self) -> bool {
        let has = |inside: &Database| inside.extension.is_some() || !inside.columns.is_empty();
        self.databases.iter().any(|inside| inside.not_seen.is_some() || has(inside))
    }
}
