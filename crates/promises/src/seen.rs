//! The positions of a slot that were given, as runs: memory grows with the gaps between them, and not with the ids.

use std::collections::BTreeMap;

use crate::Caller;

/// How many runs are kept apart by their calls before those that touch become one.
const APART: usize = 4096;

#[derive(Default)]
pub(crate) struct Seen {
    /// The end of each run, by its start, and the call that was given it.
    runs: BTreeMap<u64, (u64, Caller)>,
    /// The number of runs left when runs last became one.
    joined: usize,
    /// Nothing below this is known any more.
    pub least: u64,
}

impl Seen {
    /// Adds positions. If some of them were given before, says which, and to whom.
    pub fn add(&mut self, start: u64, end: u64, by: Caller) -> Option<(u64, u64, Caller)> {
        if let Some((from, (to, last))) = self.runs.range_mut(..end).next_back() {
            if *to == start && last.session == by.session && last.server == by.server {
                (*to, last.ended_us) = (end, by.ended_us);
                return None;
            } else if *to > start {
                let found = ((*from).max(start), (*to).min(end), *last);
                return Some(self.unite(start, end, found));
            }
        }
        self.runs.insert(start, (end, by));
        if self.runs.len() > APART + 2 * self.joined {
            self.join();
        }
        None
    }

    /// Adds positions that overlap others.
    #[cold]
    fn unite(&mut self, mut start: u64, mut end: u64, mut found: (u64, u64, Caller)) -> (u64, u64, Caller) {
        let first = start;
        while let Some((&from, &(to, by))) =
            self.runs.range(..end).next_back().filter(|(_, run)| run.0 > first)
        {
            self.runs.remove(&from);
            (start, end) = (start.min(from), end.max(to));
            (found.0, found.2) = (from.max(first), by);
        }
        self.runs.insert(start, (end, found.2));
        found
    }

    /// Makes runs that touch one, whose calls are then known only together.
    #[cold]
    fn join(&mut self) {
        let mut joined: Vec<(u64, (u64, Caller))> = Vec::new();
        for (start, (end, by)) in std::mem::take(&mut self.runs) {
            match joined.last_mut() {
                Some((_, (last, before))) if *last == start => {
                    (*last, *before) = (end, before.together(by));
                }
                _ => joined.push((start, (end, by))),
            }
        }
        self.runs = joined.into_iter().collect();
        self.joined = self.runs.len();
    }

    /// Forgets what is below a position.
    pub fn forget(&mut self, least: u64) {
        self.least = self.least.max(least);
        self.join();
        let kept = self.runs.split_off(&least);
        let last = self.runs.last_key_value().filter(|(_, (end, _))| *end > least);
        let cut = last.map(|(_, run)| (least, *run));
        self.runs = kept;
        self.runs.extend(cut);
    }

    pub fn runs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.runs.iter().map(|(start, (end, _))| (*start, *end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(session: u64) -> Caller {
        Caller { session, ..Caller::default() }
    }

    /// Guard: memory is bounded by the gaps, a repeat is found before and after runs became one, and the call that it
    /// is shown with is that of the first time as long as that is known.
    #[test]
    fn runs_that_touch_become_one() {
        let mut seen = Seen::default();
        for at in 0..20_000 {
            assert!(seen.add(at, at + 1, by(at)).is_none());
        }
        assert!(seen.runs.len() <= APART + 2, "{}", seen.runs.len());
        assert_eq!(seen.add(19_990, 19_991, by(0)), Some((19_990, 19_991, by(19_990))));
        assert!(
            seen.add(5, 6, by(0)).is_some_and(|(from, to, by)| (from, to, by.session) == (5, 6, u64::MAX))
        );
    }

    #[test]
    fn runs_that_overlap_are_found() {
        let full = || {
            let mut seen = Seen::default();
            assert!(
                [(10, 20), (30, 40)].iter().all(|(start, end)| seen.add(*start, *end, by(*start)).is_none())
            );
            seen
        };
        for (start, end, from, to) in [(19, 21, 19, 20), (0, 11, 10, 11), (12, 13, 12, 13), (0, 25, 10, 20)] {
            assert_eq!(full().add(start, end, by(1)), Some((from, to, by(10))), "{start} to {end}");
        }
        let mut seen = full();
        assert_eq!(seen.add(15, 50, by(1)), Some((15, 40, by(10))));
        assert_eq!(seen.runs().collect::<Vec<_>>(), [(10, 50)]);
        let mut seen = full();
        assert!(seen.add(20, 30, by(1)).is_none() && seen.add(40, 41, by(1)).is_none());
        seen.forget(35);
        assert_eq!(seen.runs().collect::<Vec<_>>(), [(35, 41)]);
    }
}
