//! Servers that do not preload the library, from PostgreSQL 17 on, where the first session that needs the shared memory
//! allocates it. These tests cover what is special there. With IDGEN_PRELOAD=no, the tests of other promises run on
//! such servers too.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use postgres::{Client, Config, NoTls};

use crate::clients::{Clients, Ledger, at_once};
use crate::moment::is_reached;
use crate::origins::{limit_of_origins, room_for};
use crate::process::{command, library, major_version, run};
use crate::server::{Build, Server, Sql};

const SETTINGS: [(&str, &str); 5] = [
    ("idgen.epoch", "2025-01-01T00:00:00Z"),
    ("idgen.allowed_shards", "0-8191"),
    ("idgen.max_ahead", "1s"),
    ("idgen.reserve_ahead", "1s"),
    ("idgen.max_clock_jump", "1h"),
];

/// A server with the extension and without the preload; `None` if PostgreSQL is too old.
fn server(settings: &[&str]) -> Option<Server> {
    server_of(Build::Release, settings)
}

fn server_of(build: Build, settings: &[&str]) -> Option<Server> {
    (major_version() >= 17).then(|| {
        let server = Server::start_empty(build, settings);
        server.run("CREATE EXTENSION idgen");
        server
    })
}

const MINT: &str = "SELECT snowflake_next_id(1)";

/// A session whose client sets this at the start of the connection.
fn with(server: &Server, settings: &str) -> Client {
    Client::connect(&format!("{} options='{settings}'", server.target("postgres")), NoTls).unwrap()
}

/// Checks that a call is refused because of this setting.
#[track_caller]
fn assert_refused(client: &mut Client, setting: &str) {
    let error = client.error(MINT);
    assert_eq!(error.code().code(), "55000", "{error:?}");
    assert!(error.message().ends_with(&format!("because \"{setting}\" is set")), "{error:?}");
}

/// Promise 5: before PostgreSQL 17 the error says what is missing and what to do.
#[test]
fn earlier_releases_ask_for_the_preload() {
    if major_version() >= 17 {
        return;
    }
    let server = Server::start_plain(&[]);
    server.run("CREATE EXTENSION idgen");
    for call in [MINT, "SELECT * FROM idgen_status", "SELECT snowflake_check()"] {
        let error = server.error(call);
        assert_eq!(error.message(), "\"idgen\" must be loaded via \"shared_preload_libraries\"");
        let detail =
            "Minting and watching need shared memory, which idgen can allocate only when the server starts.";
        assert_eq!(error.detail(), Some(detail));
        let hint = "Add idgen to shared_preload_libraries in postgresql.conf and restart the server.";
        assert_eq!(error.hint(), Some(hint));
    }
}

/// Promise 9: CREATE EXTENSION is enough, and no id is repeated over crashes of a backend or the server, or over a
/// change from one mode to the other.
#[test]
fn nothing_else_is_needed() {
    let Some(server) = server(&[]) else { return };
    let mut ledger = Ledger::default();
    let mut last = 0;
    for round in 0..6 {
        let id: i64 = server.reconnect().value(MINT);
        assert!(id > last, "round {round}: {id} after {last}");
        let clients = Clients::start(6, &server);
        clients.wait_for_ids(1000);
        last = server.reconnect().value(MINT);
        match round {
            0 | 1 => server.kill_backend(server.connect()),
            2 => server.restart_at("kill", 0.0),
            3 => server.restart_at("immediate", -0.5),
            4 => server.restart_with(&["shared_preload_libraries = 'idgen'"]),
            _ => server.restart_with(&["shared_preload_libraries = ''"]),
        }
        clients.finish_after(1000, &mut ledger);
    }
    assert!(server.reconnect().value::<i64>(MINT) > last);
}

