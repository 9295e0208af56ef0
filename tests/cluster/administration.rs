//! `idgenctl enable`, `accept-clock`, `accept-epoch` and `remove` on real servers: what they refuse, that nothing runs
//! after a failure and the same command goes on, and that nothing of a tenant is run or taken for something else.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::Stdio;

use postgres::{Client, NoTls};

use crate::clients::Ledger;
use crate::origins::limit_of_origins;
use crate::process::{client_program, idgenctl, installed, permitted, release_bin, said, skipped};
use crate::server::{Build, PRELOAD, Server, Sql};

const HOUR: f64 = 3600.0;

/// What the program answers.
struct Answer {
    code: i32,
    /// Its results.
    out: String,
    /// Progress, questions and errors.
    err: String,
}

impl Answer {
    #[track_caller]
    fn is(self, code: i32, words: &[&str]) -> Answer {
        assert_eq!(self.code, code, "{}{}", self.out, self.err);
        for words in words {
            assert!(
                self.out.contains(words) || self.err.contains(words),
                "{words}:\n{}{}",
                self.out,
                self.err
            );
        }
        self
    }

    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }
}

/// Runs the program for these servers. There is no terminal.
fn run(servers: &[&Server], args: &[&str]) -> Answer {
    let targets: Vec<String> = servers.iter().map(|server| server.target("postgres")).collect();
    let mut all = args.to_vec();
    targets.iter().for_each(|target| all.extend(["--server", target]));
    let mut command = idgenctl(&all);
    command.stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let answer =
        Answer { code: output.status.code().unwrap(), out: text(&output.stdout), err: text(&output.stderr) };
    println!("{args:?}: {}\n{}{}", answer.code, answer.out, answer.err);
    answer
}

fn run_yes(servers: &[&Server], args: &[&str]) -> Answer {
    run(servers, &[args, &["--yes"]].concat())
}

/// A session in a database of any name.
fn connect(server: &Server, database: &str) -> Client {
    let config: postgres::Config = server.target("postgres").parse().unwrap();
    config.clone().dbname(database).connect(NoTls).unwrap()
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// What a command that is refused may not change.
fn state(server: &Server) -> String {
    server.value(
        "SELECT concat(pg_read_file('postgresql.auto.conf'), (SELECT json_agg(s) FROM pg_db_role_setting s),
            (SELECT json_agg(oid) FROM pg_extension), (SELECT json_agg(oid) FROM pg_namespace),
            (SELECT json_agg(adnum) FROM pg_attrdef))",
    )
}

/// Names that a connection string, a shell, SQL or a terminal could take for something else.
fn names() -> [String; 4] {
    [
        "host=10.0.0.1 dbname=postgres",
        "postgresql://10.0.0.1/postgres",
        "a\"b'c;\nDROP ROLE mallory; -- \u{1b}[2J",
        " $(touch planted) \\! x",
    ]
    .map(permitted)
}

/// A database is found by its name, whatever that looks like; and one that is not there is created by nobody.
#[test]
fn a_database_of_any_name_is_enabled() {
    let server = Server::start_plain(&[PRELOAD]);
    let mut admin = server.connect();
    let before = state(&server);
    for name in &names() {
        let answer = run_yes(&[&server], &["enable", name]).is(1, &["has no database", "CREATE DATABASE"]);
        assert!(!answer.err.contains('\u{1b}'), "the name controls the terminal");
    }
    run_yes(&[&server], &["enable", "template0"]).is(1, &["accepts no connections"]);
    let answer = run_yes(&[&server], &["enable", "\u{9b}2J\u{7f}", "--json"]).is(1, &[]);
    assert!(!answer.out.trim_end().chars().any(char::is_control), "the name controls the terminal");
    assert!(answer.json()["error"].as_str().unwrap().contains("has no database"));
    assert_eq!(state(&server), before);
    for name in &names() {
        admin.run(&format!("CREATE DATABASE {}", quoted(name)));
        run_yes(&[&server], &["enable", name]).is(0, &["idgen is enabled"]);
        let mut client = connect(&server, name);
        assert!(client.value::<bool>("SELECT snowflake_next_id(5) > 0"));
    }
    // The database of the connection string need not be there.
    let target = server.target("missing");
    let output = idgenctl(&["enable", &names()[2], "--yes", "--server", &target]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Without --yes and a terminal, nothing changes. A program can read what is done, and what fails.
#[test]
fn nothing_changes_without_consent() {
    let server = Server::start(&[PRELOAD]);
    let mut admin = server.connect();
    admin.run("CREATE DATABASE app");
    admin.run("CREATE TABLE t (id bigint DEFAULT snowflake_next_id(1))");
    let before = state(&server);
    for command in [&["enable", "app"][..], &["remove"]] {
        let answer = run(&[&server], command).is(1, &["there is no terminal"]);
        assert!(answer.err.contains("This is to be done:"), "{}", answer.err);
        let json = run(&[&server], &[command, &["--json"]].concat()).is(1, &[]).json();
        assert!(json["error"].as_str().unwrap().contains("consent"), "{json}");
    }
    assert_eq!(state(&server), before);
    let json = run_yes(&[&server], &["enable", "app", "--json"]).is(0, &[]).json();
    assert_eq!(json["changed"].as_array().unwrap().len(), 2, "{json}");
    assert_eq!(json["servers"][0]["warning"], serde_json::Value::Null, "{json}");
    // A second time, there is nothing to consent to.
    let json = run(&[&server], &["enable", "app", "--json"]).is(0, &[]).json();
    assert_eq!(json["changed"].as_array().unwrap().len(), 0, "{json}");
    run(&[&server], &["enable"]).is(2, &[]);
    run(&[&server], &["enable", "app", "--on", "nobody"]).is(2, &["no server is called nobody"]);
}

/// On a terminal the program asks, and only yes changes anything. Nothing is asked if nothing is to be done.
#[test]
fn a_person_is_asked_on_a_terminal() {
    let Some(script) = installed("script") else { return skipped("there is no program script") };
    let server = Server::start_plain(&[PRELOAD]);
    server.run("CREATE DATABASE app");
    let before = state(&server);
    let asked = |answer: &str| {
        let program = format!("{}/idgenctl", release_bin());
        let line = format!("{program} enable app --server '{}'", server.target("postgres"));
        let mut command = client_program(&script);
        command.args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // What is typed before a question is no answer to it.
        child.stdin.as_mut().unwrap().write_all(b"y\n").unwrap();
        let (mut said, mut byte) = (Vec::new(), [0]);
        let stdout = child.stdout.as_mut().unwrap();
        while !said.ends_with(b"[y/N]") && stdout.read(&mut byte).unwrap() == 1 {
            said.push(byte[0]);
        }
        if said.ends_with(b"[y/N]") {
            child.stdin.as_mut().unwrap().write_all(answer.as_bytes()).unwrap();
        }
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&[said, output.stdout].concat()).into_owned())
    };
    for answer in ["n\n", "\n", "yeah\n"] {
        let (code, said) = asked(answer);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("Enable idgen in database \"app\"? [y/N]"), "{said}");
    }
    assert_eq!(state(&server), before);
    let (code, said) = asked("y\n");
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = asked("");
    assert!(code == Some(0) && !said.contains("[y/N]"), "{said}");
}

