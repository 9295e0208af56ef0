//! Clients at work: those that mint continuously and remember every id, and those that write while a test changes
//! something.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use postgres::{Client, Error, GenericClient, NoTls, Row};
use promises::{Caller, Judge, Kind};

use crate::moment::is_reached;
use crate::process::servers_folder;
use crate::server::{Server, Sql, reason};

pub const SHARDS: i64 = 4;

/// A table for [`Clients::start_inserting`]. Each row has the timeline of the primary that inserted it.
pub const ROWS: &str = "CREATE TABLE rows (
    id bigint PRIMARY KEY, timeline text DEFAULT left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))";

/// All ids that the clients of a test were given, by all servers.
#[derive(Default)]
pub struct Ledger {
    judge: Judge,
    sessions: u64,
    /// Errors by SQLSTATE and reason; "lost" if the connection broke.
    pub errors: BTreeMap<String, usize>,
    /// The longest time that a client waited for an id.
    pub outage: Duration,
}

/// The ids of a session, in order.
type Session = Vec<i64>;

#[derive(Default)]
struct Report {
    sessions: Vec<Session>,
    errors: BTreeMap<String, usize>,
    outage: Duration,
}

impl Ledger {
    pub fn len(&self) -> usize {
        self.judge.counts.ids as usize
    }

    /// All ids except those for JavaScript.
    pub fn ids(&self) -> HashSet<i64> {
        self.judge.ids(Kind::Plain).collect()
    }

    /// How often calls failed because the clock was behind, or had jumped.
    pub fn refused_for_the_clock(&self) -> usize {
        let of_clock = |(error, _): &(&String, &usize)| error.contains(" clock_");
        self.errors.iter().filter(of_clock).map(|(_, count)| count).sum()
    }

    /// Adds the ids of a session. Checks that no id occurs twice and that the ids of each shard increase.
    pub fn add(&mut self, session: &[i64]) {
        assert!(session.iter().all(|id| *id > 0), "an id below 1");
        self.sessions += 1;
        let by = Caller { session: self.sessions, ..Caller::default() };
        let (js_ids, ids): (Session, Session) = session.iter().partition(|id| **id < 1 << 53);
        self.judge.session(by, &ids, Kind::Plain);
        self.judge.session(by, &js_ids, Kind::Js);
        self.judge.assert_kept();
    }

    /// Checks that every row is there that [`Clients::start_inserting`] has committed, and that each promoted server
    /// began above all ids of its predecessor.
    pub fn assert_rows(&self, client: &mut Client, timelines: i64) {
        assert_eq!(self.timelines_of_rows(client), timelines);
    }

    /// The same for any number of promotions. Returns the number of servers that have minted.
    pub fn timelines_of_rows(&self, client: &mut Client) -> i64 {
        println!("{} ids, refused: {:?}", self.len(), self.errors);
        let rows: HashSet<i64> = client.column("SELECT id FROM rows").into_iter().collect();
        assert!(self.ids().is_subset(&rows), "a row is lost");
        let sorted = "SELECT count(*), bool_and((lowest > previous) IS NOT FALSE)
                      FROM (SELECT min(id) AS lowest, lag(max(id)) OVER (ORDER BY timeline) AS previous
                            FROM rows GROUP BY timeline) AS timelines";
        let (timelines, is_sorted): (i64, bool) = client.row(sorted);
        assert!(is_sorted, "a server began below its predecessor");
        timelines
    }

    /// Mints by a query until that fails, and returns the error.
    pub fn mint_until_refused(&mut self, client: &mut Client, sql: &str, seconds: u64) -> postgres::Error {
        let start = Instant::now();
        let mut minted = Vec::new();
        loop {
            match ids(client, sql) {
                Ok(ids) => minted.extend(ids),
                Err(error) => {
                    self.add(&minted);
                    return error;
                }
            }
            assert!(start.elapsed() < Duration::from_secs(seconds), "{sql} does not fail");
        }
    }

    pub fn mint(&mut self, client: &mut Client) -> i64 {
        let id = client.value("SELECT snowflake_next_id(1)");
        self.add(&[id]);
        id
    }
}

pub fn ids(client: &mut impl GenericClient, sql: &str) -> Result<Vec<i64>, postgres::Error> {
    Ok(client.query(sql, &[])?.iter().map(|row| row.get(0)).collect())
}

