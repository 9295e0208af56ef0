//! docs/scaling.md with pgbouncer: 1000 clients on a few server connections, in transaction mode.

use std::collections::HashMap;
use std::path::Path;
use std::thread;

use postgres::{Client, NoTls};

use crate::moment::within_seconds;
use crate::process::{Service, client_program, example, installed, lacks, run, servers_folder};
use crate::server::{Server, Sql, enable};

/// Starts pgbouncer with the file of docs/examples, and an additional database `single` with one server connection.
fn start_pool(pgbouncer: &Path, server: &Server) -> Service {
    let base = servers_folder().join(format!("pgbouncer-{}", std::process::id()));
    let [file, users, log] = ["ini", "users", "log"].map(|kind| base.with_extension(kind));
    let single = format!("[databases]\nsingle = host={} dbname=app pool_size=1", server.host());
    let mut settings = std::fs::read_to_string(example("scaling/pgbouncer.ini")).unwrap();
    for (theirs, ours) in [
        ("[databases]", single.as_str()),
        ("/var/run/postgresql", &server.host()),
        ("listen_addr = 127.0.0.1", "listen_addr ="),
        ("scram-sha-256", "trust"),
        ("/etc/pgbouncer/userlist.txt", users.to_str().unwrap()),
    ] {
        assert!(settings.contains(theirs), "{theirs}");
        settings = settings.replace(theirs, ours);
    }
    std::fs::write(&file, settings).unwrap();
    std::fs::write(&users, "\"ada\" \"\"\n\"grace\" \"\"\n\"postgres\" \"\"\n").unwrap();
    Service::start(pgbouncer, &[file.to_str().unwrap()], &[], &log)
}

fn target(server: &Server, database: &str, role: &str) -> String {
    format!("host={} port=6432 user={role} dbname={database}", server.host())
}

fn connect(server: &Server, database: &str, role: &str) -> Client {
    let target = target(server, database, role);
    let client = within_seconds(10, || Client::connect(&target, NoTls).ok());
    client.unwrap_or_else(|| {
        panic!("pgbouncer takes no connection: {:?}", Client::connect(&target, NoTls).err())
    })
}

/// The value of a query in the simple protocol, because prepared statements belong to a server session.
fn ask(client: &mut Client, sql: &str) -> String {
    let messages = client.simple_query(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    let value = messages.iter().find_map(|message| match message {
        postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    value.unwrap_or_default()
}

/// A thousand clients of two roles insert rows over twenty server connections for each role. Every row has the shard of
/// its role, and no id occurs twice. The state of a session does not follow a client.
#[test]
fn a_thousand_clients_through_pgbouncer() {
    let Some(pgbouncer) = installed("pgbouncer") else {
        return lacks("pgbouncer");
    };
    let server = Server::start(&["fsync = off"]);
    server.run("CREATE DATABASE app");
    server.connect_to("app").run(&enable("app"));
    run(server.psql_in("app", "scaling/roles-shards.sql", &[]));
    let _pool = start_pool(&pgbouncer, &server);

    const SHARDS: [(&str, i64); 3] = [("postgres", 10), ("ada", 11), ("grace", 12)];
    let shard = "SELECT shard_of(snowflake_next_id())";
    for (role, number) in SHARDS {
        assert_eq!(ask(&mut connect(&server, "app", role), shard), number.to_string(), "{role}");
    }
    let script = servers_folder().join(format!("insert-{}.sql", std::process::id()));
    std::fs::write(&script, "INSERT INTO notes DEFAULT VALUES;\n").unwrap();
    thread::scope(|scope| {
        for role in ["ada", "grace"] {
            let mut pgbench = client_program("pgbench");
            pgbench.args(["-n", "-c", "500", "-t", "10", "-h", &server.host(), "-p", "6432", "-U", role]);
            pgbench.arg("-f").arg(&script).arg("app");
            scope.spawn(|| run(pgbench));
        }
    });
    let mut client = server.connect_to("app");
    let rows = client.query("SELECT author::text, shard_of(id), count(*) FROM notes GROUP BY 1, 2", &[]);
    let rows: HashMap<(String, i32), i64> =
        rows.unwrap().iter().map(|row| ((row.get(0), row.get(1)), row.get(2))).collect();
    assert_eq!(rows, HashMap::from([(("ada".into(), 11), 5000), (("grace".into(), 12), 5000)]));
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE usename IN ('ada', 'grace')";
    assert!(client.value::<i64>(sessions) <= 40);

    let options = target(&server, "app", "ada") + " options='-c idgen.shard=20'";
    assert!(Client::connect(&options, NoTls).is_err(), "a client cannot bring a shard along");
    // SET outlives its client, but SET LOCAL does not. The last id is the session's.
    let [mut one, mut other] = [(), ()].map(|()| connect(&server, "single", "ada"));
    ask(&mut one, "BEGIN; SET LOCAL idgen.shard = 20; SELECT snowflake_next_id(); COMMIT");
    assert_eq!(ask(&mut other, shard), "11");
    let id = ask(&mut one, "SELECT snowflake_next_id()");
    assert_eq!(ask(&mut other, "SELECT snowflake_last_id()"), id);
    ask(&mut one, "SET idgen.shard = 20");
    assert_eq!(ask(&mut other, shard), "20");
}
