//! The cost of a call and of an insert: `make bench`.

use std::process::Command;

use crate::measure::{Spread, Taken, at_once, timed, turns};
use crate::plots::{Line, plot};
use crate::report::{cores, number, ratio, spread, table};
use crate::systems::{
    CACHED, HUNDRED_THOUSAND, IDGEN, INSTAGRAM, MILLION, NEXTVAL, READY_MADE, Rows, System, THOUSAND, create,
};
use crate::{Bench, set, sql, value};

/// The rate of a shard that does not run ahead of the clock, in ids per second.
const CEILING: f64 = 1_024_000.0;
/// The most transactions of a bulk insert. Its figures are multiplied by the number of transactions left out.
const MOST_TRANSACTIONS: f64 = 10.0;
const SHARD_EACH: &str = "idgen, a shard for each";
const ONE_AT_0: &str = "idgen, max_ahead = 0";
const SHARD_EACH_AT_0: &str = "idgen, a shard for each, max_ahead = 0";

const ROUND_ROBIN: &str = "idgen, over 8192 shards";
const FEW_SHARDS: &str = "idgen, over 64 shards";
const CLOCK: &str = "`clock_timestamp()`";
const SHARD_OF: &str = "`shard_of(id)`";
const TIME: &str = "`snowflake_time(id)`";
const DECODE: &str = "`snowflake_decode(id)`";
const READY: &str = "ready-made keys";

const BATCH: &str = "`SELECT snowflake_next_ids(5, 1000)`, counted";
const LIST: &str = "`SELECT count(id) FROM snowflake_next_ids(5, 1000) AS id`";
const SINGLE: &str = "`SELECT count(snowflake_next_id(5)) FROM generate_series(1, 1000)`";
const STATEMENTS: &str = "1000 statements, sent at once";

struct Calls {
    bench: Bench,
    systems: Vec<System>,
    rounds: usize,
    /// The time for which concurrent backends are measured.
    seconds: f64,
    /// The rows of a bulk insert.
    bulk: Rows,
    /// The numbers of concurrent backends on one shard or sequence.
    backends: &'static [usize],
}

/// Measures everything, and writes the page, its plots, and the figures of the README. The section that lets shards run
/// far ahead of the clock comes last, because the mark need not be renewed after it.
pub fn run(mut bench: Bench) {
    let systems = create(&mut bench.control);
    let (rounds, seconds, bulk, backends): (_, _, _, &[_]) = match bench.quick {
        true => (2, 0.25, HUNDRED_THOUSAND, &[1, 2, 8]),
        false => (5, 0.6, MILLION, &[1, 2, 4, 8, 64]),
    };
    let data: String = value(&mut bench.control, "SHOW data_directory");
    let ready = format!(
        "CREATE TABLE rows_ready (id bigint PRIMARY KEY, n integer);
         CREATE TABLE rows_volatile (LIKE rows_ready INCLUDING ALL, r integer DEFAULT random() * 1e9);
         CREATE TABLE ready AS SELECT * FROM ready_made LIMIT {};",
        bulk.1
    );
    sql(&mut bench.control, &ready);
    sql(&mut bench.control, "VACUUM ANALYZE");
    for table in [bulk.0, THOUSAND.0, "ready"] {
        sql(&mut bench.control, &format!("COPY {table} TO '{data}/{table}'"));
    }
    let mut all = Calls { bench, systems, rounds, seconds, bulk, backends };
    let calls = all.calls();
    all.batches();
    let insert = "INSERT INTO {target} ({columns}) SELECT {columns} FROM {source}";
    let inserts = all.bulk("insert", "INSERT ... SELECT", insert, "at most 1");
    let copy = format!("COPY {{target}} ({{columns}}) FROM '{data}/{{source}}'");
    let copies = all.bulk("copy", "COPY", &copy, "at most 0.9");
    all.pgbench();
    all.backends();
    let shared = "SELECT size::float8 FROM pg_shmem_allocations WHERE name = 'idgen'";
    let shared = value(&mut all.bench.control, shared);
    let report = &mut all.bench.report;
    report.demand("shared memory, whatever the connections", "at most 1048576 bytes", &[shared]);

    let names = [IDGEN, NEXTVAL, INSTAGRAM];
    let rows = number(bulk.1);
    let figures = [
        ("a call, ns".to_owned(), calls),
        (format!("`INSERT` of {rows} rows, s"), inserts),
        (format!("`COPY` of {rows} rows, s"), copies),
    ]
    .map(|(what, taken)| {
        let [a, b, c] = names.map(|name| spread(taken.of(name)[0]));
        [what, a, b, c]
    });
    let figures = table(&format!("| {}", names.join(" | ")), figures);
    report.put("figures", &format!("{}\n{figures}", report.machine()));
    report.finish("calls");
}

