//! What the views `idgen_status` and `idgen_shard_stats` read.

use pgrx::iter::TableIterator;
use pgrx::{name, pg_extern};

use crate::clock;
use crate::epoch::{Epoch, Timestamptz};
use crate::error::{Error, or_raise};
use crate::layout::{MAX_TICK, Shard, Tick, tick_of};
use crate::settings;
use crate::shmem;

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
        name!(ends_at, Option<Timestamptz>),
        name!(years_left, Option<f64>),
        name!(warning, Option<String>),
    ),
> {
    let slots = or_raise(shmem::slots());
    let (mut in_use, mut furthest) = (0, 0);
    for slot in Shard::all().map(|shard| slots.read(shard)).filter(|slot| slot.leases > 0) {
        in_use += 1;
        furthest = furthest.max(tick_of(slot.next - 1));
    }
    let epoch = settings::epoch().ok();
    let now = clock::now();
    let years_left = now.as_ref().ok().map(|now| MAX_TICK.saturating_sub(*now) as f64 / YEAR_MS);
    let warning = match (&now, years_left) {
        (Err(error), _) => Some(error.message()),
        (Ok(now), _) if *now > MAX_TICK => Some(Error::Exhausted.message()),
        (_, Some(years)) if years < WARN_YEARS => Some(format!("the range of ids ends in {years:.1} years")),
        _ => None,
    };
    let now = now.ok();
    TableIterator::once((
        epoch.map(Epoch::timestamp),
        now.map(Tick::cast_signed),
        now.map(|now| furthest.saturating_sub(now).cast_signed()),
        in_use,
        epoch.map(|epoch| epoch.timestamp_of(MAX_TICK)),
        years_left,
        warning,
    ))
}

#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn idgen_shard_stats() -> TableIterator<
    'static,
    (name!(shard, i32), name!(ids, i64), name!(leases, i64), name!(waits, i64), name!(waited_ms, f64)),
> {
    let slots = or_raise(shmem::slots());
    TableIterator::new(Shard::all().filter_map(|shard| {
        let slot = slots.read(shard);
        (slot.leases > 0 || slot.waits > 0).then(|| {
            (
                shard.into(),
                slot.ids.cast_signed(),
                slot.leases.cast_signed(),
                slot.waits.cast_signed(),
                slot.waited_us as f64 / 1000.0,
            )
        })
    }))
}
