//! `idgenctl enable`.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::cli::{Cli, Enable};
use crate::connection::server::Server;
use crate::connection::session::Session;
use crate::idgen::extension::{self, Extension};
use crate::idgen::lists::{self, Of};
use crate::idgen::preload::{self, Keeper, Preload};
use crate::idgen::releases::{limit_of_origins, mints_without_preload};
use crate::idgen::status::{self, Status};
use crate::terminal::error::{Error, Result};
use crate::terminal::output::{self, note};
use crate::terminal::signals;
use crate::terminal::steps::{self, Step};
use crate::topology::cluster::Cluster;
use crate::topology::fleet::{Fleet, Member};

/// The schema that the extension gets.
pub const SCHEMA: &str = "idgen";

/// The beginning of the warning of a primary whose commits wait.
const TOO_FEW: &str = "too few synchronous standbys";

/// For how long a standby that was restarted may take to connect.
const CONNECTING: Duration = Duration::from_secs(60);

/// Prepares a database and its servers for idgen; or proves that they are prepared.
///
/// # Errors
/// What keeps it from that.
pub fn run(cli: &Cli, arguments: &Enable) -> Result<u8> {
    let database = &arguments.database;
    let fleet = Fleet::load(&cli.servers)?;
    let cluster = Cluster::of(&fleet, arguments.on.on.as_deref(), |server| reach(server, database))?;
    let mut preloads = Vec::new();
    for member in cluster.members() {
        loads(&member.session)?;
        let preload = Preload::of(&member.session)?;
        if preload.keeper == Keeper::CommandLine && !preload.will_have_idgen() {
            return Err(Error::refused(
                format!("the command line of {} sets \"shared_preload_libraries\"", member.server.name),
                "Nothing was changed. Add idgen to the list there, restart the server, and try again.",
            ));
        }
        others_load(&member.session, &preload)?;
        preloads.push((member, preload));
    }
    room(&cluster)?;

    let place = match cluster.known_primary() {
        Some(primary) => Some(Place::of(primary, database)?),
        None => {
            note("no primary is given: only what is set on each standby is done here");
            None
        }
    };
    let mut steps = Vec::new();
    if let Some(place) = &place {
        place.add_steps(&mut steps);
    }
    let mut by_hand = Vec::new();
    for (member, preload) in preloads.iter().filter(|(_, preload)| !preload.will_have_idgen()) {
        let libraries = [preload.next(), vec!["idgen".to_owned()]].concat();
        let (name, list) = (&member.server.name, lists::text(&libraries));
        match preload.keeper {
            Keeper::Patroni => by_hand.push(format!(
                "{name} is run by Patroni: run patronictl edit-config --pg shared_preload_libraries='{list}', then patronictl \
                 restart"
            )),
            Keeper::Operator => by_hand.push(format!(
                "ALTER SYSTEM is switched off on {name}: set shared_preload_libraries = '{list}' where its configuration \
                 is kept, and restart it"
            )),
            Keeper::Files | Keeper::CommandLine => {
                // Last, when all else has succeeded, and on the primary after its standbys.
                let session = &member.session;
                let what = format!("have {name} preload idgen: shared_preload_libraries = '{list}'");
                steps.push(Step::new(what, move || {
                    session.run(&preload::alter_system(&libraries))?;
                    preload::prove(session, true)
                }));
            }
        }
    }
    let outdated = place.as_ref().and_then(|place| place.outdated.clone());
    by_hand.extend(outdated.clone());
    let changed = steps::make(cli, &steps, &format!("Enable idgen in database \"{database}\"?"))?;

    let mut waiting = Vec::new();
    for (member, _) in &preloads {
        let preload = Preload::of(&member.session)?;
        if !preload.has_idgen() && preload.will_have_idgen() {
            waiting.push(member);
        }
    }
    let restart: Vec<&str> = waiting.iter().map(|member| member.server.name.as_str()).collect();
    let mut states = Vec::new();
    for member in cluster.members() {
        let is_well = Preload::of(&member.session)?.has_idgen() && place.is_some() && outdated.is_none();
        states.extend(is_well.then(|| once_connected(member, database)).transpose()?);
    }
    let stuck: Vec<&Status> = states.iter().filter(|state| !state.mints()).collect();
    let roles = place.as_ref().map(|place| place.roles.clone()).unwrap_or_default();
    if cli.json {
        output::print(output::json(&json!({
            "database": database,
            "schema": place.as_ref().map(|place| &place.schema),
            "changed": changed,
            "by_hand": by_hand,
            "restart": restart,
            "servers": states.iter().map(Status::json).collect::<Vec<_>>(),
            "roles_with_a_search_path": roles,
        })))?;
    } else if !states.is_empty() {
        output::print(status::table_of(&states).to_string())?;
    }
    for role in &roles {
        note(role);
    }
    for state in &stuck {
        note(format!(
            "error: {} {}: {}",
            state.server,
            if state.is_standby { "would mint no ids if it were promoted" } else { "mints no ids" },
            state.warning.as_deref().unwrap_or_default()
        ));
        note("hint: Run idgenctl check, do what it says, and run the same command again.");
    }
    if !by_hand.is_empty() {
        by_hand.iter().for_each(|what| note(format!("left to do: {what}")));
        note("Then run the same command again.");
    }
    if !restart.is_empty() {
        note(format!(
            "Now restart {}{}, and run the same command again.",
            restart.join(", then "),
            if restart.len() > 1 { ", in this order" } else { "" }
        ));
    }
    if let Some(primary) = waiting.iter().find(|member| !member.is_standby) {
        note(if mints_without_preload(primary.session.version()) {
            "Until then, ids are minted as long as idgen has its default settings. Production needs the restart."
        } else {
            "No ids are minted before that."
        });
    }
    if restart.is_empty() && by_hand.is_empty() && stuck.is_empty() && !states.is_empty() {
        note(format!("idgen is enabled in database \"{database}\"."));
        if states.iter().any(|state| !state.is_standby && state.mark.is_none()) {
            note(
                "Before the first id, decide idgen.epoch and, with several clusters, the shards of each in \
                 idgen.allowed_shards, alike on the primary and its standbys: see idgenctl enable --help.",
            );
        }
    }
    Ok(u8::from(!stuck.is_empty() || !by_hand.is_empty()))
}

