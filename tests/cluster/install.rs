//! The blocks of the pages that install idgen, pasted as they are. All of them run `idgenctl enable`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::process::{release_bin, top, write_program};
use crate::server::{Build, Server, Sql};

/// The blocks of a page that run idgenctl, or have make run it. Here they run idgenctl by its name, because it is in no
/// package's folder.
fn blocks(page: &str) -> Vec<String> {
    let text = fs::read_to_string(top().join(page)).expect("a page");
    let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let local = |word: &str| {
        if word.ends_with("/bin/idgenctl") { "idgenctl".to_owned() } else { word.to_owned() }
    };
    let blocks: Vec<_> = blocks
        .filter(|block| block.contains("idgenctl enable") || block.contains("make enable"))
        .map(|block| block.split(' ').map(local).collect::<Vec<_>>().join(" "))
        .collect();
    assert!(!blocks.is_empty(), "{page} has no block that enables idgen");
    blocks
}

fn block_of_the_readme() -> String {
    blocks("README.md").remove(0)
}

fn all_blocks() -> Vec<String> {
    ["README.md", "docs/install.md"].iter().flat_map(|page| blocks(page)).collect()
}

const ENABLE: &str = "idgenctl enable mydb";

/// A machine on which people paste such blocks. Programs of the test replace those that install packages and restart
/// servers.
struct Machine {
    server: Server,
}

impl Machine {
    fn new(build: Build, settings: &[&str]) -> Machine {
        let server = Server::start_empty(build, settings);
        server.run("CREATE DATABASE mydb");
        Machine::of(server)
    }

    fn of(server: Server) -> Machine {
        let machine = Machine { server };
        let restart = "#!/bin/sh\necho >>restarts\nexec pg_ctl restart --silent -m fast\n";
        let make = "#!/bin/sh\n[ \"$*\" != \"$FAILS\" ] || exit 1\n\
            [ \"$1\" != enable ] || exec idgenctl enable \"${2#DB=}\"\n";
        // The person who pastes the block answers yes.
        let program = Path::new(&release_bin()).join("idgenctl");
        let idgenctl = format!("#!/bin/sh\nexec '{}' \"$@\" --yes\n", program.display());
        for (name, text) in [
            ("idgenctl", idgenctl.as_str()),
            ("sudo", "#!/bin/sh\ncase $1 in -u | -iu) shift 2 ;; esac\nexec \"$@\"\n"),
            ("make", make),
            ("apt", "#!/bin/sh\n"),
            ("dnf", "#!/bin/sh\n"),
            ("systemctl", restart),
            ("pg_ctlcluster", restart),
        ] {
            let program = machine.folder().join("bin").join(name);
            fs::create_dir_all(program.parent().unwrap()).unwrap();
            write_program(&program, text);
        }
        machine
    }

    fn folder(&self) -> PathBuf {
        self.server.host().into()
    }

    /// Pastes a block into a shell that continues after a failure, as an interactive one does. Returns whether the
    /// block succeeds, and its output.
    fn paste(&self, block: &str) -> (bool, String) {
        self.paste_where_make_fails("never", block)
    }

    fn paste_where_make_fails(&self, target: &str, block: &str) -> (bool, String) {
        let mut shell = self.server.shell(&format!("set +eu +o pipefail\n{block}"));
        let output = shell.env("FAILS", target).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        println!("{block}\n{said}");
        (output.status.success(), said)
    }

    fn restarts(&self) -> usize {
        fs::read_to_string(self.folder().join("restarts")).map_or(0, |text| text.lines().count())
    }

    fn answer_in(&self, database: &str, query: &str) -> String {
        self.server.connect_to(database).value(query)
    }

    fn answer(&self, query: &str) -> String {
        self.answer_in("mydb", query)
    }

    fn libraries(&self) -> String {
        self.answer("SHOW shared_preload_libraries")
    }

    /// The state that a failing block must not change.
    fn state(&self) -> String {
        self.answer(
            "SELECT concat(pg_read_file('postgresql.auto.conf'), pg_postmaster_start_time(),
                (SELECT json_agg(s) FROM pg_db_role_setting s), (SELECT json_agg(nspname) FROM pg_namespace))",
        )
    }
}

const MINT: &str = "SELECT shard_of(snowflake_next_id(5))::text";

