//! Clients of a fleet: they request ids, insert rows and read up to the horizon, with pauses in between, and record
//! every result before they continue.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fastrand::Rng;
use postgres::fallible_iterator::FallibleIterator;
use postgres::{Client, Error, NoTls, Row};
use promises::{Answer, Kind, Record, Run};

use crate::campaign::journal::Writer;
use crate::clients::brief;
use crate::moment::{Moment, is_reached, now};
use crate::process::preloads;
use crate::server::Server;

pub const ROWS: &str = "CREATE TABLE rows (id bigint PRIMARY KEY DEFAULT snowflake_next_id(3))";
const SHARD_OF_ROWS: u16 = 3;
/// The number of shards that all clients mint for, and of the shards that get most of the ids.
const SHARDS: u16 = 4;
const BULK_SHARDS: u16 = 64;
/// The shards of a server that mints apart from the primary: the first one, and their number.
pub const SHARDS_APART: (u16, u16) = (1000, 4);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    Mint,
    /// The client mints in a statement that lasts until the client ends.
    MintForLong,
    /// The client mints in long runs.
    MintBusily,
    /// The client mints for [`SHARDS_APART`], and for another shard, which a server with a list refuses.
    MintApart,
    /// The client mints ids of both kinds for one shard.
    MintOf(u16),
    /// The client's backend stops whenever it reaches this point of a renewal.
    StopAt(&'static str),
    /// The client follows the table by the horizon.
    Follow,
}

/// The folder of the clients' files, and the numbers of files and sessions.
#[derive(Clone)]
pub struct Journals {
    folder: PathBuf,
    files: Arc<AtomicU64>,
    sessions: Arc<AtomicU64>,
}

impl Journals {
    pub fn new(folder: &Path) -> Journals {
        Journals { folder: folder.to_owned(), files: Arc::default(), sessions: Arc::default() }
    }

    fn create(&self) -> Writer {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        Writer::create(&self.folder.join(format!("client-{number}.jsonl")))
    }

    /// Records ids that a server has minted since a moment without giving them to a client, in their order.
    pub fn note_minted(&self, server: usize, since: Moment, shards: (u16, u16), ids: &[i64]) {
        self.create().write(&Record {
            session: self.sessions.fetch_add(1, Ordering::Relaxed),
            server,
            statement: "no client's".into(),
            shards,
            heard: since,
            called: since,
            answered: now(),
            answer: Answer::Ids(Run::of(ids, Kind::Plain)),
        });
    }
}

/// The state that the clients of a group share with the fleet.
#[derive(Default)]
struct Group {
    /// The number of the server that the clients connect to, and its address.
    target: Mutex<(usize, String)>,
    stop: AtomicBool,
    hold: AtomicBool,
    held: AtomicUsize,
    answers: AtomicU64,
    trouble: Mutex<String>,
}

impl Group {
    fn lead_to(&self, server: &Server) {
        *self.target.lock().expect("target") = (server.number(), server.target("postgres"));
    }
}

pub struct Sessions {
    group: Arc<Group>,
    threads: Vec<JoinHandle<()>>,
}

impl Sessions {
    /// Starts clients of a server, one for each kind of work given.
    pub fn start(work: &[Work], journals: &Journals, server: &Server, rng: &mut Rng) -> Sessions {
        let group = Arc::<Group>::default();
        group.lead_to(server);
        let threads = work.iter().map(|&work| {
            let client = Session {
                work,
                rng: rng.fork(),
                group: group.clone(),
                journals: journals.clone(),
                file: journals.create(),
                session: 0,
                server: 0,
                heard: now(),
                followed: i64::MIN,
            };
            thread::spawn(move || client.run())
        });
        Sessions { threads: threads.collect(), group }
    }

    /// Sends the clients to another server once they are cut off from theirs.
    pub fn move_to(&self, server: &Server) {
        self.group.lead_to(server);
    }

