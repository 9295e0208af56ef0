//! `idgenctl carry` (crates/idgenctl): promise 1 when the data of a cluster goes to another one, whose clock may be behind.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use crate::clients::Ledger;
use crate::moment::is_reached;
use crate::process::{idgenctl, kill, permitted, said};
use crate::server::{Build, PRELOAD, Server, Sql};

/// The exit codes of idgenctl that are expected here.
const DONE: i32 = 0;
const REFUSED: i32 = 1;
const USAGE: i32 = 2;
const NOT_ALL_READ: i32 = 3;
const BROKEN_OFF: i32 = 4;

/// Calls wait only shortly for a clock that is behind.
const IMPATIENT: &str = "idgen.max_wait = 300ms";

const TABLES: &str = "CREATE DOMAIN key AS bigint;
    CREATE TABLE rows (id key PRIMARY KEY DEFAULT snowflake_next_id(1));
    CREATE TABLE pages (id bigint PRIMARY KEY DEFAULT snowflake_next_id_js(3))";
const INSERT: &str = "INSERT INTO rows VALUES (DEFAULT) RETURNING id";
const INSERT_JS: &str = "INSERT INTO pages VALUES (DEFAULT) RETURNING id";

/// What the program exits with, and what it says.
fn carry(args: &[&str]) -> (i32, String) {
    let output = idgenctl(&[&["carry"], args].concat()).stdin(Stdio::null()).output().expect("idgenctl");
    (output.status.code().expect("no signal"), said(&output))
}

/// Runs it with `--yes`, which must end with that code.
#[track_caller]
fn carries(code: i32, args: &[&str]) -> String {
    let (found, said) = carry(&[args, &["--yes"]].concat());
    assert_eq!(found, code, "{args:?}\n{said}");
    said
}

/// A server with two tables and ids in them, and some ids that are in no row.
fn old_server(ledger: &mut Ledger) -> Server {
    let old = Server::start(&[PRELOAD, IMPATIENT, "wal_level = logical"]);
    old.run(TABLES);
    let mut client = old.connect();
    for insert in [INSERT, INSERT_JS] {
        ledger.add(&[client.value(insert), client.value(insert)]);
    }
    let in_no_row = client.column("SELECT snowflake_next_id(shard) FROM generate_series(0, 99) AS shard");
    ledger.add(&in_no_row);
    old
}

fn new_server(old: &Server) -> Server {
    let new = Server::start_empty(Build::Release, &[PRELOAD, IMPATIENT]);
    old.dump_to(&new);
    new
}

/// Every id of the new server is after all of the old one, in each shard and both layouts.
fn judge(new: &Server, mut ledger: Ledger) {
    let mut client = new.connect();
    let last = ledger.ids().into_iter().max().expect("ids") >> 23;
    for insert in [INSERT, INSERT_JS] {
        ledger.add(&[client.value(insert)]);
    }
    for shards in [
        "SELECT snowflake_next_id(shard) FROM generate_series(0, 8191) AS shard",
        "SELECT snowflake_next_id_js(shard) FROM generate_series(0, 255) AS shard",
    ] {
        let next: Vec<i64> = client.column(shards);
        let js = shards.contains("js");
        assert!(js || next.iter().all(|id| id >> 23 > last), "a shard begins below {last}");
        ledger.add(&next);
    }
}

fn mark(server: &Server) -> Option<i64> {
    server.value("SELECT mark FROM idgen_status")
}

