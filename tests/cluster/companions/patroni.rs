//! docs/scaling.md and docs/operations.md with Patroni: the members of a cluster start from docs/examples/scaling/patroni.yml
//! and the variables of its first comment.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

use postgres::{Client, NoTls};
use serde_json::Value;

use crate::clients::{Clients, Ledger, ROWS};
use crate::fleet::File;
use crate::moment::{is_reached, within_seconds};
use crate::process::{
    Service, client_program, command, example, give_to_servers, installed, kill, lacks, output_of_run,
    release_bin, run, said, servers_folder, top, variable,
};
use crate::server::Sql;

/// What the page says of strict mode.
const NOT_STRICT: &str = "patronictl edit-config -s synchronous_mode_strict=null";

/// What it says of quorum mode in addition.
const NOT_QUORUM: &str = "patronictl edit-config -s synchronous_mode=true";

/// The secrets that the file leaves to the environment.
const SECRETS: [(&str, &str); 5] = [
    ("PATRONI_SUPERUSER_PASSWORD", "super"),
    ("PATRONI_REPLICATION_PASSWORD", "replication"),
    ("PATRONI_REWIND_PASSWORD", "rewind"),
    ("PATRONI_RESTAPI_USERNAME", "admin"),
    ("PATRONI_RESTAPI_PASSWORD", "rest"),
];

const NAMES: [&str; 3] = ["one", "two", "three"];

/// Three members under Patroni, and an etcd.
struct Cluster {
    members: Vec<Member>,
    fleet: File,
    folder: PathBuf,
    /// etcd waits for its disk at each of Patroni's steps, so it has none.
    memory: PathBuf,
    _etcd: Service,
}

struct Member {
    name: &'static str,
    host: String,
    folder: PathBuf,
    variables: Vec<(String, String)>,
    patroni: Option<Service>,
}

impl Member {
    fn start(&mut self, config: &Path) {
        let program = installed("patroni").expect("patroni");
        let variables: Vec<_> =
            self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let (sockets, log) = (self.folder.join("sockets"), self.folder.join("log"));
        let config = config.to_str().unwrap();
        self.patroni = Some(Service::start_with_sockets(&sockets, &program, &[config], &variables, &log));
    }

    fn signal(&self, signal: &str) {
        self.patroni.as_ref().expect("Patroni").signal(signal);
    }

    fn target(&self) -> String {
        let (user, [(_, password), ..]) = (variable("IDGEN_SERVER_USER"), SECRETS);
        format!("host={} user={user} password={password} dbname=postgres connect_timeout=10", self.host)
    }

    fn connect(&self) -> Client {
        Client::connect(&self.target(), NoTls).unwrap()
    }

    /// What a program of the servers' user gets by the socket, without a password.
    fn local(&self, query: &str) -> String {
        let mut psql = command(Path::new(&release_bin()).join("psql"));
        psql.args(["-X", "-At", "-d", "postgres", "-c", query, "-h"]).arg(self.folder.join("sockets"));
        output_of_run(psql.env_remove("PGPASSWORD").env_remove("PGUSER")).trim().to_owned()
    }

    fn kill_server(&self) {
        let pid = std::fs::read_to_string(self.folder.join("data/postmaster.pid")).unwrap();
        kill("KILL", pid.lines().next().unwrap().parse().unwrap()).unwrap();
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    fn end_of_log(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        format!("== {}\n{}\n", self.name, lines[lines.len().saturating_sub(15)..].join("\n"))
    }
}

/// A member as `patronictl list` shows it.
struct Listed {
    name: String,
    role: String,
    state: String,
}

impl Listed {
    fn leads(&self) -> bool {
        self.role == "Leader" && self.state == "running"
    }