/// What the extension says, once a synchronous standby that was restarted has had time to connect again.
fn once_connected(member: &Member, database: &str) -> Result<Status> {
    let began = Instant::now();
    let mut said = false;
    loop {
        let state = Status::of_database(member, database)?;
        let Some(warning) = state.warning.as_ref().filter(|warning| warning.starts_with(TOO_FEW)) else {
            return Ok(state);
        };
        if began.elapsed() > CONNECTING {
            return Ok(state);
        }
        if !said {
            said = true;
            note(format!(
                "waiting for up to {} s, as a standby of {} may still be connecting: {warning}",
                CONNECTING.as_secs(),
                state.server
            ));
        }
        signals::pause(Duration::from_millis(200))?;
    }
}

/// Connects to a server by the database of its connection string; or, if only that fails, by the one that is meant.
fn reach<'a>(server: &'a Server, database: &str) -> Result<Member<'a>> {
    match Member::of(server) {
        Err(error @ Error::Unreachable { .. }) => match server.connect_to(database) {
            Ok(session) => Member::with(server, session),
            Err(_) => Err(error),
        },
        result => result,
    }
}

/// Checks that a server can load the library. Otherwise it would not start with it in its list.
fn loads(session: &Session) -> Result {
    let Err(error) = session.run("LOAD 'idgen'") else { return Ok(()) };
    let Error::Sql { message, .. } = &error else { return Err(error) };
    let rows = session.run(
        "SELECT (SELECT setting FROM pg_config WHERE name = 'PKGLIBDIR'),
                (SELECT setting FROM pg_config WHERE name = 'BINDIR'), current_setting('dynamic_library_path')",
    )?;
    let (folder, programs, path) = (rows.row(0).string(0), rows.row(0).string(1), rows.row(0).string(2));
    Err(Error::refused(
        format!(
            "{} cannot load the library of idgen: {message}. It looks in {}",
            session.server(),
            path.replace("$libdir", &folder)
        ),
        format!(
            "Nothing was changed. Install idgen for this server (PG_CONFIG={programs}/pg_config), and try again."
        ),
    ))
}

