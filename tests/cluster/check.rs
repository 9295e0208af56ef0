//! What `idgenctl check` finds on a fleet, one misconfiguration at a time, and what `idgenctl status` shows.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::moment::is_reached;
use crate::origins::limit_of_origins;
use crate::process::{idgenctl, kill, major_version, permitted, said, servers_folder};
use crate::server::processes::Process;
use crate::server::{Build, PRELOAD, Server, Sql};

const REWINDABLE: &str = "wal_log_hints = on";

/// A file of servers.
struct File(PathBuf);

impl File {
    fn of(servers: &[(&str, String)]) -> File {
        static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = servers_folder().join(format!("fleet-{}-{number}.toml", std::process::id()));
        let lines: String =
            servers.iter().map(|(name, target)| format!("\"{name}\" = \"{target}\"\n")).collect();
        fs::write(&path, format!("[servers]\n{lines}")).unwrap();
        File(path)
    }

    fn of_servers(servers: &[(&str, &Server)]) -> File {
        let targets: Vec<_> =
            servers.iter().map(|(name, server)| (*name, server.target("postgres"))).collect();
        File::of(&targets)
    }

    fn run(&self, args: &[&str]) -> Output {
        idgenctl(&[&["--fleet", self.0.to_str().unwrap()], args].concat()).output().unwrap()
    }

    /// What the check finds, as its JSON has it.
    fn findings(&self) -> Vec<Value> {
        let output = self.run(&["check", "--json"]);
        let findings: Vec<Value> = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}\n{}", said(&output)));
        let counts = findings.iter().any(|finding| finding["severity"] != "note");
        assert_eq!(output.status.code(), Some(if counts { 3 } else { 0 }), "{}", said(&output));
        findings
    }

    /// Waits until the check finds exactly these, by their kind and server. Settings reach the processes of a server one
    /// after the other.
    #[track_caller]
    fn until_found(&self, expected: &[&str]) {
        self.until(expected, |finding| finding["severity"] != "note");
    }

    /// The same with notes.
    #[track_caller]
    fn until_noted(&self, expected: &[&str]) {
        self.until(expected, |_| true);
    }

    #[track_caller]
    fn until(&self, expected: &[&str], counts: impl Fn(&Value) -> bool) {
        let expected: BTreeSet<String> = expected.iter().map(|text| (*text).to_owned()).collect();
        let mut last = Vec::new();
        let is_so = || {
            last = self.findings();
            let name = |f: &Value| format!("{} {}", f["id"].as_str().unwrap(), f["server"].as_str().unwrap());
            last.iter().filter(|finding| counts(finding)).map(name).collect::<BTreeSet<_>>() == expected
        };
        let reached = is_reached(60, is_so);
        assert!(reached, "expected {expected:?}, found {last:#?}");
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Lines in a server's configuration, until they are dropped.
struct Lines<'a> {
    server: &'a Server,
    file: PathBuf,
    before: String,
}

impl<'a> Lines<'a> {
    fn of(server: &'a Server, lines: &[&str]) -> Lines<'a> {
        let file = PathBuf::from(server.value::<String>("SHOW config_file"));
        let before = fs::read_to_string(&file).unwrap();
        server.configure(lines);
        server.run("SELECT pg_reload_conf()");
        Lines { server, file, before }
    }
}

impl Drop for Lines<'_> {
    fn drop(&mut self) {
        fs::write(&self.file, &self.before).unwrap();
        self.server.read_configuration();
    }
}

/// A primary that has minted, and its synchronous standby, which is called as the primary with `_b`.
fn cluster(name: &str, list: &str) -> (Server, Server) {
    let list = format!("idgen.allowed_shards = '{list}'");
    let primary = Server::start(&[PRELOAD, REWINDABLE, &list]);
    let standby = primary.standby(&format!("{name}_b"));
    primary.make_synchronous(&format!("{name}_b"));
    primary.run(&format!("SELECT snowflake_next_id({})", list.split(['\'', '-']).nth(1).unwrap()));
    (primary, standby)
}

