//! `idgenctl enable`: prepares a database and its servers for idgen, or verifies that they are prepared.

use crate::cli::Cli;
use crate::commands::marker::new_schema;
use crate::connection::session::Session;
use crate::idgen::library::{self, State, Warning};
use crate::idgen::preload::{Keeper, Preload};
use crate::terminal::error::{Error, Result, refused};
use crate::terminal::output::{self, note};
use crate::terminal::signals;
use crate::terminal::text::said;
use crate::topology::cluster::unknown_standbys;
use crate::topology::fleet::{Fleet, Member};

/// The schema that the extension gets.
const SCHEMA: &str = "idgen";

pub fn run(cli: &Cli, database: &str) -> Result<u8> {
    signals::notice_signals();
    let fleet = Fleet::load(cli)?;
    let members = cluster(&fleet, database)?;
    let primary = members.last().filter(|member| !member.node.is_standby);
    let mut steps = Vec::new();
    for Member { server, session, .. } in &members {
        // With a missing library in its list, the server would not start.
        session.run("LOAD 'idgen'").map_err(|error| {
            let hint = "Nothing was changed. Install idgen for that server, and try again.";
            Error::refused(format!("the library of idgen cannot be loaded: {error}"), hint)
        })?;
        let preload = Preload::of(session)?;
        if preload.keeper == Keeper::Files && !preload.will_have_idgen {
            let libraries = preload.next.iter().map(String::as_str).chain([SCHEMA]);
            let list = libraries.map(Session::literal).collect::<Vec<_>>().join(", ");
            let what = format!("have {} preload {list}", server.name);
            let sql = format!("ALTER SYSTEM SET shared_preload_libraries = {list}");
            steps.push(Step { what, session, sql });
        }
    }
    if let Some(primary) = primary {
        room(&members)?;
        // A server preloads idgen only after everything else has succeeded.
        steps.splice(0..0, in_database(primary, database)?);
    }
    make(cli, &steps, &format!("Enable idgen in database \"{database}\"?"))?;

    let (mut restart, mut left, mut stuck) = (Vec::new(), false, false);
    for member in &members {
        let (name, preload) = (&member.server.name, Preload::of(&member.session)?);
        if preload.has_idgen {
            stuck |= !mints(member, &library::state(&member.session)?);
        } else if preload.will_have_idgen {
            restart.push(name.as_str());
        } else {
            left = true;
            let (how, then) = match preload.keeper {
                Keeper::Patroni => ("with patronictl edit-config", "run patronictl restart"),
                _ => ("where it is set, which ALTER SYSTEM does not do there", "restart it"),
            };
            let what = format!("append idgen to shared_preload_libraries {how}, and {then}");
            note(format!("left to do on {name}: {what}; then run the same command again"));
        }
    }
    if stuck {
        note("hint: Run idgenctl check, do what it says, and run the same command again.");
    }
    if !restart.is_empty() {
        let way = if members.iter().any(|member| member.node.has_patroni) { " with patronictl" } else { "" };
        let servers = restart.join(", then ");
        note(format!("Now restart {servers}{way}, and run the same command again."));
    } else if primary.is_some() && !left && !stuck {
        note(format!("idgen is enabled in database \"{database}\"."));
    }
    Ok(u8::from(stuck || left))
}

/// The servers in restart order: the primary comes last. Standbys may be prepared before it, without it.
fn cluster<'a>(fleet: &'a Fleet, database: &str) -> Result<Vec<Member<'a>>> {
    let reached = fleet.each(|server| Member::with(server, server.connect_with(&[("dbname", database)])?));
    let mut members = reached.into_iter().collect::<Result<Vec<_>>>()?;
    members.sort_by_key(|member| !member.node.is_standby);
    let is_of =
        |last: &Member, other: &Member| other.node.is_standby && other.node.system == last.node.system;
    if members.split_last().is_none_or(|(last, others)| others.iter().all(|other| is_of(last, other))) {
        return Ok(members);
    }
    let what = "the servers are not one primary with its standbys: give those of one cluster with --server";
    Err(Error::Usage(what.into()))
}

/// Reports and returns whether a server mints, or could once it is promoted; and if not, why.
fn mints(member: &Member, state: &State) -> bool {
    let severe = |warning: &&Warning| warning.severity == "error" || !state.mints;
    let problem = state.error.as_ref().map(|error| &error.message);
    let problem = problem.or(state.warning.as_ref().filter(severe).map(|warning| &warning.message));
    let mints = if member.node.is_standby { problem.is_none() } else { state.mints };
    let [yes, no] = match member.node.is_standby {
        true => ["can mint ids once it is promoted", "could not mint ids if it were promoted"],
        false => ["mints ids", "mints no ids"],
    };
    let why = problem.map(|problem| format!(": {}", said(problem))).unwrap_or_default();
    let (before, what) = if mints { ("", yes) } else { ("error: ", no) };
    note(format!("{before}{} {what}{why}", member.server.name));
    mints
}