impl Calls {
    /// The cost of a call: nanoseconds beyond the same scan without it, WAL for a million calls, and nanoseconds of the
    /// scan.
    fn calls(&mut self) -> Taken<3> {
        let systems = self.systems.iter();
        let mut subjects: Vec<_> =
            systems.map(|system| (system.name, (system.call, system.calls_over, "1"))).collect();
        subjects.extend([
            (FEW_SHARDS, ("snowflake_next_id(n & 63)", MILLION, "n & 63")),
            (ROUND_ROBIN, ("snowflake_next_id(n & 8191)", MILLION, "n & 8191")),
            (CLOCK, ("clock_timestamp()", MILLION, "1")),
            (SHARD_OF, ("shard_of(id)", READY_MADE, "id")),
            (TIME, ("snowflake_time(id)", READY_MADE, "id")),
            (DECODE, ("snowflake_decode(id)", READY_MADE, "id")),
        ]);
        let rounds = self.rounds;
        let mut taken =
            turns("a call by one backend", rounds, &subjects, |(call, Rows(table, rows), scan)| {
                let [[call, wal], [scan, _]] = [call, scan].map(|counted| {
                    timed(&mut self.bench.control, &format!("SELECT count({counted}) FROM {table}"))
                });
                [call * 1e9 / rows, wal * 1e6 / rows, scan * 1e9 / rows]
            });
        for (_, [ns, _, scan]) in &mut taken.0 {
            *ns = ns.map(|ns| ns - scan.median);
        }
        let call = taken.median(IDGEN);
        let row =
            |name: &str, ns: Spread, wal: String| [name.to_owned(), spread(ns), ratio(ns.median / call), wal];
        let rows = taken.0.iter().map(|(name, [ns, wal, _])| row(name, *ns, number(wal.median)));
        let rows = rows.chain([row("the scan, with `count(1)`", taken.of(IDGEN)[2], String::new())]);
        let report = &mut self.bench.report;
        report.put("calls", &table("system | ns a call | ratio to idgen | WAL for 1 M, bytes", rows));

        let of = |what, other| [taken.ratio(what, other)];
        report.demand("a call over an empty row | `nextval`", "at most 0.25", &of(IDGEN, NEXTVAL));
        report.demand("a call | `clock_timestamp()`", "at most 2", &of(IDGEN, CLOCK));
        report.demand("the PL/pgSQL function | a call of idgen", "at least 60", &of(INSTAGRAM, IDGEN));
        let what = "a call, round-robin over 8192 shards | a call for one shard";
        report.demand(what, "at most 1.5", &of(ROUND_ROBIN, IDGEN));
        report.demand("WAL for 1 M ids", "at most 10000 bytes", &[taken.of(IDGEN)[1].median]);
        let readers = [DECODE, SHARD_OF, TIME];
        let what = format!("{}, over an empty row", readers.join(", "));
        report.demand(&what, "at most 30 ns", &readers.map(|reader| taken.median(reader)));
        taken
    }

    /// Microseconds for 1000 ids.
    fn batches(&mut self) {
        // The server repeats a statement 1000 times, so that the time to send it does not count.
        let repeated = |statement: &str| {
            (format!("DO $$ BEGIN FOR i IN 1..1000 LOOP PERFORM {statement}; END LOOP; END $$"), 1e3)
        };
        let subjects = [
            (BATCH, repeated("count(id) FROM (SELECT snowflake_next_ids(5, 1000) AS id) AS batch")),
            (LIST, repeated("count(id) FROM snowflake_next_ids(5, 1000) AS id")),
            (SINGLE, repeated("count(snowflake_next_id(5)) FROM generate_series(1, 1000)")),
            // Here the time to send the statements counts.
            (STATEMENTS, ("SELECT snowflake_next_id(5);".repeat(1000), 1e6)),
        ];
        let taken = turns("1000 ids", self.rounds, &subjects, |(statement, us)| {
            [timed(&mut self.bench.control, statement)[0] * us]
        });
        let rows = taken.0.iter().map(|(how, [us])| [how.clone(), spread(*us)]);
        let report = &mut self.bench.report;
        report.put("batches", &table("how | µs", rows));
        let what = "`snowflake_next_ids(5, 1000)` | 1000 calls in one statement";
        report.demand(what, "at most 0.5", &[taken.ratio(BATCH, SINGLE)]);
        report.demand("the same | 1000 statements", "at most 0.5", &[taken.ratio(BATCH, STATEMENTS)]);
    }

