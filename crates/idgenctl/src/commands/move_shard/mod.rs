//! `idgenctl move`: moves a logical shard, which is a schema of a database, to another server while clients keep working.
//!
//! No row is lost, no id is minted twice, and ids of the target are greater than those of the source. While the rows are
//! copied, clients can neither read nor write the schema. Everything that can be checked is checked before the schema is
//! closed. If something fails after that, the move is undone, unless the target may already mint.
//!
//! The marker on the source says that a move has begun, and whether the target may mint. The schema on the source is called
//! `SCHEMA_moving` from the moment at which it is closed, and `SCHEMA_moved` from that on at which the target may mint. An
//! empty schema of a superuser keeps its name there, so that clients find nothing that somebody else puts in its place.
//! The copy is `SCHEMA_moving` until it is opened. Its comment is the application_name of the move's sessions.

mod checks;
mod close;
mod copy;
mod ids;
mod lists;
mod rights;
mod sides;
mod turn;
mod undo;

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use idgen_ids::Shard;

use self::checks::{At, refused};
use self::sides::{Place, Servers, Side};
use self::turn::Turn;
use crate::cli::{Cli, Move as Arguments};
use crate::commands::words::Begun;
use crate::connection::server::Server;
use crate::connection::session::Session;
use crate::idgen::columns;
use crate::idgen::library::Library;
use crate::terminal::error::{Error, Result};
use crate::terminal::output::{self, note};
use crate::terminal::signals;
use crate::topology::fleet;

/// The statement that gives a schema a comment. An empty one is none.
fn set_comment(schema: &str, comment: &str) -> String {
    format!("COMMENT ON SCHEMA {} IS {}", Session::identifier(schema), Session::literal(comment))
}

/// The statement that renames a schema.
fn rename(from: &str, to: &str) -> String {
    format!("ALTER SCHEMA {} RENAME TO {}", Session::identifier(from), Session::identifier(to))
}

/// The comment of an empty schema that keeps a name.
const KEPT: &str = "idgenctl keeps the name of a schema that has moved";

/// The statements that take the name and the comment from an empty schema of this program. Everybody may create a temporary
/// view of its name, and it cannot be dropped as long as there is one.
fn set_aside(schema: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let aside = format!("idgenctl_left_{}", now.as_micros());
    format!("{}; {}", rename(schema, &aside), set_comment(&aside, ""))
}

/// Drops an empty schema of this program, or sets it aside.
fn discard(session: &Session, schema: &str) -> Result {
    session.run(&format!("DROP SCHEMA {}", Session::identifier(schema))).map(drop).or_else(|error| {
        note(format!("{error}. It is left as a schema whose name begins with idgenctl_left"));
        session.run(&set_aside(schema)).map(drop)
    })
}

/// The names of the schema.
struct Names {
    schema: String,
    moving: String,
    moved: String,
}

impl Names {
    fn has(&self, schema: &str) -> bool {
        [&self.schema, &self.moving, &self.moved].into_iter().any(|name| name == schema)
    }

    /// Which of them there are in a database, but for one that is only kept.
    fn on(&self, session: &Session) -> Result<Vec<String>> {
        let rows = session.query(
            "SELECT nspname FROM pg_namespace WHERE nspname IN ($1, $2, $3) ORDER BY nspname",
            &[&self.schema, &self.moving, &self.moved],
        )?;
        let is_kept = self.is_kept(session)?;
        Ok(rows.iter().map(|row| row.string(0)).filter(|name| !(is_kept && *name == self.schema)).collect())
    }

    /// Whether an empty schema of a superuser keeps the name in a database.
    fn is_kept(&self, session: &Session) -> Result<bool> {
        let rows = session.query(
            "SELECT FROM pg_namespace AS n JOIN pg_roles AS r ON r.oid = nspowner
             WHERE nspname = $1 AND rolsuper AND obj_description(n.oid, 'pg_namespace') = $2",
            &[&self.schema, KEPT],
        )?;
        Ok(rows.len() > 0)
    }

    /// Gives the schema, which is called `SCHEMA_moving`, its name again, in the transaction of a session.
    fn give_back(&self, session: &Session) -> Result {
        session.run("SAVEPOINT kept")?;
        let name = Session::identifier(&self.schema);
        if self.is_kept(session)? && session.run(&format!("DROP SCHEMA {name}")).is_err() {
            session.run(&format!("ROLLBACK TO kept; {}", set_aside(&self.schema)))?;
            note(
                "an empty schema is left whose name begins with idgenctl_left, because something depends on it",
            );
        }
        session.run(&rename(&self.moving, &self.schema)).map(drop)
    }

