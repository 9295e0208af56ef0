//! The source and the target, each with its standbys, found in the fleet.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use idgen_ids::Shard;
use idgen_ids::shard_set::ShardSet;

use crate::cli::{Cli, Move as Arguments};
use crate::commands::words::{self, of_copy, of_source};
use crate::connection::server::Server;
use crate::connection::session::{Rows, Session};
use crate::terminal::error::{Error, Result};
use crate::topology::cluster;
use crate::topology::fleet::{Fleet, Member};

/// For so long a server may be at work on what is usually quick, before it is taken for one that does not answer.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A server that takes part.
pub struct Place<'a> {
    /// What messages call it: "the source".
    pub role: String,
    /// How to connect to it.
    pub server: &'a Server,
    /// The application_name of its sessions.
    name: RefCell<String>,
    session: RefCell<Option<Rc<Session>>>,
}

impl<'a> Place<'a> {
    pub fn new(role: impl Into<String>, server: &'a Server) -> Place<'a> {
        let name = RefCell::new("idgenctl".into());
        Place { role: role.into(), server, name, session: RefCell::default() }
    }

    /// Gives all later sessions this application_name.
    pub fn set_name(&self, name: &str) {
        *self.name.borrow_mut() = name.into();
        self.forget();
    }

    /// The application_name of its sessions.
    pub fn name(&self) -> String {
        self.name.borrow().clone()
    }

    /// A session of its own.
    pub fn fresh(&self) -> Result<Session> {
        self.server.connect_with(&[("application_name", self.name.borrow().as_str())])
    }

    /// The session for whatever is quick. One that was lost, or is still at work for somebody who gave up, is replaced.
    pub fn session(&self) -> Result<Rc<Session>> {
        let mut kept = self.session.borrow_mut();
        if let Some(session) = kept.as_ref().filter(|session| session.is_idle()) {
            return Ok(session.clone());
        }
        *kept = None;
        let session = Rc::new(self.fresh()?);
        // An earlier run, or the end of this one, must see what a session of ours does.
        session.run("SET track_activities = on")?;
        session.set_patience(Some(PATIENCE));
        Ok(kept.insert(session).clone())
    }

    /// Ends that session.
    pub fn forget(&self) {
        *self.session.borrow_mut() = None;
    }

    pub fn query(&self, sql: &str, parameters: &[&str]) -> Result<Rows> {
        self.session()?.query(sql, parameters)
    }

    pub fn value(&self, sql: &str, parameters: &[&str]) -> Result<String> {
        self.session()?.value(sql, parameters)
    }
}

/// Which side.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Source,
    Target,
}

impl Role {
    /// As `--set-list` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Role::Source => "source",
            Role::Target => "target",
        }
    }
}

/// A primary with its standbys.
pub struct Side<'a> {
    pub role: Role,
    /// The primary, and then its standbys.
    pub places: Vec<Place<'a>>,
    /// The system identifier; empty if the server cannot be reached, as the target of an undo.
    pub system: String,
}

impl<'a> Side<'a> {
    pub fn primary(&self) -> &Place<'a> {
        &self.places[0]
    }

    pub fn standbys(&self) -> &[Place<'a>] {
        &self.places[1..]
    }
}

/// The servers of the command line, with those that `--to` and `--from` add to them.
pub struct Servers {
    fleet: Fleet,
    to: Vec<usize>,
    from: Vec<usize>,
}

impl Servers {
    pub fn load(cli: &Cli, arguments: &Arguments) -> Result<Servers> {
        let given = &cli.servers;
        let any = given.fleet.is_some() || !given.connections.is_empty();
        // Without any, the server is that of the environment, which is the source if --from does not say another.
        let mut fleet = if any || arguments.from.is_none() { Fleet::load(given)? } else { Fleet::default() };
        let to = fleet.add(&arguments.to)?;
        let from = arguments.from.as_deref().map_or(Ok(Vec::new()), |from| fleet.add(from))?;
        if to.iter().any(|number| from.contains(number)) {
            return Err(Error::Usage("--to and --from are the same server".into()));
        }
        Ok(Servers { fleet, to, from })
    }

