//! docs/operations.md: each test causes the trouble of a section, and follows its text.

use postgres::Client;
use postgres::error::DbError;

use crate::clients::{Clients, Ledger, ROWS, TABLES};
use crate::fleet::File;
use crate::moment::is_reached;
use crate::moves::run_as_owner;
use crate::origins::room_for;
use crate::process::{
    client_program, example, idgenctl, major_version, permitted, refused as fails, release_bin, run, said,
    write_program,
};
use crate::runbook::{Runbook, fleet_file, sections};
use crate::server::link::{Direction, Flow, Link};
use crate::server::{Build, PRELOAD, Server, Sql, enable};

const HOUR: f64 = 3600.0;
const YEAR: f64 = 365.25 * 24.0 * HOUR;

/// Every section with blocks or with messages of a server has a test that goes through it.
#[test]
fn every_section_has_its_test() {
    let tests = include_str!("operations.rs");
    let sections = sections();
    assert!(!sections.is_empty());
    for section in &sections {
        let tested = tests.contains(&format!("Runbook::of({:?}", section.title));
        let says_nothing = section.blocks.is_empty() && section.messages.is_empty();
        assert!(tested || says_nothing, "no test goes through {:?}", section.title);
    }
}

/// The shards of the first server of the README.
const LIST_OF_THE_README: &str = "idgen.allowed_shards = '0-4095'";

fn refused(server: &Server) -> DbError {
    server.error("SELECT snowflake_next_id(9)")
}

fn mint(server: &Server, ledger: &mut Ledger) -> i64 {
    ledger.mint(&mut server.connect())
}

/// Whether the text of the check has this finding about a server.
fn found(said: &str, server: &str, id: &str) -> bool {
    let is_it = |line: &str| line.contains(&format!(": {server}: ")) && line.contains(&format!("[{id}]"));
    said.lines().any(is_it)
}

/// If the check finds nothing, an id can be minted. If it finds something, the page has it, on a standby too. The check
/// counts as no refused call.
#[test]
fn it_is_seen_whether_ids_are_minted() {
    let primary = Server::start(&["idgen.max_wait = 300ms", "wal_log_hints = on", LIST_OF_THE_README]);
    let standby = primary.standby("two");
    let servers = [("the primary", &primary), ("the standby", &standby)];
    let mut well = Runbook::of("Is it minting?", &servers);
    mint(&primary, &mut Ledger::default());
    standby.wait_until("SELECT mark IS NOT NULL FROM idgen_status");
    assert!(is_reached(30, || well.succeeds()));
    well.run();
    well.says(refused(&standby).message());

    let trouble = Runbook::of("Is it minting?", &servers);
    primary.set_clock(YEAR);
    refused(&primary);
    standby.set_clock(-HOUR);
    let said = trouble.fails();
    for (server, id) in [
        ("one", "clock-jumped"),
        ("two", "mark-in-future"),
        ("one", "clock-differs"),
        ("two", "clock-differs"),
    ] {
        assert!(found(&said, server, id), "{server}: {id}: {said}");
    }
    // A standby cannot tell by itself that its clock is ahead.
    primary.set_clock(0.0);
    standby.set_clock(YEAR);
    assert_eq!(standby.warning(), None);
    assert!(found(&trouble.fails(), "two", "clock-differs"));
    trouble.leave();
    assert_eq!(primary.answer::<i64>("SELECT sum(refused)::bigint FROM idgen_refusals"), 1);
}

/// A forward jump writes nothing, so that correcting the clock is enough. If the clock was slow before and is now
/// right, only this jump is accepted.
#[test]
fn a_jump_forward() {
    const SLOW: f64 = -720.0 * HOUR;
    let server = Server::start(&["idgen.max_wait = 300ms", LIST_OF_THE_README]);
    server.restart_at("fast", SLOW);
    let mut ledger = Ledger::default();
    mint(&server, &mut ledger);
    let servers = [("the primary", &server)];
    let mut book = Runbook::of("The clock jumped forward", &servers);
    server.set_clock(10.0 * YEAR);
    book.says(refused(&server).message());
    book.says(&server.warning().unwrap());
    server.set_clock(SLOW);
    let before = mint(&server, &mut ledger);
    assert_eq!(server.warning(), None);

    server.set_clock(0.0);
    book.says(refused(&server).message());
    book.runs(&server, "SELECT idgen.snowflake_accept_clock()");
    assert!(mint(&server, &mut ledger) > before);
    assert_eq!(server.warning(), None);
    server.set_clock(YEAR);
    book.says(refused(&server).message());
    // A restart accepts the jump, as the first rule warns.
    server.restart();
    mint(&server, &mut ledger);
}

/// If the clock was set back, only the shards in use wait, and after a restart all shards. When the clock is corrected,
/// minting continues.
#[test]
fn a_clock_that_is_behind() {
    let server = Server::start(&["idgen.max_wait = 300ms"]);
    let mut ledger = Ledger::default();
    server.connect().query_one("SELECT snowflake_next_id(9)", &[]).unwrap();
    let servers = [("the primary", &server)];
    let mut book = Runbook::of("The clock is behind", &servers);
    server.set_clock(-HOUR);
    let error = refused(&server);
    book.says(error.message());
    // A span of time begins with its first unit above 0.
    let span = error.detail().unwrap().split_once("minting resumes in ").map(|(_, span)| span);
    assert!(span.is_some_and(|span| !span.starts_with("0 ")), "{error:?}");
    book.says(&server.warning().unwrap());
    mint(&server, &mut ledger);
    server.restart();
    book.says(refused(&server).message());
    book.says(server.error("SELECT snowflake_next_id(1)").message());
    server.set_clock(0.0);
    mint(&server, &mut ledger);
    server.connect().query_one("SELECT snowflake_next_id(9)", &[]).unwrap();
    assert_eq!(server.warning(), None);
}

