//! Rules for servers in comparison: a primary with its standbys, and clusters with each other.

use std::collections::{HashMap, HashSet};
use std::ptr;

use idgen_ids::Shard;
use idgen_ids::shard_set::ShardSet;
use pg_formats::lists::Names;

use super::facts::Facts;
use super::finding::{Finding, some};
use super::server_rules::{self, common};
use super::table::*;
use crate::terminal::text::{quoted, said};
use crate::topology::cluster::{Node, may_follow, strangers};

/// Findings about the servers that answer, alone and in comparison. `names` are those of the fleet, `whole` if all answer:
/// otherwise, a missing server proves nothing. A finding is left out only if the primary has it, and that `counts`.
pub fn judge<F: Fn(&Finding) -> bool>(all: &[Facts], names: &[&str], whole: bool, counts: F) -> Vec<Finding> {
    let nodes: Vec<&Node> = all.iter().map(|facts| &facts.node).collect();
    let mut found = two_primaries(all);
    let used = used(all, &nodes);
    let twice = minted_twice(all, &used);
    for facts in all {
        let same = all.iter().find(|other| other.node.identity == facts.node.identity);
        let same = same.filter(|other| !ptr::eq(*other, facts));
        found.extend(same.map(|other| facts.found(SAME_SERVER, &[&other.name])));
        found.extend(server_rules::judge(facts, is_used(facts, all)));
        // A standby has the same databases as its primary, unless a third server claims to be it.
        let primaries: Vec<&Facts> =
            all.iter().filter(|other| may_follow(&facts.node, &other.node, &nodes)).collect();
        let only = primaries.first().filter(|_| primaries.len() == 1);
        let shown = only.map(|primary| server_rules::inside(primary, &twice)).unwrap_or_default();
        let shown: HashSet<_> = shown.iter().filter(|it| counts(it)).map(Finding::content).collect();
        let inside = server_rules::inside(facts, &twice).into_iter();
        found.extend(inside.filter(|finding| !shown.contains(&finding.content())));
        found.extend(primaries.iter().flat_map(|primary| differences(primary, facts)));
        if !facts.node.is_standby {
            found.extend(synchronous(facts, &nodes, names, whole));
        } else if whole && primaries.is_empty() {
            found.push(facts.found(NO_PRIMARY, &[]));
        }
    }
    for (sender, to) in strangers(&nodes).into_iter().filter(|_| whole) {
        found.push(all[sender].found(STANDBY_NOT_IN_FLEET, &[&quoted(&to.name), &to.address]));
    }
    found.extend(overlaps(&used));
    found.extend(epochs(all));
    found
}

/// Primaries of one cluster. A copy may run beside its original if it has shards of its own.
fn two_primaries(all: &[Facts]) -> Vec<Finding> {
    let mut found = Vec::new();
    for (place, second) in all.iter().enumerate().filter(|(_, facts)| !facts.node.is_standby) {
        let primaries = all[..place]
            .iter()
            .filter(|first| !first.node.is_standby && first.node.system == second.node.system);
        // One server may be listed under two names.
        for first in primaries.filter(|first| first.node.identity != second.node.identity) {
            let shards = first.shards.zip(second.shards);
            if shards.is_none_or(|(one, two)| common(&one, &two).is_some()) {
                let timelines = [first, second].map(|primary| primary.node.timeline);
                found.push(second.found(TWO_PRIMARIES, &[&first.name, &timelines[0], &timelines[1]]));
            }
        }
    }
    found
}

