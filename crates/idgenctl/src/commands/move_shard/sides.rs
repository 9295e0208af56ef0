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
pub const PATIENCE: Duration = Duration::from_secs(120);

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
    to: usize,
    from: Option<usize>,
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
        let to = fleet.add(&arguments.to)?;
        let from = arguments.from.as_deref().map(|from| fleet.add(from)).transpose()?;
        if from == Some(to) {
            return Err(Error::Usage("--to and --from are the same server".into()));
        }
        Ok(Servers { fleet, to, from })
    }

    /// Looks at all servers, and finds the source and the target among them.
    pub fn find(&self, names: &Names, is_undo: bool) -> Result<Found<'_>> {
        let (mut seen, mut away): (Vec<Seen<'_>>, _) = (Vec::new(), Vec::new());
        for (number, look) in self.fleet.each(|server| look(server, names)).into_iter().enumerate() {
            let server = &self.fleet.servers[number];
            match look {
                Ok(look) => {
                    if let Some(other) =
                        seen.iter().find(|other| other.member.identity == look.member.identity)
                    {
                        let (one, two) = (&other.member.server.name, &server.name);
                        return Err(Error::Usage(format!(
                            "{one} and {two} are the same server: name it once"
                        )));
                    }
                    seen.push(Seen { number, ..look });
                }
                Err(error) if is_undo && self.from != Some(number) => {
                    note(format!("{error}"));
                    away.push(server);
                }
                Err(error) if number == self.to || self.from == Some(number) => return Err(error),
                Err(error) => {
                    return Err(Error::refused(
                        error.to_string(),
                        "It may be a standby of the source or the target, whose list must be changed too. Start it, or leave \
                         it out if it is none.",
                    ));
                }
            }
        }

        let (groups, unclear) = cluster::groups(seen.iter().map(|look| look.member.lineage()));
        let names_of = |places: &[usize]| {
            let names = places.iter().map(|place| seen[*place].member.server.name.as_str());
            names.collect::<Vec<_>>().join(", ")
        };
        let place = |number: usize| match seen.iter().position(|look| look.number == number) {
            Some(place) if seen[place].member.is_standby => Err(Error::refused(
                format!("{} is a standby, which cannot take part", names_of(&[place])),
                "Name its primary.",
            )),
            place => Ok(place),
        };
        let target = place(self.to)?;
        let named = self.from.map(place).transpose()?.flatten();
        let of_target = groups.iter().find(|group| target.is_some() && group.primary == target);
        let others: Vec<usize> = (0..seen.len())
            .filter(|place| !seen[*place].member.is_standby && seen[*place].number != self.to)
            .filter(|place| of_target.is_none_or(|group| !group.has(*place)))
            .collect();
        // What an earlier move has left does not count beside the schema itself.
        let most = others.iter().map(|place| seen[*place].has).max().filter(|has| *has > 0);
        let found: Vec<usize> =
            others.iter().copied().filter(|place| Some(seen[*place].has) == most).collect();
        let source = match (named, &found[..]) {
            (Some(only), _) | (None, &[only]) => only,
            (None, []) => {
                return Err(Error::refused(
                    format!(
                        "no primary outside the target's cluster has a schema {} or a move of it. Those that were seen: {}",
                        names.schema,
                        names_of(&others)
                    ),
                    "Name the server that has it with --from or --server. Check that source and target are not swapped.",
                ));
            }
            (None, several) => {
                return Err(Error::refused(
                    format!("several servers have a schema {}: {}", names.schema, names_of(several)),
                    "Name the source with --from.",
                ));
            }
        };
        for primary in [Some(source), target].into_iter().flatten() {
            if let Some(other) = unclear.iter().find(|other| other.primaries.contains(&primary)) {
                return Err(cluster::unclear(&names_of(&[other.standby]), &names_of(&other.primaries)));
            }
            // A copy that clients use as well has shards of its own. This one would go on minting for the moved shard, or
            // is what clients use instead.
            let twin = others.iter().copied().find(|place| {
                let (own, other) = (&seen[primary], &seen[*place]);
                *place != source && other.member.system == own.member.system && other.shares_shards_with(own)
            });
            if let Some(twin) = twin {
                return Err(Error::refused(
                    format!(
                        "there are two primaries of one system identifier: {}",
                        names_of(&[primary, twin])
                    ),
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
        let to = &self.fleet.servers[self.to];
        away.retain(|server| server.name != to.name);
        Ok(Found { source: side(Some(source)), target: side(target), to, away })
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
    let has_begun = Begun::of(&member.session, &names.schema)?.is_some();
    let has = if has_begun || there.schema { 2 } else { u8::from(there.moving || there.moved) };
    let state = library::state(&member.session)?;
    let shards = state.and_then(|state| ShardSet::parse(state.allowed_shards.as_deref()?).ok());
    Ok(Seen { number: 0, member, has, shards })
}
