//! docs/scaling.md on several real servers, by the files of docs/examples/scaling: a router over shards, logical
//! replication from many servers and both ways, and Citus.

use std::collections::HashSet;
use std::path::Path;

use postgres::Client;

use crate::clients::{Clients, Ledger, ids};
use crate::moment::is_reached;
use crate::moves::{move_shard, run_as_owner};
use crate::process::{
    command, lacks, library, major_version, output_of_run, refused, release_bin, run, skipped,
};
use crate::server::{PRELOAD, Server, Sql, enable, reason};

fn all_ids(server: &Server) -> HashSet<i64> {
    server.connect().column("SELECT id FROM users").into_iter().collect()
}

/// Whether PostgreSQL has an extension.
fn available(server: &Server, extension: &str) -> bool {
    let sql = "SELECT count(*) FROM pg_available_extensions WHERE name = $1";
    server.connect().query_one(sql, &[&extension]).unwrap().get::<_, i64>(0) == 1
}

fn shards_of(server: &Server, first: &str, last: &str) {
    run(server.psql("scaling/shards.sql", &[("first", first), ("last", last)]));
}

fn route(router: &Server, name: &str, server: &Server, first: &str, last: &str) {
    let place = [("server", name), ("host", &server.host()), ("dbname", "postgres"), ("user", "postgres")];
    run(router.psql("scaling/router.sql", &[&place[..], &[("first", first), ("last", last)]].concat()));
}

/// Clients write to shards on two servers, directly and through a router, while a shard moves. No id occurs twice, each
/// row is on the server of its shard, and a query by id goes to one server.
#[test]
fn a_router_over_the_shards_of_two_servers() {
    let router = Server::start_plain(&["idgen.epoch = '2025-01-01T00:00:00Z'"]);
    if !available(&router, "postgres_fdw") {
        return lacks("the extension postgres_fdw");
    }
    let (one, two) = (Server::start(&[PRELOAD]), Server::start(&[PRELOAD]));
    shards_of(&one, "1", "2");
    shards_of(&two, "3", "4");
    [&one, &two].iter().for_each(|server| run_as_owner(server, ""));
    one.run("ALTER SCHEMA shard2 OWNER TO app; ALTER TABLE shard2.users OWNER TO app; ALTER VIEW shard2.new_id OWNER TO app");
    route(&router, "one", &one, "1", "2");
    route(&router, "two", &two, "3", "4");

    let through_router = Clients::start_by(3, &router, |client, round| {
        let shard = round % 4 + 1;
        ids(client, &format!("INSERT INTO users SELECT id, 'Ada' FROM new_id_{shard} RETURNING id"))
    });
    let direct = [(&one, 1), (&two, 3)].map(|(server, shard)| {
        Clients::start_by(2, server, move |client, _| {
            ids(client, &format!("INSERT INTO shard{shard}.users (name) VALUES ('Grace') RETURNING id"))
        })
    });
    through_router.wait_for_ids(200);
    run(move_shard(&one, &two, "shard2"));
    route(&router, "two", &two, "2", "2");
    through_router.wait_for_ids(200);
    let mut ledger = Ledger::default();
    through_router.finish(&mut ledger);
    for clients in direct {
        clients.finish(&mut ledger);
    }
    println!("{} ids, refused: {:?}", ledger.len(), ledger.errors);
    assert_eq!(all_ids(&router), ledger.ids());
    for (server, shard) in [(&one, 1), (&two, 2), (&two, 3), (&two, 4)] {
        let there: Vec<i64> = server.connect().column(&format!("SELECT id FROM shard{shard}.users"));
        let told: HashSet<_> = ledger.ids().into_iter().filter(|id| id >> 10 & 8191 == shard).collect();
        assert_eq!(there.into_iter().collect::<HashSet<_>>(), told, "shard {shard}");
    }

    let mut client = router.connect();
    let mut plan =
        |query: &str| client.column::<String>(&format!("EXPLAIN (VERBOSE, COSTS OFF) {query}")).join("\n");
    let id = ledger.ids().into_iter().next().unwrap();
    let by_id =
        plan(&format!("SELECT * FROM users WHERE id = {id} AND idgen.shard_of(id) = idgen.shard_of({id})"));
    assert_eq!(by_id.matches("Remote SQL").count(), 1, "{by_id}");
    assert!(by_id.contains("shard_of(id) = "), "{by_id}");
    let by_time = plan(
        "SELECT count(*) FROM users WHERE id >= (SELECT idgen.snowflake_min_id(now() - interval '1 minute'))",
    );
    assert_eq!(by_time.matches("WHERE ((id >= ").count(), 4, "{by_time}");

    // The router mints nothing, not even by a default, and a row can only go to its shard.
    assert_eq!(router.code("SELECT idgen.snowflake_next_id(1)"), "55000");
    assert_eq!(router.code("INSERT INTO users_1 (name) VALUES ('Ada')"), "23502");
    assert_eq!(
        router.code("INSERT INTO users VALUES (idgen.snowflake_make_id(now(), 9, 0), 'Ada')"),
        "23514"
    );
    assert_eq!(two.code("INSERT INTO shard3.users SELECT id, 'Ada' FROM shard4.new_id"), "23514");
    assert_eq!(two.code("SELECT snowflake_next_id(1)"), "55000");
}

