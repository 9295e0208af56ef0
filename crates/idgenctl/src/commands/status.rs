//! `idgenctl status`.

use std::collections::{BTreeMap, HashMap};
use std::io::{IsTerminal, stdout};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use comfy_table::{CellAlignment, Table};
use serde::Serialize;
use serde_json::json;

use crate::cli::{Cli, Status};
use crate::error::{Error, Result};
use crate::extension::{self, Extension};
use crate::fleet::{Fleet, Member, mention_patroni};
use crate::output::{self, plain};
use crate::server::Server;
use crate::session::{Session, interrupted};
use crate::status::epoch_text;

/// How long a connection or a statement may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The time between the two readings without `--watch`.
const BETWEEN: Duration = Duration::from_secs(1);

/// How many shards are shown, the busiest first.
const SHARDS: usize = 10;

/// How many schemas of a shard are shown.
const SCHEMAS: usize = 3;

/// What idgen shows of a server at a moment.
struct Reading {
    at: Instant,
    is_standby: bool,
    version: String,
    epoch: String,
    shards: String,
    mark_ahead_s: Option<f64>,
    warning: Option<String>,
    waiting: u64,
    /// Ids by shard and layout.
    ids: BTreeMap<(i32, String), u64>,
    refused: BTreeMap<String, u64>,
    /// When the counters began.
    since: String,
}

/// What is kept of a server between two readings.
#[derive(Default)]
struct Watched {
    /// A session in a database that has idgen.
    session: Option<(Session, Extension)>,
    last: Option<Reading>,
    /// The schemas of a shard.
    schemas: HashMap<i32, Vec<String>>,
}

/// A line about a server.
#[derive(Serialize)]
struct ServerLine {
    server: String,
    /// Why there is nothing else.
    error: Option<String>,
    role: Option<&'static str>,
    version: Option<String>,
    epoch: Option<String>,
    shards: Option<String>,
    mark_ahead_s: Option<f64>,
    ids: Option<u64>,
    ids_per_second: Option<f64>,
    refused: BTreeMap<String, u64>,
    waiting: Option<u64>,
    warning: Option<String>,
}

/// A line about a shard of a server.
#[derive(Serialize)]
struct ShardLine {
    server: String,
    shard: i32,
    layout: String,
    schemas: Vec<String>,
    ids: u64,
    ids_per_second: Option<f64>,
}

/// Shows who mints what, once or until Ctrl-C.
///
/// # Errors
/// That the fleet makes no sense; without `--watch`, that a server does not answer, and Ctrl-C.
pub fn run(cli: &Cli, arguments: &Status) -> Result<u8> {
    super::end_by_signals(if arguments.watch.is_some() { 0 } else { 130 });
    let pause = match arguments.watch {
        Some(seconds) if !(0.1..=86_400.0).contains(&seconds) => {
            return Err(Error::Usage("--watch takes a number of seconds from 0.1 to 86400".into()));
        }
        Some(seconds) => Some(Duration::from_secs_f64(seconds)),
        None => None,
    };
    let fleet = Fleet::load(&cli.servers)?;
    let watched: HashMap<&str, Mutex<Watched>> =
        fleet.servers.iter().map(|server| (server.name.as_str(), Mutex::default())).collect();
    // Without --watch, two readings give a rate, and the second one is shown.
    let mut is_first = true;
    loop {
        let began = Instant::now();
        let lines = fleet.each(|server| {
            let mut watched = watched[server.name.as_str()].lock().unwrap_or_else(PoisonError::into_inner);
            look(cli, server, &mut watched)
        });
        if interrupted() {
            return if pause.is_some() { Ok(0) } else { Err(Error::Interrupted) };
        }
        let (servers, shards): (Vec<_>, Vec<_>) = lines.into_iter().unzip();
        let mut shards: Vec<ShardLine> = shards.into_iter().flatten().collect();
        shards.sort_by(|one, two| {
            let key = |line: &ShardLine| line.ids_per_second.unwrap_or(0.0);
            key(two).total_cmp(&key(one)).then(two.ids.cmp(&one.ids))
        });
        shards.truncate(SHARDS);
        if pause.is_some() || !is_first {
            show(cli, &servers, &shards, pause.is_some())?;
        }
        if pause.is_none() && !is_first {
            return Ok(if servers.iter().all(|line| line.error.is_none()) { 0 } else { 1 });
        }
        is_first = false;
        let until_next = pause.unwrap_or(BETWEEN);
        while began.elapsed() < until_next && !interrupted() {
            thread::sleep(until_next.saturating_sub(began.elapsed()).min(Duration::from_millis(50)));
        }
    }
}

