//! The functions behind the views `idgen_status` and `idgen_shard_stats`, whose columns have changed since 0.1.0.
//!
//! A server has one library, but each of its databases keeps the functions of an earlier version, with their columns
//! and C symbols, until `ALTER EXTENSION idgen UPDATE`. So a function whose result changes gets a new symbol, named
//! after the version, and the old symbol keeps the old result for as long as a database may be at the old version: as
//! long as `sql/install/` has its script.

use idgen_core::shared::{Guarded, Slotted};
use idgen_core::slot::Counters;
use idgen_ids::epoch::Timestamptz;
use idgen_ids::id::MAX_TICK;
use idgen_ids::js::JsShard;
use idgen_ids::{Epoch, Shard, Tick};
use pgrx::iter::TableIterator;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{name, pg_extern};

use crate::error::Table;
use crate::host::{Postgres, host};
use crate::pg::backend;
use crate::pg::origin::MARK_ORIGIN;
use crate::state::{State, Used};

#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn idgen_status_0_2() -> Result<
    TableIterator<
        'static,
        (
            name!(epoch, Option<Timestamptz>),
            name!(now_tick, Option<i64>),
            name!(ahead_ms, Option<i64>),
            name!(shards_in_use, i32),
            name!(mark, Option<i64>),
            name!(mark_at, Option<Timestamptz>),
            name!(mark_kept_in, String),
            name!(window_left_ms, Option<i64>),
            name!(renewals, i64),
            name!(flush_ms, f64),
            name!(clock_steps_back, i64),
            name!(clock_steps_forward, i64),
            name!(ends_at, Option<Timestamptz>),
            name!(years_left, Option<f64>),
            name!(warning, Option<String>),
            name!(warning_code, Option<&'static str>),
            name!(warning_hint, Option<String>),
            name!(mints, bool),
            name!(closed_shards, String),
        ),
    >,
    ErrorReport,
> {
    let state = State::read();
    let mark_at = state.mark_of_epoch().map(|(epoch, mark)| epoch.timestamp_of(mark));
    let Used { renewals, limit, shards, furthest, closed, .. } = state.memory?;
    let (now, epoch) = (state.now, state.epoch);
    let warning = state.warning.map(|warning| warning.row());
    Ok(TableIterator::once((
        epoch.map(Epoch::timestamp),
        now.map(Tick::cast_signed),
        now.map(|now| furthest.saturating_sub(now).cast_signed()),
        shards,
        state.mark.map(|mark| mark.mark().cast_signed()),
        mark_at,
        format!("replication origin {}", MARK_ORIGIN),
        now.map(|now| limit.saturating_sub(now).cast_signed()),
        renewals.renewals.cast_signed(),
        renewals.flush_us as f64 / 1000.0,
        renewals.steps_back.cast_signed(),
        renewals.steps_forward.cast_signed(),
        epoch.map(|epoch| epoch.timestamp_of(MAX_TICK)),
        state.years_left,
        warning.as_ref().map(|row| row.message.clone()),
        warning.as_ref().and_then(|row| Some(row.known?.code)),
        warning.map(|row| row.hint),
        state.mints,
        closed.to_string(),
    )))
}

/// As in 0.1.0.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn idgen_status() -> Result<
    TableIterator<
        'static,
        (
            name!(epoch, Option<Timestamptz>),
            name!(now_tick, Option<i64>),
            name!(ahead_ms, Option<i64>),
            name!(shards_in_use, i32),
            name!(mark, Option<i64>),
            name!(mark_at, Option<Timestamptz>),
            name!(mark_kept_in, String),
            name!(window_left_ms, Option<i64>),
            name!(renewals, i64),
            name!(flush_ms, f64),
            name!(clock_steps_back, i64),
            name!(clock_steps_forward, i64),
            name!(ends_at, Option<Timestamptz>),
            name!(years_left, Option<f64>),
            name!(warning, Option<String>),
        ),
    >,
    ErrorReport,
> {
    let all = idgen_status_0_2()?;
    Ok(TableIterator::new(all.map(|(a, b, c, d, e, f, g, h, i, j, k, l, m, n, warning, ..)| {
        (a, b, c, d, e, f, g, h, i, j, k, l, m, n, warning)
    })))
}

#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn idgen_shard_stats_0_2() -> Result<
    TableIterator<
        'static,
        (
            name!(shard, i32),
            name!(layout, &'static str),
            name!(ids, i64),
            name!(leases, i64),
            name!(waits, i64),
            name!(waited_ms, f64),
            name!(last_id, Option<i64>),
            name!(ids_per_second, Option<f64>),
            name!(stats_reset, Timestamptz),
            name!(closed, bool),
        ),
    >,
    ErrorReport,
> {
    let host = host()?;
    let since = host.segment.counted_since();
    // There is no rate if the clock has been set back since.
    let seconds = Some(backend::timestamp() - since).filter(|us| *us > 0).map(|us| us as f64 / 1e6);
    let all = counters(host, "idgen", Shard::all()).chain(counters(host, "js53", JsShard::all()));
    let shown =
        all.filter(|(.., counters, last_id, closed)| last_id.is_some() || counters.waits > 0 || *closed);
    Ok(TableIterator::new(shown.map(move |(layout, shard, counters, last_id, closed)| {
        (
            shard.into(),
            layout,
            counters.ids.cast_signed(),
            counters.leases.cast_signed(),
            counters.waits.cast_signed(),
            counters.waited_us as f64 / 1000.0,
            last_id,
            seconds.map(|seconds| counters.ids as f64 / seconds),
            since,
            closed,
        )
    })))
}

/// As in 0.1.0.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn idgen_shard_stats() -> Result<
    TableIterator<
        'static,
        (name!(shard, i32), name!(ids, i64), name!(leases, i64), name!(waits, i64), name!(waited_ms, f64)),
    >,
    ErrorReport,
> {
    let all = idgen_shard_stats_0_2()?.filter(|(_, layout, ..)| *layout == "idgen");
    Ok(TableIterator::new(
        all.map(|(shard, _, ids, leases, waits, waited_ms, ..)| (shard, ids, leases, waits, waited_ms)),
    ))
}

/// The counters of shards, their last ids, and whether they are closed.
fn counters<S: Slotted>(
    host: Postgres,
    layout: &'static str,
    shards: impl Iterator<Item = S>,
) -> impl Iterator<Item = (&'static str, Shard, Counters, Option<i64>, bool)> {
    shards.map(move |shard| {
        let slot = shard.slot(&host.segment.shared).copy();
        (layout, shard.into(), slot.counters, slot.last().map(|last| shard.id(last)), slot.closed)
    })
}
