//! The source and the target, each with its standbys, found in the fleet.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use idgen_ids::Shard;
use idgen_ids::shard_set::ShardSet;

use super::Names;
use crate::cli::{Cli, Move as Arguments};
use crate::commands::words::Begun;
use crate::connection::server::Server;
use crate::connection::session::{Rows, Session};
use crate::idgen::library;
use crate::terminal::error::{Error, Result};
use crate::terminal::output::note;
use crate::topology::cluster;
use crate::topology::fleet::{Fleet, Member};

/// For so long a server may be at work on what is usually quick, before it is taken for one that does not answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server that takes part.
pub struct Place<'a> {
    /// What messages call it: "the source".
    pub role: String,
    pub server: &'a Server,
    /// The application_name of its sessions, by which a later run finds those that this one leaves at work.
    pub name: String,
    /// Whether Patroni keeps its settings.
    pub has_patroni: bool,
    session: RefCell<Option<Rc<Session>>>,
}

impl<'a> Place<'a> {
    pub fn new(role: impl Into<String>, server: &'a Server, name: &str, has_patroni: bool) -> Place<'a> {
        Place { role: role.into(), server, name: name.into(), has_patroni, session: RefCell::default() }
    }

    /// A session of its own, which may be at work for as long as it takes.
    pub fn fresh(&self) -> Result<Session> {
        let session = self.server.connect_with(&[("application_name", &self.name)])?;
        session.set_patience(None);
        Ok(session)
    }

    /// The session for whatever is quick. One that was lost, or is still at work for somebody who gave up, is replaced.
    pub fn session(&self) -> Result<Rc<Session>> {
        let mut kept = self.session.borrow_mut();
        if let Some(session) = kept.as_ref().filter(|session| session.is_idle()) {
            return Ok(session.clone());
        }
        *kept = None;
        let session = Rc::new(self.fresh()?);
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

/// A primary with its standbys.
pub struct Side<'a> {
    /// As `--set-list` calls it: "source" or "target".
    pub role: &'static str,
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

    pub fn is_reached(&self) -> bool {
        !self.system.is_empty()
    }
}

/// The servers of the command line, with those that `--to` and `--from` add to them.
pub struct Servers {
    fleet: Fleet,
    to: Vec<usize>,
    from: Vec<usize>,
}

/// The servers of a move: each side has its primary first.
pub struct Found<'a> {
    pub source: Vec<Member<'a>>,
    /// Nothing if it cannot be reached, as an undo allows.
    pub target: Vec<Member<'a>>,
    /// The server of `--to`.
    pub to: &'a Server,
    /// Other servers that an undo cannot reach.
    pub away: Vec<&'a Server>,
}

impl Servers {
    pub fn load(cli: &Cli, arguments: &Arguments) -> Result<Servers> {
        let given = &cli.servers;
        let any = given.fleet.is_some() || !given.connections.is_empty();
        // Without any, the server is that of the environment, which is the source if --from does not say another.
        let mut fleet = if any || arguments.from.is_none() { Fleet::load(given)? } else { Fleet::default() };
        let to = vec![fleet.add(&arguments.to)?];
        let from = arguments
            .from
            .as_deref()
            .map_or(Ok(Vec::new()), |from| fleet.add(from).map(|from| vec![from]))?;
        if to.iter().any(|number| from.contains(number)) {
            return Err(Error::Usage("--to and --from are the same server".into()));
        }
        Ok(Servers { fleet, to, from })
    }