    /// Takes it away, and keeps it, in the transaction of a session. Nobody gets a right there but to find that it is empty,
    /// whatever the default privileges are.
    fn take(&self, session: &Session) -> Result {
        let (away, name) = (rename(&self.schema, &self.moving), Session::identifier(&self.schema));
        session.run(&format!("{away}; CREATE SCHEMA {name}; {}", set_comment(&self.schema, KEPT)))?;
        let given = session.query(
            "SELECT format('REVOKE ALL ON SCHEMA %I FROM %I', nspname, rolname)
             FROM pg_namespace, aclexplode(nspacl) AS given JOIN pg_roles AS r ON r.oid = grantee
             WHERE nspname = $1 AND grantee <> nspowner",
            &[&self.schema],
        )?;
        given.iter().try_for_each(|row| session.run(&row.string(0)).map(drop))?;
        let rights =
            format!("REVOKE ALL ON SCHEMA {name} FROM PUBLIC; GRANT USAGE ON SCHEMA {name} TO PUBLIC");
        session.run(&rights).map(drop)
    }
}

/// Which of the names there are, for messages.
fn shown(there: &[String]) -> String {
    if there.is_empty() { "none of the names".into() } else { there.join(" and ") }
}

/// The facts of a move, which nothing changes.
struct Plan<'a> {
    cli: &'a Cli,
    arguments: &'a Arguments,
    names: Names,
    shard: Shard,
    /// What the marker said at the beginning of this run.
    begun: Option<Begun>,
    source: Side<'a>,
    target: Side<'a>,
    /// Servers that an undo cannot reach.
    away: Vec<&'a Server>,
    /// The target as the owner of the schema. An undo needs none.
    owner: Option<Place<'a>>,
    /// That role; empty if nobody knows it.
    restorer: String,
    /// The comment of a copy of this move, and the application_name of its sessions. The source and the target may have the
    /// same system identifier.
    mark: String,
}

/// What the end of a run has to do if it fails.
enum Stage {
    Unchanged,
    /// This run has begun to change something, and undoes it.
    Begun,
    /// An earlier run has. A person decides.
    Resumed,
    /// The target may mint.
    Opened,
    Done,
}

/// A run of the program.
struct Run<'a> {
    plan: &'a Plan<'a>,
    turn: Turn,
    stage: Stage,
}

/// Moves the schema.
pub fn run(cli: &Cli, arguments: &Arguments) -> Result<u8> {
    signals::notice_signals();
    copy::check_programs()?;
    let servers = Servers::load(cli, arguments)?;
    let owner = arguments.owner.as_deref().filter(|_| !arguments.undo);
    let owner = owner.map(|connection| fleet::of_connection(Some("the owner"), connection)).transpose()?;
    let plan = Plan::of(cli, arguments, &servers, owner.as_ref())?;
    let turn = Turn::take(&plan)?;
    if Begun::of(&plan.source.primary().session()?, &plan.names.schema)? != plan.begun {
        return refused(
            "another run has changed the state of the move meanwhile",
            "Run the same command again.",
        );
    }
    let mut run = Run { plan: &plan, turn, stage: Stage::Unchanged };
    run.go().map_err(|error| run.end(error))?;
    Ok(0)
}

impl<'a> Plan<'a> {
    fn of(
        cli: &'a Cli,
        arguments: &'a Arguments,
        servers: &'a Servers,
        owner: Option<&'a Server>,
    ) -> Result<Plan<'a>> {
        let schema = arguments.schema.clone();
        let [moving, moved] = ["moving", "moved"].map(|end| format!("{schema}_{end}"));
        // The server would cut it.
        if moving.len() > 63 {
            return Err(Error::Usage("the name of the schema is too long for _moving to be appended".into()));
        }
        let names = Names { schema, moving, moved };
        let found = servers.find(arguments.undo)?;
        let (session, system) = (&found.source[0].session, &found.source[0].system);
        let begun = Begun::of(session, &names.schema)?;
        let shard = find_shard(session, &names, begun.as_ref(), arguments.shard)?;
        let oid = session.value("SELECT oid FROM pg_database WHERE datname = current_database()", &[])?;
        let mark = format!("idgenctl move {} of {system}/{oid}", i32::from(shard));
        let source = Side::of("source", servers.from(), &found.source, &mark);
        let target = Side::of("target", servers.to(), &found.target, &mark);
        let owner = owner.map(|server| Place::new("the owner", server, &mark, false));
        let restorer = match (&owner, &begun) {
            (Some(owner), _) => rights::owner_role(owner, target.primary())?,
            (None, begun) => begun.as_ref().map(|begun| begun.owner.clone()).unwrap_or_default(),
        };
        Ok(Plan {
            cli,
            arguments,
            names,
            shard,
            begun,
            source,
            target,
            away: found.away,
            owner,
            restorer,
            mark,
        })
    }

    /// The marker of this move.
    fn marker(&self, opened: bool) -> Begun {
        let (shard, to) = (i32::from(self.shard) as u16, self.target.system.clone());
        Begun { shard, schema: self.names.schema.clone(), to, owner: self.restorer.clone(), opened }
    }

    /// The comment of a schema; none if there is no such schema either.
    fn comment_on(&self, place: &Place<'_>, schema: &str) -> Result<Option<String>> {
        let rows = place.query(
            "SELECT coalesce(obj_description(oid, 'pg_namespace'), '') FROM pg_namespace WHERE nspname = $1",
            &[schema],
        )?;
        Ok(rows.iter().next().map(|row| row.string(0)))
    }
}

