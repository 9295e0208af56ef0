//! Connections to a server, and waiting for conditions through them.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use postgres::error::{DbError, SqlState};
use postgres::types::FromSqlOwned;
use postgres::{Client, Config, GenericClient, NoTls, Row};

use crate::moment::{is_reached, within_seconds};
use crate::process::{client_program, command, example};
use crate::server::Server;

/// The most frequent operations of tests in a session.
pub trait Sql {
    /// Runs statements, which must succeed.
    fn run(&mut self, statements: &str);

    /// The first value of a query's only row.
    fn value<T: FromSqlOwned>(&mut self, query: &str) -> T;

    /// The error of statements, which must fail.
    fn error(&mut self, statements: &str) -> DbError;

    /// The SQLSTATE of that error.
    fn code(&mut self, statements: &str) -> String {
        self.error(statements).code().code().to_owned()
    }

    /// The SQLSTATE of that error, and the reason for which idgen raises it.
    fn refusal(&mut self, statements: &str) -> String {
        reason(&self.error(statements))
    }

    /// The values of a query's first column.
    fn column<T: FromSqlOwned>(&mut self, query: &str) -> Vec<T>;

    /// The values of a query's rows.
    fn rows<T: Values>(&mut self, query: &str) -> Vec<T>;

    /// The values of a query's only row.
    fn row<T: Values>(&mut self, query: &str) -> T {
        let mut rows = self.rows(query);
        assert_eq!(rows.len(), 1, "rows of {query}");
        rows.remove(0)
    }

    fn warning(&mut self) -> Option<String> {
        self.value("SELECT warning FROM idgen_status")
    }

    fn warning_code(&mut self) -> Option<String> {
        self.value("SELECT warning_code FROM idgen_status")
    }
}

/// The SQLSTATE of an error, and its routine, which is the reason if idgen has refused the call.
pub fn reason(error: &DbError) -> String {
    format!("{} {}", error.code().code(), error.routine().unwrap_or_default())
}

pub trait Values {
    fn of(row: &Row) -> Self;
}

macro_rules! values {
    ($($value:ident $place:literal),*) => {
        impl<$($value: FromSqlOwned),*> Values for ($($value,)*) {
            fn of(row: &Row) -> Self {
                ($(row.get($place),)*)
            }
        }
    };
}

values!(A 0, B 1);
values!(A 0, B 1, C 2);
values!(A 0, B 1, C 2, D 3);
values!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);

impl<C: GenericClient> Sql for C {
    #[track_caller]
    fn run(&mut self, statements: &str) {
        self.batch_execute(statements).unwrap_or_else(|error| panic!("{error:?}\n{statements}"));
    }

    #[track_caller]
    fn value<T: FromSqlOwned>(&mut self, query: &str) -> T {
        self.query_one(query, &[]).unwrap_or_else(|error| panic!("{error:?}\n{query}")).get(0)
    }

    #[track_caller]
    fn error(&mut self, statements: &str) -> DbError {
        let error = self.batch_execute(statements).expect_err(statements);
        error.as_db_error().unwrap_or_else(|| panic!("{error:?}\n{statements}")).clone()
    }

    #[track_caller]
    fn column<T: FromSqlOwned>(&mut self, query: &str) -> Vec<T> {
        let rows = self.query(query, &[]).unwrap_or_else(|error| panic!("{error:?}\n{query}"));
        rows.iter().map(|row| row.get(0)).collect()
    }

    #[track_caller]
    fn rows<T: Values>(&mut self, query: &str) -> Vec<T> {
        let rows = self.query(query, &[]).unwrap_or_else(|error| panic!("{error:?}\n{query}"));
        rows.iter().map(T::of).collect()
    }
}

impl Server {
    /// Runs statements in a session of their own.
    #[track_caller]
    pub fn run(&self, statements: &str) {
        self.connect().run(statements);
    }

    #[track_caller]
    pub fn value<T: FromSqlOwned>(&self, query: &str) -> T {
        self.connect().value(query)
    }

    #[track_caller]
    pub fn error(&self, statements: &str) -> DbError {
        self.connect().error(statements)
    }

    #[track_caller]
    pub fn code(&self, statements: &str) -> String {
        self.connect().code(statements)
    }

    #[track_caller]
    pub fn refusal(&self, statements: &str) -> String {
        self.connect().refusal(statements)
    }

    pub fn warning(&self) -> Option<String> {
        self.connect().warning()
    }

