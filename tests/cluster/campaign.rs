//! Promise 1 under faults drawn at random: `make faults ROUNDS=… SEED=…`.

use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use postgres::Client;

use crate::clients::{Clients, Ledger};
use crate::process::number_variable;
use crate::server::{Build, Server};

/// A primary and, in half of the worlds, a synchronous standby.
struct World {
    primary: Server,
    standby: Option<Server>,
    name: usize,
    /// A client whose statements take seconds, and in which a session does not read its configuration.
    long: Option<Clients>,
    /// Clients of promoted servers, which mint while the old primary does.
    beside: Vec<Clients>,
}

impl World {
    fn new(rng: &mut Rng) -> World {
        let settings = ["idgen.max_wait = 300ms", "idgen.reserve_ahead = 200ms"];
        let primary = Server::start_build(Build::Faults, &settings);
        let mut world = World { primary, standby: None, name: 0, long: None, beside: Vec::new() };
        if rng.bool() {
            world.attach();
        }
        world
    }

    /// Gives the primary a new synchronous standby.
    fn attach(&mut self) {
        self.name += 1;
        let name = format!("twin{}", self.name);
        self.standby = Some(self.primary.standby(&name));
        self.primary.make_synchronous(&name);
    }

    /// Takes the synchronous standby's name away and sets it again, each under statements that go on minting.
    fn switch_names(&mut self, rng: &mut Rng) {
        // The server may be about to restart after the death of a backend.
        thread::sleep(Duration::from_millis(300));
        self.primary.reconnect();
        self.primary.make_asynchronous();
        self.long.get_or_insert_with(|| Clients::start_by(1, &self.primary, mint_for_long));
        self.primary.wait_until(
            "SELECT count(*) > 0 FROM pg_stat_activity
             WHERE state = 'active' AND query LIKE '%pg_sleep%' AND pid <> pg_backend_pid()",
        );
        thread::sleep(Duration::from_millis(rng.u64(0..1000)));
        self.primary.make_synchronous(&format!("twin{}", self.name));
    }

    /// One fault, with clients at work; says which it was. The clock is right again at the end.
    fn fault(&mut self, rng: &mut Rng, clients: &Clients) -> String {
        let kinds = if self.standby.is_some() { 17 } else { 8 };
        match rng.usize(0..kinds) {
            0 => {
                let back = self.downtime_step(rng);
                self.primary.kill();
                self.start_again(back);
                format!("kill -9 of the postmaster, clock {back:+} s")
            }
            1 => {
                let back = self.downtime_step(rng);
                self.primary.stop("immediate");
                self.start_again(back);
                format!("immediate shutdown, clock {back:+} s")
            }
            2 => {
                // A fast shutdown that comes while PostgreSQL restarts after the death of a backend never ends:
                // it waits for the checkpointer of the recovery, and does not tell it.
                thread::sleep(Duration::from_millis(100));
                self.primary.reconnect();
                self.primary.stop("fast");
                self.start_again(0.0);
                "restart".into()
            }
            3 => {
                let mut client = self.primary.reconnect();
                let sql =
                    "SELECT pid FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid()";
                let pid = client.query(sql, &[]).ok().and_then(|rows| rows.first().map(|row| row.get(0)));
                if let Some(pid) = pid {
                    self.primary.signal_if_there("KILL", pid);
                }
                "kill -9 of a backend".into()
            }
            4 | 5 => {
                let step = [-0.001, -0.02, -0.5, -1.5, -3600.0, 0.3, 1.5][rng.usize(0..7)];
                self.primary.set_clock(step);
                thread::sleep(Duration::from_millis(rng.u64(50..600)));
                self.primary.set_clock(0.0);
                format!("clock {step:+} s and back")
            }
            6 | 7 => {
                let point = ["before-wal", "after-insert", "after-flush", "before-publish"][rng.usize(0..4)];
                let how = ["kill", "terminate", "error"][rng.usize(0..3)];
                let mut client = self.primary.reconnect();
                let _ = client.batch_execute(&format!("SET idgen.fault = '{point} {how}'"));
                let start = Instant::now();
                while start.elapsed() < Duration::from_secs(2)
                    && client.batch_execute("SELECT snowflake_next_id(900)").is_ok()
                {}
                format!("{how} of a renewing backend {point}")
            }
            8 => {
                let standby = self.standby.as_ref().expect("a standby");
                standby.stop("immediate");
                thread::sleep(Duration::from_millis(rng.u64(0..800)));
                standby.up();
                "the standby goes and comes back".into()
            }
            9 => {
                self.switch_names(rng);
                "synchronous names taken away and set under long statements".into()
            }
            10..=12 => {
                self.switch_names(rng);
                let failover = self.fail_over(rng, clients);
                format!("synchronous names taken away and set under long statements, then {failover}")
            }
            _ => self.fail_over(rng, clients),
        }
    }

