//! What is wrong with servers together: with a primary and its standbys, and with clusters.

use std::collections::BTreeMap;

use idgen_ids::Shard;
use idgen_ids::shard_set::ShardSet;

use super::look::{Look, MUCH_WAL, Remnant};
use super::{Finding, clocks};
use crate::commands::words::{of_copy, of_source, shell};
use crate::connection::synchronous_names::Names;
use crate::idgen::releases;
use crate::idgen::status::epoch_text;
use crate::topology::cluster::{self, Unclear};

/// How many ranges of shards, or names, a message has.
const MOST_SHOWN: usize = 5;

/// What is wrong with servers together. If one does not answer, nothing is concluded from what is missing.
pub fn judge(looks: &[Look], all_answer: bool) -> Vec<Finding> {
    let (groups, unclear) = cluster::groups(looks.iter().map(Look::lineage));
    let mut findings = two_primaries(looks);
    for other in &unclear {
        let standby = &looks[other.standby];
        let primaries: Vec<_> = other.primaries.iter().map(|primary| looks[*primary].name.clone()).collect();
        findings.push(Finding::warning(
            "primary-unclear",
            &standby.name,
            format!("this may be a standby of each of these, which have its system identifier: {}", some(&primaries)),
            "Look at primary_conninfo. To tell the standbys of both apart, the primaries need different timelines, as a \
             promotion gives them.",
        ));
        findings.extend(not_preloaded(standby));
    }
    let mut clusters = Vec::new();
    for group in &groups {
        let primary = group.primary.map(|number| &looks[number]);
        let standbys: Vec<&Look> = group.standbys.iter().map(|number| &looks[*number]).collect();
        let members: Vec<&Look> = primary.into_iter().chain(standbys.iter().copied()).collect();
        // Those that could be standbys of it are no strangers.
        let is_near =
            |other: &&Unclear| group.primary.is_some_and(|primary| other.primaries.contains(&primary));
        let near: Vec<&Look> = unclear
            .iter()
            .filter(is_near)
            .map(|other| &looks[other.standby])
            .chain(standbys.iter().copied())
            .collect();
        if all_answer {
            findings.extend(strangers(&members, &near));
        }
        match primary {
            Some(primary) => {
                findings.extend(not_preloaded(primary));
                findings.extend(synchronous(primary, &near, all_answer));
                findings.extend(behind(primary, &near));
                findings.extend(standbys.iter().flat_map(|standby| differences(primary, standby)));
            }
            None => {
                findings.extend(all_answer.then(|| no_primary(&standbys)).flatten());
                findings.extend(standbys.iter().filter_map(|standby| not_preloaded(standby)));
            }
        }
        if !near.is_empty() || primary.is_some_and(|primary| !primary.senders.is_empty()) {
            findings.extend(members.iter().filter(|look| !look.can_be_rewound()).map(|look| {
                Finding::warning(
                    "no-rewind",
                    &look.name,
                    "wal_log_hints is off, and there are no data checksums: after a failover, pg_rewind cannot be used",
                    "Set wal_log_hints = on and restart the server.",
                )
            }));
        }
        clusters.push(members);
    }
    findings.extend(moves(looks));
    findings.extend(overlaps(&clusters));
    findings.extend(epochs(looks));
    let clocks: Vec<_> = looks.iter().map(|look| (look.name.as_str(), look.clock)).collect();
    findings.extend(clocks::judge(&clocks));
    findings
}