/// Checks that the libraries are there that somebody has added since the server started, or it would not start again. They
/// are not loaded: one that is not preloaded may take the server down.
fn others_load(session: &Session, preload: &Preload) -> Result {
    let mut added = preload.next();
    added.retain(|library| !preload.running.contains(library));
    let missing = session.query(
        "SELECT library FROM json_array_elements_text($1::json) AS library
         WHERE NOT EXISTS (
             SELECT FROM unnest(CASE WHEN strpos(library, '/') > 0 THEN ARRAY[library]
                                ELSE (SELECT array_agg(concat(folder, '/', library))
                                      FROM string_to_table(current_setting('dynamic_library_path'), ':') AS folder) END) AS path,
                  pg_config, unnest('{\"\",.so,.dylib,.dll}'::text[]) AS suffix,
                  pg_stat_file(replace(path, '$libdir', setting) || suffix, true)
             WHERE name = 'PKGLIBDIR' AND NOT isdir)",
        &[&serde_json::Value::from(added).to_string()],
    )?;
    let Some(row) = missing.iter().next() else { return Ok(()) };
    Err(Error::refused(
        format!(
            "{} will not start again: its \"shared_preload_libraries\" names {}, which is not there",
            session.server(),
            row.string(0)
        ),
        "Nothing was changed. Install that library, or take it out of the list, and try again.",
    ))
}

/// Checks that each server has room for the mark, before the first one takes a standby down.
fn room(cluster: &Cluster) -> Result {
    let Some(primary) = cluster.known_primary() else { return Ok(()) };
    let rows = primary.session.run(
        "SELECT count(*) FILTER (WHERE local_id <> 65534) + 1, coalesce(bool_or(local_id = 65534), false)
         FROM pg_replication_origin_status",
    )?;
    let (needed, has_mark) = (rows.row(0).number::<u64>(0).unwrap_or(1), rows.row(0).is_true(1));
    let setting = |session: &Session| limit_of_origins(session.version());
    for member in cluster.members() {
        let (session, name) = (&member.session, setting(&member.session));
        let room = session.value("SELECT current_setting($1)", &[name])?;
        if room.parse::<u64>().is_ok_and(|room| room < needed) {
            return Err(Error::refused(
                format!(
                    "{} has no room for the high-water mark: \"{name}\" must be at least {needed} (now {room})",
                    member.server.name
                ),
                format!(
                    "Nothing was changed. Without room, a standby shuts down when it replays the first mark. Set {name} = {} there, on \
                     standbys first, restart the server, and try again.",
                    needed.max(10)
                ),
            ));
        }
    }
    let unknown = cluster.unknown_receivers()?;
    if !has_mark && !unknown.is_empty() {
        note(format!(
            "warning: servers that are not given receive WAL from {}: {}. Each standby needs idgen too, and \"{}\" of at \
             least {needed}, or it shuts down when it replays the first mark: give them all, or look at each before that.",
            primary.server.name,
            unknown.join(", "),
            setting(&primary.session)
        ));
    }
    Ok(())
}

/// Where the extension is or will be.
struct Place {
    /// A session in the database.
    session: Session,
    database: String,
    /// The schema of the extension.
    schema: String,
    has_extension: bool,
    has_schema: bool,
    /// The search_path of new sessions; none if it names the schema already.
    path: Option<Vec<String>>,
    /// What is to be done if the SQL objects are older than the files.
    outdated: Option<String>,
    /// What is to be said about roles with a path of their own.
    roles: Vec<String>,
}

impl Place {
    fn of(primary: &Member, database: &str) -> Result<Place> {
        let name = &primary.server.name;
        let rows =
            primary.session.query("SELECT datallowconn FROM pg_database WHERE datname = $1", &[database])?;
        let allows = rows.iter().next().map(|row| row.is_true(0));
        match allows {
            None => {
                return Err(Error::refused(
                    format!("{name} has no database \"{database}\""),
                    format!(
                        "Nothing was changed. Create it with CREATE DATABASE {}; or see that the name is right.",
                        Session::identifier(database)
                    ),
                ));
            }
            Some(false) => {
                return Err(Error::refused(
                    format!("database \"{database}\" of {name} accepts no connections"),
                    "Nothing was changed. Choose another database.",
                ));
            }
            Some(true) => {}
        }
        let session = primary.server.connect_to(database)?;
        let extension = Extension::of(&session)?;
        if extension.is_some() {
            Extension::trusted(&session)?;
        }
        let has_extension = extension.is_some();
        let outdated = extension.as_ref().filter(|found| found.available.as_ref() != Some(&found.version)).map(|found| {
            format!(
                "database \"{database}\" has version {} of idgen, and the files are of {}: run ALTER EXTENSION idgen UPDATE \
                 there",
                found.version,
                found.available.as_deref().unwrap_or("none")
            )
        });
        let schema = extension.map_or_else(|| SCHEMA.to_owned(), |extension| extension.schema);
        let has_schema = extension::schema_is_trusted(&session, &schema)?;
        if has_schema && !has_extension {
            // CREATE EXTENSION takes over the portable edition, which can mint.
            let taken = session.value(
                "SELECT count(*) FROM pg_proc WHERE pronamespace = $1::text::regnamespace AND proname = 'shard_of'
                     AND prolang = (SELECT oid FROM pg_language WHERE lanname = 'sql')
                     AND NOT EXISTS (SELECT FROM pg_proc WHERE pronamespace = $1::text::regnamespace
                                         AND proname = 'snowflake_next_id')",
                &[&Session::identifier(&schema)],
            )?;
            if taken != "0" {
                return Err(Error::refused(
                    format!("schema \"{schema}\" of database \"{database}\" still has the function shard_of"),
                    "Nothing was changed. idgenctl remove leaves it for what depends on it. Drop it if nothing does, or \
                     run CREATE EXTENSION idgen in another schema.",
                ));
            }
        }
        let mut place = Place {
            session,
            database: database.to_owned(),
            schema,
            has_extension,
            has_schema,
            path: None,
            outdated,
            roles: Vec::new(),
        };
        place.read_paths()?;
        Ok(place)
    }

