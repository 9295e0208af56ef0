//! The journal of a fleet. Each answer of a client and each event of a server is a line of JSON, which is on disk
//! before the client continues. The judge reads the journal.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

pub struct Writer {
    file: File,
}

impl Writer {
    pub fn create(path: &Path) -> Writer {
        Writer { file: File::create(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())) }
    }

    /// Adds a line, which is on disk when this returns.
    pub fn write(&mut self, line: &impl Serialize) {
        let mut bytes = serde_json::to_vec(line).expect("JSON");
        bytes.push(b'\n');
        self.file.write_all(&bytes).expect("write");
        self.file.sync_data().expect("sync");
    }
}

/// Reads what was appended to files of the journal since the last time.
pub struct Reader {
    folder: PathBuf,
    read: std::collections::BTreeMap<PathBuf, u64>,
}

impl Reader {
    pub fn new(folder: &Path) -> Reader {
        Reader { folder: folder.to_owned(), read: Default::default() }
    }

    /// The new lines of the files whose name begins with `prefix`, in order within each file.
    pub fn more<T: DeserializeOwned>(&mut self, prefix: &str) -> Vec<T> {
        let mut paths: Vec<PathBuf> =
            fs::read_dir(&self.folder).expect("a journal").flatten().map(|entry| entry.path()).collect();
        paths.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)));
        paths.sort();
        let mut lines = Vec::new();
        for path in paths {
            let read = self.read.entry(path.clone()).or_default();
            let mut file = BufReader::new(File::open(&path).expect("a journal"));
            file.seek(SeekFrom::Start(*read)).expect("seek");
            for line in file.lines().map(|line| line.expect("a line")) {
                *read += line.len() as u64 + 1;
                lines.push(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}")));
            }
        }
        lines
    }
}