/// If the mark is less than an hour in the future, ids may run ahead to it, on a promoted standby too. If it is further
/// ahead, an earlier epoch makes the clock pass it. No id is repeated, and new ids are above the earlier ones.
#[test]
fn a_mark_in_the_future() {
    let primary = Server::start(&[PRELOAD, "idgen.max_wait = 300ms"]);
    let standby = primary.standby("two");
    let mut ledger = Ledger::default();
    mint(&primary, &mut ledger);
    let servers = [("the primary", &primary), ("the standby", &standby)];
    let mut book = Runbook::of("The mark is in the future", &servers);
    primary.set_clock(0.5 * HOUR);
    let early = mint(&primary, &mut ledger);
    primary.set_clock(0.0);
    book.says(primary.error("SELECT snowflake_next_id(1)").message());
    standby.wait_until("SELECT warning IS NOT NULL FROM idgen_status");
    book.says(&standby.warning().unwrap());
    book.sets("idgen.max_ahead = '1h'", [&primary, &standby]);
    for server in [&primary, &standby] {
        server.wait_until("SELECT warning IS NULL AND max_ahead = '1h' FROM idgen_status");
    }
    assert!(mint(&primary, &mut ledger) > early);
    for server in [&primary, &standby] {
        server.set_clock(0.5 * HOUR + 120.0);
        server.run("ALTER SYSTEM RESET idgen.max_ahead");
        server.reload("idgen.max_ahead", "1s");
        server.wait_until("SELECT warning IS NULL AND max_ahead = '1s' FROM idgen_status");
    }
    mint(&primary, &mut ledger);

    primary.restart_at("fast", 30.0 * HOUR);
    let poisoned = mint(&primary, &mut ledger);
    primary.stop("fast");
    for server in [&primary, &standby] {
        server.set_clock(0.0);
    }
    primary.up();
    let error = refused(&primary);
    book.says(error.message());
    assert!(error.hint().unwrap().contains("move \"idgen.epoch\" back"), "{error:?}");
    book.says(&primary.warning().unwrap());
    standby.wait_until("SELECT count(*) = 1 FROM pg_stat_wal_receiver");
    // Back by the mark's lead and a minute more.
    let back = "SELECT to_char((epoch - (mark_at - now()) - interval '1 minute') AT TIME ZONE 'UTC',
                               'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"') FROM idgen_status";
    let (kept, epoch) = (primary.value::<String>("SHOW idgen.epoch"), primary.value::<String>(back));
    for server in [&standby, &primary] {
        server.run(&format!("ALTER SYSTEM SET idgen.epoch = '{epoch}'"));
        server.restart();
    }
    let accept = Runbook::of("Another epoch", &servers);
    accept.says_to_write(ACCEPT_EPOCH);
    primary.run(&ACCEPT_EPOCH.replace(EARLIER_EPOCH, &epoch));
    accept.leave();
    let next = mint(&primary, &mut ledger);
    assert!(next > poisoned);
    // An earlier id, by its own epoch.
    let old = format!("SELECT snowflake_time({poisoned}, '{kept}') BETWEEN now() + '29h' AND now() + '31h'");
    assert!(primary.value::<bool>(&old));
    standby.wait_until("SELECT warning IS NULL AND mark_at IS NOT NULL FROM idgen_status");
    assert_eq!(primary.warning(), None);
    primary.kill();
    standby.promote();
    mint(&standby, &mut ledger);
}

/// Without its synchronous standby a server mints nothing until the standby is back or removed from the list.
#[test]
fn a_mark_that_is_not_made_durable() {
    let primary = Server::start(&["idgen.max_wait = 300ms"]);
    let standby = primary.synchronous_standby("two");
    let mut ledger = Ledger::default();
    let gone = |book: &mut Runbook<'_>| {
        standby.stop("fast");
        primary.wait_until("SELECT warning IS NOT NULL FROM idgen_status");
        book.says(&primary.warning().unwrap());
        // The standby may have acknowledged one more mark.
        let mut client = primary.connect();
        let mut error = || client.query_one("SELECT snowflake_next_id(9)", &[]).err();
        let error = std::iter::repeat_with(&mut error).flatten().next().unwrap();
        book.says(error.as_db_error().unwrap().message());
    };
    let servers = [("the primary", &primary), ("the standby", &standby)];
    let mut book = Runbook::of("The mark is not made durable", &servers);
    mint(&primary, &mut ledger);
    gone(&mut book);
    let check = Runbook::of("Is it minting?", &servers);
    let said = check.fails();
    check.leave();
    assert!(found(&said, "one", "sync-too-few") && found(&said, "two", "unreachable"), "{said}");
    standby.up();
    until_synchronous(&primary);
    mint(&primary, &mut ledger);
    gone(&mut book);
    book.sets("synchronous_standby_names = ''", [&primary]);
    primary.wait_until("SELECT warning IS NULL FROM idgen_status");
    mint(&primary, &mut ledger);
    standby.up();
    primary.alter("synchronous_standby_names", "two");
    until_synchronous(&primary);
    gone(&mut book);
    standby.up();
    mint(&primary, &mut ledger);
}

/// Waits until commits and marks wait for the named standby.
fn until_synchronous(primary: &Server) {
    primary.wait_until(
        "SELECT count(*) = 1 FROM pg_stat_replication
         WHERE state = 'streaming' AND sync_state = 'sync'
           AND application_name = current_setting('synchronous_standby_names')",
    );
    // Commits wait once the checkpointer has read the setting, which it does before it answers.
    primary.run("CHECKPOINT");
}

/// An origin like that of a subscription.
const ANOTHER_ORIGIN: &str = "SELECT pg_replication_origin_create('other');
    SELECT pg_replication_origin_advance('other', '0/ABCD')";

