//! The servers that the command line names.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::thread;

use libpq::connection::Info;
use serde::Deserialize;

use crate::cli::Given;
use crate::connection::server::Server;
use crate::connection::session::Session;
use crate::terminal::error::{Error, Result};
use crate::topology::cluster::Lineage;

/// The file of servers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Kinds of findings that the check passes over.
    #[serde(default)]
    ignore: Vec<String>,
    servers: BTreeMap<String, String>,
}

/// The servers that the command line names.
#[derive(Default)]
pub struct Fleet {
    /// Them, in the order of their names or of the command line.
    pub servers: Vec<Server>,
    /// Kinds of findings that the check passes over, as the file has them.
    pub ignore: Vec<String>,
}

impl Fleet {
    /// The servers of the command line, of the file, or of the environment.
    pub fn load(given: &Given) -> Result<Fleet> {
        let (mut servers, mut ignore) = (Vec::new(), Vec::new());
        if let Some(path) = &given.fleet {
            let fail = |why: String| Error::Usage(format!("{}: {why}", path.display()));
            let text = fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
            // What the reader says may have a part of a password.
            let file: File = toml::from_str(&text).map_err(|error| {
                let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
                fail(format!(
                    "line {} makes no sense: a file has a line [servers] and lines NAME = \"CONNECTION\" after it; before it, \
                     it may have ignore = [\"ID\", \"ID:SERVER\"]",
                    before.matches('\n').count() + 1
                ))
            })?;
            if file.servers.is_empty() {
                return Err(fail("there is no server in it".into()));
            }
            ignore = file.ignore;
            for (name, connection) in &file.servers {
                servers.push(of_connection(Some(name), connection)?);
            }
        } else {
            let of_environment = [String::new()];
            let given = if given.connections.is_empty() { &of_environment[..] } else { &given.connections };
            for connection in given {
                servers.push(of_connection(None, connection)?);
            }
        }
        for (number, server) in servers.iter().enumerate() {
            if servers[..number].iter().any(|other| other.name == server.name) {
                return Err(Error::Usage(format!("{} is given twice", server.name)));
            }
        }
        Ok(Fleet { servers, ignore })
    }

    /// The number of the server of this name or connection string, which is added if it is not there.
    pub fn add(&mut self, text: &str) -> Result<usize> {
        let place = |fleet: &Fleet, name: &str| fleet.servers.iter().position(|server| server.name == name);
        if let Some(number) = place(self, text) {
            return Ok(number);
        }
        if !text.contains('=') && !text.contains("://") {
            let names: Vec<&str> = self.servers.iter().map(|server| server.name.as_str()).collect();
            return Err(Error::Usage(format!(
                "no server is called \"{text}\", and it is no connection string; the servers are {}",
                names.join(", ")
            )));
        }
        let server = of_connection(None, text)?;
        if let Some(number) = place(self, &server.name) {
            // It says the database.
            self.servers[number] = server;
            return Ok(number);
        }
        self.servers.push(server);
        Ok(self.servers.len() - 1)
    }

    /// What a function gives for each server, all at once.
    pub fn each<'a, T: Send>(&'a self, work: impl Fn(&'a Server) -> T + Sync) -> Vec<T> {
        thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> =
                self.servers.iter().map(|server| scope.spawn(move || work(server))).collect();
            threads.into_iter().map(|thread| thread.join().expect("a thread that does not panic")).collect()
        })
    }
}

/// The server of a connection string.
pub fn of_connection(name: Option<&str>, connection: &str) -> Result<Server> {
    // What libpq says may have a part of a password.
    let what = match name {
        Some(name) => format!("what the file has for {name}"),
        None if connection.contains(['=', ':']) => "what is given".into(),
        None => format!("\"{connection}\""),
    };
    let options = Info::from(connection).map_err(|_| {
        Error::Usage(format!(
            "{what} is no connection string of libpq: host=10.0.0.1 user=postgres, with a value that has spaces in \
             single quotes; or a URI"
        ))
    })?;
    let parameters: BTreeMap<String, String> =
        options.into_iter().filter_map(|option| Some((option.keyword, option.val?))).collect();
    let of = |key: &str, variable: &str| -> String {
        parameters.get(key).cloned().or_else(|| env::var(variable).ok()).unwrap_or_default()
    };
    let (host, address, port) = (of("host", "PGHOST"), of("hostaddr", "PGHOSTADDR"), of("port", "PGPORT"));
    if host.contains(',') || address.contains(',') {
        return Err(Error::Usage(format!(
            "{what} names several hosts; each server needs a connection string of its own"
        )));
    }
    let place = if host.is_empty() { address } else { host };
    let place = match (place.is_empty(), port.is_empty()) {
        (true, true) => parameters.get("service").cloned().unwrap_or("the server".into()),
        (true, false) => format!("port {port}"),
        (false, true) => place,
        (false, false) => format!("{place}:{port}"),
    };
    Ok(Server::new(name.map_or(place, str::to_owned), parameters))
}

/// SQL that is true if Patroni is connected as a superuser: everybody may give a session that name.
pub const HAS_PATRONI: &str = "EXISTS (SELECT FROM pg_stat_activity JOIN pg_roles AS r ON r.oid = usesysid
                                       WHERE rolsuper AND starts_with(application_name, 'Patroni'))";

/// A server to which there is a session.
pub struct Member<'a> {
    /// How to connect to it.
    pub server: &'a Server,
    /// A session in the database of its connection string.
    pub session: Session,
    /// What initdb gave the cluster. A standby has that of its primary.
    pub system: String,
    /// The timeline, which a promotion changes.
    pub timeline: u32,
    /// Whether it is in recovery.
    pub is_standby: bool,
    /// Whether Patroni is connected to it as a superuser.
    pub has_patroni: bool,
    /// What no two servers have in common: one may be reached by two names.
    pub identity: String,
}

impl Member<'_> {
    /// Connects to a server.
    pub fn of(server: &Server) -> Result<Member<'_>> {
        Member::with(server, server.connect()?)
    }

    /// The server of a session.
    pub fn with(server: &Server, session: Session) -> Result<Member<'_>> {
        let rows = session.run(&format!(
            "SELECT system_identifier, pg_is_in_recovery(), current_setting('is_superuser'), {HAS_PATRONI},
                 concat_ws(' ', system_identifier, extract(epoch FROM pg_postmaster_start_time()),
                           current_setting('port'),
                           (SELECT setting FROM pg_settings WHERE name = 'data_directory')),
                 CASE WHEN pg_is_in_recovery() THEN greatest(
                     (SELECT received_tli FROM pg_stat_wal_receiver),
                     (SELECT timeline_id FROM pg_control_checkpoint()),
                     (SELECT min_recovery_end_timeline FROM pg_control_recovery()))
                 ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer END
             FROM pg_control_system()"
        ))?;
        let row = rows.row(0);
        if row.string(2) != "on" {
            return Err(Error::refused(
                format!("the role of the connection to {} is no superuser", server.name),
                "Connect as a superuser, such as postgres.",
            ));
        }
        let (system, is_standby) = (row.string(0), row.is_true(1));
        let (has_patroni, identity) = (row.is_true(3), row.string(4));
        let timeline = row.number(5).unwrap_or(0);
        Ok(Member { server, session, system, timeline, is_standby, has_patroni, identity })
    }

    /// What shows to which cluster it belongs.
    pub fn lineage(&self) -> Lineage<'_> {
        Lineage { system: &self.system, timeline: self.timeline, is_standby: self.is_standby }
    }
}
