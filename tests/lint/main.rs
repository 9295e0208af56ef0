//! Checks that the compiler cannot make: the dependencies between modules, the errors of SQL, the names and numbers on
//! the pages, the pictures, stray files, the manifests, the workflows, the messages of installers, and the blocks that
//! people paste. These tests need no server.

mod arrows;
mod blocks;
mod errors;
mod kubernetes;
mod layout;
mod markdown;
mod pages;
mod pictures;
mod programs;
mod strangers;
mod stray;
mod workflows;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use regex::Regex;

/// The top folder of the project.
fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder above")
}

/// The text of a file of the project.
fn read(path: &str) -> String {
    fs::read_to_string(top().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The files under a folder of the project whose names end like this, by their paths from the top folder.
fn files(folder: &str, end: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(top().join(&folder)).expect("a folder").flatten() {
            let path = folder.join(entry.file_name());
            if entry.path().is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().ends_with(end) {
                found.push(path.to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    found
}

/// A text on one line, so that a sentence is found wherever its lines end.
fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A regular expression, which is compiled once.
fn regex(pattern: &str) -> &'static Regex {
    static KNOWN: Mutex<BTreeMap<String, &Regex>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().expect("no panic");
    known.entry(pattern.to_owned()).or_insert_with(|| {
        Box::leak(Box::new(Regex::new(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"))))
    })
}

/// Fails with all complaints, if there are any.
fn assert_none(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}
