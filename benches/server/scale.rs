//! The cost of a database with thousands of logical shards, each a schema of three tables: `make bench-scale`. The
//! schemas are created, numbered and changed by the statements of docs/shards.md.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use postgres::{Client, NoTls, SimpleQueryMessage};

use crate::measure::Spread;
use crate::plots::Line;
use crate::report::{self, Bar};
use crate::{measure, plots, sql};

const FULL: &[usize] = &[100, 1000, 8192];
const QUICK: &[usize] = &[20, 100];
/// The number of repetitions, where there are any.
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
                                  id bigint PRIMARY KEY DEFAULT snowflake_next_id())";
const TABLES: [&str; 3] = ["users", "photos", "likes"];
/// The schema that single ones are measured by, and its shard. It is moved to the other server at last.
const ONE: usize = 5;

/// A figure for each size: its subject, its unit, the cause of its size, and the medians.
struct Figure {
    what: &'static str,
    unit: &'static str,
    whose: &'static str,
    values: Vec<f64>,
}

/// All figures, of the sizes that were measured so far.
#[derive(Default)]
struct Figures(Vec<Figure>);

impl Figures {
    fn add(&mut self, what: &'static str, unit: &'static str, whose: &'static str, value: f64) {
        println!("   {what}: {} {unit}", report::number(value));
        match self.0.iter_mut().find(|figure| figure.what == what) {
            Some(figure) => figure.values.push(value),
            None => self.0.push(Figure { what, unit, whose, values: vec![value] }),
        }
    }

    fn of(&self, what: &str) -> &[f64] {
        &self.0.iter().find(|figure| figure.what == what).unwrap_or_else(|| panic!("no figure {what}")).values
    }

    fn last(&self, what: &str) -> f64 {
        *self.of(what).last().expect("a size")
    }
}

const IDGEN: &str = "idgen";
const BOTH: &str = "both";
const POSTGRES: &str = "PostgreSQL";

const CLONE: &str = "all cloned from the template";
const CLONE_CPU: &str = "CPU time of the clone";
const LOCKS: &str = "the most locks that the clone held at once";
const WHOLE: &str = "`idgen_columns`, whole";
const BY_SCHEMA: &str = "`idgen_columns` of one schema, by its name";
const BY_TABLE: &str = "`idgen_columns` of one table, by its name";
const BY_BOTH: &str = "`idgen_columns` of one table of one schema, by their names";
const BY_OID: &str = "`idgen_columns()` of one table, by its oid";
const FIRST: &str = "`snowflake_assign_shard`, nothing to do, the first call of a session";
const NOTHING: &str = "the same, each further call";
const CHANGES: &str = "the same, three columns to change";
const BY_HAND: &str = "the three `ALTER TABLE` without it";
const NUMBERED: &str = "all given their numbers, by one statement";
const NUMBERED_CPU: &str = "CPU time of the numbers";
const MIGRATED: &str = "a column added to a table of each, by one `CALL`";
const MIGRATED_CPU: &str = "CPU time of the columns";
const DUMP: &str = "`pg_dump -n` of one schema";
const PLAN_AGAIN: &str = "a query by id and shard, planned again";

/// The server that all is measured on, and the one that a shard moves to.
struct Servers {
    source: String,
    target: String,
    programs: PathBuf,
}

impl Servers {
    fn client(&self, server: &str, database: &str) -> Client {
        Client::connect(&format!("{server} dbname={database}"), NoTls).expect("a server of scripts/bench")
    }

    fn program(&self, name: &str, server: &str, database: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command.args(["-d", &format!("{server} dbname={database}")]).stdout(Stdio::null());
        command
    }
}

/// Measures all sizes, and writes the section of the report and its plot.
pub fn run(quick: bool, source: String, target: String, programs: PathBuf) {
    let servers = Servers { source, target, programs };
    let sizes = if quick { QUICK } else { FULL };
    let start = Instant::now();
    let mut control = servers.client(&servers.source, "postgres");
    sql(&mut control, "CREATE EXTENSION idgen");
    let machine = report::machine(&mut control);
    let mut figures = Figures::default();
    for schemas in sizes {
        println!("\n== {schemas} schemas");
        one_size(&servers, &mut control, *schemas, &mut figures);
    }
    draw(&report::out(quick).join("plots"), sizes, &figures);
    let section = section(sizes, &figures, &machine, start.elapsed());
    report::put_part(quick, report::SCALE, "scale.md", &section);
    println!("\n== after {} s", start.elapsed().as_secs());
}

