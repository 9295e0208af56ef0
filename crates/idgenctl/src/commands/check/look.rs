//! Collects facts about a server, from the catalogs and from the library. Nothing in a database is called.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::thread;
use std::time::{Duration, Instant};

use super::facts::{Database, Facts, Receiver, ShardSetting};
use super::finding::Finding;
use super::table::{SERVER_NOT_SEEN, UNREACHABLE};
use crate::commands::marker::Begun;
use crate::connection::server::Server;
use crate::connection::session::{PATIENCE, Row, Session};
use crate::idgen::columns;
use crate::idgen::library;
use crate::idgen::preload::{Keeper, Preload};
use crate::terminal::error::{Error, Result, refused};
use crate::topology::clock::{self, Base};
use crate::topology::cluster::RECEIVES_AS;
use crate::topology::fleet::Member;

/// A time limit for what is read outside of the databases, for a server whose every answer is slow.
const OF_SERVER: Duration = Duration::from_secs(200);

/// Time limits for all databases of a server, and for each of them, so that a slow one leaves time for the others.
const OF_ALL: Duration = Duration::from_secs(120);
const OF_ONE: Duration = Duration::from_secs(10);

/// The facts about a server, or a finding that it cannot be examined.
pub fn at(server: &Server, base: Base) -> std::result::Result<Facts, Box<Finding>> {
    let look = match facts(server, base, server.connect()) {
        // The database's owner can close it, or make it hang.
        Err(error) if !error.code().is_empty() || matches!(error, Error::NoAnswer { .. }) => {
            facts(server, base, server.connect_to("postgres")).map_err(|_| error)
        }
        look => look,
    };
    look.map_err(|error| {
        let answers = matches!(error, Error::Sql { .. } | Error::Refused { .. });
        let kind = if answers { SERVER_NOT_SEEN } else { UNREACHABLE };
        let unknown = Facts { name: server.name.clone(), ..Facts::default() };
        Box::new(unknown.found(kind, &[&why(&error)]))
    })
}

/// The error's message, without the name of the server.
fn why(error: &Error) -> String {
    match error {
        Error::Unreachable { why, .. } => why.split_whitespace().collect::<Vec<_>>().join(" "),
        Error::Sql { message, code, .. } => format!("{message} ({code})"),
        error => error.to_string(),
    }
}

