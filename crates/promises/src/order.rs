//! In which order the ids of a slot have come out of a server.

use crate::Caller;

/// A position that later ids may not be below, and the call whose last id is before it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bound {
    pub least: u64,
    pub by: Caller,
}

impl Bound {
    pub fn max(self, other: Bound) -> Bound {
        if other.least > self.least { other } else { self }
    }
}

/// The order of the ids of a slot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    /// What earlier incarnations of the server have left.
    pub earlier: Bound,
    /// What `snowflake_advance` has passed over in this incarnation, and how far ahead of the clock its caller was
    /// allowed.
    pub passed: (u64, u64),
    /// After the greatest of all.
    pub next: Bound,
    /// After the greatest up to a millisecond, for each in which a call has ended since the clock was there last.
    steps: Vec<(u64, Bound)>,
}

impl Order {
    /// After the greatest of calls that ended in an earlier millisecond.
    pub fn before(&self, ms: u64) -> Bound {
        let earlier = self.steps.iter().rev().find(|(ended, _)| *ended < ms);
        earlier.map_or(Bound::default(), |(_, next)| *next)
    }

    pub fn ended(&mut self, ms: u64, next: Bound) {
        self.next = self.next.max(next);
        match self.steps.last_mut() {
            Some((ended, greatest)) if *ended >= ms => *greatest = greatest.max(next),
            last => {
                let next = last.map_or(next, |(_, greatest)| greatest.max(next));
                self.steps.push((ms, next));
            }
        }
    }

    /// The clock was set to this, and shows what comes after for the second time.
    pub fn set_back(&mut self, ms: u64) {
        while self.steps.pop_if(|(ended, _)| *ended >= ms).is_some() {}
    }

    fn left(&self) -> Bound {
        let passed = Bound { least: self.passed.0, by: Caller::default() };
        self.earlier.max(self.next).max(passed)
    }

    /// The server restarts.
    pub fn begin(&mut self) {
        *self = Order { earlier: self.left(), next: self.next, ..Order::default() };
    }

    /// The server restarts with less than it, or another one, had, and with its clock past all ids that were given.
    pub fn lose(&mut self, other: Bound) {
        *self = Order { earlier: self.next.max(other), next: self.next, ..Order::default() };
    }

    /// The server takes over from another one.
    pub fn take_over(&mut self, other: &Order) {
        self.earlier = self.earlier.max(other.left());
        self.begin();
    }
}