/// Moves that have not ended: which server is the source, which has the copy, and what ends the move.
fn moves(looks: &[Look]) -> Vec<Finding> {
    let all = || looks.iter().flat_map(|look| look.remnants.iter().map(move |remnant| (look, remnant)));
    let is_copy_of = |copy: &Remnant, look: &Look, source: &Remnant| {
        of_copy(&copy.comment)
            && of_source(&source.comment)
            && copy.schema == source.schema
            && copy.comment.ends_with(&format!(" of {}/{}", look.system, source.database_oid))
    };
    let finding = |(look, remnant): (&Look, &Remnant)| {
        let schema = &remnant.schema;
        let command = |to: &str, how: &str| format!("idgenctl move {} --to {to} {how}", shell(schema));
        let (what, hint) = if of_copy(&remnant.comment) {
            let to = shell(&look.name);
            let source = all().find(|(look, source)| is_copy_of(remnant, look, source));
            let whose = source.map_or(String::new(), |(source, _)| format!(" of {}", source.name));
            let hint = match source {
                Some((_, source)) if source.is_moved => {
                    format!("If nobody is moving it, finish the move with: {}.", command(&to, "--finish"))
                }
                _ => format!(
                    "If nobody is moving it, give it back to its source with: {}. Or finish the move, with --finish in the \
                     place of --undo.",
                    command(&to, "--undo")
                ),
            };
            (format!("this server has the copy{whose}, \"{schema}_moving\""), hint)
        } else if of_source(&remnant.comment) {
            let copy = all().find(|(_, copy)| is_copy_of(copy, look, remnant));
            let to = copy.map_or("SERVER".into(), |(there, _)| shell(&there.name));
            let there = copy.map_or(String::new(), |(there, _)| format!(", and {} has a copy", there.name));
            let which = if copy.is_some() { "" } else { " SERVER is the one that it was to move to." };
            (
                format!("this server is the source and has \"{schema}_moving\"{there}"),
                format!(
                    "If nobody is moving it, give it back with: {}. Or finish the move, with --finish in the place of \
                     --undo.{which}",
                    command(&to, "--undo")
                ),
            )
        } else {
            (
                format!("this server has \"{schema}_moving\", without the comment of a move"),
                format!("If nobody is moving it, rename it to \"{schema}\", or drop it if it is a copy."),
            )
        };
        Finding::error(
            "move-not-ended",
            &look.name,
            format!("a move of schema \"{schema}\" is under way or has broken off, and clients cannot use it: {what}"),
            hint,
        )
        .in_database(&remnant.database)
    };
    all().filter(|(_, remnant)| !remnant.is_moved).map(finding).collect()
}

fn two_primaries(looks: &[Look]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let primaries: Vec<&Look> = looks.iter().filter(|look| !look.is_standby).collect();
    for (place, second) in primaries.iter().enumerate() {
        for first in primaries[..place].iter().filter(|first| first.system == second.system) {
            let shared = first.shards.zip(second.shards).map(|(one, two)| common(&one, &two));
            findings.push(match shared {
                Some(shared) if shared.is_empty() => Finding::note(
                    "copy-of-cluster",
                    &second.name,
                    format!("this is a copy of {}, and each mints for shards of its own", first.name),
                    "There is nothing to do, unless one of them should be a standby.",
                ),
                _ => Finding::error(
                    "two-primaries",
                    &second.name,
                    format!("{} and this server are two primaries of one cluster, and mint the same ids", first.name),
                    "Stop the one that clients no longer use, and make it a standby. A copy that is meant to stay needs \
                     shards of its own in idgen.allowed_shards.",
                ),
            });
        }
    }
    findings
}

fn no_primary(standbys: &[&Look]) -> Option<Finding> {
    let standby = standbys.first()?;
    Some(if standbys.iter().any(|standby| standby.streams) {
        Finding::warning(
            "no-primary",
            &standby.name,
            "the primary of this standby is not in the fleet",
            "Add it to the fleet: without it, most of the cluster cannot be checked.",
        )
    } else {
        Finding::error(
            "no-primary",
            &standby.name,
            "its cluster has no primary",
            "Promote the standby that has everything, or add the primary to the fleet.",
        )
    })
}