fn look(cli: &Cli, server: &Server, watched: &mut Watched) -> (ServerLine, Vec<ShardLine>) {
    let seen = read(cli, server, watched);
    let mut line = ServerLine {
        server: server.name.clone(),
        error: None,
        role: None,
        version: None,
        epoch: None,
        shards: None,
        mark_ahead_s: None,
        ids: None,
        ids_per_second: None,
        refused: BTreeMap::new(),
        waiting: None,
        warning: None,
    };
    let reading = match seen {
        Ok(reading) => reading,
        Err(error) => {
            // The server may be another one when it comes back: the session and the counters are of no more use.
            *watched = Watched::default();
            line.error = Some(error.to_string());
            return (line, Vec::new());
        }
    };
    // Counters that began anew say nothing together with the earlier ones.
    let last = watched.last.take().filter(|last| last.since == reading.since);
    let seconds = last.as_ref().map(|last| (reading.at - last.at).as_secs_f64());
    let rate = |now: u64, before: u64| seconds.map(|seconds| now.saturating_sub(before) as f64 / seconds);
    let total = |reading: &Reading| reading.ids.values().sum::<u64>();
    line.role = Some(if reading.is_standby { "standby" } else { "primary" });
    line.version = Some(reading.version.clone());
    line.epoch = Some(reading.epoch.clone());
    line.shards = Some(reading.shards.clone());
    line.mark_ahead_s = reading.mark_ahead_s;
    line.ids = Some(total(&reading));
    line.ids_per_second = rate(total(&reading), last.as_ref().map_or(0, total));
    line.refused = reading.refused.clone();
    line.waiting = Some(reading.waiting);
    line.warning = reading.warning.clone();
    let mut shards: Vec<ShardLine> = reading
        .ids
        .iter()
        .map(|(key, ids)| ShardLine {
            server: server.name.clone(),
            shard: key.0,
            layout: key.1.clone(),
            schemas: Vec::new(),
            ids: *ids,
            ids_per_second: rate(
                *ids,
                last.as_ref().and_then(|last| last.ids.get(key)).copied().unwrap_or(0),
            ),
        })
        .collect();
    shards.sort_by(|one, two| {
        let key = |line: &ShardLine| line.ids_per_second.unwrap_or(0.0);
        key(two).total_cmp(&key(one)).then(two.ids.cmp(&one.ids))
    });
    shards.truncate(SHARDS);
    find_schemas(server, watched, &mut shards);
    watched.last = Some(reading);
    (line, shards)
}

