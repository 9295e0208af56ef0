//! What idgen costs on a real server, against what else makes keys. `make bench` runs scripts/bench, which
//! starts the server and runs this. Every ratio of the report is one of medians taken in this one run.

mod latency;
mod measure;
mod plots;
mod report;
mod scale;
mod systems;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{self, available_parallelism};
use std::time::{Duration, Instant};

use postgres::{Client, NoTls};

use measure::{Spread, Work, at_once, interleaved};
use systems::{HUNDRED_THOUSAND, MILLION, Rows, SYSTEMS, System, THOUSAND};

/// The sustained rate of a shard: 1024 ids per millisecond.
const CEILING: f64 = 1_024_000.0;

/// How long the run takes.
struct Scale {
    quick: bool,
    /// Rounds that count.
    rounds: usize,
    /// How long concurrent backends are measured.
    seconds: f64,
    /// The rows of a bulk insert.
    bulk: Rows,
    /// Backends at once, for all systems.
    backends: &'static [usize],
}

const FULL: Scale = Scale { quick: false, rounds: 5, seconds: 0.6, bulk: MILLION, backends: &[1, 2, 4, 8] };
const QUICK: Scale =
    Scale { quick: true, rounds: 2, seconds: 0.25, bulk: HUNDRED_THOUSAND, backends: &[2, 8] };

/// The cost of an expression for a row.
struct Call {
    ns: Spread,
    wal: Spread,
}

/// Costs of calls, in nanoseconds over the same scan without them.
struct Calls {
    /// The scan itself, for a row.
    scan: Spread,
    clock: Call,
    round_robin: Call,
    systems: Vec<Call>,
}

/// The readers of ids, in nanoseconds over a scan of the ids.
struct Readers {
    shard_of: Spread,
    time: Spread,
    decode: Spread,
}

/// 1000 ids, in microseconds.
struct Batches {
    /// `SELECT snowflake_next_ids(5, 1000)`.
    batch: Spread,
    /// `FROM snowflake_next_ids(5, 1000)`, which PostgreSQL first stores as a whole.
    table: Spread,
    /// 1000 calls in one statement.
    calls: Spread,
    /// 1000 statements of a call.
    statements: Spread,
}

/// Rows that came in bulk.
struct Inserts {
    seconds: Spread,
    /// Bytes, scaled to as many rows as the others insert.
    wal: Spread,
    index: Spread,
}

/// Backends at once.
struct Load {
    backends: usize,
    ids_per_s: Spread,
    /// CPU time of all backends, in cores.
    cores: Spread,
}

/// All that was measured.
struct Results {
    calls: Calls,
    readers: Readers,
    batches: Batches,
    /// By system, then [`READY_MADE`] and, of copies, [`VOLATILE`].
    inserts: Vec<Inserts>,
    copies: Vec<Inserts>,
    /// Inserts a second by 8 clients, by system.
    pgbench: Vec<Spread>,
    /// idgen with `max_ahead = 0`.
    sustained: Vec<Load>,
    /// By system.
    loads: Vec<Vec<Load>>,
    /// As many shards as backends, and the same with `max_ahead = 0`.
    shards: Vec<Load>,
    shards_sustained: Vec<Load>,
    shared_memory: i64,
}

/// Further subjects for bulk inserts: no default at all and, for COPY, a default that has nothing to do with keys.
const READY_MADE: &str = "ready-made keys";
const VOLATILE: &str = "ready-made keys, `random()` beside them";
/// Transactions that a bulk insert is split into at most; what they leave out is scaled.
const MOST_TRANSACTIONS: u64 = 10;
const SUSTAINED: [usize; 3] = [1, 8, 64];
const SHARDS: [usize; 4] = [1, 2, 4, 8];
/// Settings for backends that the clock does not hold, nor the disk.
const UNTHROTTLED: [(&str, &str); 2] = [("idgen.max_ahead", "1h"), ("idgen.reserve_ahead", "3s")];

/// The server and the settings of the measurement.
struct Bench {
    scale: Scale,
    server: String,
    control: Client,
    systems: Vec<System>,
}

