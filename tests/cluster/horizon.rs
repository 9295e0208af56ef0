//! `snowflake_safe_horizon`: a reader up to the horizon misses nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use postgres::{Client, SimpleQueryMessage};

use crate::moment::within_seconds;
use crate::process::{client_program, lacks, preloads, release_bin, run, test_library};
use crate::server::processes::Process;
use crate::server::{Server, Sql, if_preloaded};
use crate::standbys::synchronous;

/// Writers keep their transactions open for a while after minting, so that rows do not become visible in the order of
/// their ids. Some transactions are rolled back, and some end with their connection.
fn write(server: &Server, seed: u64, done: &AtomicBool) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut client = server.connect();
    while !done.load(Ordering::Relaxed) {
        let shard = random.u32(0..4);
        client.run(&format!("BEGIN; INSERT INTO outbox VALUES (snowflake_next_id({shard}))"));
        thread::sleep(Duration::from_millis(random.u64(0..30)));
        client.run(&format!("SAVEPOINT s; INSERT INTO outbox VALUES (snowflake_next_id({shard}))"));
        match random.u32(0..10) {
            0 => client.run("ROLLBACK"),
            1 => client = server.connect(),
            2 => client.run("ROLLBACK TO s; COMMIT"),
            _ => client.run("COMMIT"),
        }
    }
}

/// The ids from `from` up to but not including `upto`.
fn rows(client: &mut Client, from: i64, upto: i64) -> Vec<i64> {
    client.column(&format!("SELECT id FROM outbox WHERE id >= {from} AND id < {upto} ORDER BY id"))
}

/// A reader that continues after the greatest id that it has seen loses rows that become visible later. A reader that
/// reads up to the horizon loses none, even if the clock is set back in the meantime.
#[test]
fn a_reader_up_to_the_horizon_misses_nothing() {
    let server = Server::start(if_preloaded(&["idgen.max_ahead = 10s"]));
    let mut client = server.connect();
    client.run("CREATE TABLE outbox (id bigint PRIMARY KEY)");
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
            let horizon: i64 = client.value("SELECT snowflake_safe_horizon()");
            assert!(horizon >= upto, "the horizon goes back from {upto} to {horizon}");
            safe.extend(rows(&mut client, upto, horizon));
            upto = horizon;
            thread::sleep(Duration::from_millis(5));
        }
        done.store(true, Ordering::Relaxed);
    });
    // Dropped connections end by themselves.
    server.wait_until(
        "SELECT count(*) = 0 FROM pg_stat_activity
         WHERE xact_start < now() AND backend_type = 'client backend'",
    );
    let upto = safe.last().copied().unwrap_or(0);
    let all: Vec<i64> = rows(&mut client, 0, i64::MAX);
    let settled: Vec<i64> = all.iter().copied().filter(|id| *id <= upto).collect();
    println!("{} rows, {} followed; the naive reader has {}", all.len(), safe.len(), naive.len());
    assert!(safe.len() > 100, "the horizon hardly moves: {} rows of {}", safe.len(), all.len());
    assert_eq!(safe, settled, "rows lost");
    let lost = all.iter().filter(|id| naive.last() >= Some(id) && !naive.contains(id)).count();
    assert!(lost > 0, "the naive reader has lost nothing, so the test shows nothing");
}

/// A transaction whose backend dies no longer holds the horizon back.
#[test]
fn a_terminated_backend_holds_no_horizon() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let mut other = server.connect();
    let pid: i32 = other.value("SELECT pg_backend_pid()");
    other.run("BEGIN");
    let id: i64 = other.value("SELECT snowflake_next_id(5)");
    let horizon = "SELECT snowflake_safe_horizon(), pg_sleep(0.02)";
    client.query_one(horizon, &[]).unwrap();
    assert!(client.value::<i64>(horizon) <= id, "an open transaction does not hold the horizon back");
    client.query_one("SELECT pg_terminate_backend($1, 5000)", &[&pid]).unwrap();
    assert!(client.value::<i64>(horizon) > id, "an ended transaction holds the horizon back");
}

const HORIZON: &str = "SELECT snowflake_safe_horizon()";

fn horizon(client: &mut Client) -> i64 {
    // The clock passes what was minted before.
    thread::sleep(Duration::from_millis(20));
    client.value(HORIZON)
}

/// Inserts a row, and returns a horizon past it.
fn horizon_past_a_row(client: &mut Client) -> i64 {
    let id: i64 = client.value("INSERT INTO outbox VALUES (snowflake_next_id(5)) RETURNING id");
    let passed = (0..1000).map(|_| horizon(client)).find(|upto| *upto > id);
    passed.unwrap_or_else(|| panic!("the horizon does not pass {id}"))
}