/// A new server whose clock is far behind gets the mark only if its settings allow that, and goes on without repeating an
/// id once it was restarted. Until then the program does not call it carried; after that, any number of times.
#[test]
fn a_clock_that_is_behind_repeats_no_id_after_a_dump() {
    let mut ledger = Ledger::default();
    let old = old_server(&mut ledger);
    let last: i64 = old.value(INSERT);
    ledger.add(&[last]);
    let new = new_server(&old);
    // Otherwise the shards of that layout would be looked at too.
    new.run("ALTER TABLE pages ALTER id DROP DEFAULT");
    new.set_clock(-300.0);
    let (from, to) = (old.target("postgres"), new.target("postgres"));
    let both = ["--from", &from, "--to", &to];

    let said = carries(REFUSED, &both);
    assert!(said.contains("ahead of the clock") && said.contains("idgen.max_ahead"), "{said}");
    assert_eq!(mark(&new), None, "it was refused");

    new.set("idgen.max_ahead", "10min");
    let (code, said) = carry(&both);
    assert!(code == REFUSED && said.contains("--yes"), "{said}");
    assert_eq!(mark(&new), None, "nobody has consented");

    let said = carries(BROKEN_OFF, &both);
    assert!(said.contains("Restart") && !said.contains("carried:"), "{said}");
    assert!(mark(&new) >= mark(&old));
    let early: i64 = new.value("SELECT snowflake_next_id(2)");
    assert!(early < last, "a restart was not needed: {early} {last}");
    carries(BROKEN_OFF, &both);

    new.restart();
    for _ in 0..2 {
        let (code, said) = carry(&both);
        assert!(code == DONE && said.contains("carried:") && said.contains("was there before"), "{said}");
    }
    new.run("ALTER TABLE pages ALTER id SET DEFAULT snowflake_next_id_js(3)");
    judge(&new, ledger);
}

/// Where both clocks are right, no restart is needed: after the command, every shard goes on after all ids, even if the
/// clock is set back then.
#[test]
fn right_clocks_need_no_restart() {
    let mut ledger = Ledger::default();
    let old = old_server(&mut ledger);
    let new = new_server(&old);
    let (from, to) = (old.target("postgres"), new.target("postgres"));
    let said = carries(DONE, &["--from", &from, "--to", &to]);
    assert!(said.contains("the mark of") && said.contains("was raised"), "{said}");
    new.set_clock(-100.0);
    for call in ["snowflake_next_id(77)", "snowflake_next_id_js(78)"] {
        assert_eq!(new.code(&format!("SELECT {call}")), "40001", "{call} goes back with the clock");
    }
    new.set_clock(0.0);
    let json = carries(DONE, &["--json", "--from", &from, "--to", &to]);
    let line = json.lines().find(|line| line.starts_with('{')).expect("JSON");
    assert!(line.contains("\"carried\":true") && line.contains("\"raised\":false"), "{line}");
    judge(&new, ledger);
}

/// By way of pg_upgrade, the mark goes along in a file. A file that is damaged, or that is of another epoch, is refused, and
/// no other file is replaced by it.
#[test]
fn a_file_takes_the_mark_through_pg_upgrade() {
    let mut ledger = Ledger::default();
    let old = old_server(&mut ledger);
    // More than a mark is ahead of the ids: those in rows alone are not enough.
    old.set_clock(30.0);
    ledger.add(&old.connect().column("SELECT snowflake_next_id(shard) FROM generate_series(0, 99) AS shard"));
    let (file, other) = (format!("{}/saved", old.host()), format!("{}/other", old.host()));
    fs::write(&other, "precious").unwrap();
    let from = old.target("postgres");
    carries(REFUSED, &["--server", &from, "--save", &other]);
    assert_eq!(fs::read_to_string(&other).unwrap(), "precious");
    for _ in 0..2 {
        carries(DONE, &["--server", &from, "--save", &file]);
    }
    old.stop("fast");
    let new = old.upgraded_to(Build::Release, &[PRELOAD, IMPATIENT, "idgen.max_ahead = 10min"]);
    new.set_clock(-300.0);
    new.up();
    assert_eq!(mark(&new), None, "pg_upgrade leaves the mark behind");
    let to = new.target("postgres");
    let load = |file: &str, code: i32| carries(code, &["-s", &to, "--load", file]);

    let whole = fs::read_to_string(&file).unwrap();
    let place = whole.find("\"mark\":").unwrap() + 9;
    let mut digits = whole.clone().into_bytes();
    digits[place] = if digits[place] == b'1' { b'2' } else { b'1' };
    for damaged in ["", &whole[..whole.len() / 2], std::str::from_utf8(&digits).unwrap()] {
        fs::write(&other, damaged).unwrap();
        let said = load(&other, REFUSED);
        assert!(said.contains("is not the whole file of a mark"), "{said}");
    }
    assert!(load("/nonexistent", REFUSED).contains("No such file"));
    new.restart_with(&["idgen.epoch = '2024-01-01T00:00:00Z'"]);
    let said = load(&file, REFUSED);
    assert!(
        said.contains("idgen.epoch is 2024-01-01T00:00:00Z on") && said.contains("2025-01-01T00:00:00Z on"),
        "{said}"
    );
    assert_eq!(mark(&new), None);

    let epoch: String = old_epoch(&whole);
    new.restart_with(&[&format!("idgen.epoch = '{epoch}'")]);
    load(&file, BROKEN_OFF);
    new.restart();
    load(&file, DONE);
    judge(&new, ledger);
}

