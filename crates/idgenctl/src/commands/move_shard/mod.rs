//! `idgenctl move`: moves a logical shard, which is a schema of a database, to another server while clients keep working.
//!
//! No row is lost, no id is minted twice, and ids of the target are greater than those of the source. While the rows are
//! copied, clients can neither read nor write the schema. Everything that can be checked is checked before the schema is
//! closed. If something fails after that, the move is undone, unless the target may already mint.
//!
//! The marker on the source says that a move has begun, and whether the target may mint. The schema on the source is called
//! `SCHEMA_moving` from the moment at which it is closed, and `SCHEMA_moved` from that on at which the target may mint.
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

use std::time::{SystemTime, UNIX_EPOCH};

use idgen_ids::Shard;
use idgen_ids::shard_set::ShardSet;
use serde_json::json;

use self::checks::{At, refused};
use self::lists::Lists;
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
use crate::topology::fleet::{self, Member};

/// Shows what the program does, with the time.
fn say(text: impl AsRef<str>) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, ms) = (now.as_secs() % 86400, now.subsec_millis());
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    note(format!("{hours:02}:{minutes:02}:{seconds:02}.{ms:03}  {}", text.as_ref()));
}

/// The statement that gives a schema a comment.
fn set_comment(schema: &str, comment: Option<&str>) -> String {
    let comment = comment.map_or_else(|| "NULL".into(), Session::literal);
    format!("COMMENT ON SCHEMA {} IS {comment}", Session::identifier(schema))
}

/// The statement that renames a schema.
fn rename(from: &str, to: &str) -> String {
    format!("ALTER SCHEMA {} RENAME TO {}", Session::identifier(from), Session::identifier(to))
}

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Begin,
    Undo,
    Finish,
}

/// The names of the schema.
struct Names {
    schema: String,
    moving: String,
    moved: String,
}

/// Which of the names there are in a database.
#[derive(PartialEq, Eq)]
struct There {
    schema: bool,
    moving: bool,
    moved: bool,
}

impl Names {
    const NOTHING: There = There { schema: false, moving: false, moved: false };
    const ONLY_SCHEMA: There = There { schema: true, moving: false, moved: false };

    fn shown(&self, there: &There) -> String {
        let names = [(there.schema, &self.schema), (there.moving, &self.moving), (there.moved, &self.moved)];
        let names: Vec<&str> = names.iter().filter(|(is, _)| *is).map(|(_, name)| name.as_str()).collect();
        if names.is_empty() { "none of the names".into() } else { names.join(" and ") }
    }

    fn has(&self, schema: &str) -> bool {
        [&self.schema, &self.moving, &self.moved].into_iter().any(|name| name == schema)
    }

    fn on(&self, session: &Session) -> Result<There> {
        let rows = session.query(
            "SELECT bool_or(nspname = $1), bool_or(nspname = $2), bool_or(nspname = $3) FROM pg_namespace",
            &[&self.schema, &self.moving, &self.moved],
        )?;
        let row = rows.row(0);
        Ok(There { schema: row.is_true(0), moving: row.is_true(1), moved: row.is_true(2) })
    }
}

