//! The portable edition: promise 1 as far as it goes there, and the way to the extension.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use postgres::{Client, NoTls};

use crate::clients::{Clients, Ledger, SHARDS, at_once, ids};
use crate::process::{command, run, said, top};
use crate::server::{Build, PRELOAD, Server, Sql, enable};

/// Runs a statement of a changing kind in a transaction that commits. Ids of other transactions may be repeated after a
/// crash if the clock was set back.
fn commit(client: &mut Client, round: usize) -> Result<Vec<i64>, postgres::Error> {
    let shard = round as i64 / 7 % SHARDS;
    let sql = match round % 7 {
        0 => format!("SELECT snowflake_next_ids({shard}, 50)"),
        1 => format!("SELECT snowflake_next_id({shard}) FROM generate_series(1, 50)"),
        2 => format!("SELECT snowflake_next_id((i % {SHARDS})::integer) FROM generate_series(1, 20) AS i"),
        3 => "INSERT INTO rows (n) SELECT generate_series(1, 20) RETURNING id".into(),
        4 => "INSERT INTO rows (n) VALUES (0) RETURNING id".into(),
        _ => format!("SELECT snowflake_next_id({shard})"),
    };
    ids(client, &sql)
}

/// A table whose default mints for shard 2.
fn create_rows(server: &Server) {
    server.run("CREATE TABLE rows (id bigint PRIMARY KEY DEFAULT snowflake_next_id(2), n integer)");
}

/// Many sessions mint for one shard and for four: no id occurs twice, and each session's ids increase. The lock orders
/// the ids of all sessions strictly.
#[test]
fn many_sessions() {
    let server = Server::start_portable(&[]);
    let mut ledger = Ledger::default();
    let clients = Clients::start(8, &server);
    clients.finish_after(20_000, &mut ledger);
    assert!(ledger.errors.is_empty(), "{:?}", ledger.errors);

    let ordered = at_once(0..3, |_| {
        let mut client = server.connect();
        let sql = "SELECT clock_timestamp()::text, snowflake_next_id(5), clock_timestamp()::text";
        (0..500).map(|_| client.row(sql)).collect::<Vec<(String, i64, String)>>()
    })
    .concat();
    let wrong = |a: &(String, i64, String)| ordered.iter().any(|b| a.2 < b.0 && a.1 >= b.1);
    assert!(!ordered.iter().any(wrong), "a call that began after another one had ended got a smaller id");
}

/// Kills and immediate shutdowns, with the clock set back by ten minutes while the server is down: calls fail until the
/// clock is right again, and no id of a committed transaction is repeated.
#[test]
fn the_server_crashes_under_clients_that_commit() {
    let server = Server::start_portable(&[]);
    create_rows(&server);
    let mut ledger = Ledger::default();
    for round in 0..6 {
        let clients = Clients::start_by(4, &server, commit);
        clients.wait_for_ids(1500);
        match ["kill", "immediate", "of a backend"][round % 3] {
            "of a backend" => server.kill_backend(server.connect()),
            how => server.restart_at(how, -600.0),
        }
        let mut client = server.reconnect();
        client.run("SET idgen.max_wait = '100ms'");
        if round % 3 != 2 {
            assert_eq!(client.code("SELECT snowflake_next_id(2)"), "40001");
        }
        server.set_clock(0.0);
        clients.finish_after(1500, &mut ledger);
    }
    // All reported rows exist.
    let rows: i64 = server.value("SELECT count(*) FROM rows");
    assert!(rows > 0 && ledger.len() > 15_000, "{rows} {}", ledger.len());
}

/// The clock is set back while some clients commit and others roll back: ids run ahead by `idgen.max_ahead`, calls wait
/// and fail, and minting continues when the clock has caught up.
#[test]
fn the_clock_steps_under_clients() {
    let server = Server::start_portable(&["idgen.max_wait = 200ms"]);
    let mut ledger = Ledger::default();
    for (step, refuses) in [(-0.5, false), (-5.0, true), (3600.0, false)] {
        let clients = Clients::start(6, &server);
        clients.wait_for_ids(1000);
        server.set_clock(step);
        if refuses {
            thread::sleep(Duration::from_millis(800));
            server.set_clock(0.0);
        }
        clients.wait_for_ids(1000);
        let refused = |ledger: &Ledger| ledger.errors.values().sum::<usize>();
        let before = refused(&ledger);
        clients.finish(&mut ledger);
        assert_eq!(refused(&ledger) > before, refuses, "{step}: {:?}", ledger.errors);
    }
    assert!(ledger.errors.keys().all(|error| error.starts_with("40001 ")), "{:?}", ledger.errors);
    // As documented, nothing guards against a jump forward, and the ids stay ahead.
    server.set_clock(0.0);
    let error = server.error("SELECT snowflake_next_id(1)");
    assert!(error.detail().unwrap().contains("359"), "{error:?}");
}

