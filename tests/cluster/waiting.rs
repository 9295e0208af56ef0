//! Promise 4: waits are bounded, can be canceled, hold no lock, and are counted.

use std::thread;
use std::time::{Duration, Instant};

use postgres::Client;
use postgres::error::SqlState;

use crate::moment::is_reached;
use crate::server::{Build, PRELOAD, Server, Sql, Trouble};

/// Mints the ids of five minutes, of which the query reads one.
const AHEAD: &str = "SELECT snowflake_next_ids(7, 300000000) LIMIT 1";

/// A server whose shard 7 is minutes ahead of the clock, which is no longer allowed.
fn server_ahead() -> Server {
    let server = Server::start(&["idgen.max_ahead = 10min", "idgen.max_wait = 20s"]);
    server.connect().query_one(AHEAD, &[]).unwrap();
    server.set("idgen.max_ahead", "0");
    server
}

/// The SQLSTATE and the DETAIL of a call for shard 7, which must fail, and its duration.
fn fails(client: &mut Client) -> (SqlState, String, Duration) {
    let start = Instant::now();
    let error = client.error("SELECT snowflake_next_id(7)");
    (error.code().clone(), error.detail().unwrap_or_default().into(), start.elapsed())
}

#[test]
fn waits_end() {
    let server = server_ahead();

    let mut client = server.connect();
    client.run("SET statement_timeout = '300ms'");
    let (code, _, took) = fails(&mut client);
    assert_eq!(code, SqlState::QUERY_CANCELED, "statement_timeout");
    assert!(took < Duration::from_secs(5), "{took:?}");

    client.run("SET statement_timeout = 0; SET idgen.max_wait = '400ms'");
    let (code, detail, took) = fails(&mut client);
    assert_eq!(code, SqlState::T_R_SERIALIZATION_FAILURE, "idgen.max_wait");
    assert!(detail.contains("ahead of the clock; \"idgen.max_ahead\" allows 0 ms"), "{detail}");
    assert!(took >= Duration::from_millis(400) && took < Duration::from_secs(5), "{took:?}");

    client.run("SET idgen.max_wait = 0");
    assert_eq!(fails(&mut client).0, SqlState::T_R_SERIALIZATION_FAILURE, "no wait at all");

    let mut waiting = server.connect();
    let waiter = thread::spawn(move || fails(&mut waiting));
    let pid = server.until_waiting("IdgenClock");
    // While the call sleeps, its shard's lock is free, and other shards mint.
    client.query_one("SELECT * FROM idgen_shard_stats WHERE shard = 7", &[]).unwrap();
    client.query_one("SELECT snowflake_next_id(8)", &[]).unwrap();
    assert!(client.query_one("SELECT pg_cancel_backend($1)", &[&pid]).unwrap().get::<_, bool>(0));
    let (code, _, took) = waiter.join().unwrap();
    assert_eq!(code, SqlState::QUERY_CANCELED, "pg_cancel_backend");
    assert!(took < Duration::from_secs(10), "{took:?}");

    let stats = "SELECT waits, waited_ms FROM idgen_shard_stats WHERE shard = 7";
    let (waits, waited): (i64, f64) = client.row(stats);
    assert_eq!(waits, 4, "every wait is counted, a cancelled one too");
    assert!((700.0..30_000.0).contains(&waited), "{waited} ms");
}

/// A wait that is long enough ends with an id, once the clock is near.
#[test]
fn a_wait_ends_with_an_id() {
    let server = Server::start(&["idgen.max_ahead = 2s", "idgen.max_wait = 20s"]);
    let mut client = server.connect();
    client.run("SELECT count(*) FROM snowflake_next_ids(7, 2000000)");
    client.run("ALTER SYSTEM SET idgen.max_ahead = 0");
    client.run("SELECT pg_reload_conf(); SELECT pg_sleep(0.2)");
    let sql = "SELECT created_at <= clock_timestamp() FROM snowflake_next_id(7) AS id, snowflake_decode(id)";
    assert!(client.value::<bool>(sql), "the id is not ahead of the clock");
}

fn sleeps(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches:")).unwrap();
    line.split_whitespace().last().unwrap().parse().unwrap()
}

