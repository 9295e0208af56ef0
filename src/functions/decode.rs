//! Taking ids apart, and building them from parts.

use pgrx::pg_extern;

use crate::epoch::Timestamptz;
use crate::error::{Error, or_raise};
use crate::layout::{self, Sequence, Shard, decompose};
use crate::pg::Row;
use crate::settings;

#[pg_extern(sql = false)]
fn shard_of(id: i64) -> i32 {
    decompose(id).shard.into()
}

#[pg_extern(sql = false)]
fn snowflake_decode(id: i64) -> Row<3> {
    let parts = decompose(id);
    let created_at = or_raise(settings::epoch()).timestamp_of(parts.tick);
    Row([
        Some(created_at.into()),
        Some(i32::from(parts.shard).into()),
        Some(i32::from(parts.sequence).into()),
    ])
}

#[pg_extern(sql = false)]
fn snowflake_make_id(ts: Timestamptz, shard: i32, sequence: i32) -> i64 {
    or_raise(make_id(ts, shard, sequence))
}

fn make_id(ts: Timestamptz, shard: i32, sequence: i32) -> Result<i64, Error> {
    let (shard, sequence) = (Shard::try_from(shard)?, Sequence::try_from(sequence)?);
    let tick = settings::epoch()?.tick_of(ts).ok_or(Error::Timestamp)?;
    Ok(layout::compose(layout::position(tick, sequence), shard)?)
}
