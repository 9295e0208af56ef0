//! `idgen.allowed_shards`, which each server has for itself, because settings are not replicated.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::ptr;
use std::time::{Duration, Instant};

use idgen_ids::Shard;
use idgen_ids::shard_set::ShardSet;

use super::plan::Plan;
use super::run::{Turn, see_marker};
use super::sides::{Place, Side};
use crate::commands::marker::Begun;
use crate::connection::session::Session;
use crate::connection::waiting;
use crate::idgen::library::{self, State};
use crate::terminal::error::{Error, Result, refuse_any, refused};
use crate::terminal::output::note;

pub fn of(place: &Place<'_>) -> Result<ShardSet> {
    read(place, &place.any_session()?)
}

fn read(place: &Place<'_>, session: &Session) -> Result<ShardSet> {
    let state = library::state(session)?;
    state.shards().filter(|_| state.preloaded).ok_or_else(|| {
        let what = "does not preload idgen, or its list of shards is invalid or, with Citus, empty";
        Error::refused(format!("{} {what}", place.role), "Run idgenctl check.")
    })
}

/// How a list changes by the shard that moves, such as [`ShardSet::without`].
type Change = fn(ShardSet, Shard) -> ShardSet;

/// A server's list after a change. Each keeps its own otherwise: a hostile one might claim a standby of another.
pub fn changed(plan: &Plan<'_>, place: &Place<'_>, list: ShardSet, change: Change) -> Result<ShardSet> {
    let list = change(list, plan.shard);
    if list == ShardSet::NONE {
        let what = format!("{} has no other shard, and an empty list would mean all shards", place.role);
        return refused(what, "Add a shard to its list that no other server has.");
    }
    Ok(list)
}

/// Changes the list of the primary of a side; with a program, of all its servers.
pub fn set_primary(plan: &Plan<'_>, turn: &Turn, side: &Side<'_>, change: Change) -> Result {
    tell_program(plan, turn, side, change)?;
    set(plan, turn, side, side.primary(), change)
}

/// Changes the lists of the standbys of a side.
pub fn set_standbys(plan: &Plan<'_>, turn: &Turn, side: &Side<'_>, change: Change) -> Result {
    side.standbys().iter().try_for_each(|place| set(plan, turn, side, place, change))
}

/// Calls the program of `--set-list`, if there is one.
fn tell_program(plan: &Plan<'_>, turn: &Turn, side: &Side<'_>, change: Change) -> Result {
    let Some(program) = &plan.arguments.set_list else { return Ok(()) };
    let list = changed(plan, side.primary(), of(side.primary())?, change)?;
    turn.prove(side)?;
    note(format!("running {} {} '{list}'", program.display(), side.role));
    let mut command = Command::new(program);
    command.args([side.role, &list.to_string()]).stdin(Stdio::null()).stdout(std::io::stderr());
    // Ctrl-C goes to every process of the terminal's group, and must not end it halfway.
    let why = match command.process_group(0).status() {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => format!("failed: {status}"),
        Err(error) => format!("cannot be run: {error}"),
    };
    refused(
        format!("{} {} '{list}' {why}", program.display(), side.role),
        "It must set the list where the configuration of that side is kept, and exit with code 0.",
    )
}

/// Changes the setting on a server, unless the program does, and waits until it counts for every session.
fn set(plan: &Plan<'_>, turn: &Turn, side: &Side<'_>, place: &Place<'_>, change: Change) -> Result {
    let has_program = plan.arguments.set_list.is_some();
    let session = turn.session(side, place)?;
    if !ptr::eq(place, side.primary()) {
        see_marker(plan, side, place)?;
        // A hostile primary may pretend that it is locked, and have two runs change its standby at once.
        turn.holders(side).iter().try_for_each(|held| held.run("SELECT").map(drop))?;
    }
    let list = changed(plan, place, read(place, &session)?, change)?;
    if !has_program {
        session.run(&format!("ALTER SYSTEM SET idgen.allowed_shards = '{list}'"))?;
        session.run("SELECT pg_reload_conf()")?;
    }
    // The state shows what the server has read, which counts for every session. Patroni takes longer.
    let limit = Duration::from_secs(if has_program { 60 } else { 10 });
    let what = format!("{} to have idgen.allowed_shards = '{list}'", place.role);
    let hint = "Look for another line that sets it: SELECT * FROM pg_catalog.pg_file_settings;";
    waiting::until_true(limit, &what, hint, || Ok(of(place)? == list))
}

/// No other server may mint for the shard, or get it by a move that has not ended. What a move has taken from the list of
/// one and not yet given to another has a marker on both, so markers are read before lists.
pub fn elsewhere(plan: &Plan<'_>) -> Result {
    let (own, shard) = (plan.marker(false, false), i32::from(plan.shard));
    let places = [plan.source.primary(), plan.target.primary()].into_iter().chain(&plan.others);
    let sessions = places.map(Place::any_session).collect::<Result<Vec<_>>>()?;
    // The schema may be closed by now.
    let end = Instant::now() + Duration::from_secs(10);
    sessions.iter().for_each(|session| session.end.set(Some(end)));
    let mut moving = Vec::new();
    for (number, session) in sessions.iter().enumerate() {
        // A hostile source may show what it likes, so a target takes part in one move at a time.
        let is_own = |it: &Begun| number < 2 && it.token == plan.names.tokens[number];
        let is_other = |it: &Begun| it.shard == own.shard && !is_own(it);
        moving.extend(Begun::all(session)?.iter().any(is_other).then_some(session.server()));
    }
    refuse_any(
        &moving.join(", "),
        format!("moves of shard {shard} have not ended on"),
        format!("Finish or undo it. If its database is gone, run there: {};", own.remove()),
    )?;
    let missing = |error: Error| if error.code() == "58P01" { Ok(State::default()) } else { Err(error) };
    let mut minting = Vec::new();
    for session in &sessions[2..] {
        let state = library::state(session).or_else(missing)?;
        // Without the library, or if it has never been used, a server mints for none.
        let list = state.shards().filter(|_| state.preloaded || state.mark_ms.is_some());
        minting.extend(list.is_some_and(|list| list.contains(plan.shard)).then_some(session.server()));
    }
    refuse_any(
        &minting.join(", "),
        format!("other servers may mint for shard {shard}"),
        "Find out which server has the shard, and take it out of the lists of all others. An empty list means all.",
    )
}
