//! The two layouts of docs/scaling.md behind PgDog: a schema for each shard, and one table on all servers.

use std::collections::HashSet;
use std::io::{self, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::thread;

use postgres::{Client, NoTls, SimpleQueryMessage};

use crate::clients::{Clients, Ledger, ids};
use crate::moment::{is_reached, within_seconds};
use crate::process::{Service, client_program, example, installed, run, said, servers_folder, skipped};
use crate::server::{PRELOAD, Server, Sql, enable};

/// A PgDog in front of two servers.
struct PgDog {
    _service: Service,
    port: u16,
}

impl PgDog {
    /// Starts PgDog with a file of docs/examples in which some texts are replaced.
    fn start(program: &Path, servers: &[Server; 2], file: &str, replacements: &[(&str, &str)]) -> PgDog {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let hosts = servers.each_ref().map(|server| format!("\"127.0.0.1\"\nport = {}", forwarded(server)));
        let listen = format!("[general]\nhost = \"127.0.0.1\"\nport = {port}\nshutdown_timeout = 1000");
        let mut config = std::fs::read_to_string(example(file)).unwrap();
        let own = [
            ("[general]", listen.as_str()),
            ("\"10.0.0.1\"", hosts[0].as_str()),
            ("\"10.0.0.2\"", hosts[1].as_str()),
        ];
        for (theirs, ours) in own.iter().chain(replacements) {
            assert!(config.contains(theirs), "{theirs}");
            config = config.replace(theirs, ours);
        }
        let base = servers_folder().join(format!("pgdog-{}-{port}", std::process::id()));
        let [main, users, log] = ["toml", "users.toml", "log"].map(|kind| base.with_extension(kind));
        std::fs::write(&main, config).unwrap();
        std::fs::copy(example("scaling/pgdog-users.toml"), &users).unwrap();
        let args = ["--config", main.to_str().unwrap(), "--users", users.to_str().unwrap()];
        let pgdog = PgDog { _service: Service::start(program, &args, &[("NODE_ID", "pgdog-0")], &log), port };
        let answers = || Client::connect(&pgdog.target("app"), NoTls).ok()?.simple_query("SELECT 1").ok();
        assert!(within_seconds(60, answers).is_some(), "{}", std::fs::read_to_string(&log).unwrap());
        pgdog
    }

    fn target(&self, role: &str) -> String {
        format!("host=127.0.0.1 port={} user={role} password=secret dbname=app", self.port)
    }

    fn connect(&self, role: &str) -> Client {
        Client::connect(&self.target(role), NoTls).unwrap()
    }
}

/// A port that forwards to the socket of a server, because PgDog only connects over TCP.
fn forwarded(server: &Server) -> u16 {
    let socket = Path::new(&server.host()).join(".s.PGSQL.5432");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let forward = |client: TcpStream, server: UnixStream| -> io::Result<()> {
        let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
        thread::spawn(move || {
            let _ = io::copy(&mut from_client, &mut to_server);
            to_server.shutdown(Shutdown::Write)
        });
        let (mut from_server, mut to_client) = (server, client);
        thread::spawn(move || {
            let _ = io::copy(&mut from_server, &mut to_client);
            to_client.shutdown(Shutdown::Both)
        });
        Ok(())
    };
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // Without a server, the client loses the connection.
            let _ = UnixStream::connect(&socket).and_then(|server| forward(client, server));
        }
    });
    port
}

/// Two servers with a database `app`, to which PgDog connects as `app` and `report`.
fn two_servers(settings: [&[&str]; 2]) -> [Server; 2] {
    settings.map(|settings| {
        let server = Server::start(&[&[PRELOAD, "max_connections = 100"], settings].concat());
        server.run("CREATE ROLE app LOGIN SUPERUSER; CREATE ROLE report LOGIN");
        server.run("CREATE DATABASE app");
        server.connect_to("app").run(&enable("app"));
        server
    })
}

