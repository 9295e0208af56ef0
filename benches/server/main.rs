//! The cost of idgen on a real server, compared with other ways to make keys. scripts/bench starts the servers and runs
//! this. Every ratio is one of medians from the same run.

mod calls;
mod keys;
mod latency;
mod measure;
mod plots;
mod preload;
mod report;
mod scale;
mod sessions;
mod systems;

use std::env::{args, set_current_dir, var};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use postgres::types::FromSqlOwned;
use postgres::{Client, NoTls};

/// Settings of each session. With these, one backend makes a call for each row, and reads rows in the order of
/// insertion.
const SESSION: &str = "options='-c jit=off -c max_parallel_workers_per_gather=0 -c synchronize_seqscans=off'";

/// A server to measure.
struct Bench {
    server: String,
    /// The folder of PostgreSQL's programs.
    programs: PathBuf,
    control: Client,
    quick: bool,
    report: report::Report,
}

fn main() {
    // cargo starts a benchmark in the folder of its package.
    set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).expect("the top folder");
    let variable = |name: &str| var(name).unwrap_or_else(|_| panic!("{name} is not set: run `make bench`"));
    let quick = var("QUICK").is_ok_and(|quick| !quick.is_empty());
    let has = |kind| args().any(|argument| argument == kind);
    let server = variable("IDGEN_BENCH_SERVER");
    let server = if has("scale") { server } else { format!("{server} {SESSION}") };
    let programs = PathBuf::from(variable("IDGEN_PG_BIN"));
    let mut control = connect(&server);
    sql(&mut control, "CREATE EXTENSION idgen");
    let report = report::Report::new(quick, &mut control);
    let bench = Bench { server, programs, control, quick, report };
    if has("scale") {
        scale::run(bench);
    } else if has("latency") {
        latency::run(bench, &variable("IDGEN_BENCH_STANDBY"));
    } else if has("keys") {
        keys::run(bench, &variable("IDGEN_BENCH_RESTART"));
    } else if has("preload") {
        preload::run(bench, &variable("IDGEN_BENCH_NOT_PRELOADED"));
    } else if has("sessions") {
        sessions::run(bench, &variable("IDGEN_BENCH_POOL"));
    } else {
        calls::run(bench);
    }
}

fn connect(server: &str) -> Client {
    Client::connect(server, NoTls).expect("a server of scripts/bench")
}

fn sql(client: &mut Client, text: &str) {
    client.batch_execute(text).unwrap_or_else(|error| panic!("{text}: {error}"));
}

/// The single value that a query returns.
fn value<T: FromSqlOwned>(client: &mut Client, query: &str) -> T {
    client.query_one(query, &[]).unwrap_or_else(|error| panic!("{query}: {error}")).get(0)
}

/// Changes settings for all sessions.
fn set(client: &mut Client, settings: &[(&str, &str)]) {
    for (name, value) in settings {
        sql(client, &format!("ALTER SYSTEM SET {name} = '{value}'"));
    }
    sql(client, "SELECT pg_reload_conf()");
    while settings.iter().any(|(name, new)| value::<String>(client, &format!("SHOW {name}")) != *new) {
        sleep(Duration::from_millis(10));
    }
}
