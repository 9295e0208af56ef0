//! Statements and processes that are ended, and connections that are refused.

use std::thread;
use std::time::Duration;

use postgres::{Client, NoTls};

use super::{CUT, Fault, Refusals, Struck, always};
use crate::campaign::world::World;
use crate::server::children;

pub const FAULTS: &[Fault] = &[
    Fault { name: "statements cancelled", weight: 2, can: always, strike: cancel, allows: &[CANCELLED] },
    Fault { name: "backends terminated", weight: 1, can: always, strike: terminate, allows: &[CUT] },
    Fault { name: "statement_timeout", weight: 1, can: always, strike: time_out, allows: &[] },
    Fault { name: "clients die in mid statement", weight: 1, can: always, strike: die, allows: &[] },
    Fault { name: "connections used up", weight: 1, can: always, strike: use_up, allows: &[CUT, TOO_MANY] },
    Fault { name: "kill of an auxiliary process", weight: 2, can: always, strike: kill, allows: &[CUT] },
];

const CANCELLED: Refusals = &["57014"];
const TOO_MANY: Refusals = &["53300"];

/// Sessions of clients in the midst of a statement.
const ACTIVE: &str = "FROM pg_stat_activity WHERE backend_type = 'client backend' AND state = 'active'
                      AND pid <> pg_backend_pid()";

/// Cancels what runs, again and again.
fn cancel(world: &mut World) -> Struck {
    end_sessions(world, "pg_cancel_backend")
}

fn terminate(world: &mut World) -> Struck {
    end_sessions(world, "pg_terminate_backend")
}

fn end_sessions(world: &mut World, function: &str) -> Struck {
    let times = world.rng.usize(1..6);
    let pauses: Vec<_> = (0..times).map(|_| world.rng.u64(0..60)).collect();
    let sql = format!("SELECT count(*) FILTER (WHERE {function}(pid)) {ACTIVE}");
    let mut ended = 0;
    for ms in pauses.iter().cycle().take(200) {
        ended += world.primary.eventually(|client| client.query_one(&sql, &[])).get::<_, i64>(0);
        if ended >= times as i64 {
            return Struck::Done(format!("{ended} of {times}"));
        }
        thread::sleep(Duration::from_millis(*ms));
    }
    Struck::Skipped("nothing ran")
}

/// New sessions mint until they run out of time, at a moment that may be any.
fn time_out(world: &mut World) -> Struck {
    let timeouts: Vec<_> = (0..world.rng.usize(1..6)).map(|_| world.rng.u32(1..40)).collect();
    for ms in &timeouts {
        let sql = format!("SET statement_timeout = {ms}");
        let mint = "SELECT snowflake_next_id((n % 4)::integer + 930) FROM generate_series(1, 10000000) AS n";
        world.primary.eventually(|client| {
            client.batch_execute(&sql)?;
            let refused = client.batch_execute(mint).expect_err("it runs longer");
            // What else the server says is not this fault's, and the server may be gone.
            if refused.is_closed() { Err(refused) } else { Ok(()) }
        });
    }
    Struck::Done(format!("{timeouts:?} ms"))
}

/// Clients that go away while their statements run. The backends notice when they send what they have minted.
fn die(world: &mut World) -> Struck {
    let count = world.rng.usize(1..5);
    let mint = "SELECT snowflake_next_id(935), pg_sleep(0.001) FROM generate_series(1, 100)";
    for _ in 0..count {
        world.primary.eventually(|client| {
            client.batch_execute("BEGIN")?;
            let rows = client.query_raw::<_, i32, _>(mint, [])?;
            drop(rows);
            Ok(())
        });
    }
    Struck::Done(format!("{count} of them"))
}

/// Takes all connections that are left, and gives them back.
fn use_up(world: &mut World) -> Struck {
    let ms = world.rng.u64(0..500);
    let address = world.primary.target("postgres");
    world.primary.reconnect();
    let mut held = Vec::new();
    let refused = loop {
        match Client::connect(&address, NoTls) {
            Ok(client) => held.push(client),
            Err(error) => break error,
        }
        assert!(held.len() < 200, "there is no end of connections");
    };
    thread::sleep(Duration::from_millis(ms));
    Struck::Done(format!("{} ms, {}", ms, refused.code().map_or("lost", |code| code.code())))
}

/// Kills one of the server's own processes, as the kernel may when memory runs out. All sessions end, and the server
/// recovers.
fn kill(world: &mut World) -> Struck {
    const NAMES: &[&str] = &["checkpointer", "background writer", "walwriter", "autovacuum launcher"];
    let name = NAMES[world.rng.usize(0..NAMES.len())];
    for _ in 0..2000 {
        world.primary.reconnect();
        let processes = world.primary.running().map(children).unwrap_or_default();
        let found = processes.into_iter().find(|process| {
            let title = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&title).contains(name)
        });
        if let Some(process) = found {
            world.primary.signal_if_there("KILL", process.as_raw());
            world.primary.until_gone(process);
            return Struck::Done(name.into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Struck::Skipped("there was no such process")
}
