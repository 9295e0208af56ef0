//! docs/coming-from.md, by its own text: the ways in batches under clients, and what takes another server or package.

use std::collections::{BTreeMap, HashSet};
use std::io::Write;
use std::process::{Child, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use postgres::{Client, Error, IsolationLevel};

use crate::clients::at_work;
use crate::moment::{is_reached, within_seconds};
use crate::process::{assert_says, client_program, lacks, refused, run, said, top};
use crate::server::{PRELOAD, Server, Sql};

const FILL_ID: &str = include_str!("../../docs/examples/fill-id.sql");

fn blocks(title: &str) -> Vec<String> {
    let page = std::fs::read_to_string(top().join("docs/coming-from.md")).unwrap();
    let section = page.split("\n## ").find(|section| section.lines().next() == Some(title));
    let section = section.unwrap_or_else(|| panic!("no section {title}"));
    let mut blocks = Vec::new();
    let mut lines = section.lines();
    while let Some(line) = lines.next() {
        if line == "```sql" || line == "```postgresql" {
            blocks.push(lines.by_ref().take_while(|line| *line != "```").collect::<Vec<_>>().join("\n"));
        }
    }
    assert!(!blocks.is_empty(), "no block in {title}");
    blocks
}

/// psql at work on SQL, up to its first error.
fn begun(server: &Server, sql: &str) -> Child {
    begun_with(&["-q", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose"], server, sql)
}

/// psql at work on SQL. Without options, it continues after errors.
fn begun_with(options: &[&str], server: &Server, sql: &str) -> Child {
    let mut psql = client_program("psql");
    psql.arg("-X").args(options).args(["-d", &server.target("postgres")]).current_dir(top());
    psql.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = psql.spawn().unwrap();
    child.stdin.take().unwrap().write_all(sql.as_bytes()).unwrap();
    child
}

fn psql(server: &Server, sql: &str) -> Output {
    begun(server, sql).wait_with_output().unwrap()
}

/// The output of psql, which repeats the SQL until it succeeds if it cannot get a lock.
fn done(server: &Server, sql: &str) -> String {
    let done = within_seconds(120, || {
        let output = psql(server, sql);
        let done = output.status.success();
        assert!(done || said(&output).contains("55P03"), "{sql}\n{}", said(&output));
        done.then(|| said(&output))
    });
    done.unwrap_or_else(|| panic!("never gets its locks: {sql}"))
}

/// The tables of an example: a table with names and references to itself, and a table with a composite key below it.
struct Tables {
    parent: &'static str,
    name: &'static str,
    reference: &'static str,
    child: &'static str,
    key: &'static str,
}

const THREADS: Tables =
    Tables { parent: "threads", name: "title", reference: "answer_to", child: "posts", key: "thread_id" };
const ACCOUNTS: Tables =
    Tables { parent: "accounts", name: "name", reference: "invited_by", child: "photos", key: "account_id" };

/// A row: the key returned to its client, the name of the row that it refers to, and the rows below it.
type Row = (String, Option<String>, Vec<i32>);

impl Tables {
    /// Runs a transaction of a changing kind on the client's own rows, found by their names, which a change of keys
    /// leaves.
    fn write(
        &self,
        client: &mut Client,
        who: usize,
        round: usize,
        own: &mut BTreeMap<String, Row>,
    ) -> Result<(), Error> {
        let Tables { parent, name, reference, child, key } = self;
        let some = own.keys().nth(round % own.len().max(1)).cloned();
        let level = if who == 0 { IsolationLevel::RepeatableRead } else { IsolationLevel::ReadCommitted };
        let mut transaction = client.build_transaction().isolation_level(level).start()?;
        let new = format!("{who}-{round}");
        match (round % 6, some) {
            (0, Some(some)) => {
                // A row, its reference and the rows below it, in one statement.
                let sql = format!(
                    "WITH new AS (INSERT INTO {parent} ({name}, {reference})
                                  SELECT $1, id FROM {parent} WHERE {name} = $2 RETURNING id)
                     INSERT INTO {child} ({key}, n) SELECT id, n FROM new, generate_series(1, 3) AS n
                     RETURNING {key}::text"
                );
                let rows = transaction.query(&sql, &[&new, &some])?;
                assert_eq!(rows.len(), 3);
                transaction.commit()?;
                own.insert(new, (rows[0].get(0), Some(some), vec![1, 2, 3]));
            }
            (1, Some(some)) => {
                // The other kinds write the upper table first.
                transaction.execute(&format!("DELETE FROM {child} WHERE false"), &[])?;
                transaction
                    .execute(&format!("UPDATE {parent} SET {reference} = id WHERE {name} = $1"), &[&some])?;
                let below = format!(
                    "UPDATE {child} SET body = 'read' FROM {parent} WHERE id = {key} AND {name} = $1"
                );
                transaction.execute(&below, &[&some])?;
                transaction.commit()?;
                own.get_mut(&some).unwrap().1 = Some(some.clone());
            }
            (2, Some(some)) if !own.values().any(|row| row.1.as_ref() == Some(&some)) => {
                let rows =
                    transaction.execute(&format!("DELETE FROM {parent} WHERE {name} = $1"), &[&some])?;
                assert_eq!(rows, 1);
                transaction.commit()?;
                own.remove(&some);
            }
            (3, Some(some)) => {
                let sql =
                    format!("INSERT INTO {child} ({key}, n) SELECT id, $2 FROM {parent} WHERE {name} = $1");
                let n = own[&some].2.last().unwrap_or(&0) + 1;
                assert_eq!(transaction.execute(&sql, &[&some, &n])?, 1);
                if round.is_multiple_of(5) {
                    transaction.rollback()?;
                } else {
                    transaction.commit()?;
                    own.get_mut(&some).unwrap().2.push(n);
                }
            }
            _ => {
                let sql = format!("INSERT INTO {parent} ({name}) VALUES ($1) RETURNING id::text");
                let id = transaction.query_one(&sql, &[&new])?.get(0);
                let below =
                    format!("INSERT INTO {child} ({key}, n) SELECT id, 1 FROM {parent} WHERE {name} = $1");
                transaction.execute(&below, &[&new])?;
                transaction.commit()?;
                own.insert(new, (id, None, vec![1]));
            }
        }
        Ok(())
    }

    /// Runs `change` while clients write. Returns the rows that must exist, by name.
    fn during(&self, server: &Server, change: impl FnOnce()) -> BTreeMap<String, Row> {
        let owned = at_work(4, change, |who, stop, count| {
            let mut client = server.connect();
            let mut own = BTreeMap::new();
            let mut round = who;
            while !stop.load(Ordering::Relaxed) {
                round += 1;
                match self.write(&mut client, who, round, &mut own) {
                    Ok(()) => _ = count.fetch_add(1, Ordering::Relaxed),
                    // A transaction with a single snapshot must be retried after this error.
                    Err(error) if who == 0 && error.code().is_some_and(|code| code.code() == "40001") => {}
                    Err(error) => panic!("client {who}: {error:?}"),
                }
            }
            own
        });
        owned.into_iter().flatten().collect()
    }

    /// The rows of the clients, by name. `told` is the column with the key that a client was given.
    fn rows(&self, server: &Server, told: &str) -> BTreeMap<String, Row> {
        let Tables { parent, name, reference, child, key } = self;
        let sql = format!(
            "SELECT p.{name}, p.{told}::text, r.{name},
                    ARRAY(SELECT n FROM {child} WHERE {key} = p.id ORDER BY n)
             FROM {parent} AS p LEFT JOIN {parent} AS r ON r.id = p.{reference} WHERE p.{name} NOT IN ('old', 'new')"
        );
        let rows = server.connect().rows::<(String, String, Option<String>, Vec<i32>)>(&sql);
        rows.into_iter().map(|(name, key, of, below)| (name, (key, of, below))).collect()
    }
}

/// Runs a block that fills a column in batches while a row is locked: the block fills the other rows. It is then
/// interrupted, and run again.
fn broken_off(server: &Server, block: &str, table: &str, column: &str) {
    let mut holder = server.connect();
    let mut holder = holder.transaction().unwrap();
    let row = format!("SELECT FROM {table} WHERE {column} IS NULL LIMIT 1 FOR UPDATE");
    assert_eq!(holder.query(&row, &[]).unwrap().len(), 1);
    let filling = begun(server, block);
    server.wait_until(&format!("SELECT count(*) = 1 FROM {table} WHERE {column} IS NULL"));
    let end = "SELECT count(pg_terminate_backend(pid)) = 1 FROM pg_stat_activity WHERE query LIKE 'CALL%'";
    server.wait_until(end);
    assert!(!filling.wait_with_output().unwrap().status.success());
    holder.rollback().unwrap();
    done(server, block);
}

/// Runs a block that creates an index, and so waits for a transaction: the block holds no lock that would keep others
/// from writing. It is then interrupted, and run again.
fn index_broken_off(server: &Server, block: &str, table: &str, waited_for: &mut Client) {
    let indexing = begun(server, block);
    let waits = "pid FROM pg_stat_activity WHERE query LIKE 'CREATE %INDEX%' AND wait_event_type = 'Lock'";
    server.wait_until(&format!("SELECT count(*) = 1 FROM (SELECT {waits}) AS waiting"));
    // The statement waits for one transaction after the other, so it may be between two waits.
    let locks = format!(
        "SELECT bool_or(mode = 'ShareUpdateExclusiveLock')
                AND NOT bool_or(mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock'))
         FROM pg_locks WHERE granted AND relation = '{table}'::regclass
                             AND pid IN (SELECT pid FROM pg_stat_activity WHERE query LIKE 'CREATE %INDEX%')"
    );
    assert!(server.value::<bool>(&locks));
    server
        .wait_until(&format!("SELECT count(pg_terminate_backend(pid)) = 1 FROM (SELECT {waits}) AS waiting"));
    assert!(!indexing.wait_with_output().unwrap().status.success());
    waited_for.run("ROLLBACK");
    done(server, block);
}

fn writing<'a>(client: &'a mut Client, table: &str) -> &'a mut Client {
    client.run(&format!("BEGIN; LOCK TABLE {table} IN ROW EXCLUSIVE MODE"));
    client
}

/// Runs a block that locks tables while one of them is in use: the block fails without any change, and is run again.
fn given_up(server: &Server, block: &str, table: &str) {
    let mut user = server.connect();
    let mut user = user.transaction().unwrap();
    user.query(&format!("SELECT FROM {table} LIMIT 1"), &[]).unwrap();
    let output = psql(server, block);
    assert!(!output.status.success() && said(&output).contains("55P03"), "{}", said(&output));
    user.rollback().unwrap();
    done(server, block);
}

/// A server where clients detect no deadlock while a statement of the page waits for a lock.
fn server() -> Server {
    Server::start(&["deadlock_timeout = 60s", "statement_timeout = 2min", "fsync = off"])
}

/// A server where the script of the page's first step has been run, and a session.
fn prepared() -> (Server, Client) {
    let server = server();
    let script = blocks(APPLICATION).into_iter().find_map(|block| {
        block.lines().find(|line| line.starts_with("\\i docs/examples/")).map(str::to_owned)
    });
    // A reader may run it twice.
    for _ in 0..2 {
        assert_eq!(done(&server, script.as_deref().expect("the script")), "");
    }
    let client = server.connect();
    (server, client)
}

const SEQUENCES: &str =
    "SELECT string_agg(relname, ' ' ORDER BY relname COLLATE \"C\") FROM pg_class WHERE relkind = 'S'";

/// Checks that idgen mints for an INSERT with a RETURNING clause.
fn assert_minted(client: &mut Client, insert: &str) {
    let shard = format!("WITH new (id) AS (INSERT INTO {insert}) SELECT shard_of(id) FROM new");
    assert_eq!(client.value::<i32>(&shard), 5, "{insert}");
}

/// Indexes and constraints for new columns of a table that are filled.
fn index_and_constrain(server: &Server, table: &str) {
    done(
        server,
        &format!(
            "SELECT idgen_convert.indexes('{table}') \\gexec
             SELECT idgen_convert.add_constraints('{table}');
             SELECT idgen_convert.validations('{table}') \\gexec"
        ),
    );
}

const IN_BATCHES: &str = "integer keys in batches, old numbers kept";
const APPLICATION: &str = "A whole application, old numbers kept";

/// The tables of an application, owned by a role of its own: with and without foreign keys, with names that must be
/// quoted or that the page's statements use, and with every kind of column that the page mentions.
const TABLES: &str = r#"
    CREATE ROLE app;
    CREATE SCHEMA app AUTHORIZATION app;
    SET SESSION AUTHORIZATION app;
    SET search_path = app, public, idgen;
    CREATE TABLE "Odd ""name"", t" ("Id" serial PRIMARY KEY, "parentId" integer, "BossID" integer, k integer, "table" integer);
    CREATE TABLE key (n integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, value integer, given integer);
    CREATE TABLE big (id bigserial PRIMARY KEY, seen_ids integer[], tiny smallint, pieces integer, at timestamptz);
    CREATE TABLE single (id integer PRIMARY KEY REFERENCES key, item_id integer, item_type text);
    CREATE TABLE parted (id serial, at date, key_n integer REFERENCES key, odd integer, PRIMARY KEY (id, at))
        PARTITION BY RANGE (at);
    CREATE TABLE part PARTITION OF parted DEFAULT;
    CREATE TABLE one (id integer PRIMARY KEY DEFAULT 1 CHECK (id = 1));
    CREATE TABLE versions (of_id integer, version integer DEFAULT 1, PRIMARY KEY (of_id, version));
    CREATE TABLE mine (id bigint PRIMARY KEY DEFAULT snowflake_next_id(7));
    CREATE TABLE hashed (item_id integer) PARTITION BY HASH (item_id);
    CREATE TABLE heir (more integer, PRIMARY KEY (id)) INHERITS (big);
    INSERT INTO "Odd ""name"", t" ("parentId", "BossID", k, "table")
        SELECT nullif(n - 1, 0), 77, n, n FROM generate_series(1, 9) AS n;
    INSERT INTO key (value, given) SELECT n, n FROM generate_series(1, 5) AS n;
    INSERT INTO big (seen_ids, tiny, pieces) SELECT ARRAY[n, 1], n, n * 1000 FROM generate_series(1, 5) AS n;
    INSERT INTO single SELECT n, n, 'key 77' FROM generate_series(1, 5) AS n;
    INSERT INTO parted (at, key_n, odd) SELECT '2025-01-01', n, 0 FROM generate_series(1, 5) AS n;
    INSERT INTO heir (tiny, pieces, more) VALUES (2, 2000, 77);
"#;

/// The blocks of the chapter convert every table of a schema, whatever its name, and no other table. A block that
/// cannot get a lock can be run again. No default changes while a column is too narrow, and the check finds columns
/// added later.
#[test]
fn an_application_without_foreign_keys_is_converted() {
    let server = server();
    let mut admin = server.connect();
    admin.run("CREATE TABLE elsewhere (id serial PRIMARY KEY, tiny integer)");
    admin.run("CREATE PUBLICATION everything FOR ALL TABLES");
    admin.run(TABLES);
    admin.run("RESET SESSION AUTHORIZATION; GRANT CREATE ON DATABASE postgres TO app");
    let blocks: Vec<String> = blocks(APPLICATION)
        .into_iter()
        .map(|block| block.replace("find_columns('public')", "find_columns('app')"))
        .map(|block| format!("SET SESSION AUTHORIZATION app; SET search_path = app, public, idgen;\n{block}"))
        .collect();
    let block = |part: &str| blocks.iter().find(|block| block.contains(part)).unwrap();
    let (types, defaults) = (block("change_types()"), block("set_defaults(5)"));
    done(&server, block("CREATE TABLE customers"));
    server.run("ALTER TABLE app.key ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY");
    done(&server, block("convert.sql"));
    let find = block("find_columns");
    assert_says(&said(&psql(&server, find)), &["row-level security"]);
    server.run("ALTER ROLE app BYPASSRLS");
    // A table of another role, whose index could run a function of that role, is named but not read.
    admin.run(
        "CREATE ROLE stranger; GRANT USAGE, CREATE ON SCHEMA app TO stranger;
             SET SESSION AUTHORIZATION stranger;
             CREATE TABLE app.strange (id serial PRIMARY KEY, customer_id integer);
             RESET SESSION AUTHORIZATION",
    );
    let listed = done(&server, find);
    assert!(
        listed.contains("belong to other roles: app.strange") && !listed.contains(" strange "),
        "{listed}"
    );
    admin.run("DROP TABLE app.strange");
    done(&server, block("SET is_id = false"));
    // A repetition finds new columns, and keeps the reader's decisions.
    admin.run("SET SESSION AUTHORIZATION app; CREATE TABLE app.recent (id serial PRIMARY KEY, key_id integer); RESET SESSION AUTHORIZATION");
    let listed = done(&server, find);
    let is_id = |table: &str, column: &str| {
        let cells = listed.lines().map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
        cells
            .filter(|cells| cells.len() == 4 && cells[..2] == [table, column])
            .map(|cells| cells[3])
            .collect::<String>()
    };
    assert_eq!(
        [is_id("recent", "id"), is_id("recent", "key_id"), is_id("orders", "pieces")],
        ["t", "t", "f"]
    );
    admin.run("DROP TABLE app.recent");
    let texts = done(&server, block("texts_with_keys"));
    assert!(texts.contains("instead of order 1") && !texts.contains("single"), "{texts}");
    let way = block("in_the_way");
    assert!(done(&server, way).contains("column item_id of table hashed"));
    admin.run("DROP TABLE app.hashed");
    assert!(done(&server, way).contains("(0 rows)"));

    let refused = psql(&server, defaults);
    assert!(!refused.status.success() && said(&refused).contains("new ids do not fit into them"));
    assert!(server.value::<bool>("SELECT count(*) = 7 FROM pg_class WHERE relkind = 'S'"));

    given_up(&server, types, "app.key");
    let analyzed =
        "SELECT count(*) = 2 FROM pg_stats WHERE tablename IN ('single', 'customers') AND attname = 'id'";
    assert!(server.value::<bool>(analyzed));
    assert_eq!(done(&server, types), "", "there is nothing left to do");
    let still = "SELECT string_agg(format('%s.%s', attrelid::regclass, attname), ' ' ORDER BY attrelid, attnum)
                 FROM pg_attribute WHERE atttypid IN ('int2'::regtype, 'int4'::regtype, 'int4[]'::regtype) AND attnum > 0
                 AND attrelid IN (SELECT oid FROM pg_class WHERE relkind IN ('r', 'p'))
                 AND attrelid >= 16384 AND attrelid NOT IN (SELECT objid FROM pg_depend WHERE deptype = 'e')
                 AND attrelid <> 'idgen_convert.new_columns'::regclass";
    assert_eq!(
        server.value::<String>(still),
        "elsewhere.id elsewhere.tiny app.big.pieces app.heir.pieces app.heir.more app.orders.pieces"
    );

    // A crash empties an unlogged table.
    let emptied = defaults.replacen(
        "SELECT idgen_convert",
        "BEGIN; TRUNCATE idgen_convert.id_columns; SELECT idgen_convert",
        1,
    );
    let refused = psql(&server, &emptied);
    assert!(!refused.status.success() && said(&refused).contains("is empty"), "{}", said(&refused));

    given_up(&server, defaults, "app.key");
    done(&server, defaults);
    assert!(server.value::<bool>("SELECT nextval('app.customers_id_seq') = 2"), "programs may still use it");
    done(&server, block("drop_sequences"));
    let mut app = server.connect();
    app.run("SET SESSION AUTHORIZATION app; SET search_path = app, public, idgen");
    for insert in [
        r#""Odd ""name"", t" DEFAULT VALUES RETURNING "Id""#,
        "key DEFAULT VALUES RETURNING n",
        "big DEFAULT VALUES RETURNING id",
        "customers DEFAULT VALUES RETURNING id",
        "parted (at) VALUES (now()) RETURNING id",
    ] {
        assert_minted(&mut app, insert);
    }
    app.run("INSERT INTO one DEFAULT VALUES; INSERT INTO versions VALUES (1)");
    assert_eq!(app.value::<i64>("SELECT version::bigint FROM versions"), 1);
    assert_eq!(app.value::<i32>("INSERT INTO mine DEFAULT VALUES RETURNING shard_of(id)"), 7);
    assert_eq!(server.value::<String>(SEQUENCES), "elsewhere_id_seq");
    app.run("UPDATE key SET value = big.id, given = big.id FROM big WHERE big.id > 5");

    assert!(done(&server, block("check_id_columns();")).contains(" t\n"));
    app.run("ALTER TABLE big ADD COLUMN later integer; UPDATE big SET later = 3");
    let error = app.error("SELECT idgen_convert.check_id_columns()");
    assert!(error.message().ends_with(": app.big.later"), "{error:?}");
    app.run(
        "INSERT INTO idgen_convert.id_columns VALUES ('big', 'later', NULL, false);
             SELECT idgen_convert.check_id_columns();
             DROP SCHEMA idgen_convert CASCADE",
    );
}

/// The steps of an application that change something, and the check.
const STEPS: &str = "SELECT idgen_convert.change_types() \\gexec
     SELECT idgen_convert.set_defaults(5) \\gexec
     SELECT idgen_convert.drop_sequences() \\gexec";
const CHECK: &str = "SELECT idgen_convert.check_id_columns()";

/// No default mints for a column that has a key above new ids, be it in a partition or in a child table. Ids of one
/// layout count for the other too. Ids of idgen do not count, even if they are ahead of the clock.
#[test]
fn keys_above_new_ids_are_refused() {
    let (server, mut client) = prepared();
    client.run(
        "CREATE TABLE plain (id bigserial PRIMARY KEY);
         CREATE TABLE parted (id bigserial, at date DEFAULT now(), PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
         CREATE TABLE part PARTITION OF parted DEFAULT;
         CREATE TABLE base (id bigserial PRIMARY KEY);
         CREATE TABLE heir (PRIMARY KEY (id)) INHERITS (base);
         SELECT idgen_convert.find_columns('public')",
    );
    let refused = |client: &mut Client, step: &str, number: i64| {
        for table in ["plain", "part", "base", "heir"] {
            client.run(&format!("INSERT INTO {table} (id) VALUES ({number})"));
            let error = client.error(&format!("SELECT idgen_convert.{step}"));
            let named = format!("new ids could repeat: public.{table}.id ({number}, ");
            assert!(error.message().contains(&named), "{error:?}");
            assert!(error.hint().is_some_and(|hint| hint.contains("docs/coming-from.md")), "{error:?}");
            client.run(&format!("DELETE FROM {table} WHERE id = {number}"));
        }
    };
    let soon: i64 = client.value("SELECT snowflake_min_id(now() + interval '1 hour')");
    for number in [soon, 1 << 62, i64::MAX] {
        refused(&mut client, "set_defaults(5)", number);
    }
    refused(&mut client, "set_defaults(5, 'snowflake_next_id_js')", 1 << 53);
    client.run("INSERT INTO plain VALUES (snowflake_min_id(now()) - 1)");
    done(&server, STEPS);
    // As far ahead of the clock as a burst can get, and checked at once.
    client.run(
        "INSERT INTO plain SELECT snowflake_next_ids(5, 900000);
         INSERT INTO heir DEFAULT VALUES; INSERT INTO parted DEFAULT VALUES",
    );
    assert!(client.value::<bool>(CHECK));
    for number in [soon, 1 << 62] {
        refused(&mut client, "check_id_columns()", number);
    }
    client.run("TRUNCATE plain; ALTER TABLE plain ALTER id SET DEFAULT snowflake_next_id_js(5)");
    client.run("INSERT INTO plain SELECT snowflake_next_id_js(5) FROM generate_series(1, 5000)");
    assert!(client.value::<bool>(CHECK));
    client.run("INSERT INTO plain VALUES (snowflake_min_id(now()))");
    assert!(client.error(CHECK).message().contains("new ids could repeat"));
    client.run("UPDATE idgen_convert.id_columns SET is_id = false WHERE \"table\" = 'plain'::regclass");
    assert!(client.value::<bool>(CHECK));
}

/// Rows that row-level security hides are not overlooked, and a child table of another role is named but not read.
#[test]
fn keys_that_cannot_be_read_are_named() {
    let server = server();
    let mut admin = server.connect();
    admin.run(
        "CREATE ROLE app; CREATE ROLE other; GRANT CREATE ON DATABASE postgres TO app;
         CREATE SCHEMA app AUTHORIZATION app",
    );
    let app = |sql: &str| psql(&server, &format!("SET SESSION AUTHORIZATION app;\n{sql}"));
    let tables = app("\\i docs/examples/convert.sql
         CREATE TABLE app.mine (id bigserial PRIMARY KEY);
         CREATE TABLE app.theirs () INHERITS (app.mine);
         SELECT idgen_convert.find_columns('app');
         ALTER TABLE app.mine ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY");
    assert!(tables.status.success(), "{}", said(&tables));
    admin.run("INSERT INTO app.mine VALUES (4611686018427387904)");
    let step = "SELECT idgen_convert.set_defaults(5)";
    assert!(said(&app(step)).contains("row-level security"));
    admin.run("ALTER ROLE app BYPASSRLS");
    assert!(said(&app(step)).contains("new ids could repeat: app.mine.id (4611686018427387904, "));
    admin.run("DELETE FROM app.mine; ALTER TABLE app.theirs OWNER TO other");
    let warned = said(&app(step));
    assert!(
        warned.contains("belong to other roles: app.theirs") && warned.contains("SET DEFAULT"),
        "{warned}"
    );
}

/// With the epoch that the page finds, or with pgEdge's own, new ids are above all keys that are snowflakes already,
/// and both kinds are decoded by their own layouts.
#[test]
fn snowflakes_stay_below_ids_of_an_earlier_epoch() {
    let page = blocks("Keys that are snowflakes already");
    assert_eq!(page.len(), 1);
    let millis =
        |since: &str| format!("(extract(epoch FROM now() - '{since}') * 1000)::bigint * 4194304 + 28672");
    for (layout, since, epoch) in [
        ("twitter", "2010-11-04T01:42:54.657Z", None),
        ("pgedge", "2023-01-01Z", Some("2023-01-01T00:00:00Z".to_owned())),
    ] {
        let server = Server::start(&[PRELOAD, "fsync = off"]);
        done(&server, "\\i docs/examples/convert.sql");
        server.run(&format!(
            "CREATE TABLE notes (id bigserial PRIMARY KEY); INSERT INTO notes VALUES ({});
             SELECT idgen_convert.find_columns('public')",
            millis(since)
        ));
        let epoch = epoch.unwrap_or_else(|| {
            server.value(&format!(
                "SELECT to_char(latest AT TIME ZONE 'UTC' - interval '1 hour', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')
                 FROM ({}) AS found",
                page[0].trim_end_matches(';')
            ))
        });
        server.restart_with(&[&format!("idgen.epoch = '{epoch}'")]);
        done(&server, STEPS);
        let mut client = server.connect();
        client.run("INSERT INTO notes SELECT FROM generate_series(1, 3)");
        assert!(client.value::<bool>(CHECK));
        let decoded = format!(
            "SELECT array_agg(d.shard ORDER BY id), bool_and(abs(extract(epoch FROM now() - d.created_at)) < 86400)
             FROM notes, snowflake_decode(id, CASE shard_of(id) WHEN 5 THEN 'idgen' ELSE '{layout}' END) AS d"
        );
        assert_eq!(client.row::<(Vec<i32>, bool)>(&decoded), (vec![7, 5, 5, 5], true), "{layout}");
    }
}

/// Converted columns no longer use sequences. A sequence that another default uses, by its OID or by a text, is not
/// dropped, and a warning names it.
#[test]
fn a_sequence_that_something_else_needs_stays() {
    let (server, mut client) = prepared();
    client.run(
        r#"CREATE TABLE inv (id serial PRIMARY KEY);
           CREATE TABLE archive (id integer, no integer DEFAULT nextval('INV_id_seq'::text));
           CREATE TABLE "A ""b"" 'c'" (id serial PRIMARY KEY);
           CREATE TABLE copies (no integer DEFAULT nextval('public."A ""b"" ''c''_id_seq"'::text));
           CREATE DOMAIN numbered AS integer DEFAULT nextval('of_domain_id_seq'::text);
           CREATE TABLE of_domain (id serial PRIMARY KEY);
           CREATE TABLE of_type (no numbered);
           CREATE TABLE shared (id serial PRIMARY KEY);
           CREATE TABLE sharing (id integer PRIMARY KEY DEFAULT nextval('shared_id_seq'));
           CREATE TABLE viewed (id bigserial PRIMARY KEY, note text);
           CREATE VIEW view AS SELECT * FROM viewed;
           ALTER VIEW view ALTER id SET DEFAULT nextval('viewed_id_seq');
           CREATE TABLE alone (id serial PRIMARY KEY);
           CREATE TABLE of_text (id serial PRIMARY KEY);
           ALTER TABLE of_text ALTER id SET DEFAULT nextval('of_text_id_seq'::text);
           CREATE TABLE parted (id serial, at date, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
           CREATE TABLE part PARTITION OF parted DEFAULT;
           CREATE TABLE xalone (id serial PRIMARY KEY);
           CREATE TABLE several (id serial PRIMARY KEY);
           CREATE SEQUENCE extra OWNED BY several.id;
           CREATE TABLE own (id bigint PRIMARY KEY);
           CREATE SEQUENCE own_id_seq OWNED BY own.id;
           CREATE TABLE long (id serial PRIMARY KEY);
           CREATE TABLE "Asked" (id serial PRIMARY KEY);
           CREATE TABLE asking (no integer DEFAULT nextval(pg_get_serial_sequence('"Asked"', 'id')));
           SELECT idgen_convert.find_columns('public');
           UPDATE idgen_convert.id_columns SET is_id = false WHERE is_id IS NULL"#,
    );
    client.run(&format!(
        "CREATE TABLE lengthy (no bigint DEFAULT CASE WHEN '{}' <> '' THEN nextval('long_id_seq'::text) END);
         INSERT INTO idgen_convert.id_columns VALUES ('lengthy', 'no', NULL, false)",
        "x".repeat(12000)
    ));
    let warned = done(&server, STEPS);
    for (sequence, needed) in [
        ("public.inv_id_seq", "default value for column no of table public.archive"),
        (r#"public."A ""b"" 'c'_id_seq""#, "default value for column no of table public.copies"),
        ("public.of_domain_id_seq", "type public.numbered"),
        ("public.viewed_id_seq", "default value for column id of view public.view"),
        ("public.long_id_seq", "default value for column no of table public.lengthy"),
        ("public.\"Asked_id_seq\"", "default value for column no of table public.asking"),
    ] {
        assert!(
            warned.contains(&format!("{sequence} is not dropped (needed by {needed})")),
            "{sequence}: {warned}"
        );
    }
    assert!(
        warned.contains("programs may call their sequences: public.own.id (public.own_id_seq)"),
        "{warned}"
    );
    assert_eq!(
        server.value::<String>(SEQUENCES),
        "A \"b\" 'c'_id_seq Asked_id_seq inv_id_seq long_id_seq of_domain_id_seq own_id_seq viewed_id_seq"
    );
    client.run(
        "INSERT INTO archive DEFAULT VALUES; INSERT INTO copies DEFAULT VALUES; INSERT INTO of_type DEFAULT VALUES;
         INSERT INTO view (note) VALUES (''); INSERT INTO lengthy DEFAULT VALUES; INSERT INTO asking DEFAULT VALUES",
    );
    assert!(client.value::<bool>(CHECK));
    assert!(done(&server, STEPS).contains("programs may call"));
}

/// An identity is dropped with its sequence, and so it stays while something else needs the sequence, even by a text.
#[test]
fn an_identity_whose_sequence_is_needed_is_refused() {
    let (server, mut client) = prepared();
    client.run(
        "CREATE TABLE orders (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY);
         CREATE TABLE archive (no integer DEFAULT nextval('orders_id_seq'::text));
         SELECT idgen_convert.find_columns('public');
         UPDATE idgen_convert.id_columns SET is_id = false WHERE is_id IS NULL",
    );
    done(&server, "SELECT idgen_convert.change_types() \\gexec");
    let needed = "default value for column no of table public.archive";
    let error = client.error("SELECT idgen_convert.set_defaults(5)");
    assert!(error.message().contains(&format!("public.orders.id (needed by {needed})")), "{error:?}");
    client.run("CREATE TABLE threads (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY)");
    client.run("ALTER TABLE archive ADD COLUMN thread integer DEFAULT nextval('threads_id_seq'::text)");
    client.run("SELECT idgen_convert.copy_column('threads', 'id')");
    index_and_constrain(&server, "threads");
    client.run("ALTER TABLE threads VALIDATE CONSTRAINT new_id_filled");
    let switch = "SELECT idgen_convert.switch('threads')";
    let error = client.error(switch);
    assert!(error.message().contains("default value for column thread of table public.archive"), "{error:?}");
    client.run("ALTER TABLE archive ALTER no DROP DEFAULT, ALTER thread DROP DEFAULT");
    client.run(switch);
    client.run("SELECT idgen_convert.find_columns('public')");
    done(&server, STEPS);
    assert!(client.value::<bool>(CHECK));
}

/// Columns are converted of which pgEdge's convert_sequence_to_snowflake has removed the identity but not its sequence.
/// The sequence stays unless a superuser runs the statements in the script.
#[test]
fn identities_that_pgedge_has_changed_are_converted() {
    let (server, mut client) = prepared();
    client.run(
        "CREATE SCHEMA snowflake;
         CREATE FUNCTION snowflake.nextval(regclass) RETURNS bigint LANGUAGE sql AS 'SELECT pg_catalog.nextval($1)';
         CREATE TABLE notes (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY);
         CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY);
         UPDATE pg_attribute SET attidentity = '' WHERE attidentity <> '';
         ALTER TABLE notes ALTER id SET DEFAULT snowflake.nextval('notes_id_seq');
         ALTER TABLE orders ALTER id SET DEFAULT snowflake.nextval('orders_id_seq');
         SELECT idgen_convert.find_columns('public')",
    );
    assert!(client.error(CHECK).message().contains("still take numbers from sequences: "));
    let script = std::fs::read_to_string(top().join("docs/examples/convert.sql")).unwrap();
    let end = script.lines().skip_while(|line| !line.starts_with("--     UPDATE pg_depend")).take(2);
    client.run(&end.map(|line| line.trim_start_matches('-')).collect::<String>());
    done(&server, STEPS);
    let left = "SELECT to_regclass('orders_id_seq') IS NULL AND to_regclass('notes_id_seq') IS NOT NULL";
    assert!(client.value::<bool>(left));
    for table in ["notes", "orders"] {
        assert_minted(&mut client, &format!("{table} DEFAULT VALUES RETURNING id"));
    }
    assert!(client.value::<bool>(CHECK));
}

/// No column keeps its sequence unnoticed, whatever its key, type or table. It is converted or, if it may hold other
/// numbers than ids, left to the reader's decision.
#[test]
fn no_column_stays_on_its_sequence_in_silence() {
    let (server, mut client) = prepared();
    client.run(
        "CREATE TABLE uniq (id serial UNIQUE, no serial UNIQUE);
         CREATE TABLE bare (n integer GENERATED ALWAYS AS IDENTITY);
         CREATE TABLE referred (code serial UNIQUE);
         CREATE TABLE refers (code integer REFERENCES referred (code));
         CREATE TABLE own (id serial PRIMARY KEY, version integer NOT NULL DEFAULT 1);
         CREATE TABLE versions (own_id integer REFERENCES own, version integer, PRIMARY KEY (own_id, version));
         INSERT INTO own DEFAULT VALUES; INSERT INTO versions VALUES (1, 1);
         ALTER TABLE own ADD FOREIGN KEY (id, version) REFERENCES versions DEFERRABLE INITIALLY DEFERRED;
         CREATE TABLE pair (tenant integer, n bigserial, PRIMARY KEY (tenant, n));
         CREATE DOMAIN wide AS bigint; CREATE DOMAIN narrow AS integer; CREATE SEQUENCE of_domain;
         CREATE DOMAIN filled AS bigint DEFAULT nextval('of_domain');
         CREATE TABLE big (id wide PRIMARY KEY DEFAULT nextval('of_domain'));
         CREATE TABLE small (id narrow PRIMARY KEY DEFAULT nextval('of_domain'));
         CREATE TABLE counted (id filled PRIMARY KEY);
         CREATE TABLE texts (id text PRIMARY KEY DEFAULT 'T-' || nextval('of_domain'));
         CREATE TABLE parted (id bigint, at date DEFAULT now(), PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
         CREATE TABLE part PARTITION OF parted DEFAULT;
         CREATE TABLE base (id integer PRIMARY KEY);
         CREATE TABLE heir () INHERITS (base);
         CREATE SEQUENCE of_part OWNED BY part.id;
         CREATE SEQUENCE of_heir OWNED BY heir.id;
         ALTER TABLE part ALTER id SET DEFAULT nextval('of_part');
         ALTER TABLE heir ALTER id SET DEFAULT nextval('of_heir')",
    );
    let found = "SELECT string_agg(concat_ws(' ', f.\"table\", f.\"column\", found_by, coalesce(is_id::text, '?')), ',')
                 FROM idgen_convert.find_columns('public') AS f";
    assert_eq!(
        client.value::<String>(found).split(',').collect::<Vec<_>>(),
        [
            "bare n sequence ?",
            "base id key true",
            "big id key true",
            "counted id key true",
            "heir id name true",
            "own id key true",
            "own version foreign key true",
            "pair n key true",
            "pair tenant no value true",
            "part id key true",
            "referred code key true",
            "refers code foreign key true",
            "small id sequence ?",
            "texts id sequence ?",
            "uniq id name true",
            "uniq no sequence ?",
            "versions own_id foreign key true",
            "versions version keys of public.own true",
        ]
    );
    for step in ["check_id_columns()", "set_defaults(5)"] {
        let error = client.error(&format!("SELECT idgen_convert.{step}"));
        assert!(error.message().contains("it is undecided"), "{error:?}");
        for column in ["bare.n", "small.id", "texts.id", "uniq.no"] {
            assert!(error.message().contains(&format!("public.{column}")), "{column}: {error:?}");
        }
    }
    client
        .run("UPDATE idgen_convert.id_columns SET is_id = \"table\" <> 'uniq'::regclass WHERE is_id IS NULL");
    done(&server, "SELECT idgen_convert.change_types() \\gexec");
    let error = client.error("SELECT idgen_convert.set_defaults(5)");
    assert!(error.message().contains("do not fit into them: public.small.id, public.texts.id"), "{error:?}");
    client.run("UPDATE idgen_convert.id_columns SET is_id = false WHERE \"table\" IN ('small'::regclass, 'texts'::regclass)");
    assert!(client.error(CHECK).message().contains("still take numbers from sequences: "));
    done(&server, STEPS);
    assert!(client.value::<bool>(CHECK));
    for insert in [
        "uniq DEFAULT VALUES RETURNING id",
        "bare DEFAULT VALUES RETURNING n",
        "referred DEFAULT VALUES RETURNING code",
        "pair VALUES (1) RETURNING n",
        "big DEFAULT VALUES RETURNING id",
        "counted DEFAULT VALUES RETURNING id",
        "part DEFAULT VALUES RETURNING id",
        "heir DEFAULT VALUES RETURNING id",
    ] {
        assert_minted(&mut client, insert);
    }
    assert_eq!(server.value::<String>(SEQUENCES), "of_domain uniq_no_seq");
    // The check finds a table created later.
    client.run("CREATE TABLE later (id bigserial PRIMARY KEY)");
    assert!(client.error(CHECK).message().ends_with("still take numbers from sequences: public.later.id"));
}

/// The integer keys of large tables become bigint while clients write. No row is lost, and each keeps its number and
/// its references, even those maintained by a user's trigger. No key occurs twice, no client fails or waits for a
/// batch, and an interrupted run can continue.
#[test]
fn integer_keys_become_bigint_under_load() {
    let (server, _) = prepared();
    let blocks = blocks(IN_BATCHES);
    done(&server, &blocks[0]);
    let mut mover = server.connect();
    mover.run(
        "CREATE INDEX ON threads (title);
             CREATE FUNCTION move() RETURNS trigger LANGUAGE plpgsql AS
             $$BEGIN NEW.answer_to := NEW.title::integer; NEW.title := 'new'; RETURN NEW; END$$;
             CREATE TRIGGER moves BEFORE UPDATE ON threads FOR EACH ROW WHEN (NEW.title IN ('1', '2'))
                 EXECUTE FUNCTION move();
             INSERT INTO threads (title) VALUES ('new')",
    );
    let old = "SELECT md5(string_agg(concat(id, ' ', answer_to, ' ', n), ',' ORDER BY id, n))
               FROM threads JOIN posts ON thread_id = id WHERE title = 'old'";
    let before: String = server.value(old);
    let mut other = server.connect();
    let made = THREADS.during(&server, || {
        for block in &blocks[1..] {
            if block.contains("CALL idgen_convert.fill") {
                broken_off(&server, block, "threads", "new_id");
            } else if block.contains("convert.indexes") {
                index_broken_off(&server, block, "threads", writing(&mut other, "threads"));
            } else if block.contains("convert.switch") {
                given_up(&server, block, "threads");
            } else {
                done(&server, block);
            }
            if block.contains("validations") {
                // The trigger changes a column that the statement does not name.
                for to in ["2", "1"] {
                    let moved = mover.execute("UPDATE threads SET title = $1 WHERE title = 'new'", &[&to]);
                    assert_eq!(moved.unwrap(), 1);
                }
            }
        }
    });
    assert_eq!(server.value::<String>(old), before);
    let moved = "SELECT answer_to = 1 FROM threads WHERE title = 'new' ORDER BY id LIMIT 1";
    assert!(server.value::<bool>(moved));
    assert_as_left(&made, &THREADS.rows(&server, "id"));
    let ids: Vec<i64> = made.values().map(|row| row.0.parse().unwrap()).collect();
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len(), "a key is there twice");
    let minted = |id: &&i64| **id > i64::from(i32::MAX) && **id >> 10 & 8191 == 5;
    assert!(ids.iter().any(|id| *id <= i64::from(i32::MAX)) && ids.iter().filter(minted).count() > 20);
    assert!(ids.iter().all(|id| *id <= i64::from(i32::MAX) || minted(&id)));
    assert!(!server.value::<bool>(INVALID), "a constraint or an index is not valid");
}

/// Checks that the clients' rows exist with the keys that the clients were given, and no others.
fn assert_as_left(made: &BTreeMap<String, Row>, found: &BTreeMap<String, Row>) {
    for name in made.keys().chain(found.keys()) {
        assert_eq!(made.get(name), found.get(name), "{name}: left and found");
    }
}

const INVALID: &str = "SELECT EXISTS (SELECT FROM pg_constraint WHERE NOT convalidated)
                           OR EXISTS (SELECT FROM pg_index WHERE NOT indisvalid)";

/// UUID keys of large tables become ids while clients write, one of them in REPEATABLE READ and one without the right
/// to read the key's table. No row is lost, references stay, each row still has its UUID, the old rows are in the order
/// of their times, and no key occurs twice.
#[test]
fn uuid_keys_become_ids_under_load() {
    let (server, _) = prepared();
    let blocks = blocks("UUID keys in batches, renumbered");
    done(&server, &blocks[0]);
    let mut uploader = server.connect();
    uploader.run(
        "CREATE INDEX ON accounts (name);
             INSERT INTO accounts (name) VALUES ('new');
             CREATE ROLE uploader;
             GRANT INSERT ON photos TO uploader",
    );
    let uploaded_to: String = server.value("SELECT id::text FROM accounts WHERE name = 'new'");
    // This client may not read the table to which its rows refer, and does not find it by an unqualified name.
    uploader.run("SET SESSION AUTHORIZATION uploader; SET search_path = ''");
    let (mut uploads, mut switched) = (0, false);
    let old = |key: &str| {
        format!(
            "SELECT md5(string_agg(concat(a.{key}, ' ', i.{key}, ' ', n), ',' ORDER BY a.{key}, n))
             FROM accounts AS a JOIN photos ON account_id = a.id LEFT JOIN accounts AS i ON i.id = a.invited_by
             WHERE a.name = 'old'"
        )
    };
    let before: String = server.value(&old("id"));
    let (mut before_the_fill, mut other) = (server.connect(), server.connect());
    let made = ACCOUNTS.during(&server, || {
        for block in &blocks[1..] {
            if block.contains("CALL idgen_convert.fill('photos'") {
                broken_off(&server, block, "photos", "new_account_id");
            } else if block.contains("CALL idgen_convert.fill") {
                // This transaction sees no account with an id, so the next trigger must come after its end.
                before_the_fill.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT");
                broken_off(&server, block, "accounts", "new_id");
            } else if block.contains("convert.indexes") {
                if block.contains("indexes('photos')") {
                    index_broken_off(&server, block, "photos", writing(&mut other, "photos"));
                } else {
                    index_broken_off(&server, block, "accounts", &mut before_the_fill);
                }
            } else if block.contains("convert.switch") {
                given_up(&server, block, "accounts");
            } else {
                let said = done(&server, block);
                assert!(!block.contains("make_ids") || said.contains("| t\n"), "{said}");
                assert!(!block.contains("AS wrong") || said.contains("\n     0\n"), "{said}");
            }
            switched |= block.contains("convert.switch");
            if !switched {
                uploads += 1;
                let upload =
                    format!("INSERT INTO public.photos (account_id, n) VALUES ('{uploaded_to}', {uploads})");
                uploader.run(&upload);
            }
        }
    });
    assert_eq!(server.value::<String>(&old("old_id")), before);
    let uploaded = format!(
        "SELECT count(*) FROM photos JOIN accounts ON id = account_id WHERE old_id = '{uploaded_to}'"
    );
    assert_eq!(server.value::<i64>(&uploaded), uploads);
    let ordered = "SELECT bool_and(rises) FROM (
                       SELECT id > lag(id) OVER (ORDER BY created_at, old_id) AS rises FROM accounts WHERE name = 'old') AS o";
    assert!(server.value::<bool>(ordered));
    // Before the switch clients are given UUIDs, and then ids.
    let (by_uuid, by_id) = (ACCOUNTS.rows(&server, "old_id"), ACCOUNTS.rows(&server, "id"));
    assert_eq!(made.len(), by_id.len());
    let mut by_ids = 0;
    for (name, row) in &made {
        by_ids += usize::from(by_id[name] == *row);
        assert!(by_id[name] == *row || by_uuid[name] == *row, "{name} is not as its client left it");
    }
    assert!(by_ids > 20 && by_ids < made.len());
    let ids: HashSet<&String> = by_id.values().map(|row| &row.0).collect();
    assert_eq!(ids.len(), by_id.len(), "a key is there twice");
    assert!(!server.value::<bool>(INVALID), "a constraint or an index is not valid");
}

/// The constraints of a schema, and the defaults and types of its columns, by the names of tables, columns and
/// constraints.
const SHAPE: &str = r#"
    SELECT string_agg(line, E'\n' ORDER BY line) FROM (
        SELECT concat_ws(' ', conrelid::regclass, conname, pg_get_constraintdef(oid), convalidated) AS line
        FROM pg_constraint WHERE connamespace = '"Odd schema"'::regnamespace AND contype <> 'n'
        UNION ALL
        SELECT concat_ws(' ', attrelid::regclass, attname, atttypid::regtype, attnotnull, pg_get_expr(adbin, adrelid))
        FROM pg_attribute JOIN pg_class ON oid = attrelid LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
        WHERE relnamespace = '"Odd schema"'::regnamespace AND relkind IN ('r', 'p') AND attnum > 0 AND NOT attisdropped
    ) AS lines"#;

/// New columns get the constraints and defaults of the columns that they replace, whatever the names, also in a
/// partitioned table. A step that comes too early is refused, and so is one that would overwrite a column of the
/// application.
#[test]
fn constraints_and_defaults_pass_over_to_new_columns() {
    let (server, mut client) = prepared();
    client.run(
        r#"CREATE SCHEMA "Odd schema";
           SET search_path = "Odd schema", public, idgen;
           CREATE TABLE "The keys" ("Id" serial PRIMARY KEY, "user" integer, kind text DEFAULT 'a', UNIQUE ("Id", kind),
               UNIQUE ("user", kind) DEFERRABLE INITIALLY DEFERRED);
           CREATE TABLE uses (key integer, kind text, FOREIGN KEY (key, kind) REFERENCES "The keys" ("Id", kind)
               MATCH FULL ON UPDATE CASCADE ON DELETE SET NULL DEFERRABLE INITIALLY DEFERRED);
           CREATE TABLE parted (at integer, key integer NOT NULL) PARTITION BY RANGE (at);
           CREATE TABLE part_1 PARTITION OF parted FOR VALUES FROM (1) TO (2);
           CREATE TABLE part_2 PARTITION OF parted FOR VALUES FROM (2) TO (3);
           CREATE TABLE base (id serial PRIMARY KEY);
           CREATE TABLE heir (PRIMARY KEY (id)) INHERITS (base);
           INSERT INTO base DEFAULT VALUES;
           INSERT INTO heir DEFAULT VALUES;
           CREATE VIEW seen AS SELECT "user" FROM "The keys";
           INSERT INTO "The keys" ("user") VALUES (7), (8);
           INSERT INTO uses VALUES (1, 'a'), (NULL, NULL);
           INSERT INTO parted SELECT n, n FROM generate_series(1, 2) AS n"#,
    );
    let before: String = client.value(SHAPE);
    let within = |sql: &str| format!("SET search_path = \"Odd schema\", public, idgen;\n{sql}");
    let refused = |sql: &str, why: &str| {
        let output = psql(&server, &within(sql));
        assert!(!output.status.success() && said(&output).contains(why), "{sql}: {}", said(&output));
    };
    let switch = r#"SELECT idgen_convert.switch('"The keys"', 'uses', 'parted', 'base', 'heir')"#;
    refused("CALL idgen_convert.fill('uses')", "has no new columns");
    done(
        &server,
        &within(
            r#"SELECT idgen_convert.copy_column('"The keys"', 'Id'), idgen_convert.copy_column('"The keys"', 'user');
               SELECT idgen_convert.copy_column('uses', 'key'), idgen_convert.copy_column('parted', 'key');
               SELECT idgen_convert.copy_column('base', 'id');
               SELECT idgen_convert.copy_column('heir', 'id');
               CALL idgen_convert.fill('base');
               CALL idgen_convert.fill('heir');
               CALL idgen_convert.fill('"The keys"');
               CALL idgen_convert.fill('uses');
               CALL idgen_convert.fill('parted')"#,
        ),
    );
    client.run("CREATE TABLE history (owner_id integer, new_owner_id integer)");
    refused("SELECT idgen_convert.copy_column('history', 'owner_id')", "has a column new_owner_id already");
    client.run(
        "DROP TABLE history; CREATE DOMAIN positive AS integer CHECK (value > 0);
         CREATE TABLE history (owner_id positive, twice integer GENERATED ALWAYS AS (n * 2) STORED, n integer);
         INSERT INTO history (n) VALUES (1);
         CREATE FUNCTION drops() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
    );
    for column in ["owner_id", "twice"] {
        let copy = format!("SELECT idgen_convert.copy_column('history', '{column}')");
        refused(&copy, "is generated, or of a domain");
    }
    done(&server, &within("SELECT idgen_convert.copy_column('history', 'n')"));
    client.run("CREATE TRIGGER drops BEFORE UPDATE ON history FOR EACH ROW EXECUTE FUNCTION drops()");
    refused("CALL idgen_convert.fill('history')", "a trigger or rule keeps 1 rows");
    client.run("DROP TABLE history; DROP FUNCTION drops; DROP DOMAIN positive");
    client
        .run("DELETE FROM idgen_convert.new_columns WHERE \"table\"::oid NOT IN (SELECT oid FROM pg_class)");
    refused(switch, "there is no unique index on \"Odd schema\".\"The keys\"");
    for _ in 0..2 {
        done(
            &server,
            &within(r#"SELECT idgen_convert.indexes('uses', '"The keys"', 'parted', 'base', 'heir') \gexec"#),
        );
    }
    refused(switch, "is not there, or not validated");
    let add = r#"SELECT idgen_convert.add_constraints('"The keys"'), idgen_convert.add_constraints('uses'),
                        idgen_convert.add_constraints('parted'), idgen_convert.add_constraints('base'),
                        idgen_convert.add_constraints('heir')"#;
    for _ in 0..2 {
        done(&server, &within(add));
    }
    refused(switch, "is not there, or not validated");
    done(
        &server,
        &within("SELECT idgen_convert.validations('\"The keys\"', 'uses', 'parted', 'base', 'heir') \\gexec"),
    );
    refused(switch, "cannot drop column user");
    done(
        &server,
        &within(&format!(
            "BEGIN; DROP VIEW seen; {switch}; CREATE VIEW seen AS SELECT \"user\" FROM \"The keys\"; COMMIT"
        )),
    );
    let bigint = [
        "\"The keys\" Id",
        "\"The keys\" user",
        "uses key",
        "parted key",
        "part_1 key",
        "part_2 key",
        "base id",
        "heir id",
    ];
    let mut expected: Vec<String> = before
        .lines()
        .map(|line| {
            let becomes = bigint.iter().any(|column| line.starts_with(&format!("{column} integer")));
            if becomes { line.replacen("integer", "bigint", 1) } else { line.to_owned() }
        })
        .collect();
    let after: String = client.value(SHAPE);
    let mut after: Vec<&str> = after.lines().collect();
    expected.sort();
    after.sort_unstable();
    assert_eq!(after, expected);
    let id = r#"INSERT INTO "The keys" ("user") VALUES (9) RETURNING "Id""#;
    assert_eq!(client.value::<i64>(id), 3);
    client.run(r#"DELETE FROM "The keys" WHERE "Id" = 1"#);
    assert!(client.value::<bool>("SELECT count(*) = 2 FROM uses WHERE key IS NULL"));
    assert_eq!(client.value::<i64>("INSERT INTO heir DEFAULT VALUES RETURNING id"), 3);
    assert!(client.value::<bool>("SELECT count(*) = 0 FROM idgen_convert.new_columns"));
}

/// Old rows are filled in blocks. If a client locks a row and then changes it, the row moves beyond the existing
/// blocks, or to a partition that is already filled. It must be filled too, or its next change would violate the
/// constraint.
#[test]
fn a_row_that_moves_meanwhile_is_filled() {
    let (server, mut client) = prepared();
    client.run(
        "CREATE TABLE moved (n integer PRIMARY KEY, note text);
         CREATE TABLE parted (n integer, note text) PARTITION BY LIST (note);
         CREATE TABLE part_1 PARTITION OF parted FOR VALUES IN (repeat('y', 700));
         CREATE TABLE part_2 PARTITION OF parted DEFAULT",
    );
    for table in ["moved", "parted"] {
        client.run(&format!(
            "INSERT INTO {table} SELECT n, repeat('x', 700) FROM generate_series(1, 3300) AS n;
             SELECT idgen_convert.add_key('{table}', 'n', 9);
             SELECT idgen_convert.make_ids('{table}', 'timestamptz ''2025-03-01Z''')"
        ));
        let mut holder = server.connect();
        holder.run(&format!("BEGIN; SELECT FROM {table} WHERE n = 5 FOR UPDATE"));
        let left = format!("SELECT count(*) FROM {table} WHERE new_n IS NULL");
        thread::scope(|scope| {
            scope.spawn(|| server.connect().run(&format!("CALL idgen_convert.fill('{table}')")));
            assert!(is_reached(60, || client.value::<i64>(&left) == 1));
            holder.run(&format!("UPDATE {table} SET note = repeat('y', 700) WHERE n = 5; COMMIT"));
        });
        assert_eq!(client.value::<i64>(&left), 0, "{table}");
    }
}

/// Rows that row-level security hides, or that are on another server, are not skipped unnoticed.
#[test]
fn a_table_with_hidden_rows_is_not_filled() {
    let (server, mut client) = prepared();
    client.run(
        "CREATE TABLE parted (n integer) PARTITION BY LIST (n);
         CREATE TABLE part_1 PARTITION OF parted FOR VALUES IN (1);
         CREATE FOREIGN DATA WRAPPER nothing;
         CREATE SERVER elsewhere FOREIGN DATA WRAPPER nothing;
         CREATE FOREIGN TABLE part_2 PARTITION OF parted FOR VALUES IN (2) SERVER elsewhere;
         INSERT INTO parted VALUES (1);
         SELECT idgen_convert.copy_column('parted', 'n')",
    );
    let refused = |client: &mut Client, table: &str| {
        let error = client.error("CALL idgen_convert.fill('parted')");
        assert_eq!(
            error.message(),
            format!("row security or another server may hide rows of public.{table}")
        );
        assert!(error.hint().is_some_and(|hint| hint.contains("BYPASSRLS")), "{error:?}");
    };
    refused(&mut client, "part_2");
    client.run(
        "DROP FOREIGN TABLE part_2; CREATE ROLE keeper; GRANT USAGE ON SCHEMA idgen_convert TO keeper;
         GRANT SELECT ON idgen_convert.new_columns TO keeper; ALTER TABLE parted OWNER TO keeper;
         ALTER TABLE part_1 OWNER TO keeper; ALTER TABLE part_1 ENABLE ROW LEVEL SECURITY;
         ALTER TABLE part_1 FORCE ROW LEVEL SECURITY; SET SESSION AUTHORIZATION keeper",
    );
    refused(&mut client, "part_1");
    server.run("ALTER ROLE keeper BYPASSRLS");
    client.run("CALL idgen_convert.fill('parted')");
    assert_eq!(client.value::<i64>("SELECT count(new_n) FROM parted"), 1);
}

/// Traps that a tenant may set for a superuser: better matches for functions, operators and types of PostgreSQL.
const TRAPS: &str = "
    CREATE ROLE mallory;
    CREATE SCHEMA evil;
    DO $$
    DECLARE
        arguments text;
        o record;
    BEGIN
        FOREACH arguments IN ARRAY '{\"format(text, regclass, text, text)\", \"format(text, bigint, bigint)\",
                \"format(text, regclass, text, text, text)\", \"replace(text, text, name)\", \"cardinality(bigint[])\",
                \"concat(integer, text, name[])\", \"pg_sleep(numeric)\", \"pg_sleep(double precision)\",
                \"pg_relation_size(regclass)\", \"set_config(text, text, boolean)\", \"current_setting(text)\"}'::text[] LOOP
            EXECUTE format('CREATE FUNCTION evil.%s RETURNS text LANGUAGE plpgsql AS
                                ''BEGIN ALTER ROLE mallory SUPERUSER; RETURN NULL; END''', arguments);
        END LOOP;
        FOR o IN SELECT t.* FROM pg_operator AS t JOIN pg_type AS l ON l.oid = oprleft JOIN pg_type AS r ON r.oid = oprright
                 WHERE oprname IN ('<', '>', '>=', '=', '+', '/', '||', '~')
                       AND l.typtype <> 'p' AND r.typtype <> 'p' AND oprresult <> 0 LOOP
            EXECUTE format('CREATE FUNCTION evil.f%s(%s, %s) RETURNS %s LANGUAGE plpgsql AS
                                ''BEGIN ALTER ROLE mallory SUPERUSER; RETURN NULL; END''', o.oid, o.oprleft::regtype,
                           o.oprright::regtype, o.oprresult::regtype);
            EXECUTE format('CREATE OPERATOR evil.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = evil.f%s)', o.oprname,
                           o.oprleft::regtype, o.oprright::regtype, o.oid);
        END LOOP;
        CREATE FUNCTION evil.rise() RETURNS boolean LANGUAGE plpgsql AS
            'BEGIN ALTER ROLE mallory SUPERUSER; RETURN true; END';
        FOREACH arguments IN ARRAY '{text, name, regclass, tid}'::text[] LOOP
            EXECUTE format('CREATE DOMAIN evil.%1$s AS %1$s CHECK (evil.rise())', arguments);
        END LOOP;
    END $$";

/// Procedures that commit cannot have a search_path of their own. A superuser who calls them runs nothing to which a
/// hostile path leads, while triggers and given statements use the path.
#[test]
fn procedures_run_nothing_of_a_hostile_path() {
    let (server, _) = prepared();
    run(server.psql("on-each-shard.sql", &[]));
    server.run(
        "CREATE TABLE mine (n integer PRIMARY KEY);
         INSERT INTO mine SELECT n FROM generate_series(1, 10) AS n;
         SELECT idgen_convert.add_key('mine', 'n', 9);
         SELECT idgen_convert.make_ids('mine', 'timestamptz ''2025-03-01Z''');
         CREATE TABLE counts (n bigserial PRIMARY KEY);
         CREATE TABLE log (n integer);
         CREATE FUNCTION logs() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN INSERT INTO log VALUES (NEW.n); RETURN NEW; END';
         CREATE TRIGGER logs AFTER UPDATE ON mine FOR EACH ROW EXECUTE FUNCTION logs();
         CREATE SCHEMA shard0; CREATE SCHEMA shard1",
    );
    server.run(TRAPS);
    let mut hostile = server.connect();
    hostile.run("SET search_path = evil, public, idgen, pg_catalog");
    for call in [
        "CALL idgen_convert.fill('mine')",
        "CALL on_each_shard('CREATE TABLE {schema}.twin (LIKE log)', 'SELECT WHERE false')",
        "SELECT idgen_convert.find_columns('public')",
        "UPDATE idgen_convert.id_columns SET is_id = \"table\" OPERATOR(pg_catalog.=) 'counts'::pg_catalog.regclass",
        "SELECT idgen_convert.set_defaults(9)",
        "ALTER TABLE counts ALTER n SET DEFAULT idgen.snowflake_next_id(9)",
        "SELECT idgen_convert.check_id_columns()",
    ] {
        hostile.run(call);
        server.assert_ordinary("mallory");
    }
    let done = "SELECT count(new_n) = 10 AND (SELECT count(*) FROM log) = 10
                       AND to_regclass('shard0.twin') IS NOT NULL AND to_regclass('shard1.twin') IS NOT NULL FROM mine";
    assert!(server.answer::<bool>(done));
}

/// After SET ROLE, code of the tables' owner could return to the role of the session, perhaps a superuser.
#[test]
fn a_role_that_was_only_set_converts_nothing() {
    let server = Server::start(&[]);
    server.run(
        "CREATE ROLE app; GRANT CREATE ON DATABASE postgres TO app; CREATE SCHEMA app AUTHORIZATION app",
    );
    let mut app = server.connect();
    app.run("SET SESSION AUTHORIZATION app; CREATE TABLE app.t (id serial PRIMARY KEY)");
    let mut psql = server.psql("convert.sql", &[]);
    psql.env("PGOPTIONS", "-c role=app");
    refused(psql, &["Connect as that role"]);
    assert!(server.answer::<bool>("SELECT to_regnamespace('idgen_convert') IS NULL"));
    run(server.psql("convert.sql", &[]));
}

/// A client may change a row between the snapshot with which a block is filled and the lock of the row. This is not
/// taken for a trigger that keeps the row from being filled.
#[test]
fn a_row_that_changes_meanwhile_is_filled() {
    let (server, mut client) = prepared();
    client.run(
        "CREATE TABLE busy (n integer PRIMARY KEY, note text);
         INSERT INTO busy SELECT n, '' FROM generate_series(1, 20) AS n;
         SELECT idgen_convert.add_key('busy', 'n', 9);
         SELECT idgen_convert.make_ids('busy', 'timestamptz ''2025-03-01Z''')",
    );
    let filled = AtomicBool::new(false);
    thread::scope(|scope| {
        for first in 1..=3 {
            let (mut writer, filled) = (server.connect(), &filled);
            scope.spawn(move || {
                let mut rows = (first..=20).step_by(3).cycle();
                while !filled.load(Ordering::Relaxed) {
                    let row = rows.next().unwrap();
                    writer.run(&format!("UPDATE busy SET note = clock_timestamp() WHERE n = {row}"));
                }
            });
        }
        let filling = (0..100).try_for_each(|_| {
            client.batch_execute("UPDATE busy SET new_n = NULL")?;
            client.batch_execute("CALL idgen_convert.fill('busy')")
        });
        filled.store(true, Ordering::Relaxed);
        filling.unwrap();
    });
    assert_eq!(client.value::<i64>("SELECT count(*) FROM busy WHERE new_n IS NULL"), 0);
}

/// Old rows get ids only by times with a zone, and only once. No column follows a key without a unique index.
#[test]
fn ids_for_old_rows_are_made_in_order() {
    let (_server, mut client) = prepared();
    client.run(
        "CREATE TABLE old (key text PRIMARY KEY, at timestamp);
         INSERT INTO old SELECT 'x' || n, '2025-03-01' FROM generate_series(1, 3000) AS n;
         INSERT INTO old VALUES ('before', '2019-07-01'), ('never', NULL), ('later', '2999-01-01')",
    );
    let make = "SELECT none_is_repeated FROM idgen_convert.make_ids('old', 'at AT TIME ZONE ''UTC''')";
    assert!(client.error(make).message().contains("call add_key first"));
    client.run("SELECT idgen_convert.add_key('old', 'key', 9)");
    let zone = client.error("SELECT idgen_convert.make_ids('old', 'at')");
    assert!(zone.message().contains("not a timestamp with time zone"), "{zone:?}");
    client.run("INSERT INTO old VALUES ('new', now())");
    for _ in 0..2 {
        assert!(client.value::<bool>(make));
    }
    client.run("CALL idgen_convert.fill('old')");
    let again = client.error(make);
    assert!(again.message().ends_with("have their ids already"), "{again:?}");
    let order = "SELECT string_agg(key, ' ' ORDER BY new_key) FROM old WHERE key NOT LIKE 'x%'";
    assert_eq!(client.value::<String>(order), "before later never new");
    let spread = "SELECT count(DISTINCT new_key) = 3004 AND count(DISTINCT shard_of(new_key)) = 1
                         AND max(snowflake_time(new_key)) FILTER (WHERE key LIKE 'x%') = '2025-03-01T00:00:00.002Z'
                  FROM old";
    assert!(client.value::<bool>(spread));
    client.run("CREATE TABLE below (key text)");
    let follow = "SELECT idgen_convert.follow_key('below', 'key', 'old')";
    assert!(client.error(follow).message().starts_with("create a unique index"));
    client.run("CREATE UNIQUE INDEX ON old (new_key); CREATE ROLE tenant; ALTER TABLE below OWNER TO tenant");
    assert!(client.error(follow).message().ends_with("belongs to another role"));
    client.run("ALTER TABLE below OWNER TO postgres");
    client.run(follow);
}

/// A role whose functions make it a superuser when another role runs them, which in an index happens as soon as another
/// role plans a query of the table.
const EVIL: &str = "
    CREATE ROLE evil;
    CREATE SCHEMA evil AUTHORIZATION evil;
    SET SESSION AUTHORIZATION evil;
    CREATE FUNCTION evil.v() RETURNS integer LANGUAGE plpgsql AS
        $$BEGIN IF current_user <> 'evil' THEN ALTER ROLE evil SUPERUSER; END IF; RETURN 1; END$$;
    CREATE FUNCTION evil.f(integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS
        'BEGIN RETURN evil.v(); END';
    RESET SESSION AUTHORIZATION";

/// Partitions, child tables and foreign keys of other roles run no functions of these. Columns that depend on them are
/// named and left alone until they are gone.
#[test]
fn tables_of_other_roles_run_nothing() {
    let (server, mut client) = prepared();
    client.run(EVIL);
    client.run(
        "CREATE TABLE logs (id bigserial PRIMARY KEY, n integer, body text) PARTITION BY RANGE (id);
         CREATE TABLE evil.log PARTITION OF logs DEFAULT;
         INSERT INTO logs (n, body) VALUES (1, '1');
         ALTER TABLE evil.log OWNER TO evil;
         CREATE TABLE base (id serial PRIMARY KEY, n integer, body text);
         CREATE TABLE evil.heir () INHERITS (base);
         INSERT INTO base (n, body) VALUES (1, '1');
         ALTER TABLE evil.heir OWNER TO evil;
         CREATE TABLE customers (id serial PRIMARY KEY, body text);
         INSERT INTO customers (body) VALUES ('1');
         CREATE TABLE orders (id serial PRIMARY KEY, customer_id integer REFERENCES customers);
         GRANT REFERENCES ON customers TO evil;
         SET SESSION AUTHORIZATION evil;
         CREATE TABLE evil.owned (customer_id integer REFERENCES customers);
         INSERT INTO evil.owned VALUES (1);
         CREATE INDEX ON evil.owned (evil.f(1));
         CREATE INDEX ON evil.log (evil.f(1));
         CREATE INDEX ON evil.heir (evil.f(1));
         RESET SESSION AUTHORIZATION",
    );
    let mut ran = Vec::new();
    let mut said_by = BTreeMap::new();
    for call in [
        "SELECT * FROM idgen_convert.find_columns('public')",
        "SELECT * FROM idgen_convert.texts_with_keys()",
        "SELECT * FROM idgen_convert.in_the_way",
        "SELECT idgen_convert.change_types() \\gexec",
        "SELECT idgen_convert.check_id_columns()",
        "SELECT idgen_convert.copy_column('logs', 'n')",
        "CALL idgen_convert.fill('logs')",
        "SELECT idgen_convert.copy_column('base', 'n')",
    ] {
        said_by.insert(call, said(&psql(&server, call)));
        if server.answer::<bool>("SELECT rolsuper FROM pg_roles WHERE rolname = 'evil'") {
            ran.push(call);
            client.run("ALTER ROLE evil NOSUPERUSER");
        }
    }
    assert_eq!(ran, [""; 0]);
    let way = &said_by["SELECT * FROM idgen_convert.in_the_way"];
    for row in [
        "customers | id          | table evil.owned, of another role",
        "base      | id          | table evil.heir, of another role",
        "logs      | n           | table evil.log, of another role",
    ] {
        let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
        assert!(way.lines().any(|line| cells(line) == cells(row)), "{row}: {way}");
    }
    for call in
        ["SELECT idgen_convert.copy_column('logs', 'n')", "SELECT idgen_convert.copy_column('base', 'n')"]
    {
        assert!(said_by[call].contains("belongs to another role"), "{}", said_by[call]);
    }
    let types = "SELECT string_agg(concat(attrelid::regclass, ' ', atttypid::regtype), ', ' ORDER BY attrelid)
                 FROM pg_attribute WHERE attname = 'id' AND attrelid IN ('customers'::regclass, 'orders'::regclass)";
    assert_eq!(server.value::<String>(types), "customers integer, orders bigint");
    client.run("DROP SCHEMA evil CASCADE");
    done(&server, STEPS);
    assert!(client.value::<bool>(CHECK));
}

/// The way in batches runs nothing of another role that now owns a partition or the table to which a foreign key
/// refers.
#[test]
fn batches_run_nothing_of_other_roles() {
    let (server, mut client) = prepared();
    client.run(EVIL);
    client.run(
        "CREATE TABLE logs (n integer) PARTITION BY LIST (n);
         CREATE TABLE evil.log PARTITION OF logs DEFAULT;
         INSERT INTO logs VALUES (1);
         SELECT idgen_convert.copy_column('logs', 'n');
         ALTER TABLE evil.log OWNER TO evil;
         SET SESSION AUTHORIZATION evil;
         CREATE FUNCTION evil.fires() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM evil.v(); RETURN NEW; END';
         CREATE TRIGGER fires BEFORE UPDATE ON evil.log FOR EACH ROW EXECUTE FUNCTION evil.fires();
         RESET SESSION AUTHORIZATION",
    );
    let error = client.error("CALL idgen_convert.fill('logs')");
    assert_eq!(error.message(), "evil.log belongs to another role");
    client.run(
        "CREATE TABLE evil.keys (id integer PRIMARY KEY); INSERT INTO evil.keys VALUES (1);
         CREATE TABLE mine (k integer REFERENCES evil.keys); INSERT INTO mine VALUES (1);
         ALTER TABLE evil.keys OWNER TO evil;
         SET SESSION AUTHORIZATION evil; CREATE INDEX ON evil.keys (evil.f(1)); RESET SESSION AUTHORIZATION;
         SELECT idgen_convert.copy_column('mine', 'k')",
    );
    let output = psql(
        &server,
        "CALL idgen_convert.fill('mine');
         SELECT idgen_convert.add_constraints('mine');
         SELECT idgen_convert.validations('mine') \\gexec",
    );
    assert_says(&said(&output), &["evil.keys belongs to another role"]);
    server.assert_ordinary("evil");
}

/// A table of a role that has the rights of this role anyway, such as a superuser, is no obstacle.
#[test]
fn tables_of_superusers_are_not_in_the_way() {
    let server = server();
    server.run(
        "CREATE ROLE app; GRANT CREATE ON DATABASE postgres TO app; CREATE SCHEMA app AUTHORIZATION app;
         CREATE TABLE countries (id bigint PRIMARY KEY); GRANT REFERENCES ON countries TO app",
    );
    let output = done(
        &server,
        "SET SESSION AUTHORIZATION app;
         \\i docs/examples/convert.sql
         CREATE TABLE app.people (id serial PRIMARY KEY, country_id integer REFERENCES countries);
         SELECT FROM idgen_convert.find_columns('app');
         SELECT * FROM idgen_convert.in_the_way;
         SELECT idgen_convert.change_types() \\gexec
         SELECT idgen_convert.set_defaults(5) \\gexec
         SELECT idgen_convert.check_id_columns()",
    );
    assert!(output.contains("(0 rows)") && output.contains("\n t\n"), "{output}");
}

/// No default mints for a key to which a narrow column refers, even if that column is in no list.
#[test]
fn narrow_references_to_ids_are_refused() {
    let (server, mut client) = prepared();
    client.run(
        "CREATE DOMAIN small AS integer; CREATE DOMAIN wide AS bigint;
         CREATE TABLE keys (id serial PRIMARY KEY);
         CREATE TABLE domains (small small REFERENCES keys, wide wide REFERENCES keys);
         CREATE SCHEMA elsewhere;
         CREATE TABLE elsewhere.refers (key integer REFERENCES keys);
         CREATE ROLE other;
         CREATE TABLE theirs (key smallint REFERENCES keys);
         ALTER TABLE theirs OWNER TO other;
         SELECT idgen_convert.find_columns('public');
         ALTER TABLE keys ALTER id TYPE bigint",
    );
    for call in ["SELECT idgen_convert.set_defaults(5)", CHECK] {
        let error = client.error(call);
        assert!(
            error.message().ends_with(
                "new ids do not fit into them: elsewhere.refers.key, public.domains.small, public.theirs.key"
            ),
            "{error:?}"
        );
    }
    client.run("ALTER TABLE elsewhere.refers ALTER key TYPE bigint; DROP TABLE theirs; ALTER TABLE domains DROP small");
    done(&server, STEPS);
    assert!(client.value::<bool>(CHECK));
}

/// If another role owns the schema of the script, the page's first step runs nothing of that role, even in a psql that
/// continues after errors.
#[test]
fn nothing_runs_after_a_refusal() {
    let server = server();
    server.run(
        "CREATE ROLE other; CREATE SCHEMA idgen_convert AUTHORIZATION other; SET SESSION AUTHORIZATION other;
         CREATE FUNCTION idgen_convert.find_columns(VARIADIC name[]) RETURNS integer LANGUAGE plpgsql AS
             $$BEGIN RAISE 'run of another role'; END$$",
    );
    let step = ["\\i docs/examples/convert.sql", "find_columns("]
        .map(|part| blocks(APPLICATION).into_iter().find(|block| block.contains(part)).unwrap());
    let said = || {
        let script = format!("{}\n\\echo then it stops at errors: :ON_ERROR_STOP", step.join("\n"));
        said(&begun_with(&[], &server, &script).wait_with_output().unwrap())
    };
    let refused = said();
    assert!(refused.contains("belongs to another role") && refused.contains("HINT:"), "{refused}");
    assert!(!refused.contains("run of another role") && !refused.contains("then"), "{refused}");
    // The script does not leave the setting behind, with which the first lock that fails would end a step.
    server.run("DROP SCHEMA idgen_convert CASCADE");
    let done = said();
    assert!(!done.contains("ERROR") && done.contains("then it stops at errors: off"), "{done}");
}

/// Step 5 gives no default that cannot mint.
#[test]
fn a_shard_that_cannot_mint_is_refused() {
    let (server, mut client) = prepared();
    client.run("CREATE TABLE keys (id bigserial PRIMARY KEY); SELECT idgen_convert.find_columns('public')");
    for arguments in ["9000", "300, 'snowflake_next_id_js'", "5, 'snowflake_next'"] {
        let error = client.error(&format!("SELECT idgen_convert.set_defaults({arguments})"));
        assert!(["22023", "22003", "42883"].contains(&error.code().code()), "{error:?}");
    }
    assert_ne!(client.code("SELECT idgen_convert.add_key('keys', 'id', 9000)"), "00000");
    let unset = said(&psql(&server, "SELECT idgen_convert.set_defaults()"));
    assert!(unset.contains("idgen.shard is not set") && unset.contains("SET DEFAULT"), "{unset}");
    let set = done(&server, "SET idgen.shard = 7; SELECT idgen_convert.set_defaults()");
    assert!(!set.contains("is not set") && set.contains("SET DEFAULT"), "{set}");
}

/// The check fails if it has nothing to look at, because all tables have been created anew or belong to another role.
#[test]
fn the_check_of_no_table_fails() {
    let (_server, mut client) = prepared();
    client.run(
        "CREATE TABLE keys (id bigint PRIMARY KEY DEFAULT snowflake_next_id(5));
         SELECT idgen_convert.find_columns('public')",
    );
    assert!(client.value::<bool>(CHECK));
    client.run("DROP TABLE keys; CREATE TABLE keys (id serial PRIMARY KEY)");
    let error = client.error(CHECK);
    assert!(
        error
            .hint()
            .is_some_and(|hint| hint.contains("begin with step 1") && hint.contains("connect as that role")),
        "{error:?}"
    );
}

/// If the new columns of a table were dropped before the switch, as the page says, fewer columns can be converted next.
#[test]
fn what_was_given_up_can_begin_again() {
    let (_server, mut client) = prepared();
    client.run(
        "CREATE TABLE kept (a integer, b integer);
         SELECT idgen_convert.copy_column('kept', 'a'), idgen_convert.copy_column('kept', 'b');
         DROP TRIGGER zz_idgen_convert ON kept;
         ALTER TABLE kept DROP new_a, DROP new_b;
         SELECT idgen_convert.copy_column('kept', 'a');
         INSERT INTO kept VALUES (1, 2)",
    );
    assert_eq!(client.value::<i64>("SELECT new_a FROM kept"), 1);
}

/// After the switch, programs that made the old keys themselves may insert rows without them.
#[test]
fn old_keys_of_programs_may_be_left_out_after_the_switch() {
    let (server, mut client) = prepared();
    client.run("CREATE TABLE made (id uuid PRIMARY KEY, at timestamptz); INSERT INTO made VALUES (gen_random_uuid(), now())");
    done(
        &server,
        "SELECT idgen_convert.add_key('made', 'id', 5);
         SELECT idgen_convert.make_ids('made', 'at');
         CALL idgen_convert.fill('made')",
    );
    index_and_constrain(&server, "made");
    client.run("ALTER TABLE made VALIDATE CONSTRAINT new_id_filled; SELECT idgen_convert.switch('made')");
    assert_eq!(client.value::<i32>("INSERT INTO made (at) VALUES (now()) RETURNING shard_of(id)"), 5);
}

/// A column whose name ends with "id" is found, whatever precedes that, but idgen does not mint for it by that alone.
#[test]
fn names_without_an_underscore_are_found() {
    let (_server, mut client) = prepared();
    client.run("CREATE TABLE many (userid integer, \"ORDERIDS\" integer[], title integer, bid serial); INSERT INTO many VALUES (77, '{77}', 77)");
    let found = "SELECT string_agg(concat_ws(' ', f.\"column\", found_by, is_id), ', ' ORDER BY f.\"column\")
                 FROM idgen_convert.find_columns('public') AS f";
    assert_eq!(client.value::<String>(found), "ORDERIDS name t, bid sequence, title f, userid name t");
}

/// Deferred triggers, which fire at the end of a batch, have the caller's search_path.
#[test]
fn deferred_triggers_have_the_path_of_the_caller() {
    let (_server, mut client) = prepared();
    client.run(
        "CREATE TABLE filled (n integer); INSERT INTO filled VALUES (1);
         CREATE TABLE log (n integer);
         CREATE FUNCTION logs() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN INSERT INTO log VALUES (NEW.n); RETURN NULL; END';
         CREATE CONSTRAINT TRIGGER logs AFTER UPDATE ON filled DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION logs();
         SELECT idgen_convert.copy_column('filled', 'n')",
    );
    client.run("CALL idgen_convert.fill('filled')");
    assert_eq!(client.value::<i64>("SELECT count(*) FROM log"), 1);
}

/// New columns keep the options of unique constraints and identities.
#[test]
fn options_of_constraints_and_identities_pass_over() {
    let (server, mut client) = prepared();
    client.run(
        "CREATE TABLE even (id integer GENERATED ALWAYS AS IDENTITY (INCREMENT BY 2 START 2) PRIMARY KEY, a integer,
             note text, UNIQUE NULLS NOT DISTINCT (a) INCLUDE (note));
         INSERT INTO even (a) VALUES (1), (NULL)",
    );
    let unique = "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'even'::regclass AND contype = 'u'";
    let before: String = server.value(unique);
    done(
        &server,
        "SELECT idgen_convert.copy_column('even', 'id'), idgen_convert.copy_column('even', 'a');
         CALL idgen_convert.fill('even')",
    );
    index_and_constrain(&server, "even");
    client.run("SELECT idgen_convert.switch('even')");
    assert_eq!(server.value::<String>(unique), before);
    for id in [6, 8] {
        assert_eq!(
            client.value::<i64>("INSERT INTO even (a) VALUES (1 + (random() * 1e6)::integer) RETURNING id"),
            id
        );
    }
}

/// By ranges of ids, pg_partman creates partitions and drops old ones. By `p_epoch` it creates wrong ones, as the page
/// says.
#[test]
fn partman_partitions_by_a_number() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let version = "SELECT coalesce(max(default_version), 'none') FROM pg_available_extensions WHERE name = 'pg_partman'";
    let version: String = server.value(version);
    if version == "none" {
        return lacks("pg_partman");
    }
    let is_old = version.starts_with("4.");
    let of_version = |sql: &str| if is_old { sql.to_owned() } else { sql.replace("'native'", "'range'") };
    client.run("CREATE SCHEMA partman; CREATE EXTENSION pg_partman SCHEMA partman");
    let blocks = blocks("pg_partman");
    assert_eq!(blocks.len(), 1);

    let by_epoch =
        "CREATE TABLE wrong (id bigint NOT NULL DEFAULT snowflake_next_id(5)) PARTITION BY RANGE (id);
         SELECT partman.create_parent('public.wrong', 'id', p_type => 'native', p_interval => '1 month',
                                      p_epoch => 'milliseconds');
         INSERT INTO wrong DEFAULT VALUES RETURNING tableoid::regclass";
    assert!(done(&server, &of_version(by_epoch)).contains("wrong_default"));
    let maintain = |client: &mut Client, table: &str, error: &str| {
        let sql = format!("SELECT partman.run_maintenance('public.{table}')");
        match is_old {
            true => assert!(client.error(&sql).message().starts_with(error)),
            false => client.run(&sql),
        }
    };
    maintain(&mut client, "wrong", "timestamp out of range");

    done(&server, &of_version(&blocks[0]));
    let partitions = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'events'::regclass";
    let in_time = "SELECT bool_and(tableoid <> 'events_default'::regclass) FROM events";
    client.run(
        "INSERT INTO events (id) SELECT snowflake_make_id(now() - n * interval '1 day', 5, 0)
             FROM generate_series(0, 59) AS n;
             INSERT INTO events DEFAULT VALUES;",
    );
    assert!(server.value::<bool>(in_time));
    client.run("SELECT partman.run_maintenance('public.events')");
    let first: i64 = server.value(partitions);
    client.run("SELECT partman.run_maintenance('public.events')");
    assert_eq!(server.value::<i64>(partitions), first, "a table without new rows gets no partitions");
    // Half a year of new rows.
    for days in (30..=180).step_by(30) {
        client.run(&format!(
            "INSERT INTO events (id) VALUES (snowflake_make_id(now() + interval '{days} days', 5, 0));
                 SELECT partman.run_maintenance('public.events')"
        ));
    }
    assert!(server.value::<bool>(in_time));
    let oldest: i64 =
        server.value("SELECT extract(day FROM now() - min(snowflake_time(id)))::bigint FROM events");
    assert!(oldest <= 0, "rows of {oldest} days before today are still there after 120 days and a partition");

    // Rows beyond the partitions made ahead go to the default partition, from which a function moves them.
    let after = |days: i32| {
        format!(
            "INSERT INTO events (id) VALUES (snowflake_make_id(now() + interval '{days} days', 5, 1))
             RETURNING tableoid::regclass::text"
        )
    };
    assert_ne!(client.value::<String>(&after(180 + 365)), "events_default");
    client.run("SELECT partman.run_maintenance('public.events')");
    assert_eq!(client.value::<String>(&after(180 + 365 + 500)), "events_default");
    maintain(&mut client, "events", "updated partition constraint for default partition");
    assert!(!server.value::<bool>(in_time));
    client.run("SELECT partman.partition_data_id('public.events')");
    client.run("SELECT partman.run_maintenance('public.events')");
    assert!(server.value::<bool>(in_time));
}

/// If a row of a foreign table has no id, the remote server mints one, and returns it if the page's trigger exists.
/// With a default of its own, this server mints for the remote shard, if it may.
#[test]
fn a_foreign_table_mints_there_or_here() {
    let (here, there) = (Server::start(&[PRELOAD]), Server::start(&["idgen.allowed_shards = '9'"]));
    if !here.value::<bool>("SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'postgres_fdw')")
    {
        return lacks("the extension postgres_fdw");
    }
    there.run("CREATE TABLE notes (id bigint PRIMARY KEY DEFAULT snowflake_next_id(9), body text)");
    let blocks =
        blocks("postgres_fdw").into_iter().map(|block| block.replace("db9.example.com", &there.host()));
    let blocks: Vec<String> = blocks.collect();
    assert_eq!(blocks.len(), 2);
    let minted = |server: &Server| {
        server.value::<i64>("SELECT coalesce(sum(ids), 0)::bigint FROM idgen_shard_stats WHERE shard = 9")
    };
    // Without the trigger, the first block fails at its end.
    let said = said(&psql(&here, &blocks[0]));
    assert!(said.contains("23502"), "{said}");
    there.run(&FILL_ID.replace("photos", "notes").replace("_id(5)", "_id(9)"));
    assert!(done(&here, blocks[0].lines().last().unwrap()).contains("(1 row)"));
    assert_eq!((minted(&here), minted(&there)), (0, 1));
    let said = done(&here, &blocks[1]);
    assert!(said.contains("snowflake_next_id(9)"), "{said}");
    assert_eq!((minted(&here), minted(&there)), (1, 1));
    let rows = "SELECT string_agg(concat(body, ' ', shard_of(id)), ',' ORDER BY body) FROM notes";
    assert_eq!(there.value::<String>(rows), "minted here 9,minted there 9");

    let mut client = here.connect();
    there.run("DROP TRIGGER fill_id ON notes");
    client.run(
        "CREATE FOREIGN TABLE new_notes (body text) SERVER other
         OPTIONS (schema_name 'public', table_name 'notes')",
    );
    client.run("INSERT INTO new_notes VALUES ('without a column')");
    assert_eq!((minted(&here), minted(&there)), (1, 2));
    here.set("idgen.allowed_shards", "0-8");
    let mut client = here.connect();
    assert_eq!(client.code("INSERT INTO db9.notes (body) VALUES ('not here')"), "55000");
    client.run("ALTER FOREIGN TABLE db9.notes ALTER id SET DEFAULT snowflake_next_id(5)");
    let shard = "INSERT INTO db9.notes (body) VALUES ('of here') RETURNING shard_of(id)";
    assert_eq!(client.value::<i32>(shard), 5);
}

/// psql continues after an error. If a function with the name in the file exists, perhaps of another role, no trigger
/// calls it. Each table has its own shard.
#[test]
fn the_trigger_calls_no_function_that_was_there() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.run(
        "CREATE TABLE photos (id bigint PRIMARY KEY); CREATE TABLE notes (id bigint PRIMARY KEY);
         CREATE ROLE other; GRANT CREATE ON SCHEMA public TO other; SET SESSION AUTHORIZATION other;
         CREATE FUNCTION public.fill_id() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.id := 1; RETURN NEW; END';
         RESET SESSION AUTHORIZATION",
    );
    let given =
        |sql: &str| assert!(begun_with(&[], &server, sql).wait_with_output().unwrap().status.success());
    let triggers = "SELECT count(*) FROM pg_trigger WHERE tgname = 'fill_id'";
    given(FILL_ID);
    assert_eq!(client.value::<i64>(triggers), 0);
    client.run("DROP FUNCTION fill_id");
    given(FILL_ID);
    let for_notes = FILL_ID.replace("photos", "notes").replace("_id(5)", "_id(9)");
    given(&for_notes);
    assert_eq!(client.value::<i64>(triggers), 1);
    // The file's statement for other tables.
    client.run(for_notes.lines().find(|line| line.starts_with("CREATE TRIGGER ")).unwrap());
    for (table, shard) in [("photos", 5), ("notes", 9)] {
        let insert = format!("INSERT INTO {table} VALUES (NULL) RETURNING shard_of(id)");
        assert_eq!(client.value::<i32>(&insert), shard, "{table}");
    }
}

/// A table that is partitioned by its id cannot have the trigger, because the partition of a row is chosen first.
#[test]
fn no_trigger_fills_in_the_id_of_a_partitioned_table() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.run("CREATE TABLE photos (id bigint DEFAULT snowflake_next_id(5)) PARTITION BY RANGE (id)");
    client.run("CREATE TABLE all_photos PARTITION OF photos FOR VALUES FROM (0) TO (MAXVALUE)");
    client.run(FILL_ID);
    let null = "INSERT INTO photos VALUES (NULL)";
    assert_eq!(client.code(null), "23514");
    client.run("CREATE TABLE other_photos PARTITION OF photos DEFAULT");
    assert_eq!(client.code(null), "0A000");
}
