//! Real throw-away servers. No crate that runs PostgreSQL for tests fits: these tests kill the
//! server, restart it on the same data, and run it under another user and with a preloaded library.

mod copies;
mod sessions;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::process::{command, feed, house, kill, run, said_by_pg_config, variable};

/// Which build of the extension a server runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// What users get.
    Release,
    /// With the points of `src/fault.rs`.
    Faults,
    /// What users of an older PostgreSQL get. It is today's, but for `scripts/test upgrades`.
    Older,
    /// The same PostgreSQL as the release's, with nothing of idgen in its folders.
    Bare,
}

impl Build {
    /// The folder of the server's programs.
    fn bin(self) -> PathBuf {
        PathBuf::from(variable(match self {
            Build::Release => "IDGEN_PG_BIN",
            Build::Faults => "IDGEN_FAULTS_BIN",
            Build::Older => "IDGEN_OLDER_BIN",
            Build::Bare => return bare_bin().to_owned(),
        }))
    }
}

/// A server with a data directory and a socket of its own; stopped and deleted at the end.
pub struct Server {
    build: Build,
    dir: PathBuf,
    sockets: PathBuf,
    /// Whether the server is shown the clock that [`Server::set_clock`] sets, for which each look at it reads a file.
    sets_clock: bool,
}

impl Server {
    /// Starts a server with idgen preloaded and these lines in its configuration, and creates the
    /// extension.
    pub fn start(settings: &[&str]) -> Server {
        Server::start_build(Build::Release, settings)
    }

    /// The same with a choice of the build.
    pub fn start_build(build: Build, settings: &[&str]) -> Server {
        let server =
            Server::start_empty(build, &[&["shared_preload_libraries = 'idgen'"], settings].concat());
        server.connect().batch_execute("CREATE EXTENSION idgen").expect("CREATE EXTENSION");
        server
    }

    /// Starts a server with the portable edition of idgen, which reads its settings now.
    pub fn start_portable(settings: &[&str]) -> Server {
        let server = Server::start_plain(settings);
        let script = include_str!("../../../portable/idgen.sql");
        server.connect().batch_execute(script).expect("the portable edition");
        server
    }

    /// Starts a server that does not preload idgen.
    pub fn start_plain(settings: &[&str]) -> Server {
        Server::start_empty(Build::Release, settings)
    }

    /// Starts a server as [`Server::start`], whose clock is the machine's and cannot be set: one as fast as users have.
    pub fn start_with_true_clock(settings: &[&str]) -> Server {
        let mut server =
            Server::empty(Build::Release, &[&["shared_preload_libraries = 'idgen'"], settings].concat());
        server.sets_clock = false;
        server.up();
        server.connect().batch_execute("CREATE EXTENSION idgen").expect("CREATE EXTENSION");
        server
    }

    /// Starts a server without the extension, nor its library where the settings do not preload it.
    pub fn start_empty(build: Build, settings: &[&str]) -> Server {
        let server = Server::empty(build, settings);
        server.up();
        server
    }

    /// An empty server with these lines in its configuration, not started yet.
    fn empty(build: Build, settings: &[&str]) -> Server {
        let server = Server::new(build);
        if build == Build::Older {
            initdb(build, &server.dir, &["--data-checksums"]);
        } else {
            let mut copy = command("cp");
            copy.arg("-a").arg(template()).arg(&server.dir);
            run(copy);
        }
        server.configure(&[
            "listen_addresses = ''",
            "shared_buffers = 16MB",
            "max_connections = 100",
            "log_line_prefix = '%m [%p] '",
            "wal_keep_size = 1GB",
            "wal_retrieve_retry_interval = 100ms",
        ]);
        server.configure(settings);
        server.own_sockets();
        server
    }

    /// A server without data, and a folder for its sockets.
    fn new(build: Build) -> Server {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        // The path of a socket may have 107 bytes.
        let server = Server {
            build,
            dir: house().join(&name),
            sockets: PathBuf::from(format!("/tmp/idgen-{name}")),
            sets_clock: true,
        };
        let mut mkdir = command("mkdir");
        mkdir.arg("-m").arg("700").arg(&server.sockets);
        run(mkdir);
        server
    }

    fn own_sockets(&self) {
        self.configure(&[&format!("unix_socket_directories = '{}'", self.sockets.display())]);
    }

    fn pg(&self, program: &str) -> Command {
        command(self.build.bin().join(program))
    }

    /// Adds lines to the configuration; later ones win.
    pub fn configure(&self, settings: &[&str]) {
        let mut tee = command("tee");
        tee.arg("-a").arg(self.dir.join("postgresql.conf"));
        tee.stdin(Stdio::piped()).stdout(Stdio::null());
        feed(tee, &settings.iter().map(|line| format!("{line}\n")).collect::<String>());
    }

