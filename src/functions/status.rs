//! The function behind the view `idgen_refusals`, the safe horizon, the reset of the counters, the removal of the mark,
//! the acceptance of another epoch or of the clock, and the check.

use idgen_core::{check, horizon};
use idgen_ids::epoch::Timestamptz;
use pgrx::datum::Interval;
use pgrx::iter::TableIterator;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{name, pg_extern};

use crate::error::{Error, Reason, sqlstate};
use crate::host::{accept_clock, accept_epoch, count_refusal, uncounted};
use crate::memory;
use crate::minting;
use crate::origin_slots;
use crate::pg::backend;
use crate::settings;
use crate::state::Used;

#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn idgen_refusals() -> Result<
    TableIterator<
        'static,
        (
            name!(reason, &'static str),
            name!(sqlstate, String),
            name!(refused, i64),
            name!(stats_reset, Timestamptz),
        ),
    >,
    ErrorReport,
> {
    let segment = memory::segment()?;
    Ok(TableIterator::new(Reason::ALL.into_iter().map(|(reason, name, code)| {
        (name, sqlstate(code), segment.refused(reason).cast_signed(), segment.counted_since())
    })))
}

#[pg_extern(sql = false)]
fn snowflake_stats_reset() -> Result<(), ErrorReport> {
    memory::segment()?.reset_counters();
    Ok(())
}

#[pg_extern(sql = false)]
fn idgen_begin() -> Result<bool, ErrorReport> {
    Ok(origin_slots::begin()?)
}

#[pg_extern(sql = false)]
fn snowflake_remove_mark() -> Result<bool, ErrorReport> {
    Ok(origin_slots::remove_mark()?)
}

#[pg_extern(sql = false)]
fn snowflake_accept_epoch(epoch: Timestamptz) -> Result<bool, ErrorReport> {
    Ok(accept_epoch(epoch)?)
}

#[pg_extern(sql = false)]
fn snowflake_accept_clock() -> Result<Interval, ErrorReport> {
    const DAY_MS: u64 = 86_400_000;
    let by_ms = accept_clock()?;
    let (days, rest_us) = ((by_ms / DAY_MS) as i32, (by_ms % DAY_MS * 1000).cast_signed());
    Ok(Interval::new(0, days, rest_us).expect("no mixed signs"))
}

#[pg_extern(sql = false)]
fn snowflake_check() -> Result<Timestamptz, ErrorReport> {
    let host = uncounted()?;
    let settings = settings::current()?;
    settings::check_allowed_shards()?;
    let limit = check::check(&host, &settings, Used::read(host, None).furthest)?;
    Ok(settings.epoch.timestamp_of(limit))
}

#[pg_extern(sql = false)]
fn snowflake_safe_horizon() -> Result<i64, ErrorReport> {
    let horizon = || {
        let host = minting::host()?;
        if backend::one_snapshot() {
            return Err(Error::OneSnapshot);
        }
        horizon::safe_horizon(&host, &settings::current()?)
    };
    Ok(horizon().map_err(count_refusal)?)
}
