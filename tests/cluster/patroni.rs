//! docs/scaling.md with Patroni: promise 1 while it fails over and switches back.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use postgres::{Client, NoTls};

use crate::clients::{Clients, Ledger, ROWS};
use crate::moment::within_seconds;
use crate::process::{
    Service, client_program, command, example, installed, kill, output_of_run, release_bin, run,
    servers_folder, skipped, variable,
};
use crate::server::Sql;

/// Two servers under Patroni and a third voter. They agree by Raft, which needs no other service.
struct Nodes {
    services: Vec<Service>,
    config: String,
    sockets: String,
    ports: [u16; 2],
    voters: [String; 3],
}

/// Addresses that the pg_hba.conf of initdb does not admit, as it does 127.0.0.1.
const HOSTS: [&str; 2] = ["127.0.0.2", "127.0.0.3"];

/// The same on both servers.
const PASSWORDS: [(&str, &str); 5] = [
    ("PATRONI_SUPERUSER_PASSWORD", "super"),
    ("PATRONI_REPLICATION_PASSWORD", "replication"),
    ("PATRONI_REWIND_PASSWORD", "rewind"),
    ("PATRONI_RESTAPI_USERNAME", "admin"),
    ("PATRONI_RESTAPI_PASSWORD", "rest"),
];

impl Nodes {
    fn start(patroni: &Path, controller: &Path) -> Nodes {
        // These ports are free now. All are found before one is released.
        let listeners = [(); 7].map(|()| TcpListener::bind("0.0.0.0:0").unwrap());
        let ports = listeners.map(|listener| listener.local_addr().unwrap().port());
        let voters = [ports[0], ports[1], ports[2]].map(|port| format!("127.0.0.1:{port}"));
        // The servers' user may not be able to read the folder of the sources, nor to write into that of the sockets.
        let folder = servers_folder().join(format!("patroni-{}", std::process::id()));
        let (config, sockets) =
            (folder.with_extension("yml"), format!("/tmp/idgen-patroni-{}", std::process::id()));
        let file = std::fs::read_to_string(example("scaling/patroni.yml")).unwrap();
        assert!(file.contains(SOCKETS), "{file}");
        std::fs::write(&config, file.replace(SOCKETS, &sockets)).unwrap();
        let config = config.to_str().unwrap().to_owned();

        let mut nodes = Nodes { services: Vec::new(), config, sockets, ports: [ports[3], ports[4]], voters };
        for (number, name) in ["one", "two"].iter().enumerate() {
            let listen = format!("{}:{}", HOSTS[number], ports[3 + number]);
            let api = format!("{}:{}", HOSTS[number], ports[5 + number]);
            let (data, pgpass) = (nodes.folder(name), nodes.folder(&format!("{name}.pgpass")));
            let (bin, user) = (release_bin(), variable("IDGEN_SERVER_USER"));
            let own = [
                ("PATRONI_NAME", *name),
                ("PATRONI_RESTAPI_LISTEN", &api),
                ("PATRONI_RESTAPI_CONNECT_ADDRESS", &api),
                ("PATRONI_POSTGRESQL_LISTEN", &listen),
                ("PATRONI_POSTGRESQL_CONNECT_ADDRESS", &listen),
                ("PATRONI_POSTGRESQL_DATA_DIR", &data),
                ("PATRONI_POSTGRESQL_BIN_DIR", &bin),
                ("PATRONI_POSTGRESQL_PGPASS", &pgpass),
                ("PATRONI_SUPERUSER_USERNAME", &user),
            ];
            let own = [&own[..], &PASSWORDS].concat();
            nodes.join(patroni, name, number, &own);
        }
        nodes.join(controller, "voter", 2, &[]);
        nodes
    }

    fn folder(&self, name: &str) -> String {
        format!("{}-{name}", self.config.trim_end_matches(".yml"))
    }

    fn join(&mut self, program: &Path, name: &str, number: usize, own: &[(&str, &str)]) {
        let mut others = self.voters.to_vec();
        let voter = others.remove(number);
        let (partners, folder) = (quoted(&others), self.folder(&format!("{name}.raft")));
        let raft = [
            ("PATRONI_RAFT_SELF_ADDR", voter.as_str()),
            ("PATRONI_RAFT_PARTNER_ADDRS", &partners),
            ("PATRONI_RAFT_DATA_DIR", &folder),
        ];
        let log = PathBuf::from(self.folder(name)).with_extension("log");
        self.services.push(Service::start(program, &[&self.config], &[&raft[..], own].concat(), &log));
    }

    /// How clients reach whichever is the primary.
    fn target(&self) -> String {
        let ([one, two], [host, other]) = (self.ports, HOSTS);
        let (user, [(_, password), ..]) = (variable("IDGEN_SERVER_USER"), PASSWORDS);
        format!(
            "host={host},{other} port={one},{two} user={user} password={password} dbname=postgres \
             connect_timeout=2 target_session_attrs=read-write"
        )
    }

