//! `idgenctl enable`.

use std::time::Duration;

use serde_json::json;

use crate::cli::{Cli, Enable};
use crate::connection::server::Server;
use crate::connection::session::Session;
use crate::connection::waiting;
use crate::idgen::library::{self, State, Warning};
use crate::idgen::lists::{self, Of};
use crate::idgen::preload::{self, Keeper, Preload};
use crate::idgen::releases::{limit_of_origins, mints_without_preload};
use crate::terminal::error::{Error, Result};
use crate::terminal::output::{self, note};
use crate::terminal::steps::{self, Step};
use crate::terminal::text;
use crate::topology::cluster::Cluster;
use crate::topology::fleet::{Fleet, Member};

/// The schema that the extension gets.
const SCHEMA: &str = "idgen";

/// For how long a standby that was restarted may take to connect.
const CONNECTING: Duration = Duration::from_secs(60);

/// Prepares a database and its servers for idgen; or proves that they are prepared.
pub fn run(cli: &Cli, arguments: &Enable) -> Result<u8> {
    let database = &arguments.database;
    let fleet = Fleet::load(&cli.servers)?;
    let cluster = Cluster::of(&fleet, arguments.on.as_deref(), |server| reach(server, database))?;
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

    let target = match &cluster.primary {
        Some(primary) => Some(Target::of(primary, database)?),
        None => {
            note("no primary is given: only what is set on each standby is done here");
            None
        }
    };
    let mut steps = Vec::new();
    let (mut by_hand, mut path_roles) = (Vec::new(), Vec::new());
    if let Some(target) = &target {
        target.add_steps(&mut steps);
        by_hand.extend(target.outdated.clone());
        path_roles.clone_from(&target.path_roles);
    }
    for (member, preload) in preloads.iter().filter(|(_, preload)| !preload.will_have_idgen()) {
        let libraries = [preload.next.clone(), vec!["idgen".to_owned()]].concat();
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
                steps.push(Step::new(what, move || preload::add(session, &libraries)));
            }
        }
    }
    let changed = steps::make(cli, &steps, &format!("Enable idgen in database \"{database}\"?"))?;

    let (mut restart, mut states) = (Vec::new(), Vec::new());
    for member in cluster.members() {
        let preload = Preload::of(&member.session)?;
        if preload.has_idgen() {
            states.push((member, once_connected(member)?));
        } else if preload.will_have_idgen() {
            restart.push(member);
        }
    }
    let names: Vec<&str> = restart.iter().map(|member| member.server.name.as_str()).collect();
    if cli.json {
        let as_json = |(member, state): &(&Member, State)| json!({ "server": member.server.name, "standby": member.is_standby, "state": state });
        output::print(text::json(&json!({
            "database": database,
            "schema": target.as_ref().map(|target| &target.schema),
            "changed": changed,
            "by_hand": by_hand,
            "restart": names,
            "servers": states.iter().map(as_json).collect::<Vec<_>>(),
            "roles_with_a_search_path": path_roles,
        })))?;
    }
    path_roles.iter().for_each(note);
    let stuck = states.iter().filter(|(member, state)| !say_whether_it_mints(member, state)).count();
    if stuck > 0 {
        note("hint: Run idgenctl check, do what it says, and run the same command again.");
    }
    if !by_hand.is_empty() {
        by_hand.iter().for_each(|what| note(format!("left to do: {what}")));
        note("Then run the same command again.");
    }
    if !restart.is_empty() {
        let by_patroni = |member: &&Member| if member.has_patroni { " by patronictl restart" } else { "" };
        let each = restart.iter().map(|member| format!("{}{}", member.server.name, by_patroni(member)));
        note(format!(
            "Now restart {}{}, and run the same command again.",
            each.collect::<Vec<_>>().join(", then "),
            if names.len() > 1 { ", in this order" } else { "" }
        ));
    }
    if let Some(primary) = restart.iter().find(|member| !member.is_standby) {
        note(if mints_without_preload(primary.session.version()) {
            "Until then, ids are minted as long as idgen has its default settings. Production needs the restart."
        } else {
            "No ids are minted before that."
        });
    }
    if restart.is_empty() && by_hand.is_empty() && stuck == 0 && target.is_some() {
        note(format!("idgen is enabled in database \"{database}\"."));
        if states.iter().any(|(member, state)| !member.is_standby && state.mark_of_epoch.is_none()) {
            note(
                "Before the first id, decide idgen.epoch and, with several clusters, the shards of each in \
                 idgen.allowed_shards, alike on the primary and its standbys: see idgenctl enable --help.",
            );
        }
    }
    Ok(u8::from(stuck > 0 || !by_hand.is_empty()))
}