/// Servers with the same table and different shards.
fn writers<const N: usize>(shards: [(&str, &str); N]) -> [Server; N] {
    shards.map(|(first, last)| {
        let server = Server::start(&[
            "wal_level = logical",
            // idgen needs one, and each subscription two while it copies.
            "max_replication_slots = 5",
            &format!("idgen.allowed_shards = '{first}-{last}'"),
            &format!("idgen.shard = {first}"),
        ]);
        let table = "CREATE TABLE users (id bigint PRIMARY KEY DEFAULT snowflake_next_id(), name text);
                     INSERT INTO users (name) SELECT 'before' FROM generate_series(1, 100)";
        server.run(table);
        run(server.psql("scaling/publish.sql", &[("first", first), ("last", last)]));
        server
    })
}

fn subscribe(server: &Server, file: &str, name: &str, source: &Server, more: &[(&str, &str)]) {
    let conninfo = source.target("postgres");
    run(server.psql(file, &[&[("source", name), ("conninfo", &conninfo)], more].concat()));
}

/// Clients that insert a row and change it.
fn writing(server: &Server) -> Clients {
    Clients::start_by(2, server, |client, _| {
        let new = ids(client, "INSERT INTO users (name) VALUES ('new') RETURNING id")?;
        client.execute("UPDATE users SET name = 'changed' WHERE id = $1", &[&new[0]])?;
        Ok(new)
    })
}

/// The number of rows, and a checksum.
fn content(server: &Server, condition: &str) -> (i64, Option<i64>) {
    let sql = format!("SELECT count(*), sum(hashtext(id || name)) FROM users WHERE {condition}");
    server.connect().row(&sql)
}

/// Waits until a server has the same rows of these shards as another server.
fn wait_for_rows(server: &Server, source: &Server, shards: &str) {
    let goal = content(source, shards);
    let is_there = is_reached(60, || content(server, shards) == goal);
    assert!(is_there, "{:?} instead of {goal:?}\n{}", content(server, shards), server.log());
}

/// Checks that logical replication has met no conflict, which it would log.
fn assert_no_conflict(server: &Server) {
    assert!(!server.log().contains("ERROR:"), "{}", server.log());
}

/// Two servers write, and a third one has all their rows and rows of its own. Keys do not conflict, and no default
/// mints for a row that arrives there.
#[test]
fn rows_of_many_servers_come_together_in_one() {
    let [one, two, all] = writers([("0", "99"), ("100", "199"), ("200", "299")]);
    let clients = [&one, &two, &all].map(writing);
    subscribe(&all, "scaling/subscribe.sql", "one", &one, &[]);
    subscribe(&all, "scaling/subscribe.sql", "two", &two, &[]);
    let mut ledger = Ledger::default();
    for clients in clients {
        clients.finish_after(300, &mut ledger);
    }
    one.run("DELETE FROM users WHERE name = 'before'");
    wait_for_rows(&all, &one, "shard_of(id) < 100");
    wait_for_rows(&all, &two, "shard_of(id) BETWEEN 100 AND 199");
    assert!(ledger.ids().is_subset(&all_ids(&all)));
    assert_no_conflict(&all);

    let mut client = all.connect();
    let minted = "SELECT array_agg(DISTINCT shard) FROM idgen_shard_stats WHERE ids > 0";
    assert_eq!(client.value::<Vec<i32>>(minted), [200]);
    // Subscriptions come and go without affecting the mark.
    let mark = "SELECT mark FROM idgen_status";
    let before: i64 = client.value(mark);
    for name in ["one", "two"] {
        client.run(&format!("DROP SUBSCRIPTION {name}"));
    }
    assert!(client.value::<i64>(mark) >= before && before > 0);
}