/// The facts of a move, which nothing changes.
struct Plan<'a> {
    cli: &'a Cli,
    how: How,
    names: Names,
    shard: Shard,
    /// What the marker said at the beginning of this run.
    begun: Option<Begun>,
    source: Side<'a>,
    target: Side<'a>,
    /// Servers that an undo cannot reach.
    away: Vec<&'a Server>,
    /// The target as the owner of the schema.
    owner: Option<Place<'a>>,
    lists: Lists<'a>,
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
///
/// # Errors
/// Whatever is in the way. The message says what was changed, and how to go on.
pub fn run(cli: &Cli, arguments: &Arguments) -> Result<u8> {
    signals::notice_signals();
    copy::check_programs()?;
    let servers = Servers::load(cli, arguments)?;
    let owner = arguments.owner.as_deref();
    let owner = owner.map(|connection| fleet::of_connection(Some("the owner"), connection)).transpose()?;
    let plan = Plan::of(cli, arguments, &servers, owner.as_ref())?;
    let turn = Turn::take(&plan.source, &plan.target)?;
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
        let how = match (arguments.undo, arguments.finish) {
            (true, _) => How::Undo,
            (_, true) => How::Finish,
            _ => How::Begin,
        };
        let schema = arguments.schema.clone();
        let [moving, moved] = ["moving", "moved"].map(|end| format!("{schema}_{end}"));
        let names = Names { schema, moving, moved };
        if names.moving.contains('\0') || names.schema.is_empty() {
            return Err(Error::Usage("this is no name of a schema".into()));
        }
        let found = servers.find(&names, how == How::Undo)?;
        let source = &found.source[0];
        // Names of 64 bytes and more would be cut.
        if source.session.value("SELECT octet_length($1)", &[&names.moving])?.parse().unwrap_or(64) > 63 {
            return refused(
                "the name of the schema is too long for _moving to be appended",
                "Rename the schema.",
            );
        }
        let begun = Begun::of(&source.session, &names.schema)?;
        let shard = find_shard(&source.session, &names, begun.as_ref(), arguments.shard)?;
        let oid =
            source.session.value("SELECT oid FROM pg_database WHERE datname = current_database()", &[])?;
        let mark = format!("idgenctl move {} of {}/{oid}", i32::from(shard), source.system);
        let side = |role: &'static str, members: &[Member<'a>]| {
            let place = |(number, member): (usize, &Member<'a>)| {
                let name = match number {
                    0 => format!("the {role}"),
                    _ => format!("standby {}", member.server.name),
                };
                Place::new(name, member.server, &mark, member.has_patroni)
            };
            let system = members.first().map(|member| member.system.clone()).unwrap_or_default();
            Side { role, places: members.iter().enumerate().map(place).collect(), system }
        };
        let (source, mut target) = (side("source", &found.source), side("target", &found.target));
        if target.places.is_empty() {
            target.places.push(Place::new("the target", found.to, &mark, false));
        }
        let owner = owner.map(|server| Place::new("the owner", server, &mark, false));
        let lists = Lists { program: arguments.set_list.as_deref() };
        Ok(Plan { cli, how, names, shard, begun, source, target, away: found.away, owner, lists, mark })
    }

    /// A list without the shard.
    fn without(&self, list: &ShardSet) -> Result<ShardSet> {
        let without = list.without(self.shard);
        if without == ShardSet::NONE {
            return refused(
                "the source has no other shard, and an empty list would mean all shards",
                "Add another shard to its list.",
            );
        }
        Ok(without)
    }

    /// The comment of a schema; none if there is no such schema either.
    fn comment_on(&self, place: &Place<'_>, schema: &str) -> Result<Option<String>> {
        let rows = place.query(
            "SELECT coalesce(obj_description(oid, 'pg_namespace'), '') FROM pg_namespace WHERE nspname = $1",
            &[schema],
        )?;
        Ok(rows.iter().next().map(|row| row.string(0)))
    }

    /// What the marker says now.
    fn begun_now(&self) -> Result<Option<Begun>> {
        Begun::of(&*self.source.primary().session()?, &self.names.schema)
    }
}

/// The shard that the marker of a move names, or the command line, or the defaults in the schema.
fn find_shard(session: &Session, names: &Names, begun: Option<&Begun>, given: Option<u16>) -> Result<Shard> {
    let minting = columns::minting(session)?;
    let own = minting.iter().filter(|column| names.has(&column.schema));
    let mut found: Vec<i32> = own.filter_map(|column| column.shard).collect();
    found.sort_unstable();
    found.dedup();
    let known = begun.map(|begun| begun.shard);
    if let (Some(known), Some(given)) = (known, given)
        && known != given
    {
        return refused(
            format!("a different move was interrupted: it moves with shard {known}"),
            "Leave out --shard.",
        );
    }
    let Some(shard) = known.or(given).map(i32::from).or(found.first().copied()) else {
        return refused(
            format!("no default in schema {} names a shard", names.schema),
            "Look at the name of the schema, check that source and target are not swapped, or name the shard with --shard.",
        );
    };
    if known.is_none() && found.iter().any(|other| *other != shard) {
        let all = found.iter().map(i32::to_string).collect::<Vec<_>>().join(", ");
        return refused(
            format!("the schema mints for other shards than one: {all}"),
            "A schema moves with one shard: give all its defaults the same.",
        );
    }
    Shard::try_from(shard).map_err(|error| Error::Usage(error.to_string()))
}

