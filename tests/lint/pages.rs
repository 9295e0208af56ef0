//! Statements of the pages about the code: the tests that guard a promise, paths in the project, and numbers.

use std::collections::BTreeMap;

use crate::markdown::{code_blocks, code_spans, paragraphs};
use crate::{assert_none, files, read, top};

/// The pages, each with its text.
fn pages() -> BTreeMap<String, String> {
    let mut paths = files("docs", ".md");
    paths.extend(
        ["README.md", "CONTRIBUTING.md", "crates/ids/README.md", "portable/README.md"].map(String::from),
    );
    paths.into_iter().map(|path| (path.clone(), read(&path))).collect()
}

/// The existing tests: Rust tests by file and function, pg_regress tests by file.
struct Tests {
    rust: BTreeMap<String, Vec<String>>,
    sql: Vec<String>,
}

impl Tests {
    fn of_the_project() -> Tests {
        let sources =
            ["src", "crates", "tests", "benches"].iter().filter(|folder| top().join(folder).exists());
        let rust = sources
            .flat_map(|folder| files(folder, ".rs"))
            .map(|path| (path.clone(), test_functions(&read(&path))))
            .collect();
        Tests { rust, sql: files("tests/pg_regress/sql", ".sql") }
    }

    /// The functions in files whose path ends like this; `None` if there is no such file.
    fn in_file(&self, end: &str) -> Option<Vec<&String>> {
        let mut files = self.rust.iter().filter(|(path, _)| ends_with_path(path, end)).peekable();
        files.peek()?;
        Some(files.flat_map(|(_, functions)| functions).collect())
    }

    fn has_sql(&self, name: &str) -> bool {
        self.sql.contains(&format!("tests/pg_regress/sql/{name}.sql"))
    }
}

fn ends_with_path(path: &str, end: &str) -> bool {
    path.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
}

/// The test functions of a Rust file.
fn test_functions(source: &str) -> Vec<String> {
    let mut functions = Vec::new();
    let mut is_test = false;
    for line in source.lines().map(str::trim) {
        if line == "#[test]" || line.starts_with("#[pg_test") {
            is_test = true;
        } else if let Some((_, rest)) = line.split_once("fn ")
            && is_test
        {
            functions.extend(rest.split('(').next().map(str::to_owned));
            is_test = false;
        } else if !line.starts_with("#[") && !line.starts_with("//") {
            is_test = false;
        }
    }
    functions
}

/// The tests that a page names but that do not exist. In a paragraph or table cell, the path of a Rust file in
/// backticks precedes its tests, which are words with an underscore. "pg_regress" precedes SQL tests, in backticks, up
/// to the end of the sentence.
fn missing_tests(path: &str, page: &str, tests: &Tests) -> Vec<String> {
    let mut complaints = Vec::new();
    for (line, paragraph) in paragraphs(page) {
        let (mut file, mut is_sql) = (None, false);
        for (number, part) in paragraph.split('`').enumerate() {
            if number % 2 == 1 {
                if part.ends_with(".rs") && !part.contains(' ') {
                    if tests.in_file(part).is_none() {
                        complaints.push(format!("{path}:{line}: there is no file {part}"));
                    }
                    (file, is_sql) = (Some(part), false);
                } else if is_sql && !tests.has_sql(part) {
                    complaints.push(format!("{path}:{line}: pg_regress has no test {part}"));
                }
                continue;
            }
            for token in part.split_whitespace() {
                for word in token.split(|c: char| !c.is_alphanumeric() && c != '_') {
                    is_sql |= word == "pg_regress";
                    if word == "pg_regress" || !word.contains('_') || word.to_lowercase() != word {
                        continue;
                    }
                    match (file, file.and_then(|file| tests.in_file(file))) {
                        (Some(file), Some(known)) if !known.iter().any(|test| *test == word) => {
                            complaints.push(format!("{path}:{line}: {file} has no test {word}"));
                        }
                        (None, _) if path == MAP && !word.starts_with("pg_") => {
                            complaints.push(format!("{path}:{line}: the file of {word} is not named"));
                        }
                        _ => {}
                    }
                }
                is_sql &= !token.ends_with(['.', ';']);
            }
        }
    }
    complaints
}

