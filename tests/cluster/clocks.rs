//! Promise 1 when the clock is set, under running servers and across restarts.

use std::thread;
use std::time::Duration;

use postgres::Client;
use postgres::error::DbError;

use crate::clients::{Clients, Ledger};
use crate::moment::is_reached;
use crate::server::{PRELOAD, Server, Sql, if_preloaded, reason};

const HOUR: f64 = 3600.0;
const YEAR: f64 = 365.25 * 24.0 * HOUR;

const JUMPED: &str = "55000 clock_jumped";

fn refused(client: &mut Client) -> DbError {
    client.error("SELECT snowflake_next_id(1)")
}

fn mark(client: &mut Client) -> i64 {
    client.value("SELECT mark FROM idgen_status")
}

fn ms_in(detail: Option<&str>) -> i64 {
    let words = detail.unwrap().split(' ');
    words.filter_map(|word| word.parse().ok()).next().unwrap()
}

/// The clock is set by steps of every size while eight clients mint: minting continues, or calls fail until the clock
/// is right again.
#[test]
fn the_clock_steps_under_minting_clients() {
    let server = Server::start(&["idgen.max_wait = 200ms", "idgen.max_clock_jump = 2h"]);
    let mut ledger = Ledger::default();
    // The clock between the steps. After the step by an hour it stays ahead like the ids.
    let mut right = 0.0;
    for (step, refuses) in
        [(-0.001, false), (-0.05, false), (-2.0, true), (-HOUR, true), (HOUR, false), (10.0 * YEAR, true)]
    {
        let clients = Clients::start(8, &server);
        clients.wait_for_ids(3000);
        server.set_clock(right + step);
        if refuses {
            thread::sleep(Duration::from_millis(700));
        } else {
            clients.wait_for_ids(3000);
        }
        if step == HOUR {
            right = HOUR;
        }
        server.set_clock(right);
        clients.wait_for_ids(3000);
        let before = ledger.refused_for_the_clock();
        clients.finish(&mut ledger);
        let refused = ledger.refused_for_the_clock() > before;
        assert_eq!(refused, refuses, "step of {step} s: {:?}", ledger.errors);
    }
    // Renewals count the steps that they see.
    let mut client = server.connect();
    for (step, counter) in [(-0.5, "clock_steps_back"), (0.0, "clock_steps_forward")] {
        let count = |client: &mut Client| client.value::<i64>(&format!("SELECT {counter} FROM idgen_status"));
        let before = count(&mut client);
        server.set_clock(right + step);
        let is_counted = || {
            ledger.mint(&mut client);
            count(&mut client) != before
        };
        assert!(is_reached(20, is_counted), "{counter} stays {before}");
    }
    // The ids are an hour ahead of the true time, up to which the clock has to catch up.
    server.set_clock(0.0);
    let behind = ms_in(refused(&mut client).detail());
    assert!((3_590_000..3_602_000).contains(&behind), "{behind}");
    assert_eq!(client.refusal("SELECT snowflake_check()"), "40001 clock_behind");
    assert_eq!(client.warning_code().as_deref(), Some("clock-behind"));
    let refusal = |error: &String| error.starts_with("40001 ") || error.starts_with("55000 ");
    assert!(ledger.errors.keys().all(refusal), "{:?}", ledger.errors);
}

/// The warning of the end of the range begins five years before it.
#[test]
fn the_end_of_the_range_is_told_in_time() {
    let server = Server::start(&[]);
    let left: f64 = server
        .value("SELECT extract(epoch FROM ends_at - clock_timestamp())::double precision FROM idgen_status");
    for (years, warning) in [(5.01, None), (4.99, Some("range-ends"))] {
        server.set_clock(left - years * YEAR);
        assert_eq!(server.warning_code().as_deref(), warning, "{years} years before");
    }
    server.set_clock(0.0);
}

