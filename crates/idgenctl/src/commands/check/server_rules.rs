//! Rules for a single server and its databases.

use std::collections::{BTreeSet, HashSet};

use idgen_ids::Shard;
use idgen_ids::shard_set::ShardSet;

use super::facts::{Database, Facts, ShardSetting};
use super::finding::{Finding, some};
use super::table::*;
use crate::idgen::columns::{Column, Mints};
use crate::idgen::library::Warning;
use crate::idgen::preload::Keeper;
use crate::terminal::output::span;
use crate::terminal::text::{quoted, said};

/// How far a clock may differ: time daemons correct less than this, and ids may run ahead as far.
const CLOCK_S: f64 = 1.0;

/// A mark is at most this far ahead of the clock, unless ids are.
const MARK_AHEAD_S: f64 = 5.5;

/// A greater idgen.max_ahead is only for emergencies.
const WIDE_MS: i64 = 60_000;

/// Types that cannot hold every id.
const TOO_SMALL: [&str; 5] = ["smallint", "integer", "oid", "real", "double precision"];

/// Warnings of the library whose hints also apply under Patroni or an operator, and its others.
const OF_CLOCKS: &str = "clock-jumped clock-behind clock-before-epoch mark-in-future origin-named";
const OF_OTHERS: &str = "citus-without-list clock-jumps-unchecked epoch-of-mark mark-not-durable mark-removed no-mark no-room \
                         range-ends range-used-up setting-not-accepted setting-refused sync-too-few";

/// Findings about a server, which only matter if idgen is used there.
pub fn judge(facts: &Facts, needs_idgen: bool) -> Vec<Finding> {
    let is_used = needs_idgen || facts.databases.iter().any(|inside| inside.portable.is_some());
    let mut found = Vec::from_iter((facts.fsync_off && is_used).then(|| facts.found(FSYNC_OFF, &[])));
    // This machine's clock may be wrong, but a server that lies does not move it.
    let differs = [(facts.clock.least, "ahead of"), (-facts.clock.most, "behind")];
    let differs = differs.iter().filter(|(by, _)| *by > CLOCK_S);
    found.extend(differs.map(|(by, how)| facts.found(CLOCK_DIFFERS, &[&span(*by), how])));
    if !needs_idgen {
        return found;
    }
    let moving = facts.moving.iter().filter(|_| !facts.node.is_standby);
    found.extend(moving.map(|schema| facts.found(MOVE_NOT_ENDED, &[&quoted(schema)])));
    let prepared = facts.prepared.map(|(count, age_s)| (count, span(age_s)));
    found.extend(prepared.map(|(count, age)| facts.found(PREPARED_TRANSACTIONS, &[&count, &age])));
    let Some(state) = &facts.state else {
        found.push(facts.found(LIBRARY_MISSING, &[&facts.stateless]));
        return found;
    };
    let max_ahead_ms = state.max_ahead_ms.unwrap_or(0);
    if max_ahead_ms > WIDE_MS && facts.mark_ahead_s.is_none_or(|ahead| ahead < MARK_AHEAD_S) {
        found.push(facts.found(MAX_AHEAD_WIDE, &[&span(max_ahead_ms as f64 / 1000.0)]));
    }
    let closed = state.closed_shards.as_ref().filter(|list| !list.is_empty());
    let closed = closed.and_then(|list| common(&ShardSet::parse(list).ok()?, &facts.shards?));
    found.extend(closed.map(|shards| facts.found(SHARD_CLOSED, &[&shards])));
    found.extend(state.warning.as_ref().map(|warning| of_warning(facts, warning)));
    match &state.error {
        // The warning has the same cause.
        Some(_) if state.preloaded && state.warning.is_some() => {}
        Some(error) => {
            found.push(facts.found(LIBRARY_FAILS, &[&said(&error.message), &said(&error.sqlstate)]))
        }
        None if facts.preloads == [true, true] => {}
        None => found.push(facts.found(NOT_PRELOADED, &[])),
    }
    found
}

/// Findings about roles and databases. `twice` are the shards that more than one place of the fleet mints for.
pub fn inside(facts: &Facts, twice: &ShardSet) -> Vec<Finding> {
    let mut found = Vec::new();
    let forbidden = |ShardSetting { role, shard, .. }: &ShardSetting| {
        let whose = if role.is_empty() { "all roles".into() } else { format!("role {}", quoted(role)) };
        // PostgreSQL accepts other forms, such as 0x5.
        let number = shard.parse().ok().filter(|number: &i32| number.to_string() == *shard);
        let is_allowed = number.is_some_and(|number| facts.allows(number));
        (!is_allowed).then(|| format!("idgen.shard = {} of {whose}", quoted(shard)))
    };
    for settings in facts.shards_set.chunk_by(|one, two| one.database == two.database) {
        let texts: Vec<String> = settings.iter().filter_map(forbidden).collect();
        let finding = (!texts.is_empty()).then(|| facts.found(SHARD_NOT_ALLOWED, &[&some(&texts)]));
        found.extend(finding.map(|finding| finding.in_database(&settings[0].database)));
    }
    let set: HashSet<_> = facts.shards_set.iter().map(|set| (&*set.database, &*set.role)).collect();
    for database in &facts.databases {
        let of_database = in_database(facts, database, &set, twice);
        found.extend(of_database.into_iter().map(|finding| finding.in_database(&database.name)));
    }
    found
}