/// Two healthy clusters with a standby each have no findings. Each misconfiguration that can be made while they run is
/// found with its kind and on its server, no other one is, and nothing is found once it is taken back.
#[test]
fn each_misconfiguration_of_a_running_fleet_is_found() {
    let ((one, one_b), (two, two_b)) = thread::scope(|scope| {
        let first = scope.spawn(|| cluster("one", "0-4095"));
        let second = cluster("two", "4096-8191");
        (first.join().unwrap(), second)
    });
    one.run("CREATE SCHEMA insta5; CREATE TABLE insta5.photos (id bigint DEFAULT snowflake_next_id(5))");
    one.run("CREATE DATABASE app");
    one.connect_to("app").run("CREATE SCHEMA idgen; CREATE EXTENSION idgen SCHEMA idgen");
    one.until_followed(&["one_b"]);
    let all = [("one", &one), ("one_b", &one_b), ("two", &two), ("two_b", &two_b)];
    let fleet = File::of_servers(&all);
    let healthy = || fleet.until_noted(&[]);
    healthy();
    let output = fleet.run(&["check"]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.starts_with(
            "nothing found on 4 servers of 2 clusters, with 5 databases, of which 3 have idgen. Not seen:"
        ),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1);

    // Settings that a reload changes: the lines, the servers that get them, and what is found.
    let of_settings: &[(&[&Server], &str, &[&str])] = &[
        (&[&two, &two_b], "idgen.allowed_shards = '4095-8191'", &["lists-overlap two"]),
        (&[&two, &two_b], "idgen.allowed_shards = ''", &["lists-overlap two"]),
        (&[&one_b], "idgen.allowed_shards = '0-99'", &["lists-differ one_b"]),
        (&[&one_b], "idgen.allowed_shards = '100-4095'", &["lists-differ one_b", "shard-not-allowed one_b"]),
        (&[&one, &one_b], "idgen.allowed_shards = '100-4095'", &["shard-not-allowed one"]),
        (&[&two_b], "idgen.max_ahead = 2s", &["settings-differ two_b"]),
        (
            &[&two, &two_b],
            "idgen.max_clock_jump = -1",
            &["clock-jumps-unchecked two", "clock-jumps-unchecked two_b"],
        ),
        (&[&one], "idgen.max_ahead = banana", &["setting-refused one"]),
        (&[&two_b], "idgen.max_ahed = 2s", &["setting-refused two_b"]),
        (&[&two], "idgen.max_ahead = = 2s", &["files-not-read two"]),
        (&[&one], "shared_preload_libraries = 'idgen, none'", &["restart-for-setting one"]),
        (&[&two_b], "idgen.epoch = '2024-01-01T00:00:00Z'", &["restart-for-setting two_b"]),
        (&[&one], "synchronous_standby_names = 'one_b, nobody'", &["sync-name-unknown one"]),
        (
            &[&one],
            "synchronous_standby_names = 'FIRST 2 (one_b, nobody)'",
            &["sync-name-unknown one", "sync-too-few one"],
        ),
        (&[&two_b], "primary_conninfo = ''", &["standby-not-streaming two_b", "sync-too-few two"]),
        (
            &[&one_b],
            "primary_conninfo = 'host=/nowhere application_name=one_b'",
            &["standby-not-streaming one_b", "sync-too-few one"],
        ),
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
    let lines = Lines::of(&two, &["idgen.allowed_shards = '4095-4097'"]);
    fleet.until_found(&["lists-overlap two", "lists-differ two_b"]);
    let output = fleet.run(&["check"]);
    let text = said(&output);
    println!("{text}");
    let overlap = "error: two: its shards are also those of other clusters, which mint the same ids: one (4095) \
                   [lists-overlap]. Give each cluster shards of its own";
    assert!(text.lines().count() == 2 && text.lines().any(|line| line.starts_with(overlap)), "{text}");
    drop(lines);
    healthy();

    // Notes do not make the exit code another one.
    for (line, noted) in [
        ("synchronous_standby_names = ''", "asynchronous one"),
        ("synchronous_standby_names = 'one_b, ONE_B'", "sync-candidates one"),
    ] {
        let lines = Lines::of(&one, &[line]);
        fleet.until_noted(&[noted]);
        drop(lines);
        healthy();
    }

    // What a statement does, on which server and in which database; how it is taken back; and what is found.
    let catalog = "SET allow_system_table_mods = on;";
    let of_statements: &[(&Server, &str, String, String, &[&str])] = &[
        (
            &one,
            "app",
            "CREATE TABLE far (id bigint DEFAULT idgen.snowflake_next_id(5000))".into(),
            "DROP TABLE far".into(),
            &["shard-not-allowed one"],
        ),
        (
            &one,
            "app",
            "ALTER DATABASE app SET idgen.shard = 5000".into(),
            "ALTER DATABASE app RESET idgen.shard".into(),
            &["shard-not-allowed one"],
        ),
        (
            &one,
            "app",
            "CREATE ROLE tenant; GRANT CREATE ON SCHEMA idgen TO tenant".into(),
            "REVOKE CREATE ON SCHEMA idgen FROM tenant; DROP ROLE tenant".into(),
            &["schema-not-trusted one"],
        ),
        (
            &one,
            "app",
            "CREATE SCHEMA idgen_portable; CREATE SEQUENCE idgen_portable.shard_5".into(),
            "DROP SCHEMA idgen_portable CASCADE".into(),
            &["portable-edition one"],
        ),
        (
            &one,
            "postgres",
            "ALTER SCHEMA insta5 RENAME TO insta5_moving".into(),
            "ALTER SCHEMA insta5_moving RENAME TO insta5".into(),
            &["move-not-ended one"],
        ),
        (
            &two,
            "postgres",
            "SELECT pg_create_physical_replication_slot('gone', true)".into(),
            "SELECT pg_drop_replication_slot('gone')".into(),
            &["slot-unused two"],
        ),
        (
            &one_b,
            "postgres",
            "SELECT pg_wal_replay_pause()".into(),
            "SELECT pg_wal_replay_resume()".into(),
            &["replay-paused one_b"],
        ),
        (
            &two,
            "postgres",
            format!("{catalog} INSERT INTO pg_db_role_setting VALUES (0, 10, '{{idgen.max_ahead=5}}')"),
            format!("{catalog} DELETE FROM pg_db_role_setting"),
            &["setting-of-role two"],
        ),
        (
            &two,
            "postgres",
            format!("{catalog} INSERT INTO pg_replication_origin VALUES (65534, 'subscription')"),
            format!("{catalog} DELETE FROM pg_replication_origin"),
            &["origin-named two", "origin-named two_b"],
        ),
        (
            &one,
            "postgres",
            "UPDATE pg_database SET datconnlimit = -2 WHERE datname = 'app'".into(),
            "UPDATE pg_database SET datconnlimit = -1 WHERE datname = 'app'".into(),
            &["database-not-seen one", "database-not-seen one_b"],
        ),
        (
            &two,
            "template1",
            "CREATE EXTENSION idgen VERSION '0.1.0'".into(),
            "DROP EXTENSION idgen".into(),
            &["update-outstanding two"],
        ),
    ];
    for (server, database, make, undo, found) in of_statements {
        server.connect_to(database).run(make);
        eprintln!("{make}");
        fleet.until_found(found);
        server.connect_to(database).run(undo);
        healthy();
    }

    // What a move leaves behind.
    one.run("CREATE SCHEMA insta9_moved; CREATE TABLE insta9_moved.photos (id bigint DEFAULT snowflake_next_id(5009))");
    fleet.until_noted(&["schema-moved one"]);
    one.run("DROP SCHEMA insta9_moved CASCADE");
    healthy();

    // Clocks, and the mark against them.
    two_b.set_clock(10.0);
    fleet.until_found(&["clock-differs two_b"]);
    two_b.set_clock(-3600.0);
    fleet.until_found(&["clock-differs two_b", "mark-in-future two_b"]);
    two_b.set_clock(0.0);
    healthy();

    // Files of servers that lack some of them, or have too many.
    File::of_servers(&[all[0], all[2], all[3]]).until_found(&["standby-not-in-fleet one"]);
    File::of_servers(&all[1..]).until_found(&["no-primary one_b"]);
    one.run("CREATE ROLE ordinary LOGIN");
    one.until_followed(&["one_b"]);
    File::of(&[("one", one.target_as("ordinary"))]).until_found(&["no-superuser one"]);
    let nowhere = ("nowhere", "host=/nowhere user=postgres".to_owned());
    let mut targets: Vec<_> = all.map(|(name, server)| (name, server.target("postgres"))).into();
    targets.push(nowhere);
    File::of(&targets).until_found(&["unreachable nowhere"]);
    targets[4] = ("again", two.target("postgres").replace("/tmp/", "/tmp/../tmp/"));
    File::of(&targets).until_noted(&["same-server two"]);
    healthy();
}

/// Misconfigurations that need a restart, on servers that are thrown away.
#[test]
fn misconfigurations_that_need_a_restart_are_found() {
    let fleet = |servers: &[(&str, &Server)]| File::of_servers(servers);
    let is_new = major_version() >= 17;

    // Without the preload, on a primary and on a standby.
    let plain = Server::start_plain(&[]);
    plain.run("CREATE EXTENSION idgen");
    fleet(&[("plain", &plain)]).until_found(&["not-preloaded plain"]);
    let severity = if is_new { "warning" } else { "error" };
    assert_eq!(fleet(&[("plain", &plain)]).findings()[0]["severity"], severity);
    // Between a change of the preload and the restart, that is all there is to do.
    plain.run("ALTER SYSTEM SET shared_preload_libraries = 'idgen'");
    plain.run("SELECT pg_reload_conf()");
    fleet(&[("plain", &plain)]).until_found(&["restart-for-setting plain"]);
    plain.restart();
    fleet(&[("plain", &plain)]).until_found(&[]);
    plain.run("ALTER SYSTEM RESET shared_preload_libraries");
    plain.run("SELECT pg_reload_conf()");
    fleet(&[("plain", &plain)]).until_found(&["restart-for-setting plain"]);
    plain.restart();
    plain.configure(&["idgen.max_ahead = 2s"]);
    plain.run("SELECT pg_reload_conf()");
    let both = ["not-preloaded plain", "setting-without-preload plain"];
    fleet(&[("plain", &plain)]).until_found(if is_new { &both } else { &both[..1] });

    // Room for the mark on a standby, before the first mark.
    let primary = Server::start(&[PRELOAD]);
    let mut standby = primary.standby("b");
    let pair = fleet(&[("a", &primary), ("b", &standby)]);
    let no_rewind: &[&str] = if major_version() < 18 { &["no-rewind a", "no-rewind b"] } else { &[] };
    pair.until_found(no_rewind);
    primary.restart_with(&[REWINDABLE]);
    standby.restart_with(&[REWINDABLE, &format!("{} = 0", limit_of_origins())]);
    pair.until_found(&["no-room b"]);
    standby.restart_with(&[&format!("{} = 5", limit_of_origins())]);
    pair.until_found(&["less-room b"]);
    standby.configure(&[&format!("{} = 10", limit_of_origins())]);

    // What a standby lacks.
    standby.restart_with(&["shared_preload_libraries = ''"]);
    pair.until_found(&["preload-differs b"]);
    standby.stop("fast");
    pair.until_found(&["unreachable b"]);
    standby.set_build(Build::Bare);
    standby.up();
    pair.until_found(&["files-missing b", "preload-differs b"]);
    standby.set_build(Build::Release);
    standby.restart_with(&[PRELOAD]);
    pair.until_found(&[]);

    // Two primaries.
    primary.run("SELECT snowflake_next_id(1)");
    primary.until_followed(&["b"]);
    standby.promote();
    pair.until_found(&["two-primaries b"]);
    // A copy that has shards of its own may run beside its original.
    for (server, list) in [(&primary, "0-9"), (&standby, "10-19")] {
        server.set("idgen.allowed_shards", list);
    }
    pair.until_noted(&["copy-of-cluster b"]);
    // Standbys of either are known by their timelines, if these differ.
    let follower = standby.standby("c");
    let three = File::of_servers(&[("a", &primary), ("b", &standby), ("c", &follower)]);
    three.until_noted(&["asynchronous b", "copy-of-cluster b"]);
    let image = standby.base_backup();
    image.up();
    image.set("idgen.allowed_shards", "20-29");
    let four = File::of_servers(&[("a", &primary), ("b", &standby), ("c", &follower), ("d", &image)]);
    four.until_found(&["primary-unclear c"]);
    drop((follower, image));

    // Epochs.
    standby.restart_with(&["idgen.epoch = '2024-01-01T00:00:00Z'"]);
    fleet(&[("b", &standby)]).until_found(&["epoch-of-mark b"]);
    let far =
        Server::start(&[PRELOAD, "idgen.epoch = '1993-01-01T00:00:00Z'", "idgen.allowed_shards = '20-29'"]);
    fleet(&[("a", &primary), ("far", &far)]).until_found(&["epoch-differs far", "range-ends far"]);

    // A server that was started before its library was installed.
    far.stop("fast");
    far.set_clock(-1000.0 * 86_400.0);
    far.up();
    far.set_clock(0.0);
    let found = fleet(&[("far", &far)]).findings();
    assert!(found.iter().any(|finding| finding["id"] == "restart-for-files"), "{found:?}");

    // A clock that was set back while the server was down.
    primary.restart_at("fast", -3600.0);
    fleet(&[("a", &primary)]).until_found(&["clock-differs a", "mark-in-future a"]);

    // What idgen warns of.
    let server = Server::start(&[PRELOAD]);
    let alone = fleet(&[("c", &server)]);
    server.run("SELECT snowflake_next_id(1)");
    server.set_clock(-20.0);
    alone.until_found(&["clock-behind c", "clock-differs c", "mark-in-future c"]);
    server.set_clock(7200.0);
    alone.until_found(&["clock-differs c", "clock-jumped c"]);
    server.set_clock(0.0);
    alone.until_found(&[]);
    server.restart();
    server.run("SELECT snowflake_remove_mark()");
    alone.until_found(&["mark-removed c"]);
    for (line, found) in [
        ("idgen.allowed_shards = 'banana'", &["setting-not-accepted c", "setting-refused c"][..]),
        ("idgen.epoch = '2100-01-01T00:00:00Z'", &["clock-before-epoch c"]),
        ("idgen.epoch = '1980-01-01T00:00:00Z'", &["range-used-up c"]),
    ] {
        server.restart_with(&["idgen.allowed_shards = ''", line]);
        alone.until_found(found);
    }

    let empty = Server::start_preloaded();
    fleet(&[("empty", &empty)]).until_found(&["no-extension empty"]);
}

/// Promise: the list of a copy that runs beside its original is compared with those of other clusters too.
#[test]
fn a_copy_is_compared_with_other_clusters() {
    let original = Server::start(&[PRELOAD, "idgen.allowed_shards = '0-9'"]);
    let copy = original.base_backup();
    copy.configure(&["idgen.allowed_shards = '10-19'"]);
    copy.up();
    let other = Server::start(&[PRELOAD, "idgen.allowed_shards = '20-29'"]);
    let fleet = File::of_servers(&[("a", &original), ("b", &copy), ("c", &other)]);
    fleet.until_noted(&["copy-of-cluster b"]);
    other.set("idgen.allowed_shards", "19-29");
    fleet.until_noted(&["copy-of-cluster b", "lists-overlap c"]);
}

/// Promise: the epoch in the hint about a mark that is hours ahead is right: with it, and accepted, ids are minted at once.
/// For a mark that is less than an hour ahead, there is none.
#[test]
fn the_hint_has_the_epoch_that_passes_the_mark() {
    let server = Server::start(&[PRELOAD]);
    let fleet = File::of_servers(&[("c", &server)]);
    let epoch = || {
        let findings = fleet.findings();
        let finding = findings.iter().find(|finding| finding["id"] == "mark-in-future").unwrap();
        let (_, rest) = finding["hint"].as_str().unwrap().split_once("idgen.epoch = '")?;
        Some(rest.strip_suffix("'.").unwrap().to_owned())
    };
    server.restart_at("fast", 1800.0);
    let last: i64 = server.value("SELECT snowflake_next_id(1)");
    server.restart_at("fast", 0.0);
    fleet.until_found(&["mark-in-future c"]);
    assert_eq!(epoch(), None);
    server.restart_at("fast", 3.0 * 3600.0);
    let last = last.max(server.value("SELECT snowflake_next_id(1)"));
    server.restart_at("fast", 0.0);
    fleet.until_found(&["mark-in-future c"]);
    server.restart_with(&[&format!("idgen.epoch = '{}'", epoch().unwrap())]);
    fleet.until_found(&["epoch-of-mark c"]);
    let accepted = fleet.run(&["accept-epoch", "--yes"]);
    assert_eq!(accepted.status.code(), Some(0), "{}", said(&accepted));
    fleet.until_found(&[]);
    assert!(server.value::<i64>("SELECT snowflake_next_id(1)") > last);
}

/// Promise: what keeps WAL without replaying it counts among the synchronous ones as PostgreSQL counts it, and is found if
/// it may acknowledge in the place of the standby. A slot that keeps no WAL is no finding, and neither is a connection
/// string that names all servers and looks for the primary.
#[test]
fn others_than_standbys_may_acknowledge() {
    let (one, one_b) = cluster("one", "0-4095");
    let fleet = File::of_servers(&[("one", &one), ("one_b", &one_b)]);
    fleet.until_noted(&[]);
    one.run("SELECT pg_create_physical_replication_slot('fresh')");
    fleet.until_noted(&[]);

    let mut keeper = one
        .shell("mkdir -p kept && exec pg_receivewal --synchronous -D kept -d 'application_name=keeper'")
        .spawn()
        .unwrap();
    one.wait_until("SELECT count(*) = 1 FROM pg_stat_replication WHERE application_name = 'keeper'");
    fleet.until_noted(&[]);
    for (names, found) in
        [("FIRST 2 (one_b, keeper)", &[][..]), ("ANY 1 (one_b, keeper)", &["sync-not-a-standby one"])]
    {
        let lines = Lines::of(&one, &[&format!("synchronous_standby_names = '{names}'")]);
        fleet.until_noted(found);
        drop(lines);
    }
    keeper.kill().unwrap();
    keeper.wait().unwrap();

    let all = format!(
        "host={},{} user=postgres dbname=postgres target_session_attrs=primary",
        one.host(),
        one_b.host()
    );
    fleet.until_noted(&[]);
    let output = idgenctl(&["--server", &all, "check"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
}

/// Promise: an error about a connection string or a file of servers shows no password.
#[test]
fn no_error_shows_a_password() {
    for connection in [
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

/// Promise: what a tenant who owns a database sets there hides nothing in it.
#[test]
fn settings_of_a_database_hide_nothing() {
    let server = Server::start(&[PRELOAD, "idgen.allowed_shards = '0-9'"]);
    server.run("CREATE ROLE tenant LOGIN");
    server.run("CREATE DATABASE app OWNER tenant");
    server.connect_to("app").run(
        "CREATE SCHEMA idgen; CREATE EXTENSION idgen SCHEMA idgen;
         CREATE TABLE far (id bigint DEFAULT idgen.snowflake_next_id(50))",
    );
    let fleet = File::of_servers(&[("one", &server)]);
    fleet.until_found(&["shard-not-allowed one"]);
    for setting in [
        "statement_timeout = 1",
        "idle_session_timeout = 1",
        "idle_in_transaction_session_timeout = 1",
        "lock_timeout = 1",
        "default_transaction_read_only = on",
        "default_transaction_isolation = serializable",
        "search_path = public",
        "role = tenant",
        "client_encoding = latin1",
        "quote_all_identifiers = on",
        "standard_conforming_strings = off",
        "datestyle = 'German'",
        "timezone = 'Asia/Kathmandu'",
        "extra_float_digits = -15",
        "bytea_output = escape",
        "row_security = off",
        "intervalstyle = 'sql_standard'",
    ] {
        // From PostgreSQL 19 on, it is always on.
        if setting.starts_with("standard_conforming_strings") && major_version() >= 19 {
            continue;
        }
        server.connect_as("tenant").run(&format!("ALTER DATABASE app SET {setting}"));
        for _ in 0..3 {
            let found = fleet.findings();
            assert!(
                found.len() == 1 && found[0]["id"] == "shard-not-allowed" && found[0]["database"] == "app",
                "{setting}: {found:#?}"
            );
        }
    }
}

/// What others may choose: names that end a quote, a line or a statement, control a terminal, or look like a connection
/// string.
const HOSTILE: &[&str] = &[
    "host=/nowhere user=nobody dbname=template1",
    "postgresql://nowhere:1/x",
    "a\"b'c;DROP TABLE x;--",
    "line\nerror: forged: all is lost [forged]",
    "\u{1b}[2J\u{1b}]0;title\u{7}\u{9b}31m",
    "$(touch /tmp/idgen-hostile)`touch /tmp/idgen-hostile`",
    "-c",
    "%s%n\\x41\\",
];

/// Promise of docs/security.md: names are data. A name of a database, schema, table, column or role that is made to be
/// taken for something else changes nothing in what is found, controls no terminal, and runs nothing. The functions of a
/// tenant that have idgen's names are not called.
#[test]
fn hostile_names_are_data() {
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
        let connection = server.target("postgres");
        let mut config: postgres::Config = connection.parse().unwrap();
        let mut client = config.dbname(database).connect(postgres::NoTls).unwrap();
        client.run("CREATE SCHEMA idgen; CREATE EXTENSION idgen SCHEMA idgen");
        for name in &hostile {
            let name = quoted(name);
            client.run(&format!(
                "CREATE SCHEMA {name};
                 CREATE TABLE {name}.{name} ({name} bigint DEFAULT idgen.snowflake_next_id(50))"
            ));
        }
        client.run(
            "CREATE FUNCTION public.idgen_allows(integer) RETURNS boolean LANGUAGE plpgsql AS
                 'BEGIN RAISE EXCEPTION ''the function of a tenant''; END';
             CREATE FUNCTION public.concat_ws(text, VARIADIC \"any\") RETURNS text LANGUAGE internal AS 'text_concat_ws';
             CREATE VIEW public.idgen_columns AS SELECT 1 / 0 AS shard;
             CREATE VIEW public.pg_settings AS SELECT 1 / 0 AS name",
        );
    }
    let evil = &hostile[4];
    let role = quoted(evil);
    let mut client = server.connect();
    client.run(&format!("GRANT CREATE ON SCHEMA idgen TO {role}"));
    let fleet = File::of_servers(&[("one", &server)]);

    let found = fleet.findings();
    let databases = |id: &str| -> BTreeSet<String> {
        let of_kind = found.iter().filter(|finding| finding["id"] == id);
        of_kind.map(|finding| finding["database"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let all: BTreeSet<String> = hostile.iter().cloned().collect();
    assert_eq!(databases("shard-not-allowed"), all, "{found:#?}");
    assert_eq!(databases("schema-not-trusted"), BTreeSet::from(["postgres".to_owned()]));
    let kinds: BTreeSet<_> = found.iter().map(|finding| finding["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(kinds, BTreeSet::from(["schema-not-trusted".to_owned(), "shard-not-allowed".to_owned()]));

    for args in [&["check"][..], &["check", "--json"], &["status"], &["status", "--json"]] {
        let output = fleet.run(args);
        let text = said(&output);
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{args:?}: {text:?}");
        assert!(!text.lines().any(|line| line.starts_with("error: forged")), "{text}");
    }
    assert!(!PathBuf::from("/tmp/idgen-hostile").exists());
}

/// Promise: a server that is stopped in its tracks is a finding, not a hang, whether it is a standby or a primary; the
/// others are looked at all the same. The limit is ten times of what it takes.
#[test]
fn a_frozen_server_is_a_finding() {
    let (one, one_b) = cluster("one", "0-4095");
    let fleet = File::of_servers(&[("one", &one), ("one_b", &one_b)]);
    fleet.until_found(&[]);
    for (server, found) in [(&one_b, "no-answer one_b"), (&one, "no-answer one")] {
        let stopped = server.stop_all();
        let start = Instant::now();
        let findings = fleet.findings();
        assert!(start.elapsed() < Duration::from_secs(200), "{:?}", start.elapsed());
        let name = |f: &Value| format!("{} {}", f["id"].as_str().unwrap(), f["server"].as_str().unwrap());
        assert!(findings.iter().any(|finding| name(finding) == found), "{findings:#?}");
        assert!(!findings.iter().any(|f| f["server"] == f["message"]), "{findings:#?}");
        // Ctrl-C does not wait for it either. It may come before the program notices signals.
        let mut check = idgenctl(&["--fleet", fleet.0.to_str().unwrap(), "check"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_millis(500));
        kill("INT", check.id() as i32).unwrap();
        assert!(matches!(check.wait().unwrap().code(), None | Some(130)));
        stopped.iter().for_each(Process::go_on);
        fleet.until_found(&[]);
    }
    // This is what a failover begins with.
    one.stop("fast");
    fleet.until_found(&["standby-not-streaming one_b", "unreachable one"]);
}

/// Answers each request with these texts in turn, as Patroni would, and the last one again and again.
fn patroni(answers: Vec<String>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let Ok(mut stream) = stream else { return };
            let mut request = String::new();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            while reader.read_line(&mut request).is_ok_and(|length| length > 2) {}
            let body = &answers[number.min(answers.len() - 1)];
            let status = if request.starts_with("GET /cluster ") { "200 OK" } else { "404 Not Found" };
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    address
}

fn members(servers: &[(&str, &Server)]) -> String {
    let member = |(name, server): &(&str, &Server)| {
        serde_json::json!({
            "name": name, "role": "replica", "state": "streaming", "host": server.host(), "port": 5432, "timeline": 1, "lag": 0
        })
    };
    let mut list: Vec<Value> = servers.iter().map(member).collect();
    // A member that has never started.
    list.push(serde_json::json!({ "name": "\u{1b}[2Jnew", "role": "uninitialized", "state": "starting" }));
    serde_json::json!({ "members": list, "scope": "demo" }).to_string()
}

/// The members of a cluster come from Patroni, with the connection parameters of the server that was given or of the
/// environment. What Patroni says is data, and if it does not answer, the program says so.
#[test]
fn the_members_come_from_patroni() {
    let (one, one_b) = cluster("one", "0-4095");
    let target = one.target("postgres");
    let check = |args: &[&str]| {
        let mut command = idgenctl(&[args, &["check", "--json"]].concat());
        // The environment says how to connect where no server is given.
        command
            .env("PGUSER", "postgres")
            .env("PGDATABASE", "postgres")
            .env_remove("PGHOST")
            .env_remove("PGPORT");
        let output = command.output().unwrap();
        assert!(!said(&output).contains('\u{1b}'), "{}", said(&output));
        output
    };
    let ids = |output: &Output| -> Vec<String> {
        let findings: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        findings.iter().map(|finding| finding["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&check(&["--server", &target])), ["standby-not-in-fleet"]);
    // Its sessions show that Patroni is there.
    let mut config: postgres::Config = target.parse().unwrap();
    let session = config.application_name("Patroni heartbeat").connect(postgres::NoTls).unwrap();
    assert_eq!(ids(&check(&["--server", &target])), ["standby-not-in-fleet", "patroni"]);

    let url = patroni(vec![members(&[("one", &one), ("one_b", &one_b)])]);
    for args in [
        &["--server", &target, "--patroni", &url][..],
        &["--patroni", &url],
        &["--patroni", &format!("{url}/")],
    ] {
        let output = check(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", said(&output));
        assert!(ids(&output).is_empty());
    }
    drop(session);

    for (answer, code) in [("no JSON", 1), ("{}", 1), ("{\"members\": [{\"name\": 5}]}", 1)] {
        let url = patroni(vec![answer.into()]);
        let output = check(&["--server", &target, "--patroni", &url]);
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        assert!(said(&output).contains("Patroni does not tell its members"), "{}", said(&output));
    }
    let nobody = check(&["--patroni", &patroni(vec!["{\"members\": []}".into()])]);
    assert_eq!(nobody.status.code(), Some(1), "nothing is wrong with no server: {}", said(&nobody));
    let output = check(&["--server", &target, "--patroni", "https://127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(2));
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_eq!(
        check(&["--server", &target, "--patroni", &format!("http://{closed}")]).status.code(),
        Some(1)
    );
}

/// `idgenctl status` shows who mints what and how fast, with --watch totals at first, what is refused, and a line about
/// a server that goes away and comes back. It ends on Ctrl-C.
#[test]
fn status_shows_rates_refusals_and_servers_that_go_away() {
    let one = Server::start(&[PRELOAD, "idgen.allowed_shards = '0-9'"]);
    let two = Server::start(&[PRELOAD, "idgen.allowed_shards = '10-19'"]);
    one.run(
        "CREATE SCHEMA insta5; CREATE TABLE insta5.photos (id bigint DEFAULT snowflake_next_id(5));
         SELECT count(*) FROM snowflake_next_ids(5, 1000)",
    );
    assert_eq!(one.code("SELECT snowflake_next_id(10)"), "55000");
    let fleet = File::of_servers(&[("one", &one), ("two", &two)]);

    let output = fleet.run(&["status"]);
    let text = said(&output);
    println!("{text}");
    assert_eq!(output.status.code(), Some(0), "{text}");
    for part in ["one", "two", "primary", "0-9", "1000", "shard_not_allowed 1", "postgres.insta5"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let output = fleet.run(&["status", "--json"]);
    let first: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(first["servers"][0]["ids"], 1000, "{first:#}");
    assert_eq!(first["servers"][0]["ids_per_second"], 0.0, "the rate of one second");
    assert_eq!(first["shards"][0]["schemas"], serde_json::json!(["postgres.insta5"]));

    let mut watch = idgenctl(&["--fleet", fleet.0.to_str().unwrap(), "status", "--json", "--watch", "0.2"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut until = |what: &str, is_so: &dyn Fn(&Value) -> bool| {
        for _ in 0..1000 {
            let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            if is_so(&line) {
                return;
            }
        }
        panic!("never: {what}");
    };
    until("a reading without a rate", &|line| {
        line["servers"][0]["ids"] == 1000 && line["servers"][0]["ids_per_second"].is_null()
    });
    one.run("SELECT count(*) FROM snowflake_next_ids(5, 500)");
    until("a rate", &|line| {
        line["servers"][0]["ids_per_second"].as_f64() > Some(0.0) && line["shards"][0]["shard"] == 5
    });
    until("no rate any more", &|line| line["servers"][0]["ids_per_second"] == 0.0);
    two.stop("fast");
    until("a server that goes away", &|line| {
        line["servers"][1]["error"].is_string() && line["servers"][0]["error"].is_null()
    });
    two.up();
    until("a server that comes back", &|line| line["servers"][1]["role"] == "primary");
    let stopped = two.stop_all();
    until("a server that does not answer", &|line| {
        line["servers"][1]["error"].is_string() && line["servers"][0]["role"] == "primary"
    });
    stopped.iter().for_each(Process::go_on);
    until("a server that answers again", &|line| line["servers"][1]["role"] == "primary");
    kill("INT", watch.id() as i32).unwrap();
    let mut rest = String::new();
    while let Some(Ok(line)) = lines.next() {
        rest.push_str(&line);
    }
    assert_eq!(watch.wait().unwrap().code(), Some(0), "{rest}");

    for bad in ["0", "-1", "nan", "x"] {
        assert_eq!(fleet.run(&["status", &format!("--watch={bad}")]).status.code(), Some(2), "{bad}");
    }
    two.stop("fast");
    assert_eq!(fleet.run(&["status"]).status.code(), Some(1), "a server that does not answer");
}
