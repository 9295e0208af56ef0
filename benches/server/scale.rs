//! The cost of a database with thousands of logical shards, each a schema of three tables: `make bench-scale`. The
//! statements of docs/shards.md, and its examples, create, number and change the schemas.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use postgres::Client;

use crate::measure::{Spread, cpu_time, seconds};
use crate::plots::{Line, plot};
use crate::report::{number, table};
use crate::{Bench, connect, sql, value};

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

/// The beginnings of the figures by which users plan. The others are for contributors.
const FOR_USERS: [&str; 9] = [
    "all ",
    "`idgen_columns`, whole",
    "a column added",
    "memory",
    "the same, and",
    "the same, after",
    "`pg_dump",
    "a router",
    "a query",
];

/// A figure, with a value for each number of schemas. It has a name, a unit, the program that does the work, a target,
/// and a line in the plot. A target is for the greatest number; a linear figure may not grow for each schema. The plot
/// is in milliseconds, and its lines for figures in seconds are for each schema.
type Figure = (String, Vec<f64>);

struct Scale {
    bench: Bench,
    schemas: usize,
    database: String,
    figures: Vec<Figure>,
}

/// Measures all numbers of schemas, and writes its parts of the pages and the plot.
pub fn run(bench: Bench) {
    let sizes: &[usize] = if bench.quick { &[20, 100] } else { &[100, 1000, 8192] };
    let mut scale = Scale { bench, schemas: 0, database: String::new(), figures: Vec::new() };
    for schemas in sizes {
        println!("\n== {schemas} schemas");
        (scale.schemas, scale.database) = (*schemas, format!("scale_{schemas}"));
        scale.measure();
    }
    scale.put(sizes);
}

/// The statement of docs/shards.md that begins like this, up to the end of its block.
fn statement(beginning: &str) -> String {
    let page = std::fs::read_to_string("docs/shards.md").expect("docs/shards.md");
    let start = page.find(beginning).unwrap_or_else(|| panic!("docs/shards.md has no {beginning:?}"));
    let end = page[start..].find("\n```").expect("the end of the block");
    page[start..start + end].to_owned()
}

/// A file of docs/examples.
fn example(name: &str) -> String {
    let path = format!("docs/examples/{name}");
    std::fs::read_to_string(&path).expect(&path)
}

/// Sets the defaults of schema 5 to a shard, or to the shard of the session.
fn alter(shard: &str) -> String {
    let default = format!("ALTER id SET DEFAULT snowflake_next_id({shard})");
    ["users", "photos", "likes"].map(|table| format!("ALTER TABLE shard5.{table} {default};")).concat()
}

/// The median of a task that returns its seconds, in milliseconds, after one run that warms up.
fn median(mut task: impl FnMut() -> f64) -> f64 {
    task();
    Spread::of((0..5).map(|_| task() * 1e3).collect()).median
}

fn median_of(client: &mut Client, statement: &str) -> f64 {
    median(|| seconds(|| sql(client, statement)))
}

impl Scale {
    fn add(&mut self, description: &str, value: f64) {
        println!("   {description}: {}", number(value));
        match self.figures.iter_mut().find(|figure| figure.0 == description) {
            Some((_, values)) => values.push(value),
            None => self.figures.push((description.to_owned(), vec![value])),
        }
    }

    /// Runs a statement, and adds its seconds and the CPU seconds of its backend.
    fn add_timed(&mut self, [time, cpu]: [&str; 2], client: &mut Client, statement: &str) {
        let pid = value(client, "SELECT pg_backend_pid()");
        let before = cpu_time(pid);
        self.add(time, seconds(|| sql(client, statement)));
        self.add(cpu, (cpu_time(pid) - before).as_secs_f64());
    }

    fn client(&self) -> Client {
        connect(&format!("{} dbname={}", self.bench.server, self.database))
    }

    /// Runs a program of PostgreSQL on a database, and returns its seconds.
    fn program(&self, name: &str, database: &str, arguments: &str) -> f64 {
        let mut command = Command::new(self.bench.programs.join(name));
        command.args(["-d", &format!("{} dbname={database}", self.bench.server)]).args(arguments.split(' '));
        seconds(|| assert!(command.stdout(Stdio::null()).status().expect(name).success(), "{command:?}"))
    }

