//! Property tests of the pure rooms, without PostgreSQL. Each names the promise of docs/design.md
//! that it guards.
#![allow(clippy::unwrap_used)]

#[path = "../src/epoch.rs"]
#[allow(dead_code)]
mod epoch;
#[path = "../src/forms.rs"]
mod forms;
#[path = "../src/js.rs"]
mod js;
#[path = "../src/layout.rs"]
#[allow(dead_code)]
mod layout;
#[path = "../src/layouts.rs"]
mod layouts;
#[path = "../src/lease.rs"]
mod lease;
#[path = "../src/origins.rs"]
#[allow(dead_code)]
mod origins;
#[path = "../src/reservation.rs"]
mod reservation;
#[path = "../src/shard_set.rs"]
mod shard_set;
#[path = "../src/slot.rs"]
#[allow(dead_code)]
mod slot;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use proptest::collection::vec;
use proptest::prelude::*;

use epoch::{BadEpoch, Epoch, INFINITY, MINUS_INFINITY, timestamp_since};
use forms::{BadText, from_shortcode, from_text, scatter, shortcode, text};
use js::JsShard;
use layout::{
    IDS_PER_TICK, MAX_STORED_TICK, MAX_TICK, Parts, Position, Sequence, Shard, compose, decompose,
    first_position, max_id, min_id, position, position_after, tick_of,
};
use layouts::{Fields, LAYOUTS, Layout};
use lease::Lease;
use origins::{MARK_ORIGIN, Origins};
use reservation::{CLAIM_MS, Clocks, Mark, Plan, Reservation, Rules, Unplanned, runs_low};
use shard_set::ShardSet;
use slot::{Bounds, Grid, Refusal, Run, Slot};

fn shard(number: i32) -> Shard {
    Shard::try_from(number).unwrap()
}

fn sequence(number: i32) -> Sequence {
    Sequence::try_from(number).unwrap()
}

// The layout --------------------------------------------------------------------------------------

/// Promise: the ids are Instagram's, bit for bit. The vector is from its article.
#[test]
fn golden_vector() {
    let id = compose(position(1_387_263_000, sequence(5001 % 1024)), shard(1341)).unwrap();
    assert_eq!(id, 11_637_205_501_278_089);
    assert_eq!(i32::from(sequence(5001 % 1024)), 905);
}

proptest! {
    /// Promise 5: every word decodes, and into parts that make the same word again.
    #[test]
    fn compose_undoes_decompose(word: u64) {
        let Parts { tick, shard, sequence } = decompose(word.cast_signed());
        prop_assert_eq!(compose(position(tick, sequence), shard), Ok(word.cast_signed()));
    }

    /// Promise 5: parts come back as they went in.
    #[test]
    fn decompose_undoes_compose(tick in 0..=MAX_STORED_TICK, s in 0..8192i32, q in 0..1024i32) {
        let id = compose(position(tick, sequence(q)), shard(s)).unwrap();
        prop_assert_eq!(decompose(id), Parts { tick, shard: shard(s), sequence: sequence(q) });
        prop_assert_eq!(id < 0, tick > MAX_TICK);
    }

    /// Promise 5: no part is cut to fit.
    #[test]
    fn parts_out_of_range_are_refused(number: i32, tick in MAX_STORED_TICK + 1..1 << 54) {
        prop_assert_eq!(Shard::try_from(number).is_ok(), (0..8192).contains(&number));
        prop_assert_eq!(Sequence::try_from(number).is_ok(), (0..1024).contains(&number));
        let refusal = compose(first_position(tick), shard(0)).unwrap_err();
        prop_assert_eq!(refusal.to_string(), format!("tick {tick} is not between 0 and {MAX_STORED_TICK}"));
    }

    /// A range scan over a time finds all of its ids and no other.
    #[test]
    fn min_and_max_id_enclose_their_millisecond(tick in 0..=MAX_TICK, s in 0..8192i32, q in 0..1024i32) {
        let id = compose(position(tick, sequence(q)), shard(s)).unwrap();
        prop_assert!(min_id(tick) <= id && id <= max_id(tick));
        prop_assert_eq!(decompose(min_id(tick)).tick, tick);
        prop_assert_eq!(decompose(max_id(tick)).tick, tick);
        if tick < MAX_TICK {
            prop_assert_eq!(min_id(tick + 1), max_id(tick) + 1);
        }
    }
}

proptest! {
    /// `snowflake_advance` goes past an id by as little as the layout allows, whatever its shard.
    #[test]
    fn the_position_after_an_id_is_the_least_above_it(
        past in prop_oneof![any::<i64>(), Just(0), Just(i64::MAX), i64::MAX - (1 << 24)..i64::MAX], s in 0..8192i32,
    ) {
        match position_after(past, shard(s)) {
            Some(position) => {
                prop_assert!(compose(position, shard(s)).unwrap() > past);
                prop_assert!(position == 0 || compose(position - 1, shard(s)).unwrap() <= past);
            }
            None => prop_assert!(compose(first_position(MAX_TICK + 1) - 1, shard(s)).unwrap() <= past),
        }
    }
}

#[test]
fn parts_at_the_edges() {
    for (number, fits) in [(-1, false), (0, true), (8191, true), (8192, false)] {
        assert_eq!(Shard::try_from(number).is_ok(), fits);
    }
    for (number, fits) in [(-1, false), (0, true), (1023, true), (1024, false)] {
        assert_eq!(Sequence::try_from(number).is_ok(), fits);
    }
    assert_eq!(max_id(MAX_TICK), i64::MAX);
    assert_eq!(Shard::all().count(), 8192);
    assert_eq!(Shard::all().last().unwrap().index(), 8191);
}

// The slot ----------------------------------------------------------------------------------------

fn any_bounds() -> impl Strategy<Value = (u64, Bounds)> {
    // Clocks close together, so that they step in both directions across the slot's position, and
    // now and then the end of the range.
    let tick = prop_oneof![9 => 0..60u64, 1 => MAX_TICK - 3..MAX_TICK + 3];
    (1..3000u64, tick, 0..60u64, 0..20u64, prop_oneof![0..80u64, Just(MAX_TICK + 1)]).prop_map(
        |(want, now, floor, max_ahead, limit)| (want, Bounds { now, floor, max_ahead, queue: 0, limit }),
    )
}