/// Sessions that are canceled at any moment, even while they wait for a lock, do not keep a shard's lock, as they would
/// if it were a session's lock.
#[test]
fn a_cancel_frees_the_lock() {
    let server = Server::start_portable(&[]);
    let start = Instant::now();
    let sessions = at_once(0..6, |_| {
        let mut client = server.connect();
        let (mut cancelled, mut round) = (0, 0);
        // Machines on which fewer calls are canceled take longer.
        while start.elapsed() < Duration::from_secs(if cancelled > 10 { 4 } else { 120 }) {
            round += 1;
            let cancel = client.cancel_token();
            let canceller = thread::spawn(move || {
                thread::sleep(Duration::from_micros(100 * (round % 17)));
                let _ = cancel.cancel_query(NoTls);
            });
            let sql = "SELECT count(snowflake_next_id(3)) FROM generate_series(1, 300)";
            if let Err(error) = client.query_one(sql, &[]) {
                assert_eq!(error.code().map(|code| code.code()), Some("57014"), "{error}");
                cancelled += 1;
            }
            canceller.join().unwrap();
        }
        assert!(cancelled > 10, "{cancelled}");
        client
    });
    let mut client = server.connect();
    assert_eq!(client.value::<i64>("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"), 0);
    client.run("SET statement_timeout = '10s'; SELECT snowflake_next_id(3)");
    drop(sessions);
}

/// A standby decodes ids but does not mint. A synchronous standby that is promoted with its clock ten minutes behind
/// repeats no id of a committed transaction.
#[test]
fn a_synchronous_standby_is_promoted() {
    let primary = Server::start_portable(&[]);
    create_rows(&primary);
    let standby = primary.standby("twin");
    primary.set("synchronous_standby_names", "twin");
    let mut client = standby.connect();
    for sql in ["SELECT snowflake_next_id(1)", "SELECT * FROM snowflake_next_ids(1, 2)"] {
        let error = client.error(sql);
        assert_eq!((error.code().code(), error.message()), ("25006", "cannot mint ids during recovery"));
    }
    client.query_one("SELECT snowflake_decode(1), warning FROM idgen_status", &[]).unwrap();

    let mut ledger = Ledger::default();
    let clients = Clients::start_by(4, &primary, commit);
    clients.wait_for_ids(2000);
    primary.kill();
    standby.set_clock(-600.0);
    clients.move_to(&standby);
    standby.configure(&["idgen.max_wait = 100ms"]);
    standby.promote();
    assert_eq!(standby.reconnect().code("SELECT snowflake_next_id(2)"), "40001");
    standby.set_clock(0.0);
    clients.finish_after(2000, &mut ledger);
}

