//! The portable edition, which keeps its state in the database, and which the library does not know of.

use idgen_ids::Shard;
use idgen_ids::shard_set::ShardSet;

use crate::connection::session::Session;
use crate::terminal::error::Result;

/// The shards that the portable edition mints for in a session's database, unless the extension has taken its place.
pub fn shards(session: &Session) -> Result<ShardSet> {
    let registers = session.run(
        "SELECT substring(relname FROM '[0-9]+') FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace
         WHERE nspname = 'idgen_portable' AND relkind = 'S' AND relname ~ '^(shard|js)_[0-9]{1,4}$'
           AND EXISTS (SELECT FROM pg_proc WHERE starts_with(proname, 'snowflake_next_id') AND prolang <> 13)",
    )?;
    let shards = registers.iter().filter_map(|row| Shard::try_from(row.number::<i32>(0)?).ok());
    Ok(shards.fold(ShardSet::NONE, ShardSet::with))
}