proptest! {
    /// Promises 1 and 3: positions strictly increase for any sequence of clocks, forward and back,
    /// and a run never crosses its bounds.
    #[test]
    fn runs_increase_and_stay_in_bounds(calls in vec(any_bounds(), 1..200)) {
        let mut slot = Slot::default();
        let mut end: Position = 0;
        for (want, bounds) in calls {
            let before = slot;
            match slot.take::<Shard>(want, &bounds) {
                Ok(run) => {
                    prop_assert!(run.start >= end, "a position twice");
                    prop_assert!(run.start < run.end && run.count() <= want);
                    end = run.end;
                    let (first, last) = (tick_of(run.start), tick_of(run.end - 1));
                    prop_assert!(first >= bounds.now && first >= bounds.floor);
                    if run.due::<Shard>(bounds.max_ahead) <= bounds.now {
                        prop_assert!(last <= bounds.now + bounds.max_ahead);
                    } else {
                        prop_assert!(first == last, "a run to wait for is of one millisecond");
                        prop_assert!(last <= bounds.now + bounds.max_ahead + bounds.queue);
                    }
                    prop_assert!(last < bounds.limit && last <= MAX_TICK);
                    prop_assert_eq!(slot.ids, before.ids + run.count());
                }
                Err(refusal) => {
                    prop_assert_eq!(slot, before, "a refusal must leave the slot alone");
                    match refusal {
                        Refusal::Ahead { tick } => {
                            prop_assert!(tick > bounds.now + bounds.max_ahead + bounds.queue);
                        }
                        Refusal::Limit { tick } => prop_assert!(tick >= bounds.limit),
                        Refusal::Exhausted => prop_assert!(
                            bounds.now.max(bounds.floor) > MAX_TICK || tick_of(before.next) > MAX_TICK
                        ),
                    }
                }
            }
        }
    }

    /// A bound cuts a run, it does not refuse it: nothing below a bound is wasted.
    #[test]
    fn a_run_is_as_long_as_its_bounds_allow(want in 1..5000u64, now in 100..200u64, max_ahead in 0..5u64) {
        let mut slot = Slot::default();
        let bounds = Bounds { now, floor: 0, max_ahead, queue: 0, limit: now + 3 };
        let room = first_position((now + max_ahead + 1).min(now + 3)) - first_position(now);
        prop_assert_eq!(slot.take::<Shard>(want, &bounds).unwrap().count(), want.min(room));
    }

    /// Promise 5: a batch is refused only where the shard cannot give it. What it has room for is what one gets
    /// who takes all there is until the wait is over.
    #[test]
    fn a_shard_gives_as_many_ids_as_it_has_room_for(
        before in vec(any_bounds(), 0..3), now in 0..5000u64, floor in 0..5000u64, max_ahead in 0..50u64,
        wait in 0..50u64,
    ) {
        fn check<G: Grid>(before: &[(u64, Bounds)], bounds: Bounds, wait: u64) -> Result<(), TestCaseError> {
            let mut slot = Slot::default();
            for (want, bounds) in before {
                let _ = slot.take::<G>(*want, bounds);
            }
            let room = slot.room::<G>(&bounds, wait);
            let mut taken = 0;
            for now in bounds.now..=bounds.now + wait {
                taken += slot.take::<G>(u64::MAX, &Bounds { now, ..bounds }).map_or(0, |run| run.count());
            }
            prop_assert_eq!(room, taken);
            Ok(())
        }
        let bounds = Bounds { now, floor, max_ahead, queue: 0, limit: u64::MAX };
        check::<Shard>(&before, bounds, wait)?;
        check::<JsShard>(&before, bounds, wait)?;
    }
}

/// Promise 1: the range ends with its last position, and never wraps.
#[test]
fn the_last_tick_is_used_up_and_then_refused() {
    let mut slot = Slot::default();
    let bounds = Bounds { now: MAX_TICK, floor: 0, max_ahead: 1000, queue: 0, limit: MAX_TICK + 1 };
    assert_eq!(slot.take::<Shard>(5000, &bounds).unwrap().count(), IDS_PER_TICK);
    assert_eq!(slot.take::<Shard>(1, &bounds), Err(Refusal::Exhausted));
    assert_eq!(slot.take::<Shard>(1, &Bounds { now: u64::MAX >> 20, ..bounds }), Err(Refusal::Exhausted));
    assert_eq!(slot.take::<Shard>(1, &Bounds { now: 5, ..bounds }), Err(Refusal::Exhausted));
}

// JavaScript-safe ids -----------------------------------------------------------------------------

fn js_shard(number: i32) -> JsShard {
    JsShard::try_from(number).unwrap()
}

fn any_js_bounds() -> impl Strategy<Value = Bounds> {
    let tick = prop_oneof![9 => 0..9000u64, 1 => MAX_TICK - 3000..MAX_TICK + 3000];
    (tick, 0..9000u64, 0..3000u64, 0..64u64, prop_oneof![0..12_000u64, Just(MAX_TICK + 1)])
        .prop_map(|(now, floor, max_ahead, queue, limit)| Bounds { now, floor, max_ahead, queue, limit })
}

proptest! {
    /// Promises 1 and 3 in seconds: positions strictly increase for any sequence of clocks and bounds; the
    /// second is not before the clock's, and its first millisecond not before the floor, not at the limit,
    /// and not too far after the clock.
    #[test]
    fn js_positions_increase_and_stay_in_bounds(calls in vec((1..6000u64, any_js_bounds()), 1..200)) {
        let mut slot = Slot::default();
        let mut end: Position = 0;
        for (want, bounds) in calls {
            let before = slot;
            let ahead = bounds.now + bounds.max_ahead;
            match slot.take::<JsShard>(want, &bounds) {
                Ok(run) => {
                    prop_assert!(run.start >= end, "a position twice");
                    prop_assert!(run.start < run.end && run.count() <= want);
                    end = run.end;
                    let (first, last) = (JsShard::tick_of(run.start), JsShard::tick_of(run.end - 1));
                    prop_assert!(first + 1000 > bounds.now && first >= bounds.floor);
                    prop_assert!(last < bounds.limit && last <= MAX_TICK);
                    if run.due::<JsShard>(bounds.max_ahead) <= bounds.now {
                        prop_assert!(last <= ahead);
                    } else {
                        prop_assert!(first == last && last <= ahead + bounds.queue);
                    }
                }
                Err(refusal) => {
                    prop_assert_eq!(slot, before, "a refusal must leave the slot alone");
                    match refusal {
                        Refusal::Ahead { tick } => prop_assert!(tick > ahead + bounds.queue),
                        Refusal::Limit { tick } => prop_assert!(tick >= bounds.limit),
                        Refusal::Exhausted => {
                            let next = JsShard::tick_of(before.next);
                            prop_assert!(bounds.now.max(bounds.floor).max(next) > MAX_TICK - 1000);
                        }
                    }
                }
            }
        }
    }

    /// Promise 1 across a restart or failover: a run of the server that begins at a floor not below the limit
    /// of the one before repeats no second of it, wherever in a second both lie, and whatever the clock shows.
    #[test]
    fn no_js_second_is_on_both_sides_of_a_mark(
        limit in 1..9000u64, more in prop_oneof![Just(0), 0..2500u64], before in 0..9000u64, after in 0..9000u64,
    ) {
        let far = Bounds { now: before, floor: 0, max_ahead: 20_000, queue: 0, limit };
        let mut old = Slot::default();
        // All that it may.
        let _ = old.take::<JsShard>(1_000_000, &far);
        let next = Bounds { now: after, floor: limit + more, limit: MAX_TICK + 1, ..far };
        let new = Slot::default().take::<JsShard>(1, &next).unwrap();
        prop_assert!(JsShard::unit_of(new.start) * 4096 >= old.next, "{old:?} {new:?}");
    }

    /// Ids are below 2^53, come apart as the layout js53 says, and are in the order of their positions.
    #[test]
    fn js_ids_are_exact_in_javascript(
        second in 0..=MAX_TICK / 1000, s in 0..256i32, q in 0..4096u64, other in 0..1u64 << 42,
    ) {
        let position = JsShard::first_position(second) | q;
        let id = js::compose(position, js_shard(s));
        prop_assert!((0..1 << 53).contains(&id) && (id as f64) as i64 == id);
        let fields = Layout::find("js53").unwrap().fields(id).unwrap();
        prop_assert_eq!(fields.ms, second * 1000);
        prop_assert_eq!((fields.shard, fields.sequence, fields.gene), (Some(s), Some(q as i32), None));
        prop_assert_eq!(position.cmp(&other), id.cmp(&js::compose(other, js_shard(s))));
    }
}

