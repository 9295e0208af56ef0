//! Which servers form a cluster.

use std::net::IpAddr;

use crate::connection::session::{Row, Session};
use crate::idgen::library;
use crate::idgen::preload::HAS_PATRONI;
use crate::terminal::error::Result;
use crate::terminal::text::name;

/// The name under which a standby receives WAL, in SQL about a row of pg_stat_wal_receiver. This program's libpq could
/// not parse conninfo: the server's libpq writes it without quotes, and with options that an older libpq rejects.
const RECEIVES_AS: &str = "coalesce(substring(conninfo FROM '(?: |^)application_name=((?:(?! [a-z_]+=).)*)'),
              substring(conninfo FROM '(?: |^)fallback_application_name=((?:(?! [a-z_]+=).)*)'))";

/// What a server says about its place in a cluster.
#[derive(Debug, Default)]
pub struct Node {
    /// The system identifier, which initdb assigns. Every copy of a server shares it, promoted or not.
    pub system: String,
    /// Never decreases. A standby is on its primary's timeline once it has caught up, and never on a later one.
    pub timeline: u32,
    pub is_standby: bool,
    pub has_patroni: bool,
    /// Unique to a running server, which may be listed under two names.
    pub identity: String,
    pub port: u32,
    /// The name under which the server receives WAL, or would as a standby, as its sender shows it.
    pub known_as: String,
    /// The port of the server from which it receives WAL.
    pub sender_port: Option<u32>,
    pub receivers: Vec<Receiver>,
}

/// A standby, or another program that receives WAL.
#[derive(Debug, Default, PartialEq)]
pub struct Receiver {
    pub name: String,
    pub address: String,
    /// Whether it may replay, and whether it reports that it flushes. Standbys may be set to report nothing.
    pub is_standby: bool,
    pub flushes: bool,
}

