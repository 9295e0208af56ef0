//! The findings of `idgenctl check` on a fleet, one misconfiguration at a time.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::fleet::{File, Lines, for_servers, kind_and_server};
use crate::origins::room_for;
use crate::process::{ends, idgenctl, kill, major_version, permitted, said};
use crate::scaling::nodes_of_citus;
use crate::server::processes::Process;
use crate::server::{Build, PRELOAD, Server, Sql};

/// A primary that has minted, and its synchronous standby, named like the primary with `_b`.
fn cluster(name: &str, list: &str) -> (Server, Server) {
    let list = format!("idgen.allowed_shards = '{list}'");
    let primary = Server::start(&[PRELOAD, "max_prepared_transactions = 5", &list]);
    let standby = primary.synchronous_standby(&format!("{name}_b"));
    primary.run(&format!("SELECT snowflake_next_id({})", list.split(['\'', '-']).nth(1).unwrap()));
    (primary, standby)
}

/// A server and a database, a change in it, the statements that revert that, and the findings.
const CHANGES: &str = r#"
    one app => CREATE ROLE large; ALTER ROLE other SET idgen.shard = 5000; DO $$ BEGIN \
        EXECUTE format('ALTER ROLE large SET idgen.shard = %L', repeat(' ', 70000000) || '5'); END $$ \
        => DROP ROLE large; ALTER ROLE other SET idgen.shard = 5 => shard-not-allowed one
    one app => CREATE TABLE titles (id bigint DEFAULT idgen.snowflake_next_id(5), title text); GRANT INSERT (title) ON titles TO other; \
        REVOKE EXECUTE ON FUNCTION idgen.snowflake_next_id(integer) FROM PUBLIC \
        => GRANT EXECUTE ON FUNCTION idgen.snowflake_next_id(integer) TO PUBLIC; DROP TABLE titles => rights-missing one
    two template1 => CREATE SCHEMA idgen_portable; CREATE SEQUENCE idgen_portable.shard_5; \
        CREATE FUNCTION idgen_portable.snowflake_next_id(integer) RETURNS bigint LANGUAGE sql AS 'SELECT 1' \
        => DROP SCHEMA idgen_portable CASCADE => portable-edition two
    one postgres => ALTER ROLE ALL SET idgenctl.move_5 = '{"schema": "a", "from": "1", "to": "1", "owner": "", "opened": false, \
        "on_target": true, "token": 1}' => ALTER ROLE ALL RESET idgenctl.move_5 => move-not-ended one
    one postgres => SELECT snowflake_close_shard(5), snowflake_close_shard(5000) \
        => SELECT snowflake_reopen_shard(5), snowflake_reopen_shard(5000) => shard-closed one
    two postgres => SET allow_system_table_mods = on; INSERT INTO pg_replication_origin VALUES (65534, 'subscription') \
        => SET allow_system_table_mods = on; DELETE FROM pg_replication_origin => origin-named two, origin-named two_b
    two template1 => CREATE EXTENSION idgen VERSION '0.1.0' => DROP EXTENSION idgen => update-outstanding two
"#;

