//! How long a call and an insert of one row take, from the median to the worst, beside an identity column:
//! `make bench-latency`.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use postgres::{Client, NoTls};

use crate::measure::{Taken, Work, at_once, turns};
use crate::plots::{self, Axis, Line};
use crate::report::{Report, number, ratio, spread, table};
use crate::{connect, sql, systems, value};

/// The percentiles that are shown, of which the last is the worst latency.
const PERCENTILES: [f64; 6] = [50.0, 90.0, 99.0, 99.9, 99.99, 100.0];
const HEADS: [&str; 6] = ["median", "90 %", "99 %", "99.9 %", "99.99 %", "worst"];
/// The percentile that has a requirement.
const BARRED: f64 = 99.9;
/// Longer than the default of `idgen.reserve_ahead`, so that no window is left.
const PAUSE: Duration = Duration::from_millis(1200);

/// The second subject is what the others are compared with. The inserts have it twice: the ratio of its two figures is
/// noise.
const CALLS: [(&str, &str); 2] =
    [("snowflake_next_id", "SELECT snowflake_next_id(5)"), ("nextval", "SELECT nextval('numbers')")];
const INSERTS: [(&str, &str); 3] = [
    ("idgen", "INSERT INTO rows_idgen (n) VALUES (1)"),
    ("identity", "INSERT INTO rows_identity (n) VALUES (1)"),
    ("identity, once more", "INSERT INTO rows_again (n) VALUES (1)"),
];
/// The first statements after a crash.
const FIRST: [(&str, &str); 3] =
    [INSERTS[0], INSERTS[1], ("idgen, js", "INSERT INTO rows_js (n) VALUES (1)")];

const SET_UP: &str = "
    CREATE TABLE rows_idgen (id bigint PRIMARY KEY DEFAULT snowflake_next_id(5), n integer);
    CREATE TABLE rows_js (id bigint PRIMARY KEY DEFAULT snowflake_next_id_js(5), n integer);
    CREATE TABLE rows_identity (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n integer);
    CREATE TABLE rows_again (LIKE rows_identity INCLUDING ALL)";

struct Bench {
    server: String,
    control: Client,
    rounds: usize,
    /// How long the clients of a subject are measured in a round.
    seconds: f64,
    /// The number of inserts after a pause, and of crashes.
    single: usize,
    report: Report,
    rows: Vec<Vec<String>>,
    lines: Vec<Line>,
    /// The renewals of the mark during each scenario.
    renewals: Vec<i64>,
}

/// Measures everything, and writes its part of the page and the plot.
pub fn run(quick: bool, server: String, start_standby: &str) {
    let mut control = connect(&server);
    sql(&mut control, systems::SET_UP);
    sql(&mut control, SET_UP);
    sql(&mut control, "VACUUM ANALYZE");
    let report = Report::new(quick, &mut control);
    let (rounds, seconds, single) = if quick { (4, 0.3, 2) } else { (48, 0.8, 10) };
    let (rows, lines, renewals) = Default::default();
    let mut bench = Bench { server, control, rounds, seconds, single, report, rows, lines, renewals };
    for clients in [1, 8] {
        bench.scenario("a call", clients, &CALLS);
    }
    for clients in [1, 8] {
        bench.scenario("an insert", clients, &INSERTS);
    }
    let after_pause = bench.after_pause();
    let after_crash = bench.after_crash();
    bench.attach(start_standby);
    for clients in [1, 8] {
        bench.scenario("an insert, a synchronous standby", clients, &INSERTS);
    }
    bench.put(after_pause, after_crash);
}

/// A percentile of values in order.
fn percentile(values: &[f64], percent: f64) -> f64 {
    let rank = (values.len() as f64 * percent / 100.0).ceil() as usize;
    values[rank.saturating_sub(1)]
}

impl Bench {
    fn renewals(&mut self) -> i64 {
        value(&mut self.control, "SELECT renewals FROM idgen_status")
    }