/// Copies rows with psql, after an optional statement, and returns its output. The driver would send COPY in the
/// extended protocol, on which PgDog hangs.
fn copy(target: &str, before: &str, columns: &str, rows: &str) -> String {
    let mut psql = client_program("psql");
    psql.args(["-X", "-q", "-d", target, "-c", before]);
    psql.args(["-c", &format!("\\copy {columns} FROM STDIN")]);
    psql.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut psql = psql.spawn().unwrap();
    psql.stdin.take().unwrap().write_all(rows.as_bytes()).unwrap();
    said(&psql.wait_with_output().unwrap())
}

/// PgDog's message for a statement that needs several servers, or might.
const REFUSED: &str = "cross-shard queries are disabled";

/// Promise: rows go to the server of their schema's shard, however a statement names the schema, and PgDog refuses
/// unlisted schemas. Without `cross_shard_disabled`, statements on those go to all servers, and only
/// `idgen.allowed_shards` keeps two servers from minting for one shard.
#[test]
fn a_schema_for_each_shard_through_pgdog() {
    let Some(program) = installed("pgdog") else {
        return skipped("pgdog is not installed");
    };
    let servers = two_servers([&["max_prepared_transactions = 10"], &["max_prepared_transactions = 10"]]);
    for (server, (first, last)) in servers.iter().zip([("1", "2"), ("3", "4")]) {
        run(server.psql_in("app", "scaling/shards.sql", &[("first", first), ("last", last)]));
    }
    let file = "scaling/pgdog-schemas.toml";
    let pgdog = PgDog::start(&program, &servers, file, &[]);
    let clients = Clients::start_at(4, pgdog.target("app"), |client, round| {
        let shard = round % 4 + 1;
        let new = match round % 3 {
            0 => {
                let insert = format!("INSERT INTO shard{shard}.users (name) VALUES ('Ada') RETURNING id");
                ids(client, &insert)?
            }
            1 => {
                let mut transaction = client.transaction()?;
                let insert =
                    format!("INSERT INTO shard{shard}.users (name) VALUES ($1), ('Ada') RETURNING id");
                let rows = transaction.query(&insert, &[&"Grace"])?;
                transaction.commit()?;
                rows.iter().map(|row| row.get(0)).collect()
            }
            _ => {
                let new = ids(client, &format!("SELECT id FROM shard{shard}.new_id"))?;
                let insert = format!("INSERT INTO shard{shard}.users VALUES ($1, 'Ada')");
                client.execute(&insert, &[&new[0]])?;
                new
            }
        };
        assert!(new.iter().all(|id| id >> 10 & 8191 == shard as i64), "{new:?} of {shard}");
        Ok(new)
    });
    clients.wait_for_ids(400);
    let mut ledger = Ledger::default();
    clients.finish(&mut ledger);
    println!("{} ids, refused: {:?}", ledger.len(), ledger.errors);
    assert!(ledger.errors.is_empty());
    let mut client = pgdog.connect("app");
    for shard in 1..=4 {
        let select = format!("SELECT id FROM shard{shard}.users");
        let there: HashSet<i64> =
            servers[(shard - 1) / 2].connect_to("app").column(&select).into_iter().collect();
        let told = ledger.ids().into_iter().filter(|id| id >> 10 & 8191 == shard as i64).collect();
        assert_eq!(there, told, "shard {shard}");
        assert_eq!(client.column::<i64>(&select).into_iter().collect::<HashSet<_>>(), told, "shard {shard}");
        assert_eq!(copy(&pgdog.target("app"), "", &format!("shard{shard}.users (name)"), "Ada\nEve\n"), "");
    }

    client.run("SET search_path = shard3, public, idgen");
    let insert = "INSERT INTO users (name) VALUES ('path') RETURNING shard_of(id)";
    assert_eq!(client.value::<i32>(insert), 3);
    // The path takes precedence over names in a statement, and COPY ignores it.
    assert_eq!(client.code("SELECT FROM shard1.users"), "42P01");
    let refused = copy(&pgdog.target("app"), "SET search_path = shard3, public", "users (name)", "Ada\n");
    assert!(refused.contains(REFUSED), "{refused}");

    // A statement that names no listed schema is refused. One without any table goes to either server, whose list of
    // shards decides.
    let mut client = pgdog.connect("app");
    for sql in [
        "CREATE SCHEMA shard9",
        "CREATE TABLE notes (id bigint)",
        "CREATE TABLE shard9.notes (id bigint)",
        "INSERT INTO shard9.notes VALUES (1)",
    ] {
        assert_eq!(client.error(sql).message(), REFUSED, "{sql}");
    }
    let next = "SELECT snowflake_next_id(1)";
    assert!((0..100).any(|_| client.batch_execute(next).is_err()));
    assert_eq!(
        (0..100).find_map(|_| client.batch_execute(next).err()).unwrap().code().unwrap().code(),
        "55000"
    );

    // The horizon is that of the one server that PgDog asks.
    let mut open = servers[0].connect_to("app");
    open.run("BEGIN");
    let id: i64 = open.value("SELECT snowflake_next_id(1)");
    servers[1].connect_to("app").run("SELECT snowflake_next_id(3)");
    for is_passed in [true, false] {
        // One message, because PgDog sends each to the next server.
        let ask = format!("SELECT 1 / (snowflake_safe_horizon() > {id})::integer");
        assert!(is_reached(60, || client.batch_execute(&ask).is_ok() == is_passed), "{id}: {is_passed}");
    }
    open.run("COMMIT");

    // If one of two servers refuses to commit, only two-phase commit keeps the other from committing its half.
    servers[1].connect_to("app").run(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN IF NEW.name = ''half'' THEN RAISE ''refused at the end''; END IF; RETURN NULL; END';
         CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON shard3.users DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION refuse()",
    );
    let halves = |pgdog: &PgDog| {
        for _ in 0..4 {
            let mut client = pgdog.connect("app");
            client.run("BEGIN");
            client.run("INSERT INTO shard1.users (name) VALUES ('half')");
            client.run("INSERT INTO shard3.users (name) VALUES ('half')");
            assert!(client.batch_execute("COMMIT").is_err());
        }
        servers[0].connect_to("app").value::<i64>("SELECT count(*) FROM shard1.users WHERE name = 'half'")
    };
    assert_eq!(halves(&pgdog), 0);
    for server in &servers {
        server.wait_until("SELECT count(*) = 0 FROM pg_prepared_xacts");
    }
    let one_phase = [("two_phase_commit = true", "two_phase_commit = false")];
    assert!(halves(&PgDog::start(&program, &servers, file, &one_phase)) > 0);

    // Without the setting, both servers create the table. The INSERT fails, but one server keeps the row.
    let off = [("cross_shard_disabled = true", "cross_shard_disabled = false")];
    let lenient = PgDog::start(&program, &servers, file, &off);
    let mut client = lenient.connect("app");
    client.run("CREATE SCHEMA shard9");
    client.run("CREATE TABLE shard9.notes (id bigint DEFAULT snowflake_next_id(1), what text)");
    assert_eq!(client.code("INSERT INTO shard9.notes (what) VALUES ('x')"), "55000");
    let rows = servers.each_ref().map(|server| {
        server.connect_to("app").value::<i64>("SELECT count(*) FROM shard9.notes WHERE shard_of(id) = 1")
    });
    assert_eq!(rows, [1, 0]);
    // Without the lists, both would mint for one shard.
    servers[1].run("ALTER SYSTEM RESET idgen.allowed_shards");
    servers[1].reload("idgen.allowed_shards", "");
    client.run("INSERT INTO shard9.notes (what) VALUES ('y')");
    let both = "SELECT count(*) FROM shard9.notes WHERE shard_of(id) = 1 AND what = 'y'";
    for server in &servers {
        assert_eq!(server.connect_to("app").value::<i64>(both), 1);
    }
}

