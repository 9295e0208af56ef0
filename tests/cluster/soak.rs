//! A mixed load on every function and view of idgen for a given time: `make soak MINUTES=…`. After each period, while
//! all sessions are idle, the soak checks the memory of the sessions, shared memory, the counters, the ids and the log.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use postgres::Client;
use postgres::error::DbError;
use promises::{Caller, Judge, Kind};

use crate::process::{command, number_variable, output_of_run, preloads};
use crate::server::{Server, Sql, Values, if_preloaded};

/// The number of sessions that live as long as the soak.
const LONG: i32 = 4;
/// The number of the session that comes and goes.
const BRIEF: i32 = LONG;
/// The minimum of rounds through all steps that a session makes in a period, even on a slow machine.
const ROUNDS: u64 = 3;

/// The number of bytes by which a backend may grow after the first periods: in its memory contexts, and in all its
/// private memory. PostgreSQL's catalog caches and the allocator's free memory vary by less, and a leak does not stop.
const CONTEXTS_SLACK: i64 = 32 << 10;
const OWN_SLACK: i64 = 1 << 20;
/// The number of bytes by which free shared memory may shrink, for more locks than before, and dynamic segments may
/// grow.
const SHARED_SLACK: i64 = 256 << 10;
const SEGMENTS_SLACK: i64 = 4 << 20;

/// Shards of all sessions. For some of them the sessions count every id, as the server does.
const LEASED: i32 = 100;
const EXACT: i32 = 110;
const BATCHES: i32 = 120;
/// Shards of canceled statements, and a shard with more demand than ids.
const CANCELLED: i32 = 130;
const WAITED_FOR: i32 = 131;
const FULL: i32 = 132;
/// The first of the shards that belong to single sessions.
const ADVANCED: i32 = 200;
const INSERTED: i32 = 300;
const ASSIGNED: i32 = 400;

/// Queries on five thousand ids from `$1` on that call decoders and similar functions, and return true.
const ANSWERS: [&str; 8] = [
    "SELECT bool_and(shard_of(id) = (id >> 10) & 8191) FROM ids",
    "SELECT count(snowflake_decode(id)) = 5000 AND bool_and((snowflake_decode(id)).sequence = id & 1023) FROM ids",
    "SELECT bool_and(snowflake_from_text(snowflake_text(id)) = id) FROM ids",
    "SELECT bool_and(snowflake_from_shortcode(snowflake_shortcode(id)) = id) FROM ids",
    "SELECT bool_and(snowflake_unscatter(snowflake_scatter(id)) = id) FROM ids",
    "SELECT bool_and(snowflake_make_id(snowflake_time(id), shard_of(id), (id & 1023)::integer) = id
                     AND snowflake_time(id, '2025-01-01T00:00:00Z') = snowflake_time(id)) FROM ids",
    // PostgreSQL inlines the second call but not the first one, whose volatile argument is used twice.
    "SELECT bool_and(snowflake_between((id + random())::bigint, '-infinity', 'infinity')
                     AND snowflake_between(id, snowflake_time(id), snowflake_time(id))
                     AND id BETWEEN snowflake_min_id(snowflake_time(id)) AND snowflake_max_id(snowflake_time(id)))
     FROM ids",
    "SELECT count(snowflake_decode(id >> 12, layout)) = 5000
     FROM (SELECT id, (ARRAY(SELECT name FROM snowflake_layouts))[1 + id % 5] AS layout FROM ids) AS i",
];

/// Queries on views and the catalog, and how often they run in a round. `$1` is the schema of the session.
const VIEWS: [(usize, &str); 14] = [
    (20, "SELECT warning IS NULL FROM idgen_status WHERE $1 <> ''"),
    (5, "SELECT count(*) >= 0 FROM idgen_shard_stats WHERE $1 <> ''"),
    (50, "SELECT count(*) = 19 FROM idgen_refusals WHERE $1 <> ''"),
    (50, "SELECT count(*) > 5 FROM snowflake_layouts WHERE $1 <> ''"),
    (2, "SELECT count(*) > 1 FROM idgen_columns WHERE schema = $1"),
    (2, "SELECT count(*) > 1 FROM (SELECT idgen_columns() AS c) AS called WHERE $1 <> ''"),
    (2, "SELECT count(*) > 1 FROM idgen_dependents WHERE $1 <> ''"),
    (
        50,
        "SELECT bool_and(idgen_has_integer(adbin, (idgen_read_default(adbin)).shard) AND NOT idgen_allows(8001) = (current_setting('idgen.allowed_shards') <> ''))
          FROM pg_attrdef WHERE adrelid = to_regclass($1 || '_assigned.rows')",
    ),
    (50, "SELECT NOT snowflake_accept_epoch('2025-01-01T00:00:00Z') WHERE $1 <> ''"),
    (50, "SELECT snowflake_accept_clock() = '0' WHERE $1 <> ''"),
    (50, "SELECT snowflake_check() > now() WHERE $1 <> ''"),
    (50, "SELECT snowflake_close_shard(8190) > 0 WHERE $1 <> ''"),
    (50, "SELECT snowflake_reopen_shard(8190) IN (true, false) WHERE $1 <> ''"),
    (50, "SELECT snowflake_raise_mark('-infinity') > '2025-01-01' WHERE $1 <> ''"),
];

