//! Why the program fails.

use std::fmt::{self, Display};

use crate::terminal::text::plain;

/// A result of this program.
pub type Result<T = ()> = std::result::Result<T, Error>;

/// Why the program fails. Each variant is shown as one paragraph, with what to do.
#[derive(Debug)]
pub enum Error {
    /// The server cannot be reached, or the connection was lost.
    Unreachable {
        server: String,
        /// The SQLSTATE with which the server has refused; otherwise an empty text.
        code: String,
        why: String,
    },
    /// The server did not answer in time, although it accepted the connection.
    NoAnswer { server: String, seconds: u64 },
    /// The server refused a statement.
    Sql { server: String, code: String, message: String, detail: Option<String>, hint: Option<String> },
    /// Something is not as it must be, and nothing was changed.
    Refused { what: String, hint: String },
    /// The command stopped in the middle.
    Broken { what: String, hint: String },
    /// The person has pressed Ctrl-C, or the program was told to end.
    Interrupted,
    /// The arguments or the file of servers make no sense.
    Usage(String),
}

/// The result of a command that found something that is not as it must be, and changed nothing.
pub fn refused<T>(what: impl Into<String>, hint: impl Into<String>) -> Result<T> {
    Err(Error::refused(what, hint))
}

/// Refuses with a list of what is in the way, unless it is empty.
pub fn refuse_any(found: &str, what: impl Display, hint: impl Into<String>) -> Result {
    if found.is_empty() { Ok(()) } else { refused(format!("{what}: {found}"), hint) }
}

impl Error {
    /// Something is not as it must be, and nothing was changed.
    pub fn refused(what: impl Into<String>, hint: impl Into<String>) -> Error {
        Error::Refused { what: what.into(), hint: hint.into() }
    }

    /// The SQLSTATE; an empty text if there is none.
    pub fn code(&self) -> &str {
        match self {
            Error::Sql { code, .. } | Error::Unreachable { code, .. } => code,
            _ => "",
        }
    }

    /// The code that the program exits with.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Usage(_) => 2,
            Error::Broken { .. } => 4,
            Error::Interrupted => 130,
            _ => 1,
        }
    }

    /// What to do, if the error says it.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Error::Refused { hint, .. } | Error::Broken { hint, .. } => Some(hint),
            Error::Sql { hint, .. } => hint.as_deref(),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unreachable { server, why, .. } => {
                write!(f, "{server} cannot be reached: {}", plain(why.trim()))
            }
            Error::NoAnswer { server, seconds } => write!(f, "{server} did not answer within {seconds} s"),
            Error::Sql { server, code, message, detail, .. } => {
                write!(f, "{server}: {} ({code})", plain(message))?;
                detail.iter().try_for_each(|detail| write!(f, ". {}", plain(detail)))
            }
            Error::Refused { what, .. } | Error::Broken { what, .. } | Error::Usage(what) => {
                f.write_str(&plain(what))
            }
            Error::Interrupted => f.write_str("interrupted"),
        }
    }
}
