//! Giving the shard back to the source.

use super::checks::refused;
use super::sides::Place;
use super::{Plan, Run, Stage, checks, lists, rename, say};
use crate::commands::words::{self, Begun};
use crate::connection::session::Session;
use crate::idgen::library::Library;
use crate::terminal::error::{Error, Result};
use crate::terminal::output::{self, note};
use crate::terminal::signals;

const FINISH: &str = "Run the same command with --finish.";

impl Run<'_> {
    /// What the end of a run does that failed. Gives the error that the program ends with.
    pub fn end(&mut self, error: Error) -> Error {
        // What follows must be done to the end, even if nobody reads its output any more.
        signals::ignore_signals();
        let plan = self.plan;
        plan.source.places.iter().chain(&plan.target.places).for_each(Place::forget);
        match self.stage {
            Stage::Unchanged | Stage::Done => error,
            Stage::Begun => {
                say(format!("failed: {error}"));
                say("undoing what was done");
                match self.give_back() {
                    Ok(()) => error,
                    Err(left) => Error::Broken {
                        what: format!("{error}. It is NOT undone"),
                        hint: left.hint().unwrap_or_default().into(),
                    },
                }
            }
            Stage::Resumed => Error::Broken {
                what: format!("the move broke off: {error}"),
                hint: "Run the same command with --finish, or with --undo.".into(),
            },
            Stage::Opened => Error::Broken {
                what: format!("{error}. It is NOT undone, because the target may already mint"),
                hint: FINISH.into(),
            },
        }
    }

    /// Gives the shard back to the source, unless the marker says that the target may mint, and then drops the copy. The
    /// error says what is left to do.
    fn give_back(&mut self) -> Result {
        self.give_back_to_source().map_err(|error| {
            say(format!("NOT undone: {error}"));
            let hint = error.hint().filter(|_| !matches!(error, Error::Sql { .. }));
            let hint = hint.unwrap_or("Run the same command with --undo.").to_owned();
            Error::Broken { what: format!("NOT undone: {error}"), hint }
        })?;
        self.drop_copy();
        Ok(())
    }

    fn give_back_to_source(&mut self) -> Result {
        let plan = self.plan;
        let (names, source) = (&plan.names, plan.source.primary());
        self.turn.keep(source)?;
        // A COMMIT that waits for standbys could still happen.
        self.turn.end_others(source)?;
        let session = source.session()?;
        let there = names.on(&session)?;
        let begun = match plan.begun_now()? {
            Some(begun) if begun.opened => {
                return refused("another run has continued, and the target may mint", FINISH);
            }
            Some(begun) => begun,
            // What this run has begun first has failed.
            None if there.schema => return Ok(()),
            None => return refused("the marker of the move is gone", "Run idgenctl check."),
        };
        if there.schema == there.moving {
            return refused(
                format!(
                    "the source has {}, and only one of {} and {} can be right",
                    names.shown(&there),
                    names.schema,
                    names.moving
                ),
                "Drop or rename what is not of this move, and run the same command with --undo.",
            );
        }
        if there.moving {
            session.run("BEGIN")?;
            session.run(&rename(&names.moving, &names.schema))?;
            self.turn.prove(&session)?;
            // It may wait for a standby, which the person learns, and then has happened.
            session.set_patience(None);
            session.run("COMMIT")?;
        }
        let list = lists::of(source)?.with(plan.shard);
        let told = plan.lists.tell_program(&plan.source, &list);
        let set = told.and(plan.lists.set_each(&plan.source.places, &list));
        Library::of(&session)?.reopen(plan.shard)?;
        let mut left: Vec<String> = plan.away.iter().map(|server| server.name.clone()).collect();
        let unknown = checks::unknown_standbys(&plan.source)?;
        left.extend(unknown.map(|_| "the source has standbys that are not in the fleet".into()));
        left.extend(set.err().map(|error| error.to_string()));
        if !left.is_empty() {
            let by_hand = plan.lists.by_hand(&list);
            return refused(
                format!("the source mints again, but not all servers may have its list: {}", left.join(", ")),
                format!(
                    "On its standbys: {by_hand} Then run the same command with --undo, with all servers that there are."
                ),
            );
        }
        session.run(&format!("DROP SCHEMA {}", begun.marker()))?;
        say(format!(
            "undone: the source has the shard, in schema {}, and idgen.allowed_shards is \"{list}\"",
            names.schema
        ));
        Ok(())
    }

    /// Drops the copy on the target. A copy of this source's rows says so in its comment; no other schema is dropped.
    pub fn drop_copy(&self) {
        let plan = self.plan;
        let moving = &plan.names.moving;
        let drop = || -> Result {
            let target = plan.target.primary();
            self.turn.end_others(target)?;
            match plan.comment_on(target, moving)? {
                None => {}
                Some(comment) if comment == plan.mark => {
                    // Its owner may hold locks for ever, and an undo does not end by Ctrl-C.
                    let drop = format!("DROP SCHEMA {} CASCADE", Session::identifier(moving));
                    target.fresh()?.run(&format!("SET lock_timeout = '10s'; {drop}"))?;
                }
                Some(_) => say(format!("{moving} is left on the target: it is not a copy from this source")),
            }
            Ok(())
        };
        if let Err(error) = drop() {
            say(format!("{error}"));
            say("the target may still have a copy: run the same command with --undo once it can be reached");
        }
    }

    /// `--undo`.
    pub fn undo_earlier(&mut self) -> Result {
        let plan = self.plan;
        let (names, source, target) = (&plan.names, plan.source.primary(), plan.target.primary());
        let there = names.on(&*source.session()?)?;
        let is_reached = plan.target.is_reached();
        let has_copy = is_reached && plan.comment_on(target, &names.moving)?.as_ref() == Some(&plan.mark);
        match &plan.begun {
            Some(begun) if begun.opened => {
                return refused("the target may mint already: --finish is the only way", FINISH);
            }
            // Nobody but a person can have set that list.
            Some(_) if is_reached && lists::of(target)?.contains(plan.shard) => {
                return refused(
                    format!("the target may mint for shard {}", i32::from(plan.shard)),
                    "Take it out of its list first, if nobody has minted there.",
                );
            }
            Some(_) => {
                let list = lists::of(source)?;
                note(format!("the source has {}, and gets {}", names.shown(&there), names.schema));
                note(format!(
                    "idgen.allowed_shards of the source and its standbys: {list} -> {}",
                    list.with(plan.shard)
                ));
            }
            None if !there.schema => return Err(no_move(plan)?),
            None if !has_copy => {
                say("neither the source nor the target has anything of a move that has broken off");
                return self.report(&[("source", source)]);
            }
            None => {}
        }
        if has_copy {
            note(format!("on the target {}, the copy {} is dropped", target.server.name, names.moving));
        }
        output::consent(plan.cli, &format!("Undo the move of schema {}?", names.schema))?;
        signals::ignore_signals();
        self.give_back()?;
        self.report(&[("source", source)])
    }
}

/// The error of an undo or a finish without a move, and without the schema on the source.
pub fn no_move(plan: &Plan<'_>) -> Result<Error> {
    let (names, source) = (&plan.names, plan.source.primary());
    let session = source.session()?;
    if names.on(&session)?.moved
        && plan.target.is_reached()
        && names.on(&*plan.target.primary().session()?)?.schema
    {
        return Ok(Error::refused(
            format!("the move is complete: the target has schema {}", names.schema),
            format!(
                "To go back, drop the old rows on the source: DROP SCHEMA {} CASCADE; and then move the schema the other way: \
                 idgenctl move {} --to {}",
                Session::identifier(&names.moved),
                words::shell(&names.schema),
                words::shell(&source.server.name)
            ),
        ));
    }
    let others: Vec<String> = Begun::all(&session)?.into_iter().map(|begun| begun.schema).collect();
    let others = if others.is_empty() { "none".into() } else { others.join(", ") };
    Ok(Error::refused(
        format!("no move of schema {} from {} has broken off", names.schema, source.server.name),
        format!("Check that source and target are not swapped. Moves that have begun there: {others}."),
    ))
}
