//! What is wrong with a server by itself, and in its databases.

use idgen_ids::Shard;
use idgen_ids::shard_set::ShardSet;

use super::facts::{Database, Facts, ShardSetting};
use super::table::*;
use super::{Finding, some};
use crate::idgen::columns::{Column, Mints};
use crate::idgen::library::{State, Warning};
use crate::idgen::preload::Keeper;
use crate::idgen::releases::limit_of_origins;
use crate::terminal::output::span;

/// Marks are written this far ahead of the ids, if they are late.
const MARK_AHEAD_S: f64 = 4.5;

/// A greater idgen.max_ahead was set for an emergency.
const WIDE_MS: i64 = 60_000;

/// Types that cannot hold each id.
const TOO_SMALL: [&str; 4] = ["smallint", "integer", "real", "double precision"];

/// Warnings of the library whose hints are no affair of Patroni or an operator.
const OF_CLOCKS: [&str; 4] = ["clock-jumped", "clock-behind", "clock-before-epoch", "origin-named"];

/// What is wrong with a server, some of whose databases need idgen or not. `all` are the servers of the fleet.
pub fn judge(facts: &Facts, needs_idgen: bool, all: &[Facts]) -> Vec<Finding> {
    let mut found = Vec::from_iter(facts.fsync_off.then(|| facts.found(FSYNC_OFF, &[])));
    if let Some((limit, others)) = facts.origins.filter(|(limit, others)| limit <= others) {
        found.push(
            facts.found(NO_ROOM, &[&limit_of_origins(facts.version), &others.saturating_add(1), &limit]),
        );
    }
    let prepared = facts.prepared.map(|(count, age_s)| (count, span(age_s)));
    found.extend(prepared.map(|(count, age)| facts.found(PREPARED_TRANSACTIONS, &[&count, &age])));
    match &facts.state {
        // Nothing else counts before the preload.
        Some(State { preloaded: false, error: Some(error), .. }) => {
            let fails = needs_idgen.then(|| facts.found(LIBRARY_FAILS, &[&error.message, &error.sqlstate]));
            found.extend(fails);
        }
        Some(state) => {
            found.extend(of_state(facts, state));
            let when = if facts.preloads[0] { " from the next start on" } else { "" };
            let is_it = needs_idgen && facts.preloads != [true, true];
            found.extend(is_it.then(|| facts.found(NOT_PRELOADED, &[&when])));
        }
        None => found.extend(needs_idgen.then(|| facts.found(LIBRARY_MISSING, &[&facts.stateless]))),
    }
    found.extend(roles(facts));
    for database in &facts.databases {
        let of_database = in_database(facts, database, all);
        found.extend(of_database.into_iter().map(|finding| finding.in_database(&database.name)));
    }
    found
}

/// What the library says, and what its numbers say.
fn of_state(facts: &Facts, state: &State) -> Vec<Finding> {
    let mut found = Vec::new();
    let ahead_s = facts.mark_ahead_s.unwrap_or(f64::NEG_INFINITY);
    let max_ahead_ms = state.max_ahead_ms.unwrap_or(0);
    if ahead_s > max_ahead_ms as f64 / 1000.0 + MARK_AHEAD_S && facts.warning_code() != "clock-behind" {
        found.push(facts.found(MARK_IN_FUTURE, &[&span(ahead_s)]));
    }
    if max_ahead_ms > WIDE_MS && ahead_s < 1.0 + MARK_AHEAD_S {
        found.push(facts.found(MAX_AHEAD_WIDE, &[&span(max_ahead_ms as f64 / 1000.0)]));
    }
    let closed = state.closed_shards.as_ref().filter(|list| !list.is_empty());
    let closed = closed.and_then(|list| common(&ShardSet::parse(list).ok()?, &facts.shards()?));
    found.extend(closed.map(|shards| facts.found(SHARD_CLOSED, &[&shards])));
    match (&state.warning, &state.error) {
        (Some(warning), _) => found.push(of_warning(facts, warning)),
        (None, Some(error)) => found.push(facts.found(LIBRARY_FAILS, &[&error.message, &error.sqlstate])),
        (None, None) => {}
    }
    found
}

