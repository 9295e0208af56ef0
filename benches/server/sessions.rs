//! The cost of many sessions, and the predictions of a model for many cores: `make bench-sessions`.

use std::fs;
use std::hint::spin_loop;
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use postgres::Client;

use crate::measure::{Spread, Taken, at_once, seconds, timed, turns};
use crate::report::{cores, number, ratio, spread, table};
use crate::{Bench, connect, set, sql, value};

const CONNECTIONS: [usize; 5] = [1, 8, 64, 512, 2000];
/// The statements per second of all connections together: each of 2000 connections waits for a second between
/// statements.
const RATE: usize = 2000;
const MINT: &str = "SELECT snowflake_next_id(5)";
const NOTHING: &str = "SELECT 1";
const STATEMENTS: [(&str, &str); 3] =
    [("idgen", MINT), ("nextval", "SELECT nextval('numbers')"), ("`SELECT 1`", NOTHING)];
const BURST: usize = 500;
const READERS: usize = 8;

/// The default number of ids in a lease.
const LEASE: f64 = 64.0;
const LARGE: [usize; 3] = [16, 64, 192];
const SHARDS: usize = 64;

/// Measures everything, and writes its part of the page.
pub fn run(mut bench: Bench, pool: &str) {
    sql(&mut bench.control, "CREATE SEQUENCE numbers");
    sql(&mut bench.control, "CREATE TABLE million AS SELECT n FROM generate_series(1, 1000000) AS n");
    sql(&mut bench.control, "VACUUM ANALYZE");
    connections(&mut bench, pool);
    first_ids(&mut bench);
    memory(&mut bench);
    many_cores(&mut bench);
    // This comes last, because it mints so far ahead of the clock that everything after it would have to wait.
    horizon(&mut bench);
    bench.report.finish("sessions");
}

fn rounds(bench: &Bench, number: usize) -> usize {
    if bench.quick { number.div_ceil(5) } else { number }
}

/// Measures the time of a statement, by the number of connections.
fn connections(bench: &mut Bench, pool: &str) {
    let direct = bench.server.clone();
    let through = |n| (format!("{n} through pgbouncer, idgen"), (pool.to_owned(), n, MINT));
    let mut subjects: Vec<_> = CONNECTIONS
        .iter()
        .flat_map(|n| {
            STATEMENTS.map(|(name, statement)| (format!("{n}, {name}"), (direct.clone(), *n, statement)))
        })
        .collect();
    subjects.extend([512, 2000].map(through));
    let time = if bench.quick { 1 } else { 6 };
    let taken = turns("connections", rounds(bench, 3), &subjects, |(server, n, statement)| {
        think(bench, server, *n, statement, time)
    });
    let rows = taken
        .0
        .iter()
        .map(|(name, figures)| [name.clone()].into_iter().chain(figures.map(spread)).collect::<Vec<_>>());
    bench.report.put("sessions", &table("connections | median, µs | 99 % | 99.9 %", rows));
}

/// Runs pgbench. Returns the median, the 99th and the 99.9th percentile of the time of a statement, in microseconds.
fn think(bench: &Bench, server: &str, n: usize, statement: &str, time: usize) -> [f64; 3] {
    let folder = ".build/bench/sessions";
    _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).expect(folder);
    let script = format!("{folder}/script");
    fs::write(&script, format!("{statement};\n")).expect("a script");
    let mut pgbench = Command::new(bench.programs.join("pgbench"));
    pgbench.args(["-n", "--log", "-f", &script, &format!("--log-prefix={folder}/log")]);
    pgbench.args([
        format!("-c{n}"),
        format!("-j{}", n.min(2)),
        // With a duration, pgbench would include the time in which it connects.
        format!("-t{}", (RATE * time).div_ceil(n)),
        format!("--rate={RATE}"),
    ]);
    let output = pgbench.arg(server).output().expect("pgbench");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut times = Vec::new();
    for file in fs::read_dir(folder).expect(folder).flatten() {
        if file.file_name().to_string_lossy().starts_with("log") {
            let text = fs::read_to_string(file.path()).expect("a log");
            // The time of a transaction begins when it was due. The last column is its delay at the start.
            times.extend(text.lines().map(|line| {
                let columns: Vec<f64> = line.split(' ').map(|column| column.parse().expect(line)).collect();
                columns[2] - columns[6]
            }));
        }
    }
    assert!(!times.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    times.sort_by(f64::total_cmp);
    [0.5, 0.99, 0.999].map(|part| times[((times.len() - 1) as f64 * part) as usize])
}