/// Compares synchronous_standby_names with the standbys that there are.
fn synchronous(primary: &Facts, nodes: &[&Node], fleet: &[&str], whole: bool) -> Vec<Finding> {
    let Some(names) = Names::parse(&primary.synchronous) else {
        let has_standbys = primary.node.receivers.iter().any(|other| other.is_standby)
            || nodes.iter().any(|standby| may_follow(standby, &primary.node, nodes));
        return Vec::from_iter(has_standbys.then(|| primary.found(ASYNCHRONOUS, &[])));
    };
    let mut found = Vec::new();
    let candidates: Vec<_> =
        primary.node.receivers.iter().filter(|other| other.flushes && names.has(&other.name)).collect();
    // All servers of a cluster have the same value, so it may name a server that is down, or this one.
    let known: Vec<&str> = (candidates.iter().map(|other| other.name.as_str()))
        .chain(fleet.iter().copied().chain([&*primary.node.known_as, "*"]))
        .collect();
    let unknown =
        names.names.iter().filter(|name| !known.iter().any(|other| other.eq_ignore_ascii_case(name)));
    let unknown: Vec<_> = unknown.map(|name| quoted(name)).collect();
    if whole && !unknown.is_empty() {
        found.push(primary.found(SYNC_NAME_UNKNOWN, &[&some(&unknown)]));
    }
    let others: Vec<_> = candidates.iter().filter(|other| !other.is_standby).collect();
    if let Some(other) = others.first()
        && (candidates.len() > names.needed || others.len() >= names.needed)
    {
        found.push(primary.found(SYNC_NOT_A_STANDBY, &[&quoted(&other.name)]));
    }
    found
}

/// Where a standby would act differently from its primary, or what may be it.
fn differences(primary: &Facts, standby: &Facts) -> Vec<Finding> {
    let (Some(of_primary), Some(own)) = (&primary.state, &standby.state) else { return Vec::new() };
    let mut found = Vec::new();
    if own.version != of_primary.version {
        let versions = [own, of_primary].map(|state| said(&state.version));
        found.push(standby.found(VERSIONS_DIFFER, &[&versions[0], &primary.name, &versions[1]]));
    }
    if standby.shards.zip(primary.shards).is_some_and(|(own, of_primary)| own != of_primary) {
        let lists =
            [own, of_primary].map(|state| quoted(state.allowed_shards.as_deref().unwrap_or_default()));
        found.push(standby.found(LISTS_DIFFER, &[&lists[0], &primary.name, &lists[1]]));
    }
    found
}

/// Whether a server's cluster uses idgen.
fn is_used(facts: &Facts, all: &[Facts]) -> bool {
    all.iter().any(|other| other.node.system == facts.node.system && other.has_idgen())
}

/// The lists of the servers of clusters that use idgen. A standby counts unless all that may be its primary have its list.
fn used<'a>(all: &'a [Facts], nodes: &[&Node]) -> Vec<(&'a Facts, ShardSet)> {
    let list = |facts: &'a Facts| {
        let mut lists = all.iter().filter(|it| may_follow(&facts.node, &it.node, nodes)).map(|it| it.shards);
        let is_like = lists.next() == Some(facts.shards) && lists.all(|list| list == facts.shards);
        let counts = is_used(facts, all) && !is_like;
        facts.shards.filter(|_| counts).map(|list| (facts, list))
    };
    all.iter().filter_map(list).collect()
}

/// The shards that more than one place mints for: the servers of a cluster, or a database with the portable edition.
fn minted_twice(all: &[Facts], used: &[(&Facts, ShardSet)]) -> ShardSet {
    let mut places: HashMap<(&str, &str), Vec<ShardSet>> = HashMap::new();
    for (facts, list) in used {
        places.entry((&facts.node.system, "")).or_default().push(*list);
    }
    let primaries = all.iter().filter(|facts| !facts.node.is_standby);
    for (facts, inside) in primaries.flat_map(|facts| facts.databases.iter().map(move |it| (facts, it))) {
        places.entry((&facts.node.identity, &inside.name)).or_default().extend(inside.portable);
    }
    let is_twice = |shard: &Shard| {
        let has = |lists: &&Vec<ShardSet>| lists.iter().any(|list| list.contains(*shard));
        places.values().filter(has).take(2).count() == 2
    };
    Shard::all().filter(is_twice).fold(ShardSet::NONE, ShardSet::with)
}

