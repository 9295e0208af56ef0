//! A run, and its turn: only one run at a time changes a server, after ending the sessions that others have left there.

use std::time::Duration;

use serde_json::json;

use super::names::set_comment;
use super::plan::Plan;
use super::sides::{Place, Side};
use crate::commands::marker::{Begun, new_schema};
use crate::connection::session::Session;
use crate::connection::waiting;
use crate::terminal::error::{Error, Result, refused};
use crate::terminal::text::said;

/// How far a run got, which decides what happens if it fails.
pub enum Stage {
    Unchanged,
    /// This run has made changes, and undoes them.
    Begun,
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
    /// Sets the markers, which outlive this run, and keeps the name on the target from objects of others.
    pub fn begin(&self) -> Result {
        let (plan, names) = (self.plan, &self.plan.names);
        let session = self.turn.session(&plan.target, plan.target.primary())?;
        let (kept, comment) = (new_schema(&session, &names.schema)?, set_comment(&names.schema, &names.mark));
        // First, because an undo that finds only the marker of the source must refuse.
        session.run(&format!("{}; {kept}; {comment}", plan.marker(false, true).write()))?;
        self.turn.session(&plan.source, plan.source.primary())?.run(&plan.marker(false, false).write())?;
        let see = |side: &Side<'_>| side.places.iter().try_for_each(|place| see_marker(plan, side, place));
        [&plan.source, &plan.target].into_iter().try_for_each(see)
    }
}

/// Waits until a server has the marker of its side: a hostile primary may claim the standby of another.
pub fn see_marker(plan: &Plan<'_>, side: &Side<'_>, place: &Place<'_>) -> Result {
    let what = format!("{} to have the marker of the {}", place.role, side.role);
    let is_own = |it: &Begun| it.token == plan.marker(false, side.role == "target").token;
    let hint = "See whether it is its standby, and whether replay is paused or delayed.";
    let is_shown = || Ok(Begun::all(&place.any_session()?)?.iter().any(is_own));
    waiting::until_true(Duration::from_secs(10), &what, hint, is_shown)
}

/// The sessions that hold the locks, which are released however the program ends. Every change is made by a session that
/// was opened before the lock was last seen held: meanwhile, another run may take its turn, and first ends those.
pub struct Turn {
    /// On the source, the target and, as a hostile source would let several moves change its standbys, other primaries.
    pub held: Vec<Session>,
    /// The roles of this run and of an earlier one that restore the schema.
    owners: Vec<String>,
}

impl Turn {
    /// Takes the locks, and ends the sessions of earlier runs. An undo changes no standby.
    pub fn take(plan: &Plan<'_>) -> Result<Turn> {
        let restores = !plan.arguments.undo;
        let mut held = vec![lock(plan.source.primary(), false)?, lock(plan.target.primary(), restores)?];
        for place in plan.others.iter().filter(|_| restores) {
            match lock(place, false) {
                // A standby cannot.
                Err(error) if error.code() == "25006" => {}
                result => held.push(result?),
            }
        }
        let earlier = plan.begun.iter().map(|begun| begun.owner.clone());
        let turn = Turn { held, owners: earlier.chain([plan.owner.clone()]).collect() };
        for side in [&plan.source, &plan.target] {
            let places = if plan.arguments.undo { 1 } else { side.places.len() };
            side.places[..places].iter().try_for_each(|place| turn.end_others(side, place))?;
        }
        Ok(turn)
    }

    /// The session that holds the lock of a side, followed by those on other servers, but not by the source's.
    pub fn holders(&self, side: &Side<'_>) -> &[Session] {
        &self.held[usize::from(side.role == "target")..]
    }

    /// Fails if the turn on a side is over.
    pub fn prove(&self, side: &Side<'_>) -> Result {
        match self.holders(side)[0].run("SELECT") {
            Ok(_) => Ok(()),
            Err(Error::Interrupted) => Err(Error::Interrupted),
            Err(_) => {
                let what = format!("no session holds the lock of this move on the {}", side.role);
                refused(what, "Run the same command again.")
            }
        }
    }

    /// A session that may make changes.
    pub fn session(&self, side: &Side<'_>, place: &Place<'_>) -> Result<Session> {
        let session = place.session()?;
        self.prove(side)?;
        Ok(session)
    }

    /// Ends sessions of earlier runs, or of a failed part of this one, such as a restore that could still commit, and of
    /// moves of other shards, which could still write the whole list. Any role may use such a name, so those of other
    /// roles do not count, nor those of the owner on the source, which only read, nor any that begin later.
    pub fn end_others(&self, side: &Side<'_>, place: &Place<'_>) -> Result {
        let session = self.session(side, place)?;
        // The session of the other side may have the pid of another one here.
        let own = self.holders(side)[0].pid();
        let owners = if side.role == "source" { &[][..] } else { &self.owners };
        let others = session.value(
            "SELECT coalesce(json_agg(json_build_array(pid, backend_start)), '[]') FROM pg_stat_activity
             WHERE pid NOT IN ($2::integer, pg_backend_pid())
               AND (usesysid IN (SELECT oid FROM pg_roles WHERE rolsuper)
                    AND starts_with(application_name, 'idgenctl move ')
                    OR usename IN (SELECT json_array_elements_text($3::json)) AND application_name = $1)",
            &[&place.name, &own.to_string(), &json!(owners).to_string()],
        )?;
        let mut left = String::new();
        let ask = || {
            let rows = session.query(
                "SELECT string_agg(format('pid %s of %I', pid, usename), ', '), bool_or(pg_terminate_backend(pid))
                 FROM pg_stat_activity WHERE (pid, backend_start) IN (
                     SELECT (other->>0)::integer, (other->>1)::timestamptz FROM json_array_elements($1::json) AS other)",
                &[&others],
            )?;
            left = rows.row(0).string(0);
            Ok(left.is_empty().then_some(()))
        };
        let what = format!("sessions that are still at work for this move on {} to end", place.role);
        if waiting::until(Duration::from_secs(30), &what, ask)?.is_some() {
            return Ok(());
        }
        let what = format!("sessions of this move on {} do not end: {}", place.role, said(&left));
        refused(what, "Wait until they have ended. Then run the same command again.")
    }
}

/// Locks a catalog that all databases of a server share: two moves at the same time would read the same list, and each
/// would overwrite the other's change. A tenant can block it, by CREATE RULE, but is named while it waits. Where the schema is
/// restored, nobody begins to create or drop an extension meanwhile; an undo may have to drop one with the copy.
pub fn lock(place: &Place<'_>, restores: bool) -> Result<Session> {
    let session = place.session()?;
    session.set_patience(Some(Duration::from_secs(15)));
    let lock = "LOCK TABLE pg_shseclabel IN SHARE UPDATE EXCLUSIVE MODE";
    let also = if restores { "; LOCK TABLE pg_extension IN SHARE MODE" } else { "" };
    match session.run(&format!("BEGIN; SET LOCAL lock_timeout = '5s'; {lock}{also}")) {
        Err(error) if error.code() == "55P03" => refused(
            format!("another move, or a change of an extension, is at work on {}", place.role),
            "Wait until it has ended, or end the session that this one waits for, if the move was abandoned.",
        ),
        result => result.map(|_| session),
    }
}
