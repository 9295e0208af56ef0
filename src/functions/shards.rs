//! Which columns mint for which shard.

use idgen_ids::Shard;
use pg_formats::tree;
use pgrx::pg_extern;

use crate::settings;

// The text is read as bytes, because it need not be valid UTF-8 in a database with another encoding.
#[pg_extern(sql = false)]
fn idgen_has_integer(tree: &[u8], number: i32) -> bool {
    tree::has_integer(tree, number)
}

#[pg_extern(sql = false)]
fn idgen_allows(shard: i32) -> bool {
    Shard::try_from(shard).is_ok_and(settings::allows)
}