/// The shard that the marker of a move names, or the command line, or the defaults in the schema.
fn find_shard(session: &Session, names: &Names, begun: Option<&Begun>, given: Option<u16>) -> Result<Shard> {
    let shards: BTreeSet<i32> = match begun {
        Some(begun) => [begun.shard.into()].into(),
        None => {
            let minting = columns::minting(session)?;
            let own = minting.iter().filter(|column| names.has(&column.schema));
            own.filter_map(|column| column.shard).chain(given.map(i32::from)).collect()
        }
    };
    match shards.first() {
        None => refused(
            format!("no default in schema {} names a shard", names.schema),
            "Look at the name of the schema, check that source and target are not swapped, or name the shard with --shard.",
        ),
        Some(shard) if shards.len() == 1 => {
            Shard::try_from(*shard).map_err(|error| Error::Usage(error.to_string()))
        }
        Some(_) => refused(
            format!("the schema mints for other shards than one: {shards:?}"),
            "A schema moves with one shard: give all its defaults the same.",
        ),
    }
}

impl Run<'_> {
    fn go(&mut self) -> Result {
        let plan = self.plan;
        if plan.arguments.undo {
            return self.undo_earlier();
        }
        let Some(at) = checks::state(plan)? else {
            note("the move is complete, and nothing is left to finish");
            return Ok(());
        };
        if plan.owner.is_none() && matches!(at, At::Open | At::Moving) {
            return refused(
                "the schema is restored by the role that owns it, and --owner does not say how it connects",
                "Give the connection string of the target with that user.",
            );
        }
        for side in [&plan.source, &plan.target] {
            checks::standbys(side)?;
            checks::settings(plan, side)?;
        }
        checks::lists(plan, at)?;
        if at == At::Open {
            checks::surroundings(plan)?;
            rights::check_roles(plan)?;
            let (_look, snapshot) = rights::look_at(plan, &plan.names.schema)?;
            copy::rehearse(plan, &snapshot)?;
        }
        self.show()?;
        let (schema, shard) = (&plan.names.schema, i32::from(plan.shard));
        output::consent(plan.cli, &format!("Move schema {schema} with shard {shard}?"))?;
        self.carry_out(at)?;
        note(format!(
            "done. ANALYZE the tables on the target, and let the clients of schema {schema} connect to it. Once you no longer \
             need the old rows, and no client looks there any more, on the source: DROP SCHEMA {} CASCADE; DROP SCHEMA {};",
            Session::identifier(&plan.names.moved),
            Session::identifier(schema)
        ));
        Ok(())
    }

    /// Shows what will be done.
    fn show(&self) -> Result {
        let plan = self.plan;
        for (side, is_source) in [(&plan.source, true), (&plan.target, false)] {
            let (place, before) = (side.primary(), lists::of(side.primary())?);
            let after = if is_source { before.without(plan.shard) } else { before.with(plan.shard) };
            let standbys: Vec<&str> =
                side.standbys().iter().map(|place| place.server.name.as_str()).collect();
            note(format!(
                "{}: {}, database {}, standbys: {}, idgen.allowed_shards: {before} -> {after}",
                place.role,
                place.server.name,
                place.value("SELECT current_database()", &[])?,
                if standbys.is_empty() { "none".into() } else { standbys.join(", ") }
            ));
            if place.has_patroni {
                note(
                    "    Patroni applies a list at its next loop: the schema stays closed for up to loop_wait longer",
                );
            }
        }
        note(format!(
            "restored by {}, whose constraints, index expressions and generated columns decide with for how long the schema \
             stays closed",
            plan.restorer
        ));
        Ok(())
    }

    fn carry_out(&mut self, at: At) -> Result {
        let plan = self.plan;
        let (source, target) = (plan.source.primary(), plan.target.primary());
        // The person may have taken long to consent.
        self.turn.prove(&plan.source)?;
        self.turn.prove(&plan.target)?;
        // Nothing ends the wait of a commit for a synchronous standby that is down.
        for place in [source, target] {
            let session = place.session()?;
            session.set_patience(Some(Duration::from_secs(10)));
            session.run("SELECT pg_logical_emit_message(true, 'idgenctl move', '')")?;
        }
        let bound = if at == At::Open {
            // Let whatever cannot set a list fail now.
            for side in [&plan.source, &plan.target] {
                lists::set_all(plan, &self.turn, side, &lists::of(side.primary())?)?;
            }
            ids::rehearse(plan)?;
            note("closing the schema and the shard on the source");
            close::close(self)?
        } else {
            note(format!("continuing the move of {}", plan.names.schema));
            self.stage = if at == At::Moving { Stage::Resumed } else { Stage::Opened };
            if at == At::Moving {
                // An undo must know who restores.
                self.turn.session(&plan.source, source)?.run(&plan.marker(false).write())?;
            }
            let without = lists::without(plan, &lists::of(source)?)?;
            lists::set_all(plan, &self.turn, &plan.source, &without)?;
            Library::of(&self.turn.session(&plan.source, source)?)?.close(plan.shard)?
        };
        if matches!(at, At::Open | At::Moving) {
            // A copy that is there is not trusted, but made again.
            self.drop_copy();
            copy::copy(plan)?;
        }
        if at != At::Complete {
            ids::pass(plan, bound)?;
        }
        self.open(at)
    }

    /// Creates the marker, which outlives this run.
    fn begin(&mut self) -> Result {
        self.stage = Stage::Begun;
        if self.plan.begun.is_some() {
            return Ok(());
        }
        let source = &self.plan.source;
        let (session, begun) = (self.turn.session(source, source.primary())?, self.plan.marker(false));
        session.run(&format!("CREATE SCHEMA {}; {}", begun.marker(), begun.write())).map(drop)
    }

    /// Lets the target mint. From here on, a run that is interrupted is finished and not undone, and the marker says so.
    fn open(&mut self, at: At) -> Result {
        let plan = self.plan;
        let (source, target, names) = (plan.source.primary(), plan.target.primary(), &plan.names);
        note("opening it on the target and its standbys");
        let begun = plan.marker(true);
        let comment = plan.comment_on(source, &names.moving)?.or(plan.comment_on(source, &names.moved)?);
        if matches!(at, At::Open | At::Moving) {
            if names.on(&target.session()?)?.contains(&names.schema) {
                return refused(
                    format!("the target has a schema {} by now", names.schema),
                    "Drop or rename it.",
                );
            }
            // Somebody may have made a standby meanwhile, or set a list.
            checks::standbys(&plan.source)?;
            checks::standbys(&plan.target)?;
            for place in &plan.source.places {
                if lists::of(place)?.contains(plan.shard) {
                    return refused(
                        format!("idgen.allowed_shards of {} has the shard again", place.role),
                        "Find out who sets it.",
                    );
                }
            }
            let session = source.session()?;
            session.run(&format!("BEGIN; {}; {}", rename(&names.moving, &names.moved), begun.write()))?;
            self.turn.prove(&plan.source)?;
            session.set_patience(None);
            session.run("COMMIT")?;
        }
        self.stage = Stage::Opened;
        let with = lists::of(target)?.with(plan.shard);
        lists::tell_program(plan, &self.turn, &plan.target, &with)?;
        lists::set(plan, &self.turn, &plan.target, target, &with)?;
        let session = self.turn.session(&plan.target, target)?;
        session.set_patience(None);
        // It was closed there if it has moved from there before.
        Library::of(&session)?.reopen(plan.shard)?;
        if at != At::Complete {
            let comment = set_comment(&names.schema, &comment.unwrap_or_default());
            session.run(&format!("{}; {comment}", rename(&names.moving, &names.schema)))?;
        }
        let set = |place| lists::set(plan, &self.turn, &plan.target, place, &with);
        let standbys = plan.target.standbys().iter().try_for_each(set);
        self.stage = Stage::Done;
        standbys.map_err(|error| Error::Broken {
            what: format!("the schema has moved, but not all standbys of the target have its list: {error}"),
            hint: "Run the same command with --finish.".into(),
        })?;
        // Others may have gone on, and moved it back.
        self.turn.prove(&plan.target)?;
        let session = self.turn.session(&plan.source, source);
        if let Err(error) = session.and_then(|session| discard(&session, &begun.marker())) {
            self.turn.prove(&plan.target)?;
            note(format!("{error}. When the source is there again, run the same command with --finish"));
        }
        Ok(())
    }
}