    /// Starts the server, at the clock that [`Server::set_clock`] has left.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn up(&self) {
        if !succeeds(&mut self.start_command()) {
            panic!("the server does not start\n{}", self.log());
        }
    }

    /// Starts the server once, and waits until it has ended by itself: at its start, or a moment later, where
    /// it could already be connected to.
    ///
    /// # Panics
    /// Where it goes on for over a minute.
    pub fn up_and_down(&self) {
        self.start_command().output().expect("pg_ctl");
        self.until_down();
    }

    fn start_command(&self) -> Command {
        // By env and not by this process: root's programs may not share what is another user's.
        let mut start = command("env");
        start.args(self.clock()).arg(self.build.bin().join("pg_ctl"));
        start.args(["start", "--wait", "--silent", "--timeout=60", "-D"]).arg(&self.dir);
        // A file, not a pipe: the server keeps it open, and reading a pipe to its end would never end.
        start.arg("-l").arg(self.dir.join("log"));
        start
    }

    /// With these variables a program, and what it starts, is shown the server's clock.
    fn clock(&self) -> Vec<String> {
        if !self.sets_clock {
            return Vec::new();
        }
        if !self.clock_file().exists() {
            self.set_clock(0.0);
        }
        // The clock is faked in the server only, and read anew at each call; CLOCK_MONOTONIC and
        // CLOCK_BOOTTIME stay true, as where an administrator sets the clock.
        vec![
            format!("LD_PRELOAD={}", variable("IDGEN_FAKETIME")),
            format!("FAKETIME_TIMESTAMP_FILE={}", self.clock_file().display()),
            "FAKETIME_NO_CACHE=1".into(),
            "FAKETIME_DONT_FAKE_MONOTONIC=1".into(),
        ]
    }

    /// Waits until the server has ended by itself.
    ///
    /// # Panics
    /// Where it goes on for over a minute.
    pub fn until_down(&self) {
        for _ in 0..600 {
            let mut status = self.pg("pg_ctl");
            status.arg("status").arg("-D").arg(&self.dir);
            if !status.output().expect("pg_ctl").status.success() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("the server goes on\n{}", self.log());
    }

    fn clock_file(&self) -> PathBuf {
        self.sockets.join("clock")
    }

    /// Sets the server's clock, running or not, to this many seconds after the real one.
    pub fn set_clock(&self, seconds: f64) {
        let new = self.sockets.join("clock.new");
        let mut tee = command("tee");
        tee.arg(&new).stdin(Stdio::piped()).stdout(Stdio::null());
        feed(tee, &format!("{seconds:+.3}\n"));
        let mut rename = command("mv");
        rename.arg(&new).arg(self.clock_file());
        run(rename);
    }

    /// Stops the server: "smart", "fast" or "immediate".
    pub fn stop(&self, mode: &str) {
        assert!(self.down(mode), "the server does not stop\n{}", self.log());
    }

    fn down(&self, mode: &str) -> bool {
        let mut stop = self.pg("pg_ctl");
        stop.args(["stop", "--wait", "--silent", "-m", mode, "-D"]).arg(&self.dir);
        stop.output().is_ok_and(|output| output.status.success())
    }

    /// Kills the postmaster, as the kernel would when memory runs out.
    pub fn kill(&self) {
        let mut head = command("head");
        head.arg("-n1").arg(self.dir.join("postmaster.pid"));
        let pid = String::from_utf8_lossy(&run(head).stdout).trim().parse().expect("a pid");
        self.signal("KILL", pid);
    }

    /// Sends a signal to a process of the server.
    pub fn signal(&self, name: &str, pid: i32) {
        run(kill(name, pid));
    }

    /// The same for one that may have ended by itself.
    pub fn signal_if_there(&self, name: &str, pid: i32) {
        let _ = kill(name, pid).output();
    }

    /// What the server has logged.
    pub fn log(&self) -> String {
        let mut cat = command("cat");
        cat.arg(self.dir.join("log"));
        String::from_utf8_lossy(&run(cat).stdout).into_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.down("immediate");
        let mut remove = command("rm");
        remove.arg("-rf").arg(&self.dir).arg(&self.sockets);
        let _ = remove.output();
    }
}

/// An empty data directory, made once for all tests.
fn template() -> &'static Path {
    static TEMPLATE: OnceLock<PathBuf> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let dir = house().join(format!("template-{}", std::process::id()));
        initdb(Build::Faults, &dir, &[]);
        dir
    })
}

/// The programs of a copy of the release's PostgreSQL without idgen, made once for all tests.
fn bare_bin() -> &'static Path {
    static BIN: OnceLock<PathBuf> = OnceLock::new();
    BIN.get_or_init(|| {
        let [bin, share] = ["--bindir", "--sharedir"].map(|option| PathBuf::from(said_by_pg_config(option)));
        // PostgreSQL finds its files relative to its program, so both go along.
        let tree = bin.ancestors().find(|folder| share.starts_with(folder)).expect("a folder with both");
        let copy = house().join(format!("bare-{}", std::process::id()));
        let mut cp = command("cp");
        cp.arg("-R").arg(tree).arg(&copy);
        run(cp);
        let mut find = command("find");
        find.arg(&copy).args(["-name", "idgen*", "-delete"]);
        run(find);
        copy.join(bin.strip_prefix(tree).expect("a folder in the tree"))
    })
}

fn initdb(build: Build, dir: &Path, options: &[&str]) {
    let mut initdb = command(build.bin().join("initdb"));
    initdb.args(["--no-sync", "--auth=trust", "--username=postgres", "--no-instructions", "-D"]);
    initdb.arg(dir).args(options);
    run(initdb);
}

/// Whether a command succeeds in ten seconds: processes of a server that was killed may take a moment to
/// notice, and faketime does not start under the number of a process that has left its own behind.
fn succeeds(command: &mut Command) -> bool {
    (0..100).any(|_| {
        let done = command.output().expect("a program of PostgreSQL").status.success();
        if !done {
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        done
    })
}