/// Promise: each row of a table on two servers is on the server of its id, and the id is enough to find it. Statements
/// for several servers are refused, and so are rows that PgDog sends to the wrong server.
#[test]
fn a_table_on_all_servers_by_id_through_pgdog() {
    let Some(program) = installed("pgdog") else {
        return skipped("pgdog is not installed");
    };
    let servers = two_servers([
        &["idgen.allowed_shards = '0-4095'", "idgen.shard = 5"],
        &["idgen.allowed_shards = '4096-8191'", "idgen.shard = 5000"],
    ]);
    for (server, (first, last)) in servers.iter().zip([("0", "4095"), ("4096", "8191")]) {
        run(server.psql_in("app", "scaling/pgdog-table.sql", &[("first", first), ("last", last)]));
        server.connect_to("app").run("GRANT SELECT ON users, orders TO report");
    }
    let file = "scaling/pgdog-table.toml";
    let pgdog = PgDog::start(&program, &servers, file, &[]);
    let clients = Clients::start_at(4, pgdog.target("app"), |client, round| {
        let new = if round % 2 == 0 {
            ids(client, "INSERT INTO users (name) VALUES ('Ada') RETURNING id")?
        } else {
            let new = ids(client, "SELECT snowflake_next_id()")?;
            client.execute("INSERT INTO users (id, name) VALUES ($1, 'Ada')", &[&new[0]])?;
            new
        };
        let order = "INSERT INTO orders (user_id, what) VALUES ($1, 'tea') RETURNING id";
        assert_eq!(client.query(order, &[&new[0]])?.len(), 1);
        assert_eq!(client.execute("UPDATE users SET name = 'Eve' WHERE id = $1", &[&new[0]])?, 1);
        let join = "SELECT u.name, o.what FROM users u JOIN orders o ON o.user_id = u.id WHERE u.id = $1";
        assert_eq!(client.query(join, &[&new[0]])?.len(), 1);
        assert_eq!(client.query("SELECT FROM users WHERE id IN ($1)", &[&new[0]])?.len(), 1);
        Ok(new)
    });
    clients.wait_for_ids(200);
    let mut ledger = Ledger::default();
    clients.finish(&mut ledger);
    println!("{} ids, refused: {:?}", ledger.len(), ledger.errors);
    assert!(ledger.errors.is_empty());
    let there = servers.each_ref().map(|server| {
        server.connect_to("app").column::<i64>("SELECT id FROM users").into_iter().collect::<HashSet<_>>()
    });
    for (server, shard) in there.iter().zip([5, 5000]) {
        assert!(!server.is_empty() && server.iter().all(|id| id >> 10 & 8191 == shard));
    }
    assert_eq!(there.iter().flatten().copied().collect::<HashSet<_>>(), ledger.ids());

    let mut client = pgdog.connect("app");
    let [one, two] = there.each_ref().map(|ids| *ids.iter().max().unwrap());
    for sql in [
        "INSERT INTO users (name) VALUES ('a'), ('b')",
        &format!("INSERT INTO users (id, name) VALUES ({one} + 1, 'a'), ({two} + 1, 'b')"),
        "SELECT count(*) FROM users",
        &format!("SELECT FROM users WHERE id IN ({one}, {two})"),
        "UPDATE users SET name = 'x'",
        "CREATE TABLE notes (id bigint)",
    ] {
        assert_eq!(client.error(sql).message(), REFUSED, "{sql}");
    }
    for (columns, row) in [("users (name)", "Ada\n"), ("users (id, name)", &format!("{}\tAda\n", one + 1))] {
        let refused = copy(&pgdog.target("app"), "", columns, row);
        assert!(refused.contains(REFUSED), "{refused}");
    }
    // PgDog does not see an id that SQL computes, and sends the row to each server in turn.
    for sql in [
        format!("INSERT INTO users (id, name) VALUES ({one} + 1, 'computed')"),
        format!("INSERT INTO users (id, name) SELECT {two} + 1, 'computed'"),
    ] {
        let mut codes =
            (0..20).filter_map(|_| Some(client.batch_execute(&sql).err()?.code()?.code().to_owned()));
        assert!(codes.any(|code| code == "23514"), "{sql}");
    }

    // Another role reads from all servers at once.
    let mut report = pgdog.connect("report");
    let counts = servers.each_ref().map(|server| {
        server.connect_to("app").value::<i64>("SELECT count(*) FROM users WHERE name <> 'computed'")
    });
    let sum: i64 = counts.iter().sum();
    assert_eq!(report.value::<i64>("SELECT count(*) FROM users WHERE name <> 'computed'"), sum);
    // It joins only rows of the same server.
    let pairs =
        "SELECT count(*) FROM users AS a, users AS b WHERE a.name <> 'computed' AND b.name <> 'computed'";
    assert_eq!(report.value::<i64>(pairs), counts.iter().map(|count| count * count).sum::<i64>());
    let of_time = "SELECT count(*) FROM users
                   WHERE id >= snowflake_min_id(now() - interval '1 hour') AND name <> 'computed'";
    assert_eq!(report.value::<i64>(of_time), sum);
    let in_list = format!("SELECT id FROM users WHERE id IN ({one}, {two}) ORDER BY id");
    let mut both = vec![one, two];
    both.sort_unstable();
    assert_eq!(report.column::<i64>(&in_list), both);
    assert_eq!(report.code("INSERT INTO users (name) VALUES ('a'), ('b')"), "42501");

    // Without the setting, each row is inserted on both servers, with an id of each. Rows with ids go to the right
    // servers only by COPY.
    let off = [("cross_shard_disabled = true", "cross_shard_disabled = false")];
    let lenient = PgDog::start(&program, &servers, file, &off);
    let mut client = lenient.connect("app");
    assert_eq!(client.execute("INSERT INTO users (name) VALUES ('a'), ('b')", &[]).unwrap(), 4);
    assert_eq!(copy(&lenient.target("app"), "", "users (name)", "c\n"), "");
    let rows = "SELECT string_agg(name, '' ORDER BY name) FROM users WHERE name IN ('a', 'b', 'c')";
    for server in &servers {
        assert_eq!(server.connect_to("app").value::<String>(rows), "abc");
    }
    let mint = "SELECT snowflake_next_id()";
    let [one, two] = servers.each_ref().map(|server| server.connect_to("app").value::<i64>(mint));
    for server in &servers {
        server.connect_to("app").run("GRANT INSERT ON users TO report");
    }
    let with_ids = format!("INSERT INTO users (id, name) VALUES ({one}, 'd'), ({two}, 'd')");
    assert_eq!(client.code(&with_ids), "23514");
    assert_eq!(copy(&pgdog.target("report"), "", "users (id, name)", &format!("{one}\td\n{two}\td\n")), "");
    for (server, id) in servers.iter().zip([one, two]) {
        assert_eq!(server.connect_to("app").column::<i64>("SELECT id FROM users WHERE name = 'd'"), [id]);
    }

    // PgDog's own ids have another layout.
    let rewrite = [("[general]", "[rewrite]\nenabled = true\nprimary_key = \"rewrite\"\n\n[general]")];
    let rewriting = PgDog::start(&program, &servers, file, &rewrite);
    let insert = "INSERT INTO users (name) VALUES ('foreign') RETURNING id";
    let mut client = rewriting.connect("app");
    for _ in 0..6 {
        let messages = client.simple_query(insert).unwrap();
        let id = messages.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).and_then(|id| id.parse::<i64>().ok()),
            _ => None,
        });
        let id = id.unwrap();
        assert!(![5, 5000].contains(&(id >> 10 & 8191)), "{id}");
    }

    // A table on each server can give its shards in any form.
    for server in &servers {
        server.connect_to("app").run(
            "CREATE TABLE shard_ranges (first integer, last integer, server integer);
             INSERT INTO shard_ranges VALUES (0, 4095, 0), (4096, 8000, 1);
             GRANT SELECT ON shard_ranges TO report",
        );
    }
    let by_table = [(
        "SELECT idgen.shard_of($1::bigint) / 4096",
        "SELECT server FROM shard_ranges WHERE idgen.shard_of($1::bigint) BETWEEN first AND last",
    )];
    let by_table = PgDog::start(&program, &servers, file, &by_table);
    let mut client = by_table.connect("app");
    for id in [one, two] {
        assert_eq!(client.query("SELECT FROM users WHERE id = $1", &[&id]).unwrap().len(), 1);
    }
    let unlisted = client.query("SELECT FROM users WHERE id = $1", &[&(one | 8191 << 10)]);
    assert!(unlisted.is_err());
}
