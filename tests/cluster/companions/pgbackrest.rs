//! What docs/operations.md says about backups, with pgBackRest.

use std::collections::HashSet;

use serde_json::Value;

use crate::clients::{Clients, Ledger, ROWS};
use crate::process::{installed, lacks, output_of_run, run};
use crate::runbook::Runbook;
use crate::server::{PRELOAD, Server, Sql};

/// Promise: a backup that is restored to a point in time beside the running original, with the page's settings, has
/// exactly the rows of that time and a mark past them, repeats no id, and writes nothing to the original's repository.
#[test]
fn a_copy_restored_by_pgbackrest_beside_its_original() {
    if installed("pgbackrest").is_none() {
        return lacks("pgbackrest");
    }
    let original = Server::start(&[PRELOAD, "archive_mode = on", "idgen.allowed_shards = '0-4095'"]);
    let folder = original.host();
    let data: String = original.value("SHOW data_directory");
    let file = format!("{folder}/pgbackrest.conf");
    let config = format!(
        "[global]\nrepo1-path={folder}/repo\nlog-path={folder}\nlock-path={folder}/lock\nspool-path={folder}\n\
         compress-level=1\nstart-fast=y\n[app]\npg1-path={data}\npg1-socket-path={folder}\npg1-user=postgres\n"
    );
    std::fs::write(&file, config).unwrap();
    let pgbackrest = |what: &str| {
        output_of_run(original.shell(&format!("pgbackrest --config='{file}' --stanza=app {what}")))
    };
    pgbackrest("stanza-create");
    original.set("archive_command", &format!("pgbackrest --config={file} --stanza=app archive-push %p"));
    original.run(ROWS);

    let mut ledger = Ledger::default();
    let clients = Clients::start_inserting(4, original.target("postgres"));
    clients.wait_for_ids(500);
    pgbackrest("backup");
    let info: Value = serde_json::from_str(&pgbackrest("info --output=json")).unwrap();
    let backup = info[0]["backup"][0]["label"].as_str().unwrap();
    clients.wait_for_ids(500);
    clients.finish(&mut ledger);
    let until = ledger.ids();
    let time: String = original.value("SELECT clock_timestamp()::text");
    let clients = Clients::start_inserting(4, original.target("postgres"));
    clients.wait_for_ids(500);
    let last: String = original.value("SELECT pg_walfile_name(pg_switch_wal())");
    original.wait_until(&format!("SELECT last_archived_wal COLLATE \"C\" >= '{last}' FROM pg_stat_archiver"));

    let copy = original.made_by(|data| {
        let to = format!(
            "--pg1-path='{}' --set={backup} --type=time --target='{time}' --target-action=promote",
            data.display()
        );
        pgbackrest(&format!("{to} restore"));
    });
    let servers = [("one", &original), ("two", &copy)];
    let book = Runbook::of("Backup, recovery, dump and pg_upgrade", &servers);
    for setting in ["archive_mode = off", "synchronous_standby_names = ''"] {
        book.says_to_write(setting);
        run(copy.shell(&format!("echo \"{setting}\" >>\"$PGDATA/postgresql.auto.conf\"")));
    }
    run(copy.shell("echo \"idgen.allowed_shards = '4096-8191'\" >>\"$PGDATA/postgresql.auto.conf\""));
    copy.up();
    copy.wait_until("SELECT NOT pg_is_in_recovery()");
    let rows: HashSet<i64> = copy.connect().column("SELECT id FROM rows").into_iter().collect();
    assert_eq!(rows, until);
    assert!(
        copy.value::<bool>(
            "SELECT mark_at > snowflake_time(max(id)) FROM rows, idgen_status GROUP BY mark_at"
        )
    );
    assert_eq!(copy.code("SELECT snowflake_next_id(1)"), "55000");
    let of_copy = Clients::start_at(2, copy.target("postgres"), |client, _| {
        let insert = "INSERT INTO rows VALUES (snowflake_next_id(4096)) RETURNING id";
        Ok(vec![client.query_one(insert, &[])?.get(0)])
    });
    of_copy.wait_for_ids(500);
    clients.wait_for_ids(500);
    of_copy.finish(&mut ledger);
    clients.finish(&mut ledger);
    println!("{} ids, {} rows of {time}", ledger.len(), until.len());

    copy.run("CHECKPOINT; SELECT pg_switch_wal(); CHECKPOINT");
    copy.stop("fast");
    pgbackrest("check");
    let files = output_of_run(original.shell("find repo -name '00000002*'"));
    assert_eq!(files, "", "the copy has written to the repository");
    assert_eq!(original.value::<i64>("SELECT failed_count FROM pg_stat_archiver"), 0);
    book.leave();
}
