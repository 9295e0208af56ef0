//! `idgenctl carry`.

use crate::cli::{Carry, Cli};
use crate::error::{Error, Result};

/// Not built yet.
pub fn run(_cli: &Cli, _arguments: &Carry) -> Result<u8> {
    Err(Error::Usage("not built yet".into()))
}
