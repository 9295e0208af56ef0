//! Changes that are shown, consented to, and made one after the other.

use crate::cli::Cli;
use crate::terminal::error::{Error, Result};
use crate::terminal::output::{self, note};
use crate::terminal::signals;

/// A change.
pub struct Step<'a> {
    /// What it does: a sentence without its full stop.
    what: String,
    work: Box<dyn Fn() -> Result + 'a>,
}

impl<'a> Step<'a> {
    /// A change that a function makes, as a whole or not at all.
    pub fn new(what: impl Into<String>, work: impl Fn() -> Result + 'a) -> Step<'a> {
        Step { what: what.into(), work: Box::new(work) }
    }
}

/// Shows the changes, asks, and makes them. Gives what was done.
pub fn make(cli: &Cli, steps: &[Step], question: &str) -> Result<Vec<String>> {
    if steps.is_empty() {
        return Ok(Vec::new());
    }
    note("This is to be done:");
    steps.iter().for_each(|step| note(format!("  - {}", step.what)));
    output::consent(cli, question)?;
    // Not before the question: it ends by Ctrl-C as usual.
    signals::notice_signals();
    let mut done: Vec<String> = Vec::new();
    for step in steps {
        if let Err(error) = (step.work)() {
            return Err(after(&done, &step.what, &error));
        }
        note(format!("done: {}", step.what));
        done.push(step.what.clone());
    }
    Ok(done)
}

/// The error of a change, with what was done before.
fn after(done: &[String], what: &str, error: &Error) -> Error {
    let hint =
        error.hint().filter(|hint| !hint.is_empty()).map(|hint| format!("{hint} ")).unwrap_or_default();
    let again = "Then run the same command again: it does what is left.";
    // Any other error leaves open whether the server has made the change.
    let refused = matches!(error, Error::Sql { .. } | Error::Refused { .. });
    if done.is_empty() && refused {
        return Error::refused(format!("{what}: {error}"), format!("{hint}Nothing was changed. {again}"));
    }
    let before = if done.is_empty() {
        "Nothing was changed before.".to_owned()
    } else {
        format!("This was done before: {}.", done.join("; "))
    };
    let perhaps = match error {
        _ if refused => "",
        Error::Broken { .. } => " This change was made in part.",
        _ => " This change itself may have been made or not.",
    };
    Error::Broken { what: format!("{what}: {error}"), hint: format!("{hint}{before}{perhaps} {again}") }
}
