//! The report: docs/performance.md.

use std::path::PathBuf;
use std::time::Duration;

use postgres::Client;

use crate::measure::Spread;
use crate::systems::{CACHED, IDGEN, INSTAGRAM, NEXTVAL};
use crate::{Bench, CEILING, Inserts, Load, READY_MADE, Results, UNTHROTTLED, VOLATILE, cores};

/// A requirement on the figures: its subject, the bar, the measured value, and whether it holds.
pub struct Bar(String, String, String, bool);

impl Bar {
    /// A figure that may not be above the bar. One below 0 is noise: an empty scan that took longer.
    pub fn at_most(what: &str, bar: f64, measured: f64) -> Bar {
        Bar::each_at_most(what, bar, &[measured])
    }

    /// A figure that may not be below the bar.
    fn at_least(what: &str, bar: f64, measured: f64) -> Bar {
        Bar::each_at_least(what, bar, &[measured])
    }

    /// Figures of one kind, each of which may not be below the bar.
    fn each_at_least(what: &str, bar: f64, measured: &[f64]) -> Bar {
        let holds = measured.iter().all(|value| *value >= bar);
        Bar(what.into(), format!("at least {bar}"), ratios(measured), holds)
    }

    /// Figures of one kind, none of which may be above the bar.
    fn each_at_most(what: &str, bar: f64, measured: &[f64]) -> Bar {
        let holds = measured.iter().all(|value| (0.0..=bar).contains(value));
        Bar(what.into(), format!("at most {bar}"), ratios(measured), holds)
    }

    pub fn within(what: &str, bar: &str, measured: String, holds: bool) -> Bar {
        Bar(what.into(), bar.into(), measured, holds)
    }
}

fn ratios(values: &[f64]) -> String {
    values.iter().map(|value| ratio(*value)).collect::<Vec<_>>().join(", ")
}

fn ratio(value: f64) -> String {
    if value < 10.0 { format!("{value:.3}") } else { format!("{value:.1}") }
}

/// Digits enough to tell two figures apart, in groups of three.
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    let text = format!("{value:.digits$}");
    let (whole, part) = text.split_once('.').map_or((text.as_str(), ""), |(whole, part)| (whole, part));
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |whole| ("-", whole));
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if part.is_empty() { format!("{sign}{grouped}") } else { format!("{sign}{grouped}.{part}") }
}

pub fn spread(spread: Spread) -> String {
    let Spread { median, least, greatest } = spread;
    format!("{} ({}–{})", number(median), number(least), number(greatest))
}

fn bytes(value: f64) -> String {
    if value < 1e4 { format!("{value:.0} bytes") } else { format!("{:.1} MB", value / 1e6) }
}

/// A sentence on the machine and the versions.
pub fn machine(client: &mut Client) -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    let cpu = cpus.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("\t: an unknown CPU");
    let cpu = cpu.trim_start_matches(['\t', ' ', ':']);
    let row = client
        .query_one(
            "SELECT extversion, current_setting('server_version'), now()::date::text
             FROM pg_extension WHERE extname = 'idgen'",
            &[],
        )
        .expect("versions");
    let [idgen, server, date] = [0, 1, 2].map(|column| row.get::<_, String>(column));
    let load = read("/proc/loadavg");
    format!(
        "idgen {idgen}, PostgreSQL {server}, {} cores of {cpu}, Linux {}, on {date}; the machine's load \
         average was {} before.",
        cores(),
        read("/proc/sys/kernel/osrelease").trim(),
        load.split(' ').next().unwrap_or("unknown"),
    )
}

/// Breaks paragraphs into lines of the length that all files here keep to.
pub fn wrapped(text: &str) -> String {
    let mut lines = String::new();
    for line in text.split('\n') {
        let mut column = 0;
        let breaks = !line.starts_with(['|', '#', '!', ' ']);
        for word in line.split_inclusive(' ') {
            let length = word.trim_end().chars().count();
            if breaks && column > 0 && column + length > 120 {
                lines.truncate(lines.trim_end().len());
                lines.push('\n');
                column = 0;
            }
            lines.push_str(word);
            column += word.chars().count();
        }
        lines.push('\n');
    }
    lines
}