    /// Fills an empty table of each system, and tables with ready-made keys. Measures seconds, MB of WAL, and MB of the
    /// index.
    fn bulk(&mut self, block: &str, how: &str, statement: &str, of_identity: &str) -> Taken<3> {
        let fill = |target: &str, columns: &str, source: &str| {
            let statement = statement.replace("{target}", target).replace("{columns}", columns);
            statement.replace("{source}", source)
        };
        let Rows(_, bulk) = self.bulk;
        let mut subjects = Vec::new();
        for (number, system) in self.systems.iter().enumerate() {
            // A single transaction would take the slowest system too long.
            let Rows(source, rows) = if system.calls_over.1 == THOUSAND.1 { THOUSAND } else { self.bulk };
            let times = (bulk / rows).min(MOST_TRANSACTIONS);
            let target = format!("rows_{number}");
            let statement = format!("BEGIN; {}; COMMIT;", fill(&target, "n", source)).repeat(times as usize);
            subjects.push((system.name, (target, statement, bulk / (rows * times))));
        }
        let others = [(READY, "rows_ready"), ("ready-made keys, `random()` beside them", "rows_volatile")];
        let others =
            others.map(|(name, target)| (name, (target.into(), fill(target, "id, n", "ready"), 1.0)));
        subjects.extend(others);
        let taken = turns(how, self.rounds, &subjects, |(target, statement, times)| {
            sql(&mut self.bench.control, &format!("TRUNCATE {target}; CHECKPOINT"));
            let [seconds, wal] = timed(&mut self.bench.control, statement);
            let index = format!("SELECT pg_indexes_size('{target}')::float8");
            let index: f64 = value(&mut self.bench.control, &index);
            sql(&mut self.bench.control, &format!("TRUNCATE {target}"));
            [seconds * times, wal * times / 1e6, index * times / 1e6]
        });
        let rows = taken.0.iter().map(|(name, [seconds, wal, index])| {
            let to_identity = ratio(taken.ratio(name, NEXTVAL));
            let [wal, index] = [wal, index].map(|mb| format!("{:.1}", mb.median));
            [name.clone(), spread(*seconds), to_identity, wal, index]
        });
        let report = &mut self.bench.report;
        report.put(block, &table("key | s | ratio to identity | WAL, MB | index, MB", rows));
        let what = format!("time of `{how}` of {} rows | identity", number(bulk));
        report.demand(&what, of_identity, &[taken.ratio(IDGEN, NEXTVAL)]);
        let wal = |name| taken.of(name)[1].median;
        report.demand("its WAL | identity", "at most 1.02", &[wal(IDGEN) / wal(NEXTVAL)]);
        let of_ready = taken.ratio(IDGEN, READY);
        report.demand("its time | ready-made keys", "at most 1.05", &[of_ready]);
        taken
    }

