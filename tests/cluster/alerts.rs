//! docs/examples/prometheus with real programs: an exporter runs the queries, and Prometheus evaluates the alert rules.

use std::collections::BTreeSet;
use std::fs::read_to_string;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::moment::is_reached;
use crate::process::{Service, example, installed, lacks, servers_folder};
use crate::server::{PRELOAD, Server, Sql};

const YEAR: f64 = 365.25 * 24.0 * 3600.0;

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr()).unwrap().port()
}

/// A server's exporter, a Prometheus that scrapes it, and the alerts that have fired.
struct Watch {
    port: u16,
    fired: BTreeSet<String>,
    _programs: [Service; 2],
}

impl Watch {
    fn start(exporter: &Path, prometheus: &Path, server: &Server) -> Watch {
        server.run("CREATE ROLE prometheus LOGIN IN ROLE pg_monitor");
        let base = servers_folder().join(format!("prometheus-{}", std::process::id()));
        let file = |kind: &str| base.with_extension(kind).display().to_string();
        let [exporter_port, port] = [(); 2].map(|()| free_port());

        std::fs::copy(example("prometheus/queries.yaml"), file("queries")).unwrap();
        let listen = format!("--web.listen-address=127.0.0.1:{exporter_port}");
        let queries = format!("--extend.query-path={}", file("queries"));
        let source = format!("host={} user=prometheus dbname=postgres sslmode=disable", server.host());
        let exporter = Service::start(
            exporter,
            &[&listen, &queries, "--disable-default-metrics", "--disable-settings-metrics"],
            &[("DATA_SOURCE_NAME", &source)],
            Path::new(&file("exporter-log")),
        );

        // Times in the rules become seconds instead of minutes.
        let mut rules = read_to_string(example("prometheus/alerts.yml")).unwrap();
        for (theirs, ours) in [
            ("[5m]", "[10s]"),
            ("[15m]", "[10s]"),
            ("for: 1m", "for: 1s"),
            ("for: 2m", "for: 5s"),
            ("for: 5m", "for: 1s"),
        ] {
            assert!(rules.contains(theirs), "{theirs}");
            rules = rules.replace(theirs, ours);
        }
        std::fs::write(file("rules"), rules).unwrap();
        let config = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: [{}]
scrape_configs:
  - job_name: idgen
    static_configs: [{{targets: ['127.0.0.1:{exporter_port}']}}]
",
            file("rules")
        );
        std::fs::write(file("config"), config).unwrap();
        let [config, data, listen] = [
            format!("--config.file={}", file("config")),
            format!("--storage.tsdb.path={}", file("data")),
            format!("--web.listen-address=127.0.0.1:{port}"),
        ];
        let log = file("log");
        let prometheus = Service::start(prometheus, &[&config, &data, &listen], &[], Path::new(&log));
        Watch { port, fired: BTreeSet::new(), _programs: [prometheus, exporter] }
    }

    fn answers(&self, query: &str) -> bool {
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
            let query: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
            write!(stream, "GET /api/v1/query?query={query} HTTP/1.0\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        match ask() {
            Ok(answer) if answer.contains("\"status\":\"success\"") => !answer.contains("\"result\":[]"),
            // It is not ready yet.
            Ok(answer) if answer.starts_with("HTTP/1.0 503") => false,
            Ok(answer) => panic!("{query}: {answer}"),
            Err(_) => false,
        }
    }

    /// Calls `meanwhile` repeatedly until a query has a result.
    fn until(&self, query: &str, mut meanwhile: impl FnMut()) {
        let is_answered = || {
            meanwhile();
            self.answers(query)
        };
        assert!(self.answers(query) || is_reached(60, is_answered), "no answer to {query}");
    }

    fn until_fired(&mut self, alert: &str, labels: &str, meanwhile: impl FnMut()) {
        self.until(&format!("ALERTS{{alertstate='firing', alertname='{alert}', {labels}}}"), meanwhile);
        self.fired.insert(alert.into());
    }

    fn until_warned(&mut self, code: &str, meanwhile: impl FnMut()) {
        self.until_fired("IdgenWarning", &format!("code='{code}'"), meanwhile);
    }

    fn until_refused(&mut self, reason: &str, meanwhile: impl FnMut()) {
        self.until_fired("IdgenRefusesCalls", &format!("reason='{reason}'"), meanwhile);
    }
}

/// The text after a word in each line that begins with it.
fn values<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| line.trim().strip_prefix(word)).map(str::trim)
}

/// Checks that no query returns a null, for which sql_exporter would export no metric, just when something is wrong.
fn assert_no_null(server: &Server) {
    let queries = read_to_string(example("prometheus/queries.yaml")).unwrap();
    let queries = queries.split("query: |").skip(1).filter_map(|entry| entry.split("metrics:").next());
    for query in queries {
        let sql = format!("SELECT count(*) FROM ({query}) AS row WHERE NOT (row IS NOT NULL)");
        assert_eq!(server.value::<i64>(&sql), 0, "{query}");
    }
}

