//! Real throw-away servers. No crate that runs PostgreSQL for tests fits: these tests kill the
//! server, restart it on the same data, and run it under another user and with a preloaded library.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use postgres::{Client, NoTls};

/// A variable that `scripts/test` sets.
fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run these tests by `make test`"))
}

fn house() -> PathBuf {
    PathBuf::from(variable("IDGEN_HOUSE")).join("cluster")
}

/// A command that runs as the servers' user.
fn command(program: impl AsRef<Path>) -> Command {
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

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().expect("id");
    id.stdout.trim_ascii() == b"0"
}

fn pg(program: &str) -> Command {
    command(Path::new(&variable("IDGEN_PG_BIN")).join(program))
}

/// Runs a command to its end and gives its output.
///
/// # Panics
/// Where it fails, with what it said.
fn run(mut command: Command) -> Output {
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

/// An empty data directory, made once for all tests.
fn template() -> &'static Path {
    static TEMPLATE: OnceLock<PathBuf> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let dir = house().join(format!("template-{}", std::process::id()));
        let mut initdb = pg("initdb");
        initdb
            .args(["--no-sync", "--auth=trust", "--username=postgres", "--no-instructions", "-D"])
            .arg(&dir);
        run(initdb);
        dir
    })
}

/// A server with a data directory and a socket of its own; stopped and deleted at the end.
pub struct Server {
    dir: PathBuf,
    sockets: PathBuf,
}

impl Server {
    /// Starts a server with idgen preloaded and these lines in its configuration, and creates the
    /// extension.
    pub fn start(settings: &[&str]) -> Server {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        // The path of a socket may have 107 bytes.
        let server =
            Server { dir: house().join(&name), sockets: PathBuf::from(format!("/tmp/idgen-{name}")) };
        let mut copy = command("cp");
        copy.arg("-a").arg(template()).arg(&server.dir);
        run(copy);
        let mut mkdir = command("mkdir");
        mkdir.arg("-m").arg("700").arg(&server.sockets);
        run(mkdir);
        server.configure(&[
            "shared_preload_libraries = 'idgen'",
            "listen_addresses = ''",
            &format!("unix_socket_directories = '{}'", server.sockets.display()),
            "shared_buffers = 16MB",
            "max_connections = 100",
            "log_line_prefix = '%m [%p] '",
        ]);
        server.configure(settings);
        server.up();
        server.connect().batch_execute("CREATE EXTENSION idgen").expect("CREATE EXTENSION");
        server
    }

    /// Adds lines to the configuration; later ones win.
    pub fn configure(&self, settings: &[&str]) {
        let mut tee = command("tee");
        tee.arg("-a").arg(self.dir.join("postgresql.conf"));
        tee.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null());
        let mut child = tee.spawn().expect("tee");
        use std::io::Write;
        let text = settings.iter().map(|line| format!("{line}\n")).collect::<String>();
        child.stdin.take().expect("stdin").write_all(text.as_bytes()).expect("write settings");
        assert!(child.wait().expect("tee").success());
    }

    fn up(&self) {
        let mut start = pg("pg_ctl");
        start.args(["start", "--wait", "--silent", "--timeout=60", "-D"]).arg(&self.dir);
        // A file, not a pipe: the server keeps it open, and reading a pipe to its end would never end.
        start.arg("-l").arg(self.dir.join("log"));
        run(start);
    }

    fn down(&self, mode: &str) -> bool {
        let mut stop = pg("pg_ctl");
        stop.args(["stop", "--wait", "--silent", "-m", mode, "-D"]).arg(&self.dir);
        stop.output().is_ok_and(|output| output.status.success())
    }

    /// A connection to a database.
    pub fn connect_to(&self, database: &str) -> Client {
        let target = format!("host={} user=postgres dbname={database}", self.sockets.display());
        Client::connect(&target, NoTls).unwrap_or_else(|error| panic!("{error}\n{}", self.log()))
    }

    /// A connection to the database `postgres`.
    pub fn connect(&self) -> Client {
        self.connect_to("postgres")
    }

    /// A connection as soon as the server takes one again after a crash.
    pub fn reconnect(&self) -> Client {
        let target = format!("host={} user=postgres dbname=postgres", self.sockets.display());
        for _ in 0..600 {
            if let Ok(mut client) = Client::connect(&target, NoTls)
                && client.batch_execute("SELECT 1").is_ok()
            {
                return client;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("the server does not come back\n{}", self.log());
    }

    /// Sends a signal to a process of the server.
    pub fn signal(&self, name: &str, pid: i32) {
        let mut kill = command("kill");
        kill.arg(format!("-{name}")).arg(pid.to_string());
        run(kill);
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
