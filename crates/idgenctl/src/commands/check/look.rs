//! What a server shows, and what is wrong with it by itself.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use idgen_ids::Epoch;
use idgen_ids::shard_set::ShardSet;
use libpq::connection::Info;

use super::clocks::{self, Ahead, Base};
use super::{Finding, Severity};
use crate::error::{Error, Result};
use crate::extension::{self, Extension};
use crate::fleet::Member;
use crate::server::Server;
use crate::session::Session;

/// How long a connection or a statement may take, and a third of how long one in a database may.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a server with many databases may take.
const PATIENCE_WITH_ALL: Duration = Duration::from_secs(120);

/// WAL that a standby may lack, or may still have to replay, under a heavy load.
const MUCH_WAL: f64 = 256.0 * 1024.0 * 1024.0;

/// The settings that no role and no database may set.
const OF_THE_SERVER: &str =
    "{idgen.epoch,idgen.allowed_shards,idgen.max_ahead,idgen.reserve_ahead,idgen.max_clock_jump}";

/// Who gets WAL from a server.
#[derive(Debug)]
pub struct Sender {
    pub name: String,
    pub address: String,
    pub state: String,
    /// How many bytes of WAL the standby has not got yet.
    pub lacks: f64,
}

/// What a server shows.
pub struct Look {
    pub name: String,
    pub system: String,
    pub identity: String,
    pub is_standby: bool,
    pub has_patroni: bool,
    /// The version of the server, such as 150020.
    pub version: i32,
    /// `name` and `setting` of pg_settings.
    pub settings: BTreeMap<String, String>,
    pub preloads: bool,
    /// Whether a session knows idgen's settings.
    pub knows_settings: bool,
    /// `idgen.epoch` in milliseconds since 1970.
    pub epoch: Option<i64>,
    /// The shards that the server may mint for.
    pub shards: Option<ShardSet>,
    pub senders: Vec<Sender>,
    /// The name under which a standby connects.
    pub known_as: Option<String>,
    /// Whether a standby receives WAL.
    pub streams: bool,
    /// Whether a standby is meant to receive WAL.
    pub connects: bool,
    /// How many replication origins there may be, and how many there are besides the mark.
    pub origins: Option<(i64, i64)>,
    pub has_checksums: bool,
    /// The version of idgen's files.
    pub files: Option<String>,
    pub clock: Option<Ahead>,
    /// Databases, and those of them that have idgen.
    pub databases: usize,
    pub with_idgen: usize,
    /// What is wrong with this server by itself.
    pub findings: Vec<Finding>,
}

impl Look {
    /// The value of a setting; empty if it has none.
    pub fn setting(&self, name: &str) -> &str {
        self.settings.get(name).map_or("", String::as_str)
    }

    fn is_on(&self, name: &str) -> bool {
        self.setting(name) == "on"
    }

    /// Whether pg_rewind can be used.
    pub fn can_be_rewound(&self) -> bool {
        self.has_checksums || self.is_on("wal_log_hints")
    }

    /// The name of the setting that limits replication origins.
    pub fn limit_of_origins(&self) -> &'static str {
        if self.version < 180_000 { "max_replication_slots" } else { "max_active_replication_origins" }
    }

    /// Whether idgen mints on this release without a preload.
    pub fn needs_no_preload(&self) -> bool {
        (170_008..180_000).contains(&self.version) || self.version >= 180_002
    }

    fn loads(&self, library: &str) -> bool {
        let plain = |entry: &str| {
            let name = entry.trim().trim_matches('"');
            let name = name.rsplit('/').next().unwrap_or(name);
            name.strip_suffix(".so").unwrap_or(name).to_owned()
        };
        self.setting("shared_preload_libraries").split(',').any(|entry| plain(entry) == library)
    }
}

