//! What is checked while clients keep working. Nothing is changed.

use idgen_ids::Shard;

use super::rights::USED;
use super::sides::{Place, Side};
use super::undo::no_move;
use super::{How, Names, Plan, close, lists, say};
use crate::connection::session::Session;
use crate::idgen::columns;
use crate::idgen::library;
use crate::terminal::error::{Error, Result};
use crate::topology::cluster::STANDBYS;

pub fn refused<T>(what: impl Into<String>, hint: impl Into<String>) -> Result<T> {
    Err(Error::refused(what, hint))
}

/// How far a move has come, as far as it can go on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// The source has the schema by its name.
    Open,
    /// The source is closed.
    Moving,
    /// The target may mint.
    Opened,
    /// The target has the schema by its name.
    Complete,
}

/// How far an earlier run got, and whether that suits what is asked for.
pub fn state(plan: &Plan<'_>) -> Result<At> {
    let (names, target) = (&plan.names, plan.target.primary());
    let (here, there) = (names.on(&*plan.source.primary().session()?)?, names.on(&*target.session()?)?);
    let is_copy = plan.comment_on(target, &names.moving)?.as_ref() == Some(&plan.mark);
    let found = format!("the source has {}, the target has {}", names.shown(&here), names.shown(&there));
    match (&plan.begun, plan.how) {
        (None, How::Finish) if here.moved && there.schema => return Ok(At::Complete),
        (None, How::Finish) => return Err(no_move(plan)?),
        (None, _) if here == Names::ONLY_SCHEMA && there == Names::NOTHING => return Ok(At::Open),
        (None, _) if here.schema && is_copy => {
            return refused(
                format!("a move that was undone has left its copy: {found}"),
                "Drop it with --undo.",
            );
        }
        (None, _) => {
            return refused(
                found,
                format!(
                    "Only the source may have {0}, and none of them the other names of a move. Once nobody needs the old rows \
                     in {1}: DROP SCHEMA {2} CASCADE; Check that source and target are not swapped.",
                    names.schema,
                    names.moved,
                    Session::identifier(&names.moved)
                ),
            );
        }
        (Some(begun), How::Begin) => {
            let how = if begun.opened {
                "--finish"
            } else {
                "--undo, which gives it back to the source, or --finish"
            };
            return refused("an earlier move was interrupted", format!("Run the same command with {how}."));
        }
        (Some(begun), _) if begun.to != plan.target.system => {
            return refused(
                format!("the move was to another server, with the system identifier {}", begun.to),
                "Name that one with --to.",
            );
        }
        (Some(begun), _) => {
            match (begun.opened, here.schema, here.moving, there.schema, there.moving && is_copy) {
                (true, _, _, true, _) if !there.moving => return Ok(At::Complete),
                (true, _, _, false, true) => return Ok(At::Opened),
                (false, true, false, false, false) if !there.moving => return Ok(At::Open),
                (false, false, true, false, copy) if copy == there.moving => return Ok(At::Moving),
                _ => {}
            }
        }
    }
    refused(found, "Drop or rename what is not of this move.")
}

/// WAL senders to standbys that are not in the fleet.
pub fn unknown_standbys(side: &Side<'_>) -> Result<Option<String>> {
    let (mut senders, mut receivers) = (Vec::new(), 0);
    for place in &side.places {
        let rows = place.query(
            &format!(
                "SELECT format('%s %s', application_name, coalesce('at ' || host(client_addr), 'over a local socket')) {STANDBYS}"
            ),
            &[],
        )?;
        senders.extend(rows.iter().map(|row| row.string(0)));
        receivers += place.value("SELECT count(*) FROM pg_stat_wal_receiver", &[])?.parse().unwrap_or(0);
    }
    Ok((senders.len() > receivers).then(|| senders.join(", ")))
}

/// Every standby must be in the fleet, and have the list of its primary, because it mints by its own list once it is
/// promoted. After a move that was interrupted the lists may differ; they are set again.
pub fn standbys(plan: &Plan<'_>, side: &Side<'_>) -> Result {
    let primary = side.primary();
    if let Some(unknown) = unknown_standbys(side)? {
        return refused(
            format!("{} has standbys that are not in the fleet: {unknown}", primary.role),
            "Add each to the file of servers, or name it with --server: their lists must be changed too.",
        );
    }
    let list = lists::of(primary)?;
    for place in &side.places {
        if plan.how == How::Begin && lists::of(place)? != list {
            return refused(
                format!(
                    "idgen.allowed_shards of {} differs from that of {}, which it may have to replace",
                    place.role, primary.role
                ),
                format!("There: {}", plan.lists.by_hand(&list)),
            );
        }
        let away = place.value(
            "SELECT string_agg(slot_name, ', ') FROM pg_replication_slots
             WHERE slot_type = 'physical' AND NOT active AND NOT temporary",
            &[],
        )?;
        if !away.is_empty() {
            say(format!(
                "not connected: the standbys of these slots of {}, which need its new list before they are promoted: {away}",
                place.role
            ));
        }
    }
    Ok(())
}

