//! How a shard goes to another server, and how all of them do.

use idgen_core::handover;
use idgen_ids::epoch::Timestamptz;
use pgrx::pg_extern;
use pgrx::pg_sys::panic::ErrorReport;

use super::generate::shard_argument;
use crate::error::Error;
use crate::host::{check_administrator, count_refusal, uncounted};
use crate::memory::segment;
use crate::minting::host;
use crate::pg::origin;
use crate::session::SESSION;
use crate::settings;

#[pg_extern(sql = false)]
fn snowflake_advance(shard: Option<i32>, past: Option<i64>) -> Result<i64, ErrorReport> {
    let advance = |shard| {
        let (host, past) = (host()?, past.ok_or(Error::Null("past"))?);
        settings::check_allowed_shards()?;
        handover::advance(&host, &settings::current()?, &SESSION, shard, past)
    };
    Ok(shard_argument(shard).and_then(advance).map_err(count_refusal)?)
}

#[pg_extern(sql = false)]
fn snowflake_close_shard(shard: Option<i32>) -> Result<i64, ErrorReport> {
    let shard = shard_argument(shard)?;
    check_administrator("close a shard")?;
    let host = host()?;
    // The ids below the mark would not be below the bound.
    if segment()?.mark_removed() {
        return Err(Error::MarkRemoved.into());
    }
    let settings = settings::current()?;
    // Each layout has a slot. Of a close and a reopen at once, one has the last word on both.
    Ok(origin::alone(|| handover::close(&host, &settings, &SESSION, shard))?)
}

#[pg_extern(sql = false)]
fn snowflake_reopen_shard(shard: Option<i32>) -> Result<bool, ErrorReport> {
    let shard = shard_argument(shard)?;
    check_administrator("reopen a shard")?;
    let host = host()?;
    Ok(origin::alone(|| handover::reopen(&host, shard)))
}

#[pg_extern(sql = false)]
fn snowflake_raise_mark(past: Option<Timestamptz>) -> Result<Timestamptz, ErrorReport> {
    let past = past.ok_or(Error::Null("past"))?;
    check_administrator("raise the high-water mark")?;
    let settings = settings::current()?;
    // The millisecond after that of `past`. Ids have no time before the epoch, and none is infinitely late.
    let ms = past.saturating_sub(settings.epoch.timestamp()).div_euclid(1000) + 1;
    let first = handover::raise_mark(&uncounted()?, &settings, u64::try_from(ms).unwrap_or(0))?;
    Ok(settings.epoch.timestamp_of(first))
}
