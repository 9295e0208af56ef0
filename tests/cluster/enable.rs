//! `idgenctl enable`, and the sessions of idgenctl: refusals, failures after which the same command continues, and
//! tenants and servers that try to run code, to end a session or to control a terminal.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::thread;

use postgres::{Client, NoTls};

use crate::fleet::for_servers;
use crate::origins::{limit_of_origins, room_for};
use crate::process::{
    assert_says, client_program, ends, idgenctl, installed, kill, lacks, major_version, permitted, refused,
    release_bin,
};
use crate::server::{PRELOAD, Server, Sql};

/// Enables a database of these servers, which must end with this code and say all of this.
#[track_caller]
fn enable(servers: &[&Server], database: &str, code: i32, texts: &[&str]) -> String {
    ends(for_servers(servers, &["enable", database, "--yes"]), code, texts)
}

#[track_caller]
fn look(servers: &[&Server], code: i32, texts: &[&str]) -> String {
    ends(for_servers(servers, &["enable", "postgres"]), code, texts)
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The state that a refused command must not change.
fn state(server: &Server) -> String {
    server.value(
        "SELECT concat(pg_read_file('postgresql.auto.conf'), (SELECT json_agg(s) FROM pg_db_role_setting s),
            (SELECT json_agg(oid) FROM pg_extension), (SELECT json_agg(oid) FROM pg_namespace),
            (SELECT json_agg(adnum) FROM pg_attrdef))",
    )
}

/// A database is found by its name, whatever that looks like. A missing database is not created.
#[test]
fn a_database_of_any_name_is_enabled() {
    // Names that a connection string, a shell, SQL or a terminal could misread.
    let names = [
        "a\u{202e}b",
        "host=10.0.0.1 dbname=postgres",
        "postgresql://10.0.0.1/postgres",
        "a\"b'c;\nDROP ROLE mallory; -- \u{1b}[2J",
        " $(touch planted) \\! x",
    ]
    .map(permitted);
    let server = Server::start_plain(&[PRELOAD]);
    for name in &names {
        let answer = enable(&[&server], name, 1, &["does not exist"]);
        assert!(!answer.contains(['\u{1b}', '\u{202e}']), "the name controls the terminal");
        server.run(&format!("CREATE DATABASE {}", quoted(name)));
        enable(&[&server], name, 0, &["idgen is enabled"]);
        assert!(server.connect_to(name).value::<bool>("SELECT snowflake_next_id(5) > 0"));
    }
}

/// Without --yes and a terminal, nothing changes. On one, the program asks if there is anything to do.
#[test]
fn a_person_is_asked_on_a_terminal() {
    let Some(script) = installed("script") else { return lacks("script") };
    let server = Server::start_plain(&[PRELOAD]);
    let before = state(&server);
    look(&[&server], 1, &["there is no terminal", "This is to be done:"]);
    let line = format!("{}/idgenctl enable postgres --server '{}'", release_bin(), server.target("postgres"));
    let asked = |answer: &str| {
        let mut command = client_program(&script);
        command.args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // Input before the question does not answer it.
        child.stdin.as_mut().unwrap().write_all(b"y\n").unwrap();
        let (mut said, mut byte) = (Vec::new(), [0]);
        let stdout = child.stdout.as_mut().unwrap();
        while !said.ends_with(b"[y/N]") && stdout.read(&mut byte).unwrap() == 1 {
            said.push(byte[0]);
        }
        if said.ends_with(b"[y/N]") {
            child.stdin.as_mut().unwrap().write_all(answer.as_bytes()).unwrap();
        }
        (child.wait_with_output().unwrap().status.code(), said.ends_with(b"[y/N]"))
    };
    for answer in ["n\n", "\n", "yeah\n"] {
        assert_eq!((asked(answer), state(&server)), ((Some(1), true), before.clone()));
    }
    assert_eq!(asked("y\n"), (Some(0), true));
    assert_eq!(asked(""), (Some(0), false));
}

/// One cluster is enabled at a time. If several are given, the program does not guess.
#[test]
fn only_one_cluster_is_enabled() {
    let one = Server::start_plain(&[PRELOAD]);
    let (old, two) = (one.standby("old"), one.standby("two"));
    two.promote();
    let before = [&one, &two].map(state);
    for servers in [&[&one, &old, &two][..], &[&one, &two]] {
        enable(servers, "postgres", 2, &["not one primary with its standbys"]);
    }
    assert_eq!([&one, &two].map(state), before);
}

