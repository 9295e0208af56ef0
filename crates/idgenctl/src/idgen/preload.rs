//! Which libraries a server preloads, now and at its next start.

use crate::connection::session::Session;
use crate::idgen::lists::{self, Of};
use crate::terminal::error::{Error, Result};
use crate::topology::fleet::HAS_PATRONI;

/// Which libraries a server preloads.
pub struct Preload {
    /// Those of the running server.
    running: Vec<String>,
    /// Those that the next start loads.
    pub next: Vec<String>,
    /// What sets the list.
    pub keeper: Keeper,
}

/// What sets the list of a server.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Keeper {
    /// The configuration files, and ALTER SYSTEM.
    #[default]
    Files,
    /// The command line.
    CommandLine,
    /// Patroni, which would undo what ALTER SYSTEM does.
    Patroni,
    /// Whatever has switched ALTER SYSTEM off, such as an operator of Kubernetes.
    Operator,
}

/// The name of a library without its path and end.
pub fn name(library: &str) -> &str {
    let file = library.rsplit('/').next().unwrap_or(library);
    file.strip_suffix(".so").unwrap_or(file)
}

/// Whether a library is that of idgen.
pub fn is_idgen(library: &str) -> bool {
    name(library) == "idgen"
}

impl Preload {
    /// What a server preloads.
    pub fn of(session: &Session) -> Result<Preload> {
        let server = session.server();
        // After such an error the server does not read on, and does not start. A setting that waits for a restart to be
        // removed has no name either, but no file.
        let broken = session.run(
            "SELECT sourcefile, sourceline, error FROM pg_file_settings WHERE name IS NULL AND sourcefile IS NOT NULL",
        )?;
        if let Some(row) = broken.iter().next() {
            return Err(Error::refused(
                format!(
                    "{server} cannot read its configuration: {}, line {}: {}",
                    row.string(0),
                    row.string(1),
                    row.string(2)
                ),
                "Nothing was changed. Correct the file, or the server does not start again.",
            ));
        }
        let libraries = |list: String| {
            lists::elements(&list, Of::Libraries).ok_or_else(|| {
                Error::refused(
                    format!("the \"shared_preload_libraries\" of {server} is no valid list: {list}"),
                    "Nothing was changed. Correct it, or the server does not start again.",
                )
            })
        };
        let rows = session.run(&format!(
            "SELECT setting, source = 'command line',
                    coalesce(current_setting('allow_alter_system', true) = 'off', false), {HAS_PATRONI}
             FROM pg_settings WHERE name = 'shared_preload_libraries'"
        ))?;
        let row = rows.row(0);
        let keeper = if row.is_true(1) {
            Keeper::CommandLine
        } else if row.is_true(3) {
            Keeper::Patroni
        } else if row.is_true(2) {
            Keeper::Operator
        } else {
            Keeper::Files
        };
        let running = libraries(row.string(0))?;
        let last = session.run(
            "SELECT setting FROM pg_file_settings WHERE lower(name) = 'shared_preload_libraries'
             ORDER BY seqno DESC LIMIT 1",
        )?;
        let next = match keeper {
            Keeper::CommandLine => running.clone(),
            _ => libraries(last.iter().next().map(|row| row.string(0)).unwrap_or_default())?,
        };
        Ok(Preload { running, next, keeper })
    }

    /// Those that the next start loads, and the running server has not loaded.
    pub fn added(&self) -> Vec<&String> {
        self.next.iter().filter(|library| !self.running.contains(library)).collect()
    }

    /// Whether the running server has loaded idgen.
    pub fn has_idgen(&self) -> bool {
        self.running.iter().any(|library| is_idgen(library))
    }

    /// Whether the next start loads idgen.
    pub fn will_have_idgen(&self) -> bool {
        self.next.iter().any(|library| is_idgen(library))
    }
}

/// Sets the list by ALTER SYSTEM, which quotes each element where it has to, and checks that this has had an effect.
pub fn add(session: &Session, libraries: &[String]) -> Result {
    let list = libraries.iter().map(|library| Session::literal(library)).collect::<Vec<_>>().join(", ");
    session.run(&format!("ALTER SYSTEM SET shared_preload_libraries = {list}"))?;
    let broken = |what: String| Error::Broken { what, hint: "Look at the view pg_file_settings.".into() };
    if Preload::of(session).map_err(|error| broken(error.to_string()))?.will_have_idgen() {
        return Ok(());
    }
    Err(broken("another line of the configuration files is in effect".into()))
}
