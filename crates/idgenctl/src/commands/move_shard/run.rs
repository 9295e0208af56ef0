//! A run of the program, and how far it has come.

use super::plan::Plan;
use super::turn::Turn;
use crate::terminal::error::Result;

/// What the end of a run has to do if it fails.
pub enum Stage {
    Unchanged,
    /// This run has begun to change something, and undoes it.
    Begun,
    /// An earlier run has. A person decides.
    Resumed,
    /// The target may mint.
    Opened,
    Done,
}

/// A run of the program.
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
