//! Findings of the check.

use std::fmt::Display;

use serde::Serialize;

use super::facts::Facts;
use super::table::{Kind, Severity};
use crate::terminal::text::{cut, plain, quoted};

/// How many names or ranges a message lists.
const MOST_SHOWN: usize = 5;

/// A finding, as JSON shows it.
#[derive(Debug, Serialize)]
pub struct Finding {
    /// The kind, or the code of the library's warning.
    pub id: String,
    pub severity: Severity,
    pub server: String,
    database: Option<String>,
    message: String,
    pub hint: String,
}

impl Finding {
    pub fn in_database(mut self, database: &str) -> Finding {
        self.database = Some(cut(database)).filter(|name| !name.is_empty());
        self
    }

    /// What it says, of whichever server.
    pub fn content(&self) -> (&str, Option<&str>, &str) {
        (&self.id, self.database.as_deref(), &self.message)
    }

    pub fn line(&self) -> String {
        let Finding { id, server, message, hint, .. } = self;
        let severity = format!("{:?}", self.severity).to_lowercase();
        let database =
            self.database.iter().map(|name| format!(", database {}", quoted(name))).collect::<String>();
        plain(format!("{severity}: {server}{database}: {message} [{id}]. {hint}").trim_end())
    }
}

impl Facts {
    pub fn found(&self, kind: &Kind, parts: &[&dyn Display]) -> Finding {
        self.finding(kind.id, kind.severity, &kind.message(parts), &kind.hint_for(self.keeper))
    }

    /// The texts may come from a hostile server.
    pub fn finding(&self, id: &str, severity: Severity, message: &str, hint: &str) -> Finding {
        let [id, message, hint] = [id, message, hint].map(cut);
        Finding { id, severity, server: self.name.clone(), database: None, message, hint }
    }
}

/// The first of these texts, and how many there are.
pub fn some(texts: &[String]) -> String {
    let shown = texts.iter().take(MOST_SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if texts.len() > MOST_SHOWN { format!("{shown}, ... ({} in all)", texts.len()) } else { shown }
}