/// Shards that two clusters have in common.
fn overlaps(used: &[(&Facts, ShardSet)]) -> Vec<Finding> {
    let overlap = |(place, (facts, own)): (usize, &(&Facts, ShardSet))| {
        // Two primaries with the same system identifier are a finding of their own.
        let others = used[..place].iter().filter(|(other, _)| other.node.system != facts.node.system);
        let with =
            others.filter_map(|(other, list)| Some(format!("{} ({})", other.name, common(own, list)?)));
        let with: Vec<String> = with.collect();
        (!with.is_empty()).then(|| facts.found(LISTS_OVERLAP, &[&some(&with)]))
    };
    used.iter().enumerate().filter_map(overlap).collect()
}

/// Epochs that differ from those of servers before.
fn epochs(all: &[Facts]) -> Vec<Finding> {
    let epoch = |facts: &Facts| facts.state.as_ref().filter(|_| is_used(facts, all))?.epoch_ms;
    let text = |ms: i64| {
        let second = idgen_ids::epoch::utc(ms).filter(|_| ms % 1000 == 0);
        second.unwrap_or_else(|| format!("{ms} ms"))
    };
    let differs = |(place, facts): (usize, &Facts)| {
        let own = epoch(facts)?;
        let before = all[..place].iter();
        let others = before.filter_map(|other| Some((other, epoch(other).filter(|ms| *ms != own)?)));
        let others: Vec<_> = others.map(|(other, ms)| format!("{} on {}", text(ms), other.name)).collect();
        (!others.is_empty()).then(|| facts.found(EPOCH_DIFFERS, &[&text(own), &some(&others)]))
    };
    all.iter().enumerate().filter_map(differs).collect()
}

#[cfg(test)]
mod tests {
    use super::super::facts::Database;
    use super::*;
    use crate::idgen::columns::{Column, Mints};
    use crate::idgen::library::State;
    use crate::topology::clock::Ahead;
    use crate::topology::cluster::Receiver;

    fn server(name: &str, is_standby: bool, clock_s: f64) -> Facts {
        let clock = Ahead { least: clock_s, most: clock_s + 0.1 };
        let node = Node { identity: name.into(), is_standby, ..Node::default() };
        Facts { name: name.into(), node, clock, ..Facts::default() }
    }

    fn of_system(system: &str, facts: Facts) -> Facts {
        Facts { node: Node { system: system.into(), ..facts.node }, ..facts }
    }

    fn receiving(sender_port: Option<u32>, facts: Facts) -> Facts {
        Facts { node: Node { sender_port, known_as: "s".into(), ..facts.node }, ..facts }
    }

    /// It sends WAL to a standby named s.
    fn sending(facts: Facts) -> Facts {
        let to = Receiver { name: "s".into(), is_standby: true, flushes: true, ..Receiver::default() };
        Facts { node: Node { receivers: vec![to], ..facts.node }, ..facts }
    }

    fn found(all: &[Facts]) -> Vec<String> {
        let found = judge(all, &[], true, |_| true);
        found.iter().map(|finding| format!("{} {}", finding.id, finding.server)).collect()
    }

    /// Promise: a difference that a slow round trip can explain is not a finding, and what other servers say hides none.
    #[test]
    fn clocks_differ_only_if_it_is_certain() {
        let clocks = |clocks: &[f64]| {
            let servers = clocks.iter().map(|clock_s| server(&clock_s.to_string(), false, *clock_s));
            found(&servers.map(|facts| of_system(&facts.name.clone(), facts)).collect::<Vec<_>>())
        };
        assert!(clocks(&[-1.0, 0.9]).is_empty());
        assert_eq!(clocks(&[1.2]), ["clock-differs 1.2"]);
        assert_eq!(clocks(&[-1.2, 0.0, 90.0]), ["clock-differs -1.2", "clock-differs 90"]);
        let slow = Facts { clock: Ahead { least: -30.0, most: 170.0 }, ..server("slow", false, 0.0) };
        assert!(found(&[slow]).is_empty());
    }

