//! What is wrong in the databases of a server.

use std::time::Instant;

use super::look::{self, Look, PATIENCE_WITH_ALL, Remnant, connect};
use super::{Finding, Severity};
use crate::connection::server::Server;
use crate::connection::session::{Row, Session};
use crate::idgen::extension::{self, Extension};
use crate::idgen::releases::mints_without_preload;
use crate::terminal::error::{Error, Result};

/// Looks into each database, one after the other: there may be more of them than connections.
pub fn look_into(look: &mut Look, server: &Server, session: &Session, began: Instant) -> Result {
    let mut status_is_known = false;
    for database in extension::databases(session)? {
        look.databases += 1;
        let seen = if began.elapsed() > PATIENCE_WITH_ALL {
            Err(Error::NoAnswer { server: look.name.clone(), seconds: PATIENCE_WITH_ALL.as_secs() })
        } else {
            match in_database(look, server, &database, &mut status_is_known) {
                // A standby may cancel what is in the way of its replay, and a tenant may drop what is being read.
                Err(Error::Sql { code, .. }) if matches!(code.as_str(), "40001" | "XX000") => {
                    in_database(look, server, &database, &mut status_is_known)
                }
                seen => seen,
            }
        };
        match seen {
            Ok(()) => {}
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            // The same would happen in each database.
            Err(error @ Error::NoAnswer { .. }) if began.elapsed() <= PATIENCE_WITH_ALL => return Err(error),
            Err(error) => look.findings.push(
                Finding::warning(
                    "database-not-seen",
                    &look.name,
                    format!("the database cannot be looked at: {}", super::why(&look.name, &error)),
                    "Find out why, and whether it has idgen and mints for a shard of another server.",
                )
                .in_database(&database),
            ),
        }
    }
    if look.with_idgen == 0 && !look.is_standby {
        look.findings.push(Finding::warning(
            "no-extension",
            &look.name,
            "no database that can be looked at has idgen",
            "Run idgenctl enable, or leave the server out of the fleet.",
        ));
    }
    Ok(())
}

fn in_database(look: &mut Look, server: &Server, database: &str, status_is_known: &mut bool) -> Result {
    let session = connect(server, Some(database))?;
    let Some(extension) = Extension::of(&session)? else { return Ok(()) };
    let mut findings = Vec::new();
    if extension.available.is_none() {
        findings.push(Finding::error(
            "files-missing",
            &look.name,
            "idgen's files are not installed, and the database needs them",
            "Install them, and preload idgen. A standby without them mints nothing once it is promoted.",
        ));
    } else if !look.is_standby && extension.available.as_ref() != Some(&extension.version) {
        findings.push(Finding::warning(
            "update-outstanding",
            &look.name,
            format!(
                "the extension is of version {}, and its files are of version {}",
                extension.version,
                extension.available.clone().unwrap_or_default()
            ),
            "Restart the server if it has not been restarted since the files were installed. Then run ALTER EXTENSION \
             idgen UPDATE there.",
        ));
    }
    if extension.others.is_empty() {
        if !*status_is_known {
            // What the view says concerns the server, whatever the database.
            *status_is_known = status(look, &session, &extension)?;
        }
        findings.extend(columns(look, &session, &extension)?);
    } else if !look.is_standby {
        findings.push(Finding::warning(
            "schema-not-trusted",
            &look.name,
            format!(
                "roles that are not superusers may change schema \"{}\" or the extension in it: {}",
                extension.schema,
                extension.others.join(", ")
            ),
            "idgenctl calls nothing there, and no superuser should. See docs/security.md for a schema that can be trusted.",
        ));
    }
    if !look.is_standby {
        findings.extend(portable(look, &session)?);
        let remnants = remnants(&session, database)?;
        look.remnants.extend(remnants);
    }
    look.with_idgen += 1;
    look.findings.extend(findings.into_iter().map(|finding| finding.in_database(database)));
    Ok(())
}

