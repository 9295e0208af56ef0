//! Ids as runs of positions. The layout of ids is implemented here a second time, so that an error in the program does
//! not hide itself.

use std::collections::HashMap;

use idgen_ids::{id, js};
use serde::{Deserialize, Serialize};

/// The two kinds of ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// Ids of `snowflake_next_id` and `snowflake_next_ids`.
    Plain,
    /// Ids of `snowflake_next_id_js`.
    Js,
}

impl Kind {
    /// The widths of sequence and shard in bits, and the unit of time in milliseconds.
    const fn layout(self) -> (u32, u32, u64) {
        match self {
            Kind::Plain => (id::SEQUENCE_BITS, id::SHARD_BITS, 1),
            Kind::Js => (js::SEQUENCE_BITS, js::SHARD_BITS, js::UNIT_MS),
        }
    }

    /// The unit of time in milliseconds.
    pub const fn unit_ms(self) -> u64 {
        self.layout().2
    }
}

/// A shard, and the kind of its ids. Each kind has positions of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Slot {
    pub kind: Kind,
    pub shard: u16,
}

impl Slot {
    /// The index of the slot in a list of all slots.
    pub(crate) fn index(self) -> usize {
        2 * usize::from(self.shard) + self.kind as usize
    }

    pub(crate) fn at(index: usize) -> Slot {
        let kind = if index.is_multiple_of(2) { Kind::Plain } else { Kind::Js };
        Slot { kind, shard: (index / 2) as u16 }
    }

    /// The id of a position: a unit of time and a sequence number, as one number.
    pub fn id(self, position: u64) -> i64 {
        let (sequence, shard, _) = self.kind.layout();
        let word = position >> sequence << (sequence + shard) | u64::from(self.shard) << sequence;
        (word | position & ((1 << sequence) - 1)).cast_signed()
    }

    /// The slot and the position of an id.
    pub fn of(id: i64, kind: Kind) -> (Slot, u64) {
        let (sequence, shard, _) = kind.layout();
        let word = id.cast_unsigned();
        let number = (word >> sequence & ((1 << shard) - 1)) as u16;
        let position = word >> (sequence + shard) << sequence | word & ((1 << sequence) - 1);
        (Slot { kind, shard: number }, position)
    }

    /// The time at which a position's unit of time begins, in milliseconds since the epoch.
    pub fn ms(self, position: u64) -> u64 {
        (position >> self.kind.layout().0) * self.kind.unit_ms()
    }

    /// The first position of the unit of time that contains a millisecond.
    pub fn first_of(self, ms: u64) -> u64 {
        (ms / self.kind.unit_ms()) << self.kind.layout().0
    }
}

/// Consecutive positions of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    pub slot: Slot,
    pub start: u64,
    pub count: u64,
}

impl Run {
    /// The run of this many ids that begins with `id`.
    pub fn from(id: i64, kind: Kind, count: u64) -> Run {
        let (slot, start) = Slot::of(id, kind);
        Run { slot, start, count }
    }

    /// Groups ids into runs, in the order in which they were given.
    pub fn of(ids: &[i64], kind: Kind) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let mut last = HashMap::new();
        for &id in ids {
            let run = Run::from(id, kind, 1);
            let at = last.entry(run.slot).or_insert(usize::MAX);
            match runs.get_mut(*at) {
                Some(before) if before.end() == run.start => before.count += 1,
                _ => {
                    *at = runs.len();
                    runs.push(run);
                }
            }
        }
        runs
    }

    /// The position after the last one.
    pub fn end(self) -> u64 {
        self.start + self.count
    }

    pub fn ids(self) -> impl Iterator<Item = i64> {
        (self.start..self.end()).map(move |position| self.slot.id(position))
    }
}