    /// What a program of the servers' user gets by the socket of a server, without a password.
    fn local(&self, port: i32, query: &str) -> String {
        let mut psql = command(Path::new(&release_bin()).join("psql"));
        psql.args(["-X", "-At", "-h", &self.sockets, "-p", &port.to_string(), "-d", "postgres", "-c", query]);
        output_of_run(psql.env_remove("PGPASSWORD").env_remove("PGUSER"))
    }

    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(format!("{}.log", self.folder(name))).unwrap_or_default()
    }

    /// A connection to the primary as soon as Patroni would promote the other server in its place, and its port.
    fn pair(&self) -> (Client, i32) {
        let pair = || {
            // Patroni notes the synchronous standby some seconds after PostgreSQL does.
            let listed = self.patronictl("list").output().unwrap().stdout;
            if !String::from_utf8_lossy(&listed).contains("Sync Standby") {
                return None;
            }
            let mut client = Client::connect(&self.target(), NoTls).ok()?;
            let port = client.value("SELECT inet_server_port()");
            Some((client, port))
        };
        within_seconds(180, pair)
            .unwrap_or_else(|| panic!("no pair of servers\n{}\n{}", self.log("one"), self.log("two")))
    }

    fn patronictl(&self, what: &str) -> Command {
        // It waits for ever if most voters are gone.
        let mut patronictl = client_program("timeout");
        patronictl.args(["60", "patronictl", "-c", &self.config, what]);
        patronictl.env("PATRONI_RAFT_PARTNER_ADDRS", quoted(&self.voters)).envs(PASSWORDS);
        patronictl
    }
}

fn quoted(addresses: &[String]) -> String {
    addresses.iter().map(|address| format!("'{address}'")).collect::<Vec<_>>().join(",")
}

impl Drop for Nodes {
    fn drop(&mut self) {
        // Patroni stops its server when it ends.
        self.services.clear();
        let folders = ["one", "two", "one.raft", "two.raft", "voter.raft"].map(|name| self.folder(name));
        let _ = command("rm").arg("-rf").args(folders).arg(&self.sockets).output();
    }
}

/// Where patroni.yml puts the sockets.
const SOCKETS: &str = "/var/run/postgresql";

/// The members and their clients have passwords and addresses other than 127.0.0.1, and local programs a socket. The
/// primary is killed, Patroni promotes the synchronous standby, takes the old primary back with pg_rewind, and switches
/// over to it again. Clients that know both continue, no id occurs twice, and no row is lost.
#[test]
fn patroni_fails_over_and_switches_back() {
    let programs = ["patroni", "patroni_raft_controller", "patronictl"].map(installed);
    let [Some(patroni), Some(controller), Some(_)] = programs else {
        return skipped("patroni, with its programs for Raft, is not installed");
    };
    let nodes = Nodes::start(&patroni, &controller);
    let (mut client, first) = nodes.pair();
    client.run(&format!("CREATE EXTENSION idgen; CREATE TABLE unseen (row text); {ROWS}"));
    for port in nodes.ports {
        assert_eq!(nodes.local(port.into(), "SHOW idgen.allowed_shards").trim(), "0-4095");
    }
    let clients = Clients::start_inserting(4, nodes.target());
    clients.wait_for_ids(500);

    // More WAL than a connection holds, so that the standby never has all of it.
    let standby = nodes.ports.map(i32::from).into_iter().find(|port| *port != first).unwrap();
    let receiver = nodes.local(standby, "SELECT pid FROM pg_stat_wal_receiver").trim().parse().unwrap();
    kill("STOP", receiver).unwrap();
    client.run(
        "SET synchronous_commit = local; INSERT INTO unseen SELECT repeat('x', 1000) FROM generate_series(1, 50000)",
    );
    let pid = "SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::integer";
    kill("KILL", client.value(pid)).unwrap();
    kill("CONT", receiver).unwrap();
    clients.wait_for_ids(500);
    let (mut client, second) = nodes.pair();
    assert_ne!(first, second, "the standby has been promoted");
    assert_eq!(client.value::<i64>("SELECT count(*) FROM unseen"), 0);
    assert!(
        ["one", "two"].iter().any(|name| nodes.log(name).contains("pg_rewind exit code=0")),
        "no pg_rewind"
    );
    run(nodes.patronictl("switchover").arg("--force"));
    clients.wait_for_ids(500);
    let (mut client, third) = nodes.pair();
    assert_eq!(first, third, "the first is the primary again");
    clients.wait_for_ids(500);
    let mut ledger = Ledger::default();
    clients.finish(&mut ledger);
    ledger.assert_rows(&mut client, 3);
}
