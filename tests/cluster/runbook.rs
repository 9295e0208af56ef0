//! The runbooks of docs/operations.md, run from the text of the page. A test causes the problem, compares the messages
//! of the server, runs the blocks, and sets what the page says. Each block of the page must be reached.

use std::path::{Path, PathBuf};

use crate::process::{major_version, top};
use crate::server::Server;

/// A section of the page.
pub struct Section {
    pub title: String,
    text: String,
    /// The quoted messages of the server.
    pub messages: Vec<String>,
    /// The `sh` blocks. A `text` block cannot be run by a test, or is not a command.
    pub blocks: Vec<Block>,
}

/// A block of code.
#[derive(Clone)]
pub struct Block {
    text: String,
    /// The server that its first comment names.
    place: Option<String>,
}

/// The page with the names of this version of PostgreSQL.
fn page() -> String {
    let page = std::fs::read_to_string(top().join("docs/operations.md")).expect("the page");
    if major_version() >= 18 {
        return page.replace("max_replication_slots", "max_active_replication_origins");
    }
    page
}

/// The beginning of the function that administrators paste before the blocks.
const FUNCTION: &str = "sql() (";

fn function() -> String {
    let page = page();
    let (_, rest) = page.split_once(FUNCTION).expect("the function");
    format!("{FUNCTION}{}", rest.split("```").next().expect("its end"))
}

/// Writes a fleet file of these servers in the page's form.
pub fn fleet_file(servers: &[&Server]) -> PathBuf {
    let page = page();
    let (_, shown) = page.split_once("```toml\n").expect("the file of servers");
    let (shown, _) = shown.split_once("```").expect("its end");
    let mut lines = shown.lines();
    let mut fleet = lines.next().expect("its head").to_owned();
    for (name, server) in NAMES.iter().zip(servers) {
        // The page shows two of them.
        if let Some(line) = lines.next() {
            assert!(line.starts_with(&format!("{name} = \"host=")), "{line}");
        }
        fleet += &format!("\n{name} = \"{}\"", server.target("postgres"));
    }
    let file = Path::new(&servers[0].host()).join("fleet.toml");
    std::fs::write(&file, fleet).expect("write");
    file
}

/// The names of servers in the page, in the order of the tests.
const NAMES: [&str; 3] = ["one", "two", "three"];

/// The sections of the page.
pub fn sections() -> Vec<Section> {
    let page = page();
    let section = |text: &str| {
        let mut lines = text.lines();
        let title = lines.next().unwrap_or_default().to_owned();
        let mut section = Section { title, text: text.to_owned(), messages: Vec::new(), blocks: Vec::new() };
        while let Some(line) = lines.next() {
            if let Some(language) = line.trim_start().strip_prefix("```") {
                let text: Vec<&str> = lines
                    .by_ref()
                    .take_while(|line| line.trim_start() != "```")
                    .map(str::trim_start)
                    .collect();
                let place = text
                    .first()
                    .and_then(|first| first.strip_prefix("# on ").or_else(|| first.strip_prefix(FOR)));
                let place = place.and_then(|rest| rest.split([',', ':']).next()).map(str::to_owned);
                match language {
                    "sh" if text.first() == Some(&FUNCTION) => {}
                    "sh" => section.blocks.push(Block { text: text.join("\n"), place }),
                    "text" => {}
                    other => panic!("{}: a block of {other:?}", section.title),
                }
            } else if let Some(message) = line.trim_start().strip_prefix("> ") {
                section.messages.push(message.trim_end().trim_matches('`').to_owned());
            }
        }
        section
    };
    format!("\n{page}").split("\n## ").skip(1).map(section).collect()
}

/// The beginning of a block in which `$two` is each of these servers in turn.
const FOR: &str = "# for ";

/// Whether a text matches a message, in which `…` stands for anything.
fn fits(message: &str, mut text: &str) -> bool {
    for (number, part) in message.split('…').enumerate() {
        match text.find(part) {
            Some(at) if number > 0 || at == 0 => text = &text[at + part.len()..],
            _ => return false,
        }
    }
    text.is_empty() || message.ends_with('…')
}

/// A section that a test goes through.
pub struct Runbook<'a> {
    section: Section,
    servers: &'a [(&'a str, &'a Server)],
    /// The blocks still to be run.
    blocks: Vec<Block>,
    /// The messages that no server has sent yet.
    unseen: Vec<String>,
    /// The variables that the administrator has set.
    variables: Vec<(String, String)>,
}

