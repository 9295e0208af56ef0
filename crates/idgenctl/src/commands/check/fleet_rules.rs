//! What is wrong with servers together: with a primary and its standbys, and with clusters.

use std::collections::{BTreeMap, HashSet};

use super::facts::{Facts, Library};
use super::server_rules::{common, ranges};
use super::table::*;
use super::{Finding, server_rules, some};
use crate::connection::synchronous_names::Names;
use crate::idgen::releases::limit_of_origins;
use crate::terminal::output::span;
use crate::topology::clock::Ahead;
use crate::topology::cluster;

/// Clocks may differ by as much: an ordinary time daemon may be at work, and ids may run ahead by as much.
const LIMIT_S: f64 = 1.0;

/// What is wrong with the servers that answer, alone and together. `names` are those of the fleet. If a server does not
/// answer, nothing is concluded from what is missing.
pub fn judge(all: &[Facts], names: &[&str], all_answer: bool) -> Vec<Finding> {
    let Clusters { clusters, unclear } = Clusters::of(all);
    let mut found = two_primaries(all);
    let doubled: HashSet<&str> = found
        .iter()
        .filter(|finding| finding.id == TWO_PRIMARIES.id)
        .map(|f| system(all, &f.server))
        .collect();
    for members in &clusters {
        let (primary, standbys) = match members.split_first() {
            Some((first, rest)) if !first.is_standby => (Some(*first), rest),
            _ => (None, members.as_slice()),
        };
        // Those that could be standbys of it are no strangers.
        let is_near = |facts: &&Facts| primary.is_some_and(|primary| primary.system == facts.system);
        let near: Vec<&Facts> = unclear.keys().map(|number| &all[*number]).filter(is_near).collect();
        let needs = members.iter().any(|facts| facts.has_idgen() || facts.preloads[0]);
        found.extend(members.iter().flat_map(|facts| server_rules::judge(facts, needs, all)));
        if all_answer {
            found.extend(strangers(members, &near));
        }
        match primary {
            Some(primary) => {
                let all_standbys: Vec<&Facts> = standbys.iter().copied().chain(near).collect();
                found.extend(synchronous(primary, &all_standbys, all, names, all_answer));
                found.extend(standbys.iter().flat_map(|standby| differences(primary, standby)));
            }
            None if all_answer => found.extend(standbys.first().map(|facts| facts.found(NO_PRIMARY, &[]))),
            None => {}
        }
    }
    for (number, primaries) in unclear.iter().filter(|_| all_answer) {
        let standby = &all[*number];
        let primaries: Vec<_> = primaries.iter().map(|number| all[*number].name.clone()).collect();
        found.push(standby.found(PRIMARY_UNCLEAR, &[&some(&primaries)]));
    }
    for number in unclear.keys() {
        found.extend(server_rules::judge(&all[*number], all[*number].preloads[0], all));
    }
    found.extend(overlaps(&clusters, &doubled));
    found.extend(epochs(all));
    found.extend(clocks(all));
    without_repetitions(&mut found);
    for finding in &mut found {
        // Each of the other hints assumes that it is clear which server clients use.
        if finding.id != TWO_PRIMARIES.id && doubled.contains(system(all, &finding.server)) {
            finding.hint.clear();
        }
    }
    found
}

fn system<'a>(all: &'a [Facts], name: &str) -> &'a str {
    all.iter().find(|facts| facts.name == name).map_or("", |facts| &facts.system)
}

/// Leaves out warnings of libraries that a rule has found too.
fn without_repetitions(found: &mut Vec<Finding>) {
    let said: HashSet<(String, String)> = found
        .iter()
        .filter(|finding| !finding.of_library)
        .map(|f| (f.id.clone(), f.server.clone()))
        .collect();
    found.retain(|finding| {
        let is_said = |id: &str| said.contains(&(id.into(), finding.server.clone()));
        let of_epoch = finding.id == "epoch-of-mark" && is_said(EPOCH_DIFFERS.id);
        !finding.of_library || !(is_said(&finding.id) || of_epoch)
    });
}

/// The clusters of a fleet, each with its primary first.
struct Clusters<'a> {
    clusters: Vec<Vec<&'a Facts>>,
    /// Standbys that may follow any of these primaries, or one that is not seen.
    unclear: BTreeMap<usize, Vec<usize>>,
}