/// The statement of docs/shards.md that begins in this way, to the end of its block.
fn statement(beginning: &str) -> String {
    let page = std::fs::read_to_string("docs/shards.md").expect("docs/shards.md");
    let start = page.find(beginning).unwrap_or_else(|| panic!("docs/shards.md has no {beginning:?}"));
    let end = page[start..].find("\n```").expect("the end of the block");
    page[start..start + end].to_owned()
}

/// Runs a statement, and returns its seconds and the CPU seconds of the backend.
fn timed(client: &mut Client, statement: &str) -> [f64; 2] {
    let pid = number(client, "SELECT pg_backend_pid()") as i32;
    let before = measure::cpu_time(pid);
    let time = seconds(|| sql(client, statement));
    [time, (measure::cpu_time(pid) - before).as_secs_f64()]
}

fn seconds(task: impl FnOnce()) -> f64 {
    let start = Instant::now();
    task();
    start.elapsed().as_secs_f64()
}

/// The median in milliseconds. A first time warms up.
fn median_ms(mut task: impl FnMut() -> f64) -> f64 {
    task();
    Spread::of((0..ROUNDS).map(|_| task() * 1e3).collect()).median
}

fn number(client: &mut Client, query: &str) -> f64 {
    let query = format!("SELECT ({query})::float8");
    client.query_one(&query, &[]).unwrap_or_else(|error| panic!("{query}: {error}")).get(0)
}

fn one_size(servers: &Servers, control: &mut Client, schemas: usize, figures: &mut Figures) {
    let database = format!("scale_{schemas}");
    sql(control, &format!("CREATE DATABASE {database}"));
    let client = &mut servers.client(&servers.source, &database);
    sql(client, TEMPLATE);
    clone(client, control, schemas, figures);
    sql(client, "VACUUM ANALYZE");
    sizes(client, &database, figures);
    columns(client, figures);
    assign(servers, &database, figures);
    number_all(client, schemas, figures);
    migrate(client, figures);
    sql(client, "VACUUM ANALYZE");
    memory(servers, &database, schemas, figures);
    tools(servers, &database, client, figures);
    autovacuum(control, &database, figures);
    move_one(servers, control, &database, figures);
    router(servers, control, &database, schemas, figures);
    // Autovacuum would be busy with them while the next ones are measured.
    for old in [format!("router_{schemas}"), database.clone()] {
        sql(control, &format!("DROP DATABASE {old} WITH (FORCE)"));
    }
    sql(&mut servers.client(&servers.target, "postgres"), &format!("DROP DATABASE {database} WITH (FORCE)"));
}

fn clone(client: &mut Client, control: &mut Client, schemas: usize, figures: &mut Figures) {
    let all = statement("DO $$\nDECLARE\n    template CONSTANT")
        .replace("100..163", &format!("0..{}", schemas - 1));
    let pid = number(client, "SELECT pg_backend_pid()");
    let over = AtomicBool::new(false);
    let ([time, cpu], locks) = thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most: f64 = 0.0;
            while !over.load(Ordering::Relaxed) {
                most = most.max(number(control, &format!("SELECT count(*) FROM pg_locks WHERE pid = {pid}")));
                thread::sleep(Duration::from_millis(20));
            }
            most
        });
        let times = timed(client, &all);
        over.store(true, Ordering::Relaxed);
        (times, watch.join().expect("a look at the locks"))
    });
    figures.add(CLONE, "s", BOTH, time);
    figures.add(CLONE_CPU, "s", BOTH, cpu);
    figures.add(LOCKS, "", BOTH, locks);
}

fn sizes(client: &mut Client, database: &str, figures: &mut Figures) {
    let size = number(client, &format!("SELECT pg_database_size('{database}')"));
    figures.add("the database", "MB", POSTGRES, size / 1e6);
    let oid = format!("(SELECT oid FROM pg_database WHERE datname = '{database}')");
    let files = number(client, &format!("SELECT count(*) FROM pg_ls_dir('base/' || {oid})"));
    figures.add("its files", "", POSTGRES, files);
}

