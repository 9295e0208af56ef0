//! `idgen.allowed_shards`, which each server has for itself: standbys do not replay settings.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use idgen_ids::shard_set::ShardSet;

use super::say;
use super::sides::{PATIENCE, Place, Side};
use crate::connection::session::Session;
use crate::connection::waiting;
use crate::idgen::library::{self, State};
use crate::terminal::error::{Error, Result};

/// The list of a server.
pub fn of(place: &Place<'_>) -> Result<ShardSet> {
    in_session(place, &*place.session()?)
}

fn in_session(place: &Place<'_>, session: &Session) -> Result<ShardSet> {
    session.set_patience(Some(PATIENCE));
    let state = library::state(session)?.filter(|state| state.preloaded);
    // Beside Citus, an empty list means no shard.
    let is_none =
        |state: &State| state.warning.as_ref().is_some_and(|warning| warning.code == "citus-without-list");
    let state = state.filter(|state| !is_none(state));
    let Some(list) = state.and_then(|state| state.allowed_shards) else {
        return Err(Error::refused(
            format!(
                "{} has no list of shards: it does not preload idgen, or needs a list beside Citus",
                place.role
            ),
            "Run idgenctl check.",
        ));
    };
    ShardSet::parse(&list).map_err(|why| {
        Error::refused(
            format!("idgen.allowed_shards of {} is not a list of shards", place.role),
            format!("{why} Correct the setting."),
        )
    })
}

/// Where the lists are kept.
#[derive(Clone, Copy)]
pub struct Lists<'a> {
    /// The program that sets them, if it is not ALTER SYSTEM.
    pub program: Option<&'a Path>,
}

impl Lists<'_> {
    /// What a person does to set a list.
    pub fn by_hand(&self, list: &ShardSet) -> String {
        match self.program {
            Some(_) => format!("set idgen.allowed_shards = '{list}' where its configuration is kept"),
            None => format!("ALTER SYSTEM SET idgen.allowed_shards = '{list}'; SELECT pg_reload_conf();"),
        }
    }

    /// Has the program set a list, if there is one.
    pub fn tell_program(&self, side: &Side<'_>, list: &ShardSet) -> Result {
        let Some(program) = self.program else { return Ok(()) };
        let shown = program.display();
        let fail = |why: String| {
            Error::refused(
                format!("{shown} {} '{list}' {why}", side.role),
                "It must set the list where the configuration of that side is kept, and exit with 0.",
            )
        };
        // Ctrl-C must not end it in the middle: it would reach every process of the terminal's group.
        let mut child = Command::new(program)
            .args([side.role, &list.to_string()])
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(std::io::stderr())
            .spawn()
            .map_err(|error| fail(format!("cannot be run: {error}")))?;
        let ended = || child.try_wait().map_err(|error| fail(error.to_string()));
        match waiting::until(Duration::MAX, &format!("{shown}"), ended) {
            Ok(Some(status)) if status.success() => Ok(()),
            Ok(status) => Err(fail(format!("failed: {}", status.unwrap_or_default()))),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Fails where ALTER SYSTEM is not allowed, or cannot write its file. It resets what is not set there.
    pub fn try_out(&self, place: &Place<'_>) -> Result {
        if self.program.is_some() {
            return Ok(());
        }
        let session = place.session()?;
        let not_set = session.run(
            "SELECT name FROM pg_settings
             WHERE name LIKE 'idgen.%' AND name NOT IN (SELECT name FROM pg_file_settings
                                                        WHERE sourcefile LIKE '%/postgresql.auto.conf' AND name IS NOT NULL)
             ORDER BY name LIMIT 1",
        )?;
        let Some(name) = not_set.iter().next().map(|row| row.string(0)) else { return Ok(()) };
        session.run(&format!("ALTER SYSTEM RESET {name}")).map(drop).map_err(|error| match error {
            Error::Sql { .. } => Error::refused(
                format!("{} cannot set its list by ALTER SYSTEM: {error}", place.role),
                "Allow it; or give a program that sets the list with --set-list.",
            ),
            error => error,
        })
    }

    /// Changes the setting of a server, unless the program does, and waits until the postmaster has told every backend.
    pub fn set(&self, place: &Place<'_>, list: &ShardSet) -> Result {
        let write = || -> Result {
            let session = place.session()?;
            session.run(&format!("ALTER SYSTEM SET idgen.allowed_shards = '{list}'"))?;
            session.run("SELECT pg_reload_conf()").map(drop)
        };
        if self.program.is_none() {
            match write() {
                // A server that was restarted since has ended the session.
                Err(Error::Unreachable { .. }) => {
                    place.forget();
                    write()?;
                }
                result => result?,
            }
        }
        // A new session has the postmaster's value, which reads its files and tells every backend before it makes another
        // process. Patroni takes its time.
        let limit = Duration::from_secs(if self.program.is_some() { 60 } else { 10 });
        let what = format!("{} to have idgen.allowed_shards = '{list}'", place.role);
        let is_set = || Ok((in_session(place, &place.fresh()?)? == *list).then_some(()));
        waiting::until(limit, &what, is_set)?.ok_or_else(|| {
            Error::refused(
                format!("idgen.allowed_shards did not become \"{list}\" on {}", place.role),
                "Look for another line that sets it: SELECT * FROM pg_file_settings;",
            )
        })
    }

    /// Changes the setting of several servers. Says what is left to do where it fails, and gives the first failure.
    pub fn set_each<'a>(&self, places: impl IntoIterator<Item = &'a Place<'a>>, list: &ShardSet) -> Result {
        let mut failure = Ok(());
        for place in places {
            if let Err(error) = self.set(place, list) {
                if matches!(error, Error::Interrupted) {
                    return Err(error);
                }
                say(format!("{error}. Still to be done on {}: {}", place.role, self.by_hand(list)));
                failure = failure.and(Err(error));
            }
        }
        failure
    }
}