impl Clusters<'_> {
    fn of(all: &[Facts]) -> Clusters<'_> {
        let (groups, unclear) = cluster::groups(all.iter().map(Facts::lineage));
        let mut unclear: BTreeMap<usize, Vec<usize>> =
            unclear.into_iter().map(|other| (other.standby, other.primaries)).collect();
        let mut clusters = Vec::new();
        for group in groups {
            let is_member = |number: &usize| group.primary.is_none() || !is_elsewhere(all, &all[*number]);
            let (members, others): (Vec<usize>, Vec<usize>) =
                group.standbys.iter().partition(|n| is_member(n));
            unclear.extend(others.into_iter().map(|standby| (standby, Vec::from_iter(group.primary))));
            clusters.push(group.primary.into_iter().chain(members).map(|number| &all[number]).collect());
        }
        Clusters { clusters, unclear }
    }
}

/// Whether a standby receives WAL, but from none of these servers: a copy of its primary has the same system identifier.
fn is_elsewhere(all: &[Facts], standby: &Facts) -> bool {
    let sends = |facts: &Facts| {
        let is_it = |name: &str| standby.known_as.as_deref() == Some(name);
        facts.system == standby.system && facts.receivers.iter().any(|receiver| is_it(&receiver.name))
    };
    standby.streams && standby.known_as.is_some() && !all.iter().any(sends)
}

/// A copy with shards of its own may run beside its original.
fn two_primaries(all: &[Facts]) -> Vec<Finding> {
    let mut found = Vec::new();
    let primaries: Vec<&Facts> = all.iter().filter(|facts| !facts.is_standby).collect();
    for (place, second) in primaries.iter().enumerate() {
        for first in primaries[..place].iter().filter(|first| first.system == second.system) {
            let shared = first.shards().zip(second.shards()).map(|(one, two)| common(&one, &two));
            if shared.is_none_or(|shared| !shared.is_empty()) {
                found.push(second.found(TWO_PRIMARIES, &[&first.name, &first.timeline, &second.timeline]));
            }
        }
    }
    found
}

/// Standbys that get WAL from a member, and are not in the fleet. Several may have the same name.
fn strangers(members: &[&Facts], near: &[&Facts]) -> Vec<Finding> {
    let mut known: Vec<&str> =
        members.iter().chain(near).filter_map(|standby| standby.known_as.as_deref()).collect();
    let mut found = Vec::new();
    for member in members {
        for receiver in member.receivers.iter().filter(|receiver| receiver.is_standby) {
            if let Some(place) = known.iter().position(|name| *name == receiver.name) {
                known.swap_remove(place);
                continue;
            }
            let at = if receiver.address.is_empty() { "" } else { " at " };
            found.push(
                member.found(STANDBY_NOT_IN_FLEET, &[&receiver.name, &format!("{at}{}", receiver.address)]),
            );
        }
    }
    found
}