fn columns(client: &mut Client, figures: &mut Figures) {
    sql(client, "CREATE TABLE only_here (id bigint DEFAULT snowflake_next_id())");
    for (what, source) in [
        (WHOLE, "idgen_columns"),
        (BY_SCHEMA, "idgen_columns WHERE schema = 'shard5'"),
        (BY_BOTH, "idgen_columns WHERE schema = 'shard5' AND \"table\" = 'users'"),
        (BY_TABLE, "idgen_columns WHERE \"table\" = 'only_here'"),
        (BY_OID, "idgen_columns() WHERE relation = 'only_here'::regclass"),
    ] {
        let query = format!("SELECT count(shard), count(expression) FROM {source}");
        figures.add(what, "ms", IDGEN, median_ms(|| seconds(|| sql(client, &query))));
    }
}

/// The defaults of a single schema, for a shard or for that of the session.
fn alter(shard: &str) -> String {
    let one =
        |table| format!("ALTER TABLE shard{ONE}.{table} ALTER id SET DEFAULT snowflake_next_id({shard});");
    TABLES.map(one).concat()
}

fn assign(servers: &Servers, database: &str, figures: &mut Figures) {
    let call = format!("SELECT snowflake_assign_shard('shard{ONE}', {ONE})");
    let first = median_ms(|| {
        let mut client = servers.client(&servers.source, database);
        seconds(|| sql(&mut client, &call))
    });
    figures.add(FIRST, "ms", BOTH, first);
    let mut client = servers.client(&servers.source, database);
    figures.add(NOTHING, "ms", IDGEN, median_ms(|| seconds(|| sql(&mut client, &call))));
    for (what, whose, change) in [(CHANGES, BOTH, call), (BY_HAND, POSTGRES, alter(&ONE.to_string()))] {
        let time = median_ms(|| {
            sql(&mut client, &format!("BEGIN; {}", alter("")));
            let time = seconds(|| sql(&mut client, &change));
            sql(&mut client, "ROLLBACK");
            time
        });
        figures.add(what, "ms", whose, time);
    }
}

fn number_all(client: &mut Client, schemas: usize, figures: &mut Figures) {
    sql(
        client,
        &format!(
            "DO $$ BEGIN
                 FOR n IN 0 .. {} LOOP
                     EXECUTE replace($alter${}$alter$, 'shard{ONE}.', format('shard%s.', n));
                     COMMIT;
                 END LOOP;
             END $$",
            schemas - 1,
            alter("")
        ),
    );
    sql(client, "VACUUM ANALYZE");
    // In the first such block of the page, a statement before it spoils one number.
    let all = statement("DO $$\nDECLARE\n    item record;");
    let [time, cpu] = timed(client, &all);
    figures.add(NUMBERED, "s", BOTH, time);
    figures.add(NUMBERED_CPU, "s", BOTH, cpu);
    let right = number(client, "SELECT count(*) FROM idgen_columns WHERE schema = 'shard' || shard");
    assert!(right == (schemas * TABLES.len()) as f64, "{right} columns mint for the shards of their names");
}

fn migrate(client: &mut Client, figures: &mut Figures) {
    sql(client, &statement("CREATE PROCEDURE on_each_shard"));
    let calls = statement("CALL on_each_shard");
    let call = &calls[..=calls.find(';').expect("the end of the call")];
    let [time, cpu] = timed(client, call);
    figures.add(MIGRATED, "s", POSTGRES, time);
    figures.add(MIGRATED_CPU, "s", POSTGRES, cpu);
}

