//! Decoding ids, and building them from parts.

use idgen_ids::epoch::Timestamptz;
use idgen_ids::{Sequence, Shard, decode, make_id, shard_of};
use pgrx::pg_extern;
use pgrx::pg_sys::panic::ErrorReport;

use crate::error::Error;
use crate::pg::call::{Call, Column, hot_entry};
use crate::settings;

hot_entry!(shard_of_wrapper, |call: Call| Some(i32::from(shard_of(call.int8(0)?))), |_| Err::<i32, _>(
    Error::Null("id")
));

hot_entry!(snowflake_decode_wrapper, |call: Call| call.row(columns(call.int8(0)?).ok()?), |call: Call| {
    columns(call.int8(0).ok_or(Error::Null("id"))?).map(|columns| call.formed_row(columns))
});

#[inline]
fn columns(id: i64) -> Result<[Column; 3], Error> {
    let parts = decode(id);
    let created_at = settings::epoch()?.timestamp_of(parts.tick);
    Ok([Column::Int8(created_at), Column::Int4(parts.shard.into()), Column::Int4(parts.sequence.into())])
}

#[pg_extern(sql = false)]
fn snowflake_make_id(ts: Timestamptz, shard: i32, sequence: i32) -> Result<i64, ErrorReport> {
    let shard = Shard::try_from(shard).map_err(Error::from)?;
    let sequence = Sequence::try_from(sequence).map_err(Error::from)?;
    Ok(make_id(settings::epoch()?, ts, shard, sequence).ok_or(Error::Timestamp)?)
}