#[test]
fn js_shards_are_those_below_256() {
    for (number, fits) in [(-1, false), (0, true), (255, true), (256, false), (i32::MAX, false)] {
        assert_eq!(JsShard::try_from(number).is_ok(), fits);
    }
    let all: Vec<i32> = JsShard::all().map(|shard| Shard::from(shard).into()).collect();
    assert_eq!(all, (0..256).collect::<Vec<i32>>());
}

/// The mark's range ends in the midst of a second: that one is handed out, and then no more.
#[test]
fn the_last_js_second_is_used_up_and_then_refused() {
    let mut slot = Slot::default();
    let bounds = Bounds { now: MAX_TICK, floor: 0, max_ahead: 5000, queue: 0, limit: MAX_TICK + 1 };
    assert_eq!(slot.take::<JsShard>(9000, &bounds).unwrap().count(), 4096);
    assert_eq!(slot.take::<JsShard>(1, &bounds), Err(Refusal::Exhausted));
    assert_eq!(slot.take::<JsShard>(1, &Bounds { now: 5, ..bounds }), Err(Refusal::Exhausted));
    let ended = Bounds { now: 0, floor: MAX_TICK + 1, ..bounds };
    assert_eq!(Slot::default().take::<JsShard>(1, &ended), Err(Refusal::Exhausted));
}

// Leases ------------------------------------------------------------------------------------------

/// A backend as mint.rs drives it.
struct Backend(Lease);

impl Backend {
    fn id(&mut self, slot: &mut Slot, bounds: &Bounds, max_lease: u64) -> Result<Position, Refusal> {
        let now = bounds.now;
        if let Some(position) = self.0.next(shard(5), now, bounds.floor) {
            return Ok(position);
        }
        let run = slot.take::<Shard>(self.0.want(shard(5), now, max_lease), bounds)?;
        Ok(self.0.grant(shard(5), now, run))
    }
}

