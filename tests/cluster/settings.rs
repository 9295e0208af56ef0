//! Reports of invalid settings while the server runs.

use std::thread;

use crate::moment::is_reached;
use crate::server::{PRELOAD, Server, Sql};

fn not_in_force(setting: &str) -> Option<String> {
    Some(format!("the configuration files contain a value for \"{setting}\" that is not in effect"))
}

fn reload(server: &Server) {
    let loaded = || -> String { server.value("SELECT pg_conf_load_time()::text") };
    let before = loaded();
    server.run("SELECT pg_reload_conf()");
    assert!(is_reached(30, || loaded() > before), "the configuration is not read\n{}", server.log());
}

/// Promise 5: the view reports a value that a reload refuses, or that waits for a restart, to every role and on a
/// standby too, until the value is corrected or removed. Minting continues with the previous value.
#[test]
fn a_value_that_is_not_in_force_is_told() {
    let server = Server::start(&[PRELOAD]);
    let file = format!("{}/idgen.conf", server.host());
    server.configure(&[&format!("include_if_exists = '{file}'")]);
    let mints =
        |shard: i32| server.connect().execute(&format!("SELECT snowflake_next_id({shard})"), &[]).is_ok();
    assert_eq!(server.warning(), None);

    // This is refused at once, and so not reported.
    assert!(server.connect().batch_execute("ALTER SYSTEM SET idgen.allowed_shards = 'nonsense'").is_err());
    assert_eq!(server.warning(), None);

    for (list, may) in [(None, [true, true]), (Some("0-9"), [true, false])] {
        let good = list.map_or(String::new(), |list| format!("idgen.allowed_shards = '{list}'\n"));
        std::fs::write(&file, &good).unwrap();
        reload(&server);
        assert_eq!((server.warning(), [mints(1), mints(20)]), (None, may));
        for (setting, value) in [
            ("idgen.allowed_shards", "nonsense"),
            ("idgen.allowed_shards", "0-8192"),
            ("idgen.max_ahead", "x"),
            ("idgen.reserve_ahead", "1h"),
            ("idgen.epoch", "2025-01-02T00:00:00Z"),
            ("idgen.alowed_shards", "5"),
        ] {
            std::fs::write(&file, format!("{good}{setting} = '{value}'\n")).unwrap();
            for _ in 0..2 {
                assert_eq!((server.warning(), [mints(1), mints(20)]), (not_in_force(setting), may));
                reload(&server);
            }
        }
        std::fs::write(&file, &good).unwrap();
        assert_eq!(server.warning(), None);
    }

    // Reading the view does not log a missing file.
    std::fs::remove_file(&file).unwrap();
    reload(&server);
    let mut reader = server.connect();
    let pid: i32 = reader.value("SELECT pg_backend_pid()");
    assert_eq!(reader.warning(), None);
    let skipped = "skipping missing configuration file";
    let log = server.log();
    let of_reader = format!("[{pid}]");
    // Every process logs it sooner or later after the reload.
    assert!(log.contains(skipped));
    assert!(!log.lines().any(|line| line.contains(&of_reader) && line.contains(skipped)), "{log}");

    std::fs::write(&file, "IDGEN.Allowed_Shards = '9-0'\n").unwrap();
    let standby = server.standby("other");
    assert_eq!(standby.warning_code().as_deref(), Some("setting-not-accepted"));
    standby.configure(&["idgen.allowed_shards = '0-9'"]);
    reload(&standby);
    assert_eq!(standby.warning(), None);
    let mut anybody = server.connect();
    anybody.run("CREATE ROLE anybody; SET ROLE anybody");
    assert_eq!(anybody.warning(), not_in_force("idgen.allowed_shards"));
}

/// Promise 1: a list counts for every session once the server has read it, even for one whose statement goes on. When a
/// backend crashes, the server keeps the list.
#[test]
fn a_list_counts_for_statements_that_go_on() {
    let server = Server::start(&[PRELOAD]);
    let mut holder = server.connect();
    holder.run("SELECT pg_advisory_lock(1)");
    let calls = ["snowflake_next_id(5)", "snowflake_next_ids(5, 3)", "snowflake_next_id_js(5)"];
    let held = calls.map(|call| {
        let mut client = server.connect();
        let waits = "PERFORM pg_advisory_lock_shared(1)";
        thread::spawn(move || {
            client.error(&format!("DO 'BEGIN PERFORM {call}; {waits}; PERFORM {call}; END'"))
        })
    });
    server.wait_until("SELECT count(*) = 3 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted");
    server.set("idgen.allowed_shards", "6");
    holder.run("SELECT pg_advisory_unlock(1)");
    for client in held {
        let error = client.join().unwrap();
        let text = "this server may not mint ids for shard 5";
        assert_eq!((error.code().code(), error.message()), ("55000", text));
        assert!(error.detail().unwrap().ends_with("and this session another one."), "{error:?}");
    }
    server.kill_backend(server.connect());
    server.revive();
    server.value::<i64>("SELECT snowflake_next_id(6)");
    assert_eq!(server.code("SELECT snowflake_next_id(5)"), "55000");
}