/// The page that maps promises to tests.
const MAP: &str = "docs/contributing/promises.md";

#[test]
fn tests_that_pages_name_are_there() {
    let tests = Tests::of_the_project();
    let complaints: Vec<String> =
        pages().iter().flat_map(|(path, page)| missing_tests(path, page, &tests)).collect();
    assert_none(&complaints);
}

#[test]
fn a_test_that_is_not_there_is_found() {
    let source = "
        /// A property.
        #[test]
        fn there_it_is(x in 0..9) {}
        #[test]
        // Why.
        #[should_panic]
        fn it_panics() {}
        fn no_test() {}
        #[pg_test(error = \"x\")]
        fn in_a_backend() {}";
    assert_eq!(test_functions(source), ["there_it_is", "it_panics", "in_a_backend"]);
    let tests = Tests {
        rust: [("tests/some/file.rs".into(), test_functions(source))].into(),
        sql: vec!["tests/pg_regress/sql/decode.sql".into()],
    };
    let page = "
`some/file.rs` there_it_is,
it_panics, there_it_was; pg_regress `decode`, `move`. `other_code`, CLOCK_REALTIME
and no_test; `ome/file.rs` in_a_backend, `other.rs` who_knows

| no_file | `file.rs` | no_file_again |
```sql
not_looked_at
```";
    let complaints = |path| missing_tests(path, page, &tests);
    let mut expected = vec![
        "docs/contributing/promises.md:2: some/file.rs has no test there_it_was",
        "docs/contributing/promises.md:2: pg_regress has no test move",
        "docs/contributing/promises.md:2: some/file.rs has no test no_test",
        "docs/contributing/promises.md:2: there is no file ome/file.rs",
        "docs/contributing/promises.md:2: there is no file other.rs",
        "docs/contributing/promises.md:6: the file of no_file is not named",
        "docs/contributing/promises.md:6: the file of no_file_again is not named",
    ];
    assert_eq!(complaints(MAP), expected);
    expected.truncate(5);
    let elsewhere = complaints("README.md");
    assert_eq!(elsewhere, expected.iter().map(|text| text.replace(MAP, "README.md")).collect::<Vec<_>>());
}

/// The top folders of paths in the project.
const FOLDERS: &str = "src tests docs scripts sql benches crates portable packaging .github";

/// Whether a file or folder exists that matches a path.
fn is_there(path: &str, all: &[String], is_it: fn(&str, &str) -> bool) -> bool {
    let path = path.trim_end_matches('/');
    let steps = path.split('/').count();
    all.iter().any(|file| is_it(path, &file.split('/').take(steps).collect::<Vec<_>>().join("/")))
}

/// Whether a name matches a pattern. Capitals and stars in it stand for any name, as in `sql/idgen--A--B.sql`.
fn fits(pattern: &str, name: &str) -> bool {
    let Some(c) = pattern.chars().next() else { return name.is_empty() };
    let stands_for_any = |c: char| c.is_ascii_uppercase() || c == '*';
    if stands_for_any(c) {
        let rest = pattern.trim_start_matches(stands_for_any);
        return (1..=name.len()).any(|length| name.get(length..).is_some_and(|name| fits(rest, name)));
    }
    name.strip_prefix(c).is_some_and(|name| fits(&pattern[c.len_utf8()..], name))
}

/// The paths that a page names in backticks but that do not exist.
fn missing_paths(path: &str, page: &str, all: &[String]) -> Vec<String> {
    let mut complaints = Vec::new();
    for (line, paragraph) in paragraphs(page) {
        for word in code_spans(&paragraph).flat_map(|code| code.split([' ', '\n', '\'', '"', ';'])) {
            let folder = word.split_once('/').map(|(folder, _)| folder);
            if FOLDERS.split(' ').any(|known| folder == Some(known)) && !is_there(word, all, fits) {
                complaints.push(format!("{path}:{line}: there is no {word}"));
            }
        }
    }
    complaints
}

