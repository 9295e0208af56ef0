//! `idgenctl accept-clock` and `idgenctl accept-epoch`.

use std::time::Duration;

use serde_json::json;

use crate::cli::{Cli, On};
use crate::clock::{self, Ahead, Base};
use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::extension::{self, Extension};
use crate::fleet::{Fleet, Member};
use crate::output::{self, note, plain, span};
use crate::session::Session;
use crate::status::{self, Status};
use crate::steps::{self, Step};

/// The beginning of the warning of a clock that jumped.
const JUMPED: &str = "the system clock jumped forward";

/// Accepts the clock of a primary as it is now.
///
/// # Errors
/// That it seems to be wrong, and what else keeps it from that.
pub fn clock(cli: &Cli, arguments: &On) -> Result<u8> {
    let fleet = Fleet::load(&cli.servers)?;
    let cluster = Cluster::of(&fleet, arguments.on.as_deref(), Member::of)?;
    let primary = cluster.primary()?;
    let (session, extension) = extension::anywhere(primary.server, &primary.session)?;
    let state = Status::of(primary, &session, &extension)?;
    // The view has loaded the library, which makes the setting known.
    let jump: f64 = session
        .value("SELECT setting FROM pg_settings WHERE name = 'idgen.max_clock_jump'", &[])?
        .parse()
        .unwrap_or(-1.0);
    let ours = Clock::of(primary)?;
    let others: Vec<Clock> =
        cluster.standbys.iter().chain(&cluster.others).map(Clock::of).collect::<Result<_>>()?;
    let jumped = state.warning.as_ref().is_some_and(|warning| warning.starts_with(JUMPED));
    if !cli.json {
        let mut shown = output::table(&["server", "clock", "ahead of this machine", "mark", "warning"]);
        let warning = state.warning.as_deref().unwrap_or("none");
        let mark = state.mark_at.as_deref().unwrap_or("none");
        shown.add_row([&ours.server, &ours.text, &ours.difference(), mark, warning].map(plain));
        // As of the same moment as the first clock.
        let here = session.value(
            "SELECT date_trunc('milliseconds', $1::timestamptz - $2::float8 * interval '1 s')",
            &[&ours.text, &ours.ahead.middle().to_string()],
        )?;
        shown.add_row(["this machine", &here, "", "", ""]);
        for other in &others {
            shown.add_row([&other.server, &other.text, &other.difference(), "", ""].map(plain));
        }
        output::print(shown.to_string())?;
    }
    if !jumped {
        note(format!("{} finds no jump of its clock: there is nothing to accept.", ours.server));
        return nothing(cli, &state);
    }
    let this_machine = ("this machine", Ahead::ZERO);
    for (other, clock) in
        others.iter().map(|other| (other.server.as_str(), other.ahead)).chain([this_machine])
    {
        if ours.ahead.least - clock.most > jump / 1000.0 {
            return Err(Error::refused(
                format!(
                    "the clock of {} is {} ahead of that of {other}",
                    ours.server,
                    span(ours.ahead.middle() - clock.middle()),
                ),
                format!(
                    "Nothing was changed. Set the clock of {} right instead: a wrong clock, once accepted, is accepted for \
                     good, and minting resumes as soon as the clock is right. If it is right and all others are wrong, \
                     call {}() there in psql.",
                    ours.server,
                    extension.name("snowflake_accept_clock")
                ),
            ));
        }
    }
    if ours.is_local && others.is_empty() {
        note("warning: no other clock is seen from here. Compare it with one that you trust.");
    }
    let accept = || {
        // It may have moved while the person compared it.
        let again = Clock::of(primary)?;
        if again.ahead.least - ours.ahead.most > jump / 1000.0 {
            return Err(Error::refused(
                format!(
                    "the clock of {} has moved forward by {} since it was shown",
                    ours.server,
                    span(again.ahead.middle() - ours.ahead.middle())
                ),
                "Look at it again.",
            ));
        }
        let by = session.value(&format!("SELECT {}()", extension.name("snowflake_accept_clock")), &[])?;
        note(format!("{} had jumped by {by}", ours.server));
        Ok(())
    };
    let what = format!("accept the clock of {} for good: {}", ours.server, ours.text);
    let done = steps::make(cli, &[Step::new(what, accept)], "Is this the right time?")?;
    let until = check(&session, &extension, "the clock is accepted")?;
    said(cli, json!({ "server": ours.server, "accepted": done.first(), "minted_until": until }))
}

