//! What is checked while clients keep working. Nothing is changed.

use std::collections::HashSet;

use idgen_ids::Shard;

use super::sides::{Place, Side};
use super::undo::no_move;
use super::{How, Plan, lists, say};
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
    let (names, source, target) = (&plan.names, plan.source.primary(), plan.target.primary());
    let (here, there) = (names.on(&*source.session()?)?, names.on(&*target.session()?)?);
    let (schema, moving, moved) = (&names.schema, &names.moving, &names.moved);
    let drop =
        |name: &str| format!("Once nobody needs it: DROP SCHEMA {} CASCADE;", Session::identifier(name));
    let rename = "Drop or rename it.";
    let copy = plan.comment_on(target, moving)?;
    let is_copy = copy.as_ref() == Some(&plan.mark);
    let Some(begun) = &plan.begun else {
        if plan.how == How::Finish {
            return if here.moved && there.schema { Ok(At::Complete) } else { Err(no_move(plan, false)?) };
        }
        return match (here.schema, here.moving, here.moved) {
            (_, _, true) if there.schema => refused("the schema has moved: the target has it", drop(moved)),
            (_, _, true) => {
                refused(format!("the source also has {moved}, from an earlier move"), drop(moved))
            }
            (_, true, _) => refused(
                format!("the source has {moving}, which is not of a move that has begun there"),
                rename,
            ),
            _ if there.moved => refused(format!("the target has {moved}, from an earlier move"), drop(moved)),
            _ if is_copy => refused(
                format!("the target has {moving}, a copy left by a move that was undone"),
                "Drop it with --undo.",
            ),
            _ if there.moving => refused(format!("the target has a schema {moving}"), rename),
            (false, ..) => refused(
                format!("the source has no schema {schema}"),
                "Look at the name. Check that source and target are not swapped.",
            ),
            _ if there.schema => refused(format!("the target already has a schema {schema}"), rename),
            _ => Ok(At::Open),
        };
    };
    if plan.how == How::Begin {
        return if begun.opened {
            refused(
                "an earlier move was interrupted when the target might already mint",
                "Run the same command with --finish.",
            )
        } else {
            refused(
                "an earlier move was interrupted",
                "Run the same command with --undo to give the schema back to the source, or with --finish.",
            )
        };
    }
    if begun.to != plan.target.system {
        return refused(
            format!("the move that broke off was to another server, with the system identifier {}", begun.to),
            "Name that one with --to.",
        );
    }
    if there.moving && !is_copy {
        return refused(format!("{moving} on the target is not a copy from this source"), rename);
    }
    match (begun.opened, there.schema, there.moving) {
        (true, true, true) => refused(
            format!("the target has a new schema {schema} beside {moving}, which has the rows"),
            rename,
        ),
        (true, false, false) => refused(
            format!("the target has neither {schema} nor {moving}, which had the rows"),
            format!("If it has lost them, {} on the source still has them.", moved),
        ),
        (true, true, false) => Ok(At::Complete),
        (true, false, true) => Ok(At::Opened),
        (false, true, _) => refused(format!("the target has a schema {schema}"), rename),
        (false, false, _) => match (here.schema, here.moving) {
            (true, true) => refused(format!("the source has a new schema {schema} beside {moving}"), rename),
            (true, false) => Ok(At::Open),
            (false, true) => Ok(At::Moving),
            (false, false) => {
                refused(format!("the source has neither {schema} nor {moving}"), "Look at its schemas.")
            }
        },
    }
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
/// promoted. After a move that was interrupted the lists may differ; they are set again. Gives the standbys that have a
/// slot and are not connected.
pub fn standbys(plan: &Plan<'_>, side: &Side<'_>) -> Result<Vec<String>> {
    let primary = side.primary();
    if let Some(unknown) = unknown_standbys(side)? {
        return refused(
            format!("{} has standbys that are not in the fleet: {unknown}", primary.role),
            "Add each to the file of servers, or name it with --server: their lists must be changed too.",
        );
    }
    let list = lists::of(primary)?;
    let mut away = Vec::new();
    for place in &side.places {
        let slots = place.query(
            "SELECT slot_name FROM pg_replication_slots WHERE slot_type = 'physical' AND NOT active AND NOT temporary",
            &[],
        )?;
        away.extend(
            slots.iter().map(|row| format!("the standby of slot {} of {}", row.string(0), place.role)),
        );
        if plan.how == How::Begin && lists::of(place)? != list {
            return refused(
                format!(
                    "idgen.allowed_shards of {} differs from that of {}, which it may have to replace",
                    place.role, primary.role
                ),
                format!("There: {}", plan.lists.by_hand(&list)),
            );
        }
    }
    Ok(away)
}