/// Looks at a server.
///
/// # Errors
/// That it cannot be reached, or does not answer.
pub fn at(server: &Server, base: Base) -> Result<Look> {
    let began = Instant::now();
    let Member { session, system, is_standby, has_patroni, identity, .. } =
        Member::with(server, connect(server, None)?)?;
    let clock = clocks::measure(&session, base)?;
    let mut look = Look {
        name: server.name.clone(),
        system,
        identity,
        is_standby,
        has_patroni,
        version: session.version(),
        settings: settings(&session)?,
        preloads: false,
        knows_settings: false,
        epoch: None,
        shards: None,
        senders: senders(&session)?,
        known_as: None,
        streams: false,
        connects: false,
        origins: None,
        has_checksums: session.value("SELECT data_page_checksum_version > 0 FROM pg_control_init()", &[])?
            == "t",
        files: None,
        clock,
        databases: 0,
        with_idgen: 0,
        findings: Vec::new(),
    };
    look.preloads = look.loads("idgen");
    look.knows_settings = look.settings.contains_key("idgen.epoch");
    files_of_settings(&mut look, &session)?;
    room(&mut look, &session)?;
    if is_standby {
        receiver(&mut look, &session)?;
    } else {
        slots(&mut look, &session)?;
    }
    let restart = library_is_newer(&session)?;
    look.files = session
        .run("SELECT default_version FROM pg_available_extensions WHERE name = 'idgen'")?
        .iter()
        .next()
        .and_then(|row| row.text(0));
    all_databases(&mut look, server, &session, began)?;
    if look.knows_settings {
        // Where the view could not be asked.
        look.epoch = look.epoch.or(Epoch::parse(look.setting("idgen.epoch")).ok().map(Epoch::unix_ms));
        let list = look.setting("idgen.allowed_shards");
        let none = look.loads("citus") && list.trim().is_empty();
        look.shards = look.shards.or(if none { Some(ShardSet::NONE) } else { ShardSet::parse(list).ok() });
    }
    if restart && look.preloads {
        look.findings.push(Finding::warning(
            "restart-for-files",
            &look.name,
            "the file of idgen's library has changed since the server started, which still runs the old one",
            "Restart the server, standbys first. Then run ALTER EXTENSION idgen UPDATE in each database that has idgen.",
        ));
    }
    alone(&mut look);
    per_role(&mut look, &session)?;
    Ok(look)
}

/// A session in a database, or in that of the connection string.
fn connect(server: &Server, database: Option<&str>) -> Result<Session> {
    // A connection string may say that it waits for ever.
    let limit = PATIENCE.as_secs();
    let wanted = server.parameter("connect_timeout").and_then(|text| text.trim().parse::<u64>().ok());
    let seconds = wanted.filter(|wanted| (1..limit).contains(wanted)).unwrap_or(limit).to_string();
    let mut others = vec![("connect_timeout", seconds.as_str())];
    others.extend(database.map(|name| ("dbname", name)));
    let session = server.connect_with(&others)?;
    // Reading the defaults of thousands of schemas takes a while.
    let patience = if database.is_some() { 3 * PATIENCE } else { PATIENCE };
    session.set_patience(Some(patience));
    // The server stops before that: nobody would read what it finds.
    session.run(&format!("SET statement_timeout = '{} s'", patience.as_secs() - 1))?;
    Ok(session)
}

fn settings(session: &Session) -> Result<BTreeMap<String, String>> {
    // Those that a role or a database may set are not the server's.
    let rows = session.run(
        "SELECT name, setting FROM pg_settings
         WHERE name ~ '^idgen[.]' AND source NOT IN ('database', 'user', 'database user', 'client', 'session')
            OR name IN (
             'shared_preload_libraries', 'max_replication_slots', 'max_active_replication_origins', 'fsync',
             'wal_log_hints', 'synchronous_standby_names', 'primary_conninfo', 'restore_command',
             'recovery_min_apply_delay')",
    )?;
    Ok(rows.iter().map(|row| (row.string(0), row.string(1))).collect())
}

/// Standbys, and others that replay what they get: those that only keep WAL replay nothing.
fn senders(session: &Session) -> Result<Vec<Sender>> {
    let rows = session.run(
        "SELECT application_name, coalesce(host(client_addr), ''), state,
                pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn()
                                     ELSE pg_current_wal_lsn() END, flush_lsn)
         FROM pg_stat_replication AS r
         WHERE state IN ('streaming', 'catchup') AND replay_lsn IS NOT NULL
               AND NOT EXISTS (SELECT FROM pg_replication_slots AS s
                               WHERE s.active_pid = r.pid AND slot_type = 'logical')",
    )?;
    let sender = |row: crate::session::Row| Sender {
        name: row.string(0),
        address: row.string(1),
        state: row.string(2),
        lacks: row.number(3).unwrap_or(0.0),
    };
    Ok(rows.iter().map(sender).collect())
}