    /// Looks at all servers, and finds the source and the target among them.
    pub fn find(&self, names: &Names, is_undo: bool) -> Result<Found<'_>> {
        let (mut seen, mut away): (Vec<Seen<'_>>, _) = (Vec::new(), Vec::new());
        let mut looks: Vec<_> =
            self.fleet.each(|server| look(server, names)).into_iter().enumerate().collect();
        // Those that were named come first, for their connection strings say the database.
        let is_named = |number: usize| self.to.contains(&number) || self.from.contains(&number);
        looks.sort_by_key(|(number, _)| !is_named(*number));
        for (number, look) in looks {
            match look {
                Ok(look) if seen.iter().any(|other| other.member.identity == look.member.identity) => {}
                Ok(look) => seen.push(Seen { number, ..look }),
                Err(error) if is_undo && !self.from.contains(&number) => {
                    note(format!("{error}"));
                    away.push(number);
                }
                Err(error @ (Error::Unreachable { .. } | Error::NoAnswer { .. })) if !is_named(number) => {
                    return Err(Error::refused(
                        error.to_string(),
                        "It may be a standby of the source or the target, whose list must be changed too. Start it, or leave \
                         it out if it is none.",
                    ));
                }
                Err(error) => return Err(error),
            }
        }

        let (groups, unclear) = cluster::groups(seen.iter().map(|look| look.member.lineage()));
        let name = |place: usize| seen[place].member.server.name.as_str();
        let names_of =
            |places: &[usize]| places.iter().map(|place| name(*place)).collect::<Vec<_>>().join(", ");
        let primary_in = |numbers: &[usize]| {
            seen.iter().position(|look| numbers.contains(&look.number) && !look.member.is_standby)
        };
        let no_primary = |numbers: &[usize]| {
            let place = seen.iter().position(|look| numbers.contains(&look.number));
            let group = groups.iter().find(|group| place.is_some_and(|place| group.has(place)));
            let hint = match group.and_then(|group| group.primary) {
                Some(primary) => format!("Its primary is {}: name that one.", name(primary)),
                None => "Name its primary.".into(),
            };
            let name = &self.fleet.servers[numbers[0]].name;
            Error::refused(format!("{name} is a standby, which cannot take part"), hint)
        };
        let target = primary_in(&self.to);
        if target.is_none() && !self.to.iter().any(|number| away.contains(number)) {
            return Err(no_primary(&self.to));
        }
        let source = if self.from.is_empty() {
            let of_target = groups.iter().find(|group| target.is_some() && group.primary == target);
            let others: Vec<usize> = (0..seen.len())
                .filter(|place| !seen[*place].member.is_standby && !self.to.contains(&seen[*place].number))
                .filter(|place| of_target.is_none_or(|group| !group.has(*place)))
                .collect();
            // What an earlier move has left does not count beside the schema itself.
            let most = others.iter().map(|place| seen[*place].has).max().filter(|has| *has > 0);
            let found: Vec<usize> =
                others.iter().copied().filter(|place| Some(seen[*place].has) == most).collect();
            match found[..] {
                [only] => only,
                [] => {
                    let all = if others.is_empty() { "none".into() } else { names_of(&others) };
                    return Err(Error::refused(
                        format!(
                            "no primary outside the target's cluster has a schema {} or a move of it. Those that were seen: {all}",
                            names.schema
                        ),
                        "Name the server that has it with --from or --server. Check that source and target are not swapped.",
                    ));
                }
                _ => {
                    return Err(Error::refused(
                        format!("several servers have a schema {}: {}", names.schema, names_of(&found)),
                        "Name the source with --from.",
                    ));
                }
            }
        } else {
            if !seen.iter().any(|look| self.from.contains(&look.number)) {
                return Err(Error::Usage("--to and --from are the same server".into()));
            }
            primary_in(&self.from).ok_or_else(|| no_primary(&self.from))?
        };

        for (role, primary) in [("source", Some(source)), ("target", target)] {
            let Some(primary) = primary else { continue };
            if let Some(other) = unclear.iter().find(|other| other.primaries.contains(&primary)) {
                return Err(cluster::unclear(name(other.standby), &names_of(&other.primaries)));
            }
            // A copy that clients use as well has shards of its own. This one would go on minting for the moved shard, or
            // is what clients use instead.
            let twin = (0..seen.len()).find(|place| {
                let other = &seen[*place];
                ![Some(source), target].contains(&Some(*place))
                    && !other.member.is_standby
                    && other.member.system == seen[primary].member.system
                    && other.shares_shards_with(&seen[primary])
            });
            if let Some(other) = twin {
                return Err(Error::refused(
                    format!("the {role} has two primaries: {} and {}", name(primary), name(other)),
                    "Stop the one that was replaced, and leave it out. A copy that is meant to stay needs shards of its own in \
                     idgen.allowed_shards.",
                ));
            }
        }
        let mut members: Vec<Option<Member<'_>>> = seen.into_iter().map(|look| Some(look.member)).collect();
        let mut side = |primary: Option<usize>| -> Vec<Member<'_>> {
            let group = groups.iter().filter(|group| primary.is_some() && group.primary == primary);
            let places = group.flat_map(|group| primary.into_iter().chain(group.standbys.iter().copied()));
            places.filter_map(|place| members[place].take()).collect()
        };
        let (source, target) = (side(Some(source)), side(target));
        let away = away.into_iter().filter(|number| !self.to.contains(number));
        let away = away.map(|number| &self.fleet.servers[number]).collect();
        Ok(Found { source, target, to: &self.fleet.servers[self.to[0]], away })
    }
}

/// What a first look at a server shows.
struct Seen<'a> {
    number: usize,
    member: Member<'a>,
    /// How much it has of the schema: 2 if it has the schema or a move of it has begun, 1 if it has what a move leaves.
    has: u8,
    /// The shards that it may mint for, if it preloads idgen.
    shards: Option<ShardSet>,
}

impl Seen<'_> {
    fn shares_shards_with(&self, other: &Seen<'_>) -> bool {
        let both = self.shards.zip(other.shards);
        both.is_none_or(|(one, two)| Shard::all().any(|shard| one.contains(shard) && two.contains(shard)))
    }
}

fn look<'a>(server: &'a Server, names: &Names) -> Result<Seen<'a>> {
    let member = Member::of(server)?;
    let there = names.on(&member.session)?;
    let has_begun = Begun::all(&member.session)?.iter().any(|begun| begun.schema == names.schema);
    let has = if has_begun || there.schema { 2 } else { u8::from(there.moving || there.moved) };
    let state = library::state(&member.session)?;
    let shards = state.and_then(|state| ShardSet::parse(state.allowed_shards.as_deref()?).ok());
    Ok(Seen { number: 0, member, has, shards })
}
