//! `snowflake_safe_horizon`: who reads up to it misses nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use postgres::Client;

use crate::server::Server;

/// Writers hold their transactions open for a while after they have minted, so that rows become visible in
/// another order than that of their ids. Some roll back, some end with their connection.
fn write(server: &Server, seed: u64, done: &AtomicBool) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut client = server.connect();
    while !done.load(Ordering::Relaxed) {
        let shard = random.u32(0..4);
        client
            .batch_execute(&format!("BEGIN; INSERT INTO outbox VALUES (snowflake_next_id({shard}))"))
            .unwrap();
        thread::sleep(Duration::from_millis(random.u64(0..30)));
        let again = format!("SAVEPOINT s; INSERT INTO outbox VALUES (snowflake_next_id({shard}))");
        client.batch_execute(&again).unwrap();
        match random.u32(0..10) {
            0 => client.batch_execute("ROLLBACK").unwrap(),
            1 => client = server.connect(),
            2 => client.batch_execute("ROLLBACK TO s; COMMIT").unwrap(),
            _ => client.batch_execute("COMMIT").unwrap(),
        }
    }
}

/// The ids from one up to, not including, another.
fn rows(client: &mut Client, from: i64, upto: i64) -> Vec<i64> {
    let query = "SELECT id FROM outbox WHERE id >= $1 AND id < $2 ORDER BY id";
    client.query(query, &[&from, &upto]).unwrap().iter().map(|row| row.get(0)).collect()
}

/// A reader that goes on after the greatest id it has seen loses the rows that become visible later; one that
/// reads up to the horizon loses none, also where the clock is set back meanwhile.
#[test]
fn a_reader_up_to_the_horizon_misses_nothing() {
    let server = Server::start(&["idgen.max_ahead = 10s"]);
    let mut client = server.connect();
    client.batch_execute("CREATE TABLE outbox (id bigint PRIMARY KEY)").unwrap();
    let done = AtomicBool::new(false);
    let (mut naive, mut safe) = (Vec::new(), Vec::new());
    thread::scope(|scope| {
        for seed in 0..8 {
            let (server, done) = (&server, &done);
            scope.spawn(move || write(server, seed, done));
        }
        let start = Instant::now();
        let (mut seen, mut upto, mut set_back) = (0, 0, false);
        while start.elapsed() < Duration::from_secs(4) {
            if !set_back && start.elapsed() > Duration::from_secs(2) {
                server.set_clock(-0.5);
                set_back = true;
            }
            naive.extend(rows(&mut client, seen + 1, i64::MAX));
            seen = naive.last().copied().unwrap_or(0);
            let horizon: i64 = client.query_one("SELECT snowflake_safe_horizon()", &[]).unwrap().get(0);
            assert!(horizon >= upto, "the horizon goes back from {upto} to {horizon}");
            safe.extend(rows(&mut client, upto, horizon));
            upto = horizon;
            thread::sleep(Duration::from_millis(5));
        }
        done.store(true, Ordering::Relaxed);
    });
    // Connections that were merely dropped end on their own.
    server.wait_until(
        "SELECT count(*) = 0 FROM pg_stat_activity
         WHERE xact_start < now() AND backend_type = 'client backend'",
    );
    let upto = safe.last().copied().unwrap_or(0);
    let all: Vec<i64> = rows(&mut client, 0, i64::MAX);
    let settled: Vec<i64> = all.iter().copied().filter(|id| *id <= upto).collect();
    println!("{} rows, {} followed; the naive reader has {}", all.len(), safe.len(), naive.len());
    assert!(safe.len() > 100, "the horizon moves: {} rows of {}", safe.len(), all.len());
    assert_eq!(safe, settled, "rows lost");
    let lost = all.iter().filter(|id| naive.last() >= Some(id) && !naive.contains(id)).count();
    assert!(lost > 0, "the test can see a lost row");
}

/// A transaction that ends by the death of its backend holds the horizon back no longer.
#[test]
fn a_terminated_backend_holds_no_horizon() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let mut other = server.connect();
    let pid: i32 = other.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0);
    other.batch_execute("BEGIN").unwrap();
    let id: i64 = other.query_one("SELECT snowflake_next_id(5)", &[]).unwrap().get(0);
    let horizon = "SELECT snowflake_safe_horizon(), pg_sleep(0.02)";
    client.query_one(horizon, &[]).unwrap();
    assert!(client.query_one(horizon, &[]).unwrap().get::<_, i64>(0) <= id, "it holds while it is open");
    client.query_one("SELECT pg_terminate_backend($1, 5000)", &[&pid]).unwrap();
    assert!(client.query_one(horizon, &[]).unwrap().get::<_, i64>(0) > id, "and no longer");
}