/// Values in the configuration files that are not in effect.
fn files_of_settings(look: &mut Look, session: &Session) -> Result {
    // Of several lines for a setting, the last one counts.
    let rows = session.run(
        "SELECT f.name, f.sourcefile, f.sourceline, f.error, s.context = 'postmaster' AND s.name IS NOT NULL
                AND f.error = 'setting could not be applied'
         FROM (SELECT DISTINCT ON (lower(name)) * FROM pg_file_settings WHERE name IS NOT NULL
               ORDER BY lower(name), seqno DESC) AS f LEFT JOIN pg_settings AS s ON lower(s.name) = lower(f.name)
         WHERE f.error IS NOT NULL
               AND (lower(f.name) LIKE 'idgen.%' OR f.name IN ('shared_preload_libraries',
                    'max_replication_slots', 'max_active_replication_origins'))
         UNION ALL
         SELECT NULL, sourcefile, sourceline, error, false FROM pg_file_settings
         WHERE name IS NULL AND error IS NOT NULL",
    )?;
    for row in rows.iter() {
        let place = format!("{}, line {}", row.string(1), row.string(2));
        look.findings.push(match row.text(0) {
            Some(name) if row.is_true(4) => Finding::warning(
                "restart-for-setting",
                &look.name,
                format!("\"{name}\" in {place} waits for a restart"),
                "Restart the server, a standby before its primary, or take the line back.",
            ),
            Some(name) => Finding::error(
                "setting-refused",
                &look.name,
                format!("\"{name}\" in {place} is not in effect: {}", row.string(3)),
                "Correct the line, and reload the configuration.",
            ),
            None => Finding::error(
                "files-not-read",
                &look.name,
                format!("the configuration cannot be read beyond {place}: {}", row.string(3)),
                "Correct the file, and reload the configuration.",
            ),
        });
    }
    Ok(())
}

/// Whether the server has room for the mark, by itself.
fn room(look: &mut Look, session: &Session) -> Result {
    let rows = session.run("SELECT count(*) FROM pg_replication_origin_status WHERE local_id <> 65534")?;
    let limit = look.setting(look.limit_of_origins()).parse::<i64>().ok();
    look.origins = limit.zip(rows.row(0).number(0));
    if let Some((limit, others)) = look.origins
        && limit <= others
    {
        let name = look.limit_of_origins();
        look.findings.push(Finding::error(
            "no-room",
            &look.name,
            format!("\"{name}\" is {limit} and must be at least {} for the mark of ids", others + 1),
            "Raise it and restart the server, or the server may go down or not start.",
        ));
    }
    Ok(())
}

fn receiver(look: &mut Look, session: &Session) -> Result {
    let rows = session.run(
        "SELECT r.status, r.conninfo, pg_wal_lsn_diff(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()),
                pg_get_wal_replay_pause_state(), current_setting('cluster_name')
         FROM (SELECT) AS one LEFT JOIN pg_stat_wal_receiver AS r ON true",
    )?;
    let row = rows.row(0);
    look.streams = row.text(0).as_deref() == Some("streaming");
    let configured = look.setting("primary_conninfo").to_owned();
    // One with neither gets nothing.
    look.connects = !configured.is_empty() || look.setting("restore_command").is_empty();
    let name = |conninfo: &str, key: &str| {
        let options = Info::from(conninfo).ok()?;
        options.into_iter().find(|option| option.keyword == key)?.val.filter(|name| !name.is_empty())
    };
    look.known_as = row
        .text(1)
        .and_then(|actual| name(&actual, "application_name").or(name(&actual, "fallback_application_name")))
        .or_else(|| name(&configured, "application_name"))
        .or_else(|| Some(row.string(4)).filter(|name| !name.is_empty()))
        .or_else(|| look.connects.then(|| "walreceiver".into()));
    if look.connects && !look.streams {
        look.findings.push(Finding::error(
            "standby-not-streaming",
            &look.name,
            "the standby receives no WAL",
            "See its log, and whether its primary_conninfo leads to the primary. A failover to it would lose what it \
             lacks.",
        ));
    }
    if row.string(3) != "not paused" {
        look.findings.push(Finding::warning(
            "replay-paused",
            &look.name,
            "the standby does not replay what it receives: that is paused",
            "Run SELECT pg_wal_replay_resume() there.",
        ));
    } else if row.number::<f64>(2).is_some_and(|bytes| bytes > MUCH_WAL)
        && look.setting("recovery_min_apply_delay") == "0"
    {
        look.findings.push(Finding::warning(
            "standby-behind",
            &look.name,
            format!(
                "the standby has yet to replay {} MB of WAL",
                row.number::<f64>(2).unwrap_or(0.0) as u64 >> 20
            ),
            "See what keeps it: its disk, or a long query on it. A failover to it takes as long.",
        ));
    }
    Ok(())
}

