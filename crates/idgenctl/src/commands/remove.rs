//! `idgenctl remove`.

use crate::cli::{Cli, On};
use crate::error::{Error, Result};

/// Not built yet.
pub fn run(_cli: &Cli, _arguments: &On) -> Result<u8> {
    Err(Error::Usage("not built yet".into()))
}
