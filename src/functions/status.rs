//! The functions behind the views `idgen_status`, `idgen_shard_stats` and `idgen_refusals`, the safe horizon, the
//! reset of the counters, the removal of the mark, the acceptance of another epoch or of the clock, and the check.

use idgen_core::host::Host;
use idgen_core::mark::{Clocks, MarkState, Progress, renewal};
use idgen_core::settings::{QUEUE_MS, Settings};
use idgen_core::shared::{Guarded, Slotted};
use idgen_core::slot::Counters;
use idgen_core::{check, error, horizon};
use idgen_ids::epoch::Timestamptz;
use idgen_ids::id::MAX_TICK;
use idgen_ids::js::JsShard;
use idgen_ids::{Epoch, Shard, Tick};
use pgrx::datum::Interval;
use pgrx::iter::TableIterator;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{name, pg_extern};

use crate::error::{Error, Reason, Warning, sqlstate};
use crate::host::{Postgres, accept_clock, accept_epoch, check_minting, count_refusal, host, uncounted};
use crate::memory;
use crate::minting;
use crate::origin_slots;
use crate::pg::origin::{self, MARK_ORIGIN};
use crate::pg::{backend, shmem, standbys};
use crate::settings;

/// A Julian year, 365.25 days, in milliseconds.
const YEAR_MS: f64 = 31_557_600_000.0;

/// How many years before the end the status view begins to warn: enough time to plan new keys.
const WARN_YEARS: f64 = 5.0;

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
    let host = host()?;
    let settings = settings::current().ok();
    let (in_use, furthest) =
        all_last_ticks(host).fold((0, 0), |(in_use, furthest), tick| (in_use + 1, furthest.max(tick)));
    let clocks = renewal::clocks(&host).ok();
    let now = clocks.map(|clocks| clocks.now);
    let state = host.with_mark(|mark| {
        clocks.inspect(|clocks| mark.observe(*clocks));
        *mark
    });
    let limit = host.limit();
    let stored = origin::load_mark();
    let kept = stored.filter(|mark| *mark != Progress::FIRST);
    let mark = kept.map(Progress::mark);
    let epoch = settings.map(|settings| settings.epoch);
    let years_left = now.map(|now| MAX_TICK.saturating_sub(now) as f64 / YEAR_MS);
    // What takes the server down comes before what keeps it from minting. A server that has loaded the mark goes by
    // the ids that it has minted since.
    let begun = stored.is_some() || host.in_recovery() || shmem::preloaded();
    let unused = kept.filter(|_| !state.loaded());
    let refused = || check_minting(unused).err().or_else(|| (!begun).then(|| Error::FirstMark.into()));
    let unrenewed = || unrenewed(host, &state, clocks?, &settings?);
    let no_slot = origin_slots::check(origin_slots::origins()).err().map(Warning::from);
    let removed = || host.segment.mark_removed().then(|| Error::MarkRemoved.into());
    let warning = no_slot.or_else(removed).or_else(refused).or_else(unrenewed).or_else(|| {
        let behind = |(now, settings): (Tick, Settings)| {
            state.floor().max(furthest) > now + settings.max_ahead_ms + QUEUE_MS
        };
        if now.zip(settings).is_some_and(behind) {
            return Some(Warning::ClockBehind);
        }
        if origin::mark_has_name() {
            return Some(Warning::MarkHasName { origin: MARK_ORIGIN });
        }
        if let Err(warning) = settings::check_files() {
            return Some(warning);
        }
        let years = years_left.filter(|years| *years < WARN_YEARS);
        let ends = years.map(|years| Warning::RangeEnds { years });
        ends.or_else(|| settings?.max_clock_jump_ms.is_none().then_some(Warning::AnyJump))
    });
    Ok(TableIterator::once((
        epoch.map(Epoch::timestamp),
        now.map(Tick::cast_signed),
        now.map(|now| furthest.saturating_sub(now).cast_signed()),
        in_use,
        mark.map(Tick::cast_signed),
        epoch
            .zip(kept)
            .filter(|(epoch, kept)| kept.is_of(*epoch))
            .map(|(epoch, kept)| epoch.timestamp_of(kept.mark())),
        format!("replication origin {}", MARK_ORIGIN),
        now.map(|now| limit.saturating_sub(now).cast_signed()),
        state.renewals.cast_signed(),
        state.flush_us as f64 / 1000.0,
        state.steps_back.cast_signed(),
        state.steps_forward.cast_signed(),
        epoch.map(|epoch| epoch.timestamp_of(MAX_TICK)),
        years_left,
        warning.map(|warning| warning.message()),
    )))
}

/// How long standbys may take to acknowledge a mark before the view warns, in milliseconds.
const AWAITED_MS: u64 = 1000;

/// A warning of what keeps the mark from being renewed: a jump of the clock, too few standbys, or standbys that do
/// not acknowledge the last mark written.
fn unrenewed(host: Postgres, state: &MarkState, clocks: Clocks, settings: &Settings) -> Option<Warning> {
    if let Some(by_ms) = state.jump(clocks, settings.max_clock_jump_ms) {
        return Some(error::Error::ClockJumped { by_ms }.into());
    }
    // A standby's own list of standbys counts once it is promoted, and the runbooks empty it first.
    let counts = host.standbys_must_acknowledge() && !host.in_recovery();
    if let Some((streaming, needed)) = standbys::too_few().filter(|_| counts) {
        return Some(Warning::TooFewStandbys { streaming, needed });
    }
    let awaited = renewal::awaited_ms(&host, state).filter(|ms| *ms > AWAITED_MS);
    awaited.map(|_| Warning::NotAcknowledged)
}

/// The ticks of the last positions of the shards in use, in both layouts.
fn all_last_ticks(host: Postgres) -> impl Iterator<Item = Tick> {
    last_ticks(host, Shard::all()).chain(last_ticks(host, JsShard::all()))
}

/// Those of one layout.
fn last_ticks<S: Slotted>(host: Postgres, shards: impl Iterator<Item = S>) -> impl Iterator<Item = Tick> {
    let slot = move |shard: S| shard.slot(&host.segment.shared).copy();
    shards.filter_map(move |shard| slot(shard).last()).map(|last| last.tick())
}

/// The function that a database has until `ALTER EXTENSION idgen UPDATE` from 0.1.0, with the columns of that
/// version.
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
    let limit = check::check(&host, &settings, all_last_ticks(host).max().unwrap_or(0))?;
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
