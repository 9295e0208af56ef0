//! Shrinks a world that fails, as long as it fails the same way.

use crate::judge::{Failure, Promise};
use crate::plan::{Event, Names, Plan};
use crate::world::live_through;

/// The greatest number of worlds to try.
const TRIES: usize = 3000;

/// The number of schedules to try for a smaller world, because omitting an event changes all later random choices.
const SCHEDULES: u64 = 10;

struct Shrinking {
    plan: Plan,
    failure: Failure,
    only: Option<Promise>,
    tries: usize,
}

/// The smallest world found, and its failure.
pub fn shrink(plan: &Plan, failure: Failure, only: Option<Promise>) -> (Plan, Failure) {
    let mut shrinking = Shrinking { plan: plan.clone(), failure, only, tries: 0 };
    shrinking.cut();
    loop {
        let before = shrinking.tries;
        let smaller = shrinking.drop_events() | shrinking.simplify();
        if !smaller || shrinking.tries >= TRIES || shrinking.tries == before {
            return (shrinking.plan, shrinking.failure);
        }
    }
}

impl Shrinking {
    /// Adopts this plan if it breaks the same promise.
    fn try_plan(&mut self, plan: Plan) -> bool {
        for schedule in 0..SCHEDULES {
            if self.tries >= TRIES {
                return false;
            }
            self.tries += 1;
            let plan = Plan { schedule: self.plan.schedule + schedule, ..plan.clone() };
            if let Some(failure) = live_through(&plan, self.only, false).failure
                && failure.promise == self.failure.promise
            {
                (self.plan, self.failure) = (plan, failure);
                self.cut();
                return true;
            }
        }
        false
    }

    /// Drops the events after the failure, which changes nothing.
    fn cut(&mut self) {
        let end = self.failure.at;
        self.plan.events.retain(|event| event.at <= end);
    }

    /// Leaves out halves of the events, then quarters, and so on down to single events.
    fn drop_events(&mut self) -> bool {
        let mut smaller = false;
        let mut length = self.plan.events.len().div_ceil(2);
        while length > 0 {
            let mut from = 0;
            while from < self.plan.events.len() {
                let mut events: Vec<Event> = self.plan.events.clone();
                events.drain(from..(from + length).min(events.len()));
                if self.try_plan(Plan { events, ..self.plan.clone() }) {
                    smaller = true;
                } else {
                    from += length;
                }
            }
            length /= 2;
        }
        smaller
    }

    fn simplify(&mut self) -> bool {
        let Plan { backends, shards, hosts, other, raises, .. } = self.plan;
        let mut smaller = false;
        let mut attempt = |change: &dyn Fn(&mut Plan)| {
            let mut plan = self.plan.clone();
            change(&mut plan);
            smaller |= self.try_plan(plan);
        };
        if backends > 1 {
            attempt(&|plan| plan.backends -= 1);
        }
        if shards > 1 {
            attempt(&|plan| plan.shards -= 1);
        }
        if hosts > 1 {
            attempt(&|plan| {
                plan.hosts -= 1;
                plan.names = Names::None;
                plan.events.retain(|event| !event.fault.names_host(hosts - 1));
            });
        }
        if other || raises {
            attempt(&|plan| plan.raises = false);
            attempt(&|plan| plan.other = false);
        }
        if self.plan.horizons || self.plan.prepares {
            let mut plan = self.plan.clone();
            (plan.horizons, plan.prepares) = (false, false);
            smaller |= self.try_plan(plan);
        }
        smaller
    }
}