/// The epoch in a file, as the setting takes it.
fn old_epoch(text: &str) -> String {
    let saved: serde_json::Value = serde_json::from_str(text).expect("JSON");
    saved["epoch"].as_str().expect("the epoch").into()
}

/// Where only rows came, by logical replication, the ids in them count, in every database, partition and layout. What is
/// not read is named. An id that cannot have been minted is refused, with its column.
#[test]
fn rows_that_were_replicated_count() {
    let mut ledger = Ledger::default();
    let old = old_server(&mut ledger);
    let new = Server::start_empty(Build::Release, &[PRELOAD, IMPATIENT, "max_replication_slots = 12"]);
    new.run("CREATE EXTENSION idgen");
    new.run(TABLES);
    old.run("CREATE PUBLICATION all_rows FOR ALL TABLES");
    new.run(&format!(
        "CREATE SUBSCRIPTION all_rows CONNECTION '{}' PUBLICATION all_rows",
        old.target("postgres")
    ));
    new.wait_until("SELECT count(*) = 2 FROM rows");
    new.wait_until("SELECT count(*) = 2 FROM pages");
    new.run("DROP SUBSCRIPTION all_rows");
    let last: i64 = old.value("SELECT max(id) FROM rows");

    new.run("CREATE DATABASE second");
    let mut second = new.connect_to("second");
    second.run(
        "CREATE SCHEMA ids; CREATE EXTENSION idgen SCHEMA ids;
         CREATE TABLE parts (id bigint DEFAULT ids.snowflake_next_id(1), n integer) PARTITION BY LIST (n);
         CREATE TABLE part PARTITION OF parts FOR VALUES IN (1);
         CREATE TABLE texts (id text DEFAULT ids.snowflake_text(ids.snowflake_next_id(1)));
         CREATE VIEW shown AS SELECT id FROM parts; ALTER VIEW shown ALTER id SET DEFAULT ids.snowflake_next_id(1)",
    );
    let to = new.target("postgres");
    let said = carries(DONE, &["--to", &to]);
    assert!(said.contains("4 ids in 3 columns"), "{said}");
    for not_read in ["public.texts.id of database second", "public.shown.id of database second"] {
        assert!(said.contains(not_read), "{said}");
    }
    assert!(mark(&new).unwrap() > last >> 23);

    // A year ahead: no server can have minted it.
    second.run(&format!("INSERT INTO parts VALUES ({last} + (31536000000::bigint << 23), 1)"));
    let before = mark(&new);
    let said = carries(REFUSED, &["--to", &to]);
    assert!(said.contains("public.part.id of database second") && said.contains("idgen.epoch"), "{said}");
    assert_eq!(mark(&new), before);
    second.run("DELETE FROM parts");
    second.run("INSERT INTO parts SELECT ((mark + 1500) << 23), 1 FROM ids.idgen_status");
    let greatest: i64 = second.value("SELECT id FROM parts");
    carries(DONE, &["--to", &to]);
    assert!(mark(&new).unwrap() > greatest >> 23, "the greatest id is in a partition of another database");
    judge(&new, ledger);
}

