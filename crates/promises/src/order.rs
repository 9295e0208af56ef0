//! In which order the positions of a slot have come out of a server.

/// The order of the positions of a slot. Each bound is the position after the last one that it covers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    /// The first position that the server has given, and the bound of all.
    pub given: Option<(u64, u64)>,
    /// What earlier incarnations of the server have left.
    pub earlier: u64,
    /// What `snowflake_advance` has passed over in this incarnation, and how far ahead of the clock its caller was
    /// allowed.
    pub passed: (u64, u64),
    /// The calls that have ended.
    pub next: u64,
    /// The calls that ended up to a millisecond, for each in which one has ended since the clock was there last.
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

    /// The clock was set to this, and shows what comes after for the second time.
    pub fn set_back(&mut self, ms: u64) {
        while self.steps.pop_if(|(ended, _)| *ended >= ms).is_some() {}
    }

    /// What a server leaves that loses nothing.
    pub fn left(&self) -> u64 {
        self.earlier.max(self.next).max(self.passed.0)
    }

    /// The server begins its next incarnation.
    pub fn restart(&mut self, earlier: u64) {
        *self = Order { given: self.given, earlier, next: self.next, ..Order::default() };
    }
}
