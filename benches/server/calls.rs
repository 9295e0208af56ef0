//! What a call and an insert cost: `make bench`.

use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use postgres::Client;

use crate::core;
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
const SUSTAINED: [usize; 3] = [1, 8, 64];
const SHARDS: [usize; 4] = [1, 2, 4, 8];
/// `idgen.max_ahead` and `idgen.reserve_ahead`.
const DEFAULTS: [&str; 2] = ["1s", "1s"];
const HELD_BACK: [&str; 2] = ["0", "1s"];
/// Neither the clock nor the disk limits these backends.
const NOT_HELD_BACK: [&str; 2] = ["1h", "3s"];

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
        true => (2, 0.25, HUNDRED_THOUSAND, &[2, 8]),
        false => (5, 0.6, MILLION, &[1, 2, 4, 8]),
    };
    let mut bench = Bench { server, programs, control, systems, rounds, seconds, bulk, backends, report };
    bench.create_tables();
    let calls = bench.calls();
    bench.batches();
    let inserts = bench.inserts();
    let copies = bench.copies();
    bench.pgbench();
    bench.sustained();
    let held_back = bench.shards(HELD_BACK, 1000);
    bench.one_shard();
    let free = bench.shards(NOT_HELD_BACK, 2000);
    bench.put_shards(&held_back, &free);
    let shared = "SELECT size::float8 FROM pg_shmem_allocations WHERE name = 'idgen'";
    let shared = value(&mut bench.control, shared);
    bench.report.at_most("shared memory, whatever the connections", 1_048_576.0, " bytes", &[shared]);
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