const OUTBOX: &str = "CREATE TABLE outbox (id bigint PRIMARY KEY)";

/// After a restart with the clock behind, the horizon has not gone back, so that the recipe of docs/cookbook.md
/// delivers no row twice.
#[test]
fn the_horizon_never_goes_back_over_a_restart() {
    let server = Server::start(&[]);
    server.run(OUTBOX);
    let (mut delivered, mut upto) = (Vec::new(), 0);
    for (stop, clock) in [("fast", -0.8), ("immediate", -1.6), ("fast", -60.0), ("immediate", -120.0)] {
        let mut client = server.connect();
        // With its clock a minute behind, the server mints nothing, and the horizon stays.
        let now = if clock > -100.0 { horizon_past_a_row(&mut client) } else { horizon(&mut client) };
        delivered.extend(rows(&mut client, upto, now));
        upto = now;
        drop(client);
        server.restart_at(stop, clock);
        let now = horizon(&mut server.reconnect());
        assert!(now >= upto, "a restart takes the horizon back from {upto} to {now}");
        delivered.extend(rows(&mut server.connect(), upto, now));
        upto = now;
    }
    assert_eq!(delivered, rows(&mut server.connect(), 0, upto), "each row once");
}

/// A failover to a synchronous standby does not take the horizon back either: every horizon is below a mark of the
/// standby. A server that starts from a mark that the standby may lack returns no horizon until the standby has it.
#[test]
fn the_horizon_never_goes_back_over_a_synchronous_failover() {
    let (primary, standby) = synchronous();
    primary.run(OUTBOX);
    let upto = horizon_past_a_row(&mut primary.connect());

    // The mark of the failing call is on the primary's disk alone, and the next run begins with it.
    standby.stop("fast");
    let mint = "SELECT snowflake_next_id(5)";
    let error = within_seconds(60, || primary.connect().batch_execute(mint).err()).expect("no standby");
    assert_eq!(error.code().unwrap().code(), "40001", "{error}");
    primary.restart_at("immediate", 0.0);
    let mut client = primary.reconnect();
    // If the call waited like a commit, it would never end.
    client.run("SET statement_timeout = '60s'");
    assert_eq!(client.code(HORIZON), "40001");
    standby.up();
    primary.wait_until("SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'");
    let now = horizon(&mut primary.connect());
    assert!(now >= upto, "from {upto} to {now}");

    standby.set_clock(-60.0);
    primary.kill();
    standby.promote();
    let then = horizon(&mut standby.reconnect());
    assert!(then >= now, "the failover takes the horizon back from {now} to {then}");
}

/// A horizon that rests on a mark from before synchronous standbys were configured is not returned until they have the
/// mark.
#[test]
fn the_horizon_waits_for_standbys_as_commits_do() {
    let server = Server::start(&["idgen.max_wait = 300ms"]);
    let mut client = server.connect();
    client.run(OUTBOX);
    let upto = horizon_past_a_row(&mut client);
    server.set("synchronous_standby_names", "twin");
    // Like commits, calls wait once the checkpointer has read the setting.
    let error = within_seconds(10, || client.query_one(HORIZON, &[]).err());
    let error = error.expect("no standby has the mark");
    assert_eq!(error.code().unwrap().code(), "40001", "{error}");
    let twin = server.standby("twin");
    // A standby that already has everything may report this as late as after ten seconds.
    let now = (0..1000).find_map(|_| client.query_one(HORIZON, &[]).ok());
    let now: i64 = now.expect("the standby has the mark").get(0);
    assert!(now >= upto, "from {upto} to {now}");
    twin.set_clock(-60.0);
    server.kill();
    twin.promote();
    twin.make_asynchronous();
    let then = horizon(&mut twin.reconnect());
    assert!(then >= now, "the failover takes the horizon back from {now} to {then}");
}

/// The position that a reader on a standby gets from the primary, by the recipe of docs/cookbook.md.
fn position_to_replay(client: &mut Client) -> String {
    const POSITION: &str = "pg_logical_emit_message(false, 'follow', '')";
    assert!(include_str!("../../docs/cookbook.md").contains(&format!("SELECT {POSITION} AS position")));
    client.value(&format!("SELECT {POSITION}::text"))
}

