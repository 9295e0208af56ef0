//! Taking ids apart, and building them from parts.

use pgrx::pg_extern;

use crate::epoch::Timestamptz;
use crate::error::{Error, or_raise};
use crate::layout::{self, Sequence, Shard, decompose};
use crate::pg::{Call, Column, hot_entry};
use crate::settings;

hot_entry!(
    shard_of_wrapper,
    |call: Call| Some(i32::from(decompose(call.int8(0)?).shard)),
    |_| Err::<i32, _>(Error::Null("id"))
);

hot_entry!(snowflake_decode_wrapper, |call: Call| call.row(decode(call.int8(0)?).ok()?), |call: Call| {
    decode(call.int8(0).ok_or(Error::Null("id"))?).map(|columns| call.first_row(columns))
});

#[inline]
fn decode(id: i64) -> Result<[Column; 3], Error> {
    let parts = decompose(id);
    let created_at = settings::epoch()?.timestamp_of(parts.tick);
    Ok([Column::Int8(created_at), Column::Int4(parts.shard.into()), Column::Int4(parts.sequence.into())])
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
