//! The cost of idgen on a server that does not preload it, compared with one that does: `make bench-preload`.

use crate::measure::{Taken, seconds, timed, turns};
use crate::report::{ratio, spread, table};
use crate::sessions::burst;
use crate::{Bench, SESSION, connect, sql};

const SERVERS: [(&str, usize); 2] = [("preloaded", 0), ("not preloaded", 1)];
const MINT: &str = "SELECT snowflake_next_id(5)";
/// The number of connections in a burst. By default, a server accepts 100.
const BURST: usize = 80;

/// Measures everything, and writes its part of the page.
pub fn run(bench: Bench, not_preloaded: &str) {
    let Bench { server, control, quick, mut report, .. } = bench;
    let servers = [server, format!("{not_preloaded} {SESSION}")];
    let mut controls = [control, connect(&servers[1])];
    sql(&mut controls[1], "CREATE EXTENSION idgen");
    for control in &mut controls {
        sql(control, "CREATE TABLE million AS SELECT n FROM generate_series(1, 1000000) AS n");
        sql(control, "VACUUM ANALYZE");
    }
    let rounds = |number: usize| if quick { number / 5 } else { number };

    let calls = turns("a call", rounds(10), &SERVERS, |number| {
        ["snowflake_next_id(5)", "1"].map(|counted| {
            let statement = format!("SELECT count({counted}) FROM million");
            timed(&mut controls[*number], &statement)[0] * 1e3 // nanoseconds a row
        })
    });
    let connections = turns("a connection", rounds(200), &SERVERS, |number| {
        let mut client = connect(&servers[*number]);
        [(); 2].map(|()| seconds(|| sql(&mut client, MINT)) * 1e3)
    });
    let bursts = turns("a burst", rounds(20), &SERVERS, |number| {
        [MINT, "SELECT 1"].map(|statement| burst(&servers[*number], &mut controls[*number], BURST, statement))
    });

    let of = |taken: &Taken<2>, figure: usize| SERVERS.map(|(name, _)| taken.of(name)[figure]);
    let [scan, other_scan] = of(&calls, 1).map(|scan| scan.median);
    let [call, other_call] = of(&calls, 0);
    let calls = [call.map(|ns| ns - scan), other_call.map(|ns| ns - other_scan)];
    let rows = [
        ("a call, ns".to_owned(), calls),
        ("the first call of a connection, ms".to_owned(), of(&connections, 0)),
        ("its second call, ms".to_owned(), of(&connections, 1)),
        (format!("{BURST} connections at once, until each has an id, ms"), of(&bursts, 0)),
        ("the same with `SELECT 1` in place of the call, ms".to_owned(), of(&bursts, 1)),
    ];
    let rows = rows.map(|(what, [with, without])| {
        [what, spread(with), spread(without), ratio(without.median / with.median)]
    });
    let heads = SERVERS.map(|(name, _)| name).join(" | ");
    report.put("preload", &table(&format!("what | {heads} | ratio"), rows));
    report.finish("preload");
}