/// Calls that are refused, with the SQLSTATE and the reason that counts them.
const REFUSED: [(&str, &str, Option<&str>); 21] = [
    ("snowflake_next_id(NULL)", "22004", Some("null_argument")),
    ("snowflake_next_id(8192)", "22023", Some("bad_argument")),
    ("snowflake_next_id(8001)", "55000", Some("shard_not_allowed")),
    ("snowflake_next_id()", "55000", Some("shard_unset")),
    ("snowflake_next_ids(1, NULL)", "22004", Some("null_argument")),
    ("snowflake_next_ids(1, -1)", "22023", Some("bad_argument")),
    ("snowflake_next_ids(1, 2147483647)", "22023", Some("batch_too_large")),
    ("snowflake_next_id_js(256)", "22023", Some("bad_argument")),
    ("snowflake_advance(NULL, 1)", "22004", Some("null_argument")),
    ("snowflake_advance(1, 9223372036854775807)", "2200H", Some("range_used_up")),
    ("snowflake_advance(1, snowflake_max_id(now() + '1 year'))", "22023", Some("bad_argument")),
    ("snowflake_make_id('2000-01-01', 1, 1)", "22008", None),
    ("snowflake_make_id(now(), 8192, 1)", "22023", None),
    ("snowflake_time(1, 'infinity')", "22008", None),
    ("snowflake_min_id('infinity')", "22008", None),
    ("snowflake_decode(1, 'nowhere')", "22023", None),
    ("snowflake_decode(-1, 'js53')", "22023", None),
    ("snowflake_from_shortcode('!')", "22P02", None),
    ("snowflake_from_text('ids')", "22P02", None),
    ("snowflake_assign_shard(NULL, 1)", "22004", None),
    ("snowflake_remove_mark()", "55000", None),
];

/// The refused calls, without those that take a list of shards if the server has none.
fn refused() -> impl Iterator<Item = (&'static str, &'static str, Option<&'static str>)> {
    REFUSED.into_iter().filter(|(.., reason)| preloads() || *reason != Some("shard_not_allowed"))
}

/// Messages that the server logs once, in addition to the errors of the sessions.
const LOGGED: [&str; 4] = [
    "starting PostgreSQL ",
    "listening on Unix socket ",
    "database system was shut down at ",
    "database system is ready to accept connections",
];

#[derive(Default)]
struct Tally {
    rounds: u64,
    ids: Vec<i64>,
    js_ids: Vec<i64>,
    /// The number of ids that were minted but not read, by shard.
    unread: BTreeMap<i32, i64>,
    refused: BTreeMap<&'static str, i64>,
    /// Errors as the server logs them, without numbers.
    errors: BTreeMap<String, i64>,
}

impl Tally {
    fn add(&mut self, other: &mut Tally) {
        self.rounds += std::mem::take(&mut other.rounds);
        self.ids.append(&mut other.ids);
        self.js_ids.append(&mut other.js_ids);
        add(&mut self.unread, &mut other.unread);
        add(&mut self.refused, &mut other.refused);
        add(&mut self.errors, &mut other.errors);
    }
}

fn add<K: Ord>(to: &mut BTreeMap<K, i64>, from: &mut BTreeMap<K, i64>) {
    for (key, count) in std::mem::take(from) {
        *to.entry(key).or_default() += count;
    }
}

fn without_numbers(message: &str) -> String {
    message.replace(|c: char| c.is_ascii_digit(), "")
}

struct Session {
    client: Client,
    canceller: Option<Client>,
    number: i32,
    pid: i32,
    rng: Rng,
    horizon: i64,
    tally: Tally,
}

