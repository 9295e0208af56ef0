//! A relay in front of a server that sees each statement, so that a test can act before the statement or its answer
//! arrives.

use std::io::{self, BufReader, BufWriter, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::server::Server;
use crate::server::socket::{SOCKET, Socket};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Before,
    /// After the server has run it, before the client gets the answer.
    After,
}

/// What becomes of a message that was held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Passes,
    /// Both sides lose the connection.
    Lost,
}

impl From<()> for Fate {
    fn from((): ()) -> Fate {
        Fate::Passes
    }
}

type IsIt = Box<dyn FnMut(&str) -> bool + Send>;

struct Trap {
    when: When,
    is_it: IsIt,
    caught: Sender<()>,
    fate: Receiver<Fate>,
}

/// The test's end of a trap.
pub struct Caught {
    pub caught: Receiver<()>,
    pub fate: Sender<Fate>,
}

/// A socket to which clients connect, and the threads that forward the traffic.
pub struct Relay {
    shared: Arc<Shared>,
    socket: Socket,
}

struct Shared {
    server: PathBuf,
    trap: Mutex<Option<Trap>>,
    ended: AtomicBool,
}

impl Relay {
    pub fn to(server: &Server) -> Relay {
        let shared = Arc::new(Shared {
            server: server.sockets.join(SOCKET),
            trap: Mutex::new(None),
            ended: AtomicBool::new(false),
        });
        let socket = Socket::open({
            let shared = shared.clone();
            move |client| {
                let goes_on = !shared.ended.load(Ordering::Relaxed);
                if goes_on {
                    // Without a server, the client loses the connection.
                    let _ = shared.connect(client);
                }
                goes_on
            }
        });
        Relay { shared, socket }
    }

    /// The connection string of the database `postgres` through the relay.
    pub fn target(&self) -> String {
        format!("host={} user=postgres dbname=postgres", self.socket.host())
    }

    pub fn catch(&self, when: When, is_it: impl FnMut(&str) -> bool + Send + 'static) -> Caught {
        let (tell, caught) = channel();
        let (decide, fate) = channel();
        let trap = Trap { when, is_it: Box::new(is_it), caught: tell, fate };
        *self.shared.trap.lock().expect("a trap") = Some(trap);
        Caught { caught, fate: decide }
    }

    pub fn let_pass(&self) {
        *self.shared.trap.lock().expect("a trap") = None;
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    fn connect(self: &Arc<Self>, client: UnixStream) -> io::Result<()> {
        let server = UnixStream::connect(&self.server)?;
        let ends = [client.try_clone()?, server.try_clone()?];
        let other_ends = [client.try_clone()?, server.try_clone()?];
        // The statement whose answer is to be held.
        let held: Arc<Mutex<Option<Trap>>> = Arc::default();
        let (shared, of_answers) = (self.clone(), held.clone());
        thread::spawn({
            let (client, server) = (client.try_clone()?, server.try_clone()?);
            move || {
                let _ = shared.statements(&client, &server, &held);
                // The server still runs what it has received.
                let _ = ends[1].shutdown(Shutdown::Write);
            }
        });
        thread::spawn(move || {
            let _ = answers(&server, &client, &of_answers);
            for end in &other_ends {
                let _ = end.shutdown(Shutdown::Both);
            }
        });
        Ok(())
    }

    /// Takes the trap if it is for this statement.
    fn caught(&self, text: &str) -> Option<Trap> {
        let mut trap = self.trap.lock().expect("a trap");
        if trap.as_mut().is_some_and(|trap| (trap.is_it)(text)) { trap.take() } else { None }
    }

    fn statements(
        &self,
        client: &UnixStream,
        server: &UnixStream,
        held: &Mutex<Option<Trap>>,
    ) -> io::Result<()> {
        let mut from = BufReader::new(client);
        let mut to = server;
        // The message that begins a connection has no type.
        let first = rest_of_message(&mut from)?;
        to.write_all(&first)?;
        loop {
            let (kind, message) = next_message(&mut from)?;
            let body = &message[5..];
            let texts = || body.split(|byte| *byte == 0).map(String::from_utf8_lossy);
            let text = match kind {
                b'Q' => texts().next(),
                b'P' => texts().nth(1),
                _ => None,
            };
            if let Some(trap) = text.and_then(|text| self.caught(&text)) {
                match trap.when {
                    When::Before => trap.spring()?,
                    When::After => *held.lock().expect("a trap") = Some(trap),
                }
            }
            to.write_all(&message)?;
        }
    }
}

impl Trap {
    fn spring(self) -> io::Result<()> {
        let _ = self.caught.send(());
        match self.fate.recv() {
            Ok(Fate::Lost) => Err(io::ErrorKind::ConnectionReset.into()),
            _ => Ok(()),
        }
    }
}

fn answers(server: &UnixStream, client: &UnixStream, held: &Mutex<Option<Trap>>) -> io::Result<()> {
    let mut from = BufReader::new(server);
    let mut to = BufWriter::new(client);
    loop {
        let (kind, message) = next_message(&mut from)?;
        if kind == b'Z' {
            let trap = held.lock().expect("a trap").take();
            if let Some(trap) = trap {
                trap.spring()?;
            }
        }
        to.write_all(&message)?;
        if from.buffer().is_empty() {
            to.flush()?;
        }
    }
}

/// A message with its type.
fn next_message(from: &mut impl Read) -> io::Result<(u8, Vec<u8>)> {
    let mut kind = [0];
    from.read_exact(&mut kind)?;
    let rest = rest_of_message(from)?;
    Ok((kind[0], [&kind[..], &rest].concat()))
}

/// The length, which includes itself, and what follows.
fn rest_of_message(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let count = (u32::from_be_bytes(length) as usize).saturating_sub(4);
    let mut message = length.to_vec();
    message.resize(4 + count, 0);
    from.read_exact(&mut message[4..])?;
    Ok(message)
}
