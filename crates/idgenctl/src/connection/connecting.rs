//! Connects through libpq without blocking, so that Ctrl-C and a time limit end the wait.

use std::collections::HashMap;
use std::ffi::{c_char, c_void};
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use libpq::poll::Status;
use libpq::{Connection, Verbosity};
use nix::poll::{PollFd, PollFlags, poll};

use crate::terminal::error::{Error, Result};
use crate::terminal::signals::go_on;

/// How many seconds it may take to connect; infinitely many without a limit.
pub fn limit(parameters: &HashMap<String, String>) -> f64 {
    let limit = parameters.get("connect_timeout").and_then(|text| text.trim().parse::<f64>().ok());
    limit.filter(|seconds| *seconds > 0.0).unwrap_or(f64::INFINITY)
}

/// Connects in a thread: for a hostile server, libpq would compute for hours.
pub fn connect(server: &str, parameters: HashMap<String, String>) -> Result<Connection> {
    let (began, name, limit) = (Instant::now(), server.to_owned(), limit(&parameters));
    let connecting = in_thread(move || attempt(&name, &parameters, limit));
    loop {
        go_on()?;
        match connecting.recv_timeout(Duration::from_millis(50)) {
            Ok(made) => return made.0,
            Err(RecvTimeoutError::Timeout) if began.elapsed().as_secs_f64() < limit => {}
            Err(_) => return Err(Error::late(server, limit)),
        }
    }
}

fn attempt(server: &str, parameters: &HashMap<String, String>, limit: f64) -> Result<Connection> {
    let unreachable = |why: &str| {
        let (code, why) = parted(why);
        Error::Unreachable { server: server.into(), code, why }
    };
    let connection =
        Connection::start_params(parameters, false).map_err(|error| unreachable(&error.to_string()))?;
    // Only verbose messages contain the SQLSTATE.
    connection.set_error_verbosity(Verbosity::Verbose);
    ignore_notices(&connection);
    let began = Instant::now();
    let mut next = Status::Writing;
    while began.elapsed().as_secs_f64() < limit {
        go_on()?;
        if !is_ready(&connection, next) {
            continue;
        }
        match connection.poll() {
            Status::Ok => {
                connection.set_error_verbosity(Verbosity::Default);
                // A server may stop reading what is sent to it.
                connection.set_non_blocking(true).map_err(|error| unreachable(&error.to_string()))?;
                return Ok(connection);
            }
            Status::Failed => return Err(unreachable(connection.error_message().unwrap_or("no message"))),
            status => next = status,
        }
    }
    Err(Error::late(server, limit))
}

/// Has the server give up the statement that runs in a session. It does not keep this program waiting for long.
pub fn cancel(connection: &Connection) {
    let request = connection.cancel();
    let _ = in_thread(move || request.request().is_ok()).recv_timeout(Duration::from_secs(3));
}

struct Whole<T>(T);
// SAFETY: only one thread at a time uses what libpq has made, and libpq allows that.
#[allow(unsafe_code)]
unsafe impl<T> Send for Whole<T> {}

/// Uses libpq in a thread, which may go on after the program has given up.
fn in_thread<T: 'static>(work: impl FnOnce() -> T + 'static) -> Receiver<Whole<T>> {
    let ((sent, received), work) = (mpsc::channel(), Whole(work));
    thread::spawn(move || {
        let whole = work;
        sent.send(Whole((whole.0)()))
    });
    received
}

/// Splits a verbose message of libpq into the SQLSTATE, if it has one, and the message in its default form.
fn parted(text: &str) -> (String, String) {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("LOCATION:")).collect();
    let text = lines.join("\n");
    if let Some((before, after)) = text.split_once(":  ")
        && let Some((code, message)) = after.split_once(": ")
        && code.len() == 5
    {
        return (code.into(), format!("{before}: {message}"));
    }
    (String::new(), text)
}

/// libpq would print notices to standard error. Sessions ask for none, so only a hostile server would send one.
#[allow(unsafe_code)]
fn ignore_notices(connection: &Connection) {
    unsafe extern "C" fn ignore(_: *mut c_void, _: *const c_char) {}
    // SAFETY: the function does not use its arguments.
    unsafe { connection.set_notice_processor(Some(ignore), std::ptr::null_mut()) };
}

/// Waits a moment for the socket, and returns whether libpq can go on.
#[allow(unsafe_code)]
fn is_ready(connection: &Connection, next: Status) -> bool {
    // Without a socket, the next step fails and says why.
    let Ok(socket) = connection.socket() else { return true };
    let event = if next == Status::Reading { PollFlags::POLLIN } else { PollFlags::POLLOUT };
    // SAFETY: the socket stays open as long as the connection, which is borrowed.
    let socket = unsafe { BorrowedFd::borrow_raw(socket) };
    poll(&mut [PollFd::new(socket, event)], 50_u8).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    /// Promise: refusals are recognized by their SQLSTATE, and shown as libpq shows them by default.
    #[test]
    fn the_sqlstate_is_read() {
        let parted = |text: &str| super::parted(text);
        assert_eq!(
            parted(
                "connection to server at \"h\" failed: FATAL:  3D000: no database: b\nLOCATION:  InitPostgres, a.c:1\n"
            ),
            ("3D000".into(), "connection to server at \"h\" failed: FATAL: no database: b".into())
        );
        assert_eq!(parted("refused:  it is"), (String::new(), "refused:  it is".into()));
    }
}
