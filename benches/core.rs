//! The cost of the core without PostgreSQL: the parts of a call one by one. It does not show the cost of a call,
//! but where to look when that rises.
#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::time::{Duration, SystemTime};

use criterion::{Criterion, criterion_group, criterion_main};
use idgen_core::lease::Lease;
use idgen_core::position::{LayoutShard, Position};
use idgen_core::slot::{Bounds, Slot};
use idgen_ids::id::MAX_TICK;
use idgen_ids::{Shard, decode};

const NOW: u64 = 60_000_000_000;
const BOUNDS: Bounds = Bounds { now: NOW, floor: 0, max_ahead: MAX_TICK, queue: 0, limit: MAX_TICK + 1 };

fn parts_of_a_call(criterion: &mut Criterion) {
    let shard = Shard::try_from(5).unwrap();
    criterion.bench_function("read the clock", |b| b.iter(SystemTime::now));
    criterion.bench_function("take an id from a lease", |b| {
        let mut lease = Lease::NONE;
        let run = Slot::default().take(1 << 38, &BOUNDS).unwrap();
        lease.grant(shard, NOW, run);
        b.iter(|| lease.next(black_box(shard), black_box(NOW), black_box(0)));
    });
    criterion.bench_function("take a run from a slot", |b| {
        let mut slot = Slot::<Shard>::default();
        b.iter(|| slot.take(black_box(64), black_box(&BOUNDS)));
    });
    criterion.bench_function("put an id together", |b| {
        b.iter(|| black_box(shard).id(black_box(Position::first_of(NOW))));
    });
    criterion.bench_function("take an id apart", |b| b.iter(|| decode(black_box(1 << 60))));
}

criterion_group! {
    name = core;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = parts_of_a_call
}
criterion_main!(core);
