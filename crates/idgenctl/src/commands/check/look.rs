//! What a server shows. Nothing in a database is called: all of it comes from the catalogs and from the library.

use std::thread;
use std::time::{Duration, Instant};

use super::Finding;
use super::facts::{Database, Facts, Receiver, ShardSetting};
use super::table::{NO_ANSWER, SERVER_NOT_SEEN, UNREACHABLE};
use crate::commands::words::Begun;
use crate::connection::server::Server;
use crate::connection::session::{PATIENCE, Row, Session};
use crate::idgen::columns;
use crate::idgen::library::{self, State};
use crate::idgen::lists::{self, Of};
use crate::idgen::preload::{self, Keeper, Preload};
use crate::idgen::releases::limit_of_origins;
use crate::terminal::error::{Error, Result};
use crate::topology::clock::{self, Base};
use crate::topology::cluster::RECEIVES_AS;
use crate::topology::fleet::Member;

/// How long libpq tries to connect, unless the connection string says otherwise.
const CONNECTING: Duration = Duration::from_secs(10);

/// How long a server with many databases may take.
const PATIENCE_WITH_ALL: Duration = Duration::from_secs(120);

/// For how long the ids of a server are counted, at least.
const RATE: Duration = Duration::from_secs(1);

/// What a server shows, or why it shows nothing.
pub fn at(server: &Server, base: Base) -> std::result::Result<Facts, Box<Finding>> {
    let began = Instant::now();
    facts(server, base).map_err(|error| {
        let kind = match error {
            Error::NoAnswer { .. } => NO_ANSWER,
            Error::Unreachable { .. } if began.elapsed() >= CONNECTING => NO_ANSWER,
            Error::Sql { .. } | Error::Refused { .. } => SERVER_NOT_SEEN,
            _ => UNREACHABLE,
        };
        let unknown = Facts { name: server.name.clone(), ..Facts::default() };
        Box::new(unknown.found(kind, &[&why(&error)]))
    })
}

/// What an error says besides its kind and the name of the server.
fn why(error: &Error) -> String {
    match error {
        Error::Unreachable { why, .. } => why.split_whitespace().collect::<Vec<_>>().join(" "),
        Error::Sql { message, code, .. } => format!("{message} ({code})"),
        error => error.to_string(),
    }
}