/// Calls that wait for a full shard form a queue, and each wakes when it is its turn. If all slept until the next
/// millisecond, nearly all would wake in vain: in a trial with 32 calls, a wait took thirteen sleeps.
#[test]
fn those_who_wait_for_a_full_shard_wake_once() {
    let server = Server::start(&["idgen.max_ahead = 0"]);
    let mut client = server.connect();
    // Batches are used because the clock of the tests is slow to read.
    let ids = "SELECT count(id) FROM generate_series(1, 500) AS n, snowflake_next_ids(7, 64 + 0 * n) AS id";
    let backends = [(); 32].map(|()| {
        let mut waiting = server.connect();
        thread::spawn(move || {
            let pid: i32 = waiting.value("SELECT pg_backend_pid()");
            let before = sleeps(pid);
            waiting.query_one(ids, &[]).unwrap();
            sleeps(pid) - before
        })
    });
    let slept: u64 = backends.into_iter().map(|backend| backend.join().unwrap()).sum();
    let (waits, leases): (i64, i64) =
        client.row("SELECT waits, leases FROM idgen_shard_stats WHERE shard = 7");
    println!("{slept} sleeps for {waits} waits and {leases} leases");
    assert!(waits > 1000, "the shard was full: {waits} waits");
    assert!(slept < 2 * waits as u64, "{slept} sleeps for {waits} waits");
}

/// A signal ends only one sleep of a waiting call. Otherwise the call would keep a processor busy until it ends.
#[test]
fn a_call_that_waits_sleeps_again_after_a_signal() {
    const SLEEPS: u64 = 10;
    let server = server_ahead();
    let mut waiting = server.connect();
    waiting.run("SET idgen.max_wait = '1h'");
    let waiter = thread::spawn(move || fails(&mut waiting));
    let pid = server.until_waiting("IdgenClock");
    server.signal("HUP", pid);
    let before = sleeps(pid);
    // A busy process never sleeps, whatever the machine does.
    let sleeps_again = is_reached(60, || sleeps(pid) >= before + SLEEPS);
    server.run(&format!("SELECT pg_cancel_backend({pid})"));
    assert_eq!(waiter.join().unwrap().0, SqlState::QUERY_CANCELED);
    assert!(sleeps_again, "it is busy while it waits");
}

/// Promise 4: `idgen.max_ahead` and `idgen.max_wait` do not allow six million ids. The batch is refused at once, with
/// the available number, and the shard does not change. A batch of that number succeeds.
#[test]
fn a_batch_that_cannot_be_had_is_refused_and_burns_nothing() {
    let server = Server::start(&[PRELOAD]);
    let mut client = server.connect();
    let error = client.error("SELECT count(*) FROM snowflake_next_ids(7, 6000000)");
    assert_eq!(error.code().code(), "22023", "{error:?}");
    assert_eq!(error.message(), "count 6000000 is more ids than one call can mint");
    // 1 s ahead, 7/8 of 5 s, and the current millisecond.
    assert!(error.detail().unwrap().contains("at most 5505024 now"), "{error:?}");
    let used = "SELECT count(*) FROM idgen_shard_stats WHERE shard = 7";
    assert_eq!(client.value::<i64>(used), 0, "neither an id nor a wait");

    // The same holds for a shard that has ids only at the very end of the wait.
    server.set("idgen.max_ahead", "9s");
    server.connect().query_one("SELECT snowflake_next_ids(8, 9000000) LIMIT 1", &[]).unwrap();
    server.set("idgen.max_ahead", "0");
    let sql = "SELECT ids FROM idgen_shard_stats WHERE shard = 8";
    client.run("SET idgen.max_wait = '8800ms'");
    assert_eq!(client.code("SELECT count(*) FROM snowflake_next_ids(8, 100000000)"), "22023");
    assert_eq!(client.value::<i64>(sql), 9_000_000);
    server.set("idgen.max_ahead", "1s");

    client.run("SET idgen.max_wait = '1h'");
    assert_eq!(client.value::<i64>("SELECT count(*) FROM snowflake_next_ids(7, 1100000)"), 1_100_000);
}

