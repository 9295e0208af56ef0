//! The setting `idgen.state`, for programs that must not trust a database.

use postgres::{Client, NoTls};
use serde_json::Value;

use crate::moment::is_reached;
use crate::process::{client_program, ends, idgenctl, major_version, output_of_run, preloads};
use crate::server::{PRELOAD, Server, Sql, if_preloaded};

const YEAR: f64 = 365.25 * 24.0 * 3600.0;

fn state_in(client: &mut Client) -> Value {
    client.run("LOAD 'idgen'");
    serde_json::from_str(&client.value::<String>("SELECT current_setting('idgen.state')")).unwrap()
}

fn state(server: &Server) -> Value {
    state_in(&mut server.connect())
}

/// The code of the warning, and whether the server mints.
fn of(state: &Value) -> (Option<&str>, bool) {
    (state["warning"]["code"].as_str(), state["mints"].as_bool().unwrap())
}

/// Promise 5: every database shows the state of the server, with or without the extension. So does a standby, which
/// does not mint before its promotion.
#[test]
fn every_database_tells_the_state_of_the_server() {
    let server = Server::start(if_preloaded(&["idgen.allowed_shards = '5-9'", "idgen.max_clock_jump = -1"]));
    server.run("CREATE DATABASE bare");
    server.run("SELECT snowflake_next_id(5); SELECT snowflake_next_id_js(6)");
    drop(server.connect().execute("SELECT snowflake_next_id(-1)", &[]));
    let state = state(&server);
    let row: (i64, i64, i64) = server.connect().row(
        "SELECT (extract(epoch FROM epoch) * 1000)::bigint, floor(extract(epoch FROM mark_at) * 1000)::bigint,
                (SELECT sum(ids)::bigint FROM idgen_shard_stats)
         FROM idgen_status",
    );
    let numbers = ["epoch_ms", "mark_ms", "ids"].map(|name| state[name].as_i64().unwrap());
    assert_eq!((numbers[0], numbers[2], state["refused"].as_i64()), (row.0, row.2, Some(1)), "{state}");
    assert!((numbers[1] - row.1).abs() < 10_000, "{state}, {row:?}");
    let shards = if preloads() { "5-9" } else { "" };
    assert_eq!((state["allowed_shards"].as_str(), state["closed_shards"].as_str()), (Some(shards), Some("")));
    let jump = if preloads() { -1 } else { 3_600_000 };
    let limits = ["max_ahead_ms", "reserve_ahead_ms", "max_clock_jump_ms"].map(|name| state[name].as_i64());
    assert_eq!(limits, [Some(1000), Some(1000), Some(jump)]);
    assert_eq!(state["preloaded"], preloads());
    let system = "SELECT system_identifier::text FROM pg_control_system()";
    assert_eq!(state["system_identifier"], server.value::<String>(system));
    assert_eq!((&state["error"], &state["mark_of_epoch"]), (&Value::Null, &Value::Bool(true)));
    assert_eq!(of(&state), (preloads().then_some("clock-jumps-unchecked"), true));
    assert_eq!(of(&state_in(&mut server.connect_to("bare"))), of(&state));

    let standby = server.standby("twin");
    let kept = server.value::<i64>("SELECT mark FROM idgen_status") + row.0;
    let read = || state_in(&mut standby.connect_to("bare"));
    assert!(is_reached(30, || read()["mark_ms"].as_i64() == Some(kept)), "{}", read());
    assert!(!of(&read()).1);
    server.kill();
    standby.promote();
    assert!(of(&read()).1, "{}", read());
}

/// Promise 5: the state says whether calls are served, and so does a call.
#[test]
fn the_state_says_whether_calls_are_served() {
    let server = Server::start(&[PRELOAD, "idgen.max_wait = 200ms"]);
    let check = |code: Option<&str>, mints: bool| {
        let state = state(&server);
        assert_eq!(of(&state), (code, mints), "{state}");
        let row: (Option<String>, Option<String>, bool) =
            server.connect().row("SELECT warning_code, warning_hint, mints FROM idgen_status");
        assert_eq!(
            row,
            (code.map(str::to_owned), state["warning"]["hint"].as_str().map(str::to_owned), mints)
        );
        let served = server.connect().execute("SELECT snowflake_next_id(9)", &[]);
        assert_eq!(served.is_ok(), mints, "{code:?}: {served:?}");
    };
    check(None, true);
    server.set_clock(10.0 * YEAR);
    check(Some("clock-jumped"), false);
    assert_eq!(state(&server)["warning"]["severity"], "error");
    server.set_clock(0.0);
    server.set("idgen.max_clock_jump", "-1");
    check(Some("clock-jumps-unchecked"), true);
    assert_eq!(state(&server)["warning"]["severity"], "warning");
    server.set("idgen.max_clock_jump", "1h");

    // Shards that are ahead of the clock wait, and after a restart all shards.
    server.set_clock(1800.0);
    server.run("SELECT snowflake_next_id(7)");
    server.set_clock(0.0);
    check(Some("clock-behind"), true);
    server.restart();
    check(Some("mark-in-future"), false);
    check(Some("clock-behind"), false);
    server.set_clock(1800.0);

    let standby = server.standby("twin");
    standby.set_clock(1800.0);
    server.make_synchronous("twin");
    check(None, true);
    standby.stop("fast");
    let too_few = || of(&state(&server)) == (Some("sync-too-few"), false);
    assert!(is_reached(30, too_few), "{}", state(&server));
    check(Some("sync-too-few"), false);
    server.make_asynchronous();
    check(None, true);

    server.restart_with(&["idgen.allowed_shards = 'nonsense'"]);
    check(Some("setting-not-accepted"), false);
    server.restart_with(&["idgen.allowed_shards = ''", "idgen.epoch = 'nonsense'"]);
    check(Some("setting-not-accepted"), false);
    let read = state(&server);
    assert_eq!((&read["epoch_ms"], &read["error"]["sqlstate"]), (&Value::Null, &"55000".into()), "{read}");
    server.restart_with(&["idgen.epoch = '2024-01-01T00:00:00Z'"]);
    check(Some("epoch-of-mark"), false);
    let read = state(&server);
    assert_eq!((&read["mark_ms"], &read["mark_of_epoch"]), (&Value::Null, &Value::Bool(false)), "{read}");
}