/// Healthy clusters have no findings. Each misconfiguration is found, without others, until it is reverted.
#[test]
fn each_misconfiguration_of_a_running_fleet_is_found() {
    let ((one, one_b), (two, two_b)) = thread::scope(|scope| {
        let first = scope.spawn(|| cluster("one", "0-4095"));
        let second = cluster("two", "4096-8191");
        (first.join().unwrap(), second)
    });
    one.run("CREATE SCHEMA insta5; CREATE TABLE insta5.photos (id bigint DEFAULT snowflake_next_id(5))");
    one.run("CREATE DATABASE app");
    // Its removal was interrupted.
    one.run("CREATE DATABASE half");
    one.run("UPDATE pg_database SET datconnlimit = -2, datallowconn = false WHERE datname = 'half'");
    one.connect_to("app").run("CREATE SCHEMA idgen; CREATE EXTENSION idgen SCHEMA idgen");
    one.until_followed(&["one_b"]);
    let all = [("one", &one), ("one_b", &one_b), ("two", &two), ("two_b", &two_b)];
    let fleet = File::of_servers(&all);
    let healthy = || fleet.until_found(&[]);
    healthy();
    let text = ends(fleet.command(&["check"]), 0, &[]);
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    // That of a release candidate would end in its name.
    let number: i32 = one.value("SELECT current_setting('server_version_num')::integer");
    let version = format!("{}.{}", number / 10_000, number % 10_000);
    let idgen = one.value::<String>("SELECT extversion FROM pg_extension WHERE extname = 'idgen'");
    assert_eq!(lines[1][..5], ["one", "primary", &version, &idgen, "0-4095"]);
    assert_eq!(lines[4][..5], ["two_b", "standby", &version, &idgen, "4096-8191"]);
    assert_eq!(lines.len(), 6, "{text}");
    assert!(text.contains("\nnothing found. Not seen:"), "{text}");

    // Settings that a reload changes: the servers, the line, and the findings.
    let of_settings: &[(&[&Server], &str, &[&str])] = &[
        (&[&two, &two_b], "idgen.allowed_shards = '4095-8191'", &["lists-overlap two"]),
        (&[&two, &two_b], "idgen.allowed_shards = ''", &["lists-overlap two"]),
        (&[&one_b], "idgen.allowed_shards = '0-99'", &["lists-differ one_b"]),
        (&[&one, &one_b], "idgen.allowed_shards = '100-4095'", &["shard-not-allowed one"]),
        (&[&two, &two_b], "idgen.max_ahead = 1h", &["max-ahead-wide two", "max-ahead-wide two_b"]),
        (&[&two], "idgen.max_clock_jump = -1", &["clock-jumps-unchecked two"]),
        (&[&one], "idgen.max_ahead = banana", &["setting-refused one"]),
        (&[&two_b], "idgen.epoch = '2024-01-01T00:00:00Z'", &["setting-refused two_b"]),
        (&[&one], "shared_preload_libraries = ''", &["not-preloaded one"]),
        (&[&one], "synchronous_standby_names = 'one_b, two, ONE'", &[]),
        (&[&one], "synchronous_standby_names = 'one_b, nobody'", &["sync-name-unknown one"]),
        (&[&one], "synchronous_standby_names = ''", &["asynchronous one"]),
        (&[&two_b], "primary_conninfo = ''", &["sync-too-few two"]),
        (&[&one], "fsync = off", &["fsync-off one"]),
        (&[&two, &two_b], "idgen.shard = 5", &["shard-not-allowed two"]),
    ];
    for (servers, line, found) in of_settings {
        let lines: Vec<_> = servers.iter().map(|server| Lines::of(server, &[line])).collect();
        eprintln!("{line}");
        fleet.until_found(found);
        drop(lines);
        healthy();
    }

    // A change on a server and in a database, the statement that reverts it, and the findings.
    let change = |(server, database): (&Server, &str), make: &str, undo: &str, found: &[&str]| {
        eprintln!("{make}");
        server.connect_to(database).run(make);
        fleet.until_found(found);
        server.connect_to(database).run(undo);
        healthy();
    };
    // A role sets a shard for itself. All columns of a domain share its default.
    one.connect_to("app").run(&format!(
        "CREATE ROLE other; ALTER ROLE other SET idgen.shard = 5;
         CREATE DOMAIN small AS real;
         CREATE DOMAIN small_of_small AS small DEFAULT idgen.snowflake_next_id(5);
         CREATE DOMAIN long AS bigint DEFAULT idgen.snowflake_next_id(5000) + length('{}')",
        "a".repeat(29_000)
    ));
    let many: String = (1..1000).map(|number| format!(", c{number} long")).collect();
    for (column, found) in [
        ("bigint DEFAULT idgen.snowflake_next_id(5000)", "shard-not-allowed one"),
        (&format!("long{many}"), "shard-not-allowed one"),
        ("bigint DEFAULT idgen.snowflake_next_id()", "shard-unset one"),
        (
            "bigint DEFAULT CASE WHEN true THEN idgen.snowflake_next_id(5000) ELSE idgen.snowflake_next_id(6) END",
            "shard-not-allowed one",
        ),
        ("integer DEFAULT idgen.snowflake_next_id(5)", "column-too-small one"),
        ("small_of_small", "column-too-small one"),
    ] {
        change((&one, "app"), &format!("CREATE TABLE bad (id {column})"), "DROP TABLE bad", &[found]);
    }
    for shard in ["5000", "'0x1388'", "'011610'", "' 5e3'"] {
        let [set, reset] = ["SET", "RESET"].map(|how| format!("ALTER DATABASE app {how} idgen.shard"));
        change((&one, "app"), &format!("{set} = {shard}"), &reset, &["shard-not-allowed one"]);
    }
    one.connect_to("app").run("CREATE DOMAIN own AS bigint DEFAULT idgen.snowflake_next_id()");
    for column in ["bigint DEFAULT idgen.snowflake_next_id()", "own"] {
        change(
            (&one, "app"),
            &format!(
                "CREATE ROLE tenant; CREATE TABLE his (id {column}); ALTER ROLE tenant SET idgen.shard = 5;
                 ALTER TABLE his OWNER TO tenant; REVOKE EXECUTE ON FUNCTION idgen.snowflake_next_id() FROM PUBLIC;
                 GRANT USAGE ON SCHEMA idgen TO tenant"
            ),
            "GRANT EXECUTE ON FUNCTION idgen.snowflake_next_id() TO PUBLIC; DROP TABLE his;
             REVOKE USAGE ON SCHEMA idgen FROM tenant; DROP ROLE tenant",
            &["rights-missing one"],
        );
    }
    // Only the shard of a move counts as moved, not what has such a name.
    let moved = "CREATE SCHEMA a_moved; CREATE TABLE a_moved.t (id bigint DEFAULT snowflake_next_id(5000))";
    change((&one, "postgres"), moved, "DROP SCHEMA a_moved CASCADE", &["shard-not-allowed one"]);
    for (shard, found) in [(5000, &[][..]), (4999, &["shard-not-allowed one"])] {
        let kept = format!("CREATE SCHEMA a; COMMENT ON SCHEMA a IS 'idgenctl move {shard} of 1/1'; {moved}");
        change((&one, "postgres"), &kept, "DROP SCHEMA a, a_moved CASCADE", found);
    }
    for line in CHANGES.replace("\\\n", "").lines().filter(|line| !line.is_empty()) {
        let [place, make, undo, found] = line.split(" => ").collect::<Vec<_>>()[..] else { panic!("{line}") };
        let (server, database) = place.trim().split_once(' ').unwrap();
        let found: Vec<&str> = found.split(", ").collect();
        change((if server == "one" { &one } else { &two }, database), make, undo, &found);
    }

    // A transaction that was just prepared may be part of a two-phase commit.
    one.run("BEGIN; CREATE TABLE prepared (); PREPARE TRANSACTION 'young'");
    healthy();
    two.set_clock(-90.0);
    two.run("BEGIN; CREATE TABLE prepared (); PREPARE TRANSACTION 'old'");
    two.set_clock(0.0);
    fleet.until_found(&["prepared-transactions two"]);
    one.run("ROLLBACK PREPARED 'young'");
    two.run("ROLLBACK PREPARED 'old'");
    healthy();

    // A primary may replace functions, on its standby too, which must not pass for a server of the other cluster.
    let system: String = one.value("SELECT system_identifier::text FROM pg_control_system()");
    let mut client = two.connect();
    client.run("SET allow_system_table_mods = on; ALTER FUNCTION pg_control_system() RENAME TO real");
    client.run(&format!(
        "CREATE FUNCTION pg_catalog.pg_control_system(OUT system_identifier bigint) LANGUAGE sql AS 'SELECT {system}'"
    ));
    let lines = Lines::of(&two_b, &["idgen.allowed_shards = '4095-8191'"]);
    fleet.until_found(&["lists-overlap two_b", "lists-differ two_b"]);
    drop(lines);
    client.run("DROP FUNCTION pg_control_system(); ALTER FUNCTION real RENAME TO pg_control_system");
    healthy();

    // Clocks, and the mark against them.
    two_b.set_clock(10.0);
    fleet.until_found(&["clock-differs two_b"]);
    two_b.set_clock(-3600.0);
    fleet.until_found(&["clock-differs two_b", "mark-in-future two_b"]);
    two_b.set_clock(0.0);
    healthy();

    // Fleet files that lack servers, or have too many.
    File::of_servers(&[all[0], all[2], all[3]]).until_found(&["standby-not-in-fleet one"]);
    File::of_servers(&all[1..]).until_found(&["no-primary one_b"]);
    one.run("CREATE ROLE ordinary LOGIN");
    one.until_followed(&["one_b"]);
    File::of(&[("one", one.target_as("ordinary"))]).until_found(&["server-not-seen one"]);
    let mut targets: Vec<_> = all.map(|(name, server)| (name, server.target("postgres"))).into();
    targets.push(("again", two.target("postgres").replace("/tmp/", "/tmp/../tmp/")));
    File::of(&targets).until_found(&["same-server two"]);
    targets[4] = ("nowhere", "host=/nowhere user=postgres".to_owned());
    let more = File::of(&targets);
    more.until_found(&["unreachable nowhere"]);

    // Findings to ignore, on the command line and in the file.
    let check = |args: &[&str], code: i32| ends(more.command(&[&["check"], args].concat()), code, &[]);
    check(&["--ignore", "unreachable:one"], 3);
    check(&["--ignore", "unreachable:nowhere"], 0);
    check(&["--ignore", "no-primary", "--ignore", "unreachable"], 0);
    let pair = File::of(&[targets[1].clone(), targets[4].clone()]);
    ends(pair.command(&["check", "--ignore", "unreachable"]), 5, &["no-primary"]);
    let text = fs::read_to_string(&more.0).unwrap();
    fs::write(&more.0, format!("ignore = [\"unreachable:nowhere\"]\n{text}")).unwrap();
    check(&[], 0);
}