/// A reload must read the lists, and ALTER SYSTEM must be what sets them.
pub fn settings(plan: &Plan<'_>) -> Result {
    for place in plan.source.places.iter().chain(&plan.target.places) {
        // Some errors, as of syntax, keep a server from reading any change.
        let errors = place.value(
            "SELECT string_agg(format('%s, line %s: %s', sourcefile, sourceline, error), '; ') FROM pg_file_settings
             WHERE error IS NOT NULL AND NOT EXISTS (SELECT FROM pg_file_settings WHERE applied)",
            &[],
        )?;
        if !errors.is_empty() {
            return refused(
                format!("{} cannot read its configuration, and so no new list: {errors}", place.role),
                "Correct the file.",
            );
        }
        if plan.lists.program.is_some() {
            continue;
        }
        if place.has_patroni {
            return refused(
                format!(
                    "{} is run by Patroni, whose configuration ALTER SYSTEM would permanently override",
                    place.role
                ),
                "Give a program that sets the list there with --set-list.",
            );
        }
        let source = "SELECT source FROM pg_settings WHERE name = 'idgen.allowed_shards'";
        if place.value(source, &[])? == "command line" {
            return refused(
                format!(
                    "idgen.allowed_shards of {} is set on its command line, where it cannot be changed",
                    place.role
                ),
                "Set it in its configuration, and restart it.",
            );
        }
    }
    Ok(())
}

