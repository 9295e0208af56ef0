//! The mark takes a replication origin on every server that has it, replays it or restores it. Without room for it, the
//! server goes down, as docs/operations.md says. These tests cover that, the warnings before it, and the removal of the
//! mark.

use postgres::Client;

use crate::process::major_version;
use crate::server::{PRELOAD, Server, Sql};

/// The setting that bounds replication origins.
pub fn limit_of_origins() -> &'static str {
    if major_version() < 18 { "max_replication_slots" } else { "max_active_replication_origins" }
}

/// The line that sets it.
pub fn room_for(origins: usize) -> String {
    format!("{} = {origins}", limit_of_origins())
}

fn allow_origins(server: &Server, origins: usize) {
    server.configure(&[&room_for(origins)]);
}

fn restart_with_origins(server: &Server, origins: usize) {
    server.restart_with(&[&room_for(origins)]);
}

/// The message of idgen on a server with room for `room` origins that needs `needed`.
fn too_few(room: usize, needed: usize) -> String {
    format!("\"{}\" must be at least {needed} for idgen (now {room})", limit_of_origins())
}

fn mint(client: &mut Client) {
    client.query_one("SELECT snowflake_next_id(1)", &[]).unwrap();
}

/// Creates another origin with progress, like that of a subscription.
fn add_origin(client: &mut Client) {
    let sql = "SELECT pg_replication_origin_create('other');
               SELECT pg_replication_origin_advance('other', '0/ABCD')";
    client.run(sql);
}

fn mark(client: &mut Client) -> Option<i64> {
    let sql = "SELECT div(remote_lsn - '80000000/0', 4194304) FROM pg_replication_origin_status WHERE local_id = 65534";
    client.query(&format!("SELECT ({sql})::bigint"), &[]).unwrap()[0].get(0)
}

fn remove_mark(client: &mut Client) -> bool {
    client.value("SELECT snowflake_remove_mark()")
}

/// Checks that the log has this warning before the line with which the server ends.
fn assert_warned(log: &str, warning: &str, end: &str) {
    let said = log.find(warning).unwrap_or_else(|| panic!("no word of {warning}\n{log}"));
    let ended = log.rfind(end).unwrap_or_else(|| panic!("no {end}\n{log}"));
    assert!(said < ended, "{log}");
}

/// A standby without room for the mark runs, with a warning, until the primary mints for the first time. With room it
/// continues where it stopped.
#[test]
fn a_standby_without_room_goes_down_at_the_first_id() {
    let primary = Server::start(&[]);
    let standby = primary.standby("twin");
    restart_with_origins(&standby, 0);
    let too_few = too_few(0, 1);
    assert_eq!(standby.warning(), Some(too_few.clone()));
    assert_eq!(primary.warning(), None);

    mint(&mut primary.connect());
    standby.until_down();
    assert_warned(&standby.log(), &too_few, "65534");
    // Only a start with room helps.
    standby.up_and_down();
    allow_origins(&standby, 1);
    standby.up();
    let kept = mark(&mut primary.connect()).unwrap();
    standby.wait_until(&format!("SELECT mark = {kept} AND warning IS NULL FROM idgen_status"));
}

/// A standby counts the origins that it has replayed, and the mark's even before it arrives.
#[test]
fn a_standby_warns_before_the_mark_comes() {
    // Without a preload, CREATE EXTENSION would write the mark.
    let primary = Server::start(&[PRELOAD]);
    let standby = primary.standby("twin");
    restart_with_origins(&standby, 1);
    assert_eq!(standby.warning(), None);
    add_origin(&mut primary.connect());
    standby.wait_until("SELECT count(*) = 1 FROM pg_replication_origin_status");
    assert_eq!(standby.warning(), Some(too_few(1, 2)));
    restart_with_origins(&standby, 2);
    assert_eq!(standby.warning(), None);
    mint(&mut primary.connect());
    standby.wait_until("SELECT mark IS NOT NULL AND warning IS NULL FROM idgen_status");
}

/// A restored backup needs room for all saved origins, and the log says how much.
#[test]
fn a_restored_backup_without_room_does_not_start() {
    let primary = Server::start(&[PRELOAD]);
    let mut client = primary.connect();
    mint(&mut client);
    add_origin(&mut client);
    let kept = mark(&mut client);
    let restored = primary.base_backup();
    allow_origins(&restored, 1);
    restored.up_and_down();
    assert_warned(&restored.log(), &too_few(1, 2), "PANIC");
    allow_origins(&restored, 2);
    restored.up();
    let mut client = restored.reconnect();
    assert_eq!((mark(&mut client), client.warning()), (kept, None));
    mint(&mut client);
}

/// A crashed server finds the mark in the WAL, whatever the last checkpoint has saved.
#[test]
fn a_crashed_server_without_room_does_not_start() {
    let server = Server::start(&[PRELOAD]);
    mint(&mut server.connect());
    server.stop("immediate");
    allow_origins(&server, 0);
    server.configure(&["max_wal_senders = 0"]);
    server.up_and_down();
    assert_warned(&server.log(), &too_few(0, 1), "65534");
    allow_origins(&server, 1);
    server.up();
    let mut client = server.reconnect();
    assert_eq!(client.warning(), None);
    mint(&mut client);
}

