//! The programs that these tests run, where to find them, and where the tests keep their files.

use std::borrow::BorrowMut;
use std::fs::{OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use nix::sys::signal::{self, Signal};
use nix::unistd::{Pid, User, geteuid};

use crate::moment::is_reached;

/// The value of a variable that `scripts/test` sets.
pub fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run these tests by `make test`"))
}

/// The number in a variable that the user may set for random tests.
pub fn number_variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Whether all servers preload idgen. With `IDGEN_PRELOAD=no`, only servers that need it do.
pub fn preloads() -> bool {
    std::env::var("IDGEN_PRELOAD").as_deref() != Ok("no")
}

/// Where the tests keep their files.
pub fn servers_folder() -> PathBuf {
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

/// The folder of the servers' programs, with the release of the extension.
pub fn release_bin() -> String {
    variable("IDGEN_PG_BIN")
}

/// The major version of the servers.
pub fn major_version() -> u32 {
    let version = said_by_pg_config("--version");
    let number = version.trim_start_matches(|c: char| !c.is_ascii_digit());
    number.split(|c: char| !c.is_ascii_digit()).next().expect("a number").parse().expect("a number")
}

/// The name, as far as a database or a role may have it: from PostgreSQL 19 on, without newlines.
pub fn permitted(name: &str) -> String {
    if major_version() < 19 { name.to_owned() } else { name.replace('\n', "\t") }
}

/// The file of a library that comes with the servers' PostgreSQL.
pub fn library(name: &str) -> PathBuf {
    Path::new(&said_by_pg_config("--pkglibdir")).join(format!("{name}.so"))
}

/// The answer of the servers' pg_config.
pub fn said_by_pg_config(option: &str) -> String {
    said_by(Path::new(&release_bin()), option)
}

/// The answer of the pg_config among these programs.
pub fn said_by(bin: &Path, option: &str) -> String {
    output_of_run(command(bin.join("pg_config")).arg(option)).trim().to_owned()
}

/// A command that runs as the servers' user.
pub fn command(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new(program.as_ref());
    if let Some(user) = other_user() {
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    command.current_dir("/").env_remove("RUST_BACKTRACE");
    command
}

/// The servers' user, if this process runs as root and the servers must not.
fn other_user() -> Option<&'static User> {
    static USER: OnceLock<Option<User>> = OnceLock::new();
    let user = USER.get_or_init(|| {
        let user =
            User::from_name(&variable("IDGEN_SERVER_USER")).expect("users").expect("the servers' user");
        (geteuid().is_root() && !user.uid.is_root()).then_some(user)
    });
    user.as_ref()
}

/// Gives a file or a folder to the servers' user.
pub fn give_to_servers(path: &Path) {
    if let Some(user) = other_user() {
        chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).expect("chown");
    }
}

/// Sends a signal, such as "KILL", to a process.
///
/// # Errors
/// `ESRCH` if the process has ended.
pub fn kill(signal: &str, pid: i32) -> nix::Result<()> {
    signal::kill(Pid::from_raw(pid), format!("SIG{signal}").parse::<Signal>()?)
}

/// A client program, or a script of docs/examples, with the servers' programs first on its PATH.
pub fn client_program(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new(program.as_ref());
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", release_bin()));
    for name in ["PGHOSTADDR", "PGOPTIONS", "PGSERVICE", "PGSERVICEFILE"] {
        command.env_remove(name);
    }
    command
}

/// idgenctl with these arguments.
pub fn idgenctl(args: &[&str]) -> Command {
    let mut command = client_program(Path::new(&release_bin()).join("idgenctl"));
    command.env_remove("IDGENCTL_FLEET").args(args);
    command
}

/// The path of a program that scripts/setup does not install.
pub fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian keeps services in this folder, which the PATH of ordinary users lacks.
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into()])
        .map(|dir| dir.join(program))
        .find(|path| path.is_file())
}

/// Runs a command, which must succeed, and returns its output.
#[track_caller]
pub fn run(mut command: impl BorrowMut<Command>) -> Output {
    let command = command.borrow_mut();
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, said(&output));
    output
}

/// Runs a command without a terminal, which must end with this code and say all of this, and returns both its outputs.
#[track_caller]
pub fn ends(mut command: impl BorrowMut<Command>, code: i32, texts: &[&str]) -> String {
    let output = command.borrow_mut().stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{}", said(&output));
    assert_says(&said(&output), texts);
    said(&output)
}

/// Runs a command, which must fail and say all of this, and returns both its outputs.
#[track_caller]
pub fn refused(mut command: impl BorrowMut<Command>, texts: &[&str]) -> String {
    let output = command.borrow_mut().output().unwrap();
    assert!(!output.status.success(), "it did not fail: {}", said(&output));
    assert_says(&said(&output), texts);
    said(&output)
}

/// Checks that an output contains all of this.
#[track_caller]
pub fn assert_says(said: &str, texts: &[&str]) {
    texts.iter().for_each(|text| assert!(said.contains(text), "{text}:\n{said}"));
}