/// A part of a warning of idgen_status, the kind of finding, how bad it is, and what to do.
type Known = (&'static str, &'static str, Severity, &'static str);

const MARK_IN_FUTURE: Known = (
    "mark of ids lies in the future",
    "mark-in-future",
    Severity::Error,
    "Compare the clock with one that you trust. If it is right now, wait until it has passed the mark, or move idgen.epoch back: see idgenctl help accept-epoch.",
);

/// The warnings of idgen_status.
const WARNINGS: &[Known] = &[
    (
        "for idgen (now",
        "no-room",
        Severity::Error,
        "Raise the setting and restart the server, or the server may shut down or not start.",
    ),
    ("mark has been removed", "mark-removed", Severity::Error, "Restart the server if it is to mint again."),
    (
        "no high-water mark of ids yet",
        "no-mark",
        Severity::Error,
        "When every standby has room for the mark, run SELECT snowflake_check() as a superuser, in a database that belongs \
         to a superuser and has idgen.",
    ),
    (
        "was not accepted",
        "setting-not-accepted",
        Severity::Error,
        "Correct the value in the configuration file, and restart the server.",
    ),
    (
        "preloads Citus",
        "citus-without-list",
        Severity::Error,
        "Give the server shards that no other node has in idgen.allowed_shards, and reload the configuration.",
    ),
    ("clock is before", "clock-before-epoch", Severity::Error, "Check the clock and idgen.epoch."),
    ("range of ids is used up", "range-used-up", Severity::Error, "Check the clock."),
    (
        "epoch of the high-water mark",
        "epoch-of-mark",
        Severity::Error,
        "Give idgen.epoch the value that it had, or that of the primary, and restart the server. If the change is \
         intended, run idgenctl accept-epoch.",
    ),
    MARK_IN_FUTURE,
    (
        "clock jumped forward",
        "clock-jumped",
        Severity::Error,
        "Compare the clock with one that you trust. Set it right, or, if it is right now, run idgenctl accept-clock. Do \
         not restart the server.",
    ),
    (
        "too few synchronous standbys",
        "sync-too-few",
        Severity::Error,
        "Start the standbys, or go on without them by synchronous_standby_names.",
    ),
    (
        "have not acknowledged",
        "mark-not-durable",
        Severity::Error,
        "See why the synchronous standbys do not acknowledge it, or go on without them by synchronous_standby_names.",
    ),
    (
        "clock is behind the ids",
        "clock-behind",
        Severity::Error,
        "Compare the clock with one that you trust, and set it right. Do not restart the server.",
    ),
    (
        "has a name",
        "origin-named",
        Severity::Error,
        "Delete the row of the origin from pg_replication_origin as a superuser, and do not drop the origin.",
    ),
    (
        "value for \"",
        "setting-refused",
        Severity::Error,
        "See the column error of pg_file_settings, and correct the line.",
    ),
    ("range of ids ends in", "range-ends", Severity::Warning, "Plan for a later epoch and new keys."),
    (
        "max_clock_jump",
        "clock-jumps-unchecked",
        Severity::Warning,
        "Set a limit: idgenctl accept-clock accepts a single jump.",
    ),
];

/// What the view idgen_status says, which concerns the server. Whether it says anything.
fn status(look: &mut Look, session: &Session, extension: &Extension) -> Result<bool> {
    let sql = format!(
        "SELECT extract(epoch FROM epoch) * 1000, allowed_shards, warning,
                extract(epoch FROM mark_at - clock_timestamp()), extract(epoch FROM max_ahead::interval)
         FROM {}",
        extension.name("idgen_status")
    );
    let rows = match session.run(&sql) {
        Ok(rows) => rows,
        Err(error @ Error::Sql { .. }) => {
            let finding = no_status(look, extension, &error);
            let is_new = |finding: &Finding| !look.findings.iter().any(|known| known.id == finding.id);
            if let Some(finding) = finding.filter(is_new) {
                look.findings.push(finding);
            }
            return Ok(false);
        }
        Err(error) => return Err(error),
    };
    let row = rows.row(0);
    look.epoch = row.number::<f64>(0).map(|ms| ms as i64);
    if !look.knows_settings {
        look.settings.extend(look::settings(session)?);
        look.knows_settings = look.settings.contains_key("idgen.epoch");
    }
    look.shards = look.shards_of(&row.string(1));
    if let Some(finding) = row.text(2).and_then(|warning| of_warning(look, warning)) {
        look.findings.push(finding);
    }
    // Marks reach this far ahead of a clock that is right: as far as ids may, and as late marks do.
    let usual = row.number::<f64>(4).unwrap_or(1.0) + 4.5;
    if let Some(ahead) = row.number::<f64>(3).filter(|ahead| *ahead > usual) {
        let (_, id, severity, hint) = MARK_IN_FUTURE;
        if !look.findings.iter().any(|finding| finding.id == id) {
            let message = format!("the high-water mark of ids is {ahead:.0} s ahead of the clock");
            look.findings.push(Finding::new(severity, id, &look.name, message, hint));
        }
        if let Some(value) = look.epoch.and_then(|epoch| epoch_that_passes(epoch, ahead))
            && let Some(finding) = look.findings.iter_mut().find(|finding| finding.id == id)
        {
            finding.hint.push_str(&format!(" It takes idgen.epoch = '{value}'."));
        }
    }
    Ok(true)
}

/// The epoch with which a mark so many seconds ahead is a minute behind the clock. None if idgen.max_ahead can be raised
/// as far instead.
fn epoch_that_passes(epoch: i64, ahead: f64) -> Option<String> {
    // The greatest value of idgen.max_ahead.
    if ahead <= 3600.0 {
        return None;
    }
    // Whole seconds are easier to compare, and to type.
    let value = (epoch - (ahead * 1000.0) as i64 - 60_000).div_euclid(1000) * 1000;
    let text = crate::idgen::status::epoch_text(value);
    idgen_ids::Epoch::parse(&text).is_ok().then_some(text)
}

/// Why the view says nothing, unless that is another finding.
fn no_status(look: &Look, extension: &Extension, error: &Error) -> Option<Finding> {
    let why = super::why(&look.name, error);
    match error.code() {
        // It lacks the preload.
        "55000" if !look.preloads && !mints_without_preload(look.version) => None,
        "55000" if why.contains("another version") => Some(Finding::error(
            "library-differs",
            &look.name,
            "new sessions load another version of idgen's library than the server runs, and mint nothing",
            "Restart the server. Then run ALTER EXTENSION idgen UPDATE in each database that has idgen.",
        )),
        "55000" if !look.preloads => Some(Finding::error(
            "setting-without-preload",
            &look.name,
            format!("idgen is not preloaded and mints nothing: {why}"),
            "Add idgen to shared_preload_libraries and restart the server, or remove the settings.",
        )),
        _ if extension.available.is_none() => None,
        _ => Some(Finding::error(
            "library-fails",
            &look.name,
            format!("the state of idgen cannot be read: {why}"),
            "Install the same files of idgen on all servers, restart this one, and run ALTER EXTENSION idgen UPDATE.",
        )),
    }
}

fn of_warning(look: &Look, warning: String) -> Option<Finding> {
    let known = WARNINGS.iter().find(|(part, ..)| warning.contains(part));
    let (_, id, severity, hint) = known.copied().unwrap_or((
        "",
        "warning",
        Severity::Warning,
        "This idgenctl does not know the warning: use that of the version of the server.",
    ));
    // What the files and the origins have shown already says more.
    let is_said =
        |known: &Finding| known.id == id || id == "setting-refused" && known.id == "restart-for-setting";
    (!look.findings.iter().any(is_said)).then(|| Finding::new(severity, id, &look.name, warning, hint))
}

/// Columns whose default mints for a shard that this server may not mint for, and likewise with idgen.shard.
fn columns(look: &Look, session: &Session, extension: &Extension) -> Result<Vec<Finding>> {
    let sql = format!(
        r#"SELECT count(*), array_to_string((array_agg(format('%s.%s.%s for shard %s', "schema", "table", "column", shard)
                           ORDER BY "schema", "table", "column"))[:3], '; '),
                  "schema" LIKE '%\_moved'
           FROM {} WHERE shard IS NOT NULL AND NOT {}(shard) AND "schema" NOT LIKE '_%\_moving' GROUP BY 3 ORDER BY 3"#,
        extension.name("idgen_columns"),
        extension.name("idgen_allows"),
    );
    let rows = match session.run(&sql) {
        // Version 0.1.0 has no such view, and a library that cannot be loaded is another finding.
        Err(Error::Sql { code, .. }) if matches!(code.as_str(), "42P01" | "42883" | "58P01" | "55000") => {
            return Ok(Vec::new());
        }
        rows => rows?,
    };
    let mut findings = Vec::new();
    for row in rows.iter() {
        let some = match row.number::<u64>(0) {
            Some(1..=3) => row.string(1),
            _ => format!("{}; and others, {} in all", row.string(1), row.string(0)),
        };
        findings.push(if row.is_true(2) {
            Finding::note(
                "schema-moved",
                &look.name,
                format!("a shard that has moved away has left its rows behind: {some}"),
                "Drop the schema when the move has ended, and nobody needs the rows any more.",
            )
        } else {
            Finding::error(
                "shard-not-allowed",
                &look.name,
                format!("the server may not mint for the defaults of {some}"),
                if look.is_standby {
                    "Once the standby is promoted, their INSERTs fail: give it the idgen.allowed_shards of its primary."
                } else {
                    "Their INSERTs fail: correct idgen.allowed_shards, or give the schema another shard by \
                     snowflake_assign_shard."
                },
            )
        });
    }
    Ok(findings)
}

