//! Real throw-away servers. Crates that run PostgreSQL for tests do not fit: these tests kill the server, restart it on
//! the same data, and run it under another user and with a preloaded library.

mod clock;
mod copies;
mod disk;
pub mod link;
pub mod processes;
pub mod relay;
mod sessions;
mod socket;

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

pub use disk::{Trouble, children};
use promises::ClockSet;
pub use sessions::{Sql, Values, reason};

use crate::moment::is_reached;
use crate::process::{
    clock_library, command, give_to_servers, kill, preloads, run, said_by, said_by_pg_config, servers_folder,
    variable,
};

/// The setting of servers that preload idgen in every run of the tests, because of the subject of a test or of later
/// settings.
pub const PRELOAD: &str = "shared_preload_libraries = 'idgen'";

/// Without a preload, idgen mints only if none of these is set.
const OF_THE_SERVER: [&str; 5] =
    ["idgen.epoch", "idgen.allowed_shards", "idgen.max_ahead", "idgen.reserve_ahead", "idgen.max_clock_jump"];

/// The setting of libraries with which a server with these settings mints.
fn libraries(settings: &[&str]) -> &'static str {
    let sets = |line: &&str| OF_THE_SERVER.iter().any(|name| line.starts_with(name));
    if preloads() || settings.iter().any(sets) { PRELOAD } else { "" }
}

/// These settings if servers preload idgen, and none otherwise, for tests that only take longer without them.
pub fn if_preloaded<'a>(settings: &'a [&'a str]) -> &'a [&'a str] {
    if preloads() { settings } else { &[] }
}

/// Which build of the extension a server runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// The release.
    Release,
    /// With the points of `src/testing/fault.rs`.
    Faults,
    /// The last release before this version; in `scripts/test upgrades`, on an older PostgreSQL.
    Older,
    /// The release's PostgreSQL without files of idgen.
    Bare,
    /// The release's PostgreSQL with the files that [`Build::give_files`] has put there.
    Replaced,
}

impl Build {
    fn bin(self) -> PathBuf {
        PathBuf::from(variable(match self {
            Build::Release => "IDGEN_PG_BIN",
            Build::Faults => "IDGEN_FAULTS_BIN",
            Build::Older => "IDGEN_OLDER_BIN",
            Build::Bare => return bare_bin().to_owned(),
            Build::Replaced => return replaced_bin().to_owned(),
        }))
    }

    /// Whether there is such a build.
    pub fn is_there(self) -> bool {
        self.bin().exists()
    }

    /// Puts files of idgen from this build into another one, as packages do: a process keeps those that it has open.
    pub fn give_files(self, to: Build) {
        for (option, files) in [("--pkglibdir", "idgen.so"), ("--sharedir", "extension/idgen*")] {
            let script = "cp --remove-destination $1/$3 \"$2/$(dirname \"$3\")\"";
            let folder = |build: Build| said_by(&build.bin(), option);
            run(command("bash").args(["-c", script, "-", &folder(self), &folder(to), files]));
        }
    }
}

/// Prepares a database like `idgenctl enable`.
pub fn enable(database: &str) -> String {
    let create =
        "CREATE SCHEMA idgen; GRANT USAGE ON SCHEMA idgen TO PUBLIC; CREATE EXTENSION idgen SCHEMA idgen";
    format!("{create}; {}", path(database))
}

/// The part of [`enable`] that a dump does not contain.
fn path(database: &str) -> String {
    format!("ALTER DATABASE {database} SET search_path = \"$user\", public, idgen")
}

/// A server with its own data directory and socket, which are deleted at the end.
pub struct Server {
    build: Build,
    number: usize,
    clock: Arc<Mutex<Vec<ClockSet>>>,
    dir: PathBuf,
    sockets: PathBuf,
    /// Whether its WAL is on a disk that [`Server::trouble`] reaches.
    has_disk: bool,
}

impl Server {
    /// Starts a server that mints, with the extension as after `idgenctl enable`, and with these lines in its
    /// configuration. It preloads idgen unless the tests run without a preload and the lines do not need it.
    pub fn start(settings: &[&str]) -> Server {
        Server::start_build(Build::Release, settings)
    }

    pub fn start_build(build: Build, settings: &[&str]) -> Server {
        Server::new(build).start_with_idgen(settings)
    }

    fn start_with_idgen(self, settings: &[&str]) -> Server {
        let server = self.start_new(&[&[libraries(settings)], settings].concat());
        server.run(&enable("postgres"));
        server
    }

    /// Starts a server with the portable edition of idgen.
    pub fn start_portable(settings: &[&str]) -> Server {
        let server = Server::start_plain(settings);
        server.run(include_str!("../../../portable/idgen.sql"));
        server
    }

    /// Starts a server without the extension, and without its library unless the settings preload it.
    pub fn start_plain(settings: &[&str]) -> Server {
        Server::start_empty(Build::Release, settings)
    }