/// Accepts the epoch that is set.
///
/// # Errors
/// That a standby has another one, and what else keeps it from that.
pub fn epoch(cli: &Cli, arguments: &On) -> Result<u8> {
    let fleet = Fleet::load(&cli.servers)?;
    let cluster = Cluster::of(&fleet, arguments.on.as_deref(), Member::of)?;
    let primary = cluster.primary()?;
    let (session, extension) = extension::anywhere(primary.server, &primary.session)?;
    let ours = Status::of(primary, &session, &extension)?;
    let mut states = vec![ours];
    for member in cluster.standbys.iter().chain(&cluster.others) {
        let (session, extension) = match extension::anywhere(member.server, &member.session) {
            Err(Error::Refused { what, .. })
                if cluster.others.iter().any(|o| o.server.name == member.server.name) =>
            {
                note(format!("warning: {what}"));
                continue;
            }
            found => found?,
        };
        states.push(Status::of(member, &session, &extension)?);
    }
    if !cli.json {
        output::print(status::table_of(&states).to_string())?;
    }
    let ours = &states[0];
    if ours.epoch.is_empty() {
        return Err(Error::refused(
            format!("{} has not accepted the configured \"idgen.epoch\"", ours.server),
            "Nothing was changed. Correct the setting, and restart the server.",
        ));
    }
    let Some(mark) = ours.mark.filter(|_| ours.mark_at.is_none()) else {
        note(format!("The mark of {} counts from its epoch: there is nothing to accept.", ours.server));
        for other in states[1..].iter().filter(|state| state.epoch != ours.epoch) {
            note(format!("warning: {} has the epoch {}, and not {}", other.server, other.epoch, ours.epoch));
        }
        for member in cluster.members() {
            let waits = "SELECT count(*) FROM pg_file_settings WHERE lower(name) = 'idgen.epoch' AND error IS NOT NULL";
            if member.session.value(waits, &[])? != "0" {
                note(format!(
                    "warning: idgen.epoch was changed in the files of {}: restart it for that to take effect",
                    member.server.name
                ));
            }
        }
        return nothing(cli, ours);
    };
    let is_standby =
        |state: &&Status| cluster.standbys.iter().any(|member| member.server.name == state.server);
    if let Some(other) = states.iter().filter(is_standby).find(|state| state.epoch != ours.epoch) {
        return Err(Error::refused(
            format!("the standby {} has the epoch {}, and not {}", other.server, other.epoch, ours.epoch),
            format!(
                "Nothing was changed. Set \"idgen.epoch\" to the same value on each server of the cluster, and restart it. \
                 If the change was not meant, set it back on {} instead.",
                ours.server
            ),
        ));
    }
    for other in states[1..].iter().filter(|state| !is_standby(state) && state.epoch != ours.epoch) {
        note(format!(
            "warning: {} has the epoch {}: its ids cannot be compared with those of {}",
            other.server, other.epoch, ours.server
        ));
    }
    let unknown = cluster.unknown_receivers()?;
    if !unknown.is_empty() {
        note(format!(
            "warning: standbys that are not given may have another epoch, and would mint nothing once promoted: {}",
            unknown.join(", ")
        ));
    }
    let rows = session.query(
        "SELECT $1::timestamptz + $2::bigint * interval '1 ms', $1::timestamptz - '2025-01-01 00:00:00Z'::timestamptz,
                date_trunc('seconds', $1::timestamptz + $2::bigint * interval '1 ms' - clock_timestamp()),
                $1::timestamptz + $2::bigint * interval '1 ms' > clock_timestamp()",
        &[&ours.epoch, &mark.to_string()],
    )?;
    let row = rows.row(0);
    note(format!(
        "Ids that exist count from the old epoch, which idgen does not know. From now on they decode to times that are off by \
         the difference of the epochs: by {} if the old one was the default. Keep the old epoch to read them.",
        row.string(1)
    ));
    note(format!("The range of ids ends at {}.", ours.ends_at));
    if row.is_true(3) {
        note(format!(
            "warning: the mark becomes {}, and minting has to wait until the clock gets there, in {}",
            row.string(0),
            row.string(2)
        ));
    }
    let accept = || {
        let sql = format!("SELECT {}($1::timestamptz)", extension.name("snowflake_accept_epoch"));
        session.value(&sql, &[&ours.epoch]).map(drop)
    };
    let what = format!("have the ids of {} count from {} from now on", ours.server, ours.epoch);
    let done = steps::make(cli, &[Step::new(what, accept)], "Change the epoch for good?")?;
    let until = check(&session, &extension, "the epoch is accepted")?;
    said(cli, json!({ "server": ours.server, "accepted": done.first(), "minted_until": until }))
}

