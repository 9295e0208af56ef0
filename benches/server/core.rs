//! The parts of the core in a call, without PostgreSQL.

use std::hint::black_box;
use std::time::{Instant, SystemTime};

use idgen_core::Shard;
use idgen_core::id::MAX_TICK;
use idgen_core::lease::Lease;
use idgen_core::position::{Grid, Position};
use idgen_core::slot::{Bounds, Slot};

pub const PARTS: [&str; 3] = [CLOCK, LEASE, ID];
const CLOCK: &str = "read the clock";
const LEASE: &str = "take an id from a lease";
const ID: &str = "put an id together";

const NOW: u64 = 60_000_000_000;
const BOUNDS: Bounds = Bounds { now: NOW, floor: 0, max_ahead: MAX_TICK, queue: 0, limit: MAX_TICK + 1 };

/// The nanoseconds that a part takes.
pub fn ns(part: &str) -> f64 {
    let shard = Shard::try_from(5).expect("a shard");
    match part {
        CLOCK => repeated(SystemTime::now),
        LEASE => {
            let mut lease = Lease::NONE;
            lease.grant(shard, NOW, Slot::default().take(1 << 38, &BOUNDS).expect("a run"));
            repeated(|| lease.next(black_box(shard), black_box(NOW), black_box(0)))
        }
        ID => repeated(|| black_box(shard).id(black_box(Position::first_of(NOW)))),
        _ => panic!("the core has no part {part}"),
    }
}

fn repeated<T>(mut part: impl FnMut() -> T) -> f64 {
    const TIMES: u32 = 10_000_000;
    let start = Instant::now();
    for _ in 0..TIMES {
        black_box(part());
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(TIMES)
}
