//! `idgenctl move`: moves a logical shard, which is a schema of a database, to another server while clients keep working.
//!
//! No row is lost, no id is minted twice, and ids of the target are greater than those of the source. While the rows are
//! copied, clients can neither read nor write the schema. Everything that can be checked is checked before the schema is
//! closed. If something fails after that, the move is undone, unless the target may already mint. The name of the schema
//! on the source says how far a move has come:
//!
//! - `SCHEMA`: it has not begun, or was undone.
//! - `SCHEMA_moving`: the source is closed, and the target does not mint.
//! - `SCHEMA_moved`: the target may mint. After the move, these are the old rows.
//!
//! While a schema moves, the first line of its comment on the source names the shard; its own comment follows. The comment
//! of the copy on the target is the beginning of the application_name of the move's sessions.

mod checks;
mod close;
mod copy;
mod ids;
mod lists;
mod rights;
mod sides;
mod turn;
mod undo;

use std::cell::{Cell, RefCell};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use idgen_ids::Shard;
use idgen_ids::shard_set::ShardSet;

use self::lists::Lists;
use self::sides::{Place, Role, Servers, Side};
use crate::cli::{Cli, Move as Arguments};
use crate::connection::server::Server;
use crate::connection::session::Session;
use crate::idgen::extension::Extension;
use crate::terminal::error::{Error, Result};
use crate::terminal::output;
use crate::terminal::signals;
use crate::topology::fleet;

/// Shows what the program does, with the time.
fn say(text: impl AsRef<str>) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, ms) = (now.as_secs() % 86400, now.subsec_millis());
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    output::note(format!("{hours:02}:{minutes:02}:{seconds:02}.{ms:03}  {}", text.as_ref()));
}

/// The comment that a schema had before it moved.
fn own_comment(comment: Option<&str>) -> Option<&str> {
    let comment = comment?;
    let (first, rest) = comment.split_once('\n').unwrap_or((comment, ""));
    if !first.starts_with("moves with shard ") {
        return Some(comment);
    }
    Some(rest).filter(|rest| !rest.is_empty())
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

/// What the end of a run has to do if it fails.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Unchanged,
    /// This run has closed the schema, and undoes it.
    Closed,
    /// An earlier run has closed it. A person decides.
    Resumed,
    /// The target may mint.
    Opened,
    Done,
}

/// A move.
struct Move<'a> {
    cli: &'a Cli,
    how: How,
    schema: String,
    moving: String,
    moved: String,
    shard: Shard,
    source: Side<'a>,
    target: Side<'a>,
    /// Servers that an undo cannot reach.
    away: Vec<&'a Server>,
    /// The target as the owner of the schema.
    owner: Option<Place<'a>>,
    lists: Lists<'a>,
    /// What a copy of this move has for a comment. With the side, it is the application_name of the move's sessions, which a
    /// later run finds them by. The source and the target may have the same system identifier.
    name: String,
    idgen: Extension,
    lock: RefCell<Option<Session>>,
    hold: RefCell<Option<Session>>,
    stage: Cell<Stage>,
    /// The list that the source has again after an undo.
    allowed: RefCell<String>,
    /// The list that the source has got, once it may have it.
    withdrawn: RefCell<Option<String>>,
    /// The list that the target gets, once it may have it.
    with: RefCell<String>,
}

