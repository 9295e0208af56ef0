//! idgen as CloudNativePG runs it: in a folder of its own, and with standbys that the operator names. The tests write
//! and run what the operator would, without it and without Kubernetes.

use std::path::PathBuf;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use postgres::Client;
use yaml_rust2::{Yaml, YamlLoader};

use crate::clients::{Clients, Ledger, ids};
use crate::process::{
    command, feed, library, major_version, output_of_run, run, said_by_pg_config, servers_folder, skipped,
    top,
};
use crate::server::{Build, PRELOAD, Server, Sql};
use crate::upgrades::{Moving, catalog, difference};

fn manifest(name: &str) -> Yaml {
    let text = std::fs::read_to_string(top().join("packaging/kubernetes").join(name)).expect(name);
    YamlLoader::load_from_str(&text).expect(name).remove(0)["spec"].clone()
}

fn text(yaml: &Yaml) -> &str {
    yaml.as_str().unwrap_or_else(|| panic!("no text: {yaml:?}"))
}

/// Whether PostgreSQL finds extensions in folders other than its own.
fn has_folders() -> bool {
    let has = major_version() >= 18;
    if !has {
        skipped("PostgreSQL has extension_control_path from 18 on");
    }
    has
}

const EVERYTHING: &str = "idgen.control idgen--*.sql idgen--*.control";

/// A folder with the files of the extension's image.
struct Image(PathBuf);

impl Image {
    fn of_today(name: &str) -> Image {
        Image::with(name, EVERYTHING)
    }

    fn with(name: &str, scripts: &str) -> Image {
        let image = Image(servers_folder().join(format!("{name}-{}", std::process::id())));
        image.fill(scripts);
        image
    }

    /// The image of the first version, with the current library.
    fn of_the_first(name: &str) -> Image {
        let image = Image::with(name, "idgen--0.1.0.sql");
        let mut tee = command("tee");
        tee.arg(image.0.join("share/extension/idgen.control"));
        tee.stdin(Stdio::piped()).stdout(Stdio::null());
        feed(tee, "default_version = '0.1.0'\nmodule_pathname = 'idgen'\nrelocatable = false\n");
        image
    }

    /// Replaces the files of the folder, as a newer image does.
    fn fill(&self, scripts: &str) {
        let script = r#"
            rm -rf "$1" && mkdir -p "$1/lib" "$1/share/extension" && cp "$2" "$1/lib" && cd "$3/extension" &&
            cp $0 "$1/share/extension""#;
        run(command("bash")
            .args(["-euc", script, scripts])
            .arg(&self.0)
            .arg(library("idgen"))
            .arg(said_by_pg_config("--sharedir")));
    }

    /// The operator's configuration for the manifest, with the image in this folder.
    fn settings(&self) -> String {
        let postgresql = &manifest("cluster.yaml")["postgresql"];
        let libraries = postgresql["shared_preload_libraries"].as_vec().expect("libraries");
        let parameters = postgresql["parameters"].as_hash().expect("parameters");
        let libraries: Vec<_> = libraries.iter().map(text).collect();
        let mut lines = vec![
            format!("extension_control_path = '$system:{}/share'", self.0.display()),
            format!("dynamic_library_path = '$libdir:{}/lib'", self.0.display()),
            format!("shared_preload_libraries = '{}'", libraries.join(",")),
        ];
        lines.extend(parameters.iter().map(|(name, value)| format!("{} = '{}'", text(name), text(value))));
        lines.join("\n")
    }

    fn start(&self) -> Server {
        Server::start_empty(Build::Bare, &[&self.settings()])
    }

    fn configure(&self, server: &Server) {
        server.configure(&[&self.settings()]);
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = command("rm").arg("-rf").arg(&self.0).output();
    }
}

/// Does what the operator does for both manifests, with this version of idgen.
fn set_up(server: &Server, version: &str) {
    let mut admin = server.connect();
    admin.run("CREATE ROLE app");
    admin.run("CREATE DATABASE app OWNER app");
    let mut client = server.connect_to("app");
    for sql in
        manifest("cluster.yaml")["bootstrap"]["initdb"]["postInitApplicationSQL"].as_vec().expect("SQL")
    {
        client.run(text(sql));
    }
    let mut operator = server.connect_to("app");
    operator.run("SET synchronous_commit = local; SET search_path = pg_catalog, public, pg_temp");
    let database = manifest("database.yaml");
    for schema in database["schemas"].as_vec().expect("schemas") {
        operator.run(&format!("CREATE SCHEMA IF NOT EXISTS \"{}\"", text(&schema["name"])));
    }
    let extension = &database["extensions"][0];
    let (name, schema) = (text(&extension["name"]), text(&extension["schema"]));
    operator.run("SET search_path TO \"$user\", public");
    operator.run(&format!("CREATE EXTENSION \"{name}\" VERSION \"{version}\" SCHEMA \"{schema}\""));
}

fn version() -> String {
    text(&manifest("database.yaml")["extensions"][0]["version"]).to_owned()
}

