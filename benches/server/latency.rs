//! How long a call and an insert of one row take, from the median to the worst, beside an identity column:
//! `make bench-latency`.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use postgres::{Client, NoTls};

use crate::measure::{self, Spread};
use crate::plots::Line;
use crate::report::{self, Bar};
use crate::{plots, sql, systems};

/// How long the run takes.
struct Scale {
    rounds: usize,
    /// How long the clients of a subject are at work in a round, in seconds.
    seconds: f64,
    /// Inserts after a pause, and crashes.
    single: usize,
}

const FULL: Scale = Scale { rounds: 48, seconds: 0.8, single: 10 };
const QUICK: Scale = Scale { rounds: 4, seconds: 0.3, single: 2 };

/// Of what latencies are shown, in percent; the last is the worst.
const PERCENTILES: [f64; 6] = [50.0, 90.0, 99.0, 99.9, 99.99, 100.0];
/// Where the bar is.
const BARRED: f64 = 99.9;
const BAR: f64 = 1.05;
const CLIENTS: [usize; 2] = [1, 8];
/// Longer than the default of `idgen.reserve_ahead`, so that no window is left.
const PAUSE: Duration = Duration::from_millis(1200);

/// What is measured against each other. An identity column comes twice: how far its two figures are apart is noise.
const INSERTS: [(&str, &str); 3] = [
    (IDGEN, "INSERT INTO rows_idgen (n) VALUES (1)"),
    (IDENTITY, "INSERT INTO rows_identity (n) VALUES (1)"),
    (AGAIN, "INSERT INTO rows_again (n) VALUES (1)"),
];
const CALLS: [(&str, &str); 2] =
    [("snowflake_next_id", "SELECT snowflake_next_id(5)"), ("nextval", "SELECT nextval('numbers')")];
/// What is done first after a crash.
const FIRST: [(&str, &str); 3] =
    [INSERTS[0], INSERTS[1], ("idgen, js", "INSERT INTO rows_js (n) VALUES (1)")];
const IDGEN: &str = "idgen";
const IDENTITY: &str = "identity";
const AGAIN: &str = "identity, once more";

const SET_UP: &str = "
    CREATE TABLE rows_idgen (id bigint PRIMARY KEY DEFAULT snowflake_next_id(5), n integer);
    CREATE TABLE rows_js (id bigint PRIMARY KEY DEFAULT snowflake_next_id_js(5), n integer);
    CREATE TABLE rows_identity (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n integer);
    CREATE TABLE rows_again (LIKE rows_identity INCLUDING ALL)";

/// What the clients of a subject have waited, in nanoseconds.
struct Latencies {
    all: Histogram<u64>,
    /// [`BARRED`] of each round, in milliseconds.
    rounds: Vec<f64>,
}

impl Latencies {
    fn new() -> Latencies {
        Latencies { all: histogram(), rounds: Vec::new() }
    }

    /// In milliseconds.
    fn at(&self, percentile: f64) -> f64 {
        self.all.value_at_percentile(percentile) as f64 / 1e6
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new(3).expect("a histogram")
}

/// Subjects that were measured with as many clients, in one way.
struct Scenario {
    what: &'static str,
    clients: usize,
    subjects: Vec<(&'static str, Latencies)>,
    /// Renewals of the mark meanwhile.
    renewals: i64,
}

impl Scenario {
    fn title(&self) -> String {
        format!("{}, {} client{}", self.what, self.clients, if self.clients == 1 { "" } else { "s" })
    }

    fn of(&self, name: &str) -> &Latencies {
        &self.subjects.iter().find(|(subject, _)| *subject == name).unwrap_or_else(|| panic!("no {name}")).1
    }