    /// Starts such a server of this build.
    pub fn start_empty(build: Build, settings: &[&str]) -> Server {
        Server::new(build).start_new(settings)
    }

    fn start_new(self, settings: &[&str]) -> Server {
        if self.build == Build::Older {
            initdb(self.build, &self.dir, &["--data-checksums"]);
        } else {
            run(command("cp").arg("-a").arg(template()).arg(&self.dir));
            self.become_another_cluster();
        }
        self.configure(&[
            "listen_addresses = ''",
            "shared_buffers = 16MB",
            "max_connections = 100",
            "log_line_prefix = '%m [%p] '",
            "wal_keep_size = 1GB",
            "wal_retrieve_retry_interval = 100ms",
        ]);
        self.configure(settings);
        self.own_sockets();
        self.up();
        self
    }

    /// Gives the copy of the template its own system identifier, as initdb would. pg_resetwal accepts the control file
    /// despite its checksum, and begins new WAL with the identifier.
    fn become_another_cluster(&self) {
        let file =
            OpenOptions::new().write(true).open(self.dir.join("global/pg_control")).expect("pg_control");
        (&file).write_all(&fastrand::u64(1 << 60..1 << 62).to_ne_bytes()).expect("an identifier");
        run(command(self.build.bin().join("pg_resetwal")).arg("-f").arg(&self.dir));
    }

    /// A server without data, but with a folder for its sockets.
    fn new(build: Build) -> Server {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}", std::process::id());
        // The path of a socket may have 107 bytes.
        let server = Server {
            build,
            number,
            clock: Arc::default(),
            dir: servers_folder().join(&name),
            sockets: PathBuf::from(format!("/tmp/idgen-{name}")),
            has_disk: false,
        };
        // A run that was interrupted may have had the number of this process.
        let _ = fs::remove_dir_all(&server.sockets);
        DirBuilder::new().mode(0o700).create(&server.sockets).expect("a folder for sockets");
        give_to_servers(&server.sockets);
        server.set_clock(0.0);
        server
    }

    /// A number that no other server of these tests has.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Makes the server run this build from its next start on.
    pub fn set_build(&mut self, build: Build) {
        self.build = build;
    }

    pub fn build(&self) -> Build {
        self.build
    }

    fn own_sockets(&self) {
        self.configure(&[&format!("unix_socket_directories = '{}'", self.sockets.display())]);
    }

    fn pg(&self, program: &str) -> Command {
        command(self.build.bin().join(program))
    }

    /// Adds lines to the configuration; later ones win.
    pub fn configure(&self, settings: &[&str]) {
        let lines: String = settings.iter().map(|line| format!("{line}\n")).collect();
        let file = OpenOptions::new().append(true).open(self.dir.join("postgresql.conf"));
        file.expect("postgresql.conf").write_all(lines.as_bytes()).expect("write");
    }

    /// Starts the server, at the clock that [`Server::set_clock`] has left.
    pub fn up(&self) {
        if !succeeds(&mut self.start_command()) {
            panic!("the server does not start\n{}", self.log());
        }
    }

    /// Starts the server with options on its command line.
    pub fn up_with(&self, options: &str) {
        assert!(succeeds(self.start_command().args(["-o", options])), "{}", self.log());
    }

    /// Starts the server, and waits until it has ended by itself, perhaps after accepting connections.
    pub fn up_and_down(&self) {
        self.start_command().output().expect("pg_ctl");
        self.until_down();
    }

    /// Begins to start the server.
    pub fn begin_up(&self) {
        let mut start = self.start_command();
        start.arg("--no-wait");
        assert!(succeeds(&mut start), "the server does not begin to start\n{}", self.log());
    }

    fn start_command(&self) -> Command {
        // env sets the variables, because this process may run as root, which must not map the memory of another user.
        let mut start = command("env");
        start.args(self.preloaded()).arg(self.build.bin().join("pg_ctl"));
        start.args(["start", "--wait", "--silent", "--timeout=60", "-D"]).arg(&self.dir);
        // This is a file, because the server would keep a pipe open forever.
        start.arg("-l").arg(self.dir.join("log"));
        start
    }

    /// The variables with which a program and its children see the server's clock and disk.
    fn preloaded(&self) -> [String; 4] {
        // Random faults seldom meet a process right after it has read the clock, so most of its time passes there.
        let look_ns = if self.has_disk { 5000 } else { 0 };
        [
            format!("LD_PRELOAD={}{}", clock_library().display(), self.disk_library()),
            format!("IDGEN_CLOCK={}", self.clock_file().display()),
            format!("IDGEN_LOOK_NS={look_ns}"),
            format!("IDGEN_DISK={}", self.disk_file().display()),
        ]
    }

    /// Waits until the server has ended by itself.
    pub fn until_down(&self) {
        let mut status = self.pg("pg_ctl");
        status.arg("status").arg("-D").arg(&self.dir);
        let is_down = || !status.output().expect("pg_ctl").status.success();
        assert!(is_reached(60, is_down), "the server keeps running\n{}", self.log());
    }

    /// Stops the server in the mode "smart", "fast", "immediate" or "kill".
    pub fn stop(&self, mode: &str) {
        if mode == "kill" {
            return self.kill();
        }
        assert!(self.down(mode), "the server does not stop\n{}", self.log());
    }

    fn down(&self, mode: &str) -> bool {
        let mut stop = self.pg("pg_ctl");
        stop.args(["stop", "--wait", "--silent", "-m", mode, "-D"]).arg(&self.dir);
        stop.output().is_ok_and(|output| output.status.success())
    }

    pub fn restart(&self) {
        self.stop("fast");
        self.up();
    }

    /// Restarts the server with more lines in its configuration.
    pub fn restart_with(&self, settings: &[&str]) {
        self.stop("fast");
        self.configure(settings);
        self.up();
    }

    /// Stops the server in this mode, and starts it at this clock.
    pub fn restart_at(&self, mode: &str, seconds: f64) {
        self.stop(mode);
        self.set_clock(seconds);
        self.up();
    }

    pub fn crash(&self) {
        self.kill();
        self.up();
    }

    /// Kills the postmaster, as the kernel would when memory runs out.
    pub fn kill(&self) {
        self.signal("KILL", self.postmaster());
    }

    /// The process ID of the postmaster.
    pub fn postmaster(&self) -> i32 {
        let file = fs::read_to_string(self.dir.join("postmaster.pid")).expect("postmaster.pid");
        file.lines().next().and_then(|line| line.trim().parse().ok()).expect("a pid")
    }

    /// Sends a signal to a process of the server.
    pub fn signal(&self, name: &str, pid: i32) {
        kill(name, pid).expect("a process");
    }

    /// Sends a signal to a process that may have ended by itself.
    pub fn signal_if_there(&self, name: &str, pid: i32) {
        let _ = kill(name, pid);
    }

    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.dir.join("log")).expect("a log")).into_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let failed = std::thread::panicking();
        // This is all that remains of a run in CI. Threads of servers that are meant to fail have no names.
        if failed && std::thread::current().name().is_some() {
            let log = fs::read(self.dir.join("log")).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            let lines: Vec<_> = log.lines().collect();
            let last = &lines[lines.len().saturating_sub(50)..];
            eprintln!("the last lines of the log of {}:\n{}", self.dir.display(), last.join("\n"));
        }
        self.down("immediate");
        // The files show why the test has failed.
        if failed {
            return;
        }
        let _ = fs::remove_dir_all(&self.dir);
        let _ = fs::remove_dir_all(&self.sockets);
    }
}

