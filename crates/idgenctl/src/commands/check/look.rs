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
use crate::idgen::preload::{Keeper, Preload};
use crate::idgen::privileges::{KEPT, KEPT_NAMES};
use crate::idgen::{columns, library};
use crate::terminal::error::{Error, Result, refused};
use crate::topology::clock::{self, Base};
use crate::topology::cluster::RECEIVES_AS;
use crate::topology::fleet::Member;

/// A time limit for what is read outside of the databases, for a server whose every answer is slow.
const OF_SERVER: Duration = Duration::from_secs(200);

/// Time limits for all databases of a server, and for each of them, so that a slow one leaves time for the others.
const OF_ALL: Duration = Duration::from_secs(120);
const OF_ONE: Duration = Duration::from_secs(10);

/// How much all of them may send. A hostile server may have any number of databases.
const MOST_BYTES: usize = 256 << 20;

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
    session.run(&format!("SET statement_timeout = {}", (patience.as_millis() * 9 / 10).max(1)))?;
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

/// Looks into each database, one after another: there may be more databases than connections. Each gets its share of
/// the time that is left, so that no tenant uses up that of others, and again what slow ones are given when it is more.
/// Those that have appeared in the meantime follow, because a tenant may copy and drop one.
fn databases(server: &Server, session: &Session) -> Result<Vec<Database>> {
    let (end, mut databases, mut seen, mut bytes) = (Instant::now() + OF_ALL, Vec::new(), HashSet::new(), 0);
    loop {
        // Every server has template0, to which clients cannot connect.
        let all =
            "SELECT datname, oid FROM pg_database WHERE datallowconn OR datname <> 'template0' ORDER BY 1";
        let rows = session.run(all)?;
        let new: Vec<_> = rows.iter().filter(|row| !seen.contains(&row.string(1))).collect();
        for (number, row) in new.iter().enumerate() {
            let (name, left) = (row.string(0), end.saturating_duration_since(Instant::now()));
            let others = new.len() - number;
            if left.is_zero() || bytes > MOST_BYTES {
                let why = format!("what was before took too long, or was too much, so {others} are left out");
                databases.push(Database { name, not_seen: Some(why), ..Database::default() });
                return Ok(databases);
            }
            let limit = OF_ONE.min(left / u32::try_from(others).unwrap_or(u32::MAX));
            let (is_late, database) = database(server, session, limit, name, &row.string(1))?;
            if !is_late || limit == OF_ONE {
                bytes += database.as_ref().map_or(0, |database| database.bytes);
                databases.extend(database);
                seen.insert(row.string(1));
            }
        }
        if new.is_empty() {
            return Ok(databases);
        }
    }
}

/// Whether a database took too long, and what is known about it, unless it has been dropped.
fn database(
    server: &Server,
    session: &Session,
    limit: Duration,
    name: String,
    oid: &str,
) -> Result<(bool, Option<Database>)> {
    let look = || inside(server, &name, oid, limit);
    let exists = || Ok(session.query("SELECT FROM pg_database WHERE oid = $1::oid", &[oid])?.len() > 0);
    let seen = match look() {
        // A standby may cancel a query that conflicts with replay, and a tenant may drop what is being read.
        Err(error) if matches!(error.code(), "40001" | "XX000") => look(),
        seen => seen,
    };
    let Err(error) = seen else { return Ok((false, Some(Database { name, ..seen? }))) };
    // The owner can make a database hang. If the whole server hangs, so does this statement.
    session.run("")?;
    // It has been dropped, not renamed.
    let is_dropped = error.code() == "3D000" && !exists()?;
    let is_late = matches!(error, Error::NoAnswer { .. }) || error.code() == "57014";
    let database = Database { name, not_seen: Some(why(&error)), ..Database::default() };
    Ok((is_late, (!is_dropped).then_some(database)))
}

fn inside(server: &Server, database: &str, oid: &str, limit: Duration) -> Result<Database> {
    let end = Instant::now() + limit;
    let seconds = limit.as_secs_f64().to_string();
    let session = server.connect_with(&[("dbname", database), ("connect_timeout", &seconds)])?;
    session.end.set(Some(end));
    let session = limited(session, limit)?;
    if session.value("SELECT oid FROM pg_database WHERE datname = current_database()", &[])? != oid {
        return refused("it was renamed", "");
    }
    let rows = session.run(
        "SELECT (SELECT extversion FROM pg_extension WHERE extname = 'idgen'),
                EXISTS (SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace
                        WHERE nspname = 'idgen_portable' AND relkind = 'S' AND relname ~ '^(shard|js)_[0-9]+$'),
                to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL",
    )?;
    let (extension, has_portable) = (rows.row(0).text(0), rows.row(0).is_true(1));
    let of_citus = if rows.row(0).is_true(2) {
        let rows = session.run("SELECT logicalrelid::oid FROM pg_catalog.pg_dist_partition")?;
        rows.iter().filter_map(|row| row.number::<u32>(0)).collect()
    } else {
        HashSet::new()
    };
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
    let mut columns = columns::minting(&session)?;
    let kept: HashSet<String> = session.query(KEPT_NAMES, &[KEPT])?.iter().map(|row| row.string(0)).collect();
    // No one inserts into the tables that a move has closed. What a name alone says does not count.
    columns.retain(|column| {
        let before = column.schema.strip_suffix("_moved").or(column.schema.strip_suffix("_moving"));
        !before.is_some_and(|name| kept.contains(name))
    });
    // All nodes of Citus have these tables, and the node that runs the statement mints or refuses.
    for column in columns.iter_mut().filter(|column| of_citus.contains(&column.relation)) {
        column.shard = None;
    }
    let moving = Begun::all(&session)?.into_iter().map(|begun| begun.schema).collect();
    let bytes = session.received.get();
    Ok(Database { extension, columns, missing_rights, has_portable, moving, bytes, ..Database::default() })
}
