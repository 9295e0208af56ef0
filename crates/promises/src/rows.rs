//! The promises about rows with ids as keys, and about a reader that follows them by the horizon.

use std::collections::{BTreeMap, HashSet};

use crate::{Broken, Caller, Judge, Kind, Promise, Run};

/// Rows that clients know of.
#[derive(Default)]
pub struct Rows {
    /// The rows that were answered as committed, and when.
    committed: BTreeMap<i64, u64>,
    /// The rows that clients know of, or that were found.
    known: HashSet<i64>,
    /// What one reader after the other has followed: from where, and up to where; and the rows.
    followed: Option<(i64, i64)>,
    read: HashSet<i64>,
}

impl Rows {
    /// A client has inserted rows, whether or not their transaction is committed.
    pub fn inserted(&mut self, runs: &[Run]) {
        self.known.extend(runs.iter().flat_map(|run| run.ids()));
    }

    /// A client was told that its rows are committed.
    pub fn committed(&mut self, runs: &[Run], by: Caller) {
        self.committed.extend(runs.iter().flat_map(|run| run.ids()).map(|id| (id, by.ended_us)));
    }

    /// A reader has read the rows from one horizon up to the next. If a server may have lost horizons meanwhile, the
    /// next may be below.
    pub fn followed(
        &mut self,
        judge: &mut Judge,
        by: Caller,
        [from, to]: [i64; 2],
        rows: &[i64],
        lost: bool,
    ) {
        match &mut self.followed {
            Some((_, until)) if to < *until && !lost => {
                let text = format!("the horizon went back from {until} to {to}: {by}");
                judge.broken.push(Broken { promise: Promise::NeverBack, text });
            }
            Some((_, until)) if *until == from => *until = to,
            _ => self.followed = Some((from.min(to), to)),
        }
        self.read.extend(rows);
    }

    /// A server took over that may not have the rows and horizons that were answered until then.
    pub fn lost(&mut self, until_us: u64) {
        self.followed = None;
        self.committed.retain(|_, answered| *answered > until_us);
    }

    /// The table has these rows, and nobody writes.
    pub fn found(&mut self, judge: &mut Judge, ids: &[i64]) {
        let there: HashSet<i64> = ids.iter().copied().collect();
        let mut fail = |promise, text| judge.broken.push(Broken { promise, text });
        for (id, answered) in self.committed.iter().filter(|(id, _)| !there.contains(id)) {
            fail(Promise::Kept, format!("the row of {id} was committed at {answered} us, and is not there"));
        }
        for id in ids {
            if self.followed.is_some_and(|(from, to)| from <= *id && *id < to) && !self.read.contains(id) {
                let text = format!("the row of {id}, below a horizon that a reader had, came later");
                fail(Promise::Settled, text);
            }
        }
        // A row whose client never received the result.
        for &id in ids.iter().filter(|id| !self.known.contains(id)) {
            let by = Caller { session: Caller::UNKNOWN, ..Caller::default() };
            judge.take(Run::from(id, Kind::Plain, 1), by, None);
        }
        self.known.extend(ids);
    }
}