/// The portable edition, which mints the same ids by itself.
fn portable(look: &Look, session: &Session) -> Result<Option<Finding>> {
    let there = session.value(
        "SELECT EXISTS (SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace
                        WHERE nspname = 'idgen_portable' AND relkind = 'S' AND relname ~ '^(shard|js)_[0-9]+$')",
        &[],
    )?;
    Ok((there == "t").then(|| {
        Finding::error(
            "portable-edition",
            &look.name,
            "the portable edition of idgen is there too, and mints the same ids as the extension",
            "Let the extension take it over, or drop the schema idgen_portable and the functions that use it.",
        )
    }))
}

/// Schemas of moves, ended or not.
fn remnants(session: &Session, database: &str) -> Result<Vec<Remnant>> {
    let rows = session.run(
        r"SELECT regexp_replace(nspname, '_mov(ing|ed)$', ''), nspname LIKE '%\_moved',
                 coalesce(obj_description(n.oid, 'pg_namespace'), ''),
                 (SELECT oid FROM pg_database WHERE datname = current_database())
          FROM pg_namespace AS n
          WHERE nspname ~ '._mov(ing|ed)$' AND EXISTS (
              SELECT FROM pg_class AS c JOIN pg_attrdef AS a ON a.adrelid = c.oid
                   JOIN pg_depend AS d ON d.classid = 'pg_attrdef'::regclass AND d.objid = a.oid
                                          AND d.refclassid = 'pg_proc'::regclass
                   JOIN pg_depend AS e ON e.classid = 'pg_proc'::regclass AND e.objid = d.refobjid
                                          AND e.refclassid = 'pg_extension'::regclass AND e.deptype = 'e'
                   JOIN pg_extension AS x ON x.oid = e.refobjid AND extname = 'idgen'
              WHERE relnamespace = n.oid)
          ORDER BY nspname",
    )?;
    let remnant = |row: Row| Remnant {
        database: database.into(),
        database_oid: row.string(3),
        schema: row.string(0),
        is_moved: row.is_true(1),
        comment: row.string(2),
    };
    Ok(rows.iter().map(remnant).collect())
}

