//! Connections to a server, and what is waited for through them.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use postgres::{Client, NoTls};

use crate::process::{client_program, command, example};
use crate::server::Server;

impl Server {
    /// How clients reach a database of the server.
    pub fn target(&self, database: &str) -> String {
        format!("host={} user=postgres dbname={database}", self.host())
    }

    /// The folder of its sockets, which clients take for its host.
    pub fn host(&self) -> String {
        self.sockets.display().to_string()
    }

    /// psql on its way to run a file of docs/examples in the database `postgres`.
    pub fn psql(&self, name: &str, variables: &[(&str, &str)]) -> Command {
        self.psql_in("postgres", name, variables)
    }

    /// The same in another database.
    pub fn psql_in(&self, database: &str, name: &str, variables: &[(&str, &str)]) -> Command {
        let mut psql = client_program("psql");
        psql.args(["-X", "-q", "-d", &self.target(database), "-f"]).arg(example(name));
        for (name, value) in variables {
            psql.args(["-v", &format!("{name}={value}")]);
        }
        psql
    }

    /// A script on its way to run where the server is, as its administrator has it: the server's user, programs and
    /// data directory, and a folder to work in. What it starts has the server's clock and log.
    pub fn shell(&self, script: &str) -> Command {
        let programs = self.sockets.join("bin");
        let pg_ctl = programs.join("pg_ctl");
        let real = self.build.bin().join("pg_ctl");
        // As in start_command(), and as often as there.
        let wrapper = format!(
            "#!/bin/sh\ncase $1 in start | restart) ;; *) exec '{real}' \"$@\" ;; esac\n\
             for try in $(seq 100); do\n  env {clock} '{real}' \"$@\" -l '{log}' && exit\n  sleep 0.1\ndone\nexit 1\n",
            real = real.display(),
            clock = self.clock().iter().map(|variable| format!("'{variable}'")).collect::<Vec<_>>().join(" "),
            log = self.dir.join("log").display(),
        );
        std::fs::create_dir_all(&programs).expect("mkdir");
        std::fs::write(&pg_ctl, wrapper).expect("write");
        std::fs::set_permissions(&pg_ctl, Permissions::from_mode(0o755)).expect("chmod");
        let mut bash = command("bash");
        bash.args(["-c", r#"cd "$1" && exec 2>&1 && set -euo pipefail && eval "$0""#, script])
            .arg(&self.sockets);
        let path = std::env::var("PATH").unwrap_or_default();
        bash.env("PATH", format!("{}:{}:{path}", programs.display(), self.build.bin().display()));
        bash.env("PGDATA", &self.dir).env("PGHOST", &self.sockets);
        bash.env("PGUSER", "postgres").env("PGDATABASE", "postgres");
        bash
    }

    /// A connection to a database.
    pub fn connect_to(&self, database: &str) -> Client {
        Client::connect(&self.target(database), NoTls)
            .unwrap_or_else(|error| panic!("{error}\n{}", self.log()))
    }

    /// A connection to the database `postgres`.
    pub fn connect(&self) -> Client {
        self.connect_to("postgres")
    }

    /// A connection as soon as the server takes one again after a crash.
    pub fn reconnect(&self) -> Client {
        for _ in 0..600 {
            if let Ok(mut client) = Client::connect(&self.target("postgres"), NoTls)
                && client.batch_execute("SELECT 1").is_ok()
            {
                return client;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("the server does not come back\n{}", self.log());
    }

    /// Reads the configuration again, and waits until a new session sees it.
    pub fn reload(&self, setting: &str, value: &str) {
        let mut client = self.connect();
        client.batch_execute("SELECT pg_reload_conf()").expect("reload");
        for _ in 0..500 {
            let now: String = self.connect().query_one(&format!("SHOW {setting}"), &[]).expect("SHOW").get(0);
            if now == value {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{setting} does not become {value}");
    }

    /// Waits until a query answers true.
    ///
    /// # Panics
    /// Where that takes over a minute.
    pub fn wait_until(&self, query: &str) {
        let mut client = self.connect();
        for _ in 0..3000 {
            if client.query_one(query, &[]).expect(query).get(0) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("never true: {query}\n{}", self.log());
    }

    /// Waits until a backend is seen to wait for an event of idgen's, and tells its process. Before
    /// PostgreSQL 17 the events of all extensions have one name.
    pub fn until_waiting(&self, event: &str) -> i32 {
        let mut client = self.connect();
        let waiting = "SELECT pid FROM pg_stat_activity
                       WHERE wait_event_type = 'Extension'
                         AND wait_event = CASE WHEN current_setting('server_version_num')::integer < 170000
                                               THEN 'Extension' ELSE $1 END";
        for _ in 0..1000 {
            if let Some(row) = client.query(waiting, &[&event]).expect("pg_stat_activity").first() {
                return row.get(0);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("nobody waits for {event}");
    }
}