    /// Reads the path that new sessions have: that of the database, of all databases, or of the server.
    fn read_paths(&mut self) -> Result {
        let elements = |path: &str| {
            lists::elements(path, Of::Schemas).ok_or_else(|| {
                Error::refused(
                    format!("the search_path of database \"{}\" is no valid list: {path}", self.database),
                    "Nothing was changed. Correct it, and try again.",
                )
            })
        };
        // The session has a path of its own. Until it is set again, names of others could be found.
        let rows = self.session.run(
            "SET LOCAL search_path TO DEFAULT;
             SELECT s.source, s.setting FROM pg_catalog.pg_settings AS s
             WHERE s.name OPERATOR(pg_catalog.=) 'search_path'",
        )?;
        let (source, setting) = (rows.row(0).string(0), rows.row(0).string(1));
        let path = self.session.value(
            "SELECT coalesce(
                (SELECT substr(setting, 13) FROM pg_db_role_setting, unnest(setconfig) AS setting
                 WHERE setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
                     AND setrole = 0 AND starts_with(setting, 'search_path=') ORDER BY setdatabase DESC LIMIT 1),
                CASE $1 WHEN 'command line' THEN $2 END,
                (SELECT setting FROM pg_file_settings WHERE lower(name) = 'search_path' ORDER BY seqno DESC LIMIT 1),
                (SELECT boot_val FROM pg_settings WHERE name = 'search_path'))",
            &[&source, &setting],
        )?;
        let path = elements(&path)?;
        let rows = self.session.run(
            "SELECT rolname, substr(setting, 13) FROM pg_db_role_setting JOIN pg_roles AS r ON r.oid = setrole,
                    unnest(setconfig) AS setting
             WHERE setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
                 AND starts_with(setting, 'search_path=') ORDER BY rolname",
        )?;
        for row in rows.iter() {
            if !elements(&row.string(1))?.contains(&self.schema) {
                self.roles.push(format!(
                    "The role {} has a search_path of its own, {}: append {} to it.",
                    row.string(0),
                    row.string(1),
                    lists::text(std::slice::from_ref(&self.schema))
                ));
            }
        }
        self.path = (!path.contains(&self.schema)).then_some(path);
        Ok(())
    }

    fn add_steps<'a>(&'a self, steps: &mut Vec<Step<'a>>) {
        let (session, schema) = (&self.session, Session::identifier(&self.schema));
        if !self.has_extension {
            let create = if self.has_schema { String::new() } else { format!("CREATE SCHEMA {schema};") };
            let all = format!(
                "BEGIN; {create} GRANT USAGE ON SCHEMA {schema} TO PUBLIC; CREATE EXTENSION idgen SCHEMA {schema}; COMMIT"
            );
            let what =
                format!("create the extension in the schema {schema} of database \"{}\"", self.database);
            steps.push(Step::new(what, move || {
                let result = session.run(&all).map(drop);
                if matches!(result, Err(Error::Sql { .. })) {
                    session.run("ROLLBACK")?;
                }
                result
            }));
        }
        if let Some(path) = &self.path {
            let path: Vec<_> = path.iter().chain([&self.schema]).collect();
            let list = path.iter().map(|element| Session::literal(element)).collect::<Vec<_>>().join(", ");
            let alter =
                format!("ALTER DATABASE {} SET search_path = {list}", Session::identifier(&self.database));
            let what = format!("append {schema} to the search_path of database \"{}\"", self.database);
            steps.push(Step::new(what, move || session.run(&alter).map(drop)));
        }
    }
}
