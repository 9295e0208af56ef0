//! `idgenctl status`.

use crate::cli::{Cli, Status};
use crate::error::{Error, Result};

/// Not built yet.
pub fn run(_cli: &Cli, _arguments: &Status) -> Result<u8> {
    Err(Error::Usage("not built yet".into()))
}
