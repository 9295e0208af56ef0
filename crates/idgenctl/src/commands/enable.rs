//! `idgenctl enable`.

use crate::cli::{Cli, Enable};
use crate::error::{Error, Result};

/// Not built yet.
pub fn run(_cli: &Cli, _arguments: &Enable) -> Result<u8> {
    Err(Error::Usage("not built yet".into()))
}
