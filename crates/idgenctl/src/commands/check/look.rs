//! What a server shows. Nothing in a database is called: all of it comes from the catalogs and from the library.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use libpq::connection::Info;

use super::Finding;
use super::facts::{Database, Facts, Library, Receiver, ShardSetting};
use super::table::{Kind, NO_ANSWER, SERVER_NOT_SEEN, UNREACHABLE};
use crate::connection::server::Server;
use crate::connection::session::{Rows, Session};
use crate::idgen::columns;
use crate::idgen::library::{self, State};
use crate::idgen::lists::{self, Of};
use crate::idgen::preload::{self, Keeper, Preload};
use crate::idgen::releases::limit_of_origins;
use crate::terminal::error::{Error, Result};
use crate::topology::clock::{self, Base};
use crate::topology::cluster::RECEIVES_AS;
use crate::topology::fleet::Member;

/// How long a connection or a statement may take, and a third of how long one in a database may.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a server with many databases may take.
const PATIENCE_WITH_ALL: Duration = Duration::from_secs(120);

/// For how long the ids of a server are counted, at least.
const RATE: Duration = Duration::from_secs(1);

/// What a server shows, or why it shows nothing.
pub fn at(server: &Server, base: Base) -> Result<std::result::Result<Facts, Finding>> {
    let began = Instant::now();
    let error = match facts(server, base) {
        Ok(facts) => return Ok(Ok(facts)),
        Err(Error::Interrupted) => return Err(Error::Interrupted),
        Err(error) => error,
    };
    let kind: &Kind = match error {
        Error::NoAnswer { .. } => NO_ANSWER,
        // libpq has a limit of its own for making a connection.
        Error::Unreachable { .. } if began.elapsed() >= PATIENCE => NO_ANSWER,
        Error::Sql { .. } | Error::Refused { .. } => SERVER_NOT_SEEN,
        _ => UNREACHABLE,
    };
    Ok(Err(Finding::new(kind, &server.name, Keeper::Files, &[&why(&server.name, &error)])))
}

/// What an error says, without the name of the server, which the line about it has anyway.
fn why(server: &str, error: &Error) -> String {
    let text = error.to_string();
    let rest = text.strip_prefix(server).map(|rest| rest.trim_start_matches([':', ' ']).to_owned());
    rest.filter(|rest| !rest.is_empty()).unwrap_or(text)
}

