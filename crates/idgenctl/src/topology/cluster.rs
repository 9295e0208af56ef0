//! Which servers form a cluster.

/// WAL senders of standbys, in SQL. Subscriptions get no marks, and pg_receivewal replays nothing, whatever its name.
pub const STANDBYS: &str = "FROM pg_stat_replication
    WHERE state <> 'backup' AND NOT (state = 'streaming' AND replay_lsn IS NULL)
      AND pid NOT IN (SELECT active_pid FROM pg_replication_slots WHERE slot_type = 'logical' AND active)";

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

/// A primary and its standbys, or standbys whose primary is not given, as indexes of servers.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Group {
    pub primary: Option<usize>,
    pub standbys: Vec<usize>,
}

/// Groups servers into clusters. Each primary has a cluster of its own, even if it was once a standby of another. A
/// standby belongs to the primary with its system identifier; of several, to the one on its timeline.
pub fn groups<'a>(servers: impl IntoIterator<Item = Lineage<'a>>) -> (Vec<Group>, Vec<(usize, Vec<usize>)>) {
    let servers: Vec<_> = servers.into_iter().collect();
    let primaries = (0..servers.len()).filter(|n| !servers[*n].is_standby);
    let mut groups: Vec<Group> = primaries.map(|n| Group { primary: Some(n), ..Group::default() }).collect();
    let mut unclear = Vec::new();
    for (number, standby) in servers.iter().enumerate().filter(|(_, server)| server.is_standby) {
        let may_follow = |primary: &Lineage<'_>| {
            !primary.is_standby && primary.system == standby.system && primary.timeline >= standby.timeline
        };
        let all: Vec<usize> = (0..servers.len()).filter(|n| may_follow(&servers[*n])).collect();
        let near: Vec<usize> =
            all.iter().copied().filter(|n| servers[*n].timeline == standby.timeline).collect();
        let primaries = if near.is_empty() { all } else { near };
        let is_own = |group: &&mut Group| match primaries[..] {
            [only] => group.primary == Some(only),
            _ => group.primary.is_none() && servers[group.standbys[0]].system == standby.system,
        };
        match groups.iter_mut().find(is_own) {
            _ if primaries.len() > 1 => unclear.push((number, primaries)),
            Some(group) => group.standbys.push(number),
            None => groups.push(Group { primary: None, standbys: vec![number] }),
        }
    }
    (groups, unclear)
}

/// One end of a WAL stream: the system identifier, the standby's name, and the sender's port, or none of a primary.
pub type End<'a> = (&'a str, &'a str, Option<u32>);

/// Finds the standby of each WAL sender. With Docker, its sender_port may be mapped, so ports only count for shared
/// names.
pub fn receivers(senders: &[End<'_>], standbys: &[End<'_>]) -> Vec<Option<usize>> {
    let mut found = Vec::new();
    for sender in senders {
        let same = |end: &&End<'_>| (end.0, end.1) == (sender.0, sender.1);
        let is_one = |ends: &[End<'_>]| ends.iter().filter(same).count() < 2;
        let is_clear = sender.1 != "walreceiver" && is_one(senders) && is_one(standbys);
        let suits = |end: &End<'_>| end == sender || is_clear && same(&end) && end.2.is_some();
        found.push((0..standbys.len()).find(|n| suits(&standbys[*n]) && !found.contains(&Some(*n))));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise: a standby is assigned to its own primary or, if that is not certain, to none.
    #[test]
    fn a_standby_belongs_to_the_primary_on_its_timeline() {
        let shown = |servers: &[(&'static str, u32, bool)]| {
            let lineage = |&(system, timeline, is_standby): &_| Lineage { system, timeline, is_standby };
            let (groups, unclear) = groups(servers.iter().map(lineage));
            let groups: Vec<_> = groups.into_iter().map(|group| (group.primary, group.standbys)).collect();
            (groups, unclear)
        };
        let (primary, standby) = (false, true);
        // An original, its promoted standby, and a standby of each; and another cluster.
        assert_eq!(
            shown(&[
                ("a", 1, standby),
                ("a", 2, standby),
                ("a", 1, primary),
                ("a", 2, primary),
                ("b", 2, standby)
            ]),
            (vec![(Some(2), vec![0]), (Some(3), vec![1]), (None, vec![4])], vec![])
        );
        // A standby may lag behind its primary, but is never ahead of it.
        assert_eq!(shown(&[("a", 3, primary), ("a", 2, standby)]), (vec![(Some(0), vec![1])], vec![]));
        assert_eq!(
            shown(&[("a", 1, primary), ("a", 2, standby), ("a", 2, standby)]),
            (vec![(Some(0), vec![]), (None, vec![1, 2])], vec![])
        );
        // It could be either.
        assert_eq!(
            shown(&[("a", 2, primary), ("a", 2, primary), ("a", 2, standby), ("a", 3, primary)]).1,
            [(2, vec![0, 1])]
        );
        assert_eq!(shown(&[("a", 2, primary), ("a", 3, primary), ("a", 1, standby)]).1, [(2, vec![0, 1])]);
    }

    /// Promise: no server is taken for a standby of another because of a shared name.
    #[test]
    fn a_name_that_several_may_have_is_known_by_the_port() {
        let end = |name: &'static str, port| ("a", name, Some(port));
        // It follows a standby that is not given.
        assert_eq!(receivers(&[end("walreceiver", 1)], &[end("walreceiver", 2)]), [None]);
        assert_eq!(receivers(&[end("all", 1)], &[("a", "all", None), end("all", 2)]), [None]);
        assert_eq!(receivers(&[end("two", 1); 2], &[end("two", 1)]), [Some(0), None]);
        // A mapped port, another cluster, and a primary.
        let standbys = [("b", "s", Some(1)), end("s", 2), ("a", "t", None)];
        assert_eq!(receivers(&[end("s", 1), end("t", 1)], &standbys), [Some(1), None]);
        assert_eq!(shown_as("größe", 150_000), "gr????e");
        assert_eq!(shown_as(&"ö".repeat(30), 160_000), r"\xc3\xb6".repeat(30)[..63]);
    }
}