/// Standbys that get WAL from a member, and are none. Several standbys may have the same name.
fn strangers(members: &[&Look], standbys: &[&Look]) -> Vec<Finding> {
    let mut known: Vec<&str> = standbys.iter().filter_map(|standby| standby.known_as.as_deref()).collect();
    let mut findings = Vec::new();
    for member in members {
        for sender in &member.senders {
            if let Some(place) = known.iter().position(|name| *name == sender.name) {
                known.swap_remove(place);
                continue;
            }
            let local = sender.address.is_empty();
            let at = if local { "over a local socket".into() } else { format!("at {}", sender.address) };
            let host = if local { "its own host".into() } else { format!("host={}", sender.address) };
            findings.push(Finding::warning(
                "standby-not-in-fleet",
                &member.name,
                format!("its standby \"{}\" {at} is not in the fleet", sender.name),
                format!(
                    "Add it with the connection string of {} and {host}, so that its clock, shards and room for the \
                     mark are looked at.",
                    member.name
                ),
            ));
        }
    }
    findings
}

fn behind(primary: &Look, standbys: &[&Look]) -> Vec<Finding> {
    let name = |sender: &str| {
        let known = standbys.iter().find(|standby| standby.known_as.as_deref() == Some(sender));
        known.map_or(primary.name.clone(), |standby| standby.name.clone())
    };
    let late = primary.senders.iter().filter(|sender| sender.lacks > MUCH_WAL || sender.state != "streaming");
    late.map(|sender| {
        Finding::warning(
            "standby-behind",
            &name(&sender.name),
            format!(
                "standby \"{}\" of {} still lacks {} MB of WAL",
                sender.name,
                primary.name,
                sender.lacks as u64 >> 20
            ),
            "Wait until it has caught up, or find out what delays it. A failover to it would lose what it lacks.",
        )
    })
    .collect()
}

fn synchronous(primary: &Look, standbys: &[&Look], all_answer: bool) -> Vec<Finding> {
    let text = primary.setting("synchronous_standby_names");
    let Some(names) = Names::parse(text) else {
        let has_standbys = !standbys.is_empty() || !primary.senders.is_empty();
        return Vec::from_iter(has_standbys.then(|| {
            Finding::note(
                "asynchronous",
                &primary.name,
                "no standby is synchronous: after a failover, ids may be repeated if the clock of the new primary is behind",
                "Name a standby in synchronous_standby_names if that must not happen.",
            )
        }));
    };
    let mut findings = Vec::new();
    let candidates = primary.senders.iter().filter(|sender| names.has(&sender.name));
    let others: Vec<_> = primary.receivers.iter().filter(|(name, _)| names.has(name)).collect();
    let streaming = candidates.clone().filter(|sender| sender.state == "streaming").count()
        + others.iter().filter(|(_, state)| state == "streaming").count();
    if streaming < names.needed && !primary.findings.iter().any(|finding| finding.id == "sync-too-few") {
        findings.push(Finding::error(
            "sync-too-few",
            &primary.name,
            format!("too few synchronous standbys are streaming: {streaming} of {}", names.needed),
            "Start the standbys, or go on without them by synchronous_standby_names.",
        ));
    }
    let is_known = |name: &str| {
        let same = |other: &str| other.eq_ignore_ascii_case(name);
        name == "*"
            || primary.senders.iter().any(|sender| same(&sender.name))
            || primary.receivers.iter().any(|(name, _)| same(name))
            || standbys.iter().any(|look| same(&look.name) || look.known_as.as_deref().is_some_and(same))
    };
    let unknown: Vec<_> =
        names.names.iter().filter(|name| !is_known(name)).map(|name| format!("\"{name}\"")).collect();
    if all_answer && !unknown.is_empty() {
        findings.push(Finding::warning(
            "sync-name-unknown",
            &primary.name,
            format!("synchronous_standby_names names no server of the fleet by {}", unknown.join(", ")),
            "Correct it to the application_name in primary_conninfo of the standby, or add the standby to the fleet.",
        ));
    } else if let Some((name, _)) = others.first()
        && candidates.clone().count() + others.len() > names.needed
    {
        findings.push(Finding::warning(
            "sync-not-a-standby",
            &primary.name,
            format!("\"{name}\" may acknowledge in the place of a standby, and cannot be promoted ({text})"),
            "Name the standbys in synchronous_standby_names, and only them: another may lack the last ids after a failover.",
        ));
    } else if candidates.count().max(names.names.len()) > names.needed {
        findings.push(Finding::note(
            "sync-candidates",
            &primary.name,
            format!("{} of several standbys must acknowledge ({text})", names.needed),
            "After a failure, promote the one that has received the most; another may lack the last ids.",
        ));
    }
    findings
}