fn facts(server: &Server, base: Base) -> Result<Facts> {
    let began = Instant::now();
    let member = Member::with(server, connect(server, None)?)?;
    let session = &member.session;
    let clock = clock::measure(session, base)?;
    let settings = settings(session)?;
    let setting = |name: &str| settings.get(name).map_or("", String::as_str);
    let running = lists::elements(setting("shared_preload_libraries"), Of::Libraries).unwrap_or_default();
    let loads = |library: &str| running.iter().any(|entry| preload::name(entry) == library);
    let (keeper, will_load, not_read) = match Preload::of(session) {
        Ok(preload) => (preload.keeper, preload.will_have_idgen(), None),
        Err(Error::Refused { what, .. }) => {
            let keeper = if member.has_patroni { Keeper::Patroni } else { Keeper::Files };
            (keeper, loads("idgen"), Some(what))
        }
        Err(error) => return Err(error),
    };
    let (library, mark_ahead_s) = library(session)?;
    let counted = Instant::now();
    let limit = setting(limit_of_origins(session.version())).parse().ok();
    let others =
        session.value("SELECT count(*) FROM pg_replication_origin_status WHERE local_id <> 65534", &[])?;
    let (known_as, streams) = receiver(session, setting("primary_conninfo"), setting("cluster_name"))?;
    let mut facts = Facts {
        name: server.name.clone(),
        system: member.system.clone(),
        timeline: member.timeline,
        identity: member.identity.clone(),
        is_standby: member.is_standby,
        version: session.version(),
        keeper,
        clock,
        library,
        preloads: [loads("idgen"), will_load],
        has_citus: loads("citus"),
        not_read,
        fsync: setting("fsync") == "on",
        mark_ahead_s,
        ids_per_second: None,
        origins: limit.zip(others.parse().ok()),
        prepared: prepared(session)?,
        synchronous: setting("synchronous_standby_names").to_owned(),
        receivers: receivers(session)?,
        known_as,
        streams,
        shard: setting("idgen.shard").parse().unwrap_or(-1),
        shards_of_roles: shards_of_roles(session)?,
        databases: databases(server, session, began)?,
    };
    if let Some(before) = facts.state().filter(|_| !facts.is_standby).cloned() {
        thread::sleep(RATE.saturating_sub(counted.elapsed()));
        facts.ids_per_second = library::state(session)?
            .filter(|state| state.since_ms == before.since_ms)
            .and_then(|state| Some((state.ids? - before.ids?) as f64 / counted.elapsed().as_secs_f64()));
    }
    Ok(facts)
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

/// Rows with names in them. Those that cannot be converted are shown as far as they can be.
fn names(session: &Session, sql: &str) -> Result<Rows> {
    match session.run(sql) {
        Err(error) if matches!(error.code(), "22P05" | "22021") => {
            session.run("SET client_encoding = SQL_ASCII")?;
            let rows = session.run(sql);
            session.run("SET client_encoding = UTF8")?;
            rows
        }
        rows => rows,
    }
}

/// Settings of the server. What a role or a database may set, such as idgen.shard, this session may have from there.
fn settings(session: &Session) -> Result<HashMap<String, String>> {
    let rows = session.run(
        "SELECT name, setting FROM pg_settings
         WHERE name IN ('shared_preload_libraries', 'max_replication_slots', 'max_active_replication_origins', 'fsync',
                        'synchronous_standby_names', 'primary_conninfo', 'cluster_name')
         UNION ALL
         (SELECT lower(name), setting FROM pg_file_settings
          WHERE lower(name) = 'idgen.shard' AND error IS NULL ORDER BY seqno DESC LIMIT 1)",
    )?;
    Ok(rows.iter().map(|row| (row.string(0), row.string(1))).collect())
}

/// What the library says, and by how many seconds the mark is ahead of the clock.
fn library(session: &Session) -> Result<(Library, Option<f64>)> {
    let state: State = match session.run("LOAD 'idgen'").and_then(|_| library::state(session)) {
        Ok(Some(state)) => state,
        Ok(None) => return Ok((Library::Old, None)),
        Err(Error::Sql { message, .. }) => return Ok((Library::Missing(message), None)),
        Err(error) => return Err(error),
    };
    let now = session.value("SELECT extract(epoch FROM clock_timestamp())", &[])?;
    let mark_s = state.mark_ms.map(|ms| ms as f64 / 1000.0);
    let ahead_s = mark_s.zip(now.parse::<f64>().ok()).map(|(mark, now)| mark - now);
    Ok((Library::Shows(state), ahead_s))
}

/// Transactions that have been prepared for longer than a commit in two phases takes.
fn prepared(session: &Session) -> Result<Option<(u64, f64)>> {
    let rows = session.run(
        "SELECT count(*), extract(epoch FROM max(clock_timestamp() - prepared)) FROM pg_prepared_xacts
         WHERE prepared < clock_timestamp() - interval '1 minute'",
    )?;
    Ok(rows.row(0).number(0).zip(rows.row(0).number(1)))
}

/// Who gets WAL. Those that only keep it replay nothing, and those that decode it have a logical slot.
fn receivers(session: &Session) -> Result<Vec<Receiver>> {
    let rows = names(
        session,
        "SELECT application_name, coalesce(host(client_addr), ''), state = 'streaming',
                replay_lsn IS NOT NULL AND NOT EXISTS (SELECT FROM pg_replication_slots AS s
                                                       WHERE s.active_pid = r.pid AND slot_type = 'logical')
         FROM pg_stat_replication AS r WHERE state IN ('streaming', 'catchup') AND flush_lsn IS NOT NULL",
    )?;
    let receivers = rows.iter().map(|row| Receiver {
        name: row.string(0),
        address: row.string(1),
        streams: row.is_true(2),
        is_standby: row.is_true(3),
    });
    Ok(receivers.collect())
}

/// The name under which a server receives WAL when it is a standby, and whether it receives any.
fn receiver(session: &Session, conninfo: &str, cluster: &str) -> Result<(Option<String>, bool)> {
    let rows =
        names(session, &format!("SELECT {RECEIVES_AS}, status = 'streaming' FROM pg_stat_wal_receiver"))?;
    let streams = rows.iter().next().is_some_and(|row| row.is_true(1));
    let configured = || {
        let mut options = Info::from(conninfo).ok()?.into_iter();
        options.find(|option| option.keyword == "application_name")?.val.filter(|name| !name.is_empty())
    };
    let name = rows.iter().next().and_then(|row| row.text(0)).or_else(configured);
    let name = name.or_else(|| Some(cluster.to_owned()).filter(|name| !name.is_empty()));
    Ok((name.or_else(|| (!conninfo.is_empty()).then(|| "walreceiver".into())), streams))
}

fn shards_of_roles(session: &Session) -> Result<Vec<ShardSetting>> {
    let rows = names(
        session,
        "SELECT coalesce(datname, ''), coalesce(rolname, ''), substr(entry, 13)
         FROM pg_db_role_setting LEFT JOIN pg_database AS d ON d.oid = setdatabase
              LEFT JOIN pg_roles AS r ON r.oid = setrole CROSS JOIN unnest(setconfig) AS entry
         WHERE starts_with(entry, 'idgen.shard=') ORDER BY 1, 2",
    )?;
    let setting = |row: crate::connection::session::Row<'_>| {
        Some(ShardSetting { database: row.string(0), role: row.string(1), shard: row.number(2)? })
    };
    Ok(rows.iter().filter_map(setting).filter(|setting| setting.shard >= 0).collect())
}