/// `CREATE EXTENSION` while clients mint: no client gets an error, and no id occurs twice. The statement waits for
/// running transactions, or they continue with ids of the extension.
#[test]
fn the_extension_takes_over_under_load() {
    let server = Server::start_portable(&[PRELOAD]);
    create_rows(&server);
    let mut ledger = Ledger::default();
    let clients = [Clients::start_by(4, &server, commit), Clients::start(4, &server)];
    clients.iter().for_each(|clients| clients.wait_for_ids(1000));

    // The statement waits for a transaction that has minted. Other statements continue later.
    let mut open = server.connect();
    let mut transaction = open.transaction().unwrap();
    let first: i64 = transaction.value("SELECT snowflake_next_id(1)");
    let taken_over = thread::scope(|scope| {
        let mover = scope.spawn(|| server.connect().batch_execute("CREATE EXTENSION idgen"));
        thread::sleep(Duration::from_millis(500));
        assert!(!mover.is_finished(), "CREATE EXTENSION does not wait for the open transaction");
        // This is planned now, waits with its first row, and mints after the takeover.
        let mut late = server.connect();
        let insert = "INSERT INTO rows (n) SELECT generate_series(1, 1000) RETURNING id";
        let late = scope.spawn(move || ids(&mut late, insert));
        let mut frozen = server.connect();
        let frozen = scope.spawn(move || {
            frozen.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM rows")?;
            let new = ids(&mut frozen, "SELECT snowflake_next_id(2)")?;
            frozen.batch_execute("COMMIT").map(|()| new)
        });
        let (mut batch, mut advance) = (server.connect(), server.connect());
        let batch = scope.spawn(move || ids(&mut batch, "SELECT snowflake_next_ids(3, 500)"));
        let advance = scope.spawn(move || advance.batch_execute("SELECT snowflake_advance(3, 0)"));
        thread::sleep(Duration::from_millis(300));
        let second: i64 = transaction.value("SELECT snowflake_next_id(1)");
        transaction.commit().unwrap();
        ledger.add(&[first, second]);
        ledger.add(&late.join().unwrap().expect("the statement that waited"));
        ledger.add(&frozen.join().unwrap().expect("the transaction with an old snapshot"));
        let batch = batch.join().unwrap().expect("the batch that waited");
        assert_eq!(batch.len(), 500);
        ledger.add(&batch);
        advance.join().unwrap().expect("the advance that waited");
        mover.join().unwrap()
    });
    taken_over.expect("CREATE EXTENSION");
    for clients in clients {
        clients.finish_after(5000, &mut ledger);
    }
    assert!(ledger.errors.is_empty(), "{:?}", ledger.errors);
    let mut client = server.connect();
    let sql = "SELECT lanname FROM pg_proc JOIN pg_language AS l ON l.oid = prolang
               WHERE pg_proc.oid = 'snowflake_next_id(integer)'::regprocedure";
    assert_eq!(client.value::<String>(sql), "c");
    let rows: i64 = client.value("SELECT count(*) FROM rows");
    assert!(rows > 1000, "{rows}");
}

/// `CREATE EXTENSION` waits for transactions that read a view and then mint, or the other way round, without a
/// deadlock.
#[test]
fn readers_of_views_are_waited_for() {
    const MINT: &str = "SELECT snowflake_next_id(1)";
    const READ: &str = "SELECT * FROM idgen_status";
    let server = Server::start_portable(&[PRELOAD]);
    let begin = |sql: &str| {
        let mut client = server.connect();
        client.run("BEGIN");
        client.run(sql);
        client
    };
    let until_waiting = |sessions: i32| {
        let sql = "FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        server.wait_until(&format!("SELECT count(*) = {sessions} {sql}"));
    };
    thread::scope(|scope| {
        let (mut reader, mut minter) = (begin(READ), begin(MINT));
        let mover = scope.spawn(|| server.connect().batch_execute("CREATE EXTENSION idgen"));
        until_waiting(1);
        let reader = scope.spawn(move || reader.batch_execute(MINT).map(|()| reader));
        until_waiting(2);
        minter.run("COMMIT");
        let mut reader = reader.join().unwrap().expect("a session that has read cannot mint");

        let mut minter = begin(MINT);
        until_waiting(1);
        let minter = scope.spawn(move || minter.batch_execute(&format!("{READ}; COMMIT")));
        until_waiting(2);
        reader.run("COMMIT");
        minter.join().unwrap().expect("a session that has minted cannot read");
        mover.join().unwrap().expect("CREATE EXTENSION");
    });
    let kept_in: String = server.value("SELECT mark_kept_in FROM idgen_status");
    assert!(kept_in.contains("origin"), "{kept_in}");
}

/// A register whose creation is rolled back must not mint: created again after the clock was set back, it would repeat
/// its ids.
#[test]
fn a_register_that_is_rolled_back_repeats_nothing() {
    let server = Server::start_portable(&[]);
    let mut client = server.connect();
    let mut ledger = Ledger::default();
    let mut mint = |client: &mut postgres::Transaction| {
        client.batch_execute("SELECT snowflake_advance(2000, 0)")?;
        ledger.add(&ids(client, "SELECT snowflake_next_ids(2000, 100000)")?);
        Ok::<(), postgres::Error>(())
    };
    let first = mint(&mut client.transaction().unwrap());
    server.set_clock(-3.0);
    let second = mint(&mut client.transaction().unwrap());
    for error in [first.expect_err("no id"), second.expect_err("no id")] {
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), "55000", "{error}");
        assert_eq!(error.hint(), Some("Commit the transaction first."));
    }
    client.run("SELECT snowflake_advance(2000, 0)");
    assert_eq!(client.column::<i64>("SELECT snowflake_next_ids(2000, 1000)").len(), 1000);
}

