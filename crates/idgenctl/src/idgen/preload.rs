//! Which libraries a server preloads, now and at its next start.

use crate::connection::session::Session;
use crate::idgen::lists::{self, Of};
use crate::terminal::error::{Error, Result};
use crate::topology::fleet::HAS_PATRONI;

/// Which libraries a server preloads.
pub struct Preload {
    /// Those of the running server.
    pub running: Vec<String>,
    /// The lines of the configuration files that name a list. The last one counts.
    pub lines: Vec<Line>,
    /// What sets the list.
    pub keeper: Keeper,
}

/// A line of a configuration file.
pub struct Line {
    /// The file.
    pub file: String,
    /// The number of the line.
    pub number: String,
    /// The libraries.
    pub libraries: Vec<String>,
    /// Whether ALTER SYSTEM writes the file.
    pub is_auto: bool,
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
    ///
    /// # Errors
    /// Those of the session, and that the configuration files cannot be read.
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
        let rows = session.run(
            "SELECT sourcefile, sourceline, setting,
                    sourcefile = current_setting('data_directory') || '/postgresql.auto.conf'
             FROM pg_file_settings WHERE lower(name) = 'shared_preload_libraries' ORDER BY seqno",
        )?;
        let lines = rows.iter().map(|row| {
            Ok(Line {
                file: row.string(0),
                number: row.string(1),
                libraries: libraries(row.string(2))?,
                is_auto: row.is_true(3),
            })
        });
        Ok(Preload { running, lines: lines.collect::<Result<_>>()?, keeper })
    }

    /// The libraries that the next start loads.
    pub fn next(&self) -> Vec<String> {
        match self.keeper {
            Keeper::CommandLine => self.running.clone(),
            _ => self.lines.last().map(|line| line.libraries.clone()).unwrap_or_default(),
        }
    }

    /// Whether the running server has loaded idgen.
    pub fn has_idgen(&self) -> bool {
        self.running.iter().any(|library| is_idgen(library))
    }

    /// Whether the next start loads idgen.
    pub fn will_have_idgen(&self) -> bool {
        self.next().iter().any(|library| is_idgen(library))
    }
}

/// The statement that sets the list. PostgreSQL quotes each element where it has to.
pub fn alter_system(libraries: &[String]) -> String {
    let list = libraries.iter().map(|library| Session::literal(library)).collect::<Vec<_>>().join(", ");
    format!("ALTER SYSTEM SET shared_preload_libraries = {list}")
}

/// Checks that ALTER SYSTEM has had the effect that it was for.
///
/// # Errors
/// That it has not, although it has changed a file.
pub fn prove(session: &Session, has_idgen: bool) -> Result {
    let broken = |what: String| Error::Broken { what, hint: "Look at the view pg_file_settings.".into() };
    let preload = Preload::of(session).map_err(|error| broken(error.to_string()))?;
    if preload.will_have_idgen() == has_idgen {
        return Ok(());
    }
    Err(broken("another line of the configuration files is in effect".into()))
}
