//! Between ids and timestamps.

use idgen_core::epoch::{INFINITY, MINUS_INFINITY, Timestamptz, timestamp_since};
use idgen_core::id::MAX_TICK;
use idgen_core::{Tick, decode, max_id, min_id};
use pgrx::pg_extern;
use pgrx::pg_sys::panic::ErrorReport;

use crate::error::Error;
use crate::pg::call::{Call, hot_entry};
use crate::settings;

hot_entry!(snowflake_time_wrapper, |call: Call| time(call).ok(), time);

fn time(call: Call) -> Result<Timestamptz, Error> {
    let id = call.int8(0).ok_or(Error::Null("id"))?;
    Ok(settings::epoch()?.timestamp_of(decode(id).tick))
}

hot_entry!(snowflake_time_since_wrapper, |call: Call| time_since(call).ok(), time_since);

fn time_since(call: Call) -> Result<Timestamptz, Error> {
    let id = call.int8(0).ok_or(Error::Null("id"))?;
    let epoch = call.int8(1).ok_or(Error::Null("epoch"))?;
    timestamp_since(epoch, decode(id).tick).ok_or(Error::EpochArgument)
}

#[pg_extern(sql = false)]
fn snowflake_min_id(ts: Timestamptz) -> Result<i64, ErrorReport> {
    Ok(min_id(if ts == MINUS_INFINITY { 0 } else { tick_at(ts)? }))
}

#[pg_extern(sql = false)]
fn snowflake_max_id(ts: Timestamptz) -> Result<i64, ErrorReport> {
    Ok(max_id(if ts == INFINITY { MAX_TICK } else { tick_at(ts)? }))
}

fn tick_at(ts: Timestamptz) -> Result<Tick, Error> {
    settings::epoch()?.tick_of(ts).ok_or(Error::Timestamp)
}