/// The whole report.
pub fn write(bench: &Bench, machine: &str, names: &[&str], results: &Results, took: Duration) -> String {
    let mut text = String::new();
    let scale = &bench.scale;
    let bulk = number(scale.bulk.1 as f64);
    let mut line = |line: &str| text.push_str(&wrapped(line));
    line("# Performance\n");
    line("Written by `make bench`; do not edit. `benches/profile.md` has the part kept by hand.\n");
    if scale.quick {
        line("**A quick run with few rounds and few rows. Do not rely on these figures.**\n");
    }
    line(&format!(
        "{machine} One run took {} minutes. Settings are the defaults unless stated, `fsync` included, but without \
         JIT, parallel query and synchronized scans. The systems take turns in changing order, after a warm-up \
         round. Figures are medians of {} rounds, with the range in parentheses; ratios are ratios of medians.\n",
        took.as_secs().div_ceil(60),
        scale.rounds
    ));

    line("## Requirements\n");
    line("\"X, of Y\" means X divided by Y.\n");
    bars(&mut line, &demands(results, &bulk));

    line("\n## The cost of a call\n");
    line("![Cost of a call](plots/call.svg)\n");
    line(&format!(
        "The time of `SELECT count(snowflake_next_id(5)) FROM million` in one backend, less that of the same \
         scan with `count(1)`, {} ns a row, or with `count(n & 8191)` for 8192 shards. No call waits: each \
         statement starts when the clock has caught up, and a million ids fit into `idgen.max_ahead` (1 s). The \
         PL/pgSQL function and segments are called 100,000 times, tickets 1000 times in one transaction; their \
         WAL is scaled to a million calls.\n",
        spread(results.calls.scan)
    ));
    let idgen = results.calls.systems[IDGEN].ns.median;
    line("| system | ns a call | of idgen's | WAL for 1 M |\n|---|---|---|---|");
    let rows = names.iter().zip(&results.calls.systems);
    let more = [
        ("idgen, over 8192 shards", &results.calls.round_robin),
        ("`clock_timestamp()`", &results.calls.clock),
    ];
    for (name, call) in rows.map(|(name, call)| (*name, call)).chain(more) {
        line(&format!(
            "| {name} | {} | {} | {} |",
            spread(call.ns),
            ratio(call.ns.median / idgen),
            bytes(call.wal.median)
        ));
    }

    let readers = &results.readers;
    line(&format!(
        "\nMeasured in the same way, `shard_of(id)` takes {} ns, `snowflake_time(id)` {}, and `snowflake_decode(id)` {}.",
        spread(readers.shard_of),
        spread(readers.time),
        spread(readers.decode)
    ));

    line("\nMinting 1000 ids for one shard:\n");
    line("| how | µs |\n|---|---|");
    let batches = &results.batches;
    for (how, us) in [
        ("`SELECT snowflake_next_ids(5, 1000)`, counted", batches.batch),
        ("`SELECT count(id) FROM snowflake_next_ids(5, 1000) AS id`", batches.table),
        ("`SELECT count(snowflake_next_id(5)) FROM generate_series(1, 1000)`", batches.calls),
        ("1000 statements, sent at once", batches.statements),
    ] {
        line(&format!("| {how} | {} |", spread(us)));
    }

    line("\n## The sustained rate of one shard\n");
    line(&format!(
        "With `idgen.max_ahead = 0`, a shard mints at most {} ids/s. The CPU time is the total of all backends \
         on {} cores.\n",
        number(CEILING),
        cores()
    ));
    line("| backends | ids/s | of the ceiling | CPU time, cores |\n|---|---|---|---|");
    for load in &results.sustained {
        let Load { backends, ids_per_s, cores } = *load;
        let share = ratio(ids_per_s.median / CEILING);
        line(&format!("| {backends} | {} | {share} | {} |", spread(ids_per_s), spread(cores)));
    }

    line("\n## Concurrent backends\n");
    line("![ids/s over backends](plots/backends.svg)\n");
    let settings: Vec<_> = UNTHROTTLED.iter().map(|(name, value)| format!("`{name} = {value}`")).collect();
    line(&format!(
        "All backends call for the same shard or sequence. With {}, neither the clock nor the disk limits \
         idgen, so these rates are above what a shard can sustain. Each statement makes 100,000 calls, 1000 for \
         the PL/pgSQL function and segments, and one for tickets, whose row stays locked until the commit is \
         flushed. The time of the scan is included.\n",
        settings.join(" and ")
    ));
    let backends: Vec<_> = results.loads[IDGEN].iter().map(|load| load.backends).collect();
    let columns: Vec<_> = backends.iter().map(ToString::to_string).collect();
    line(&format!("| M ids/s, by backends | {} |", columns.join(" | ")));
    line(&format!("|---|{}", "---|".repeat(backends.len())));
    for (name, loads) in names.iter().zip(&results.loads) {
        let cells: Vec<_> = loads
            .iter()
            .map(|load| {
                let Spread { median, least, greatest } = load.ids_per_s.map(|ids| ids / 1e6);
                let digits = if median < 0.1 { 5 } else { 2 };
                format!("{median:.digits$} ({least:.digits$}–{greatest:.digits$})")
            })
            .collect();
        line(&format!("| {name} | {} |", cells.join(" | ")));
    }

    line("\n## One shard per backend\n");
    line("![ids/s over shards](plots/shards.svg)\n");
    line("The first figures are with the settings above, and the others with `idgen.max_ahead = 0`.\n");
    line("| backends | ids/s | CPU time, cores | ids/s at 0 | CPU time at 0, cores |\n|---|---|---|---|---|");
    for (load, sustained) in results.shards.iter().zip(&results.shards_sustained) {
        let [ids, cores, ids_at_0, cores_at_0] =
            [load.ids_per_s, load.cores, sustained.ids_per_s, sustained.cores].map(spread);
        line(&format!("| {} | {ids} | {cores} | {ids_at_0} | {cores_at_0} |", load.backends));
    }

    line("\n## Inserting rows\n");
    line("![Index and WAL](plots/size.svg)\n");
    line(&format!(
        "`INSERT INTO rows (n) SELECT n FROM {}` adds {bulk} rows to an empty table whose primary key has a \
         default. The time includes the commit, and a checkpoint comes first. Tickets are scaled from 10,000 rows \
         in transactions of 1000.\n",
        scale.bulk.0
    ));
    bulk_table(&mut line, names, &results.inserts);
    line(&format!(
        "\n`COPY` of {bulk} rows from a file on the server, which has one more column for ready-made keys:\n"
    ));
    bulk_table(&mut line, names, &results.copies);
    line(
        "\n`COPY` does not write rows in batches if a default calls a volatile function other than `nextval`. The \
         last line shows what such a default costs on a column that is not the key. Do not declare \
         `snowflake_next_id` STABLE to avoid it: `ALTER TABLE ... ADD COLUMN` would then give all existing rows \
         the same id. For the fastest load, `COPY` into a table without the key and `INSERT ... SELECT` from it, \
         or let the client fetch ids with `snowflake_next_ids` and send them with the rows.",
    );
    line("\n`pgbench` with 8 clients, inserting one row per transaction with a prepared statement:\n");
    line("| key | inserts/s | of identity's |\n|---|---|---|");
    for (name, tps) in names.iter().zip(&results.pgbench) {
        line(&format!(
            "| {} | {} | {} |",
            name,
            spread(*tps),
            ratio(tps.median / results.pgbench[NEXTVAL].median)
        ));
    }

    line("\n## Where the time of a call goes\n");
    line("Parts of the core (`benches/core.rs`) in a call:\n");
    line("| part of a call | ns |\n|---|---|");
    let core = core();
    let part = |part: &str| core.iter().find(|(name, _)| name == part).map_or(0.0, |(_, ns)| *ns);
    let parts = [
        ("to be called: `shard_of(id)`, which does next to nothing", readers.shard_of.median),
        ("read the clock", part("read the clock")),
        ("take an id from a lease", part("take an id from a lease")),
        ("put an id together", part("put an id together")),
    ];
    for (name, ns) in parts {
        line(&format!("| {name} | {ns:.1} |"));
    }
    let rest = idgen - parts.iter().map(|(_, ns)| ns).sum::<f64>();
    line(&format!(
        "| the rest: settings, shared memory, a new run from the shard's slot now and then | {rest:.1} |"
    ));
    line(&format!("| a call | {idgen:.1} |"));
    if let Ok(profile) = std::fs::read_to_string("benches/profile.md") {
        line(&format!("\n{}", profile.trim_end()));
    }

    if let Ok(before) = std::fs::read_to_string("docs/performance.md") {
        for part in [LATENCY, SCALE] {
            line(&format!("\n{}{}{}", part.0, within(&before, part)[1], part.1));
        }
    }

    line("\n## How to repeat this\n");
    line("    make bench            # writes this page and its plots");
    line("    make bench QUICK=1    # takes under two minutes; writes .build/bench/performance.md");
    line("    make bench-latency    # writes \"How long one takes\"");
    line("    make bench-scale      # writes \"Thousands of shards in one database\"\n");
    line("Each starts its own server. Run nothing else on the machine meanwhile.");
    text
}