impl Session {
    fn new(server: &Server, number: i32, rng: Rng) -> Session {
        let mut client = server.connect();
        let pid = client.value("SELECT pg_backend_pid()");
        // A session allocates each buffer of temporary tables when it first needs it.
        let fill = "CREATE TEMP TABLE filler AS SELECT repeat('x', 1000) FROM generate_series(1, 2000); DROP TABLE filler";
        client.run(fill);
        Session {
            client,
            canceller: Some(server.connect()),
            number,
            pid,
            rng,
            horizon: 0,
            tally: Tally::default(),
        }
    }

    fn schema(&self) -> String {
        format!("soak{}", self.number)
    }

    fn round(&mut self) {
        const STEPS: [fn(&mut Session); 17] = [
            Session::mint,
            Session::mint_exactly,
            Session::mint_for_own_shard,
            Session::take_batches,
            Session::mint_for_javascript,
            Session::insert,
            Session::copy,
            Session::read,
            Session::watch,
            Session::be_refused_in_subtransactions,
            Session::be_refused,
            Session::be_cancelled,
            Session::ask_too_much,
            Session::follow,
            Session::advance,
            Session::assign,
            Session::mint_in_temporary_tables,
        ];
        let mut steps = STEPS;
        self.rng.shuffle(&mut steps);
        for step in steps {
            step(self);
        }
        self.tally.rounds += 1;
    }

    fn ids(&mut self, sql: &str) {
        self.tally.ids.extend(self.client.column::<i64>(sql));
    }

    /// Runs a statement, which must fail, notes the error, and returns its SQLSTATE.
    fn fails(&mut self, sql: &str) -> String {
        match self.client.batch_execute(sql) {
            Ok(()) => panic!("not refused: {sql}"),
            Err(error) => self.note(&error),
        }
    }

    fn note(&mut self, error: &postgres::Error) -> String {
        let error = error.as_db_error().unwrap_or_else(|| panic!("{error:?}"));
        let (code, message) = (error.code().code(), error.message());
        let line = format!("{code} {}: {}", error.severity(), without_numbers(message));
        *self.tally.errors.entry(line).or_default() += 1;
        code.to_owned()
    }

    /// Terminates the session. The error may not reach the client.
    fn end(&mut self) {
        assert!(self.client.batch_execute("SELECT pg_terminate_backend(pg_backend_pid())").is_err());
        let line = "57P01 FATAL: terminating connection due to administrator command";
        *self.tally.errors.entry(line.into()).or_default() += 1;
    }

    fn refused(&mut self, reason: &'static str, count: i64) {
        *self.tally.refused.entry(reason).or_default() += count;
    }

    fn mint(&mut self) {
        let shard = LEASED + self.rng.i32(0..3);
        let next = self.client.prepare("SELECT snowflake_next_id($1)").unwrap();
        for _ in 0..20 {
            self.tally.ids.push(self.client.query_one(&next, &[&shard]).unwrap().get(0));
        }
        self.ids(&format!("SELECT snowflake_next_id({shard}) FROM generate_series(1, 5000)"));
        self.client.run(
            "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0",
        );
        self.ids(&format!("SELECT snowflake_next_id({shard}) FROM numbers"));
        self.client.run("RESET ALL");
    }

    fn mint_exactly(&mut self) {
        let shard = EXACT + self.rng.i32(0..3);
        self.client.run("BEGIN; SET LOCAL idgen.max_lease = 1; SAVEPOINT before");
        self.ids(&format!("SELECT snowflake_next_id({shard}) FROM generate_series(1, 2000)"));
        self.client.run("ROLLBACK TO before");
        self.ids(&format!("SELECT snowflake_next_id({shard}) FROM generate_series(1, 100)"));
        self.client.run(if self.rng.bool() { "COMMIT" } else { "ROLLBACK" });
    }

    fn mint_for_own_shard(&mut self) {
        self.client.run(&format!("SET idgen.shard = {LEASED}"));
        self.ids("SELECT snowflake_next_id() FROM generate_series(1, 5000)");
        let last: i64 = self.client.value("SELECT snowflake_last_id()");
        assert_eq!(Some(&last), self.tally.ids.last());
        self.client.run("DISCARD ALL");
        self.client.run("SELECT count(snowflake_last_id()) FROM generate_series(1, 5000)");
    }