fn slots(look: &mut Look, session: &Session) -> Result {
    let rows = session.run(
        "SELECT slot_name FROM pg_replication_slots
         WHERE slot_type = 'physical' AND NOT active AND NOT temporary ORDER BY slot_name",
    )?;
    for row in rows.iter() {
        look.findings.push(Finding::warning(
            "slot-unused",
            &look.name,
            format!("nobody receives WAL by the replication slot \"{}\"", row.string(0)),
            "Start the standby that it is for, or drop it: WAL is kept for it until the disk is full.",
        ));
    }
    Ok(())
}

/// Whether the file of the library is newer than the server's start. Debian's packages keep the time of the build as that
/// of the last modification, so that of the last change counts.
fn library_is_newer(session: &Session) -> Result<bool> {
    let sql =
        "SELECT coalesce(f.change > pg_postmaster_start_time() AND f.change <= clock_timestamp(), false)
               FROM pg_config AS c CROSS JOIN LATERAL (
                   SELECT (pg_stat_file(c.setting || '/idgen.so', true)).change) AS f
               WHERE c.name = 'PKGLIBDIR'";
    Ok(session.run(sql)?.iter().any(|row| row.is_true(0)))
}

/// Looks into each database, one after the other: there may be more of them than connections.
fn all_databases(look: &mut Look, server: &Server, session: &Session, began: Instant) -> Result {
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
                    "See why, and whether it has idgen and mints for a shard of others.",
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
            let (known, found) = status(look, &session, &extension)?;
            *status_is_known = known;
            findings.extend(found.into_iter().map(|finding| Finding { database: None, ..finding }));
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
            "Have a superuser own both, and revoke CREATE on the schema. Until then idgenctl calls nothing there, and no \
             superuser should.",
        ));
    }
    if !look.is_standby {
        findings.extend(portable(look, &session)?);
        findings.extend(moves(look, &session, &extension)?);
    }
    look.with_idgen += 1;
    look.findings.extend(findings.into_iter().map(|finding| {
        if finding.id.starts_with("warning") || SERVER_WIDE.contains(&finding.id) {
            finding
        } else {
            finding.in_database(database)
        }
    }));
    Ok(())
}

/// Findings of [`status`], which concern the server and not the database.
const SERVER_WIDE: &[&str] = &[
    "no-room",
    "mark-removed",
    "setting-not-accepted",
    "citus-without-list",
    "clock-before-epoch",
    "range-used-up",
    "epoch-of-mark",
    "mark-in-future",
    "clock-leapt",
    "sync-too-few",
    "mark-not-durable",
    "clock-behind",
    "origin-named",
    "setting-refused",
    "range-ends",
    "no-limit-of-leaps",
    "library-fails",
    "library-differs",
    "setting-without-preload",
];