/// Moves the schema.
///
/// # Errors
/// Whatever is in the way. The message says what was changed, and how to go on.
pub fn run(cli: &Cli, arguments: &Arguments) -> Result<u8> {
    signals::notice_signals();
    let how = match (arguments.undo, arguments.finish) {
        (true, _) => How::Undo,
        (_, true) => How::Finish,
        _ => How::Begin,
    };
    let schema = arguments.schema.clone();
    let [moving, moved] = ["moving", "moved"].map(|end| format!("{schema}_{end}"));
    if moving.contains('\0') || schema.is_empty() {
        return Err(Error::Usage("this is no name of a schema".into()));
    }
    copy::check_programs()?;
    let servers = Servers::load(cli, arguments)?;
    let owner = match &arguments.owner {
        Some(connection) => Some(fleet::of_connection(Some("the owner"), connection)?.remove(0)),
        None => None,
    };
    let (source, target, away) = servers.sides(&[&schema, &moving, &moved], how == How::Undo)?;

    let place = source.primary();
    // Names of 64 bytes and more would be cut.
    if place.value("SELECT octet_length($1)", &[&moving])?.parse::<usize>().unwrap_or(64) > 63 {
        return Err(Error::refused(
            "the name of the schema is too long for _moving to be appended",
            "Rename the schema.",
        ));
    }
    let idgen = Extension::trusted(&*place.session()?)?;
    let shard = find_shard(place, &idgen, [&schema, &moving, &moved], arguments.shard)?;
    let oid = place.value("SELECT oid FROM pg_database WHERE datname = current_database()", &[])?;
    let name = format!("idgenctl move {} of {}/{oid}", i32::from(shard), source.system);
    let the_move = Move {
        cli,
        how,
        schema,
        moving,
        moved,
        shard,
        away,
        owner: owner.as_ref().map(|server| Place::new("the owner", server)),
        lists: Lists { program: arguments.set_list.as_deref() },
        name,
        idgen,
        lock: RefCell::default(),
        hold: RefCell::default(),
        stage: Cell::new(Stage::Unchanged),
        allowed: RefCell::new(lists::text(place)?),
        withdrawn: RefCell::default(),
        with: RefCell::default(),
        source,
        target,
    };
    let Move { source, target, owner, .. } = &the_move;
    source.places.iter().for_each(|place| place.set_name(&format!("{}, source", the_move.name)));
    target.places.iter().chain(owner).for_each(|place| place.set_name(&format!("{}, target", the_move.name)));
    the_move.go().map_err(|error| the_move.end(error))?;
    Ok(0)
}

/// The shard that the defaults in the schema name, or the comment of a move that was interrupted, or the command line.
fn find_shard(place: &Place<'_>, idgen: &Extension, names: [&str; 3], given: Option<u16>) -> Result<Shard> {
    let rows = place.query(
        &format!(
            "SELECT DISTINCT shard FROM {} WHERE \"schema\" IN ($1, $2, $3) AND shard IS NOT NULL ORDER BY shard",
            idgen.name("idgen_columns")
        ),
        &names,
    )?;
    let mut found: Vec<i32> = rows.iter().filter_map(|row| row.number(0)).collect();
    // The comment of a schema that does not move is its owner's.
    let comments = place.query(
        "SELECT CASE WHEN nspname <> $1 THEN obj_description(oid, 'pg_namespace') END
         FROM pg_namespace WHERE nspname IN ($1, $2, $3)",
        &names,
    )?;
    if comments.len() == 0 {
        return Err(Error::refused(
            format!("the source has no schema {}", names[0]),
            "Check that source and target are not swapped.",
        ));
    }
    let moves = comments
        .iter()
        .find_map(|row| row.string(0).lines().next()?.strip_prefix("moves with shard ")?.parse::<i32>().ok());
    let shown = |shards: &[i32]| shards.iter().map(i32::to_string).collect::<Vec<_>>().join(", ");
    let shard = match (given.map(i32::from), moves, &found[..]) {
        (Some(given), Some(moves), _) if given != moves => {
            return Err(Error::refused(
                format!("a different move was interrupted: it moves with shard {moves}"),
                "Leave out --shard.",
            ));
        }
        (Some(shard), ..) | (None, Some(shard), _) | (None, None, &[shard]) => shard,
        (None, None, []) => {
            return Err(Error::refused(
                format!("no default in schema {} names a shard", names[0]),
                "Look at the name of the schema, or name the shard with --shard.",
            ));
        }
        (None, None, several) => {
            return Err(Error::refused(
                format!("the schema mints for several shards: {}", shown(several)),
                "A schema moves with one shard: give all its defaults the same.",
            ));
        }
    };
    found.retain(|other| *other != shard);
    if !found.is_empty() {
        return Err(Error::refused(
            format!("the schema mints for other shards too: {}", shown(&found)),
            "A schema moves with one shard: give all its defaults the same.",
        ));
    }
    Shard::try_from(shard).map_err(|error| Error::Usage(error.to_string()))
}

