//! Promise 1 through crashes at every point.

use std::time::{Duration, Instant};

use crate::clients::{Clients, Ledger};
use crate::process::preloads;
use crate::server::{Build, Server, Sql, if_preloaded};

/// `kill -9` of the postmaster, immediate shutdown, and `kill -9` of a minting backend, by turns. Ids are further ahead
/// of the clock than a restart takes, so that only the mark keeps them from being repeated.
#[test]
fn the_server_crashes_under_minting_clients() {
    let server = Server::start(if_preloaded(&["idgen.max_ahead = 60s"]));
    let mut ledger = Ledger::default();
    for round in 0..9_usize {
        let mut client = server.reconnect();
        let furthest: i64 = client.value("SELECT max(id) FROM snowflake_next_ids(9, 3000000) AS id");
        let clients = Clients::start(6, &server);
        clients.wait_for_ids(1500);
        match ["kill", "immediate", "of the backend"][round % 3] {
            "of the backend" => {
                let minting = "SELECT pid FROM pg_stat_activity
                               WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
                               ORDER BY state = 'active' DESC LIMIT 1";
                server.signal("KILL", client.value(minting));
                while client.batch_execute("SELECT 1").is_ok() {}
            }
            how => server.restart_at(how, 0.0),
        }
        let next: i64 = server.reconnect().value("SELECT snowflake_next_id(9)");
        assert!(next > furthest, "round {round}: {next} is not after {furthest}");
        clients.finish_after(1500, &mut ledger);
    }
    assert!(ledger.len() > 9 * 3000, "{}", ledger.len());
    assert_eq!(server.log().matches("was terminated by signal 9").count(), 3);
}

/// After a crash, ids that count in seconds begin a new second, at whatever point of a second the crash happens and
/// however far the clock is set back. Across all sessions, each id is greater than the previous ones.
#[test]
fn js_ids_increase_over_crashes() {
    // The mark is so little ahead that it is within the second of the ids.
    let server = Server::start(if_preloaded(&["idgen.reserve_ahead = 10ms"]));
    let mut last = 0;
    for round in 1..7_usize {
        for session in 0..3 {
            let sql = format!("SELECT snowflake_next_id_js(7) FROM generate_series(1, 100 + {session})");
            for id in server.reconnect().column::<i64>(&sql) {
                assert!(id > last, "round {round}: {id} after {last}");
                last = id;
            }
        }
        // The clock is set back by more than a restart takes.
        server.restart_at(["kill", "immediate"][round % 2], round as f64 * -1.7);
    }
}

/// A renewing backend is killed, or fails, at each point between deciding on a mark and publishing it: no id is
/// repeated, and minting continues.
#[test]
fn the_renewing_backend_dies_at_every_point() {
    let server = Server::start_build(Build::Faults, if_preloaded(&["idgen.reserve_ahead = 50ms"]));
    let mut ledger = Ledger::default();
    let mut standby = None;
    let points = ["before-wal", "after-insert", "after-flush", "before-publish", "before-acknowledge"];
    // With marks a second ahead, as without a preload, standbys have each mark before a call waits for it.
    let points = &points[..if preloads() { 5 } else { 4 }];
    for point in points {
        if *point == "before-acknowledge" {
            standby = Some(server.standby("twin"));
            server.make_synchronous("twin");
        }
        for how in ["error", "terminate", "kill"] {
            let clients = Clients::start(4, &server);
            clients.wait_for_ids(500);
            let (mut victim, mut witness) = (server.reconnect(), server.reconnect());
            victim.run(&format!("SET idgen.fault = '{point} {how}'"));
            println!("{how} {point}");
            // Only some of its calls hit the fault, because other backends renew too.
            let error = ledger.mint_until_refused(&mut victim, "SELECT snowflake_next_id(3)", 60);
            let code = error.code().map(|code| code.code());
            match how {
                "error" => assert_eq!(code, Some("XX000"), "{error}"),
                // The message may be lost with the connection.
                "terminate" => assert!(matches!(code, Some("57P01") | None), "{error}"),
                _ => {
                    assert_eq!(code, None, "{error}");
                    // Until all connections are cut off, backends mint as before the crash.
                    while witness.batch_execute("SELECT 1").is_ok() {}
                    server.reconnect();
                }
            }
            clients.finish_after(500, &mut ledger);
        }
    }
    assert_eq!(server.log().matches("was terminated by signal 9").count(), points.len());
    assert_eq!(
        server.log().matches("terminating connection due to administrator command").count(),
        points.len()
    );
    drop(standby);
}

/// An idle server writes no WAL for idgen, and a busy one a few small records, whatever the number of ids.
#[test]
fn the_mark_costs_little_wal() {
    let server = Server::start(&["autovacuum = off", "checkpoint_timeout = 1h"]);
    let mut client = server.connect();
    let mut wal = || client.value::<String>("SELECT pg_current_wal_insert_lsn()::text");
    let mut minter = server.connect();
    minter.run("SELECT snowflake_next_id(1)");
    let idle = wal();
    std::thread::sleep(Duration::from_secs(2));
    // The background writer may log the running transactions if there was any WAL.
    let after_idle = wal();
    let start = Instant::now();
    minter.run("SELECT count(snowflake_next_id(i % 500)) FROM generate_series(1, 4000000) AS i");
    let seconds = start.elapsed().as_secs_f64();
    let end = wal();
    let bytes =
        |from: &str, to: &str| server.value::<i64>(&format!("SELECT ('{to}'::pg_lsn - '{from}')::bigint"));
    assert!(bytes(&idle, &after_idle) < 1000, "idle: {} bytes", bytes(&idle, &after_idle));
    // Two records of 48 bytes a second, and some of the server itself.
    let most = 10_000 + 200 * seconds as i64;
    assert!(bytes(&after_idle, &end) < most, "4 M ids in {seconds} s: {} bytes", bytes(&after_idle, &end));
    let renewals: i64 = minter.value("SELECT renewals FROM idgen_status");
    assert!(renewals as f64 <= 4.0 + 3.0 * seconds, "{renewals} renewals in {seconds} s");

    // Eight clients renew no more often than one: about twice a second.
    let clients = Clients::start(8, &server);
    let start = Instant::now();
    std::thread::sleep(Duration::from_secs(4));
    let now: i64 = minter.value("SELECT renewals FROM idgen_status");
    let seconds = start.elapsed().as_secs_f64();
    clients.finish(&mut Ledger::default());
    let renewals = now - renewals;
    assert!(renewals as f64 <= 2.0 + 2.5 * seconds, "{renewals} renewals in {seconds} s");
}
