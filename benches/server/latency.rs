//! The time that a call and an insert of one row take, from the median to the worst, compared with an identity column:
//! `make bench-latency`.

use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use postgres::{Client, NoTls};

use crate::measure::{at_once, seconds, turns};
use crate::plots::{Line, plot};
use crate::report::{number, ratio, spread, table};
use crate::{Bench, connect, set, sql, systems, value};

/// The percentiles in the tables. The last is the worst latency, and 99.9 % has a requirement.
const PERCENTILES: [f64; 6] = [50.0, 90.0, 99.0, 99.9, 99.99, 100.0];
const HEADS: [&str; 6] = ["median", "90 %", "99 %", "99.9 %", "99.99 %", "worst"];

/// The second subject is the baseline of the others. The inserts include it twice: the ratio of its two figures is
/// noise.
const CALLS: [(&str, &str); 2] =
    [("snowflake_next_id", "SELECT snowflake_next_id(5)"), ("nextval", "SELECT nextval('numbers')")];
const INSERTS: [(&str, &str); 3] = [
    ("idgen", "INSERT INTO rows_0 (n) VALUES (1)"),
    ("identity", "INSERT INTO rows_1 (n) VALUES (1)"),
    ("identity, once more", "INSERT INTO rows_again (n) VALUES (1)"),
];
/// The first statements after a crash.
const FIRST: [(&str, &str); 3] =
    [INSERTS[0], INSERTS[1], ("idgen, js", "INSERT INTO rows_js (n) VALUES (1)")];

struct Latency {
    bench: Bench,
    rows: Vec<Vec<String>>,
    lines: Vec<Line>,
    /// The number of renewals of the mark in each scenario.
    renewals: Vec<i64>,
}

/// Measures everything, and writes its parts of the pages and the plot.
pub fn run(mut bench: Bench, start_standby: &str) {
    systems::create(&mut bench.control);
    sql(
        &mut bench.control,
        "CREATE TABLE rows_js (id bigint PRIMARY KEY DEFAULT snowflake_next_id_js(5), n integer);
         CREATE TABLE rows_again (LIKE rows_1 INCLUDING ALL)",
    );
    sql(&mut bench.control, "VACUUM ANALYZE");
    let (rows, lines, renewals) = Default::default();
    let mut latency = Latency { bench, rows, lines, renewals };
    latency.scenarios("a call", &CALLS);
    latency.scenarios("an insert", &INSERTS);
    latency.single_inserts();
    latency.attach(start_standby);
    latency.scenarios("an insert, a synchronous standby", &INSERTS);
    latency.put();
}

/// Percentiles of values.
fn percentiles(mut values: Vec<f64>) -> [f64; 6] {
    values.sort_by(f64::total_cmp);
    PERCENTILES.map(|percent| {
        let rank = (values.len() as f64 * percent / 100.0).ceil() as usize;
        values[rank.saturating_sub(1)]
    })
}

impl Latency {
    fn scenarios(&mut self, what: &str, subjects: &[(&str, &str)]) {
        self.scenario(what, "1 client", 1, subjects);
        self.scenario(what, "8 clients", 8, subjects);
    }

    fn scenario(&mut self, what: &str, of: &str, clients: usize, subjects: &[(&str, &str)]) {
        let title = format!("{what}, {of}");
        let (rounds, seconds) = if self.bench.quick { (4, 0.3) } else { (48, 0.8) };
        let renewals = "SELECT renewals FROM idgen_status";
        let before: i64 = value(&mut self.bench.control, renewals);
        let mut all = vec![Vec::new(); subjects.len()];
        let numbered =
            subjects.iter().zip(0..).map(|((name, statement), number)| (name, (number, statement)));
        let numbered: Vec<(_, (usize, _))> = numbered.collect();
        let barred = turns(&title, rounds, &numbered, |(number, statement)| {
            let statements = vec![statement.to_string(); clients];
            let taken = at_once(&self.bench.server, &statements, 1.0, seconds).latencies;
            all[*number].push(taken.clone());
            [percentiles(taken)[3]]
        });
        self.renewals.push(value::<i64>(&mut self.bench.control, renewals) - before);

        for ((name, _), rounds) in subjects.iter().zip(all) {
            let latencies = rounds[1..].concat(); // without the warm-up
            let mut row = vec![title.clone(), (*name).to_owned(), number(latencies.len() as f64)];
            let values = percentiles(latencies);
            row.extend(values.map(|ms| format!("{ms:.3}")));
            row.extend([spread(barred.of(name)[0]), ratio(barred.ratio(name, subjects[1].0))]);
            self.rows.push(row);
            if [INSERTS[0].0, INSERTS[1].0].contains(name) {
                let standby = if what.ends_with("standby") { ", standby" } else { "" };
                let name = format!("{name}, {clients}{standby}");
                self.lines.push(Line(name, values.to_vec()));
            }
        }
        if subjects == INSERTS {
            let what = format!("{title} | identity");
            self.bench.report.demand(&what, "at most 1.05", &[barred.ratio("idgen", "identity")]);
        }
    }