/// The links of a page into the project, each with its line, the file, and the anchor of a heading if there is one.
fn links(path: &str, page: &str) -> Vec<(usize, String, String)> {
    let mut links = Vec::new();
    for (number, line) in (1..).zip(page.lines()) {
        for link in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let mut folders: Vec<&str> = path.split('/').collect();
            if !file.is_empty() {
                folders.pop();
                for step in file.split('/') {
                    match step {
                        ".." => _ = folders.pop(),
                        step => folders.push(step),
                    }
                }
            }
            links.push((number, folders.join("/"), heading.to_owned()));
        }
    }
    links
}

/// The anchors of a page's headings.
fn headings(page: &str) -> Vec<String> {
    let mut in_block = false;
    let mut addresses = Vec::new();
    for line in page.lines() {
        in_block ^= line.trim_start().starts_with("```");
        let title = line.trim_start_matches('#');
        if !in_block && line.starts_with('#') && title.starts_with(' ') {
            let kept = title.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            addresses.push(kept.collect::<String>().to_lowercase().replace(' ', "-"));
        }
    }
    addresses
}

/// The links of pages to files or headings that do not exist.
fn broken_links(pages: &BTreeMap<String, String>, all: &[String]) -> Vec<String> {
    let mut complaints = Vec::new();
    for (path, page) in pages {
        for (number, target, heading) in links(path, page) {
            if target != *path && !is_there(&target, all, |path, file| path == file) {
                complaints.push(format!("{path}:{number}: there is no {target}"));
            }
            let there = pages.get(&target).is_none_or(|page| headings(page).contains(&heading));
            if !heading.is_empty() && !there {
                complaints.push(format!("{path}:{number}: {target} has no heading #{heading}"));
            }
        }
    }
    complaints
}

/// All files of the project, except build results and git's own.
fn all_files() -> Vec<String> {
    let mut all: Vec<String> = std::fs::read_dir(top())
        .expect("the top folder")
        .flatten()
        .filter(|entry| entry.path().is_file())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    all.extend(
        FOLDERS.split(' ').filter(|folder| top().join(folder).exists()).flat_map(|folder| files(folder, "")),
    );
    all
}

#[test]
fn paths_that_pages_name_are_there() {
    let all = all_files();
    let complaints =
        pages().iter().flat_map(|(path, page)| missing_paths(path, page, &all)).collect::<Vec<_>>();
    assert_none(&complaints);
}

#[test]
fn a_path_that_is_not_there_is_found() {
    let all = ["README.md", "docs/page.md", "sql/idgen--0.1.0--0.2.0.sql", "scripts/test"].map(String::from);
    let page = "`docs/page.md` `docs/` `docs/PAGE.md` `sql/idgen--A--B.sql` `scripts/test docs/page.md` `src`
        `scripts/test docs/other.md` `sql/*.md` `sql/install/idgen--VERSION.sql`
        `docs`";
    let missing = ["docs/other.md", "sql/*.md", "sql/install/idgen--VERSION.sql"];
    let missing = missing.map(|path| format!("docs/page.md:1: there is no {path}"));
    assert_eq!(missing_paths("docs/page.md", page, &all), missing);
}

#[test]
fn links_of_pages_lead_somewhere() {
    let mut pages = pages();
    pages.insert("CHANGELOG.md".to_owned(), read("CHANGELOG.md"));
    assert_none(&broken_links(&pages, &all_files()));
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let one = "# The *first*, `f(a, b)` – it\n[x](#second) [y](#there) [z](two.md#a-b) [w](two.md#a)
        \n```sh\n# there\n```\n## Second\n[top](../README.md) [net](https://example.com) [x](README.md)";
    let pages = [("docs/one.md", one), ("docs/two.md", "## A b\n[x](one.md#the-first-fa-b--it)")];
    let pages = pages.map(|(path, page)| (path.to_owned(), page.to_owned())).into();
    assert_eq!(
        broken_links(&pages, &["README.md", "docs/one.md", "docs/two.md"].map(String::from)),
        [
            "docs/one.md:2: docs/one.md has no heading #there",
            "docs/one.md:2: docs/two.md has no heading #a",
            "docs/one.md:8: there is no docs/README.md",
        ]
    );
}