    /// Promise: a standby is compared with the server that sends it WAL, and not with a copy of that server.
    #[test]
    fn a_standby_is_not_compared_with_the_primary_of_another_cluster() {
        let state = |version: &str| Some(State { version: version.into(), ..State::default() });
        let mut all = [
            Facts { state: state("0.3.0"), ..server("a", false, 0.0) },
            receiving(Some(0), Facts { state: state("0.2.0"), ..server("s", true, 0.0) }),
        ];
        assert_eq!(found(&all), ["no-primary s"]);
        // It may be set to report nothing.
        all[0].node.receivers.push(Receiver { name: "s".into(), ..Receiver::default() });
        assert_eq!(found(&all), ["asynchronous a", "versions-differ s"]);
        // A standby that receives nothing may be its own.
        all[1].node.sender_port = None;
        all[0].node.receivers.clear();
        assert_eq!(found(&all), ["asynchronous a", "versions-differ s"]);
    }

    /// Promise: fsync = off is found wherever ids are minted, and nowhere else.
    #[test]
    fn fsync_matters_for_the_portable_edition_too() {
        let with = |portable| Facts {
            fsync_off: true,
            databases: vec![Database { portable, ..Database::default() }],
            ..server("a", false, 0.0)
        };
        assert!(found(&[with(None)]).is_empty());
        assert_eq!(found(&[with(Some(ShardSet::ALL))]), ["fsync-off a"]);
    }

    fn minting(list: &str, epoch_ms: i64, facts: Facts) -> Facts {
        let state = State { allowed_shards: Some(list.into()), epoch_ms: Some(epoch_ms), ..State::default() };
        Facts { state: Some(state), shards: ShardSet::parse(list).ok(), ..facts }
    }

    fn of_app(shard: i32) -> Vec<Database> {
        let column = Column {
            schema: "s".into(),
            table: "t".into(),
            column: "c".into(),
            relation: 1,
            mints: Mints::Idgen,
            shards: vec![shard],
            type_name: "bigint".into(),
            owner: "o".into(),
            lacks: String::new(),
        };
        vec![Database { name: "app".into(), columns: vec![column], ..Database::default() }]
    }

