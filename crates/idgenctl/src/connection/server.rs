//! A server of the fleet: how to connect to it.

use std::collections::{BTreeMap, HashMap};
use std::env;
use std::sync::Mutex;

use crate::connection::session::Session;
use crate::terminal::error::{Error, Result};

/// Options that lift the time limits that the owner of a database may have set there. They could end a session before its
/// first statement, and what the connection asks for counts more.
const NO_LIMITS: &str = "-c statement_timeout=0 -c lock_timeout=0 -c idle_session_timeout=0 \
                         -c idle_in_transaction_session_timeout=0";

/// A server of the fleet.
#[derive(Debug)]
pub struct Server {
    /// The name in the file of servers, or the host and the port.
    pub name: String,
    /// Parameters of libpq.
    parameters: BTreeMap<String, String>,
    /// What the person has typed.
    password: Mutex<Option<String>>,
}

impl Server {
    /// A server with these parameters of libpq.
    pub fn new(name: String, parameters: BTreeMap<String, String>) -> Server {
        Server { name, parameters, password: Mutex::new(None) }
    }

    /// The same server under another name, at another host.
    pub fn at(&self, name: String, host: &str, port: &str) -> Server {
        let mut parameters = self.parameters.clone();
        parameters.remove("hostaddr");
        parameters.insert("host".into(), host.into());
        parameters.insert("port".into(), port.into());
        Server::new(name, parameters)
    }

    /// A parameter of libpq, if the connection string has it.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    /// Connects to the database of the connection string.
    ///
    /// # Errors
    /// That the server cannot be reached, or that there is no password.
    pub fn connect(&self) -> Result<Session> {
        self.connect_with(&[])
    }

    /// Connects to another database.
    ///
    /// # Errors
    /// As [`Server::connect`].
    pub fn connect_to(&self, database: &str) -> Result<Session> {
        self.connect_with(&[("dbname", database)])
    }

    /// Connects with other parameters than those of the connection string.
    ///
    /// # Errors
    /// As [`Server::connect`].
    pub fn connect_with(&self, others: &[(&str, &str)]) -> Result<Session> {
        let password = self.password();
        match self.try_connect(others, password.as_deref()) {
            Err(Error::Unreachable { why, .. }) if why.contains("no password supplied") => {
                // Servers are asked at once, and a terminal shows one question at a time.
                static TERMINAL: Mutex<()> = Mutex::new(());
                let _turn = TERMINAL.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                let password = rpassword::prompt_password(format!("Password for {}: ", self.name))
                    .map_err(|_| Error::NoPassword { server: self.name.clone() })?;
                *self.lock() = Some(password.clone());
                self.try_connect(others, Some(&password))
            }
            result => result,
        }
    }

    /// The environment in which a program of PostgreSQL connects as this program does, for its option `--dbname`: the
    /// connection string, and the variables. Arguments can be seen by every user of the machine, variables cannot.
    pub fn for_program(&self) -> (String, Vec<(&'static str, String)>) {
        let quote = |value: &String| value.replace('\\', "\\\\").replace('\'', "\\'");
        let secret = |name: &str| matches!(name, "password" | "sslpassword");
        let string = self
            .parameters
            .iter()
            .filter(|(name, _)| !secret(name))
            .map(|(name, value)| format!("{name}='{}'", quote(value)))
            .collect::<Vec<_>>()
            .join(" ");
        let password = self.password().or_else(|| self.parameters.get("password").cloned());
        (string, password.map(|password| ("PGPASSWORD", password)).into_iter().collect())
    }

    fn try_connect(&self, others: &[(&str, &str)], password: Option<&str>) -> Result<Session> {
        let mut parameters: HashMap<&str, &str> =
            [("connect_timeout", "10"), ("fallback_application_name", "idgenctl")].into();
        parameters.extend(self.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        parameters.extend(password.map(|password| ("password", password)));
        parameters.extend(others.iter().copied());
        parameters.insert("client_encoding", "UTF8");
        let given = parameters.get("options").map(|text| (*text).to_owned());
        let given = given.or_else(|| env::var("PGOPTIONS").ok()).unwrap_or_default();
        let options = format!("{given} {NO_LIMITS}");
        parameters.insert("options", &options);
        match Session::connect(&self.name, &parameters) {
            // Releases before 17 do not know this limit, and would refuse the option.
            Err(error) if error.code() == "25P04" => {
                let options = format!("{options} -c transaction_timeout=0");
                parameters.insert("options", &options);
                Session::connect(&self.name, &parameters)
            }
            result => result,
        }
    }

    fn password(&self) -> Option<String> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.password.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
