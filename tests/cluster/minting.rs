//! Promises 1 and 2 while many backends mint at once.

use std::ops::Range;
use std::process::Stdio;
use std::sync::Mutex;
use std::thread;

use postgres::Client;

use crate::clients::{Ledger, at_once};
use crate::moment::{is_reached, within_seconds};
use crate::process::client_program;
use crate::server::{PRELOAD, Server, Sql};

const CLIENTS: usize = 8;
const IDS: usize = 200_000;

fn mint(client: &mut Client, expression: &str, count: usize) -> Vec<i64> {
    let mut ids = Vec::with_capacity(count);
    let statement =
        client.prepare(&format!("SELECT {expression} FROM generate_series(1, $1::integer) AS i")).unwrap();
    let sizes = [1, 1, 2, 7, 100, 1, 5000, 1000];
    for size in sizes.iter().cycle() {
        let size = (*size).min(count.saturating_sub(ids.len()));
        if size == 0 {
            break;
        }
        let rows = client.query(&statement, &[&(size as i32)]).unwrap();
        ids.extend(rows.iter().map(|row| row.get::<_, i64>(0)));
    }
    ids
}

fn shard_of(id: i64) -> i64 {
    id >> 10 & 8191
}

/// Checks that no id occurs twice, and that each client's ids increase.
fn assert_kept(clients: &[Vec<i64>]) {
    let mut ledger = Ledger::default();
    clients.iter().for_each(|ids| ledger.add(ids));
}

fn eight_clients(expression: &str, shards: Range<i64>) {
    let server = Server::start(&[]);
    let ids = at_once(0..CLIENTS, |_| mint(&mut server.connect(), expression, IDS));
    for ids in &ids {
        assert_eq!(ids.len(), IDS);
        assert!(ids.iter().all(|id| shards.contains(&shard_of(*id))));
        for shard in shards.clone() {
            assert!(ids.iter().filter(|id| shard_of(**id) == shard).count() > 1000, "shard {shard}");
        }
    }
    assert_kept(&ids);
}

/// Promise 1: concurrent backends. Promise 2: each backend's ids increase.
#[test]
fn eight_clients_on_one_shard() {
    eight_clients("snowflake_next_id(5)", 5..6);
}

/// Promises 1 and 2 over 64 shards, which every client visits in turn.
#[test]
fn eight_clients_on_64_shards() {
    eight_clients("snowflake_next_id(i % 64)", 0..64);
}

/// Promise 1: databases share the shards of their cluster. Batches and single calls mix.
#[test]
fn two_databases_on_one_shard() {
    let server = Server::start(&[]);
    server.run("CREATE DATABASE other");
    server.connect_to("other").run("CREATE EXTENSION idgen");
    let ids = at_once(0..CLIENTS, |number| {
        let expression = ["snowflake_next_id(5)", "snowflake_next_ids(5, 1 + i % 3)"][number / (CLIENTS / 2)];
        mint(&mut server.connect_to(["postgres", "other"][number % 2]), expression, 50_000)
    });
    assert!(ids.iter().all(|ids| ids.len() >= 50_000));
    assert_kept(&ids);
}

/// Promise 2: with `idgen.max_lease = 1` ids increase strictly across all backends. The lock makes each call end before
/// the next one begins.
#[test]
fn leases_of_one_are_in_strict_order() {
    let server = Server::start(&[]);
    let ids = Mutex::new(Vec::new());
    at_once(0..2, |_| {
        let mut client = server.connect();
        // An earlier, longer lease must not survive the SET.
        mint(&mut client, "snowflake_next_id(5)", 1000);
        client.run("SET idgen.max_lease = 1");
        let call = client.prepare("SELECT snowflake_next_id(5)").unwrap();
        let many = client.prepare("SELECT snowflake_next_id(5) FROM generate_series(1, 50)").unwrap();
        for round in 0..3000 {
            let mut ids = ids.lock().unwrap();
            let statement = if round % 10 == 0 { &many } else { &call };
            ids.extend(client.query(statement, &[]).unwrap().iter().map(|row| row.get::<_, i64>(0)));
        }
    });
    let ids = ids.into_inner().unwrap();
    assert_eq!(ids.len(), 2 * (2700 + 300 * 50));
    assert_kept(&[ids]);
}

/// The price for any number of connections, as docs/reference.md names it.
#[test]
fn shared_memory_is_as_large_as_the_pages_say() {
    let sizes = |max_connections: u32| {
        let server = Server::start(&[PRELOAD, &format!("max_connections = {max_connections}")]);
        let query = "SELECT size FROM pg_shmem_allocations WHERE name LIKE 'idgen%' ORDER BY name";
        server.connect().column::<i64>(query)
    };
    let (few, many) = (sizes(10), sizes(510));
    assert_eq!((few[0], many[0]), (549_312, 549_312));
    assert!(include_str!("../../docs/reference.md").contains("549,312 bytes"));
    assert_eq!((few.len(), many.len()), (2, 2));
    assert_eq!(many[1] - few[1], 500 * 40, "40 bytes for each connection");
}

