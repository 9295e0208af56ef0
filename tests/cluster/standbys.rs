//! Promise 1 through failover, with asynchronous and synchronous standbys.

use std::thread;
use std::time::{Duration, Instant};

use postgres::Client;
use postgres::error::SqlState;

use crate::clients::{Clients, Ledger, ROWS, ids};
use crate::moment::is_reached;
use crate::process::{major_version, skipped};
use crate::server::link::{Direction, Flow, Link};
use crate::server::processes::Process;
use crate::server::{PRELOAD, Server, Sql};

const HOUR: f64 = 3600.0;

const NOT_ACKNOWLEDGED: &str = "mark-not-durable";

const MINT: &str = "SELECT snowflake_next_id(1)";

/// A primary whose marks the standby must acknowledge.
pub fn synchronous() -> (Server, Server) {
    // pg_rewind needs hint bits in the WAL.
    let primary = Server::start(&["idgen.max_wait = 500ms", "wal_log_hints = on"]);
    let standby = primary.synchronous_standby("twin");
    (primary, standby)
}

/// A standby decodes ids and shows the mark, but does not mint. Once promoted, it begins above the mark.
#[test]
fn an_asynchronous_standby_is_promoted() {
    let primary = Server::start(&["idgen.max_wait = 300ms"]);
    let standby = primary.standby("twin");
    let mut ledger = Ledger::default();
    let mut client = standby.connect();
    assert_eq!(client.code(MINT), "25006");
    client.query_one("SELECT snowflake_decode(1)", &[]).unwrap();

    let clients = Clients::start(8, &primary);
    clients.wait_for_ids(3000);
    standby.set_clock(-HOUR);
    standby.wait_until("SELECT warning_code IS NOT DISTINCT FROM 'mark-in-future' FROM idgen_status");
    primary.kill();
    clients.move_to(&standby);
    standby.promote();
    let mut client = standby.reconnect();
    assert_eq!(client.code(MINT), "40001", "an hour behind the mark it has replayed");
    standby.set_clock(0.0);
    clients.finish_after(3000, &mut ledger);
    assert!(client.value::<i64>("SELECT mark FROM idgen_status") > 0);
}

/// Promise 1: a standby with another epoch warns, and mints nothing once it is promoted.
#[test]
fn a_standby_of_another_epoch_mints_nothing() {
    let primary = Server::start(&[]);
    let standby = primary.standby("twin");
    Ledger::default().mint(&mut primary.connect());
    standby.restart_with(&[PRELOAD, "idgen.epoch = '2024-01-01T00:00:00Z'"]);
    standby.wait_until("SELECT warning_code IS NOT DISTINCT FROM 'epoch-of-mark' FROM idgen_status");
    let accept = "SELECT snowflake_accept_epoch(epoch) FROM idgen_status";
    for refused in [
        accept,
        "SELECT snowflake_accept_clock()",
        "SELECT snowflake_check()",
        "SELECT snowflake_close_shard(5)",
        "SELECT snowflake_reopen_shard(5)",
        "SELECT snowflake_raise_mark(now())",
    ] {
        assert_eq!(standby.code(refused), "25006", "{refused}");
    }
    primary.kill();
    standby.promote();
    assert_eq!(standby.reconnect().refusal(MINT), "55000 other_epoch");
}

