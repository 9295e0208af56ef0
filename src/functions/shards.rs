//! Which columns mint for which shard.

use idgen_core::tree;
use pgrx::pg_extern;

// The text is read as bytes, because it need not be valid UTF-8 in a database with another encoding.
#[pg_extern(sql = false)]
fn idgen_has_integer(tree: &[u8], number: i32) -> bool {
    tree::has_integer(tree, number)
}