/// A reload must read the lists, and ALTER SYSTEM must be what sets them.
pub fn settings(plan: &Plan<'_>) -> Result {
    for place in plan.source.places.iter().chain(&plan.target.places) {
        // Some errors, as of syntax, keep a server from reading any change.
        let rows = place.query(
            "SELECT (SELECT string_agg(format('%s, line %s: %s', sourcefile, sourceline, error), '; ') FROM pg_file_settings
                     WHERE error IS NOT NULL AND NOT EXISTS (SELECT FROM pg_file_settings WHERE applied)), source
             FROM pg_settings WHERE name = 'idgen.allowed_shards'",
            &[],
        )?;
        let row = rows.row(0);
        if let Some(errors) = row.text(0) {
            return refused(
                format!("{} cannot read its configuration, and so no new list: {errors}", place.role),
                "Correct the file.",
            );
        }
        let keeper = match (place.has_patroni, row.string(1) == "command line") {
            _ if plan.lists.program.is_some() => continue,
            (true, _) => "Patroni, whose configuration ALTER SYSTEM would permanently override",
            (_, true) => "its command line, where it cannot be changed",
            _ => continue,
        };
        return refused(
            format!("idgen.allowed_shards of {} is set by {keeper}", place.role),
            "Give a program that sets the list where it is kept with --set-list.",
        );
    }
    Ok(())
}

/// The servers must have one epoch. Before the target is opened, neither it nor its standbys may mint.
pub fn lists(plan: &Plan<'_>, at: At) -> Result {
    let shard = i32::from(plan.shard);
    let (source, target) = (plan.source.primary(), plan.target.primary());
    let epoch = |place: &Place<'_>| Ok(library::state(&*place.session()?)?.and_then(|state| state.epoch_ms));
    if epoch(source)? != epoch(target)? {
        return refused(
            "the servers have different values of idgen.epoch",
            "Ids of one epoch would be repeated, or in the wrong order, under another.",
        );
    }
    let (list, of_target) = (lists::of(source)?, lists::of(target)?);
    if matches!(at, At::Open | At::Moving) && of_target.contains(plan.shard) {
        return refused(
            format!("the target may mint for shard {shard}"),
            "It needs a list in idgen.allowed_shards without the shard. An empty list means all.",
        );
    }
    if plan.how == How::Begin && !list.contains(plan.shard) {
        return refused(
            format!("the source may not mint for shard {shard}, so there is nothing to move"),
            format!("If it should: {}", plan.lists.by_hand(&list.with(plan.shard))),
        );
    }
    let both = |shard: &Shard| *shard != plan.shard && list.contains(*shard) && of_target.contains(*shard);
    if plan.source.system == plan.target.system
        && let Some(shard) = Shard::all().find(both)
    {
        return refused(
            format!(
                "the source and the target are copies of one server, and both may mint for shard {}",
                i32::from(shard)
            ),
            "Give each shards of its own in idgen.allowed_shards, on its standbys too.",
        );
    }
    plan.without(&list).map(drop)
}

/// What stands in the way of closing the schema: what mints for the shard elsewhere, in all databases, and whoever would
/// write into the schema by another way than its name, or miss it.
pub fn surroundings(plan: &Plan<'_>) -> Result {
    let source = plan.source.primary();
    let schema = &plan.names.schema;
    let own = source.value("SELECT current_database()", &[])?;
    let mut others = Vec::new();
    let databases = "SELECT datname, datallowconn FROM pg_database WHERE datname <> 'template0'";
    for row in source.query(databases, &[])?.iter() {
        let database = row.string(0);
        let to = [("dbname", database.as_str()), ("application_name", &source.name)];
        let minting = match row.is_true(1) {
            true => source.server.connect_with(&to).and_then(|session| columns::minting(&session)),
            false => Err(Error::refused("it accepts no connections", "")),
        };
        let is_other = |column: &&columns::Column| {
            column.shard == Some(plan.shard.into()) && (database != own || !plan.names.has(&column.schema))
        };
        match minting {
            Ok(minting) => {
                let found = minting.iter().filter(is_other);
                others.extend(found.map(|column| format!("{column} in database {database}")));
            }
            Err(error) => {
                say(format!(
                    "whatever mints for the shard in database {database} of the source will fail: {error}"
                ));
            }
        }
    }
    if !others.is_empty() {
        return refused(
            format!(
                "other schemas of the source mint for shard {}: {}",
                i32::from(plan.shard),
                others.join(", ")
            ),
            "Give them another shard, or move them into the schema.",
        );
    }
    let ties = source.value(&format!("{USED} {TIES}"), &[schema, "f"])?;
    if !ties.is_empty() {
        return refused(
            format!("the schema is tied to what is outside it: {ties}"),
            "Drop, detach or disable these, or move them into the schema. Foreign keys may stay with NO ACTION.",
        );
    }
    // Prepared ones hold their locks until somebody ends them, even across restarts.
    let old = close::blockers(plan, 60_000)?;
    if !old.is_empty() {
        return refused(
            format!("transactions have been using the schema for more than a minute: {old}"),
            "End them, the prepared ones by COMMIT PREPARED or ROLLBACK PREPARED.",
        );
    }
    for (query, what) in NOT_MOVED {
        let found = source.value(query, &[schema])?;
        if !found.is_empty() {
            say(format!("{what}: {found}"));
        }
    }
    Ok(())
}