/// A warning is a finding of its own kind, with the hint of the library.
fn of_warning(facts: &Facts, warning: &Warning) -> Finding {
    let is_kept = matches!(facts.keeper, Keeper::Patroni | Keeper::Operator);
    let has_hint = !is_kept || OF_CLOCKS.contains(&warning.code.as_str());
    Finding {
        id: warning.code.clone(),
        severity: if warning.severity == "warning" { Severity::Warning } else { Severity::Error },
        server: facts.name.clone(),
        database: None,
        message: warning.message.clone(),
        hint: warning.hint.clone().filter(|_| has_hint).unwrap_or_default(),
        system: facts.system.clone(),
        of_library: true,
    }
}

/// The shards of the server, its roles and its databases.
fn roles(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    if !facts.allows(facts.shard) {
        let what = format!("idgen.shard = {} in the configuration", facts.shard);
        found.push(facts.found(SHARD_NOT_ALLOWED, &[&what]));
    }
    for ShardSetting { database, role, shard } in &facts.shards_of_roles {
        if facts.allows(*shard) {
            continue;
        }
        let whose = if role.is_empty() { "all roles".into() } else { format!("role \"{role}\"") };
        let finding = facts.found(SHARD_NOT_ALLOWED, &[&format!("idgen.shard = {shard} of {whose}")]);
        found.push(if database.is_empty() { finding } else { finding.in_database(database) });
    }
    found
}

fn in_database(facts: &Facts, database: &Database, all: &[Facts]) -> Vec<Finding> {
    let Database { not_seen, extension, columns, missing_rights, has_portable, moving, .. } = database;
    let mut found = Vec::from_iter(not_seen.as_ref().map(|why| facts.found(DATABASE_NOT_SEEN, &[why])));
    let versions = extension.as_ref().zip(facts.state.as_ref().map(|state| &state.version));
    let differ = versions.filter(|(own, of_library)| own != of_library);
    found.extend(differ.map(|(own, of_library)| facts.found(UPDATE_OUTSTANDING, &[own, of_library])));
    let has_both = *has_portable && (extension.is_some() || !columns.is_empty());
    found.extend(has_both.then(|| facts.found(PORTABLE_EDITION, &[])));
    let rights = (!missing_rights.is_empty()).then(|| some(missing_rights));
    found.extend(rights.map(|rights| facts.found(RIGHTS_MISSING, &[&rights])));
    found.extend(moving.iter().map(|schema| facts.found(MOVE_NOT_ENDED, &[schema])));

    // A move leaves such schemas behind, and says so itself.
    let used = |column: &&Column| !column.schema.ends_with("_moving") && !column.schema.ends_with("_moved");
    let of_columns = |kind, describe: &dyn Fn(&Column) -> Option<String>| {
        let texts: Vec<String> = columns.iter().filter(used).filter_map(describe).collect();
        (!texts.is_empty()).then(|| facts.found(kind, &[&some(&texts)]))
    };
    found.extend(of_columns(SHARD_NOT_ALLOWED, &|column| {
        let shard = column.shard.filter(|shard| !facts.allows(*shard))?;
        // Citus has the tables of one node on all of them, and mints where the statement runs or is refused.
        let of_citus = |other: &Facts| facts.has_citus && other.has_citus && other.allows(shard);
        (!all.iter().any(of_citus)).then(|| format!("the default of {column} for shard {shard}"))
    }));
    let has_shard = facts.shard >= 0
        || facts.shards_of_roles.iter().any(|own| own.database.is_empty() || own.database == database.name);
    found.extend(of_columns(SHARD_UNSET, &|column| {
        (column.mints == Mints::OfSession && !has_shard).then(|| column.to_string())
    }));
    found.extend(of_columns(COLUMN_TOO_SMALL, &|column| {
        // Ids for JavaScript are made for this type.
        let fits = column.mints == Mints::Js && column.type_name == "double precision";
        let is_small = TOO_SMALL.contains(&column.type_name.as_str()) && !fits;
        is_small.then(|| format!("{column}, which is {}", column.type_name))
    }));
    found
}

impl Facts {
    /// Whether the server may mint for a shard, as far as anybody knows. A number that is none names no shard.
    fn allows(&self, shard: i32) -> bool {
        let Ok(shard) = Shard::try_from(shard) else { return true };
        self.shards().is_none_or(|set| set.contains(shard))
    }
}

/// The shards of both lists, as a list has them; none if there are none.
pub fn common(one: &ShardSet, two: &ShardSet) -> Option<String> {
    let both = Shard::all().filter(|shard| one.contains(*shard) && two.contains(*shard));
    let list = both.fold(ShardSet::NONE, ShardSet::with).to_string();
    (!list.is_empty()).then(|| some(&list.split(',').map(Into::into).collect::<Vec<_>>()))
}
