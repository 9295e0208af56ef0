//! What idgen says of itself on a server.

use std::time::{Duration, Instant};

use comfy_table::Table;
use serde_json::{Value, json};

use crate::connection::session::Session;
use crate::idgen::extension::Extension;
use crate::terminal::error::{Error, Result};
use crate::terminal::output::{plain, table};
use crate::terminal::signals;
use crate::topology::fleet::Member;

/// The beginnings of the warnings with which a server mints all the same.
const HARMLESS: [&str; 5] = [
    "replication origin 65534",
    "the configuration files contain a value",
    "the range of ids ends in",
    "\"idgen.max_clock_jump\" is -1",
    // Only the shards that are ahead wait.
    "the system clock is behind the ids",
];

/// An epoch, given in milliseconds since 1970, as the setting idgen.epoch takes it.
pub fn epoch_text(unix_ms: i64) -> String {
    let second = idgen_ids::epoch::utc(unix_ms).map(|text| text.replacen(' ', "T", 1).replace(" UTC", ""));
    match (second, unix_ms.rem_euclid(1000)) {
        (Some(second), 0) => format!("{second}Z"),
        (Some(second), ms) => format!("{second}.{ms:03}Z"),
        // It takes a number too.
        (None, _) => unix_ms.to_string(),
    }
}

/// For how long a standby may take to replay the extension.
const REPLAY: Duration = Duration::from_secs(30);

/// The row of idgen_status, as far as administrators need it.
pub struct Status {
    /// The name of the server.
    pub server: String,
    /// Whether it is in recovery.
    pub is_standby: bool,
    /// The time of tick 0, as the setting takes it; empty if the setting was not accepted.
    pub epoch: String,
    /// The mark, in milliseconds since the epoch; none before the first id.
    pub mark: Option<i64>,
    /// The mark as a time; none also if it counts from another epoch.
    pub mark_at: Option<String>,
    /// The last time for which there are ids.
    pub ends_at: String,
    /// The shards that it may mint for.
    pub shards: String,
    /// The worst problem.
    pub warning: Option<String>,
}

impl Status {
    /// What the extension of a session's database says.
    ///
    /// # Errors
    /// Those of the session.
    pub fn of(member: &Member, session: &Session, extension: &Extension) -> Result<Status> {
        let rows = session.run(&format!(
            "SELECT extract(epoch FROM epoch) * 1000, mark, mark_at, ends_at, allowed_shards, warning FROM {}",
            extension.name("idgen_status")
        ))?;
        let row = rows.row(0);
        Ok(Status {
            server: member.server.name.clone(),
            is_standby: member.is_standby,
            epoch: row.number::<f64>(0).map(|ms| epoch_text(ms as i64)).unwrap_or_default(),
            mark: row.number(1),
            mark_at: row.text(2),
            ends_at: row.string(3),
            shards: row.string(4),
            warning: row.text(5),
        })
    }

    /// What the extension of a database says. A standby may still have to replay it.
    ///
    /// # Errors
    /// Those of the session, and that the extension is not there.
    pub fn of_database(member: &Member, database: &str) -> Result<Status> {
        let began = Instant::now();
        loop {
            let found = member.server.connect_to(database).and_then(|session| {
                let extension = Extension::trusted(&session)?;
                Status::of(member, &session, &extension)
            });
            match found {
                Err(Error::Refused { .. } | Error::Unreachable { .. })
                    if member.is_standby && began.elapsed() < REPLAY =>
                {
                    signals::pause(Duration::from_millis(100))?;
                }
                found => return found,
            }
        }
    }

    /// Whether ids are minted, on a standby once it is promoted.
    pub fn mints(&self) -> bool {
        self.warning.as_ref().is_none_or(|text| HARMLESS.iter().any(|start| text.starts_with(start)))
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        json!({
            "server": self.server,
            "standby": self.is_standby,
            "epoch": self.epoch,
            "mark_at": self.mark_at,
            "ends_at": self.ends_at,
            "allowed_shards": self.shards,
            "warning": self.warning,
        })
    }
}

/// A table of what servers say.
pub fn table_of(states: &[Status]) -> Table {
    let mut shown = table(&["server", "role", "epoch", "mark", "shards", "warning"]);
    for state in states {
        let role = if state.is_standby { "standby" } else { "primary" };
        let mark = match (&state.mark_at, state.mark) {
            (Some(at), _) => at,
            (None, Some(_)) => "of another epoch",
            (None, None) => "none yet",
        };
        let shards = if state.shards.is_empty() { "all" } else { &state.shards };
        let warning = state.warning.as_deref().unwrap_or("none");
        shown.add_row([&state.server, role, &state.epoch, mark, shards, warning].map(plain));
    }
    shown
}

#[cfg(test)]
mod tests {
    /// Promise: an epoch that is shown can be set.
    #[test]
    fn an_epoch_is_shown_as_the_setting_takes_it() {
        for text in [
            "2025-01-01T00:00:00Z",
            "0001-01-01T00:00:00Z",
            "1969-12-31T23:59:59.999Z",
            "2011-08-24T21:07:01.021Z",
        ] {
            let epoch = idgen_ids::Epoch::parse(text).expect("an epoch");
            assert_eq!(super::epoch_text(epoch.unix_ms()), text);
        }
    }
}