/// What ties the schema to what is outside it: objects that use its objects, or are in it and would not be moved; parents and
/// children; foreign keys that change rows; members of an extension; subscriptions, whose workers do not look up the name.
/// Others would miss the schema, or write into it by another way than its name.
const TIES: &str = "
    SELECT string_agg(DISTINCT what, ', ')
    FROM (SELECT pg_describe_object(classid, objid, 0)
          FROM (SELECT d.classid, d.objid FROM used JOIN pg_depend AS d ON refclassid = used.classid AND refobjid = used.objid
                WHERE d.deptype = 'n' AND (d.classid, d.objid) NOT IN (SELECT * FROM used)
                UNION
                SELECT classid, objid FROM used, this JOIN pg_namespace AS n ON n.oid = schema
                WHERE (pg_identify_object(classid, objid, 0)).schema NOT IN (quote_ident(nspname), 'pg_toast')) AS d
          UNION ALL
          SELECT format('%s, the parent of %s', inhparent::regclass, inhrelid::regclass)
          FROM used JOIN pg_inherits ON classid = 'pg_class'::regclass AND inhrelid = objid
          WHERE inhparent NOT IN (SELECT objid FROM used WHERE classid = 'pg_class'::regclass)
          UNION ALL
          SELECT format('foreign key %s on %s', conname, conrelid::regclass)
          FROM used JOIN pg_constraint ON classid = 'pg_constraint'::regclass AND oid = objid
          WHERE contype = 'f' AND confrelid NOT IN (SELECT objid FROM used WHERE classid = 'pg_class'::regclass)
            AND (confdeltype IN ('c', 'n', 'd') OR confupdtype IN ('c', 'n', 'd'))
          UNION ALL
          SELECT format('%s, a member of extension %I', pg_describe_object(classid, objid, 0), extname)
          FROM used JOIN pg_depend AS d USING (classid, objid) JOIN pg_extension AS e ON e.oid = refobjid
          WHERE d.deptype = 'e'
          UNION ALL
          SELECT format('subscription %I', subname)
          FROM used JOIN pg_subscription_rel ON classid = 'pg_class'::regclass AND srrelid = objid
               JOIN pg_subscription AS s ON s.oid = srsubid WHERE subenabled) AS found (what)";

/// What is named and stays behind.
const NOT_MOVED: [(&str, &str); 4] = [
    (
        "SELECT string_agg(format('%s on %s', conname, conrelid::regclass), ', ')
         FROM pg_constraint AS k JOIN pg_namespace AS n ON n.oid = connamespace JOIN pg_class AS r ON r.oid = confrelid
         WHERE nspname = $1 AND contype = 'f' AND r.relnamespace <> n.oid",
        "the target must have all rows outside the schema that these foreign keys reference",
    ),
    (
        "SELECT string_agg(DISTINCT quote_ident(pubname), ', ') FROM pg_publication_tables WHERE schemaname = $1",
        "publications are not moved",
    ),
    (
        // Columns of type oid, or of a domain such as lo, in a database with large objects.
        "SELECT string_agg(format('%s.%I', attrelid::regclass, attname), ', ')
        FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = attrelid JOIN pg_namespace AS n ON n.oid = relnamespace
             JOIN pg_type AS t ON t.oid = atttypid
        WHERE nspname = $1 AND relkind IN ('r', 'p') AND attnum > 0 AND NOT attisdropped
          AND 'oid'::regtype IN (t.oid, t.typbasetype) AND EXISTS (SELECT FROM pg_largeobject_metadata)",
        "large objects are not moved, which these columns may name",
    ),
    (
        "SELECT string_agg(what, ', ')
         FROM (SELECT DISTINCT format('%s of %I', what, rolname)
               FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace JOIN pg_roles AS r ON r.oid = relowner,
                    LATERAL (SELECT pg_describe_object('pg_constraint'::regclass, k.oid, 0)
                             FROM pg_constraint AS k LEFT JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.atttypid = contypid
                             WHERE contype = 'c' AND (conrelid = c.oid OR a.attnum > 0)
                             UNION ALL SELECT pg_describe_object('pg_class'::regclass, indexrelid, 0) FROM pg_index
                             WHERE indrelid = c.oid AND (indexprs IS NOT NULL OR indpred IS NOT NULL)
                             UNION ALL SELECT pg_describe_object('pg_class'::regclass, c.oid, attnum) FROM pg_attribute
                             WHERE attrelid = c.oid AND attgenerated <> ''
                             UNION ALL SELECT pg_describe_object('pg_class'::regclass, c.oid, 0) WHERE relkind = 'm'
                            ) AS found (what)
               WHERE nspname = $1 AND NOT rolsuper LIMIT 8) AS evaluated (what)",
        "for how long the schema stays closed is also up to these, which the restore evaluates, perhaps for each row",
    ),
];