/// The SQLSTATE and the message of the error of a batch of shard 7, if it fails.
fn batch(client: &mut Client, count: i32) -> Option<String> {
    let error = client.query_one("SELECT count(*) FROM snowflake_next_ids(7, $1)", &[&count]).err()?;
    let error = error.as_db_error().unwrap_or_else(|| panic!("{error}"));
    Some(format!("{} {}", error.code().code(), error.message()))
}

const BATCHES_BEFORE: &str = "40001 shard 7 has other batches to mint first";

/// Promise 4: sessions that ask for more than a shard has get their batches one after the other, and those for which
/// there is not enough time are refused at once. If they shared the shard, each of the eight would need 20 seconds.
#[test]
fn batches_that_compete_are_given_whole_or_refused_at_once() {
    const COUNT: i32 = 2_600_000;
    let server = Server::start(&["idgen.max_wait = 12s"]);
    let sessions = [(); 8].map(|()| {
        let mut client = server.connect();
        thread::spawn(move || batch(&mut client, COUNT))
    });
    let ends = sessions.map(|session| session.join().unwrap());
    let given = ends.iter().filter(|end| end.is_none()).count();
    assert!(ends.iter().flatten().all(|refusal| refusal.starts_with(BATCHES_BEFORE)), "{ends:?}");
    // Each takes 2.5 of 11.5 seconds.
    assert!(given >= 4, "{ends:?}");
    let ids: i64 = server.value("SELECT ids FROM idgen_shard_stats WHERE shard = 7");
    assert_eq!(ids, given as i64 * i64::from(COUNT), "no ids are lost");
}

/// A waiting batch that is canceled, or whose session is terminated, leaves the queue.
#[test]
fn a_batch_that_is_given_up_leaves_the_queue() {
    let server = Server::start(&["idgen.max_wait = 1h"]);
    let [mut first, mut next] = [(); 2].map(|()| server.connect());
    let before = thread::spawn(move || batch(&mut first, 2_000_000_000));
    server.wait_until("SELECT count(*) > 0 FROM idgen_shard_stats WHERE shard = 7 AND ids > 0");
    // This number of ids is available after one of the other batches, but not after both.
    const COUNT: i32 = 1_000_000_000;
    for sql in ["SELECT pg_cancel_backend($1)", "SELECT pg_terminate_backend($1)"] {
        let mut second = server.connect();
        let pid: i32 = second.value("SELECT pg_backend_pid()");
        let waiting =
            thread::spawn(move || second.query_one("SELECT snowflake_next_ids(7, 1200000000)", &[]).is_err());
        let waits = "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Extension' AND pid =";
        server.wait_until(&format!("{waits} {pid}"));
        assert!(batch(&mut next, COUNT).is_some_and(|refusal| refusal.starts_with(BATCHES_BEFORE)));
        next.query_one(sql, &[&pid]).unwrap();
        assert!(waiting.join().unwrap());
        next.run("SET statement_timeout = '100ms'");
        let end = batch(&mut next, COUNT);
        assert!(end.is_some_and(|refusal| refusal.starts_with("57014")), "it waits, and is not refused");
        next.run("SET statement_timeout = 0");
    }
    let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity
                  WHERE query ~ 'snowflake_next_ids' AND pid <> pg_backend_pid()";
    next.run(cancel);
    before.join().unwrap();
}

/// Promise 4: a session whose process is stopped neither delays the batches of other sessions nor uses up their ids,
/// even if ids may not run ahead of the clock and so do not accumulate in the meantime.
#[test]
fn a_batch_of_a_stopped_process_keeps_nobody_waiting() {
    let server = Server::start(&["idgen.max_ahead = 0", "idgen.max_wait = 1min"]);
    let mut first = server.connect();
    let pid: i32 = first.value("SELECT pg_backend_pid()");
    let stopped =
        thread::spawn(move || first.query_one("SELECT snowflake_next_ids(7, 52000000)", &[]).is_err());
    server.wait_until("SELECT count(*) > 0 FROM idgen_shard_stats WHERE shard = 7 AND ids > 0");
    server.signal("STOP", pid);
    thread::sleep(Duration::from_millis(1500));
    let mut next = server.connect();
    // After the ids of the other session there would not be enough time for these.
    assert_eq!(batch(&mut next, 4_000_000), None);
    server.signal("CONT", pid);
    next.query_one("SELECT pg_cancel_backend($1)", &[&pid]).unwrap();
    stopped.join().unwrap();
}