/// Promises 1 and 2: a timer of PostgreSQL, whose handler reads the clock too, may go off at any point of a call.
#[test]
fn timers_go_off_in_calls() {
    let server = Server::start(&["client_connection_check_interval = 1ms"]);
    let mut client = server.connect();
    let pid = client.value("SELECT pg_backend_pid()");
    let query = "SELECT count(DISTINCT id), min(id), max(id) FROM
                 (SELECT snowflake_next_id(5) AS id FROM generate_series(1, 300000) OFFSET 0) AS minted";
    let minter = thread::spawn(move || {
        let mut last = 0;
        for _ in 0..20 {
            let (count, least, greatest): (i64, i64, i64) = client.row(query);
            assert_eq!(count, 300_000);
            assert!(least > last, "{least} after {last}");
            last = greatest;
        }
    });
    if !is_reached(300, || minter.is_finished()) {
        // A session that waits for its own lock accepts no other signal.
        server.signal("KILL", pid);
    }
    minter.join().unwrap();
}

/// A subscriber gives each replicated row an id: existing rows, which COPY loads, and later ones.
#[test]
fn each_replicated_row_gets_an_id() {
    let server = Server::start(&["wal_level = logical"]);
    let mut publisher = server.connect();
    publisher.run(
        "CREATE TABLE rows (n integer); INSERT INTO rows SELECT generate_series(1, 3000);
             CREATE PUBLICATION own FOR TABLE rows",
    );
    publisher.run("SELECT pg_create_logical_replication_slot('own', 'pgoutput')");
    publisher.run("CREATE DATABASE other");
    let mut subscriber = server.connect_to("other");
    subscriber.run("CREATE EXTENSION idgen");
    let subscribe = format!(
        "CREATE TABLE rows (n integer, id bigint DEFAULT snowflake_next_id(5));
         CREATE SUBSCRIPTION own CONNECTION '{}' PUBLICATION own WITH (create_slot = false)",
        server.target("postgres")
    );
    subscriber.run(&subscribe);
    let mut ids = |count: i64| {
        let counted = "SELECT count(*), count(DISTINCT id) FROM rows";
        within_seconds(60, || (subscriber.row::<(i64, i64)>(counted) == (count, count)).then_some(()))
            .unwrap_or_else(|| panic!("{:?}, not {count}", subscriber.row::<(i64, i64)>(counted)));
    };
    ids(3000);
    publisher.run("INSERT INTO rows SELECT generate_series(3001, 4000)");
    ids(4000);
    subscriber.run("DROP SUBSCRIPTION own");
}

/// If a function that mints is dropped while another session plans a call of it, that is an error and not a crash.
#[test]
fn a_function_is_dropped_while_its_call_is_planned() {
    let server = Server::start(&[]);
    let mut planner = server.connect();
    planner.run("CREATE TABLE rows (n integer, id bigint DEFAULT snowflake_next_id(5))");
    // The session has the table and the function in its caches, but not the support function for the planner.
    let mut planner = server.connect();
    planner.run("COPY rows TO '/dev/null'; SELECT 'snowflake_next_id(integer)'::regprocedure");
    let mut dropper = server.connect();
    dropper.run(
        "BEGIN;
         LOCK TABLE pg_proc;
         ALTER EXTENSION idgen DROP FUNCTION snowflake_next_id(integer);
         DELETE FROM pg_depend WHERE refclassid = 'pg_proc'::regclass
                                 AND refobjid = 'snowflake_next_id(integer)'::regprocedure;
         DROP FUNCTION snowflake_next_id(integer)",
    );
    let planned = thread::spawn(move || planner.batch_execute("COPY rows (n) FROM PROGRAM 'echo 1'"));
    let waits = "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND relation = 'pg_proc'::regclass";
    assert!(is_reached(60, || dropper.value(waits)), "the planner does not wait for pg_proc");
    dropper.run("COMMIT");
    let error = planned.join().unwrap().unwrap_err();
    assert!(error.as_db_error().is_some_and(|error| error.message().contains("function")), "{error:?}");
    assert!(!server.log().contains("was terminated by signal"));
}

/// Mints for shard 5 as fast as it can, and for a while after the shard is closed, and records the last id.
const MINT_ON: &str = "
    CREATE TABLE public.minted (who text, last bigint, refused integer);
    CREATE FUNCTION public.mint(who text) RETURNS integer LANGUAGE plpgsql AS $$
    DECLARE last bigint; refused integer := 0;
    BEGIN
        WHILE refused < 300 LOOP
            BEGIN
                -- One statement, whose plan outlives the function.
                FOR last IN SELECT CALL FROM (SELECT generate_series(1, 1000000000)) AS n LOOP END LOOP;
            EXCEPTION WHEN SQLSTATE '55000' OR undefined_function THEN refused := refused + 1; PERFORM pg_sleep(0.01);
            END;
        END LOOP;
        INSERT INTO public.minted VALUES (who, last, refused);
        RETURN 1;
    END $$;";

