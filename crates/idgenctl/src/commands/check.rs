//! `idgenctl check`.

mod clocks;
mod databases;
mod fleet_rules;
mod look;

use std::collections::HashSet;

use serde::Serialize;

use crate::cli::Cli;
use crate::terminal::error::{Error, Result};
use crate::terminal::output::{self, plain};
use crate::topology::clock::Base;
use crate::topology::cluster;
use crate::topology::fleet::Fleet;

use look::Look;

/// What the check cannot know, however well all is.
const NOT_SEEN: &str = "Not seen: servers that are not in the fleet, ids passed over since a backup, time daemons, \
                        standbys fed from an archive only, and whether a disk keeps what it has flushed. Nothing was \
                        minted: snowflake_check() on a primary tests that.";

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Severity {
    /// Ids are not minted, or may be repeated, or will be once the standby is promoted.
    Error,
    /// This may become an error.
    Warning,
    /// Something to know. It is no finding for the exit code.
    Note,
}

/// What was found.
#[derive(Debug, Serialize)]
struct Finding {
    /// The kind, which stays the same in later versions.
    id: &'static str,
    severity: Severity,
    server: String,
    database: Option<String>,
    message: String,
    hint: String,
}

impl Finding {
    fn new(
        severity: Severity,
        id: &'static str,
        server: &str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Finding {
        Finding {
            id,
            severity,
            server: server.into(),
            database: None,
            message: message.into(),
            hint: hint.into(),
        }
    }

    fn error(id: &'static str, server: &str, message: impl Into<String>, hint: impl Into<String>) -> Finding {
        Finding::new(Severity::Error, id, server, message, hint)
    }

    fn warning(
        id: &'static str,
        server: &str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Finding {
        Finding::new(Severity::Warning, id, server, message, hint)
    }

    fn note(id: &'static str, server: &str, message: impl Into<String>, hint: impl Into<String>) -> Finding {
        Finding::new(Severity::Note, id, server, message, hint)
    }

    fn in_database(mut self, database: &str) -> Finding {
        self.database = Some(database.into());
        self
    }

    fn line(&self) -> String {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        };
        let database =
            self.database.as_ref().map(|name| format!(", database \"{name}\"")).unwrap_or_default();
        plain(&format!(
            "{severity}: {}{database}: {} [{}]. {}",
            self.server, self.message, self.id, self.hint
        ))
    }
}

/// Looks at all servers.
///
/// # Errors
/// That the fleet makes no sense; and Ctrl-C.
pub fn run(cli: &Cli) -> Result<u8> {
    super::end_by_signals(130);
    let fleet = Fleet::load(&cli.servers)?;
    let base = Base::now();
    let (mut looks, mut findings) = (Vec::new(), Vec::new());
    for (server, look) in fleet.servers.iter().zip(fleet.each(|server| look::at(server, base))) {
        match look {
            Ok(look) => looks.push(look),
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => findings.push(not_reached(&server.name, &error)),
        }
    }
    let all_answer = findings.is_empty();
    findings.extend(without_twins(&mut looks));
    findings.extend(fleet_rules::judge(&looks, all_answer));
    // With the list of its primary, a standby has the same columns, and nothing new to say of them.
    let lists: Vec<_> =
        looks.iter().filter(|look| !look.is_standby).map(|look| (look.system.clone(), look.shards)).collect();
    for look in &mut looks {
        let is_said = look.is_standby && lists.contains(&(look.system.clone(), look.shards));
        let new =
            |finding: &Finding| !(is_said && matches!(finding.id, "shard-not-allowed" | "schema-moved"));
        findings.extend(look.findings.drain(..).filter(new));
    }
    // On a standby, both say that its epoch is not that of the primary.
    let differs: Vec<_> =
        findings.iter().filter(|finding| finding.id == "epoch-differs").map(|f| f.server.clone()).collect();
    let is_said = |finding: &Finding| {
        finding.id == "epoch-of-mark"
            && differs.contains(&finding.server)
            && looks.iter().any(|look| look.name == finding.server && look.is_standby)
    };
    findings.retain(|finding| !is_said(finding));
    let order = |name: &str| fleet.servers.iter().position(|server| server.name == name);
    findings.sort_by_key(|finding| (finding.severity, order(&finding.server)));

    let found = findings.iter().filter(|finding| finding.severity < Severity::Note).count();
    if cli.json {
        let value = serde_json::to_value(&findings)
            .map_err(|error| Error::refused(error.to_string(), "Run the command without --json."))?;
        output::print(output::json(&value))?;
    } else {
        for finding in &findings {
            output::print(finding.line())?;
        }
        if found == 0 {
            let nothing = if findings.is_empty() { "nothing" } else { "nothing but notes" };
            output::print(format!("{nothing} {}. {NOT_SEEN}", looked_at(&looks)))?;
        }
    }
    Ok(if found == 0 { 0 } else { 3 })
}

/// What an error says, without the name of the server, which the line about it has anyway.
fn why(server: &str, error: &Error) -> String {
    let text = error.to_string();
    let rest = text.strip_prefix(server).map(|rest| rest.trim_start_matches([':', ' ']).to_owned());
    rest.filter(|rest| !rest.is_empty()).unwrap_or(text)
}

fn not_reached(server: &str, error: &Error) -> Finding {
    let (id, hint) = match error {
        Error::Refused { hint, .. } => ("no-superuser", hint.as_str()),
        Error::Sql { .. } => {
            ("server-not-seen", "Find out why: until then, little is known about the server.")
        }
        // libpq has a limit of its own for making a connection.
        error if matches!(error, Error::NoAnswer { .. }) || error.to_string().contains("timeout expired") => {
            (
                "no-answer",
                "See whether the server hangs or is overloaded. Until it answers, nothing is known of it.",
            )
        }
        _ => (
            "unreachable",
            "Start the server, or correct its connection string. Until then nothing is known of it.",
        ),
    };
    Finding::error(id, server, why(server, error), hint)
}

/// Takes out servers that are there by two names: they would look like two primaries of a cluster.
fn without_twins(looks: &mut Vec<Look>) -> Vec<Finding> {
    let mut seen = HashSet::new();
    let (first, twins): (Vec<_>, Vec<_>) =
        looks.drain(..).partition(|look| seen.insert(look.identity.clone()));
    *looks = first;
    let note = |twin: Look| {
        let other = looks.iter().find(|look| look.identity == twin.identity).map(|look| look.name.as_str());
        let message = format!("this is the same server as {}", other.unwrap_or_default());
        Finding::note("same-server", &twin.name, message, "Name it once.")
    };
    twins.into_iter().map(note).collect()
}

fn looked_at(looks: &[Look]) -> String {
    let (clusters, _) = cluster::groups(looks.iter().map(Look::lineage));
    let primaries = looks.iter().filter(|look| !look.is_standby);
    let databases: usize = primaries.clone().map(|look| look.databases).sum();
    let with_idgen: usize = primaries.map(|look| look.with_idgen).sum();
    let counted = |number, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    format!(
        "found on {} of {}, with {}, of which {with_idgen} have idgen",
        counted(looks.len(), "server"),
        counted(clusters.len(), "cluster"),
        counted(databases, "database"),
    )
}