/// Turns a warning of the library into a finding.
fn of_warning(facts: &Facts, warning: &Warning) -> Finding {
    let severity = if warning.severity == "warning" { Severity::Warning } else { Severity::Error };
    let is_kept = matches!(facts.keeper, Keeper::Patroni | Keeper::Operator);
    let is_in = |list: &str| list.split(' ').any(|code| code == warning.code);
    let has_hint = is_in(OF_CLOCKS) || !is_kept && is_in(OF_OTHERS);
    let hint = warning.hint.iter().filter(|_| has_hint).map(|hint| format!("It advises: {}", said(hint)));
    // A hostile server must not pass for another finding, nor for this program.
    let code = if is_in(OF_CLOCKS) || is_in(OF_OTHERS) { &*warning.code } else { "warning" };
    let message = format!("it says: {}", said(&warning.message));
    facts.finding(code, severity, &message, &hint.collect::<String>())
}

fn in_database(
    facts: &Facts,
    database: &Database,
    set: &HashSet<(&str, &str)>,
    twice: &ShardSet,
) -> Vec<Finding> {
    let Database { not_seen, extension, columns, portable, .. } = database;
    let mut found = Vec::from_iter(not_seen.as_ref().map(|why| facts.found(DATABASE_NOT_SEEN, &[why])));
    let versions = extension.as_ref().zip(facts.state.as_ref().map(|state| &state.version));
    let differ = versions.filter(|(own, of_library)| own != of_library);
    found.extend(
        differ.map(|(own, of_library)| facts.found(UPDATE_OUTSTANDING, &[&said(own), &said(of_library)])),
    );
    let shared = portable.as_ref().and_then(|shards| common(shards, twice));
    found.extend(shared.map(|shards| facts.found(PORTABLE_EDITION, &[&shards])));
    let lacks = columns.iter().map(|column| &column.lacks).filter(|text| !text.is_empty());
    let lacks = Vec::from_iter(lacks.collect::<BTreeSet<_>>().into_iter().map(|text| said(text)));
    found.extend((!lacks.is_empty()).then(|| facts.found(RIGHTS_MISSING, &[&some(&lacks)])));

    let of_columns = |kind, describe: &dyn Fn(&Column) -> Option<String>| {
        let texts: Vec<String> = columns.iter().filter_map(describe).collect();
        (!texts.is_empty()).then(|| facts.found(kind, &[&some(&texts)]))
    };
    found.extend(of_columns(SHARD_NOT_ALLOWED, &|column| {
        let shard = column.shards.iter().find(|shard| !facts.allows(**shard))?;
        Some(format!("the default of {column} for shard {shard}"))
    }));
    // A role that is not the owner may have set it for itself only.
    let is_set_for = |role: &str| set.contains(&("", role)) || set.contains(&(&*database.name, role));
    found.extend(of_columns(SHARD_UNSET, &|column| {
        let is_set = is_set_for("") || is_set_for(&column.owner);
        (column.mints == Mints::OfSession && !is_set).then(|| column.to_string())
    }));
    found.extend(of_columns(COLUMN_TOO_SMALL, &|column| {
        // Ids for JavaScript fit into this type.
        let fits = column.mints == Mints::Js && column.type_name == "double precision";
        let is_small = TOO_SMALL.contains(&column.type_name.as_str()) && !fits;
        is_small.then(|| format!("{column}, which is {}", column.type_name))
    }));
    found
}

impl Facts {
    /// Whether the server may mint for a shard, as far as is known.
    fn allows(&self, shard: i32) -> bool {
        Shard::try_from(shard).is_ok_and(|shard| self.shards.is_none_or(|set| set.contains(shard)))
    }
}

/// The shards that two lists have in common, in the form of a list; none if there are none.
pub fn common(one: &ShardSet, two: &ShardSet) -> Option<String> {
    let both = Shard::all().filter(|shard| one.contains(*shard) && two.contains(*shard));
    let list = both.fold(ShardSet::NONE, ShardSet::with).to_string();
    (!list.is_empty()).then(|| some(&list.split(',').map(Into::into).collect::<Vec<_>>()))
}