impl<'a> Runbook<'a> {
    /// The section with this title, and the servers with their names in its blocks, where the first is `$one` and the
    /// second `$two`.
    pub fn of(title: &str, servers: &'a [(&'a str, &'a Server)]) -> Runbook<'a> {
        let section = sections().into_iter().find(|section| section.title == title);
        let section = section.unwrap_or_else(|| panic!("no section {title}"));
        let (blocks, unseen) = (section.blocks.clone(), section.messages.clone());
        Runbook { section, servers, blocks, unseen, variables: Vec::new() }
    }

    /// Sets a variable for the next blocks.
    pub fn set(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    /// Skips the remaining blocks and messages.
    pub fn leave(mut self) {
        self.blocks.clear();
        self.unseen.clear();
    }

    /// Skips a block.
    pub fn skip(&mut self) {
        self.blocks.remove(0);
    }

    /// Sets what the page says, word by word.
    pub fn sets<'s>(&self, setting: &str, servers: impl IntoIterator<Item = &'s Server>) {
        self.says_to_write(setting);
        let (name, value) = setting.split_once(" = ").expect("a setting");
        for server in servers {
            server.run(&format!("ALTER SYSTEM SET {setting}"));
            server.reload(name, value.trim_matches('\''));
        }
    }

    /// Checks that the page has this setting or statement.
    pub fn says_to_write(&self, text: &str) {
        let said = self.section.text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(&format!("`{text}`")), "{}: not said: {text}", self.section.title);
    }

    /// Runs a statement of the page, word by word.
    pub fn runs(&self, server: &Server, statement: &str) {
        self.says_to_write(statement);
        server.run(statement);
    }

    /// Checks that the page quotes this message of a server.
    pub fn says(&mut self, said: &str) {
        let quoted = self.section.messages.iter().find(|message| fits(message, said));
        let quoted =
            quoted.unwrap_or_else(|| panic!("{}: the page does not quote {said}", self.section.title));
        self.unseen.retain(|message| message != quoted);
    }

    /// Whether the next block succeeds. The block is not used up.
    pub fn succeeds(&self) -> bool {
        self.run_first().0
    }

    /// Runs the next block, and returns its output.
    pub fn run(&mut self) -> String {
        let (done, said) = self.run_first();
        assert!(done, "{}: a block fails\n{said}", self.section.title);
        self.blocks.remove(0);
        said
    }

    /// Runs the next block, which must fail. The block is not used up.
    pub fn fails(&self) -> String {
        let (done, said) = self.run_first();
        assert!(!done, "{}: a block does not fail\n{said}", self.section.title);
        said
    }

    fn run_first(&self) -> (bool, String) {
        let block = self.blocks.first().unwrap_or_else(|| panic!("{}: no more blocks", self.section.title));
        let all = block.place.as_deref() == Some("each server");
        let there = |name: &str| {
            all || block.place.as_deref().is_none_or(|place| place.replace("each ", "the ") == name)
        };
        let mut servers = self.each_server(there);
        assert!(!servers.is_empty(), "{}: no server {:?}\n{}", self.section.title, block.place, block.text);
        if block.place.is_none() {
            servers.truncate(1);
        }
        let (mut done, mut said) = (true, String::new());
        for server in servers {
            let (success, text) = self.run_on(server, block);
            said += &text;
            done &= success;
        }
        println!(
            "== {}: {}\n{}\n{said}",
            self.section.title,
            block.place.as_deref().unwrap_or_default(),
            block.text
        );
        (done, said)
    }

    /// The servers with such names, each of them once.
    fn each_server(&self, named: impl Fn(&str) -> bool) -> Vec<&Server> {
        let mut servers: Vec<&Server> = Vec::new();
        for (name, server) in self.servers {
            if named(name) && !servers.iter().any(|other| other.host() == server.host()) {
                servers.push(server);
            }
        }
        servers
    }

    fn run_on(&self, server: &Server, block: &Block) -> (bool, String) {
        let folder = server.host();
        let folder = Path::new(&folder);
        // The servers' user may not be able to read the folder of the project.
        for name in block.text.split_whitespace().filter(|word| word.starts_with("docs/examples/")) {
            let copy = folder.join(name);
            std::fs::create_dir_all(copy.parent().expect("a folder")).expect("mkdir");
            std::fs::copy(top().join(name), copy).expect("copy");
        }
        let servers = self.each_server(|_| true);
        let file = fleet_file(&servers);
        // The shell continues after an error, like an interactive one. The administrator consents.
        let consent = r#"idgenctl() { command idgenctl --yes "$@"; }"#;
        let script = format!("set +eu +o pipefail\n{consent}\n{}\n{}", function(), block.text);
        let mut shell = server.shell(&script);
        shell.env("IDGENCTL_FLEET", file);
        for (name, server) in NAMES.iter().zip(servers) {
            shell.env(name, server.target("postgres"));
        }
        if block.text.starts_with(FOR) {
            shell.env("two", server.target("postgres"));
        }
        shell.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let output = shell.output().expect("bash");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Runbook<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let title = &self.section.title;
            let unseen = &self.unseen;
            assert!(unseen.is_empty(), "{title}: the page quotes what no server has said: {unseen:?}");
            let left: Vec<_> = self.blocks.iter().map(|block| block.text.as_str()).collect();
            assert!(left.is_empty(), "{title}: not run:\n{}", left.join("\n\n"));
        }
    }
}
