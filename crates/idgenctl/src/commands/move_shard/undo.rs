//! Gives the shard back to the source.

use idgen_ids::shard_set::ShardSet;

use super::names::{look_for, rename, shown};
use super::run::{Run, Stage, lock};
use super::{checks, ids, lists};
use crate::commands::marker::Begun;
use crate::connection::session::Session;
use crate::idgen::library;
use crate::terminal::error::{Error, Result, refused};
use crate::terminal::output::{self, note};
use crate::terminal::signals;

fn again(how: &str) -> String {
    format!("If it waits for a session named above, end that. Then run the same command with {how}.")
}

impl Run<'_> {
    /// Ends a failed run, and returns the error that the program exits with.
    pub fn end(&mut self, error: Error) -> Error {
        // The rest must be completed, even if its output is no longer read.
        signals::ignore_signals();
        let (what, hint) = match self.stage {
            Stage::Unchanged | Stage::Done => return error,
            Stage::Begun => {
                note(format!("failed: {error}"));
                note("undoing what was done");
                let Err(left) = self.give_back() else { return error };
                let hint = left.hint().map_or_else(|| again("--undo"), str::to_owned);
                (format!("{error}. It is NOT undone: {left}"), hint)
            }
            Stage::Opened => {
                (format!("{error}. It is NOT undone, because the target may already mint"), again("--finish"))
            }
        };
        Error::Broken { what, hint }
    }

    /// Gives the shard back to the source, unless the target may mint. The error says what is left to do.
    fn give_back(&mut self) -> Result {
        let plan = self.plan;
        let (names, source) = (&plan.names, plan.source.primary());
        if self.turn.prove(&plan.source).is_err() {
            self.turn.held[0] = lock(source, false)?;
        }
        // A COMMIT that waits for standbys could still happen.
        self.turn.end_others(&plan.source, source)?;
        let session = self.turn.session(&plan.source, source)?;
        // Closing leaves the name with a superuser. What others call SCHEMA_moving before does not count.
        let (there, is_closed) = (names.on(&session)?, names.kept(&session)?.is_some());
        match Begun::of(&session, &names.schema, &names.from, false)? {
            Some(begun) if begun.opened => {
                return refused("another run has opened the target", again("--finish"));
            }
            Some(begun) if plan.begun.clone().unwrap_or_else(|| plan.marker(false, false)) != begun => {
                return refused("another run has begun another move", "Run idgenctl check.");
            }
            Some(begun) if is_closed && !there.contains(&names.moving) => {
                return refused(format!("the source has {}", shown(&there)), look_for(&names.moving, &begun));
            }
            Some(begun) if plan.arguments.undo => self.ask_target(begun, is_closed)?,
            Some(_) => {}
            // This run failed before it created the marker.
            None if !is_closed => return self.drop_copy(),
            None => return refused("the marker of the move is gone", "Run idgenctl check."),
        }
        if is_closed {
            session.run("BEGIN")?;
            names.give_back(&session, "")?;
            self.turn.prove(&plan.source)?;
            // This may wait for a standby, which is reported. After a timeout, it may have happened.
            session.run("COMMIT")?;
        }
        let told = lists::set_primary(plan, &self.turn, &plan.source, ShardSet::with);
        self.turn.prove(&plan.source)?;
        library::reopen(&session, plan.shard)?;
        told?;
        session.run(&plan.marker(false, false).remove())?;
        note("undone: the source has the shard");
        let has = |list: ShardSet| list.contains(plan.shard);
        for place in plan.source.standbys().iter().filter(|place| !lists::of(place).is_ok_and(has)) {
            note(format!("{} may lack it, and keeps its list: see idgenctl check", place.role));
        }
        self.drop_copy()
    }

    /// Refuses if the target may mint although the marker does not say so, because a failover of the source lost that: then
    /// the target has the shard in a list, or has no marker any more, which it has from before the source to the end.
    fn ask_target(&self, begun: Begun, is_closed: bool) -> Result {
        let (plan, target, names) = (self.plan, self.plan.target.primary(), &self.plan.names);
        for place in &plan.target.places {
            // A hostile target may have honest standbys.
            if lists::of(place)?.contains(plan.shard) {
                let from = if is_closed { &names.moving } else { &names.schema };
                let end = format!("BEGIN; {}; {}; COMMIT;", rename(from, &names.moved), begun.remove());
                let hint = "If no one has minted there, take the shard out of its list, and run the same command with --undo. If \
                            the target has all rows, the move is over: run on the source:";
                let what = format!("{} may mint for shard {}", place.role, i32::from(plan.shard));
                return refused(what, format!("{hint} {end}"));
            }
        }
        let there = Begun::of(&target.any_session()?, &names.schema, &names.from, true)?;
        if there.is_some_and(|it| !it.opened && (it.shard, &it.to) == (begun.shard, &begun.to)) {
            // Somebody may have minted there while its list had the shard.
            let mut others = plan.others.iter().chain([target]);
            return others.try_for_each(|other| ids::pass_other(plan, plan.source.primary(), other));
        }
        let what = "the target does not show that the move has begun, so it may have ended there";
        let hint = "Find out which server has the shard. If the move cannot have ended, run on the target:";
        // Nothing that a server says may get into a shell.
        let marker = Begun { owner: String::new(), ..plan.marker(false, true) }.write();
        refused(what, format!("{hint} {marker};"))
    }

    /// Drops the copy on the target, which is known by its comment, if a superuser's schema keeps its name there: the owner
    /// of another schema could give that the comment. No other schema is dropped. A failure is only shown.
    fn drop_copy(&self) -> Result {
        let plan = self.plan;
        let moving = &plan.names.moving;
        let drop = || -> Result {
            let target = plan.target.primary();
            self.turn.end_others(&plan.target, target)?;
            let session = self.turn.session(&plan.target, target)?;
            let is_reserved = plan.names.is_reserved(&session)?;
            // The owner could hold locks forever, and Ctrl-C does not end an undo.
            session.run("SET lock_timeout = '10s'")?;
            if is_reserved && plan.comment_on(target, moving)?.as_ref() == Some(&plan.names.mark) {
                session.run(&format!("DROP SCHEMA {} CASCADE", Session::identifier(moving)))?;
            }
            let own = plan.marker(false, true);
            session.run("BEGIN")?;
            // It may be of another move, whose source this one claims to be.
            if Begun::all(&session)?.iter().any(|it| it.token == own.token) {
                session.run(&own.remove())?;
            }
            if is_reserved {
                plan.names.release(&session)?;
            }
            session.run("COMMIT").map(drop)
        };
        if let Err(error) = drop() {
            note(format!("{error}"));
            note("the target may still have a copy: run the same command with --undo once it can be reached");
        }
        Ok(())
    }

    pub fn undo_earlier(&mut self) -> Result {
        let plan = self.plan;
        let here = plan.names.on(&plan.source.primary().session()?)?;
        let there = Begun::of(&plan.target.primary().session()?, &plan.names.schema, &plan.names.from, true)?;
        match &plan.begun {
            Some(begun) if begun.opened => return refused("the target may already mint", again("--finish")),
            None if !here.contains(&plan.names.schema) && there.is_none() => {
                return Err(checks::no_move(plan, &here));
            }
            _ => lists::elsewhere(plan)?,
        }
        let gets = match plan.begun {
            Some(_) => "gets it, its name and the shard back",
            None => "keeps it: no move was interrupted, and its list stays as it is",
        };
        let (here, moving) = (shown(&here), &plan.names.moving);
        note(format!("the source has {here}, and {gets}. A copy {moving} on the target is dropped"));
        output::consent(plan.cli, &format!("Undo the move of schema {}?", plan.names.schema))?;
        signals::ignore_signals();
        self.give_back()
    }
}