/// Servers without room for the mark's origin go down or mint nothing, until they have room.
#[test]
fn no_room_for_the_mark() {
    // Without a preload, CREATE EXTENSION would write the mark.
    let primary = Server::start(&[PRELOAD]);
    let standby = primary.standby("two");
    let small = Server::start(&[PRELOAD, &room_for(1)]);
    let servers = [("the primary", &primary), ("the standby", &standby)];
    let mut book = Runbook::of("There is no room for the mark", &servers);
    standby.restart_with(&[&room_for(0)]);
    book.says(&standby.warning().unwrap());
    let mut ledger = Ledger::default();
    let before = mint(&primary, &mut ledger);
    standby.until_down();
    primary.run(ANOTHER_ORIGIN);
    primary.stop("fast");
    primary.configure(&[&room_for(1)]);
    primary.up_and_down();
    for (server, message) in
        [(&standby, "could not find free replication state slot"), (&primary, "increase")]
    {
        let log = server.log();
        let said =
            log.lines().find_map(|line| line.split_once("  ").filter(|(_, text)| text.contains(message)));
        book.says(said.unwrap_or_else(|| panic!("{log}")).1);
    }
    // The value goes to the file of ALTER SYSTEM, which overrides the others.
    for server in [&standby, &primary] {
        let file = "$PGDATA/postgresql.auto.conf";
        run(server.shell(&format!("echo '{}' >>\"{file}\" && pg_ctl start", room_for(20))));
    }
    for server in [&primary, &standby] {
        server.wait_until("SELECT warning IS NULL AND mark IS NOT NULL FROM idgen_status");
    }
    assert!(mint(&primary, &mut ledger) > before);

    small.run(ANOTHER_ORIGIN);
    book.says(refused(&small).message());
    book.says(&small.warning().unwrap());
    small.run(&format!("ALTER SYSTEM SET {}", room_for(20)));
    small.restart();
    assert_eq!(small.warning(), None);
    mint(&small, &mut Ledger::default());
}

/// Instagram's function continues with idgen, above all its earlier ids. A forgotten copy of it fails.
#[test]
fn a_function_is_taken_over() {
    let server = Server::start_plain(&["shared_preload_libraries = 'dict_snowball'"]);
    server.run("CREATE DATABASE app");
    let function = include_str!("../../benches/instagram.sql");
    let (_, body) = function.split_once("insta5.next_id").unwrap();
    let mut client = server.connect_to("app");
    let insert = "INSERT INTO insta5.users VALUES (DEFAULT) RETURNING id";
    client.run(function);
    client.run(&format!("CREATE FUNCTION insta5.forgotten{body}"));
    client.run("CREATE TABLE insta5.users (id bigint PRIMARY KEY DEFAULT insta5.next_id())");
    let before: i64 = client.value(insert);
    let servers = [("the server", &server)];
    let mut book = Runbook::of("Taking over a function", &servers);
    server.configure(&["idgen.epoch = 1314220021721"]);
    book.run();
    server.restart();
    book.run();
    let mut client = server.connect_to("app");
    let after: i64 = client.value(insert);
    assert!(after > before && after >> 10 & 8191 == 5, "{before} {after}");
    book.says(client.error("SELECT insta5.forgotten()").message());
    assert_eq!(client.column::<i32>("SELECT shard FROM idgen.idgen_columns WHERE schema = 'insta5'"), [5]);
    assert_eq!(client.value::<String>("SHOW shared_preload_libraries"), "dict_snowball, idgen");
}

/// The new server, whose clock is behind, takes over the mark of the old one, unless that is too far ahead. A server
/// raises its mark past rows with greater ids. A restored backup beside its original mints for shards of its own, and
/// does not wait for standbys of the original.
#[test]
fn a_backup_and_a_dump() {
    const INSERT: &str = "INSERT INTO rows VALUES (DEFAULT) RETURNING id";
    const RAISE: &str = "SELECT idgen.snowflake_raise_mark('…')";
    const MARK: &str = "SELECT mark_at FROM idgen.idgen_status";
    let old = Server::start(&["idgen.max_wait = 300ms", LIST_OF_THE_README]);
    old.run(
        "CREATE DOMAIN key AS bigint; CREATE TABLE rows (id key PRIMARY KEY DEFAULT snowflake_next_id(1))",
    );
    old.run(INSERT);
    let mut ledger = Ledger::default();
    mint(&old, &mut ledger);
    let restored = old.base_backup();
    restored.configure(&["synchronous_standby_names = 'two'"]);
    let new = Server::start_empty(Build::Release, &[PRELOAD, "idgen.max_wait = 300ms"]);
    let servers = [("one", &old), ("two", &new)];
    let book = Runbook::of("Backup, recovery, dump and pg_upgrade", &servers);
    book.says_to_write("synchronous_standby_names = ''");
    restored.configure(&["synchronous_standby_names = ''", "idgen.allowed_shards = '5000-5001'"]);
    restored.up();
    let mut client = restored.connect();
    assert_eq!(client.code("SELECT snowflake_next_id(1)"), "55000");
    ledger.add(&[client.value("SELECT snowflake_next_id(5000)")]);
    client.run("CREATE TABLE more ()");
    assert_eq!(restored.warning(), None);

    let last: i64 = old.value(INSERT);
    ledger.add(&[last]);
    old.dump_to(&new);
    // The clock of the new server is further behind than ids may run ahead.
    new.set_clock(-600.0);
    [MARK, RAISE].iter().for_each(|statement| book.says_to_write(statement));
    let mark: String = old.value(&format!("SELECT mark_at::text FROM ({MARK}) AS mark"));
    let raise = RAISE.replace('…', &mark);
    assert_eq!(new.code(&raise), "22023");
    new.set("idgen.max_ahead", "1h");
    new.run(&raise);
    let next: i64 = new.value(INSERT);
    assert!(next > last, "{next} {last}");
    let other: i64 = new.value("SELECT snowflake_next_id(2)");
    assert!(other > last, "every shard begins at the mark: {other} {last}");

    // Rows with ids above the mark, as after a restore of a single table.
    let beyond: i64 = new.value("SELECT (mark + 600000) << 23 FROM idgen_status");
    new.run(&format!("INSERT INTO rows VALUES ({beyond})"));
    book.says_to_write("SELECT snowflake_time(max(id))");
    let latest: String = new.value("SELECT snowflake_time(max(id))::text FROM rows");
    new.run(&RAISE.replace('…', &latest));
    assert!(new.value::<i64>(INSERT) > beyond);
    book.leave();
}

