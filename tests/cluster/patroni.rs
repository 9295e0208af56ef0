//! docs/scaling.md with Patroni: promise 1 while it fails over and switches back.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use postgres::{Client, NoTls};

use crate::clients::{Clients, Ledger, ROWS};
use crate::process::{
    Service, client_program, command, example, installed, kill, release_bin, run, servers_folder, skipped,
};
use crate::server::Sql;

/// Two servers under Patroni and a third voter. They agree by Raft, which needs no other service.
struct Nodes {
    services: Vec<Service>,
    config: String,
    ports: [u16; 2],
    voters: [String; 3],
}

impl Nodes {
    fn start(patroni: &Path, controller: &Path) -> Nodes {
        // These ports are free now. All are found before one is released.
        let listeners = [(); 7].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = listeners.map(|listener| listener.local_addr().unwrap().port());
        let voters = [ports[0], ports[1], ports[2]].map(|port| format!("127.0.0.1:{port}"));
        // The servers' user may not be able to read the folder of the sources.
        let config = servers_folder().join(format!("patroni-{}.yml", std::process::id()));
        std::fs::copy(example("scaling/patroni.yml"), &config).unwrap();
        let config = config.to_str().unwrap().to_owned();

        let mut nodes = Nodes { services: Vec::new(), config, ports: [ports[3], ports[4]], voters };
        for (number, name) in ["one", "two"].iter().enumerate() {
            let (listen, api) = (format!("127.0.0.1:{}", ports[3 + number]), ports[5 + number]);
            let (api, data) = (format!("127.0.0.1:{api}"), nodes.folder(name));
            let bin = release_bin();
            let own = [
                ("PATRONI_NAME", *name),
                ("PATRONI_RESTAPI_LISTEN", &api),
                ("PATRONI_RESTAPI_CONNECT_ADDRESS", &api),
                ("PATRONI_POSTGRESQL_LISTEN", &listen),
                ("PATRONI_POSTGRESQL_CONNECT_ADDRESS", &listen),
                ("PATRONI_POSTGRESQL_DATA_DIR", &data),
                ("PATRONI_POSTGRESQL_BIN_DIR", &bin),
            ];
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
        let [one, two] = self.ports;
        format!(
            "host=127.0.0.1,127.0.0.1 port={one},{two} user=postgres dbname=postgres \
             connect_timeout=2 target_session_attrs=read-write"
        )
    }

    /// A connection to the primary as soon as Patroni would promote the other server in its place, and its port.
    fn pair(&self) -> (Client, i32) {
        for _ in 0..60 {
            // Patroni notes the synchronous standby some seconds after PostgreSQL does.
            let listed = self.patronictl("list").output().unwrap().stdout;
            if String::from_utf8_lossy(&listed).contains("Sync Standby")
                && let Ok(mut client) = Client::connect(&self.target(), NoTls)
            {
                let port = client.value("SELECT inet_server_port()");
                return (client, port);
            }
            thread::sleep(Duration::from_secs(1));
        }
        let log = |name| std::fs::read_to_string(format!("{}.log", self.folder(name))).unwrap_or_default();
        panic!("no pair of servers\n{}\n{}", log("one"), log("two"));
    }

    fn patronictl(&self, what: &str) -> Command {
        let mut patronictl = client_program("patronictl");
        patronictl.args(["-c", &self.config, what]);
        patronictl.env("PATRONI_RAFT_PARTNER_ADDRS", quoted(&self.voters));
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
        let _ = command("rm").arg("-rf").args(folders).output();
    }
}

/// The primary is killed, Patroni promotes the synchronous standby, takes the old primary back with pg_rewind, and
/// switches over to it again. Clients that know both continue, no id occurs twice, and no row is lost.
#[test]
fn patroni_fails_over_and_switches_back() {
    let programs = ["patroni", "patroni_raft_controller", "patronictl"].map(installed);
    let [Some(patroni), Some(controller), Some(_)] = programs else {
        return skipped("patroni, with its programs for Raft, is not installed");
    };
    let nodes = Nodes::start(&patroni, &controller);
    let (mut client, first) = nodes.pair();
    client.run(&format!("CREATE EXTENSION idgen; {ROWS}"));
    let clients = Clients::start_inserting(4, nodes.target());
    clients.wait_for_ids(500);
    let pid = "SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::integer";
    kill("KILL", client.value(pid)).unwrap();
    clients.wait_for_ids(500);
    let (_, second) = nodes.pair();
    assert_ne!(first, second, "the standby has been promoted");
    run(nodes.patronictl("switchover").arg("--force"));
    clients.wait_for_ids(500);
    let (mut client, third) = nodes.pair();
    assert_eq!(first, third, "the first is the primary again");
    clients.wait_for_ids(500);
    let mut ledger = Ledger::default();
    clients.finish(&mut ledger);
    ledger.assert_rows(&mut client, 3);
}