fn facts(server: &Server, base: Base, session: Result<Session>) -> Result<Facts> {
    let session = limited(session?, PATIENCE)?;
    session.end.set(Some(Instant::now() + OF_SERVER));
    let Member { session, system, timeline, is_standby, has_patroni, identity, .. } =
        Member::with(server, session)?;
    let clock = clock::measure(&session, base)?;
    // The configuration files may be broken.
    let preload = Preload::of(&session).ok();
    let by_files = if has_patroni { Keeper::Patroni } else { Keeper::Files };
    let (state, stateless) = match library::state(&session) {
        Ok(None) => (None, "it is not there, or older than 0.2".into()),
        Err(Error::Sql { message, .. }) => (None, message),
        result => (result?, String::new()),
    };
    let counted = Instant::now();
    // A regular two-phase commit takes less than a minute.
    let rows = session.run(&format!(
        "WITH prepared AS (SELECT extract(epoch FROM clock_timestamp() - prepared) AS age FROM pg_prepared_xacts),
              receiver AS (SELECT coalesce((SELECT conninfo FROM pg_stat_wal_receiver),
                                           current_setting('primary_conninfo')) AS conninfo)
         SELECT extract(epoch FROM clock_timestamp()), current_setting('shared_preload_libraries') ~ '\\mcitus\\M',
                current_setting('fsync') = 'off', current_setting('synchronous_standby_names'),
                (SELECT count(*) FROM prepared WHERE age > 60), (SELECT max(age) FROM prepared WHERE age > 60),
                coalesce(btrim({RECEIVES_AS}, ''''), nullif(current_setting('cluster_name'), ''), 'walreceiver'),
                (SELECT sender_port FROM pg_stat_wal_receiver WHERE status = 'streaming'), current_setting('port')
         FROM receiver"
    ))?;
    let row = rows.row(0);
    let preloaded = state.as_ref().is_some_and(|state| state.preloaded);
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
        preloads: preload.map_or([preloaded; 2], |preload| [preload.has_idgen, preload.will_have_idgen()]),
        has_citus: row.is_true(1),
        fsync_off: row.is_true(2),
        mark_ahead_s: mark_s.zip(row.number::<f64>(0)).map(|(mark, now)| mark - now),
        ids_per_second: None,
        prepared: row.number(4).zip(row.number(5)),
        synchronous: row.string(3),
        receivers: receivers(&session)?,
        known_as: row.string(6),
        sender_port: row.number(7),
        port: row.number(8).unwrap_or_default(),
        shards_set: shards_set(&session)?,
        databases: databases(server, &session)?,
        shards: OnceCell::new(),
    };
    if let Some(before) = facts.state.clone().filter(|_| !facts.is_standby) {
        thread::sleep(Duration::from_secs(1).saturating_sub(counted.elapsed()));
        let after = library::state(&session)?.filter(|after| after.since_ms == before.since_ms);
        let ids = after.and_then(|after| Some(after.ids?.saturating_sub(before.ids?)));
        facts.ids_per_second = ids.map(|ids| ids as f64 / counted.elapsed().as_secs_f64());
    }
    Ok(facts)
}

/// Sets a statement_timeout below the session's patience, because the owner of a database may have slowed it down.
fn limited(session: Session, patience: Duration) -> Result<Session> {
    session.run(&format!("SET statement_timeout = '{} s'", patience.as_secs() - 1))?;
    Ok(session)
}

/// The receivers of WAL. Programs that only archive it do not replay, and those that decode it have a logical slot.
fn receivers(session: &Session) -> Result<Vec<Receiver>> {
    let rows = session.run(
        "SELECT application_name, coalesce(host(client_addr), 'a local socket'),
                replay_lsn IS NOT NULL AND NOT EXISTS (SELECT FROM pg_replication_slots AS s
                                                       WHERE s.active_pid = r.pid AND slot_type = 'logical')
         FROM pg_stat_replication AS r WHERE state IN ('streaming', 'catchup') AND flush_lsn IS NOT NULL",
    )?;
    let receiver =
        |row: Row<'_>| Receiver { name: row.string(0), address: row.string(1), is_standby: row.is_true(2) };
    Ok(rows.iter().map(receiver).collect())
}

/// Where idgen.shard is set. The value in this session may come from its role or its database.
fn shards_set(session: &Session) -> Result<Vec<ShardSetting>> {
    let rows = session.run(
        "WITH places AS (
             SELECT setdatabase, setrole, substr(entry, 13) AS shard
             FROM pg_db_role_setting CROSS JOIN unnest(setconfig) AS entry WHERE starts_with(entry, 'idgen.shard=')
             UNION ALL
             (SELECT 0, 0, setting FROM pg_file_settings
              WHERE lower(name) = 'idgen.shard' AND error IS NULL ORDER BY seqno DESC LIMIT 1)
         )
         SELECT coalesce(datname, ''), coalesce(rolname, ''), shard
         FROM places LEFT JOIN pg_database AS d ON d.oid = setdatabase LEFT JOIN pg_roles AS r ON r.oid = setrole
         ORDER BY 1, 2",
    )?;
    let setting = |row: Row<'_>| {
        Some(ShardSetting { database: row.string(0), role: row.string(1), shard: integer(&row.string(2))? })
    };
    Ok(rows.iter().filter_map(setting).filter(|setting| setting.shard >= 0).collect())
}

/// An integer in the forms that PostgreSQL accepts for a setting (parse_int() of guc.c).
fn integer(text: &str) -> Option<i32> {
    let digits = text.trim().trim_start_matches(['+', '-']);
    let number = match digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        Some(hexadecimal) => i64::from_str_radix(hexadecimal, 16).ok()?,
        None if digits.len() > 1
            && digits.starts_with('0')
            && digits.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            i64::from_str_radix(digits, 8).ok()?
        }
        None => digits.parse::<f64>().ok().filter(|number| number.is_finite())?.round_ties_even() as i64,
    };
    i32::try_from(if text.trim().starts_with('-') { -number } else { number }).ok()
}

/// Looks into each database, one after another: there may be more databases than connections. Those that have appeared
/// in the meantime follow, because a tenant may copy and drop one, but not without end.
fn databases(server: &Server, session: &Session) -> Result<Vec<Database>> {
    let (began, mut databases, mut seen) = (Instant::now(), Vec::new(), HashSet::new());
    loop {
        let is_late = began.elapsed() > OF_ALL;
        // Every server has template0, to which clients cannot connect.
        let all =
            "SELECT datname, oid FROM pg_database WHERE datallowconn OR datname <> 'template0' ORDER BY 1";
        let rows = session.run(all)?;
        let new: Vec<_> = rows.iter().filter(|row| seen.insert(row.string(1))).collect();
        let is_last = new.is_empty() || is_late;
        for row in new {
            databases.extend(database(server, session, began, row.string(0), &row.string(1))?);
        }
        if is_last {
            return Ok(databases);
        }
    }
}

/// A database, unless it has been dropped.
fn database(
    server: &Server,
    session: &Session,
    began: Instant,
    name: String,
    oid: &str,
) -> Result<Option<Database>> {
    let look = || match began.elapsed() > OF_ALL {
        true => refused("the databases before it took too long", ""),
        false => inside(server, &name, oid),
    };
    let exists = || Ok(session.query("SELECT FROM pg_database WHERE oid = $1::oid", &[oid])?.len() > 0);
    let seen = match look() {
        // A standby may cancel a query that conflicts with replay, and a tenant may drop what is being read.
        Err(error) if matches!(error.code(), "40001" | "XX000") => look(),
        seen => seen,
    };
    let inside = match seen {
        // It has been dropped, not renamed.
        Err(error) if error.code() == "3D000" && !exists()? => return Ok(None),
        // The owner can make a database hang. If the whole server hangs, so does this statement.
        Err(error @ Error::NoAnswer { .. }) => {
            session.run("")?;
            Database { not_seen: Some(why(&error)), ..Database::default() }
        }
        Err(error) => Database { not_seen: Some(why(&error)), ..Database::default() },
        Ok(inside) => inside,
    };
    Ok(Some(Database { name, ..inside }))
}

fn inside(server: &Server, database: &str, oid: &str) -> Result<Database> {
    let end = Instant::now() + OF_ONE;
    let session = limited(server.connect_to(database)?, OF_ONE)?;
    session.end.set(Some(end));
    if session.value("SELECT oid FROM pg_database WHERE datname = current_database()", &[])? != oid {
        return refused("it was renamed", "");
    }
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
