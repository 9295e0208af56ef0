//! Between ids and timestamps.

use pgrx::pg_extern;

use crate::epoch::{INFINITY, MINUS_INFINITY, Timestamptz, timestamp_since};
use crate::error::{Error, or_raise};
use crate::layout::{MAX_TICK, Tick, decompose, max_id, min_id};
use crate::settings;

#[pg_extern(sql = false)]
fn snowflake_time(id: i64) -> Timestamptz {
    or_raise(settings::epoch()).timestamp_of(decompose(id).tick)
}

#[pg_extern(sql = false)]
fn snowflake_time_since(id: i64, epoch: Timestamptz) -> Timestamptz {
    or_raise(timestamp_since(epoch, decompose(id).tick).ok_or(Error::EpochArgument))
}

#[pg_extern(sql = false)]
fn snowflake_min_id(ts: Timestamptz) -> i64 {
    min_id(if ts == MINUS_INFINITY { 0 } else { or_raise(tick_at(ts)) })
}

#[pg_extern(sql = false)]
fn snowflake_max_id(ts: Timestamptz) -> i64 {
    max_id(if ts == INFINITY { MAX_TICK } else { or_raise(tick_at(ts)) })
}

fn tick_at(ts: Timestamptz) -> Result<Tick, Error> {
    settings::epoch()?.tick_of(ts).ok_or(Error::Timestamp)
}
