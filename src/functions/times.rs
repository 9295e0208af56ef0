//! Conversion between ids and timestamps.

use idgen_ids::decode;
use idgen_ids::epoch::{Timestamptz, timestamp_since};
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
    Ok(settings::epoch()?.min_id_of(ts).ok_or(Error::Timestamp)?)
}

#[pg_extern(sql = false)]
fn snowflake_max_id(ts: Timestamptz) -> Result<i64, ErrorReport> {
    Ok(settings::epoch()?.max_id_of(ts))
}