#[cfg(test)]
mod tests {
    use super::{WARNINGS, epoch_that_passes};

    /// Promise: the epoch in the hint lets the mark be passed at once, and there is none where idgen.max_ahead does it.
    #[test]
    fn the_epoch_of_the_hint_passes_the_mark() {
        let epoch = idgen_ids::Epoch::parse("2024-01-01T00:00:00Z").expect("an epoch").unix_ms();
        assert_eq!(epoch_that_passes(epoch, 3600.0), None);
        assert_eq!(epoch_that_passes(epoch, 7200.0).as_deref(), Some("2023-12-31T21:59:00Z"));
        assert_eq!(epoch_that_passes(epoch, 7200.5).as_deref(), Some("2023-12-31T21:58:59Z"));
        assert_eq!(epoch_that_passes(epoch, 1e12), None, "too far for an epoch");
    }

    /// Promise: each warning that the reference lists for idgen_status is a finding of its own kind. Errors that are
    /// warnings too have a sign there.
    #[test]
    fn each_warning_has_a_kind() {
        let reference = include_str!("../../../../../docs/reference.md");
        let (_, rest) = reference.split_once("\n### Warnings\n").expect("the section");
        let (warnings, rest) = rest.split_once("\n### ").expect("the next one");
        let errors = rest.split_whitespace().collect::<Vec<_>>().join(" ");
        let listed = warnings.lines().filter_map(|line| line.strip_prefix("- **"));
        let rows: Vec<&str> = listed
            .chain(errors.split("\u{26a0} **").skip(1))
            .filter_map(|row| row.split("**").next())
            .collect();
        assert!(rows.len() > 10, "{rows:?}");
        // Only the log has this one.
        for row in rows.iter().filter(|row| !row.contains("for the first time")) {
            assert!(WARNINGS.iter().any(|(part, ..)| row.contains(part)), "{row}");
        }
        for (part, ..) in WARNINGS {
            assert!(rows.iter().any(|row| row.contains(part)), "{part}");
        }
    }
}
