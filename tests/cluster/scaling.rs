//! docs/scaling.md on several real servers, by the files of docs/examples/scaling: a router over shards,
//! logical replication from many and both ways, Citus.

use std::collections::HashSet;

use postgres::{Client, Error};

use crate::clients::{Clients, Ledger};
use crate::server::{Server, run, skipped};
use crate::shards::move_shard;

/// The ids that a query returns.
fn ids(client: &mut Client, sql: &str) -> Result<Vec<i64>, Error> {
    Ok(client.query(sql, &[])?.iter().map(|row| row.get(0)).collect())
}

fn all_ids(server: &Server) -> HashSet<i64> {
    ids(&mut server.connect(), "SELECT id FROM users").unwrap().into_iter().collect()
}

fn code(server: &Server, sql: &str) -> String {
    let error = server.connect().batch_execute(sql).expect_err(sql);
    error.code().unwrap_or_else(|| panic!("{error:?}")).code().to_owned()
}

/// Whether the installation has an extension.
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

/// Shards on two servers, written directly and through a router, while one of them moves: no id is there
/// twice, each row is where its shard lives, and a query by id goes to one server.
#[test]
fn a_router_over_the_shards_of_two_servers() {
    let router = Server::start_plain(&[]);
    if !available(&router, "postgres_fdw") {
        return skipped("the extension postgres_fdw is not installed");
    }
    let (one, two) = (Server::start(&[]), Server::start(&[]));
    shards_of(&one, "1", "2");
    shards_of(&two, "3", "4");
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
    run(move_shard(&one, &two, "shard2", "2"));
    route(&router, "two", &two, "2", "2");
    through_router.wait_for_ids(200);
    let mut ledger = Ledger::default();
    through_router.finish(&mut ledger);
    for clients in direct {
        clients.finish(&mut ledger);
    }
    println!("{} ids, refused: {:?}", ledger.len(), ledger.errors);
    assert_eq!(&all_ids(&router), ledger.ids());
    for (server, shard) in [(&one, 1), (&two, 2), (&two, 3), (&two, 4)] {
        let there = ids(&mut server.connect(), &format!("SELECT id FROM shard{shard}.users")).unwrap();
        let told: HashSet<_> = ledger.ids().iter().copied().filter(|id| id >> 10 & 8191 == shard).collect();
        assert_eq!(there.into_iter().collect::<HashSet<_>>(), told, "shard {shard}");
    }

    let mut client = router.connect();
    let mut plan = |query: &str| -> String {
        let lines = client.query(&format!("EXPLAIN (VERBOSE, COSTS OFF) {query}"), &[]).unwrap();
        lines.iter().map(|row| row.get::<_, String>(0) + "\n").collect()
    };
    let id = ledger.ids().iter().next().unwrap();
    let by_id = plan(&format!("SELECT * FROM users WHERE id = {id} AND shard_of(id) = shard_of({id})"));
    assert_eq!(by_id.matches("Remote SQL").count(), 1, "{by_id}");
    assert!(by_id.contains("shard_of(id) = "), "{by_id}");
    let by_time =
        plan("SELECT count(*) FROM users WHERE id >= (SELECT snowflake_min_id(now() - interval '1 minute'))");
    assert_eq!(by_time.matches("WHERE ((id >= ").count(), 4, "{by_time}");

    // The router mints nothing, not even by a default, and a row goes nowhere but to its shard.
    assert_eq!(code(&router, "SELECT snowflake_next_id(1)"), "55000");
    assert_eq!(code(&router, "INSERT INTO users_1 (name) VALUES ('Ada')"), "23502");
    assert_eq!(code(&router, "INSERT INTO users VALUES (snowflake_make_id(now(), 9, 0), 'Ada')"), "23514");
    assert_eq!(code(&two, "INSERT INTO shard3.users SELECT id, 'Ada' FROM shard4.new_id"), "23514");
    assert_eq!(code(&two, "SELECT snowflake_next_id(1)"), "55000");
}

