//! The positions of a slot that were given, as runs of sessions.

use std::collections::BTreeMap;

use crate::Caller;

#[derive(Default)]
pub(crate) struct Seen {
    /// The end of each run, by its start, and the last call that was given some of it.
    runs: BTreeMap<u64, (u64, Caller)>,
    /// Nothing below this is known any more.
    pub least: u64,
}

impl Seen {
    /// Adds positions. If some of them were given before, says which, and to whom.
    pub fn add(&mut self, start: u64, end: u64, by: Caller) -> Option<(u64, u64, Caller)> {
        if let Some((_, (to, last))) = self.runs.range_mut(..end).next_back() {
            if *to == start && (last.session, last.server) == (by.session, by.server) {
                (*to, last.ended_us) = (end, by.ended_us);
                return None;
            } else if *to > start {
                return self.replace(start, end, by);
            }
        }
        self.runs.insert(start, (end, by));
        None
    }

    /// Adds positions some of which were given before, and which now belong to the last call.
    #[cold]
    fn replace(&mut self, start: u64, end: u64, by: Caller) -> Option<(u64, u64, Caller)> {
        let (mut last, mut found) = (start, None);
        let overlaps = |(_, run): &(&u64, &(u64, Caller))| run.0 > start;
        while let Some((&from, &(to, other))) = self.runs.range(..end).next_back().filter(overlaps) {
            self.runs.remove(&from);
            if to > end {
                self.runs.insert(end, (to, other));
            }
            if from < start {
                self.runs.insert(from, (start, other));
            }
            last = last.max(to.min(end));
            // Of several calls, one of the same server is the one to show.
            let same = found.filter(|(_, _, shown): &(_, _, Caller)| shown.server == by.server);
            found = Some((from.max(start), last, same.map_or(other, |(_, _, shown)| shown)));
        }
        self.runs.insert(start, (end, by));
        found
    }

    /// Forgets runs below a position.
    pub fn forget(&mut self, least: u64) {
        self.least = self.least.max(least);
        self.runs.retain(|_, (end, _)| *end > least);
    }

    pub fn runs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.runs.iter().map(|(start, (end, _))| (*start, *end))
    }
}
