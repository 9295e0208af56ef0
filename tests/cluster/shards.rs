//! Promises 1 and 2 while clients write and idgen takes a logical shard over from the PL/pgSQL function that minted
//! before (docs/examples/from-plpgsql.sql), and while a schema gets another shard.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use postgres::Client;

use crate::clients::{Ledger, Load, MINT, TABLES, assert_rows, longest_outage};
use crate::moment::is_reached;
use crate::process::{assert_says, major_version, refused, run, said};
use crate::server::{Server, Sql};

/// If two sessions assign one shard to two schemas at once, one of them is refused. A call that would have to wait for
/// a table longer than lock_timeout changes nothing.
#[test]
fn a_shard_is_assigned_to_one_schema_only() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.run(
        "CREATE SCHEMA one; CREATE TABLE one.a (id bigint DEFAULT snowflake_next_id(1));
             CREATE TABLE one.b (id bigint DEFAULT snowflake_next_id(1));
             CREATE SCHEMA two; CREATE TABLE two.a (id bigint DEFAULT snowflake_next_id(2));",
    );
    let mut first = server.connect();
    let mut first = first.transaction().unwrap();
    assert_eq!(first.query("SELECT snowflake_assign_shard('one', 7)", &[]).unwrap().len(), 2);
    let mut second = server.connect();
    let waiter = thread::spawn(move || second.code("SELECT snowflake_assign_shard('two', 7)"));
    let waits = "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'advisory'";
    assert!(is_reached(60, || waiter.is_finished() || server.answer(waits)), "the second call hangs");
    assert!(!waiter.is_finished(), "the second call does not wait for the end of the first one");
    first.commit().unwrap();
    assert_eq!(waiter.join().unwrap(), "55006");

    let mut reader = server.connect();
    let mut reader = reader.transaction().unwrap();
    reader.query("SELECT FROM one.a", &[]).unwrap();
    client.run("SET lock_timeout = '100ms'");
    assert_eq!(client.code("SELECT snowflake_assign_shard('one', 8)"), "55P03");
    // Reading the columns takes no lock on their tables.
    reader.run("LOCK TABLE one.a");
    let shards = "SELECT DISTINCT shard FROM idgen_columns WHERE schema = 'one'";
    client.query_one(shards, &[]).unwrap();
    reader.commit().unwrap();
    assert_eq!(client.value::<i32>(shards), 7);
}

/// While the call waits for a table, the schema of the extension is renamed and another one gets its name: the call
/// uses nothing in that one. While the call waits for a view, another view takes its place, or another schema with such
/// a function takes the place of the extension's: the call changes nothing.
#[test]
fn names_change_while_a_shard_is_assigned() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.run(
        "DROP EXTENSION idgen; CREATE SCHEMA ids; CREATE EXTENSION idgen SCHEMA ids; CREATE ROLE mallory;
             CREATE SCHEMA insta5; CREATE TABLE insta5.users (id bigint DEFAULT ids.snowflake_next_id(5));
             CREATE VIEW insta5.names AS SELECT * FROM insta5.users;
             ALTER VIEW insta5.names ALTER id SET DEFAULT ids.snowflake_next_id(5)",
    );
    let waiting = "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'relation'";
    let during = |locked: &str, change: &str| {
        let mut holder = server.connect();
        let mut holder = holder.transaction().unwrap();
        holder.run(locked);
        let mut caller = server.connect();
        let caller = thread::spawn(move || caller.code("SELECT ids.snowflake_assign_shard('insta5', 7)"));
        server.wait_until(waiting);
        holder.run(change);
        holder.commit().unwrap();
        caller.join().unwrap()
    };
    let another =
        "ALTER VIEW insta5.names RENAME TO others; CREATE VIEW insta5.names AS SELECT bigint '1' AS id";
    assert_eq!(during(another, ""), "40001");
    assert_eq!(client.value::<i32>("SELECT DISTINCT shard FROM ids.idgen_columns"), 5);

    let replace = |function: &str| {
        format!(
            "ALTER SCHEMA ids RENAME TO moved; CREATE SCHEMA ids AUTHORIZATION mallory; SET LOCAL ROLE mallory;
             CREATE FUNCTION ids.{function}"
        )
    };
    let another = replace("snowflake_next_id(integer) RETURNS bigint LANGUAGE sql AS 'SELECT bigint ''1'''");
    assert_eq!(
        during("ALTER VIEW insta5.others ALTER id SET DEFAULT ids.snowflake_next_id(5)", &another),
        "40001"
    );
    client.run("DROP SCHEMA ids CASCADE; ALTER SCHEMA moved RENAME TO ids");
    assert_eq!(client.value::<i32>("SELECT DISTINCT shard FROM ids.idgen_columns"), 5);

    client.run("DROP VIEW insta5.names, insta5.others");
    let another = replace(
        "idgen_columns(
             OUT \"schema\" text, OUT \"table\" text, OUT \"column\" text, OUT shard integer,
             OUT expression text, OUT template text, OUT relation oid, OUT max_shard integer,
             OUT namespace oid) RETURNS SETOF record LANGUAGE plpgsql AS
             'BEGIN RAISE ''called by %'', current_user; END'",
    );
    assert_eq!(during("LOCK TABLE ONLY insta5.users", &another), "55000");
}