    /// The source and the target. A schema of one of these names is on the source, or was. An undo needs no target that
    /// runs; the servers that cannot be reached, and may be standbys, are then given too.
    pub fn sides(&self, names: &[&str], is_undo: bool) -> Result<(Side<'_>, Side<'_>, Vec<&Server>)> {
        let mut seen = Vec::new();
        let mut away = Vec::new();
        // Those that were named come first, for their connection strings say the database.
        let order: Vec<usize> = (self.to.iter().chain(&self.from))
            .copied()
            .chain((0..self.fleet.servers.len()).filter(|n| !self.to.contains(n) && !self.from.contains(n)))
            .collect();
        let mut looks: Vec<Option<Result<Seen<'_>>>> =
            self.fleet.each(|server| look(server, names)).into_iter().map(Some).collect();
        for number in order {
            match looks[number].take() {
                Some(Ok(found)) => {
                    let is_same =
                        |(_, other): &(usize, Seen<'_>)| other.member.identity == found.member.identity;
                    let is_new = !seen.iter().any(is_same);
                    seen.extend(is_new.then_some((number, found)));
                }
                Some(Err(error)) if is_undo && !self.from.contains(&number) => {
                    crate::terminal::output::note(format!("{error}"));
                    away.push(number);
                }
                Some(Err(error)) if self.to.contains(&number) || self.from.contains(&number) => {
                    return Err(error);
                }
                Some(Err(error @ (Error::Unreachable { .. } | Error::NoAnswer { .. }))) => {
                    return Err(Error::refused(
                        error.to_string(),
                        "It may be a standby of the source or the target, whose list must be changed too. Start it, or leave \
                         it out if it is none.",
                    ));
                }
                Some(Err(error)) => return Err(error),
                None => {}
            }
        }

        // Where both are seen, that which has the copy is the target.
        let remnants = || seen.iter().filter(|(_, server)| server.remnant.is_some());
        let copy = remnants().find(|(_, server)| server.remnant.as_deref().is_some_and(of_copy));
        if let Some((_, server)) = copy.or_else(|| remnants().next()) {
            return Err(remnant(names[0], server, &self.fleet.servers[self.to[0]]));
        }
        let (groups, unclear) = cluster::groups(seen.iter().map(|(_, server)| server.member.lineage()));
        let name = |place: usize| seen[place].1.member.server.name.as_str();
        let names_of =
            |places: &[usize]| places.iter().map(|place| name(*place)).collect::<Vec<_>>().join(", ");
        let no_primary = |numbers: &[usize]| {
            let place = seen.iter().position(|(number, _)| numbers.contains(number));
            let group = groups.iter().find(|group| place.is_some_and(|place| group.has(place)));
            let hint = match group.and_then(|group| group.primary) {
                Some(primary) => format!("Its primary is {}: name that one.", name(primary)),
                None => "Name its primary.".into(),
            };
            let name = &self.fleet.servers[numbers[0]].name;
            Error::refused(format!("{name} is a standby, which cannot take part"), hint)
        };
        let primary_in = |numbers: &[usize]| {
            seen.iter().position(|(number, server)| numbers.contains(number) && !server.member.is_standby)
        };

        let target = primary_in(&self.to);
        if target.is_none() && !self.to.iter().any(|number| away.contains(number)) {
            return Err(no_primary(&self.to));
        }
        let source = if self.from.is_empty() {
            let of_target = |place: &usize| {
                groups.iter().any(|group| target.is_some() && group.primary == target && group.has(*place))
            };
            let others: Vec<usize> = (0..seen.len())
                .filter(|place| !self.to.contains(&seen[*place].0) && !of_target(place))
                .collect();
            let primaries = || others.iter().copied().filter(|place| !seen[*place].1.member.is_standby);
            // The old rows of an earlier move do not count beside the schema itself.
            let mut candidates: Vec<usize> = primaries().filter(|place| seen[*place].1.has_schema).collect();
            if candidates.is_empty() {
                candidates = primaries().filter(|place| seen[*place].1.has_any).collect();
            }
            match candidates[..] {
                [only] => only,
                [] => {
                    let seen_there: Vec<usize> = primaries().collect();
                    let of_target = target.filter(|place| seen[*place].1.has_schema);
                    return Err(Error::refused(
                        format!(
                            "no primary outside the target's cluster has a schema {} or {}. Those that were seen: {}{}",
                            names[0],
                            names[1],
                            if seen_there.is_empty() { "none".into() } else { names_of(&seen_there) },
                            of_target.map_or(String::new(), |place| format!(
                                ". The target {} has one",
                                name(place)
                            )),
                        ),
                        "Name the server that has it with --from or --server. Check that source and target are not swapped.",
                    ));
                }
                _ => {
                    return Err(Error::refused(
                        format!("several servers have a schema {}: {}", names[0], names_of(&candidates)),
                        "Name the source with --from.",
                    ));
                }
            }
        } else {
            if !seen.iter().any(|(number, _)| self.from.contains(number)) {
                return Err(Error::Usage("--to and --from are the same server".into()));
            }
            primary_in(&self.from).ok_or_else(|| no_primary(&self.from))?
        };

        let side = |role: Role, primary: usize| -> Result<Side<'_>> {
            if let Some(other) = unclear.iter().find(|other| other.primaries.contains(&primary)) {
                return Err(cluster::unclear(name(other.standby), &names_of(&other.primaries)));
            }
            let own = &seen[primary].1;
            // A copy that clients use as well has shards of its own. This one would go on minting for the moved shard, or
            // is what clients use instead.
            let twin = (0..seen.len()).find(|place| {
                let other = &seen[*place].1;
                ![Some(primary), Some(source), target].contains(&Some(*place))
                    && !other.member.is_standby
                    && other.member.system == own.member.system
                    && other.shares_shards_with(own)
            });
            if let Some(other) = twin {
                return Err(Error::refused(
                    format!("the {} has two primaries: {} and {}", role.name(), name(primary), name(other)),
                    "Stop the one that was replaced, and leave it out. A copy that is meant to stay needs shards of its own in \
                     idgen.allowed_shards.",
                ));
            }
            let mut places = vec![Place::new(format!("the {}", role.name()), own.member.server)];
            for group in groups.iter().filter(|group| group.primary == Some(primary)) {
                let standbys = group.standbys.iter().map(|place| seen[*place].1.member.server);
                places.extend(standbys.map(|server| Place::new(format!("standby {}", server.name), server)));
            }
            Ok(Side { role, places, system: own.member.system.clone() })
        };
        let of_target = match target {
            Some(target) => side(Role::Target, target)?,
            None => Side {
                role: Role::Target,
                places: vec![Place::new("the target", &self.fleet.servers[self.to[0]])],
                system: String::new(),
            },
        };
        let away = away.into_iter().filter(|number| !self.to.contains(number));
        Ok((side(Role::Source, source)?, of_target, away.map(|number| &self.fleet.servers[number]).collect()))
    }
}

