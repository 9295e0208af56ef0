//! Programs that install name what is missing, and then change nothing.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{files, read, top};

/// Runs a command. Returns whether it succeeds, and its output.
fn run(command: &mut Command) -> (bool, String) {
    let output = command.output().expect("a program");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn a_postgresql_that_is_not_there_is_named() {
    for target in ["setup", "build", "install", "uninstall", "enable DB=mydb", "deb"] {
        let mut make = Command::new("make");
        make.arg("--no-print-directory").args(target.split(' '));
        make.arg("PG_CONFIG=/nowhere/bin/pg_config").current_dir(top());
        let (done, said) = run(&mut make);
        assert!(!done && said.contains("error: /nowhere/bin/pg_config does not run: install"), "{said}");
    }
}

/// An unpacked tarball for PostgreSQL 0, and a server of that version.
struct Machine(PathBuf);

impl Machine {
    fn new(name: &str) -> Machine {
        let machine = Machine(std::env::temp_dir().join(format!("idgen-{name}-{}", std::process::id())));
        let arch = run(Command::new("uname").arg("-m")).1;
        let install =
            read("packaging/tarball/install").replace("PGVERSION", "0").replace("PGARCH", arch.trim());
        let pg_config = "#!/bin/sh\ncase $1 in
            --version) echo PostgreSQL 0.1 ;;
            --*dir) echo ${0%/bin/*}/server/${1#--} ;;
            esac";
        for (path, text) in [
            ("tarball/install", install.as_str()),
            ("tarball/bin/idgenctl", "program"),
            ("tarball/lib/idgen.so", "library"),
            ("tarball/share/extension/idgen.control", "control"),
            ("bin/pg_config", pg_config),
            ("bin/sudo", "#!/bin/sh\necho sudo: not for you\nexit 1"),
            ("server/pkglibdir/plpgsql.so", ""),
            ("server/sharedir/extension/plpgsql.control", ""),
        ] {
            let path = machine.0.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("mkdir");
            fs::write(&path, text).expect("write");
            fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("chmod");
        }
        machine
    }

    fn installer(&self, argument: &[&str]) -> Command {
        let mut install = Command::new(self.0.join("tarball/install"));
        install.args(argument).current_dir("/");
        for name in ["PG_CONFIG", "BINDIR", "PKGLIBDIR", "SHAREDIR", "DESTDIR"] {
            install.env_remove(name);
        }
        let path = std::env::var("PATH").unwrap_or_default();
        install.env("PATH", format!("{}:{path}", self.0.join("bin").display()));
        install
    }

    fn pg_config(&self) -> String {
        self.0.join("bin/pg_config").display().to_string()
    }

    /// The files of the server, without the initial ones.
    fn installed(&self) -> Vec<String> {
        let found = files(&self.0.join("server").display().to_string(), "");
        found.into_iter().filter(|path| !path.contains("plpgsql")).collect()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The first pg_config on the path may belong to another server.
#[test]
fn the_tarball_wants_its_server_named() {
    let machine = Machine::new("named");
    for argument in [&[][..], &["remove"]] {
        let (done, said) = run(&mut machine.installer(argument));
        let wanted = format!("such as: PG_CONFIG={} ", machine.pg_config());
        assert!(!done && said.contains(&wanted), "{said}");
        assert_eq!(machine.installed(), [""; 0]);
    }
    let (done, said) = run(machine.installer(&[]).env("PG_CONFIG", machine.pg_config()));
    assert!(done && machine.installed().len() == 3, "{said}");
    let (done, said) = run(machine.installer(&["remove"]).env("PG_CONFIG", machine.pg_config()));
    assert!(done && machine.installed().is_empty(), "{said}");
}

/// Without the library, a server that preloads it would not start again.
#[test]
fn files_that_a_server_has_loaded_are_not_deleted() {
    let machine = Machine::new("loaded");
    let remove = || {
        let mut remove = machine.installer(&["remove"]);
        remove.env("PG_CONFIG", machine.pg_config()).env_remove("FORCE");
        remove
    };
    let library = machine.0.join("server/pkglibdir/idgen.so");
    fs::copy("/bin/sleep", &library).expect("a program");
    // This process has that file as its library, and runs in the server's folder.
    let mut server = Command::new(&library);
    let mut server = server.arg("600").current_dir(&machine.0).spawn().expect("a process");
    let refused = run(&mut remove());
    let forced = run(remove().env("FORCE", "1"));
    fs::copy("/bin/sleep", &library).expect("a program");
    server.kill().and_then(|()| server.wait()).expect("an end");
    let unused = run(&mut remove());
    let (done, said) = refused;
    let wanted = format!("error: idgen is still in use: {}. ", machine.0.display());
    assert!(!done && said.contains(&wanted), "{said}");
    assert!(forced.0 && forced.1.contains("idgen.so"), "{}", forced.1);
    assert!(unused.0 && machine.installed().is_empty(), "{}", unused.1);
}

#[test]
fn the_tarball_looks_for_its_rights_first() {
    const NOBODY: u32 = 65534;
    let machine = Machine::new("rights");
    let folders = ["server/pkglibdir", "server/sharedir/extension"].map(|folder| machine.0.join(folder));
    let allow =
        |folder: &Path, mode| fs::set_permissions(folder, Permissions::from_mode(mode)).expect("chmod");
    folders.iter().for_each(|folder| allow(folder, 0o555));
    for argument in [&[][..], &["remove"]] {
        let mut install = machine.installer(argument);
        install.env("PG_CONFIG", machine.pg_config());
        if nix::unistd::geteuid().is_root() {
            install.uid(NOBODY);
        }
        let (done, said) = run(&mut install);
        assert!(!done && said.contains("error: you may not write to "), "{said}");
        assert!(!said.contains("idgen.so"), "{said}");
    }
    folders.iter().for_each(|folder| allow(folder, 0o755));
}
