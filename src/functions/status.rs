//! The functions behind the views `idgen_status`, `idgen_shard_stats` and `idgen_refusals`, the safe horizon, the
//! reset of the counters, the removal of the mark, the acceptance of another epoch or of the clock, and the check.

use idgen_core::epoch::{Epoch, Timestamptz};
use idgen_core::id::MAX_TICK;
use idgen_core::js::JsShard;
use idgen_core::mark::{Clocks, Mark};
use idgen_core::mint::{Error as MintError, QUEUE_MS};
use idgen_core::origins::Progress;
use idgen_core::position::Grid;
use idgen_core::server::{Server, Slots};
use idgen_core::slot::Counters;
use idgen_core::{Shard, Tick, check, horizon, renew};
use pgrx::datum::Interval;
use pgrx::iter::TableIterator;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{name, pg_extern};

use crate::error::{Error, Reason, Warning, sqlstate};
use crate::mutant;
use crate::origin_slots;
use crate::pg::origin::{self, MARK_ORIGIN};
use crate::pg::{backend, shmem, standbys};
use crate::server::{self, Postgres, accept_clock, accept_epoch, counted, server, uncounted};
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
    let server = server()?;
    let (in_use, furthest) =
        all_last_ticks(server).fold((0, 0), |(in_use, furthest), tick| (in_use + 1, furthest.max(tick)));
    let clocks = renew::clocks(&server).ok();
    let now = clocks.map(|clocks| clocks.now);
    let state = server.with_mark(|mark| {
        clocks.inspect(|clocks| mark.look(*clocks));
        *mark
    });
    let limit = server.limit();
    let kept = origin::load_mark();
    let mark = kept.map(Progress::mark);
    let epoch = settings::epoch().ok();
    let years_left = now.map(|now| MAX_TICK.saturating_sub(now) as f64 / YEAR_MS);
    // A problem that takes the server down comes before one that keeps it from minting. A run that has loaded the
    // mark goes by its own ids.
    let problem = origin_slots::check(origin_slots::origins()).err().map(Warning::from);
    let problem = problem.or_else(|| server::problem(kept.filter(|_| !state.loaded())));
    let warning = problem.or_else(|| renewal_warning(server, &state, clocks?)).or_else(|| {
        if now.is_some_and(|now| state.floor().max(furthest) > now + settings::max_ahead_ms() + QUEUE_MS) {
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
        ends.or_else(|| settings::max_clock_jump_ms().is_none().then_some(Warning::AnyLeap))
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
fn renewal_warning(server: Postgres, state: &Mark, clocks: Clocks) -> Option<Warning> {
    if let Some(by_ms) = state.leap(clocks, settings::max_clock_jump_ms()) {
        return Some(MintError::ClockLeapt { by_ms }.into());
    }
    // A standby's own list of standbys counts once it is promoted, and the runbooks empty it first.
    let counts = server.standbys_must_acknowledge() && !server.in_recovery();
    if let Some((streaming, needed)) = standbys::too_few().filter(|_| counts) {
        return Some(Warning::TooFewStandbys { streaming, needed });
    }
    let awaited = server.awaited_ms(state).filter(|ms| *ms > AWAITED_MS);
    awaited.map(|_| MintError::MarkNotRenewed { waited_ms: 0 }.into())
}

/// The ticks of the last positions of the shards in use, in both layouts.
fn all_last_ticks(server: Postgres) -> impl Iterator<Item = Tick> {
    last_ticks(server, Shard::all()).chain(last_ticks(server, JsShard::all()))
}

/// Those of one layout.
fn last_ticks<S: Grid>(server: Postgres, shards: impl Iterator<Item = S>) -> impl Iterator<Item = Tick>
where
    Postgres: Slots<S>,
{
    shards.filter_map(move |shard| server.slot(shard).last()).map(|last| last.tick())
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
        ),
    >,
    ErrorReport,
> {
    let server = server()?;
    let since = shmem::shared()?.counted_since();
    // There is no rate if the clock has been set back since.
    let seconds = Some(backend::timestamp() - since).filter(|us| *us > 0).map(|us| us as f64 / 1e6);
    let all = counters(server, "idgen", Shard::all()).chain(counters(server, "js53", JsShard::all()));
    let used = all.filter(|(.., counters, last_id)| last_id.is_some() || counters.waits > 0);
    Ok(TableIterator::new(used.map(move |(layout, shard, counters, last_id)| {
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
        )
    })))
}

/// The counters of shards, and their last ids.
fn counters<S: Grid>(
    server: Postgres,
    layout: &'static str,
    shards: impl Iterator<Item = S>,
) -> impl Iterator<Item = (&'static str, Shard, Counters, Option<i64>)>
where
    Postgres: Slots<S>,
{
    shards.map(move |shard| {
        let slot = server.slot(shard);
        (layout, shard.into(), slot.counters, slot.last().map(|last| shard.id(last)))
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
    let shared = shmem::shared()?;
    Ok(TableIterator::new(Reason::ALL.into_iter().map(|(reason, name, code)| {
        (name, sqlstate(code), shared.refused(reason).cast_signed(), shared.counted_since())
    })))
}

#[pg_extern(sql = false)]
fn snowflake_stats_reset() -> Result<(), ErrorReport> {
    shmem::shared()?.reset_counters();
    Ok(())
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
    let server = uncounted()?;
    let limit = check::check(&server, all_last_ticks(server).max().unwrap_or(0))?;
    Ok(settings::epoch()?.timestamp_of(limit))
}

#[pg_extern(sql = false)]
fn snowflake_safe_horizon() -> Result<i64, ErrorReport> {
    let horizon = || {
        let server = mutant::server()?;
        if backend::one_snapshot() { Err(Error::OneSnapshot) } else { horizon::safe_horizon(&server) }
    };
    Ok(horizon().map_err(counted)?)
}