/// A server that is restored beside its original archives nothing, so that the archive stays intact for the original's
/// next timeline. It mints for shards of its own once the session's shard and the defaults in the copy name them.
#[test]
fn a_restored_copy_beside_its_original() {
    let original = Server::start(&["archive_mode = on", LIST_OF_THE_README]);
    let archive = format!("{}/archive", original.host());
    run(original.shell("mkdir archive"));
    original.set("archive_command", &format!("test ! -f {archive}/%f && cp %p {archive}/%f"));
    original.run(
        "ALTER DATABASE postgres SET idgen.shard = 0;
         CREATE TABLE rows (id bigint PRIMARY KEY DEFAULT snowflake_next_id());
         CREATE SCHEMA insta5;
         CREATE TABLE insta5.users (id bigint PRIMARY KEY DEFAULT snowflake_next_id(5))",
    );
    const ROW: &str = "INSERT INTO rows VALUES (DEFAULT) RETURNING id";
    const USER: &str = "INSERT INTO insta5.users VALUES (DEFAULT) RETURNING id";
    let restored = original.base_backup();
    let mut ledger = Ledger::default();
    ledger.add(&[original.value(ROW), original.value(USER)]);
    let last: String = original.value("SELECT pg_walfile_name(pg_switch_wal())");
    original.wait_until(&format!("SELECT last_archived_wal COLLATE \"C\" >= '{last}' FROM pg_stat_archiver"));

    let servers = [("one", &original), ("two", &restored)];
    let book = Runbook::of("Backup, recovery, dump and pg_upgrade", &servers);
    let settings = ["archive_mode = off", "synchronous_standby_names = ''"];
    settings.iter().for_each(|setting| book.says_to_write(setting));
    restored.configure(&settings);
    restored.configure(&[
        "idgen.allowed_shards = '4096-8191'",
        &format!("restore_command = 'cp {archive}/%f %p'"),
    ]);
    run(restored.shell("touch \"$PGDATA/recovery.signal\""));
    restored.up();
    restored.wait_until("SELECT NOT pg_is_in_recovery()");
    for sql in [ROW, USER] {
        assert_eq!(restored.code(sql), "55000");
    }
    book.says_to_write("ALTER DATABASE mydb SET idgen.shard = 4096");
    book.says_to_write("snowflake_assign_shard");
    restored
        .run("ALTER DATABASE postgres SET idgen.shard = 4096; SELECT snowflake_assign_shard('insta5', 4101)");
    ledger.add(&[restored.value(ROW), restored.value(USER)]);
    ledger.add(&[original.value(ROW), original.value(USER)]);
    restored.run("CHECKPOINT; SELECT pg_switch_wal()");
    restored.stop("fast");

    let standby = original.standby("two");
    original.stop("fast");
    standby.promote();
    standby.run("CREATE TABLE more (); SELECT pg_switch_wal()");
    standby.wait_until(
        "SELECT last_archived_wal > '00000002' AND last_archived_wal !~ 'history' FROM pg_stat_archiver",
    );
    assert_eq!(standby.value::<i64>("SELECT failed_count FROM pg_stat_archiver"), 0);
    book.leave();
}

/// A database whose owner has planted traps wherever an administrator might run something, under names that a shell or
/// psql might misread. The trap shows whether it was sprung.
struct Trap<'a> {
    server: &'a Server,
    database: String,
}

impl Trap<'_> {
    /// Creates the database, with idgen in schema `ids` of this owner.
    fn set<'a>(server: &'a Server, database: &str, owner: &str) -> Trap<'a> {
        let mut admin = server.connect();
        admin.run("DO $$ BEGIN CREATE ROLE mallory; EXCEPTION WHEN duplicate_object THEN END $$");
        admin.run(&format!("CREATE DATABASE \"{database}\" OWNER mallory"));
        let trap = Trap { server, database: database.to_owned() };
        let planted = [
            &format!("CREATE SCHEMA ids AUTHORIZATION {owner}; GRANT USAGE ON SCHEMA ids TO PUBLIC"),
            "CREATE EXTENSION idgen SCHEMA ids; SET ROLE mallory; CREATE SCHEMA den",
            // Through another function, an immutable function can change something.
            "CREATE FUNCTION den.strike() RETURNS void LANGUAGE plpgsql AS
                 'BEGIN ALTER ROLE mallory SUPERUSER; EXCEPTION WHEN insufficient_privilege THEN END'",
            "CREATE FUNCTION den.trap() RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS
                 'BEGIN PERFORM den.strike(); RETURN true; END'",
            "CREATE FUNCTION den.trap(name, name) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT den.trap()';
             CREATE OPERATOR den.= (LEFTARG = name, RIGHTARG = name, FUNCTION = den.trap)",
            "DO $$
             DECLARE item name;
             BEGIN
                 FOREACH item IN ARRAY '{pg_extension,pg_available_extensions,pg_database,pg_class,pg_inherits,
                         pg_settings,pg_file_settings,pg_stat_replication}'::name[] LOOP
                     EXECUTE format('CREATE VIEW den.%I AS SELECT *, den.trap() FROM pg_catalog.%1$I', item);
                 END LOOP;
             END $$",
            r#"CREATE TABLE den."a
