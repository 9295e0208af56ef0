//! Giving the shard back to the source.

use serde_json::json;

use super::sides::Place;
use super::{Plan, Run, Stage, checks, lists, rename, say};
use crate::commands::words;
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
        let session = source.session()?;
        self.turn.keep(source)?;
        // A COMMIT that waits for standbys could still happen.
        self.turn.end_others(source)?;
        let Some(begun) = plan.begun_now()? else { return Ok(()) };
        if begun.opened {
            return Err(Error::refused("another run has continued, and the target may mint", FINISH));
        }
        let there = names.on(&session)?;
        match (there.schema, there.moving) {
            (true, true) => {
                return Err(Error::refused(
                    format!("the source has a new schema {} beside {}", names.schema, names.moving),
                    "Drop or rename it, and run the same command with --undo.",
                ));
            }
            (false, true) => {
                session.run("BEGIN")?;
                session.run(&rename(&names.moving, &names.schema))?;
                self.turn.prove(&session)?;
                // It may wait for a standby, which the person learns, and then has happened.
                session.set_patience(None);
                session.run("COMMIT")?;
            }
            (true, false) => {}
            (false, false) => {
                return Err(Error::refused(
                    format!("the source has neither {} nor {}", names.moving, names.schema),
                    format!(
                        "Give the schema its name {} again, and run the same command with --undo.",
                        names.schema
                    ),
                ));
            }
        }
        let list = lists::of(source)?.with(plan.shard);
        let told = plan.lists.tell_program(&plan.source, &list);
        let lists = told.and(plan.lists.set_each(&plan.source.places, &list));
        Library::of(&session)?.reopen(plan.shard)?;
        let away: Vec<&str> = plan.away.iter().map(|server| server.name.as_str()).collect();
        if checks::unknown_standbys(&plan.source)?.is_some() || !away.is_empty() || lists.is_err() {
            let which = match (&lists, away.is_empty()) {
                (Err(error), _) => format!("{error}"),
                (_, true) => "the source has standbys that are not in the fleet".into(),
                (_, false) => format!("these servers cannot be reached: {}", away.join(", ")),
            };
            return Err(Error::refused(
                format!("the source mints again, but not all servers have its list. {which}"),
                format!(
                    "If they are standbys of the source, still to be done there: {} Then run the same command with --undo, \
                     with all servers that there are.",
                    plan.lists.by_hand(&list)
                ),
            ));
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
        let (source, target) = (plan.source.primary(), plan.target.primary());
        let (names, there) = (&plan.names, plan.names.on(&*source.session()?)?);
        let has_copy = plan.target.is_reached()
            && plan.comment_on(target, &names.moving)?.is_some_and(|comment| comment == plan.mark);
        if let Some(begun) = &plan.begun {
            if begun.opened {
                return Err(Error::refused("the target may mint already: --finish is the only way", FINISH));
            }
            // Nobody but a person can have set that list.
            if plan.target.is_reached() && lists::of(target)?.contains(plan.shard) {
                return Err(Error::refused(
                    format!("the target may mint for shard {}", i32::from(plan.shard)),
                    "Take it out of its list first, if nobody has minted there.",
                ));
            }
            let list = lists::of(source)?;
            if there.moving {
                note(format!(
                    "on the source {}, {} becomes {} again",
                    source.server.name, names.moving, names.schema
                ));
            }
            note(format!(
                "idgen.allowed_shards of the source and its standbys: {list} -> {}",
                list.with(plan.shard)
            ));
        } else if !there.schema {
            return Err(no_move(plan, there.moved)?);
        } else if !has_copy {
            say(format!(
                "neither the source nor the target {} has anything of a move that has broken off",
                target.server.name
            ));
            return self.undone();
        }
        if has_copy {
            note(format!("on the target {}, the copy {} is dropped", target.server.name, names.moving));
        }
        output::consent(plan.cli, &format!("Undo the move of schema {}?", names.schema))?;
        signals::ignore_signals();
        self.give_back()?;
        self.undone()
    }

    fn undone(&self) -> Result {
        let (plan, source) = (self.plan, self.plan.source.primary());
        if !plan.cli.json {
            return Ok(());
        }
        output::print(output::json(&json!({
            "schema": plan.names.schema,
            "shard": i32::from(plan.shard),
            "source": { "server": source.server.name, "allowed_shards": lists::of(source)?.to_string() },
        })))
    }
}

/// The error of an undo or a finish without a move, and without the schema on the source.
pub fn no_move(plan: &Plan<'_>, has_old_rows: bool) -> Result<Error> {
    let (names, source) = (&plan.names, plan.source.primary());
    if has_old_rows && plan.target.is_reached() && names.on(&*plan.target.primary().session()?)?.schema {
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
    let others: Vec<String> =
        words::Begun::all(&*source.session()?)?.into_iter().map(|begun| begun.schema).collect();
    Ok(Error::refused(
        format!("no move of schema {} from {} has broken off", names.schema, source.server.name),
        match others.is_empty() {
            true => "Check that source and target are not swapped.".into(),
            false => format!("There are moves of: {}.", others.join(", ")),
        },
    ))
}