    /// Promise: a server that claims to be another one, or its primary, or anything else, does not hide what honest ones
    /// report, nor how they differ.
    #[test]
    fn nobody_hides_the_findings_of_another() {
        let honest = Facts { databases: of_app(50), fsync_off: true, ..server("a", false, 0.0) };
        let honest = Facts { name: "b".into(), ..honest };
        let found_of_both = found(&[server("a", false, 0.0), honest]);
        assert_eq!(found_of_both, ["library-missing a", "same-server b", "fsync-off b", "library-missing b"]);

        let honest = || {
            let standby = Facts { databases: of_app(50), ..server("s", true, 0.0) };
            let closed = Database { not_seen: Some("it is closed".into()), ..Database::default() };
            let other = Facts { databases: vec![closed], ..server("o", false, 0.0) };
            let mut primary = sending(Facts { synchronous: "s, nobody".into(), ..server("p", false, 0.0) });
            primary.node.port = 1;
            let standby = minting("0-9", 5, receiving(Some(1), standby));
            [minting("0-8", 0, primary), standby, minting("9", 0, of_system("other", other))]
        };
        let hidden = ["sync-name-unknown p", "lists-differ s", "shard-not-allowed s"];
        let says = |all: &[Facts]| {
            let found = found(all);
            assert!(hidden.iter().all(|text| found.contains(&(*text).to_owned())), "{found:?}");
            for kind in ["lists-overlap", "epoch-differs"] {
                assert!(found.iter().any(|text| text.starts_with(kind)), "{kind}: {found:?}");
            }
        };
        says(&honest());
        // Either of two primaries may be that of the standby.
        let [old, standby, _] = honest();
        let new = minting("0-8", 5, server("n", false, 0.0));
        let both = judge(&[old, receiving(None, standby), new], &[], true, |_| true);
        let of_epochs = both.iter().filter(|finding| finding.id == "epoch-differs");
        assert_eq!(of_epochs.map(|finding| &*finding.server).collect::<Vec<_>>(), ["s", "n"]);
        assert_eq!(both.iter().filter(|it| it.line().contains("p, which may be its primary,")).count(), 1);
        // One that shows no epoch says nothing of its standby's.
        let [_, standby, other] = honest();
        let found = found(&[server("m", false, 0.0), receiving(None, standby), other]);
        assert!(found.contains(&"epoch-differs o".into()), "{found:?}");
        for (identity, is_standby, timeline, shards, epoch) in [
            ("liar", false, 0, "0-9", 5),
            ("p", false, 0, "0-9", 5),
            ("s", true, 0, "0-9", 5),
            ("liar", false, 1, "50", 0),
            ("liar", true, 0, "50-8191", 0),
        ] {
            let [primary, standby, other] = honest();
            let [liar, ..] = honest();
            let (identity, known_as, sender_port) = (identity.into(), "nobody".into(), Some(1));
            let node = Node { identity, is_standby, timeline, known_as, sender_port, ..liar.node };
            let liar = minting(shards, epoch, Facts { name: "liar".into(), node, ..liar });
            says(&[liar, primary, standby, other]);
        }
    }

    /// Promise: a cluster that has minted or could counts, even if no database has the extension.
    #[test]
    fn what_mints_without_the_extension_counts() {
        let with = |name: &str, mark_ms, is_preloaded| {
            let mut facts = minting("0-9", 0, of_system(name, server(name, false, 0.0)));
            facts.preloads = [is_preloaded; 2];
            facts.state.as_mut().expect("a state").mark_ms = mark_ms;
            facts
        };
        let used = || with("a", Some(1), true);
        assert!(found(&[used(), with("b", None, false)]).is_empty());
        assert_eq!(found(&[used(), with("b", None, true)]), ["lists-overlap b"]);
        assert_eq!(found(&[used(), with("b", Some(1), false)]), ["not-preloaded b", "lists-overlap b"]);
        // The catalogs, which its primary may have changed, do not say so.
        let mut hidden = with("b", None, false);
        hidden.state.as_mut().expect("a state").preloaded = true;
        assert_eq!(found(&[used(), hidden]), ["not-preloaded b", "lists-overlap b"]);
    }

    /// Promise: a standby that receives nothing is not taken for another machine that receives WAL under its name.
    #[test]
    fn a_machine_with_the_name_of_a_standby_is_found() {
        let primary = sending(Facts { synchronous: "s".into(), ..server("p", false, 0.0) });
        let mut all = [primary, receiving(None, server("s", true, 0.0))];
        assert_eq!(found(&all), ["standby-not-in-fleet p"]);
        all[1].node.sender_port = Some(0);
        assert!(found(&all).is_empty());
    }

    /// Promise: what a standby has in common with its primary is reported once, even if one of them is ignored.
    #[test]
    fn a_standby_repeats_nothing_of_its_primary() {
        let with = |facts| minting("0-9", 0, Facts { databases: of_app(50), ..facts });
        let all = [with(server("a", false, 0.0)), with(server("s", true, 0.0))];
        for (ignored, shown) in [("", "a"), ("a", "s")] {
            let mut found = judge(&all, &[], true, |finding| finding.server != ignored);
            found.retain(|finding| finding.id == "shard-not-allowed" && finding.server != ignored);
            assert_eq!(found.iter().map(|finding| &*finding.server).collect::<Vec<_>>(), [shown]);
        }
    }
}