/// A page's text on one line, so that a sentence is found wherever its lines end.
fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Formats a number as the pages do: 541,120.
fn with_commas(number: &str) -> String {
    let digits = number.len();
    let grouped = number.char_indices().flat_map(|(i, c)| {
        let comma = (i > 0 && (digits - i).is_multiple_of(3)).then_some(',');
        comma.into_iter().chain([c])
    });
    grouped.collect()
}

/// A test on a server compares the number with the one that PostgreSQL reports.
#[test]
fn the_reference_says_how_much_shared_memory_is_taken() {
    let file = "tests/cluster/minting.rs";
    let test = read(file);
    let number = test.split("const SHARED_MEMORY: i64 = ").nth(1).and_then(|rest| rest.split(';').next());
    let number = number.unwrap_or_else(|| panic!("no SHARED_MEMORY in {file}")).replace('_', "");
    let said = format!("{} bytes", with_commas(&number));
    let page = "docs/reference.md";
    assert!(in_one_line(&read(page)).contains(&said), "{page} does not say {said}");
}

#[test]
fn pages_name_the_versions_of_postgresql() {
    let manifest = read("Cargo.toml");
    let is_number = |text: &&str| text.bytes().all(|c| c.is_ascii_digit());
    let features = manifest.lines().filter_map(|line| Some(line.strip_prefix("pg")?.split_once(" = [")?.0));
    let versions: Vec<&str> = features.filter(is_number).collect();
    let (last, others) = versions.split_last().expect("features pgNN in Cargo.toml");
    let list = format!("{} and {last}", others.join(", "));
    for (file, said) in [
        ("README.md", format!("tested with PostgreSQL {list}")),
        ("portable/README.md", format!("tested with {} to {last}", versions[0])),
        ("docs/contributing/design.md", format!("runs it on {list}")),
    ] {
        assert!(in_one_line(&read(file)).contains(&said), "{file} does not say \"{said}\"");
    }
}

/// Whether a text contains a block line by line. All of its lines may be indented by the same blanks.
fn stands_in(block: &[&str], text: &str) -> bool {
    let lines: Vec<&str> = text.lines().collect();
    lines.windows(block.len()).any(|window| {
        let Some(indent) = window[0].strip_suffix(block[0]) else { return false };
        let same = |(line, of_block): (&&str, &&str)| {
            line == of_block && line.is_empty() || line.strip_prefix(indent) == Some(of_block)
        };
        indent.trim().is_empty() && window.iter().zip(block).all(same)
    })
}

/// The blocks of a page that are in none of the programs. Output, marked as text, and commands, marked as console, are
/// left out.
fn blocks_of_no_program(path: &str, page: &str, programs: &[String]) -> Vec<String> {
    let blocks = code_blocks(page).into_iter().filter(|(_, language, block)| {
        let is_program = !matches!(*language, "text" | "console");
        is_program && !programs.iter().any(|program| stands_in(block, program))
    });
    blocks
        .map(|(number, ..)| format!("{path}:{number}: the block stands in no file of {CLIENTS} or {APPS}"))
        .collect()
}

/// The programs that `scripts/test-clients` and `scripts/test-apps` run.
const CLIENTS: &str = "tests/clients";
const APPS: &str = "tests/apps";

