//! idgenctl for several servers, and the findings of its check.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

use crate::moment::is_reached;
use crate::process::{idgenctl, said, servers_folder};
use crate::server::Server;

/// idgenctl for the databases `postgres` of these servers.
pub fn for_servers(servers: &[&Server], args: &[&str]) -> Command {
    let mut command = idgenctl(args);
    for server in servers {
        command.args(["--server", &server.target("postgres")]);
    }
    command
}

pub struct File(pub PathBuf);

impl File {
    pub fn of(servers: &[(&str, String)]) -> File {
        static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = servers_folder().join(format!("fleet-{}-{number}.toml", std::process::id()));
        let lines: String =
            servers.iter().map(|(name, target)| format!("\"{name}\" = \"{target}\"\n")).collect();
        fs::write(&path, format!("[servers]\n{lines}")).unwrap();
        File(path)
    }

    pub fn of_servers(servers: &[(&str, &Server)]) -> File {
        let targets: Vec<_> =
            servers.iter().map(|(name, server)| (*name, server.target("postgres"))).collect();
        File::of(&targets)
    }

    pub fn command(&self, args: &[&str]) -> Command {
        idgenctl(&[&["--fleet", self.0.to_str().unwrap()], args].concat())
    }

    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// The findings of the check as JSON. The exit code tells errors from warnings and notes.
    pub fn findings(&self) -> Vec<Value> {
        let output = self.run(&["check", "--json"]);
        let whole: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}\n{}", said(&output)));
        let findings = whole["findings"].as_array().unwrap().clone();
        let has = |severity: &str| findings.iter().any(|finding| finding["severity"] == severity);
        let code = [("error", 3), ("warning", 5)].iter().find(|(severity, _)| has(severity));
        assert_eq!(output.status.code(), Some(code.map_or(0, |(_, code)| *code)), "{}", said(&output));
        findings
    }

    /// Waits until the check finds exactly these, by kind and server. Settings reach the processes of a server one by
    /// one.
    #[track_caller]
    pub fn until_found(&self, expected: &[&str]) -> Vec<Value> {
        let expected: BTreeSet<String> = expected.iter().map(|text| (*text).to_owned()).collect();
        let mut last = Vec::new();
        let reached = is_reached(120, || {
            last = self.findings();
            last.iter().map(kind_and_server).collect::<BTreeSet<_>>() == expected
        });
        assert!(reached, "expected {expected:?}, found {last:#?}");
        last
    }
}

pub fn kind_and_server(finding: &Value) -> String {
    format!("{} {}", finding["id"].as_str().unwrap(), finding["server"].as_str().unwrap())
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Lines in a server's configuration, until they are dropped.
pub struct Lines<'a> {
    server: &'a Server,
    file: PathBuf,
    before: String,
}

impl<'a> Lines<'a> {
    pub fn of(server: &'a Server, lines: &[&str]) -> Lines<'a> {
        let file = PathBuf::from(server.value::<String>("SHOW config_file"));
        let before = fs::read_to_string(&file).unwrap();
        server.configure(lines);
        server.run("SELECT pg_reload_conf()");
        Lines { server, file, before }
    }
}

impl Drop for Lines<'_> {
    fn drop(&mut self) {
        fs::write(&self.file, &self.before).unwrap();
        self.server.read_configuration();
    }
}