/// What one backend keeps of the schemas that it has worked on.
fn memory(servers: &Servers, database: &str, schemas: usize, figures: &mut Figures) {
    let mut client = servers.client(&servers.source, database);
    let mb =
        |client: &mut Client| number(client, "SELECT sum(total_bytes) FROM pg_backend_memory_contexts") / 1e6;
    figures.add("memory of a backend that has connected", "MB", POSTGRES, mb(&mut client));
    for n in 0..schemas {
        sql(
            &mut client,
            &format!(
                "INSERT INTO shard{n}.users (name) VALUES ('Ada');
                 SELECT FROM shard{n}.photos WHERE user_id = 7;
                 SELECT FROM shard{n}.likes WHERE id = 7"
            ),
        );
    }
    figures.add("the same, after an insert and two queries in each schema", "MB", POSTGRES, mb(&mut client));
    for n in 0..schemas {
        sql(
            &mut client,
            &format!(
                "PREPARE by_user_{n} (bigint) AS SELECT * FROM shard{n}.photos WHERE user_id = $1;
                 {}",
                format!("EXECUTE by_user_{n} (7);").repeat(6) // the sixth has the generic plan
            ),
        );
    }
    figures.add("the same, and a prepared query for each schema", "MB", POSTGRES, mb(&mut client));
    sql(&mut client, "DISCARD ALL");
    figures.add("the same, after `DISCARD ALL`", "MB", POSTGRES, mb(&mut client));
}