\! touch planted;'b$(touch planted)" (id bigint DEFAULT ids.snowflake_next_id(1))"#,
            "CREATE TABLE den.rows (id bigint DEFAULT ids.snowflake_next_id(1), name text);
             INSERT INTO den.rows DEFAULT VALUES;
             CREATE INDEX ON den.rows ((den.trap()))",
            "CREATE TABLE den.texts (id text DEFAULT ids.snowflake_text(ids.snowflake_next_id(1)));
             INSERT INTO den.texts VALUES (9223372036854775807)",
            "CREATE VIEW den.shown AS SELECT id FROM den.rows WHERE den.trap();
             ALTER VIEW den.shown ALTER id SET DEFAULT ids.snowflake_next_id(1)",
            &format!("ALTER DATABASE \"{database}\" SET search_path = den, ids, pg_catalog"),
        ];
        let mut client = trap.connect();
        planted.iter().for_each(|sql| client.run(sql));
        trap.was_not_sprung();
        trap
    }

    /// The administrator's connection string.
    fn target(&self) -> String {
        let name = self.database.replace('\\', r"\\").replace('\'', r"\'");
        format!("host={} user=postgres dbname='{name}'", self.server.host())
    }

    fn connect(&self) -> Client {
        self.server.connect_to(&self.database)
    }

    fn was_sprung(&self) -> bool {
        let super_ = "UPDATE pg_authid SET rolsuper = false WHERE rolname = 'mallory' AND rolsuper";
        self.server.connect().execute(super_, &[]).unwrap() > 0
            || std::path::Path::new(&self.server.host()).join("planted").exists()
    }

    fn was_not_sprung(&self) {
        assert!(!self.was_sprung(), "something that a tenant has planted was run");
    }
}

/// An administrator who follows the page runs nothing that the owner of a database has planted in it.
#[test]
fn nothing_that_a_tenant_has_planted_is_run() {
    let server = Server::start(&[]);
    let trap = Trap::set(&server, &permitted("a\n\\! touch planted;'b$(touch planted) host=x"), "postgres");
    // Without the precautions of the page, the traps are sprung.
    for sql in ["SELECT * FROM pg_extension", "SET search_path = pg_catalog; SELECT max(id) FROM den.rows"] {
        trap.connect().run(sql);
        assert!(trap.was_sprung(), "{sql}");
    }

    let removal = example("remove.sql").display().to_string();
    let run_all = |trap: &Trap| {
        let programs = [("idgenctl", vec!["check"]), ("psql", vec!["-X", "-f", &removal])];
        let said = programs.map(|(program, arguments)| {
            let mut command = client_program(format!("{}/{program}", release_bin()));
            command.args(arguments).envs([("PGHOST", server.host()), ("PGUSER", "postgres".into())]);
            let output = command.env("PGDATABASE", &trap.database).output().unwrap();
            assert!(output.status.code().is_some_and(|code| code < 100), "{program}: {}", said(&output));
            trap.was_not_sprung();
            said(&output)
        });
        println!("{}", said.join("\n"));
        said
    };
    assert_eq!(run_all(&trap)[1], "", "the extension is removed");
    let servers = [("one", &server)];
    let mut book = Runbook::of("Failover", &servers);
    book.set("two", &trap.target());
    book.run();
    book.leave();
    trap.was_not_sprung();

    // Between two sessions, the owner of idgen's schema can replace it with another one.
    let owned = Trap::set(&server, "owned", "mallory");
    let swap = "SET ROLE mallory; CREATE SCHEMA other; ALTER SCHEMA ids RENAME TO away; ALTER SCHEMA other RENAME TO ids;
        CREATE VIEW ids.idgen_status AS SELECT 'none' AS warning WHERE den.trap()";
    owned.connect().run(swap);
    assert!(run_all(&owned)[1].contains("other roles may change the extension idgen or its schema"));
}

const DEFAULT_EPOCH: &str = "2025-01-01T00:00:00Z";
const EARLIER_EPOCH: &str = "2024-12-31T00:00:00Z";
const ACCEPT_EPOCH: &str = "SELECT idgen.snowflake_accept_epoch('2024-12-31T00:00:00Z')";

/// Another epoch is refused, on a standby at once, and then reverted or accepted.
#[test]
fn another_epoch() {
    let primary = Server::start(&[PRELOAD, "idgen.max_wait = 300ms"]);
    let standby = primary.standby("two");
    let mut ledger = Ledger::default();
    let before = mint(&primary, &mut ledger);
    let servers = [("the primary", &primary), ("the standby", &standby)];
    let mut book = Runbook::of("Another epoch", &servers);
    let change = |server: &Server, epoch: &str| {
        server.run(&format!("ALTER SYSTEM SET idgen.epoch = '{epoch}'"));
        server.restart();
    };
    standby.wait_until("SELECT mark IS NOT NULL FROM idgen_status");
    change(&standby, "2024-01-01T00:00:00Z");
    standby.wait_until("SELECT warning IS NOT NULL FROM idgen_status");
    book.says(&standby.warning().unwrap());
    change(&standby, DEFAULT_EPOCH);
    standby.wait_until("SELECT warning IS NULL AND mark_at IS NOT NULL FROM idgen_status");

    change(&primary, EARLIER_EPOCH);
    book.says(refused(&primary).message());
    change(&primary, DEFAULT_EPOCH);
    mint(&primary, &mut ledger);

    for server in [&standby, &primary] {
        change(server, EARLIER_EPOCH);
    }
    book.says(refused(&primary).message());
    book.runs(&primary, ACCEPT_EPOCH);
    assert!(mint(&primary, &mut ledger) > before);
    assert_eq!(primary.warning(), None);
    standby.wait_until("SELECT warning IS NULL FROM idgen_status");
}

/// Sets the list of shards of a server, as a move does.
fn allow_shards(server: &Server, list: &str) {
    server.alter("idgen.allowed_shards", list);
}