/// Promise 1: after a restart or the promotion of a synchronous standby, ids of both layouts are later than the time
/// past which the mark was raised, whatever the clocks show. A closed shard is open again if the list has it.
#[test]
fn a_raised_mark_is_kept_over_a_restart_and_a_failover() {
    let primary = Server::start(&["idgen.max_wait = 500ms", "idgen.max_ahead = 1min"]);
    let standby = primary.synchronous_standby("twin");
    let past: String = primary.value("SELECT (clock_timestamp() + interval '20 s')::text");
    assert!(primary.value::<bool>(&format!("SELECT snowflake_raise_mark('{past}') > '{past}'")));
    primary.run("SELECT snowflake_close_shard(7)");
    assert_eq!(primary.code("SELECT snowflake_next_id(7)"), "55000");
    let later = format!(
        "SELECT snowflake_time(snowflake_next_id(7)) > '{past}'
                AND (snowflake_decode(snowflake_next_id_js(7), 'js53')).created_at > '{past}'"
    );
    primary.restart_at("immediate", -30.0);
    assert!(primary.value::<bool>(&later), "after a crash");
    primary.kill();
    standby.set_clock(-30.0);
    standby.promote();
    standby.make_asynchronous();
    assert!(standby.value::<bool>(&later), "after a failover");
}

/// With synchronous replication the promise holds whatever the clocks show, even if the old primary is alive and cut
/// off: it stops at the last mark of the standby, where the new primary begins.
#[test]
fn a_synchronous_standby_is_promoted_with_the_old_primary_alive() {
    let (primary, standby) = synchronous();
    let mut ledger = Ledger::default();
    let old = Clients::start(6, &primary);
    old.wait_for_ids(3000);
    standby.set_clock(-HOUR);
    standby.promote();
    // The calls of the old primary fail after the end of its window.
    let refusal = ledger.mint_until_refused(&mut primary.connect(), "SELECT snowflake_next_id(9)", 20);
    assert_eq!(refusal.code().unwrap().code(), "40001", "{refusal}");

    // With its clock an hour behind, the new primary refuses. A little behind, it waits and continues.
    assert_eq!(standby.code(MINT), "40001");
    standby.make_asynchronous();
    standby.set_clock(-1.5);
    let new = Clients::start(6, &standby);
    new.finish_after(3000, &mut ledger);
    old.finish(&mut ledger);
}

