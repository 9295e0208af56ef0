//! Statements and processes that are ended, and connections that are refused.

use std::thread;
use std::time::Duration;

use postgres::{Client, NoTls};

use super::{CUT, Fault, Refusals, Struck, always, fault};
use crate::campaign::fleet::Fleet;
use crate::moment::within_seconds;
use crate::server::children;

pub const FAULTS: &[Fault] = &[
    fault("statements cancelled", 2, always, cancel, &[CANCELLED]),
    fault("backends terminated", 1, always, terminate, &[CUT]),
    fault("statement_timeout", 1, always, time_out, &[]),
    fault("clients die in mid statement", 1, always, die, &[]),
    fault("connections used up", 1, always, use_up, &[CUT, TOO_MANY]),
    fault("kill of an auxiliary process", 2, always, kill, &[CUT]),
];

const CANCELLED: Refusals = &["57014"];
const TOO_MANY: Refusals = &["53300"];

/// Sessions of clients in the middle of a statement.
const ACTIVE: &str = "FROM pg_stat_activity WHERE backend_type = 'client backend' AND state = 'active'
                      AND pid <> pg_backend_pid()";

fn cancel(fleet: &mut Fleet) -> Struck {
    end_sessions(fleet, "pg_cancel_backend")
}

fn terminate(fleet: &mut Fleet) -> Struck {
    end_sessions(fleet, "pg_terminate_backend")
}

fn end_sessions(fleet: &mut Fleet, function: &str) -> Struck {
    let times = fleet.rng.usize(1..6);
    let pauses: Vec<_> = (0..times).map(|_| fleet.rng.u64(0..60)).collect();
    let sql = format!("SELECT count(*) FILTER (WHERE {function}(pid)) {ACTIVE}");
    let mut ended = 0;
    for ms in pauses.iter().cycle().take(200) {
        ended += fleet.primary.eventually(|client| client.query_one(&sql, &[])).get::<_, i64>(0);
        if ended >= times as i64 {
            return Struck::Done(format!("{ended} of {times}"));
        }
        thread::sleep(Duration::from_millis(*ms));
    }
    Struck::Skipped("nothing ran")
}

/// Starts sessions that mint until a timeout ends them at a random moment.
fn time_out(fleet: &mut Fleet) -> Struck {
    let timeouts: Vec<_> = (0..fleet.rng.usize(1..6)).map(|_| fleet.rng.u32(1..40)).collect();
    for ms in &timeouts {
        let sql = format!("SET statement_timeout = {ms}");
        let mint = "SELECT snowflake_next_id((n % 4)::integer + 930) FROM generate_series(1, 10000000) AS n";
        fleet.primary.eventually(|client| {
            client.batch_execute(&sql)?;
            let refused = client.batch_execute(mint).expect_err("it runs longer");
            // Other errors come from other faults, and the server may be gone.
            if refused.is_closed() { Err(refused) } else { Ok(()) }
        });
    }
    Struck::Done(format!("{timeouts:?} ms"))
}

/// Closes connections of clients while their statements run. The backends notice that when they send ids.
fn die(fleet: &mut Fleet) -> Struck {
    let count = fleet.rng.usize(1..5);
    let mint = "SELECT snowflake_next_id(935), pg_sleep(0.001) FROM generate_series(1, 100)";
    for _ in 0..count {
        fleet.primary.eventually(|client| {
            client.batch_execute("BEGIN")?;
            let rows = client.query_raw::<_, i32, _>(mint, [])?;
            drop(rows);
            Ok(())
        });
    }
    Struck::Done(format!("{count} of them"))
}

/// Takes all remaining connections, and closes them again.
fn use_up(fleet: &mut Fleet) -> Struck {
    let ms = fleet.rng.u64(0..500);
    let address = fleet.primary.target("postgres");
    fleet.primary.reconnect();
    let mut held = Vec::new();
    let refused = loop {
        match Client::connect(&address, NoTls) {
            Ok(client) => held.push(client),
            Err(error) => break error,
        }
        assert!(held.len() < 200, "the server accepts any number of connections");
    };
    thread::sleep(Duration::from_millis(ms));
    Struck::Done(format!("{} ms, {}", ms, refused.code().map_or("lost", |code| code.code())))
}

/// Kills one of PostgreSQL's own processes, as the kernel may when memory runs out. All sessions end, and the server
/// recovers.
fn kill(fleet: &mut Fleet) -> Struck {
    const NAMES: &[&str] = &["checkpointer", "background writer", "walwriter", "autovacuum launcher"];
    let name = NAMES[fleet.rng.usize(0..NAMES.len())];
    let found = within_seconds(20, || {
        fleet.primary.reconnect();
        fleet.primary.running().map(children)?.into_iter().find(|process| {
            let title = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&title).contains(name)
        })
    });
    let Some(process) = found else { return Struck::Skipped("there was no such process") };
    fleet.primary.signal_if_there("KILL", process.as_raw());
    fleet.primary.until_gone(process);
    Struck::Done(name.into())
}
