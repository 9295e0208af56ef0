//! The link from a standby to the server that it follows, which can be cut in one or both directions, and healed.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use crate::server::Server;
use crate::server::socket::{SOCKET, Socket};

/// A direction of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The WAL.
    ToStandby = 0,
    /// The positions that the standby reports.
    ToPrimary = 1,
}

/// What happens to the bytes of a direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flow {
    #[default]
    Passes,
    /// Each piece arrives so much later.
    Late(Duration),
    /// Nothing arrives, and neither side notices.
    Held,
}

/// A socket to which a standby connects, and the threads that forward the traffic to the server at the other end.
pub struct Link {
    shared: Arc<Shared>,
    socket: Socket,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The socket of the server at the other end; `None` if there is none.
    server: Option<PathBuf>,
    /// Whether connections are refused.
    broken: bool,
    flows: [Flow; 2],
    /// How many pieces were held or late.
    caught: [usize; 2],
    open: BTreeMap<usize, [UnixStream; 2]>,
    connections: usize,
    ended: bool,
}

impl Link {
    pub fn to(server: &Server) -> Link {
        let shared = Arc::new(Shared {
            state: Mutex::new(State { server: Some(server.sockets.join(SOCKET)), ..State::default() }),
            changed: Condvar::new(),
        });
        let socket = Socket::open({
            let shared = shared.clone();
            move |standby| shared.accept(&standby)
        });
        Link { shared, socket }
    }

    /// The host by which a standby reaches the server at the other end.
    pub fn host(&self) -> String {
        self.socket.host()
    }

    /// Leads to this server from now on; data in flight is lost.
    pub fn lead_to(&self, server: &Server) {
        self.change(|state| state.server = Some(server.sockets.join(SOCKET)));
        self.lose();
    }

    /// Leads to no server from now on; data in flight is lost.
    pub fn cut_off(&self) {
        self.change(|state| state.server = None);
        self.lose();
    }

    /// Breaks all connections and refuses new ones, or accepts them again.
    pub fn set_broken(&self, broken: bool) {
        self.change(|state| state.broken = broken);
        if broken {
            self.lose();
        }
    }

    /// Sets what happens to the bytes of a direction, and counts the bytes affected from then on.
    pub fn set_flow(&self, direction: Direction, flow: Flow) {
        self.change(|state| {
            state.flows[direction as usize] = flow;
            state.caught[direction as usize] = 0;
        });
    }

    /// Drops data in flight and all connections.
    pub fn lose(&self) {
        self.change(|state| {
            for stream in std::mem::take(&mut state.open).into_values().flatten() {
                let _ = stream.shutdown(Shutdown::Both);
            }
        });
    }

    /// Waits until something has been held or late since the flow of this direction was set.
    pub fn until_caught(&self, direction: Direction) {
        let nothing = |state: &mut State| state.caught[direction as usize] == 0;
        let limit = Duration::from_secs(60);
        let state = self.shared.changed.wait_timeout_while(self.shared.state(), limit, nothing);
        assert!(!state.expect("a link").1.timed_out(), "nothing is sent {direction:?}");
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.shared.state());
        self.shared.changed.notify_all();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.change(|state| state.ended = true);
        self.lose();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("a link")
    }

    /// Connects a standby; false when the link has ended.
    fn accept(self: &Arc<Self>, standby: &UnixStream) -> bool {
        let mut state = self.state();
        if state.ended {
            return false;
        }
        let Some(primary) = state.server.as_ref().filter(|_| !state.broken).map(UnixStream::connect) else {
            return true;
        };
        let Ok(primary) = primary else { return true };
        state.connections += 1;
        let number = state.connections;
        let ends = || [&primary, standby].map(|stream| stream.try_clone().expect("a stream"));
        state.open.insert(number, ends());
        let [from_primary, to_standby] = ends();
        let [to_primary, from_standby] = ends();
        for (from, to, direction) in [
            (from_primary, to_standby, Direction::ToStandby),
            (from_standby, to_primary, Direction::ToPrimary),
        ] {
            let shared = self.clone();
            thread::spawn(move || shared.carry(number, from, to, direction));
        }
        true
    }

    /// Forwards data until one side or the link ends the connection.
    fn carry(&self, number: usize, mut from: UnixStream, mut to: UnixStream, direction: Direction) {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(length @ 1..) = from.read(&mut bytes) {
            if !self.lets_pass(number, direction) || to.write_all(&bytes[..length]).is_err() {
                break;
            }
        }
        for stream in self.state().open.remove(&number).into_iter().flatten() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Waits until a piece of data may be forwarded; false if it is lost.
    fn lets_pass(&self, number: usize, direction: Direction) -> bool {
        let mut state = self.state();
        let flow = state.flows[direction as usize];
        if flow != Flow::Passes {
            state.caught[direction as usize] += 1;
            self.changed.notify_all();
        }
        if let Flow::Late(time) = flow {
            drop(state);
            thread::sleep(time);
            state = self.state();
        }
        while state.flows[direction as usize] == Flow::Held && state.open.contains_key(&number) {
            state = self.changed.wait(state).expect("a link");
        }
        state.open.contains_key(&number)
    }
}