fn not_preloaded(look: &Look) -> Option<Finding> {
    // One that waits for its restart is another finding.
    if look.preloads || look.will_preload || look.with_idgen == 0 {
        return None;
    }
    let hint = "Add idgen to shared_preload_libraries and restart the server. A router that must not mint need not be in \
                the fleet.";
    Some(if releases::mints_without_preload(look.version) {
        Finding::warning(
            "not-preloaded",
            &look.name,
            "idgen is not preloaded: it mints as long as none of its settings is set, and updates of its files take effect \
             at once",
            hint,
        )
    } else {
        let message = "idgen is not preloaded, and mints nothing on this release of PostgreSQL";
        Finding::error("not-preloaded", &look.name, message, hint)
    })
}

/// What a standby would do otherwise than its primary.
fn differences(primary: &Look, standby: &Look) -> Vec<Finding> {
    let mut findings = Vec::new();
    let name = &standby.name;
    if primary.preloads && !standby.preloads && !standby.will_preload {
        findings.push(Finding::error(
            "preload-differs",
            name,
            format!("idgen is preloaded on the primary {} and not here", primary.name),
            "Add idgen to shared_preload_libraries and restart the standby, before it is promoted.",
        ));
    } else {
        findings.extend(not_preloaded(standby));
    }
    if let (Some(of_primary), Some(own)) = (primary.shards, standby.shards)
        && of_primary != own
    {
        findings.push(Finding::error(
            "lists-differ",
            name,
            format!(
                "idgen.allowed_shards is \"{}\" here and \"{}\" on the primary {}",
                standby.setting("idgen.allowed_shards"),
                primary.setting("idgen.allowed_shards"),
                primary.name
            ),
            "Give the standby the list of its primary, and reload its configuration.",
        ));
    }
    if standby.files.is_some() && primary.files.is_some() && standby.files != primary.files {
        findings.push(Finding::warning(
            "files-differ",
            name,
            format!(
                "idgen's files are of version {} here, and of {} on the primary {}",
                standby.files.as_deref().unwrap_or_default(),
                primary.files.as_deref().unwrap_or_default(),
                primary.name
            ),
            "Install the same version on both, and restart the standby first.",
        ));
    }
    let other: Vec<&str> = primary
        .settings
        .iter()
        .filter(|(key, _)| {
            key.starts_with("idgen.") && !matches!(key.as_str(), "idgen.epoch" | "idgen.allowed_shards")
        })
        .filter(|(key, value)| standby.settings.get(*key).is_some_and(|own| own != *value))
        .map(|(key, _)| key.as_str())
        .collect();
    if !other.is_empty() {
        findings.push(Finding::warning(
            "settings-differ",
            name,
            format!("settings that differ from those of the primary {}: {}", primary.name, other.join(", ")),
            "Give the standby the settings of its primary.",
        ));
    }
    if let (Some((of_primary, others)), Some((own, _))) = (primary.origins, standby.origins)
        && own < of_primary
        && !standby.findings.iter().any(|finding| finding.id == "no-room")
    {
        let setting = releases::limit_of_origins(standby.version);
        findings.push(if own <= others {
            Finding::error(
                "no-room",
                name,
                format!("\"{setting}\" must be at least {} for idgen (now {own})", others + 1),
                format!("Raise it to {of_primary}, as on the primary, and restart the standby, or it may shut down."),
            )
        } else {
            Finding::warning(
                "less-room",
                name,
                format!("\"{setting}\" is {own} here, and {of_primary} on the primary {}", primary.name),
                "Raise it on the standby and restart it, or the standby may shut down when the primary uses more origins.",
            )
        });
    }
    findings
}

