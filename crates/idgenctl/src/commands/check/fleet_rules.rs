//! Rules for servers in comparison: a primary with its standbys, and clusters with each other.

use std::ptr;

use pg_formats::lists::Names;

use super::facts::{Facts, Receiver};
use super::finding::{Finding, some};
use super::server_rules::{self, common};
use super::table::*;
use crate::terminal::output::span;
use crate::topology::clock::Ahead;
use crate::topology::cluster;

/// How far clocks may differ: time daemons correct less than this, and ids may run ahead as far.
const LIMIT_S: f64 = 1.0;

/// Findings about the servers that answer, alone and in comparison. `names` are those of the fleet. Unless all answer,
/// a missing server proves nothing. A server may falsely claim to be another, but does not hide its findings.
pub fn judge(all: &[Facts], names: &[&str], all_answer: bool) -> Vec<Finding> {
    let mut found = two_primaries(all);
    let (again, distinct): (Vec<&Facts>, Vec<&Facts>) =
        all.iter().partition(|facts| first_of(all, facts).is_some());
    let (senders, standbys) = streams(&distinct);
    let mut clusters = clusters(&distinct, &standbys);
    clusters.extend(again.into_iter().map(|facts| vec![facts]));
    for members in &clusters {
        let same = first_of(all, members[0]);
        found.extend(same.map(|other| members[0].found(SAME_SERVER, &[&other.name])));
        let needs = members.iter().any(|facts| facts.has_idgen() || facts.preloads[0]);
        found.extend(members.iter().flat_map(|facts| server_rules::judge(facts, needs)));
        let first = members[0];
        // A standby has the same databases as its primary.
        let looked_into = if first.is_standby { members } else { &members[..1] };
        found.extend(looked_into.iter().flat_map(|facts| server_rules::inside(facts, all)));
        if !first.is_standby {
            found.extend(synchronous(members, all, names, all_answer));
            found.extend(members[1..].iter().flat_map(|standby| differences(first, standby)));
        } else if all_answer && same.is_none() {
            found.push(first.found(NO_PRIMARY, &[]));
        }
    }
    // Standbys that are not in the fleet.
    let strangers = senders.iter().zip(standbys).filter(|(_, standby)| all_answer && standby.is_none());
    found.extend(
        strangers.map(|((facts, to), _)| facts.found(STANDBY_NOT_IN_FLEET, &[&to.name, &to.address])),
    );
    found.extend(overlaps(&clusters));
    found.extend(epochs(all));
    found.extend(clocks(all));
    found
}

/// The clusters, each with its primary first. A standby that may belong to the copy of a primary is one by itself.
fn clusters<'a>(all: &[&'a Facts], receivers: &[Option<usize>]) -> Vec<Vec<&'a Facts>> {
    let is_elsewhere =
        |number: usize| all[number].sender_port.is_some() && !receivers.contains(&Some(number));
    let (groups, unclear) = cluster::groups(all.iter().map(|facts| facts.lineage()));
    let mut clusters: Vec<_> = unclear.iter().map(|(standby, _)| vec![all[*standby]]).collect();
    for group in groups {
        let (others, standbys): (Vec<_>, Vec<_>) =
            group.standbys.iter().partition(|number| group.primary.is_some() && is_elsewhere(**number));
        let members = group.primary.iter().chain(standbys);
        clusters.extend(others.into_iter().map(|standby| vec![all[*standby]]));
        clusters.push(members.map(|number| all[*number]).collect());
    }
    clusters
}

/// Primaries of one cluster. A copy may run beside its original if it has shards of its own.
fn two_primaries(all: &[Facts]) -> Vec<Finding> {
    let mut found = Vec::new();
    let primaries: Vec<&Facts> = all.iter().filter(|facts| !facts.is_standby).collect();
    for (place, second) in primaries.iter().enumerate() {
        // One server may be listed under two names.
        let others = primaries[..place].iter().filter(|first| first.identity != second.identity);
        for first in others.filter(|first| first.system == second.system) {
            let shards = first.shards().zip(second.shards());
            if shards.is_none_or(|(one, two)| common(&one, &two).is_some()) {
                found.push(second.found(TWO_PRIMARIES, &[&first.name, &first.timeline, &second.timeline]));
            }
        }
    }
    found
}

/// The first server with the identity that this one claims, truly or not.
fn first_of<'a>(all: &'a [Facts], facts: &Facts) -> Option<&'a Facts> {
    all.iter().find(|other| other.identity == facts.identity).filter(|other| !ptr::eq(*other, facts))
}