/// Promise: misconfigurations that take a restart are found too, one by one, and so are two primaries of a cluster.
#[test]
fn misconfigurations_that_need_a_restart_are_found() {
    let is_new = major_version() >= 17;
    // Without a preload, also between the change of the setting and the restart.
    let plain = Server::start_plain(&[]);
    plain.run("CREATE EXTENSION idgen");
    let alone = File::of_servers(&[("plain", &plain)]);
    let found = if is_new { &["not-preloaded plain"] } else { &["library-fails plain"] };
    alone.until_found(found);
    plain.run("ALTER SYSTEM SET shared_preload_libraries = 'idgen'");
    plain.run("SELECT pg_reload_conf()");
    alone.until_found(found);
    plain.restart();
    alone.until_found(&[]);
    plain.run("ALTER SYSTEM RESET shared_preload_libraries");
    plain.restart_with(&["idgen.max_ahead = 2s"]);
    alone.until_found(&["library-fails plain"]);

    // Room for the mark on a standby, before the first mark.
    let primary = Server::start(&[PRELOAD]);
    let mut standby = primary.synchronous_standby("b");
    let pair = File::of_servers(&[("a", &primary), ("b", &standby)]);
    pair.until_found(&[]);
    standby.restart_with(&[&room_for(0)]);
    pair.until_found(&["no-room b"]);
    standby.configure(&[&room_for(10)]);

    // A standby that lacks something.
    standby.restart_with(&["shared_preload_libraries = ''"]);
    pair.until_found(&[if is_new { "not-preloaded b" } else { "library-fails b" }]);
    standby.stop("fast");
    pair.until_found(&["sync-too-few a", "unreachable b"]);
    standby.set_build(Build::Bare);
    standby.up();
    pair.until_found(&["library-missing b"]);
    standby.set_build(Build::Release);
    standby.restart_with(&[PRELOAD]);
    pair.until_found(&[]);
    standby.restart_with(&["idgen.epoch = '2024-01-01T00:00:00Z'"]);
    pair.until_found(&["epoch-differs b"]);
    standby.restart_with(&["idgen.epoch = '2025-01-01T00:00:00Z'"]);

    // Of two primaries, the administrator has to decide which one counts before anything else.
    primary.run("SELECT snowflake_next_id(1)");
    primary.until_followed(&["b"]);
    standby.promote();
    standby.run("CREATE TABLE far (id integer DEFAULT snowflake_next_id(5))");
    let other = Server::start(&[PRELOAD]);
    let all = [("a", &primary), ("b", &standby), ("c", &other)];
    let three = File::of_servers(&all);
    let mut targets = all.map(|(name, server)| (name, server.target("postgres"))).to_vec();
    targets.push(("d", "host=/nowhere user=postgres".into()));
    let found = File::of(&targets).until_found(&[
        "two-primaries b",
        "sync-too-few a",
        "column-too-small b",
        "lists-overlap c",
        "unreachable d",
    ]);
    for finding in found {
        let hint = finding["hint"].as_str().unwrap();
        assert_eq!(hint.is_empty(), finding["id"] != "two-primaries", "{finding:#}");
    }
    // A copy that has shards of its own may run beside its original.
    primary.make_asynchronous();
    standby.run("DROP TABLE far");
    for (server, list) in [(&primary, "0-9"), (&standby, "10-19"), (&other, "20-29")] {
        server.set("idgen.allowed_shards", list);
    }
    three.until_found(&[]);
    other.set("idgen.allowed_shards", "19-29");
    three.until_found(&["lists-overlap c"]);
    // A standby of either is known by its timeline, and by the server that sends it WAL.
    let follower = standby.standby("d");
    follower.set("idgen.allowed_shards", "10-19");
    File::of_servers(&[("a", &primary), ("b", &standby), ("d", &follower)]).until_found(&["asynchronous b"]);
    File::of_servers(&[("a", &primary), ("d", &follower)]).until_found(&["no-primary d"]);
    drop(follower);

    // Epochs.
    standby.restart_with(&["idgen.epoch = '2024-01-01T00:00:00Z'"]);
    File::of_servers(&[("b", &standby)]).until_found(&["epoch-of-mark b"]);
    let far =
        Server::start(&[PRELOAD, "idgen.epoch = '1993-01-01T00:00:00Z'", "idgen.allowed_shards = '30-39'"]);
    File::of_servers(&[("a", &primary), ("far", &far)]).until_found(&["epoch-differs far", "range-ends far"]);

    // Warnings of idgen.
    let alone = File::of_servers(&[("c", &other)]);
    ends(for_servers(&[&other], &["check"]), 0, &[]);
    other.run("SELECT snowflake_next_id(19)");
    other.set_clock(-20.0);
    alone.until_found(&["clock-behind c", "clock-differs c"]);
    other.set_clock(7200.0);
    alone.until_found(&["clock-differs c", "clock-jumped c"]);
    other.set_clock(0.0);
    alone.until_found(&[]);
    other.restart();
    other.run("SELECT snowflake_remove_mark()");
    alone.until_found(&["mark-removed c"]);
    for (line, found) in [
        ("idgen.allowed_shards = 'banana'", "setting-not-accepted c"),
        ("idgen.epoch = '2100-01-01T00:00:00Z'", "clock-before-epoch c"),
        ("idgen.epoch = '1980-01-01T00:00:00Z'", "range-used-up c"),
    ] {
        other.restart_with(&["idgen.allowed_shards = ''", line]);
        alone.until_found(&[found]);
    }
}

