//! What a call and an insert cost: `make bench`.

use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use postgres::Client;

use crate::measure::{Spread, Taken, Work, at_once, turns};
use crate::plots::{self, Axis, Line};
use crate::report::{Report, cores, number, ratio, replace, spread, table};
use crate::systems::{
    CACHED, HUNDRED_THOUSAND, IDGEN, INSTAGRAM, MILLION, NEXTVAL, READY, READY_MADE, Rows, SET_UP, SYSTEMS,
    System, THOUSAND,
};
use crate::{connect, sql, value};

/// The rate of a shard that does not run ahead of the clock, in ids per second.
const CEILING: f64 = 1_024_000.0;
/// The most transactions of a bulk insert. Its figures are multiplied by the number of transactions left out.
const MOST_TRANSACTIONS: u64 = 10;
/// `idgen.max_ahead` and `idgen.reserve_ahead`.
const DEFAULTS: [&str; 2] = ["1s", "1s"];
const HELD_BACK: [&str; 2] = ["0", "1s"];
/// Neither the clock nor the disk limits these backends.
const NOT_HELD_BACK: [&str; 2] = ["1h", "3s"];
const SHARD_EACH: &str = "idgen, a shard for each";
const ONE_AT_0: &str = "idgen, max_ahead = 0";
const SHARD_EACH_AT_0: &str = "idgen, a shard for each, max_ahead = 0";

const ROUND_ROBIN: &str = "idgen, over 8192 shards";
const CLOCK: &str = "`clock_timestamp()`";
const SHARD_OF: &str = "`shard_of(id)`";
const TIME: &str = "`snowflake_time(id)`";
const DECODE: &str = "`snowflake_decode(id)`";

const BATCH: &str = "`SELECT snowflake_next_ids(5, 1000)`, counted";
const LIST: &str = "`SELECT count(id) FROM snowflake_next_ids(5, 1000) AS id`";
const SINGLE: &str = "`SELECT count(snowflake_next_id(5)) FROM generate_series(1, 1000)`";
const STATEMENTS: &str = "1000 statements, sent at once";

struct Bench {
    server: String,
    programs: PathBuf,
    control: Client,
    systems: Vec<System>,
    rounds: usize,
    /// How long concurrent backends are measured.
    seconds: f64,
    /// The rows of a bulk insert.
    bulk: Rows,
    /// The numbers of concurrent backends on one shard or sequence.
    backends: &'static [usize],
    report: Report,
}

/// Measures everything, and writes the page, its plots, and the figures of the README. The sections that let shards
/// run far ahead of the clock come last: nothing has to renew the mark after them.
pub fn run(quick: bool, server: String, programs: PathBuf) {
    let mut control = connect(&server);
    sql(&mut control, SET_UP);
    let report = Report::new(quick, &mut control);
    let is_new: bool = value(&mut control, "SELECT to_regproc('uuidv7') IS NOT NULL");
    let systems = SYSTEMS.into_iter().filter(|system| is_new || system.name != "uuidv7").collect();
    let (rounds, seconds, bulk, backends): (_, _, _, &[_]) = match quick {
        true => (2, 0.25, HUNDRED_THOUSAND, &[1, 2, 8]),
        false => (5, 0.6, MILLION, &[1, 2, 4, 8, 64]),
    };
    let mut bench = Bench { server, programs, control, systems, rounds, seconds, bulk, backends, report };
    bench.create_tables();
    let calls = bench.calls();
    bench.batches();
    let inserts =
        bench.bulk("INSERT ... SELECT", "INSERT INTO {target} ({columns}) SELECT {columns} FROM {source}");
    bench.put_size(&inserts);
    let data: String = value(&mut bench.control, "SHOW data_directory");
    for table in [bulk.0, THOUSAND.0, "ready"] {
        sql(&mut bench.control, &format!("COPY {table} TO '{data}/{table}'"));
    }
    let copies = bench.bulk("COPY", &format!("COPY {{target}} ({{columns}}) FROM '{data}/{{source}}'"));
    bench.pgbench();
    bench.backends();
    let shared = "SELECT size::float8 FROM pg_shmem_allocations WHERE name = 'idgen'";
    let shared = value(&mut bench.control, shared);
    bench.report.within("shared memory, whatever the connections", 1_048_576.0, " bytes", &[shared]);
    let machine = bench.report.finish("calls");
    if !quick {
        let names = [IDGEN, NEXTVAL, INSTAGRAM];
        let row = |what: &str, taken: &Taken<3>| {
            let [a, b, c] = names.map(|name| spread(taken.of(name)[0]));
            [what.to_owned(), a, b, c]
        };
        let rows = number(bulk.1 as f64);
        let rows = [
            row("a call, ns", &calls),
            row(&format!("`INSERT` of {rows} rows, s"), &inserts),
            row(&format!("`COPY` of {rows} rows, s"), &copies),
        ];
        let mut readme = std::fs::read_to_string("README.md").expect("README.md");
        let figures = table(&format!(" | {}", names.join(" | ")), rows);
        replace(&mut readme, "figures", &format!("{machine}\n{figures}"));
        std::fs::write("README.md", readme).expect("README.md");
    }
}