fn done(mut command: Command) {
    let output = command.output().expect("a program of PostgreSQL");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn tools(servers: &Servers, database: &str, client: &mut Client, figures: &mut Figures) {
    let dump = || {
        let mut command = servers.program("pg_dump", &servers.source, database);
        command.args(["-n", &format!("shard{ONE}")]);
        seconds(|| done(command))
    };
    figures.add(DUMP, "ms", POSTGRES, median_ms(dump));
    let names = || {
        let mut command = servers.program("psql", &servers.source, database);
        command.args(["-X", "-c", "\\dn+"]);
        seconds(|| done(command))
    };
    figures.add("`\\dn+` in psql", "ms", POSTGRES, median_ms(names));
    figures.add("`VACUUM`, of all tables", "s", POSTGRES, seconds(|| sql(client, "VACUUM")));
}

/// The time that an autovacuum worker takes for a database in which it finds nothing to do.
fn autovacuum(control: &mut Client, database: &str, figures: &mut Figures) {
    let reload = |control: &mut Client, change: &str| {
        sql(control, change);
        sql(control, "SELECT pg_reload_conf()");
    };
    reload(control, "ALTER SYSTEM SET autovacuum_naptime = '1s'");
    let query = format!(
        "SELECT pid || ' ' || backend_start, extract(epoch FROM clock_timestamp() - backend_start)::float8
         FROM pg_stat_activity
         WHERE backend_type = 'autovacuum worker' AND datname = '{database}' AND query = ''"
    );
    let mut passes: Vec<(String, f64)> = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(120);
    while passes.len() <= ROUNDS + 1 && Instant::now() < deadline {
        for row in control.query(&query, &[]).expect("pg_stat_activity") {
            let (worker, age): (String, f64) = (row.get(0), row.get(1));
            match passes.iter_mut().find(|(other, _)| *other == worker) {
                Some(pass) => pass.1 = age,
                None => passes.push((worker, age)),
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
    reload(control, "ALTER SYSTEM RESET autovacuum_naptime");
    // The first one may have had something to do, and the last one may still run.
    let seen: Vec<_> = passes.iter().skip(1).take(ROUNDS).map(|(_, age)| age * 1e3).collect();
    assert!(!seen.is_empty(), "no autovacuum worker was seen");
    figures.add("an autovacuum worker that finds nothing to do", "ms", POSTGRES, Spread::of(seen).median);
}

/// Moves one shard to the other server, with the program for users.
fn move_one(servers: &Servers, control: &mut Client, database: &str, figures: &mut Figures) {
    let mut target = servers.client(&servers.target, "postgres");
    sql(&mut target, &format!("CREATE DATABASE {database}"));
    sql(&mut servers.client(&servers.target, database), "CREATE EXTENSION idgen");
    for (client, list) in [(&mut *control, "0-8190"), (&mut target, "8191")] {
        sql(client, &format!("ALTER SYSTEM SET idgen.allowed_shards = '{list}'"));
        sql(client, "SELECT pg_reload_conf()");
    }
    let mut command = Command::new("docs/examples/move-shard.sh");
    let programs = servers.programs.display();
    command.env("PATH", format!("{programs}:{}", std::env::var("PATH").expect("PATH")));
    command.args([&servers.source, &servers.target].map(|server| format!("{server} dbname={database}")));
    command.args([format!("shard{ONE}"), ONE.to_string()]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let start = Instant::now();
    let mut child = command.spawn().expect("move-shard.sh");
    let mut closed = None;
    let mut said = String::new();
    let mut log = child.stderr.take().expect("its messages");
    for line in BufReader::new(child.stdout.take().expect("what it says")).lines() {
        let line = line.expect("a line");
        if line.contains("closing schema") {
            closed = Some(Instant::now());
        }
        said += &format!("{line}\n");
    }
    let ended = Instant::now();
    let mut errors = String::new();
    std::io::Read::read_to_string(&mut log, &mut errors).expect("its messages");
    assert!(child.wait().expect("its end").success(), "{said}{errors}");
    let closed = closed.unwrap_or_else(|| panic!("nothing was closed: {said}{errors}"));
    figures.add("`move-shard.sh`, in all", "s", BOTH, (ended - start).as_secs_f64());
    figures.add("the same, from the closing of the schema on", "s", BOTH, (ended - closed).as_secs_f64());
    for client in [control, &mut target] {
        sql(client, "ALTER SYSTEM RESET idgen.allowed_shards");
        sql(client, "SELECT pg_reload_conf()");
    }
}

/// The plan's time in milliseconds, as EXPLAIN shows it.
fn planned(client: &mut Client, query: &str) -> f64 {
    let rows = client.simple_query(&format!("EXPLAIN (SUMMARY, FORMAT JSON) {query}")).expect(query);
    let text = rows.iter().find_map(|row| match row {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    let plan: serde_json::Value = serde_json::from_str(text.expect("a plan")).expect("JSON");
    plan[0]["Planning Time"].as_f64().expect("the time")
}

/// A router with a foreign partition for each schema, made by docs/examples/scaling/router.sql.
fn router(servers: &Servers, control: &mut Client, database: &str, schemas: usize, figures: &mut Figures) {
    let own = format!("router_{schemas}");
    sql(control, &format!("CREATE DATABASE {own}"));
    let host = servers.source.split(' ').find_map(|part| part.strip_prefix("host=")).expect("a host");
    let mut command = servers.program("psql", &servers.source, &own);
    command.args(["-X", "-q", "-f", "docs/examples/scaling/router.sql"]);
    for (name, value) in
        [("server", "one"), ("host", host), ("dbname", database), ("user", "postgres"), ("first", "0")]
    {
        command.args(["-v", &format!("{name}={value}")]);
    }
    command.args(["-v", &format!("last={}", schemas - 1)]);
    figures.add("a router's partitions, all made", "s", POSTGRES, seconds(|| done(command)));
    let id = 499_632_402_134_470_656_i64; // of shard 4
    let query = format!("SELECT * FROM users WHERE id = {id} AND shard_of(id) = shard_of({id})");
    sql(&mut servers.client(&servers.source, &own), "ANALYZE pg_class, pg_inherits");
    let first = median_ms(|| planned(&mut servers.client(&servers.source, &own), &query) / 1e3);
    figures.add("a query by id and shard, planned, the first of a session", "ms", POSTGRES, first);
    let mut client = servers.client(&servers.source, &own);
    figures.add(PLAN_AGAIN, "ms", POSTGRES, median_ms(|| planned(&mut client, &query) / 1e3));
    let without = format!("SELECT * FROM users WHERE id = {id}");
    figures.add(
        "a query by id alone, planned again",
        "ms",
        POSTGRES,
        median_ms(|| planned(&mut client, &without) / 1e3),
    );
    sql(
        &mut client,
        "PREPARE one (bigint) AS SELECT * FROM users WHERE id = $1 AND shard_of(id) = shard_of($1)",
    );
    let execute = format!("EXECUTE one ({id})");
    // By now PostgreSQL has chosen between one plan for all and one for each call.
    sql(&mut client, &format!("{execute};").repeat(10));
    figures.add(
        "a prepared query by id and shard, run",
        "ms",
        POSTGRES,
        median_ms(|| seconds(|| sql(&mut client, &execute))),
    );
}

fn draw(folder: &Path, sizes: &[usize], figures: &Figures) {
    let places: Vec<_> = sizes.iter().map(|schemas| schemas.to_string()).collect();
    let each = |what| -> Vec<f64> {
        figures.of(what).iter().zip(sizes).map(|(seconds, schemas)| seconds * 1e3 / *schemas as f64).collect()
    };
    let all = [
        Line::Measured("idgen_columns, whole", figures.of(WHOLE).to_vec()),
        Line::Measured("a schema of it", figures.of(BY_SCHEMA).to_vec()),
        Line::Measured("assign a shard", figures.of(CHANGES).to_vec()),
        Line::Measured("clone, a schema", each(CLONE)),
        Line::Measured("number all, a schema", each(NUMBERED)),
        Line::Measured("migrate, a schema", each(MIGRATED)),
        Line::Measured("pg_dump -n", figures.of(DUMP).to_vec()),
        Line::Measured("plan on a router", figures.of(PLAN_AGAIN).to_vec()),
    ];
    plots::scale(folder, &places, &all);
}

fn demands(sizes: &[usize], figures: &Figures) -> Vec<Bar> {
    let at_most = |what: &str, bar: f64, unit: &str, value: f64| {
        let measured = format!("{} {unit}", report::number(value));
        Bar::within(what, &format!("at most {bar} {unit}"), measured, value <= bar)
    };
    let mut bars = vec![
        at_most(WHOLE, 2000.0, "ms", figures.last(WHOLE)),
        at_most(BY_SCHEMA, 10.0, "ms", figures.last(BY_SCHEMA)),
        at_most(BY_BOTH, 10.0, "ms", figures.last(BY_BOTH)),
        at_most(BY_TABLE, 10.0, "ms", figures.last(BY_TABLE)),
        at_most(BY_OID, 10.0, "ms", figures.last(BY_OID)),
        at_most(
            "`snowflake_assign_shard` of three columns, beside what its `ALTER TABLE` take",
            20.0,
            "ms",
            figures.last(CHANGES) - figures.last(BY_HAND),
        ),
        at_most(NUMBERED, 600.0, "s", figures.last(NUMBERED)),
        at_most(CLONE, 600.0, "s", figures.last(CLONE)),
    ];
    let (last, before) = (sizes.len() - 1, sizes.len() - 2);
    let times = sizes[last] as f64 / sizes[before] as f64;
    let locks = figures.of(LOCKS);
    bars.push(Bar::at_most(
        &format!("{LOCKS}, of those for {} schemas", sizes[0]),
        1.25,
        locks[last] / locks[0],
    ));
    for what in [WHOLE, CLONE_CPU, NUMBERED_CPU, MIGRATED_CPU] {
        let values = figures.of(what);
        let growth = values[last] / values[before] / times;
        let title = format!("{what}: a schema of {}, of one of {}", sizes[last], sizes[before]);
        bars.push(Bar::at_most(&title, 1.25, growth));
    }
    bars
}

fn section(sizes: &[usize], figures: &Figures, machine: &str, took: Duration) -> String {
    let mut text = String::new();
    let mut line = |line: &str| text.push_str(&report::wrapped(line));
    let most = report::number(*sizes.last().expect("a size") as f64);
    line("## Thousands of shards in one database\n");
    line("![Cost over schemas](plots/scale.svg)\n");
    line(&format!(
        "Written by `make bench-scale`. {machine} One run took {} minutes with PostgreSQL's defaults. Each schema has \
         three tables with a column that mints. The statements that clone, number and change all schemas are those \
         of [shards.md](shards.md). Figures in milliseconds are medians of {ROUNDS}; the others were taken once. \
         Catalogs were analyzed after cloning.\n",
        took.as_secs().div_ceil(60),
    ));
    line(&format!("Requirements for {most} schemas:\n"));
    report::bars(&mut line, &demands(sizes, figures));
    line(
        "\nThe view shows names as `text`, for which the catalogs have no index, so a condition on a table's name alone \
         reads the names of all tables. A condition on the oid uses an index. The more schemas there are, the longer \
         each takes to clone and to number, because `snowflake_assign_shard` searches all defaults for the shard.\n",
    );
    let heads: Vec<_> = sizes.iter().map(ToString::to_string).collect();
    line(&format!("| schemas: | | {} | whose work |", heads.join(" | ")));
    line(&format!("|---|---|{}---|", "---|".repeat(sizes.len())));
    for Figure { what, unit, whose, values } in &figures.0 {
        let cells: Vec<_> = values.iter().map(|value| report::number(*value)).collect();
        line(&format!("| {what} | {unit} | {} | {whose} |", cells.join(" | ")));
    }
    text
}