/// A jump of ten years is refused before anything is written. It can be accepted once, without a shard or a setting. If
/// the clock is corrected instead, minting continues at once.
#[test]
fn a_jump_forward_is_refused_and_can_be_accepted() {
    let server = Server::start(if_preloaded(&["idgen.allowed_shards = '1-9'"]));
    let mut ledger = Ledger::default();
    let mut client = server.connect();
    ledger.mint(&mut client);
    let before = mark(&mut client);

    server.set_clock(10.0 * YEAR);
    let error = refused(&mut client);
    assert_eq!(reason(&error), JUMPED);
    assert!((ms_in(error.detail()) as f64 / 1000.0 - 10.0 * YEAR).abs() < 60.0, "{error:?}");
    assert!(error.hint().unwrap().contains("snowflake_accept_clock"));
    let counted = "SELECT refused FROM idgen_refusals WHERE reason = 'clock_jumped'";
    let counted = |client: &mut Client| client.value::<i64>(counted);
    let refusals = counted(&mut client);
    assert_eq!(client.refusal("SELECT snowflake_check()"), JUMPED);
    assert_eq!(counted(&mut client), refusals, "a check is no refused call");
    assert_eq!(mark(&mut client), before, "nothing is written");
    assert_eq!(client.warning_code().as_deref(), Some("clock-jumped"));

    server.set_clock(0.0);
    assert_eq!(client.warning(), None);
    ledger.mint(&mut client);

    server.set_clock(10.0 * YEAR);
    let accept = "SELECT round(extract(epoch FROM snowflake_accept_clock()))::float8";
    let accept = |client: &mut Client| client.value::<f64>(accept);
    assert!((accept(&mut client) - 10.0 * YEAR).abs() < 2.0);
    assert_eq!(mark(&mut client), before, "accepted, and nothing minted yet");
    assert_eq!((accept(&mut client), client.warning()), (0.0, None), "it has been");
    let id = ledger.mint(&mut client);
    server.set_clock(10.0 * YEAR + 2.0 * HOUR);
    assert_eq!(reason(&refused(&mut client)), JUMPED, "the next one");
    server.set_clock(10.0 * YEAR);
    assert!(ledger.mint(&mut server.connect()) > id, "accepted once, accepted for good");
    client.query_one("SELECT snowflake_check()", &[]).unwrap();
}

/// If the clock is set back by a day while the server is down, calls fail instead of repeating ids. Promise 5: the
/// DETAIL says by how much.
#[test]
fn the_clock_is_set_back_across_a_restart() {
    let server = Server::start(&["idgen.max_wait = 100ms"]);
    let mut ledger = Ledger::default();
    for how in ["fast", "immediate", "kill"] {
        let clients = Clients::start(4, &server);
        clients.wait_for_ids(2000);
        server.restart_at(how, -24.0 * HOUR);
        let mut client = server.reconnect();
        for _ in 0..3 {
            let error = refused(&mut client);
            assert_eq!(reason(&error), "40001 clock_behind_mark", "neither this run's ids nor the load");
            assert!((86_300_000..86_403_000).contains(&ms_in(error.detail())), "{error:?}");
        }
        // Without a preload, the session that allocates the memory logs this a moment later.
        let logged = || server.log().contains(IN_FUTURE);
        assert!(how != "fast" || is_reached(10, logged), "the checkpoint has saved it");
        assert_eq!(client.warning_code().as_deref(), Some("clock-behind"));
        let counted = "SELECT refused >= 3 FROM idgen_refusals WHERE reason = 'clock_behind_mark'";
        assert!(client.value::<bool>(counted));
        server.set_clock(0.0);
        clients.finish_after(2000, &mut ledger);
    }
}

/// Promise 4: a server begins at its last mark, and its first calls get ids within the default of `idgen.max_wait`,
/// however far ahead of the ids the mark is written.
#[test]
fn ids_begin_within_the_wait_after_a_restart() {
    let server = Server::start(&["idgen.max_ahead = 0"]);
    let ids = "SELECT snowflake_next_id(1), snowflake_next_id_js(1)";
    let mut client = server.connect();
    let most: String = client.value("SELECT max_val FROM pg_settings WHERE name = 'idgen.reserve_ahead'");
    server.configure(&[&format!("idgen.reserve_ahead = {most}")]);
    server.reload("idgen.reserve_ahead", &format!("{}s", most.parse::<u32>().unwrap() / 1000));
    for how in ["fast", "immediate", "kill"] {
        // This renews the mark, that far ahead.
        thread::sleep(Duration::from_millis(1100));
        server.connect().query_one(ids, &[]).unwrap_or_else(|error| panic!("before {how}: {error}"));
        server.restart_at(how, 0.0);
        let client = &mut server.reconnect();
        client.query_one(ids, &[]).unwrap_or_else(|error| panic!("after {how}: {error}"));
    }

    // A call that does not wait reports the cause, even for ids whose second begins after the mark.
    server.restart_at("immediate", -20.0);
    let mut client = server.reconnect();
    client.run("SET idgen.max_wait = 0");
    for call in ["snowflake_next_id(1)", "snowflake_next_id_js(1)"] {
        assert_eq!(client.refusal(&format!("SELECT {call}")), "40001 clock_behind_mark", "{call}");
    }
}

const IN_FUTURE: &str = "the high-water mark of ids lies in the future";
const OTHER_EPOCH: &str = "the epoch of the high-water mark of ids differs from \"idgen.epoch\"";

