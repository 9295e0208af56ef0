//! `idgenctl remove`.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::cli::{Cli, On};
use crate::cluster::Cluster;
use crate::commands::enable::SCHEMA;
use crate::error::{Error, Result};
use crate::extension::{self, Installation};
use crate::fleet::{Fleet, Member};
use crate::lists;
use crate::output::{self, note, plain};
use crate::preload::{self, Keeper, Line, Preload};
use crate::session::{self, Session};
use crate::steps::{self, Step};

/// How often a statement is tried that has to wait for a lock, 5 s each time.
const ATTEMPTS: usize = 3;

/// For how long a standby may take to replay the removal of the mark.
const REPLAY: Duration = Duration::from_secs(30);

/// Whether a server has the mark.
const HAS_MARK: &str = "SELECT EXISTS (SELECT FROM pg_replication_origin_status WHERE local_id = 65534)";

/// Takes the next steps of the removal, as far as they go without a restart.
///
/// # Errors
/// What keeps it from that.
pub fn run(cli: &Cli, arguments: &On) -> Result<u8> {
    let fleet = Fleet::load(&cli.servers)?;
    let cluster = Cluster::of(&fleet, arguments.on.as_deref(), Member::of)?;
    let primary = cluster.primary()?;
    let installations = installations(primary)?;
    let mut dependents = Vec::new();
    for installation in &installations {
        dependents.push(Dependent::all(installation)?);
    }
    show(cli, &installations, &dependents)?;
    refuse_stuck(&installations, &dependents)?;

    let mut steps = Vec::new();
    let mut counts = Counts::default();
    for (installation, dependents) in installations.iter().zip(&dependents) {
        counts.add(dependents);
        detach(installation, dependents, &mut steps)?;
    }
    if steps.is_empty() {
        nothing_is_left(&installations)?;
    } else {
        let all = &installations;
        steps.push(Step::new("see that nothing depends on idgen any more", move || nothing_is_left(all)));
    }
    let mut by_hand = Vec::new();
    let mut is_loaded = false;
    let with_databases = steps.len();
    for member in cluster.members() {
        let preload = Preload::of(&member.session)?;
        is_loaded |= preload.has_idgen();
        unload(member, &preload, &mut steps, &mut by_hand);
    }
    // The server writes the mark again as long as it may mint, so that comes after the restart.
    if by_hand.is_empty() && !is_loaded && steps.len() == with_databases {
        take_away(primary, &installations, &mut steps)?;
    }
    for name in cluster.unknown_receivers()? {
        note(format!(
            "warning: \"{name}\", which is not given, receives WAL from {}: take idgen out of its shared_preload_libraries \
             too",
            primary.server.name
        ));
    }
    let changed = steps::make(cli, &steps, &counts.question(installations.len()))?;

    let mut restart = Vec::new();
    for member in cluster.members() {
        if Preload::of(&member.session)?.has_idgen() {
            restart.push(member.server.name.as_str());
        }
    }
    let removed = by_hand.is_empty() && restart.is_empty() && prove(&cluster, primary)?;
    let left = if removed { leftovers(&cluster, primary)? } else { Vec::new() };
    if cli.json {
        let json = json!({
            "removed": removed, "changed": changed, "by_hand": by_hand, "restart": restart, "left": left,
        });
        output::print(output::json(&json))?;
    }
    if removed {
        let servers: Vec<&str> = cluster.members().map(|member| member.server.name.as_str()).collect();
        note(format!(
            "idgen is removed: no database has the extension, and no server that was given has the mark. Its files may go now \
             from {}, and from others once they no longer preload it.",
            servers.join(", ")
        ));
        note(
            "Backups taken before still need room for the mark, and a standby until it has made a restartpoint.",
        );
        if !left.is_empty() {
            note("This is left, for when nothing needs it any more:");
            left.iter().for_each(|what| note(format!("  - {what}")));
        }
        return Ok(0);
    }
    by_hand.iter().for_each(|what| note(format!("left to do: {what}")));
    if !restart.is_empty() {
        note(format!(
            "{} restart {}. Keep the files of idgen until idgen is removed.",
            if by_hand.is_empty() { "Now" } else { "Then" },
            restart.join(", then ")
        ));
    }
    note("idgen is not removed yet: after that, run the same command again.");
    Ok(1)
}

