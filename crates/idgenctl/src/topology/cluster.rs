//! Which servers are a cluster.

/// WAL senders to standbys, in SQL. Subscriptions receive no marks, and pg_receivewal replays nothing, whatever its
/// application_name.
pub const STANDBYS: &str = "FROM pg_stat_replication
    WHERE state <> 'backup' AND NOT (state = 'streaming' AND replay_lsn IS NULL)
      AND pid NOT IN (SELECT active_pid FROM pg_replication_slots WHERE slot_type = 'logical' AND active)";

/// The name under which a standby receives WAL, in SQL about a row of pg_stat_wal_receiver. The libpq of that server has
/// written conninfo: without quotes, and with options that the libpq of this program rejects if it is older.
pub const RECEIVES_AS: &str =
    "coalesce(substring(conninfo FROM '(?: |^)application_name=((?:(?! [a-z_]+=).)*)'),
              substring(conninfo FROM '(?: |^)fallback_application_name=((?:(?! [a-z_]+=).)*)'))";

/// What shows to which cluster a server belongs.
#[derive(Debug, Clone, Copy)]
pub struct Lineage<'a> {
    /// What initdb gave it. Every copy of a server has it too, promoted or not.
    pub system: &'a str,
    /// It only grows. A standby that has caught up has that of its primary, and none has a later one.
    pub timeline: u32,
    pub is_standby: bool,
}

/// A primary and its standbys, or standbys whose primary is not given: the numbers of the servers.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Group {
    pub primary: Option<usize>,
    pub standbys: Vec<usize>,
}

/// A standby that may be one of each of these primaries.
#[derive(Debug, PartialEq, Eq)]
pub struct Unclear {
    pub standby: usize,
    pub primaries: Vec<usize>,
}

/// Which servers belong together. Each primary is a cluster of its own, even if it was a standby of another one once. A
/// standby belongs to the primary with its system identifier and, of several, to that on its timeline.
pub fn groups<'a>(servers: impl IntoIterator<Item = Lineage<'a>>) -> (Vec<Group>, Vec<Unclear>) {
    let servers: Vec<_> = servers.into_iter().collect();
    let group = |primary| Group { primary, standbys: Vec::new() };
    let mut groups: Vec<Group> =
        (0..servers.len()).filter(|n| !servers[*n].is_standby).map(|n| group(Some(n))).collect();
    let mut unclear = Vec::new();
    for (number, standby) in servers.iter().enumerate().filter(|(_, server)| server.is_standby) {
        let may_follow = |primary: &Lineage<'_>| {
            !primary.is_standby && primary.system == standby.system && primary.timeline >= standby.timeline
        };
        let all: Vec<usize> = (0..servers.len()).filter(|n| may_follow(&servers[*n])).collect();
        let near: Vec<usize> =
            all.iter().copied().filter(|n| servers[*n].timeline == standby.timeline).collect();
        let primaries = if near.is_empty() { all } else { near };
        let is_own = |group: &Group| match primaries[..] {
            [only] => group.primary == Some(only),
            _ => group.primary.is_none() && servers[group.standbys[0]].system == standby.system,
        };
        if primaries.len() > 1 {
            unclear.push(Unclear { standby: number, primaries });
        } else if let Some(group) = groups.iter_mut().find(|group| is_own(group)) {
            group.standbys.push(number);
        } else {
            groups.push(Group { primary: None, standbys: vec![number] });
        }
    }
    (groups, unclear)
}

/// An end of a stream of WAL: the system identifier, the name of the standby, and the port of the server that sends; of a
/// primary, which has none, only the name counts.
pub type End<'a> = (&'a str, &'a str, Option<u32>);

/// Which of these standbys gets what each WAL sender sends. Standbys may know a server by another port than its own, as with
/// Docker, so ports only count where several may have the name.
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

    /// Promise: a standby is treated as one of its own primary or, if that does not show, of none.
    #[test]
    fn a_standby_belongs_to_the_primary_on_its_timeline() {
        let shown = |servers: &[(&'static str, u32, bool)]| {
            let lineage = |(system, timeline, is_standby): &(&'static str, u32, bool)| Lineage {
                system,
                timeline: *timeline,
                is_standby: *is_standby,
            };
            let (groups, unclear) = groups(servers.iter().map(lineage));
            let groups: Vec<_> = groups.into_iter().map(|group| (group.primary, group.standbys)).collect();
            (groups, unclear.into_iter().map(|other| (other.standby, other.primaries)).collect::<Vec<_>>())
        };
        let (primary, standby) = (false, true);
        // An original, a standby of it that was promoted, and a standby of each; and another cluster.
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
        // A standby may be late, but is never ahead of its primary.
        assert_eq!(shown(&[("a", 3, primary), ("a", 2, standby)]), (vec![(Some(0), vec![1])], vec![]));
        assert_eq!(
            shown(&[("a", 1, primary), ("a", 2, standby), ("a", 2, standby)]),
            (vec![(Some(0), vec![]), (None, vec![1, 2])], vec![])
        );
        // Nothing tells.
        assert_eq!(
            shown(&[("a", 2, primary), ("a", 2, primary), ("a", 2, standby), ("a", 3, primary)]).1,
            [(2, vec![0, 1])]
        );
        assert_eq!(shown(&[("a", 2, primary), ("a", 3, primary), ("a", 1, standby)]).1, [(2, vec![0, 1])]);
    }
    /// Promise: no server is taken for the standby of another because both have the same name.
    #[test]
    fn a_name_that_several_may_have_is_known_by_the_port() {
        let end = |name: &'static str, port| ("a", name, Some(port));
        // In between is a standby that is not given.
        assert_eq!(receivers(&[end("walreceiver", 1)], &[end("walreceiver", 2)]), [None]);
        assert_eq!(receivers(&[end("all", 1)], &[("a", "all", None), end("all", 2)]), [None]);
        assert_eq!(receivers(&[end("two", 1); 2], &[end("two", 1)]), [Some(0), None]);
        // A port that is mapped, another cluster, and a server that is no standby.
        let standbys = [("b", "s", Some(1)), end("s", 2), ("a", "t", None)];
        assert_eq!(receivers(&[end("s", 1), end("t", 1)], &standbys), [Some(1), None]);
    }
}
