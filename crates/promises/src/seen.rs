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
        if let Some((from, (to, last))) = self.runs.range_mut(..end).next_back() {
            if *to == start && (last.session, last.server) == (by.session, by.server) {
                (*to, last.ended_us) = (end, by.ended_us);
                return None;
            } else if *to > start {
                let found = ((*from).max(start), (*to).min(end), *last);
                return Some(self.unite(start, end, found));
            }
        }
        self.runs.insert(start, (end, by));
        None
    }

    /// Adds positions that overlap others.
    #[cold]
    fn unite(&mut self, start: u64, mut end: u64, mut found: (u64, u64, Caller)) -> (u64, u64, Caller) {
        let mut first = start;
        let before = |(_, run): &(&u64, &(u64, Caller))| run.0 > start;
        while let Some((&from, &(to, by))) = self.runs.range(..end).next_back().filter(before) {
            self.runs.remove(&from);
            (first, end) = (first.min(from), end.max(to));
            (found.0, found.2) = (from.max(start), by);
        }
        self.runs.insert(first, (end, found.2));
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