/// Puts the figures of the README between its markers.
pub fn readme(text: &str, machine: &str, names: &[&str], results: &Results, bulk: &str) -> String {
    let systems = [IDGEN, NEXTVAL, INSTAGRAM];
    let mut table = format!("| | {} |\n|---|---|---|---|\n", systems.map(|place| names[place]).join(" | "));
    let mut row = |what: &str, unit: &str, all: [Spread; 3]| {
        table.push_str(&format!("| {what}, {unit} | {} |\n", all.map(spread).join(" | ")));
    };
    row("a call", "ns", systems.map(|place| results.calls.systems[place].ns));
    for (what, inserts) in [("INSERT", &results.inserts), ("COPY", &results.copies)] {
        row(&format!("`{what}` of {bulk} rows"), "s", systems.map(|place| inserts[place].seconds));
    }
    replaced(text, FIGURES, &format!("{}\n{table}", wrapped(machine)))
}

/// The figures of the README, and the parts of docs/performance.md that are written by themselves: each between a
/// beginning and an end.
const FIGURES: (&str, &str) = ("<!-- figures: written by make bench -->\n", "<!-- end of figures -->");
pub const LATENCY: (&str, &str) =
    ("<!-- latency: written by make bench-latency -->\n", "<!-- end of latency -->");