/// Whom the primary waits for, against who is there.
fn synchronous(
    primary: &Facts,
    standbys: &[&Facts],
    all: &[Facts],
    fleet: &[&str],
    all_answer: bool,
) -> Vec<Finding> {
    let Some(names) = Names::parse(&primary.synchronous) else {
        let has_standbys = !standbys.is_empty() || primary.receivers.iter().any(|other| other.is_standby);
        return Vec::from_iter(has_standbys.then(|| primary.found(ASYNCHRONOUS, &[])));
    };
    let mut found = Vec::new();
    let candidates: Vec<_> = primary.receivers.iter().filter(|other| names.has(&other.name)).collect();
    let streaming = candidates.iter().filter(|other| other.streams).count();
    if streaming < names.needed {
        found.push(primary.found(SYNC_TOO_FEW, &[&streaming, &names.needed]));
    }
    // A name may be that of a server that is down or a primary now, as all servers of a cluster have the same value.
    let is_known = |name: &str| {
        let is_it = |other: &str| name == "*" || other.eq_ignore_ascii_case(name);
        candidates.iter().any(|other| is_it(&other.name))
            || fleet.iter().any(|other| is_it(other))
            || all
                .iter()
                .any(|facts| facts.system == primary.system && facts.known_as.as_deref().is_some_and(is_it))
    };
    let unknown: Vec<_> =
        names.names.iter().filter(|name| !is_known(name)).map(|name| format!("\"{name}\"")).collect();
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

/// What a standby would do otherwise than its primary.
fn differences(primary: &Facts, standby: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    let name = &primary.name;
    if let (Library::Shows(of_primary), Library::Shows(own)) = (&primary.library, &standby.library) {
        if own.version != of_primary.version {
            found.push(standby.found(VERSIONS_DIFFER, &[&own.version, name, &of_primary.version]));
        }
        if standby.shards() != primary.shards() {
            let lists = [own, of_primary].map(|state| state.allowed_shards.clone().unwrap_or_default());
            found.push(standby.found(LISTS_DIFFER, &[&lists[0], name, &lists[1]]));
        }
        let settings = [
            ("idgen.max_ahead", own.max_ahead_ms, of_primary.max_ahead_ms),
            ("idgen.reserve_ahead", own.reserve_ahead_ms, of_primary.reserve_ahead_ms),
            ("idgen.max_clock_jump", own.max_clock_jump_ms, of_primary.max_clock_jump_ms),
        ];
        let other = settings.iter().filter(|(_, own, of_primary)| own != of_primary);
        let other: Vec<String> = other.map(|(setting, ..)| (*setting).into()).collect();
        if !other.is_empty() {
            found.push(standby.found(SETTINGS_DIFFER, &[name, &some(&other)]));
        }
    }
    if let (Some((of_primary, others)), Some((own, own_others))) = (primary.origins, standby.origins)
        && own < of_primary
    {
        let setting = limit_of_origins(standby.version);
        // It has said itself if it lacks room for those that it knows.
        if others < own {
            found.push(standby.found(LESS_ROOM, &[&setting, &own, &of_primary, name]));
        } else if own_others < own {
            found.push(standby.found(NO_ROOM, &[&setting, &(others + 1), &own]));
        }
    }
    found
}

/// Lists of shards that two clusters share. The list of a primary counts for its cluster.
fn overlaps(clusters: &[Vec<&Facts>], doubled: &HashSet<&str>) -> Vec<Finding> {
    let mints = |facts: &&&Facts| facts.warning_code() != "setting-not-accepted" && facts.shards().is_some();
    let have_idgen = clusters.iter().filter(|members| members.iter().any(|facts| facts.has_idgen()));
    let all: Vec<&Facts> = have_idgen.filter_map(|members| members.iter().find(mints).copied()).collect();
    let mut found = Vec::new();
    for (place, facts) in all.iter().enumerate() {
        // Two primaries with the same system identifier are another finding.
        let others = all[..place].iter().filter(|other| other.system != facts.system);
        let shared = others.filter_map(|other| {
            let shards = common(&facts.shards()?, &other.shards()?);
            (!shards.is_empty()).then(|| (other, ranges(&shards)))
        });
        let shared: Vec<(&&Facts, String)> = shared.collect();
        if shared.is_empty() {
            continue;
        }
        let with: Vec<_> =
            shared.iter().map(|(other, shards)| format!("{} ({shards})", other.name)).collect();
        let mut finding = facts.found(LISTS_OVERLAP, &[&some(&with)]);
        if shared.iter().any(|(other, _)| doubled.contains(other.system.as_str())) {
            finding.hint.clear();
        }
        found.push(finding);
    }
    found
}

/// Epochs that differ from that of the first primary, within clusters and between them.
fn epochs(all: &[Facts]) -> Vec<Finding> {
    let mut known: Vec<(&Facts, i64)> =
        all.iter().filter_map(|facts| Some((facts, facts.state()?.epoch_ms?))).collect();
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

/// The clocks that certainly differ from most others. This machine's counts too, and decides if there is a draw.
fn clocks(all: &[Facts]) -> Vec<Finding> {
    let differ =
        |one: Ahead, other: Ahead| one.least - other.most > LIMIT_S || other.least - one.most > LIMIT_S;
    let clocks: Vec<(&str, Ahead)> = [("this machine", Ahead::ZERO)]
        .into_iter()
        .chain(all.iter().map(|facts| (facts.name.as_str(), facts.clock)))
        .collect();
    let agreeing = |clock: Ahead| clocks.iter().filter(move |(_, other)| !differ(clock, *other));
    // Of the greatest, the last is taken.
    let best = clocks.iter().rev().max_by_key(|(_, clock)| agreeing(*clock).count());
    let Some(&(_, best)) = best else { return Vec::new() };
    let side: Vec<&str> = agreeing(best).map(|(name, _)| *name).collect();
    let wrong = all.iter().filter(|facts| differ(facts.clock, best));
    let finding = |facts: &Facts| {
        let (by, way) = match facts.clock.least - best.most {
            ahead if ahead > 0.0 => (ahead, "ahead of"),
            _ => (best.least - facts.clock.most, "behind"),
        };
        facts.found(CLOCK_DIFFERS, &[&span(by), &way, &side.join(", ")])
    };
    wrong.map(finding).collect()
}