/// Nothing that a tenant has planted is run, whatever it is called; and a tenant who owns the schema of the extension
/// only gets a database that is named as not read.
#[test]
fn nothing_of_a_tenant_is_run() {
    let name = permitted("a\n\\! touch planted;'b$(touch planted) \"host=x");
    let server = Server::start(&[PRELOAD]);
    let quoted = format!("\"{}\"", name.replace('"', "\"\""));
    server.run("CREATE ROLE mallory; CREATE ROLE den");
    server.run(&format!("CREATE DATABASE {quoted} OWNER mallory"));
    let config: postgres::Config = server.target("postgres").parse().unwrap();
    let mut client = config.clone().dbname(&name).connect(postgres::NoTls).unwrap();
    client.run("CREATE SCHEMA ids; GRANT USAGE ON SCHEMA ids TO PUBLIC; CREATE EXTENSION idgen SCHEMA ids");
    let planted = format!(
        "SET ROLE mallory; CREATE SCHEMA {quoted};
         SET search_path = {quoted};
         CREATE FUNCTION strike() RETURNS void LANGUAGE plpgsql AS
             'BEGIN ALTER ROLE mallory SUPERUSER; EXCEPTION WHEN insufficient_privilege THEN END';
         CREATE FUNCTION trap() RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS
             $$BEGIN PERFORM strike(); RETURN true; END$$;
         ALTER FUNCTION trap() SET search_path = {quoted};
         CREATE FUNCTION trap(text, text) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT true';
         CREATE OPERATOR = (LEFTARG = text, RIGHTARG = text, FUNCTION = trap);
         CREATE DOMAIN key AS bigint DEFAULT ids.snowflake_next_id(1) CHECK (trap());
         CREATE TABLE {quoted} ({quoted} key, note text DEFAULT 'x');
         INSERT INTO {quoted} DEFAULT VALUES;
         CREATE INDEX ON {quoted} ((trap()));
         ALTER TABLE {quoted} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
         CREATE POLICY shut ON {quoted} USING (NOT trap());
         CREATE VIEW shown AS SELECT {quoted} AS id FROM {quoted} WHERE trap();
         ALTER VIEW shown ALTER id SET DEFAULT ids.snowflake_next_id(1);
         CREATE VIEW pg_class AS SELECT *, trap() FROM pg_catalog.pg_class;
         CREATE VIEW pg_database AS SELECT *, trap() FROM pg_catalog.pg_database;
         ALTER DATABASE {quoted} SET search_path = {quoted}, ids, pg_catalog; RESET ROLE"
    );
    client.run(&planted);
    let is_super = "SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'";
    assert!(!server.value::<bool>(is_super));
    let to = server.target("postgres");
    let said = carries(DONE, &["--to", &to]);
    assert!(said.contains("1 ids in 1 columns"), "{said}");
    assert!(!said.contains("\n\\!"), "a name has broken a line: {said}");
    assert!(!server.value::<bool>(is_super) && !PathBuf::from("planted").exists(), "a trap was sprung");

    client.run("ALTER SCHEMA ids OWNER TO mallory");
    let said = carries(NOT_ALL_READ, &["--to", &to]);
    assert!(said.contains("mallory"), "{said}");
    assert!(!server.value::<bool>(is_super), "a trap was sprung");
}

/// Ids of databases that are closed are not passed over in silence.
#[test]
fn a_closed_database_is_named() {
    let server = Server::start(&[PRELOAD]);
    server.run("CREATE DATABASE closed TEMPLATE postgres");
    server.run("ALTER DATABASE closed ALLOW_CONNECTIONS false");
    let said = carries(NOT_ALL_READ, &["--to", &server.target("postgres")]);
    assert!(said.contains("closed") && said.contains("accepts no connections"), "{said}");
}