/// Promise: if the mark is ahead of the clock, what the hint says lets the server mint, and is reverted afterwards.
#[test]
fn the_hint_about_a_mark_in_the_future_lets_ids_be_minted() {
    let server = Server::start(&[PRELOAD]);
    let fleet = File::of_servers(&[("c", &server)]);
    server.restart_at("fast", 1800.0);
    let last: i64 = server.value("SELECT snowflake_next_id(1)");
    server.restart_at("fast", 0.0);
    let hint = fleet.until_found(&["mark-in-future c"])[0]["hint"].as_str().unwrap().to_owned();
    assert!(hint.contains("or set 'idgen.max_ahead'") && !hint.contains("epoch"), "{hint}");
    server.set("idgen.max_ahead", "1h");
    fleet.until_found(&[]);
    assert!(server.value::<i64>("SELECT snowflake_next_id(1)") > last);
    server.set_clock(1900.0);
    fleet.until_found(&["clock-differs c", "max-ahead-wide c"]);
}

/// Promise: under Patroni, a hint names Patroni's way or only the fact. No other session can pretend to be Patroni.
#[test]
fn hints_are_those_of_patroni_where_it_rules() {
    let (one, one_b) = cluster("one", "0-4095");
    let fleet = File::of_servers(&[("one", &one), ("one_b", &one_b)]);
    one.run("CREATE ROLE ordinary LOGIN");
    let _lines = Lines::of(&one, &["fsync = off", "synchronous_standby_names = 'FIRST 2 (one_b, nobody)'"]);
    let hints = || -> Vec<String> {
        let found = fleet.until_found(&["fsync-off one", "sync-too-few one", "sync-name-unknown one"]);
        found.iter().map(|finding| finding["hint"].as_str().unwrap().to_owned()).collect()
    };
    let session = |role: &str| {
        let mut config: postgres::Config = one.target_as(role).parse().unwrap();
        config.application_name("Patroni heartbeat").connect(postgres::NoTls).unwrap()
    };
    let pretends = session("ordinary");
    assert!(hints().iter().all(|hint| !hint.is_empty() && !hint.contains("patronictl")), "{:?}", hints());
    drop(pretends);
    let _session = session("postgres");
    for hint in hints() {
        assert!(hint.is_empty() || hint.starts_with("Set fsync = on. Use patronictl edit-config"), "{hint}");
    }
}

