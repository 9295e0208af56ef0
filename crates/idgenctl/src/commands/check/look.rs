//! What a server shows, and what is wrong with it by itself.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use idgen_ids::Epoch;
use idgen_ids::shard_set::ShardSet;
use libpq::connection::Info;

use super::{Finding, Severity, databases};
use crate::connection::server::Server;
use crate::connection::session::{Row, Session};
use crate::idgen::lists::{self, Of};
use crate::idgen::preload;
use crate::idgen::releases::limit_of_origins;
use crate::terminal::error::Result;
use crate::topology::clock::{self, Ahead, Base};
use crate::topology::cluster::{Lineage, RECEIVES_AS};
use crate::topology::fleet::Member;

/// How long a connection or a statement may take, and a third of how long one in a database may.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a server with many databases may take.
pub const PATIENCE_WITH_ALL: Duration = Duration::from_secs(120);

/// WAL that a standby may lack, or may still have to replay, under a heavy load.
pub const MUCH_WAL: f64 = 256.0 * 1024.0 * 1024.0;

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

/// A schema that a move has renamed, or the copy of one.
#[derive(Debug)]
pub struct Remnant {
    pub database: String,
    pub database_oid: String,
    /// Its name without `_moving` or `_moved`.
    pub schema: String,
    /// Whether it ends in `_moved`.
    pub is_moved: bool,
    pub comment: String,
}

/// What a server shows.
pub struct Look {
    pub name: String,
    pub system: String,
    pub timeline: u32,
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
    /// The name and the state of whoever else gets WAL and may acknowledge commits: logical subscribers and pg_receivewal.
    pub receivers: Vec<(String, String)>,
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
    pub clock: Ahead,
    /// Databases, and those of them that have idgen.
    pub databases: usize,
    pub with_idgen: usize,
    /// What moves have left in its databases.
    pub remnants: Vec<Remnant>,
    /// Whether it preloads idgen once it is restarted.
    pub will_preload: bool,
    /// What is wrong with this server by itself.
    pub findings: Vec<Finding>,
}

impl Look {
    /// What shows to which cluster it belongs.
    pub fn lineage(&self) -> Lineage<'_> {
        Lineage { system: &self.system, timeline: self.timeline, is_standby: self.is_standby }
    }

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

    /// The shards of a list. Beside Citus, an empty one names none.
    pub fn shards_of(&self, list: &str) -> Option<ShardSet> {
        let none = self.loads("citus") && list.trim().is_empty();
        if none { Some(ShardSet::NONE) } else { ShardSet::parse(list).ok() }
    }

    fn loads(&self, library: &str) -> bool {
        loads(self.setting("shared_preload_libraries"), library)
    }
}

fn loads(list: &str, library: &str) -> bool {
    let entries = lists::elements(list, Of::Libraries);
    entries.unwrap_or_default().iter().any(|entry| preload::name(entry) == library)
}