    fn measure(&mut self) {
        sql(&mut self.bench.control, &format!("CREATE DATABASE {}", self.database));
        let client = &mut self.client();
        sql(client, TEMPLATE);
        self.clone_all(client);
        sql(client, "VACUUM ANALYZE");
        for (what, source, target, line) in [
            ("`, whole", "", "2000 ms, linear", "idgen_columns, whole"),
            ("` of one schema, by its name", " WHERE schema = 'shard5'", "10 ms", "a schema of it"),
            (
                "` of one table of one schema, by their names",
                " WHERE schema = 'shard5' AND \"table\" = 'users'",
                "10 ms",
                "",
            ),
            ("` of one table, by its name", " WHERE \"table\" = 'only_here'", "10 ms", ""),
            ("()` of one table, by its oid", "() WHERE relation = 'only_here'::regclass", "10 ms", ""),
        ] {
            let query = format!("SELECT count(shard), count(expression) FROM idgen_columns{source}");
            let description = format!("`idgen_columns{what} | ms | idgen | at most {target} | {line}");
            self.add(&description, median_of(client, &query));
        }
        self.assign(client);
        sql(client, &example("on-each-shard.sql"));
        self.number_all(client);
        let call = statement("CALL on_each_shard('ALTER TABLE");
        let column = [
            "a column added to a table of each, by one `CALL` | s | PostgreSQL | | migrate, a schema",
            "CPU time of the columns | s | PostgreSQL | linear |",
        ];
        self.add_timed(column, client, &call);
        sql(client, "VACUUM ANALYZE");
        self.memory();
        let dump = median(|| self.program("pg_dump", &self.database, "-n shard5"));
        self.add("`pg_dump -n` of one schema | ms | PostgreSQL | | pg_dump -n", dump);
        self.router();
        // Autovacuum would be busy with these databases during the next measurements.
        for old in [format!("router_{}", self.schemas), self.database.clone()] {
            sql(&mut self.bench.control, &format!("DROP DATABASE {old} WITH (FORCE)"));
        }
    }

