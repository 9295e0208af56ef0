//! What the views `idgen_status` and `idgen_shard_stats` read, the reset of the counters, and the removal of
//! the mark.

use pgrx::iter::TableIterator;
use pgrx::{name, pg_extern};

use crate::clock;
use crate::epoch::{Epoch, Timestamptz};
use crate::error::or_raise;
use crate::high_water;
use crate::js::{self, JsShard};
use crate::layout::{MAX_TICK, Shard, Tick};
use crate::mint;
use crate::origins::MARK_ORIGIN;
use crate::pg;
use crate::settings;
use crate::shmem::{self, Shared};
use crate::slot::Grid;

/// A Julian year, 365.25 days, in milliseconds.
const YEAR_MS: f64 = 31_557_600_000.0;

/// From how many years before the end on the status view warns: time enough to plan new keys.
const WARN_YEARS: f64 = 5.0;

#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn idgen_status() -> TableIterator<
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
> {
    let shared = or_raise(shmem::shared());
    let (mut in_use, mut furthest) = (0, 0);
    for tick in last_ticks(shared, Shard::all()).chain(last_ticks(shared, JsShard::all())) {
        in_use += 1;
        furthest = furthest.max(tick);
    }
    let reservation = shared.with_reservation(|r| *r);
    let limit = shared.limit();
    let mark = Some(pg::load_mark()).filter(|mark| *mark > 0);
    let epoch = settings::epoch().ok();
    let now = clock::now();
    let years_left = now.as_ref().ok().map(|now| MAX_TICK.saturating_sub(*now) as f64 / YEAR_MS);
    let behind = |now| reservation.floor().max(furthest) > now + settings::max_ahead_ms() + mint::QUEUE_MS;
    // What ends the server comes before what keeps it from minting.
    let problem = high_water::room(high_water::origins()).err().or_else(mint::problem);
    let warning = problem.map(|problem| problem.message()).or_else(|| {
        if now.as_ref().is_ok_and(|now| behind(*now)) {
            return Some("the system clock is behind the ids already minted".into());
        }
        let years = years_left.filter(|years| *years < WARN_YEARS)?;
        Some(format!("the range of ids ends in {years:.1} years"))
    });
    let now = now.ok();
    TableIterator::once((
        epoch.map(Epoch::timestamp),
        now.map(Tick::cast_signed),
        now.map(|now| furthest.saturating_sub(now).cast_signed()),
        in_use,
        mark.map(Tick::cast_signed),
        epoch.zip(mark).map(|(epoch, mark)| epoch.timestamp_of(mark)),
        format!("replication origin {}", MARK_ORIGIN),
        now.map(|now| limit.saturating_sub(now).cast_signed()),
        reservation.renewals.cast_signed(),
        reservation.flush_us as f64 / 1000.0,
        reservation.steps_back.cast_signed(),
        reservation.steps_forward.cast_signed(),
        epoch.map(|epoch| epoch.timestamp_of(MAX_TICK)),
        years_left,
        warning,
    ))
}

/// The ticks of the last positions of those shards that are in use.
fn last_ticks<G: Grid>(shared: &Shared, shards: impl Iterator<Item = G>) -> impl Iterator<Item = Tick> {
    shards.filter_map(|shard| shared.slot(shard).last()).map(G::tick_of)
}

/// What a database has until `ALTER EXTENSION idgen UPDATE` from 0.1.0: the columns of that version.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn idgen_shard_stats() -> TableIterator<
    'static,
    (name!(shard, i32), name!(ids, i64), name!(leases, i64), name!(waits, i64), name!(waited_ms, f64)),
> {
    let all = idgen_shard_stats_0_2().filter(|(_, layout, ..)| *layout == "idgen");
    TableIterator::new(
        all.map(|(shard, _, ids, leases, waits, waited_ms, ..)| (shard, ids, leases, waits, waited_ms)),
    )
}

#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn idgen_shard_stats_0_2() -> TableIterator<
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
> {
    let shared = or_raise(shmem::shared());
    let since = shared.counted_since();
    // A clock that was set back since gives no rate.
    let seconds = Some(pg::timestamp() - since).filter(|us| *us > 0).map(|us| us as f64 / 1e6);
    let of_all = Shard::all().map(|shard| {
        let slot = shared.slot(shard);
        ("idgen", shard, slot, slot.last().map(|last| or_raise(mint::id_at(last, shard))))
    });
    let of_js = JsShard::all().map(|shard| {
        let slot = shared.slot(shard);
        ("js53", shard.into(), slot, slot.last().map(|last| js::compose(last, shard)))
    });
    let used = of_all.chain(of_js).filter(|(.., slot, last_id)| last_id.is_some() || slot.waits > 0);
    TableIterator::new(used.map(move |(layout, shard, slot, last_id)| {
        (
            shard.into(),
            layout,
            slot.ids.cast_signed(),
            slot.leases.cast_signed(),
            slot.waits.cast_signed(),
            slot.waited_us as f64 / 1000.0,
            last_id,
            seconds.map(|seconds| slot.ids as f64 / seconds),
            since,
        )
    }))
}

#[pg_extern(sql = false)]
fn snowflake_stats_reset() {
    or_raise(shmem::shared()).reset_counters();
}

#[pg_extern(sql = false)]
fn snowflake_remove_mark() -> bool {
    or_raise(high_water::remove())
}

#[pg_extern(sql = false)]
fn snowflake_safe_horizon() -> i64 {
    or_raise(mint::safe_horizon())
}