/// Reads the counters, and connects first if need be.
fn read(cli: &Cli, server: &Server, watched: &mut Watched) -> Result<Reading> {
    if watched.session.is_none() {
        watched.session = Some(connect(cli, server)?);
    }
    let Some((session, extension)) = &watched.session else {
        return Err(Error::Unreachable { server: server.name.clone(), why: "no session".into() });
    };
    let rows = session.run(&format!(
        "SELECT pg_is_in_recovery(), extract(epoch FROM epoch) * 1000, allowed_shards,
                extract(epoch FROM mark_at - clock_timestamp()), warning, (
             SELECT count(*) FROM pg_stat_activity
             WHERE (wait_event_type = 'Extension' AND wait_event IN ('IdgenClock', 'IdgenMark', 'IdgenStandby', 'Extension'))
                OR (wait_event_type = 'LWLock' AND wait_event = 'idgen')),
             pg_postmaster_start_time()
         FROM {}",
        extension.name("idgen_status")
    ))?;
    let row = rows.row(0);
    // The layout is new in version 0.2.0.
    let counters = format!(
        "SELECT shard, to_jsonb(s) ->> 'layout', ids, stats_reset FROM {} AS s",
        extension.name("idgen_shard_stats")
    );
    let at = Instant::now();
    let counters = session.run(&counters)?;
    let mut ids = BTreeMap::new();
    let mut since = row.string(6);
    for row in counters.iter() {
        let key = (row.number(0).unwrap_or(-1), row.text(1).unwrap_or_else(|| "idgen".into()));
        ids.insert(key, row.number(2).unwrap_or(0));
        since = row.text(3).unwrap_or(since);
    }
    let mut refused = BTreeMap::new();
    let refusals =
        format!("SELECT reason, refused FROM {} WHERE refused > 0", extension.name("idgen_refusals"));
    match session.run(&refusals) {
        Ok(rows) => refused.extend(rows.iter().map(|row| (row.string(0), row.number(1).unwrap_or(0)))),
        // Version 0.1.0 counts none.
        Err(Error::Sql { code, .. }) if code == "42P01" => {}
        Err(error) => return Err(error),
    }
    let version = session.version();
    Ok(Reading {
        at,
        is_standby: row.is_true(0),
        version: format!("{} on {}.{}", extension.version, version / 10_000, version % 10_000),
        epoch: row.number::<f64>(1).map(|ms| epoch_text(ms as i64)).unwrap_or_default(),
        shards: Some(row.string(2)).filter(|list| !list.is_empty()).unwrap_or_else(|| "all".into()),
        mark_ahead_s: row.number(3),
        warning: row.text(4),
        waiting: row.number(5).unwrap_or(0),
        ids,
        refused,
        since,
    })
}

/// A session in a database that has idgen in a schema that only superusers may change: that of the connection string, or
/// else the first.
fn connect(cli: &Cli, server: &Server) -> Result<(Session, Extension)> {
    let patient = |session: &Session| session.set_patience(Some(PATIENCE));
    let limit = PATIENCE.as_secs().to_string();
    let member = Member::with(server, server.connect_with(&[("connect_timeout", &limit)])?)?;
    patient(&member.session);
    if !cli.json {
        static ONCE: std::sync::Once = std::sync::Once::new();
        if member.has_patroni {
            ONCE.call_once(|| mention_patroni(&cli.servers, [&member]));
        }
    }
    let usable = |extension: &Extension| extension.others.is_empty();
    let found = Extension::of(&member.session)?;
    let mut is_there = found.is_some();
    if let Some(extension) = found.filter(usable) {
        return Ok((member.session, extension));
    }
    for database in extension::databases(&member.session)? {
        let other = server.connect_with(&[("connect_timeout", &limit), ("dbname", &database)]);
        let Ok(session) = other else { continue };
        patient(&session);
        let found = Extension::of(&session)?;
        is_there |= found.is_some();
        if let Some(extension) = found.filter(usable) {
            return Ok((session, extension));
        }
    }
    if !is_there {
        return Err(Error::refused(
            format!("{}: no database that can be looked at has idgen", server.name),
            "Run idgenctl enable.",
        ));
    }
    Err(Error::refused(
        format!("{}: no database has idgen in a schema that only superusers may change", server.name),
        "Run idgenctl check.",
    ))
}

