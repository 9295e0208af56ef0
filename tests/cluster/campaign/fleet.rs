//! A fleet: a primary, its standbys, and clients of both.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use promises::{ClockSet, Event, History};

use crate::campaign::faults::{self, Fault, Heal, Struck};
use crate::campaign::journal::{Reader, Writer};
use crate::campaign::mutations::Pair;
use crate::campaign::sessions::{Journals, ROWS, Sessions, Work};
use crate::moment::{Moment, now};
use crate::process::preloads;
use crate::server::link::Link;
use crate::server::{Build, Server, if_preloaded};

/// The standbys for which commits of the primary wait: `synchronous_standby_names`.
pub struct Names {
    /// `FIRST` or `ANY`.
    kind: &'static str,
    /// How many standbys must acknowledge.
    number: usize,
    /// Their places in [`Fleet::standbys`].
    of: Vec<usize>,
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} {} of {:?}", self.kind, self.number, self.of)
    }
}

pub struct Standby {
    pub server: Server,
    pub name: String,
    /// Its link to the server that it follows.
    pub link: Arc<Link>,
}

/// The settings of idgen on all servers of fleets.
fn settings() -> &'static [&'static str] {
    if_preloaded(&["idgen.epoch = '2024-01-01T00:00:00Z'", "idgen.reserve_ahead = 200ms"])
}

/// 2025-01-01, the default of the epoch.
const DEFAULT_EPOCH: Event = Event::Epoch { unix_ms: 1_735_689_600_000 };

/// A fleet. All that a fault learns from it, except for results of servers, follows from the seed.
pub struct Fleet {
    pub rng: Rng,
    pub primary: Server,
    pub standbys: Vec<Standby>,
    /// `None` if commits wait for no standby.
    pub names: Option<Names>,
    /// Clients of the primary, which are moved to the next one at a failover.
    pub clients: Sessions,
    /// A client whose statements take seconds, and in which a session does not read its configuration.
    long: Option<Sessions>,
    /// Clients of promoted servers, which mint while the old primary does.
    beside: Vec<Sessions>,
    /// The faults that last until the round ends.
    pub lasting: Vec<(&'static str, Heal)>,
    /// The faults since the fleet was last healthy.
    window: Option<Window>,
    /// The faults that may strike; an empty list means all.
    pub only: &'static [&'static str],
    /// The number of successions to a server that may lack acknowledged data.
    pub losses: usize,
    /// The number of standbys that the fleet has had so far.
    named: usize,
    folder: PathBuf,
    pub journals: Journals,
    /// The events in the journal, such as a setting before a fault changes it.
    pub events: Writer,
    reader: Reader,
    /// The servers that clients have been sent to, and the settings of their clocks.
    clocks: Vec<ClockLog>,
    pub history: History,
}

/// A server's number, the settings of its clock, and the number of these that the journal has.
type ClockLog = (usize, Arc<Mutex<Vec<ClockSet>>>, usize);

struct Window {
    from: Moment,
    struck: Vec<String>,
    allows: Vec<String>,
}

impl Fleet {
    /// Starts a fleet, and keeps its journal in a folder. The program may have an error that faults have to find.
    pub fn new(seed: u64, folder: &Path, wrong: Option<&Pair>) -> Fleet {
        let mut rng = Rng::with_seed(seed);
        let max_wait = format!("idgen.max_wait = {}", [3000, 6000][rng.usize(0..2)]);
        let mutation = format!("idgen.mutation = '{}'", wrong.map_or("", |pair| pair.mutation));
        let mut settings = settings().to_vec();
        settings.extend([
            max_wait.as_str(),
            "max_prepared_transactions = 20",
            // For subscribers.
            "wal_level = logical",
            "jit = off",
            // For pg_rewind.
            "wal_log_hints = on",
            // A cut network may delay a shutdown by this time.
            "wal_sender_timeout = 5s",
            "wal_receiver_timeout = 5s",
        ]);
        // Half of the fleets run the release. The others have points at which a renewing backend can die.
        let mut build = if rng.bool() { Build::Release } else { Build::Faults };
        if wrong.is_some() {
            build = Build::Faults;
            settings.push(&mutation);
        }
        let primary = Server::start_on_disk(build, &settings);
        primary.run(ROWS);
        std::fs::create_dir_all(folder).expect("a folder for the journal");
        let journals = Journals::new(folder);
        let mut fleet = Fleet {
            clients: Sessions::start(&[], &journals, &primary, &mut rng),
            standbys: Vec::new(),
            names: None,
            long: None,
            beside: Vec::new(),
            lasting: Vec::new(),
            window: None,
            only: wrong.map_or(&[], |pair| pair.faults),
            losses: 0,
            named: 0,
            folder: folder.to_owned(),
            events: Writer::create(&folder.join("events.jsonl")),
            reader: Reader::new(folder),
            clocks: vec![(primary.number(), primary.clock_log(), 0)],
            history: History::default(),
            journals,
            primary,
            rng,
        };
        if !preloads() {
            fleet.events.write(&DEFAULT_EPOCH);
        }
        let standbys = [0, 1, 1, 2][fleet.rng.usize(0..4)];
        let standbys = wrong.map_or(standbys, |pair| pair.standbys);
        (0..standbys).for_each(|_| fleet.attach());
        if standbys > 0 {
            let names = fleet.draw_names();
            fleet.make_synchronous(names);
        }
        let work = [Work::Mint, Work::Mint, Work::Mint, Work::Follow];
        fleet.clients = Sessions::start(&work, &fleet.journals, &fleet.primary, &mut fleet.rng);
        fleet
    }

