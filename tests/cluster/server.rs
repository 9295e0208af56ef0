//! Real throw-away servers. No crate that runs PostgreSQL for tests fits: these tests kill the
//! server, restart it on the same data, and run it under another user and with a preloaded library.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use postgres::{Client, NoTls};

/// A variable that `scripts/test` sets.
fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run these tests by `make test`"))
}

/// A number that may be given to tests drawn at random.
pub fn number_variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Where the tests keep their files.
pub fn house() -> PathBuf {
    PathBuf::from(variable("IDGEN_HOUSE")).join("cluster")
}

/// A command that runs as the servers' user.
pub fn command(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new("runuser");
    let user = variable("IDGEN_SERVER_USER");
    if user == std::env::var("USER").unwrap_or_default() || !is_root() {
        command = Command::new(program.as_ref());
    } else {
        command.args(["-u", &user, "--"]).arg(program.as_ref());
    }
    command.current_dir("/").env_remove("RUST_BACKTRACE");
    command
}

/// A signal to a process of the servers' user.
pub fn kill(signal: &str, pid: i32) -> Command {
    let mut kill = command("kill");
    kill.arg(format!("-{signal}")).arg(pid.to_string());
    kill
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().expect("id");
    id.stdout.trim_ascii() == b"0"
}

/// The programs of the servers, with what users get of the extension.
pub fn release_bin() -> String {
    variable("IDGEN_PG_BIN")
}

/// A script of docs/examples, or a client program, with those of the servers first on its PATH.
pub fn client_program(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new(program.as_ref());
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", release_bin()));
    for name in ["PGHOSTADDR", "PGOPTIONS", "PGSERVICE", "PGSERVICEFILE"] {
        command.env_remove(name);
    }
    command
}

/// A file of docs/examples.
pub fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples").join(name)
}

/// Where a program is that scripts/setup does not install.
pub fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian keeps services in a folder that is not on everybody's PATH.
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into()])
        .map(|dir| dir.join(program))
        .find(|path| path.is_file())
}

/// A program of the servers' user that runs until this is dropped.
pub struct Service {
    child: Child,
    pid: i32,
}