/// The WAL position in an output.
fn position(said: &str) -> String {
    let is_one = |word: &&str| word.contains('/') && word.chars().all(|c| c == '/' || c.is_ascii_hexdigit());
    said.split_whitespace().find(is_one).unwrap_or_else(|| panic!("no position: {said}")).to_owned()
}

/// A primary, `one`, its standby, and clients that know both and insert rows.
struct Pair {
    one: Server,
    two: Server,
    clients: Clients,
}

impl Pair {
    fn start() -> Pair {
        Pair::start_with("wal_log_hints = on")
    }

    fn start_with(setting: &str) -> Pair {
        let one = Server::start(&[PRELOAD, setting, "idgen.max_wait = 500ms"]);
        let two = one.synchronous_standby("two");
        for server in [&one, &two] {
            allow_shards(server, "0-99,8191");
        }
        one.run(ROWS);
        let hosts = format!("{},{}", one.host(), two.host());
        let target = format!("host={hosts} user=postgres dbname=postgres target_session_attrs=read-write");
        let clients = Clients::start_inserting(4, target);
        clients.wait_for_ids(300);
        Pair { one, two, clients }
    }

    /// A failover from `one`, which is down or still alive, to `two`. Then `one` becomes its synchronous standby, by
    /// pg_rewind or without.
    fn fail_over(&self, alive: bool, rewinds: bool) {
        let servers = [("one", &self.one), ("two", &self.two)];
        let mut book = Runbook::of("Failover", &servers);
        if !alive {
            self.one.stop("immediate");
            // The check finds just what the page says.
            self.until_found(&["unreachable one"]);
        }
        // This is too early, which pg_rewind does not notice.
        let mut early = Runbook::of("Failover", &servers);
        early.skip();
        if !alive {
            assert!(early.fails().contains("two is not promoted"));
        }
        early.leave();
        book.run();
        if !alive {
            self.clients.wait_for_ids(300);
        }
        if rewinds {
            book.run();
            book.skip();
        } else {
            book.fails();
            assert!(self.one.running().is_none(), "it runs as a second primary");
            book.skip();
            book.set("two", "host=/nowhere");
            book.fails();
            book.set("two", &self.two.target("postgres"));
            book.run();
            run(self.one.shell("rm -r \"$PGDATA.old\""));
        }
        self.clients.wait_for_ids(300);
        book.sets("synchronous_standby_names = 'one'", [&self.two]);
        until_synchronous(&self.two);
        self.clients.wait_for_ids(300);
        self.is_well();
    }

    fn until_found(&self, expected: &[&str]) {
        File::of_servers(&[("one", &self.one), ("two", &self.two)]).until_found(expected);
    }

    fn is_well(&self) {
        self.until_found(&[]);
    }

    fn switch_back(&self) {
        let (one, two) = (&self.one, &self.two);
        let servers = [("one", one), ("two", two)];
        let mut book = Runbook::of("Switch back", &servers);
        // A move has changed a setting only on the primary.
        allow_shards(two, "0-98,8191");
        self.until_found(&["lists-differ one"]);
        allow_shards(one, "0-98,8191");
        self.is_well();
        // This is too early, with an old position.
        let mut early = Runbook::of("Switch back", &servers);
        early.skip();
        early.set("position", "0/1");
        assert!(early.fails().contains("stop two first"));
        early.leave();
        let stopped = position(&book.run());
        book.set("position", "FFFFFFFF/0");
        assert!(book.fails().contains("one has not received everything"));
        assert!(one.answer::<bool>("SELECT pg_is_in_recovery()"));
        book.set("position", &stopped);
        book.run();
        self.clients.wait_for_ids(300);
        book.run();
        book.sets("synchronous_standby_names = 'two'", [one]);
        until_synchronous(one);
        for server in [one, two] {
            server.wait_until("SELECT warning IS NULL AND allowed_shards = '0-98,8191' FROM idgen_status");
        }
        self.clients.wait_for_ids(300);
        self.is_well();
        // The primary waits for the standby.
        two.stop("fast");
        one.wait_until("SELECT window_left_ms = 0 FROM idgen_status");
        refused(one);
        two.up();
        self.clients.wait_for_ids(100);
    }

    /// Checks that no id occurs twice, that no row is lost, and that each primary began above its predecessor.
    fn finish(self, primaries: i64) {
        let mut ledger = Ledger::default();
        self.clients.finish(&mut ledger);
        let last = if self.one.follows() { &self.two } else { &self.one };
        ledger.assert_rows(&mut last.connect(), primaries);
    }
}

/// The primary dies, and its standby takes over. The old primary returns, and they switch roles. After each step the
/// primary has a synchronous standby, both have the same settings, and all of it can be repeated.
#[test]
fn failover_from_a_dead_primary_and_switch_back() {
    let pair = Pair::start();
    pair.fail_over(false, true);
    pair.switch_back();
    for server in [&pair.one, &pair.two] {
        allow_shards(server, "0-99,8191");
    }
    pair.fail_over(false, true);
    pair.finish(4);
}

/// A failover while the old primary is alive: clients wait there until it is stopped.
#[test]
fn failover_from_a_primary_that_is_alive_and_switch_back() {
    let pair = Pair::start();
    pair.fail_over(true, true);
    pair.switch_back();
    pair.finish(3);
}

/// If pg_rewind fails, as it does without hints in the WAL, no second primary starts.
#[test]
fn failover_where_the_old_primary_cannot_be_rewound() {
    let pair = Pair::start_with("wal_log_hints = off");
    if major_version() >= 18 {
        // Checksums, the default, make it fail for another reason.
        pair.two.set("full_page_writes", "off");
    }
    pair.fail_over(true, false);
    pair.switch_back();
    pair.finish(3);
}

