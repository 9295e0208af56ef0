//! A run of the program, and how far it got.

use super::plan::Plan;
use super::turn::Turn;
use crate::terminal::error::Result;

/// How far a run got, which decides what happens if it fails.
pub enum Stage {
    Unchanged,
    /// This run has made changes, and undoes them.
    Begun,
    /// An earlier run has made changes, so the user decides.
    Resumed,
    /// The target may mint.
    Opened,
    Done,
}

pub struct Run<'a> {
    pub plan: &'a Plan<'a>,
    pub turn: Turn,
    pub stage: Stage,
}

impl Run<'_> {
    /// Creates the marker, which outlives this run.
    pub fn begin(&mut self) -> Result {
        self.stage = Stage::Begun;
        if self.plan.begun.is_some() {
            return Ok(());
        }
        let source = &self.plan.source;
        let (session, begun) = (self.turn.session(source, source.primary())?, self.plan.marker(false));
        session.run(&format!("CREATE SCHEMA {}; {}", begun.marker(), begun.write())).map(drop)
    }
}