    /// Reads some batches to the end and others not, by statements and by cursors.
    fn take_batches(&mut self) {
        let shard = BATCHES + self.rng.i32(0..3);
        self.ids(&format!("SELECT * FROM snowflake_next_ids({shard}, 2000)"));
        self.client.run("BEGIN");
        for _ in 0..20 {
            self.ids(&format!("SELECT snowflake_next_ids({shard}, 100) LIMIT 3"));
            self.client.run(&format!("DECLARE batch CURSOR FOR SELECT snowflake_next_ids({shard}, 100)"));
            self.ids("FETCH 3 FROM batch");
            self.client.run("CLOSE batch");
        }
        *self.tally.unread.entry(shard).or_default() += 20 * 2 * 97;
        self.client.run("COMMIT");
        // These batches are empty.
        self.client.run(&format!(
            "SELECT count(ids) FROM (SELECT snowflake_next_ids({shard}, n * 0) AS ids
                                     FROM generate_series(1, 5000) AS n) AS none"
        ));
    }

    fn mint_for_javascript(&mut self) {
        // A shard has 4096 in a second.
        for _ in 0..20 {
            let shard = self.rng.i32(0..256);
            let sql = format!("SELECT snowflake_next_id_js({shard}) FROM generate_series(1, 50)");
            self.tally.js_ids.extend(self.client.column::<i64>(&sql));
        }
    }

    /// Inserts rows by defaults: one by one, many at once, and some that are rolled back.
    fn insert(&mut self) {
        let schema = self.schema();
        let insert = format!("INSERT INTO {schema}.rows (n) VALUES ($1) RETURNING id, js_id");
        let insert = self.client.prepare(&insert).unwrap();
        for n in 0..10 {
            let row = self.client.query_one(&insert, &[&n]).unwrap();
            self.tally.ids.push(row.get(0));
            self.tally.js_ids.push(row.get(1));
        }
        self.client.run("BEGIN");
        self.many(&format!(
            "INSERT INTO {schema}.rows (n) SELECT n FROM generate_series(1, 100) AS n RETURNING id, js_id"
        ));
        self.client.run(if self.rng.bool() { "COMMIT" } else { "ROLLBACK" });
    }

    fn many(&mut self, sql: &str) {
        for (id, js_id) in self.client.rows(sql) {
            self.tally.ids.push(id);
            self.tally.js_ids.push(js_id);
        }
    }

    fn copy(&mut self) {
        let schema = self.schema();
        self.client.run(&format!("TRUNCATE {schema}.rows"));
        let mut rows = self.client.copy_in(&format!("COPY {schema}.rows (n) FROM STDIN")).unwrap();
        for n in 0..100 {
            writeln!(rows, "{n}").unwrap();
        }
        assert_eq!(rows.finish().unwrap(), 100);
        self.many(&format!("SELECT id, js_id FROM {schema}.rows"))
    }

    fn read(&mut self) {
        let from = self.rng.i64(0..1 << 61);
        for answer in ANSWERS {
            let sql = format!(
                "WITH ids AS (SELECT id FROM generate_series($1::bigint, $1 + 4999 * 1048583::bigint, 1048583) AS id)
                 {answer}"
            );
            let right: bool = self.client.query_one(&sql, &[&from]).unwrap().get(0);
            assert!(right, "{answer} from {from}");
        }
    }

    fn watch(&mut self) {
        let schema = self.schema();
        for (times, view) in VIEWS {
            let prepared = self.client.prepare(view).unwrap();
            for _ in 0..times {
                let right: Option<bool> = self.client.query_one(&prepared, &[&schema]).unwrap().get(0);
                assert_eq!(right, Some(true), "{view}");
            }
        }
    }

    fn be_refused_in_subtransactions(&mut self) {
        const TIMES: i32 = 20;
        let sql = "SELECT code, count(*) FROM caught('SELECT ' || $1, $2) AS code GROUP BY code";
        let caught = self.client.prepare(sql).unwrap();
        for (call, code, reason) in refused() {
            let rows = self.client.query(&caught, &[&call, &TIMES]).unwrap();
            let found: Vec<(String, i64)> = rows.iter().map(Values::of).collect();
            assert_eq!(found, [(code.to_owned(), TIMES.into())], "{call}");
            if let Some(reason) = reason {
                self.refused(reason, TIMES.into());
            }
        }
    }

    fn be_refused(&mut self) {
        for (call, code, reason) in refused() {
            assert_eq!(self.fails(&format!("SELECT {call}")), code, "{call}");
            if let Some(reason) = reason {
                self.refused(reason, 1);
            }
        }
        self.client.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
        assert_eq!(self.fails("SELECT snowflake_safe_horizon()"), "25001");
        self.refused("one_snapshot", 1);
        self.client.run("ROLLBACK");
    }

    /// Ends statements that mint or wait by a timeout and by a cancel.
    fn be_cancelled(&mut self) {
        let minting = format!(
            "SELECT count(snowflake_next_id({CANCELLED})) FROM numbers AS a, numbers AS b, numbers AS c"
        );
        let waiting = format!("SELECT snowflake_next_ids({WAITED_FOR}, 3000000) LIMIT 1");
        // With less time, a batch behind those of other sessions would be refused at once.
        self.client.run("SET idgen.max_wait = '1h'");
        for statement in [&minting, &waiting] {
            // The timeout is only for this statement, because the next one may take longer on a busy machine.
            self.client.run("BEGIN");
            self.client.run("SET LOCAL statement_timeout = 5");
            assert_eq!(self.fails(statement), "57014");
            self.client.run("ROLLBACK");
            let done = AtomicBool::new(false);
            let mut canceller = self.canceller.take().expect("a connection");
            let pid = self.pid;
            self.canceller = thread::scope(|scope| {
                // A cancel before the statement has no effect.
                let thread = scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        thread::sleep(Duration::from_millis(5));
                        canceller.execute("SELECT pg_cancel_backend($1)", &[&pid]).expect("a cancel");
                    }
                    canceller
                });
                assert_eq!(self.fails(statement), "57014");
                done.store(true, Ordering::Relaxed);
                thread.join().ok()
            });
            // The last cancel may arrive while PostgreSQL handles the previous one, and then ends the next statement.
            while let Err(error) = self.client.batch_execute("SELECT 1") {
                assert_eq!(self.note(&error), "57014");
            }
        }
        self.client.run("RESET idgen.max_wait");
    }

    /// Asks a shard for more ids than it has, without waiting.
    fn ask_too_much(&mut self) {
        self.client.run("SET idgen.max_wait = 0");
        let sql =
            format!("SELECT count(snowflake_next_id({FULL})) FROM numbers AS a, numbers AS b, numbers AS c");
        let error = self.client.batch_execute(&sql).expect_err("a shard has an end");
        // A third renewal of the mark counts as waiting.
        let reason = match error.as_db_error().and_then(DbError::routine) {
            Some("mark_not_durable") => "mark_not_durable",
            // A backend that was suspended after reading the clock finds ids of others in the future.
            Some("clock_behind") => "clock_behind",
            _ => "shard_full",
        };
        self.note(&error);
        self.refused(reason, 1);
        self.client.run("RESET idgen.max_wait");
    }

    /// Follows the horizon, which advances unless there are prepared transactions.
    fn follow(&mut self) {
        self.horizons();
        let name = self.schema();
        self.client.run("BEGIN");
        self.ids(&format!("SELECT snowflake_next_id({LEASED})"));
        self.client.run(&format!("PREPARE TRANSACTION '{name}'"));
        assert_eq!(self.fails("SELECT snowflake_safe_horizon()"), "40001");
        self.refused("prepared_transactions", 1);
        self.client.run(&format!("ROLLBACK PREPARED '{name}'"));
    }

    fn horizons(&mut self) {
        for _ in 0..10 {
            let sql = "SELECT min(h), max(h) FROM (SELECT snowflake_safe_horizon() AS h FROM generate_series(1, 100)) AS h";
            match self.client.query_one(sql, &[]) {
                Ok(row) => {
                    let (first, last) = <(i64, i64)>::of(&row);
                    assert!(first >= self.horizon, "{first} after {}", self.horizon);
                    self.horizon = last;
                }
                Err(error) => {
                    let message = "cannot determine the safe horizon while there are prepared transactions";
                    assert_eq!(error.as_db_error().map(DbError::message), Some(message));
                    self.note(&error);
                    self.refused("prepared_transactions", 1);
                }
            }
        }
    }

    fn advance(&mut self) {
        let shard = ADVANCED + self.number;
        for _ in 0..10 {
            let last = format!("SELECT snowflake_next_id({shard}) + 5 AS last OFFSET 0");
            let sql = format!("SELECT last, snowflake_advance({shard}, last) FROM ({last}) AS id");
            let (last, least): (i64, i64) = self.client.row(&sql);
            self.tally.ids.push(last - 5);
            let next: i64 = self.client.value(&format!("SELECT snowflake_next_id({shard})"));
            assert!(least > last && next >= least, "{last} {least} {next}");
            self.tally.ids.push(next);
        }
    }

    /// Gives the schema another shard, and the first one back.
    fn assign(&mut self) {
        let (schema, shard) = (self.schema(), ASSIGNED + 2 * self.number);
        for shard in [shard + 1, shard] {
            let assign = format!("SELECT count(*) FROM snowflake_assign_shard('{schema}_assigned', {shard})");
            let changed: i64 = self.client.value(&assign);
            assert_eq!(changed, 1);
            self.ids(&format!("INSERT INTO {schema}_assigned.rows DEFAULT VALUES RETURNING id"));
        }
        self.client.run(&format!("TRUNCATE {schema}_assigned.rows"));
    }

    fn mint_in_temporary_tables(&mut self) {
        let shard = LEASED + self.rng.i32(0..3);
        self.client.run(&format!(
            "BEGIN; CREATE TEMP TABLE passing (id bigint PRIMARY KEY DEFAULT snowflake_next_id({shard}), n integer)
             ON COMMIT DROP"
        ));
        self.ids("INSERT INTO passing (n) SELECT generate_series(1, 100) RETURNING id");
        self.client.run("COMMIT");
    }
}