/// The existing lists of libraries and schemas stay, and a repetition changes nothing.
#[test]
fn each_block_adds_idgen_to_what_is_there() {
    for block in all_blocks() {
        let list = "Shared_Preload_Libraries = 'plpgsql , $libdir/dict_snowball'";
        let machine = Machine::new(Build::Release, &[list, "search_path = 'unused'"]);
        machine.server.run(r#"ALTER DATABASE mydb SET search_path = "App", public"#);
        let mut files = Vec::new();
        for restarts in 1..=2 {
            let (done, said) = machine.paste(&block);
            assert!(done, "{said}");
            assert_eq!(machine.restarts(), restarts);
            assert_eq!(said.contains("Now restart "), restarts == 1, "{said}");
            assert_eq!(machine.libraries(), r#"plpgsql, "$libdir/dict_snowball", idgen"#);
            assert_eq!(machine.answer("SHOW search_path"), r#""App", public, idgen"#);
            assert_eq!(machine.answer(MINT), "5");
            assert_eq!(machine.answer("SELECT coalesce(warning, 'none') FROM idgen_status"), "none");
            files.push(machine.answer("SELECT pg_read_file('postgresql.auto.conf')"));
        }
        assert_eq!(files[0], files[1]);
    }
}

/// A list that waits for a restart is kept, and so are a path set for the server or by ALTER ROLE ALL, and an extension
/// that exists.
#[test]
fn what_is_in_effect_later_or_from_elsewhere_is_kept() {
    let machine = Machine::new(Build::Release, &["search_path = 'first, public'"]);
    machine.server.run("ALTER SYSTEM SET shared_preload_libraries = dict_snowball");
    assert!(machine.paste(&block_of_the_readme()).0);
    assert_eq!(machine.libraries(), "dict_snowball, idgen");
    assert_eq!(machine.answer("SHOW search_path"), "first, public, idgen");

    let mut admin = machine.server.connect();
    admin.run("CREATE DATABASE other");
    admin.run(r#"ALTER ROLE ALL SET search_path = "$user", x"#);
    assert!(machine.paste("idgenctl enable other").0);
    assert_eq!(machine.answer_in("other", "SHOW search_path"), r#""$user", x, idgen"#);
    machine.server.connect_to("other").run("ALTER DATABASE other RESET search_path");
    assert!(machine.paste("idgenctl enable other").0);
    assert_eq!(machine.answer_in("other", "SHOW search_path"), r#""$user", x"#);

    // A value of the command line is invisible to sessions.
    admin.run("ALTER ROLE ALL RESET search_path");
    admin.run("CREATE DATABASE third");
    machine.server.stop("fast");
    machine.server.up_with("-c search-path=mine");
    let (done, said) = machine.paste("idgenctl enable third");
    assert!(!done && said.contains("sets \"search_path\""), "{said}");
    machine.server.run("ALTER DATABASE third SET search_path = mine, \"Of all\", \"a; DROP\"");
    assert!(machine.paste("idgenctl enable third").0);
    assert_eq!(machine.answer_in("third", "SHOW search_path"), "mine, \"Of all\", \"a; DROP\", idgen");
}

/// With a missing library in its list, the server would not start.
#[test]
fn without_the_files_nothing_changes() {
    for block in all_blocks() {
        let machine = Machine::new(Build::Bare, &[]);
        let before = machine.state();
        let (done, said) = machine.paste(&block);
        assert!(!done && said.contains("the library of idgen cannot be loaded"), "{said}");
        assert!(said.contains("Install idgen for that server, and try again."), "{said}");
        assert_eq!((machine.restarts(), machine.state()), (0, before));
    }
}

#[test]
fn after_a_failure_of_make_nothing_changes() {
    let machine = Machine::new(Build::Release, &[]);
    let before = machine.state();
    for target in ["setup", "", "install", "enable DB=mydb"] {
        let (done, said) = machine.paste_where_make_fails(target, &block_of_the_readme());
        assert!(!done && said.is_empty(), "{said}");
        assert_eq!((machine.restarts(), &machine.state()), (0, &before));
    }
}

/// There `ALTER SYSTEM` would have no effect.
#[test]
fn a_list_on_the_command_line_is_left_alone() {
    let machine = Machine::new(Build::Release, &[]);
    let start = |list: &str| {
        assert!(machine.paste(&format!("pg_ctl restart --silent -o '-c shared_preload_libraries={list}'")).0);
    };
    start("dict_snowball");
    let file = || machine.answer("SELECT pg_read_file('postgresql.auto.conf')");
    let before = file();
    let (done, said) = machine.paste(&block_of_the_readme());
    assert!(!done && said.contains("which ALTER SYSTEM does not do there"), "{said}");
    assert_eq!((machine.restarts(), file()), (0, before));
    start("dict_snowball,idgen");
    assert!(machine.paste(ENABLE).0);
    assert_eq!(machine.answer(MINT), "5");
}

/// As the README says, the lines up to the restart run on each standby before they run on the primary.
#[test]
fn a_standby_only_preloads_the_library() {
    let primary = Machine::new(Build::Release, &[]);
    let standby = Machine::of(primary.server.standby("two"));
    standby.server.wait_until("SELECT EXISTS (SELECT FROM pg_database WHERE datname = 'mydb')");
    let block = block_of_the_readme();
    let (lines, last) = block.rsplit_once(" &&\n").unwrap();
    assert!(lines.contains("restart") && last.contains("enable"), "{block}");
    let (done, said) = standby.paste(lines);
    assert!(done, "{said}");
    assert_eq!((standby.libraries().as_str(), standby.restarts()), ("idgen", 1));
    let (done, said) = primary.paste(&block);
    assert!(done, "{said}");
    assert_eq!(primary.answer(MINT), "5");
    // The standby mints once it is promoted.
    primary.server.until_replayed_by(&standby.server);
    primary.server.kill();
    standby.server.promote();
    assert_eq!(standby.answer(MINT), "5");
}
