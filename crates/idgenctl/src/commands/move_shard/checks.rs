//! What is checked while clients keep working. Nothing is changed.

use idgen_ids::Shard;

use super::sides::{Place, Side};
use super::{How, Move, lists, say};
use crate::commands::words::of_copy;
use crate::connection::session::Session;
use crate::idgen::extension::Extension;
use crate::terminal::error::{Error, Result};
use crate::topology::cluster::STANDBYS;
use crate::topology::fleet::HAS_PATRONI;

fn refused<T>(what: impl Into<String>, hint: impl Into<String>) -> Result<T> {
    Err(Error::refused(what, hint))
}

impl Move<'_> {
    /// Which names of the schema exist on a server: some of "schema", "moving" and "moved".
    pub fn state_of(&self, place: &Place<'_>) -> Result<String> {
        place.value(
            "SELECT coalesce(string_agg(CASE nspname WHEN $1 THEN 'schema' WHEN $2 THEN 'moving' ELSE 'moved' END, ' '
                                        ORDER BY length(nspname), nspname), '')
             FROM pg_namespace WHERE nspname IN ($1, $2, $3)",
            &[&self.schema, &self.moving, &self.moved],
        )
    }

    /// The comment of a schema; none if there is no such schema either.
    pub fn comment_on(&self, place: &Place<'_>, schema: &str) -> Result<Option<String>> {
        let rows = place.query(
            "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = $1",
            &[schema],
        )?;
        Ok(rows.iter().next().and_then(|row| row.text(0)))
    }

    /// Refuses what is refused however the move goes on: a schema that is not that of this move.
    pub fn check_names(&self) -> Result {
        let source = self.source.primary();
        let is_copy = |comment: &Option<String>| comment.as_deref().is_some_and(of_copy);
        if is_copy(&self.comment_on(source, &self.moving)?) {
            return refused(
                format!("{} on the source is a copy", self.moving),
                "Check that source and target are not swapped.",
            );
        }
        if is_copy(&self.comment_on(source, &self.schema)?) {
            return refused(
                "the schema has the comment of a copy",
                format!("COMMENT ON SCHEMA {} IS NULL;", Session::identifier(&self.schema)),
            );
        }
        Ok(())
    }

    /// How far an earlier run got, and whether that suits what is asked for.
    pub fn check_state(&self, at_source: &str, at_target: &str) -> Result {
        let Move { schema, moving, moved, .. } = self;
        let drop = |name: &str| format!("DROP SCHEMA {} CASCADE;", Session::identifier(name));
        let back = || -> Result<String> {
            Ok(self.lists.by_hand(&lists::of(self.source.primary())?.with(self.shard).to_string()))
        };
        match (at_source, at_target, self.how) {
            ("schema", "", How::Begin)
            | ("moving", "" | "moving", How::Finish)
            | ("moved", "moving" | "schema", How::Finish) => Ok(()),
            ("schema", "moving", _) => refused(
                format!("the target has {moving}, a copy left by a move that was undone"),
                format!("Drop it with --undo, or there: {}", drop(moving)),
            ),
            ("moving", "" | "moving", _) => refused(
                format!("an earlier move was interrupted. The source has {moving}, which nobody can use"),
                format!(
                    "Run the same command with --undo to give it back to the source, or with --finish. To undo it by hand, \
                     on the source: {} and then on the source and each of its standbys: {}",
                    self.rename_by_hand(moving, schema),
                    back()?
                ),
            ),
            ("moved", "moving", _) => refused(
                "an earlier move was interrupted when the target might already mint",
                format!(
                    "Run the same command with --finish. By hand, on the target and each of its standbys: {} and then on \
                     the target: {} COMMENT ON SCHEMA {} IS NULL;",
                    self.lists.by_hand(&lists::of(self.target.primary())?.with(self.shard).to_string()),
                    self.rename_by_hand(moving, schema),
                    Session::identifier(schema)
                ),
            ),
            ("moved", "schema moving", _) => refused(
                format!("the target has a new schema {schema} beside {moving}, which has the rows"),
                "Drop or rename it, and run the same command with --finish.",
            ),
            ("moved", "schema", _) => refused(
                "the schema has moved: the target has it",
                "To set the lists again, run the same command with --finish.",
            ),
            ("schema", _, How::Finish) => refused(
                "there is nothing to finish: the source has the schema",
                "Leave out --finish to move it.",
            ),
            ("moved", "", _) => refused(
                format!("the source has {moved}, and the target has none of it"),
                format!(
                    "If the target has lost it, and no server mints for shard {}, give it back, on the source: {} and on \
                     the source and each of its standbys: {}",
                    self.shard_text(),
                    self.rename_by_hand(moved, schema),
                    back()?
                ),
            ),
            ("schema moved", ..) => refused(
                format!("the source also has {moved}, from an earlier move"),
                format!("Once you no longer need it: {}", drop(moved)),
            ),
            ("schema", there, _) if there.ends_with("moved") => refused(
                format!("the target has {moved}, from an earlier move"),
                format!("Once you no longer need it: {}", drop(moved)),
            ),
            ("", there, _) if !there.is_empty() => refused(
                format!("the source has no schema {schema}, but the target has"),
                "Check that source and target are not swapped.",
            ),
            (here, there, _) if here.contains("mov") || there.contains("mov") => refused(
                format!(
                    "there is more than a move leaves behind: {here} on the source, {there} on the target"
                ),
                "Look at the schemas, and drop or rename those that are not of this move.",
            ),
            (_, there, _) if there.contains("schema") => {
                refused(format!("the target already has a schema {schema}"), "Drop or rename it.")
            }
            _ => refused(format!("the source has no schema {schema}"), "Look at the name."),
        }
    }

    /// Whether a move has ended: the target has the schema and the source its old rows, and the lists say so everywhere.
    pub fn is_complete(&self) -> Result<bool> {
        if self.target.system.is_empty()
            || self.state_of(self.source.primary())? != "moved"
            || self.state_of(self.target.primary())? != "schema"
        {
            return Ok(false);
        }
        for (side, mints) in [(&self.source, false), (&self.target, true)] {
            for place in &side.places {
                if lists::may_mint(place, self.shard)? != mints {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// WAL senders to standbys.
    pub fn senders(&self, place: &Place<'_>) -> Result<Vec<String>> {
        let rows = place.query(
            &format!(
                "SELECT format('%s %s', application_name, coalesce('at ' || host(client_addr), 'over a local socket')) {STANDBYS}"
            ),
            &[],
        )?;
        Ok(rows.iter().map(|row| row.string(0)).collect())
    }

    /// Every standby must be in the fleet, and have the list of its primary, because it mints by its own list once it is
    /// promoted. After a move that was interrupted the lists may differ; they are set again. Gives the standbys that have
    /// a slot and are not connected.
    pub fn check_standbys(&self, side: &Side<'_>) -> Result<Vec<String>> {
        let primary = side.primary();
        let of_primary = lists::of(primary)?;
        let (mut found, mut away, mut receivers) = (Vec::new(), Vec::new(), 0);
        for place in &side.places {
            found.extend(self.senders(place)?);
            let slots = place.query(
                "SELECT slot_name FROM pg_replication_slots
                 WHERE slot_type = 'physical' AND NOT active AND NOT temporary",
                &[],
            )?;
            away.extend(
                slots.iter().map(|row| format!("the standby of slot {} of {}", row.string(0), place.role)),
            );
        }
        for place in side.standbys() {
            receivers += place.value("SELECT count(*) FROM pg_stat_wal_receiver", &[])?.parse().unwrap_or(0);
            if self.how == How::Begin && lists::of(place)? != of_primary {
                return refused(
                    format!(
                        "idgen.allowed_shards of {} differs from that of {}, which it may have to replace",
                        place.role, primary.role
                    ),
                    format!("There: {}", self.lists.by_hand(&lists::text(primary)?)),
                );
            }
        }
        if found.len() > receivers {
            return refused(
                format!("{} has standbys that are not in the fleet: {}", primary.role, found.join(", ")),
                "Add each to the file of servers, or name it with --server: their lists must be changed too.",
            );
        }
        Ok(away)
    }

    /// A reload must read the lists, and ALTER SYSTEM must be what sets them.
    pub fn check_settings(&self) -> Result {
        for place in self.source.places.iter().chain(&self.target.places) {
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
        }
        if self.lists.program.is_some() {
            return Ok(());
        }
        for place in self.source.places.iter().chain(&self.target.places) {
            if place.value(&format!("SELECT {HAS_PATRONI}"), &[])? == "t" {
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

    /// From SCHEMA_moved on, the target may mint. Before that, neither the target nor its standbys may.
    pub fn check_lists(&self, at_source: &str, at_target: &str) -> Result {
        let (source, target) = (self.source.primary(), self.target.primary());
        if at_target.contains("moving")
            && self.comment_on(target, &self.moving)?.as_deref() != Some(&self.name)
        {
            return refused(
                format!("{} on the target is not a copy from this source", self.moving),
                "Drop or rename it.",
            );
        }
        let shard = self.shard_text();
        if at_source != "moved" && lists::may_mint(target, self.shard)? {
            let without = lists::of(target)?.without(self.shard).to_string();
            return refused(
                format!("the target may mint for shard {shard}"),
                format!(
                    "It needs a list in idgen.allowed_shards without the shard: {}",
                    if without.is_empty() {
                        "another shard, for an empty list means all".into()
                    } else {
                        self.lists.by_hand(&without)
                    }
                ),
            );
        }
        let list = lists::of(source)?;
        if self.how == How::Begin && !list.contains(self.shard) {
            return refused(
                format!("the source may not mint for shard {shard}, so there is nothing to move"),
                format!("If it should: {}", self.lists.by_hand(&list.with(self.shard).to_string())),
            );
        }
        let of_target = lists::of(target)?;
        let both =
            |shard: &Shard| *shard != self.shard && list.contains(*shard) && of_target.contains(*shard);
        if self.source.system == self.target.system
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
        self.without(&list).map(drop)
    }

    /// The extension on both servers.
    pub fn check_extension(&self) -> Result {
        let (source, target) = (self.source.primary(), self.target.primary());
        let there = Extension::trusted(&*target.session()?)?;
        if there.schema != self.idgen.schema {
            return refused(
                format!(
                    "the extension is in schema {} on the source, and in {} on the target",
                    self.idgen.schema, there.schema
                ),
                format!(
                    "Defaults name its functions by their schema. If nothing uses idgen on the target yet, drop the extension there, and \
                     create it in the schema {}.",
                    self.idgen.schema
                ),
            );
        }
        let epoch = format!("SELECT extract(epoch FROM epoch) FROM {}", self.idgen.name("idgen_status"));
        if source.value(&epoch, &[])? != target.value(&epoch, &[])? {
            return refused(
                "the servers have different values of idgen.epoch",
                "Ids of one epoch would be repeated, or in the wrong order, under another.",
            );
        }
        Ok(())
    }

    /// What stands in the way of closing the schema: whoever would write into it by another way than its name, or miss it.
    pub fn check_surroundings(&self) -> Result {
        let source = self.source.primary();
        let schema = &self.schema;
        let columns = self.idgen.name("idgen_columns");
        let others = source.value(
            &format!(
                "SELECT string_agg(DISTINCT \"schema\", ', ') FROM {columns}
                 WHERE shard = $4::integer AND \"schema\" NOT IN ($1, $2, $3)"
            ),
            &[schema, &self.moving, &self.moved, &self.shard_text()],
        )?;
        if !others.is_empty() {
            return refused(
                format!("other schemas of the source mint for shard {}: {others}", self.shard_text()),
                "Give them another shard, or move them into the schema.",
            );
        }
        for (query, what, hint) in SURROUNDINGS {
            let found = source.value(query, &[schema])?;
            if !found.is_empty() {
                return refused(format!("{what}: {found}"), hint.replace("{found}", &found));
            }
        }
        if self.how == How::Begin {
            let prepared = source.value(PREPARED, &[schema])?;
            if !prepared.is_empty() {
                return refused(
                    format!("prepared transactions hold locks in the schema: {prepared}"),
                    format!("COMMIT or ROLLBACK PREPARED {prepared}"),
                );
            }
            let publications = source.value(
                "SELECT string_agg(DISTINCT quote_ident(pubname), ', ') FROM pg_publication_tables
                 WHERE schemaname = $1",
                &[schema],
            )?;
            if !publications.is_empty() {
                say(format!("publications are not moved: {publications}"));
            }
            let columns = source.value(LARGE_OBJECTS, &[schema])?;
            if !columns.is_empty() {
                say(format!("large objects are not moved, which these columns may name: {columns}"));
            }
        }
        Ok(())
    }
}

/// Columns of type oid, or of a domain such as lo, in a database with large objects.
const LARGE_OBJECTS: &str = "
    SELECT string_agg(format('%s.%I', attrelid::regclass, attname), ', ')
    FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = attrelid JOIN pg_namespace AS n ON n.oid = relnamespace
         JOIN pg_type AS t ON t.oid = atttypid
    WHERE nspname = $1 AND relkind IN ('r', 'p') AND attnum > 0 AND NOT attisdropped
      AND 'oid'::regtype IN (t.oid, t.typbasetype) AND EXISTS (SELECT FROM pg_largeobject_metadata)";

/// They keep their locks until somebody ends them, even across restarts.
pub const PREPARED: &str = "
    SELECT string_agg(DISTINCT quote_literal(x.gid), ', ')
    FROM pg_locks AS l
         LEFT JOIN pg_class AS c ON l.locktype = 'relation' AND c.oid = l.relation
         JOIN pg_namespace AS n
             ON n.oid = c.relnamespace
                OR l.locktype = 'object' AND l.classid = 'pg_namespace'::regclass AND l.objid = n.oid
         JOIN pg_locks AS own USING (virtualtransaction)
         JOIN pg_prepared_xacts AS x ON x.transaction = own.transactionid
    WHERE n.nspname = $1 AND l.pid IS NULL
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// What must not be there, with the message and the hint.
const SURROUNDINGS: [(&str, &str, &str); 6] = [
    (
        // The members of the schema depend on it, except row types. What are the objects part of that depend on the
        // members?
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
                        (pg_identify_object(d.classid, d.objid, 0)).schema <> quote_ident(n.nspname))",
        "objects outside the schema use objects in it",
        "Drop them, or move them into the schema.",
    ),
    (
        // pg_dump of a schema leaves out what is in none.
        "SELECT string_agg(DISTINCT pg_describe_object(d.classid, d.objid, 0), ', ')
         FROM pg_namespace AS n,
              LATERAL (SELECT classid, objid FROM pg_depend
                       WHERE refclassid = 'pg_namespace'::regclass AND refobjid = n.oid
                       UNION SELECT 'pg_type'::regclass, oid FROM pg_type WHERE typnamespace = n.oid) AS m
              JOIN pg_depend AS d ON d.refclassid = m.classid AND d.refobjid = m.objid AND d.deptype = 'n'
         WHERE n.nspname = $1
           AND d.classid IN ('pg_cast'::regclass, 'pg_event_trigger'::regclass, 'pg_transform'::regclass,
                             'pg_language'::regclass, 'pg_foreign_data_wrapper'::regclass, 'pg_am'::regclass)",
        "objects that are in no schema use objects in it, and would not be moved",
        "Drop them, and create them on the target after the move.",
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