/// Looks at a server.
///
/// # Errors
/// That it cannot be reached, or does not answer.
pub fn at(server: &Server, base: Base) -> Result<Look> {
    let began = Instant::now();
    let Member { session, system, timeline, is_standby, has_patroni, identity, .. } =
        Member::with(server, connect(server, None)?)?;
    // What pg_file_settings says is compared below.
    session.run("SET lc_messages = 'C'")?;
    let clock = clock::measure(&session, base)?;
    let mut look = Look {
        name: server.name.clone(),
        system,
        timeline,
        identity,
        is_standby,
        has_patroni,
        version: session.version(),
        settings: settings(&session)?,
        preloads: false,
        knows_settings: false,
        epoch: None,
        shards: None,
        senders: senders(&session, true)?,
        receivers: senders(&session, false)?.into_iter().map(|sender| (sender.name, sender.state)).collect(),
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
        remnants: Vec::new(),
        will_preload: false,
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
    databases::look_into(&mut look, server, &session, began)?;
    if look.knows_settings {
        // Where the view could not be asked.
        look.epoch = look.epoch.or(Epoch::parse(look.setting("idgen.epoch")).ok().map(Epoch::unix_ms));
        look.shards = look.shards.or(look.shards_of(look.setting("idgen.allowed_shards")));
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
pub fn connect(server: &Server, database: Option<&str>) -> Result<Session> {
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

pub fn settings(session: &Session) -> Result<BTreeMap<String, String>> {
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

/// Standbys, or whoever else flushes what it gets: those that only keep WAL replay nothing, and those that decode it have
/// a logical slot.
fn senders(session: &Session, are_standbys: bool) -> Result<Vec<Sender>> {
    let rows = session.query(
        "SELECT application_name, coalesce(host(client_addr), ''), state,
                pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn()
                                     ELSE pg_current_wal_lsn() END, flush_lsn)
         FROM pg_stat_replication AS r
         WHERE state IN ('streaming', 'catchup') AND flush_lsn IS NOT NULL
               AND $1::boolean = (replay_lsn IS NOT NULL
                                  AND NOT EXISTS (SELECT FROM pg_replication_slots AS s
                                                  WHERE s.active_pid = r.pid AND slot_type = 'logical'))",
        &[if are_standbys { "true" } else { "false" }],
    )?;
    let sender = |row: Row| Sender {
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
                AND f.error = 'setting could not be applied', f.setting
         FROM (SELECT DISTINCT ON (lower(name)) * FROM pg_file_settings WHERE name IS NOT NULL
               ORDER BY lower(name), seqno DESC) AS f LEFT JOIN pg_settings AS s ON lower(s.name) = lower(f.name)
         WHERE f.error IS NOT NULL
               AND (lower(f.name) LIKE 'idgen.%' OR f.name IN ('shared_preload_libraries',
                    'max_replication_slots', 'max_active_replication_origins'))
         UNION ALL
         SELECT NULL, sourcefile, sourceline, error, false, NULL FROM pg_file_settings
         WHERE name IS NULL AND error IS NOT NULL",
    )?;
    for row in rows.iter() {
        let place = format!("{}, line {}", row.string(1), row.string(2));
        // A line that was taken out is in no file, and the error alone names the setting.
        let error = row.string(3);
        let taken_out = error
            .strip_suffix("\" cannot be changed without restarting the server")
            .and_then(|rest| rest.strip_prefix("parameter \""))
            .filter(|_| row.text(1).is_none());
        if row.is_true(4) && row.string(0) == "shared_preload_libraries" {
            look.will_preload = loads(&row.string(5), "idgen");
        }
        look.findings.push(match (row.text(0), taken_out) {
            (Some(name), _) if row.is_true(4) => Finding::warning(
                "restart-for-setting",
                &look.name,
                format!("\"{name}\" in {place} waits for a restart"),
                "Restart the server, a standby before its primary, or undo the change.",
            ),
            (Some(name), _) => Finding::error(
                "setting-refused",
                &look.name,
                format!("\"{name}\" in {place} is not in effect: {}", row.string(3)),
                "Correct the line, and reload the configuration.",
            ),
            (None, Some(name)) => Finding::warning(
                "restart-for-setting",
                &look.name,
                format!("\"{name}\" is no longer in the configuration, which waits for a restart"),
                "Restart the server, a standby before its primary, or undo the change.",
            ),
            (None, None) => Finding::error(
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
    let limit = look.setting(limit_of_origins(look.version)).parse::<i64>().ok();
    look.origins = limit.zip(rows.row(0).number(0));
    if let Some((limit, others)) = look.origins
        && limit <= others
    {
        let name = limit_of_origins(look.version);
        look.findings.push(Finding::error(
            "no-room",
            &look.name,
            format!("\"{name}\" must be at least {} for idgen (now {limit})", others + 1),
            "Raise it and restart the server, or the server may shut down or not start.",
        ));
    }
    Ok(())
}

fn receiver(look: &mut Look, session: &Session) -> Result {
    let rows = session.run(&format!(
        "SELECT status, {RECEIVES_AS}, pg_wal_lsn_diff(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()),
                pg_get_wal_replay_pause_state(), current_setting('cluster_name')
         FROM (SELECT) AS one LEFT JOIN pg_stat_wal_receiver ON true"
    ))?;
    let row = rows.row(0);
    look.streams = row.text(0).as_deref() == Some("streaming");
    let configured = look.setting("primary_conninfo").to_owned();
    // One with neither gets nothing.
    look.connects = !configured.is_empty() || look.setting("restore_command").is_empty();
    let name_configured = || {
        let mut options = Info::from(&configured).ok()?.into_iter();
        options.find(|option| option.keyword == "application_name")?.val.filter(|name| !name.is_empty())
    };
    look.known_as = row
        .text(1)
        .or_else(name_configured)
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
            "replay is paused on the standby",
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
            "Find out what delays it, such as its disk or a long query on it. A failover to it takes as long.",
        ));
    }
    Ok(())
}

fn slots(look: &mut Look, session: &Session) -> Result {
    let rows = session.run(
        "SELECT slot_name FROM pg_replication_slots
         WHERE slot_type = 'physical' AND NOT active AND NOT temporary AND restart_lsn IS NOT NULL ORDER BY slot_name",
    )?;
    for row in rows.iter() {
        look.findings.push(Finding::warning(
            "slot-unused",
            &look.name,
            format!("no standby uses the replication slot \"{}\"", row.string(0)),
            "Start the standby that uses the slot, or drop the slot: WAL is kept for it until the disk is full.",
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
    let shard = look.setting("idgen.shard").parse().ok().and_then(|number: i32| number.try_into().ok());
    if let Some(shard) = shard
        && look.shards.is_some_and(|set| !set.contains(shard))
    {
        look.findings.push(Finding::error(
            "shard-not-allowed",
            &look.name,
            format!(
                "\"idgen.shard\" is {} in the configuration, and the server may not mint for it",
                i32::from(shard)
            ),
            "Correct idgen.allowed_shards, or give the server a shard that it names.",
        ));
    }
}