/// Two servers that both write have each other's rows. Keys do not conflict, and no row goes in circles.
#[test]
fn two_servers_have_each_others_rows() {
    let [one, two] = writers([("0", "99"), ("100", "199")]);
    let by_origin = major_version() >= 16;
    if by_origin {
        two.run("DELETE FROM users");
        for server in [&one, &two] {
            server.run("CREATE PUBLICATION everything FOR TABLE users");
        }
        // A tenant's trap for superusers, and a subscription that never gets its rows.
        two.run(
            "CREATE SCHEMA evil; CREATE ROLE mallory;
             CREATE FUNCTION evil.differs(\"char\", \"char\") RETURNS boolean LANGUAGE plpgsql AS
                 'BEGIN ALTER ROLE mallory SUPERUSER; RETURN false; END';
             CREATE OPERATOR evil.<> (LEFTARG = \"char\", RIGHTARG = \"char\", FUNCTION = evil.differs);
             CREATE TABLE elsewhere (); ALTER DATABASE postgres SET search_path = evil, public, idgen, pg_catalog",
        );
        one.run("CREATE TABLE elsewhere (); CREATE PUBLICATION late FOR TABLE elsewhere");
        two.run(&format!(
            "CREATE SUBSCRIPTION late CONNECTION '{}' PUBLICATION late WITH (create_slot = false, slot_name = NONE, enabled = false)",
            one.target("postgres")
        ));
        // A wait in one snapshot would not end, nor would one for a name that the server has truncated.
        two.run("ALTER DATABASE postgres SET default_transaction_isolation = 'repeatable read'");
        let long = "one".repeat(25);
        subscribe(&two, "scaling/both-ways.sql", &long, &one, &[("copy", "true")]);
        let left = "SELECT count(*) FROM pg_catalog.pg_subscription_rel JOIN pg_catalog.pg_subscription AS s
                         ON s.oid OPERATOR(pg_catalog.=) srsubid
                    WHERE srsubstate::text OPERATOR(pg_catalog.<>) 'r' AND subenabled";
        assert_eq!(two.answer::<i64>(left), 0);
        two.run("ALTER DATABASE postgres RESET default_transaction_isolation");
        subscribe(&one, "scaling/both-ways.sql", "two", &two, &[("copy", "false")]);
    } else {
        subscribe(&two, "scaling/subscribe.sql", "one", &one, &[]);
        subscribe(&one, "scaling/subscribe.sql", "two", &two, &[]);
    }
    let mut ledger = Ledger::default();
    for clients in [&one, &two].map(writing) {
        clients.finish_after(300, &mut ledger);
    }
    wait_for_rows(&two, &one, "shard_of(id) < 100");
    wait_for_rows(&one, &two, "shard_of(id) >= 100");
    if by_origin {
        // Either server may change a row.
        two.run("UPDATE users SET name = 'there' WHERE shard_of(id) < 100");
        wait_for_rows(&one, &two, "true");
    }
    assert_eq!(all_ids(&one), all_ids(&two));
    assert!(ledger.ids().is_subset(&all_ids(&one)));
    assert_no_conflict(&one);
    assert_no_conflict(&two);
    if by_origin {
        two.assert_ordinary("mallory");
    }
}

/// A subscription fails if the other server has nothing to publish.
#[test]
fn a_server_that_publishes_nothing_is_not_followed() {
    if major_version() < 16 {
        return;
    }
    let [one, two] = writers([("0", "99"), ("100", "199")]);
    let conninfo = one.target("postgres");
    let variables = [("source", "one"), ("conninfo", conninfo.as_str()), ("copy", "true")];
    let why = "the subscription follows no table of the publication \"everything\"";
    refused(two.psql("scaling/both-ways.sql", &variables), &[why]);
}

/// The warning of a server that preloads Citus and has no list.
const NO_LIST: &str = "\"idgen.allowed_shards\" must be set on a server that preloads Citus";

fn assert_nothing_is_minted(client: &mut Client) {
    let sqls = [
        "SELECT snowflake_next_id(5)",
        "SELECT snowflake_next_id()",
        "SELECT snowflake_next_ids(5, 10)",
        "SELECT snowflake_next_id_js(5)",
        "SELECT snowflake_advance(5, 1)",
    ];
    for sql in sqls {
        let error = client.error(sql);
        assert_eq!(reason(&error), "55000 shard_not_allowed", "{sql}");
        assert!(error.hint().unwrap_or_default().contains("\"0-8191\" if there is only one"), "{error:?}");
    }
    // An error that concerns all shards comes first.
    let of_no_shard = client.refusal("SET idgen.shard = -1; SELECT snowflake_next_id()");
    assert_eq!(of_no_shard, "55000 shard_not_allowed");
    assert_eq!(client.value::<i32>("SELECT shard_of(5 << 10)"), 5, "ids are not decoded");
    assert_eq!(client.value::<i32>("SELECT shard FROM snowflake_decode(499440859704464384)"), 5);
}

/// The hint if no shard is set.
fn hint_of_no_shard(server: &Server) -> String {
    let error = server.error("SET idgen.shard = -1; SELECT snowflake_next_id()");
    assert_eq!(reason(&error), "55000 shard_unset");
    error.hint().unwrap_or_default().to_owned()
}

/// Citus runs defaults on every node, so two nodes without lists would mint the same ids. If it is preloaded, in
/// whatever form it is written, an empty list allows no shard. A reload can set and unset a list.
#[test]
fn beside_citus_nothing_is_minted_without_a_list() {
    let server = Server::start(&["idgen.shard = 5"]);
    assert_eq!(server.warning(), None);
    // A library that every server has, and that does nothing when loaded, stands in for Citus.
    let host = server.host();
    let file = library("dict_snowball");
    for name in ["citus", "citus_columnar"] {
        run(command("cp").arg(&file).arg(format!("{host}/{name}.so")));
    }
    server.configure(&[&format!("dynamic_library_path = '{host}:$libdir'")]);
    let restart = |libraries: &str| {
        server.restart_with(&[&format!("shared_preload_libraries = '{libraries}'")]);
        server.reconnect()
    };
    let absolute = format!("{host}/citus");
    for form in [
        "citus,idgen",
        " idgen ,\tcitus ",
        "\"citus\",\"idgen\"",
        "idgen,citus.so",
        &format!("idgen,{absolute}"),
    ] {
        let mut client = restart(form);
        assert_nothing_is_minted(&mut client);
        assert_eq!(client.warning_code().as_deref(), Some("citus-without-list"), "{form}");
    }
    assert_eq!(server.log().matches(&format!("WARNING:  {NO_LIST}")).count(), 5, "{}", server.log());

    let mut client = server.connect();
    server.set("idgen.allowed_shards", "0-8191");
    assert_eq!(client.warning(), None);
    // The session takes a lease before the list is emptied.
    assert!(client.value::<i64>("SELECT max(snowflake_next_id(5)) FROM generate_series(1, 1000)") > 0);
    server.set("idgen.allowed_shards", "");
    assert_nothing_is_minted(&mut client);
    assert_eq!(client.warning_code().as_deref(), Some("citus-without-list"));
    server.set("idgen.allowed_shards", "5");
    client.run("SELECT snowflake_next_id(), snowflake_advance(6, 1)");
    assert_eq!(server.code("SELECT snowflake_next_id(6)"), "55000");
    let hint = hint_of_no_shard(&server);
    assert!(hint.contains("ALTER SYSTEM on this node"), "{hint}");

    // Neither a library whose name begins with that of Citus nor a setting of Citus counts as Citus.
    server.configure(&["idgen.allowed_shards = ''", "citus.shard_count = 4"]);
    let mut client = restart("citus_columnar,idgen");
    assert_eq!(client.warning(), None);
    client.run("SELECT snowflake_next_id(), snowflake_next_id(7)");
    let hint = hint_of_no_shard(&server);
    assert!(hint.contains("SET, ALTER DATABASE or ALTER ROLE"), "{hint}");
}

/// Three nodes, the first of which is the coordinator, with idgen enabled; `None` if Citus is not installed. The
/// library is loaded before Citus or after it.
fn servers_with_citus() -> Option<[Server; 3]> {
    if !available(&Server::start_plain(&[]), "citus") {
        skipped("the extension citus is not installed");
        return None;
    }
    let nodes =
        [("0-99", 1, "citus,idgen"), ("100-199", 101, "idgen,citus"), ("200-299", 201, "citus,idgen")];
    let nodes = nodes.map(|(shards, shard, libraries)| {
        let node = Server::start_plain(&[
            &format!("shared_preload_libraries = '{libraries}'"),
            &format!("idgen.allowed_shards = '{shards}'"),
            &format!("idgen.shard = {shard}"),
            "wal_level = logical",
            "max_connections = 300",
            "citus.shard_count = 4",
        ]);
        // Moves need the address at which a node finds itself.
        let host = node.host();
        node.configure(&[&format!("citus.local_hostname = '{host}'")]);
        node.run("CREATE EXTENSION citus");
        node.reload("citus.local_hostname", &host);
        node
    });
    nodes[0].run(&enable("postgres"));
    Some(nodes)
}

/// Sets up the coordinator, the first node, and adds the others.
fn join(nodes: &[&Server]) {
    let hosts: Vec<_> = nodes.iter().map(|node| node.host()).collect();
    let variables = [("coordinator", &*hosts[0]), ("workers", &hosts[1..].join(" "))];
    run(nodes[0].psql("scaling/citus.sql", &variables));
}

/// Nodes of Citus that are set up by docs/scaling.md.
pub fn nodes_of_citus() -> Option<[Server; 3]> {
    let nodes = servers_with_citus()?;
    join(&nodes.each_ref());
    Some(nodes)
}

/// The findings of citus-check.sql, one for each node that has one.
fn wrong(node: &Server) -> Vec<String> {
    let mut check = node.psql("scaling/citus-check.sql", &[]);
    let rows = output_of_run(check.args(["--tuples-only", "--no-align"]));
    assert_eq!(rows.lines().count(), 3, "{rows}");
    let last = rows.lines().map(|row| row.rsplit('|').next().unwrap_or_default().to_owned());
    last.filter(|wrong| !wrong.is_empty()).collect()
}

/// Creates a distributed table of tenants, and one whose ids have a fixed shard.
fn source_and_fixed(client: &mut Client, tenants: u32) {
    let sql = format!(
        "CREATE TABLE source (tenant bigint PRIMARY KEY);
         SELECT create_distributed_table('source', 'tenant');
         INSERT INTO source SELECT generate_series(1, {tenants});
         CREATE TABLE fixed (tenant bigint, id bigint DEFAULT snowflake_next_id(5));
         SELECT create_distributed_table('fixed', 'tenant')"
    );
    client.run(&sql);
}

/// No id occurs twice in the tables of docs/scaling.md on Citus, whichever node mints it, and even while a schema
/// moves. A shard of another node is refused.
#[test]
fn shards_of_citus() {
    // Citus copies a shard set for the database or a role to the nodes that it adds, and resets it with the
    // coordinator's.
    let Some(nodes) = servers_with_citus() else { return };
    let [coordinator, one, two] = &nodes;
    coordinator.run("ALTER DATABASE postgres SET idgen.shard = 1");
    join(&nodes.each_ref());
    let of_all = ["idgen.shard is set by ALTER DATABASE or ALTER ROLE: RESET it on the coordinator"; 3];
    assert_eq!(wrong(one), of_all);
    assert_eq!(one.code("SELECT snowflake_next_id()"), "55000");
    coordinator.run("ALTER DATABASE postgres RESET idgen.shard");
    assert_eq!(wrong(one), [""; 0]);
    coordinator.run("ALTER ROLE postgres SET idgen.shard = 1");
    assert_eq!(wrong(one), of_all);
    coordinator.run("ALTER ROLE postgres RESET idgen.shard");
    assert_eq!(wrong(one), [""; 0]);
    let mut client = coordinator.connect();
    source_and_fixed(&mut client, 2000);

    // Clients mint for the shard of each node through any node, and for the shard of a schema through the coordinator.
    let mut ledger = Ledger::default();
    let writers: Vec<_> = [
        (coordinator, "insta5.users", 5),
        (coordinator, "insta6.users", 1),
        (one, "insta6.users", 101),
        (two, "insta6.users", 201),
    ]
    .map(|(node, table, shard)| {
        Clients::start_by(2, node, move |client, _| {
            let insert = format!("INSERT INTO {table} (name) VALUES ('Ada') RETURNING id");
            let new = ids(client, &insert)?;
            assert!(new.iter().all(|id| id >> 10 & 8191 == shard));
            Ok(new)
        })
    })
    .into();
    // All nodes have the workers of Citus mint.
    std::thread::scope(|scope| {
        for node in &nodes {
            scope.spawn(move || {
                let mut client = node.connect();
                for _ in 0..5 {
                    client.run("INSERT INTO events (tenant) SELECT tenant FROM source");
                    client.run("INSERT INTO events (tenant) SELECT tenant + 1 FROM source");
                    let schema =
                        "INSERT INTO insta6.users (name) SELECT 'copied' FROM source WHERE tenant < 100";
                    client.run(schema);
                }
            });
        }
        // In the meantime, a schema moves to the other worker and back.
        for round in 0..2 {
            let move_it = "SELECT citus_schema_move('insta6', n.nodename, n.nodeport)
                           FROM pg_dist_node AS n, citus_shards AS s
                           WHERE s.table_name = 'insta6.users'::regclass AND n.noderole = 'primary'
                             AND n.shouldhaveshards AND n.nodename <> s.nodename";
            assert_eq!(client.query(move_it, &[]).unwrap().len(), 1, "round {round}");
        }
    });
    for clients in writers {
        clients.finish_after(50, &mut ledger);
    }
    println!("{} ids, refused: {:?}", ledger.len(), ledger.errors);
    client.run("ALTER TABLE source ADD COLUMN id bigint DEFAULT snowflake_next_id()");

    let users = "SELECT id FROM insta5.users UNION ALL SELECT id FROM insta6.users WHERE name = 'Ada'";
    assert_eq!(client.column(users).into_iter().collect::<HashSet<i64>>(), ledger.ids());
    let all = ["events", "source", "insta6.users"]
        .map(|table| format!("SELECT id FROM {table}"))
        .join(" UNION ALL ");
    let counted = format!(
        "SELECT count(*), count(DISTINCT id), array_agg(DISTINCT shard_of(id)) FROM ({all}) AS all_rows"
    );
    let (rows, different, shards): (i64, i64, Vec<i32>) = client.row(&counted);
    println!("{rows} rows");
    assert!(rows > 60_000 && rows == different, "{} repeated ids of {rows}", rows - different);
    assert_eq!(shards, [1, 101, 201], "every node has minted");

    // Citus has the workers mint for the shard of a single node too, and they refuse.
    for refused in [
        "INSERT INTO fixed (tenant) SELECT tenant FROM source",
        "INSERT INTO insta5.users (name) SELECT 'x' FROM source",
        "SELECT snowflake_next_id(5) FROM source",
        "ALTER TABLE source ADD COLUMN no bigint DEFAULT snowflake_next_id(5)",
    ] {
        assert_eq!(coordinator.code(refused), "55000", "{refused}");
    }
    client.run(
        "CREATE TEMP TABLE waypoint AS SELECT tenant FROM source;
             INSERT INTO fixed (tenant) SELECT tenant FROM waypoint;
             INSERT INTO fixed (tenant) VALUES (1), (2);
             COPY fixed (tenant) FROM PROGRAM 'seq 100'",
    );
    let fixed = "SELECT count(*), count(DISTINCT id), array_agg(DISTINCT shard_of(id)) FROM fixed";
    assert_eq!(client.row::<(i64, i64, Vec<i32>)>(fixed), (2102, 2102, vec![5]));

    two.set("idgen.allowed_shards", "199-299");
    let mut found = wrong(one);
    found.sort();
    let mut also = [one, two].map(|other| format!("has shards that are also of {}:5432", other.host()));
    also.sort();
    assert_eq!(found, also);
    two.set("idgen.allowed_shards", "");
    assert_eq!(wrong(one), [NO_LIST]);
    two.set("idgen.allowed_shards", "200-299");
    two.restart_with(&["idgen.epoch = '2024-01-01T00:00:00Z'"]);
    assert_eq!(wrong(one), ["the epoch of the high-water mark of ids differs from \"idgen.epoch\""]);
    two.run("SELECT snowflake_accept_epoch('2024-01-01T00:00:00Z')");
    assert_eq!(wrong(one), ["another epoch than most"]);
    two.restart_with(&["shared_preload_libraries = 'citus'"]);
    assert_eq!(wrong(one), ["idgen is not preloaded"]);
}

/// The first ids that a reader has found by successive horizons, at least `count`, and all ids in the tables below the
/// last horizon.
fn follow(tables: &[&str], count: usize, client: &mut Client, horizon: &str) -> (Vec<i64>, Vec<i64>) {
    let rows = |client: &mut Client, from: i64, upto: i64| {
        let of = |table| format!("SELECT id FROM {table} WHERE id >= {from} AND id < {upto}");
        // Citus does not join schemas of different nodes.
        tables.iter().flat_map(|table| client.column(&of(table))).collect::<Vec<i64>>()
    };
    let (mut followed, mut upto) = (Vec::new(), 0);
    let is_enough = is_reached(600, || {
        let now = client.value(horizon);
        assert!(now >= upto, "the horizon goes back from {upto} to {now}");
        followed.extend(rows(client, upto, now));
        upto = now;
        followed.len() >= count
    });
    assert!(is_enough, "the horizon stops at {upto}, with {} rows below it", followed.len());
    let mut settled = rows(client, 0, upto);
    println!("{} rows followed of {}", followed.len(), rows(client, 0, i64::MAX).len());
    settled.sort_unstable();
    followed.sort_unstable();
    (followed, settled)
}

/// Transactions with these statements by turns. All stay open for a moment, and some are rolled back.
fn transactions(node: &Server, statements: &'static [&'static str]) -> Clients {
    Clients::start_by(2, node, move |client, round| {
        let statement = statements[round % statements.len()];
        let end = if round % 7 == 0 { "ROLLBACK" } else { "COMMIT" };
        let hold = (round * 7 % 30) as f64 / 1000.0;
        client.batch_execute(&format!("BEGIN; {statement}; SELECT pg_sleep({hold}); {end}"))?;
        // Citus does not return the ids that its workers mint. The test compares the rows.
        Ok(Vec::new())
    })
}

/// The horizon of all nodes, with enough time for slow machines.
const HORIZON: &str = "CALL idgen_citus.safe_horizon_of_all_nodes(NULL, '10 min')";

/// A reader that follows tables of Citus misses no row of transactions that write on several nodes: up to the horizon
/// of the only minting node or, with citus-horizon.sql, up to the horizon of all nodes, if one node mints an id and
/// another one stores it.
#[test]
fn horizons_of_citus() {
    let Some(nodes) = nodes_of_citus() else { return };
    let [coordinator, one, two] = &nodes;
    let mut client = coordinator.connect();
    source_and_fixed(&mut client, 100);
    let mut ledger = Ledger::default();
    let on_several = &["INSERT INTO fixed (tenant) VALUES (1), (2), (3), (4), (5), (6)"];
    let writers = [coordinator, coordinator].map(|node| transactions(node, on_several));
    let (followed, settled) = follow(&["fixed"], 500, &mut client, "SELECT snowflake_safe_horizon()");
    for clients in writers {
        clients.finish(&mut ledger);
    }
    assert!(followed == settled, "{} rows followed of {}", followed.len(), settled.len());

    for reader in [coordinator, one] {
        run(reader.psql("scaling/citus-horizon.sql", &[]));
    }
    let by_workers_too = &[
        "INSERT INTO events (tenant) SELECT tenant FROM source",
        "INSERT INTO events (tenant) SELECT tenant + 1 FROM source",
        "INSERT INTO insta6.users (name) SELECT 'Ada' FROM source",
        "INSERT INTO events (tenant) VALUES (1), (2), (3), (4), (5), (6)",
    ];
    let writers = nodes.each_ref().map(|node| transactions(node, by_workers_too));
    let (followed, settled) = follow(&["events", "insta6.users"], 5000, &mut one.connect(), HORIZON);
    for clients in writers {
        clients.finish(&mut ledger);
    }
    println!("refused: {:?}", ledger.errors);
    assert!(followed == settled, "{} rows followed of {}", followed.len(), settled.len());

    // Transactions on the node that stores an id count too.
    let mut writer = two.connect();
    writer.run("BEGIN; SELECT pg_current_xact_id()");
    assert_eq!(one.code("CALL idgen_citus.safe_horizon_of_all_nodes(NULL, '0 s')"), "40001");
    writer.run("COMMIT");
    assert!(client.value::<i64>(HORIZON) > settled.last().copied().unwrap_or(0));
}

/// Plants functions, aggregates, operators, types and views of a tenant in a schema that comes first in the
/// search_path, in forms that precede PostgreSQL's own. Each logs the role that calls it.
fn plant(node: &Server) {
    let schema = "SET citus.enable_ddl_propagation = off; CREATE SCHEMA evil AUTHORIZATION mallory;
                  ALTER DATABASE postgres SET search_path = evil, public, idgen, pg_catalog";
    node.run(schema);
    let mut mallory = node.connect_as("mallory");
    mallory.run(
        "SET citus.enable_ddl_propagation = off; SET search_path = pg_catalog;
         CREATE FUNCTION evil.rise() RETURNS boolean LANGUAGE plpgsql AS
             'BEGIN RAISE LOG ''what mallory planted runs as %'', current_user; RETURN true; END';
         DO 'BEGIN IF to_regclass(''pg_dist_node'') IS NOT NULL THEN
             CREATE VIEW evil.pg_dist_node AS SELECT n.* FROM pg_dist_node AS n, evil.rise(); END IF; END';
         CREATE VIEW evil.pg_extension AS SELECT e.* FROM pg_extension AS e, evil.rise();
         CREATE VIEW evil.idgen_status AS SELECT s.* FROM idgen.idgen_status AS s, evil.rise();
         CREATE DOMAIN evil.timestamptz AS timestamptz CHECK (evil.rise());
         CREATE DOMAIN evil.jsonb AS jsonb CHECK (evil.rise());
         CREATE DOMAIN evil.text AS text CHECK (evil.rise())",
    );
    let create = |name: &str, types: &str, result: &str| {
        let body = "AS 'BEGIN PERFORM evil.rise(); RETURN NULL; END' LANGUAGE plpgsql";
        format!("CREATE FUNCTION evil.{name}({types}) RETURNS {result} {body}")
    };
    for (name, types, result) in [
        ("snowflake_safe_horizon", "", "bigint"),
        ("snowflake_next_id", "", "bigint"),
        ("snowflake_next_id", "integer", "bigint"),
        ("shard_of", "bigint", "integer"),
        ("pg_current_xact_id", "", "xid8"),
        ("pg_current_snapshot", "", "pg_snapshot"),
        ("pg_snapshot_xmin", "pg_snapshot", "xid8"),
        ("clock_timestamp", "", "timestamptz"),
        ("format", "text, text", "text"),
        ("format", "text, integer", "text"),
        ("format", "text, name", "text"),
        ("format", "text, text, integer", "text"),
        ("format", "text, text, text", "text"),
        ("format", "text, integer, text", "text"),
        ("concat", "integer, text, integer", "text"),
        ("json_build_object", "text, text, text, text", "json"),
        ("quote_ident", "name", "text"),
        ("current_setting", "text", "text"),
        ("current_setting", "text, boolean", "text"),
        ("pg_has_role", "oid, oid, text", "boolean"),
    ] {
        mallory.run(&create(name, types, result));
    }
    for (number, (operator, left, right, result)) in [
        ("=", "oid", "oid", "boolean"),
        ("=", "name", "name", "boolean"),
        ("=", "bigint", "integer", "boolean"),
        ("<>", "oid", "oid", "boolean"),
        ("<>", "text", "text", "boolean"),
        ("<=", "numeric", "numeric", "boolean"),
        (">", "timestamptz", "timestamptz", "boolean"),
        ("+", "timestamptz", "interval", "timestamptz"),
        ("||", "jsonb", "jsonb", "jsonb"),
        ("->>", "jsonb", "text", "text"),
        ("?", "jsonb", "text", "boolean"),
    ]
    .into_iter()
    .enumerate()
    {
        mallory.run(&create(&format!("op{number}"), &format!("{left}, {right}"), result));
        mallory.run(&format!(
            "CREATE OPERATOR evil.{operator} (LEFTARG = {left}, RIGHTARG = {right}, FUNCTION = evil.op{number})"
        ));
    }
    for (name, types, state) in [
        ("jsonb_object_agg", "integer, text", "jsonb"),
        ("string_agg", "text, text", "text"),
        ("min", "bigint", "bigint"),
        ("count", "*", "bigint"),
    ] {
        let arguments = format!("{state}, {types}");
        mallory.run(&create(&format!("{name}_step"), arguments.trim_end_matches(", *"), state));
        mallory.run(&format!(
            "CREATE AGGREGATE evil.{name}({types}) (SFUNC = evil.{name}_step, STYPE = {state})"
        ));
    }
}

/// Checks that no superuser has run what is planted.
fn assert_nothing_planted_ran(node: &Server) {
    assert!(!node.log().contains("planted runs as postgres"), "{}", node.log());
}

/// A superuser who sets up a server by docs/examples/scaling, and uses the results, runs nothing that a tenant has
/// planted.
#[test]
fn a_superuser_runs_nothing_of_the_tenants_of_a_server() {
    let server = Server::start(&[PRELOAD, "wal_level = logical"]);
    if !available(&server, "postgres_fdw") {
        return lacks("the extension postgres_fdw");
    }
    server.run("CREATE ROLE mallory LOGIN");
    plant(&server);
    let shards = [("first", "10"), ("last", "11")];
    run(server.psql("scaling/shards.sql", &shards));
    run(server.psql("scaling/roles-shards.sql", &[]));
    run(server.psql("scaling/pgdog-table.sql", &shards));
    assert_nothing_planted_ran(&server);
    server.run("INSERT INTO shard10.users (name) VALUES ('Ada'); SELECT FROM shard10.new_id");
    server.run("INSERT INTO public.notes DEFAULT VALUES; INSERT INTO public.users (name) VALUES ('Ada')");
    run(server.psql("scaling/publish.sql", &shards));
    assert_nothing_planted_ran(&server);
    server.run("DROP TABLE public.users, public.orders CASCADE");
    route(&server, "one", &server, "10", "11");
    assert_nothing_planted_ran(&server);
}

/// A superuser who reads the horizon of all nodes, or checks them, runs nothing that a tenant has planted on a node,
/// and is refused where a tenant could replace objects of idgen.
#[test]
fn a_superuser_runs_nothing_of_the_tenants_of_citus() {
    let Some(nodes) = nodes_of_citus() else { return };
    let [coordinator, one, two] = &nodes;
    coordinator.run("CREATE ROLE mallory LOGIN; CREATE ROLE reader LOGIN");
    nodes.iter().for_each(plant);
    for node in [coordinator, one] {
        let said = [
            run(node.psql("scaling/citus-horizon.sql", &[])),
            command(Path::new(&release_bin()).join("psql"))
                .args(["-X", "-d", &node.target("postgres"), "-c", HORIZON])
                .output()
                .unwrap(),
            node.psql("scaling/citus-check.sql", &[]).output().unwrap(),
        ];
        println!("{said:?}");
        nodes.iter().for_each(assert_nothing_planted_ran);
        assert!(node.value::<i64>(HORIZON) > 0);
        assert_eq!(wrong(node), [""; 0]);
    }
    // Only on this node the schema belongs to a tenant, who could replace it.
    two.run("SET citus.enable_ddl_propagation = off; ALTER SCHEMA idgen OWNER TO mallory");
    let refusal = coordinator.error(HORIZON);
    assert_eq!(refusal.code().code(), "42501");
    assert_eq!(
        refusal.message(),
        "roles that are not superusers may change extension \"idgen\" or its schema"
    );
    assert!(refusal.detail().unwrap_or_default().contains("node 3: mallory"), "{refusal:?}");
    assert!(wrong(one)[0].contains("mallory; run this as a member of pg_monitor"), "{:?}", wrong(one));
    let minted = "SELECT sum(ids)::bigint FROM idgen.idgen_shard_stats";
    let before: Option<i64> = two.value(minted);
    assert_eq!(one.code(HORIZON), "42501");
    assert_eq!(two.value::<Option<i64>>(minted), before, "the refused call has minted");
    assert!(one.connect_as("reader").value::<i64>(HORIZON) > 0);
}

/// While a node is disabled there is no horizon of all nodes, because an open transaction on that node may commit ids
/// below it. This also holds if the node is disabled during the call.
#[test]
fn a_disabled_node_of_citus_is_not_left_out_of_the_horizon() {
    let Some(nodes) = servers_with_citus() else { return };
    let [coordinator, one, two] = &nodes;
    join(&[coordinator, one]);
    run(coordinator.psql("scaling/citus-horizon.sql", &[]));
    // Only a node without rows of distributed tables can be disabled.
    let (host, mut client) = (two.host(), coordinator.connect());
    client.run("CREATE TABLE ref (id bigint PRIMARY KEY); SELECT create_reference_table('ref')");
    client.run(&format!("SELECT citus_add_node('{host}', 5432)"));
    assert_eq!(wrong(coordinator), [""; 0]);
    let horizon: i64 = client.value(HORIZON);

    // A call that waits for a transaction on the node does not continue without the node.
    let mut writer = two.connect();
    writer.run("BEGIN; SELECT pg_current_xact_id()");
    let disable = format!("SELECT citus_disable_node('{host}', 5432, synchronous => true)");
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| coordinator.error(HORIZON));
        two.wait_until(
            "SELECT count(*) > 0 FROM pg_stat_activity
             WHERE query LIKE '%pg_snapshot_xmin%' AND pid <> pg_backend_pid()",
        );
        client.run(&disable);
        let refusal = reader.join().unwrap();
        assert_eq!((refusal.code().code(), refusal.detail()), ("40001", Some("node 3 is disabled")));
    });
    writer.run("COMMIT");

    let refusal = client.error(HORIZON);
    let message = "cannot determine the horizon of all nodes while a node is disabled";
    assert_eq!((refusal.code().code(), refusal.message()), ("55000", message));
    assert!(refusal.detail().unwrap_or_default().contains(&format!("{host}:5432")), "{refusal:?}");
    assert!(refusal.hint().unwrap_or_default().contains("citus_activate_node"), "{refusal:?}");
    let found = wrong(coordinator);
    assert!(found.len() == 1 && found[0].starts_with("is disabled"), "{found:?}");
    client.run(&format!("SELECT citus_activate_node('{host}', 5432)"));
    assert!(client.value::<i64>(HORIZON) > horizon);
    assert_eq!(wrong(coordinator), [""; 0]);

    // What citus.sql says of a node that is added later.
    let move_there = format!("SELECT citus_schema_move('insta6', '{host}', 5432)");
    let refusal = client.error(&move_there);
    assert!(refusal.hint().unwrap_or_default().contains("replicate_reference_tables"), "{refusal:?}");
    // A node that cannot reach itself copies and moves nothing.
    coordinator.set("citus.local_hostname", "/nowhere");
    let copy = "SELECT replicate_reference_tables()";
    assert!(coordinator.error(copy).message().contains("could not open a connection to localhost"));
    coordinator.set("citus.local_hostname", &coordinator.host());
    coordinator.run(copy);
    coordinator.set("citus.local_hostname", "/nowhere");
    assert_eq!(coordinator.code(&move_there), "08006");
    coordinator.set("citus.local_hostname", &coordinator.host());
    coordinator.run(&move_there);
}