    fn scenario(&mut self, what: &str, clients: usize, subjects: &[(&str, &str)]) {
        let title = format!("{what}, {clients} client{}", if clients == 1 { "" } else { "s" });
        let before = self.renewals();
        let mut latencies = vec![Vec::new(); subjects.len()];
        let names = subjects.iter().map(|subject| subject.0);
        let barred = turns(&title, self.rounds, names, |subject| {
            let work = Work { statement: subjects[subject].1.to_owned(), ids: 1 };
            let mut taken = at_once(&self.server, &vec![work; clients], self.seconds).latencies;
            taken.sort_by(f64::total_cmp);
            let barred = percentile(&taken, BARRED);
            latencies[subject].push(taken);
            [barred]
        });
        let after = self.renewals();
        self.renewals.push(after - before);

        let compared_with = subjects[1].0;
        for ((name, _), rounds) in subjects.iter().zip(latencies) {
            let mut all = rounds[1..].concat(); // without the warm-up
            all.sort_by(f64::total_cmp);
            let values = PERCENTILES.map(|percent| percentile(&all, percent));
            let mut row = vec![title.clone(), (*name).to_owned(), number(all.len() as f64)];
            row.extend(values.map(|ms| format!("{ms:.3}")));
            row.extend([spread(barred.of(name)[0]), ratio(barred.ratio(name, compared_with))]);
            self.rows.push(row);
            if [INSERTS[0].0, INSERTS[1].0].contains(name) {
                let standby = if what.ends_with("standby") { ", standby" } else { "" };
                self.lines.push(Line(format!("{name}, {clients}{standby}"), values.to_vec(), true));
            }
        }
        if subjects == INSERTS {
            self.report.at_most(&title, 1.05, &[barred.ratio("idgen", "identity")]);
        }
    }

    /// Milliseconds of an insert after a pause in which the window of the mark has run out.
    fn after_pause(&mut self) -> Taken<1> {
        let subjects = &INSERTS[..2];
        turns("an insert after a pause", self.single, subjects.iter().map(|subject| subject.0), |subject| {
            let statement = self.control.prepare(subjects[subject].1).expect("a statement");
            thread::sleep(PAUSE);
            let start = Instant::now();
            self.control.execute(&statement, &[]).expect("rows");
            [start.elapsed().as_secs_f64() * 1e3]
        })
    }

    /// Milliseconds from the death of a backend, after which PostgreSQL restarts, until the first insert is committed.
    fn after_crash(&mut self) -> Taken<1> {
        turns("the first insert after a crash", self.single, FIRST.map(|first| first.0), |subject| {
            // After a crash, ids run ahead of the clock. Without this pause, an insert would have to wait for it.
            thread::sleep(Duration::from_millis(2500));
            // Now the window reaches as far ahead as it can.
            sql(&mut self.control, "CHECKPOINT");
            sql(&mut self.control, "SELECT count(snowflake_next_id(5)) FROM thousand");
            let mut victim = connect(&self.server);
            let start = Instant::now();
            // The shell's parent is the backend.
            victim.batch_execute("COPY (SELECT) TO PROGRAM 'kill -9 $PPID'").expect_err("a crash");
            while Client::connect(&self.server, NoTls)
                .and_then(|mut client| client.batch_execute(FIRST[subject].1))
                .is_err()
            {
                thread::sleep(Duration::from_millis(1));
            }
            let ms = start.elapsed().as_secs_f64() * 1e3;
            self.control = connect(&self.server);
            [ms]
        })
    }

    /// Gives the server a standby for which commits wait.
    fn attach(&mut self, start_standby: &str) {
        let started = Command::new("bash").args(["-c", start_standby]).status().expect("a shell");
        assert!(started.success(), "{start_standby} failed");
        sql(&mut self.control, "ALTER SYSTEM SET synchronous_standby_names = '*'");
        sql(&mut self.control, "SELECT pg_reload_conf()");
        let attached = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        while value::<i64>(&mut self.control, attached) == 0 {
            thread::sleep(Duration::from_millis(50));
        }
        sql(&mut self.control, "CHECKPOINT");
    }

    fn put(mut self, after_pause: Taken<1>, after_crash: Taken<1>) {
        let heads = HEADS.join(" | ");
        let heads = format!("what | key | count | {heads} | 99.9 % of a round | of an identity column's");
        let [least, most] = [self.renewals.iter().min(), self.renewals.iter().max()];
        let renewed = least.zip(most).map_or(String::new(), |(least, most)| {
            format!("\nThe mark was renewed {least} to {most} times in each of these runs.\n")
        });
        self.report.put("latency", &(table(&heads, self.rows) + &renewed));
        let rows = [("after a pause", after_pause), ("after a crash", after_crash)];
        let rows = rows.into_iter().flat_map(|(what, taken)| {
            taken.0.into_iter().map(move |(name, [ms])| [format!("{what}: {name}"), spread(ms)])
        });
        self.report.put("single inserts", &table("what | ms", rows));
        let axis = Axis { name: "ms (logarithmic)", from: 0.01, upto: 1e3 };
        let path = self.report.plot("latency.svg");
        let title = "An insert of one row, with its commit";
        let places = HEADS.map(String::from);
        plots::lines(&path, title, &axis, "of all inserts", &places, &self.lines).expect("a plot");
        self.report.finish("latency");
    }
}