/// The databases that have the extension. All must be seen, and none may be in the hands of others.
fn installations(primary: &Member) -> Result<Vec<Installation>> {
    let name = &primary.server.name;
    let found = extension::installations(primary.server, &primary.session)?;
    if let Some((database, error)) = found.not_seen.first() {
        return Err(Error::refused(
            format!("database \"{database}\" of {name} cannot be looked at: {error}"),
            "Nothing was changed. The mark and the files may only go if no database has idgen. Check that superusers can connect \
             to it (ALTER DATABASE ... ALLOW_CONNECTIONS true), or drop it.",
        ));
    }
    for Installation { database, extension, .. } in &found.there {
        extension.trust(name, database).map_err(|error| {
            Error::refused(
                error.to_string(),
                "Nothing was changed. A superuser who calls idgen there could call a function of theirs. Have its owner \
                 drop the extension there.",
            )
        })?;
        if extension.available.as_ref() != Some(&extension.version) {
            return Err(Error::refused(
                format!(
                    "database \"{database}\" of {name} has version {} of idgen, and the files are of {}",
                    extension.version,
                    extension.available.as_deref().unwrap_or("none")
                ),
                "Nothing was changed. Check that the files of idgen are installed, and run ALTER EXTENSION idgen UPDATE there.",
            ));
        }
    }
    Ok(found.there)
}

/// What depends on idgen, and would be dropped with it.
struct Dependent {
    kind: String,
    object: String,
    /// What CASCADE would lose.
    data: Option<String>,
    size: String,
    depends_on: String,
    /// The statement that ends the dependency; none if it is on shard_of alone.
    statement: Option<String>,
    /// The table that it locks.
    relation: Option<String>,
    /// Whether it depends on idgen even without shard_of, and without what the statements end.
    is_stuck: bool,
}

impl Dependent {
    fn all(installation: &Installation) -> Result<Vec<Dependent>> {
        // With many partitions, that takes a while.
        installation.session.set_patience(Some(Duration::from_secs(600)));
        let rows = installation.session.run(&format!(
            "WITH RECURSIVE shown AS MATERIALIZED (SELECT * FROM {}() WHERE NOT is_part),
             -- What the statements free; defaults and generated columns also where their table is shown in their place.
             freed AS MATERIALIZED (
                 SELECT classid, objid, objsubid FROM shown WHERE statement IS NOT NULL
                 UNION SELECT 'pg_attrdef'::regclass, e.oid, 0
                       FROM pg_attrdef AS e JOIN pg_attribute AS a ON attrelid = adrelid AND attnum = adnum
                            JOIN pg_class AS c ON c.oid = adrelid
                       WHERE attgenerated = '' AND NOT pg_is_other_temp_schema(relnamespace)
                 UNION SELECT 'pg_class'::regclass, attrelid, attnum
                       FROM pg_attribute JOIN pg_class AS c ON c.oid = attrelid
                       WHERE attgenerated = 's' AND NOT pg_is_other_temp_schema(relnamespace)
             ),
             -- As idgen_dependents goes through the catalog, but not through shard_of, nor on from what is freed.
             stuck AS (
                 SELECT tableoid AS classid, oid AS objid, 0 AS objsubid FROM pg_extension WHERE extname = 'idgen'
                 UNION
                 SELECT next.*
                 FROM stuck AS s CROSS JOIN LATERAL (
                     SELECT d.classid, d.objid, d.objsubid FROM pg_depend AS d
                     WHERE d.refclassid = s.classid AND d.refobjid = s.objid AND s.objsubid IN (0, d.refobjsubid)
                     UNION ALL
                     SELECT d.refclassid, d.refobjid, d.refobjsubid FROM pg_depend AS d
                     WHERE d.classid = s.classid AND d.objid = s.objid AND s.objsubid IN (0, d.objsubid)
                         AND d.deptype IN ('i', 'e')) AS next
                 WHERE (s.classid, s.objid, s.objsubid) NOT IN (SELECT * FROM freed)
                     AND NOT (next.classid = 'pg_proc'::regclass AND next.objid IN (
                         SELECT p.oid FROM pg_proc AS p JOIN pg_extension ON extnamespace = pronamespace
                         WHERE extname = 'idgen' AND proname = 'shard_of' AND proargtypes = '20'::oidvector))
             )
             SELECT kind, object, data, pg_size_pretty(bytes), depends_on,
                    CASE WHEN (classid, objid, objsubid) IN (SELECT * FROM stuck) THEN statement END,
                    CASE WHEN classid = 'pg_class'::regclass THEN d.objid
                         WHEN classid = 'pg_attrdef'::regclass
                             THEN (SELECT adrelid FROM pg_attrdef AS a WHERE a.oid = d.objid) END,
                    statement IS NULL AND (classid, objid, objsubid) IN (SELECT * FROM stuck)
                        AND (classid, objid, objsubid) NOT IN (SELECT * FROM freed)
             FROM shown AS d",
            installation.extension.name("idgen_dependents")
        ))?;
        installation.session.set_patience(Some(Duration::from_secs(30)));
        let all = rows.iter().map(|row| Dependent {
            kind: row.string(0),
            object: row.string(1),
            data: row.text(2),
            size: row.string(3),
            depends_on: row.string(4),
            statement: row.text(5),
            relation: row.text(6),
            is_stuck: row.is_true(7),
        });
        Ok(all.collect())
    }