/// The files named idgen.so that a session has mapped.
fn loaded(client: &mut Client) -> Vec<String> {
    let pid: i32 = client.value("SELECT pg_backend_pid()");
    let maps = output_of_run(command("cat").arg(format!("/proc/{pid}/maps")));
    let files = maps.lines().filter_map(|line| Some(line.split_at(line.find('/')?).1.to_owned()));
    let mut files: Vec<_> = files.filter(|file| file.ends_with("idgen.so")).collect();
    files.dedup();
    files
}

/// With both manifests and without idgen in its own folders, a server behaves as if idgen were installed. The library
/// and the scripts come from the folder, ordinary roles create the extension and mint, and minting continues after a
/// crash and on a standby with a folder of its own.
#[test]
fn a_folder_of_its_own_is_enough() {
    if !has_folders() {
        return;
    }
    let image = Image::of_today("image");
    let server = image.start();
    set_up(&server, &version());
    let mut client = server.connect_to("app");
    let found = "SELECT count(*) FROM pg_available_extension_versions WHERE name = 'idgen' AND version =";
    let found = format!("{found} '{}'", version());
    assert_eq!(client.value::<i64>(&found), 1);
    client.run("SET extension_control_path = '$system'");
    assert_eq!(client.value::<i64>(&found), 0, "the server's own folder has it");
    client.run("RESET extension_control_path");
    assert_eq!(loaded(&mut client), [image.0.join("lib/idgen.so").display().to_string()]);

    // The objects are the same as after an installation, for which PostgreSQL has searched the library for each
    // function.
    let installed = Server::start_plain(&[PRELOAD]);
    set_up(&installed, &version());
    assert_eq!(difference(&catalog(&mut client), &catalog(&mut installed.connect_to("app"))), [""; 0]);
    client.run("SELECT snowflake_next_id_js(5), snowflake_advance(5, 0), snowflake_safe_horizon(), d.*
             FROM snowflake_next_ids(5, 3) AS id, snowflake_decode(id) AS d;
             SELECT * FROM idgen_shard_stats, idgen_refusals, idgen_dependents, snowflake_layouts, idgen_columns");
    assert_eq!(client.column::<String>("SELECT coalesce(warning, 'none') FROM idgen_status"), ["none"]);
    let files = "SELECT DISTINCT convert_from(probin::text::bytea, 'UTF8') FROM pg_proc WHERE prosrc LIKE '%\\_wrapper'";
    assert_eq!(client.column::<String>(files), ["idgen"], "no folder is in a catalog");

    // The owners of this database and of another one.
    client.run("SET ROLE app; CREATE SCHEMA own; SET search_path = own, idgen");
    client.run("CREATE TABLE users (id bigint PRIMARY KEY DEFAULT snowflake_next_id(5), name text)");
    assert_eq!(client.value::<i32>("INSERT INTO users (name) VALUES ('Ada') RETURNING shard_of(id)"), 5);
    let beyond = client.error("SELECT snowflake_next_id(1024)");
    assert!(beyond.message().contains("may not mint"), "{beyond}");
    server.run("CREATE DATABASE owned OWNER app");
    let mut owner = server.connect_to("owned");
    // By its control file in the same folder, ordinary roles cannot create that version.
    assert_eq!(owner.code("SET ROLE app; CREATE EXTENSION idgen VERSION '0.1.0'"), "42501");
    owner.run("SET ROLE app; CREATE EXTENSION idgen; SELECT snowflake_next_id(5)");
    let by = "SELECT extowner::regrole::text FROM pg_extension WHERE extname = 'idgen'";
    assert_eq!(owner.column::<String>(by), ["app"]);

    server.run("CREATE EXTENSION idgen");
    let mut ledger = Ledger::default();
    let clients = Clients::start(4, &server);
    clients.wait_for_ids(1500);
    server.crash();
    clients.wait_for_ids(1500);
    let standby = server.standby("twin");
    standby.stop("fast");
    let own = Image::of_today("image-of-the-standby");
    own.configure(&standby);
    standby.up();
    assert_eq!(loaded(&mut standby.connect()), [own.0.join("lib/idgen.so").display().to_string()]);
    clients.wait_for_ids(1500);
    server.stop("fast");
    drop(image);
    standby.promote();
    clients.move_to(&standby);
    clients.finish_after(1500, &mut ledger);

    // As the page says, first the extension is removed, then the preload, the mark and the folder.
    standby.connect_to("app").run("DROP TABLE own.users");
    for database in ["app", "owned", "postgres"] {
        standby.connect_to(database).run("DROP EXTENSION IF EXISTS \"idgen\"");
    }
    standby.restart_with(&["shared_preload_libraries = ''"]);
    for step in ["CREATE EXTENSION idgen", "SELECT snowflake_remove_mark()", "DROP EXTENSION idgen"] {
        standby.run(step);
    }
    drop(own);
    standby.restart();
}

/// Each server gets the files of a newer image while it is stopped, the standby first. Clients mint all the time, with
/// the functions of the old version, and the extension is updated once the script has arrived.
#[test]
fn a_newer_image_is_rolled_out() {
    if !has_folders() {
        return;
    }
    let (image, of_standby) =
        (Image::of_the_first("image-to-replace"), Image::of_the_first("image-of-a-replica"));
    let server = image.start();
    set_up(&server, "0.1.0");
    let update = format!("ALTER EXTENSION \"idgen\" UPDATE TO \"{}\"", version());
    assert_eq!(server.connect_to("app").code(&update), "22023");
    let standby = server.standby("twin");
    let hosts = format!("{},{}", server.host(), standby.host());
    let target = format!("host={hosts} user=postgres dbname=app target_session_attrs=read-write");
    let mut ledger = Ledger::default();
    let clients = Clients::start_at(4, target, |client, _| ids(client, "SELECT snowflake_next_id(5)"));
    clients.wait_for_ids(500);

    standby.stop("fast");
    of_standby.fill(EVERYTHING);
    of_standby.configure(&standby);
    standby.up();
    clients.wait_for_ids(500);
    server.stop("fast");
    image.fill(EVERYTHING);
    standby.promote();
    clients.wait_for_ids(500);
    server.follow(&standby, "twin");
    server.up();
    let mut client = standby.connect_to("app");
    client.run(&update);
    clients.finish_after(500, &mut ledger);

    let new = Image::of_today("image-beside");
    let newest = new.start();
    set_up(&newest, &version());
    assert_eq!(difference(&catalog(&mut client), &catalog(&mut newest.connect_to("app"))), [""; 0]);
}

/// pg_upgrade with an image for each server, and the restore of a dump of a server with idgen installed, find the
/// library in the new folder. So does the server if that folder changes afterwards.
#[test]
fn data_moves_between_folders() {
    if !has_folders() {
        return;
    }
    let old = Image::of_today("image-of-the-old");
    let server = old.start();
    server.run("CREATE EXTENSION idgen VERSION '0.1.0'");
    let moving = Moving::from(server);
    moving.old.stop("fast");
    let meanwhile = Image::of_today("image-meanwhile");
    let new = moving.old.upgraded_to(Build::Bare, &[&meanwhile.settings()]);
    drop(meanwhile);
    let image = Image::of_today("image-of-the-new");
    image.configure(&new);
    new.set_clock(-60.0);
    new.up();
    moving.go_on(&new);
    drop(new);

    let installed = Server::start_plain(&[PRELOAD]);
    installed.run("CREATE EXTENSION idgen VERSION '0.1.0'");
    let moving = Moving::from(installed);
    moving.go_on_by_dump(&image.start());
}

/// Sets the names that the operator writes for the manifest: those of all replicas and of the primary.
fn name_standbys(primary: &Server, names: &str) {
    let synchronous = &manifest("cluster.yaml")["postgresql"]["synchronous"];
    assert_eq!((text(&synchronous["method"]), text(&synchronous["dataDurability"])), ("any", "required"));
    let value = format!("ANY {} ({names})", synchronous["number"].as_i64().expect("a number"));
    primary.set("synchronous_standby_names", &value);
    primary.run("CHECKPOINT");
}

/// Promise 1 with the standbys of the manifest: ids need one of the two. Minting continues if one of them is gone, and
/// stops if both are. As the quorum requires, the operator promotes the standby with all marks. With its clock behind,
/// that standby begins above all ids, of which the other one would repeat some.
#[test]
fn one_of_two_standbys_has_each_mark() {
    let primary = Server::start(&["idgen.max_wait = 500ms", "wal_log_hints = on"]);
    let (second, third) = (primary.standby("c-2"), primary.standby("c-3"));
    name_standbys(&primary, r#""c-2","c-3","c-1""#);
    primary.wait_until("SELECT count(*) = 2 FROM pg_stat_replication WHERE sync_state = 'quorum'");
    let mut ledger = Ledger::default();
    let mut client = primary.connect();
    ledger.mint(&mut client);
    // Longer than a mark lasts.
    let pass = || thread::sleep(Duration::from_millis(2500));

    second.stop("fast");
    name_standbys(&primary, r#""c-3","c-2","c-1""#);
    pass();
    ledger.mint(&mut client);
    third.stop("fast");
    name_standbys(&primary, r#""c-2","c-3","c-1""#);
    pass();
    assert_eq!(client.code("SELECT snowflake_next_id(1)"), "40001");
    third.up();
    let clients = Clients::start(4, &primary);
    clients.wait_for_ids(3000);
    primary.kill();
    second.up();

    let mark = |server: &Server| -> i64 { server.value("SELECT mark FROM idgen_status") };
    assert!(mark(&second) < mark(&third), "the one that was gone has not all marks");
    third.set_clock(-1.0);
    third.promote();
    clients.move_to(&third);
    name_standbys(&third, r#""c-2","c-1","c-3""#);
    let source = format!("{} application_name=c-2", third.target("postgres"));
    let mut follower = second.connect();
    follower.run(&format!("ALTER SYSTEM SET primary_conninfo = '{source}'"));
    follower.run("SELECT pg_reload_conf()");
    clients.finish_after(3000, &mut ledger);
}