/// Checks that each server has room for the mark: without it, the first mark would take a standby down.
fn room(members: &[Member]) -> Result {
    let mut has_mark = false;
    for Member { server, session, node } in members {
        let state = library::state(session)?;
        has_mark |= !node.is_standby && state.mark_ms.is_some();
        let no_room =
            state.warning.filter(|warning| warning.code == "no-room").map(|warning| warning.message);
        let hidden = state.error.filter(|error| error.sqlstate == "55P03").map(|error| error.message);
        if let Some(why) = no_room.or(hidden) {
            let why = said(&why);
            return refused(
                format!("{} has no room for the high-water mark, or a lock hides it: {why}", server.name),
                "Nothing was changed. Without room, a standby shuts down when it replays the first mark. Raise the setting there, \
                 or where Patroni or an operator keeps it, on standbys first; restart, and try again.",
            );
        }
    }
    let unknown = unknown_standbys(&members.iter().map(|member| &member.node).collect::<Vec<_>>());
    if !has_mark && !unknown.is_empty() {
        note(format!(
            "warning: servers that are not given receive WAL: {unknown}. Each standby needs idgen too, and room for the mark, or it \
             shuts down when it replays the first one: give them all, or look at each before that."
        ));
    }
    Ok(())
}

struct Step<'a> {
    /// Its effect, as an imperative sentence without a full stop.
    what: String,
    session: &'a Session,
    /// Runs in one transaction.
    sql: String,
}

/// Shows the changes, asks, and makes them.
fn make(cli: &Cli, steps: &[Step], question: &str) -> Result {
    if steps.is_empty() {
        return Ok(());
    }
    note("This is to be done:");
    steps.iter().for_each(|step| note(format!("- {}", step.what)));
    output::consent(cli, question)?;
    for Step { what, session, sql } in steps {
        session.run(sql).map_err(|error| Error::Broken {
            what: format!("{what}: {error}"),
            hint: "The same command, run again, does what is left.".into(),
        })?;
        note(format!("done: {what}"));
    }
    Ok(())
}

/// Creates the extension in a new schema, unless the database has it, and appends that to the search_path.
fn in_database<'a>(primary: &'a Member, database: &str) -> Result<Option<Step<'a>>> {
    let session = &primary.session;
    if session.run("SELECT FROM pg_extension WHERE extname = 'idgen'")?.len() > 0 {
        return Ok(None);
    }
    check_unused(session, database)?;
    // The path of new sessions comes from the database, from all databases, or from the server.
    let rows = session.run(
        "SELECT coalesce(
             (SELECT substr(setting, 13) FROM pg_db_role_setting, unnest(setconfig) AS setting
              WHERE setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
                  AND setrole = 0 AND starts_with(setting, 'search_path=') ORDER BY setdatabase DESC LIMIT 1),
             CASE WHEN pg_read_file('postmaster.opts') !~* 'search[-_]path' THEN coalesce(
                 (SELECT setting FROM pg_file_settings WHERE lower(name) = 'search_path' ORDER BY seqno DESC LIMIT 1),
                 (SELECT boot_val FROM pg_settings WHERE name = 'search_path')) END)",
    )?;
    let Some(path) = rows.row(0).text(0) else {
        return refused(
            format!("the command line of {} sets \"search_path\"", primary.server.name),
            "Nothing was changed. Set the same one for the database by ALTER DATABASE ... SET search_path, and try again.",
        );
    };
    let path = if path.is_empty() { SCHEMA.into() } else { format!("{path}, {SCHEMA}") };
    // In one transaction: if another session creates the schema first, all of it fails. Event triggers may call functions
    // of other roles. While the path is set, nothing is called, and it need not be parsed.
    let sql = format!(
        "SET LOCAL session_replication_role = replica; {}; CREATE EXTENSION idgen SCHEMA idgen;
         SELECT set_config('search_path', {}, true); ALTER DATABASE {} SET search_path FROM CURRENT",
        new_schema(session, SCHEMA)?,
        Session::literal(&path),
        Session::identifier(database)
    );
    let path = said(&path);
    let what =
        format!("create the extension in \"{database}\", schema idgen, and set its search_path to {path}");
    Ok(Some(Step { what, session, sql }))
}

/// Checks that the schema does not exist: functions that another role has left there could be called in idgen's place.
fn check_unused(session: &Session, database: &str) -> Result {
    let rows = session.query(
        "SELECT (SELECT string_agg(identity, ', ') FROM (
                     SELECT (pg_identify_object(classid, objid, objsubid)).identity FROM pg_depend
                     WHERE refclassid = 'pg_namespace'::regclass AND refobjid = n.oid AND deptype = 'n'
                     ORDER BY 1 LIMIT 10) AS d)
         FROM pg_namespace AS n WHERE nspname = $1",
        &[SCHEMA],
    )?;
    let Some(row) = rows.iter().next() else { return Ok(()) };
    let objects = row.text(0).map(|objects| format!(", with {objects}")).unwrap_or_default();
    refused(
        format!("database \"{database}\" has a schema \"{SCHEMA}\" already{objects}"),
        "Nothing was changed. Superusers could call what others have put there: drop it if it is not needed, or rename it. If it \
         has the portable edition, whose ids the extension would repeat, see \"Moving to the extension\" in its README.",
    )
}
