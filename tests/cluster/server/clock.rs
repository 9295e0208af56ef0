//! The clock that a server sees.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use promises::ClockSet;

use crate::moment::now;
use crate::server::Server;

/// The number of entries in the struct of clock.c, which are followed by the number of the current one.
const ENTRIES: usize = 256;

impl Server {
    /// The settings of its clock, which outlive the server.
    pub fn clock_log(&self) -> Arc<Mutex<Vec<ClockSet>>> {
        self.clock.clone()
    }

    pub(super) fn clock_file(&self) -> PathBuf {
        self.sockets.join("clock")
    }

    /// Sets the server's clock, running or not, to this many seconds after the real one.
    pub fn set_clock(&self, seconds: f64) {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(self.clock_file());
        let file = file.expect("a clock");
        let mut log = self.clock.lock().expect("clock");
        let ahead_ms = (seconds * 1000.0).round() as i64;
        let current = log.len() % ENTRIES;
        let from = now();
        file.write_all_at(&(ahead_ms * 1_000_000).to_ne_bytes(), current as u64 * 8).expect("a clock");
        file.write_all_at(&[current as u8], ENTRIES as u64 * 8).expect("a clock");
        log.push(ClockSet { from, to: now(), ahead_ms });
    }

    /// Makes the checkpointer stop at the next start of the server before it reads the configuration.
    pub fn delay_checkpointer(&self) {
        let file = OpenOptions::new().write(true).open(self.clock_file()).expect("a clock");
        file.write_all_at(&[1], ENTRIES as u64 * 8 + 1).expect("a clock");
    }

    /// Records in the log of its clock that its ids are later or earlier by this much from now on.
    pub fn shift_ids(&self, ms: i64) {
        let mut log = self.clock.lock().expect("clock");
        let ahead_ms = log.last().map_or(0, |set| set.ahead_ms) + ms;
        let now = now();
        log.push(ClockSet { from: now, to: now, ahead_ms });
    }

    /// By how many seconds its clock is ahead of the real one.
    pub fn clock_ahead(&self) -> f64 {
        self.clock.lock().expect("clock").last().map_or(0.0, |set| set.ahead_ms as f64 / 1000.0)
    }
}