    pub fn attach(&mut self) {
        self.named += 1;
        let (name, link) = (format!("twin{}", self.named), Arc::new(Link::to(&self.primary)));
        self.standbys.push(Standby { server: self.primary.standby_by(&link.host(), &name), name, link });
    }

    /// Gives all standbys a new copy of the primary.
    pub fn copy_anew(&mut self) {
        for Standby { server, name, link } in std::mem::take(&mut self.standbys) {
            drop(server);
            link.lead_to(&self.primary);
            let server = self.primary.standby_by(&link.host(), &name);
            self.standbys.push(Standby { server, name, link });
        }
    }

    pub fn draw_names(&mut self) -> Names {
        let kind = if self.rng.bool() { "FIRST" } else { "ANY" };
        let mut of: Vec<_> = (0..self.standbys.len()).collect();
        self.rng.shuffle(&mut of);
        of.truncate(self.rng.usize(1..=of.len()));
        let number = if self.rng.u8(0..3) == 0 { of.len() } else { 1 };
        Names { kind, number, of }
    }

    /// Makes commits wait for these standbys from now on. When this returns, they have caught up.
    pub fn make_synchronous(&mut self, names: Names) {
        let list: Vec<_> = names.of.iter().map(|place| self.standbys[*place].name.as_str()).collect();
        let setting = format!("{} {} ({})", names.kind, names.number, list.join(", "));
        self.primary.make_synchronous_as(&setting, &list);
        self.names = Some(names);
    }

    pub fn make_asynchronous(&mut self) {
        self.names = None;
        self.primary.make_asynchronous();
    }

    /// Waits until a client is in the middle of a long statement.
    pub fn until_in_a_long_statement(&mut self) {
        if self.long.is_none() {
            // A backend that waits for standbys keeps the task of renewing. One of several will get it.
            let work = [Work::MintForLong; 4];
            self.long = Some(Sessions::start(&work, &self.journals, &self.primary, &mut self.rng));
        }
        self.primary.wait_until(
            "SELECT count(*) > 0 FROM pg_stat_activity
             WHERE state = 'active' AND query LIKE '%pg_sleep%' AND pid <> pg_backend_pid()",
        );
    }

    /// Pauses the clients until [`Sessions::release`], unless there are others. Returns whether they are paused.
    pub fn hold_clients(&self) -> bool {
        let alone = self.long.is_none() && self.beside.is_empty() && self.lasting.is_empty();
        if alone {
            self.clients.hold();
        }
        alone
    }

    /// Sends all clients to another server, once they are cut off from theirs.
    pub fn move_clients(&mut self, server: &Server) {
        self.know(server);
        let clients = [&self.clients].into_iter().chain(&self.long).chain(&self.beside);
        clients.for_each(|clients| clients.move_to(server));
    }

    /// Starts clients that mint on this server until the round ends, while the others do on the old primary.
    pub fn start_beside(&mut self, count: usize, server: &Server) {
        self.know(server);
        let work = vec![Work::Mint; count];
        self.beside.push(Sessions::start(&work, &self.journals, server, &mut self.rng));
    }

    /// Starts a client that stays with the primary; the caller ends it.
    pub fn start_apart(&mut self, work: Work) -> Sessions {
        Sessions::start(&[work], &self.journals, &self.primary, &mut self.rng)
    }

    /// Starts a server outside the fleet, of the same program, with more lines in its configuration.
    pub fn start_another(&self, lines: &[&str]) -> Server {
        let mutation: Option<String> = self.primary.answer("SELECT current_setting('idgen.mutation', true)");
        let mutation = mutation.map(|mutation| format!("idgen.mutation = '{mutation}'"));
        let lines: Vec<_> = settings().iter().chain(lines).copied().chain(mutation.as_deref()).collect();
        Server::start_build(self.primary.build(), &lines)
    }