/// Servers with the same table and shards of their own.
fn writers<const N: usize>(shards: [(&str, &str); N]) -> [Server; N] {
    shards.map(|(first, last)| {
        let server = Server::start(&[
            "wal_level = logical",
            // One for idgen, and two for each subscription while it copies.
            "max_replication_slots = 5",
            &format!("idgen.allowed_shards = '{first}-{last}'"),
            &format!("idgen.shard = {first}"),
        ]);
        let table = "CREATE TABLE users (id bigint PRIMARY KEY DEFAULT snowflake_next_id(), name text);
                     INSERT INTO users (name) SELECT 'before' FROM generate_series(1, 100)";
        server.connect().batch_execute(table).unwrap();
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

/// The number of rows, and a sum over what is in them.
fn content(server: &Server, condition: &str) -> (i64, Option<i64>) {
    let sql = format!("SELECT count(*), sum(hashtext(id || name)) FROM users WHERE {condition}");
    let row = server.connect().query_one(&sql, &[]).unwrap();
    (row.get(0), row.get(1))
}

/// Waits until a server has every row that another one has of these shards, and nothing else of them.
fn wait_for_rows(server: &Server, source: &Server, shards: &str) {
    let goal = content(source, shards);
    for _ in 0..3000 {
        if content(server, shards) == goal {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("{:?} instead of {goal:?}\n{}", content(server, shards), server.log());
}

/// Logical replication stops at a conflict, says so in the log, and tries again.
fn assert_no_conflict(server: &Server) {
    assert!(!server.log().contains("ERROR:"), "{}", server.log());
}

/// Two servers write, a third has all of their rows, and rows of its own: no key is in conflict, and no
/// default mints there for a row that comes.
#[test]
fn rows_of_many_servers_come_together_in_one() {
    let [one, two, all] = writers([("0", "99"), ("100", "199"), ("200", "299")]);
    let clients = [&one, &two, &all].map(writing);
    subscribe(&all, "scaling/subscribe.sql", "one", &one, &[]);
    subscribe(&all, "scaling/subscribe.sql", "two", &two, &[]);
    let mut ledger = Ledger::default();
    for clients in clients {
        clients.wait_for_ids(300);
        clients.finish(&mut ledger);
    }
    one.connect().batch_execute("DELETE FROM users WHERE name = 'before'").unwrap();
    wait_for_rows(&all, &one, "shard_of(id) < 100");
    wait_for_rows(&all, &two, "shard_of(id) BETWEEN 100 AND 199");
    assert!(ledger.ids().is_subset(&all_ids(&all)));
    assert_no_conflict(&all);

    let mut client = all.connect();
    let minted = "SELECT array_agg(DISTINCT shard) FROM idgen_shard_stats WHERE ids > 0";
    assert_eq!(client.query_one(minted, &[]).unwrap().get::<_, Vec<i32>>(0), [200]);
    // Subscriptions come and go, and leave the mark alone.
    let mark = "SELECT mark FROM idgen_status";
    let before: i64 = client.query_one(mark, &[]).unwrap().get(0);
    for name in ["one", "two"] {
        client.batch_execute(&format!("DROP SUBSCRIPTION {name}")).unwrap();
    }
    assert!(client.query_one(mark, &[]).unwrap().get::<_, i64>(0) >= before && before > 0);
}

/// Two servers have each other's rows while both write: no key is in conflict, and nothing goes in circles.
#[test]
fn two_servers_have_each_others_rows() {
    let [one, two] = writers([("0", "99"), ("100", "199")]);
    let version = "SELECT current_setting('server_version_num')::integer";
    let by_origin = one.connect().query_one(version, &[]).unwrap().get::<_, i32>(0) >= 160_000;
    if by_origin {
        two.connect().batch_execute("DELETE FROM users").unwrap();
        for server in [&one, &two] {
            server.connect().batch_execute("CREATE PUBLICATION everything FOR TABLE users").unwrap();
        }
        subscribe(&two, "scaling/both-ways.sql", "one", &one, &[("copy", "true")]);
        subscribe(&one, "scaling/both-ways.sql", "two", &two, &[("copy", "false")]);
    } else {
        subscribe(&two, "scaling/subscribe.sql", "one", &one, &[]);
        subscribe(&one, "scaling/subscribe.sql", "two", &two, &[]);
    }
    let mut ledger = Ledger::default();
    for clients in [&one, &two].map(writing) {
        clients.wait_for_ids(300);
        clients.finish(&mut ledger);
    }
    wait_for_rows(&two, &one, "shard_of(id) < 100");
    wait_for_rows(&one, &two, "shard_of(id) >= 100");
    if by_origin {
        // A row may be changed anywhere.
        two.connect().batch_execute("UPDATE users SET name = 'there' WHERE shard_of(id) < 100").unwrap();
        wait_for_rows(&one, &two, "true");
    }
    assert_eq!(all_ids(&one), all_ids(&two));
    assert!(ledger.ids().is_subset(&all_ids(&one)));
    assert_no_conflict(&one);
    assert_no_conflict(&two);
}

/// Schemas on the nodes of Citus: the node that takes a statement mints, for the shard of the schema or for
/// its own.
#[test]
fn shards_of_citus() {
    if !available(&Server::start_plain(&[]), "citus") {
        return skipped("the extension citus is not installed");
    }
    let nodes = [("0-99", 1), ("100-199", 101)].map(|(shards, shard)| {
        let node = Server::start_plain(&[
            "shared_preload_libraries = 'citus,idgen'",
            &format!("idgen.allowed_shards = '{shards}'"),
            &format!("idgen.shard = {shard}"),
        ]);
        node.connect().batch_execute("CREATE EXTENSION citus").unwrap();
        node
    });
    let [coordinator, worker] = &nodes;
    let hosts = [coordinator.host(), worker.host()];
    run(coordinator.psql("scaling/citus.sql", &[("coordinator", &hosts[0]), ("worker", &hosts[1])]));

    let mut ledger = Ledger::default();
    for (node, table, shard) in [(coordinator, 5, 5), (coordinator, 6, 1), (worker, 6, 101)] {
        let clients = Clients::start_by(2, node, move |client, _| {
            let insert = format!("INSERT INTO insta{table}.users (name) VALUES ('Ada') RETURNING id");
            let new = ids(client, &insert)?;
            assert!(new.iter().all(|id| id >> 10 & 8191 == shard));
            Ok(new)
        });
        clients.wait_for_ids(100);
        clients.finish(&mut ledger);
    }
    let there = "SELECT id FROM insta5.users UNION ALL SELECT id FROM insta6.users";
    let there: HashSet<_> = ids(&mut worker.connect(), there).unwrap().into_iter().collect();
    assert_eq!(&there, ledger.ids());
}