/// One command prepares both servers and names the order of their restarts. Run again, it proves that both mint.
#[test]
fn a_standby_is_enabled_with_its_primary() {
    let primary = Server::start_plain(&["shared_preload_libraries = 'dict_snowball'"]);
    let standby = primary.standby("two");
    let both = [&primary, &standby];
    let order = format!("Now restart {}, then {}", standby.host(), primary.host());
    enable(&both, "postgres", 0, &[&order]);
    for server in [&standby, &primary] {
        server.restart();
        assert_eq!(server.value::<String>("SHOW shared_preload_libraries"), "dict_snowball, idgen");
    }
    primary.wait_until("SELECT count(*) = 1 FROM pg_stat_replication");
    let [two, one] = [&standby, &primary].map(Server::host);
    let says = [format!("{two} can mint ids once it is promoted"), format!("{one} mints ids")];
    look(&both, 0, &["idgen is enabled", &says[0], &says[1]]);

    // The exit code tells that the server cannot mint.
    primary.run("ALTER SYSTEM SET idgen.epoch = '2040-01-01T00:00:00Z'");
    primary.restart();
    look(&both, 1, &["mints no ids", "the system clock is before"]);
}

/// The first id would take down a standby without room for the mark, so nothing is changed until it has room.
#[test]
fn a_standby_without_room_is_found_before_the_first_id() {
    let primary = Server::start_plain(&["max_replication_slots = 4"]);
    let standby = primary.standby("two");
    standby.restart_with(&[&room_for(0)]);
    primary.wait_until("SELECT count(*) = 1 FROM pg_stat_replication");
    let before = state(&primary);
    let why = ["has no room for the high-water mark", limit_of_origins(), "Nothing was changed"];
    enable(&[&primary, &standby], "postgres", 1, &why);
    assert_eq!(state(&primary), before);
    look(&[&primary], 1, &["warning: servers that are not given", ": two at a local socket."]);
    // PostgreSQL shows this name without quotes, so that libpq cannot read the text.
    standby.follow_by(&primary.host(), "''number two''");
    standby.restart_with(&[&room_for(4)]);
    primary.wait_until("SELECT count(*) = 1 FROM pg_stat_replication WHERE application_name = 'number two'");
    let answer = enable(&[&primary, &standby], "postgres", 0, &[]);
    assert!(!answer.contains("warning"), "{}", answer);
}

/// Patroni would undo ALTER SYSTEM. Only a superuser can pretend to be Patroni.
#[test]
fn under_patroni_the_list_is_left_to_it() {
    let server = Server::start_plain(&["shared_preload_libraries = 'dict_snowball'"]);
    server.run("CREATE ROLE mallory LOGIN");
    let session = |role: &str| {
        let target = format!("{} application_name='Patroni heartbeat'", server.target_as(role));
        Client::connect(&target, NoTls).unwrap()
    };
    let patroni = session("postgres");
    enable(&[&server], "postgres", 1, &["left to do", "patronictl edit-config"]);
    assert!(!server.value::<String>("SELECT pg_read_file('postgresql.auto.conf')").contains("idgen"));
    drop(patroni);
    let _mallory = session("mallory");
    server.wait_until("SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name LIKE 'Patroni%'");
    enable(&[&server], "postgres", 0, &["Now restart"]);
}

/// `enable` ends at its first failure, and the message tells what was done before.
#[test]
fn enable_stops_at_the_first_failure_and_goes_on() {
    let server = Server::start_plain(&[]);
    // With this folder, ALTER SYSTEM cannot write its file.
    let file = format!("{}/postgresql.auto.conf.tmp", server.value::<String>("SHOW data_directory"));
    fs::create_dir(&file).unwrap();
    enable(&[&server], "postgres", 4, &["done: create the extension"]);
    fs::remove_dir(file).unwrap();
    let answer = enable(&[&server], "postgres", 0, &["Now restart"]);
    assert!(!answer.contains("create the extension"), "{}", answer);
}

/// Ctrl-C also ends the statement on the server, which would otherwise make its change after the program has ended.
#[test]
fn nothing_is_done_after_an_interrupt() {
    let server = Server::start_plain(&[PRELOAD]);
    let mut holder = server.connect();
    holder.run("BEGIN; LOCK pg_extension IN SHARE MODE");
    let mut child = for_servers(&[&server], &["enable", "postgres", "--yes"]).spawn().unwrap();
    let sessions = "FROM pg_stat_activity WHERE application_name = 'idgenctl' AND wait_event_type = 'Lock'";
    server.wait_until(&format!("SELECT count(*) = 1 {sessions}"));
    kill("INT", child.id() as i32).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(4));
    server.wait_until(&format!("SELECT count(*) = 0 {sessions}"));
    holder.run("COMMIT");
    assert_eq!(server.value::<i64>("SELECT count(*) FROM pg_extension WHERE extname = 'idgen'"), 0);
}