/// A shard with more demand than ids reports this, and does not blame the clock.
#[test]
fn a_shard_at_its_ceiling_is_named() {
    let server = Server::start(&["idgen.max_ahead = 100ms", "idgen.max_wait = 0"]);
    // Mints all available ids until the next call comes in the same millisecond.
    let sql = "DO $$
               DECLARE most text;
               BEGIN
                   LOOP
                       BEGIN
                           PERFORM snowflake_next_ids(7, 2000000) LIMIT 1;
                       EXCEPTION WHEN invalid_parameter_value THEN
                           GET STACKED DIAGNOSTICS most = PG_EXCEPTION_DETAIL;
                       END;
                       most := substring(most FROM 'at most ([0-9]+) now');
                       PERFORM snowflake_next_ids(7, most::integer) LIMIT 1;
                       PERFORM snowflake_next_id(7);
                   END LOOP;
               END $$";
    let error = server.error(sql);
    assert_eq!(error.message(), "shard 7 has run out of ids for now", "{error:?}");
    assert_eq!(error.code(), &SqlState::T_R_SERIALIZATION_FAILURE);
}

/// Promise 4: even with a short window, a batch does not make a long series of renewals, for which a cancel would have
/// to wait.
#[test]
fn a_batch_renews_the_mark_once() {
    let server = Server::start(&["idgen.max_ahead = 1h", "idgen.reserve_ahead = 10ms"]);
    let mut client = server.connect();
    client.query_one(AHEAD, &[]).unwrap();
    let renewals: i64 = client.value("SELECT renewals FROM idgen_status");
    assert!(renewals <= 3, "{renewals} renewals");
}

/// As long as there is time, no call waits for the disk: at half of the window a call writes the next mark and leaves
/// the flush to others. On a slow machine that time may be over, so the test tries again.
#[test]
fn a_call_leaves_the_flush_to_others_while_there_is_time() {
    let server = Server::start_on_disk(Build::Release, &["idgen.reserve_ahead = 3s"]);
    let mut client = server.connect();
    let left = "SELECT window_left_ms FROM idgen_status";
    let mut clock = 0.0;
    let goes_on = (0..30).any(|_| {
        client.query_one("SELECT snowflake_next_id(5)", &[]).unwrap();
        server.wait_until(&format!("SELECT window_left_ms > 1500 FROM ({left}) AS s, snowflake_next_id(5)"));
        server.trouble(Trouble { stall_ms: 1000, calls: 1, ..Trouble::default() });
        // Now more than half of the window is over, but less than three quarters.
        clock += 1.6;
        server.set_clock(clock);
        let before: i64 = client.value(left);
        client.query_one("SELECT snowflake_next_id(5)", &[]).unwrap();
        // A wait for the disk would have renewed the window.
        (750..1500).contains(&before) && client.value::<i64>(left) < before
    });
    assert!(goes_on, "each call waits for the disk");
}

/// The next mark reaches the disk without the end of a transaction, because the WAL writer is notified.
#[test]
fn the_next_mark_is_flushed_without_a_commit() {
    // With these, other processes do not flush the WAL.
    let quiet = ["wal_level = minimal", "max_wal_senders = 0", "autovacuum = off", "checkpoint_timeout = 1d"];
    let server = Server::start(&[&quiet[..], &["idgen.reserve_ahead = 3s"]].concat());
    let mut client = server.connect();
    client.run("BEGIN; SELECT snowflake_next_id(5)");
    let written = "SELECT pg_current_wal_insert_lsn()::text";
    let before: String = client.value(written);
    // Now more than half of the window is over, but less than three quarters.
    server.set_clock(1.6);
    client.run("SELECT snowflake_next_id(5)");
    let mark: String = client.value(written);
    assert_ne!(mark, before, "no mark was written");
    server.wait_until(&format!("SELECT pg_current_wal_flush_lsn() >= '{mark}'"));
}
