//! Collects facts about a server, from the catalogs and from the library. Nothing in a database is called.

use std::collections::HashSet;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use idgen_ids::shard_set::ShardSet;

use super::facts::{Database, Facts, ShardSetting};
use super::finding::Finding;
use super::table::{SERVER_NOT_SEEN, UNREACHABLE};
use crate::commands::marker::{self, Begun};
use crate::connection::server::Server;
use crate::connection::session::{Row, Session};
use crate::idgen::preload::{Keeper, Preload};
use crate::idgen::{columns, library};
use crate::terminal::error::{Error, Result, refused};
use crate::terminal::text::{cut, plain, said};
use crate::topology::clock;
use crate::topology::cluster::Node;

/// Time limits for a server, for all its databases, and for a look at one: at least the first, at most the second.
const OF_SERVER: Duration = Duration::from_secs(200);
const OF_ALL: Duration = Duration::from_secs(120);
const OF_ONE: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(10)];
const ROUND_TRIPS: f64 = 25.0;

/// How much all of them may contain, or else the largest are left out.
const MOST_BYTES: usize = 256 << 20;

/// The facts about a server, or a finding that it cannot be examined.
pub fn at(server: &'static Server) -> std::result::Result<Facts, Box<Finding>> {
    let (sent, look) = mpsc::channel();
    thread::spawn(move || {
        // The database's owner can close it, or make it hang.
        let retry = |error| facts(server, server.connect_with(&[("dbname", "postgres")])).map_err(|_| error);
        let _ = sent.send(facts(server, server.connect_with(&[])).or_else(retry));
    });
    let late = |_| Err(Error::late(&server.name, OF_SERVER.as_secs_f64()));
    look.recv_timeout(OF_SERVER).unwrap_or_else(late).map_err(|error| {
        let answers = matches!(error, Error::Sql { .. } | Error::Refused { .. });
        let kind = if answers { SERVER_NOT_SEEN } else { UNREACHABLE };
        let unknown = Facts { name: server.name.clone(), ..Facts::default() };
        Box::new(unknown.found(kind, &[&why(&error)]))
    })
}

/// The error's message, without the name of the server.
fn why(error: &Error) -> String {
    match error {
        // What libpq adds to the server's message differs between the servers of a cluster.
        Error::Unreachable { why, code, .. } => {
            let message = why.split(" failed: ").last().filter(|_| !code.is_empty());
            said(&plain(message.unwrap_or(why)))
        }
        Error::Sql { message, code, .. } => format!("it says {} ({code})", said(message)),
        error => error.to_string(),
    }
}

fn facts(server: &Server, session: Result<Session>) -> Result<Facts> {
    let session = session?;
    // Less than the session waits: the owner of the database may have slowed it down.
    session.run("SET statement_timeout = '29 s'")?;
    let node = Node::of(&session)?;
    let clock = clock::measure(&session)?;
    // The configuration files may be broken.
    let preload = Preload::of(&session).ok();
    let by_files = if node.has_patroni { Keeper::Patroni } else { Keeper::Files };
    let (state, stateless) = match library::state(&session) {
        Err(error @ (Error::Sql { .. } | Error::Refused { .. })) => (None, why(&error)),
        result => (Some(result?), String::new()),
    };
    let counted = Instant::now();
    // A regular two-phase commit takes less than a minute.
    let rows = session.run(
        "WITH prepared AS (SELECT extract(epoch FROM clock_timestamp() - prepared) AS age FROM pg_prepared_xacts)
         SELECT extract(epoch FROM clock_timestamp()), current_setting('fsync') = 'off', current_setting('synchronous_standby_names'),
                (SELECT count(*) FROM prepared WHERE age > 60), (SELECT max(age) FROM prepared WHERE age > 60)",
    )?;
    let row = rows.row(0);
    let preloaded = state.as_ref().is_some_and(|state| state.preloaded);
    let shards = state.as_ref().and_then(library::State::shards);
    let mark_s = state.as_ref().and_then(|state| state.mark_ms).map(|ms| ms as f64 / 1000.0);
    let mut facts = Facts {
        name: server.name.clone(),
        node,
        version: session.version(),
        keeper: preload.as_ref().map_or(by_files, |preload| preload.keeper),
        clock,
        state,
        stateless,
        preloads: preload.map_or([preloaded; 2], |preload| [preload.has_idgen, preload.will_have_idgen]),
        fsync_off: row.is_true(1),
        mark_ahead_s: mark_s.zip(row.number::<f64>(0)).map(|(mark, now)| mark - now),
        ids_per_second: None,
        prepared: row.number(3).zip(row.number(4)),
        synchronous: cut(&row.string(2)),
        moving: Begun::all(&session)?.into_iter().map(|begun| begun.schema).collect(),
        shards_set: shards_set(&session)?,
        databases: databases(server, &session, clock.most - clock.least)?,
        shards,
    };
    if let Some(before) = facts.state.clone().filter(|_| !facts.node.is_standby) {
        thread::sleep(Duration::from_secs(1).saturating_sub(counted.elapsed()));
        let after = library::state(&session)?;
        let ids = after.ids.zip(before.ids).filter(|_| after.since_ms == before.since_ms);
        let ids = ids.map(|(after, before)| after.saturating_sub(before));
        facts.ids_per_second = ids.map(|ids| ids as f64 / counted.elapsed().as_secs_f64());
    }
    Ok(facts)
}

