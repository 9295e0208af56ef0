//! What a database with thousands of logical shards costs, each a schema of three tables: `make bench-scale`. The
//! statements of docs/shards.md create, number and change the schemas.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use postgres::Client;

use crate::measure::{Spread, cpu_time};
use crate::plots::{self, Axis, Line};
use crate::report::{Report, number, table};
use crate::{connect, sql, value};

/// How often a figure in milliseconds is taken.
const ROUNDS: usize = 5;

const TEMPLATE: &str = "
    CREATE EXTENSION idgen;
    CREATE SCHEMA template;
    CREATE TABLE template.users  (id bigint PRIMARY KEY DEFAULT snowflake_next_id(), name text NOT NULL UNIQUE);
    CREATE TABLE template.photos (id bigint PRIMARY KEY DEFAULT snowflake_next_id(),
                                  user_id bigint NOT NULL REFERENCES template.users ON DELETE CASCADE,
                                  caption text CHECK (caption <> ''));
    CREATE INDEX ON template.photos (user_id, id);
    CREATE TABLE template.likes  (user_id bigint NOT NULL, photo_id bigint NOT NULL,
                                  id bigint PRIMARY KEY DEFAULT snowflake_next_id());
    CREATE TABLE only_here (id bigint DEFAULT snowflake_next_id())";

/// A line of benches/scale.md, with a value for each number of schemas.
struct Figure {
    key: &'static str,
    what: &'static str,
    unit: &'static str,
    whose: &'static str,
    target: &'static str,
    line: &'static str,
    values: Vec<f64>,
}

struct Bench {
    source: String,
    /// The server to which a shard moves.
    target: String,
    programs: PathBuf,
    control: Client,
    schemas: usize,
    database: String,
    figures: Vec<Figure>,
}

/// Measures all numbers of schemas, and writes its part of the page and the plot.
pub fn run(quick: bool, source: String, target: String, programs: PathBuf) {
    let mut control = connect(&source);
    sql(&mut control, "CREATE EXTENSION idgen");
    let report = Report::new(quick, &mut control);
    let sizes: &[usize] = if quick { &[20, 100] } else { &[100, 1000, 8192] };
    let figures =
        include_str!("../scale.md").lines().filter(|line| line.starts_with('|')).skip(2).map(|line| {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            let [_, key, what, unit, whose, target, line, _] = cells[..] else { panic!("{line}") };
            Figure { key, what, unit, whose, target, line, values: Vec::new() }
        });
    let (schemas, database, figures) = (0, String::new(), figures.collect());
    let mut bench = Bench { source, target, programs, control, schemas, database, figures };
    for schemas in sizes {
        println!("\n== {schemas} schemas");
        (bench.schemas, bench.database) = (*schemas, format!("scale_{schemas}"));
        bench.measure();
    }
    put(report, sizes, &bench.figures);
}

fn put(mut report: Report, sizes: &[usize], figures: &[Figure]) {
    let mut lines = Vec::new();
    for Figure { what, unit, target, line, values, .. } in figures {
        let end = values.len() - 1;
        for target in target.split_whitespace() {
            if let Ok(bound) = target.parse() {
                report.within(what, bound, format!(" {unit}").trim_end(), &values[end..]);
                continue;
            }
            let growth = values[end] / values[end - 1] * sizes[end - 1] as f64 / sizes[end] as f64;
            let what = format!("{what}: a schema of {}, of one of {}", sizes[end], sizes[end - 1]);
            report.at_most(&what, 1.25, &[growth]);
        }
        if !line.is_empty() {
            let of = |schemas: usize| if *unit == "s" { 1e3 / schemas as f64 } else { 1.0 };
            let ms = values.iter().zip(sizes).map(|(value, schemas)| value * of(*schemas));
            lines.push(Line((*line).to_owned(), ms.collect(), true));
        }
    }
    let rows = figures.iter().map(|figure| {
        let values = figure.values.iter().map(|value| number(*value)).collect::<Vec<_>>().join(" | ");
        [figure.what, figure.unit, &values, figure.whose].map(str::to_owned)
    });
    let sizes: Vec<_> = sizes.iter().map(ToString::to_string).collect();
    report.put("scale", &table(&format!("schemas: |  | {} | whose work", sizes.join(" | ")), rows));
    let axis = Axis { name: "ms (logarithmic)", from: 0.01, upto: 1e3 };
    let title = "Schemas of three tables in one database";
    plots::lines(&report.plot("scale.svg"), title, &axis, "schemas", &sizes, &lines).expect("a plot");
    report.finish("scale");
}

