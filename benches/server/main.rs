//! What idgen costs on a real server, compared with other ways to make keys. scripts/bench starts the servers and
//! runs this. Every ratio is one of medians that were taken in one run.

mod calls;
mod latency;
mod measure;
mod plots;
mod report;
mod scale;
mod systems;

use std::path::PathBuf;

use postgres::types::FromSqlOwned;
use postgres::{Client, NoTls};

/// Of each session in which calls are compared: one backend makes a call for each row, and reads rows in the order in
/// which they were made.
const SESSION: &str = "options='-c jit=off -c max_parallel_workers_per_gather=0 -c synchronize_seqscans=off'";

fn main() {
    // cargo starts a benchmark in the folder of its package.
    std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).expect("the top folder");
    let variable =
        |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run `make bench`"));
    let quick = std::env::var("QUICK").is_ok_and(|quick| !quick.is_empty());
    let server = variable("IDGEN_BENCH_SERVER");
    let programs = PathBuf::from(variable("IDGEN_PG_BIN"));
    let has = |kind| std::env::args().any(|argument| argument == kind);
    if has("scale") {
        scale::run(quick, server, variable("IDGEN_BENCH_TARGET"), programs);
    } else if has("latency") {
        latency::run(quick, format!("{server} {SESSION}"), &variable("IDGEN_BENCH_STANDBY"));
    } else {
        calls::run(quick, format!("{server} {SESSION}"), programs);
    }
}

fn connect(server: &str) -> Client {
    Client::connect(server, NoTls).expect("a server of scripts/bench")
}

fn sql(client: &mut Client, text: &str) {
    client.batch_execute(text).unwrap_or_else(|error| panic!("{text}: {error}"));
}

/// The one value that a query returns.
fn value<T: FromSqlOwned>(client: &mut Client, query: &str) -> T {
    client.query_one(query, &[]).unwrap_or_else(|error| panic!("{query}: {error}")).get(0)
}