/// The result if there is nothing to accept: whoever runs the command again after a failure wants to know whether the server
/// mints now.
fn nothing(cli: &Cli, state: &Status) -> Result<u8> {
    said(cli, json!({ "server": state.server, "accepted": null, "minted_until": null }))?;
    match &state.warning {
        Some(warning) if !state.mints() => {
            note(format!("error: {} mints no ids: {warning}", state.server));
            note("hint: Run idgenctl check, which says what to do.");
        }
        Some(warning) if cli.json => note(format!("warning: {warning}")),
        _ => {}
    }
    Ok(u8::from(!state.mints()))
}

/// Prints the result as JSON, if that is wanted.
fn said(cli: &Cli, json: serde_json::Value) -> Result<u8> {
    if cli.json {
        output::print(output::json(&json))?;
    }
    Ok(0)
}

/// Proves that the server mints, after something was done.
fn check(session: &Session, extension: &Extension, done: &str) -> Result<String> {
    // It waits as a call for an id does, for idgen.max_wait.
    session.set_patience(Some(Duration::from_secs(120)));
    match session.value(&format!("SELECT {}()", extension.name("snowflake_check")), &[]) {
        Ok(until) => {
            note(format!("{} mints ids.", session.server()));
            Ok(until)
        }
        Err(error) => Err(Error::Refused {
            hint: format!(
                "{}Run idgenctl check, which says what to do. To look again, run the same command.",
                error.hint().map(|hint| format!("{hint} ")).unwrap_or_default()
            ),
            what: format!("{done}, but the server does not mint: {error}"),
        }),
    }
}

/// A clock, compared with that of this machine.
struct Clock {
    server: String,
    /// What it shows.
    text: String,
    ahead: Ahead,
    /// Whether it is the clock of this machine.
    is_local: bool,
}

impl Clock {
    fn of(member: &Member) -> Result<Clock> {
        let ahead = clock::measure(&member.session, Base::now())?;
        let rows = member.session.run(
            "SELECT date_trunc('milliseconds', clock_timestamp()),
                    coalesce(inet_server_addr() = inet_client_addr(), true)",
        )?;
        let row = rows.row(0);
        Ok(Clock { server: member.server.name.clone(), text: row.string(0), ahead, is_local: row.is_true(1) })
    }

    fn difference(&self) -> String {
        let ahead = self.ahead.middle();
        let length = span(ahead.abs());
        let sign = if ahead < 0.0 && length != "0 ms" { "-" } else { "" };
        format!("{sign}{length} (to {:.1} ms)", self.ahead.error() * 1000.0)
    }
}