    fn would_lead(&self) -> bool {
        ["Sync Standby", "Quorum Standby"].contains(&self.role.as_str()) && self.state == "streaming"
    }
}

impl Cluster {
    /// `None` if a program is missing.
    fn start() -> Option<Cluster> {
        for program in ["etcd", "patroni", "patronictl"] {
            if installed(program).is_none() {
                lacks(program);
                return None;
            }
        }
        // The network of the first one is that of the pages.
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let network = format!("10.0.{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let id = format!("{}-{}", std::process::id(), network.replace('.', "-"));
        let new_folder = |path: PathBuf| {
            std::fs::create_dir(&path).unwrap();
            give_to_servers(&path);
            path
        };
        let folder = new_folder(servers_folder().join(format!("patroni-{id}")));
        let memory = new_folder(PathBuf::from(format!("/dev/shm/idgen-etcd-{id}")));
        let (url, peers) = (format!("http://{network}.4:2379"), format!("http://{network}.4:2380"));
        // A machine with other work to do answers late.
        let times = ["--heartbeat-interval=1000", "--election-timeout=10000"];
        let places = [
            format!("--data-dir={}", memory.join("data").display()),
            format!("--listen-client-urls={url}"),
            format!("--advertise-client-urls={url}"),
            format!("--listen-peer-urls={peers}"),
            format!("--initial-advertise-peer-urls={peers}"),
            format!("--initial-cluster=default={peers}"),
        ];
        let args: Vec<&str> = times.into_iter().chain(places.iter().map(String::as_str)).collect();
        let etcd = Service::start(&installed("etcd").unwrap(), &args, &[], &folder.join("etcd.log"));

        // The servers' user may not be able to read the folder of the sources.
        std::fs::copy(example("scaling/patroni.yml"), folder.join("patroni.yml")).unwrap();
        let member = |(number, name): (usize, &'static str)| {
            let (host, folder) = (format!("{network}.{}", number + 1), new_folder(folder.join(name)));
            new_folder(folder.join("sockets"));
            let variables = variables(name, &host, &format!("{network}.4"), &folder);
            Member { name, host, folder, variables, patroni: None }
        };
        let members: Vec<Member> = NAMES.into_iter().enumerate().map(member).collect();
        let targets: Vec<_> = members.iter().map(|member| (member.name, member.target())).collect();
        let mut cluster = Cluster { fleet: File::of(&targets), members, folder, memory, _etcd: etcd };
        let config = cluster.config();
        cluster.members.iter_mut().for_each(|member| member.start(&config));
        Some(cluster)
    }

    fn config(&self) -> PathBuf {
        self.folder.join("patroni.yml")
    }

    fn member(&self, name: &str) -> &Member {
        self.members.iter().find(|member| member.name == name).unwrap()
    }

    /// How clients reach whichever is the primary, as the page has it.
    fn target(&self) -> String {
        let hosts: Vec<&str> = self.members.iter().map(|member| member.host.as_str()).collect();
        let last = self.members.last().unwrap();
        let target = last.target().replace(&last.host, &hosts.join(","));
        format!("{target} target_session_attrs=read-write")
    }

    fn patronictl(&self, args: &[&str]) -> Command {
        let mut patronictl = client_program("patronictl");
        patronictl.arg("-c").arg(self.config()).args(args);
        patronictl.envs(self.members[0].variables.iter().map(|(name, value)| (name, value)));
        patronictl
    }

    /// Runs a command until it succeeds: Patroni refuses some for a moment.
    fn run(&self, args: &[&str]) {
        let mut last = None;
        let succeeds = || {
            let output = self.patronictl(args).output().unwrap();
            let done = output.status.success();
            println!("patronictl {}: {}", args.join(" "), said(&output));
            last = Some(output);
            done
        };
        assert!(is_reached(120, succeeds), "patronictl {args:?}: {}\n{}", said(&last.unwrap()), self.logs());
    }

    /// Sets something as the page says, on all members.
    fn set(&self, setting: &str) {
        self.run(&["edit-config", "--force", "-s", setting]);
    }

    fn list(&self) -> Vec<Listed> {
        let output = self.patronictl(&["list", "-f", "json"]).output().unwrap();
        let list: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let text = |member: &Value, name: &str| member[name].as_str().unwrap_or_default().to_owned();
        let listed = |member: &Value| Listed {
            name: text(member, "Member"),
            role: text(member, "Role"),
            state: text(member, "State"),
        };
        list.as_array().map(|list| list.iter().map(listed).collect()).unwrap_or_default()
    }

    /// Waits until another one than `former` leads, `standbys` stream, and Patroni would promote one of them.
    fn settled(&self, former: &str, standbys: usize) -> &'static str {
        let leader = || {
            let list = self.list();
            let leader = list.iter().find(|member| member.leads() && member.name != former)?;
            let streaming = list.iter().filter(|member| member.state == "streaming");
            let is_safe = standbys == 0 || list.iter().any(Listed::would_lead);
            (streaming.count() == standbys && is_safe)
                .then(|| NAMES.into_iter().find(|name| *name == leader.name))?
        };
        within_seconds(400, leader).unwrap_or_else(|| {
            let list = run(self.patronictl(&["list"]));
            panic!("{standbys} standbys of a leader that is not {former:?}\n{}\n{}", said(&list), self.logs())
        })
    }

