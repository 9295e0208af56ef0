//! The servers that the command line names, and what cluster each belongs to.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::thread;

use libpq::connection::Info;
use serde::Deserialize;

use crate::cli::Servers;
use crate::error::{Error, Result};
use crate::server::Server;
use crate::session::Session;

/// The file of servers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    servers: BTreeMap<String, String>,
}

/// The servers that the command line names.
pub struct Fleet {
    /// Them, in the order of their names or of the command line.
    pub servers: Vec<Server>,
}

impl Fleet {
    /// The servers of the command line, of the file, or of the environment.
    ///
    /// # Errors
    /// That the file cannot be read, or that a connection string is none.
    pub fn load(given: &Servers) -> Result<Fleet> {
        let mut servers = Vec::new();
        if let Some(path) = &given.fleet {
            let fail = |why: String| Error::Usage(format!("{}: {why}", path.display()));
            let text = fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
            let file: File = toml::from_str(&text).map_err(|error| fail(error.to_string()))?;
            if file.servers.is_empty() {
                return Err(fail("there is no server in it".into()));
            }
            for (name, connection) in &file.servers {
                servers.extend(of_connection(Some(name), connection)?);
            }
        } else if given.connections.is_empty() {
            servers.extend(of_connection(None, "")?);
        } else {
            for connection in &given.connections {
                servers.extend(of_connection(None, connection)?);
            }
        }
        for (number, server) in servers.iter().enumerate() {
            if servers[..number].iter().any(|other| other.name == server.name) {
                return Err(Error::Usage(format!("{} is given twice", server.name)));
            }
        }
        Ok(Fleet { servers })
    }

    /// The server of that name, if there is one.
    pub fn find(&self, name: &str) -> Option<&Server> {
        self.servers.iter().find(|server| server.name == name)
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

/// The servers of a connection string: one for each host in it.
///
/// # Errors
/// That it is none.
pub fn of_connection(name: Option<&str>, connection: &str) -> Result<Vec<Server>> {
    let options = Info::from(connection)
        .map_err(|error| Error::Usage(format!("\"{connection}\" is no connection string: {error}")))?;
    let parameters: BTreeMap<String, String> =
        options.into_iter().filter_map(|option| Some((option.keyword, option.val?))).collect();
    let list = |key: &str, variable: &str| -> Vec<String> {
        let text = parameters.get(key).cloned().or_else(|| env::var(variable).ok()).unwrap_or_default();
        text.split(',').map(str::to_owned).collect()
    };
    let (hosts, ports) = (list("host", "PGHOST"), list("port", "PGPORT"));
    let addresses = list("hostaddr", "PGHOSTADDR");
    let count = hosts.len().max(addresses.len());
    let at = |list: &[String], number: usize| -> String {
        list.get(number).or(list.last().filter(|_| list.len() == 1)).cloned().unwrap_or_default()
    };
    Ok((0..count)
        .map(|number| {
            let (host, port) = (at(&hosts, number), at(&ports, number));
            let place = if host.is_empty() { at(&addresses, number) } else { host.clone() };
            let mut parameters = parameters.clone();
            if count > 1 {
                for (key, value) in [("host", &host), ("port", &port), ("hostaddr", &at(&addresses, number))]
                {
                    if value.is_empty() {
                        parameters.remove(key);
                    } else {
                        parameters.insert(key.into(), value.clone());
                    }
                }
            }
            let place = match (place.is_empty(), port.is_empty()) {
                (true, true) => parameters.get("service").cloned().unwrap_or("the server".into()),
                (true, false) => format!("port {port}"),
                (false, true) => place,
                (false, false) => format!("{place}:{port}"),
            };
            let name = match (name, count) {
                (Some(name), 1) => name.into(),
                (Some(name), _) => format!("{name} ({place})"),
                (None, _) => place,
            };
            Server::new(name, parameters)
        })
        .collect())
}

/// A server to which there is a session.
pub struct Member<'a> {
    /// How to connect to it.
    pub server: &'a Server,
    /// A session in the database of its connection string.
    pub session: Session,
    /// What initdb gave the cluster. A standby has that of its primary.
    pub system: String,
    /// Whether it is in recovery.
    pub is_standby: bool,
}

impl Member<'_> {
    /// Connects to a server.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn of(server: &Server) -> Result<Member<'_>> {
        Member::with(server, server.connect()?)
    }

    /// The server of a session.
    ///
    /// # Errors
    /// Those of the session, and that its role is no superuser.
    pub fn with(server: &Server, session: Session) -> Result<Member<'_>> {
        let rows = session
            .run("SELECT system_identifier, pg_is_in_recovery(), current_setting('is_superuser') FROM pg_control_system()")?;
        let row = rows.row(0);
        if row.string(2) != "on" {
            return Err(Error::refused(
                format!("the role of the connection to {} is no superuser", server.name),
                "Connect as a superuser, such as postgres.",
            ));
        }
        Ok(Member { server, system: row.string(0), is_standby: row.is_true(1), session })
    }
}
