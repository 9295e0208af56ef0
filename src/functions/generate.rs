//! Minting.

use pgrx::iter::SetOfIterator;
use pgrx::pg_extern;

use crate::error::{Error, or_raise};
use crate::layout::Shard;
use crate::{mint, settings};

fn shard_argument(shard: Option<i32>) -> Result<Shard, Error> {
    Ok(Shard::try_from(shard.ok_or(Error::Null("shard"))?)?)
}

#[pg_extern(sql = false)]
fn snowflake_next_id(shard: Option<i32>) -> i64 {
    or_raise(shard_argument(shard).and_then(mint::next_id))
}

#[pg_extern(sql = false)]
fn snowflake_next_id_of_session() -> i64 {
    or_raise(settings::shard().and_then(mint::next_id))
}

#[pg_extern(sql = false)]
fn snowflake_next_ids(shard: Option<i32>, count: Option<i32>) -> SetOfIterator<'static, i64> {
    let shard = or_raise(shard_argument(shard));
    let count = or_raise(count.ok_or(Error::Null("count")));
    let count = or_raise(u64::try_from(count).map_err(|_| Error::NegativeCount(count)));
    let runs = or_raise(mint::next_ids(shard, count));
    let positions = runs.into_iter().flat_map(|run| run.start..run.end);
    SetOfIterator::new(positions.map(move |position| or_raise(mint::id_at(position, shard))))
}

#[pg_extern(sql = false)]
fn snowflake_last_id() -> i64 {
    or_raise(mint::last_id())
}

#[pg_extern(sql = false)]
fn snowflake_advance(shard: Option<i32>, past: Option<i64>) -> i64 {
    let shard = or_raise(shard_argument(shard));
    or_raise(past.ok_or(Error::Null("past")).and_then(|past| mint::advance(shard, past)))
}
