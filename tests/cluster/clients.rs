//! Clients that mint all the while, and remember every id they were given.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use postgres::{Client, GenericClient, NoTls};
use promises::{Caller, Judge, Kind};

use crate::moment::is_reached;
use crate::process::servers_folder;
use crate::server::{Server, Sql, reason};

/// Shards that the clients mint for.
pub const SHARDS: i64 = 4;

/// A table for [`Clients::start_inserting`]. A row has the timeline of the primary that it was inserted on.
pub const ROWS: &str = "CREATE TABLE rows (
    id bigint PRIMARY KEY, timeline text DEFAULT left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))";

/// Every id that clients were given in a test, over all servers and all of their runs.
#[derive(Default)]
pub struct Ledger {
    judge: Judge,
    sessions: u64,
    /// Errors by SQLSTATE and reason; "lost" if the connection broke.
    pub errors: BTreeMap<String, usize>,
    /// The longest time that a client waited for an id.
    pub outage: Duration,
}

/// What one session was given, in order.
type Session = Vec<i64>;

#[derive(Default)]
struct Report {
    sessions: Vec<Session>,
    errors: BTreeMap<String, usize>,
    outage: Duration,
}

impl Ledger {
    /// How many ids were given out.
    pub fn len(&self) -> usize {
        self.judge.counts.ids as usize
    }

    /// The ids that were given out, except those for JavaScript.
    pub fn ids(&self) -> HashSet<i64> {
        self.judge.ids(Kind::Plain).collect()
    }

    /// How often calls failed because the clock was behind, or had jumped.
    pub fn refused_for_the_clock(&self) -> usize {
        let of_clock = |(error, _): &(&String, &usize)| error.contains(" clock_");
        self.errors.iter().filter(of_clock).map(|(_, count)| count).sum()
    }

    /// Adds the ids of a session, and checks that none is there twice and that those of a shard increase.
    pub fn add(&mut self, session: &[i64]) {
        assert!(session.iter().all(|id| *id > 0), "an id below 1");
        self.sessions += 1;
        let by = Caller { session: self.sessions, ..Caller::default() };
        let (js_ids, ids): (Session, Session) = session.iter().partition(|id| **id < 1 << 53);
        self.judge.session(by, &ids, Kind::Plain);
        self.judge.session(by, &js_ids, Kind::Js);
        self.judge.assert_kept();
    }

    /// Checks that every row that [`Clients::start_inserting`] has committed is there, and that each promoted
    /// server began above all ids of the one before.
    pub fn assert_rows(&self, client: &mut Client, timelines: i64) {
        assert_eq!(self.timelines_of_rows(client), timelines);
    }

    /// The same, where there may be any number of promotions. Returns how many servers have minted.
    pub fn timelines_of_rows(&self, client: &mut Client) -> i64 {
        println!("{} ids, refused: {:?}", self.len(), self.errors);
        let rows: HashSet<i64> = client.column("SELECT id FROM rows").into_iter().collect();
        assert!(self.ids().is_subset(&rows), "a row is lost");
        let sorted = "SELECT count(*), bool_and((lowest > previous) IS NOT FALSE)
                      FROM (SELECT min(id) AS lowest, lag(max(id)) OVER (ORDER BY timeline) AS previous
                            FROM rows GROUP BY timeline) AS timelines";
        let (timelines, is_sorted): (i64, bool) = client.row(sorted);
        assert!(is_sorted, "a server began below the one before");
        timelines
    }

    /// Mints by a query until it fails, and returns the error.
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

    /// Mints one id and adds it.
    pub fn mint(&mut self, client: &mut Client) -> i64 {
        let id = client.value("SELECT snowflake_next_id(1)");
        self.add(&[id]);
        id
    }
}

/// The ids that a query returns.
pub fn ids(client: &mut impl GenericClient, sql: &str) -> Result<Vec<i64>, postgres::Error> {
    Ok(client.query(sql, &[])?.iter().map(|row| row.get(0)).collect())
}

/// Clients at work.
pub struct Clients {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Report>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// How many ids the clients were given.
    count: AtomicUsize,
    target: Mutex<String>,
    trouble: Mutex<String>,
}

impl Clients {
    /// Starts clients that mint on a server, and connect again whenever they are cut off.
    pub fn start(count: usize, server: &Server) -> Clients {
        Clients::start_by(count, server, mint)
    }

    /// Starts clients that call `mint` in each round, which returns the ids that it was given.
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

    /// Sends them to another server, once they are cut off from this one.
    pub fn move_to(&self, server: &Server) {
        *self.shared.target.lock().expect("target") = server.target("postgres");
    }

    /// Waits until they have got this many more ids.
    pub fn wait_for_ids(&self, more: usize) {
        let count = || self.shared.count.load(Ordering::Relaxed);
        let goal = count() + more;
        let in_time = is_reached(180, || count() >= goal);
        assert!(in_time, "the clients get no ids: {}", self.shared.trouble.lock().expect("trouble"));
    }

    /// Ends the clients' work, and adds their ids to the ledger.
    pub fn finish(self, ledger: &mut Ledger) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
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
    assert_eq!(on_disk, report.sessions.iter().map(Vec::len).sum::<usize>(), "the file holds every id");
    let _ = std::fs::remove_file(&path);
    report
}

/// One statement of a changing kind: single ids, runs, batches, ids for JavaScript, and transactions that
/// roll back.
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
        // The ids were seen, whatever becomes of the transaction.
        let _ = client.batch_execute("ROLLBACK");
    }
    Ok(ids)
}

/// What programs tell an error by; "lost" if the connection broke.
pub fn brief(error: &postgres::Error) -> String {
    error.as_db_error().map_or("lost".into(), reason)
}