    fn logs(&self) -> String {
        self.members.iter().map(Member::end_of_log).collect()
    }

    fn idgenctl(&self, args: &[&str]) -> Output {
        self.fleet.run(&[&["--yes"], args].concat())
    }

    /// Waits until the check finds exactly these, and returns their hints, each once.
    #[track_caller]
    fn until_found(&self, expected: &[String]) -> BTreeSet<String> {
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        let found = self.fleet.until_found(&expected);
        println!("idgenctl check finds {expected:?}");
        found.iter().map(|finding| finding["hint"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

/// The variables of a member by the first comment of the file.
fn variables(name: &str, host: &str, etcd: &str, folder: &Path) -> Vec<(String, String)> {
    let file = std::fs::read_to_string(example("scaling/patroni.yml")).unwrap();
    let words = file.lines().filter_map(|line| line.strip_prefix("#     ")).flat_map(str::split_whitespace);
    let (data, bin, user) = (folder.join("data"), release_bin(), variable("IDGEN_SERVER_USER"));
    let value = |word: &str| {
        let (variable, shown) =
            word.trim_end_matches(',').split_once('=').unwrap_or((word.trim_end_matches(','), ""));
        let value = match variable {
            "PATRONI_NAME" => name.to_owned(),
            "PATRONI_POSTGRESQL_DATA_DIR" => data.display().to_string(),
            "PATRONI_POSTGRESQL_BIN_DIR" => bin.clone(),
            "PATRONI_ETCD3_HOSTS" => format!("'{etcd}:2379'"),
            _ if shown.is_empty() => {
                let secret = SECRETS.into_iter().find(|(name, _)| *name == variable);
                secret.unwrap_or_else(|| panic!("{variable} has no value")).1.to_owned()
            }
            _ => shown.replace("10.0.0.1", host),
        };
        (variable.to_owned(), value)
    };
    let mut variables: Vec<_> = words.map(value).collect();
    assert!(SECRETS.iter().all(|(name, _)| variables.iter().any(|(variable, _)| variable == name)));
    // Each machine has a user of its own, whose password file Patroni writes.
    variables.push(("HOME".into(), folder.display().to_string()));
    variables.push(("PATRONI_SUPERUSER_USERNAME".into(), user));
    variables
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.logs());
        }
        // Patroni stops its server when it ends.
        self.members.clear();
        let _ = command("rm").arg("-rf").args([&self.folder, &self.memory]).output();
    }
}

fn of_each(kind: &str, servers: &[&str]) -> Vec<String> {
    servers.iter().map(|server| format!("{kind} {server}")).collect()
}

/// The other two members.
fn others(leader: &str) -> Vec<&'static str> {
    NAMES.into_iter().filter(|name| *name != leader).collect()
}

/// A cluster in this mode with a table, and its leader.
fn cluster_in(mode: &str) -> Option<(Cluster, &'static str)> {
    let cluster = Cluster::start()?;
    let first = cluster.settled("", 2);
    if mode != "true" {
        cluster.set(&format!("synchronous_mode={mode}"));
        let both = || cluster.list().iter().filter(|member| member.would_lead()).count() == 2;
        assert!(is_reached(120, both), "{}", cluster.logs());
    }
    for member in &cluster.members {
        assert_eq!(member.local("SHOW idgen.allowed_shards"), "0-4095");
    }
    cluster
        .member(first)
        .connect()
        .run(&format!("CREATE EXTENSION idgen; {ROWS}; CREATE TABLE plain (id bigserial PRIMARY KEY)"));
    cluster.until_found(&[]);
    Some((cluster, first))
}

/// Such a cluster under load, while its leader changes in each way in which Patroni changes it.
fn changes_of_the_leader(mode: &str) {
    let Some((cluster, first)) = cluster_in(mode) else { return };
    let clients = Clients::start_inserting(4, cluster.target());
    let plain = Clients::start_at(1, cluster.target(), |client, _| {
        Ok(vec![client.query_one("INSERT INTO plain DEFAULT VALUES RETURNING id", &[])?.get(0)])
    });
    clients.wait_for_ids(500);

    println!("== a switchover");
    cluster.run(&["switchover", "--force"]);
    let second = cluster.settled(first, 2);
    clients.wait_for_ids(500);
    cluster.until_found(&[]);

    println!("== the server of the leader is killed");
    cluster.member(second).kill_server();
    let third = cluster.settled(second, 2);
    clients.wait_for_ids(500);
    cluster.until_found(&[]);

    println!("== a member is made anew");
    let anew = others(third)[0];
    let system = cluster.member(anew).folder.join("data");
    let birth = || std::fs::metadata(&system).and_then(|data| data.created()).ok();
    let before = birth();
    cluster.run(&["reinit", "--force", "app", anew]);
    assert!(is_reached(120, || birth().is_some_and(|now| Some(now) != before)), "{}", cluster.logs());
    cluster.settled("", 2);
    clients.wait_for_ids(500);
    cluster.until_found(&[]);

    println!("== the leader's Patroni stands still, and its server goes on");
    let old = cluster.settled("", 2);
    cluster.member(old).signal("STOP");
    let new = cluster.settled(old, 1);
    assert_eq!(cluster.member(old).local("SELECT pg_is_in_recovery()"), "f");
    let of_new = Clients::start_inserting(2, cluster.member(new).target());
    of_new.wait_for_ids(500);
    // Of the two, the old one has no standby left, and nothing that it hands out is lasting.
    let mut without_rows = Ledger::default();
    let mut client = cluster.member(old).connect();
    let refused = without_rows.mint_until_refused(&mut client, "SELECT snowflake_next_id(1)", 120);
    assert_eq!(refused.code().unwrap().code(), "40001", "{refused:?}");
    // It names the later one in the order of their names.
    let hints =
        cluster.until_found(&[format!("two-primaries {}", old.max(new)), format!("sync-too-few {old}")]);
    assert!(
        hints.iter().any(|hint| hint.contains("see that the other stops and stays stopped")),
        "{hints:?}"
    );
    assert_eq!(hints.iter().filter(|hint| !hint.is_empty()).count(), 1, "{hints:?}");
    // Patroni does so, and takes it back with pg_rewind, as it has written what no standby has.
    cluster.member(old).signal("CONT");
    assert_eq!(cluster.settled(old, 2), new);
    assert!(cluster.member(old).log().contains("pg_rewind exit code=0"), "{}", cluster.logs());
    clients.wait_for_ids(500);
    let mut ledger = Ledger::default();
    of_new.finish(&mut ledger);
    cluster.until_found(&[]);

    println!("== the server of the leader is killed during a pause");
    let leader = cluster.settled("", 2);
    cluster.run(&["pause", "--wait"]);
    cluster.member(leader).kill_server();
    cluster.until_found(&of_each("unreachable", &[leader]));
    cluster.run(&["resume", "--wait"]);
    cluster.settled("", 2);
    clients.wait_for_ids(500);
    cluster.until_found(&[]);

    let mut of_plain = Ledger::default();
    plain.finish(&mut of_plain);
    clients.finish(&mut ledger);
    let leader = cluster.settled("", 2);
    assert!(without_rows.ids().is_disjoint(&ledger.ids()));
    let mut client = cluster.member(leader).connect();
    let timelines = ledger.timelines_of_rows(&mut client);
    println!(
        "{mode}: {} ids on {timelines} timelines, the longest outage {:?}; {} of a plain table, {:?}",
        ledger.len(),
        ledger.outage,
        of_plain.len(),
        of_plain.outage
    );
    assert!(timelines >= 4, "{timelines}");
}

/// Promise: whichever way Patroni changes the leader, no id occurs twice, no row that a client has committed is lost, and
/// `idgenctl check` finds what is the case and nothing else. One standby acknowledges commits.
#[test]
fn no_id_is_repeated_whichever_way_patroni_changes_the_leader() {
    changes_of_the_leader("true");
}

/// Promise: the same where one of two standbys acknowledges commits, whichever it is.
#[test]
fn no_id_is_repeated_whichever_of_a_quorum_patroni_promotes() {
    changes_of_the_leader("quorum");
}

/// Such a cluster in strict mode, which loses its standbys and gets them back.
fn no_standby_is_left(mode: &str) {
    let Some((mut cluster, leader)) = cluster_in(mode) else { return };
    let clients = Clients::start_inserting(2, cluster.target());
    clients.wait_for_ids(100);
    cluster.set("synchronous_mode_strict=true");
    let left = others(leader);
    for member in cluster.members.iter_mut().filter(|member| member.name != leader) {
        member.patroni = None;
    }
    let (mut ledger, mut without_rows) = (Ledger::default(), Ledger::default());
    let mut client = cluster.member(leader).connect();
    let refused = without_rows.mint_until_refused(&mut client, "SELECT snowflake_next_id(1)", 120);
    assert_eq!(refused.code().unwrap().code(), "40001", "{refused:?}");
    let unreachable = of_each("unreachable", &left);
    cluster.until_found(&[unreachable.clone(), of_each("sync-too-few", &[leader])].concat());

    let page = std::fs::read_to_string(top().join("docs/operations.md")).unwrap();
    let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for (command, is_needed) in [(NOT_STRICT, true), (NOT_QUORUM, mode == "quorum")] {
        assert!(words.contains(&format!("`{command}`")), "the page does not say {command}");
        if is_needed {
            let words: Vec<&str> = command.split_whitespace().skip(1).chain(["--force"]).collect();
            cluster.run(&words);
        }
    }
    clients.wait_for_ids(100);
    cluster.until_found(&unreachable);
    let config = cluster.config();
    for member in cluster.members.iter_mut().filter(|member| member.name != leader) {
        member.start(&config);
    }
    let leader = cluster.settled("", 2);
    cluster.until_found(&[]);
    clients.finish(&mut ledger);
    assert!(without_rows.ids().is_disjoint(&ledger.ids()));
    ledger.timelines_of_rows(&mut cluster.member(leader).connect());
}

/// Promise: in strict mode nothing is minted without a standby, and what the page says lets ids be minted again.
#[test]
fn strict_mode_without_a_standby_ends_as_the_page_says() {
    no_standby_is_left("true");
}

/// Promise: the same in quorum mode.
#[test]
fn strict_quorum_mode_without_a_standby_ends_as_the_page_says() {
    no_standby_is_left("quorum");
}

/// Promise: under Patroni, what `idgenctl` says to do can be done with patronictl, and is enough.
#[test]
fn what_idgenctl_says_to_do_under_patroni_is_enough() {
    let Some(cluster) = Cluster::start() else { return };
    let leader = cluster.settled("", 2);
    let parameter = |setting: &str| cluster.run(&["edit-config", "--force", "-p", setting]);
    let restart = || {
        cluster.run(&["restart", "--force", "app"]);
        let pending = || said(&run(cluster.patronictl(&["list", "-e"]))).contains('*');
        assert!(is_reached(120, || !pending()), "{}", cluster.logs());
        cluster.settled("", 2)
    };
    let enable = || cluster.idgenctl(&["enable", "postgres"]);

    parameter("shared_preload_libraries=dict_snowball");
    let pending = || said(&run(cluster.patronictl(&["list", "-e"]))).matches('*').count() >= 3;
    assert!(is_reached(120, pending), "{}", cluster.logs());
    restart();
    let left = enable();
    let hint =
        "append idgen to shared_preload_libraries with patronictl edit-config, and run patronictl restart";
    assert_eq!((left.status.code(), said(&left).matches(hint).count()), (Some(1), 3), "{}", said(&left));
    parameter("shared_preload_libraries=dict_snowball,idgen");
    assert!(is_reached(120, pending), "{}", cluster.logs());
    restart();
    let enabled = enable();
    assert!(said(&enabled).contains("idgen is enabled in database \"postgres\""), "{}", said(&enabled));
    cluster.until_found(&[]);

    // Each with what is wrong, where, and what the hint says.
    let way = "Use patronictl edit-config, and ALTER SYSTEM RESET where a server has a value of its own.";
    let with_patroni = |hint: &str| BTreeSet::from([format!("{hint} {way}")]);
    parameter("fsync=off");
    assert_eq!(cluster.until_found(&of_each("fsync-off", &NAMES)), with_patroni("Set fsync = on."));
    parameter("fsync=on");
    cluster.until_found(&[]);
    parameter("idgen.max_ahead=10min");
    assert_eq!(cluster.until_found(&of_each("max-ahead-wide", &NAMES)), with_patroni("Set it back to 1s."));
    parameter("idgen.max_ahead=1s");
    cluster.until_found(&[]);

    // What ALTER SYSTEM has set on a member stays, whatever Patroni's configuration says.
    let standby = others(leader)[0];
    let alter = |what: &str| {
        let mut client = cluster.member(standby).connect();
        client.run(&format!("ALTER SYSTEM {what}"));
        client.run("SELECT pg_reload_conf()");
    };
    alter("SET idgen.allowed_shards = '0-99'");
    cluster.until_found(&of_each("lists-differ", &[standby]));
    alter("RESET idgen.allowed_shards");
    cluster.until_found(&[]);
}