/// A schema gets another shard while clients write. No id occurs twice, and after the call no row gets an id of the
/// previous shard.
#[test]
fn a_schema_gets_another_shard_under_load() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.run(TABLES);
    let greatest = |client: &mut Client| -> i64 {
        let sql =
            "SELECT max(id) FROM (SELECT id FROM insta5.users UNION ALL SELECT id FROM insta5.photos) AS ids
                   WHERE shard_of(id) = 5";
        client.value(sql)
    };
    let mut last = 0;
    let diaries = Load { servers: &[&server], mint: "snowflake_next_id(7)", retried: &[] }.during(|| {
        client.run("SET lock_timeout = '900ms'");
        let start = Instant::now();
        while let Err(error) = client.query("SELECT snowflake_assign_shard('insta5', 7)", &[]) {
            assert_eq!(error.code().unwrap().code(), "55P03", "{error:?}");
            assert!(start.elapsed() < Duration::from_secs(60));
            thread::sleep(Duration::from_millis(100));
        }
        last = greatest(&mut client);
    });
    assert_rows(&server, &diaries);
    let mut ledger = Ledger::default();
    diaries.iter().for_each(|diary| ledger.add(&diary.ids()));
    assert_eq!(greatest(&mut client), last);
    assert!(diaries.iter().flat_map(|diary| &diary.rows).any(|id| id >> 10 & 8191 == 7));
}

/// The function of Instagram's article, with a sequence of which each session caches three numbers.
const OLD_FUNCTION: &str =
    concat!(include_str!("../../benches/instagram.sql"), "ALTER SEQUENCE insta5.table_id_seq CACHE 3;");

/// A server with the function and its epoch.
fn server_with_the_function(settings: &[&str]) -> (Server, Client) {
    let server = Server::start(&[&["idgen.epoch = 1314220021721"], settings].concat());
    let mut client = server.connect();
    client.run(OLD_FUNCTION);
    (server, client)
}

fn take_over(server: &Server) -> Command {
    take_over_of(server, "insta5.next_id", "insta5.table_id_seq", "5")
}

fn take_over_of(server: &Server, function: &str, sequence: &str, shard: &str) -> Command {
    let variables = [("function", function), ("sequence", sequence), ("shard", shard)];
    server.psql("from-plpgsql.sql", &variables)
}

/// idgen takes a shard over from the function while clients call the function and insert rows with it. The ids of idgen
/// are greater than all ids of the function, and none occurs twice.
#[test]
fn the_plpgsql_function_is_replaced_under_load() {
    replace_the_function_under_load(0.0);
}

/// The tables have ids from the future, because the clock was eight seconds fast before it was corrected.
#[test]
fn the_plpgsql_function_is_replaced_after_the_clock_was_set_back() {
    replace_the_function_under_load(8.0);
}

fn replace_the_function_under_load(ahead: f64) {
    let server = Server::start(&["idgen.epoch = 1314220021721", "idgen.max_ahead = 20s"]);
    server.set_clock(ahead);
    let mut client = server.connect();
    client.run(OLD_FUNCTION);
    client.run(&TABLES.replace("CREATE SCHEMA insta5;", "").replace(MINT, "insta5.next_id()"));
    let mut told = String::new();
    // A call that waits for the sequence gets 2200H. Ids that the old function itself repeats cause 23505, or 40P01 if
    // two transactions wait for each other.
    let load = Load { servers: &[&server], mint: "insta5.next_id()", retried: &["2200H", "23505", "40P01"] };
    let mut last_id = 0;
    let diaries = load.during(|| {
        server.set_clock(0.0);
        // In a transaction in which it has made an id, the function can make another.
        let mut client = server.connect();
        let mut transaction = client.transaction().unwrap();
        transaction.query_one("SELECT insta5.next_id()", &[]).unwrap();
        thread::scope(|scope| {
            let script = scope.spawn(|| run(take_over(&server)));
            thread::sleep(Duration::from_secs(1));
            last_id = transaction.value("SELECT insta5.next_id()");
            transaction.commit().unwrap();
            told = String::from_utf8(script.join().unwrap().stderr).unwrap();
        });
    });
    let retried: usize = diaries.iter().map(|diary| diary.retried).sum();
    println!("{told}{retried} transactions tried again, the longest outage {:?}", longest_outage(&diaries));
    let past: i64 = told.trim().rsplit(' ').next().unwrap().parse().unwrap();

    assert_rows(&server, &diaries);
    assert!(last_id <= past, "the function was replaced before its transactions had ended");
    let mut ledger = Ledger::default();
    for diary in &diaries {
        let ids = diary.ids();
        let (old, new) = ids.split_at(ids.iter().position(|id| *id > past).unwrap());
        assert!(old.len() > 20 && new.len() > 20, "{} of the function, {} of idgen", old.len(), new.len());
        let are_new = new.iter().all(|id| *id > past && id >> 10 & 8191 == 5);
        assert!(are_new, "an id of the function, or of another shard");
        ledger.add(new);
    }
    let columns = "SELECT \"table\", shard FROM idgen_columns WHERE schema = 'insta5' ORDER BY 1";
    assert_eq!(client.rows::<(String, i32)>(columns), [("photos".into(), 5), ("users".into(), 5)]);
    assert_says(&said(&run(take_over(&server))), &["already mints ids with idgen"]);
    let id: i64 = client.value("SELECT insta5.next_id()");
    assert!(id > past);
    ledger.add(&[id]);
}