proptest! {
    /// Promises 1, 2 and 3 over several backends with leases and any clock: no position twice, each
    /// backend's increase, and none is before the clock or too far after it.
    #[test]
    fn leases_keep_the_promises(
        calls in vec((0..4usize, -3..4i64), 1..600), max_lease in 1..80u64, max_ahead in 0..5u64,
    ) {
        let mut slot = Slot::default();
        let mut backends = [const { Backend(Lease::NONE) }; 4];
        let mut last = [None; 4];
        let mut seen = HashSet::new();
        let mut now = 100u64;
        for (who, step) in calls {
            // Most calls come within the same millisecond.
            now = now.saturating_add_signed(if step.abs() == 3 { step } else { 0 });
            let bounds = Bounds { now, floor: 0, max_ahead, queue: 0, limit: MAX_TICK + 1 };
            if let Ok(position) = backends[who].id(&mut slot, &bounds, max_lease) {
                prop_assert!(seen.insert(position), "a position twice");
                prop_assert!(Some(position) > last[who], "a backend's ids must increase");
                last[who] = Some(position);
                prop_assert!((now..=now + max_ahead).contains(&tick_of(position)));
            }
        }
    }

    /// Promise 2: sorted to the millisecond across backends, also while the shard runs ahead of the
    /// clock. With runs of one, strictly.
    #[test]
    fn ids_of_different_backends_are_in_order(
        calls in vec((0..4usize, 0..3u64), 1..600), max_lease in 1..80u64,
    ) {
        // Far ahead from the start: this is where a lease that outlives its millisecond would show.
        let mut slot = Slot { next: first_position(500), ..Slot::default() };
        let mut backends = [const { Backend(Lease::NONE) }; 4];
        let mut ids: Vec<(u64, Position)> = Vec::new();
        let mut now = 100;
        for (who, step) in calls {
            now += step / 2;
            let bounds = Bounds { now, floor: 0, max_ahead: 1000, queue: 0, limit: MAX_TICK + 1 };
            let position = backends[who].id(&mut slot, &bounds, max_lease).unwrap();
            for (earlier, smaller) in ids.iter().filter(|(then, _)| *then < now || max_lease == 1) {
                prop_assert!(*smaller < position, "{smaller} of {earlier} is not below {position} of {now}");
            }
            ids.push((now, position));
        }
    }

    /// Promises 1, 2 and 3 where backends queue for a full shard: a call takes its run, waits while others
    /// call, and returns when the clock has come so far, or later. An id is of no millisecond before its
    /// call, and greater than those of all calls that ended in an earlier millisecond than it began in.
    #[test]
    fn those_who_queue_keep_the_promises(
        steps in vec((0..4usize, prop_oneof![12 => Just(0i64), 3 => 1..3i64, 1 => Just(-2i64)]), 1..800),
        back in any::<bool>(), max_lease in 1..600u64, max_ahead in 0..3u64, queue in 0..4u64,
    ) {
        let mut slot = Slot::default();
        let mut backends = [const { Backend(Lease::NONE) }; 4];
        // Since when, and in which step, a backend has been in a call, and the run it waits for.
        let mut calls: [Option<(u64, usize, Option<Run>)>; 4] = [None; 4];
        let mut ids: Vec<(usize, (u64, usize), (u64, usize), Position)> = Vec::new();
        let mut now = 100u64;
        for (at, (who, step)) in steps.into_iter().enumerate() {
            now = now.saturating_add_signed(if back { step } else { step.max(0) });
            let Backend(lease) = &mut backends[who];
            let (began, from, run) = calls[who].unwrap_or((now, at, None));
            let bounds = Bounds { now, floor: 0, max_ahead, queue, limit: MAX_TICK + 1 };
            let minted = match run {
                Some(run) if run.due::<Shard>(max_ahead) > now => None,
                Some(run) => Some(lease.grant(shard(5), run.due::<Shard>(max_ahead), run)),
                None => lease.next(shard(5), now, 0).or_else(|| {
                    let run = slot.take::<Shard>(lease.want(shard(5), now, max_lease), &bounds).ok()?;
                    if run.due::<Shard>(max_ahead) <= now {
                        return Some(lease.grant(shard(5), now, run));
                    }
                    calls[who] = Some((began, from, Some(run)));
                    None
                }),
            };
            let Some(position) = minted else { continue };
            calls[who] = None;
            prop_assert!(tick_of(position) >= began, "older than its call");
            prop_assert!(tick_of(position) <= now + max_ahead, "too far ahead");
            for (other, _, (ended, to), earlier) in &ids {
                prop_assert!(*earlier != position, "a position twice");
                let in_order = *other == who || (!back && (*ended < began || max_lease == 1) && *to < from);
                prop_assert!(!in_order || *earlier < position, "{earlier} then {position}");
            }
            ids.push((who, (began, from), (now, at), position));
        }
    }

    /// Promise 3: nothing below a raised floor is handed out, whatever the lease still holds.
    #[test]
    fn a_raised_floor_drops_the_lease(floor in 0..20u64, max_lease in 1..80u64) {
        let mut slot = Slot::default();
        let mut backend = Backend(Lease::NONE);
        let mut bounds = Bounds { now: 10, floor: 0, max_ahead: 50, queue: 0, limit: MAX_TICK + 1 };
        for _ in 0..10 {
            backend.id(&mut slot, &bounds, max_lease).unwrap();
        }
        bounds.floor = floor;
        prop_assert!(tick_of(backend.id(&mut slot, &bounds, max_lease).unwrap()) >= floor);
    }

    /// Even low bits: `id % N` over the ids of a quiet shard finds every bucket equally often. A
    /// visit is a few calls within one millisecond.
    #[test]
    fn the_low_bits_of_a_quiet_shard_are_evenly_spread(calls in 1..200usize, gap in 1..5000u64) {
        let mut slot = Slot::default();
        let mut backend = Backend(Lease::NONE);
        let mut buckets = [0usize; 256];
        for visit in 1..=256 {
            let bounds = Bounds { now: visit * gap, floor: 0, max_ahead: 0, queue: 0, limit: MAX_TICK + 1 };
            for _ in 0..calls {
                buckets[(backend.id(&mut slot, &bounds, 64).unwrap() & 255) as usize] += 1;
            }
        }
        prop_assert_eq!(buckets, [calls; 256]);
    }

    /// Promise 1 and even low bits: resetting the counters moves no position back, whenever it is done,
    /// and what a quiet shard hands out from then on is as even as before.
    #[test]
    fn a_reset_of_the_counters_moves_no_position(
        before in vec((0..3u64, 1..100u64), 1..50), gap in 1..5000u64,
    ) {
        let (mut slot, mut now) = (Slot::default(), 0);
        let take = |slot: &mut Slot, now, want| {
            let bounds = Bounds { now, floor: 0, max_ahead: 1000, queue: 0, limit: MAX_TICK + 1 };
            slot.take::<Shard>(want, &bounds).unwrap()
        };
        for (step, want) in before {
            now += step;
            let last = take(&mut slot, now, want).end - 1;
            slot.reset_counters();
            prop_assert_eq!(slot, Slot { next: last + 1, ..Slot::default() });
            prop_assert_eq!(slot.last(), Some(last));
        }
        let mut buckets = [0; 256];
        now += 1000;    // idle by then
        for _ in 0..256 {
            now += gap;
            buckets[(take(&mut slot, now, 1).start & 255) as usize] += 1;
        }
        prop_assert_eq!(buckets, [1; 256]);
    }
}

/// Single-row inserts of different backends are in strict order; bulk work takes longer runs.
#[test]
fn the_run_doubles_within_a_millisecond() {
    let mut slot = Slot::default();
    let mut backend = Backend(Lease::NONE);
    let mut bounds = Bounds { now: 7, floor: 0, max_ahead: 1000, queue: 0, limit: MAX_TICK + 1 };
    for _ in 0..127 {
        backend.id(&mut slot, &bounds, 64).unwrap();
    }
    assert_eq!(slot.leases, 7, "1 + 2 + 4 + 8 + 16 + 32 + 64");
    bounds.now += 1;
    backend.id(&mut slot, &bounds, 64).unwrap();
    assert_eq!(slot.ids, 128, "1 again in the next millisecond");
    assert_eq!(backend.0.next(shard(6), 8, 0), None, "a lease is for one shard");
}

// The high-water mark -----------------------------------------------------------------------------

/// Far enough ahead for any tick of these tests.
const ANY: Rules = Rules { max_ahead: u64::MAX >> 1, reserve_ahead: 10, max_jump: None, standbys: false };

fn no_leap_over(ms: u64) -> Rules {
    Rules { max_jump: Some(ms), ..ANY }
}

#[derive(Clone, Debug)]
enum MarkStep {
    Load(u64),
    Plan(u64, u64, bool),
    Publish(bool),
}

