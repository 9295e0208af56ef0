//! `idgen.allowed_shards`, which each server has for itself, because settings are not replicated.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use idgen_ids::Shard;
use idgen_ids::shard_set::ShardSet;

use super::plan::Plan;
use super::run::Turn;
use super::sides::{Place, Side};
use crate::connection::waiting;
use crate::idgen::library;
use crate::terminal::error::{Error, Result, refused};
use crate::terminal::output::note;

pub fn of(place: &Place<'_>) -> Result<ShardSet> {
    let state = library::state(&place.any_session()?)?.filter(|state| state.preloaded);
    state.and_then(|state| state.shards()).ok_or_else(|| {
        let what = "does not preload idgen, or its list of shards is invalid or, with Citus, empty";
        Error::refused(format!("{} {what}", place.role), "Run idgenctl check.")
    })
}

/// How a list changes by the shard that moves, such as [`ShardSet::without`].
type Change = fn(ShardSet, Shard) -> ShardSet;

/// The list of a server after a change. Each keeps its own otherwise: a hostile one might claim a standby of another.
pub fn changed(plan: &Plan<'_>, place: &Place<'_>, change: Change) -> Result<ShardSet> {
    let list = change(of(place)?, plan.shard);
    if list == ShardSet::NONE {
        let what = format!("{} has no other shard, and an empty list would mean all shards", place.role);
        return refused(what, "Add a shard to its list that no other server has.");
    }
    Ok(list)
}

/// Calls the program of `--set-list`, if there is one.
pub fn tell_program(plan: &Plan<'_>, turn: &Turn, side: &Side<'_>, change: Change) -> Result {
    let Some(program) = &plan.arguments.set_list else { return Ok(()) };
    let list = changed(plan, side.primary(), change)?;
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

/// Changes the setting on a server, unless the program does, and waits until the postmaster has signaled every backend.
pub fn set(plan: &Plan<'_>, turn: &Turn, side: &Side<'_>, place: &Place<'_>, change: Change) -> Result {
    let has_program = plan.arguments.set_list.is_some();
    // A hostile server may keep this waiting, so the list is read afterwards.
    let session = turn.session(side, place)?;
    let list = changed(plan, place, change)?;
    if !has_program {
        session.run(&format!("ALTER SYSTEM SET idgen.allowed_shards = '{list}'"))?;
        session.run("SELECT pg_reload_conf()")?;
    }
    // A new session has the value of the postmaster, which has signaled every backend by then. Patroni takes longer.
    let limit = Duration::from_secs(if has_program { 60 } else { 10 });
    let what = format!("{} to have idgen.allowed_shards = '{list}'", place.role);
    if waiting::until(limit, &what, || Ok((of(place)? == list).then_some(())))?.is_some() {
        return Ok(());
    }
    refused(
        format!("idgen.allowed_shards did not become \"{list}\" on {}", place.role),
        "Look for another line that sets it: SELECT * FROM pg_catalog.pg_file_settings;",
    )
}

pub fn set_all(plan: &Plan<'_>, turn: &Turn, side: &Side<'_>, change: Change) -> Result {
    tell_program(plan, turn, side, change)?;
    side.places.iter().try_for_each(|place| set(plan, turn, side, place, change))
}
