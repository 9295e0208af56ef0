//! What clients were given and refused, and what became of their servers: one line of JSON each, on disk before the
//! client asks for more. The checker reads it from there.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use promises::Run;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::moment::Moment;
use crate::server::ClockSet;

/// A number of a server, as [`crate::server::Server::number`] gives it.
pub type ServerNumber = usize;

/// What became of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Ids, whatever becomes of the transaction.
    Ids(Vec<Run>),
    /// Ids of rows of the table `rows`, which a transaction has inserted that has not ended.
    Inserted(Vec<Run>),
    /// The rows with these ids are committed.
    Committed(Vec<Run>),
    /// A horizon, and the rows from the one before up to it that were read afterwards.
    Horizon { from: i64, to: i64, rows: Vec<i64> },
    /// SQLSTATE and message; "lost" if the connection broke.
    Refused(String),
}

/// An answered call of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The connection.
    pub session: u64,
    pub server: ServerNumber,
    /// The statement.
    pub statement: String,
    /// The first of the shards that it mints for, and how many there are.
    pub shards: (u16, u16),
    /// When the connection was last heard of before the call.
    pub heard: Moment,
    pub called: Moment,
    pub answered: Moment,
    pub answer: Answer,
}

/// What became of the servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A server's clock was set.
    Clock { server: ServerNumber, set: ClockSet },
    /// Faults struck, and all was healed again.
    Faults { from: Moment, to: Moment, struck: Vec<String>, allows: Vec<String> },
    /// A server took over from another, with all that was acknowledged or not.
    Succession { at: Moment, server: ServerNumber, from: ServerNumber, keeps_all: bool },
    /// `idgen.max_ahead` may be this from now on, in milliseconds.
    MaxAhead { ms: i64 },
    /// The epoch that servers count from, in milliseconds since 1970.
    Epoch { unix_ms: i64 },
    /// All ids in the table `rows`, while nobody writes.
    Rows { ids: Vec<i64> },
}

/// A file of the journal.
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

    /// The new lines of the files whose name begins with this, in order within each file.
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
