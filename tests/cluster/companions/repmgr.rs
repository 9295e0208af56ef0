//! A failover by repmgr, according to a runbook of docs/operations.md.

use std::path::Path;

use crate::clients::{Clients, Ledger, ROWS};
use crate::moment::is_reached;
use crate::process::{Service, give_to_servers, idgenctl, lacks, release_bin, run, said, write_program};
use crate::runbook::fleet_file;
use crate::server::Server;

/// Writes the configuration of a node. Its script for the promotion also does what the runbook does before and after:
/// the new primary must not wait for itself, and pg_rewind must see its timeline.
fn node(server: &Server, number: usize, name: &str) -> String {
    let (bin, host) = (release_bin(), server.host());
    let (file, data) = (format!("{host}/repmgr.conf"), server.value::<String>("SHOW data_directory"));
    let promote = format!("{host}/promote");
    let psql = format!("'{bin}/psql' -X -h '{host}' -U postgres -d postgres");
    let script = format!(
        "#!/bin/sh\n{psql} -c \"ALTER SYSTEM SET synchronous_standby_names = ''\" -c 'SELECT pg_reload_conf()' &&\n\
         '{bin}/repmgr' -f '{file}' standby promote && {psql} -c CHECKPOINT\n"
    );
    write_program(Path::new(&promote), &script);
    let text = format!(
        "node_id={number}\nnode_name={name}\n\
         conninfo='host={host} user=postgres dbname=postgres connect_timeout=10'\n\
         data_directory='{data}'\npg_bindir='{bin}'\nfailover=automatic\npromote_command='{promote}'\n\
         follow_command='{bin}/repmgr -f {file} standby follow --upstream-node-id=%n'\n\
         reconnect_attempts=3\nreconnect_interval=1\nmonitor_interval_secs=1\npg_ctl_options='-l {data}/log'\n",
    );
    std::fs::write(&file, text).unwrap();
    file
}

/// Promise: the synchronous standby that repmgr promotes begins above all ids of the old primary, no row is lost, and
/// clients go on. Once the old primary has rejoined as the synchronous standby, the check finds nothing.
#[test]
fn no_id_is_repeated_when_repmgr_promotes_the_synchronous_standby() {
    let program = |name: &str| Path::new(&release_bin()).join(name);
    if !program("repmgrd").exists() {
        return lacks("repmgr");
    }
    let one = Server::start_plain(&[
        "shared_preload_libraries = 'idgen,repmgr'",
        "wal_log_hints = on",
        "idgen.allowed_shards = '0-4095'",
    ]);
    one.run(&format!("CREATE EXTENSION idgen; {ROWS}"));
    let repmgr = |server: &Server, what: &str| {
        let output = run(server.shell(&format!("repmgr -f repmgr.conf {what}")));
        println!("repmgr {what}: {}", said(&output));
    };
    let file = node(&one, 1, "one");
    repmgr(&one, "primary register");
    let two = one.standby("two");
    let other_file = node(&two, 2, "two");
    repmgr(&two, "standby register --upstream-node-id=1");
    one.make_synchronous("two");
    let daemon = |server: &Server, file: &str| {
        let log = Path::new(&server.host()).join("repmgrd.log");
        give_to_servers(Path::new(&server.host()));
        Service::start(&program("repmgrd"), &["-f", file, "--daemonize=false", "--no-pid-file"], &[], &log)
    };
    let _daemons = [daemon(&one, &file), daemon(&two, &other_file)];
    let log = || std::fs::read_to_string(format!("{}/repmgrd.log", two.host())).unwrap_or_default();
    assert!(is_reached(120, || log().contains("monitoring")), "{}", log());

    let hosts = format!("host={},{}", one.host(), two.host());
    let target = one.target("postgres").replace(&format!("host={}", one.host()), &hosts);
    let clients = Clients::start_inserting(4, format!("{target} target_session_attrs=read-write"));
    clients.wait_for_ids(500);
    one.kill();
    assert!(is_reached(300, || two.answer("SELECT NOT pg_is_in_recovery()")), "{}", log());
    clients.wait_for_ids(500);

    two.wait_until("SELECT type = 'primary' FROM repmgr.nodes WHERE node_id = 2");
    two.wait_until("SELECT timeline_id = 2 FROM pg_control_checkpoint()");
    let source = format!("-d 'host={} user=postgres dbname=postgres'", two.host());
    repmgr(&one, &format!("node rejoin {source} --force-rewind --config-files=postgresql.conf"));
    two.run("ALTER SYSTEM SET synchronous_standby_names = 'one'");
    two.reload("synchronous_standby_names", "one");
    two.until_followed(&["one"]);
    clients.wait_for_ids(500);
    let fleet = fleet_file(&[&one, &two]);
    let check = || idgenctl(&["--fleet", fleet.to_str().unwrap(), "check"]).output().unwrap();
    assert!(is_reached(120, || check().status.success()), "{}", said(&check()));
    let mut ledger = Ledger::default();
    clients.finish(&mut ledger);
    ledger.assert_rows(&mut two.connect(), 2);
    println!("the longest outage {:?}", ledger.outage);
}
