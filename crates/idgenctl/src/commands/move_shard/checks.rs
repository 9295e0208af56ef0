//! Checks that run while clients keep working. They change nothing.

use std::ptr;

use idgen_ids::shard_set::ShardSet;

use super::lists;
use super::names::shown;
use super::plan::Plan;
use super::rights::USED;
use super::sides::Side;
use crate::commands::marker::Begun;
use crate::connection::session::Session;
use crate::idgen::columns::{self, Column};
use crate::idgen::library;
use crate::terminal::error::{Error, Result, refuse_any, refused};
use crate::terminal::text::{name, said};
use crate::topology::cluster::{Node, unknown_standbys};

/// How far a move has got that can be continued.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// The schema has its name on the source.
    Open,
    /// The target may mint.
    Opened,
    /// The schema has its name on the target.
    Complete,
}

/// How far an earlier run got, if it can be continued as requested; none if the move is complete.
pub fn state(plan: &Plan<'_>) -> Result<Option<At>> {
    let (names, target) = (&plan.names, plan.target.primary());
    let source = plan.source.primary().session()?;
    let (here, there) = (names.on(&source)?, names.on(&target.session()?)?);
    let kept = names.kept(&target.session()?)?;
    let may_be_copy = there == [&*names.moving] && names.is_reserved(&target.session()?)?;
    let found = format!("the source has {}, the target has {}", shown(&here), shown(&there));
    let on_target = Begun::of(&target.session()?, &names.schema, &names.from, true)?;
    // Others may give a schema the name, and a hostile target shows any marker, but only a superuser has left this comment.
    let mark = names.kept(&source)?.unwrap_or_default();
    let was_moved = here == [&*names.moved] && mark.starts_with(&format!("{} ", names.mark));
    if plan.begun.is_none() && on_target.is_some() && was_moved {
        let what = "the target has lost the end of the move";
        let hint = "Run this on the source, and then the same command with --finish:";
        return refused(what, format!("{hint} {};", plan.marker(true, false).write()));
    }
    match &plan.begun {
        None if plan.arguments.finish => {
            let is_over = was_moved && there == [&*names.schema];
            if is_over { Ok(None) } else { Err(no_move(plan, &here)) }
        }
        // It may belong to a move from another server that claims to be the source.
        None if here == [&*names.schema] && kept.is_some() => refused(
            format!("the target has an empty schema {}: {}", names.schema, said(&kept.unwrap_or_default())),
            format!(
                "If it is of this move, run the same command with --undo. If it is of one that has ended, and no client looks \
                 for tables there, run on it: DROP SCHEMA {};",
                Session::identifier(&names.schema)
            ),
        ),
        None if here == [&*names.schema] && there.is_empty() => Ok(Some(At::Open)),
        None => refused(
            found,
            format!(
                "Only the source may have {0}, and none of them {1} or {2}. Check that source and target are not swapped.",
                names.schema, names.moving, names.moved
            ),
        ),
        Some(begun) if !(begun.opened && plan.arguments.finish) => refused(
            "an earlier move was interrupted",
            format!("Run the same command with {}.", if begun.opened { "--finish" } else { "--undo" }),
        ),
        Some(begun) if there == [&*names.schema] => {
            // A copy of the source has its system identifier, and may have an old copy of the schema.
            match lists::of(target)?.contains(plan.shard) {
                // The target removes its marker at the end, before the source.
                true => Ok(on_target.map(|_| At::Complete)),
                false => refused(
                    format!("the target has schema {}, but may not mint for its shard", names.schema),
                    "Check that --to names the right server. Add the shard to its list only if no other server has it.",
                ),
            }
        }
        Some(begun) if there.is_empty() => refused(
            "the target has lost its copy of the schema",
            format!(
                "Schema {} of the source may have the only rows: do not drop it. If so, take the shard out of the target's list, \
                 and run undo-move.sql of docs/examples on the source. If not, end the move on the source: {};",
                Session::identifier(&names.moved),
                begun.remove()
            ),
        ),
        Some(_) if may_be_copy => Ok(Some(At::Opened)),
        Some(_) => refused(found, "Rename what is not part of this move. It may have the only rows."),
    }
}

/// The error of --undo or --finish without an interrupted move.
pub fn no_move(plan: &Plan<'_>, here: &[String]) -> Error {
    let (source, schema, has) = (&plan.source.primary().server.name, &plan.names.schema, shown(here));
    Error::refused(
        format!("there is no interrupted move of schema {schema} from {source}: it has {has}"),
        "Check that source and target are not swapped. To reverse a complete move, move the schema the other way.",
    )
}

/// Every standby must be in the fleet: once promoted, it would mint by its own list.
pub fn standbys(side: &Side<'_>) -> Result {
    let nodes = side.places.iter().map(|place| Node::of(&place.session()?)).collect::<Result<Vec<_>>>()?;
    refuse_any(
        &unknown_standbys(&nodes.iter().collect::<Vec<_>>()),
        format!("{} has standbys that are not in the fleet", side.primary().role),
        "Add them, because their lists must be changed too. If several have one name, give each a cluster_name of its own.",
    )
}

