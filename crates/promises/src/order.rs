//! The order in which a server has given the positions of a slot.

/// The order of the positions of a slot. Each bound is the position after the last one that it covers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    /// The first position that the server has given, and the bound of all of them.
    pub given: Option<(u64, u64)>,
    /// The bound of earlier incarnations of the server.
    pub earlier: u64,
    /// The bound of what `snowflake_advance` has passed over in this incarnation, and how far ahead of the clock its
    /// caller was allowed to be.
    pub passed: (u64, u64),
    /// The bound of all calls that have ended.
    pub next: u64,
    /// The milliseconds in which calls have ended since the clock last showed them, each with the bound of the calls up
    /// to it.
    pub steps: Vec<(u64, u64)>,
}

impl Order {
    /// The bound of calls that ended in an earlier millisecond.
    pub fn before(&self, ms: u64) -> u64 {
        self.steps.iter().rev().find(|(ended, _)| *ended < ms).map_or(0, |(_, next)| *next)
    }

    pub fn ended(&mut self, ms: u64, next: u64) {
        self.next = self.next.max(next);
        match self.steps.last_mut() {
            Some((ended, greatest)) if *ended >= ms => *greatest = next.max(*greatest),
            last => {
                let next = last.map_or(next, |(_, greatest)| next.max(*greatest));
                self.steps.push((ms, next));
            }
        }
    }

    /// Notes that the clock was set to `ms`, so that later milliseconds are repeated.
    pub fn set_back(&mut self, ms: u64) {
        while self.steps.pop_if(|(ended, _)| *ended >= ms).is_some() {}
    }

    /// The bound of everything that a server leaves if it loses nothing.
    pub fn left(&self) -> u64 {
        self.earlier.max(self.next).max(self.passed.0)
    }

    /// Begins the next incarnation of the server.
    pub fn restart(&mut self, earlier: u64) {
        *self = Order { given: self.given, earlier, next: self.next, ..Order::default() };
    }
}