fn main() {
    // Paths are relative to the top folder, in which cargo does not start a benchmark.
    std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).expect("the top folder");
    let variable =
        |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: `make bench`"));
    let quick = std::env::var("QUICK").is_ok_and(|quick| !quick.is_empty());
    if std::env::args().any(|argument| argument == "scale") {
        let [source, target, programs] =
            ["IDGEN_BENCH_SERVER", "IDGEN_BENCH_TARGET", "IDGEN_PG_BIN"].map(variable);
        return scale::run(quick, source, target, PathBuf::from(programs));
    }
    if std::env::args().any(|argument| argument == "latency") {
        let [server, start_standby] = ["IDGEN_BENCH_SERVER", "IDGEN_BENCH_STANDBY"].map(variable);
        return latency::run(quick, server, &start_standby);
    }
    let scale = if quick { QUICK } else { FULL };
    let out = report::out(quick);
    let (server, programs) = (variable("IDGEN_BENCH_SERVER"), PathBuf::from(variable("IDGEN_PG_BIN")));
    let start = Instant::now();
    let mut bench = Bench::new(scale, server);
    let machine = report::machine(&mut bench.control);
    let results = bench.run(&programs);
    let names: Vec<_> = bench.systems.iter().map(|system| system.name).collect();
    plots::all(&out.join("plots"), &names, &report::number(bench.scale.bulk.1 as f64), &results);
    let took = start.elapsed();
    if !bench.scale.quick {
        let bulk = report::number(bench.scale.bulk.1 as f64);
        let text = std::fs::read_to_string("README.md").expect("README.md");
        let text = report::readme(&text, &machine, &names, &results, &bulk);
        std::fs::write("README.md", text).expect("README.md");
    }
    let report = report::write(&bench, &machine, &names, &results, took);
    let path = out.join("performance.md");
    std::fs::write(&path, report).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    println!("\n== {} after {} s", path.display(), took.as_secs());
}

fn sql(client: &mut Client, text: &str) {
    client.batch_execute(text).unwrap_or_else(|error| panic!("{text}: {error}"));
}

fn per_row(spread: Spread, rows: u64) -> Spread {
    spread.map(|seconds| seconds * 1e9 / rows as f64)
}

impl Bench {
    fn new(scale: Scale, server: String) -> Bench {
        println!("\n== setting up the systems");
        let mut control = Client::connect(&server, NoTls).expect("the server of scripts/bench");
        sql(&mut control, measure::SESSION);
        sql(&mut control, systems::SET_UP);
        sql(&mut control, "VACUUM ANALYZE");
        let newer: bool =
            control.query_one("SELECT to_regproc('uuidv7') IS NOT NULL", &[]).expect("a row").get(0);
        let systems: Vec<_> = SYSTEMS.into_iter().filter(|system| newer || system.name != "uuidv7").collect();
        for (number, system) in systems.iter().enumerate() {
            sql(&mut control, &format!("CREATE TABLE rows_{number} (id {}, n integer)", system.column));
        }
        sql(&mut control, "CREATE TABLE rows_ready (id bigint PRIMARY KEY, n integer)");
        sql(
            &mut control,
            "CREATE TABLE rows_volatile (id bigint PRIMARY KEY, n integer DEFAULT (random() * 1e9)::integer)",
        );
        Bench { scale, server, control, systems }
    }

    /// The sections that let shards run far ahead of the clock come last: the mark is then as far ahead, and
    /// nothing has to renew it.
    fn run(&mut self, programs: &Path) -> Results {
        let calls = self.calls();
        let readers = self.readers();
        let batches = self.batches();
        let inserts = self.inserts();
        let copies = self.copies();
        let pgbench = self.pgbench(programs);
        let sustained = self.sustained();
        let shards_sustained = self.shards("max_ahead = 0", &[("idgen.max_ahead", "0")], 1000);
        let loads = self.loads();
        let shards = self.shards("not held by the clock", &UNTHROTTLED, 2000);
        let shared_memory = self.number("SELECT size FROM pg_shmem_allocations WHERE name = 'idgen'");
        Results {
            calls,
            readers,
            batches,
            inserts,
            copies,
            pgbench,
            sustained,
            loads,
            shards,
            shards_sustained,
            shared_memory,
        }
    }

    fn number(&mut self, query: &str) -> i64 {
        self.control.query_one(query, &[]).unwrap_or_else(|error| panic!("{query}: {error}")).get(0)
    }