/// Before the target is opened, neither it nor its standbys may mint.
pub fn lists(plan: &Plan<'_>, at: At) -> Result {
    let shard = i32::from(plan.shard);
    let (list, of_target) = (lists::of(plan.source.primary())?, lists::of(plan.target.primary())?);
    if matches!(at, At::Open | At::Moving) && of_target.contains(plan.shard) {
        let without = of_target.without(plan.shard);
        return refused(
            format!("the target may mint for shard {shard}"),
            format!(
                "It needs a list in idgen.allowed_shards without the shard: {}",
                if without.to_string().is_empty() {
                    "another shard, for an empty list means all".into()
                } else {
                    plan.lists.by_hand(&without)
                }
            ),
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

/// Ids of one epoch would be repeated, or in the wrong order, under another.
pub fn epochs(plan: &Plan<'_>) -> Result {
    let epoch = |place: &Place<'_>| Ok(library::state(&*place.session()?)?.and_then(|state| state.epoch_ms));
    if epoch(plan.source.primary())? == epoch(plan.target.primary())? {
        return Ok(());
    }
    refused(
        "the servers have different values of idgen.epoch",
        "Ids can move only between servers of one epoch.",
    )
}

/// What stands in the way of closing the schema: what mints for the shard elsewhere, in all databases, and whoever would
/// write into the schema by another way than its name, or miss it.
pub fn surroundings(plan: &Plan<'_>) -> Result {
    let source = plan.source.primary();
    let schema = &plan.names.schema;
    let own = source.value("SELECT current_database()", &[])?;
    let mut others = Vec::new();
    for row in source
        .query("SELECT datname, datallowconn FROM pg_database WHERE datname <> 'template0'", &[])?
        .iter()
    {
        let database = row.string(0);
        let to = [("dbname", database.as_str()), ("application_name", &source.name)];
        let minting = match row.is_true(1) {
            true => source.server.connect_with(&to).and_then(|session| columns::minting(&session)),
            false => Err(Error::refused("it accepts no connections", "")),
        };
        match minting {
            Ok(minting) => others.extend(
                minting
                    .iter()
                    .filter(|column| column.shard == Some(plan.shard.into()))
                    .filter(|column| database != own || !plan.names.has(&column.schema))
                    .map(|column| format!("{column} in database {database}")),
            ),
            Err(error) => say(format!(
                "database {database} of the source cannot be looked at. Whatever mints for shard {} there will fail: {error}",
                i32::from(plan.shard)
            )),
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
    for (query, what, hint) in SURROUNDINGS {
        let found = source.value(query, &[schema])?;
        if !found.is_empty() {
            return refused(format!("{what}: {found}"), hint.replace("{found}", &found));
        }
    }
    for (query, what) in NOT_MOVED {
        let found = source.value(query, &[schema])?;
        if !found.is_empty() {
            say(format!("{what}: {found}"));
        }
    }
    Ok(())
}

/// Refuses a target without the rows outside the schema that its foreign keys reference.
pub fn foreign_keys(plan: &Plan<'_>) -> Result {
    let side = |relation: &str, key: &str| {
        format!(
            "(SELECT json_build_object('schema', nspname, 'table', relname, 'columns', columns)
              FROM pg_class AS t JOIN pg_namespace AS n ON n.oid = t.relnamespace,
                   (SELECT json_agg(attname ORDER BY n) FROM unnest({key}) WITH ORDINALITY AS key (attnum, n)
                         JOIN pg_attribute AS a USING (attnum) WHERE attrelid = {relation}) AS c (columns)
              WHERE t.oid = {relation})"
        )
    };
    let keys = plan.source.primary().query(
        &format!(
            "SELECT {}, {}, conname
             FROM pg_constraint AS k
                  JOIN pg_class AS c ON c.oid = conrelid
                  JOIN pg_class AS r ON r.oid = confrelid AND r.relnamespace <> c.relnamespace
                  JOIN pg_namespace AS s ON s.oid = c.relnamespace
             WHERE s.nspname = $1 AND contype = 'f' AND conparentid = 0 AND k.convalidated",
            side("conrelid", "conkey"),
            side("confrelid", "confkey")
        ),
        &[&plan.names.schema],
    )?;
    for key in keys.iter() {
        let mut missing: HashSet<Vec<u8>> = HashSet::new();
        rows_of(plan.source.primary(), &key.string(0), |row| {
            if row.split(|byte| *byte == b'\t').all(|field| field != b"\\N") {
                missing.insert(row.to_vec());
            }
        })?;
        rows_of(plan.target.primary(), &key.string(1), |row| {
            missing.remove(row);
        })?;
        if !missing.is_empty() {
            return refused(
                format!(
                    "foreign key {}: the target lacks {} of the rows that it references",
                    key.string(2),
                    missing.len()
                ),
                "Copy them there first.",
            );
        }
    }
    Ok(())
}

/// The rows of a table's columns, which are given in JSON. They are read by COPY of ordinary tables, which runs no view and
/// evaluates nothing.
fn rows_of(place: &Place<'_>, wanted: &str, mut each: impl FnMut(&[u8])) -> Result {
    let session = place.fresh()?;
    let copies = session.query(
        "SELECT format('COPY %s (%s) TO STDOUT', leaf::regclass,
                       (SELECT string_agg(quote_ident(name), ', ' ORDER BY n)
                        FROM json_array_elements_text(wanted->'columns') WITH ORDINALITY AS c (name, n)))
         FROM (SELECT $1::json AS wanted) AS w
              JOIN pg_namespace AS n ON nspname = wanted->>'schema'
              JOIN pg_class AS t ON relnamespace = n.oid AND relname = wanted->>'table', LATERAL (
             SELECT t.oid AS leaf WHERE t.relkind = 'r' UNION
             SELECT relid FROM pg_partition_tree(t.oid) JOIN pg_class AS c ON c.oid = relid WHERE c.relkind = 'r') AS leaves",
        &[wanted],
    )?;
    for copy in copies.iter() {
        session.copy_out(&copy.string(0), &mut each)?;
    }
    Ok(())
}

/// What must not be there, with the message and the hint.
const SURROUNDINGS: [(&str, &str, &str); 5] = [
    (
        // The members of the schema depend on it, except row types. What are the objects part of that depend on the
        // members? Some are in no schema, and pg_dump of a schema leaves them out.
        "SELECT string_agg(DISTINCT pg_describe_object(d.classid, d.objid, 0), ', ')
         FROM pg_namespace AS n,
              LATERAL (SELECT classid, objid FROM pg_depend
                       WHERE refclassid = 'pg_namespace'::regclass AND refobjid = n.oid
                       UNION SELECT 'pg_type'::regclass, oid FROM pg_type WHERE typnamespace = n.oid) AS m
              JOIN pg_depend AS d ON d.refclassid = m.classid AND d.refobjid = m.objid AND d.deptype IN ('n', 'a')
              LEFT JOIN pg_attrdef AS f ON d.classid = 'pg_attrdef'::regclass AND f.oid = d.objid
              LEFT JOIN pg_rewrite AS r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
              LEFT JOIN pg_trigger AS g ON d.classid = 'pg_trigger'::regclass AND g.oid = d.objid
              LEFT JOIN pg_policy AS y ON d.classid = 'pg_policy'::regclass AND y.oid = d.objid
              LEFT JOIN pg_class AS c
                  ON c.oid = coalesce(f.adrelid, r.ev_class, g.tgrelid, y.polrelid,
                                      CASE d.classid WHEN 'pg_class'::regclass THEN d.objid END)
              LEFT JOIN pg_constraint AS k ON d.classid = 'pg_constraint'::regclass AND k.oid = d.objid
              LEFT JOIN pg_proc AS p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
              LEFT JOIN pg_type AS t ON d.classid = 'pg_type'::regclass AND t.oid = d.objid
         WHERE n.nspname = $1
           AND coalesce(coalesce(c.relnamespace, k.connamespace, p.pronamespace, t.typnamespace)
                            NOT IN (n.oid, 'pg_toast'::regnamespace),
                        d.classid IN ('pg_cast'::regclass, 'pg_event_trigger'::regclass, 'pg_transform'::regclass,
                                      'pg_language'::regclass, 'pg_foreign_data_wrapper'::regclass, 'pg_am'::regclass)
                        OR (pg_identify_object(d.classid, d.objid, 0)).schema <> quote_ident(n.nspname))",
        "objects outside the schema use objects in it",
        "Drop them, or move them into the schema. What can be in no schema is to be created on the target after the move.",
    ),
    (
        // Through a parent, their rows would be found whatever the name of the schema.
        "SELECT string_agg(DISTINCT format('%s of %s', i.inhrelid::regclass, i.inhparent::regclass), ', ')
         FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid JOIN pg_class AS p ON p.oid = i.inhparent
              JOIN pg_namespace AS n ON n.oid = c.relnamespace
         WHERE n.nspname = $1 AND p.relnamespace <> n.oid AND c.relkind IN ('r', 'p', 'f')",
        "the schema has partitions or children of tables outside it",
        "Detach them.",
    ),
    (
        "SELECT string_agg(DISTINCT format('%s on %s', conname, conrelid::regclass), ', ')
         FROM pg_constraint AS k JOIN pg_class AS r ON r.oid = confrelid JOIN pg_namespace AS n ON n.oid = connamespace
         WHERE n.nspname = $1 AND contype = 'f' AND r.relnamespace <> n.oid
           AND (confdeltype IN ('c', 'n', 'd') OR confupdtype IN ('c', 'n', 'd'))",
        "foreign keys would keep changing rows from outside the schema",
        "Set them to NO ACTION, at least for the move.",
    ),
    (
        "SELECT string_agg(DISTINCT pg_describe_object(m.classid, m.objid, 0), ', ')
         FROM pg_namespace AS n
              JOIN pg_depend AS m ON m.refclassid = 'pg_namespace'::regclass AND m.refobjid = n.oid
              JOIN pg_depend AS e ON e.classid = m.classid AND e.objid = m.objid AND e.deptype = 'e'
         WHERE n.nspname = $1",
        "the schema has members of an extension, which would not be moved",
        "ALTER EXTENSION ... DROP takes them out of it.",
    ),
    (
        // An apply worker does not look up the name again either.
        "SELECT string_agg(DISTINCT quote_ident(subname), ', ')
         FROM pg_subscription AS s JOIN pg_subscription_rel ON srsubid = s.oid
              JOIN pg_class AS c ON c.oid = srrelid JOIN pg_namespace AS n ON n.oid = relnamespace
         WHERE nspname = $1 AND subenabled",
        "subscriptions write into the schema",
        "ALTER SUBSCRIPTION {found} DISABLE first.",
    ),
];

/// What is named and stays behind.
const NOT_MOVED: [(&str, &str); 3] = [
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