/// Clients that mint until [`Clients::finish`].
pub struct Clients {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Report>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// The number of ids so far.
    count: AtomicUsize,
    target: Mutex<String>,
    trouble: Mutex<String>,
}

impl Clients {
    /// Starts clients that mint on a server, and reconnect whenever they are cut off.
    pub fn start(count: usize, server: &Server) -> Clients {
        Clients::start_by(count, server, mint)
    }

    /// Starts clients that call `mint` in each round, which returns the ids.
    pub fn start_by(
        count: usize,
        server: &Server,
        mint: impl Fn(&mut Client, usize) -> Result<Vec<i64>, postgres::Error> + Copy + Send + 'static,
    ) -> Clients {
        Clients::start_at(count, server.target("postgres"), mint)
    }

    /// Starts such clients with a connection string, which may name several servers.
    pub fn start_at(
        count: usize,
        target: String,
        mint: impl Fn(&mut Client, usize) -> Result<Vec<i64>, postgres::Error> + Copy + Send + 'static,
    ) -> Clients {
        let shared = Arc::new(Shared { target: Mutex::new(target), ..Shared::default() });
        let start = |number| {
            let shared = shared.clone();
            thread::spawn(move || work(number, mint, &shared))
        };
        Clients { threads: (0..count).map(start).collect(), shared }
    }

    /// Starts clients that insert rows into the table [`ROWS`].
    pub fn start_inserting(count: usize, target: String) -> Clients {
        Clients::start_at(count, target, |client, round| {
            let insert = "INSERT INTO rows VALUES (snowflake_next_id($1)) RETURNING id";
            Ok(vec![client.query_one(insert, &[&(round as i32 % 4)])?.get(0)])
        })
    }

    /// Sends the clients to another server once they are cut off from this one.
    pub fn move_to(&self, server: &Server) {
        *self.shared.target.lock().expect("target") = server.target("postgres");
    }

    /// Waits until the clients have this many more ids.
    pub fn wait_for_ids(&self, more: usize) {
        let count = || self.shared.count.load(Ordering::Relaxed);
        let goal = count() + more;
        let in_time = is_reached(180, || count() >= goal);
        assert!(in_time, "the clients get no ids: {}", self.shared.trouble.lock().expect("trouble"));
    }

    /// Ends the clients once they have this many more ids, and adds these to the ledger.
    pub fn finish_after(self, more: usize, ledger: &mut Ledger) {
        self.wait_for_ids(more);
        self.finish(ledger);
    }

    /// Ends the clients, and adds their ids to the ledger.
    pub fn finish(self, ledger: &mut Ledger) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            let has_ended = is_reached(180, || thread.is_finished());
            assert!(has_ended, "a client hangs: {}", self.shared.trouble.lock().expect("trouble"));
            let report = thread.join().expect("a client");
            for session in &report.sessions {
                ledger.add(session);
            }
            ledger.outage = ledger.outage.max(report.outage);
            for (code, count) in report.errors {
                *ledger.errors.entry(code).or_default() += count;
            }
        }
    }
}

fn work(
    number: usize,
    mint: impl Fn(&mut Client, usize) -> Result<Session, postgres::Error>,
    Shared { stop, count, target, trouble }: &Shared,
) -> Report {
    static FILES: AtomicUsize = AtomicUsize::new(0);
    let name = format!("ids-{}-{}", std::process::id(), FILES.fetch_add(1, Ordering::Relaxed));
    let path: PathBuf = servers_folder().join(name);
    let mut file = File::create(&path).expect("a file for ids");
    let mut report = Report::default();
    let mut round = number;
    let mut last = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let address = target.lock().expect("target").clone();
        let mut client = match Client::connect(&address, NoTls) {
            Ok(client) => client,
            Err(error) => {
                *trouble.lock().expect("trouble") = format!("{error:?}");
                thread::sleep(Duration::from_millis(20));
                continue;
            }
        };
        let mut session = Session::new();
        while !stop.load(Ordering::Relaxed) && !client.is_closed() {
            round += 1;
            match mint(&mut client, round) {
                Ok(ids) => {
                    // On disk before the next call, so that no fault can make a client forget an id.
                    for id in &ids {
                        file.write_all(&id.to_le_bytes()).expect("write");
                    }
                    file.sync_data().expect("sync");
                    report.outage = report.outage.max(last.elapsed());
                    last = Instant::now();
                    count.fetch_add(ids.len(), Ordering::Relaxed);
                    session.extend(ids);
                }
                Err(error) => {
                    *report.errors.entry(brief(&error)).or_default() += 1;
                    *trouble.lock().expect("trouble") = format!("{error:?}");
                    let _ = client.batch_execute("ROLLBACK");
                }
            }
        }
        report.sessions.push(session);
    }
    let on_disk = std::fs::read(&path).expect("ids").len() / 8;
    assert_eq!(on_disk, report.sessions.iter().map(Vec::len).sum::<usize>(), "the file lacks ids");
    let _ = std::fs::remove_file(&path);
    report
}

