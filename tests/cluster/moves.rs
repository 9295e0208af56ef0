//! Promises 1 and 2 while idgenctl moves a logical shard to another server, wherever the move breaks off.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use postgres::{Client, NoTls};

use crate::clients::{
    Diary, GONE, Load, MINT, StopAtDrop, TABLES, assert_rows, assert_unique_and_in_order, at_once,
    longest_outage,
};
use crate::fleet::File;
use crate::moment::is_reached;
use crate::process::{assert_says, ends, idgenctl, kill, permitted, refused, run, said, write_program};
use crate::server::relay::Fate::{self, Lost, Passes};
use crate::server::relay::When::{self, After, Before};
use crate::server::relay::{Caught, Relay};
use crate::server::{PRELOAD, Server, Sql, reason};

pub fn move_shard(source: &Server, target: &Server, schema: &str) -> Command {
    moves(schema, &source.target("postgres"), &target.target("postgres"), &[])
}

/// The move of a schema between servers of these connection strings. The role of [`run_as_owner`] copies it.
fn moves(schema: &str, source: &str, target: &str, options: &[&str]) -> Command {
    let owner = if options.contains(&"--owner") { &[][..] } else { &["--owner", "user=app"] };
    idgenctl(&[&["move", schema, "--from", source, "--to", target, "--yes"], owner, options].concat())
}

/// Runs statements as the role that owns the schemas to be moved, and lets it create schemas on the server.
pub fn run_as_owner(server: &Server, sql: &str) {
    server.run(
        "DO $$ BEGIN IF to_regrole('app') IS NULL THEN CREATE ROLE app LOGIN; END IF; END $$;
         GRANT CREATE ON DATABASE postgres TO app",
    );
    server.connect_as("app").run(sql);
}

fn move_with(options: &[&str], source: &Server, target: &Server) -> Command {
    moves("insta5", &source.target("postgres"), &target.target("postgres"), options)
}

fn the_move(source: &Server, target: &Server) -> Command {
    move_with(&[], source, target)
}

const FORGET: &str = "DROP SCHEMA insta5_moved CASCADE; DROP SCHEMA insta5";

const MOVE_IS_OVER: &str = "SELECT NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'insta5_moving')
        AND NOT EXISTS (SELECT FROM pg_db_role_setting WHERE setconfig::text LIKE '%idgenctl%')";

/// The server to which idgenctl sends a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Source,
    Target,
}
use Side::{Source, Target};

/// A moment of a move: before or after a statement that contains a text.
type Moment<'a> = (When, Side, &'a str);

/// The move or the undo is complete, but the marker of the move still exists.
const UNDONE: Moment<'static> = (Before, Source, "ALTER ROLE ALL RESET idgenctl.move_5");
const CLOSING: Moment<'static> = (Before, Source, "LOCK TABLE ONLY");
/// The source is closed: this ends the first transaction of the move.
const CLOSED: Moment<'static> = (After, Source, "COMMIT");
/// The copy on the target is about to be committed, by psql, which continues without idgenctl.
const COPYING: Moment<'static> = (Before, Target, "COMMENT ON SCHEMA \"insta5_moving\"");
/// The ids of the target have been advanced past those of the source.
const ADVANCED: Moment<'static> = (Before, Source, "RENAME TO \"insta5_moved\"");
const OPENING: Moment<'static> = (Before, Target, "ALTER SYSTEM SET idgen.allowed_shards = '5,10-19'");

struct Meddler {
    source: Relay,
    target: Relay,
}

impl Meddler {
    fn between(source: &Server, target: &Server) -> Meddler {
        Meddler { source: Relay::to(source), target: Relay::to(target) }
    }

    fn moves(&self, options: &[&str]) -> Command {
        moves("insta5", &self.source.target(), &self.target.target(), options)
    }

    fn side(&self, side: Side) -> &Relay {
        if side == Source { &self.source } else { &self.target }
    }

    /// Runs a move, acts on it at that moment, and returns its output.
    fn during<F: Into<Fate>>(
        &self,
        mut command: Command,
        (when, side, text): Moment<'_>,
        act: impl FnOnce(&mut Child) -> F,
    ) -> Output {
        let text = text.to_owned();
        let trap = self.side(side).catch(when, move |statement| statement.contains(&text));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let is_caught = until_caught(&[&trap], &mut child);
        if is_caught {
            let _ = trap.fate.send(act(&mut child).into());
        } else {
            let _ = child.kill();
        }
        self.source.let_pass();
        self.target.let_pass();
        let output = child.wait_with_output().unwrap();
        assert!(is_caught, "the move does not get that far: {}", said(&output));
        output
    }

    /// Runs a move that is killed at that moment. Programs that it has started may continue.
    fn kills(&self, command: Command, moment: Moment<'_>) {
        let output = self.during(command, moment, |child| child.kill().unwrap());
        assert_eq!(output.status.signal(), Some(9), "{}", said(&output));
    }

    /// A move of insta5 succeeds although the test acts at that moment.
    fn succeeds<F: Into<Fate>>(
        &self,
        options: &[&str],
        moment: Moment<'_>,
        act: impl FnOnce(&mut Child) -> F,
    ) -> String {
        let output = self.during(self.moves(options), moment, act);
        assert!(output.status.success(), "{}", said(&output));
        said(&output)
    }

    /// A move fails, because of the test's action at that moment or for another reason, and says all of this.
    fn fails<F: Into<Fate>>(
        &self,
        command: Command,
        moment: Moment<'_>,
        act: impl FnOnce(&mut Child) -> F,
        reasons: &[&str],
    ) -> String {
        let output = self.during(command, moment, act);
        assert!(!output.status.success(), "it did not fail: {}", said(&output));
        assert_says(&said(&output), reasons);
        said(&output)
    }

    /// A move of insta5 fails like this, and is undone.
    fn is_undone<F: Into<Fate>>(
        &self,
        moment: Moment<'_>,
        act: impl FnOnce(&mut Child) -> F,
        reasons: &[&str],
    ) -> String {
        let reasons = [reasons, &["undone: the source has the shard"]].concat();
        self.fails(self.moves(&[]), moment, act, &reasons)
    }
}

/// Waits until one of the traps has caught a statement; false if the program ends first.
fn until_caught(traps: &[&Caught], child: &mut Child) -> bool {
    let mut is_caught = false;
    is_reached(600, || {
        is_caught = traps.iter().any(|trap| trap.caught.try_recv().is_ok());
        is_caught || child.try_wait().unwrap().is_some()
    });
    is_caught
}

/// A move fails before it has changed anything, and says all of this.
fn refused_first(command: Command, reasons: &[&str]) {
    let said = refused(command, reasons);
    assert!(!said.contains("closing"), "{said}");
}

/// A source with the schema of shard 5, and a target that may not mint for that shard.
fn two_servers() -> (Server, Server, Meddler) {
    let (source, target) = two_empty_servers();
    run_as_owner(&source, TABLES);
    let meddler = Meddler::between(&source, &target);
    (source, target, meddler)
}

fn two_empty_servers() -> (Server, Server) {
    (a_server("1-9"), a_server("10-19"))
}

/// A server with these shards, on which the owner may create schemas.
fn a_server(list: &str) -> Server {
    let server = Server::start(&[&format!("idgen.allowed_shards = '{list}'")]);
    run_as_owner(&server, "");
    server
}

/// A database, as markers name it.
fn database(server: &Server) -> String {
    server.value("SELECT concat_ws('/', system_identifier, oid) FROM pg_control_system(), pg_database WHERE datname = 'postgres'")
}

/// The schemas of the move, except for an empty one that keeps the name, and the marker; and the server's list.
fn place(server: &Server) -> (String, String) {
    let schemas = "SELECT concat_ws(' ', string_agg(nspname, ' ' ORDER BY nspname),
                       (SELECT 'marker' FROM pg_db_role_setting WHERE setrole = 0 AND setconfig::text LIKE '%idgenctl%'))
                   FROM pg_namespace WHERE nspname LIKE 'insta5%'
                     AND (nspname = 'insta5' AND obj_description(oid, 'pg_namespace') LIKE 'idgenctl move %') IS NOT TRUE";
    (server.value(schemas), server.value("SHOW idgen.allowed_shards"))
}