    fn single_inserts(&mut self) {
        let single = if self.bench.quick { 2 } else { 10 };
        let Bench { server, control, .. } = &mut self.bench;
        let after_pause = turns("an insert after a pause", single, &INSERTS[..2], |insert| {
            let statement = control.prepare(insert).expect("a statement");
            // This is longer than the default of `idgen.reserve_ahead`, so that no window is left.
            sleep(Duration::from_millis(1200));
            [seconds(|| assert_eq!(control.execute(&statement, &[]).expect("a row"), 1)) * 1e3]
        });
        // Measures from the death of a backend, after which PostgreSQL restarts, until the first insert is committed.
        let after_crash = turns("the first insert after a crash", single, &FIRST, |insert| {
            // After a crash, ids run ahead of the clock. Without this pause, an insert would have to wait for it.
            sleep(Duration::from_millis(2500));
            // This makes the window reach as far ahead as it can.
            sql(control, "CHECKPOINT");
            sql(control, "SELECT count(snowflake_next_id(5)) FROM thousand");
            let mut victim = connect(server);
            let insert = |mut client: Client| client.batch_execute(insert);
            let seconds = seconds(|| {
                // The shell's parent is the backend.
                victim.batch_execute("COPY (SELECT) TO PROGRAM 'kill -9 $PPID'").expect_err("a crash");
                while Client::connect(server, NoTls).and_then(insert).is_err() {
                    sleep(Duration::from_millis(1));
                }
            });
            *control = connect(server);
            [seconds * 1e3]
        });
        let rows = [("after a pause", after_pause), ("after a crash", after_crash)];
        let rows = rows.iter().flat_map(|(what, taken)| {
            taken.0.iter().map(move |(name, [ms])| [format!("{what}: {name}"), spread(*ms)])
        });
        self.bench.report.put("single inserts", &table("what | ms", rows));
    }

    /// Gives the server a standby for which commits wait.
    fn attach(&mut self, start_standby: &str) {
        let started = Command::new("bash").args(["-c", start_standby]).status().expect("a shell");
        assert!(started.success(), "{start_standby} failed");
        let control = &mut self.bench.control;
        set(control, &[("synchronous_standby_names", "*")]);
        let attached = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        while value::<i64>(control, attached) == 0 {
            sleep(Duration::from_millis(50));
        }
        sql(control, "CHECKPOINT");
    }

    fn put(mut self) {
        let heads = HEADS.join(" | ");
        let heads = format!("what | key | count | {heads} | 99.9 % of a round | ratio to identity");
        self.renewals.sort_unstable();
        let [least, .., most] = self.renewals[..] else { panic!("no scenario was measured") };
        let renewed = format!("\nThe mark was renewed {least} to {most} times in each of these runs.\n");
        let report = &mut self.bench.report;
        report.put("latency", &(table(&heads, self.rows) + &renewed));
        let axis = ("ms (logarithmic)", 0.01, 1e3);
        let title = "An insert of one row, with its commit";
        let places = HEADS.map(String::from);
        plot(&report.plot("latency.svg"), title, axis, "of all inserts", &places, &self.lines);
        report.finish("latency");
    }
}