/// The standbys to which each server sends WAL, and the server of the fleet that each of them is.
fn streams<'a>(all: &[&'a Facts]) -> (Vec<(&'a Facts, &'a Receiver)>, Vec<Option<usize>>) {
    let (mut senders, mut ends) = (Vec::new(), [Vec::new(), Vec::new()]);
    for &facts in all {
        for receiver in facts.receivers.iter().filter(|receiver| receiver.is_standby) {
            senders.push((facts, receiver));
            ends[0].push((&*facts.system, &*receiver.name, Some(facts.port)));
        }
        let port = facts.is_standby.then(|| facts.sender_port.unwrap_or(0));
        ends[1].push((&*facts.system, &*facts.known_as, port));
    }
    (senders, cluster::receivers(&ends[0], &ends[1]))
}

/// Compares synchronous_standby_names with the standbys that there are.
fn synchronous(members: &[&Facts], all: &[Facts], fleet: &[&str], all_answer: bool) -> Vec<Finding> {
    let primary = members[0];
    let Some(names) = Names::parse(&primary.synchronous) else {
        let has_standbys = members.len() > 1 || primary.receivers.iter().any(|other| other.is_standby);
        return Vec::from_iter(has_standbys.then(|| primary.found(ASYNCHRONOUS, &[])));
    };
    let mut found = Vec::new();
    let candidates: Vec<_> = primary.receivers.iter().filter(|other| names.has(&other.name)).collect();
    // All servers of a cluster have the same value, so it may name a server that is down, or a primary now.
    let of_cluster = all.iter().filter(|facts| facts.system == primary.system);
    let known: Vec<&str> = (candidates.iter().map(|other| other.name.as_str()))
        .chain(of_cluster.map(|facts| facts.known_as.as_str()))
        .chain(fleet.iter().copied().chain(["*"]))
        .collect();
    let unknown =
        names.names.iter().filter(|name| !known.iter().any(|other| other.eq_ignore_ascii_case(name)));
    let unknown: Vec<_> = unknown.map(|name| format!("\"{name}\"")).collect();
    if all_answer && !unknown.is_empty() {
        found.push(primary.found(SYNC_NAME_UNKNOWN, &[&some(&unknown)]));
    }
    if let Some(other) = candidates.iter().find(|other| !other.is_standby)
        && candidates.len() > names.needed
    {
        found.push(primary.found(SYNC_NOT_A_STANDBY, &[&other.name]));
    }
    found
}

/// Where a standby would act differently from its primary.
fn differences(primary: &Facts, standby: &Facts) -> Vec<Finding> {
    let (Some(of_primary), Some(own)) = (&primary.state, &standby.state) else { return Vec::new() };
    let mut found = Vec::new();
    if own.version != of_primary.version {
        found.push(standby.found(VERSIONS_DIFFER, &[&own.version, &primary.name, &of_primary.version]));
    }
    if standby.shards() != primary.shards() {
        let lists = [own, of_primary].map(|state| state.allowed_shards.clone().unwrap_or_default());
        found.push(standby.found(LISTS_DIFFER, &[&lists[0], &primary.name, &lists[1]]));
    }
    found
}

/// Shards that two clusters have in common. The list of a cluster is that of its primary.
fn overlaps(clusters: &[Vec<&Facts>]) -> Vec<Finding> {
    let have_idgen = clusters.iter().filter(|members| members.iter().any(|facts| facts.has_idgen()));
    let lists = have_idgen.filter_map(|members| members.iter().find(|facts| facts.shards().is_some()));
    let all: Vec<&Facts> = lists.copied().collect();
    let mut found = Vec::new();
    for (place, facts) in all.iter().enumerate() {
        // Two primaries with the same system identifier are a finding of their own.
        let others = all[..place].iter().filter(|other| other.system != facts.system);
        let with = others.filter_map(|other| {
            Some(format!("{} ({})", other.name, common(&facts.shards()?, &other.shards()?)?))
        });
        let with: Vec<String> = with.collect();
        if !with.is_empty() {
            found.push(facts.found(LISTS_OVERLAP, &[&some(&with)]));
        }
    }
    found
}