pub const SCALE: (&str, &str) = ("<!-- scale: written by make bench-scale -->\n", "<!-- end of scale -->");

fn within<'a>(text: &'a str, (begin, end): (&str, &str)) -> [&'a str; 3] {
    let (before, rest) = text.split_once(begin).unwrap_or_else(|| panic!("a page has no {begin}"));
    let (within, after) = rest.split_once(end).unwrap_or_else(|| panic!("a page has no {end}"));
    [before, within, after]
}

/// The path of the report of a run, with the plots in a folder of it.
pub fn out(quick: bool) -> PathBuf {
    PathBuf::from(if quick { ".build/bench" } else { "docs" })
}

/// Writes a part into docs/performance.md, or that of a quick run into a file of its own.
pub fn put_part(quick: bool, place: (&str, &str), file: &str, part: &str) {
    let path = out(quick).join(if quick { file } else { "performance.md" });
    let text = if quick {
        part.to_owned()
    } else {
        let page =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        replaced(&page, place, part)
    };
    std::fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    println!("\n== {}", path.display());
}

/// A page with other text in such a place.
fn replaced(page: &str, place: (&str, &str), text: &str) -> String {
    let [before, _, after] = within(page, place);
    format!("{before}{}{text}{}{after}", place.0, place.1)
}

/// A table of demands.
pub fn bars(line: &mut impl FnMut(&str), bars: &[Bar]) {
    line("| what | target | measured | |\n|---|---|---|---|");
    for Bar(what, bar, measured, holds) in bars {
        let holds = if *holds { "holds" } else { "**does not hold**" };
        line(&format!("| {what} | {bar} | {measured} | {holds} |"));
    }
}

fn bulk_table(line: &mut impl FnMut(&str), names: &[&str], all: &[Inserts]) {
    line("| key | s | of identity's | WAL, MB | index, MB |\n|---|---|---|---|---|");
    for (name, inserts) in names.iter().copied().chain([READY_MADE, VOLATILE]).zip(all) {
        line(&format!(
            "| {name} | {} | {} | {:.1} | {:.1} |",
            spread(inserts.seconds),
            ratio(inserts.seconds.median / all[NEXTVAL].seconds.median),
            inserts.wal.median / 1e6,
            inserts.index.median / 1e6
        ));
    }
}

/// The medians that criterion has left in target/criterion, in nanoseconds.
fn core() -> Vec<(String, f64)> {
    let read = |path: std::path::PathBuf| -> Option<serde_json::Value> {
        serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()
    };
    let mut parts: Vec<_> = std::fs::read_dir("target/criterion")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let folder = entry.ok()?.path().join("new");
            let name = read(folder.join("benchmark.json"))?["title"].as_str()?.to_owned();
            let ns = read(folder.join("estimates.json"))?["median"]["point_estimate"].as_f64()?;
            Some((name, ns))
        })
        .collect();
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    parts
}

/// The numbers of backends, as in a sentence.
fn listed(loads: &[Load]) -> String {
    let all: Vec<_> = loads.iter().map(|load| load.backends.to_string()).collect();
    let (last, others) = all.split_last().expect("a load");
    format!("{} and {last}", others.join(", "))
}