/// Finds the schemas whose defaults mint for the shards. Each shard is looked for once: reading the defaults of thousands
/// of schemas takes a while.
fn find_schemas(server: &Server, watched: &mut Watched, shards: &mut [ShardLine]) {
    let missing: Vec<String> = shards
        .iter()
        .filter(|line| !watched.schemas.contains_key(&line.shard))
        .map(|line| line.shard.to_string())
        .collect();
    if let (false, Some((session, _))) = (missing.is_empty(), &watched.session) {
        for shard in missing.iter().filter_map(|shard| shard.parse().ok()) {
            watched.schemas.entry(shard).or_default();
        }
        for database in extension::databases(session).unwrap_or_default() {
            // What cannot be read is not shown: idgenctl check says why.
            let found = || -> Result<Vec<(i32, String)>> {
                let limit = PATIENCE.as_secs().to_string();
                let session = server.connect_with(&[("connect_timeout", &limit), ("dbname", &database)])?;
                session.set_patience(Some(PATIENCE));
                let Some(extension) = Extension::of(&session)?.filter(|found| found.others.is_empty()) else {
                    return Ok(Vec::new());
                };
                let sql = format!(
                    r#"SELECT DISTINCT shard, "schema" FROM {} WHERE shard = ANY ($1::integer[]) ORDER BY 1, 2"#,
                    extension.name("idgen_columns")
                );
                let rows = session.query(&sql, &[&format!("{{{}}}", missing.join(","))])?;
                Ok(rows.iter().filter_map(|row| Some((row.number(0)?, row.string(1)))).collect())
            };
            for (shard, schema) in found().unwrap_or_default() {
                watched.schemas.entry(shard).or_default().push(format!("{database}.{schema}"));
            }
        }
    }
    for line in shards {
        line.schemas = watched.schemas.get(&line.shard).cloned().unwrap_or_default();
    }
}

/// Aligns columns of numbers.
fn align_right(table: &mut Table, columns: &[usize]) {
    for number in columns {
        if let Some(column) = table.column_mut(*number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

fn show(cli: &Cli, servers: &[ServerLine], shards: &[ShardLine], watches: bool) -> Result {
    if cli.json {
        return output::print(output::json(&json!({ "servers": servers, "shards": shards })));
    }
    let mut table = output::table(&[
        "server", "role", "version", "epoch", "shards", "mark", "ids", "ids/s", "refused", "waiting",
        "warning",
    ]);
    for line in servers {
        let text = |text: &Option<String>| plain(text.as_deref().unwrap_or_default());
        let refused: Vec<_> =
            line.refused.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
        table.add_row([
            plain(&line.server),
            line.role.unwrap_or_default().into(),
            text(&line.version),
            text(&line.epoch),
            text(&line.shards),
            line.mark_ahead_s.map(|ahead| format!("{ahead:+.1} s")).unwrap_or_default(),
            line.ids.map(|ids| ids.to_string()).unwrap_or_default(),
            rate(line.ids_per_second),
            plain(&refused.join(", ")),
            line.waiting.map(|waiting| waiting.to_string()).unwrap_or_default(),
            text(&line.warning),
        ]);
    }
    let mut screen = String::new();
    if watches && stdout().is_terminal() {
        // Clears the screen, and goes to its top.
        screen.push_str("\x1b[H\x1b[2J\x1b[3J");
    }
    align_right(&mut table, &[5, 6, 7, 9]);
    screen.push_str(&table.trim_fmt());
    // As long as it is, it would make the whole table wide.
    for line in servers {
        let error = line.error.iter().map(|error| format!("\nerror: {}", plain(error)));
        screen.extend(error);
    }
    if !shards.is_empty() {
        let mut table = output::table(&["shard", "layout", "server", "ids", "ids/s", "schemas"]);
        for line in shards {
            let more = if line.schemas.len() > SCHEMAS { ", …" } else { "" };
            let some: Vec<_> = line.schemas.iter().take(SCHEMAS).cloned().collect();
            table.add_row([
                line.shard.to_string(),
                plain(&line.layout),
                plain(&line.server),
                line.ids.to_string(),
                rate(line.ids_per_second),
                plain(&format!("{}{more}", some.join(", "))),
            ]);
        }
        align_right(&mut table, &[0, 3, 4]);
        screen.push_str("\n\n");
        screen.push_str(&table.trim_fmt());
    }
    if watches {
        screen.push('\n');
    }
    output::print(screen)
}

fn rate(ids_per_second: Option<f64>) -> String {
    ids_per_second.map(|rate| format!("{rate:.0}")).unwrap_or_default()
}
