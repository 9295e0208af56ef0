//! The disk under the WAL, which stalls, fails, fills up or loses power, and the end of all processes at once.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::moment::is_reached;
use crate::process::disk_library;
use crate::server::processes::status;
use crate::server::{Build, Server};

/// How a disk treats calls on WAL files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// The error of calls that write.
    pub writes: Option<Errno>,
    /// The error of calls that flush.
    pub flushes: Option<Errno>,
    /// The duration of calls that flush, in milliseconds.
    pub stall_ms: i32,
    /// The number of calls that pass first.
    pub spared: i32,
    /// The number of calls struck after them.
    pub calls: i32,
}

/// Offsets of words in the struct of disk.c.
const STRUCK: u64 = 20;
const KEPT: u64 = 24;

impl Server {
    /// A server for random faults: its WAL is on a disk that [`Server::trouble`] reaches, and each reading of its clock
    /// takes 5 µs.
    pub fn start_on_disk(build: Build, settings: &[&str]) -> Server {
        let mut server = Server::new(build);
        server.has_disk = true;
        server.start_with_idgen(settings)
    }

    pub(super) fn disk_file(&self) -> PathBuf {
        self.sockets.join("disk")
    }

    /// The library of the disk, as part of a list.
    pub(super) fn disk_library(&self) -> String {
        if !self.has_disk {
            return String::new();
        }
        if !self.disk_file().exists() {
            fs::write(self.disk_file(), [0; 28]).expect("write");
            fs::set_permissions(self.disk_file(), Permissions::from_mode(0o666)).expect("chmod");
        }
        format!(":{}", disk_library().display())
    }

    fn disk(&self) -> File {
        OpenOptions::new().read(true).write(true).open(self.disk_file()).expect("the disk")
    }

    fn disk_word(&self, at: u64) -> i32 {
        let mut word = [0; 4];
        self.disk().read_exact_at(&mut word, at).expect("the disk");
        i32::from_ne_bytes(word)
    }

    /// Makes the disk behave like this. By default it works.
    pub fn trouble(&self, trouble: Trouble) {
        let errno = |errno: Option<Errno>| errno.map_or(0, |errno| errno as i32);
        let words =
            [errno(trouble.writes), errno(trouble.flushes), trouble.stall_ms, trouble.spared, trouble.calls];
        self.disk().write_all_at(&words.map(i32::to_ne_bytes).concat(), 0).expect("the disk");
    }

    /// The number of calls struck so far.
    pub fn struck(&self) -> i32 {
        self.disk_word(STRUCK)
    }

    /// Whether the disk has ever noticed a write to the WAL.
    pub fn has_written(&self) -> bool {
        self.disk_word(KEPT) > 0
    }

    /// Kills all processes, and undoes their writes to the WAL that were not flushed. Returns the number of bytes.
    pub fn lose_power(&self) -> u64 {
        self.kill_all();
        let mut lost = 0;
        self.take_journals(|segment, kept| {
            let file = OpenOptions::new().write(true).open(self.dir.join("pg_wal").join(segment));
            // A missing segment was no longer needed.
            lost += file.map_or(0, |file| take_back(&file, kept));
        });
        lost
    }

    /// Discards the journals of a server that is down, because pg_rewind has changed its files unseen by disk.c.
    pub(super) fn forget_journals(&self) {
        self.take_journals(|_, _| ());
    }

    /// Removes the journals, after passing the segment and the content of each to `take`.
    fn take_journals(&self, mut take: impl FnMut(&str, &[u8])) {
        for journal in fs::read_dir(&self.sockets).expect("a folder").flatten() {
            if let Some(segment) = journal.file_name().to_string_lossy().strip_prefix("disk.") {
                take(segment, &fs::read(journal.path()).expect("a journal"));
                fs::remove_file(journal.path()).expect("a journal");
            }
        }
    }

    /// Kills all processes at once, and waits until they are gone.
    pub fn kill_all(&self) {
        // A stopped postmaster starts no more processes.
        let Some(postmaster) = self.running() else { return };
        let _ = kill(postmaster, Signal::SIGSTOP);
        while status(postmaster.as_raw()).is_some_and(|(state, ..)| state != 'T') {
            thread::sleep(Duration::from_millis(1));
        }
        let mut all = children(postmaster);
        all.push(postmaster);
        for process in &all {
            let _ = kill(*process, Signal::SIGKILL);
        }
        all.into_iter().for_each(|process| self.until_gone(process));
    }

    pub fn until_gone(&self, process: Pid) {
        let is_gone = || status(process.as_raw()).is_none();
        assert!(is_reached(10, is_gone), "{process} stays\n{}", self.log());
    }

    /// The postmaster, if it runs.
    pub fn running(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.dir.join("postmaster.pid")).ok()?;
        let pid = Pid::from_raw(text.lines().next()?.trim().parse().ok()?);
        let folder = fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
        (status(pid.as_raw()).is_some() && folder == fs::canonicalize(&self.dir).ok()?).then_some(pid)
    }
}

/// Restores the entries of a journal, the last one first, and returns the number of bytes. If the last entry is
/// incomplete, its write has not happened.
fn take_back(file: &File, kept: &[u8]) -> u64 {
    let number = |at: usize| Some(u64::from_ne_bytes(kept.get(at..at + 8)?.try_into().ok()?));
    let (mut at, mut entries) = (0, Vec::new());
    while let (Some(place), Some(size)) = (number(at), number(at + 8))
        && let Some(bytes) = kept.get(at + 16..at + 16 + size as usize)
    {
        entries.push((place, bytes));
        at += 16 + bytes.len();
    }
    for (place, bytes) in entries.iter().rev() {
        file.write_all_at(bytes, *place).expect("a segment");
    }
    entries.iter().map(|(_, bytes)| bytes.len() as u64).sum()
}

/// The children of a process.
pub fn children(parent: Pid) -> Vec<Pid> {
    let all = fs::read_dir("/proc").expect("/proc").flatten();
    let numbers = all.filter_map(|process| process.file_name().to_str()?.parse().ok());
    let is_child = |pid: &i32| status(*pid).is_some_and(|(_, of, _)| of == parent.as_raw());
    numbers.filter(is_child).map(Pid::from_raw).collect()
}