/// Promise: when a shard is closed, no id is at or past the bound, in either layout, whatever mints on the server and
/// keeps trying. Another server that has advanced past the bound mints none of these ids.
#[test]
fn nobody_mints_past_the_bound_of_a_closed_shard() {
    let source = Server::start(&["autovacuum_naptime = 1s"]);
    let databases = ["ordinary", "dropped", "uncommitted", "vacuumed", "sender", "batches", "stopped", "js"];
    for database in databases {
        source.run(&format!("CREATE DATABASE \"{database}\""));
        let call = match database {
            "batches" => "idgen.snowflake_next_ids(5, 100000)",
            "js" => "idgen.snowflake_next_id_js(5)",
            _ => "idgen.snowflake_next_id(5)",
        };
        let mut client = source.connect_to(database);
        if database != "uncommitted" {
            client.run("CREATE SCHEMA idgen; CREATE EXTENSION idgen SCHEMA idgen");
        }
        client.run(&MINT_ON.replace("CALL", call));
    }
    let before: i64 = source.value("SELECT snowflake_next_id(5)");
    let js_before: i64 = source.value("SELECT snowflake_next_id_js(5)");
    let mint = |database: &'static str, first: &'static str| {
        let mut client = source.connect_to(database);
        let pid: i32 = client.value("SELECT pg_backend_pid()");
        client.run(first);
        (pid, thread::spawn(move || client.batch_execute("SELECT public.mint('session'); COMMIT").unwrap()))
    };
    let mut threads: Vec<_> =
        ["ordinary", "dropped", "batches", "js"].map(|name| mint(name, "BEGIN").1).into();
    threads.push(mint("uncommitted", "BEGIN; CREATE SCHEMA idgen; CREATE EXTENSION idgen SCHEMA idgen").1);
    let (stopped, thread) = mint("stopped", "BEGIN");
    threads.push(thread);
    let worker = "CREATE TABLE t AS SELECT n FROM generate_series(1, 1000) AS n;
                  CREATE FUNCTION f(n integer) RETURNS integer IMMUTABLE LANGUAGE plpgsql AS $$
                  BEGIN
                      IF (SELECT backend_type FROM pg_stat_activity WHERE pid = pg_backend_pid()) = 'autovacuum worker'
                      THEN RETURN public.mint('worker');
                      END IF;
                      RETURN 1;
                  END $$;
                  CREATE INDEX ON t (f(n)) WHERE n = 1; UPDATE t SET n = n WHERE n > 1";
    source.connect_to("vacuumed").run(worker);
    source.run("CHECKPOINT");
    let mut psql = client_program("psql");
    let connection = format!("{} replication=database", source.target("sender"));
    psql.args(["-X", "-d", &connection, "-c", "BASE_BACKUP", "-c", "SELECT public.mint('sender')"]);
    psql.stdout(Stdio::null());
    threads.push(thread::spawn(move || assert!(psql.status().unwrap().success())));
    // All of them mint now.
    source.wait_until(
        "SELECT count(DISTINCT datname) = 8 FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND datname <> 'postgres'",
    );
    source.connect_to("dropped").run("DROP EXTENSION idgen");

    // The session stops in the middle of a call, perhaps after reading the clock, but without the shard's lock.
    loop {
        source.signal("STOP", stopped);
        let mints = "SET statement_timeout = '1s'; SELECT snowflake_next_id(5)";
        if source.connect().batch_execute(mints).is_ok() {
            break;
        }
        source.signal("CONT", stopped);
    }
    let bound: i64 = source.value("SELECT snowflake_close_shard(5)");
    let target = Server::start(&[]);
    target.run(&format!("SELECT snowflake_advance(5, {bound} - 1)"));
    let js_first: i64 = target.value("SELECT snowflake_next_id_js(5)");
    source.signal("CONT", stopped);
    // All of them have ended.
    source.wait_until(
        "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND datname <> 'postgres'",
    );
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    for database in databases {
        let mut client = source.connect_to(database);
        assert!(is_reached(60, || client.value("SELECT count(*) > 0 FROM public.minted")), "{database}");
        // On a slow machine, a batch or a worker may have started too late to mint anything.
        let last: Option<i64> = client.value("SELECT max(last) FROM public.minted WHERE refused = 300");
        assert!(last.is_some() || database != "ordinary");
        let Some(last) = last else { continue };
        let (before, first) = if database == "js" { (js_before, js_first) } else { (before, bound) };
        assert!(
            before < last && last < first,
            "{database}: {before}, {last} of the source, {first} is the bound"
        );
    }
}