/// With a slow standby or disk, a mark is up to 4 s ahead of the ids. A server that starts from such a mark does not
/// warn, because calls wait and succeed.
#[test]
fn a_mark_that_calls_can_wait_for_is_not_in_the_future() {
    let server = Server::start(&[]);
    for (back, expected) in [(2.5, None), (3600.0, Some("mark-in-future"))] {
        server.connect().query_one("SELECT snowflake_next_id(1)", &[]).unwrap();
        server.restart_at("immediate", -back);
        assert_eq!(server.reconnect().warning_code().as_deref(), expected, "set back by {back} s");
    }
}

fn change_epoch(server: &Server, epoch: &str) {
    server.restart_with(&[PRELOAD, &format!("idgen.epoch = '{epoch}'")]);
}

/// Promise 1: with another epoch, earlier or later, the server mints nothing, and the view and the log report it. When
/// the setting is restored, minting continues.
#[test]
fn another_epoch_is_refused() {
    let server = Server::start(&["idgen.max_wait = 100ms"]);
    let mut ledger = Ledger::default();
    ledger.mint(&mut server.connect());
    for epoch in ["2024-12-31T00:00:00Z", "2025-01-01T00:00:00.001Z", "1735776000000"] {
        change_epoch(&server, epoch);
        let mut client = server.connect();
        assert_eq!(reason(&refused(&mut client)), "55000 other_epoch");
        for call in ["advance(1, snowflake_max_id(now()))", "safe_horizon()", "check()"] {
            assert_eq!(client.refusal(&format!("SELECT snowflake_{call}")), "55000 other_epoch", "{call}");
        }
        let row: (Option<String>, bool, bool) =
            client.row("SELECT warning_code, mark > 0, mark_at IS NULL FROM idgen_status");
        assert_eq!(row, (Some("epoch-of-mark".to_owned()), true, true));
        assert!(server.log().contains(OTHER_EPOCH), "at start, from what the checkpoint saved");
    }
    change_epoch(&server, "2025-01-01T00:00:00Z");
    ledger.mint(&mut server.connect());
}

/// Promise 1: another epoch can be accepted durably if it is the one in effect, and ids stay above the earlier ones. A
/// later epoch makes all ticks smaller, like a clock behind the mark.
#[test]
fn another_epoch_is_accepted() {
    let server = Server::start(&["idgen.max_wait = 100ms"]);
    let mut ledger = Ledger::default();
    let accept = |server: &Server, epoch: &str| -> Result<bool, String> {
        let row = server.connect().query_one(&format!("SELECT snowflake_accept_epoch('{epoch}')"), &[]);
        row.map(|row| row.get(0)).map_err(|error| error.code().unwrap().code().into())
    };
    assert_eq!(accept(&server, "2025-01-01 00:00 UTC"), Ok(false), "there is no mark");
    let before = ledger.mint(&mut server.connect());

    change_epoch(&server, "2024-12-31T00:00:00Z");
    assert_eq!(accept(&server, "2025-01-01 00:00 UTC"), Err("22023".into()));
    assert_eq!(accept(&server, "2024-12-31 00:00 UTC"), Ok(true));
    server.crash();
    assert_eq!(accept(&server, "2024-12-31 00:00 UTC"), Ok(false), "it has been");
    assert!(ledger.mint(&mut server.connect()) > before);

    change_epoch(&server, "2025-01-02T00:00:00Z");
    assert_eq!(accept(&server, "2025-01-02 00:00 UTC"), Ok(true));
    let mut client = server.connect();
    assert_eq!(client.warning_code().as_deref(), Some("mark-in-future"), "before the first call");
    let error = refused(&mut client);
    assert!((2 * 86_300_000..2 * 86_403_000).contains(&ms_in(error.detail())), "{error:?}");
    assert!(error.detail().unwrap().contains("minting resumes in "), "{error:?}");
    assert!(error.hint().unwrap().contains("move \"idgen.epoch\" back"), "{error:?}");
}

/// `snowflake_advance` is durable when it returns: after a crash the shard is above the id, and so is every other
/// shard.
#[test]
fn an_advance_outlives_a_crash() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let sql = "SELECT past, snowflake_advance(5, past), snowflake_next_id(5)
               FROM snowflake_max_id(clock_timestamp() + '900ms') AS past";
    let (past, least, next): (i64, i64, i64) = client.row(sql);
    assert!(past < least && least <= next, "{past} {least} {next}");
    server.crash();
    // This is the first call after the start, with an id far below the mark.
    let mut client = server.reconnect();
    client.run("SET statement_timeout = '10s'; SELECT snowflake_advance(5, 1)");
    let (fifth, ninth): (i64, i64) = client.row("SELECT snowflake_next_id(5), snowflake_next_id(9)");
    assert!(fifth > next && ninth > past);
}