/// Promise: a receiver that keeps WAL without replaying it is found if it may acknowledge in place of the standby.
#[test]
fn others_than_standbys_may_acknowledge() {
    let (one, one_b) = cluster("one", "0-4095");
    let fleet = File::of_servers(&[("one", &one), ("one_b", &one_b)]);
    one.run("SELECT pg_create_physical_replication_slot('fresh')");
    fleet.until_found(&[]);
    let keeps = "mkdir -p kept && exec pg_receivewal --synchronous -D kept -d 'application_name=keeper'";
    let mut keeper = one.shell(keeps).spawn().unwrap();
    one.wait_until("SELECT count(*) = 1 FROM pg_stat_replication WHERE application_name = 'keeper'");
    fleet.until_found(&[]);
    for (names, found) in [
        ("FIRST 2 (one_b, keeper)", &[][..]),
        ("ANY 1 (one_b, keeper)", &["sync-not-a-standby one"]),
        ("keeper", &["sync-not-a-standby one"]),
    ] {
        let _lines = Lines::of(&one, &[&format!("synchronous_standby_names = '{names}'")]);
        fleet.until_found(found);
    }
    keeper.kill().unwrap();
    keeper.wait().unwrap();
}

/// Promise: the Citus nodes of docs/scaling.md have no findings, but a default for a shard of no node, or of another.
#[test]
fn the_nodes_of_citus_are_clean() {
    let Some(nodes) = nodes_of_citus() else { return };
    let fleet = File::of_servers(&[("zero", &nodes[0]), ("one", &nodes[1]), ("two", &nodes[2])]);
    fleet.until_found(&[]);
    let local = |sql: &str| nodes[1].run(&format!("SET citus.enable_ddl_propagation = off; {sql}"));
    local("CREATE SCHEMA own; CREATE TABLE own.far (id bigint DEFAULT idgen.snowflake_next_id(5000))");
    fleet.until_found(&["shard-not-allowed one"]);
    local("DROP SCHEMA own CASCADE; ALTER DATABASE postgres SET idgen.shard = 1");
    fleet.until_found(&["shard-not-allowed one"]);
}