    /// What becomes of it.
    fn fate(&self) -> &'static str {
        match &self.statement {
            Some(statement) if statement.ends_with("DROP EXPRESSION") => "becomes a plain column",
            Some(statement) if statement.starts_with("ALTER DOMAIN") => "loses its default",
            Some(_) => "is dropped",
            None if self.is_stuck => "is in the way: change or drop it",
            None if ["table", "foreign table"].contains(&self.kind.as_str()) => {
                "stays, without defaults that call idgen"
            }
            None => "stays",
        }
    }

    /// For a message.
    fn line(&self, database: &str) -> String {
        format!("{} {} of database \"{database}\" on {}", self.kind, self.object, self.depends_on)
    }
}

/// How many objects change.
#[derive(Default)]
struct Counts {
    defaults: usize,
    columns: usize,
    others: usize,
}

impl Counts {
    fn add(&mut self, dependents: &[Dependent]) {
        for dependent in dependents {
            match &dependent.statement {
                Some(statement) if statement.ends_with("DROP EXPRESSION") => self.columns += 1,
                Some(_) => self.defaults += 1,
                None => self.others += 1,
            }
        }
    }

    fn question(&self, databases: usize) -> String {
        format!(
            "Go on with the removal of idgen from {}, with {}, {} and {} that depend on it?",
            count(databases, "database"),
            count(self.defaults, "default"),
            count(self.columns, "generated column"),
            count(self.others, "other object")
        )
    }
}

/// A number of things.
fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Shows what depends on idgen.
fn show(cli: &Cli, installations: &[Installation], dependents: &[Vec<Dependent>]) -> Result {
    if cli.json || dependents.iter().all(Vec::is_empty) {
        return Ok(());
    }
    let mut shown = output::table(&["database", "kind", "object", "data", "size", "what becomes of it"]);
    for (installation, dependents) in installations.iter().zip(dependents) {
        for d in dependents {
            let data = d.data.as_deref().unwrap_or("");
            shown.add_row([&installation.database, &d.kind, &d.object, data, &d.size, d.fate()].map(plain));
        }
    }
    output::print(shown.to_string())?;
    note(
        "Functions in PL/pgSQL or with SQL in a string are not shown: search their text for snowflake_ and shard_of.",
    );
    if dependents.iter().flatten().any(|dependent| dependent.statement.is_none()) {
        note(
            "To end minting alone, without any of this, write idgen.epoch with its value into postgresql.conf, take idgen \
             out of shared_preload_libraries, and restart: the functions that take ids apart still work.",
        );
    }
    Ok(())
}

/// The steps after which nothing that can be helped depends on the extension of a database.
fn detach<'a>(
    installation: &'a Installation,
    dependents: &'a [Dependent],
    steps: &mut Vec<Step<'a>>,
) -> Result {
    let Installation { database, session, extension } = installation;
    session.run("SET lock_timeout = '5s'")?;
    let keeps = session.value(
        "SELECT count(*) FROM pg_depend JOIN pg_proc AS p ON p.oid = objid
         WHERE classid = 'pg_proc'::regclass AND refclassid = 'pg_extension'::regclass AND deptype = 'e'
             AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idgen')
             AND proname = 'shard_of' AND proargtypes = '20'::oidvector",
        &[],
    )?;
    if keeps != "0" {
        let name = extension.name("shard_of");
        // Under its old OID, whatever is partitioned, indexed or checked by it stays.
        let keep = format!(
            "BEGIN; ALTER EXTENSION idgen DROP FUNCTION {name}(bigint);
             CREATE OR REPLACE FUNCTION {name}(id bigint) RETURNS integer
                 LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN (id >> 10 & 8191)::integer;
             COMMIT"
        );
        let what = format!("make {name} of database \"{database}\" a function in SQL, which stays");
        steps.push(Step::new(what, move || patiently(session, None, || session.run(&keep).map(drop))));
    }
    // What shard_of holds may have defaults of its own, which are only shown afterwards.
    if keeps != "0" && !dependents.is_empty()
        || dependents.iter().any(|dependent| dependent.statement.is_some())
    {
        let what = format!(
            "drop the defaults of database \"{database}\" that call idgen, so that an INSERT must supply these ids, and turn \
             generated columns into plain ones, which keep their values"
        );
        steps.push(Step::new(what, move || end_dependencies(installation)));
    }
    Ok(())
}