fn greatest(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(0.0, f64::max)
}

impl Bench {
    fn create_tables(&mut self) {
        for (number, system) in self.systems.iter().enumerate() {
            let column = system.column;
            sql(
                &mut self.control,
                &format!("CREATE TABLE rows_{number} (id {column} PRIMARY KEY, n integer)"),
            );
        }
        let Rows(_, bulk) = self.bulk;
        sql(
            &mut self.control,
            &format!(
                "CREATE TABLE rows_ready (id bigint PRIMARY KEY, n integer);
                 CREATE TABLE rows_volatile (LIKE rows_ready INCLUDING ALL, r integer DEFAULT random() * 1e9);
                 CREATE TABLE ready AS SELECT * FROM ready_made LIMIT {bulk};"
            ),
        );
        sql(&mut self.control, "VACUUM ANALYZE");
    }

    fn names(&self) -> Vec<String> {
        self.systems.iter().map(|system| system.name.to_owned()).collect()
    }

    /// Changes settings for all sessions.
    fn set(&mut self, [max_ahead, reserve_ahead]: [&str; 2]) {
        sql(&mut self.control, &format!("ALTER SYSTEM SET idgen.max_ahead = '{max_ahead}'"));
        sql(&mut self.control, &format!("ALTER SYSTEM SET idgen.reserve_ahead = '{reserve_ahead}'"));
        sql(&mut self.control, "SELECT pg_reload_conf()");
        while value::<String>(&mut self.control, "SHOW idgen.max_ahead") != max_ahead {
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Runs a statement when the clock has caught up with the ids of the one before. Returns its seconds and the bytes
    /// of WAL that the server wrote in that time.
    fn timed(&mut self, statement: &str) -> [f64; 2] {
        loop {
            match value::<i64>(&mut self.control, "SELECT ahead_ms FROM idgen_status") {
                0 => break,
                ahead => thread::sleep(Duration::from_millis(ahead.unsigned_abs())),
            }
        }
        let place = "SELECT (pg_current_wal_insert_lsn() - '0/0')::float8";
        let before: f64 = value(&mut self.control, place);
        let start = Instant::now();
        sql(&mut self.control, statement);
        let seconds = start.elapsed().as_secs_f64();
        [seconds, value::<f64>(&mut self.control, place) - before]
    }

    /// Nanoseconds of a call over the same scan without it, WAL for a million calls, and nanoseconds of the scan.
    fn calls(&mut self) -> Taken<3> {
        let mut subjects: Vec<_> =
            self.systems.iter().map(|system| (system.name, system.call, system.calls_over, "1")).collect();
        subjects.extend([
            (ROUND_ROBIN, "snowflake_next_id(n & 8191)", MILLION, "n & 8191"),
            (CLOCK, "clock_timestamp()", MILLION, "1"),
            (SHARD_OF, "shard_of(id)", READY_MADE, "id"),
            (TIME, "snowflake_time(id)", READY_MADE, "id"),
            (DECODE, "snowflake_decode(id)", READY_MADE, "id"),
        ]);
        let names = subjects.iter().map(|subject| subject.0);
        let mut taken = turns("a call by one backend", self.rounds, names, |subject| {
            let (_, call, Rows(table, rows), scan) = subjects[subject];
            let [[call, wal], [scan, _]] =
                [call, scan].map(|counted| self.timed(&format!("SELECT count({counted}) FROM {table}")));
            [call * 1e9 / rows as f64, wal * 1e6 / rows as f64, scan * 1e9 / rows as f64]
        });
        for (_, [ns, _, scan]) in &mut taken.0 {
            *ns = ns.map(|ns| ns - scan.median);
        }
        let call = taken.median(IDGEN);
        let row =
            |name: &str, ns: Spread, wal: String| [name.to_owned(), spread(ns), ratio(ns.median / call), wal];
        let calls = taken.0.iter().map(|(name, [ns, wal, _])| row(name, *ns, number(wal.median)));
        let scan = taken.of(IDGEN)[2];
        let rows = calls.chain([row("the scan, with `count(1)`", scan, String::new())]);
        self.report.put("calls", &table("system | ns a call | of idgen's | WAL for 1 M, bytes", rows));

        let axis = Axis { name: "ns a call, over an empty row (logarithmic)", from: 10.0, upto: 1e5 };
        let values = taken.medians()[..self.systems.len()].to_vec();
        let title = "Cost of a call, one backend";
        plots::bars(&self.report.plot("call.svg"), title, &axis, &self.names(), &[("", values)])
            .expect("a plot");

        let of = |what: &str| [taken.ratio(IDGEN, what)];
        self.report.at_most("a call over an empty row, of `nextval`'s", 0.25, &of(NEXTVAL));
        self.report.at_most("a call, of reading the clock (`clock_timestamp()`)", 2.0, &of(CLOCK));
        let [instagram, round_robin] = [INSTAGRAM, ROUND_ROBIN].map(|name| [taken.ratio(name, IDGEN)]);
        self.report.at_least("the PL/pgSQL function's call, of idgen's", 60.0, &instagram);
        self.report.at_most("a call round-robin over all 8192 shards, of one shard's", 1.5, &round_robin);
        self.report.within("WAL for 1 M ids", 10_000.0, " bytes", &[taken.of(IDGEN)[1].median]);
        let readers = [DECODE, SHARD_OF, TIME].map(|reader| taken.median(reader));
        let what = format!("{DECODE}, {SHARD_OF}, {TIME}, over an empty row");
        self.report.within(&what, 30.0, " ns", &readers);
        taken
    }

    /// Microseconds for 1000 ids.
    fn batches(&mut self) {
        // The server repeats a statement 1000 times, so that the time to send it does not count.
        let repeated = |statement: &str| {
            (format!("DO $$ BEGIN FOR i IN 1..1000 LOOP PERFORM {statement}; END LOOP; END $$"), 1e3)
        };
        let queries = [
            repeated("count(id) FROM (SELECT snowflake_next_ids(5, 1000) AS id) AS batch"),
            repeated("count(id) FROM snowflake_next_ids(5, 1000) AS id"),
            repeated("count(snowflake_next_id(5)) FROM generate_series(1, 1000)"),
            // Here it counts.
            ("SELECT snowflake_next_id(5);".repeat(1000), 1e6),
        ];
        let taken = turns("1000 ids", self.rounds, [BATCH, LIST, SINGLE, STATEMENTS], |subject| {
            let (statement, us) = &queries[subject];
            [self.timed(statement)[0] * us]
        });
        let rows = taken.0.iter().map(|(how, [us])| [how.clone(), spread(*us)]);
        self.report.put("batches", &table("how | µs", rows));
        let [calls, statements] = [SINGLE, STATEMENTS].map(|how| [taken.ratio(BATCH, how)]);
        self.report.at_most("`snowflake_next_ids(5, 1000)`, of 1000 calls in one statement", 0.5, &calls);
        self.report.at_most("the same, of 1000 statements", 0.5, &statements);
    }

    fn put_size(&mut self, inserts: &Taken<3>) {
        let systems = &inserts.0[..self.systems.len()];
        let [wal, index] = [1, 2].map(|figure: usize| -> Vec<f64> {
            systems.iter().map(|(_, figures)| figures[figure].median).collect()
        });
        let axis = Axis { name: "MB", from: 0.0, upto: greatest(wal.iter().chain(&index).copied()) * 1.12 };
        let title = format!("After an INSERT of {} rows", number(self.bulk.1 as f64));
        let kinds = [("index of the keys", index), ("WAL", wal)];
        plots::bars(&self.report.plot("size.svg"), &title, &axis, &self.names(), &kinds).expect("a plot");
    }

    /// Fills an empty table of each system, and tables with ready-made keys: seconds, MB of WAL, and MB of the index.
    fn bulk(&mut self, how: &str, statement: &str) -> Taken<3> {
        let fill = |target: &str, columns: &str, source: &str| {
            let statement = statement.replace("{target}", target).replace("{columns}", columns);
            statement.replace("{source}", source)
        };
        let Rows(_, bulk) = self.bulk;
        let mut subjects: Vec<_> = (0..)
            .zip(&self.systems)
            .map(|(number, system)| {
                // A single transaction of the slowest would take too long.
                let Rows(source, rows) = if system.calls_over.1 == 1000 { THOUSAND } else { self.bulk };
                let times = (bulk / rows).min(MOST_TRANSACTIONS);
                let target = format!("rows_{number}");
                let statement = format!("BEGIN; {}; COMMIT;", fill(&target, "n", source));
                (system.name, target, statement.repeat(times as usize), bulk / (rows * times))
            })
            .collect();
        let others = [(READY, "rows_ready"), ("ready-made keys, `random()` beside them", "rows_volatile")];
        subjects
            .extend(others.map(|(name, target)| (name, target.into(), fill(target, "id, n", "ready"), 1)));
        let names = subjects.iter().map(|subject| subject.0);
        let taken = turns(how, self.rounds, names, |subject| {
            let (_, target, statement, times) = &subjects[subject];
            sql(&mut self.control, &format!("TRUNCATE {target}; CHECKPOINT"));
            let [seconds, wal] = self.timed(statement);
            let index = value(&mut self.control, &format!("SELECT pg_indexes_size('{target}')::float8"));
            sql(&mut self.control, &format!("TRUNCATE {target}"));
            [(seconds, 1.0), (wal, 1e6), (index, 1e6)]
                .map(|(figure, unit): (f64, f64)| figure * *times as f64 / unit)
        });
        let rows = taken.0.iter().map(|(name, [seconds, wal, index])| {
            let of_identity = ratio(taken.ratio(name, NEXTVAL));
            let [wal, index] = [wal, index].map(|mb| format!("{:.1}", mb.median));
            [name.clone(), spread(*seconds), of_identity, wal, index]
        });
        let name = how.split(' ').next().unwrap_or(how).to_lowercase();
        self.report.put(&name, &table("key | s | of identity's | WAL, MB | index, MB", rows));
        let what = format!("`{how}` of {} rows, of an identity column's time", number(bulk as f64));
        self.report.at_most(&what, 1.0, &[taken.ratio(IDGEN, NEXTVAL)]);
        self.report.at_most("the same, of the time with ready-made keys", 1.05, &[taken.ratio(IDGEN, READY)]);
        taken
    }

    /// Inserts per second by 8 clients.
    fn pgbench(&mut self) {
        let script = PathBuf::from(".build/bench/insert.pgbench");
        let seconds = (self.seconds * 2.0).ceil();
        let taken = turns("pgbench", self.rounds, self.names(), |subject| {
            sql(&mut self.control, &format!("TRUNCATE rows_{subject}; CHECKPOINT"));
            std::fs::write(&script, format!("INSERT INTO rows_{subject} (n) VALUES (1);\n"))
                .expect("a script");
            let mut pgbench = Command::new(self.programs.join("pgbench"));
            pgbench.args(["-n", "-c8", "-j2", "-Mprepared", &format!("-T{seconds}"), "-f"]).arg(&script);
            let output = pgbench.arg(&self.server).output().expect("pgbench");
            let text = String::from_utf8_lossy(&output.stdout);
            let tps = text.split("tps = ").nth(1).and_then(|text| text.split(' ').next()?.parse().ok());
            [tps.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)))]
        });
        let rows = taken.0.iter();
        let rows = rows.map(|(name, [tps])| [name.clone(), spread(*tps), ratio(taken.ratio(name, NEXTVAL))]);
        self.report.put("pgbench", &table("key | inserts/s | of identity's", rows));
        let of_identity = taken.ratio(IDGEN, NEXTVAL);
        self.report.at_least("pgbench, 8 clients: inserts/s, of an identity column's", 1.0, &[of_identity]);
    }

    /// Adds the ids per second and the cores of concurrent backends. A subject has a name, a call with the place of the
    /// backend's shard, and the rows of a statement.
    fn at_once(&mut self, subjects: &[(&str, &str, Rows)], settings: [&str; 2], taken: &mut Taken<2>) {
        self.set(settings);
        // Data of the sections before that is still to be written would delay each flush of the mark.
        sql(&mut self.control, "CHECKPOINT");
        let groups = subjects.iter().flat_map(|subject| self.backends.iter().map(move |n| (subject, *n)));
        let groups: Vec<_> = groups.collect();
        let names = groups.iter().map(|((name, ..), backends)| format!("{name} x {backends}"));
        let title = format!("concurrent backends, max_ahead = {}", settings[0]);
        let more = turns(&title, self.rounds, names, |group| {
            let ((_, call, Rows(table, ids)), backends) = groups[group];
            let works = (1000..1000 + backends).map(|shard| Work {
                statement: format!(
                    "SELECT count({}) FROM {table}",
                    call.replace("{shard}", &shard.to_string())
                ),
                ids: *ids,
            });
            let load = at_once(&self.server, &works.collect::<Vec<_>>(), self.seconds);
            [load.ids_per_s, load.cores]
        });
        taken.0.extend(more.0);
        self.set(DEFAULTS);
    }

    fn backends(&mut self) {
        let (one, each) = ("snowflake_next_id(6)", "snowflake_next_id({shard})");
        let held_back = [(ONE_AT_0, one, THOUSAND), (SHARD_EACH_AT_0, each, HUNDRED_THOUSAND)];
        let mut free: Vec<_> =
            self.systems.iter().map(|system| (system.name, system.call, system.load_over)).collect();
        free.push((SHARD_EACH, each, HUNDRED_THOUSAND));
        let mut taken = Taken(Vec::new());
        self.at_once(&held_back, HELD_BACK, &mut taken);
        self.at_once(&free, NOT_HELD_BACK, &mut taken);

        let of = |name: &str, n: &usize| taken.of(&format!("{name} x {n}"));
        let rates = |name| -> Vec<f64> { self.backends.iter().map(|n| of(name, n)[0].median).collect() };
        let heads: Vec<_> = self.backends.iter().map(ToString::to_string).collect();
        for (block, unit, figure) in [("backends", "M ids/s", 0), ("cores", "CPU time, cores", 1)] {
            let rows = free.iter().chain(&held_back).map(|(name, ..)| {
                let cells = self.backends.iter().map(|n| {
                    let scale = if figure == 0 { 1e6 } else { 1.0 };
                    let Spread { median, least, greatest } = of(name, n)[figure].map(|value| value / scale);
                    let digits = if median < 0.1 { 5 } else { 2 };
                    format!("{median:.digits$} ({least:.digits$}–{greatest:.digits$})")
                });
                [(*name).to_owned()].into_iter().chain(cells).collect::<Vec<_>>()
            });
            let text = table(&format!("{unit}, by backends | {}", heads.join(" | ")), rows);
            self.report.put(block, &text);
        }

        let [of_ceiling, of_cores] =
            [(0, CEILING), (1, cores() as f64)].map(|(figure, whole): (usize, _)| {
                self.backends.iter().map(|n| of(ONE_AT_0, n)[figure].median / whole).collect::<Vec<_>>()
            });
        let what = format!("ids/s of {} backends on one shard, of its ceiling", heads.join(", "));
        self.report.at_least(&what, 0.98, &of_ceiling);
        self.report.at_most("their CPU time, of all cores'", 0.5, &of_cores);
        let of_other = |other| [2, 8].map(|n| of(IDGEN, &n)[0].median / of(other, &n)[0].median);
        let what = "ids/s of 2 and 8 backends on one shard, not held back, of `nextval`'s";
        self.report.at_least(what, 4.0, &of_other(NEXTVAL));
        self.report.at_least("the same, of `nextval`'s with CACHE 100", 1.0, &of_other(CACHED));
        let bound = |n: &usize| of(SHARD_EACH, &1)[0].median * (*n).min(cores()) as f64;
        let what = format!("8 backends on 8 shards, of 1 on 1 times the cores ({})", cores());
        self.report.at_least(&what, 0.95, &[of(SHARD_EACH, &8)[0].median / bound(&8)]);

        let mut lines: Vec<_> =
            self.systems.iter().map(|system| Line(system.name.into(), rates(system.name), true)).collect();
        lines.push(Line("a shard's ceiling".into(), vec![CEILING; heads.len()], false));
        let axis = Axis { name: "ids/s in all (logarithmic)", from: 1e3, upto: 1e8 };
        let title = "One shard or sequence, max_ahead = 1h";
        plots::lines(&self.report.plot("backends.svg"), title, &axis, "backends", &heads, &lines)
            .expect("a plot");
        let ceiling = |n: &usize| CEILING * *n as f64;
        let lines = [
            Line("not held back".into(), rates(SHARD_EACH), true),
            Line("one shard's, times the cores".into(), self.backends.iter().map(bound).collect(), false),
            Line("max_ahead = 0".into(), rates(SHARD_EACH_AT_0), true),
            Line("the shards' ceiling".into(), self.backends.iter().map(ceiling).collect(), false),
        ];
        let upto = greatest(lines.iter().flat_map(|line| line.1.clone())) * 1.05;
        let axis = Axis { name: "ids/s in all", from: 0.0, upto };
        let title = "A backend for each shard";
        plots::lines(&self.report.plot("shards.svg"), title, &axis, "shards, and backends", &heads, &lines)
            .expect("a plot");
    }
}