/// A function of another epoch is not taken over, and continues.
#[test]
fn a_function_that_does_not_fit_is_left_alone() {
    let server = Server::start(&[]);
    server.run(OLD_FUNCTION);
    refused(take_over(&server), &["Set idgen.epoch to the epoch of the function"]);
    let id: i64 = server.value("SELECT insta5.next_id()");
    assert!(id > 1 << 60, "still of the function");

    // A wrong sequence, which another shard uses, is not ended, so that the right one can be tried next.
    let (server, mut client) = server_with_the_function(&[]);
    client.run("CREATE SEQUENCE insta5.other;
             CREATE FUNCTION insta5.clock() RETURNS bigint LANGUAGE sql AS
                 'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint - 1314220021721 << 23 | 5 << 10'");
    client.run(
        &function_of("reader", "(time << 23) | (5 << 10) | n % 1024")
            .replace("nextval('insta5.table_id_seq')", "last_value FROM insta5.other"),
    );
    let with = |function: &str, sequence: &str| take_over_of(&server, function, sequence, "5");
    let its_own = "insta5.next_id does not use sequence insta5.other";
    refused(with("insta5.next_id", "insta5.other"), &[its_own, "It uses insta5.table_id_seq."]);
    refused(with("insta5.clock", "insta5.other"), &["insta5.clock uses no sequence"]);
    refused(with("insta5.reader", "insta5.other"), &["insta5.reader uses no sequence"]);
    refused(with("insta5.nothing", "insta5.other"), &["function insta5.nothing() does not exist"]);
    for sequence in ["insta5.other", "insta5.table_id_seq"] {
        client.query_one(&format!("SELECT nextval('{sequence}')"), &[]).unwrap();
    }
    client.query_one("SELECT insta5.next_id()", &[]).unwrap();

    // A function is left alone if its callers could no longer mint.
    client.run(
        "REVOKE EXECUTE ON FUNCTION snowflake_next_id(integer) FROM PUBLIC;
             CREATE ROLE \"Inserts by it\";
             GRANT USAGE ON SCHEMA insta5 TO \"Inserts by it\";
             CREATE TABLE insta5.likes (id bigint DEFAULT insta5.next_id());
             GRANT INSERT ON insta5.likes TO \"Inserts by it\"",
    );
    refused(take_over(&server), &["may not mint with idgen: \"Inserts by it\""]);
    client.run("GRANT EXECUTE ON FUNCTION snowflake_next_id(integer) TO \"Inserts by it\"");
    run(take_over(&server));
    client.run("SET ROLE \"Inserts by it\"; INSERT INTO insta5.likes DEFAULT VALUES");

    // So is one whose shard the server may not mint for.
    let (server, mut client) = server_with_the_function(&["idgen.allowed_shards = '6'"]);
    refused(take_over(&server), &["may not mint ids for shard 5"]);
    client.query_one("SELECT insta5.next_id()", &[]).unwrap();
}

/// A function of Instagram's kind. `id` is the expression of an id from `time` and `n`, the number of the sequence.
fn function_of(name: &str, id: &str) -> String {
    format!(
        "CREATE OR REPLACE FUNCTION insta5.{name}() RETURNS bigint LANGUAGE plpgsql AS $$
         DECLARE
             n bigint := nextval('insta5.table_id_seq');
             time bigint := floor(extract(epoch FROM clock_timestamp()) * 1000) - 1314220021721;
         BEGIN
             RETURN {id};
         END $$"
    )
}

/// A function whose ids have another layout is refused for that reason and continues, whatever the epoch, the shard and
/// the current number of its sequence. The advice leads to no other refusal.
#[test]
fn a_function_of_another_layout_is_left_alone() {
    let functions = [
        ("bits_22", "(time << 22) | (5 << 12) | n % 4096", ["4", "5"]),
        ("bits_21", "(time << 21) | (5 << 11) | n % 2048", ["4", "5"]),
        ("shard_last", "(time << 23) | (n % 8192 << 10) | 5", ["4", "5"]),
        ("into_the_shard", "(time << 23) | (4 << 10) | n % 2048", ["4", "5"]),
        ("added_to_the_shard", "(time << 23) + (5 << 10) + n % 2048", ["4", "5"]),
        // Number 1 gives shard 8, and so does every number that is the same modulo 1024.
        ("shard_lowest", "(time << 23) | (n % 1024 << 13) | 5", ["8", "5"]),
        ("shard_of_the_number", "(time << 23) | (n % 4 << 10) | n % 1024", ["1", "2"]),
        ("number_nowhere", "(time << 23) | (5 << 10) | n % 1024 / 2", ["4", "5"]),
    ];
    let layout = "are not laid out as those of idgen";
    let by_hand = "Replace it by hand";
    let take_over = |server: &Server, name: &str, shard: &str| {
        take_over_of(server, &format!("insta5.{name}"), "insta5.table_id_seq", shard)
    };
    for epoch in ["1314220021721", "2025-01-01T00:00:00Z"] {
        let server = Server::start(&[&format!("idgen.epoch = '{epoch}'")]);
        let mut client = server.connect();
        client.run(OLD_FUNCTION);
        // Neither number reaches into the shard.
        client.run("SELECT setval('insta5.table_id_seq', 2048)");
        for (name, id, shards) in functions {
            client.run(&function_of(name, id));
            let before: i64 = client.value("SELECT last_value FROM insta5.table_id_seq");
            for shard in shards {
                refused(
                    take_over(&server, name, shard),
                    &[&format!("ids of insta5.{name} {layout}"), by_hand],
                );
            }
            let state = "SELECT seqmax = 9223372036854775807, last_value - $1 BETWEEN 0 AND 12
                         FROM insta5.table_id_seq, pg_sequence WHERE seqrelid = 'insta5.table_id_seq'::regclass";
            let row = client.query_one(state, &[&before]).unwrap();
            assert_eq!((row.get(0), row.get(1)), (true, true), "{name}: the sequence is as before");
        }
        // Without time bits in their place, the epoch shows in which bits the time is. With another epoch, the shard
        // may show that it is not in its place, as it includes a bit of the time.
        client.run(&function_of("ten_bits", "(time << 22) | (5 << 10) | n % 1024"));
        let advice = if epoch.starts_with('1') { "has 22 bits below the time" } else { "" };
        refused(take_over(&server, "ten_bits", "5"), &[advice, "by hand"]);
    }

    let (server, mut client) = server_with_the_function(&[]);
    refused(
        take_over(&server, "next_id", "6"),
        &["an id of insta5.next_id has shard 5", "to take over shard 6"],
    );
    // The number may set a bit of the shard that is always set, or end before it reaches the shard.
    client.run(&function_of("odd", "(time << 23) | (5 << 10) | n % 2048"));
    run(take_over(&server, "odd", "5"));
    client.run("CREATE SEQUENCE insta5.short MAXVALUE 1023 CYCLE");
    client.run(&function_of("short", "(time << 23) | (4 << 10) | n").replace("table_id_seq", "short"));
    run(take_over_of(&server, "insta5.short", "insta5.short", "4"));
    let shards = "SELECT shard_of(insta5.odd()), shard_of(insta5.short())";
    assert_eq!(client.row::<(i32, i32)>(shards), (5, 4));
}

/// A function whose body only contains the name of idgen's function passes through all checks, and is replaced. If the
/// script broke off, the next run changes the remaining defaults, if the shard is the same and their roles may mint.
#[test]
fn only_a_function_of_idgen_is_taken_for_one() {
    let server = Server::start(&["idgen.epoch = 1314220021721"]);
    let mut client = server.connect();
    let named = |text: &str| text.replace("table_id_seq", "snowflake_next_id_seq");
    client.run(&named(OLD_FUNCTION));
    client.run(&named(&function_of("copy", "(time << 23) | (5 << 10) | n % 1024")));
    client.run(&named(&function_of("early", "(time + 3600000 << 23) | (5 << 10) | n % 1024")));
    let take_over =
        |function: &str, shard: &str| take_over_of(&server, function, "insta5.snowflake_next_id_seq", shard);
    refused(take_over("insta5.early", "5"), &["counts from another time than idgen.epoch"]);
    refused(take_over("insta5.next_id", "77"), &["an id of insta5.next_id has shard 5"]);
    let old: i64 = client.value("SELECT insta5.next_id()");
    run(take_over("insta5.next_id()", "5"));
    assert!(client.value::<i64>("SELECT insta5.next_id()") > old);
    assert_eq!(client.code("SELECT insta5.copy()"), "2200H");

    client.run("CREATE TABLE insta5.late (id bigint DEFAULT insta5.next_id())");
    let default = "SELECT pg_get_expr(adbin, 0) FROM pg_attrdef WHERE adrelid = 'insta5.late'::regclass";
    refused(take_over("insta5.next_id", "77"), &["mints ids with idgen, for shard 5", "take over shard 77"]);
    client.run(
        "REVOKE EXECUTE ON FUNCTION snowflake_next_id(integer) FROM PUBLIC; CREATE ROLE app;
             GRANT USAGE ON SCHEMA insta5 TO app; GRANT INSERT ON insta5.late TO app",
    );
    refused(take_over("insta5.next_id", "5"), &["may not mint with idgen: app"]);
    assert_eq!(client.value::<String>(default), "insta5.next_id()");
    client.run("GRANT EXECUTE ON FUNCTION snowflake_next_id(integer) TO app");
    run(take_over("insta5.next_id", "5"));
    assert_eq!(client.value::<String>(default), "snowflake_next_id(5)");
}

/// A function whose epoch is off by a minute is refused. A function that uses the time of the transaction is not,
/// however long the script has waited for a lock, unless the clock was set back in the meantime.
#[test]
fn the_time_of_a_function_is_that_of_the_call_or_the_transaction() {
    let (server, mut client) = server_with_the_function(&[]);
    let another_time = "counts from another time than idgen.epoch";
    client.run(&function_of("ahead", "(time + 59000 << 23) | (5 << 10) | n % 1024"));
    refused(take_over_of(&server, "insta5.ahead", "insta5.table_id_seq", "5"), &[another_time]);
    client.query_one("SELECT insta5.ahead()", &[]).unwrap();

    let clock_timestamp = function_of("id", "(time << 23) | (5 << 10) | n % 1024");
    let now = clock_timestamp.replace("clock_timestamp", "now");
    let after_wait = |function: &str, seconds: f64| {
        server.run(function);
        let mut holder = server.connect();
        let mut holder = holder.transaction().unwrap();
        holder.query_one("SELECT insta5.id()", &[]).unwrap();
        thread::scope(|scope| {
            let script = scope
                .spawn(|| take_over_of(&server, "insta5.id", "insta5.table_id_seq", "5").output().unwrap());
            server.wait_until("SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'relation'");
            server.set_clock(seconds);
            holder.commit().unwrap();
            script.join().unwrap()
        })
    };
    let output = after_wait(&clock_timestamp, -30.0);
    assert!(said(&output).contains("the clock was set back"), "{}", said(&output));
    let old: i64 = client.value("SELECT insta5.id()");
    let output = after_wait(&now, 90.0);
    assert!(output.status.success(), "{}", said(&output));
    assert!(client.value::<i64>("SELECT insta5.id()") > old);
}

/// The script ends a sequence for good, even over a crash, whatever its direction and limits. If the change fails
/// afterwards, the sequence continues.
#[test]
fn every_kind_of_sequence_is_ended() {
    let server = Server::start(&["idgen.epoch = 1314220021721", "idgen.allowed_shards = '6'"]);
    let mut client = server.connect();
    client.run("CREATE SCHEMA insta5");
    let mut kinds = vec![
        "CREATE SEQUENCE % INCREMENT -1 MINVALUE 1 MAXVALUE 1000000 START 1; ALTER SEQUENCE % RESTART 1000",
        "CREATE SEQUENCE % INCREMENT -1 MINVALUE 0 MAXVALUE 1023 CYCLE CACHE 3",
        "CREATE SEQUENCE % START 500; ALTER SEQUENCE % RESTART 100",
        "CREATE SEQUENCE % MINVALUE 0 MAXVALUE 1023 CYCLE START 1022",
        "CREATE SEQUENCE % AS smallint CYCLE CACHE 3",
    ];
    if major_version() >= 15 {
        kinds.push("CREATE UNLOGGED SEQUENCE % CACHE 3");
    }
    let copies: Vec<String> =
        (0..kinds.len()).map(|number| format!("SELECT insta5.copy_{number}()")).collect();
    for (number, kind) in kinds.iter().enumerate() {
        let sequence = format!("insta5.sequence_{number}");
        client.run(&kind.replace('%', &sequence));
        for name in ["id", "copy"] {
            let function = function_of(&format!("{name}_{number}"), "(time << 23) | (5 << 10) | n % 1024");
            client.run(&function.replace("insta5.table_id_seq", &sequence));
        }
        let what =
            format!("SELECT to_jsonb(s)::text FROM pg_sequence AS s WHERE seqrelid = '{sequence}'::regclass");
        let before: String = client.value(&what);
        let first: i64 = client.value(&format!("SELECT nextval('{sequence}')"));
        let take_over = || take_over_of(&server, &format!("insta5.id_{number}"), &sequence, "5");
        refused(take_over(), &["may not mint ids for shard 5"]);
        assert_eq!(client.value::<String>(&what), before);
        let next: i64 = server.value(&format!("SELECT nextval('{sequence}')"));
        assert!((1..=1022).contains(&first.abs_diff(next)), "{kind}: {next} after {first}");
    }
    server.set("idgen.allowed_shards", "5");
    for (number, copy) in copies.iter().enumerate() {
        let (function, sequence) = (format!("insta5.id_{number}"), format!("insta5.sequence_{number}"));
        let old: i64 = client.value(copy);
        run(take_over_of(&server, &function, &sequence, "5"));
        assert!(client.value::<i64>(&format!("SELECT {function}()")) > old);
        assert_eq!(client.code(copy), "2200H", "{:?}", kinds[number]);
    }
    server.crash();
    for (copy, kind) in copies.iter().zip(kinds) {
        assert_eq!(server.code(copy), "2200H", "{kind:?}");
    }
}

/// A sequence that columns or a domain use is not ended.
#[test]
fn a_sequence_that_others_need_goes_on() {
    let (server, mut client) = server_with_the_function(&[]);
    client.run(
        "CREATE TABLE insta5.notes (id bigint DEFAULT insta5.next_id(),
                                    number integer DEFAULT nextval('insta5.table_id_seq'));
         CREATE DOMAIN insta5.number AS bigint DEFAULT nextval('insta5.table_id_seq');
         CREATE TABLE insta5.lists (id bigint GENERATED ALWAYS AS IDENTITY)",
    );
    client.run(
        &function_of("of_lists", "(time << 23) | (5 << 10) | n % 1024")
            .replace("table_id_seq", "lists_id_seq"),
    );
    let so_would_break =
        ["would break: ", "default value for column number of table insta5.notes", "type insta5.number"];
    refused(take_over(&server), &so_would_break);
    let lists = take_over_of(&server, "insta5.of_lists", "insta5.lists_id_seq", "5");
    refused(lists, &["would break: column id of table insta5.lists."]);
    client.run("INSERT INTO insta5.notes DEFAULT VALUES; INSERT INTO insta5.lists DEFAULT VALUES");
    client.run("ALTER TABLE insta5.notes ALTER number DROP DEFAULT; DROP DOMAIN insta5.number");
    // A serial column owns its sequence, but no longer needs it.
    client.run("ALTER SEQUENCE insta5.table_id_seq OWNED BY insta5.notes.id");
    run(take_over(&server));
}