struct Sample {
    seconds: u64,
    rounds: u64,
    ids: u64,
    /// For each long session, the bytes in use in its memory contexts, and all its private memory.
    contexts: Vec<i64>,
    own: Vec<i64>,
    idgen: i64,
    free: i64,
    segments: i64,
}

const HEAD: &str = "second, rounds, ids, KiB of each session: own | in contexts; shared KiB: free, dynamic";

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let kib = |values: &[i64]| {
            values.iter().map(|bytes| format!("{:>6}", bytes >> 10)).collect::<Vec<_>>().join(" ")
        };
        let Sample { seconds, rounds, ids, contexts, own, free, segments, .. } = self;
        let (own, contexts, free, segments) = (kib(own), kib(contexts), free >> 10, segments >> 10);
        write!(f, "{seconds:>6} {rounds:>7} {ids:>10} | {own} | {contexts} | {free:>6} {segments:>6}")
    }
}

/// The private memory of a process, in bytes.
fn own_memory(pid: i32) -> i64 {
    let text = output_of_run(command("cat").arg(format!("/proc/{pid}/smaps_rollup")));
    let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:")).expect("Anonymous");
    line.trim().trim_end_matches(" kB").parse::<i64>().expect("a number") * 1024
}

struct Soak {
    server: Server,
    control: Client,
    sessions: Vec<Session>,
    judge: Judge,
    errors: BTreeMap<String, i64>,
    rounds: u64,
    samples: Vec<Sample>,
}

