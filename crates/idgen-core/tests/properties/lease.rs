use std::collections::HashSet;

use idgen_core::lease::Lease;
use idgen_core::position::{Position, Run};
use idgen_core::slot::{Bounds, Refusal, Slot};
use idgen_ids::Shard;
use idgen_ids::id::MAX_TICK;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::shard;

/// A backend as the module mint drives it.
struct Backend(Lease);

impl Backend {
    fn id(
        &mut self,
        slot: &mut Slot<Shard>,
        bounds: &Bounds,
        max_lease: u64,
    ) -> Result<Position<Shard>, Refusal> {
        let now = bounds.now;
        if let Some(position) = self.0.next(shard(5), now, bounds.floor) {
            return Ok(position);
        }
        let run = slot.take(self.0.want(shard(5), now, max_lease), bounds)?;
        Ok(self.0.grant(shard(5), now, run))
    }
}

/// A call that is under way.
#[derive(Clone, Copy)]
struct Call {
    /// The millisecond it began in.
    began: u64,
    /// The step it began at.
    from: usize,
    /// The run for which it waits.
    run: Option<Run<Shard>>,
}

/// The result of a call.
struct Minted {
    who: usize,
    /// The millisecond the call ended in.
    ended: u64,
    /// The step it ended at.
    to: usize,
    position: Position<Shard>,
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
                prop_assert!((now..=now + max_ahead).contains(&position.tick()));
            }
        }
    }

    /// Promise 2: sorted to the millisecond across backends, also while the shard runs ahead of the
    /// clock. With runs of one, strictly.
    #[test]
    fn ids_of_different_backends_are_in_order(
        calls in vec((0..4usize, 0..3u64), 1..600), max_lease in 1..80u64,
    ) {
        // Far ahead from the start, where a lease that outlives its millisecond would show.
        let mut slot = Slot { next: Position::first_of(500), ..Slot::default() };
        let mut backends = [const { Backend(Lease::NONE) }; 4];
        let mut ids: Vec<(u64, Position<Shard>)> = Vec::new();
        let mut now = 100;
        for (who, step) in calls {
            now += step / 2;
            let bounds = Bounds { now, floor: 0, max_ahead: 1000, queue: 0, limit: MAX_TICK + 1 };
            let position = backends[who].id(&mut slot, &bounds, max_lease).unwrap();
            for (earlier, smaller) in ids.iter().filter(|(then, _)| *then < now || max_lease == 1) {
                prop_assert!(*smaller < position, "{smaller:?} of {earlier} is not below {position:?} of {now}");
            }
            ids.push((now, position));
        }
    }

    /// Promises 1, 2 and 3 with backends that queue for a full shard: a call takes its run, waits while others
    /// call, and returns when the clock has reached it, or later. The millisecond of an id is not before its call,
    /// and the id is greater than those of all calls that ended in an earlier millisecond than its call began in.
    #[test]
    fn those_who_queue_keep_the_promises(
        steps in vec((0..4usize, prop_oneof![12 => Just(0i64), 3 => 1..3i64, 1 => Just(-2i64)]), 1..800),
        back in any::<bool>(), max_lease in 1..600u64, max_ahead in 0..3u64, queue in 0..4u64,
    ) {
        let mut slot = Slot::default();
        let mut backends = [const { Backend(Lease::NONE) }; 4];
        let mut calls = [None; 4];
        let mut ids: Vec<Minted> = Vec::new();
        let mut now = 100u64;
        for (at, (who, step)) in steps.into_iter().enumerate() {
            now = now.saturating_add_signed(if back { step } else { step.max(0) });
            let Backend(lease) = &mut backends[who];
            let call = calls[who].unwrap_or(Call { began: now, from: at, run: None });
            let bounds = Bounds { now, floor: 0, max_ahead, queue, limit: MAX_TICK + 1 };
            let minted = match call.run {
                Some(run) if run.due(max_ahead) > now => None,
                Some(run) => Some(lease.grant(shard(5), run.due(max_ahead), run)),
                None => lease.next(shard(5), now, 0).or_else(|| {
                    let run = slot.take(lease.want(shard(5), now, max_lease), &bounds).ok()?;
                    if run.due(max_ahead) <= now {
                        return Some(lease.grant(shard(5), now, run));
                    }
                    calls[who] = Some(Call { run: Some(run), ..call });
                    None
                }),
            };
            let Some(position) = minted else { continue };
            calls[who] = None;
            prop_assert!(position.tick() >= call.began, "older than its call");
            prop_assert!(position.tick() <= now + max_ahead, "too far ahead");
            for earlier in &ids {
                prop_assert!(earlier.position != position, "a position twice");
                let later_millisecond = !back && (earlier.ended < call.began || max_lease == 1);
                let in_order = earlier.who == who || (later_millisecond && earlier.to < call.from);
                prop_assert!(!in_order || earlier.position < position, "{:?} then {position:?}", earlier.position);
            }
            ids.push(Minted { who, ended: now, to: at, position });
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
        prop_assert!(backend.id(&mut slot, &bounds, max_lease).unwrap().tick() >= floor);
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
                let position = backend.id(&mut slot, &bounds, 64).unwrap();
                buckets[(position.sequence() & 255) as usize] += 1;
            }
        }
        prop_assert_eq!(buckets, [calls; 256]);
    }

    /// Promise 1 and even low bits: resetting the counters at any time moves no position back, and the ids of a
    /// quiet shard are then as evenly spread as before.
    #[test]
    fn a_reset_of_the_counters_moves_no_position(
        before in vec((0..3u64, 1..100u64), 1..50), gap in 1..5000u64,
    ) {
        let (mut slot, mut now) = (Slot::default(), 0);
        let take = |slot: &mut Slot<Shard>, now, want| {
            let bounds = Bounds { now, floor: 0, max_ahead: 1000, queue: 0, limit: MAX_TICK + 1 };
            slot.take(want, &bounds).unwrap()
        };
        for (step, want) in before {
            now += step;
            let next = take(&mut slot, now, want).end;
            slot.reset_counters();
            prop_assert_eq!(slot, Slot { next, ..Slot::default() });
            prop_assert_eq!(slot.last(), next.previous());
        }
        let mut buckets = [0; 256];
        now += 1000;    // idle by then
        for _ in 0..256 {
            now += gap;
            buckets[(take(&mut slot, now, 1).start.sequence() & 255) as usize] += 1;
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
    assert_eq!(slot.counters.leases, 7, "1 + 2 + 4 + 8 + 16 + 32 + 64");
    bounds.now += 1;
    backend.id(&mut slot, &bounds, 64).unwrap();
    assert_eq!(slot.counters.ids, 128, "1 again in the next millisecond");
    assert_eq!(backend.0.next(shard(6), 8, 0), None, "a lease is for one shard");
}