    /// [`BARRED`] of a subject, of an identity column's: the median of the rounds, for a stall of the machine falls
    /// into the turn of one subject, and a few of them are all that lies beyond such a percentile.
    fn ratio(&self, name: &str) -> f64 {
        let median = |name| Spread::of(self.of(name).rounds.clone()).median;
        median(name) / median(IDENTITY)
    }
}

struct Bench {
    scale: Scale,
    server: String,
    control: Client,
    start: Instant,
}

/// Measures all, and writes the part of the page and its plots.
pub fn run(quick: bool, server: String, start_standby: &str) {
    let scale = if quick { QUICK } else { FULL };
    let mut control = Client::connect(&server, NoTls).expect("the server of scripts/bench");
    sql(&mut control, systems::SET_UP);
    sql(&mut control, SET_UP);
    sql(&mut control, "VACUUM ANALYZE");
    let machine = report::machine(&mut control);
    let mut bench = Bench { scale, server, control, start: Instant::now() };

    let mut calls = Vec::new();
    let mut inserts = Vec::new();
    for clients in CLIENTS {
        calls.push(bench.scenario("a call", clients, &CALLS));
    }
    for clients in CLIENTS {
        inserts.push(bench.scenario("an insert", clients, &INSERTS));
    }
    let seldom = bench.seldom();
    let crashes = bench.crashes();
    bench.attach(start_standby);
    for clients in CLIENTS {
        inserts.push(bench.scenario("an insert, a synchronous standby", clients, &INSERTS));
    }
    let text = section(&bench, &machine, &calls, &inserts, &seldom, &crashes);
    draw(&report::out(quick).join("plots"), &inserts);
    report::put_part(quick, report::LATENCY, "latency.md", &text);
    println!("\n== after {} s", bench.start.elapsed().as_secs());
}

impl Bench {
    fn renewals(&mut self) -> i64 {
        self.control.query_one("SELECT renewals FROM idgen_status", &[]).expect("a row").get(0)
    }

