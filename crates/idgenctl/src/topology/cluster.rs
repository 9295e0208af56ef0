//! Which servers form a cluster.

use crate::connection::session::{Row, Session};
use crate::terminal::error::Result;

/// The name under which a standby receives WAL, in SQL about a row of pg_stat_wal_receiver. This program's libpq could
/// not parse conninfo: the server's libpq writes it without quotes, and with options that an older libpq rejects.
pub const RECEIVES_AS: &str =
    "coalesce(substring(conninfo FROM '(?: |^)application_name=((?:(?! [a-z_]+=).)*)'),
              substring(conninfo FROM '(?: |^)fallback_application_name=((?:(?! [a-z_]+=).)*)'))";

/// A standby's name as its sender, of the same version, shows it.
pub fn shown_as(name: &str, version: i32) -> String {
    let byte = |byte| match byte {
        b' '..=b'~' => char::from(byte).to_string(),
        _ if version < 160_000 => "?".into(),
        _ => format!("\\x{byte:02x}"),
    };
    name.bytes().map(byte).collect::<String>().chars().take(63).collect()
}

/// What tells which cluster a server belongs to.
#[derive(Debug, Clone, Copy)]
pub struct Lineage<'a> {
    /// The system identifier, which initdb assigns. Every copy of a server shares it, promoted or not.
    pub system: &'a str,
    /// Never decreases. A standby is on its primary's timeline once it has caught up, and never on a later one.
    pub timeline: u32,
    pub is_standby: bool,
}

/// The primaries that a standby may follow, as indexes of servers. Each primary has a cluster of its own, even if it was
/// once a standby of another. Of several with its system identifier, those on its timeline count.
pub fn primaries_of(standby: Lineage<'_>, servers: &[Lineage<'_>]) -> Vec<usize> {
    let may_follow = |primary: &Lineage<'_>| {
        !primary.is_standby && primary.system == standby.system && primary.timeline >= standby.timeline
    };
    let all: Vec<usize> = (0..servers.len()).filter(|n| may_follow(&servers[*n])).collect();
    let near: Vec<usize> = all.iter().copied().filter(|n| servers[*n].timeline == standby.timeline).collect();
    if near.is_empty() { all } else { near }
}

/// Standbys that receive WAL from these servers, and are not among them. A standby may be promoted, so each matters.
pub fn unknown_standbys(sessions: &[&Session]) -> Result<String> {
    // Subscriptions get no marks, and pg_receivewal replays nothing, whatever its name.
    let sent = "SELECT application_name, coalesce('at ' || host(client_addr), 'over a local socket') FROM pg_stat_replication
                WHERE state <> 'backup' AND NOT (state = 'streaming' AND replay_lsn IS NULL)
                  AND pid NOT IN (SELECT active_pid FROM pg_replication_slots WHERE slot_type = 'logical' AND active)
                ORDER BY 1";
    let received = format!("SELECT btrim({RECEIVES_AS}, ''''), sender_port FROM pg_stat_wal_receiver");
    let (mut senders, mut standbys) = (Vec::new(), Vec::new());
    for session in sessions {
        let port = session.value("SHOW port", &[])?.parse().ok();
        senders.extend(session.run(sent)?.iter().map(|row| (row.string(0), row.string(1), port)));
        let name = |text: &str| shown_as(text, session.version());
        // A server has at most one.
        let of_row = |row: Row<'_>| (name(&row.string(0)), row.number(1).or(Some(0)));
        standbys.extend(session.run(&received)?.iter().next().map(of_row));
    }
    let from: Vec<End<'_>> = senders.iter().map(|(name, _, port)| (&**name, *port)).collect();
    let to: Vec<End<'_>> = standbys.iter().map(|(name, port)| (&**name, *port)).collect();
    let unknown = senders.iter().zip(receivers(&from, &to)).filter(|(_, standby)| standby.is_none());
    Ok(unknown.map(|((name, address, _), _)| format!("{name} {address}")).collect::<Vec<_>>().join(", "))
}

/// One end of a WAL stream: the standby's name, and the sender's port.
type End<'a> = (&'a str, Option<u32>);

/// Finds the standby of each WAL sender. With Docker, its sender_port may be mapped, so ports only count for shared
/// names.
fn receivers(senders: &[End<'_>], standbys: &[End<'_>]) -> Vec<Option<usize>> {
    let mut found = Vec::new();
    for sender in senders {
        let is_one = |ends: &[End<'_>]| ends.iter().filter(|end| end.0 == sender.0).count() < 2;
        let is_clear = sender.0 != "walreceiver" && is_one(senders) && is_one(standbys);
        let suits = |end: &End<'_>| end == sender || is_clear && end.0 == sender.0;
        found.push((0..standbys.len()).find(|n| suits(&standbys[*n]) && !found.contains(&Some(*n))));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise: a standby is assigned to its own primary or, if that is not certain, to all that it may be.
    #[test]
    fn a_standby_belongs_to_the_primary_on_its_timeline() {
        let (primary, standby) = (false, true);
        let of = |system: &'static str, timeline: u32, servers: &[(&'static str, u32, bool)]| {
            let lineage = |&(system, timeline, is_standby): &_| Lineage { system, timeline, is_standby };
            let servers: Vec<_> = servers.iter().map(lineage).collect();
            primaries_of(Lineage { system, timeline, is_standby: standby }, &servers)
        };
        // An original, its promoted standby, a standby, and another cluster.
        let all = [("a", 1, standby), ("a", 1, primary), ("a", 2, primary), ("b", 2, primary)];
        assert_eq!(of("a", 1, &all), [1]);
        assert_eq!(of("a", 2, &all), [2]);
        assert_eq!(of("b", 2, &all), [3]);
        // A standby may lag behind its primary, but is never ahead of it.
        assert_eq!(of("a", 2, &[("a", 3, primary)]), [0]);
        assert!(of("a", 2, &[("a", 1, primary)]).is_empty());
        // It could be either.
        assert_eq!(of("a", 2, &[("a", 2, primary), ("a", 2, primary), ("a", 3, primary)]), [0, 1]);
        assert_eq!(of("a", 1, &[("a", 2, primary), ("a", 3, primary)]), [0, 1]);
    }

    /// Promise: no server is taken for a standby of another because of a shared name.
    #[test]
    fn a_name_that_several_may_have_is_known_by_the_port() {
        let end = |name: &'static str, port| (name, Some(port));
        // It follows a standby that is not given.
        assert_eq!(receivers(&[end("walreceiver", 1)], &[end("walreceiver", 2)]), [None]);
        assert_eq!(receivers(&[end("two", 1); 2], &[end("two", 1)]), [Some(0), None]);
        // A mapped port.
        assert_eq!(receivers(&[end("s", 1), end("t", 1)], &[end("s", 2)]), [Some(0), None]);
        assert_eq!(shown_as("größe", 150_000), "gr????e");
        assert_eq!(shown_as(&"ö".repeat(30), 160_000), r"\xc3\xb6".repeat(30)[..63]);
    }
}