/// Calls in a statement, one for each row.
fn work(call: &str, Rows(table, ids): Rows) -> Work {
    Work { statement: format!("SELECT count({call}) FROM {table}"), ids }
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
        let core = turns("the core", self.rounds, core::PARTS, |part| [core::ns(core::PARTS[part])]);

        let wal = |name| taken.of(name)[1].median;
        let mut rows: Vec<_> = taken
            .0
            .iter()
            .map(|(name, [ns, ..])| {
                let bytes = number(wal(name));
                [name.clone(), spread(*ns), ratio(ns.median / taken.median(IDGEN)), bytes]
            })
            .collect();
        let scan = spread(taken.of(IDGEN)[2]);
        rows.push(["a row of the scan, with `count(1)`".into(), scan, String::new(), String::new()]);
        self.report.put("calls", &table("system | ns a call | of idgen's | WAL for 1 M, bytes", rows));

        let call = taken.median(IDGEN);
        let to_be_called = taken.median(SHARD_OF);
        let core = core.0.into_iter().map(|(part, [ns])| (part, ns.median));
        let mut parts = vec![(format!("to be called: {SHARD_OF}, which does next to nothing"), to_be_called)];
        parts.extend(core);
        let rest = call - parts.iter().map(|(_, ns)| ns).sum::<f64>();
        parts.push((
            "the rest: settings, shared memory, a new run from the shard's slot now and then".into(),
            rest,
        ));
        parts.push(("a call".into(), call));
        let parts = parts.into_iter().map(|(part, ns)| [part, format!("{ns:.1}")]);
        self.report.put("parts", &table("part of a call | ns", parts));

        let axis = Axis { name: "ns a call, over an empty row (logarithmic)", from: 10.0, upto: 1e5 };
        let values = taken.medians()[..self.systems.len()].to_vec();
        let title = "Cost of a call, one backend";
        plots::bars(&self.report.plot("call.svg"), title, &axis, &self.names(), &[("", values)])
            .expect("a plot");

        let of = |what: &str| [taken.ratio(IDGEN, what)];
        self.report.at_most("a call over an empty row, of `nextval`'s", 0.25, "", &of(NEXTVAL));
        self.report.at_most("a call, of reading the clock (`clock_timestamp()`)", 2.0, "", &of(CLOCK));
        let instagram = taken.ratio(INSTAGRAM, IDGEN);
        self.report.at_least("the PL/pgSQL function's call, of idgen's", 60.0, &[instagram]);
        let round_robin = taken.ratio(ROUND_ROBIN, IDGEN);
        self.report.at_most(
            "a call round-robin over all 8192 shards, of one shard's",
            1.5,
            "",
            &[round_robin],
        );
        self.report.at_most("WAL for 1 M ids", 10_000.0, " bytes", &[wal(IDGEN)]);
        let readers = [DECODE, SHARD_OF, TIME].map(|reader| taken.median(reader));
        self.report.at_most(
            &format!("{DECODE}, {SHARD_OF}, {TIME}, over an empty row"),
            30.0,
            " ns",
            &readers,
        );
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
        self.report.at_most("`snowflake_next_ids(5, 1000)`, of 1000 calls in one statement", 0.5, "", &calls);
        self.report.at_most("the same, of 1000 statements", 0.5, "", &statements);
    }

    fn inserts(&mut self) -> Taken<3> {
        let taken = self.bulk("INSERT ... SELECT", |target, columns, source| {
            format!("INSERT INTO {target} ({columns}) SELECT {columns} FROM {source}")
        });
        let systems = &taken.0[..self.systems.len()];
        let [wal, index] = [1, 2].map(|figure: usize| -> Vec<f64> {
            systems.iter().map(|(_, figures)| figures[figure].median).collect()
        });
        let upto = index.iter().chain(&wal).fold(0.0, |most: f64, value| most.max(*value)) * 1.12;
        let axis = Axis { name: "MB", from: 0.0, upto };
        let title = format!("After an INSERT of {} rows", number(self.bulk.1 as f64));
        let kinds = [("index of the keys", index), ("WAL", wal)];
        plots::bars(&self.report.plot("size.svg"), &title, &axis, &self.names(), &kinds).expect("a plot");
        taken
    }

    fn copies(&mut self) -> Taken<3> {
        let data: String = value(&mut self.control, "SHOW data_directory");
        for table in [self.bulk.0, THOUSAND.0, "ready"] {
            sql(&mut self.control, &format!("COPY {table} TO '{data}/{table}'"));
        }
        self.bulk("COPY", |target, columns, source| {
            format!("COPY {target} ({columns}) FROM '{data}/{source}'")
        })
    }

    /// Fills an empty table of each system, and tables with ready-made keys: seconds, MB of WAL, and MB of the index.
    fn bulk(&mut self, how: &str, fill: impl Fn(&str, &str, &str) -> String) -> Taken<3> {
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
        self.report.at_most(&what, 1.0, "", &[taken.ratio(IDGEN, NEXTVAL)]);
        self.report.at_most(
            "the same, of the time with ready-made keys",
            1.05,
            "",
            &[taken.ratio(IDGEN, READY)],
        );
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

    /// Ids per second and cores of groups of backends, under settings for all of them.
    fn at_once(&mut self, title: &str, settings: [&str; 2], groups: &[(String, Vec<Work>)]) -> Taken<2> {
        self.set(settings);
        // Data of the sections before that is still to be written would delay each flush of the mark.
        sql(&mut self.control, "CHECKPOINT");
        let names = groups.iter().map(|(name, _)| name.clone());
        let taken = turns(title, self.rounds, names, |group| {
            let load = at_once(&self.server, &groups[group].1, self.seconds);
            [load.ids_per_s, load.cores]
        });
        self.set(DEFAULTS);
        taken
    }

    /// All backends call for the same shard, which the clock holds back.
    fn sustained(&mut self) {
        let groups = SUSTAINED
            .map(|backends| (backends.to_string(), vec![work("snowflake_next_id(6)", THOUSAND); backends]));
        let taken = self.at_once("one shard, held back by the clock", HELD_BACK, &groups);
        let rows = taken.0.iter().map(|(backends, [ids, cores])| {
            [backends.clone(), spread(*ids), ratio(ids.median / CEILING), spread(*cores)]
        });
        self.report.put("sustained", &table("backends | ids/s | of the ceiling | CPU time, cores", rows));
        let of_ceiling: Vec<_> = taken.0.iter().map(|(_, [ids, _])| ids.median / CEILING).collect();
        let of_cores: Vec<_> = taken.0.iter().map(|(_, [_, cpu])| cpu.median / cores() as f64).collect();
        self.report.at_least("ids/s of 1, 8 and 64 backends on one shard, of its ceiling", 0.98, &of_ceiling);
        self.report.at_most("their CPU time, of all cores'", 0.5, "", &of_cores);
    }

    /// All backends call for the same shard or sequence, and nothing holds them back.
    fn one_shard(&mut self) {
        let backends = self.backends;
        let name = |system: &str, backends: usize| format!("{system} x {backends}");
        let groups = self.systems.iter().flat_map(|system| {
            let work = work(system.call, system.load_over);
            backends.iter().map(move |n| (name(system.name, *n), vec![work.clone(); *n]))
        });
        let groups: Vec<_> = groups.collect();
        let taken = self.at_once("one shard or sequence, not held back", NOT_HELD_BACK, &groups);
        let heads: Vec<_> = backends.iter().map(ToString::to_string).collect();
        let rows = self.systems.iter().map(|system| {
            let cells = backends.iter().map(|n| {
                let Spread { median, least, greatest } =
                    taken.of(&name(system.name, *n))[0].map(|rate| rate / 1e6);
                let digits = if median < 0.1 { 5 } else { 2 };
                format!("{median:.digits$} ({least:.digits$}–{greatest:.digits$})")
            });
            [system.name.to_owned()].into_iter().chain(cells).collect::<Vec<_>>()
        });
        let text = table(&format!("M ids/s, by backends | {}", heads.join(" | ")), rows);
        self.report.put("backends", &text);
        let of = |other| [2, 8].map(|n| taken.ratio(&name(IDGEN, n), &name(other, n)));
        let what = "ids/s of 2 and 8 backends on one shard, not held back, of `nextval`'s";
        self.report.at_least(what, 4.0, &of(NEXTVAL));
        self.report.at_least("the same, of `nextval`'s with CACHE 100", 1.0, &of(CACHED));

        let line = |system: &System| {
            let rates = backends.iter().map(|n| taken.median(&name(system.name, *n)));
            Line(system.name.into(), rates.collect(), true)
        };
        let mut lines: Vec<_> = self.systems.iter().map(line).collect();
        lines.push(Line("a shard's ceiling".into(), vec![CEILING; backends.len()], false));
        let axis = Axis { name: "ids/s in all (logarithmic)", from: 1e3, upto: 1e8 };
        let title = "One shard or sequence, max_ahead = 1h";
        plots::lines(&self.report.plot("backends.svg"), title, &axis, "backends", &heads, &lines)
            .expect("a plot");
    }

    /// Each backend has a shard of its own, from `first` on.
    fn shards(&mut self, settings: [&str; 2], first: usize) -> Taken<2> {
        let groups = SHARDS.map(|shards| {
            let works = (first..first + shards)
                .map(|shard| work(&format!("snowflake_next_id({shard})"), HUNDRED_THOUSAND));
            (shards.to_string(), works.collect())
        });
        self.at_once(&format!("a shard for each backend, max_ahead = {}", settings[0]), settings, &groups)
    }

    fn put_shards(&mut self, held_back: &Taken<2>, free: &Taken<2>) {
        let rows = free.0.iter().zip(&held_back.0).map(|((shards, free), (_, held_back))| {
            let [ids, cores, ids_at_0, cores_at_0] =
                [free[0], free[1], held_back[0], held_back[1]].map(spread);
            [shards.clone(), ids, cores, ids_at_0, cores_at_0]
        });
        let heads = "backends | ids/s | CPU time, cores | ids/s at 0 | CPU time at 0, cores";
        self.report.put("shards", &table(heads, rows));

        let one = free.median("1");
        let bound: Vec<_> = SHARDS.iter().map(|shards| one * (*shards).min(cores()) as f64).collect();
        let ceiling: Vec<_> = SHARDS.iter().map(|shards| CEILING * *shards as f64).collect();
        let what = format!("8 backends on 8 shards, of 1 on 1 times the cores ({})", cores());
        self.report.at_least(&what, 0.95, &[free.median("8") / bound[3]]);

        let upto =
            free.medians().iter().chain(&bound).chain(&ceiling).fold(0.0, |most: f64, rate| most.max(*rate));
        let axis = Axis { name: "ids/s in all", from: 0.0, upto: upto * 1.05 };
        let lines = [
            Line("not held back".into(), free.medians(), true),
            Line("one shard's, times the cores".into(), bound, false),
            Line("max_ahead = 0".into(), held_back.medians(), true),
            Line("the shards' ceiling".into(), ceiling, false),
        ];
        let (path, title) = (self.report.plot("shards.svg"), "A backend for each shard");
        let places = SHARDS.map(|shards| shards.to_string());
        plots::lines(&path, title, &axis, "shards, and backends", &places, &lines).expect("a plot");
    }
}
