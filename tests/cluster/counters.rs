//! The counters of `idgen_shard_stats` under clients, another clock or a crash.

use postgres::Client;

use crate::clients::{Clients, Ledger};
use crate::server::{PRELOAD, Server, Sql};

/// The start of the counters in seconds since 1970, and the rate of shard 1.
fn began(client: &mut Client) -> (f64, Option<f64>) {
    let sql = "SELECT extract(epoch FROM stats_reset)::float8, ids_per_second
               FROM idgen_shard_stats WHERE shard = 1 AND layout = 'idgen'";
    client.row(sql)
}

/// Promise 1: resets while clients mint repeat no id. The counters begin anew at a reset and at a start of the server,
/// as after a crash. While the clock is before their start, there is no rate.
#[test]
fn the_counters_begin_anew() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let mut ledger = Ledger::default();
    let clients = Clients::start(6, &server);
    let mut last = 0.0;
    for _ in 0..20 {
        clients.wait_for_ids(300);
        client.run("SELECT snowflake_stats_reset()");
        clients.wait_for_ids(1);
        ledger.mint(&mut client);
        let (reset, rate) = began(&mut client);
        assert!(reset > last && rate.is_some_and(|rate| rate > 0.0), "{last} {reset} {rate:?}");
        last = reset;
    }
    clients.finish(&mut ledger);

    server.set_clock(-60.0);
    assert_eq!(began(&mut client), (last, None), "a clock that was set back");
    server.set_clock(0.0);

    server.kill_backend(server.connect());
    let mut client = server.reconnect();
    let shards: i64 = client.value("SELECT count(*) FROM idgen_shard_stats");
    assert_eq!(shards, 0, "no shard has been used since");
    ledger.mint(&mut client);
    assert!(began(&mut client).0 > last);
}

/// Promise 5: a program can tell the reason of a refusal from the error without reading its text.
#[test]
fn an_error_names_the_reason_that_is_counted() {
    let server = Server::start(&[PRELOAD, "idgen.allowed_shards = '1-9'"]);
    let mut client = server.connect();
    for call in [
        "SELECT snowflake_next_id(8192)",
        "SELECT snowflake_next_id(NULL)",
        "SELECT snowflake_next_id(10)",
        "SELECT snowflake_next_id()",
        "SELECT snowflake_next_ids(1, 2147483647)",
        "SET idgen.max_wait = 0; SELECT count(snowflake_next_id_js(1)) FROM generate_series(1, 100000)",
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT snowflake_safe_horizon()",
    ] {
        client.run("SELECT snowflake_stats_reset()");
        let refusal = client.refusal(call);
        client.run("ROLLBACK");
        let counted: String =
            client.value("SELECT concat(sqlstate, ' ', reason) FROM idgen_refusals WHERE refused > 0");
        assert_eq!(refusal, counted, "{call}");
    }
}