/// Runs a statement of a changing kind: single ids, runs, batches, ids for JavaScript, and transactions that roll back.
fn mint(client: &mut Client, round: usize) -> Result<Session, postgres::Error> {
    let shard = round as i64 / 7 % SHARDS;
    let sql = match round % 7 {
        0 => format!("SELECT snowflake_next_ids({shard}, 200)"),
        1 => format!("SELECT snowflake_next_id({shard}) FROM generate_series(1, 200)"),
        2 => format!("SELECT snowflake_next_id((i % {SHARDS})::integer) FROM generate_series(1, 20) AS i"),
        3 => format!("SELECT snowflake_next_id_js({shard}) FROM generate_series(1, 20)"),
        _ => format!("SELECT snowflake_next_id({shard})"),
    };
    let rolls_back = round.is_multiple_of(5);
    if rolls_back {
        client.batch_execute("BEGIN")?;
    }
    let ids = ids(client, &sql)?;
    if rolls_back {
        // The client has seen the ids, whatever becomes of the transaction.
        let _ = client.batch_execute("ROLLBACK");
    }
    Ok(ids)
}

/// The SQLSTATE and the reason of an error; "lost" if the connection broke.
pub fn brief(error: &postgres::Error) -> String {
    error.as_db_error().map_or("lost".into(), reason)
}

pub const TABLES: &str = "
    CREATE SCHEMA insta5;
    CREATE TABLE insta5.users (id bigint PRIMARY KEY DEFAULT snowflake_next_id(5), client integer);
    CREATE TABLE insta5.photos (id bigint PRIMARY KEY DEFAULT snowflake_next_id(5),
                                user_id bigint NOT NULL REFERENCES insta5.users, body text);
    INSERT INTO insta5.users (client) SELECT 0 FROM generate_series(1, 10000);
    INSERT INTO insta5.photos (user_id, body) SELECT id, repeat('x', 100) FROM insta5.users;";

pub const MINT: &str = "snowflake_next_id(5)";

/// No such schema, no such table, shard not allowed.
pub const GONE: [&str; 3] = ["3F000", "42P01", "55000"];

/// The record of a client of the schema insta5.
#[derive(Default)]
pub struct Diary {
    /// Its ids in order, and whether each came from the first server.
    pub ids: Vec<(i64, bool)>,
    pub rows: Vec<i64>,
    pub retried: usize,
    /// The longest time between two successful transactions.
    pub outage: Duration,
}

impl Diary {
    pub fn ids(&self) -> Vec<i64> {
        self.ids.iter().map(|(id, _)| *id).collect()
    }
}

/// Clients that write to the schema insta5.
pub struct Load<'a> {
    /// The servers that may have the shard.
    pub servers: &'a [&'a Server],
    pub mint: &'a str,
    /// The SQLSTATEs after which a client tries again on the next server.
    pub retried: &'a [&'a str],
}