/// Epochs that differ from that of the first primary, in its cluster or in another.
fn epochs(all: &[Facts]) -> Vec<Finding> {
    let mut known: Vec<(&Facts, i64)> =
        all.iter().filter_map(|facts| Some((facts, facts.state.as_ref()?.epoch_ms?))).collect();
    known.sort_by_key(|(facts, _)| facts.is_standby);
    let Some(&(model, right)) = known.first() else { return Vec::new() };
    let text = |ms: i64| {
        let second = idgen_ids::epoch::utc(ms).filter(|_| ms % 1000 == 0);
        second.unwrap_or_else(|| format!("{ms} ms"))
    };
    let others = known.iter().filter(|(_, epoch)| *epoch != right);
    others
        .map(|(facts, epoch)| facts.found(EPOCH_DIFFERS, &[&text(*epoch), &text(right), &model.name]))
        .collect()
}

/// Clocks that certainly differ from the median. This machine's clock counts too, and decides between two.
fn clocks(all: &[Facts]) -> Vec<Finding> {
    let mut clocks: Vec<Ahead> = all.iter().map(|facts| facts.clock).chain([Ahead::default()]).collect();
    clocks.sort_by(|one, other| one.middle().total_cmp(&other.middle()));
    let (low, high) = (clocks[(clocks.len() - 1) / 2], clocks[clocks.len() / 2]);
    let right = if low.middle().abs() < high.middle().abs() { low } else { high };
    let finding = |facts: &Facts| match (facts.clock.least - right.most, right.least - facts.clock.most) {
        (ahead, _) if ahead > LIMIT_S => Some(facts.found(CLOCK_DIFFERS, &[&span(ahead), &"ahead of"])),
        (_, behind) if behind > LIMIT_S => Some(facts.found(CLOCK_DIFFERS, &[&span(behind), &"behind"])),
        _ => None,
    };
    all.iter().filter_map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::idgen::library::State;

    fn server(name: &str, is_standby: bool, clock_s: f64) -> Facts {
        let clock = Ahead { least: clock_s, most: clock_s + 0.1 };
        Facts { name: name.into(), identity: name.into(), is_standby, clock, ..Facts::default() }
    }

    fn found(all: &[Facts]) -> Vec<String> {
        let found = judge(all, &[], true);
        found.iter().map(|finding| format!("{} {}", finding.id, finding.server)).collect()
    }

    /// Promise: a difference that a slow round trip can explain is not a finding, and the majority of clocks is right.
    #[test]
    fn clocks_differ_only_if_it_is_certain() {
        let clocks = |clocks: &[f64]| {
            let names = ["a", "b", "c"].iter().zip(clocks);
            let with = |(name, clock): (&&str, &f64)| Facts {
                system: (*name).into(),
                ..server(name, false, *clock)
            };
            found(&names.map(with).collect::<Vec<_>>())
        };
        assert!(clocks(&[-0.9, 0.9]).is_empty());
        assert_eq!(clocks(&[1.2]), ["clock-differs a"]);
        assert_eq!(clocks(&[-1.2]), ["clock-differs a"]);
        assert!(clocks(&[3600.0, 3600.0]).is_empty(), "this machine's is wrong");
        assert_eq!(clocks(&[0.0, -7300.0, 0.0]), ["clock-differs b"]);
        assert_eq!(clocks(&[0.0, 90.0, 90.0]).len(), 2, "a draw");
    }

    /// Promise: a standby is compared with the server that sends it WAL, and not with a copy of that server.
    #[test]
    fn a_standby_is_not_compared_with_the_primary_of_another_cluster() {
        let state = |version: &str| Some(State { version: version.into(), ..State::default() });
        let mut all = [
            Facts { state: state("0.3.0"), ..server("a", false, 0.0) },
            Facts {
                state: state("0.2.0"),
                known_as: "s".into(),
                sender_port: Some(0),
                ..server("s", true, 0.0)
            },
        ];
        assert_eq!(found(&all), ["no-primary s"]);
        all[0].receivers.push(Receiver { name: "s".into(), address: String::new(), is_standby: true });
        assert_eq!(found(&all), ["asynchronous a", "versions-differ s"]);
        // A standby that receives nothing may be its own.
        all[1].sender_port = None;
        all[0].receivers.clear();
        assert_eq!(found(&all), ["asynchronous a", "versions-differ s"]);
    }

    /// Promise: a server that claims to be another one, truly or not, does not hide that one's findings.
    #[test]
    fn nobody_hides_the_findings_of_another() {
        let honest = Facts { identity: "a".into(), fsync_off: true, ..server("b", false, 0.0) };
        assert_eq!(found(&[server("a", false, 0.0), honest]), ["same-server b", "fsync-off b"]);
    }
}
