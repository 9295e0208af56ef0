//! `idgenctl move`: moves a logical shard, which is a schema, to another server while clients keep working.
//!
//! What can be checked is, before the schema is closed. If a later step fails, the move is undone, unless the target may mint.
//!
//! A marker on both says that a move has begun, and that of the source whether the target may mint. There, the schema is
//! called `SCHEMA_moving` once it is closed, and `SCHEMA_moved` once the target may mint. On the target, the copy is
//! called `SCHEMA_moving` until it is opened. On both, an empty schema of a superuser keeps the name, so that no one else
//! can take its place. These and the copy have the application_name of the move's sessions as their comment.

// From top to bottom; none uses one above it.
mod undo;
mod close;
mod ids;
mod copy;
mod checks;
mod lists;
mod run;
mod rights;
mod plan;
mod names;
mod sides;

use std::ptr;
use std::time::Duration;

use idgen_ids::shard_set::ShardSet;

use self::checks::At;
use self::names::set_comment;
use self::plan::Plan;
use self::run::{Run, Stage, Turn};
use self::sides::Servers;
use crate::cli::{Cli, Move as Arguments};
use crate::commands::marker::Begun;
use crate::connection::session::Session;
use crate::idgen::library;
use crate::terminal::error::{Error, Result, refused};
use crate::terminal::output::{self, note};
use crate::terminal::signals;
use crate::terminal::text::name;
use crate::topology::fleet;

pub fn run(cli: &Cli, arguments: &Arguments) -> Result<u8> {
    signals::notice_signals();
    copy::check_programs()?;
    let servers = Servers::load(cli, arguments)?;
    let owner = fleet::parameters("--owner", arguments.owner.as_deref().unwrap_or_default())?;
    let as_owner = [servers.from(), servers.to()].map(|server| server.as_role(&owner));
    let plan = Plan::of(cli, arguments, &servers, &as_owner)?;
    let turn = Turn::take(&plan)?;
    let (session, names) = (plan.source.primary().session()?, &plan.names);
    if Begun::of(&session, &names.schema, &names.from, false)? != plan.begun {
        return refused("another run has changed the state of the move", "Run the same command again.");
    }
    let mut run = Run { plan: &plan, turn, stage: Stage::Unchanged };
    run.go().map_err(|error| run.end(error))?;
    Ok(0)
}