/// Of two synchronous standbys, only one has acknowledged the last marks. The other one would repeat ids of the old
/// primary. The runbook shows which is which, and from then on no mark of the running old primary is acknowledged.
#[test]
fn the_standby_that_has_everything_is_promoted() {
    for names in ["FIRST 1 (two, three)", "ANY 1 (two, three)"] {
        let one = Server::start(&["idgen.max_wait = 300ms", "idgen.max_ahead = 1h"]);
        let link = Link::to(&one);
        let (two, three) = (one.standby("two"), one.standby_by(&link.host(), "three"));
        one.make_synchronous_as(names, &["two", "three"]);
        // From here on it replays no commit, but acknowledges commits.
        two.restart_with(&["recovery_min_apply_delay = 1h"]);
        one.until_followed(&["two", "three"]);
        one.run("CREATE TABLE a_commit ()");
        let mut client = one.connect();
        let mut mint =
            || client.query_one("SELECT snowflake_next_id(5)", &[]).map(|row| row.get::<_, i64>(0));
        mint().unwrap();
        let mark: i64 = one.answer("SELECT mark FROM idgen_status");
        three.wait_until(&format!("SELECT mark IS NOT DISTINCT FROM {mark} FROM idgen_status"));
        link.set_flow(Direction::ToStandby, Flow::Held);
        let repeated = (0..).map(|_| mint().unwrap()).find(|id| id >> 23 >= mark).unwrap();

        // It waits for the time of the commit again, even if the delay is over.
        two.set_clock(-5.0);
        two.restart();
        let servers = [("the standby", &two), ("the standby", &three)];
        let said = Runbook::of("Which standby to promote", &servers).run();
        let position = |line| str::trim(line).strip_prefix("00000001 | ");
        let received: Vec<_> = said.lines().filter_map(position).collect();
        let [by_two, by_three] = received.as_slice() else { panic!("{received:?}") };
        let more = format!("SELECT '{by_two}'::pg_lsn > '{by_three}'");
        assert!(one.answer::<bool>(&more), "with {names}: {received:?}");
        let last = std::iter::repeat_with(&mut mint).map_while(Result::ok).last().unwrap_or(repeated);

        // With their clocks behind, both begin at their marks.
        for standby in [&two, &three] {
            standby.set_clock(-0.5 * HOUR);
            standby.promote();
        }
        let first: i64 = two.answer("SELECT snowflake_next_id(5)");
        assert!(first > last, "with {names}: {first} {last}");
        let mut client = three.reconnect();
        let mut batch = || client.column::<i64>("SELECT snowflake_next_ids(5, 10000)");
        let reaching = std::iter::repeat_with(&mut batch).find(|ids| ids.last() >= Some(&repeated));
        let repeats = reaching.unwrap().contains(&repeated);
        assert!(repeats, "with {names}, the other standby repeats nothing, so the test shows nothing");
    }
}

