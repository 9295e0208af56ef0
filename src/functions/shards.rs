//! Which columns mint for which shard.

use idgen_core::tree;
use pgrx::pg_extern;

// The text is taken as bytes, for that of a database with another encoding is no `str`.
#[pg_extern(sql = false)]
fn idgen_has_integer(tree: &[u8], number: i32) -> bool {
    tree::has_integer(tree, number)
}