/// Promise 7: a value that a role gave the setting before the library was loaded never takes the place of the state.
#[test]
fn nobody_can_shadow_the_state() {
    let server = Server::start_plain(&[]);
    server.run("CREATE ROLE tenant LOGIN");
    server.run("CREATE DATABASE app OWNER tenant");
    server.run("GRANT SET ON PARAMETER \"idgen.state\" TO tenant");
    server.connect_as("tenant").run("ALTER DATABASE app SET idgen.state = 'all is well'");
    let mut client = server.connect_to("app");
    assert_eq!(client.value::<String>("SHOW idgen.state"), "all is well");
    client.run("BEGIN; SET LOCAL idgen.state = 'local'; SAVEPOINT s; SET idgen.state = 'more'");
    let is_state = |client: &mut Client| state_in(client)["version"].is_string();
    assert!(is_state(&mut client));
    client.run("ROLLBACK TO s");
    assert!(is_state(&mut client));
    client.run("ROLLBACK");
    client.run("DISCARD ALL");
    assert!(is_state(&mut client));
    // Without a preload, PostgreSQL 15 and 16 have no memory for idgen.
    let sqlstate = (major_version() < 17).then_some("55000");
    assert_eq!(state_in(&mut client)["error"]["sqlstate"].as_str(), sqlstate);
    let target = format!("{} options='-c idgen.state=x'", server.target("app"));
    assert!(is_state(&mut Client::connect(&target, NoTls).unwrap()));

    server.restart_with(&[PRELOAD, "idgen.state = 'in a file'"]);
    assert!(is_state(&mut server.connect_to("app")));
    assert_eq!(of(&state(&server)), (Some("setting-refused"), true));
    for change in [
        "SET idgen.state = 'x'",
        "RESET idgen.state",
        "SET LOCAL idgen.state = 'x'",
        "SELECT set_config('idgen.state', 'x', false)",
        "ALTER SYSTEM SET idgen.state = 'x'",
        "ALTER DATABASE app SET idgen.state = 'x'",
        "CREATE FUNCTION f() RETURNS int LANGUAGE sql SET idgen.state = 'x' AS 'SELECT 1'",
    ] {
        assert_eq!(server.code(change), "55P02", "{change}");
    }
    assert!(is_state(&mut server.connect_to("app")));
}

/// Only members of pg_read_all_settings can read the state, and only by its name.
#[test]
fn an_ordinary_role_cannot_read_the_state() {
    let server = Server::start(&[PRELOAD]);
    server.run("CREATE ROLE anybody LOGIN; CREATE ROLE watcher LOGIN IN ROLE pg_monitor");
    let mut anybody = server.connect_as("anybody");
    for read in ["SHOW idgen.state", "SELECT current_setting('idgen.state')"] {
        assert_eq!(anybody.code(read), "42501", "{read}");
    }
    assert!(server.connect_as("watcher").value::<String>("SHOW idgen.state").starts_with('{'));
    let listed = "SELECT count(*) FROM pg_settings WHERE name = 'idgen.state'";
    assert_eq!(server.value::<i64>(listed), 0);
    let all = server.connect().simple_query("SHOW ALL").unwrap();
    assert!(!format!("{all:?}").contains("idgen.state"));
}