/// Each copy of a server has a whole segment of WAL.
const TEMPLATE_OPTIONS: [&str; 1] = ["--wal-segsize=1"];

/// An empty data directory, created once for all tests.
fn template() -> &'static Path {
    static TEMPLATE: OnceLock<PathBuf> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let dir = servers_folder().join(format!("template-{}", std::process::id()));
        initdb(Build::Faults, &dir, &TEMPLATE_OPTIONS);
        dir
    })
}

/// The programs of a copy of the release's PostgreSQL without idgen, created once for all tests.
fn bare_bin() -> &'static Path {
    static BIN: OnceLock<PathBuf> = OnceLock::new();
    BIN.get_or_init(|| without_files("bare"))
}

fn replaced_bin() -> &'static Path {
    static BIN: OnceLock<PathBuf> = OnceLock::new();
    BIN.get_or_init(|| without_files("replaced"))
}

/// Copies the release's PostgreSQL without files of idgen, and returns the folder of its programs.
fn without_files(name: &str) -> PathBuf {
    let [bin, share] = ["--bindir", "--sharedir"].map(|option| PathBuf::from(said_by_pg_config(option)));
    // PostgreSQL finds its files relative to its programs, so the copy has both.
    let tree = bin.ancestors().find(|folder| share.starts_with(folder)).expect("a folder with both");
    let copy = servers_folder().join(format!("{name}-{}", std::process::id()));
    run(command("cp").arg("-R").arg(tree).arg(&copy));
    run(command("find").arg(&copy).args(["-name", "idgen*", "-delete"]));
    copy.join(bin.strip_prefix(tree).expect("a folder in the tree"))
}

fn initdb(build: Build, dir: &Path, options: &[&str]) {
    run(command(build.bin().join("initdb"))
        .args(["--no-sync", "--auth=trust", "--username=postgres", "--no-instructions", "-D"])
        .arg(dir)
        .args(options));
}

/// Whether a command succeeds within ten seconds: the processes of a killed server may take a moment to end.
fn succeeds(command: &mut Command) -> bool {
    is_reached(10, || command.output().expect("a program of PostgreSQL").status.success())
}