/// Looks into each database, one after the other: there may be more of them than connections.
fn databases(server: &Server, session: &Session, began: Instant) -> Result<Vec<Database>> {
    // Clients cannot connect to template0, and everybody has it.
    let rows = names(
        session,
        "SELECT datname, datallowconn FROM pg_database WHERE datallowconn OR datname <> 'template0' ORDER BY datname",
    )?;
    let mut databases = Vec::new();
    for row in rows.iter() {
        let name = row.string(0);
        let look = || match began.elapsed() {
            _ if !row.is_true(1) => Err(Error::refused("it accepts no connections", "")),
            elapsed if elapsed > PATIENCE_WITH_ALL => Err(Error::refused("there are too many databases", "")),
            _ => inside(server, &name),
        };
        let seen = match look() {
            // A standby may cancel what is in the way of its replay, and a tenant may drop what is being read.
            Err(error) if matches!(error.code(), "40001" | "XX000") => look(),
            seen => seen,
        };
        let inside = match seen {
            // The same would happen in each database.
            Err(error @ (Error::Interrupted | Error::NoAnswer { .. })) => return Err(error),
            Err(error) => Database { not_seen: Some(why(&server.name, &error)), ..Database::default() },
            Ok(inside) => inside,
        };
        databases.push(Database { name, ..inside });
    }
    Ok(databases)
}

fn inside(server: &Server, database: &str) -> Result<Database> {
    let session = connect(server, Some(database))?;
    let extension = session.run("SELECT extversion FROM pg_extension WHERE extname = 'idgen'")?;
    let has_portable = session.value(
        "SELECT EXISTS (SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace
                        WHERE nspname = 'idgen_portable' AND relkind = 'S' AND relname ~ '^(shard|js)_[0-9]+$')",
        &[],
    )?;
    // The OID of the language C is fixed.
    let rights = names(
        &session,
        r"SELECT DISTINCT rolname, nspname, proname, has_function_privilege(r.oid, p.oid, 'EXECUTE'),
                 has_schema_privilege(r.oid, n.oid, 'USAGE')
          FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = pronamespace
               JOIN pg_depend ON refclassid = 'pg_proc'::regclass AND refobjid = p.oid
                                 AND classid = 'pg_attrdef'::regclass
               JOIN pg_attrdef AS d ON d.oid = objid JOIN pg_class AS c ON c.oid = adrelid
               JOIN pg_roles AS r ON r.oid = relowner
          WHERE prolang = 13 AND prosrc LIKE 'snowflake\_next\_id%\_wrapper' ORDER BY 1, 2, 3",
    )?;
    let mut missing_rights = Vec::new();
    for row in rights.iter() {
        let (role, schema) = (row.string(0), row.string(1));
        if !row.is_true(3) {
            missing_rights.push(format!("{role} lacks EXECUTE on {schema}.{}", row.string(2)));
        }
        if !row.is_true(4) {
            missing_rights.push(format!("{role} lacks USAGE on schema {schema}"));
        }
    }
    missing_rights.dedup();
    Ok(Database {
        extension: extension.iter().next().and_then(|row| row.text(0)),
        columns: columns::minting(&session)?,
        missing_rights,
        has_portable: has_portable == "t",
        ..Database::default()
    })
}