/// Ids in rows that row-level security hides from the owner of a table count too.
#[test]
fn a_function_is_replaced_beside_hidden_rows() {
    let (server, mut client) = server_with_the_function(&["idgen.max_ahead = 1h"]);
    client.run(
        "CREATE ROLE app LOGIN; GRANT EXECUTE ON FUNCTION snowflake_advance TO app;
             CREATE TABLE insta5.users (id bigint PRIMARY KEY DEFAULT insta5.next_id());
             INSERT INTO insta5.users SELECT insta5.next_id() + (60000::bigint << 23);
             ALTER TABLE insta5.users ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
             ALTER SCHEMA insta5 OWNER TO app; ALTER SEQUENCE insta5.table_id_seq OWNER TO app;
             ALTER FUNCTION insta5.next_id() OWNER TO app; ALTER TABLE insta5.users OWNER TO app",
    );
    let greatest: i64 = client.value("SELECT max(id) FROM insta5.users");
    let take_over = |options: &[&str]| {
        let mut as_app = take_over(&server);
        as_app.args(["-d", &server.target_as("app")]).args(options);
        as_app
    };
    refused(take_over(&[]), &["or have row-level security: insta5.users", "-v past=ID"]);

    // The statements in the head of the file.
    let head = include_str!("../../docs/examples/from-plpgsql.sql");
    let line =
        head.lines().find(|line| line.contains("NO FORCE ROW LEVEL SECURITY")).expect("the statements");
    let (begin, rest) = line.split_once("SELECT").expect("a query");
    let (query, rollback) = rest.split_once(';').expect("its end");
    let mut app = server.connect_as("app");
    app.run(begin.trim_start_matches("--"));
    let past: i64 = app.value(&format!("SELECT {query}"));
    app.run(rollback);
    assert_eq!(past, greatest);
    run(take_over(&["-v", &format!("past={past}")]));
    assert!(client.value::<i64>("SELECT insta5.next_id()") > greatest);
}