/// What a warning of idgen_status begins with or contains, the kind of finding, how bad it is, and what to do.
const WARNINGS: &[(&str, &str, Severity, &str)] = &[
    (
        "for the mark of ids",
        "no-room",
        Severity::Error,
        "Raise the setting and restart the server, or the server may go down or not start.",
    ),
    (
        "mark of ids has been removed",
        "mark-removed",
        Severity::Error,
        "Restart the server if it is to mint again.",
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
    (
        "mark of ids lies in the future",
        "mark-in-future",
        Severity::Error,
        "Compare the clock with one that you trust. If it is right now, follow the runbook \"The mark is in the \
         future\".",
    ),
    (
        "clock leapt forward",
        "clock-leapt",
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
        "could not be made durable",
        "mark-not-durable",
        Severity::Error,
        "See why no synchronous standby acknowledges, or whether the disk of the WAL is slow.",
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
        "Take the name away, as the page about security says, and do not drop the origin.",
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
        "no-limit-of-leaps",
        Severity::Warning,
        "Set a limit: idgenctl accept-clock accepts a leap without this.",
    ),
];

/// What the view idgen_status says. Whether it says anything, and what is wrong.
fn status(look: &mut Look, session: &Session, extension: &Extension) -> Result<(bool, Vec<Finding>)> {
    let sql = format!(
        "SELECT extract(epoch FROM epoch) * 1000, allowed_shards, warning,
                extract(epoch FROM mark_at - clock_timestamp()), extract(epoch FROM max_ahead::interval)
         FROM {}",
        extension.name("idgen_status")
    );
    let error = match session.run(&sql) {
        Ok(rows) => {
            let row = rows.row(0);
            look.epoch = row.number::<f64>(0).map(|ms| ms as i64);
            if !look.knows_settings {
                look.settings.extend(settings(session)?);
                look.knows_settings = look.settings.contains_key("idgen.epoch");
            }
            let list = row.string(1);
            let none = look.loads("citus") && list.trim().is_empty();
            look.shards = if none { Some(ShardSet::NONE) } else { ShardSet::parse(&list).ok() };
            let mut findings = Vec::new();
            if let Some(warning) = row.text(2) {
                findings.extend(of_warning(look, warning));
            }
            // Marks reach this far ahead of a clock that is right: as far as ids may, and as late marks do.
            let ahead: Option<f64> = row.number(3);
            let usual = row.number::<f64>(4).unwrap_or(1.0) + 4.5;
            if ahead.is_some_and(|ahead| ahead > usual) && !findings.iter().any(|f| f.id == "mark-in-future")
            {
                findings.push(Finding::error(
                    "mark-in-future",
                    &look.name,
                    format!("the mark of ids is {:.0} s ahead of the clock", ahead.unwrap_or(0.0)),
                    "Compare the clock with one that you trust. If it is right now, follow the runbook \"The mark is in \
                     the future\".",
                ));
            }
            return Ok((true, findings));
        }
        Err(error @ Error::Sql { .. }) => error,
        Err(error) => return Err(error),
    };
    let finding = match error.code() {
        // It lacks the preload, which is another finding.
        "55000" if !look.preloads && !look.needs_no_preload() => None,
        "55000" if error.to_string().contains("another version") => Some(Finding::error(
            "library-differs",
            &look.name,
            "new sessions load another version of idgen's library than the server runs, and mint nothing",
            "Restart the server. Then run ALTER EXTENSION idgen UPDATE in each database that has idgen.",
        )),
        "55000" if !look.preloads => Some(Finding::error(
            "setting-without-preload",
            &look.name,
            format!("idgen is not preloaded and mints nothing: {}", super::why(&look.name, &error)),
            "Add idgen to shared_preload_libraries and restart the server, or take the settings away.",
        )),
        _ if extension.available.is_none() => None,
        _ => Some(Finding::error(
            "library-fails",
            &look.name,
            format!("idgen cannot say how it is: {}", super::why(&look.name, &error)),
            "Install the same files of idgen on all servers, restart this one, and run ALTER EXTENSION idgen UPDATE.",
        )),
    };
    Ok((false, finding.into_iter().collect()))
}

fn of_warning(look: &Look, warning: String) -> Option<Finding> {
    let known = WARNINGS.iter().find(|(part, ..)| warning.contains(part));
    let (_, id, severity, hint) = known.copied().unwrap_or((
        "",
        "warning",
        Severity::Warning,
        "See the section \"Warnings\" of the reference of idgen.",
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
           FROM {} WHERE shard IS NOT NULL AND NOT {}(shard) GROUP BY 3 ORDER BY 3"#,
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
                "Drop the schema when nobody needs the rows any more.",
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

/// Schemas of a move that has not ended.
fn moves(look: &Look, session: &Session, extension: &Extension) -> Result<Vec<Finding>> {
    if !extension.others.is_empty() {
        return Ok(Vec::new());
    }
    let rows = session.run(
        r"SELECT nspname FROM pg_namespace AS n
          WHERE nspname LIKE '%\_moving' AND EXISTS (
              SELECT FROM pg_class AS c JOIN pg_attrdef AS a ON a.adrelid = c.oid
                   JOIN pg_depend AS d ON d.classid = 'pg_attrdef'::regclass AND d.objid = a.oid
                                          AND d.refclassid = 'pg_proc'::regclass
                   JOIN pg_depend AS e ON e.classid = 'pg_proc'::regclass AND e.objid = d.refobjid
                                          AND e.refclassid = 'pg_extension'::regclass AND e.deptype = 'e'
                   JOIN pg_extension AS x ON x.oid = e.refobjid AND extname = 'idgen'
              WHERE relnamespace = n.oid)
          ORDER BY nspname",
    )?;
    let finding = |row: crate::session::Row| {
        Finding::warning(
            "move-not-ended",
            &look.name,
            format!("a move of a schema is under way or has broken off: \"{}\"", row.string(0)),
            "If nobody is moving it, run idgenctl move with --finish or --undo.",
        )
    };
    Ok(rows.iter().map(finding).collect())
}

/// Settings of roles and databases.
fn per_role(look: &mut Look, session: &Session) -> Result {
    let rows = session.query(
        "SELECT coalesce(datname, ''), coalesce(rolname, ''), split_part(entry, '=', 1),
                substr(entry, strpos(entry, '=') + 1)
         FROM pg_db_role_setting LEFT JOIN pg_database AS d ON d.oid = setdatabase
              LEFT JOIN pg_roles AS r ON r.oid = setrole CROSS JOIN unnest(setconfig) AS entry
         WHERE split_part(entry, '=', 1) = ANY ($1::text[]) OR entry LIKE 'idgen.shard=%' ORDER BY 1, 2, 3",
        &[OF_THE_SERVER],
    )?;
    for row in rows.iter() {
        let (database, role, name, value) = (row.string(0), row.string(1), row.string(2), row.string(3));
        let whose = match (database.is_empty(), role.is_empty()) {
            (true, _) => format!("role \"{role}\""),
            (false, true) => "the database".into(),
            (false, false) => format!("role \"{role}\" in the database"),
        };
        let finding = if look.is_standby && name != "idgen.shard" {
            continue;
        } else if name != "idgen.shard" {
            let severity = if look.preloads { Severity::Warning } else { Severity::Error };
            Finding::new(
                severity,
                "setting-of-role",
                &look.name,
                format!(
                    "\"{name}\" is set for {whose}, which has no effect or keeps its sessions from minting"
                ),
                "Reset it by ALTER ROLE or ALTER DATABASE, and set it in the configuration of the server.",
            )
        } else if look.loads("citus") {
            Finding::warning(
                "citus-shard",
                &look.name,
                format!("\"idgen.shard\" is set for {whose}, and Citus gives all nodes the same value"),
                "Reset it, and set idgen.shard in the configuration of each node.",
            )
        } else {
            let shard = value.parse::<i32>().ok().and_then(|number| idgen_ids::Shard::try_from(number).ok());
            let allowed = |set: &ShardSet| shard.is_none_or(|shard| set.contains(shard));
            if look.shards.as_ref().is_none_or(allowed) {
                continue;
            }
            Finding::error(
                "shard-not-allowed",
                &look.name,
                format!("\"idgen.shard\" is {value} for {whose}, and the server may not mint for it"),
                "Correct idgen.allowed_shards, or give the role or database a shard that it names.",
            )
        };
        look.findings.push(if database.is_empty() { finding } else { finding.in_database(&database) });
    }
    Ok(())
}

/// What is wrong with a server whatever the others are like.
fn alone(look: &mut Look) {
    if !look.is_on("fsync") {
        look.findings.push(Finding::error(
            "fsync-off",
            &look.name,
            "fsync is off: after a crash of the machine the mark may be gone, and ids may be repeated",
            "Set fsync = on.",
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::WARNINGS;

    /// Promise: each warning that the reference lists for idgen_status is a finding of its own kind.
    #[test]
    fn each_warning_has_a_kind() {
        let reference = include_str!("../../../../../docs/reference.md");
        let (_, rest) = reference.split_once("\n### Warnings\n").expect("the section");
        let (table, _) = rest.split_once("\n### ").expect("the next one");
        let rows: Vec<&str> =
            table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next()).collect();
        assert!(rows.len() > 10, "{rows:?}");
        // Only the log has the last of them.
        for row in rows.iter().filter(|row| **row != "warning" && !row.contains("for the first time")) {
            assert!(WARNINGS.iter().any(|(part, ..)| row.contains(part)), "{row}");
        }
        for (part, ..) in WARNINGS {
            assert!(rows.iter().any(|row| row.contains(part)), "{part}");
        }
    }
}