/// Ids for JavaScript that no default mints are carried too: the new server begins with a later second.
#[test]
fn ids_of_no_default_are_carried_in_both_layouts() {
    let old = Server::start(&[PRELOAD]);
    let new = Server::start(&[PRELOAD]);
    let next = "SELECT snowflake_next_id_js(3)";
    // It goes on from what it has minted, not from its start.
    new.value::<i64>(next);
    for _ in 0..3 {
        old.value::<i64>(next);
        let mark = mark(&old).expect("a mark");
        carries(DONE, &["--from", &old.target("postgres"), "--to", &new.target("postgres")]);
        let id: i64 = new.value(next);
        assert!((id >> 20) * 1000 >= mark, "the second of {id} begins before {mark}");
    }
}

/// Starts the program without waiting for it.
fn begin(args: &[&str]) -> Child {
    let mut program = idgenctl(&[&["carry", "--yes"], args].concat());
    program.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("idgenctl")
}

/// Wherever it breaks off, the message says so, and the same command goes on. Ids that the old server mints meanwhile are
/// not passed over in silence.
#[test]
fn it_goes_on_where_it_broke_off() {
    let mut ledger = Ledger::default();
    let old = old_server(&mut ledger);
    let new = new_server(&old);
    let (from, to) = (old.target("postgres"), new.target("postgres"));
    let both = ["--from", from.as_str(), "--to", to.as_str()];
    carries(USAGE, &["--from", &from, "--to", &from]);
    carries(USAGE, &["--from", "nobody", "--to", &to]);

    // Before anything was changed.
    let mut locker = new.connect();
    locker.run("BEGIN; LOCK TABLE rows IN ACCESS EXCLUSIVE MODE");
    let waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'rows'::regclass)";
    let mut killed = begin(&both);
    new.wait_until(waiting);
    kill("KILL", killed.id() as i32).unwrap();
    killed.wait().unwrap();
    assert_eq!(mark(&new), None);

    // The old server mints while the tables are read.
    new.wait_until(&format!("SELECT NOT ({})", &waiting[7..]));
    let late = begin(&both);
    new.wait_until(waiting);
    let before = mark(&old);
    let minted = || {
        ledger.add(&[old.value(INSERT)]);
        mark(&old) > before
    };
    assert!(is_reached(60, minted), "the mark does not move");
    locker.run("COMMIT");
    let output = late.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(BROKEN_OFF), "{}", said(&output));
    assert!(said(&output).contains("has minted meanwhile"), "{}", said(&output));

    // After the mark was raised.
    new.set("idgen.max_ahead", "10min");
    new.set_clock(-30.0);
    for signal in ["KILL", "INT"] {
        let before = mark(&new);
        ledger.add(&[old.value("SELECT snowflake_next_id(1)")]);
        let minted = || {
            ledger.add(&[old.value(INSERT)]);
            mark(&old) > before
        };
        assert!(is_reached(60, minted), "the mark does not move");
        let killed = begin(&both);
        assert!(is_reached(60, || mark(&new) > before), "the mark is not raised");
        kill(signal, killed.id() as i32).unwrap();
        let output = killed.wait_with_output().unwrap();
        if signal == "INT" {
            assert_eq!(output.status.code(), Some(BROKEN_OFF), "{}", said(&output));
            assert!(said(&output).contains("has been raised already"), "{}", said(&output));
        }
        // The server may still be raising the mark for the program that was killed.
        new.wait_until("SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'idgenctl'");
    }
    new.set_clock(0.0);
    carries(DONE, &both);

    old.stop("fast");
    let said = carries(REFUSED, &both);
    assert!(said.contains("cannot be reached"), "{said}");
    judge(&new, ledger);
}