/// A reload must be able to change the list, and ALTER SYSTEM must be in control of it.
pub fn settings(plan: &Plan<'_>, side: &Side<'_>) -> Result {
    for place in &side.places {
        // With some errors, such as those of syntax, a reload applies nothing.
        let errors = place.value(
            "SELECT string_agg(format('%s, line %s: %s', sourcefile, sourceline, error), '; ') FROM pg_file_settings
             WHERE error IS NOT NULL AND NOT EXISTS (SELECT FROM pg_file_settings WHERE applied)",
            &[],
        )?;
        let what = format!("{} cannot read its configuration, and so no new list", place.role);
        refuse_any(&errors, what, "Correct the file.")?;
        let source =
            place.value("SELECT source FROM pg_settings WHERE name = 'idgen.allowed_shards'", &[])?;
        if plan.arguments.set_list.is_none() && (place.has_patroni || source == "command line") {
            let keeper = if place.has_patroni { "Patroni" } else { "its command line" };
            return refused(
                format!("idgen.allowed_shards of {} is set by {keeper}, and not by ALTER SYSTEM", place.role),
                "With --set-list, name a program that sets the list where it is kept.",
            );
        }
    }
    Ok(())
}

/// All servers must have the same epoch. Until the target is opened, only the source may mint.
pub fn lists(plan: &Plan<'_>, at: At) -> Result {
    let shard = i32::from(plan.shard);
    let (source, target) = (plan.source.primary(), plan.target.primary());
    let of_target = library::state(&target.session()?)?.epoch_ms;
    for place in [source].into_iter().chain(&plan.others) {
        let state = library::state(&place.any_session()?).unwrap_or_default();
        if (state.preloaded || state.mark_ms.is_some()) && state.epoch_ms != of_target {
            return refused(
                format!("{} and the target have different values of idgen.epoch", place.role),
                "Ids of one epoch would be repeated, or in the wrong order, under another.",
            );
        }
    }
    lists::elsewhere(plan)?;
    let list = lists::of(source)?;
    if at == At::Open && lists::of(target)?.contains(plan.shard) {
        return refused(
            format!("the target may mint for shard {shard}"),
            "Check that nothing there uses the shard, and take it out of idgen.allowed_shards. An empty list means all.",
        );
    }
    if plan.begun.is_none() && !list.contains(plan.shard) {
        return refused(
            format!("the source may not mint for shard {shard}, so there is nothing to move"),
            "Add it to the list there only if no other server has it.",
        );
    }
    lists::changed(plan, source, list, ShardSet::without).map(drop)
}

/// Nothing else may mint for the shard, in any database.
pub fn surroundings(plan: &Plan<'_>) -> Result {
    let source = plan.source.primary();
    let own = source.value("SELECT current_database()", &[])?;
    let mut others = Vec::new();
    for place in [source, plan.target.primary()].into_iter().chain(&plan.others) {
        let databases = "SELECT datname FROM pg_database
                         WHERE (datallowconn OR datname <> 'template0') AND datconnlimit <> -2";
        for row in place.session()?.run(databases)?.iter() {
            let database = row.string(0);
            let look = place.session_in(Some(&database)).and_then(|session| {
                Ok((columns::minting(&session)?, columns::portable_shards(&session)?.contains(plan.shard)))
            });
            let (minting, is_portable) = look.or_else(|error| match error {
                Error::Interrupted => Err(error),
                error => refused(
                    format!("database {} of {} cannot be examined: {error}", name(&database), place.role),
                    "It may mint for the shard. Have its owner end what is in the way, and try again.",
                ),
            })?;
            let schemas = [&plan.names.schema, &plan.names.moving];
            let is_own = |column: &Column| database == own && schemas.contains(&&column.schema);
            let minting = minting.iter().filter(|column| column.shards.contains(&plan.shard.into()));
            let minting = minting.filter(|column| ptr::eq(place, source) && !is_own(column));
            let there = format!("in database {} of {}", name(&database), place.role);
            others.extend(minting.map(|column| format!("{column} {there}")));
            others.extend(is_portable.then(|| format!("the portable edition {there}")));
        }
    }
    refuse_any(
        &others.join(", "),
        format!("others mint for shard {}", i32::from(plan.shard)),
        "Give them another shard, or move them into the schema. Only one edition may mint for a shard.",
    )
}

pub fn ties(session: &Session, schema: &str) -> Result {
    let ties = session.value(&format!("{USED} {TIES}"), &[schema, "f"])?;
    refuse_any(
        &ties,
        "the schema is tied to what is outside it",
        "Drop, detach or disable these, or move them into the schema. Foreign keys with NO ACTION may stay.",
    )
}

/// What would miss the schema, or write into it without looking up its name: users of its objects outside; what is in it but
/// would not be moved; parents and children; foreign keys that change rows; members of extensions; subscriptions. And
/// policies for the owner of the database, who may be another role on the target.
const TIES: &str = "
    SELECT string_agg(DISTINCT quote_literal(what), ', ')
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
          SELECT format('%s, tied to extension %I of %I', pg_describe_object(classid, objid, 0), extname, pg_get_userbyid(extowner))
          FROM used JOIN pg_depend AS d USING (classid, objid) JOIN pg_extension AS e ON e.oid = refobjid
          WHERE d.deptype = 'e'
          UNION ALL
          SELECT format('policy %I, for pg_database_owner', polname)
          FROM used JOIN pg_policy ON classid = 'pg_policy'::regclass AND oid = objid
          WHERE 'pg_database_owner'::regrole = ANY (polroles)
          UNION ALL
          SELECT format('subscription %I', subname)
          FROM used JOIN pg_subscription_rel ON classid = 'pg_class'::regclass AND srrelid = objid
               JOIN pg_subscription AS s ON s.oid = srsubid WHERE subenabled) AS found (what)";