impl Run<'_> {
    fn go(&mut self) -> Result {
        let plan = self.plan;
        if plan.how == How::Undo {
            return self.undo_earlier();
        }
        let sides = [plan.source.primary(), plan.target.primary()];
        let at = checks::state(plan)?;
        if at == At::Complete && plan.begun.is_none() {
            say("the move is complete, and nothing is left to finish");
            return self.finished();
        }
        rights::check_owner(plan)?;
        checks::standbys(plan, &plan.source)?;
        checks::standbys(plan, &plan.target)?;
        checks::settings(plan)?;
        checks::lists(plan, at)?;
        if at == At::Open {
            checks::surroundings(plan)?;
            rights::check_roles(plan)?;
            let (_look, snapshot) = rights::look_at(plan, &plan.names.schema)?;
            rights::check_names_on_target(plan)?;
            copy::rehearse(plan, &snapshot)?;
        }
        self.show()?;
        let (verb, shard) =
            (if plan.how == How::Finish { "Finish moving" } else { "Move" }, i32::from(plan.shard));
        output::consent(plan.cli, &format!("{verb} schema {} with shard {shard}?", plan.names.schema))?;
        // Nothing ends the wait of a commit for a synchronous standby that is down.
        sides.into_iter().try_for_each(turn::commit)?;
        self.carry_out(at)?;
        self.finished()
    }

    /// Shows what will be done.
    fn show(&self) -> Result {
        let plan = self.plan;
        let size = plan.source.primary().value(
            "SELECT pg_size_pretty(coalesce(sum(pg_total_relation_size(c.oid)), 0))
             FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace
             WHERE nspname IN ($1, $2, $3) AND relkind IN ('r', 'm')",
            &[&plan.names.schema, &plan.names.moving, &plan.names.moved],
        )?;
        note(format!("schema {}, shard {}, {size}", plan.names.schema, i32::from(plan.shard)));
        for (side, is_source) in [(&plan.source, true), (&plan.target, false)] {
            let (place, before) = (side.primary(), lists::of(side.primary())?);
            let after = if is_source { before.without(plan.shard) } else { before.with(plan.shard) };
            let standbys: Vec<&str> =
                side.standbys().iter().map(|place| place.server.name.as_str()).collect();
            let standbys = if standbys.is_empty() { "none".into() } else { standbys.join(", ") };
            let database = place.value("SELECT current_database()", &[])?;
            note(format!(
                "    {}: {}, database {database}, standbys: {standbys}, idgen.allowed_shards: {before} -> {after}",
                place.role, place.server.name
            ));
            if place.has_patroni {
                note(
                    "        Patroni applies a list at its next loop: the schema stays closed for up to loop_wait longer",
                );
            }
        }
        if let Some(owner) = &plan.owner {
            note(format!("    restored by {}", owner.fresh()?.value("SELECT current_user", &[])?));
        }
        Ok(())
    }

    fn carry_out(&mut self, at: At) -> Result {
        let plan = self.plan;
        let (source, target) = (plan.source.primary(), plan.target.primary());
        let bound = if at == At::Open {
            // Let whatever cannot set a list fail now.
            for side in [&plan.source, &plan.target] {
                plan.lists.tell_program(side, &lists::of(side.primary())?)?;
                side.places.iter().try_for_each(|place| plan.lists.try_out(place))?;
            }
            ids::rehearse(plan)?;
            say("closing the schema and the shard on the source");
            close::close(self)?
        } else {
            say(format!("continuing the move of {}", plan.names.schema));
            self.turn.end_others(source)?;
            self.turn.end_others(target)?;
            self.stage = if at == At::Moving { Stage::Resumed } else { Stage::Opened };
            let without = plan.without(&lists::of(source)?)?;
            plan.lists.tell_program(&plan.source, &without)?;
            plan.lists.set_each(&plan.source.places, &without)?;
            Library::of(&*source.session()?)?.close(plan.shard)?
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
        let plan = self.plan;
        self.stage = Stage::Begun;
        if plan.begun.is_some() {
            return Ok(());
        }
        let session = plan.source.primary().session()?;
        let (shard, schema) = (i32::from(plan.shard) as u16, plan.names.schema.clone());
        let begun = Begun { shard, schema, to: plan.target.system.clone(), opened: false };
        session.run(&format!("CREATE SCHEMA {}; {}", begun.marker(), begun.write())).map(drop)
    }

    /// Lets the target mint. From here on, a run that is interrupted is finished and not undone, and the marker says so.
    fn open(&mut self, at: At) -> Result {
        let plan = self.plan;
        let (source, target, names) = (plan.source.primary(), plan.target.primary(), &plan.names);
        say("opening it on the target and its standbys");
        let session = source.session()?;
        let comment = plan.comment_on(source, &names.moving)?.or(plan.comment_on(source, &names.moved)?);
        if matches!(at, At::Open | At::Moving) {
            if names.on(&*target.session()?)?.schema {
                return refused(
                    format!("the target has a schema {} by now", names.schema),
                    "Drop or rename it.",
                );
            }
            let Some(begun) = plan.begun_now()? else {
                return refused(
                    "the marker of the move on the source is gone",
                    "Run the same command with --undo.",
                );
            };
            session.run(&format!("BEGIN; {}", rename(&names.moving, &names.moved)))?;
            session.run(&Begun { opened: true, ..begun }.write())?;
            self.turn.prove(&session)?;
            session.set_patience(None);
            session.run("COMMIT")?;
        }
        self.stage = Stage::Opened;
        let with = lists::of(target)?.with(plan.shard);
        plan.lists.tell_program(&plan.target, &with)?;
        plan.lists.set(target, &with)?;
        let session = target.fresh()?;
        // It was closed there if it has moved from there before.
        Library::of(&session)?.reopen(plan.shard)?;
        if at != At::Complete {
            let comment = comment.filter(|comment| !comment.is_empty());
            session.run(&format!(
                "{}; {}",
                rename(&names.moving, &names.schema),
                set_comment(&names.schema, comment.as_deref())
            ))?;
        }
        let standbys = plan.lists.set_each(plan.target.standbys(), &with);
        self.stage = Stage::Done;
        standbys.map_err(|error| Error::Broken {
            what: format!("the schema has moved, but not all standbys of the target have its list: {error}"),
            hint: "Run the same command with --finish.".into(),
        })?;
        let marker = plan.begun_now().and_then(|begun| match begun {
            Some(begun) => source.query(&format!("DROP SCHEMA {}", begun.marker()), &[]).map(drop),
            None => Ok(()),
        });
        if let Err(error) = marker {
            say(format!("{error}. When the source is there again, run the same command with --finish"));
        }
        Ok(())
    }

    fn finished(&self) -> Result {
        let plan = self.plan;
        let (source, target) = (plan.source.primary(), plan.target.primary());
        say(format!(
            "done. ANALYZE the tables on the target, and let the clients of schema {} connect to it. Once you no longer need \
             the old rows, on the source: DROP SCHEMA {} CASCADE;",
            plan.names.schema,
            Session::identifier(&plan.names.moved)
        ));
        self.report(&[("source", source), ("target", target)])
    }

    /// Prints the lists at the end for programs. The move is done, whatever has happened to a server since.
    fn report(&self, sides: &[(&str, &Place<'_>)]) -> Result {
        let plan = self.plan;
        if !plan.cli.json {
            return Ok(());
        }
        let mut report = json!({ "schema": plan.names.schema, "shard": i32::from(plan.shard) });
        for (role, place) in sides {
            let list = lists::of(place).ok().map(|list| list.to_string());
            report[role] = json!({ "server": place.server.name, "allowed_shards": list });
        }
        output::print(output::json(&report))
    }
}