    fn clone_all(&mut self, client: &mut Client) {
        let all = example("clone-template.sql").replace("100..163", &format!("0..{}", self.schemas - 1));
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
            let clone = [
                "all cloned from the template | s | both | at most 600 s | clone, a schema",
                "CPU time of the clone | s | both | linear |",
            ];
            self.add_timed(clone, client, &all);
            over.store(true, Ordering::Relaxed);
            watch.join().expect("the number of locks")
        });
        self.add("the most locks that the clone held at once | | both | at most 100 |", most);
    }

    fn assign(&mut self, client: &mut Client) {
        let call = "SELECT snowflake_assign_shard('shard5', 5)";
        self.add("`snowflake_assign_shard`, nothing to do | ms | idgen | |", median_of(client, call));
        let [change, by_hand] = [call, &alter("5")].map(|change| {
            median(|| {
                sql(client, &format!("BEGIN; {}", alter("")));
                let time = seconds(|| sql(client, change));
                sql(client, "ROLLBACK");
                time
            })
        });
        self.add("the same, three columns to change | ms | both | | assign a shard", change);
        self.add("the three `ALTER TABLE` without it | ms | PostgreSQL | |", by_hand);
        let beside = "`snowflake_assign_shard` of three columns, beside what its `ALTER TABLE` take | ms | idgen | \
                      at most 20 ms |";
        self.add(beside, change - by_hand);
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
        let number = [
            "all given their numbers, by one statement | s | both | at most 600 s | number all, a schema",
            "CPU time of the numbers | s | both | linear |",
        ];
        let calls = statement("CALL on_each_shard($$SELECT snowflake_assign_shard");
        let (call, _) = calls.split_once('\n').expect("the end of the call");
        self.add_timed(number, client, call);
        let right: i64 = value(client, "SELECT count(*) FROM idgen_columns WHERE schema = 'shard' || shard");
        assert_eq!(right, 3 * self.schemas as i64, "the columns that mint for the shards of their names");
    }

    /// The memory in which one backend keeps the schemas that it has used.
    fn memory(&mut self) {
        let client = &mut self.client();
        let used = "INSERT INTO shard{n}.users (name) VALUES ('Ada');
                    SELECT FROM shard{n}.photos WHERE user_id = 7;
                    SELECT FROM shard{n}.likes WHERE id = 7;";
        let prepare = "PREPARE by_user_{n} (bigint) AS SELECT * FROM shard{n}.photos WHERE user_id = $1;";
        // The sixth execution makes the generic plan.
        let prepared = prepare.to_owned() + &"EXECUTE by_user_{n} (7);".repeat(6);
        for (description, statements) in [
            (
                "memory of a backend after an insert and two queries in each schema | MB | PostgreSQL | |",
                used,
            ),
            ("the same, and a prepared query for each schema | MB | PostgreSQL | |", &prepared),
            ("the same, after `DISCARD ALL` | MB | PostgreSQL | |", ""),
        ] {
            for n in 0..self.schemas {
                sql(client, &statements.replace("{n}", &n.to_string()));
            }
            if statements.is_empty() {
                sql(client, "DISCARD ALL");
            }
            let mb = "SELECT (sum(total_bytes) / 1e6)::float8 FROM pg_backend_memory_contexts";
            self.add(description, value(client, mb));
        }
    }

    /// Measures a router with a foreign partition for each schema, made by docs/examples/scaling/router.sql.
    fn router(&mut self) {
        let (last, database) = (self.schemas - 1, format!("router_{}", self.schemas));
        sql(&mut self.bench.control, &format!("CREATE DATABASE {database}"));
        let host = self.bench.server.split(' ').find_map(|part| part.strip_prefix("host=")).expect("a host");
        let arguments = format!(
            "-X -q -f docs/examples/scaling/router.sql -v server=one -v host={host} -v dbname={} \
             -v user=postgres -v first=0 -v last={last}",
            self.database
        );
        let made = self.program("psql", &database, &arguments);
        self.add("a router's partitions, all made | s | PostgreSQL | |", made);
        let router = format!("{} dbname={database}", self.bench.server);
        let mut client = connect(&router);
        sql(&mut client, "ANALYZE pg_class, pg_inherits");
        let id = 499_632_402_134_470_656_i64; // of shard 4
        let by_id = format!("EXPLAIN SELECT * FROM users WHERE id = {id}");
        let plan = format!("{by_id} AND shard_of(id) = shard_of({id})");
        let first = median(|| {
            let mut client = connect(&router);
            seconds(|| sql(&mut client, &plan))
        });
        self.add("a query by id and shard, planned, the first of a session | ms | PostgreSQL | |", first);
        let again = median_of(&mut client, &plan);
        self.add("a query by id and shard, planned again | ms | PostgreSQL | | plan on a router", again);
        let again = median_of(&mut client, &by_id);
        self.add("a query by id alone, planned again | ms | PostgreSQL | |", again);
    }

    fn put(mut self, sizes: &[usize]) {
        let (mut lines, report) = (Vec::new(), &mut self.bench.report);
        let [mut rows, mut details] = [Vec::new(), Vec::new()];
        for (description, values) in &self.figures {
            let [what, unit, whose, target, line] =
                description.split('|').map(str::trim).collect::<Vec<_>>()[..]
            else {
                panic!("{description}");
            };
            let end = values.len() - 1;
            for target in target.split(", ").filter(|target| !target.is_empty()) {
                if target == "linear" {
                    let growth = values[end] / values[end - 1] * sizes[end - 1] as f64 / sizes[end] as f64;
                    let what = format!("{what}, a schema of {} | a schema of {}", sizes[end], sizes[end - 1]);
                    report.demand(&what, "at most 1.25", &[growth]);
                } else {
                    report.demand(what, target, &values[end..]);
                }
            }
            if !line.is_empty() {
                let of = |schemas: usize| if unit == "s" { 1e3 / schemas as f64 } else { 1.0 };
                let ms = values.iter().zip(sizes).map(|(value, schemas)| value * of(*schemas));
                lines.push(Line(line.to_owned(), ms.collect()));
            }
            let values = values.iter().map(|value| number(*value)).collect::<Vec<_>>().join(" | ");
            let is_for_users = FOR_USERS.iter().any(|beginning| what.starts_with(beginning));
            let rows = if is_for_users { &mut rows } else { &mut details };
            rows.push([what, unit, &values, whose].map(str::to_owned));
        }
        let sizes: Vec<_> = sizes.iter().map(ToString::to_string).collect();
        let heads = format!("schemas: | | {} | whose work", sizes.join(" | "));
        report.put("scale", &table(&heads, rows));
        report.put("scale details", &table(&heads, details));
        let axis = ("ms (logarithmic)", 0.01, 1e3);
        let title = "Schemas of three tables in one database";
        plot(&report.plot("scale.svg"), title, axis, "schemas", &sizes, &lines);
        report.finish("scale");
    }
}