fn facts(server: &Server, base: Base) -> Result<Facts> {
    let began = Instant::now();
    let Member { session, system, timeline, is_standby, has_patroni, identity, .. } =
        Member::with(server, limited(server.connect()?)?)?;
    let clock = clock::measure(&session, base)?;
    // The configuration files may be broken.
    let preload = Preload::of(&session).ok();
    let by_files = if has_patroni { Keeper::Patroni } else { Keeper::Files };
    let (state, stateless) = state(&session)?;
    let counted = Instant::now();
    // This session may have idgen.shard from a role or a database. The two phases of a commit take less than a minute.
    let rows = session.run(&format!(
        "WITH prepared AS (SELECT extract(epoch FROM clock_timestamp() - prepared) AS age FROM pg_prepared_xacts),
              receiver AS (SELECT coalesce((SELECT conninfo FROM pg_stat_wal_receiver),
                                           current_setting('primary_conninfo')) AS conninfo)
         SELECT extract(epoch FROM clock_timestamp()), current_setting('shared_preload_libraries'),
                current_setting('fsync') = 'off', current_setting('synchronous_standby_names'),
                (SELECT setting FROM pg_file_settings
                 WHERE lower(name) = 'idgen.shard' AND error IS NULL ORDER BY seqno DESC LIMIT 1),
                current_setting('{}'), (SELECT count(*) FROM pg_replication_origin_status WHERE local_id <> 65534),
                (SELECT count(*) FROM prepared WHERE age > 60), (SELECT max(age) FROM prepared WHERE age > 60),
                coalesce(btrim({RECEIVES_AS}, ''''), nullif(current_setting('cluster_name'), ''), 'walreceiver'),
                (SELECT status = 'streaming' FROM pg_stat_wal_receiver)
         FROM receiver",
        limit_of_origins(session.version())
    ))?;
    let row = rows.row(0);
    let running = lists::elements(&row.string(1), Of::Libraries).unwrap_or_default();
    let loads = |library: &str| running.iter().any(|entry| preload::name(entry) == library);
    let mark_s = state.as_ref().and_then(|state| state.mark_ms).map(|ms| ms as f64 / 1000.0);
    let mut facts = Facts {
        name: server.name.clone(),
        system,
        timeline,
        identity,
        is_standby,
        version: session.version(),
        keeper: preload.as_ref().map_or(by_files, |preload| preload.keeper),
        clock,
        state,
        stateless,
        preloads: [loads("idgen"), preload.map_or(loads("idgen"), |preload| preload.will_have_idgen())],
        has_citus: loads("citus"),
        fsync_off: row.is_true(2),
        mark_ahead_s: mark_s.zip(row.number::<f64>(0)).map(|(mark, now)| mark - now),
        ids_per_second: None,
        origins: row.number(5).zip(row.number(6)),
        prepared: row.number(7).zip(row.number(8)),
        synchronous: row.string(3),
        receivers: receivers(&session)?,
        known_as: row.string(9),
        streams: row.is_true(10),
        shard: row.number(4).unwrap_or(-1),
        shards_of_roles: shards_of_roles(&session)?,
        databases: databases(server, &session, began)?,
    };
    if let Some(before) = facts.state.clone().filter(|_| !facts.is_standby) {
        thread::sleep(RATE.saturating_sub(counted.elapsed()));
        let after = library::state(&session)?.filter(|after| after.since_ms == before.since_ms);
        let ids = after.and_then(|after| Some(after.ids?.saturating_sub(before.ids?)));
        facts.ids_per_second = ids.map(|ids| ids as f64 / counted.elapsed().as_secs_f64());
    }
    Ok(facts)
}

/// The session, in which a statement ends before anybody loses patience: an owner of a database must not make it slow.
fn limited(session: Session) -> Result<Session> {
    session.run(&format!("SET statement_timeout = '{} s'", PATIENCE.as_secs() - 1))?;
    Ok(session)
}

/// What the library says, or why it says nothing.
fn state(session: &Session) -> Result<(Option<State>, String)> {
    match library::state(session) {
        Ok(None) => Ok((None, "it is not there, or older than 0.2".into())),
        Err(Error::Sql { message, .. }) => Ok((None, message)),
        result => Ok((result?, String::new())),
    }
}

/// Who gets WAL. Those that only keep it replay nothing, and those that decode it have a logical slot.
fn receivers(session: &Session) -> Result<Vec<Receiver>> {
    let rows = session.run(
        "SELECT application_name, coalesce(host(client_addr), 'a local socket'), state = 'streaming',
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

fn shards_of_roles(session: &Session) -> Result<Vec<ShardSetting>> {
    let rows = session.run(
        "SELECT coalesce(datname, ''), coalesce(rolname, ''), substr(entry, 13)
         FROM pg_db_role_setting LEFT JOIN pg_database AS d ON d.oid = setdatabase
              LEFT JOIN pg_roles AS r ON r.oid = setrole CROSS JOIN unnest(setconfig) AS entry
         WHERE starts_with(entry, 'idgen.shard=') ORDER BY 1, 2",
    )?;
    let setting = |row: Row<'_>| {
        Some(ShardSetting { database: row.string(0), role: row.string(1), shard: row.number(2)? })
    };
    Ok(rows.iter().filter_map(setting).filter(|setting| setting.shard >= 0).collect())
}

/// Looks into each database, one after the other: there may be more of them than connections.
fn databases(server: &Server, session: &Session, began: Instant) -> Result<Vec<Database>> {
    // Clients cannot connect to template0, and everybody has it.
    let all = "SELECT datname, datallowconn FROM pg_database WHERE datallowconn OR datname <> 'template0' ORDER BY 1";
    let rows = session.run(all)?;
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
            Err(error) => Database { not_seen: Some(why(&error)), ..Database::default() },
            Ok(inside) => inside,
        };
        databases.push(Database { name, ..inside });
    }
    Ok(databases)
}

fn inside(server: &Server, database: &str) -> Result<Database> {
    let session = limited(server.connect_to(database)?)?;
    let rows = session.run(
        "SELECT (SELECT extversion FROM pg_extension WHERE extname = 'idgen'),
                EXISTS (SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace
                        WHERE nspname = 'idgen_portable' AND relkind = 'S' AND relname ~ '^(shard|js)_[0-9]+$')",
    )?;
    let (extension, has_portable) = (rows.row(0).text(0), rows.row(0).is_true(1));
    // The OID of the language C is fixed.
    let rights = session.run(
        r"WITH uses AS (
              SELECT rolname, r.oid AS role, proname, p.oid AS function, nspname, n.oid AS schema
              FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = pronamespace
                   JOIN pg_depend ON refclassid = 'pg_proc'::regclass AND refobjid = p.oid
                                     AND classid = 'pg_attrdef'::regclass
                   JOIN pg_attrdef AS d ON d.oid = objid JOIN pg_class AS c ON c.oid = adrelid
                   JOIN pg_roles AS r ON r.oid = relowner
              WHERE prolang = 13 AND prosrc LIKE 'snowflake\_next\_id%\_wrapper'
          )
          SELECT concat(rolname, ' lacks EXECUTE on ', nspname, '.', proname) FROM uses
          WHERE NOT has_function_privilege(role, function, 'EXECUTE')
          UNION
          SELECT concat(rolname, ' lacks USAGE on schema ', nspname) FROM uses
          WHERE NOT has_schema_privilege(role, schema, 'USAGE') ORDER BY 1",
    )?;
    let missing_rights = rights.iter().map(|row| row.string(0)).collect();
    let columns = columns::minting(&session)?;
    let moving = Begun::all(&session)?.into_iter().map(|begun| begun.schema).collect();
    Ok(Database { extension, columns, missing_rights, has_portable, moving, ..Database::default() })
}