/// The code on docs/orm.md and the pages of docs/orm is code that was run.
#[test]
fn code_for_orms_stands_in_programs_that_are_run() {
    let programs: Vec<String> =
        [CLIENTS, APPS].iter().flat_map(|folder| files(folder, "")).map(|path| read(&path)).collect();
    let mut pages = files("docs/orm", ".md");
    pages.push("docs/orm.md".to_owned());
    let blocks = |page: &String| blocks_of_no_program(page, &read(page), &programs);
    assert_none(&pages.iter().flat_map(blocks).collect::<Vec<_>>());
}

#[test]
fn a_block_of_no_program_is_found() {
    let page = "# Head\n```python\na\n    b\n\nc\n```\n```text\nd\n```\n```js\na\nc\n```\n```sh\nb b\n```";
    let complaint = |line| format!("page:{line}: the block stands in no file of {CLIENTS} or {APPS}");
    for (program, lines) in [
        ("a\n    b\n\nc\n b b", vec![11]),
        ("x\n  a\n      b\n\n  c\na\nc", vec![15]),
        ("a\n    b\nc", vec![2, 11, 15]),
        ("a\n  b\n\nc\nb b", vec![2, 11]),
        ("x a\nc", vec![2, 11, 15]),
    ] {
        let expected: Vec<String> = lines.into_iter().map(complaint).collect();
        assert_eq!(blocks_of_no_program("page", page, &[program.to_owned()]), expected, "{program}");
    }
}

/// The versions in the last column of a table of tools that are on no line of a program together with the tool's name.
/// Debian's versions are not pinned.
fn versions_not_pinned(page: &str, programs: &[String]) -> Vec<String> {
    let letters = |text: &str| text.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "");
    let words = |text: &str| -> Vec<String> {
        text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '.')).map(str::to_owned).collect()
    };
    let lines = || programs.iter().flat_map(|program| program.lines());
    let rows = page.lines().filter_map(|row| {
        let (tool, cells) = row.strip_prefix("| [")?.strip_suffix(" |")?.split_once(']')?;
        Some((tool, cells.rsplit_once(" | ")?.1))
    });
    let versions = rows.filter(|(_, tested)| !tested.contains("Debian")).flat_map(|(tool, tested)| {
        words(tested).into_iter().filter(|word| word.contains('.')).map(move |version| (tool, version))
    });
    let is_pinned = |tool: &str, version: &String| {
        let name = letters(tool.split([' ', '.', '-']).next().unwrap_or_default());
        lines().any(|line| letters(line).contains(&name) && words(line).contains(version))
    };
    versions
        .filter(|(tool, version)| !is_pinned(tool, version))
        .map(|(tool, version)| format!("docs/orm.md: {tool} {version} is in no file of {CLIENTS}"))
        .collect()
}

#[test]
fn versions_of_the_table_of_tools_are_those_that_are_run() {
    let of_another_page = |path: &String| path.contains("/identity-") || path.contains("/portable-");
    let paths = files(CLIENTS, "").into_iter().filter(|path| !of_another_page(path));
    // Cargo.lock has the name and the version on two lines.
    let programs: Vec<String> = paths.map(|path| read(&path).replace("\"\nversion", "\" version")).collect();
    assert_none(&versions_not_pinned(&read("docs/orm.md"), &programs));
}

#[test]
fn a_version_that_is_not_run_is_found() {
    let page = "| [One Two](a.md) | `b` | c | 1.2, 1.3 |\n| [Three-four](a.md) | b | | 1.3 |\n| [Five](a) | b | | 1.4, Debian |";
    let programs = ["one-two==1.2\nfour==1.3".to_owned()];
    assert_eq!(
        versions_not_pinned(page, &programs),
        ["One Two 1.3", "Three-four 1.3"]
            .map(|what| format!("docs/orm.md: {what} is in no file of {CLIENTS}"))
    );
}

/// Only idgenctl sets the list of preloaded libraries: it tries the library first, and keeps the others. No page or
/// script sets it otherwise.
#[test]
fn one_program_changes_what_a_server_preloads() {
    let mut paths = ["docs", "packaging", "portable"].map(|folder| files(folder, "")).concat();
    paths.push("README.md".to_owned());
    for path in &paths {
        assert!(!read(path).contains("ALTER SYSTEM SET shared_preload_libraries"), "{path}");
    }
    for page in ["README.md", "docs/install.md", "docs/operations.md", "packaging/debian/README.Debian"] {
        assert!(read(page).contains("idgenctl enable"), "{page}");
    }
}

