//! `idgenctl move`.

use crate::cli::{Cli, Move};
use crate::error::{Error, Result};

/// Not built yet.
pub fn run(_cli: &Cli, _arguments: &Move) -> Result<u8> {
    Err(Error::Usage("not built yet".into()))
}
