//! Errors of the program.

use std::fmt::{self, Display};

use crate::terminal::text::{plain, said, span};

pub type Result<T = ()> = std::result::Result<T, Error>;

/// Shown as one paragraph, with a hint.
#[derive(Debug)]
pub enum Error {
    /// No connection could be made, or it was lost. The code is empty unless the server sent an SQLSTATE.
    Unreachable { server: String, code: String, why: String },
    /// A statement failed.
    Sql { server: String, code: String, message: String, detail: Option<String>, hint: Option<String> },
    /// A precondition is not met, and nothing was changed.
    Refused { what: String, hint: String },
    /// The command stopped halfway.
    Broken { what: String, hint: String },
    /// Ctrl-C, or another signal to end.
    Interrupted,
    /// Invalid arguments, or an invalid fleet file.
    Usage(String),
}

/// Fails with [`Error::Refused`].
pub fn refused<T>(what: impl Into<String>, hint: impl Into<String>) -> Result<T> {
    Err(Error::refused(what, hint))
}

/// Fails with [`Error::Refused`] if anything was found that is in the way. Names in it are quoted.
pub fn refuse_any(found: &str, what: impl Display, hint: impl Into<String>) -> Result {
    if found.is_empty() { Ok(()) } else { refused(format!("{what}: {found}"), hint) }
}

impl Error {
    pub fn refused(what: impl Into<String>, hint: impl Into<String>) -> Error {
        Error::Refused { what: what.into(), hint: hint.into() }
    }

    pub fn late(server: &str, seconds: f64) -> Error {
        let why = format!("it did not answer within {}", span(seconds));
        Error::Unreachable { server: server.into(), code: String::new(), why }
    }

    /// The SQLSTATE; empty if there is none.
    pub fn code(&self) -> &str {
        match self {
            Error::Sql { code, .. } | Error::Unreachable { code, .. } => code,
            _ => "",
        }
    }

    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Usage(_) => 2,
            Error::Broken { .. } => 4,
            Error::Interrupted => 130,
            _ => 1,
        }
    }

    pub fn hint(&self) -> Option<&str> {
        match self {
            Error::Refused { hint, .. } | Error::Broken { hint, .. } => Some(hint),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unreachable { server, why, .. } => {
                write!(f, "{server} cannot be reached: {}", said(&plain(why)))
            }
            Error::Sql { server, code, message, detail, hint } => {
                write!(f, "{server}: {} ({code})", said(&plain(message)))?;
                detail.iter().try_for_each(|detail| write!(f, ". {}", said(&plain(detail))))?;
                hint.iter().try_for_each(|hint| write!(f, ". It advises: {}", said(&plain(hint))))
            }
            Error::Refused { what, .. } | Error::Broken { what, .. } | Error::Usage(what) => {
                f.write_str(&plain(what))
            }
            Error::Interrupted => f.write_str("interrupted"),
        }
    }
}
