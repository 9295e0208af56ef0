//! The cost of a key for its table, from the load to the VACUUM: `make bench-keys`. Each key has a table of many rows
//! with two secondary indexes, and a second table that refers to it. The systems are measured one after the other.

use std::process::Command;

use crate::measure::{Spread, at_once, seconds, timed};
use crate::plots::{Line, plot};
use crate::report::{number, ratio, table};
use crate::systems::{System, create};
use crate::{Bench, connect, set, sql, value};

/// The keys among which a team chooses. The others in systems.rs repeat ids or are far slower.
const KEYS: [&str; 6] =
    ["idgen", "nextval, identity", "uuidv7", "gen_random_uuid", "pgEdge Snowflake", "Instagram's PL/pgSQL"];
const IDENTITY: usize = 1;

/// Settings of the server whose defaults are too small for tables of this size.
const SETTINGS: &[(&str, &str)] = &[
    ("max_wal_size", "32GB"),
    ("checkpoint_timeout", "1h"),
    // The hash table of a join fits into this. A file for it would compete with data of the load that is not yet
    // written.
    ("work_mem", "2GB"),
];

/// A figure for each key, with its name, its unit, its target, and its place in the plot. A target is a bound on
/// idgen's figure divided by that of another key, such as "at most 1 of identity".
struct Figure {
    what: String,
    unit: &'static str,
    target: &'static str,
    place: &'static str,
    /// NaN for a key without a figure.
    values: Vec<f64>,
}

struct Keys {
    bench: Bench,
    /// A command that restarts the server with the `shared_buffers` in its argument.
    restart: String,
    rows: u32,
    figures: Vec<Figure>,
    /// The index of the key that is being measured.
    at: usize,
}

/// Measures everything, and writes the page and its plot.
pub fn run(mut bench: Bench, restart: &str) {
    let systems = create(&mut bench.control);
    let systems: Vec<System> = systems.into_iter().filter(|system| KEYS.contains(&system.name)).collect();
    let rows = if bench.quick { 200_000 } else { 10_000_000 };
    set(&mut bench.control, SETTINGS);
    sql(&mut bench.control, "ALTER SYSTEM SET max_connections = 300");
    let source = format!(
        "CREATE TABLE source AS
         SELECT n, (hashint4(n) & 2147483647) % {rows} AS number, md5(n::text) AS note FROM generate_series(1, {rows}) AS n;
         VACUUM ANALYZE source"
    );
    for statement in source.split(';') {
        sql(&mut bench.control, statement);
    }
    let mut keys = Keys { bench, restart: restart.to_owned(), rows, figures: Vec::new(), at: 0 };
    let file = format!("{}/source", value::<String>(&mut keys.bench.control, "SHOW data_directory"));
    sql(&mut keys.bench.control, &format!("COPY (SELECT number, note FROM source) TO '{file}'"));
    for (at, system) in systems.iter().enumerate() {
        keys.at = at;
        println!("\n== {}", system.name);
        keys.measure(system, &file);
    }
    keys.put(&systems);
}

impl Keys {
    fn add(&mut self, what: &str, unit: &'static str, target: &'static str, place: &'static str, value: f64) {
        println!("   {what}: {} {unit}", number(value));
        let figure = match self.figures.iter().position(|figure| figure.what == what) {
            Some(place) => &mut self.figures[place],
            None => {
                self.figures.push(Figure { what: what.to_owned(), unit, target, place, values: Vec::new() });
                self.figures.last_mut().expect("a figure")
            }
        };
        figure.values.resize(self.at, f64::NAN);
        figure.values.push(value);
    }

    /// Restarts the server, with an empty cache of this size.
    fn restart(&mut self, shared_buffers: &str) {
        let mut shell = Command::new("bash");
        shell.args(["-c", &format!("{} {shared_buffers}", self.restart)]);
        assert!(shell.status().expect("bash").success(), "the server does not restart");
        self.bench.control = connect(&self.bench.server);
    }

    fn run(&mut self, statement: &str) {
        sql(&mut self.bench.control, statement);
    }

    /// The median of three times, in seconds, after one run that warms up.
    fn median(&mut self, statement: &str) -> f64 {
        self.run(statement);
        Spread::of((0..3).map(|_| timed(&mut self.bench.control, statement)[0]).collect()).median
    }

    fn size(&mut self, relations: &str) -> f64 {
        let size = format!("SELECT sum(pg_relation_size(oid))::float8 / 1e6 FROM pg_class WHERE {relations}");
        value(&mut self.bench.control, &size)
    }