/// By the recipe of docs/cookbook.md, a reader on a standby misses nothing, although rows may be visible on the
/// primary, and below the horizon, while the records of their commits are still in the WAL buffers.
#[test]
fn a_reader_on_a_standby_misses_nothing() {
    let primary = Server::start(&["synchronous_commit = off", "wal_writer_delay = 1s"]);
    let standby = primary.standby("reader");
    let mut client = primary.connect();
    client.run(OUTBOX);
    for count in 1..=5 {
        let upto = horizon_past_a_row(&mut client);
        let position = position_to_replay(&mut client);
        standby.wait_until(&format!("SELECT pg_last_wal_replay_lsn() >= '{position}'"));
        assert_eq!(rows(&mut standby.connect(), 0, upto).len(), count, "a row is not there yet");
    }
}

/// The recipe also works while the primary is idle at the start of a WAL page, as after a switch for `archive_timeout`.
/// Its insert position is then behind the page's header, which standbys do not replay until the primary writes more.
#[test]
fn a_reader_on_a_standby_of_an_idle_primary_waits_for_nobody() {
    let primary = Server::start(&["autovacuum = off"]);
    let standby = primary.standby("reader");
    let mut client = primary.connect();
    client.run(&format!("{OUTBOX}; CREATE ROLE reader LOGIN"));
    let upto = horizon_past_a_row(&mut client);
    // These processes write at times, which would end this state.
    let writers =
        "SELECT pid FROM pg_stat_activity WHERE backend_type IN ('background writer', 'checkpointer')";
    let writers: Vec<Process> = client.column(writers).into_iter().filter_map(Process::find).collect();
    assert!(writers.len() == 2 && writers.iter().all(Process::stop), "{writers:?}");

    // The first run of the query may write, because it reads the catalog.
    let place = "SELECT pg_current_wal_insert_lsn()::text,
                        (pg_current_wal_insert_lsn() - '0/0')::bigint % current_setting('wal_block_size')::integer";
    let idle = (0..100).find_map(|_| {
        client.run("SELECT pg_switch_wal()");
        Some(client.row::<(String, i64)>(place)).filter(|(_, header)| (1..=40).contains(header))
    });
    let (insert, header) = idle.expect("the start of a page");
    standby.wait_until(&format!("SELECT pg_last_wal_replay_lsn() >= '{insert}'::pg_lsn - {header}::numeric"));
    let there: bool = standby.answer(&format!("SELECT pg_last_wal_replay_lsn() >= '{insert}'"));
    assert!(!there, "this state does not tell one position from the other");

    // Any role may get the position.
    let mut reader = primary.connect_as("reader");
    reader.run("SET default_transaction_read_only = on");
    let position = position_to_replay(&mut reader);
    standby.wait_until(&format!("SELECT pg_last_wal_replay_lsn() >= '{position}'"));
    assert_eq!(rows(&mut standby.connect(), 0, upto).len(), 1);
    writers.iter().for_each(Process::go_on);
}