impl Soak {
    fn new(rng: &mut Rng) -> Soak {
        let own = if_preloaded(&["idgen.allowed_shards = '0-8000'", "idgen.max_ahead = 20ms"]);
        let settings = [
            "max_prepared_transactions = 10",
            "track_functions = all",
            "temp_buffers = 800kB",
            // Until PostgreSQL 17, a session keeps some hundred kilobytes per query that JIT has inlined.
            "jit = off",
            "dynamic_shared_memory_type = mmap",
            "log_line_prefix = '%e '",
            "log_error_verbosity = terse",
            "log_min_error_statement = panic",
            "log_checkpoints = off",
            // This is on by default from PostgreSQL 19 on, and sessions on a slow machine wait long to assign shards.
            "log_lock_waits = off",
        ];
        let server = Server::start(&[own, &settings].concat());
        let mut control = server.connect();
        control.run(
            "CREATE TABLE numbers AS SELECT generate_series(1, 1000) AS n; ANALYZE numbers;
                 CREATE FUNCTION caught(call text, times integer) RETURNS SETOF text LANGUAGE plpgsql AS $$
                 BEGIN
                     FOR i IN 1..times LOOP
                         BEGIN
                             EXECUTE call;
                             RETURN NEXT 'answered';
                         EXCEPTION WHEN OTHERS THEN
                             RETURN NEXT sqlstate;
                         END;
                     END LOOP;
                 END $$",
        );
        for number in 0..=BRIEF {
            let (inserted, assigned) = (INSERTED + number, ASSIGNED + 2 * number);
            // TRUNCATE in each round would cancel autovacuum.
            control.run(&format!(
                "CREATE SCHEMA soak{number}; CREATE SCHEMA soak{number}_assigned;
                     CREATE TABLE soak{number}.rows (
                         id bigint PRIMARY KEY DEFAULT snowflake_next_id({inserted}),
                         js_id bigint DEFAULT snowflake_next_id_js({number}), n integer)
                     WITH (autovacuum_enabled = false);
                     CREATE TABLE soak{number}_assigned.rows (
                         id bigint PRIMARY KEY DEFAULT snowflake_next_id({assigned}))
                     WITH (autovacuum_enabled = false)"
            ));
        }
        let sessions = (0..LONG).map(|number| Session::new(&server, number, rng.fork())).collect();
        Soak {
            server,
            control,
            sessions,
            judge: Judge::default(),
            errors: BTreeMap::new(),
            rounds: 0,
            samples: Vec::new(),
        }
    }

