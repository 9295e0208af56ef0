//! The programs that these tests run, where they find them, and where they keep their files.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

/// A variable that `scripts/test` sets.
pub fn variable(name: &str) -> String {
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

/// The top folder of the project.
pub fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder above")
}

/// A file of docs/examples.
pub fn example(name: &str) -> PathBuf {
    top().join("docs/examples").join(name)
}

/// The programs of the servers, with what users get of the extension.
pub fn release_bin() -> String {
    variable("IDGEN_PG_BIN")
}

/// The major version of the servers.
pub fn major_version() -> u32 {
    let version = said_by_pg_config("--version");
    let number = version.trim_start_matches(|c: char| !c.is_ascii_digit());
    number.split(|c: char| !c.is_ascii_digit()).next().expect("a number").parse().expect("a number")
}

/// The file of a library that comes with the servers' PostgreSQL.
pub fn library(name: &str) -> PathBuf {
    Path::new(&said_by_pg_config("--pkglibdir")).join(format!("{name}.so"))
}

/// What pg_config of the servers answers.
pub fn said_by_pg_config(option: &str) -> String {
    let mut pg_config = command(Path::new(&release_bin()).join("pg_config"));
    pg_config.arg(option);
    String::from_utf8_lossy(&run(pg_config).stdout).trim().to_owned()
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

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().expect("id");
    id.stdout.trim_ascii() == b"0"
}

/// A signal to a process of the servers' user.
pub fn kill(signal: &str, pid: i32) -> Command {
    let mut kill = command("kill");
    kill.arg(format!("-{signal}")).arg(pid.to_string());
    kill
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

/// Where a program is that scripts/setup does not install.
pub fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian keeps services in a folder that is not on everybody's PATH.
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into()])
        .map(|dir| dir.join(program))
        .find(|path| path.is_file())
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

/// Runs a command with a text as its input.
pub fn feed(mut command: Command, text: &str) {
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    child.stdin.take().expect("stdin").write_all(text.as_bytes()).expect("write");
    assert!(child.wait().expect("wait").success(), "{command:?}");
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

/// Builds library.c, and tells where the result is; nothing where the server's headers are not installed.
pub fn test_library() -> Option<String> {
    static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| {
        let headers = PathBuf::from(said_by_pg_config("--includedir-server"));
        headers.join("postgres.h").exists().then(|| {
            let library = house().join(format!("library-{}.so", std::process::id()));
            let mut cc = command(std::env::var("TARGET_CC").as_deref().unwrap_or("cc"));
            cc.args(["-shared", "-fPIC", "-x", "c", "-", "-I"]).arg(headers).arg("-o").arg(&library);
            cc.stdin(Stdio::piped());
            feed(cc, include_str!("library.c"));
            library
        })
    });
    library.as_ref().map(|library| library.display().to_string())
}

/// Says past the capture of a test's output that it did not run, and why.
pub fn skipped(why: &str) {
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let _ = writeln!(std::io::stderr(), "{name}: skipped: {why}");
}