impl Service {
    /// Starts a program with its output in the file `log`.
    pub fn start(program: &Path, args: &[&str], variables: &[(&str, &str)], log: &Path) -> Service {
        let mut start = command("env");
        start.args(variables.iter().map(|(name, value)| format!("{name}={value}")));
        // Its own number: runuser, told to end, kills its child two seconds later. A pool needs many files.
        start.args(["sh", "-c", r#"ulimit -n $(ulimit -Hn); echo $$; exec "$@" > "$0" 2>&1"#]);
        start.arg(log).arg(program).args(args).stdout(Stdio::piped());
        let mut child = start.spawn().unwrap_or_else(|error| panic!("{start:?}: {error}"));
        let mut pid = String::new();
        BufReader::new(child.stdout.take().expect("stdout")).read_line(&mut pid).expect("its number");
        Service { child, pid: pid.trim().parse().expect("its number") }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = kill("TERM", self.pid).output();
        let _ = self.child.wait();
    }
}

/// Says past the capture of a test's output that it did not run, and why.
pub fn skipped(why: &str) {
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let _ = writeln!(std::io::stderr(), "{name}: skipped: {why}");
}

/// Runs a command with a text as its input.
fn feed(mut command: Command, text: &str) {
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    child.stdin.take().expect("stdin").write_all(text.as_bytes()).expect("write");
    assert!(child.wait().expect("wait").success(), "{command:?}");
}

/// Runs a command to its end and gives its output.
///
/// # Panics
/// Where it fails, with what it said.
pub fn run(mut command: Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Builds library.c, and tells where the result is; nothing where the server's headers are not installed.
pub fn test_library() -> Option<String> {
    static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| {
        let mut headers = command(Build::Release.bin().join("pg_config"));
        headers.arg("--includedir-server");
        let headers = PathBuf::from(String::from_utf8_lossy(&run(headers).stdout).trim());
        headers.join("postgres.h").exists().then(|| {
            let library = house().join(format!("library-{}.so", std::process::id()));
            let mut cc = command("cc");
            cc.args(["-shared", "-fPIC", "-x", "c", "-", "-I"]).arg(headers).arg("-o").arg(&library);
            cc.stdin(Stdio::piped());
            feed(cc, include_str!("library.c"));
            library
        })
    });
    library.as_ref().map(|library| library.display().to_string())
}

/// Whether a command succeeds in ten seconds: processes of a server that was killed may take a moment to
/// notice.
fn succeeds(command: &mut Command) -> bool {
    (0..100).any(|_| {
        let done = command.output().expect("a program of PostgreSQL").status.success();
        if !done {
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        done
    })
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

fn initdb(build: Build, dir: &Path, options: &[&str]) {
    let mut initdb = command(build.bin().join("initdb"));
    initdb.args(["--no-sync", "--auth=trust", "--username=postgres", "--no-instructions", "-D"]);
    initdb.arg(dir).args(options);
    run(initdb);
}

/// Which build of the extension a server runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// What users get.
    Release,
    /// With the points of `src/fault.rs`.
    Faults,
    /// What users of an older PostgreSQL get. It is today's, but for `scripts/test-upgrades`.
    Older,
}

impl Build {
    /// The folder of the server's programs.
    fn bin(self) -> PathBuf {
        PathBuf::from(variable(match self {
            Build::Release => "IDGEN_PG_BIN",
            Build::Faults => "IDGEN_FAULTS_BIN",
            Build::Older => "IDGEN_OLDER_BIN",
        }))
    }
}

/// A server with a data directory and a socket of its own; stopped and deleted at the end.
pub struct Server {
    build: Build,
    dir: PathBuf,
    sockets: PathBuf,
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
        let script = include_str!("../../portable/idgen.sql");
        server.connect().batch_execute(script).expect("the portable edition");
        server
    }

    /// Starts a server that does not preload idgen.
    pub fn start_plain(settings: &[&str]) -> Server {
        Server::start_empty(Build::Release, settings)
    }

    /// Starts a server without the extension, nor its library where the settings do not preload it.
    pub fn start_empty(build: Build, settings: &[&str]) -> Server {
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
        server.up();
        server
    }

    /// A server without data, and a folder for its sockets.
    fn new(build: Build) -> Server {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        // The path of a socket may have 107 bytes.
        let server =
            Server { build, dir: house().join(&name), sockets: PathBuf::from(format!("/tmp/idgen-{name}")) };
        let mut mkdir = command("mkdir");
        mkdir.arg("-m").arg("700").arg(&server.sockets);
        run(mkdir);
        server
    }

    fn own_sockets(&self) {
        self.configure(&[&format!("unix_socket_directories = '{}'", self.sockets.display())]);
    }

    /// A copy of the running server, not started yet.
    pub fn base_backup(&self) -> Server {
        self.copy("backup", &[])
    }

    /// A standby of this server, which knows it by `name`; started.
    pub fn standby(&self, name: &str) -> Server {
        let standby = self.copy(name, &["--write-recovery-conf"]);
        standby.up();
        standby
    }

    fn copy(&self, name: &str, options: &[&str]) -> Server {
        let copy = Server::new(self.build);
        let mut backup = self.pg("pg_basebackup");
        backup
            .args(["--checkpoint=fast", "--no-sync", "-D"])
            .arg(&copy.dir)
            .arg(format!("--dbname={} application_name={name}", self.target("postgres")))
            .args(options);
        run(backup);
        copy.own_sockets();
        copy
    }

    /// A server of today's PostgreSQL that pg_upgrade has given the data of this older one, which is stopped;
    /// not started yet.
    pub fn upgraded(&self) -> Server {
        let new = Server::new(Build::Release);
        // From 18 on the default, and both must have them.
        initdb(new.build, &new.dir, &["--data-checksums"]);
        new.configure(&["listen_addresses = ''", "shared_preload_libraries = 'idgen'"]);
        new.own_sockets();
        let mut upgrade = new.pg("pg_upgrade");
        upgrade.args(["--no-sync", "--username=postgres", "--socketdir"]).arg(&new.sockets);
        upgrade.arg("-b").arg(self.build.bin()).arg("-d").arg(&self.dir);
        upgrade.arg("-B").arg(new.build.bin()).arg("-D").arg(&new.dir);
        upgrade.current_dir(&new.sockets); // where it leaves its scripts
        if !upgrade.output().expect("pg_upgrade").status.success() {
            let mut logs = command("find");
            logs.arg(new.dir.join("pg_upgrade_output.d"))
                .args(["-name", "*.log", "-exec", "tail", "-v", "{}", "+"]);
            panic!("pg_upgrade fails\n{}", String::from_utf8_lossy(&run(logs).stdout));
        }
        new
    }

    /// Makes a former primary, stopped or killed, a standby of the one that was promoted.
    pub fn rewind(&self, primary: &Server, name: &str) {
        // Until its first checkpoint a promoted server looks to pg_rewind as if it had not been promoted.
        primary.connect().batch_execute("CHECKPOINT").expect("CHECKPOINT");
        let mut rewind = self.pg("pg_rewind");
        rewind.args(["--write-recovery-conf", "--no-sync", "--target-pgdata"]).arg(&self.dir);
        rewind.arg(format!("--source-server={} application_name={name}", primary.target("postgres")));
        assert!(succeeds(&mut rewind), "{rewind:?}");
        self.own_sockets();
    }

    /// Makes a former primary that was stopped in order a standby.
    pub fn follow(&self, primary: &Server, name: &str) {
        let conninfo = format!("{} application_name={name}", primary.target("postgres"));
        self.configure(&[&format!("primary_conninfo = '{conninfo}'")]);
        let mut touch = command("touch");
        touch.arg(self.dir.join("standby.signal"));
        run(touch);
    }

    /// The file of a library that comes with PostgreSQL.
    pub fn library(&self, name: &str) -> PathBuf {
        let mut folder = self.pg("pg_config");
        folder.arg("--pkglibdir");
        let folder = run(folder).stdout;
        Path::new(String::from_utf8_lossy(&folder).trim()).join(format!("{name}.so"))
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
        let mut start = self.pg("pg_ctl");
        start.args(["start", "--wait", "--silent", "--timeout=60", "-D"]).arg(&self.dir);
        // A file, not a pipe: the server keeps it open, and reading a pipe to its end would never end.
        start.arg("-l").arg(self.dir.join("log"));
        // The clock is faked in the server only, and read anew at each call; CLOCK_MONOTONIC and
        // CLOCK_BOOTTIME stay true, as where an administrator sets the clock.
        start
            .env("LD_PRELOAD", variable("IDGEN_FAKETIME"))
            .env("FAKETIME_TIMESTAMP_FILE", self.clock_file())
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        if !self.clock_file().exists() {
            self.set_clock(0.0);
        }
        start
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

    /// Makes a standby a primary.
    pub fn promote(&self) {
        let mut promote = self.pg("pg_ctl");
        promote.args(["promote", "--wait", "--silent", "-D"]).arg(&self.dir);
        run(promote);
    }

    /// Reads the configuration again, and waits until a new session sees it.
    pub fn reload(&self, setting: &str, value: &str) {
        let mut client = self.connect();
        client.batch_execute("SELECT pg_reload_conf()").expect("reload");
        for _ in 0..500 {
            let now: String = self.connect().query_one(&format!("SHOW {setting}"), &[]).expect("SHOW").get(0);
            if now == value {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("{setting} does not become {value}");
    }

    /// Makes a standby of this name the synchronous one, and waits until commits wait for it and it has caught
    /// up: from then on it may be promoted.
    pub fn make_synchronous(&self, standby: &str) {
        self.configure(&[&format!("synchronous_standby_names = '{standby}'")]);
        self.reload("synchronous_standby_names", standby);
        // Commits begin to wait when the checkpointer has read the setting, which it does before this.
        let mut client = self.connect();
        client.batch_execute("CHECKPOINT").expect("CHECKPOINT");
        let written: String =
            client.query_one("SELECT pg_current_wal_insert_lsn()::text", &[]).expect("position").get(0);
        self.wait_until(&format!(
            "SELECT count(*) = 1 FROM pg_stat_replication
             WHERE sync_state = 'sync' AND application_name = '{standby}' AND flush_lsn >= '{written}'"
        ));
    }

    /// Commits wait for no standby any more.
    pub fn make_asynchronous(&self) {
        self.configure(&["synchronous_standby_names = ''"]);
        self.reload("synchronous_standby_names", "");
    }

    /// Waits until a query answers true.
    ///
    /// # Panics
    /// Where that takes over a minute.
    pub fn wait_until(&self, query: &str) {
        let mut client = self.connect();
        for _ in 0..3000 {
            if client.query_one(query, &[]).expect(query).get(0) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        panic!("never true: {query}\n{}", self.log());
    }

    /// How clients reach a database of the server.
    pub fn target(&self, database: &str) -> String {
        format!("host={} user=postgres dbname={database}", self.host())
    }

    /// psql on its way to run a file of docs/examples in the database `postgres`.
    pub fn psql(&self, name: &str, variables: &[(&str, &str)]) -> Command {
        self.psql_in("postgres", name, variables)
    }

    /// The same in another database.
    pub fn psql_in(&self, database: &str, name: &str, variables: &[(&str, &str)]) -> Command {
        let mut psql = client_program("psql");
        psql.args(["-X", "-q", "-d", &self.target(database), "-f"]).arg(example(name));
        for (name, value) in variables {
            psql.args(["-v", &format!("{name}={value}")]);
        }
        psql
    }

    /// The folder of its sockets, which clients take for its host.
    pub fn host(&self) -> String {
        self.sockets.display().to_string()
    }

    /// A connection to a database.
    pub fn connect_to(&self, database: &str) -> Client {
        Client::connect(&self.target(database), NoTls)
            .unwrap_or_else(|error| panic!("{error}\n{}", self.log()))
    }

    /// A connection to the database `postgres`.
    pub fn connect(&self) -> Client {
        self.connect_to("postgres")
    }

    /// A connection as soon as the server takes one again after a crash.
    pub fn reconnect(&self) -> Client {
        for _ in 0..600 {
            if let Ok(mut client) = Client::connect(&self.target("postgres"), NoTls)
                && client.batch_execute("SELECT 1").is_ok()
            {
                return client;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("the server does not come back\n{}", self.log());
    }

    /// Waits until a backend is seen to wait for an event of idgen's, and tells its process. Before
    /// PostgreSQL 17 the events of all extensions have one name.
    pub fn until_waiting(&self, event: &str) -> i32 {
        let mut client = self.connect();
        let waiting = "SELECT pid FROM pg_stat_activity
                       WHERE wait_event_type = 'Extension'
                         AND wait_event = CASE WHEN current_setting('server_version_num')::integer < 170000
                                               THEN 'Extension' ELSE $1 END";
        for _ in 0..1000 {
            if let Some(row) = client.query(waiting, &[&event]).expect("pg_stat_activity").first() {
                return row.get(0);
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("nobody waits for {event}");
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