/// What a first look at a server shows.
struct Seen<'a> {
    member: Member<'a>,
    /// Whether it has the schema, or is in the middle of its move.
    has_schema: bool,
    /// Or at least the old rows.
    has_any: bool,
    /// The comment of a move on the schema itself, if that is what an earlier move of another schema has left.
    remnant: Option<String>,
    /// The shards that it may mint for, if it preloads idgen.
    shards: Option<ShardSet>,
}

impl Seen<'_> {
    fn shares_shards_with(&self, other: &Seen<'_>) -> bool {
        let both = self.shards.zip(other.shards);
        both.is_none_or(|(one, two)| Shard::all().any(|shard| one.contains(shard) && two.contains(shard)))
    }
}

fn look<'a>(server: &'a Server, names: &[&str]) -> Result<Seen<'a>> {
    let member = Member::of(server)?;
    let rows = member.session.query(
        "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname IN ($1, $2)),
                EXISTS (SELECT FROM pg_namespace WHERE nspname IN ($1, $2, $3)),
                (SELECT setting FROM pg_settings WHERE name = 'idgen.allowed_shards'),
                (SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace
                 WHERE nspname = $1 AND nspname ~ '._(moving|moved)$')",
        names,
    )?;
    let row = rows.row(0);
    let (has_schema, has_any) = (row.is_true(0), row.is_true(1));
    let shards = row.text(2).and_then(|list| ShardSet::parse(&list).ok());
    let remnant = row.text(3).filter(|comment| of_source(comment) || of_copy(comment));
    Ok(Seen { member, has_schema, has_any, remnant, shards })
}

/// What says that a person has named the schema that a move has left, and not the one that moves.
fn remnant(schema: &str, seen: &Seen<'_>, target: &Server) -> Error {
    let there = &seen.member.server.name;
    if let Some(own) = schema.strip_suffix("_moved") {
        return Error::refused(
            format!("{schema} on {there} is what an earlier move of {own} has left, and cannot be moved"),
            format!(
                "Name schema {own}, which has the rows now. Once nobody needs the old ones, on {there}: DROP SCHEMA {} CASCADE;",
                Session::identifier(schema)
            ),
        );
    }
    let own = schema.strip_suffix("_moving").unwrap_or(schema);
    let is_copy = seen.remnant.as_deref().is_some_and(of_copy);
    let to = match (is_copy, target.name == *there) {
        (true, _) => words::shell(there),
        (false, false) => words::shell(&target.name),
        (false, true) => "SERVER".into(),
    };
    Error::refused(
        format!("{schema} on {there} is of a move of {own}, which is under way or has broken off"),
        format!(
            "If nobody is moving it, give it back to its source with: idgenctl move {} --to {to} --undo. Or finish the move, \
             with --finish in the place of --undo.",
            words::shell(own)
        ),
    )
}
