//! The servers that the command line names.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::thread;

use libpq::connection::Info;
use serde::Deserialize;

use crate::cli::Servers;
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
    ///
    /// # Errors
    /// That the file cannot be read, or that a connection string is none.
    pub fn load(given: &Servers) -> Result<Fleet> {
        let (mut servers, mut ignore) = (Vec::new(), Vec::new());
        if let Some(path) = &given.fleet {
            let fail = |why: String| Error::Usage(format!("{}: {why}", path.display()));
            let text = fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
            // Its own text shows the line, which may have a password.
            let file: File = toml::from_str(&text).map_err(|error| {
                let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
                let why =
                    without_secrets(error.message().to_owned(), || "what is there makes no sense".into());
                fail(format!("line {}: {why}", before.matches('\n').count() + 1))
            })?;
            if file.servers.is_empty() {
                return Err(fail("there is no server in it".into()));
            }
            ignore = file.ignore;
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
        Ok(Fleet { servers, ignore })
    }

    /// The server of that name, if there is one.
    pub fn find(&self, name: &str) -> Option<&Server> {
        self.servers.iter().find(|server| server.name == name)
    }

    /// The numbers of the servers of this name or connection string, which are added if they are not there. A connection
    /// string with several hosts has a server for each.
    ///
    /// # Errors
    /// That it is neither.
    pub fn add(&mut self, text: &str) -> Result<Vec<usize>> {
        let several = format!("{text} (");
        let is_it = |server: &Server| server.name == text || server.name.starts_with(&several);
        let there: Vec<usize> = (0..self.servers.len()).filter(|n| is_it(&self.servers[*n])).collect();
        if !there.is_empty() {
            return Ok(there);
        }
        if !text.contains('=') && !text.contains("://") {
            let names: Vec<&str> = self.servers.iter().map(|server| server.name.as_str()).collect();
            return Err(Error::Usage(format!(
                "no server is called \"{text}\", and it is no connection string; the servers are {}",
                names.join(", ")
            )));
        }
        let mut numbers = Vec::new();
        for server in of_connection(None, text)? {
            match self.servers.iter().position(|other| other.name == server.name) {
                Some(number) => {
                    // It says the database.
                    self.servers[number] = server;
                    numbers.push(number);
                }
                None => {
                    numbers.push(self.servers.len());
                    self.servers.push(server);
                }
            }
        }
        Ok(numbers)
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

/// A text, or another one if there may be a password in it.
fn without_secrets(text: String, other: impl FnOnce() -> String) -> String {
    let lower = text.to_lowercase();
    // A URI has its password without a word before it.
    if lower.contains("pass") || lower.contains("://") { other() } else { text }
}

/// The servers of a connection string: one for each host in it.
///
/// # Errors
/// That it is none.
pub fn of_connection(name: Option<&str>, connection: &str) -> Result<Vec<Server>> {
    // What libpq says may have a part of a password.
    let options = Info::from(connection).map_err(|_| {
        let what = match name {
            Some(name) => format!("what the file has for {name}"),
            None if connection.contains(['=', ':']) => "what is given".into(),
            None => format!("\"{connection}\""),
        };
        Error::Usage(format!(
            "{what} is no connection string of libpq: host=10.0.0.1 user=postgres, with a value that has spaces in \
             single quotes; or a URI"
        ))
    })?;
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
                // It chooses among the hosts, and each of them is looked at.
                parameters.insert("target_session_attrs".into(), "any".into());
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