/// Promise: errors about a connection string or a fleet file show no password.
#[test]
fn no_error_shows_a_password() {
    for connection in [
        "host=a,b password=s3cret",
        "host=a password=s3cret b",
        "host=a password=b s3cret",
        "host=a passwd=s3cret",
        "postgresql://u:s3cret@[::1/x",
        "postgresql://u:s3cret%zz@a/x",
    ] {
        let quoted = format!("\"{connection}\"");
        let mut outputs = vec![idgenctl(&["--server", connection, "check", "--json"]).output().unwrap()];
        for text in [
            format!("[servers]\none = {quoted}\n"),
            format!("[servers]\none = {quoted} two = 2\n"),
            format!("[servers]\none = [{quoted}]\n"),
            format!("[servers]\none = {}\n", quoted.trim_end_matches('"')),
            format!("servers = {quoted}\n"),
            format!("[servers]\n{quoted}\n"),
            format!("[servers]\n{connection}\n"),
        ] {
            let file = File::of(&[]);
            fs::write(&file.0, text).unwrap();
            outputs.push(file.run(&["check"]));
        }
        for output in outputs {
            assert_eq!(output.status.code(), Some(2), "{}", said(&output));
            assert!(!said(&output).contains("s3cret"), "{}", said(&output));
        }
    }
}

/// Promise: an owner who closes, blocks and drops databases while the check runs hides nothing in those of others.
#[test]
fn the_databases_of_others_are_seen() {
    let server = Server::start(&[PRELOAD, "idgen.allowed_shards = '0-9'"]);
    let hung = ["b", "c", "d", "e"];
    for name in hung.iter().chain(&["a", "f", "y", "z"]) {
        server.run(&format!("CREATE DATABASE {name}"));
    }
    let far = "CREATE EXTENSION idgen; CREATE TABLE far (id bigint DEFAULT snowflake_next_id(50))";
    server.connect_to("z").run(far);
    server.run("ALTER DATABASE a ALLOW_CONNECTIONS false");
    let mut sessions = hung.map(|name| server.connect_to(name));
    sessions.iter_mut().for_each(|session| session.run("BEGIN; LOCK pg_attrdef"));
    let mut renaming = server.connect();
    renaming.run("BEGIN; ALTER DATABASE f RENAME TO g");
    let fleet = File::of(&[("one", server.target("a"))]);
    let found = thread::scope(|scope| {
        let found = scope.spawn(|| fleet.findings());
        server
            .wait_until("SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE '%FROM pg_locks%' AND pid <> pg_backend_pid()");
        server.run("DROP DATABASE y");
        found.join().unwrap()
    });
    // Nothing waits for their locks: such a session could not be ended.
    assert_eq!(found.iter().filter(|it| it["message"].as_str().unwrap().contains("is locked")).count(), 5);
    let found: Vec<_> = found.iter().map(|it| [&it["severity"], &it["id"], &it["database"]]).collect();
    let not_seen = ["a", "b", "c", "d", "e", "f"].map(|name| ["error", "database-not-seen", name]);
    assert_eq!(found, [&[["error", "shard-not-allowed", "z"]], &not_seen[..]].concat());
}

