//! Giving the shard back to the source.

use super::sides::{PATIENCE, Role};
use super::{Move, Stage, lists, own_comment, rename, say, set_comment};
use crate::commands::words;
use crate::connection::session::Session;
use crate::terminal::error::{Error, Result};
use crate::terminal::output;
use crate::terminal::signals;

impl Move<'_> {
    /// What the end of a run does that failed. Gives the error that the program ends with.
    pub fn end(&self, error: Error) -> Error {
        // What follows must be done to the end, even if nobody reads its output any more.
        signals::ignore_signals();
        for place in self.source.places.iter().chain(&self.target.places) {
            place.forget();
        }
        match self.stage.get() {
            Stage::Unchanged | Stage::Done => error,
            Stage::Closed => {
                say(format!("failed: {error}"));
                say("undoing what was done");
                // Another move may have changed the list since. The old text would lose its change.
                if let Some(withdrawn) = self.withdrawn.borrow().as_ref()
                    && let Ok(now) = lists::text(self.source.primary())
                    && now != *withdrawn
                    && now != *self.allowed.borrow()
                    && let Ok(list) = lists::of(self.source.primary())
                {
                    *self.allowed.borrow_mut() = list.with(self.shard).to_string();
                }
                match self.undo() {
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
            Stage::Opened => {
                let list = self.with.borrow();
                let by_hand = if list.is_empty() {
                    String::new()
                } else {
                    format!(
                        " By hand, on the target and its standbys: {} and then on the target: {}",
                        self.lists.by_hand(&list),
                        self.rename_by_hand(&self.moving, &self.schema)
                    )
                };
                Error::Broken {
                    what: format!("{error}. It is NOT undone, because the target may already mint"),
                    hint: format!("Run the same command with --finish.{by_hand}"),
                }
            }
        }
    }

    /// Gives the shard back to the source, which comes first, because clients wait for it. Its list comes after its name,
    /// which only the holder of the lock has changed. The error says what is left to do.
    pub fn undo(&self) -> Result {
        let source = self.source.primary();
        let allowed = self.allowed.borrow().clone();
        // Signals are ignored by now, and the source may not answer.
        if let Some(lock) = self.lock.borrow().as_ref() {
            lock.set_patience(Some(PATIENCE));
        }
        let mut is_given_back = false;
        // A COMMIT that waits for standbys could still happen.
        let has_lock =
            self.in_lock(|lock| lock.run("ROLLBACK").map(drop)).is_ok() || self.take_lock().is_ok();
        if has_lock
            && self.end_others(Role::Source).is_ok()
            && self.state_of(source).is_ok_and(|state| state != "schema")
        {
            match self.give_name_back() {
                Ok(is_done) => is_given_back = is_done,
                Err(error) => {
                    say(format!("{error}"));
                    let _ = self.in_lock(|lock| lock.run("ROLLBACK").map(drop));
                }
            }
        }
        let broken = |what: &str, hint: String| {
            say(format!("NOT undone: {what}"));
            Err(Error::Broken { what: format!("NOT undone: {what}"), hint })
        };
        // Somebody else may have given a new schema the name in the meantime.
        match self.state_of(source).as_deref() {
            Ok("schema") => {}
            // A tenant may have made one of the other names.
            Ok("schema moved") if is_given_back => {}
            Ok(state) if state.contains("moved") => {
                return broken(
                    "another run has continued, and the target may mint",
                    "Run the same command with --finish.".into(),
                );
            }
            Ok("schema moving") => {
                return broken(
                    &format!("the source has a new schema {} beside {}", self.schema, self.moving),
                    "Drop or rename it, and run the same command with --undo.".into(),
                );
            }
            _ => {
                return broken(
                    &format!("the source still has {}, or does not answer", self.moving),
                    format!(
                        "Run the same command with --undo. By hand, on the source, if it has {}: {} and then on the source \
                         and each of its standbys: {}",
                        self.moving,
                        self.rename_by_hand(&self.moving, &self.schema),
                        self.lists.by_hand(&allowed)
                    ),
                );
            }
        }
        let mut left = Vec::new();
        if self.withdrawn.borrow().is_some() {
            if lists::text(source).ok().as_ref() != Some(&allowed)
                && let Err(error) = self.lists.tell_program(&self.source, &allowed)
            {
                say(format!("{error}"));
            }
            for place in &self.source.places {
                if let Err(error) = self.lists.set(place, &allowed) {
                    say(format!("{error}"));
                    say(format!(
                        "NOT undone. Still to be done on {}: {}",
                        place.role,
                        self.lists.by_hand(&allowed)
                    ));
                    left.push(place.role.clone());
                }
            }
        }
        if left.is_empty() {
            say(format!(
                "undone: the source has the shard, in schema {}, and idgen.allowed_shards is \"{allowed}\" again",
                self.schema
            ));
        }
        self.drop_copy();
        if left.is_empty() {
            return Ok(());
        }
        Err(Error::Broken {
            what: format!("not undone on all of: {}", left.join(", ")),
            hint: format!("Still to be done there: {}", self.lists.by_hand(&allowed)),
        })
    }

    /// Whether the schema had to be renamed.
    fn give_name_back(&self) -> Result<bool> {
        self.in_lock(|lock| {
            lock.set_patience(Some(PATIENCE));
            lock.run("BEGIN")?;
            let rows = lock.query(
                "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = $1",
                &[&self.moving],
            )?;
            let row = rows.iter().next();
            if let Some(row) = &row {
                let comment = row.text(0);
                lock.run(&set_comment(&self.moving, own_comment(comment.as_deref())))?;
                lock.run(&rename(&self.moving, &self.schema))?;
            }
            // It may wait for a standby, which the person learns, and then has happened.
            lock.set_patience(None);
            lock.run("COMMIT")?;
            Ok(row.is_some())
        })
    }

    /// Drops the copy on the target. A copy of this source's rows says so in its comment; no other schema is dropped.
    pub fn drop_copy(&self) {
        let target = self.target.primary();
        let drop = || -> Result {
            self.end_others(Role::Target)?;
            let session = target.session()?;
            let rows = session.query(
                "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = $1",
                &[&self.moving],
            )?;
            match rows.iter().next().map(|row| row.string(0)) {
                None => Ok(()),
                Some(mark) if mark == self.name => {
                    session.set_patience(None);
                    // Its owner may hold locks for ever, and an undo does not end by Ctrl-C.
                    session.run("SET lock_timeout = '10s'")?;
                    session
                        .run(&format!("DROP SCHEMA {} CASCADE", Session::identifier(&self.moving)))
                        .map(std::mem::drop)
                }
                Some(_) => {
                    say(format!("{} is left on the target: it is not a copy from this source", self.moving));
                    Ok(())
                }
            }
        };
        if let Err(error) = drop() {
            say(format!("{error}"));
            say(format!(
                "still to be done on the target, if it is a copy: DROP SCHEMA IF EXISTS {} CASCADE;",
                Session::identifier(&self.moving)
            ));
        }
    }

    /// The statement to run by hand.
    pub fn rename_by_hand(&self, from: &str, to: &str) -> String {
        format!("{};", rename(from, to))
    }

    /// Drops the copy if the source has the schema again, and says beforehand what that is.
    fn undo_on_target(&self, of_standbys: Option<&str>) -> Result {
        let target = self.target.primary();
        let name = &target.server.name;
        if self.target.system.is_empty() {
            say(format!(
                "the target {name} cannot be reached. Still to be done there, if it is a copy: DROP SCHEMA IF EXISTS {} CASCADE;",
                Session::identifier(&self.moving)
            ));
            if of_standbys.is_none() {
                return Ok(());
            }
        }
        let has_copy = !self.target.system.is_empty()
            && self.comment_on(target, &self.moving)?.as_deref() == Some(&self.name);
        let is_at_work =
            !self.target.system.is_empty() && !self.others_since(Role::Target, "infinity")?.is_empty();
        if has_copy {
            output::note(format!("on the target {name}, the copy {} is dropped", self.moving));
        }
        if is_at_work {
            output::note(format!(
                "on the target {name}, sessions that are still at work for the move are ended"
            ));
        }
        if let Some(list) = of_standbys {
            output::note(format!("idgen.allowed_shards of the standbys of the source becomes {list}"));
        }
        if !has_copy && !is_at_work && of_standbys.is_none() {
            say(format!("the target {name} has nothing of a move that has broken off"));
            return Ok(());
        }
        self.ask(&format!("Undo what a move of {} has left?", self.schema))?;
        if has_copy || is_at_work {
            self.drop_copy();
        }
        Ok(())
    }

    /// `--undo`.
    pub fn undo_earlier(&self) -> Result {
        let source = self.source.primary();
        let state = self.state_of(source)?;
        let allowed = lists::text(source)?;
        let back = lists::of(source)?.with(self.shard).to_string();
        *self.allowed.borrow_mut() = back.clone();
        if state.contains("moving") {
            // The source has SCHEMA_moved before the shard is added to the target's list, so a target that does not
            // answer cannot mint yet. If it can, somebody has set its list by hand.
            if !self.target.system.is_empty()
                && lists::may_mint(self.target.primary(), self.shard).unwrap_or(false)
            {
                return Err(Error::refused(
                    format!("the target may mint for shard {}", self.shard_text()),
                    "Take it out of its list first, if nobody has minted there.",
                ));
            }
            output::note(format!(
                "on the source {}, {} becomes {} again",
                source.server.name, self.moving, self.schema
            ));
            output::note(format!("idgen.allowed_shards of the source and its standbys: {allowed} -> {back}"));
            output::note(format!(
                "on the target {}, {} is dropped if it is the copy",
                self.target.primary().server.name,
                self.moving
            ));
            self.ask(&format!(
                "Give schema {} and shard {} back to the source?",
                self.schema,
                self.shard_text()
            ))?;
            *self.withdrawn.borrow_mut() = Some(allowed);
            let connected = self.senders(source)?.len();
            signals::ignore_signals();
            self.undo()?;
            if connected > self.source.standbys().len() {
                return Err(Error::Broken {
                    what: "the source has standbys that are not in the fleet".into(),
                    hint: format!("Still to be done there: {}", self.lists.by_hand(&back)),
                });
            }
        } else if state.contains("schema") {
            let left = self
                .source
                .standbys()
                .iter()
                .any(|place| !lists::may_mint(place, self.shard).unwrap_or(false));
            self.undo_on_target(left.then_some(allowed.as_str()))?;
            if !lists::may_mint(source, self.shard)? {
                return Err(Error::refused(
                    format!("the source has the schema. It may not mint for shard {}", self.shard_text()),
                    format!("If no other server does: {}", self.lists.by_hand(&back)),
                ));
            }
            if left {
                self.lists.set_all(&self.source, &allowed)?;
            }
            say("the source has nothing more to undo");
        } else if state.contains("moved") && self.is_complete()? {
            return Err(Error::refused(
                format!("the move is complete: the target has schema {}", self.schema),
                format!(
                    "To go back, drop the old rows on the source: DROP SCHEMA {} CASCADE; and then move the schema the other \
                     way: idgenctl move {} --to {}",
                    Session::identifier(&self.moved),
                    words::shell(&self.schema),
                    words::shell(&source.server.name)
                ),
            ));
        } else if state.contains("moved") {
            return Err(Error::refused(
                "the target may mint already: --finish is the only way",
                "Run the same command with --finish.",
            ));
        } else {
            return Err(Error::refused(
                format!("the source has no schema {}", self.schema),
                "Check that source and target are not swapped.",
            ));
        }
        if self.away.is_empty() {
            return if self.cli.json {
                output::print(output::json(&serde_json::json!({
                    "schema": self.schema,
                    "shard": i32::from(self.shard),
                    "source": { "server": source.server.name, "allowed_shards": lists::text(source)? },
                })))
            } else {
                Ok(())
            };
        }
        let names: Vec<&str> = self.away.iter().map(|server| server.name.as_str()).collect();
        Err(Error::Broken {
            what: format!("these servers cannot be reached: {}", names.join(", ")),
            hint: format!(
                "If they are standbys of the source, still to be done there: {}",
                self.lists.by_hand(&self.allowed.borrow())
            ),
        })
    }
}