/// Promise 9: the owner of a database, who may create the extension, cannot write a mark that would take a standby
/// down. After what the hint says, the owner can mint.
#[test]
fn only_a_superuser_begins() {
    if major_version() < 17 {
        return;
    }
    let server = Server::start_plain(&[]);
    let standby = server.standby("twin");
    standby.restart_with(&[&room_for(0)]);
    server.run("CREATE ROLE owner LOGIN");
    server.run("CREATE DATABASE app OWNER owner");
    let connect =
        || Client::connect(&server.target("app").replace("user=postgres", "user=owner"), NoTls).unwrap();
    let mut owner = connect();
    owner.run("CREATE EXTENSION idgen");
    let mut superuser = Client::connect(&server.target("app"), NoTls).unwrap();
    superuser.run(
        "CREATE FUNCTION defined() RETURNS bigint LANGUAGE sql SECURITY DEFINER
             AS 'SELECT public.snowflake_next_id(1)';
         GRANT pg_monitor TO owner;
         GRANT EXECUTE ON FUNCTION public.snowflake_advance, public.idgen_begin TO owner",
    );
    let mut owner = connect();
    for call in [
        MINT,
        "SELECT snowflake_next_id_js(1)",
        "SELECT snowflake_next_ids(1, 1)",
        "SELECT snowflake_advance(1, 0)",
        "SELECT snowflake_check()",
        "SELECT defined()",
    ] {
        assert_eq!(owner.refusal(call), "55000 no-mark", "{call}");
    }
    assert!(!owner.value::<bool>("SELECT idgen_begin()"));
    // A superuser's session, such as autovacuum, runs this for the owner.
    owner.run(
        "CREATE FUNCTION tries(i int) RETURNS int LANGUAGE plpgsql AS $$
         BEGIN
             BEGIN DROP EXTENSION IF EXISTS idgen; CREATE EXTENSION idgen SCHEMA public; EXCEPTION WHEN OTHERS THEN NULL; END;
             BEGIN PERFORM public.snowflake_next_id(i); EXCEPTION WHEN OTHERS THEN NULL; END;
             INSERT INTO public.tried SELECT session_user WHERE session_user <> current_user;
             RETURN i;
         END $$;
         CREATE FUNCTION indexed(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN public.tries(i); END';
         CREATE TABLE tried (by name);
         CREATE TABLE rows AS SELECT 1 AS i;
         CREATE INDEX ON rows (indexed(i))",
    );
    superuser.run("ANALYZE rows");
    // The action of a foreign key on the superuser's own table runs it too.
    superuser.run("CREATE TABLE parent (i int PRIMARY KEY); INSERT INTO parent VALUES (1), (2)");
    superuser.run("GRANT REFERENCES, SELECT ON parent TO owner");
    owner.run("CREATE TABLE child (i int DEFAULT tries(2) REFERENCES parent ON DELETE SET DEFAULT)");
    owner.run("INSERT INTO child VALUES (1)");
    superuser.run("DELETE FROM parent WHERE i = 1");
    assert_eq!(owner.value::<i64>("SELECT count(*) FROM tried"), 2);

    superuser.run("SET SESSION AUTHORIZATION owner");
    assert_eq!(superuser.refusal(MINT), "55000 no-mark");
    owner.run("SELECT FROM idgen_refusals, idgen_shard_stats; SELECT snowflake_safe_horizon()");
    assert_eq!(owner.warning_code().as_deref(), Some("no-mark"));
    let marks = "SELECT count(*) FROM pg_replication_origin_status";
    assert_eq!(server.value::<i64>(marks), 0);

    // No mark has reached the standby, which would have gone down. It now gets room.
    server.run("CREATE TABLE reached ()");
    assert!(is_reached(30, || standby.connect().batch_execute("SELECT FROM reached").is_ok()));
    standby.restart_with(&[&room_for(5)]);
    server.run("CREATE EXTENSION idgen");
    owner.run(MINT);
    connect().run(MINT);
    assert_eq!(server.warning(), None);
}

/// Promise 9: after a superuser's CREATE EXTENSION every role can mint, and the epoch can still be chosen.
#[test]
fn the_extension_of_a_superuser_is_enough() {
    let Some(server) = server(&[]) else { return };
    server.run("CREATE ROLE anybody");
    let mark = "SELECT mark IS NULL AND mark_at IS NULL FROM idgen_status";
    assert!(server.value::<bool>(mark));
    assert_eq!(server.warning(), None);
    server.restart_at("kill", 0.0);
    server.run("SET SESSION AUTHORIZATION anybody; SELECT snowflake_next_id(1)");
    assert!(!server.value::<bool>(mark));

    let Some(server) = self::server(&[]) else { return };
    server.restart_with(&["shared_preload_libraries = 'idgen'", "idgen.epoch = '2020-01-01T00:00:00Z'"]);
    server.run(MINT);
    assert_eq!(server.warning(), None);
}

/// Promise 9: of many sessions that need the memory at the same time, one allocates it.
#[test]
fn many_first_calls_meet() {
    let Some(server) = server(&[]) else { return };
    for _ in 0..3 {
        server.restart();
        let clients: Vec<_> = (0..40).map(|_| server.connect()).collect();
        let start = Barrier::new(clients.len());
        let ids: Vec<Vec<i64>> = at_once(clients, |mut client| {
            start.wait();
            client.column("SELECT snowflake_next_id(1) FROM generate_series(1, 100)")
        });
        let mut ledger = Ledger::default();
        ids.iter().for_each(|ids| ledger.add(ids));
        assert_eq!(ledger.len(), 4000);
    }
}

/// Promise 9: no session mints if a setting of the server has a value from any source, even if the session sees the
/// default, because its client hides the value of the files. Settings of the session itself take effect.
#[test]
fn settings_of_the_server_need_the_preload() {
    let Some(server) = server(&[]) else { return };
    server.run("CREATE ROLE tenant LOGIN");
    server.run("CREATE DATABASE theirs");
    server.connect_to("theirs").run("CREATE EXTENSION idgen");
    for (name, value) in SETTINGS {
        assert_refused(&mut with(&server, &format!("-c {name}={}", value.replace(' ', "\\ "))), name);
        assert_refused(&mut with(&server, &format!("-c {name}=")), name);

        let mut client = server.connect();
        client.run(&format!("SET {name} = '{value}'"));
        assert_refused(&mut client, name);
        client.run("RESET ALL");
        client.run("DISCARD ALL");
        assert_refused(&mut client, name);
        // A value that was rolled back before the library was loaded does not count.
        server.run(&format!("BEGIN; SET LOCAL {name} = '{value}'; ROLLBACK; {MINT}"));

        server.run(&format!("ALTER ROLE tenant SET {name} = '{value}'"));
        assert_refused(&mut server.connect_as("tenant"), name);
        server.run("ALTER ROLE tenant RESET ALL");
        server.run(&format!("ALTER DATABASE theirs SET {name} = '{value}'"));
        assert_refused(&mut server.connect_to("theirs"), name);
        server.run("ALTER DATABASE theirs RESET ALL");

        server.run(&format!(
            "CREATE OR REPLACE FUNCTION theirs() RETURNS bigint LANGUAGE plpgsql SET {name} = '{value}' AS
             'BEGIN RETURN snowflake_next_id(1); END'"
        ));
        assert_eq!(server.code("SELECT theirs()"), "55000", "{name}");
    }
    // The first call of a session is counted, whatever its error.
    assert_eq!(server.code("SELECT snowflake_next_id(8192)"), "22023");
    assert_eq!(server.value::<i64>("SELECT refused FROM idgen_refusals WHERE reason = 'bad_argument'"), 1);
    let mut client = with(&server, "-c idgen.shard=7 -c idgen.max_wait=3 -c idgen.max_lease=1");
    assert_eq!(client.value::<i32>("SELECT shard_of(snowflake_next_id())"), 7);
    server.connect_as("tenant").run(MINT);
}

/// Promise 9: a reload that sets such a value stops sessions that have already minted, and a reload that removes it
/// lets them continue. Sessions that started with the value, even an invalid one, must reconnect.
#[test]
fn a_reload_that_sets_one_stops_every_session() {
    let Some(server) = server(&[]) else { return };
    for (name, value) in SETTINGS {
        let mut before = server.connect();
        before.run("SELECT snowflake_next_id(1) FROM generate_series(1, 1000)");
        server.run(&format!("ALTER SYSTEM SET {name} = '{value}'"));
        server.run("SELECT pg_reload_conf()");
        let refuses = || before.batch_execute(MINT).is_err();
        assert!(is_reached(10, refuses), "{name}");
        assert_refused(&mut before, name);
        let mut between = server.connect();
        assert_refused(&mut between, name);
        // Clients that hide the value.
        assert_refused(&mut with(&server, &format!("-c {name}={value}")), name);
        assert_refused(&mut with(&server, "-c idgen.allowed_shards="), name);

        server.run("ALTER SYSTEM RESET ALL");
        server.run("SELECT pg_reload_conf()");
        assert!(is_reached(10, || before.batch_execute(MINT).is_ok()), "{name}");
        assert_refused(&mut between, name);
        server.run(MINT);

        // No one checks the value before the library is loaded, and a session with the library keeps the default.
        server.run(&format!("ALTER SYSTEM SET {name} = 'nonsense'"));
        server.run("SELECT pg_reload_conf()");
        assert!(is_reached(10, || server.connect().batch_execute(MINT).is_err()), "{name}");
        assert_refused(&mut server.connect(), name);
        server.run("ALTER SYSTEM RESET ALL");
        server.run("SELECT pg_reload_conf()");
        assert!(is_reached(10, || server.connect().batch_execute(MINT).is_ok()), "{name}");
    }
}

/// Promise 9: as with a preload, parallel workers do not mint, whatever their session has done before, and a session
/// may begin with a parallel plan.
#[test]
fn a_worker_mints_for_nobody() {
    let Some(server) = server(&[]) else { return };
    server.run(
        "CREATE FUNCTION wrapped(int) RETURNS bigint LANGUAGE plpgsql PARALLEL SAFE AS
         'BEGIN RETURN snowflake_next_id($1); END';
         CREATE TABLE big AS SELECT generate_series(1, 20000) AS i; ANALYZE big",
    );
    let parallel = "SET debug_parallel_query = on; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
                    SET min_parallel_table_scan_size = 0";
    let mut client = server.connect();
    client.run(parallel);
    assert_eq!(client.refusal("SELECT wrapped(1)"), "25000 ParallelWorker");
    client.run(MINT);
    assert_eq!(client.refusal("SELECT wrapped(1)"), "25000 ParallelWorker");

    let mut client = server.connect();
    client.run(parallel);
    client.run("CREATE TABLE ids AS SELECT snowflake_next_id(7) AS id FROM big ORDER BY i DESC");
    assert_eq!(client.value::<i64>("SELECT count(DISTINCT id) FROM ids"), 20000);
}

/// Promise 9: a session can load the library whatever values it has for settings of idgen. PostgreSQL's warning does
/// not reach a client that cannot read it, and the next call does not fail for another reason.
#[test]
fn every_session_can_load_the_library() {
    let server = Server::start_plain(&[]);
    server.run("CREATE EXTENSION idgen");
    for setting in ["idgen.shard", "idgen.\"\u{436}\"", "idgen.max_ahead", "idgen.epoch"] {
        let mut client = server.connect();
        client.run(&format!("SET {setting} = '\u{436}'; SET client_encoding = 'LATIN1'"));
        for _ in 0..2 {
            assert_eq!(client.value::<i32>("SELECT shard_of(5120)"), 5, "{setting}");
        }
    }
}

/// Promise 9: of two libraries with different layouts of the memory, the second one is refused until a restart.
#[test]
fn two_layouts_do_not_meet() {
    let Some(server) = server_of(Build::Faults, &[]) else { return };
    let other = "-c idgen.other_layout=1";
    for (first, second) in [("", other), (other, "")] {
        server.restart();
        with(&server, first).run(MINT);
        let mut client = with(&server, second);
        for call in [MINT, "SELECT * FROM idgen_status", "SELECT snowflake_remove_mark()"] {
            assert_eq!(client.refusal(call), "55000 OtherLibrary");
        }
        assert_eq!(client.value::<i32>("SELECT shard_of(5120)"), 5);
        with(&server, first).run(MINT);
    }
}

/// Promise 9: if new files have the same layout, sessions with old and new files share the memory.
#[test]
fn new_files_take_part() {
    let Some(server) = server(&[]) else { return };
    let mut old = server.connect();
    let pid: i32 = old.value("SELECT pg_backend_pid()");
    old.run(MINT);
    let clients = Clients::start(4, &server);
    clients.wait_for_ids(500);
    let file = library("idgen");
    let copy = file.with_extension("so.new");
    std::fs::copy(&file, &copy).unwrap();
    std::fs::rename(&copy, &file).unwrap();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    assert!(maps.contains("idgen.so (deleted)"), "{maps}");
    let more = Clients::start(4, &server);
    more.wait_for_ids(2000);
    clients.wait_for_ids(2000);
    let mut ledger = Ledger::default();
    clients.finish(&mut ledger);
    more.finish(&mut ledger);
    let last: i64 = old.value(MINT);
    assert!(server.value::<i64>(MINT) > last);
}

/// Promise 9: if the memory cannot be allocated, the call fails and the next one tries again. Here the backend may
/// write files of at most 4 KiB, as with a full /dev/shm.
#[test]
fn memory_that_cannot_be_had_is_asked_for_again() {
    for kind in ["posix", "mmap"] {
        let Some(server) = server(&[&format!("dynamic_shared_memory_type = '{kind}'")]) else { return };
        server.restart();
        let mut client = server.connect();
        let pid: i32 = client.value("SELECT pg_backend_pid()");
        let limit = |bytes: &str| {
            run(command("prlimit").args(["--pid", &pid.to_string(), &format!("--fsize={bytes}:")]));
        };
        limit("4096");
        for _ in 0..3 {
            let error = client.error(MINT);
            assert!(error.message().contains("shared memory"), "{error:?}");
        }
        limit("unlimited");
        client.run(MINT);
        server.run(MINT);
    }
}

/// Promise 9: every kind of shared memory works, even memory that has been used before, and any number of connections.
#[test]
fn any_memory_will_do() {
    for settings in [
        &["dynamic_shared_memory_type = 'sysv'"][..],
        &["dynamic_shared_memory_type = 'mmap'"],
        &["min_dynamic_shared_memory = '16MB'"],
        &["max_connections = 1500"],
        &["session_preload_libraries = 'idgen'"],
    ] {
        let Some(server) = server(settings) else { return };
        server.restart();
        // Parallel queries fill the memory with something else.
        server.run(
            "SET debug_parallel_query = on; SET work_mem = '64kB';
             SELECT count(*) FROM (SELECT DISTINCT repeat(i::text, 50) FROM generate_series(1, 20000) AS i)",
        );
        let status = "SELECT shards_in_use, renewals, clock_steps_back FROM idgen_status";
        assert_eq!(server.connect().row::<(i32, i64, i64)>(status), (0, 0, 0), "{settings:?}");
        let ids = "SELECT count(DISTINCT id), count(*)
                   FROM (SELECT snowflake_next_id(s) AS id FROM generate_series(0, 8191) AS s) AS ids";
        assert_eq!(server.connect().row::<(i64, i64)>(ids), (8192, 8192), "{settings:?}");
        assert_eq!(server.value::<i32>("SELECT shards_in_use FROM idgen_status"), 8192, "{settings:?}");
    }
}

/// Promise 9: the mark is removed before the first id since the start of the server or not at all, and an id minted in
/// the meantime does not bring it back.
#[test]
fn the_mark_is_removed_before_the_first_id_or_not() {
    let Some(server) = server(&[]) else { return };
    for round in 0..12 {
        server.run(MINT);
        server.restart();
        let (mut minter, mut remover) = (server.connect(), server.connect());
        let start = Barrier::new(2);
        let (minted, gone) = thread::scope(|scope| {
            let start = &start;
            let mints = scope.spawn(move || {
                start.wait();
                thread::sleep(Duration::from_micros(round * 100));
                minter.batch_execute(MINT)
            });
            start.wait();
            let gone = remover.query_one("SELECT snowflake_remove_mark()", &[]);
            (mints.join().unwrap(), gone)
        });
        assert_ne!(minted.is_ok(), gone.is_ok(), "round {round}: {minted:?}, {gone:?}");
        let marks = "SELECT count(*) FROM pg_replication_origin_status WHERE local_id = 65534";
        if gone.is_ok() {
            for call in [MINT, "SELECT snowflake_check()"] {
                assert_eq!(server.refusal(call), "55000 mark-removed");
            }
            assert_eq!(server.warning_code().as_deref(), Some("mark-removed"));
            assert_eq!(server.value::<i64>(marks), 0);
            server.run("SELECT snowflake_remove_mark()");
            server.restart();
        } else {
            assert_eq!(server.code("SELECT snowflake_remove_mark()"), "55000");
            assert_eq!(server.value::<i64>(marks), 1);
        }
    }
    // Reading the status does not use the mark.
    server.run(MINT);
    server.restart();
    server.run("SELECT * FROM idgen_status");
    assert!(server.value::<bool>("SELECT snowflake_remove_mark()"));
}

/// Promise 9: a removal of the mark that fails before it begins does not keep sessions from minting.
#[test]
fn a_removal_that_waits_in_vain_changes_nothing() {
    let Some(server) = server(&[]) else { return };
    server.run(MINT);
    server.restart();
    let mut holder = server.connect();
    holder.run("BEGIN; LOCK TABLE pg_replication_origin IN EXCLUSIVE MODE");
    assert_eq!(server.code("SET lock_timeout = '50ms'; SELECT snowflake_remove_mark()"), "55P03");
    server.run(MINT);
    holder.run("COMMIT");
    assert_eq!(server.code("SELECT snowflake_remove_mark()"), "55000");
    server.run(MINT);
}

/// Promise 9: without room for the mark, CREATE EXTENSION and the log warn, and so does the status of a standby.
#[test]
fn missing_room_is_told_before_the_first_id() {
    if major_version() < 17 {
        return;
    }
    let none = room_for(0);
    let server = Server::start_plain(&[&none]);
    let expected = format!("\"{}\" must be at least 1 for idgen (now 0)", limit_of_origins());
    let (sender, notices) = std::sync::mpsc::channel();
    let mut config: Config = server.target("postgres").parse().unwrap();
    config.notice_callback(move |notice| sender.send(notice.message().to_owned()).unwrap());
    let mut client = config.connect(NoTls).unwrap();
    client.run("CREATE EXTENSION idgen");
    drop(client);
    let notices: Vec<_> = notices.try_iter().collect();
    assert!(notices.iter().any(|notice| notice.contains(&expected)), "{notices:?}");
    assert!(server.log().contains(&format!("LOG:  {expected}")), "{}", server.log());
    assert_eq!(server.code(MINT), "53400");

    server.restart_with(&[&room_for(5)]);
    let standby = server.standby("twin");
    standby.restart_with(&[&none]);
    assert_eq!(standby.warning(), Some(expected));
    assert_eq!(standby.code(MINT), "25006");
    standby.restart_with(&[&room_for(5)]);
    server.wait_until("SELECT count(*) = 1 FROM pg_stat_replication");
    server.run(MINT);
    let first = "the high-water mark of ids is about to be written for the first time, with 1 WAL receivers";
    assert!(server.log().contains(first), "{}", server.log());
    server.restart();
    server.run(MINT);
    assert_eq!(server.log().matches(first).count(), 1);
    standby.promote();
    assert!(standby.value::<i64>(MINT) > server.value::<i64>(MINT) >> 23 << 23);
}