/// The statement of docs/shards.md that begins in this way, to the end of its block.
fn statement(beginning: &str) -> String {
    let page = std::fs::read_to_string("docs/shards.md").expect("docs/shards.md");
    let start = page.find(beginning).unwrap_or_else(|| panic!("docs/shards.md has no {beginning:?}"));
    let end = page[start..].find("\n```").expect("the end of the block");
    page[start..start + end].to_owned()
}

/// Sets the defaults of schema 5 to a shard, or to the shard of the session.
fn alter(shard: &str) -> String {
    let default = format!("ALTER id SET DEFAULT snowflake_next_id({shard})");
    ["users", "photos", "likes"].map(|table| format!("ALTER TABLE shard5.{table} {default};")).concat()
}

fn set(client: &mut Client, setting: &str) {
    sql(client, &format!("ALTER SYSTEM {setting}"));
    sql(client, "SELECT pg_reload_conf()");
}

fn seconds(task: impl FnOnce()) -> f64 {
    let start = Instant::now();
    task();
    start.elapsed().as_secs_f64()
}

/// The median of a task that returns its seconds, in milliseconds. The task warms up once.
fn median(mut task: impl FnMut() -> f64) -> f64 {
    task();
    Spread::of((0..ROUNDS).map(|_| task() * 1e3).collect()).median
}

fn median_of(client: &mut Client, statement: &str) -> f64 {
    median(|| seconds(|| sql(client, statement)))
}

impl Bench {
    fn add(&mut self, key: &str, value: f64) {
        let figure = self.figures.iter_mut().find(|figure| figure.key == key);
        let figure = figure.unwrap_or_else(|| panic!("benches/scale.md has no {key}"));
        println!("   {}: {} {}", figure.what, number(value), figure.unit);
        figure.values.push(value);
    }

    /// Runs a statement, and adds its seconds and the CPU seconds of its backend.
    fn add_timed(&mut self, key: &str, client: &mut Client, statement: &str) {
        let pid = value(client, "SELECT pg_backend_pid()");
        let before = cpu_time(pid);
        self.add(key, seconds(|| sql(client, statement)));
        self.add(&format!("{key} CPU"), (cpu_time(pid) - before).as_secs_f64());
    }

    fn client(&self) -> Client {
        connect(&format!("{} dbname={}", self.source, self.database))
    }

    /// Runs a program of PostgreSQL on a database, and returns its seconds.
    fn program(&self, name: &str, database: &str, arguments: &str) -> f64 {
        let mut command = Command::new(self.programs.join(name));
        command.args(["-d", &format!("{} dbname={database}", self.source)]).args(arguments.split(' '));
        seconds(|| {
            let output = command.stdout(Stdio::null()).output().expect("a program of PostgreSQL");
            assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        })
    }

    fn measure(&mut self) {
        sql(&mut self.control, &format!("CREATE DATABASE {}", self.database));
        let client = &mut self.client();
        sql(client, TEMPLATE);
        self.clone_all(client);
        sql(client, "VACUUM ANALYZE");
        let size: f64 = value(client, "SELECT pg_database_size(current_database()) / 1e6::float8");
        self.add("size", size);
        let files = "SELECT count(*)::float8 FROM pg_database, pg_ls_dir('base/' || oid)
                     WHERE datname = current_database()";
        self.add("files", value(client, files));
        for (key, source) in [
            ("whole", "idgen_columns"),
            ("schema", "idgen_columns WHERE schema = 'shard5'"),
            ("both", "idgen_columns WHERE schema = 'shard5' AND \"table\" = 'users'"),
            ("table", "idgen_columns WHERE \"table\" = 'only_here'"),
            ("oid", "idgen_columns() WHERE relation = 'only_here'::regclass"),
        ] {
            self.add(
                key,
                median_of(client, &format!("SELECT count(shard), count(expression) FROM {source}")),
            );
        }
        self.assign();
        self.number_all(client);
        sql(client, &statement("CREATE PROCEDURE on_each_shard"));
        let calls = statement("CALL on_each_shard");
        let (call, _) = calls.split_once(';').expect("the end of the call");
        self.add_timed("migrate", client, call);
        sql(client, "VACUUM ANALYZE");
        self.memory();
        self.add("dump", median(|| self.program("pg_dump", &self.database, "-n shard5")));
        self.add("list", median(|| self.program("psql", &self.database, "-X -c \\dn+")));
        self.add("vacuum", seconds(|| sql(client, "VACUUM")));
        self.autovacuum();
        self.move_one();
        self.router();
        // Autovacuum would be busy with these databases during the next measurements.
        for old in [format!("router_{}", self.schemas), self.database.clone()] {
            sql(&mut self.control, &format!("DROP DATABASE {old} WITH (FORCE)"));
        }
        sql(&mut connect(&self.target), &format!("DROP DATABASE {} WITH (FORCE)", self.database));
    }

