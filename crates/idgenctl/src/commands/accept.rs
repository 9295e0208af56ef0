//! `idgenctl accept-clock` and `idgenctl accept-epoch`.

use crate::cli::{Cli, On};
use crate::error::{Error, Result};

/// Not built yet.
pub fn clock(_cli: &Cli, _arguments: &On) -> Result<u8> {
    Err(Error::Usage("not built yet".into()))
}

/// Not built yet.
pub fn epoch(_cli: &Cli, _arguments: &On) -> Result<u8> {
    Err(Error::Usage("not built yet".into()))
}
