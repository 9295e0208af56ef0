//! What docs/scaling.md, docs/operations.md and docs/shards.md say about Patroni. Each member starts with
//! docs/examples/scaling/patroni.yml and the environment variables that its first comment lists.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use postgres::{Client, NoTls};
use serde_json::Value;

use crate::clients::{Clients, Ledger, ROWS, TABLES};
use crate::fleet::File;
use crate::moment::{is_reached, within_seconds};
use crate::process::{
    Service, assert_says, client_program, command, ends, example, give_to_servers, installed, kill, lacks,
    output_of_run, refused, release_bin, run, said, servers_folder, top, variable, write_program,
};
use crate::server::Sql;

/// The page's command to leave strict mode.
const NOT_STRICT: &str = "patronictl edit-config -s synchronous_mode_strict=null";

/// The page's second command, needed in quorum mode only.
const NOT_QUORUM: &str = "patronictl edit-config -s synchronous_mode=true";

/// The secrets, which are not in the file but in the environment.
const SECRETS: [(&str, &str); 5] = [
    ("PATRONI_SUPERUSER_PASSWORD", "super"),
    ("PATRONI_REPLICATION_PASSWORD", "replication"),
    ("PATRONI_REWIND_PASSWORD", "rewind"),
    ("PATRONI_RESTAPI_USERNAME", "admin"),
    ("PATRONI_RESTAPI_PASSWORD", "rest"),
];

const NAMES: [&str; 3] = ["one", "two", "three"];

/// A Patroni cluster with an etcd of its own.
struct Cluster {
    members: Vec<Member>,
    fleet: File,
    folder: PathBuf,
    /// The data of etcd are in memory: Patroni would wait for each of its writes to disk.
    memory: PathBuf,
    /// The address of etcd.
    etcd: String,
    _service: Service,
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

    /// Stops Patroni, which stops its server first.
    fn stop(&mut self) {
        self.patroni = None;
        // Patroni may have had to be killed.
        if let Some(pid) = self.server_pid() {
            println!("{}", self.end_of_log());
            let _ = kill("KILL", pid);
        }
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

    /// The result of a query that the servers' user runs through the socket, without a password.
    fn local(&self, query: &str) -> String {
        let mut psql = command(Path::new(&release_bin()).join("psql"));
        psql.args(["-X", "-At", "-d", "postgres", "-c", query, "-h"]).arg(self.folder.join("sockets"));
        output_of_run(psql.env_remove("PGPASSWORD").env_remove("PGUSER")).trim().to_owned()
    }

    /// The process of its server, if that runs. The file of a server that was killed may name another process by now.
    fn server_pid(&self) -> Option<i32> {
        let data = self.folder.join("data").canonicalize().ok()?;
        let file = std::fs::read_to_string(data.join("postmaster.pid")).ok()?;
        let pid = file.lines().next()?.parse().ok()?;
        std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|folder| folder == data).then_some(pid)
    }