/// With servers of several clusters, one has to be named, and only that one changes.
#[test]
fn the_cluster_is_named_if_there_are_several() {
    let [one, two] = [(); 2].map(|()| {
        let server = Server::start_empty(Build::Older, &[PRELOAD]);
        server.run("CREATE DATABASE app");
        server
    });
    let before = [&one, &two].map(state);
    for command in [&["enable", "app"][..], &["accept-clock"], &["accept-epoch"], &["remove"]] {
        run_yes(&[&one, &two], command).is(2, &["several clusters", &one.host(), &two.host()]);
    }
    assert_eq!([&one, &two].map(state), before);
    run_yes(&[&one, &two], &["enable", "app", "--on", &two.host()]).is(0, &["idgen is enabled"]);
    assert_eq!(state(&one), before[0]);
    // Another cluster that is down is in nobody's way, but a cluster is not chosen because another one is down.
    one.stop("fast");
    run_yes(&[&one, &two], &["accept-clock"]).is(1, &["cannot be reached", "--on"]);
    run_yes(&[&one, &two], &["accept-clock", "--on", &two.host()]).is(0, &["warning", "nothing to accept"]);
    one.up();
}

/// The halves of a server that was split by promoting a standby are clusters of their own, each with its own standbys.
/// Nothing is changed where a standby may be one of several primaries.
#[test]
fn the_halves_of_a_server_are_clusters() {
    let one = Server::start(&[PRELOAD]);
    one.value::<i64>("SELECT snowflake_next_id(1)");
    let (old, half) = (one.standby("old"), one.standby("half"));
    let new = half.standby("new");
    half.promote();
    new.wait_until("SELECT EXISTS (SELECT FROM pg_stat_wal_receiver WHERE received_tli = 2)");
    let all = [&one, &old, &half, &new];
    for command in [&["enable", "postgres"][..], &["accept-clock"], &["accept-epoch"]] {
        run_yes(&all, command).is(2, &["several clusters", &half.host()]);
    }
    for (on, standby) in [(&half, &new), (&old, &old), (&one, &old)] {
        let answer = run_yes(&all, &["enable", "postgres", "--json", "--on", &on.host()]);
        let json: serde_json::Value = serde_json::from_str(&answer.out).unwrap();
        let servers: Vec<_> = json["servers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|server| server["server"].as_str().unwrap())
            .collect();
        let primary = if on.number() == half.number() { &half } else { &one };
        assert_eq!(servers, [standby.host(), primary.host()]);
        run_yes(&all, &["accept-clock", "--on", &on.host()]).is(0, &["nothing to accept"]);
        run_yes(&all, &["accept-epoch", "--on", &on.host()]).is(0, &["nothing to accept"]);
    }
    let (from, to) = (half.target("postgres"), one.target("postgres"));
    half.value::<i64>("SELECT snowflake_next_id(1)");
    run_yes(&all, &["carry", "--from", &from, "--to", &to]).is(0, &["carried"]);

    let image = one.base_backup();
    image.up();
    let before = [&one, &half].map(state);
    let all = [&one, &old, &half, &new, &image];
    for on in [&one, &old, &image] {
        run_yes(&all, &["remove", "--on", &on.host()])
            .is(1, &["may be a standby of each of these", &image.host()]);
    }
    assert_eq!([&one, &half].map(state), before);
    run_yes(&all, &["accept-clock", "--on", &half.host()]).is(0, &["nothing to accept"]);
}

/// Both servers are prepared by one command, which names the order of the restarts, and proves afterwards that ids are
/// minted on both.
#[test]
fn a_standby_is_enabled_with_its_primary() {
    let primary = Server::start_plain(&["shared_preload_libraries = 'dict_snowball'"]);
    primary.run("CREATE DATABASE app");
    let standby = primary.standby("two");
    let both = [&primary, &standby];
    let order = format!("Now restart {}, then {}, in this order", standby.host(), primary.host());
    run_yes(&both, &["enable", "app"]).is(0, &[&order]);
    for server in [&standby, &primary] {
        server.restart();
        assert_eq!(server.value::<String>("SHOW shared_preload_libraries"), "dict_snowball, idgen");
    }
    primary.wait_until("SELECT count(*) = 1 FROM pg_stat_replication");
    let answer = run(&both, &["enable", "app"]).is(0, &["idgen is enabled"]);
    assert!(answer.out.contains(" standby ") && answer.out.contains(" primary "), "{}", answer.out);

    // A standby that is still starting is waited for: commits of the primary wait for it.
    primary.set("synchronous_standby_names", "two");
    standby.stop("fast");
    primary.wait_until("SELECT count(*) = 0 FROM pg_stat_replication");
    let mut command = idgenctl(&["enable", "app", "--server", &primary.target("postgres")]);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let waits = lines.by_ref().find(|line| line.contains("may still be connecting"));
    assert!(waits.is_some_and(|line| line.contains("too few synchronous standbys")));
    standby.up();
    let rest: Vec<String> = lines.collect();
    assert!(child.wait().unwrap().success(), "{rest:?}");
    primary.set("synchronous_standby_names", "");

    // What would keep it from minting is the exit code.
    primary.run("ALTER SYSTEM SET idgen.epoch = '2040-01-01T00:00:00Z'");
    primary.restart();
    run(&both, &["enable", "app"]).is(1, &["mints no ids", "the system clock is before"]);
}

/// The first id would take a standby down that has no room for the mark. If it is known, nothing is changed before there
/// is room; if it is only seen in the replication, its name is shown.
#[test]
fn a_standby_without_room_is_found_before_the_first_id() {
    let primary = Server::start_plain(&["max_replication_slots = 4"]);
    primary.run("CREATE DATABASE app");
    let standby = primary.standby("two");
    standby.restart_with(&[&format!("{} = 0", limit_of_origins())]);
    primary.wait_until("SELECT count(*) = 1 FROM pg_stat_replication");
    let before = state(&primary);
    run_yes(&[&primary, &standby], &["enable", "app"])
        .is(1, &["has no room for the high-water mark", limit_of_origins(), "Nothing was changed"]);
    assert_eq!(state(&primary), before);
    run(&[&primary], &["enable", "app"]).is(1, &["warning: servers that are not given", ": two."]);
    // PostgreSQL shows this name without quotes, in a text that libpq cannot read.
    standby.follow_by(&primary.host(), "''number two''");
    standby.restart_with(&[&format!("{} = 4", limit_of_origins())]);
    primary.wait_until("SELECT count(*) = 1 FROM pg_stat_replication WHERE application_name = 'number two'");
    let answer = run_yes(&[&primary, &standby], &["enable", "app"]).is(0, &[]);
    assert!(!answer.err.contains("warning"), "{}", answer.err);
}

/// Patroni would undo ALTER SYSTEM. So would nobody else: only a superuser can pass for it.
#[test]
fn under_patroni_the_list_is_left_to_it() {
    let server = Server::start_plain(&["shared_preload_libraries = 'dict_snowball'"]);
    server.run("CREATE DATABASE app; ");
    server.run("CREATE ROLE mallory LOGIN");
    let session = |role: &str| {
        let target = format!("{} user={role} application_name='Patroni heartbeat'", server.target("app"));
        Client::connect(&target, NoTls).unwrap()
    };
    let before: String = server.value("SELECT pg_read_file('postgresql.auto.conf')");
    let patroni = session("postgres");
    run_yes(&[&server], &["enable", "app"])
        .is(1, &["patronictl edit-config --pg shared_preload_libraries='dict_snowball, idgen'"]);
    assert_eq!(server.value::<String>("SELECT pg_read_file('postgresql.auto.conf')"), before);
    let there = "SELECT count(*) FROM pg_extension WHERE extname = 'idgen'";
    assert_eq!(connect(&server, "app").value::<i64>(there), 1);
    drop(patroni);
    let _mallory = session("mallory");
    server.wait_until("SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name LIKE 'Patroni%'");
    run_yes(&[&server], &["enable", "app"]).is(0, &["Now restart"]);
}

/// The list is taken out of where Patroni keeps it, and idgen is not removed before.
#[test]
fn under_patroni_idgen_is_removed_by_it() {
    let server = Server::start_plain(&["shared_preload_libraries = 'dict_snowball, idgen'"]);
    server.run("CREATE EXTENSION idgen");
    let before: String = server.value("SELECT pg_read_file('postgresql.auto.conf')");
    let target = format!("{} application_name=Patroni", server.target("postgres"));
    let patroni = Client::connect(&target, NoTls).unwrap();
    run_yes(&[&server], &["remove"]).is(1, &["by patronictl edit-config; what is left is dict_snowball"]);
    assert_eq!(server.value::<String>("SELECT pg_read_file('postgresql.auto.conf')"), before);
    drop(patroni);
    server.restart_with(&["shared_preload_libraries = 'dict_snowball'"]);
    // The line that is overridden would bring a library back whose files are gone.
    run_yes(&[&server], &["remove"]).is(1, &["write shared_preload_libraries = 'dict_snowball'"]);
}

/// A database with the objects of an older version is prepared, but not called well.
#[test]
fn an_update_that_is_due_is_said() {
    let server = Server::start_plain(&[PRELOAD]);
    server.run("CREATE SCHEMA idgen; CREATE EXTENSION idgen SCHEMA idgen VERSION '0.1.0'");
    run_yes(&[&server], &["enable", "postgres"])
        .is(1, &["version 0.1.0", "run ALTER EXTENSION idgen UPDATE"]);
    run_yes(&[&server], &["remove"]).is(1, &["version 0.1.0", "Nothing was changed"]);
    server.run("ALTER EXTENSION idgen UPDATE");
    run_yes(&[&server], &["enable", "postgres"]).is(0, &["idgen is enabled"]);
}

/// Makes each statement of a command fail once, by a trigger that raises an error, and sees that the same command goes
/// on from there.
fn fail_once(server: &Server, database: &str, tag: &str) {
    connect(server, database).run(&format!(
        "CREATE FUNCTION public.fails() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''not now''; END';
         CREATE EVENT TRIGGER fails ON ddl_command_start WHEN tag IN ('{tag}') EXECUTE FUNCTION public.fails()"
    ));
}

fn fail_no_more(server: &Server, database: &str) {
    connect(server, database).run("DROP EVENT TRIGGER fails; DROP FUNCTION public.fails()");
}

/// ALTER SYSTEM cannot write its file.
fn keep_from_altering(server: &Server, kept: bool) {
    let file: String =
        server.value("SELECT current_setting('data_directory') || '/postgresql.auto.conf.tmp'");
    if kept { fs::create_dir(file).unwrap() } else { fs::remove_dir(file).unwrap() }
}

/// The first failure of `enable` ends it, and the message tells what was done before.
#[test]
fn enable_stops_at_the_first_failure_and_goes_on() {
    let server = Server::start_plain(&[]);
    server.run("CREATE DATABASE app");
    let before = state(&server);
    fail_once(&server, "app", "CREATE EXTENSION");
    run_yes(&[&server], &["enable", "app"]).is(1, &["not now", "Nothing was changed"]);
    fail_no_more(&server, "app");
    assert_eq!(state(&server), before);
    assert_eq!(
        connect(&server, "app").value::<i64>("SELECT count(*) FROM pg_namespace WHERE nspname = 'idgen'"),
        0
    );

    keep_from_altering(&server, true);
    run_yes(&[&server], &["enable", "app"]).is(4, &["This was done before: create the extension"]);
    keep_from_altering(&server, false);
    let answer = run_yes(&[&server], &["enable", "app"]).is(0, &["Now restart"]);
    assert!(!answer.err.contains("create the extension"), "{}", answer.err);
}

/// A clock that is in the future is not accepted; one that is right is, and ids are minted again.
#[test]
fn a_clock_is_accepted_only_if_it_is_right() {
    let server = Server::start(&[PRELOAD, "idgen.max_wait = 300ms"]);
    server.run("CREATE DATABASE other");
    server.restart_at("fast", -720.0 * HOUR);
    let mut ledger = Ledger::default();
    ledger.mint(&mut server.connect());
    run(&[&server], &["accept-clock"]).is(0, &["there is nothing to accept"]);

    server.set_clock(72.0 * HOUR);
    assert!(server.warning().unwrap().contains("jumped"));
    run_yes(&[&server], &["accept-clock"])
        .is(1, &["3.0 days ahead", "this machine", "Set the clock of", "snowflake_accept_clock()"]);
    assert!(server.warning().unwrap().contains("jumped"));

    server.set_clock(0.0);
    run(&[&server], &["accept-clock"]).is(1, &["there is no terminal"]);
    assert!(server.warning().unwrap().contains("jumped"));
    // By any database: the program finds one that has idgen.
    let target = server.target("other");
    let output = idgenctl(&["accept-clock", "--yes", "--json", "--server", &target]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(json["minted_until"].is_string(), "{json}");
    assert_eq!(server.warning(), None);
    ledger.mint(&mut server.connect());
    run(&[&server], &["accept-clock"]).is(0, &["there is nothing to accept"]);
}

/// A clock that jumps on while a person compares it is not accepted: nobody has seen that time.
#[test]
fn only_a_clock_that_was_shown_is_accepted() {
    let Some(script) = installed("script") else { return skipped("there is no program script") };
    let server = Server::start(&[PRELOAD, "idgen.max_wait = 300ms"]);
    server.restart_at("fast", -720.0 * HOUR);
    server.connect().value::<i64>("SELECT snowflake_next_id(1)");
    server.set_clock(0.0);
    let line = format!("{}/idgenctl accept-clock --server '{}'", release_bin(), server.target("postgres"));
    let mut command = client_program(&script);
    command.args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut said, mut byte) = (Vec::new(), [0]);
    let stdout = child.stdout.as_mut().unwrap();
    while !said.ends_with(b"[y/N]") && stdout.read(&mut byte).unwrap() == 1 {
        said.push(byte[0]);
    }
    server.set_clock(72.0 * HOUR);
    child.stdin.as_mut().unwrap().write_all(b"y\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&[said, output.stdout].concat()).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("3.0 days since it was shown") && said.contains("Nothing was changed"), "{said}");
    assert!(server.warning().unwrap().contains("jumped"));
}

/// An epoch is accepted only if every server of the cluster has it.
#[test]
fn an_epoch_is_accepted_if_all_servers_have_it() {
    let primary = Server::start(&[PRELOAD, "idgen.max_wait = 300ms"]);
    let standby = primary.standby("two");
    let mut ledger = Ledger::default();
    let before = ledger.mint(&mut primary.connect());
    let both = [&primary, &standby];
    standby.wait_until("SELECT mark IS NOT NULL FROM idgen_status");
    run(&both, &["accept-epoch"]).is(0, &["there is nothing to accept"]);
    primary.run("ALTER SYSTEM SET idgen.epoch = '2024-12-31T00:00:00Z'");
    let waits = format!("changed in the files of {}: restart it", primary.host());
    run(&both, &["accept-epoch"]).is(0, &["there is nothing to accept", &waits]);
    let change = |server: &Server| {
        server.run("ALTER SYSTEM SET idgen.epoch = '2024-12-31T00:00:00Z'");
        run(&[server], &["status"]).is(0, &["2025-01-01T00:00:00Z"]);
        server.restart();
        run(&[server], &["status"]).is(0, &["2024-12-31T00:00:00Z"]);
    };
    change(&primary);
    run_yes(&both, &["accept-epoch"])
        .is(1, &["the standby", "2025-01-01T00:00:00Z", "2024-12-31T00:00:00Z", "Nothing was changed"]);
    assert!(primary.warning().unwrap().contains("epoch"));
    // That nothing is to be accepted is not taken for minting.
    run(&[&primary], &["accept-clock"]).is(1, &["there is nothing to accept", "mints no ids"]);
    change(&standby);
    primary.wait_until("SELECT count(*) = 1 FROM pg_stat_replication");
    run(&both, &["accept-epoch"]).is(1, &["there is no terminal", "-1 days", "2059-11-03"]);
    assert!(primary.warning().unwrap().contains("epoch"));
    run_yes(&both, &["accept-epoch"]).is(0, &["mints ids"]);
    run(&both, &["enable", "postgres", "--json"]).is(0, &["\"epoch\":\"2024-12-31T00:00:00Z\""]);
    assert!(ledger.mint(&mut primary.connect()) > before);
    assert_eq!(primary.warning(), None);
    run(&[&standby], &["accept-epoch"]).is(1, &["only standbys are given"]);
}

/// Tables of a tenant with names that try to be something else, and traps that are sprung if a superuser evaluates them.
fn plant(server: &Server, database: &str) {
    let mut admin = server.connect();
    admin.run("DO $$ BEGIN CREATE ROLE mallory; EXCEPTION WHEN duplicate_object THEN END $$");
    admin.run(&format!("CREATE DATABASE {} OWNER mallory", quoted(database)));
    let mut client = connect(server, database);
    client.run("CREATE SCHEMA ids; GRANT USAGE ON SCHEMA ids TO PUBLIC; CREATE EXTENSION idgen SCHEMA ids; SET ROLE mallory");
    let schema = quoted("s\"; ALTER ROLE mallory SUPERUSER; --\n\u{1b}[2J");
    for sql in [
        "CREATE SCHEMA {schema}",
        "CREATE FUNCTION {schema}.strike() RETURNS void LANGUAGE plpgsql AS
             'BEGIN ALTER ROLE mallory SUPERUSER; EXCEPTION WHEN insufficient_privilege THEN END'",
        "CREATE FUNCTION {schema}.trap() RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
             BEGIN PERFORM \"s\"\"; ALTER ROLE mallory SUPERUSER; --\n\u{1b}[2J\".strike(); RETURN true; END $$",
        "CREATE TABLE {schema}.\"t'; $1 %s\" (\"i\"\"d;\" bigint PRIMARY KEY DEFAULT ids.snowflake_next_id(5),
             at timestamptz GENERATED ALWAYS AS (ids.snowflake_time(\"i\"\"d;\", '2025-01-01Z')) STORED, name text)",
        "INSERT INTO {schema}.\"t'; $1 %s\" (name) SELECT 'a' FROM generate_series(1, 100)",
        "CREATE INDEX ON {schema}.\"t'; $1 %s\" ((CASE WHEN name = 'a' THEN {schema}.trap() END))",
        "CREATE DOMAIN {schema}.\"d\ne\" AS bigint DEFAULT ids.snowflake_next_id(5) CHECK ({schema}.trap())",
        "CREATE VIEW {schema}.\"v\" AS SELECT * FROM {schema}.\"t'; $1 %s\" WHERE {schema}.trap()",
        "ALTER VIEW {schema}.\"v\" ALTER \"i\"\"d;\" SET DEFAULT ids.snowflake_next_id(6)",
        "CREATE TABLE {schema}.parts (id bigint DEFAULT ids.snowflake_next_id(5)) PARTITION BY LIST (ids.shard_of(id))",
        "CREATE TABLE {schema}.parts5 PARTITION OF {schema}.parts FOR VALUES IN (5)",
        "INSERT INTO {schema}.parts SELECT FROM generate_series(1, 100)",
        "CREATE FUNCTION {schema}.trap(name, name) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT true';
         CREATE OR REPLACE FUNCTION {schema}.trap(name, name) RETURNS boolean LANGUAGE sql IMMUTABLE
             RETURN {schema}.trap();
         CREATE OPERATOR {schema}.= (LEFTARG = name, RIGHTARG = name, FUNCTION = {schema}.trap)",
        "DO $do$
         DECLARE item name;
         BEGIN
             FOREACH item IN ARRAY '{pg_extension,pg_available_extensions,pg_database,pg_class,pg_settings,pg_locks,
                     pg_file_settings,pg_stat_replication,pg_stat_activity,pg_replication_origin_status}'::name[] LOOP
                 EXECUTE format('CREATE VIEW {schema}.%I AS SELECT *, {schema}.trap() FROM pg_catalog.%1$I', item);
             END LOOP;
         END $do$",
        "ALTER DATABASE {database} SET search_path = {schema}, ids, pg_catalog",
    ] {
        client.run(&sql.replace("{schema}", &schema).replace("{database}", &quoted(database)));
    }
    not_sprung(server);
}

/// The rows of the tenant, whom nothing of their own harms.
fn rows(server: &Server, database: &str) -> i64 {
    let mut tenant = connect(server, database);
    tenant.run("SET ROLE mallory");
    let schema =
        tenant.value::<String>("SELECT quote_ident(nspname) FROM pg_namespace WHERE nspname LIKE 's\"%'");
    tenant.value(&format!(
        "SELECT (SELECT count(*) FROM {schema}.\"t'; $1 %s\" WHERE at IS NOT NULL)
              + (SELECT count(*) FROM {schema}.parts WHERE ids.shard_of(id) = 5)"
    ))
}

fn not_sprung(server: &Server) {
    let strong = "SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'";
    assert!(!server.value::<bool>(strong), "something that a tenant has planted was run");
    assert!(!Path::new(&server.host()).join("planted").exists());
}

/// The connection may lead to the database of a tenant, whose search_path has traps before PostgreSQL's own objects.
#[test]
fn nothing_of_a_tenant_is_run() {
    let server = Server::start_plain(&[PRELOAD, "idgen.max_wait = 300ms"]);
    server.restart_at("fast", -720.0 * HOUR);
    plant(&server, "theirs");
    // Without the precautions of the program, the traps are sprung.
    connect(&server, "theirs").run("SELECT * FROM pg_extension WHERE extname = 'x'");
    server.run("UPDATE pg_authid SET rolsuper = false WHERE rolname = 'mallory' AND rolsuper");
    server.set_clock(0.0);
    let target = server.target("theirs");
    for command in [&["accept-clock"][..], &["accept-epoch"], &["enable", "theirs"], &["remove"]] {
        let output = idgenctl(&[command, &["--yes", "--server", &target]].concat()).output().unwrap();
        println!("{}", said(&output));
        let expected = if command == ["remove"] { 1 } else { 0 };
        assert_eq!(output.status.code(), Some(expected), "{command:?}");
        not_sprung(&server);
    }
    assert_eq!(rows(&server, "theirs"), 200);
}

/// Removal goes from step to step over two restarts, takes no row along and evaluates nothing of a tenant. At its end
/// both servers start without room for the mark and without the files.
#[test]
fn idgen_is_removed_without_loss() {
    let primary = Server::start_plain(&["shared_preload_libraries = 'dict_snowball,idgen'"]);
    primary.run("CREATE EXTENSION idgen");
    let standby = primary.standby("two");
    let both = [&primary, &standby];
    for name in &names()[1..3] {
        plant(&primary, name);
    }
    assert_eq!(rows(&primary, &names()[2]), 200);
    standby.wait_until("SELECT mark IS NOT NULL FROM idgen_status");

    let line = "write shared_preload_libraries = 'dict_snowball'";
    let answer =
        run_yes(&both, &["remove"]).is(1, &[line, "idgen is not removed yet", "becomes a plain column"]);
    assert!(!format!("{}{}", answer.out, answer.err).contains('\u{1b}'), "a name controls the terminal");
    not_sprung(&primary);
    assert_eq!(rows(&primary, &names()[2]), 200);
    run(&both, &["remove"]).is(1, &[line]);
    for server in [&standby, &primary] {
        let file: String = server.value("SHOW config_file");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("'dict_snowball,idgen'", "'dict_snowball'")).unwrap();
    }
    run(&both, &["remove"]).is(1, &["Now restart"]);
    for server in [&standby, &primary] {
        server.restart();
    }
    primary.wait_until("SELECT count(*) = 1 FROM pg_stat_replication");
    run_yes(&both, &["remove"]).is(0, &["idgen is removed"]);
    run(&both, &["remove"]).is(0, &["idgen is removed"]);
    not_sprung(&primary);
    let mut client = connect(&primary, &names()[2]);
    client.run("SET search_path = pg_catalog");
    assert_eq!(rows(&primary, &names()[2]), 200);
    assert_eq!(client.value::<i32>("SELECT ids.shard_of(5 << 10)"), 5);
    assert_eq!(client.value::<i64>("SELECT count(*) FROM pg_extension WHERE extname = 'idgen'"), 0);
    drop(client);
    let written: String = primary.value("SELECT pg_current_wal_lsn()::text");
    standby.wait_until(&format!("SELECT pg_last_wal_replay_lsn() >= '{written}'"));
    standby.run("CHECKPOINT");
    standby.stop("fast");
    for server in both {
        server.configure(&[&format!("{} = 0", limit_of_origins())]);
    }
    primary.restart();
    standby.up();
}

/// Each statement of a removal fails once. Nothing after it runs, the message tells how far it got, and the same command
/// goes on.
#[test]
fn removal_stops_at_each_failure_and_goes_on() {
    let server = Server::start_plain(&["max_prepared_transactions = 1"]);
    server.run("CREATE DATABASE app");
    run_yes(&[&server], &["enable", "app"]).is(0, &["Now restart"]);
    server.restart();
    server.run("ALTER SYSTEM SET idgen.max_wait = '10s'");
    let mut client = connect(&server, "app");
    client.run(
        "CREATE TABLE t (id bigint DEFAULT snowflake_next_id(5), n int,
             at timestamptz GENERATED ALWAYS AS (snowflake_time(id, '2025-01-01Z')) STORED);
         CREATE DOMAIN d AS bigint DEFAULT snowflake_next_id(5); INSERT INTO t (n) VALUES (1);
         CREATE INDEX i ON t (snowflake_text(id))",
    );
    // What no step ends is refused before the first one, which already makes INSERTs fail.
    client.run(
        "CREATE VIEW v AS SELECT snowflake_text(id) FROM t;
         CREATE FUNCTION f() RETURNS bigint LANGUAGE sql RETURN snowflake_next_id(5);
         CREATE TABLE of_f (id bigint DEFAULT f())",
    );
    let dependents = "SELECT count(*) FROM idgen.idgen_dependents";
    let with_them: i64 = client.value(dependents);
    run_yes(&[&server], &["remove"]).is(
        1,
        &[
            "3 objects still depend on idgen",
            "index public.i of",
            "view public.v of",
            "function public.f() of",
            "is in the way",
            "Nothing was changed",
            "Never use DROP",
        ],
    );
    assert_eq!(client.value::<i64>(dependents), with_them);
    assert!(client.value::<i64>("INSERT INTO t DEFAULT VALUES RETURNING id") > 0);
    client
        .run("DROP VIEW v; DROP INDEX i; DROP TABLE of_f; DROP FUNCTION f(); DELETE FROM t WHERE n IS NULL");
    let at_first: i64 = client.value(dependents);
    fail_once(&server, "app", "ALTER EXTENSION");
    run_yes(&[&server], &["remove"]).is(1, &["not now", "Nothing was changed"]);
    fail_no_more(&server, "app");
    assert_eq!(client.value::<i64>(dependents), at_first);

    // Somebody has the table, and is named.
    let mut holder = connect(&server, "app");
    let mut transaction = holder.transaction().unwrap();
    transaction.run("LOCK t IN ACCESS SHARE MODE");
    let pid: i32 = transaction.value("SELECT pg_backend_pid()");
    client.run("BEGIN; LOCK t IN ACCESS SHARE MODE; PREPARE TRANSACTION 'it''s'");
    run_yes(&[&server], &["remove"]).is(
        4,
        &[
            "waiting for a lock",
            "prepared transaction 'it''s'",
            &format!("process {pid} of role postgres"),
            "This was done before: make \"idgen\".shard_of",
        ],
    );
    transaction.rollback().unwrap();
    client.run("ROLLBACK PREPARED 'it''s'");

    fail_once(&server, "app", "ALTER DOMAIN");
    run_yes(&[&server], &["remove"])
        .is(4, &["not now", "after 2 that succeeded", "This change was made in part"]);
    fail_no_more(&server, "app");
    let language = "SELECT lanname::text FROM pg_proc JOIN pg_language AS l ON l.oid = prolang WHERE proname = 'shard_of'";
    assert_eq!(client.value::<String>(language), "sql");

    keep_from_altering(&server, true);
    run_yes(&[&server], &["remove"]).is(4, &["postgresql.auto.conf.tmp", "This was done before"]);
    run_yes(&[&server], &["remove"]).is(1, &["postgresql.auto.conf.tmp", "Nothing was changed"]);
    keep_from_altering(&server, false);
    run_yes(&[&server], &["remove"]).is(1, &["Now restart"]);
    assert_eq!(
        server.value::<String>("SELECT pg_read_file('postgresql.auto.conf') ~ 'preload' || ''"),
        "false"
    );
    drop(client);
    server.restart();

    fail_once(&server, "app", "DROP EXTENSION");
    let json = run_yes(&[&server], &["remove", "--json"]).is(4, &["not now"]).json();
    assert!(json["hint"].as_str().unwrap().contains("remove the high-water mark"), "{json}");
    fail_no_more(&server, "app");
    let json = run_yes(&[&server], &["remove", "--json"]).is(0, &[]).json();
    assert_eq!(json["removed"], true, "{json}");
    // What it leaves is named, with statements that work.
    let left: Vec<String> =
        json["left"].as_array().unwrap().iter().map(|what| what.as_str().unwrap().to_owned()).collect();
    assert_eq!(
        left,
        [
            "in database \"app\": DROP FUNCTION \"idgen\".shard_of(bigint)",
            "in database \"app\": DROP SCHEMA \"idgen\"",
            "ALTER DATABASE \"app\" SET search_path = '$user', 'public'",
            &format!("on {}: ALTER SYSTEM RESET idgen.max_wait", server.host()),
        ]
    );
    let mut client = connect(&server, "app");
    left.iter().for_each(|what| client.run(what.rsplit_once(": ").map_or(what.as_str(), |(_, sql)| sql)));
    drop(client);
    let json = run(&[&server], &["remove", "--json"]).is(0, &[]).json();
    assert_eq!(json["left"], serde_json::json!([]), "{json}");
    assert_eq!(
        connect(&server, "app").value::<i64>("SELECT count(*) FROM t WHERE at IS NOT NULL AND id > 0"),
        1
    );
    // What stays is in the way of idgen if it comes back, which is said before anything fails.
    connect(&server, "app").run(
        "CREATE SCHEMA idgen;
         CREATE FUNCTION idgen.shard_of(bigint) RETURNS integer LANGUAGE sql RETURN 1",
    );
    run_yes(&[&server], &["enable", "app"])
        .is(1, &["still has the function shard_of", "Nothing was changed"]);
}

/// The session of a step is killed: nobody knows whether the step was done, and the same command finds out.
#[test]
fn a_session_that_is_killed_ends_the_removal() {
    let server = Server::start(&[PRELOAD]);
    server.run("CREATE TABLE t (id bigint DEFAULT snowflake_next_id(5))");
    let mut holder = server.connect();
    let mut transaction = holder.transaction().unwrap();
    transaction.run("LOCK t IN ACCESS SHARE MODE");
    let answer = std::thread::scope(|scope| {
        let program = scope.spawn(|| run_yes(&[&server], &["remove"]));
        let kill = "SELECT count(pg_terminate_backend(pid)) > 0 FROM pg_stat_activity
            WHERE application_name = 'idgenctl' AND query LIKE '%DROP DEFAULT%' AND wait_event_type = 'Lock'";
        server.wait_until(kill);
        program.join().unwrap()
    });
    answer.is(4, &["may have been made or not", "run the same command again"]);
    transaction.rollback().unwrap();
    run_yes(&[&server], &["remove"]).is(1, &["write shared_preload_libraries = ''"]);
}

/// A list that is not idgen's alone stays as it was meant, whichever files it is in; the last library of a list cannot be
/// taken out by ALTER SYSTEM where another file would bring others back.
#[test]
fn other_libraries_stay() {
    for (file, auto, words, last) in [
        ("", "plpgsql, idgen", "Now restart", "plpgsql"),
        ("dict_snowball", "\"plpgsql\", \"idgen\"", "Now restart", "plpgsql"),
        ("", "idgen", "Now restart", ""),
        ("dict_snowball", "idgen", "write shared_preload_libraries = ''", "idgen"),
        ("idgen", "idgen", "write shared_preload_libraries = ''", "idgen"),
    ] {
        let line = format!("shared_preload_libraries = '{file}'");
        let server = Server::start_plain(&[&line]);
        server.run(&format!("ALTER SYSTEM SET shared_preload_libraries = {auto}"));
        server.restart();
        server.run("CREATE EXTENSION idgen");
        run_yes(&[&server], &["remove"]).is(1, &[words]);
        server.restart();
        assert_eq!(server.value::<String>("SHOW shared_preload_libraries"), last, "{file} {auto}");
    }
}

/// A database in which a superuser could be made to call a function of somebody else ends the removal before it begins.
#[test]
fn a_database_in_the_hands_of_others_ends_the_removal() {
    let server = Server::start(&[PRELOAD]);
    let before = state(&server);
    server.run("CREATE ROLE mallory");
    server.run("CREATE DATABASE theirs OWNER mallory");
    connect(&server, "theirs").run("SET ROLE mallory; CREATE EXTENSION idgen");
    run_yes(&[&server], &["remove"])
        .is(1, &["may change schema \"public\" of database \"theirs\"", "Nothing was changed"]);
    assert_eq!(state(&server), before);
}

/// A database that is closed may have idgen, so idgen is not called removed, and its files stay.
#[test]
fn a_closed_database_ends_the_removal() {
    let server = Server::start(&[PRELOAD]);
    server.run("CREATE DATABASE closed TEMPLATE postgres");
    server.run("ALTER DATABASE closed ALLOW_CONNECTIONS false");
    let before = state(&server);
    run_yes(&[&server], &["remove"])
        .is(1, &["database \"closed\"", "accepts no connections", "Nothing was changed"]);
    assert_eq!(state(&server), before);
}

/// The schemas that clients find stay in the path, wherever it is set. That of the command line counts more than a file.
#[test]
fn the_path_of_the_command_line_is_kept() {
    let server = Server::start_plain(&[PRELOAD, "search_path = 'of_file'"]);
    server.run("CREATE DATABASE app");
    server.stop("fast");
    server.up_with("-c search_path=mine,\\\"Of\\ all\\\"");
    run_yes(&[&server], &["enable", "app"]).is(0, &["idgen is enabled"]);
    let path: String = connect(&server, "app").value("SHOW search_path");
    assert_eq!(path, "mine, \"Of all\", idgen");
}

/// A connection string that is wrong is not shown, because it may have a password.
#[test]
fn no_password_is_shown() {
    const PASSWORD: &str = "my sec:ret";
    let folder = std::env::temp_dir().join(format!("idgen-{}-fleet", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("fleet.toml");
    for connection in [
        format!("host=/tmp password={PASSWORD}"),
        format!("postgresql://me:{PASSWORD}@[host/app"),
        format!("postgresql://me:{PASSWORD}@host/app?other=1"),
    ] {
        for (text, args) in [
            (String::new(), ["--server", &connection]),
            (format!("[servers]\na = \"{connection}\""), ["--fleet", file.to_str().unwrap()]),
            (format!("[servers]\na = \"{connection}"), ["--fleet", file.to_str().unwrap()]),
        ] {
            fs::write(&file, text).unwrap();
            let output = idgenctl(&[&["accept-clock", "--json"], &args[..]].concat()).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{output:?}");
            assert!(!said(&output).contains("sec") && !said(&output).contains("ret"), "{output:?}");
        }
    }
    fs::remove_dir_all(&folder).unwrap();
}

/// A server that would not start again, because of a library that somebody has added, is not to be restarted.
#[test]
fn a_library_that_is_not_there_is_found_before_the_restart() {
    let server = Server::start_plain(&[]);
    server.run("CREATE DATABASE app");
    let before = state(&server);
    for missing in ["absent", "$libdir/absent", "/absent/lib.so"] {
        server.configure(&[&format!(
            "shared_preload_libraries = 'plpgsql, \"$libdir/plpgsql\", \"{missing}\"'"
        )]);
        run_yes(&[&server], &["enable", "app"])
            .is(1, &["will not start again", missing, "Nothing was changed"]);
    }
    assert_eq!(state(&server), before);
    server.configure(&["shared_preload_libraries = 'plpgsql, \"$libdir/plpgsql.so\"'"]);
    run_yes(&[&server], &["enable", "app"]).is(0, &["Now restart"]);
    server.restart();
    run_yes(&[&server], &["enable", "app"]).is(0, &["idgen is enabled"]);
}