/// Says whether a server mints, or could if it were promoted; and why not. Gives whether it does.
fn say_whether_it_mints(member: &Member, state: &State) -> bool {
    let severe = |warning: &&Warning| warning.severity == "error" || !state.mints;
    let problem = state.error.as_ref().map(|error| &error.message);
    let problem = problem.or(state.warning.as_ref().filter(severe).map(|warning| &warning.message));
    let mints = if member.is_standby { problem.is_none() } else { state.mints };
    let what = match (mints, member.is_standby) {
        (true, true) => "can mint ids once it is promoted",
        (true, false) => "mints ids",
        (false, true) => "could not mint ids if it were promoted",
        (false, false) => "mints no ids",
    };
    let why = problem.map(|problem| format!(": {problem}")).unwrap_or_default();
    note(format!("{}{} {what}{why}", if mints { "" } else { "error: " }, member.server.name));
    mints
}

/// The state of a server, once a synchronous standby that was restarted has had time to connect again.
fn once_connected(member: &Member) -> Result<State> {
    let name = &member.server.name;
    let mut last = None;
    let what =
        format!("a standby of {name}, which may still be connecting: there are too few synchronous ones");
    waiting::until(CONNECTING, &what, || {
        last = library::state(&member.session)?;
        let code = last.as_ref().and_then(|state| Some(state.warning.as_ref()?.code.as_str()));
        Ok((code != Some("sync-too-few")).then_some(()))
    })?;
    last.ok_or_else(|| {
        Error::refused(
            format!("{name} runs a library of idgen that is older than 0.2"),
            "Install the files of this version there, restart the server, and try again.",
        )
    })
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
    let missing = session.query(
        "SELECT library FROM json_array_elements_text($1::json) AS library
         WHERE NOT EXISTS (
             SELECT FROM unnest(CASE WHEN strpos(library, '/') > 0 THEN ARRAY[library]
                                ELSE (SELECT array_agg(concat(folder, '/', library))
                                      FROM string_to_table(current_setting('dynamic_library_path'), ':') AS folder) END) AS path,
                  pg_config, unnest('{\"\",.so,.dylib,.dll}'::text[]) AS suffix,
                  pg_stat_file(replace(path, '$libdir', setting) || suffix, true)
             WHERE name = 'PKGLIBDIR' AND NOT isdir)",
        &[&json!(preload.added()).to_string()],
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
    let Some(primary) = &cluster.primary else { return Ok(()) };
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
                    "Nothing was changed. Without room, a standby shuts down when it replays the first mark. Set {name} = {}{}, \
                     and try again.",
                    needed.max(10),
                    if member.has_patroni {
                        " with patronictl edit-config, then patronictl restart"
                    } else {
                        " there, on standbys first, restart the server"
                    }
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
struct Target {
    /// A session in the database.
    session: Session,
    database: String,
    /// The schema of the extension.
    schema: String,
    has_extension: bool,
    has_schema: bool,
    /// The search_path of new sessions, if the schema is to be appended to it.
    path: Option<Vec<String>>,
    /// What is to be done if the SQL objects are older than the files.
    outdated: Option<String>,
    /// What is to be said about roles with a path of their own.
    path_roles: Vec<String>,
}

impl Target {
    fn of(primary: &Member, database: &str) -> Result<Target> {
        let session = primary.server.connect_to(database).map_err(|error| match error.code() {
            "3D000" => Error::refused(
                format!("{} has no database \"{database}\"", primary.server.name),
                format!(
                    "Nothing was changed. Create it with CREATE DATABASE {}; or see that the name is right.",
                    Session::identifier(database)
                ),
            ),
            _ => error,
        })?;
        let rows = session.run(
            "SELECT nspname, extversion, default_version
             FROM pg_extension JOIN pg_namespace AS n ON n.oid = extnamespace
                  LEFT JOIN pg_available_extensions ON name = extname
             WHERE extname = 'idgen'",
        )?;
        let found = rows.iter().next();
        let outdated = found.as_ref().filter(|row| row.text(1) != row.text(2)).map(|row| {
            let (version, files) = (row.string(1), row.text(2).unwrap_or("none".into()));
            format!(
                "database \"{database}\" has version {version} of idgen, and the files are of {files}: run ALTER EXTENSION \
                 idgen UPDATE there"
            )
        });
        let has_extension = found.is_some();
        let schema = found.map_or_else(|| SCHEMA.to_owned(), |row| row.string(0));
        let others = others_in(&session, &schema)?;
        let has_schema = others.is_some();
        let others = others.unwrap_or_default();
        if !has_extension && has_schema {
            check_unused(&session, database, &others)?;
        }
        let mut target = Target {
            session,
            database: database.to_owned(),
            schema,
            has_extension,
            has_schema,
            path: None,
            outdated,
            path_roles: Vec::new(),
        };
        if others.is_empty() {
            target.read_paths(primary)?;
        } else {
            note(format!(
                "warning: roles that are not superusers may change schema \"{}\", in which the extension is, or the \
                 extension itself: {others}. A superuser who calls idgen there may call a function of theirs. This command does \
                 not append the schema to a search_path.",
                target.schema
            ));
        }
        let overloads = target.overloads()?;
        if !overloads.is_empty() {
            note(format!(
                "warning: functions that are not idgen's have names of idgen's in its schema, and a call may find them instead: \
                 {overloads}. No superuser should call idgen there before they are gone."
            ));
        }
        Ok(target)
    }

    /// Functions in the schema of the extension that are not of it and have the name of one of its own.
    fn overloads(&self) -> Result<String> {
        let own = "SELECT objid FROM pg_depend JOIN pg_extension AS e ON refobjid = e.oid AND extname = 'idgen'
                   WHERE refclassid = 'pg_extension'::regclass AND classid = 'pg_proc'::regclass AND deptype = 'e'";
        self.session.value(
            &format!(
                "SELECT string_agg(oid::regprocedure::text, ', ') FROM pg_proc
                 WHERE pronamespace = (SELECT extnamespace FROM pg_extension WHERE extname = 'idgen')
                   AND oid NOT IN ({own}) AND proname IN (SELECT proname FROM pg_proc WHERE oid IN ({own}))"
            ),
            &[],
        )
    }

    /// Reads the path that new sessions have: that of the database, of all databases, or of the server.
    fn read_paths(&mut self, primary: &Member) -> Result {
        let elements = |path: &str| {
            lists::elements(path, Of::Schemas).ok_or_else(|| {
                Error::refused(
                    format!("the search_path of database \"{}\" is no valid list: {path}", self.database),
                    "Nothing was changed. Correct it, and try again.",
                )
            })
        };
        let of_command_line = primary.server.path_of_command_line(&self.database)?;
        let path = self.session.value(
            "SELECT coalesce(
                (SELECT substr(setting, 13) FROM pg_db_role_setting, unnest(setconfig) AS setting
                 WHERE setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
                     AND setrole = 0 AND starts_with(setting, 'search_path=') ORDER BY setdatabase DESC LIMIT 1),
                nullif($1, ''),
                (SELECT setting FROM pg_file_settings WHERE lower(name) = 'search_path' ORDER BY seqno DESC LIMIT 1),
                (SELECT boot_val FROM pg_settings WHERE name = 'search_path'))",
            &[&of_command_line],
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
                self.path_roles.push(format!(
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
            // If somebody else creates the schema meanwhile, the whole fails.
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

/// The roles other than superusers that could put an object of theirs into a schema or into the extension in it. None if the
/// schema is not there.
fn others_in(session: &Session, schema: &str) -> Result<Option<String>> {
    let rows = session.query(
        "SELECT (SELECT string_agg(rolname, ', ') FROM (
                     SELECT rolname FROM pg_roles AS r WHERE NOT rolsuper AND r.oid <> 'pg_database_owner'::regrole
                         AND (has_schema_privilege(r.oid, n.oid, 'CREATE') OR pg_has_role(r.oid, nspowner, 'MEMBER')
                              OR EXISTS (SELECT FROM pg_extension WHERE extname = 'idgen' AND extnamespace = n.oid
                                             AND pg_has_role(r.oid, extowner, 'MEMBER')))
                     ORDER BY rolname LIMIT 5) AS o)
         FROM pg_namespace AS n WHERE nspname = $1",
        &[schema],
    )?;
    Ok(rows.iter().next().map(|row| row.string(0)))
}

/// Checks that the schema for the extension has nothing in it but members of extensions that superusers have created, and
/// gets nothing else: a superuser who calls idgen there would call an overload of somebody else.
fn check_unused(session: &Session, database: &str, others: &str) -> Result {
    let rows = session.query(
        "SELECT (pg_identify_object(classid, objid, objsubid)).identity, count(*) OVER (),
                classid = 'pg_proc'::regclass AND EXISTS (
                    SELECT FROM pg_proc WHERE oid = objid AND prolang <> 13 AND proname = 'snowflake_next_id')
         FROM pg_depend AS d
         WHERE refclassid = 'pg_namespace'::regclass AND refobjid = quote_ident($1)::regnamespace AND deptype = 'n'
           AND NOT EXISTS (
               SELECT FROM pg_extension AS e JOIN pg_roles AS r ON r.oid = extowner AND rolsuper
                    LEFT JOIN pg_depend AS m ON m.refclassid = e.tableoid AND m.refobjid = e.oid AND m.deptype = 'e'
               WHERE (d.classid, d.objid) IN ((e.tableoid, e.oid), (m.classid, m.objid)))
         ORDER BY 3 DESC, 1 LIMIT 10",
        &[SCHEMA],
    )?;
    let there: Vec<String> = rows.iter().map(|row| row.string(0)).collect();
    let what = match rows.iter().next() {
        Some(row) => {
            let more = row.number::<usize>(1).unwrap_or(0).saturating_sub(there.len());
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("contains other objects: {}{more}", there.join(", "))
        }
        None if others.is_empty() => return Ok(()),
        None => format!("may be changed by roles that are not superusers: {others}"),
    };
    let hint = if rows.iter().next().is_some_and(|row| row.is_true(2)) {
        "Nothing was changed. If this is the portable edition, see \"Moving to the extension\" in its README: the extension \
         beside it would repeat its ids. Otherwise drop or rename the schema."
    } else {
        "Nothing was changed. Drop that schema if nobody needs it, or rename it. The extension gets a new one: in this one, a \
         superuser who calls idgen could call a function of somebody else."
    };
    Err(Error::refused(format!("schema \"{SCHEMA}\" of database \"{database}\" {what}"), hint))
}