/// After a clean shutdown a server starts without room for the mark, but mints nothing. The mark is still on its disk:
/// it counts for the warning, and cannot be removed in part.
#[test]
fn a_mark_left_on_disk_is_not_forgotten() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    mint(&mut client);
    add_origin(&mut client);
    let kept = mark(&mut client);
    server.stop("fast");
    allow_origins(&server, 0);
    server.configure(&["max_wal_senders = 0"]);
    server.up();
    let mut client = server.connect();
    assert_eq!(client.warning(), Some(too_few(0, 2)));
    assert_eq!(client.code("SELECT snowflake_next_id(1)"), "53400");

    server.restart_with(&["shared_preload_libraries = ''"]);
    assert_eq!(server.code("SELECT snowflake_remove_mark()"), "53400");
    restart_with_origins(&server, 2);
    let mut client = server.connect();
    assert_eq!(mark(&mut client), kept);
    assert!(remove_mark(&mut client));
}

/// Once the mark is removed, the server and its standby start with any setting, whatever happens. The test also covers
/// who may remove it, where and when. If idgen comes back, it begins anew.
#[test]
fn the_mark_is_removed_for_good() {
    let primary = Server::start(&[]);
    let standby = primary.standby("twin");
    let mut client = primary.connect();
    mint(&mut client);
    client.run("CREATE DATABASE second");
    client.run("CREATE ROLE admin; GRANT EXECUTE ON FUNCTION snowflake_remove_mark TO admin");
    let remove = "SELECT snowflake_remove_mark()";
    assert_eq!(client.code(remove), "55000", "the library is preloaded");
    for server in [&primary, &standby] {
        server.restart_with(&["shared_preload_libraries = ''"]);
    }
    assert_eq!(standby.code(remove), "25006");
    let mut client = primary.connect();
    client.run("SET ROLE admin");
    assert_eq!(client.code(remove), "42501");
    client.run("RESET ROLE");
    client.run("BEGIN READ ONLY");
    assert_eq!(client.code(remove), "25006");
    client.run("ROLLBACK");
    // The temporary name of the mark may be taken by another origin.
    client.run("SELECT pg_replication_origin_create('idgen_mark_0')");
    client.run("BEGIN");
    assert!(mark(&mut client).is_some());
    assert!(remove_mark(&mut client));
    // The transaction is not committed.
    primary.kill();
    allow_origins(&primary, 0);
    primary.configure(&["max_wal_senders = 0"]);
    primary.up();
    let mut client = primary.reconnect();
    assert_eq!(mark(&mut client), None);
    assert!(!remove_mark(&mut client), "the mark was there again");

    // The standby needs a restartpoint after the removal.
    primary.stop("fast");
    allow_origins(&primary, 10);
    primary.configure(&["max_wal_senders = 10"]);
    primary.up();
    primary.until_replayed_by(&standby);
    assert_eq!(mark(&mut standby.connect()), None);
    standby.run("CHECKPOINT");
    standby.kill();
    allow_origins(&standby, 0);
    standby.up();
    standby.reconnect();

    primary.run("DROP EXTENSION idgen");
    primary.configure(&[PRELOAD]);
    primary.stop("fast");
    allow_origins(&standby, 1);
    standby.restart();
    primary.up();
    let mut client = primary.connect_to("second");
    client.run("CREATE EXTENSION idgen");
    mint(&mut client);
    standby.wait_until("SELECT count(*) = 1 FROM pg_replication_origin_status");
}

/// The mark can be removed from any database, even if it has been given a name by hand, and even on a standby just
/// promoted, whose recovery would begin before its last id.
#[test]
fn a_mark_with_a_name_is_removed_after_a_promotion() {
    let primary = Server::start(&[]);
    let standby = primary.standby("twin");
    let mut client = primary.connect();
    client.run("CREATE DATABASE second");
    let name = "INSERT INTO pg_replication_origin VALUES (65534, 'by hand')";
    client.run(&format!("SET allow_system_table_mods = on; {name}"));
    assert_eq!(client.warning_code().as_deref(), Some("origin-named"));
    // The way of docs/security.md.
    client.run("DELETE FROM pg_replication_origin WHERE roident = 65534");
    assert_eq!(client.warning(), None);
    client.run(name);
    add_origin(&mut client);
    standby.restart_with(&["shared_preload_libraries = ''"]);
    mint(&mut client);
    let kept = mark(&mut client).unwrap();
    standby.wait_until(&format!(
        "SELECT count(*) = 1 FROM pg_replication_origin_status WHERE div(remote_lsn - '80000000/0', 4194304) = {kept}"
    ));
    primary.stop("immediate");
    standby.promote();
    standby.reconnect().run("SELECT pg_replication_origin_drop('other')");
    let mut client = standby.connect_to("second");
    client.run("CREATE EXTENSION idgen");
    assert!(remove_mark(&mut client));
    assert!(!remove_mark(&mut client));
    standby.kill();
    allow_origins(&standby, 0);
    standby.configure(&["max_wal_senders = 0"]);
    standby.up();
    assert_eq!(standby.reconnect().value::<i64>("SELECT count(*) FROM pg_replication_origin"), 0);
}

/// Promise 1: a shard is not closed while its last id is unknown.
#[test]
fn no_shard_is_closed_after_its_mark_was_removed() {
    let server = Server::start(&[PRELOAD]);
    mint(&mut server.connect());
    server.restart_with(&[]);
    let mut client = server.connect();
    assert!(remove_mark(&mut client));
    assert_eq!(client.refusal("SELECT snowflake_close_shard(5)"), "55000 mark-removed");
    assert_eq!(client.value::<String>("SELECT closed_shards FROM idgen_status"), "");
}