    /// Promotes the synchronous standby.
    fn fail_over(&mut self, rng: &mut Rng, clients: &Clients) -> String {
        let standby = self.standby.take().expect("a standby");
        let step = [0.0, -0.3, -1.0, 0.5][rng.usize(0..4)];
        let alive = rng.bool();
        standby.set_clock(step);
        if !alive {
            self.primary.kill();
        }
        standby.promote();
        standby.make_asynchronous();
        for clients in [clients].into_iter().chain(&self.long).chain(&self.beside) {
            clients.move_to(&standby);
        }
        // Alive, the old primary goes on within its window until it is shut off.
        if alive {
            self.beside.push(Clients::start(2, &standby));
        }
        thread::sleep(Duration::from_millis(rng.u64(0..1500)));
        let _old = std::mem::replace(&mut self.primary, standby);
        self.primary.set_clock(0.0);
        let state = if alive { "alive" } else { "dead" };
        format!("failover, the old primary {state}, clock {step:+} s")
    }

    /// How far the clock is set while the server is down.
    fn downtime_step(&self, rng: &mut Rng) -> f64 {
        [0.0, 0.0, -0.5, -2.0, -86400.0, 2.0][rng.usize(0..6)]
    }

    fn start_again(&self, step: f64) {
        self.primary.set_clock(step);
        self.primary.up();
        if step != 0.0 {
            thread::sleep(Duration::from_millis(300));
            self.primary.set_clock(0.0);
        }
    }
}

/// A statement that lasts longer than a server takes to make a standby synchronous.
fn mint_for_long(client: &mut Client, round: usize) -> Result<Vec<i64>, postgres::Error> {
    let sql = "SELECT snowflake_next_id(($1 + n) % 4), pg_sleep(0.02) FROM generate_series(1, 400) AS n";
    Ok(client.query(sql, &[&(round as i32)])?.iter().map(|row| row.get(0)).collect())
}

#[test]
fn random_faults() {
    let rounds = number_variable("ROUNDS").unwrap_or(6);
    let seed = number_variable("SEED").unwrap_or_else(|| fastrand::u64(..1 << 32));
    println!("to replay: make faults ROUNDS={rounds} SEED={seed}");
    let mut rng = Rng::with_seed(seed);
    let mut ledger = Ledger::default();
    let mut faults = 0;
    let mut world = World::new(&mut rng);
    for round in 1..=rounds {
        // Ids of different clusters may be the same: a ledger is for one world.
        if round % 20 == 0 {
            world = World::new(&mut rng);
            ledger.start_anew();
        }
        let clients = Clients::start_with_runs(4, &world.primary, 4000);
        clients.wait_for_ids(20_000);
        for _ in 0..rng.usize(1..3) {
            let fault = world.fault(&mut rng, &clients);
            faults += 1;
            println!("round {round}/{rounds}, {} ids: {fault}", ledger.given());
        }
        clients.wait_for_ids(20_000);
        clients.finish(&mut ledger);
        for clients in world.long.take().into_iter().chain(world.beside.drain(..)) {
            clients.finish(&mut ledger);
        }
        if world.standby.is_none() && world.name > 0 {
            world.attach();
        }
    }
    let (ids, repeats) = (ledger.given(), ledger.repeats());
    println!("{rounds} rounds, {faults} faults, {ids} ids, {repeats} repeats, seed {seed}");
    println!("calls refused or cut off: {:#?}", ledger.errors);
}
