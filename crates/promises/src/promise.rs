//! What can be broken, and who shows it.

use std::fmt;

/// A promise of docs/guarantees.md, or a condition that one rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// 1: no id is minted twice.
    NoIdTwice,
    /// 1: a server begins above all ids of the one from which it took over.
    Takeover,
    /// 1: a server that takes a shard over mints after everything that the server that closed it mints.
    Moved,
    /// 1: an id is below the limit, which is durable here, and on the standbys if commits wait for them.
    Limit,
    /// An id is of the requested shard.
    Shard,
    /// 2: ids of a session increase.
    SessionOrder,
    /// 2: an id is greater than those of calls that ended in an earlier millisecond or in earlier incarnations, and
    /// than ids passed over.
    Order,
    /// 3: the time in an id is not before its call, and not too far ahead of the clock.
    Time,
    /// 4: a call is refused only for a reason that exists, and waits no longer than it may.
    Availability,
    /// 4: no backend renews the mark while another one does.
    OneRenews,
    /// 6: every id below a horizon is of a transaction that has ended, and none is minted there.
    Settled,
    /// 6: the horizon never goes back.
    NeverBack,
    /// A row exists if its commit was acknowledged.
    Kept,
}

/// A broken promise, and the calls that show it.
#[derive(Clone, Debug)]
pub struct Broken {
    pub promise: Promise,
    pub text: String,
}

/// The session that made a call, and the time of the call, in microseconds from an arbitrary moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    pub server: usize,
    pub session: u64,
    pub begun_us: u64,
    pub ended_us: u64,
}

impl Caller {
    /// The session of a row whose client received no answer.
    pub const UNKNOWN: u64 = u64::MAX;
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Caller { server, session, begun_us, ended_us } = self;
        match *session {
            Caller::UNKNOWN => write!(f, "a session that had no answer"),
            session => write!(f, "session {session} on server {server}, {begun_us} to {ended_us} us"),
        }
    }
}
