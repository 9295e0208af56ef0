//! Which libraries a server preloads, now and at its next start.

use pg_formats::lists;

use crate::connection::session::Session;
use crate::terminal::error::{Error, Result};

/// SQL that is true if Patroni is connected as a superuser. Any role may give its sessions that name.
pub const HAS_PATRONI: &str = "EXISTS (SELECT FROM pg_stat_activity JOIN pg_roles AS r ON r.oid = usesysid
                                       WHERE rolsuper AND starts_with(application_name, 'Patroni'))";

pub struct Preload {
    /// Whether the running server has loaded idgen, and whether the next start will.
    pub has_idgen: bool,
    pub will_have_idgen: bool,
    /// What the next start loads.
    pub next: Vec<String>,
    pub keeper: Keeper,
}

/// What sets the configuration of a server.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Keeper {
    /// The configuration files, and ALTER SYSTEM.
    #[default]
    Files,
    CommandLine,
    /// Patroni would undo ALTER SYSTEM.
    Patroni,
    /// A Kubernetes operator, for example, which has disabled ALTER SYSTEM.
    Operator,
}

/// Whether a list names idgen, with a path or without.
fn has_idgen(libraries: &[String]) -> bool {
    libraries.iter().any(|library| {
        let path = library.strip_suffix(".so").unwrap_or(library);
        path.rsplit('/').next() == Some("idgen")
    })
}

impl Preload {
    pub fn of(session: &Session) -> Result<Preload> {
        let rows = session.run(&format!(
            "SELECT setting, source = 'command line',
                    coalesce(current_setting('allow_alter_system', true) = 'off', false), {HAS_PATRONI},
                    (SELECT setting FROM pg_file_settings WHERE lower(name) = 'shared_preload_libraries'
                     ORDER BY seqno DESC LIMIT 1)
             FROM pg_settings WHERE name = 'shared_preload_libraries'"
        ))?;
        let row = rows.row(0);
        let keeper = match (row.is_true(1), row.is_true(3), row.is_true(2)) {
            (true, ..) => Keeper::CommandLine,
            (_, true, _) => Keeper::Patroni,
            (_, _, true) => Keeper::Operator,
            _ => Keeper::Files,
        };
        let next = row.string(if keeper == Keeper::CommandLine { 0 } else { 4 });
        let libraries = |list: &str| {
            let what =
                || format!("\"shared_preload_libraries\" of {} is not valid: {list}", session.server());
            let hint = "Correct it, or the server will not start again.";
            lists::elements(list).ok_or_else(|| Error::refused(what(), hint))
        };
        let (now, next) = (libraries(&row.string(0))?, libraries(&next)?);
        Ok(Preload { has_idgen: has_idgen(&now), will_have_idgen: has_idgen(&next), next, keeper })
    }
}
