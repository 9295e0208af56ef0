//! `idgenctl check`.

use crate::cli::Cli;
use crate::error::Result;
use crate::fleet::{Fleet, Member};
use crate::output;

/// Looks at all servers.
///
/// # Errors
/// That the fleet makes no sense.
pub fn run(cli: &Cli) -> Result<u8> {
    let fleet = Fleet::load(&cli.servers)?;
    let mut table = output::table(&["server", "cluster", "standby"]);
    for member in fleet.each(Member::of) {
        match member {
            Ok(member) => {
                table.add_row([member.server.name.clone(), member.system, member.is_standby.to_string()]);
            }
            Err(error) => output::error(cli, &error),
        }
    }
    output::print(table.to_string())?;
    Ok(0)
}