/// Without the synchronous standby calls wait and then fail, and nothing is published, also after a cancel. When the
/// standby is back or removed from the list, minting continues.
#[test]
fn the_synchronous_standby_is_gone() {
    let (primary, standby) = synchronous();
    let mut ledger = Ledger::default();
    let mut client = primary.connect();
    // The session's synchronous_commit does not count, because the mark concerns all sessions.
    client.run("SET synchronous_commit = off");
    ledger.mint(&mut client);
    standby.stop("fast");
    // Before any call has to wait.
    let too_few = "SELECT warning_code IS NOT DISTINCT FROM 'sync-too-few' FROM idgen_status";
    primary.wait_until(too_few);
    thread::sleep(Duration::from_millis(2500));

    let start = Instant::now();
    assert_eq!(client.code(MINT), "40001");
    assert!((400..5000).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    client.run("SET statement_timeout = '100ms'; SET idgen.max_wait = '20s'");
    for _ in 0..3 {
        assert_eq!(client.code(MINT), "57014", "a cancel");
    }
    let (left, renewals): (i64, i64) = client.row("SELECT window_left_ms, renewals FROM idgen_status");
    assert_eq!(left, 0, "nothing is published");
    assert!(primary.answer::<bool>(too_few));
    assert_eq!(primary.refusal("SELECT snowflake_check()"), "40001 mark_not_durable");

    client.run("SET statement_timeout = 0");
    standby.up();
    ledger.mint(&mut client);
    let now: i64 = client.value("SELECT renewals FROM idgen_status");
    // The first call that sees the standby again publishes the mark of the canceled calls, and renews it as well if
    // more than half of it is used up.
    assert!((renewals + 1..=renewals + 2).contains(&now), "{now} renewals after {renewals}");

    standby.stop("fast");
    primary.make_asynchronous();
    thread::sleep(Duration::from_millis(1200));
    ledger.mint(&mut primary.connect());
}

/// There is a warning only while calls wait because connected synchronous standbys do not acknowledge, and not while
/// only a spare standby is gone.
#[test]
fn a_warning_tells_what_synchronous_standbys_lack() {
    let primary = Server::start(&["idgen.max_wait = 20s"]);
    let links = [(); 3].map(|()| Link::to(&primary));
    let standby = |(link, name): (&Link, _)| primary.standby_by(&link.host(), name);
    let standbys: Vec<_> = links.iter().zip(["a", "b", "c"]).map(standby).collect();

    // The first mark may take a moment without a warning.
    primary.make_synchronous_as("ANY 2 (a, b, c)", &["a", "b", "c"]);
    let set_flow = |flow| links.iter().for_each(|link| link.set_flow(Direction::ToStandby, flow));
    set_flow(Flow::Held);
    let mut client = primary.connect();
    client.run("SET statement_timeout = '100ms'");
    let began = Instant::now();
    while client.warning_code().as_deref() != Some(NOT_ACKNOWLEDGED) {
        assert_eq!(client.code(MINT), "57014", "a cancel");
    }
    let since = began.elapsed();
    assert!(since > Duration::from_secs(1), "a warning after {since:?}");
    set_flow(Flow::Passes);
    client.run("SET statement_timeout = 0");

    for names in ["ANY 2 (a, b, c)", "FIRST 2 (a, b, c)"] {
        primary.make_synchronous_as(names, &["a", "b", "c"]);
        let mut watcher = primary.connect();
        let mut warning = || -> Option<String> { watcher.warning_code() };
        let mut client = primary.connect();
        client.run(MINT);
        assert_eq!(warning(), None, "{names}");
        standbys[0].stop("fast");
        primary.wait_until("SELECT count(*) = 2 FROM pg_stat_replication WHERE sync_state <> 'async'");
        client.run(MINT);
        assert_eq!(warning(), None, "one is to spare, with {names}");

        links[1].set_flow(Direction::ToStandby, Flow::Held);
        client.run("SET statement_timeout = '100ms'");
        while warning().as_deref() != Some(NOT_ACKNOWLEDGED) {
            drop(client.execute(MINT, &[]));
        }
        // The warning stays while calls continue, each of which may write a new mark.
        for _ in 0..15 {
            assert_eq!(client.code(MINT), "57014", "a cancel");
            assert_eq!(warning().as_deref(), Some(NOT_ACKNOWLEDGED), "not for a moment only");
        }
        links[1].set_flow(Direction::ToStandby, Flow::Passes);
        client.run("SET statement_timeout = 0; SELECT snowflake_next_id(1)");
        assert_eq!(warning(), None, "{names}");

        standbys[1].stop("fast");
        primary.wait_until("SELECT warning_code IS NOT DISTINCT FROM 'sync-too-few' FROM idgen_status");
        // A standby's own list does not count, like that of its primary.
        standbys[2].set("synchronous_standby_names", "d");
        standbys[2].run("CHECKPOINT");
        assert_eq!(standbys[2].answer::<Option<String>>("SELECT warning FROM idgen_status"), None);
        standbys[..2].iter().for_each(Server::up);
        primary.wait_until("SELECT warning IS NULL FROM idgen_status");
    }
}

/// Promise 1: until the checkpointer of a starting server has announced the synchronous standbys, those in the
/// configuration that the session has read count.
#[test]
fn a_late_checkpointer_lets_no_id_past_the_standbys() {
    if major_version() >= 19 {
        return skipped("PostgreSQL 19 does not start before its checkpointer has begun");
    }
    for (names, is_refused) in [("", false), ("twin", true)] {
        let server = Server::start(&["idgen.max_wait = 300ms"]);
        server.stop("fast");
        server.configure(&[&format!("synchronous_standby_names = '{names}'")]);
        server.delay_checkpointer();
        server.up();
        let mut client = server.connect();
        let pid = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'";
        let checkpointer = Process::find(client.value(pid)).expect("a checkpointer");
        assert!(is_reached(60, || checkpointer.is_stopped()), "{checkpointer:?}");
        for late in [true, false] {
            assert_eq!(checkpointer.is_stopped(), late);
            let refused = client.query_one(MINT, &[]).err().and_then(|error| error.code().cloned());
            let refused = refused.as_ref().map(SqlState::code);
            assert_eq!(refused, is_refused.then_some("40001"), "{names:?}, late: {late}");
            checkpointer.go_on();
            assert!(is_reached(60, || !checkpointer.is_stopped()), "{checkpointer:?}");
        }
    }
}

/// Promise 1: a statement that mints began before the standby became synchronous, and has not read the configuration
/// since. The standby is promoted while the old primary runs. Like its commits, the old primary's ids end with the last
/// mark that the standby has acknowledged, whatever the settings of the statement.
#[test]
fn synchronous_replication_begins_under_a_long_statement() {
    let primary = Server::start(&["idgen.max_wait = 300ms"]);
    let standby = primary.standby("twin");
    let mut long = primary.connect();
    let minting = thread::spawn(move || {
        long.batch_execute(
            "SET statement_timeout = '10min';
             DO $$ BEGIN
                 LOOP PERFORM snowflake_next_id(6), pg_sleep(0.02); END LOOP;
             END $$",
        )
    });
    primary.wait_until("SELECT count(*) = 1 FROM idgen_shard_stats WHERE shard = 6");
    primary.make_synchronous("twin");
    standby.promote();

    // Longer than any acknowledged mark lasts.
    thread::sleep(Duration::from_millis(2500));
    let sql = "SELECT id FROM snowflake_next_ids(5, 300000) AS id";
    let mut ledger = Ledger::default();
    match ids(&mut primary.connect(), sql) {
        Ok(ids) => ledger.add(&ids),
        Err(error) => assert_eq!(error.code().map(|code| code.code()), Some("40001"), "{error}"),
    }
    ledger.add(&standby.connect().column::<i64>(sql));
    assert_eq!(ledger.len(), 300_000, "the old primary goes on without its standby");
    let ended = minting.join().unwrap().expect_err("the statement comes to that end too");
    assert_eq!(ended.code().map(|code| code.code()), Some("40001"), "{ended}");
}

/// Calls that fail for lack of the standby do not each write a record: later calls wait for the mark already written,
/// as long as it is enough, which is published when the standby is back.
#[test]
fn failed_renewals_write_one_mark() {
    const CALLS: i64 = 200;
    let (primary, standby) = synchronous();
    let mut client = primary.connect();
    client.query_one(MINT, &[]).unwrap();
    client.run("SET idgen.max_wait = '5ms'");
    // Otherwise sessions or autovacuum could write a page to the WAL because of a catalog row dead since CREATE
    // EXTENSION.
    client.run("VACUUM");
    client.run("ALTER SYSTEM SET autovacuum = off");
    client.run("SELECT pg_reload_conf()");
    standby.stop("fast");
    thread::sleep(Duration::from_millis(2500));
    let position =
        |client: &mut Client| -> String { client.value("SELECT pg_current_wal_insert_lsn()::text") };
    let (before, start) = (position(&mut client), Instant::now());
    for _ in 0..CALLS {
        assert_eq!(client.code(MINT), "40001");
    }
    let few_since = |client: &mut Client, before: String, start: Instant| {
        let bytes: i64 = client.value(&format!("SELECT (pg_current_wal_insert_lsn() - '{before}')::bigint"));
        // A record has 48 bytes. There may be one a second, and some of the server itself.
        let most = 48 * (start.elapsed().as_secs() as i64 + 20);
        println!("{bytes} bytes of WAL for {CALLS} calls that failed, {most} are right");
        assert!(bytes < most, "{bytes} bytes, {most} are right");
    };
    few_since(&mut client, before, start);

    // This also holds if each call needs more than the previous one.
    let client = &mut primary.connect();
    client.run("SET idgen.max_wait = 0; SET default_transaction_read_only = on");
    let (before, start) = (position(client), Instant::now());
    for count in 1..=CALLS {
        assert_eq!(client.code(&format!("SELECT snowflake_next_ids(1, {})", count * 5000)), "40001");
    }
    few_since(client, before, start);

    client.run("SET idgen.max_wait = '60s'");
    standby.up();
    Ledger::default().mint(client);
}

/// If a standby is so far away that each mark has passed before it is acknowledged, ids wait as long as commits.
#[test]
fn a_standby_far_away_makes_calls_wait_and_not_fail() {
    let primary = Server::start(&["idgen.max_wait = 60s", "idgen.reserve_ahead = 10ms"]);
    let link = Link::to(&primary);
    let _standby = primary.standby_by(&link.host(), "twin");
    primary.make_synchronous("twin");
    for direction in [Direction::ToStandby, Direction::ToPrimary] {
        link.set_flow(direction, Flow::Late(Duration::from_millis(50)));
    }
    let mut client = primary.connect();
    let mut ledger = Ledger::default();
    for _ in 0..3 {
        thread::sleep(Duration::from_millis(100));
        ledger.mint(&mut client);
    }
}

/// A standby has not acknowledged a mark that it received while asynchronous, so the primary sends something new.
#[test]
fn a_mark_that_came_between_two_synchronous_times_is_acknowledged() {
    let primary = Server::start(&["idgen.max_wait = 60s", "idgen.reserve_ahead = 3s"]);
    let link = Link::to(&primary);
    let standby = primary.standby_by(&link.host(), "twin");
    // Otherwise the standby would acknowledge the mark by itself after a while.
    standby.set("wal_receiver_status_interval", "0");
    primary.make_synchronous("twin");
    let mut ledger = Ledger::default();
    link.set_flow(Direction::ToStandby, Flow::Held);
    let mut waiting = primary.connect();
    let waits = thread::spawn(move || waiting.query_one(MINT, &[]).map(|row| row.get(0)));
    primary.wait_until("SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Extension'");
    primary.make_asynchronous();
    ledger.add(&[waits.join().unwrap().unwrap()]);
    link.set_flow(Direction::ToStandby, Flow::Passes);
    primary.wait_until("SELECT bool_and(flush_lsn = pg_current_wal_lsn()) FROM pg_stat_replication");
    primary.make_synchronous("twin");
    ledger.mint(&mut primary.connect());
}

/// The wait events tell whether a call waits for the standby, or for the backend that waits for it.
#[test]
fn waits_for_a_standby_have_names() {
    let (primary, standby) = synchronous();
    standby.stop("fast");
    let calls = [(); 2].map(|()| {
        let mut client = primary.connect();
        client.run("SET idgen.max_wait = '30s'");
        thread::spawn(move || client.query_one(MINT, &[]).map(|_| ()))
    });
    primary.until_waiting("IdgenStandby");
    primary.until_waiting("IdgenMark");
    // Before PostgreSQL 17 the two have the same name.
    primary.wait_until(
        "SELECT count(*) = 2 FROM pg_stat_activity WHERE wait_event_type = 'Extension' AND backend_type = 'client backend'",
    );
    standby.up();
    for call in calls {
        call.join().unwrap().unwrap();
    }
}

/// The reported time until a mark is durable is not longer than the only call, and not shorter than the standby's
/// absence.
#[test]
fn the_time_until_a_mark_is_durable_is_told() {
    const AWAY: Duration = Duration::from_millis(300);
    let (primary, standby) = synchronous();
    standby.stop("fast");
    let mut client = primary.connect();
    client.run("SET idgen.max_wait = '1h'");
    let began = Instant::now();
    let call = thread::spawn(move || client.query_one(MINT, &[]).map(|_| ()));
    primary.wait_until("SELECT mark IS NOT NULL FROM idgen_status");
    thread::sleep(AWAY);
    standby.up();
    call.join().unwrap().unwrap();
    let told: f64 = primary.value("SELECT flush_ms FROM idgen_status");
    let [least, most] = [AWAY, began.elapsed()].map(|time| time.as_secs_f64() * 1000.0);
    assert!((least..=most).contains(&told), "{told} ms, but it took {least} to {most} ms");
}

/// After a failover and a failback, each server begins above the ids of the previous one.
#[test]
fn failover_and_failback() {
    let first = Server::start(&["idgen.max_wait = 300ms"]);
    let mut ledger = Ledger::default();
    let clients = Clients::start(4, &first);
    clients.wait_for_ids(1500);
    let second = first.standby("second");
    clients.wait_for_ids(1500);
    first.stop("fast");
    second.promote();
    clients.move_to(&second);
    clients.wait_for_ids(1500);
    // The third server stands for the first one, rebuilt from the second. Its clock is slow.
    let third = second.standby("third");
    third.set_clock(-0.5);
    clients.wait_for_ids(1500);
    second.stop("fast");
    third.promote();
    clients.move_to(&third);
    clients.finish_after(1500, &mut ledger);
}

/// Failover to a synchronous standby and, after pg_rewind, back to the first server, with clocks that are further and
/// further behind. Clients that know both continue. Each server begins above all earlier ids, and no acknowledged row
/// is lost.
#[test]
fn fail_over_and_switch_back() {
    let (first, second) = synchronous();
    let hosts = format!("{},{}", first.host(), second.host());
    first.run(ROWS);
    let target = format!("host={hosts} user=postgres dbname=postgres target_session_attrs=read-write");
    let clients = Clients::start_inserting(4, target);
    clients.wait_for_ids(500);

    first.kill();
    second.set_clock(-0.7);
    second.promote();
    clients.wait_for_ids(500);
    first.rewind(&second, "twin");
    first.set_clock(-1.4);
    first.up();
    assert_eq!(first.code(MINT), "25006");
    assert!(first.value::<bool>("SELECT refused > 0 FROM idgen_refusals WHERE reason = 'recovery'"));
    second.make_synchronous("twin");
    clients.wait_for_ids(500);

    second.stop("fast");
    first.promote();
    clients.wait_for_ids(500);
    second.follow(&first, "twin");
    second.up();
    first.make_synchronous("twin");
    clients.wait_for_ids(500);
    let mut ledger = Ledger::default();
    clients.finish(&mut ledger);
    ledger.assert_rows(&mut first.connect(), 3);
}

/// A base backup contains the mark: restored with its clock an hour behind, the server refuses.
#[test]
fn a_base_backup_is_restored() {
    let primary = Server::start(&["idgen.max_wait = 300ms"]);
    let mut ledger = Ledger::default();
    let clients = Clients::start(4, &primary);
    clients.wait_for_ids(1500);
    let restored = primary.base_backup();
    clients.wait_for_ids(1500);
    primary.stop("immediate");
    restored.set_clock(-HOUR);
    restored.up();
    assert_eq!(restored.reconnect().code(MINT), "40001");
    restored.set_clock(0.0);
    clients.move_to(&restored);
    clients.finish_after(1500, &mut ledger);
}

/// A restored backup knows neither of ids passed over since the backup nor of the mark above them, as
/// docs/guarantees.md warns.
#[test]
fn a_restored_backup_forgets_an_advance() {
    let primary = Server::start(&["idgen.max_ahead = 10min"]);
    primary.connect().query_one(MINT, &[]).unwrap();
    let restored = primary.base_backup();
    let mut client = primary.connect();
    let past: i64 = client.value("SELECT snowflake_max_id(now() + '5min')");
    let advance = format!("SELECT snowflake_advance(1, {past})");
    let mint = |client: &mut Client| -> i64 { client.value(MINT) };
    client.run(&advance);
    assert!(mint(&mut client) > past);
    primary.stop("fast");
    restored.up();
    let mut client = restored.reconnect();
    assert!(mint(&mut client) < past);
    client.run(&advance);
    assert!(mint(&mut client) > past);
}