/// Where idgen.shard is set, not only for this role or database. A role may give its settings the size of a gigabyte.
fn shards_set(session: &Session) -> Result<Vec<ShardSetting>> {
    let rows = session.run(
        "WITH places AS (
             SELECT setdatabase, setrole, substr(entry, 13, 100) AS shard
             FROM pg_db_role_setting CROSS JOIN unnest(
                 CASE WHEN pg_column_size(setconfig) < 10000 THEN setconfig ELSE '{idgen.shard=too long}' END) AS entry
             WHERE starts_with(entry, 'idgen.shard=')
             UNION ALL
             (SELECT 0, 0, setting FROM pg_file_settings
              WHERE lower(name) = 'idgen.shard' AND error IS NULL ORDER BY seqno DESC LIMIT 1)
         )
         SELECT coalesce(datname, ''), coalesce(rolname, ''), shard
         FROM places LEFT JOIN pg_database AS d ON d.oid = setdatabase LEFT JOIN pg_roles AS r ON r.oid = setrole
         ORDER BY 1, 2",
    )?;
    let setting =
        |row: Row<'_>| ShardSetting { database: row.string(0), role: row.string(1), shard: row.string(2) };
    Ok(rows.iter().map(setting).filter(|setting| setting.shard != "-1").collect())
}

/// Looks into each database, one after another. Each gets its share of the time that is left, so that no tenant uses up
/// that of others, and a second look if the first one fails: it may be renamed, and a standby may cancel a query.
fn databases(server: &Server, session: &Session, round_trip: f64) -> Result<Vec<Database>> {
    let least = Duration::from_secs_f64(round_trip * ROUND_TRIPS).clamp(OF_ONE[0], OF_ONE[1]);
    let (end, mut databases) = (Instant::now() + OF_ALL, Vec::new());
    let (mut seen, mut failed, mut sizes) = (HashSet::new(), HashSet::new(), Vec::new());
    loop {
        // Every server has template0, to which clients cannot connect. A database that was dropped in part has no limit.
        let all = "SELECT datname, oid FROM pg_database
                   WHERE (datallowconn OR datname <> 'template0') AND datconnlimit <> -2 ORDER BY 1";
        let rows = session.run(all)?;
        let new: Vec<_> = rows.iter().filter(|row| !seen.contains(&row.string(1))).collect();
        if new.is_empty() {
            return Ok(databases);
        }
        // What has failed may have been under way.
        thread::sleep(Duration::from_secs(u64::from(!failed.is_empty())));
        for (number, row) in new.iter().enumerate() {
            let (name, oid, others) = (row.string(0), row.string(1), new.len() - number);
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let why = format!("what was before took too long, so {others} are left out");
                databases.push(Database { name, not_seen: Some(why), ..Database::default() });
                return Ok(databases);
            }
            let locked = session.locked(&oid)?;
            let look = if !locked.is_empty() {
                refused(format!("it is locked by {}", said(&locked)), "")
            } else {
                let share = left / 2 / u32::try_from(others).unwrap_or(u32::MAX);
                inside(server, &name, &oid, share.clamp(least, OF_ONE[1]))
            };
            let not_seen = look.as_ref().err().map(why);
            if not_seen.is_none() || !failed.insert(oid.clone()) {
                let database = Database { name, not_seen, ..look.unwrap_or_default() };
                sizes.push(format!("{database:?}").len());
                databases.push(database);
                while sizes.iter().sum::<usize>() > MOST_BYTES {
                    let largest = (0..sizes.len()).max_by_key(|n| sizes[*n]).unwrap_or(0);
                    let (name, not_seen) = (databases[largest].name.clone(), Some("it is too large".into()));
                    databases[largest] = Database { name, not_seen, ..Database::default() };
                    sizes[largest] = 0;
                }
                seen.insert(oid);
            }
        }
    }
}

fn inside(server: &Server, database: &str, oid: &str, limit: Duration) -> Result<Database> {
    let end = Instant::now() + limit;
    let seconds = limit.as_secs_f64().to_string();
    let session = server.connect_with(&[("dbname", database), ("connect_timeout", &seconds)])?;
    session.end.set(Some(end));
    session.run(&format!("SET statement_timeout = {}", limit.as_millis() * 9 / 10))?;
    if session.value("SELECT oid FROM pg_database WHERE datname = current_database()", &[])? != oid {
        return refused("it was renamed", "");
    }
    let rows = session.run(
        "SELECT (SELECT extversion FROM pg_extension WHERE extname = 'idgen'),
                to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL",
    )?;
    let extension = rows.row(0).text(0);
    let portable = Some(columns::portable_shards(&session)?).filter(|shards| *shards != ShardSet::NONE);
    let of_citus = "SELECT logicalrelid::oid FROM pg_catalog.pg_dist_partition";
    let of_citus = if rows.row(0).is_true(1) { of_citus } else { "" };
    let of_citus: HashSet<u32> = session.run(of_citus)?.iter().filter_map(|row| row.number(0)).collect();
    let mut columns = columns::minting(&session)?;
    let kept = marker::kept(&session)?;
    // No one mints for the shard in what a move has closed or copied. What a name alone says does not count.
    for column in &mut columns {
        let before = column.schema.strip_suffix("_moved").or(column.schema.strip_suffix("_moving"));
        let moved = before.and_then(|name| kept.get(name)?.split(' ').nth(2)?.parse().ok());
        column.shards.retain(|shard| Some(*shard) != moved);
    }
    // All nodes of Citus have these tables, and the node that runs the statement mints or refuses.
    for column in columns.iter_mut().filter(|column| of_citus.contains(&column.relation)) {
        column.shards.clear();
    }
    Ok(Database { extension, columns, portable, ..Database::default() })
}
