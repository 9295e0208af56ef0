//! Finds files that are here by accident: the top folder has only known files, and something refers to every other
//! file.

use std::collections::{HashMap, HashSet};
use std::fs;

use crate::{assert_none, files, regex, top};

/// The files of the top folder, and those that GitHub, cargo and Docker find by themselves.
const KNOWN: &str = r"(?x)^(\.(editorconfig|gitignore)|(CHANGELOG|CONTRIBUTING|README|SECURITY)\.md|Cargo\.(lock|toml)
    |LICENSE|META\.json|Makefile|(clippy|deny|rustfmt)\.toml|idgen\.control
    |\.github/.*|\.cargo/.*|packaging/docker/Dockerfile.*)$";

/// A project of a framework, which finds its files by their places. The runner finds a project by its file `run`;
/// otherwise something must name it.
const PROJECT: &str = "^(tests/(?:clients|apps)/([^/]+)/).*";

/// The name of a file without its ending.
fn stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}

/// The files among these that nothing refers to.
fn strays(files: &[(String, String)]) -> Vec<String> {
    let mut by_word: HashMap<&str, HashSet<&str>> = HashMap::new();
    for (path, text) in files.iter().filter(|(path, _)| path != "Cargo.lock") {
        for word in regex(r"[\w.-]+").find_iter(text) {
            by_word.entry(word.as_str().trim_matches('.')).or_default().insert(path);
        }
    }
    let is_stray = |path: &&String| {
        if regex(KNOWN).is_match(path) || !path.contains('/') {
            return !regex(KNOWN).is_match(path);
        }
        let (own, name) = match regex(PROJECT).captures(path) {
            Some(found) => (found[1].to_owned(), found[2].to_owned()),
            None => (path.to_string(), path.rsplit('/').next().unwrap_or_default().to_owned()),
        };
        // A test's expected output, its configuration, and the source of a picture are named after the file that they
        // belong to.
        let has_twin = |(other, _): &(String, String)| {
            other != *path && stem(other) == stem(&name) && stem(&name) != "mod"
                || *other == format!("{own}run")
        };
        let others = [&*name, stem(&name)].into_iter().filter_map(|word| by_word.get(word)).flatten();
        !files.iter().any(has_twin) && !others.into_iter().any(|other| !other.starts_with(&own))
    };
    files.iter().map(|(path, _)| path).filter(is_stray).cloned().collect()
}

#[test]
fn something_refers_to_every_file() {
    // Not by git, which source archives and the Debians of scripts/server-root lack. Editors have hidden files, too.
    let ours = regex(r"^(\.(cargo|ci|editorconfig|github|gitignore)|[^.].*)$");
    let names = fs::read_dir(top()).expect("the top folder").flatten();
    let names = names.map(|entry| entry.file_name().into_string().expect("a name in UTF-8"));
    let paths = names
        .filter(|name| ours.is_match(name) && name != "target")
        .flat_map(|name| if top().join(&name).is_dir() { files(&name, "") } else { vec![name] });
    let read = |path: String| {
        let text = String::from_utf8_lossy(&fs::read(top().join(&path)).expect("a file")).into_owned();
        (path, text)
    };
    let files: Vec<_> = paths.map(read).collect();
    assert!(files.len() > 100, "there are {} files", files.len());
    let complaints = strays(&files).into_iter().map(|path| format!("{path}: nothing refers to it"));
    assert_none(&complaints.collect::<Vec<_>>());
}

#[test]
fn a_stray_file_is_found() {
    let files = [
        ("README.md", "See docs/page.md, and tests/clients/go."),
        ("alembic.ini", ""),
        ("docs/page.md", "page.md has picture.svg"),
        ("docs/picture.svg", ""),
        ("docs/picture.pikchr", ""),
        ("docs/lost.md", "lost.md"),
        ("scripts/gone", "scripts/gone does it"),
        ("tests/clients/go/a.go", ""),
        ("tests/clients/ruby/b.rb", "ruby"),
        ("tests/clients/java/run", ""),
    ];
    let files = files.map(|(path, text)| (path.to_owned(), text.to_owned()));
    assert_eq!(strays(&files), ["alembic.ini", "docs/lost.md", "scripts/gone", "tests/clients/ruby/b.rb"]);
}