/// The pages with blocks that an administrator pastes into a shell.
const RUNBOOKS: [&str; 5] =
    ["docs/operations.md", "README.md", "docs/install.md", "docs/kubernetes.md", "docs/scaling.md"];

/// The faults in blocks for administrators on a page.
fn blocks_that_do_harm(path: &str, page: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, language, block) in code_blocks(page) {
        let text = block.join("\n");
        if path != RUNBOOKS[0] {
            let given = text.matches("options=-csearch_path=pg_catalog").count();
            if text.matches("cnpg psql").count() != given {
                complaints.push(format!("{path}:{number}: psql has the search_path of the database"));
            }
            continue;
        }
        let variable = |rest: &str| rest.starts_with(|c: char| c.is_ascii_alphabetic());
        // The page's own function checks that it is given a server.
        let others = text.replace("sql \"$", "");
        if language == "sh" && !text.contains("(set -eu") && others.split("\"$").skip(1).any(variable) {
            complaints.push(format!("{path}:{number}: a variable may be unset"));
        }
        if !matches!(language, "sh" | "text" | "toml") {
            complaints.push(format!("{path}:{number}: a block for psql goes on after an error"));
        }
        // With a plain psql, names without a schema may find objects that the owner of a database has planted.
        let is_safe =
            text.contains("export PGOPTIONS='-c search_path=pg_catalog'") || text.contains(" -f docs/");
        if text.contains("psql ") && !is_safe {
            complaints.push(format!("{path}:{number}: psql has the search_path of the database"));
        }
        // The scripts of docs/examples find the schema of idgen, and check whether it can be trusted.
        if ["snowflake_", "idgen_", "shard_of("].iter().any(|name| text.contains(name)) {
            complaints.push(format!("{path}:{number}: idgen's functions are for scripts"));
        }
    }
    complaints
}

#[test]
fn blocks_for_administrators_do_no_harm() {
    let complaints: Vec<String> =
        RUNBOOKS.iter().flat_map(|path| blocks_that_do_harm(path, &read(path))).collect();
    assert_none(&complaints);
}

#[test]
fn a_block_that_does_harm_is_found() {
    let harmless = r#"
```sh
# on one
(set -eu
pg_rewind
pg_ctl start
)
```
```sh
sql "$one" <<'END'
ALTER SYSTEM SET a = 1;
SELECT pg_promote();
END
```
```sh
pg_ctl stop &&    # so
    mv a \
        b
```
```sh
sql "$one" <<<"ALTER SYSTEM SET a = 1; SELECT pg_reload_conf()"
```
```toml
[servers]
one = "host=10.0.0.1"
```
```sh
psql -X -f docs/examples/a.sql
```
"#;
    assert_eq!(blocks_that_do_harm(RUNBOOKS[0], harmless), [""; 0]);
    for (block, complaint) in [
        ("psql -c 'SELECT 1'", "search_path"),
        ("pg_isready -d \"$one\"", "unset"),
        ("sql <<<'SELECT public.snowflake_check()'", "for scripts"),
        ("sql <<<'TABLE idgen.idgen_status'", "for scripts"),
    ] {
        let found = blocks_that_do_harm(RUNBOOKS[0], &format!("```sh\n# on one\n{block}\n```"));
        assert!(found.len() == 1 && found[0].contains(complaint), "{block}: {found:?}");
    }
    assert_eq!(blocks_that_do_harm(RUNBOOKS[0], "```sql\nSELECT 1\n```").len(), 1);
    assert_eq!(
        blocks_that_do_harm("docs/kubernetes.md", "```sh\nkubectl cnpg psql one -- app\n```").len(),
        1
    );
}