/// A function with arguments that uses a sequence for each table is taken over table by table, as the head of the file
/// says.
#[test]
fn a_function_with_arguments_is_taken_over_by_one_without() {
    let server = Server::start(&["idgen.epoch = 1314220021721"]);
    let mut client = server.connect();
    client.run(
        "CREATE SCHEMA insta5; CREATE SEQUENCE insta5.users_id_seq; CREATE SEQUENCE insta5.notes_id_seq;
         CREATE FUNCTION insta5.next_id(table_name text) RETURNS bigint LANGUAGE plpgsql AS $$
         BEGIN
             RETURN (floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - 1314220021721 << 23) | (5 << 10)
                    | nextval(format('insta5.%s_id_seq', table_name)) % 1024;
         END $$;
         CREATE TABLE insta5.users (id bigint PRIMARY KEY DEFAULT insta5.next_id('users'));
         CREATE TABLE insta5.notes (id bigint PRIMARY KEY DEFAULT insta5.next_id('notes'))",
    );
    let take_over = |function: &str| take_over_of(&server, function, "insta5.users_id_seq", "5");
    let takes_arguments = ["function insta5.next_id takes arguments", "There is insta5.next_id(text)."];
    refused(take_over("insta5.next_id"), &takes_arguments);
    refused(take_over("insta5.next_id(text)"), &["takes arguments", takes_arguments[1]]);

    let head = include_str!("../../docs/examples/from-plpgsql.sql");
    let (_, wrapper) = head.split_once("--     CREATE FUNCTION").expect("the statement");
    let (wrapper, _) = wrapper.split_once("END $$;").expect("its end");
    client.run(&format!("CREATE FUNCTION{}END $$", wrapper.replace("\n--", "\n")));
    client.run("ALTER TABLE insta5.users ALTER id SET DEFAULT insta5.users_next_id()");
    let old: i64 = client.value("INSERT INTO insta5.users DEFAULT VALUES RETURNING id");
    run(take_over("insta5.users_next_id"));
    let new: i64 = client.value("INSERT INTO insta5.users DEFAULT VALUES RETURNING id");
    assert!(new > old && new >> 10 & 8191 == 5);
    assert_eq!(client.code("SELECT insta5.next_id('users')"), "2200H");
    client.run("INSERT INTO insta5.notes DEFAULT VALUES");
}