    /// Changes settings for all sessions, or takes them back to their defaults.
    fn set(&mut self, settings: &[(&str, &str)]) {
        let before: String = self.control.query_one("SHOW idgen.max_ahead", &[]).expect("SHOW").get(0);
        for setting in ["idgen.max_ahead", "idgen.reserve_ahead"] {
            sql(&mut self.control, &format!("ALTER SYSTEM RESET {setting}"));
        }
        for (setting, value) in settings {
            sql(&mut self.control, &format!("ALTER SYSTEM SET {setting} = '{value}'"));
        }
        sql(&mut self.control, "SELECT pg_reload_conf()");
        let expected = settings.iter().find(|(name, _)| *name == "idgen.max_ahead").map_or("1s", |(_, v)| v);
        for _ in 0..500 {
            let now: String = self.control.query_one("SHOW idgen.max_ahead", &[]).expect("SHOW").get(0);
            if now == expected {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("idgen.max_ahead stays {before}");
    }

    /// A burst of ids runs ahead of the clock; the next one begins when the clock has caught up.
    fn caught_up(&mut self) {
        loop {
            let ahead = self.number("SELECT ahead_ms FROM idgen_status");
            if ahead == 0 {
                return;
            }
            thread::sleep(Duration::from_millis(ahead.unsigned_abs()));
        }
    }

    /// Runs a statement, and returns its seconds and the bytes of WAL that the server wrote in that time.
    fn timed(&mut self, statement: &str) -> [f64; 2] {
        self.caught_up();
        let place = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint";
        let before = self.number(place);
        let start = Instant::now();
        sql(&mut self.control, statement);
        let seconds = start.elapsed().as_secs_f64();
        [seconds, (self.number(place) - before) as f64]
    }

    /// Queries of one backend against each other.
    fn queries(&mut self, title: &str, queries: &[(&str, String)]) -> Vec<[Spread; 2]> {
        let names: Vec<_> = queries.iter().map(|(name, _)| (*name).to_owned()).collect();
        interleaved(title, self.scale.rounds, &names, |subject| self.timed(&queries[subject].1))
    }

    fn calls(&mut self) -> Calls {
        let query =
            |expression: &str, Rows(table, _): Rows| format!("SELECT count({expression}) FROM {table}");
        let mut queries = vec![
            ("scan", query("1", MILLION)),
            ("clock", query("clock_timestamp()", MILLION)),
            ("scan of n", query("n & 8191", MILLION)),
            ("round-robin", query("snowflake_next_id(n & 8191)", MILLION)),
        ];
        queries
            .extend(self.systems.iter().map(|system| (system.name, query(system.call, system.calls_over))));
        let taken = self.queries("a call, by one backend: seconds a statement", &queries);
        let scan = per_row(taken[0][0], MILLION.1);
        let call = |[seconds, wal]: [Spread; 2], rows: u64, scan: Spread| Call {
            ns: per_row(seconds, rows).map(|ns| ns - scan.median),
            wal: wal.map(|bytes| bytes * (MILLION.1 / rows) as f64),
        };
        Calls {
            scan,
            clock: call(taken[1], MILLION.1, scan),
            round_robin: call(taken[3], MILLION.1, per_row(taken[2][0], MILLION.1)),
            systems: taken[4..]
                .iter()
                .zip(&self.systems)
                .map(|(taken, system)| call(*taken, system.calls_over.1, scan))
                .collect(),
        }
    }

    fn readers(&mut self) -> Readers {
        let queries = ["id", "shard_of(id)", "snowflake_time(id)", "snowflake_decode(id)"]
            .map(|expression| (expression, format!("SELECT count({expression}) FROM ready_made")));
        let taken = self.queries("reading ids: seconds a statement", &queries);
        let [shard_of, time, decode] = [1, 2, 3].map(|n: usize| {
            per_row(taken[n][0], MILLION.1).map(|ns| ns - taken[0][0].median * 1e9 / MILLION.1 as f64)
        });
        Readers { shard_of, time, decode }
    }

    fn batches(&mut self) -> Batches {
        // A statement is run 1000 times over in the server, so that its way there does not count.
        let repeated = |statement: &str| {
            format!("DO $$ BEGIN FOR i IN 1..1000 LOOP PERFORM {statement}; END LOOP; END $$")
        };
        let queries = [
            ("batch", repeated("count(id) FROM (SELECT snowflake_next_ids(5, 1000) AS id) AS batch")),
            ("batch as a table", repeated("count(id) FROM snowflake_next_ids(5, 1000) AS id")),
            ("calls", repeated("count(snowflake_next_id(5)) FROM generate_series(1, 1000)")),
            // Here it does count.
            ("statements", "SELECT snowflake_next_id(5);".repeat(THOUSAND.1 as usize)),
        ];
        let taken = self.queries("1000 ids: seconds for 1000 times of it, and once by statements", &queries);
        Batches {
            batch: taken[0][0].map(|seconds| seconds * 1e3),
            table: taken[1][0].map(|seconds| seconds * 1e3),
            calls: taken[2][0].map(|seconds| seconds * 1e3),
            statements: taken[3][0].map(|seconds| seconds * 1e6),
        }
    }

    fn inserts(&mut self) -> Vec<Inserts> {
        let bulk = self.scale.bulk.1;
        let ready = format!("INSERT INTO rows_ready SELECT id, n FROM ready_made LIMIT {bulk}");
        let insert = |target: &str, source: &str| format!("INSERT INTO {target} (n) SELECT n FROM {source}");
        self.bulk("INSERT ... SELECT: seconds", &[(READY_MADE, "rows_ready", ready)], insert)
    }

    fn copies(&mut self) -> Vec<Inserts> {
        let data: String = self.control.query_one("SHOW data_directory", &[]).expect("SHOW").get(0);
        let Rows(source, rows) = self.scale.bulk;
        for (file, query) in [
            (source, format!("SELECT n FROM {source}")),
            (THOUSAND.0, format!("SELECT n FROM {}", THOUSAND.0)),
            ("ready_made", format!("SELECT id, n FROM ready_made LIMIT {rows}")),
            ("ready_made_ids", format!("SELECT id FROM ready_made LIMIT {rows}")),
        ] {
            sql(&mut self.control, &format!("COPY ({query}) TO '{data}/{file}'"));
        }
        let ready = format!("COPY rows_ready FROM '{data}/ready_made'");
        let copy = |target: &str, source: &str| format!("COPY {target} (n) FROM '{data}/{source}'");
        let control = format!("COPY rows_volatile (id) FROM '{data}/ready_made_ids'");
        let others = [(READY_MADE, "rows_ready", ready), (VOLATILE, "rows_volatile", control)];
        self.bulk("COPY: seconds", &others, copy)
    }

    /// Fills a table of each system from a table or file of rows without keys, and one with ready-made keys.
    /// After the systems come others, each a name, a table, and a statement that fills it.
    fn bulk(
        &mut self,
        title: &str,
        others: &[(&str, &str, String)],
        fill: impl Fn(&str, &str) -> String,
    ) -> Vec<Inserts> {
        let Rows(_, bulk) = self.scale.bulk;
        let sources: Vec<Rows> =
            self.systems.iter().map(|system| system.insert_from.unwrap_or(self.scale.bulk)).collect();
        let mut subjects: Vec<_> = self.systems.iter().map(|system| system.name.to_owned()).collect();
        subjects.extend(others.iter().map(|(name, ..)| (*name).to_owned()));
        let taken = interleaved(title, self.scale.rounds, &subjects, |subject| match sources.get(subject) {
            Some(Rows(source, rows)) => {
                let target = format!("rows_{subject}");
                let times = (bulk / rows).min(MOST_TRANSACTIONS);
                let fills = format!("BEGIN; {}; COMMIT;", fill(&target, source)).repeat(times as usize);
                self.filled(&target, &fills).map(|figure| figure * (bulk / (rows * times)) as f64)
            }
            None => {
                let (_, target, statement) = &others[subject - sources.len()];
                self.filled(target, statement)
            }
        });
        taken.into_iter().map(|[seconds, wal, index]| Inserts { seconds, wal, index }).collect()
    }

    /// Fills an empty table: seconds, WAL, and the size of its index.
    fn filled(&mut self, target: &str, statement: &str) -> [f64; 3] {
        sql(&mut self.control, &format!("TRUNCATE {target}; CHECKPOINT"));
        let [seconds, wal] = self.timed(statement);
        let index = self.number(&format!("SELECT pg_indexes_size('{target}')")) as f64;
        sql(&mut self.control, &format!("TRUNCATE {target}"));
        [seconds, wal, index]
    }

    fn pgbench(&mut self, programs: &Path) -> Vec<Spread> {
        let names: Vec<_> = self.systems.iter().map(|system| system.name.to_owned()).collect();
        let script = PathBuf::from(".build/bench/insert.pgbench");
        let seconds = (self.scale.seconds * 2.0).ceil();
        let taken = interleaved("pgbench, 8 clients: inserts/s", self.scale.rounds, &names, |subject| {
            let target = format!("rows_{subject}");
            sql(&mut self.control, &format!("TRUNCATE {target}; CHECKPOINT"));
            std::fs::write(&script, format!("INSERT INTO {target} (n) VALUES (1);\n")).expect("a script");
            let mut pgbench = Command::new(programs.join("pgbench"));
            pgbench.args(["-n", "-c8", "-j2", "-Mprepared", &format!("-T{seconds}"), "-f"]).arg(&script);
            let output = pgbench.arg(&self.server).output().expect("pgbench");
            let text = String::from_utf8_lossy(&output.stdout);
            let tps = text.split("tps = ").nth(1).and_then(|text| text.split(' ').next()?.parse().ok());
            [tps.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)))]
        });
        taken.into_iter().map(|[tps]| tps).collect()
    }

    /// Backends at work at once: a name and what each of them does.
    fn at_once(&self, title: &str, seconds: f64, groups: &[(String, Vec<Work>)]) -> Vec<Load> {
        let names: Vec<_> = groups.iter().map(|(name, _)| name.clone()).collect();
        let taken = interleaved(title, self.scale.rounds, &names, |subject| {
            let done = at_once(&self.server, &groups[subject].1, seconds);
            [done.rows_per_s, done.cores]
        });
        taken
            .into_iter()
            .zip(groups)
            .map(|([ids_per_s, cores], (_, works))| Load { backends: works.len(), ids_per_s, cores })
            .collect()
    }

    fn sustained(&mut self) -> Vec<Load> {
        // Otherwise the background writing of data from the bulk inserts would delay every flush of the mark.
        sql(&mut self.control, "CHECKPOINT");
        self.set(&[("idgen.max_ahead", "0")]);
        let statement = "SELECT count(snowflake_next_id(6)) FROM thousand".to_owned();
        let work = Work { statement, rows: THOUSAND.1 };
        let groups = SUSTAINED.map(|backends| (format!("{backends} backends"), vec![work.clone(); backends]));
        let loads = self.at_once("one shard, max_ahead = 0: ids/s", self.scale.seconds * 2.0, &groups);
        self.set(&[]);
        loads
    }

    fn loads(&mut self) -> Vec<Vec<Load>> {
        self.set(&UNTHROTTLED);
        let mut groups = Vec::new();
        for system in &self.systems {
            let work = match system.load_over {
                Some(Rows(table, rows)) => {
                    Work { statement: format!("SELECT count({}) FROM {table}", system.call), rows }
                }
                None => Work { statement: format!("SELECT {}", system.call), rows: 1 },
            };
            for backends in self.scale.backends {
                groups.push((format!("{} x {backends}", system.name), vec![work.clone(); *backends]));
            }
        }
        let mut loads = self.at_once("backends at once: ids/s", self.scale.seconds, &groups).into_iter();
        self.set(&[]);
        (0..self.systems.len()).map(|_| loads.by_ref().take(self.scale.backends.len()).collect()).collect()
    }

    /// As many shards as backends, from `first` on.
    fn shards(&mut self, how: &str, settings: &[(&str, &str)], first: usize) -> Vec<Load> {
        self.set(settings);
        let Rows(table, rows) = HUNDRED_THOUSAND;
        let groups = SHARDS.map(|shards| {
            let works = (first..first + shards).map(|shard| Work {
                statement: format!("SELECT count(snowflake_next_id({shard})) FROM {table}"),
                rows,
            });
            (format!("{shards} shards"), works.collect())
        });
        let title = format!("backends on a shard each, {how}: ids/s");
        let loads = self.at_once(&title, self.scale.seconds, &groups);
        self.set(&[]);
        loads
    }
}

/// Cores of this machine that backends can have.
fn cores() -> usize {
    available_parallelism().map_or(1, |cores| cores.get())
}
