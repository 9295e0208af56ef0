//! The servers that the command line or the fleet file names.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::thread;

use libpq::connection::Info;
use serde::Deserialize;

use crate::cli::Cli;
use crate::connection::server::Server;
use crate::connection::session::Session;
use crate::terminal::error::{Error, Result};
use crate::topology::cluster::Node;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    ignore: Vec<String>,
    servers: BTreeMap<String, String>,
}

#[derive(Default)]
pub struct Fleet {
    /// Those of the file by name, then those of the command line as given.
    pub servers: Vec<Server>,
    /// Findings that the check leaves out, as the file spells them.
    pub ignore: Vec<String>,
}

impl Fleet {
    /// The servers of the command line, the fleet file or, without either, the environment.
    pub fn load(cli: &Cli) -> Result<Fleet> {
        let (mut servers, mut ignore) = (Vec::new(), Vec::new());
        if let Some(path) = &cli.fleet {
            let fail = |why: String| Error::Usage(format!("{}: {why}", path.display()));
            let text = fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
            let file: File = toml::from_str(&text).map_err(|error| {
                let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
                fail(format!(
                    "line {} is invalid (not shown: it may contain a password). Write [servers], then NAME = \"CONNECTION\" lines",
                    before.matches('\n').count() + 1
                ))
            })?;
            if file.servers.is_empty() {
                return Err(fail("it names no server".into()));
            }
            ignore = file.ignore;
            for (name, connection) in &file.servers {
                servers.push(of_connection(Some(name), connection)?);
            }
        }
        for connection in &cli.connections {
            servers.push(of_connection(None, connection)?);
        }
        if servers.is_empty() {
            servers.push(of_connection(None, "")?);
        }
        for (number, server) in servers.iter().enumerate() {
            if servers[..number].iter().any(|other| other.name == server.name) {
                return Err(Error::Usage(format!("{} is given twice", server.name)));
            }
        }
        Ok(Fleet { servers, ignore })
    }

    /// The index of the server with this name or connection string, which is added if it is missing.
    pub fn add(&mut self, text: &str) -> Result<usize> {
        let place = |fleet: &Fleet, name: &str| fleet.servers.iter().position(|server| server.name == name);
        if let Some(number) = place(self, text) {
            return Ok(number);
        }
        if !text.contains('=') && !text.contains("://") {
            return Err(Error::Usage(format!("\"{text}\" is neither a server nor a connection string")));
        }
        let server = of_connection(None, text)?;
        if let Some(number) = place(self, &server.name) {
            // This one names the database.
            self.servers[number] = server;
            return Ok(number);
        }
        self.servers.push(server);
        Ok(self.servers.len() - 1)
    }

    /// Calls a function for all servers at the same time.
    pub fn each<'a, T: Send>(&'a self, work: impl Fn(&'a Server) -> T + Sync) -> Vec<T> {
        thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> =
                self.servers.iter().map(|server| scope.spawn(move || work(server))).collect();
            threads.into_iter().map(|thread| thread.join().expect("a thread that does not panic")).collect()
        })
    }
}

/// The parameters in a connection string.
pub fn parameters(what: &str, connection: &str) -> Result<BTreeMap<String, String>> {
    // libpq's message may quote part of a password.
    let options = Info::from(connection).map_err(|_| {
        Error::Usage(format!(
            "{what} is not valid for libpq. Write host=10.0.0.1 user=postgres, with blanks in single quotes, or a URI"
        ))
    })?;
    Ok(options.into_iter().filter_map(|option| Some((option.keyword, option.val?))).collect())
}

fn of_connection(name: Option<&str>, connection: &str) -> Result<Server> {
    let what = format!("the connection string{}", name.map(|name| format!(" of {name}")).unwrap_or_default());
    let parameters = parameters(&what, connection)?;
    let of = |key: &str, variable: &str| -> String {
        parameters.get(key).cloned().or_else(|| env::var(variable).ok()).unwrap_or_default()
    };
    let (host, address, port) = (of("host", "PGHOST"), of("hostaddr", "PGHOSTADDR"), of("port", "PGPORT"));
    if host.contains(',') || address.contains(',') {
        return Err(Error::Usage(format!("{what} names several hosts: write one for each")));
    }
    let place = if host.is_empty() { address } else { host };
    let mut place = [place, port].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(":");
    if place.is_empty() {
        place = parameters.get("service").cloned().unwrap_or("the server".into());
    }
    Ok(Server::new(name.map_or(place, str::to_owned), parameters))
}

/// A server with a session, and its place in a cluster.
pub struct Member<'a> {
    pub server: &'a Server,
    pub session: Session,
    pub node: Node,
}

impl Member<'_> {
    pub fn with(server: &Server, session: Session) -> Result<Member<'_>> {
        Ok(Member { server, node: Node::of(&session)?, session })
    }
}
