//! A primary, its standbys, and clients of both.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use postgres::Client;

use crate::campaign::faults::{self, Heal, Struck};
use crate::clients::{Clients, Ledger};
use crate::server::link::Link;
use crate::server::{Build, Server};

/// What the primary waits for at a commit: `synchronous_standby_names`.
pub struct Names {
    /// `FIRST` or `ANY`.
    kind: &'static str,
    /// How many standbys have to have it.
    number: usize,
    /// Of these places in [`World::standbys`].
    of: Vec<usize>,
}

impl Names {
    /// Draws some of so many standbys.
    fn draw(rng: &mut Rng, standbys: usize) -> Names {
        let kind = if rng.bool() { "FIRST" } else { "ANY" };
        let mut of: Vec<_> = (0..standbys).collect();
        rng.shuffle(&mut of);
        of.truncate(rng.usize(1..=standbys));
        let number = if rng.u8(0..3) == 0 { of.len() } else { 1 };
        Names { kind, number, of }
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} {} of {:?}", self.kind, self.number, self.of)
    }
}

/// A standby of the world's primary.
pub struct Standby {
    pub server: Server,
    /// Its application_name.
    pub name: String,
    /// How it reaches what it follows.
    pub link: Arc<Link>,
}

/// A world. What a fault is told of it, apart from its servers' answers, follows from the seed.
pub struct World {
    pub rng: Rng,
    pub primary: Server,
    pub standbys: Vec<Standby>,
    /// None where commits wait for nothing.
    pub names: Option<Names>,
    /// Clients of the primary, which are moved to the next one at a failover.
    pub clients: Option<Clients>,
    /// A client whose statements take seconds, and in which a session does not read its configuration.
    pub long: Option<Clients>,
    /// Clients of promoted servers, which mint while the old primary does.
    pub beside: Vec<Clients>,
    /// The faults that last until the round ends.
    pub lasting: Vec<(&'static str, Heal)>,
    /// How many standbys there have been.
    named: usize,
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut rng = Rng::with_seed(seed);
        let settings = [
            "idgen.max_wait = 300ms",
            "idgen.reserve_ahead = 200ms",
            // For pg_rewind.
            "wal_log_hints = on",
            // A network that is cut may hold up a shutdown for so long.
            "wal_sender_timeout = 5s",
            "wal_receiver_timeout = 5s",
        ];
        // Half of the worlds run what users get. The others have the points at which a renewing backend dies.
        let build = if rng.bool() { Build::Release } else { Build::Faults };
        let mut world = World {
            primary: Server::start_on_disk(build, &settings),
            standbys: Vec::new(),
            names: None,
            clients: None,
            long: None,
            beside: Vec::new(),
            lasting: Vec::new(),
            named: 0,
            rng,
        };
        let standbys = [0, 1, 1, 2][world.rng.usize(0..4)];
        (0..standbys).for_each(|_| world.attach());
        if standbys > 0 {
            let names = world.draw_names();
            world.make_synchronous(names);
        }
        world
    }

    /// Gives the primary a new standby.
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

    /// Names some of the standbys.
    pub fn draw_names(&mut self) -> Names {
        Names::draw(&mut self.rng, self.standbys.len())
    }

    /// Commits wait for these standbys from now on, which have caught up when this returns.
    pub fn make_synchronous(&mut self, names: Names) {
        let list: Vec<_> = names.of.iter().map(|place| self.standbys[*place].name.as_str()).collect();
        let setting = format!("{} {} ({})", names.kind, names.number, list.join(", "));
        self.primary.make_synchronous_as(&setting, &list);
        self.names = Some(names);
    }

    /// Commits wait for nothing any more.
    pub fn make_asynchronous(&mut self) {
        self.names = None;
        self.primary.make_asynchronous();
    }

    /// Waits until the client with long statements is in the midst of one.
    pub fn until_in_a_long_statement(&mut self) {
        self.long.get_or_insert_with(|| Clients::start_by(1, &self.primary, mint_for_long));
        self.primary.wait_until(
            "SELECT count(*) > 0 FROM pg_stat_activity
             WHERE state = 'active' AND query LIKE '%pg_sleep%' AND pid <> pg_backend_pid()",
        );
    }

    /// Sends all clients to another server, once they are cut off from theirs.
    pub fn move_clients(&self, server: &Server) {
        self.clients.iter().chain(&self.long).chain(&self.beside).for_each(|clients| clients.move_to(server));
    }

    /// Starts clients that mint on this server until the round ends, while the others do on the old primary.
    pub fn start_beside(&mut self, count: usize, server: &Server) {
        self.beside.push(Clients::start(count, server));
    }

    /// A server takes over from the primary, which is returned. `keeps_all` says that it has every row and every mark
    /// that was acknowledged to a client, as a synchronous standby has, and an asynchronous one or a restored backup
    /// may not.
    pub fn hand_over(&mut self, to: Server, _keeps_all: bool) -> Server {
        std::mem::replace(&mut self.primary, to)
    }

    /// The primary and its standbys.
    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        self.standbys.iter().map(|standby| &standby.server).chain([&self.primary])
    }

    /// Sleeps for a time that is drawn, in milliseconds.
    pub fn pause(&mut self, ms: std::ops::Range<u64>) {
        thread::sleep(Duration::from_millis(self.rng.u64(ms)));
    }

    /// One to three faults on working clients, which work on when these are over; says which they were.
    pub fn round(&mut self, ledger: &mut Ledger) -> Vec<String> {
        let clients = Clients::start_with_runs(4, &self.primary, 4000);
        clients.wait_for_ids(20_000);
        self.clients = Some(clients);
        let mut struck = Vec::new();
        for _ in 0..self.rng.usize(1..=3) {
            let fault = faults::draw(self);
            match (fault.strike)(self) {
                Struck::Done(how) => struck.push(format!("{}: {how}", fault.name)),
                Struck::Lasting(how, heal) => {
                    self.lasting.push((fault.name, heal));
                    struck.push(format!("{}: {how}", fault.name));
                }
                Struck::Skipped(why) => struck.push(format!("{}: skipped, {why}", fault.name)),
            }
        }
        while let Some((_, heal)) = self.lasting.pop() {
            heal(self);
        }
        let clients = self.clients.take().expect("clients");
        clients.wait_for_ids(20_000);
        for clients in [clients].into_iter().chain(self.long.take()).chain(self.beside.drain(..)) {
            clients.finish(ledger);
        }
        struck
    }
}

/// A statement that lasts longer than a server takes to make a standby synchronous.
fn mint_for_long(client: &mut Client, round: usize) -> Result<Vec<i64>, postgres::Error> {
    let sql = "SELECT snowflake_next_id(($1 + n) % 4), pg_sleep(0.02) FROM generate_series(1, 120) AS n";
    Ok(client.query(sql, &[&(round as i32)])?.iter().map(|row| row.get(0)).collect())
}