impl Run<'_> {
    fn go(&mut self) -> Result {
        let plan = self.plan;
        if plan.arguments.undo {
            return self.undo_earlier();
        }
        let Some(at) = checks::state(plan)? else {
            if let Some(begun) = &plan.begun {
                self.turn.session(&plan.source, plan.source.primary())?.run(&begun.remove())?;
            }
            note("the move is complete, and nothing is left to finish");
            return Ok(());
        };
        if plan.arguments.owner.is_none() && at == At::Open {
            return refused(
                "--owner is missing: the role that owns the schema copies it",
                "Say how that role connects to both servers, such as --owner user=app.",
            );
        }
        for side in [&plan.source, &plan.target] {
            checks::standbys(side)?;
            checks::settings(plan, side)?;
        }
        checks::lists(plan, at)?;
        if at == At::Open {
            checks::surroundings(plan)?;
            checks::ties(&plan.source.primary().session()?, &plan.names.schema)?;
            rights::check_roles(plan)?;
        }
        self.show()?;
        let (schema, shard) = (&plan.names.schema, i32::from(plan.shard));
        output::consent(plan.cli, &format!("Move schema {schema} with shard {shard}?"))?;
        self.carry_out(at)?;
        note(format!(
            "done. ANALYZE the tables on the target, and let the clients of schema {schema} connect to it. Once you no longer \
             need the old rows, and no client looks there any more, on the source: DROP SCHEMA {} CASCADE; DROP SCHEMA {};",
            Session::identifier(&plan.names.moved),
            Session::identifier(schema)
        ));
        Ok(())
    }

    /// Shows what the move will do.
    fn show(&self) -> Result {
        let plan = self.plan;
        for (side, is_source) in [(&plan.source, true), (&plan.target, false)] {
            let (place, before) = (side.primary(), lists::of(side.primary())?);
            let after = if is_source { before.without(plan.shard) } else { before.with(plan.shard) };
            let standbys = side.standbys().iter().map(|place| &*place.server.name).collect::<Vec<_>>();
            note(format!(
                "{}: {}, database {}, standbys: {}, idgen.allowed_shards: {before} -> {after}",
                place.role,
                place.server.name,
                name(&place.value("SELECT current_database()", &[])?),
                if standbys.is_empty() { "none".into() } else { standbys.join(", ") }
            ));
            if place.has_patroni {
                note("    the schema stays closed up to loop_wait longer, until Patroni applies the list");
            }
        }
        note(format!("copied by {}, whose functions may keep the schema closed for long", name(&plan.owner)));
        Ok(())
    }

    fn carry_out(&mut self, at: At) -> Result {
        let plan = self.plan;
        let (source, target) = (plan.source.primary(), plan.target.primary());
        // Check that a commit completes: no dead synchronous standby blocks it.
        for place in [source, target] {
            let session = place.session()?;
            session.set_patience(Some(Duration::from_secs(10)));
            session.run("SELECT pg_logical_emit_message(true, 'idgenctl move', '')")?;
        }
        let bound = if at == At::Open {
            copy::rehearse(plan)?;
            // Setting the present lists fails now if it would fail later.
            for side in [&plan.source, &plan.target] {
                lists::set_primary(plan, &self.turn, side, |list, _| list)?;
            }
            ids::rehearse(plan)?;
            note("closing the schema and the shard on the source");
            close::close(self)?
        } else {
            note(format!("continuing the move of {}", plan.names.schema));
            self.stage = Stage::Opened;
            lists::set_primary(plan, &self.turn, &plan.source, ShardSet::without)?;
            library::close(&self.turn.session(&plan.source, source)?, plan.shard)?
        };
        let locks = (at == At::Open).then(|| copy::copy(plan)).transpose()?;
        // Late, because an undo gives no standby the shard back, but before the ids are passed: one may be promoted.
        lists::set_standbys(plan, &self.turn, &plan.source, ShardSet::without)?;
        if at != At::Complete {
            ids::pass(plan, bound)?;
        }
        self.open(at, locks)
    }

    /// Lets the target mint. From then on, an interrupted move must be finished instead of undone, as the marker says.
    /// The session with the locks has kept the tables from changing since they were copied.
    fn open(&mut self, at: At, locks: Option<Session>) -> Result {
        let plan = self.plan;
        let (source, target, names) = (plan.source.primary(), plan.target.primary(), &plan.names);
        note("opening it on the target and its standbys");
        let [begun, there] = [false, true].map(|on_target| plan.marker(true, on_target));
        let comment = plan.comment_on(source, &names.moving)?.or(plan.comment_on(source, &names.moved)?);
        let comment = comment.filter(|text| !text.starts_with("idgenctl move "));
        if let Some(locks) = locks {
            lists::elsewhere(plan)?;
            if names.on(&target.session()?)?.contains(&names.schema) {
                return refused(format!("the target now has schema {}", names.schema), "Rename that one.");
            }
            // A standby may have been added in the meantime, or a list changed.
            checks::standbys(&plan.source)?;
            checks::standbys(&plan.target)?;
            for place in &plan.source.places {
                let is_standby = place.value("SELECT pg_is_in_recovery()", &[])? == "t";
                if lists::of(place)?.contains(plan.shard) || is_standby == ptr::eq(place, source) {
                    let what = format!("the list of {} has the shard again, or it was promoted", place.role);
                    return refused(what, "Find out what sets idgen.allowed_shards there.");
                }
            }
            let session = source.session()?;
            session.run(&format!("BEGIN; {}", begun.write()))?;
            names.rename_closed(&session, &names.moved, names.kept(&session)?, "")?;
            self.turn.prove(&plan.source)?;
            locks.run("SELECT")?;
            session.set_patience(None);
            session.run("COMMIT")?;
        }
        self.stage = Stage::Opened;
        // A hostile source may have kept the COMMIT waiting.
        lists::elsewhere(plan)?;
        // A failover may have lost the marker, and standbys must show it.
        self.turn.session(&plan.target, target)?.run(&there.write())?;
        lists::set_primary(plan, &self.turn, &plan.target, ShardSet::with)?;
        let session = self.turn.session(&plan.target, target)?;
        session.set_patience(None);
        // It is closed there if it was moved away from there before.
        library::reopen(&session, plan.shard)?;
        if at != At::Complete {
            session.run("BEGIN")?;
            names.give_back(&session, &plan.owner)?;
            session.run(&format!("{}; COMMIT", set_comment(&names.schema, &comment.unwrap_or_default())))?;
        }
        let standbys = lists::set_standbys(plan, &self.turn, &plan.target, ShardSet::with);
        self.stage = Stage::Done;
        signals::ignore_signals();
        // Another run may have continued, and even moved it back.
        let ended = standbys.and_then(|()| self.turn.session(&plan.target, target)?.run(&begun.remove()));
        ended.map_err(|error| Error::Broken {
            what: format!("the schema has moved, but not all servers of the target know that: {error}"),
            hint: "Run the same command with --finish.".into(),
        })?;
        let session = self.turn.session(&plan.source, source);
        if let Err(error) = session.and_then(|session| session.run(&begun.remove())) {
            self.turn.prove(&plan.target)?;
            note(format!("{error}. When the source is back, run the same command with --finish"));
        }
        Ok(())
    }
}
