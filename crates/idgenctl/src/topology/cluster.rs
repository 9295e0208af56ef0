//! Which servers are a cluster, and the one that a command is for.

use crate::connection::server::Server;
use crate::terminal::error::{Error, Result};
use crate::terminal::output::note;
use crate::topology::fleet::{Fleet, Member};

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
    /// Whether it is in recovery.
    pub is_standby: bool,
}

/// A primary and its standbys, or standbys whose primary is not given: the numbers of the servers.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Group {
    pub primary: Option<usize>,
    pub standbys: Vec<usize>,
}

impl Group {
    pub fn has(&self, number: usize) -> bool {
        self.primary == Some(number) || self.standbys.contains(&number)
    }
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

/// The error of a command that changes something, and would have to guess of which primary a server is a standby.
pub fn unclear(standby: &str, primaries: &str) -> Error {
    Error::refused(
        format!("{standby} may be a standby of each of these, which have its system identifier: {primaries}"),
        "Nothing was changed. Give only the servers of one cluster with --server. To tell the standbys of both apart, the \
         primaries need different timelines, as a promotion gives them.",
    )
}

/// A cluster.
pub struct Cluster<'a> {
    /// None if only standbys of it are given.
    pub primary: Option<Member<'a>>,
    pub standbys: Vec<Member<'a>>,
}

impl<'a> Cluster<'a> {
    /// The only cluster of the fleet, or that of the server named. The servers are reached by a function.
    pub fn of(
        fleet: &'a Fleet,
        on: Option<&str>,
        reach: impl Fn(&'a Server) -> Result<Member<'a>> + Sync,
    ) -> Result<Cluster<'a>> {
        if let Some(name) = on
            && !fleet.servers.iter().any(|server| server.name == name)
        {
            return Err(Error::Usage(format!("no server is called {name}")));
        }
        let mut members: Vec<Member<'_>> = Vec::new();
        for (server, reached) in fleet.servers.iter().zip(fleet.each(reach)) {
            match reached {
                Ok(member) => {
                    if let Some(other) = members.iter().find(|other| other.identity == member.identity) {
                        let (one, two) = (&other.server.name, &server.name);
                        return Err(Error::Usage(format!(
                            "{one} and {two} are the same server: name it once"
                        )));
                    }
                    members.push(member);
                }
                Err(error) if fleet.servers.len() == 1 || on == Some(&server.name) => return Err(error),
                Err(error) if on.is_none() => {
                    return Err(Error::refused(
                        error.to_string(),
                        "Nothing was changed. Repair that server, or name one of the cluster that is meant with --on.",
                    ));
                }
                Err(error) => note(format!(
                    "warning: {error}; if it belongs to this cluster, see to it, and run this command again"
                )),
            }
        }
        let names = |numbers: &mut dyn Iterator<Item = usize>| {
            numbers.map(|number| members[number].server.name.clone()).collect::<Vec<_>>().join(", ")
        };
        let (groups, unclear_ones) = groups(members.iter().map(Member::lineage));
        if on.is_none() && groups.len() > 1 {
            return Err(Error::Usage(format!(
                "the servers belong to several clusters; name one of the cluster that is meant with --on: {}",
                names(&mut (0..members.len()))
            )));
        }
        let chosen = members.iter().position(|member| on.is_none_or(|name| member.server.name == name));
        let group = groups.iter().find(|group| chosen.is_some_and(|number| group.has(number)));
        let in_doubt = unclear_ones.iter().find(|other| {
            Some(other.standby) == chosen
                || group.is_some_and(|group| group.primary.is_some_and(|p| other.primaries.contains(&p)))
        });
        if let Some(other) = in_doubt {
            let primaries = names(&mut other.primaries.iter().copied());
            return Err(unclear(&members[other.standby].server.name, &primaries));
        }
        let mut cluster = Cluster { primary: None, standbys: Vec::new() };
        let Some(group) = group else { return Ok(cluster) };
        for (number, member) in members.into_iter().enumerate() {
            if group.primary == Some(number) {
                cluster.primary = Some(member);
            } else if group.has(number) {
                cluster.standbys.push(member);
            }
        }
        Ok(cluster)
    }

    /// The servers in the order in which they are to be restarted: standbys first.
    pub fn members(&self) -> impl Iterator<Item = &Member<'a>> {
        self.standbys.iter().chain(&self.primary)
    }

    /// The names under which servers that are not given receive the WAL of the primary.
    pub fn unknown_receivers(&self) -> Result<Vec<String>> {
        let Some(primary) = &self.primary else { return Ok(Vec::new()) };
        let rows =
            primary.session.run(&format!("SELECT application_name {STANDBYS} ORDER BY application_name"))?;
        let mut names: Vec<String> = rows.iter().map(|row| row.string(0)).collect();
        for standby in &self.standbys {
            let own = standby.session.run(&format!("SELECT {RECEIVES_AS} FROM pg_stat_wal_receiver"))?;
            let own = own.iter().next().and_then(|row| row.text(0));
            if let Some(number) = names.iter().position(|name| Some(name) == own.as_ref()) {
                names.remove(number);
            }
        }
        Ok(names)
    }
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
}