fn first_ids(bench: &mut Bench) {
    let taken = turns("first ids", rounds(bench, 10), &[(MINT, MINT), (NOTHING, NOTHING)], |statement| {
        [burst(&bench.server, &mut bench.control, BURST, statement)]
    });
    let singles = turns("first statements", rounds(bench, 100), &STATEMENTS, |statement| {
        let mut client = connect(&bench.server);
        [seconds(|| sql(&mut client, statement)) * 1e3]
    });
    let bursts = taken.0.iter().map(|(name, [ms])| {
        [format!("{BURST} connections at once, until each has its answer: `{name}`"), spread(*ms)]
    });
    let singles = singles
        .0
        .iter()
        .map(|(name, [ms])| [format!("the first statement of a connection: {name}"), spread(*ms)]);
    bench.report.put("first ids", &table("what | ms", bursts.chain(singles)));
}

/// Opens many connections at once. Returns the milliseconds until each has received the answer to a statement.
pub fn burst(server: &str, control: &mut Client, connections: usize, statement: &str) -> f64 {
    // The connections of a pooler stay open.
    let open = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'";
    let before: i64 = value(control, open);
    let barrier = Barrier::new(connections);
    let connect_and_ask = || {
        barrier.wait();
        let start = Instant::now();
        let mut client = connect(server);
        sql(&mut client, statement);
        (start, Instant::now(), client) // open until all have their answers
    };
    let answered: Vec<_> = scope(|scope| {
        let threads: Vec<_> = (0..connections).map(|_| scope.spawn(connect_and_ask)).collect();
        threads.into_iter().map(|thread| thread.join().expect("a client")).collect()
    });
    let start = answered.iter().map(|(start, ..)| *start).min().expect("a client");
    let end = answered.iter().map(|(_, end, _)| *end).max().expect("a client");
    drop(answered);
    // Backends that are still ending would slow down the next burst.
    while value::<i64>(control, open) > before {
        sleep(Duration::from_millis(1));
    }
    (end - start).as_secs_f64() * 1e3
}

/// The private memory of a backend.
fn memory(bench: &mut Bench) {
    let taken = turns("memory", rounds(bench, 20), &STATEMENTS, |statement| {
        let mut client = connect(&bench.server);
        let pid: i32 = value(&mut client, "SELECT pg_backend_pid()");
        let before = anonymous(pid);
        for _ in 0..1000 {
            sql(&mut client, statement);
        }
        [anonymous(pid) - before]
    });
    let rows = taken.0.iter().map(|(name, [kb])| [name.clone(), spread(*kb)]);
    bench.report.put(
        "memory",
        &table("a new connection's own memory after 1000 statements, less that before | kB", rows),
    );
}

/// The memory of a process that it shares with no file and no other process, in kB.
fn anonymous(pid: i32) -> f64 {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).expect(&path);
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("RssAnon");
    line.trim().trim_end_matches(" kB").parse().expect(line)
}

/// Measures how many ids a backend for each core mints while others request the horizon.
fn horizon(bench: &mut Bench) {
    set(&mut bench.control, &[("idgen.max_ahead", "1h"), ("idgen.reserve_ahead", "3s")]);
    let time = if bench.quick { 0.3 } else { 2.0 };
    let subjects = [("no reader", None), ("each every 10 ms", Some(10)), ("each without a pause", Some(0))];
    let taken = turns("readers of the horizon", rounds(bench, 5), &subjects, |pause| {
        let server = &bench.server;
        let is_over = AtomicBool::new(false);
        let read = || {
            let mut client = connect(server);
            while !is_over.load(Ordering::Relaxed) {
                sql(&mut client, "SELECT snowflake_safe_horizon()");
                sleep(Duration::from_millis(pause.unwrap_or_default()));
            }
        };
        scope(|scope| {
            (0..if pause.is_some() { READERS } else { 0 }).for_each(|_| _ = scope.spawn(read));
            let load = at_once(server, &load(cores(), |shard| shard.to_string()), 1e6, time);
            is_over.store(true, Ordering::Relaxed);
            [load.ids_per_s / 1e6, load.ids_per_s / 1e6 / load.cores]
        })
    });
    let rows = taken.0.iter().map(|(name, [all, a_core])| [name.clone(), spread(*all), spread(*a_core)]);
    let heads = format!(
        "{READERS} readers of the horizon | M ids/s of {} backends | M ids for each second of their CPU",
        cores()
    );
    bench.report.put("readers", &table(&heads, rows));
}

/// A statement that makes a million calls for each backend, for the shards given by an expression of the backend's
/// number and the row `n`.
fn load(backends: usize, shard: impl Fn(usize) -> String) -> Vec<String> {
    (0..backends)
        .map(|backend| format!("SELECT count(snowflake_next_id({})) FROM million", shard(backend)))
        .collect()
}