    pub fn warning_code(&self) -> Option<String> {
        self.connect().warning_code()
    }

    /// Checks that this role has not become a superuser.
    #[track_caller]
    pub fn assert_ordinary(&self, role: &str) {
        let superuser =
            format!("SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname OPERATOR(pg_catalog.=) '{role}'");
        assert!(!self.answer::<bool>(&superuser), "{role} is a superuser of {}", self.host());
    }

    /// Changes a setting in the configuration file, and waits until new sessions have it.
    pub fn set(&self, setting: &str, value: &str) {
        self.configure(&[&format!("{setting} = '{value}'")]);
        self.reload(setting, value);
    }

    /// Changes a setting by ALTER SYSTEM, and waits until new sessions have it.
    pub fn alter(&self, setting: &str, value: &str) {
        self.run(&format!("ALTER SYSTEM SET {setting} = '{value}'"));
        self.reload(setting, value);
    }

    pub fn target(&self, database: &str) -> String {
        format!("host={} user=postgres dbname={database}", self.host())
    }

    /// The connection string of this role for the database `postgres`.
    pub fn target_as(&self, role: &str) -> String {
        format!("host={} user={role} dbname=postgres", self.host())
    }

    pub fn connect_as(&self, role: &str) -> Client {
        Client::connect(&self.target_as(role), NoTls).unwrap()
    }

    /// The folder of its sockets, which clients use as the host.
    pub fn host(&self) -> String {
        self.sockets.display().to_string()
    }

    /// psql to run a file of docs/examples in the database `postgres`.
    pub fn psql(&self, name: &str, variables: &[(&str, &str)]) -> Command {
        self.psql_in("postgres", name, variables)
    }

    pub fn psql_in(&self, database: &str, name: &str, variables: &[(&str, &str)]) -> Command {
        let mut psql = client_program("psql");
        psql.args(["-X", "-q", "-d", &self.target(database), "-f"]).arg(example(name));
        for (name, value) in variables {
            psql.args(["-v", &format!("{name}={value}")]);
        }
        psql
    }

