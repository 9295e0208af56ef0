//! The positions of a slot that were given, as runs of sessions.

use std::collections::BTreeMap;

use crate::promise::Caller;

/// Each run by its start, with its end and the last call that received part of it.
#[derive(Default)]
pub(crate) struct Seen(BTreeMap<u64, (u64, Caller)>);

impl Seen {
    /// Adds positions, which now belong to this call. Returns those that had been given before, and to which call.
    pub fn add(&mut self, start: u64, end: u64, by: Caller) -> Vec<(u64, u64, Caller)> {
        let mut before = Vec::new();
        while let Some((&from, (to, other))) = self.0.range_mut(..end).next_back() {
            if *to == start && (other.session, other.server) == (by.session, by.server) {
                (*to, other.ended_us) = (end, by.ended_us);
                return before;
            } else if *to <= start {
                break;
            }
            let (to, other) = (*to, *other);
            self.0.remove(&from);
            if to > end {
                self.0.insert(end, (to, other));
            }
            if from < start {
                self.0.insert(from, (start, other));
            }
            before.push((from.max(start), to.min(end), other));
        }
        self.0.insert(start, (end, by));
        before
    }

    /// The call that received a position.
    pub fn giver(&self, position: u64) -> Option<Caller> {
        let (_, (to, by)) = self.0.range(..=position).next_back()?;
        (*to > position).then_some(*by)
    }

    /// Forgets runs below a position.
    pub fn forget(&mut self, least: u64) {
        self.0.retain(|_, (end, _)| *end > least);
    }

    pub fn positions(&self) -> impl Iterator<Item = u64> {
        self.0.iter().flat_map(|(start, (end, _))| *start..*end)
    }
}