/// The model: its constants, measured here, and its predictions for more cores than this machine has.
fn many_cores(bench: &mut Bench) {
    let subjects = [("scan", "1"), ("one", "snowflake_next_id(5)"), ("each", "snowflake_next_id(n & 8191)")];
    let taken = turns("constants", rounds(bench, 5), &subjects, |counted| {
        [timed(&mut bench.control, &format!("SELECT count({counted}) FROM million"))[0] * 1e3]
    });
    let [scan, one, each] = ["scan", "one", "each"].map(|name| taken.median(name));
    let line = Spread::of((0..5).map(|_| cache_line()).collect());
    let lock = each - one;
    let rows = [
        ("a row of the scan", number(scan)),
        ("a call that has a lease", number(one - scan)),
        ("a lease: the shard's lock, its slot, and a line that is not in the cache", number(lock)),
        ("a cache line moved from one core to the other", spread(line)),
    ];
    let rows = rows.map(|(what, ns)| [what.to_owned(), ns]);
    bench.report.put("constants", &table("what | ns", rows));

    // A core takes this long for an id if no other core has the data that it needs. A lease moves the cache lines of
    // its slot and lock.
    let a_lease = lock + line.median;
    let shares = one + a_lease / LEASE;
    let own = one + lock / LEASE;
    // Shards are used in the order of their slots, so the processor prefetches the lines.
    let round_robin = each;
    let computed = |cores: usize| {
        let of = |ns: f64| cores as f64 / ns * 1e9;
        // Two atomic operations of a lock move its line twice, and only one core has it at a time.
        let held = LEASE / (lock + 2.0 * line.median) * 1e9;
        let many = if cores <= SHARDS { of(own) } else { of(shares).min(held * SHARDS as f64) };
        [of(shares).min(held), many, of(round_robin)].map(|rate| rate / 1e6)
    };
    set(&mut bench.control, &[("idgen.max_ahead", "1h"), ("idgen.reserve_ahead", "3s")]);
    let time = if bench.quick { 0.3 } else { 1.0 };
    let here: Vec<usize> = (1..=cores()).collect();
    let subjects: Vec<_> = here
        .iter()
        .flat_map(|n| {
            let shards: [fn(usize) -> String; 3] =
                [|_| "6".into(), |n| (100 + n).to_string(), |_| "n & 8191".into()];
            shards.map(|shard| (format!("{n}"), load(*n, shard)))
        })
        .enumerate()
        .map(|(place, (n, statements))| (format!("{n}/{}", place % 3), statements))
        .collect();
    let measured: Taken<1> = turns("points", rounds(bench, 5), &subjects, |statements| {
        [at_once(&bench.server, statements, 1e6, time).ids_per_s / 1e6]
    });
    let mut rows: Vec<Vec<String>> = Vec::new();
    for n in &here {
        let figures = [0, 1, 2].map(|place| measured.median(&format!("{n}/{place}")));
        let cells = figures.map(number).into_iter();
        rows.push([format!("{n}, measured")].into_iter().chain(cells).collect());
    }
    for n in here.iter().chain(&LARGE) {
        let cells = computed(*n).map(number).into_iter();
        rows.push([format!("{n}, computed")].into_iter().chain(cells).collect());
    }
    let heads = "cores | one shard, M ids/s | 64 shards | round robin over 8192";
    bench.report.put("cores of a model", &table(heads, rows));
    let last = *here.last().expect("a core");
    let errors = [0, 1, 2].map(|place| {
        let measured = measured.median(&format!("{last}/{place}"));
        (computed(last)[place] / measured).max(measured / computed(last)[place])
    });
    let what = format!("the model on {last} cores, the larger by the smaller | what was measured there");
    bench.report.demand(&what, "at most 1.25", &errors);
    println!("   model beside measurement: {}", errors.map(ratio).join(", "));
}

/// The nanoseconds in which a cache line moves from one core to another: half of a round trip.
fn cache_line() -> f64 {
    const TRIPS: u32 = 1_000_000;
    let turn = AtomicU32::new(0);
    let play = |mine: u32| {
        let mut now = mine;
        while now < 2 * TRIPS {
            while turn.load(Ordering::Acquire) != now {
                spin_loop();
            }
            turn.store(now + 1, Ordering::Release);
            now += 2;
        }
    };
    let time = seconds(|| {
        scope(|scope| {
            scope.spawn(|| play(0));
            play(1);
        });
    });
    time * 1e9 / f64::from(2 * TRIPS)
}