/// Runs the statements that end dependencies.
fn end_dependencies(installation: &Installation) -> Result {
    let session = &installation.session;
    let mut done: Vec<String> = Vec::new();
    loop {
        // The columns of a table are only shown once the table itself no longer depends on idgen.
        let dependents = Dependent::all(installation)?;
        let todo: Vec<_> = dependents
            .iter()
            .filter_map(|dependent| Some((dependent, dependent.statement.as_ref()?)))
            .filter(|(_, statement)| !done.contains(statement))
            .collect();
        if todo.is_empty() {
            return Ok(());
        }
        for (dependent, statement) in todo {
            let outcome = patiently(session, dependent.relation.as_deref(), || {
                // As one statement, whatever the names in it.
                session.query(statement, &[]).map(drop)
            });
            match outcome {
                Ok(()) => {}
                // Somebody was faster.
                Err(error) if ["42P01", "42703", "42704"].contains(&error.code()) => {}
                Err(error) if done.is_empty() => return Err(error),
                Err(error) => {
                    return Err(Error::Broken {
                        hint: error.hint().unwrap_or_default().to_owned(),
                        what: format!("{error}, after {} that succeeded", done.len()),
                    });
                }
            }
            done.push(statement.clone());
        }
    }
}

/// Does something that needs locks, several times if need be, and says who has them.
fn patiently(session: &Session, relation: Option<&str>, work: impl Fn() -> Result) -> Result {
    for attempt in 1.. {
        let Err(error) = work() else { return Ok(()) };
        if matches!(error, Error::Sql { .. }) {
            // Nothing to roll back is no error.
            session.run("ROLLBACK")?;
        }
        if !["55P03", "40P01"].contains(&error.code()) {
            return Err(error);
        }
        let holders = holders(session, relation)?;
        if attempt == ATTEMPTS {
            return Err(Error::refused(
                error.to_string(),
                format!(
                    "{holders}Wait until it is free; or end a session with pg_terminate_backend, a prepared transaction with \
                     ROLLBACK PREPARED."
                ),
            ));
        }
        note(format!("waiting for a lock: {error}. {holders}"));
    }
    Ok(())
}

/// Who has locks of a table.
fn holders(session: &Session, relation: Option<&str>) -> Result<String> {
    let Some(relation) = relation else { return Ok(String::new()) };
    // A prepared transaction has no process, but still the virtual number of its session.
    let rows = session.query(
        "SELECT DISTINCT CASE WHEN l.pid IS NULL THEN format('prepared transaction %L', (
                                  SELECT gid FROM pg_prepared_xacts AS x JOIN pg_locks AS t ON t.transactionid = x.transaction
                                  WHERE t.pid IS NULL AND t.virtualtransaction = l.virtualtransaction))
                              WHEN usename IS NOT NULL
                                  THEN format('process %s of role %s (%s, since %s)', l.pid, usename, state, xact_start)
                              ELSE format('process %s', l.pid) END
         FROM pg_locks AS l LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
         WHERE granted AND locktype = 'relation' AND relation = $1::oid AND l.pid IS DISTINCT FROM pg_backend_pid()
             AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        &[relation],
    )?;
    let names: Vec<String> = rows.iter().map(|row| row.string(0)).collect();
    Ok(if names.is_empty() {
        String::new()
    } else {
        format!("The table is locked by {}. ", names.join(", "))
    })
}

/// Checks that nothing depends on the extensions.
fn nothing_is_left(installations: &[Installation]) -> Result {
    let mut left = Vec::new();
    for installation in installations {
        left.extend(
            Dependent::all(installation)?.iter().map(|dependent| dependent.line(&installation.database)),
        );
    }
    still_depend(left, "")
}

/// Checks that nothing depends on the extensions that no step ends: the first one already makes INSERTs fail.
fn refuse_stuck(installations: &[Installation], dependents: &[Vec<Dependent>]) -> Result {
    let mut left = Vec::new();
    for (installation, dependents) in installations.iter().zip(dependents) {
        let stuck = dependents.iter().filter(|dependent| dependent.is_stuck);
        left.extend(stuck.map(|dependent| dependent.line(&installation.database)));
    }
    still_depend(left, "Nothing was changed. ")
}

