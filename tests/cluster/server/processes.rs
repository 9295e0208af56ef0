//! The processes of a server, which can be stopped for a while, as by a debugger, a cgroup or a hypervisor.

use std::fmt;
use std::fs;

use nix::unistd::Pid;

use crate::moment::is_reached;
use crate::process::kill;
use crate::server::{Server, children};

pub struct Process {
    pid: i32,
    /// Its start in ticks since boot, because another process may get its number.
    began: u64,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let title = fs::read_to_string(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        write!(f, "{} {:?} {}", self.pid, self.state(), title.trim_end_matches('\0').trim())
    }
}

impl Process {
    /// The process with this number; `None` if it has ended.
    pub fn find(pid: i32) -> Option<Process> {
        let (.., began) = status(pid)?;
        Some(Process { pid, began })
    }

    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Stops the process, and waits until it stands still. Returns whether it still existed.
    pub fn stop(&self) -> bool {
        let rests = || self.state().is_none_or(|state| state == 'T');
        let stops = self.signal("STOP");
        assert!(!stops || is_reached(60, rests), "process {} does not stop", self.pid);
        stops && self.is_stopped()
    }

    pub fn is_stopped(&self) -> bool {
        self.state() == Some('T')
    }

    pub fn go_on(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) -> bool {
        self.state().is_some() && kill(name, self.pid).is_ok()
    }

    /// Its state in `/proc`; `None` if it has ended.
    fn state(&self) -> Option<char> {
        status(self.pid).filter(|(.., began)| *began == self.began).map(|(state, ..)| state)
    }
}

/// The state of a process as ps shows it, its parent and its start; `None` if it has ended.
pub(super) fn status(pid: i32) -> Option<(char, i32, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may contain blanks.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let state = fields.first()?.chars().next().filter(|state| !"ZX".contains(*state))?;
    Some((state, fields.get(1)?.parse().ok()?, fields.get(19)?.parse().ok()?))
}

impl Server {
    /// Stops all processes of the server, like a hypervisor that pauses its machine.
    pub fn stop_all(&self) -> Vec<Process> {
        // A stopped postmaster starts no others.
        let postmaster = self.postmaster();
        let mut stopped: Vec<_> = Process::find(postmaster).into_iter().filter(Process::stop).collect();
        let children = children(Pid::from_raw(postmaster));
        let children = children.into_iter().filter_map(|pid| Process::find(pid.as_raw()));
        stopped.extend(children.filter(Process::stop));
        stopped
    }
}