/// Promise 8: each alert of the file fires on its problem, and none fires on a healthy server, for which every
/// expression of the dashboard has a result.
#[test]
fn every_alert_fires() {
    let programs = ["prometheus-postgres-exporter", "prometheus"].map(installed);
    let [Some(exporter), Some(prometheus)] = programs else {
        return lacks("Prometheus with its exporter for PostgreSQL");
    };
    let server = Server::start(&[PRELOAD, "fsync = off"]);
    let mint = || server.run("SELECT snowflake_next_id(1)");
    let try_to_mint = || {
        drop(server.connect().batch_execute("SET idgen.max_wait = '200ms'; SELECT snowflake_next_id(1)"));
    };
    let wait = || ();
    assert_no_null(&server);
    let mut watch = Watch::start(&exporter, &prometheus, &server);

    watch.until("count_over_time(idgen_status_shards_in_use[1m]) >= 8", mint);
    let dashboard = read_to_string(example("prometheus/grafana.json")).unwrap();
    server.connect().execute(&format!("SELECT $dashboard${dashboard}$dashboard$::json"), &[]).unwrap();
    let expressions: Vec<&str> = values(&dashboard, "\"expr\":").collect();
    assert!(expressions.len() > 9, "{expressions:?}");
    for expression in expressions {
        let expression = expression.trim_end_matches(',').trim_matches('"').replace("\\\"", "'");
        let expression = expression.replace("$__rate_interval", "10s").replace("$instance", ".*");
        watch.until(&expression, mint);
    }
    assert!(!watch.answers("max_over_time(ALERTS{alertstate='firing'}[10m])"), "on a server in good order");

    // A shard at its ceiling.
    let load = [(); 2].map(|()| {
        let mut client = server.connect();
        thread::spawn(move || {
            drop(client.batch_execute(
                "SET idgen.max_wait = '1min';
                 SELECT count(snowflake_next_id_js(7)) FROM generate_series(1, 10000000)",
            ));
        })
    });
    for alert in ["IdgenCallsWait", "IdgenShardNearCeiling"] {
        watch.until_fired(alert, "shard='7', layout='js53'", wait);
    }
    server.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE query LIKE '%js(7)%' AND pid <> pg_backend_pid()",
    );
    for client in load {
        client.join().unwrap();
    }

    // The clock jumps, and is corrected.
    server.set_clock(10.0 * YEAR);
    watch.until_refused("clock_jumped", try_to_mint);
    watch.until_warned("clock-jumped", wait);
    watch.until_fired("IdgenClockStepped", "", || {
        server.set_clock(0.0);
        try_to_mint();
        server.set_clock(10.0 * YEAR);
        try_to_mint();
    });
    server.set_clock(0.0);

    // A list that is refused, and a guard that is off.
    server.configure(&["idgen.allowed_shards = 'nonsense'", "idgen.max_clock_jump = -1"]);
    server.reload("idgen.max_clock_jump", "-1");
    watch.until_warned("setting-refused", wait);
    server.set("idgen.allowed_shards", "0-99");
    watch.until_warned("clock-jumps-unchecked", wait);
    watch.until_refused("shard_not_allowed", || {
        drop(server.connect().execute("SELECT snowflake_next_id(100)", &[]));
    });

    // The synchronous standby leaves and comes back.
    let standby = server.synchronous_standby("other");
    mint();
    standby.stop("fast");
    watch.until_refused("mark_not_durable", try_to_mint);
    watch.until_warned("sync-too-few", wait);
    let mut client = server.connect();
    let patient = thread::spawn(move || {
        client.run("SET idgen.max_wait = '1min'; SELECT snowflake_next_id(1)");
    });
    thread::sleep(Duration::from_secs(3));
    standby.up();
    patient.join().unwrap();
    watch.until_fired("IdgenRenewalsAreSlow", "", wait);
    server.make_asynchronous();

    // The clock was half an hour ahead, and ids were minted.
    server.set_clock(1800.0);
    mint();
    server.set_clock(0.0);
    watch.until_refused("clock_behind", try_to_mint);
    watch.until_fired("IdgenMarkInFuture", "", wait);
    watch.until_warned("clock-behind", wait);

    // Another epoch, whose range ends soon.
    server.restart_with(&["idgen.epoch = '1995-01-01T00:00:00Z'"]);
    watch.until_refused("other_epoch", try_to_mint);
    watch.until_warned("epoch-of-mark", wait);
    watch.until_fired("IdgenRangeEnds", "", wait);
    assert_no_null(&server);
    server.set_clock(-40.0 * YEAR);
    assert_no_null(&server);

    server.stop("fast");
    watch.until_fired("IdgenGone", "", wait);

    let rules = read_to_string(example("prometheus/alerts.yml")).unwrap();
    let alerts: BTreeSet<String> = values(&rules, "- alert:").map(str::to_owned).collect();
    assert_eq!(watch.fired, alerts, "every alert, and no other");
}