/// Names that end a quote, a line or a statement, control a terminal, reverse a line, or look like a connection string.
const HOSTILE: &[&str] = &[
    "host=/nowhere user=nobody dbname=template1",
    "postgresql://nowhere:1/x",
    "a\"b'c;DROP TABLE x;--",
    "line\nerror: forged: all is lost [forged]",
    "\u{1b}[2J\u{1b}]0;title\u{7}\u{9b}31m",
    "\u{202e}txt.exe\u{2066}\u{2028}",
    "$(touch /tmp/idgen-hostile)`touch /tmp/idgen-hostile`",
    "-c",
    "%s%n\\x41\\",
];

/// Promise of docs/security.md: names are data. They do not change the findings, control no terminal, and run nothing.
/// A tenant's object with a name of idgen's or PostgreSQL's is not called, even in idgen's own schema.
#[test]
fn hostile_names_and_objects_are_data() {
    let server = Server::start(&[PRELOAD, "idgen.allowed_shards = '0-9'"]);
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let hostile: Vec<String> = HOSTILE.iter().map(|name| permitted(name)).collect();
    for name in &hostile {
        let name = quoted(name);
        server.run(&format!("CREATE DATABASE {name}"));
        server.run(&format!("CREATE ROLE {name}"));
        server.run(&format!("ALTER ROLE {name} IN DATABASE {name} SET idgen.shard = 77"));
    }
    for database in &hostile {
        let mut client = server.connect_to(database);
        let role = quoted(database);
        // The tenant had the right to create objects in idgen's schema.
        client.run(&format!(
            "CREATE SCHEMA idgen; CREATE EXTENSION idgen SCHEMA idgen; GRANT USAGE ON SCHEMA idgen TO PUBLIC;
             GRANT CREATE ON SCHEMA idgen, public TO {role}; GRANT CREATE ON DATABASE {role} TO {role};
             ALTER EXTENSION idgen DROP VIEW idgen.idgen_columns; DROP VIEW idgen.idgen_columns;
             ALTER EXTENSION idgen DROP VIEW idgen.idgen_status; DROP VIEW idgen.idgen_status;
             SET ROLE {role};
             CREATE FUNCTION public.trap() RETURNS boolean LANGUAGE plpgsql AS
                 'BEGIN EXECUTE format(''ALTER ROLE %I SUPERUSER'', ''{literal}''); RETURN true; END';
             CREATE FUNCTION idgen.idgen_allows(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT public.trap()';
             CREATE FUNCTION idgen.idgen_allows(text) RETURNS boolean LANGUAGE sql AS 'SELECT public.trap()';
             CREATE FUNCTION idgen.snowflake_check(integer DEFAULT 0) RETURNS boolean LANGUAGE sql AS
                 'SELECT public.trap()';
             CREATE VIEW idgen.idgen_columns AS SELECT public.trap();
             CREATE VIEW idgen.idgen_status AS SELECT public.trap();
             RESET ROLE",
            literal = database.replace('\'', "''''"),
        ));
        client.run("SELECT * FROM idgen.idgen_status");
        let reset = "UPDATE pg_authid SET rolsuper = false WHERE rolname = $1 AND rolsuper";
        assert_eq!(client.execute(reset, &[database]).unwrap(), 1, "the trap works");
        for name in &hostile {
            let name = quoted(name);
            let table = format!("{name}.{name} ({name} bigint DEFAULT idgen.snowflake_next_id(50))");
            client.run(&format!("CREATE SCHEMA {name}; CREATE TABLE {table}"));
        }
    }
    let fleet = File::of_servers(&[("one", &server)]);
    let found = fleet.findings();
    let databases: BTreeSet<String> =
        found.iter().map(|finding| finding["database"].as_str().unwrap_or_default().to_owned()).collect();
    assert_eq!(databases, hostile.iter().cloned().collect(), "{found:#?}");
    assert!(found.iter().all(|finding| finding["id"] == "shard-not-allowed"), "{found:#?}");
    let has = |text: &str| found.iter().any(|finding| finding["message"].as_str().unwrap().contains(text));
    assert!(has(r#"role "a""b'c;DROP TABLE x;--""#) && has(r#""-c.-c.-c""#), "{found:#?}");

    for args in [&["check"][..], &["check", "--json"]] {
        let output = fleet.run(args);
        let text = said(&output);
        let turns = |c: char| matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        assert!(text.chars().all(|c| c == '\n' || !c.is_control() && !turns(c)), "{args:?}: {text:?}");
        assert!(!text.lines().any(|line| line.starts_with("error: forged")), "{text}");
    }
    assert!(!PathBuf::from("/tmp/idgen-hostile").exists());
    assert_eq!(server.value::<i64>("SELECT count(*) FROM pg_roles WHERE rolsuper"), 1);
}

/// Promise: names that are invalid in every encoding do not stop the check, nor do databases that clients cannot read.
#[test]
fn names_of_other_encodings_hide_nothing() {
    let server = Server::start(&[PRELOAD, "idgen.allowed_shards = '0-9'"]);
    let mut seen = vec!["UTF8"];
    for encoding in ["SQL_ASCII", "WIN1252", "LATIN1", "EUC_JP", "MULE_INTERNAL"] {
        // PostgreSQL 19 has no MULE_INTERNAL.
        if encoding == "MULE_INTERNAL" && major_version() >= 19 {
            continue;
        }
        let options = format!("ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0");
        server.run(&format!("CREATE DATABASE \"{encoding}\" {options}"));
        let target = server.target(encoding);
        // The server stores the bytes that psql sends.
        let script = format!(
            "printf 'SET client_encoding = sql_ascii; CREATE SCHEMA idgen; CREATE EXTENSION idgen SCHEMA idgen;
             CREATE TABLE \"a\\201\\351\" (id bigint DEFAULT idgen.snowflake_next_id(50));' |
             psql -X -v ON_ERROR_STOP=1 -d '{target}'"
        );
        let output = server.shell(&script).output().unwrap();
        assert!(output.status.success() || encoding == "EUC_JP", "{encoding}: {}", said(&output));
        seen.extend(Some(encoding).filter(|_| output.status.success()));
    }
    server.run("CREATE DATABASE \"UTF8\" ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0");
    let sql = "CREATE EXTENSION idgen; CREATE TABLE \"\u{202e}\" (id bigint DEFAULT snowflake_next_id(50))";
    server.connect_to("UTF8").run(sql);
    let fleet = File::of_servers(&[("one", &server)]);
    let found = fleet.findings();
    for name in seen {
        let is_it = |finding: &&Value| finding["database"] == name && finding["id"] == "shard-not-allowed";
        assert!(found.iter().any(|finding| is_it(&finding)), "{name}: {found:#?}");
    }
    assert!(found.iter().all(|finding| finding["id"] == "shard-not-allowed"), "{found:#?}");
    assert!(!said(&fleet.run(&["check"])).contains('\u{202e}'));
}

/// Promise: if a server is frozen, the check reports it, and checks the others. The limit is ten times the usual time.
#[test]
fn a_frozen_server_is_a_finding() {
    let (one, one_b) = cluster("one", "0-4095");
    let fleet = File::of_servers(&[("one", &one), ("one_b", &one_b)]);
    fleet.until_found(&[]);
    for (server, found) in [(&one_b, "unreachable one_b"), (&one, "unreachable one")] {
        let stopped = server.stop_all();
        let start = Instant::now();
        let findings = fleet.findings();
        assert!(start.elapsed() < Duration::from_secs(200), "{:?}", start.elapsed());
        assert!(findings.iter().any(|finding| kind_and_server(finding) == found), "{findings:#?}");
        // Ctrl-C does not wait for the server either. The signal may come before the program has a handler.
        let mut check =
            fleet.command(&["check"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        thread::sleep(Duration::from_millis(500));
        kill("INT", check.id() as i32).unwrap();
        let status = check.wait().unwrap();
        assert!(matches!(status.code(), None | Some(130)), "{status}");
        stopped.iter().for_each(Process::go_on);
        fleet.until_found(&[]);
    }
    // A failover begins like this.
    one.stop("fast");
    let found = fleet.until_found(&["unreachable one"]);
    assert!(found[0]["hint"].as_str().unwrap().contains("start it only as a standby"), "{found:#?}");
}