proptest! {
    /// Promise 1: the limit only grows, is one that was planned, and every planned mark lets the tick
    /// that asked for it be issued. What standbys have to acknowledge is no further than what they have.
    /// A mark that is written and enough is not written again. The floor is the first mark that was loaded,
    /// whatever comes later.
    #[test]
    fn the_limit_only_grows_to_what_was_planned(
        steps in vec(prop_oneof![
            (0..500u64).prop_map(MarkStep::Load),
            (0..500u64, 0..500u64, any::<bool>()).prop_map(|(now, tick, lost)| MarkStep::Plan(now, tick, lost)),
            any::<bool>().prop_map(MarkStep::Publish),
        ], 1..60),
        reserve_ahead in 1..50u64,
        max_ahead in 0..300u64,
    ) {
        let mut reservation = Reservation::default();
        let (mut planned, mut first) = (Vec::new(), None);
        let mut written = Vec::new();
        for step in steps {
            let before = reservation;
            match step {
                MarkStep::Load(stored) => {
                    reservation.load(stored);
                    first = first.or(Some(stored));
                }
                MarkStep::Plan(now, tick, standbys) => {
                    let clocks = Clocks { now, boot_ms: 0 };
                    let rules = Rules { max_ahead, reserve_ahead, max_jump: None, standbys };
                    match reservation.plan(clocks, tick, rules) {
                        Ok(Plan::Write(mark)) => {
                            prop_assert!(mark > tick && mark > now && mark > reservation.floor());
                            prop_assert!(mark <= now + max_ahead + reserve_ahead, "never further than ids may be");
                            let enough = tick.max(reservation.limit(standbys));
                            prop_assert!(reservation.written(standbys).tick <= enough, "needed");
                            let mark = Mark { tick: mark, lsn: written.len() as u64 };
                            reservation.wrote(mark, standbys);
                            prop_assert!(reservation.written(standbys).tick >= mark.tick);
                            written.push((mark, standbys));
                            planned.push((mark.tick, clocks));
                        }
                        Ok(Plan::Await(mark)) => {
                            prop_assert!(written.contains(&(mark, true)) || !standbys && written.contains(&(mark, false)));
                            prop_assert!(mark.tick > tick && mark.tick > reservation.limit(standbys));
                            planned.push((mark.tick, clocks));
                        }
                        Err(refusal) => {
                            prop_assert_eq!(refusal, Unplanned::Stale);
                            prop_assert!(tick < reservation.floor() || tick > now + max_ahead);
                        }
                    }
                }
                MarkStep::Publish(acknowledged) => if let Some((mark, clocks)) = planned.pop() {
                    reservation.publish(mark, acknowledged, clocks, 7);
                    prop_assert_eq!(reservation.limit(false), before.limit(false).max(mark));
                    let raised = if acknowledged { mark } else { 0 };
                    prop_assert_eq!(reservation.limit(true), before.limit(true).max(raised));
                    prop_assert_eq!(reservation.flush_us, before.flush_us + 7);
                },
            }
            prop_assert!(reservation.limit(false) >= before.limit(false));
            prop_assert!(reservation.limit(true) <= reservation.limit(false));
            prop_assert_eq!(reservation.floor(), first.unwrap_or(0));
            prop_assert_eq!(reservation.loaded(), first.is_some());
        }
    }

    /// Guard: a leap beyond what is allowed is refused with its size, however the clock moved before,
    /// and leaves the state alone. A step back, and time that truly passed, are none.
    #[test]
    fn a_leap_is_measured_against_the_time_since_boot(
        step in prop_oneof![-100_000..100_000i64, -20..20i64], passed in 0..100_000u64,
        max_jump in prop_oneof![0..50_000u64, 0..20u64],
    ) {
        let mut reservation = Reservation::default();
        let start = Clocks { now: 1_000_000, boot_ms: 5000 };
        prop_assert!(reservation.plan(start, 0, no_leap_over(0)).is_ok(), "the first renewal has no measure");
        reservation.publish(1, false, start, 0);
        let later = Clocks {
            now: (start.now + passed).saturating_add_signed(step),
            boot_ms: start.boot_ms + passed,
        };
        // Less than 10 ms may be the time between two readings.
        let leapt = step > max_jump as i64 && step >= 10;
        let refusal = reservation.plan(later, 0, no_leap_over(max_jump)).err();
        prop_assert_eq!(refusal, leapt.then_some(Unplanned::Leap { by_ms: step.unsigned_abs() }));
        prop_assert!(reservation.plan(later, 0, ANY).is_ok(), "any leap is allowed");
        reservation.publish(2, false, later, 0);
        let expected = (u64::from(step <= -10), u64::from(step >= 10));
        prop_assert_eq!((reservation.steps_back, reservation.steps_forward), expected);
    }
}

/// A clock that is behind the mark is no measure of a leap: the server starts under it, two calls race
/// for the first renewal, and the one that has not seen the floor must not renew. Found by
/// `make faults SEED=20261121`: with the clock right again, every call failed.
#[test]
fn no_renewal_under_a_clock_behind_the_mark() {
    const DAY_MS: u64 = 86_400_000;
    let mark = 10 * DAY_MS;
    let mut reservation = Reservation::default();
    reservation.load(mark);
    let behind = Clocks { now: mark - DAY_MS, boot_ms: 1000 };
    assert_eq!(reservation.plan(behind, behind.now, no_leap_over(0)), Err(Unplanned::Stale));
    let right = Clocks { now: mark + 5, boot_ms: 2000 };
    assert_eq!(reservation.plan(right, right.now, no_leap_over(0)), Ok(Plan::Write(mark + 15)));
}

/// A tick read from a clock that leapt, and was set right before the renewal read it again, must not
/// become the mark: no leap is to be seen any more, and the mark could not be lowered.
#[test]
fn no_mark_for_a_tick_of_a_clock_since_set_right() {
    let mut reservation = Reservation::default();
    let right = Clocks { now: 1_000_000, boot_ms: 1000 };
    reservation.publish(1_000_010, false, right, 0);
    let rules = Rules { max_ahead: 1000, reserve_ahead: 1000, max_jump: Some(50), standbys: false };
    assert_eq!(reservation.plan(right, 900_000_000, rules), Err(Unplanned::Stale));
    assert_eq!(reservation.plan(right, 1_001_000, rules), Ok(Plan::Write(1_002_000)));
}

/// A clock that was set back may be set right again, whatever was renewed in between.
#[test]
fn a_clock_set_right_again_is_no_leap() {
    let mut reservation = Reservation::default();
    let at = |now, boot_ms| Clocks { now, boot_ms };
    reservation.publish(1, false, at(1_000_000, 0), 0);
    reservation.publish(2, false, at(400_000, 100), 0);
    assert!(reservation.plan(at(1_000_200, 200), 0, no_leap_over(50)).is_ok());
    let leap = reservation.plan(at(1_000_300, 200), 0, no_leap_over(50));
    assert_eq!(leap, Err(Unplanned::Leap { by_ms: 100 }));
    // Both clocks are cut to milliseconds: a steady one may seem to gain one, and that is no leap.
    assert!(reservation.plan(at(1_000_201, 200), 0, no_leap_over(0)).is_ok());
}

/// A backend that dies while it renews keeps the others off for a moment only.
#[test]
fn a_claim_ends_by_itself() {
    let mut reservation = Reservation::default();
    assert!(reservation.claim(1000));
    assert!(!reservation.claim(1000) && !reservation.claim(1000 + CLAIM_MS - 1));
    reservation.keep_claim(1050);
    assert!(!reservation.claim(1000 + CLAIM_MS), "kept");
    assert!(reservation.claim(1050 + CLAIM_MS), "given up by nobody, and free");
    reservation.release();
    assert!(reservation.claim(1051 + CLAIM_MS), "given up");
}