    fn period(&mut self, time: Duration, rng: &mut Rng) {
        let end = Instant::now() + time;
        let server = &self.server;
        let mut tally = Tally::default();
        thread::scope(|scope| {
            for session in &mut self.sessions {
                scope.spawn(move || {
                    while Instant::now() < end || session.tally.rounds < ROUNDS {
                        session.round();
                    }
                });
            }
            while tally.rounds == 0 || Instant::now() < end {
                let mut session = Session::new(server, BRIEF, rng.fork());
                session.round();
                if rng.bool() {
                    session.end();
                }
                tally.add(&mut session.tally);
            }
        });
        for session in &mut self.sessions {
            tally.add(&mut session.tally);
        }
        self.rounds += tally.rounds;
        add(&mut self.errors, &mut tally.errors);
        self.check_counters(&tally);
        let now: i64 = self.control.value("SELECT now_tick FROM idgen_status");
        for (mut ids, kind) in [(tally.ids, Kind::Plain), (tally.js_ids, Kind::Js)] {
            // The ids of several sessions are not in order.
            ids.sort_unstable();
            self.judge.session(Caller::default(), &ids, kind);
        }
        self.judge.assert_kept();
        // Later ids are not before this clock.
        self.judge.forget(now as u64);
    }

    /// Checks that the counters equal what the sessions have counted.
    fn check_counters(&mut self, tally: &Tally) {
        let sql = "SELECT reason, refused FROM idgen_refusals WHERE refused <> 0";
        let refused: BTreeMap<String, i64> = self.control.rows(sql).into_iter().collect();
        let counted = tally.refused.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect();
        assert_eq!(refused, counted);

        let mut taken: BTreeMap<(i32, String), (i64, i64)> = BTreeMap::new();
        let ids = tally.ids.iter().map(|id| ((id >> 10 & 8191) as i32, "idgen", *id));
        for (shard, layout, id) in
            ids.chain(tally.js_ids.iter().map(|id| ((id >> 12 & 255) as i32, "js53", *id)))
        {
            let (count, last) = taken.entry((shard, layout.to_owned())).or_default();
            (*count, *last) = (*count + 1, id.max(*last));
        }
        for (shard, unread) in &tally.unread {
            taken.entry((*shard, "idgen".into())).or_default().0 += unread;
        }
        let sql = "SELECT shard, layout, ids, leases, waits, waited_ms, last_id FROM idgen_shard_stats";
        for row in self.control.rows::<(i32, String, i64, i64, i64, f64, i64)>(sql) {
            let (shard, layout, ids, leases, waits, waited_ms, last_id) = row.clone();
            let exact = layout == "js53" || (EXACT..CANCELLED).contains(&shard);
            let (count, last) = taken.remove(&(shard, layout)).unwrap_or_default();
            let most = if exact { count } else { i64::MAX };
            let right = (count..=most).contains(&ids) && (ids <= leases * 64 || exact || shard == WAITED_FOR);
            let sound = leases <= ids && leases >= 0 && waits >= 0 && (waits > 0) == (waited_ms > 0.0);
            assert!(right && sound && last_id >= last, "{row:?}: {count} ids were counted, to {last}");
        }
        assert!(taken.is_empty(), "{taken:?} are not shown");
    }

    fn sample(&mut self, start: Instant) {
        for session in &mut self.sessions {
            session.client.run("SELECT snowflake_stats_reset() FROM generate_series(1, 20)");
        }
        let used = "SELECT sum(used_bytes)::bigint FROM pg_backend_memory_contexts";
        let contexts = self.sessions.iter_mut().map(|session| session.client.value(used)).collect();
        let control = &mut self.control;
        self.samples.push(Sample {
            seconds: start.elapsed().as_secs(),
            rounds: self.rounds,
            ids: self.judge.counts.ids,
            contexts,
            own: self.sessions.iter().map(|session| own_memory(session.pid)).collect(),
            idgen: control.value(
                "SELECT coalesce(sum(allocated_size), 0)::bigint FROM pg_shmem_allocations WHERE name LIKE 'idgen%'",
            ),
            free: control.value("SELECT allocated_size FROM pg_shmem_allocations WHERE name IS NULL"),
            segments: control.value(
                "SELECT coalesce(sum((pg_stat_file('pg_dynshmem/' || name, true)).size), 0)::bigint
                 FROM pg_ls_dir('pg_dynshmem') AS name",
            ),
        });
        println!("{}", self.samples[self.samples.len() - 1]);
    }