    /// A script that an administrator runs on the server's machine: with the server's user, programs and data
    /// directory, in the folder of the sockets. Servers that it starts have the server's clock and log.
    pub fn shell(&self, script: &str) -> Command {
        let programs = self.sockets.join("bin");
        let pg_ctl = programs.join("pg_ctl");
        let real = self.build.bin().join("pg_ctl");
        // As in start_command(), and as often as there.
        let wrapper = format!(
            "#!/bin/sh\ncase $1 in start | restart) ;; *) exec '{real}' \"$@\" ;; esac\n\
             for try in $(seq 100); do\n  env {clock} '{real}' \"$@\" -l '{log}' && exit\n  sleep 0.1\ndone\nexit 1\n",
            real = real.display(),
            clock =
                self.preloaded().iter().map(|variable| format!("'{variable}'")).collect::<Vec<_>>().join(" "),
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

    /// A connection to a database of any name.
    pub fn connect_to(&self, database: &str) -> Client {
        let mut config: Config = self.target("postgres").parse().expect("a connection string");
        config.dbname(database).connect(NoTls).unwrap_or_else(|error| panic!("{error}\n{}", self.log()))
    }

    pub fn connect(&self) -> Client {
        self.connect_to("postgres")
    }

    /// A connection, if the server now accepts one.
    pub fn try_connect(&self) -> Option<Client> {
        let mut client = Client::connect(&self.target("postgres"), NoTls).ok()?;
        client.batch_execute("SELECT 1").is_ok().then_some(client)
    }

    /// A connection, as soon as the server accepts one after a crash.
    pub fn reconnect(&self) -> Client {
        let client = within_seconds(30, || self.try_connect());
        client.unwrap_or_else(|| panic!("the server does not come back\n{}", self.log()))
    }

    /// Does something in a session, and repeats it in new sessions until it succeeds, because faults may interfere.
    pub fn eventually<T>(&self, work: impl Fn(&mut Client) -> Result<T, postgres::Error>) -> T {
        self.in_time(Duration::from_secs(60), work)
            .unwrap_or_else(|error| panic!("never done: {error}\n{}", self.log()))
    }

    /// Like [`Server::eventually`], but for at most this time.
    ///
    /// # Errors
    /// The error of the last try.
    pub fn in_time<T>(
        &self,
        time: Duration,
        work: impl Fn(&mut Client) -> Result<T, postgres::Error>,
    ) -> Result<T, postgres::Error> {
        let mut last = work(&mut self.reconnect());
        let start = Instant::now();
        while last.is_err() && start.elapsed() < time {
            std::thread::sleep(Duration::from_millis(10));
            last = work(&mut self.reconnect());
        }
        last
    }

    /// Kills a backend, and waits until the server has ended another one. The victim's own connection ends before the
    /// server knows of the death.
    pub fn kill_backend(&self, mut victim: Client) {
        let mut witness = self.connect();
        self.signal("KILL", victim.value("SELECT pg_backend_pid()"));
        while witness.batch_execute("SELECT 1").is_ok() {}
    }

    /// Makes the server reload its configuration, if it is running.
    pub fn read_configuration(&self) {
        if let Some(postmaster) = self.running() {
            self.signal_if_there("HUP", postmaster.as_raw());
        }
    }

    /// Waits until the server accepts connections again, and starts it if it has ended.
    pub fn revive(&self) {
        let is_back = || {
            if self.running().is_none() {
                self.up();
            }
            self.try_connect().is_some()
        };
        assert!(is_reached(60, is_back), "the server does not come back\n{}", self.log());
    }

    pub fn is_steady(&self) -> bool {
        let mut client = self.reconnect();
        std::thread::sleep(Duration::from_millis(100));
        client.batch_execute("SELECT 1").is_ok()
    }

    /// Makes the server reload its configuration, and waits until new sessions have this value.
    pub fn reload(&self, setting: &str, value: &str) {
        self.until_done("SELECT pg_reload_conf()");
        let show = format!("SHOW {setting}");
        let is_seen = || self.answer::<String>(&show) == value;
        assert!(is_reached(60, is_seen), "{setting} does not become {value}");
    }

    /// Runs statements in a new session, and again in another one if the server ends that session, as it does when a
    /// backend dies.
    pub fn until_done(&self, statements: &str) {
        self.until_not_cut_off(statements, |client| client.batch_execute(statements));
    }

    pub fn answer<T: FromSqlOwned>(&self, query: &str) -> T {
        self.until_not_cut_off(query, |client| client.query_one(query, &[])).get(0)
    }

    fn until_not_cut_off<T>(
        &self,
        what: &str,
        work: impl Fn(&mut Client) -> Result<T, postgres::Error>,
    ) -> T {
        loop {
            match work(&mut self.reconnect()) {
                Ok(done) => return done,
                Err(error) => assert!(cut_off(&error), "{what}: {error:?}"),
            }
        }
    }

    /// Waits until the value of a query is true.
    pub fn wait_until(&self, query: &str) {
        let mut client = self.reconnect();
        let is_true = || match client.query_one(query, &[]) {
            Ok(row) => row.get(0),
            Err(error) => {
                assert!(cut_off(&error), "{query}: {error:?}");
                client = self.reconnect();
                false
            }
        };
        assert!(is_reached(60, is_true), "never true: {query}\n{}", self.log());
    }

    /// Waits until a standby has replayed all WAL that this server has written so far.
    pub fn until_replayed_by(&self, standby: &Server) {
        let written: String = self.answer("SELECT pg_current_wal_lsn()::text");
        standby.wait_until(&format!("SELECT pg_last_wal_replay_lsn() >= '{written}'"));
    }

    /// Waits until a backend waits for this event of idgen, and returns its process. Before PostgreSQL 17 the events of
    /// all extensions have one name.
    pub fn until_waiting(&self, event: &str) -> i32 {
        let mut client = self.connect();
        let waiting = "SELECT pid FROM pg_stat_activity
                       WHERE wait_event_type = 'Extension'
                         AND wait_event = CASE WHEN current_setting('server_version_num')::integer < 170000
                                               THEN 'Extension' ELSE $1 END";
        let find = || client.query(waiting, &[&event]).expect("pg_stat_activity").into_iter().next();
        within_seconds(10, find).unwrap_or_else(|| panic!("no backend waits for {event}")).get(0)
    }
}

/// Whether a session has ended because its server did, or because another backend died.
fn cut_off(error: &postgres::Error) -> bool {
    let ends = [&SqlState::ADMIN_SHUTDOWN, &SqlState::CRASH_SHUTDOWN, &SqlState::CANNOT_CONNECT_NOW];
    error.is_closed() || error.code().is_none_or(|code| ends.contains(&code))
}