    /// Starts a client of a server outside the fleet.
    pub fn start_on(&mut self, server: &Server, work: Work) -> Sessions {
        self.know(server);
        Sessions::start(&[work], &self.journals, server, &mut self.rng)
    }

    /// Starts a client of the primary that mints until the round ends in long runs, with nothing else to do.
    pub fn start_busy(&mut self) {
        let busy = self.start_apart(Work::MintBusily);
        self.beside.push(busy);
    }

    pub fn lasts(&self, name: &str) -> bool {
        self.lasting.iter().any(|(lasting, _)| *lasting == name)
    }

    /// Lets a server take over from the primary, and returns the old one. `keeps_all` means that the server has every
    /// row and mark acknowledged to a client, as a synchronous standby has, but perhaps not an asynchronous one or a
    /// backup.
    pub fn hand_over(&mut self, to: Server, keeps_all: bool) -> Server {
        self.losses += usize::from(!keeps_all);
        self.know(&to);
        let (server, from) = (to.number(), self.primary.number());
        self.events.write(&Event::Succession { at: now(), server, from, keeps_all });
        std::mem::replace(&mut self.primary, to)
    }

    /// The primary and its standbys.
    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        self.standbys.iter().map(|standby| &standby.server).chain([&self.primary])
    }

    /// Sleeps for a random number of milliseconds.
    pub fn pause(&mut self, ms: std::ops::Range<u64>) {
        thread::sleep(Duration::from_millis(self.rng.u64(ms)));
    }

    /// Records the clock of a server that clients may use.
    fn know(&mut self, server: &Server) {
        if self.clocks.iter().all(|(number, ..)| *number != server.number()) {
            self.clocks.push((server.number(), server.clock_log(), 0));
        }
    }

    /// Lets two to five faults strike while clients work. Returns the faults, whether each has struck, and the broken
    /// promises.
    pub fn round(&mut self) -> (Vec<(&'static str, bool)>, Vec<String>) {
        self.clients.wait_for_answers(20);
        for standby in &self.standbys {
            standby.server.refuses();
        }
        let mut outcomes = Vec::new();
        for _ in 0..self.rng.usize(2..=5) {
            let Some(fault) = faults::draw(self) else { break };
            outcomes.push((fault.name, self.strike(fault)));
            if self.lasting.is_empty() {
                self.until_healthy();
            }
        }
        while let Some((_, heal)) = self.lasting.pop() {
            heal(self);
        }
        self.until_healthy();
        let others: Vec<_> = self.long.take().into_iter().chain(self.beside.drain(..)).collect();
        others.iter().for_each(Sessions::stop);
        self.clients.wait_for_answers(20);
        others.into_iter().for_each(Sessions::finish);
        (outcomes, self.check())
    }

    fn strike(&mut self, fault: &'static Fault) -> bool {
        let from = now();
        let window =
            self.window.get_or_insert_with(|| Window { from, struck: Vec::new(), allows: Vec::new() });
        window.allows.extend(fault.allows.iter().copied().flatten().map(|&begin| begin.to_owned()));
        let (struck, how) = match (fault.strike)(self) {
            Struck::Done(how) => (true, how),
            Struck::Lasting(how, heal) => {
                self.lasting.push((fault.name, heal));
                (true, how)
            }
            Struck::Skipped(why) => (false, format!("skipped, {why}")),
        };
        self.window.as_mut().expect("a window").struck.push(format!("{}: {how}", fault.name));
        struck
    }

    /// Waits until the primary accepts connections and the standbys have caught up: from here on no call may be
    /// refused.
    fn until_healthy(&mut self) {
        let names: Vec<_> = self.standbys.iter().map(|standby| standby.name.as_str()).collect();
        // The postmaster may not have noticed yet that one of its processes has died.
        while !self.primary.is_steady() {}
        self.primary.until_followed(&names);
        if let Some(Window { from, struck, allows }) = self.window.take() {
            self.events.write(&Event::Faults { from, to: now(), struck, allows });
        }
    }

    /// Judges the results since the last round while the clients are idle.
    fn check(&mut self) -> Vec<String> {
        self.clients.hold();
        let ids = self.primary.value("SELECT coalesce(array_agg(id), '{}') FROM rows");
        self.events.write(&Event::Rows { ids });
        for (server, log, written) in &mut self.clocks {
            let log = log.lock().expect("clock");
            for &set in &log[*written..] {
                self.events.write(&Event::Clock { server: *server, set });
            }
            *written = log.len();
        }
        let (records, events) = (self.reader.more("client"), self.reader.more("events"));
        let broken = self.history.round(records, &events);
        self.clients.release();
        broken.into_iter().map(|broken| broken.text).collect()
    }

    /// Ends a fleet that has kept all promises.
    pub fn end(self) {
        self.clients.finish();
        std::fs::remove_dir_all(self.folder).expect("the journal");
    }
}