/// Promise 1: what was published while no standby had to acknowledge it is no limit once one has to. A mark is
/// written anew then, for a standby that has the old one already would not tell so, and that one is waited for
/// by all who come until it is acknowledged.
#[test]
fn a_limit_that_was_not_acknowledged_ends_where_synchronous_replication_begins() {
    let mut reservation = Reservation::default();
    let clocks = Clocks { now: 100, boot_ms: 0 };
    assert_eq!(reservation.plan(clocks, 100, ANY), Ok(Plan::Write(110)));
    reservation.wrote(Mark { tick: 110, lsn: 7 }, false);
    reservation.publish(110, false, clocks, 0);
    assert_eq!((reservation.limit(false), reservation.limit(true)), (110, 0));
    let synchronous = Rules { standbys: true, ..ANY };
    assert_eq!(reservation.plan(clocks, 95, synchronous), Ok(Plan::Write(110)));
    let mark = Mark { tick: 110, lsn: 8 };
    reservation.wrote(mark, true);
    assert_eq!(
        reservation.plan(clocks, 95, synchronous),
        Ok(Plan::Await(mark)),
        "a call that failed left it"
    );
    reservation.publish(110, true, clocks, 0);
    assert_eq!(reservation.limit(true), 110);
    assert_eq!(reservation.plan(clocks, 105, synchronous), Ok(Plan::Write(115)), "half of it is used up");
}

/// The mark is renewed at half of the window, and not beyond the end of the range.
#[test]
fn the_window_runs_low_at_its_half() {
    assert!(!runs_low(100, 601, 1000) && runs_low(100, 600, 1000) && runs_low(900, 600, 1000));
    assert!(!runs_low(MAX_TICK, MAX_TICK + 1, 1000));
    let reservation = Reservation::default();
    let clocks = Clocks { now: MAX_TICK, boot_ms: 0 };
    assert_eq!(reservation.plan(clocks, MAX_TICK, ANY), Ok(Plan::Write(MAX_TICK + 1)));
}

// The epoch ---------------------------------------------------------------------------------------

#[test]
fn epochs_are_read() {
    let ms = |text| Epoch::parse(text).map(Epoch::unix_ms);
    assert_eq!(ms("2025-01-01T00:00:00Z"), Ok(1_735_689_600_000));
    assert_eq!(ms("2025-01-01T01:00:00+01:00"), Ok(1_735_689_600_000));
    assert_eq!(ms("2011-08-24T21:07:01.721Z"), Ok(1_314_220_021_721));
    assert_eq!(ms(" 1314220021721 "), Ok(1_314_220_021_721));
    assert_eq!(ms("-1"), Ok(-1));
    assert_eq!(ms("1969-12-31T23:59:59.999Z"), Ok(-1));
    assert_eq!(ms("0001-01-01T00:00:00Z"), Ok(Epoch::MIN_UNIX_MS));
    assert_eq!(ms("9999-12-31T23:59:59.999Z"), Ok(Epoch::MAX_UNIX_MS));
    for text in ["", "yesterday", "2025-01-01", "2025-01-01T00:00:00", "2025-13-01T00:00:00Z", "1e9", "1.5"] {
        assert_eq!(ms(text), Err(BadEpoch::Form), "{text}");
    }
    assert_eq!(ms("2025-01-01T00:00:00.0001Z"), Err(BadEpoch::Fraction));
    for text in ["0000-12-31T23:59:59Z", "253402300800000", "-62135596800001", "99999999999999999999999"] {
        assert_eq!(ms(text), Err(BadEpoch::Range), "{text}");
    }
}

proptest! {
    /// Promise 5: a bad setting is refused, never a panic.
    #[test]
    fn any_text_is_read_or_refused(
        text in prop_oneof![
            any::<String>(),
            "[0-9TtZz:+. -]{0,40}",
            "[0-9+, -]{0,40}",
            "[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{0,12})?([Zz]|[+-][0-9]{2}:[0-9]{2})",
        ],
    ) {
        let _ = Epoch::parse(&text);
        let _ = ShardSet::parse(&text);
    }

    /// Timestamps and ticks are inverse over the whole range, at every epoch that can be set.
    #[test]
    fn ticks_and_timestamps_are_inverse(
        ms in Epoch::MIN_UNIX_MS..=Epoch::MAX_UNIX_MS, tick in 0..=MAX_TICK, us in 0..1000i64,
    ) {
        let epoch = Epoch::from_unix_ms(ms).unwrap();
        let at = epoch.timestamp_of(tick);
        prop_assert_eq!(epoch.tick_of(at + us), Some(tick), "cut to its millisecond");
        prop_assert_eq!(timestamp_since(epoch.timestamp(), tick), Some(at));
        prop_assert_eq!(epoch.tick_of(epoch.timestamp() - 1 - us), None);
        prop_assert_eq!(epoch.tick_of(epoch.timestamp_of(MAX_TICK) + 1000 + us), None);
    }

    /// No moment makes the conversion overflow.
    #[test]
    fn any_timestamp_is_converted_or_refused(timestamp: i64, tick in 0..=MAX_STORED_TICK) {
        for ms in [Epoch::MIN_UNIX_MS, 0, Epoch::MAX_UNIX_MS] {
            let epoch = Epoch::from_unix_ms(ms).unwrap();
            prop_assert!(epoch.tick_of(timestamp).is_none_or(|tick| tick <= MAX_TICK));
        }
        prop_assert!(timestamp_since(timestamp, tick).is_none_or(|t| t >= timestamp));
    }
}

#[test]
fn infinities_are_no_epoch() {
    assert_eq!(timestamp_since(INFINITY, 0), None);
    assert_eq!(timestamp_since(MINUS_INFINITY, 0), None);
    for at in [INFINITY, MINUS_INFINITY] {
        assert_eq!(Epoch::from_unix_ms(0).unwrap().tick_of(at), None);
    }
}

// Sets of shards ----------------------------------------------------------------------------------