/// Every kind of session can read the state, without an error and without a trace.
#[test]
fn reading_the_state_does_no_harm() {
    let server = Server::start(&[PRELOAD]);
    // Another session has locked a catalog.
    let mut holder = server.connect();
    holder.run("BEGIN; LOCK TABLE pg_replication_origin IN ACCESS EXCLUSIVE MODE");
    let mut client = server.connect();
    client.run("BEGIN; SET LOCAL lock_timeout = '1h'");
    let state = state_in(&mut client);
    assert_eq!((of(&state).1, state["error"]["sqlstate"].as_str()), (false, Some("55P03")), "{state}");
    assert_eq!((state["preloaded"].as_bool(), state["allowed_shards"].as_str()), (Some(true), Some("")));
    assert_eq!(client.value::<String>("SHOW lock_timeout"), "1h");
    client.run("CREATE TABLE goes_on ()");
    holder.run("COMMIT");
    assert_eq!(state_in(&mut client)["error"], Value::Null);
    client.run("COMMIT");

    // In a parallel worker, and in a session without a database.
    let mut client = server.connect();
    let forced = if major_version() < 16 { "force_parallel_mode" } else { "debug_parallel_query" };
    client.run(&format!("SET {forced} = on"));
    let text: String = client.value("SELECT current_setting('idgen.state')");
    assert!(serde_json::from_str::<Value>(&text).is_ok(), "{text}");
    let walsender = |database: &str| {
        let mut psql = client_program("psql");
        let target = format!("host={} user=postgres {database}", server.host());
        psql.args(["-X", "-A", "-t", "-d", &target, "-c", "SHOW idgen.state"]);
        serde_json::from_str::<Value>(&output_of_run(psql)).unwrap()
    };
    assert_eq!(walsender("replication=true")["error"]["sqlstate"], "55000");
    assert_eq!(walsender("replication=database dbname=postgres")["error"], Value::Null);

    // Repeated reading takes no memory.
    let mut client = server.connect();
    let size = "SELECT sum(total_bytes)::bigint FROM pg_backend_memory_contexts";
    let read = "DO $$ BEGIN FOR i IN 1..500 LOOP PERFORM current_setting('idgen.state'); END LOOP; END $$";
    client.run("BEGIN");
    client.run(read);
    let before: i64 = client.value(size);
    client.run(read);
    assert_eq!(client.value::<i64>(size), before);
    client.run("ROLLBACK");

    server.stop("fast");
    let script = "postgres --single -D \"$PGDATA\" postgres <<<'SHOW idgen.state' 2>/dev/null";
    let output = output_of_run(server.shell(script));
    assert!(output.contains("\"mints\":true"), "{output}");
}

/// Promise 4: a reader of the state who waits for a lock on the catalog of the origins can be canceled, and keeps no
/// mark from being written or replayed. PostgreSQL 15 reads the state for every query of pg_settings.
#[test]
fn a_reader_of_the_state_holds_up_no_mark() {
    let server = Server::start(&[PRELOAD]);
    let standby = server.standby("twin");
    server.run("CREATE ROLE plain LOGIN");
    let _: i64 = server.value("SELECT snowflake_next_id(1)");
    let replays = |standby: &Server| {
        let position: String = server.value("SELECT pg_current_wal_insert_lsn()::text");
        let is_there = format!("SELECT pg_last_wal_replay_lsn() >= '{position}'");
        server.run("SELECT pg_logical_emit_message(false, '', '')");
        assert!(is_reached(60, || standby.value::<bool>(&is_there)));
    };
    replays(&standby);
    for (reader, role) in [(&server, "postgres"), (&standby, "plain")] {
        let mut holder = server.connect();
        holder.run("BEGIN; LOCK TABLE pg_catalog.pg_replication_origin IN ACCESS EXCLUSIVE MODE");
        let _: i64 = server.value("SELECT snowflake_next_id(2)");
        replays(&standby);
        let mut status = Client::connect(&reader.target_as(role), NoTls).unwrap();
        status.run("SET statement_timeout = '300ms'");
        assert_eq!(status.code("SELECT warning FROM idgen_status"), "57014");
        let mut settings = Client::connect(&reader.target_as(role), NoTls).unwrap();
        assert!(settings.value::<i64>("SELECT count(*) FROM pg_settings") > 0);
        // A new mark, further ahead than the last.
        let _: i64 =
            server.value("SELECT snowflake_advance(3, snowflake_max_id(clock_timestamp() + '900 ms'))");
        holder.run("COMMIT");
        replays(&standby);
    }
}

/// Promise: idgenctl goes by what a standby says, and not by what its primary has written into the catalogs.
#[test]
fn a_primary_does_not_hide_the_state_of_its_standby() {
    let primary = Server::start(&[PRELOAD]);
    let standby = primary.standby("twin");
    standby.alter("idgen.allowed_shards", "1-9");
    primary.run(
        "ALTER ROLE ALL SET dynamic_library_path = '/nowhere'; SET allow_system_table_mods = on;
         UPDATE pg_proc SET proname = 'hidden' WHERE oid = 'current_setting(text,boolean)'::regprocedure;
         CREATE FUNCTION pg_catalog.current_setting(text, boolean) RETURNS text LANGUAGE sql AS 'SELECT NULL::text'",
    );
    primary.until_replayed_by(&standby);
    let check = idgenctl(&["check", "--server", &standby.target("postgres")]);
    let said = ends(check, 5, &[" 1-9", "[no-primary]"]);
    assert!(!said.contains("[library-"), "{said}");
}