/// The standard output of a command, which must succeed.
pub fn output_of_run(command: impl BorrowMut<Command>) -> String {
    String::from_utf8_lossy(&run(command).stdout).into_owned()
}

/// Both outputs of a program.
pub fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat()
}

/// Writes a program, with the right to run it.
pub fn write_program(file: &Path, text: &str) {
    std::fs::write(file, text).expect("a program");
    std::fs::set_permissions(file, Permissions::from_mode(0o755)).expect("chmod");
}

/// Runs a command with this input.
pub fn feed(mut command: Command, text: &str) {
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    child.stdin.take().expect("stdin").write_all(text.as_bytes()).expect("write");
    assert!(child.wait().expect("wait").success(), "{command:?}");
}

/// A program that runs as the servers' user until this is dropped.
pub struct Service {
    child: Child,
}

impl Service {
    /// Starts a program, with its output in the file `log`.
    pub fn start(program: &Path, args: &[&str], variables: &[(&str, &str)], log: &Path) -> Service {
        Service::start_by(command("env"), program, args, variables, log)
    }

    /// Starts a program that sees this folder as /run/postgresql. This takes root.
    pub fn start_with_sockets(
        sockets: &Path,
        program: &Path,
        args: &[&str],
        variables: &[(&str, &str)],
        log: &Path,
    ) -> Service {
        let mut start = Command::new("unshare");
        let user = other_user().expect("root, and another user for servers");
        let [uid, gid] = [user.uid.as_raw(), user.gid.as_raw()];
        start.args(["--mount", "sh", "-c", r#"mount --bind "$0" /run/postgresql && cd / && exec "$@""#]);
        start.arg(sockets).args(["setpriv", "--pdeathsig=TERM", "--init-groups"]);
        start.args([format!("--reuid={uid}"), format!("--regid={gid}"), "env".into()]);
        Service::start_by(start, program, args, variables, log)
    }

    fn start_by(
        mut start: Command,
        program: &Path,
        args: &[&str],
        variables: &[(&str, &str)],
        log: &Path,
    ) -> Service {
        start.args(variables.iter().map(|(name, value)| format!("{name}={value}")));
        // A pooler needs many files.
        start.args(["sh", "-c", r#"ulimit -n $(ulimit -Hn); exec "$@" > "$0" 2>&1"#]);
        start.arg(log).arg(program).args(args);
        let child = start.spawn().unwrap_or_else(|error| panic!("{start:?}: {error}"));
        Service { child }
    }

    /// Sends it a signal.
    pub fn signal(&self, name: &str) {
        kill(name, self.child.id() as i32).expect("a program that runs");
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        for signal in ["TERM", "CONT"] {
            let _ = kill(signal, self.child.id() as i32);
        }
        if !is_reached(120, || self.child.try_wait().is_ok_and(|ended| ended.is_some())) {
            println!("pid {} does not end: killed", self.child.id());
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The library of library.c; `None` if the server's headers are not installed.
pub fn test_library() -> Option<String> {
    static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| {
        let headers = PathBuf::from(said_by_pg_config("--includedir-server"));
        headers
            .join("postgres.h")
            .exists()
            .then(|| compiled("library", include_str!("library.c"), &["-I", &headers.display().to_string()]))
    });
    library.as_ref().map(|library| library.display().to_string())
}

/// The library of clock.c.
pub fn clock_library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| compiled("clock", include_str!("clock.c"), &["-ldl"]))
}

/// The library of disk.c.
pub fn disk_library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| compiled("disk", include_str!("disk.c"), &["-ldl"]))
}

fn c_compiler() -> String {
    std::env::var("TARGET_CC").unwrap_or_else(|_| "cc".into())
}

fn compiled(name: &str, source: &str, options: &[&str]) -> PathBuf {
    let library = servers_folder().join(format!("{name}-{}.so", std::process::id()));
    let mut cc = command(c_compiler());
    cc.args(["-O2", "-shared", "-fPIC", "-x", "c", "-"]).args(options).arg("-o").arg(&library);
    cc.stdin(Stdio::piped());
    feed(cc, source);
    library
}

/// Skips a test for lack of a packaged program. In CI, where the test would never run, it fails instead.
pub fn lacks(program: &str) {
    assert!(std::env::var_os("CI").is_none(), "{program} is not installed");
    skipped(&format!("{program} is not installed"));
}

/// Reports that a test is skipped, and why, on the terminal, where captured output does not appear, and to
/// scripts/test, which repeats it in its last line.
pub fn skipped(why: &str) {
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let _ = std::io::stderr().write_all(format!("{name}: skipped: {why}\n").as_bytes());
    let list = servers_folder().with_file_name("skipped");
    let mut list = OpenOptions::new().append(true).create(true).open(list).unwrap();
    list.write_all(format!("{name} ({why})\n").as_bytes()).unwrap();
}