/// Every row of the schema.
fn rows(server: &Server) -> String {
    server.value("SELECT md5(string_agg(r, ',' ORDER BY r))
         FROM (SELECT u::text FROM insta5.users AS u UNION ALL SELECT p::text FROM insta5.photos AS p) AS all_rows (r)")
}

/// The state that an undone move restores.
fn state(source: &Server, target: &Server) -> ((String, String), (String, String), String) {
    (place(source), place(target), rows(source))
}

/// While clients write, a shard moves: no row is lost, no id is minted twice, and those of the target are greater.
#[test]
fn a_shard_moves_under_load() {
    let source = Server::start(&[PRELOAD]);
    // With its clock two seconds behind, the target must mint greater ids all the same.
    let target = Server::start(&["idgen.allowed_shards = '100-199'", "idgen.max_ahead = 20s"]);
    target.set_clock(-2.0);
    run_as_owner(&source, TABLES);
    run_as_owner(&target, "");

    let mut slow = Diary::default();
    let mut diaries = Load { servers: &[&source, &target], mint: MINT, retried: &GONE }.during(|| {
        // A row that is not committed yet when the move begins: the schema stays open for it.
        let mut client = source.connect();
        let mut transaction = client.transaction().unwrap();
        let row: i64 = transaction.value("INSERT INTO insta5.users (client) VALUES (1) RETURNING id");
        slow.rows.push(row);
        slow.ids.push((row, true));
        thread::scope(|scope| {
            let script = scope.spawn(|| ends(the_move(&source, &target), 0, &[]));
            thread::sleep(Duration::from_secs(2));
            transaction.commit().unwrap();
            println!("{}", script.join().unwrap());
        });
    });
    println!("the longest outage of a client: {:?}", longest_outage(&diaries));
    diaries.push(slow);

    assert_unique_and_in_order(&diaries);
    assert_rows(&target, &diaries);
    let ids = || diaries.iter().flat_map(|diary| &diary.ids);
    let last = ids().filter(|(_, first)| *first).max().unwrap().0;
    let next = ids().filter(|(_, first)| !first).min().unwrap().0;
    assert!(last < next, "{last} of the source, {next} of the target");

    assert_eq!(source.code("SELECT snowflake_next_id(5)"), "55000");
    source.run("SELECT snowflake_next_id(6)");
    target.run("SELECT snowflake_next_id(5)");
    assert_eq!((place(&source).1.as_str(), place(&target).1.as_str()), ("0-4,6-8191", "5,100-199"));
    source.run(FORGET);

    // The shard moves back, and its ids still increase.
    let greatest = ids().max().unwrap().0;
    run(the_move(&target, &source));
    assert!(source.value::<i64>("INSERT INTO insta5.users DEFAULT VALUES RETURNING id") > greatest);
    assert_eq!(place(&source).1, "0-8191");
}

/// A move that fails is undone: the source has the shard, its rows and its clients as before.
#[test]
fn a_move_that_fails_is_undone() {
    let (source, target, _) = two_servers();
    // The target accepts no row of this table, which shows only during the restore.
    let function = "CREATE FUNCTION public.accepted() RETURNS boolean RETURN";
    source.run(&format!("{function} true"));
    let moods =
        "CREATE TABLE insta5.moods (id bigint DEFAULT snowflake_next_id(5), CHECK (public.accepted()));
                 INSERT INTO insta5.moods DEFAULT VALUES;";
    run_as_owner(&source, moods);
    target.run(&format!("{function} true"));
    // What has no rights but those by default would get more there.
    let defaults = "ALTER DEFAULT PRIVILEGES FOR ROLE app";
    target.run(&format!("{defaults} GRANT SELECT ON TABLES TO PUBLIC"));
    refused_first(the_move(&source, &target), &["would have these rights: \"SELECT on insta5."]);
    target.run(&format!("{defaults} REVOKE SELECT ON TABLES FROM PUBLIC"));
    target.run("CREATE OR REPLACE FUNCTION public.accepted() RETURNS boolean RETURN false");
    let diaries = Load { servers: &[&source], mint: MINT, retried: &GONE }.during(|| {
        refused(the_move(&source, &target), &["moods_check", "undone: the source has the shard"]);
    });
    assert_unique_and_in_order(&diaries);
    assert_rows(&source, &diaries);
    assert_eq!(target.code("SELECT snowflake_next_id(5)"), "55000");
    assert_eq!((place(&source).1, place(&target).0), ("1-9".into(), String::new()));
}

/// Promise: no row is written into the old schema after a move, not even through objects created since the checks.
#[test]
fn what_is_tied_after_the_checks_is_found() {
    let (source, target, meddler) = two_servers();
    let view = "CREATE VIEW public.outside AS SELECT * FROM insta5.users";
    meddler.fails(meddler.moves(&[]), CLOSING, |_| source.run(view), &["on view public.outside"]);
    assert_eq!(place(&source).0, "insta5");
    source.run("DROP VIEW public.outside");
    // A table that the move does not know when it asks for its locks.
    let mut writer = source.connect();
    meddler.succeeds(&[], (Before, Source, "SET LOCAL ROLE app;"), |_| {
        let table = "CREATE TABLE insta5.new (id bigint DEFAULT snowflake_next_id(5)); INSERT INTO insta5.new DEFAULT VALUES";
        run_as_owner(&source, table);
        writer.run("BEGIN; INSERT INTO insta5.new DEFAULT VALUES");
        let mut client = source.connect();
        thread::spawn(move || {
            is_reached(5, || client.value("SELECT count(*) > 0 FROM pg_locks WHERE NOT granted"));
            writer.run("COMMIT");
        });
    });
    assert_eq!(target.value::<i64>("SELECT count(*) FROM insta5.new"), 2);
}

/// Obstacles to a move: statements that create one, what the move says, and statements that remove it.
const REFUSED: &str = r#"
    CREATE VIEW v AS TABLE insta5.users => rule _RETURN on view public.v => DROP VIEW v
    ALTER TABLE o ADD FOREIGN KEY (n) REFERENCES insta5.photos => constraint o_n_fkey => ALTER TABLE o DROP CONSTRAINT o_n_fkey
    CREATE POLICY p ON insta5.users TO pg_database_owner => policy p, for pg_database_owner => DROP POLICY p ON insta5.users
    CREATE TABLE insta5.t PARTITION OF p DEFAULT => public.p, the parent of insta5.t => DROP TABLE insta5.t
    CREATE TABLE q PARTITION OF insta5.p DEFAULT => is outside it: 'table public.q => DROP TABLE q
    CREATE TABLE insta5.t (n bigint REFERENCES o ON DELETE CASCADE) => foreign key t_n_fkey on insta5.t => DROP TABLE insta5.t
    CREATE TABLE insta5.t (); ALTER EXTENSION idgen ADD TABLE insta5.t => table insta5.t, tied to extension idgen \
        => ALTER EXTENSION idgen DROP TABLE insta5.t; DROP TABLE insta5.t
    CREATE TYPE insta5.m AS ENUM (); ALTER TABLE o ADD m insta5.m => is outside it: 'table public.o => DROP TYPE insta5.m CASCADE
    CREATE SEQUENCE insta5.s; ALTER TABLE o ALTER n SET DEFAULT nextval('insta5.s') => default value => DROP SEQUENCE insta5.s CASCADE
    ALTER TABLE o ADD u insta5.users => is outside it: 'table public.o => ALTER TABLE o DROP u
    CREATE STATISTICS s ON client, id FROM insta5.users => statistics object public.s => DROP STATISTICS s
    CREATE FUNCTION insta5.f() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'; CREATE EVENT TRIGGER t ON sql_drop \
        EXECUTE FUNCTION insta5.f() => is outside it: 'event trigger t => DROP FUNCTION insta5.f CASCADE
    CREATE FUNCTION insta5.f(insta5.users) RETURNS text LANGUAGE sql AS 'SELECT NULL'; CREATE CAST (insta5.users AS text) \
        WITH FUNCTION insta5.f => cast from insta5.users to text => DROP FUNCTION insta5.f CASCADE
    CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION s WITH (connect = false); ALTER SUBSCRIPTION s ENABLE; \
        INSERT INTO pg_subscription_rel SELECT oid, 'insta5.users'::regclass, 'r' FROM pg_subscription => subscription s \
        => ALTER SUBSCRIPTION s DISABLE; ALTER SUBSCRIPTION s SET (slot_name = NONE); DROP SUBSCRIPTION s
    ALTER DATABASE template1 ALLOW_CONNECTIONS false => database template1 of the source cannot be examined \
        => ALTER DATABASE template1 ALLOW_CONNECTIONS true
    CREATE TABLE t (id bigint DEFAULT snowflake_next_id(5)) => shard 5: public.t.id in database postgres => DROP TABLE t
    ALTER TABLE insta5.photos ALTER id SET DEFAULT snowflake_next_id(6) => mints for more than one shard: {5, 6} \
        => ALTER TABLE insta5.photos ALTER id SET DEFAULT snowflake_next_id(5)
    CREATE ROLE a; CREATE ROLE "c d"; GRANT SELECT ON insta5.users TO a; GRANT ALL ON SCHEMA insta5 TO "c d" \
        => the target lacks roles that the schema names: a, "c d" => DROP OWNED BY a, "c d"
    ALTER TABLE insta5.users ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY => cannot lock them: insta5.users \
        => ALTER TABLE insta5.users NO FORCE ROW LEVEL SECURITY, DISABLE ROW LEVEL SECURITY
    CREATE TYPE m AS ENUM (); CREATE TABLE insta5.t (m m); ALTER TABLE insta5.t OWNER TO app \
        => type "public.m" does not exist => DROP TABLE insta5.t; DROP TYPE m
"#;

/// A move that would fail is refused before anything is changed.
#[test]
fn a_move_is_checked_first() {
    let source = Server::start(&[PRELOAD]);
    source.restart_with(&["max_prepared_transactions = 1", "max_logical_replication_workers = 0"]);
    run_as_owner(&source, TABLES);
    let mut client = source.connect();
    client.run("CREATE DATABASE shop");
    source.connect_to("shop").run("CREATE EXTENSION idgen");
    let check = |target: &Server, why: &str| refused_first(the_move(&source, target), &[why]);
    let another = Server::start(&["idgen.allowed_shards = '1'", "idgen.epoch = '2024-01-01T00:00:00Z'"]);
    run_as_owner(&another, "");
    check(&another, "different values of idgen.epoch");
    let target = Server::start(&[PRELOAD]);
    run_as_owner(&target, "");
    let beside = ["--server", &another.target("postgres")];
    refused_first(move_with(&beside, &source, &target), &["different values of idgen.epoch"]);
    check(&target, "may mint for shard 5");
    target.set("idgen.allowed_shards", "1-4");
    source.set("idgen.allowed_shards", "1-4");
    check(&target, "the source may not mint for shard 5, so there is nothing to move");
    source.set("idgen.allowed_shards", "5");
    check(&target, "an empty list would mean all");
    source.set("idgen.allowed_shards", "3-5, 7");

    client.run("CREATE TABLE public.o (n bigint PRIMARY KEY); CREATE TABLE public.p (n bigint) PARTITION BY RANGE (n);
         CREATE TABLE insta5.p (n bigint) PARTITION BY RANGE (n); ALTER TABLE insta5.p OWNER TO app");
    for line in REFUSED.replace("\\\n", "").lines() {
        println!("{line}");
        let [statements, why, undone] = line.split(" => ").collect::<Vec<_>>()[..] else { continue };
        client.run(statements);
        check(&target, why.trim());
        client.run(undone);
    }
    client.run("DROP TABLE o, p, insta5.p");
    source.connect_to("shop").run("CREATE TABLE t (id bigint DEFAULT snowflake_next_id(5))");
    check(&target, "mint for shard 5: public.t.id in database shop");
    source.connect_to("shop").run("DROP TABLE t");

    // A prepared transaction holds its locks until somebody ends it.
    client.run("BEGIN; INSERT INTO insta5.users DEFAULT VALUES; PREPARE TRANSACTION 'it''s mine'");
    let mut script = the_move(&source, &target);
    script.env("IDGENCTL_CLOSE_TIMEOUT", "1");
    refused(script, &["Transactions in it: prepared: 'it''s mine' of postgres"]);
    client.run("ROLLBACK PREPARED 'it''s mine'");

    // The error names a server that cannot be reached, without its password. The other name is unknown.
    let wrong = format!("{} port=1 password=secret", target.target("postgres"));
    let said = refused(moves("insta5", &source.target("postgres"), &wrong, &[]), &[":1 cannot be reached"]);
    assert!(!said.contains("secret"), "{said}");
    ends(moves("insta5", &source.target("postgres"), "two", &[]), 2, &[]);

    let day = "SET timezone = 'Europe/Vienna'; CREATE TABLE insta5.t (at timestamptz, day date, CHECK (day = at::date));
               INSERT INTO insta5.t VALUES ('2026-01-01 00:30', '2026-01-01')";
    run_as_owner(&source, day);
    // The move now succeeds, even for a name that needs quotes, and whatever settings the role and the database have.
    for server in [&source, &target] {
        server.run(
            "ALTER ROLE postgres SET datestyle = 'SQL, DMY'; ALTER ROLE postgres SET timezone = 'IST-1';
             ALTER ROLE postgres SET idle_session_timeout = '1s'; ALTER ROLE postgres SET client_min_messages = debug1;
             ALTER ROLE postgres SET synchronous_commit = off; ALTER ROLE postgres SET lock_timeout = '1ms';
             ALTER ROLE postgres SET default_transaction_read_only = on; ALTER DATABASE postgres SET role = 'pg_monitor';
             ALTER DATABASE postgres SET timezone = 'Europe/Vienna'",
        );
    }
    client.run(r#"ALTER SCHEMA insta5 RENAME TO "Insta's ""5"" $1""#);
    let name = r#"Insta's "5" $1"#;
    run(move_shard(&source, &target, name));
    let shards = format!("SELECT DISTINCT shard FROM idgen_columns WHERE schema = $${name}$$");
    assert_eq!(target.value::<i32>(&shards), 5);
    assert_eq!((place(&source).1.as_str(), place(&target).1.as_str()), ("3-4,7", "1-5"));
}

/// What a killed run has left at work is not completed while another run undoes the move, whatever the clock says.
#[test]
fn what_a_killed_move_has_left_at_work_is_ended() {
    let (source, target, meddler) = two_servers();
    let before = state(&source, &target);
    // The restore waits, because another transaction uses the name of its schema.
    let mut holder = target.connect();
    holder.run("BEGIN; CREATE SCHEMA insta5_moving");
    meddler.kills(meddler.moves(&[]), (Before, Target, "CREATE SCHEMA insta5_moving"));
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    target.wait_until(&format!("SELECT ({waiting}) = 1"));
    target.set_clock(-300.0);
    run(move_with(&["--undo"], &source, &target));
    target.set_clock(0.0);
    assert_eq!(target.value::<i64>(waiting), 0);
    holder.run("ROLLBACK");
    assert_eq!(state(&source, &target), before);
    run(the_move(&source, &target));
}

/// A move is not finished with another schema of the name, and no hint leads to the loss of the rows.
#[test]
fn a_target_without_the_copy_is_found() {
    let (source, target, meddler) = two_servers();
    meddler.kills(meddler.moves(&[]), OPENING);
    let finish = |texts: &[&str]| refused(move_with(&["--finish"], &source, &target), texts);
    target.run("DROP SCHEMA insta5; ALTER SCHEMA insta5_moving RENAME TO insta5");
    finish(&["the target has schema insta5, but may not mint for its shard"]);
    target.run("DROP SCHEMA insta5 CASCADE");
    finish(&["the target has lost its copy", "of the source may have the only rows: do not drop it"]);
}

/// If the target dies, the source is open again at once, and the program says what the target may still have.
#[test]
fn a_move_to_a_server_that_dies_is_undone() {
    let (source, target, meddler) = two_servers();
    let before = (place(&source), rows(&source));
    let said = meddler.fails(meddler.moves(&[]), COPYING, |_| target.kill(), &[]);
    let (undone, left) =
        (said.find("undone: the source has the shard"), said.find("the target may still have a copy"));
    assert!(undone.is_some() && undone < left, "{said}");
    assert_eq!((place(&source), rows(&source)), before);
    target.up();
    // A backend that outlived its postmaster for a moment may have committed the copy.
    run(move_with(&["--undo"], &source, &target));
    // A crash makes the source forget that it has closed the shard, which its list does not contain.
    let crash = |_: &mut Child| {
        source.crash();
        assert_eq!(source.code("SELECT snowflake_next_id(5)"), "55000");
    };
    meddler.is_undone(CLOSED, crash, &[]);
    assert_eq!((place(&source), rows(&source)), before);
}

/// The lists of standbys change too, and one that is not named is found before anything is changed.
#[test]
fn a_shard_moves_with_standbys_on_both_sides() {
    let (source, target, meddler) = two_servers();
    let (old, new) = (source.standby("old"), target.standby("new"));
    let (old_target, new_target) = (old.target("postgres"), new.target("postgres"));
    let check = |options: &[&str], why: &str| refused_first(move_with(options, &source, &target), &[why]);
    check(&[], "the source has standbys that are not in the fleet: old at a local socket");
    check(&["--server", &old_target], "the target has standbys that are not in the fleet");
    check(&["--server", &old_target, "--server", &old_target], "is given twice");
    // As many standbys receive WAL as are given, but one between them is not given.
    let between = source.standby("between");
    let last = between.standby("last");
    let last_target = last.target("postgres");
    let three = ["--server", &old_target, "--server", &new_target, "--server", &last_target];
    check(&three, "not in the fleet: between at");
    drop((between, last));
    source.wait_until("SELECT count(*) = 1 FROM pg_stat_replication");
    let as_target = moves("insta5", &source.target("postgres"), &new_target, &["--server", &old_target]);
    refused_first(as_target, &["is a standby"]);
    let both = ["--server", &old_target[..], "--server", &new_target];

    // It might be the standby of another server that is not in the fleet.
    old.run("SELECT pg_wal_replay_pause()");
    let undone = ["gave up waiting for standby", "to have the marker of the source", "the source has"];
    refused(move_with(&both, &source, &target), &undone);
    old.run("SELECT pg_wal_replay_resume()");
    meddler.fails(meddler.moves(&both), COPYING, |_| Lost, &["undone: the source has the shard"]);
    assert_eq!(place(&old), place(&source));
    let before = rows(&source);
    // Each keeps its own list otherwise, because a hostile server may claim a standby.
    old.alter("idgen.allowed_shards", "1-8");
    // It began before the move, so its session has the standby's old list, even after the promotion.
    let mut held = old.connect();
    let mints = "DO 'BEGIN WHILE pg_is_in_recovery() LOOP PERFORM pg_sleep(0.1); END LOOP; PERFORM snowflake_next_id(5); END'";
    let held = thread::spawn(move || held.error(mints));
    old.wait_until("SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
    run(move_with(&both, &source, &target));

    [&old, &new].iter().for_each(|standby| standby.wait_until(MOVE_IS_OVER));
    [&source, &target].iter().for_each(|server| server.kill());
    [&old, &new].iter().for_each(|server| server.promote());
    assert_eq!(reason(&held.join().unwrap()), "55000 shard_not_allowed");
    assert_eq!(place(&old), ("insta5_moved".into(), "1-4,6-8".into()));
    assert_eq!(place(&new), ("insta5".into(), "5,10-19".into()));
    assert_eq!(rows(&new), before);
    assert_eq!(old.code("SELECT snowflake_next_id(5)"), "55000");
    new.value::<i64>("SELECT snowflake_next_id(5)");
}

/// A promoted standby makes a cluster of its own, with its own standbys. An opposite move meanwhile is refused.
#[test]
fn a_shard_moves_between_the_halves_of_a_server() {
    let source = a_server("1-9");
    run_as_owner(&source, TABLES);
    let (old, target) = (source.standby("old"), source.standby("half"));
    let new = target.standby("new");
    target.promote();
    new.wait_until("SELECT EXISTS (SELECT FROM pg_stat_wal_receiver WHERE received_tli = 2)");
    target.run("DROP SCHEMA insta5 CASCADE");
    let schema = "CREATE SCHEMA insta6; CREATE TABLE insta6.t (id bigint DEFAULT snowflake_next_id(15))";
    run_as_owner(&target, schema);
    let (old_target, new_target) = (old.target("postgres"), new.target("postgres"));
    let both = ["--server", &old_target[..], "--server", &new_target];
    let set = |list| [&target, &new].iter().for_each(|server| server.set("idgen.allowed_shards", list));
    set("1-19");
    refused_first(move_with(&both, &source, &target), &["the target may mint for shard 5"]);
    set("10-19");
    for (one, other) in [(&both[..2], "the target has standbys"), (&both[2..], "the source has standbys")] {
        refused_first(move_with(one, &source, &target), &[other]);
    }
    let meddler = Meddler::between(&source, &target);
    let opposite = || moves("insta6", &target.target("postgres"), &source.target("postgres"), &both);
    meddler.succeeds(&both, CLOSED, |_| {
        let at_work = "another move, or a change of an extension, is at work on the source";
        refused(opposite(), &[at_work, "idgenctl move 5 of"]);
    });
    [&old, &new].iter().for_each(|standby| standby.wait_until(MOVE_IS_OVER));
    [&source, &target].iter().for_each(|server| server.kill());
    [&old, &new].iter().for_each(|server| server.promote());
    assert_eq!(place(&old), ("insta5_moved".into(), "1-4,6-9".into()));
    assert_eq!(place(&new), ("insta5".into(), "5,10-19".into()));
}

/// If something else manages the configuration, a program given by the user sets the lists, without ALTER SYSTEM.
#[test]
fn a_program_may_set_the_lists() {
    let (source, target, _) = two_servers();
    source.run("SET application_name = 'Patroni heartbeat'; SELECT 1");
    let mut patroni = source.connect();
    patroni.run("SET application_name = 'Patroni heartbeat'");
    refused_first(the_move(&source, &target), &["of the source is set by Patroni"]);

    let program = Path::new(&source.host()).join("set-list");
    let file = |server: &Server| server.value::<String>("SHOW config_file");
    let text = format!(
        "#!/bin/bash -e\nsource={} target={}\necho \"idgen.allowed_shards = '$2'\" >>\"${{!1}}\"\n\
         kill -HUP \"$(head -n1 \"$(dirname \"${{!1}}\")/postmaster.pid\")\"\n",
        file(&source),
        file(&target)
    );
    write_program(&program, &text);
    run(move_with(&["--set-list", program.to_str().unwrap()], &source, &target));
    assert_eq!(place(&source), ("insta5_moved".into(), "1-4,6-9".into()));
    assert_eq!(place(&target), ("insta5".into(), "5,10-19".into()));
    for server in [&source, &target] {
        let set = "SELECT count(*) FROM pg_file_settings WHERE name = 'idgen.allowed_shards' AND sourcefile LIKE '%auto.conf'";
        assert_eq!(server.value::<i64>(set), 0);
    }
}

/// Of two moves at once, each would overwrite the other's change of the lists, so one is refused.
#[test]
fn one_move_at_a_time_on_a_server() {
    let (source, target, meddler) = two_servers();
    let schema = "CREATE SCHEMA insta6; CREATE TABLE insta6.users (id bigint DEFAULT snowflake_next_id(6))";
    run_as_owner(&source, schema);
    meddler.succeeds(&[], CLOSED, |_| {
        let at_work =
            |side: &str| format!("another move, or a change of an extension, is at work on the {side}");
        for how in ["--undo", "--finish"] {
            refused(move_with(&[how], &source, &target), &[&at_work("source")]);
        }
        refused(move_shard(&source, &target, "insta6"), &[&at_work("source"), "idgenctl move 5 of"]);
        let elsewhere = a_server("6");
        run_as_owner(&elsewhere, schema);
        refused(move_shard(&elsewhere, &target, "insta6"), &[&at_work("target"), "idgenctl move 5 of"]);
        // A hostile source might claim a standby that both would change.
        let (third, beside) = (a_server("20"), ["--server", &target.target("postgres")]);
        let other = moves("insta6", &elsewhere.target("postgres"), &third.target("postgres"), &beside);
        refused(other, &["is at work on ", &target.host()]);
    });
    run(move_shard(&source, &target, "insta6"));
    assert_eq!(place(&source).1, "1-4,7-9");
    assert_eq!(place(&target).1, "5-6,10-19");
}

/// A command that is repeated with its servers swapped, or with another shard, drops and opens nothing.
#[test]
fn a_wrong_command_does_no_harm_to_a_move_that_broke_off() {
    let (source, target, meddler) = two_servers();
    let before = rows(&source);
    let breaks_off = |moment| meddler.kills(meddler.moves(&[]), moment);
    let wrong = |how: &str, source: &Server, target: &Server, shard: &str, why: &str| {
        refused(move_with(&[how, "--shard", shard], source, target), &[why]);
    };
    let swapped = |how| wrong(how, &target, &source, "5", "Check that source and target are not swapped.");
    breaks_off(CLOSED);
    swapped("--undo");
    run(move_with(&["--undo"], &source, &target));
    assert_eq!(rows(&source), before);
    breaks_off(ADVANCED);
    swapped("--undo");
    swapped("--finish");
    // A list that contains the shard twice. It is set by ALTER SYSTEM, as the move has set the list before.
    target.alter("idgen.allowed_shards", "1-9, 5");
    wrong("--undo", &source, &target, "5", "the target may mint for shard 5");
    target.alter("idgen.allowed_shards", "10-19");
    run(move_with(&["--undo"], &source, &target));
    assert_eq!((place(&source), rows(&source)), (("insta5".into(), "1-9".into()), before));
    assert_eq!(place(&target).0, "");

    // A schema of this name on the target stays if it is not a copy.
    target.run("CREATE SCHEMA insta5_moving");
    run(move_with(&["--undo"], &source, &target));
    assert_eq!(place(&target).0, "insta5_moving");
}

/// A move is undone after Ctrl-C, which every process of the terminal receives, and after the loss of its lock.
#[test]
fn a_move_that_is_interrupted_is_undone() {
    let (source, target, meddler) = two_servers();
    source.run("COMMENT ON SCHEMA insta5 IS E'of Ada\\nand others'");
    let comment = "SELECT obj_description('insta5'::regnamespace, 'pg_namespace')";
    let before = state(&source, &target);
    for how in ["INT", "HUP", "TERM", "the lock"] {
        let mut script = meddler.moves(&[]);
        // In a terminal, Ctrl-C reaches every process of the group.
        script.process_group(0);
        let act = |child: &mut Child| {
            if how == "the lock" {
                source.run(LOSE_LOCK);
                return Lost;
            }
            kill(how, -(child.id() as i32)).unwrap();
            Passes
        };
        let said = meddler.fails(script, COPYING, act, &["undone: the source has the shard"]);
        assert!(!said.contains("NOT"), "{how}: {said}");
        assert_eq!(state(&source, &target), before);
        assert_eq!(source.value::<String>(comment), "of Ada\nand others");
    }
    run(the_move(&source, &target));
    assert_eq!(target.value::<String>(comment), "of Ada\nand others");

    // Without defaults, only the marker contains the shard.
    source.run(FORGET);
    target.run("ALTER TABLE insta5.users ALTER id DROP DEFAULT");
    target.run("ALTER TABLE insta5.photos ALTER id DROP DEFAULT");
    refused_first(the_move(&target, &source), &["no default in schema insta5 names a shard"]);
    let back = Meddler::between(&target, &source);
    back.kills(back.moves(&["--shard", "5"]), CLOSED);
    refused(move_with(&["--undo", "--shard", "7"], &target, &source), &["more than one shard: {5, 7}"]);
    run(move_with(&["--undo"], &target, &source));
    assert_eq!(target.value::<String>(comment), "of Ada\nand others");
}

/// A new schema of the same name, created in the meantime, is not taken for the schema that moves.
#[test]
fn a_new_schema_of_the_name_is_not_taken_for_the_old_one() {
    let (source, target, meddler) = two_servers();
    let before = state(&source, &target);
    // Default privileges do not apply to the schema that keeps the name.
    source.run("ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO app, PUBLIC");
    let act = |_: &mut Child| {
        assert_eq!(source.connect_as("app").code("CREATE TABLE IF NOT EXISTS insta5.users ()"), "42501");
        assert_eq!(source.code("CREATE SCHEMA insta5"), "42P06", "it would get the rows of late clients");
        assert_eq!(source.code("TABLE insta5.users"), "42P01");
        Lost
    };
    meddler.is_undone(COPYING, act, &[]);
    assert_eq!(state(&source, &target), before);
    // On the target, what is restored finds no objects of others under the name.
    let creates = |_: &mut Child| {
        assert_eq!(target.connect_as("app").code("CREATE SCHEMA insta5"), "42P06");
        assert_eq!(target.connect_as("app").code("CREATE TABLE insta5.t ()"), "42501");
        // A client may know a table by its OID.
        let update = "SET lock_timeout = '1s'; UPDATE insta5_moving.users SET client = 1";
        assert_eq!(source.connect_as("app").code(update), "55P03");
        Lost
    };
    meddler.is_undone(COPYING, creates, &[]);
    assert_eq!(state(&source, &target), before);
    // Before the schema is closed, others may rename it, or create another one with the name that it gets.
    for (make, why, undo) in [
        ("ALTER SCHEMA insta5 RENAME TO other", "insta5", "ALTER SCHEMA other RENAME TO insta5"),
        ("CREATE SCHEMA insta5_moving", "insta5_moving' already exists", "DROP SCHEMA insta5_moving"),
    ] {
        meddler.is_undone(CLOSING, |_| source.run(make), &[why]);
        source.run(undo);
        assert_eq!(state(&source, &target), before);
    }
    // After it is closed, its owner may rename it, and another role may create one with its name.
    let swap = "ALTER SCHEMA insta5_moving RENAME TO x; CREATE SCHEMA insta5_moving";
    let back = "DROP SCHEMA insta5_moving; ALTER SCHEMA x RENAME TO insta5_moving";
    let why = ["NOT undone", "insta5_moving on ", " is not the schema that moves"];
    meddler.fails(meddler.moves(&[]), COPYING, |_| source.run(swap), &why);
    source.run(back);
    run(move_with(&["--undo"], &source, &target));
    let sets = |_: &mut Child| source.alter("idgen.allowed_shards", "1-9");
    meddler.is_undone(COPYING, sets, &["the list of the source has the shard again"]);
    // A run with --finish that fails when the target may already mint says so. An undo can also break off.
    meddler.kills(meddler.moves(&[]), OPENING);
    let reasons = ["NOT undone, because the target may already mint"];
    meddler.fails(meddler.moves(&["--finish"]), (Before, Target, "snowflake_advance"), |_| Lost, &reasons);
    run_as_owner(&target, "COMMENT ON SCHEMA insta5_moving IS 'of its owner'");
    target.run(swap);
    meddler.fails(meddler.moves(&["--finish"]), OPENING, |_| (), &why);
    target.run(back);
    run(move_with(&["--finish"], &source, &target));
    source.run(FORGET);
    let back = Meddler::between(&target, &source);
    back.kills(back.moves(&[]), COPYING);
    back.kills(back.moves(&["--undo"]), (Before, Source, "ALTER SYSTEM SET"));
    run(move_with(&["--undo"], &target, &source));
    assert_eq!((place(&target), rows(&target)), (("insta5".into(), "5,10-19".into()), before.2));
}

/// Functions that try every way to make their owner a superuser, also when a query is planned.
const EVIL: &str = "
    CREATE SCHEMA mallory;
    CREATE FUNCTION mallory.take() RETURNS integer LANGUAGE plpgsql AS $$
    BEGIN
        BEGIN ALTER ROLE mallory SUPERUSER; EXCEPTION WHEN OTHERS THEN END;
        BEGIN RESET SESSION AUTHORIZATION; ALTER ROLE mallory SUPERUSER; EXCEPTION WHEN OTHERS THEN END;
        BEGIN SET ROLE postgres; ALTER ROLE mallory SUPERUSER; EXCEPTION WHEN OTHERS THEN END;
        -- In a read-only transaction, as pg_dump's is.
        BEGIN EXECUTE format('COPY (SELECT %L) TO PROGRAM %L', 'ALTER ROLE mallory SUPERUSER',
            format('psql -X -h %s -U postgres postgres', current_setting('unix_socket_directories')));
        EXCEPTION WHEN OTHERS THEN END;
        RETURN 1;
    END $$;
    CREATE FUNCTION mallory.evil(bigint) RETURNS integer IMMUTABLE LANGUAGE plpgsql AS $$
    BEGIN RETURN mallory.take(); END $$;";

/// Servers with the tenant mallory, who may create a schema on both.
fn servers_with_a_tenant() -> (Server, Server) {
    let (source, target) = two_empty_servers();
    for server in [&source, &target] {
        server.run("CREATE ROLE mallory LOGIN; GRANT CREATE ON DATABASE postgres TO mallory");
        server.connect_as("mallory").run(EVIL);
    }
    (source, target)
}

/// Moving a schema makes its owner no superuser: the code of the owner runs only with the owner's rights.
#[test]
fn the_schema_of_a_tenant_moves_without_a_superusers_rights() {
    let (source, target) = servers_with_a_tenant();
    let mut mallory = source.connect_as("mallory");
    mallory.run(TABLES);
    mallory.run("CREATE DOMAIN insta5.evil AS text CHECK (VALUE <> 'no' AND mallory.take() = 1);
             CREATE TABLE insta5.evils (
                 id bigint DEFAULT snowflake_next_id(5) + cardinality('{x}'::insta5.evil[]) * 0,
                 evil insta5.evil, CHECK (mallory.take() = 1), made integer GENERATED ALWAYS AS (mallory.evil(id)) STORED);
             INSERT INTO insta5.evils (evil) VALUES ('yes');
             CREATE INDEX ON insta5.evils ((mallory.evil(7))) WHERE mallory.evil(8) = 1;
             CREATE INDEX ON insta5.users ((mallory.evil(7)));
             CREATE STATISTICS insta5.evil ON (mallory.evil(id)), (mallory.evil(7)) FROM insta5.users;
             CREATE TABLE insta5.parts (id bigint DEFAULT snowflake_next_id(5)) PARTITION BY RANGE ((id + mallory.evil(7)));
             CREATE TABLE insta5.part PARTITION OF insta5.parts DEFAULT;
             INSERT INTO insta5.parts DEFAULT VALUES;
             CREATE VIEW insta5.seen AS SELECT mallory.take()::bigint AS id;
             ALTER VIEW insta5.seen ALTER id SET DEFAULT snowflake_next_id(5);
             CREATE MATERIALIZED VIEW insta5.kept AS SELECT mallory.take() AS n;
             CREATE FUNCTION insta5.trigger() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN PERFORM mallory.take(); RETURN NEW; END $$;
             CREATE TRIGGER evil BEFORE INSERT ON insta5.users FOR EACH ROW EXECUTE FUNCTION insta5.trigger();
             ALTER TABLE insta5.users ENABLE ALWAYS TRIGGER evil");
    refused(the_move(&source, &target), &["app must not restore", "of mallory", "Give --owner"]);
    for owner in ["user=postgres", "user=mallory dbname=template1"] {
        let why = ["the database on the source as an ordinary role"];
        let said = refused(move_with(&["--owner", owner], &source, &target), &why);
        assert!(!said.contains("rehearsing"), "{said}");
    }
    // pg_dump reads a sequence by its name, and the planner would evaluate the index of a table that has taken the place.
    mallory.run("CREATE SCHEMA insta6; CREATE TABLE insta6.t (id bigint DEFAULT snowflake_next_id(6)); CREATE SEQUENCE insta6.s");
    let (meddler, as_mallory) = (Meddler::between(&source, &target), ["--owner", "user=mallory"]);
    let insta6 = moves("insta6", &meddler.source.target(), &meddler.target.target(), &as_mallory);
    meddler.during(insta6, (Before, Source, "last_value, is_called"), |_| {
        mallory.run(
            "DROP SEQUENCE insta6_moving.s; CREATE TABLE insta6_moving.s (last_value bigint, is_called boolean);
             CREATE INDEX ON insta6_moving.s ((mallory.evil(7)))",
        );
    });
    ends(move_with(&as_mallory, &source, &target), 0, &["copied by mallory, whose functions"]);
    [&source, &target].iter().for_each(|server| server.assert_ordinary("mallory"));
    // A superuser who read these tables would run the functions in their indexes.
    assert_eq!(target.connect_as("mallory").value::<i64>("SELECT count(*) FROM insta5.photos"), 10000);
    assert_eq!(mallory.value::<i64>("SELECT count(*) FROM insta5_moved.photos"), 10000);
    let owner = "SELECT tableowner::text FROM pg_tables WHERE tablename = 'users'";
    assert_eq!(target.value::<String>(owner), "mallory");
    target.value::<i64>("SELECT snowflake_next_id(5)");
}

/// Promise: no superuser restores anything, and a restore runs nothing that a third role has written or replaced.
#[test]
fn an_owner_restores_nothing_of_others() {
    let (source, target) = servers_with_a_tenant();
    run_as_owner(&source, TABLES);
    for server in [&source, &target] {
        server.run(
            "CREATE SCHEMA shared; GRANT USAGE ON SCHEMA shared TO PUBLIC;
             CREATE FUNCTION shared.accepted(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
        );
    }
    let mut owner = source.connect_as("app");
    owner.run("GRANT ALL ON SCHEMA insta5 TO mallory; GRANT ALL ON ALL TABLES IN SCHEMA insta5 TO mallory");
    let (mut mallory, mut there) = (source.connect_as("mallory"), target.connect_as("mallory"));
    let check = |why: &str| {
        let said = refused(the_move(&source, &target), &[why]);
        assert!(!said.contains("rehearsing"), "{said}");
    };
    mallory.run(
        "CREATE FUNCTION insta5.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
         CREATE TRIGGER t BEFORE INSERT ON insta5.users FOR EACH ROW EXECUTE FUNCTION insta5.f()",
    );
    check("function insta5.f() of mallory");
    mallory.run("DROP FUNCTION insta5.f() CASCADE");
    source.run("ALTER SCHEMA insta5 OWNER TO postgres; CREATE VIEW insta5.v AS SELECT");
    check("schema insta5 of postgres");
    source.run("ALTER SCHEMA insta5 OWNER TO app");
    check("view insta5.v of postgres");
    source.run("DROP VIEW insta5.v");
    // The owner's constraint calls a function in a schema that another role could rename once pg_dump has begun.
    owner.run("CREATE TABLE insta5.t (n integer CHECK (shared.accepted(n)))");
    source.run("ALTER SCHEMA shared OWNER TO mallory");
    check("schema shared of mallory");
    source.run("ALTER SCHEMA shared OWNER TO postgres; ALTER FUNCTION shared.accepted OWNER TO pg_monitor");
    check("function shared.accepted(bigint) of pg_monitor");
    source.run("ALTER FUNCTION shared.accepted OWNER TO postgres");
    // On the target, the name leads to something else, or could do so once the restore has begun.
    target.run("GRANT ALL ON SCHEMA shared TO mallory");
    check("schema shared, in which mallory may create objects");
    there.run("CREATE FUNCTION shared.other(integer) RETURNS boolean RETURN mallory.take() = 1");
    // A role that does not inherit has to say SET ROLE before that.
    target.run(
        "REVOKE CREATE ON SCHEMA shared FROM mallory; CREATE ROLE crowd; ALTER ROLE mallory NOINHERIT; GRANT crowd TO mallory, app;
         GRANT CREATE ON SCHEMA shared TO crowd",
    );
    check("schema shared, in which mallory may create objects");
    // The owner is its member, and has its rights, but it lacks the owner's.
    target.run("REVOKE crowd FROM mallory");
    check("schema shared, in which crowd may create objects");
    target.run("DROP OWNED BY crowd; DROP ROLE crowd; ALTER ROLE mallory INHERIT; ALTER SCHEMA shared OWNER TO mallory");
    there.run("REVOKE CREATE ON SCHEMA shared FROM mallory");
    check("schema shared, in which mallory may create objects");
    target.run("ALTER SCHEMA shared OWNER TO postgres");
    // A function of the owner could find it by its path.
    check("shared.other of mallory");
    there.run("DROP FUNCTION shared.other(integer); CREATE EXTENSION intarray SCHEMA pg_catalog");
    check("extension intarray of mallory");
    there.run("DROP EXTENSION intarray; CREATE EXTENSION hstore SCHEMA shared");
    check("extension hstore of mallory");
    there.run("DROP EXTENSION hstore");
    target.run("CREATE FUNCTION pg_catalog.f() RETURNS integer RETURN 1; ALTER FUNCTION pg_catalog.f OWNER TO mallory");
    check("objects of others in pg_catalog");
    there.run("DROP FUNCTION pg_catalog.f()");
    target.run("ALTER SCHEMA shared RENAME TO elsewhere");
    check("schema shared, which the target lacks");
    target.run("ALTER SCHEMA elsewhere RENAME TO shared");
    for server in [&source, &target] {
        server.run("CREATE FOREIGN DATA WRAPPER w; CREATE SERVER archive FOREIGN DATA WRAPPER w; GRANT ALL ON FOREIGN SERVER archive TO app");
    }
    owner.run("CREATE FOREIGN TABLE insta5.old (n integer) SERVER archive");
    target.run("ALTER FOREIGN DATA WRAPPER w OWNER TO postgres; GRANT ALL ON FOREIGN DATA WRAPPER w TO mallory; DROP SERVER archive");
    check("server archive, which the target lacks");
    there.run("CREATE SERVER archive FOREIGN DATA WRAPPER w");
    check("archive of mallory");
    owner.run("DROP FOREIGN TABLE insta5.old");
    // After the checks, while the schema is closed.
    let meddler = Meddler::between(&source, &target);
    let table = "CREATE TABLE insta5_moving.t2 (n integer CHECK (mallory.take() = 1))";
    meddler.is_undone(CLOSED, |_| mallory.run(table), &["table insta5_moving.t2 of mallory"]);
    mallory.run("DROP TABLE insta5.t2");
    // If a view of a catalog takes the place of a table, the catalog is not locked.
    let view = "DROP TABLE insta5.t; CREATE VIEW insta5.t AS SELECT oid FROM pg_authid";
    meddler.is_undone((After, Source, "format('SET LOCAL ROLE"), |_| run_as_owner(&source, view), &[]);
    run_as_owner(&source, "DROP VIEW insta5.t");
    run(the_move(&source, &target));
    [&source, &target].iter().for_each(|server| server.assert_ordinary("mallory"));
}

/// Names may contain any character, and are taken neither for SQL nor for commands of psql.
#[test]
fn names_are_data() {
    let (source, target, _) = two_servers();
    for server in [&source, &target] {
        server.run(
            "CREATE ROLE mallory; CREATE TABLE public.\"r\n\t'\"\"\\\" (\"k\n\t'\"\"\\\" text PRIMARY KEY);
                 GRANT ALL ON public.\"r\n\t'\"\"\\\" TO app;
                 INSERT INTO public.\"r\n\t'\"\"\\\" VALUES (E'a\\tb\\n'), ('')",
        );
    }
    run_as_owner(
        &source,
        "CREATE TABLE insta5.\"t\n\t'\"\"\\\" (
                 \"id\n\t'\"\"\\\" bigint DEFAULT snowflake_next_id(5), \"c\n\t'\"\"\\\" text,
                 CONSTRAINT \"x\t1 LIMIT 0; ALTER ROLE mallory SUPERUSER --\" FOREIGN KEY (\"c\n\t'\"\"\\\")
                     REFERENCES public.\"r\n\t'\"\"\\\");
             INSERT INTO insta5.\"t\n\t'\"\"\\\" (\"c\n\t'\"\"\\\") VALUES (E'a\\tb\\n'), (NULL);
             CREATE INDEX \"i\n\t'\"\"\\\" ON insta5.\"t\n\t'\"\"\\\" (\"c\n\t'\"\"\\\")",
    );
    let file = format!("{}/pwned", source.host());
    for name in [&format!("x\n\\! touch {file}\n"), "host=/nowhere dbname=postgres", "it's \\ \"\"5\"\""] {
        source.run(&format!("CREATE DATABASE \"{}\"", permitted(name)));
    }
    run(the_move(&source, &target));
    assert!(!Path::new(&file).exists(), "a shell command was run");
    [&source, &target].iter().for_each(|server| server.assert_ordinary("mallory"));
    assert_eq!(target.value::<i64>("SELECT count(*) FROM insta5.\"t\n\t'\"\"\\\""), 2);
}

/// A move is refused first if commits on the target wait for a standby, or clients would wait for its clock.
#[test]
fn a_target_that_would_keep_clients_waiting_is_refused() {
    let (source, target, meddler) = two_servers();
    let check = |why: &str| refused_first(the_move(&source, &target), &[why]);
    // Clients of the target would queue behind a rehearsal that waits.
    let table = "CREATE TABLE o (n bigint PRIMARY KEY); GRANT ALL ON o TO app";
    [&source, &target].iter().for_each(|server| server.run(table));
    run_as_owner(&source, "CREATE TABLE insta5.o (n bigint REFERENCES public.o)");
    let mut holder = target.connect();
    holder.run("BEGIN; LOCK TABLE o");
    check("CONSTRAINT o_n_fkey FOREIG\", waits for pid");
    holder.run("ROLLBACK");
    let waits = ["has to wait for a lock", "undone: the source has the shard"];
    meddler.fails(meddler.moves(&[]), CLOSED, |_| holder.run("BEGIN; LOCK TABLE o"), &waits);
    holder.run("ROLLBACK");
    target.set_clock(-10.0);
    check("(22023)");
    target.set_clock(0.0);
    let standby = target.synchronous_standby("new");
    standby.stop("immediate");
    check("waits for synchronous standbys (synchronous_standby_names = 'new')");
    assert_eq!(place(&source), ("insta5".into(), "1-9".into()));
    standby.up();
    target.until_followed(&["new"]);
    run(move_with(&["--server", &standby.target("postgres")], &source, &target));
}

/// Promise: an undo gives no standby the shard, nor the source, unless the target shows that it has not been opened. What a
/// failover has lost can be put right as the program says.
#[test]
fn an_undo_believes_the_target() {
    let (source, target, meddler) = two_servers();
    let (old, new) = (source.standby("old"), target.standby("new"));
    let both = ["--server", &old.target("postgres"), "--server", &new.target("postgres")];
    source.until_followed(&["old"]);
    target.until_followed(&["new"]);
    let undo = || move_with(&[&["--undo"], &both[..]].concat(), &source, &target);
    meddler.kills(meddler.moves(&both), ADVANCED);
    new.alter("idgen.allowed_shards", "5,10-19");
    refused(undo(), &["standby ", " may mint for shard 5"]);
    new.alter("idgen.allowed_shards", "10-19");
    new.stop("fast");
    refused(undo(), &["cannot be reached"]);
    new.up();
    target.run("ALTER ROLE ALL RESET idgenctl.move_5");
    let advised = |command, why: &str, on: &str| -> String {
        refused(command, &[why]).split_once(on).unwrap().1.lines().next().unwrap().into()
    };
    target.run(&advised(undo(), "so it may have ended there", "run on the target: "));
    ends(undo(), 0, &["may lack it, and keeps its list"]);
    assert_eq!((place(&source).1, place(&old).1), ("1-9".into(), "1-4,6-9".into()));
    old.alter("idgen.allowed_shards", "1-9");
    meddler.succeeds(&both, ADVANCED, |_| {
        target.until_replayed_by(&new);
        [&old, &new].iter().for_each(|standby| {
            standby.alter("primary_conninfo", "");
            standby.wait_until("SELECT count(*) = 0 FROM pg_stat_wal_receiver");
        });
    });
    target.kill();
    new.promote();
    source.run(&advised(the_move(&source, &new), "the target has lost the end of the move", "--finish: "));
    run(move_with(&["--finish"], &source, &new));
    source.kill();
    old.promote();
    old.run(&advised(moves("insta5", both[1], both[3], &["--undo"]), " may mint", "run on the source: "));
    assert_eq!((place(&old), place(&new).0), (("insta5_moved".into(), "1-4,6-9".into()), "insta5".into()));
}

/// Any role can give its session the name that a move or Patroni uses. Such sessions do not stop a move.
#[test]
fn names_of_strangers_sessions_do_not_matter() {
    let (source, target, meddler) = two_servers();
    let name = format!("idgenctl move 5 of {}", database(&source));
    let named = |server: &Server, name: &str| {
        let connection = server.target_as("mallory");
        Client::connect(&format!("{connection} application_name='{name}'"), NoTls).unwrap()
    };
    let stop = AtomicBool::new(false);
    [&source, &target].iter().for_each(|server| server.run("CREATE ROLE mallory LOGIN"));
    // A session left by a killed move of another shard could write the previous list.
    let left = [&source, &target].map(|server| {
        let mut client = server.connect();
        client.run("SET application_name = 'idgenctl move 6 of 1/1'");
        client
    });
    // The move neither waits for these sessions nor ends them.
    let mut held = [&source, &target].map(|server| named(server, &name));
    thread::scope(|scope| {
        for server in [&source, &target] {
            let (stop, named, name) = (&stop, &named, &name);
            scope.spawn(move || {
                let _held = ["idgenctl move 6 of 1/1", "Patroni heartbeat"].map(|name| named(server, name));
                while !stop.load(Relaxed) {
                    let mut client = named(server, name);
                    while !stop.load(Relaxed) && client.batch_execute("SELECT 1").is_ok() {
                        thread::sleep(Duration::from_millis(10));
                    }
                }
            });
        }
        let _end = StopAtDrop(&stop);
        meddler.kills(meddler.moves(&[]), CLOSED);
        run(move_with(&["--undo"], &source, &target));
        meddler.kills(meddler.moves(&[]), OPENING);
        run(move_with(&["--finish"], &source, &target));
    });
    held.iter_mut().for_each(|client| client.run("SELECT"));
    assert!(left.into_iter().all(|mut client| client.batch_execute("SELECT").is_err()));
    assert_eq!(place(&target).0, "insta5");
}

/// Promise: a run that has had to wait for its turn does not rely on what it saw before.
#[test]
fn a_run_does_not_go_on_from_what_another_has_changed() {
    let (source, target, meddler) = two_servers();
    let before = state(&source, &target);
    meddler.kills(meddler.moves(&[]), ADVANCED);
    let mut second = None;
    let act = |_: &mut Child| {
        let mut command = move_with(&["--finish"], &source, &target);
        second = Some(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        source.wait_until("SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 3592 AND NOT granted)"); // pg_shseclabel
    };
    meddler.succeeds(&["--undo"], UNDONE, act);
    let output = second.unwrap().wait_with_output().unwrap();
    assert!(!output.status.success());
    assert_says(&said(&output), &["another run has changed"]);
    assert_eq!(state(&source, &target), before);
    run(the_move(&source, &target));
}

/// Ends the sessions that hold the locks of moves.
const LOSE_LOCK: &str = "SELECT pg_terminate_backend(pid) FROM pg_locks
                         WHERE relation = 'pg_shseclabel'::regclass AND mode = 'ShareUpdateExclusiveLock'";

/// Promise: a run that sleeps while others finish its move and move the shard back changes nothing afterwards.
#[test]
fn a_run_whose_turn_is_over_changes_nothing() {
    let (source, target, meddler) = two_servers();
    let before = state(&source, &target);
    for moment in [
        (Before, Source, "ALTER ROLE ALL SET idgenctl.move_5"),
        ADVANCED,
        OPENING,
        (Before, Target, "pg_temp.snowflake_reopen_shard"),
        UNDONE,
    ] {
        let act = |sleeper: &mut Child| {
            kill("STOP", sleeper.id() as i32).unwrap();
            [&source, &target].iter().for_each(|server| server.run(LOSE_LOCK));
            let (finish, _) = (["--finish"], move_with(&["--undo"], &source, &target).output());
            run(move_with(if place(&source).0 == "insta5" { &[] } else { &finish }, &source, &target));
            source.run(FORGET);
            run(the_move(&target, &source));
            target.run(FORGET);
            kill("CONT", sleeper.id() as i32).unwrap();
        };
        let said = meddler.fails(meddler.moves(&[]), moment, act, &[]);
        assert!(!said.contains("undone: the source has"), "{moment:?}: {said}");
        assert_eq!(state(&source, &target), before, "{moment:?}: {said}");
        assert_eq!(target.code("SELECT snowflake_next_id(5)"), "55000");
        source.value::<i64>("SELECT snowflake_next_id(5)");
    }
}

/// Whether a statement changes something. Between two such statements, the state of the servers stays the same.
fn is_step(statement: &str) -> bool {
    let calls = ["pg_temp.snowflake", "pg_reload_conf", "pg_terminate_backend", "pg_export_snapshot"];
    let reads = ["SELECT", "SHOW", "WITH", "SET", "DECLARE", "FETCH", "LOAD", "COPY", "ROLLBACK", "BEGIN"];
    calls.iter().any(|call| statement.contains(call))
        || !reads.iter().any(|read| statement.trim_start().starts_with(read))
}

/// A move may be killed while any of its changes is on its way to a server, from the closing of the schema on. An undo
/// or, by turns, a finish then restores order: nothing is lost, and one server mints.
#[test]
fn a_move_may_be_killed_at_each_statement() {
    const AT_ONCE: usize = 4;
    let killed = |first| killed_at_each((first..).step_by(AT_ONCE));
    let steps: usize = at_once(0..AT_ONCE, killed).into_iter().sum();
    assert!(steps > 15, "{steps} statements");
}

/// Kills a move at each of these steps, and returns how many of them a move has.
fn killed_at_each(steps: impl Iterator<Item = usize>) -> usize {
    let (one, two, _) = two_servers();
    one.run("DELETE FROM insta5.photos; DELETE FROM insta5.users WHERE id > (SELECT min(id) + 5 FROM insta5.users)");
    let (mut source, mut target) = (&one, &two);
    for (count, step) in steps.enumerate() {
        let meddler = Meddler::between(source, target);
        let before = state(source, target);
        let (passed, closes) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let is_it = || {
            let (passed, closes) = (passed.clone(), closes.clone());
            move |statement: &str| {
                if statement.starts_with("ALTER ROLE ALL SET idgenctl") {
                    closes.store(true, Relaxed);
                }
                closes.load(Relaxed) && is_step(statement) && passed.fetch_add(1, Relaxed) == step
            }
        };
        let of_source = meddler.source.catch(Before, is_it());
        let of_target = meddler.target.catch(Before, is_it());
        let mut command = meddler.moves(&[]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let has_caught = until_caught(&[&of_source, &of_target], &mut child);
        let _ = child.kill();
        let _ = (of_source.fate.send(Passes), of_target.fate.send(Passes));
        let status = child.wait().unwrap();
        if !has_caught {
            assert!(status.success(), "{status}");
            return count;
        }
        let options = if count % 2 == 0 { ["--undo", "--finish"] } else { ["--finish", "--undo"] };
        let resume = |how: &str| move_with(&[how], source, target).output().unwrap();
        if place(source).0.contains("marker") {
            // A server runs a statement that has arrived although the move was killed, also the last one.
            let said = refused(the_move(source, target), &[]);
            assert!(said.contains("command with --") || said.contains("the target has insta5\n"), "{said}");
        }
        let mut outputs = vec![resume(options[0])];
        if !outputs[0].status.success() {
            outputs.push(resume(options[1]));
        }
        let texts = || outputs.iter().map(said).collect::<Vec<_>>().join("\n--\n");
        assert!(outputs.last().unwrap().status.success(), "step {step}: {}", texts());
        if place(source).0 == "insta5" {
            assert_eq!(state(source, target), before, "step {step}: {}", texts());
            source.value::<i64>("SELECT snowflake_next_id(5)");
            continue;
        }
        assert_eq!(rows(target), before.2, "step {step}");
        assert_eq!((place(source).0, place(target).0), ("insta5_moved".into(), "insta5".into()));
        assert_eq!(source.code("SELECT snowflake_next_id(5)"), "55000");
        let greatest: i64 = target.value("SELECT max(id) FROM insta5.users");
        assert!(greatest < target.value("SELECT snowflake_next_id(5)"));
        source.run(FORGET);
        (source, target) = (target, source);
    }
    unreachable!("there is no end of steps")
}

/// If a commit waits for a standby in the middle of a move, the move names it, and continues when it is back.
#[test]
fn a_move_says_which_standby_it_waits_for() {
    let (_source, target, meddler) = two_servers();
    let standby = target.synchronous_standby("new");
    target.until_followed(&["new"]);
    let options = ["--server", &standby.target("postgres")];
    let text = thread::scope(|scope| {
        meddler.succeeds(&options, COPYING, |_| {
            standby.stop("fast");
            scope.spawn(|| {
                target.wait_until("SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
                loop {
                    let asks = meddler.target.catch(After, |text| text.contains("pg_blocking_pids"));
                    if asks.caught.recv_timeout(Duration::from_secs(10)).is_ok() {
                        let _ = asks.fate.send(Passes);
                        break;
                    }
                }
                standby.up();
            });
        })
    });
    assert_says(&text, &["waits for synchronous standbys (synchronous_standby_names = 'new')"]);
    assert_eq!(place(&target).0, "insta5");
    // The restart of the standby has ended the session of the move there.
    assert_eq!(place(&standby).1, place(&target).1);
}

/// The move waits for the target's clock to pass the source's ids while clients still work, and those of all servers: a
/// hostile source may hide that it got the shard from one of them.
#[test]
fn a_move_waits_for_the_clock_before_it_closes_the_schema() {
    let source = Server::start(&["idgen.allowed_shards = '1-9'", "idgen.max_ahead = 21s"]);
    let before = Server::start(&["idgen.allowed_shards = '1-9'", "idgen.max_ahead = 21s"]);
    let target = Server::start(&["idgen.allowed_shards = '10-19'", "idgen.max_ahead = 1s"]);
    target.set_clock(-2.0);
    run_as_owner(&source, TABLES);
    run_as_owner(&target, "");
    let ahead = "SELECT snowflake_advance(5, snowflake_max_id(clock_timestamp() + interval '12 s'))";
    source.run(ahead);
    source.run("INSERT INTO insta5.users DEFAULT VALUES");
    before.run(&ahead.replace("12 s", "20 s"));
    let last: i64 = before.value("SELECT snowflake_next_id(5)");
    before.alter("idgen.allowed_shards", "1-4");
    let said = ends(move_with(&["--server", &before.target("postgres")], &source, &target), 0, &[]);
    let waits = said.find("waiting for the clock of the target to pass the ids of the source");
    assert!(waits.is_some() && waits < said.find("closing the schema"), "{said}");
    assert!(target.value::<bool>("SELECT max(id) < snowflake_next_id(5) FROM insta5.users"));
    assert!(last < target.value("SELECT snowflake_next_id(5)"));
}

/// The servers come from the fleet file, and no other may mint. Without consent, a move only shows what it would do.
#[test]
fn a_move_finds_its_servers_in_the_fleet() {
    let (source, target, _) = two_servers();
    let (old, other) = (source.standby("old"), a_server("20"));
    let before = state(&source, &target);
    let file = File::of_servers(&[("one", &source), ("one-b", &old), ("two", &target), ("three", &other)]);
    let moves = |options: &[&str]| {
        file.command(&[&["move", "insta5", "--owner", "user=app", "--from", "one", "--to"], options].concat())
    };
    let plan = [
        "nothing is changed without consent",
        "the source: one, database postgres, standbys: one-b, idgen.allowed_shards: 1-9 -> 1-4,6-9",
        "the target: two, database postgres, standbys: none, idgen.allowed_shards: 10-19 -> 5,10-19",
    ];
    refused(moves(&["two"]), &plan);
    refused_first(moves(&["one-b", "--yes"]), &["one-b is a standby", "Name its primary"]);
    ends(moves(&["four", "--yes"]), 2, &[]);
    other.alter("idgen.allowed_shards", "5,20");
    refused_first(moves(&["two", "--yes"]), &["other servers may mint for shard 5: three"]);
    other.alter("idgen.allowed_shards", "20");
    other.run("CREATE SCHEMA idgen_portable CREATE SEQUENCE shard_5");
    other.run("CREATE FUNCTION snowflake_next_id_() RETURNS void LANGUAGE sql AS ''");
    refused_first(moves(&["two", "--yes"]), &["the portable edition in database postgres of three"]);
    other.run("DROP SCHEMA idgen_portable CASCADE");
    // A hostile source might begin two moves, and show no marker of either.
    let (from, set) = (database(&source), "ALTER ROLE ALL SET idgenctl.move_5 =");
    for (server, name) in [(&other, "three"), (&target, "two")] {
        let marker = r#""to":"1/1","owner":"app","opened":false,"on_target":true,"token":1"#;
        server.run(&format!(r#"{set} '{{"schema":"insta5","from":"{from}",{marker}}}'"#));
        refused_first(moves(&["two", "--yes"]), &[&format!("have not ended on: {name}")]);
        server.run("ALTER ROLE ALL RESET idgenctl.move_5");
    }
    assert_eq!(state(&source, &target), before);
    run(moves(&["two", "--yes"]));
    assert_eq!(place(&old).1, "1-4,6-9");
}

/// Promise: a move asks for consent only after saying what it would do, and in any state it says how to go on.
#[test]
fn a_person_learns_how_a_move_goes_on() {
    let (source, target, meddler) = two_servers();
    let (of_source, of_target) = (source.target("postgres"), target.target("postgres"));
    let ask = |how: &str| idgenctl(&["move", "insta5", "--from", &of_source, "--to", &of_target, how]);
    let asked = |how: &str, what: &str| refused(ask(how), &["nothing is changed without consent", what]);
    meddler.kills(meddler.moves(&[]), ADVANCED);
    let before = (place(&source), place(&target));
    asked("--undo", "the source has insta5_moving, and gets it, its name and the shard back");
    asked("--undo", "A copy insta5_moving on the target is dropped");
    refused(move_with(&["--finish"], &source, &target), &["Run the same command with --undo."]);
    refused(move_shard(&source, &target, "insta6"), &["no default in schema insta6 names a shard"]);
    assert_eq!((place(&source), place(&target)), before);
    refused(move_with(&["--undo"], &source, &a_server("20")), &["the move was to another server"]);
    run(move_with(&["--undo"], &source, &target));
    let from = database(&source);
    for name in ["insta5", "insta5_moving"] {
        let mark = format!("COMMENT ON SCHEMA {name} IS 'idgenctl move 5 of {from}'");
        target.run(&format!("CREATE SCHEMA {name}; {mark}"));
    }
    refused_first(the_move(&source, &target), &["an empty schema insta5: \"idgenctl move 5 of", "--undo"]);
    run(move_with(&["--undo"], &source, &target));
    assert_eq!(place(&target).0, "");
    // A completed move is not taken for one that broke off.
    run(the_move(&source, &target));
    let now = || (place(&source), place(&target), rows(&target));
    let before = now();
    refused(ask("--undo"), &["no interrupted move of schema insta5 from ", "it has insta5_moved"]);
    ends(ask("--finish"), 0, &["the move is complete, and nothing is left to finish"]);
    refused_first(the_move(&source, &target), &["the source has insta5_moved, the target has insta5"]);
    assert_eq!(now(), before);
}

/// Promise: Ctrl-C ends a move even while psql reads nothing and the pipe to it is full.
#[test]
fn a_move_does_not_wait_for_a_full_pipe() {
    let (source, target, _) = two_servers();
    let folder = source.host();
    let dump = format!(
        "[ $1 != --help ] || exec echo --restrict-key\nhead -c 65500 /dev/zero\ntouch {folder}/full\n"
    );
    for (name, text) in [("psql", "exec sleep 600\n"), ("pg_dump", &dump)] {
        write_program(&Path::new(&folder).join(name), &format!("#!/bin/sh\n{text}"));
    }
    let path = format!("{folder}:{}", env::var("PATH").unwrap());
    let mut child = the_move(&source, &target).env("PATH", path).spawn().unwrap();
    assert!(is_reached(60, || Path::new(&folder).join("full").exists()));
    thread::sleep(Duration::from_secs(1));
    kill("INT", child.id() as i32).unwrap();
    let ended = is_reached(30, || child.try_wait().unwrap().is_some());
    let _ = child.kill();
    assert!(ended && child.wait().unwrap().code() == Some(130));
}

/// A server that can neither read nor write its configuration is found before the schema is closed.
#[test]
fn a_list_that_cannot_be_set_is_noticed_first() {
    let (source, target, _) = two_servers();
    let before = state(&source, &target);
    for server in [&source, &target] {
        let folder: String = server.value("SHOW data_directory");
        let file = Path::new(&folder).join("postgresql.conf");
        let right = fs::read(&file).unwrap();
        server.configure(&["this is no setting"]);
        refused_first(the_move(&source, &target), &["cannot read its configuration", "syntax error"]);
        fs::write(&file, right).unwrap();

        let file = Path::new(&folder).join("postgresql.auto.conf");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o400)).unwrap();
        refused_first(the_move(&source, &target), &["postgresql.auto.conf", "Permission denied"]);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    }
    assert_eq!(state(&source, &target), before);
    run(the_move(&source, &target));
}

/// If the schema cannot be closed, the move names the sessions that use it.
#[test]
fn a_move_names_whoever_keeps_the_schema_open() {
    let (source, target, meddler) = two_servers();
    let mut client = source.connect();
    let pid: i32 = client.value("SELECT pg_backend_pid()");
    client.run("SET application_name = 'coffee break'");
    run_as_owner(
        &source,
        "CREATE SEQUENCE insta5.s; CREATE TYPE insta5.e AS ENUM (); GRANT SELECT (client) ON insta5.users TO app;
         ALTER DEFAULT PRIVILEGES IN SCHEMA insta5 GRANT SELECT ON TABLES TO PUBLIC",
    );
    // What locks no table would be lost if it were committed during the copy.
    for use_of_it in [
        "TABLE insta5.users",
        "GRANT SELECT ON insta5.users TO PUBLIC",
        "GRANT USAGE ON SCHEMA insta5 TO PUBLIC",
        "SELECT nextval('insta5.s')",
        "ALTER TYPE insta5.e ADD VALUE 'a'",
        "REVOKE SELECT (client) ON insta5.users FROM app",
        "ALTER DEFAULT PRIVILEGES FOR ROLE app IN SCHEMA insta5 GRANT UPDATE ON TABLES TO PUBLIC",
    ] {
        let mut script = meddler.moves(&[]);
        script.env("IDGENCTL_CLOSE_TIMEOUT", "1");
        let named = format!("Transactions in it: pid {pid} ('coffee break', postgres, idle in transaction");
        let act = |_: &mut Child| client.run(&format!("BEGIN; {use_of_it}"));
        meddler.fails(script, CLOSING, act, &[&named, "undone: the source has the shard"]);
        client.run("ROLLBACK");
    }
    run(the_move(&source, &target));
}

/// A tenant may own the schema and the copy, and interfere. The move is undone all the same, and no undo waits forever.
#[test]
fn a_tenant_who_interferes_does_not_keep_a_move_from_being_undone() {
    let (source, target, meddler) = two_servers();
    let before = state(&source, &target);
    // Any role may have a view that depends on the empty schema of the name.
    let mut viewer = source.connect_as("app");
    let act = |_: &mut Child| {
        source.run("CREATE SCHEMA insta5_moved");
        viewer.run("CREATE TEMP VIEW v AS SELECT 'insta5'::regnamespace");
    };
    let said = meddler.is_undone(ADVANCED, act, &[]);
    assert!(!said.contains("NOT"), "{said}");
    source.run("DROP SCHEMA insta5_moved");
    assert_eq!(state(&source, &target), before);
    // A new name hides the schema, and a lock on the copy interferes on the target.
    meddler.kills(meddler.moves(&[]), ADVANCED);
    run_as_owner(&source, "ALTER SCHEMA insta5_moving RENAME TO other");
    refused(move_with(&["--undo"], &source, &target), &["renamed the schema there, rename it to"]);
    run_as_owner(&source, "ALTER SCHEMA other RENAME TO insta5_moving");
    let mut holder = target.connect();
    holder.run("BEGIN; LOCK TABLE insta5_moving.users");
    ends(move_with(&["--undo"], &source, &target), 0, &["the target may still have a copy"]);
    holder.run("COMMIT");
    run(move_with(&["--undo"], &source, &target));
    assert_eq!(state(&source, &target), before);
    run(the_move(&source, &target));
}

/// Promise: a tenant, who may write names and comments of schemas, can give no server a shard. If the tenant has taken
/// a name that the move needs, the move fails before it changes anything.
#[test]
fn a_tenant_forges_no_move() {
    let (source, target) = servers_with_a_tenant();
    run_as_owner(&source, TABLES);
    let before = state(&source, &target);
    let mut mallory = source.connect_as("mallory");
    let forged = r#"SET idgenctl.move_77 = '{"schema":"insta7","from":"1","to":"1","owner":"","opened":false,"on_target":false,"token":1}'"#;
    mallory.run(
        "CREATE SCHEMA insta7_moving; CREATE TABLE insta7_moving.t (id bigint DEFAULT snowflake_next_id(77));
         COMMENT ON SCHEMA insta7_moving IS 'idgenctl move 77 of 1/1'",
    );
    let codes = ["ALL", "mallory"].map(|role| mallory.code(&format!("ALTER ROLE {role} {forged}")));
    assert_eq!(codes, ["42501"; 2]);
    for how in ["--undo", "--finish"] {
        let command = moves("insta7", &source.target("postgres"), &target.target("postgres"), &[how]);
        refused(command, &["no interrupted move of schema insta7 from "]);
    }
    mallory.run("ALTER SCHEMA insta7_moving RENAME TO insta5_moved");
    refused(the_move(&source, &target), &["the source has insta5 and insta5_moved"]);
    target.run("CREATE SCHEMA insta5");
    refused(move_with(&["--finish"], &source, &target), &["no interrupted move of schema insta5 from "]);
    target.run("DROP SCHEMA insta5");
    mallory.run("DROP SCHEMA insta5_moved CASCADE");
    assert_eq!(state(&source, &target), before);
}

/// A completed move says so, even if the source, which is no longer needed, has failed in the meantime.
#[test]
fn a_move_ends_without_its_source() {
    let (source, target, meddler) = two_servers();
    meddler.succeeds(&[], OPENING, |_| source.kill());
    assert_eq!(place(&target), ("insta5".into(), "5,10-19".into()));
    source.up();
    assert_eq!(source.code("SELECT snowflake_next_id(5)"), "55000");
    // The shard can move back only when the marker is gone.
    source.run(FORGET);
    let still = ["moves of shard 5 have not ended on: "];
    refused(the_move(&target, &source), &still);
    refused(move_with(&["--server", &source.target("postgres")], &target, &a_server("20")), &still);
    run(move_with(&["--finish"], &source, &target));
    assert_eq!(place(&source).0, "");
    run(the_move(&target, &source));
}

/// If the last step fails on a standby of the target, which may have to replace it, the move reports that.
#[test]
fn a_standby_without_its_list_is_not_passed_over() {
    let (source, target, meddler) = two_servers();
    let new = target.standby("new");
    let with_standby = ["--server", &new.target("postgres")];
    let output = meddler.during(meddler.moves(&with_standby), OPENING, |_| new.kill());
    assert_says(&said(&output), &["the schema has moved, but not all servers of the target know that"]);
    assert_eq!(output.status.code(), Some(4), "{}", said(&output));
    target.value::<i64>("SELECT snowflake_next_id(5)");
    new.up();
    run(move_with(&[&["--finish"], &with_standby[..]].concat(), &source, &target));
    assert_eq!(place(&new).1, "5,10-19");
}
