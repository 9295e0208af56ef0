//! A server, and how to connect to it.

use std::collections::{BTreeMap, HashMap};
use std::env;
use std::sync::OnceLock;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;

use crate::connection::session::Session;
use crate::connection::settings;
use crate::terminal::error::{Result, refused};

#[derive(Debug, Default)]
pub struct Server {
    /// The name in the fleet file, or host and port.
    pub name: String,
    parameters: BTreeMap<String, String>,
    /// The version, such as 150020; 0 before the first connection.
    version: AtomicI32,
    /// Whether the role is to be a superuser, or an ordinary one.
    is_superuser: bool,
    /// That of the first connection: libpq would look for another by the name of a database, which the server chooses.
    password: OnceLock<String>,
}

impl Server {
    pub fn new(name: String, parameters: BTreeMap<String, String>) -> Server {
        Server { name, parameters, is_superuser: true, ..Server::default() }
    }

    /// The same server, with other parameters for an ordinary role. Without one of its own, it gets no password.
    pub fn as_role(&self, parameters: &BTreeMap<String, String>) -> Server {
        let mut own = self.parameters.clone();
        own.remove("password");
        own.extend(parameters.clone());
        Server { is_superuser: false, ..Server::new(self.name.clone(), own) }
    }

    /// The connection string (for `--dbname`) and the environment with which PostgreSQL's programs connect as this one
    /// does. The password is in the environment because every user of the machine can see arguments.
    pub fn for_program(&self) -> (String, Option<(&'static str, String)>) {
        let quote = |value: &str| value.replace('\\', "\\\\").replace('\'', "\\'");
        let of_own = |name: &str| matches!(name, "password" | "sslpassword" | "options");
        let options = self.options(self.version.load(Relaxed), true);
        let mut string = format!("options='{}'", quote(&options));
        for (name, value) in self.parameters.iter().filter(|(name, _)| !of_own(name)) {
            string += &format!(" {name}='{}'", quote(value));
        }
        (string, self.parameters.get("password").map(|password| ("PGPASSWORD", password.clone())))
    }

    /// Connects with the parameters given, to the database that they name unless `others` do, and with all [`settings`] that
    /// the server accepts. The first attempts find them out.
    pub fn connect_with(&self, others: &[(&str, &str)]) -> Result<Session> {
        let (mut encoding, mut refusal) = ("UTF8", None);
        let mut version = self.version.load(Relaxed);
        for _ in 0..5 {
            let mut parameters: HashMap<String, String> =
                [("connect_timeout", "10"), ("fallback_application_name", "idgenctl")].map(owned).into();
            parameters.extend(self.parameters.clone());
            parameters.extend(others.iter().copied().map(owned));
            let options = self.options(version, false);
            parameters.extend([("client_encoding", encoding), ("options", &options)].map(owned));
            if let Some(password) = self.password.get() {
                parameters.extend([("password", &**password), ("passfile", "/dev/null/none")].map(owned));
            }
            match Session::connect(&self.name, parameters) {
                Ok(session) => {
                    let _ = self.password.set(session.connection.pass().ok().flatten().unwrap_or_default());
                    let options = settings::options(version, self.is_superuser, false);
                    version = session.version();
                    let is_complete = settings::options(version, self.is_superuser, false) == options;
                    self.version.store(version, Relaxed);
                    // There, names may be in any encoding, and the server could not send those that are not UTF-8.
                    let (any, shown) = (["SQL_ASCII", "MULE_INTERNAL"], "SHOW server_encoding");
                    if is_complete && encoding == "UTF8" && any.contains(&&*session.value(shown, &[])?) {
                        encoding = "SQL_ASCII";
                    } else if is_complete {
                        return if self.is_superuser { session.trusted() } else { Ok(session) };
                    }
                }
                Err(error) if error.code() == "42501" && self.is_superuser => {
                    let what = format!("the role used for {} is not a superuser", self.name);
                    return refused(what, "Connect as a superuser, such as postgres.");
                }
                Err(error) if error.code() == "0A000" && encoding == "UTF8" => encoding = "SQL_ASCII",
                // The cause may be a timeout or an event trigger, which newer releases can switch off.
                Err(error) if !error.code().is_empty() && version == 0 => {
                    version = 170_000;
                    refusal = Some(error);
                }
                Err(error) => return Err(refusal.filter(|_| error.code() == "42704").unwrap_or(error)),
            }
        }
        let what = format!("{} has another version at each connection", self.name);
        refused(what, "Give the address of a single server.")
    }

    /// The user's options, followed by ours, which take precedence.
    fn options(&self, version: i32, is_program: bool) -> String {
        let given = self.parameters.get("options").cloned().or_else(|| env::var("PGOPTIONS").ok());
        given.unwrap_or_default() + &settings::options(version, self.is_superuser, is_program)
    }
}

fn owned((name, value): (&str, &str)) -> (String, String) {
    (name.into(), value.into())
}
