//! A server of the fleet: how to connect to it.

use std::collections::{BTreeMap, HashMap};
use std::env;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::connection::session::Session;
use crate::connection::settings;
use crate::terminal::error::{Error, Result};

/// A server of the fleet.
#[derive(Debug)]
pub struct Server {
    /// The name in the file of servers, or the host and the port.
    pub name: String,
    /// Parameters of libpq.
    parameters: BTreeMap<String, String>,
    known: Mutex<Known>,
}

/// What is known of a server since it was first connected to.
#[derive(Debug, Clone)]
struct Known {
    /// What the person has typed.
    password: Option<String>,
    /// The release, such as 150020.
    version: i32,
    /// Whether the role may set what only superusers may.
    is_superuser: bool,
}

impl Server {
    /// A server with these parameters of libpq.
    pub fn new(name: String, parameters: BTreeMap<String, String>) -> Server {
        let known = Known { password: None, version: 0, is_superuser: true };
        Server { name, parameters, known: Mutex::new(known) }
    }

    /// A parameter of libpq, if the connection string has it.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    /// Connects to the database of the connection string.
    pub fn connect(&self) -> Result<Session> {
        self.connect_with(&[])
    }

    /// Connects to another database.
    pub fn connect_to(&self, database: &str) -> Result<Session> {
        self.connect_with(&[("dbname", database)])
    }

    /// Connects with other parameters than those of the connection string.
    pub fn connect_with(&self, others: &[(&str, &str)]) -> Result<Session> {
        self.connect_unless(others, None)
    }

    /// The search_path on the command line of the server; empty if there is none. A session shows it only if it has none of
    /// its own. Such a session runs nothing but this statement, in which every name says where it is.
    pub fn path_of_command_line(&self, database: &str) -> Result<String> {
        let session = self.connect_unless(&[("dbname", database)], Some("search_path"))?;
        let rows = session.run(
            "SELECT s.setting FROM pg_catalog.pg_settings AS s WHERE s.name OPERATOR(pg_catalog.=) 'search_path'
                 AND s.source OPERATOR(pg_catalog.=) 'command line'",
        )?;
        Ok(rows.iter().next().map(|row| row.string(0)).unwrap_or_default())
    }

    fn connect_unless(&self, others: &[(&str, &str)], without: Option<&str>) -> Result<Session> {
        match self.try_connect(others, without) {
            Err(Error::NoPassword { .. }) => {
                // Servers are asked at once, and a terminal shows one question at a time.
                static TERMINAL: Mutex<()> = Mutex::new(());
                let _turn = TERMINAL.lock().unwrap_or_else(PoisonError::into_inner);
                if self.known().password.is_none() {
                    let password = rpassword::prompt_password(format!("Password for {}: ", self.name))
                        .map_err(|_| Error::NoPassword { server: self.name.clone() })?;
                    self.known().password = Some(password);
                }
                self.try_connect(others, without)
            }
            result => result,
        }
    }

    /// How a program of PostgreSQL connects as this program does: the connection string for its option `--dbname`, and the
    /// environment. Arguments can be seen by every user of the machine, variables cannot.
    pub fn for_program(&self) -> (String, Vec<(&'static str, String)>) {
        let quote = |value: &str| value.replace('\\', "\\\\").replace('\'', "\\'");
        let of_own = |name: &str| matches!(name, "password" | "sslpassword" | "options");
        let mut string = String::new();
        for (name, value) in self.parameters.iter().filter(|(name, _)| !of_own(name)) {
            string += &format!("{name}='{}' ", quote(value));
        }
        let known = self.known().clone();
        let options = self.options(&known, None);
        string += &format!("options='{}'", quote(&options));
        let password = known.password.or_else(|| self.parameters.get("password").cloned());
        (string, password.map(|password| ("PGPASSWORD", password)).into_iter().collect())
    }

    /// Connects with all settings that the server takes. The first attempt of a run may have to find out which.
    fn try_connect(&self, others: &[(&str, &str)], without: Option<&str>) -> Result<Session> {
        let (mut encoding, mut refusal) = ("UTF8", None);
        let mut known = self.known().clone();
        loop {
            let mut parameters: HashMap<String, String> =
                [("connect_timeout", "10"), ("fallback_application_name", "idgenctl")].map(owned).into();
            parameters.extend(self.parameters.clone());
            parameters.extend(known.password.as_deref().map(|password| owned(("password", password))));
            parameters.extend(others.iter().copied().map(owned));
            let options = self.options(&known, without);
            parameters.extend([("client_encoding", encoding), ("options", &options)].map(owned));
            match Session::connect(&self.name, parameters) {
                Ok(session) => {
                    let version = session.version();
                    let options = settings::options(known.version, known.is_superuser, None);
                    let is_complete = settings::options(version, known.is_superuser, None) == options;
                    known.version = version;
                    let mut shared = self.known();
                    (shared.version, shared.is_superuser) = (version, known.is_superuser);
                    drop(shared);
                    // Names may be of any encoding, and the server would not send those that are not UTF-8.
                    if is_complete && encoding == "UTF8" && session.is_of_no_encoding()? {
                        encoding = "SQL_ASCII";
                    } else if is_complete {
                        return Ok(session);
                    }
                }
                Err(error) if error.code() == "42501" && known.is_superuser => known.is_superuser = false,
                // There is no conversion.
                Err(error) if error.code() == "0A000" && encoding == "UTF8" => encoding = "SQL_ASCII",
                // It may be a limit or an event trigger that only newer releases have.
                Err(error) if !error.code().is_empty() && known.version == 0 => {
                    known.version = 170_000;
                    refusal = Some(error);
                }
                Err(error) => return Err(refusal.filter(|_| error.code() == "42704").unwrap_or(error)),
            }
        }
    }

    /// The options of libpq: those that the person has given, and then ours, which count more.
    fn options(&self, known: &Known, without: Option<&str>) -> String {
        let given = self.parameter("options").map(str::to_owned).or_else(|| env::var("PGOPTIONS").ok());
        given.unwrap_or_default() + &settings::options(known.version, known.is_superuser, without)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn owned((name, value): (&str, &str)) -> (String, String) {
    (name.into(), value.into())
}