/// The script, run by a superuser, refuses a schema of the extension in which other roles may create objects. It does
/// not call the operators that they have left there, which match the types exactly and so would precede PostgreSQL's
/// own.
#[test]
fn a_function_is_replaced_beside_hostile_operators() {
    let server = Server::start(&["idgen.epoch = 1314220021721"]);
    let mut client = server.connect();
    client.run("DROP EXTENSION idgen; CREATE EXTENSION idgen SCHEMA public");
    client.run(OLD_FUNCTION);
    client.run("CREATE ROLE mallory; GRANT CREATE ON SCHEMA public TO mallory; SET ROLE mallory");
    for (n, (left, operator, right)) in [
        ("oid", "=", "regclass"),
        ("oid", "=", "regproc"),
        ("oid", "<>", "regtype"),
        ("oid", "=", "regtype"),
        ("regclass", "<>", "regclass"),
        ("bigint", "<>", "integer"),
        ("integer", "<>", "integer"),
        ("bigint", "<=", "bigint"),
    ]
    .into_iter()
    .enumerate()
    {
        client.run(&format!(
                "CREATE FUNCTION public.steal{n}({left}, {right}) RETURNS boolean LANGUAGE plpgsql AS
                     'BEGIN RAISE ''stolen as % by {left} {operator} {right}'', current_user; END';
                 CREATE OPERATOR public.{operator} (FUNCTION = public.steal{n}, LEFTARG = {left}, RIGHTARG = {right})"
            ));
    }
    client.run("RESET ROLE");
    refused(take_over(&server), &["can change schema public of idgen", "in the place of idgen: mallory."]);
    client.run("REVOKE CREATE ON SCHEMA public FROM mallory");

    // The search_path of the function leads to such an operator.
    client.run("CREATE SCHEMA theirs; GRANT USAGE ON SCHEMA theirs TO PUBLIC; GRANT CREATE ON SCHEMA theirs TO mallory");
    client.run(
        "CREATE FUNCTION theirs.steal(bigint, integer) RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RAISE ''stolen''; END';
         CREATE OPERATOR theirs.% (FUNCTION = theirs.steal, LEFTARG = bigint, RIGHTARG = integer);
         ALTER FUNCTION insta5.next_id() SET search_path = theirs, pg_catalog",
    );
    refused(take_over(&server), &["search_path of function insta5.next_id", "mallory in schema theirs."]);
    client.run("ALTER FUNCTION insta5.next_id() SET search_path = pg_catalog, public, insta5");
    run(take_over(&server));
}

