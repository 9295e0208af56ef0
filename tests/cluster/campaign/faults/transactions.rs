//! Advances of shards, and prepared transactions.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use postgres::{Client, Error, NoTls};

use super::{CUT, Fault, Refusals, Struck, always, fault};
use crate::campaign::fleet::Fleet;
use crate::clients::at_once;
use crate::server::Server;

pub const FAULTS: &[Fault] = &[
    fault("advance of shards", 2, always, advance, &[CUT]),
    fault("prepared transactions", 3, always, prepare, &[PREPARED]),
];

const PREPARED: Refusals = &["40001 prepared_transactions"];

/// The longest time for which another fault may delay this one.
const PATIENCE: Duration = Duration::from_secs(5);
const IN_THE_WAY: &str = "another fault was in the way";

/// Advances several shards at once, sometimes with a crash right after that.
fn advance(fleet: &mut Fleet) -> Struck {
    let amounts: Vec<_> = (0..fleet.rng.usize(1..4)).map(|_| fleet.rng.u32(0..950)).collect();
    let crashes = fleet.rng.bool();
    let primary = &fleet.primary;
    let begun = Instant::now();
    let passed = at_once((0..).zip(&amounts), |(shard, ms)| {
        primary.in_time(PATIENCE, |client| pass(client, shard, *ms))
    });
    if crashes {
        primary.kill_all();
        // However long the start takes, the clock must be behind the ids that were passed over.
        primary.set_clock(-3600.0);
        primary.up();
        primary.set_clock(-begun.elapsed().as_secs_f64());
    }
    let next: Vec<_> = (0..).zip(&passed).map(|(shard, _)| mint(primary, shard)).collect();
    if crashes {
        primary.set_clock(0.0);
    }
    if passed.iter().any(Result::is_err) {
        return Struck::Skipped(IN_THE_WAY);
    }
    for (next, past) in next.into_iter().zip(passed.into_iter().flatten()) {
        assert!(next.is_none_or(|next| next > past), "{next:?} comes after {past}, which was passed over");
    }
    Struck::Done(format!("{amounts:?} ms, {}", if crashes { "and a crash" } else { "and no crash" }))
}

/// Advances past an id this many milliseconds ahead of the clock, and returns that id.
fn pass(client: &mut Client, shard: i32, ms: u32) -> Result<i64, Error> {
    let sql = "SELECT past, snowflake_advance($1, past)
               FROM snowflake_max_id(clock_timestamp() + $2 * interval '1 ms') AS past";
    let row = client.query_one(sql, &[&shard, &f64::from(ms)])?;
    let (past, least): (i64, i64) = (row.get(0), row.get(1));
    assert!(past < least, "{least} is said to be past {past}");
    Ok(past)
}

fn mint(server: &Server, shard: i32) -> Option<i64> {
    let sql = format!("SELECT snowflake_next_id({shard})");
    server.in_time(PATIENCE, |client| client.query_one(&sql, &[])).ok().map(|row| row.get(0))
}

struct Prepared {
    name: String,
    /// The ids of the rows, if the transaction is known to exist.
    ids: Option<Vec<i64>>,
    commits: bool,
    /// Whether every server that may be promoted has the transaction.
    is_safe: bool,
}

/// Prepares transactions with rows. The end of the round commits them or rolls them back, on the primary of that
/// moment.
fn prepare(fleet: &mut Fleet) -> Struck {
    let commits: Vec<_> = (0..fleet.rng.usize(1..4)).map(|_| fleet.rng.bool()).collect();
    let losses = fleet.losses;
    let tried = RefCell::new(Vec::new());
    let all = commits.iter().all(|commits| {
        let done = fleet.primary.in_time(PATIENCE, |client| {
            static COUNT: AtomicUsize = AtomicUsize::new(0);
            let name = format!("prepared{}", COUNT.fetch_add(1, Ordering::Relaxed));
            tried.borrow_mut().push(Prepared { name, ids: None, commits: *commits, is_safe: false });
            prepare_one(client, tried.borrow_mut().last_mut().expect("one"))
        });
        done.is_ok()
    });
    let horizon = fleet.primary.reconnect().query_one("SELECT snowflake_safe_horizon()", &[]);
    let tried = tried.into_inner();
    assert!(!all || horizon.is_err(), "a horizon beside prepared transactions");
    let heal = move |fleet: &mut Fleet| {
        let kept = fleet.losses == losses;
        tried.iter().for_each(|prepared| end(fleet, prepared, kept));
    };
    let told = format!("{} tried, {commits:?}", if all { "all" } else { "some" });
    Struck::Lasting(told, Box::new(heal))
}

fn prepare_one(client: &mut Client, prepared: &mut Prepared) -> Result<(), Error> {
    client.batch_execute("BEGIN")?;
    let sql = "INSERT INTO rows SELECT snowflake_next_id(n) FROM generate_series(910, 913) AS n RETURNING id";
    let ids = client.query(sql, &[])?.iter().map(|row| row.get(0)).collect();
    let token = client.cancel_token();
    let (done, is_done) = channel::<()>();
    // PREPARE waits for standbys indefinitely. If it is canceled, the transaction exists nevertheless on this server.
    let watch = thread::spawn(move || {
        let is_late = is_done.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout);
        is_late && token.cancel_query(NoTls).is_ok()
    });
    let result = client.batch_execute(&format!("PREPARE TRANSACTION '{}'", prepared.name));
    drop(done);
    prepared.is_safe = !watch.join().expect("a watch");
    result?;
    prepared.ids = Some(ids);
    Ok(())
}

/// Commits a prepared transaction or rolls it back, and checks its rows. It must exist if everything was kept.
fn end(fleet: &Fleet, prepared: &Prepared, kept: bool) {
    let Prepared { name, ids, commits, is_safe } = prepared;
    let there = Cell::new(false);
    // If PostgreSQL 18.6 crashes in the checkpoint after a recovery, the next recovery overlooks the transaction, and
    // only one more start finds it. Readers may have a horizon past it, so it must not be committed. The crash was a
    // fault of this round, which explains the calls that the restart cuts off.
    let log = fleet.primary.log();
    let lines: Vec<&str> = log.lines().collect();
    let is_overlooked = lines.windows(4).any(|lines| {
        let [warning, context @ ..] = lines else { return false };
        warning.contains("could not recover two-phase state file")
            && context.iter().any(|line| line.contains(&format!("Transaction/PREPARE: gid {name}:")))
    });
    if is_overlooked {
        fleet.primary.restart();
    }
    let commits = *commits && !is_overlooked;
    fleet.primary.eventually(|client| {
        if client.query("SELECT FROM pg_prepared_xacts WHERE gid = $1", &[&name])?.is_empty() {
            return Ok(());
        }
        there.set(true);
        let how = if commits { "COMMIT" } else { "ROLLBACK" };
        // Standbys may be cut off until others are healed.
        client.batch_execute("SET synchronous_commit = local")?;
        client.batch_execute(&format!("{how} PREPARED '{name}'"))
    });
    let Some(ids) = ids else { return };
    assert!(there.get() || !(kept && *is_safe), "{name} is lost");
    if there.get() {
        let rows = "SELECT count(*) FROM rows WHERE id = ANY($1)";
        let rows: i64 = fleet.primary.eventually(|client| client.query_one(rows, &[ids])).get(0);
        assert_eq!(rows, if commits { ids.len() as i64 } else { 0 }, "rows of {name}");
    }
}