    /// Inserts per second by 8 clients.
    fn pgbench(&mut self) {
        let script = ".build/bench/insert.pgbench";
        let time = format!("-T{}", (self.seconds * 2.0).ceil());
        let subjects: Vec<_> = self.systems.iter().map(|system| system.name).zip(0..).collect();
        let taken = turns("pgbench", self.rounds, &subjects, |number| {
            sql(&mut self.bench.control, &format!("TRUNCATE rows_{number}; CHECKPOINT"));
            std::fs::write(script, format!("INSERT INTO rows_{number} (n) VALUES (1);\n")).expect(script);
            let mut pgbench = Command::new(self.bench.programs.join("pgbench"));
            pgbench.args(["-n", "-c8", "-j2", "-Mprepared", &time, "-f", script, &self.bench.server]);
            let output = pgbench.output().expect("pgbench");
            let text = String::from_utf8_lossy(&output.stdout);
            let tps = text.split("tps = ").nth(1).and_then(|text| text.split(' ').next()?.parse().ok());
            [tps.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)))]
        });
        let row = |(name, [tps]): &(String, [_; 1])| {
            [name.clone(), spread(*tps), ratio(taken.ratio(name, NEXTVAL))]
        };
        let report = &mut self.bench.report;
        report.put("pgbench", &table("key | inserts/s | ratio to identity", taken.0.iter().map(row)));
        let what = "inserts/s of pgbench, 8 clients | identity";
        report.demand(what, "at least 1", &[taken.ratio(IDGEN, NEXTVAL)]);
    }

    /// Measures concurrent backends: thousands of ids per second, and cores. A subject has a name, a call with a
    /// placeholder for the backend's shard, and the rows of a statement.
    fn at_once(
        &mut self,
        subjects: &[(&str, &str, Rows)],
        [max_ahead, reserve_ahead]: [&str; 2],
    ) -> Taken<2> {
        let Bench { server, control, .. } = &mut self.bench;
        set(control, &[("idgen.max_ahead", max_ahead), ("idgen.reserve_ahead", reserve_ahead)]);
        // Data of earlier sections that is not yet written would delay each flush of the mark.
        sql(control, "CHECKPOINT");
        let groups = subjects.iter().flat_map(|(name, call, rows)| {
            self.backends.iter().map(move |n| (format!("{name} x {n}"), (*call, *rows, *n)))
        });
        let groups: Vec<_> = groups.collect();
        let title = format!("concurrent backends, max_ahead = {max_ahead}");
        turns(&title, self.rounds, &groups, |(call, Rows(table, ids), backends)| {
            let statement = |shard: usize| {
                format!("SELECT count({}) FROM {table}", call.replace("{shard}", &shard.to_string()))
            };
            let statements: Vec<_> = (1000..1000 + backends).map(statement).collect();
            let load = at_once(server, &statements, *ids, self.seconds);
            [load.ids_per_s / 1e3, load.cores]
        })
    }

    fn backends(&mut self) {
        let (one, each) = ("snowflake_next_id(6)", "snowflake_next_id({shard})");
        let held_back = [(ONE_AT_0, one, THOUSAND), (SHARD_EACH_AT_0, each, HUNDRED_THOUSAND)];
        let systems = self.systems.iter();
        let mut free: Vec<_> = systems.map(|system| (system.name, system.call, system.load_over)).collect();
        free.push((SHARD_EACH, each, HUNDRED_THOUSAND));
        let mut taken = self.at_once(&held_back, ["0", "1s"]);
        // Neither the clock nor the disk limits these backends.
        taken.0.extend(self.at_once(&free, ["1h", "3s"]).0);

        let backends = self.backends;
        let of = |name: &str, n: usize| taken.of(&format!("{name} x {n}"));
        let medians = |name: &str, figure: usize, unit: f64| -> Vec<f64> {
            backends.iter().map(|n| of(name, *n)[figure].median * unit).collect()
        };
        let heads: Vec<_> = backends.iter().map(ToString::to_string).collect();
        let report = &mut self.bench.report;
        for (block, unit, figure) in [("backends", "1000 ids/s", 0), ("cores", "CPU time, cores", 1)] {
            let rows = free.iter().chain(&held_back).map(|(name, ..)| {
                let cells = backends.iter().map(|n| spread(of(name, *n)[figure]));
                [(*name).to_owned()].into_iter().chain(cells).collect::<Vec<_>>()
            });
            report.put(block, &table(&format!("{unit}, by backends | {}", heads.join(" | ")), rows));
        }

        let what = format!("ids/s of {} backends on one shard | its ceiling", heads.join(", "));
        report.demand(&what, "at least 0.98", &medians(ONE_AT_0, 0, 1e3 / CEILING));
        let of_cores = medians(ONE_AT_0, 1, 1.0 / cores() as f64);
        report.demand("their CPU time | that of all cores", "at most 0.5", &of_cores);
        let of_other = |other| [2, 8].map(|n| of(IDGEN, n)[0].median / of(other, n)[0].median);
        let what = "ids/s of 2 and 8 backends on one shard, not held back | `nextval`";
        report.demand(what, "at least 4", &of_other(NEXTVAL));
        report.demand("the same | `nextval` with CACHE 100", "at least 1", &of_other(CACHED));
        let bound = of(SHARD_EACH, 1)[0].median * cores().min(8) as f64;
        let what = format!("ids/s of 8 backends on 8 shards | 1 on 1, times {} cores", cores());
        report.demand(&what, "at least 0.95", &[of(SHARD_EACH, 8)[0].median / bound]);

        let line = |name| Line(String::from(name), medians(name, 0, 1e3));
        let lines: Vec<_> = self.systems.iter().map(|system| line(system.name)).collect();
        let axis = ("ids/s in all (logarithmic)", 1e3, 1e8);
        let title = "One shard or sequence, max_ahead = 1h";
        plot(&report.plot("backends.svg"), title, axis, "backends", &heads, &lines);
    }
}