    fn measure(&mut self, system: &System, file: &str) {
        let System { call, column, .. } = system;
        let type_name = column.split(' ').next().expect("a type");
        self.restart("4GB");
        let call = format!("SELECT count({call}) FROM {}", system.calls_over.0);
        let scan = format!("SELECT count(1) FROM {}", system.calls_over.0);
        let ns = 1e9 / system.calls_over.1;
        let call = (self.median(&call) - self.median(&scan)) * ns;
        self.add("a call", "ns", "at most 0.5 of nextval, identity", "", call);

        // COPY inserts row by row if any default is volatile, as clock_timestamp() is, so its table has now() instead.
        // The queries by time need a time of its own for each row.
        for (name, time) in [("copied", "now()"), ("rows", "clock_timestamp()")] {
            let columns =
                format!("number integer, note text, created_at timestamptz NOT NULL DEFAULT {time}");
            self.run(&format!(
                "CREATE TABLE {name} ({columns}, id {column} PRIMARY KEY);
                 CREATE INDEX {name}_number ON {name} (number); CREATE INDEX {name}_time ON {name} (created_at)"
            ));
        }
        let rows = f64::from(self.rows);
        self.run("CHECKPOINT");
        let copy = format!("COPY copied (number, note) FROM '{file}'");
        let [time, wal] = timed(&mut self.bench.control, &copy);
        self.add("`COPY` of all rows", "s", "at most 1 of nextval, identity", "COPY", time);
        self.add("WAL of the `COPY`", "bytes a row", "at most 1.02 of nextval, identity", "", wal / rows);
        self.run("DROP TABLE copied");
        self.run("CHECKPOINT");
        let insert = "INSERT INTO rows (number, note) SELECT number, note FROM source";
        let [time, wal] = timed(&mut self.bench.control, insert);
        self.add("`INSERT ... SELECT` of all rows", "s", "at most 1 of nextval, identity", "INSERT", time);
        self.add("WAL of the `INSERT ... SELECT`", "bytes a row", "", "", wal / rows);
        let heap = self.size("relname = 'rows'");
        let key = self.size("relname = 'rows_pkey'");
        self.add("the table", "MB", "at most 1.01 of nextval, identity", "table", heap);
        self.add("the index of its key", "MB", "at most 1.05 of nextval, identity", "index", key);

        self.run(&format!("CREATE TABLE refs (row_id {type_name} NOT NULL REFERENCES rows, number integer)"));
        self.run("CREATE INDEX refs_row_id ON refs (row_id)");
        self.run("CHECKPOINT");
        let refer = "INSERT INTO refs SELECT id, number FROM rows";
        let [time, _] = timed(&mut self.bench.control, refer);
        self.add(
            "a row for each in a table that refers to it",
            "s",
            "at most 1.05 of nextval, identity",
            "refer",
            time,
        );
        let refs = self.size("relname IN ('refs', 'refs_row_id')");
        self.add("that table and its index", "MB", "at most 1.01 of nextval, identity", "", refs);
        self.run("VACUUM ANALYZE");
        // A sample of the keys in random order, and the rows of a hundredth of the load's time.
        self.run("CREATE TABLE sample AS SELECT id FROM rows WHERE number % 10 = 3 ORDER BY number, note");
        self.run("VACUUM ANALYZE sample");
        self.run(
            "CREATE TABLE span AS SELECT low + (high - low) * 0.50 AS since, low + (high - low) * 0.51 AS until
             FROM (SELECT min(created_at) AS low, max(created_at) AS high FROM rows) AS whole",
        );

        self.run("CHECKPOINT");
        self.reads(system, "", true);
        for clients in [8, 200] {
            let insert = "INSERT INTO rows (number, note) VALUES (1, 'one more')".to_owned();
            let time = if self.bench.quick { 2.0 } else { 15.0 };
            let mut load = at_once(&self.bench.server, &vec![insert; clients], 1.0, time);
            load.latencies.sort_by(f64::total_cmp);
            let part = |part: f64| load.latencies[((load.latencies.len() - 1) as f64 * part) as usize];
            let [middle, most] = [part(0.5), part(0.999)];
            let rate = 1e6 / load.ids_per_s;
            let what = |what: &str| format!("single inserts, {clients} clients: {what}");
            self.add(&what("time for each"), "µs", "at most 1.1 of nextval, identity", "", rate);
            self.add(&what("median"), "ms", "", "", middle);
            self.add(&what("99.9 %"), "ms", "", "", most);
        }

        // From here on, reads come from the kernel's cache: the machine has more memory than the data.
        let all =
            self.size("relname IN ('rows', 'rows_pkey', 'rows_number', 'rows_time', 'refs', 'refs_row_id')");
        self.restart(&format!("{}MB", (all / 10.0).max(16.0) as u32));
        self.reads(system, ", `shared_buffers` a tenth of the data", false);
        let more = "INSERT INTO rows (number, note) SELECT number, note FROM source WHERE n % 10 = 1";
        let [time, _] = timed(&mut self.bench.control, more);
        let what = "a tenth more rows, `shared_buffers` a tenth of the data";
        self.add(what, "s", "at most 1 of nextval, identity", "INSERT more", time);

        self.restart("4GB");
        self.run("ALTER TABLE refs DROP CONSTRAINT refs_row_id_fkey");
        self.run(
            "DELETE FROM rows WHERE created_at < (SELECT low + (high - low) / 10 FROM
                      (SELECT min(created_at) AS low, max(created_at) AS high FROM rows) AS whole)",
        );
        let vacuum = seconds(|| sql(&mut self.bench.control, "VACUUM rows"));
        self.add(
            "`VACUUM` after deleting the oldest rows",
            "s",
            "at most 1.1 of nextval, identity",
            "",
            vacuum,
        );
        self.run("DROP TABLE rows, refs, sample, span CASCADE");
        self.run("CHECKPOINT");
    }

    /// Measures queries; queries by time only with the whole cache.
    fn reads(&mut self, system: &System, how: &str, by_time: bool) {
        let sample: i64 = value(&mut self.bench.control, "SELECT count(*) FROM sample");
        self.run("SET enable_hashjoin = off; SET enable_mergejoin = off");
        let look_up = "SELECT count(r.note) FROM sample AS s JOIN rows AS r USING (id)";
        let time = self.median(look_up) / sample as f64 * 1e6;
        let place = if by_time { "look up" } else { "" };
        self.add(&format!("a row by its key{how}"), "µs", "at most 1.05 of nextval, identity", place, time);
        self.run("RESET enable_hashjoin; RESET enable_mergejoin");
        let join = "SELECT count(rows.note) FROM rows JOIN refs ON row_id = id";
        let time = self.median(join);
        let place = if by_time { "" } else { "join" };
        self.add(
            &format!("a join of both tables{how}"),
            "s",
            "at most 1.05 of nextval, identity",
            place,
            time,
        );
        if !by_time {
            return;
        }
        self.run("SET enable_hashjoin = off");
        let time = self.median(join);
        self.run("RESET enable_hashjoin");
        self.add("the same join without hashing", "s", "", "", time);
        let group = "SELECT count(*) FROM (SELECT row_id FROM refs GROUP BY row_id) AS groups";
        let time = self.median(group);
        self.add("groups of the second table by its reference", "s", "", "", time);
        // Finds the newest rows by the key, if it sorts by time.
        let newest = if system.name == "gen_random_uuid" { "created_at" } else { "id" };
        let page = format!(
            "SELECT count(page.note) FROM generate_series(1, 1000) AS n,
                 LATERAL (SELECT note FROM rows WHERE n > 0 ORDER BY {newest} DESC LIMIT 50) AS page"
        );
        let time = self.median(&page) * 1e3;
        let what = "the newest 50 rows";
        self.add(what, "µs", "at most 1.05 of nextval, identity", "", time);
        let range = match system.name {
            "idgen" => "id >= snowflake_min_id(since) AND id < snowflake_min_id(until)",
            "uuidv7" => "id >= first_uuid(since) AND id < first_uuid(until)",
            _ => "created_at >= since AND created_at < until",
        };
        self.run(
            "CREATE OR REPLACE FUNCTION first_uuid(timestamptz) RETURNS uuid IMMUTABLE LANGUAGE sql RETURN
                 (lpad(to_hex(floor(extract(epoch FROM $1) * 1000)::bigint), 12, '0') || '70008000000000000000')::uuid",
        );
        let range =
            format!("SELECT count(note) FROM span, LATERAL (SELECT note FROM rows WHERE {range}) AS found");
        let time = self.median(&range) * 1e3;
        let what = "the rows of a hundredth of the load's time";
        self.add(what, "ms", "at most 1.05 of nextval, identity", "", time);
    }

    fn put(mut self, systems: &[System]) {
        let others = || systems.iter().enumerate().filter(|(number, _)| *number != 0);
        let rows = self.figures.iter().map(|figure| {
            let cells = figure.values.iter().enumerate().map(|(at, value)| {
                let of_identity = value / figure.values[IDENTITY];
                if at == IDENTITY {
                    number(*value)
                } else {
                    format!("{} ({})", number(*value), ratio(of_identity))
                }
            });
            [format!("{}, {}", figure.what, figure.unit)].into_iter().chain(cells).collect::<Vec<_>>()
        });
        let heads: Vec<_> = systems.iter().map(|system| system.name).collect();
        let all = table(&format!("| {}", heads.join(" | ")), rows);
        for figure in self.figures.iter().filter(|figure| !figure.target.is_empty()) {
            let (bound, other) = figure.target.split_once(" of ").expect(figure.target);
            let at = others().find(|(_, system)| system.name == other).expect(other).0;
            let what = format!("{} | {other}", figure.what);
            self.bench.report.demand(&what, bound, &[figure.values[0] / figure.values[at]]);
        }
        let places: Vec<&Figure> = self.figures.iter().filter(|figure| !figure.place.is_empty()).collect();
        let names: Vec<_> = places.iter().map(|figure| figure.place.to_owned()).collect();
        let lines: Vec<_> = systems
            .iter()
            .enumerate()
            .map(|(at, system)| {
                let values = places.iter().map(|figure| figure.values[at] / figure.values[IDENTITY]);
                Line(system.name.to_owned(), values.collect())
            })
            .collect();
        let report = &mut self.bench.report;
        report.put("keys", &all);
        let axis = ("of an identity column's (logarithmic)", 0.1, 10.0);
        plot(&report.plot("keys.svg"), "What a key costs", axis, "", &names, &lines);
        report.finish("keys");
    }
}