impl Load<'_> {
    /// One transaction of a changing kind: an id alone, a long command, many rows, rows that are rolled back,
    /// and a user with a photo.
    fn write(&self, client: &mut Client, round: usize, first: bool, diary: &mut Diary) -> Result<(), Error> {
        let mint = self.mint;
        let column = |rows: Vec<Row>| rows.iter().map(|row| row.get(0)).collect::<Vec<i64>>();
        let mut seen = |ids: &[i64]| diary.ids.extend(ids.iter().map(|id| (*id, first)));
        match round % 8 {
            0 => seen(&column(client.query(&format!("SELECT {mint}"), &[])?)),
            1 => {
                let long = format!("SELECT {mint}, pg_sleep(0.02) FROM generate_series(1, 20)");
                seen(&column(client.query(&long, &[])?));
            }
            2 => {
                let many =
                    "INSERT INTO insta5.users (client) SELECT 1 FROM generate_series(1, 500) RETURNING id";
                let ids = column(client.query(many, &[])?);
                seen(&ids);
                diary.rows.extend(ids);
            }
            kind => {
                let mut transaction = client.transaction()?;
                let user = "INSERT INTO insta5.users (client) VALUES (1) RETURNING id";
                let photo = "INSERT INTO insta5.photos (user_id) VALUES ($1) RETURNING id";
                let mut ids = column(transaction.query(user, &[])?);
                seen(&ids);
                let photos = column(transaction.query(photo, &[&ids[0]])?);
                seen(&photos);
                ids.extend(photos);
                if kind == 3 {
                    transaction.rollback()?;
                } else {
                    transaction.commit()?;
                    diary.rows.extend(ids);
                }
            }
        }
        Ok(())
    }

    fn work(&self, number: usize, stop: &AtomicBool, count: &AtomicUsize) -> Diary {
        let mut diary = Diary::default();
        let (mut place, mut round) = (0, number);
        let mut last = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let mut client = Client::connect(&self.servers[place].target("postgres"), NoTls).unwrap();
            while !stop.load(Ordering::Relaxed) {
                round += 1;
                if let Err(error) = self.write(&mut client, round, place == 0, &mut diary) {
                    let code = error.code().unwrap_or_else(|| panic!("{error:?}")).code();
                    assert!(self.retried.contains(&code), "{error:?}");
                    diary.retried += 1;
                    place = (place + 1) % self.servers.len();
                    thread::sleep(Duration::from_millis(10));
                    break;
                }
                diary.outage = diary.outage.max(last.elapsed());
                last = Instant::now();
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
        diary
    }

    /// Runs `change` while clients write.
    pub fn during(&self, change: impl FnOnce()) -> Vec<Diary> {
        at_work(6, change, |number, stop, count| self.work(number, stop, count))
    }
}

/// Runs `change` while clients work, who also work before and after it. Each client counts its successes until it has
/// to stop.
pub fn at_work<T: Send>(
    clients: usize,
    change: impl FnOnce(),
    work: impl Fn(usize, &AtomicBool, &AtomicUsize) -> T + Sync,
) -> Vec<T> {
    let (stop, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    let wait_for = |more: usize| {
        let goal = count.load(Ordering::Relaxed) + more;
        let is_done = || count.load(Ordering::Relaxed) >= goal;
        assert!(is_reached(120, is_done), "the clients make no progress");
    };
    thread::scope(|scope| {
        let clients = scope.spawn(|| at_once(0..clients, |number| work(number, &stop, &count)));
        let end = StopAtDrop(&stop);
        wait_for(300);
        change();
        wait_for(300);
        drop(end);
        clients.join().unwrap()
    })
}

/// Makes threads stop, even after a panic.
pub struct StopAtDrop<'a>(pub &'a AtomicBool);

impl Drop for StopAtDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Checks that no id occurs twice, and that each client's ids increase.
pub fn assert_unique_and_in_order(diaries: &[Diary]) {
    let mut ledger = Ledger::default();
    for diary in diaries {
        let ids = diary.ids();
        assert!(ids.iter().all(|id| id >> 10 & 8191 == 5), "an id of another shard");
        ledger.add(&ids);
    }
}

/// Checks that the server has every row that a client has committed, and no other.
pub fn assert_rows(server: &Server, diaries: &[Diary]) {
    let sql = "SELECT id FROM insta5.users WHERE client = 1 UNION ALL
               SELECT id FROM insta5.photos WHERE body IS NULL";
    let there: HashSet<i64> = server.connect().column(sql).into_iter().collect();
    let told: HashSet<i64> = diaries.iter().flat_map(|diary| diary.rows.iter().copied()).collect();
    assert_eq!(there.len(), told.len());
    assert_eq!(there, told);
}

pub fn longest_outage(diaries: &[Diary]) -> Duration {
    diaries.iter().map(|diary| diary.outage).max().unwrap_or_default()
}

/// Does work on all of these at once.
pub fn at_once<I: Send, T: Send>(items: impl IntoIterator<Item = I>, work: impl Fn(I) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = items.into_iter().map(|item| scope.spawn(move || work(item))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}