proptest! {
    /// `idgen.allowed_shards` means what it says.
    #[test]
    fn a_list_of_ranges_is_their_union(ranges in vec((0..8192usize, 0..300usize), 1..20)) {
        let ranges: Vec<_> = ranges.into_iter().map(|(from, more)| from..=(from + more).min(8191)).collect();
        let text = ranges
            .iter()
            .map(|r| if r.start() == r.end() { r.start().to_string() } else { format!("{} - {}", r.start(), r.end()) })
            .collect::<Vec<_>>()
            .join(", ");
        let expected: BTreeSet<usize> = ranges.into_iter().flatten().collect();
        let set = ShardSet::parse(&text).unwrap();
        let found: BTreeSet<usize> = Shard::all().filter(|s| set.contains(*s)).map(Shard::index).collect();
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn lists_of_shards_at_the_edges() {
    assert_eq!(ShardSet::parse(" "), Ok(ShardSet::ALL));
    assert_eq!(ShardSet::parse("0-8191"), Ok(ShardSet::ALL));
    for text in ["8192", "-1", "5-", "7-3", "a", "1,,2", "1-2-3", "1;2", "99999999999999999999"] {
        assert!(ShardSet::parse(text).is_err(), "{text}");
    }
}

// Layouts of other systems --------------------------------------------------------------------------

fn take_apart(id: i64, layout: &str) -> Fields {
    Layout::find(layout).unwrap().fields(id).unwrap()
}

fn unix_ms(id: i64, layout: &str) -> i64 {
    Layout::find(layout).unwrap().epoch.unwrap().unix_ms() + take_apart(id, layout).ms as i64
}

/// Ids that were published together with what is in them.
#[test]
fn published_ids_decode_as_published() {
    let parts = |id, layout| {
        let Fields { shard, sequence, gene, .. } = take_apart(id, layout);
        (unix_ms(id, layout), shard, sequence, gene)
    };
    // The example of Instagram's article.
    let expected = (1_314_220_021_721 + 1_387_263_000, Some(1341), Some(905), None);
    assert_eq!(parts(11_637_205_501_278_089, "instagram"), expected);
    // A post whose "taken_at_timestamp" is 1512340310 (InstaPy/instapy-research, post_page_basic.md).
    assert_eq!(unix_ms(1_661_953_437_569_832_666, "instagram") / 1000, 1_512_340_310);
    // The tweet of Wikipedia's article "Snowflake ID".
    assert_eq!(parts(1_541_815_603_606_036_480, "twitter"), (1_656_432_460_105, Some(378), Some(0), None));
    // The example of Discord's reference: worker 1, process 0, increment 7.
    assert_eq!(parts(175_928_847_299_117_063, "discord"), (1_462_015_105_796, Some(1 << 5), Some(7), None));
    // The README of discord-snowflake (npm): worker 0, process 3.
    assert_eq!(parts(90_339_695_967_350_784, "discord"), (1_441_609_061_949, Some(3), Some(0), None));
    // The example of a status in Mastodon's documentation, "created_at" 2019-12-08T03:48:33.901Z: the row
    // gets that and its id within the same second.
    let (ms, shard, ..) = parts(103_270_115_826_048_975, "mastodon");
    assert_eq!((ms / 1000, shard), (1_575_776_913, None));
    // The documentation of pgEdge's get_epoch and to_timestamp. Its node and count are from a version with
    // the other order.
    assert_eq!(unix_ms(136_169_504_773_242_881, "pgedge"), 1_704_996_539_845);
    // The comment on decodeSnowflakeId in LeafMonitorController.java shows the parts of an id.
    let id = (1_567_733_700_834 - 1_288_834_974_657) << 22 | 39 << 12 | 3448;
    assert_eq!(parts(id, "leaf"), (1_567_733_700_834, Some(39), Some(3448), None));
    // sony/sonyflake, issue 33 of 2022-07-19: the time part of an id of that day.
    let day = |ms| ms / 86_400_000;
    assert_eq!(day(unix_ms(24_869_724_975 << 24, "sonyflake")), day(1_658_188_800_000));
    // DefaultUidGenerator.java: the range ends at 2024-11-20 21:24:16, which is in China's time.
    assert_eq!(unix_ms(i64::MAX, "baidu"), 1_732_109_056_000 - 1000);
}

/// Where the parts lie in systems that publish no example with all of them.
#[test]
fn parts_lie_where_their_systems_put_them() {
    let ms_1_to_3 =
        |shard, sequence| Fields { ms: 1, shard: Some(shard), sequence: Some(sequence), gene: None };
    assert_eq!(take_apart(1 << 22 | 2 << 12 | 3, "pgedge"), ms_1_to_3(2, 3));
    assert_eq!(take_apart(1 << 24 | 3 << 16 | 2, "sonyflake"), Fields { ms: 10, ..ms_1_to_3(2, 3) });
    assert_eq!(take_apart(1 << 35 | 2 << 13 | 3, "baidu"), Fields { ms: 1000, ..ms_1_to_3(2, 3) });
    assert_eq!(take_apart(1 << 20 | 2 << 12 | 3, "js53"), Fields { ms: 1000, ..ms_1_to_3(2, 3) });
    assert_eq!(
        take_apart(1 << 22 | 2 << 16 | 3 << 4 | 4, "gene"),
        Fields { gene: Some(4), ..ms_1_to_3(2, 3) }
    );
}

#[test]
fn layouts_describe_themselves() {
    let bits: BTreeMap<_, _> =
        LAYOUTS.iter().map(|layout| (layout.name, (layout.bits(), layout.unit()))).collect();
    assert_eq!(bits.len(), LAYOUTS.len(), "names differ");
    assert!(LAYOUTS.iter().all(|layout| !layout.used_by.is_empty()));
    let described = |name: &str| (bits[name].0.as_str(), bits[name].1.as_str());
    assert_eq!(described("instagram"), ("41 time, 13 shard, 10 sequence", "1 ms"));
    assert_eq!(described("sonyflake"), ("39 time, 8 sequence, 16 shard", "10 ms"));
    assert_eq!(described("gene"), ("41 time, 6 shard, 12 sequence, 4 gene", "1 ms"));
    assert!(Layout::find("Twitter").is_none() && Layout::find("").is_none());
    assert_eq!(Layout::find("js53").unwrap().max_id(), (1 << 52) - 1);
    assert_eq!(Layout::find("twitter").unwrap().max_id(), u64::MAX);
}

proptest! {
    /// Promise 5: any word decodes by any layout that has its bits, and to a moment that PostgreSQL can
    /// represent, whatever the epoch.
    #[test]
    fn any_word_is_taken_apart_or_refused(word in prop_oneof![any::<u64>(), 0..1u64 << 53]) {
        for layout in &LAYOUTS {
            let fields = layout.fields(word.cast_signed());
            prop_assert_eq!(fields.is_some(), word <= layout.max_id());
            let Some(fields) = fields else { continue };
            prop_assert_eq!(fields.shard.is_some(), layout.shard.is_some());
            prop_assert!(fields.sequence.is_some());
            let numbers = [fields.shard, fields.sequence, fields.gene];
            prop_assert!(numbers.into_iter().flatten().all(|number| number >= 0));
            for unix_ms in [Epoch::MIN_UNIX_MS, Epoch::MAX_UNIX_MS] {
                let epoch = Epoch::from_unix_ms(unix_ms).unwrap();
                let at = fields.created_at(epoch);
                prop_assert_eq!(timestamp_since(epoch.timestamp(), fields.ms), Some(at));
            }
        }
    }

    /// By name or without: idgen's own layout is one and the same.
    #[test]
    fn the_own_layout_has_a_name(id: i64) {
        let Parts { tick, shard, sequence } = decompose(id);
        let (shard, sequence) = (Some(shard.into()), Some(sequence.into()));
        let expected = Fields { ms: tick, shard, sequence, gene: None };
        prop_assert_eq!(take_apart(id, "idgen"), expected);
        prop_assert_eq!(take_apart(id, "instagram"), expected);
    }
}

// Other forms of an id ------------------------------------------------------------------------------

/// Media ids and the codes in the links to them, as published: slang.cx/instagram-id,
/// InstaPy/instapy-research, a question of 2021-11-27 on CWvxAY7B0ci, and a post on FastAPI.
#[test]
fn published_short_codes() {
    for (id, code) in [
        (908_540_701_891_980_503, "ybyPRoQWzX"),
        (1_661_953_437_569_832_666, "BcQcdiXltba"),
        (2_715_604_631_366_879_010, "CWvxAY7B0ci"),
        (2_805_452_400_384_505_271, "Cbu-BgfL3W3"),
    ] {
        assert_eq!(shortcode(id), code);
        assert_eq!(from_shortcode(code), Ok(id));
    }
}

#[test]
fn forms_at_the_edges() {
    for (id, code, sortable) in [
        (0, "A", "8000000000000"),
        (1, "B", "8000000000001"),
        (63, "_", "800000000001Z"),
        (64, "BA", "8000000000020"),
        (i64::MAX, "H__________", "FZZZZZZZZZZZZ"),
        (i64::MIN, "IAAAAAAAAAA", "0000000000000"),
        (-1, "P__________", "7ZZZZZZZZZZZZ"),
    ] {
        assert_eq!((shortcode(id).as_str(), text(id).as_str()), (code, sortable));
        assert_eq!((from_shortcode(code), from_text(sortable)), (Ok(id), Ok(id)));
    }
    let no_digit = |character, position| Err(BadText::Character { character, position });
    for (code, why) in [
        ("", Err(BadText::Length(0))),
        ("BBBBBBBBBBBB", Err(BadText::Length(12))),
        ("é", no_digit('é', 1)),
        ("éééééééééééé", Err(BadText::Length(12))),
        ("Bé+", no_digit('é', 2)),
        ("B+", no_digit('+', 2)),
        (" B", no_digit(' ', 1)),
        ("B=", no_digit('=', 2)),
        ("AB", Err(BadText::LeadingZero)),
        ("AA", Err(BadText::LeadingZero)),
        ("QAAAAAAAAAA", Err(BadText::TooGreat)),
        ("___________", Err(BadText::TooGreat)),
    ] {
        assert_eq!(from_shortcode(code), why, "{code}");
    }
    for (sortable, why) in [
        ("", Err(BadText::Length(0))),
        ("800000000000", Err(BadText::Length(12))),
        ("80000000000000", Err(BadText::Length(14))),
        ("800000000000z", no_digit('z', 13)),
        ("8O00000000000", no_digit('O', 2)),
        ("8-00000000000", no_digit('-', 2)),
        ("\u{200b}000000000000", no_digit('\u{200b}', 1)),
        ("G000000000000", Err(BadText::TooGreat)),
        ("ZZZZZZZZZZZZZ", Err(BadText::TooGreat)),
    ] {
        assert_eq!(from_text(sortable), why, "{sortable}");
    }
}

proptest! {
    /// Each form leads back to its id.
    #[test]
    fn forms_are_undone(id in prop_oneof![any::<i64>(), -5000..5000i64]) {
        prop_assert_eq!(from_shortcode(&shortcode(id)), Ok(id));
        prop_assert_eq!(from_text(&text(id)), Ok(id));
        prop_assert_eq!(scatter(scatter(id)), id);
    }

    /// Promise 5: any text is refused, or is the one text of its id.
    #[test]
    fn any_text_is_the_text_of_its_id_or_refused(
        any in ".{0,15}", code in "[A-Za-z0-9_-]{0,12}",
        sortable in "[0-9A-Za-z]{12,14}|[0-9A-HJKMNP-TV-Z]{13}",
    ) {
        for given in [any, code, sortable] {
            if let Ok(id) = from_shortcode(&given) {
                prop_assert_eq!(shortcode(id), given.as_str());
            }
            if let Ok(id) = from_text(&given) {
                prop_assert_eq!(text(id), given.as_str());
            }
        }
    }

    /// The texts, compared byte by byte, are in the order of the ids.
    #[test]
    fn texts_sort_as_their_ids(a: i64, b: i64, near in -70..70i64) {
        for b in [b, a.saturating_add(near), a ^ i64::MIN, 0] {
            prop_assert_eq!(text(a).as_bytes().cmp(text(b).as_bytes()), a.cmp(&b));
        }
    }

    /// 2^n ids in a row fall into all 2^n equal parts of the range, one into each.
    #[test]
    fn neighbours_are_scattered_over_the_whole_range(first: i64, n in 1..12u32) {
        let parts: HashSet<i64> =
            (0..1 << n).map(|k| scatter(first.wrapping_add(k)) >> (64 - n)).collect();
        prop_assert_eq!(parts.len(), 1 << n);
    }
}

/// What PostgreSQL's CheckPointReplicationOrigin() writes for these origins.
fn saved(origins: &[u16]) -> Vec<u8> {
    let mut file = 0x1257_DADE_u32.to_ne_bytes().to_vec();
    for origin in origins {
        file.extend(origin.to_ne_bytes());
        file.extend([0; 6]);
        file.extend(0x000F_00BA_u64.to_ne_bytes());
    }
    file.extend([0x12, 0x34, 0x56, 0x78]); // the checksum
    file
}

proptest! {
    /// A server learns from what its last checkpoint saved how many origins it needs room for; where that is
    /// cut short or something else, it does not guess.
    #[test]
    fn saved_origins_are_counted(mut origins in vec(1..MARK_ORIGIN, 0..20), mark: bool, place: usize) {
        if mark {
            origins.insert(place % (origins.len() + 1), MARK_ORIGIN);
        }
        let file = saved(&origins);
        let counted = Origins::saved(&file).unwrap();
        prop_assert_eq!(counted, Origins { in_use: origins.len(), with_mark: mark });
        prop_assert_eq!(counted.needed(), origins.len() + usize::from(!mark));
        prop_assert_eq!(Origins::saved(&file[1..]), None);
        let cut = place % file.len();
        let whole_states = cut >= 8 && (cut - 8) % 16 == 0;
        prop_assert_eq!(Origins::saved(&file[..cut]).is_some(), whole_states);
    }

    #[test]
    fn any_file_of_saved_origins_is_read_or_refused(bytes: Vec<u8>, states in vec(any::<u8>(), 0..100)) {
        Origins::saved(&bytes);
        let file = [&saved(&[])[..4], &states].concat();
        prop_assert_eq!(Origins::saved(&file).is_some(), states.len() % 16 == 4);
    }
}