impl Node {
    pub fn of(session: &Session) -> Result<Node> {
        let rows = session.run(&format!(
            "SELECT system_identifier, pg_is_in_recovery(), {HAS_PATRONI},
                 CASE WHEN pg_is_in_recovery() THEN greatest(
                     (SELECT received_tli FROM pg_stat_wal_receiver), (SELECT timeline_id FROM pg_control_checkpoint()),
                     (SELECT min_recovery_end_timeline FROM pg_control_recovery()))
                 ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer END,
                 concat_ws(' ', system_identifier, extract(epoch FROM pg_postmaster_start_time()),
                           current_setting('port'), current_setting('data_directory')),
                 current_setting('port'),
                 coalesce(btrim({RECEIVES_AS}, ''''), nullif(current_setting('cluster_name'), ''), 'walreceiver'),
                 (SELECT sender_port FROM pg_stat_wal_receiver WHERE status = 'streaming')
             FROM pg_control_system(), (SELECT coalesce((SELECT conninfo FROM pg_stat_wal_receiver),
                                                        current_setting('primary_conninfo'))) AS receiver (conninfo)"
        ))?;
        let row = rows.row(0);
        // The catalogs of a standby are those of its primary, which may claim to be of another cluster there.
        let known = library::state(session).ok().and_then(|state| state.system_identifier?.parse().ok());
        // Subscriptions have a logical slot, and pg_receivewal replays nothing, whatever its name.
        let sent = session.run(
            "SELECT application_name, host(client_addr),
                    NOT (write_lsn IS NOT NULL AND replay_lsn IS NULL)
                        AND NOT EXISTS (SELECT FROM pg_replication_slots AS s
                                        WHERE s.active_pid = r.pid AND slot_type = 'logical'),
                    flush_lsn IS NOT NULL
             FROM pg_stat_replication AS r WHERE state <> 'backup' ORDER BY 1",
        )?;
        let receiver = |row: Row<'_>| {
            let address = row.number(1).map_or("a local socket".into(), |it: IpAddr| it.to_string());
            Receiver { name: row.name(0), address, is_standby: row.is_true(2), flushes: row.is_true(3) }
        };
        Ok(Node {
            // A number: it becomes part of comments on other servers.
            system: known.or(row.number(0)).unwrap_or(0_u64).to_string(),
            is_standby: row.is_true(1),
            has_patroni: row.is_true(2),
            timeline: row.number(3).unwrap_or(0),
            identity: row.name(4),
            port: row.number(5).unwrap_or(0),
            known_as: shown_as(&row.name(6), session.version()),
            sender_port: row.number(7),
            // Only a hostile server has more.
            receivers: sent.iter().take(1000).map(receiver).collect(),
        })
    }
}

/// A standby's name as its sender, of the same version, shows it.
fn shown_as(name: &str, version: i32) -> String {
    let byte = |byte| match byte {
        b' '..=b'~' => char::from(byte).to_string(),
        _ if version < 160_000 => "?".into(),
        _ => format!("\\x{byte:02x}"),
    };
    name.bytes().map(byte).collect::<String>().chars().take(63).collect()
}

/// Whether a server may follow another. What a third one says only adds to that, so a hostile one prevents no comparison.
pub fn may_follow(standby: &Node, primary: &Node, all: &[&Node]) -> bool {
    if !standby.is_standby || primary.is_standby || primary.system != standby.system {
        return false;
    }
    // It may be of any of them: one could say that it is on an earlier timeline.
    if standby.sender_port.is_none() {
        return true;
    }
    // A copy of the primary may have standbys of its own, with the same names. With Docker, the sender_port may be mapped,
    // so ports only count for the name that standbys have by default.
    let is_sent = |sender: &Node| {
        let is_right = standby.known_as != "walreceiver" || standby.sender_port == Some(sender.port);
        is_right && sender.receivers.iter().any(|to| to.name == standby.known_as)
    };
    let mut others = all.iter().copied().filter(|it| it.is_standby && it.system == standby.system);
    primary.timeline == standby.timeline && (is_sent(primary) || others.any(is_sent))
}

/// The standbys that receive WAL from these servers, and are not among them, each with the index of its sender. Of
/// several with one name, those are known that receive from the sender's port.
pub fn strangers<'a>(nodes: &[&'a Node]) -> Vec<(usize, &'a Receiver)> {
    let (mut sent, mut standbys): (Vec<(&Node, usize, &Receiver)>, Vec<&Node>) = (Vec::new(), Vec::new());
    for (number, node) in nodes.iter().enumerate() {
        // One server may be listed under two names.
        let before = nodes[..number].iter();
        let mut same = before.filter(|it| (&it.identity, &it.system) == (&node.identity, &node.system));
        if !same.clone().any(|other| other.receivers == node.receivers) {
            sent.extend(node.receivers.iter().filter(|to| to.is_standby).map(|to| (*node, number, to)));
        }
        standbys.extend(Some(node).filter(|node| node.sender_port.is_some() && same.next().is_none()));
    }
    let is_stranger = |(place, (sender, _, to)): &(usize, &(&Node, usize, &Receiver))| {
        let is_like = |system: &str, name: &str| *system == sender.system && *name == to.name;
        let like = sent.iter().filter(|(other, _, to)| is_like(&other.system, &to.name));
        let known = standbys.iter().filter(|node| is_like(&node.system, &node.known_as));
        if to.name != "walreceiver" && like.count() == 1 && known.clone().count() == 1 {
            return false;
        }
        let before = sent[..*place]
            .iter()
            .filter(|(other, _, to)| is_like(&other.system, &to.name) && other.port == sender.port);
        before.count() >= known.filter(|node| node.sender_port == Some(sender.port)).count()
    };
    let strangers = sent.iter().enumerate().filter(is_stranger);
    strangers.map(|(_, (_, number, to))| (*number, *to)).collect()
}

pub fn unknown_standbys(all: &[&Node]) -> String {
    let names = strangers(all).into_iter().map(|(_, to)| format!("{} at {}", name(&to.name), to.address));
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise: no server is taken for a standby of another because of a shared name.
    #[test]
    fn a_name_that_several_may_have_is_known_by_the_port() {
        let sender = |port, names: &[&str]| {
            let to = |name: &&str| Receiver { name: (*name).into(), is_standby: true, ..Receiver::default() };
            let receivers = names.iter().map(to).collect();
            Node { port, identity: port.to_string(), receivers, ..Node::default() }
        };
        let standby = |name: &str, port| {
            let (known_as, identity) = (name.to_owned(), format!("{name} {port}"));
            Node { known_as, identity, is_standby: true, sender_port: Some(port), ..Node::default() }
        };
        let strangers = |all: &[Node]| -> Vec<String> {
            strangers(&all.iter().collect::<Vec<_>>())
                .iter()
                .map(|(number, to)| format!("{} of {number}", to.name))
                .collect()
        };
        // It follows a standby that is not given.
        let default = "walreceiver";
        assert_eq!(strangers(&[sender(1, &[default]), standby(default, 2)]), ["walreceiver of 0"]);
        assert_eq!(strangers(&[sender(1, &["two"; 2]), standby("two", 1)]), ["two of 0"]);
        // One of both follows another server that is not given.
        assert_eq!(strangers(&[sender(1, &["two"; 2]), standby("two", 1), standby("two", 3)]), ["two of 0"]);
        assert_eq!(strangers(&[sender(1, &["two"]), sender(2, &["two"]), standby("two", 2)]), ["two of 0"]);
        // A mapped port, and a server that is listed twice.
        assert!(strangers(&[sender(1, &["s", "t"]), standby("s", 2), standby("t", 1)]).is_empty());
        let twice = [sender(1, &["s"]), sender(1, &["s"]), standby("s", 1), standby("s", 1)];
        assert!(strangers(&twice).is_empty());
        assert_eq!(shown_as("größe", 150_000), "gr????e");
        assert_eq!(shown_as(&"ö".repeat(30), 160_000), r"\xc3\xb6".repeat(30)[..63]);
    }
}