/// idgen is dropped only if nothing is lost: a step that fails undoes the others, and the error names the dependents of
/// idgen. Then the mark is removed, on the standby too, and both servers start without room for it.
#[test]
fn idgen_is_removed() {
    const ROWS: &str = "SELECT (SELECT count(*) FROM kept WHERE shard = 5 AND idgen.shard_of(id) = 5),
        (SELECT count(*) FROM parted WHERE idgen.shard_of(id) = 5), (SELECT count(id) FROM of_domain)";
    let primary = Server::start(&["shared_preload_libraries = 'dict_snowball,idgen'"]);
    let standby = primary.standby("two");
    primary.run("CREATE DATABASE app");
    primary.connect_to("app").run(&enable("app"));
    let mut client = primary.connect_to("app");
    client.run(
        "CREATE TABLE kept (id bigint PRIMARY KEY DEFAULT snowflake_next_id(5),
                                shard integer GENERATED ALWAYS AS (shard_of(id)) STORED,
                                at timestamptz GENERATED ALWAYS AS (snowflake_time(id, '2025-01-01Z')) STORED, name text);
             CREATE INDEX ON kept (shard_of(id));
             CREATE DOMAIN key AS bigint DEFAULT snowflake_next_id(5);
             CREATE TABLE of_domain (id key, other key, n integer);
             CREATE TABLE parted (id bigint DEFAULT snowflake_next_id(5), other key)
                 PARTITION BY LIST (shard_of(id));
             CREATE TABLE parted_5 PARTITION OF parted FOR VALUES IN (5);
             CREATE TABLE by_domain (n bigint DEFAULT snowflake_next_id(5), id key) PARTITION BY RANGE (id);
             CREATE VIEW in_the_way AS SELECT snowflake_text(id) FROM kept;
             INSERT INTO kept (name) SELECT 'Ada' FROM generate_series(1, 100);
             INSERT INTO parted SELECT FROM generate_series(1, 100);
             INSERT INTO of_domain SELECT FROM generate_series(1, 100)",
    );
    let servers = [("one", &primary), ("two", &standby)];
    let mut book = Runbook::of("Removal", &servers);
    book.says(client.error("DROP EXTENSION idgen").message());
    // A dependent that the script cannot change, then a lock, and then each of its statements makes it fail.
    let all = "SELECT array_agg(concat_ws(' ', kind, object, statement)) FROM idgen.idgen_dependents";
    let changes_nothing = |book: &Runbook<'_>, client: &mut Client| {
        let before: Vec<String> = client.value(all);
        book.fails();
        assert_eq!(client.value::<Vec<String>>(all), before);
    };
    changes_nothing(&book, &mut client);
    client.run("DROP VIEW in_the_way");
    let mut holder = primary.connect_to("app");
    let mut transaction = holder.transaction().unwrap();
    transaction.run("LOCK kept IN ACCESS SHARE MODE");
    changes_nothing(&book, &mut client);
    drop(transaction);
    drop(holder);
    client.run(
        "CREATE FUNCTION public.fails() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''not now''; END'",
    );
    for tag in ["ALTER EXTENSION", "CREATE FUNCTION", "ALTER TABLE", "ALTER DOMAIN", "DROP EXTENSION"] {
        client.run(&format!(
            "CREATE EVENT TRIGGER fails ON ddl_command_start WHEN tag IN ('{tag}') EXECUTE FUNCTION public.fails()"
        ));
        changes_nothing(&book, &mut client);
        client.run("DROP EVENT TRIGGER fails");
    }
    assert!(client.value::<i64>("INSERT INTO kept VALUES (DEFAULT) RETURNING id") > 0);
    client.run("DELETE FROM kept WHERE name IS NULL");
    book.run();
    primary.run("DROP EXTENSION idgen");
    for server in [&standby, &primary] {
        run(server.shell(r#"sed -i "s/,idgen'/'/" "$PGDATA/postgresql.conf""#));
        server.restart();
        assert_eq!(server.value::<String>("SHOW shared_preload_libraries"), "dict_snowball");
    }
    let steps = ["CREATE EXTENSION idgen", "SELECT snowflake_remove_mark()", "DROP EXTENSION idgen"];
    steps.iter().for_each(|step| book.runs(&primary, step));

    let mut client = primary.connect_to("app");
    assert_eq!(client.row::<(i64, i64, i64)>(ROWS), (100, 100, 100));
    let left =
        "SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef UNION ALL SELECT extname FROM pg_extension";
    let left = client.column::<String>(left);
    assert!(left.iter().all(|what| ["shard_of(id)", "plpgsql"].contains(&what.as_str())), "{left:?}");
    let gone = "SELECT count(*) = 0 FROM pg_replication_origin_status WHERE local_id = 65534";
    for server in [&primary, &standby] {
        server.wait_until(gone);
    }
    primary.until_replayed_by(&standby);
    standby.run("CHECKPOINT");
    standby.stop("fast");
    for server in [&primary, &standby] {
        server.configure(&[&room_for(0)]);
    }
    primary.restart();
    standby.up();
}

/// Two servers, the first with the schema of shard 5.
fn for_a_move() -> (Server, Server) {
    let one = Server::start(&["idgen.allowed_shards = '0-9'"]);
    let two = Server::start(&[PRELOAD, "idgen.allowed_shards = '10-19'"]);
    run_as_owner(&one, TABLES);
    run_as_owner(&two, "");
    (one, two)
}

/// Mints an id of shard 5 in its schema.
fn inserts(server: &Server) {
    let insert = "INSERT INTO insta5.users DEFAULT VALUES RETURNING id";
    server.connect().query_one(insert, &[]).unwrap();
}

/// A move that was killed is undone, and one that was killed later is finished.
#[test]
fn a_move_that_broke_off() {
    let (one, two) = for_a_move();
    let servers = [("one", &one), ("two", &two)];
    let mut book = Runbook::of("A move that broke off", &servers);
    let file = fleet_file(&[&one, &two]).display().to_string();
    let program = format!("{}/set-list", one.host());
    let the_move = |others: &[&str]| {
        let servers = ["--from", "one", "--to", "two", "--owner", "user=app"];
        idgenctl(&[&["--fleet", &file, "--yes", "move", "insta5"], &servers[..], others].concat())
    };
    // The move is killed when it sets this list. Before, it tries the program with the current lists.
    let breaks_off = |list: &str, how: &str| {
        let script = format!(
            "#!/bin/sh\nif [ \"$1 $2\" = '{list}' ]; then kill -9 $PPID; exit; fi\n[ $1 = source ] || exit 0\n\
             psql -X -d '{}' -c \"ALTER SYSTEM SET idgen.allowed_shards = '$2'\" -c 'SELECT pg_reload_conf()'\n",
            one.target("postgres")
        );
        write_program(std::path::Path::new(&program), &script);
        assert_eq!(the_move(&["--set-list", &program]).output().unwrap().status.code(), None);
        fails(the_move(&[]), &[how]);
    };
    breaks_off("source 0-4,6-9", "--undo");
    book.run();
    inserts(&one);
    breaks_off("target 5,10-19", "--finish");
    book.run();
    inserts(&two);

    // A move the other way, of the database app, is killed while it copies, and its target is lost.
    two.run("DROP SCHEMA insta5 CASCADE");
    for server in [&one, &two] {
        server.run("CREATE DATABASE app OWNER app");
        server.connect_to("app").run("CREATE EXTENSION idgen; CREATE EXTENSION citext");
    }
    let mut client = two.connect_to("app");
    client.run("SET ROLE app; CREATE SCHEMA insta5; CREATE TABLE insta5.users (id bigint DEFAULT snowflake_next_id(5)); RESET ROLE");
    let copies = "#!/bin/bash -e\nPATH=${PATH#*:}\n[[ \" $*\" == *' --help'* || \" $*\" == *' --schema-only'* ]] || kill -9 $PPID\n\
                  exec pg_dump \"$@\"\n";
    write_program(&std::path::Path::new(&one.host()).join("pg_dump"), copies);
    let path = format!("{}:{}", one.host(), std::env::var("PATH").unwrap());
    let back = ["--from", &two.target("app"), "--to", &one.target("app"), "--owner", "user=app"];
    let mut back = idgenctl(&[&["--yes", "move", "insta5"], &back[..]].concat());
    assert_eq!(back.env("PATH", path).output().unwrap().status.code(), None);
    one.kill();
    two.alter("idgen.allowed_shards", "5,10-19");
    // The name is not that of the schema any more, and somebody has put an extension into the empty one that keeps it.
    client.run("ALTER SCHEMA insta5_moving RENAME TO away; CREATE SCHEMA insta5_moving; ALTER EXTENSION citext SET SCHEMA insta5");
    book.skip();
    let servers = [("one", &two)];
    let mut book = Runbook::of("A move that broke off", &servers);
    (0..2).for_each(|_| book.skip());
    book.run();
    client.run("INSERT INTO insta5.users DEFAULT VALUES");
}