/// Other roles may have the function as the default of a view, of a table with an index, or of a table that takes the
/// place of another one. Reading these would run their code as a superuser, so the script asks for the greatest id.
#[test]
fn a_function_is_replaced_beside_hostile_tables() {
    let (server, mut client) = server_with_the_function(&["idgen.max_ahead = 1h"]);
    client.run("CREATE ROLE mallory; CREATE SCHEMA mallory AUTHORIZATION mallory; GRANT USAGE ON SCHEMA insta5 TO mallory;
             GRANT USAGE ON SEQUENCE insta5.table_id_seq TO mallory; SET ROLE mallory;
             CREATE FUNCTION mallory.steal() RETURNS bigint LANGUAGE plpgsql AS
                 'BEGIN IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
                            ALTER ROLE mallory SUPERUSER;
                        END IF;
                        RETURN 1; END';
             CREATE FUNCTION mallory.trap() RETURNS bigint IMMUTABLE LANGUAGE plpgsql AS
                 'BEGIN RETURN mallory.steal(); END';
             CREATE VIEW mallory.view AS SELECT mallory.trap() AS id;
             ALTER VIEW mallory.view ALTER id SET DEFAULT insta5.next_id();
             CREATE TABLE mallory.indexed (id bigint DEFAULT insta5.next_id());
             CREATE INDEX ON mallory.indexed (mallory.trap());
             CREATE TABLE mallory.nested (id bigint);
             DO $$ BEGIN EXECUTE format('ALTER TABLE mallory.nested ALTER id SET DEFAULT %s insta5.next_id() %s',
                                        repeat('abs(', 1000), repeat(')', 1000)); END $$;
             RESET ROLE;
             CREATE TABLE mallory.of_superuser (id bigint DEFAULT insta5.next_id());");
    let unread = "row-level security: mallory.indexed, mallory.nested, mallory.of_superuser";
    refused(take_over(&server), &[unread]);
    let past = client.value::<i64>("SELECT insta5.next_id() + (60000::bigint << 23)");
    let mut informed = take_over(&server);
    informed.args(["-v", &format!("past={past}")]);
    assert_says(&said(&run(informed)), &["mallory.nested.id DEFAULT (too long to be printed)"]);
    assert!(client.value::<i64>("SELECT insta5.next_id()") > past);
    server.assert_ordinary("mallory");
    let minting = "SELECT count(*) FROM idgen_columns WHERE schema = 'mallory' AND shard = 5";
    assert_eq!(server.answer::<i64>(minting), 3);
}

/// Only the body of the function changes: its privileges, its settings and other functions of its name stay.
#[test]
fn a_replaced_function_keeps_what_it_is() {
    let (server, mut client) = server_with_the_function(&[]);
    client.run("CREATE FUNCTION insta5.next_id(shard integer) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint';
             CREATE ROLE app; CREATE ROLE inserts;
             ALTER FUNCTION insta5.next_id() SECURITY DEFINER;
             ALTER FUNCTION insta5.next_id() SET search_path = pg_catalog, \"$user\", insta5;
             ALTER FUNCTION insta5.next_id() SET statement_timeout = '7s';
             ALTER FUNCTION insta5.next_id() PARALLEL RESTRICTED COST 77 STRICT;
             ALTER FUNCTION insta5.next_id() OWNER TO app;
             REVOKE EXECUTE ON FUNCTION insta5.next_id() FROM PUBLIC;
             GRANT EXECUTE ON FUNCTION insta5.next_id() TO inserts;
             GRANT USAGE ON SCHEMA insta5 TO inserts;
             ALTER ROLE app LOGIN; ALTER SCHEMA insta5 OWNER TO app; ALTER SEQUENCE insta5.table_id_seq OWNER TO app");
    let what = "SELECT (to_jsonb(p) - 'prosrc')::text FROM pg_proc AS p WHERE oid = 'insta5.next_id()'::regprocedure";
    let before: String = client.value(what);
    // The script would call the function as a superuser.
    let foreign =
        "function insta5.next_id of app, sequence insta5.table_id_seq of app, schema insta5 of app.";
    refused(take_over(&server), &["belong to a role that may not do all that you may", foreign]);
    client.run("GRANT EXECUTE ON FUNCTION snowflake_advance TO app");
    let mut as_owner = take_over(&server);
    as_owner.args(["-d", &server.target_as("app")]);
    run(as_owner);
    assert_eq!(client.value::<String>(what), before);
    client.run("SET ROLE inserts");
    assert_eq!(client.value::<i32>("SELECT (insta5.next_id() >> 10 & 8191)::integer"), 5);
    assert_eq!(client.value::<i64>("SELECT insta5.next_id(1)"), 1);
}