    /// Waits for this many more answers to clients.
    pub fn wait_for_answers(&self, more: u64) {
        let goal = self.group.answers.load(Ordering::Relaxed) + more;
        self.until("get no answers", |group| group.answers.load(Ordering::Relaxed) >= goal);
    }

    /// Pauses the clients after their current calls until [`Sessions::release`].
    pub fn hold(&self) {
        self.group.hold.store(true, Ordering::SeqCst);
        self.until("do not finish their calls", |group| {
            group.held.load(Ordering::SeqCst) == self.threads.len()
        });
    }

    pub fn release(&self) {
        self.group.hold.store(false, Ordering::SeqCst);
        self.until("do not continue", |group| group.held.load(Ordering::SeqCst) == 0);
    }

    fn until(&self, what: &str, done: impl Fn(&Group) -> bool) {
        let in_time = is_reached(120, || done(&self.group));
        assert!(in_time, "the clients {what}: {}", self.group.trouble.lock().expect("trouble"));
    }

    /// Makes the clients end after their calls.
    pub fn stop(&self) {
        self.group.stop.store(true, Ordering::Relaxed);
        self.group.hold.store(false, Ordering::SeqCst);
    }

    pub fn have_ended(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    pub fn finish(mut self) {
        self.stop();
        for thread in self.threads.drain(..) {
            thread.join().expect("a client");
        }
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Session {
    work: Work,
    rng: Rng,
    group: Arc<Group>,
    journals: Journals,
    file: Writer,
    session: u64,
    server: usize,
    heard: Moment,
    /// The horizon up to which the client has read.
    followed: i64,
}

impl Session {
    fn run(mut self) {
        while self.goes_on() {
            let (server, address) = self.group.target.lock().expect("target").clone();
            self.session = self.journals.sessions.fetch_add(1, Ordering::Relaxed);
            self.server = server;
            let called = now();
            self.heard = called;
            match Client::connect(&address, NoTls) {
                Ok(mut client) => {
                    self.heard = now();
                    while self.goes_on() && !client.is_closed() {
                        self.work(&mut client);
                        let pace = match self.work {
                            Work::Follow | Work::MintBusily => 200..500,
                            Work::StopAt(_) => 1..5,
                            Work::MintOf(_) => 1..20,
                            Work::Mint | Work::MintForLong | Work::MintApart => 40..160,
                        };
                        thread::sleep(Duration::from_millis(self.rng.u64(pace)));
                    }
                }
                Err(error) => {
                    self.refused("connect", called, &error);
                    thread::sleep(Duration::from_millis(self.rng.u64(100..300)));
                }
            }
        }
    }

    /// Whether the client has to continue. Waits while the group is held.
    fn goes_on(&self) -> bool {
        let group = &self.group;
        if group.hold.load(Ordering::SeqCst) {
            group.held.fetch_add(1, Ordering::SeqCst);
            while group.hold.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(5));
            }
            group.held.fetch_sub(1, Ordering::SeqCst);
        }
        !group.stop.load(Ordering::Relaxed)
    }

    fn work(&mut self, client: &mut Client) {
        match self.work {
            Work::Mint => self.mint(client),
            Work::MintForLong => {
                let called = now();
                if let Err(error) = self.mint_for_long(client, called) {
                    self.refused("a long statement", called, &error);
                }
            }
            Work::MintBusily => {
                let first = self.rng.u16(..BULK_SHARDS - 16);
                let sql = format!(
                    "SELECT array_agg(snowflake_next_id({first} + n / 5000)) AS busily FROM generate_series(0, 79999) AS n"
                );
                self.ids(client, &sql, (first, 16), Kind::Plain);
            }
            Work::MintApart => {
                let (first, count) = SHARDS_APART;
                let shard = if self.rng.bool() || !preloads() {
                    first + self.rng.u16(..count)
                } else {
                    SHARD_OF_ROWS
                };
                let sql = format!("SELECT array_agg(id) FROM snowflake_next_ids({shard}, 8000) AS id");
                self.ids(client, &sql, (shard, 1), Kind::Plain);
            }
            Work::MintOf(shard) => {
                let (of, kind) = match self.rng.u8(..4) {
                    0 => {
                        (format!("snowflake_next_id_js({shard}) AS id FROM generate_series(1, 20)"), Kind::Js)
                    }
                    1 => (format!("id FROM snowflake_next_ids({shard}, 3000) AS id"), Kind::Plain),
                    _ => (
                        format!("snowflake_next_id({shard}) AS id FROM generate_series(1, 20000)"),
                        Kind::Plain,
                    ),
                };
                let sql = format!("SELECT array_agg(id) FROM (SELECT {of}) AS moving");
                self.ids(client, &sql, (shard, 1), kind);
            }
            Work::StopAt(point) => {
                let sql = format!(
                    "SET idgen.fault = '{point} stop'; SET application_name = 'stops'; SET idgen.max_wait = '1min'"
                );
                if client.batch_execute(&sql).is_ok() {
                    self.ids(client, "SELECT snowflake_next_id(0)", (0, 1), Kind::Plain);
                }
            }
            Work::Follow => self.follow(client),
        }
    }

    /// Runs a statement until the client stops or is cut off. All its ids are known, because rows of this length are
    /// sent at once.
    fn mint_for_long(&mut self, client: &mut Client, called: Moment) -> Result<(), Error> {
        let sql = "SELECT pg_sleep(0.1), ARRAY(SELECT snowflake_next_id(s) FROM generate_series(0, 15) AS s WHERE n > 0),
                          repeat('-', 8192)
                   FROM generate_series(1, 6000) AS n";
        let cancel = client.cancel_token();
        let mut rows = client.query_raw::<_, i32, _>(sql, [])?;
        while let Some(row) = rows.next()? {
            let ids: Vec<i64> = row.get(1);
            self.answered("a long statement", called, (0, 16), Answer::Ids(Run::of(&ids, Kind::Plain)));
            if self.group.stop.load(Ordering::Relaxed) {
                let _ = cancel.cancel_query(NoTls);
                break;
            }
        }
        Ok(())
    }

    fn mint(&mut self, client: &mut Client) {
        let shard = self.rng.u16(..SHARDS);
        let single = format!("SELECT snowflake_next_id({shard})");
        match self.rng.u8(..16) {
            0 => self.spread(client, "n % 16"),
            1 => self.spread(client, "n / 16"),
            // Most ids come from batches, for which one reading of the clock, slow here, is enough.
            2..=5 => {
                let (shard, count) = (self.rng.u16(..BULK_SHARDS), self.rng.u16(1..32_000));
                let sql = format!("SELECT array_agg(id) FROM snowflake_next_ids({shard}, {count}) AS id");
                self.ids(client, &sql, (shard, 1), Kind::Plain);
            }
            6 => {
                let sql = format!("SELECT snowflake_next_id_js({shard}) FROM generate_series(1, 20)");
                self.ids(client, &sql, (shard, 1), Kind::Js);
            }
            7 => self.ids(client, &format!("{single} FROM generate_series(1, 200)"), (shard, 1), Kind::Plain),
            8 => self.transaction(client, "ROLLBACK"),
            9 => self.transaction(client, "COMMIT"),
            10..=12 => {
                let sql = "INSERT INTO rows DEFAULT VALUES RETURNING id";
                let called = now();
                let answer = client
                    .query_typed(sql, &[])
                    .map(|rows| Answer::InsertedAndCommitted(runs(&rows, Kind::Plain)));
                self.note(client, sql, called, (SHARD_OF_ROWS, 1), answer);
            }
            _ => self.ids(client, &single, (shard, 1), Kind::Plain),
        }
    }

    /// Requests many ids of sixteen shards in one row.
    fn spread(&mut self, client: &mut Client, which: &str) {
        let first = self.rng.u16(..BULK_SHARDS - 16);
        let sql = format!(
            "SELECT array_agg(snowflake_next_id({first} + {which})) FROM generate_series(0, 255) AS n"
        );
        self.ids(client, &sql, (first, 16), Kind::Plain);
    }

    fn ids(&mut self, client: &mut Client, sql: &str, shards: (u16, u16), kind: Kind) {
        let called = now();
        let answer = client.query_typed(sql, &[]).map(|rows| Answer::Ids(runs(&rows, kind)));
        self.note(client, sql, called, shards, answer);
    }

    /// Inserts rows in one transaction. Their ids are known whatever becomes of the transaction.
    fn transaction(&mut self, client: &mut Client, end: &str) {
        let shards = (SHARD_OF_ROWS, 1);
        let begun = now();
        let answer = client.batch_execute("BEGIN").map(|()| Answer::Ids(Vec::new()));
        if !self.note(client, "BEGIN", begun, shards, answer) {
            return;
        }
        let mut all = Vec::new();
        for _ in 0..self.rng.usize(1..4) {
            let sql = "INSERT INTO rows SELECT snowflake_next_id(3) FROM generate_series(1, 2) RETURNING id";
            let called = now();
            let answer = client.query_typed(sql, &[]).map(|rows| {
                let runs = runs(&rows, Kind::Plain);
                all.extend(runs.clone());
                Answer::Inserted(runs)
            });
            if !self.note(client, sql, called, shards, answer) {
                return;
            }
        }
        let called = now();
        let answer = client.batch_execute(end).map(|()| match end {
            "COMMIT" => Answer::Committed(all),
            _ => Answer::Ids(Vec::new()),
        });
        self.note(client, end, called, shards, answer);
    }

    /// Reads the rows between two horizons.
    fn follow(&mut self, client: &mut Client) {
        let horizon = "SELECT snowflake_safe_horizon()";
        let called = now();
        let to = match client.query_typed(horizon, &[]) {
            Ok(rows) => rows[0].get(0),
            Err(error) => return self.refused(horizon, called, &error),
        };
        let from = self.followed;
        let sql = format!("SELECT array_agg(id) FROM rows WHERE id >= {from} AND id < {to}");
        let answer = client.query_typed(&sql, &[]).map(|rows| {
            let rows = rows[0].get::<_, Option<Vec<i64>>>(0).unwrap_or_default();
            Answer::Horizon { from, to, rows }
        });
        if self.note(client, horizon, called, (0, 0), answer) {
            self.followed = to;
        }
    }

    /// Records the result of a call, and returns whether the call succeeded.
    fn note(
        &mut self,
        client: &mut Client,
        statement: &str,
        called: Moment,
        shards: (u16, u16),
        answer: Result<Answer, Error>,
    ) -> bool {
        match answer {
            Ok(answer) => {
                self.answered(statement, called, shards, answer);
                true
            }
            Err(error) => {
                self.refused(statement, called, &error);
                let _ = client.batch_execute("ROLLBACK");
                false
            }
        }
    }

    fn answered(&mut self, statement: &str, called: Moment, shards: (u16, u16), answer: Answer) {
        self.write(statement, called, shards, answer);
        self.group.answers.fetch_add(1, Ordering::Relaxed);
    }

    fn refused(&mut self, statement: &str, called: Moment, error: &Error) {
        *self.group.trouble.lock().expect("trouble") = format!("{error:?}");
        self.write(statement, called, (0, 0), Answer::Refused(brief(error)));
    }

    fn write(&mut self, statement: &str, called: Moment, shards: (u16, u16), answer: Answer) {
        let answered = now();
        let heard = std::mem::replace(&mut self.heard, answered);
        self.file.write(&Record {
            session: self.session,
            server: self.server,
            statement: statement.into(),
            shards,
            heard,
            called,
            answered,
            answer,
        });
    }
}

/// The ids of an answer, in rows or in one array.
fn runs(rows: &[Row], kind: Kind) -> Vec<Run> {
    let ids: Vec<i64> = match rows {
        [row] if *row.columns()[0].type_() == postgres::types::Type::INT8_ARRAY => row.get(0),
        rows => rows.iter().map(|row| row.get(0)).collect(),
    };
    Run::of(&ids, kind)
}