    fn kill_server(&self) {
        kill("KILL", self.server_pid().expect("a server")).unwrap();
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

/// A line of `patronictl list`.
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
    /// Starts a cluster with members of these names and the shards `list`. `None` if a program is missing.
    fn start(names: &[&'static str], list: &str) -> Option<Cluster> {
        for program in ["etcd", "patroni", "patronictl"] {
            if installed(program).is_none() {
                lacks(program);
                return None;
            }
        }
        // The first cluster has the addresses of the pages.
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
        let etcd = format!("{network}.4:2379");
        let (url, peers) = (format!("http://{etcd}"), format!("http://{network}.4:2380"));
        // The machine may be busy, and etcd slow to answer.
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
        let service = Service::start(&installed("etcd").unwrap(), &args, &[], &folder.join("etcd.log"));

        // A copy, because the servers' user may not be able to read the checkout.
        let file = std::fs::read_to_string(example("scaling/patroni.yml")).unwrap();
        let shown = "idgen.allowed_shards: 0-4095";
        assert!(file.contains(shown), "{file}");
        let file = file.replace(shown, &format!("idgen.allowed_shards: {list}"));
        std::fs::write(folder.join("patroni.yml"), file).unwrap();
        let member = |(number, name): (usize, &'static str)| {
            let (host, folder) = (format!("{network}.{}", number + 1), new_folder(folder.join(name)));
            new_folder(folder.join("sockets"));
            let variables = variables(name, &host, &etcd, &folder);
            Member { name, host, folder, variables, patroni: None }
        };
        let members: Vec<Member> = names.iter().copied().enumerate().map(member).collect();
        let fleet = file_of(&members);
        let mut cluster = Cluster { fleet, members, folder, memory, etcd, _service: service };
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

    /// The connection string of the page, which leads clients to the present primary.
    fn target(&self) -> String {
        let hosts: Vec<&str> = self.members.iter().map(|member| member.host.as_str()).collect();
        let last = self.members.last().unwrap();
        let target = last.target().replace(&last.host, &hosts.join(","));
        format!("{target} target_session_attrs=read-write")
    }

    fn patronictl(&self, args: &[&str]) -> Command {
        let mut patronictl = client_program("timeout");
        patronictl.args(["100", "patronictl", "-c"]).arg(self.config()).args(args);
        patronictl.envs(self.members[0].variables.iter().map(|(name, value)| (name, value)));
        patronictl
    }

    /// Repeats a command until it succeeds, because Patroni refuses some at first.
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

    /// Sets something on all members, as the page says.
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

    /// Waits until a member other than `former` leads, and `standbys` of the others stream, one of which Patroni would
    /// promote. Returns the leader.
    fn settled(&self, former: &str, standbys: usize) -> &'static str {
        let leader = || {
            let list = self.list();
            let leader = list.iter().find(|member| member.leads() && member.name != former)?;
            let streaming = list.iter().filter(|member| member.state == "streaming");
            let is_safe = standbys == 0 || list.iter().any(Listed::would_lead);
            (streaming.count() == standbys && is_safe).then(|| self.member(&leader.name).name)
        };
        within_seconds(400, leader).unwrap_or_else(|| {
            let list = run(self.patronictl(&["list"]));
            panic!(
                "no leader other than {former:?} with {standbys} standbys\n{}\n{}",
                said(&list),
                self.logs()
            )
        })
    }

    fn logs(&self) -> String {
        self.members.iter().map(Member::end_of_log).collect()
    }

    fn idgenctl(&self, args: &[&str]) -> Output {
        self.fleet.run(&[&["--yes"], args].concat())
    }

    /// Waits until the check finds exactly this, and returns the hints.
    #[track_caller]
    fn until_found(&self, expected: &[String]) -> BTreeSet<String> {
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        let found = self.fleet.until_found(&expected);
        println!("idgenctl check finds {expected:?}");
        found.iter().map(|finding| finding["hint"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

/// The variables that the first comment of the file lists, with the values of a member.
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
            "PATRONI_ETCD3_HOSTS" => format!("'{etcd}'"),
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
    // Members on one machine would share the password file that Patroni writes to the home directory.
    variables.push(("HOME".into(), folder.display().to_string()));
    variables.push(("PATRONI_SUPERUSER_USERNAME".into(), user));
    variables
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.logs());
        }
        self.members.iter_mut().for_each(Member::stop);
        let _ = command("rm").arg("-rf").args([&self.folder, &self.memory]).output();
    }
}

/// A fleet file with these members.
fn file_of<'a>(members: impl IntoIterator<Item = &'a Member>) -> File {
    File::of(&members.into_iter().map(|member| (member.name, member.target())).collect::<Vec<_>>())
}

fn of_each(kind: &str, servers: &[&str]) -> Vec<String> {
    servers.iter().map(|server| format!("{kind} {server}")).collect()
}

/// The members of a cluster of three that do not lead it.
fn others(leader: &str) -> Vec<&'static str> {
    NAMES.into_iter().filter(|name| *name != leader).collect()
}

/// A cluster in a synchronous mode, with a table, and its leader.
fn cluster_in(mode: &str) -> Option<(Cluster, &'static str)> {
    let cluster = Cluster::start(&NAMES, "0-4095")?;
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

/// Lets the leader change in every way that Patroni knows, under load.
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

    println!("== a member is reinitialized");
    let anew = others(third)[0];
    let system = cluster.member(anew).folder.join("data");
    let birth = || std::fs::metadata(&system).and_then(|data| data.created()).ok();
    let before = birth();
    cluster.run(&["reinit", "--force", "app", anew]);
    assert!(is_reached(120, || birth().is_some_and(|now| Some(now) != before)), "{}", cluster.logs());
    cluster.settled("", 2);
    clients.wait_for_ids(500);
    cluster.until_found(&[]);

    println!("== the leader's Patroni stops, but not its server");
    let old = cluster.settled("", 2);
    cluster.member(old).signal("STOP");
    let new = cluster.settled(old, 1);
    assert_eq!(cluster.member(old).local("SELECT pg_is_in_recovery()"), "f");
    let of_new = Clients::start_inserting(2, cluster.member(new).target());
    of_new.wait_for_ids(500);
    // The old primary has no standby left, so it hands out no id after the mark that a standby has acknowledged.
    let mut without_rows = Ledger::default();
    let mut client = cluster.member(old).connect();
    let refused = without_rows.mint_until_refused(&mut client, "SELECT snowflake_next_id(1)", 120);
    assert_eq!(refused.code().unwrap().code(), "40001", "{refused:?}");
    // The finding names the last of the primaries in alphabetical order.
    let hints =
        cluster.until_found(&[format!("two-primaries {}", old.max(new)), format!("sync-too-few {old}")]);
    assert!(
        hints.iter().any(|hint| hint.contains("see that the other stops and stays stopped")),
        "{hints:?}"
    );
    assert_eq!(hints.iter().filter(|hint| !hint.is_empty()).count(), 1, "{hints:?}");
    // Patroni stops the old primary, which needs pg_rewind because no standby has its last WAL.
    cluster.member(old).signal("CONT");
    assert_eq!(cluster.settled(old, 2), new);
    assert!(cluster.member(old).log().contains("pg_rewind exit code=0"), "{}", cluster.logs());
    clients.wait_for_ids(500);
    let mut ledger = Ledger::default();
    of_new.finish(&mut ledger);
    cluster.until_found(&[]);

    println!("== the server of the leader is killed while Patroni is paused");
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
        "{mode}: {} ids on {timelines} timelines, longest outage {:?}; plain table: {} ids, longest outage {:?}",
        ledger.len(),
        ledger.outage,
        of_plain.len(),
        of_plain.outage
    );
    assert!(timelines >= 4, "{timelines}");
}

