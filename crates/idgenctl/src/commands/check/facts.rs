//! What the check knows about servers, as plain data, so that tests of the rules need no server.

use idgen_ids::shard_set::ShardSet;

use crate::idgen::columns::Column;
use crate::idgen::library::State;
use crate::idgen::preload::Keeper;
use crate::topology::clock::Ahead;
use crate::topology::cluster::Node;

#[derive(Default)]
pub struct Facts {
    pub name: String,
    pub node: Node,
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
    /// Schemas whose move from here, or a standby's primary, has begun and not ended.
    pub moving: Vec<String>,
    pub shards_set: Vec<ShardSetting>,
    pub databases: Vec<Database>,
    /// The shards that the server may mint for.
    pub shards: Option<ShardSet>,
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
}

impl Facts {
    /// What was not seen counts, what has minted, and what could: a tenant may close a database, or drop the extension.
    pub fn has_idgen(&self) -> bool {
        let has = |it: &Database| it.not_seen.is_some() || it.extension.is_some() || !it.columns.is_empty();
        let uses = self.state.as_ref().is_some_and(|state| state.preloaded || state.mark_ms.is_some());
        self.preloads[0] || uses || self.databases.iter().any(has)
    }
}
