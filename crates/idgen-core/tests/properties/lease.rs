use idgen_core::lease::Lease;
use idgen_core::position::{Position, Run};
use idgen_core::slot::{Bounds, Slot};
use idgen_ids::Shard;
use idgen_ids::id::MAX_TICK;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::shard;

/// Bounds set only by the clock.
fn bounds(now: u64, max_ahead: u64, queue: u64) -> Bounds {
    Bounds { now, floor: 0, max_ahead, queue, limit: MAX_TICK + 1 }
}

/// A position for a backend, taken in the same way as in the module mint.
fn next(lease: &mut Lease, slot: &mut Slot<Shard>, bounds: Bounds, max_lease: u64) -> Position<Shard> {
    let now = bounds.now;
    lease.next(shard(5), now, bounds.floor).unwrap_or_else(|| {
        let run = slot.take(lease.want(shard(5), now, max_lease), true, &bounds).unwrap();
        lease.grant(shard(5), now, run)
    })
}

/// How often the low bits of ids, below N, occur in N visits of `calls` calls each to a shard. All calls of a visit
/// begin in one millisecond.
fn low_bits<const N: usize>(calls: usize, gap: u64, max_ahead: u64) -> [usize; N] {
    let (mut slot, mut lease) = (Slot::default(), Lease::NONE);
    let mut counts = [0; N];
    for visit in 1..=N as u64 {
        for _ in 0..calls {
            let position = next(&mut lease, &mut slot, bounds(visit * gap, max_ahead, 0), 64);
            counts[position.sequence() as usize % N] += 1;
        }
    }
    counts
}

/// A call that is under way.
#[derive(Clone, Copy)]
struct Call {
    /// The millisecond it began in.
    began: u64,
    /// The step it began at.
    from: usize,
    /// The run for which the call waits.
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
    /// Promises 1, 2 and 3 with backends that take leases and queue for a full shard, under any clock, also while the
    /// shard runs far ahead of it. A call takes its run, waits while others call, and returns when the clock has
    /// reached it, or later. The millisecond of an id is not before its call, and the id is greater than those of all
    /// calls that ended in a millisecond before the one in which its call began; with leases of one id, than those of
    /// all calls that ended before it.
    #[test]
    fn leases_keep_the_promises(
        steps in vec((0..4usize, prop_oneof![12 => Just(0i64), 3 => 1..3i64, 1 => Just(-2i64)]), 1..800),
        back in any::<bool>(), max_lease in prop_oneof![1..3u64, 1..600u64],
        (first, max_ahead) in prop_oneof![(Just(0), 0..3u64), Just((500, 1000))], queue in 0..4u64,
    ) {
        let mut slot = Slot { next: Position::first_of(first), ..Slot::default() };
        let mut leases = [Lease::NONE; 4];
        let mut calls = [None; 4];
        let mut ids: Vec<Minted> = Vec::new();
        let mut now = 100u64;
        for (at, (who, step)) in steps.into_iter().enumerate() {
            now = now.saturating_add_signed(if back { step } else { step.max(0) });
            let lease = &mut leases[who];
            let call = calls[who].unwrap_or(Call { began: now, from: at, run: None });
            let minted = match call.run {
                Some(run) if run.due(max_ahead) > now => None,
                Some(run) => Some(lease.grant(shard(5), run.due(max_ahead), run)),
                None => lease.next(shard(5), now, 0).or_else(|| {
                    let want = lease.want(shard(5), now, max_lease);
                    let run = slot.take(want, true, &bounds(now, max_ahead, queue)).ok()?;
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

    /// Promise 3: no id below a raised floor is handed out, whatever the lease still holds.
    #[test]
    fn a_raised_floor_drops_the_lease(floor in 0..20u64, max_lease in 1..80u64) {
        let (mut slot, mut lease) = (Slot::default(), Lease::NONE);
        for _ in 0..10 {
            next(&mut lease, &mut slot, bounds(10, 50, 0), max_lease);
        }
        let raised = Bounds { floor, ..bounds(10, 50, 0) };
        prop_assert!(next(&mut lease, &mut slot, raised, max_lease).tick() >= floor);
    }

    /// Even low bits: `id % N` over the ids of a quiet shard hits every bucket equally often.
    #[test]
    fn the_low_bits_of_a_quiet_shard_are_evenly_spread(calls in 1..200usize, gap in 1..5000u64) {
        prop_assert_eq!(low_bits::<256>(calls, gap, 0), [calls; 256]);
    }

    /// A load that does not fill its milliseconds uses every sequence equally often, so that as few of its ids as
    /// possible have the same hash. The last calls of a visit may reach into the next millisecond.
    #[test]
    fn a_load_uses_all_sequences(calls in 1..200usize, gap in 2..5000u64) {
        prop_assert_eq!(low_bits::<1024>(calls, gap, 1), [calls; 1024]);
    }

    /// Promise 1 and even low bits: resetting the counters at any time moves no position back, and the ids of a
    /// quiet shard are then as evenly spread as before.
    #[test]
    fn a_reset_of_the_counters_moves_no_position(
        before in vec((0..3u64, 1..100u64), 1..50), gap in 1..5000u64,
    ) {
        let (mut slot, mut now) = (Slot::<Shard>::default(), 0);
        for (step, want) in before {
            now += step;
            let next = slot.take(want, true, &bounds(now, 1000, 0)).unwrap().end;
            slot.reset_counters();
            prop_assert_eq!(slot, Slot { next, ..Slot::default() });
            prop_assert_eq!(slot.last(), next.previous());
        }
        let mut buckets = [0; 1024];
        now += 1000;    // idle by then
        for _ in 0..1024 {
            now += gap;
            let run = slot.take(1, true, &bounds(now, 1000, 0)).unwrap();
            buckets[run.start.sequence() as usize] += 1;
        }
        prop_assert_eq!(buckets, [1; 1024]);
    }
}