/// Settings by which the owner of a database can end sessions there, or make them see something else.
fn blinding_settings() -> impl Iterator<Item = &'static str> {
    let settings = "role=mallory session_authorization=mallory exit_on_error=on synchronous_commit=off datestyle=German
        default_transaction_isolation=serializable default_transaction_read_only=on default_transaction_deferrable=on
        statement_timeout=1 lock_timeout=1 idle_session_timeout=1 idle_in_transaction_session_timeout=1
        standard_conforming_strings=off transform_null_equals=on quote_all_identifiers=on array_nulls=off
        timezone='Asia/Kathmandu' intervalstyle=sql_standard extra_float_digits=-15 idgen.shard=5
        bytea_output=escape client_encoding=LATIN1 client_min_messages=debug5 local_preload_libraries=absent
        transaction_timeout=1";
    // The last one comes with PostgreSQL 17. From 19 on, strings always conform.
    let is_there = |setting: &&str| match setting.split('=').next() {
        Some("transaction_timeout") => major_version() >= 17,
        Some("standard_conforming_strings") => major_version() < 19,
        _ => true,
    };
    settings.split_whitespace().filter(is_there)
}

/// The database may be a tenant's, with traps before PostgreSQL's own objects in its search_path and with settings that
/// end or mislead sessions, on a standby too. None of these runs, has an effect, or hides a finding.
#[test]
fn nothing_in_the_database_of_a_tenant_runs_or_counts() {
    let primary = Server::start_plain(&[PRELOAD, "idgen.allowed_shards = '0-3'"]);
    let standby = primary.standby("two");
    primary.run("CREATE ROLE mallory");
    primary.run("CREATE DATABASE theirs OWNER mallory");
    let mut client = primary.connect_to("theirs");
    client.run("CREATE SCHEMA ids; GRANT USAGE ON SCHEMA ids TO PUBLIC; CREATE EXTENSION idgen SCHEMA ids; SET ROLE mallory");
    let schema = quoted("s\"; ALTER ROLE mallory SUPERUSER; --\n\u{1b}[2J");
    for sql in [
        "CREATE SCHEMA {schema}",
        "CREATE FUNCTION {schema}.strike() RETURNS void LANGUAGE plpgsql AS
             'BEGIN ALTER ROLE mallory SUPERUSER; EXCEPTION WHEN insufficient_privilege THEN END'",
        "CREATE FUNCTION {schema}.trap() RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
             BEGIN PERFORM \"s\"\"; ALTER ROLE mallory SUPERUSER; --\n\u{1b}[2J\".strike(); RETURN true; END $$",
        "CREATE DOMAIN {schema}.\"d\ne\" AS bigint DEFAULT ids.snowflake_next_id(5) CHECK ({schema}.trap())",
        "CREATE TABLE {schema}.\"t'; $1 %s\" (\"i\"\"d;\" {schema}.\"d\ne\", name text)",
        "CREATE INDEX ON {schema}.\"t'; $1 %s\" ((CASE WHEN name = 'a' THEN {schema}.trap() END))",
        "CREATE FUNCTION {schema}.trap(name, name) RETURNS boolean LANGUAGE sql IMMUTABLE RETURN {schema}.trap();
         CREATE OPERATOR {schema}.= (LEFTARG = name, RIGHTARG = name, FUNCTION = {schema}.trap)",
        "DO $do$
         DECLARE item name;
         BEGIN
             FOREACH item IN ARRAY '{pg_extension,pg_database,pg_class,pg_settings,pg_file_settings,pg_stat_activity}'::name[]
             LOOP
                 EXECUTE format('CREATE VIEW {schema}.%I AS SELECT *, {schema}.trap() FROM pg_catalog.%1$I', item);
             END LOOP;
         END $do$",
        "ALTER DATABASE theirs SET search_path = {schema}, ids, pg_catalog",
    ] {
        client.run(&sql.replace("{schema}", &schema));
    }
    let functions = "SELECT format('CREATE FUNCTION {schema}.%I(%s) RETURNS %s LANGUAGE plpgsql AS
                ''BEGIN ALTER ROLE mallory SUPERUSER; RETURN NULL; END''', proname,
                pg_get_function_identity_arguments(oid), pg_get_function_result(oid))
        FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace AND proname = ANY ('{quote_ident, quote_literal,
            set_config, current_setting, pg_is_in_recovery, substr, starts_with, regexp_split_to_array,
            current_database, pg_get_userbyid, texteq, nameeqtext}')";
    let functions = client.column::<String>(&functions.replace("{schema}", &schema));
    assert!(functions.len() >= 12, "{}", functions.len());
    functions.iter().for_each(|create| client.run(create));
    primary.assert_ordinary("mallory");
    // The traps work, and the settings end sessions, where the program's precautions are missing.
    primary.connect_to("theirs").run("SELECT * FROM pg_extension WHERE extname = 'x'");
    let reset = "UPDATE pg_authid SET rolsuper = false WHERE rolname = 'mallory' AND rolsuper";
    assert_eq!(primary.connect().execute(reset, &[]).unwrap(), 1);
    for setting in blinding_settings() {
        client.run(&format!("ALTER DATABASE theirs SET {setting}"));
    }
    assert!(Client::connect(&primary.target("theirs"), NoTls).is_err());
    primary.until_replayed_by(&standby);
    let targets = [&primary, &standby].map(|server| server.target("theirs"));
    let servers = ["--server", &targets[0], "--server", &targets[1]];
    ends(idgenctl(&[&["enable", "theirs", "--yes"], &servers[..]].concat()), 0, &[]);
    for servers in [&servers[..], &servers[2..]] {
        let found = "the server may not mint for the default of";
        ends(idgenctl(&[&["check"], servers].concat()), 3, &[found]);
    }
    primary.assert_ordinary("mallory");
}

/// An existing schema is not taken over, whatever role owns it now: a superuser's call could find an overload in it.
#[test]
fn a_schema_that_was_a_tenants_is_not_taken_over() {
    let server = Server::start_plain(&[PRELOAD]);
    server.run("CREATE ROLE mallory");
    server.run("CREATE DATABASE app OWNER mallory");
    let mut client = server.connect_to("app");
    let mut refused = |sql: &str, objects: &str| {
        client.run(sql);
        let before = state(&server);
        let words = ["has a schema \"idgen\" already", objects, "Nothing was changed", "portable edition"];
        enable(&[&server], "app", 1, &words);
        assert_eq!(state(&server), before);
    };
    refused("SET ROLE mallory; CREATE SCHEMA idgen", "");
    refused(
        "CREATE FUNCTION idgen.snowflake_assign_shard(text, integer) RETURNS void LANGUAGE sql AS '';
         CREATE TYPE idgen.t AS (a integer)",
        "with idgen.snowflake_assign_shard(pg_catalog.text,integer), idgen.t",
    );
    refused(
        "RESET ROLE; REASSIGN OWNED BY mallory TO postgres; GRANT CREATE ON DATABASE app TO mallory",
        "with idgen.snowflake_assign_shard(",
    );
    // Default privileges give others no right in the schema either.
    client.run("DROP SCHEMA idgen CASCADE; ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO mallory, PUBLIC");
    enable(&[&server], "app", 0, &["idgen is enabled"]);
    assert!(!client.value::<bool>("SELECT has_schema_privilege('mallory', 'idgen', 'CREATE')"));
}

/// An extension that exists is left alone, and no path leads superusers to its schema, which may have objects of others.
#[test]
fn an_extension_among_objects_of_others_is_left_alone() {
    let server = Server::start_plain(&[PRELOAD]);
    server.run("CREATE ROLE mallory");
    server.run("CREATE DATABASE own OWNER mallory");
    let mut client = server.connect_to("own");
    client.run("ALTER DATABASE own SET search_path = trap, pg_catalog; SET ROLE mallory; CREATE SCHEMA trap");
    client.run("CREATE EXTENSION idgen SCHEMA trap; CREATE FUNCTION trap.shard_of(text) RETURNS integer LANGUAGE sql AS 'SELECT 1'");
    client.run("RESET ROLE");
    let before = state(&server);
    enable(&[&server], "own", 0, &["idgen is enabled"]);
    assert_eq!(state(&server), before);
    client.run("DROP EXTENSION idgen; ALTER DATABASE own SET role = 'mallory'");
    enable(&[&server], "own", 0, &["and set its search_path to \"trap, pg_catalog, idgen"]);
    server.assert_ordinary("mallory");
}

fn message(kind: &str, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    [kind.as_bytes(), &length, body].concat()
}

/// The connection string of a server that treats its connections like this.
fn server_that(mut serves: impl FnMut(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || listener.incoming().for_each(|stream| serves(stream.unwrap())));
    format!("host=127.0.0.1 port={port} user=a dbname=a sslmode=disable gssencmode=disable")
}

/// The output of idgenctl about a server that lets every role in, sends a greeting, and gives one answer to everything.
fn said_of(greetings: Vec<Vec<u8>>, answer: Vec<u8>) -> String {
    let mut greetings = greetings.into_iter().cycle();
    let target = server_that(move |mut stream| {
        let mut length = [0; 4];
        stream.read_exact(&mut length).unwrap();
        stream.read_exact(&mut vec![0; u32::from_be_bytes(length) as usize - 4]).unwrap();
        let _ = stream.write_all(&[message("R", &[0; 4]), greetings.next().unwrap()].concat());
        while matches!(stream.read(&mut [0; 8192]), Ok(1..)) && stream.write_all(&answer).is_ok() {}
    });
    ends(idgenctl(&["enable", "app", "--server", &target]), 1, &[])
}

/// The texts of a server control no terminal and forge no line: notices are not shown, and errors only in part. No
/// message crashes the program or keeps it busy forever.
#[test]
fn a_hostile_server_harms_nobody_who_looks_at_it() {
    let says = |kind: &str, severity: &str| {
        let text = format!("S{severity}\0C28000\0M{severity}\u{1b}[2J\r\u{202e}\u{2028}\nforged\0\0");
        message(kind, text.as_bytes())
    };
    let ready = message("Z", b"I");
    let text = said_of(vec![[says("N", "NOTICE"), says("E", "FATAL")].concat()], Vec::new());
    assert!(text.contains("FATAL: FATAL") && !text.contains("NOTICE"), "{text}");
    let controls = |c: char| c.is_control() && c != '\n' || ('\u{2028}'..='\u{202e}').contains(&c);
    assert!(!text.contains(controls), "{text:?}");
    assert!(!text.lines().any(|line| line.starts_with("forged")), "{text}");
    let flood = message("C", b"SHOW\0").repeat(1000);
    for answer in ["G", "H", "W"].map(|copy| message(copy, &[0; 3])).into_iter().chain([flood]) {
        let answer = [says("N", "NOTICE"), answer].concat();
        let text = said_of(vec![ready.clone()], answer);
        assert!(text.contains("its answer is unexpected") && !text.contains("NOTICE"), "{text}");
    }
    // A row without a column.
    let answer =
        [message("T", &[0; 2]), message("D", &[0; 2]), message("C", b"SHOW\0"), ready.clone()].concat();
    said_of(vec![ready.clone()], answer);
    // Rows without end.
    let row = [&[0, 1, 0, 1, 0, 0][..], &[b'a'; 1 << 16]].concat();
    let column = [&b"\0\x01a\0"[..], &[0; 18]].concat();
    let answer = [message("T", &column), message("D", &row).repeat(1100)].concat();
    assert_says(&said_of(vec![ready.clone()], answer), &["its answer is unexpected, or too large"]);
    // Rows that have only nulls, which take memory, too.
    let columns = u16::MAX.to_be_bytes();
    let columns_of = |each: &[u8]| [&columns[..], &each.repeat(u16::MAX.into())].concat();
    let (row, head) = (columns_of(&[0xff; 4]), columns_of(&[&b"a\0"[..], &[0; 18]].concat()));
    let answer = [message("T", &head), message("D", &row).repeat(100)].concat();
    assert_says(&said_of(vec![ready.clone()], answer), &["its answer is unexpected, or too large"]);
    let release =
        |number| [message("S", format!("server_version\0{number}.1\0").as_bytes()), ready.clone()].concat();
    let said = said_of([17, 15].map(release).to_vec(), Vec::new());
    assert_says(&said, &["has another version at each connection"]);
}

/// A server that never stops sending settings does not keep the program waiting forever.
#[test]
fn a_server_that_floods_is_left() {
    let flood = message("S", b"a\0b\0").repeat(1000);
    let target = server_that(move |mut stream| {
        let _ = stream.write_all(&message("R", &[0; 4]));
        while stream.write_all(&flood).is_ok() {}
    });
    let target = format!("{target} connect_timeout=2");
    refused(idgenctl(&["enable", "app", "--server", &target]), &["did not answer within 2.0 s"]);
}