/// A reader that waits for a table that is being rewritten sees the rows if its statement is plain or prepared by the
/// driver. EXECUTE takes its snapshot before the wait, as docs/cookbook.md warns.
#[test]
fn a_reader_waits_for_a_table_that_is_rewritten() {
    const COUNT: &str = "SELECT count(*) FROM outbox";
    fn count(client: &mut Client, statement: &str) -> i64 {
        let said = client.simple_query(statement).unwrap();
        let count = said.iter().find_map(|said| match said {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        count.expect("a row").parse().unwrap()
    }
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.run(&format!(
        "{OUTBOX}; INSERT INTO outbox SELECT snowflake_next_id(5) FROM generate_series(1, 100)"
    ));
    let [mut plain, mut by_driver, mut by_sql] = [(); 3].map(|()| server.connect());
    let prepared = by_driver.prepare(COUNT).unwrap();
    by_sql.run(&format!("PREPARE counted AS {COUNT}"));

    client.run("BEGIN; ALTER TABLE outbox ALTER id TYPE numeric");
    let plain = thread::spawn(move || count(&mut plain, COUNT));
    let by_driver = thread::spawn(move || by_driver.query_one(&prepared, &[]).unwrap().get::<_, i64>(0));
    let by_sql = thread::spawn(move || count(&mut by_sql, "EXECUTE counted"));
    server.wait_until("SELECT count(*) = 3 FROM pg_locks WHERE NOT granted");
    client.run("COMMIT");
    let counts = [plain, by_driver, by_sql].map(|reader| reader.join().unwrap());
    assert_eq!(counts, [100, 100, 0]);
}

/// Creates a table into which others can commit rows only when this session releases an advisory lock.
fn held_table(keeper: &mut Client) {
    keeper.run(
        "CREATE TABLE held (n integer, id bigint DEFAULT snowflake_next_id(5));
             CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql
                 AS 'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END';
             CREATE CONSTRAINT TRIGGER hold AFTER INSERT ON held DEFERRABLE INITIALLY DEFERRED
                 FOR EACH ROW EXECUTE FUNCTION hold();
             SELECT pg_advisory_lock(1)",
    );
}

/// Whether a transaction is about to commit a row of the table.
const HELD: &str = "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";

/// Some libraries commit a part of a transaction elsewhere, in their callback at its end. Its ids are not settled
/// before, whatever the order of the libraries.
#[test]
fn what_other_libraries_commit_at_the_end_is_settled_after() {
    let Some(library) = test_library() else {
        return lacks("the package with the headers of the server");
    };
    for order in [["idgen", &library], [&library, "idgen"]] {
        // The writer's session loads the other libraries in the same order.
        let preloaded: Vec<_> = order.into_iter().take_while(|name| preloads() || *name != "idgen").collect();
        let server = Server::start(&[&format!("shared_preload_libraries = '{}'", preloaded.join(","))]);
        let mut keeper = server.connect();
        held_table(&mut keeper);
        let function = format!(
            "CREATE FUNCTION late_commit(psql text, sql text) RETURNS void AS '{library}' LANGUAGE C"
        );
        keeper.run(&function);
        let psql = format!("{}/psql -X -q -d '{}'", release_bin(), server.target("postgres"));
        let mut writer = server.connect();
        writer.run("BEGIN");
        let id: i64 = writer.value("SELECT snowflake_next_id(5)");
        let sql = format!("INSERT INTO held (id) VALUES ({id})");
        writer.query_one("SELECT late_commit($1, $2)", &[&psql, &sql]).unwrap();
        let commit = thread::spawn(move || writer.batch_execute("COMMIT"));
        server.wait_until(HELD);
        let before = horizon(&mut server.connect());
        assert!(before <= id, "{before} passes {id} before its row is there, with {order:?}");
        keeper.run("SELECT pg_advisory_unlock(1)");
        commit.join().unwrap().unwrap();
        assert_eq!(keeper.value::<i64>("SELECT id FROM held"), id);
        assert!(horizon(&mut keeper) > id, "the horizon does not pass it afterwards");
    }
}

/// Other processes than client sessions mint too, and hold the horizon back until their transactions have ended:
/// background workers, here one that applies replicated rows, and WAL senders that run SQL.
#[test]
fn workers_and_wal_senders_hold_the_horizon() {
    let server = Server::start(&["wal_level = logical"]);
    let mut primary = server.connect();
    primary.run(
        "CREATE TABLE held (n integer);
             CREATE PUBLICATION own FOR TABLE held",
    );
    primary.run("SELECT pg_create_logical_replication_slot('own', 'pgoutput')");
    primary.run("CREATE DATABASE other");
    let mut keeper = server.connect_to("other");
    keeper.run("CREATE EXTENSION idgen");
    held_table(&mut keeper);
    let subscribe = format!(
        "ALTER TABLE held ENABLE ALWAYS TRIGGER hold;
         CREATE SUBSCRIPTION own CONNECTION '{}' PUBLICATION own
             WITH (create_slot = false, copy_data = false)",
        server.target("postgres")
    );
    keeper.run(&subscribe);

    let held = |keeper: &mut Client, who: &str| {
        server.wait_until(HELD);
        let query = "SELECT backend_type FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE NOT granted";
        let minting: String = keeper.value(query);
        assert!(minting.contains(who), "{minting}");
        let before = horizon(keeper);
        keeper.run("SELECT pg_advisory_unlock(1)");
        server.wait_until("SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'advisory'");
        let id: i64 = keeper.value("DELETE FROM held RETURNING id");
        assert!(before <= id, "{before} passes {id} of a {who} before its row is there");
        assert!(horizon(keeper) > id, "the horizon does not pass it afterwards");
        keeper.run("SELECT pg_advisory_lock(1)");
    };
    // On the subscriber, the column that is not replicated gets its default.
    primary.run("INSERT INTO held VALUES (1)");
    held(&mut keeper, "worker");

    let mut psql = client_program("psql");
    psql.args(["-X", "-q", "-d", &format!("{} replication=database", server.target("other"))]);
    psql.args(["-c", "INSERT INTO held DEFAULT VALUES"]);
    let sender = thread::spawn(move || run(psql));
    held(&mut keeper, "walsender");
    sender.join().unwrap();
    keeper.run("DROP SUBSCRIPTION own");
}