impl Move<'_> {
    fn side(&self, role: Role) -> &Side<'_> {
        match role {
            Role::Source => &self.source,
            Role::Target => &self.target,
        }
    }

    fn shard_text(&self) -> String {
        i32::from(self.shard).to_string()
    }

    /// A list without the shard.
    fn without(&self, list: &ShardSet) -> Result<String> {
        let without = list.without(self.shard).to_string();
        if without.is_empty() {
            return Err(Error::refused(
                "the source has no other shard, and an empty list would mean all shards",
                "Add another shard to its list.",
            ));
        }
        Ok(without)
    }

    fn ask(&self, question: &str) -> Result {
        output::consent(self.cli, question)
    }

    fn go(&self) -> Result {
        let sides = [&self.source, &self.target];
        let needed = if self.how == How::Undo { &sides[..1] } else { &sides[..] };
        self.take_lock()?;
        // An undo needs no target.
        if !self.target.system.is_empty() {
            self.hold_target()?;
        }
        self.check_others(needed)?;
        self.check_names()?;
        if self.how == How::Undo {
            return self.undo_earlier();
        }
        self.check_owner()?;
        self.check_extension()?;
        let (at_source, at_target) =
            (self.state_of(self.source.primary())?, self.state_of(self.target.primary())?);
        self.check_state(&at_source, &at_target)?;
        let mut away = self.check_standbys(&self.source)?;
        away.extend(self.check_standbys(&self.target)?);
        self.check_settings()?;
        // A program may still have to write the list down where the servers read it after a restart.
        if self.how == How::Finish && self.lists.program.is_none() && self.is_complete()? {
            *self.withdrawn.borrow_mut() = Some(lists::text(self.source.primary())?);
            *self.with.borrow_mut() = lists::text(self.target.primary())?;
            say("the move is complete, and nothing is left to finish");
            return self.finished(&away);
        }
        self.check_lists(&at_source, &at_target)?;
        self.check_surroundings()?;
        if self.how == How::Begin {
            let snapshot = self.look_at(&self.schema)?;
            self.check_names_on_target()?;
            self.rehearse(&snapshot)?;
            self.look_away()?;
            self.check_foreign_keys()?;
        }
        self.check_clock()?;
        for side in sides {
            turn::commit(side.primary())?;
        }
        self.show()?;
        self.ask(&match self.how {
            How::Finish => format!("Finish the move of schema {}?", self.schema),
            _ => format!("Move schema {} with shard {}?", self.schema, self.shard_text()),
        })?;
        self.carry_out(&at_source, &at_target)?;
        self.finished(&away)
    }

    /// Shows what will be done.
    fn show(&self) -> Result {
        let (source, target) = (self.source.primary(), self.target.primary());
        let size = source.value(
            "SELECT pg_size_pretty(coalesce(sum(pg_total_relation_size(c.oid)), 0))
             FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace
             WHERE nspname IN ($1, $2, $3) AND relkind IN ('r', 'm')",
            &[&self.schema, &self.moving, &self.moved],
        )?;
        output::note(format!("schema {}, shard {}, {size}", self.schema, self.shard_text()));
        for (side, after) in [
            (&self.source, lists::of(source)?.without(self.shard)),
            (&self.target, lists::of(target)?.with(self.shard)),
        ] {
            let standbys: Vec<&str> =
                side.standbys().iter().map(|place| place.server.name.as_str()).collect();
            let standbys = if standbys.is_empty() {
                "no standbys".into()
            } else {
                format!("standbys: {}", standbys.join(", "))
            };
            let place = side.primary();
            let database = place.value("SELECT current_database()", &[])?;
            output::note(format!(
                "    {}: {}, database {database}, {standbys}",
                place.role, place.server.name
            ));
            output::note(format!("        idgen.allowed_shards: {} -> {after}", lists::text(place)?));
        }
        if let Some(owner) = &self.owner {
            let user = owner.fresh()?.value("SELECT current_user", &[])?;
            output::note(format!("    restored by {user}"));
        }
        Ok(())
    }

    fn carry_out(&self, at_source: &str, at_target: &str) -> Result {
        let without_idgen = self.databases_without_idgen()?;
        // A person may have thought for long before consenting. Nothing ends the wait of a commit for a synchronous
        // standby that is down.
        turn::commit(self.source.primary())?;
        turn::commit(self.target.primary())?;
        if self.how == How::Begin {
            // Let whatever cannot set a list fail now.
            for side in [&self.source, &self.target] {
                self.lists.tell_program(side, &lists::text(side.primary())?)?;
                side.places.iter().try_for_each(|place| self.lists.try_out(place))?;
            }
            self.wait_for_clock()?;
            self.wait_for_commands(&without_idgen, "the schema was closed")?;
            say(format!("closing schema {} on the source", self.schema));
            self.close()?;
        } else {
            say(format!("continuing the move of {}", self.schema));
            self.end_others(Role::Source)?;
            self.end_others(Role::Target)?;
            self.stage.set(if at_source == "moved" { Stage::Opened } else { Stage::Resumed });
        }

        self.withdraw()?;
        // No command that begins from now on mints for the shard. The second is for a backend that already has a command
        // and does not show it yet.
        signals::pause(Duration::from_secs(1))?;
        self.wait_for_commands(&without_idgen, "the shard was withdrawn")?;
        // Read before the copy, during which other shards move it on, and the target's clock comes nearer to it.
        let mark = self.mark()?;
        if at_source != "moved" {
            // An existing copy is not trusted, but made again.
            if at_target.contains("moving") {
                self.drop_copy();
            }
            self.copy()?;
        }
        self.advance(mark)?;
        self.open(at_source)
    }

    fn withdraw(&self) -> Result {
        say(format!("withdrawing shard {} from the source and its standbys", self.shard_text()));
        let source = self.source.primary();
        // Read now, because somebody may have changed it since the checks.
        let before = lists::text(source)?;
        let without = self.without(&lists::of(source)?)?;
        *self.allowed.borrow_mut() = before;
        *self.withdrawn.borrow_mut() = Some(without.clone());
        self.lists.set_all(&self.source, &without)
    }

    fn open(&self, at_source: &str) -> Result {
        say("opening it on the target and its standbys");
        let (source, target) = (self.source.primary(), self.target.primary());
        let with = lists::of(target)?.with(self.shard).to_string();
        let name = if at_source == "moved" { &self.moved } else { &self.moving };
        let comment = self.comment_on(source, name)?;
        if at_source != "moved" {
            if self.state_of(target)? != "moving" {
                return Err(Error::refused(
                    format!("the target has a schema {} by now", self.schema),
                    "Drop or rename it.",
                ));
            }
            if self.state_of(source)? != "moving" {
                return Err(Error::refused(
                    format!("the source has a schema {} or {} by now", self.schema, self.moved),
                    "Drop or rename it.",
                ));
            }
            // From here on, an interrupted run is finished and not undone. The name of the rows on the source says so.
            self.stage.set(Stage::Resumed);
            self.in_lock(|lock| lock.run(&rename(&self.moving, &self.moved)).map(drop))?;
        }
        self.stage.set(Stage::Opened);
        *self.with.borrow_mut() = with.clone();
        self.lists.tell_program(&self.target, &with)?;
        self.lists.set(target, &with)?;
        if self.state_of(target)? != "schema" {
            let session = target.session()?;
            session.set_patience(None);
            // In one transaction.
            session.run(&format!(
                "{}; {}",
                rename(&self.moving, &self.schema),
                set_comment(&self.schema, own_comment(comment.as_deref()))
            ))?;
        }
        let mut left = Vec::new();
        for place in self.target.standbys() {
            if let Err(error) = self.lists.set(place, &with) {
                say(format!("{error}"));
                left.push(place.role.clone());
            }
        }
        self.stage.set(Stage::Done);
        if left.is_empty() {
            return Ok(());
        }
        Err(Error::Broken {
            what: format!("the schema has moved, but the list is not set on all: {}", left.join(", ")),
            hint: format!(
                "Run the same command with --finish. By hand, still to be done there: {}",
                self.lists.by_hand(&with)
            ),
        })
    }

    fn finished(&self, away: &[String]) -> Result {
        // Not read again: the move is done, whatever has happened to a server since.
        let without = self.withdrawn.borrow().clone().unwrap_or_default();
        let with = self.with.borrow();
        if self.cli.json {
            return output::print(output::json(&serde_json::json!({
                "schema": self.schema,
                "shard": i32::from(self.shard),
                "source": { "server": self.source.primary().server.name, "allowed_shards": without },
                "target": { "server": self.target.primary().server.name, "allowed_shards": *with },
                "not_connected": away,
            })));
        }
        say("done. ANALYZE the tables on the target. Once you no longer need the old rows, on the source:");
        say(format!("    DROP SCHEMA {} CASCADE;", Session::identifier(&self.moved)));
        say(format!(
            "idgen.allowed_shards is now \"{without}\" on the source, \"{with}\" on the target, and likewise on their standbys."
        ));
        if !away.is_empty() {
            say(format!(
                "These standbys were not connected, and need the list of their primary before they are promoted: {}",
                away.join(", ")
            ));
        }
        say(format!(
            "Now let the clients of schema {} connect to the target, {}.",
            self.schema,
            self.target.primary().server.name
        ));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    /// Promise: a schema that moves keeps its own comment, whatever is in it.
    #[test]
    fn the_comment_of_a_schema_is_found_again() {
        for (comment, own) in [
            (None, None),
            (Some("of Ada"), Some("of Ada")),
            (Some("moves with shard 5"), None),
            (Some("moves with shard 5\nof Ada\nand others"), Some("of Ada\nand others")),
        ] {
            assert_eq!(super::own_comment(comment), own);
        }
    }
}
