//! Finds files that are here by accident: the top folder has only known files, and something refers to every other
//! file.

use std::collections::{HashMap, HashSet};
use std::fs;

use crate::{assert_none, files, top};

/// The files of the top folder.
const TOP: &str = ".editorconfig .gitignore CHANGELOG.md CONTRIBUTING.md Cargo.lock Cargo.toml LICENSE META.json Makefile \
                   README.md SECURITY.md clippy.toml deny.toml idgen.control rustfmt.toml";

/// What is ours in the top folder of the hidden files and folders: editors have theirs there.
const HIDDEN: [&str; 5] = [".cargo", ".ci", ".editorconfig", ".github", ".gitignore"];

/// The beginnings of paths that external tools find by themselves: GitHub and Docker.
const KNOWN: [&str; 3] = [".github/", ".cargo/", "packaging/docker/Dockerfile"];

/// Folders whose subfolders are projects of frameworks, which find their files by their places. The runner finds a
/// project by its file `run`; otherwise something must name it.
const PROJECTS: [&str; 2] = ["tests/clients/", "tests/apps/"];

/// The words of a text that may be names of files.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '-' | '.'));
    words.map(|word| word.trim_matches('.')).filter(|word| !word.is_empty())
}

/// The files among these that nothing refers to.
fn strays(files: &[(String, String)]) -> Vec<String> {
    let mut by_word: HashMap<&str, HashSet<&str>> = HashMap::new();
    for (path, text) in files.iter().filter(|(path, _)| path != "Cargo.lock") {
        words(text).for_each(|word| _ = by_word.entry(word).or_default().insert(path));
    }
    let is_stray = |path: &str| {
        if KNOWN.iter().any(|begin| path.starts_with(begin)) {
            return false;
        }
        let Some((folder, name)) = path.rsplit_once('/') else {
            return !TOP.split(' ').any(|known| known == path);
        };
        let project = PROJECTS.iter().find_map(|begin| {
            let name = path.strip_prefix(begin)?.split_once('/')?.0;
            Some((name, format!("{begin}{name}/")))
        });
        let (name, own) = project.unwrap_or((name, format!("{folder}/{name}")));
        if files.iter().any(|(other, _)| *other == format!("{own}run")) {
            return false;
        }
        // A test's expected output, its configuration, and the source of a picture are named after the file that they
        // belong to.
        let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
        let others = [name, stem].into_iter().filter_map(|word| by_word.get(word)).flatten();
        let twin = files.iter().any(|(other, _)| {
            let other_stem = other.rsplit_once('.').map_or(&other[..], |(stem, _)| stem);
            other != path && other_stem.rsplit('/').next() == Some(stem) && stem != "mod"
        });
        !twin && !others.into_iter().any(|other| !other.starts_with(&own))
    };
    files.iter().map(|(path, _)| path).filter(|path| is_stray(path)).cloned().collect()
}

#[test]
fn something_refers_to_every_file() {
    // Not by git, which source archives and the Debians of scripts/server-root lack.
    let names = fs::read_dir(top()).expect("the top folder").flatten();
    let names = names.map(|entry| entry.file_name().into_string().expect("a name in UTF-8"));
    let ours = |name: &String| match name.starts_with('.') {
        true => HIDDEN.contains(&name.as_str()),
        false => name != "target",
    };
    let paths = names.filter(ours).flat_map(|name| match top().join(&name).is_dir() {
        true => files(&name, ""),
        false => vec![name],
    });
    let read = |path: String| {
        let text = fs::read(top().join(&path)).expect("a file");
        (path, String::from_utf8_lossy(&text).into_owned())
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
