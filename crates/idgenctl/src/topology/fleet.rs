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
use crate::terminal::error::{Error, Result, refused};
use crate::topology::cluster::Lineage;

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
            // The parser's message may quote part of a password.
            let file: File = toml::from_str(&text).map_err(|error| {
                let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
                fail(format!(
                    "line {} is invalid (not shown: it may contain a password). A file has a line [servers], followed by \
                     lines NAME = \"CONNECTION\"; before that, it may have ignore = [\"ID\", \"ID:SERVER\"]",
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
            "{what} is not valid for libpq. Write host=10.0.0.1 user=postgres, with a value that contains spaces in \
             single quotes; or a URI"
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
    let place = match (place.is_empty(), port.is_empty()) {
        (true, true) => parameters.get("service").cloned().unwrap_or("the server".into()),
        (true, false) => format!("port {port}"),
        (false, true) => place,
        (false, false) => format!("{place}:{port}"),
    };
    Ok(Server::new(name.map_or(place, str::to_owned), parameters))
}

/// SQL that is true if Patroni is connected as a superuser. Any role may give its sessions that name.
pub const HAS_PATRONI: &str = "EXISTS (SELECT FROM pg_stat_activity JOIN pg_roles AS r ON r.oid = usesysid
                                       WHERE rolsuper AND starts_with(application_name, 'Patroni'))";

/// A server with a session, and its identity.
pub struct Member<'a> {
    pub server: &'a Server,
    pub session: Session,
    /// The system identifier, as in [`Lineage`].
    pub system: String,
    pub timeline: u32,
    pub is_standby: bool,
    pub has_patroni: bool,
    /// Unique to a running server, which may be listed under two names.
    pub identity: String,
}

impl Member<'_> {
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
            return refused(
                format!("the role used for {} is not a superuser", server.name),
                "Connect as a superuser, such as postgres.",
            );
        }
        // A number: it becomes part of comments on other servers.
        let (system, is_standby) = (row.number(0).unwrap_or(0_u64).to_string(), row.is_true(1));
        let (has_patroni, identity) = (row.is_true(3), row.name(4));
        let timeline = row.number(5).unwrap_or(0);
        Ok(Member { server, session, system, timeline, is_standby, has_patroni, identity })
    }

    pub fn lineage(&self) -> Lineage<'_> {
        Lineage { system: &self.system, timeline: self.timeline, is_standby: self.is_standby }
    }
}