/// Promise: however Patroni changes the leader, no id is repeated, no committed row is lost, and `idgenctl check` finds
/// what is wrong and nothing else. One standby acknowledges commits.
#[test]
fn no_id_is_repeated_however_patroni_changes_the_leader() {
    changes_of_the_leader("true");
}

/// Promise: the same if either of two standbys may acknowledge a commit.
#[test]
fn no_id_is_repeated_whichever_of_a_quorum_patroni_promotes() {
    changes_of_the_leader("quorum");
}

/// Stops the standbys of a cluster in strict mode, carries out the page's commands, and starts the standbys again.
fn no_standby_is_left(mode: &str) {
    let Some((mut cluster, leader)) = cluster_in(mode) else { return };
    let clients = Clients::start_inserting(2, cluster.target());
    clients.wait_for_ids(100);
    cluster.set("synchronous_mode_strict=true");
    let left = others(leader);
    for member in cluster.members.iter_mut().filter(|member| member.name != leader) {
        member.stop();
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

/// Promise: in strict mode nothing is minted without a standby, until somebody runs the command of the page.
#[test]
fn strict_mode_without_a_standby_ends_as_the_page_says() {
    no_standby_is_left("true");
}

/// Promise: the same in quorum mode.
#[test]
fn strict_quorum_mode_without_a_standby_ends_as_the_page_says() {
    no_standby_is_left("quorum");
}

/// Promise: the hints of `idgenctl` under Patroni can be carried out with patronictl, and mend what was wrong.
#[test]
fn what_idgenctl_says_to_do_under_patroni_is_enough() {
    let Some(cluster) = Cluster::start(&NAMES, "0-4095") else { return };
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

    let way = "Use patronictl edit-config, and ALTER SYSTEM RESET where a server has a value of its own.";
    let with_patroni = |hint: &str| BTreeSet::from([format!("{hint} {way}")]);
    parameter("fsync=off");
    assert_eq!(cluster.until_found(&of_each("fsync-off", &NAMES)), with_patroni("Set fsync = on."));
    parameter("fsync=on");
    cluster.until_found(&[]);
    parameter("idgen.max_ahead=10min");
    assert_eq!(
        cluster.until_found(&of_each("max-ahead-wide", &NAMES)),
        with_patroni("Set it back to 1s once no id is ahead.")
    );
    parameter("idgen.max_ahead=1s");
    cluster.until_found(&[]);

    // On a member, ALTER SYSTEM overrides Patroni's configuration.
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

/// Writes the program that the page gives to `--set-list`, and the files of patronictl that it names.
fn set_list(source: &Cluster, target: &Cluster) -> PathBuf {
    let page = std::fs::read_to_string(top().join("docs/shards.md")).unwrap();
    let blocks = page.split("```sh\n").filter_map(|part| part.split("```").next());
    let program = blocks.into_iter().find(|block| block.contains("patronictl")).expect("the page's program");
    for (role, cluster) in [("source", source), ("target", target)] {
        let file = source.folder.join(role).with_extension("yml");
        std::fs::write(file, format!("etcd3: {{hosts: '{}'}}\n", cluster.etcd)).unwrap();
    }
    let file = source.folder.join("set-list");
    write_program(&file, &program.replace("/etc/patroni", source.folder.to_str().unwrap()));
    file
}

/// Promise: a shard moves between clusters under Patroni with the program of the page, while clients write. If a
/// failover of the source interrupts the move, the hints of `idgenctl` lead to its undo. No id is repeated, no
/// committed row is lost, and the shard stays closed on each later leader of the source.
#[test]
fn a_shard_moves_between_clusters_under_patroni() {
    let Some(source) = Cluster::start(&NAMES[..2], "0-4095") else { return };
    let Some(target) = Cluster::start(&NAMES[2..], "4096-8191") else { return };
    let (first, to) = (source.settled("", 1), target.settled("", 0));
    let fleet = file_of(source.members.iter().chain(&target.members));
    let program = set_list(&source, &target);
    let the_move = |from: &str, how: &[&str]| {
        let servers =
            ["--yes", "move", "insta5", "--from", from, "--to", to, "--owner", "user=app password=app"];
        let mut command = fleet.command(&[&servers, how].concat());
        command.arg("--set-list").arg(&program).stdin(Stdio::null());
        command
    };
    // A restore waits here while the test holds the lock.
    let wait = "PERFORM pg_advisory_xact_lock_shared(5);";
    for (cluster, leader, wait) in [(&source, first, ""), (&target, to, wait)] {
        let mut client = cluster.member(leader).connect();
        client.run("CREATE EXTENSION idgen");
        client.run("CREATE ROLE app LOGIN PASSWORD 'app'; GRANT CREATE ON DATABASE postgres TO app");
        client.run(&format!(
            "CREATE FUNCTION accepted() RETURNS boolean LANGUAGE plpgsql AS 'BEGIN {wait} RETURN true; END'"
        ));
    }
    let tables = format!("SET ROLE app; {TABLES}; ALTER TABLE insta5.users ADD CHECK (public.accepted())");
    source.member(first).connect().run(&tables);
    fleet.until_found(&[]);
    let insert = |client: &mut Client, _| {
        let row = client.query_one("INSERT INTO insta5.users (client) VALUES (1) RETURNING id", &[]);
        if row.is_err() {
            // The other cluster has the schema.
            thread::sleep(Duration::from_millis(10));
        }
        Ok(vec![row?.get(0)])
    };
    let of_source = Clients::start_at(4, source.target(), insert);
    let of_target = Clients::start_at(2, target.target(), insert);
    of_source.wait_for_ids(500);

    println!("== the server of the source is killed while rows are copied");
    let mut holder = target.member(to).connect();
    holder.run("SELECT pg_advisory_lock(5)");
    let mut child = the_move(first, &[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let waits = "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    let copies = is_reached(300, || child.try_wait().unwrap().is_some() || holder.value(waits));
    assert!(copies && child.try_wait().unwrap().is_none(), "{}", said(&child.wait_with_output().unwrap()));
    source.member(first).kill_server();
    let second = source.settled(first, 1);
    drop(holder);
    let broken = child.wait_with_output().unwrap();
    println!("{}", said(&broken));
    assert!(!broken.status.success());
    assert_says(&said(&broken), &["It is NOT undone", "run the same command with --undo."]);
    refused(the_move(first, &["--undo"]), &["is a standby", "Name its primary."]);
    println!("{}", ends(the_move(second, &["--undo"]), 0, &["undone: the source has the shard"]));
    of_source.wait_for_ids(500);
    fleet.until_found(&[]);

    println!("== a move");
    println!("{}", ends(the_move(second, &[]), 0, &[]));
    of_target.wait_for_ids(500);
    fleet.until_found(&[]);
    for former in ["", second] {
        if former == second {
            println!("== a switchover of the source");
            source.run(&["switchover", "--force"]);
        }
        let mut client = source.member(source.settled(former, 1)).connect();
        assert_eq!(client.code("SELECT snowflake_next_id(5)"), "55000");
        client.run("SELECT snowflake_next_id(6)");
    }
    fleet.until_found(&[]);

    let (mut here, mut there) = (Ledger::default(), Ledger::default());
    of_source.finish(&mut here);
    of_target.finish(&mut there);
    println!(
        "{} ids of the source, longest outage {:?}, refused: {:?}",
        here.len(),
        here.outage,
        here.errors
    );
    println!("{} ids of the target, refused: {:?}", there.len(), there.errors);
    let [here, there] = [here, there].map(|ledger| ledger.ids());
    assert!(here.iter().max() < there.iter().min(), "the target began below the source");
    let rows: Vec<i64> = target.member(to).connect().column("SELECT id FROM insta5.users");
    let rows: BTreeSet<i64> = rows.into_iter().collect();
    assert!(here.iter().chain(&there).all(|id| rows.contains(id)), "a row is lost");
}