/// The error that objects depend on idgen, if there are any.
fn still_depend(mut left: Vec<String>, before: &str) -> Result {
    if left.is_empty() {
        return Ok(());
    }
    let objects = count(left.len(), "object");
    let depend = if left.len() == 1 { "depends" } else { "depend" };
    left.truncate(20);
    Err(Error::refused(
        format!("{objects} still {depend} on idgen: {}", left.join("; ")),
        format!(
            "{before}Change or drop what is named, and run the same command again. Never use DROP EXTENSION ... CASCADE: it \
             drops tables with their rows."
        ),
    ))
}

/// The steps, or what a person has to do, after which a server no longer preloads idgen at its next start.
fn unload<'a>(member: &'a Member, preload: &Preload, steps: &mut Vec<Step<'a>>, by_hand: &mut Vec<String>) {
    let name = &member.server.name;
    let without = |libraries: &[String]| -> Vec<String> {
        libraries.iter().filter(|library| !preload::is_idgen(library)).cloned().collect()
    };
    let names = |line: &&Line| line.libraries.iter().any(|library| preload::is_idgen(library));
    let rest = without(&preload.next());
    let list = lists::text(&rest);
    if preload.keeper != Keeper::Files {
        if preload.will_have_idgen() {
            let where_ = match preload.keeper {
                Keeper::CommandLine => "on the command line of the server",
                Keeper::Patroni => "by patronictl edit-config",
                Keeper::Operator | Keeper::Files => "where its configuration is kept",
            };
            by_hand.push(format!(
                "{name}: take idgen out of shared_preload_libraries {where_}; what is left is {}",
                if rest.is_empty() { "nothing, so remove the setting" } else { &list }
            ));
        }
        return;
    }
    for line in preload.lines.iter().filter(|line| !line.is_auto).filter(names) {
        by_hand.push(format!(
            "{name}: in {}, line {}, write shared_preload_libraries = '{}'",
            line.file,
            line.number,
            lists::text(&without(&line.libraries))
        ));
    }
    let Some(auto) = preload.lines.iter().filter(|line| line.is_auto).find(names) else { return };
    // SET with an empty list names a library with an empty name, and RESET brings the list of the other files back.
    let statement = if rest.is_empty() {
        match preload.lines.iter().rfind(|line| !line.is_auto) {
            Some(line) if !line.libraries.is_empty() => {
                if !names(&line) {
                    by_hand.push(format!(
                        "{name}: in {}, line {}, write shared_preload_libraries = '', which is in effect already by {}",
                        line.file, line.number, auto.file
                    ));
                }
                return;
            }
            _ => "ALTER SYSTEM RESET shared_preload_libraries".to_owned(),
        }
    } else {
        preload::alter_system(&rest)
    };
    let what = format!("have {name} no longer preload idgen: shared_preload_libraries = '{list}'");
    steps.push(Step::new(what, move || {
        member.session.run(&statement)?;
        preload::prove(&member.session, false)
    }));
}

/// The steps that remove the mark and the extensions, once nothing mints any more.
fn take_away<'a>(
    primary: &'a Member,
    installations: &'a [Installation],
    steps: &mut Vec<Step<'a>>,
) -> Result {
    let name = &primary.server.name;
    let Some(first) = installations.first() else {
        if primary.session.value(HAS_MARK, &[])? == "t" {
            return Err(Error::refused(
                format!(
                    "{name} still has the high-water mark, and no database has the extension, which can remove it"
                ),
                "Nothing was changed. Run CREATE EXTENSION idgen in a database of your own, and the same command again.",
            ));
        }
        return Ok(());
    };
    let remove = format!("SELECT {}()", first.extension.name("snowflake_remove_mark"));
    steps.push(Step::new(
        format!("remove the high-water mark from {name} and its standbys, for good"),
        move || match first.session.query(&remove, &[]) {
            Err(error) if error.code() == "55000" => Err(Error::refused(
                error.to_string(),
                format!("Something has minted since the server started. Restart {name} while nobody mints."),
            )),
            result => result.map(drop),
        },
    ));
    for Installation { database, session, .. } in installations {
        steps.push(Step::new(format!("drop the extension from database \"{database}\""), move || {
            patiently(session, None, || session.run("DROP EXTENSION IF EXISTS idgen RESTRICT").map(drop))
        }));
    }
    Ok(())
}