fn demands(results: &Results, bulk: &str) -> Vec<Bar> {
    let call = |system: usize| results.calls.systems[system].ns.median;
    let calls = &results.calls;
    let mut bars = vec![
        Bar::at_most("a call over an empty row, of `nextval`'s", 0.25, call(IDGEN) / call(NEXTVAL)),
        Bar::at_most(
            "a call, of reading the clock (`clock_timestamp()`)",
            2.0,
            call(IDGEN) / calls.clock.ns.median,
        ),
        Bar::at_least("the PL/pgSQL function's call, of idgen's", 60.0, call(INSTAGRAM) / call(IDGEN)),
        Bar::at_most(
            "a call round-robin over all 8192 shards, of one shard's",
            1.5,
            calls.round_robin.ns.median / call(IDGEN),
        ),
    ];
    let backends = listed(&results.sustained);
    let of_all = |value: fn(&Load) -> f64, whole: f64| -> Vec<f64> {
        results.sustained.iter().map(|load| value(load) / whole).collect()
    };
    bars.push(Bar::each_at_least(
        &format!("ids/s of {backends} backends on one shard, of its ceiling"),
        0.98,
        &of_all(|load| load.ids_per_s.median, CEILING),
    ));
    bars.push(Bar::each_at_most(
        "their CPU time, of all cores'",
        0.5,
        &of_all(|load| load.cores.median, cores() as f64),
    ));
    let few: Vec<_> = (0..results.loads[IDGEN].len())
        .filter(|at| [2, 8].contains(&results.loads[IDGEN][*at].backends))
        .collect();
    let of = |system: usize| -> Vec<f64> {
        let ids = |system: usize, at: usize| results.loads[system][at].ids_per_s.median;
        few.iter().map(|at| ids(IDGEN, *at) / ids(system, *at)).collect()
    };
    let what = "ids/s of 2 and 8 backends on one shard, not held back, of `nextval`'s";
    bars.push(Bar::each_at_least(what, 4.0, &of(NEXTVAL)));
    bars.push(Bar::each_at_least("the same, of `nextval`'s with CACHE 100", 1.0, &of(CACHED)));
    let (first, last) = (&results.shards[0], &results.shards[results.shards.len() - 1]);
    let share = first.ids_per_s.median * cores().min(last.backends) as f64;
    bars.push(Bar::at_least(
        &format!("{0} backends on {0} shards, of 1 on 1 times the cores ({1})", last.backends, cores()),
        0.95,
        last.ids_per_s.median / share,
    ));
    for (how, all) in [("INSERT ... SELECT", &results.inserts), ("COPY", &results.copies)] {
        let of = |place: usize| all[IDGEN].seconds.median / all[place].seconds.median;
        let ready = results.calls.systems.len();
        let what = format!("`{how}` of {bulk} rows, of an identity column's time");
        bars.push(Bar::at_most(&what, 1.0, of(NEXTVAL)));
        bars.push(Bar::at_most("the same, of the time with ready-made keys", 1.05, of(ready)));
    }
    bars.extend([
        Bar::at_least(
            "pgbench, 8 clients: inserts/s, of an identity column's",
            1.0,
            results.pgbench[IDGEN].median / results.pgbench[NEXTVAL].median,
        ),
        Bar::at_most(
            "`snowflake_next_ids(5, 1000)`, of 1000 calls in one statement",
            0.5,
            results.batches.batch.median / results.batches.calls.median,
        ),
        Bar::at_most(
            "the same, of 1000 statements",
            0.5,
            results.batches.batch.median / results.batches.statements.median,
        ),
    ]);
    let wal = calls.systems[IDGEN].wal.median;
    bars.push(Bar::within(
        "WAL for 1 M ids",
        "under 10 kB",
        format!("{}; `nextval`: {}", bytes(wal), bytes(calls.systems[NEXTVAL].wal.median)),
        wal < 10_000.0,
    ));
    let readers = &results.readers;
    let all = [readers.decode, readers.shard_of, readers.time].map(|ns| ns.median);
    bars.push(Bar::within(
        "`snowflake_decode(id)`, `shard_of(id)` and `snowflake_time(id)`, over an empty row",
        "at most 30 ns",
        all.map(|ns| format!("{ns:.1} ns")).join(", "),
        all.iter().all(|ns| (0.0..=30.0).contains(ns)),
    ));
    bars.push(Bar::within(
        "shared memory, whatever the connections",
        "under 1 MiB",
        format!("{} bytes", number(results.shared_memory as f64)),
        results.shared_memory < 1 << 20,
    ));
    bars
}