    /// All subjects take turns in each round, which each begins with another one; the first round only warms up.
    fn scenario(
        &mut self,
        what: &'static str,
        clients: usize,
        subjects: &[(&'static str, &str)],
    ) -> Scenario {
        println!("\n== {what}, {clients} clients: {BARRED} % in ms");
        let mut connections: Vec<_> = (0..clients)
            .map(|_| Client::connect(&self.server, NoTls).expect("a connection"))
            .map(|mut client| {
                client.batch_execute(measure::SESSION).expect("settings of the session");
                client
            })
            .collect();
        let mut taken: Vec<_> = subjects.iter().map(|(name, _)| (*name, Latencies::new())).collect();
        let before = self.renewals();
        for round in 0..=self.scale.rounds {
            for turn in 0..subjects.len() {
                let subject = (turn + round) % subjects.len();
                let all = work(&mut connections, subjects[subject].1, self.scale.seconds);
                if round > 0 {
                    let latencies = &mut taken[subject].1;
                    latencies.rounds.push(all.value_at_percentile(BARRED) as f64 / 1e6);
                    latencies.all.add(all).expect("latencies");
                }
            }
        }
        let after = self.renewals();
        for (name, latencies) in &taken {
            println!(
                "   {name}: {} in all, {:.3}; the worst {:.3}",
                latencies.all.len(),
                latencies.at(BARRED),
                latencies.at(100.0)
            );
        }
        Scenario { what, clients, subjects: taken, renewals: after - before }
    }

    /// An insert after a pause in which the window of the mark has run out, in milliseconds.
    fn seldom(&mut self) -> Vec<(&'static str, Spread)> {
        println!("\n== an insert after {} ms without any", PAUSE.as_millis());
        let subjects = &INSERTS[..2];
        let statements: Vec<_> =
            subjects.iter().map(|(_, text)| self.control.prepare(text).expect("a statement")).collect();
        let mut taken = vec![Vec::new(); subjects.len()];
        for round in 0..=self.scale.single {
            thread::sleep(PAUSE);
            for turn in 0..subjects.len() {
                let subject = (turn + round) % subjects.len();
                let before = Instant::now();
                self.control.execute(&statements[subject], &[]).expect("rows");
                if round > 0 {
                    taken[subject].push(before.elapsed().as_secs_f64() * 1e3);
                }
            }
        }
        spreads(subjects, taken)
    }

    /// From the death of a backend, after which PostgreSQL starts itself anew, until the first of each kind of key is
    /// committed, in milliseconds.
    fn crashes(&mut self) -> Vec<(&'static str, Spread)> {
        println!("\n== from a crash to the first insert");
        let mut taken = vec![Vec::new(); FIRST.len()];
        for round in 0..self.scale.single {
            for turn in 0..FIRST.len() {
                let subject = (turn + round) % FIRST.len();
                // After a crash ids run ahead of the clock, and one that comes soon would have to wait for that.
                thread::sleep(Duration::from_millis(2500));
                // The window is as far ahead as it gets.
                sql(&mut self.control, "CHECKPOINT");
                sql(&mut self.control, "SELECT count(snowflake_next_id(5)) FROM thousand");
                let mut victim = Client::connect(&self.server, NoTls).expect("a connection");
                let before = Instant::now();
                // The shell's parent is the backend.
                victim.batch_execute("COPY (SELECT) TO PROGRAM 'kill -9 $PPID'").expect_err("a crash");
                while Client::connect(&self.server, NoTls)
                    .and_then(|mut client| client.batch_execute(FIRST[subject].1))
                    .is_err()
                {
                    thread::sleep(Duration::from_millis(1));
                }
                taken[subject].push(before.elapsed().as_secs_f64() * 1e3);
                self.control = Client::connect(&self.server, NoTls).expect("a connection");
            }
        }
        spreads(&FIRST, taken)
    }

    /// Gives the server a standby, and has commits wait for it.
    fn attach(&mut self, start_standby: &str) {
        println!("\n== a standby");
        let started = Command::new("bash").args(["-c", start_standby]).status().expect("a shell");
        assert!(started.success(), "{start_standby}");
        sql(&mut self.control, "ALTER SYSTEM SET synchronous_standby_names = '*'");
        sql(&mut self.control, "SELECT pg_reload_conf()");
        let attached = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        while self.control.query_one(attached, &[]).expect("a row").get::<_, i64>(0) == 0 {
            thread::sleep(Duration::from_millis(50));
        }
        sql(&mut self.control, "CHECKPOINT");
    }
}

/// What a statement takes, by all clients at once. The first of each is not counted: it follows a pause.
fn work(connections: &mut [Client], statement: &str, seconds: f64) -> Histogram<u64> {
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let one = |client: &mut Client| {
        let statement = client.prepare(statement).expect("a statement");
        client.execute(&statement, &[]).expect("rows");
        let mut all = histogram();
        let mut before = Instant::now();
        while before < end {
            client.execute(&statement, &[]).expect("rows");
            let after = Instant::now();
            all.record(u64::try_from((after - before).as_nanos()).expect("nanoseconds")).expect("a latency");
            before = after;
        }
        all
    };
    thread::scope(|scope| {
        let threads: Vec<_> = connections.iter_mut().map(|client| scope.spawn(move || one(client))).collect();
        let mut taken = histogram();
        for thread in threads {
            taken.add(thread.join().expect("a client")).expect("latencies");
        }
        taken
    })
}

fn spreads(subjects: &[(&'static str, &str)], taken: Vec<Vec<f64>>) -> Vec<(&'static str, Spread)> {
    let spreads: Vec<_> =
        subjects.iter().zip(taken).map(|((name, _), values)| (*name, Spread::of(values))).collect();
    for (name, spread) in &spreads {
        println!("   {name}: {:.3} ms", spread.median);
    }
    spreads
}

fn percentile(percentile: f64) -> String {
    match percentile {
        50.0 => "median".into(),
        100.0 => "worst".into(),
        _ => format!("{percentile} %"),
    }
}

fn draw(folder: &Path, inserts: &[Scenario]) {
    let places = PERCENTILES.map(percentile);
    let named: Vec<_> = inserts
        .iter()
        .flat_map(|scenario| {
            let standby = if scenario.what.ends_with("standby") { ", standby" } else { "" };
            [IDGEN, IDENTITY]
                .map(|name| (format!("{name}, {}{standby}", scenario.clients), scenario.of(name)))
        })
        .collect();
    let lines: Vec<_> = named
        .iter()
        .map(|(name, latencies)| Line::Measured(name, PERCENTILES.map(|at| latencies.at(at)).to_vec()))
        .collect();
    plots::latency(folder, &places, &lines);
}

fn section(
    bench: &Bench,
    machine: &str,
    calls: &[Scenario],
    inserts: &[Scenario],
    seldom: &[(&str, Spread)],
    crashes: &[(&str, Spread)],
) -> String {
    let mut text = String::new();
    let mut line = |line: &str| text.push_str(&report::wrapped(line));
    let Scale { rounds, seconds, single, .. } = bench.scale;
    line("## How long one takes\n");
    line("![Latency of an insert](plots/latency.svg)\n");
    line(&format!(
        "Written by `make bench-latency`. {machine} One run took {} minutes on a server with PostgreSQL's defaults, \
         `fsync` included. Each client sends a prepared statement, either a call or the insert of one row with its \
         commit, and waits for the answer before it sends the next. The subjects take turns of {seconds} s in \
         {rounds} rounds.\n",
        bench.start.elapsed().as_secs().div_ceil(60),
    ));
    line(&format!(
        "Each target is for the {BARRED} % with idgen, divided by that with identity, as medians over the rounds: a \
         stall of the machine spoils only the round that it hits. The identity column is measured twice under two \
         names, and the ratio of the two shows the noise. In the order of the targets it is {}.\n",
        inserts.iter().map(|scenario| format!("{:.3}", scenario.ratio(AGAIN))).collect::<Vec<_>>().join(", ")
    ));
    let bars: Vec<_> =
        inserts.iter().map(|scenario| Bar::at_most(&scenario.title(), BAR, scenario.ratio(IDGEN))).collect();
    report::bars(&mut line, &bars);
    let heads: Vec<_> = PERCENTILES.map(percentile).to_vec();
    line("\nAll figures are in milliseconds:\n");
    line(&format!("| what | key | count | {} | {BARRED} % of a round |", heads.join(" | ")));
    line(&format!("|---|---|---|{}---|", "---|".repeat(heads.len())));
    let scenarios = || calls.iter().chain(inserts);
    for scenario in scenarios() {
        let mut title = scenario.title();
        for (name, latencies) in &scenario.subjects {
            let cells = PERCENTILES.map(|at| format!("{:.3}", latencies.at(at)));
            let count = report::number(latencies.all.len() as f64);
            let Spread { median, least, greatest } = Spread::of(latencies.rounds.clone());
            line(&format!(
                "| {title} | {name} | {count} | {} | {median:.3} ({least:.3}–{greatest:.3}) |",
                cells.join(" | ")
            ));
            title.clear();
        }
    }
    let renewals = Spread::of(scenarios().map(|scenario| scenario.renewals as f64).collect());
    line(&format!(
        "\nThe mark was renewed {} to {} times in each of these runs.",
        renewals.least, renewals.greatest
    ));
    line(
        "\nEvery insert waits for its commit to be flushed, with an identity column as with idgen. The worst case of \
         both is therefore a slow flush, or a machine with more runnable processes than processors. An insert waits \
         for a flush of the mark as well if the window is used up, after a pause or a start, or if only a quarter of \
         it is left and nothing has flushed the mark since it was written at half of the window.\n",
    );
    line(&format!(
        "Single inserts, {single} of each kind. Those after a pause follow {} ms without any insert, in which the \
         window runs out. Those after a crash are measured from the crash until the commit, recovery included:\n",
        PAUSE.as_millis()
    ));
    line("| what | ms |\n|---|---|");
    for (what, taken) in [("after a pause", seldom), ("after a crash", crashes)] {
        for (name, spread) in taken {
            line(&format!("| {what}: {name} | {} |", report::spread(*spread)));
        }
    }
    text
}