    fn clone_all(&mut self, client: &mut Client) {
        let all = statement("DO $$\nDECLARE\n    template CONSTANT");
        let all = all.replace("100..163", &format!("0..{}", self.schemas - 1));
        let pid: i32 = value(client, "SELECT pg_backend_pid()");
        let locks = format!("SELECT count(*)::float8 FROM pg_locks WHERE pid = {pid}");
        let (mut watcher, over) = (self.client(), AtomicBool::new(false));
        let most = thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut most: f64 = 0.0;
                while !over.load(Ordering::Relaxed) {
                    most = most.max(value(&mut watcher, &locks));
                    thread::sleep(Duration::from_millis(20));
                }
                most
            });
            self.add_timed("clone", client, &all);
            over.store(true, Ordering::Relaxed);
            watch.join().expect("the number of locks")
        });
        self.add("locks", most);
    }

    fn assign(&mut self) {
        let call = "SELECT snowflake_assign_shard('shard5', 5)";
        let first = median(|| {
            let mut client = self.client();
            seconds(|| sql(&mut client, call))
        });
        self.add("first", first);
        let mut client = self.client();
        self.add("further", median_of(&mut client, call));
        let [change, by_hand] = [call, &alter("5")].map(|change| {
            median(|| {
                sql(&mut client, &format!("BEGIN; {}", alter("")));
                let time = seconds(|| sql(&mut client, change));
                sql(&mut client, "ROLLBACK");
                time
            })
        });
        self.add("change", change);
        self.add("by hand", by_hand);
        self.add("assign", change - by_hand);
    }

    fn number_all(&mut self, client: &mut Client) {
        let (last, alter) = (self.schemas - 1, alter(""));
        sql(
            client,
            &format!(
                "DO $$ BEGIN
                     FOR n IN 0 .. {last} LOOP
                         EXECUTE replace($alter${alter}$alter$, 'shard5.', format('shard%s.', n));
                         COMMIT;
                     END LOOP;
                 END $$"
            ),
        );
        sql(client, "VACUUM ANALYZE");
        self.add_timed("number", client, &statement("DO $$\nDECLARE\n    item record;"));
        let right: i64 = value(client, "SELECT count(*) FROM idgen_columns WHERE schema = 'shard' || shard");
        assert_eq!(right, 3 * self.schemas as i64, "the columns that mint for the shards of their names");
    }

    /// What one backend keeps of the schemas that it has worked on.
    fn memory(&mut self) {
        let mut client = self.client();
        let used = "INSERT INTO shard{n}.users (name) VALUES ('Ada');
                    SELECT FROM shard{n}.photos WHERE user_id = 7;
                    SELECT FROM shard{n}.likes WHERE id = 7;";
        let prepare = "PREPARE by_user_{n} (bigint) AS SELECT * FROM shard{n}.photos WHERE user_id = $1;";
        // The sixth execution makes the generic plan.
        let prepared = prepare.to_owned() + &"EXECUTE by_user_{n} (7);".repeat(6);
        for (key, statements) in [("connected", ""), ("used", used), ("prepared", &prepared)] {
            for n in 0..self.schemas {
                sql(&mut client, &statements.replace("{n}", &n.to_string()));
            }
            self.add_memory(key, &mut client);
        }
        sql(&mut client, "DISCARD ALL");
        self.add_memory("discarded", &mut client);
    }

    fn add_memory(&mut self, key: &str, client: &mut Client) {
        let mb = "SELECT (sum(total_bytes) / 1e6)::float8 FROM pg_backend_memory_contexts";
        self.add(key, value(client, mb));
    }

    fn autovacuum(&mut self) {
        set(&mut self.control, "SET autovacuum_naptime = '1s'");
        let query = format!(
            "SELECT backend_start::text, extract(epoch FROM clock_timestamp() - backend_start)::float8 * 1e3
             FROM pg_stat_activity
             WHERE backend_type = 'autovacuum worker' AND datname = '{}' AND query = ''",
            self.database
        );
        let mut workers: BTreeMap<String, f64> = BTreeMap::new();
        let deadline = Instant::now() + Duration::from_secs(120);
        while workers.len() < ROUNDS + 2 && Instant::now() < deadline {
            let seen = self.control.query(&query, &[]).expect("pg_stat_activity");
            workers.extend(seen.iter().map(|row| (row.get::<_, String>(0), row.get::<_, f64>(1))));
            thread::sleep(Duration::from_millis(1));
        }
        set(&mut self.control, "RESET autovacuum_naptime");
        // The first worker may have had something to do, and the last one may still run.
        let ms: Vec<f64> = workers.into_values().skip(1).take(ROUNDS).collect();
        assert!(!ms.is_empty(), "no autovacuum worker was seen");
        self.add("autovacuum", Spread::of(ms).median);
    }

    /// Moves one shard to the other server, by the program for users.
    fn move_one(&mut self) {
        let target = &mut connect(&self.target);
        sql(target, &format!("CREATE DATABASE {}", self.database));
        let servers = [&self.source, &self.target].map(|server| format!("{server} dbname={}", self.database));
        sql(&mut connect(&servers[1]), "CREATE EXTENSION idgen");
        set(&mut self.control, "SET idgen.allowed_shards = '0-8190'");
        set(target, "SET idgen.allowed_shards = '8191'");
        let path = format!("{}:{}", self.programs.display(), std::env::var("PATH").expect("PATH"));
        let mut command = Command::new("docs/examples/move-shard.sh");
        command.args(servers).args(["shard5", "5"]).env("PATH", path).stdout(Stdio::piped());
        let start = Instant::now();
        let mut child = command.spawn().expect("move-shard.sh");
        let mut closed = None;
        for line in BufReader::new(child.stdout.take().expect("its output")).lines() {
            if line.expect("a line").contains("closing schema") {
                closed = Some(Instant::now());
            }
        }
        assert!(child.wait().expect("its end").success(), "move-shard.sh failed");
        self.add("move", start.elapsed().as_secs_f64());
        self.add("closed", closed.expect("a closed schema").elapsed().as_secs_f64());
        for client in [&mut self.control, target] {
            set(client, "RESET idgen.allowed_shards");
        }
    }

    /// Measures a router with a foreign partition for each schema, made by docs/examples/scaling/router.sql.
    fn router(&mut self) {
        let (last, database) = (self.schemas - 1, format!("router_{}", self.schemas));
        sql(&mut self.control, &format!("CREATE DATABASE {database}"));
        let host = self.source.split(' ').find_map(|part| part.strip_prefix("host=")).expect("a host");
        let arguments = format!(
            "-X -q -f docs/examples/scaling/router.sql -v server=one -v host={host} -v dbname={} \
             -v user=postgres -v first=0 -v last={last}",
            self.database
        );
        self.add("router", self.program("psql", &database, &arguments));
        let router = format!("{} dbname={database}", self.source);
        let mut client = connect(&router);
        sql(&mut client, "ANALYZE pg_class, pg_inherits");
        let id = 499_632_402_134_470_656_i64; // of shard 4
        let by_id = format!("SELECT * FROM users WHERE id = {id}");
        let plan = format!("EXPLAIN {by_id} AND shard_of(id) = shard_of({id})");
        let first = median(|| {
            let mut client = connect(&router);
            seconds(|| sql(&mut client, &plan))
        });
        self.add("plan first", first);
        self.add("plan", median_of(&mut client, &plan));
        self.add("plan by id", median_of(&mut client, &format!("EXPLAIN {by_id}")));
        let query = "SELECT * FROM users WHERE id = $1 AND shard_of(id) = shard_of($1)";
        sql(&mut client, &format!("PREPARE one (bigint) AS {query}"));
        let execute = format!("EXECUTE one ({id});");
        // After some executions, PostgreSQL has chosen one plan for all, or a plan for each.
        sql(&mut client, &execute.repeat(10));
        self.add("execute", median_of(&mut client, &execute));
    }
}