/// The way back of portable/README.md: a server without the library restores the dump of a database with the extension
/// and everything that uses its functions, and continues after the last id.
#[test]
fn a_dump_of_the_extension_goes_into_the_portable_edition() {
    let page = include_str!("../../portable/README.md");
    let (_, section) = page.split_once("\n## Leaving the extension\n").expect("the section");
    let mut blocks = section.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let (dump, restore) = (blocks.next().unwrap(), blocks.next().unwrap());

    let old = Server::start(&[]);
    old.run("CREATE DATABASE app");
    old.connect_to("app").run(&enable("app"));
    let mut client = old.connect_to("app");
    client.run(
        "CREATE DOMAIN key AS bigint DEFAULT snowflake_next_id(5);
         CREATE TABLE users (
             id bigint PRIMARY KEY DEFAULT snowflake_next_id(5) CHECK (shard_of(id) = 5), other key,
             at timestamptz GENERATED ALWAYS AS (snowflake_time(id, '2025-01-01Z')) STORED);
         CREATE INDEX ON users (snowflake_text(id));
         CREATE TABLE parts (id bigint DEFAULT snowflake_next_id(5)) PARTITION BY LIST (shard_of(id));
         CREATE TABLE parts5 PARTITION OF parts FOR VALUES IN (5);
         CREATE TABLE labels (id bigint PRIMARY KEY DEFAULT snowflake_next_id_js(5));
         CREATE VIEW recent AS
             SELECT * FROM users WHERE snowflake_between(id, now() - interval '1 hour', 'infinity');
         INSERT INTO users SELECT FROM generate_series(1, 100);
         INSERT INTO parts DEFAULT VALUES; INSERT INTO labels DEFAULT VALUES",
    );
    run(old.shell(dump));
    let rows = "SELECT string_agg(concat_ws(' ', id, other, at), ',' ORDER BY id) FROM users";
    let before: String = client.value(rows);

    let new = Server::start_empty(Build::Bare, &[]);
    run(command("cp").arg(Path::new(&old.host()).join("app.dump")).arg(new.host()));
    let script = top().join("portable/idgen.sql").display().to_string();
    let restore = restore.replace("portable/idgen.sql", &script);
    // The block is pasted into a shell that continues after errors. Each step fails once, and then no other one runs.
    let pasted = |failing: usize| {
        let steps = ["createdb", "pg_restore", "psql"].map(|step| {
            format!(
                "{step}() {{ echo >>steps; [ $(wc -l <steps) != {failing} ] && command {step} \"$@\"; }}\n"
            )
        });
        let kept = "[ -z \"${PGOPTIONS-}\" ] || echo PGOPTIONS stays >&2\nexit $done\n";
        let script = format!("set +eu +o pipefail\n>steps\n{}\n{restore}\ndone=$?\n{kept}", steps.concat());
        let output = new.shell(&script).output().unwrap();
        assert!(!said(&output).contains("PGOPTIONS stays"), "{}", said(&output));
        let steps = std::fs::read_to_string(Path::new(&new.host()).join("steps")).unwrap();
        (output.status.success(), steps.len(), said(&output))
    };
    for failing in 1..=5 {
        let (done, steps, said) = pasted(failing);
        assert_eq!((done, steps), (false, failing), "{said}");
        new.run("DROP DATABASE IF EXISTS app");
    }
    let (done, steps, said) = pasted(0);
    assert_eq!((done, steps), (true, 5), "{said}");
    assert!(section.contains("`idgen_status.mark_at`"));
    let mark: String = client.value("SELECT (mark_at + interval '1 s')::text FROM idgen_status");
    new.wait_until(&format!("SELECT clock_timestamp() > '{mark}'"));

    let mut client = new.connect_to("app");
    assert_eq!(client.value::<String>(rows), before);
    assert_eq!(client.value::<i64>("SELECT count(*) FROM recent"), 100);
    for table in ["users", "parts", "labels"] {
        let insert =
            format!("INSERT INTO {table} DEFAULT VALUES RETURNING id > (SELECT max(id) FROM {table})");
        assert!(client.value::<bool>(&insert), "{table}");
    }
}