/// Whether no database has the extension, and no server the mark. Standbys may take a moment.
fn prove(cluster: &Cluster, primary: &Member) -> Result<bool> {
    let found = extension::installations(primary.server, &primary.session)?;
    if !found.there.is_empty() || !found.not_seen.is_empty() {
        return Ok(false);
    }
    for member in cluster.members() {
        let began = Instant::now();
        while member.session.value(HAS_MARK, &[])? == "t" {
            if !member.is_standby || began.elapsed() > REPLAY {
                note(format!("{} still has the high-water mark", member.server.name));
                return Ok(false);
            }
            session::pause(Duration::from_millis(100))?;
        }
    }
    Ok(true)
}

/// What stays behind, each with the statement that removes it or the line of a file that has it.
fn leftovers(cluster: &Cluster, primary: &Member) -> Result<Vec<String>> {
    let mut left = Vec::new();
    for database in extension::databases(&primary.session)? {
        let session = primary.server.connect_to(&database)?;
        // What a superuser is told to drop belongs to none else. The portable edition mints.
        let functions = session.run(
            "SELECT nspname FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = pronamespace
                 JOIN pg_roles AS r ON r.oid = proowner
             WHERE proname = 'shard_of' AND proargtypes = '20'::oidvector AND rolsuper
                 AND prolang = (SELECT oid FROM pg_language WHERE lanname = 'sql')
                 AND NOT EXISTS (SELECT FROM pg_proc AS o WHERE o.pronamespace = n.oid AND proname = 'snowflake_next_id')
             ORDER BY nspname",
        )?;
        let mut statements: Vec<String> = functions
            .iter()
            .map(|row| format!("DROP FUNCTION {}.shard_of(bigint)", Session::identifier(&row.string(0))))
            .collect();
        let schema = session.query("SELECT FROM pg_namespace WHERE nspname = $1", &[SCHEMA])?;
        if schema.iter().next().is_some() {
            statements.push(format!("DROP SCHEMA {}", Session::identifier(SCHEMA)));
        }
        left.extend(statements.iter().map(|statement| format!("in database \"{database}\": {statement}")));
    }
    let rows = primary.session.run(
        "SELECT datname, rolname, split_part(s, '=', 1), substr(s, strpos(s, '=') + 1)
         FROM pg_db_role_setting LEFT JOIN pg_database AS d ON d.oid = setdatabase LEFT JOIN pg_roles AS r ON r.oid = setrole,
              unnest(setconfig) AS s
         WHERE starts_with(s, 'idgen.') OR starts_with(s, 'search_path=') ORDER BY 1, 2, 3",
    )?;
    for row in rows.iter() {
        let (database, role, name, value) = (row.text(0), row.text(1), row.string(2), row.string(3));
        let change = if name == "search_path" {
            let Some(mut path) = lists::elements(&value, lists::Of::Schemas) else { continue };
            if !path.iter().any(|schema| schema == SCHEMA) {
                continue;
            }
            path.retain(|schema| schema != SCHEMA);
            let rest: Vec<String> = path.iter().map(|schema| Session::literal(schema)).collect();
            if rest.is_empty() {
                "RESET search_path".into()
            } else {
                format!("SET search_path = {}", rest.join(", "))
            }
        } else {
            format!("RESET {name}")
        };
        let database = database.map(|name| Session::identifier(&name));
        left.push(match (role.map(|name| Session::identifier(&name)), database) {
            (Some(role), Some(database)) => format!("ALTER ROLE {role} IN DATABASE {database} {change}"),
            (Some(role), None) => format!("ALTER ROLE {role} {change}"),
            (None, Some(database)) => format!("ALTER DATABASE {database} {change}"),
            (None, None) => format!("ALTER ROLE ALL {change}"),
        });
    }
    for member in cluster.members() {
        let rows = member.session.run(
            "SELECT name, sourcefile, sourceline, sourcefile = current_setting('data_directory') || '/postgresql.auto.conf'
             FROM pg_file_settings WHERE lower(name) LIKE 'idgen.%' ORDER BY seqno",
        )?;
        left.extend(rows.iter().map(|row| {
            let (server, name) = (&member.server.name, row.string(0));
            if row.is_true(3) {
                format!("on {server}: ALTER SYSTEM RESET {name}")
            } else {
                format!("on {server}: {name} in {}, line {}", row.string(1), row.string(2))
            }
        }));
    }
    Ok(left)
}
