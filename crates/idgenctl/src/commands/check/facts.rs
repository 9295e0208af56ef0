//! What the check knows of the servers, as data: the rules need no server.

use idgen_ids::shard_set::ShardSet;

use crate::idgen::columns::Column;
use crate::idgen::library::State;
use crate::idgen::preload::Keeper;
use crate::topology::clock::Ahead;
use crate::topology::cluster::Lineage;

/// A server that has answered.
#[derive(Default)]
pub struct Facts {
    pub name: String,
    pub system: String,
    pub timeline: u32,
    /// What no two servers have in common.
    pub identity: String,
    pub is_standby: bool,
    /// The version of PostgreSQL, such as 150020.
    pub version: i32,
    pub keeper: Keeper,
    pub clock: Ahead,
    /// What the library of idgen says, or why it says nothing.
    pub state: Option<State>,
    pub stateless: String,
    /// Whether the running server has loaded idgen, and whether the next start does.
    pub preloads: [bool; 2],
    pub has_citus: bool,
    pub fsync_off: bool,
    /// By how many seconds the mark is ahead of the server's clock.
    pub mark_ahead_s: Option<f64>,
    pub ids_per_second: Option<f64>,
    /// How many prepared transactions have been there for a while, and for how many seconds the oldest one.
    pub prepared: Option<(u64, f64)>,
    /// `synchronous_standby_names`.
    pub synchronous: String,
    pub receivers: Vec<Receiver>,
    pub port: u32,
    /// The name under which the server receives WAL if it is a standby, and from which port it does.
    pub known_as: String,
    pub sender_port: Option<u32>,
    /// `idgen.shard` of the configuration, the roles and the databases.
    pub shards_set: Vec<ShardSetting>,
    pub databases: Vec<Database>,
}

/// Who gets WAL from a server: standbys, and others that flush what they get.
pub struct Receiver {
    pub name: String,
    pub address: String,
    pub is_standby: bool,
}

/// A place where `idgen.shard` is set. An empty name stands for all of them.
pub struct ShardSetting {
    pub database: String,
    pub role: String,
    pub shard: i32,
}

/// A database, and what is in it if it can be looked at.
#[derive(Default)]
pub struct Database {
    pub name: String,
    pub not_seen: Option<String>,
    /// The version of the extension.
    pub extension: Option<String>,
    /// The columns whose default mints.
    pub columns: Vec<Column>,
    /// Which privileges owners of such columns lack.
    pub missing_rights: Vec<String>,
    pub has_portable: bool,
    /// The schemas whose move from here has begun and not ended.
    pub moving: Vec<String>,
}

impl Facts {
    /// What shows to which cluster it belongs.
    pub fn lineage(&self) -> Lineage<'_> {
        Lineage { system: &self.system, timeline: self.timeline, is_standby: self.is_standby }
    }

    /// The shards that the server may mint for. Beside Citus, an empty list names none.
    pub fn shards(&self) -> Option<ShardSet> {
        let list = self.state.as_ref()?.allowed_shards.as_ref()?;
        if self.has_citus && list.trim().is_empty() {
            return Some(ShardSet::NONE);
        }
        ShardSet::parse(list).ok()
    }

    /// Whether a database has idgen.
    pub fn has_idgen(&self) -> bool {
        self.databases.iter().any(|inside| inside.extension.is_some() || !inside.columns.is_empty())
    }
}