/// Lists of shards that two clusters share. That of a primary counts for its cluster.
fn overlaps(clusters: &[Vec<&Look>]) -> Vec<Finding> {
    let mints = |look: &&&Look| {
        let unclear = look.findings.iter().any(|finding| finding.id == "setting-not-accepted");
        look.with_idgen > 0 && look.shards.is_some() && !unclear
    };
    // The primary of a cluster is its first member.
    let mut all: Vec<&Look> =
        clusters.iter().filter_map(|members| members.iter().find(mints).copied()).collect();
    // As people list them.
    all.sort_by(|one, two| one.name.cmp(&two.name));
    let mut findings = Vec::new();
    for (place, look) in all.iter().enumerate() {
        let Some(own) = look.shards else { continue };
        let shared: Vec<_> = all[..place]
            .iter()
            // Two primaries with the same system identifier are another finding.
            .filter(|other| other.system != look.system)
            .filter_map(|other| Some((other, common(&own, &other.shards?))))
            .filter(|(_, shared)| !shared.is_empty())
            .collect();
        if shared.is_empty() {
            continue;
        }
        let with: Vec<_> =
            shared.iter().map(|(other, shards)| format!("{} ({})", other.name, ranges(shards))).collect();
        findings.push(Finding::error(
            "lists-overlap",
            &look.name,
            format!("its shards are also those of other clusters, which mint the same ids: {}", some(&with)),
            "Give each cluster shards of its own in idgen.allowed_shards, on its standbys too. An empty list means all.",
        ));
    }
    findings
}

/// Epochs that differ, within clusters and between them.
fn epochs(looks: &[Look]) -> Vec<Finding> {
    let known = || looks.iter().filter_map(|look| Some((look, look.epoch?)));
    let mut votes: BTreeMap<i64, usize> = BTreeMap::new();
    for (_, epoch) in known() {
        *votes.entry(epoch).or_default() += 1;
    }
    // The epoch of most servers is taken for the right one; of several, that of the first server.
    let Some(most) = votes.values().max() else { return Vec::new() };
    let mut common: Vec<_> = known().filter(|(_, epoch)| votes[epoch] == *most).collect();
    common.sort_by(|one, two| one.0.name.cmp(&two.0.name));
    let Some((model, right)) = common.first() else { return Vec::new() };
    let finding = |(look, epoch): (&Look, i64)| {
        Finding::error(
            "epoch-differs",
            &look.name,
            format!("idgen.epoch is {} here and {} on {}", epoch_text(epoch), epoch_text(*right), model.name),
            "All servers whose ids are compared need the same epoch: set it, restart, and never change it once there are \
             ids.",
        )
    };
    known().filter(|(_, epoch)| epoch != right).map(finding).collect()
}

fn common(one: &ShardSet, two: &ShardSet) -> Vec<i32> {
    Shard::all().filter(|shard| one.contains(*shard) && two.contains(*shard)).map(i32::from).collect()
}

/// Shards as a list has them: `0-4095,5000`.
fn ranges(shards: &[i32]) -> String {
    let ranges = shards.chunk_by(|one, two| one + 1 == *two).filter_map(|range| {
        let (first, last) = (range.first()?, range.last()?);
        Some(if first == last { first.to_string() } else { format!("{first}-{last}") })
    });
    some(&ranges.collect::<Vec<_>>())
}

fn some(texts: &[String]) -> String {
    let shown = texts.iter().take(MOST_SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if texts.len() > MOST_SHOWN { format!("{shown}, …") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise: what two lists share is shown as a list.
    #[test]
    fn shared_shards_are_shown_as_ranges() {
        let set = |text| ShardSet::parse(text).expect("a list");
        assert_eq!(ranges(&common(&set("0-10,20"), &set("5-7,9,20-30"))), "5-7, 9, 20");
        assert_eq!(ranges(&common(&set(""), &set(""))), "0-8191");
        assert!(common(&set("0-4"), &set("5-9")).is_empty());
        assert_eq!(ranges(&[1, 3, 5, 7, 9, 11]), "1, 3, 5, 7, 9, …");
    }
}
