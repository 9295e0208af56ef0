//! Statements of the pages about the code: the tests that guard a promise, paths, links, versions, and code for ORMs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::markdown::{code_blocks, code_spans, paragraphs};
use crate::{assert_none, files, in_one_line, read, regex, top};

/// The pages, each with its text.
fn pages() -> BTreeMap<String, String> {
    let mut paths = files("docs", ".md");
    paths.extend(["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(String::from));
    paths.extend(["crates/ids/README.md", "portable/README.md"].map(String::from));
    paths.into_iter().map(|path| (path.clone(), read(&path))).collect()
}

/// Fails with the complaints about all pages.
fn assert_all(complaints: impl Fn(&str, &str) -> Vec<String>) {
    assert_none(&pages().iter().flat_map(|(path, page)| complaints(path, page)).collect::<Vec<_>>());
}

/// The page that maps promises to tests.
const MAP: &str = "docs/contributing/promises.md";

/// The test functions of a Rust file.
fn test_functions(source: &str) -> Vec<String> {
    let test = regex(r"(?m)^\s*#\[(?:pg_)?test\b.*\n(?:\s*(?://|#\[).*\n)*.*\bfn (\w+)");
    test.captures_iter(source).map(|found| found[1].to_owned()).collect()
}

/// The tests that a page names but that do not exist. In a paragraph or table cell, the path of a Rust file in
/// backticks precedes its tests, which are words with an underscore. "pg_regress" precedes SQL tests, in backticks, up
/// to the end of the sentence.
fn missing_tests(path: &str, page: &str, tests: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let token = regex(r"`([^`]+)`|\b(pg_regress)\b|\b([a-z0-9]+(?:_[a-z0-9]+)+)\b|[.;](?:\s|$)");
    let mut complaints = Vec::new();
    for (line, paragraph) in paragraphs(page) {
        let (mut known, mut is_sql) = (None, false);
        for found in token.captures_iter(&paragraph) {
            let missing = match [1, 2, 3].map(|group| found.get(group).map(|text| text.as_str())) {
                [Some(file), ..] if file.ends_with(".rs") && !file.contains(' ') => {
                    let of_file = tests.iter().filter(|(path, _)| Path::new(path).ends_with(file));
                    let of_file: Vec<_> = of_file.collect();
                    let is_missing = of_file.is_empty();
                    known = Some(of_file.into_iter().flat_map(|(_, tests)| tests).collect::<Vec<_>>());
                    is_missing
                }
                [Some(name), ..] => {
                    is_sql && !tests.contains_key(&format!("tests/pg_regress/sql/{name}.sql"))
                }
                [_, _, Some(name)] => match &known {
                    Some(known) => !known.iter().any(|test| *test == name),
                    None => path == MAP && !name.starts_with("pg_"),
                },
                [_, word, _] => {
                    is_sql = word.is_some();
                    false
                }
            };
            complaints.extend(missing.then(|| format!("{path}:{line}: there is no test {}", &found[0])));
        }
    }
    complaints
}

#[test]
fn tests_that_pages_name_are_there() {
    let sources = ["src", "crates", "tests", "benches"].into_iter().flat_map(|folder| files(folder, ".rs"));
    let sources = sources.chain(files("tests/pg_regress/sql", ".sql"));
    let tests = sources.map(|path| (path.clone(), test_functions(&read(&path)))).collect();
    assert_all(|path, page| missing_tests(path, page, &tests));
}

#[test]
fn a_test_that_is_not_there_is_found() {
    let source =
        "    #[test]\n    // Why.\n    #[should_panic]\n    fn there_it_is(x in 0..9) {}\n    fn no_test() {}
        #[pg_test(error = \"x\")]\n    fn in_a_backend() {}";
    assert_eq!(test_functions(source), ["there_it_is", "in_a_backend"]);
    let tests = [("a/some/file.rs", source), ("tests/pg_regress/sql/decode.sql", "")];
    let tests = tests.map(|(path, source)| (path.to_owned(), test_functions(source))).into();
    let page = "`some/file.rs` there_it_is, it_was; pg_regress `decode`, `move`. `other_code`, CLOCK_REALTIME
        and no_test; `ome/file.rs`\n\n| no_file | `file.rs` | no_file_again |\n```sql\nnot_looked_at\n```";
    let missing = |path| missing_tests(path, page, &tests);
    let found = ["1: there is no test it_was", "1: there is no test `move`", "1: there is no test no_test"];
    let found = [&found[..], &["1: there is no test `ome/file.rs`"]].concat();
    assert_eq!(
        missing("README.md"),
        found.iter().map(|text| format!("README.md:{text}")).collect::<Vec<_>>()
    );
    assert_eq!(missing(MAP).len(), found.len() + 2, "{:?}", missing(MAP));
}

/// The paths that a page names in backticks but that do not exist. Capitals and stars stand for any name.
fn missing_paths(path: &str, page: &str) -> Vec<String> {
    let in_project =
        regex("^(src|tests|docs|scripts|sql|benches|crates|portable|packaging|.github)/[^A-Z*]*$");
    let mut complaints = Vec::new();
    for (line, paragraph) in paragraphs(page) {
        let words = code_spans(&paragraph).flat_map(|code| code.split([' ', '\n', '\'', '"', ';']));
        let missing = words.filter(|word| in_project.is_match(word) && !top().join(word).exists());
        complaints.extend(missing.map(|word| format!("{path}:{line}: there is no {word}")));
    }
    complaints
}

/// The anchors of a page's headings.
fn headings(page: &str) -> Vec<String> {
    let outside = regex(r"(?ms)^\s*```.*?^\s*```").replace_all(page, "").into_owned();
    let titles = outside.lines().filter(|line| line.starts_with('#'));
    let kept = titles.map(|line| {
        line.trim_matches(['#', ' ']).replace(|c: char| !(c.is_alphanumeric() || " -_".contains(c)), "")
    });
    kept.map(|title| title.to_lowercase().replace(' ', "-")).collect()
}

/// The links of a page to files or headings that do not exist.
fn broken_links(path: &str, page: &str) -> Vec<String> {
    let own = top().join(path);
    let links = regex(r"\]\(([^)#]*)#?([^)]*)\)");
    let links = links.captures_iter(page).filter(|link| !link[1].contains("://"));
    let broken = links.filter(|link| {
        let target = own.with_file_name("").join(&link[1]);
        let text = if link[1].is_empty() {
            page.to_owned()
        } else {
            fs::read_to_string(&target).unwrap_or_default()
        };
        !link[1].is_empty() && !target.exists()
            || !link[2].is_empty() && !headings(&text).iter().any(|heading| *heading == link[2])
    });
    broken.map(|link| format!("{path}: the link {} leads nowhere", &link[0])).collect()
}

#[test]
fn paths_and_links_of_pages_lead_somewhere() {
    assert_all(|path, page| if path == "CHANGELOG.md" { Vec::new() } else { missing_paths(path, page) });
    assert_all(broken_links);
}

#[test]
fn a_path_or_link_that_leads_nowhere_is_found() {
    let page = "# The *first*, `f(a, b)` – it\n[x](#second) [y](#there) [z](../README.md#words) [w](../README.md#a)
        \n```sh\n# there\n```\n## Second\n[top](../../README.md) [net](https://example.com) [x](README.md)
        [x](#the-first-fa-b--it) `docs/` `docs/PAGE.md` `sql/idgen--A--B.sql` `scripts/test docs/other.md` `src`";
    let path = "docs/contributing/page.md";
    let links = ["#there", "../README.md#a", "README.md"];
    assert_eq!(broken_links(path, page), links.map(|to| format!("{path}: the link ]({to}) leads nowhere")));
    assert_eq!(missing_paths(path, page), [format!("{path}:7: there is no docs/other.md")]);
}

#[test]
fn pages_name_the_versions_of_postgresql() {
    let manifest = read("Cargo.toml");
    let features = regex(r"(?m)^pg(\d+) = \[");
    let versions: Vec<_> = features.captures_iter(&manifest).map(|feature| feature[1].to_owned()).collect();
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

/// The programs that `scripts/test-clients` and `scripts/test-apps` run.
const PROGRAMS: [&str; 2] = ["tests/clients", "tests/apps"];

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

/// The code on docs/orm.md and the pages of docs/orm is code that was run. Output is marked as text, and commands as
/// console.
#[test]
fn code_for_orms_stands_in_programs_that_are_run() {
    let programs: Vec<String> =
        PROGRAMS.iter().flat_map(|folder| files(folder, "")).map(|path| read(&path)).collect();
    let mut complaints = Vec::new();
    for path in files("docs/orm", ".md").into_iter().chain(["docs/orm.md".to_owned()]) {
        for (number, language, block) in code_blocks(&read(&path)) {
            if !["text", "console"].contains(&language)
                && !programs.iter().any(|program| stands_in(&block, program))
            {
                complaints.push(format!("{path}:{number}: the block stands in no file of {PROGRAMS:?}"));
            }
        }
    }
    assert_none(&complaints);
    let block = ["a", "    b", "", "c"];
    assert!(stands_in(&block, "x\n  a\n      b\n\n  c\n") && !stands_in(&block, "a\n  b\n\nc"));
}

/// The table of tools has the versions that are run: each is on a line of a program together with the tool's name.
/// Debian's versions are not pinned.
#[test]
fn versions_of_the_table_of_tools_are_those_that_are_run() {
    let letters = |text: &str| text.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "");
    let of_another_page = |path: &String| path.contains("/identity-") || path.contains("/portable-");
    let paths = files(PROGRAMS[0], "").into_iter().filter(|path| !of_another_page(path));
    // Cargo.lock has the name and the version on two lines.
    let programs =
        paths.map(|path| read(&path).replace("\"\nversion", "\" version")).collect::<Vec<_>>().join("\n");
    let page = read("docs/orm.md");
    let (row, version) = (regex(r"(?m)^\| \[([^] .-]+)[^]]*\].* \| ([^|]+) \|$"), regex(r"\d+(?:\.\w+)+"));
    let rows: Vec<_> = row.captures_iter(&page).filter(|row| !row[2].contains("Debian")).collect();
    assert!(rows.len() > 5, "{}", rows.len());
    for row in rows {
        let name = letters(&row[1]);
        for version in version.find_iter(&row[2]).map(|version| version.as_str()) {
            let pins = |line: &str| {
                letters(line).contains(&name)
                    && regex(&format!(r"(^|[^\w.]){}($|[^\w.])", version.replace('.', r"\."))).is_match(line)
            };
            assert!(
                programs.lines().any(pins),
                "docs/orm.md: {name} {version} is in no file of {}",
                PROGRAMS[0]
            );
        }
    }
}

#[test]
fn alerts_leave_out_the_mistakes_of_callers() {
    let (page, alerts) =
        (in_one_line(&read("docs/reference.md")), read("docs/examples/prometheus/alerts.yml"));
    let names = |sentence: &str, text: &str| -> BTreeSet<String> {
        let sentence = regex(sentence).captures(text).expect("the list");
        regex(r"\w+_\w+").find_iter(&sentence[1]).map(|name| name.as_str().to_owned()).collect()
    };
    assert_eq!(names(r"([^.]*) are the caller's mistakes", &page), names(r#"reason!~"([^"]*)""#, &alerts));
}

#[test]
fn the_check_knows_every_warning_of_the_library() {
    let (library, program) =
        (read("src/error.rs"), read("crates/idgenctl/src/commands/check/server_rules.rs"));
    let code = regex(r#"\b(?:error|warning) "([a-z-]+)""#);
    let codes: BTreeSet<&str> =
        code.captures_iter(&library).filter_map(|found| Some(found.get(1)?.as_str())).collect();
    let known: BTreeSet<&str> = program.split(|c: char| c != '-' && !c.is_ascii_lowercase()).collect();
    assert!(!codes.is_empty() && codes.is_subset(&known), "{:?}", codes.difference(&known));
}