    /// The first and the last third of the samples, whose maxima are compared, because the allocator's memory varies by
    /// megabytes.
    fn thirds(&self) -> [&[Sample]; 2] {
        let third = self.samples.len().div_ceil(3);
        [&self.samples[..third], &self.samples[self.samples.len() - third..]]
    }

    fn check_memory(&self) {
        let thirds = self.thirds();
        let most = |of: &dyn Fn(&Sample) -> i64| thirds.map(|samples| samples.iter().map(of).max());
        let growth = |of: &dyn Fn(&Sample) -> i64| match most(of) {
            [Some(before), Some(after)] => after - before,
            _ => panic!("no samples"),
        };
        // All sessions do the same, so the largest one shows how far their caches are filled.
        let largest = |of: &[i64]| of.iter().copied().max().expect("sessions");
        let contexts = growth(&|sample| largest(&sample.contexts));
        let own = growth(&|sample| largest(&sample.own));
        assert!(
            contexts <= CONTEXTS_SLACK && own <= OWN_SLACK,
            "the sessions have grown: {contexts} bytes in their contexts, {own} in all"
        );
        assert_eq!(growth(&|sample| sample.idgen), 0, "what idgen has in shared memory");
        assert!(growth(&|sample| -sample.free) <= SHARED_SLACK, "shared memory is used up");
        assert!(growth(&|sample| sample.segments) <= SEGMENTS_SLACK, "dynamic shared memory grows");
    }

    /// Checks that every function has been called, and prints the size of a leak per call that would have been found.
    fn check_calls(&mut self) {
        for session in &mut self.sessions {
            session.client.run("SELECT pg_stat_force_next_flush()");
        }
        let sql = "SELECT p.oid::regprocedure::text, coalesce(s.calls, 0)
                   FROM pg_proc AS p JOIN pg_depend ON classid = 'pg_proc'::regclass AND objid = p.oid
                        LEFT JOIN pg_stat_user_functions AS s ON s.funcid = p.oid
                   WHERE deptype = 'e' AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idgen')
                   ORDER BY 2, 1";
        let [before, after] =
            self.thirds().map(|samples| (samples[0].rounds, samples[samples.len() - 1].rounds));
        let part = after.0.saturating_sub(before.1) as f64 / self.rounds as f64;
        println!(
            "calls by a session in the middle third, and the leaks that would have been seen: bytes a call"
        );
        for (function, calls) in self.control.rows::<(String, i64)>(sql) {
            // PostgreSQL does not count calls that fail, and only the planner calls functions with this type.
            if function == "snowflake_remove_mark()" || function.contains("internal") {
                continue;
            }
            assert!(calls > 0, "{function} has not been called");
            let calls = calls as f64 * part / f64::from(LONG + 1);
            let [contexts, own] = [CONTEXTS_SLACK, OWN_SLACK].map(|slack| slack as f64 / calls);
            println!("{calls:>12.0}, in a context {contexts:>9.2}, elsewhere {own:>9.2}: {function}");
        }
    }

    /// Checks that the log has just the errors of the sessions and the server's start.
    fn check_log(&self) {
        let mut expected = self.errors.clone();
        for line in LOGGED {
            expected.insert(line.into(), 1);
        }
        let mut found: BTreeMap<String, i64> = BTreeMap::new();
        for line in self.server.log().lines() {
            let (code, said) = line.split_once(' ').unwrap_or_default();
            let start = LOGGED.iter().find(|start| {
                code == "00000" && said.strip_prefix("LOG:  ").is_some_and(|said| said.starts_with(**start))
            });
            let line = match start {
                Some(start) => (*start).to_owned(),
                None => format!("{code} {}", without_numbers(said).replacen(":  ", ": ", 1)),
            };
            *found.entry(line).or_default() += 1;
        }
        assert_eq!(found, expected, "what the server has logged, and what it should have");
    }
}

/// Promises 1 and 5: under a mixed load on all functions, sessions and the server do not grow, the counters are what
/// clients count, no id occurs twice, and the log has only lines that the load causes.
#[test]
fn a_long_life_wears_nothing_out() {
    let minutes = number_variable("MINUTES");
    let (period, periods) = minutes.map_or((2, 10), |minutes| (60, minutes as usize));
    let mut rng = Rng::new();
    let mut soak = Soak::new(&mut rng);
    let start = Instant::now();
    println!("{HEAD}");
    for _ in 0..periods {
        soak.period(Duration::from_secs(period), &mut rng);
        soak.sample(start);
    }
    soak.check_calls();
    soak.check_memory();
    soak.check_log();
    println!("errors: {:#?}", soak.errors);
}
